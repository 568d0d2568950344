//! The agent's reverse connection to the proxy.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::tasks::Tasks;
use futures::future::BoxFuture;
use sallyport_access::HostRole;
use sallyport_ssh::client::PHASE;
use sallyport_telemetry::Trust;
use sallyport_wire::carrier::{self, Winner};
use sallyport_wire::stream_header::{Carries, StreamHeader};
use sallyport_wire::trace_context::TraceContext;
use sallyport_wire::tunnel::{self, Handle, Tunnel, TunnelError};
use sallyport_wire::{READ_AHEAD_BYTES, alpn};
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_util::sync::CancellationToken;
use tracing::field::Empty;
use tracing::{Instrument, Span, debug, info, info_span, warn};

use super::client_context::{ClientContext, ServeStream};
use super::databases::AgentDatabases;
use super::gateway::Gateway;
use super::proxies::Proxy;
use super::resources::AgentResources;
use crate::ServerError;
use crate::backoff::{Backoff, chance};
use crate::config::{HostPort, TunnelCarrier};
use crate::dialling::{CONNECT_TIMEOUT, dial, handshake};
use crate::health::Health;
use crate::member::cluster_cache::ClusterCache;
use crate::member::host::Credentials;
use crate::telemetry;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// A tunnel that lived this long was a good one: the next failure starts with short pauses again.
const GOOD_LIFE: Duration = Duration::from_secs(5);
/// How often it is said again that the proxy cannot be reached.
const SAY_AGAIN: Duration = Duration::from_secs(30);
/// A tunnel whose proxy is leaving, or whose certificate was renewed, keeps its sessions for at most this long.
const RETIRED_LIFE: Duration = Duration::from_secs(24 * 3600);

/// A tunnel that was replaced is let go in two steps, each after it was not used for this time: longer than a stream
/// that was opened on it can take to arrive, on whatever machine.
const UNUSED: Duration = Duration::from_secs(15);

/// How often a tunnel is asked whether its proxy is leaving, and a retired one whether its last session has ended.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Keeps one tunnel to the proxy.
pub(crate) struct Dialling {
    pub(crate) proxy: HostPort,
    pub(crate) carrier: TunnelCarrier,
    pub(crate) credentials: Credentials,
    pub(crate) view: Arc<ClusterCache>,
    pub(crate) serve: ServeStream,
    /// For streams to servers behind this node.
    pub(crate) gateway: Gateway,
    /// For streams to databases, where they are served.
    pub(crate) databases: Option<AgentDatabases>,
    /// For streams to resources of the catalogue, where they are served.
    pub(crate) resources: Option<AgentResources>,
    pub(crate) health: Health,
    /// No new sessions.
    pub(crate) drain: CancellationToken,
    /// Everything ends.
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: Tasks,
}

/// The readiness part of the tunnel.
pub(crate) const PART: &str = "node";

/// A tunnel that has just been opened.
struct Dialled {
    handle: Handle,
    incoming: tunnel::Incoming,
    /// The certificate that it was opened with.
    chain: String,
    /// Whom it was opened to.
    proxy: Arc<Proxy>,
}

/// Why a tunnel is no longer the current one.
enum Ended {
    /// The proxy said that it is leaving; sessions go on.
    Retired,
    /// The certificate was renewed, and a tunnel with the new one is there; sessions go on.
    Replaced(Box<Dialled>),
    /// It is gone.
    Closed(TunnelError),
}

/// Waits until the proxy says that it takes no more streams on this tunnel.
async fn proxy_leaves(handle: &Handle) {
    let mut look = tokio::time::interval(LOOK_INTERVAL);
    while handle.is_open() {
        look.tick().await;
    }
}

impl Dialling {
    /// Dials, serves and dials again until told to stop.
    pub(crate) async fn run(self) {
        let this = Arc::new(self);
        let span = info_span!("agent.tunnel", proxy = %this.proxy);
        let forever = Arc::clone(&this).forever();
        tokio::select! {
            () = forever.instrument(span) => {}
            () = this.stop.cancelled() => {}
        }
    }

