//! OpenSSH's files: private keys as `ssh-keygen` writes them (`PROTOCOL.key` of OpenSSH) and lines of public keys (RFC
//! 4253 §6.6, RFC 5656 §3.1, RFC 8709 §4).
//!
//! Key derivation and ciphers come from the ssh-key crate. The private section is read here, because that crate refuses
//! one in 512 of the P-256 keys that `ssh-keygen` makes: those whose scalar starts with nine zero bits, so that SSH's
//! number for it has 31 bytes.

use base64ct::{Base64, Encoding as _};
use ssh_key::cipher::Tag;
use ssh_key::{Cipher, Kdf};
use zeroize::Zeroizing;

use super::arithmetic::reduced_exponent;
use super::error::FormatError;
use super::format::Accept;
use super::passphrase::outside_module;
use super::rsa::{Private, Public, number};
use super::{pem, pkcs1, proof, spki};
use crate::algorithm::KeyKind;
use crate::{KeyAlgorithm, PrivateKeyMaterial, PublicKey, random};

pub(super) const LABEL: &str = "OPENSSH PRIVATE KEY";
pub(super) const NAME: &str = "OpenSSH private key";
pub(super) const LINE_NAME: &str = "OpenSSH public key";

/// The most rounds of bcrypt that a file may ask for. `ssh-keygen` does 16 or 24 unless it is told otherwise (`-a`).
pub const MAX_BCRYPT_ROUNDS: u32 = 512;

const MAGIC: &[u8] = b"openssh-key-v1\0";
const KEYS: &str = "ssh-ed25519, ecdsa-sha2-nistp256, -nistp384 or -nistp521, or ssh-rsa";
/// What `ssh-keygen` of OpenSSH 9.4 and later does.
pub(super) const WRITTEN_ROUNDS: u32 = 24;
const WRITTEN_SALT_BYTES: usize = 16;
/// The block size that an unencrypted private section is padded to.
const PLAIN_BLOCK_BYTES: usize = 8;
/// The largest block of any cipher that is read.
const MAX_BLOCK_BYTES: usize = 16;
/// Every curve's identifier is the end of the key's type.
const ECDSA_PREFIX: &str = "ecdsa-sha2-";

/// Reads a private key and its comment, from a file or from the bytes inside its PEM.
///
/// # Errors
/// [`FormatError::PassphraseNeeded`] and [`FormatError::WrongPassphrase`] are for the person to mend; the others say
/// what was found, and what was expected.
pub fn decode(bytes: &[u8], passphrase: Option<&[u8]>) -> Result<(PrivateKeyMaterial, String), FormatError> {
    match pem::blocks(bytes).iter().find(|block| block.label == LABEL) {
        Some(block) => decode_as(&block.decode(NAME)?, passphrase, Accept::Production),
        None => decode_as(bytes, passphrase, Accept::Production),
    }
}

/// Writes a private key with a comment, as PEM; encrypted with bcrypt-pbkdf and AES-256-CTR if there is a passphrase.
///
/// # Errors
/// [`FormatError::CannotHold`] for ML-DSA keys, [`FormatError::EmptyPassphrase`], and [`FormatError::Malformed`] for a
/// comment of more than one line.
pub fn encode(
    key: &PrivateKeyMaterial,
    comment: &str,
    passphrase: Option<&[u8]>,
) -> Result<Zeroizing<String>, FormatError> {
    encode_at(key, comment, passphrase, WRITTEN_ROUNDS)
}

