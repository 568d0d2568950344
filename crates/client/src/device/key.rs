//! Where a device's key is: in a token that speaks PKCS#11, such as a TPM, or in a file.
//!
//! [`DeviceKey`] is the seam for other hardware: the Secure Enclave of a Mac, or the TPM of Windows without PKCS#11. Neither is built.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sallyport_access::DeviceCustody;
use sallyport_ca::DEVICE_KEY;
use sallyport_sal::custody::token::{Pin, PinSource, TokenChoice, TokenConfig, TokenCustody};
use sallyport_sal::custody::{Custody, StoredKey};
use sallyport_sal::{MemoryKey, Signer};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::error::{Doing, Result};
use crate::profile::write_private;

/// Asks a person for the PIN of a token, by its name; none where no person can be asked.
pub type AskPin = fn(&str) -> Option<Zeroizing<String>>;

/// The private key of a device, wherever it is.
pub trait DeviceKey: Send + Sync + fmt::Debug {
    /// Where it is, as the authority is told.
    fn custody(&self) -> DeviceCustody;

    /// What signs with it. Its calls block, for as long as the hardware takes.
    fn signer(&self) -> &dyn Signer;
}

struct InFile(MemoryKey);

impl fmt::Debug for InFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFile").finish_non_exhaustive()
    }
}

impl DeviceKey for InFile {
    fn custody(&self) -> DeviceCustody {
        DeviceCustody::File
    }

    fn signer(&self) -> &dyn Signer {
        &self.0
    }
}

/// A key that its token has said is neither extractable nor readable ([`TokenCustody`] asks when it makes and when it loads one).
struct InToken(Arc<dyn Signer>);

impl fmt::Debug for InToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InToken").finish_non_exhaustive()
    }
}

impl DeviceKey for InToken {
    fn custody(&self) -> DeviceCustody {
        DeviceCustody::Hardware
    }

    fn signer(&self) -> &dyn Signer {
        self.0.as_ref()
    }
}

/// Which of a module's tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenName {
    /// By the label that it was given.
    Label(String),
    /// By its serial number.
    Serial(String),
}

impl TokenName {
    fn choice(&self) -> TokenChoice {
        match self {
            Self::Label(label) => TokenChoice::Label(label.clone()),
            Self::Serial(serial) => TokenChoice::Serial(serial.clone()),
        }
    }

    fn as_str(&self) -> &str {
        match self {
            Self::Label(name) | Self::Serial(name) => name,
        }
    }
}

/// Where a token's PIN is written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PinPlace {
    /// A file of mode 0600.
    File(PathBuf),
    /// A variable of the environment.
    Env(String),
    /// Nowhere: the person is asked.
    Asked,
}

/// Where a key is to be made.
#[derive(Debug, Clone)]
pub enum NewKey {
    /// In a file of mode 0600 beside what is written down of the device.
    File,
    /// In a token.
    Token {
        /// The PKCS#11 module, a shared library.
        module: PathBuf,
        /// Which of its tokens.
        token: TokenName,
        /// Where its PIN is.
        pin: PinPlace,
    },
}

/// Where a key is, as it is written down. Nothing of it is secret.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum KeptKey {
    /// The name of a file beside.
    File(String),
    Token {
        module: PathBuf,
        token: TokenName,
        pin: PinPlace,
        key: StoredKey,
    },
}

type Write = Box<dyn FnOnce(&Path) -> Result + Send>;

/// A key that was made. What is to be written, if anything, is written once the authority has taken it.
pub(super) struct Made {
    pub(super) key: Arc<dyn DeviceKey>,
    pub(super) kept: KeptKey,
    pub(super) write: Write,
}

impl NewKey {
    pub(super) fn make(self, name: &str, ask: AskPin) -> Result<Made> {
        let failed = "make the key of this device";
        match self {
            Self::File => {
                let key = MemoryKey::generate(DEVICE_KEY).doing(failed)?;
                let pem = key.to_pkcs8_pem().doing(failed)?;
                let file = format!("{name}.key");
                let kept = KeptKey::File(file.clone());
                let write: Write = Box::new(move |directory| write_private(&directory.join(file), &pem));
                Ok(Made { key: Arc::new(InFile(key)), kept, write })
            }
            Self::Token { module, token, pin } => {
                let custody = open_token(&module, &token, &pin, ask)?;
                let label = format!("sallyport device {name}");
                let stored = custody.generate(&label, DEVICE_KEY).doing(failed)?;
                // Loading asks the token again whether the key could leave it.
                let signer = custody.load(&stored).doing(failed)?;
                let kept = KeptKey::Token { module, token, pin, key: stored };
                Ok(Made { key: Arc::new(InToken(signer)), kept, write: Box::new(|_| Ok(())) })
            }
        }
    }
}

impl KeptKey {
    pub(super) fn open(&self, directory: &Path, ask: AskPin) -> Result<Arc<dyn DeviceKey>> {
        let failed = "use the key of this device";
        match self {
            Self::File(name) => {
                let path = directory.join(Path::new(name).file_name().unwrap_or_default());
                let text = std::fs::read_to_string(&path).doing(format!("read {}", path.display()))?;
                let key = MemoryKey::from_pkcs8_pem(&Zeroizing::new(text)).doing(failed)?;
                Ok(Arc::new(InFile(key)))
            }
            Self::Token { module, token, pin, key } => {
                let custody = open_token(module, token, pin, ask)?;
                Ok(Arc::new(InToken(custody.load(key).doing(failed)?)))
            }
        }
    }
}

fn open_token(module: &Path, token: &TokenName, pin: &PinPlace, ask: AskPin) -> Result<TokenCustody> {
    let failed = || format!("use the token {:?} of {}", token.as_str(), module.display());
    let pin = match pin {
        PinPlace::File(path) => PinSource::File(path.clone()),
        PinPlace::Env(name) => PinSource::Env(name.clone()),
        PinPlace::Asked => {
            let none = std::io::Error::other("there is no terminal to ask for its PIN");
            let pin = ask(token.as_str()).ok_or(none).doing(failed())?;
            PinSource::Value(Pin::new((*pin).clone()))
        }
    };
    TokenCustody::open(&TokenConfig::new(module, token.choice(), pin)).doing(failed())
}
