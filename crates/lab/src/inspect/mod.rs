//! Looks for keys in files of whatever form, and at what servers show: type and size, nothing else.
//!
//! `sal::formats` reads keys that are going to be used, and refuses what is out of order. Here a key of 1,024 bits, an
//! expired certificate or an encrypted private key is what the user wants to know about; so everything is read that can
//! be, within bounds, and nothing is checked but that it is there.

mod asn1;
mod der;
mod error;
mod found;
pub mod live;
mod ssh;

use std::io::Read;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::time::Duration;

use sallyport_sal::formats::{self, PemBlock};
use zeroize::Zeroizing;

use crate::LabError;

pub(crate) use asn1::certificate;
pub use error::{NoKey, RefusedBlock};
pub(crate) use found::own_signature;
use found::printable;
pub use found::{Contents, Found, Key, Signature};
pub(crate) use ssh::blob;

/// The longest file that is looked at, in bytes: `known_hosts` with 20,000 lines. One that is longer is no key.
pub const MAX_FILE_BYTES: u64 = 8 << 20;

/// Reads a file, or what it is in a pipe.
///
/// # Errors
/// [`LabError::File`] when there is no such file, [`LabError::Input`] when it is a directory, a device or a pipe that gives
/// nothing in time, too long, or holds no key.
pub fn file(path: &Path) -> Result<Contents, LabError> {
    use sallyport_bench::AtFile as _;
    // Asked before it is opened: a pipe that no program writes into would not open.
    let kind = std::fs::metadata(path).at("read", path)?.file_type();
    let refused = |what: &str| Err(LabError::Input(format!("{} is {what}", path.display())));
    if kind.is_dir() {
        return refused("a directory; name a file in it");
    }
    if kind.is_char_device() || kind.is_block_device() {
        return refused("a device, and no file of keys; - is the standard input");
    }
    if kind.is_socket() {
        return refused("a socket, and no file of keys");
    }
    if kind.is_fifo() {
        return pipe(path, PIPE);
    }
    let opened = std::fs::File::open(path).at("read", path)?;
    stream(opened, &path.display().to_string())
}

/// How long a pipe may take to give everything: a shell's `<(command)` is one.
const PIPE: Duration = Duration::from_secs(20);

/// In a thread of its own, which stays behind when no program writes: opening and reading both wait for that.
fn pipe(path: &Path, within: Duration) -> Result<Contents, LabError> {
    use sallyport_bench::AtFile as _;
    let (answer, answered) = std::sync::mpsc::sync_channel(1);
    let named = path.to_owned();
    std::thread::spawn(move || {
        let opened = std::fs::File::open(&named).at("read", &named).map_err(LabError::from);
        let _ = answer.send(opened.and_then(|opened| stream(opened, &named.display().to_string())));
    });
    answered.recv_timeout(within).unwrap_or_else(|_| {
        let seconds = within.as_secs_f64();
        Err(LabError::Input(format!(
            "{} is a pipe, and no program wrote a whole file into it within {seconds} s",
            path.display()
        )))
    })
}

/// Reads to the end, which must come within [`MAX_FILE_BYTES`].
///
/// # Errors
/// [`LabError::Input`] when it is too long, cannot be read, or holds no key.
pub fn stream(from: impl Read, name: &str) -> Result<Contents, LabError> {
    let mut bytes = Zeroizing::new(Vec::new());
    from.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| LabError::Input(format!("cannot read {name}: {error}")))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(LabError::Input(format!(
            "{name} is longer than {} MiB, which no file of keys is",
            MAX_FILE_BYTES >> 20
        )));
    }
    read(&bytes).map_err(|error| LabError::Input(format!("{name}: {error}")))
}

/// Looks for keys in bytes: PEM, DER, JWK, OpenSSH's lines and private keys, PuTTY's files.
///
/// # Errors
/// What the bytes are instead.
pub fn read(bytes: &[u8]) -> Result<Contents, NoKey> {
    let text = bytes.trim_ascii_start();
    // Some editors of Windows write a mark of byte order before everything else.
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    if text.is_empty() {
        return Err(NoKey::Empty);
    }
    if bytes.first() == Some(&0x30) && bytes.get(1).is_some_and(|length| *length >= 0x20) && !is_text(bytes) {
        return asn1::whole(bytes).map(|found| Contents { found: vec![found], notes: Vec::new() });
    }
    if text.starts_with(b"{") {
        return jwk(text);
    }
    if contains(text, b"-----BEGIN ") {
        return pem(text);
    }
    if text.starts_with(b"PuTTY-User-Key-File-") || text.starts_with(b"---- BEGIN SSH2 PUBLIC KEY") {
        let found = std::str::from_utf8(text).ok().and_then(ssh::foreign);
        let found = found.ok_or(NoKey::Foreign)?;
        return Ok(Contents { found, notes: Vec::new() });
    }
    // With the blank lines at the beginning: lines have numbers.
    let (found, odd) = ssh::lines(bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes));
    if found.is_empty() {
        return Err(if is_text(text) { NoKey::Text } else { NoKey::Binary });
    }
    Ok(Contents { found, notes: odd.note().into_iter().collect() })
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

