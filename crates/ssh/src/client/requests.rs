//! Sizes, signals and the close of a session, on their way to the server. None of them makes its sender wait: who
//! sends them has a cut, or a signal of its own, to hear meanwhile.

use std::collections::VecDeque;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tracing::debug;

use crate::session::Size;

/// Signals that wait for the server. No system has so many, and one that waits already is not sent twice.
const WAITING_SIGNALS: usize = 64;

/// What waits for a server that takes nothing.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    waiting: Mutex<Waiting>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    size: Option<Size>,
    signals: VecDeque<String>,
    close: bool,
}

/// One of them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Resize(Size),
    Signal(String),
}

impl Requests {
    /// The latest size is the one that counts.
    pub(crate) fn resize(&self, size: Size) {
        self.waiting().size = Some(size);
        self.news.notify_one();
    }

    /// A signal that waits already is not sent twice, as a process has it pending once.
    pub(crate) fn signal(&self, name: &str) {
        {
            let signals = &mut self.waiting().signals;
            if signals.iter().any(|waiting| waiting == name) {
                return;
            }
            if signals.len() >= WAITING_SIGNALS {
                debug!(name, "a signal is dropped: too many wait for the server");
                return;
            }
            signals.push_back(name.to_owned());
        }
        self.news.notify_one();
    }

    pub(crate) fn close(&self) {
        self.waiting().close = true;
        self.news.notify_one();
    }

    /// Waits until there is something.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    /// The next size or signal.
    pub(crate) fn next(&self) -> Option<Request> {
        let mut waiting = self.waiting();
        let size = waiting.size.take().map(Request::Resize);
        size.or_else(|| waiting.signals.pop_front().map(Request::Signal))
    }

    /// Whether the session is to be closed.
    pub(crate) fn closes(&self) -> bool {
        self.waiting().close
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_size_and_each_signal_once_wait() {
        let requests = Requests::default();
        for columns in 0..100 {
            requests.resize(Size { columns, rows: 24, width: 0, height: 0 });
            requests.signal(if columns % 2 == 0 { "INT" } else { "USR1" });
        }
        requests.signal("HUP");
        let latest = Size { columns: 99, rows: 24, width: 0, height: 0 };
        assert_eq!(requests.next(), Some(Request::Resize(latest)));
        for name in ["INT", "USR1", "HUP"] {
            assert_eq!(requests.next(), Some(Request::Signal(name.to_owned())));
        }
        assert_eq!(requests.next(), None);
        // Names that no system has are bounded as well.
        (0..1000).for_each(|number| requests.signal(&number.to_string()));
        assert_eq!(std::iter::from_fn(|| requests.next()).count(), WAITING_SIGNALS);
    }
}
