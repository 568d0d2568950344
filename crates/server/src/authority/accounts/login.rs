//! Passwords and codes for certificates.

use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64;
use sallyport_access::{Identity, Principal, UserName};
use sallyport_audit::Code;
use sallyport_ca::{CaKind, CertificateKind, UserCertificates, check_accepted, issue_user};
use sallyport_sal::custody::SealingKey;
use sallyport_sal::totp;
use sallyport_store::{Op, Store, StoreError, Stored, typed};
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use zeroize::Zeroizing;

use crate::authority::accounts::passwords::{LENGTHS, LOCKOUT, MOST_FAILURES, Pool};
use crate::authority::audit::journal::Journal;
use crate::authority::caller::{Caller, NOWHERE, shown};
use crate::authority::config::AuthConfig;
use crate::authority::gate::delegation::Delegation;
use crate::authority::gate::guesses::{FAILURE_WINDOW, Guesses};
use crate::authority::identities::known::Identities;
use crate::authority::identities::logins::{Logins, open_login};
use crate::authority::issuance::in_force::Issuance;
use crate::authority::issuance::issued::with_certificates;
use crate::authority::issuance::list::IssuedList;
use crate::authority::policy::Policy;
use crate::authority::records::{CredentialRecord, UnknownRecord, UserRecord};
use crate::authority::secrets::hash_of;
use crate::authority::storage::storage;
use crate::config::SecondFactor;
use sallyport_store::Kind;

/// Why an address that failed too often is refused, in the log.
const BARRED: &str = "too many failures from one address";
const WRONG: &str = "wrong user name, password or one-time code";

pub(crate) fn totp_label(user: &UserName) -> String {
    format!("totp/{user}")
}

/// Whose login it is: of a user, or with a name that no user has, by its hash.
pub(crate) enum Account<'a> {
    Known(&'a UserName),
    Unknown(String),
}

/// What is wrong with the one-time code of a login.
enum WrongCode {
    Missing,
    Wrong,
    /// It was right, and is used; how long it takes until the next one comes.
    Used(Duration),
    /// The authority cannot read the account's second factor.
    Unreadable,
}

impl WrongCode {
    /// For the log.
    fn reason(&self) -> &'static str {
        match self {
            Self::Missing => "no one-time code",
            Self::Wrong => "wrong one-time code",
            Self::Used(_) => "used one-time code",
            Self::Unreadable => "the second factor cannot be read",
        }
    }

    fn until_unused(&self) -> Option<Duration> {
        match self {
            Self::Used(left) => Some(*left),
            Self::Missing | Self::Wrong | Self::Unreadable => None,
        }
    }
}

/// Why a login fails: what the person reads, and what the log says.
pub(crate) struct LoginRefusal {
    pub(crate) status: Status,
    pub(crate) reason: &'static str,
    pub(crate) locked_out: bool,
}

impl From<Status> for LoginRefusal {
    fn from(status: Status) -> Self {
        Self { status, reason: "not decided", locked_out: false }
    }
}

fn refusal(status: Status, reason: &'static str) -> LoginRefusal {
    LoginRefusal { status, reason, locked_out: false }
}

/// The accounts of users: made, logged in to, changed and removed.
#[derive(Debug)]
pub(crate) struct Accounts {
    pub(super) config: Arc<AuthConfig>,
    pub(super) store: Store,
    pub(super) seal: Arc<SealingKey>,
    pub(super) journal: Arc<Journal>,
    pub(super) delegation: Arc<Delegation>,
    pub(super) guesses: Arc<Guesses>,
    pub(super) policy: Arc<Policy>,
    pub(super) identities: Arc<Identities>,
    pub(super) logins: Arc<Logins>,
    pub(super) issuance: Arc<Issuance>,
    pub(super) issued: Arc<IssuedList>,
    pub(super) passwords: Pool,
    pub(super) stop: CancellationToken,
}

