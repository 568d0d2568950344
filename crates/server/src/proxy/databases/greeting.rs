//! What clients say first, and what is said to those who are not let in.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use sallyport_access::SessionFactor;
use sallyport_databases::postgres::error::{Refusal, SqlState};
use sallyport_databases::postgres::startup::{self, First};
use sallyport_wire::detect::{Verdict, detect};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::server::TlsStream;
use tonic::Status;

use crate::listener::Rewind;
use crate::member::session_factors::wanting;
use crate::proxy::client::{Client, Native};

/// Requests for encryption inside a connection that has it.
const MOST_REQUESTS: usize = 3;
/// What a refused client has to take its answer.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(5);

/// Why there is none: what the client reads, and what goes on record.
pub(crate) struct Denied {
    pub(super) refusal: Refusal,
    /// A stable word for metrics and events.
    pub(super) reason: &'static str,
    /// In the words of the audit log, where they are others.
    pub(super) internal: Option<String>,
    /// The second factor that lets it begin.
    pub(super) factor: Option<SessionFactor>,
}

impl Denied {
    pub(super) fn new(reason: &'static str, refusal: Refusal) -> Self {
        Self { refusal, reason, internal: None, factor: None }
    }

    /// For a client that cannot be told in PostgreSQL's words on the way of its bytes: they stand beside it.
    pub(super) fn status(&self) -> Status {
        let code = match self.refusal.state {
            SqlState::InvalidAuthorization => tonic::Code::PermissionDenied,
            SqlState::InvalidCatalogName => tonic::Code::NotFound,
            SqlState::TooManyConnections => tonic::Code::ResourceExhausted,
            _ => tonic::Code::Unavailable,
        };
        let status = Status::with_details(code, self.refusal.message.clone(), self.refusal.to_bytes().into());
        wanting(status, self.factor)
    }
}

/// The first packet that is not a request for encryption; none when the client has gone. What follows it stays in `ahead`.
pub(super) async fn first_packet(
    client: &mut impl Client,
    ahead: &mut BytesMut,
) -> Result<Option<First>, Denied> {
    for _ in 0..MOST_REQUESTS {
        let first = loop {
            let read = startup::read(ahead).map_err(|error| {
                Denied::new("malformed", Refusal::new(SqlState::ProtocolViolation, error.to_string()))
            })?;
            if let Some((first, length)) = read {
                ahead.advance(length);
                break first;
            }
            match client.next().await {
                Ok(Some(bytes)) => ahead.extend_from_slice(&bytes),
                Ok(None) | Err(_) => return Ok(None),
            }
        };
        if !matches!(first, First::Tls | First::Gssapi) {
            return Ok(Some(first));
        }
        // There is encryption around this already.
        if client.send(Bytes::from_static(&[startup::DECLINED])).await.is_err() {
            return Ok(None);
        }
    }
    Err(Denied::new(
        "malformed",
        Refusal::new(SqlState::ProtocolViolation, "too many requests for encryption"),
    ))
}

/// Says no in PostgreSQL's own words, and ends the connection so that they arrive.
pub(super) async fn say(mut client: impl Client, refusal: &Refusal) {
    let saying = async {
        if client.send(Bytes::from(refusal.to_bytes())).await.is_ok() {
            client.finish().await;
        }
    };
    let _ = tokio::time::timeout(LAST_WORDS, saying).await;
}

/// To a client without TLS.
pub(crate) async fn refuse_plain<T: AsyncRead + AsyncWrite + Unpin>(mut stream: T) {
    let refusal = Refusal::new(SqlState::InvalidAuthorization, "this port speaks TLS only")
        .hint("use sslmode=verify-full, or psql \"service=NAME\" after sallyport db login NAME");
    let saying = async {
        let _ = stream.write_all(&refusal.to_bytes()).await;
        let _ = stream.shutdown().await;
    };
    let _ = tokio::time::timeout(LAST_WORDS, saying).await;
}

/// To a client without a user's certificate.
pub(crate) async fn refuse_stranger<T: AsyncRead + AsyncWrite + Send>(stream: T) {
    let refusal = Refusal::new(SqlState::InvalidAuthorization, "the connection shows no certificate of a user of this cluster")
        .hint("sallyport login, then sallyport db login NAME and psql \"service=NAME\"; or sallyport db connect NAME");
    answer_startup(stream, &refusal).await;
}

/// To a client whose TLS the cluster's suite does not allow.
pub(crate) async fn refuse_unfit<T: AsyncRead + AsyncWrite + Send>(stream: T) {
    let refusal = Refusal::new(
        SqlState::InvalidAuthorization,
        "this cluster requires post-quantum key exchange (X25519MLKEM768), which your client did not offer",
    )
    .hint("sallyport db connect NAME, or sallyport proxy db NAME --tunnel, bring it");
    answer_startup(stream, &refusal).await;
}

/// Tells a database client that began with TLS and said in it by no ALPN what it speaks: PostgreSQL requires that, since a
/// client could be led to another service otherwise (§53.2.10), and says so in these words. Gives back what is no such client.
pub(crate) async fn no_database_client<T>(
    mut stream: TlsStream<T>,
    patience: Duration,
) -> Option<Rewind<TlsStream<T>>>
where
    T: AsyncRead + AsyncWrite + Unpin + Send,
{
    let mut ahead = BytesMut::new();
    if stream.get_ref().1.alpn_protocol().is_some() {
        return Some(Rewind::new(Bytes::new(), stream));
    }
    let reading = async {
        while detect(&ahead) == Verdict::NeedMore {
            if stream.read_buf(&mut ahead).await? == 0 {
                break;
            }
        }
        std::io::Result::Ok(())
    };
    // Who leaves or says nothing is no database client, and HTTP has a patience of its own.
    let _ = tokio::time::timeout(patience, reading).await;
    let ahead = ahead.freeze();
    if detect(&ahead) != Verdict::Postgres {
        return Some(Rewind::new(ahead, stream));
    }
    let refusal = Refusal::new(
        SqlState::ProtocolViolation,
        "received direct SSL connection request without ALPN protocol negotiation extension",
    )
    .hint("sslnegotiation=direct takes a libpq of version 17 or later; leave it away, or use sslnegotiation=postgres");
    answer_startup(Rewind::new(ahead, stream), &refusal).await;
    None
}

/// A client reads an answer only after it has asked.
async fn answer_startup<T: AsyncRead + AsyncWrite + Send>(stream: T, refusal: &Refusal) {
    let mut client = Native::new(stream);
    let mut ahead = BytesMut::new();
    let asked = tokio::time::timeout(LAST_WORDS, first_packet(&mut client, &mut ahead)).await;
    if let Ok(Ok(Some(First::Startup(_)))) = asked {
        say(client, refusal).await;
    }
}
