//! The load: so many connections at a time, each a thread that blocks. As fast as answers come, or by a clock.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sallyport_bench::Talk;
use sallyport_bench::cost::processor_time;
use sallyport_bench::statistics::Samples;

use super::client::{Connection, Failure, Problem, READ_BYTES, Target};
use super::cores::Cores;
use crate::LabError;

/// Stack of a worker: enough for post-quantum key exchange in an unoptimised build.
const STACK_BYTES: usize = 1 << 20;
/// A worker whose request failed waits so long: a server that refuses is not asked a million times.
const PAUSE: Duration = Duration::from_millis(10);
/// So many failures, when they are more than half of all, and there is nothing to measure.
const HOPELESS: u64 = 40;

/// Most requests a second over everything that is done to a server.
#[derive(Debug)]
pub(super) struct Ceiling {
    pub(super) every: Duration,
    next: Mutex<Instant>,
}

impl Ceiling {
    pub(super) fn new(rate: f64) -> Self {
        Self { every: Duration::from_secs_f64(1.0 / rate.max(0.001)), next: Mutex::new(Instant::now()) }
    }

    /// When the caller's turn is. Turns are never closer together than the rate says, and missed ones are gone.
    pub(super) fn turn(&self) -> Instant {
        let mut next = self.next.lock();
        let mine = (*next).max(Instant::now());
        *next = mine + self.every;
        mine
    }

    /// The same, if it comes before then; otherwise it stays for another worker.
    fn turn_before(&self, end: Instant) -> Option<Instant> {
        let mut next = self.next.lock();
        let mine = (*next).max(Instant::now());
        if mine >= end {
            return None;
        }
        *next = mine + self.every;
        Some(mine)
    }
}

/// How to press.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pressure {
    /// Requests at a time.
    pub concurrency: usize,
    /// What is not counted.
    pub warm_up: Duration,
    /// What is.
    pub length: Duration,
    /// Requests go on one connection for each worker.
    pub keep_alive: bool,
    /// Requests a second that fall due, answered or not; none: the next one begins when one has ended.
    pub rate: Option<f64>,
}

/// What came of it.
#[derive(Debug, Default, Clone)]
pub(super) struct Pressed {
    /// Milliseconds, of the requests that began (or fell due) while it counted.
    pub latencies: Samples,
    /// Requests a second that were answered while it counted.
    pub rate: f64,
    /// Requests that were answered while it counted.
    pub answered: u64,
    /// What went wrong with those that began while it counted.
    pub problems: BTreeMap<Problem, u64>,
    /// The first of them, in words.
    pub said: Option<String>,
    /// Connections that resumed TLS.
    pub resumed: u64,
    /// Connections that were made.
    pub connections: u64,
    /// Processor seconds of the generator while it counted.
    pub client: f64,
    /// Processor seconds of the server, where its processes are known.
    pub server: Option<f64>,
    /// Seconds for which it counted.
    pub seconds: f64,
}

impl Pressed {
    /// How many failed.
    pub(super) fn failures(&self) -> u64 {
        self.problems.values().sum()
    }

    /// Share of the requests that failed.
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    pub(super) fn failed(&self) -> f64 {
        let all = self.failures() + self.latencies.len() as u64;
        if all == 0 { 0.0 } else { self.failures() as f64 / all as f64 }
    }
}

/// Everything that workers share.
struct Job<'a> {
    target: &'a Target,
    pressure: Pressure,
    ceiling: Option<&'a Ceiling>,
    cores: &'a Cores,
    talk: &'a Talk,
    began: Instant,
    counts: Instant,
    ends: Instant,
    /// The number of the next request that falls due.
    due: AtomicU64,
    failures: AtomicU64,
    successes: AtomicU64,
    hopeless: AtomicBool,
    /// When it turned out to be.
    broken: OnceLock<Instant>,
}

