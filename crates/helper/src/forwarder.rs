//! One stream: the input and output of a program, and a node or a database behind the proxy.
//!
//! What goes to the node is read only when there is room to send it, and what comes is asked for only when the last
//! bytes were written; so a side that stops makes the other wait, and a stream that is idle holds no buffer.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::poll_fn;
use sallyport_access::HostId;
use sallyport_databases::postgres::error::{Refusal, SqlState};
use tokio::io::AsyncWrite;

use super::ends::{Input, Output, gone};
use super::program::Program;
use super::stream_state::StreamState;
use super::transports::{Seat, Transports};
use crate::error::{Error, Result};
use sallyport_client::channel::Channel;
use sallyport_client::error::Kind;
use sallyport_client::profile::Stored;
use sallyport_client::session_factor::Asker;
use sallyport_client::transport::{self, Answers, Carried, Ending, Outgoing, Protocol};

/// Bytes that may go out before the proxy has answered, and are kept to be said again on another connection.
const EARLY_BYTES: usize = 64 * 1024;
/// A connection that was fine earlier has this long to show that it still is, before it is held against a new one.
const SUSPICION: Duration = Duration::from_secs(3);
/// How often it is looked at for that.
const LOOK: Duration = Duration::from_millis(250);
/// When the program has gone, what it wrote last still goes out for so long.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What went out before the proxy answered.
#[derive(Debug, Default)]
struct Early {
    bytes: Vec<u8>,
    sent: usize,
    /// The input has ended.
    ended: bool,
}

impl Early {
    /// Drives the question to its answer, and sends what the program writes meanwhile.
    fn poll(
        &mut self,
        stream: &mut Carried<impl Protocol>,
        input: &Input,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut blocked = false;
            while let Some(rest) = self.bytes.get(self.sent..).filter(|rest| !rest.is_empty()) {
                match Pin::new(&mut *stream).poll_write(context, rest) {
                    Poll::Ready(Ok(count)) => self.sent += count,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => {
                        blocked = true;
                        break;
                    }
                }
            }
            if let Poll::Ready(opened) = stream.poll_open(context) {
                return Poll::Ready(opened);
            }
            let room = EARLY_BYTES.saturating_sub(self.bytes.len());
            if blocked || self.ended || room == 0 {
                return Poll::Pending;
            }
            let bytes = ready!(input.poll_read(context, room));
            self.ended = bytes.is_empty();
            self.bytes.extend_from_slice(&bytes);
        }
    }
}

/// What a program wants to be connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// The SSH service of a node.
    Ssh { node: String, login: String },
    /// The native listener of a node; what is carried is TLS already.
    Native { node: String, login: String },
    /// A database, in its own protocol; the proxy sees it.
    Database { name: String },
    /// One of the agents of a database; what is carried is TLS already.
    Agent { database: String, user: String, name: String, agents: Vec<HostId> },
    /// One of the agents of a resource of the catalogue; what is carried is TLS already.
    Resource { kind: &'static str, name: String, agents: Vec<HostId> },
}

/// One program's connection.
pub(super) struct Forwarder<'a> {
    pub(super) transports: &'a Transports,
    pub(super) target: Target,
    /// What the program has said already; goes before what it says from now on.
    pub(super) early: Vec<u8>,
    pub(super) input: Input,
    pub(super) output: Output,
    /// Ends when the program does; none where the program is this one.
    pub(super) program: Option<&'a Program>,
    /// Reaches the person, where a second factor has to be proven first; none where that is another program's to do.
    pub(super) asker: Option<&'a dyn Asker>,
    /// What the TLS above must know of the stream, where that is here.
    pub(super) state: Option<&'a StreamState>,
}

/// A stream that the proxy has connected.
struct Open<P: Protocol> {
    outgoing: Outgoing<P>,
    incoming: Answers<P>,
    ending: Ending,
    _seat: Seat,
}

