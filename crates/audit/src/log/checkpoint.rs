//! Where the chain stood: signed, and in words that can be kept elsewhere.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::str::FromStr;

use data_encoding::{BASE64, HEXLOWER, HEXLOWER_PERMISSIVE};
use sallyport_sal::{PublicKey, SignError, Signer};

/// The file that says behind which record a log begins, where that is not the first.
pub(super) const BEGINNING: &str = "beginning";

/// A record's number and the chain up to and with it: enough to hold a whole log against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The record's number.
    pub sequence: u64,
    /// Its hash.
    pub hash: [u8; 32],
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.sequence, HEXLOWER.encode(&self.hash))
    }
}

/// What is no head.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is not a checkpoint; expected NUMBER and HASH (64 hexadecimal digits), or a line of the file checkpoints"
)]
pub struct NotAHead;

impl FromStr for Head {
    type Err = NotAHead;

    /// Reads `NUMBER HASH` or `NUMBER:HASH`; of a whole checkpoint, whose signature is not looked at, the same.
    fn from_str(text: &str) -> Result<Self, NotAHead> {
        if let Some(checkpoint) = Checkpoint::parse(text.trim()) {
            return Ok(checkpoint.head);
        }
        let (sequence, hash) = text.trim().split_once([' ', ':']).ok_or(NotAHead)?;
        let hash = HEXLOWER_PERMISSIVE.decode(hash.trim().as_bytes()).ok();
        Ok(Self {
            sequence: sequence.parse().map_err(|_| NotAHead)?,
            hash: hash.and_then(|hash| hash.try_into().ok()).ok_or(NotAHead)?,
        })
    }
}

/// A signed statement of where the chain stood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The record.
    pub head: Head,
    /// When it was signed, in seconds since 1970.
    pub time: i64,
    /// By the cluster's key for this.
    pub signature: Vec<u8>,
}

const CHECKPOINT: &[u8] = b"sallyport audit checkpoint v1\0";
const BEGINNING_OF_LOG: &[u8] = b"sallyport audit beginning v1\0";

fn message(what: &[u8], head: &Head, time: i64) -> Vec<u8> {
    [what, &head.sequence.to_be_bytes(), &head.hash, &time.to_be_bytes()].concat()
}

impl Checkpoint {
    pub(super) fn sign(head: Head, time: i64, signer: &dyn Signer) -> Result<Self, SignError> {
        let signature = signer.sign(&message(CHECKPOINT, &head, time))?;
        Ok(Self { head, time, signature })
    }

    pub(super) fn sign_beginning(head: Head, time: i64, signer: &dyn Signer) -> Result<Self, SignError> {
        let signature = signer.sign(&message(BEGINNING_OF_LOG, &head, time))?;
        Ok(Self { head, time, signature })
    }

    /// Whether the cluster's key made it.
    #[must_use]
    pub fn is_signed(&self, key: &PublicKey) -> bool {
        key.verify(&message(CHECKPOINT, &self.head, self.time), &self.signature).is_ok()
    }

    pub(super) fn is_signed_as_beginning(&self, key: &PublicKey) -> bool {
        key.verify(&message(BEGINNING_OF_LOG, &self.head, self.time), &self.signature).is_ok()
    }

    /// As a line of the file `checkpoints`, without its end.
    #[must_use]
    pub fn to_line(&self) -> String {
        format!("{} {} {}", self.head, self.time, BASE64.encode(&self.signature))
    }

    /// Reads such a line; `None` when it is not one. The signature is not checked.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let mut parts = line.split(' ');
        let sequence = parts.next()?.parse().ok()?;
        let hash = HEXLOWER.decode(parts.next()?.as_bytes()).ok()?.try_into().ok()?;
        let checkpoint = Self {
            head: Head { sequence, hash },
            time: parts.next()?.parse().ok()?,
            signature: BASE64.decode(parts.next()?.as_bytes()).ok()?,
        };
        parts.next().is_none().then_some(checkpoint)
    }
}

/// What a log says of where it begins.
pub(super) enum Beginning {
    Good(Checkpoint),
    Unreadable,
}

impl Beginning {
    /// Nothing where a log begins with its first record.
    pub(super) fn read(directory: &Path) -> io::Result<Option<Self>> {
        match fs::read(directory.join(BEGINNING)) {
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes);
                Ok(Some(Checkpoint::parse(text.trim_end()).map_or(Self::Unreadable, Self::Good)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_they_are_written() {
        let head = Head { sequence: 62, hash: [0xab; 32] };
        let text = head.to_string();
        assert_eq!(text.parse::<Head>(), Ok(head));
        assert_eq!(text.replace(' ', ":").to_uppercase().parse::<Head>(), Ok(head));
        let line = Checkpoint { head, time: 7, signature: vec![1; 64] }.to_line();
        assert_eq!(format!("{line}\n").parse::<Head>(), Ok(head));
        for wrong in ["", "62", "62 ab", "x y", &text[1..text.len() - 1]] {
            assert_eq!(wrong.parse::<Head>(), Err(NotAHead), "{wrong:?}");
        }
    }
}
