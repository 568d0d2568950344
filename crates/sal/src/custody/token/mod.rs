//! Custody in a token: a hardware security module, a smart card, or anything else that speaks PKCS#11.
//!
//! The vendor's module is a shared library that is found when a token is configured; nothing of it is linked. Private
//! keys are made inside the token and never leave it. What is stored is where to find them: the token's serial number and
//! the key's id.
//!
//! A token may be pulled out and put back while we run. Whatever was going on fails with [`TokenError::Gone`], and each
//! later signature looks for the token again.
//!
//! All calls block, for as long as the token takes.

mod choice;
mod config;
mod discover;
mod encoding;
mod error;
mod link;
mod mechanism;
mod module;
mod object;

use std::fmt;
use std::sync::Arc;

use cryptoki::object::ObjectHandle;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

pub use choice::TokenChoice;
pub use config::{Pin, PinSource, TokenConfig};
pub use discover::{TokenAbility, TokenInfo, discover};
pub use error::{PinTries, TokenError};

use super::{Custody, StoredKey};
use crate::algorithm::{KeyKind, SignatureScheme};
use crate::{KeyAlgorithm, KeyPurpose, PublicKey, SalError, SignError, Signer, economy, random};
use link::{Connection, Fault, Link};
use mechanism::Plan;
use module::Entered;
use object::{ID_BYTES, KeyId};

/// Signed to show that a key is there; it starts like nothing else that we sign.
const PROOF: &[u8] = b"sallyport proof of possession\0";

/// Custody in a token.
#[derive(Clone)]
pub struct TokenCustody {
    link: Arc<Link>,
}

/// What [`StoredKey::handle`] holds, as JSON in base64.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Handle {
    /// The serial number of the token that made the key: for people who have several. A key is accepted from another
    /// token as well, since a backup restored into a new one has a new number; the public key tells whether it is it.
    serial: String,
    /// The key's `CKA_ID`, in hexadecimal.
    id: String,
}

impl TokenCustody {
    const NAME: &'static str = "token";

    /// Loads the module if it is not loaded yet, finds the token and logs in. A token that is open in this process
    /// already is shared, with its sessions.
    ///
    /// # Errors
    /// A [`TokenError`] that says what to do, or the errors of a secret file for a PIN file.
    pub fn open(config: &TokenConfig) -> Result<Self, SalError> {
        Ok(Self { link: Link::open(config)? })
    }
}

impl fmt::Debug for TokenCustody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenCustody").field("token", &self.link.name()).finish_non_exhaustive()
    }
}

impl Custody for TokenCustody {
    fn generate_for(
        &self,
        purpose: Option<KeyPurpose>,
        label: &str,
        algorithm: KeyAlgorithm,
    ) -> Result<StoredKey, SalError> {
        let generator = mechanism::generator(algorithm).ok_or(TokenError::Unsupported { algorithm })?;
        let (public, handle) = self.link.run("make a key pair", |connection, entered| {
            // A key that could not sign is not made.
            plan(connection, algorithm.default_scheme(), algorithm)?;
            if !connection.mechanisms.can_generate(algorithm) {
                return Err(TokenError::NoMechanism {
                    token: connection.name.clone(),
                    operation: "make keys",
                    algorithm,
                    needed: generator.mechanism_type().to_string(),
                    has: connection.mechanisms.names(),
                }
                .into());
            }
            let id = KeyId(random::bytes::<ID_BYTES>()?);
            let public = economy::counted(purpose, algorithm, || {
                object::generate(connection, entered, id, label, algorithm)
            })?;
            Ok((public, Handle { serial: connection.serial.clone(), id: id.hex() }))
        })?;
        let handle = serde_json::to_vec(&handle)
            .map_err(|_| SalError::Provider { operation: "write down where a key is" })?;
        Ok(StoredKey {
            custody: Self::NAME.to_owned(),
            label: label.to_owned(),
            algorithm,
            public_key: data_encoding::BASE64.encode(&public.spki_der()),
            handle: data_encoding::BASE64.encode(&handle),
        })
    }

    fn load(&self, stored: &StoredKey) -> Result<Arc<dyn Signer>, SalError> {
        if stored.custody != Self::NAME {
            return Err(SalError::WrongCustody {
                label: stored.label.clone(),
                got: stored.custody.clone(),
                expected: Self::NAME,
            });
        }
        if mechanism::generator(stored.algorithm).is_none() {
            return Err(TokenError::Unsupported { algorithm: stored.algorithm }.into());
        }
        let damaged = |reason| TokenError::BadRecord { label: stored.label.clone(), reason };
        let handle = data_encoding::BASE64
            .decode(stored.handle.as_bytes())
            .map_err(|_| damaged("the handle is not base64"))?;
        let handle: Handle = serde_json::from_slice(&handle)
            .map_err(|_| damaged("the handle does not name a token and a key"))?;
        let id = KeyId::from_hex(&handle.id)
            .ok_or_else(|| damaged("the key's id is not 16 bytes in hexadecimal"))?;
        let public = stored.public_key()?;
        if public.algorithm() != stored.algorithm {
            return Err(damaged("its public key is of another type").into());
        }
        let signer = TokenSigner {
            link: Arc::clone(&self.link),
            id,
            label: stored.label.clone(),
            public,
            found: Mutex::new(None),
        };
        if signer.check()? == Shown::No {
            let proof = [PROOF, &random::bytes::<32>()?].concat();
            signer.make(stored.algorithm.default_scheme(), &proof)?;
        }
        Ok(Arc::new(signer))
    }