pub(super) fn encode_at(
    key: &PrivateKeyMaterial,
    comment: &str,
    passphrase: Option<&[u8]>,
    rounds: u32,
) -> Result<Zeroizing<String>, FormatError> {
    check_comment(NAME, comment)?;
    let public = blob(NAME, key.algorithm(), key.public())?;
    let section = private_section(key, comment)?;
    let failed = |_| FormatError::Provider { operation: "encrypt a private key" };
    let (cipher, kdf, section) = match passphrase {
        None => (Cipher::None, Kdf::None, pad(section, PLAIN_BLOCK_BYTES)),
        Some(b"") => return Err(FormatError::EmptyPassphrase),
        Some(passphrase) => {
            outside_module()?;
            let cipher = Cipher::Aes256Ctr;
            let salt = random::bytes::<WRITTEN_SALT_BYTES>()
                .map_err(|_| FormatError::Provider { operation: "give random bytes" })?
                .to_vec();
            let kdf = Kdf::Bcrypt { salt, rounds };
            let (key, iv) = kdf.derive_key_and_iv(cipher, passphrase).map_err(failed)?;
            let mut section = pad(section, cipher.block_size());
            cipher.encrypt(&key, &iv, &mut section).map_err(|error| failed(error.into()))?;
            (cipher, kdf, section)
        }
    };
    let mut options = Vec::new();
    if let Kdf::Bcrypt { salt, rounds } = &kdf {
        put(&mut options, salt);
        options.extend_from_slice(&rounds.to_be_bytes());
    }
    let name = if passphrase.is_some() { "bcrypt" } else { "none" };
    let mut file = Zeroizing::new(Vec::with_capacity(128 + public.len() + section.len()));
    file.extend_from_slice(MAGIC);
    put(&mut file, cipher.as_str().as_bytes());
    put(&mut file, name.as_bytes());
    put(&mut file, &options);
    file.extend_from_slice(&1u32.to_be_bytes());
    put(&mut file, &public);
    put(&mut file, &section);
    pem::encode(LABEL, pem::OPENSSH_LINE, &file)
}

/// Reads a public key, as it stands in a SubjectPublicKeyInfo, and its comment from a line of `authorized_keys`. Empty
/// lines and those that start with `#` may stand around it. Options before the key are refused: they restrict it, and
/// there is no place for them here.
///
/// # Errors
/// [`FormatError`] says what was found, and what was expected.
pub fn decode_line(line: &str) -> Result<(KeyAlgorithm, Vec<u8>, String), FormatError> {
    decode_line_as(line, Accept::Production)
}

/// A public key as a line of `authorized_keys`, without a line feed.
///
/// # Errors
/// [`FormatError::CannotHold`] for ML-DSA keys, and [`FormatError::Malformed`] for a comment of more than one line.
pub fn encode_line(key: &PublicKey, comment: &str) -> Result<String, FormatError> {
    check_comment(LINE_NAME, comment)?;
    let kind = ssh_type(LINE_NAME, key.algorithm())?;
    let blob = Base64::encode_string(&blob(LINE_NAME, key.algorithm(), key.raw())?);
    let comment = comment.trim();
    Ok(if comment.is_empty() { format!("{kind} {blob}") } else { format!("{kind} {blob} {comment}") })
}

pub(super) fn decode_as(
    bytes: &[u8],
    passphrase: Option<&[u8]>,
    accept: Accept,
) -> Result<(PrivateKeyMaterial, String), FormatError> {
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| malformed("it does not start with openssh-key-v1"))?;
    let mut reader = Reader { format: NAME, rest };
    let cipher = reader.word("the name of the cipher")?;
    let kdf = reader.word("the name of the key derivation")?;
    let options = reader.string("its options")?;
    let keys = reader.number("the number of keys")?;
    if keys != 1 {
        return Err(FormatError::UnsupportedKey {
            format: NAME,
            found: format!("{keys} keys"),
            expected: "one".to_owned(),
        });
    }
    let outer = reader.string("the public key")?;
    let section = reader.string("the private section")?;
    let section = match (cipher, kdf) {
        ("none", "none") => {
            if !options.is_empty() {
                return Err(malformed("there are options of a key derivation, and there is none"));
            }
            reader.end()?;
            Section { bytes: Zeroizing::new(section.to_vec()), block: PLAIN_BLOCK_BYTES, encrypted: false }
        }
        _ => decrypt(cipher, kdf, options, section, reader.rest, passphrase)?,
    };
    section.read(outer, accept)
}

