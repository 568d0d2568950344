//! An administrator proves a factor for what is dangerous, however they are logged in: a stolen certificate alone changes no rights.

use std::sync::Arc;

use sallyport_access::{Principal, UserName, Verb};
use sallyport_audit::{Code, Event};
use sallyport_store::Store;
use sallyport_wire::admin_factor::{Wanted, refusal};
use time::OffsetDateTime;
use tonic::Status;
use uuid::Uuid;

use crate::authority::audit::journal::Journal;
use crate::authority::caller::{Caller, unauthenticated};
use crate::authority::config::AuthConfig;
use crate::authority::factors::kept::{Factors, Held};
use crate::authority::gate::acts::administers;
use crate::authority::gate::proofs::{LIFETIME, Proof};
use crate::authority::identities::known::Identities;
use crate::authority::policy::Policy;
use crate::authority::records::CredentialRecord;
use crate::authority::secrets::hash_of;
use crate::authority::storage::storage;
use crate::config::AdminFactor;
use crate::places::Place;

/// Administrators without a factor who are told of by name.
pub(crate) const MOST_NAMED: usize = 20;
/// Administrators whose factors are looked at for a status.
const MOST_LOOKED_AT: usize = 500;

/// Something dangerous that is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Act<'a> {
    pub(crate) method: &'static str,
    pub(crate) verb: Verb,
    /// A kind, or a kind and a name.
    pub(crate) what: &'a str,
}

impl Act<'_> {
    fn words(&self) -> String {
        format!("{} {} ({})", self.verb.as_str(), self.what, self.method)
    }
}

/// How an administrator gets a first factor: it is allowed by what they log in with.
pub(crate) fn how_to_enrol(by_single_sign_on: bool) -> &'static str {
    match by_single_sign_on {
        true => {
            "add one: sallyport mfa add NAME, and sign in at your provider again at the page that it opens"
        }
        false => {
            "add one with your password: sallyport mfa add NAME. If you have no password, ask another administrator for a reset link"
        }
    }
}

/// What users prove themselves with now, and since when.
struct Means {
    held: Held,
    credential: CredentialRecord,
}

impl Means {
    fn has_factor(&self) -> bool {
        !self.held.is_empty() || self.credential.totp_sealed.is_some()
    }

    fn password(&self) -> Option<String> {
        self.credential.password.as_deref().map(hash_of)
    }

    /// Whether a proof still says that the person is at the login: nothing that it rests on was taken away.
    fn bear(&self, proof: &Proof) -> bool {
        let reset = self.credential.reset_at.is_some_and(|reset| reset >= proof.at);
        let removed = proof.factor.is_some_and(|factor| self.held.of_id(factor).is_none());
        !reset && !removed && proof.password == self.password()
    }
}

/// Administrators without a factor.
#[derive(Debug, Default)]
pub(crate) struct Unprotected {
    /// The first of them.
    pub(crate) names: Vec<String>,
    pub(crate) count: usize,
}

/// Asks administrators for proofs.
#[derive(Debug)]
pub(crate) struct Administering {
    config: Arc<AuthConfig>,
    store: Store,
    journal: Arc<Journal>,
    policy: Arc<Policy>,
    identities: Arc<Identities>,
    factors: Arc<Factors>,
}

impl Administering {
    pub(crate) fn new(
        config: &Arc<AuthConfig>,
        store: &Store,
        journal: &Arc<Journal>,
        policy: &Arc<Policy>,
        identities: &Arc<Identities>,
        factors: &Arc<Factors>,
    ) -> Arc<Self> {
        Arc::new(Self {
            config: Arc::clone(config),
            store: store.clone(),
            journal: Arc::clone(journal),
            policy: Arc::clone(policy),
            identities: Arc::clone(identities),
            factors: Arc::clone(factors),
        })
    }

    /// Whether administrators are asked at all.
    pub(crate) fn mode(&self) -> AdminFactor {
        self.config.authentication.admin_factor
    }

