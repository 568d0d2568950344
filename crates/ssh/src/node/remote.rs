//! A server elsewhere as the back end: sessions run there, over a connection of this process's own. Everything that a
//! node does in front of a session (deciding, recording, limits, locks) is done here in front of that server.

mod again;
mod carry;
mod lent;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sallyport_access::Permit;
use sallyport_access::{Identity, Login};
use sallyport_ca::Trust;
use sallyport_ca::keys::fingerprint;
use ssh_key::Certificate;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use super::backend::{Asked, BackEnd, Connected, DisplayAsked, Listener, Place, Proof, Reach, Target};
use super::client::Client;
use super::copying;
use super::error::{EnterError, LoginError, UpstreamError, describe};
use crate::agent::UserAgent;
use crate::client::{
    self, ClientError, Connection, Credentials, Display, Endpoint, Extras, NativeExtras, Program,
    RemoteListener, SessionRequest, Settings,
};
use crate::session::{Ended, Ends, Input, Kind, Observer, Output, Running};
use crate::{BoxedStream, Stream};
use carry::{Files, Server, carry};
use lent::{Lent, LentDisplay, agent_of};

/// Longest time from a user's proof to a login on the server.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(20);
/// Silence after which the server is asked for a sign of life.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// How a server proves that it is the right one.
#[derive(Debug, Clone)]
pub struct ServerProof {
    /// The name that its certificate is for.
    pub name: String,
    /// The cluster's authorities.
    pub trust: Arc<Trust>,
    /// Its plain host key, one OpenSSH line, where it has no certificate and an administrator has vouched for the key.
    pub pinned: Option<String>,
}

/// Who signs a login on a server.
#[derive(Debug, Clone)]
pub enum LoginBy {
    /// This process, with what [`Upstream::credentials`] gives.
    Itself,
    /// The user, whose agent this is, for the certificate that the user has shown.
    Agent(UserAgent),
    /// The same, but with an agent that the user's SSH forwards (`ssh -A`): the login waits for a session that does.
    ForwardedAgent,
}

/// A login that a user's agent has signed.
#[derive(Debug)]
pub struct AgentLogin<'a> {
    /// Whose it is.
    pub identity: &'a Identity,
    /// As which account.
    pub login: &'a Login,
    /// The certificate, over the key that has signed.
    pub certificate: &'a Certificate,
    /// The agent was forwarded inside SSH.
    pub forwarded: bool,
}

impl AgentLogin<'_> {
    /// The key that has signed, as `SHA256:...`.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        fingerprint(self.certificate.public_key())
    }
}

/// A server that one connection's sessions run on: how it is reached, and with what a user is let in there.
#[async_trait]
pub trait Upstream: Send + Sync + fmt::Debug {
    /// A connection to the server.
    ///
    /// # Errors
    /// [`UpstreamError::Unreached`], whose words the user reads.
    async fn dial(&self) -> Result<BoxedStream, UpstreamError>;

    /// How the server proves itself.
    fn proof(&self) -> ServerProof;

    /// What people call the server.
    fn name(&self) -> String {
        self.proof().name
    }

    /// Who signs logins there.
    fn login_by(&self) -> LoginBy {
        LoginBy::Itself
    }

    /// What proves there that this user may log in, where this process signs. `certificate` is what the user has shown
    /// here, as one line.
    ///
    /// # Errors
    /// [`UpstreamError::NoCredentials`], whose words the user reads.
    async fn credentials(
        &self,
        identity: &Identity,
        certificate: &str,
        login: &Login,
    ) -> Result<Credentials, UpstreamError>;

    /// A user's agent has signed, and the server has let the user in.
    fn signed(&self, _: &AgentLogin<'_>) {}
}

/// The back end of one connection.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) upstream: Arc<dyn Upstream>,
    /// What ends sessions that were cut.
    pub(super) ends: Ends,
}

