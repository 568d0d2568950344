//! What signing, verifying and making a key cost, by type and size.
//!
//! The times are those of `sal speed` ([`sallyport_sal::measure::table`]): every source takes its turn in every pass.
//! RSA keys of 1024 bits have no source. They are signed and verified by plain arithmetic that is here for this alone, beside
//! RSA-2048 by the same, so that the ratio is of like to like.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use sallyport_bench::Talk;
use sallyport_bench::machine::Watch;
use sallyport_bench::plot::{Bar, Bars};
use sallyport_bench::report::{Csv, Picture, Report, Row};
use sallyport_bench::statistics::Samples;
use sallyport_sal::algorithm::{KeyAlgorithm, KeyKind};
use sallyport_sal::measure::danger::plain_rsa::PLAIN_RSA;
use sallyport_sal::measure::instructions::Instructions;
use sallyport_sal::measure::table::{self, Measured, Wanted};
pub use sallyport_sal::measure::timing::Effort;
use sallyport_sal::provider::Provider;
use sallyport_sal::{Primitive, Selection, selection};

use crate::LabError;

/// What ratios are to.
const BASE: KeyAlgorithm = KeyAlgorithm::Rsa2048;
/// Passes that are made whatever the time.
const LEAST_PASSES: usize = 2;

/// What is measured.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Types of keys.
    pub keys: Vec<KeyAlgorithm>,
    /// Whether keys are made as well, which takes from tenths of seconds to a minute for RSA.
    pub generate: bool,
    /// Whether every source is measured, and not the selected one alone.
    pub all_sources: bool,
    /// Whether `openssl speed` is asked as well, a second for each operation.
    pub openssl: bool,
    /// Passes and the time of one turn.
    pub effort: Effort,
    /// After so long no more passes are begun; two are made whatever the time.
    pub budget: Duration,
    /// Where every sample goes.
    pub csv: Option<PathBuf>,
}

impl Settings {
    /// A glance, in some seconds.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            effort: Effort { passes: 51, batch: Duration::from_millis(3) },
            budget: Duration::from_secs(10),
            ..Self::full()
        }
    }

    /// Figures to believe.
    #[must_use]
    pub fn full() -> Self {
        use KeyAlgorithm as Key;
        Self {
            keys: vec![
                Key::Rsa1024,
                Key::Rsa2048,
                Key::Rsa3072,
                Key::Rsa4096,
                Key::Rsa8192,
                Key::EcdsaP256,
                Key::EcdsaP384,
                Key::EcdsaP521,
                Key::Ed25519,
                Key::MlDsa44,
                Key::MlDsa65,
                Key::MlDsa87,
            ],
            generate: false,
            all_sources: false,
            openssl: false,
            effort: Effort { passes: 101, batch: Duration::from_millis(5) },
            budget: Duration::from_secs(900),
            csv: None,
        }
    }
}

/// One operation with one type of key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Sign,
    Verify,
    Generate,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Sign => "sign",
            Self::Verify => "verify",
            Self::Generate => "generate",
        }
    }

    fn and_key(primitive: Primitive) -> Option<(Self, KeyAlgorithm)> {
        match primitive {
            Primitive::Sign(key) => Some((Self::Sign, key)),
            Primitive::Verify(key) => Some((Self::Verify, key)),
            Primitive::GenerateKey(key) => Some((Self::Generate, key)),
            _ => None,
        }
    }

    fn of(self, key: KeyAlgorithm) -> Primitive {
        match self {
            Self::Sign => Primitive::Sign(key),
            Self::Verify => Primitive::Verify(key),
            Self::Generate => Primitive::GenerateKey(key),
        }
    }
}