    /// Lets a caller go on with something dangerous who has proven a factor for this login, from here, and not long ago; who has none,
    /// where the cluster lets those go on; and who comes by the authority's socket. The caller's right to it was seen before.
    pub(crate) async fn demand(&self, caller: &Caller, act: Act<'_>) -> Result<(), Status> {
        if self.mode() == AdminFactor::Off {
            return Ok(());
        }
        let (identity, address) = match caller {
            Caller::LocalAdmin => return self.on_record(caller, Code::AdminActLocal, act).await,
            Caller::Anonymous { .. } | Caller::Behind { .. } => return Err(unauthenticated()),
            Caller::Certified { identity, from } => (identity, from.address),
        };
        let Principal::User { name, .. } = &identity.principal else {
            return Err(Status::permission_denied("hosts have no factors, and administer nothing"));
        };
        let now = OffsetDateTime::now_utc();
        let means = self.means(name, now).await?;
        let proof = self.policy.proofs().of(identity.login_id, name, Place::of(address.ip()), now);
        if proof.is_some_and(|proof| means.bear(&proof)) {
            return Ok(());
        }
        let words = act.words();
        let status = match (means.has_factor(), self.mode()) {
            (true, _) => refusal(
                Wanted::Prove,
                format!(
                    "to {words} you prove a factor first, which serves this login for {} minutes: sallyport admin prove",
                    LIFETIME.whole_minutes()
                ),
            ),
            (false, AdminFactor::Required) => refusal(
                Wanted::Enrol,
                format!(
                    "to {words} you prove a factor first (auth.authentication.admin_factor), and you have none; {}. On the \
                     authority's machine sallyport admin --data-dir DIR asks for none",
                    how_to_enrol(self.by_single_sign_on(name))
                ),
            ),
            (false, AdminFactor::Enrolled | AdminFactor::Off) => {
                return self.on_record(caller, Code::AdminActUnproven, act).await;
            }
        };
        self.policy.proofs().note_asked(identity.login_id, &words, now);
        let event = self.event(caller, Code::AdminFactorDemanded, act);
        if let Err(unwritten) = self.journal.note_caused(caller, event, act.method).await {
            // Nothing is done. On a full disk an administrator may still prove a factor, and then remove what fills it; the event is
            // written once there is room.
            tracing::warn!(problem = unwritten.message(), "that a factor was demanded is not on record yet");
        }
        Err(status)
    }

    fn by_single_sign_on(&self, user: &UserName) -> bool {
        self.identities.user(user).is_some_and(|user| user.origin.is_some())
    }

    fn event(&self, caller: &Caller, code: Code, act: Act<'_>) -> Event {
        caller.event(code).field("method", act.method).message(format!("{} {}", act.verb.as_str(), act.what))
    }

    async fn on_record(&self, caller: &Caller, code: Code, act: Act<'_>) -> Result<(), Status> {
        let event = self.event(caller, code, act);
        // Deletions work also when the disk is full.
        match act.verb {
            Verb::Delete => self.journal.record_urgent(vec![event]).await,
            _ => self.journal.record(vec![event]).await,
        }
    }

    async fn means(&self, user: &UserName, now: OffsetDateTime) -> Result<Means, Status> {
        let held = self.factors.held(user, now).await?;
        let credential = self.store.get::<CredentialRecord>(user.as_str(), now).await;
        let credential = credential.map_err(|error| storage(&error))?;
        Ok(Means { held, credential: credential.map(|stored| stored.value).unwrap_or_default() })
    }

