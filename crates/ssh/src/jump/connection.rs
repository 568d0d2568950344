//! One client of the plain SSH face.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use russh::server::{Auth, ChannelOpenHandle, Handler, Msg, Session};
use russh::{Channel, ChannelId, ChannelOpenFailure, ChannelWriteHalf, Disconnect, Pty};
use sallyport_sal::HybridKeyExchange;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, debug, debug_span, info};

use super::bounds::{Bounds, DRAINING};
use super::dial::{Admits, Dial, JumpConfig, JumpError};
use super::entering::{Decides, Entering, enter};
use super::factor::Factor;
use super::known::Known;
use crate::capabilities::{Heard, Sighting, Whose, hear_out};
use crate::inbound::{Counts, Gate, Inbound, Inbox, Line, Pressure, ToClient, carry};
use crate::session::Gone;
use crate::transport::accept::{NotIn, Proven, Terms};
use crate::{BoxedStream, Stream};

/// SSH_OPEN_ADMINISTRATIVELY_PROHIBITED (RFC 4254 §5.1), the code that goes with words of our own.
const PROHIBITED: u32 = 1;

/// SSH_OPEN_CONNECT_FAILED (RFC 4254 §5.1).
const CONNECT_FAILED: u32 = 2;

/// SSH_EXTENDED_DATA_STDERR (RFC 4254 §5.2).
const STDERR: u32 = 1;

/// What a person reads who wanted a shell here.
const NO_SHELL: &str = "This is a Sallyport proxy; it runs no shells.\r\n\
    To reach a node through it: ssh -J USER@PROXY:PORT LOGIN@NODE, or sallyport ssh LOGIN@NODE\r\n";

/// Sessions open at a time on one connection, each of which waits to be told that there are none.
const MAX_SESSIONS: usize = 10;

/// What a client reads that asks for anything but a node.
const ONLY_NODES: &str = "this is a Sallyport proxy: it only connects to nodes (ssh -J)";

/// How long a client that is cut off may take to hear of it.
const LAST_WORDS: std::time::Duration = std::time::Duration::from_millis(500);

pub(super) struct Settings {
    pub(super) config: JumpConfig,
    pub(super) ssh: Arc<russh::server::Config>,
    /// On what terms clients are let in.
    pub(super) terms: Terms,
    pub(super) dial: Arc<dyn Dial>,
    pub(super) admits: Admits,
    pub(super) client: SocketAddr,
    pub(super) draining: CancellationToken,
    pub(super) cut: CancellationToken,
}

/// What the handler and the one who watches over it share.
#[derive(Default)]
struct Shared {
    known: Known,
    channels: AtomicUsize,
    /// Whether the connection is read, and how much of what it carries waits.
    gate: Arc<Gate>,
    pressure: Arc<Pressure>,
}

/// Cuts the connection when the future that serves it is dropped.
struct CutOnDrop(CancellationToken);

impl Drop for CutOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

pub(super) async fn serve<S: Stream + 'static>(stream: S, settings: Settings) -> Result<(), JumpError> {
    let cut = CutOnDrop(settings.cut.clone());
    let shared = Arc::new(Shared::default());
    let (dial, client) = (Arc::clone(&settings.dial), settings.client);
    // What is read is held back behind [`crate::transport`].
    let line = Line::new(stream, cut.0.clone(), Arc::default());
    let ended = greet(line, settings, Arc::clone(&shared)).await;
    shared.known.tell_not_tried();
    if shared.known.identity.get().is_none()
        && let Some(offer) = shared.known.offered.offer()
    {
        let refused = match &ended {
            Err(JumpError::Transport(NotIn::Breach(breach))) => breach.nothing_common(),
            Err(JumpError::KeyExchange { reason, .. }) => Some(reason.clone()),
            _ => None,
        };
        let whose = Some(Whose::Address(client.ip()));
        dial.saw(Sighting { offer: offer.clone(), whose, refused });
    }
    ended
}

