//! Keeping the view up to date, across losses of the authority and restarts without it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use metrics::counter;
use parking_lot::Mutex;
use sallyport_access::Kind;
use sallyport_session::LiveSessions;
use sallyport_wire::v1::watch_event::Event as Change;
use sallyport_wire::{fips, v1};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};
use tracing::{Instrument, debug, error, info, info_span, warn};

use crate::ServerError;
use crate::backoff::Backoff;
use crate::files;
use crate::health::Health;
use crate::member::authority_client::AuthorityClient;
use crate::member::cluster_cache::{self, ClusterCache, Held};

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// How often it is said again that the authority is out of touch.
const SAY_AGAIN: Duration = Duration::from_secs(30);
/// A snapshot of 10,000 nodes takes a fraction of this.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(60);
/// Changes come in bursts; the cache is written once for each.
const CACHE_DELAY: Duration = Duration::from_secs(1);
/// Entries of one snapshot: a hostile authority is not in the threat model, a runaway one is.
const SNAPSHOT_LIMIT: usize = 500_000;

#[derive(Serialize, Deserialize)]
struct Cache {
    version: u32,
    held: Vec<Held>,
}

const CACHE_VERSION: u32 = 1;

/// Why the cache of the last run is not read, or the next one's is not written.
#[derive(Debug, thiserror::Error)]
enum CacheError {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    File(#[from] ServerError),
}

/// What the owner of a session that is ended reads.
const REFUSED: &str = "the cluster requires FIPS mode, and this host is not in it";

/// Follows the authority.
pub(crate) struct Watching {
    /// What is kept up to date.
    pub(crate) view: Arc<ClusterCache>,
    /// Where from.
    pub(crate) client: AuthorityClient,
    /// What to ask for.
    pub(crate) kinds: Vec<String>,
    /// Where the last state is kept for a start without the authority.
    pub(crate) cache: PathBuf,
    /// The part of the process whose readiness depends on it.
    pub(crate) part: &'static str,
    pub(crate) health: Health,
    /// What ends the sessions here when the authority refuses this host.
    pub(crate) refusals: Refusals,
    /// Held while the cache is written, so that an older state is never written over a newer one.
    pub(crate) writing: Mutex<()>,
}

/// What a proxy or an agent follows: what decides, and every kind of resource. Of a kind that is not asked for the authority tells
/// nothing, in roles and locks neither.
pub(crate) fn kinds() -> Vec<String> {
    let resources = Kind::ALL.iter().map(|kind| kind.row().document);
    ["role", "lock", "session_policy", "trust"].into_iter().chain(resources).map(str::to_owned).collect()
}

/// Tells that the authority refuses this host, whose sessions would hear of no lock. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Refusals(Arc<Notify>);

impl Refusals {
    /// Ends sessions at each refusal, until `stop`.
    pub(crate) async fn end_sessions(self, live: LiveSessions, stop: CancellationToken) {
        let forever = async {
            loop {
                self.0.notified().await;
                let sessions = live.list();
                if !sessions.is_empty() {
                    warn!(sessions = sessions.len(), "sessions are ended: {REFUSED}");
                }
                for session in sessions {
                    let _ = live.end(&session.about.session_id, REFUSED);
                }
            }
        };
        tokio::select! {
            () = forever => {}
            () = stop.cancelled() => {}
        }
    }
}

impl Watching {
    /// Fills the view from the last run; says whether it has roles, without which nothing is permitted.
    pub(crate) fn load_cache(&self) -> bool {
        let loaded = match files::read_private(&self.cache) {
            Ok(Some(bytes)) => serde_json::from_slice::<Cache>(&bytes).map_err(CacheError::from),
            Ok(None) => return false,
            Err(error) => Err(CacheError::from(error)),
        };
        match loaded {
            Ok(mut cache) if cache.version == CACHE_VERSION => {
                // The host stores the trust beside its identity before it confirms to the authority that the trust is
                // in force here. What is in this file may be older.
                cache.held.retain(|held| held.kind != "trust");
                let any_role = cache.held.iter().any(|held| held.kind == "role");
                self.view.replace(cache.held);
                any_role
            }
            Ok(_) => false,
            Err(problem) => {
                // Nothing is lost: the authority has it all.
                warn!(path = %self.cache.display(), %problem, "the cached policy cannot be used");
                false
            }
        }
    }

    fn store_cache(&self) {
        let _writing = self.writing.lock();
        let cache = Cache { version: CACHE_VERSION, held: self.view.held() };
        let written = serde_json::to_vec(&cache)
            .map_err(CacheError::from)
            .and_then(|json| Ok(files::write_private(&self.cache, &json)?));
        if let Err(problem) = written {
            warn!(path = %self.cache.display(), %problem, "the policy cache was not written");
        }
    }