    /// Keeps what a caller has proven for what is dangerous; until when it serves.
    ///
    /// # Errors
    /// The caller is no user with a certificate, or it was proven too long ago.
    pub(crate) async fn proven(
        &self,
        caller: &Caller,
        factor: Option<Uuid>,
        at: OffsetDateTime,
        now: OffsetDateTime,
    ) -> Result<OffsetDateTime, Status> {
        let Caller::Certified { identity, from } = caller else { return Err(unauthenticated()) };
        let Some(user) = identity.user() else {
            return Err(Status::permission_denied("hosts have no factors: this is for users"));
        };
        let until = at + LIFETIME;
        if until <= now {
            return Err(Status::permission_denied(
                "this was proven more than five minutes ago, and serves no more; begin again: sallyport admin prove",
            ));
        }
        let password = self.means(user, now).await?.password();
        let place = Place::of(from.address.ip());
        self.policy.proofs().keep(Proof { identity: identity.as_ref().clone(), place, factor, password, at });
        // A lock that came meanwhile has voided nothing yet that was not there.
        let cache = self.policy.cache();
        if let Some(locked) = cache.policies.locked_out(identity, &cache.locks, now) {
            self.policy.proofs().void(|of| of.login_id == identity.login_id);
            return Err(Status::permission_denied(locked.public_message()));
        }
        Ok(until)
    }

    /// What a login was last refused for want of a proof, for the page at which it is proven.
    pub(crate) fn asked_by(&self, login: Uuid, now: OffsetDateTime) -> Option<String> {
        self.policy.proofs().asked_by(login, now)
    }

    /// Administrators who have no factor: a thief of their certificates is asked for none.
    pub(crate) async fn unprotected(&self, now: OffsetDateTime) -> Result<Unprotected, Status> {
        if self.mode() == AdminFactor::Off {
            return Ok(Unprotected::default());
        }
        let cache = self.policy.cache();
        let administrators = self
            .identities
            .users(|user| administers(&cache.policies, &self.identities.identity_of(user, now)));
        let mut found = Unprotected::default();
        for user in administrators.iter().take(MOST_LOOKED_AT) {
            if !self.means(&user.name, now).await?.has_factor() {
                found.count += 1;
                found.names.push(user.name.to_string());
            }
        }
        found.names.sort();
        found.names.truncate(MOST_NAMED);
        Ok(found)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::authority::gate::proofs::person;

    use super::*;
    use crate::authority::factors::kept::codes;
    use crate::authority::factors::names::FactorName;
    use crate::authority::factors::records::FactorRecord;
    use sallyport_store::Stored;

    #[test]
    fn a_proof_rests_on_the_factor_the_password_and_that_there_was_no_reset() {
        let now = OffsetDateTime::UNIX_EPOCH;
        let factor = codes(FactorName::new("phone").unwrap(), String::new(), None, None, now);
        let stored =
            |value: FactorRecord| Stored { name: "alice".to_owned(), revision: 1, expires: None, value };
        let means = |password: Option<&str>, factors| Means {
            held: Held { factors, recovery: None, set: None },
            credential: CredentialRecord {
                password: password.map(str::to_owned),
                ..CredentialRecord::default()
            },
        };
        let proof = Proof {
            identity: person("alice", now),
            place: Place::of("192.0.2.1".parse().unwrap()),
            factor: Some(factor.id),
            password: Some(hash_of("phc")),
            at: now,
        };
        assert!(means(Some("phc"), vec![stored(factor.clone())]).bear(&proof));
        assert!(!means(Some("another"), vec![stored(factor.clone())]).bear(&proof), "another password");
        assert!(!means(None, vec![stored(factor.clone())]).bear(&proof), "no password any more");
        assert!(!means(Some("phc"), Vec::new()).bear(&proof), "the factor is gone");
        let mut reset = means(Some("phc"), vec![stored(factor)]);
        reset.credential.reset_at = Some(now);
        assert!(!reset.bear(&proof), "a reset");
        // One-time codes of an earlier release are a factor.
        let mut earlier = means(None, Vec::new());
        assert!(!earlier.has_factor());
        earlier.credential.totp_sealed = Some(String::new());
        assert!(earlier.has_factor());
    }
}
