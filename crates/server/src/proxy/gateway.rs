//! What happens to a connection once it is known what it speaks.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use metrics::{counter, gauge};
use sallyport_access::{HostRole, Identity, Kind, Principal};
use sallyport_audit::{Code, Event, Sink};
use sallyport_ca::Trust;
use sallyport_sal::HybridKeyExchange;
use sallyport_sal::tls::is_hybrid;
use sallyport_ssh::capabilities::Whose;
use sallyport_wire::client_hello::TlsOffer;
use sallyport_wire::tunnel::Tunnel;
use sallyport_wire::{FRAME_BYTES, READ_AHEAD_BYTES, alpn};
use time::OffsetDateTime;
use tokio::io::{AsyncWriteExt, BufReader, copy_bidirectional_with_sizes};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tracing::{Instrument, debug, info, info_span, warn};

use super::databases;
use super::databases::Databases;
use super::hosts::TurnedAway;
use super::hub::Hub;
use super::open::ClientContext;
use super::peer::{Peer, Unfit};
use super::proving;
use super::relay::{RelayHeader, read_header, write_header};
use crate::config::HostPort;
use crate::dialling::{BoxIo, Io, PeerInfo, ServeAuthority, dial, handshake};
use crate::listener::{Acceptance, Faults, First, Rewind, Slot, Wants, classify};
use crate::member::client_sightings::{ClientOffer, Sightings, incompatible};
use crate::member::cluster_cache::ClusterCache;
use crate::member::host::Credentials;
use crate::routes::Routes;
use crate::tls_settings::{Purpose, TlsSettings, proven};
use crate::user_certificate;

/// How long what a locked proxy relays still hears the authority: long enough to hear of the lock.
const LAST_NEWS: Duration = Duration::from_millis(500);

/// What a 1 Gbit/s link carries in 16 ms, and as much as OpenSSH has on its way in one channel. It bounds what waits
/// here for one node that does not take it,
const STREAM_WINDOW_BYTES: u32 = 2 * 1024 * 1024;
/// and this what waits here for all streams of a connection: 128 of them may have stopped before the others that a user
/// has on the same connection feel it.
const CONNECTION_WINDOW_BYTES: u32 = 256 * 1024 * 1024;
/// One client's streams on one connection: a person with an Ansible run, not a flood.
const STREAMS_PER_CONNECTION: u32 = 1_000;
/// Streams that a client has taken back before they were looked at, after which its connection is cut (the flood of
/// CVE-2023-44487). A member who stops many programs at once must not lose the sessions that are open beside them.
const MEMBERS_RESETS: usize = STREAMS_PER_CONNECTION as usize;
const STRANGERS_RESETS: usize = 20;
/// Whether an idle HTTP/2 peer is still there.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// A client without a certificate only fetches a page.
const ANONYMOUS_LIFETIME: Duration = Duration::from_secs(60);
/// A user with too many connections only reads that.
const CROWDED_LIFETIME: Duration = Duration::from_secs(5);
/// Agents open no streams; a few are forgiven.
const UNASKED_STREAMS: usize = 16;
/// To tell an agent that it gets no tunnel.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(2);
const RELAY_BUFFER_BYTES: usize = 64 * 1024;

const PLAIN_HTTP_ANSWER: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: 65\r\n\r\nThis port speaks HTTPS, not plain HTTP: use an https:// address.\n";

/// Takes a plain SSH connection.
pub(crate) type ServeSsh =
    Arc<dyn Fn(Rewind<TcpStream>, SocketAddr, Arc<Slot>) -> BoxFuture<'static, ()> + Send + Sync>;

/// Where connections for the authority go.
#[derive(Clone)]
pub(crate) enum AuthorityWay {
    /// It is in this process.
    Here(ServeAuthority),
    /// It is elsewhere.
    Relay(HostPort),
}

/// Everything that one listener can do with a connection; what is `None` is refused.
pub(crate) struct Gateway {
    pub(crate) settings: TlsSettings,
    pub(crate) credentials: Credentials,
    pub(crate) view: Arc<ClusterCache>,
    pub(crate) authority: AuthorityWay,
    /// Whether other proxies may relay their clients' connections through this listener.
    pub(crate) relays: bool,
    pub(crate) hub: Option<Hub>,
    pub(crate) routes: Option<Routes>,
    pub(crate) ssh: Option<ServeSsh>,
    pub(crate) databases: Option<Databases>,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) sightings: Sightings,
    /// Where handshakes that come to nothing are counted.
    pub(crate) faults: Faults,
    pub(crate) handshake_timeout: Duration,
    /// No new work: HTTP/2 connections say goodbye and finish their open requests.
    pub(crate) drain: CancellationToken,
    /// Everything ends now.
    pub(crate) stop: CancellationToken,
}

