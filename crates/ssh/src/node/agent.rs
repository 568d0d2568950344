//! The client's ssh-agent, reachable from a session through a socket of its account.

use std::io;
use std::path::PathBuf;

use tokio::net::UnixListener;
use tokio::task::JoinHandle;

use super::account_directory::AccountDirectory;
use super::client::{Client, Opening};
use crate::session::Account;

/// Agent connections that one session may have open at once.
const MAX_CONNECTIONS: usize = 32;
/// The socket's name in its directory.
const SOCKET: &str = "agent";

/// The socket of one session. It and its directory go when this is dropped.
pub(super) struct AgentSocket {
    directory: AccountDirectory,
    task: JoinHandle<()>,
}

impl AgentSocket {
    /// Makes a socket that only the account can reach, each connection to which is one to the client's agent.
    pub(super) fn open(account: &Account, client: Client) -> io::Result<Self> {
        let mut directory = AccountDirectory::make("agent")?;
        let listener = directory.listen(SOCKET)?;
        directory.give_to(account)?;
        Ok(Self { directory, task: tokio::spawn(serve(listener, client)) })
    }

    pub(super) fn path(&self) -> PathBuf {
        self.directory.path_of(SOCKET)
    }
}

impl Drop for AgentSocket {
    fn drop(&mut self) {
        self.task.abort();
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
