//! What a client says before all else, as far as the proxy decides about it.

use sallyport_access::HostId;
use sallyport_databases::postgres::startup::Startup;

/// As whom a client wants which database of the server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Said<'a> {
    pub(super) user: Option<&'a str>,
    pub(super) name: Option<&'a str>,
    /// It wants to replicate. A client whose TLS goes on to an agent says that to the agent.
    pub(super) replicates: bool,
    /// For a client whose TLS goes on to an agent: the agents that will do.
    pub(super) end_to_end: Option<&'a [HostId]>,
}

impl<'a> Said<'a> {
    pub(super) fn by(startup: &'a Startup) -> Self {
        Self {
            user: startup.user(),
            name: startup.database(),
            replicates: startup.wants_replication(),
            end_to_end: None,
        }
    }
}
