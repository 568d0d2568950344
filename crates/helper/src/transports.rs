//! The warm connections to the proxy, and the login that they are made with.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::{Mutex, MutexGuard};
use time::OffsetDateTime;
use tracing::{debug, info};

use crate::error::Result;
use sallyport_client::channel::Channel;
use sallyport_client::connect::{self, How, Kept};
use sallyport_client::error::Error as ClientError;
use sallyport_client::liveness::Liveness;
use sallyport_client::profile::{Profiles, Stored};
use sallyport_client::session_factor::Asking;

/// Streams on one connection, half of what a proxy takes; more go on another.
const STREAMS_PER_TRANSPORT: usize = 500;
/// A file that is being replaced is whole after this.
const REPLACING: Duration = Duration::from_millis(100);

/// How long an unanswered question is kept. Long before that the connection is not used any more.
const QUESTION_PATIENCE: Duration = Duration::from_secs(10);

/// What tells a login from the one before: each of these files is replaced, never written over.
const FILES: [&str; 4] = ["profile.json", "tls_cert.pem", "tls_key.pem", "trust.json"];

/// The files of a login as they were at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp([(u64, i64, i64); FILES.len()]);

impl Stamp {
    fn of(directory: &Path) -> Option<Self> {
        let mut stamp = [(0, 0, 0); FILES.len()];
        for (slot, name) in stamp.iter_mut().zip(FILES) {
            let metadata = fs::metadata(directory.join(name)).ok()?;
            *slot = (metadata.ino(), metadata.mtime(), metadata.mtime_nsec());
        }
        Some(Self(stamp))
    }
}

/// One connection to the proxy.
#[derive(Debug)]
pub(super) struct Warm {
    channel: Channel,
    liveness: Liveness,
    streams: AtomicUsize,
    /// Nothing new goes here: it is lost, or its login was replaced.
    retired: AtomicBool,
    /// The proxy is being asked whether it is there.
    asking: AtomicBool,
    /// One of its streams is finding out whether it is lost,
    doubted: AtomicBool,
    /// and has found that it is.
    lost: AtomicBool,
    /// How it began.
    how: How,
    number: u64,
}

impl Warm {
    /// Whether it began with a ticket, before the proxy had answered.
    fn is_early(&self) -> bool {
        matches!(self.how, How::QuicEarly(_))
    }

    /// Waits until the proxy has answered it, once at least. `false`: it never will.
    pub(super) async fn is_answered(&self) -> bool {
        match &self.how {
            How::QuicEarly(answer) => answer.clone().wait().await.is_some(),
            How::Tcp | How::Quic => true,
        }
    }
}

/// A place on a connection, for one stream.
#[derive(Debug)]
pub(super) struct Seat {
    warm: Arc<Warm>,
    /// The connection was made for this stream, and the proxy has answered. One that was begun early is like one that was
    /// made earlier: it may turn out to be lost.
    pub(super) fresh: bool,
}

impl Seat {
    fn take(warm: &Arc<Warm>, fresh: bool) -> Self {
        warm.streams.fetch_add(1, Ordering::Relaxed);
        Self { warm: Arc::clone(warm), fresh: fresh && !warm.is_early() }
    }

    pub(super) fn channel(&self) -> Channel {
        self.warm.channel.clone()
    }

    /// Since when nothing came from the proxy.
    pub(super) fn silence(&self) -> Duration {
        self.warm.liveness.silence()
    }

    /// Asks the proxy for a sign of life, which [`Seat::silence`] then shows. One question at a time.
    pub(super) fn ask(&self) {
        if self.warm.asking.swap(true, Ordering::Relaxed) {
            return;
        }
        let warm = Arc::clone(&self.warm);
        tokio::spawn(async move {
            // Whatever it says, it is there.
            let _ = tokio::time::timeout(QUESTION_PATIENCE, warm.channel.clone().ask_health()).await;
            warm.asking.store(false, Ordering::Relaxed);
        });
    }

