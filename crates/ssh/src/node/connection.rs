//! One connection, from its first byte to its last.

mod handler;
mod hold;
mod layer;
mod limits;
mod login;
pub(super) mod native;
pub(super) mod shared;
pub(super) mod taking;
mod wishes;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use russh::server::Config;
use sallyport_audit::{Code, Event};
use sallyport_sal::HybridKeyExchange;
use tokio::time::timeout;
use tracing::Instrument;

pub(super) use shared::{Live, Shared, Word};

use crate::capabilities::{Heard, hear_out};
use crate::inbound::Line;
use crate::transport::accept::Terms;
use crate::{BoxedStream, Stream};

/// How a connection begins.
pub(super) struct Manner {
    /// What the library is told.
    pub(super) config: Arc<Config>,
    /// On what terms clients are let in.
    pub(super) terms: Terms,
}

/// Serves one connection to its end.
pub(super) async fn serve(stream: BoxedStream, shared: Arc<Shared>, manner: Manner) {
    let span = tracing::info_span!(
        "ssh",
        peer = %shared.source(),
        user = tracing::field::Empty,
        login = tracing::field::Empty
    );
    // What is read is held back behind [`crate::transport`].
    let line = Line::new(stream, shared.line.clone(), Arc::default());
    greet(line, &shared, manner).instrument(span).await;
    shared.opening.failed("no_session");
    shared.saw(None);
    if shared.access.get().is_none() && !shared.refused.load(Ordering::Relaxed) {
        shared.server.sink.emit(not_in(&shared));
    }
}

/// No user was let in: why, as far as it is known.
fn not_in(shared: &Shared) -> Event {
    let event = shared.event(Code::SessionRefused);
    if let (Some(reason), Some(offer)) = (shared.no_common.get(), shared.offered.offer()) {
        let event = event.message(format!("the client cannot talk to this node: {reason}"));
        return event.field("client", offer.software.as_str());
    }
    let none = "the client presented no certificate of this cluster that is valid now";
    match shared.not_tried.get() {
        // It may be of another cluster, and the one for this one has expired.
        Some((login, reason)) => {
            event.login(login.as_str()).message(format!("{none}; of its keys one was not tried: {reason}"))
        }
        None => event.message(none),
    }
}

/// Hears the client out first where not every one fits.
async fn greet(line: Line<impl Stream + 'static>, shared: &Arc<Shared>, manner: Manner) {
    let Manner { config, terms } = manner;
    match terms.demand {
        HybridKeyExchange::Preferred => {
            layer::supervise(Box::new(shared.offered.along(line)), shared, config, terms).await;
        }
        HybridKeyExchange::Required => {
            let heard = timeout(shared.server.config.login_timeout, hear_out(line)).await;
            match heard {
                Ok(Ok(Heard::Fits(greeted))) => {
                    let along = Box::new(shared.offered.along(greeted));
                    layer::supervise(along, shared, config, terms).await;
                }
                Ok(Ok(Heard::Refused { offer, reason })) => {
                    tracing::info!(client = offer.software, %reason, "a client was sent away");
                    shared.offered.set(offer);
                    let _ = shared.no_common.set(reason);
                }
                Ok(Err(error)) => tracing::debug!(%error, "no SSH connection"),
                Err(_) => tracing::debug!("the client said nothing"),
            }
        }
    }
}
