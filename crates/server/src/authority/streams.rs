//! Answers that go on: every stream of the API is one of these.
//!
//! A stream lasts for as long as its caller may have it. That is asked again, of the certificate and of the permission, at
//! each change of policy and several times a second, by a task of its own: how the peer behaves, and whether it reads,
//! matters to nothing. What ends is ended at once, with what was queued for it; the connection of a caller who does not even
//! take the reason is closed. A caller has a bounded number of streams, and a message that is not taken for too long ends
//! its stream.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::authority::caller::{Caller, name_of};
use crate::authority::policy::Policy;
use crate::tasks::Tasks;

/// How long a peer has to take the reason for the end before its connection is closed.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How often it is asked again without a change of policy: certificates run out, and locks begin and end, by themselves.
const LOOK: Duration = Duration::from_millis(500);

/// What a stream is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum StreamKind {
    /// Playing a recording, or searching the log.
    Reading,
    /// Following state.
    Watching,
    /// A host that tells of its sessions.
    Reporting,
}

impl StreamKind {
    /// Streams of one caller at a time. Who follows state or tells of sessions needs one or two; those of connections that
    /// were lost count until the loss is noticed.
    const fn most(self) -> usize {
        match self {
            Self::Reading => 8,
            Self::Watching | Self::Reporting => 32,
        }
    }

    /// How long a message may wait for its peer. A person may pause what they play; our own client then goes on where it was.
    const fn unread(self) -> Duration {
        match self {
            Self::Reading => Duration::from_secs(300),
            Self::Watching | Self::Reporting => Duration::from_secs(30),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Reading => "playbacks and searches",
            Self::Watching => "watches",
            Self::Reporting => "reports",
        }
    }
}

/// Streams of the operator, who comes by the local socket: of any kind.
const MOST_LOCAL: usize = 64;

/// How many streams each caller has.
#[derive(Debug, Clone, Default)]
pub(crate) struct Places(Arc<Mutex<HashMap<(StreamKind, String), usize>>>);

/// One of them, for as long as it lives.
#[derive(Debug)]
pub(crate) struct StreamPlace {
    of: (StreamKind, String),
    places: Places,
}

impl Places {
    fn take(&self, kind: StreamKind, caller: &Caller) -> Result<StreamPlace, Status> {
        let most = if matches!(caller, Caller::LocalAdmin) { MOST_LOCAL } else { kind.most() };
        let of = (kind, name_of(caller));
        let mut open = self.0.lock();
        let count = open.entry(of.clone()).or_default();
        if *count >= most {
            return Err(Status::resource_exhausted(format!(
                "{} has {most} {} open, which is the most allowed; close some and try again",
                caller.name(),
                kind.name()
            )));
        }
        *count += 1;
        drop(open);
        Ok(StreamPlace { of, places: self.clone() })
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut open = self.places.0.lock();
        if let Some(count) = open.get_mut(&self.of) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.of);
            }
        }
    }
}

/// The connection that a call came by.
#[derive(Debug, Clone, Default)]
pub(crate) struct Line(CancellationToken);

impl Line {
    /// The connection of a request.
    pub(crate) fn of<T>(request: &Request<T>) -> Self {
        request.extensions().get::<Self>().cloned().unwrap_or_default()
    }

    /// Waits until it has to be closed.
    pub(crate) async fn cut(&self) {
        self.0.cancelled().await;
    }
}

/// Why a stream has nothing more to say.
#[derive(Debug)]
pub(crate) enum Over {
    /// The peer has gone.
    Gone,
    /// The peer has taken nothing for too long.
    Unread,
    /// The caller reads this.
    Refused(Status),
}

impl From<Status> for Over {
    fn from(status: Status) -> Self {
        Self::Refused(status)
    }
}

/// Where the answers go.
#[derive(Debug)]
pub(crate) struct Answers<T> {
    queue: mpsc::Sender<Result<T, Status>>,
    unread: Duration,
}

impl<T> Answers<T> {
    /// Sends one, waiting while the queue is full, though not for ever.
    pub(crate) async fn send(&self, answer: T) -> Result<(), Over> {
        self.put(Ok(answer)).await
    }

    async fn put(&self, answer: Result<T, Status>) -> Result<(), Over> {
        self.queue.send_timeout(answer, self.unread).await.map_err(|error| match error {
            mpsc::error::SendTimeoutError::Closed(_) => Over::Gone,
            mpsc::error::SendTimeoutError::Timeout(_) => Over::Unread,
        })
    }
}

type Queue<T> = Arc<Mutex<Option<mpsc::Receiver<Result<T, Status>>>>>;

