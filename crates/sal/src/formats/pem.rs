//! Textual encoding (RFC 7468): base64 between two lines.

use pem_rfc7468::{Decoder, Encoder, LineEnding, encapsulated_len_wrapped};
use zeroize::Zeroizing;

use super::error::FormatError;

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const DASHES: &[u8] = b"-----";

/// One block of a file, from its first line to its last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block<'a> {
    /// What the first line says it is, such as `PRIVATE KEY`.
    pub(super) label: &'a str,
    /// All of it, with both lines.
    text: &'a [u8],
    /// What is between the lines.
    body: &'a [u8],
}

impl<'a> Block<'a> {
    /// Whether the headers say that the content is encrypted in OpenSSL's old way.
    pub(super) fn is_legacy_encrypted(&self) -> bool {
        lines(self.body).any(|line| line.starts_with(b"Proc-Type:") && contains(line, b"ENCRYPTED"))
    }

    /// The bytes in the base64.
    ///
    /// # Errors
    /// [`FormatError::Malformed`] when it is not base64, or in lines of different lengths.
    pub(super) fn decode(&self, format: &'static str) -> Result<Zeroizing<Vec<u8>>, FormatError> {
        let refused = |error: pem_rfc7468::Error| FormatError::malformed(format, error.to_string());
        if self.body.contains(&b':') {
            return Err(refused(pem_rfc7468::Error::HeaderDisallowed));
        }
        let mut decoder = Decoder::new_detect_wrap(self.text).map_err(refused)?;
        // At full length from the start: a buffer that grows leaves secrets behind where it was.
        let mut bytes = Zeroizing::new(vec![0; decoder.remaining_len()]);
        decoder.decode(&mut bytes).map_err(refused)?;
        if decoder.is_finished() { Ok(bytes) } else { Err(refused(pem_rfc7468::Error::Length)) }
    }
}

/// The blocks of a file. Text before, between and after them is skipped, as by other readers; a block without its last
/// line is not one.
pub(super) fn blocks(text: &[u8]) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut open: Option<(&str, usize, usize)> = None;
    let mut at = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let next = at + line.len();
        let bare = line.trim_ascii_end();
        if let Some(label) = between(bare, BEGIN) {
            open = Some((label, at, next));
        } else if let Some(label) = between(bare, END)
            && let Some((opened, start, body)) = open.take()
            && opened == label
        {
            let end = at + bare.len();
            if let (Some(whole), Some(body)) = (text.get(start..end), text.get(body..at)) {
                blocks.push(Block { label, text: whole, body });
            }
        }
        at = next;
    }
    blocks
}

/// Whether some line opens a block, even if none closes it.
pub(super) fn opens(text: &[u8]) -> bool {
    lines(text).any(|line| line.starts_with(BEGIN))
}

/// Lines of as many characters as RFC 7468 §2 wants.
pub(super) const LINE: usize = 64;
/// Lines of as many characters as OpenSSH writes, and some readers of its format insist on.
pub(super) const OPENSSH_LINE: usize = 70;

/// Writes one block.
pub(super) fn encode(
    label: &'static str,
    line: usize,
    bytes: &[u8],
) -> Result<Zeroizing<String>, FormatError> {
    let failed = |_| FormatError::Provider { operation: "write PEM" };
    let length = encapsulated_len_wrapped(label, line, LineEnding::LF, bytes.len()).map_err(failed)?;
    let mut text = Zeroizing::new(vec![0; length]);
    let mut encoder = Encoder::new_wrapped(label, line, LineEnding::LF, &mut text).map_err(failed)?;
    encoder.encode(bytes).map_err(failed)?;
    let length = encoder.finish().map_err(failed)?;
    text.truncate(length);
    // The buffer itself becomes the string, so that there is still one to wipe.
    String::from_utf8(std::mem::take(&mut text))
        .map(Zeroizing::new)
        .map_err(|_| FormatError::Provider { operation: "write PEM" })
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| matches!(byte, b'\n' | b'\r'))
}

fn between<'a>(line: &'a [u8], prefix: &[u8]) -> Option<&'a str> {
    std::str::from_utf8(line.strip_prefix(prefix)?.strip_suffix(DASHES)?).ok()
}

fn contains(line: &[u8], word: &[u8]) -> bool {
    line.windows(word.len()).any(|window| window == word)
}