impl Forwarder<'_> {
    /// Carries bytes until one side has ended.
    pub(super) async fn run(self, stored: Arc<Stored>) -> Result {
        match &self.target {
            Target::Ssh { node, login } => {
                self.carry(&stored, |channel, stored| transport::open(channel, stored, node, login)).await
            }
            Target::Native { node, login } => {
                let begin = |channel: Channel, stored: &Arc<Stored>| {
                    transport::open_native(channel, stored, node, login)
                };
                self.carry(&stored, begin).await
            }
            Target::Database { name } => {
                self.carry(&stored, |channel, _| transport::open_database(channel, name)).await
            }
            Target::Agent { database, user, name, agents } => {
                let begin = |channel: Channel, _: &Arc<Stored>| {
                    transport::open_database_end_to_end(channel, database, (user, name), agents)
                };
                self.carry(&stored, begin).await
            }
            Target::Resource { kind, name, agents } => {
                self.carry(&stored, |channel, _| transport::open_resource(channel, kind, name, agents)).await
            }
        }
    }

    async fn carry<P: Protocol>(
        &self,
        stored: &Arc<Stored>,
        begin: impl Fn(Channel, &Arc<Stored>) -> (Carried<P>, Ending),
    ) -> Result {
        let mut early = Early { bytes: self.early.clone(), ..Early::default() };
        let open = tokio::select! {
            open = self.open(stored, &mut early, begin) => open,
            () = gone(self.program) => return Ok(()),
        };
        let Open { outgoing, incoming, ending, _seat } = match open {
            Ok(open) => open,
            Err(error) => {
                self.refuse(&error).await;
                return Err(error);
            }
        };
        let rest = early.bytes.split_off(early.sent.min(early.bytes.len()));
        // Whatever becomes of the input, the other end has the last word.
        let upstream = self.upstream(outgoing, rest, early.ended).then(|()| std::future::pending::<()>());
        let (mut upstream, mut downstream) = (pin!(upstream), pin!(self.downstream(incoming, &ending)));
        tokio::select! {
            ended = downstream.as_mut() => ended,
            () = upstream.as_mut() => Ok(()),
            () = gone(self.program) => {
                let last = async {
                    tokio::select! {
                        _ = downstream => {}
                        () = upstream => {}
                    }
                };
                let _ = tokio::time::timeout(LAST_WORDS, last).await;
                Ok(())
            }
        }
    }

    /// Asks the proxy, on another connection when one turns out to be lost.
    async fn open<P: Protocol>(
        &self,
        stored: &Arc<Stored>,
        early: &mut Early,
        begin: impl Fn(Channel, &Arc<Stored>) -> (Carried<P>, Ending),
    ) -> Result<Open<P>> {
        let mut proven = false;
        loop {
            let seat = self.transports.seat(stored).await?;
            if let Some(state) = self.state {
                state.seated.notify_one();
            }
            let (mut stream, ending) = begin(seat.channel(), stored);
            early.sent = 0;
            let opened = poll_fn(|context| early.poll(&mut stream, &self.input, context));
            let lost = tokio::select! {
                opened = opened => match opened {
                    Ok(()) => false,
                    Err(_) if !seat.fresh && ending.is_local() => true,
                    Err(error) => {
                        let error = self.explain(&ending, &error);
                        if !proven && self.is_proven(stored, &error).await? {
                            // Nothing of what went out has gone further than the proxy, if that tells the truth.
                            proven = true;
                            if let Some(state) = self.state {
                                state.again();
                            }
                            continue;
                        }
                        if let Some(state) = self.state {
                            state.ssh_alone.set(ending.is_unimplemented());
                            *state.refusal.borrow_mut() = ending.refusal();
                        }
                        return Err(error);
                    }
                },
                () = self.suspicious(&seat, stored) => true,
            };
            if lost {
                seat.retire();
                if let Some(state) = self.state {
                    state.again();
                }
                continue;
            }
            if let Some(state) = self.state {
                state.reached.set(true);
            }
            let Some((outgoing, incoming)) = stream.into_halves() else {
                return Err(Error::Lost { why: None });
            };
            return Ok(Open { outgoing, incoming, ending, _seat: seat });
        }
    }

    /// Has a second factor proven, where one was missing and there is a way to the person; whether it was.
    async fn is_proven(&self, stored: &Stored, error: &Error) -> Result<bool> {
        let (Some(demanded), Some(asker)) = (error.demanded(), self.asker) else { return Ok(false) };
        let _asks = self.state.map(StreamState::ask);
        self.transports.asking.prove(stored, &demanded, &[], asker).await?;
        Ok(true)
    }

    /// Waits until a connection that was made earlier is lost for all that can be seen: the proxy was asked on it and kept
    /// silent, and meanwhile a new connection was made. So a proxy that is only slow, whose answer would be asked for
    /// again and again, gets the time that it takes.
    async fn suspicious(&self, seat: &Seat, stored: &Arc<Stored>) {
        if seat.fresh {
            std::future::pending::<()>().await;
        }
        let mut silent = Duration::ZERO;
        while !seat.is_lost() {
            let began = Instant::now();
            tokio::time::sleep(LOOK).await;
            let took = began.elapsed();
            if seat.silence() < took {
                silent = Duration::ZERO;
            } else if took < 2 * LOOK {
                // Time in which this process was too busy to listen does not count.
                silent += took;
            }
            if silent >= SUSPICION / 2 {
                // What is behind the proxy may take its time; this the proxy answers itself.
                seat.ask();
            }
            if silent >= SUSPICION
                && let Some(_doubt) = seat.doubt()
            {
                let since = Instant::now();
                let another = match self.transports.dial(stored).await {
                    Ok(another) => another.is_answered().await,
                    Err(_) => false,
                };
                if !another || seat.silence() >= since.elapsed() {
                    seat.lose();
                }
                silent = Duration::ZERO;
            }
        }
    }

    /// Tells a client of a database, in the database's own protocol, that nothing will come of it. Once a session has
    /// begun that would be wrong: what was sent last may be half a message.
    async fn refuse(&self, error: &Error) {
        if matches!(self.target, Target::Database { .. }) {
            let _ = self.output.write_all(refusal(error).into()).await;
        }
    }

    /// What the program writes, as fast as the node takes it.
    async fn upstream<P: Protocol>(&self, outgoing: Outgoing<P>, rest: Vec<u8>, ended: bool) {
        if !rest.is_empty() && outgoing.send(rest.into()).await.is_err() {
            return;
        }
        if ended {
            return;
        }
        loop {
            // Capacity first: bytes that cannot be sent stay with the program.
            let Ok(capacity) = outgoing.capacity().await else { return };
            let bytes = self.input.read().await;
            if bytes.is_empty() {
                return;
            }
            capacity.send(bytes);
        }
    }

    /// What the node answers, as fast as the program takes it.
    async fn downstream<P: Protocol>(&self, mut incoming: Answers<P>, ending: &Ending) -> Result {
        loop {
            match incoming.next().await {
                // The program does not listen any more.
                Ok(Some(bytes)) => {
                    if let Some(state) = self.state {
                        state.heard.set(true);
                    }
                    if self.output.write_all(bytes).await.is_err() {
                        return Ok(());
                    }
                }
                Ok(None) => return Ok(()),
                Err(status) => {
                    let error = io::Error::other(status.message().to_owned());
                    ending.set(status);
                    return Err(self.explain(ending, &error));
                }
            }
        }
    }

    fn explain(&self, ending: &Ending, error: &io::Error) -> Error {
        let said = match &self.target {
            Target::Ssh { node, login } | Target::Native { node, login } => ending.error(node, login),
            Target::Database { name } | Target::Agent { database: name, .. } => ending.database_error(name),
            Target::Resource { kind, name, .. } => ending.resource_error(kind, name),
        };
        said.map_or_else(|| Error::Lost { why: Some(error.to_string()) }, Error::from)
    }
}

/// An error as a client of a database shows it.
pub(super) fn refusal(error: &Error) -> Vec<u8> {
    let state = match error.kind() {
        Kind::NotLoggedIn | Kind::Refused => SqlState::InvalidAuthorization,
        _ => SqlState::CannotConnectNow,
    };
    let refusal = Refusal::new(state, error.told());
    match error.advice() {
        Some(hint) => refusal.hint(hint).to_bytes(),
        None => refusal.to_bytes(),
    }
}
