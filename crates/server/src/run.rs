//! Starting, watching and stopping the services of one process.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::tasks::Tasks;
use futures::future::BoxFuture;
use sallyport_access::HostId;
use sallyport_audit::Sink;
use sallyport_sal::selection;
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::agent;
use crate::authority::{AuthConfig, Authority};
use crate::authority_listener;
use crate::config::{AuthSection, Config, DEFAULT_AUTH_PORT, HostPort, ProxySection};
use crate::crypto;
use crate::files;
pub use crate::health::Readiness;
use crate::health::{self, Health};
use crate::listener::{bind, bind_udp};
use crate::local_authority::LocalAuthority;
use crate::proxy::{self};
use crate::reloading::{Adjustable, Reloading};
use crate::{ServerError, local, logging, open_files, signals, telemetry};

/// What remains after sessions have ended or been ended is small: last bytes, last events.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// How often a drain is looked at, and how often it says how far it is when nothing has changed.
const DRAIN_LOOK: Duration = Duration::from_secs(1);
const DRAIN_WORD: Duration = Duration::from_secs(5);

/// Where the services listen.
#[derive(Debug, Clone, Default)]
pub struct Addresses {
    /// The one address of the proxy.
    pub proxy: Option<SocketAddr>,
    /// The authority's own address, when it has one.
    pub auth: Option<SocketAddr>,
    /// Health and metrics.
    pub diag: Option<SocketAddr>,
}

impl Addresses {
    fn ports(&self) -> Vec<u16> {
        [self.proxy, self.auth, self.diag].into_iter().flatten().map(|address| address.port()).collect()
    }
}

/// How far a process that stops has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draining {
    /// Sessions that are still open.
    pub sessions: usize,
    /// How long they may stay so.
    pub left: Duration,
}

impl std::fmt::Display for Draining {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let left = self.left.as_secs_f64().round();
        match self.sessions {
            0 => f.write_str("no session is open any more"),
            1 => write!(f, "1 session is still open, and is ended in {left} s"),
            open => write!(f, "{open} sessions are still open, and are ended in {left} s"),
        }
    }
}

/// Services that run in this process. Dropping it stops them at once.
#[derive(Debug)]
pub struct Running {
    addresses: Addresses,
    health: Health,
    drain_timeout: Duration,
    authority: Option<Authority>,
    proxy: Option<proxy::Service>,
    agent: Option<agent::Service>,
    /// Puts incidents of cryptography on record for as long as it is here.
    incidents: Option<Arc<crypto::Reporter>>,
    drain: CancellationToken,
    stop: CancellationToken,
    tasks: Tasks,
}

impl Adjustable for Running {
    fn drain_timeout(&self) -> Duration {
        self.drain_timeout
    }

    fn set_drain_timeout(&mut self, patience: Duration) {
        self.drain_timeout = patience;
    }

    async fn certificate_again(&self) -> Result<bool, ServerError> {
        let Some(page) = self.proxy.as_ref().map(|proxy| Arc::clone(&proxy.page)) else { return Ok(false) };
        let read = tokio::task::spawn_blocking(move || page.read_again()).await;
        read.map_err(|_| ServerError::Stopped("reading the certificate of the public pages"))?
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.drain.cancel();
        self.stop.cancel();
    }
}

impl Running {
    /// Where the services listen.
    #[must_use]
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// The id of the node in this process.
    #[must_use]
    pub fn node_id(&self) -> Option<HostId> {
        self.agent.as_ref().map(agent::Service::id)
    }

    /// The authority in this process.
    #[must_use]
    pub fn authority(&self) -> Option<&Authority> {
        self.authority.as_ref()
    }

    /// Sessions that are open in this process.
    #[must_use]
    pub fn sessions(&self) -> usize {
        let proxied = self.proxy.as_ref().map_or(0, |proxy| proxy.sessions.open());
        proxied.max(self.agent.as_ref().map_or(0, agent::Service::connections))
    }

