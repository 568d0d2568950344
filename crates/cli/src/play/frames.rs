//! The frames of a recording, as they arrive.

use std::collections::VecDeque;

use sallyport_audit::recording::Frame;
use sallyport_wire::v1::cluster_client::ClusterClient;
use sallyport_wire::v1::{PlayRecordingRequest, PlayRecordingResponse};
use tonic::Streaming;

use crate::error::{CliError, CliResult};
use sallyport_client::channel::Channel;

/// The frames of a recording, as they arrive. The authority ends what is not read for some minutes; then it is asked again.
pub(super) struct Frames {
    client: ClusterClient<Channel>,
    session: String,
    messages: Streaming<PlayRecordingResponse>,
    ready: VecDeque<String>,
    /// Frames that were given out.
    taken: usize,
    /// Frames that come once more.
    again: usize,
}

impl Frames {
    pub(super) async fn open(client: &mut ClusterClient<Channel>, session: &str) -> CliResult<Self> {
        let (mut client, session) = (client.clone(), session.to_owned());
        let messages = Self::ask(&mut client, &session).await?;
        Ok(Self { client, session, messages, ready: VecDeque::new(), taken: 0, again: 0 })
    }

    async fn ask(
        client: &mut ClusterClient<Channel>,
        session: &str,
    ) -> CliResult<Streaming<PlayRecordingResponse>> {
        let request = PlayRecordingRequest { session_id: session.to_owned(), from: None };
        let messages = client.play_recording(request).await;
        let messages = messages.map_err(|status| CliError::from_status("play the recording", &status))?;
        Ok(messages.into_inner())
    }

    pub(super) async fn next(&mut self) -> CliResult<Option<Frame>> {
        loop {
            if let Some(text) = self.ready.pop_front() {
                if self.again > 0 {
                    self.again -= 1;
                    continue;
                }
                self.taken += 1;
                let frame = serde_json::from_str(&text).map_err(|error| {
                    CliError::new(format!(
                        "the recording holds a frame that this release does not know: {error}"
                    ))
                    .hint("play it with the release of sallyport that the cluster runs")
                })?;
                return Ok(Some(frame));
            }
            match self.messages.message().await {
                Ok(Some(message)) => self.ready.extend(message.frames_json),
                Ok(None) => return Ok(None),
                Err(status) if status.code() == tonic::Code::DeadlineExceeded && self.again == 0 => {
                    self.messages = Self::ask(&mut self.client, &self.session).await?;
                    self.again = self.taken;
                }
                Err(status) => return Err(CliError::from_status("play the recording", &status)),
            }
        }
    }
}