/// Presses. `server` are the processes that answer.
pub(super) fn press(
    target: &Target,
    server: &[u32],
    pressure: Pressure,
    ceiling: Option<&Ceiling>,
    cores: &Cores,
    talk: &Talk,
) -> Result<Pressed, LabError> {
    let began = Instant::now();
    let job = Job {
        target,
        pressure,
        ceiling,
        cores,
        talk,
        began,
        counts: began + pressure.warm_up,
        ends: began + pressure.warm_up + pressure.length,
        due: AtomicU64::new(0),
        failures: AtomicU64::new(0),
        successes: AtomicU64::new(0),
        hopeless: AtomicBool::new(false),
        broken: OnceLock::new(),
    };
    let spent = || {
        let of: Duration = server.iter().map(|pid| processor_time(*pid)).sum();
        (processor_time(std::process::id()), of)
    };
    let mut whole = Pressed::default();
    std::thread::scope(|scope| {
        let mut running = Vec::with_capacity(pressure.concurrency);
        for _ in 0..pressure.concurrency {
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
            let job = &job;
            let spawned = thread.spawn_scoped(scope, move || worker(job));
            running.push(spawned.map_err(|error| {
                job.hopeless.store(true, Ordering::Relaxed);
                LabError::Failed {
                    what: "starting a thread for the load".to_owned(),
                    said: error.to_string(),
                }
            })?);
        }
        job.sleep_until(job.counts);
        let (before, from) = (spent(), Instant::now());
        job.sleep_until(job.ends);
        let (after, to) = (spent(), Instant::now());
        whole.seconds = to.saturating_duration_since(from).as_secs_f64();
        whole.client = after.0.saturating_sub(before.0).as_secs_f64();
        whole.server = (!server.is_empty()).then(|| after.1.saturating_sub(before.1).as_secs_f64());
        for thread in running {
            let tally = thread
                .join()
                .map_err(|_| LabError::Connection("a worker of the load ended badly".to_owned()))?;
            whole.add(tally);
        }
        Ok::<_, LabError>(())
    })?;
    // What is broken off counted for a shorter time.
    let counted = match job.broken.get() {
        Some(when) => when.saturating_duration_since(job.counts).min(pressure.length),
        None => pressure.length,
    };
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    {
        whole.rate =
            if counted.is_zero() { 0.0 } else { whole.answered as f64 / counted.as_secs_f64().max(1e-3) };
    }
    Ok(whole)
}

impl Pressed {
    fn add(&mut self, other: Self) {
        other.latencies.iter().for_each(|latency| self.latencies.push(latency));
        self.answered += other.answered;
        for (problem, count) in other.problems {
            *self.problems.entry(problem).or_default() += count;
        }
        self.said = self.said.take().or(other.said);
        self.resumed += other.resumed;
        self.connections += other.connections;
    }
}

impl Job<'_> {
    fn stopping(&self) -> bool {
        self.talk.stopping() || self.hopeless.load(Ordering::Relaxed)
    }

    /// Sleeps, and wakes up when it is over.
    fn sleep_until(&self, when: Instant) {
        const NAP: Duration = Duration::from_millis(50);
        loop {
            let left = when.saturating_duration_since(Instant::now());
            if left.is_zero() || self.stopping() {
                return;
            }
            std::thread::sleep(left.min(NAP));
        }
    }

    /// When the next request begins, as far as it is measured; none when there is none any more.
    fn next(&self) -> Option<Instant> {
        if self.stopping() {
            return None;
        }
        let begins = match self.pressure.rate {
            None => Instant::now(),
            Some(rate) => {
                let number = self.due.fetch_add(1, Ordering::Relaxed);
                #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
                let due = self.began + Duration::from_secs_f64(number as f64 / rate.max(0.001));
                if due < self.ends {
                    self.sleep_until(due);
                }
                due
            }
        };
        if begins >= self.ends {
            return None;
        }
        match self.ceiling.map(|ceiling| ceiling.turn_before(self.ends)) {
            Some(None) => None,
            // The wait for a turn is not the server's, unless the request was due.
            Some(Some(turn)) => {
                self.sleep_until(turn);
                let begins = if self.pressure.rate.is_some() { begins } else { Instant::now() };
                (Instant::now() < self.ends && !self.stopping()).then_some(begins)
            }
            None => Some(begins),
        }
    }

    /// Whether a request that fell due so long ago is given up: the server cannot follow.
    fn too_late(&self) -> bool {
        Instant::now() > self.ends + self.target.patience
    }
}