/// Measures.
///
/// # Errors
/// When nothing was asked for, and when the file of samples cannot be written.
pub fn run(settings: &Settings, talk: &Talk) -> Result<Report, LabError> {
    if settings.keys.is_empty() {
        return Err(LabError::Input("no type of key was asked for".to_owned()));
    }
    let watch = Watch::begin();
    let limited = talk.within(settings.budget);
    let mut csv = Csv::create(settings.csv.as_deref(), "operation,key,source,pass,microseconds")?;
    let selection = selection::global();
    let operations: &[Operation] = if settings.generate {
        &[Operation::Sign, Operation::Verify, Operation::Generate]
    } else {
        &[Operation::Sign, Operation::Verify]
    };
    let wanted = wanted(selection, settings, operations);
    let part = talk.part(0.0, if settings.openssl { 0.5 } else { 1.0 });
    let going = |now: table::Progress| {
        let what = now.primitive.map_or_else(|| "keys, pass by pass".to_owned(), |one| one.to_string());
        part.progress(now.done, now.all, what);
        !talk.stopping() && (now.done < LEAST_PASSES || !limited.late())
    };
    let mut passes: HashMap<(Primitive, &str), usize> = HashMap::new();
    let mut written = Ok(());
    let heard = |row: &Measured, nanoseconds: f64| {
        let (Some((operation, key)), true) = (Operation::and_key(row.primitive), written.is_ok()) else {
            return;
        };
        let pass = passes.entry((row.primitive, row.provider)).or_default();
        let line = format!("{},{key},{},{pass},{:.4}", operation.name(), row.provider, nanoseconds / 1e3);
        *pass += 1;
        written = csv.line(&line);
    };
    let rows = table::measure_while(selection, &wanted, settings.effort, going, heard);
    written?;
    let measured: Vec<Timed> = rows.iter().filter_map(Timed::of).collect();
    let openssl = if settings.openssl { Some(openssl(settings, &talk.part(0.5, 1.0))) } else { None };

    let mut report = Report { conditions: conditions(settings), ..Report::of("keys", &watch, talk) };
    for operation in operations {
        for key in &settings.keys {
            let mut mine: Vec<&Timed> =
                measured.iter().filter(|timed| timed.operation == *operation && timed.key == *key).collect();
            mine.sort_by(|one, other| one.samples.least().total_cmp(&other.samples.least()));
            if mine.is_empty() && !talk.stopping() {
                report.rows.push(Row::new(format!(
                    "{} {key}: {}",
                    operation.name(),
                    absent(*operation, *key)
                )));
            }
            report
                .rows
                .extend(mine.into_iter().map(|timed| row(timed, &measured, openssl.as_ref(), selection)));
        }
    }
    if let Some(Err(reason)) = &openssl {
        report.notes.push(format!("openssl was not asked: {reason}"));
    }
    report.notes.extend(estimate(&measured));
    report.notes.extend(limited.lateness(settings.budget, "each operation"));
    report.pictures = pictures(&measured, settings, selection);
    Ok(report)
}

fn wanted(selection: &Selection, settings: &Settings, operations: &[Operation]) -> Vec<Wanted> {
    let mut keys = settings.keys.clone();
    // What ratios are to is measured in any case.
    if !keys.contains(&BASE) {
        keys.push(BASE);
    }
    let mut wanted = Vec::new();
    for operation in operations {
        for key in &keys {
            let primitive = operation.of(*key);
            if *operation == Operation::Generate && !settings.keys.contains(key) {
                continue;
            }
            let selected = selection.source(primitive).ok().map(Provider::name);
            let mut add = |provider: &'static dyn Provider| wanted.push(Wanted { primitive, provider });
            for provider in selection.providers() {
                if settings.all_sources || selected == Some(provider.name()) {
                    add(*provider);
                }
            }
            let small = settings.keys.contains(&KeyAlgorithm::Rsa1024);
            if *key == KeyAlgorithm::Rsa1024 || *key == BASE && small {
                add(&PLAIN_RSA);
            }
        }
    }
    wanted
}

/// What was measured of one operation by one source, in microseconds.
#[derive(Debug, Clone)]
struct Timed {
    operation: Operation,
    key: KeyAlgorithm,
    source: &'static str,
    warning: Option<&'static str>,
    samples: Samples,
    instructions: Option<u64>,
}

