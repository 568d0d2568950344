//! What people and their tools ask of the cluster.

use std::sync::Arc;

use sallyport_access::{HostId, Login, SessionId, UserName, Verb};
use sallyport_audit::Code;
use sallyport_audit::recording::{
    Body, Frame, Reader, RecordingEntry, RecordingState, RecordingStore, StoreError as RecordingStoreError,
    export,
};
use sallyport_ca::{Authority as CertAuthority, JwtSide, SshSide, TlsSide, Trust};
use sallyport_sal::KeyAlgorithm;
use sallyport_sal::economy::{self, KeyCount};
use sallyport_store::Kind;
use sallyport_wire::v1::cluster_server::Cluster;
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::{Request, Response, Status};

use super::caller::{Caller, caller};
use super::fleet::OFFLINE_AFTER;
use super::hosts::{shown, storage};
use super::selection::Selection;
use super::state::UserRecord;
use super::streams::{Kind as StreamKind, Line, Served};
use super::view::{Known, PAGE};
use super::{Inner, rotation};

pub(super) struct Service(pub(super) Arc<Inner>);

/// Nodes in one answer.
const NODES: usize = 20_000;
/// Recordings in one answer.
const RECORDINGS: usize = 1000;
/// Recordings that are opened for one answer, beside those that are known already.
const OPENED: usize = 500;
/// Bytes of frames in one message of a playback.
const PLAY_BYTES: usize = 256 * 1024;
/// Messages that a playback may be ahead of its peer.
const PLAY_QUEUE: usize = 2;

#[tonic::async_trait]
impl Cluster for Service {
    async fn get_status(
        &self,
        request: Request<v1::GetStatusRequest>,
    ) -> Result<Response<v1::GetStatusResponse>, Status> {
        let caller = caller(&request);
        self.0.allow(&caller, "Cluster.GetStatus", "cluster", Verb::Read).await?;
        self.0.called(&caller, "Cluster.GetStatus", "").await?;
        self.0.status().await.map(Response::new)
    }

    async fn list_nodes(
        &self,
        request: Request<v1::ListNodesRequest>,
    ) -> Result<Response<v1::ListNodesResponse>, Status> {
        let caller = caller(&request);
        if !matches!(caller, Caller::LocalAdmin) {
            self.0.certified(&caller, "Cluster.ListNodes").await?;
        }
        let all = self.0.check(&caller, "node", Verb::List).is_ok();
        if !all && caller.identity().is_some_and(|identity| identity.user().is_none()) {
            let status = Status::permission_denied("hosts do not list nodes");
            return Err(self.0.refuse(&caller, "Cluster.ListNodes", status).await);
        }
        let asked = request.into_inner();
        if asked.hosts && !all {
            let status =
                Status::permission_denied("hosts of every role are for those who may list all nodes");
            return Err(self.0.refuse(&caller, "Cluster.ListNodes", status).await);
        }
        self.0.called(&caller, "Cluster.ListNodes", "").await?;
        self.0.list_nodes(&caller, all, &asked).map(Response::new)
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
            self.0.certified(&caller, "Cluster.ExplainAccess").await?;
        } else {
            self.0.allow(&caller, "Cluster.ExplainAccess", "access", Verb::Read).await?;
        }
        let what = format!("{} as {} on {}", shown(&asked.user), shown(&asked.login), shown(&asked.node));
        self.0.called(&caller, "Cluster.ExplainAccess", &what).await?;
        self.0.explain(&caller, &asked).await.map(Response::new)
    }

    async fn list_recordings(
        &self,
        request: Request<v1::ListRecordingsRequest>,
    ) -> Result<Response<v1::ListRecordingsResponse>, Status> {
        let caller = caller(&request);
        if !matches!(caller, Caller::LocalAdmin) {
            let identity = self.0.certified(&caller, "Cluster.ListRecordings").await?;
            if identity.user().is_none() {
                let status = Status::permission_denied("hosts do not list recordings");
                return Err(self.0.refuse(&caller, "Cluster.ListRecordings", status).await);
            }
        }
        self.0.called(&caller, "Cluster.ListRecordings", "").await?;
        self.0.list_recordings(&caller, request.into_inner()).await.map(Response::new)
    }

    type PlayRecordingStream = Served<v1::PlayRecordingResponse>;

    async fn play_recording(
        &self,
        request: Request<v1::PlayRecordingRequest>,
    ) -> Result<Response<Self::PlayRecordingStream>, Status> {
        let (caller, line) = (caller(&request), Line::of(&request));
        self.0.play(&caller, line, request.into_inner()).await.map(Served::answer)
    }
}

