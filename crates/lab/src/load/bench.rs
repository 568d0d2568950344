//! The phases: servers are started, pressed harder and harder, then in rounds, then by the clock.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use sallyport_bench::Talk;
use sallyport_bench::report::Csv;

use super::address::{self, Url};
use super::case::{Case, PLAIN};
use super::client::{self, Connection, READ_BYTES};
use super::cores::Cores;
use super::nginx::Nginx;
use super::outcome::{Mode, Outcome, Phase, Run};
use super::own::Own;
use super::press::{Ceiling, Pressed, Pressure, press};
use super::settings::{Server, Settings};
use super::{saturation, target};
use crate::LabError;

/// Workers of the paced load for each request at a time at the saturation point: enough that a request which is due finds one.
pub(super) const PACED_WORKERS: usize = 4;
/// Shares of the budget at which the ramp and the rounds at the saturation point give way to what comes after.
const RAMP_SHARE: f64 = 0.5;
const SATURATED_SHARE: f64 = 0.85;
/// Turns of a ceiling that a run has at least.
const TURNS: u32 = 10;
/// Times an answer's that it has at least.
const ANSWERS: u32 = 4;
/// Requests that fall due in it at least, where they come by the clock.
const DUE: u32 = 8;
/// Steps that a ramp commonly has.
const STEPS: usize = 5;

/// What has been started; ends with this value.
#[derive(Default)]
pub(super) struct Started {
    pub(super) nginx: Option<Nginx>,
    pub(super) own: Vec<Own>,
}

/// What every phase uses.
pub(super) struct Bench<'a> {
    pub(super) settings: &'a Settings,
    pub(super) cores: &'a Cores,
    pub(super) talk: &'a Talk,
    pub(super) ceiling: Option<Ceiling>,
    pub(super) began: Instant,
    /// How long it takes, as far as that can be foreseen.
    pub(super) expected: Duration,
}

