//! What a protocol of the catalogue gives to agents: how its documents are read, what an agent dials for a resource, and how the
//! bytes of a session are carried. Everything else (who the user is, the decision, the record, limits, locks, drains) is the
//! agent's, and the same for all.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};

use sallyport_access::Listed;
use sallyport_access::listed::Spec;
use sallyport_audit::Code;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::session::{Codes, Counts, End, Session};

/// A stream of bytes, with an end in each direction.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// How agents serve resources of one kind.
pub struct Serving {
    /// How its documents are read.
    pub spec: Spec,
    /// The events of its sessions.
    pub codes: Codes,
    /// The event of a session that a proxy has lost the way of.
    pub lost: Code,
    /// What an agent dials, as `host:port`; none where this release does not understand the specification.
    pub address: fn(&Listed) -> Option<String>,
    /// Carries the bytes between a client and what was dialled, until the session is over. It is dropped where the session has to
    /// end before that.
    pub carry: Carry,
}

/// See [`Serving::carry`].
pub type Carry = for<'a> fn(Carried<'a>) -> Pin<Box<dyn Future<Output = End> + Send + 'a>>;

/// What is carried.
pub struct Carried<'a> {
    /// The user's program. Shutting it down ends what goes to the program alone.
    pub client: &'a mut dyn Stream,
    /// What was dialled.
    pub upstream: &'a mut dyn Stream,
    /// The session, for its record and to note that something was done.
    pub session: &'a Session,
    /// What has passed; it counts also where the session is cut.
    pub tally: &'a Tally,
}

/// What a session has carried so far, in bytes.
#[derive(Debug, Default)]
pub struct Tally {
    from_client: AtomicU64,
    to_client: AtomicU64,
}

impl Tally {
    /// These came from the client and went to the resource.
    pub fn from_client(&self, bytes: usize) {
        self.from_client.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// These came from the resource and went to the client.
    pub fn to_client(&self, bytes: usize) {
        self.to_client.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// So many so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts { bytes_in: of(&self.from_client), bytes_out: of(&self.to_client) }
    }
}

impl std::fmt::Debug for Serving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Serving")
            .field("spec", &self.spec)
            .field("codes", &self.codes)
            .finish_non_exhaustive()
    }
}
