//! The API of rotations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sallyport_access::{HostRole, Principal, Verb};
use sallyport_audit::Code;
use sallyport_ca::rotation::{Mode, Phase};
use sallyport_ca::{CaKind, RotationStatus, UnknownCa};
use sallyport_wire::v1::rotate_ca_request::Step as Asked;
use sallyport_wire::v1::rotation_server::Rotation;
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::{Request, Response, Status};

use super::super::authorities::Authorities;
use super::super::caller::caller;
use super::super::{Inner, cluster, host_role_name, rotation};
use super::Step;
use super::by_hand::chores;
use super::confirmations::Lagging;

/// A host confirms so often, and whenever something changed.
const HEARTBEAT: Duration = Duration::from_secs(60);

pub(in crate::authority) struct Service(pub(in crate::authority) Arc<Inner>);

#[tonic::async_trait]
impl Rotation for Service {
    async fn confirm(
        &self,
        request: Request<v1::ConfirmRequest>,
    ) -> Result<Response<v1::ConfirmResponse>, Status> {
        const METHOD: &str = "Rotation.Confirm";
        let caller = caller(&request);
        let identity =
            self.0.host(&caller, METHOD, &[HostRole::Node, HostRole::Proxy, HostRole::OpenSsh]).await?;
        let Principal::Host { id, name, .. } = &identity.principal else {
            return Err(Status::permission_denied("only hosts confirm their trust"));
        };
        let request = request.into_inner();
        // What only a newer release knows is none of this authority's rotations.
        let applied: BTreeMap<CaKind, RotationStatus> = request
            .applied
            .into_iter()
            .filter_map(|(kind, said)| {
                let status = RotationStatus { generation: said.generation, phase: said.phase.parse().ok()? };
                Some((kind.parse().ok()?, status))
            })
            .collect();
        let signed_by: String = request.signed_by.chars().take(80).collect();
        let said: Vec<String> = applied
            .iter()
            .map(|(kind, status)| format!("{kind} {} {}", status.generation, status.phase))
            .collect();
        let said_besides = (signed_by.clone(), request.takes_own_logins);
        let news = self.0.confirm(*id, applied, said_besides, OffsetDateTime::now_utc()).await?;
        if news {
            let event = self
                .0
                .event(Code::CaConfirmed, &caller)
                .node(name.as_str())
                .message(said.join(", "))
                .field("host_id", id.to_string())
                .field("signed_by", signed_by);
            self.0.record(vec![event]).await?;
        }
        Ok(Response::new(v1::ConfirmResponse {
            next_within: Some(convert::duration_to_proto(HEARTBEAT)),
            spread: Some(convert::duration_to_proto(self.0.spread())),
        }))
    }

    async fn follow(
        &self,
        request: Request<v1::FollowRequest>,
    ) -> Result<Response<v1::FollowResponse>, Status> {
        const METHOD: &str = "Rotation.Follow";
        let caller = caller(&request);
        let identity = self.0.certified(&caller, METHOD).await?;
        match self.0.follow_rotation(&caller, identity, request.get_ref()).await {
            Ok(answer) => {
                self.0.called(&caller, METHOD, "").await?;
                Ok(Response::new(answer))
            }
            Err(status) => Err(self.0.refuse(&caller, METHOD, status).await),
        }
    }

    async fn list_cas(
        &self,
        request: Request<v1::ListCasRequest>,
    ) -> Result<Response<v1::ListCasResponse>, Status> {
        let caller = caller(&request);
        self.0.allow(&caller, "Rotation.ListCas", "cluster", Verb::Read).await?;
        self.0.called(&caller, "Rotation.ListCas", "").await?;
        let authorities = self.0.authorities();
        let (mut cas, mut hosts) = (Vec::new(), 0);
        for (kind, _) in authorities.entries() {
            let (details, all) = self.0.details(&authorities, kind).await?;
            cas.push(details);
            hosts = all;
        }
        Ok(Response::new(v1::ListCasResponse { cas, hosts: u32::try_from(hosts).unwrap_or(u32::MAX) }))
    }

