//! Users: made, changed, reset and removed. Each change takes back what it makes untrue: credentials and links in the
//! same transaction, open logins by locks.

use sallyport_access::{RoleName, Traits, UserName};
use sallyport_audit::Code;
use sallyport_sal::random;
use sallyport_store::{Op, StoreError, Stored, typed};
use sallyport_wire::{InviteLink, UNKNOWN_PROXY, convert, v1};
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::accounts::login::Accounts;
use crate::authority::caller::{Caller, shown};
use crate::authority::devices::voiding;
use crate::authority::identities::origins::{forgotten, must_be_local};
use crate::authority::records::{CredentialRecord, InviteRecord, UserRecord};
use crate::authority::resources::documents::{resource, user_yaml};
use crate::authority::resources::entered::check_traits;
use crate::authority::secrets::{REMEMBERED, hash_of};
use crate::authority::storage::{PAGE, Write, op, removed, storage};

/// How long an invite or reset link is good.
const INVITE_TTL: time::Duration = time::Duration::hours(24);

fn failed(error: StoreError) -> Status {
    storage(&error)
}

/// A link for a user, and the step that makes it.
struct Invite {
    token: String,
    expires: OffsetDateTime,
    step: Op,
}

impl Accounts {
    fn check_roles(&self, roles: &[RoleName]) -> Result<(), Status> {
        let cache = self.policy.cache();
        let unknown: Vec<&str> =
            roles.iter().map(RoleName::as_str).filter(|role| !cache.roles.contains_key(*role)).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let known: Vec<&str> = cache.roles.keys().map(String::as_str).collect();
        Err(Status::invalid_argument(format!(
            "there is no role {}; roles are {}",
            unknown.join(", "),
            known.join(", ")
        )))
    }

    /// Writes a user's document. What the user had by others ends: the logins that are open, and links that were made
    /// for the account as it was.
    pub(crate) async fn write_user(
        &self,
        caller: &Caller,
        mut user: UserRecord,
        write: Write,
    ) -> Result<v1::Resource, Status> {
        let name = user.name.clone();
        // Before what `Identities::change` gives, as everywhere: no SCIM client announces the name meanwhile.
        let _announced = self.provisioning.steady().await;
        let _changing = self.identities.change().await;
        self.check_roles(&user.roles)?;
        let now = OffsetDateTime::now_utc();
        let before = self.stored_user(&name, now).await?;
        if let Some(before) = &before {
            self.delegation.must_hold(caller, write.method(), &before.value).await?;
            must_be_local(&before.value)?;
        }
        // A link is made and ended by calls of its own, and no document does either.
        let link = before.as_ref().and_then(|before| before.value.link.clone());
        if user.link.is_some() && user.link != link {
            return Err(Status::invalid_argument(format!(
                "spec.link: no document links a user: leave it out, or as it is; see sallyport admin users link {name} --help"
            )));
        }
        user.link = link;
        self.delegation.must_hold(caller, write.method(), &user).await?;
        let mut steps = vec![op(name.as_str(), &user, None, write).map_err(failed)?];
        let (mut events, mut ended_logins) = (Vec::new(), 0);
        match &before {
            None => {
                steps.push(self.provisioning.free_of_clients(&name, now).await?);
                steps.extend(self.nothing_of(&name, now).await?);
            }
            Some(before) if before.value.roles != user.roles || before.value.traits != user.traits => {
                let why = "roles or traits of the user were changed";
                let ended = self.logins.end_logins(caller, &name, why, now).await?;
                steps.extend(ended.steps);
                (events, ended_logins) = (ended.events, ended.logins);
            }
            Some(_) => {}
        }
        let revisions = self.store.backend().transact(steps, now).await.map_err(failed)?;
        let revision = revisions.first().copied().unwrap_or_default();
        let yaml = user_yaml(&user);
        self.identities.put_user(user, revision);
        let code = if before.is_some() { Code::UserUpdated } else { Code::UserCreated };
        let event = caller
            .event(code)
            .message(format!("user/{name}"))
            .field("name", name.to_string())
            .field("yaml", yaml.clone())
            .field("ended_logins", ended_logins);
        events.insert(0, event);
        self.policy.refresh_after("lock").await?;
        self.journal.record(events).await?;
        Ok(resource("user", name.as_str(), revision, None, yaml))
    }

