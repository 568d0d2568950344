//! What people and their tools ask of the cluster.

use std::sync::Arc;

use sallyport_access::{HostId, Login, UserName, Verb};
use sallyport_sal::economy;
use sallyport_sal::economy::KeyCount;
use sallyport_wire::v1::cluster_server::Cluster;
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::{Request, Response, Status};

use crate::authority::audit::checkpoints::Checkpoints;
use crate::authority::audit::journal::Journal;
use crate::authority::caller::{Caller, caller, shown};
use crate::authority::config::AuthConfig;
use crate::authority::fips::status;
use crate::authority::gate::administering::Administering;
use crate::authority::gate::calls::Gate;
use crate::authority::hosts::presence::is_online;
use crate::authority::hosts::registry::HostRegistry;
use crate::authority::hosts::selection::Selection;
use crate::authority::identities::known::{DECIDED_BY_STATE, Identities};
use crate::authority::issuance::in_force::Issuance;
use crate::authority::issuance::words::ca_status;
use crate::authority::policy::Policy;
use crate::authority::recordings::kept::Recordings;
use crate::authority::streams::{Line, Served};

/// Nodes in one answer.
const NODES: usize = 20_000;

fn key_cost(count: &KeyCount) -> v1::KeyCost {
    v1::KeyCost {
        purpose: count.purpose_name().to_owned(),
        algorithm: count.algorithm.name().to_owned(),
        generated: count.generated,
        cpu_microseconds: u64::try_from(count.cpu.as_micros()).unwrap_or(u64::MAX),
    }
}

/// What people and their tools ask of the cluster.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) config: Arc<AuthConfig>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) administering: Arc<Administering>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) identities: Arc<Identities>,
    pub(crate) issuance: Arc<Issuance>,
    pub(crate) registry: Arc<HostRegistry>,
    pub(crate) recordings: Arc<Recordings>,
    pub(crate) checkpoints: Arc<Checkpoints>,
}

#[tonic::async_trait]
impl Cluster for Service {
    async fn get_status(
        &self,
        request: Request<v1::GetStatusRequest>,
    ) -> Result<Response<v1::GetStatusResponse>, Status> {
        let caller = caller(&request);
        self.gate.allow(&caller, "Cluster.GetStatus", "cluster", Verb::Read).await?;
        self.journal.called(&caller, "Cluster.GetStatus", "").await?;
        self.status().await.map(Response::new)
    }

    async fn list_nodes(
        &self,
        request: Request<v1::ListNodesRequest>,
    ) -> Result<Response<v1::ListNodesResponse>, Status> {
        let caller = caller(&request);
        if !matches!(caller, Caller::LocalAdmin) {
            self.gate.certified(&caller, "Cluster.ListNodes").await?;
        }
        let all = self.gate.check(&caller, "node", Verb::List).is_ok();
        if !all && caller.identity().is_some_and(|identity| identity.user().is_none()) {
            let status = Status::permission_denied("hosts do not list nodes");
            return Err(self.gate.refuse(&caller, "Cluster.ListNodes", status).await);
        }
        let asked = request.into_inner();
        if asked.hosts && !all {
            let status =
                Status::permission_denied("hosts of every role are for those who may list all nodes");
            return Err(self.gate.refuse(&caller, "Cluster.ListNodes", status).await);
        }
        self.journal.called(&caller, "Cluster.ListNodes", "").await?;
        self.nodes(&caller, all, &asked).map(Response::new)
    }

    async fn explain_access(
        &self,
        request: Request<v1::ExplainAccessRequest>,
    ) -> Result<Response<v1::ExplainAccessResponse>, Status> {
        let caller = caller(&request);
        let asked = request.into_inner();
        let own = caller
            .identity()
            .and_then(|identity| identity.user())
            .is_some_and(|user| user.as_str() == asked.user);
        if own {
            self.gate.certified(&caller, "Cluster.ExplainAccess").await?;
        } else {
            self.gate.allow(&caller, "Cluster.ExplainAccess", "access", Verb::Read).await?;
        }
        let what = format!("{} as {} on {}", shown(&asked.user), shown(&asked.login), shown(&asked.node));
        self.journal.called(&caller, "Cluster.ExplainAccess", &what).await?;
        self.explain(&caller, &asked).map(Response::new)
    }