/// Opens the private section. What follows it is the tag, with ciphers that have one.
fn decrypt(
    cipher: &str,
    kdf: &str,
    options: &[u8],
    section: &[u8],
    tag: &[u8],
    passphrase: Option<&[u8]>,
) -> Result<Section, FormatError> {
    let unsupported = |found: String| FormatError::UnsupportedEncryption {
        format: NAME,
        found,
        expected: "bcrypt and aes256-ctr, or another AES",
        command: "ssh-keygen -p -Z aes256-ctr -f FILE",
    };
    let known = Cipher::new(cipher).ok().filter(|known| !matches!(known, Cipher::None | Cipher::TdesCbc));
    let (Some(cipher), "bcrypt") = (known, kdf) else {
        return Err(unsupported(format!("{} and {}", quoted(kdf), quoted(cipher))));
    };
    let mut reader = Reader { format: NAME, rest: options };
    let (salt, rounds) = (reader.string("the salt")?.to_vec(), reader.number("the rounds of bcrypt")?);
    reader.end()?;
    if rounds > MAX_BCRYPT_ROUNDS {
        return Err(FormatError::TooCostly {
            format: NAME,
            found: format!("{rounds} rounds of bcrypt"),
            bound: MAX_BCRYPT_ROUNDS.to_string(),
        });
    }
    if rounds == 0 || salt.is_empty() {
        return Err(malformed("bcrypt without rounds or salt"));
    }
    if !section.len().is_multiple_of(cipher.block_size()) {
        return Err(malformed("the private section does not have a whole number of blocks"));
    }
    let tag = match (cipher.has_tag(), Tag::try_from(tag)) {
        (true, Ok(tag)) => Some(tag),
        (false, _) if tag.is_empty() => None,
        _ => return Err(malformed("the bytes after the private section are not the cipher's tag")),
    };
    let passphrase = passphrase.ok_or(FormatError::PassphraseNeeded { format: NAME })?;
    let wrong = FormatError::WrongPassphrase { format: NAME };
    if passphrase.is_empty() {
        // OpenSSH has no such passphrase, and the key derivation no such input.
        return Err(wrong);
    }
    outside_module()?;
    let (key, iv) = Kdf::Bcrypt { salt, rounds }
        .derive_key_and_iv(cipher, passphrase)
        .map_err(|_| FormatError::Provider { operation: "derive a key from a passphrase" })?;
    let mut bytes = Zeroizing::new(section.to_vec());
    cipher.decrypt(&key, &iv, &mut bytes, tag).map_err(|_| wrong)?;
    Ok(Section { bytes, block: cipher.block_size(), encrypted: true })
}

/// The private section, decrypted.
struct Section {
    bytes: Zeroizing<Vec<u8>>,
    block: usize,
    encrypted: bool,
}

impl Section {
    fn read(&self, outer: &[u8], accept: Accept) -> Result<(PrivateKeyMaterial, String), FormatError> {
        let mut reader = Reader { format: NAME, rest: &self.bytes };
        if reader.number("the first check number")? != reader.number("the second check number")? {
            return Err(if self.encrypted {
                FormatError::WrongPassphrase { format: NAME }
            } else {
                malformed("the check numbers differ")
            });
        }
        let key = private_fields(&mut reader, accept)?;
        let comment = String::from_utf8_lossy(reader.string("the comment")?).into_owned();
        // OpenSSH fills up to a whole block; PuTTY goes on for another one, which OpenSSH takes.
        let padding = reader.rest;
        let is_counting = padding.iter().zip(1..=u8::MAX).all(|(byte, expected)| *byte == expected);
        if !self.bytes.len().is_multiple_of(self.block) || padding.len() > 2 * MAX_BLOCK_BYTES || !is_counting
        {
            return Err(malformed("the padding is not 1, 2, 3 and so on up to a whole block"));
        }
        if blob(NAME, key.algorithm(), key.public())? != outer {
            return Err(FormatError::Inconsistent {
                format: NAME,
                algorithm: key.algorithm(),
                reason: "the public key on the outside is another".to_owned(),
            });
        }
        Ok((key, comment))
    }
}

