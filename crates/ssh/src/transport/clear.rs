//! What the SSH library speaks with once a user is in: the connection, without its transport.
//!
//! The library reads and writes packets in the clear, after an exchange of keys in which there is nothing to exchange (`none`) and a
//! login without a proof, as a server; as a client, with none. [`ClearStream`] says the peer's part of both, and after that hands on what is RFC 4254's: the payload of
//! each packet that the library writes is encrypted where it lies, and each that comes is decrypted before the library reads it. No
//! task and no queue stands between. What passes is bounded by the peer's windows, by the stream, and, while this side waits for new
//! keys, by [`MOST_AHEAD_BYTES`].
//!
//! Nothing but the library sees the clear text, and the library computes nothing with it. Keys are renewed here; the library
//! does not hear of it.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::io::poll_read_buf;

use super::login::CONNECTION;
use super::message::{
    CHANNEL_FAILURE, CHANNEL_OPEN, DEBUG, DISCONNECT, Draft, EXT_INFO, GLOBAL_REQUEST, IGNORE, KEXINIT,
    NEWKEYS, REQUEST_FAILURE, SERVICE_ACCEPT, SERVICE_REQUEST, UNIMPLEMENTED, USERAUTH_BANNER,
    USERAUTH_REQUEST, USERAUTH_SUCCESS,
};
use super::packet::Outgoing;
use super::{Breach, Step, Transport, USERAUTH};
use crate::BoxedStream;

/// Room for what is read at once, in bytes.
const BLOCK_BYTES: usize = 64 * 1024;
/// What waits for the stream before the library has to, in bytes.
const MOST_OUT_BYTES: usize = 128 * 1024;
/// What is read ahead of the library while this side's packets wait for new keys, in bytes. Until the peer has heard that new keys are
/// wanted it may send what its windows allow: those of two channels at their widest.
const MOST_AHEAD_BYTES: usize = 32 << 20;
/// What a message that is read ahead costs beside its payload, in bytes: its place in the queue and in the allocator.
const MESSAGE_BYTES: usize = 64;
/// What the peer may send from this side's KEXINIT to the new keys, in bytes on the wire: [`MOST_AHEAD_BYTES`], and as much again for
/// padding and for messages that are not kept.
const MOST_WIRE_BYTES: u64 = 64 << 20;
/// How long the peer may take to renew keys.
const PATIENCE: Duration = Duration::from_secs(60);
/// Length of a packet's head in the clear (RFC 4253 §6): its length, and that of its padding.
const HEAD_BYTES: usize = 5;
/// Messages that are the connection's (RFC 4250 §4.1.2).
const CONNECTION_FROM: u8 = 80;
/// Of a peer that sends on and on while this side waits for its part in new keys.
const TOO_MUCH: Breach = Breach::Keys("sent too much before it renewed keys");
/// Names that the library knows for an exchange of nothing.
const NOTHING: &[&str] = &["none"];
const CLEAR: &[&str] = &["clear"];
/// Every type of host key that the library may look for. None is shown.
const HOST_KEYS: &[&str] = &[
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
];

/// Which side the peer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Peer {
    Client,
    Server,
}

/// A connection as the SSH library speaks it.
pub(crate) struct ClearStream {
    stream: BoxedStream,
    transport: Transport,
    peer: Peer,
    /// What the library reads next: all that the peer says to it before the connection begins, and after that the head of a packet.
    told: BytesMut,
    /// The rest of that packet.
    payload: Bytes,
    ahead: VecDeque<Bytes>,
    ahead_bytes: usize,
    /// The library has said what it is.
    has_greeted: bool,
    /// A packet that the library has not written to its end.
    partial: BytesMut,
    /// The peer says no more.
    has_ended: bool,
    /// What the library writes goes nowhere: the peer ended the connection while the library wrote, and the library is to read why.
    discards: bool,
    /// The stream was written to and has not been flushed since.
    unflushed: bool,
    /// Why nothing can be sent. The library hears of it once it has read what the peer said before.
    failed: Option<io::Error>,
    limits: Limits,
    /// Ends the connection unless the keys are renewed before.
    late: Option<Pin<Box<Sleep>>>,
}

/// What the peer may do while keys are renewed.
#[derive(Debug, Clone, Copy)]
struct Limits {
    patience: Duration,
    ahead_bytes: usize,
    wire_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { patience: PATIENCE, ahead_bytes: MOST_AHEAD_BYTES, wire_bytes: MOST_WIRE_BYTES }
    }
}

