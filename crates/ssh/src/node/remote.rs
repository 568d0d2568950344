//! A server elsewhere as the back end: sessions run there, over a connection of this process's own. Everything that a
//! node does in front of a session (deciding, recording, limits, locks) is done here in front of that server.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use russh::Pty;
use sallyport_access::permit::Permit;
use sallyport_access::{Identity, Login};
use sallyport_ca::Trust;
use ssh_key::Certificate;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::backend::{Asked, BackEnd, Connected, DisplayAsked, Listener, Place, Reach, Target};
use super::forward::inward::{Client, Opening};
use crate::BoxedStream;
use crate::client::{
    self, AgentSource, Connection, Credentials, Endpoint, Extras, Program, RemoteListener, Session,
    SessionInput, SessionOutput, SessionRequest, Settings, WindowSize,
};
use crate::session::{
    Channel, Ended, Exit, FileOperation, Gone, Happening, Incoming, Input, Kind, Output, Signal, Stop, Tap,
    Terminal,
};
use crate::sftp::observe::Observer;

/// Longest time from a user's proof to a login on the server.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(20);
/// Silence after which the server is asked for a sign of life.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// Bytes on their way between an agent and the server.
const AGENT_BYTES: usize = 64 * 1024;

/// How a server proves that it is the right one.
#[derive(Debug, Clone)]
pub struct ServerProof {
    /// The name that its certificate is for.
    pub name: String,
    /// The cluster's authorities.
    pub trust: Arc<Trust>,
    /// Its plain host key, one OpenSSH line, where it has no certificate and somebody has vouched for the key.
    pub pinned: Option<String>,
}

/// A server that one connection's sessions run on: how it is reached, and with what a user is let in there.
#[async_trait]
pub trait Upstream: Send + Sync + fmt::Debug {
    /// A connection to the server.
    ///
    /// # Errors
    /// What the person reads.
    async fn dial(&self) -> Result<BoxedStream, String>;

    /// How the server proves itself.
    fn proof(&self) -> ServerProof;

    /// What proves there that this user may log in. `certificate` is what the user has shown here, as one line.
    ///
    /// # Errors
    /// What the person reads.
    async fn credentials(
        &self,
        identity: &Identity,
        certificate: &str,
        login: &Login,
    ) -> Result<Credentials, String>;
}

/// The back end of one connection.
#[derive(Debug)]
pub(super) struct Remote(pub(super) Arc<dyn Upstream>);

#[async_trait]
impl BackEnd for Remote {
    async fn enter(
        &self,
        identity: &Identity,
        certificate: &Certificate,
        permit: &Permit,
    ) -> Result<Arc<dyn Place>, String> {
        match timeout(LOGIN_TIMEOUT, self.log_in(identity, certificate, permit)).await {
            Ok(Ok(place)) => Ok(Arc::new(place)),
            Ok(Err(reason)) => Err(reason),
            Err(_) => Err(format!(
                "no login on {} within {} s; check that it answers",
                self.0.proof().name,
                LOGIN_TIMEOUT.as_secs()
            )),
        }
    }
}

impl Remote {
    async fn log_in(
        &self,
        identity: &Identity,
        certificate: &Certificate,
        permit: &Permit,
    ) -> Result<RemotePlace, String> {
        let line = certificate.to_openssh().map_err(|error| error.to_string())?;
        let login = permit.login();
        // Neither waits for the other: on a first connection both ask somebody.
        let (credentials, stream) =
            tokio::try_join!(self.0.credentials(identity, &line, login), self.0.dial())?;
        let ServerProof { name, trust, pinned } = self.0.proof();
        let agent = Arc::new(Forwarded::default());
        let settings = Settings {
            login: login.to_string(),
            host: name.clone(),
            trust,
            keepalive: Some(KEEPALIVE),
            agent: None,
        };
        let extras = Extras { pinned, agent: Some(agent.clone()) };
        let connection = client::connect_with(stream, &credentials, settings, extras)
            .await
            .map_err(|error| describe(&error))?;
        Ok(RemotePlace { connection, name, agent })
    }
}

/// An error and what is behind it, in one line.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}

/// The user's agent, and how many sessions forward it: it is forgotten with the last one.
#[derive(Default)]
struct Forwarded(Mutex<(usize, Option<Client>)>);