    /// What is not ready yet.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.health.readiness()
    }

    /// Waits until every service is ready.
    ///
    /// # Errors
    /// After `patience`, what is still missing.
    pub async fn ready(&self, patience: Duration) -> Result<(), Readiness> {
        let mut readiness = self.health.subscribe();
        let wait = readiness.wait_for(|readiness| readiness.waiting.is_empty());
        match tokio::time::timeout(patience, wait).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(self.readiness()),
        }
    }

    /// Stops. Gracefully: no new work, sessions get the configured time to end, and what they left behind is handed
    /// to the authority. Otherwise at once.
    pub fn shutdown(self, graceful: bool) -> BoxFuture<'static, ()> {
        self.shutdown_telling(graceful, |_| {})
    }

    /// As [`Running::shutdown`]; says how far it is at the beginning, whenever that changes and every few seconds.
    pub fn shutdown_telling<'t>(
        self,
        graceful: bool,
        tell: impl Fn(Draining) + Send + Sync + 't,
    ) -> BoxFuture<'t, ()> {
        self.stop_all(graceful, Box::new(tell))
    }

    fn stop_all<'t>(
        self,
        graceful: bool,
        tell: Box<dyn Fn(Draining) + Send + Sync + 't>,
    ) -> BoxFuture<'t, ()> {
        Box::pin(async move {
            if graceful {
                self.drain_sessions(&*tell).await;
            }
            self.end().await;
        })
    }

    async fn end(self) {
        self.drain.cancel();
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(STOP_PATIENCE, self.tasks.wait()).await.is_err() {
            warn!(left = self.tasks.len(), "some connections did not end in time");
        }
        if let Some(authority) = &self.authority {
            authority.shutdown().await;
        }
        info!("stopped");
    }

    /// One report for the process, by the service that is nearest to the audit log: the authority, else the proxy, else
    /// the agent.
    fn report_incidents(&self) -> Option<Arc<crypto::Reporter>> {
        let (sink, host): (Arc<dyn Sink>, String) = match (&self.authority, &self.proxy, &self.agent) {
            (Some(authority), _, _) => (Arc::new(crypto::OwnLog::of(authority.clone())), "auth".to_owned()),
            (None, Some(proxy), _) => (Arc::new(proxy.spool.clone()), proxy.host.clone()),
            (None, None, Some(agent)) => (Arc::new(agent.spool()), agent.host().to_owned()),
            (None, None, None) => return None,
        };
        Some(crypto::Reporter::start(selection::global(), sink, host, self.health.clone()))
    }

    async fn drain_sessions(&self, tell: &(dyn Fn(Draining) + Send + Sync)) {
        info!(
            sessions = self.sessions(),
            timeout_s = self.drain_timeout.as_secs(),
            "draining: no new sessions from now on; a second signal ends the process at once"
        );
        self.drain.cancel();
        if let Some(proxy) = &self.proxy {
            proxy.drain();
        }
        let proxied = async {
            match &self.proxy {
                Some(proxy) => proxy.sessions.drained(self.drain_timeout).await,
                None => 0,
            }
        };
        let served = async {
            match &self.agent {
                Some(agent) => agent.drained(self.drain_timeout).await,
                None => 0,
            }
        };
        let both = async { tokio::join!(proxied, served) };
        let said = |draining: Draining| {
            info!(sessions = draining.sessions, left_s = draining.left.as_secs(), "draining: {draining}");
            tell(draining);
        };
        let (proxied, served) = tokio::select! {
            left = both => left,
            never = follow_drain(|| self.sessions(), self.drain_timeout, said) => match never {},
        };
        let left = proxied.max(served);
        if left > 0 {
            warn!(sessions = left, "draining: the time is over, so these sessions are ended");
        }
        info!("draining: recordings and events go to the authority");
        if let Some(agent) = &self.agent {
            agent.finish().await;
        }
        if let Some(proxy) = &self.proxy {
            proxy.flush().await;
        }
    }
}

