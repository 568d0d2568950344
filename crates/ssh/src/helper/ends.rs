//! A session's ends, handed from process to process (unix(7), `SCM_RIGHTS`).

use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

/// Longest text that comes along: a description of a session, or a command line.
const MOST_TEXT_BYTES: usize = 4 * 1024 * 1024;

/// Standard input, output and error of a session.
#[derive(Debug)]
pub(crate) struct Ends([OwnedFd; 3]);

impl Ends {
    pub(crate) fn new(input: OwnedFd, output: OwnedFd, error: OwnedFd) -> Self {
        Self([input, output, error])
    }

    /// Standard input, which is the terminal in a session that has one.
    pub(super) fn input(&self) -> &OwnedFd {
        let [input, ..] = &self.0;
        input
    }

    /// Standard input, output and error.
    pub(crate) fn into_inner(self) -> [OwnedFd; 3] {
        self.0
    }

    pub(crate) fn send(&self, socket: &UnixStream) -> io::Result<()> {
        let [input, output, error] = &self.0;
        let descriptors = [input.as_fd(), output.as_fd(), error.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(io::Error::other("there is no room for descriptors"));
        }
        rustix::net::sendmsg(socket, &[IoSlice::new(b"+")], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    pub(super) fn receive(socket: &UnixStream) -> io::Result<Self> {
        let mut byte = [0];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, flags)?;
        let mut descriptors = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let mut descriptors = descriptors.next().into_iter().flatten();
        match (descriptors.next(), descriptors.next(), descriptors.next()) {
            (Some(input), Some(output), Some(error)) => Ok(Self([input, output, error])),
            _ => Err(io::Error::other("a session's ends were expected, and none came")),
        }
    }

    /// Makes them this process's own.
    pub(super) fn take(self) -> io::Result<()> {
        let [input, output, error] = self.0;
        rustix::stdio::dup2_stdin(&input)?;
        rustix::stdio::dup2_stdout(&output)?;
        Ok(rustix::stdio::dup2_stderr(&error)?)
    }
}

/// Sends bytes with their length before them, if the peer takes them in time.
pub(crate) fn send_text(socket: &UnixStream, text: &[u8], deadline: Instant) -> io::Result<()> {
    let length = u32::try_from(text.len()).map_err(io::Error::other)?;
    send_all(socket, &length.to_be_bytes(), deadline)?;
    send_all(socket, text, deadline)
}

/// The socket's own limit of time would begin anew with each byte that a peer takes.
fn send_all(socket: &UnixStream, mut text: &[u8], deadline: Instant) -> io::Result<()> {
    while !text.is_empty() {
        match rustix::net::send(socket, text, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(count) => text = text.get(count..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                let left = Timespec::try_from(left).map_err(io::Error::other)?;
                let mut places = [PollFd::new(socket, PollFlags::OUT)];
                if let Err(error) = rustix::event::poll(&mut places, Some(&left))
                    && error != Errno::INTR
                {
                    return Err(error.into());
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

pub(super) fn receive_text(mut socket: &UnixStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_be_bytes(length)).map_err(io::Error::other)?;
    if length > MOST_TEXT_BYTES {
        return Err(io::Error::other(format!("{length} bytes are too many for a session's description")));
    }
    let mut text = vec![0; length];
    socket.read_exact(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use super::*;

    #[test]
    fn ends_arrive_in_order_and_text_after_them() {
        let (one, other) = UnixStream::pair().unwrap();
        let (input, mut feed) = io::pipe().unwrap();
        let (mut shown, output) = io::pipe().unwrap();
        let error = output.try_clone().unwrap();
        Ends::new(input.into(), output.into(), error.into()).send(&one).unwrap();
        let soon = Instant::now() + Duration::from_secs(5);
        send_text(&one, b"spec", soon).unwrap();
        send_text(&one, b"", soon).unwrap();
        let Ends([input, output, error]) = Ends::receive(&other).unwrap();
        assert_eq!(receive_text(&other).unwrap(), b"spec");
        assert_eq!(receive_text(&other).unwrap(), b"");
        feed.write_all(b"in").unwrap();
        drop(feed);
        let mut text = String::new();
        std::fs::File::from(input).read_to_string(&mut text).unwrap();
        assert_eq!(text, "in");
        std::fs::File::from(output).write_all(b"out").unwrap();
        std::fs::File::from(error).write_all(b"err").unwrap();
        text.clear();
        shown.read_to_string(&mut text).unwrap();
        assert_eq!(text, "outerr");
    }

    #[test]
    fn a_peer_that_reads_a_little_now_and_then_wins_no_time() {
        let (one, mut other) = UnixStream::pair().unwrap();
        std::thread::spawn(move || {
            let mut block = [0; 16 * 1024];
            while other.read(&mut block).is_ok_and(|count| count > 0) {
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let began = Instant::now();
        let sent = send_text(&one, &vec![0; 4 << 20], began + Duration::from_millis(300));
        assert_eq!(sent.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn a_peer_that_goes_hands_nothing_over() {
        let (one, other) = UnixStream::pair().unwrap();
        drop(one);
        assert!(Ends::receive(&other).is_err());
        let (one, other) = UnixStream::pair().unwrap();
        (&one).write_all(&[255; 4]).unwrap();
        assert!(receive_text(&other).is_err());
    }
}