impl Forwarded {
    fn with<T>(&self, act: impl FnOnce(&mut (usize, Option<Client>)) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One session that forwards it.
struct Forwarding(Arc<Forwarded>);

impl Drop for Forwarding {
    fn drop(&mut self) {
        self.0.with(|(sessions, client)| {
            *sessions = sessions.saturating_sub(1);
            if *sessions == 0 {
                *client = None;
            }
        });
    }
}

impl fmt::Debug for Forwarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Forwarded")
    }
}

#[async_trait]
impl AgentSource for Forwarded {
    async fn open(&self) -> io::Result<BoxedStream> {
        let client = self.with(|(_, client)| client.clone());
        let client = client.ok_or_else(|| io::Error::other("no agent is forwarded"))?;
        let (near, far) = tokio::io::duplex(AGENT_BYTES);
        tokio::spawn(async move { client.carry(Opening::Agent, Box::new(far)).await });
        Ok(Box::new(near))
    }
}

/// One login on the server.
#[derive(Debug)]
struct RemotePlace {
    connection: Connection,
    name: String,
    agent: Arc<Forwarded>,
}

/// Ends the session on the server when whoever runs it goes.
struct HangUp(Option<SessionInput>);

impl Drop for HangUp {
    fn drop(&mut self) {
        if let (Some(input), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move {
                let _ = input.close().await;
            });
        }
    }
}

#[async_trait]
impl Place for RemotePlace {
    async fn run(
        &self,
        session: Asked,
        input: Box<dyn Input>,
        output: Arc<dyn Output>,
        tap: Arc<dyn Tap>,
    ) -> Ended {
        let files = (session.kind == Kind::Sftp).then_some(Files { hashes: session.hash_files });
        match self.connection.start(request(session)).await {
            Ok(session) => carry(session, files, &self.name, input, output, tap).await,
            Err(error) => Ended { exit: None, bytes_in: 0, bytes_out: 0, cut: Some(describe(&error)) },
        }
    }

    async fn agent(&self, client: Client) -> io::Result<Reach> {
        self.agent.with(|(sessions, known)| {
            *sessions += 1;
            *known = Some(client);
        });
        let guard = Box::new(Forwarding(self.agent.clone()));
        // The server names the socket itself; the variable asks for one, see `request`.
        Ok(Reach { environment: vec![(AGENT_VARIABLE.to_owned(), String::new())], _guard: guard })
    }

    async fn display(&self, _: Client, _: &DisplayAsked) -> io::Result<Reach> {
        let reason = "X11 is not forwarded where a proxy records";
        Err(io::Error::new(io::ErrorKind::Unsupported, reason))
    }

    async fn connect(&self, target: &Target) -> io::Result<Connected> {
        let to = endpoint(target);
        let origin = SocketAddr::from(([127, 0, 0, 1], 0));
        let opened = self.connection.open_to(&to, origin).await;
        let stream = opened.map_err(|error| io::Error::other(describe(&error)))?;
        Ok(Connected { stream: Box::new(stream), peer: None })
    }

    async fn listen(&self, target: &Target) -> io::Result<Box<dyn Listener>> {
        let at = endpoint(target);
        let listener = self.connection.listen_remote(at).await;
        let listener = listener.map_err(|error| io::Error::other(describe(&error)))?;
        Ok(Box::new(There(listener)))
    }
}

fn endpoint(target: &Target) -> Endpoint {
    match target.clone() {
        Target::Port { host, port } => Endpoint::Port { host, port },
        Target::Socket { path } => Endpoint::Socket { path },
    }
}

/// Where the server listens.
struct There(RemoteListener);

#[async_trait]
impl Listener for There {
    fn port(&self) -> u16 {
        self.0.port()
    }

    async fn accept(&mut self) -> io::Result<(BoxedStream, Option<SocketAddr>)> {
        let gone =
            || io::Error::new(io::ErrorKind::ConnectionAborted, "the connection to the server is gone");
        self.0.accept().await.map(|stream| (stream, None)).ok_or_else(gone)
    }
}

/// Asks for the client's agent.
const AGENT_VARIABLE: &str = "SSH_AUTH_SOCK";
/// Variables that sshd sets itself, of its own connection.
const OWN_VARIABLES: [&str; 2] = ["SSH_CONNECTION", "SSH_CLIENT"];

