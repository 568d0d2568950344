//! Connections to the authority.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn, map_request, map_response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use sallyport_ssh::capabilities::Whose;
use sallyport_ssh::client::PHASE;
use sallyport_wire::TRUST_HEADER;
use sallyport_wire::v1::admin_server::AdminServer;
use sallyport_wire::v1::certificates_server::CertificatesServer;
use sallyport_wire::v1::cluster_server::ClusterServer;
use sallyport_wire::v1::databases_server::DatabasesServer;
use sallyport_wire::v1::fleet_server::FleetServer;
use sallyport_wire::v1::login_server::LoginServer;
use sallyport_wire::v1::rotation_server::RotationServer;
use sallyport_wire::v1::sessions_server::SessionsServer;
use sallyport_wire::v1::suites_server::SuitesServer;
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixListener;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::rustls::server::Acceptor;
use tracing::field::Empty;
use tracing::{Instrument, debug, info, info_span, warn};

use super::caller::{Caller, PeerInfo, unauthenticated};
use super::streams::Line;
use super::{
    Inner, admin, answers, certificates, cluster, databases, fleet, login, rotation, sessions, suites,
};
use crate::seen::{Guest, incompatible, of_hello};
use crate::{ServerError, files, telemetry};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);
/// A caller who has not proven who they are is not kept for longer.
const ANONYMOUS_TIMEOUT: Duration = Duration::from_secs(180);
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// Streams that one connection may have open.
const STREAMS: u32 = 256;
/// Longest frame: a message with a piece of a recording, 128 KiB, in one.
const FRAME_BYTES: u32 = 132 * 1024;
/// What is kept of one stream for a peer whose machine takes nothing off the wire, until that is noticed.
const SEND_BYTES: usize = 132 * 1024;
/// Largest message from a caller: a batch of events or a piece of a recording.
pub(super) const MESSAGE_BYTES: usize = 4 << 20;
/// Connections to the admin socket at a time.
const LOCAL_CONNECTIONS: usize = 64;

pub(super) async fn tls<T>(inner: &Arc<Inner>, io: T, peer: PeerInfo)
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let config = Arc::clone(&inner.tls.read().unwrap_or_else(PoisonError::into_inner));
    let mut hello = None;
    let accepting = async {
        let start = LazyConfigAcceptor::new(Acceptor::default(), io).await?;
        hello = Some(of_hello(&start.client_hello()));
        start.into_stream(config).await
    };
    let accepted = tokio::time::timeout(HANDSHAKE_TIMEOUT, accepting).await;
    let stranger = Whose::Address(peer.address.ip());
    let guest = |whose| hello.map(|hello| Guest::new(inner.sightings.clone(), hello, whose));
    let stream = match accepted {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            if let (Some(reason), Some(guest)) = (incompatible(&error), guest(stranger)) {
                info!(peer = %peer.address, %reason, "a client cannot talk to the authority");
                guest.refused(reason);
            }
            return debug!(peer = %peer.address, %error, "the TLS handshake failed");
        }
        Err(_) => return debug!(peer = %peer.address, "the TLS handshake took too long"),
    };
    let caller = match stream.get_ref().1.peer_certificates() {
        None => Caller::Anonymous { address: peer.address },
        Some(chain) => match inner.authorities().trust().identify_peer(chain, OffsetDateTime::now_utc()) {
            Ok(identity) => Caller::Certified { identity: Arc::new(identity), address: peer.address },
            Err(error) => return info!(peer = %peer.address, %error, "a certificate was not accepted"),
        },
    };
    let _heard = caller.identity().and_then(|identity| inner.heard.begins(identity, peer.address));
    let limit = match caller {
        Caller::Anonymous { .. } => Some(ANONYMOUS_TIMEOUT),
        Caller::Certified { .. } | Caller::LocalAdmin => None,
    };
    let whose = caller.identity().map_or(stranger, |identity| Whose::User(identity.display_name()));
    let served = http(inner, stream, caller, guest(whose));
    match limit {
        Some(limit) => {
            let _ = tokio::time::timeout(limit, served).await;
        }
        None => served.await,
    }
}

