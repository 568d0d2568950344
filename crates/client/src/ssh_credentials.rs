//! The SSH key of a stored login with its certificate, wherever the key is: in a file of the login or, where it is the user's own, in the
//! user's SSH agent. No program of ours reads a private key of the user's own.

use std::path::PathBuf;
use std::time::Duration;

use futures::future::BoxFuture;
use sallyport_ssh::agent::{AgentError, UserAgent};
use sallyport_ssh::client::{ClientError, Credentials};

use super::profile::Stored;
use crate::error::{Doing, Error, Result};

/// Where the user's agent listens.
const SOCKET: &str = "SSH_AUTH_SOCK";
/// How long the agent may take to say which keys it holds.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a stored login logs in with by SSH.
///
/// # Errors
/// The files of the login cannot be used; [`Error::KeyNotInAgent`] for a key of the user's own that no agent holds.
pub fn credentials(stored: &Stored) -> BoxFuture<'_, Result<Credentials>> {
    let socket = std::env::var_os(SOCKET).filter(|socket| !socket.is_empty()).map(PathBuf::from);
    Box::pin(by(stored, socket))
}

async fn by(stored: &Stored, socket: Option<PathBuf>) -> Result<Credentials> {
    let certificate = stored.read("ssh_key-cert.pub")?;
    let doing = "use the stored SSH certificate";
    if stored.profile.ssh_key.is_none() {
        return Credentials::from_openssh(&stored.read("ssh_key")?, &certificate).doing(doing);
    }
    let not_held = |why: String| Error::KeyNotInAgent { file: stored.ssh_key_path(), why };
    let socket = socket.ok_or_else(|| not_held(format!("there is no agent ({SOCKET} is not set)")))?;
    let asking = async {
        let agent = UserAgent::connect(&socket).await;
        let agent = agent.map_err(|error| {
            not_held(format!("the agent at {} cannot be reached: {error}", socket.display()))
        })?;
        Credentials::by_agent(agent, &certificate).await.or_else(|error| match error {
            ClientError::Agent(AgentError::NotHeld) => Err(not_held("the agent does not hold it".to_owned())),
            ClientError::Agent(error) => Err(not_held(format!("of the agent, {error}"))),
            other => Err(other).doing(doing),
        })
    };
    let asked = tokio::time::timeout(PATIENCE, asking).await;
    asked.unwrap_or_else(|_| {
        Err(not_held(format!("the agent does not answer within {} s", PATIENCE.as_secs())))
    })
}
