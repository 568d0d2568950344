//! From the moment that a user is proven, a connection counts for the user; one too many is told so.

use std::net::SocketAddr;

use sallyport_access::Identity;
use sallyport_audit::{Code, Event, Sink};
use time::OffsetDateTime;
use tracing::info;

use crate::listener::{Crowded, Slot};

/// What the event of such a connection says for a reason.
const TOO_MANY: &str = "too_many_connections";

/// Counts a connection for the user that is proven on it. Hosts have no place of their own here: they stay with their address.
pub(super) fn prove(slot: &Slot, identity: &Identity) -> Result<(), Crowded> {
    identity.user().map_or(Ok(()), |user| slot.prove(user))
}

/// Puts on record that a user has one connection too many, once a minute with how many there were.
pub(super) fn refused(sink: &dyn Sink, identity: &Identity, peer: SocketAddr, crowded: Crowded) {
    let user = identity.display_name();
    info!(user, bound = crowded.bound, "a connection too many");
    let Some(count) = crowded.record else { return };
    let event = Event::new(Code::SessionRefused, OffsetDateTime::now_utc())
        .user(user)
        .source(peer.to_string())
        .message(crowded.message())
        .field("reason", TOO_MANY)
        .field("limit", crowded.bound)
        .field("count", count)
        .field("at", "proxy");
    sink.emit(event);
}
