//! Connections to the authority.

use std::convert::Infallible;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use sallyport_ssh::capabilities::Whose;
use sallyport_ssh::client::PHASE;
use sallyport_wire::TRUST_HEADER;
use sallyport_wire::v1::admin_server::AdminServer;
use sallyport_wire::v1::catalogue_server::CatalogueServer;
use sallyport_wire::v1::certificates_server::CertificatesServer;
use sallyport_wire::v1::cluster_server::ClusterServer;
use sallyport_wire::v1::databases_server::DatabasesServer;
use sallyport_wire::v1::devices_server::DevicesServer;
use sallyport_wire::v1::factors_server::FactorsServer;
use sallyport_wire::v1::fleet_server::FleetServer;
use sallyport_wire::v1::login_server::LoginServer;
use sallyport_wire::v1::logins_server::LoginsServer;
use sallyport_wire::v1::provisioning_server::ProvisioningServer;
use sallyport_wire::v1::rotation_server::RotationServer;
use sallyport_wire::v1::session_factors_server::SessionFactorsServer;
use sallyport_wire::v1::sessions_server::SessionsServer;
use sallyport_wire::v1::sso_server::SsoServer;
use sallyport_wire::v1::suites_server::SuitesServer;
use sallyport_wire::v1::web_server::WebServer;
use time::OffsetDateTime;
use tokio::net::UnixListener;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::rustls::server::Acceptor;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tower::ServiceExt as _;
use tracing::field::Empty;
use tracing::{Span, debug, info, info_span, warn};

use crate::authority::api::answers::{Connection, MESSAGE_BYTES, Waiting, method_of, within_bounds};
use crate::authority::api::{
    admin, catalogue, certificates, cluster, databases, devices, factors, hosts, login, logins, provisioning,
    rotation, session_factors, sessions, sso, suites, web,
};
use crate::authority::caller::{Caller, unauthenticated};
use crate::authority::config::AuthConfig;
use crate::authority::gate::calls::Gate;
use crate::authority::hosts::registry::HostRegistry;
use crate::authority::identities::known::Identities;
use crate::authority::identities::logins::Logins;
use crate::authority::inventory::reports::ClientInventory;
use crate::authority::issuance::in_force::Issuance;
use crate::authority::streams::Line;
use crate::dialling::{BoxIo, PeerInfo};
use crate::member::client_sightings::{ClientOffer, incompatible, of_hello};
use crate::tasks::Tasks;
use crate::{ServerError, files, telemetry};
use tracing::Instrument;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);
/// A connection without a certificate is not kept for longer.
const ANONYMOUS_TIMEOUT: Duration = Duration::from_secs(180);
/// Its last call ends within this: longer than programs wait in one call for what is proven at a page.
const LAST_CALL: Duration = Duration::from_secs(35);
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// Streams that one connection may have open.
const STREAMS: u32 = 256;
/// Longest frame: a message with a piece of a recording, 128 KiB, in one.
const FRAME_BYTES: u32 = 132 * 1024;
/// What is kept of one stream for a peer whose machine takes nothing off the wire, until that is noticed.
const SEND_BYTES: usize = 132 * 1024;
/// Longest message with the answer of a passkey, and what stands around it.
const PASSKEY_BYTES: usize = sallyport_webauthn::MAX_RESPONSE_BYTES + 32 * 1024;
/// A connector's document, with what is around it.
const DOCUMENT_BYTES: usize = 80 * 1024;
/// A thousand targets of sessions, with the longest names.
const TARGETS_BYTES: usize = 512 * 1024;
/// Connections to the admin socket at a time.
const LOCAL_CONNECTIONS: usize = 64;

/// The API, with what its connections need besides.
#[derive(Debug)]
pub(crate) struct Api {
    pub(crate) config: Arc<AuthConfig>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) identities: Arc<Identities>,
    pub(crate) issuance: Arc<Issuance>,
    pub(crate) registry: Arc<HostRegistry>,
    pub(crate) inventory: Arc<ClientInventory>,
    pub(crate) login: login::Service,
    pub(crate) hosts: hosts::Service,
    pub(crate) cluster: cluster::Service,
    pub(crate) admin: admin::Service,
    pub(crate) certificates: certificates::Service,
    pub(crate) sessions: sessions::Service,
    pub(crate) databases: databases::Service,
    pub(crate) catalogue: catalogue::Service,
    pub(crate) suites: suites::Service,
    pub(crate) provisioning: provisioning::Service,
    pub(crate) rotation: rotation::Service,
    pub(crate) devices: devices::Service,
    pub(crate) logins: logins::Service,
    pub(crate) factors: factors::Service,
    pub(crate) session_factors: session_factors::Service,
    pub(crate) web: web::Service,
    pub(crate) sso: sso::Service,
    /// Answers that callers have not taken yet.
    pub(crate) unread: Waiting,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: Tasks,
}