async fn http<T>(inner: &Arc<Inner>, io: T, caller: Caller, guest: Option<Guest>)
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let limit = MESSAGE_BYTES;
    let routes = tonic::service::Routes::new(
        LoginServer::new(login::Service(Arc::clone(inner))).max_decoding_message_size(64 * 1024),
    )
    .add_service(FleetServer::new(fleet::Service(Arc::clone(inner))).max_decoding_message_size(limit))
    .add_service(ClusterServer::new(cluster::Service(Arc::clone(inner))).max_decoding_message_size(64 * 1024))
    .add_service(AdminServer::new(admin::Service(Arc::clone(inner))).max_decoding_message_size(limit))
    .add_service(
        CertificatesServer::new(certificates::Service(Arc::clone(inner)))
            .max_decoding_message_size(64 * 1024),
    )
    .add_service(
        SessionsServer::new(sessions::Service(Arc::clone(inner))).max_decoding_message_size(64 * 1024),
    )
    .add_service(
        DatabasesServer::new(databases::Service(Arc::clone(inner))).max_decoding_message_size(64 * 1024),
    )
    .add_service(SuitesServer::new(suites::Service(Arc::clone(inner))).max_decoding_message_size(64 * 1024))
    .add_service(
        RotationServer::new(rotation::Service(Arc::clone(inner))).max_decoding_message_size(64 * 1024),
    );
    let guest = guest.map(Arc::new);
    let said = Arc::clone(inner);
    let said = map_response(move |mut response: axum::response::Response| {
        if let Ok(version) = said.authorities().trust().version().parse() {
            response.headers_mut().insert(TRUST_HEADER, version);
        }
        std::future::ready(response)
    });
    let line = Line::default();
    let Some(connection) = inner.unread.connect(&caller) else {
        return debug!(caller = caller.name(), "a connection beyond those that a caller may have is closed");
    };
    let answering = Arc::new(connection);
    let router = for_strangers(routes.into_axum_router(), inner, &caller);
    let router = traced(router, &caller);
    let router = if matches!(caller, Caller::LocalAdmin) { router.layer(from_fn(urgent)) } else { router };
    // Each call is its caller's as the state has them now, which the connection may have outlived.
    let people = Arc::clone(inner);
    let answered = caller.clone();
    let (asked_by, by_line) = (caller, line.clone());
    let as_now = map_request(move |mut request: axum::extract::Request| {
        request.extensions_mut().insert(people.as_now(&asked_by));
        request.extensions_mut().insert(by_line.clone());
        std::future::ready(request)
    });
    let (bounding, on) = (Arc::clone(inner), Arc::clone(&answering));
    let bounded = from_fn(move |request: Request, next: Next| {
        let (inner, caller, on) = (Arc::clone(&bounding), answered.clone(), Arc::clone(&on));
        async move { answers::within_bounds(&inner, &caller, &on, request, next).await }
    });
    let router = router.layer(as_now).layer(bounded).layer(said).layer(map_request(
        move |request: axum::extract::Request| {
            if let Some(guest) = &guest {
                guest.asks(request.headers());
            }
            std::future::ready(request)
        },
    ));
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
        .max_frame_size(FRAME_BYTES)
        .max_send_buf_size(SEND_BYTES)
        .max_header_list_size(16 * 1024);
    let connection = builder.serve_connection(TokioIo::new(io), TowerToHyperService::new(router));
    tokio::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => {
            if let Err(error) = ended {
                debug!(%error, "a connection to the authority ended");
            }
        }
        // A peer that does not take the reason for the end of what it may not have any more.
        () = line.cut() => debug!("a connection is cut: its peer reads nothing"),
        () = answering.stalled(inner.config.answer_patience) => {
            debug!("a connection is cut: its peer takes no answer");
        }
        () = inner.stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(Duration::from_secs(2), connection).await;
        }
    }
}