impl Inner {
    async fn status(&self) -> Result<v1::GetStatusResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let nodes = self.presence.after(None);
        let online = nodes.iter().filter(|known| is_online(known, now)).count();
        let view = self.view();
        let authorities = self.authorities();
        let users = self.count::<UserRecord>(now).await?;
        let recordings = Arc::clone(&self.recordings);
        let recordings =
            self.reading.run(move || recordings.sessions().map_or(0, |sessions| sessions.len())).await;
        let (events, head) = self.log.head();
        Ok(v1::GetStatusResponse {
            cluster: self.config.cluster.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            nodes: nodes.len() as u64,
            nodes_online: online as u64,
            users,
            roles: view.roles.len() as u64,
            locks: view.locks.len() as u64,
            audit_events: events,
            audit_head: data_encoding::HEXLOWER.encode(&head),
            cas: authorities
                .entries()
                .map(|(_, entry)| ca_status(self, &entry.signer, authorities.trust()))
                .collect(),
            suite: authorities.suite().name().to_owned(),
            recordings: recordings.unwrap_or(0) as u64,
            time: Some(convert::time_to_proto(now)),
            keys_made: economy::snapshot().iter().map(key_cost).collect(),
            cryptography: Some(super::fips::status(self.config.require_fips)),
            checkpoint_places: self.elsewhere.iter().map(|place| place.status()).collect(),
        })
    }

    async fn count<T: Kind>(&self, now: OffsetDateTime) -> Result<u64, Status> {
        let (mut count, mut after) = (0, None::<String>);
        loop {
            let page =
                self.store.list::<T>(after.as_deref(), PAGE, now).await.map_err(|error| storage(&error))?;
            count += page.len() as u64;
            match page.into_iter().last() {
                Some(last) => after = Some(last.name),
                None => return Ok(count),
            }
        }
    }

    fn list_nodes(
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
        let mut known = self.presence.after(after);
        known.retain(|known| selection.may_fit(&known.node));
        let view = self.view();
        let visible = match caller.identity() {
            Some(identity) => view.policies.visible(identity, known.iter().map(|known| &known.node)),
            None => Vec::new(),
        };
        let mut visible = visible.into_iter().peekable();
        let mut nodes = Vec::new();
        if request.hosts && after.is_none() {
            nodes.extend(self.other_hosts());
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
    async fn explain(
        &self,
        caller: &Caller,
        asked: &v1::ExplainAccessRequest,
    ) -> Result<v1::ExplainAccessResponse, Status> {
        let bad = |error: sallyport_access::IdError| Status::invalid_argument(error.to_string());
        let now = OffsetDateTime::now_utc();
        let user = UserName::new(asked.user.clone()).map_err(bad)?;
        let login = Login::new(asked.login.clone()).map_err(bad)?;
        let stored =
            self.store.get::<UserRecord>(user.as_str(), now).await.map_err(|error| storage(&error))?;
        let stored = stored.ok_or_else(|| Status::not_found(format!("there is no user {user}")))?;
        let identity = self.identity_of(&stored.value, now);
        let view = self.view();
        let mut nodes = self.presence.find(&asked.node);
        let sees_all = ["access", "node"].iter().any(|kind| {
            let verb = if *kind == "node" { Verb::List } else { Verb::Read };
            self.check(caller, kind, verb).is_ok()
        });
        if !sees_all {
            nodes.retain(|known| !view.policies.logins_on(&identity, &known.node).is_empty());
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
        let why = view.policies.explain(&identity, &node.node, &login, &view.locks, now);
        let mut details = why.details;
        details.push(super::people::DECIDED_BY_STATE.to_owned());
        Ok(v1::ExplainAccessResponse { allowed: why.allowed, summary: why.summary, details })
    }

    async fn list_recordings(
        &self,
        caller: &Caller,
        request: v1::ListRecordingsRequest,
    ) -> Result<v1::ListRecordingsResponse, Status> {
        let limit = match request.limit {
            0 => RECORDINGS,
            limit => (limit as usize).min(RECORDINGS),
        };
        let before = match request.after.as_str() {
            "" => None,
            text => Some(session_id(text)?),
        };
        let all = self.check(caller, "recording", Verb::List).is_ok();
        let own = caller.identity().and_then(|identity| identity.user()).map(ToString::to_string);
        let recordings = Arc::clone(&self.recordings);
        let found = self.reading.run(move || {
            let (mut found, mut next, mut opened) = (Vec::new(), String::new(), 0);
            let mut last = None;
            // The newest first.
            let sessions = recordings.sessions()?;
            for session in
                sessions.into_iter().filter(|session| before.is_none_or(|before| *session < before))
            {
                let known = recordings.known(session);
                opened += usize::from(known.is_none());
                if found.len() >= limit || opened > OPENED {
                    next = last.map_or_else(String::new, |last: SessionId| last.to_string());
                    break;
                }
                last = Some(session);
                let Some(entry) = known.or_else(|| recordings.entry(session).ok()) else { continue };
                let metadata = entry.metadata.as_ref();
                let is = |wanted: &str, got: Option<&str>| wanted.is_empty() || got == Some(wanted);
                let user = metadata.map(|metadata| metadata.user.as_str());
                let mine = own.as_deref().is_some_and(|own| user == Some(own));
                if (all || mine)
                    && is(&request.user, user)
                    && is(&request.node, metadata.map(|metadata| metadata.node.as_str()))
                    && is(&request.kind, metadata.map(|metadata| metadata.kind.as_str()))
                {
                    found.push(info(&entry));
                }
            }
            std::io::Result::Ok(v1::ListRecordingsResponse { recordings: found, next })
        });
        match found.await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) => Err(Status::unavailable(format!("the recordings cannot be listed: {error}"))),
            Err(_) => Err(Status::internal("the recordings cannot be listed")),
        }
    }

    /// Whether a caller may read the recording of a session of somebody's.
    fn may_play(&self, caller: &Caller, owner: &str) -> Result<(), Status> {
        let Some(identity) = caller.identity() else { return Ok(()) };
        let identity = self.valid(identity)?;
        let view = self.view();
        let refused = view.policies.may_read_session(&identity, owner).err();
        refused.map_or(Ok(()), |refusal| Err(Status::permission_denied(refusal.public_message())))
    }

    async fn play(
        self: &Arc<Self>,
        caller: &Caller,
        line: Line,
        request: v1::PlayRecordingRequest,
    ) -> Result<Served<v1::PlayRecordingResponse>, Status> {
        const METHOD: &str = "Cluster.PlayRecording";
        if !matches!(caller, Caller::LocalAdmin) {
            self.certified(caller, METHOD).await?;
        }
        let session = session_id(&request.session_id)?;
        let place = match self.place(StreamKind::Reading, caller) {
            Ok(place) => place,
            Err(status) => return Err(self.refuse(caller, METHOD, status).await),
        };
        let recordings = Arc::clone(&self.recordings);
        let entry = match self.reading.run(move || recordings.entry(session)).await {
            Ok(Ok(entry)) => Some(entry),
            Ok(Err(RecordingStoreError::NotFound(_))) => None,
            Ok(Err(error)) => return Err(Status::unavailable(error.to_string())),
            Err(_) => return Err(Status::internal("the recording cannot be read")),
        };
        let owner = entry
            .as_ref()
            .and_then(|entry| entry.metadata.as_ref())
            .map(|metadata| metadata.user.clone())
            .unwrap_or_default();
        // Whether a recording exists is for those to know who may play it.
        if let Err(status) = self.may_play(caller, &owner) {
            return Err(self.refuse(caller, METHOD, status).await);
        }
        let Some(entry) = entry else {
            return Err(Status::not_found(format!(
                "there is no recording of session {session}; one that has just ended may take a few seconds to arrive"
            )));
        };
        let mut event = self.event(Code::RecordingPlayed, caller).session(session);
        if let Some(metadata) = &entry.metadata {
            event = event.node(metadata.node.clone()).field("owner", metadata.user.clone());
        }
        self.record(vec![event]).await?;
        let from = request.from.as_ref().and_then(convert::duration_from_proto).unwrap_or_default();
        let damaged = self.event(Code::RecordingDamaged, caller).session(session);
        let playing = Arc::clone(self);
        let asker = caller.clone();
        Ok(self.stream(
            place,
            line,
            PLAY_QUEUE,
            move |inner| inner.may_play(&asker, &owner),
            |answers| async move {
                let failed = |_| Status::internal("the recording cannot be read");
                let recordings = Arc::clone(&playing.recordings);
                let opened = playing.reading.run(move || Playback::open(&recordings, session, from));
                let mut playback = opened.await.map_err(failed)?.map_err(lost)?;
                let played = loop {
                    let reading = playing.reading.run(move || {
                        let frames = playback.next();
                        (playback, frames)
                    });
                    let frames;
                    (playback, frames) = reading.await.map_err(failed)?;
                    let frames_json = match frames {
                        Ok(Some(frames)) => frames,
                        Ok(None) => break Ok(()),
                        Err(error) => break Err(lost(error).into()),
                    };
                    if let Err(over) = answers.send(v1::PlayRecordingResponse { frames_json }).await {
                        break Err(over);
                    }
                };
                if playback.told > 0 {
                    // Reported once for each playing: whoever plays it must know, and so must the log.
                    let event = damaged.field("parts", playback.told as u64);
                    if let Err(error) = playing.log.append(vec![event]).await {
                        tracing::error!(%error, "an audit event is lost");
                    }
                }
                played
            },
        ))
    }
}

