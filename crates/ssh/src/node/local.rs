//! The node's own machine as the back end.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::task::Poll;

use async_trait::async_trait;
use sallyport_access::Identity;
use sallyport_access::Permit;
use time::OffsetDateTime;
use tokio::net::TcpListener;

use super::agent::AgentSocket;
use super::apart::Apart;
use super::backend::{Asked, BackEnd, Connected, DisplayAsked, Listener, Place, Proof, Reach, Target};
use super::client::Client;
use super::error::{BeginError, EnterError};
use super::x11::Display;
use crate::BoxedStream;
use crate::session::logins::{self, LoginRecords, Who};
use crate::session::{
    self, Account, Ended, Ends, Input, Observer, Output, Ready, Request, Running, ShadowFile, StartError,
    admission, socket,
};

/// This machine and its accounts.
#[derive(Debug, Clone)]
pub(super) struct Local {
    pub(super) ready: Ready,
    /// Whether others than this machine may reach what is listened on for clients.
    pub(super) gateway_ports: bool,
    pub(super) login_records: Option<LoginRecords>,
    pub(super) kill_orphans: bool,
    /// The service that PAM is asked by about accounts.
    pub(super) pam_account: Option<String>,
    pub(super) shadow: ShadowFile,
    pub(super) apart: Apart,
    pub(super) pam_session: bool,
    pub(super) out_of_reach: bool,
    /// What ends sessions that were cut.
    pub(super) ends: Ends,
    /// Where the person is.
    pub(super) from: Option<IpAddr>,
}

/// One account of this machine.
#[derive(Debug)]
struct LocalPlace {
    account: Account,
    local: Local,
}

impl LocalPlace {
    fn start(&self, session: &Asked) -> Result<Running, StartError> {
        let Asked { kind, terminal, environment, hash_files, .. } = session.clone();
        let request = Request {
            account: self.account.clone(),
            kind,
            terminal,
            environment,
            hash_files,
            kill_orphans: self.local.kill_orphans,
            pam_session: self.local.pam_session,
        };
        session::start(&request, &self.local.ready)
            .inspect_err(|error| tracing::error!(%error, "cannot start a session"))
    }

    /// Enters a session with a terminal into the system's records, for as long as the result lives.
    async fn enter_login(&self, running: &Running, from: Option<IpAddr>) -> Option<Entered> {
        let records = self.local.login_records.clone().filter(|_| nix::unistd::geteuid().is_root())?;
        let (pid, terminal) = running.terminal()?;
        let who = Who { user: self.account.name.clone(), uid: self.account.uid, from, pid, terminal };
        let entered = tokio::task::spawn_blocking(move || logins::Login::enter(&records, &who)).await;
        entered.ok().flatten().map(|login| Entered(Some(login)))
    }
}

/// A login in the records; leaving them is not for the runtime to wait for.
struct Entered(Option<logins::Login>);

impl Drop for Entered {
    fn drop(&mut self) {
        if let (Some(login), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn_blocking(move || drop(login));
        }
    }
}

/// Ports below are root's (ip(7)); the node binds for accounts that are not.
const FIRST_FREE_PORT: u16 = 1024;

#[async_trait]
impl BackEnd for Local {
    async fn enter(&self, _: &Identity, _: Proof<'_>, permit: &Permit) -> Result<Arc<dyn Place>, EnterError> {
        let login = permit.login().to_string();
        // PAM knows what the file says, and more.
        let shadow = self.pam_account.is_none().then(|| self.shadow.clone());
        let find = move || {
            let account = Account::find(&login)?;
            if let Some(shadow) = shadow {
                shadow.admit(&account.name, OffsetDateTime::now_utc())?;
            }
            Ok::<_, EnterError>(account)
        };
        match tokio::task::spawn_blocking(find).await {
            Ok(Ok(account)) => {
                if let Some(service) = &self.pam_account {
                    admission::ask(&account, self.ready.helper(), service, self.from).await?;
                }
                Ok(Arc::new(LocalPlace { account, local: self.clone() }))
            }
            Ok(Err(refusal)) => Err(refusal),
            Err(error) => {
                tracing::error!(%error, "cannot look up an account");
                Err(EnterError::Stopping)
            }
        }
    }
}

#[async_trait]
impl Place for LocalPlace {
    fn serves_files(&self) -> bool {
        true
    }

    fn reaches_records(&self) -> bool {
        !self.local.out_of_reach
    }

    async fn begin(&self, session: &Asked) -> Result<Option<Running>, BeginError> {
        if !self.local.pam_session {
            return Ok(None);
        }
        let mut running = self.start(session)?;
        running.opened().await?;
        Ok(Some(running))
    }

    async fn run(
        &self,
        session: Asked,
        begun: Option<Running>,
        input: Box<dyn Input>,
        output: Arc<dyn Output>,
        observer: Arc<dyn Observer>,
    ) -> Ended {
        let running = begun.map_or_else(|| self.start(&session), Ok);
        match running {
            Ok(running) => {
                let _login = self.enter_login(&running, session.from).await;
                session::run(running, input, output, observer, &self.local.ends).await
            }
            Err(error) => Ended { exit: None, bytes_in: 0, bytes_out: 0, cut: Some(error.to_string()) },
        }
    }