fn is_text(bytes: &[u8]) -> bool {
    !bytes.iter().take(4096).any(|byte| *byte < 0x20 && !matches!(byte, b'\n' | b'\r' | b'\t' | 0x0c))
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}

fn pem(text: &[u8]) -> Result<Contents, NoKey> {
    let blocks = formats::pem_blocks(text);
    if blocks.is_empty() {
        return Err(NoKey::CutPem);
    }
    let (mut contents, mut refused) = (Contents::default(), Vec::new());
    let several = blocks.len() > 1;
    for (number, block) in blocks.into_iter().enumerate() {
        // What belongs to a key and is none.
        if block.label.ends_with("PARAMETERS") || block.label == "X509 CRL" {
            continue;
        }
        let label = printable(block.label.as_bytes());
        match in_block(block) {
            Ok(found) => contents.found.extend(found.into_iter().map(|mut found| {
                if several {
                    let inner = std::mem::take(&mut found.place);
                    found.place = format!("block {}", number + 1);
                    if !inner.is_empty() {
                        found.place = format!("{}, {inner}", found.place);
                    }
                }
                found
            })),
            Err(why) => refused.push(RefusedBlock { number: number + 1, label, why }),
        }
    }
    if contents.found.is_empty() {
        return Err(if refused.is_empty() { NoKey::Parameters } else { NoKey::Blocks(refused) });
    }
    contents.notes = refused.iter().map(ToString::to_string).collect();
    Ok(contents)
}

fn in_block(block: PemBlock<'_>) -> Result<Vec<Found>, NoKey> {
    if block.encrypted || block.label == "ENCRYPTED PRIVATE KEY" {
        return Err(NoKey::Encrypted);
    }
    let bytes = block.content.map_err(NoKey::Base64)?;
    let bytes = bytes.as_slice();
    let one = |found: Option<Found>| found.map(|found| vec![found]);
    match block.label {
        "CERTIFICATE" | "X509 CERTIFICATE" | "TRUSTED CERTIFICATE" => one(asn1::certificate(bytes)),
        "CERTIFICATE REQUEST" | "NEW CERTIFICATE REQUEST" => one(asn1::request(bytes)),
        "PUBLIC KEY" => one(asn1::public(bytes)),
        "RSA PUBLIC KEY" => one(asn1::pkcs1(bytes, false)),
        "PRIVATE KEY" => one(asn1::pkcs8(bytes)),
        "RSA PRIVATE KEY" => one(asn1::pkcs1(bytes, true)),
        "EC PRIVATE KEY" => one(asn1::sec1(bytes)),
        "DSA PRIVATE KEY" => one(asn1::dsa_private(bytes)),
        "OPENSSH PRIVATE KEY" => ssh::private(bytes),
        "PKCS7" | "CMS" => return Err(NoKey::Pkcs7),
        _ => return Err(NoKey::OtherBlock),
    }
    .ok_or(NoKey::Mislabelled)
}

/// A JSON Web Key, or a set of them (RFC 7517).
fn jwk(text: &[u8]) -> Result<Contents, NoKey> {
    let json: serde_json::Value = serde_json::from_slice(text).map_err(NoKey::Malformed)?;
    let found = match json.get("keys").and_then(|keys| keys.as_array()) {
        Some(keys) => keys
            .iter()
            .enumerate()
            .map(|(number, key)| Some(Found { place: format!("key {}", number + 1), ..web_key(key)? }))
            .collect::<Option<Vec<_>>>(),
        None => web_key(&json).map(|found| vec![found]),
    };
    match found {
        Some(found) if !found.is_empty() => Ok(Contents { found, notes: Vec::new() }),
        _ => Err(NoKey::OtherJson),
    }
}

fn web_key(key: &serde_json::Value) -> Option<Found> {
    let text = |name: &str| key.get(name).and_then(|value| value.as_str());
    let private = text("d").is_some() || text("priv").is_some();
    let known = match (text("kty")?, text("crv"), text("alg")) {
        ("RSA", ..) => {
            let modulus = data_encoding::BASE64URL_NOPAD.decode(text("n")?.as_bytes()).ok()?;
            Key::rsa(der::bits(&modulus))
        }
        ("EC" | "OKP", Some(name), _) | ("AKP", _, Some(name)) => name.parse().map_or_else(
            |_| Key::Unknown(format!("a key that is not known here, {:?}", printable(name.as_bytes()))),
            Key::Known,
        ),
        (other, ..) => Key::Unknown(format!("a key of type {:?}", printable(other.as_bytes()))),
    };
    Some(Found::new(if private { "private JSON Web Key" } else { "JSON Web Key" }, known))
}

#[cfg(test)]
mod tests;
