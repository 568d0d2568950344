//! Versions of resources (RFC 7644 §3.14): the revision, and for a user what its groups are.
//!
//! A user's groups are changed at the group, which leaves the user's revision as it is. An answer that shows them has a version
//! of its own, so that a client who has it cached sees the change; what a client may overwrite is told by the revision alone.

use std::fmt;

/// The version of one answer about a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    revision: u64,
    groups: Option<u64>,
}

impl Version {
    /// The version of a resource of which these groups are shown.
    pub(crate) fn new<'a>(revision: u64, groups: impl Iterator<Item = [&'a str; 3]>) -> Self {
        let mut groups = groups.peekable();
        let groups = groups.peek().is_some().then(|| {
            groups.flatten().fold(FNV_BASIS, |hash, text| {
                text.bytes()
                    .chain([0xff])
                    .fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME))
            })
        });
        Self { revision, groups }
    }

    /// Whether a list of `If-None-Match` names this version (RFC 9110 §13.1.2).
    pub(crate) fn is_named_by(self, header: &str) -> bool {
        tags(header).any(|tag| tag == "*" || tag == self.tag())
    }

    fn tag(self) -> String {
        match self.groups {
            Some(groups) => format!("{}-{groups:016x}", self.revision),
            None => self.revision.to_string(),
        }
    }
}

/// Whether a list of `If-Match` names a revision, whatever the groups were then.
pub(crate) fn allows(header: &str, revision: u64) -> bool {
    let revision = revision.to_string();
    tags(header).any(|tag| tag == "*" || tag.split('-').next() == Some(revision.as_str()))
}

/// What is in the quotes of a list of entity tags, and `*`. All are compared weakly, as RFC 7644 §3.14 has them.
fn tags(header: &str) -> impl Iterator<Item = &str> {
    header.split(',').map(str::trim).filter_map(|tag| {
        if tag == "*" {
            return Some(tag);
        }
        tag.strip_prefix("W/").unwrap_or(tag).strip_prefix('"')?.strip_suffix('"')
    })
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "W/\"{}\"", self.tag())
    }
}

// FNV-1a: it tells two lists of groups apart, and does not keep a client from making two that it takes for one.
const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_named_by_its_tag() {
        let plain = Version::new(7, [].into_iter());
        assert_eq!(plain.to_string(), "W/\"7\"");
        let grouped = Version::new(7, [["g", "Ops", "direct"]].into_iter());
        assert_ne!(grouped, Version::new(7, [["g", "Dev", "direct"]].into_iter()));
        for header in ["W/\"7\"", "\"7\"", "\"1\", W/\"7\"", "*"] {
            assert!(plain.is_named_by(header) && allows(header, 7), "{header}");
        }
        assert!(!grouped.is_named_by("W/\"7\"") && grouped.is_named_by(&grouped.to_string()));
        assert!(allows(&grouped.to_string(), 7));
        for header in ["", "7", "W/\"8\"", "\"77\"", "W/7", "\"\"", "\"7"] {
            assert!(!plain.is_named_by(header) && !allows(header, 7), "{header}");
        }
    }
}
