//! A terminal session that others take part in: what it shows goes to them, what peers type comes from them, and its
//! size fits all who use it.
//!
//! The session never waits for who watches: each has a bounded queue, and one that is full is emptied, counted, and
//! followed by the screen as it is when its reader has caught up.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use sallyport_audit::recording::Body;
use sallyport_session::Participant;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::error::JoinError;
use crate::node::record::SessionRecord;
use crate::session::{Channel, Exit, Gone, HANDED_PIECES, Incoming, Input, Output, Size};

/// The last output, from which the screen is drawn for who joins.
const KEPT_BYTES: usize = 64 * 1024;
/// What may wait for one who takes part.
const QUEUE_BYTES: usize = 256 * 1024;
/// What peers have typed and the session's process has not read.
const TYPED_BYTES: usize = 64 * 1024;
/// People who take part in one session.
const MOST: usize = 32;
/// How long the owner's terminal has to take a notice.
const NOTICE: Duration = Duration::from_secs(2);
/// A screen is drawn no larger than this.
const LARGEST: (NonZeroU16, NonZeroU16) = (NonZeroU16::new(400).unwrap(), NonZeroU16::new(1000).unwrap());

struct Member {
    who: Participant,
    /// Of their terminal; none for those who do not count.
    size: Option<Size>,
    queue: Vec<u8>,
    skipped: u64,
    arrived: Arc<Notify>,
    typed: u64,
}

#[derive(Default)]
struct State {
    kept: VecDeque<u8>,
    /// Whether the beginning of the output is no longer kept.
    cut: bool,
    owner: Size,
    applied: Size,
    members: BTreeMap<u64, Member>,
    next: u64,
    typed: VecDeque<Bytes>,
    typed_bytes: usize,
    /// Where the input came from that the process has not read yet, in order: peers or not.
    handed: VecDeque<bool>,
    /// Who typed last: a peer, by number, or the owner.
    typist: Option<u64>,
    over: bool,
}

/// One session that can be joined.
pub(in crate::node) struct Hub {
    state: Mutex<State>,
    /// Peers typed, or the size changed.
    changed: Notify,
    /// Peers may type more.
    room: Notify,
    owner: Arc<dyn Output>,
    record: Arc<SessionRecord>,
}

/// What there is for one who takes part.
pub(super) enum Next {
    /// Output.
    Output(Vec<u8>),
    /// So many bytes were skipped: the screen has to be drawn anew.
    Skipped(u64),
    /// The session is over.
    Over,
}

