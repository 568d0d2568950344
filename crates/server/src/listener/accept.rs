//! The accept loop.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::tasks::Tasks;
use metrics::counter;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, info_span, warn};

use super::{Limiter, Slot};
use crate::ServerError;

/// Connections that the kernel holds while the loop is busy.
const BACKLOG: i32 = 1024;
/// Pause after the process ran out of descriptors: long enough for some to be closed, short enough not to be noticed.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);
/// A peer that vanished without a word is noticed by the kernel after about 60 + 4 * 15 s.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Binds a listening socket.
pub(crate) fn bind(what: &'static str, address: SocketAddr) -> Result<TcpListener, ServerError> {
    let attempt = || -> io::Result<TcpListener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        // Without it a restarted service could not bind while old connections linger in TIME-WAIT.
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        TcpListener::from_std(socket.into())
    };
    attempt().map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => ServerError::PortInUse { what, address },
        _ => ServerError::Bind { what, address, source },
    })
}

/// One admitted connection.
pub(crate) struct Acceptance {
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    /// Held for as long as the connection counts against the limits.
    pub(crate) slot: Arc<Slot>,
}

/// Accepts until `stop`, handing each connection to `serve` in a task of `tasks`.
pub(crate) async fn accept_loop<F, Fut>(
    listener: TcpListener,
    limiter: Limiter,
    tasks: Tasks,
    stop: CancellationToken,
    serve: F,
) where
    F: Fn(Acceptance) -> Fut,
    Fut: Future<Output = ()> + Send + 'static,
{
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let slot = match limiter.admit(peer.ip()) {
                    Ok(slot) => slot,
                    Err(full) => {
                        counter!("sallyport_connections_refused_total", "reason" => full.name()).increment(1);
                        debug!(%peer, reason = full.name(), "connection refused by limit");
                        continue;
                    }
                };
                prepare(&stream);
                let span = info_span!("connection", %peer);
                tasks.spawn(serve(Acceptance { stream, peer, slot: Arc::new(slot) }).instrument(span));
            }
            Err(error) if is_peer_fault(&error) => {}
            Err(error) => {
                // EMFILE, ENFILE, ENOBUFS, ENOMEM: accepting again at once would only spin.
                counter!("sallyport_connections_refused_total", "reason" => "exhausted").increment(1);
                warn!(%error, "cannot accept connections; raise the limit of open files (ulimit -n)");
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(EXHAUSTED_PAUSE) => {}
                }
            }
        }
    }
}

fn prepare(stream: &TcpStream) {
    // Interactive traffic is made of small packets; Nagle's algorithm would hold each for a round trip.
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "TCP_NODELAY not set");
    }
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    if let Err(error) = socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive) {
        debug!(%error, "TCP keepalive not set");
    }
}

/// Errors of the connection that was to be accepted, not of the listener (accept(2), "Error handling").
fn is_peer_fault(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}