#[async_trait]
impl BackEnd for Remote {
    async fn enter(
        &self,
        identity: &Identity,
        proof: Proof<'_>,
        permit: &Permit,
    ) -> Result<Arc<dyn Place>, EnterError> {
        // The server is shown what the user has shown, or a login that goes by it.
        let Proof::Ssh(certificate) = proof else {
            return Err(EnterError::OnlySsh { server: self.upstream.name() });
        };
        let place = RemotePlace {
            name: self.upstream.name(),
            upstream_login: Some(UpstreamLogin {
                upstream: self.upstream.clone(),
                identity: identity.clone(),
                certificate: certificate.clone(),
                login: permit.login().clone(),
            }),
            connection: OnceCell::new(),
            agent: Arc::default(),
            display: Arc::default(),
            ends: self.ends.clone(),
        };
        match self.upstream.login_by() {
            LoginBy::Itself => place.enter(None, false).await?,
            LoginBy::Agent(agent) => place.enter(Some(agent), false).await?,
            LoginBy::ForwardedAgent => {}
        }
        Ok(Arc::new(place))
    }
}

/// One login on the server.
#[derive(Debug)]
pub(super) struct RemotePlace {
    name: String,
    /// How to log in; none where the caller has brought a connection that is logged in.
    upstream_login: Option<UpstreamLogin>,
    /// Empty until the login is signed, which may need the client's agent.
    connection: OnceCell<Connection>,
    agent: Arc<Lent>,
    display: Arc<Lent>,
    ends: Ends,
}

/// How a user is logged in on a server.
#[derive(Debug)]
struct UpstreamLogin {
    upstream: Arc<dyn Upstream>,
    identity: Identity,
    certificate: Certificate,
    login: Login,
}

impl RemotePlace {
    /// The place of a login on a node that speaks the native protocol, on a proven stream.
    pub(super) fn native(stream: impl Stream + 'static, settings: Settings, ends: Ends) -> Self {
        let (name, agent) = (settings.host.clone(), Arc::<Lent>::default());
        let extras = NativeExtras { agent: Some(agent.clone()), one_of_many: true };
        let connection = client::connect_native_with(stream, settings, extras);
        let connection = OnceCell::new_with(Some(connection));
        Self { name, upstream_login: None, connection, agent, display: Arc::default(), ends }
    }

    /// Waits until the connection has ended, and says why.
    pub(super) async fn ended(&self) -> String {
        let Some(connection) = self.connection.get() else { return std::future::pending().await };
        let reason = connection.ended().await;
        if reason.is_empty() { LoginError::Lost { server: self.name.clone() }.to_string() } else { reason }
    }

    /// Logs in, once.
    async fn enter(&self, agent: Option<UserAgent>, forwarded: bool) -> Result<(), LoginError> {
        let log_in = || async {
            timeout(LOGIN_TIMEOUT, self.log_in(agent, forwarded)).await.unwrap_or_else(|_| {
                Err(LoginError::Silent { server: self.name.clone(), seconds: LOGIN_TIMEOUT.as_secs() })
            })
        };
        self.connection.get_or_try_init(log_in).await.map(|_| ())
    }

    async fn log_in(&self, agent: Option<UserAgent>, forwarded: bool) -> Result<Connection, LoginError> {
        let Some(UpstreamLogin { upstream, identity, certificate, login }) = &self.upstream_login else {
            return Err(LoginError::Lost { server: self.name.clone() });
        };
        let by_agent = agent.is_some();
        let (credentials, stream) = match agent {
            Some(agent) => (Credentials::of_agent(agent, certificate.clone()), upstream.dial().await?),
            None => {
                let line = certificate.to_openssh()?;
                let credentials = upstream.credentials(identity, &line, login);
                // Neither waits for the other: on a first connection both ask another process.
                tokio::try_join!(credentials, upstream.dial())?
            }
        };
        let ServerProof { name, trust, pinned } = upstream.proof();
        let settings =
            Settings { login: login.to_string(), host: name, trust, keepalive: Some(KEEPALIVE), agent: None };
        let extras = Extras { pinned, whom: client::Whom::Server, agent: Some(self.agent.clone()) };
        let connection = client::connect_with(stream, &credentials, settings, extras)
            .await
            .map_err(|error| LoginError::Client(Box::new(error)))?;
        if by_agent {
            upstream.signed(&AgentLogin { identity, login, certificate, forwarded });
        }
        Ok(connection)
    }

