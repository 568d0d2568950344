//! Attestation statements of U2F keys (WebAuthn L3 §8.6).

use sallyport_sal::KeyAlgorithm;

use super::certificate::Certificate;
use super::error::AttestationError;
use super::statement::{Statement, Verified};
use crate::cose::Algorithm;

pub(super) fn verify<'a>(statement: &Statement<'a>) -> Result<Verified<'a>, AttestationError> {
    let syntax = AttestationError::Syntax;
    // Step 1 of the verification procedure.
    statement.only(&["sig", "x5c"])?;
    let signature = statement.signature()?;
    let path = statement.certificates()?.ok_or(syntax("it has no x5c"))?;
    // Step 2.
    let [own] = path.as_slice() else { return Err(syntax("its x5c has more than one certificate")) };
    let certificate = Certificate::parse(0, own)?;
    if certificate.key.algorithm() != KeyAlgorithm::EcdsaP256 {
        return Err(AttestationError::Certificate { at: 0, reason: "its key is not on P-256" });
    }
    // Steps 3 and 4: the raw point is what the abstraction layer has of a key on P-256.
    let credential = statement.credential;
    if credential.key.algorithm != Algorithm::Es256 {
        return Err(syntax("the credential of a U2F key does not sign by ES256"));
    }
    let point = credential.key.key.raw();
    // Steps 5 and 6.
    let signed = [&[0][..], statement.rp_id_hash, statement.client_data_hash, credential.id, point];
    certificate.verify(Algorithm::Es256, &signed, signature)?;
    Ok(Verified::Certified { path })
}
