//! Names and ids, each its own type, valid by construction.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Nothing was given.
    #[error("{what} is empty")]
    Empty {
        /// What the name was for.
        what: &'static str,
    },
    /// Longer than the kind of name may be.
    #[error("{what} has {got} characters, at most {max} are allowed")]
    TooLong {
        /// What the name was for.
        what: &'static str,
        /// Length found, in characters.
        got: usize,
        /// Longest length allowed, in characters.
        max: usize,
    },
    /// A character outside the allowed set.
    #[error("{what} {got:?} contains {bad:?}; allowed are {allowed}")]
    BadCharacter {
        /// What the name was for.
        what: &'static str,
        /// The whole name.
        got: String,
        /// The first character refused.
        bad: char,
        /// The allowed set, in words.
        allowed: &'static str,
    },
    /// Not a UUID.
    #[error("{what} {got:?} is not a UUID")]
    NotUuid {
        /// What the id was for.
        what: &'static str,
        /// What was given.
        got: String,
    },
}

fn check(
    what: &'static str,
    text: &str,
    max: usize,
    allowed: &'static str,
    first: fn(char) -> bool,
    rest: fn(char) -> bool,
) -> Result<(), IdError> {
    let mut characters = text.chars();
    let Some(head) = characters.next() else {
        return Err(IdError::Empty { what });
    };
    let got = text.chars().count();
    if got > max {
        return Err(IdError::TooLong { what, got, max });
    }
    let bad = if first(head) { characters.find(|c| !rest(*c)) } else { Some(head) };
    match bad {
        None => Ok(()),
        Some(bad) => Err(IdError::BadCharacter { what, got: text.to_owned(), bad, allowed }),
    }
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:literal, $allowed:literal, $first:expr, $rest:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Parses a name.
            ///
            /// # Errors
            /// [`IdError`] when it is empty, too long or has a character that is not allowed.
            pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
                let text = text.into();
                check($what, &text, $max, $allowed, $first, $rest)?;
                Ok(Self(text))
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

fn word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}
fn host(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

name_type!(
    /// The name of one installation: a DNS label or several, lower case, at most 63 characters.
    ClusterName, "cluster name", 63, "lower-case letters, digits, '-' and '.'",
    host, |c| host(c) || c == '-' || c == '.'
);
name_type!(
    /// A person or machine account known to the cluster, at most 128 characters.
    UserName, "user name", 128, "letters, digits and '_', then also '-', '.', '@' and '+'",
    word, |c| word(c) || matches!(c, '-' | '.' | '@' | '+')
);
name_type!(
    /// The name of a role, at most 128 characters.
    RoleName, "role name", 128, "letters, digits and '_', then also '-' and '.'",
    word, |c| word(c) || matches!(c, '-' | '.')
);
name_type!(
    /// The name a node is reached by: a host name, lower case, at most 253 characters.
    NodeName, "node name", 253, "lower-case letters, digits, '-' and '.'",
    host, |c| host(c) || c == '-' || c == '.'
);
name_type!(
    /// The name of a database of the cluster: one DNS label, lower case, at most 63 characters, because it may stand in
    /// front of the proxy's name.
    DatabaseName, "database name", 63, "lower-case letters, digits and '-'",
    host, |c| host(c) || c == '-'
);
name_type!(
    /// The name of a resource of the catalogue: one DNS label, lower case, at most 63 characters, because it may stand in front of
    /// the proxy's name.
    ResourceName, "name", 63, "lower-case letters, digits and '-'",
    host, |c| host(c) || c == '-'
);
name_type!(
    /// An account of the operating system, at most 64 characters.
    Login, "login", 64, "letters, digits and '_', then also '-', '.', '@' and '\\'",
    word, |c| word(c) || matches!(c, '-' | '.' | '@' | '\\')
);

macro_rules! uuid_type {
    ($(#[$doc:meta])* $name:ident, $what:literal, $fresh:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// A fresh id.
            #[must_use]
            #[allow(clippy::new_without_default, reason = "a fresh id is never a default value")]
            pub fn new() -> Self {
                Self(Uuid::$fresh())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Uuid::try_parse(text)
                    .map(Self)
                    .map_err(|_| IdError::NotUuid { what: $what, got: text.to_owned() })
            }
        }
    };
}

uuid_type!(
    /// A node, proxy or authority: a random UUID that it keeps for life (RFC 9562 §5.4).
    HostId, "host id", new_v4
);
uuid_type!(
    /// A trusted device: a random UUID that it has for as long as it is enrolled (RFC 9562 §5.4).
    DeviceId, "device id", new_v4
);
uuid_type!(
    /// One recorded use of a target: a time-ordered UUID (RFC 9562 §5.7).
    SessionId, "session id", now_v7
);

/// Bits of a host's id, the first ones, that are the last ones of the ids of its sessions.
const HOST_BITS: u32 = 48;

impl SessionId {
    /// A fresh id for a session on this host. It names the host, so that no other can claim the session: a host's id is
    /// given out at random, and no host can choose one to fit a session of another's.
    #[must_use]
    pub fn on(host: &HostId) -> Self {
        // RFC 9562 §5.7: 48 bits of time, the version, and what is left to the maker of the id.
        let time = Uuid::now_v7().as_u128() & !((1 << 80) - 1);
        let fixed = (0x7 << 76) | (0x2 << 62);
        let random = Uuid::new_v4().as_u128() & ((0xfff << 64) | (((1 << 14) - 1) << HOST_BITS));
        Self(Uuid::from_u128(time | fixed | random | (host.0.as_u128() >> (128 - HOST_BITS))))
    }

    /// Whether it was made on this host.
    #[must_use]
    pub fn is_on(&self, host: &HostId) -> bool {
        self.hosts().contains(host)
    }

    /// The ids of hosts that it could have been made on.
    #[must_use]
    pub fn hosts(&self) -> std::ops::RangeInclusive<HostId> {
        let rest = 128 - HOST_BITS;
        let first = self.0.as_u128() << rest;
        HostId(Uuid::from_u128(first))..=HostId(Uuid::from_u128(first | ((1 << rest) - 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_names_its_host() {
        let (host, other) = (HostId::new(), HostId::new());
        let ids: std::collections::BTreeSet<SessionId> = (0..1000).map(|_| SessionId::on(&host)).collect();
        assert_eq!(ids.len(), 1000);
        for id in ids {
            assert!(id.is_on(&host) && !id.is_on(&other), "{id}");
            assert_eq!((id.0.get_version_num(), id.0.get_variant()), (7, uuid::Variant::RFC4122));
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        assert!(!SessionId::new().is_on(&host));
    }

    #[test]
    fn names_are_checked() {
        assert!(NodeName::new("web-1.prod").is_ok());
        assert!(matches!(NodeName::new(""), Err(IdError::Empty { .. })));
        assert!(matches!(NodeName::new("-web"), Err(IdError::BadCharacter { bad: '-', .. })));
        assert!(matches!(Login::new("root;rm"), Err(IdError::BadCharacter { bad: ';', .. })));
        assert!(matches!(RoleName::new("r".repeat(200)), Err(IdError::TooLong { max: 128, .. })));
        assert!(UserName::new("alice@example.com").is_ok());
        assert!("nonsense".parse::<SessionId>().is_err());
    }
}