fn request(asked: Asked) -> SessionRequest {
    let Asked { kind, terminal, mut environment, hash_files: _, from: _ } = asked;
    let forward_agent = environment.iter().any(|(name, _)| name == AGENT_VARIABLE);
    environment.retain(|(name, _)| name != AGENT_VARIABLE && !OWN_VARIABLES.contains(&name.as_str()));
    let program = match kind {
        Kind::Shell => Program::Shell,
        Kind::Exec(line) => Program::Exec(line),
        Kind::Sftp => Program::Subsystem("sftp".to_owned()),
    };
    let terminal = terminal.map(|Terminal { term, size, modes }| client::Terminal {
        term,
        size: window(size),
        modes: modes.into_iter().filter_map(|(code, value)| Some((Pty::from_u8(code)?, value))).collect(),
    });
    // The display is refused when a session asks for it; see [`Place::display`].
    SessionRequest { program, terminal, environment, forward_agent, display: None }
}

fn window(size: crate::session::Size) -> WindowSize {
    let narrow = |value: u32| u16::try_from(value).unwrap_or(u16::MAX);
    WindowSize {
        columns: narrow(size.columns),
        rows: narrow(size.rows),
        width: narrow(size.width),
        height: narrow(size.height),
    }
}

/// RFC 4254 §6.10's name.
fn signal_name(signal: Signal) -> Option<String> {
    let signal = nix::sys::signal::Signal::try_from(signal.as_raw()).ok()?;
    Some(signal.as_str().trim_start_matches("SIG").to_owned())
}

/// Why the bytes stopped early.
enum Early {
    Gone,
    Cut(String),
}

impl From<Gone> for Early {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

impl From<Stop> for Early {
    fn from(stop: Stop) -> Self {
        Self::Cut(stop.0)
    }
}

/// A file transfer.
#[derive(Clone, Copy)]
struct Files {
    /// The role wants the hashes of files.
    hashes: bool,
}

/// A session under way.
struct Carrying<'a> {
    name: &'a str,
    output: &'a dyn Output,
    tap: &'a dyn Tap,
    /// Where files are transferred: the content is not part of a recording, the operations are.
    observer: Option<Mutex<Observer>>,
    hashes: bool,
    exit: OnceLock<Exit>,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
}

async fn carry(
    session: Session,
    files: Option<Files>,
    name: &str,
    input: Box<dyn Input>,
    output: Arc<dyn Output>,
    tap: Arc<dyn Tap>,
) -> Ended {
    let (to_server, mut from_server) = session.split();
    let mut hang_up = HangUp(Some(to_server.clone()));
    let carrying = Carrying {
        name,
        output: output.as_ref(),
        tap: tap.as_ref(),
        observer: files.is_some().then(Mutex::default),
        hashes: files.is_some_and(|files| files.hashes),
        exit: OnceLock::new(),
        bytes_in: AtomicU64::new(0),
        bytes_out: AtomicU64::new(0),
    };
    // Unbounded in type; the front door bounds what it lets in before it is consumed.
    let (queue, queued) = mpsc::unbounded_channel();
    let early = {
        let inbound = carrying.read_client(input, queue, &to_server);
        let feed = carrying.feed_server(queued, &to_server);
        let outbound = carrying.read_server(&mut from_server);
        tokio::pin!(inbound, feed, outbound);
        let mut fed = false;
        loop {
            tokio::select! {
                biased;
                ended = &mut outbound => break ended.err(),
                early = &mut inbound => break Some(early),
                () = &mut feed, if !fed => fed = true,
            }
        }
    };
    let mut cut = match early {
        Some(Early::Cut(reason)) => Some(reason),
        Some(Early::Gone) => None,
        None => {
            // It has ended there.
            hang_up.0 = None;
            None
        }
    };
    for operation in carrying.unclosed() {
        if let Err(stop) = carrying.file(operation).await {
            cut.get_or_insert(stop.0);
        }
    }
    Ended {
        bytes_in: carrying.bytes_in.load(Ordering::Relaxed),
        bytes_out: carrying.bytes_out.load(Ordering::Relaxed),
        exit: carrying.exit.into_inner(),
        cut,
    }
}

