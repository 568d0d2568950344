//! How many files this process may have open: every connection is one, and one that is passed on to the authority two.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{debug, warn};

/// Raises the limit as far as it may be raised. A service begins with 1024, which is for programs that use select(2); a
/// proxy of a thousand agents needs more. What sessions start gets the 1024 back (`ssh::helper::surroundings`).
///
/// `connections` is what the configuration lets the proxy have.
pub(crate) fn raise(connections: Option<usize>) {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let now = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            warn!(%error, "cannot raise the limit of open files");
            limit.current
        }
    };
    let now = now.unwrap_or(u64::MAX);
    debug!(open_files = now, "limit of open files");
    if let Some(connections) = connections
        && now < u64::try_from(connections).unwrap_or(u64::MAX)
    {
        warn!(
            open_files = now,
            connections,
            "fewer open files than proxy.limits.connections; set LimitNOFILE= of the service, or ulimit -Hn, to more"
        );
    }
}
