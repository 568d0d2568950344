//! The agent: a process that dials out and serves this machine's sessions through the proxy.

mod client_context;
mod databases;
mod end_to_end;
mod endpoints;
pub(crate) mod gateway;
mod heartbeat;
mod labels;
mod node;
mod proxies;
mod resources;
pub(crate) mod tunnel;
pub(crate) mod upload;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::tasks::Tasks;
use sallyport_access::{ClusterName, HostId, HostRole, Node, NodeKind};
use sallyport_ca::Trust;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::databases::{AgentDatabases, health as database_health};
use self::gateway::Gateway;
use self::heartbeat::Description;
use self::labels::OwnLabels;
use self::node::SshNode;
use self::resources::AgentResources;
use self::tunnel::Dialling;
use self::upload::Uploader;
use crate::ServerError;
use crate::config::{HostPort, NodeSection};
use crate::files::{self, Claim};
use crate::health::Health;
use crate::local_authority::LocalAuthority;
use crate::member::authority_client::{AuthorityClient, Route};
use crate::member::client_sightings::Sightings;
use crate::member::cluster_cache::ClusterCache;
use crate::member::confirming::Confirming;
use crate::member::host::certificates;
use crate::member::joining::{Membership, Renewal, Spread, load_or_issue, load_or_join};
use crate::member::reporting::Reporter;
use crate::member::spool::{self, Spool};
use crate::member::watching::{self, Refusals, Watching};

/// The readiness part of the policy.
const POLICY_PART: &str = "node policy";
/// Of the spool's bound, this part is for events and the rest for recordings.
const EVENT_SHARE: u64 = 16;
/// How long a stopping agent tries to hand over events and the ends of recordings.
const FLUSH_PATIENCE: Duration = Duration::from_secs(5);

/// What an agent starts from.
pub(crate) struct Start {
    pub(crate) cluster: ClusterName,
    pub(crate) section: NodeSection,
    /// The agent's own part of the data directory.
    pub(crate) directory: PathBuf,
    /// The proxy's public address.
    pub(crate) proxy: HostPort,
    /// Ports that this process listens on.
    pub(crate) listening: Vec<u16>,
    /// For an agent in the authority's process, which needs no token.
    pub(crate) authority: Option<LocalAuthority>,
    /// As in [`crate::config::CryptoSection`].
    pub(crate) require_fips: bool,
    pub(crate) health: Health,
    pub(crate) drain: CancellationToken,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: Tasks,
}

/// An agent that runs.
#[derive(Debug)]
pub(crate) struct Service {
    id: HostId,
    /// As whom it is on record.
    host: String,
    node: SshNode,
    databases: AgentDatabases,
    resources: AgentResources,
    spool: Spool,
    uploader: Uploader,
    _claim: Claim,
}

