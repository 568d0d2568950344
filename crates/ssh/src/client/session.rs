//! One session: a shell, a command or a subsystem, its terminal, its input and what comes out of it.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use russh::client::Msg;
use russh::{Channel, ChannelMsg, ChannelReadHalf, ChannelWriteHalf, Pty};
use tracing::{Instrument, Span, info_span};

use super::connection::Connection;
use super::error::ClientError;
use super::native::queue::{Event, Queue};
use super::phases::PHASE;
use super::refusals::REFUSAL_TEXT_WAIT;
use super::request::{Exit, Output, REFUSAL_BYTES, SessionRequest};
use super::x11::Display;
use super::{native, pipelined};
use crate::native::frame::{Frame, Lacks};
use crate::native::mux;
use crate::request::Program;
use crate::session::{Gone, Size};
use crate::signal_names;

/// SSH_EXTENDED_DATA_STDERR (RFC 4254 §5.2).
const STDERR: u32 = 1;

/// What comes after a refusal. OpenSSH says nothing, and leaves the channel open: then it is over all the same.
async fn words(next: impl Future<Output = Option<ChannelMsg>>) -> Option<ChannelMsg> {
    tokio::time::timeout(REFUSAL_TEXT_WAIT, next).await.unwrap_or(Some(ChannelMsg::Close))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Terminal,
    Agent,
    Display,
    Program,
}

/// A running session.
#[derive(Debug)]
pub struct Session {
    input: SessionInput,
    output: SessionOutput,
}

impl Session {
    /// Both halves, for separate tasks. Reading must not wait for writing, or a far end that does the same hangs.
    #[must_use]
    pub fn split(self) -> (SessionInput, SessionOutput) {
        (self.input, self.output)
    }

    /// The writing half.
    #[must_use]
    pub fn input(&self) -> &SessionInput {
        &self.input
    }

    /// The next thing that comes out. `None` after the end.
    pub async fn next(&mut self) -> Option<Output> {
        self.output.next().await
    }
}

/// What goes into a session. Clones share it.
#[derive(Clone)]
pub struct SessionInput {
    channel: Writing,
    connection: Connection,
}

#[derive(Clone)]
enum Writing {
    Ssh(Arc<ChannelWriteHalf<Msg>>),
    Native(Arc<mux::Channel>),
    Pipelined(Arc<pipelined::Input>),
}

impl fmt::Debug for SessionInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionInput")
    }
}

impl SessionInput {
    /// Sends standard input; waits while the host takes none.
    ///
    /// # Errors
    /// [`ClientError::Lost`] when the connection is gone.
    pub async fn data(&self, data: impl Into<Bytes>) -> Result<(), ClientError> {
        let sent = match &self.channel {
            Writing::Ssh(channel) => channel.data_bytes(data).await.map_err(|_| Gone),
            Writing::Native(channel) => channel.data(false, data.into()).await,
            Writing::Pipelined(input) => input.data(data.into()).await,
        };
        sent.map_err(|_| self.connection.lost())
    }

    /// Ends standard input.
    ///
    /// # Errors
    /// [`ClientError::Lost`] when the connection is gone.
    pub async fn eof(&self) -> Result<(), ClientError> {
        let sent = match &self.channel {
            Writing::Ssh(channel) => channel.eof().await.map_err(|_| Gone),
            Writing::Native(channel) => channel.eof(),
            Writing::Pipelined(input) => input.eof().await,
        };
        sent.map_err(|_| self.connection.lost())
    }

    /// Tells the host the terminal's new size.
    ///
    /// # Errors
    /// [`ClientError::Lost`] when the connection is gone.
    pub async fn resize(&self, size: Size) -> Result<(), ClientError> {
        let sent = match &self.channel {
            Writing::Ssh(channel) => {
                let Size { columns, rows, width, height } = size;
                channel.window_change(columns, rows, width, height).await.map_err(|_| Gone)
            }
            Writing::Native(channel) => channel.urgent(Frame::Resize(channel.id(), size)).await,
            Writing::Pipelined(input) => input.resize(size),
        };
        sent.map_err(|_| self.connection.lost())
    }