    async fn forever(self: Arc<Self>) {
        let (mut backoff, mut said) = (Backoff::new(FIRST_PAUSE, LONGEST_PAUSE), None);
        loop {
            let (began, mut failed) = (Instant::now(), None);
            match self.connect().await {
                Ok(mut tunnel) => {
                    said = None;
                    info!("connected to the proxy");
                    self.health.ready(PART);
                    let ended = loop {
                        match self.serve_tunnel(tunnel).await {
                            Ended::Replaced(next) => tunnel = *next,
                            Ended::Retired => break None,
                            Ended::Closed(error) => break Some(error),
                        }
                    };
                    if began.elapsed() >= GOOD_LIFE || ended.is_none() {
                        backoff.reset();
                    }
                    match ended {
                        None => info!("opening a fresh tunnel"),
                        Some(error) => {
                            self.health.waiting(PART, "the tunnel to the proxy was lost");
                            warn!(%error, "the tunnel to the proxy was lost; dialling again");
                        }
                    }
                }
                Err(error) => {
                    self.health.waiting(PART, format!("cannot reach the proxy {}: {error}", self.proxy));
                    if said.is_none_or(|said: Instant| said.elapsed() >= SAY_AGAIN) {
                        said = Some(Instant::now());
                        warn!(%error, "cannot reach the proxy; trying again");
                    } else {
                        debug!(%error, "cannot reach the proxy; trying again");
                    }
                    failed = Some(error);
                }
            }
            if self.drain.is_cancelled() {
                // Sessions that live on do so in their own tasks.
                std::future::pending::<()>().await;
            }
            match failed {
                Some(error) => backoff.wait_after(&error).await,
                None => backoff.wait().await,
            }
        }
    }

    async fn connect(&self) -> io::Result<Dialled> {
        let chain = self.credentials.identity().tls_chain.clone();
        let config = self.credentials.client(&self.view.trust(), alpn::TUNNEL).map_err(io::Error::other)?;
        let server = sallyport_ca::server_name(HostRole::Proxy, self.view.cluster());
        let (identity, (handle, incoming)) = match self.carry(config, &server).await? {
            Winner::Tcp(tls) => {
                let shown = tls.get_ref().1.peer_certificates().unwrap_or_default();
                (Proxy::proven(shown, &self.view)?, Tunnel::client(tls, tunnel::Config::default()))
            }
            Winner::Quic(stream) => {
                let identity = Proxy::proven(&stream.told().certificates, &self.view)?;
                (identity, Tunnel::client(stream, tunnel::Config::default()))
            }
        };
        let proxy = Arc::new(Proxy::of(identity, Arc::clone(&self.view), handle.clone()));
        Ok(Dialled { handle, incoming, chain, proxy })
    }

    /// The proxy, proven, by the carrier that is asked for.
    async fn carry(
        &self,
        config: Arc<ClientConfig>,
        server: &str,
    ) -> io::Result<Winner<TlsStream<BufReader<TcpStream>>, carrier::Stream>> {
        let by_quic = ClientConfig::clone(&config);
        let shake = |stream| handshake(BufReader::with_capacity(READ_AHEAD_BYTES, stream), config, server);
        if self.carrier == TunnelCarrier::Tcp {
            return shake(dial(&self.proxy).await?).await.map(Winner::Tcp);
        }
        let looking = tokio::net::lookup_host((self.proxy.host.as_str(), self.proxy.port));
        let Some(first) = looking.await?.next() else {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the proxy's name has no address"));
        };
        let quic = async {
            let connecting = carrier::connect(first, server, by_quic);
            let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no answer by UDP");
            let connected = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await.map_err(late)?;
            connected.map_err(io::Error::other)
        };
        match self.carrier {
            TunnelCarrier::Quic => quic.await.map(Winner::Quic),
            _ => carrier::race(dial(&self.proxy), shake, quic, first).await,
        }
    }