impl Timed {
    fn of(row: &Measured) -> Option<Self> {
        let (operation, key) = Operation::and_key(row.primitive)?;
        let samples: Samples = row.times.samples().iter().map(|nanoseconds| nanoseconds / 1e3).collect();
        (!samples.is_empty()).then_some(Self {
            operation,
            key,
            source: row.provider,
            warning: row.warning,
            samples,
            instructions: row.times.instructions(),
        })
    }
}

fn row(
    timed: &Timed,
    all: &[Timed],
    openssl: Option<&Result<Rates, LabError>>,
    selection: &Selection,
) -> Row {
    let selected =
        selection.source(timed.operation.of(timed.key)).is_ok_and(|provider| provider.name() == timed.source);
    let standing = match (timed.warning, selected) {
        (_, true) => "",
        (Some(_), false) => ", never chosen",
        (None, false) => ", not chosen",
    };
    let name = format!("{} {} ({}{standing})", timed.operation.name(), timed.key, timed.source);
    let median = timed.samples.median();
    let mut row = Row::new(name)
        .measured("us", 2, &timed.samples)
        .with("least us", 2, timed.samples.least())
        .with("per s and core", 0, (median > 0.0).then(|| 1e6 / median))
        .with(
            "to rsa-2048",
            3,
            base(timed, all, selection).and_then(|base| timed.samples.ratio_to(&base.samples)),
        );
    if let Some(instructions) = timed.instructions {
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let thousands = instructions as f64 / 1000.0;
        row = row.with("1000 instructions", 1, thousands);
    }
    if let Some(Ok(figures)) = openssl {
        let mine = |(key, operation, _): &&(KeyAlgorithm, Operation, f64)| {
            *key == timed.key && *operation == timed.operation
        };
        let rate = figures.iter().find(mine).map(|(_, _, rate)| *rate);
        row = row.with("openssl us", 2, rate.filter(|rate| *rate > 0.0).map(|rate| 1e6 / rate));
    }
    row
}

/// RSA-2048 by the selected source, or by plain arithmetic for what that made.
fn base<'a>(timed: &Timed, all: &'a [Timed], selection: &Selection) -> Option<&'a Timed> {
    let plain = PLAIN_RSA.name();
    let source =
        if timed.source == plain { plain } else { selection.source(timed.operation.of(BASE)).ok()?.name() };
    all.iter().find(|one| one.operation == timed.operation && one.key == BASE && one.source == source)
}

fn absent(operation: Operation, key: KeyAlgorithm) -> &'static str {
    match (operation, key) {
        (Operation::Generate, KeyAlgorithm::Rsa1024) => "no source makes keys below 2048 bits",
        _ => "no source of this build has it",
    }
}

/// What a source would take for RSA-1024 if it had it, by the ratio that plain arithmetic shows.
fn estimate(all: &[Timed]) -> Vec<String> {
    let plain = PLAIN_RSA.name();
    let find = |operation, key, by_plain: bool| {
        all.iter()
            .find(|one| one.operation == operation && one.key == key && (one.source == plain) == by_plain)
    };
    [Operation::Sign, Operation::Verify]
        .into_iter()
        .filter_map(|operation| {
            if find(operation, KeyAlgorithm::Rsa1024, false).is_some() {
                return None;
            }
            let ratio = find(operation, KeyAlgorithm::Rsa1024, true)?
                .samples
                .ratio_to(&find(operation, BASE, true)?.samples)?;
            let best = find(operation, BASE, false)?.samples.median();
            Some(format!(
                "rsa-1024 has no source that would {0} with it here; by the ratio of plain arithmetic to itself ({ratio:.3}), one that does rsa-2048 in {best:.0} us would take about {1:.0} us: an estimate",
                operation.name(),
                best * ratio
            ))
        })
        .collect()
}

