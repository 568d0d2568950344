//! What is kept of provisioning, each kind under its own prefix.

use sallyport_access::{ResourceName, UserName};
use sallyport_scim::{Resource, fold};
use sallyport_store::Kind;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::authority::secrets::hash_of;

/// A user or group of a SCIM client, under [`resource_key`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ScimRecord {
    pub(crate) resource: Resource,
}

impl Kind for ScimRecord {
    const KIND: &'static str = "scim_resource";
}

/// The name of a resource's record.
pub(crate) fn resource_key(connector: &ResourceName, kind: sallyport_scim::Kind, id: &str) -> String {
    format!("{}/{id}", kind_key(connector, kind))
}

/// What is before the identifiers of a connector's resources of one kind.
pub(crate) fn kind_key(connector: &ResourceName, kind: sallyport_scim::Kind) -> String {
    format!("{connector}/{}", kind.endpoint())
}

/// Whose a user's name is, under [`name_key`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ScimNameRecord {
    pub(crate) connector: ResourceName,
    pub(crate) id: String,
}

impl Kind for ScimNameRecord {
    const KIND: &'static str = "scim_name";
}

/// The name of the record of a user's name: whatever its case, it is one.
pub(crate) fn name_key(user_name: &str) -> String {
    hash_of(&fold(user_name))
}

/// A user of the cluster that logged in as a client's user, under [`link_key`] and the name of the user.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ScimLinkRecord {
    pub(crate) user: UserName,
}

impl Kind for ScimLinkRecord {
    const KIND: &'static str = "scim_link";
}

/// What is before the names of the users that logged in as a client's user.
pub(crate) fn link_key(connector: &ResourceName, id: &str) -> String {
    format!("{connector}/{id}")
}

/// The person who a client's user is, under [`of_resource`]: the first who logged in as it, until the client removes it. The client and
/// the provider may call them something else every day.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ScimPersonRecord {
    /// The key of the person's record.
    pub(crate) person: String,
}

impl Kind for ScimPersonRecord {
    const KIND: &'static str = "scim_person";
}

/// Which of a client's users a person is, under the connector and the key of the person's record. It outlasts the client's user: a
/// person whom the client has removed becomes no colleague by calling themselves like one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ScimBindingRecord {
    pub(crate) id: String,
    /// Of a user that the client has removed: the [`name_key`] of its last name, by which the person may be the client's user again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) removed: Option<String>,
}

impl ScimBindingRecord {
    pub(crate) fn to(id: &str) -> Self {
        Self { id: id.to_owned(), removed: None }
    }
}

impl Kind for ScimBindingRecord {
    const KIND: &'static str = "scim_binding";
}

/// The name of the record that says which person a client's user is.
pub(crate) fn of_resource(connector: &ResourceName, id: &str) -> String {
    format!("{connector}/{id}")
}

/// The name of the record that says which of a client's users a person is.
pub(crate) fn of_person(connector: &ResourceName, person: &str) -> String {
    format!("{connector}/{person}")
}

/// A bearer token, under connector and name. It stays after its end until an administrator removes it: a connector is provisioned
/// as long as it has one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ScimTokenRecord {
    /// SHA-256 of the whole token, in hexadecimal.
    pub(crate) hash: String,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) created: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) expires: OffsetDateTime,
}

impl Kind for ScimTokenRecord {
    const KIND: &'static str = "scim_token";
}