    /// A tunnel with the certificate that has just been renewed. The old one serves until this one is there; when it
    /// cannot be had, the old one is as good as ever.
    async fn replacement(&self, chain: &str) -> Dialled {
        let mut renewed = self.credentials.changes();
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            if renewed.borrow_and_update().tls_chain == chain {
                // The trust was replaced, or nothing yet.
                if renewed.changed().await.is_err() {
                    return std::future::pending().await;
                }
                continue;
            }
            match self.connect().await {
                Ok(tunnel) => return tunnel,
                Err(error) => warn!(%error, "no tunnel with the renewed certificate yet; trying again"),
            }
            backoff.wait().await;
        }
    }

    /// A tunnel to a proxy whose certificate was renewed, before the one that it has shown ends. None: it has ended, and the
    /// proxy has no other. A proxy that is locked gets no other, whether or not this agent has heard of the lock.
    async fn renewed(&self, proxy: &Proxy) -> Option<Dialled> {
        tokio::time::sleep(proxy.until_renewed(chance())).await;
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        while !proxy.is_over() {
            match self.connect().await {
                Ok(tunnel) => return Some(tunnel),
                Err(error) => {
                    warn!(%error, "no fresh tunnel to the proxy, whose certificate is about to end")
                }
            }
            backoff.wait().await;
        }
        None
    }

    /// Serves streams until the tunnel ends or another takes its place.
    async fn serve_tunnel(self: &Arc<Self>, tunnel: Dialled) -> Ended {
        let Dialled { handle, mut incoming, chain, proxy } = tunnel;
        let (replacement, renewed) = (self.replacement(&chain), self.renewed(&proxy));
        tokio::pin!(replacement, renewed);
        loop {
            tokio::select! {
                opened = incoming.next() => match opened {
                    Some((header, stream)) => self.serve_stream(&proxy, &header, stream),
                    None => return Ended::Closed(handle.closed().await),
                },
                () = proxy_leaves(&handle) => {
                    if let Ok(error) = tokio::time::timeout(Duration::ZERO, handle.closed()).await {
                        return Ended::Closed(error);
                    }
                    self.retire(handle, incoming, Arc::clone(&proxy));
                    return Ended::Retired;
                }
                next = replacement.as_mut() => {
                    info!("a tunnel with the renewed certificate takes over");
                    self.give_way(handle, incoming, Arc::clone(&proxy));
                    return Ended::Replaced(Box::new(next));
                }
                next = renewed.as_mut() => match next {
                    Some(next) => {
                        info!("a tunnel to the proxy with its renewed certificate takes over");
                        self.give_way(handle, incoming, Arc::clone(&proxy));
                        return Ended::Replaced(Box::new(next));
                    }
                    None => {
                        warn!("the proxy's certificate has ended, and it has shown no other");
                        handle.close();
                        return Ended::Closed(TunnelError::Closed);
                    }
                },
                () = self.drain.cancelled() => {
                    handle.drain("the node is shutting down");
                    self.health.waiting(PART, "is shutting down");
                    self.retire(handle, incoming, Arc::clone(&proxy));
                    return std::future::pending().await;
                }
            }
        }
    }

    /// Lets an old tunnel end with its last session. It still takes streams that the proxy has opened meanwhile.
    fn retire(self: &Arc<Self>, handle: Handle, mut incoming: tunnel::Incoming, proxy: Arc<Proxy>) {
        let this = Arc::clone(self);
        self.tasks.spawn(async move {
            let deadline = tokio::time::sleep(RETIRED_LIFE);
            tokio::pin!(deadline);
            let mut look = tokio::time::interval(LOOK_INTERVAL);
            // One look comes at once; a stream that is on its way deserves a moment.
            look.tick().await;
            loop {
                tokio::select! {
                    opened = incoming.next() => match opened {
                        Some((header, stream)) => this.serve_stream(&proxy, &header, stream),
                        None => return,
                    },
                    _ = look.tick() => if handle.streams() == 0 { break },
                    () = &mut deadline => break,
                    () = this.stop.cancelled() => break,
                }
            }
            handle.close();
        });
    }

    /// Lets a tunnel end that a newer one has replaced. The proxy prefers the newer one as soon as it knows it; until
    /// then, however long that takes, this one serves. Only when it was not used for a while is the proxy told to open
    /// no more streams here, and only after another while is it closed: no stream is on its way then.
    fn give_way(self: &Arc<Self>, handle: Handle, mut incoming: tunnel::Incoming, proxy: Arc<Proxy>) {
        let this = Arc::clone(self);
        self.tasks.spawn(async move {
            let deadline = tokio::time::sleep(RETIRED_LIFE);
            tokio::pin!(deadline);
            let mut look = tokio::time::interval(LOOK_INTERVAL);
            let mut used = Instant::now();
            let mut drained = false;
            loop {
                tokio::select! {
                    opened = incoming.next() => match opened {
                        Some((header, stream)) => {
                            used = Instant::now();
                            this.serve_stream(&proxy, &header, stream);
                        }
                        None => return,
                    },
                    _ = look.tick() => {
                        if handle.streams() > 0 {
                            used = Instant::now();
                        } else if used.elapsed() >= UNUSED && drained {
                            break;
                        } else if used.elapsed() >= UNUSED {
                            handle.drain("the node has a newer tunnel");
                            (drained, used) = (true, Instant::now());
                        }
                    }
                    () = this.drain.cancelled(), if !drained => {
                        handle.drain("the node is shutting down");
                        drained = true;
                    }
                    () = &mut deadline => break,
                    () = this.stop.cancelled() => break,
                }
            }
            handle.close();
        });
    }

    fn serve_stream(self: &Arc<Self>, proxy: &Proxy, header: &[u8], stream: tunnel::Stream) {
        if proxy.is_over() {
            warn!("a proxy whose certificate has ended opened a stream");
            return stream.reset("the proxy's certificate has ended");
        }
        let header = match StreamHeader::parse(header) {
            Ok(header) => header,
            Err(error) => {
                warn!(error = %ServerError::chain(&error), "the proxy opened a stream that is refused");
                return stream.reset(&error.to_string());
            }
        };
        let (client, kind) = (header.client_addr, header.carries.kind());
        debug!(user = %header.user, %client, kind, "stream opened");
        let span = info_span!("node.connection", %client);
        let opening = || opening(header.traceparent.as_deref(), client);
        let serving: BoxFuture<'static, ()> = match header.carries {
            Carries::Ssh { ssh_alone } => {
                (self.serve)(stream, ClientContext { client, ssh_alone, opening: opening() })
            }
            Carries::OpenSsh { server } => Box::pin(self.gateway.clone().serve(server, stream, client)),
            Carries::Postgres { postgres } => match self.databases.clone() {
                Some(databases) => Box::pin(databases.serve(postgres, stream, client, opening())),
                None => {
                    warn!(kind, "the proxy opened a stream for databases, and this agent serves none");
                    return stream.reset("this agent serves no databases");
                }
            },
            Carries::Resource { resource } => match self.resources.clone() {
                Some(resources) => Box::pin(resources.serve(resource, stream, client, opening())),
                None => {
                    warn!(kind, "the proxy opened a stream for resources, and this agent serves none");
                    return stream.reset("this agent serves no resources");
                }
            },
            Carries::PostgresCancel { postgres } => match self.databases.clone() {
                Some(databases) => Box::pin(databases.cancel(postgres, client)),
                None => {
                    warn!(kind, "the proxy opened a stream for databases, and this agent serves none");
                    return stream.reset("this agent serves no databases");
                }
            },
        };
        let stop = self.stop.clone();
        self.tasks.spawn(
            async move {
                tokio::select! {
                    () = serving => {}
                    () = stop.cancelled() => {}
                }
            }
            .instrument(span),
        );
    }
}

/// The beginning of a connection, in the trace that the proxy names. It has authenticated itself as one.
fn opening(traceparent: Option<&str>, client: SocketAddr) -> Span {
    let said = || telemetry::admitted(traceparent.and_then(TraceContext::parse), Trust::Host);
    info_span!(
        target: PHASE,
        parent: None,
        "node.connect",
        traceparent = said().map(display),
        otel.kind = "server",
        client.address = %client.ip(),
        "error.type" = Empty
    )
}
