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

use russh::Disconnect;
use russh::server::Config;
use sallyport_audit::{Code, Event};
use sallyport_sal::HybridKeyExchange;
use sallyport_sal::uses::{self, Aside};
use tokio::time::{Instant, timeout};
use tracing::Instrument;

pub(super) use shared::{Live, Shared, Word};

use crate::capabilities::{Heard, hear_out, no_common_algorithm};
use crate::inbound::Line;
use crate::node::opening::Phase;
use crate::transport::accept::Terms;
use crate::{BoxedStream, Stream};
use handler::Connection;
use hold::hold;

/// How a connection begins.
pub(super) struct Manner {
    /// What the library is told.
    pub(super) config: Arc<Config>,
    /// Which key exchange will do.
    pub(super) demand: HybridKeyExchange,
    /// On what terms clients are let in by [`crate::transport`]; none where the library does all of it.
    pub(super) layer: Option<Terms>,
}

/// Serves one connection to its end.
pub(super) async fn serve(stream: BoxedStream, shared: Arc<Shared>, manner: Manner) {
    let span = tracing::info_span!(
        "ssh",
        peer = %shared.source(),
        user = tracing::field::Empty,
        login = tracing::field::Empty
    );
    // What [`crate::transport`] reads is held back behind it.
    let gate = if manner.layer.is_some() { Arc::default() } else { shared.gate.clone() };
    let line = Line::new(stream, shared.line.clone(), gate);
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
    match manner.demand {
        HybridKeyExchange::Preferred => begin(shared.offered.along(line), shared, manner).await,
        HybridKeyExchange::Required => {
            let heard = timeout(shared.server.config.login_timeout, hear_out(line)).await;
            match heard {
                Ok(Ok(Heard::Fits(greeted))) => {
                    begin(shared.offered.along(greeted), shared, manner).await;
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

async fn begin(line: impl Stream + 'static, shared: &Arc<Shared>, manner: Manner) {
    match manner.layer {
        Some(terms) => layer::supervise(Box::new(line), shared, manner.config, terms).await,
        None => supervise(line, shared, manner.config).await,
    }
}

async fn supervise(line: impl Stream + 'static, shared: &Arc<Shared>, config: Arc<Config>) {
    let connection = Connection::new(shared.clone());
    let login_timeout = shared.server.config.login_timeout;
    let began = Instant::now();
    uses::count(Aside::SshConnection);
    let greeting = timeout(login_timeout, russh::server::run_stream(config, line, connection));
    let mut session = match greeting.await {
        Ok(Ok(session)) => session,
        Ok(Err(error)) => return tracing::debug!(%error, "no SSH connection"),
        Err(_) => return tracing::debug!("the client said nothing"),
    };
    shared.opening.reached(Phase::KeyExchange);
    let handle = session.handle();
    let goodbye = |reason| async move {
        let _ = handle.disconnect(Disconnect::ByApplication, reason, String::new()).await;
    };
    if let Some(Err(error)) = hold(shared, began, &mut session, goodbye).await {
        tracing::debug!(%error, "the connection ended");
        if let Some(reason) = no_common_algorithm(&error) {
            let _ = shared.no_common.set(reason);
        }
    }
}
