//! What a client asks for, as russh tells it.

use std::collections::HashMap;
use std::sync::Arc;

use russh::server::{Auth, ChannelOpenHandle, Handler, Msg, Session};
use russh::{Channel, ChannelId, ChannelOpenFailure, ChannelWriteHalf, Pty, Sig};
use sallyport_audit::recording::Direction;
use sallyport_session::Stop;
use tracing::Instrument;

use super::shared::Shared;
use super::wishes::{Wishes, system_signal};
use crate::inbound::{Inbound, Inbox, PastWindow};
use crate::node::backend::{DisplayAsked, Target, TargetError};
use crate::node::channel;
use crate::node::endpoint::ChannelEndpoint;
use crate::node::forward::inward::{self, Caller, Listening};
use crate::node::forward::{self, ForwardRefused, outward};
use crate::node::opening::Phase;
use crate::session::{Incoming, Kind, Size, Terminal};
use crate::signal_names;
use crate::transport::accept::Proven;

/// A channel of the client's.
struct Open {
    inbox: Arc<Inbox>,
    /// Taken when the session starts.
    write: Option<ChannelWriteHalf<Msg>>,
    wishes: Wishes,
    /// It carries a connection, which gets all that the client has sent before it closed; the end of a session's
    /// channel is a hang-up.
    carries: bool,
}

/// russh's view of the connection. Its methods run one at a time and hold the connection up: none of them waits.
pub(super) struct Connection {
    shared: Arc<Shared>,
    channels: HashMap<ChannelId, Open>,
    inbound: Inbound,
    /// Where the node listens for the client, by what the client calls it.
    listening: HashMap<Target, Listening>,
    /// The library is told that the client is in, and asks for no proof.
    proven: Proven,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.forget_opened();
    }
}

impl Connection {
    /// Of a client that [`crate::transport`] has let in.
    pub(super) fn new(shared: Arc<Shared>, proven: Proven) -> Self {
        let inbound = Inbound::new(shared.gate.clone(), shared.pressure.clone());
        Self { shared, channels: HashMap::new(), inbound, listening: HashMap::new(), proven }
    }

    /// Makes a connection for the client, when it may have it.
    async fn connect(
        &mut self,
        channel: Channel<Msg>,
        target: Result<Target, TargetError>,
        from: Option<String>,
        reply: ChannelOpenHandle,
        session: &mut Session,
    ) {
        self.shared.touch();
        let checked = target.map_err(ForwardRefused::from).and_then(|target| {
            let granted = forward::check(&self.shared, target, Direction::Local)?;
            let room = forward::Room::take(&self.shared, &granted.target.to_string())?;
            Ok((granted, room))
        });
        let (granted, room) = match checked {
            Ok(checked) => checked,
            Err(refused) => return reply.reject(prohibited(&refused.to_string())).await,
        };
        let id = channel.id();
        let inbox = self.register(channel);
        let Some(open) = self.channels.get_mut(&id) else { return };
        open.carries = true;
        if let Some(write) = open.write.take() {
            let endpoint = ChannelEndpoint::ssh(write, session.handle(), inbox, self.shared.clone());
            tokio::spawn(outward::run(endpoint, Some(reply), granted, room, from).in_current_span());
        }
    }

    /// Listens for the client, when it may have that. What is wrong the client prints with `-v`; SSH has no other
    /// place for it.
    async fn listen(&mut self, target: Target, session: &mut Session) -> Result<Option<u16>, russh::Error> {
        self.shared.touch();
        let listening =
            match inward::has_room(self.listening.len(), self.listening.contains_key(&target), &target) {
                Ok(()) => {
                    let client = Caller::ssh(session.handle(), self.shared.clone());
                    inward::listen(client, target.clone()).await
                }
                Err(refused) => Err(refused),
            };
        match listening {
            Ok(listening) => {
                let port = listening.port;
                // What the client asked for as 0 it cancels by the port that it was told.
                self.listening.insert(target.with_port(port), listening);
                Ok(Some(port))
            }
            Err(refused) => {
                session.debug(true, &format!("sallyport: {refused}"), "")?;
                Ok(None)
            }
        }
    }

    /// Lets a channel in and keeps its sending half; what it receives comes through the methods below.
    fn register(&mut self, channel: Channel<Msg>) -> Arc<Inbox> {
        let id = channel.id();
        let inbox = self.inbound.open(id);
        // Those that were refused after all.
        self.channels.retain(|id, _| self.inbound.holds(*id));
        // The reading half is dropped: russh would wait on its queue.
        let (_, write) = channel.split();
        self.channels.insert(
            id,
            Open { inbox: inbox.clone(), write: Some(write), wishes: Wishes::default(), carries: false },
        );
        inbox
    }

