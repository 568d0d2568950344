//! What a client asks for by the native protocol.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::BytesMut;
use parking_lot::{Mutex, MutexGuard};
use sallyport_audit::Code;
use sallyport_audit::recording::Direction;
use tokio::time::{Instant, timeout};
use tracing::Instrument;

use super::hold::hold;
use super::login;
use super::shared::Shared;
use super::taking::Taking;
use super::wishes::Wishes;
use crate::client::Endpoint;
use crate::inbound::Line;
use crate::native::frame::{FIRST_WINDOW, Farewell, Frame, Hello, Lacks, Open, VERSION};
use crate::native::mux::{self, Breach, Keepalive, Mux, Role, Side};
use crate::node::backend::{DisplayAsked, Proof, Target};
use crate::node::channel;
use crate::node::endpoint::ChannelEndpoint;
use crate::node::forward::inward::{self, Caller, Listening};
use crate::node::forward::{self, ForwardRefused, outward};
use crate::node::info::NativeLogin;
use crate::node::opening::Phase;
use crate::request::{Program, SessionRequest};
use crate::session::Kind;
use crate::{BoxedStream, Stream};

/// The most that a client may have us send on a channel before it is heard of.
const WIDEST_WINDOW: u32 = 16 << 20;

/// Serves one connection to its end.
pub(in crate::node) async fn serve(stream: BoxedStream, shared: Arc<Shared>, login: NativeLogin) {
    let span = tracing::info_span!(
        "native",
        peer = %shared.source(),
        user = tracing::field::Empty,
        login = tracing::field::Empty
    );
    let line = Line::new(stream, shared.line.clone(), shared.gate.clone());
    greet(line, &shared, login).instrument(span).await;
    shared.opening.failed("no_session");
}

/// Why a client's connection does not begin.
#[derive(Debug, thiserror::Error)]
enum NoHello {
    #[error("something else came first")]
    OtherFrame,
    #[error("nothing came within {seconds} s")]
    Silent { seconds: u64 },
    #[error(transparent)]
    NoFrame(#[from] mux::NoFirstFrame),
}

async fn greet(mut line: impl Stream, shared: &Arc<Shared>, login: NativeLogin) {
    let began = Instant::now();
    let mut begun = BytesMut::new();
    let login_timeout = shared.server.config.login_timeout;
    let first = timeout(login_timeout, mux::first_frame(&mut line, &mut begun)).await;
    let hello = match first {
        Ok(Ok(Frame::Hello(hello))) => Ok(hello),
        Ok(Ok(_)) => Err(NoHello::OtherFrame),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(NoHello::Silent { seconds: login_timeout.as_secs() }),
    };
    let Hello { version, least, window, login: user } = match hello {
        Ok(hello) => hello,
        Err(reason) => {
            tracing::debug!(%reason, "no hello");
            let event = shared.event(Code::SessionRefused).user(login.identity.display_name());
            let event = event.field("certificate", login.proof.as_str());
            return shared.refused(event.message(format!("the client said no hello: {reason}")));
        }
    };
    let window = window.clamp(FIRST_WINDOW, WIDEST_WINDOW);
    let mux = Mux::new(Side::Node, FIRST_WINDOW, window, false);
    // Older clients than this are not there yet, and newer ones know this version.
    if least > VERSION || version < VERSION {
        mux.finish(
            Farewell::UseSsh,
            &format!("this node speaks version {VERSION}, the client {least} to {version}"),
        );
    } else {
        // Before the login is decided: the client does not wait for that.
        let _ = mux.answer(&Frame::Welcome { version: VERSION });
        let access = login::enter(shared, &user, login.identity, Proof::Native(&login.certificate)).await;
        let _ = shared.access.set(access);
        shared.decided.notify_one();
        shared.touch();
    }
    let face = Face { shared: shared.clone(), mux: mux.clone(), listening: Arc::default() };
    let config = &shared.server.config;
    let keepalive = Keepalive { interval: config.keepalive_interval, most: config.keepalive_max };
    let running = Box::pin(mux::run(mux.clone(), line, begun, face, Some(keepalive)));
    let goodbye = |reason: String| {
        mux.finish(Farewell::Cut, &reason);
        std::future::ready(())
    };
    if let Some(end) = hold(shared, began, running, goodbye).await {
        tracing::debug!(reason = %end.reason, "the connection ended");
    }
    shared.pressure.end();
}

/// Where the node listens for the client, by what the client calls it; none while it is being made.
type Listeners = Arc<Mutex<HashMap<Target, Option<Listening>>>>;

/// The node's side of one connection.
struct Face {
    shared: Arc<Shared>,
    mux: Mux,
    listening: Listeners,
}

impl Role for Face {
    fn frame(&mut self, frame: Frame) -> Result<(), Breach> {
        match frame {
            Frame::Open(id, what) => {
                self.shared.touch();
                self.opened(id, what)
            }
            Frame::Listen { request, at } => {
                self.shared.touch();
                self.listen(request, target(at))
            }
            Frame::Unlisten(at) => {
                listeners(&self.listening).remove(&target(at));
                Ok(())
            }
            _ => Err(Breach::rule("a frame that a client does not send, or not there")),
        }
    }
}

impl Face {
    fn opened(&self, id: u32, what: Open) -> Result<(), Breach> {
        let most = self.shared.max_sessions().saturating_add(self.shared.server.config.max_forwards);
        if self.mux.channels() >= most {
            return self.refuse(id, "too many channels are open on this connection; close some");
        }
        match what {
            Open::Session(session) => self.session(id, *session),
            Open::Direct { to, from } => self.direct(id, target(to), from),
            Open::X11 { .. } => self.refuse(id, "X11 is not forwarded by this node"),
            Open::Forwarded { .. } | Open::Agent => self.refuse(id, "a node takes no such connection"),
        }
    }

