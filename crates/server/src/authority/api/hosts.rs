//! The host API: what proxies and nodes need. On the wire it is the service `Fleet`.

use std::sync::Arc;
use std::time::Duration;

use sallyport_access::HostRole;
use sallyport_wire::v1::fleet_server::Fleet;
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::{Request, Response, Status, Streaming};

use crate::authority::audit::journal::Journal;
use crate::authority::caller::caller;
use crate::authority::gate::calls::Gate;
use crate::authority::hosts::heartbeats::Heartbeats;
use crate::authority::hosts::membership::Membership;
use crate::authority::hosts::targets::TargetCertificates;
use crate::authority::inventory::reports::{ClientInventory, take_clients};
use crate::authority::recordings::kept::{Recordings, session_id};
use crate::authority::reports::events::HostReports;
use crate::authority::sessions::running::{LiveSessions, Orders, REPORTERS};
use crate::authority::streams::{Line, Served, StreamKind, Streams};
use crate::authority::watches::Watches;
use crate::authority::workers::Workers;

/// A node says that it is there so often,
const HEARTBEAT: Duration = Duration::from_secs(15);

/// What hosts need.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) gate: Arc<Gate>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) streams: Arc<Streams>,
    pub(crate) reading: Arc<Workers>,
    pub(crate) membership: Arc<Membership>,
    pub(crate) heartbeats: Arc<Heartbeats>,
    pub(crate) reports: Arc<HostReports>,
    pub(crate) inventory: Arc<ClientInventory>,
    pub(crate) recordings: Arc<Recordings>,
    pub(crate) targets: Arc<TargetCertificates>,
    pub(crate) sessions: Arc<LiveSessions>,
    pub(crate) watches: Arc<Watches>,
}

#[tonic::async_trait]
impl Fleet for Service {
    async fn renew_host(
        &self,
        request: Request<v1::RenewHostRequest>,
    ) -> Result<Response<v1::HostCertificates>, Status> {
        let caller = caller(&request);
        let roles = [HostRole::Node, HostRole::Proxy, HostRole::OpenSsh];
        let identity = self.gate.host(&caller, "Fleet.RenewHost", &roles).await?;
        self.gate.demand_fips(&caller, "Fleet.RenewHost", &request).await?;
        match self.membership.renew(&caller, identity, request.into_inner()).await {
            Ok(answer) => Ok(Response::new(answer)),
            Err(status) => Err(self.gate.refuse(&caller, "Fleet.RenewHost", status).await),
        }
    }