/// Says how far a drain is, and never ends by itself.
async fn follow_drain(
    open: impl Fn() -> usize,
    patience: Duration,
    tell: impl Fn(Draining),
) -> std::convert::Infallible {
    let began = tokio::time::Instant::now();
    let mut look = tokio::time::interval(DRAIN_LOOK);
    let mut last: Option<(usize, tokio::time::Instant)> = None;
    loop {
        let now = look.tick().await;
        let sessions = open();
        if last.is_none_or(|(said, at)| said != sessions || now.duration_since(at) >= DRAIN_WORD) {
            last = Some((sessions, now));
            tell(Draining { sessions, left: patience.saturating_sub(now.duration_since(began)) });
        }
    }
}

/// The listening sockets, taken before any state is made: a port in use should leave no trace.
struct Sockets {
    proxy: Option<TcpListener>,
    /// The proxy's port by UDP.
    quic: Option<UdpSocket>,
    auth: Option<TcpListener>,
    diag: Option<TcpListener>,
}

impl Sockets {
    fn bind(config: &Config) -> Result<Self, ServerError> {
        let proxy = config.proxy.as_ref().map(|proxy| bind("the proxy", proxy.listen)).transpose()?;
        let quic = match (&config.proxy, proxy.as_ref().map(TcpListener::local_addr)) {
            (Some(section), Some(Ok(address))) if section.quic => bind_udp(address)
                .inspect_err(|error| {
                    warn!(%address, %error, "cannot bind the UDP port: no QUIC, clients and agents come by TCP alone");
                })
                .ok(),
            _ => None,
        };
        let auth = match &config.auth {
            Some(auth) => match (auth.listen, &config.proxy) {
                (Some(address), _) => Some(address),
                (None, None) => Some(SocketAddr::from((Ipv4Addr::UNSPECIFIED, DEFAULT_AUTH_PORT))),
                (None, Some(_)) => None,
            },
            None => None,
        };
        let auth = auth.map(|address| bind("the authority", address)).transpose()?;
        let diag = config.diag_addr.map(|address| bind("diagnostics", address)).transpose()?;
        Ok(Self { proxy, quic, auth, diag })
    }

    fn addresses(&self) -> Addresses {
        let of = |listener: &Option<TcpListener>| listener.as_ref().and_then(|l| l.local_addr().ok());
        Addresses { proxy: of(&self.proxy), auth: of(&self.auth), diag: of(&self.diag) }
    }
}

/// The address that invite links name: people reach the proxy, and never the authority's own address.
fn shown_address(public: &[HostPort], section: &AuthSection) -> Option<HostPort> {
    public.first().cloned().or_else(|| section.public_addr.clone())
}

/// The address to dial for what is bound to `address` on this machine.
fn from_here(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// What people type to reach a listener.
fn public_addresses(section: &ProxySection, bound: SocketAddr) -> Vec<HostPort> {
    if !section.public_addr.is_empty() {
        return section.public_addr.clone();
    }
    if bound.ip().is_unspecified()
        && let Ok(name) = crate::config::host_name()
    {
        return vec![HostPort { host: name.to_string(), port: bound.port() }];
    }
    vec![HostPort::from(bound)]
}

/// Starts what the configuration names. Some services become ready later: see [`Running::ready`]. The section `crypto` is
/// about the process, which belongs to the caller here: [`run`] follows it, this does not.
///
/// # Errors
/// [`ServerError`] when something cannot start; what had started is stopped again.
pub fn start(config: Config) -> BoxFuture<'static, Result<Running, ServerError>> {
    Box::pin(start_all(config))
}

/// Of a second start with the same configuration, the port is the lesser trouble: one on another port would still have the state of
/// the first.
fn rather_in_use(config: &Config, error: ServerError) -> ServerError {
    let locks = [
        config.auth.is_some().then_some("auth/state.db.lock"),
        config.proxy.is_some().then_some("proxy/lock"),
        config.node.is_some().then_some("node/lock"),
    ];
    let locked = |lock: &str| files::is_locked(&config.data_dir.join(lock));
    match error {
        ServerError::PortInUse { .. } if locks.into_iter().flatten().any(locked) => {
            files::in_use(&config.data_dir)
        }
        other => other,
    }
}

