//! The kinds of resource that a client provisions (RFC 7643 §4).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::schema::row::Schema;
use crate::schema::{ENTERPRISE_USER, GROUP, USER};

const USER_EXTENSIONS: &[&Schema] = &[&ENTERPRISE_USER];

/// A kind of resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A person, or what else logs in.
    User,
    /// A group of users and of other groups.
    Group,
}

impl Kind {
    /// All kinds, in the order in which a search of everything lists them.
    pub const ALL: &'static [Self] = &[Self::User, Self::Group];

    /// The name of its resource type.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "User",
            Self::Group => "Group",
        }
    }

    /// The first segment of its resources' paths.
    #[must_use]
    pub const fn endpoint(self) -> &'static str {
        match self {
            Self::User => "Users",
            Self::Group => "Groups",
        }
    }

    pub(crate) fn schema(self) -> &'static Schema {
        match self {
            Self::User => &USER,
            Self::Group => &GROUP,
        }
    }

    pub(crate) fn extensions(self) -> &'static [&'static Schema] {
        match self {
            Self::User => USER_EXTENSIONS,
            Self::Group => &[],
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
