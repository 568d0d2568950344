//! What a row of the table says.

use sallyport_access::Kind;
use sallyport_audit::Code;
use sallyport_session::serving::Serving;
use sallyport_wire::detect::Verdict;

/// What is known of one protocol.
#[derive(Debug)]
pub struct Protocol {
    /// The kind of its resources.
    pub kind: Kind,
    /// What a client of its own that comes to the one port says first, where such clients come.
    pub first_bytes: Option<Verdict>,
    /// What such a client asks for in TLS (RFC 7301), where it does.
    pub alpn: Option<&'static [u8]>,
    /// What our own programs ask for in the TLS that goes on to the host. No listener chooses it.
    pub inner_alpn: Option<&'static [u8]>,
    /// How agents serve it, for kinds that the catalogue keeps; others have code of their own.
    pub catalogued: Option<&'static Serving>,
    /// The commands for its users, such as `db connect`.
    pub commands: &'static [&'static str],
    /// The events of its sessions.
    pub codes: &'static [Code],
    /// What is counted of it; `docs/operations.md` has each.
    pub metrics: &'static [&'static str],
    /// The guides, below `docs/`. Together they name the commands, and of what the catalogue keeps the events and
    /// the keys of a document.
    pub guides: &'static [&'static str],
}
