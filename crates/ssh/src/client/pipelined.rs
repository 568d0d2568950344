//! Drives [`crate::pipelined`] over a stream: the host is judged as russh's is, and one session has the facade that every
//! session has.

mod drive;
mod stream;

use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use sallyport_ca::CaError;
use sallyport_ca::keys::ssh_signature;
use sallyport_sal::Signer;
use ssh_key::Certificate;
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tracing::{Instrument, Span, debug};

use super::events::{Said, believe, plain};
use super::phases::Exchange;
use super::{ClientError, Credentials, Output, SessionRequest, Settings, Whom, WindowSize};
use crate::capabilities::IDENTIFICATION;
use crate::pipelined::{Breach, Event, HostKey, Limits, Login, Machine, Opening};
use crate::session::Gone;
use crate::{BoxedStream, Stream};
use drive::{Driver, Start};
pub(super) use stream::{NoStream, SubsystemStream};

/// How long the goodbye may take to be written.
pub(super) const GOODBYE: Duration = Duration::from_secs(1);
/// Bytes read from the stream at once.
pub(super) const BLOCK_BYTES: usize = 64 * 1024;
/// Pieces of standard input that wait for the server.
const QUEUED_PIECES: usize = 4;

/// What a session's holder tells the connection, apart from standard input.
pub(super) enum Told {
    /// So many bytes of output were taken.
    Took(usize),
    Resize(WindowSize),
    Signal(String),
    Close,
    /// The end; answered when it is written.
    Goodbye(oneshot::Sender<()>),
}

/// Standard input.
pub(super) enum Typed {
    Data {
        bytes: Bytes,
        /// Sizes and signals that were told before, and go first.
        requests: u64,
    },
    Eof,
}

/// The login, as the server is told of it.
pub(super) struct Proof {
    pub(super) login: String,
    pub(super) algorithm: String,
    pub(super) key: Vec<u8>,
    pub(super) signature: Vec<u8>,
    /// The certificate's end.
    pub(super) until: u64,
}

impl Proof {
    pub(super) fn login(&self) -> Login<'_> {
        Login { name: &self.login, algorithm: &self.algorithm, key: &self.key }
    }
}

/// The line of a pipelined connection.
pub(super) struct Line {
    start: Mutex<Option<oneshot::Sender<Start>>>,
    told: mpsc::UnboundedSender<Told>,
}

/// Exchanges keys, checks the host and signs. The login goes with the session ([`Line::start`]).
pub(super) async fn begin(
    stream: BoxedStream,
    credentials: &Credentials,
    settings: &Settings,
    limits: Limits,
    said: &Arc<Said>,
) -> Result<Line, ClientError> {
    let host = settings.host.as_str();
    let (key, certificate) = credentials.held().ok_or_else(|| ClientError::NotPipelined {
        host: host.to_owned(),
        reason: "the key is an agent's".to_owned(),
    })?;
    let exchange = Exchange::begin();
    let mut stream = exchange.watch(stream);
    let demand = settings.trust.suite().key_exchange();
    let opening = Opening { identification: IDENTIFICATION, demand, limits };
    let mut machine = Machine::new(opening).map_err(|breach| failed(host, &breach))?;
    let shown = host_key(&mut stream, &mut machine, host).await?;
    match &shown.certificate {
        Some(certificate) => believe(&settings.trust, host, Whom::Target, certificate)?,
        None => return Err(plain(host, shown.fingerprint())),
    }
    machine.accept_host().map_err(|breach| failed(host, &breach))?;
    debug!("keys exchanged");
    exchange.end();
    let mut proof = unsigned(&*key, &certificate, &settings.login)?;
    let message = machine.to_sign(&proof.login()).map_err(|breach| failed(host, &breach))?;
    proof.signature = signed(key, message).await?;
    let (start, starting) = oneshot::channel();
    let (told, hears) = mpsc::unbounded_channel();
    let driver = Driver::new(machine, proof, settings, Arc::clone(said));
    tokio::spawn(driver.run(stream, starting, hears).in_current_span());
    Ok(Line { start: Mutex::new(Some(start)), told })
}

/// Goes on until the host has shown a key and proven that it has it.
async fn host_key<S: Stream>(
    stream: &mut S,
    machine: &mut Machine,
    host: &str,
) -> Result<Box<HostKey>, ClientError> {
    let lost = |reason: String| ClientError::Lost { host: host.to_owned(), reason };
    let mut buffer = vec![0; BLOCK_BYTES];
    loop {
        send(stream, machine).await.map_err(|error| lost(error.to_string()))?;
        match machine.event() {
            Some(Event::Host(shown)) => return Ok(shown),
            Some(Event::Disconnected(words)) => return Err(lost(words)),
            _ => {}
        }
        let count = stream.read(&mut buffer).await.map_err(|error| lost(error.to_string()))?;
        if count == 0 {
            return Err(lost(String::new()));
        }
        if let Err(breach) = machine.receive(buffer.get(..count).unwrap_or_default()) {
            // It is told why, where it still listens.
            let _ = timeout(GOODBYE, send(stream, machine)).await;
            return Err(failed(host, &breach));
        }
    }
}

