//! What ends a session from outside: a lock, a role that is changed, a limit of time, an administrator, a recording that
//! fails.

use std::convert::Infallible;

use sallyport_access::Identity;
use sallyport_session::{Activity, Denied, Ending, Record, Stop, Timed, Watched, watch};
use time::OffsetDateTime;
use tokio::sync::watch::Receiver;

use super::asked::Wanted;
use super::shared::Shared;

/// What is watched of one session.
pub(crate) struct Control<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) identity: &'a Identity,
    pub(crate) wanted: &'a Wanted,
    pub(crate) record: &'a Record,
    pub(crate) activity: &'a Activity,
    pub(crate) ending: &'a Ending,
}

impl Control<'_> {
    /// Waits until the session has to end, and says why.
    pub(crate) async fn ends(self) -> Stop {
        let permit = &self.wanted.permit;
        let timed = Timed {
            decided: &self,
            limits: permit.limits(),
            valid_until: permit.valid_until(),
            activity: self.activity,
        };
        tokio::select! {
            stop = watch::stopped(&timed, self.ending, Some(self.record)) => stop,
            never = self.renews() => match never {},
        }
    }

    /// Keeps the credentials good with which the session's process at the database is terminated, should it outlive the session.
    async fn renews(&self) -> Infallible {
        let permit = &self.wanted.permit;
        loop {
            // What an earlier session has left may be near its end. Past the user's there are none to be had.
            if OffsetDateTime::now_utc() < permit.valid_until()
                && let Err(error) = self.shared.settings.credentials.renew(self.wanted).await
            {
                tracing::debug!(%error, database = %permit.database(), "a session's credentials are not renewed");
            }
            tokio::time::sleep(self.shared.pace.renews).await;
        }
    }
}

impl Watched for Control<'_> {
    fn changes(&self) -> Receiver<u64> {
        self.shared.settings.directory.changes()
    }

    fn denied(&self, now: OffsetDateTime) -> Option<Denied> {
        let permit = &self.wanted.permit;
        let directory = &self.shared.settings.directory;
        let Some(database) = directory.database(permit.database()) else {
            return Some(Denied::new(format!("this agent serves {} no longer", permit.database())));
        };
        directory.decide(self.identity, &database, permit.account(), now).err().map(Denied::from)
    }
}
