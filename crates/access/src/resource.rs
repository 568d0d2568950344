//! What an identity can be let in to: servers, databases, applications.

use std::fmt::{Debug, Display};

use crate::{Kind, Labels};

/// A thing of the cluster that sessions are with. A kind of resource is a type; what its accounts and its own options are is
/// typed with it, so that a permit for one kind cannot be taken for another's.
pub trait Resource {
    /// What stays the same while it is renamed.
    type Id: Debug + Display + Clone + PartialEq + Eq;
    /// What an account on it is called.
    type Account: Debug + Clone + PartialEq + Eq;
    /// What roles can say of its sessions besides [`crate::Limits`].
    type Options: Debug + Clone + PartialEq + Eq;

    /// What kind of resource it is.
    fn kind(&self) -> Kind;

    /// Which one it is.
    fn id(&self) -> Self::Id;

    /// What people type.
    fn name(&self) -> &str;

    /// What roles select by.
    fn labels(&self) -> &Labels;
}
