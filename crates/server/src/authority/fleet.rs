//! What proxies and nodes need.

mod uploads;
mod watching;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sallyport_access::{HostId, HostRole, Identity, Labels, NodeName, Principal, SessionId};
use sallyport_access::{labels, text};
use sallyport_audit::recording::StoreError as RecordingStoreError;
use sallyport_audit::{Code, Event};
use sallyport_wire::v1::fleet_server::Fleet;
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::{Request, Response, Status, Streaming};

use super::Inner;
use super::caller::caller;
use super::hosts::storage;
use super::refusals::Who;
use super::sessions;
use super::state::{HostRecord, NodeRecord};
use super::streams::{Kind as StreamKind, Line, Served};
use crate::seen::{self, MOST_REPORTED, Report};
use watching::watch;

pub(super) struct Service(pub(super) Arc<Inner>);

/// A node says that it is there so often,
const HEARTBEAT: Duration = Duration::from_secs(15);
/// and is taken for gone after this silence.
pub(super) const OFFLINE_AFTER: time::Duration = time::Duration::seconds(40);
/// Labels of a node, and the length of one.
const MOST_LABELS: usize = 128;
const LONGEST_LABEL: usize = 1024;

#[tonic::async_trait]
impl Fleet for Service {
    async fn renew_host(
        &self,
        request: Request<v1::RenewHostRequest>,
    ) -> Result<Response<v1::HostCertificates>, Status> {
        let caller = caller(&request);
        let roles = [HostRole::Node, HostRole::Proxy, HostRole::OpenSsh];
        let identity = self.0.host(&caller, "Fleet.RenewHost", &roles).await?;
        self.0.demand_fips(&caller, "Fleet.RenewHost", &request).await?;
        match self.0.renew(&caller, identity, request.into_inner()).await {
            Ok(answer) => Ok(Response::new(answer)),
            Err(status) => Err(self.0.refuse(&caller, "Fleet.RenewHost", status).await),
        }
    }

