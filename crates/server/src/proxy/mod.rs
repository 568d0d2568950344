//! The proxy service: tunnels, the access decision and the bytes between clients and nodes.

mod asking;
mod bodies;
mod carrying;
mod client;
pub(crate) mod databases;
pub(crate) mod gateway;
mod hosts;
pub(crate) mod hub;
pub(crate) mod jump;
pub(crate) mod nodes;
pub(crate) mod open;
pub(crate) mod page;
pub(crate) mod pass;
mod peer;
mod proving;
mod public;
mod quic;
pub(crate) mod recording_proxy;
pub(crate) mod relay;
mod resources;
mod scim;
pub(crate) mod servers;
pub(crate) mod transport;
mod upstream;
pub(crate) mod watcher;
mod web;
mod well_known;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
mod tests;

use std::net::UdpSocket;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::tasks::{self, Tasks};
use sallyport_access::{ClusterName, HostRole, NodeName};
use sallyport_ssh::jump::Jump;
use sallyport_wire::TRUST_HEADER;
use sallyport_wire::v1::transport_server::TransportServer;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use self::databases::{Databases, FreshKeys};
use self::gateway::{AuthorityWay, Gateway};
use self::hub::Hub;
use self::nodes::Nodes;
use self::open::Opener;
pub(crate) use self::page::PublicPage;
use self::recording_proxy::RecordingProxy;
use self::resources::Resources;
use self::transport::TransportService;
use crate::ServerError;
use crate::agent::upload::Uploader;
use crate::config::{HostPort, ProxySection};
use crate::files::{self, Claim};
use crate::health::Health;
use crate::listener::{Limiter, accept_loop, quic_loop};
use crate::local_authority::LocalAuthority;
use crate::member::authority_client::Route;
#[cfg(test)]
use crate::member::cluster_cache::ClusterCache;
use crate::member::host::certificates;
use crate::member::joining::{Membership, load_or_issue, load_or_join};
use crate::member::session_factors::AuthorityFactors;
use crate::member::spool::Spool;
use crate::member::starting::{self, Member};
use crate::sessions::Sessions;
use crate::tls_settings::TlsSettings;

/// Events that wait for the authority may fill this much disk.
const EVENT_SPOOL_BYTES: u64 = 64 * 1024 * 1024;
/// Recordings that wait for the authority may fill this much; past it no session that is recorded here begins.
const RECORDING_SPOOL_BYTES: u64 = 4 * 1024 * 1024 * 1024;
/// Largest message of a client: a chunk of SSH with room to spare.
const MESSAGE_LIMIT_BYTES: usize = 1024 * 1024;
const PART: &str = "proxy";

/// What a proxy starts from.
pub(crate) struct Start {
    pub(crate) cluster: ClusterName,
    pub(crate) section: ProxySection,
    /// The proxy's own part of the data directory.
    pub(crate) directory: PathBuf,
    pub(crate) listener: TcpListener,
    /// The same port by UDP, when QUIC is spoken.
    pub(crate) udp: Option<UdpSocket>,
    /// What people type to reach it.
    pub(crate) public_addr: Vec<HostPort>,
    pub(crate) authority: Option<LocalAuthority>,
    /// As in [`crate::config::CryptoSection`].
    pub(crate) require_fips: bool,
    pub(crate) health: Health,
    pub(crate) drain: CancellationToken,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: Tasks,
}

/// A proxy that runs.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) sessions: Sessions,
    pub(crate) spool: Spool,
    uploader: Uploader,
    recording: Arc<RecordingProxy>,
    /// As whom it is on record.
    pub(crate) host: String,
    /// What this proxy knows of the cluster.
    #[cfg(test)]
    view: Arc<ClusterCache>,
    /// The paths that it serves.
    #[cfg(test)]
    paths: Vec<&'static str>,
    /// What counts its connections.
    #[cfg(test)]
    limiter: Limiter,
    hub: Hub,
    jump: Arc<Jump>,
    /// The certificate of the public pages.
    pub(crate) page: Arc<PublicPage>,
    _claim: Arc<Claim>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("sessions", &self.sessions).finish_non_exhaustive()
    }
}

