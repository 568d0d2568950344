//! A session process that is there before its session.
//!
//! Starting a program of this size takes longer than a small command: the loader alone has tens of thousands of addresses to
//! fill in. So one process is started ahead and waits, having done that; it gets its session's ends and description over a
//! pair of sockets and goes on as one that was started for them. The first session, one that comes too soon after another,
//! and one that needs a keeper start theirs themselves, as any does when the waiting process is gone.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rustix::net::RecvFlags;
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::debug;

use super::Helper;
use crate::helper::ends::{self, Ends};
use crate::helper::{self, Spec};

/// How long after a session has begun the next process is started: what the session itself has to begin with comes first.
const PAUSE: Duration = Duration::from_millis(50);
/// Most bytes of description and command that are handed over: they fit into a socket, so that the node does not wait.
const MOST_TEXT_BYTES: usize = 64 * 1024;

/// Where the node has session processes from. Clones share the one that waits, which ends with the last of them.
#[derive(Debug, Clone)]
pub struct Ready(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    helper: Helper,
    waiting: Mutex<Option<Waiting>>,
    /// The next one is on its way.
    coming: AtomicBool,
}

#[derive(Debug)]
struct Waiting {
    child: Child,
    line: UnixStream,
}

impl Ready {
    /// Starts nothing: the first session does.
    #[must_use]
    pub fn new(helper: Helper) -> Self {
        Self(Arc::new(Shared { helper, waiting: Mutex::default(), coming: AtomicBool::new(false) }))
    }

    /// The program that session processes run.
    #[must_use]
    pub fn helper(&self) -> &Helper {
        &self.0.helper
    }

    /// Hands a session to the process that waits, if one does, and has the next one started.
    pub(super) fn begin(&self, spec: &Spec, command: &[u8], ends: &Ends) -> Option<Child> {
        let spec = spec.to_text();
        if spec.len() + command.len() > MOST_TEXT_BYTES {
            return None;
        }
        let waiting = self.0.take();
        self.refill();
        let Waiting { child, line } = waiting?;
        let handed = ends.send(&line).and_then(|()| {
            let now = Instant::now();
            ends::send_text(&line, spec.as_bytes(), now)?;
            ends::send_text(&line, command, now)
        });
        match handed {
            Ok(()) => Some(child),
            // Without all of it, it has begun nothing and ends.
            Err(error) => {
                debug!(%error, "the session process that waited is gone");
                None
            }
        }
    }

    fn refill(&self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if self.0.coming.swap(true, Ordering::AcqRel) {
            return;
        }
        // A node that has no sessions any more has no process wait for one.
        let shared = Arc::downgrade(&self.0);
        runtime.spawn(async move {
            tokio::time::sleep(PAUSE).await;
            let ended = signal(SignalKind::child());
            // It blocks until the new process has left this one's memory.
            let filling = shared.clone();
            let started = tokio::task::spawn_blocking(move || filling.upgrade()?.fill());
            if let (Ok(Some(number)), Ok(ended)) = (started.await, ended) {
                see_off(&shared, number, ended).await;
            }
        });
    }
}

/// Sees that a process that ends while it waits leaves nothing behind, until it has its session.
async fn see_off(shared: &Weak<Shared>, number: u32, mut ended: Signal) {
    while ended.recv().await.is_some() && shared.upgrade().is_some_and(|shared| shared.still_waits(number)) {}
}

impl Shared {
    fn slot(&self) -> MutexGuard<'_, Option<Waiting>> {
        self.waiting.lock()
    }

    /// The process that waits, once it has said so.
    fn take(&self) -> Option<Waiting> {
        let mut slot = self.slot();
        let line = &slot.as_ref()?.line;
        match rustix::net::recv(line, &mut [0; 1], RecvFlags::DONTWAIT) {
            Ok((_, 1)) => slot.take(),
            // Not yet.
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => None,
            // It has ended.
            Ok(_) | Err(_) => {
                *slot = None;
                None
            }
        }
    }

    /// Whether the process of this number still waits. One that has ended does not.
    fn still_waits(&self, number: u32) -> bool {
        let mut slot = self.slot();
        match slot.as_mut().filter(|waiting| waiting.child.id() == Some(number)).map(|it| it.child.try_wait())
        {
            Some(Ok(None)) => true,
            Some(_) => {
                *slot = None;
                false
            }
            None => false,
        }
    }

    /// Starts one where none waits, and gives its number.
    fn fill(&self) -> Option<u32> {
        let is_empty = self.slot().is_none();
        let number = if is_empty { self.put() } else { None };
        self.coming.store(false, Ordering::Release);
        number
    }

    fn put(&self) -> Option<u32> {
        let started = self.start();
        // A session that starts its own says more.
        let started =
            started.inspect_err(|error| debug!(%error, "cannot start a session process ahead")).ok()?;
        let number = started.child.id();
        *self.slot() = Some(started);
        number
    }

    fn start(&self) -> io::Result<Waiting> {
        let (line, theirs) = UnixStream::pair()?;
        let mut command = Command::new(&self.helper.program);
        command.args(&self.helper.arguments).env_clear().env(helper::SPEC, helper::WAIT).current_dir("/");
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Waiting { child: command.spawn()?, line })
    }
}
