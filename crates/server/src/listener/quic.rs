//! The same for UDP: accepting connections by QUIC.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::tasks::Tasks;
use metrics::counter;
use sallyport_wire::carrier::{Arriving, Listener};
use socket2::{Domain, Protocol, Socket, Type};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, info_span};

use super::{Limiter, Slot};

/// Handshakes at a time with peers that have not shown yet that they are where they say they are. More, and each is asked
/// to show it first, which costs it a round trip and us no memory (RFC 9000 §8.1.2).
const HALF_OPEN: usize = 64;
/// What the kernel may hold for the one socket of all connections, as far as it allows.
const BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// Binds the UDP port beside a TCP port.
pub(crate) fn bind_udp(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    // Not SO_REUSEADDR: with UDP that would share the port with the process that has it.
    socket.set_nonblocking(true)?;
    for set in [Socket::set_recv_buffer_size, Socket::set_send_buffer_size] {
        if let Err(error) = set(&socket, BUFFER_BYTES) {
            debug!(%error, "buffer of the UDP socket not set");
        }
    }
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// A connection whose handshake has not begun.
pub(crate) struct Caller {
    pub(crate) arriving: Arriving,
    /// Held for as long as the connection counts against the limits.
    pub(crate) slot: Slot,
    /// Dropped when the handshake is over.
    pub(crate) half_open: HalfOpen,
}

/// Counts handshakes.
#[derive(Debug)]
pub(crate) struct HalfOpen(Arc<AtomicUsize>);

impl HalfOpen {
    fn count(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(open))
    }
}

impl Drop for HalfOpen {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Accepts until `drain`, handing each connection to `serve` in a task of `tasks`; those that are open end at `stop`.
pub(crate) async fn quic_loop<F, Fut>(
    listener: Listener,
    limiter: Limiter,
    tasks: Tasks,
    (drain, stop): (CancellationToken, CancellationToken),
    serve: F,
) where
    F: Fn(Caller) -> Fut,
    Fut: Future<Output = ()> + Send + 'static,
{
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let arriving = tokio::select! {
            () = drain.cancelled() => break,
            () = stop.cancelled() => break,
            arriving = listener.next() => arriving,
        };
        let Some(arriving) = arriving else { break };
        let peer = arriving.peer();
        if !arriving.validated() && open.load(Ordering::Relaxed) >= HALF_OPEN {
            counter!("sallyport_quic_retries_total").increment(1);
            arriving.ask_again();
            continue;
        }
        match limiter.admit(peer.ip()) {
            Ok(slot) => {
                let span = info_span!("connection", %peer, carrier = "quic");
                let caller = Caller { arriving, slot, half_open: HalfOpen::count(&open) };
                tasks.spawn(serve(caller).instrument(span));
            }
            Err(full) => {
                counter!("sallyport_connections_refused_total", "reason" => full.name()).increment(1);
                debug!(%peer, reason = full.name(), "connection refused by limit");
                arriving.refuse();
            }
        }
    }
    listener.drain();
    stop.cancelled().await;
    listener.close().await;
}
