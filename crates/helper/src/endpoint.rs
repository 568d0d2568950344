//! How a program reaches the helper daemon of its profile, starting it where there is none.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use super::log;
use super::request::{Request, answer, decode_error};
use super::socket::{self, Place};
use crate::error::{Error, Result};

/// How long a program waits for a helper that it or another program starts, before it goes without. A machine on which
/// fifty begin at once is slow with whichever way they take.
const START_PATIENCE: Duration = Duration::from_secs(15);
/// How long a helper may take to say that it has taken over. It only looks at files before that.
const TAKE_PATIENCE: Duration = Duration::from_secs(6);
/// How often a program that waits for another's start looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(3);

/// Where the helper of one profile is reached.
#[derive(Debug, Clone, Copy)]
pub struct Endpoint<'a> {
    /// The profile's directory.
    pub directory: &'a Path,
    /// The cluster's address, which names the profile.
    pub proxy: &'a str,
    /// For a helper that must be started: how long it stays when no program needs it.
    pub idle: Duration,
}

/// A connection that the helper has taken over. When this is dropped, it ends.
#[derive(Debug)]
pub struct Taken(pub(super) UnixStream);

impl Endpoint<'_> {
    /// Has the helper connect input and output to what a request names. `None`: nothing was read from the input, so go
    /// without it.
    pub fn ask(&self, request: &Request, ends: [BorrowedFd<'_>; 2]) -> Option<Taken> {
        let place = Place::of(self.directory);
        let stream = match place.connect() {
            Ok(stream) => stream,
            Err(_) => self.start(&place)?,
        };
        hand_over(&stream, request, ends).ok().filter(|taken| *taken).map(|_| Taken(stream))
    }

    /// Whether a helper runs, starting it where there is none.
    pub fn is_up(&self) -> bool {
        let place = Place::of(self.directory);
        place.connect().is_ok() || self.start(&place).is_some()
    }

    /// Starts the helper, or waits for the program that does.
    fn start(&self, place: &Place) -> Option<UnixStream> {
        // Without a login there is nothing to keep, and a directory made now would outlive a logout.
        if !self.directory.join("profile.json").exists() {
            return None;
        }
        place.create().ok()?;
        let lock = place.lock_file("starting").ok()?;
        let deadline = Instant::now() + START_PATIENCE;
        while lock.try_lock().is_err() {
            if Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(LOOK_INTERVAL);
            if let Ok(stream) = place.connect() {
                return Some(stream);
            }
        }
        // Another program may have been done while this one came for the lock.
        if let Ok(stream) = place.connect() {
            return Some(stream);
        }
        let mut child = self.spawn(place).ok()?;
        is_ready(&mut child, deadline).then(|| place.connect().ok())?
    }

    fn spawn(&self, place: &Place) -> io::Result<Child> {
        let log = log::open(&place.log())?;
        let home = std::path::absolute(self.directory.parent().unwrap_or(self.directory))?;
        Command::new(std::env::current_exe()?)
            .arg("--home")
            .arg(home)
            .args(["--proxy", self.proxy, "connect", "--serve", "--idle"])
            .arg(format!("{}s", self.idle.as_secs()))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
    }
}

/// Waits until a helper says that it listens. One that ends instead has said why in its log.
fn is_ready(child: &mut Child, deadline: Instant) -> bool {
    let Some(mut said) = child.stdout.take() else { return false };
    readable(said.as_fd(), deadline.saturating_duration_since(Instant::now()))
        && matches!(said.read(&mut [0]), Ok(1))
}

fn readable(descriptor: BorrowedFd<'_>, patience: Duration) -> bool {
    let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
    let patience = Timespec::try_from(patience).ok();
    matches!(rustix::event::poll(&mut polled, patience.as_ref()), Ok(1..))
}

/// Gives the descriptors away. `false`: the helper left them alone.
fn hand_over(stream: &UnixStream, request: &Request, ends: [BorrowedFd<'_>; 2]) -> io::Result<bool> {
    socket::send(stream, request, &ends)?;
    stream.set_read_timeout(Some(TAKE_PATIENCE))?;
    let mut first = [0];
    let read = (&mut &*stream).read(&mut first);
    match read {
        Ok(1) => Ok(first == [answer::TAKEN]),
        Ok(_) => Ok(false),
        Err(_) => {
            // After this it can take them no more, so whether it did is settled; two must not read one input.
            stream.shutdown(std::net::Shutdown::Both)?;
            Ok(matches!((&mut &*stream).read(&mut first), Ok(1)) && first == [answer::TAKEN])
        }
    }
}

/// Waits until the connection ends.
pub fn wait(taken: Taken) -> Result {
    let Taken(mut stream) = taken;
    let mut said = Vec::new();
    let read =
        stream.set_read_timeout(None).and_then(|()| (&mut stream).take(64 * 1024).read_to_end(&mut said));
    understand(read.is_ok().then_some(&said))
}

/// What the helper's last words mean.
pub(super) fn understand(said: Option<&Vec<u8>>) -> Result {
    match said.and_then(|said| said.split_first()) {
        Some((&answer::ENDED, _)) => Ok(()),
        Some((&answer::FAILED, error)) => Err(decode_error(error).into()),
        _ => Err(Error::Ended),
    }
}