/// What reading has led to.
enum Heard {
    Message(Bytes),
    /// There are new keys, where reading was for these.
    Keys,
    End,
}

/// Whether a message is of the connection (RFC 4250 §4.1.2) and has a meaning.
fn is_of_connection(number: u8) -> bool {
    matches!(number, GLOBAL_REQUEST..=REQUEST_FAILURE | CHANNEL_OPEN..=CHANNEL_FAILURE)
}

/// A packet in the clear.
fn packet(out: &mut BytesMut, draft: &Draft) -> Result<(), Breach> {
    Outgoing::default().put(out, &draft.0)
}

impl ClearStream {
    /// A client's, which is in as `user`.
    pub(super) fn of_client(stream: BoxedStream, transport: Transport, user: &str) -> Self {
        let login = Draft::new(USERAUTH_REQUEST).string(user.as_bytes()).string(CONNECTION).string(b"none");
        let drafts = [Draft::new(SERVICE_REQUEST).string(USERAUTH), login];
        Self::new(stream, transport, Peer::Client, &drafts)
    }

    /// A server's, which has let this side in.
    pub(crate) fn of_server(stream: BoxedStream, transport: Transport) -> Self {
        Self::new(stream, transport, Peer::Server, &[])
    }

    fn new(stream: BoxedStream, transport: Transport, peer: Peer, drafts: &[Draft]) -> Self {
        let mut told = BytesMut::new();
        told.extend_from_slice(transport.peer().as_bytes());
        told.extend_from_slice(b"\r\n");
        let proposal = Draft::new(KEXINIT).raw(&[0; 16]).names(NOTHING).names(HOST_KEYS).names(CLEAR);
        let proposal = proposal.names(CLEAR).names(NOTHING).names(NOTHING).names(NOTHING).names(NOTHING);
        let proposal = proposal.names(&[]).names(&[]).flag(false).u32(0);
        for draft in std::iter::once(&proposal).chain(drafts) {
            // None of these is longer than a packet.
            let _ = packet(&mut told, draft);
        }
        Self {
            stream,
            transport,
            peer,
            told,
            payload: Bytes::new(),
            ahead: VecDeque::new(),
            ahead_bytes: 0,
            has_greeted: false,
            partial: BytesMut::new(),
            has_ended: false,
            discards: false,
            unflushed: false,
            failed: None,
            limits: Limits::default(),
            late: None,
        }
    }

    /// The error of a breach, of which the peer is told where it still listens.
    fn broken(&mut self, cx: &mut Context<'_>, breach: Breach) -> io::Error {
        self.transport.break_off(&breach);
        if let Poll::Ready(Ok(())) = self.poll_drain(cx, 0) {
            let _ = Pin::new(&mut self.stream).poll_flush(cx);
        }
        io::Error::other(breach)
    }

