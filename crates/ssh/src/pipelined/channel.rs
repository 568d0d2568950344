//! The one channel: its windows, its requests, and how it ends.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use bytes::{Buf, Bytes};

use super::Breach;
use super::message::{
    CHANNEL_CLOSE, CHANNEL_DATA, CHANNEL_EOF, CHANNEL_OPEN, CHANNEL_REQUEST, CHANNEL_WINDOW_ADJUST, Draft,
};
use crate::algorithms::{FIRST_WINDOW_BYTES, wider_window};
use crate::request::{Program, SessionRequest};
use crate::session::{Size, Terminal};

/// The channel's number here.
pub(super) const OURS: u32 = 0;
/// The number that OpenSSH gives the first channel of a connection.
const FIRST_OF_OPENSSH: u32 = 0;
/// Data in a packet at most, either way: what OpenSSH and russh take.
const PACKET_BYTES: u32 = 32 * 1024;
/// TTY_OP_END (RFC 4254 §8).
const END_OF_MODES: u8 = 0;
/// Terminal modes with a number behind them.
const MODES: RangeInclusive<u8> = 1..=159;

/// What the server has been asked, and answers in that order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// A terminal.
    Terminal,
    /// The program.
    Program,
}

/// How far the channel is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Far {
    /// Asked for. The requests have gone to this number, if to any.
    Asked(Option<u32>),
    /// Open, with its number there.
    Open(u32),
    /// Not opened, or closed by both.
    Over,
}

pub(super) struct Channel {
    far: Far,
    /// What is asked, without the channel's number.
    requests: Vec<Request>,
    asked: VecDeque<Asked>,
    /// Bytes that may be sent.
    window: u32,
    most: u32,
    /// Bytes that may come.
    granted: u32,
    taken: u32,
    /// How many may be on their way, which grows as they are taken, up to the widest.
    size: u32,
    widest: u32,
    input: Bytes,
    input_ends: bool,
    eof_sent: bool,
    close_sent: bool,
    close_came: bool,
}

struct Request {
    asks: Option<Asked>,
    tail: Vec<u8>,
}

/// A request on a channel without its number: name, flag and content.
fn request(name: &str, asks: Option<Asked>, content: impl FnOnce(Draft) -> Draft) -> Request {
    let draft = Draft(Vec::new()).string(name.as_bytes()).flag(asks.is_some());
    Request { asks, tail: content(draft).0 }
}

fn size(draft: Draft, size: Size) -> Draft {
    let Size { columns, rows, width, height } = size;
    draft.u32(columns).u32(rows).u32(width).u32(height)
}

fn terminal(terminal: &Terminal) -> Request {
    request("pty-req", Some(Asked::Terminal), |draft| {
        let mut modes = Draft(Vec::new());
        // A code from 160 on would end them there (RFC 4254 §8), and so would the end's own.
        let sent = terminal.modes.iter().filter(|(code, _)| MODES.contains(code));
        for (code, value) in sent {
            modes = modes.u8(*code).u32(*value);
        }
        let modes = modes.u8(END_OF_MODES);
        size(draft.string(terminal.term.as_bytes()), terminal.size).string(&modes.0)
    })
}

fn program(program: &Program) -> Request {
    let asked = Some(Asked::Program);
    match program {
        Program::Shell => request("shell", asked, |draft| draft),
        Program::Exec(command) => request("exec", asked, |draft| draft.string(command)),
        Program::Subsystem(name) => request("subsystem", asked, |draft| draft.string(name.as_bytes())),
    }
}

impl Channel {
    /// A channel for a session, and the messages that ask for it. With `guess`, the requests go with it, to the number
    /// that OpenSSH gives a first channel. The window grows up to the `widest`.
    pub(super) fn open<D>(wanted: &SessionRequest<D>, guess: bool, widest: u32) -> (Self, Vec<Draft>) {
        let variable = |(name, value): &(String, String)| {
            request("env", None, |draft| draft.string(name.as_bytes()).string(value.as_bytes()))
        };
        let mut requests: Vec<Request> = wanted.terminal.iter().map(terminal).collect();
        requests.extend(wanted.environment.iter().map(variable));
        requests.push(program(&wanted.program));
        let guess = guess.then_some(FIRST_OF_OPENSSH);
        let channel = Self {
            far: Far::Asked(guess),
            asked: requests.iter().filter_map(|request| request.asks).collect(),
            requests,
            window: 0,
            most: 0,
            granted: FIRST_WINDOW_BYTES,
            taken: 0,
            size: FIRST_WINDOW_BYTES,
            widest,
            input: Bytes::new(),
            input_ends: false,
            eof_sent: false,
            close_sent: false,
            close_came: false,
        };
        let open = Draft::new(CHANNEL_OPEN).string(b"session").u32(OURS);
        let mut drafts = vec![open.u32(FIRST_WINDOW_BYTES).u32(PACKET_BYTES)];
        drafts.extend(guess.into_iter().flat_map(|number| channel.asking(number)));
        (channel, drafts)
    }

