//! One SSH connection: who is on it, and what they ask for.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use russh::server::{Auth, ChannelOpenHandle, Config, Handler, Msg, Session};
use russh::{Channel, ChannelId, ChannelOpenFailure, ChannelWriteHalf, Disconnect, Pty, Sig};
use sallyport_access::permit::Permit;
use sallyport_access::{Identity, Login};
use sallyport_audit::{Code, Event};
use sallyport_sal::HybridKeyExchange;
use ssh_key::{Certificate, HashAlg};
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tracing::Instrument;

use super::channel::{self, Door};
use super::inbox::{Inbox, Pressure};
use super::record::Record;
use super::{ConnectionInfo, Inner, forward};
use crate::capabilities::{Heard, Offered, Sighting, Tap, Whose, hear_out, no_common_algorithm};
use crate::session::{Account, Incoming, Kind, Signal, Size, Terminal};
use crate::{Stream, algorithms};

/// How long a client has to hear of the end after it was told, before its line is dropped.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Variables that one session may set, and their bytes altogether.
const MAX_VARIABLES: usize = 64;
const MAX_VARIABLE_BYTES: usize = 32 * 1024;

/// What authentication found.
pub(super) enum Access {
    /// May have sessions; each is decided again.
    Granted(Box<Granted>),
    /// An authentic certificate, and no right to enter: reads why, and nothing else.
    Refused { message: String },
}

/// Who is on a connection, and what they may.
pub(super) struct Granted {
    identity: Identity,
    login: Login,
    account: Account,
    /// As decided when the connection began.
    permit: Permit,
}

/// What the parts of one connection share.
pub(super) struct Shared {
    pub(super) server: Arc<Inner>,
    pub(super) info: ConnectionInfo,
    pub(super) access: OnceLock<Access>,
    /// What the client says it can do.
    offered: Offered,
    /// Why the key exchange failed, when it was for want of an algorithm in common.
    no_common: OnceLock<String>,
    known: AtomicBool,
    pub(super) pressure: Arc<Pressure>,
    live: Mutex<Vec<Weak<Live>>>,
    pub(super) forwards: AtomicUsize,
    began: Instant,
    /// Milliseconds after `began` of the last thing that the person did.
    active: AtomicUsize,
    refused: AtomicBool,
    cut: Mutex<Option<String>>,
    wake: tokio::sync::Notify,
    line: CancellationToken,
}

/// A session that runs.
pub(super) struct Live {
    pub(super) inbox: Arc<Inbox>,
    pub(super) record: OnceLock<Arc<Record>>,
}

impl Shared {
    pub(super) fn new(server: Arc<Inner>, info: ConnectionInfo) -> Arc<Self> {
        Arc::new(Self {
            server,
            info,
            access: OnceLock::new(),
            offered: Offered::default(),
            no_common: OnceLock::new(),
            known: AtomicBool::new(false),
            pressure: Arc::default(),
            live: Mutex::default(),
            forwards: AtomicUsize::new(0),
            began: Instant::now(),
            active: AtomicUsize::new(0),
            refused: AtomicBool::new(false),
            cut: Mutex::default(),
            wake: tokio::sync::Notify::new(),
            line: CancellationToken::new(),
        })
    }

    /// Ends the connection and its sessions, and tells the person why.
    pub(super) fn cut(&self, reason: &str) {
        let mut cut = self.cut.lock().unwrap_or_else(PoisonError::into_inner);
        if cut.is_none() {
            *cut = Some(reason.to_owned());
        }
        drop(cut);
        for live in self.live().iter().filter_map(Weak::upgrade) {
            live.inbox.cut(reason);
        }
        self.wake.notify_one();
    }

    fn cut_reason(&self) -> Option<String> {
        self.cut.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn live(&self) -> MutexGuard<'_, Vec<Weak<Live>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn sessions_running(&self) -> usize {
        self.live().iter().filter(|live| live.strong_count() > 0).count()
    }

