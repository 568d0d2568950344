//! How much a client may send on each channel before it hears back (RFC 4254 §5.2).
//!
//! russh grants by itself: while it takes a packet, it fills the channel's window up to a target whenever less than half
//! of the target is left. It has one target for all channels of a connection, asks for the next one when it has just
//! granted, and has no other way to grant. So a channel is kept small with the target alone: at [`TRICKLE_BYTES`] it gets
//! nothing until all of its window is used up, and then two bytes at a time. An honest client is at a stand then, but for
//! one tiny packet for every [`LONGEST_PAUSE`] or so; each asks whether there is room again.
//!
//! Where one channel is [behind](BEHIND_BYTES) and another one sends, both want different targets. The target rests at
//! the smallest, and is raised when the channel that is behind has just been granted its two bytes: before it can send
//! those, the other channel's next packet has come, has been granted more, and the target is small again. A packet that
//! comes in between after all gets the channel that is behind more than it should have; what can be had in this way is at
//! most half of what is left of [`PROMISED_BYTES`] each time, and becomes less.

use std::time::{Duration, Instant};

/// Window of a new channel: little, as every one of several hundred channels has it whether it is read or not. A channel
/// whose reader keeps up has more before its client could notice: the target doubles with each grant.
pub(crate) const FIRST_BYTES: u32 = 128 * 1024;
/// Least window of a channel that is not behind.
const LEAST_BYTES: u32 = 64 * 1024;
/// Window of a channel whose reader does not keep up, but is not behind.
const SLOW_BYTES: u32 = 1 << 20;
/// Input of one channel past which its reader is waited for.
pub(super) const MEMORY_BYTES: usize = 256 * 1024;
/// The smallest target that grants at all: russh compares with half of it.
pub(super) const TRICKLE_BYTES: u32 = 2;
/// Input that waits, past which a channel gets no more. [`PROMPT_BYTES`], once all that was promised is used up.
pub(super) const BEHIND_BYTES: usize = 4 << 20;
/// Input that waits, up to which a reader keeps up.
pub(super) const PROMPT_BYTES: usize = 64 * 1024;
/// Input that waits and that may come, on all channels together, unless even the first windows are more.
const PROMISED_BYTES: u64 = 32 << 20;
/// Most that a window is raised to while another channel is behind.
const MOST_BESIDE_BYTES: u32 = 2 << 20;
/// A client that sent nothing for so long is not sending.
const RECENTLY: Duration = Duration::from_millis(200);
/// Pauses before the next packet of a channel that is behind is looked for, when there is nothing else: at first, and at
/// last. Whatever else the client says waits as long.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// What one channel has been granted.
pub(super) struct Account {
    /// What its client may send now.
    pub(super) left: u32,
    /// What it was last granted, while it was not behind.
    grown: u32,
    /// When its client last sent something.
    sent: Option<Instant>,
    /// Since it is behind: when the next tiny packet may come, the pause, and what its reader had taken.
    due: Option<Instant>,
    pause: Duration,
    taken: u64,
    /// Packets of other channels that had come by then.
    turn: u64,
}

impl Account {
    pub(super) fn new() -> Self {
        let (sent, due, pause) = (None, None, SHORTEST_PAUSE);
        Self { left: FIRST_BYTES, grown: FIRST_BYTES, sent, due, pause, taken: 0, turn: 0 }
    }

    /// russh has filled the window up to `target`.
    pub(super) fn granted(&mut self, target: u32) {
        self.left = target;
        if target > TRICKLE_BYTES {
            self.grown = target;
        }
    }

    /// A packet has come, after which so much is left. False when it was more than the client was granted.
    pub(super) fn came(&mut self, length: usize, before: u32, left: u32, now: Instant) -> bool {
        self.sent = Some(now);
        self.left = left;
        u32::try_from(length).is_ok_and(|length| length <= before)
    }

    /// When the next packet is to be looked for, after a tiny one on a channel that is behind. `turn` counts the other
    /// packets of the connection: where there are some, nothing need wait.
    pub(super) fn next_look(&mut self, taken: u64, turn: u64, now: Instant) -> Option<Instant> {
        self.pause = if taken == self.taken { (self.pause * 2).min(LONGEST_PAUSE) } else { SHORTEST_PAUSE };
        self.taken = taken;
        let quiet = turn == std::mem::replace(&mut self.turn, turn);
        let due = self.due.filter(|_| quiet);
        self.due = Some(due.map_or(now, |due| due.max(now)) + self.pause);
        due.filter(|due| *due > now)
    }

    pub(super) fn view(&self, waiting: usize, now: Instant) -> View {
        let sends = self.sent.is_some_and(|sent| now.duration_since(sent) < RECENTLY);
        View { waiting, left: self.left, grown: self.grown, sends }
    }
}

/// One channel, as the next target depends on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    waiting: usize,
    left: u32,
    grown: u32,
    sends: bool,
}

impl View {
    fn wish(&self, widest: u32) -> u32 {
        let wish = match self.waiting {
            0..=PROMPT_BYTES => self.grown.saturating_mul(2),
            _ if self.waiting <= MEMORY_BYTES => self.grown,
            _ => (self.grown / 2).min(SLOW_BYTES),
        };
        wish.clamp(FIRST_BYTES, widest)
    }
}

