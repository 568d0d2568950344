//! What of the client's a server may reach: the agent and the display, each for as long as a session forwards it.

use std::fmt;
use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::BoxedStream;
use crate::client::{AgentSource, DisplayError, DisplayOrigin};
use crate::node::client::{Client, Opening};

/// Bytes on their way between an agent and the server.
const AGENT_BYTES: usize = 64 * 1024;

/// One thing of the client's, and how many sessions forward it: it is forgotten with the last one.
#[derive(Default)]
pub(super) struct Lent(Mutex<(usize, Option<Client>)>);

impl Lent {
    fn with<T>(&self, act: impl FnOnce(&mut (usize, Option<Client>)) -> T) -> T {
        act(&mut self.0.lock())
    }

    /// Lends it for as long as the result lives.
    pub(super) fn lend(self: &Arc<Self>, client: Client) -> Lending {
        self.with(|(sessions, known)| {
            *sessions += 1;
            *known = Some(client);
        });
        Lending(self.clone())
    }

    fn client(&self) -> Option<Client> {
        self.with(|(_, client)| client.clone())
    }
}

/// One session that forwards it.
pub(super) struct Lending(Arc<Lent>);

impl Drop for Lending {
    fn drop(&mut self) {
        self.0.with(|(sessions, client)| {
            *sessions = sessions.saturating_sub(1);
            if *sessions == 0 {
                *client = None;
            }
        });
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lent")
    }
}

/// A connection to the client's agent.
pub(super) fn agent_of(client: Client) -> BoxedStream {
    let (near, far) = tokio::io::duplex(AGENT_BYTES);
    tokio::spawn(async move { client.carry(Opening::Agent, Box::new(far)).await });
    Box::new(near)
}

#[async_trait]
impl AgentSource for Lent {
    async fn open(&self) -> io::Result<BoxedStream> {
        self.client().map(agent_of).ok_or_else(|| io::Error::other("no agent is forwarded"))
    }
}

/// The client's display, for one server.
#[derive(Debug)]
pub(super) struct LentDisplay {
    pub(super) lent: Arc<Lent>,
    /// What the events call it.
    pub(super) name: String,
}

#[async_trait]
impl DisplayOrigin for LentDisplay {
    async fn carry(&self, from: (String, u32), program: BoxedStream) -> Result<(), DisplayError> {
        let gone = || DisplayError::Origin("no session forwards X11 any more".to_owned());
        let client = self.lent.client().ok_or_else(gone)?;
        client.carry(Opening::X11 { display: self.name.clone(), from }, program).await;
        Ok(())
    }
}
