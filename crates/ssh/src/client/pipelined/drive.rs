//! The task of one connection.

#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{Span, debug, info_span};

use super::halves::{BLOCK_BYTES, GOODBYE, Proof, Told, Typed, expired};
use crate::Stream;
use crate::client::error::ClientError;
use crate::client::events::Said;
use crate::client::phases::PHASE;
use crate::client::request::{Exit, Output, SessionRequest};
use crate::client::settings::{KEEPALIVES_UNANSWERED, Settings};
use crate::pipelined::message::Told as Ending;
use crate::pipelined::{Asked, Breach, Event, Machine};

/// Bytes that wait to be written before no more input is taken.
const INPUT_AHEAD_BYTES: usize = 256 * 1024;
/// Bytes that wait to be written before nothing more is read: who asks has to hear the answers.
const ANSWERS_AHEAD_BYTES: usize = 1 << 20;

/// Pieces of output that nobody has taken before nothing more is read. The window bounds their bytes, and not that of what
/// holds each of them.
const PIECES_AHEAD: usize = 1024;

/// A session that is wanted.
pub(super) struct Start {
    pub(super) request: SessionRequest,
    pub(super) typed: mpsc::Receiver<Typed>,
    pub(super) output: mpsc::UnboundedSender<Output>,
    pub(super) outcome: oneshot::Sender<Result<(), ClientError>>,
    /// Whose phases the login and the channel are.
    pub(super) span: Span,
}

/// A session under way.
struct Running {
    output: Option<mpsc::UnboundedSender<Output>>,
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
    /// Pieces of output that nobody has taken.
    pieces: usize,
    /// Sizes and signals that were sent.
    requests: u64,
}

impl Driver {
    pub(super) fn new(machine: Machine, proof: Proof, settings: &Settings, said: Arc<Said>) -> Self {
        let (host, keepalive) = (settings.host.clone(), settings.keepalive);
        let (running, logged_in, dismissed, pieces, requests) = (None, false, false, 0, 0);
        Self { machine, proof, host, keepalive, said, running, logged_in, dismissed, pieces, requests }
    }

    pub(super) async fn run<S: Stream>(
        mut self,
        stream: S,
        starting: oneshot::Receiver<Start>,
        mut hears: mpsc::UnboundedReceiver<Told>,
    ) {
        let (mut reader, mut writer) = split(stream);
        let mut farewell = None;
        let end = self.turn(&mut reader, &mut writer, starting, &mut hears, &mut farewell).await;
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
        drop(hears);
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
        hears: &mut mpsc::UnboundedReceiver<Told>,
        farewell: &mut Option<oneshot::Sender<()>>,
    ) -> Result<(), End> {
        let mut starting = Some(starting);
        let mut typed: Option<mpsc::Receiver<Typed>> = None;
        let mut buffer = BytesMut::with_capacity(BLOCK_BYTES);
        let mut unflushed = false;
        let mut silent = 0;
        let mut patience = self.keepalive.map(|interval| Instant::now() + interval);
        loop {
            while let Some(event) = self.machine.event() {
                self.happened(event).map_err(End::Broken)?;
            }
            if self.machine.is_over() {
                return Ok(());
            }
            let waits = self.machine.output().len();
            let reads = waits < ANSWERS_AHEAD_BYTES && !self.is_behind();
            unflushed |= waits > 0;
            // What comes for a session that has ended goes nowhere.
            let discards = self.machine.is_closing();
            let takes_input = discards || (self.machine.takes_input() && waits < INPUT_AHEAD_BYTES);
            tokio::select! {
                pushed = push(writer, self.machine.output()), if unflushed => {
                    pushed.map_err(End::Failed)?;
                    unflushed = false;
                }
                read = reader.read_buf(&mut buffer), if reads => {
                    if read.map_err(End::Failed)? == 0 {
                        return Err(End::Closed);
                    }
                    silent = 0;
                    patience = self.keepalive.map(|interval| Instant::now() + interval);
                    let received = self.machine.receive(&buffer);
                    buffer.clear();
                    // What came before the mistake counts.
                    while let Some(event) = self.machine.event() {
                        self.happened(event).map_err(End::Broken)?;
                    }
                    received.map_err(End::Broken)?;
                }
                told = hears.recv() => {
                    if self.told(told, farewell).map_err(End::Broken)? {
                        return Ok(());
                    }
                }
                next = next(&mut typed), if takes_input => {
                    // A line that is typed after the terminal has got another size is read at that size.
                    if let Some(Typed::Data { requests, .. }) = next {
                        while self.requests < requests && let Ok(told) = hears.try_recv() {
                            if self.told(Some(told), farewell).map_err(End::Broken)? {
                                return Ok(());
                            }
                        }
                    }
                    match next {
                        Some(_) if discards => {}
                        Some(Typed::Data { bytes, .. }) => self.machine.input(bytes).map_err(End::Broken)?,
                        Some(Typed::Eof) => self.machine.end_input().map_err(End::Broken)?,
                        None => typed = None,
                    }
                }
                start = wanted(&mut starting) => {
                    starting = None;
                    if let Some(Start { request, typed: input, output, outcome, span }) = start {
                        let begun = self.machine.log_in(&self.proof.login(), &self.proof.signature, &request);
                        typed = Some(input);
                        let (output, outcome) = (Some(output), Some(outcome));
                        let phase = info_span!(target: PHASE, parent: &span, "ssh.authentication");
                        self.running = Some(Running { output, outcome, exit: None, span, phase });
                        begun.map_err(End::Broken)?;
                    }
                }
                () = until(patience) => {
                    if silent >= KEEPALIVES_UNANSWERED {
                        return Err(End::Silent);
                    }
                    // Whoever is not listened to is not silent.
                    silent += usize::from(reads);
                    patience = self.keepalive.map(|interval| Instant::now() + interval);
                    self.machine.ask_for_life().map_err(End::Broken)?;
                }
            }
        }
    }

