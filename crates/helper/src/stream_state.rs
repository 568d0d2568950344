//! What becomes of a stream below TLS, for the TLS above it.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
            seated: Notify::new(),
            refusal: RefCell::default(),
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
