//! Which names belong to which host. A name is the principal of a host certificate, and clients believe it: so it belongs
//! to the host that registered it, until an administrator removes that host or makes a token that replaces it.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::RwLock;
use sallyport_access::newcomer::{MACHINERY_DOMAIN, is_id, is_under};
use sallyport_access::{Bounds, ClusterName, HostId, HostRole, NodeName, SessionId, newcomer};
use sallyport_audit::{Code, Event};
use sallyport_store::{Store, StoreError};
use time::OffsetDateTime;
use tonic::Status;
use tracing::warn;

use crate::authority::records::{HostRecord, NodeRecord};
use crate::authority::storage::PAGE;

/// Names that a proxy or server is reached by.
const MOST_PUBLIC_NAMES: usize = 32;
/// Names that several hosts have and that are told at a start.
const SHARED_TOLD: usize = 100;

/// One host with every name that its certificates carry.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) id: HostId,
    pub(crate) role: HostRole,
    /// As it is registered.
    pub(crate) name: NodeName,
    in_process: bool,
    /// Of SSH certificates. Canonical: in lower case, without a final dot.
    principals: BTreeSet<String>,
    /// Those among them that a proxy or a server is reached by.
    public: BTreeSet<String>,
    /// What its join token has allowed it.
    bounds: Bounds,
}

impl Claim {
    /// The names of a host: its registered name, with and without the cluster behind it, and those that it is reached by.
    pub(crate) fn of(host: &HostRecord, cluster: &ClusterName) -> Self {
        let mut claim = Self {
            id: host.id,
            role: host.role,
            name: host.name.clone(),
            in_process: host.in_process,
            principals: BTreeSet::new(),
            public: BTreeSet::new(),
            bounds: if host.in_process { Bounds::none() } else { host.bounds.clone() },
        };
        claim.add(&host.name, &host.public_names, cluster);
        claim
    }

    /// The names of a node or registered server.
    pub(crate) fn of_node(node: &NodeRecord, cluster: &ClusterName) -> Self {
        let role = if node.openssh.is_some() { HostRole::OpenSsh } else { HostRole::Node };
        let mut claim = Self {
            id: node.id,
            role,
            name: node.name.clone(),
            in_process: false,
            principals: BTreeSet::new(),
            public: BTreeSet::new(),
            bounds: Bounds::default(),
        };
        let public = node.openssh.as_ref().map(|server| server.names.as_slice()).unwrap_or_default();
        claim.add(&node.name, public, cluster);
        claim
    }

    fn add(&mut self, name: &NodeName, public: &[String], cluster: &ClusterName) {
        self.principals.insert(canonical(name.as_str()));
        self.principals.insert(canonical(&format!("{name}.{cluster}")));
        self.public.extend(public.iter().map(|public| canonical(public)));
        self.principals.extend(self.public.iter().cloned());
    }

    /// Whether a name, in its canonical form, is one of this host.
    pub(crate) fn has(&self, canonical: &str) -> bool {
        self.principals.contains(canonical)
    }

    /// Whether both may have the same names: proxies share the address that users reach them by, and the hosts of the
    /// authority's own process are one machine.
    fn may_share(&self, other: &Self) -> bool {
        self.id == other.id
            || (self.role == HostRole::Proxy && other.role == HostRole::Proxy)
            || (self.in_process && other.in_process)
    }
}

/// A name as names are compared.
pub(crate) fn canonical(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

/// A name that another host has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the name {name} belongs to the {role} {holder} ({id})", role = .role.name())]
pub(crate) struct Taken {
    pub(crate) name: String,
    pub(crate) role: HostRole,
    pub(crate) holder: NodeName,
    pub(crate) id: HostId,
}

impl Taken {
    /// With what can be done about it where a host with this role wants the name.
    pub(crate) fn advice(&self, wanted_by: HostRole) -> String {
        let Self { name, role, holder, id } = self;
        match (wanted_by, role) {
            (HostRole::Node, HostRole::Proxy) => format!(
                "a proxy is reached by the name {name} ({holder}, {id}), so no node may have it; give the node another \
                 with node.name"
            ),
            (wanted_by, role) if wanted_by == *role => format!(
                "{self}; give this host another name, or, where it takes that one's place: sallyport admin tokens add \
                 --role {} --replace {id}",
                role.name()
            ),
            (HostRole::Proxy, _) => format!("{self}; change proxy.public_addr, or the name of that host"),
            _ => format!("{self}; give this one another name"),
        }
    }
}

/// The names of every host that is registered.
#[derive(Debug, Default)]
pub(crate) struct Names {
    held: RwLock<BTreeMap<HostId, Claim>>,
}

/// Names that are held for a host until it is registered. Dropped without that, they are free again.
#[derive(Debug)]
#[must_use]
pub(crate) struct Reserved<'a> {
    names: &'a Names,
    id: HostId,
    before: Option<Claim>,
    kept: bool,
}

