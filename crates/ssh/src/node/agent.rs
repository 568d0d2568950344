//! The client's ssh-agent, reachable from a session through a socket of its account.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::forward::inward::{Client, Opening};
use crate::session::Account;

/// Agent connections that one session may have open at once.
const MAX_CONNECTIONS: usize = 32;

/// The socket of one session. It and its directory go when this is dropped.
pub(super) struct AgentSocket {
    directory: PathBuf,
    path: PathBuf,
    task: JoinHandle<()>,
}

impl AgentSocket {
    /// Makes a socket that only the account can reach, each connection to which is one to the client's agent.
    pub(super) fn open(account: &Account, client: Client) -> io::Result<Self> {
        let directory = std::env::temp_dir().join(format!("sallyport-agent-{}", Uuid::new_v4().simple()));
        // Fails when it exists: nobody can have put something there to be followed.
        DirBuilder::new().mode(0o700).create(&directory)?;
        let path = directory.join("agent");
        let open = || {
            let listener = UnixListener::bind(&path)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
            if nix::unistd::geteuid().is_root() {
                // The directory last: until then nobody but root can change what is in it.
                std::os::unix::fs::chown(&path, Some(account.uid), Some(account.gid))?;
                std::os::unix::fs::chown(&directory, Some(account.uid), Some(account.gid))?;
            }
            Ok(listener)
        };
        match open() {
            Ok(listener) => {
                let task = tokio::spawn(serve(listener, client));
                Ok(Self { directory, path, task })
            }
            Err(error) => {
                let _ = fs::remove_file(&path);
                let _ = fs::remove_dir(&directory);
                Err(error)
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for AgentSocket {
    fn drop(&mut self) {
        self.task.abort();
        // Only what was made here: the account may have put something else into its directory.
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_dir(&self.directory);
    }
}

async fn serve(listener: UnixListener, client: Client) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { return };
                if connections.len() >= MAX_CONNECTIONS {
                    continue;
                }
                let client = client.clone();
                connections.spawn(async move { client.carry(Opening::Agent, Box::new(stream)).await });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}
