//! Sending a client away with words, where the words can still reach it.
//!
//! When a server offers only what a client does not know, the client finds that out by itself and says so in its own
//! way. To say it in ours, the server has to speak before its own KEXINIT is out: it identifies itself, waits for the
//! client's KEXINIT, and sends SSH_MSG_DISCONNECT with the reason (RFC 4253 §11.1). Waiting costs a round trip, so
//! clients that are known to fit are not made to wait.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use sallyport_sal::compatibility::known_hybrid_ssh;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::{Reader, SshOffer};
use crate::Stream;

/// What servers and clients of ours call themselves.
pub(crate) const IDENTIFICATION: &str = concat!("SSH-2.0-Sallyport_", env!("CARGO_PKG_VERSION"));
/// The key exchange method that a cluster can require.
pub(crate) const HYBRID: &str = "mlkem768x25519-sha256";
/// A client that waits for the server's KEXINIT before it sends its own would wait for ever.
const PATIENCE: Duration = Duration::from_secs(2);
/// As much as a client can have to say before its KEXINIT is over: see [`super::LONGEST_PACKET_BYTES`].
const MOST_AHEAD_BYTES: usize = 64 * 1024;

const SSH_MSG_DISCONNECT: u8 = 1;
/// SSH_DISCONNECT_KEY_EXCHANGE_FAILED (RFC 4253 §11.1).
const KEY_EXCHANGE_FAILED: u32 = 3;

/// What became of a client.
pub(crate) enum Heard<S> {
    /// The SSH library takes over.
    Fits(Greeted<S>),
    /// It was told why not, and is gone.
    Refused {
        /// What it offered.
        offer: SshOffer,
        /// Why that is not enough.
        reason: String,
    },
}

/// Greets a client and sends it away, in words that it shows to its user, if it does not offer hybrid key exchange.
///
/// # Errors
/// When the stream fails.
pub(crate) async fn hear_out<S: Stream>(mut stream: S) -> io::Result<Heard<S>> {
    stream.write_all(IDENTIFICATION.as_bytes()).await?;
    stream.write_all(b"\r\n").await?;
    stream.flush().await?;
    let mut ahead = BytesMut::with_capacity(4096);
    let heard = tokio::time::timeout(PATIENCE, offer(&mut stream, &mut ahead)).await;
    let offer = match heard {
        Ok(offer) => offer?,
        Err(_) => None,
    };
    if let Some(offer) = offer
        && !offer.kex.iter().any(|method| method == HYBRID)
    {
        let name: String = offer.software.chars().take(80).collect();
        let text = format!(
            "this cluster requires post-quantum key exchange ({HYBRID}), which {name} does not offer; use OpenSSH 9.9 \
             or newer, or: sallyport ssh"
        );
        stream.write_all(&disconnect(&text)).await?;
        stream.shutdown().await?;
        let reason = format!("it offers no {HYBRID}, which the cluster's suite requires");
        return Ok(Heard::Refused { offer, reason });
    }
    Ok(Heard::Fits(Greeted { ahead: ahead.freeze(), stream, said: IDENTIFICATION.len() + 2 }))
}

/// What a client reads before it logs in, where it does not say that it knows certificates (RFC 4252 §5.4).
pub(crate) fn banner(offer: &SshOffer) -> Option<String> {
    let name: String = offer.software.chars().take(80).collect();
    (!offer.takes_certificates()).then(|| {
        format!(
            "sallyport: people and hosts prove themselves here by OpenSSH certificates, which {name} does not say it knows.\r\n\
             sallyport: If it is refused, use OpenSSH (sallyport config writes its settings), PuTTY 0.78 or newer, or: sallyport \
             ssh\r\n"
        )
    })
}

/// Reads until the client's offer is there, or there is no need to know it.
async fn offer<S: Stream>(stream: &mut S, ahead: &mut BytesMut) -> io::Result<Option<SshOffer>> {
    let mut reader = Reader::default();
    loop {
        let known = ahead.len();
        if known >= MOST_AHEAD_BYTES || stream.read_buf(ahead).await? == 0 {
            return Ok(None);
        }
        match reader.read(ahead.get(known..).unwrap_or_default()) {
            Some(answer) => return Ok(answer.ok()),
            None if reader.software().is_some_and(known_hybrid_ssh) => return Ok(None),
            None => {}
        }
    }
}

/// An unencrypted packet (RFC 4253 §6) with a disconnection message.
fn disconnect(text: &str) -> Vec<u8> {
    let mut payload = vec![SSH_MSG_DISCONNECT];
    payload.extend_from_slice(&KEY_EXCHANGE_FAILED.to_be_bytes());
    for field in [text, ""] {
        let length = u32::try_from(field.len()).unwrap_or(0);
        payload.extend_from_slice(&length.to_be_bytes());
        payload.extend_from_slice(field.as_bytes());
    }
    // The whole is a multiple of 8 bytes, with at least 4 of padding.
    let padding = 4 + (8 - (5 + payload.len() + 4) % 8) % 8;
    let length = u32::try_from(1 + payload.len() + padding).unwrap_or(0);
    let mut packet = length.to_be_bytes().to_vec();
    packet.push(u8::try_from(padding).unwrap_or(0));
    packet.extend_from_slice(&payload);
    packet.resize(packet.len() + padding, 0);
    packet
}