/// The type and the fields of a private key, as an agent gets them too.
fn private_fields(reader: &mut Reader<'_>, accept: Accept) -> Result<PrivateKeyMaterial, FormatError> {
    let kind = reader.word("the type of the key")?;
    let algorithm = algorithm(NAME, kind)?;
    match algorithm.kind() {
        KeyKind::Ed25519 => {
            let public = reader.string("the public key")?;
            let both = reader.string("the private key")?;
            match both.split_at_checked(32) {
                Some((seed, again)) if again == public => {
                    proof::assemble(NAME, algorithm, Zeroizing::new(seed.to_vec()), &[Some(public)])
                }
                _ => Err(malformed("the private key is not a seed of 32 bytes with the public key")),
            }
        }
        KeyKind::Ecdsa => {
            reader.curve(kind)?;
            let point = reader.string("the point")?;
            let scalar = reader.string("the private scalar")?;
            // Some writers leave leading zeros in, which OpenSSH takes.
            let start = scalar.iter().position(|byte| *byte != 0).unwrap_or(scalar.len());
            let scalar = scalar.get(start..).unwrap_or_default();
            let missing = algorithm
                .secret_bytes()
                .and_then(|length| length.checked_sub(scalar.len()))
                .ok_or_else(|| malformed("the private scalar is longer than the curve's order"))?;
            let mut secret = Zeroizing::new(vec![0; missing]);
            secret.reserve_exact(scalar.len());
            secret.extend_from_slice(scalar);
            proof::assemble(NAME, algorithm, secret, &[Some(point)])
        }
        _ => {
            let (n, e) = (reader.positive("the modulus")?, reader.positive("the public exponent")?);
            let d = reader.positive("the private exponent")?;
            let qi = reader.positive("the coefficient")?;
            let (p, q) = (reader.positive("a prime")?, reader.positive("a prime")?);
            let dp = reduced_exponent(d, p).map_err(malformed)?;
            let dq = reduced_exponent(d, q).map_err(malformed)?;
            let private = Private {
                public: Public::new(NAME, n, e)?,
                d: number(NAME, d)?,
                p: number(NAME, p)?,
                q: number(NAME, q)?,
                dp: number(NAME, &dp)?,
                dq: number(NAME, &dq)?,
                qi: number(NAME, qi)?,
            };
            pkcs1::assemble(&private, NAME, &[], accept)
        }
    }
}

/// The private section without its padding.
fn private_section(key: &PrivateKeyMaterial, comment: &str) -> Result<Zeroizing<Vec<u8>>, FormatError> {
    let check: [u8; 4] =
        random::bytes().map_err(|_| FormatError::Provider { operation: "give random bytes" })?;
    let kind = ssh_type(NAME, key.algorithm())?;
    // Enough for every field twice over: a buffer that grows leaves secrets behind where it was.
    let room = 256 + comment.len() + 2 * (key.secret().len() + key.public().len());
    let mut section = Zeroizing::new(Vec::with_capacity(room));
    section.extend_from_slice(&check);
    section.extend_from_slice(&check);
    put(&mut section, kind.as_bytes());
    match key.algorithm().kind() {
        KeyKind::Rsa => {
            let Private { public, d, p, q, qi, .. } = Private::of(key)?;
            for number in [public.n, public.e, d, qi, p, q] {
                put_positive(&mut section, number.as_bytes());
            }
        }
        KeyKind::Ecdsa => {
            put(&mut section, kind.strip_prefix(ECDSA_PREFIX).unwrap_or_default().as_bytes());
            put(&mut section, key.public());
            put_positive(&mut section, key.secret());
        }
        _ => {
            put(&mut section, key.public());
            let both = Zeroizing::new([key.secret(), key.public()].concat());
            put(&mut section, &both);
        }
    }
    put(&mut section, comment.as_bytes());
    Ok(section)
}

fn pad(mut section: Zeroizing<Vec<u8>>, block: usize) -> Zeroizing<Vec<u8>> {
    let missing = (block - section.len() % block) % block;
    section.extend((1..=u8::MAX).take(missing));
    section
}

