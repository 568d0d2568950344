//! Packed attestation statements (WebAuthn L3 §8.2).

use super::certificate::{self, Certificate};
use super::error::AttestationError;
use super::statement::{Statement, Verified};
use crate::cbor::Value;
use crate::cose::Algorithm;

pub(super) fn verify<'a>(statement: &Statement<'a>) -> Result<Verified<'a>, AttestationError> {
    // Step 1 of the verification procedure.
    statement.only(&["alg", "sig", "x5c"])?;
    let number = statement
        .fields
        .member("alg")
        .and_then(Value::integer)
        .ok_or(AttestationError::Syntax("it has no alg, or that is not an integer"))?;
    let algorithm = Algorithm::try_from(number)?;
    let signature = statement.signature()?;
    let signed: [&[u8]; 2] = [statement.auth_data, statement.client_data_hash];
    let credential = statement.credential;
    match statement.certificates()? {
        // Step 2.
        Some(path) => {
            let own = path.first().copied().unwrap_or_default();
            let own = Certificate::parse(0, own)?;
            own.verify(algorithm, &signed, signature)?;
            own.check_packed()?;
            if own.model()?.is_some_and(|model| model != *credential.aaguid.as_bytes()) {
                return Err(AttestationError::OtherModel);
            }
            certificate::parse_rest(&path)?;
            Ok(Verified::Certified { path })
        }
        // Step 3.
        None => {
            if algorithm != credential.key.algorithm {
                return Err(AttestationError::AlgorithmMismatch {
                    got: algorithm,
                    expected: credential.key.algorithm,
                });
            }
            if credential.key.verifies(&signed, signature) {
                Ok(Verified::SelfSigned)
            } else {
                Err(AttestationError::Signature)
            }
        }
    }
}
