//! The authority's own address, for clients of a cluster whose proxies run elsewhere.

use std::path::PathBuf;
use std::sync::Arc;

use crate::tasks::Tasks;
use sallyport_access::{ClusterName, HostRole, NodeName};
use sallyport_audit::{Event, Sink};
use sallyport_ca::Trust;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::ServerError;
use crate::authority::Authority;
use crate::config::Limits;
use crate::files;
use crate::listener::{Limiter, accept_loop};
use crate::local_authority::LocalAuthority;
use crate::member::cluster_cache::ClusterCache;
use crate::member::host::{Credentials, certificates};
use crate::member::joining::{Membership, keep_issued, load_or_issue};
use crate::proxy::gateway::{AuthorityWay, Gateway};
use crate::tls_settings::TlsSettings;

/// What the listener starts from.
pub(crate) struct Start {
    pub(crate) cluster: ClusterName,
    pub(crate) directory: PathBuf,
    pub(crate) listener: TcpListener,
    pub(crate) authority: LocalAuthority,
    /// The same authority, whose trust this listener follows.
    pub(crate) rotating: Authority,
    pub(crate) drain: CancellationToken,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: Tasks,
}

/// This listener has nothing to report: the authority audits what is asked of it.
#[derive(Debug)]
struct NoEvents;

impl Sink for NoEvents {
    fn emit(&self, _: Event) {}
}

/// Starts accepting.
pub(crate) async fn start(start: Start) -> Result<(), ServerError> {
    files::private_directory(&start.directory)?;
    let name = crate::config::host_name().or_else(|_| NodeName::new("auth"));
    let membership = Membership {
        cluster: start.cluster.clone(),
        role: HostRole::Auth,
        name: name.map_err(|error| certificates("cannot name the authority", error))?,
        public_names: Vec::new(),
        require_fips: false,
    };
    let path = start.directory.join("listener.json");
    let credentials = load_or_issue(&path, &membership, &start.authority).await?;
    let identity = credentials.identity();
    let trust = Trust::from_bundle(&identity.trust)
        .map_err(|error| certificates("the authority's own trust cannot be used", error))?;
    let view = ClusterCache::new(start.cluster, identity.trust.clone(), trust)
        .map_err(|problem| certificates("cannot prepare the policy", problem))?;
    let view = Arc::new(view);
    let limits = Limits::default();
    // Each proxy relays the connections of all its clients, so one address gets the whole.
    let limiter = Limiter::new(limits.connections, limits.connections, limits.connections_per_user);
    let gateway = Arc::new(Gateway {
        settings: TlsSettings::new(credentials.clone()),
        credentials: credentials.clone(),
        view: Arc::clone(&view),
        authority: AuthorityWay::Here(start.authority.serve),
        relays: true,
        hub: None,
        routes: None,
        ssh: None,
        databases: None,
        sink: Arc::new(NoEvents),
        sightings: start.authority.sightings,
        faults: limiter.faults(),
        handshake_timeout: limits.handshake_timeout,
        drain: start.drain.clone(),
        stop: start.stop.clone(),
    });
    start.tasks.spawn(keep_issued(
        credentials.clone(),
        Arc::clone(&view),
        membership,
        start.authority.issue,
        start.stop.clone(),
    ));
    start.tasks.spawn(follow_locks(start.rotating.clone(), Arc::clone(&view), start.stop.clone()));
    start.tasks.spawn(follow_trust(start.rotating, credentials, view, start.stop.clone()));
    let serving = start.tasks.clone();
    start.tasks.spawn(accept_loop(start.listener, limiter, serving, start.drain, move |acceptance| {
        Arc::clone(&gateway).serve(acceptance)
    }));
    Ok(())
}

/// A proxy that is locked relays nothing here.
async fn follow_locks(authority: Authority, view: Arc<ClusterCache>, stop: CancellationToken) {
    let mut locks = authority.follow_locks();
    let forever = async {
        loop {
            let now = locks.current();
            if now != view.locks() {
                view.locks_in(&now);
            }
            locks.changed().await;
        }
    };
    tokio::select! {
        () = forever => {}
        () = stop.cancelled() => {}
    }
}

/// What other hosts learn by the watch, and confirm, the listener of the authority's own process is told.
async fn follow_trust(
    authority: Authority,
    credentials: Credentials,
    view: Arc<ClusterCache>,
    stop: CancellationToken,
) {
    let mut renewed = credentials.changes();
    let mut trusted = authority.follow_trust();
    let forever = async {
        loop {
            let bundle = trusted.current();
            renewed.mark_unchanged();
            view.trust_in(&bundle);
            let stored = credentials.adopt(bundle.clone());
            match stored {
                Ok(()) => {
                    let id = credentials.identity().id;
                    authority.confirm_trust(id, &bundle, credentials.presented()).await;
                }
                Err(error) => {
                    warn!(error = %ServerError::chain(&error), "a changed trust cannot be stored, so it is not confirmed");
                }
            }
            tokio::select! {
                () = trusted.changed() => {}
                changed = renewed.changed() => if changed.is_err() { return },
            }
        }
    };
    tokio::select! {
        () = forever => {}
        () = stop.cancelled() => {}
    }
}
