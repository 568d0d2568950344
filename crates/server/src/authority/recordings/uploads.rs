//! Recordings as hosts upload them.

use std::sync::Arc;

use sallyport_access::{Identity, Principal, SessionId};
use sallyport_audit::recording::{RecordingState, StoreError as RecordingStoreError};
use sallyport_audit::{Code, Event};
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::{Status, Streaming};

use crate::authority::caller::Caller;
use crate::authority::recordings::kept::{Recordings, host_id, recording, session_id};

impl Recordings {
    /// Refuses the recording of another host's session.
    pub(crate) fn own_session(&self, identity: &Identity, session: SessionId) -> Result<(), Status> {
        match &identity.principal {
            Principal::Host { id, .. } if self.sessions.is_session_of(*id, session) => Ok(()),
            _ => Err(Status::permission_denied(format!("the session {session} belongs to another host"))),
        }
    }

    pub(crate) async fn upload(
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
                    let session = session_id(&message.session_id)?;
                    if let Err(status) = self.own_session(identity, session) {
                        return Err(self.gate.refuse(caller, "Fleet.UploadRecording", status).await);
                    }
                    (session, message.offset)
                }
                Some(at) => at,
            };
            let mut end = offset;
            if !message.data.is_empty() {
                let (recordings, owner, data) = (Arc::clone(self), host.clone(), message.data);
                let stored = tokio::task::spawn_blocking(move || {
                    recordings.reserve.admits(data.len())?;
                    Ok::<_, Status>(recordings.store.append(session, &owner, offset, &data))
                });
                let stored =
                    stored.await.map_err(|_| Status::internal("the recording could not be stored"))??;
                end = match stored {
                    Ok(end) => end,
                    Err(error @ RecordingStoreError::Owner(_)) => {
                        return Err(self
                            .gate
                            .refuse(caller, "Fleet.UploadRecording", recording(&error))
                            .await);
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
        if self.store.offset(session, host).map_err(|error| recording(&error))?.1 {
            return Ok(());
        }
        let not_closed = |_| Status::internal("the recording could not be closed");
        let (recordings, owner) = (Arc::clone(&self.store), host.to_owned());
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
                self.reports.bind_recorded(identity, &metadata.kind, &mut event);
            }
            event
        };
        let mut events = vec![event(code)];
        if entry.damaged {
            events.push(event(Code::RecordingDamaged));
        }
        // On record first: once it is closed its host asks no more, and the event would be lost.
        self.journal.record(events).await?;
        let (recordings, owner) = (Arc::clone(&self.store), host.to_owned());
        let closed = tokio::task::spawn_blocking(move || recordings.close(session, &owner)).await;
        closed.map_err(not_closed)?.map_err(|error| recording(&error))?;
        Ok(())
    }
}
