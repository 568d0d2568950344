//! What a user's program and an agent say to each other before a session's own bytes, where the two have TLS between them: a
//! message with its length (four bytes, most significant first) before it.

use std::io;

use bytes::Bytes;
use prost::Message;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Longest message: a signature of the largest kind of key, and room.
pub const LONGEST_BYTES: usize = 16 * 1024;

/// The message with its length before it.
#[must_use]
pub fn encode(message: &impl Message) -> Vec<u8> {
    let body = message.encode_to_vec();
    let mut bytes = u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes().to_vec();
    bytes.extend(body);
    bytes
}

/// Reads a message's bytes, and nothing behind them. What they say is not looked at.
///
/// # Errors
/// The stream's; of kind `InvalidData` for a message that is too long.
pub async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Bytes> {
    let length = usize::try_from(stream.read_u32().await?).unwrap_or(usize::MAX);
    if length > LONGEST_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a preamble of {length} bytes, at most {LONGEST_BYTES} are allowed"),
        ));
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message).await?;
    Ok(message.into())
}

/// Reads a message.
///
/// # Errors
/// As [`read`]; of kind `InvalidData`, too, for bytes that are no such message.
pub async fn read_message<M: Message + Default>(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<M> {
    M::decode(read(stream).await?).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::v1::DatabaseOpening;

    #[tokio::test]
    async fn a_message_comes_as_it_was_said_and_what_follows_stays() {
        let word = DatabaseOpening { at: 7, nonce: vec![1; 16].into(), ..DatabaseOpening::default() };
        let said = [encode(&word), b"rest".to_vec()].concat();
        for step in [1, 3, said.len()] {
            let (mut near, mut far) = tokio::io::duplex(16);
            let said = said.clone();
            let saying = tokio::spawn(async move {
                for part in said.chunks(step) {
                    near.write_all(part).await.unwrap();
                }
            });
            assert_eq!(read_message::<DatabaseOpening>(&mut far).await.unwrap(), word);
            let mut rest = Vec::new();
            far.read_to_end(&mut rest).await.unwrap();
            assert_eq!(rest, b"rest");
            saying.await.unwrap();
        }
    }

    #[tokio::test]
    async fn what_is_too_long_or_cut_off_or_no_message_is_refused() {
        let mut long: &[u8] = &[0, 1, 0, 0];
        assert_eq!(read(&mut long).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        let mut short: &[u8] = &[0, 0, 0, 2, 1];
        assert_eq!(read(&mut short).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let mut odd: &[u8] = &[0, 0, 0, 1, 0xff];
        let read = read_message::<DatabaseOpening>(&mut odd).await;
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