    /// Starts what a channel asks for.
    fn start(&mut self, id: ChannelId, kind: Kind, session: &mut Session) -> Result<(), russh::Error> {
        let Some(open) = self.channels.get_mut(&id) else { return session.channel_failure(id) };
        // RFC 4254 §6.5: one program a channel.
        let Some(write) = open.write.take() else { return session.channel_failure(id) };
        let wishes = std::mem::take(&mut open.wishes);
        let inbox = open.inbox.clone();
        session.channel_success(id)?;
        self.shared.opening.reached(Phase::Program);
        let endpoint = ChannelEndpoint::ssh(write, session.handle(), inbox, self.shared.clone());
        let wanted = wishes.want(kind);
        self.shared.server.ends.tasks.spawn(channel::session(endpoint, wanted).in_current_span());
        Ok(())
    }

    /// Holds the client to what it was granted.
    fn came(&mut self, id: ChannelId, length: usize, session: &Session) -> bool {
        self.inbound.came(id, length, session).unwrap_or_else(|error: PastWindow| {
            self.shared.cut(Stop::Ended(error.to_string()));
            false
        })
    }

    fn request(&mut self, id: ChannelId, request: Incoming) -> Result<(), russh::Error> {
        self.shared.touch();
        if let Some(open) = self.channels.get(&id)
            && let Err(error) = open.inbox.request(request)
        {
            open.inbox.cut(&error.to_string());
        }
        Ok(())
    }
}

impl Handler for Connection {
    type Error = russh::Error;

    async fn auth_none(&mut self, user: &str) -> Result<Auth, Self::Error> {
        Ok(if self.proven.is_for(user) { Auth::Accept } else { Auth::reject() })
    }

    async fn auth_succeeded(&mut self, session: &mut Session) -> Result<(), Self::Error> {
        self.shared.opening.reached(Phase::Channel);
        self.inbound.met(session.remote_sshid());
        self.shared.touch();
        self.shared.decided.notify_one();
        Ok(())
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        self.shared.touch();
        let most = self.shared.max_sessions();
        if self.inbound.channels() >= most.saturating_add(self.shared.server.config.max_forwards) {
            reply.reject(prohibited("too many channels are open on this connection; close some")).await;
            return Ok(());
        }
        if self.shared.sessions_running() >= most {
            reply.reject(prohibited(&self.shared.too_many_sessions())).await;
            return Ok(());
        }
        self.register(channel);
        // Here and now: what the client has sent after this without waiting finds the channel open.
        reply.accept().await;
        Ok(())
    }

    async fn channel_open_confirmation(
        &mut self,
        id: ChannelId,
        _: u32,
        _: u32,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        // A channel that the node has opened. A client that confirms it twice does not get to replace it.
        if !self.channels.contains_key(&id) {
            let inbox = self.inbound.open(id);
            let wishes = Wishes::default();
            let open = Open { inbox: inbox.clone(), write: None, wishes, carries: true };
            self.channels.insert(id, open);
            self.shared.hand_inbox(id, inbox);
        }
        Ok(())
    }

    async fn channel_open_direct_tcpip(
        &mut self,
        channel: Channel<Msg>,
        host: &str,
        port: u32,
        from: &str,
        from_port: u32,
        reply: ChannelOpenHandle,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let target = Target::port(host, port).and_then(Target::connectable);
        let from = (from.len() <= 64).then(|| format!("{from}:{from_port}"));
        self.connect(channel, target, from, reply, session).await;
        Ok(())
    }

    async fn channel_open_direct_streamlocal(
        &mut self,
        channel: Channel<Msg>,
        path: &str,
        reply: ChannelOpenHandle,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let target = Target::Socket { path: path.to_owned() };
        self.connect(channel, Ok(target), None, reply, session).await;
        Ok(())
    }

    async fn channel_open_x11(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        reply.reject(prohibited("X11 is not forwarded by this node")).await;
        Ok(())
    }

    async fn tcpip_forward(
        &mut self,
        address: &str,
        port: &mut u32,
        session: &mut Session,
    ) -> Result<bool, Self::Error> {
        let Ok(target) = Target::port(address, *port) else { return Ok(false) };
        let bound = self.listen(target, session).await?;
        if let Some(bound) = bound {
            *port = u32::from(bound);
        }
        Ok(bound.is_some())
    }

    async fn cancel_tcpip_forward(
        &mut self,
        address: &str,
        port: u32,
        _: &mut Session,
    ) -> Result<bool, Self::Error> {
        let target = Target::port(address, port);
        Ok(target.is_ok_and(|target| self.listening.remove(&target).is_some()))
    }

    async fn streamlocal_forward(&mut self, path: &str, session: &mut Session) -> Result<bool, Self::Error> {
        let target = Target::Socket { path: path.to_owned() };
        Ok(self.listen(target, session).await?.is_some())
    }