    pub(crate) async fn create_user(
        &self,
        caller: &Caller,
        request: v1::CreateUserRequest,
    ) -> Result<v1::InviteResponse, Status> {
        let bad = |error: sallyport_access::IdError| Status::invalid_argument(error.to_string());
        let name = UserName::new(request.name).map_err(bad)?;
        let roles =
            request.roles.into_iter().map(RoleName::new).collect::<Result<Vec<_>, _>>().map_err(bad)?;
        let traits: Traits = request.traits.into_iter().map(|(name, values)| (name, values.values)).collect();
        check_traits(&traits)?;
        let user = UserRecord { name, roles, traits, origin: None, link: None };
        // Before what `Identities::change` gives, as everywhere: no SCIM client announces the name meanwhile.
        let _announced = self.provisioning.steady().await;
        let _changing = self.identities.change().await;
        self.check_roles(&user.roles)?;
        self.delegation.must_hold(caller, "Admin.CreateUser", &user).await?;
        let now = OffsetDateTime::now_utc();
        let mut steps = vec![typed::create(user.name.as_str(), &user, None).map_err(failed)?];
        steps.push(self.provisioning.free_of_clients(&user.name, now).await?);
        steps.extend(self.nothing_of(&user.name, now).await?);
        let made = self.store.backend().transact(steps, now).await;
        let revisions = made.map_err(|error| match error {
            StoreError::Exists { .. } => Status::already_exists(format!(
                "there is a user {} already; for a new password: sallyport admin users reset {}",
                user.name, user.name
            )),
            error => storage(&error),
        })?;
        let revision = revisions.first().copied().unwrap_or_default();
        let event = caller
            .event(Code::UserCreated)
            .message(format!("user/{}", user.name))
            .field("name", user.name.to_string())
            .field("yaml", user_yaml(&user));
        let name = user.name.clone();
        self.identities.put_user(user, revision);
        let invite = invite(&name, revision, now)?;
        self.store.backend().transact(vec![invite.step.clone()], now).await.map_err(failed)?;
        self.journal.record(vec![event]).await?;
        Ok(self.invitation(&name, invite))
    }

    pub(crate) async fn reset_user(&self, caller: &Caller, name: &str) -> Result<v1::InviteResponse, Status> {
        let missing = || Status::not_found(format!("there is no user {}", shown(name)));
        let name = UserName::new(name).map_err(|_| missing())?;
        let _changing = self.identities.change().await;
        let now = OffsetDateTime::now_utc();
        let user = self.stored_user(&name, now).await?.ok_or_else(missing)?;
        self.delegation.must_hold(caller, "Admin.ResetUser", &user.value).await?;
        let mut steps = self.invites_of(&name, now).await?;
        let nothing = CredentialRecord { reset_at: Some(now), ..CredentialRecord::default() };
        steps.push(typed::put(name.as_str(), &nothing, None).map_err(failed)?);
        let (gone, removed_factors) = self.factors.nothing_of(&name, now).await?;
        steps.extend(gone);
        let why = "the user was reset";
        let ended = self.logins.end_logins(caller, &name, why, now).await?;
        steps.extend(ended.steps);
        // What was made for the user to ask with, too.
        let (gone, tokens) = voiding::tokens(&self.store, caller, &name, why, now).await.map_err(failed)?;
        steps.extend(gone);
        let is_linked = user.value.link.is_some();
        let unlinked = is_linked.then(|| UserRecord { link: None, ..user.value.clone() });
        let mut revision = user.revision;
        if let Some(left) = &unlinked {
            // The person of a provider, too, was one who could come in.
            steps.extend(forgotten(&self.store, &name, now).await?);
            let put = typed::update(name.as_str(), revision, left, user.expires).map_err(failed)?;
            steps.insert(0, put);
            let revisions = self.store.backend().transact(std::mem::take(&mut steps), now).await;
            revision = revisions.map_err(failed)?.first().copied().unwrap_or_default();
            self.identities.put_user(left.clone(), revision);
        }
        // Who comes by single sign-on gets no password here: with one they would be two people.
        let invite = match &user.value.origin {
            None => Some(invite(&name, revision, now)?),
            Some(_) => None,
        };
        steps.extend(invite.iter().map(|invite| invite.step.clone()));
        let invited = match self.store.backend().transact(steps, now).await {
            Err(error) if unlinked.is_none() => return Err(failed(error)),
            invited => invited.map_err(failed),
        };
        let mut events = ended.events;
        let event = caller
            .event(Code::UserReset)
            .message(format!("user/{name}"))
            .field("name", name.to_string())
            .field("removed_factors", removed_factors)
            .field("unlinked", unlinked.is_some())
            .field("ended_logins", ended.logins);
        events.insert(0, event);
        events.extend(tokens);
        self.policy.refresh_after("lock").await?;
        self.journal.record(events).await?;
        // What was taken away is on record, also where no link for another password could be made.
        invited?;
        Ok(match invite {
            Some(invite) => self.invitation(&name, invite),
            None => v1::InviteResponse { user: name.to_string(), ..v1::InviteResponse::default() },
        })
    }