    /// Sends a signal to the program, by its name without `SIG`.
    ///
    /// # Errors
    /// [`ClientError::Lost`] when the connection is gone.
    pub async fn signal(&self, name: &str) -> Result<(), ClientError> {
        let sent = match &self.channel {
            Writing::Ssh(channel) => channel.signal(signal_names::named(name)).await.map_err(|_| Gone),
            Writing::Native(channel) => channel.urgent(Frame::Signal(channel.id(), name.to_owned())).await,
            Writing::Pipelined(input) => input.signal(name),
        };
        sent.map_err(|_| self.connection.lost())
    }

    /// Ends the session from this side.
    ///
    /// # Errors
    /// [`ClientError::Lost`] when the connection is gone.
    pub async fn close(&self) -> Result<(), ClientError> {
        match &self.channel {
            Writing::Ssh(channel) => channel.close().await.map_err(|_| self.connection.lost()),
            Writing::Native(channel) => {
                channel.abort();
                Ok(())
            }
            Writing::Pipelined(input) => input.close().map_err(|_| self.connection.lost()),
        }
    }
}

/// What comes out of a session.
pub struct SessionOutput {
    channel: Reading,
    connection: Connection,
    asked: VecDeque<Asked>,
    exit: Option<Exit>,
    ended: bool,
    /// What is waited for: the answer to the program, then its first byte, then nothing.
    phase: Span,
}

enum Reading {
    Ssh(ChannelReadHalf),
    Native(NativeOutput),
    Pipelined(pipelined::Outgoing),
}

impl fmt::Debug for SessionOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionOutput").field("exit", &self.exit).finish_non_exhaustive()
    }
}

impl SessionOutput {
    /// The next thing that comes out. `None` after the end.
    pub async fn next(&mut self) -> Option<Output> {
        if self.ended {
            return None;
        }
        loop {
            let message = match &mut self.channel {
                Reading::Ssh(channel) if matches!(self.exit, Some(Exit::Refused { .. })) => {
                    words(channel.wait()).await
                }
                Reading::Ssh(channel) => channel.wait().await,
                Reading::Native(channel) => {
                    let output = channel.next(&self.connection).await;
                    self.ended = matches!(output, Output::Exit(_));
                    self.phase = match output {
                        Output::Started => info_span!(target: PHASE, "native.first_byte"),
                        _ => Span::none(),
                    };
                    return Some(output);
                }
                Reading::Pipelined(outgoing) => {
                    let lost = || Output::Exit(Exit::Lost { reason: self.connection.end() });
                    let output = outgoing.next().await.unwrap_or_else(lost);
                    self.ended = matches!(output, Output::Exit(_));
                    self.phase = match output {
                        Output::Started => info_span!(target: PHASE, "ssh.first_byte"),
                        _ => Span::none(),
                    };
                    return Some(output);
                }
            };
            let Some(message) = message else {
                self.ended = true;
                self.phase = Span::none();
                let lost = || Exit::Lost { reason: self.connection.end() };
                return Some(Output::Exit(self.exit.take().unwrap_or_else(lost)));
            };
            if !matches!(
                message,
                ChannelMsg::Success | ChannelMsg::Failure | ChannelMsg::WindowAdjusted { .. }
            ) {
                self.phase = Span::none();
            }
            match message {
                ChannelMsg::Data { data } => return Some(Output::Stdout(data)),
                ChannelMsg::ExtendedData { data, ext: STDERR } => {
                    if let Some(exit) = &mut self.exit {
                        exit.explained_by(&data);
                    }
                    return Some(Output::Stderr(data));
                }
                ChannelMsg::Success if self.asked.pop_front() == Some(Asked::Program) => {
                    self.phase = info_span!(target: PHASE, "ssh.first_byte");
                    return Some(Output::Started);
                }
                ChannelMsg::Failure => match self.asked.pop_front() {
                    Some(Asked::Terminal) => return Some(Output::TerminalRefused),
                    Some(Asked::Agent) => return Some(Output::AgentRefused),
                    Some(Asked::Display) => return Some(Output::DisplayRefused),
                    Some(Asked::Program) => {
                        // What the host has to say about it may follow, up to the end of the channel.
                        self.exit = Some(Exit::Refused { explained: false });
                    }
                    None => {}
                },
                ChannelMsg::ExitStatus { exit_status }
                    if !matches!(self.exit, Some(Exit::Refused { .. })) =>
                {
                    self.exit = Some(Exit::Status(exit_status));
                }
                ChannelMsg::ExitSignal { signal_name, core_dumped, error_message, .. } => {
                    self.exit = Some(Exit::Signal {
                        name: signal_names::name_of(&signal_name),
                        core_dumped,
                        message: error_message,
                    });
                }
                ChannelMsg::Eof if matches!(self.exit, Some(Exit::Refused { .. })) => {
                    self.ended = true;
                    return self.exit.take().map(Output::Exit);
                }
                ChannelMsg::Close => {
                    self.ended = true;
                    return Some(Output::Exit(self.exit.take().unwrap_or(Exit::Unknown)));
                }
                _ => {}
            }
        }
    }
}

