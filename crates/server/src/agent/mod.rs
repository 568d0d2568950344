//! The agent: a process that dials out and serves this machine's sessions through the proxy.

mod client_context;
mod databases;
mod end_to_end;
mod endpoints;
pub(crate) mod gateway;
mod health;
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

use crate::tasks::Tasks;
use futures::future::BoxFuture;
use sallyport_access::{ClusterName, HostId, HostRole, Node, NodeKind};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::databases::{AgentDatabases, ServedDatabase};
use self::gateway::Gateway;
use self::heartbeat::Description;
use self::labels::OwnLabels;
use self::node::SshNode;
use self::resources::{AgentResources, ServedResource};
use self::tunnel::Dialling;
use self::upload::Uploader;
use crate::ServerError;
use crate::config::{HostPort, NodeSection};
use crate::files::{self, Claim};
use crate::health::Health;
use crate::local_authority::LocalAuthority;
use crate::member::authority_client::Route;
use crate::member::host::certificates;
use crate::member::joining::{Membership, load_or_issue, load_or_join};
use crate::member::session_factors::AuthorityFactors;
use crate::member::spool::Spool;
use crate::member::starting::{self, Member};

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

/// What an agent serves, of each kind, to be asked whether it answers.
#[derive(Clone)]
enum Served {
    Database(ServedDatabase),
    Resource(ServedResource),
}

impl health::Served for Served {
    fn name(&self) -> health::Name {
        match self {
            Self::Database(database) => database.name(),
            Self::Resource(resource) => resource.name(),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Database(one), Self::Database(other)) => one.is_same(other),
            (Self::Resource(one), Self::Resource(other)) => one.is_same(other),
            (Self::Database(_), Self::Resource(_)) | (Self::Resource(_), Self::Database(_)) => false,
        }
    }

    fn ask(&self) -> BoxFuture<'static, Result<(), health::Unwell>> {
        match self {
            Self::Database(database) => database.ask(),
            Self::Resource(resource) => resource.ask(),
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
    let membership =
        Membership { cluster, role: HostRole::Node, name, public_names: Vec::new(), require_fips };
    let identity_path = directory.join("identity.json");
    let credentials = match &authority {
        Some(local) => load_or_issue(&identity_path, &membership, local).await?,
        None => load_or_join(&identity_path, &membership, &proxy, &section.join).await?,
    };
    let identity = credentials.identity();
    let spool_bytes = (section.spool_limit_mib as u64).saturating_mul(1024 * 1024);
    let member = Member::start(starting::Start {
        membership: &membership,
        credentials: credentials.clone(),
        route: Route::At(proxy.clone()),
        directory: &directory,
        event_bytes: spool_bytes / EVENT_SHARE,
        part: POLICY_PART,
        health: &health,
        stop: &stop,
        tasks: &tasks,
    })?;
    let (view, client, spool) = (Arc::clone(&member.view), member.client.clone(), member.spool.clone());
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
        sightings: member.sightings.clone(),
        factors: AuthorityFactors::new(client.clone(), &view),
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
        factors: AuthorityFactors::new(client.clone(), &view),
    });
    let (found, found_health) = watch::channel(health::Found::new());
    let served = {
        let (databases, resources) = (databases.clone(), resources.clone());
        move || {
            let databases = databases.checks().into_iter().map(Served::Database);
            databases.chain(resources.checks().into_iter().map(Served::Resource)).collect::<Vec<_>>()
        }
    };
    tasks.spawn(health::run(served, section.check_interval, view.changes(), found, stop.clone()));
    member.confirm();
    let uploader = Uploader::new(node.recorders(), spool_bytes - spool_bytes / EVENT_SHARE, client.clone());
    tasks.spawn(uploader.clone().run(stop.clone()));
    member.report(node.live());
    let description = Description {
        labels: OwnLabels::start(section.labels.clone(), section.commands.clone(), &directory, &tasks, &stop),
        os_user: node::os_user(),
        address: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        databases: section.databases.iter().map(|database| database.to_yaml()).collect(),
        resources: section.resources.clone(),
        health: found_health,
    };
    let factors = AuthorityFactors::new(client.clone(), &view);
    tasks.spawn(heartbeat::run(client, description, stop.clone()));
    let dialling = Dialling {
        proxy,
        carrier: section.carrier,
        gateway: Gateway {
            id: identity.id,
            name: identity.name.clone(),
            view: Arc::clone(&view),
            sink: Arc::new(spool.clone()),
            factors: Arc::new(factors),
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