    /// Removes a user, with everything that would let them, or another of the same name, in.
    pub(crate) async fn delete_user(&self, caller: &Caller, name: &str) -> Result<(), Status> {
        let missing = || Status::not_found(format!("there is no user {}", shown(name)));
        let name = UserName::new(name).map_err(|_| missing())?;
        let _changing = self.identities.change().await;
        let now = OffsetDateTime::now_utc();
        let forgotten = forgotten(&self.store, &name, now).await?;
        let Some(user) = self.stored_user(&name, now).await? else {
            return self.free_name(caller, &name, forgotten, now).await.unwrap_or_else(|| Err(missing()));
        };
        self.delegation.must_hold(caller, "Admin.DeleteResource", &user.value).await?;
        let mut steps = vec![typed::delete::<UserRecord>(name.as_str(), Some(user.revision))];
        steps.extend(forgotten);
        steps.extend(self.nothing_of(&name, now).await?);
        let mut ended = self.logins.end_logins(caller, &name, "the account was removed", now).await?;
        ended.join(&mut steps);
        let revisions = self.store.backend().transact_urgent(steps, now).await.map_err(failed)?;
        self.identities.remove_user(&name, revisions.first().copied().unwrap_or_default());
        let mut events = ended.events;
        let event = caller
            .event(Code::UserDeleted)
            .message(format!("user/{name}"))
            .field("name", name.to_string())
            .field("ended_logins", ended.logins);
        events.insert(0, event);
        self.policy.refresh_after("lock").await?;
        self.journal.record_urgent(events).await
    }

    /// Makes the name free of a person whose time as a user is over; none where no person has it.
    async fn free_name(
        &self,
        caller: &Caller,
        name: &UserName,
        forgotten: Vec<Op>,
        now: OffsetDateTime,
    ) -> Option<Result<(), Status>> {
        if forgotten.is_empty() {
            return None;
        }
        if let Err(error) = self.store.backend().transact_urgent(forgotten, now).await {
            return Some(Err(failed(error)));
        }
        let event = caller
            .event(Code::UserDeleted)
            .message(format!("user/{name}"))
            .field("name", name.to_string())
            .field("expired", true);
        Some(self.journal.record_urgent(vec![event]).await)
    }

    /// Whether a user has a factor, so that their password alone opens no login.
    pub(crate) async fn has_factor(&self, user: &UserName, now: OffsetDateTime) -> Result<bool, Status> {
        let held = self.factors.held(user, now).await?;
        Ok(!held.is_empty() || self.credential_of(user, now).await?.totp_sealed.is_some())
    }

    async fn stored_user(
        &self,
        name: &UserName,
        now: OffsetDateTime,
    ) -> Result<Option<Stored<UserRecord>>, Status> {
        self.store.get::<UserRecord>(name.as_str(), now).await.map_err(failed)
    }

    /// Steps that remove every password, second factor and link under this name, and take it off its trusted devices.
    pub(crate) async fn nothing_of(&self, name: &UserName, now: OffsetDateTime) -> Result<Vec<Op>, Status> {
        let mut steps = self.invites_of(name, now).await?;
        steps.extend(removed(name.as_str(), &CredentialRecord::default()).map_err(failed)?);
        steps.extend(self.factors.nothing_of(name, now).await?.0);
        steps.extend(self.devices.nothing_of(name, now).await?);
        Ok(steps)
    }

    /// Steps that take back links already sent to a user.
    async fn invites_of(&self, name: &UserName, now: OffsetDateTime) -> Result<Vec<Op>, Status> {
        let mut steps = Vec::new();
        let mut after = None::<String>;
        loop {
            let page = self.store.list::<InviteRecord>(after.as_deref(), PAGE, now).await.map_err(failed)?;
            let Some(last) = page.last() else { return Ok(steps) };
            after = Some(last.name.clone());
            for invite in page.into_iter().filter(|invite| invite.value.user == *name) {
                steps.extend(removed(&invite.name, &invite.value).map_err(failed)?);
            }
        }
    }

    /// The pins of the certificate authorities by which programs know this cluster. In a rotation these are both: a host's certificate may
    /// be of either.
    pub(crate) fn pins(&self) -> Vec<String> {
        self.issuance.authorities().trust().pins()
    }

    fn invitation(&self, user: &UserName, invite: Invite) -> v1::InviteResponse {
        let address =
            if self.config.public_addr.is_empty() { UNKNOWN_PROXY } else { &self.config.public_addr };
        let pins = self.pins().join(",");
        v1::InviteResponse {
            user: user.to_string(),
            link: InviteLink { proxy: address.to_owned(), token: invite.token.clone(), pins }.to_string(),
            token: invite.token,
            expires: Some(convert::time_to_proto(invite.expires)),
        }
    }
}

/// A link that opens the account of a user as it is at this revision.
fn invite(user: &UserName, revision: u64, now: OffsetDateTime) -> Result<Invite, Status> {
    let token = random::token(20).map_err(|error| Status::internal(error.to_string()))?;
    let expires = now + INVITE_TTL;
    let record = InviteRecord {
        user: user.clone(),
        totp_sealed: None,
        expires,
        used: false,
        user_revision: Some(revision),
        passkey: None,
    };
    let step = typed::create(&hash_of(&token), &record, Some(expires + REMEMBERED)).map_err(failed)?;
    Ok(Invite { token, expires, step })
}
