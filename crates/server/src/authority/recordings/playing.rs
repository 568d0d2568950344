//! Recordings as they are listed and played.

use std::sync::Arc;

use sallyport_access::{SessionId, Verb};
use sallyport_audit::Code;
use sallyport_audit::recording::{
    Body, Frame, Reader, RecordingEntry, RecordingState, RecordingStore, StoreError as RecordingStoreError,
    export,
};
use sallyport_wire::{convert, v1};
use tonic::Status;

use crate::authority::caller::Caller;
use crate::authority::recordings::kept::{Recordings, session_id};
use crate::authority::streams::{Line, Served, StreamKind};

/// Recordings in one answer.
const RECORDINGS: usize = 1000;

/// Recordings that are opened for one answer, beside those that are known already.
const OPENED: usize = 500;

/// Bytes of frames in one message of a playback.
const PLAY_BYTES: usize = 256 * 1024;

/// Messages that a playback may be ahead of its peer.
const PLAY_QUEUE: usize = 2;

impl Recordings {
    /// Whether a caller may read the recording of this owner's session.
    fn may_play(&self, caller: &Caller, owner: &str) -> Result<(), Status> {
        let Some(identity) = caller.identity() else { return Ok(()) };
        let identity = self.gate.valid(identity)?;
        let cache = self.policy.cache();
        let refused = cache.policies.may_read_session(&identity, owner).err();
        refused.map_or(Ok(()), |refusal| Err(Status::permission_denied(refusal.public_message())))
    }

    pub(crate) async fn play(
        self: &Arc<Self>,
        caller: &Caller,
        line: Line,
        request: v1::PlayRecordingRequest,
    ) -> Result<Served<v1::PlayRecordingResponse>, Status> {
        const METHOD: &str = "Cluster.PlayRecording";
        if !matches!(caller, Caller::LocalAdmin) {
            self.gate.certified(caller, METHOD).await?;
        }
        let session = session_id(&request.session_id)?;
        let place = match self.streams.place(StreamKind::Reading, caller) {
            Ok(place) => place,
            Err(status) => return Err(self.gate.refuse(caller, METHOD, status).await),
        };
        let recordings = Arc::clone(&self.store);
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
        // Only a caller who may play a recording learns whether it exists.
        if let Err(status) = self.may_play(caller, &owner) {
            return Err(self.gate.refuse(caller, METHOD, status).await);
        }
        let Some(entry) = entry else {
            return Err(Status::not_found(format!(
                "there is no recording of session {session}; one that has just ended may take a few seconds to arrive"
            )));
        };
        let mut event = caller.event(Code::RecordingPlayed).session(session);
        if let Some(metadata) = &entry.metadata {
            event = event.node(metadata.node.clone()).field("owner", metadata.user.clone());
        }
        self.journal.record(vec![event]).await?;
        let from = request.from.as_ref().and_then(convert::duration_from_proto).unwrap_or_default();
        let damaged = caller.event(Code::RecordingDamaged).session(session);
        let (playing, gate) = (Arc::clone(self), Arc::clone(self));
        let asker = caller.clone();
        Ok(self.streams.stream(
            place,
            line,
            PLAY_QUEUE,
            move || gate.may_play(&asker, &owner),
            |answers| async move {
                let failed = |_| Status::internal("the recording cannot be read");
                let recordings = Arc::clone(&playing.store);
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
                    // Reported once for each playing: the viewer has to know, and so has the log.
                    let event = damaged.field("parts", playback.told as u64);
                    if let Err(error) = playing.journal.log().append(vec![event]).await {
                        tracing::error!(%error, "an audit event is lost");
                    }
                }
                played
            },
        ))
    }

    pub(crate) async fn list(
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
        let all = self.gate.check(caller, "recording", Verb::List).is_ok();
        let own = caller.identity().and_then(|identity| identity.user()).map(ToString::to_string);
        let recordings = Arc::clone(&self.store);
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