    /// For the one stream of this connection that is to find out whether it is lost; others hear of it.
    pub(super) fn doubt(&self) -> Option<Doubt<'_>> {
        (!self.warm.doubted.swap(true, Ordering::Relaxed)).then(|| Doubt(&self.warm.doubted))
    }

    /// The connection is lost, for all of its streams that wait for an answer.
    pub(super) fn lose(&self) {
        self.warm.lost.store(true, Ordering::Relaxed);
    }

    /// Whether one of its streams has found that it is.
    pub(super) fn is_lost(&self) -> bool {
        self.warm.lost.load(Ordering::Relaxed)
    }

    /// Keeps others from this connection.
    pub(super) fn retire(&self) {
        if !self.warm.retired.swap(true, Ordering::Relaxed) {
            info!(transport = self.warm.number, "a connection to the proxy is not used any more");
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.warm.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The stream that finds out whether its connection is lost; another may when this is dropped.
#[derive(Debug)]
pub(super) struct Doubt<'a>(&'a AtomicBool);

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

type Dialling = Shared<BoxFuture<'static, Result<Arc<Warm>, ClientError>>>;

struct State {
    login: Option<(Stamp, Arc<Stored>)>,
    warm: Vec<Arc<Warm>>,
    /// The one that is being made, for all streams that need one.
    dialling: Option<Dialling>,
    /// What is kept of the proxy, with the login that it is for.
    kept: Option<(Arc<Stored>, Arc<Kept>)>,
}

/// The connections of one profile.
pub(super) struct Transports {
    profiles: Profiles,
    directory: std::path::PathBuf,
    state: Mutex<State>,
    made: AtomicU64,
    /// Those of them that were begun with a ticket.
    early: Arc<AtomicU64>,
    /// Streams that wait for a second factor.
    pub(super) asking: Asking,
}

/// What [`Transports::login`] found.
#[derive(Debug)]
pub(super) enum Login {
    Valid(Arc<Stored>),
    /// A program that asks hears it in the words of one that has no helper.
    Unusable,
}

impl Transports {
    pub(super) fn new(profiles: Profiles, directory: std::path::PathBuf) -> Self {
        let state = State { login: None, warm: Vec::new(), dialling: None, kept: None };
        Self {
            profiles,
            directory,
            state: Mutex::new(state),
            made: AtomicU64::new(0),
            early: Arc::default(),
            asking: Asking::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The login in force. One that replaced another retires the other's connections.
    pub(super) fn login(&self) -> Login {
        let Some(stamp) = Stamp::of(&self.directory) else {
            self.forget();
            return Login::Unusable;
        };
        let mut state = self.state();
        if let Some((known, stored)) = &state.login
            && *known == stamp
        {
            return if stored.profile.valid_until > OffsetDateTime::now_utc() {
                Login::Valid(Arc::clone(stored))
            } else {
                Login::Unusable
            };
        }
        retire_all(&mut state);
        match self.profiles.load_valid() {
            Ok(stored) => {
                let stored = Arc::new(stored);
                state.login = Some((stamp, Arc::clone(&stored)));
                info!(user = %stored.profile.user, until = %stored.profile.valid_until, "using the stored login");
                Login::Valid(stored)
            }
            Err(_) => {
                state.login = None;
                Login::Unusable
            }
        }
    }

    /// Forgets the login and its keys. What is open stays open.
    pub(super) fn forget(&self) {
        let mut state = self.state();
        state.login = None;
        retire_all(&mut state);
    }

    /// A seat on a warm connection, or on one that is made now.
    pub(super) async fn seat(&self, stored: &Arc<Stored>) -> Result<Seat, ClientError> {
        loop {
            if let Some(seat) = self.free() {
                return Ok(seat);
            }
            match self.dial(stored).await {
                Ok(warm) => {
                    // More may have waited for it than it has seats.
                    if let Some(seat) = Self::take(&self.state(), &warm, true) {
                        return Ok(seat);
                    }
                }
                Err(error) => {
                    // The files may have been read while a login was replacing them.
                    let before = self.state().login.as_ref().map(|(stamp, _)| *stamp);
                    tokio::time::sleep(REPLACING).await;
                    return match self.login() {
                        Login::Valid(stored) if Stamp::of(&self.directory) != before => {
                            self.dial(&stored).await.map(|warm| Seat::take(&warm, true))
                        }
                        _ => Err(error),
                    };
                }
            }
        }
    }

    /// A seat on one of the warm connections.
    fn free(&self) -> Option<Seat> {
        let mut state = self.state();
        // One that is retired lives on in the seats that were taken.
        state.warm.retain(|warm| !warm.retired.load(Ordering::Relaxed) && !warm.liveness.ended());
        state.warm.iter().find_map(|warm| Self::take(&state, warm, false))
    }

    /// A seat on this connection, if it has one left. The state is locked, so that no two take the last one.
    fn take(_locked: &State, warm: &Arc<Warm>, fresh: bool) -> Option<Seat> {
        (warm.streams.load(Ordering::Relaxed) < STREAMS_PER_TRANSPORT).then(|| Seat::take(warm, fresh))
    }

    /// A connection more, made once for all streams that want one now.
    pub(super) async fn dial(&self, stored: &Arc<Stored>) -> Result<Arc<Warm>, ClientError> {
        let dialling = {
            let mut state = self.state();
            match &state.dialling {
                Some(dialling) => dialling.clone(),
                None => {
                    let number = self.made.fetch_add(1, Ordering::Relaxed) + 1;
                    let kept = state.kept(stored)?;
                    let early = Arc::clone(&self.early);
                    let dialling =
                        in_the_background(Arc::clone(stored), kept, number, early).boxed().shared();
                    state.dialling = Some(dialling.clone());
                    dialling
                }
            }
        };
        let outcome = dialling.clone().await;
        let mut state = self.state();
        // The first stream that waited puts it away.
        if state.dialling.as_ref().is_some_and(|current| current.ptr_eq(&dialling)) {
            state.dialling = None;
            if let Ok(warm) = &outcome {
                state.warm.push(Arc::clone(warm));
            }
        }
        outcome
    }

    /// How many connections there are, how many were made, and how many of those began with a ticket.
    pub(super) fn counts(&self) -> (usize, u64, u64) {
        (
            self.state().warm.iter().filter(|warm| !warm.liveness.ended()).count(),
            self.made.load(Ordering::Relaxed),
            self.early.load(Ordering::Relaxed),
        )
    }
}

impl State {
    /// What is kept for a login; another has nothing of it.
    fn kept(&mut self, stored: &Arc<Stored>) -> Result<Arc<Kept>, ClientError> {
        if let Some((of, kept)) = &self.kept
            && Arc::ptr_eq(of, stored)
        {
            return Ok(Arc::clone(kept));
        }
        let kept = Arc::new(Kept::new(stored)?);
        self.kept = Some((Arc::clone(stored), Arc::clone(&kept)));
        Ok(kept)
    }
}

fn retire_all(state: &mut State) {
    state.kept = None;
    for warm in state.warm.drain(..) {
        warm.retired.store(true, Ordering::Relaxed);
    }
    state.dialling = None;
}

/// Goes on when the stream that asked for it has gone: the next one needs it.
async fn in_the_background(
    stored: Arc<Stored>,
    kept: Arc<Kept>,
    number: u64,
    early: Arc<AtomicU64>,
) -> Result<Arc<Warm>, ClientError> {
    match tokio::spawn(connect_warm(stored, kept, number, early)).await {
        Ok(outcome) => outcome,
        Err(error) => {
            Err(ClientError::Failed { doing: "connect to the proxy".to_owned(), source: Arc::new(error) })
        }
    }
}

async fn connect_warm(
    stored: Arc<Stored>,
    kept: Arc<Kept>,
    number: u64,
    early: Arc<AtomicU64>,
) -> Result<Arc<Warm>, ClientError> {
    let began = Instant::now();
    match connect::proxy_warm(&stored, &kept).await {
        Ok((channel, liveness, how)) => {
            let by = how.words();
            info!(transport = number, proxy = %stored.profile.proxy, took = ?began.elapsed(), by, "connected to the proxy");
            let streams = AtomicUsize::new(0);
            let no = || AtomicBool::new(false);
            let (retired, asking, doubted, lost) = (no(), no(), no(), no());
            let warm = Warm { channel, liveness, streams, retired, asking, doubted, lost, how, number };
            early.fetch_add(u64::from(warm.is_early()), Ordering::Relaxed);
            Ok(Arc::new(warm))
        }
        Err(error) => {
            debug!(error = error.told(), "no connection to the proxy");
            Err(error)
        }
    }
}
