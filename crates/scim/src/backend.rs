//! Where resources are kept: what the authority implements, and [`crate::contract`] holds it to.

use std::collections::BTreeSet;

use async_trait::async_trait;
use time::OffsetDateTime;

use crate::kind::Kind;
use crate::resource::{Draft, Resource, UnknownMember};

/// The users and groups of one connector.
///
/// A backend is the connector's own: it shows, finds, changes and removes only what was made through it. Users and groups that
/// administrators, other connectors or logins made are not there: [`get`](Self::get) finds none by their identifiers, no scan
/// lists them, and they cannot be members. Their names are taken all the same.
///
/// Each call is one transaction.
#[async_trait]
pub trait Backend: Send + Sync {
    /// The resource with an identifier.
    ///
    /// # Errors
    /// [`BackendError::Failed`].
    async fn get(&self, kind: Kind, id: &str) -> Result<Option<Resource>, BackendError>;

    /// Shows each resource of a kind that `narrow` admits, in the order of their identifiers, as they are at one moment.
    /// A backend that has no index for `narrow` may show others, too.
    ///
    /// # Errors
    /// [`BackendError::Failed`].
    async fn scan(&self, kind: Kind, narrow: &Narrow, each: &mut Each<'_>) -> Result<(), BackendError>;

    /// Shows which groups have one of `members` as a member: each pair of the two, in no order. A backend with an index of members
    /// answers by that; this reads the groups, with all their members.
    ///
    /// # Errors
    /// [`BackendError::Failed`].
    async fn groups_with(
        &self,
        members: &BTreeSet<String>,
        each: &mut EachMember<'_>,
    ) -> Result<(), BackendError> {
        let narrow = Narrow::Members(members.clone());
        let mut shown = |group: &Resource| {
            let name = group.draft.display_name().unwrap_or_default();
            for member in group.draft.members().filter(|member| members.contains(*member)) {
                each(Member { group: &group.id, name, member });
            }
        };
        self.scan(Kind::Group, &narrow, &mut shown).await
    }

    /// Makes a resource, with an identifier that no resource had before, and says what each member is
    /// ([`Draft::name_members`]).
    ///
    /// # Errors
    /// [`BackendError::UserNameTaken`], [`BackendError::NoSuchMember`], [`BackendError::Full`] or [`BackendError::Failed`].
    async fn create(&self, draft: Draft, now: OffsetDateTime) -> Result<Resource, BackendError>;

    /// Replaces a resource that still has a revision, and gives it the next one. Where a user is not active any more, its
    /// sessions and logins end, and no name that is taken stands in the way of that: the user may keep the name that it had.
    ///
    /// # Errors
    /// [`BackendError::NotFound`], [`BackendError::Changed`], [`BackendError::UserNameTaken`],
    /// [`BackendError::NoSuchMember`] or [`BackendError::Failed`].
    async fn replace(
        &self,
        id: &str,
        revision: u64,
        draft: Draft,
        now: OffsetDateTime,
    ) -> Result<Resource, BackendError>;

    /// Removes a resource, and takes it out of the groups that it is in. A user's sessions and logins end.
    ///
    /// # Errors
    /// [`BackendError::NotFound`], [`BackendError::Changed`] where a revision is given and it is another one, or
    /// [`BackendError::Failed`].
    async fn delete(
        &self,
        kind: Kind,
        id: &str,
        revision: Option<u64>,
        now: OffsetDateTime,
    ) -> Result<(), BackendError>;
}

/// What a scan shows resources to.
pub type Each<'a> = dyn for<'r> FnMut(&'r Resource) + Send + 'a;

/// A member of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member<'a> {
    /// The group's identifier.
    pub group: &'a str,
    /// The group's name.
    pub name: &'a str,
    /// The member's identifier.
    pub member: &'a str,
}

/// What members of groups are shown to.
pub type EachMember<'a> = dyn for<'r> FnMut(Member<'r>) + Send + 'a;

/// Which resources of a kind a scan is about. It is a hint for an index: what is shown is looked at again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Narrow {
    /// All of them.
    All,
    /// The one with this identifier.
    Id(String),
    /// The user with this name, which is [folded](crate::fold).
    UserName(String),
    /// Those with this identifier of the client.
    ExternalId(String),
    /// Groups that have one of these as a member.
    Members(BTreeSet<String>),
}

/// Why a backend did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    // The client.
    /// There is no such resource.
    #[error("there is no {kind} {id:?}")]
    NotFound {
        /// The kind.
        kind: Kind,
        /// The identifier.
        id: String,
    },
    /// The resource has another revision.
    #[error("the resource was changed since")]
    Changed,
    /// Another user has that name, this connector's or not.
    #[error("the user name is taken")]
    UserNameTaken,
    /// A member that is none of the connector's resources.
    #[error("there is no user or group {id:?} to be a member")]
    NoSuchMember {
        /// The identifier.
        id: String,
    },
    /// As many resources as a connector may have.
    #[error("there are {limit} of kind {kind} already")]
    Full {
        /// The kind.
        kind: Kind,
        /// How many there may be.
        limit: usize,
        /// What to do about it.
        remedy: &'static str,
    },
    /// More of something than all resources of a connector may have together.
    #[error("all users and groups together would have {got} {unit}, at most {limit}")]
    TooMuch {
        /// How much they would have.
        got: usize,
        /// Of what.
        unit: &'static str,
        /// How much they may have.
        limit: usize,
    },

    // Ourselves.
    /// The storage failed.
    #[error("the storage of provisioned resources failed")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<UnknownMember> for BackendError {
    fn from(UnknownMember { id }: UnknownMember) -> Self {
        Self::NoSuchMember { id }
    }
}
