//! What the operator says about a token.

use std::fmt;
use std::io::Read;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, de};
use zeroize::Zeroizing;

use super::choice::TokenChoice;
use super::error::TokenError;
use crate::custody::secret_file;
use crate::{SalError, constant_time_eq};

/// The longest PIN file that is read, in bytes. Tokens take far shorter PINs; a longer file is not one.
const MAX_PIN_FILE_BYTES: u64 = 1024;
/// Room for that and a little more.
const PIN_FILE_BUFFER_BYTES: usize = 1100;
/// Said of a PIN that is a number.
const NOT_TEXT: &str = "a PIN is text: put it in quotes, or its leading zeros are lost";

/// Where a token is and how to log in to it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenConfig {
    /// Path of the vendor's PKCS#11 module. Whatever is in this file runs in our process, with the keys: it must not be
    /// writable by other users than root and our own.
    pub module: PathBuf,
    /// Which of the module's tokens.
    pub token: TokenChoice,
    /// Where the user PIN comes from.
    pub pin: PinSource,
    /// How many sessions may be open at once for signing; each is opened when it is first needed. Default 4. More help
    /// only where the token works in parallel.
    #[serde(default = "default_sessions")]
    pub sessions: NonZeroUsize,
}

impl TokenConfig {
    /// How many sessions are used where the configuration says nothing.
    pub const DEFAULT_SESSIONS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(3);

    /// A configuration with the default number of sessions.
    #[must_use]
    pub fn new(module: impl Into<PathBuf>, token: TokenChoice, pin: PinSource) -> Self {
        Self { module: module.into(), token, pin, sessions: Self::DEFAULT_SESSIONS }
    }
}

fn default_sessions() -> NonZeroUsize {
    TokenConfig::DEFAULT_SESSIONS
}

/// Where the user PIN comes from.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PinSource {
    /// The PIN itself. Every reader of the configuration has it: for trials.
    Value(Pin),
    /// A file that only we may read, mode 0600 or stricter. A line break at its end does not count.
    File(PathBuf),
    /// An environment variable.
    Env(String),
}

impl PinSource {
    /// Reads the PIN. It is read anew for each login, so that a changed file takes effect without a restart.
    ///
    /// # Errors
    /// [`TokenError::NoPin`] when there is none, the errors of a secret file otherwise.
    pub(super) fn read(&self) -> Result<Pin, SalError> {
        let none = |reason: String| TokenError::NoPin { reason };
        let pin =
            match self {
                Self::Value(pin) => pin.clone(),
                Self::Env(name) => {
                    let value = std::env::var(name).map_err(|error| match error {
                        std::env::VarError::NotPresent => none(format!(
                            "the environment variable {name} is not set: set it where the service is started"
                        )),
                        std::env::VarError::NotUnicode(_) => {
                            none(format!("the environment variable {name} is not UTF-8"))
                        }
                    })?;
                    Pin::new(value)
                }
                Self::File(path) => {
                    let (file, length) = secret_file::open(path)?;
                    if length > MAX_PIN_FILE_BYTES {
                        return Err(none(format!(
                            "{} has {length} bytes, more than any PIN ({MAX_PIN_FILE_BYTES})",
                            path.display()
                        ))
                        .into());
                    }
                    // Reserved at once: growing would leave copies behind that are not wiped.
                    let mut text = Zeroizing::new(String::with_capacity(PIN_FILE_BUFFER_BYTES));
                    file.take(MAX_PIN_FILE_BYTES)
                        .read_to_string(&mut text)
                        .map_err(|source| SalError::File { action: "read", path: path.clone(), source })?;
                    let line = text.strip_suffix('\n').unwrap_or(&text);
                    Pin::new(line.strip_suffix('\r').unwrap_or(line).to_owned())
                }
            };
        if pin.as_str().is_empty() {
            return Err(none(format!("{self} is empty")).into());
        }
        Ok(pin)
    }
}

/// Names the place, never the PIN.
impl fmt::Display for PinSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(_) => f.write_str("the PIN in the configuration"),
            Self::File(path) => write!(f, "the PIN file {}", path.display()),
            Self::Env(name) => write!(f, "the PIN in the environment variable {name}"),
        }
    }
}