    /// Counts a session in for as long as the result lives.
    pub(super) fn enter(&self, inbox: &Arc<Inbox>) -> Arc<Live> {
        let entry = Arc::new(Live { inbox: inbox.clone(), record: OnceLock::new() });
        let mut live = self.live();
        live.retain(|live| live.strong_count() > 0);
        live.push(Arc::downgrade(&entry));
        entry
    }

    /// The records of the sessions that run on this connection.
    pub(super) fn records(&self) -> Vec<Arc<Record>> {
        self.live().iter().filter_map(Weak::upgrade).filter_map(|live| live.record.get().cloned()).collect()
    }

    /// The person did something.
    pub(super) fn touch(&self) {
        let now = usize::try_from(self.began.elapsed().as_millis()).unwrap_or(usize::MAX);
        self.active.store(now, Ordering::Relaxed);
    }

    fn idle(&self) -> Duration {
        let active = Duration::from_millis(self.active.load(Ordering::Relaxed) as u64);
        self.began.elapsed().saturating_sub(active)
    }

    /// Tells what the client can do and whose it is: of somebody who is known at once, of others when they are gone.
    fn saw(&self, user: Option<&Identity>) {
        let whose = match (user, self.info.client_addr) {
            (Some(user), _) => Some(Whose::User(user.display_name())),
            (None, address) => address.map(|address| Whose::Address(address.ip())),
        };
        if self.known.fetch_or(user.is_some(), Ordering::Relaxed) {
            return;
        }
        if let Some(offer) = self.offered.offer() {
            let refused = self.no_common.get().cloned();
            self.server.directory.saw(Sighting { offer: offer.clone(), whose, refused });
        }
    }

    pub(super) fn source(&self) -> String {
        self.info.client_addr.map(|address| address.to_string()).unwrap_or_default()
    }

    /// An event of this connection.
    pub(super) fn event(&self, code: Code) -> Event {
        let event = Event::new(code, OffsetDateTime::now_utc())
            .node(self.server.directory.node().name.as_str())
            .source(self.source());
        match self.access.get() {
            Some(Access::Granted(granted)) => {
                event.user(granted.identity.display_name()).login(granted.login.as_str())
            }
            _ => event,
        }
    }

    pub(super) fn refused(&self, event: Event) {
        self.refused.store(true, Ordering::Relaxed);
        self.server.sink.emit(event);
    }

    fn granted(&self) -> Option<&Granted> {
        match self.access.get() {
            Some(Access::Granted(granted)) => Some(granted),
            _ => None,
        }
    }

    /// Sessions that may run on this connection at once.
    pub(super) fn max_sessions(&self) -> usize {
        self.granted().map_or(1, |granted| granted.permit.options().max_sessions)
    }

    /// One session more is refused: the event, and what the person reads.
    pub(super) fn too_many_sessions(&self) -> String {
        let most = self.max_sessions();
        let message = format!("your roles allow {most} sessions on one connection; close one");
        self.refused(self.event(Code::SessionRefused).message(&message));
        message
    }

    /// Decides again: roles, locks and the certificate's end may have changed since.
    pub(super) fn decide(&self) -> Result<(&Account, Permit), String> {
        match self.access.get() {
            Some(Access::Granted(granted)) => {
                let Granted { identity, login, account, .. } = granted.as_ref();
                let directory = &self.server.directory;
                let decision = directory.policies().decide(
                    identity,
                    &directory.node(),
                    login,
                    &directory.locks(),
                    OffsetDateTime::now_utc(),
                );
                match decision {
                    Ok(permit) => Ok((account, permit)),
                    Err(refusal) => {
                        let mut event = self.event(Code::SessionRefused).message(refusal.to_string());
                        if let Some(rule) = refusal.rule() {
                            event = event.field("rule", rule);
                        }
                        self.refused(event);
                        Err(refusal.public_message())
                    }
                }
            }
            Some(Access::Refused { message }) => Err(message.clone()),
            None => Err("log in first".to_owned()),
        }
    }

    /// The lock that keeps out whoever is on this connection, if one has come.
    fn locked(&self) -> Option<String> {
        let granted = self.granted()?;
        let (identity, login) = (&granted.identity, &granted.login);
        let directory = &self.server.directory;
        directory
            .policies()
            .locked(
                identity,
                Some(&directory.node()),
                Some(login),
                &directory.locks(),
                OffsetDateTime::now_utc(),
            )
            .map(|refusal| refusal.public_message())
    }
}

