//! The task of one connection.

#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{self, OwnedPermit};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{Span, debug, info_span};

use super::halves::{BLOCK_BYTES, GOODBYE, Goodbye, Proof, Taken, Typed, expired};
use crate::Stream;
use crate::client::error::ClientError;
use crate::client::events::Said;
use crate::client::phases::PHASE;
use crate::client::request::{Exit, Output, SessionRequest};
use crate::client::requests::{Request, Requests};
use crate::client::settings::{KEEPALIVES_UNANSWERED, Settings};
use crate::pipelined::message::Told;
use crate::pipelined::{Asked, Breach, Event, Machine};

/// Bytes that wait to be written before no more input, sizes and signals are taken.
const INPUT_AHEAD_BYTES: usize = 256 * 1024;
/// Bytes that wait to be written before nothing more is read: who asks has to hear the answers.
const ANSWERS_AHEAD_BYTES: usize = 1 << 20;

/// A session that is wanted.
pub(super) struct Start {
    pub(super) request: SessionRequest,
    pub(super) ends: Ends,
    pub(super) outcome: oneshot::Sender<Result<(), ClientError>>,
    /// Whose phases the login and the channel are.
    pub(super) span: Span,
}

/// The connection's ends of what the session's two halves have.
pub(super) struct Ends {
    pub(super) typed: mpsc::Receiver<Typed>,
    pub(super) requests: Arc<Requests>,
    pub(super) output: mpsc::Sender<Output>,
    pub(super) taken: Arc<Taken>,
}

/// A session under way.
struct Running {
    output: Option<mpsc::Sender<Output>>,
    taken: Arc<Taken>,
    outcome: Option<oneshot::Sender<Result<(), ClientError>>>,
    exit: Option<Exit>,
    span: Span,
    /// What is waited for until the channel is open.
    phase: Span,
}

/// Why the connection ended.
enum End {
    Broken(Breach),
    Failed(io::Error),
    /// The host hung up.
    Closed,
    /// The host does not answer.
    Silent,
}

pub(super) struct Driver {
    machine: Machine,
    proof: Proof,
    host: String,
    keepalive: Option<Duration>,
    said: Arc<Said>,
    running: Option<Running>,
    logged_in: bool,
    /// The host has said why it ends the connection.
    dismissed: bool,
}

impl Driver {
    pub(super) fn new(machine: Machine, proof: Proof, settings: &Settings, said: Arc<Said>) -> Self {
        let (host, keepalive) = (settings.host.clone(), settings.keepalive);
        let (running, logged_in, dismissed) = (None, false, false);
        Self { machine, proof, host, keepalive, said, running, logged_in, dismissed }
    }

    pub(super) async fn run<S: Stream>(
        mut self,
        stream: S,
        starting: oneshot::Receiver<Start>,
        mut parting: mpsc::Receiver<Goodbye>,
    ) {
        let (mut reader, mut writer) = split(stream);
        let mut farewell = None;
        let end = self.turn(&mut reader, &mut writer, starting, &mut parting, &mut farewell).await;
        // What is still to be said: the end, or why.
        let _ = timeout(GOODBYE, push(&mut writer, self.machine.output())).await;
        let _ = timeout(GOODBYE, writer.shutdown()).await;
        let reason = match end {
            Ok(()) | Err(End::Closed) => String::new(),
            Err(End::Broken(breach)) => format!("it {breach}"),
            Err(End::Failed(error)) => error.to_string(),
            Err(End::Silent) => "it stopped answering".to_owned(),
        };
        debug!(reason, "the connection has ended");
        if !reason.is_empty() {
            self.said.set_end(reason);
        }
        self.settle();
        drop(parting);
        if let Some(farewell) = farewell {
            let _ = farewell.send(());
        }
    }

