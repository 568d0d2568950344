//! The load: so many connections at a time, each a new one that runs a simple query and goes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sallyport_bench::Talk;
use sallyport_bench::statistics::Samples;

use super::client::{Client, Route};
use crate::LabError;

/// What each connection asks.
pub(super) const QUERY: &str = "SELECT 1";
/// So many failures in one run, and it is not a measurement.
const FAILURES: usize = 20;

/// How to press.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pressure {
    /// Connections at a time.
    pub workers: usize,
    /// For how long.
    pub seconds: f64,
    /// Connections a second, all workers together; none: as fast as they end.
    pub rate: Option<f64>,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Pressed {
    /// Milliseconds from dialling to the answer of the query.
    pub latencies: Samples,
    /// How long it took, in seconds, up to the end of the last connection.
    pub seconds: f64,
}

impl Pressed {
    /// Connections a second.
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    pub(super) fn rate(&self) -> f64 {
        self.latencies.len() as f64 / self.seconds.max(1e-9)
    }
}

/// Presses. Every worker is a thread that blocks: less work than anything that waits for many.
pub(super) fn press(route: &Route, pressure: Pressure, talk: &Talk) -> Result<Pressed, LabError> {
    let began = Instant::now();
    let length = Duration::from_secs_f64(pressure.seconds);
    let failures = AtomicUsize::new(0);
    let broken = AtomicBool::new(false);
    let worker = |number: usize| -> Result<Vec<f64>, LabError> {
        let mut times = Vec::new();
        let mut due = pressure.rate.map(|rate| Turns::new(began, rate, pressure.workers, number));
        while began.elapsed() < length && !talk.stopping() && !broken.load(Ordering::Relaxed) {
            if let Some(due) = &mut due {
                due.wait();
            }
            match once(route) {
                Ok(took) => times.push(took.as_secs_f64() * 1e3),
                Err(error) if failures.fetch_add(1, Ordering::Relaxed) >= FAILURES => {
                    broken.store(true, Ordering::Relaxed);
                    return Err(error);
                }
                Err(error) => talk.say(format!("one connection failed: {error}")),
            }
        }
        Ok(times)
    };
    let mut pressed = Pressed::default();
    std::thread::scope(|scope| {
        let worker = &worker;
        let running: Vec<_> =
            (0..pressure.workers).map(|number| scope.spawn(move || worker(number))).collect();
        for thread in running {
            let times = thread
                .join()
                .map_err(|_| LabError::Connection("a worker of the load ended badly".to_owned()))??;
            times.into_iter().for_each(|time| pressed.latencies.push(time));
        }
        Ok::<_, LabError>(())
    })?;
    pressed.seconds = began.elapsed().as_secs_f64();
    if pressed.latencies.is_empty() && !talk.stopping() {
        return Err(LabError::Connection("no connection of the load came through".to_owned()));
    }
    Ok(pressed)
}

/// One connection: dial, log in, ask, go. The time is up to the answer.
pub(super) fn once(route: &Route) -> Result<Duration, LabError> {
    let began = Instant::now();
    let mut client = Client::connect(route)?;
    let rows = client.query(QUERY)?;
    let took = began.elapsed();
    client.terminate()?;
    if rows != 1 {
        return Err(LabError::Connection(format!("the query gave {rows} rows and not one")));
    }
    Ok(took)
}

/// When a worker's next connection is due: evenly spread over all of them. Turns that are missed are not made up for.
struct Turns {
    next: Instant,
    every: Duration,
}

impl Turns {
    #[allow(clippy::cast_precision_loss, reason = "a number of threads")]
    fn new(began: Instant, rate: f64, workers: usize, number: usize) -> Self {
        let every = Duration::from_secs_f64(workers as f64 / rate.max(0.01));
        Self { next: began + every.mul_f64(number as f64 / workers.max(1) as f64), every }
    }

    fn wait(&mut self) {
        let now = Instant::now();
        if self.next > now {
            std::thread::sleep(self.next - now);
        } else {
            self.next = now;
        }
        self.next += self.every;
    }
}