    fn refuse(&self, id: u32, message: &str) -> Result<(), Breach> {
        self.mux.answer(&Frame::Refused(id, format!("sallyport: {message}")))
    }

    fn admit(&self, id: u32, carries: bool) -> ChannelEndpoint {
        let inbox = self.mux.inbox(&self.shared.pressure, id);
        let taker = Taking { inbox: inbox.clone(), shared: self.shared.clone(), carries };
        ChannelEndpoint::native(self.mux.admit(id, Arc::new(taker)), inbox, self.shared.clone())
    }

    fn session(&self, id: u32, request: SessionRequest) -> Result<(), Breach> {
        let SessionRequest { program, terminal, environment, forward_agent, display } = request;
        let kind = match program {
            Program::Shell => Kind::Shell,
            Program::Exec(line) if line.contains(&0) => {
                return self.refuse(id, "a command line has no NUL byte");
            }
            Program::Exec(line) => Kind::Exec(line),
            Program::Subsystem(name) if name == "sftp" => Kind::Sftp,
            Program::Subsystem(_) => return self.refuse(id, "this node has no such subsystem"),
        };
        let (shared, mut wishes) = (&self.shared, Wishes::default());
        let lacks = Lacks {
            terminal: terminal.is_some_and(|terminal| !wishes.terminal(terminal)),
            agent: forward_agent && !wishes.agent(shared, true),
            display: display.is_some_and(|offer| {
                let asked = DisplayAsked::read(offer.single, &offer.protocol, &offer.cookie, offer.screen);
                !wishes.display(shared, asked, true)
            }),
        };
        for (name, value) in &environment {
            wishes.variable(shared, name, value);
        }
        let endpoint = self.admit(id, false);
        endpoint.started(lacks);
        shared.opening.reached(Phase::NativeProgram);
        shared.server.ends.tasks.spawn(channel::session(endpoint, wishes.want(kind)).in_current_span());
        Ok(())
    }

    /// Makes a connection for the client, when it may have it.
    fn direct(&self, id: u32, target: Target, (host, port): (String, u16)) -> Result<(), Breach> {
        let checked = target.connectable().map_err(ForwardRefused::from).and_then(|target| {
            let granted = forward::check(&self.shared, target, Direction::Local)?;
            let room = forward::Room::take(&self.shared, &granted.target.to_string())?;
            Ok((granted, room))
        });
        let (granted, room) = match checked {
            Ok(checked) => checked,
            Err(refused) => return self.refuse(id, &refused.to_string()),
        };
        let from = (!host.is_empty() && host.len() <= 64).then(|| format!("{host}:{port}"));
        let endpoint = self.admit(id, true);
        tokio::spawn(outward::run(endpoint, None, granted, room, from).in_current_span());
        Ok(())
    }

    /// Listens for the client, when it may have that.
    fn listen(&self, request: u32, target: Target) -> Result<(), Breach> {
        {
            let mut listening = listeners(&self.listening);
            let (count, there) = (listening.len(), listening.contains_key(&target));
            if let Err(refused) = inward::has_room(count, there, &target) {
                drop(listening);
                let reason = format!("sallyport: {refused}");
                return self.mux.answer(&Frame::NotListening { request, reason });
            }
            listening.insert(target.clone(), None);
        }
        let (listening, mux) = (self.listening.clone(), self.mux.clone());
        let client = Caller::native(mux.clone(), self.shared.clone());
        let listen = async move {
            let made = inward::listen(client, target.clone()).await;
            let answer = {
                let mut listening = listeners(&listening);
                let wanted = listening.remove(&target).is_some();
                match made {
                    Ok(made) if wanted => {
                        let port = made.port;
                        // What the client asked for as 0 it cancels by the port that it was told.
                        listening.insert(target.with_port(port), Some(made));
                        Frame::Listening { request, port }
                    }
                    Ok(_) => Frame::NotListening { request, reason: "it was cancelled".to_owned() },
                    Err(refused) => Frame::NotListening { request, reason: format!("sallyport: {refused}") },
                }
            };
            // When that cannot be said, the connection is as good as over.
            let _ = mux.answer(&answer);
        };
        // The listeners end with the connection, however long it takes to make one.
        let mux = self.mux.clone();
        let while_there = async move {
            tokio::select! {
                () = listen => {}
                _ = mux.ended() => {}
            }
        };
        tokio::spawn(while_there.in_current_span());
        Ok(())
    }
}

impl Drop for Face {
    fn drop(&mut self) {
        listeners(&self.listening).clear();
    }
}

fn listeners(of: &Listeners) -> MutexGuard<'_, HashMap<Target, Option<Listening>>> {
    of.lock()
}

fn target(endpoint: Endpoint) -> Target {
    match endpoint {
        Endpoint::Port { host, port } => Target::Port { host, port },
        Endpoint::Socket { path } => Target::Socket { path },
    }
}
