//! What lets a user through to a node.

use sallyport_access::{HostId, JoinPermit, Permit, UserName};
use sallyport_ssh::node::JOIN_LOGIN;

/// The proof that a user may be let through to a node.
#[derive(Debug, Clone)]
pub(crate) enum Pass {
    /// To log in there.
    Login(Permit),
    /// To take part in sessions of others there; in which, the node decides.
    Join(JoinPermit),
}

impl Pass {
    /// Where.
    pub(crate) fn node(&self) -> HostId {
        match self {
            Self::Login(permit) => permit.node(),
            Self::Join(permit) => permit.node(),
        }
    }

    pub(crate) fn user(&self) -> &UserName {
        match self {
            Self::Login(permit) => permit.user(),
            Self::Join(permit) => permit.user(),
        }
    }

    pub(crate) fn login(&self) -> &str {
        match self {
            Self::Login(permit) => permit.login().as_str(),
            Self::Join(_) => JOIN_LOGIN,
        }
    }
}
