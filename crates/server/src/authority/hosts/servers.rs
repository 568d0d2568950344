//! Stock OpenSSH servers: registering them.

use std::sync::Arc;

use sallyport_access::{HostId, HostRole, Labels, NodeName, OpenSshServer, ServerTrust};
use sallyport_audit::Code;
use sallyport_ca::{check_ssh_accepted, keys};
use sallyport_store::{Store, typed};
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::audit::journal::Journal;
use crate::authority::caller::{Caller, shown};
use crate::authority::config::AuthConfig;
use crate::authority::hosts::names::{Claim, public_names, registered_name};
use crate::authority::hosts::presence::KnownNode;
use crate::authority::hosts::registry::HostRegistry;
use crate::authority::hosts::server_document::{NodeDocument, address};
use crate::authority::issuance::in_force::Issuance;
use crate::authority::records::{HostRecord, NodeRecord};
use crate::authority::resources::documents::{node_yaml, resource};
use crate::authority::storage::{Write, op, storage};
use crate::config::HostPort;
use crate::reach::written_apart;

/// An address that a server says of itself. One that means another machine to each machine that dials it is an administrator's
/// to write: a token is not the right to have proxies and agents dial their own machines and what their cloud keeps for them.
fn joining_address(name: &NodeName, text: &str) -> Result<String, Status> {
    let address = address(text)
        .map_err(|problem| Status::invalid_argument(format!("the address {} {problem}", shown(text))))?;
    let host = address.parse::<HostPort>().map(|parsed| parsed.host).unwrap_or_default();
    match written_apart(&host) {
        None => Ok(address),
        Some(what) => Err(Status::permission_denied(format!(
            "{address} is {what}, which only an administrator registers: sallyport admin nodes add {name} --address {address}"
        ))),
    }
}

/// Registers stock OpenSSH servers.
#[derive(Debug)]
pub(crate) struct Servers {
    config: Arc<AuthConfig>,
    store: Store,
    journal: Arc<Journal>,
    issuance: Arc<Issuance>,
    registry: Arc<HostRegistry>,
}

impl Servers {
    pub(crate) fn new(
        config: &Arc<AuthConfig>,
        store: &Store,
        journal: &Arc<Journal>,
        issuance: &Arc<Issuance>,
        registry: &Arc<HostRegistry>,
    ) -> Arc<Self> {
        Arc::new(Self {
            config: Arc::clone(config),
            store: store.clone(),
            journal: Arc::clone(journal),
            issuance: Arc::clone(issuance),
            registry: Arc::clone(registry),
        })
    }

    /// Registers a server, or changes what is registered of it.
    pub(crate) async fn write_node(
        &self,
        caller: &Caller,
        document: NodeDocument,
        write: Write,
    ) -> Result<v1::Resource, Status> {
        let now = OffsetDateTime::now_utc();
        let NodeDocument { id, name, labels, mut openssh } = document;
        let is_new = id.is_none() && self.registry.presence.find(name.as_str()).is_empty();
        if is_new
            || id.is_some_and(|id| self.registry.presence.get(id).is_none_or(|known| known.node.name != name))
        {
            registered_name(HostRole::OpenSsh, name.as_str(), &self.config.cluster)?;
        }
        openssh.names = public_names(&openssh.names, &self.config.cluster)?;
        if let Some(pinned) = &openssh.host_key {
            // Proxies and agents agree with the server on no key that the suite does not accept.
            check_ssh_accepted(self.issuance.authorities().suite(), pinned).map_err(|error| {
                Status::invalid_argument(format!(
                    "spec.host_key: {error}; pin another host key of the server: the line of /etc/ssh/ssh_host_ecdsa_key.pub"
                ))
            })?;
        }
        let known = match id {
            Some(id) => self.registry.presence.get(id).into_iter().collect(),
            None => self.registry.presence.find(name.as_str()),
        };
        let existing = match (known.as_slice(), write) {
            ([], Write::Update(_)) => return Err(Status::not_found(format!("there is no node {name}"))),
            ([], _) => None,
            ([one, ..], Write::Create) => {
                return Err(Status::already_exists(format!(
                    "there is a node {} already, {}; give the server another name, or change it: sallyport admin edit node/{}",
                    one.node.name, one.node.id, one.node.name
                )));
            }
            ([one], _) if one.openssh().is_some() => Some(one.clone()),
            ([one], _) => {
                return Err(Status::failed_precondition(format!(
                    "the node {} has an agent, which says itself what it is; give the server another name",
                    one.node.name
                )));
            }
            (several, _) => {
                return Err(Status::failed_precondition(format!(
                    "{} nodes are called {name}; write metadata.id",
                    several.len()
                )));
            }
        };
        let id = existing.as_ref().map(|known| known.node.id).or(id).unwrap_or_else(HostId::new);
        let record = NodeRecord {
            id,
            name,
            fixed: labels.clone().into(),
            labels,
            version: existing.as_ref().map(|known| known.version.clone()).unwrap_or_default(),
            os_user: String::new(),
            openssh: Some(openssh),
            databases_end_to_end: false,
            kinds: Vec::new(),
        };
        let claim = Claim::of_node(&record, &self.config.cluster);
        let reserved = self
            .registry
            .names
            .reserve(claim, None)
            .map_err(|taken| Status::already_exists(taken.advice(HostRole::OpenSsh)))?;
        let mut steps = vec![op(&id.to_string(), &record, None, write).map_err(|error| storage(&error))?];
        // The host certificate is for the name that is registered.
        let host =
            self.store.get::<HostRecord>(&id.to_string(), now).await.map_err(|error| storage(&error))?;
        if let Some(host) = host.filter(|host| host.value.name != record.name) {
            let renamed = HostRecord { name: record.name.clone(), ..host.value };
            let step = typed::update(&id.to_string(), host.revision, &renamed, host.expires);
            steps.push(step.map_err(|error| storage(&error))?);
        }
        let revisions = self.store.backend().transact(steps, now).await.map_err(|error| storage(&error))?;
        reserved.keep();
        self.registry.presence.put(record.clone());
        let yaml = node_yaml(&record);
        let code = if existing.is_some() { Code::NodeUpdated } else { Code::NodeCreated };
        let event = caller
            .event(code)
            .node(record.name.as_str())
            .message(format!("node/{}", record.name))
            .field("name", record.name.to_string())
            .field("yaml", yaml.clone());
        self.journal.record(vec![event]).await?;
        let revision = revisions.first().copied().unwrap_or_default();
        Ok(resource("node", record.name.as_str(), revision, None, yaml))
    }