/// Serves one connection to its end.
pub(super) async fn serve(
    stream: impl Stream + 'static,
    shared: Arc<Shared>,
    config: Arc<Config>,
    demand: HybridKeyExchange,
) {
    let span = tracing::info_span!(
        "ssh",
        peer = %shared.source(),
        user = tracing::field::Empty,
        login = tracing::field::Empty
    );
    let line = Line::new(stream, shared.line.clone());
    greet(line, &shared, config, demand).instrument(span).await;
    shared.saw(None);
    if shared.access.get().is_none() && !shared.refused.load(Ordering::Relaxed) {
        let event = shared.event(Code::SessionRefused);
        let event = match (shared.no_common.get(), shared.offered.offer()) {
            (Some(reason), Some(offer)) => event
                .message(format!("the client cannot talk to this node: {reason}"))
                .field("client", offer.software.as_str()),
            _ => event.message("the client presented no certificate of this cluster that is valid now"),
        };
        shared.server.sink.emit(event);
    }
}

/// Hears the client out first where not every one fits.
async fn greet(
    line: Line<impl Stream + 'static>,
    shared: &Arc<Shared>,
    config: Arc<Config>,
    demand: HybridKeyExchange,
) {
    match demand {
        HybridKeyExchange::Preferred => supervise(Tap::along(line, &shared.offered), shared, config).await,
        HybridKeyExchange::Required => {
            let heard = tokio::time::timeout(shared.server.config.login_timeout, hear_out(line)).await;
            match heard {
                Ok(Ok(Heard::Fits(greeted))) => {
                    supervise(Tap::along(greeted, &shared.offered), shared, config).await;
                }
                Ok(Ok(Heard::Refused { offer, reason })) => {
                    tracing::info!(client = offer.software, %reason, "a client was sent away");
                    shared.offered.set(offer);
                    let _ = shared.no_common.set(reason);
                }
                Ok(Err(error)) => tracing::debug!(%error, "no SSH connection"),
                Err(_) => tracing::debug!("the client said nothing"),
            }
        }
    }
}

async fn supervise(line: impl Stream + 'static, shared: &Arc<Shared>, config: Arc<Config>) {
    let connection = Connection { shared: shared.clone(), channels: HashMap::new() };
    let login_timeout = shared.server.config.login_timeout;
    let began = tokio::time::Instant::now();
    let greeting = tokio::time::timeout(login_timeout, russh::server::run_stream(config, line, connection));
    let mut session = match greeting.await {
        Ok(Ok(session)) => session,
        Ok(Err(error)) => return tracing::debug!(%error, "no SSH connection"),
        Err(_) => return tracing::debug!("the client said nothing"),
    };
    let handle = session.handle();
    let login_deadline = tokio::time::sleep_until(began + login_timeout);
    tokio::pin!(login_deadline);
    let mut changes = shared.server.directory.changes();
    let mut changes_end = false;
    let reason = loop {
        let idle_left = shared
            .granted()
            .and_then(|granted| granted.permit.options().client_idle_timeout)
            .map(|limit| (limit, limit.saturating_sub(shared.idle())));
        if let Some((limit, left)) = idle_left
            && left.is_zero()
        {
            break format!("nothing was typed or sent for {} s", limit.as_secs());
        }
        tokio::select! {
            ended = &mut session => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "the connection ended");
                    if let Some(reason) = no_common_algorithm(&error) {
                        let _ = shared.no_common.set(reason);
                    }
                }
                return;
            }
            () = &mut login_deadline, if shared.access.get().is_none() => {
                break format!("no login within {} s", login_timeout.as_secs());
            }
            () = shared.wake.notified() => {
                if let Some(reason) = shared.cut_reason() {
                    break reason;
                }
            }
            changed = changes.changed(), if !changes_end => {
                changes_end = changed.is_err();
                if let Some(reason) = shared.locked() {
                    break reason;
                }
            }
            () = sleep(idle_left.map_or(Duration::from_secs(3600), |(_, left)| left)) => {}
        }
    };
    tracing::info!(%reason, "cutting a connection");
    let sessions = shared.sessions_running();
    if shared.access.get().is_some() {
        shared.server.sink.emit(shared.event(Code::SessionCut).message(&reason).field("sessions", sessions));
    }
    shared.cut(&reason);
    // The sessions say it on their standard error; when they have, or have had their time, the line goes.
    let sessions_gone = async {
        while shared.sessions_running() > 0 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    let _ = tokio::time::timeout(LAST_WORDS, sessions_gone).await;
    let goodbye = async {
        let _ = handle.disconnect(Disconnect::ByApplication, reason, String::new()).await;
        let _ = (&mut session).await;
    };
    let _ = tokio::time::timeout(LAST_WORDS, goodbye).await;
    shared.line.cancel();
}