    fn discard(&self, labels: &[String]) -> Result<usize, SalError> {
        self.link.run("remove a key", |connection, entered| {
            let mut keys = 0;
            for label in labels {
                keys += object::discard(connection, entered, label)?;
            }
            Ok(keys)
        })
    }
}

/// A private key in a token.
pub struct TokenSigner {
    link: Arc<Link>,
    id: KeyId,
    label: String,
    public: PublicKey,
    /// The key's object handle, and the number of the connection that it is good for.
    found: Mutex<Option<(u64, ObjectHandle)>>,
}

/// Whether the token showed us that the key is the one of our public key.
#[derive(PartialEq, Eq)]
enum Shown {
    Yes,
    No,
}

impl TokenSigner {
    /// Looks at the key in the token, without using it.
    fn check(&self) -> Result<Shown, SalError> {
        let algorithm = self.public.algorithm();
        self.link.run("find a key", |connection, entered| {
            plan(connection, algorithm.default_scheme(), algorithm)?;
            let lease = connection.lease(entered)?;
            let session = lease.session()?;
            let handle = self.find(connection, entered, session)?;
            object::check_private(connection, session, handle, &self.label, algorithm)?;
            let public = object::find_public(connection, session, self.id, &self.label, algorithm)?;
            lease.give_back();
            match public {
                Some(public) if public == self.public => Ok(Shown::Yes),
                Some(_) => Err(TokenError::OtherKey {
                    token: connection.name.clone(),
                    label: self.label.clone(),
                    difference: "its public key there is another".to_owned(),
                }
                .into()),
                None => Ok(Shown::No),
            }
        })
    }

    /// Has a signature made, and gives it out only when it verifies.
    fn make(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, SalError> {
        let algorithm = self.public.algorithm();
        let bad =
            || TokenError::BadSignature { token: self.link.name().to_owned(), label: self.label.clone() };
        let raw = self.link.run("sign", |connection, entered| {
            let plan = plan(connection, scheme, algorithm)?;
            let input = plan.input(message);
            let lease = connection.lease(entered)?;
            let session = lease.session()?;
            let handle = match self.remembered(connection) {
                Some(handle) => handle,
                None => self.find(connection, entered, session)?,
            };
            let signature = session.sign(&plan.mechanism, handle, &input).or_else(|error| {
                self.forget();
                if !error::is_stale_handle(&error) {
                    return Err(connection.fault("sign", &error));
                }
                // The key was deleted, was put back under another handle, or is out of reach with its token: looking
                // for it tells, and fails in the right words.
                let handle = self.find(connection, entered, session)?;
                session
                    .sign(&plan.mechanism, handle, &input)
                    .map_err(|error| connection.fault("sign", &error))
            })?;
            lease.give_back();
            Ok(signature)
        })?;
        let signature = match algorithm.kind() {
            KeyKind::Ecdsa => encoding::ecdsa_signature(algorithm, &raw).ok_or_else(bad)?,
            _ => raw,
        };
        self.public.verify_with(scheme, message, &signature).map_err(|error| match error {
            SalError::BadSignature { .. } => bad().into(),
            other => other,
        })?;
        Ok(signature)
    }

    fn remembered(&self, connection: &Connection) -> Option<ObjectHandle> {
        match *self.found.lock() {
            Some((number, handle)) if number == connection.number => Some(handle),
            _ => None,
        }
    }

    fn forget(&self) {
        *self.found.lock() = None;
    }

    fn find(
        &self,
        connection: &Connection,
        entered: &Entered<'_>,
        session: &cryptoki::session::Session,
    ) -> Result<ObjectHandle, Fault> {
        let Some(handle) = object::find_private(connection, session, self.id, &self.label)? else {
            // Some modules find nothing in a token that was pulled out, and see no error in that.
            connection.is_present(entered)?;
            return Err(TokenError::NoKey {
                token: connection.name.clone(),
                label: self.label.clone(),
                id: self.id.hex(),
            }
            .into());
        };
        *self.found.lock() = Some((connection.number, handle));
        Ok(handle)
    }
}

fn plan(
    connection: &Connection,
    scheme: SignatureScheme,
    algorithm: KeyAlgorithm,
) -> Result<Plan, TokenError> {
    connection.mechanisms.plan(scheme, algorithm).ok_or_else(|| TokenError::NoMechanism {
        token: connection.name.clone(),
        operation: "sign",
        algorithm,
        needed: mechanism::signers(scheme),
        has: connection.mechanisms.names(),
    })
}

impl Signer for TokenSigner {
    fn algorithm(&self) -> KeyAlgorithm {
        self.public.algorithm()
    }

    fn public_key(&self) -> PublicKey {
        self.public.clone()
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignError> {
        self.sign_with(self.public.algorithm().default_scheme(), message)
    }

    fn sign_with(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, SignError> {
        let algorithm = self.public.algorithm();
        if !scheme.fits(algorithm) {
            return Err(SignError { algorithm, reason: format!("such a key does not sign by {scheme}") });
        }
        self.make(scheme, message).map_err(|error| SignError { algorithm, reason: chain(&error) })
    }
}

impl fmt::Debug for TokenSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenSigner")
            .field("token", &self.link.name())
            .field("label", &self.label)
            .field("public", &self.public)
            .finish_non_exhaustive()
    }
}

/// An error with its sources, for a place that holds text.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(next) = source {
        text.push_str(": ");
        text.push_str(&next.to_string());
        source = next.source();
    }
    text
}