/// Serves a connection that begins with TLS.
pub(crate) async fn tls(api: &Arc<Api>, io: BoxIo, peer: PeerInfo) {
    let config = api.issuance.tls();
    let mut hello = None;
    let accepting = async {
        let start = LazyConfigAcceptor::new(Acceptor::default(), io).await?;
        hello = Some(of_hello(&start.client_hello()));
        start.into_stream(config).await
    };
    let accepted = tokio::time::timeout(HANDSHAKE_TIMEOUT, accepting).await;
    let stranger = Whose::Address(peer.address.ip());
    let offer = |whose| hello.map(|hello| ClientOffer::new(api.inventory.sightings(), hello, whose));
    let stream = match accepted {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            if let (Some(reason), Some(offer)) = (incompatible(&error), offer(stranger)) {
                info!(peer = %peer.address, %reason, "a client cannot talk to the authority");
                offer.refused(reason);
            }
            return debug!(peer = %peer.address, %error, "the TLS handshake failed");
        }
        Err(_) => return debug!(peer = %peer.address, "the TLS handshake took too long"),
    };
    let caller = match stream.get_ref().1.peer_certificates() {
        None => Caller::Anonymous { from: peer },
        Some(chain) => {
            match api.issuance.authorities().trust().identify_peer(chain, OffsetDateTime::now_utc()) {
                Ok(identity) => Caller::Certified { identity: Arc::new(identity), from: peer },
                Err(error) => return info!(peer = %peer.address, %error, "a certificate was not accepted"),
            }
        }
    };
    let _heard = caller.identity().and_then(|identity| api.registry.heard.begins(identity, peer.address));
    let limit = match caller {
        Caller::Anonymous { .. } => Some(ANONYMOUS_TIMEOUT),
        Caller::Certified { .. } | Caller::Behind { .. } | Caller::LocalAdmin => None,
    };
    let whose = caller.identity().map_or(stranger, |identity| Whose::User(identity.display_name()));
    http(api, Box::new(stream), caller, offer(whose), limit).await;
}

