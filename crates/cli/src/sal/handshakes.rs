//! `sallyport sal handshakes`.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use sallyport_sal::algorithm::{KexGroup, KeyAlgorithm};
use sallyport_sal::measure::handshake::{Credentials, Pair, Shape, compare};
use sallyport_sal::measure::timing::Effort;
use sallyport_sal::selection::{self, Mode};
use sallyport_sal::tls::{self, rustls};
use sallyport_sal::{Policy, SalError, Selection, provider};
use serde_json::json;
use tempfile::TempDir;

use super::shown::bar;
use crate::error::{CliError, CliResult, Context};
use crate::ui::{self, Format};

/// The program that stands for Go's crypto/tls.
const GO_PROGRAM: &str = include_str!("peers/handshakes.go");
/// How often each source takes a turn.
const ROUNDS: usize = 4;
/// One turn of ours: many short batches, of which some meet a quiet moment.
const TURN: Effort = Effort { passes: 12, batch: Duration::from_millis(4) };
/// One turn of Go's, in milliseconds.
const GO_TURN_MILLISECONDS: u32 = 150;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Types of certificates. Default: every one that is not for the lab alone.
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    key: Vec<KeyAlgorithm>,
    /// Key exchange groups.
    #[arg(long, value_name = "GROUP", value_delimiter = ',', default_value = "x25519,X25519MLKEM768")]
    group: Vec<KexGroup>,
    /// Compare with Go's crypto/tls, which takes Go's compiler.
    #[arg(long)]
    go: bool,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// The handshakes a second of each contestant for one shape.
struct Row {
    shape: Shape,
    rates: Vec<(String, Result<f64, NoRate>)>,
}

