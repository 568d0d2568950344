//! Finding servers by name and connecting to them, within bounds.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Addresses of one name that are tried.
const MOST_ADDRESSES: usize = 4;

/// The addresses of a name, if the resolver answers in time; none when it does not.
///
/// It is asked in a thread of its own, because the system's resolver knows no bound. The thread of one that is too late
/// ends when the resolver gives up.
pub(crate) fn resolve(host: &str, port: u16, within: Duration) -> Option<io::Result<Vec<SocketAddr>>> {
    let name = (host.to_owned(), port);
    let (answer, answered) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let _ = answer.send(name.to_socket_addrs().map(Iterator::collect));
    });
    answered.recv_timeout(within).ok()
}

/// A connection to the first address that takes one. Each gets its share of the time that is left: one that swallows
/// packets, as an IPv6 address without a route often does, leaves enough for the next.
///
/// # Errors
/// Those of the last address that was tried; `TimedOut` when there was no time for any.
pub(crate) fn connect(addresses: &[SocketAddr], until: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::TimedOut);
    for (remaining, address) in (1..=addresses.len().min(MOST_ADDRESSES)).rev().zip(addresses) {
        let left = until.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(remaining).unwrap_or(u32::MAX);
        // The system takes no wait of zero.
        if share.is_zero() {
            break;
        }
        match TcpStream::connect_timeout(address, share) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::TcpListener;

    use super::*;

    /// A listener whose queue is full, so that the system drops new connections; it is so for as long as these live.
    fn full() -> (TcpListener, Vec<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let wait = Duration::from_millis(300);
        let waiting = std::iter::from_fn(|| TcpStream::connect_timeout(&address, wait).ok()).take(10_000);
        let waiting = waiting.collect();
        (listener, waiting)
    }

    #[test]
    fn an_address_that_swallows_packets_leaves_time_for_the_next() {
        let (hole, _waiting) = full();
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let [dark, good] = [&hole, &server].map(|listener| listener.local_addr().unwrap());
        let whole = Duration::from_secs(2);
        let began = Instant::now();
        let stream = connect(&[dark, good], began + whole).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good);
        assert!(began.elapsed() < whole, "{:?}", began.elapsed());
        let error = connect(&[dark], Instant::now() + Duration::from_millis(200)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(connect(&[good], began).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn names_resolve_or_do_not_within_the_bound() {
        let bound = Duration::from_secs(5);
        let found = resolve("127.0.0.1", 443, bound).unwrap().unwrap();
        assert_eq!(found, [SocketAddr::from(([127, 0, 0, 1], 443))]);
        let began = Instant::now();
        assert!(resolve("no.such.name.invalid", 443, bound).is_none_or(|answer| answer.is_err()));
        assert!(began.elapsed() < bound + Duration::from_secs(2));
    }
}
