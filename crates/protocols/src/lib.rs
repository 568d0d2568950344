//! The table of protocols: one row for each, which the listener, the authority, agents, programs and tests read. A protocol of the
//! catalogue is a crate that exports a [`Serving`](sallyport_session::serving::Serving), its [`Kind`], and a line here.

mod protocol;
mod table;

use sallyport_access::Kind;
use sallyport_access::listed::Spec;
use sallyport_wire::detect::Verdict;

pub use self::protocol::Protocol;
pub use self::table::ALL;

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
