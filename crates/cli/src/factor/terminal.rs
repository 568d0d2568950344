//! The terminal of this program's session, whatever standard input and output are.

use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;
use tokio::sync::oneshot;

/// Of a line; more is none that a person types here.
const LONGEST_LINE: usize = 1024;

/// The terminal, of a program that a person sees: one in the background would be stopped by reading.
#[derive(Debug)]
pub(super) struct Terminal(File);

impl Terminal {
    pub(super) fn open() -> Option<Self> {
        let terminal = File::options().read(true).write(true).open("/dev/tty").ok()?;
        (tcgetpgrp(&terminal).ok()? == getpgrp()).then_some(Self(terminal))
    }

    pub(super) fn is_here() -> bool {
        Self::open().is_some()
    }

    pub(super) fn write(&self, text: &str) {
        let _ = (&self.0).write_all(text.as_bytes());
    }

    /// The next line that is typed and is not empty. When this is dropped, nothing more is read: what is typed then is for other
    /// programs.
    pub(super) async fn line(self) -> Option<String> {
        let (stopped, stop) = std::io::pipe().ok()?;
        let (typed, line) = oneshot::channel();
        let _reading = Reading {
            stop: Some(stop),
            thread: Some(std::thread::spawn(move || read(self.0, stopped, typed))),
        };
        line.await.ok()
    }
}

/// Reads the terminal, until this is dropped.
struct Reading {
    stop: Option<PipeWriter>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Reading {
    fn drop(&mut self) {
        drop(self.stop.take());
        // It waits for nothing but the terminal and the pipe, which has ended.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn read(mut terminal: File, stopped: PipeReader, typed: oneshot::Sender<String>) {
    let mut line = Vec::new();
    loop {
        {
            let (terminal, stopped) = (terminal.as_fd(), stopped.as_fd());
            let mut waits = [PollFd::new(&terminal, PollFlags::IN), PollFd::new(&stopped, PollFlags::IN)];
            match poll(&mut waits, None) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return,
                Ok(_) => {}
            }
            if waits.get(1).is_none_or(|stopped| !stopped.revents().is_empty()) {
                return;
            }
        }
        let mut bytes = [0; 256];
        let count = match terminal.read(&mut bytes) {
            // The person has ended it, or the terminal is gone.
            Ok(0) | Err(_) => return,
            Ok(count) => count,
        };
        line.extend_from_slice(bytes.get(..count).unwrap_or_default());
        if line.ends_with(b"\n") {
            let text = String::from_utf8_lossy(&line).trim().to_owned();
            line.clear();
            if !text.is_empty() {
                let _ = typed.send(text);
                return;
            }
        }
        if line.len() > LONGEST_LINE {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_line_is_read_and_what_is_typed_after_the_question_is_for_others() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let terminal = || Terminal(File::from(OwnedFd::from(near.try_clone().unwrap())));
        far.write_all(b"\n").unwrap();
        far.write_all(b" 123456\n").unwrap();
        assert_eq!(terminal().line().await.as_deref(), Some("123456"));
        // Proven at the page meanwhile.
        let asked = tokio::time::timeout(Duration::from_millis(1), terminal().line()).await;
        assert!(asked.is_err());
        far.write_all(b"uptime\n").unwrap();
        let mut rest = [0; 7];
        (&near).read_exact(&mut rest).unwrap();
        assert_eq!(&rest, b"uptime\n");
        // A person who ends the input has only the page.
        drop(far);
        assert_eq!(terminal().line().await, None);
    }
}