fn session_id(text: &str) -> Result<SessionId, Status> {
    text.parse().map_err(|error: sallyport_access::IdError| Status::invalid_argument(error.to_string()))
}

fn lost(error: RecordingStoreError) -> Status {
    Status::data_loss(error.to_string())
}

/// A recording that is being played, piece by piece.
struct Playback {
    reader: Reader<std::io::BufReader<std::fs::File>>,
    session: SessionId,
    last: std::time::Duration,
    /// Damaged parts that the peer has been told of.
    told: usize,
    is_over: bool,
}

impl Playback {
    fn open(
        recordings: &RecordingStore,
        session: SessionId,
        from: std::time::Duration,
    ) -> Result<Self, RecordingStoreError> {
        let mut reader = recordings.reader(session)?;
        if !from.is_zero() {
            reader.seek(from).map_err(|source| RecordingStoreError::Io { session, source })?;
        }
        Ok(Self { reader, session, last: from, told: 0, is_over: false })
    }

    /// Some more frames; none at the end. A damaged part is told in its place.
    fn next(&mut self) -> Result<Option<Vec<String>>, RecordingStoreError> {
        let session = self.session;
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while !self.is_over && bytes < PLAY_BYTES {
            let frame =
                self.reader.next_frame().map_err(|source| RecordingStoreError::Io { session, source })?;
            let at = frame.as_ref().map_or(self.last, |frame| frame.at);
            for damage in self.reader.damage().iter().skip(self.told) {
                let text = format!(
                    "{} bytes of this recording are damaged and were skipped: {}",
                    damage.length, damage.what
                );
                batch.push(export::json(&Frame { at, body: Body::Note { text } }));
            }
            self.told = self.reader.damage().len();
            match frame {
                Some(frame) => {
                    let json = export::json(&frame);
                    bytes += json.len();
                    batch.push(json);
                }
                None => self.is_over = true,
            }
        }
        Ok((!batch.is_empty()).then_some(batch))
    }
}

