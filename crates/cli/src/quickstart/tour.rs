//! What all parts of the tour share: where it takes place, and how its steps are told.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sallyport_ca::Trust;
use sallyport_sal::selection;
use sallyport_wire::convert;
use sallyport_wire::v1::{ListRecordingsRequest, RecordingInfo};
use time::OffsetDateTime;

use crate::authority::{self, Authority, AuthorityArgs};
use crate::error::{CliError, CliResult, Context};
use crate::global::Global;
use crate::play;
use crate::ui;

/// The user of the tour.
pub(super) const USER: &str = "alice";

/// How long a part may take to come up before the tour gives up on it.
const PATIENCE: Duration = Duration::from_secs(20);

/// A cluster and a client on this machine.
pub(super) struct Tour {
    pub(super) path: PathBuf,
    pub(super) listen: std::net::SocketAddr,
    pub(super) began: Instant,
    pub(super) os_login: String,
    pub(super) global: Global,
    pub(super) program: PathBuf,
    /// What the certificates of the cluster are checked against, once it is up.
    pub(super) trust: Mutex<Option<Trust>>,
}

/// A finished step: what it made, and what to say of it.
pub(super) struct Done<T> {
    value: T,
    said: String,
}

pub(super) fn done<T>(value: T, said: impl Into<String>) -> CliResult<Done<T>> {
    Ok(Done { value, said: said.into() })
}

impl Tour {
    pub(super) fn new(path: &Path, listen: std::net::SocketAddr) -> CliResult<Self> {
        let user = nix::unistd::User::from_uid(nix::unistd::geteuid())
            .doing("look up your account")?
            .ok_or_else(|| CliError::new("your user id has no account on this machine"))?;
        Ok(Self {
            path: path.to_owned(),
            listen,
            began: Instant::now(),
            os_login: user.name,
            global: Global { home: Some(path.join("client")), proxy: Some(listen.to_string()), log: None },
            program: std::env::current_exe().doing("find the path of this program")?,
            trust: Mutex::default(),
        })
    }

    pub(super) async fn step<T>(
        &self,
        name: &str,
        work: impl Future<Output = CliResult<Done<T>>>,
    ) -> CliResult<T> {
        let begin = Instant::now();
        let Done { value, said } = work.await?;
        ui::data(format!("  {name:<9} {said:<76} {:>5} ms", begin.elapsed().as_millis()))?;
        Ok(value)
    }

    pub(super) fn data_dir(&self) -> PathBuf {
        self.path.join("data")
    }

    pub(super) async fn authority(&self) -> CliResult<Authority> {
        let arguments = AuthorityArgs { data_dir: Some(self.data_dir()) };
        authority::open(&self.global, &arguments).await
    }

    /// This very program, as a user would start it.
    pub(super) fn user_s_program(&self) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(&self.program);
        if selection::global().is_fips() {
            command.env(crate::crypto::VARIABLE, "fips");
        }
        command
    }

    /// The recording of a session that has begun since, which must hold this.
    pub(super) async fn recording_with(
        &self,
        target: &str,
        since: OffsetDateTime,
        what: &str,
    ) -> CliResult<RecordingInfo> {
        let authority = authority::open(&self.global, &AuthorityArgs::default()).await?;
        let mut cluster = authority.cluster();
        let finished = || {
            let mut cluster = cluster.clone();
            async move {
                let request = ListRecordingsRequest {
                    limit: 1,
                    user: USER.to_owned(),
                    node: target.to_owned(),
                    ..Default::default()
                };
                let recordings = cluster
                    .list_recordings(request)
                    .await
                    .map_err(|status| CliError::from_status("list the recordings", &status))?
                    .into_inner()
                    .recordings;
                let started = |recording: &RecordingInfo| {
                    recording
                        .started
                        .as_ref()
                        .and_then(convert::time_from_proto)
                        .is_some_and(|at| at >= since)
                };
                Ok(recordings
                    .into_iter()
                    .find(|recording| recording.state == "complete" && started(recording)))
            }
        };
        let recording = until(finished, "the recording to arrive").await?;
        let text = play::text(&mut cluster, &recording.session_id).await?;
        if !text.contains(what) {
            return Err(CliError::new(format!("the recording does not hold what the session did: {text:?}")));
        }
        Ok(recording)
    }
}

/// JSON strings are YAML strings.
pub(super) fn yaml_string(path: &Path) -> String {
    serde_json::Value::String(path.to_string_lossy().into_owned()).to_string()
}

/// Asks again until there is an answer.
pub(super) async fn until<T, F: Future<Output = CliResult<Option<T>>>>(
    mut ask: impl FnMut() -> F,
    what: &str,
) -> CliResult<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await? {
            return Ok(answer);
        }
        if Instant::now() > deadline {
            return Err(CliError::new(format!("waited {} s for {what}", PATIENCE.as_secs()))
                .hint("run again with SALLYPORT_LOG=debug"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