async fn start_all(config: Config) -> Result<Running, ServerError> {
    // Self-tests and first random numbers take time that no connection should pay for.
    let proving = tokio::task::spawn_blocking(crypto::prepare);
    let sockets = Sockets::bind(&config).map_err(|error| rather_in_use(&config, error))?;
    files::private_directory(&config.data_dir)?;
    let addresses = sockets.addresses();
    let mut running = Running {
        addresses: addresses.clone(),
        health: Health::new(),
        drain_timeout: config.drain_timeout,
        authority: None,
        proxy: None,
        agent: None,
        incidents: None,
        drain: CancellationToken::new(),
        stop: CancellationToken::new(),
        tasks: Tasks::new(),
    };
    proving.await.map_err(|_| ServerError::Stopped("the self-tests of cryptography"))??;
    running.tasks.spawn(health::keep_metrics(running.stop.clone()));
    if let Some(listener) = sockets.diag {
        let serving = health::serve_diagnostics(listener, running.health.clone(), running.stop.clone());
        running.tasks.spawn(serving);
    }
    let public = match (&config.proxy, addresses.proxy) {
        (Some(section), Some(bound)) => public_addresses(section, bound),
        _ => Vec::new(),
    };
    let mut here: Option<LocalAuthority> = None;
    if let Some(section) = &config.auth {
        let shown = shown_address(&public, section);
        let authority = Authority::open(
            AuthConfig {
                cluster: config.cluster.clone(),
                data_dir: config.data_dir.clone(),
                second_factor: section.second_factor,
                public_addr: shown.map(|address| address.to_string()).unwrap_or_default(),
                suite: section.suite,
                ca_keys: section.ca_keys.clone(),
                lifetimes: section.lifetimes.clone(),
                audit: section.audit.clone(),
                authentication: section.authentication.clone(),
                answer_patience: section.answer_patience,
                apart: AuthConfig::apart(&config.data_dir, config.secret_files()),
                require_fips: config.crypto.require_fips,
            },
            OffsetDateTime::now_utc(),
        )
        .await?;
        let local = local::authority(&authority, running.stop.clone());
        running.authority = Some(authority.clone());
        let socket = config.data_dir.join("admin.sock");
        running.tasks.spawn(local::admin_socket(authority.clone(), socket, running.stop.clone()));
        let disk = local::follow_disk(authority.follow_disk(), running.health.clone(), running.stop.clone());
        running.tasks.spawn(disk);
        if let Some(listener) = sockets.auth {
            authority_listener::start(authority_listener::Start {
                cluster: config.cluster.clone(),
                directory: config.data_dir.join("auth"),
                listener,
                authority: local.clone(),
                rotating: authority,
                drain: running.drain.clone(),
                stop: running.stop.clone(),
                tasks: running.tasks.clone(),
            })
            .await?;
        }
        here = Some(local);
    }
    if let (Some(section), Some(listener)) = (&config.proxy, sockets.proxy) {
        let service = proxy::start(proxy::Start {
            cluster: config.cluster.clone(),
            section: section.clone(),
            directory: config.data_dir.join("proxy"),
            listener,
            udp: sockets.quic,
            public_addr: public,
            authority: here.clone(),
            require_fips: config.crypto.require_fips,
            health: running.health.clone(),
            drain: running.drain.clone(),
            stop: running.stop.clone(),
            tasks: running.tasks.clone(),
        })
        .await?;
        running.proxy = Some(service);
    }
    if let Some(section) = config.node.clone() {
        let own = addresses.proxy.map(|bound| HostPort::from(from_here(bound)));
        let Some(proxy) = section.proxy_server.clone().or(own) else {
            return Err(ServerError::Join {
                what: "node",
                problem: "no proxy is configured".to_owned(),
                fix: "set node.proxy_server, or enable the section proxy".to_owned(),
            });
        };
        let service = agent::start(agent::Start {
            cluster: config.cluster.clone(),
            section,
            directory: config.data_dir.join("node"),
            proxy,
            listening: addresses.ports(),
            authority: here,
            require_fips: config.crypto.require_fips,
            health: running.health.clone(),
            drain: running.drain.clone(),
            stop: running.stop.clone(),
            tasks: running.tasks.clone(),
        })
        .await?;
        running.agent = Some(service);
    }
    running.incidents = running.report_incidents();
    info!(cluster = %config.cluster, proxy = ?addresses.proxy, auth = ?addresses.auth, "started");
    Ok(running)
}

