//! What a handshake costs a real browser: Chromium opens a server of ours on loopback, and the page says what its own
//! Navigation Timing says.
//!
//! Each sample has a browser of its own, with a fresh profile. It opens a page of another server first, so that what a
//! process does once (its network service, the verifier of certificates, the first handshake) is not in the figure of
//! the second page; what the first page saw is told as well.

mod chromium;
mod server;
mod timing;

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use sallyport_bench::machine::Watch;
use sallyport_bench::plot::{Bar, Bars};
use sallyport_bench::report::{Csv, Picture, Report, Row};
use sallyport_bench::statistics::Samples;
use sallyport_bench::{AtFile, Talk};
use sallyport_sal::KeyAlgorithm;
use sallyport_sal::algorithm::KexGroup;

use self::chromium::{Browser, Trust};
use self::server::{Agreed, Authority, Event, Server};
use self::timing::PageTiming;
use crate::LabError;

/// How long one browser may take, from start to timing.
const RUN: Duration = Duration::from_secs(20);
/// Runs in a row that may fail before the measurement gives up.
const MOST_FAILURES: usize = 3;
/// Events that wait to be looked at, at most; a server whose event finds no place waits.
const EVENTS_MOST: usize = 64;
/// The number of the server that is opened first.
const FIRST_PAGE: usize = 0;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Rounds; each starts one browser for every row.
    pub rounds: usize,
    /// The browser; the first that is found when none is named.
    pub browser: Option<PathBuf>,
    /// How long a browser is left alone between its first page and the one that is measured.
    pub settle: Duration,
    /// After so long no more browsers are started; the first round is made whatever the time.
    pub budget: Duration,
    /// Where every sample goes.
    pub csv: Option<PathBuf>,
}

impl Settings {
    /// A glance: about 30 seconds.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            rounds: 6,
            browser: None,
            settle: Duration::from_millis(500),
            budget: Duration::from_secs(36),
            csv: None,
        }
    }

    /// Some two minutes.
    #[must_use]
    pub fn full() -> Self {
        Self {
            rounds: 15,
            settle: Duration::from_millis(1000),
            budget: Duration::from_secs(600),
            ..Self::quick()
        }
    }
}

/// One row.
struct Case {
    name: &'static str,
    key: KeyAlgorithm,
    group: KexGroup,
    /// What certsimple's figure for such a certificate is, in milliseconds.
    published: Option<f64>,
    handshake: Samples,
    connect: Samples,
    first_byte: Samples,
}

fn cases() -> Vec<Case> {
    let case = |name, key, group, published| Case {
        name,
        key,
        group,
        published,
        handshake: Samples::default(),
        connect: Samples::default(),
        first_byte: Samples::default(),
    };
    vec![
        case("RSA-2048, X25519", KeyAlgorithm::Rsa2048, KexGroup::X25519, Some(50.0)),
        case("RSA-4096, X25519", KeyAlgorithm::Rsa4096, KexGroup::X25519, Some(76.0)),
        case("P-256, X25519", KeyAlgorithm::EcdsaP256, KexGroup::X25519, None),
        case("P-256, X25519MLKEM768", KeyAlgorithm::EcdsaP256, KexGroup::X25519MlKem768, None),
    ]
}

/// Measures.
///
/// # Errors
/// [`LabError::Missing`] when there is no browser; otherwise when it does not do what it should, three times in a row.
pub fn run(settings: &Settings, talk: &Talk) -> Result<Report, LabError> {
    let browser = Browser::find(settings.browser.as_deref())?;
    let limited = talk.within(settings.budget);
    let directory = tempfile::tempdir().at("make a directory in", &std::env::temp_dir())?;
    let mut csv =
        Csv::create(settings.csv.as_deref(), "page,row,round,handshake_ms,connect_ms,first_byte_ms")?;
    let authority = Authority::new()?;
    let (sender, events) = mpsc::sync_channel(EVENTS_MOST);
    let mut cases = cases();
    // The first page has a handshake of the cheapest kind.
    let first =
        Server::start(FIRST_PAGE, &authority, KeyAlgorithm::EcdsaP256, KexGroup::X25519, sender.clone())?;
    let mut servers = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        servers.push(Server::start(number + 1, &authority, case.key, case.group, sender.clone())?);
    }
    let pins: Vec<&str> = std::iter::once(&first).chain(&servers).map(|server| server.pin.as_str()).collect();
    let trust = Trust::make(&authority.certificate, pins.join(","), directory.path())?;
    let setup = Setup { settings, browser, trust, first, servers, events };

    let watch = Watch::begin();
    let (mut cold, mut failures, mut failed, mut isolated) = (Samples::default(), 0, 0, true);
    let all = settings.rounds * cases.len();
    'rounds: for round in 0..settings.rounds {
        for turn in 0..cases.len() {
            if talk.stopping() || (round > 0 && limited.late()) {
                break 'rounds;
            }
            // None always goes behind the same neighbour.
            let number = (turn + round) % cases.len();
            let Some(case) = cases.get_mut(number) else { continue };
            talk.progress(round * setup.servers.len() + turn, all, case.name);
            let pages = match setup.sample(number, case, talk) {
                Ok(Some(pages)) => pages,
                Ok(None) => break 'rounds,
                Err(error) => {
                    failures += 1;
                    failed += 1;
                    if failures >= MOST_FAILURES {
                        return Err(error);
                    }
                    talk.say(format!("a run is left out: {error}"));
                    continue;
                }
            };
            failures = 0;
            for (page, timing) in [("first", &pages.first), ("measured", &pages.measured)] {
                csv.line(&format!(
                    "{page},{:?},{round},{:.3},{:.3},{:.3}",
                    case.name, timing.handshake, timing.connect, timing.first_byte
                ))?;
            }
            cold.push(pages.first.handshake);
            case.handshake.push(pages.measured.handshake);
            case.connect.push(pages.measured.connect);
            case.first_byte.push(pages.measured.first_byte);
            isolated &= pages.measured.isolated;
        }
    }
    let mut report = Report::of("browser", &watch, talk);
    report.conditions = conditions(&setup, isolated);
    report.rows = cases.iter().filter(|case| !case.handshake.is_empty()).map(row).collect();
    if !cold.is_empty() {
        report.rows.push(Row::new("first page of a process: P-256, X25519").measured(
            "handshake ms",
            2,
            &cold,
        ));
    }
    report.notes = notes(&cases, failed);
    report.notes.extend(limited.lateness(settings.budget, "each row"));
    report.pictures = vec![picture(&cases)];
    Ok(report)
}

