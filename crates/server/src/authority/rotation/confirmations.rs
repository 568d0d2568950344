//! Which host has applied what.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};
use sallyport_access::{HostId, HostRole, NodeName};
use sallyport_ca::rotation::CaState;
use sallyport_ca::{CaKind, RotationStatus, SKEW_ALLOWANCE};
use sallyport_store::{Store, StoreError};
use time::{Duration, OffsetDateTime};
use tokio::sync::watch;
use tonic::Status;

use crate::ServerError;
use crate::authority::records::{ConfirmationRecord, HostRecord};
use crate::authority::storage::{PAGE, storage};

/// A host that joined before confirmations were known may have certificates for so long.
const UNKNOWN_VALIDITY: Duration = Duration::days(7);
/// After a start, hosts of this process get so long to be heard of; one that is not is no longer part of the
/// configuration.
const OWN_PATIENCE: Duration = Duration::minutes(2);
/// Renewals that a rotation asks of all hosts at once come at this rate.
const RENEWALS_PER_SECOND: usize = 50;
/// So few need not be spread.
const FEW: usize = 20;

/// What every host has confirmed, in memory and in the state.
#[derive(Debug)]
pub(crate) struct Confirmations {
    store: Store,
    known: Mutex<HashMap<HostId, Held>>,
    changed: watch::Sender<()>,
    opened: OffsetDateTime,
    /// The authorities in force are not those of the state, because these could not be read.
    stale: AtomicBool,
}

#[derive(Debug, Clone)]
struct Held {
    record: ConfirmationRecord,
    /// Of the record in the state; 0 when there is none.
    revision: u64,
    seen: Option<OffsetDateTime>,
}

/// A host that is in the way of a rotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lagging {
    pub(crate) id: HostId,
    pub(crate) name: NodeName,
    pub(crate) role: HostRole,
    /// The rotation that it has confirmed; none when it never did.
    pub(crate) applied: Option<RotationStatus>,
    pub(crate) seen: Option<OffsetDateTime>,
    pub(crate) valid_until: OffsetDateTime,
    /// All that is missing is a new certificate.
    pub(crate) old_certificate: bool,
}

impl Lagging {
    pub(crate) fn in_words(&self, now: OffsetDateTime) -> String {
        let what = match self.applied {
            _ if self.old_certificate => "still presents its old certificate".to_owned(),
            Some(applied) => format!("is at {} of rotation {}", applied.phase, applied.generation),
            None => "never confirmed anything".to_owned(),
        };
        let seen = match self.seen {
            Some(seen) => format!("heard of {} s ago", (now - seen).whole_seconds().max(0)),
            None => "not heard of since the authority started".to_owned(),
        };
        format!("{} {} ({what}; {seen})", self.role.name(), self.name)
    }
}

impl Confirmations {
    /// Reads them. Hosts that joined before there were any get a record.
    pub(crate) async fn load(store: &Store, now: OffsetDateTime) -> Result<Arc<Self>, ServerError> {
        let failed = |error: StoreError| ServerError::Authority {
            action: "read what hosts have confirmed".to_owned(),
            source: error.into(),
        };
        let mut known = HashMap::new();
        let mut after: Option<String> = None;
        loop {
            let page = store.list::<ConfirmationRecord>(after.as_deref(), PAGE, now).await.map_err(failed)?;
            let Some(last) = page.last() else { break };
            after = Some(last.name.clone());
            for stored in page {
                let Ok(id) = stored.name.parse::<HostId>() else { continue };
                known.insert(id, Held { record: stored.value, revision: stored.revision, seen: None });
            }
        }
        let mut after: Option<String> = None;
        loop {
            let page = store.list::<HostRecord>(after.as_deref(), PAGE, now).await.map_err(failed)?;
            let Some(last) = page.last() else { break };
            after = Some(last.name.clone());
            for stored in page {
                known.entry(stored.value.id).or_insert_with(|| Held {
                    record: ConfirmationRecord {
                        valid_until: now + UNKNOWN_VALIDITY,
                        signed_by: String::new(),
                        applied: None,
                        takes_own_logins: false,
                    },
                    revision: 0,
                    seen: None,
                });
            }
        }
        Ok(Arc::new(Self {
            store: store.clone(),
            known: Mutex::new(known),
            changed: watch::Sender::new(()),
            opened: now,
            stale: AtomicBool::new(false),
        }))
    }

    /// Whether the sshd of a registered server takes certificates for a login there alone.
    pub(crate) fn takes_own_logins(&self, id: HostId) -> bool {
        self.lock().get(&id).is_some_and(|held| held.record.takes_own_logins)
    }

    /// Wakes when a host has confirmed something new.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Has rotations look again whom they wait for.
    pub(crate) fn look_again(&self) {
        self.changed.send_replace(());
    }

    /// Notes that the authorities have to be read again.
    pub(crate) fn mark_stale(&self) {
        self.stale.store(true, Ordering::Release);
        self.look_again();
    }

