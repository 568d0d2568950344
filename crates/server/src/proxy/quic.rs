//! Connections that come by QUIC: members of the cluster alone, with what TLS would carry on TCP.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;

use metrics::{counter, gauge};
use sallyport_access::Identity;
use sallyport_ca::tls::Counter;
use sallyport_sal::algorithm::HashAlgorithm;
use sallyport_sal::hash::Hmac;
use sallyport_sal::random;
use sallyport_wire::alpn;
use sallyport_wire::carrier::{self, Arriving, Sealer, Shaking, Stream, Told};
use time::OffsetDateTime;
use tracing::{Instrument, info, info_span, warn};

use super::gateway::{Gateway, dropped, known};
use super::peer::Peer;
use crate::ServerError;
use crate::files;
use crate::listener::{Caller, HalfOpen, Slot};
use crate::member::host::certificates;
use crate::user_certificate;

/// Where the key is kept by which clients are told that this is no longer the process that they were connected with.
const RESET_KEY: &str = "quic_reset_key";
const RESET_KEY_BYTES: usize = 32;
/// After so long a client proves itself in full, however often it has come back meanwhile. A helper daemon gets tickets
/// when it connects, and connects anew when a working day's network is lost.
const TICKET_LIFE: time::Duration = time::Duration::hours(8);

/// QUIC on a bound socket. Whatever is in its way, clients have TCP.
pub(super) fn listen(socket: UdpSocket, gateway: &Gateway, directory: &Path) -> Option<carrier::Listener> {
    let listening = || -> Result<_, ServerError> {
        let quic = gateway.settings.quic(&gateway.view.trust(), &gateway.view.locks())?;
        let sealer = sealer(directory)?;
        carrier::bind(socket, &quic.settings, Some(sealer))
            .map_err(|error| certificates("cannot set up the UDP socket", error))
    };
    listening()
        .inspect_err(|error| {
            warn!(error = %ServerError::chain(error), "no QUIC: clients and agents come by TCP alone");
        })
        .ok()
}

/// Made of a key of this proxy's own, which is stored. A thief of that key can end connections, and no more.
fn sealer(directory: &Path) -> Result<Arc<Sealer>, ServerError> {
    let path = directory.join(RESET_KEY);
    let stored = files::read_private(&path)?.filter(|key| key.len() == RESET_KEY_BYTES);
    let key = match stored {
        Some(key) => key,
        None => {
            let fresh: [u8; RESET_KEY_BYTES] =
                random::bytes().map_err(|error| certificates("cannot make a key for QUIC", error))?;
            files::write_private(&path, &fresh)?;
            fresh.to_vec()
        }
    };
    let key = Hmac::new(HashAlgorithm::Sha256, &key)
        .map_err(|error| certificates("cannot use the key for QUIC", error))?;
    Ok(Arc::new(move |data| {
        let mut sealed = [0; 32];
        key.sign(&[data], &mut sealed);
        sealed
    }))
}

/// A connection that may be served.
struct Accepted {
    stream: Stream,
    identity: Identity,
    told: Told,
    shaking: Shaking,
}

fn early_data(outcome: &'static str) {
    counter!("sallyport_quic_early_data_total", "outcome" => outcome).increment(1);
}

impl Gateway {
    /// Serves one connection to its end.
    pub(crate) async fn serve_quic(self: Arc<Self>, caller: Caller) {
        let Caller { arriving, slot, half_open } = caller;
        gauge!("sallyport_connections_open").increment(1);
        let stop = self.stop.clone();
        let serving = async {
            let peer = arriving.peer();
            let Some(accepted) = Box::pin(self.accept_quic(arriving)).await else { return };
            let Accepted { stream, identity, told, shaking } = accepted;
            let routing = Box::pin(self.route_quic(stream, identity, told, peer, &slot));
            tokio::select! {
                () = routing => {}
                () = self.unanswered(shaking, half_open) => {}
            }
        };
        tokio::select! {
            () = serving => {}
            () = stop.cancelled() => {}
        }
        gauge!("sallyport_connections_open").decrement(1);
        drop(slot);
    }

    /// The stream with the far end proven, by its handshake or by a ticket. What a handshake would have checked is checked
    /// for both.
    async fn accept_quic(&self, arriving: Arriving) -> Option<Accepted> {
        let (trust, locks) = (self.view.trust(), self.view.locks());
        let quic = match self.settings.quic(&trust, &locks) {
            Ok(quic) => quic,
            Err(error) => {
                warn!(error = %ServerError::chain(&error), "cannot accept QUIC connections");
                return None;
            }
        };
        let now = OffsetDateTime::now_utc();
        let from = arriving.peer();
        let tickets = Arc::new(Counter::at(quic.tickets, now, from.ip()));
        let accepting = arriving.accept(&quic.settings, Arc::clone(&tickets) as _);
        let (stream, shaking) = match tokio::time::timeout(self.handshake_timeout, accepting).await {
            Ok(Ok(accepted)) => accepted,
            Ok(Err(error)) if error.is_farewell() => {
                dropped("quic_not_taken");
                return None;
            }
            Ok(Err(error)) => {
                self.came_to_nothing(from);
                counter!("sallyport_handshake_failures_total").increment(1);
                info!(%error, "QUIC handshake failed");
                return None;
            }
            Err(_) => {
                self.came_to_nothing(from);
                dropped("handshake_timeout");
                return None;
            }
        };
        if shaking.is_early() {
            early_data("accepted");
        } else if tickets.has_refused() {
            early_data("refused");
        }
        let told = stream.told();
        match self.view.trust().identify_peer(&told.certificates, OffsetDateTime::now_utc()) {
            Ok(identity) => {
                tickets.admit(identity.valid_before.min(now + TICKET_LIFE));
                Some(Accepted { stream, identity, told, shaking })
            }
            Err(error) => {
                counter!("sallyport_handshake_failures_total").increment(1);
                info!(%error, "certificate refused");
                None
            }
        }
    }

    /// Waits in vain for the answer of a client that is served by its ticket; with one that answers, for ever.
    async fn unanswered(&self, shaking: Shaking, half_open: HalfOpen) {
        if tokio::time::timeout(self.handshake_timeout, shaking.finish()).await.is_ok() {
            drop(half_open);
            std::future::pending::<()>().await;
        }
        dropped("handshake_timeout");
    }

    async fn route_quic(
        &self,
        stream: Stream,
        identity: Identity,
        told: Told,
        peer: SocketAddr,
        slot: &Slot,
    ) {
        if told.protocol == alpn::TUNNEL {
            let Some(hub) = &self.hub else { return dropped("tunnel_not_served") };
            known("quic_tunnel");
            let span = info_span!("tunnel", node = tracing::field::Empty);
            return self.serve_tunnel(hub, stream, identity, peer, slot).instrument(span).await;
        }
        known("quic_http");
        let certificate = told.certificates.first().map(|leaf| user_certificate::of_tls(leaf));
        // The suite's key exchange was all that was on offer, so no client is unfit.
        let peer = Peer { address: peer, identity: Some(Arc::new(identity)), certificate, unfit: None };
        let Some(peer) = self.counted(slot, peer) else { return };
        self.serve_http(stream, peer, None).instrument(info_span!("http")).await;
    }
}
