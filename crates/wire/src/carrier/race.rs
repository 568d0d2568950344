//! Who is quicker, TCP with TLS or QUIC.
//!
//! TCP takes a round trip before TLS may begin, QUIC takes none. But QUIC costs both ends more for each byte, and some
//! networks drop it. So TCP is dialled first, which also tells how far the other end is: where the answer is there within
//! 3 ms, TCP goes on alone. Else QUIC is dialled beside it, and the carrier that has proved the other end first wins. TLS
//! waits 8 ms for QUIC, which should be done when TCP's answer is there, and nothing waits longer. A network where QUIC lost
//! is not asked again for five minutes.
//!
//! Nothing is said on either before the race is over. Who has a ticket and wants to say something with it does not race: it
//! looks whether QUIC [has won](has_won) here, and [notes](lose) when it was wrong.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::time::{sleep, timeout};
use tracing::debug;

use super::local_address;

/// So near, the round trip that QUIC spares costs less than what its packets cost later.
const NEAR: Duration = Duration::from_millis(3);
/// How long TLS on TCP waits for QUIC.
pub const GRACE: Duration = Duration::from_millis(8);
/// How long a network where QUIC lost is not asked again.
const MEMORY: Duration = Duration::from_secs(5 * 60);
/// Networks that are remembered. A laptop sees a few a day.
const MOST_NETWORKS: usize = 64;

/// A way to a server: its address, and ours on the network that leads there.
type Network = (SocketAddr, IpAddr);

static LOST: Mutex<Option<HashMap<Network, Instant>>> = Mutex::new(None);
static WON: Mutex<Option<HashSet<Network>>> = Mutex::new(None);

/// Who has won.
#[derive(Debug)]
pub enum Winner<T, Q> {
    /// TCP with TLS.
    Tcp(T),
    /// QUIC.
    Quic(Q),
}

/// Runs the race to `server`, where QUIC is dialled: `dial` is TCP's connection, `shake` makes TLS of it, and `quic` dials by
/// QUIC when it is polled. Callers bound the time of each.
///
/// # Errors
/// TCP's, at once: a client that hears that the port is closed, or that the certificate is wrong, does not wait for UDP to
/// tell the same.
pub async fn race<D, T, Q, S, E, F>(
    dial: impl Future<Output = Result<D, E>>,
    shake: impl FnOnce(D) -> S,
    quic: impl Future<Output = Result<Q, F>>,
    server: SocketAddr,
) -> Result<Winner<T, Q>, E>
where
    S: Future<Output = Result<T, E>>,
    F: std::fmt::Display,
{
    let mut dial = std::pin::pin!(dial);
    if let Ok(near) = timeout(NEAR, dial.as_mut()).await {
        return shake(near?).await.map(Winner::Tcp);
    }
    // Without a way there QUIC would only fail.
    let network = local_address(server).ok().map(|here| (server, here));
    let Some(network) = network.filter(|network| !is_lost(network)) else {
        return shake(dial.await?).await.map(Winner::Tcp);
    };
    let mut quic = std::pin::pin!(quic);
    let tcp = async {
        let dialled = dial.await?;
        sleep(GRACE).await;
        shake(dialled).await
    };
    let mut tcp = std::pin::pin!(tcp);
    tokio::select! {
        biased;
        outcome = quic.as_mut() => match outcome {
            Ok(stream) => {
                remember(network, true);
                Ok(Winner::Quic(stream))
            }
            Err(error) => {
                debug!(%error, "no connection by QUIC");
                remember(network, false);
                tcp.await.map(Winner::Tcp)
            }
        },
        outcome = tcp.as_mut() => {
            let stream = outcome?;
            debug!("QUIC was slower than TCP");
            remember(network, false);
            Ok(Winner::Tcp(stream))
        }
    }
}

fn is_lost(network: &Network) -> bool {
    let lost = LOST.lock();
    lost.as_ref().and_then(|lost| lost.get(network)).is_some_and(|since| since.elapsed() < MEMORY)
}