/// Hears the client out first where not every one fits.
async fn greet<S: Stream + 'static>(
    line: Line<S>,
    settings: Settings,
    shared: Arc<Shared>,
) -> Result<(), JumpError> {
    match settings.terms.demand {
        HybridKeyExchange::Preferred => {
            let tap = shared.known.offered.along(line);
            supervise(tap, settings, shared).await
        }
        HybridKeyExchange::Required => {
            let limit = settings.config.auth_timeout;
            let heard = tokio::time::timeout(limit, hear_out(line)).await;
            match heard.map_err(|_| JumpError::AuthTimeout(limit))?.map_err(russh::Error::from)? {
                Heard::Fits(greeted) => {
                    let tap = shared.known.offered.along(greeted);
                    supervise(tap, settings, shared).await
                }
                Heard::Refused { offer, reason } => {
                    let software = offer.software.clone();
                    shared.known.offered.set(offer);
                    Err(JumpError::KeyExchange { software, reason })
                }
            }
        }
    }
}

async fn supervise<S: Stream + 'static>(
    stream: S,
    settings: Settings,
    shared: Arc<Shared>,
) -> Result<(), JumpError> {
    let config = settings.config.clone();
    let Settings { dial, admits, .. } = &settings;
    let decides = Decides { known: &shared.known, dial, admits, span: Span::current() };
    let factor = Factor::new(Arc::clone(dial), settings.client);
    let bounds = Bounds {
        patience: config.auth_timeout,
        idle: config.idle_timeout,
        draining: settings.draining.clone(),
    };
    let entered = enter(Box::new(stream), &settings.terms, Entering { decides, factor }, &bounds).await?;
    let Some((stream, proven)) = entered else { return Ok(()) };
    let line = Line::new(stream, settings.cut.clone(), Arc::clone(&shared.gate));
    let handler = Client::new(settings, Arc::clone(&shared), proven);
    let started = russh::server::run_stream(Arc::clone(&handler.settings.ssh), line, handler);
    // There is nothing to wait for inside.
    let began = tokio::time::timeout(config.auth_timeout, started);
    let began = began.await.map_err(|_| JumpError::AuthTimeout(config.auth_timeout))?;
    let mut session = began?;
    let handle = session.handle();

    let sent_away = Mutex::new(None);
    let watch = async {
        let is_used = || shared.channels.load(Ordering::Acquire) > 0;
        let (words, reason) = bounds.run_out(&shared.known, is_used, "the connection was not used").await;
        *sent_away.lock() = Some(reason);
        let farewell = handle.disconnect(Disconnect::ByApplication, words.to_owned(), String::new());
        let _ = tokio::time::timeout(std::time::Duration::from_secs(1), farewell).await;
        // Time for the words to leave before the cut.
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    let ended = tokio::select! {
        ended = &mut session => ended,
        () = watch => Ok(()),
    };
    match (sent_away.into_inner(), ended) {
        (Some(reason), _) => Err(reason),
        (None, Ok(()) | Err(JumpError::Ssh(russh::Error::Disconnect | russh::Error::HUP))) => Ok(()),
        (None, Err(error)) => Err(error),
    }
}

/// The callbacks of one connection.
struct Client {
    shared: Arc<Shared>,
    places: Arc<Semaphore>,
    inbound: Inbound,
    /// Session channels, and whether they have been told that there are no shells.
    sessions: HashMap<ChannelId, bool>,
    span: Span,
    settings: Settings,
    /// The library is told that the client is in, and asks for no proof.
    proven: Proven,
}

/// An open channel, counted until it is dropped.
struct Counted {
    shared: Arc<Shared>,
    _place: OwnedSemaphorePermit,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.shared.channels.fetch_sub(1, Ordering::AcqRel);
        self.shared.known.changed.notify_one();
    }
}

/// A channel that leads to a node, as its client is reached.
struct ClientChannel {
    write: ChannelWriteHalf<Msg>,
    inbox: Arc<Inbox>,
    pressure: Arc<Pressure>,
}

impl ToClient for ClientChannel {
    fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    async fn send(&self, bytes: Bytes) -> Result<(), Gone> {
        let _waiting = self.pressure.enter();
        self.write.data_bytes(bytes).await.map_err(|_| Gone)
    }