async fn send<S: Stream>(stream: &mut S, machine: &mut Machine) -> io::Result<()> {
    let out = machine.output();
    if !out.is_empty() {
        stream.write_all_buf(out).await?;
        stream.flush().await?;
    }
    Ok(())
}

fn failed(host: &str, breach: &Breach) -> ClientError {
    let (host, reason) = (host.to_owned(), breach.to_string());
    if breach.is_for_another_client() {
        return ClientError::NotPipelined { host, reason };
    }
    ClientError::Protocol { host, reason }
}

/// The name of the scheme goes into what is signed, so that it must be the one we sign by.
fn unsigned(key: &dyn Signer, certificate: &Certificate, login: &str) -> Result<Proof, ClientError> {
    let scheme = key.algorithm().ssh_name();
    let scheme = scheme.ok_or_else(|| ClientError::BadKey { reason: "SSH has no such keys".to_owned() })?;
    let bytes = certificate.to_bytes();
    Ok(Proof {
        login: login.to_owned(),
        algorithm: format!("{scheme}-cert-v01@openssh.com"),
        key: bytes.map_err(|error| ClientError::BadCertificate { reason: error.to_string() })?,
        signature: Vec::new(),
        until: certificate.valid_before(),
    })
}

async fn signed(key: Arc<dyn Signer>, message: Vec<u8>) -> Result<Vec<u8>, ClientError> {
    // Tokens take their time.
    let signing = tokio::task::spawn_blocking(move || {
        ssh_signature(&*key, &message).map_err(|error| match error {
            CaError::Sign(error) => ClientError::Signing(error),
            other => ClientError::BadKey { reason: other.to_string() },
        })
    });
    signing.await.map_err(|_| ClientError::Ssh(russh::Error::SendError))?
}

/// What there is to say of a refusal that the host does not explain.
pub(super) fn expired(until: u64) -> Option<String> {
    let now = u64::try_from(OffsetDateTime::now_utc().unix_timestamp()).unwrap_or_default();
    (until <= now).then(|| "your certificate has expired".to_owned())
}

/// Both halves of a session.
pub(super) struct Halves {
    pub(super) input: Input,
    pub(super) output: Outgoing,
}

/// What goes into a session.
pub(super) struct Input {
    typed: mpsc::Sender<Typed>,
    told: mpsc::UnboundedSender<Told>,
    /// Sizes and signals that were told.
    requests: AtomicU64,
}

impl Drop for Outgoing {
    /// The connection looks again whether anybody reads.
    fn drop(&mut self) {
        let _ = self.told.send(Told::Took(0));
    }
}

/// What comes out of a session.
pub(super) struct Outgoing {
    output: mpsc::UnboundedReceiver<Output>,
    told: mpsc::UnboundedSender<Told>,
}

impl Line {
    /// Sends keys, login and session in one flight, and waits until the channel is open. `None` when there was a session
    /// before, or the connection is gone.
    pub(super) async fn start(&self, request: SessionRequest) -> Option<Result<Halves, ClientError>> {
        let start = self.start.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let (typed, typing) = mpsc::channel(QUEUED_PIECES);
        // What comes is bounded by the window.
        let (showing, output) = mpsc::unbounded_channel();
        let (outcome, answer) = oneshot::channel();
        let span = Span::current();
        start.send(Start { request, typed: typing, output: showing, outcome, span }).ok()?;
        let answer = answer.await.ok()?;
        let told = self.told.clone();
        let input = Input { typed, told: told.clone(), requests: AtomicU64::new(0) };
        Some(answer.map(|()| Halves { input, output: Outgoing { output, told } }))
    }

    /// Whether a session was started.
    pub(super) fn is_used(&self) -> bool {
        self.start.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.told.is_closed()
    }

    pub(super) async fn disconnect(&self) {
        let (said, done) = oneshot::channel();
        if self.told.send(Told::Goodbye(said)).is_ok() {
            let _ = timeout(GOODBYE, done).await;
        }
    }
}

impl Input {
    pub(super) async fn data(&self, bytes: Bytes) -> Result<(), Gone> {
        let requests = self.requests.load(Ordering::Acquire);
        self.typed.send(Typed::Data { bytes, requests }).await.map_err(|_| Gone)
    }

    pub(super) async fn eof(&self) -> Result<(), Gone> {
        self.typed.send(Typed::Eof).await.map_err(|_| Gone)
    }

    pub(super) fn tell(&self, told: Told) -> Result<(), Gone> {
        let request = matches!(told, Told::Resize(_) | Told::Signal(_));
        self.told.send(told).map_err(|_| Gone)?;
        self.requests.fetch_add(request.into(), Ordering::Release);
        Ok(())
    }

    fn into_typed(self) -> mpsc::Sender<Typed> {
        self.typed
    }
}

impl Outgoing {
    /// `None` when the connection was lost.
    pub(super) async fn next(&mut self) -> Option<Output> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Output>> {
        let output = ready!(self.output.poll_recv(cx));
        if let Some(Output::Stdout(bytes) | Output::Stderr(bytes)) = &output {
            let _ = self.told.send(Told::Took(bytes.len()));
        }
        Poll::Ready(output)
    }
}