impl Bench<'_> {
    /// Foresees how long so many cases take.
    pub(super) fn expect(&mut self, cases: usize) {
        let Settings { warm_up, ramp, length, paced, .. } = *self.settings;
        let times = |runs: usize, run: Duration| (run + warm_up).as_secs_f64() * runs as f64;
        let each = times(self.settings.ramp_rounds * STEPS, ramp)
            + times(self.settings.rounds, length)
            + times(self.settings.paced_rounds, paced);
        let whole = self.began.elapsed() + Duration::from_secs_f64(each * cases as f64);
        self.expected = whole.min(self.settings.budget);
    }

    fn progress(&self, what: &str) {
        let millis = |time: Duration| usize::try_from(time.as_millis()).unwrap_or(usize::MAX);
        let all = millis(self.expected);
        // It is not over before it is over.
        self.talk.progress(millis(self.began.elapsed()).min(all * 49 / 50), all, what);
    }

    /// Whether this share of the budget is used up, or it was told to stop.
    pub(super) fn over(&self, share: f64) -> bool {
        self.talk.stopping() || self.began.elapsed() > self.settings.budget.mul_f64(share)
    }

    /// Starts what is to be started.
    pub(super) fn cases(&self, program: &Path, started: &mut Started) -> Result<Vec<Case>, LabError> {
        let settings = self.settings;
        let mut cases = Vec::new();
        // What the user names comes first: it may be refused.
        for server in &settings.servers {
            if let Server::Url(text) = server {
                cases.extend(self.named(text)?);
            }
        }
        for server in &settings.servers {
            if self.talk.stopping() {
                break;
            }
            match server {
                Server::Nginx => {
                    self.talk.say("making certificates and starting nginx");
                    let nginx =
                        Nginx::start(&settings.keys, settings.resume, settings.page_bytes, self.cores)?;
                    cases.extend(self.of_nginx(&nginx)?);
                    started.nginx = Some(nginx);
                }
                Server::Own(suite) => {
                    self.talk.say(format!("starting a cluster, {}", suite.name()));
                    let own = Own::start(program, *suite, self.cores)?;
                    for mode in self.modes(true, true) {
                        cases.push(Case {
                            server: format!("own proxy, {}", suite.name()),
                            certificate: own.certificate(),
                            mode,
                            target: own.target(mode == Mode::Resumed, settings.patience)?,
                            processes: own.processes(),
                            ours: true,
                            ceiling: false,
                            takes: Duration::ZERO,
                            outcome: Outcome::default(),
                        });
                    }
                    started.own.push(own);
                }
                Server::Url(_) => {}
            }
        }
        Ok(cases)
    }

    /// The ways of connecting that are measured.
    fn modes(&self, secure: bool, kept: bool) -> Vec<Mode> {
        let settings = self.settings;
        let wanted = [
            (Mode::New, settings.new_connections),
            (Mode::Resumed, settings.resume && secure),
            (Mode::Kept, settings.keep_alive && kept),
        ];
        wanted.into_iter().filter(|(_, wanted)| *wanted).map(|(mode, _)| mode).collect()
    }

    fn of_nginx(&self, nginx: &Nginx) -> Result<Vec<Case>, LabError> {
        let settings = self.settings;
        let mut cases = Vec::new();
        for listener in &nginx.listeners {
            let kept = listener.key.map_or(settings.kept_plain, |key| settings.kept.contains(&key));
            for mode in self.modes(listener.key.is_some(), kept) {
                if listener.tickets != (mode == Mode::Resumed) {
                    continue;
                }
                cases.push(Case {
                    server: "nginx".to_owned(),
                    certificate: listener.key.map_or_else(|| PLAIN.to_owned(), |key| key.to_string()),
                    mode,
                    target: nginx.target(listener, settings.patience)?,
                    processes: target::listeners(listener.address),
                    ours: true,
                    ceiling: false,
                    takes: Duration::ZERO,
                    outcome: Outcome::default(),
                });
            }
        }
        Ok(cases)
    }

    /// What the user names: refused unless it is on loopback, or theirs and with a ceiling.
    fn named(&self, text: &str) -> Result<Vec<Case>, LabError> {
        let settings = self.settings;
        let url = Url::parse(text)?;
        let addresses = url.resolve()?;
        let admitted = address::admit(&url, &addresses, settings.consent)?;
        let belief = target::Belief { anything: settings.insecure, authority: settings.authority.as_deref() };
        // A name may have several addresses of which one answers: localhost is ::1 and 127.0.0.1.
        let address = self.answering(&addresses).unwrap_or(admitted);
        let mut cases = Vec::new();
        for mode in self.modes(url.secure, true) {
            let tls = target::tls_for(&url, &belief, mode == Mode::Resumed)?;
            cases.push(Case {
                server: text.to_owned(),
                certificate: String::new(),
                mode,
                target: target::of_url(&url, address, tls, settings.patience),
                processes: target::listeners(address),
                ours: false,
                ceiling: self.ceiling.is_some(),
                takes: Duration::ZERO,
                outcome: Outcome::default(),
            });
        }
        Ok(cases)
    }

    /// The first of several addresses that takes a connection.
    fn answering(&self, addresses: &[SocketAddr]) -> Option<SocketAddr> {
        let patience = self.settings.patience.min(Duration::from_secs(2));
        let takes = |address: &&SocketAddr| {
            addresses.len() > 1 && std::net::TcpStream::connect_timeout(address, patience).is_ok()
        };
        addresses.iter().find(takes).copied()
    }

    /// One request, so that what cannot work is said at once; with resumption a second one.
    pub(super) fn first(&self, case: &mut Case) -> Result<(), LabError> {
        let failed = |failure: client::Failure| {
            LabError::Connection(if case.ours {
                format!("{}: {failure}", case.name())
            } else {
                failure.to_string()
            })
        };
        let mut buffer = vec![0; READ_BYTES];
        let mut first = Duration::ZERO;
        for _ in 0..if case.mode == Mode::Resumed { 2 } else { 1 } {
            if self.talk.stopping() {
                break;
            }
            if case.ceiling
                && let Some(ceiling) = &self.ceiling
            {
                std::thread::sleep(ceiling.turn().saturating_duration_since(Instant::now()));
            }
            let began = Instant::now();
            let mut connection = Connection::open(&case.target, self.talk).map_err(&failed)?;
            connection.ask(false, &mut buffer).map_err(&failed)?;
            first = began.elapsed();
            connection.finish(&mut buffer);
        }
        case.takes = first;
        Ok(())
    }

    fn one(
        &self,
        case: &mut Case,
        concurrency: usize,
        length: Duration,
        rate: Option<f64>,
    ) -> Result<(Pressed, Run), LabError> {
        let ceiling = self.ceiling.as_ref().filter(|_| case.ceiling);
        // A window has some turns of a low ceiling, and some answers of a slow server, or nothing would be counted.
        let turns = ceiling.map_or(Duration::ZERO, |ceiling| ceiling.every * TURNS);
        let mut length = length.max(turns).max(case.takes * ANSWERS);
        if let Some(rate) = rate {
            // And some requests that fall due, at a rate so low that they are seconds apart; as long as there is time.
            let left = self.settings.budget.saturating_sub(self.began.elapsed());
            let due = Duration::try_from_secs_f64(f64::from(DUE) / rate.max(f64::MIN_POSITIVE));
            length = length.max(due.unwrap_or(Duration::MAX).min(left));
        }
        let pressure = Pressure {
            concurrency,
            warm_up: self.settings.warm_up.max(case.takes),
            length,
            keep_alive: case.mode == Mode::Kept,
            rate,
        };
        let press = |pressure| press(&case.target, &case.processes, pressure, ceiling, self.cores, self.talk);
        let mut pressed = press(pressure)?;
        // Where not even a failure fits, the window was too short, on a machine that is busy with something else.
        for longer in [4, 16] {
            let nothing = pressed.latencies.is_empty() && pressed.failures() == 0;
            if !nothing || self.over(1.0) {
                break;
            }
            pressed = press(Pressure { length: length * longer, ..pressure })?;
        }
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        let processors = if case.ours { self.cores.server.len() } else { all };
        let run = Run::new(&pressed, self.cores.generator.len(), processors);
        case.takes = case.takes.max(Duration::try_from_secs_f64(run.p50 / 1e3).unwrap_or_default());
        Ok((pressed, run))
    }

    /// More and more at a time, all cases at each step in turns, until they grow no more.
    pub(super) fn ramp(&self, cases: &mut [Case], csv: &mut Csv) -> Result<(), LabError> {
        let mut concurrency = 1;
        while concurrency <= self.settings.most && cases.iter().any(|case| !case.outcome.ramped) {
            for round in 0..self.settings.ramp_rounds {
                let mut done = 0;
                for case in in_turns(cases, round).filter(|case| !case.outcome.ramped) {
                    // The first step is taken whatever the time: without it there is nothing.
                    if self.talk.stopping() || ((concurrency > 1 || round > 0) && self.over(RAMP_SHARE)) {
                        return Ok(());
                    }
                    done += 1;
                    self.progress(&format!("ramp, {concurrency} at a time: {}", case.name()));
                    let (pressed, run) = self.one(case, concurrency, self.settings.ramp, None)?;
                    if self.talk.stopping() {
                        return Ok(());
                    }
                    let name = case.name();
                    case.outcome.add(Phase::Ramp, (&pressed, run), csv, &name, concurrency)?;
                }
                if done == 0 {
                    break;
                }
            }
            for case in cases.iter_mut().filter(|case| !case.outcome.ramped) {
                if let Some(end) = saturation::is_over(&case.outcome.steps()) {
                    case.outcome.ramped = true;
                    if end != saturation::End::Flat {
                        case.outcome.ended = Some(match end {
                            saturation::End::Errors => format!(
                                "more than {:.0} % failed at {concurrency} at a time: the ramp ended there",
                                saturation::ERRORS * 100.0
                            ),
                            _ => format!(
                                "the slowest took over two seconds at {concurrency} at a time: the ramp ended there"
                            ),
                        });
                    }
                }
            }
            concurrency *= 2;
        }
        Ok(())
    }

    /// Rounds at the saturation point, cases in turns.
    pub(super) fn saturated(&self, cases: &mut [Case], csv: &mut Csv) -> Result<(), LabError> {
        for round in 0..self.settings.rounds {
            for case in in_turns(cases, round) {
                let Some(point) = case.outcome.saturation_point() else { continue };
                if self.talk.stopping() || (round > 0 && self.over(SATURATED_SHARE)) {
                    return Ok(());
                }
                self.progress(&format!("round {}: {}", round + 1, case.name()));
                let (pressed, run) = self.one(case, point.concurrency, self.settings.length, None)?;
                if self.talk.stopping() {
                    return Ok(());
                }
                let name = case.name();
                case.outcome.add(Phase::Saturation, (&pressed, run), csv, &name, point.concurrency)?;
            }
        }
        Ok(())
    }

    /// By the clock, at a part of the rate at the saturation point.
    pub(super) fn paced(&self, cases: &mut [Case], csv: &mut Csv) -> Result<(), LabError> {
        for round in 0..self.settings.paced_rounds {
            for case in in_turns(cases, round) {
                let Some(point) = case.outcome.saturation_point() else { continue };
                if self.over(1.0) {
                    return Ok(());
                }
                let full = case.outcome.rates().median();
                let rate = self.settings.rate.unwrap_or(full / 2.0);
                if rate <= 0.0 || full <= 0.0 {
                    continue;
                }
                self.progress(&format!("{rate:.0} requests/s by the clock: {}", case.name()));
                let workers = (point.concurrency * PACED_WORKERS).clamp(1, self.settings.most.max(1));
                let (pressed, run) = self.one(case, workers, self.settings.paced, Some(rate))?;
                if self.talk.stopping() {
                    return Ok(());
                }
                case.outcome.paced_rate = rate;
                let name = case.name();
                case.outcome.add(Phase::Paced, (&pressed, run), csv, &name, workers)?;
            }
        }
        Ok(())
    }

    pub(super) fn conditions(&self, started: &Started) -> Vec<String> {
        let settings = self.settings;
        let mut conditions = vec![self.cores.line()];
        if let Some(nginx) = &started.nginx {
            conditions.push(format!(
                "{} on loopback, {} worker{}, TLS 1.3, one file of {} bytes, no log; certificates of one P-256 authority, \
                 so that only the server's key differs",
                nginx.version,
                nginx.workers,
                if nginx.workers == 1 { "" } else { "s" },
                settings.page_bytes
            ));
        }
        for own in &started.own {
            conditions.push(own.condition());
        }
        conditions.push(
            "the generator is a rustls client with aws-lc, key exchange X25519, that verifies the whole chain; keep-alive \
             off is a new connection and a full handshake for each request, without resumption; a latency is from dialling \
             (keep-alive on: from sending) to the last byte"
                .to_owned(),
        );
        conditions.push(format!(
            "{} ms of each run are warm-up and not counted; the ramp has {} round{} of {} ms for each step, the saturation point {} of \
             {} ms, the clock {} of {} ms; cases take turns in every round; the saturation point is the smallest number at a time with \
             95 % of the best rate; by the clock, a latency begins when the request was due",
            settings.warm_up.as_millis(),
            settings.ramp_rounds,
            if settings.ramp_rounds == 1 { "" } else { "s" },
            settings.ramp.as_millis(),
            settings.rounds,
            settings.length.as_millis(),
            settings.paced_rounds,
            settings.paced.as_millis(),
        ));
        if let Some(rate) = settings.consent.max_rate {
            conditions.push(format!("at most {rate} requests a second to named URLs, all phases"));
        }
        conditions
    }
}

/// All of them, beginning with another one each round: none always goes behind the same neighbour.
fn in_turns(cases: &mut [Case], round: usize) -> impl Iterator<Item = &mut Case> {
    let at = if cases.is_empty() { 0 } else { round % cases.len() };
    let (before, from) = cases.split_at_mut(at);
    from.iter_mut().chain(before)
}
