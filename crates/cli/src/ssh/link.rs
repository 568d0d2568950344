//! One connection to a node: by which protocol, by which client, and what its errors mean.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sallyport_ssh::client::{
    ClientError, Connection, Session, SessionRequest, Settings, SftpStream, connect, connect_native,
    connect_pipelined,
};
use tokio_util::either::Either;
use tracing::debug;

use super::pipelining::Pipelining;
use super::plan::Plan;
use crate::error::{CliError, CliResult, Exit, chain};
use crate::ui;
use sallyport_client::connect;
use sallyport_client::native::{self, Protocol};
use sallyport_client::profile::Stored;
use sallyport_client::ssh_credentials;
use sallyport_client::transport::{self, Ending};
use sallyport_helper::node::{self as through_helper, Asked};
use sallyport_helper::stream;

/// Silence after which the node is asked for a sign of life.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// From the question to an authenticated connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// An authenticated connection to a node.
pub(crate) struct Link {
    pub(crate) connection: Connection,
    pub(super) node: String,
    login: String,
    ending: Ending,
    /// How long an answer may take.
    limit: Duration,
}

/// What a connection is for.
struct Purpose {
    agent: Option<PathBuf>,
    /// One session, and nothing besides.
    one_session: bool,
}

impl Link {
    pub(super) async fn open(stored: &Stored, node: &str, login: &str, plan: &Plan) -> CliResult<Self> {
        let limit = plan.options.connect_timeout.unwrap_or(CONNECT_TIMEOUT);
        let keepalive = plan.options.keepalive.unwrap_or(KEEPALIVE);
        let agent = plan.options.forward_agent.then(agent_socket).flatten();
        let purpose = Purpose { agent, one_session: plan.is_one_session() };
        Self::connect(stored, node, login, purpose, keepalive, limit).await
    }

    /// For the transfer of files, and nothing besides.
    pub(crate) async fn for_files(stored: &Stored, node: &str, login: &str) -> CliResult<Self> {
        let purpose = Purpose { agent: None, one_session: true };
        Self::connect(stored, node, login, purpose, KEEPALIVE, CONNECT_TIMEOUT).await
    }

    /// For commands other than ssh.
    pub(crate) async fn plain(stored: &Stored, node: &str, login: &str) -> CliResult<Self> {
        let purpose = Purpose { agent: None, one_session: false };
        Self::connect(stored, node, login, purpose, KEEPALIVE, CONNECT_TIMEOUT).await
    }

    async fn connect(
        stored: &Stored,
        node: &str,
        login: &str,
        Purpose { agent, one_session }: Purpose,
        keepalive: Duration,
        limit: Duration,
    ) -> CliResult<Self> {
        let pipelining = Pipelining::wanted()?;
        let connecting = async {
            let settings = Settings {
                login: login.to_owned(),
                host: node.to_owned(),
                trust: Arc::new(stored.trust()?),
                keepalive: (!keepalive.is_zero()).then_some(keepalive),
                agent,
            };
            let mut channel = None;
            let protocol = Protocol::wanted()?;
            let mut pipelined = one_session && pipelining.is_for(protocol, login);
            if protocol.may_be_native(login) {
                match through_helper::ask(stored, node, login).await? {
                    Asked::Native(stream, ending) => {
                        let connection = connect_native(stream, settings);
                        return Ok(Self {
                            connection,
                            node: node.to_owned(),
                            login: login.to_owned(),
                            ending,
                            limit,
                        });
                    }
                    Asked::SshAlone(_) if protocol == Protocol::Native => {
                        return Err(native::only_ssh(node).into());
                    }
                    Asked::SshAlone(made) => channel = made,
                }
            }
            let credentials = ssh_credentials::credentials(stored).await?;
            // An agent may ask its user: nothing goes ahead of that.
            pipelined &= credentials.are_held();
            loop {
                let helped = if channel.is_some() { None } else { stream::open(stored, node, login) };
                let (stream, ending) = match helped {
                    Some((stream, ending)) => (Either::Left(stream), ending),
                    None => {
                        let made = match &channel {
                            Some(made) => made.clone(),
                            None => connect::proxy(stored).await?,
                        };
                        channel = Some(made.clone());
                        let (stream, ending) = transport::open(made, &Arc::new(stored.clone()), node, login);
                        (Either::Right(stream), ending)
                    }
                };
                let connected = if pipelined {
                    connect_pipelined(stream, &credentials, settings.clone()).await
                } else {
                    connect(stream, &credentials, settings.clone()).await
                };
                match connected {
                    Ok(connection) => {
                        let (node, login) = (node.to_owned(), login.to_owned());
                        return Ok(Self { connection, node, login, ending, limit });
                    }
                    // Nothing of the user's was sent, and the other client knows more algorithms.
                    Err(ClientError::NotPipelined { reason, .. }) if pipelined => {
                        debug!(node, reason, "not pipelined");
                        pipelined = false;
                    }
                    // When the proxy ended the stream, its words are the cause and SSH's only the effect.
                    Err(error) => {
                        return Err(ending
                            .error(node, login)
                            .map_or_else(|| explain(&error), CliError::from));
                    }
                }
            }
        };
        tokio::time::timeout(limit, connecting).await.unwrap_or_else(|_| Err(silent(node, limit)))
    }

    pub(super) async fn start(&self, request: SessionRequest) -> CliResult<Session> {
        self.in_time(self.connection.start(request)).await
    }

    /// Opens the file transfer service.
    pub(crate) async fn files(&self) -> CliResult<SftpStream> {
        self.in_time(self.connection.sftp()).await
    }

    /// What begins with the login, where that goes with it, has the time of a login.
    async fn in_time<T>(&self, starting: impl Future<Output = Result<T, ClientError>>) -> CliResult<T> {
        let started = if self.connection.is_pipelined() {
            tokio::time::timeout(self.limit, starting).await.map_err(|_| silent(&self.node, self.limit))?
        } else {
            starting.await
        };
        started.map_err(|error| self.explain(&error))
    }

    /// The proxy's words about the end of the connection, when it had any.
    pub(crate) fn said(&self) -> Option<CliError> {
        self.ending.error(&self.node, &self.login).map(CliError::from)
    }

    /// What an error on this connection means.
    pub(crate) fn explain(&self, error: &ClientError) -> CliError {
        match error {
            ClientError::Lost { .. } => self.said().unwrap_or_else(|| explain(error)),
            // The login is part of it.
            _ if self.connection.is_pipelined() => self.said().unwrap_or_else(|| explain(error)),
            _ => explain(error),
        }
    }
}

fn silent(node: &str, limit: Duration) -> CliError {
    CliError::new(format!("{node} did not answer within {} s", limit.as_secs()))
        .hint("sallyport ls  (is it online?)")
}

fn agent_socket() -> Option<PathBuf> {
    let socket = std::env::var_os("SSH_AUTH_SOCK").filter(|socket| !socket.is_empty()).map(PathBuf::from);
    if socket.is_none() {
        ui::say("note: there is no SSH agent to forward (SSH_AUTH_SOCK is not set)");
    }
    socket
}

/// An SSH failure in words, with what to try.
fn explain(error: &ClientError) -> CliError {
    let said = chain(error, &error.to_string());
    match error {
        ClientError::HostCertificate { .. } | ClientError::PlainHostKey { .. } => CliError::new(said)
            .hint("do not go on before you know why: ask an administrator whether this node was replaced"),
        ClientError::Authentication { .. } => CliError::new(said)
            .hint("sallyport status  (is the certificate still valid, and does it carry this login?)"),
        _ => CliError::new(said),
    }
    .exit(Exit::Connection)
}
