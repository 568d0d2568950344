//! What carries a connection to the proxy: TLS on TCP, or QUIC where that is quicker and the network lets it through
//! ([`race`](sallyport_wire::carrier::race)). What is remembered of networks is the process's: the helper daemon's for all
//! programs.

use std::ffi::OsStr;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use sallyport_wire::carrier::{self, Answer, CarrierError, Farewell, Handshake, Stream};
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_rustls::rustls::ClientConfig;
use tracing::{Instrument, debug, info_span};

use super::trace::{Counted, PHASE, recorder};
use crate::error::{Error, Result};

/// Which carrier: `auto`, `tcp` or `quic`.
const VARIABLE: &str = "SALLYPORT_CARRIER";
/// A proxy by QUIC answers within a few tries of the handshake (RFC 9002 §6.2.2: the second after 1 s, the third after 3 s).
pub(crate) const ANSWER: Duration = Duration::from_secs(6);
/// A client says something early where QUIC worked before, and to it the second try is the last: before streams that wait on
/// a connection without a word from the proxy begin to doubt it.
const EARLY_ANSWER: Duration = Duration::from_millis(2_500);
/// What putting the last bytes on the line takes.
const LAST_BYTES: Duration = Duration::from_millis(1);
/// Told of the first connection.
static OPENED: Notify = Notify::const_new();
/// Connections of this process, to be ended when it ends.
static OPEN: Mutex<Vec<Farewell>> = Mutex::new(Vec::new());

/// What [`VARIABLE`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Whichever is quicker, and TCP on this machine.
    Auto,
    Tcp,
    /// QUIC or nothing.
    Quic,
}

impl Wanted {
    /// What the environment asks for.
    pub(crate) fn here() -> Result<Self> {
        Self::of(std::env::var_os(VARIABLE).as_deref())
    }

    fn of(text: Option<&OsStr>) -> Result<Self> {
        match text.map(OsStr::to_string_lossy).as_deref() {
            None | Some("" | "tcp") => Ok(Self::Tcp),
            Some("auto") => Ok(Self::Auto),
            Some("quic") => Ok(Self::Quic),
            Some(other) => Err(Error::Setting {
                variable: VARIABLE,
                value: other.to_owned(),
                allowed: "auto, tcp or quic",
            }),
        }
    }
}

/// Dials by QUIC, with the words of a phase. It gives up only when the caller does.
pub(crate) async fn quic(
    proxy: SocketAddr,
    name: &str,
    config: Arc<ClientConfig>,
    begun: Option<Handshake>,
) -> Result<Counted<Stream>, CarrierError> {
    let dialling = info_span!(target: PHASE, "quic", network.peer.address = %proxy);
    async {
        let began = Instant::now();
        let stream = match begun {
            Some(handshake) => handshake.finish().await?,
            None => carrier::connect(proxy, name, config).await?,
        };
        recorder::dialled(began.elapsed());
        Ok(opened(stream))
    }
    .instrument(dialling)
    .await
}

/// Looks after the end of a connection.
pub(crate) fn opened(stream: Stream) -> Counted<Stream> {
    let mut open = OPEN.lock();
    open.retain(|one| !one.is_said());
    open.push(stream.farewell());
    OPENED.notify_one();
    Counted::new(stream)
}

/// Waits for the answer to what was said early. Where another connection is there sooner, or no answer comes in time, QUIC is
/// given up and its network remembered; a stream that said something finds its connection lost, and says it again elsewhere.
pub(crate) async fn answered(proxy: SocketAddr, mut answer: Answer, beside: impl Future<Output = ()>) {
    let too_late = async {
        tokio::select! {
            () = beside => {}
            () = sleep(EARLY_ANSWER) => {}
        }
    };
    tokio::select! {
        biased;
        told = answer.wait() => {
            if told.is_some() {
                carrier::win(proxy);
            } else if answer.has_failed() {
                carrier::lose(proxy);
            }
        }
        () = too_late => {
            debug!("no answer by QUIC to what was said early");
            carrier::lose(proxy);
            answer.give_up();
        }
    }
}

/// Tells the other ends that this process goes.
pub fn finish() -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let open = std::mem::take(&mut *OPEN.lock());
        let open: Vec<_> = open.iter().filter(|one| !one.is_said()).collect();
        if open.is_empty() {
            return;
        }
        // The tasks of the connections put on the line what was written last.
        sleep(LAST_BYTES).await;
        for connection in open {
            connection.say().await;
        }
    })
}

/// Returns once this process has a connection by QUIC.
pub async fn is_open() {
    OPENED.notified().await;
}

/// Why QUIC failed where nothing else was to be tried.
pub(crate) fn explain(proxy: &str, why: &str) -> Error {
    Error::UnreachedByQuic { proxy: proxy.to_owned(), why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_says_which_carrier() {
        let of = |text: &str| Wanted::of(Some(OsStr::new(text)));
        assert_eq!(Wanted::of(None).unwrap(), Wanted::Tcp);
        assert_eq!(of("").unwrap(), Wanted::Tcp);
        assert_eq!(of("auto").unwrap(), Wanted::Auto);
        assert_eq!(of("tcp").unwrap(), Wanted::Tcp);
        assert_eq!(of("quic").unwrap(), Wanted::Quic);
        assert!(of("pigeon").unwrap_err().to_string().contains("SALLYPORT_CARRIER is \"pigeon\""));
    }
}
