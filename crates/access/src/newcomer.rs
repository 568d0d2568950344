//! What a host that joins may be called and may say of itself.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::labels::HOST_PREFIX;
use crate::query::glob;
use crate::{ClusterName, IdError, Kind, Nature, NodeName};

/// The domain of the names by which the cluster's own machinery proves itself; no host is called so.
pub const MACHINERY_DOMAIN: &str = "sallyport.internal";
/// Longest label of a host name, in characters (RFC 1035 §2.3.4).
const LONGEST_LABEL: usize = 63;

/// Why a host may not have a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Not a name at all.
    #[error(transparent)]
    Malformed(#[from] IdError),
    /// A name that some client could take for something else.
    #[error("a host may not be called {name}: {reason}; give it another name")]
    Confusing {
        /// The name.
        name: String,
        /// What it could be taken for.
        reason: &'static str,
    },
}

/// A name under which a node or server can be registered: lower case, one label or a full host name in its one spelling,
/// and nothing that clients could take for another host's id or for a name of the cluster's.
///
/// # Errors
/// [`NameError`] saying what it could be taken for.
pub fn node_name(text: &str, cluster: &ClusterName) -> Result<NodeName, NameError> {
    let name = NodeName::new(text)?;
    match confusing(name.as_str(), cluster) {
        Some(reason) => Err(NameError::Confusing { name: text.to_owned(), reason }),
        None => Ok(name),
    }
}

fn confusing(name: &str, cluster: &ClusterName) -> Option<&'static str> {
    // RFC 1034 §3.5: labels neither begin nor end with a hyphen, and none is empty.
    let is_label = |label: &str| {
        !label.is_empty() && label.len() <= LONGEST_LABEL && !label.starts_with('-') && !label.ends_with('-')
    };
    if !name.split('.').all(is_label) {
        return Some("its labels are not those of a host name, with single dots between them");
    }
    if name.split('.').next().is_some_and(is_id) {
        return Some("it looks like the id of a host");
    }
    if name == "localhost" || name.ends_with(".localhost") {
        return Some("every machine is called so by its own programs");
    }
    if name.parse::<IpAddr>().is_ok() {
        return Some("it is an address");
    }
    if is_under(name, MACHINERY_DOMAIN) {
        return Some("names under sallyport.internal are the cluster's own");
    }
    if is_under(name, cluster.as_str()) {
        return Some(
            "it ends with the cluster's name, which clients put behind the names of hosts; leave that off",
        );
    }
    None
}

/// Whether a text is the id of some host, in any spelling of a UUID.
#[must_use]
pub fn is_id(text: &str) -> bool {
    Uuid::try_parse(text).is_ok()
}

/// Whether a name is a domain or below it.
#[must_use]
pub fn is_under(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// What a join token lets a host be called and say of itself. Patterns are globs over the whole value: `web-*`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Bounds {
    /// Names, and names and addresses that a proxy or a server is reached by. Empty: any that no other host has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Labels that the host may set itself, besides those that the token gives it: key and pattern of the value. None: a
    /// node may set any of its own; its databases have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Databases that its configuration may serve, by name. Empty: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub databases: Vec<String>,
    /// What of the catalogue its configuration may serve, as `KIND/NAME`. Empty: nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
}

impl Bounds {
    /// No bounds: for a host in the authority's own process, whose configuration is the administrator's.
    #[must_use]
    pub fn none() -> Self {
        let any = || vec!["*".to_owned()];
        Self {
            names: Vec::new(),
            labels: Some(BTreeMap::from([("*".to_owned(), "*".to_owned())])),
            databases: any(),
            resources: any(),
        }
    }