/// Sends the requests of a session in one flight.
pub(super) async fn start(
    connection: Connection,
    channel: Channel<Msg>,
    request: SessionRequest,
) -> Result<Session, ClientError> {
    let mut asked = VecDeque::with_capacity(4);
    let send = async {
        if request.forward_agent {
            channel.agent_forward(true).await?;
            asked.push_back(Asked::Agent);
        }
        if let Some(offer) = request.display.as_deref().map(Display::offer) {
            channel.request_x11(true, offer.single, offer.protocol, offer.cookie, offer.screen).await?;
            asked.push_back(Asked::Display);
        }
        if let Some(terminal) = &request.terminal {
            let Size { columns, rows, width, height } = terminal.size;
            // What the library does not know has no name in RFC 4254 either.
            let known = |(code, value): &(u8, u32)| Some((Pty::from_u8(*code)?, *value));
            let modes: Vec<_> = terminal.modes.iter().filter_map(known).collect();
            channel.request_pty(true, &terminal.term, columns, rows, width, height, &modes).await?;
            asked.push_back(Asked::Terminal);
        }
        for (name, value) in &request.environment {
            channel.set_env(false, name, value).await?;
        }
        match request.program {
            Program::Shell => channel.request_shell(true).await?,
            Program::Exec(command) => channel.exec(true, command).await?,
            Program::Subsystem(name) => channel.request_subsystem(true, name).await?,
        }
        asked.push_back(Asked::Program);
        Ok::<(), russh::Error>(())
    };
    let phase = info_span!(target: PHASE, "ssh.program");
    send.await.map_err(|_| connection.lost())?;
    let (incoming, outgoing) = channel.split();
    Ok(Session {
        input: SessionInput { channel: Writing::Ssh(Arc::new(outgoing)), connection: connection.clone() },
        output: SessionOutput {
            channel: Reading::Ssh(incoming),
            connection,
            asked,
            exit: None,
            ended: false,
            phase,
        },
    })
}

/// Sends a session whole; nothing is waited for.
pub(super) fn start_native(
    connection: &Connection,
    line: &native::Line,
    request: SessionRequest,
) -> Result<Session, ClientError> {
    let phase = info_span!(target: PHASE, "native.program");
    let opened = line.session(request.with_display(|display| display.offer()));
    let (channel, queue) = opened.map_err(|error| connection.not_opened("a session", error))?;
    let channel = Arc::new(channel);
    let (asked, connection) = (VecDeque::new(), connection.clone());
    let output = NativeOutput { queue, told: VecDeque::new(), _channel: channel.clone() };
    Ok(Session {
        input: SessionInput { channel: Writing::Native(channel), connection: connection.clone() },
        output: SessionOutput {
            channel: Reading::Native(output),
            connection,
            asked,
            exit: None,
            ended: false,
            phase,
        },
    })
}

/// Sends a session with the login, and waits until the host has let it in.
pub(super) async fn start_pipelined(
    connection: &Connection,
    line: &pipelined::Line,
    request: SessionRequest,
) -> Result<Session, ClientError> {
    let pipelined::Halves { input, output } = pipelined_halves(connection, line, request).await?;
    let connection = connection.clone();
    Ok(Session {
        input: SessionInput { channel: Writing::Pipelined(Arc::new(input)), connection: connection.clone() },
        output: SessionOutput {
            channel: Reading::Pipelined(output),
            connection,
            asked: VecDeque::new(),
            exit: None,
            ended: false,
            phase: info_span!(target: PHASE, "ssh.program"),
        },
    })
}