/// Sets log, cryptography and open files of the process up, starts what the configuration names and runs until SIGTERM or
/// SIGINT, then drains. A second signal ends at once. On SIGHUP it reads `file` again, from which the configuration came, and
/// says which of it counts from then on.
///
/// # Errors
/// As [`start`].
pub fn run(config: Config, file: &Path) -> BoxFuture<'_, Result<(), ServerError>> {
    Box::pin(run_until_ended(config, file))
}

async fn run_until_ended(config: Config, file: &Path) -> Result<(), ServerError> {
    let traces = telemetry::prepare(&config)?;
    let level = logging::init(&config.log, traces.as_ref().map(|traces| &traces.telemetry));
    let export = traces.map(telemetry::Export::start);
    let mut operator = signals::Operator::listen().map_err(|source| ServerError::File {
        action: "listen for signals in",
        path: config.data_dir.clone(),
        source,
    })?;
    let _ignored = signals::keep_to_ourselves();
    crypto::configure(&config)?;
    open_files::raise(config.proxy.as_ref().map(|proxy| proxy.limits.connections));
    let mut reloading = Reloading::new(file, config.clone(), level);
    let mut running = tokio::select! {
        started = start(config) => started?,
        signal = operator.end() => {
            info!(signal, "stopping before everything was started");
            return Ok(());
        }
    };
    let signal = loop {
        match operator.end_or_reload().await {
            Some(signal) => break signal,
            None => reloading.run(&mut running).await,
        }
    };
    info!(signal, "stopping");
    let at_once = running.stop.clone();
    tokio::select! {
        () = running.shutdown(true) => {}
        signal = operator.end() => {
            warn!(signal, "second signal: ending at once");
            at_once.cancel();
            tokio::time::sleep(Duration::from_millis(200)).await;
            return Ok(());
        }
    }
    if let Some(export) = export {
        export.finish().await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn invite_links_name_what_people_reach() {
        let own = AuthSection { listen: Some("10.0.0.7:3025".parse().unwrap()), ..AuthSection::default() };
        assert_eq!(shown_address(&[], &own), None);
        let told = AuthSection { public_addr: Some("p.example:443".parse().unwrap()), ..own };
        assert_eq!(shown_address(&[], &told).unwrap().to_string(), "p.example:443");
        let public = ["q.example:3080".parse().unwrap()];
        assert_eq!(shown_address(&public, &told).unwrap().to_string(), "q.example:3080");
    }

    #[tokio::test]
    async fn a_drain_says_how_far_it_is() {
        let said = RefCell::new(Vec::new());
        let tell = |draining: Draining| said.borrow_mut().push(draining.to_string());
        let following = follow_drain(|| 3, Duration::from_secs(30), tell);
        // It says so right away, and not again right after that.
        assert!(tokio::time::timeout(Duration::from_millis(10), following).await.is_err());
        assert_eq!(said.into_inner(), ["3 sessions are still open, and are ended in 30 s"]);
        let of = |sessions| Draining { sessions, left: Duration::from_millis(2_600) }.to_string();
        assert_eq!(of(1), "1 session is still open, and is ended in 3 s");
        assert_eq!(of(0), "no session is open any more");
    }
}
