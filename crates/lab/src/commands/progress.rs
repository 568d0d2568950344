//! How far a measurement is, and how long it will take: a bar on a terminal, a line now and then elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;

use sallyport_cli::ui;

/// Steps of the bar.
const STEPS: u32 = 1000;
/// How often a line is written where there is no terminal.
const LINES_EVERY: Duration = Duration::from_secs(10);

/// What is shown on stderr.
pub(super) struct Progress {
    bar: ProgressBar,
    began: Instant,
    /// When the last line was written.
    last: Mutex<Instant>,
}

impl Progress {
    pub(super) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(Some(STEPS.into()), ProgressDrawTarget::stderr_with_hz(8));
        if let Ok(style) = ProgressStyle::with_template("  {bar:30} {percent:>3} %  {prefix:<14} {wide_msg}")
        {
            bar.set_style(style);
        }
        let now = Instant::now();
        Self { bar, began: now, last: Mutex::new(now) }
    }

    /// Writes a line above the bar.
    pub(super) fn say(&self, line: &str) {
        self.bar.suspend(|| ui::say(line));
    }

    /// Shows a share from 0 to 1, and what is under way.
    pub(super) fn show(&self, share: f64, what: &str) {
        let left = left(self.began.elapsed(), share);
        if std::io::stderr().is_terminal() {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a step of the bar")]
            self.bar.set_position((share.clamp(0.0, 1.0) * f64::from(STEPS)) as u64);
            self.bar.set_prefix(left.unwrap_or_default());
            self.bar.set_message(what.to_owned());
            return;
        }
        let mut last = self.last.lock();
        if last.elapsed() >= LINES_EVERY {
            *last = Instant::now();
            let left = left.map(|left| format!(", {left}")).unwrap_or_default();
            ui::say(format!("{:3.0} %{left}: {what}", share * 100.0));
        }
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// How long the rest takes, if it goes on as it did; nothing before there is something to go by.
fn left(took: Duration, share: f64) -> Option<String> {
    if share < 0.02 || took < Duration::from_secs(2) {
        return None;
    }
    let seconds = took.as_secs_f64() * (1.0 - share).max(0.0) / share;
    Some(match seconds {
        s if s < 90.0 => format!("{s:.0} s left"),
        s => format!("{:.0} min left", s / 60.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_from_the_time_taken() {
        assert_eq!(left(Duration::from_secs(10), 0.5).as_deref(), Some("10 s left"));
        assert_eq!(left(Duration::from_secs(60), 0.1).as_deref(), Some("9 min left"));
        assert_eq!(left(Duration::from_secs(10), 0.0), None);
        assert_eq!(left(Duration::from_millis(10), 0.5), None);
    }
}
