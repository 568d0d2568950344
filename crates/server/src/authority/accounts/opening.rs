//! A login is opened for a person who has proven who they are, in whichever way: what comes after the proof exists once.

use std::net::IpAddr;

use bytes::Bytes;
use sallyport_access::{Device, Elsewhere, Identity, Principal, RoleName, UserName};
use sallyport_audit::Code;
use sallyport_ca::{
    CaKind, CertificateKind, DeviceAct, SKEW_ALLOWANCE, UserCertificates, check_accepted, issue_user,
};
use sallyport_store::{Kind, Op, StoreError};
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::authority::accounts::login::{Account, Accounts, LoginRefusal, WRONG, refusal};
use crate::authority::accounts::means::{Means, Way};
use crate::authority::accounts::second::SpentCode;
use crate::authority::caller::Caller;
use crate::authority::devices::challenges::Good;
use crate::authority::devices::kept::Word;
use crate::authority::devices::records::DeviceRecord;
use crate::authority::factors::kept::Held;
use crate::authority::identities::grants::goes_with;
use crate::authority::identities::logins::{LoginRecord, Opened, OpenedBy, open_login_from};
use crate::authority::identities::places::{NoPlace, PlacesRecord};
use crate::authority::issuance::issued::with_certificates;
use crate::authority::records::{CredentialRecord, UserRecord};
use crate::authority::storage::storage;

/// How often a login is counted among its user's anew, where others come in between.
const PLACE_TRIES: usize = 16;

/// The keys that a login is to be certified over.
#[derive(Debug)]
pub(crate) struct LoginKeys {
    /// OpenSSH one-line public key.
    pub(crate) ssh: String,
    /// `SubjectPublicKeyInfo`, DER.
    pub(crate) tls: Bytes,
    /// The trusted device that the login comes from, by its word over these keys.
    pub(crate) device: Option<Word>,
    /// None: the roles' bound.
    pub(crate) ttl: Option<std::time::Duration>,
    /// What the machine that has them calls itself.
    pub(crate) host_name: String,
    /// Where the login was asked for, as its user was told who proved it; none where the caller asks for it at this moment.
    pub(crate) asked_from: Option<IpAddr>,
}

/// A person who has proven who they are, and what is spent by it.
pub(crate) struct Proven {
    pub(crate) user: UserRecord,
    pub(crate) user_revision: u64,
    pub(crate) by: Means,
    pub(crate) spends: Spends,
    /// When the user ends, of one who comes by single sign-on: certificates end no later.
    pub(crate) until: Option<OffsetDateTime>,
}

/// What a proof spends, in the transaction that makes use of it.
#[allow(clippy::large_enum_variant, reason = "there is one for each login, on its way to the store")]
pub(crate) enum Spends {
    /// Of a password, and the code with it.
    Password {
        credential: CredentialRecord,
        code: Option<SpentCode>,
        /// For a hash of today's kind, once the login stands.
        password: Zeroizing<String>,
    },
    /// A challenge that was proven before.
    Challenge {
        /// The step that uses it.
        used: Op,
        /// Its record's name.
        challenge: String,
        proven_at: OffsetDateTime,
    },
}

/// What proofs of one user rest on.
pub(crate) struct Standing {
    reset_at: Option<OffsetDateTime>,
    held: Held,
}

impl Standing {
    /// Refuses what was proven before the credentials were taken away, and by a factor that is not the user's any more.
    pub(crate) fn bears(&self, factor: Option<Uuid>, proven_at: OffsetDateTime) -> Result<(), LoginRefusal> {
        if self.reset_at.is_some_and(|reset| reset >= proven_at) {
            let text = "your credentials were reset since you proved who you are; begin again";
            return Err(refusal(Status::permission_denied(text), "the credentials were reset since"));
        }
        if factor.is_some_and(|factor| self.held.of_id(factor).is_none()) {
            let text = "the factor that you proved was removed since; begin again";
            return Err(refusal(Status::permission_denied(text), "the factor was removed since"));
        }
        Ok(())
    }
}

/// The identity of a login that counts from one address alone: where it was asked for, which is where its certificates go.
fn pinned(identity: Identity, caller: &Caller, keys: &LoginKeys) -> Result<Identity, LoginRefusal> {
    let from = caller.address().map(|address| address.to_canonical());
    let pinned_to = keys.asked_from.map(|address| address.to_canonical()).or(from);
    let Some(address) = pinned_to else {
        let text = "your roles pin logins to an address (pin_source_ip), and this one comes from none; log in at a proxy";
        return Err(refusal(Status::failed_precondition(text), "no address to pin to"));
    };
    let identity = Identity { pinned_to: Some(address), ..identity };
    match identity.comes_from(from) {
        Ok(()) => Ok(identity),
        Err(elsewhere) => Err(refusal(Status::permission_denied(elsewhere.to_string()), Elsewhere::REASON)),
    }
}

