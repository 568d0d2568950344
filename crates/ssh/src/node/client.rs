//! The client of a connection, as those see it who open connections towards it.

use std::sync::Arc;

use async_trait::async_trait;

use crate::BoxedStream;

/// What a connection to the client is.
#[derive(Debug, Clone)]
pub(crate) enum Opening {
    /// To its agent.
    Agent,
    /// To its display.
    X11 {
        /// What the session's programs call it.
        display: String,
        /// Who connected, as an address and a port.
        from: (String, u32),
    },
    /// To what it forwards from a port.
    Port {
        /// Where the node listens, in the client's words.
        address: String,
        /// The port, as allocated.
        port: u32,
        /// Who connected.
        from: (String, u32),
    },
    /// To what it forwards from a Unix socket.
    Socket {
        /// Where the node listens.
        path: String,
    },
}

/// Opens channels towards a client.
#[async_trait]
pub(crate) trait Carries: Send + Sync {
    /// Connects a stream to the client and carries bytes until either has ended. What the client does not let in is
    /// closed. Where this is dropped, the connection is cut: the client is told, since stock `ssh` stays for as long as it
    /// has an open channel.
    async fn carry(&self, opening: Opening, stream: BoxedStream);
}

/// The client of a connection. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Client(Arc<dyn Carries>);

impl Client {
    pub(in crate::node) fn new(carries: Arc<dyn Carries>) -> Self {
        Self(carries)
    }

    /// As [`Carries::carry`].
    pub(crate) async fn carry(&self, opening: Opening, stream: BoxedStream) {
        self.0.carry(opening, stream).await;
    }
}
