//! Keys as files: the formats that other tools read and write.
//!
//! [`read_private`] and [`read_public`] find out by themselves what they are given; [`write_private`] and
//! [`write_public`] are told. In the middle stands [`PrivateKeyMaterial`], or a [`PublicKey`].
//!
//! | format | holds | encrypted |
//! |---|---|---|
//! | PKCS#8 (RFC 5958) | all | PBES2 (RFC 8018): written with PBKDF2 and AES-256-CBC, read with scrypt as well |
//! | SEC1 (RFC 5915) | ECDSA | no |
//! | PKCS#1 (RFC 8017) | RSA | no: OpenSSL's old way is refused |
//! | OpenSSH | all but ML-DSA | bcrypt-pbkdf and AES-256-CTR |
//! | JWK (RFC 7517) | all | no |
//!
//! What comes out of a reader has been proven: the secret half is in range, and the public half is the one that belongs
//! to it. Readers take one encoding for each key and refuse the others that some tools wink at; the error says what was
//! found, and where there is one, the command that converts it. No file, however hostile, takes more than a bounded
//! time and memory, and secrets are wiped wherever they were copied to.

mod arithmetic;
pub(crate) mod ec;
mod error;
mod format;
mod identifier;
mod ml_dsa;
mod passphrase;
mod pem;
mod proof;
mod rsa;
mod shape;
mod trusted;

pub mod danger;
pub mod jwk;
pub mod openssh;
pub mod pkcs1;
pub mod pkcs8;
pub mod sec1;
pub mod spki;

use rustls::pki_types::PrivateKeyDer;
use zeroize::Zeroizing;

use self::format::Accept;
use self::passphrase::Cost;
use self::shape::{Der, Shape};
use crate::{KeyAlgorithm, PrivateKeyMaterial, PublicKey, SalError};

pub use error::FormatError;
pub use format::{Format, MAX_FILE_BYTES, PublicFormat};
pub use proof::prove;

/// What it costs to try a passphrase on what is written.
const WRITTEN_COST: Cost =
    Cost { pbkdf2_iterations: pkcs8::WRITTEN_ITERATIONS, bcrypt_rounds: openssh::WRITTEN_ROUNDS };

/// Reads a private key in whatever format it is: PEM, DER, OpenSSH or JWK. Of several PEM blocks the first private key
/// is taken. A passphrase for a key that is not encrypted is ignored.
///
/// On success the secret half is in range and the public half belongs to it.
///
/// # Errors
/// [`FormatError::PassphraseNeeded`] and [`FormatError::WrongPassphrase`] are for the person to mend; the others say
/// what was found, and what was expected.
pub fn read_private(bytes: &[u8], passphrase: Option<&[u8]>) -> Result<PrivateKeyMaterial, FormatError> {
    read_any_private(bytes, passphrase, Accept::Production)
}

/// Reads a private key whose form is known: PKCS#8, SEC1 or PKCS#1, not encrypted.
///
/// # Errors
/// [`FormatError`] says what was found, and what was expected.
pub fn read_der(key: &PrivateKeyDer<'_>) -> Result<PrivateKeyMaterial, FormatError> {
    match key {
        PrivateKeyDer::Pkcs8(der) => pkcs8::decode(der.secret_pkcs8_der()),
        PrivateKeyDer::Sec1(der) => sec1::decode(der.secret_sec1_der()),
        PrivateKeyDer::Pkcs1(der) => pkcs1::decode(der.secret_pkcs1_der()),
        _ => Err(FormatError::WrongKind {
            found: "a private key in a form that rustls has and we have not".to_owned(),
            expected: "PKCS#8, SEC1 or PKCS#1",
        }),
    }
}

/// Reads a public key in whatever format it is: PEM, DER, a line of `authorized_keys`, or JWK. Of several PEM blocks
/// the first public key is taken. Certificates and private keys are not public keys, and are refused.
///
/// # Errors
/// [`FormatError`] says what was found, and what was expected.
pub fn read_public(bytes: &[u8]) -> Result<PublicKey, FormatError> {
    let FoundPublic { format, algorithm, raw } = read_any_public(bytes, Accept::Production)?;
    PublicKey::from_raw(algorithm, &raw).map_err(|error| match error {
        SalError::BadPublicKey { reason } => FormatError::malformed(format, reason),
        _ => FormatError::Provider { operation: "check a public key of this type" },
    })
}

/// One block of a PEM file (RFC 7468), whatever it holds.
#[derive(Debug)]
pub struct PemBlock<'a> {
    /// What its first line says it is, such as `CERTIFICATE`.
    pub label: &'a str,
    /// The bytes in the base64, which may be a secret.
    ///
    /// # Errors
    /// [`FormatError::Malformed`] when it is not base64, or in lines of different lengths.
    pub content: Result<Zeroizing<Vec<u8>>, FormatError>,
    /// Whether its headers say that it is encrypted in OpenSSL's old way.
    pub encrypted: bool,
}

