//! The users that come by single sign-on. A person is a subject of an issuer: the pair has one user name here for good, and a user
//! that is another's, or a local one, is not taken for theirs.

use sallyport_access::UserName;
use sallyport_audit::{Code, Event};
use sallyport_oidc::Identity;
use sallyport_store::{Op, Stored, typed};
use time::OffsetDateTime;

use super::claims::{Claims, Verdict, external_id};
use super::connector::Connector;
use super::connectors::Connectors;
use super::error::{LinkCommand, NoUserName, SsoError};
use super::failure::{Failure, state};
use super::records::{SessionRecord, session_key};
use crate::authority::accounts::means::Said;
use crate::authority::caller::Caller;
use crate::authority::identities::origins::{NameRecord, PersonRecord, is_person, person_key};
use crate::authority::records::{Origin, UserRecord};
use crate::authority::resources::documents::user_yaml;
use crate::authority::scim::admission::{Admission, Sought};
use crate::config::SecondFactor;

/// Longest text of a subject in an event.
const SHOWN: usize = 255;
/// Names that no person gets: what is said of them is read as said of the machine or of this service.
const RESERVED: [&str; 2] = ["auth", "root"];

/// A person who may log in now.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) user: UserName,
    /// Who the user is, as it was admitted.
    pub(crate) origin: Origin,
    /// A local user, who is linked with that person.
    pub(crate) linked: bool,
    pub(crate) second_factor: bool,
    /// What the provider and the connector's SCIM client said, as login rules see it.
    pub(crate) said: Said,
    /// Until when the provider has vouched for a local user; others end by themselves.
    pub(crate) until: Option<OffsetDateTime>,
}

/// Whose a login would be.
pub(crate) struct Would {
    pub(crate) name: UserName,
    /// A local user, whose own roles and traits count.
    pub(crate) linked: bool,
}

/// The name that a person has or would get.
pub(super) struct Whose {
    pub(super) name: UserName,
    person: Option<Stored<PersonRecord>>,
    owner: Option<Stored<NameRecord>>,
    pub(super) before: Option<Stored<UserRecord>>,
    /// The step that fails unless no other connector's SCIM client has announced the name of a person who is new here.
    unannounced: Option<Op>,
}

impl Connectors {
    async fn whose(
        &self,
        connector: &Connector,
        identity: &Identity,
        called: Result<UserName, NoUserName>,
        now: OffsetDateTime,
    ) -> Result<Whose, Failure> {
        let key = person_key(&identity.issuer, &identity.subject);
        let person = self.store.get::<PersonRecord>(&key, now).await.map_err(|error| state(&error))?;
        let link = |user: &UserRecord| LinkCommand {
            user: user.name.to_string(),
            connector: connector.name.to_string(),
            subject: identity.subject.clone(),
        };
        let name = match &person {
            // What the provider calls them now does not matter: it is the same person.
            Some(person) => person.value.user.clone(),
            None => {
                let none = |reason| SsoError::NoName { template: connector.username.to_string(), reason };
                let called = called.map_err(none)?;
                self.new_name(&called, link)?
            }
        };
        // Whose the name is already, it stays, whatever clients have announced since.
        let unannounced = match &person {
            Some(_) => None,
            None => Some(self.not_announced(connector, &key, &name, now).await?),
        };
        let owner = self.store.get::<NameRecord>(name.as_str(), now).await.map_err(|error| state(&error))?;
        let before = self.store.get::<UserRecord>(name.as_str(), now).await.map_err(|error| state(&error))?;
        check_free(&name, &key, owner.as_ref(), before.as_ref(), link)?;
        Ok(Whose { name, person, owner, before, unannounced })
    }

    /// The step that fails where another connector's SCIM client announces a name before it is a person's of this one.
    async fn not_announced(
        &self,
        connector: &Connector,
        key: &str,
        name: &UserName,
        now: OffsetDateTime,
    ) -> Result<Op, Failure> {
        let of = Some((&connector.name, key));
        let announced =
            self.provisioning.unannounced(name.as_str(), of, now).await.map_err(Failure::State)?;
        let by = |connector| SsoError::NameAnnounced { name: name.to_string(), connector };
        announced.map_err(|connector| by(connector).into())
    }

    /// The name of a person who has none yet: in lower case, so that no two differ by case alone.
    fn new_name(
        &self,
        called: &UserName,
        link: impl Fn(&UserRecord) -> LinkCommand,
    ) -> Result<UserName, SsoError> {
        let folded = called.as_str().to_lowercase();
        let taken =
            |owner: &str, link| SsoError::NameTaken { name: folded.clone(), owner: owner.to_owned(), link };
        if RESERVED.contains(&folded.as_str()) {
            return Err(taken("the system: no person may be called so", None));
        }
        let is_alike =
            |user: &UserRecord| user.name.as_str() != folded && user.name.as_str().to_lowercase() == folded;
        if let Some(user) = self.identities.users(is_alike).first() {
            let link = user.comes_as().is_none().then(|| link(user));
            return Err(taken(&format!("the user {}, whose name differs by case alone", user.name), link));
        }
        UserName::new(folded.clone())
            .map_err(|error| SsoError::NoName { template: folded.clone(), reason: error.into() })
    }