/// A stream of answers.
#[derive(Debug)]
pub(crate) struct Served<T> {
    /// Taken away at the end: nothing of it is kept for a peer that reads nothing.
    queue: Queue<T>,
    /// The end that does not wait for the queue.
    over: Option<oneshot::Receiver<Status>>,
    /// Dropped when the peer has been told everything, or is gone.
    told: Option<oneshot::Sender<()>>,
    _place: StreamPlace,
}

/// Marks the answer of a call that goes on, which has bounds of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Streamed;

impl<T> Served<T> {
    /// The answer of a call.
    pub(crate) fn answer(self) -> Response<Self> {
        let mut response = Response::new(self);
        response.extensions_mut().insert(Streamed);
        response
    }
}

impl<T> Stream for Served<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.told.is_none() {
            return Poll::Ready(None);
        }
        if let Some(over) = self.over.as_mut()
            && let Poll::Ready(ended) = Pin::new(over).poll(context)
        {
            self.over = None;
            if let Ok(status) = ended {
                self.told = None;
                return Poll::Ready(Some(Err(status)));
            }
        }
        let next = match self.queue.lock().as_mut() {
            Some(queue) => queue.poll_recv(context),
            // The reason comes at once.
            None => Poll::Pending,
        };
        if !matches!(next, Poll::Pending | Poll::Ready(Some(Ok(_)))) {
            self.told = None;
        }
        next
    }
}

/// Serves the streams of the API.
#[derive(Debug)]
pub(crate) struct Streams {
    places: Places,
    policy: Arc<Policy>,
    stop: CancellationToken,
    tasks: Tasks,
}

impl Streams {
    pub(crate) fn new(policy: &Arc<Policy>, stop: &CancellationToken, tasks: &Tasks) -> Arc<Self> {
        Arc::new(Self {
            places: Places::default(),
            policy: Arc::clone(policy),
            stop: stop.clone(),
            tasks: tasks.clone(),
        })
    }

    /// A place for a stream; a caller has so many of a kind.
    pub(crate) fn place(&self, kind: StreamKind, caller: &Caller) -> Result<StreamPlace, Status> {
        self.places.take(kind, caller)
    }

    /// Serves a stream for as long as `may` says so. `queue` answers may wait for the peer. What `produce` makes of it ends
    /// the stream; with an error, which the peer reads.
    pub(crate) fn stream<T, F>(
        &self,
        place: StreamPlace,
        line: Line,
        queue: usize,
        may: impl Fn() -> Result<(), Status> + Send + 'static,
        produce: impl FnOnce(Answers<T>) -> F,
    ) -> Served<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<(), Over>> + Send + 'static,
    {
        let unread = place.of.0.unread();
        let (sender, receiver) = mpsc::channel(queue);
        let (over, ended) = oneshot::channel();
        let (told, mut is_told) = oneshot::channel::<()>();
        let queue: Queue<T> = Arc::new(Mutex::new(Some(receiver)));
        let served = Served { queue: Arc::clone(&queue), over: Some(ended), told: Some(told), _place: place };
        // Subscribed before anything is asked, so that no change falls in between.
        let changes = self.policy.changes();
        let last = Answers { queue: sender.clone(), unread };
        let produced = produce(Answers { queue: sender, unread });
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            let producing = async move {
                let ended = match produced.await {
                    Err(Over::Refused(status)) => last.put(Err(status)).await,
                    ended => ended,
                };
                drop(last);
                // What is queued is still to be read, with the same right, though not for ever.
                if !matches!(ended, Err(Over::Unread)) {
                    tokio::time::sleep(unread).await;
                }
                Status::deadline_exceeded(format!("nothing was read for {} s", unread.as_secs()))
            };
            // The queue goes before what fills it: a peer that found it closed would take the end for a whole answer.
            let empty = || drop(queue.lock().take());
            let refusing = async {
                let status = refused(changes, may).await;
                empty();
                status
            };
            let stopping = async {
                stop.cancelled().await;
                empty();
                Status::unavailable("the authority is stopping")
            };
            let (status, is_refused) = tokio::select! {
                biased;
                _ = &mut is_told => return,
                status = refusing => (status, true),
                status = stopping => (status, true),
                status = producing => (status, false),
            };
            empty();
            let is_sent = over.send(status).is_ok();
            if is_sent && is_refused && tokio::time::timeout(LAST_WORDS, is_told).await.is_err() {
                line.0.cancel();
            }
        });
        served
    }
}

/// Waits until the caller may not go on.
async fn refused(mut changes: watch::Receiver<u64>, may: impl Fn() -> Result<(), Status>) -> Status {
    let mut looks = tokio::time::interval(LOOK);
    loop {
        if let Err(status) = may() {
            return status;
        }
        tokio::select! {
            _ = looks.tick() => {}
            // The sender is the authority's own, and lives as long.
            _ = changes.changed() => {}
        }
    }
}