pub(super) fn known(kind: &'static str) {
    counter!("sallyport_connections_total", "kind" => kind).increment(1);
}

pub(super) fn dropped(reason: &'static str) {
    counter!("sallyport_first_bytes_dropped_total", "reason" => reason).increment(1);
    debug!(reason, "connection dropped before it was known");
}

impl Gateway {
    /// Serves one connection to its end.
    pub(crate) async fn serve(self: Arc<Self>, acceptance: Acceptance) {
        let Acceptance { stream, peer, slot } = acceptance;
        gauge!("sallyport_connections_open").increment(1);
        let stop = self.stop.clone();
        tokio::select! {
            () = self.route(stream, peer, &slot) => {}
            () = stop.cancelled() => {}
        }
        gauge!("sallyport_connections_open").decrement(1);
        drop(slot);
    }

    async fn route(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, slot: &Arc<Slot>) {
        let first = match tokio::time::timeout(self.handshake_timeout, classify(stream)).await {
            Err(_) => {
                self.came_to_nothing(peer);
                return dropped("timeout");
            }
            Ok(Err(reason)) => {
                self.came_to_nothing(peer);
                return dropped(reason.name());
            }
            Ok(Ok(first)) => first,
        };
        // What follows is boxed: a client that never speaks takes no memory for it.
        match first {
            First::PlainHttp(stream) => {
                known("plain_http");
                Box::pin(self.refuse_plain_http(stream)).await;
            }
            First::Ssh(stream) => match &self.ssh {
                Some(serve) => {
                    known("ssh");
                    serve(stream, peer, Arc::clone(slot)).instrument(info_span!("ssh")).await;
                }
                None => dropped("ssh_not_served"),
            },
            First::Cancel(key) => match &self.databases {
                Some(databases) => {
                    known("postgres_cancel");
                    databases.cancel(&key, peer);
                }
                None => dropped("postgres_not_served"),
            },
            First::PlainPostgres(stream) => {
                known("postgres_plain");
                self.came_to_nothing(peer);
                databases::refuse_plain(stream).await;
            }
            First::Tls(Wants::Protocol(Kind::Database), hello, stream) => {
                known("postgres");
                let serving = self.postgres(hello, stream, peer, slot);
                Box::pin(serving.instrument(info_span!("postgres"))).await;
            }
            First::Tls(Wants::Protocol(_), ..) => dropped("protocol_not_served"),
            First::Tls(Wants::Authority, _, stream) => {
                known("authority");
                // Who this is, the authority learns; it tells of the client.
                Box::pin(self.to_authority(Box::new(stream), peer)).await;
            }
            First::Tls(Wants::Tunnel, hello, stream) => {
                known("tunnel");
                let span = info_span!("tunnel", node = tracing::field::Empty);
                Box::pin(self.tunnel(hello, stream, peer, slot).instrument(span)).await;
            }
            First::Tls(Wants::Relay, hello, stream) => {
                known("relay");
                Box::pin(self.relay(hello, stream, peer).instrument(info_span!("relay"))).await;
            }
            First::Tls(Wants::Http, hello, stream) => {
                known("http");
                let serving = self.http(hello, stream, peer, slot);
                Box::pin(serving.instrument(info_span!("http"))).await;
            }
        }
    }

    /// Counts a client at this address that did not prove who it is.
    pub(super) fn came_to_nothing(&self, peer: SocketAddr) {
        self.faults.note(peer.ip(), Instant::now());
    }

    async fn refuse_plain_http(&self, mut stream: Rewind<TcpStream>) {
        let answer = async {
            let _ = stream.write_all(PLAIN_HTTP_ANSWER.as_bytes()).await;
            let _ = stream.shutdown().await;
            // Closing with unread bytes would reset the connection before the answer arrives.
            let mut rest = tokio::io::AsyncReadExt::take(stream, 64 * 1024);
            let _ = tokio::io::copy(&mut rest, &mut tokio::io::sink()).await;
        };
        let _ = tokio::time::timeout(Duration::from_secs(2), answer).await;
    }

