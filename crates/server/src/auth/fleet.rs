//! What proxies and nodes need.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use sallyport_access::{HostId, HostRole, Identity, Labels, NodeName, Principal, SessionId, Verb};
use sallyport_access::{labels, text};
use sallyport_audit::recording::{RecordingState, StoreError as RecordingStoreError};
use sallyport_audit::{Code, Event};
use sallyport_store::{Change, Item, StoreError, Stored, typed};
use sallyport_wire::v1::fleet_server::Fleet;
use sallyport_wire::v1::watch_event::Event as WatchChange;
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::{Request, Response, Status, Streaming};

use super::Inner;
use super::authorities::Authorities;
use super::caller::{Caller, caller};
use super::databases::DatabaseRecord;
use super::hosts::storage;
use super::refusals::Who;
use super::resources;
use super::sessions;
use super::state::{HostRecord, LockRecord, NodeRecord, RoleRecord, SessionPolicyRecord};
use super::streams::{Answers, Kind as StreamKind, Line, Over, Place, Served};
use crate::seen::{self, MOST_REPORTED, Report};

pub(super) struct Service(pub(super) Arc<Inner>);

/// A node says that it is there so often,
const HEARTBEAT: Duration = Duration::from_secs(15);
/// and is taken for gone after this silence.
pub(super) const OFFLINE_AFTER: time::Duration = time::Duration::seconds(40);
/// Changes that wait for a watcher.
const WATCH_QUEUE: usize = 1024;
/// Kinds in one watch. There are six.
const MOST_KINDS: usize = 16;
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
        match self.0.take_events(identity, texts) {
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

fn own_node_id(caller: &Caller) -> Option<HostId> {
    match caller.identity().map(|identity| &identity.principal) {
        Some(Principal::Host { id, role: HostRole::Node, .. }) => Some(*id),
        _ => None,
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

    /// Whether a caller may follow these kinds of state.
    fn may_watch(&self, caller: &Caller, kinds: &[String]) -> Result<(), Status> {
        if !matches!(caller, Caller::LocalAdmin) {
            self.check_certified(caller)?;
        }
        if kinds.is_empty() || kinds.len() > MOST_KINDS {
            return Err(Status::invalid_argument(format!(
                "a watch is of 1 to {MOST_KINDS} kinds, got {}",
                kinds.len()
            )));
        }
        for kind in kinds {
            let resource = match kind.as_str() {
                "trust" => "ca",
                "role" | "lock" | "node" | "session_policy" | "db" => kind,
                _ => {
                    return Err(Status::invalid_argument(format!(
                        "{:?} cannot be watched",
                        super::hosts::shown(kind)
                    )));
                }
            };
            // A node may see itself, which it needs to decide.
            let own_node = kind == "node" && own_node_id(caller).is_some();
            if !own_node {
                self.check(caller, resource, Verb::List)?;
            }
        }
        Ok(())
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

    /// Refuses the recording of another host's session.
    fn own_session(&self, identity: &Identity, session: SessionId) -> Result<(), Status> {
        match &identity.principal {
            Principal::Host { id, .. } if self.is_session_of(*id, session) => Ok(()),
            _ => Err(Status::permission_denied(format!("the session {session} belongs to another host"))),
        }
    }

    async fn upload(
        self: &Arc<Self>,
        caller: &Caller,
        identity: &Identity,
        mut messages: Streaming<v1::UploadRecordingRequest>,
    ) -> Result<u64, Status> {
        let host = host_id(identity);
        let mut at: Option<(SessionId, u64)> = None;
        while let Some(message) = messages.message().await? {
            let (session, offset) = match at {
                None => {
                    let session = session(&message.session_id)?;
                    if let Err(status) = self.own_session(identity, session) {
                        return Err(self.refuse(caller, "Fleet.UploadRecording", status).await);
                    }
                    (session, message.offset)
                }
                Some(at) => at,
            };
            let mut end = offset;
            if !message.data.is_empty() {
                let (inner, owner, data) = (Arc::clone(self), host.clone(), message.data);
                let stored = tokio::task::spawn_blocking(move || {
                    inner.room.admits(data.len())?;
                    Ok::<_, Status>(inner.recordings.append(session, &owner, offset, &data))
                });
                let stored =
                    stored.await.map_err(|_| Status::internal("the recording could not be stored"))??;
                end = match stored {
                    Ok(end) => end,
                    Err(error @ RecordingStoreError::Owner(_)) => {
                        return Err(self.refuse(caller, "Fleet.UploadRecording", recording(&error)).await);
                    }
                    Err(error) => return Err(recording(&error)),
                };
            }
            at = Some((session, end));
            if message.complete {
                self.close_recording(session, &host, identity).await?;
            }
        }
        Ok(at.map_or(0, |(_, offset)| offset))
    }

    async fn close_recording(
        &self,
        session: SessionId,
        host: &str,
        identity: &Identity,
    ) -> Result<(), Status> {
        if self.recordings.offset(session, host).map_err(|error| recording(&error))?.1 {
            return Ok(());
        }
        let not_closed = |_| Status::internal("the recording could not be closed");
        let (recordings, owner) = (Arc::clone(&self.recordings), host.to_owned());
        let settled = tokio::task::spawn_blocking(move || recordings.settle(session, &owner)).await;
        let entry = settled.map_err(not_closed)?.map_err(|error| recording(&error))?;
        let code = match entry.state {
            RecordingState::Interrupted => Code::RecordingInterrupted,
            RecordingState::Live | RecordingState::Complete => Code::RecordingUploaded,
        };
        let event = |code| {
            let mut event = Event::new(code, OffsetDateTime::now_utc())
                .session(session)
                .origin(identity.display_name())
                .field("bytes", entry.bytes);
            if let Some(metadata) = &entry.metadata {
                event = event
                    .user(metadata.user.clone())
                    .login(metadata.login.clone())
                    .node(metadata.node.clone());
                self.bind_recorded(identity, &metadata.kind, &mut event);
            }
            event
        };
        let mut events = vec![event(code)];
        if entry.damaged {
            events.push(event(Code::RecordingDamaged));
        }
        // On record first: once it is closed its host asks no more, and nobody would say it.
        self.record(events).await?;
        let (recordings, owner) = (Arc::clone(&self.recordings), host.to_owned());
        let closed = tokio::task::spawn_blocking(move || recordings.close(session, &owner)).await;
        closed.map_err(not_closed)?.map_err(|error| recording(&error))?;
        Ok(())
    }
}

/// The part of what is stored that a watcher sees: all of it, or for a node itself, the servers that it is the gateway
/// to, and the databases that it serves.
struct Part {
    node: Option<(HostId, NodeName)>,
    /// Keys of nodes and databases that a node has been told of.
    told: HashSet<String>,
}

impl Part {
    fn of(caller: &Caller) -> Self {
        let node = match caller.identity().map(|identity| &identity.principal) {
            Some(Principal::Host { id, name, role: HostRole::Node }) => Some((*id, name.clone())),
            _ => None,
        };
        Self { node, told: HashSet::new() }
    }

    fn put(&mut self, item: Item) -> Result<Option<WatchChange>, Status> {
        if let Some((id, name)) = self.node.as_ref().filter(|_| item.key.starts_with("db/")) {
            let (key, stored) = (item.key.clone(), item.clone());
            let record = typed::decode::<DatabaseRecord>(stored).map_err(|error| storage(&error))?.value;
            if !record.is_for(*id, name) {
                return Ok(self.delete(&key));
            }
            self.told.insert(key);
        }
        let Some((id, name)) = self.node.as_ref().filter(|_| item.key.starts_with("node/")) else {
            return resource(item).map(|resource| Some(WatchChange::Put(resource)));
        };
        let key = item.key.clone();
        let stored = typed::decode::<NodeRecord>(item).map_err(|error| storage(&error))?;
        let server = stored.value.openssh.as_ref();
        if stored.value.id != *id && server.and_then(|server| server.via.as_ref()) != Some(name) {
            // It may have been this node's until now.
            return Ok(self.delete(&key));
        }
        self.told.insert(key);
        Ok(Some(WatchChange::Put(node_resource(&stored))))
    }

    fn delete(&mut self, key: &str) -> Option<WatchChange> {
        let (kind, name) = key.split_once('/')?;
        if self.node.is_some() && matches!(kind, "node" | "db") && !self.told.remove(key) {
            return None;
        }
        Some(WatchChange::Delete(v1::ResourceName { kind: kind.to_owned(), name: name.to_owned() }))
    }
}

async fn watch(
    inner: &Arc<Inner>,
    caller: &Caller,
    (place, line): (Place, Line),
    kinds: Vec<String>,
) -> Result<Served<v1::WatchEvent>, Status> {
    let now = OffsetDateTime::now_utc();
    let stored: Vec<&String> = kinds.iter().filter(|kind| *kind != "trust").collect();
    let prefixes: Vec<String> = stored.iter().map(|kind| format!("{kind}/")).collect();
    let mut watch = inner.store.backend().watch(prefixes, now).await.map_err(|error| storage(&error))?;
    let mut part = Part::of(caller);
    let mut first = Vec::new();
    // Subscribed before it is read, so that no change is missed in between.
    let mut trust = kinds.iter().any(|kind| kind == "trust").then(|| inner.follow_authorities());
    if let Some(trust) = &mut trust {
        trust.mark_unchanged();
        first.push(WatchChange::Put(trust_resource(inner)));
    }
    for item in watch.snapshot.drain(..) {
        if let Some(change) = part.put(item)? {
            first.push(change);
        }
    }
    first.push(WatchChange::SnapshotDone(v1::SnapshotDone {}));
    let (watched, watcher) = (Arc::clone(inner), caller.clone());
    let follow = |answers: Answers<v1::WatchEvent>| async move {
        for change in first {
            answers.send(event(change)).await?;
        }
        loop {
            let change = tokio::select! {
                change = watch.changes.next() => change,
                () = changed(&mut trust) => {
                    answers.send(event(WatchChange::Put(trust_resource(&watched)))).await?;
                    continue;
                }
            };
            let change = match change {
                Ok(Change::Put(item)) => part.put(item)?,
                Ok(Change::Delete { key, .. }) => part.delete(&key),
                Err(error @ StoreError::Lagged { .. }) => {
                    return Err(Over::Refused(Status::aborted(error.to_string())));
                }
                Err(error) => return Err(Over::Refused(Status::unavailable(error.to_string()))),
            };
            if let Some(change) = change {
                answers.send(event(change)).await?;
            }
        }
    };
    Ok(inner.stream(place, line, WATCH_QUEUE, move |inner| inner.may_watch(&watcher, &kinds), follow))
}

/// Waits for the authorities to be replaced; for ever where nobody asked.
async fn changed(trust: &mut Option<tokio::sync::watch::Receiver<Arc<Authorities>>>) {
    let Some(trust) = trust else { return std::future::pending().await };
    if trust.changed().await.is_err() {
        // The authority is going away, and the stream with it.
        std::future::pending().await
    }
}

fn event(change: WatchChange) -> v1::WatchEvent {
    v1::WatchEvent { event: Some(change) }
}

fn trust_resource(inner: &Inner) -> v1::Resource {
    v1::Resource {
        kind: "trust".to_owned(),
        name: "trust".to_owned(),
        revision: 1,
        expires: None,
        yaml: serde_json::to_string(&inner.authorities().trust().to_bundle()).unwrap_or_default(),
    }
}

/// A stored item as watchers read it.
fn resource(item: Item) -> Result<v1::Resource, Status> {
    let kind = item.key.split('/').next().unwrap_or_default();
    let broken = |error: StoreError| storage(&error);
    let stored = match kind {
        "role" => {
            let stored = typed::decode::<RoleRecord>(item).map_err(broken)?;
            resources::of("role", &stored.name, stored.revision, stored.expires, stored.value.yaml)
        }
        "session_policy" => {
            let stored = typed::decode::<SessionPolicyRecord>(item).map_err(broken)?;
            resources::of("session_policy", &stored.name, stored.revision, None, stored.value.yaml)
        }
        "lock" => {
            let stored = typed::decode::<LockRecord>(item).map_err(broken)?;
            resources::of("lock", &stored.name, stored.revision, stored.expires, stored.value.yaml)
        }
        "db" => {
            let stored = typed::decode::<DatabaseRecord>(item).map_err(broken)?;
            resources::of("db", &stored.name, stored.revision, None, stored.value.yaml)
        }
        _ => node_resource(&typed::decode::<NodeRecord>(item).map_err(broken)?),
    };
    Ok(stored)
}

fn node_resource(stored: &Stored<NodeRecord>) -> v1::Resource {
    let yaml = resources::node_yaml(&stored.value);
    resources::of("node", &stored.name, stored.revision, stored.expires, yaml)
}