impl Service {
    /// Ends sessions that are recorded here and hands what is left to the authority. What cannot be handed over waits on disk for the next start.
    pub(crate) async fn flush(&self) {
        self.recording.end_all().await;
        tokio::join!(self.spool.flush(FLUSH_PATIENCE), self.uploader.drained(FLUSH_PATIENCE));
    }

    /// Takes no new sessions; those that are open go on.
    pub(crate) fn drain(&self) {
        self.hub.drain();
        let jump = Arc::clone(&self.jump);
        tasks::start(async move { jump.drain().await });
    }
}

fn name_of(public_addr: &[HostPort]) -> Result<NodeName, ServerError> {
    let name = public_addr.first().map(|address| address.host.to_ascii_lowercase());
    let named = name.and_then(|name| NodeName::new(name).ok());
    match named {
        Some(name) => Ok(name),
        None => crate::config::host_name()
            .map_err(|error| certificates("cannot use this machine's name as the proxy's", error)),
    }
}

/// Starts the proxy service.
pub(crate) async fn start(start: Start) -> Result<Service, ServerError> {
    let Start {
        cluster,
        section,
        directory,
        listener,
        udp,
        public_addr,
        authority,
        require_fips,
        health,
        drain,
        stop,
        tasks,
    } = start;
    let claim = files::claim(&directory)?;
    health.waiting(PART, "has not heard from the authority yet");
    let membership = Membership {
        cluster,
        role: HostRole::Proxy,
        name: name_of(&public_addr)?,
        public_names: public_names(&public_addr, &listener),
        require_fips,
    };
    let identity_path = directory.join("identity.json");
    let (credentials, route, way) = match (&authority, &section.auth_server) {
        (Some(local), _) => (
            load_or_issue(&identity_path, &membership, local).await?,
            Route::Here(Arc::clone(&local.serve)),
            AuthorityWay::Here(Arc::clone(&local.serve)),
        ),
        (None, Some(address)) => (
            load_or_join(&identity_path, &membership, address, &section.join).await?,
            Route::At(address.clone()),
            AuthorityWay::Relay(address.clone()),
        ),
        (None, None) => {
            return Err(ServerError::Join {
                what: PART,
                problem: "no authority is configured".to_owned(),
                fix: "set proxy.auth_server, or enable the section auth".to_owned(),
            });
        }
    };
    let identity = credentials.identity();
    let member = Member::start(starting::Start {
        membership: &membership,
        credentials: credentials.clone(),
        route,
        directory: &directory,
        event_bytes: EVENT_SPOOL_BYTES,
        part: PART,
        health: &health,
        stop: &stop,
        tasks: &tasks,
    })?;
    let (view, client, spool) = (Arc::clone(&member.view), member.client.clone(), member.spool.clone());
    let sightings = member.sightings.clone();

    let recording = RecordingProxy::open(
        &directory,
        identity.id,
        Arc::clone(&view),
        client.clone(),
        Arc::new(spool.clone()),
        sightings.clone(),
    )?;
    let recording = Arc::new(recording);
    tasks.spawn(Arc::clone(&recording).follow(stop.clone()));
    let uploader = Uploader::new(recording.recorders(), RECORDING_SPOOL_BYTES, client.clone());
    tasks.spawn(uploader.clone().run(stop.clone()));
    member.report(recording.live());

    let hub = Hub::default();
    let sessions = Sessions::new(section.limits.sessions_per_user);
    let opener = Opener {
        view: Arc::clone(&view),
        hub: hub.clone(),
        sessions: sessions.clone(),
        sink: Arc::new(spool.clone()),
        stopping: drain.clone(),
        factors: AuthorityFactors::new(client.clone(), &view),
        asking: asking::Asking::new(
            client.clone(),
            &public_addr.first().map(HostPort::to_string).unwrap_or_default(),
        ),
    };
    let nodes = Nodes { opener: opener.clone(), recording: Arc::clone(&recording) };
    let limits = &section.limits;
    let limiter =
        Limiter::new(limits.connections, limits.connections_per_address, limits.connections_per_user);
    let jump = jump::face(nodes.clone(), sightings.clone(), limiter.faults(), &credentials)?;
    jump::follow_renewals(&jump, &credentials);
    member.confirm();
    let resources = Resources::new(opener.clone());
    let mut databases = Databases::new(opener, credentials.clone(), membership.public_names.iter().cloned());
    if section.danger.fresh_database_keys {
        databases = databases.with_fresh_keys(FreshKeys {
            credentials: credentials.clone(),
            client: client.clone(),
            view: Arc::clone(&view),
            public_names: membership.public_names.iter().cloned().collect(),
        });
    }
    let transport = TransportServer::new(TransportService::new(nodes, databases.clone(), resources))
        .max_decoding_message_size(MESSAGE_LIMIT_BYTES)
        .max_encoding_message_size(MESSAGE_LIMIT_BYTES);
    let shown = public_addr.first().map(HostPort::to_string).unwrap_or_default();
    let said = Arc::clone(&view);
    let transport = tower::ServiceBuilder::new()
        .map_response(move |mut response: http::Response<tonic::body::Body>| {
            if let Ok(version) = said.trust().version().parse() {
                response.headers_mut().insert(TRUST_HEADER, version);
            }
            response
        })
        .service(transport);
    let routes = public::routes(Arc::clone(&view), &shown, &membership.public_names, client.clone(), health)
        .and(scim::routes(client.clone()))
        .service("/sallyport.v1.Transport/{*method}", transport);
    debug!(paths = ?routes.paths(), "the public address serves");
    #[cfg(test)]
    let (known, paths, counting) = (Arc::clone(&view), routes.paths().to_vec(), limiter.clone());
    let page = PublicPage::open(section.https.clone(), membership.public_names.clone())?;
    let page = Arc::new(page);
    tasks.spawn(Arc::clone(&page).follow(stop.clone()));
    let gateway = Arc::new(Gateway {
        settings: TlsSettings::with_page(credentials.clone(), Arc::clone(&page)),
        credentials,
        view,
        authority: way,
        relays: false,
        hub: Some(hub.clone()),
        routes: Some(routes),
        ssh: Some(jump::serve(Arc::clone(&jump), Arc::new(spool.clone()))),
        databases: Some(databases),
        sink: Arc::new(spool.clone()),
        sightings,
        faults: limiter.faults(),
        handshake_timeout: section.limits.handshake_timeout,
        drain: drain.clone(),
        stop: stop.clone(),
    });
    if let Some(listener) = udp.and_then(|socket| quic::listen(socket, &gateway, &directory)) {
        let (serving, ends) = (tasks.clone(), (drain.clone(), stop));
        let gateway = Arc::clone(&gateway);
        tasks.spawn(quic_loop(listener, limiter.clone(), serving, ends, move |caller| {
            Arc::clone(&gateway).serve_quic(caller)
        }));
    }
    let serving = tasks.clone();
    tasks.spawn(accept_loop(listener, limiter, serving, drain, move |acceptance| {
        Arc::clone(&gateway).serve(acceptance)
    }));
    Ok(Service {
        sessions,
        spool,
        uploader,
        recording,
        host: format!("proxy:{}", identity.name),
        #[cfg(test)]
        view: known,
        #[cfg(test)]
        paths,
        #[cfg(test)]
        limiter: counting,
        hub,
        jump,
        page,
        _claim: Arc::new(claim),
    })
}

/// Everything that may stand in a client's address bar or configuration for this proxy.
fn public_names(public_addr: &[HostPort], listener: &TcpListener) -> Vec<String> {
    let mut names: Vec<String> = public_addr.iter().map(|address| address.host.clone()).collect();
    if let Ok(address) = listener.local_addr()
        && !address.ip().is_unspecified()
    {
        names.push(address.ip().to_string());
    }
    names.sort();
    names.dedup();
    names
}

/// How long a session may take to be heard of by the authority when the proxy stops.
const FLUSH_PATIENCE: Duration = Duration::from_secs(3);
