//! What a proxy and an agent start before their own work: the cluster as they know it, their renewals and confirmations, and the
//! events and sightings that wait for the authority.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use sallyport_ca::Trust;
use sallyport_session::LiveSessions;
use tokio_util::sync::CancellationToken;

use crate::ServerError;
use crate::health::Health;
use crate::member::authority_client::{AuthorityClient, Route};
use crate::member::client_sightings::Sightings;
use crate::member::cluster_cache::ClusterCache;
use crate::member::confirming::Confirming;
use crate::member::host::{Credentials, certificates};
use crate::member::joining::{Membership, Renewal, Spread};
use crate::member::reporting::Reporter;
use crate::member::spool::{self, Spool};
use crate::member::watching::{self, Refusals, Watching};
use crate::tasks::Tasks;

/// What a member of the cluster starts from.
pub(crate) struct Start<'a> {
    pub(crate) membership: &'a Membership,
    pub(crate) credentials: Credentials,
    /// How it reaches the authority.
    pub(crate) route: Route,
    /// Its own part of the data directory.
    pub(crate) directory: &'a Path,
    /// Events that wait for the authority may fill this much disk.
    pub(crate) event_bytes: u64,
    /// The part of readiness that waits for the policy.
    pub(crate) part: &'static str,
    pub(crate) health: &'a Health,
    pub(crate) stop: &'a CancellationToken,
    pub(crate) tasks: &'a Tasks,
}

/// A member of the cluster that runs.
pub(crate) struct Member {
    pub(crate) credentials: Credentials,
    pub(crate) view: Arc<ClusterCache>,
    pub(crate) client: AuthorityClient,
    pub(crate) spool: Spool,
    pub(crate) sightings: Sightings,
    refusals: Refusals,
    spread: Spread,
    stop: CancellationToken,
    tasks: Tasks,
}

impl Member {
    /// Follows the authority, renews the identity, and sends events and sightings, until the process stops.
    pub(crate) fn start(start: Start<'_>) -> Result<Self, ServerError> {
        let Start { membership, credentials, route, directory, event_bytes, part, health, stop, tasks } =
            start;
        let identity = credentials.identity();
        let trust = Trust::from_bundle(&identity.trust).map_err(|error| {
            let role = membership.role.name();
            certificates(format!("the stored trust of this {role} cannot be used"), error)
        })?;
        let view = ClusterCache::new(membership.cluster.clone(), identity.trust.clone(), trust)
            .map_err(|problem| certificates("cannot prepare the policy", problem))?;
        let view = Arc::new(view);
        let client = AuthorityClient::new(route, credentials.clone(), Arc::clone(&view));

        let (spool, sender) = spool::open(&directory.join("events"), event_bytes)?;
        tasks.spawn(sender.run(client.clone(), stop.clone()));

        let refusals = Refusals::default();
        let watching = Arc::new(Watching {
            view: Arc::clone(&view),
            client: client.clone(),
            kinds: watching::kinds(),
            cache: directory.join("policy.json"),
            part,
            health: health.clone(),
            refusals: refusals.clone(),
            writing: Mutex::default(),
        });
        if watching.load_cache() {
            health.ready(part);
        }
        tasks.spawn(watching.run(stop.clone()));

        let sightings = Sightings::default();
        tasks.spawn(sightings.clone().run(client.clone(), stop.clone()));

        let spread = Spread::default();
        let renewal = Renewal {
            credentials: credentials.clone(),
            view: Arc::clone(&view),
            client: client.clone(),
            public_names: membership.public_names.clone(),
            spread: spread.clone(),
            require_fips: membership.require_fips,
        };
        tasks.spawn(renewal.run(stop.clone()));
        let (stop, tasks) = (stop.clone(), tasks.clone());
        Ok(Self { credentials, view, client, spool, sightings, refusals, spread, stop, tasks })
    }

    /// Tells the authority from now on which trust is in force here. What presents a renewed identity is set up before, since
    /// the authority goes on with a rotation by what this confirms.
    pub(crate) fn confirm(&self) {
        let confirming = Confirming {
            credentials: self.credentials.clone(),
            view: Arc::clone(&self.view),
            client: self.client.clone(),
            spread: self.spread.clone(),
        };
        self.tasks.spawn(confirming.run(self.stop.clone()));
    }

    /// Tells the authority of the sessions that run here, and ends them where it refuses this host.
    pub(crate) fn report(&self, live: LiveSessions) {
        self.tasks.spawn(self.refusals.clone().end_sessions(live.clone(), self.stop.clone()));
        let reporter = Reporter { live, client: self.client.clone() };
        self.tasks.spawn(reporter.run(self.stop.clone()));
    }
}
