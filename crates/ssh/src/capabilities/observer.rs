//! A stream that is read along with.

use std::sync::{Arc, OnceLock};

use tokio::io::AsyncRead;
use tokio_util::io::InspectReader;

use super::{Reader, SshOffer};

/// What was read in passing, once it is known. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Offered(Arc<OnceLock<SshOffer>>);

impl Offered {
    /// What the peer can do; `None` until it has said so, and for ever when it does not.
    #[must_use]
    pub fn offer(&self) -> Option<&SshOffer> {
        self.0.get()
    }

    /// Known from elsewhere. The first to be known stays.
    pub(crate) fn set(&self, offer: SshOffer) {
        let _ = self.0.set(offer);
    }
}

impl Offered {
    /// `stream`, unchanged, with an eye on the beginning of what is read from it. Afterwards a read costs one comparison.
    pub(crate) fn along<S: AsyncRead>(
        &self,
        stream: S,
    ) -> InspectReader<S, impl FnMut(&[u8]) + Send + Unpin + use<S>> {
        let (mut reader, offered) = (Some(Reader::default()), self.clone());
        InspectReader::new(stream, move |fresh| {
            let Some(answer) = reader.as_mut().and_then(|reader| reader.read(fresh)) else { return };
            reader = None;
            match answer {
                Ok(offer) => offered.set(offer),
                Err(reason) => tracing::debug!(%reason, "the peer's algorithms are not known"),
            }
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn every_byte_comes_through_whatever_it_is() {
        let mut hello = b"SSH-2.0-probe_1\r\n".to_vec();
        let mut payload = vec![20];
        payload.extend_from_slice(&[0; 16]);
        for names in ["mlkem768x25519-sha256", "ssh-ed25519", "", "", "", "", "", "", "", ""] {
            payload.extend_from_slice(&u32::try_from(names.len()).unwrap().to_be_bytes());
            payload.extend_from_slice(names.as_bytes());
        }
        payload.extend_from_slice(&[0; 5]);
        hello.extend_from_slice(&u32::try_from(payload.len() + 5).unwrap().to_be_bytes());
        hello.push(4);
        hello.extend_from_slice(&payload);
        hello.extend_from_slice(&[0; 4]);
        let later: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        for (bytes, known) in [([hello, later.clone()].concat(), true), (later, false)] {
            let (mut far, near) = tokio::io::duplex(1000);
            let sent = bytes.clone();
            let writer = tokio::spawn(async move {
                far.write_all(&sent).await.unwrap();
                far
            });
            let offered = Offered::default();
            let mut observed = offered.along(near);
            let mut got = vec![0; bytes.len()];
            observed.read_exact(&mut got).await.unwrap();
            assert!(got == bytes, "bytes differ");
            assert_eq!(offered.offer().map(|offer| offer.kex.len()), known.then_some(1));
            observed.write_all(b"answer").await.unwrap();
            let mut answer = [0; 6];
            writer.await.unwrap().read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"answer");
        }
    }
}
