//! Keys in the formats that other tools read and write.

pub mod pkcs8;
pub mod sec1;
pub mod spki;

use rustls::pki_types::PrivateKeyDer;

use crate::{PrivateKeyMaterial, SalError};

/// Reads a private key whose form is known: PKCS#8, SEC1 or PKCS#1.
///
/// # Errors
/// [`SalError::BadPrivateKey`] when it is malformed.
pub fn read_der(key: &PrivateKeyDer<'_>) -> Result<PrivateKeyMaterial, SalError> {
    match key {
        PrivateKeyDer::Pkcs8(der) => pkcs8::decode(der.secret_pkcs8_der()),
        _ => Err(SalError::BadPrivateKey { reason: "expected PKCS#8".to_owned() }),
    }
}
