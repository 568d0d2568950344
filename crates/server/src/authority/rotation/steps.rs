//! The authority's side of rotations: taking their steps, and resuming after a crash.
//!
//! A step is one transaction on the state: the CA's record, compared and swapped, together with the audit event that
//! tells of it. The event goes to the log afterwards and is then removed; whatever a crash left is told at the next
//! start. Keys are made before the transaction. Where they are sealed, nothing is left of them when it does not happen;
//! where they are in a token, a note in the state says how they are called, so that they are found and removed.
//!
//! What this process signs and trusts follows the state: it is read again after every step, also after one that failed
//! in a way that leaves open whether it happened.

use std::sync::Arc;

use sallyport_audit::{Code, Event};
use sallyport_ca::rotation::{CaState, Mode, Phase};
use sallyport_ca::{Authority as CertAuthority, AuthorityRecord, CaError, CaKind};
use sallyport_store::{Op, Store, StoreError, Stored, typed};
use time::{Duration, OffsetDateTime};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tracing::{info, warn};
use uuid::Uuid;

use crate::ServerError;
use crate::authority::audit::journal::Journal;
use crate::authority::config::AuthConfig;
use crate::authority::devices::kept::Devices;
use crate::authority::identities::logins::Logins;
use crate::authority::issuance::authorities::{Authorities, make};
use crate::authority::issuance::in_force::Issuance;
use crate::authority::records::{AnnouncementRecord, CaAttemptRecord, CaRecord};
use crate::authority::rotation::confirmations::{Confirmations, Lagging};
use crate::authority::storage::{PAGE, storage};
use sallyport_ca::rotation::pin_of;

/// Names in an event or a refusal, at most.
const MOST_NAMES: usize = 20;
/// A grace in which hosts could not even confirm makes no sense; above, no administrator would see the end.
const GRACE: std::ops::RangeInclusive<Duration> = Duration::SECOND..=Duration::days(365);

/// What is asked of a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// On to this phase, which must be the next one.
    To(Phase),
    /// Back to the old CA.
    Rollback,
    /// What ends the phases from now on; a rotation that is not under way is begun in automatic mode.
    Mode(Mode),
}

/// Who takes a step, as its event says it.
pub(crate) type Tell<'a> = &'a (dyn Fn(Code) -> Event + Send + Sync);

/// A step that is ready to be written.
struct Ready {
    state: CaState,
    code: Code,
    /// Hosts that are left behind.
    behind: Vec<Lagging>,
    /// Other changes that belong to it.
    with: Vec<Op>,
}

/// Takes rotations from step to step.
#[derive(Debug)]
pub(crate) struct Rotations {
    pub(super) config: Arc<AuthConfig>,
    pub(super) store: Store,
    pub(super) journal: Arc<Journal>,
    pub(super) issuance: Arc<Issuance>,
    pub(super) confirmations: Arc<Confirmations>,
    pub(super) devices: Arc<Devices>,
    pub(super) logins: Arc<Logins>,
    pub(super) stop: CancellationToken,
}