    async fn cancel_streamlocal_forward(&mut self, path: &str, _: &mut Session) -> Result<bool, Self::Error> {
        Ok(self.listening.remove(&Target::Socket { path: path.to_owned() }).is_some())
    }

    async fn data(&mut self, id: ChannelId, data: &[u8], session: &mut Session) -> Result<(), Self::Error> {
        self.shared.touch();
        if !self.came(id, data.len(), session) {
            return Ok(());
        }
        if self.channels.get(&id).is_some_and(|open| open.write.is_some() && open.inbox.is_full()) {
            // Input for a program that was never started.
            return session.close(id);
        }
        self.inbound.take(id, data);
        Ok(())
    }

    async fn extended_data(
        &mut self,
        id: ChannelId,
        _: u32,
        data: &[u8],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        // Nothing here reads that; it counts all the same.
        self.came(id, data.len(), session);
        Ok(())
    }

    fn adjust_window(&mut self, channel: ChannelId, current: u32) -> u32 {
        self.inbound.adjust(channel, current)
    }

    async fn channel_eof(&mut self, id: ChannelId, _: &mut Session) -> Result<(), Self::Error> {
        self.inbound.end(id);
        Ok(())
    }

    async fn channel_close(&mut self, id: ChannelId, _: &mut Session) -> Result<(), Self::Error> {
        let carries = self.channels.remove(&id).is_some_and(|open| open.carries);
        match self.inbound.close(id) {
            Some(inbox) if carries => inbox.close(),
            Some(inbox) => inbox.hang_up(),
            None => {}
        }
        Ok(())
    }

    async fn pty_request(
        &mut self,
        id: ChannelId,
        term: &str,
        columns: u32,
        rows: u32,
        width: u32,
        height: u32,
        modes: &[(Pty, u32)],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let terminal = Terminal {
            term: term.to_owned(),
            size: Size { columns, rows, width, height },
            modes: modes.iter().map(|(code, value)| (*code as u8, *value)).collect(),
        };
        let open = self.channels.get_mut(&id).filter(|open| open.write.is_some());
        if open.is_some_and(|open| open.wishes.terminal(terminal)) {
            session.channel_success(id)
        } else {
            session.channel_failure(id)
        }
    }

    async fn env_request(
        &mut self,
        id: ChannelId,
        name: &str,
        value: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let open = self.channels.get_mut(&id);
        if open.is_some_and(|open| open.wishes.variable(&self.shared, name, value)) {
            session.channel_success(id)
        } else {
            session.channel_failure(id)
        }
    }

    async fn shell_request(&mut self, id: ChannelId, session: &mut Session) -> Result<(), Self::Error> {
        self.start(id, Kind::Shell, session)
    }

    async fn exec_request(
        &mut self,
        id: ChannelId,
        data: &[u8],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        if data.contains(&0) {
            return session.channel_failure(id);
        }
        self.start(id, Kind::Exec(data.to_owned()), session)
    }

    async fn subsystem_request(
        &mut self,
        id: ChannelId,
        name: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        if name == "sftp" { self.start(id, Kind::Sftp, session) } else { session.channel_failure(id) }
    }

    async fn window_change_request(
        &mut self,
        id: ChannelId,
        columns: u32,
        rows: u32,
        width: u32,
        height: u32,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        self.request(id, Incoming::Resize(Size { columns, rows, width, height }))
    }

    async fn signal(&mut self, id: ChannelId, signal: Sig, _: &mut Session) -> Result<(), Self::Error> {
        match system_signal(&signal_names::name_of(&signal)) {
            Some(signal) => self.request(id, Incoming::Signal(signal)),
            None => Ok(()),
        }
    }

    async fn x11_request(
        &mut self,
        id: ChannelId,
        single: bool,
        protocol: &str,
        cookie: &str,
        screen: u32,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let Some(open) = self.channels.get_mut(&id) else { return session.channel_failure(id) };
        let asked = DisplayAsked::read(single, protocol, cookie, screen);
        if open.wishes.display(&self.shared, asked, open.write.is_some()) {
            session.channel_success(id)
        } else {
            session.channel_failure(id)
        }
    }

    async fn agent_request(&mut self, id: ChannelId, _: &mut Session) -> Result<bool, Self::Error> {
        let Some(open) = self.channels.get_mut(&id) else { return Ok(false) };
        Ok(open.wishes.agent(&self.shared, open.write.is_some()))
    }
}

fn prohibited(message: &str) -> ChannelOpenFailure {
    ChannelOpenFailure::Other {
        code: ChannelOpenFailure::AdministrativelyProhibited.code(),
        reason: format!("sallyport: {message}"),
    }
}
