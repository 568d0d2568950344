//! What is said while something is started or measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Hears a share from 0 to 1, and what is under way.
type Progress = dyn Fn(f64, &str) + Send + Sync;

/// Where the lab says how far it is, and learns that it shall stop.
#[derive(Clone)]
pub struct Talk {
    say: Arc<dyn Fn(&str) + Send + Sync>,
    progress: Arc<Progress>,
    /// The part of the whole that is being done: from which share to which.
    part: (f64, f64),
    stop: Arc<AtomicBool>,
    /// When the time is over that may be spent.
    until: Option<Instant>,
}

impl std::fmt::Debug for Talk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Talk").field("stopping", &self.stopping()).finish_non_exhaustive()
    }
}

impl Talk {
    /// Lines go to `say`; when `stop` becomes true, a measurement ends at the next sample and keeps what there is.
    pub fn new(say: impl Fn(&str) + Send + Sync + 'static, stop: Arc<AtomicBool>) -> Self {
        Self { say: Arc::new(say), progress: Arc::new(|_, _| ()), part: (0.0, 1.0), stop, until: None }
    }

    /// Says nothing, and is never told to stop.
    #[must_use]
    pub fn silent() -> Self {
        Self::new(|_| (), Arc::default())
    }

    /// How far it is goes to `progress`: a share from 0 to 1, and what is under way.
    #[must_use]
    pub fn with_progress(self, progress: impl Fn(f64, &str) + Send + Sync + 'static) -> Self {
        Self { progress: Arc::new(progress), ..self }
    }

    /// The same, for a part of the work: its progress from 0 to 1 is that of the whole from `from` to `to`.
    #[must_use]
    pub fn part(&self, from: f64, to: f64) -> Self {
        let (begin, end) = self.part;
        let at = |share: f64| begin + (end - begin) * share.clamp(0.0, 1.0);
        Self { part: (at(from), at(to)), ..self.clone() }
    }

    /// The same, which says stop when so much time has passed as well.
    #[must_use]
    pub fn within(&self, budget: Duration) -> Self {
        Self { until: Instant::now().checked_add(budget), ..self.clone() }
    }

    /// Says a line.
    pub fn say(&self, line: impl AsRef<str>) {
        (self.say)(line.as_ref());
    }

    /// Says that so many steps of all are done, and which one is next.
    #[allow(clippy::cast_precision_loss, reason = "numbers of steps")]
    pub fn progress(&self, done: usize, all: usize, what: impl AsRef<str>) {
        let share = (done as f64 / all.max(1) as f64).clamp(0.0, 1.0);
        (self.progress)(self.part.0 + (self.part.1 - self.part.0) * share, what.as_ref());
    }

    /// Whether to stop: it was told to, or the time is over.
    #[must_use]
    pub fn stopping(&self) -> bool {
        self.interrupted() || self.late()
    }

    /// Whether it was told to stop.
    #[must_use]
    pub fn interrupted(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether the time is over ([`Self::within`]).
    #[must_use]
    pub fn late(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// What a report says when it has fewer samples because the time was over.
    #[must_use]
    pub fn lateness(&self, budget: Duration, samples: &str) -> Option<String> {
        let late = self.late() && !self.interrupted();
        late.then(|| {
            format!(
                "the time for it, {} s, was over before the last round: there are fewer samples of {samples}",
                budget.as_secs()
            )
        })
    }
}