    /// Whether they have to be; the caller that is told so does it.
    pub(crate) fn take_stale(&self) -> bool {
        self.stale.swap(false, Ordering::AcqRel)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<HostId, Held>> {
        self.known.lock()
    }

    /// Notes that a host has certificates until then.
    pub(crate) async fn note_certificates(
        &self,
        id: HostId,
        valid_until: OffsetDateTime,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        self.note(id, now, |record| record.valid_until = record.valid_until.max(valid_until))
            .await
            .map(|_| ())
    }

    /// Notes what a host says; gives whether it is news.
    pub(crate) async fn confirm(
        &self,
        id: HostId,
        applied: BTreeMap<CaKind, RotationStatus>,
        (signed_by, takes_own_logins): (String, bool),
        now: OffsetDateTime,
    ) -> Result<bool, Status> {
        let news = self
            .note(id, now, |record| {
                record.applied = Some(applied.clone());
                record.takes_own_logins = takes_own_logins;
                record.signed_by.clone_from(&signed_by);
            })
            .await?;
        if news {
            self.look_again();
        }
        Ok(news)
    }

    /// Changes a host's record in the state, and then in memory.
    async fn note(
        &self,
        id: HostId,
        now: OffsetDateTime,
        change: impl Fn(&mut ConfirmationRecord),
    ) -> Result<bool, Status> {
        let name = id.to_string();
        for _ in 0..8 {
            let held = {
                let mut known = self.lock();
                let held = known.entry(id).or_insert_with(|| Held {
                    record: ConfirmationRecord {
                        valid_until: now,
                        signed_by: String::new(),
                        applied: None,
                        takes_own_logins: false,
                    },
                    revision: 0,
                    seen: None,
                });
                held.seen = Some(now);
                held.clone()
            };
            let mut record = held.record.clone();
            change(&mut record);
            if record == held.record && held.revision != 0 {
                return Ok(false);
            }
            let written = match held.revision {
                0 => self.store.create(&name, &record, None, now).await,
                revision => self.store.update(&name, revision, &record, None, now).await,
            };
            match written {
                Ok(revision) => {
                    let mut known = self.lock();
                    if let Some(held) = known.get_mut(&id).filter(|held| held.revision < revision) {
                        (held.record, held.revision) = (record, revision);
                    }
                    return Ok(true);
                }
                // Another call of the same host was first.
                Err(
                    StoreError::Conflict { .. } | StoreError::Exists { .. } | StoreError::NotFound { .. },
                ) => {
                    let stored = self.store.get::<ConfirmationRecord>(&name, now).await;
                    let stored = stored.map_err(|error| storage(&error))?;
                    let mut known = self.lock();
                    if let Some(held) = known.get_mut(&id) {
                        match stored {
                            Some(stored) => (held.record, held.revision) = (stored.value, stored.revision),
                            None => held.revision = 0,
                        }
                    }
                }
                Err(error) => return Err(storage(&error)),
            }
        }
        Err(Status::aborted("too many confirmations of one host at a time"))
    }

    /// The hosts with valid certificates that have not applied the phase that a CA is in, and how many there are in all.
    pub(crate) async fn hosts_behind(
        &self,
        state: &CaState,
        now: OffsetDateTime,
    ) -> Result<(Vec<Lagging>, usize), Status> {
        let kind = state.kind();
        let (mut behind, mut all) = (Vec::new(), 0);
        let mut after: Option<String> = None;
        loop {
            let page = self.store.list::<HostRecord>(after.as_deref(), PAGE, now).await;
            let page = page.map_err(|error| storage(&error))?;
            let Some(last) = page.last() else { break };
            after = Some(last.name.clone());
            let known = self.lock();
            for host in page.into_iter().map(|stored| stored.value) {
                let Some(held) = known.get(&host.id) else { continue };
                let gone = host.in_process && held.seen.is_none() && now - self.opened > OWN_PATIENCE;
                if gone || held.record.valid_until + SKEW_ALLOWANCE <= now {
                    continue;
                }
                all += 1;
                let applied =
                    held.record.applied.as_ref().map(|all| all.get(&kind).copied().unwrap_or_default());
                if state.confirmed_by(applied, Some(&held.record.signed_by)) {
                    continue;
                }
                let trusts = applied.is_some_and(|applied| applied.reaches(state.rotation().status()));
                behind.push(Lagging {
                    id: host.id,
                    name: host.name,
                    role: host.role,
                    applied,
                    seen: held.seen,
                    valid_until: held.record.valid_until,
                    old_certificate: trusts,
                });
            }
        }
        Ok((behind, all))
    }

    /// The hosts that a rotation has to wait for.
    pub(crate) async fn lagging(&self, state: &CaState, now: OffsetDateTime) -> Result<Vec<Lagging>, Status> {
        self.hosts_behind(state, now).await.map(|(behind, _)| behind)
    }

    /// Over which time hosts spread renewals.
    pub(crate) fn spread(&self) -> std::time::Duration {
        let hosts = self.lock().len();
        let seconds = if hosts <= FEW { 0 } else { hosts.div_ceil(RENEWALS_PER_SECOND) };
        std::time::Duration::from_secs(seconds as u64)
    }
}