/// Serves the API on a connection. What is generated for it is large, so that streams of every kind come boxed.
async fn http(
    api: &Arc<Api>,
    io: BoxIo,
    caller: Caller,
    offer: Option<ClientOffer>,
    longest: Option<Duration>,
) {
    let limit = MESSAGE_BYTES;
    let short = 64 * 1024;
    // A body, and what comes with it.
    let scim = sallyport_scim::MAX_BODY_BYTES + short;
    let routes =
        tonic::service::Routes::new(LoginServer::new(api.login.clone()).max_decoding_message_size(short))
            .add_service(FleetServer::new(api.hosts.clone()).max_decoding_message_size(limit))
            .add_service(ClusterServer::new(api.cluster.clone()).max_decoding_message_size(short))
            .add_service(AdminServer::new(api.admin.clone()).max_decoding_message_size(limit))
            .add_service(CertificatesServer::new(api.certificates.clone()).max_decoding_message_size(short))
            .add_service(SessionsServer::new(api.sessions.clone()).max_decoding_message_size(short))
            .add_service(DatabasesServer::new(api.databases.clone()).max_decoding_message_size(short))
            .add_service(CatalogueServer::new(api.catalogue.clone()).max_decoding_message_size(short))
            .add_service(ProvisioningServer::new(api.provisioning.clone()).max_decoding_message_size(scim))
            .add_service(SuitesServer::new(api.suites.clone()).max_decoding_message_size(short))
            .add_service(RotationServer::new(api.rotation.clone()).max_decoding_message_size(short))
            .add_service(DevicesServer::new(api.devices.clone()).max_decoding_message_size(short))
            .add_service(LoginsServer::new(api.logins.clone()).max_decoding_message_size(short))
            .add_service(FactorsServer::new(api.factors.clone()).max_decoding_message_size(short))
            .add_service(
                SessionFactorsServer::new(api.session_factors.clone())
                    .max_decoding_message_size(TARGETS_BYTES),
            )
            .add_service(WebServer::new(api.web.clone()).max_decoding_message_size(PASSKEY_BYTES))
            .add_service(SsoServer::new(api.sso.clone()).max_decoding_message_size(DOCUMENT_BYTES));
    let line = Line::default();
    let Some(connection) = api.unread.connect(&caller) else {
        return debug!(caller = caller.name(), "a connection beyond those that a caller may have is closed");
    };
    let answering = Arc::new(connection);
    let serving = Arc::new(Serving {
        refused: refused_all_but_open(&caller),
        is_traced: sallyport_telemetry::is_on(),
        gate: Arc::clone(&api.gate),
        identities: Arc::clone(&api.identities),
        logins: Arc::clone(&api.logins.logins),
        line: line.clone(),
        router: routes.prepare().into_axum_router(),
        caller,
    });
    let calls = Arc::new(Calls {
        issuance: Arc::clone(&api.issuance),
        tasks: api.tasks.clone(),
        connection: Arc::clone(&answering),
        serving,
        offer,
    });
    // One service around the router, and not a layer of the router's for each step: it would copy every layer below for each call.
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let calls = Arc::clone(&calls);
        // Large, and moved from hand to hand.
        Box::pin(async move { Ok::<_, Infallible>(calls.answer(request.map(Body::new)).await) })
    });
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
    let connection = builder.serve_connection(TokioIo::new(io), service);
    tokio::pin!(connection);
    let lifetime = async {
        match longest {
            Some(longest) => tokio::time::sleep(longest).await,
            None => std::future::pending::<()>().await,
        }
    };
    tokio::select! {
        ended = connection.as_mut() => {
            if let Err(error) = ended {
                debug!(%error, "a connection to the authority ended");
            }
        }
        // A peer that does not take the reason for the end of what it may not have any more.
        () = line.cut() => debug!("a connection is cut: its peer reads nothing"),
        () = answering.stalled(api.config.answer_patience) => {
            debug!("a connection is cut: its peer takes no answer");
        }
        () = api.stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(Duration::from_secs(2), connection).await;
        }
        // What is being answered is answered, and the client's next call goes by a connection of its own.
        () = lifetime => {
            connection.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(LAST_CALL, connection).await;
        }
    }
}

/// What those without a certificate may call: logging in and joining. Everything else is refused before a byte of its message
/// is read, whatever the method itself would say.
const OPEN: &str = "/sallyport.v1.Login/";
/// What programs ask by themselves for as long as they run: no person is behind it, and no login is in use by it.
const FOLLOWING: &str = "/sallyport.v1.Rotation/Follow";

/// Refuses those without a certificate, and those whose login is pinned to another address, all but what strangers may call. Where a
/// connection comes from stays as it is.
fn refused_all_but_open(caller: &Caller) -> Option<Status> {
    match caller {
        Caller::LocalAdmin => None,
        Caller::Anonymous { .. } | Caller::Behind { .. } => Some(unauthenticated()),
        Caller::Certified { identity, from } => {
            let elsewhere = identity.comes_from(Some(from.address.ip())).err()?;
            Some(Status::permission_denied(elsewhere.to_string()))
        }
    }
}

/// The calls of one connection, from their first byte to the last of their answers.
struct Calls {
    offer: Option<ClientOffer>,
    connection: Arc<Connection>,
    tasks: Tasks,
    issuance: Arc<Issuance>,
    serving: Arc<Serving>,
}

impl Calls {
    /// Answers a call within the bounds of its caller, and says with the answer which trust is in force.
    async fn answer(&self, request: Request) -> Response {
        if let Some(offer) = &self.offer {
            offer.asks(request.headers());
        }
        let Serving { gate, caller, .. } = &*self.serving;
        let serving = Arc::clone(&self.serving);
        let serve = |request| async move { serving.serve(request).await };
        let on = (&*self.connection, &self.tasks);
        let mut response = within_bounds(gate, caller, on, request, serve).await;
        if let Ok(version) = self.issuance.authorities().trust().version().parse() {
            response.headers_mut().insert(TRUST_HEADER, version);
        }
        response
    }
}

