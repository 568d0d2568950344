//! PKCS#8 (RFC 5958): every key, encrypted or not.

use der::asn1::{BitStringRef, OctetStringRef};
use der::{Decode as _, Encode as _, ErrorKind, Header, Reader as _, SliceReader, Tag, TagMode, TagNumber};
use pkcs5::pbes2::{self, PBES2_OID, Parameters};
use pkcs5::{AlgorithmIdentifierRef, EncryptionScheme};
use zeroize::Zeroizing;

use super::error::FormatError;
use super::format::Accept;
use super::identifier::{self, describe};
use super::passphrase::outside_module;
use super::trusted::element;
use super::{ml_dsa, pkcs1, proof, sec1};
use crate::algorithm::KeyKind;
use crate::{PrivateKeyMaterial, random};

#[cfg(not(feature = "fips"))]
pub(crate) use super::trusted::decode_with_public;
pub(crate) use super::trusted::{decode_trusted, inner_key};

pub(super) const LABEL: &str = "PRIVATE KEY";
pub(super) const ENCRYPTED_LABEL: &str = "ENCRYPTED PRIVATE KEY";
pub(super) const NAME: &str = "PKCS#8 private key";
pub(super) const ENCRYPTED_NAME: &str = "encrypted PKCS#8 private key";

/// The most iterations of PBKDF2 that a file may ask for: eight times what is written here.
pub const MAX_PBKDF2_ITERATIONS: u32 = 5_000_000;
/// The most memory that a file may ask scrypt to fill, in bytes (RFC 7914 §2: 128 times N times r).
pub const MAX_SCRYPT_BYTES: u64 = 256 << 20;
/// The most work that a file may ask of scrypt, as the bytes that all its lanes fill: 128 times N times r times p.
pub const MAX_SCRYPT_WORK_BYTES: u64 = 512 << 20;

/// What is written: PBKDF2 and not scrypt, because OpenSSL refuses scrypt from 32 MiB on, below what would be better
/// than this; and the number that OWASP's guide gives for HMAC-SHA256.
pub(super) const WRITTEN_ITERATIONS: u32 = 600_000;
const WRITTEN_SALT_BYTES: usize = 16;
const BLOCK_BYTES: usize = 16;

/// Reads the DER of a `OneAsymmetricKey`, version 1 or 2.
///
/// # Errors
/// [`FormatError`] for keys that are not ours, for encodings that are not canonical, and for halves that do not belong
/// together.
pub fn decode(der: &[u8]) -> Result<PrivateKeyMaterial, FormatError> {
    decode_as(der, Accept::Production)
}

/// DER of a PKCS#8 document, version 1 (RFC 5208), which OpenSSL, Go and Java read too. ML-DSA keys are written as
/// seeds (RFC 9881 §6).
#[must_use]
pub fn encode(key: &PrivateKeyMaterial) -> Zeroizing<Vec<u8>> {
    let inner = match key.algorithm().kind() {
        KeyKind::Rsa => Zeroizing::new(key.secret().to_vec()),
        KeyKind::Ecdsa => sec1::encode_inner(key),
        KeyKind::Ed25519 => element(0x04, key.secret()),
        KeyKind::MlDsa => element(0x80, key.secret()),
    };
    let inner = element(0x04, &inner);
    let mut content = Zeroizing::new(Vec::with_capacity(inner.len() + 32));
    content.extend_from_slice(&[0x02, 0x01, 0x00]);
    content.extend_from_slice(key.algorithm().spki_algorithm_der());
    content.extend_from_slice(&inner);
    element(0x30, &content)
}

/// Reads the DER of an `EncryptedPrivateKeyInfo` (PBES2, RFC 8018 §6.2).
///
/// # Errors
/// As [`decode`]; [`FormatError::PassphraseNeeded`] without a passphrase, [`FormatError::WrongPassphrase`] when it does
/// not open, [`FormatError::TooCostly`] when that would take too long to find out.
pub fn decode_encrypted(der: &[u8], passphrase: Option<&[u8]>) -> Result<PrivateKeyMaterial, FormatError> {
    decode_encrypted_as(der, passphrase, Accept::Production)
}

/// The DER of an `EncryptedPrivateKeyInfo`: PBES2 with PBKDF2-HMAC-SHA256 and AES-256-CBC, which is what OpenSSL and
/// everything else reads. It takes about a tenth of a second.
///
/// # Errors
/// [`FormatError::EmptyPassphrase`], and those of [`encode`].
pub fn encode_encrypted(
    key: &PrivateKeyMaterial,
    passphrase: &[u8],
) -> Result<Zeroizing<Vec<u8>>, FormatError> {
    encode_encrypted_at(key, passphrase, WRITTEN_ITERATIONS)
}