    /// Takes turns at what there is to do until the connection ends.
    async fn turn<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &mut self,
        reader: &mut R,
        writer: &mut W,
        starting: oneshot::Receiver<Start>,
        parting: &mut mpsc::Receiver<Goodbye>,
        farewell: &mut Option<Goodbye>,
    ) -> Result<(), End> {
        let mut starting = Some(starting);
        let mut typed: Option<mpsc::Receiver<Typed>> = None;
        let mut requests: Option<Arc<Requests>> = None;
        let mut failed: Option<Breach> = None;
        let mut unsent: Option<io::Error> = None;
        let mut buffer = BytesMut::with_capacity(BLOCK_BYTES);
        let mut unflushed = false;
        let mut silent = 0;
        let mut patience = self.keepalive.map(|interval| Instant::now() + interval);
        loop {
            let room = self.pass_on().map_err(End::Broken)?;
            // What came before the mistake, or the end, counts: the reader of the output has it first.
            if self.machine.is_told() {
                if let Some(breach) = failed {
                    return Err(End::Broken(breach));
                }
                if self.machine.is_over() {
                    return Ok(());
                }
            }
            if unsent.is_some() {
                self.machine.output().clear();
            }
            let stands = failed.is_none() && !self.machine.is_over();
            let speaks = stands && unsent.is_none();
            let waits = self.machine.output().len();
            let reads = stands && room && waits < ANSWERS_AHEAD_BYTES;
            unflushed |= waits > 0;
            // What comes for a session that has ended, or a host that takes nothing more, goes nowhere.
            let discards = self.machine.is_closing() || unsent.is_some();
            let takes_input = discards || (self.machine.takes_input() && waits < INPUT_AHEAD_BYTES);
            tokio::select! {
                pushed = push(writer, self.machine.output()), if unflushed => {
                    // What the host had sent before still comes, the exit status too.
                    unsent = pushed.err();
                    unflushed = false;
                }
                read = reader.read_buf(&mut buffer), if reads => {
                    if read.map_err(End::Failed)? == 0 {
                        return Err(unsent.map_or(End::Closed, End::Failed));
                    }
                    silent = 0;
                    patience = self.keepalive.map(|interval| Instant::now() + interval);
                    failed = self.machine.receive(&buffer).err();
                    buffer.clear();
                }
                goodbye = parting.recv() => {
                    if speaks {
                        // What was asked for before goes first.
                        self.ask(&requests).map_err(End::Broken)?;
                    }
                    self.machine.disconnect();
                    *farewell = goodbye;
                    return Ok(());
                }
                () = asked(&requests), if speaks && waits < INPUT_AHEAD_BYTES => {
                    self.ask(&requests).map_err(End::Broken)?;
                    if requests.as_ref().is_some_and(|requests| requests.closes()) {
                        self.machine.close().map_err(End::Broken)?;
                    }
                }
                () = news(&self.running) => {
                    let taken = self.running.as_ref().map_or(0, |running| running.taken.bytes());
                    if stands {
                        self.machine.took(taken).map_err(End::Broken)?;
                    }
                }
                next = next(&mut typed), if takes_input => {
                    // A line that is typed after the terminal has got another size is read at that size.
                    match next {
                        Some(_) if discards => {}
                        Some(Typed::Data(bytes)) => {
                            self.ask(&requests).map_err(End::Broken)?;
                            self.machine.input(bytes).map_err(End::Broken)?;
                        }
                        Some(Typed::Eof) => self.machine.end_input().map_err(End::Broken)?,
                        None => typed = None,
                    }
                }
                start = wanted(&mut starting) => {
                    starting = None;
                    if let Some(Start { request, ends, outcome, span }) = start {
                        let begun = self.machine.log_in(&self.proof.login(), &self.proof.signature, &request);
                        (typed, requests) = (Some(ends.typed), Some(ends.requests));
                        let (output, taken, outcome) = (Some(ends.output), ends.taken, Some(outcome));
                        let phase = info_span!(target: PHASE, parent: &span, "ssh.authentication");
                        self.running = Some(Running { output, taken, outcome, exit: None, span, phase });
                        begun.map_err(End::Broken)?;
                    }
                }
                () = sleep(GOODBYE), if unsent.is_some() && reads => {
                    return Err(unsent.map_or(End::Closed, End::Failed));
                }
                () = until(patience), if speaks => {
                    if silent >= KEEPALIVES_UNANSWERED {
                        return Err(End::Silent);
                    }
                    // A server that is not read is not silent.
                    silent += usize::from(reads);
                    patience = self.keepalive.map(|interval| Instant::now() + interval);
                    self.machine.ask_for_life().map_err(End::Broken)?;
                }
            }
        }
    }

    /// Sends the sizes and signals that wait.
    fn ask(&mut self, requests: &Option<Arc<Requests>>) -> Result<(), Breach> {
        while let Some(request) = requests.as_ref().and_then(|requests| requests.next()) {
            match request {
                Request::Resize(size) => self.machine.resize(size)?,
                Request::Signal(name) => self.machine.signal(&name)?,
            }
        }
        Ok(())
    }

    /// Passes on what has happened, while the reader of the output has room. Whether it has some left.
    fn pass_on(&mut self) -> Result<bool, Breach> {
        loop {
            let output = self.running.as_ref().and_then(|running| running.output.clone());
            let place = match output.map(mpsc::Sender::try_reserve_owned) {
                Some(Ok(place)) => Some(place),
                Some(Err(TrySendError::Full(_))) => return Ok(false),
                Some(Err(TrySendError::Closed(_))) | None => None,
            };
            let Some(event) = self.machine.event() else { return Ok(true) };
            self.happened(event, place)?;
        }
    }

    /// `place` is the output's place in its reader's queue; none where nothing reads.
    fn happened(&mut self, event: Event, place: Option<OwnedPermit<Output>>) -> Result<(), Breach> {
        let show = |output| place.map(|place| place.send(output)).is_some();
        match event {
            Event::Banner(words) => self.said.add_banner(&words),
            Event::LoggedIn => {
                debug!("authenticated");
                self.logged_in = true;
                if let Some(running) = &mut self.running {
                    running.phase = info_span!(target: PHASE, parent: &running.span, "ssh.channel");
                }
            }
            Event::LoginRefused { methods, partial } => {
                let more =
                    partial.then(|| format!("it asks for {methods} as well, which this client has not"));
                self.refused_login(more);
            }
            Event::Opened => self.conclude(Ok(())),
            Event::NotOpened(reason) => {
                self.conclude(Err(ClientError::Refused { what: "a session".to_owned(), reason }));
            }
            Event::Answered(Asked::Terminal, false) => {
                show(Output::TerminalRefused);
            }
            Event::Answered(Asked::Program, true) => {
                show(Output::Started);
            }
            // What the host has to say about it may follow, up to the end of the channel, which OpenSSH leaves open.
            Event::Answered(Asked::Program, false) => {
                self.exit(Exit::Refused { explained: false });
                self.machine.give_up()?;
            }
            Event::Data { errors, bytes } => {
                let exit = self.running.as_mut().and_then(|running| running.exit.as_mut());
                if let Some(exit) = exit.filter(|_| errors) {
                    exit.explained_by(&bytes);
                }
                let length = bytes.len();
                let output = if errors { Output::Stderr(bytes) } else { Output::Stdout(bytes) };
                if !show(output) {
                    // Output that nothing reads must not stop the program.
                    self.machine.took(length)?;
                }
            }
            Event::Told(Told::Status(status)) => self.exit(Exit::Status(status)),
            Event::Told(Told::Signal { name, core_dumped, words }) => {
                self.exit(Exit::Signal { name, core_dumped, message: words });
            }
            Event::Closed => {
                if let Some(running) = &mut self.running
                    && running.output.take().is_some()
                {
                    show(Output::Exit(running.exit.take().unwrap_or(Exit::Unknown)));
                }
            }
            Event::Disconnected(words) => {
                self.said.set_end(words);
                self.dismissed = true;
            }
            _ => {}
        }
        Ok(())
    }

    fn exit(&mut self, exit: Exit) {
        if let Some(running) = &mut self.running
            && !matches!(running.exit, Some(Exit::Refused { .. }))
        {
            running.exit = Some(exit);
        }
    }

    fn conclude(&mut self, outcome: Result<(), ClientError>) {
        if let Some(running) = &mut self.running
            && let Some(waiting) = running.outcome.take()
        {
            (running.phase, running.span) = (Span::none(), Span::none());
            let _ = waiting.send(outcome);
        }
    }

    fn refused_login(&mut self, more: Option<String>) {
        let said = [self.said.end(), self.said.banner()].into_iter().find(|text| !text.is_empty());
        let reason = said.or(more).or_else(|| expired(self.proof.until)).unwrap_or_default();
        let (host, login) = (self.host.clone(), self.proof.login.clone());
        self.conclude(Err(ClientError::Authentication { host, login, reason }));
    }

    /// What still waits hears that nothing comes.
    fn settle(&mut self) {
        if self.dismissed && !self.logged_in {
            return self.refused_login(None);
        }
        let (host, reason) = (self.host.clone(), self.said.end());
        self.conclude(Err(ClientError::Lost { host, reason }));
        self.running = None;
    }
}

/// Writes all there is, and sees that it goes. Safe to be dropped in between: what was written is gone from `out`.
async fn push<W: AsyncWrite + Unpin>(writer: &mut W, out: &mut BytesMut) -> io::Result<()> {
    while !out.is_empty() {
        if writer.write_buf(out).await? == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
    }
    writer.flush().await
}

async fn next<T>(queue: &mut Option<mpsc::Receiver<T>>) -> Option<T> {
    match queue {
        Some(queue) => queue.recv().await,
        None => std::future::pending().await,
    }
}

async fn asked(requests: &Option<Arc<Requests>>) {
    match requests {
        Some(requests) => requests.news().await,
        None => std::future::pending().await,
    }
}

async fn news(running: &Option<Running>) {
    match running {
        Some(running) => running.taken.news().await,
        None => std::future::pending().await,
    }
}

async fn wanted(starting: &mut Option<oneshot::Receiver<Start>>) -> Option<Start> {
    match starting {
        Some(starting) => starting.await.ok(),
        None => std::future::pending().await,
    }
}

async fn until(patience: Option<Instant>) {
    match patience {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
