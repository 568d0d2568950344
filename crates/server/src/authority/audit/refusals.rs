//! What is refused again and again is on record as a count.
//!
//! The log is on a disk, and every refusal is an event: without a bound, a refused caller could fill it. So the first of a
//! kind in a minute are written as they are, and the rest of that minute is one event of the same code with a `count`.

use parking_lot::Mutex;
use sallyport_access::HostId;
use sallyport_audit::Event;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

use crate::authority::caller::Caller;
use crate::places::{Bounded, Place};

/// Events of a kind, by one caller, that are written as they are in a minute.
pub(crate) const EACH: u64 = 20;
/// Kinds that are remembered.
const KINDS: usize = 4096;
/// Events in a minute that are written as they are, of all kinds and callers; past that, each code is one kind.
const MOST_IN_ALL: u64 = 6_000;
const SECONDS: i64 = 60;

/// Who is refused.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Who {
    /// The holder of a certificate, by its login.
    Login(Uuid),
    /// A stranger, by where they are, and by which host's word.
    Place(Option<HostId>, Place),
    /// The local administrator.
    Local,
    /// All together, when they are too many to tell apart.
    TooMany,
}

impl Who {
    pub(crate) fn of(caller: &Caller) -> Self {
        match caller {
            Caller::Anonymous { from } => Self::Place(from.relayed_by, Place::of(from.address.ip())),
            Caller::Behind { proxy, address } => Self::Place(Some(proxy.id), Place::of(address.ip())),
            Caller::Certified { identity, .. } => Self::Login(identity.login_id),
            Caller::LocalAdmin => Self::Local,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Kind {
    who: Who,
    code: String,
    what: String,
}

#[derive(Debug)]
struct Window {
    since: OffsetDateTime,
    written: u64,
    counted: u64,
    /// The first that was only counted.
    sample: Option<Box<Event>>,
}

impl Window {
    fn new(since: OffsetDateTime) -> Self {
        Self { since, written: 0, counted: 0, sample: None }
    }

    fn is_over(&self, now: OffsetDateTime) -> bool {
        (now - self.since).whole_seconds() >= SECONDS || now < self.since
    }

    /// The event of what was only counted.
    fn sum(self, now: OffsetDateTime) -> Option<Event> {
        let mut event = *self.sample?;
        event.id = Uuid::now_v7();
        event.time = now;
        let since = self.since.format(&Rfc3339).unwrap_or_default();
        Some(event.field("count", self.counted).field("since", since))
    }
}

#[derive(Debug)]
struct State {
    kinds: Bounded<Kind, Window>,
    /// Those that are written as they are in the present minute.
    in_all: (i64, u64),
    /// Sums that could not be written yet.
    owed: Vec<Event>,
}

/// Counts what is refused.
#[derive(Debug)]
pub(crate) struct Refusals(Mutex<State>);

impl Default for Refusals {
    fn default() -> Self {
        Self(Mutex::new(State { kinds: Bounded::new(KINDS), in_all: (0, 0), owed: Vec::new() }))
    }
}

impl Refusals {
    fn state(&self) -> parking_lot::MutexGuard<'_, State> {
        self.0.lock()
    }

    /// What is to be written now about an event of `who`, of which `each` a minute are written as they are. `what` tells kinds of
    /// one code apart; `times` is how often it stands for.
    pub(crate) fn take(&self, event: Event, who: Who, what: &str, each: u64, times: u64) -> Vec<Event> {
        let now = event.time;
        let mut state = self.state();
        let State { kinds, in_all, owed } = &mut *state;
        let minute = now.unix_timestamp() / SECONDS;
        if in_all.0 != minute {
            *in_all = (minute, 0);
        }
        let (who, what) =
            if in_all.1 >= MOST_IN_ALL && who != Who::Local { (Who::TooMany, "") } else { (who, what) };
        let each = if who == Who::TooMany { 0 } else { each };
        let kind = Kind { who, code: event.code.as_str().to_owned(), what: what.to_owned() };
        let (window, gone) = kinds.touch(&kind, || Window::new(now));
        owed.extend(gone.and_then(|(_, window)| window.sum(now)));
        if window.is_over(now) {
            owed.extend(std::mem::replace(window, Window::new(now)).sum(now));
        }
        let mut events = std::mem::take(owed);
        if window.written < each {
            window.written += 1;
            in_all.1 += 1;
            events.push(event);
        } else {
            window.counted += times;
            window.sample.get_or_insert_with(|| Box::new(event));
        }
        events
    }

    /// Sums whose minute is over; at the end of the authority, all.
    pub(crate) fn due(&self, now: OffsetDateTime, all: bool) -> Vec<Event> {
        let mut state = self.state();
        let over = state.kinds.drain(|window| all || window.is_over(now));
        let mut events = std::mem::take(&mut state.owed);
        events.extend(over.into_iter().filter_map(|(_, window)| window.sum(now)));
        events
    }

    /// Keeps sums that could not be written.
    pub(crate) fn give_back(&self, events: Vec<Event>) {
        let mut state = self.state();
        let room = KINDS.saturating_sub(state.owed.len());
        state.owed.extend(events.into_iter().filter(|event| event.fields.contains_key("count")).take(room));
    }
}

#[cfg(test)]
mod tests {
    use sallyport_audit::Code;

    use super::*;

    fn at(seconds: i64) -> OffsetDateTime {
        OffsetDateTime::UNIX_EPOCH + time::Duration::seconds(6_000 + seconds)
    }

    fn refused(seconds: i64) -> Event {
        Event::new(Code::ApiRefused, at(seconds)).user("mallory")
    }

    #[test]
    fn the_first_are_written_and_the_rest_is_a_count() {
        let refusals = Refusals::default();
        let who = Who::Login(Uuid::new_v4());
        let take = |seconds| refusals.take(refused(seconds), who.clone(), "Admin.GetResource", EACH, 1);
        let written: usize = (0..18_300).map(|_| take(0).len()).sum();
        assert_eq!(written as u64, EACH);
        assert!(refusals.due(at(59), false).is_empty());
        let next = take(60);
        assert_eq!(next.len(), 2, "the sum, and the first of another minute");
        assert_eq!(next[0].fields["count"], 18_300 - EACH);
        assert_eq!((next[0].user.as_str(), next[0].code.clone()), ("mallory", Code::ApiRefused));
        assert!(!next[1].fields.contains_key("count"));
        assert!(refusals.due(at(121), false).is_empty(), "nothing was only counted");
        // Another method, and another caller, are kinds of their own.
        assert_eq!(refusals.take(refused(130), who, "Admin.DeleteResource", EACH, 1).len(), 1);
    }

    #[test]
    fn callers_too_many_to_tell_apart_are_one() {
        let refusals = Refusals::default();
        let mut events = Vec::new();
        for _ in 0..MOST_IN_ALL * 3 {
            events.extend(refusals.take(refused(0), Who::Login(Uuid::new_v4()), "", EACH, 1));
        }
        events.extend(refusals.due(at(1), true));
        assert!(events.len() as u64 <= MOST_IN_ALL + 10, "{}", events.len());
        let counted: u64 = events.iter().filter_map(|event| event.fields.get("count")?.as_u64()).sum();
        let written = events.iter().filter(|event| !event.fields.contains_key("count")).count() as u64;
        assert_eq!(counted + written, MOST_IN_ALL * 3, "none is missing");
    }

    #[test]
    fn a_sum_that_cannot_be_written_is_not_lost() {
        let refusals = Refusals::default();
        for _ in 0..3 {
            refusals.take(refused(0), Who::Local, "", 0, 5);
        }
        let sums = refusals.due(at(60), false);
        refusals.give_back(sums);
        assert_eq!(refusals.due(at(61), false)[0].fields["count"], 15);
    }
}