pub(super) fn encode_encrypted_at(
    key: &PrivateKeyMaterial,
    passphrase: &[u8],
    iterations: u32,
) -> Result<Zeroizing<Vec<u8>>, FormatError> {
    let failed = |_| FormatError::Provider { operation: "encrypt a private key" };
    if passphrase.is_empty() {
        return Err(FormatError::EmptyPassphrase);
    }
    outside_module()?;
    let plain = encode(key);
    let random = |_| FormatError::Provider { operation: "give random bytes" };
    let salt: [u8; WRITTEN_SALT_BYTES] = random::bytes().map_err(random)?;
    let iv: [u8; BLOCK_BYTES] = random::bytes().map_err(random)?;
    let parameters = Parameters::generate_pbkdf2_sha256_aes256cbc(iterations, &salt, iv).map_err(failed)?;
    // With room for the padding from the start: a buffer that grows leaves secrets behind where it was.
    let mut buffer = Zeroizing::new(Vec::with_capacity(plain.len() + BLOCK_BYTES));
    buffer.extend_from_slice(&plain);
    buffer.resize(plain.len() + BLOCK_BYTES, 0);
    let encrypted = parameters.encrypt_in_place(passphrase, &mut buffer, plain.len()).map_err(failed)?;
    let scheme = EncryptionScheme::from(parameters)
        .to_der()
        .map_err(|_| FormatError::Provider { operation: "write DER" })?;
    Ok(element(0x30, &[scheme.as_slice(), &element(0x04, encrypted)].concat()))
}

pub(super) fn decode_as(der: &[u8], accept: Accept) -> Result<PrivateKeyMaterial, FormatError> {
    Info::read(der).map_err(FormatError::der(NAME))?.decode(accept)
}

/// `OneAsymmetricKey`. It borrows, so that it has nothing to wipe.
struct Info<'a> {
    identifier: AlgorithmIdentifierRef<'a>,
    inner: &'a [u8],
    public: Option<&'a [u8]>,
}

impl<'a> Info<'a> {
    fn read(der: &'a [u8]) -> der::Result<Self> {
        let mut reader = SliceReader::new(der)?;
        let info = reader.sequence(|reader: &mut SliceReader<'a>| -> der::Result<Self> {
            let version = reader.decode::<u8>()?;
            let identifier = reader.decode()?;
            let inner = reader.decode::<&OctetStringRef>()?.as_bytes();
            // Attributes say nothing that we use.
            let attributes = Tag::ContextSpecific { constructed: true, number: TagNumber(0) };
            if !reader.is_finished() && Header::peek(reader)?.tag() == attributes {
                reader.tlv_bytes()?;
            }
            let public = public_key(reader)?;
            // RFC 5958 §2: the version says whether there is a public key.
            if version != u8::from(public.is_some()) {
                return Err(Tag::Integer.value_error().into());
            }
            Ok(Self { identifier, inner, public })
        })?;
        reader.finish()?;
        Ok(info)
    }

    fn decode(&self, accept: Accept) -> Result<PrivateKeyMaterial, FormatError> {
        let algorithm = identifier::identify(NAME, self.identifier)?;
        match algorithm.kind() {
            KeyKind::Ed25519 => {
                let seed =
                    <&OctetStringRef>::from_der(self.inner).map_err(FormatError::der(NAME))?.as_bytes();
                let expected = algorithm.secret_bytes().unwrap_or_default();
                if seed.len() != expected {
                    return Err(FormatError::malformed(
                        NAME,
                        format!("an Ed25519 seed of {} bytes, expected {expected}", seed.len()),
                    ));
                }
                proof::assemble(NAME, algorithm, Zeroizing::new(seed.to_vec()), &[self.public])
            }
            KeyKind::Ecdsa => sec1::decode_inside(NAME, self.inner, Some(algorithm), self.public),
            KeyKind::Rsa => pkcs1::decode_inside(NAME, self.inner, &[self.public], accept),
            KeyKind::MlDsa => ml_dsa::decode(NAME, algorithm, self.inner, self.public),
        }
    }
}

/// `publicKey [1] BIT STRING`, which is implicit. Ring writes it as explicit, and what it wrote is in use.
fn public_key<'a>(reader: &mut SliceReader<'a>) -> der::Result<Option<&'a [u8]>> {
    if reader.is_finished() {
        return Ok(None);
    }
    let explicit = Tag::ContextSpecific { constructed: true, number: TagNumber(1) };
    let mode = if Header::peek(reader)?.tag() == explicit { TagMode::Explicit } else { TagMode::Implicit };
    let bits = reader.context_specific::<BitStringRef<'_>>(TagNumber(1), mode)?;
    bits.map(|bits| bits.as_bytes().ok_or_else(|| Tag::BitString.value_error().into())).transpose()
}