    fn connection(&self) -> Result<&Connection, LoginError> {
        self.connection.get().ok_or_else(|| LoginError::NoAgent { server: self.name.clone() })
    }
}

#[async_trait]
impl Place for RemotePlace {
    async fn run(
        &self,
        session: Asked,
        _: Option<Running>,
        input: Box<dyn Input>,
        output: Arc<dyn Output>,
        observer: Arc<dyn Observer>,
    ) -> Ended {
        let cut = |problem| Ended { exit: None, bytes_in: 0, bytes_out: 0, cut: Some(problem) };
        let connection = match self.connection() {
            Ok(connection) => connection,
            Err(problem) => return cut(problem.to_string()),
        };
        // A node of ours tells of its files itself.
        let serves_files = session.kind == Kind::Sftp || copying::is_file_server(&session.kind);
        let observed = serves_files && !connection.is_native();
        let files = observed.then_some(Files { hashes: session.hash_files });
        match connection.start(self.request(session)).await {
            Ok(session) => {
                let server = Server { connection, name: &self.name, ends: &self.ends };
                carry(session, server, files, input, output, observer).await
            }
            Err(error) => cut(describe(&error)),
        }
    }

    fn wants_agent(&self) -> bool {
        !self.connection.initialized()
    }

    async fn lend_agent(&self, client: Option<Client>) -> Result<(), LoginError> {
        match client {
            Some(client) => self.enter(Some(UserAgent::over(agent_of(client))), true).await,
            None => self.connection().map(|_| ()),
        }
    }

    async fn agent(&self, client: Client) -> io::Result<Reach> {
        // The server names the socket itself; the variable asks for one, see `request`.
        let environment = vec![(AGENT_VARIABLE.to_owned(), String::new())];
        Ok(Reach { environment, _guard: Box::new(self.agent.lend(client)) })
    }

    async fn display(&self, client: Client, _: &DisplayAsked) -> io::Result<Reach> {
        Ok(Reach { environment: Vec::new(), _guard: Box::new(self.display.lend(client)) })
    }

    async fn connect(&self, target: &Target) -> io::Result<Connected> {
        let to = endpoint(target);
        let origin = SocketAddr::from(([127, 0, 0, 1], 0));
        let connection = self.connection().map_err(io::Error::other)?;
        let stream = connection.open_to(&to, origin).await.map_err(|error| {
            io::Error::other(match error {
                // A node of ours says what it was.
                ClientError::Refused { reason, .. } if connection.is_native() => reason,
                error => describe(&error),
            })
        })?;
        Ok(Connected { stream: Box::new(stream), peer: None })
    }

    async fn listen(&self, target: &Target) -> io::Result<Box<dyn Listener>> {
        let at = endpoint(target);
        let listener = self.connection().map_err(io::Error::other)?.listen_remote(at).await;
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
pub(super) const AGENT_VARIABLE: &str = "SSH_AUTH_SOCK";
/// Variables that sshd sets itself, of its own connection.
const OWN_VARIABLES: [&str; 2] = ["SSH_CONNECTION", "SSH_CLIENT"];

impl RemotePlace {
    fn request(&self, asked: Asked) -> SessionRequest {
        let Asked { kind, terminal, mut environment, hash_files: _, from: _, display } = asked;
        let forward_agent = environment.iter().any(|(name, _)| name == AGENT_VARIABLE);
        environment.retain(|(name, _)| name != AGENT_VARIABLE && !OWN_VARIABLES.contains(&name.as_str()));
        let program = match kind {
            Kind::Shell => Program::Shell,
            Kind::Exec(line) => Program::Exec(line),
            Kind::Sftp => Program::Subsystem("sftp".to_owned()),
        };
        let display = display.map(|DisplayAsked { single, protocol, cookie, screen }| {
            let name = format!("X11 on {}", self.name);
            let origin = LentDisplay { lent: self.display.clone(), name };
            Arc::new(Display::of(Arc::new(origin), &protocol, &cookie, screen, single))
        });
        SessionRequest { program, terminal, environment, forward_agent, display }
    }
}