impl Carrying<'_> {
    fn observe<T>(&self, read: impl FnOnce(&mut Observer) -> Result<T, String>) -> Result<Option<T>, Early> {
        let Some(observer) = &self.observer else { return Ok(None) };
        let mut observer = observer.lock().unwrap_or_else(PoisonError::into_inner);
        read(&mut observer)
            .map(Some)
            .map_err(|problem| Early::Cut(format!("this file transfer cannot be recorded: {problem}")))
    }

    async fn file(&self, mut operation: FileOperation) -> Result<(), Stop> {
        if self.hashes && operation.operation == "close" {
            operation.unhashed = Some("whoever records does not see the whole file".to_owned());
        }
        self.tap.happened(Happening::File(operation)).await
    }

    fn unclosed(&self) -> Vec<FileOperation> {
        self.observe(|observer| Ok(observer.finish())).ok().flatten().unwrap_or_default()
    }

    /// Takes what comes from the client as it comes; returns when the client has gone or the session is to end.
    async fn read_client(
        &self,
        mut input: Box<dyn Input>,
        queue: mpsc::UnboundedSender<Bytes>,
        to_server: &SessionInput,
    ) -> Early {
        let mut queue = Some(queue);
        loop {
            match input.next().await {
                None => return Early::Gone,
                Some(Incoming::Data(bytes)) => {
                    if let Err(stop) = self.tap.happened(Happening::Input(bytes.clone())).await {
                        return stop.into();
                    }
                    if let Err(early) = self.observe(|observer| observer.client(&bytes)) {
                        return early;
                    }
                    if let Some(queue) = &queue {
                        // A server that takes no more input is no reason to end: its output still counts.
                        let _ = queue.send(bytes);
                    }
                }
                Some(Incoming::Eof) => queue = None,
                Some(Incoming::Resize(size)) => {
                    let _ = to_server.resize(window(size)).await;
                    if let Err(stop) = self.tap.happened(Happening::Resize(size)).await {
                        return stop.into();
                    }
                }
                Some(Incoming::Signal(signal)) => {
                    if let Some(name) = signal_name(signal) {
                        let _ = to_server.signal(&name).await;
                    }
                }
                Some(Incoming::Cut(reason)) => return Early::Cut(reason),
            }
        }
    }

    async fn feed_server(&self, mut queued: mpsc::UnboundedReceiver<Bytes>, to_server: &SessionInput) {
        while let Some(bytes) = queued.recv().await {
            let length = bytes.len();
            if to_server.data(bytes).await.is_ok() {
                self.bytes_in.fetch_add(length as u64, Ordering::Relaxed);
            }
            self.output.consumed(length);
        }
        let _ = to_server.eof().await;
    }

    async fn read_server(&self, from_server: &mut SessionOutput) -> Result<(), Early> {
        while let Some(output) = from_server.next().await {
            match output {
                client::Output::Stdout(bytes) => {
                    match self.observe(|observer| observer.server(&bytes))? {
                        Some(operations) => {
                            for operation in operations {
                                self.file(operation).await?;
                            }
                        }
                        None => self.tap.happened(Happening::Output(bytes.clone())).await?,
                    }
                    self.send(Channel::Stdout, bytes).await?;
                }
                client::Output::Stderr(bytes) => {
                    self.tap.happened(Happening::Output(bytes.clone())).await?;
                    self.send(Channel::Stderr, bytes).await?;
                }
                client::Output::Started | client::Output::DisplayRefused => {}
                client::Output::TerminalRefused => {
                    self.say("the server gives no terminal; going on without one").await?;
                }
                client::Output::AgentRefused => {
                    self.say("the server takes no agent; going on without one").await?;
                }
                client::Output::Exit(exit) => return self.ended(exit).await,
            }
        }
        Ok(())
    }

    async fn send(&self, channel: Channel, bytes: Bytes) -> Result<(), Early> {
        let length = bytes.len() as u64;
        self.output.data(channel, bytes).await?;
        self.bytes_out.fetch_add(length, Ordering::Relaxed);
        Ok(())
    }

    /// Tells the person something that is not their program's output.
    async fn say(&self, text: &str) -> Result<(), Early> {
        Ok(self.output.data(Channel::Stderr, Bytes::from(format!("sallyport: {text}\r\n"))).await?)
    }

    async fn ended(&self, exit: client::Exit) -> Result<(), Early> {
        let exit = match exit {
            client::Exit::Status(status) => Exit::Status(status),
            client::Exit::Signal { name, core_dumped, .. } => Exit::Signal { name, core: core_dumped },
            client::Exit::Unknown => return Ok(()),
            client::Exit::Refused => {
                return Err(Early::Cut(format!("{} refused to run this", self.name)));
            }
            client::Exit::Lost { reason } => {
                let more = if reason.is_empty() { String::new() } else { format!(": {reason}") };
                return Err(Early::Cut(format!("the connection to {} was lost{more}", self.name)));
            }
        };
        let _ = self.exit.set(exit.clone());
        self.tap.happened(Happening::Exit(exit.clone())).await?;
        self.output.exited(&exit).await?;
        self.output.finished().await?;
        Ok(())
    }
}
