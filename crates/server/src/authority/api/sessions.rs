//! The API of sessions that run, and of keeping and removing recordings.

use std::sync::Arc;

use sallyport_access::Verb;
use sallyport_audit::Code;
use sallyport_wire::v1;
use sallyport_wire::v1::sessions_server::Sessions;
use tonic::{Request, Response, Status};

use crate::authority::audit::journal::Journal;
use crate::authority::caller::{Caller, caller};
use crate::authority::gate::calls::Gate;
use crate::authority::recordings::kept::{Recordings, session_id};
use crate::authority::sessions::running::LiveSessions;

/// Sessions that run, and recordings.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) gate: Arc<Gate>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) sessions: Arc<LiveSessions>,
    pub(crate) recordings: Arc<Recordings>,
}

#[tonic::async_trait]
impl Sessions for Service {
    async fn list_sessions(
        &self,
        request: Request<v1::ListSessionsRequest>,
    ) -> Result<Response<v1::ListSessionsResponse>, Status> {
        const METHOD: &str = "Sessions.ListSessions";
        let caller = caller(&request);
        if !matches!(caller, Caller::LocalAdmin) {
            let identity = self.gate.certified(&caller, METHOD).await?;
            if identity.user().is_none() {
                let status = Status::permission_denied("hosts do not list sessions");
                return Err(self.gate.refuse(&caller, METHOD, status).await);
            }
        }
        self.journal.called(&caller, METHOD, "").await?;
        let sessions = Arc::clone(&self.sessions);
        let request = request.into_inner();
        let listed = tokio::task::spawn_blocking(move || sessions.list(&caller, &request)).await;
        let sessions = listed.map_err(|_| Status::internal("the sessions could not be listed"))?;
        Ok(Response::new(v1::ListSessionsResponse { sessions }))
    }

    async fn end_session(
        &self,
        request: Request<v1::EndSessionRequest>,
    ) -> Result<Response<v1::EndSessionResponse>, Status> {
        let caller = caller(&request);
        let session = self.sessions.end(&caller, request.into_inner()).await?;
        Ok(Response::new(v1::EndSessionResponse { session: Some(session) }))
    }

    async fn remove_recording(
        &self,
        request: Request<v1::RemoveRecordingRequest>,
    ) -> Result<Response<v1::RemoveRecordingResponse>, Status> {
        let caller = caller(&request);
        self.gate.allow(&caller, "Sessions.RemoveRecording", "recording", Verb::Delete).await?;
        let session = session_id(&request.get_ref().session_id)?;
        let event = caller.event(Code::RecordingRemoved);
        let bytes = self.recordings.remove(session, event).await?;
        Ok(Response::new(v1::RemoveRecordingResponse { bytes }))
    }

    async fn hold_recording(
        &self,
        request: Request<v1::HoldRecordingRequest>,
    ) -> Result<Response<v1::HoldRecordingResponse>, Status> {
        let caller = caller(&request);
        self.gate.allow(&caller, "Sessions.HoldRecording", "recording", Verb::Delete).await?;
        let v1::HoldRecordingRequest { session_id: id, hold } = request.into_inner();
        let session = session_id(&id)?;
        if self.recordings.hold(session, hold).await? {
            let code = if hold { Code::RecordingHeld } else { Code::RecordingReleased };
            self.journal.record(vec![caller.event(code).session(session)]).await?;
        }
        Ok(Response::new(v1::HoldRecordingResponse {}))
    }
}