    type WatchStream = Served<v1::WatchEvent>;

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        const METHOD: &str = "Fleet.Watch";
        let (caller, line) = (caller(&request), Line::of(&request));
        let kinds = request.into_inner().kinds;
        let place = match self.0.may_watch(&caller, &kinds) {
            Ok(()) => self.0.place(StreamKind::Watching, &caller),
            Err(status) => Err(status),
        };
        match place {
            Ok(place) => watch(&self.0, &caller, (place, line), kinds).await.map(Served::answer),
            Err(status) => Err(self.0.refuse(&caller, METHOD, status).await),
        }
    }

    async fn heartbeat(
        &self,
        request: Request<v1::HeartbeatRequest>,
    ) -> Result<Response<v1::HeartbeatResponse>, Status> {
        let caller = caller(&request);
        let identity = self.0.host(&caller, "Fleet.Heartbeat", &[HostRole::Node]).await?;
        self.0.demand_fips(&caller, "Fleet.Heartbeat", &request).await?;
        let problems = self.0.heartbeat(identity, request.into_inner()).await?;
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
        let identity = self.0.host(&caller, "Fleet.EmitEvents", &[HostRole::Node, HostRole::Proxy]).await?;
        let texts = request.into_inner().events_json;
        self.0.within_budget(identity, &texts).await?;
        // Megabytes of JSON, which the threads that serve connections do not take apart.
        let (inner, who) = (Arc::clone(&self.0), identity.clone());
        let taken = self.0.reading.run(move || inner.take_events(&who, texts)).await;
        match taken.map_err(|_| Status::internal("the events could not be read"))? {
            Ok(events) => {
                self.0.record(events).await?;
                Ok(Response::new(v1::EmitEventsResponse {}))
            }
            Err(status) => Err(self.0.refuse(&caller, "Fleet.EmitEvents", status).await),
        }
    }

    async fn report_clients(
        &self,
        request: Request<v1::ReportClientsRequest>,
    ) -> Result<Response<v1::ReportClientsResponse>, Status> {
        const METHOD: &str = "Fleet.ReportClients";
        let caller = caller(&request);
        let identity = self.0.host(&caller, METHOD, &[HostRole::Node, HostRole::Proxy]).await?;
        let now = OffsetDateTime::now_utc();
        match take_clients(request.into_inner().clients, now) {
            Ok(reports) => self.0.saw_clients(reports, &identity.display_name(), now).await?,
            Err(problem) => {
                let status = Status::invalid_argument(problem);
                return Err(self.0.refuse(&caller, METHOD, status).await);
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
            self.0.host(&caller, "Fleet.RecordingOffset", &[HostRole::Node, HostRole::Proxy]).await?;
        let session = session(&request.get_ref().session_id)?;
        if let Err(status) = self.0.own_session(identity, session) {
            return Err(self.0.refuse(&caller, "Fleet.RecordingOffset", status).await);
        }
        let host = host_id(identity);
        let (offset, complete) =
            self.0.recordings.offset(session, &host).map_err(|error| recording(&error))?;
        Ok(Response::new(v1::RecordingOffsetResponse { offset, complete }))
    }

    async fn certify_target(
        &self,
        request: Request<v1::CertifyTargetRequest>,
    ) -> Result<Response<v1::CertifyTargetResponse>, Status> {
        const METHOD: &str = "Fleet.CertifyTarget";
        let caller = caller(&request);
        let identity = self.0.host(&caller, METHOD, &[HostRole::Proxy]).await?;
        match self.0.certify_target(&caller, identity, request.get_ref()).await {
            Ok(answer) => Ok(Response::new(answer)),
            Err(status) => Err(self.0.refuse(&caller, METHOD, status).await),
        }
    }

    async fn certify_for_target(
        &self,
        request: Request<v1::CertifyForTargetRequest>,
    ) -> Result<Response<v1::CertifyForTargetResponse>, Status> {
        const METHOD: &str = "Fleet.CertifyForTarget";
        let caller = caller(&request);
        let identity = self.0.host(&caller, METHOD, &[HostRole::Proxy]).await?;
        match self.0.certify_for_target(&caller, identity, request.get_ref()).await {
            Ok(answer) => Ok(Response::new(answer)),
            Err(status) => Err(self.0.refuse(&caller, METHOD, status).await),
        }
    }

    async fn upload_recording(
        &self,
        request: Request<Streaming<v1::UploadRecordingRequest>>,
    ) -> Result<Response<v1::UploadRecordingResponse>, Status> {
        let caller = caller(&request);
        let identity =
            self.0.host(&caller, "Fleet.UploadRecording", &[HostRole::Node, HostRole::Proxy]).await?;
        let offset = self.0.upload(&caller, identity, request.into_inner()).await?;
        Ok(Response::new(v1::UploadRecordingResponse { offset }))
    }

    type ReportSessionsStream = sessions::Orders;

    async fn report_sessions(
        &self,
        request: Request<Streaming<v1::ReportSessionsRequest>>,
    ) -> Result<Response<Self::ReportSessionsStream>, Status> {
        const METHOD: &str = "Fleet.ReportSessions";
        let (caller, line) = (caller(&request), Line::of(&request));
        let identity = self.0.host(&caller, METHOD, &sessions::REPORTERS).await?;
        match self.0.place(StreamKind::Reporting, &caller) {
            Ok(place) => {
                self.0.take_reports(identity, (place, line), request.into_inner()).map(Served::answer)
            }
            Err(status) => Err(self.0.refuse(&caller, METHOD, status).await),
        }
    }
}

fn host_id(identity: &Identity) -> String {
    match &identity.principal {
        Principal::Host { id, .. } => id.to_string(),
        Principal::User { name, .. } => name.to_string(),
    }
}

fn session(text: &str) -> Result<SessionId, Status> {
    text.parse().map_err(|error: sallyport_access::IdError| Status::invalid_argument(error.to_string()))
}

pub(super) fn recording(error: &RecordingStoreError) -> Status {
    match error {
        RecordingStoreError::NotFound(_) => Status::not_found(error.to_string()),
        RecordingStoreError::Offset { .. } => Status::out_of_range(error.to_string()),
        RecordingStoreError::Closed(_) | RecordingStoreError::Held(_) | RecordingStoreError::Live(_) => {
            Status::failed_precondition(error.to_string())
        }
        RecordingStoreError::Owner(_) => Status::permission_denied(error.to_string()),
        RecordingStoreError::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
            tracing::error!(%error, "the disk for recordings is full");
            Status::resource_exhausted(
                "the authority's disk for recordings is full: give it room, or remove some (sallyport recordings rm)",
            )
        }
        RecordingStoreError::Io { .. } => {
            tracing::error!(%error, "a recording cannot be stored");
            Status::unavailable("the authority cannot store recordings; its log says why")
        }
    }
}

/// Clients that a host has seen, within their bounds.
fn take_clients(clients: Vec<v1::SeenClient>, now: OffsetDateTime) -> Result<Vec<Report>, String> {
    if clients.len() > MOST_REPORTED {
        return Err(format!("{} clients in one report, at most {MOST_REPORTED} are allowed", clients.len()));
    }
    clients.into_iter().map(|client| seen::from_proto(client, now)).collect()
}