impl Accounts {
    /// Opens a login: certificates over its keys, for at most the lifetime that roles allow.
    pub(crate) async fn open(
        &self,
        caller: &Caller,
        proven: Proven,
        keys: &LoginKeys,
        now: OffsetDateTime,
    ) -> Result<v1::LoginResponse, LoginRefusal> {
        let Proven { user, user_revision, by, spends, until } = proven;
        let from = match &keys.device {
            Some(word) => Some(self.devices.admit(word.device, &user.name, now).await?),
            None => None,
        };
        let identity = self.may_log_in_from(&user, from.as_ref().map(|(device, _)| *device), now)?;
        let limits = self.policy.cache().policies.login_limits(&user.roles);
        let identity = if limits.pin { pinned(identity, caller, keys)? } else { identity };
        let denial = caller.event(Code::LoginDenied);
        self.admit((caller, denial), &user, &by, (caller.address(), identity.device), now).await?;
        let cache = self.policy.cache();
        let ttl = cache
            .policies
            .login_ttl(&user.roles, keys.ttl)
            .map_err(|error| refusal(Status::invalid_argument(error.public_message()), "lifetime"))?;
        let ttl = self
            .issuance
            .within_policy(CertificateKind::User, ttl, keys.ttl.is_some())
            .map_err(|status| refusal(status, "lifetime"))?;
        let ttl = until.map_or(ttl, |until| ttl.min(until - now));
        let issued = self.certify_user(&identity, &keys.ssh, &keys.tls, ttl, now)?;
        // From here to the answer, what was proven and decided stays true: a change of it finds this login open.
        let changing = self.identities.steady().await;
        if identity.pinned_to.is_none() && self.policy.cache().policies.login_limits(&user.roles).pin {
            let status =
                Status::aborted("your roles were changed at this moment; log in again: sallyport login");
            return Err(refusal(status, "roles that pin came meanwhile"));
        }
        let (mut steps, overtaken) = match &spends {
            Spends::Password { credential, code, password } => (
                self.spend_password(&user.name, credential, (password, code.as_ref()), now).await?,
                refusal(Status::unauthenticated(WRONG), "the same code twice at once"),
            ),
            Spends::Challenge { used, challenge, proven_at } => {
                self.proof_stands(&user.name, by.factor.as_ref().map(|factor| factor.id), *proven_at, now)
                    .await?;
                let mut steps = vec![used.clone()];
                if by.way == Way::SingleSignOn {
                    let until = issued.valid_before + SKEW_ALLOWANCE;
                    let (store, user, id) = (&self.store, user.name.as_str(), identity.login_id);
                    let grant = goes_with(store, challenge, user, id, until, now).await;
                    steps.extend(grant.map_err(|error| storage(&error))?);
                }
                (
                    steps,
                    refusal(
                        Status::aborted("this login was used already; begin again: sallyport login"),
                        "the same challenge twice at once",
                    ),
                )
            }
        };
        let check = |kind: &str, revision| Op::Check { key: format!("{kind}/{}", user.name), revision };
        steps.push(check(UserRecord::KIND, user_revision));
        let opened =
            Opened::new(caller, OpenedBy::User(self.kept(&by)), &keys.host_name, &issued.issued, now);
        let device = identity.device.map(|device| device.id);
        let step =
            open_login_from(&user.name, identity.login_id, device, issued.valid_before, Some(opened.clone()));
        steps.push(step.map_err(|error| storage(&error))?);
        steps.extend(from.map(|(_, seen)| seen));
        steps.extend(keys.device.as_ref().and_then(|word| word.spent.clone()));
        self.transact(&user.name, steps, limits.most.as_ref(), overtaken, now).await?;
        let logged_in = caller
            .event(Code::UserLogin)
            .user(user.name.as_str())
            .field("login_id", identity.login_id.to_string());
        let certified = caller
            .event(Code::CertIssued)
            .user(user.name.as_str())
            .field("login_id", identity.login_id.to_string())
            .field("ssh_serial", issued.serials.ssh.to_string())
            .field("tls_serial", issued.serials.tls.clone())
            .field("ssh_fingerprint", issued.ssh_fingerprint.clone())
            .field("ttl_seconds", ttl.whole_seconds());
        let logged_in = match identity.device {
            Some(device) => logged_in
                .field("device", device.id.to_string())
                .field("device_custody", device.custody.as_str()),
            None => logged_in,
        };
        let logged_in = match identity.pinned_to {
            Some(address) => logged_in.field("pinned_to", address.to_string()),
            None => logged_in,
        };
        let certified = with_certificates(certified, &issued.issued);
        let mut events = vec![by.on(logged_in), certified];
        if let Spends::Password { code: Some(code), .. } = &spends {
            events.extend(code.recovery_used(caller, &user.name));
        }
        self.journal.record(events).await?;
        if let Spends::Password { credential, password, .. } = spends
            && let Some(stored) = credential.password
        {
            drop(changing);
            self.renew_hash(&user.name, password, stored, now).await;
        }
        let login_id = identity.login_id;
        let valid_until = issued.valid_before + SKEW_ALLOWANCE;
        let device = identity.device.map(|device| device.id);
        let record = LoginRecord { login_id, valid_until, device, opened: Some(opened), last_used: None };
        let told = self.logins.told(user.name.as_str(), &record, Some(login_id));
        Ok(v1::LoginResponse { login: Some(told), ..self.login_answer(&identity, issued) })
    }