/// Why a contestant has no handshakes of a shape.
#[derive(Debug, thiserror::Error)]
enum NoRate {
    /// Its sources have none of the group.
    #[error("it has no {0}")]
    NoGroup(KexGroup),
    /// Its sources cannot be composed.
    #[error(transparent)]
    Sources(#[from] SalError),
    /// The configuration or the handshake failed.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// Go's program says so.
    #[error("{0}")]
    Go(String),
}

/// Why Go's crypto/tls does not take part.
#[derive(Debug, thiserror::Error)]
enum NoGo {
    #[error("its compiler cannot be run ({0})")]
    Compiler(io::Error),
    #[error("{0}")]
    Build(String),
    #[error(transparent)]
    Program(#[from] io::Error),
    #[error("it has no {0}")]
    Stream(&'static str),
}

pub(super) fn run(args: &Args) -> CliResult {
    let keys = if args.key.is_empty() {
        [
            KeyAlgorithm::Ed25519,
            KeyAlgorithm::EcdsaP256,
            KeyAlgorithm::EcdsaP384,
            KeyAlgorithm::Rsa2048,
            KeyAlgorithm::Rsa3072,
            KeyAlgorithm::Rsa4096,
            KeyAlgorithm::MlDsa44,
            KeyAlgorithm::MlDsa65,
        ]
        .to_vec()
    } else {
        args.key.clone()
    };
    let mut go = match args.go {
        true => Some(Go::start()),
        false => None,
    };
    if let Some(Err(reason)) = &go {
        ui::say(format!("Go is skipped: {reason}"));
        go = None;
    }
    let mut go = go.and_then(Result::ok);
    let selection = selection::global();
    let alone: Vec<(&str, &'static Selection)> = provider::ALL
        .iter()
        .map(|provider| {
            let policy = Policy { mode: Mode::Only(provider.name().to_owned()), ..Policy::default() };
            (provider.name(), &*Box::leak(Box::new(Selection::new(provider::ALL, policy))))
        })
        .collect();
    let bar = bar();
    bar.set_length((keys.len() * args.group.len() * 3) as u64);
    let mut rows = Vec::new();
    for key in keys {
        let credentials = Credentials::new(selection, key).doing(format!("make {key} certificates"))?;
        for group in &args.group {
            for (client_certificate, resumed) in [(false, false), (true, false), (false, true)] {
                let shape = Shape { client_certificate, resumed, ..Shape::new(key, *group) };
                bar.set_message(describe(shape));
                rows.push(measure(selection, &alone, &credentials, shape, go.as_mut())?);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    print(args, &rows)
}

fn describe(shape: Shape) -> String {
    let what = match (shape.client_certificate, shape.resumed) {
        (_, true) => "resumed",
        (true, false) => "client certificate",
        (false, false) => "full",
    };
    format!("{} {} {what}", shape.key, shape.group)
}

fn measure(
    selection: &'static Selection,
    alone: &[(&str, &'static Selection)],
    credentials: &Credentials,
    shape: Shape,
    mut go: Option<&mut Go>,
) -> CliResult<Row> {
    let ready = |pair: Result<Pair, NoRate>| -> Result<Pair, NoRate> {
        let pair = pair?;
        pair.warm_up()?;
        Ok(pair)
    };
    let composed = |selection: &'static Selection| {
        let provider = tls::compose(selection, &[shape.group])?;
        if provider.kx_groups.is_empty() {
            return Err(NoRate::NoGroup(shape.group));
        }
        Ok(credentials.pair(&provider, &provider, shape)?)
    };
    let mut contestants = vec![("composed".to_owned(), ready(composed(selection)))];
    contestants.extend(alone.iter().map(|(name, only)| (format!("{name} alone"), ready(composed(only)))));
    let mut default = rustls::crypto::aws_lc_rs::default_provider();
    default.kx_groups = rustls::crypto::aws_lc_rs::ALL_KX_GROUPS
        .iter()
        .copied()
        .filter(|group| u16::from(group.name()) == shape.group.iana_code())
        .collect();
    let default = Arc::new(default);
    let pair = credentials.pair(&default, &default, shape).map_err(NoRate::from);
    contestants.push(("rustls default".to_owned(), ready(pair)));

    let mut rates: Vec<(String, Result<f64, NoRate>)> = Vec::new();
    let mut runners = Vec::new();
    for (name, pair) in contestants {
        match pair {
            Ok(pair) => {
                runners.push((rates.len(), pair));
                rates.push((name, Ok(0.0)));
            }
            Err(reason) => rates.push((name, Err(reason))),
        }
    }
    if go.is_some() {
        rates.push(("Go".to_owned(), Ok(0.0)));
    }
    for _ in 0..ROUNDS {
        let pairs = runners.iter().map(|(_, pair)| pair.clone()).collect();
        for ((at, _), times) in runners.iter().zip(compare(pairs, TURN)) {
            if let Some((_, Ok(rate))) = rates.get_mut(*at) {
                *rate = rate.max(1e9 / times.minimum());
            }
        }
        if let (Some(go), Some((_, mine))) = (go.as_mut(), rates.last_mut()) {
            match go.ask(shape)? {
                Ok(nanoseconds) => {
                    if let Ok(rate) = mine {
                        *rate = rate.max(1e9 / nanoseconds);
                    }
                }
                Err(reason) => *mine = Err(reason),
            }
        }
    }
    Ok(Row { shape, rates })
}

fn print(args: &Args, rows: &[Row]) -> CliResult {
    if args.format == Format::Json {
        let all = rows.iter().map(|row| {
            json!({
                "key": row.shape.key,
                "group": row.shape.group,
                "client_certificate": row.shape.client_certificate,
                "resumed": row.shape.resumed,
                "handshakes_per_second": row.rates.iter().map(|(name, rate)| (name.clone(), match rate {
                    Ok(rate) => json!(rate.round()),
                    Err(reason) => json!(reason.to_string()),
                })).collect::<serde_json::Map<_, _>>(),
            })
        });
        return ui::json(&all.collect::<Vec<_>>());
    }
    let names: Vec<String> =
        rows.first().map(|row| row.rates.iter().map(|(name, _)| name.clone()).collect()).unwrap_or_default();
    let mut headings = vec!["key", "group", "handshake"];
    headings.extend(names.iter().map(String::as_str));
    headings.push("composed to best alone");
    let table = rows.iter().map(|row| {
        let mut cells = vec![
            row.shape.key.to_string(),
            row.shape.group.to_string(),
            describe(row.shape).split(' ').skip(2).collect::<Vec<_>>().join(" "),
        ];
        cells.extend(row.rates.iter().map(|(_, rate)| match rate {
            Ok(rate) => format!("{rate:.0}"),
            Err(_) => "-".to_owned(),
        }));
        let best = row.rates.iter().filter(|(name, _)| name.ends_with(" alone"));
        let best = best.filter_map(|(_, rate)| rate.as_ref().ok().copied()).fold(0.0, f64::max);
        let composed =
            row.rates.first().and_then(|(_, rate)| rate.as_ref().ok().copied()).unwrap_or_default();
        cells.push(if best > 0.0 { format!("{:.2}x", composed / best) } else { String::new() });
        cells
    });
    ui::table(&headings, table.collect(), "nothing was measured")?;
    ui::say("handshakes a second, client and server in one thread, by the least time of all batches");
    Ok(())
}

/// Go's crypto/tls in a process of its own, which waits for its turn.
struct Go {
    process: Child,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
    _directory: TempDir,
}

impl Go {
    /// Builds the program in a temporary directory and starts it.
    fn start() -> Result<Self, NoGo> {
        let directory = tempfile::tempdir()?;
        let (source, program) = (directory.path().join("main.go"), directory.path().join("handshakes"));
        std::fs::write(&source, GO_PROGRAM)?;
        let built = Command::new("go").arg("build").arg("-o").arg(&program).arg(&source).output();
        let built = built.map_err(NoGo::Compiler)?;
        if !built.status.success() {
            return Err(NoGo::Build(String::from_utf8_lossy(&built.stderr).trim().to_owned()));
        }
        let mut process = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let asks = process.stdin.take().ok_or(NoGo::Stream("standard input"))?;
        let answers = BufReader::new(process.stdout.take().ok_or(NoGo::Stream("standard output"))?);
        Ok(Self { process, asks, answers, _directory: directory })
    }

    /// Nanoseconds of one handshake, or why there is none.
    fn ask(&mut self, shape: Shape) -> CliResult<Result<f64, NoRate>> {
        let Shape { key, group, client_certificate, resumed, .. } = shape;
        writeln!(self.asks, "{key} {group} {client_certificate} {resumed} {GO_TURN_MILLISECONDS}")
            .and_then(|()| self.asks.flush())
            .doing("ask Go's program")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer).doing("hear from Go's program")?;
        match (answer.trim().parse(), answer.trim().strip_prefix("no ")) {
            (Ok(nanoseconds), _) => Ok(Ok(nanoseconds)),
            (Err(_), Some(reason)) => Ok(Err(NoRate::Go(reason.to_owned()))),
            (Err(_), None) => Err(CliError::new(format!("Go's program answered {answer:?}"))),
        }
    }
}

impl Drop for Go {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
