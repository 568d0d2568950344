//! What a fresh connection speaks, from its first bytes alone.
//!
//! Nothing is answered before the verdict, the bytes read are bounded, and the caller bounds the time.

use bytes::{Buf, Bytes, BytesMut};
use sallyport_access::Kind;
use sallyport_databases::postgres::startup::{self, CancelKey};
use sallyport_wire::alpn;
use sallyport_wire::client_hello::{self, TlsOffer};
use sallyport_wire::detect::{Verdict, detect};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::rustls::server::Acceptor;

use super::rewind::Rewind;

/// A ClientHello fits in one TLS record of 16 KiB (RFC 8446 §5.1) with every extension in use today, ten times over;
/// a client that needs more is not one of ours.
const CLIENT_HELLO_LIMIT_BYTES: usize = 16 * 1024 + 5;

/// What a TLS client wants to reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wants {
    /// The authority, end to end.
    Authority,
    /// An agent's reverse connection.
    Tunnel,
    /// Another proxy's connection on behalf of its client.
    Relay,
    /// Resources of this kind, in a protocol of their own.
    Protocol(Kind),
    /// gRPC or HTTPS.
    Http,
}

/// A connection that is known by its first bytes; reading the stream gives them again.
#[derive(Debug)]
pub(crate) enum First<T> {
    /// Plain SSH.
    Ssh(Rewind<T>),
    /// A complete ClientHello, and what it offers.
    Tls(Wants, TlsOffer, Rewind<T>),
    /// HTTP without TLS.
    PlainHttp(Rewind<T>),
    /// A database client that asks for a query of another connection to be cancelled, as libpq does without TLS.
    Cancel(CancelKey),
    /// A database client that goes on without TLS.
    PlainPostgres(T),
}

/// Why a connection is dropped before it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// The peer closed.
    Closed,
    /// Nothing that is spoken here.
    Garbage,
    /// A ClientHello larger than any real one.
    Oversized,
    /// TLS records that do not make up a ClientHello.
    BadClientHello,
}

impl Dropped {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Garbage => "garbage",
            Self::Oversized => "oversized",
            Self::BadClientHello => "bad_client_hello",
        }
    }
}

/// Reads until the protocol is known.
pub(crate) async fn classify<T: AsyncRead + AsyncWrite + Unpin>(mut stream: T) -> Result<First<T>, Dropped> {
    let mut ahead = BytesMut::with_capacity(2048);
    loop {
        read_more(&mut stream, &mut ahead).await?;
        match detect(&ahead) {
            Verdict::NeedMore => {}
            Verdict::Http => return Ok(First::PlainHttp(Rewind::new(ahead.freeze(), stream))),
            Verdict::Tls => return Box::pin(tls(ahead, stream)).await,
            verdict => match sallyport_protocols::by_first_bytes(verdict).map(|row| row.kind) {
                Some(Kind::Node) => return Ok(First::Ssh(Rewind::new(ahead.freeze(), stream))),
                Some(Kind::Database) => return Box::pin(postgres(ahead, stream)).await,
                _ => return Err(Dropped::Garbage),
            },
        }
    }
}

async fn read_more<T: AsyncRead + Unpin>(stream: &mut T, ahead: &mut BytesMut) -> Result<Bytes, Dropped> {
    let known = ahead.len();
    let room = CLIENT_HELLO_LIMIT_BYTES.saturating_sub(known);
    if room == 0 {
        return Err(Dropped::Oversized);
    }
    let mut limited = (&mut *stream).take(room as u64);
    match limited.read_buf(ahead).await {
        Ok(0) | Err(_) => Err(Dropped::Closed),
        Ok(_) => Ok(Bytes::copy_from_slice(ahead.get(known..).unwrap_or_default())),
    }
}

/// Requests for encryption before the one that is accepted: GSSAPI, then TLS.
const ENCRYPTION_REQUESTS: usize = 3;

/// What comes before TLS from a database client.
async fn postgres<T: AsyncRead + AsyncWrite + Unpin>(
    mut ahead: BytesMut,
    mut stream: T,
) -> Result<First<T>, Dropped> {
    for _ in 0..ENCRYPTION_REQUESTS {
        let first = loop {
            match startup::read(&ahead).map_err(|_| Dropped::Garbage)? {
                Some((first, length)) => {
                    ahead.advance(length);
                    break first;
                }
                None => read_more(&mut stream, &mut ahead).await?,
            };
        };
        let answer = match first {
            startup::First::Cancel(key) => return Ok(First::Cancel(key)),
            startup::First::Startup(_) => return Ok(First::PlainPostgres(stream)),
            startup::First::Tls => startup::ACCEPTED,
            startup::First::Gssapi => startup::DECLINED,
        };
        // A client that wants TLS waits for the answer: bytes before it may have been put there by an attacker.
        if !ahead.is_empty() {
            return Err(Dropped::Garbage);
        }
        stream.write_all(&[answer]).await.map_err(|_| Dropped::Closed)?;
        stream.flush().await.map_err(|_| Dropped::Closed)?;
        read_more(&mut stream, &mut ahead).await?;
        if answer == startup::ACCEPTED {
            return match tls(ahead, stream).await? {
                First::Tls(_, offer, stream) => {
                    Ok(First::Tls(Wants::Protocol(Kind::Database), offer, stream))
                }
                other => Ok(other),
            };
        }
    }
    Err(Dropped::Garbage)
}

