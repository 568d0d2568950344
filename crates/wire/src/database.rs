//! What a user's program says to an agent before a database session's own bytes, where the two have TLS between them.

use std::io;

use bytes::Bytes;
use prost::Message;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::v1::DatabaseOpening;

/// Longest word: a signature of the largest kind of key, and room.
const LONGEST_WORD_BYTES: usize = 16 * 1024;

/// The word that the user opens this session, with its length (four bytes, most significant first) before it.
#[must_use]
pub fn preamble(word: &DatabaseOpening) -> Vec<u8> {
    let body = word.encode_to_vec();
    let mut bytes = u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes().to_vec();
    bytes.extend(body);
    bytes
}

/// Reads a word, as the authority is asked by it. What it says is not looked at.
///
/// # Errors
/// The stream's; of kind `InvalidData` for one that is too long.
pub async fn read_preamble(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Bytes> {
    let length = usize::try_from(stream.read_u32().await?).unwrap_or(usize::MAX);
    if length > LONGEST_WORD_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("the word has {length} bytes, at most {LONGEST_WORD_BYTES} are allowed"),
        ));
    }
    let mut word = vec![0; length];
    stream.read_exact(&mut word).await?;
    Ok(word.into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn a_word_comes_as_it_was_said_and_what_follows_stays() {
        let word = DatabaseOpening { at: 7, nonce: vec![1; 16].into(), ..DatabaseOpening::default() };
        let said = [preamble(&word), b"rest".to_vec()].concat();
        for step in [1, 3, said.len()] {
            let (mut near, mut far) = tokio::io::duplex(16);
            let said = said.clone();
            let saying = tokio::spawn(async move {
                for part in said.chunks(step) {
                    near.write_all(part).await.unwrap();
                }
            });
            let read = read_preamble(&mut far).await.unwrap();
            assert_eq!(DatabaseOpening::decode(read).unwrap(), word);
            let mut rest = Vec::new();
            far.read_to_end(&mut rest).await.unwrap();
            assert_eq!(rest, b"rest");
            saying.await.unwrap();
        }
    }

    #[tokio::test]
    async fn what_is_too_long_or_cut_off_is_refused() {
        let mut long: &[u8] = &[0, 1, 0, 0];
        assert_eq!(read_preamble(&mut long).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        let mut short: &[u8] = &[0, 0, 0, 2, 1];
        assert_eq!(read_preamble(&mut short).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
