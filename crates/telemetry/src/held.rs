//! Traces under way, and whether they are worth keeping.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use metrics::counter;
use parking_lot::Mutex;
use sallyport_wire::trace_context::TraceContext;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::budget::Budget;

/// Traces under way in one process; of more, nothing is kept.
const MOST_TRACES: usize = 4_096;
/// Spans of one trace; a connection has a dozen.
const MOST_SPANS_OF_ONE: usize = 64;
/// Spans that have ended and wait, for the end of their trace or for the collector: about 10 MiB at most.
const MOST_SPANS: usize = 20_000;

/// Traces that go to the collector, whatever peers do: slow ones can be made, and failing ones as well.
const EXPORTS_PER_SECOND: f64 = 100.0;
const EXPORTS_AT_ONCE: f64 = 500.0;
/// Traces that users ask to have kept, of all users together.
const WISHES_PER_SECOND: f64 = 5.0;
const WISHES_AT_ONCE: f64 = 50.0;

/// Counter: traces by what became of them.
pub(crate) const TRACES: &str = "sallyport_traces_total";
/// Counter: spans that a bound or the collector cost.
pub(crate) const SPANS_LOST: &str = "sallyport_trace_spans_lost_total";

/// A value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Integer(i64),
    Number(f64),
    Flag(bool),
}

/// Which side of a call a span is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Inside,
    Server,
    Client,
}

/// A span that has ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Finished {
    pub(crate) trace: u128,
    pub(crate) span: u64,
    /// 0 for none.
    pub(crate) parent: u64,
    pub(crate) parent_is_remote: bool,
    pub(crate) name: &'static str,
    pub(crate) side: Side,
    pub(crate) began: SystemTime,
    pub(crate) took: Duration,
    pub(crate) attributes: Vec<(&'static str, Value)>,
    pub(crate) failed: bool,
}

/// One trace, as far as this process has part in it.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) id: u128,
    /// Whatever becomes of it.
    pub(crate) keep: bool,
    /// From which span ids are made.
    seed: u64,
    spans: AtomicUsize,
    done: Mutex<Vec<Finished>>,
    held: Arc<Held>,
}

impl Trace {
    /// An id for another span.
    pub(crate) fn span_id(&self) -> u64 {
        let number = self.spans.fetch_add(1, Ordering::Relaxed) as u64;
        mixed(self.seed.wrapping_add(number)).max(1)
    }

    /// Keeps a span until the end of the trace, where there is room.
    pub(crate) fn add(&self, span: Finished) {
        let mut done = self.done.lock();
        if done.len() >= MOST_SPANS_OF_ONE || !self.held.room_for_span() {
            counter!(SPANS_LOST, "reason" => "bound").increment(1);
            return;
        }
        done.push(span);
    }

    /// The first span has ended: the trace is kept, or it is not.
    pub(crate) fn finish(&self, root: &Finished, now: Instant) {
        let spans = std::mem::take(&mut *self.done.lock());
        let failed = root.failed || spans.iter().any(|span| span.failed);
        let count = spans.len();
        let result = if !(self.keep || failed || root.took >= self.held.slow) {
            "forgotten"
        } else if !self.held.exports.take(now) {
            "over_rate"
        } else {
            match self.held.queue.try_send(spans) {
                Ok(()) => return counter!(TRACES, "result" => "kept").increment(1),
                Err(_) => "queue_full",
            }
        };
        self.held.gone(count);
        counter!(TRACES, "result" => result).increment(1);
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.held.traces.fetch_sub(1, Ordering::Relaxed);
        // Whatever ended after the first span did.
        let left = self.done.get_mut().len();
        self.held.gone(left);
    }
}

/// What all traces share.
#[derive(Debug)]
pub(crate) struct Held {
    slow: Duration,
    sample: f64,
    queue: mpsc::Sender<Vec<Finished>>,
    traces: AtomicUsize,
    spans: AtomicUsize,
    exports: Budget,
    wishes: Budget,
}

impl Held {
    pub(crate) fn new(slow: Duration, sample: f64, queue: mpsc::Sender<Vec<Finished>>) -> Self {
        let now = Instant::now();
        Self {
            slow,
            sample,
            queue,
            traces: AtomicUsize::new(0),
            spans: AtomicUsize::new(0),
            exports: Budget::new(EXPORTS_PER_SECOND, EXPORTS_AT_ONCE, now),
            wishes: Budget::new(WISHES_PER_SECOND, WISHES_AT_ONCE, now),
        }
    }

    /// Begins a trace, with this id where it has one, or takes part in a peer's. `None`: there are too many.
    pub(crate) fn begin(self: &Arc<Self>, peer: Option<TraceContext>, own: Option<u128>) -> Option<Trace> {
        let more = |traces: usize| (traces < MOST_TRACES).then_some(traces + 1);
        if self.traces.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            counter!(TRACES, "result" => "too_many").increment(1);
            return None;
        }
        let random = Uuid::new_v4();
        // The fixed bits of a UUID are in its halves' upper parts: the rest is mixed into all of them.
        let (high, low) = random.as_u64_pair();
        let seed = mixed(high ^ low.rotate_left(32));
        let chosen = chance(mixed(low)) < self.sample;
        let (id, keep) = match peer {
            // The process that began it has made the choice. A share of what peers begin would let them choose the ids that
            // are in it, so chance is our own here as well.
            Some(peer) => (peer.trace(), peer.sampled() || chosen),
            None => (own.unwrap_or(random.as_u128()), chosen),
        };
        let (spans, done) = (AtomicUsize::new(0), Mutex::default());
        Some(Trace { id, keep, seed, spans, done, held: Arc::clone(self) })
    }

    /// Whether a user's wish to keep a trace is granted.
    pub(crate) fn may_wish(&self) -> bool {
        self.wishes.take(Instant::now())
    }

    /// Room for one more span that has ended.
    fn room_for_span(&self) -> bool {
        let more = |spans: usize| (spans < MOST_SPANS).then_some(spans + 1);
        self.spans.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// So many spans wait no longer.
    pub(crate) fn gone(&self, spans: usize) {
        self.spans.fetch_sub(spans, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.traces.load(Ordering::Relaxed), self.spans.load(Ordering::Relaxed))
    }
}