fn conditions(settings: &Settings) -> Vec<String> {
    let sources = if settings.all_sources { "every source" } else { "the source that the layer selects" };
    vec![
        format!(
            "{} passes, in each of which every operation of {sources} has its turn for about {} ms; the first runs are not counted",
            settings.effort.passes,
            settings.effort.batch.as_millis()
        ),
        "times are processor time of one thread for one operation: medians with the interval that holds them with 95 %, the least, and how many a core does in a second at the median".to_owned(),
        "130 bytes are signed, as in a TLS 1.3 handshake; RSA by PSS with SHA-256, keys that are published; an operation that takes longer than its turn has fewer samples".to_owned(),
        "\"plain\" is arithmetic that is here for measurements alone: no source signs with rsa-1024, so it stands beside rsa-2048 by the same".to_owned(),
        match Instructions::of_this_thread() {
            Ok(_) => "instructions are those of one operation in user space, the median of some".to_owned(),
            Err(why) => format!("instructions are not counted: the kernel gives no counter ({why})"),
        },
    ]
}

fn pictures(all: &[Timed], settings: &Settings, selection: &Selection) -> Vec<Picture> {
    let mut pictures = Vec::new();
    let title = "Signing and verifying, by key";
    let mut bars = Bars::new(title, "microseconds of one core").logarithmic().legend(["sign", "verify"]);
    let mut any = false;
    for key in &settings.keys {
        let group: Vec<Bar> = [Operation::Sign, Operation::Verify]
            .into_iter()
            .zip(0..)
            .filter_map(|(operation, series)| {
                let selected = selection.source(operation.of(*key)).ok().map(Provider::name);
                let source = match selected {
                    Some(name) if *key != KeyAlgorithm::Rsa1024 => name,
                    _ => PLAIN_RSA.name(),
                };
                let timed = all
                    .iter()
                    .find(|one| one.operation == operation && one.key == *key && one.source == source)?;
                let bar =
                    Bar::new(operation.name(), timed.samples.median()).series(series).note(timed.source);
                Some(match timed.samples.interval() {
                    Some((low, high)) => bar.interval(low, high),
                    None => bar,
                })
            })
            .collect();
        any |= !group.is_empty();
        bars = bars.group(key.name(), group);
    }
    if any {
        pictures.push(Picture { name: "keys".to_owned(), title: title.to_owned(), svg: bars.svg() });
    }
    pictures
}

/// Operations a second.
type Rates = Vec<(KeyAlgorithm, Operation, f64)>;

/// Those that `openssl speed` counts, a second each.
fn openssl(settings: &Settings, talk: &Talk) -> Result<Rates, LabError> {
    let mut figures = Vec::new();
    let known: Vec<_> = settings.keys.iter().filter_map(|key| Some((*key, openssl_name(*key)?))).collect();
    for (at, (key, name)) in known.iter().enumerate() {
        if talk.stopping() {
            break;
        }
        talk.progress(at, known.len(), format!("openssl speed {name}"));
        let output = Command::new("openssl")
            .args(["speed", "-seconds", "1", "-mr", name])
            .stdin(Stdio::null())
            .output()
            .map_err(|source| LabError::Missing {
                program: "openssl".to_owned(),
                source,
                hint: "install openssl",
            })?;
        figures.extend(rates(&String::from_utf8_lossy(&output.stdout), *key));
    }
    Ok(figures)
}

fn openssl_name(key: KeyAlgorithm) -> Option<&'static str> {
    Some(match key {
        KeyAlgorithm::Rsa1024 => "rsa1024",
        KeyAlgorithm::Rsa2048 => "rsa2048",
        KeyAlgorithm::Rsa3072 => "rsa3072",
        KeyAlgorithm::Rsa4096 => "rsa4096",
        KeyAlgorithm::EcdsaP256 => "ecdsap256",
        KeyAlgorithm::EcdsaP384 => "ecdsap384",
        KeyAlgorithm::EcdsaP521 => "ecdsap521",
        KeyAlgorithm::Ed25519 => "ed25519",
        _ => return None,
    })
}