    /// A TLS handshake with the far end proven, within the time that is left for it.
    async fn accept<T: Io>(
        &self,
        hello: &TlsOffer,
        stream: T,
        peer: SocketAddr,
        purpose: Purpose,
    ) -> Option<(tokio_rustls::server::TlsStream<T>, Option<Identity>)> {
        let trust: Arc<Trust> = self.view.trust();
        let config = match self.settings.current(&trust, purpose) {
            Ok(config) => config,
            Err(error) => {
                warn!(error = %crate::ServerError::chain(&error), "cannot accept TLS connections");
                return None;
            }
        };
        let accept = TlsAcceptor::from(config).accept(stream);
        let stream = match tokio::time::timeout(self.handshake_timeout, accept).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                self.came_to_nothing(peer);
                counter!("sallyport_handshake_failures_total").increment(1);
                info!(%error, "TLS handshake failed");
                if let Some(reason) = incompatible(&error) {
                    ClientOffer::new(self.sightings.clone(), hello.clone(), Whose::Address(peer.ip()))
                        .refused(reason);
                }
                return None;
            }
            Err(_) => {
                self.came_to_nothing(peer);
                dropped("handshake_timeout");
                return None;
            }
        };
        match proven(&stream, &trust, OffsetDateTime::now_utc()) {
            Ok(identity) => Some((stream, identity)),
            Err(error) => {
                self.came_to_nothing(peer);
                counter!("sallyport_handshake_failures_total").increment(1);
                info!(%error, "certificate refused");
                None
            }
        }
    }

    async fn to_authority(&self, mut stream: BoxIo, peer: SocketAddr) {
        match &self.authority {
            AuthorityWay::Here(serve) => serve(stream, PeerInfo::direct(peer)).await,
            AuthorityWay::Relay(address) => {
                let mut onward = match self.relay_connection(address, peer).await {
                    Ok(onward) => onward,
                    Err(error) => {
                        warn!(%address, %error, "the authority cannot be reached for a client");
                        return;
                    }
                };
                let copied = copy_bidirectional_with_sizes(
                    &mut stream,
                    &mut onward,
                    RELAY_BUFFER_BYTES,
                    RELAY_BUFFER_BYTES,
                );
                if let Err(error) = copied.await {
                    debug!(%error, "relayed connection ended");
                }
            }
        }
    }

    async fn relay_connection(
        &self,
        address: &HostPort,
        client_addr: SocketAddr,
    ) -> std::io::Result<impl Io + use<>> {
        let config =
            self.credentials.client(&self.view.trust(), alpn::RELAY).map_err(std::io::Error::other)?;
        let server = sallyport_ca::server_name(HostRole::Auth, self.view.cluster());
        let mut tls = handshake(dial(address).await?, config, &server).await?;
        write_header(&mut tls, &RelayHeader { client_addr }).await?;
        Ok(tls)
    }

    /// The authority's side of a relay: only a proxy may say where its client came from.
    async fn relay(&self, hello: TlsOffer, stream: Rewind<TcpStream>, peer: SocketAddr) {
        let (AuthorityWay::Here(serve), true) = (&self.authority, self.relays) else {
            return dropped("relay_not_served");
        };
        let Some((mut tls, Some(identity))) = self.accept(&hello, stream, peer, Purpose::Relay).await else {
            return;
        };
        let Principal::Host { role: HostRole::Proxy, id, .. } = identity.principal else {
            warn!(identity = %identity.display_name(), "only proxies may relay");
            return;
        };
        if let Some(reason) = self.view.locked(&identity) {
            return warn!(%reason, "a proxy that is locked may not relay");
        }
        let header = tokio::time::timeout(self.handshake_timeout, read_header(&mut tls)).await;
        match header {
            Ok(Ok(header)) => {
                let locked = async {
                    let reason = self.view.when(|| self.view.locked(&identity)).await;
                    // Agents that are here by way of this proxy hear of the lock first.
                    tokio::time::sleep(LAST_NEWS).await;
                    reason
                };
                let client = PeerInfo { address: header.client_addr, relayed_by: Some(id) };
                tokio::select! {
                    () = serve(Box::new(tls), client) => {}
                    reason = locked => {
                        warn!(identity = %identity.display_name(), %reason, "the relay of a locked proxy is cut");
                    }
                }
            }
            Ok(Err(error)) => warn!(%error, %peer, "broken relay header"),
            Err(_) => dropped("relay_timeout"),
        }
    }

    async fn tunnel(&self, hello: TlsOffer, stream: Rewind<TcpStream>, peer: SocketAddr, slot: &Slot) {
        let Some(hub) = &self.hub else { return dropped("tunnel_not_served") };
        let stream = BufReader::with_capacity(READ_AHEAD_BYTES, stream);
        let Some((tls, Some(identity))) = self.accept(&hello, stream, peer, Purpose::Tunnel).await else {
            return;
        };
        self.serve_tunnel(hub, tls, identity, peer, slot).await;
    }

    /// A tunnel of the host that has proved this identity.
    pub(super) async fn serve_tunnel(
        &self,
        hub: &Hub,
        stream: impl Io + 'static,
        identity: Identity,
        peer: SocketAddr,
        slot: &Slot,
    ) {
        let Principal::Host { id, name, role: HostRole::Node } = &identity.principal else {
            warn!(identity = %identity.display_name(), "only nodes may open tunnels");
            return;
        };
        tracing::Span::current().record("node", name.as_str());
        let event = |code: Code| {
            Event::new(code, OffsetDateTime::now_utc())
                .user(identity.display_name())
                .node(name.as_str())
                .source(peer.to_string())
                .field("node_id", id.to_string())
        };
        let admitted = match hub.shares().admit(*id, Instant::now()) {
            Ok(admitted) => admitted,
            Err(TurnedAway { why, tell }) => {
                counter!("sallyport_tunnels_refused_total").increment(1);
                self.came_to_nothing(peer);
                if let Some(times) = tell {
                    warn!(%id, times, reason = %why, "a tunnel is refused");
                    let refused = event(Code::TunnelRefused).message(why.as_str()).field("times", times);
                    self.sink.emit(refused);
                }
                let _ = tokio::time::timeout(REFUSAL_PATIENCE, Tunnel::refuse(stream, &why)).await;
                return;
            }
        };
        if let Some(reason) = self.view.locked(&identity) {
            counter!("sallyport_tunnels_refused_total").increment(1);
            return warn!(%reason, "a node that is locked may not open a tunnel");
        }
        slot.prove_host();
        let (handle, mut incoming) = Tunnel::server(stream, admitted.config.clone());
        if self.drain.is_cancelled() {
            handle.drain("the proxy is shutting down");
        }
        let drained = handle.clone();
        let registration = hub.register(*id, handle);
        info!(%id, "node connected");
        self.sink.emit(event(Code::NodeConnected));
        let mut unasked = 0;
        let mut registration = Some(registration);
        let expiry = expiry(&identity, OffsetDateTime::now_utc());
        let mut expiry = std::pin::pin!(tokio::time::sleep(expiry));
        let mut locked = std::pin::pin!(self.view.when(|| self.view.locked(&identity)));
        loop {
            tokio::select! {
                opened = incoming.next() => match opened {
                    // Agents open no streams; one that does is told so by the stream's end.
                    Some((_, stream)) => {
                        drop(stream);
                        unasked += 1;
                        if unasked > UNASKED_STREAMS {
                            warn!("a node that opens streams towards the proxy is cut off");
                            drained.close();
                            break;
                        }
                    }
                    None => break,
                },
                // A certificate that was stolen must not outlive its time by an open connection. The agent has
                // renewed its own long before, and opened another tunnel.
                () = expiry.as_mut(), if registration.is_some() => {
                    drained.drain("the node's certificate has expired");
                    registration = None;
                }
                reason = locked.as_mut() => {
                    warn!(%reason, "the tunnel of a node is cut");
                    drained.close();
                    break;
                }
            }
        }
        drop(registration);
        info!(%id, "node disconnected");
        self.sink.emit(event(Code::NodeDisconnected));
    }

    /// A database client with a TLS of its own.
    async fn postgres(&self, hello: TlsOffer, stream: Rewind<TcpStream>, peer: SocketAddr, slot: &Slot) {
        let Some(databases) = &self.databases else { return dropped("postgres_not_served") };
        let accepted = Box::pin(self.accept(&hello, stream, peer, Purpose::Postgres)).await;
        let Some((tls, identity)) = accepted else { return };
        let connection = tls.get_ref().1;
        let leaf = connection.peer_certificates().and_then(|chain| chain.first());
        let client = match (identity, leaf) {
            (Some(identity), Some(leaf)) if identity.user().is_some() => ClientContext {
                identity: Arc::new(identity),
                certificate: user_certificate::of_tls(leaf),
                address: peer,
            },
            _ => {
                self.came_to_nothing(peer);
                return databases::refuse_stranger(tls).await;
            }
        };
        if let Err(crowded) = proving::prove(slot, &client.identity) {
            return databases.refuse_crowded(client, crowded, tls).await;
        }
        let required = self.view.trust().suite().key_exchange() == HybridKeyExchange::Required;
        if required && !is_hybrid(connection) {
            return databases::refuse_unfit(tls).await;
        }
        let named = connection.server_name().and_then(|name| databases.named(name));
        databases.serve_native(client, named, tls).await;
    }

    async fn http(&self, hello: TlsOffer, stream: Rewind<TcpStream>, peer: SocketAddr, slot: &Slot) {
        if self.routes.is_none() {
            return dropped("http_not_served");
        }
        // Boxed, so that the room for the handshake does not last as long as the connection.
        let accepted = Box::pin(self.accept(&hello, stream, peer, Purpose::Http)).await;
        let Some((tls, identity)) = accepted else { return };
        let anonymous = identity.is_none();
        let whose = identity
            .as_ref()
            .map_or(Whose::Address(peer.ip()), |identity| Whose::User(identity.display_name()));
        let offer = Arc::new(ClientOffer::new(self.sightings.clone(), hello, whose));
        let required = self.view.trust().suite().key_exchange() == HybridKeyExchange::Required;
        let unfit = (required && !anonymous && !is_hybrid(tls.get_ref().1)).then(|| {
            offer.refused("it offers no hybrid key exchange, which the cluster's suite requires".to_owned());
            info!("a member of the cluster came with classical key exchange");
            Unfit::KeyExchange
        });
        let leaf = tls.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let certificate = leaf.map(|leaf| user_certificate::of_tls(leaf));
        let peer = Peer { address: peer, identity: identity.map(Arc::new), certificate, unfit };
        let Some(peer) = self.counted(slot, peer) else { return };
        let reading = databases::no_database_client(tls, self.handshake_timeout);
        let Some(stream) = Box::pin(reading).await else { return };
        self.serve_http(stream, peer, Some(offer)).await;
    }

    /// Counts a connection for its user. None where the user has so many that this one is not even told so.
    pub(super) fn counted(&self, slot: &Slot, peer: Peer) -> Option<Peer> {
        let Some(identity) = &peer.identity else { return Some(peer) };
        let Err(crowded) = proving::prove(slot, identity) else { return Some(peer) };
        proving::refused(&*self.sink, identity, peer.address, crowded);
        crowded.tell.then_some(Peer { unfit: Some(Unfit::Crowded(crowded)), ..peer })
    }

    /// HTTP with a client that has proven who it is, or with one without a certificate. `offer` is what its TLS
    /// offered, where that is known.
    pub(super) async fn serve_http(
        &self,
        stream: impl Io + 'static,
        peer: Peer,
        offer: Option<Arc<ClientOffer>>,
    ) {
        let Some(router) = self.routes.as_ref().map(Routes::router) else {
            return dropped("http_not_served");
        };
        let anonymous = peer.identity.is_none();
        let longest = match peer.unfit {
            Some(Unfit::Crowded(_)) => Some(CROWDED_LIFETIME),
            _ => anonymous.then_some(ANONYMOUS_LIFETIME),
        };
        let service = router.map_request(move |mut request: http::Request<hyper::body::Incoming>| {
            if let Some(offer) = &offer {
                offer.asks(request.headers());
            }
            request.extensions_mut().insert(peer.clone());
            request.map(axum::body::Body::new)
        });
        let mut builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(self.handshake_timeout)
            .max_buf_size(64 * 1024);
        builder
            .http2()
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_send_buf_size(1024 * 1024)
            .max_frame_size(FRAME_BYTES)
            .max_concurrent_streams(STREAMS_PER_CONNECTION)
            .max_header_list_size(32 * 1024)
            .max_pending_accept_reset_streams(if anonymous { STRANGERS_RESETS } else { MEMBERS_RESETS })
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT);
        let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
        let mut connection = std::pin::pin!(connection);
        let lifetime = async {
            match longest {
                Some(longest) => tokio::time::sleep(longest).await,
                None => std::future::pending::<()>().await,
            }
        };
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.drain.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
            () = lifetime => {
                connection.as_mut().graceful_shutdown();
                tokio::time::timeout(self.handshake_timeout, connection).await.unwrap_or(Ok(()))
            }
        };
        if let Err(error) = ended {
            debug!(%error, "HTTP connection ended");
        }
    }
}

/// How long a certificate is good from now on.
fn expiry(identity: &Identity, now: OffsetDateTime) -> Duration {
    let left = identity.valid_before + sallyport_ca::SKEW_ALLOWANCE - now;
    if left.is_negative() { Duration::ZERO } else { left.unsigned_abs() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plain_http_answer_states_its_true_length() {
        let (head, body) = PLAIN_HTTP_ANSWER.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{}", body.len());
    }
}