    /// Writes what is to be sent, until no more than `most` bytes of it wait.
    fn poll_drain(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<()>> {
        while self.transport.output().len() > most {
            let written = ready!(Pin::new(&mut self.stream).poll_write(cx, self.transport.output()))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.transport.output().advance(written);
            self.unflushed = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends the transport's own answers, and sees that a stream that buffers lets go of them: the peer may say nothing before it has
    /// them. A stream that does not take them now wakes this task when it does.
    fn poll_answers(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx, 0))?;
        if self.unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// The next message of the connection. With `until_keys`, no more than is to be read for new keys.
    fn poll_message(&mut self, cx: &mut Context<'_>, until_keys: bool) -> Poll<io::Result<Heard>> {
        loop {
            let step = match self.transport.next() {
                Ok(step) => step,
                Err(breach) => return Poll::Ready(Err(self.broken(cx, breach))),
            };
            match step {
                Some(Step::Message(payload)) => match self.admit(&payload) {
                    Ok(true) => return Poll::Ready(Ok(Heard::Message(payload))),
                    Ok(false) => {}
                    Err(breach) => return Poll::Ready(Err(self.broken(cx, breach))),
                },
                Some(Step::Farewell(payload)) => return Poll::Ready(Ok(Heard::Message(payload))),
                // Judged before the login.
                Some(Step::Host(_)) => {}
                None => {
                    if let Some(done) = self.read_on(cx, until_keys) {
                        return done;
                    }
                }
            }
        }
    }

    /// Reads more, where all that has come is heard. None when more has come.
    fn read_on(&mut self, cx: &mut Context<'_>, until_keys: bool) -> Option<Poll<io::Result<Heard>>> {
        if !self.transport.is_renewing() {
            self.late = None;
        }
        // The keys, and all that the peer says for now, may have come in one piece: a peer that is silent from here on must not hold up
        // the library.
        if until_keys && !self.transport.is_exchanging() {
            return Some(Poll::Ready(Ok(Heard::Keys)));
        }
        if until_keys && self.transport.came_since_proposal() > self.limits.wire_bytes {
            return Some(Poll::Ready(Err(self.broken(cx, TOO_MUCH))));
        }
        if self.failed.is_none()
            && let Poll::Ready(Err(error)) = self.poll_answers(cx)
        {
            self.failed = Some(error);
        }
        if self.has_ended || self.transport.is_over() {
            return Some(Poll::Ready(Ok(Heard::End)));
        }
        // A peer that takes none of many answers is not read from.
        let read = if self.transport.output().len() > 4 * MOST_OUT_BYTES && self.failed.is_none() {
            Poll::Pending
        } else {
            let input = self.transport.input();
            input.reserve(BLOCK_BYTES);
            poll_read_buf(Pin::new(&mut self.stream), cx, input)
        };
        match (read, self.failed.take()) {
            (Poll::Ready(Ok(1..)), failed) => {
                self.failed = failed;
                None
            }
            // What the peer said before is heard.
            (_, Some(error)) => Some(Poll::Ready(Err(error))),
            (Poll::Ready(Ok(_)), None) => {
                self.has_ended = true;
                Some(Poll::Ready(Ok(Heard::End)))
            }
            (Poll::Ready(Err(error)), None) => Some(Poll::Ready(Err(error))),
            (Poll::Pending, None) if self.poll_late(cx).is_ready() => {
                let breach = Breach::Keys("did not renew keys in time");
                Some(Poll::Ready(Err(self.broken(cx, breach))))
            }
            (Poll::Pending, None) => Some(Poll::Pending),
        }
    }

    /// Whether the peer has had its time for new keys. To be asked when nothing more is there to be read.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.transport.is_renewing() {
            return Poll::Pending;
        }
        let patience = self.limits.patience;
        let late = self.late.get_or_insert_with(|| Box::pin(sleep(patience)));
        loop {
            ready!(late.as_mut().poll(cx));
            if late.deadline().elapsed() < patience / 8 {
                return Poll::Ready(());
            }
            // The library has not read for long: the delay may be this side's, which the peer's time does not pay for.
            late.as_mut().reset(Instant::now() + patience);
        }
    }

    /// Whether a message is handed on to the library: those of the connection are, and nothing else.
    fn admit(&mut self, payload: &Bytes) -> Result<bool, Breach> {
        let number = payload.first().copied().unwrap_or_default();
        match number {
            number if is_of_connection(number) => return Ok(true),
            // A client that is in is not let in again (RFC 4252 §5.1).
            USERAUTH_REQUEST if self.peer == Peer::Client => {}
            USERAUTH_BANNER if self.peer == Peer::Server => {}
            _ => self.transport.unimplemented()?,
        }
        Ok(false)
    }

    /// Puts the next packet where the library reads it.
    fn present(&mut self, payload: Bytes) {
        // It never leaves this process, so that there is no padding.
        let length = u32::try_from(payload.len() + 1).unwrap_or(u32::MAX);
        self.told.extend_from_slice(&length.to_be_bytes());
        self.told.extend_from_slice(&[0]);
        self.payload = payload;
    }

