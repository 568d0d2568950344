//! What logins cost the authority, by the way that they are proven; and what sessions notice of them.
//!
//! The authority runs in a process of its own, whose processor time and memory are read. The lab stands for everything around
//! it: programs at many addresses and the pages of several proxies, since each of these has its bounds, authenticators, and an
//! identity provider. So nothing but the authority's work is in its figures, and a rate for a core is what a core of an authority
//! does, whatever the clients of this machine take besides.

mod calls;
mod line;
mod press;
mod provider;
mod stage;
mod ways;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sallyport_bench::Talk;
use sallyport_bench::cost::{forget_peak, memory, processor_time, thread_times};
use sallyport_bench::machine::Watch;
use sallyport_bench::report::{Aim, Csv, Report, Row};
use sallyport_bench::statistics::Samples;
use sallyport_ssh::client::{Output, SessionRequest};
use sallyport_testing::{Extras, NODE, Sites, Testbed};

use tokio::runtime::Runtime;

use self::press::{Pressed, Pressure, press};
use self::stage::{Size, Stage};
use self::ways::Way;
use crate::LabError;
use crate::sessions::{Dial, Login};

/// What is measured by itself, in this order.
const WAYS: &[Way] = &[Way::Password, Way::Passkey, Way::SingleSignOn, Way::SessionCertificate, Way::Renewal];
/// Before each is measured: what is made once is made, and counts of the minute are of another one.
const WARM_UP: Duration = Duration::from_millis(300);
/// The lab's own part of the logins gives way to what is measured: elsewhere it is on machines of its own.
const CROWD_PRIORITY: i32 = 19;
/// Wrong passwords at a time while sessions connect.
const FLOOD: usize = 1000;
/// The bounds of the authority, in calls of a minute.
const CALLS_OF_ADDRESS: f64 = 600.0;
const CALLS_OF_PAGES: f64 = 6000.0;
/// What is aimed at.
const PASSKEY_MILLISECONDS: f64 = 1.0;
const PASSKEYS_A_SECOND: f64 = 1000.0;
const CERTIFICATE_MILLISECONDS: f64 = 0.5;
const SESSIONS_SLOWER: f64 = 1.1;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How long each way is pressed.
    pub length: Duration,
    /// Logins at a time.
    pub at_once: usize,
    /// Passkey logins a second while sessions connect.
    pub rate: f64,
    /// Rounds of sessions; each connects some without logins, and as many beside each kind of them.
    pub rounds: usize,
    /// Sessions of each kind in a round.
    pub sessions: usize,
    /// Where every sample goes.
    pub csv: Option<PathBuf>,
}

impl Settings {
    /// A glance, or enough to rely on.
    #[must_use]
    pub fn of(quick: bool) -> Self {
        let (seconds, rounds, sessions) = if quick { (3, 3, 10) } else { (20, 8, 25) };
        Self { length: Duration::from_secs(seconds), at_once: 16, rate: 500.0, rounds, sessions, csv: None }
    }

    /// So many that no bound of the authority is in the way of the fastest that is measured.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some thousands")]
    fn size(&self) -> Size {
        // Two calls of each kind a login; twice the rate, since a way by itself is pressed as fast as it goes.
        let calls = 2.0 * 60.0 * (self.rate * 2.0).max(100.0);
        Size {
            people: 4 * self.at_once,
            addresses: (calls / CALLS_OF_ADDRESS).ceil() as usize,
            proxies: (calls / CALLS_OF_PAGES).ceil() as usize,
        }
    }
}