pub(super) fn decode_encrypted_as(
    der: &[u8],
    passphrase: Option<&[u8]>,
    accept: Accept,
) -> Result<PrivateKeyMaterial, FormatError> {
    let read = || -> der::Result<_> {
        let mut reader = SliceReader::new(der)?;
        let parts = reader.sequence(|reader: &mut SliceReader<'_>| -> der::Result<_> {
            Ok((AlgorithmIdentifierRef::decode(reader)?, reader.decode::<&OctetStringRef>()?))
        })?;
        reader.finish()?;
        Ok(parts)
    };
    let malformed = FormatError::der(ENCRYPTED_NAME);
    let (scheme, encrypted) = read().map_err(&malformed)?;
    if scheme.oid != PBES2_OID {
        return Err(unsupported_encryption(describe(scheme.oid)));
    }
    let parameters = scheme
        .parameters
        .ok_or_else(|| Tag::Sequence.value_error().into())
        .and_then(Parameters::try_from)
        .map_err(|error| match error.kind() {
            ErrorKind::OidUnknown { oid } => unsupported_encryption(describe(oid)),
            _ => malformed(error),
        })?;
    check_cost(&parameters.kdf)?;
    let passphrase = passphrase.ok_or(FormatError::PassphraseNeeded { format: ENCRYPTED_NAME })?;
    outside_module()?;
    let mut buffer = Zeroizing::new(encrypted.as_bytes().to_vec());
    let wrong = FormatError::WrongPassphrase { format: ENCRYPTED_NAME };
    let plain = match parameters.decrypt_in_place(passphrase, &mut buffer) {
        Ok(plain) => plain,
        Err(pkcs5::Error::DecryptFailed) => return Err(wrong),
        Err(error) => return Err(FormatError::malformed(ENCRYPTED_NAME, error.to_string())),
    };
    // One wrong passphrase in 256 leaves something that looks padded; it does not look like a key as well.
    Info::read(plain).map_err(|_| wrong)?.decode(accept)
}

/// Refuses what would take too much time or memory, before any of it is spent.
fn check_cost(kdf: &pbes2::Kdf) -> Result<(), FormatError> {
    use pbes2::{Kdf, Pbkdf2Prf};
    let too_costly =
        |found: String, bound: String| Err(FormatError::TooCostly { format: ENCRYPTED_NAME, found, bound });
    match kdf {
        Kdf::Pbkdf2(parameters) => {
            if parameters.prf == Pbkdf2Prf::HmacWithSha1 {
                return Err(unsupported_encryption("PBKDF2 with HMAC-SHA1".to_owned()));
            }
            match parameters.iteration_count {
                0 => Err(FormatError::malformed(ENCRYPTED_NAME, "PBKDF2 with no iterations")),
                count if count > MAX_PBKDF2_ITERATIONS => {
                    too_costly(format!("{count} iterations of PBKDF2"), MAX_PBKDF2_ITERATIONS.to_string())
                }
                _ => Ok(()),
            }
        }
        Kdf::Scrypt(parameters) => {
            let (n, r, p) = (
                parameters.cost_parameter,
                u64::from(parameters.block_size),
                u64::from(parameters.parallelization),
            );
            if n < 2 || !n.is_power_of_two() || r == 0 || p == 0 {
                return Err(FormatError::malformed(
                    ENCRYPTED_NAME,
                    format!("scrypt with N={n}, r={r}, p={p} (RFC 7914 §2)"),
                ));
            }
            let memory = n.saturating_mul(r).saturating_mul(128);
            if memory > MAX_SCRYPT_BYTES || memory.saturating_mul(p) > MAX_SCRYPT_WORK_BYTES {
                return too_costly(
                    format!("scrypt with N={n}, r={r}, p={p}"),
                    format!(
                        "{} MiB of memory (128*N*r), filled {} times",
                        MAX_SCRYPT_BYTES >> 20,
                        MAX_SCRYPT_WORK_BYTES / MAX_SCRYPT_BYTES
                    ),
                );
            }
            Ok(())
        }
        other => Err(unsupported_encryption(describe(other.oid()))),
    }
}

fn unsupported_encryption(found: String) -> FormatError {
    FormatError::UnsupportedEncryption {
        format: ENCRYPTED_NAME,
        found,
        expected: "PBES2 with PBKDF2 (HMAC-SHA256 or HMAC-SHA512) or scrypt, and AES-CBC",
        command: "openssl pkcs8 -topk8 -v2 aes-256-cbc -iter 600000 -in OLD -out NEW",
    }
}