/// What both pages of one browser saw.
struct Pages {
    first: PageTiming,
    measured: PageTiming,
}

struct Setup<'a> {
    settings: &'a Settings,
    browser: Browser,
    trust: Trust,
    first: Server,
    servers: Vec<Server>,
    events: Receiver<Event>,
}

impl Setup<'_> {
    /// Starts a browser, has it open both pages, and ends it. None when it is told to stop.
    fn sample(&self, number: usize, case: &Case, talk: &Talk) -> Result<Option<Pages>, LabError> {
        let Some(server) = self.servers.get(number) else { return Ok(None) };
        self.first.prepare(Some(&server.address()), self.settings.settle);
        server.prepare(None, Duration::ZERO);
        // What is left of the run before.
        while self.events.try_recv().is_ok() {}
        let mut run = self.browser.start(&self.trust, &self.first.address())?;
        let until = Instant::now() + RUN;
        let (mut first, mut last) = (None, None);
        let what = || format!("{} ({})", case.name, self.browser.version);
        loop {
            if talk.stopping() {
                return Ok(None);
            }
            match self.events.recv_timeout(Duration::from_millis(100)) {
                Ok(Event::Timed { number: FIRST_PAGE, timing, .. }) => first = Some(timing),
                Ok(Event::Timed { number: at, timing, agreed }) if at == number + 1 => {
                    check(case, &agreed)?;
                    let first = first.ok_or_else(|| {
                        LabError::Connection("the second page came before the first".to_owned())
                    })?;
                    return Ok(Some(Pages { first, measured: timing }));
                }
                Ok(Event::Timed { .. }) => {}
                // A connection that the browser gave up is not the end: the page may come over the next one.
                Ok(Event::Failed { number: at, why }) if at == FIRST_PAGE || at == number + 1 => {
                    last = Some(why)
                }
                Ok(Event::Failed { .. }) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
            let said = |run: &chromium::Run| match &last {
                Some(why) => format!("{why}; the browser: {}", run.said()),
                None => run.said(),
            };
            if run.is_over() && Instant::now() + RUN > until + Duration::from_secs(2) {
                return Err(LabError::Failed { what: what(), said: said(&run) });
            }
            if Instant::now() > until {
                return Err(LabError::Late { what: what(), seconds: RUN.as_secs(), log: said(&run) });
            }
        }
    }
}

/// That the handshake was the one of the row, as the server saw it.
fn check(case: &Case, agreed: &Agreed) -> Result<(), LabError> {
    let scheme = match case.key {
        KeyAlgorithm::EcdsaP256 => "ECDSA_NISTP256_SHA256",
        _ => "RSA_PSS",
    };
    let right = agreed.version == "TLSv1_3"
        && agreed.full
        && agreed.group.eq_ignore_ascii_case(case.group.name())
        && agreed.scheme.starts_with(scheme);
    if right {
        Ok(())
    } else {
        Err(LabError::Connection(format!("the browser's handshake is not {}: {agreed:?}", case.name)))
    }
}