/// Measures. `dial` makes connections to the node as the user who is logged in.
///
/// # Errors
/// When something cannot be started, or a login fails.
pub fn run(
    program: &Path,
    settings: &Settings,
    talk: &Talk,
    dial: &dyn Fn(Login) -> Result<Arc<dyn Dial>, LabError>,
) -> Result<Report, LabError> {
    let extras = Extras { auth: stage::AUTH, ..Extras::default() };
    let testbed = Testbed::start_at(program, &Sites::default(), extras, &|line| talk.say(line))?;
    let dial = dial(Login {
        home: testbed.cluster.home(),
        proxy: testbed.cluster.address(),
        node: NODE,
        login: testbed.login.clone(),
    })?;
    let (runtime, crowd) = (runtime(None)?, runtime(Some(CROWD_PRIORITY))?);
    let mut csv = Csv::create(settings.csv.as_deref(), "kind,what,number,value")?;
    let size = settings.size();
    talk.say(format!(
        "making {} people, programs at {} addresses and {} proxies",
        2 * size.people,
        size.addresses,
        size.proxies
    ));
    let stage = Arc::new(crowd.block_on(Stage::set(&testbed, size))?);
    let watch = Watch::begin();
    let (mut rows, mut aims, mut parts) = (Vec::new(), Vec::new(), Vec::new());
    for way in WAYS {
        if talk.stopping() {
            break;
        }
        talk.say(format!("logins by {}, {} at a time", way.name(), settings.at_once));
        let cost = crowd.block_on(cost_of(&testbed, &stage, *way, settings, talk))?;
        cost.to_csv(*way, &mut csv)?;
        let most = match way {
            Way::Passkey => Some(PASSKEY_MILLISECONDS),
            Way::SessionCertificate => Some(CERTIFICATE_MILLISECONDS),
            Way::Password | Way::WrongPassword | Way::SingleSignOn | Way::Renewal => None,
        };
        if let Some(most) = most {
            let what = format!("processor time of the authority, {}", way.name());
            aims.push(Aim::at_most(&what, cost.each, most, "ms"));
        }
        if *way == Way::Passkey {
            aims.push(Aim::at_least("passkey logins a core", cost.a_core(), PASSKEYS_A_SECOND, "a second"));
        }
        parts.push(cost.parts(*way));
        rows.push(cost.row(*way));
    }
    let mut sessions = Sessions::default();
    for round in 0..settings.rounds {
        if talk.stopping() {
            break;
        }
        talk.say(format!("sessions beside logins, round {} of {}", round + 1, settings.rounds));
        runtime.block_on(sessions.round(&testbed, &stage, &dial, settings, talk))?;
    }
    sessions.to_csv(&mut csv)?;
    sessions.report(settings, &mut rows, &mut aims);
    let conditions = conditions(&testbed, settings, size);
    runtime.shutdown_background();
    crowd.shutdown_background();
    Ok(Report { conditions, rows, aims, notes: parts, ..Report::of("logins", &watch, talk) })
}

/// Threads for tasks, of another priority if one is given.
fn runtime(priority: Option<i32>) -> Result<Runtime, LabError> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    // On Linux a priority belongs to a thread. Where it is not to be had, the crowd takes processors from what is measured.
    #[cfg(target_os = "linux")]
    if let Some(priority) = priority {
        builder.on_thread_start(move || {
            let _ = rustix::process::setpriority_process(None, priority);
        });
    }
    builder.enable_all().build().map_err(|error| LabError::Failed {
        what: "starting the asynchronous runtime".to_owned(),
        said: error.to_string(),
    })
}

fn conditions(testbed: &Testbed, settings: &Settings, size: Size) -> Vec<String> {
    let mut conditions = testbed.conditions();
    conditions.push(format!(
        "logins: {} at a time for {} s each way, as programs and proxies make them, on {} connections that are kept; the keys are made \
         before. Processor time is the authority's whole process, less what it takes without logins; a core is 1000 ms of it",
        settings.at_once,
        settings.length.as_secs_f64(),
        size.addresses + size.proxies
    ));
    conditions.push(
        "a passkey and single sign-on take four calls each (begin, ask, prove, finish); single sign-on one more, of the authority to \
         the provider. The lab's own part of them is in the latency, and not in the processor time"
            .to_owned(),
    );
    conditions.push(format!(
        "sessions: from nothing to the exit status of true, one after another, in turns without logins, beside {} passkey logins a \
         second, and beside {FLOOD} wrong passwords at a time; everything on this machine's processors, the lab's part of the logins at the \
         lowest priority, since it is elsewhere otherwise",
        settings.rate
    ));
    conditions
}

