//! Challenges whose program has gone: when the person ends what waited for the proof, by Ctrl-C or with its terminal, the challenge ends, so
//! that nothing is left that a page could prove, and no other session is let in by it.

use std::sync::Arc;
use std::time::Duration;

use sallyport_access::Identity;
use sallyport_audit as events;
use time::OffsetDateTime;
use tonic::{Code, Status};
use tracing::debug;

use crate::authority::caller::Caller;
use crate::authority::challenges::kept::Challenges;
use crate::authority::challenges::records::State;
use crate::authority::secrets::hash_of;
use crate::authority::session_factors::asked::{SessionFactors, own_of};
use crate::authority::session_factors::awaited::Call;

/// How long a program has to come back that lost its connection, or whose call was answered and asks anew.
const COMES_BACK: Duration = Duration::from_secs(5);

/// A call about a challenge, while it goes on.
pub(super) struct Waiter {
    factors: Arc<SessionFactors>,
    caller: Caller,
    id: String,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let key = hash_of(&self.id);
        let Some(left) = self.factors.awaited.leaves(&key) else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (factors, caller) = (Arc::clone(&self.factors), self.caller.clone());
        runtime.spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(COMES_BACK) => {}
                // Another authority, or this one anew, lets the program wait.
                () = factors.challenges.stop.cancelled() => return,
            }
            if !factors.awaited.is_gone(&key, left) {
                return;
            }
            if let Err(status) = factors.withdraw(&caller, &key).await {
                debug!(%status, "a challenge whose program has gone was not ended");
            }
            factors.awaited.forget(&key);
        });
    }
}

impl SessionFactors {
    /// How a challenge of a login stands, once it has changed, as the program asks that will wait until it is proven.
    pub(crate) async fn awaited(
        self: &Arc<Self>,
        caller: &Caller,
        user: &Identity,
        id: &str,
    ) -> Result<sallyport_wire::v1::SessionFactorState, Status> {
        // Whose it is, before anything is kept of it.
        self.asked(caller, &own_of(user)?, id, OffsetDateTime::now_utc()).await?;
        let _waiter = self.there(caller, id, Call::Waits);
        self.stands(caller, user, id).await
    }

    /// Keeps a challenge from being ended for want of a program, as long as a call about it goes on; none where it is being ended.
    pub(super) fn there(self: &Arc<Self>, caller: &Caller, id: &str, call: Call) -> Option<Waiter> {
        let in_time = self.awaited.comes(&hash_of(id), call);
        in_time.then(|| Waiter { factors: Arc::clone(self), caller: caller.clone(), id: id.to_owned() })
    }

    /// Ends a challenge that no program waits for any more, which is the caller's as was seen when the last one came to wait. It is no
    /// refusal: the next session asks anew. No client is behind this: a challenge that is over by now is no guess of one's, and an
    /// address that is barred bars nothing here.
    async fn withdraw(&self, caller: &Caller, key: &str) -> Result<(), Status> {
        loop {
            let now = OffsetDateTime::now_utc();
            let Some(stored) = self.challenges.open_by(key, now).await? else { return Ok(()) };
            if stored.value.state != State::Pending {
                return Ok(());
            }
            let mut next = stored.value.clone();
            next.state = State::Used;
            next.ceremony = None;
            match self.challenges.write(&stored, &next, Vec::new(), now).await {
                // A page was shown at this moment, or a wrong code counted, of which there are few.
                Err(status) if status.code() == Code::Aborted => continue,
                written => written?,
            };
            let event = caller.event(events::Code::ChallengeRefused);
            let event = event.message("the program that asked for it has gone");
            return self.journal.note_caused(caller, Challenges::named(event, &stored), &stored.name).await;
        }
    }
}