impl Reserved<'_> {
    /// The host is registered.
    pub(crate) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        let mut held = self.names.held.write();
        match self.before.take() {
            Some(before) => held.insert(self.id, before),
            None => held.remove(&self.id),
        };
    }
}

impl Names {
    /// The names of all that is stored.
    pub(crate) async fn load(
        store: &Store,
        cluster: &ClusterName,
        now: OffsetDateTime,
    ) -> Result<Self, StoreError> {
        let mut held: BTreeMap<HostId, Claim> = BTreeMap::new();
        let mut after: Option<String> = None;
        loop {
            let page = store.list::<NodeRecord>(after.as_deref(), PAGE, now).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.name.clone());
            held.extend(page.iter().map(|node| (node.value.id, Claim::of_node(&node.value, cluster))));
        }
        let mut after: Option<String> = None;
        loop {
            let page = store.list::<HostRecord>(after.as_deref(), PAGE, now).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.name.clone());
            for host in page.iter().map(|stored| &stored.value) {
                let mut claim = Claim::of(host, cluster);
                if let Some(node) = held.remove(&host.id) {
                    claim.name = node.name;
                    claim.principals.extend(node.principals);
                    claim.public.extend(node.public);
                }
                held.insert(host.id, claim);
            }
        }
        Ok(Self { held: RwLock::new(held) })
    }

    /// Takes names for a host in one step, so that of two hosts that come at once with one name, one is refused. The host
    /// that it replaces may have them still.
    pub(crate) fn reserve(&self, claim: Claim, replaces: Option<HostId>) -> Result<Reserved<'_>, Taken> {
        let mut held = self.held.write();
        if let Some(taken) = conflict(&held, &claim, replaces) {
            return Err(taken);
        }
        let id = claim.id;
        let before = held.insert(id, claim);
        Ok(Reserved { names: self, id, before, kept: false })
    }

    /// Whether another host has a name of this one, which can be so for hosts that joined when names could be shared.
    pub(crate) fn disputed(&self, id: HostId) -> Option<Taken> {
        let held = self.held.read();
        held.get(&id).and_then(|claim| conflict(&held, claim, None))
    }

    /// The hosts that have a name together and may not, which can be so for hosts that joined when names could be shared: the
    /// same hosts once, by the first of their names.
    fn shared(&self) -> Vec<(String, Vec<Claim>)> {
        let held = self.held.read();
        let mut by_name: BTreeMap<&str, Vec<&Claim>> = BTreeMap::new();
        for claim in held.values() {
            claim.principals.iter().for_each(|name| by_name.entry(name).or_default().push(claim));
        }
        let mut told = BTreeSet::new();
        let mut shared = Vec::new();
        for (name, of) in by_name {
            let may = of.iter().all(|one| of.iter().all(|other| one.may_share(other)));
            let ids: Vec<HostId> = of.iter().map(|claim| claim.id).collect();
            if !may && told.insert(ids) {
                shared.push((name.to_owned(), of.into_iter().cloned().collect()));
            }
        }
        shared
    }

    /// Says which hosts share a name, in the log and as events.
    pub(crate) fn tell_shared(&self, now: OffsetDateTime) -> Vec<Event> {
        let shared = self.shared();
        let several = shared.len();
        let told = shared.into_iter().take(SHARED_TOLD).map(|(name, hosts)| {
            let of = |host: &Claim| format!("{} {} ({})", host.role.name(), host.name, host.id);
            let hosts: Vec<String> = hosts.iter().map(of).collect();
            let message = format!(
                "{} hosts have the name {name}, and each can stand in for the others: {}; remove those that are gone \
                 (sallyport admin hosts rm ID), and have the others but one join again under names of their own",
                hosts.len(),
                hosts.join(", ")
            );
            warn!(name, several, "{message}");
            Event::new(Code::NameShared, now)
                .user("auth")
                .origin("auth")
                .node(name)
                .message(message)
                .field("hosts", hosts)
        });
        told.collect()
    }

    /// Notes what a host may say of itself.
    pub(crate) fn allow(&self, id: HostId, bounds: Bounds) {
        if let Some(claim) = self.held.write().get_mut(&id) {
            claim.bounds = bounds;
        }
    }

    /// What a host may say of itself.
    pub(crate) fn bounds(&self, id: HostId) -> Bounds {
        let held = self.held.read();
        held.get(&id).map(|claim| claim.bounds.clone()).unwrap_or_default()
    }

    /// The host has gone, and its names are free.
    pub(crate) fn release(&self, id: HostId) {
        self.held.write().remove(&id);
    }

    /// The registered host that a session's id was made on.
    pub(crate) fn host_of(&self, session: &SessionId) -> Option<HostId> {
        let held = self.held.read();
        held.range(session.hosts()).next().map(|(id, _)| *id)
    }

    /// A host with a name that `covers` picks: in SSH any of its names or its id, else those that it is reached by.
    pub(crate) fn holder(
        &self,
        in_ssh: bool,
        cluster: &ClusterName,
        covers: impl Fn(&str) -> bool,
    ) -> Option<Claim> {
        let held = self.held.read();
        let is_covered = |claim: &&Claim| {
            let of = if in_ssh { &claim.principals } else { &claim.public };
            of.iter().any(|name| covers(name))
                || (in_ssh && (covers(&claim.id.to_string()) || covers(&format!("{}.{cluster}", claim.id))))
        };
        held.values().find(is_covered).cloned()
    }

    /// Every host.
    pub(crate) fn all(&self) -> Vec<Claim> {
        self.held.read().values().cloned().collect()
    }

    /// The hosts with a role that an id or a registered name means.
    pub(crate) fn find(&self, text: &str, role: Option<HostRole>) -> Vec<Claim> {
        let held = self.held.read();
        let id = text.parse::<HostId>().ok();
        let meant = held.values().filter(|claim| {
            role.is_none_or(|role| claim.role == role)
                && id.map_or_else(|| claim.name.as_str() == text, |id| claim.id == id)
        });
        meant.cloned().collect()
    }
}

