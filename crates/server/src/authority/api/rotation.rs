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

use crate::authority::audit::journal::Journal;
use crate::authority::caller::caller;
use crate::authority::gate::calls::Gate;
use crate::authority::issuance::in_force::Issuance;
use crate::authority::rotation::confirmations::Confirmations;
use crate::authority::rotation::steps::{Rotations, Step};

/// Rotations.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) gate: Arc<Gate>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) issuance: Arc<Issuance>,
    pub(crate) confirmations: Arc<Confirmations>,
    pub(crate) rotations: Arc<Rotations>,
}

#[tonic::async_trait]
impl Rotation for Service {
    async fn confirm(
        &self,
        request: Request<v1::ConfirmRequest>,
    ) -> Result<Response<v1::ConfirmResponse>, Status> {
        const METHOD: &str = "Rotation.Confirm";
        let caller = caller(&request);
        let identity =
            self.gate.host(&caller, METHOD, &[HostRole::Node, HostRole::Proxy, HostRole::OpenSsh]).await?;
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
        let news = self.confirmations.confirm(*id, applied, said_besides, OffsetDateTime::now_utc()).await?;
        if news {
            let event = caller
                .event(Code::CaConfirmed)
                .node(name.as_str())
                .message(said.join(", "))
                .field("host_id", id.to_string())
                .field("signed_by", signed_by);
            self.journal.record(vec![event]).await?;
        }
        Ok(Response::new(v1::ConfirmResponse {
            next_within: Some(convert::duration_to_proto(HEARTBEAT)),
            spread: Some(convert::duration_to_proto(self.confirmations.spread())),
        }))
    }

    async fn follow(
        &self,
        request: Request<v1::FollowRequest>,
    ) -> Result<Response<v1::FollowResponse>, Status> {
        const METHOD: &str = "Rotation.Follow";
        let caller = caller(&request);
        let identity = self.gate.certified(&caller, METHOD).await?;
        match self.rotations.follow_rotation(&caller, identity, request.get_ref()).await {
            Ok(answer) => {
                self.journal.called(&caller, METHOD, "").await?;
                Ok(Response::new(answer))
            }
            Err(status) => Err(self.gate.refuse(&caller, METHOD, status).await),
        }
    }

    async fn list_cas(
        &self,
        request: Request<v1::ListCasRequest>,
    ) -> Result<Response<v1::ListCasResponse>, Status> {
        let caller = caller(&request);
        self.gate.allow(&caller, "Rotation.ListCas", "cluster", Verb::Read).await?;
        self.journal.called(&caller, "Rotation.ListCas", "").await?;
        let authorities = self.issuance.authorities();
        let (mut cas, mut hosts) = (Vec::new(), 0);
        for (kind, _) in authorities.entries() {
            let (details, all) = self.rotations.details(&authorities, kind).await?;
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
        self.gate.allow(&caller, METHOD, "ca", Verb::Update).await?;
        let request = request.into_inner();
        let taken = async {
            let (kind, step) = asked(&request)?;
            let tell = |code| caller.event(code);
            let authorities = self.rotations.rotate(kind, step, request.force, &tell).await?;
            self.rotations.details(&authorities, kind).await
        };
        match taken.await {
            Ok((details, _)) => Ok(Response::new(details)),
            Err(status) => Err(self.gate.refuse(&caller, METHOD, status).await),
        }
    }
}

/// A host confirms so often, and whenever something changed.
const HEARTBEAT: Duration = Duration::from_secs(60);

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