/// What serves the calls of one connection. A call that changes something keeps it to its end also when the connection is gone, and with it
/// nothing that counts as the connection.
struct Serving {
    caller: Caller,
    /// Why all is refused but what strangers may call.
    refused: Option<Status>,
    is_traced: bool,
    gate: Arc<Gate>,
    identities: Arc<Identities>,
    logins: Arc<Logins>,
    line: Line,
    router: Router,
}

impl Serving {
    /// Serves a call as its caller's, as the state has them now, which the connection may have outlived.
    async fn serve(&self, mut request: Request) -> Response {
        if self.is_use(request.uri().path()) {
            self.logins.used(&self.caller);
        }
        request.extensions_mut().insert(self.identities.as_now(&self.caller));
        request.extensions_mut().insert(self.line.clone());
        let served = async {
            match self.span(&request) {
                Some(call) => self.traced(request, call).await,
                None => self.let_in(request).await,
            }
        };
        match self.caller {
            // The operator's calls go ahead of the reads of others.
            Caller::LocalAdmin => sallyport_store::ahead(served).await,
            Caller::Anonymous { .. } | Caller::Behind { .. } | Caller::Certified { .. } => served.await,
        }
    }

    /// Whether a call is a use of its caller's login. A thief of it whose calls are refused, such as for the address that they come from, does
    /// not keep it from ending for want of use; nor by what strangers may call, for which no login is needed.
    fn is_use(&self, path: &str) -> bool {
        self.refused.is_none()
            && path != FOLLOWING
            && self.caller.identity().is_some_and(|identity| self.gate.check_valid(identity).is_ok())
    }

    async fn let_in(&self, request: Request) -> Response {
        match &self.refused {
            Some(refused) if !request.uri().path().starts_with(OPEN) => {
                let asked = method_of(request.uri().path());
                drop(request);
                self.gate.refuse(&self.caller, &asked, refused.clone()).await.into_http()
            }
            _ => {
                let Ok(response) = self.router.clone().oneshot(request).await;
                response
            }
        }
    }

    /// The part that a call is of a trace, where there are any. A caller without a certificate is no part of others' traces.
    fn span(&self, request: &Request) -> Option<Span> {
        self.is_traced.then(|| {
            let said = telemetry::parent(request.headers(), self.caller.identity());
            info_span!(
                target: PHASE,
                parent: None,
                "authority.call",
                traceparent = said.map(display),
                otel.kind = "server",
                rpc.system = "grpc",
                rpc.method = request.uri().path(),
                "error.type" = Empty
            )
        })
    }

    /// A caller without a certificate fails without being kept.
    async fn traced(&self, request: Request, call: Span) -> Response {
        let response = self.let_in(request).instrument(call.clone()).await;
        let known = !matches!(self.caller, Caller::Anonymous { .. });
        let status = response.headers().get("grpc-status").and_then(|status| status.to_str().ok());
        if let Some(status) = status.filter(|status| known && *status != "0") {
            call.record("error.type", status);
        }
        response
    }
}