impl Rotations {
    #[allow(clippy::too_many_arguments, reason = "each is one that it takes")]
    pub(crate) fn new(
        config: &Arc<AuthConfig>,
        store: &Store,
        journal: &Arc<Journal>,
        issuance: &Arc<Issuance>,
        confirmations: &Arc<Confirmations>,
        devices: &Arc<Devices>,
        logins: &Arc<Logins>,
        stop: &CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            config: Arc::clone(config),
            store: store.clone(),
            journal: Arc::clone(journal),
            issuance: Arc::clone(issuance),
            confirmations: Arc::clone(confirmations),
            devices: Arc::clone(devices),
            logins: Arc::clone(logins),
            stop: stop.clone(),
        })
    }

    /// Takes one step of the rotation of a CA.
    pub(crate) async fn rotate(
        &self,
        kind: CaKind,
        step: Step,
        force: bool,
        tell: Tell<'_>,
    ) -> Result<Arc<Authorities>, Status> {
        // A CA that was not needed yet is made first; to replace it is pointless, but not wrong.
        self.issuance.with_signer(kind).await?;
        let _one = self.issuance.change().await;
        let now = OffsetDateTime::now_utc();
        let authorities = self.issuance.authorities();
        let entry = authorities
            .entry(kind)
            .ok_or_else(|| Status::unavailable(format!("there is no {kind} CA yet")))?;
        let ready = self.prepare(&authorities, &entry.state, step, force, now).await?;
        let event = told(tell(ready.code), &entry.state, &ready.state, &ready.behind);
        let announcement = AnnouncementRecord { event: event.to_json() };
        let broken = |error: StoreError| storage(&error);
        let mut steps = vec![
            typed::update(kind.name(), entry.revision, &CaRecord(ready.state.clone()), None)
                .map_err(broken)?,
            typed::create(&event.id.to_string(), &announcement, None).map_err(broken)?,
        ];
        steps.extend(ready.with);
        let written = self.store.backend().transact(steps, now).await;
        let reloaded = self.issuance.reload_locked().await;
        match (&written, &reloaded) {
            (Ok(_), Ok(_)) => {
                let (from, to) = (entry.state.rotation().phase, ready.state.rotation().phase);
                info!(%kind, %from, %to, generation = ready.state.rotation().generation, "a CA is being rotated");
            }
            // Nothing stale is dangerous: what was trusted before still is. But it is not what was asked for.
            (Ok(_), Err(problem)) => {
                self.confirmations.mark_stale();
                warn!(%kind, problem = ServerError::chain(problem), "a step was written and cannot be read again");
            }
            // It may have been written nevertheless. The state knows.
            (Err(error), Ok(reloaded)) => {
                let is_there = reloaded.entry(kind).is_some_and(|entry| entry.state == ready.state);
                warn!(%kind, %error, is_there, "a step of a rotation could not be written in the ordinary way");
                if !is_there {
                    self.clear_attempts(reloaded).await;
                }
            }
            (Err(error), Err(_)) => {
                self.confirmations.mark_stale();
                warn!(%kind, %error, "a step of a rotation could not be written");
            }
        }
        let announced = self.announce().await;
        written.map_err(|error| storage(&error))?;
        let reloaded = reloaded.map_err(|problem| {
            Status::unavailable(format!(
                "the step was taken, but the authority cannot go on with it yet: {}",
                ServerError::chain(&problem)
            ))
        })?;
        announced?;
        Ok(reloaded)
    }

    /// What a step would make of the state, if it may be taken.
    async fn prepare(
        &self,
        authorities: &Authorities,
        state: &CaState,
        step: Step,
        force: bool,
        now: OffsetDateTime,
    ) -> Result<Ready, Status> {
        let phase = state.rotation().phase;
        let none = |state, code| Ready { state, code, behind: Vec::new(), with: Vec::new() };
        match step {
            Step::Mode(mode) if phase != Phase::Standby => {
                check_grace(mode)?;
                Ok(none(state.with_mode(mode), Code::CaRotationMode))
            }
            Step::Mode(Mode::Manual) => Err(Status::failed_precondition(format!(
                "no rotation of the {} CA is under way; begin one: sallyport admin ca rotate --type {} --phase init",
                state.kind(),
                state.kind()
            ))),
            Step::Mode(mode) => {
                check_grace(mode)?;
                self.begin(authorities, state, mode, now).await
            }
            Step::To(Phase::Init) if phase == Phase::Standby => {
                self.begin(authorities, state, Mode::Manual, now).await
            }
            Step::To(wanted) if wanted != phase.next() => Err(Status::failed_precondition(format!(
                "the {kind} CA is in phase {phase}, and the next one is {next}, not {wanted}: sallyport admin ca rotate \
                 --type {kind} --phase {next}",
                kind = state.kind(),
                next = phase.next(),
            ))),
            Step::To(next) => {
                let behind = self.confirmations.lagging(state, now).await?;
                if !behind.is_empty() && !force {
                    return Err(Status::failed_precondition(refusal(state, &behind, now)));
                }
                let over = next == Phase::Standby;
                let code = if over { Code::CaRotationFinished } else { Code::CaRotationAdvanced };
                let state = state.advance(now).map_err(wrong)?;
                Ok(Ready { state, code, behind, with: Vec::new() })
            }
            Step::Rollback => Ok(none(state.rollback(now).map_err(wrong)?, Code::CaRotationRolledBack)),
        }
    }

    /// Makes the new CA, and what its record becomes.
    async fn begin(
        &self,
        authorities: &Authorities,
        state: &CaState,
        mode: Mode,
        now: OffsetDateTime,
    ) -> Result<Ready, Status> {
        let kind = state.kind();
        self.clear_attempts(authorities).await;
        let attempt = Uuid::now_v7().to_string();
        let labels = state.active().keys().map(|key| {
            // As `Authority::generate` calls them: up to the name of an earlier attempt, that of the same key.
            format!("{} {attempt}", without_attempt(&key.label))
        });
        let note = CaAttemptRecord { labels: labels.collect() };
        self.store.create(&attempt, &note, None, now).await.map_err(|error| storage(&error))?;
        let custody = self.issuance.custodies().of(kind).attempt(&attempt);
        let made = make(kind, &self.config.cluster, custody, authorities.suite()).await;
        let made: Result<CertAuthority, ServerError> = made;
        let made = match made {
            Ok(made) => made,
            Err(problem) => {
                warn!(%kind, problem = ServerError::chain(&problem), "the keys of a new CA were not made");
                self.clear_attempts(authorities).await;
                return Err(Status::unavailable(format!(
                    "the new {kind} CA cannot be made: {}",
                    ServerError::chain(&problem)
                )));
            }
        };
        let state = state.begin(made.record().clone(), mode, now).map_err(wrong)?;
        let with = vec![typed::delete::<CaAttemptRecord>(&attempt, None)];
        Ok(Ready { state, code: Code::CaRotationBegun, behind: Vec::new(), with })
    }

    /// After a start: tells what was not told, and removes keys that no record names.
    pub(crate) async fn resume_rotations(&self) {
        if let Err(status) = self.announce().await {
            warn!(message = status.message(), "events of rotations wait for the audit log");
        }
        self.clear_attempts(&self.issuance.authorities()).await;
        for (kind, entry) in self.issuance.authorities().entries() {
            let rotation = entry.state.rotation();
            if rotation.phase != Phase::Standby {
                info!(%kind, phase = %rotation.phase, generation = rotation.generation, "the rotation of a CA goes on");
            }
        }
    }

    /// Brings events that were written with steps into the log. One that is there already is not written twice.
    async fn announce(&self) -> Result<(), Status> {
        let now = OffsetDateTime::now_utc();
        // What is told is removed, so that the first page is always what is left.
        loop {
            let waiting = self.store.list::<AnnouncementRecord>(None, PAGE, now).await;
            let waiting = waiting.map_err(|error| storage(&error))?;
            if waiting.is_empty() {
                return Ok(());
            }
            let events = waiting.iter().filter_map(|stored| match Event::from_json(&stored.value.event) {
                Ok(event) => Some(event),
                Err(error) => {
                    warn!(%error, id = stored.name, "an event of a rotation cannot be read and is dropped");
                    None
                }
            });
            self.journal.record(events.collect()).await?;
            for stored in &waiting {
                match self.store.delete::<AnnouncementRecord>(&stored.name, None, now).await {
                    Ok(()) | Err(StoreError::NotFound { .. }) => {}
                    Err(error) => return Err(storage(&error)),
                }
            }
        }
    }

    /// Removes the keys of attempts that did not come to an end. What cannot be removed now stays noted.
    pub(crate) async fn clear_attempts(&self, authorities: &Authorities) {
        let now = OffsetDateTime::now_utc();
        let mut after = None::<String>;
        loop {
            let notes = match self.store.list::<CaAttemptRecord>(after.as_deref(), PAGE, now).await {
                Ok(notes) => notes,
                Err(error) => return warn!(%error, "keys of unfinished rotations cannot be looked for"),
            };
            let Some(last) = notes.last() else { return };
            after = Some(last.name.clone());
            self.clear(notes, authorities, now).await;
        }
    }

    /// Some of them.
    async fn clear(
        &self,
        notes: Vec<Stored<CaAttemptRecord>>,
        authorities: &Authorities,
        now: OffsetDateTime,
    ) {
        for note in notes {
            let labels = note.value.labels;
            let in_use = authorities
                .entries()
                .flat_map(|(_, entry)| entry.state.trusted().flat_map(AuthorityRecord::keys))
                .any(|key| labels.contains(&key.label));
            if !in_use {
                let (custodies, labels) = (Arc::clone(self.issuance.custodies()), labels.clone());
                match tokio::task::spawn_blocking(move || custodies.discard(&labels)).await {
                    Ok(Ok(0)) => {}
                    Ok(Ok(keys)) => {
                        info!(keys, "keys of a rotation that did not happen were removed from a token")
                    }
                    Ok(Err(error)) => {
                        warn!(%error, "keys of a rotation that did not happen are still in a token");
                        continue;
                    }
                    Err(_) => continue,
                }
            }
            if let Err(error) = self.store.delete::<CaAttemptRecord>(&note.name, None, now).await {
                warn!(%error, "the note of an unfinished rotation is still there");
            }
        }
    }
}