    /// Follows until `stop`.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let span = info_span!("watch", part = self.part);
        let follow = async {
            let (mut backoff, mut said) = (Backoff::new(FIRST_PAUSE, LONGEST_PAUSE), None);
            loop {
                let ended = self.follow(&mut backoff).await;
                counter!("sallyport_authority_calls_total", "method" => "Watch", "result" => if ended.is_ok() { "ok" } else { "error" })
                    .increment(1);
                match &ended {
                    Ok(()) => debug!("the watch ended; starting again"),
                    Err(status) if fips::is_refusal(status) => {
                        if said.is_none_or(|said: Instant| said.elapsed() >= SAY_AGAIN) {
                            said = Some(Instant::now());
                            error!(
                                message = status.message(),
                                "the authority refuses this host, which serves no sessions"
                            );
                        }
                        self.refused(status).await;
                    }
                    Err(status) if said.is_none_or(|said: Instant| said.elapsed() >= SAY_AGAIN) => {
                        said = Some(Instant::now());
                        warn!(
                            message = status.message(),
                            code = ?status.code(),
                            "not in touch with the authority; carrying on with what is known"
                        );
                    }
                    Err(status) => debug!(message = status.message(), "not in touch with the authority"),
                }
                match ended {
                    Ok(()) => backoff.wait().await,
                    Err(status) => backoff.wait_after(&status).await,
                }
            }
        };
        tokio::select! {
            () = follow.instrument(span) => {}
            () = stop.cancelled() => {}
        }
    }

    /// The cluster demands FIPS mode, and this process is not in it: nothing is permitted here until that is taken back, since no
    /// lock is heard of meanwhile either. Nor is it at the next start, before the authority has answered.
    async fn refused(self: &Arc<Self>, status: &Status) {
        self.health.waiting(self.part, status.message());
        if self.view.forget_roles() {
            let this = Arc::clone(self);
            let _ = tokio::task::spawn_blocking(move || this.store_cache()).await;
        }
        self.refusals.0.notify_one();
    }

    async fn follow(self: &Arc<Self>, backoff: &mut Backoff) -> Result<(), Status> {
        let mut fleet = self.client.fleet();
        let Ok(events) = tokio::time::timeout(SNAPSHOT_TIMEOUT, async {
            let mut events = match fleet.watch(v1::WatchRequest { kinds: self.kinds.clone() }).await {
                // An authority of an earlier release knows no such kind, and has nothing of it.
                Err(status) if status.code() == Code::InvalidArgument => {
                    fleet.watch(v1::WatchRequest { kinds: self.kinds_of_old() }).await?.into_inner()
                }
                answer => answer?.into_inner(),
            };
            let mut snapshot = Vec::new();
            loop {
                match events.message().await?.and_then(|message| message.event) {
                    Some(Change::Put(resource)) if snapshot.len() < SNAPSHOT_LIMIT => {
                        snapshot.push(held(resource))
                    }
                    Some(Change::Put(_)) => {
                        return Err(Status::resource_exhausted("the snapshot is too large"));
                    }
                    Some(Change::Delete(_)) => {}
                    Some(Change::SnapshotDone(_)) => break,
                    None => {
                        return Err(Status::unavailable("the watch ended before the snapshot was complete"));
                    }
                }
            }
            self.view.replace(snapshot);
            Ok(events)
        })
        .await
        else {
            return Err(Status::deadline_exceeded("no snapshot came"));
        };
        let mut events = events?;
        info!("in touch with the authority");
        backoff.reset();
        self.health.ready(self.part);
        self.cache_soon();
        let mut dirty = false;
        loop {
            let message = if dirty {
                match tokio::time::timeout(CACHE_DELAY, events.message()).await {
                    Ok(message) => message?,
                    Err(_) => {
                        dirty = false;
                        self.cache_soon();
                        continue;
                    }
                }
            } else {
                events.message().await?
            };
            let Some(message) = message else { return Ok(()) };
            let change = match message.event {
                Some(Change::Put(resource)) => cluster_cache::Change::Put(held(resource)),
                Some(Change::Delete(name)) => {
                    cluster_cache::Change::Delete { kind: name.kind, name: name.name }
                }
                Some(Change::SnapshotDone(_)) | None => continue,
            };
            dirty |= self.view.apply(change);
        }
    }

    /// What is followed, without the kinds of the catalogue.
    fn kinds_of_old(&self) -> Vec<String> {
        let is_listed = |kind: &str| Kind::of_document(kind).is_some_and(Kind::is_listed);
        self.kinds.iter().filter(|kind| !is_listed(kind)).cloned().collect()
    }

    fn cache_soon(self: &Arc<Self>) {
        let this = Arc::clone(self);
        tokio::task::spawn_blocking(move || this.store_cache());
    }
}

fn held(resource: v1::Resource) -> Held {
    Held { kind: resource.kind, name: resource.name, yaml: resource.yaml }
}