/// What a channel has asked for before it starts something.
#[derive(Default)]
struct Wishes {
    variables: Vec<(String, String)>,
    variable_bytes: usize,
    terminal: Option<Terminal>,
    agent: bool,
}

/// A channel of the client's.
struct Open {
    inbox: Arc<Inbox>,
    /// Taken when the session starts.
    write: Option<ChannelWriteHalf<Msg>>,
    wishes: Wishes,
}

/// russh's view of the connection. Its methods run one at a time and hold the connection up: none of them waits for
/// anything but room for input.
pub(super) struct Connection {
    shared: Arc<Shared>,
    channels: HashMap<ChannelId, Open>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        for open in self.channels.values() {
            open.inbox.leave();
        }
    }
}

impl Connection {
    /// Lets a channel in and keeps its sending half; what it receives comes through the methods below.
    fn register(&mut self, channel: Channel<Msg>) -> Arc<Inbox> {
        let inbox = Inbox::new(self.shared.pressure.clone(), &self.shared.server.config.spill_directory);
        let id = channel.id();
        // The reading half is dropped: russh would wait on its queue.
        let (_, write) = channel.split();
        self.channels
            .insert(id, Open { inbox: inbox.clone(), write: Some(write), wishes: Wishes::default() });
        inbox
    }

    async fn authorise(&self, user: &str, certificate: &Certificate) -> Result<Access, String> {
        let shared = &self.shared;
        let directory = &shared.server.directory;
        let now = OffsetDateTime::now_utc();
        let identity = match directory.trust().verify_user_ssh(certificate, now) {
            Ok(identity) => identity,
            Err(error) => {
                let event = shared
                    .event(Code::SessionRefused)
                    .message(error.to_string())
                    .login(user)
                    .field("key_id", certificate.key_id())
                    .field("ca", certificate.signature_key().fingerprint(HashAlg::Sha256).to_string());
                shared.refused(event);
                return Err(error.to_string());
            }
        };
        shared.saw(Some(&identity));
        let span = tracing::Span::current();
        span.record("user", identity.display_name());
        span.record("login", user);
        let refuse = |message: String, internal: String, rule: Option<&str>| {
            let mut event = shared
                .event(Code::SessionRefused)
                .user(identity.display_name())
                .login(user)
                .message(internal);
            if let Some(rule) = rule {
                event = event.field("rule", rule);
            }
            shared.refused(event);
            Ok(Access::Refused { message })
        };
        let login = match Login::new(user) {
            Ok(login) => login,
            Err(error) => return refuse(error.to_string(), error.to_string(), None),
        };
        let node = directory.node();
        let permit = match directory.policies().decide(&identity, &node, &login, &directory.locks(), now) {
            Ok(permit) => permit,
            Err(refusal) => {
                return refuse(refusal.public_message(), refusal.to_string(), refusal.rule());
            }
        };
        if !certificate.valid_principals().iter().any(|principal| principal == user) {
            let message = format!(
                "your certificate is not for the login {login}; log in again to get the logins that your roles have now"
            );
            return refuse(message.clone(), message, None);
        }
        let found = {
            let login = user.to_owned();
            tokio::task::spawn_blocking(move || Account::find(&login)).await
        };
        let account = match found {
            Ok(Ok(account)) => account,
            Ok(Err(error)) => return refuse(error.to_string(), error.to_string(), None),
            Err(error) => return refuse("this node is stopping".to_owned(), error.to_string(), None),
        };
        Ok(Access::Granted(Box::new(Granted { identity, login, account, permit })))
    }