fn worker(job: &Job<'_>) -> Pressed {
    job.cores.enter_generator();
    // Sleeps of the paced load end when they should, and not up to 50 us later.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1000));
    let mut tally = Pressed::default();
    let mut buffer = vec![0; READ_BYTES];
    let mut open: Option<Connection<'_>> = None;
    while let Some(begins) = job.next() {
        let outcome = if job.too_late() {
            let said = format!("{} could not follow the rate", job.target.address);
            Err(Failure { problem: Problem::Timeout, said })
        } else {
            once(job, &mut open, &mut buffer, &mut tally)
        };
        let ended = outcome.as_ref().map_or_else(|_| Instant::now(), |ended| *ended);
        // What waits for the end of a measurement that was broken off says nothing.
        if job.talk.stopping() {
            break;
        }
        let counts = begins >= job.counts && begins < job.ends;
        match outcome {
            Ok(_) => {
                job.successes.fetch_add(1, Ordering::Relaxed);
                if counts {
                    tally.latencies.push((ended.saturating_duration_since(begins)).as_secs_f64() * 1e3);
                }
                if ended >= job.counts && ended < job.ends {
                    tally.answered += 1;
                }
            }
            Err(failure) => {
                let failures = job.failures.fetch_add(1, Ordering::Relaxed) + 1;
                if failures >= HOPELESS && failures > job.successes.load(Ordering::Relaxed) {
                    job.hopeless.store(true, Ordering::Relaxed);
                    job.broken.get_or_init(Instant::now);
                }
                // In the warm-up as well: a server that fails at once must not look like one that was never asked.
                if counts || begins < job.counts {
                    *tally.problems.entry(failure.problem).or_default() += 1;
                    tally.said.get_or_insert(failure.said);
                }
                if job.pressure.rate.is_none() {
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }
    tally
}

/// One request; gives when its answer was complete.
fn once<'a>(
    job: &Job<'a>,
    open: &mut Option<Connection<'a>>,
    buffer: &mut [u8],
    tally: &mut Pressed,
) -> Result<Instant, Failure> {
    let fresh = open.is_none();
    let mut connection = match open.take() {
        Some(connection) => connection,
        None => Connection::open(job.target, job.talk)?,
    };
    let response = connection.ask(job.pressure.keep_alive, buffer)?;
    let ended = Instant::now();
    if fresh {
        tally.connections += 1;
        tally.resumed += u64::from(connection.resumed());
    }
    if job.pressure.keep_alive && response.keep_alive {
        *open = Some(connection);
    } else {
        connection.finish(buffer);
    }
    Ok(ended)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::Arc;

    use super::*;

    const DELAY: Duration = Duration::from_millis(20);

    /// A server that answers so many requests, each after a while, one connection after the other.
    fn slow(delay: Duration, answers: usize) -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut left = answers;
            let mut buffer = [0; 1024];
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                while left > 0 && matches!(stream.read(&mut buffer), Ok(read) if read > 0) {
                    std::thread::sleep(delay);
                    left -= 1;
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
                }
                if left == 0 {
                    return;
                }
            }
        });
        address
    }

    fn run(address: std::net::SocketAddr, pressure: Pressure, ceiling: Option<&Ceiling>) -> Pressed {
        let target = Target::new(address, None, "localhost", "/", Duration::from_millis(500));
        let cores = Cores::split(false, None).unwrap();
        press(&target, &[std::process::id()], pressure, ceiling, &cores, &Talk::new(|_| {}, Arc::default()))
            .unwrap()
    }

    const CLOSED: Pressure = Pressure {
        concurrency: 1,
        warm_up: Duration::from_millis(100),
        length: Duration::from_millis(500),
        keep_alive: true,
        rate: None,
    };

    #[test]
    fn a_slow_server_is_never_faster_than_it_is() {
        let pressed = run(slow(DELAY, usize::MAX), CLOSED, None);
        assert!(pressed.latencies.len() > 2 && pressed.failures() == 0, "{pressed:?}");
        assert!(pressed.latencies.quantile(0.0) >= 20.0 && pressed.rate <= 54.0, "{pressed:?}");
        assert!(pressed.client > 0.0 && pressed.server.is_some_and(|time| time > 0.0), "{pressed:?}");
        assert_eq!(pressed.connections, 1);
    }

    #[test]
    fn paced_latencies_begin_when_a_request_is_due() {
        // 20 ms each, one at a time, and a hundred a second: half of them can be had, and the wait grows and grows.
        let paced = Pressure { rate: Some(100.0), length: Duration::from_millis(600), ..CLOSED };
        let pressed = run(slow(DELAY, usize::MAX), paced, None);
        let slowest = pressed.latencies.quantile(1.0);
        assert!(slowest > 250.0, "{slowest}: the queue is not in it");
        // All that fell due were waited for, or counted as failures.
        assert!(pressed.latencies.len() as u64 + pressed.failures() >= 59, "{pressed:?}");
    }

    #[test]
    fn a_ceiling_holds_whatever_the_server_could() {
        let ceiling = Ceiling::new(50.0);
        let pressure = Pressure { concurrency: 4, keep_alive: false, ..CLOSED };
        let pressed = run(slow(Duration::ZERO, usize::MAX), pressure, Some(&ceiling));
        // Six tenths of a second, warm-up and all.
        assert!(pressed.connections <= 31 && pressed.answered > 5, "{pressed:?}");
    }

    #[test]
    fn a_server_that_dies_is_noticed_and_not_hammered() {
        let pressed = run(slow(Duration::ZERO, 5), Pressure { warm_up: Duration::ZERO, ..CLOSED }, None);
        assert_eq!(pressed.answered, 5, "{pressed:?}");
        let failures = pressed.failures();
        assert!(failures > 0 && failures <= 60 && pressed.failed() > 0.05, "{pressed:?}");
        assert!(pressed.said.is_some());
    }
}
