//! What a file is, from its first bytes.

use der::{Decode as _, Header, Reader as _, SliceReader, Tag};

use super::error::FormatError;
use super::format::MAX_FILE_BYTES;
use super::{pem, pkcs1, pkcs8, sec1, spki};

/// What a file seems to be.
pub(super) enum Shape<'a> {
    /// JSON.
    Jwk(&'a [u8]),
    /// Text with a line that opens a PEM block.
    Pem,
    /// A SEQUENCE in DER.
    Der(Der),
    /// A line as in `authorized_keys`.
    SshLine(&'a str),
    /// Nothing that holds a key here, in words.
    Other(String),
}

/// What a SEQUENCE holds, from the types of its first elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Der {
    Pkcs8,
    EncryptedPkcs8,
    Sec1,
    Pkcs1Private,
    Pkcs1Public,
    Spki,
    Pkcs12,
    /// A certificate, a request for one, or a list of revoked ones: they look alike from here.
    Certificate,
    Unknown,
}

impl Der {
    /// What to call it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Pkcs8 => pkcs8::NAME,
            Self::EncryptedPkcs8 => pkcs8::ENCRYPTED_NAME,
            Self::Sec1 => sec1::NAME,
            Self::Pkcs1Private => pkcs1::NAME,
            Self::Pkcs1Public => pkcs1::PUBLIC_NAME,
            Self::Spki => spki::NAME,
            Self::Pkcs12 => {
                "a PKCS#12 file (take the key out with `openssl pkcs12 -in OLD -nocerts -out NEW`)"
            }
            Self::Certificate => "a certificate or something else that is signed",
            Self::Unknown => "DER that is not a key",
        }
    }

    fn of(bytes: &[u8]) -> Result<Self, FormatError> {
        let tags = || -> der::Result<_> {
            let mut reader = SliceReader::new(bytes)?;
            let header = Header::decode(&mut reader)?;
            // A file that was cut short is told apart from one that is something else.
            if header.length() != reader.remaining_len() {
                return Err(header.tag().length_error().into());
            }
            let mut tags = [None; 3];
            for tag in &mut tags {
                if reader.is_finished() {
                    break;
                }
                *tag = Some(Header::peek(&reader)?.tag());
                reader.tlv_bytes()?;
            }
            Ok(tags)
        };
        Ok(match tags().map_err(FormatError::der("DER file"))? {
            [Some(Tag::Integer), Some(Tag::Sequence), Some(Tag::Sequence)] => Self::Pkcs12,
            [Some(Tag::Integer), Some(Tag::Sequence), _] => Self::Pkcs8,
            [Some(Tag::Integer), Some(Tag::OctetString), _] => Self::Sec1,
            [Some(Tag::Integer), Some(Tag::Integer), Some(_)] => Self::Pkcs1Private,
            [Some(Tag::Integer), Some(Tag::Integer), None] => Self::Pkcs1Public,
            [Some(Tag::Sequence), Some(Tag::OctetString), _] => Self::EncryptedPkcs8,
            [Some(Tag::Sequence), Some(Tag::BitString), _] => Self::Spki,
            [Some(Tag::Sequence), Some(Tag::Sequence), Some(Tag::BitString)] => Self::Certificate,
            _ => Self::Unknown,
        })
    }
}

impl<'a> Shape<'a> {
    /// Looks at a file.
    ///
    /// # Errors
    /// [`FormatError::WrongKind`] when it is longer than any key, [`FormatError::Malformed`] when it starts as DER and
    /// has another length than it says.
    pub(super) fn of(bytes: &'a [u8]) -> Result<Self, FormatError> {
        if bytes.len() > MAX_FILE_BYTES {
            return Err(FormatError::WrongKind {
                found: format!("a file of {} bytes", bytes.len()),
                expected: "a key, which has at most 1 MiB",
            });
        }
        if is_der(bytes) {
            return Der::of(bytes).map(Self::Der);
        }
        let text = bytes.trim_ascii();
        if text.is_empty() {
            return Ok(Self::Other("an empty file".to_owned()));
        }
        if text.starts_with(b"{") {
            return Ok(Self::Jwk(text));
        }
        if pem::opens(bytes) {
            return Ok(Self::Pem);
        }
        if text.starts_with(b"PuTTY-User-Key-File-") {
            return Ok(Self::Other(
                "a key of PuTTY (convert it with `puttygen OLD -O private-openssh-new -o NEW`)".to_owned(),
            ));
        }
        if let Ok(line) = std::str::from_utf8(text)
            && ["ssh-", "ecdsa-", "sk-"].iter().any(|prefix| line.contains(prefix))
        {
            return Ok(Self::SshLine(line));
        }
        Ok(Self::Other("bytes that no format of keys starts with".to_owned()))
    }
}

/// What the blocks of a PEM file are, in words.
pub(super) fn name_blocks(blocks: &[pem::Block<'_>]) -> String {
    /// Enough to see what the file is.
    const SHOWN: usize = 4;
    if blocks.is_empty() {
        return "a PEM block without its last line".to_owned();
    }
    let name = |block: &pem::Block<'_>| format!("{:?}", block.label.chars().take(40).collect::<String>());
    let mut names: Vec<_> = blocks.iter().map(name).collect();
    names.dedup();
    let more = if names.len() > SHOWN { " and more" } else { "" };
    names.truncate(SHOWN);
    format!("PEM with {}{more}", names.join(", "))
}

/// Whether the bytes are a SEQUENCE rather than a text that begins with the digit 0, which is the same byte. Every
/// structure of a key has a small length or tag near its start, which no text has.
fn is_der(bytes: &[u8]) -> bool {
    let is_control = |byte: &u8| byte.is_ascii_control() && !byte.is_ascii_whitespace();
    match bytes {
        [0x30, length, rest @ ..] => {
            *length >= 0x80 || usize::from(*length) == rest.len() || rest.iter().take(4).any(is_control)
        }
        _ => false,
    }
}