    /// Starts what a channel asks for.
    fn start(&mut self, id: ChannelId, kind: Kind, session: &mut Session) -> Result<(), russh::Error> {
        let Some(open) = self.channels.get_mut(&id) else { return session.channel_failure(id) };
        // RFC 4254 §6.5: one program a channel.
        let Some(write) = open.write.take() else { return session.channel_failure(id) };
        let wishes = std::mem::take(&mut open.wishes);
        let inbox = open.inbox.clone();
        session.channel_success(id)?;
        let door = Door::new(write, session.handle(), inbox, self.shared.clone());
        let wanted = channel::Wanted {
            kind,
            terminal: wishes.terminal,
            variables: wishes.variables,
            agent: wishes.agent,
        };
        tokio::spawn(channel::session(door, wanted).in_current_span());
        Ok(())
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

    async fn auth_openssh_certificate(
        &mut self,
        user: &str,
        certificate: &Certificate,
    ) -> Result<Auth, Self::Error> {
        match self.authorise(user, certificate).await {
            Ok(access) => {
                // Once authenticated, a client cannot come back here (RFC 4252 §5.1).
                let _ = self.shared.access.set(access);
                Ok(Auth::Accept)
            }
            Err(reason) => {
                tracing::info!(%reason, login = user, "refused a certificate");
                Ok(Auth::reject())
            }
        }
    }

    async fn auth_succeeded(&mut self, _: &mut Session) -> Result<(), Self::Error> {
        self.shared.touch();
        self.shared.wake.notify_one();
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
        if self.channels.len() >= most.saturating_add(self.shared.server.config.max_forwards) {
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

    async fn channel_open_direct_tcpip(
        &mut self,
        channel: Channel<Msg>,
        host: &str,
        port: u32,
        _: &str,
        _: u32,
        reply: ChannelOpenHandle,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.shared.touch();
        let target = match forward::check(&self.shared, host, port) {
            Ok(target) => target,
            Err(message) => {
                reply.reject(prohibited(&message)).await;
                return Ok(());
            }
        };
        let id = channel.id();
        let inbox = self.register(channel);
        if let Some(write) = self.channels.get_mut(&id).and_then(|open| open.write.take()) {
            let door = Door::new(write, session.handle(), inbox, self.shared.clone());
            tokio::spawn(forward::run(door, reply, target).in_current_span());
        }
        Ok(())
    }

    async fn channel_open_direct_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        reply.reject(prohibited("Unix sockets are not forwarded by this node")).await;
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
        let message = "remote forwarding (-R) is not served by this node";
        self.shared.refused(
            self.shared
                .event(Code::SessionRefused)
                .message(message)
                .field("target", format!("{address}:{port}")),
        );
        session.debug(true, message, "")?;
        Ok(false)
    }

    async fn data(&mut self, id: ChannelId, data: &[u8], session: &mut Session) -> Result<(), Self::Error> {
        self.shared.touch();
        let Some(open) = self.channels.get(&id) else { return Ok(()) };
        if open.write.is_some() && open.inbox.is_full() {
            // Input for a program that was never started: nobody would take it.
            return session.close(id);
        }
        let inbox = open.inbox.clone();
        if let Err(error) = inbox.accept(Bytes::copy_from_slice(data)).await {
            inbox.cut(&error.to_string());
        }
        Ok(())
    }

    fn adjust_window(&mut self, channel: ChannelId, current: u32) -> u32 {
        // A reader that keeps up gets more at once, for long fast links; one that is behind gets little, so that what
        // its client wants to say besides is near.
        match self.channels.get(&channel) {
            Some(open) if open.inbox.is_behind() => 128 * 1024,
            Some(open) if open.inbox.is_empty() => {
                current.saturating_mul(2).clamp(super::config::FIRST_WINDOW_BYTES, algorithms::WINDOW_BYTES)
            }
            _ => current,
        }
    }

    async fn channel_eof(&mut self, id: ChannelId, _: &mut Session) -> Result<(), Self::Error> {
        if let Some(open) = self.channels.get(&id) {
            open.inbox.end();
        }
        Ok(())
    }

    async fn channel_close(&mut self, id: ChannelId, _: &mut Session) -> Result<(), Self::Error> {
        if let Some(open) = self.channels.remove(&id) {
            open.inbox.leave();
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
        match self.channels.get_mut(&id) {
            Some(open) if open.write.is_some() && term.len() <= 256 && !term.contains('\0') => {
                open.wishes.terminal = Some(Terminal {
                    term: term.to_owned(),
                    size: Size { columns, rows, width, height },
                    modes: modes.iter().map(|(code, value)| (*code as u8, *value)).collect(),
                });
                session.channel_success(id)
            }
            _ => session.channel_failure(id),
        }
    }

    async fn env_request(
        &mut self,
        id: ChannelId,
        name: &str,
        value: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let accepted =
            self.shared.server.config.accepts(name) && !value.contains('\0') && !name.contains(['\0', '=']);
        match self.channels.get_mut(&id) {
            Some(open)
                if accepted
                    && open.wishes.variables.len() < MAX_VARIABLES
                    && open.wishes.variable_bytes + value.len() <= MAX_VARIABLE_BYTES =>
            {
                open.wishes.variable_bytes += value.len();
                open.wishes.variables.push((name.to_owned(), value.to_owned()));
                session.channel_success(id)
            }
            _ => session.channel_failure(id),
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
        match system_signal(&signal) {
            Some(signal) => self.request(id, Incoming::Signal(signal)),
            None => Ok(()),
        }
    }

    async fn agent_request(&mut self, id: ChannelId, _: &mut Session) -> Result<bool, Self::Error> {
        let shared = self.shared.clone();
        let allowed = shared.granted().is_some_and(|granted| granted.permit.options().forward_agent);
        let Some(open) = self.channels.get_mut(&id) else { return Ok(false) };
        if !allowed && shared.granted().is_some() {
            shared.refused(
                shared
                    .event(Code::SessionRefused)
                    .message("agent forwarding: the roles do not allow it (options.forward_agent)"),
            );
        }
        open.wishes.agent = allowed && open.write.is_some();
        Ok(open.wishes.agent)
    }
}

pub(super) fn prohibited(message: &str) -> ChannelOpenFailure {
    ChannelOpenFailure::Other {
        code: ChannelOpenFailure::AdministrativelyProhibited.code(),
        reason: format!("sallyport: {message}"),
    }
}

/// The signals of RFC 4254 §6.10, and the one more that people use.
fn system_signal(signal: &Sig) -> Option<Signal> {
    Some(match signal {
        Sig::ABRT => Signal::ABORT,
        Sig::ALRM => Signal::ALARM,
        Sig::FPE => Signal::FPE,
        Sig::HUP => Signal::HUP,
        Sig::ILL => Signal::ILL,
        Sig::INT => Signal::INT,
        Sig::KILL => Signal::KILL,
        Sig::PIPE => Signal::PIPE,
        Sig::QUIT => Signal::QUIT,
        Sig::SEGV => Signal::SEGV,
        Sig::TERM => Signal::TERM,
        Sig::USR1 => Signal::USR1,
        Sig::Custom(name) if name == "USR2" => Signal::USR2,
        Sig::Custom(_) => return None,
    })
}

/// The connection's stream, with a switch that ends it from outside.
struct Line<S> {
    stream: S,
    token: CancellationToken,
    cancelled: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<S> Line<S> {
    fn new(stream: S, token: CancellationToken) -> Self {
        let cancelled = Box::pin(token.clone().cancelled_owned());
        Self { stream, token, cancelled }
    }

    fn off() -> io::Error {
        io::Error::new(io::ErrorKind::ConnectionAborted, "the connection was cut")
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Line<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.cancelled.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(Self::off()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Line<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        // Both halves are polled by one task, so the waker that the future keeps is always the right one.
        if self.token.is_cancelled() || self.cancelled.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(Self::off()));
        }
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