impl Accounts {
    #[allow(clippy::too_many_arguments, reason = "each is one that it takes")]
    pub(crate) fn new(
        config: &Arc<AuthConfig>,
        store: &Store,
        seal: &Arc<SealingKey>,
        journal: &Arc<Journal>,
        delegation: &Arc<Delegation>,
        guesses: &Arc<Guesses>,
        policy: &Arc<Policy>,
        identities: &Arc<Identities>,
        logins: &Arc<Logins>,
        issuance: &Arc<Issuance>,
        issued: &Arc<IssuedList>,
        passwords: Pool,
        stop: &CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            config: Arc::clone(config),
            store: store.clone(),
            seal: Arc::clone(seal),
            journal: Arc::clone(journal),
            delegation: Arc::clone(delegation),
            guesses: Arc::clone(guesses),
            policy: Arc::clone(policy),
            identities: Arc::clone(identities),
            logins: Arc::clone(logins),
            issuance: Arc::clone(issuance),
            issued: Arc::clone(issued),
            passwords,
            stop: stop.clone(),
        })
    }

    /// Where passwords are hashed.
    #[cfg(test)]
    pub(crate) fn passwords(&self) -> &Pool {
        &self.passwords
    }

    pub(crate) fn second_factor_word(&self) -> &'static str {
        match self.config.second_factor {
            SecondFactor::Required => "required",
            SecondFactor::Optional => "optional",
        }
    }

    pub(crate) async fn log_in(
        &self,
        caller: &Caller,
        request: v1::LoginRequest,
    ) -> Result<v1::LoginResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let asked = shown(&request.user);
        match self.try_log_in(caller, request, now).await {
            Ok(answer) => Ok(answer),
            Err(LoginRefusal { status, reason, locked_out }) => {
                let event = |code| caller.event(code).user(asked.clone()).message(reason);
                // Of an address that is barred it does not matter whom it asks for.
                let what = if reason == BARRED { "" } else { asked.as_str() };
                self.journal.note_caused(caller, event(Code::UserLoginFailed), what).await?;
                if locked_out {
                    self.journal.record(vec![event(Code::UserLockedOut)]).await?;
                }
                Err(status)
            }
        }
    }

    async fn try_log_in(
        &self,
        caller: &Caller,
        request: v1::LoginRequest,
        now: OffsetDateTime,
    ) -> Result<v1::LoginResponse, LoginRefusal> {
        let password = Zeroizing::new(request.password);
        let otp = Zeroizing::new(request.otp);
        let address = match caller {
            Caller::Anonymous { address } | Caller::Certified { address, .. } => *address,
            Caller::LocalAdmin => NOWHERE,
        };
        if self.guesses.is_barred(address.ip(), now) {
            let status = Status::resource_exhausted(
                "too many failed logins from this address; try again in 15 minutes",
            );
            return Err(refusal(status, BARRED));
        }
        if password.len() > *LENGTHS.end() {
            return Err(refusal(Status::invalid_argument("the password is too long"), "password too long"));
        }
        let name = UserName::new(request.user.clone()).ok();
        let user = match &name {
            Some(name) => {
                self.store.get::<UserRecord>(name.as_str(), now).await.map_err(|error| storage(&error))?
            }
            None => None,
        };
        let Some(Stored { value: user, revision: user_revision, .. }) = user else {
            return Err(self.unknown_user(&request.user, password, address, now).await);
        };
        let account = Account::Known(&user.name);
        let (credential, revision) = self.credential(&account, now).await.map_err(|error| storage(&error))?;
        if let Some(until) = credential.locked_until.filter(|until| *until > now.unix_timestamp()) {
            return Err(refusal(locked_out(until, now), "locked out"));
        }
        let right = self.passwords.verify(password.clone(), credential.password.clone()).await?;
        let step = self.check_code(&user.name, &credential, &otp, now);
        let step = match (right, step) {
            (true, Ok(step)) => step,
            (_, outcome) => {
                let (reason, used) = match outcome {
                    Err(wrong) if right => (wrong.reason(), wrong.until_unused()),
                    _ if credential.password.is_none() => ("no password set", None),
                    _ => ("wrong password", None),
                };
                self.guesses.note(address.ip(), now);
                let mut refusal = self.failed_login(&account, credential, revision, reason, now).await;
                // The password is right and so was the code, once: it is the person, or a thief of both, who learns no more than
                // a code that is not used would have shown. Of every other mistake the answer stays the same.
                if let Some(left) = used.filter(|_| refusal.status.code() == tonic::Code::Unauthenticated) {
                    refusal.status = Status::unauthenticated(format!(
                        "this one-time code was used already; log in with the next one, which comes in {} s",
                        left.as_secs()
                    ));
                }
                return Err(refusal);
            }
        };
        // From here the person has proven who they are and may read why not.
        if credential.totp_sealed.is_none() && self.config.second_factor == SecondFactor::Required {
            let text = "this cluster requires a second factor and you have none; ask an administrator for a reset link";
            return Err(refusal(Status::failed_precondition(text), "no second factor"));
        }
        let asked = request.ttl.as_ref().and_then(convert::duration_from_proto);
        let identity = self.identities.identity_of(&user, now);
        let cache = self.policy.cache();
        if let Some(locked) = cache.policies.locked_out(&identity, &cache.locks, now) {
            return Err(refusal(Status::permission_denied(locked.public_message()), "a lock"));
        }
        let ttl = cache
            .policies
            .session_ttl(&user.roles, asked)
            .map_err(|error| refusal(Status::invalid_argument(error.public_message()), "lifetime"))?;
        let ttl = self
            .issuance
            .within_policy(CertificateKind::User, ttl, asked.is_some())
            .map_err(|status| refusal(status, "lifetime"))?;
        let issued =
            self.certify_user(&identity, &request.ssh_public_key, &request.tls_public_key, ttl, now)?;
        // From here to the answer, what was proven and decided stays true: a change of it finds this login open.
        let _changing = self.identities.steady().await;
        let hashed = credential.password.clone();
        let mut steps = self.note_success(&user.name, credential, revision, step, now).await?;
        let check = |kind: &str, revision| Op::Check { key: format!("{kind}/{}", user.name), revision };
        steps.push(check(UserRecord::KIND, user_revision));
        steps.push(
            open_login(&user.name, identity.login_id, issued.valid_before)
                .map_err(|error| storage(&error))?,
        );
        match self.store.backend().transact(steps, now).await {
            Ok(_) => {}
            Err(StoreError::Conflict { key, .. }) if key.starts_with(UserRecord::KIND) => {
                let text = "the account was changed at this moment; log in again";
                return Err(refusal(Status::aborted(text), "the user changed meanwhile"));
            }
            Err(StoreError::Conflict { .. }) => {
                return Err(refusal(Status::unauthenticated(WRONG), "the same code twice at once"));
            }
            Err(error) => return Err(storage(&error).into()),
        }
        let logged_in = caller
            .event(Code::UserLogin)
            .user(user.name.as_str())
            .field("login_id", identity.login_id.to_string())
            .field("second_factor", step.is_some());
        let certified = caller
            .event(Code::CertIssued)
            .user(user.name.as_str())
            .field("login_id", identity.login_id.to_string())
            .field("ssh_serial", issued.serials.ssh.to_string())
            .field("tls_serial", issued.serials.tls.clone())
            .field("ssh_fingerprint", issued.ssh_fingerprint.clone())
            .field("ttl_seconds", ttl.whole_seconds());
        let certified = with_certificates(certified, &issued.issued);
        self.journal.record(vec![logged_in, certified]).await?;
        if let Some(stored) = hashed {
            self.renew_hash(&user.name, password, stored, now).await;
        }
        Ok(self.login_answer(&identity, issued))
    }

    /// Stores a hash of today's kind and cost for a password that has just been right. The login stands whatever comes of it: what
    /// is changed meanwhile stays as it is, and the next login tries again.
    async fn renew_hash(
        &self,
        user: &UserName,
        password: Zeroizing<String>,
        stored: String,
        now: OffsetDateTime,
    ) {
        let Some(renewed) = self.passwords.renewed(password, &stored).await else { return };
        let account = Account::Known(user);
        let Ok((credential, revision)) = self.credential(&account, now).await else { return };
        if revision == 0 || credential.password.as_deref() != Some(stored.as_str()) {
            return;
        }
        let credential = CredentialRecord { password: Some(renewed), ..credential };
        if let Err(error) = self.write_credential(&account, &credential, revision, now).await {
            tracing::debug!(%error, "a password's hash was not renewed");
        }
    }

    /// What an account proves itself with, and the revision of that; 0 where there is nothing.
    async fn credential(
        &self,
        account: &Account<'_>,
        now: OffsetDateTime,
    ) -> Result<(CredentialRecord, u64), StoreError> {
        let found = match account {
            Account::Known(user) => {
                let stored = self.store.get::<CredentialRecord>(user.as_str(), now).await?;
                stored.map(|stored| (stored.value, stored.revision))
            }
            Account::Unknown(key) => {
                let stored = self.store.get::<UnknownRecord>(key, now).await?;
                stored.map(|stored| (stored.value.0, stored.revision))
            }
        };
        Ok(found.unwrap_or_default())
    }

    /// As slow as a real user, closed as one is, and written down as one is: neither an answer nor the time that it takes tells
    /// whether there is such a user.
    async fn unknown_user(
        &self,
        asked: &str,
        password: Zeroizing<String>,
        address: std::net::SocketAddr,
        now: OffsetDateTime,
    ) -> LoginRefusal {
        let account = Account::Unknown(hash_of(asked));
        let (credential, revision) = match self.credential(&account, now).await {
            Ok(found) => found,
            Err(error) => return storage(&error).into(),
        };
        if let Some(until) = credential.locked_until.filter(|until| *until > now.unix_timestamp()) {
            return refusal(locked_out(until, now), "unknown user, closed");
        }
        if let Err(status) = self.passwords.verify(password, None).await {
            return status.into();
        }
        self.guesses.note(address.ip(), now);
        self.failed_login(&account, credential, revision, "unknown user", now).await
    }

    /// The time step of the code; none when the user has no second factor.
    fn check_code(
        &self,
        user: &UserName,
        credential: &CredentialRecord,
        otp: &str,
        now: OffsetDateTime,
    ) -> Result<Option<u64>, WrongCode> {
        let Some(sealed) = &credential.totp_sealed else { return Ok(None) };
        let secret = self.unseal_totp(user, sealed).map_err(|_| WrongCode::Unreadable)?;
        // Both are asked whatever the password is, so that the time that it takes says nothing of it.
        let step = secret.verify(otp, now, credential.last_step);
        let used = secret.until_unused(otp, now, credential.last_step);
        match (step, used) {
            (Some(step), _) => Ok(Some(step)),
            (None, Some(left)) => Err(WrongCode::Used(left)),
            (None, None) if otp.trim().is_empty() => Err(WrongCode::Missing),
            (None, None) => Err(WrongCode::Wrong),
        }
    }

    pub(crate) fn unseal_totp(&self, user: &UserName, sealed: &str) -> Result<totp::Secret, Status> {
        let broken =
            |_| Status::internal("the second factor cannot be read; ask an administrator for a reset link");
        let sealed = BASE64.decode(sealed.as_bytes()).map_err(|_| broken(()))?;
        let bytes = self.seal.unseal(&totp_label(user), &sealed).map_err(|_| broken(()))?;
        totp::Secret::from_bytes(&bytes).map_err(|_| broken(()))
    }

    pub(crate) async fn failed_login(
        &self,
        account: &Account<'_>,
        mut credential: CredentialRecord,
        mut revision: u64,
        reason: &'static str,
        now: OffsetDateTime,
    ) -> LoginRefusal {
        // Several guesses at once must each count.
        for _ in 0..16 {
            let since = (now - FAILURE_WINDOW).unix_timestamp();
            credential.failures.retain(|time| *time > since);
            credential.failures.push(now.unix_timestamp());
            let locked_out = credential.failures.len() >= MOST_FAILURES;
            if locked_out {
                credential.failures.clear();
                credential.locked_until = Some((now + LOCKOUT).unix_timestamp());
            }
            match self.write_credential(account, &credential, revision, now).await {
                Ok(()) => {
                    return LoginRefusal { status: Status::unauthenticated(WRONG), reason, locked_out };
                }
                Err(StoreError::Conflict { .. } | StoreError::Exists { .. }) => {}
                Err(error) => return storage(&error).into(),
            }
            match self.credential(account, now).await {
                Ok(found) => (credential, revision) = found,
                Err(error) => return storage(&error).into(),
            }
        }
        refusal(Status::resource_exhausted("too many logins of this user at this moment"), "contention")
    }

    /// The steps that spend the code, and forget failures. A second login with the same code finds the record changed.
    async fn note_success(
        &self,
        user: &UserName,
        mut credential: CredentialRecord,
        revision: u64,
        step: Option<u64>,
        now: OffsetDateTime,
    ) -> Result<Vec<Op>, LoginRefusal> {
        if step.is_none() && credential.failures.is_empty() && credential.locked_until.is_none() {
            // Wrong guesses of others change the record, and are no reason to refuse; another password is.
            let stored = self.store.get::<CredentialRecord>(user.as_str(), now).await;
            let stored = stored.map_err(|error| storage(&error))?.map(|stored| stored.value);
            if stored.and_then(|stored| stored.password) != credential.password {
                return Err(refusal(Status::unauthenticated(WRONG), "the password changed meanwhile"));
            }
            return Ok(Vec::new());
        }
        credential.failures.clear();
        credential.locked_until = None;
        credential.last_step = step.or(credential.last_step);
        let step = typed::update(user.as_str(), revision, &credential, None);
        Ok(vec![step.map_err(|error| storage(&error))?])
    }

    async fn write_credential(
        &self,
        account: &Account<'_>,
        credential: &CredentialRecord,
        revision: u64,
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        match (account, revision) {
            (Account::Known(user), revision) => {
                // A user who was removed meanwhile leaves nothing behind for another of the name.
                let _changing = self.identities.steady().await;
                match revision {
                    _ if self.identities.user(user).is_none() => Ok(()),
                    0 => self.store.create(user.as_str(), credential, None, now).await.map(drop),
                    revision => {
                        self.store.update(user.as_str(), revision, credential, None, now).await.map(drop)
                    }
                }
            }
            (Account::Unknown(key), revision) => {
                let record = UnknownRecord(credential.clone());
                let expires = Some(now + FAILURE_WINDOW + LOCKOUT);
                match revision {
                    0 => self.store.create(key, &record, expires, now).await.map(drop),
                    revision => self.store.update(key, revision, &record, expires, now).await.map(drop),
                }
            }
        }
    }

    fn certify_user(
        &self,
        identity: &Identity,
        ssh_public_key: &str,
        tls_spki: &[u8],
        ttl: time::Duration,
        now: OffsetDateTime,
    ) -> Result<UserCertificates, LoginRefusal> {
        let bad = |text: String| refusal(Status::invalid_argument(text), "certificates");
        let options = self.policy.ssh_options(identity);
        let authorities = self.issuance.authorities();
        check_accepted(authorities.suite(), ssh_public_key, tls_spki)
            .map_err(|error| bad(error.to_string()))?;
        let user_ca = authorities.signer(CaKind::User).map_err(|status| refusal(status, "certificates"))?;
        issue_user(user_ca, identity, ssh_public_key, tls_spki, now, ttl, &options)
            .map_err(|error| bad(error.to_string()))
    }

    fn login_answer(&self, identity: &Identity, issued: UserCertificates) -> v1::LoginResponse {
        let (roles, logins) = match &identity.principal {
            Principal::User { roles, logins, .. } => (roles.as_slice(), logins.as_slice()),
            Principal::Host { .. } => (&[][..], &[][..]),
        };
        v1::LoginResponse {
            message_of_the_day: self.policy.cache().policies.sessions().message_of_the_day.clone(),
            cluster: self.config.cluster.to_string(),
            ssh_certificate: issued.ssh,
            tls_certificate_pem: issued.tls_pem,
            trust: Some(self.issuance.trust_bundle()),
            roles: roles.iter().map(ToString::to_string).collect(),
            logins: logins.iter().map(ToString::to_string).collect(),
            valid_until: Some(convert::time_to_proto(issued.valid_before)),
        }
    }
}

pub(crate) fn locked_out(until: i64, now: OffsetDateTime) -> Status {
    let minutes = ((until - now.unix_timestamp()).max(1) + 59) / 60;
    Status::resource_exhausted(format!(
        "too many failed logins: this account is closed for {minutes} more minutes; an administrator can open it with \
         sallyport admin users reset"
    ))
}