    fn asking(&self, number: u32) -> Vec<Draft> {
        let draft = |request: &Request| Draft::new(CHANNEL_REQUEST).u32(number).raw(&request.tail);
        self.requests.iter().map(draft).collect()
    }

    /// The server has opened it. Gives what has still to be asked: everything, unless the guess was right. What went to
    /// another number went to no channel, because this is the only one.
    pub(super) fn opened(&mut self, number: u32, window: u32, most: u32) -> Result<Vec<Draft>, Breach> {
        let Far::Asked(guess) = self.far else {
            return Err(Breach::Unexpected { message: 91, expected: "no second answer" });
        };
        self.far = Far::Open(number);
        self.window = window;
        self.most = most.clamp(1, PACKET_BYTES);
        let asking = if guess == Some(number) { Vec::new() } else { self.asking(number) };
        self.requests = Vec::new();
        Ok(asking)
    }

    /// The server does not open it.
    pub(super) fn not_opened(&mut self) {
        self.far = Far::Over;
    }

    /// The server has answered the oldest question.
    pub(super) fn answered(&mut self) -> Option<Asked> {
        self.asked.pop_front()
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.far, Far::Open(_))
    }

    /// The server lets more be sent.
    pub(super) fn adjust(&mut self, by: u32) -> Result<(), Breach> {
        self.window = self.window.checked_add(by).ok_or(Breach::Window)?;
        Ok(())
    }

    /// Output came.
    pub(super) fn came(&mut self, bytes: usize) -> Result<(), Breach> {
        let left = u32::try_from(bytes).ok().and_then(|bytes| self.granted.checked_sub(bytes));
        self.granted = left.ok_or(Breach::Window)?;
        Ok(())
    }

    /// Output was taken: the server may send as much again, and more, once it is worth a message.
    pub(super) fn took(&mut self, bytes: usize) -> Option<Draft> {
        self.taken = self.taken.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        let Far::Open(number) = self.far else { return None };
        if self.taken < self.size / 8 || self.close_came || self.close_sent {
            return None;
        }
        let wider = wider_window(self.size, self.widest);
        let by = std::mem::take(&mut self.taken).saturating_add(wider.saturating_sub(self.size));
        self.size = wider;
        self.granted = self.granted.saturating_add(by);
        Some(Draft::new(CHANNEL_WINDOW_ADJUST).u32(number).u32(by))
    }

    /// Whether input is taken now.
    pub(super) fn takes_input(&self) -> bool {
        self.is_open() && !self.is_closing() && self.input.is_empty() && !self.input_ends
    }

    /// Nothing goes any more.
    pub(super) fn is_closing(&self) -> bool {
        self.close_sent || self.close_came
    }

    pub(super) fn input(&mut self, bytes: Bytes) {
        self.input = bytes;
    }

    pub(super) fn end_input(&mut self) {
        self.input_ends = true;
    }

    /// What has not gone does not go.
    pub(super) fn drop_input(&mut self) {
        self.input.clear();
        self.input_ends = true;
    }

    /// The next message of input that may go.
    pub(super) fn next_input(&mut self) -> Option<Draft> {
        let Far::Open(number) = self.far else { return None };
        if self.is_closing() {
            self.input.clear();
            return None;
        }
        if !self.input.is_empty() {
            let part = (self.window.min(self.most) as usize).min(self.input.len());
            if part == 0 {
                return None;
            }
            let bytes = self.input.split_to(part);
            self.window = self.window.saturating_sub(u32::try_from(part).unwrap_or(u32::MAX));
            return Some(Draft::new(CHANNEL_DATA).u32(number).string(bytes.chunk()));
        }
        if self.input_ends && !self.eof_sent {
            self.eof_sent = true;
            return Some(Draft::new(CHANNEL_EOF).u32(number));
        }
        None
    }

    /// A new size of the terminal.
    pub(super) fn resize(&self, to: Size) -> Option<Draft> {
        self.tell(&request("window-change", None, |draft| size(draft, to)))
    }

    /// A signal, by its name without `SIG`.
    pub(super) fn signal(&self, name: &str) -> Option<Draft> {
        self.tell(&request("signal", None, |draft| draft.string(name.as_bytes())))
    }

    fn tell(&self, request: &Request) -> Option<Draft> {
        let Far::Open(number) = self.far else { return None };
        (!self.is_closing()).then(|| Draft::new(CHANNEL_REQUEST).u32(number).raw(&request.tail))
    }

    /// An answer to a request of the server's.
    pub(super) fn answer(&self, message: u8) -> Option<Draft> {
        let Far::Open(number) = self.far else { return None };
        (!self.close_sent).then(|| Draft::new(message).u32(number))
    }

    /// This side closes.
    pub(super) fn close(&mut self) -> Option<Draft> {
        let Far::Open(number) = self.far else { return None };
        if std::mem::replace(&mut self.close_sent, true) {
            return None;
        }
        Some(Draft::new(CHANNEL_CLOSE).u32(number))
    }

    /// The server closes; gives our part of it.
    pub(super) fn closed(&mut self) -> Option<Draft> {
        self.close_came = true;
        let close = self.close();
        self.far = Far::Over;
        close
    }
}
