//! The logins that an earlier release let in.

use std::collections::HashMap;
use std::sync::Arc;

use sallyport_access::UserName;
use sallyport_ca::{CertificateKind, SKEW_ALLOWANCE};
use sallyport_store::typed;
use time::OffsetDateTime;
use tonic::Status;
use tracing::warn;
use uuid::Uuid;

use crate::authority::accounts::login::Accounts;
use crate::authority::caller::Caller;
use crate::authority::identities::logins::{Asked, Ended, LoginRecord, open_login};
use crate::authority::storage::storage;

/// How soon it is tried again to learn of them.
const AGAIN: std::time::Duration = std::time::Duration::from_secs(5);

impl Accounts {
    /// Learns of the logins that an earlier release let in: their certificates are on the list, and they may have to be
    /// ended, too. Those of users who are not there any more end at once.
    pub(crate) async fn learn_logins(self: Arc<Self>) {
        loop {
            match self.logins_of_certificates().await {
                Ok(()) => return,
                Err(problem) => {
                    warn!(message = problem.message(), "open logins are not known yet; trying again")
                }
            }
            tokio::select! {
                () = tokio::time::sleep(AGAIN) => {}
                () = self.stop.cancelled() => return,
            }
        }
    }

    async fn logins_of_certificates(&self) -> Result<(), Status> {
        let now = OffsetDateTime::now_utc();
        let mut open: HashMap<Uuid, (UserName, OffsetDateTime)> = HashMap::new();
        self.issued
            .each_certificate(|record| {
                let issued = record.issued;
                if issued.kind == CertificateKind::User
                    && issued.valid_before + SKEW_ALLOWANCE > now
                    && let (Some(login_id), Ok(user)) = (issued.login_id, UserName::new(issued.subject))
                {
                    let end = &mut open.entry(login_id).or_insert((user, issued.valid_before)).1;
                    *end = issued.valid_before.max(*end);
                }
            })
            .await?;
        let _changing = self.identities.change().await;
        let mut ended = Ended::default();
        for (login_id, (user, valid_before)) in open {
            let key = typed::key::<LoginRecord>(&format!("{user}/{login_id}"));
            let known = self.store.backend().get(&key, now).await.map_err(|error| storage(&error))?;
            // A login that was ended is not on record any more, and would count again among those that are open.
            if known.is_some() || self.logins.has_ended(login_id, valid_before + SKEW_ALLOWANCE) {
                continue;
            }
            if self.identities.user(&user).is_some() {
                let step = open_login(&user, login_id, valid_before, None);
                ended.steps.push(step.map_err(|error| storage(&error))?);
            } else {
                let valid_until = valid_before + SKEW_ALLOWANCE;
                let login =
                    LoginRecord { login_id, valid_until, device: None, opened: None, last_used: None };
                let (why, gone) = ("the account was removed", (&user, std::slice::from_ref(&login)));
                ended.add(self.logins.end_these(&Caller::LocalAdmin, gone, Asked::Void, why, now).await?);
            }
        }
        if ended.steps.is_empty() {
            return Ok(());
        }
        self.store.backend().transact(ended.steps, now).await.map_err(|error| storage(&error))?;
        self.policy.refresh_after("lock").await?;
        self.journal.record(ended.events).await
    }
}
