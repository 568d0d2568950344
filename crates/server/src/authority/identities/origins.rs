//! Whose a user is that comes by single sign-on: a subject of an issuer has one user name here for good, or while a local user is linked
//! with it.

use sallyport_access::UserName;
use sallyport_store::{Kind, Op, Store, StoreError};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::records::{Origin, UserRecord};
use crate::authority::secrets::hash_of;
use crate::authority::storage::{removed, storage};

/// A person of a provider, under the hash of issuer and subject: for good, so that a name which has once been theirs does not go to
/// another person of the provider. Of one with whom a local user is linked, as long as the link is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PersonRecord {
    pub(crate) issuer: String,
    pub(crate) subject: String,
    /// By which connector the person came last.
    pub(crate) connector: String,
    pub(crate) user: UserName,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) last_login: OffsetDateTime,
}

impl Kind for PersonRecord {
    const KIND: &'static str = "sso_user";
}

impl PersonRecord {
    /// Of a person who logs in, or is linked, now.
    pub(crate) fn of(origin: &Origin, user: &UserName, now: OffsetDateTime) -> Self {
        Self {
            issuer: origin.issuer.clone(),
            subject: origin.subject.clone(),
            connector: origin.connector.clone(),
            user: user.clone(),
            last_login: now,
        }
    }
}

impl Origin {
    /// The name of the person's record.
    pub(crate) fn person_key(&self) -> String {
        person_key(&self.issuer, &self.subject)
    }
}

/// The name of a person's record.
pub(crate) fn person_key(issuer: &str, subject: &str) -> String {
    hash_of(&format!("{issuer}\0{subject}"))
}

/// What a person's mapping looked at when they logged in, where it reads the groups of a SCIM client, too: under the key of the
/// person's record, as long as they are a user. With it the roles are known again when the groups change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SaidRecord {
    pub(crate) claims: serde_json::Map<String, serde_json::Value>,
    /// The claims that were there and did not count, since the provider has not verified them.
    pub(crate) unverified: Vec<String>,
}

impl Kind for SaidRecord {
    const KIND: &'static str = "sso_said";
}

/// Whether a user is the person under this key, and comes by single sign-on alone.
pub(crate) fn is_person(user: &UserRecord, key: &str) -> bool {
    user.origin.as_ref().is_some_and(|origin| origin.person_key() == key)
}

/// Whether a user is a local one who is linked with the person under this key.
pub(crate) fn is_linked_with(user: &UserRecord, key: &str) -> bool {
    user.link.as_ref().is_some_and(|link| link.person_key() == key)
}

/// Whose a user name is, under the name.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct NameRecord {
    /// Of the person's record.
    pub(crate) person: String,
}

impl Kind for NameRecord {
    const KIND: &'static str = "sso_name";
}

/// The steps that make a name free again, and have its person be unknown: for an administrator who removes the user or ends the link.
/// None where no person has it.
pub(crate) async fn forgotten(
    store: &Store,
    name: &UserName,
    now: OffsetDateTime,
) -> Result<Vec<Op>, Status> {
    let failed = |error: StoreError| storage(&error);
    let Some(owner) = store.get::<NameRecord>(name.as_str(), now).await.map_err(failed)? else {
        return Ok(Vec::new());
    };
    let mut steps: Vec<Op> = removed(name.as_str(), &owner.value).map_err(failed)?.into();
    if let Some(person) = store.get::<PersonRecord>(&owner.value.person, now).await.map_err(failed)? {
        steps.extend(removed(&person.name, &person.value).map_err(failed)?);
    }
    if let Some(said) = store.get::<SaidRecord>(&owner.value.person, now).await.map_err(failed)? {
        steps.extend(removed(&said.name, &said.value).map_err(failed)?);
    }
    Ok(steps)
}

/// Refuses a change to a user who comes by single sign-on: with a password of their own they would be two people.
pub(crate) fn must_be_local(user: &UserRecord) -> Result<(), Status> {
    let Some(origin) = &user.origin else { return Ok(()) };
    Err(Status::failed_precondition(format!(
        "{} comes by single sign-on, which proves who they are and says their roles and traits at each login: change the mapping of \
         its connector, {}, or remove the user",
        user.name, origin.connector
    )))
}