    /// Whether a host may have this name.
    #[must_use]
    pub fn allow_name(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|pattern| glob(pattern, name))
    }

    /// Whether a node may set this label of itself.
    #[must_use]
    pub fn allow_label(&self, key: &str, value: &str) -> bool {
        key.starts_with(HOST_PREFIX) || self.labels.as_ref().is_none_or(|labels| fits(labels, key, value))
    }

    /// Whether a node may serve a database of this name that its configuration names.
    #[must_use]
    pub fn allow_database(&self, name: &str) -> bool {
        self.databases.iter().any(|pattern| glob(pattern, name))
    }

    /// Whether a node may serve a resource of this kind and name that its configuration names.
    #[must_use]
    pub fn allow_resource(&self, kind: Kind, name: &str) -> bool {
        match kind.row().nature {
            // A host is the node that it is, and registered servers are an administrator's.
            Nature::Node => false,
            Nature::Database => self.allow_database(name),
            Nature::Listed => {
                let whole = format!("{}/{name}", kind.row().document);
                self.resources.iter().any(|pattern| glob(pattern, &whole))
            }
        }
    }

    /// Whether a database, or another resource, of a node's configuration may have this label. Roles select them by their
    /// labels, so that none is the node's to choose unless the token says so.
    #[must_use]
    pub fn allow_database_label(&self, key: &str, value: &str) -> bool {
        self.labels.as_ref().is_some_and(|labels| fits(labels, key, value))
    }
}

fn fits(labels: &BTreeMap<String, String>, key: &str, value: &str) -> bool {
    labels.iter().any(|(of, pattern)| glob(of, key) && glob(pattern, value))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_are_canonical_and_nothing_elses() {
        let cluster = ClusterName::new("prod.example").unwrap();
        for good in ["web-1", "db", "web-1.rack2", "web-1.prod.example.org", "x1", "prod", "42"] {
            assert_eq!(node_name(good, &cluster).unwrap().as_str(), good);
        }
        for bad in [
            "",
            "WEB-1",
            "web-1.",
            "web..1",
            ".web",
            "-web",
            "web-",
            "web-.x",
            "web_1",
            "wéb",
            "localhost",
            "a.localhost",
            "127.0.0.1",
            "prod.example",
            "web-1.prod.example",
            "a.b.prod.example",
            "sallyport.internal",
            "proxy.prod.example.sallyport.internal",
            "e7ff50e2-b847-4f09-9632-dbe9f28fb046",
            "e7ff50e2b8474f099632dbe9f28fb046",
            "e7ff50e2-b847-4f09-9632-dbe9f28fb046.rack2",
            &"x".repeat(64),
        ] {
            assert!(node_name(bad, &cluster).is_err(), "{bad:?}");
        }
        assert!(is_id("E7FF50E2-B847-4F09-9632-DBE9F28FB046") && !is_id("web-1"));
        assert!(is_under("a.b", "b") && is_under("b", "b") && !is_under("ab", "b"));
    }

    #[test]
    fn bounds_are_whole_values() {
        let bounds = Bounds {
            names: vec!["web-*".to_owned()],
            labels: Some(BTreeMap::from([("team".to_owned(), "shop*".to_owned())])),
            databases: vec!["dev-*".to_owned()],
            resources: Vec::new(),
        };
        assert!(bounds.allow_name("web-1") && !bounds.allow_name("my-web-1") && !bounds.allow_name("db-1"));
        assert!(bounds.allow_label("team", "shop-2") && bounds.allow_label("host/os", "linux"));
        assert!(!bounds.allow_label("team", "the-shop") && !bounds.allow_label("env", "prod"));
        assert!(bounds.allow_database("dev-1") && !bounds.allow_database("prod"));
        assert!(bounds.allow_database_label("team", "shop") && !bounds.allow_database_label("env", "x"));
        let open = Bounds::default();
        assert!(open.allow_name("x") && open.allow_label("env", "prod"));
        assert!(!open.allow_database("x") && !open.allow_database_label("env", "prod"));
        let none = Bounds::none();
        assert!(none.allow_name("x") && none.allow_database("x") && none.allow_database_label("env", "prod"));
    }
}
