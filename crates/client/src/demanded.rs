//! Refusals for want of a second factor, which [`crate::session_factor`] has proven.

use sallyport_access::ClusterName;
use sallyport_wire::SESSION_FACTOR_HEADER;
use sallyport_wire::v1::SessionTarget;
use tonic::Status;

/// Why something was refused: a second factor has to be proven for it first.
#[derive(Debug, Clone, PartialEq)]
pub struct Demanded {
    /// What the session is with.
    pub target: SessionTarget,
    /// A passkey or security key alone will do.
    pub hardware: bool,
}

impl Demanded {
    /// Of a refusal of this, where that is why.
    #[must_use]
    pub fn of(status: &Status, kind: &str, resource: &str, account: &str) -> Option<Self> {
        let demand = status.metadata().get(SESSION_FACTOR_HEADER)?;
        let target = SessionTarget {
            kind: kind.to_owned(),
            resource: resource.to_owned(),
            account: account.to_owned(),
            db_name: String::new(),
        };
        Some(Self { target, hardware: demand == "hardware" })
    }

    /// The same, as the authority knows it.
    #[must_use]
    pub(crate) fn at(&self, cluster: &ClusterName) -> Self {
        Self { target: at(self.target.clone(), cluster), hardware: self.hardware }
    }

    /// What to run where a person is, so that it need not be asked for where none is.
    #[must_use]
    pub fn beforehand(&self) -> String {
        let SessionTarget { kind, resource, .. } = &self.target;
        let what = if kind == "node" { format!(" --hosts {resource}") } else { String::new() };
        format!("sallyport mfa pre-auth --for 15m{what}  (in a terminal; then this again)")
    }
}

/// A session as the authority knows it: stock clients put the cluster behind the name of a node, and a dot behind that.
pub(crate) fn at(target: SessionTarget, cluster: &ClusterName) -> SessionTarget {
    if target.kind != "node" {
        return target;
    }
    let name = target.resource.to_ascii_lowercase();
    let name = name.strip_suffix('.').unwrap_or(&name);
    let short = name.strip_suffix(cluster.as_str()).and_then(|name| name.strip_suffix('.')).unwrap_or(name);
    SessionTarget { resource: short.to_owned(), ..target }
}

/// What a session is with, as a person reads it.
#[must_use]
pub fn shown(target: &SessionTarget) -> String {
    let SessionTarget { kind, resource, account, db_name } = target;
    if !db_name.is_empty() {
        return format!(
            "{} in {db_name}",
            shown(&SessionTarget { db_name: String::new(), ..target.clone() })
        );
    }
    match (kind.as_str(), account.as_str()) {
        ("node", "") => resource.clone(),
        ("node", account) => format!("{account}@{resource}"),
        ("db", "") => format!("database {resource}"),
        ("db", account) => format!("database {resource} as {account}"),
        _ => format!("{kind} {resource}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_is_demanded_and_of_which_session() {
        let cluster = ClusterName::new("test.example").unwrap();
        let mut status = Status::permission_denied("no");
        assert_eq!(Demanded::of(&status, "node", "web-1", "root"), None);
        status.metadata_mut().insert(SESSION_FACTOR_HEADER, "hardware".parse().unwrap());
        let demanded = Demanded::of(&status, "node", "Web-1.Test.example.", "root").unwrap();
        assert!(demanded.hardware);
        assert_eq!(shown(&demanded.at(&cluster).target), "root@web-1");
        status.metadata_mut().insert(SESSION_FACTOR_HEADER, "yes".parse().unwrap());
        let database = Demanded::of(&status, "db", "prod.test.example", "").unwrap();
        assert!(!database.hardware);
        assert_eq!(shown(&database.at(&cluster).target), "database prod.test.example");
        assert_eq!(
            database.beforehand(),
            "sallyport mfa pre-auth --for 15m  (in a terminal; then this again)"
        );
    }
}