async fn tls<T: AsyncRead + AsyncWrite + Unpin>(
    mut ahead: BytesMut,
    mut stream: T,
) -> Result<First<T>, Dropped> {
    let mut acceptor = Acceptor::default();
    let mut fresh = Bytes::copy_from_slice(&ahead);
    loop {
        let mut unread: &[u8] = &fresh;
        while !unread.is_empty() {
            acceptor.read_tls(&mut unread).map_err(|_| Dropped::BadClientHello)?;
        }
        match acceptor.accept() {
            Ok(Some(accepted)) => {
                let wants = wants(accepted.client_hello().alpn().into_iter().flatten());
                let offer = client_hello::read(&ahead).unwrap_or_default();
                return Ok(First::Tls(wants, offer, Rewind::new(ahead.freeze(), stream)));
            }
            Ok(None) => fresh = read_more(&mut stream, &mut ahead).await?,
            Err((_, mut alert)) => {
                let mut bytes = Vec::new();
                if alert.write_all(&mut bytes).is_ok() {
                    // A courtesy to a misconfigured client; it may be gone already.
                    let _ = stream.write_all(&bytes).await;
                }
                return Err(Dropped::BadClientHello);
            }
        }
    }
}

fn wants<'a>(offered: impl Iterator<Item = &'a [u8]>) -> Wants {
    for protocol in offered {
        match protocol {
            p if p == alpn::AUTH => return Wants::Authority,
            p if p == alpn::TUNNEL => return Wants::Tunnel,
            p if p == alpn::RELAY => return Wants::Relay,
            p => {
                if let Some(row) = sallyport_protocols::by_alpn(p) {
                    return Wants::Protocol(row.kind);
                }
            }
        }
    }
    Wants::Http
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::io::DuplexStream;
    use tokio::time::timeout;
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::pki_types::ServerName;

    use super::*;

    const PIN: &str = "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    /// What a real client sends first.
    async fn hello(alpn: &[&[u8]]) -> Vec<u8> {
        let config = Arc::new(sallyport_ca::tls::pinned_client_config(PIN, alpn).unwrap());
        let (near, mut far) = tokio::io::duplex(64 * 1024);
        let name = ServerName::try_from("test.internal").unwrap();
        let client = tokio::spawn(TlsConnector::from(config).connect(name, near));
        let mut head = [0; 5];
        far.read_exact(&mut head).await.unwrap();
        let mut body = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
        far.read_exact(&mut body).await.unwrap();
        client.abort();
        [&head[..], &body].concat()
    }

    /// What rustls sends is read: TLS 1.3 with a hybrid group.
    fn told(offer: &TlsOffer, kind: &'static str) -> &'static str {
        assert!(offer.versions.contains(&0x0304) && offer.groups.contains(&0x11ec), "{kind}: {offer:?}");
        assert!(offer.signature_schemes.contains(&0x0403), "{kind}: {offer:?}");
        kind
    }

    async fn classified(bytes: &[u8], step: usize) -> Result<(&'static str, Vec<u8>), Dropped> {
        let (mut near, far) = tokio::io::duplex(256 * 1024);
        let bytes = bytes.to_vec();
        let writer = tokio::spawn(async move {
            for part in bytes.chunks(step) {
                if near.write_all(part).await.is_err() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            near.shutdown().await.ok();
        });
        let first = timeout(Duration::from_secs(5), classify(far)).await.expect("a verdict")?;
        let (kind, mut stream): (_, Rewind<DuplexStream>) = match first {
            First::Ssh(stream) => ("ssh", stream),
            First::PlainHttp(stream) => ("http", stream),
            First::Tls(Wants::Authority, offer, stream) => (told(&offer, "authority"), stream),
            First::Tls(Wants::Tunnel, offer, stream) => (told(&offer, "tunnel"), stream),
            First::Tls(Wants::Relay, offer, stream) => (told(&offer, "relay"), stream),
            First::Tls(Wants::Protocol(Kind::Database), offer, stream) => (told(&offer, "postgres"), stream),
            First::Tls(Wants::Http, offer, stream) => (told(&offer, "https"), stream),
            First::Tls(Wants::Protocol(kind), ..) => panic!("nothing of {kind:?} comes to the port"),
            First::Cancel(_) | First::PlainPostgres(_) => panic!("a database client without TLS"),
        };
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        writer.await.unwrap();
        Ok((kind, all))
    }

    #[tokio::test]
    async fn each_protocol_is_known_however_its_bytes_are_split_and_none_is_lost() {
        let cases = [
            ("ssh", b"SSH-2.0-OpenSSH_9.2\r\nrest".to_vec()),
            ("http", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
            ("authority", hello(&[alpn::AUTH]).await),
            ("tunnel", hello(&[alpn::TUNNEL]).await),
            ("relay", hello(&[alpn::RELAY]).await),
            ("https", hello(&[alpn::H2, alpn::HTTP11]).await),
            ("https", hello(&[]).await),
            ("postgres", hello(&[alpn::POSTGRESQL]).await),
        ];
        for (kind, bytes) in cases {
            for step in [1, 3, 7, bytes.len()] {
                let (got, all) = classified(&bytes, step).await.unwrap_or_else(|e| panic!("{kind}: {e:?}"));
                assert_eq!(got, kind, "in steps of {step}");
                assert!(all == bytes, "{kind} in steps of {step}: bytes differ");
            }
        }
    }

    /// What follows the bytes, and what was answered.
    async fn database_client(parts: Vec<Vec<u8>>) -> (Result<First<DuplexStream>, Dropped>, Vec<u8>) {
        let (mut near, far) = tokio::io::duplex(256 * 1024);
        let client = tokio::spawn(async move {
            let mut answers = Vec::new();
            let last = parts.len() - 1;
            for (index, part) in parts.into_iter().enumerate() {
                near.write_all(&part).await.unwrap();
                if index < last {
                    answers.push(near.read_u8().await.unwrap());
                }
            }
            (near, answers)
        });
        let first = timeout(Duration::from_secs(5), classify(far)).await.expect("a verdict");
        (first, client.await.unwrap().1)
    }

    #[tokio::test]
    async fn database_clients_ask_for_encryption_first() {
        let (gssapi, tls) = (vec![0, 0, 0, 8, 4, 210, 22, 48], startup::ask_for_tls());
        let hello = hello(&[]).await;
        let (first, answers) = database_client(vec![gssapi.clone(), tls.clone(), hello.clone()]).await;
        assert!(matches!(first, Ok(First::Tls(Wants::Protocol(Kind::Database), ..))), "{first:?}");
        assert_eq!(answers, b"NS");
        let key = CancelKey { process: 7, secret: vec![1, 2, 3, 4] };
        let (first, _) = database_client(vec![startup::cancel(&key)]).await;
        assert!(matches!(first, Ok(First::Cancel(found)) if found == key));
        let plain = startup::Startup { minor: 0, parameters: vec![("user".into(), "app".into())] };
        let (first, _) = database_client(vec![plain.to_bytes()]).await;
        assert!(matches!(first, Ok(First::PlainPostgres(_))), "{first:?}");
        // Sent before the answer: not by the client that waits for TLS.
        let (first, _) = database_client(vec![[tls.as_slice(), &hello].concat()]).await;
        assert_eq!(first.err(), Some(Dropped::Garbage));
    }

    #[tokio::test]
    async fn garbage_is_dropped_after_a_few_bytes() {
        for bytes in [
            &b"\x00\x01\x02\x03\x04\x05\x06\x07"[..],
            b"EHLO mail\r\n",
            b"\x16\x02\x00\x00\x00\x01",
            b"\xff\xff",
        ] {
            assert_eq!(classified(bytes, 1).await.unwrap_err(), Dropped::Garbage, "{bytes:?}");
        }
        assert_eq!(classified(b"", 1).await.unwrap_err(), Dropped::Closed);
        assert_eq!(classified(b"SS", 1).await.unwrap_err(), Dropped::Closed);
    }

    #[tokio::test]
    async fn a_client_hello_without_end_is_dropped() {
        // Fragments of one huge ClientHello: each record is well formed, the handshake message never ends.
        let mut endless = Vec::new();
        let mut first = true;
        while endless.len() < 64 * 1024 {
            endless.extend_from_slice(&[22, 3, 1, 0x04, 0x00]);
            let mut fragment = vec![0u8; 0x400];
            if first {
                fragment[..4].copy_from_slice(&[1, 0, 0xff, 0xf0]);
                first = false;
            }
            endless.extend_from_slice(&fragment);
        }
        let dropped = classified(&endless, 4096).await.unwrap_err();
        assert!(matches!(dropped, Dropped::Oversized | Dropped::BadClientHello), "{dropped:?}");
    }

    #[tokio::test]
    async fn a_broken_client_hello_gets_an_alert() {
        let (mut near, far) = tokio::io::duplex(64 * 1024);
        near.write_all(&[22, 3, 1, 0, 6, 1, 0, 0, 2, 3, 3]).await.unwrap();
        assert_eq!(classify(far).await.unwrap_err(), Dropped::BadClientHello);
        let mut answer = Vec::new();
        near.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer.first(), Some(&21), "a TLS alert record");
    }
}
