//! A password as its user changes it: by the one that they have, and a factor.

use sallyport_audit::Code;
use sallyport_store::typed;
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::Status;
use zeroize::Zeroizing;

use crate::authority::caller::Caller;
use crate::authority::challenges::changes::{Own, Spent};
use crate::authority::challenges::kept::Challenges;
use crate::authority::challenges::records::Purpose;
use crate::authority::records::CredentialRecord;
use crate::authority::storage::storage;

impl Challenges {
    /// Changes the caller's password, and ends their other logins: a thief of the former password may have opened one. Gives how
    /// many ended.
    pub(crate) async fn change_password(
        &self,
        caller: &Caller,
        own: &Own,
        request: v1::ChangePasswordRequest,
    ) -> Result<usize, Status> {
        let now = OffsetDateTime::now_utc();
        let (old, new) = (Zeroizing::new(request.old_password), Zeroizing::new(request.new_password));
        self.accounts.demand_passwords()?;
        // A thief of certificates guesses here as at a login, and is held up as there.
        self.guesses.not_barred(caller, now)?;
        self.accounts.take_over_codes(&own.user, now).await?;
        if self.accounts.credential_of(&own.user, now).await?.password.is_none() {
            return Err(Status::failed_precondition(match self.by_single_sign_on(&own.user) {
                true => "you have no password here: your provider proves you; change it there",
                false => {
                    "you have no password to change; an administrator can make you a link that sets one: sallyport admin \
                          users reset"
                }
            }));
        }
        if *old == *new {
            return Err(Status::invalid_argument(
                "the new password is the one that you have; choose another one",
            ));
        }
        let purpose = Purpose::ChangePassword;
        // The factor comes first: without it no answer tells whether the password is right.
        let held = self.factors.held(&own.user, now).await?;
        let mut spent = match held.is_empty() {
            true => Spent::nothing(now),
            false => self.prove(caller, own, request.proof, &purpose, now).await?,
        };
        let proven = match self.accounts.prove_password_alone(&own.user, old, now).await {
            Ok(proven) => proven,
            Err(refusal) => return Err(self.not_proven(caller, refusal, &purpose, now).await?),
        };
        self.accounts.may_have(&own.user, &new).await?;
        let hash = self.accounts.hash(new).await?;

        let _changing = self.identities.change().await;
        // What was guessed wrong meanwhile changes the record, and is no reason to refuse; another password is, or a reset.
        let stored = self.store.get::<CredentialRecord>(own.user.as_str(), now).await;
        let stored = stored.map_err(|error| storage(&error))?;
        let Some(stored) = stored.filter(|stored| stored.value.password == proven.password) else {
            return Err(Status::aborted(
                "your password was changed at this moment; nothing was changed by this",
            ));
        };
        // What was proven with the former password, and is not used yet, counts no more.
        let credential = CredentialRecord {
            password: Some(hash),
            reset_at: Some(now),
            failures: Vec::new(),
            locked_until: None,
            ..stored.value
        };
        let step = typed::update(own.user.as_str(), stored.revision, &credential, None);
        let mut steps = vec![step.map_err(|error| storage(&error))?];
        let why = "the password was changed";
        let mut ended = self.accounts.logins().end_others(caller, &own.user, own.login, why, now).await?;
        steps.append(&mut ended.steps);
        let number = ended.logins;
        // Failures are forgiven by it, too.
        spent.leave_out(&typed::key::<CredentialRecord>(own.user.as_str()));
        self.spend(caller, own, spent, steps, now).await?;
        let event = caller.event(Code::PasswordChanged).field("ended_logins", number);
        ended.events.insert(0, event);
        self.policy.refresh_after("lock").await?;
        self.journal.record(ended.events).await?;
        Ok(number)
    }
}
