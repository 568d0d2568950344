//! Drives [`crate::pipelined`] over a stream: the host is judged as russh's is, and one session has the facade that every
//! session has.

mod drive;
mod halves;
mod stream;

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use sallyport_ca::CaError;
use sallyport_ca::keys::ssh_signature;
use sallyport_sal::Signer;
use ssh_key::Certificate;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tracing::{Instrument, Span, debug};

use super::credentials::Credentials;
use super::error::ClientError;
use super::events::{Said, believe, plain};
use super::phases::Exchange;
use super::request::SessionRequest;
use super::requests::Requests;
use super::settings::{Settings, Whom};
use crate::capabilities::IDENTIFICATION;
use crate::pipelined::{Breach, Event, HostKey, Limits, Machine, Opening};
use crate::{BoxedStream, Stream};
use drive::{Driver, Ends, Start};
pub(super) use halves::{BLOCK_BYTES, GOODBYE, Halves, Input, Outgoing};
use halves::{Goodbye, PIECES_AHEAD, Proof, QUEUED_PIECES, Taken};
pub(super) use stream::{NoStream, SubsystemStream};

/// The line of a pipelined connection.
pub(super) struct Line {
    start: Mutex<Option<oneshot::Sender<Start>>>,
    goodbyes: mpsc::Sender<Goodbye>,
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
    let (goodbyes, parting) = mpsc::channel(1);
    let driver = Driver::new(machine, proof, settings, Arc::clone(said));
    tokio::spawn(driver.run(stream, starting, parting).in_current_span());
    Ok(Line { start: Mutex::new(Some(start)), goodbyes })
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

impl Line {
    /// Sends keys, login and session in one flight, and waits until the channel is open. `None` when there was a session
    /// before, or the connection is gone.
    pub(super) async fn start(&self, request: SessionRequest) -> Option<Result<Halves, ClientError>> {
        let start = self.start.lock().take()?;
        let (typed, typing) = mpsc::channel(QUEUED_PIECES);
        let requests = Arc::new(Requests::default());
        let (showing, output) = mpsc::channel(PIECES_AHEAD);
        let taken = Arc::new(Taken::default());
        let (outcome, answer) = oneshot::channel();
        let ends = Ends { typed: typing, requests: requests.clone(), output: showing, taken: taken.clone() };
        start.send(Start { request, ends, outcome, span: Span::current() }).ok()?;
        let answer = answer.await.ok()?;
        let holds = || self.goodbyes.clone();
        let input = Input { typed, requests, _holds: holds() };
        Some(answer.map(|()| Halves { input, output: Outgoing { output, taken, _holds: holds() } }))
    }

    /// Whether a session was started.
    pub(super) fn is_used(&self) -> bool {
        self.start.lock().is_none()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.goodbyes.is_closed()
    }

    pub(super) async fn disconnect(&self) {
        let (said, done) = oneshot::channel();
        let part = async {
            if self.goodbyes.send(said).await.is_ok() {
                let _ = done.await;
            }
        };
        let _ = timeout(GOODBYE, part).await;
    }
}