fn is_online(known: &Known, now: OffsetDateTime) -> bool {
    known.last_seen.is_some_and(|seen| now - seen < OFFLINE_AFTER)
}

fn key_cost(count: &KeyCount) -> v1::KeyCost {
    v1::KeyCost {
        purpose: count.purpose_name().to_owned(),
        algorithm: count.algorithm.name().to_owned(),
        generated: count.generated,
        cpu_microseconds: u64::try_from(count.cpu.as_micros()).unwrap_or(u64::MAX),
    }
}

pub(super) fn ca_status(inner: &Inner, ca: &CertAuthority, trust: &Trust) -> v1::CaStatus {
    let kind = ca.kind();
    let (ssh, tls, jwt) = (ca.ssh().ok(), ca.tls().ok(), ca.jwt().ok());
    let algorithm =
        |algorithm: Option<KeyAlgorithm>| algorithm.map(KeyAlgorithm::name).unwrap_or_default().to_owned();
    let mut custodies: Vec<String> = ca.record().keys().map(|key| inner.custodies.whereabouts(key)).collect();
    custodies.dedup();
    v1::CaStatus {
        kind: kind.name().to_owned(),
        ssh_fingerprint: ssh.map(SshSide::fingerprint).unwrap_or_default().to_owned(),
        tls_pin: tls.map(TlsSide::pin).unwrap_or_default(),
        ssh_algorithm: algorithm(ssh.map(SshSide::algorithm)),
        tls_algorithm: algorithm(tls.map(TlsSide::algorithm)),
        jwt_algorithm: algorithm(jwt.map(JwtSide::algorithm)),
        valid_until: tls.map(|tls| convert::time_to_proto(tls.valid_until())),
        custodies,
        suite: ca.record().suite.name().to_owned(),
        rotation: Some(rotation(trust.rotation(kind))),
        configured_custody: inner.custodies.place(kind).to_owned(),
    }
}

fn info(entry: &RecordingEntry) -> v1::RecordingInfo {
    let metadata = entry.metadata.as_ref();
    let of = |pick: fn(&sallyport_audit::recording::SessionMetadata) -> &String| {
        metadata.map(|metadata| pick(metadata).clone()).unwrap_or_default()
    };
    v1::RecordingInfo {
        session_id: entry.session.to_string(),
        user: of(|metadata| &metadata.user),
        login: of(|metadata| &metadata.login),
        node: of(|metadata| &metadata.node),
        started: metadata.map(|metadata| convert::time_to_proto(metadata.started)),
        duration: Some(convert::duration_to_proto(entry.duration)),
        bytes: entry.bytes,
        state: match entry.state {
            RecordingState::Complete if entry.damaged => "damaged".to_owned(),
            state => state.as_str().to_owned(),
        },
        command: metadata.and_then(|metadata| metadata.command.clone()).unwrap_or_default(),
        kind: of(|metadata| &metadata.kind),
    }
}