    async fn rotate_ca(
        &self,
        request: Request<v1::RotateCaRequest>,
    ) -> Result<Response<v1::CaDetails>, Status> {
        const METHOD: &str = "Rotation.RotateCa";
        let caller = caller(&request);
        self.0.allow(&caller, METHOD, "ca", Verb::Update).await?;
        let request = request.into_inner();
        let taken = async {
            let (kind, step) = asked(&request)?;
            let tell = |code| self.0.event(code, &caller);
            let authorities = self.0.rotate(kind, step, request.force, &tell).await?;
            self.0.details(&authorities, kind).await
        };
        match taken.await {
            Ok((details, _)) => Ok(Response::new(details)),
            Err(status) => Err(self.0.refuse(&caller, METHOD, status).await),
        }
    }
}

/// What a request asks for.
fn asked(request: &v1::RotateCaRequest) -> Result<(CaKind, Step), Status> {
    let kind =
        request.kind.parse().map_err(|error: UnknownCa| Status::invalid_argument(error.to_string()))?;
    let step = match &request.step {
        Some(Asked::Phase(phase)) => {
            Step::To(phase.parse::<Phase>().map_err(|error| Status::invalid_argument(error.to_string()))?)
        }
        Some(Asked::Rollback(_)) => Step::Rollback,
        Some(Asked::Manual(_)) => Step::Mode(Mode::Manual),
        Some(Asked::Automatic(grace)) => {
            let grace =
                convert::duration_from_proto(grace).and_then(|grace| time::Duration::try_from(grace).ok());
            let grace = grace.ok_or_else(|| Status::invalid_argument("the grace is not a duration"))?;
            Step::Mode(Mode::Automatic { grace })
        }
        None => {
            return Err(Status::invalid_argument(
                "which step? Name a phase, or ask for a rollback, or make the rotation automatic or manual",
            ));
        }
    };
    Ok((kind, step))
}

impl Inner {
    /// Everything about one CA, and how many hosts there are.
    async fn details(
        &self,
        authorities: &Authorities,
        kind: CaKind,
    ) -> Result<(v1::CaDetails, usize), Status> {
        let now = OffsetDateTime::now_utc();
        let entry = authorities
            .entry(kind)
            .ok_or_else(|| Status::unavailable(format!("there is no {kind} CA yet")))?;
        let state = &entry.state;
        let current = state.rotation();
        let (behind, hosts) = self.hosts_behind(state, now).await?;
        let trust = authorities.trust();
        let (mode, grace) = match current.mode {
            Mode::Manual => ("manual", None),
            Mode::Automatic { grace } => ("automatic", std::time::Duration::try_from(grace).ok()),
        };
        // In standby nobody waits for anybody.
        let behind = if current.phase == Phase::Standby { Vec::new() } else { behind };
        let details = v1::CaDetails {
            ca: Some(cluster::ca_status(self, &entry.signer, trust)),
            other: entry.also_trusted.first().map(|other| cluster::ca_status(self, other, trust)),
            mode: mode.to_owned(),
            grace: grace.map(convert::duration_to_proto),
            started: Some(convert::time_to_proto(current.started)),
            phase_since: Some(convert::time_to_proto(current.phase_since)),
            due: current.due().map(convert::time_to_proto),
            next_phase: current.phase.next().name().to_owned(),
            lagging: behind.iter().map(lagging).collect(),
            by_hand: chores(state),
        };
        Ok((details, hosts))
    }
}

fn lagging(host: &Lagging) -> v1::LaggingHost {
    v1::LaggingHost {
        id: host.id.to_string(),
        name: host.name.to_string(),
        role: host_role_name(host.role).to_owned(),
        applied: host.applied.map(rotation),
        last_seen: host.seen.map(convert::time_to_proto),
        valid_until: Some(convert::time_to_proto(host.valid_until)),
        old_certificate: host.old_certificate,
    }
}