    /// Whether this is the end of the connection, from this side.
    fn told(
        &mut self,
        told: Option<Told>,
        farewell: &mut Option<oneshot::Sender<()>>,
    ) -> Result<bool, Breach> {
        match told {
            Some(Told::Took(bytes)) => {
                self.pieces = self.pieces.saturating_sub(1);
                self.machine.took(bytes)?;
            }
            Some(Told::Resize(size)) => {
                self.requests += 1;
                self.machine.resize(size)?;
            }
            Some(Told::Signal(name)) => {
                self.requests += 1;
                self.machine.signal(&name)?;
            }
            Some(Told::Close) => self.machine.close()?,
            Some(Told::Goodbye(done)) => {
                self.machine.disconnect();
                *farewell = Some(done);
                return Ok(true);
            }
            None => {
                self.machine.disconnect();
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn happened(&mut self, event: Event) -> Result<(), Breach> {
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
                self.show(Output::TerminalRefused);
            }
            Event::Answered(Asked::Program, true) => {
                self.show(Output::Started);
            }
            // What the host has to say about it may follow, up to the end of the channel, which OpenSSH leaves open.
            Event::Answered(Asked::Program, false) => {
                self.exit(Exit::Refused);
                self.machine.give_up()?;
            }
            Event::Data { errors, bytes } => {
                let length = bytes.len();
                let output = if errors { Output::Stderr(bytes) } else { Output::Stdout(bytes) };
                if self.show(output) {
                    self.pieces += 1;
                } else {
                    // What nobody reads must not stop the program.
                    self.machine.took(length)?;
                }
            }
            Event::Told(Ending::Status(status)) => self.exit(Exit::Status(status)),
            Event::Told(Ending::Signal { name, core_dumped, words }) => {
                self.exit(Exit::Signal { name, core_dumped, message: words });
            }
            Event::Closed => {
                if let Some(running) = &mut self.running
                    && let Some(output) = running.output.take()
                {
                    let _ = output.send(Output::Exit(running.exit.take().unwrap_or(Exit::Unknown)));
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

    /// Whoever reads the output has too much of it to take.
    fn is_behind(&self) -> bool {
        let reader = self.running.as_ref().and_then(|running| running.output.as_ref());
        self.pieces >= PIECES_AHEAD && reader.is_some_and(|reader| !reader.is_closed())
    }

    /// Gives output to whoever reads it; false when nobody does.
    fn show(&self, output: Output) -> bool {
        let reader = self.running.as_ref().and_then(|running| running.output.as_ref());
        reader.is_some_and(|reader| reader.send(output).is_ok())
    }

    fn exit(&mut self, exit: Exit) {
        if let Some(running) = &mut self.running
            && running.exit != Some(Exit::Refused)
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

    /// Whoever still waits hears that nothing comes.
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

async fn next(typed: &mut Option<mpsc::Receiver<Typed>>) -> Option<Typed> {
    match typed {
        Some(typed) => typed.recv().await,
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
