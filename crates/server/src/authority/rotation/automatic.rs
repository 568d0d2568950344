//! Rotations that the authority takes forward by itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sallyport_audit::{Code, Event};
use sallyport_ca::CaKind;
use sallyport_ca::rotation::{CaState, Rotation};
use time::OffsetDateTime;
use tracing::warn;

use crate::ServerError;
use crate::authority::rotation::steps::{Rotations, Step, listed};

/// How often to look again while a rotation waits for hosts: certificates of hosts that are gone end.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// Confirmations come in bursts.
const BURST: Duration = Duration::from_millis(200);
/// How often to say that a rotation waits for the same hosts.
const REMIND: time::Duration = time::Duration::hours(6);

/// What was said last about a rotation that waits.
struct Complaint {
    rotation: Rotation,
    at: OffsetDateTime,
}

impl Rotations {
    /// Takes each step when its time has come and all hosts have confirmed, until the authority stops.
    pub(crate) async fn rotate_automatically(self: Arc<Self>) {
        let mut authorities = self.issuance.follow();
        let mut confirmed = self.confirmations.changes();
        let mut complaints = BTreeMap::new();
        loop {
            authorities.mark_unchanged();
            confirmed.mark_unchanged();
            if self.confirmations.take_stale()
                && let Err(problem) = self.issuance.reload().await
            {
                warn!(
                    problem = ServerError::chain(&problem),
                    "the certificate authorities cannot be read again"
                );
                self.confirmations.mark_stale();
            }
            let wait = self.advance_what_is_due(&mut complaints).await;
            tokio::select! {
                () = tokio::time::sleep(wait.unwrap_or(LOOK_AGAIN)) => {}
                _ = authorities.changed() => {}
                _ = confirmed.changed() => tokio::time::sleep(BURST).await,
                () = self.stop.cancelled() => return,
            }
        }
    }

    /// Gives when to look again at the latest.
    async fn advance_what_is_due(&self, complaints: &mut BTreeMap<CaKind, Complaint>) -> Option<Duration> {
        let now = OffsetDateTime::now_utc();
        let mut next: Option<Duration> = None;
        for (kind, entry) in self.issuance.authorities().entries() {
            let rotation = entry.state.rotation();
            let Some(due) = rotation.due() else {
                complaints.remove(&kind);
                continue;
            };
            let left = Duration::try_from(due - now).unwrap_or_default();
            if !left.is_zero() {
                next = Some(next.map_or(left, |next| next.min(left)));
                continue;
            }
            next = Some(next.map_or(LOOK_AGAIN, |next| next.min(LOOK_AGAIN)));
            let behind = match self.confirmations.lagging(&entry.state, now).await {
                Ok(behind) => behind,
                Err(status) => {
                    warn!(%kind, message = status.message(), "a rotation cannot go on");
                    continue;
                }
            };
            if behind.is_empty() {
                let tell = |code| Event::new(code, now).user("auth").origin("auth");
                let step = Step::To(rotation.phase.next());
                if let Err(status) = self.rotate(kind, step, false, &tell).await {
                    warn!(%kind, message = status.message(), "a rotation did not go on");
                }
                continue;
            }
            let new = match complaints.get(&kind) {
                Some(said) => said.rotation != *rotation || now - said.at >= REMIND,
                None => true,
            };
            if new {
                complaints.insert(kind, Complaint { rotation: *rotation, at: now });
                let names = listed(&behind, |host| host.in_words(now));
                self.complain(&entry.state, behind.len(), &names, now).await;
                for host in &behind {
                    metrics::counter!("sallyport_rotation_waits_total", "role" => host.role.name())
                        .increment(1);
                }
            }
        }
        next
    }

    async fn complain(&self, state: &CaState, hosts: usize, names: &str, now: OffsetDateTime) {
        let (kind, rotation) = (state.kind(), state.rotation());
        warn!(
            %kind,
            phase = %rotation.phase,
            hosts = names,
            "a rotation waits for hosts that have not confirmed its phase; see `sallyport admin ca status`"
        );
        let event = Event::new(Code::CaRotationWaiting, now)
            .user("auth")
            .origin("auth")
            .message(format!("the {kind} CA waits in the phase {} for {names}", rotation.phase))
            .field("ca", kind.name())
            .field("generation", rotation.generation)
            .field("phase", rotation.phase.name())
            .field("hosts", hosts);
        if let Err(status) = self.journal.record(vec![event]).await {
            warn!(message = status.message(), "a waiting rotation is not on record");
        }
    }
}