pub(super) fn decode_line_as(
    text: &str,
    accept: Accept,
) -> Result<(KeyAlgorithm, Vec<u8>, String), FormatError> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let line = lines.next().unwrap_or_default();
    if lines.next().is_some() {
        return Err(FormatError::WrongKind {
            found: "several lines of OpenSSH public keys".to_owned(),
            expected: "one",
        });
    }
    let (kind, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    let algorithm = match algorithm(LINE_NAME, kind) {
        // Whatever stands before a type that we know is options.
        Err(_) if rest.split([' ', '\t']).any(|word| self::algorithm(LINE_NAME, word).is_ok()) => {
            return Err(FormatError::UnsupportedKey {
                format: LINE_NAME,
                found: "options before the key".to_owned(),
                expected: "the key alone: options are for sshd".to_owned(),
            });
        }
        other => other?,
    };
    let rest = rest.trim_start();
    let (blob, comment) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
    let blob = Base64::decode_vec(blob)
        .map_err(|_| FormatError::malformed(LINE_NAME, "the second word is not base64"))?;
    let (inner, raw) = decode_blob(&blob, accept)?;
    if inner.ssh_key_type() != algorithm.ssh_key_type() {
        return Err(FormatError::malformed(
            LINE_NAME,
            format!("it says {kind} in the text and holds an {inner} key"),
        ));
    }
    Ok((inner, raw, comment.trim().to_owned()))
}

/// Reads a public key in SSH's encoding, and gives it as it stands in a SubjectPublicKeyInfo.
fn decode_blob(blob: &[u8], accept: Accept) -> Result<(KeyAlgorithm, Vec<u8>), FormatError> {
    let mut reader = Reader { format: LINE_NAME, rest: blob };
    let kind = reader.word("the type of the key")?;
    let algorithm = algorithm(LINE_NAME, kind)?;
    if algorithm.kind() == KeyKind::Rsa {
        let (e, n) = (reader.positive("the public exponent")?, reader.positive("the modulus")?);
        reader.end()?;
        return Public::new(LINE_NAME, n, e)?.finish(LINE_NAME, accept);
    }
    if algorithm.kind() == KeyKind::Ecdsa {
        reader.curve(kind)?;
    }
    let raw = reader.string("the key")?;
    reader.end()?;
    spki::check_raw(LINE_NAME, algorithm, raw)?;
    Ok((algorithm, raw.to_vec()))
}

/// A public key in SSH's encoding.
fn blob(format: &'static str, algorithm: KeyAlgorithm, raw: &[u8]) -> Result<Vec<u8>, FormatError> {
    let kind = ssh_type(format, algorithm)?;
    let mut blob = Vec::new();
    put(&mut blob, kind.as_bytes());
    match algorithm.kind() {
        KeyKind::Rsa => {
            let Public { n, e } = Public::of(format, raw)?;
            put_positive(&mut blob, e.as_bytes());
            put_positive(&mut blob, n.as_bytes());
        }
        KeyKind::Ecdsa => {
            put(&mut blob, kind.strip_prefix(ECDSA_PREFIX).unwrap_or_default().as_bytes());
            put(&mut blob, raw);
        }
        _ => put(&mut blob, raw),
    }
    Ok(blob)
}

/// The key's type from its name in SSH; for RSA some type of that kind.
fn algorithm(format: &'static str, kind: &str) -> Result<KeyAlgorithm, FormatError> {
    if let Some(known) = KeyAlgorithm::ALL.iter().find(|one| one.ssh_key_type() == Some(kind)) {
        return Ok(*known);
    }
    let found = match kind {
        "ssh-dss" => "a DSA key".to_owned(),
        _ if kind.contains("-cert-v0") => "an OpenSSH certificate".to_owned(),
        _ if kind.starts_with("sk-") => "a key that lives on a security key".to_owned(),
        _ => format!("a key of type {}", quoted(kind)),
    };
    Err(FormatError::UnsupportedKey { format, found, expected: KEYS.to_owned() })
}