    async fn eof(&self) -> Result<(), Gone> {
        self.write.eof().await.map_err(|_| Gone)
    }
}

impl ClientChannel {
    /// Carries the client's connection to the node and back, to its end, or until the client may not go on there. False when a
    /// client that was cut off takes nothing, not even that.
    async fn carry(self, stream: BoxedStream, cut: &CancellationToken) -> bool {
        let counts = Counts::default();
        tokio::select! {
            () = carry(&self, stream, &counts) => {}
            () = cut.cancelled() => {}
        }
        self.inbox.leave();
        let closing = self.write.close();
        let closed = match cut.is_cancelled() {
            true => tokio::time::timeout(LAST_WORDS, closing).await.is_ok(),
            false => {
                let _ = closing.await;
                true
            }
        };
        debug!(?counts, "connection to a node ended");
        closed
    }
}

impl Client {
    fn new(settings: Settings, shared: Arc<Shared>, proven: Proven) -> Self {
        Self {
            places: Arc::new(Semaphore::new(settings.config.max_channels)),
            inbound: Inbound::new(Arc::clone(&shared.gate), Arc::clone(&shared.pressure)),
            sessions: HashMap::new(),
            span: Span::current(),
            shared,
            settings,
            proven,
        }
    }

    /// Holds the client to what it was granted; false when what it sent is to be dropped.
    fn came(&mut self, id: ChannelId, length: usize, session: &Session) -> bool {
        self.inbound.came(id, length, session).unwrap_or_else(|error| {
            info!(parent: &self.span, %error, "cutting a connection");
            self.settings.cut.cancel();
            false
        })
    }

    /// Counts a channel in, or says that there are too many.
    fn count(&self) -> Option<Counted> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        self.shared.channels.fetch_add(1, Ordering::AcqRel);
        self.shared.known.changed.notify_one();
        Some(Counted { shared: Arc::clone(&self.shared), _place: place })
    }

    /// Tells a person who wanted a shell what this is, and ends the session.
    fn no_shell(&mut self, channel: ChannelId, session: &mut Session) -> Result<(), JumpError> {
        session.channel_success(channel)?;
        if self.sessions.insert(channel, true) == Some(false) {
            session.extended_data(channel, STDERR, NO_SHELL.as_bytes())?;
            session.exit_status_request(channel, 1)?;
            session.eof(channel)?;
            session.close(channel)?;
            // Closed by now, unless the client had no window for the words.
            if !session.has_pending_data(channel) {
                self.sessions.remove(&channel);
            }
        }
        Ok(())
    }
}

fn prohibited(reason: impl Into<String>) -> ChannelOpenFailure {
    ChannelOpenFailure::Other { code: PROHIBITED, reason: reason.into() }
}

impl Handler for Client {
    type Error = JumpError;

    async fn auth_none(&mut self, user: &str) -> Result<Auth, JumpError> {
        Ok(if self.proven.is_for(user) { Auth::Accept } else { Auth::reject() })
    }

    async fn auth_succeeded(&mut self, session: &mut Session) -> Result<(), JumpError> {
        self.inbound.met(session.remote_sshid());
        Ok(())
    }

    fn adjust_window(&mut self, channel: ChannelId, current: u32) -> u32 {
        self.inbound.adjust(channel, current)
    }

    async fn data(&mut self, id: ChannelId, data: &[u8], session: &mut Session) -> Result<(), JumpError> {
        if self.came(id, data.len(), session) {
            self.inbound.take(id, data);
        }
        Ok(())
    }

    async fn extended_data(
        &mut self,
        id: ChannelId,
        _: u32,
        data: &[u8],
        session: &mut Session,
    ) -> Result<(), JumpError> {
        // Nothing here reads that; it counts all the same.
        self.came(id, data.len(), session);
        Ok(())
    }

    async fn channel_eof(&mut self, id: ChannelId, _: &mut Session) -> Result<(), JumpError> {
        self.inbound.end(id);
        Ok(())
    }