    /// Opens the login, where its user may have one more: counted anew as often as another login of the user comes in between.
    async fn transact(
        &self,
        user: &UserName,
        steps: Vec<Op>,
        most: Option<&(usize, RoleName)>,
        overtaken: LoginRefusal,
        now: OffsetDateTime,
    ) -> Result<(), LoginRefusal> {
        for _ in 0..PLACE_TRIES {
            let mut all = steps.clone();
            if let Some(most) = most {
                all.push(self.logins.place(user, most, now).await.map_err(|no_place| match no_place {
                    NoPlace::Taken(status) => refusal(status, "too many logins are open"),
                    NoPlace::State(status) => status.into(),
                })?);
            }
            match self.store.backend().transact(all, now).await {
                Ok(_) => return Ok(()),
                Err(StoreError::Conflict { key, .. } | StoreError::Exists { key })
                    if PlacesRecord::is_key(&key) => {}
                Err(StoreError::Conflict { key, .. })
                    if key.starts_with(&format!("{}/", UserRecord::KIND)) =>
                {
                    let text = "the account was changed at this moment; log in again";
                    return Err(refusal(Status::aborted(text), "the user changed meanwhile"));
                }
                Err(StoreError::Conflict { key, .. } | StoreError::NotFound { key })
                    if key.starts_with(&format!("{}/", DeviceRecord::KIND)) =>
                {
                    let text = "the device was changed, or logged in from, at this moment; log in again";
                    return Err(refusal(Status::aborted(text), "the device changed meanwhile"));
                }
                Err(error) if Good::was_used(&error) => {
                    let text = "what the device has signed was used already; log in again";
                    return Err(refusal(Status::permission_denied(text), "a device's signature twice"));
                }
                Err(StoreError::Conflict { .. }) => return Err(overtaken),
                Err(error) => return Err(storage(&error).into()),
            }
        }
        let text = "too many logins of this user at this moment; log in again";
        Err(refusal(Status::aborted(text), "contention"))
    }

    /// Refuses what was proven before the user's credentials were taken away, and by a factor that is not theirs any more. The caller
    /// holds what `Identities::steady` gives, so that this stays true until it is used.
    pub(crate) async fn proof_stands(
        &self,
        user: &UserName,
        factor: Option<Uuid>,
        proven_at: OffsetDateTime,
        now: OffsetDateTime,
    ) -> Result<(), LoginRefusal> {
        self.standing(user, now).await?.bears(factor, proven_at)
    }

    /// What proofs of a user rest on, as it is now, for any number of them.
    pub(crate) async fn standing(&self, user: &UserName, now: OffsetDateTime) -> Result<Standing, Status> {
        let reset_at = self.credential_of(user, now).await?.reset_at;
        Ok(Standing { reset_at, held: self.factors.held(user, now).await? })
    }

    /// A user as they would be logged in now; no lock is against it.
    pub(crate) fn may_log_in(
        &self,
        user: &UserRecord,
        now: OffsetDateTime,
    ) -> Result<Identity, LoginRefusal> {
        self.may_log_in_from(user, None, now)
    }

    /// [`Self::may_log_in`] from a trusted device, or from none.
    pub(crate) fn may_log_in_from(
        &self,
        user: &UserRecord,
        device: Option<Device>,
        now: OffsetDateTime,
    ) -> Result<Identity, LoginRefusal> {
        let identity = Identity { device, ..self.identities.identity_of(user, now) };
        let cache = self.policy.cache();
        match cache.policies.locked_out(&identity, &cache.locks, now) {
            Some(locked) => Err(refusal(Status::permission_denied(locked.public_message()), "a lock")),
            None => Ok(identity),
        }
    }

    /// The device that a login over these keys comes from, by its own word. Whose device it is, is asked once the person is known.
    pub(crate) async fn login_from(
        &self,
        proof: Option<&v1::DeviceProof>,
        ssh_public_key: &str,
        tls_public_key: &[u8],
        now: OffsetDateTime,
    ) -> Result<Option<Word>, LoginRefusal> {
        let act = |device| DeviceAct::LogIn { device, ssh_public_key, tls_public_key };
        Ok(self.devices.heard(proof, act, now).await?)
    }

    /// Refuses keys that a login could not be certified over, ahead of the proof.
    pub(crate) fn check_keys(&self, keys: &LoginKeys) -> Result<(), Status> {
        check_accepted(self.issuance.authorities().suite(), &keys.ssh, &keys.tls)
            .map_err(|error| Status::invalid_argument(error.to_string()))
    }

    /// Stores a hash of today's kind and cost for a password that has just been right. The login stands whatever comes of it: what
    /// is changed meanwhile stays as it is, and the next login tries again.
    pub(super) async fn renew_hash(
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
            login: None,
        }
    }
}