/// What one way costs.
struct Cost {
    pressed: Pressed,
    /// Milliseconds of the authority's processor time for one.
    each: f64,
    /// The same by the names of its threads.
    by_thread: BTreeMap<String, f64>,
    /// Most memory meanwhile, in MiB.
    peak: f64,
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

async fn cost_of(
    testbed: &Testbed,
    stage: &Arc<Stage>,
    way: Way,
    settings: &Settings,
    talk: &Talk,
) -> Result<Cost, LabError> {
    let pid = testbed.cluster.authority.id();
    let pressure = Pressure { way, at_once: settings.at_once, length: WARM_UP, rate: None };
    press(stage, pressure, talk).await?;
    // What it does anyway, which is little.
    let (idle_from, idle_began) = (processor_time(pid), Instant::now());
    tokio::time::sleep(WARM_UP).await;
    let idle = (processor_time(pid) - idle_from).as_secs_f64() / idle_began.elapsed().as_secs_f64();
    forget_peak(pid);
    let (threads, spent) = (thread_times(pid), processor_time(pid));
    let pressed = press(stage, Pressure { length: settings.length, ..pressure }, talk).await?;
    let (threads_after, spent_after) = (thread_times(pid), processor_time(pid));
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let count = pressed.latencies.len().max(1) as f64;
    let each = ((spent_after - spent).as_secs_f64() - idle * pressed.seconds).max(0.0) * 1e3 / count;
    let by_thread = threads_after.into_iter().map(|(name, after)| {
        let before = threads.get(&name).copied().unwrap_or_default();
        (name, after.saturating_sub(before).as_secs_f64() * 1e3 / count)
    });
    Ok(Cost { pressed, each, by_thread: by_thread.collect(), peak: mebibytes(memory(pid).peak) })
}

impl Cost {
    /// Logins a second of one core.
    fn a_core(&self) -> f64 {
        1e3 / self.each.max(1e-6)
    }

    fn row(&self, way: Way) -> Row {
        let latencies = &self.pressed.latencies;
        Row::new(way.name())
            .with("authority ms", 3, self.each)
            .with("a second a core", 0, self.a_core())
            .with("a second here", 0, self.pressed.rate())
            .with("p50 ms", 1, latencies.median())
            .with("p95 ms", 1, latencies.quantile(0.95))
            .with("p99 ms", 1, latencies.quantile(0.99))
            .with("sent away", 0, Some(count(self.pressed.busy)).filter(|busy| *busy > 0.0))
            .with("peak MiB", 0, self.peak)
    }

    /// Where the time goes, by the names of threads.
    fn parts(&self, way: Way) -> String {
        let mut parts: Vec<(&String, f64)> =
            self.by_thread.iter().map(|(name, spent)| (name, *spent)).collect();
        parts.sort_by(|left, right| right.1.total_cmp(&left.1));
        // What is less than a hundredth of it says nothing.
        let shown = parts.iter().filter(|(_, spent)| *spent >= self.each / 100.0);
        let shown: Vec<String> = shown.map(|(name, spent)| format!("{name} {spent:.3} ms")).collect();
        format!("{}: by threads of the authority, {}", way.name(), shown.join(", "))
    }

    fn to_csv(&self, way: Way, csv: &mut Csv) -> Result<(), LabError> {
        for (number, time) in self.pressed.latencies.iter().enumerate() {
            csv.line(&format!("login_ms,{},{number},{time:.3}", way.name()))?;
        }
        for (name, spent) in &self.by_thread {
            csv.line(&format!("authority_ms,{},{name},{spent:.4}", way.name()))?;
        }
        Ok(())
    }
}

/// Sessions without logins, and beside them.
#[derive(Default)]
struct Sessions {
    alone: Samples,
    beside: Samples,
    flooded: Samples,
    /// What the authority had at the most while it was flooded, in MiB, and before.
    flood_peak: f64,
    before_flood: f64,
    flood: Pressed,
    rate: Samples,
}

impl Sessions {
    async fn round(
        &mut self,
        testbed: &Testbed,
        stage: &Arc<Stage>,
        dial: &Arc<dyn Dial>,
        settings: &Settings,
        talk: &Talk,
    ) -> Result<(), LabError> {
        let pid = testbed.cluster.authority.id();
        connect(dial, settings.sessions, &mut self.alone, talk).await?;
        let logins = Pressure {
            way: Way::Passkey,
            at_once: 4 * settings.at_once,
            length: Duration::from_secs(3600),
            rate: Some(settings.rate),
        };
        let (pressed, ()) =
            beside(stage, logins, talk, connect(dial, settings.sessions, &mut self.beside, talk)).await?;
        self.rate.push(pressed.rate());
        self.before_flood = mebibytes(memory(pid).resident);
        forget_peak(pid);
        let flood = Pressure { way: Way::WrongPassword, at_once: FLOOD, rate: None, ..logins };
        let (pressed, ()) =
            beside(stage, flood, talk, connect(dial, settings.sessions, &mut self.flooded, talk)).await?;
        self.flood_peak = self.flood_peak.max(mebibytes(memory(pid).peak));
        self.flood.busy += pressed.busy;
        self.flood.seconds += pressed.seconds;
        pressed.latencies.iter().for_each(|time| self.flood.latencies.push(time));
        Ok(())
    }