    async fn agent(&self, client: Client) -> io::Result<Reach> {
        let socket = AgentSocket::open(&self.account, client)?;
        let path = socket.path().to_string_lossy().into_owned();
        let environment = vec![("SSH_AUTH_SOCK".to_owned(), path)];
        Ok(Reach { environment, _guard: Box::new(socket) })
    }

    async fn display(&self, client: Client, asked: &DisplayAsked) -> io::Result<Reach> {
        let display = Display::open(&self.account, client, asked).await?;
        Ok(Reach { environment: display.environment(), _guard: Box::new(display) })
    }

    async fn connect(&self, target: &Target) -> io::Result<Connected> {
        match target {
            Target::Port { host, port } => {
                let stream = self.local.apart.connect(host, *port).await?;
                let _ = stream.set_nodelay(true);
                let peer = stream.peer_addr().ok().map(|peer| peer.to_string());
                Ok(Connected { stream: Box::new(stream), peer })
            }
            Target::Socket { path } => {
                let stream = socket::connect(&self.account, self.local.ready.helper(), path).await?;
                Ok(Connected { stream: Box::new(stream), peer: None })
            }
        }
    }

    async fn listen(&self, target: &Target) -> io::Result<Box<dyn Listener>> {
        match target {
            Target::Port { host, port } => {
                if self.account.uid != 0 && (1..FIRST_FREE_PORT).contains(port) {
                    let reason =
                        format!("{port} is a port of the system; take one from {FIRST_FREE_PORT} on");
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
                }
                Ok(Box::new(Ports::bind(host, *port, self.local.gateway_ports).await?))
            }
            Target::Socket { path } => {
                Ok(Box::new(Socket(socket::listen(&self.account, self.local.ready.helper(), path).await?)))
            }
        }
    }
}

/// The sockets of one port: one for each kind of address.
struct Ports {
    sockets: Vec<TcpListener>,
    port: u16,
}

impl Ports {
    /// Binds as sshd does: to the loopback addresses whatever is asked for, unless the operator has opened the others.
    /// One of the addresses is enough.
    async fn bind(host: &str, port: u16, gateway: bool) -> io::Result<Self> {
        let mut bound = Self { sockets: Vec::new(), port };
        let mut failed = None;
        for address in addresses(host, gateway)? {
            match TcpListener::bind((address, bound.port)).await {
                Ok(socket) => {
                    bound.port = socket.local_addr()?.port();
                    bound.sockets.push(socket);
                    // With one that takes connections of both kinds, the other is in use.
                    if address == IpAddr::from(Ipv6Addr::UNSPECIFIED) {
                        break;
                    }
                }
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        match (bound.sockets.is_empty(), failed) {
            (true, Some(error)) => Err(error),
            _ => Ok(bound),
        }
    }
}

/// Where to listen when a client asks for `host`.
fn addresses(host: &str, gateway: bool) -> io::Result<Vec<IpAddr>> {
    let loopback = || vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    match host {
        _ if !gateway => Ok(loopback()),
        "localhost" => Ok(loopback()),
        "" | "*" => Ok(vec![Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()]),
        other => other.parse().map(|address| vec![address]).map_err(|_| {
            let reason =
                format!("{other:?} is no address of this machine; write an IP address, localhost or *");
            io::Error::new(io::ErrorKind::InvalidInput, reason)
        }),
    }
}

#[async_trait]
impl Listener for Ports {
    fn port(&self) -> u16 {
        self.port
    }

    async fn accept(&mut self) -> io::Result<(BoxedStream, Option<SocketAddr>)> {
        let accepted = std::future::poll_fn(|cx| {
            let ready = self.sockets.iter().map(|socket| socket.poll_accept(cx)).find(Poll::is_ready);
            ready.unwrap_or(Poll::Pending)
        });
        let (stream, from) = accepted.await?;
        let _ = stream.set_nodelay(true);
        Ok((Box::new(stream), Some(from)))
    }
}

/// A Unix socket of the account.
struct Socket(socket::Listening);

#[async_trait]
impl Listener for Socket {
    fn port(&self) -> u16 {
        0
    }

    async fn accept(&mut self) -> io::Result<(BoxedStream, Option<SocketAddr>)> {
        let stream = self.0.accept().await?;
        Ok((Box::new(stream), None))
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    #[test]
    fn only_an_open_node_listens_to_others() {
        let loopback = ["127.0.0.1", "::1"].map(|address| address.parse::<IpAddr>().unwrap());
        for host in ["", "*", "0.0.0.0", "localhost", "192.0.2.1", "::", "example.org"] {
            assert_eq!(addresses(host, false).unwrap(), loopback, "{host}");
        }
        assert_eq!(addresses("localhost", true).unwrap(), loopback);
        assert!(addresses("*", true).unwrap().iter().all(IpAddr::is_unspecified));
        assert_eq!(addresses("192.0.2.1", true).unwrap(), ["192.0.2.1".parse::<IpAddr>().unwrap()]);
        assert!(addresses("example.org", true).is_err());
    }

    #[tokio::test]
    async fn one_port_answers_on_both_loopback_addresses() {
        let mut ports = Ports::bind("", 0, false).await.unwrap();
        assert!(ports.port() > 0);
        let _client = TcpStream::connect(("127.0.0.1", ports.port())).await.unwrap();
        let (_, from) = ports.accept().await.unwrap();
        assert!(from.unwrap().ip().is_loopback());
        assert!(Ports::bind("", ports.port(), false).await.is_err());
    }
}