    /// The record of a server that joins: the one that is registered under its name, or a new one.
    pub(crate) async fn joining_server(
        &self,
        request: &v1::JoinRequest,
        joining: &HostRecord,
        labels: Labels,
        replaces: bool,
        now: OffsetDateTime,
    ) -> Result<NodeRecord, Status> {
        let name = &joining.name;
        let registered: Vec<_> = self
            .registry
            .presence
            .find(name.as_str())
            .into_iter()
            .filter(|known| known.openssh().is_some())
            .collect();
        let known = registered.first();
        let bad = |problem: String| Status::invalid_argument(problem);
        if let Some(known) = known {
            // A token is not the right to take a server's place: what an administrator wrote stands, and a server
            // that has joined has its certificate already.
            let host = self.store.get::<HostRecord>(&known.node.id.to_string(), now).await;
            if host.map_err(|error| storage(&error))?.is_some() && !replaces {
                return Err(Status::already_exists(format!(
                    "the server {name} has joined already; renew there with `sallyport join openssh --renew`, or make a token that replaces it: sallyport admin tokens add --role openssh --replace {name}"
                )));
            }
            let pinned = known.openssh().and_then(|server| server.host_key.as_deref());
            let own = keys::public_line(&request.ssh_public_key).map_err(|error| bad(error.to_string()))?;
            if pinned.is_some_and(|pinned| pinned != own) {
                return Err(Status::permission_denied(format!(
                    "the server {name} is registered with another host key than the one that joins"
                )));
            }
        }
        let address = match (request.address.as_str(), known.and_then(KnownNode::openssh)) {
            ("", Some(openssh)) => openssh.address.clone(),
            (text, Some(openssh)) if address(text).as_deref() != Ok(openssh.address.as_str()) => {
                return Err(Status::permission_denied(format!(
                    "the server {name} is registered at {}; to move it: sallyport admin edit node/{name}",
                    openssh.address
                )));
            }
            ("", None) => {
                return Err(bad(format!(
                    "no server {name} is registered, so its address is needed: join with --address HOST:PORT"
                )));
            }
            (text, Some(_)) => {
                address(text).map_err(|problem| bad(format!("the address {} {problem}", shown(text))))?
            }
            (text, None) => joining_address(name, text)?,
        };
        let via = match request.via.as_str() {
            "" => known.and_then(|known| known.openssh()?.via.clone()),
            text => Some(NodeName::new(text).map_err(|error| bad(error.to_string()))?),
        };
        let host_key = known.and_then(|known| known.openssh()?.host_key.clone());
        let registered = known.and_then(|known| Some(known.openssh()?.trust));
        let trust = match (request.trust.as_str(), registered) {
            ("", registered) => registered.unwrap_or_default(),
            (text, registered) => {
                let asked =
                    text.parse::<ServerTrust>().map_err(|problem| bad(format!("the trust {problem}")))?;
                if let Some(registered) = registered.filter(|registered| *registered != asked) {
                    return Err(Status::permission_denied(format!(
                        "the server {name} is registered with trust: {}, and joins with {}; to change it: sallyport admin edit node/{name}",
                        registered.name(),
                        asked.name()
                    )));
                }
                asked
            }
        };
        // Labels that an administrator has written stay; those of the token win.
        let mut own: std::collections::BTreeMap<String, String> =
            known.map(|known| known.node.labels.clone().into()).unwrap_or_default();
        own.extend(std::collections::BTreeMap::<String, String>::from(labels));
        Ok(NodeRecord {
            id: joining.id,
            name: name.clone(),
            fixed: own.clone(),
            labels: own.into_iter().collect(),
            version: String::new(),
            os_user: String::new(),
            openssh: Some(OpenSshServer {
                address,
                via,
                host_key,
                names: joining.public_names.clone(),
                trust,
            }),
            databases_end_to_end: false,
            kinds: Vec::new(),
        })
    }
}
