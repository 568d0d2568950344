//! The hosts of the cluster: their names, the nodes, and who is connected.

use std::sync::Arc;

use sallyport_access::{HostId, HostRole};
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::caller::shown;
use crate::authority::hosts::heard::Heard;
use crate::authority::hosts::names::Names;
use crate::authority::hosts::presence::{KnownNode, Presence};

/// The role of a host in the words of the API.
pub(crate) fn host_role(text: &str) -> Option<HostRole> {
    match text {
        "node" => Some(HostRole::Node),
        "proxy" => Some(HostRole::Proxy),
        "openssh" => Some(HostRole::OpenSsh),
        _ => None,
    }
}

/// The registered hosts, in memory.
#[derive(Debug)]
pub(crate) struct HostRegistry {
    /// Which names belong to which host.
    pub(crate) names: Names,
    /// The nodes, and when each was last heard of.
    pub(crate) presence: Presence,
    /// Which hosts are connected.
    pub(crate) heard: Heard,
}

impl HostRegistry {
    pub(crate) fn new(names: Names, presence: Presence) -> Arc<Self> {
        Arc::new(Self { names, presence, heard: Heard::default() })
    }

    /// The hosts that are not in the list of nodes, as they are listed to administrators: proxies, authorities, and nodes that have
    /// joined and not been heard of since.
    pub(crate) fn other_hosts(&self) -> Vec<v1::NodeInfo> {
        let now = OffsetDateTime::now_utc();
        let hosts = self.names.all().into_iter().filter(|host| self.presence.get(host.id).is_none());
        let shown = hosts.map(|host| {
            let last = self.heard.of(host.id);
            let online = last.is_some_and(|last| last.open > 0);
            let seen = last.map(|last| if online { now } else { last.at });
            v1::NodeInfo {
                id: host.id.to_string(),
                name: host.name.to_string(),
                online,
                last_seen: seen.map(convert::time_to_proto),
                kind: match host.role {
                    HostRole::Node => "sallyport",
                    role => role.name(),
                }
                .to_owned(),
                address: last.map(|last| last.from.ip().to_string()).unwrap_or_default(),
                ..Default::default()
            }
        });
        shown.collect()
    }

    /// The id of the one node that a name or id means.
    pub(crate) fn one_node(&self, text: &str) -> Result<String, Status> {
        match self.presence.find(text).as_slice() {
            [] => Err(Status::not_found(format!("there is no node {}", shown(text)))),
            [one] => Ok(one.node.id.to_string()),
            several => {
                let ids: Vec<String> = several.iter().map(|known| known.node.id.to_string()).collect();
                Err(Status::failed_precondition(format!(
                    "several nodes are called {}; use an id: {}",
                    shown(text),
                    ids.join(", ")
                )))
            }
        }
    }

    /// The id of the one node, or else the one proxy, that a name or id means.
    pub(crate) fn one_host(&self, text: &str) -> Result<String, Status> {
        match self.names.find(text, Some(HostRole::Proxy)).as_slice() {
            [one] if self.presence.find(text).is_empty() => Ok(one.id.to_string()),
            _ => self.one_node(text),
        }
    }

    /// Whether a host of any role has this id, or alone has this registered name: proxies are called by the address that
    /// users reach them by, which several of them have, and a lock by that name would fit them all.
    pub(crate) fn is_one_host(&self, text: &str) -> Result<bool, Status> {
        let found = self.names.find(text, None);
        if found.len() < 2 {
            return Ok(!found.is_empty() || !self.presence.find(text).is_empty());
        }
        let hosts = found.iter().map(|host| format!("\n  {}  {}", host.id, host.role.name()));
        Err(Status::failed_precondition(format!(
            "{} hosts are called {text}; lock one of them by its id, or all of them and those that will be called so: \
             --force{}",
            found.len(),
            hosts.collect::<String>()
        )))
    }

    /// Whether a name is a registered OpenSSH server's.
    pub(crate) fn is_server(&self, name: &str) -> bool {
        self.presence.find(name).iter().any(|known| known.openssh().is_some())
    }

    pub(crate) fn registered(&self, id: &str) -> Result<KnownNode, Status> {
        let id = id.parse::<HostId>().map_err(|error| Status::invalid_argument(error.to_string()))?;
        self.presence
            .get(id)
            .filter(|known| known.openssh().is_some())
            .ok_or_else(|| Status::permission_denied(format!("{id} is not a registered OpenSSH server")))
    }
}