/// The same for the stream of a subsystem.
pub(super) async fn pipelined_subsystem(
    connection: &Connection,
    line: &pipelined::Line,
    name: &str,
    what: &str,
) -> Result<pipelined::SubsystemStream, ClientError> {
    let request = SessionRequest::new(Program::Subsystem(name.to_owned()));
    let halves = pipelined_halves(connection, line, request).await?;
    let waiting = pipelined::SubsystemStream::begin(halves);
    waiting.instrument(info_span!(target: PHASE, "ssh.program")).await.map_err(|failed| match failed {
        pipelined::NoStream::Refused(reason) => ClientError::Refused { what: what.to_owned(), reason },
        pipelined::NoStream::Lost => connection.lost(),
    })
}

async fn pipelined_halves(
    connection: &Connection,
    line: &pipelined::Line,
    request: SessionRequest,
) -> Result<pipelined::Halves, ClientError> {
    let what = "a session".to_owned();
    if request.forward_agent || request.display.is_some() {
        let reason = "neither an agent nor a display is forwarded on this connection".to_owned();
        return Err(ClientError::Refused { what, reason });
    }
    if line.is_used() {
        let reason = "this connection is for one session".to_owned();
        return Err(ClientError::Refused { what, reason });
    }
    line.start(request).await.ok_or_else(|| connection.lost())?
}

/// What comes out of a native session.
struct NativeOutput {
    queue: Arc<Queue>,
    /// What is to be told next.
    told: VecDeque<Output>,
    /// The session is not ended while its output is read.
    _channel: Arc<mux::Channel>,
}

impl NativeOutput {
    async fn next(&mut self, connection: &Connection) -> Output {
        loop {
            if let Some(output) = self.told.pop_front() {
                return output;
            }
            match self.queue.next().await {
                Event::Started(Lacks { terminal, agent, display }) => {
                    let lacks = [
                        (agent, Output::AgentRefused),
                        (display, Output::DisplayRefused),
                        (terminal, Output::TerminalRefused),
                    ];
                    self.told.extend(lacks.into_iter().filter_map(|(lacks, output)| lacks.then_some(output)));
                    self.told.push_back(Output::Started);
                }
                Event::Data { errors: false, bytes } => return Output::Stdout(bytes),
                Event::Data { errors: true, bytes } => return Output::Stderr(bytes),
                Event::Opened | Event::Eof => {}
                Event::Closed(exit) => return Output::Exit(exit.unwrap_or(Exit::Unknown)),
                Event::Refused(reason) => {
                    let mut exit = Exit::Refused { explained: false };
                    exit.explained_by(reason.as_bytes());
                    self.told.push_back(Output::Exit(exit));
                    return Output::Stderr(format!("{reason}\r\n").into());
                }
                Event::Gone(exit) => {
                    let lost = || Exit::Lost { reason: connection.end() };
                    return Output::Exit(exit.unwrap_or_else(lost));
                }
            }
        }
    }
}

/// Waits for the answer to a subsystem request, and collects what the host says when it refuses.
pub(super) async fn wait_for_subsystem(
    connection: &Connection,
    channel: &mut Channel<Msg>,
    what: &str,
) -> Result<(), ClientError> {
    let mut reason = Vec::new();
    let mut refused = false;
    loop {
        let message = if refused { words(channel.wait()).await } else { channel.wait().await };
        match message {
            Some(ChannelMsg::Success) if !refused => return Ok(()),
            // The words may come before or after the answer.
            Some(ChannelMsg::Failure) => {
                refused = true;
                if !reason.is_empty() {
                    break;
                }
            }
            Some(ChannelMsg::ExtendedData { data, .. }) if reason.len() < REFUSAL_BYTES => {
                reason.extend_from_slice(&data);
            }
            Some(ChannelMsg::Close) => break,
            Some(_) => {}
            None if refused => break,
            None => return Err(connection.lost()),
        }
    }
    let reason = String::from_utf8_lossy(&reason).trim().to_owned();
    Err(ClientError::Refused { what: what.to_owned(), reason })
}