/// The blocks of a file. Text around them is skipped; a block without its last line is not one.
#[must_use]
pub fn pem_blocks(text: &[u8]) -> Vec<PemBlock<'_>> {
    let read = |block: &pem::Block<'_>| block.decode("PEM block");
    let blocks = pem::blocks(text);
    // The label is the file's, not the block's, so it outlives it.
    blocks
        .iter()
        .map(|block| PemBlock {
            label: block.label,
            content: read(block),
            encrypted: block.is_legacy_encrypted(),
        })
        .collect()
}

/// Writes a private key, encrypted if there is a passphrase.
///
/// # Errors
/// [`FormatError::CannotHold`], [`FormatError::CannotEncrypt`] and [`FormatError::EmptyPassphrase`] when the caller
/// asks for what does not exist; [`FormatError::Malformed`] when the material is not what its type says.
pub fn write_private(
    key: &PrivateKeyMaterial,
    format: Format,
    passphrase: Option<&[u8]>,
) -> Result<Zeroizing<Vec<u8>>, FormatError> {
    write_private_at(key, format, passphrase, WRITTEN_COST)
}

fn write_private_at(
    key: &PrivateKeyMaterial,
    format: Format,
    passphrase: Option<&[u8]>,
    cost: Cost,
) -> Result<Zeroizing<Vec<u8>>, FormatError> {
    if passphrase.is_some() && !format.encrypts() {
        return Err(FormatError::CannotEncrypt { format });
    }
    if passphrase.is_some_and(<[u8]>::is_empty) {
        return Err(FormatError::EmptyPassphrase);
    }
    let text = match format {
        Format::Pkcs8Der => return pkcs8_der(key, passphrase, cost),
        Format::Pkcs8Pem => {
            let label = if passphrase.is_some() { pkcs8::ENCRYPTED_LABEL } else { pkcs8::LABEL };
            pem::encode(label, pem::LINE, &pkcs8_der(key, passphrase, cost)?)?
        }
        Format::Sec1Pem => pem::encode(sec1::LABEL, pem::LINE, &sec1_der(key)?)?,
        Format::Pkcs1Pem => pem::encode(pkcs1::LABEL, pem::LINE, &pkcs1::encode(key)?)?,
        Format::OpenSsh => openssh::encode_at(key, "", passphrase, cost.bcrypt_rounds)?,
        Format::Jwk => jwk::encode_private(key)?,
    };
    Ok(Zeroizing::new(text.as_bytes().to_vec()))
}

/// Writes a public key. Text ends with a line feed.
///
/// # Errors
/// [`FormatError::CannotHold`] for an ML-DSA key and OpenSSH, which has no name for it.
pub fn write_public(key: &PublicKey, format: PublicFormat) -> Result<Vec<u8>, FormatError> {
    Ok(match format {
        PublicFormat::SpkiDer => spki::encode(key.algorithm(), key.raw()),
        PublicFormat::SpkiPem => {
            pem::encode(spki::LABEL, pem::LINE, &spki::encode(key.algorithm(), key.raw()))?
                .as_bytes()
                .to_vec()
        }
        PublicFormat::OpenSsh => (openssh::encode_line(key, "")? + "\n").into_bytes(),
        PublicFormat::Jwk => (jwk::encode_public(key)? + "\n").into_bytes(),
    })
}

fn pkcs8_der(
    key: &PrivateKeyMaterial,
    passphrase: Option<&[u8]>,
    cost: Cost,
) -> Result<Zeroizing<Vec<u8>>, FormatError> {
    match passphrase {
        Some(passphrase) => pkcs8::encode_encrypted_at(key, passphrase, cost.pbkdf2_iterations),
        None => Ok(pkcs8::encode(key)),
    }
}

fn sec1_der(key: &PrivateKeyMaterial) -> Result<Zeroizing<Vec<u8>>, FormatError> {
    sec1::encode(key).ok_or(FormatError::CannotHold {
        format: "SEC1",
        algorithm: key.algorithm(),
        reason: "it is for ECDSA keys; PKCS#8 holds all",
    })
}

const PRIVATE: &str = "a private key as PEM, DER, OpenSSH or JWK";
const PUBLIC: &str = "a public key as PEM, DER, a line of authorized_keys, or JWK";

