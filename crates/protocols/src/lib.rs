//! The table of protocols: one row for each, which the listener, the authority, agents, programs and tests read. A protocol of the
//! catalogue is a crate that exports a [`Serving`], its [`Kind`], and a line here.

mod table;

use sallyport_access::Kind;
use sallyport_access::listed::Spec;
use sallyport_audit::Code;
use sallyport_session::serving::Serving;
use sallyport_wire::detect::Verdict;

pub use self::table::ALL;

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

/// The row of a kind.
#[must_use]
pub fn row(kind: Kind) -> Option<&'static Protocol> {
    ALL.iter().find(|row| row.kind == kind)
}

/// How documents of a kind are read, for kinds that the catalogue keeps.
#[must_use]
pub fn spec(kind: Kind) -> Option<&'static Spec> {
    row(kind)?.catalogued.map(|serving| &serving.spec)
}

/// The protocol of a client that comes to the one port with these first bytes.
#[must_use]
pub fn by_first_bytes(verdict: Verdict) -> Option<&'static Protocol> {
    ALL.iter().find(|row| row.first_bytes == Some(verdict))
}

/// The protocol of a client that comes to the one port and asks for this in TLS.
#[must_use]
pub fn by_alpn(asked: &[u8]) -> Option<&'static Protocol> {
    ALL.iter().find(|row| row.alpn == Some(asked))
}

#[cfg(test)]
mod tests;