fn ssh_type(format: &'static str, algorithm: KeyAlgorithm) -> Result<&'static str, FormatError> {
    algorithm.ssh_key_type().ok_or(FormatError::CannotHold {
        format,
        algorithm,
        reason: "OpenSSH has no such keys; PKCS#8 holds all",
    })
}

/// A comment with a line feed would be a line of its own in `authorized_keys`.
fn check_comment(format: &'static str, comment: &str) -> Result<(), FormatError> {
    if comment.chars().any(char::is_control) {
        return Err(FormatError::malformed(format, "the comment has a control character"));
    }
    Ok(())
}

fn put(to: &mut Vec<u8>, bytes: &[u8]) {
    // Nothing here comes near 4 GiB; a length that did would be cut short by the reader, not read beyond.
    to.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    to.extend_from_slice(bytes);
}

/// A positive number as SSH's `mpint`: as short as possible, with a zero byte where it would read as negative (RFC 4251
/// §5).
fn put_positive(to: &mut Vec<u8>, bytes: &[u8]) {
    let start = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
    let bytes = bytes.get(start..).unwrap_or_default();
    let sign = usize::from(bytes.first().is_some_and(|first| *first >= 0x80));
    to.extend_from_slice(&u32::try_from(bytes.len() + sign).unwrap_or(u32::MAX).to_be_bytes());
    to.extend(std::iter::repeat_n(0, sign));
    to.extend_from_slice(bytes);
}

/// Reads the types of RFC 4251 §5. What it gives borrows from the input, so that it leaves nothing to wipe.
struct Reader<'a> {
    format: &'static str,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn number(&mut self, what: &str) -> Result<u32, FormatError> {
        let (number, rest) = self.rest.split_first_chunk().ok_or_else(|| self.short(what))?;
        self.rest = rest;
        Ok(u32::from_be_bytes(*number))
    }

    fn string(&mut self, what: &str) -> Result<&'a [u8], FormatError> {
        let length = usize::try_from(self.number(what)?).map_err(|_| self.short(what))?;
        let (string, rest) = self.rest.split_at_checked(length).ok_or_else(|| self.short(what))?;
        self.rest = rest;
        Ok(string)
    }

    fn word(&mut self, what: &str) -> Result<&'a str, FormatError> {
        let format = self.format;
        std::str::from_utf8(self.string(what)?)
            .map_err(|_| FormatError::malformed(format, format!("{what} is not text")))
    }

    /// A positive `mpint`, without the zero byte that keeps it positive.
    fn positive(&mut self, what: &str) -> Result<&'a [u8], FormatError> {
        match self.string(what)? {
            [0, rest @ ..] if rest.first().is_some_and(|first| *first >= 0x80) => Ok(rest),
            number @ [1..=0x7f, ..] => Ok(number),
            _ => Err(FormatError::malformed(
                self.format,
                format!("{what} is not a positive number in as few bytes as possible (RFC 4251 §5)"),
            )),
        }
    }

    /// The name of the curve, which the type of the key has said already (RFC 5656 §3.1).
    fn curve(&mut self, kind: &str) -> Result<(), FormatError> {
        if kind.strip_prefix(ECDSA_PREFIX) == Some(self.word("the name of the curve")?) {
            return Ok(());
        }
        Err(FormatError::malformed(self.format, "the curve is another one than in the type of the key"))
    }

    fn end(&self) -> Result<(), FormatError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(FormatError::malformed(self.format, format!("{} bytes follow the end", self.rest.len())))
    }

    fn short(&self, what: &str) -> FormatError {
        FormatError::malformed(self.format, format!("it ends within {what}"))
    }
}

/// A word of the file in an error: not more of it than a person wants to read.
fn quoted(word: &str) -> String {
    format!("{:?}", word.chars().take(40).collect::<String>())
}

fn malformed(reason: impl Into<String>) -> FormatError {
    FormatError::malformed(NAME, reason)
}