impl Service {
    pub(crate) fn id(&self) -> HostId {
        self.id
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Takes events for the authority.
    pub(crate) fn spool(&self) -> Spool {
        self.spool.clone()
    }

    /// SSH connections that are open, and sessions with databases and other resources.
    pub(crate) fn connections(&self) -> usize {
        self.node.connections() + self.databases.sessions() + self.resources.sessions()
    }

    /// Waits for them to end; gives how many are left.
    pub(crate) async fn drained(&self, patience: Duration) -> usize {
        let (node, databases, resources) = tokio::join!(
            self.node.drained(patience),
            self.databases.drained(patience),
            self.resources.drained(patience)
        );
        node + databases + resources
    }

    /// Ends what is still open and hands what it left behind to the authority. What cannot be handed over waits on
    /// disk for the next start.
    pub(crate) async fn finish(&self) {
        tokio::join!(self.node.end_all(), self.databases.end_all(), self.resources.end_all());
        let (events, recordings) =
            tokio::join!(self.spool.flush(FLUSH_PATIENCE), self.uploader.drained(FLUSH_PATIENCE));
        if !(events && recordings) {
            tracing::warn!("some events or recordings wait on disk for the next start");
        }
    }
}

/// Starts the node service.
pub(crate) async fn start(start: Start) -> Result<Service, ServerError> {
    let Start {
        cluster,
        section,
        directory,
        proxy,
        listening,
        authority,
        require_fips,
        health,
        drain,
        stop,
        tasks,
    } = start;
    let claim = files::claim(&directory)?;
    health.waiting(tunnel::PART, "has no tunnel to the proxy yet");
    health.waiting(POLICY_PART, "has not heard from the authority yet");
    let name = match section.name.clone() {
        Some(name) => name,
        None => crate::config::node_name(&cluster).map_err(|error| {
            certificates("this machine's name cannot be the node's; set node.name", error)
        })?,
    };
    let membership = Membership {
        cluster: cluster.clone(),
        role: HostRole::Node,
        name,
        public_names: Vec::new(),
        require_fips,
    };
    let identity_path = directory.join("identity.json");
    let credentials = match &authority {
        Some(local) => load_or_issue(&identity_path, &membership, local).await?,
        None => load_or_join(&identity_path, &membership, &proxy, &section.join).await?,
    };
    let identity = credentials.identity();
    let trust = Trust::from_bundle(&identity.trust)
        .map_err(|error| certificates("the stored trust of this node cannot be used", error))?;
    let view = ClusterCache::new(cluster, identity.trust.clone(), trust)
        .map_err(|problem| certificates("cannot prepare the policy", problem))?;
    let view = Arc::new(view);
    let client = AuthorityClient::new(Route::At(proxy.clone()), credentials.clone(), Arc::clone(&view));

    let spool_bytes = (section.spool_limit_mib as u64).saturating_mul(1024 * 1024);
    let (spool, sender) = spool::open(&directory.join("events"), spool_bytes / EVENT_SHARE)?;
    tasks.spawn(sender.run(client.clone(), stop.clone()));

    let refusals = Refusals::default();
    let watching = Arc::new(Watching {
        view: Arc::clone(&view),
        client: client.clone(),
        kinds: watching::kinds(),
        cache: directory.join("policy.json"),
        part: POLICY_PART,
        health: health.clone(),
        refusals: refusals.clone(),
        writing: Mutex::default(),
    });
    if watching.load_cache() {
        health.ready(POLICY_PART);
    }
    tasks.spawn(watching.run(stop.clone()));

    let spread = Spread::default();
    let renewal = Renewal {
        credentials: credentials.clone(),
        view: Arc::clone(&view),
        client: client.clone(),
        public_names: Vec::new(),
        spread: spread.clone(),
        require_fips,
    };
    tasks.spawn(renewal.run(stop.clone()));

    let sightings = Sightings::default();
    tasks.spawn(sightings.clone().run(client.clone(), stop.clone()));
    let own = Node {
        id: identity.id,
        name: identity.name.clone(),
        labels: section.labels.clone(),
        kind: NodeKind::Sallyport,
    };
    let node = SshNode::start(node::Start {
        own,
        section: &section,
        proxy: &proxy,
        listening,
        directory: &directory,
        credentials: credentials.clone(),
        view: Arc::clone(&view),
        sink: Arc::new(spool.clone()),
        sightings,
        stop: stop.clone(),
        tasks: tasks.clone(),
    })?;
    let databases = AgentDatabases::start(databases::Start {
        cluster: &membership.cluster,
        id: identity.id,
        name: identity.name.clone(),
        section: &section,
        view: Arc::clone(&view),
        client: client.clone(),
        host: credentials.clone(),
        sink: Arc::new(spool.clone()),
        recorders: node.recorders(),
        live: node.live(),
        stop: stop.clone(),
        tasks: tasks.clone(),
    })?;
    let resources = AgentResources::new(resources::Start {
        cluster: membership.cluster.clone(),
        id: identity.id,
        name: identity.name.clone(),
        view: Arc::clone(&view),
        host: credentials.clone(),
        sink: Arc::new(spool.clone()),
        recorders: node.recorders(),
        live: node.live(),
    });
    let (found, health_of_databases) = watch::channel(database_health::Found::new());
    tasks.spawn(database_health::run(databases.clone(), found, stop.clone()));
    let confirming = Confirming {
        credentials: credentials.clone(),
        view: Arc::clone(&view),
        client: client.clone(),
        spread,
    };
    tasks.spawn(confirming.run(stop.clone()));
    let uploader = Uploader::new(node.recorders(), spool_bytes - spool_bytes / EVENT_SHARE, client.clone());
    tasks.spawn(uploader.clone().run(stop.clone()));
    tasks.spawn(refusals.end_sessions(node.live(), stop.clone()));
    let reporter = Reporter { live: node.live(), client: client.clone() };
    tasks.spawn(reporter.run(stop.clone()));
    let description = Description {
        labels: OwnLabels::start(section.labels.clone(), section.commands.clone(), &directory, &tasks, &stop),
        os_user: node::os_user(),
        address: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        databases: section.databases.iter().map(|database| database.to_yaml()).collect(),
        resources: section.resources.clone(),
        health: health_of_databases,
    };
    tasks.spawn(heartbeat::run(client, description, stop.clone()));
    let dialling = Dialling {
        proxy,
        carrier: section.carrier,
        gateway: Gateway {
            id: identity.id,
            name: identity.name.clone(),
            view: Arc::clone(&view),
            sink: Arc::new(spool.clone()),
        },
        databases: Some(databases.clone()),
        resources: Some(resources.clone()),
        credentials,
        view,
        serve: node.serve(),
        health,
        drain,
        stop,
        tasks: tasks.clone(),
    };
    tasks.spawn(dialling.run());
    let host = format!("node:{}", identity.name);
    Ok(Service { id: identity.id, host, node, databases, resources, spool, uploader, _claim: claim })
}
