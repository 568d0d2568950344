//! Certificates to measure with: the least that TLS accepts, for any type of key.
//!
//! Certificates that anyone trusts are made by `sallyport-ca`. These say `localhost` and `127.0.0.1`, are valid from
//! 2020 to 2049, and are forgotten after the measurement.

use crate::formats::spki::put_length;
use crate::{PublicKey, SalError, Signer};

/// What a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Signs others.
    Authority,
    /// A server, or a client.
    Leaf,
}

/// Makes a certificate for a public key, signed by an issuer. `number` keeps subjects and serial numbers apart.
///
/// # Errors
/// [`SalError::Provider`] when the issuer cannot sign.
pub fn issue(
    subject: &PublicKey,
    number: u8,
    role: Role,
    issuer: &dyn Signer,
    issuer_number: u8,
) -> Result<Vec<u8>, SalError> {
    let scheme = issuer.algorithm().default_scheme();
    let algorithm =
        scheme.x509_algorithm_der().ok_or(SalError::Provider { operation: "name a signature algorithm" })?;
    let serial = element(0x02, &[1, number]);
    let validity =
        element(0x30, &[element(0x17, b"200101000000Z"), element(0x17, b"491231235959Z")].concat());
    let body = element(
        0x30,
        &[
            vec![0xa0, 3, 2, 1, 2],
            serial,
            algorithm.clone(),
            name(issuer_number),
            validity,
            name(number),
            subject.spki_der(),
            element(0xa3, &element(0x30, &extensions(role))),
        ]
        .concat(),
    );
    let signature = issuer
        .sign_with(scheme, &body)
        .map_err(|_| SalError::Provider { operation: "sign a certificate" })?;
    let bits = element(0x03, &[&[0][..], &signature].concat());
    Ok(element(0x30, &[body, algorithm, bits].concat()))
}

/// Basic constraints, key usage and names (RFC 5280 §4.2.1), the least that verifiers ask for.
fn extensions(role: Role) -> Vec<u8> {
    let extension = |oid: &[u8], critical: bool, value: &[u8]| {
        let critical = if critical { vec![0x01, 1, 0xff] } else { Vec::new() };
        element(0x30, &[element(0x06, oid), critical, element(0x04, value)].concat())
    };
    match role {
        Role::Authority => [
            extension(&[0x55, 0x1d, 0x13], true, &[0x30, 3, 0x01, 1, 0xff]),
            extension(&[0x55, 0x1d, 0x0f], true, &[0x03, 2, 1, 0x06]),
        ]
        .concat(),
        Role::Leaf => {
            let names = [element(0x82, b"localhost"), element(0x87, &[127, 0, 0, 1])].concat();
            [
                extension(&[0x55, 0x1d, 0x0f], true, &[0x03, 2, 7, 0x80]),
                extension(&[0x55, 0x1d, 0x11], false, &element(0x30, &names)),
            ]
            .concat()
        }
    }
}

fn name(number: u8) -> Vec<u8> {
    let common_name = format!("measurement {number}");
    let attribute = [element(0x06, &[0x55, 0x04, 0x03]), element(0x0c, common_name.as_bytes())].concat();
    element(0x30, &element(0x31, &element(0x30, &attribute)))
}

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len() + 4);
    out.push(tag);
    put_length(&mut out, content.len());
    out.extend_from_slice(content);
    out
}