    /// Waits for new keys, and reads what comes meanwhile: the peer's part in them is behind it.
    fn poll_keys(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.transport.is_exchanging() && !self.discards {
            match ready!(self.poll_message(cx, true))? {
                Heard::Keys => break,
                // The library reads what came before, and the end, in its turn.
                Heard::End => self.discards = true,
                Heard::Message(payload) => {
                    self.ahead_bytes += payload.len() + MESSAGE_BYTES;
                    // Of its own: a slice would keep all of the block that was read.
                    self.ahead.push_back(Bytes::copy_from_slice(&payload));
                    if self.ahead_bytes > self.limits.ahead_bytes {
                        return Poll::Ready(Err(self.broken(cx, TOO_MUCH)));
                    }
                    self.discards = self.transport.is_over();
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Takes what the library writes, whole packets of it, and says how much that was.
    fn take(&mut self, bytes: &[u8]) -> Result<usize, Breach> {
        let mut taken = 0;
        while self.transport.output().len() < MOST_OUT_BYTES && !self.transport.is_exchanging() {
            let rest = bytes.get(taken..).unwrap_or_default();
            if rest.is_empty() {
                break;
            }
            if !self.has_greeted {
                // One line.
                let end = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |end| end + 1);
                self.has_greeted = rest.get(..end).is_some_and(|line| line.ends_with(b"\n"));
                taken += end;
                continue;
            }
            if self.partial.is_empty()
                && let Some(size) = whole(rest)
            {
                self.said(rest.get(..size).unwrap_or_default())?;
                taken += size;
                continue;
            }
            // The library writes packets whole; this is for when it does not.
            taken += self.complete(rest)?;
        }
        Ok(taken)
    }

    /// Adds to a packet that has begun, and says by how much.
    fn complete(&mut self, rest: &[u8]) -> Result<usize, Breach> {
        let wanted = match length(&self.partial) {
            Some(size) if size <= HEAD_BYTES => return Err(Breach::Malformed("of this side's own")),
            Some(size) => size - self.partial.len(),
            None => 4 - self.partial.len(),
        };
        let part = rest.get(..wanted.min(rest.len())).unwrap_or_default();
        self.partial.extend_from_slice(part);
        if whole(&self.partial).is_some() {
            let packet = self.partial.split();
            self.said(&packet)?;
        }
        Ok(part.len())
    }

    /// Hears one packet of the library's.
    fn said(&mut self, whole: &[u8]) -> Result<(), Breach> {
        let malformed = Breach::Malformed("of this side's own");
        let padding = usize::from(whole.get(4).copied().unwrap_or_default());
        let end = whole.len().checked_sub(padding).ok_or(malformed.clone())?;
        let payload = whole.get(HEAD_BYTES..end).ok_or(malformed.clone())?;
        match (self.peer, payload.first().copied().unwrap_or_default()) {
            (_, CONNECTION_FROM.. | DISCONNECT | DEBUG | IGNORE) => self.transport.send(payload),
            (_, KEXINIT | NEWKEYS | UNIMPLEMENTED | EXT_INFO) => Ok(()),
            (Peer::Client, SERVICE_ACCEPT | USERAUTH_SUCCESS | USERAUTH_BANNER) => Ok(()),
            _ => Err(Breach::Order("the library does not let in a user who is in")),
        }
    }
}

/// The size of the packet that bytes begin with, as its head says.
fn length(bytes: &[u8]) -> Option<usize> {
    let head = bytes.first_chunk::<4>()?;
    usize::try_from(u32::from_be_bytes(*head)).ok()?.checked_add(4)
}

/// The same, where all of it is there.
fn whole(bytes: &[u8]) -> Option<usize> {
    length(bytes).filter(|size| *size <= bytes.len() && *size > HEAD_BYTES)
}

/// Moves as much as there is room for, of bytes in one piece.
fn hand_over(source: &mut impl Buf, buffer: &mut ReadBuf<'_>) {
    let length = source.remaining().min(buffer.remaining());
    buffer.put_slice(source.chunk().get(..length).unwrap_or_default());
    source.advance(length);
}

impl AsyncRead for ClearStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        loop {
            hand_over(&mut this.told, buffer);
            hand_over(&mut this.payload, buffer);
            if buffer.remaining() == 0 || buffer.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
            let heard = match this.ahead.pop_front() {
                Some(payload) => {
                    this.ahead_bytes = this.ahead_bytes.saturating_sub(payload.len() + MESSAGE_BYTES);
                    Heard::Message(payload)
                }
                None => ready!(this.poll_message(cx, false))?,
            };
            match heard {
                Heard::Message(payload) => this.present(payload),
                Heard::Keys => {}
                Heard::End => return Poll::Ready(Ok(())),
            }
        }
    }
}

impl AsyncWrite for ClearStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        loop {
            ready!(this.poll_keys(cx))?;
            if this.discards {
                return Poll::Ready(Ok(bytes.len()));
            }
            ready!(this.poll_drain(cx, MOST_OUT_BYTES / 2))?;
            let taken = match this.take(bytes) {
                Ok(taken) => taken,
                Err(breach) => return Poll::Ready(Err(this.broken(cx, breach))),
            };
            if let Poll::Ready(Err(error)) = this.poll_drain(cx, 0) {
                return Poll::Ready(Err(error));
            }
            if taken > 0 || bytes.is_empty() {
                return Poll::Ready(Ok(taken));
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.discards {
            return Poll::Ready(Ok(()));
        }
        this.poll_answers(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.discards {
            ready!(this.poll_drain(cx, 0))?;
        }
        Pin::new(&mut this.stream).poll_shutdown(cx)
    }
}

impl std::fmt::Debug for ClearStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClearStream").field("peer", &self.peer).finish_non_exhaustive()
    }
}