    async fn list_recordings(
        &self,
        request: Request<v1::ListRecordingsRequest>,
    ) -> Result<Response<v1::ListRecordingsResponse>, Status> {
        let caller = caller(&request);
        if !matches!(caller, Caller::LocalAdmin) {
            let identity = self.gate.certified(&caller, "Cluster.ListRecordings").await?;
            if identity.user().is_none() {
                let status = Status::permission_denied("hosts do not list recordings");
                return Err(self.gate.refuse(&caller, "Cluster.ListRecordings", status).await);
            }
        }
        self.journal.called(&caller, "Cluster.ListRecordings", "").await?;
        self.recordings.list(&caller, request.into_inner()).await.map(Response::new)
    }

    type PlayRecordingStream = Served<v1::PlayRecordingResponse>;

    async fn play_recording(
        &self,
        request: Request<v1::PlayRecordingRequest>,
    ) -> Result<Response<Self::PlayRecordingStream>, Status> {
        let (caller, line) = (caller(&request), Line::of(&request));
        self.recordings.play(&caller, line, request.into_inner()).await.map(Served::answer)
    }
}

impl Service {
    async fn status(&self) -> Result<v1::GetStatusResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let nodes = self.registry.presence.after(None);
        let online = nodes.iter().filter(|known| is_online(known, now)).count();
        let cache = self.policy.cache();
        let authorities = self.issuance.authorities();
        let users = self.identities.count();
        let recordings = self.recordings.count().await;
        let unprotected = self.administering.unprotected(now).await?;
        let (events, head) = self.journal.log().head();
        Ok(v1::GetStatusResponse {
            cluster: self.config.cluster.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            nodes: nodes.len() as u64,
            nodes_online: online as u64,
            users,
            roles: cache.roles.len() as u64,
            locks: cache.locks.len() as u64,
            audit_events: events,
            audit_head: data_encoding::HEXLOWER.encode(&head),
            cas: authorities
                .entries()
                .map(|(_, entry)| ca_status(self.issuance.custodies(), &entry.signer, authorities.trust()))
                .collect(),
            suite: authorities.suite().name().to_owned(),
            recordings: recordings as u64,
            time: Some(convert::time_to_proto(now)),
            keys_made: economy::snapshot().iter().map(key_cost).collect(),
            cryptography: Some(status(self.config.require_fips)),
            checkpoint_places: self.checkpoints.status(),
            admin_factor: self.administering.mode().name().to_owned(),
            administrators_without_factor: u32::try_from(unprotected.count).unwrap_or(u32::MAX),
            without_factor: unprotected.names,
            broken_login_rules: cache.login_rules.broken().map(|broken| broken.rule.clone()).collect(),
        })
    }

    fn nodes(
        &self,
        caller: &Caller,
        all: bool,
        request: &v1::ListNodesRequest,
    ) -> Result<v1::ListNodesResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let after = match request.after.as_str() {
            "" => None,
            text => {
                Some(text.parse::<HostId>().map_err(|error| Status::invalid_argument(error.to_string()))?)
            }
        };
        let limit = match request.limit {
            0 => NODES,
            limit => (limit as usize).min(NODES),
        };
        let selection = Selection::new(request)?;
        let mut known = self.registry.presence.after(after);
        known.retain(|known| selection.may_fit(&known.node));
        let cache = self.policy.cache();
        let visible = match caller.identity() {
            Some(identity) => cache.policies.visible(identity, known.iter().map(|known| &known.node)),
            None => Vec::new(),
        };
        let mut visible = visible.into_iter().peekable();
        let mut nodes = Vec::new();
        if request.hosts && after.is_none() {
            nodes.extend(self.registry.other_hosts());
        }
        let others = nodes.len();
        let mut next = String::new();
        for known in &known {
            let logins = visible.next_if(|(node, _)| node.id == known.node.id).map(|(_, logins)| logins);
            if logins.is_none() && !all {
                continue;
            }
            let logins = logins.unwrap_or_default();
            let online = is_online(known, now);
            if !selection.fits(known, &logins, online) {
                continue;
            }
            if nodes.len() - others == limit {
                next = nodes.last().map(|node: &v1::NodeInfo| node.id.clone()).unwrap_or_default();
                break;
            }
            nodes.push(v1::NodeInfo {
                id: known.node.id.to_string(),
                name: known.node.name.to_string(),
                labels: known
                    .node
                    .labels
                    .iter()
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .collect(),
                online,
                last_seen: known.last_seen.map(convert::time_to_proto),
                version: known.version.clone(),
                os_user: known.os_user.clone(),
                logins: logins.iter().map(ToString::to_string).collect(),
                kind: if known.openssh().is_some() { "openssh" } else { "sallyport" }.to_owned(),
                address: known.openssh().map(|server| server.address.clone()).unwrap_or_default(),
                via: known
                    .openssh()
                    .and_then(|server| Some(server.via.as_ref()?.to_string()))
                    .unwrap_or_default(),
                trust: known.openssh().map(|server| server.trust.name().to_owned()).unwrap_or_default(),
            });
        }
        Ok(v1::ListNodesResponse { nodes, next })
    }

    /// What is answered to a caller who may ask about themselves alone tells nothing of what they cannot see: a node that
    /// is not there and one that no role shows them are one answer.
    fn explain(
        &self,
        caller: &Caller,
        asked: &v1::ExplainAccessRequest,
    ) -> Result<v1::ExplainAccessResponse, Status> {
        let bad = |error: sallyport_access::IdError| Status::invalid_argument(error.to_string());
        let now = OffsetDateTime::now_utc();
        let user = UserName::new(asked.user.clone()).map_err(bad)?;
        let login = Login::new(asked.login.clone()).map_err(bad)?;
        let stored = self.identities.user(&user);
        let stored = stored.ok_or_else(|| Status::not_found(format!("there is no user {user}")))?;
        let identity = self.identities.asked_about(&stored, caller, now);
        let cache = self.policy.cache();
        let mut nodes = self.registry.presence.find(&asked.node);
        let sees_all = ["access", "node"].iter().any(|kind| {
            let verb = if *kind == "node" { Verb::List } else { Verb::Read };
            self.gate.check(caller, kind, verb).is_ok()
        });
        if !sees_all {
            nodes.retain(|known| !cache.policies.logins_on(&identity, &known.node).is_empty());
        }
        let node = match nodes.as_slice() {
            [] if !sees_all => {
                let node = shown(&asked.node);
                let summary = format!(
                    "{user} may not log in as {login} on {node}: no node of this name is among those of {user}"
                );
                return Ok(v1::ExplainAccessResponse { allowed: false, summary, details: Vec::new() });
            }
            [] => return Err(Status::not_found(format!("there is no node {}", shown(&asked.node)))),
            [one] => one,
            several => {
                let ids: Vec<String> = several.iter().map(|known| known.node.id.to_string()).collect();
                return Err(Status::failed_precondition(format!(
                    "several nodes are called {}; use an id: {}",
                    shown(&asked.node),
                    ids.join(", ")
                )));
            }
        };
        let why = cache.policies.explain(&identity, &node.node, &login, &cache.locks, now);
        let mut details = why.details;
        details.push(DECIDED_BY_STATE.to_owned());
        Ok(v1::ExplainAccessResponse { allowed: why.allowed, summary: why.summary, details })
    }
}