fn read_any_private(
    bytes: &[u8],
    passphrase: Option<&[u8]>,
    accept: Accept,
) -> Result<PrivateKeyMaterial, FormatError> {
    let wrong = |found: String| FormatError::WrongKind { found, expected: PRIVATE };
    match Shape::of(bytes)? {
        Shape::Jwk(text) => jwk::decode_private_as(text, accept),
        Shape::SshLine(_) => Err(wrong("a public key of OpenSSH".to_owned())),
        Shape::Other(found) => Err(wrong(found)),
        Shape::Der(kind) => match kind {
            Der::Pkcs8 => pkcs8::decode_as(bytes, accept),
            Der::EncryptedPkcs8 => pkcs8::decode_encrypted_as(bytes, passphrase, accept),
            Der::Sec1 => sec1::decode(bytes),
            Der::Pkcs1Private => pkcs1::decode_as(bytes, accept),
            other => Err(wrong(other.name().to_owned())),
        },
        Shape::Pem => {
            let blocks = pem::blocks(bytes);
            match blocks.iter().find_map(|block| private_block(block, passphrase, accept)) {
                Some(read) => read,
                None => Err(wrong(shape::name_blocks(&blocks))),
            }
        }
    }
}

/// The private key in a block; none if the block is something else.
fn private_block(
    block: &pem::Block<'_>,
    passphrase: Option<&[u8]>,
    accept: Accept,
) -> Option<Result<PrivateKeyMaterial, FormatError>> {
    type Read<'a> = &'a dyn Fn(&[u8]) -> Result<PrivateKeyMaterial, FormatError>;
    let (format, read): (_, Read<'_>) = match block.label {
        pkcs8::LABEL => (pkcs8::NAME, &|der| pkcs8::decode_as(der, accept)),
        pkcs8::ENCRYPTED_LABEL => {
            (pkcs8::ENCRYPTED_NAME, &|der| pkcs8::decode_encrypted_as(der, passphrase, accept))
        }
        sec1::LABEL => (sec1::NAME, &|der| sec1::decode(der)),
        pkcs1::LABEL => (pkcs1::NAME, &|der| pkcs1::decode_as(der, accept)),
        openssh::LABEL => {
            (openssh::NAME, &|bytes| openssh::decode_as(bytes, passphrase, accept).map(|(key, _)| key))
        }
        _ => return None,
    };
    if block.is_legacy_encrypted() {
        return Some(Err(FormatError::UnsupportedEncryption {
            format,
            found: "OpenSSL's old PEM encryption, whose key is one MD5 of the passphrase".to_owned(),
            expected: "ENCRYPTED PRIVATE KEY",
            command: "openssl pkcs8 -topk8 -v2 aes-256-cbc -iter 600000 -in OLD -out NEW",
        }));
    }
    Some(block.decode(format).and_then(|bytes| read(&bytes)))
}

/// A public key with the format that held it, not yet known to be one that can verify.
struct FoundPublic {
    format: &'static str,
    algorithm: KeyAlgorithm,
    raw: Vec<u8>,
}

fn read_any_public(bytes: &[u8], accept: Accept) -> Result<FoundPublic, FormatError> {
    let wrong = |found: String| FormatError::WrongKind { found, expected: PUBLIC };
    match Shape::of(bytes)? {
        Shape::Jwk(text) => {
            let (algorithm, raw) = jwk::decode_public_as(text, accept)?;
            Ok(FoundPublic { format: jwk::NAME, algorithm, raw })
        }
        Shape::SshLine(line) => {
            let (algorithm, raw, _) = openssh::decode_line_as(line, accept)?;
            Ok(FoundPublic { format: openssh::LINE_NAME, algorithm, raw })
        }
        Shape::Other(found) => Err(wrong(found)),
        Shape::Der(Der::Spki) => public_der(spki::NAME, spki::decode_as, bytes, accept),
        Shape::Der(Der::Pkcs1Public) => {
            public_der(pkcs1::PUBLIC_NAME, pkcs1::decode_public_as, bytes, accept)
        }
        Shape::Der(other) => Err(wrong(other.name().to_owned())),
        Shape::Pem => {
            let blocks = pem::blocks(bytes);
            for block in &blocks {
                let (format, read): (_, ReadPublic) = match block.label {
                    spki::LABEL => (spki::NAME, spki::decode_as),
                    pkcs1::PUBLIC_LABEL => (pkcs1::PUBLIC_NAME, pkcs1::decode_public_as),
                    _ => continue,
                };
                return public_der(format, read, &block.decode(format)?, accept);
            }
            Err(wrong(shape::name_blocks(&blocks)))
        }
    }
}

type ReadPublic = fn(&[u8], Accept) -> Result<(KeyAlgorithm, &[u8]), FormatError>;

fn public_der(
    format: &'static str,
    read: ReadPublic,
    der: &[u8],
    accept: Accept,
) -> Result<FoundPublic, FormatError> {
    let (algorithm, raw) = read(der, accept)?;
    Ok(FoundPublic { format, algorithm, raw: raw.to_vec() })
}