impl Inner {
    /// Whether a host may report these events now. What it may not is counted, in one event a minute; a host of ours keeps it and sends
    /// it again.
    async fn within_budget(&self, identity: &Identity, texts: &[String]) -> Result<(), Status> {
        let Principal::Host { id, .. } = &identity.principal else { return Ok(()) };
        let now = OffsetDateTime::now_utc();
        if self.budgets.admits(*id, texts, now) {
            return Ok(());
        }
        let name = identity.display_name();
        let event = Event::new(Code::AuditOverBudget, now)
            .user(name.clone())
            .origin("auth")
            .field("host_id", id.to_string())
            .message(format!("{name} reports more events than a host may"));
        self.note_caused_times(event, Who::Login(identity.login_id), "", 0, texts.len() as u64).await?;
        Err(Status::resource_exhausted("too many events from this host; they are taken again in a minute"))
    }

    /// Remembers what clients were seen to be able to do.
    pub(super) async fn saw_clients(
        &self,
        reports: Vec<Report>,
        by: &str,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        let steps = self.clients.take(reports, by, now).map_err(|error| storage(&error))?;
        if !steps.is_empty() {
            self.store.backend().transact(steps, now).await.map_err(|error| storage(&error))?;
        }
        Ok(())
    }

    /// Takes what a node says of itself; gives what of it cannot be.
    async fn heartbeat(
        &self,
        identity: &Identity,
        mut request: v1::HeartbeatRequest,
    ) -> Result<Vec<String>, Status> {
        let Principal::Host { id, name, .. } = &identity.principal else {
            return Err(Status::permission_denied("only nodes have a heartbeat"));
        };
        let now = OffsetDateTime::now_utc();
        let databases = std::mem::take(&mut request.databases);
        let health = std::mem::take(&mut request.database_health);
        let mut problems = self.describe(*id, name, request, now).await?;
        problems.extend(self.report_databases(identity, (*id, name), databases, health, now).await?);
        Ok(problems)
    }

    /// Takes a node's description; gives what of it its join token does not allow.
    async fn describe(
        &self,
        id: HostId,
        name: &NodeName,
        request: v1::HeartbeatRequest,
        now: OffsetDateTime,
    ) -> Result<Vec<String>, Status> {
        if request.labels.len() > MOST_LABELS
            || request.labels.iter().any(|(key, value)| key.len() + value.len() > LONGEST_LABEL)
        {
            return Err(Status::invalid_argument(format!(
                "at most {MOST_LABELS} labels of {LONGEST_LABEL} bytes are allowed"
            )));
        }
        for (key, value) in &request.labels {
            labels::check(key, value).map_err(|error| {
                Status::invalid_argument(format!("the label {:?}: {error}", super::hosts::shown(key)))
            })?;
        }
        for (what, said) in [("the version", &request.version), ("the OS user", &request.os_user)] {
            text::check(what, said).map_err(|hidden| Status::invalid_argument(hidden.to_string()))?;
        }
        let databases_end_to_end = request.databases_end_to_end;
        let mut own: BTreeMap<String, String> = request.labels.into_iter().collect();
        let bounds = self.names.bounds(id);
        let mut problems = Vec::new();
        own.retain(|key, value| {
            let allowed = bounds.allow_label(key, value);
            if !allowed {
                problems.push(format!(
                    "the label {key}={value} is not one that this node's join token lets it set"
                ));
            }
            allowed
        });
        let version: String = request.version.chars().take(64).collect();
        let os_user: String = request.os_user.chars().take(64).collect();
        let known = self.presence.seen(id, now);
        // The database is asked only when something changed. Labels of the token win over what the node says.
        let fixed = match &known {
            Some(known) => known.fixed.clone(),
            None => {
                let host = self
                    .store
                    .get::<HostRecord>(&id.to_string(), now)
                    .await
                    .map_err(|error| storage(&error))?;
                let host = host.ok_or_else(|| {
                    Status::permission_denied(
                        "this node was removed from the cluster; join again with a new token",
                    )
                })?;
                host.value.labels
            }
        };
        own.extend(fixed.clone());
        let labels: Labels = own.into_iter().collect();
        if known.is_some_and(|known| {
            known.node.labels == labels
                && known.version == version
                && known.os_user == os_user
                && known.databases_end_to_end == databases_end_to_end
        }) {
            return Ok(problems);
        }
        let name = name.clone();
        let record =
            NodeRecord { id, name, labels, version, os_user, fixed, openssh: None, databases_end_to_end };
        self.store.put(&id.to_string(), &record, None, now).await.map_err(|error| storage(&error))?;
        self.presence.put(record);
        self.presence.seen(id, now);
        Ok(problems)
    }
}