    type WatchStream = Served<v1::WatchEvent>;

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        const METHOD: &str = "Fleet.Watch";
        let (caller, line) = (caller(&request), Line::of(&request));
        let fips = self.gate.demands_fips_of_host(&caller, &request);
        let kinds = request.into_inner().kinds;
        let place = match self.watches.may_watch(&caller, &kinds).and(fips) {
            Ok(()) => self.streams.place(StreamKind::Watching, &caller),
            Err(status) => Err(status),
        };
        match place {
            Ok(place) => self.watches.watch(&caller, (place, line), kinds).await.map(Served::answer),
            Err(status) => Err(self.gate.refuse(&caller, METHOD, status).await),
        }
    }

    async fn heartbeat(
        &self,
        request: Request<v1::HeartbeatRequest>,
    ) -> Result<Response<v1::HeartbeatResponse>, Status> {
        let caller = caller(&request);
        let identity = self.gate.host(&caller, "Fleet.Heartbeat", &[HostRole::Node]).await?;
        self.gate.demand_fips(&caller, "Fleet.Heartbeat", &request).await?;
        let problems = self.heartbeats.heartbeat(identity, request.into_inner()).await?;
        Ok(Response::new(v1::HeartbeatResponse {
            next_within: Some(convert::duration_to_proto(HEARTBEAT)),
            problems,
        }))
    }

    async fn emit_events(
        &self,
        request: Request<v1::EmitEventsRequest>,
    ) -> Result<Response<v1::EmitEventsResponse>, Status> {
        let caller = caller(&request);
        let identity =
            self.gate.host(&caller, "Fleet.EmitEvents", &[HostRole::Node, HostRole::Proxy]).await?;
        let texts = request.into_inner().events_json;
        self.reports.within_budget(identity, &texts).await?;
        // Megabytes of JSON, which the threads that serve connections do not take apart.
        let (reports, who) = (Arc::clone(&self.reports), identity.clone());
        let taken = self.reading.run(move || reports.take_events(&who, texts)).await;
        match taken.map_err(|_| Status::internal("the events could not be read"))? {
            Ok(events) => {
                self.journal.record(events).await?;
                Ok(Response::new(v1::EmitEventsResponse {}))
            }
            Err(status) => Err(self.gate.refuse(&caller, "Fleet.EmitEvents", status).await),
        }
    }

    async fn report_clients(
        &self,
        request: Request<v1::ReportClientsRequest>,
    ) -> Result<Response<v1::ReportClientsResponse>, Status> {
        const METHOD: &str = "Fleet.ReportClients";
        let caller = caller(&request);
        let identity = self.gate.host(&caller, METHOD, &[HostRole::Node, HostRole::Proxy]).await?;
        let now = OffsetDateTime::now_utc();
        match take_clients(request.into_inner().clients, now) {
            Ok(reports) => self.inventory.saw_clients(reports, &identity.display_name(), now).await?,
            Err(problem) => {
                let status = Status::invalid_argument(problem.to_string());
                return Err(self.gate.refuse(&caller, METHOD, status).await);
            }
        }
        Ok(Response::new(v1::ReportClientsResponse {}))
    }

    async fn recording_offset(
        &self,
        request: Request<v1::RecordingOffsetRequest>,
    ) -> Result<Response<v1::RecordingOffsetResponse>, Status> {
        let caller = caller(&request);
        let identity =
            self.gate.host(&caller, "Fleet.RecordingOffset", &[HostRole::Node, HostRole::Proxy]).await?;
        let session = session_id(&request.get_ref().session_id)?;
        if let Err(status) = self.recordings.own_session(identity, session) {
            return Err(self.gate.refuse(&caller, "Fleet.RecordingOffset", status).await);
        }
        let (offset, complete) = self.recordings.offset(identity, session)?;
        Ok(Response::new(v1::RecordingOffsetResponse { offset, complete }))
    }

    async fn certify_target(
        &self,
        request: Request<v1::CertifyTargetRequest>,
    ) -> Result<Response<v1::CertifyTargetResponse>, Status> {
        const METHOD: &str = "Fleet.CertifyTarget";
        let caller = caller(&request);
        let identity = self.gate.host(&caller, METHOD, &[HostRole::Proxy]).await?;
        self.gate.demand_fips(&caller, METHOD, &request).await?;
        match self.targets.certify_target(&caller, identity, request.get_ref()).await {
            Ok(answer) => Ok(Response::new(answer)),
            Err(status) => Err(self.gate.refuse(&caller, METHOD, status).await),
        }
    }

    async fn certify_for_target(
        &self,
        request: Request<v1::CertifyForTargetRequest>,
    ) -> Result<Response<v1::CertifyForTargetResponse>, Status> {
        const METHOD: &str = "Fleet.CertifyForTarget";
        let caller = caller(&request);
        let identity = self.gate.host(&caller, METHOD, &[HostRole::Proxy]).await?;
        self.gate.demand_fips(&caller, METHOD, &request).await?;
        match self.targets.certify_for_target(&caller, identity, request.get_ref()).await {
            Ok(answer) => Ok(Response::new(answer)),
            Err(status) => Err(self.gate.refuse(&caller, METHOD, status).await),
        }
    }

    async fn upload_recording(
        &self,
        request: Request<Streaming<v1::UploadRecordingRequest>>,
    ) -> Result<Response<v1::UploadRecordingResponse>, Status> {
        let caller = caller(&request);
        let identity =
            self.gate.host(&caller, "Fleet.UploadRecording", &[HostRole::Node, HostRole::Proxy]).await?;
        let offset = self.recordings.upload(&caller, identity, request.into_inner()).await?;
        Ok(Response::new(v1::UploadRecordingResponse { offset }))
    }

    type ReportSessionsStream = Orders;

    async fn report_sessions(
        &self,
        request: Request<Streaming<v1::ReportSessionsRequest>>,
    ) -> Result<Response<Self::ReportSessionsStream>, Status> {
        const METHOD: &str = "Fleet.ReportSessions";
        let (caller, line) = (caller(&request), Line::of(&request));
        let identity = self.gate.host(&caller, METHOD, &REPORTERS).await?;
        self.gate.demand_fips(&caller, METHOD, &request).await?;
        match self.streams.place(StreamKind::Reporting, &caller) {
            Ok(place) => {
                self.sessions.take_reports(identity, (place, line), request.into_inner()).map(Served::answer)
            }
            Err(status) => Err(self.gate.refuse(&caller, METHOD, status).await),
        }
    }
}
