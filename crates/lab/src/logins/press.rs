//! Many logins: as fast as so many at a time go, or so many a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sallyport_bench::Talk;
use sallyport_bench::statistics::Samples;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::stage::Stage;
use super::ways::{Way, once};
use crate::LabError;

/// How long a program waits that was told to come again.
const AGAIN: Duration = Duration::from_secs(1);

/// How to press.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pressure {
    pub(super) way: Way,
    /// Logins at a time.
    pub(super) at_once: usize,
    /// For how long.
    pub(super) length: Duration,
    /// Logins a second, all together; none: as fast as they end.
    pub(super) rate: Option<f64>,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Pressed {
    /// Milliseconds of each login that was decided.
    pub(super) latencies: Samples,
    /// Logins that were told to come again.
    pub(super) busy: usize,
    /// Up to the end of the last one.
    pub(super) seconds: f64,
}

impl Pressed {
    /// Logins a second.
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    pub(super) fn rate(&self) -> f64 {
        self.latencies.len() as f64 / self.seconds.max(1e-9)
    }
}

/// Presses, until the time is over or the user has enough. The first failure ends it: with failures it is no measurement.
pub(super) async fn press(stage: &Arc<Stage>, pressure: Pressure, talk: &Talk) -> Result<Pressed, LabError> {
    let (_stop, stopped) = watch::channel(false);
    until(stage, pressure, talk, stopped).await
}

/// The same, until it is told to stop.
pub(super) async fn until(
    stage: &Arc<Stage>,
    pressure: Pressure,
    talk: &Talk,
    stopped: watch::Receiver<bool>,
) -> Result<Pressed, LabError> {
    let began = Instant::now();
    let end = began + pressure.length;
    let turns = Arc::new(AtomicUsize::new(0));
    let every = pressure.rate.map(|rate| Duration::from_secs_f64(1.0 / rate.max(0.01)));
    let mut workers = JoinSet::new();
    for _ in 0..pressure.at_once {
        let (crowded, turns, way) = (Arc::clone(stage), Arc::clone(&turns), pressure.way);
        let mut stopped = stopped.clone();
        let worker = async move {
            let (mut times, mut busy) = (Vec::new(), 0);
            loop {
                if let Some(every) = every {
                    // Spread evenly. A turn that is missed is late, and is not left out.
                    let turn = turns.fetch_add(1, Ordering::Relaxed);
                    let due = began + every.mul_f64(f64::from(u32::try_from(turn).unwrap_or(u32::MAX)));
                    tokio::time::sleep_until(due.min(end)).await;
                }
                if Instant::now() >= end || *stopped.borrow() {
                    return Ok::<_, LabError>((times, busy));
                }
                match once(&crowded, way).await? {
                    Some(took) => times.push(took.as_secs_f64() * 1e3),
                    None => {
                        busy += 1;
                        // It says to come again in a few seconds.
                        let again = (Instant::now() + AGAIN).min(end);
                        let _ = tokio::time::timeout_at(again, stopped.wait_for(|stopped| *stopped)).await;
                    }
                }
            }
        };
        workers.spawn_on(worker, &stage.crowd);
    }
    let mut pressed = Pressed::default();
    while let Some(done) = workers.join_next().await {
        let (times, busy) =
            done.map_err(|_| LabError::Connection("a worker of the logins ended badly".to_owned()))??;
        times.into_iter().for_each(|time| pressed.latencies.push(time));
        pressed.busy += busy;
    }
    pressed.seconds = began.elapsed().as_secs_f64();
    if pressed.latencies.is_empty() && !talk.stopping() {
        return Err(LabError::Connection(format!("no login by {} came through", pressure.way.name())));
    }
    Ok(pressed)
}
