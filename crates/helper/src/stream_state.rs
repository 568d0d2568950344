//! What becomes of a stream below TLS, for the TLS above it.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use sallyport_ssh::endpoint::EndpointStream;
use tokio::sync::Notify;

use crate::error::Error;

/// What the stream to the node tells the TLS in it.
#[derive(Debug)]
pub(super) struct StreamState {
    /// What went out early went out again.
    pub(super) repeated: Arc<AtomicBool>,
    /// Something went out early, and the node has not proven what became of it.
    pub(super) unanswered: Arc<AtomicBool>,
    /// The proxy says that the target is no node of ours.
    pub(super) ssh_alone: Cell<bool>,
    /// The proxy has opened the stream to the node.
    pub(super) reached: Cell<bool>,
    /// The node has said something.
    pub(super) heard: Cell<bool>,
    /// The person is being asked for a second factor,
    pub(super) asking: Cell<bool>,
    /// and was so often.
    pub(super) questions: Cell<u32>,
    /// There is a connection to the proxy, by which the stream goes.
    pub(super) seated: Notify,
    /// What the proxy has a database's client read, in the database's own protocol.
    pub(super) refusal: RefCell<Option<Bytes>>,
}

impl StreamState {
    /// For a stream that may say something early.
    pub(super) fn of<IO>(tls: &EndpointStream<IO>) -> Self {
        Self { repeated: tls.repeated(), unanswered: tls.unanswered(), ..Self::late() }
    }

    /// For a stream that says nothing early.
    pub(super) fn late() -> Self {
        let no = || Cell::new(false);
        Self {
            repeated: Arc::default(),
            unanswered: Arc::default(),
            ssh_alone: no(),
            reached: no(),
            heard: no(),
            asking: no(),
            questions: Cell::new(0),
            seated: Notify::new(),
            refusal: RefCell::default(),
        }
    }

    /// The person is asked for a second factor until this is dropped.
    pub(super) fn ask(&self) -> Asks<'_> {
        self.asking.set(true);
        self.questions.set(self.questions.get() + 1);
        Asks(self)
    }

    /// Waits so long for the other end, besides the time in which the person is asked. None: it was too long.
    pub(super) async fn within<T>(&self, patience: Duration, waiting: impl Future<Output = T>) -> Option<T> {
        let mut waiting = pin!(waiting);
        loop {
            let (asking, questions) = (self.asking.get(), self.questions.get());
            match tokio::time::timeout(patience, waiting.as_mut()).await {
                Ok(done) => return Some(done),
                // The person was asked in it.
                Err(_) if asking || self.asking.get() || self.questions.get() != questions => {}
                Err(_) => return None,
            }
        }
    }

    pub(super) fn again(&self) {
        self.repeated.store(true, Ordering::Release);
    }

    /// What there is to say of a stream that has failed: where something went out early and the node has not
    /// proven what became of it, it may have been done, and nothing tells the user to do it again.
    pub(super) fn judged(&self, error: Error) -> Error {
        if self.unanswered.load(Ordering::Acquire) { Error::PerhapsDone(Box::new(error)) } else { error }
    }

    /// An SSH server may be gone before its greeting arrives, because it has not understood what came.
    pub(super) fn was_left_silently(&self) -> bool {
        self.reached.get() && !self.heard.get()
    }
}

/// The person is being asked.
pub(super) struct Asks<'a>(&'a StreamState);

impl Drop for Asks<'_> {
    fn drop(&mut self) {
        self.0.asking.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_in_which_the_person_is_asked_is_no_silence_of_the_other_end() {
        let state = StreamState::late();
        let patience = Duration::from_secs(30);
        let silent = tokio::time::sleep(Duration::from_secs(31));
        assert!(state.within(patience, silent).await.is_none());
        let asked = async {
            let asks = state.ask();
            tokio::time::sleep(Duration::from_secs(300)).await;
            drop(asks);
            tokio::time::sleep(Duration::from_secs(20)).await;
        };
        assert!(state.within(patience, asked).await.is_some());
    }
}