/// The operator's calls wait for nobody else's reads.
async fn urgent(request: Request, next: Next) -> axum::response::Response {
    sallyport_store::ahead(next.run(request)).await
}

/// What those without a certificate may call: logging in and joining. Everything else is refused before a byte of its message
/// is read, whatever the method itself would say.
const OPEN: &str = "/sallyport.v1.Login/";
/// Longest name of a method that is put on record as it was asked for.
const LONGEST_METHOD: usize = 64;

fn for_strangers(router: Router, inner: &Arc<Inner>, caller: &Caller) -> Router {
    if !matches!(caller, Caller::Anonymous { .. }) {
        return router;
    }
    let (inner, caller) = (Arc::clone(inner), caller.clone());
    router.layer(from_fn(move |request: Request, next: Next| {
        let (inner, caller) = (Arc::clone(&inner), caller.clone());
        async move {
            if request.uri().path().starts_with(OPEN) {
                return next.run(request).await;
            }
            let asked = method_of(request.uri().path());
            drop(request);
            inner.refuse(&caller, &asked, unauthenticated()).await.into_http()
        }
    }))
}

/// `Service.Method` of a path, where it looks like one.
pub(super) fn method_of(path: &str) -> String {
    let named = path.strip_prefix("/sallyport.v1.").and_then(|rest| rest.split_once('/'));
    let word = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match named {
        Some((service, method)) if path.len() <= LONGEST_METHOD && word(service) && word(method) => {
            format!("{service}.{method}")
        }
        _ => "unknown".to_owned(),
    }
}

/// Each call as a part of a trace, where there are any. Whoever has not proven anything is no part of others' traces, and
/// fails without being kept.
fn traced(router: Router, caller: &Caller) -> Router {
    if !sallyport_telemetry::is_on() {
        return router;
    }
    let caller = caller.clone();
    router.layer(from_fn(move |request: Request, next: Next| {
        let said = telemetry::parent(request.headers(), caller.identity());
        let call = info_span!(
            target: PHASE,
            parent: None,
            "authority.call",
            traceparent = said.map(display),
            otel.kind = "server",
            rpc.system = "grpc",
            rpc.method = request.uri().path(),
            "error.type" = Empty
        );
        let known = !matches!(caller, Caller::Anonymous { .. });
        async move {
            let response = next.run(request).instrument(call.clone()).await;
            let status = response.headers().get("grpc-status").and_then(|status| status.to_str().ok());
            if let Some(status) = status.filter(|status| known && *status != "0") {
                call.record("error.type", status);
            }
            response
        }
    }))
}

pub(super) async fn admin_socket(inner: &Arc<Inner>, path: &Path) -> Result<(), ServerError> {
    let failed = |action| move |source| ServerError::File { action, path: path.to_owned(), source };
    // Left by a process that was killed: the state is locked against a second one that lives.
    let kept = path.with_extension("kept");
    for left in [path, &kept] {
        match std::fs::remove_file(left) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(source) => return Err(failed("remove")(source)),
        }
    }
    // The directory is private, so that nobody can come in between these two calls.
    let listener =
        UnixListener::bind(path).map_err(|source| files::no_file("make the socket", path, source))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed("make private"))?;
    let own = rustix::process::geteuid().as_raw();
    let places = Arc::new(tokio::sync::Semaphore::new(LOCAL_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = inner.stop.cancelled() => {
                // Its inode is for the next start's, which a disk without any would not have.
                let _ = std::fs::rename(path, &kept);
                return Ok(());
            }
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let uid = stream.peer_cred().map(|peer| peer.uid());
        if !matches!(uid, Ok(uid) if uid == own || uid == 0) {
            warn!(?uid, "another user was turned away from the admin socket");
            continue;
        }
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let inner = Arc::clone(inner);
        let tasks = inner.tasks.clone();
        tasks.spawn(async move {
            http(&inner, stream, Caller::LocalAdmin, None).await;
            drop(place);
        });
    }
}