/// The next target, when a channel was just granted the last one. `others` are the other channels, and `closed` is what
/// waits on those that are no more; no window is to be wider than `widest`.
pub(super) fn next(
    granted: View,
    others: impl Iterator<Item = View> + Clone,
    closed: u64,
    widest: u32,
) -> u32 {
    let promised = |sum: u64, view: View| sum + view.waiting as u64 + u64::from(view.left);
    let all = others.clone().fold(promised(closed, granted), promised);
    // Half: after the next grant there is as much again to give.
    let half = u32::try_from(PROMISED_BYTES.saturating_sub(all) / 2).unwrap_or(u32::MAX);
    let most = if all > PROMISED_BYTES { PROMPT_BYTES } else { BEHIND_BYTES };
    let is_behind = |view: &View| view.waiting >= most;
    let mut behind = others.clone().filter(is_behind).peekable();
    if !is_behind(&granted) && behind.peek().is_none() {
        return granted.wish(widest).min(half.max(LEAST_BYTES));
    }
    let beside = half.clamp(LEAST_BYTES, MOST_BESIDE_BYTES);
    let raise = if is_behind(&granted) {
        others.into_iter().any(|view| !is_behind(&view) && view.sends && view.left < beside / 2)
    } else {
        // When one that is behind asks again soon, it is raised then.
        granted.left <= TRICKLE_BYTES && !behind.any(|view| view.sends && view.left <= TRICKLE_BYTES)
    };
    if raise { beside } else { TRICKLE_BYTES }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDEST: u32 = 16 << 20;

    fn view(waiting: usize, left: u32) -> View {
        View { waiting, left, grown: left.max(FIRST_BYTES), sends: true }
    }

    #[test]
    fn a_window_grows_while_its_reader_keeps_up() {
        let mut left = FIRST_BYTES;
        let mut grants = 0;
        while left < 8 << 20 {
            let next = next(view(0, left), std::iter::empty(), 0, WIDEST);
            assert!(next > left, "{left}");
            left = next;
            grants += 1;
        }
        assert!(grants < 8, "{grants}");
        // A reader that is slow has less and less, but enough.
        let slow = next(view(300 << 10, left), std::iter::empty(), 0, WIDEST);
        assert_eq!(slow, SLOW_BYTES);
        assert_eq!(next(view(300 << 10, FIRST_BYTES), std::iter::empty(), 0, WIDEST), FIRST_BYTES);
    }

    #[test]
    fn no_window_is_wider_than_its_client_can_bear() {
        assert_eq!(next(view(0, 2 << 20), std::iter::empty(), 0, 2 << 20), 2 << 20);
    }

    #[test]
    fn a_channel_that_is_behind_gets_next_to_nothing() {
        let behind = view(BEHIND_BYTES, FIRST_BYTES);
        assert_eq!(next(behind, std::iter::empty(), 0, WIDEST), TRICKLE_BYTES);
        // So does, until its window is used up, another one beside it.
        assert_eq!(next(view(0, 1 << 20), [behind].into_iter(), 0, WIDEST), TRICKLE_BYTES);
        // It gets more when the one that is behind has just had its two bytes, or has nothing to send.
        let asking = view(BEHIND_BYTES, TRICKLE_BYTES);
        assert_eq!(next(asking, [view(0, 100_000)].into_iter(), 0, WIDEST), MOST_BESIDE_BYTES);
        assert_eq!(next(view(0, TRICKLE_BYTES), [asking].into_iter(), 0, WIDEST), TRICKLE_BYTES);
        let silent = View { sends: false, ..asking };
        assert_eq!(next(view(0, TRICKLE_BYTES), [silent].into_iter(), 0, WIDEST), MOST_BESIDE_BYTES);
        // When its reader has read, it grows to what it had.
        let resumed = View { grown: 4 << 20, ..view(0, TRICKLE_BYTES) };
        assert_eq!(next(resumed, std::iter::empty(), 0, WIDEST), 8 << 20);
    }

    #[test]
    fn whatever_comes_together_is_bounded() {
        // No channel is read, and every packet comes when it gets most.
        let mut channels = vec![(0_usize, FIRST_BYTES); 200];
        let mut target = FIRST_BYTES;
        for round in 0..100_000 {
            let (waiting, left) = channels[round % 200];
            let sent = left.min(32 * 1024);
            let mut left = left - sent;
            if left < target / 2 {
                left = target;
                channels[round % 200] = (waiting, left);
                let views: Vec<View> = channels.iter().map(|(waiting, left)| view(*waiting, *left)).collect();
                let others = views.iter().enumerate().filter(|(at, _)| *at != round % 200);
                target = next(views[round % 200], others.map(|(_, view)| *view), 0, WIDEST);
            }
            channels[round % 200] = (waiting + sent as usize, left);
        }
        let most = 200 * (u64::from(FIRST_BYTES) + u64::from(LEAST_BYTES) * 8) + PROMISED_BYTES;
        let all: u64 = channels.iter().map(|(waiting, left)| *waiting as u64 + u64::from(*left)).sum();
        assert!(all < most, "{all} of {most}");
    }

    #[test]
    fn data_past_the_window_is_found_out() {
        let now = Instant::now();
        let mut account = Account::new();
        assert!(account.came(100, FIRST_BYTES, FIRST_BYTES - 100, now));
        assert_eq!(account.left, FIRST_BYTES - 100);
        assert!(account.came(2, 2, 0, now));
        assert!(!account.came(3, 2, 2, now));
        assert!(account.came(0, 0, 0, now));
        assert!(!account.came(1, 0, 0, now));
    }

    #[test]
    fn a_channel_that_is_behind_is_asked_less_and_less_often() {
        let mut now = Instant::now();
        let began = now;
        let mut account = Account::new();
        for _ in 0..100 {
            now = account.next_look(0, 0, now).unwrap_or(now);
        }
        assert!(now - began > LONGEST_PAUSE * 80, "{:?}", now - began);
        // Where other packets come, they are not waited for.
        assert_eq!(account.next_look(0, 1, now), None);
        // A reader that reads is asked often.
        account.next_look(1, 1, now);
        assert_eq!(account.pause, SHORTEST_PAUSE);
    }
}