/// Serves the operator on a socket that no other user can open, until the authority stops.
pub(crate) async fn admin_socket(api: &Arc<Api>, path: &Path) -> Result<(), ServerError> {
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
    // The directory is private, so that no other user connects between these two calls.
    let listener =
        UnixListener::bind(path).map_err(|source| files::no_file("make the socket", path, source))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed("make private"))?;
    let own = rustix::process::geteuid().as_raw();
    let places = Arc::new(tokio::sync::Semaphore::new(LOCAL_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = api.stop.cancelled() => {
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
        let api = Arc::clone(api);
        let tasks = api.tasks.clone();
        tasks.spawn(async move {
            http(&api, Box::new(stream), Caller::LocalAdmin, None, None).await;
            drop(place);
        });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::IpAddr;

    use sallyport_access::{Identity, UserName};
    use sallyport_wire::v1;
    use sallyport_wire::v1::admin_server::Admin as _;
    use time::Duration;

    use super::*;
    use crate::authority::identities::logins::{Opened, OpenedBy, open_login};
    use crate::authority::sso::tests::Site;
    use crate::authority::sso::tests::people::local;

    const LIST: &str = "/sallyport.v1.Cluster/ListNodes";
    const STRANGERS: &str = "/sallyport.v1.Login/Ping";

    /// What serves a caller from this address.
    fn serving(api: &Api, identity: &Arc<Identity>, from: [u8; 4]) -> Serving {
        let from = PeerInfo::direct((from, 7).into());
        let caller = Caller::Certified { identity: Arc::clone(identity), from };
        Serving {
            refused: refused_all_but_open(&caller),
            is_traced: false,
            gate: Arc::clone(&api.gate),
            identities: Arc::clone(&api.identities),
            logins: Arc::clone(&api.logins.logins),
            line: Line::default(),
            // What is let in finds no method here.
            router: Router::new(),
            caller,
        }
    }

    async fn call(serving: &Serving, path: &str) -> Response {
        serving.serve(Request::builder().uri(path).body(Body::empty()).unwrap()).await
    }

    /// A user with a login, of which nothing is known but that it was opened.
    async fn opened(api: &Api, site: &Site, name: &str, at: OffsetDateTime) -> Identity {
        let roles = vec!["idle".to_owned()];
        let asked = v1::CreateUserRequest { name: name.to_owned(), roles, ..Default::default() };
        api.admin.clone().create_user(local(asked)).await.unwrap();
        let name = UserName::new(name).unwrap();
        let identity = Identity {
            valid_before: at + Duration::hours(12),
            ..api.identities.identity_of(&api.identities.user(&name).unwrap(), at)
        };
        let by = OpenedBy::Signed("olga".to_owned());
        let opened = Opened::new(&Caller::LocalAdmin, by, "desk", &[], at);
        let step = open_login(&name, identity.login_id, at + Duration::hours(12), Some(opened)).unwrap();
        site.authority.services.store.backend().transact(vec![step], at).await.unwrap();
        identity
    }

    /// Whether a login was seen in use.
    async fn is_used(api: &Api, identity: &Identity, now: OffsetDateTime) -> bool {
        let listed = api.logins.logins.list(identity.user(), "", 0, None, now).await.unwrap().logins;
        let login = listed.into_iter().find(|login| login.id == identity.login_id.to_string());
        login.unwrap().last_used.is_some()
    }

    #[tokio::test]
    async fn attacks_calls_that_are_refused_keep_no_stolen_login_from_ending_for_want_of_use() {
        let site = Site::new().await;
        let api = &site.authority.services.api;
        let role = async |options: &str| {
            let yaml = format!(
                "kind: role\nversion: v1\nmetadata: {{name: idle}}\nspec: {{options: {{{options}}}}}\n"
            );
            let asked = v1::CreateResourceRequest { yaml, replace: true };
            api.admin.clone().create_resource(local(asked)).await.unwrap();
        };
        role("login_idle_timeout: 30m").await;
        let start = OffsetDateTime::now_utc() - Duration::hours(1);
        let home: IpAddr = [192, 0, 2, 7].into();
        let stolen = Identity { pinned_to: Some(home), ..opened(api, &site, "alice", start).await };
        let own = Identity { pinned_to: Some(home), ..opened(api, &site, "bob", start).await };
        // From before the role has pinned, so that it says no address.
        let unpinned = opened(api, &site, "carol", start).await;
        role("login_idle_timeout: 30m, pin_source_ip: true").await;

        let now = OffsetDateTime::now_utc();
        let at_home = serving(api, &Arc::new(own.clone()), [192, 0, 2, 7]);
        // The router has no method, which is told apart from a refusal.
        assert_eq!(call(&at_home, LIST).await.status(), http::StatusCode::NOT_FOUND);
        assert!(is_used(api, &own, now).await, "a call that is let in is a use");
        let thief = serving(api, &Arc::new(stolen.clone()), [198, 51, 100, 3]);
        let refused = call(&thief, LIST).await;
        let told = refused.headers()["grpc-message"].to_str().unwrap();
        assert!(refused.headers()["grpc-status"] == "7" && told.contains("192.0.2.7"), "{told}");
        assert_eq!(call(&thief, STRANGERS).await.status(), http::StatusCode::NOT_FOUND);
        let unpinned_thief = serving(api, &Arc::new(unpinned.clone()), [198, 51, 100, 3]);
        for path in [LIST, STRANGERS] {
            call(&unpinned_thief, path).await;
        }
        for identity in [&stolen, &unpinned] {
            assert!(!is_used(api, identity, now).await, "{identity:?}");
        }
        api.logins.logins.end_idle(now).await.unwrap();
        let has_ended = |identity: &Identity| site.login_ended(identity.login_id);
        assert!(has_ended(&stolen) && has_ended(&unpinned) && !has_ended(&own));
    }
}