    /// What is so of a person whom a provider speaks of: their name here, and what the connector's SCIM client says of them. Their
    /// groups are among the claims then. The caller holds what `Provisioning::steady` and `Identities::change` give.
    pub(super) async fn place(
        &self,
        connector: &Connector,
        key: &str,
        claims: &mut Claims,
        now: OffsetDateTime,
    ) -> Result<(Whose, Vec<Op>), Failure> {
        let called = self.judge(connector, claims).name;
        let whose = self.whose(connector, &claims.identity, called.clone(), now).await?;
        let sought = Sought { called: called.ok(), external_id: external_id(connector, claims) };
        let admission = self.provisioning.admission(&connector.name, key, &sought, &whose.name, now).await;
        let unannounced = whose.unannounced.clone();
        match admission.map_err(Failure::State)? {
            Admission::NotProvisioned => Ok((whose, unannounced.into_iter().collect())),
            Admission::Active { mut steps, groups } => {
                claims.groups = Some(groups);
                steps.extend(unannounced);
                Ok((whose, steps))
            }
            Admission::Refused(reason) => {
                Err(SsoError::NotProvisioned { connector: connector.name.to_string(), reason }.into())
            }
        }
    }

    /// What a login by a connector would come to, and the name that the person would have, without making them a user.
    pub(crate) async fn would_be(
        &self,
        connector: &Connector,
        claims: &mut Claims,
        now: OffsetDateTime,
    ) -> (Verdict, Result<Would, Failure>) {
        let _provisioned = self.provisioning.steady().await;
        let _changing = self.identities.change().await;
        let key = person_key(&claims.identity.issuer, &claims.identity.subject);
        match self.linked(connector, &key, now).await {
            Ok(None) => {}
            Ok(Some(user)) => {
                let checked = self.check_linked(connector, claims, &user.value, now).await;
                let would = checked.map(|()| Would { name: user.value.name, linked: true });
                return (self.judge(connector, claims), would);
            }
            Err(failure) => return (self.judge(connector, claims), Err(failure)),
        }
        let name = match self.is_of_the_same_people(connector, now).await {
            Ok(true) => self.place(connector, &key, claims, now).await.map(|(whose, _)| whose.name),
            Ok(false) => {
                let called = self.judge(connector, claims).name;
                self.whose(connector, &claims.identity, called, now).await.map(|whose| whose.name)
            }
            Err(failure) => Err(failure),
        };
        let verdict = self.judge(connector, claims);
        let admitted = verdict.admit(claims, self.factor_required());
        (verdict, name.and_then(|name| Ok(admitted.map(|()| Would { name, linked: false })?)))
    }

    pub(super) fn factor_required(&self) -> bool {
        self.config.second_factor == SecondFactor::Required
    }