/// A label without the attempt that made it; the labels of the first CAs have none.
pub(crate) fn without_attempt(label: &str) -> &str {
    match label.rsplit_once(' ') {
        Some((rest, last)) if last.parse::<Uuid>().is_ok() => rest,
        _ => label,
    }
}

fn check_grace(mode: Mode) -> Result<(), Status> {
    match mode {
        Mode::Automatic { grace } if !GRACE.contains(&grace) => Err(Status::invalid_argument(
            "the grace of an automatic rotation is from 1 s to 365 days; 30 h is usual",
        )),
        Mode::Automatic { .. } | Mode::Manual => Ok(()),
    }
}

fn wrong(error: CaError) -> Status {
    Status::failed_precondition(error.to_string())
}

/// Why a step may not be taken: the hosts in the way, and what to do about them.
fn refusal(state: &CaState, behind: &[Lagging], now: OffsetDateTime) -> String {
    let (kind, rotation) = (state.kind(), state.rotation());
    let hosts = if behind.len() == 1 { "1 host has" } else { &format!("{} hosts have", behind.len()) };
    format!(
        "the {kind} CA cannot leave the phase {}: {hosts} not confirmed it: {}; bring them back, remove them \
         (sallyport admin rm node/NAME), or leave them behind with --force",
        rotation.phase,
        listed(behind, |host| host.in_words(now))
    )
}