/// Whether the last connection by QUIC from here to `server` came to be.
#[must_use]
pub fn has_won(server: SocketAddr) -> bool {
    let Ok(here) = local_address(server) else { return false };
    let won = WON.lock();
    won.as_ref().is_some_and(|won| won.contains(&(server, here)))
}

/// Remembers that QUIC works from here to `server`, for a connection that did not race.
pub fn win(server: SocketAddr) {
    if let Ok(here) = local_address(server) {
        remember((server, here), true);
    }
}

/// Remembers that it does not.
pub fn lose(server: SocketAddr) {
    if let Ok(here) = local_address(server) {
        remember((server, here), false);
    }
}

fn remember(network: Network, has_won: bool) {
    let mut won = WON.lock();
    let won = won.get_or_insert_with(HashSet::new);
    if has_won && won.len() < MOST_NETWORKS {
        won.insert(network);
    } else {
        won.remove(&network);
    }
    let mut lost = LOST.lock();
    let lost = lost.get_or_insert_with(HashMap::new);
    lost.retain(|_, since| since.elapsed() < MEMORY);
    if has_won {
        lost.remove(&network);
    } else if lost.len() < MOST_NETWORKS {
        lost.insert(network, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::{pending, ready};

    use super::*;

    /// Of another proxy for each test: what is remembered is the process's.
    fn server(number: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, number], 3080))
    }

    const FAR: Duration = Duration::from_millis(100);
    type Never = Result<&'static str, Infallible>;

    async fn after<T>(time: Duration, value: T) -> T {
        sleep(time).await;
        value
    }

    #[tokio::test(start_paused = true)]
    async fn a_proxy_that_is_near_is_not_asked_by_quic() {
        let dial = ready(Ok::<_, &str>("dialled"));
        let quic = async { panic!("dialled by QUIC") };
        let won = race::<_, _, (), _, _, Infallible>(dial, |_| ready(Ok("tls")), quic, server(1)).await;
        assert!(matches!(won, Ok(Winner::Tcp("tls"))), "{won:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn quic_wins_over_a_distance_before_tls_has_begun() {
        let dial = after(FAR, Ok::<_, &str>("dialled"));
        let quic = after(FAR, Never::Ok("quic"));
        let shake = |_| async { panic!("TLS has begun") };
        let won = race::<_, (), _, _, _, _>(dial, shake, quic, server(2)).await;
        assert!(matches!(won, Ok(Winner::Quic("quic"))), "{won:?}");
        assert!(has_won(server(2)) && !has_won(server(20)));
        lose(server(2));
        assert!(!has_won(server(2)));
        win(server(2));
        assert!(has_won(server(2)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_network_that_drops_udp_costs_no_pause_and_is_not_asked_again() {
        for asked in [true, false] {
            let began = tokio::time::Instant::now();
            let dial = after(FAR, Ok::<_, &str>("dialled"));
            let shake = |_| after(FAR, Ok("tls"));
            let mut polled = false;
            let quic = async {
                polled = true;
                pending::<Never>().await
            };
            let won = race(dial, shake, quic, server(3)).await;
            assert!(matches!(won, Ok(Winner::Tcp("tls"))), "{won:?}");
            assert_eq!(polled, asked);
            assert!(began.elapsed() <= 2 * FAR + GRACE + Duration::from_millis(2), "{:?}", began.elapsed());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn where_tcp_fails_nobody_waits_for_quic_and_where_quic_fails_tcp_goes_on() {
        for far in [Duration::ZERO, FAR] {
            let began = tokio::time::Instant::now();
            let failing = after(far, Err::<&str, _>("refused"));
            let lost = race(failing, |_| ready(Ok("tls")), pending::<Never>(), server(4)).await;
            assert!(matches!(lost, Err("refused")), "{lost:?}");
            assert!(began.elapsed() <= far + Duration::from_millis(2));
        }
        let quic = ready(Err::<&str, _>("quic"));
        let dial = after(FAR, Ok::<_, &str>("dialled"));
        let won = race(dial, |_| ready(Ok("tls")), quic, server(6)).await;
        assert!(matches!(won, Ok(Winner::Tcp("tls"))), "{won:?}");
    }
}