    /// Makes a person a user, or has their user be as the provider and the connector's SCIM client say now, until the connector's
    /// lifetime is over. What the client says is read and used without a word of its in between: a group that it takes a person out of
    /// gives nothing any more from its answer on, also to a login that was at the provider before.
    ///
    /// # Errors
    /// [`SsoError`]: no role, no name, or a name that is another's.
    pub(crate) async fn admit(
        &self,
        caller: &Caller,
        connector: &Connector,
        claims: &Claims,
        now: OffsetDateTime,
    ) -> Result<(Admitted, Verdict), Failure> {
        // Before what `Identities::change` gives, as everywhere.
        let _provisioned = self.provisioning.steady().await;
        // No administrator makes a user of the name, or takes a role away, meanwhile.
        let _changing = self.identities.change().await;
        let key = person_key(&claims.identity.issuer, &claims.identity.subject);
        let connector_stands = self.connector_stands(connector, now).await?;
        if let Some(user) = self.linked(connector, &key, now).await? {
            return self.admit_linked(connector, claims, user, now).await;
        }
        let mut claims = claims.clone();
        let (Whose { name, person, owner, before, .. }, provisioned) =
            self.place(connector, &key, &mut claims, now).await?;
        let verdict = self.judge(connector, &claims);
        verdict.admit(&claims, self.factor_required())?;
        let expires = now + connector.user_lifetime;
        let origin = Origin {
            connector: connector.name.to_string(),
            issuer: claims.identity.issuer.clone(),
            subject: claims.identity.subject.clone(),
        };
        let user = UserRecord {
            name: name.clone(),
            roles: verdict.roles.clone(),
            traits: verdict.traits.clone(),
            origin: Some(origin.clone()),
            link: None,
        };
        let put = match &before {
            Some(before) => typed::update(name.as_str(), before.revision, &user, Some(expires)),
            None => typed::create(name.as_str(), &user, Some(expires)),
        };
        let mut steps = vec![put.map_err(|error| state(&error))?];
        let record = PersonRecord::of(&origin, &name, now);
        // An administrator who links the person with a local user at this moment has them be that one, or they are this one: never both.
        let known = match &person {
            Some(person) => typed::update(&key, person.revision, &record, None),
            None => typed::create(&key, &record, None),
        };
        steps.push(known.map_err(|error| state(&error))?);
        if let Some(said) = claims.kept(connector) {
            steps.push(typed::put(&key, &said, Some(expires)).map_err(|error| state(&error))?);
        }
        steps.push(connector_stands);
        steps.extend(provisioned);
        if owner.is_none() {
            // The first time: what another of the name has left, such as a link, opens nothing.
            steps.extend(self.accounts.nothing_of(&name, now).await.map_err(Failure::State)?);
            let record = NameRecord { person: key.clone() };
            steps.push(typed::create(name.as_str(), &record, None).map_err(|error| state(&error))?);
        }
        steps.extend(session_step(&claims, key, expires)?);
        let changed = before.as_ref().is_some_and(|before| {
            let by = before.value.origin.as_ref().map(|origin| origin.connector.as_str());
            // Who leaves one connector's SCIM client is not cut off any more once they are another connector's.
            let elsewhere = by != Some(connector.name.as_str());
            elsewhere || before.value.roles != user.roles || before.value.traits != user.traits
        });
        let (mut events, mut ended_logins) = (Vec::new(), 0);
        if changed {
            let why = "the user came by another connector, or with other roles or traits, before";
            let mut ended = self.logins.end_logins(caller, &name, why, now).await.map_err(Failure::State)?;
            ended.join(&mut steps);
            (events, ended_logins) = (ended.events, ended.logins);
        }
        let revisions = self.store.backend().transact(steps, now).await.map_err(|error| state(&error))?;
        if before.is_none() || changed {
            let code = if before.is_none() { Code::UserCreated } else { Code::UserUpdated };
            events.insert(0, told(caller, code, &user, expires, ended_logins));
        }
        self.identities.put_user(user, revisions.first().copied().unwrap_or_default());
        if changed {
            self.policy.refresh_after("lock").await.map_err(Failure::State)?;
        }
        if !events.is_empty() {
            self.journal.record(events).await.map_err(Failure::State)?;
        }
        let said = claims.ruled(connector, None);
        let second_factor = verdict.second_factor;
        Ok((Admitted { user: name, origin, linked: false, second_factor, said, until: None }, verdict))
    }
}

/// The step that keeps whose session of the provider a login is, for a logout there; none where the provider names no session.
pub(super) fn session_step(
    claims: &Claims,
    person: String,
    until: OffsetDateTime,
) -> Result<Option<Op>, Failure> {
    let Some(session) = claims.session() else { return Ok(None) };
    let session = session_key(&claims.identity.issuer, session);
    let step = typed::put(&session, &SessionRecord { person }, Some(until));
    step.map(Some).map_err(|error| state(&error))
}

pub(super) fn told(
    caller: &Caller,
    code: Code,
    user: &UserRecord,
    expires: OffsetDateTime,
    ended: usize,
) -> Event {
    let event = caller
        .event(code)
        .message(format!("user/{}", user.name))
        .field("name", user.name.to_string())
        .field("yaml", user_yaml(user))
        .field("expires", expires.to_string())
        .field("ended_logins", ended);
    match &user.origin {
        Some(origin) => with_origin(event, &origin.connector, &origin.issuer, &origin.subject),
        None => event,
    }
}

/// An event with who the person is at the provider.
pub(super) fn with_origin(event: Event, connector: &str, issuer: &str, subject: &str) -> Event {
    let subject: String = subject.chars().take(SHOWN).collect();
    event.field("connector", connector).field("issuer", issuer).field("subject", subject)
}

/// Whether a name is this person's to have.
fn check_free(
    name: &UserName,
    key: &str,
    owner: Option<&Stored<NameRecord>>,
    user: Option<&Stored<UserRecord>>,
    link: impl Fn(&UserRecord) -> LinkCommand,
) -> Result<(), SsoError> {
    let taken_by = |owner: String, link| Err(SsoError::NameTaken { name: name.to_string(), owner, link });
    let taken = |owner: String| taken_by(owner, None);
    if let Some(user) = user {
        let Some(origin) = &user.value.origin else {
            let link = user.value.link.is_none().then(|| link(&user.value));
            return taken_by("a user of this cluster's own".to_owned(), link);
        };
        if !is_person(&user.value, key) {
            return taken(format!("another person, of the connector {}", origin.connector));
        }
    }
    match owner {
        Some(owner) if owner.value.person != key => {
            taken("another person, who came by single sign-on before".to_owned())
        }
        _ => Ok(()),
    }
}
