//! The user's ssh-agent, which may hold the key and the certificate of a login.

use std::io::Write as _;
use std::process::{Command, Stdio};

use futures::future::BoxFuture;
use time::OffsetDateTime;

use super::profile::Stored;

/// Why ssh-agent does not hold a key.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// None runs.
    #[error("there is no ssh-agent to add the key to")]
    None,
    /// It refuses, or ssh-add does not run.
    #[error("ssh-agent did not take the key: {0}")]
    Refused(String),
}

/// Whether an agent runs.
fn is_there() -> bool {
    std::env::var_os("SSH_AUTH_SOCK").is_some()
}

/// Hands the key and the certificate of a login to the agent for as long as the certificate lives.
///
/// # Errors
/// There is no agent, or it refuses.
pub fn add(stored: &Stored) -> BoxFuture<'_, Result<(), AgentError>> {
    Box::pin(async move {
        if !is_there() {
            return Err(AgentError::None);
        }
        let left = (stored.profile.valid_until - OffsetDateTime::now_utc()).whole_seconds().max(1);
        let added = tokio::process::Command::new("ssh-add")
            .arg("-q")
            .arg("-t")
            .arg(left.to_string())
            .arg(stored.ssh_key_path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output()
            .await;
        match added {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(AgentError::Refused(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
            Err(error) => Err(AgentError::Refused(format!("cannot run ssh-add: {error}"))),
        }
    })
}

/// Whether the agent holds the certificate of this login by our hand. A key of the user's own is never put there by us.
pub fn holds(stored: &Stored) -> bool {
    if !is_there() || stored.profile.ssh_key.is_some() {
        return false;
    }
    let Ok(certificate) = stored.read("ssh_key-cert.pub") else { return false };
    let Some(blob) = certificate.split_whitespace().nth(1) else { return false };
    let listed = Command::new("ssh-add").arg("-L").stdin(Stdio::null()).stderr(Stdio::null()).output();
    listed.is_ok_and(|listed| String::from_utf8_lossy(&listed.stdout).contains(blob))
}

/// What the agent may hold of a login by our hand, whose files another login is about to take.
#[derive(Debug)]
pub struct Former(Vec<String>);

impl Former {
    /// Of a login that is stored.
    #[must_use]
    pub fn of(stored: &Stored) -> Self {
        let key = stored.profile.ssh_key.is_none().then_some("ssh_key.pub");
        let files = ["ssh_key-cert.pub"].into_iter().chain(key);
        Self(files.filter_map(|name| Some(stored.read(name).ok()?.trim().to_owned())).collect())
    }

    /// Takes it from the agent: nothing that removes the login that follows would find it there.
    pub fn remove(&self) {
        if !is_there() {
            return;
        }
        for line in &self.0 {
            let removing = Command::new("ssh-add")
                .args(["-q", "-d", "-"])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            let Ok(mut removing) = removing else { return };
            if let Some(mut input) = removing.stdin.take() {
                let _ = input.write_all(format!("{line}\n").as_bytes());
            }
            let _ = removing.wait();
        }
    }
}

/// Takes the key and the certificate of a login from the agent. It may never have had them; either way they are gone afterwards. A key of the
/// user's own stays, where the user has put it.
pub fn remove(stored: &Stored) {
    if !is_there() {
        return;
    }
    let key = stored.profile.ssh_key.is_none().then(|| stored.ssh_key_path());
    for file in [stored.ssh_certificate_path()].into_iter().chain(key) {
        let _ = Command::new("ssh-add")
            .args(["-q", "-d"])
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}