/// A user PIN, wiped when it goes and never printed.
#[derive(Clone)]
pub struct Pin(Zeroizing<String>);

impl Pin {
    /// Takes a PIN.
    #[must_use]
    pub fn new(pin: String) -> Self {
        Self(Zeroizing::new(pin))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether two are the same, in time that depends only on their lengths.
    pub(super) fn matches(&self, other: &Self) -> bool {
        constant_time_eq(self.0.as_bytes(), other.0.as_bytes())
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pin(..)")
    }
}

impl<'de> Deserialize<'de> for Pin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Asked for text, some formats complain about a number before the visitor can.
        deserializer.deserialize_any(PinVisitor)
    }
}

/// Takes text only. A number has lost its leading zeros, and the usual complaint about it would print it.
struct PinVisitor;

impl de::Visitor<'_> for PinVisitor {
    type Value = Pin;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a PIN in quotes")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Pin, E> {
        Ok(Pin::new(text.to_owned()))
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<Pin, E> {
        Ok(Pin::new(text))
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Pin, E> {
        Err(E::custom(NOT_TEXT))
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<Pin, E> {
        Err(E::custom(NOT_TEXT))
    }

    fn visit_i128<E: de::Error>(self, _: i128) -> Result<Pin, E> {
        Err(E::custom(NOT_TEXT))
    }

    fn visit_u128<E: de::Error>(self, _: u128) -> Result<Pin, E> {
        Err(E::custom(NOT_TEXT))
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Pin, E> {
        Err(E::custom(NOT_TEXT))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_configuration_reads_and_unknown_keys_are_refused() {
        let config: TokenConfig = serde_json::from_str(
            r#"{"module": "/lib/m.so", "token": {"label": "ca"}, "pin": {"value": "137"}}"#,
        )
        .unwrap();
        assert_eq!(config.sessions.get(), 4);
        assert_eq!(config.token, TokenChoice::Label("ca".to_owned()));
        assert_eq!(config.pin.read().unwrap().as_str(), "137");
        assert!(!format!("{config:?}").contains("137"), "{config:?}");

        for refused in [
            r#"{"module": "/m", "token": {"label": "ca"}, "pin": {"value": "1"}, "slot": 1}"#,
            r#"{"module": "/m", "token": {"name": "ca"}, "pin": {"value": "1"}}"#,
            r#"{"module": "/m", "token": {"slot": 1}, "pin": {"value": "1"}, "sessions": 0}"#,
            r#"{"module": "/m", "token": {"slot": 1}}"#,
            r#"{"module": "/m", "token": {"slot": 1}, "pin": {"value": 1370137}}"#,
            r#"{"module": "/m", "token": {"slot": 1}, "pin": {"value": -1370137.5}}"#,
        ] {
            let error = serde_json::from_str::<TokenConfig>(refused).unwrap_err().to_string();
            assert!(!error.contains("1370137"), "{error}");
        }
    }

    #[test]
    fn a_pin_file_must_be_private_and_its_line_break_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pin");
        let source = PinSource::File(path.clone());
        assert!(matches!(source.read(), Err(SalError::File { .. })));
        for (content, pin) in [("1 37\n", "1 37"), ("137", "137"), ("137\r\n", "137"), ("137\n\n", "137\n")] {
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            assert_eq!(source.read().unwrap().as_str(), pin);
        }
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(source.read(), Err(SalError::LooseMode { mode: 0o640, .. })));
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        for content in [String::new(), "\n".to_owned(), "1".repeat(1025)] {
            fs::write(&path, content).unwrap();
            assert!(matches!(source.read(), Err(SalError::Token(TokenError::NoPin { .. }))));
        }
        let unset = PinSource::Env("SALLYPORT_TEST_UNSET_PIN".to_owned());
        let error = unset.read().unwrap_err().to_string();
        assert!(error.contains("SALLYPORT_TEST_UNSET_PIN is not set"), "{error}");
    }
}