impl Hub {
    pub(in crate::node) fn new(owner: Arc<dyn Output>, record: Arc<SessionRecord>, size: Size) -> Arc<Self> {
        let state = State { owner: size, applied: size, ..State::default() };
        Arc::new(Self {
            state: Mutex::new(state),
            changed: Notify::new(),
            room: Notify::new(),
            owner,
            record,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Whether what is typed is recorded.
    pub(super) fn records_input(&self) -> bool {
        self.record.has_input()
    }

    /// Who takes part.
    pub(in crate::node) fn participants(&self) -> Vec<Participant> {
        self.state().members.values().map(|member| member.who.clone()).collect()
    }

    /// The session's input and output, with those who take part.
    pub(in crate::node) fn wrap(
        self: &Arc<Self>,
        input: Box<dyn Input>,
        output: Arc<dyn Output>,
    ) -> (Box<dyn Input>, Arc<dyn Output>) {
        (
            Box::new(Typed { own: input, hub: Arc::clone(self) }),
            Arc::new(Shown { own: output, hub: Arc::clone(self) }),
        )
    }

    /// The session is over: who takes part is told.
    pub(in crate::node) fn end(&self) {
        let mut state = self.state();
        state.over = true;
        for member in state.members.values() {
            member.arrived.notify_one();
        }
        drop(state);
        self.room.notify_waiters();
    }

    /// Lets a participant in.
    pub(super) fn enter(
        &self,
        who: Participant,
        size: Option<Size>,
    ) -> Result<(u64, Arc<Notify>), JoinError> {
        let mut state = self.state();
        if state.members.len() >= MOST {
            return Err(JoinError::Full { most: MOST });
        }
        state.next += 1;
        let number = state.next;
        let arrived = Arc::new(Notify::new());
        let member = Member { who, size, queue: Vec::new(), skipped: 0, arrived: arrived.clone(), typed: 0 };
        state.members.insert(number, member);
        drop(state);
        self.changed.notify_one();
        Ok((number, arrived))
    }

    /// A participant goes; gives how many bytes they typed.
    pub(super) fn leave(&self, number: u64) -> u64 {
        let typed = self.state().members.remove(&number).map_or(0, |member| member.typed);
        self.changed.notify_one();
        typed
    }

    /// The terminal of a participant whose size counts has another size.
    pub(super) fn resize(&self, number: u64, size: Size) {
        if let Some(member) = self.state().members.get_mut(&number)
            && member.size.is_some()
        {
            member.size = Some(size);
        }
        self.changed.notify_one();
    }

    /// What there is for one who takes part; none while there is nothing.
    pub(super) fn take(&self, number: u64) -> Option<Next> {
        let mut state = self.state();
        let over = state.over;
        let Some(member) = state.members.get_mut(&number) else { return Some(Next::Over) };
        if member.skipped > 0 {
            return Some(Next::Skipped(std::mem::take(&mut member.skipped)));
        }
        if !member.queue.is_empty() {
            return Some(Next::Output(std::mem::take(&mut member.queue)));
        }
        over.then_some(Next::Over)
    }

    /// The screen as it is, as bytes that draw it, and who is behind starts from here.
    pub(super) async fn screen(&self, number: u64) -> Vec<u8> {
        let (kept, size) = {
            let mut state = self.state();
            if let Some(member) = state.members.get_mut(&number) {
                member.queue.clear();
                member.skipped = 0;
            }
            let mut kept: Vec<u8> = state.kept.iter().copied().collect();
            // Where the beginning is gone, what is kept begins anywhere in a line.
            if state.cut
                && let Some(line) = kept.iter().position(|byte| *byte == b'\n')
            {
                kept.drain(..=line);
            }
            (kept, state.applied)
        };
        let last = kept.clone();
        let drawn = tokio::task::spawn_blocking(move || {
            let bounded = |size: u32, most: NonZeroU16, usual: NonZeroU16| {
                NonZeroU16::new(u16::try_from(size).unwrap_or(u16::MAX)).map_or(usual, |size| size.min(most))
            };
            let rows = bounded(size.rows, LARGEST.0, vt100::Parser::DEFAULT_ROWS);
            let columns = bounded(size.columns, LARGEST.1, vt100::Parser::DEFAULT_COLS);
            let mut parser = vt100::Parser::new(rows, columns, 0);
            parser.process(&kept);
            parser.screen().state_formatted().into_bytes()
        });
        // A screen that cannot be drawn is shown as it came.
        drawn.await.unwrap_or(last)
    }

    /// A peer types. Waits while the session's process reads nothing.
    pub(super) async fn type_in(&self, number: u64, bytes: Bytes) {
        let mut bytes = Some(bytes);
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            room.as_mut().enable();
            let note = {
                let mut state = self.state();
                if state.over || !state.members.contains_key(&number) {
                    return;
                }
                let mut note = None;
                if state.typed_bytes < TYPED_BYTES {
                    let Some(bytes) = bytes.take() else { return };
                    state.typed_bytes += bytes.len();
                    let first = state.typist.replace(number) != Some(number);
                    if let Some(member) = state.members.get_mut(&number) {
                        member.typed += bytes.len() as u64;
                        note = first.then(|| member.who.user.clone());
                    }
                    state.typed.push_back(bytes);
                }
                note
            };
            if bytes.is_none() {
                self.changed.notify_one();
                if let Some(user) = note {
                    self.note(format!("{user} types")).await;
                }
                return;
            }
            room.await;
        }
    }

    /// Says something on all terminals but one's own, and in the recording.
    pub(super) async fn announce(&self, but: u64, text: &str) {
        let line = format!("\r\n[sallyport: {text}]\r\n");
        {
            let mut state = self.state();
            for (_, member) in state.members.iter_mut().filter(|(number, _)| **number != but) {
                member.push(line.as_bytes());
            }
        }
        let _ = timeout(NOTICE, self.owner.data(Channel::Stdout, Bytes::from(line))).await;
        self.note(text.to_owned()).await;
    }

    async fn note(&self, text: String) {
        // A recording that fails ends its session by itself.
        let _ = self.record.note(Body::Note { text }).await;
    }

    fn shown(&self, bytes: &[u8]) {
        let mut state = self.state();
        let State { kept, cut, members, .. } = &mut *state;
        let tail = bytes.get(bytes.len().saturating_sub(KEPT_BYTES)..).unwrap_or_default();
        let too_many = (kept.len() + tail.len()).saturating_sub(KEPT_BYTES);
        *cut |= too_many > 0 || tail.len() < bytes.len();
        kept.drain(..too_many.min(kept.len()));
        kept.extend(tail);
        for member in members.values_mut() {
            member.push(bytes);
        }
    }

    /// What peers typed, or the size that fits everybody, when it is another.
    fn pending(&self) -> Option<Incoming> {
        let mut state = self.state();
        // A client without a terminal of its own says 0.
        let sizes =
            state.members.values().filter_map(|member| member.size).filter(|s| s.columns > 0 && s.rows > 0);
        let fitting = sizes.fold(state.owner, |a, b| {
            let least = |a: u32, b: u32| if a == 0 { b } else { a.min(b) };
            Size { columns: least(a.columns, b.columns), rows: least(a.rows, b.rows), ..a }
        });
        if fitting != state.applied {
            state.applied = fitting;
            return Some(Incoming::Resize(fitting));
        }
        // What the session has not consumed: the owner's own are bounded by themselves.
        if state.handed.len() >= HANDED_PIECES {
            return None;
        }
        let bytes = state.typed.pop_front()?;
        state.handed.push_back(true);
        Some(Incoming::Data(bytes))
    }

    fn owner_typed(&self) -> bool {
        let mut state = self.state();
        state.handed.push_back(false);
        state.typist.take().is_some()
    }

    /// The process has read input; says whether it was the owner's.
    fn consumed(&self, bytes: usize) -> bool {
        let mut state = self.state();
        let peers = state.handed.pop_front().unwrap_or(false);
        if !state.typed.is_empty() {
            self.changed.notify_waiters();
        }
        if peers {
            state.typed_bytes = state.typed_bytes.saturating_sub(bytes);
            drop(state);
            self.room.notify_waiters();
        }
        !peers
    }
}

impl Member {
    fn push(&mut self, bytes: &[u8]) {
        if self.skipped > 0 || self.queue.len() + bytes.len() > QUEUE_BYTES {
            self.skipped += (self.queue.len() + bytes.len()) as u64;
            self.queue = Vec::new();
        } else {
            self.queue.extend_from_slice(bytes);
        }
        self.arrived.notify_one();
    }
}

/// The owner's input, and that of peers.
struct Typed {
    own: Box<dyn Input>,
    hub: Arc<Hub>,
}

#[async_trait]
impl Input for Typed {
    async fn next(&mut self) -> Option<Incoming> {
        loop {
            let changed = self.hub.changed.notified();
            if let Some(pending) = self.hub.pending() {
                return Some(pending);
            }
            let own = tokio::select! {
                own = self.own.next() => own,
                () = changed => continue,
            };
            match own {
                Some(Incoming::Resize(size)) => self.hub.state().owner = size,
                Some(Incoming::Data(bytes)) => {
                    if self.hub.owner_typed() {
                        self.hub.note(format!("{} types", self.hub.record.about().user)).await;
                    }
                    return Some(Incoming::Data(bytes));
                }
                other => return other,
            }
        }
    }
}

/// The owner's output, which those who take part see as well.
struct Shown {
    own: Arc<dyn Output>,
    hub: Arc<Hub>,
}

#[async_trait]
impl Output for Shown {
    async fn data(&self, channel: Channel, bytes: Bytes) -> Result<(), Gone> {
        self.hub.shown(&bytes);
        self.own.data(channel, bytes).await
    }

    fn consumed(&self, bytes: usize) {
        if self.hub.consumed(bytes) {
            self.own.consumed(bytes);
        }
    }

    async fn exited(&self, exit: &Exit) -> Result<(), Gone> {
        self.own.exited(exit).await
    }

    async fn finished(&self) -> Result<(), Gone> {
        self.own.finished().await
    }

    async fn cut_off(&self) -> Option<String> {
        self.own.cut_off().await
    }
}