    async fn channel_open_direct_tcpip(
        &mut self,
        channel: Channel<Msg>,
        host: &str,
        port: u32,
        _: &str,
        _: u32,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), JumpError> {
        let Some((identity, certificate)) = self.shared.known.identity.get().cloned() else {
            reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await;
            return Ok(());
        };
        if self.settings.draining.is_cancelled() {
            reply.reject(prohibited(DRAINING)).await;
            return Ok(());
        }
        let Some(counted) = self.count() else {
            let limit = self.settings.config.max_channels;
            reply
                .reject(prohibited(format!("too many connections to nodes at a time; the limit is {limit}")))
                .await;
            return Ok(());
        };
        let dial = Arc::clone(&self.settings.dial);
        let (client, limit) = (self.settings.client, self.settings.config.dial_timeout);
        let (cut, line) = (CancellationToken::new(), self.settings.cut.clone());
        let host = host.to_owned();
        let inbox = self.inbound.open(channel.id());
        // The reading half is dropped: russh would wait on its queue.
        let (_, write) = channel.split();
        let way = ClientChannel { write, inbox, pressure: Arc::clone(&self.shared.pressure) };
        let span = debug_span!(parent: &self.span, "jump_channel", node = %host, port);
        // Apart from the connection's own loop: one slow node must not hold up the others.
        tokio::spawn(
            async move {
                let _counted = counted;
                let dialling = dial.dial(&identity, &certificate, &host, client, cut.clone());
                let dialled = tokio::time::timeout(limit, dialling).await;
                let refusal = match dialled {
                    Ok(Ok(stream)) => {
                        reply.accept().await;
                        if !way.carry(stream, &cut).await {
                            line.cancel();
                        }
                        return;
                    }
                    Ok(Err(refusal)) => {
                        debug!(%refusal, "connection to a node refused");
                        prohibited(refusal.to_string())
                    }
                    Err(_) => {
                        let reason = format!("{host} did not answer within {} s", limit.as_secs());
                        ChannelOpenFailure::Other { code: CONNECT_FAILED, reason }
                    }
                };
                way.inbox.refuse();
                reply.reject(refusal).await;
            }
            .instrument(span),
        );
        Ok(())
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), JumpError> {
        if self.sessions.len() >= MAX_SESSIONS {
            reply.reject(prohibited(ONLY_NODES)).await;
            return Ok(());
        }
        // Accepted only to be able to say something in `shell_request`.
        self.sessions.insert(channel.id(), false);
        reply.accept().await;
        Ok(())
    }

    async fn pty_request(
        &mut self,
        channel: ChannelId,
        _: &str,
        _: u32,
        _: u32,
        _: u32,
        _: u32,
        _: &[(Pty, u32)],
        session: &mut Session,
    ) -> Result<(), JumpError> {
        // No terminal exists; saying so would add a second, confusing message before the clear one.
        Ok(session.channel_success(channel)?)
    }

    async fn shell_request(&mut self, channel: ChannelId, session: &mut Session) -> Result<(), JumpError> {
        self.no_shell(channel, session)
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        _: &[u8],
        session: &mut Session,
    ) -> Result<(), JumpError> {
        self.no_shell(channel, session)
    }

    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        _: &str,
        session: &mut Session,
    ) -> Result<(), JumpError> {
        self.no_shell(channel, session)
    }

    async fn channel_close(&mut self, channel: ChannelId, _: &mut Session) -> Result<(), JumpError> {
        self.sessions.remove(&channel);
        if let Some(inbox) = self.inbound.close(channel) {
            inbox.close();
        }
        Ok(())
    }

    async fn channel_open_x11(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), JumpError> {
        reply.reject(prohibited(ONLY_NODES)).await;
        Ok(())
    }

    async fn channel_open_forwarded_tcpip(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), JumpError> {
        reply.reject(prohibited(ONLY_NODES)).await;
        Ok(())
    }

    async fn channel_open_direct_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), JumpError> {
        reply.reject(prohibited(ONLY_NODES)).await;
        Ok(())
    }
}