/// splitmix64: every bit of the answer depends on every bit of the number.
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Between 0 and 1, and never 1.
fn chance(random: u64) -> f64 {
    // 53 bits are what a double holds.
    (random >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(slow: Duration, sample: f64) -> (Arc<Held>, mpsc::Receiver<Vec<Finished>>) {
        let (queue, finished) = mpsc::channel(2_048);
        (Arc::new(Held::new(slow, sample, queue)), finished)
    }

    fn span(trace: &Trace, took: Duration, failed: bool) -> Finished {
        Finished {
            trace: trace.id,
            span: trace.span_id(),
            parent: 0,
            parent_is_remote: false,
            name: "x",
            side: Side::Inside,
            began: SystemTime::UNIX_EPOCH,
            took,
            attributes: Vec::new(),
            failed,
        }
    }

    fn end(trace: &Trace, took: Duration, failed: bool) {
        let root = span(trace, took, failed);
        trace.add(root.clone());
        trace.finish(&root, Instant::now());
    }

    const SLOW: Duration = Duration::from_secs(1);
    const FAST: Duration = Duration::from_millis(999);

    #[test]
    fn slow_failed_and_wished_for_traces_are_kept_and_no_others() {
        let (held, mut finished) = held(SLOW, 0.0);
        let mut kept = |peer: Option<TraceContext>, took, failed| {
            end(&held.begin(peer, None).unwrap(), took, failed);
            finished.try_recv().map(|spans| held.gone(spans.len())).is_ok()
        };
        assert!(!kept(None, FAST, false));
        assert!(kept(None, SLOW, false));
        assert!(kept(None, FAST, true));
        assert!(kept(TraceContext::new(1, 2, true), FAST, false));
        assert!(!kept(TraceContext::new(1, 2, false), FAST, false));
        assert_eq!(held.counts(), (0, 0));
    }

    #[test]
    fn a_share_of_the_rest_is_kept() {
        let (held, mut finished) = held(SLOW, 0.25);
        let kept = (0..400)
            .filter(|_| {
                end(&held.begin(None, None).unwrap(), FAST, false);
                finished.try_recv().is_ok()
            })
            .count();
        assert!((50..150).contains(&kept), "{kept} of 400 at a share of a quarter");
    }

    #[test]
    fn traces_and_spans_are_bounded_and_given_back() {
        let (held, _finished) = held(SLOW, 0.0);
        let mut traces: Vec<Trace> = std::iter::from_fn(|| held.begin(None, None)).collect();
        assert_eq!(traces.len(), MOST_TRACES);
        for trace in &traces {
            for _ in 0..MOST_SPANS_OF_ONE + 1 {
                trace.add(span(trace, FAST, false));
            }
        }
        assert_eq!(held.counts(), (MOST_TRACES, MOST_SPANS));
        assert_eq!(traces[0].done.lock().len(), MOST_SPANS_OF_ONE);
        end(&traces[0], FAST, false);
        assert_eq!(held.counts().1, MOST_SPANS - MOST_SPANS_OF_ONE);
        traces.clear();
        assert_eq!(held.counts(), (0, 0));
    }

    #[test]
    fn a_full_queue_and_the_rate_cost_traces_and_nothing_else() {
        let (queue, finished) = mpsc::channel(1);
        let held = Arc::new(Held::new(SLOW, 0.0, queue));
        for _ in 0..3 {
            end(&held.begin(None, None).unwrap(), SLOW, false);
        }
        assert_eq!(held.counts(), (0, 1), "what fits the queue waits there");
        drop(finished);
        let (held, mut finished) = self::held(SLOW, 0.0);
        for _ in 0..1_000 {
            end(&held.begin(None, None).unwrap(), SLOW, true);
        }
        let kept = std::iter::from_fn(|| finished.try_recv().ok()).count();
        assert!((500..700).contains(&kept), "{kept} of 1000 at once");
    }

    #[test]
    fn wishes_are_bounded() {
        let (held, _finished) = held(SLOW, 0.0);
        let granted = (0..1_000).filter(|_| held.may_wish()).count();
        assert!((50..60).contains(&granted), "{granted}");
    }

    #[test]
    fn ids_are_not_zero_and_differ() {
        let (held, _finished) = held(SLOW, 0.0);
        let trace = held.begin(None, None).unwrap();
        let ids: std::collections::BTreeSet<u64> = (0..1_000).map(|_| trace.span_id()).collect();
        assert_eq!((ids.len(), ids.contains(&0), trace.id == 0), (1_000, false, false));
        assert!(held.begin(None, None).unwrap().id != trace.id);
    }
}