/// A stream whose greeting is over: it gives the client's words again, and swallows the identification that the SSH
/// library will send, which is the same.
#[derive(Debug)]
pub(crate) struct Greeted<S> {
    ahead: Bytes,
    stream: S,
    /// Bytes to swallow.
    said: usize,
}

impl<S: AsyncRead + Unpin> AsyncRead for Greeted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let take = self.ahead.len().min(buffer.remaining());
        if let Some(part) = self.ahead.get(..take) {
            buffer.put_slice(part);
        }
        self.ahead.advance(take);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Greeted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.said > 0 {
            let swallowed = self.said.min(data.len());
            self.said -= swallowed;
            return Poll::Ready(Ok(swallowed));
        }
        Pin::new(&mut self.stream).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use tokio::io::DuplexStream;

    use super::*;

    fn kexinit(kex: &str) -> Vec<u8> {
        let mut payload = vec![20];
        payload.extend_from_slice(&[0; 16]);
        for names in [kex, "ssh-ed25519", "", "", "", "", "", "", "", ""] {
            payload.extend_from_slice(&u32::try_from(names.len()).unwrap().to_be_bytes());
            payload.extend_from_slice(names.as_bytes());
        }
        payload.extend_from_slice(&[0; 5]);
        let mut packet = u32::try_from(payload.len() + 5).unwrap().to_be_bytes().to_vec();
        packet.push(4);
        packet.extend_from_slice(&payload);
        packet.extend_from_slice(&[0; 4]);
        packet
    }

    async fn heard(says: &[&[u8]]) -> (Heard<DuplexStream>, DuplexStream) {
        let (mut client, server) = tokio::io::duplex(64 * 1024);
        for part in says {
            client.write_all(part).await.unwrap();
        }
        (hear_out(server).await.unwrap(), client)
    }

    #[tokio::test]
    async fn a_client_without_hybrid_key_exchange_reads_why() {
        let (heard, mut client) = heard(&[b"SSH-2.0-OpenSSH_9.2p1\r\n", &kexinit("curve25519-sha256")]).await;
        let Heard::Refused { offer, reason } = heard else { panic!("it was let in") };
        assert_eq!(offer.software, "OpenSSH_9.2p1");
        assert_eq!(reason, "it offers no mlkem768x25519-sha256, which the cluster's suite requires");
        let mut said = Vec::new();
        client.read_to_end(&mut said).await.unwrap();
        let greeting = format!("{IDENTIFICATION}\r\n");
        let packet = said.strip_prefix(greeting.as_bytes()).unwrap();
        assert_eq!((packet.len() % 8, packet[5], &packet[6..10]), (0, SSH_MSG_DISCONNECT, &[0, 0, 0, 3][..]));
        assert!(packet[4] >= 4 && packet.len() == 4 + usize::from(packet[3]) + 256 * usize::from(packet[2]));
        let text = String::from_utf8_lossy(packet);
        assert!(
            text.contains("requires post-quantum key exchange") && text.contains("OpenSSH_9.2p1"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn one_that_fits_is_handed_on_whole_and_is_greeted_once() {
        let hello =
            [&b"SSH-2.0-homemade\r\n"[..], &kexinit("mlkem768x25519-sha256,curve25519-sha256")].concat();
        let (heard, mut client) = heard(&[&hello]).await;
        let Heard::Fits(mut greeted) = heard else { panic!("it was sent away") };
        let mut got = vec![0; hello.len()];
        greeted.read_exact(&mut got).await.unwrap();
        assert!(got == hello);
        client.write_all(b"more").await.unwrap();
        let mut more = [0; 4];
        greeted.read_exact(&mut more).await.unwrap();
        // As the SSH library does it: the identification, then the rest.
        greeted.write_all(format!("{IDENTIFICATION}\r\n").as_bytes()).await.unwrap();
        greeted.write_all(b"rest").await.unwrap();
        drop(greeted);
        let mut said = String::new();
        client.read_to_string(&mut said).await.unwrap();
        assert_eq!(said, format!("{IDENTIFICATION}\r\nrest"));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_known_to_fit_does_not_wait_and_one_that_waits_is_not_waited_for() {
        for says in [&b"SSH-2.0-OpenSSH_10.0\r\n"[..], b"SSH-2.0-Sallyport_0.1.0\r\n"] {
            let before = tokio::time::Instant::now();
            let (heard, _client) = heard(&[says]).await;
            assert!(matches!(heard, Heard::Fits(_)));
            assert_eq!(before.elapsed(), Duration::ZERO);
        }
        let before = tokio::time::Instant::now();
        let (heard, _client) = heard(&[b"SSH-2.0-shy\r\n"]).await;
        assert!(matches!(heard, Heard::Fits(_)) && before.elapsed() >= PATIENCE);
    }
}