fn conflict(held: &BTreeMap<HostId, Claim>, claim: &Claim, replaces: Option<HostId>) -> Option<Taken> {
    held.values().filter(|other| Some(other.id) != replaces && !claim.may_share(other)).find_map(|other| {
        let name = claim.principals.intersection(&other.principals).next()?;
        Some(Taken { name: name.clone(), role: other.role, holder: other.name.clone(), id: other.id })
    })
}

/// The name under which a host with this role may be registered.
pub(crate) fn registered_name(role: HostRole, text: &str, cluster: &ClusterName) -> Result<NodeName, Status> {
    let bad = |problem: String| Status::invalid_argument(problem);
    if matches!(role, HostRole::Node | HostRole::OpenSsh) {
        return newcomer::node_name(text, cluster).map_err(|error| bad(error.to_string()));
    }
    let name = NodeName::new(text).map_err(|error| bad(error.to_string()))?;
    if public_names(&[text.to_owned()], cluster)?.iter().all(|canonical| canonical == text) {
        return Ok(name);
    }
    Err(bad(format!("the name {text:?} has a final dot; leave it off")))
}

/// The names and addresses that a proxy or server asks to be reached by, canonical and each once.
pub(crate) fn public_names(names: &[String], cluster: &ClusterName) -> Result<Vec<String>, Status> {
    if names.len() > MOST_PUBLIC_NAMES {
        return Err(Status::invalid_argument(format!(
            "{} names are asked for, and a host is reached by at most {MOST_PUBLIC_NAMES}",
            names.len()
        )));
    }
    let mut taken = Vec::new();
    for name in names {
        let name = canonical(name);
        let bare = name.strip_suffix(cluster.as_str()).and_then(|rest| rest.strip_suffix('.'));
        if is_id(bare.unwrap_or(&name)) {
            return Err(Status::invalid_argument(format!(
                "{name} looks like the id of a host, and nothing else is called so; leave it out"
            )));
        }
        if is_under(&name, MACHINERY_DOMAIN) {
            return Err(Status::invalid_argument(format!(
                "{name} is a name of the cluster's own; leave it out"
            )));
        }
        if !taken.contains(&name) {
            taken.push(name);
        }
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use uuid::Uuid;

    use super::*;

    fn claim(role: HostRole, name: &str, public: &[&str]) -> Claim {
        let host = HostRecord {
            id: HostId::new(),
            name: NodeName::new(name).unwrap(),
            role,
            join_id: Uuid::new_v4(),
            in_process: false,
            labels: BTreeMap::new(),
            public_names: public.iter().map(ToString::to_string).collect(),
            bounds: Bounds::default(),
        };
        Claim::of(&host, &ClusterName::new("c.example").unwrap())
    }

    #[test]
    fn a_name_has_one_holder() {
        let names = Names::default();
        let web = claim(HostRole::Node, "web-1", &[]);
        names.reserve(web.clone(), None).unwrap().keep();
        names.reserve(claim(HostRole::Proxy, "gate", &["ssh.example"]), None).unwrap().keep();
        for taken in [
            claim(HostRole::Node, "web-1", &[]),
            claim(HostRole::Node, "web-1.c.example", &[]),
            claim(HostRole::OpenSsh, "db-1", &["WEB-1."]),
            claim(HostRole::OpenSsh, "db-1", &["web-1.c.example"]),
            claim(HostRole::Proxy, "other", &["Web-1.C.example"]),
            claim(HostRole::Proxy, "web-1", &[]),
            claim(HostRole::Node, "gate", &[]),
            claim(HostRole::Node, "ssh.example", &[]),
        ] {
            assert!(names.reserve(taken.clone(), None).is_err(), "{taken:?}");
            assert!(names.find(taken.name.as_str(), None).iter().all(|held| held.id != taken.id));
        }
        names.reserve(claim(HostRole::Proxy, "gate", &["ssh.example"]), None).unwrap().keep();
        // What was not kept is free again, and what is replaced or released gives its name away.
        drop(names.reserve(claim(HostRole::Node, "db-1", &[]), None).unwrap());
        names.reserve(claim(HostRole::Node, "db-1", &[]), None).unwrap().keep();
        let again = claim(HostRole::Node, "web-1", &[]);
        names.reserve(again.clone(), Some(web.id)).unwrap().keep();
        assert!(names.disputed(again.id).is_some());
        names.release(web.id);
        assert_eq!(names.disputed(again.id), None);
        assert!(names.reserve(claim(HostRole::Node, "web-1", &[]), None).is_err());
    }

    #[test]
    fn nothing_is_called_like_an_id_or_the_cluster() {
        let cluster = ClusterName::new("c.example").unwrap();
        let id = HostId::new();
        for bad in [
            id.to_string(),
            format!("{id}.c.example."),
            id.to_string().to_uppercase(),
            "auth.c.example.sallyport.internal".to_owned(),
        ] {
            assert!(public_names(std::slice::from_ref(&bad), &cluster).is_err(), "{bad}");
        }
        let names = ["A.example.".to_owned(), "a.example".to_owned(), "::1".to_owned()];
        assert_eq!(public_names(&names, &cluster).unwrap(), ["a.example", "::1"]);
        assert!(registered_name(HostRole::Proxy, "gate.c.example", &cluster).is_ok());
        assert!(registered_name(HostRole::Proxy, &id.to_string(), &cluster).is_err());
        assert!(registered_name(HostRole::Proxy, "gate.", &cluster).is_err());
        assert!(registered_name(HostRole::Node, "gate.c.example", &cluster).is_err());
    }
}