pub(crate) fn listed(behind: &[Lagging], words: impl Fn(&Lagging) -> String) -> String {
    let mut text = behind.iter().take(MOST_NAMES).map(words).collect::<Vec<_>>().join(", ");
    if behind.len() > MOST_NAMES {
        text.push_str(&format!(" and {} more", behind.len() - MOST_NAMES));
    }
    text
}

/// The event of a step.
fn told(event: Event, from: &CaState, to: &CaState, behind: &[Lagging]) -> Event {
    let (kind, before, after) = (to.kind(), from.rotation(), to.rotation());
    let mut event = event
        .message(format!("{kind} CA: {} to {}", before.phase, after.phase))
        .field("ca", kind.name())
        .field("generation", after.generation)
        .field("from", before.phase.name())
        .field("phase", after.phase.name());
    if let Mode::Automatic { grace } = after.mode {
        event = event.field("grace_seconds", grace.whole_seconds());
    }
    for (name, record) in [("signer", Some(to.signer())), ("also_trusted", to.trusted().nth(1))] {
        if let Some(pin) = record.and_then(pin_of) {
            event = event.field(name, pin);
        }
    }
    if behind.is_empty() {
        return event;
    }
    event
        .field("forced", true)
        .field("left_behind", listed(behind, |host| format!("{}:{}", host.role.name(), host.name)))
}