fn conditions(setup: &Setup<'_>, isolated: bool) -> Vec<String> {
    let mut conditions = vec![
        format!("{}, headless, a fresh profile for each sample, nothing resumed", setup.browser.version),
        "TLS 1.3 to a server of ours on 127.0.0.1, HTTP/1.1; group and signature scheme of each handshake were seen by \
         the server"
            .to_owned(),
        "chain: a leaf as the row says, signed by a P-256 root, which is not sent".to_owned(),
        setup.trust.words().to_owned(),
        format!(
            "figures are the page's own Navigation Timing: handshake = connectEnd - secureConnectionStart, connect = \
             connectEnd - connectStart, first byte = responseStart - fetchStart; resolution {}",
            if isolated { "5 µs (the page is cross-origin isolated)" } else { "100 µs (the page is NOT isolated)" }
        ),
        format!(
            "each browser opens a page of another server first and rests for {} ms, so that what a process does once is not \
             in the figures; the last row is that first page",
            setup.settings.settle.as_millis()
        ),
        "the browser opens no connection ahead of a navigation (network prediction is off in its profile)".to_owned(),
    ];
    if setup.browser.unconfined {
        conditions.push("run by root, so the browser has no sandbox (--no-sandbox)".to_owned());
    }
    conditions
}

fn row(case: &Case) -> Row {
    Row::new(case.name)
        .measured("handshake ms", 2, &case.handshake)
        .measured("connect ms", 2, &case.connect)
        .measured("first byte ms", 2, &case.first_byte)
        .with("published ms", 0, case.published)
}

fn notes(cases: &[Case], failed: usize) -> Vec<String> {
    let mut notes = Vec::new();
    let mut compare = |over: usize, base: usize| {
        if let (Some(over), Some(base)) = (cases.get(over), cases.get(base))
            && failed == 0
        {
            let ratios = over.handshake.ratios_to(&base.handshake);
            let Some((low, high)) = ratios.interval() else { return };
            let (ratio, more) = (ratios.median(), over.handshake.median() - base.handshake.median());
            let (over, base) = (over.name, base.name);
            let between = format!("{low:.2} to {high:.2}, round by round");
            notes.push(if low > 1.0 || high < 1.0 {
                format!("{over} takes {ratio:.2} times the handshake of {base} ({between}; {more:+.2} ms)")
            } else {
                format!(
                    "{over} and {base} cannot be told apart here: {ratio:.2} times ({between}; {more:+.2} ms)"
                )
            });
        }
    };
    compare(1, 0);
    compare(0, 2);
    compare(3, 2);
    if failed > 0 {
        notes.push(format!("{failed} runs were left out; ratios are not told, as rounds are not whole"));
    }
    notes.push(
        "published: certsimple, 2015-04-23, 50 ms with RSA-2048 and 76 ms with RSA-4096 (1.52 times). These were over a \
         network, whose round trips are in them; here is loopback without any, a processor and signing code of today, and \
         TLS 1.3, which needs one round trip less. What is left is what both sides compute and how soon they are scheduled"
            .to_owned(),
    );
    notes.push(
        "client shares: Chromium makes both an X25519 and an X25519MLKEM768 share for every handshake, whichever the \
         server takes; so the difference between the groups is what comes after"
            .to_owned(),
    );
    notes.push("server and browser share this machine's processors".to_owned());
    notes
}

fn picture(cases: &[Case]) -> Picture {
    let title = "TLS handshake as Chromium sees it";
    let mut bars =
        Bars::new(title, "ms, median with its 95 % interval; pale: published, over a network (2015)");
    for case in cases.iter().filter(|case| !case.handshake.is_empty()) {
        let mut bar = Bar::new("here", case.handshake.median());
        if let Some((low, high)) = case.handshake.interval() {
            bar = bar.interval(low, high);
        }
        let mut group = vec![bar];
        if let Some(published) = case.published {
            group.push(Bar::new("certsimple", published).pale());
        }
        bars = bars.group(case.name, group);
    }
    Picture { name: "browser".to_owned(), title: title.to_owned(), svg: bars.svg() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_browser_that_is_not_there_is_named_with_what_to_install() {
        let settings = Settings { browser: Some("/no/such/chromium".into()), ..Settings::quick() };
        let error = run(&settings, &Talk::silent()).unwrap_err().to_string();
        assert!(error.contains("/no/such/chromium") && error.contains("apt-get install chromium"), "{error}");
        // Something that runs and is no browser.
        let settings = Settings { browser: Some("/bin/true".into()), ..Settings::quick() };
        let error = run(&settings, &Talk::silent()).unwrap_err().to_string();
        assert!(error.contains("/bin/true"), "{error}");
    }

    #[test]
    fn a_handshake_other_than_the_rows_is_refused() {
        let cases = cases();
        let rsa = cases.first().unwrap();
        let right = Agreed {
            version: "TLSv1_3".to_owned(),
            group: "X25519".to_owned(),
            scheme: "RSA_PSS_SHA256".to_owned(),
            full: true,
        };
        assert!(check(rsa, &right).is_ok());
        for wrong in [
            Agreed { version: "TLSv1_2".to_owned(), ..right.clone() },
            Agreed { group: "secp256r1".to_owned(), ..right.clone() },
            Agreed { scheme: "ECDSA_NISTP256_SHA256".to_owned(), ..right.clone() },
            Agreed { full: false, ..right.clone() },
        ] {
            assert!(check(rsa, &wrong).is_err(), "{wrong:?}");
        }
    }
}