    fn to_csv(&self, csv: &mut Csv) -> Result<(), LabError> {
        for (what, samples) in [("alone", &self.alone), ("logins", &self.beside), ("flood", &self.flooded)] {
            for (number, time) in samples.iter().enumerate() {
                csv.line(&format!("session_ms,{what},{number},{time:.3}"))?;
            }
        }
        Ok(())
    }

    fn report(&self, settings: &Settings, rows: &mut Vec<Row>, aims: &mut Vec<Aim>) {
        if self.flooded.is_empty() {
            return;
        }
        let row = |what: String, samples: &Samples| {
            Row::new(what)
                .with("p50 ms", 1, samples.median())
                .with("p95 ms", 1, samples.quantile(0.95))
                .with("p99 ms", 1, samples.quantile(0.99))
                .with("x alone", 2, samples.ratio_to(&self.alone))
        };
        rows.push(row("session, no logins".to_owned(), &self.alone));
        let made = self.rate.median();
        let beside = row(format!("session, {made:.0} logins/s"), &self.beside);
        rows.push(beside.with("a second here", 0, made));
        rows.push(
            row(format!("session, {FLOOD} wrong at once"), &self.flooded)
                .with("a second here", 0, self.flood.rate())
                .with("sent away", 0, count(self.flood.busy))
                .with("peak MiB", 0, self.flood_peak),
        );
        let effect = |samples: &Samples| samples.ratio_to(&self.alone).unwrap_or(f64::NAN);
        let unit = "x alone";
        aims.push(Aim::at_least("passkey logins beside sessions", made, settings.rate * 0.98, "a second"));
        aims.push(Aim::at_most(
            "sessions beside passkey logins",
            effect(&self.beside),
            SESSIONS_SLOWER,
            unit,
        ));
        aims.push(Aim::at_most(
            "sessions beside wrong passwords",
            effect(&self.flooded),
            SESSIONS_SLOWER,
            unit,
        ));
        // 16 hashes of 19 MiB at the most, and something for a thousand calls.
        let grown = self.flood_peak - self.before_flood;
        aims.push(Aim::at_most(
            "memory of the authority while flooded, more",
            grown,
            16.0 * 19.0 + 64.0,
            "MiB",
        ));
    }
}

/// Does something while logins are made; they end with it.
async fn beside<T>(
    stage: &Arc<Stage>,
    pressure: Pressure,
    talk: &Talk,
    work: impl Future<Output = Result<T, LabError>>,
) -> Result<(Pressed, T), LabError> {
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let work = async {
        // They are under way first.
        tokio::time::sleep(WARM_UP).await;
        let done = work.await;
        let _ = stop.send(true);
        done
    };
    let (pressed, done) = tokio::join!(press::until(stage, pressure, talk, stopped), work);
    Ok((pressed?, done?))
}

/// Sessions, one after another.
async fn connect(
    dial: &Arc<dyn Dial>,
    count: usize,
    times: &mut Samples,
    talk: &Talk,
) -> Result<(), LabError> {
    for _ in 0..count {
        if talk.stopping() {
            break;
        }
        let began = Instant::now();
        let connection = dial.connect().await?;
        let mut session =
            connection.start(SessionRequest::exec("true")).await.map_err(LabError::of_connection)?;
        loop {
            match session.next().await {
                Some(Output::Exit(_)) => break,
                Some(_) => {}
                None => {
                    return Err(LabError::Connection("a session ended without an exit status".to_owned()));
                }
            }
        }
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(())
}
