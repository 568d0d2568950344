//! What the decision gives: a permit that only this crate can make.

use time::OffsetDateTime;

use crate::factor::FactorDemand;
use crate::limits::Limits;
use crate::node::Node;
use crate::resource::Resource;
use crate::{Database, DatabaseName, HostId, Login, UserName};

/// The proof that one user may use one resource as one account. Only [`crate::Policies::decide`] makes it, and whatever opens a
/// connection asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permit<R: Resource = Node> {
    pub(crate) user: UserName,
    pub(crate) resource: R::Id,
    pub(crate) account: R::Account,
    pub(crate) limits: Limits,
    pub(crate) factor: Option<FactorDemand>,
    pub(crate) options: R::Options,
    pub(crate) rule: String,
    pub(crate) valid_until: OffsetDateTime,
}

/// The proof that one user of the cluster may use one database as one database user under one database name.
pub type DatabasePermit = Permit<Database>;

impl<R: Resource> Permit<R> {
    /// Who.
    #[must_use]
    pub fn user(&self) -> &UserName {
        &self.user
    }

    /// What.
    #[must_use]
    pub fn resource(&self) -> &R::Id {
        &self.resource
    }

    /// As which account.
    #[must_use]
    pub fn account(&self) -> &R::Account {
        &self.account
    }

    /// Within which limits, of those that sessions of every kind have.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Which second factor has to be proven before the session begins, where one has to. What opens a session on a permit asks for
    /// the evidence.
    #[must_use]
    pub fn factor(&self) -> Option<&FactorDemand> {
        self.factor.as_ref()
    }

    /// Within which limits of its kind.
    #[must_use]
    pub fn options(&self) -> &R::Options {
        &self.options
    }

    /// By which rule, such as `role "dev" allow`.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// Until the certificate behind it ends.
    #[must_use]
    pub fn valid_until(&self) -> OffsetDateTime {
        self.valid_until
    }
}

impl Permit<Node> {
    /// Where.
    #[must_use]
    pub fn node(&self) -> HostId {
        self.resource
    }

    /// As which account.
    #[must_use]
    pub fn login(&self) -> &Login {
        &self.account
    }
}

impl Permit<Database> {
    /// Which server.
    #[must_use]
    pub fn database(&self) -> &DatabaseName {
        &self.resource
    }

    /// As which user of the server.
    #[must_use]
    pub fn db_user(&self) -> &str {
        &self.account.user
    }

    /// Which of the server's databases.
    #[must_use]
    pub fn db_name(&self) -> &str {
        &self.account.name
    }

    /// The server's roles that a user gets who is made: sorted, each once.
    #[must_use]
    pub fn roles(&self) -> &[String] {
        &self.options.roles
    }
}

/// The proof that a caller may use one kind of resource in one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiPermit {
    pub(crate) rule: String,
}

impl ApiPermit {
    /// By which rule.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// For a caller who has proven to be the operator of the authority's own machine, by the mode of its socket.
    #[must_use]
    pub fn local_admin() -> Self {
        Self { rule: "local administrator".to_owned() }
    }
}