/// The last two fields of the line with results: signatures and verifications a second.
fn rates(text: &str, key: KeyAlgorithm) -> Rates {
    let prefix = match key.kind() {
        KeyKind::Rsa => "+F2:",
        KeyKind::Ecdsa => "+F4:",
        _ => "+F6:",
    };
    let Some(line) = text.lines().find(|line| line.starts_with(prefix)) else { return Vec::new() };
    let mut fields = line.rsplit(':').map(|field| field.trim().parse::<f64>().ok());
    let (verify, sign) = (fields.next().flatten(), fields.next().flatten());
    [(Operation::Sign, sign), (Operation::Verify, verify)]
        .into_iter()
        .filter_map(|(operation, rate)| Some((key, operation, rate?)))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;

    fn tiny() -> Settings {
        Settings { effort: Effort { passes: 4, batch: Duration::from_micros(200) }, ..Settings::quick() }
    }

    #[test]
    fn every_key_signs_and_verifies_and_larger_ones_take_longer() {
        let directory = tempfile::tempdir().unwrap();
        let csv = directory.path().join("samples.csv");
        let settings = Settings { csv: Some(csv.clone()), ..tiny() };
        let report = run(&settings, &Talk::silent()).unwrap();
        for key in &settings.keys {
            for operation in ["sign", "verify"] {
                let start = format!("{operation} {key} (");
                let row = report
                    .rows
                    .iter()
                    .find(|row| row.what.starts_with(&start))
                    .unwrap_or_else(|| unreachable!("{start} {:?}", report.rows));
                assert!(
                    row.figure("us").unwrap() > 0.0 && row.figure("to rsa-2048").unwrap() > 0.0,
                    "{row:?}"
                );
            }
        }
        // The quickest of each: what else runs here makes others slower.
        let us = |start: &str| {
            report
                .rows
                .iter()
                .find(|row| row.what.starts_with(start))
                .and_then(|row| row.figure("least us"))
                .unwrap()
        };
        // Known by wide margins: 0.6, 4.4 and 25 milliseconds, and 20 microseconds.
        assert!(us("sign rsa-4096") > 3.0 * us("sign rsa-2048"));
        assert!(us("sign rsa-8192") > 3.0 * us("sign rsa-4096"));
        assert!(us("sign rsa-2048 (") > 5.0 * us("sign ecdsa-p256"), "{:?}", report.rows);
        // By the same arithmetic.
        assert!(us("sign rsa-2048 (plain") > 2.5 * us("sign rsa-1024 (plain"));
        assert!(report.notes.iter().any(|note| note.contains("an estimate")), "{:?}", report.notes);
        assert!(report.pictures.first().unwrap().svg.contains("ml-dsa-65"));
        let samples = std::fs::read_to_string(csv).unwrap();
        assert!(samples.starts_with("operation,key,source,pass,microseconds\nsign,"), "{samples}");
    }

    #[test]
    fn one_key_alone_is_compared_all_the_same() {
        let settings =
            Settings { keys: vec![KeyAlgorithm::Ed25519], generate: true, all_sources: true, ..tiny() };
        let report = run(&settings, &Talk::silent()).unwrap();
        let ours: Vec<_> = report.rows.iter().filter(|row| row.what.contains("ed25519")).collect();
        assert_eq!(ours.len(), report.rows.len(), "{:?}", report.rows);
        assert!(ours.iter().any(|row| row.what.starts_with("generate ed25519")));
        assert!(ours.iter().filter(|row| row.what.starts_with("sign")).count() > 2, "{ours:?}");
        assert!(ours.iter().all(|row| row.what.starts_with("gen") || row.figure("to rsa-2048").is_some()));
        let nothing = Settings { keys: Vec::new(), ..tiny() };
        assert!(matches!(run(&nothing, &Talk::silent()), Err(LabError::Input(_))));
    }

    #[test]
    fn what_openssl_says_is_understood() {
        let text = "+DTP:1024:private:rsa:1\n+F2:1:1024:5473.333333:82745.652174\n";
        let rsa = rates(text, KeyAlgorithm::Rsa1024);
        assert_eq!(
            rsa,
            [
                (KeyAlgorithm::Rsa1024, Operation::Sign, 5473.333333),
                (KeyAlgorithm::Rsa1024, Operation::Verify, 82745.652174)
            ]
        );
        let text = "+F6:0:253:Ed25519:10328.000000:3970.114943\n";
        assert_eq!(rates(text, KeyAlgorithm::Ed25519).len(), 2);
        assert!(rates("no such thing", KeyAlgorithm::EcdsaP256).is_empty());
    }
}
