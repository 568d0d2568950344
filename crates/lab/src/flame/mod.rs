//! Flame graphs of a cluster's processes while they work: where their processor time goes, by connection and by byte.

mod load;
mod names;
mod perf;
pub mod stacks;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use load::{LOADS, Load};
use perf::Perf;
use sallyport_bench::cost::{children_time, processor_time};
use sallyport_bench::machine::Watch;
use sallyport_bench::plot::{Flame, first};
use sallyport_bench::report::{Picture, Report, Row};
use sallyport_bench::{AtFile, Talk};
use sallyport_testing::postgres::Postgres;
use sallyport_testing::{Extras, Sites, Testbed};
use stacks::{CUT, Share, Stacks, owner};

use self::load::Bench;
use crate::LabError;

/// Groups and functions of one process that stand in the table.
const SHOWN: usize = 8;
/// Letters of a name in the table; generic ones go on for lines.
const LONGEST_NAME: usize = 84;
/// Our own functions with less than this share of the samples are left out of the table.
const LEAST_SHARE: f64 = 0.01;

/// What to look at.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The work, one after the other.
    pub loads: Vec<Load>,
    /// Which processes are looked at.
    pub services: Vec<Service>,
    /// How long each work is done.
    pub time: Duration,
    /// Samples a second of each thread's processor time.
    pub rate: u32,
    /// Connections or transfers at a time.
    pub workers: usize,
    /// MiB of one transfer.
    pub size: u64,
    /// Where the folded stacks go, as text, one file for each process and work.
    pub folded: Option<PathBuf>,
}

impl Settings {
    /// A glance, or enough to rely on.
    #[must_use]
    pub fn of(quick: bool) -> Self {
        Self {
            loads: vec![Load::Cold, Load::Warm, Load::Legacy, Load::Download, Load::Upload],
            services: vec![Service::Proxy, Service::Node],
            time: Duration::from_secs(if quick { 4 } else { 20 }),
            // Not a round number: nothing that happens at round times is always seen, or never.
            rate: 499,
            workers: 4,
            size: 64,
            folded: None,
        }
    }
}

/// A process of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// The authority.
    Authority,
    /// The proxy.
    Proxy,
    /// The node, with the processes that run its sessions.
    Node,
}

/// All of them.
pub const SERVICES: [Service; 3] = [Service::Authority, Service::Proxy, Service::Node];

impl Service {
    /// Its name, on the command line and in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Authority => "authority",
            Self::Proxy => "proxy",
            Self::Node => "node",
        }
    }

    fn pid(self, testbed: &Testbed) -> u32 {
        match self {
            Self::Authority => testbed.cluster.authority.id(),
            Self::Proxy => testbed.cluster.proxy.id(),
            Self::Node => testbed.cluster.node.id(),
        }
    }
}

/// What was seen of one process under one work.
struct Profile {
    service: Service,
    load: Load,
    stacks: Stacks,
    /// Units of the work.
    units: u64,
    /// Processor time of the process and of its children, meanwhile.
    spent: Duration,
}

/// Looks.
///
/// # Errors
/// When `perf` is not there or may not look, when the program has no names of functions, when something cannot be started, or
/// when the work fails.
pub fn run(program: &Path, settings: &Settings, talk: &Talk) -> Result<Report, LabError> {
    let perf = Perf::find(settings.rate)?;
    names::required(program)?;
    if let Some(directory) = &settings.folded {
        fs::create_dir_all(directory).at("make", directory)?;
    }
    let database = settings.loads.iter().any(|load| load.needs_database());
    let postgres = database.then(Postgres::start).transpose()?;
    let extras = Extras { postgres: postgres.as_ref(), ..Extras::default() };
    let testbed = Testbed::start_at(program, &Sites::default(), extras, &|line| talk.say(line))?;
    let bench = Bench::prepare(&testbed, postgres.as_ref(), settings.size.max(1), settings.workers)?;
    let watch = Watch::begin();
    let mut profiles = Vec::new();
    for (at, load) in settings.loads.iter().enumerate() {
        if talk.stopping() {
            break;
        }
        talk.progress(at, settings.loads.len(), load.name());
        talk.say(format!("{}, for {} s", load.name(), settings.time.as_secs()));
        // The first makes what is kept: files in memory, trust, a helper daemon, tickets.
        bench.once(*load)?;
        profiles.extend(look(perf, &bench, *load, settings, talk)?);
    }
    let mut pictures = Vec::new();
    for one in &profiles {
        if let Some(directory) = &settings.folded {
            let path = directory.join(format!("{}-{}.folded", one.service.name(), one.load.name()));
            fs::write(&path, one.stacks.folded()).at("write", &path)?;
        }
        pictures.push(picture(one));
    }
    let mut report = Report::of("flame", &watch, talk);
    report.rows = profiles.iter().flat_map(|one| rows(one, settings.rate)).collect();
    report.pictures = pictures;
    report.notes = profiles.iter().map(|one| note(one, settings.rate)).collect();
    report.conditions = testbed.conditions();
    report.conditions.push(format!(
        "{} at a time, transfers of {} MiB; {} samples of processor time a second{}",
        settings.workers,
        settings.size,
        settings.rate,
        if perf.kernel { "" } else { ", without the kernel's part, which only root may see here" }
    ));
    Ok(report)
}

/// Has the work done while all are looked at.
fn look(
    perf: Perf,
    bench: &Bench<'_>,
    load: Load,
    settings: &Settings,
    talk: &Talk,
) -> Result<Vec<Profile>, LabError> {
    let whole = |pid| processor_time(pid) + children_time(pid);
    let mut looking = Vec::new();
    for service in &settings.services {
        let pid = service.pid(bench.testbed);
        let name = format!("{}-{}", service.name(), load.name());
        looking.push((*service, pid, perf.look(pid, bench.testbed.directory(), &name)?, whole(pid)));
    }
    let began = Instant::now();
    let units = bench.press(load, settings.time, talk)?;
    talk.say(format!("{units} {} in {:.1} s", load.units(), began.elapsed().as_secs_f64()));
    let mut profiles = Vec::new();
    for (service, pid, looking, before) in looking {
        let spent = whole(pid).saturating_sub(before);
        profiles.push(Profile { service, load, stacks: looking.end()?, units, spent });
    }
    Ok(profiles)
}

/// Which colour a frame has.
const LEGEND: [&str; 7] = [
    "Sallyport",
    "TLS and cryptography",
    "SSH",
    "policy, storage, compression",
    "tokio, HTTP/2 and gRPC",
    "Rust's and C's libraries",
    "kernel and unknown",
];

fn colour(frame: &str) -> usize {
    match owner(frame) {
        ours if ours.starts_with("sallyport") => 0,
        "rustls" | "tokio_rustls" | "aws-lc" | "ring" | "graviola" | "webpki" | "sha2" | "libcrux_ml_kem" => {
            1
        }
        "russh" | "ssh_key" | "ssh_encoding" | "russh_sftp" => 2,
        "cedar_policy" | "cedar_policy_core" | "sqlite" | "rusqlite" | "zstd" | "zstd_safe"
        | "serde_json" => 3,
        "tokio" | "tokio_util" | "tokio_stream" | "mio" | "h2" | "hyper" | "hyper_util" | "tonic"
        | "tower" | "tower_service" | "http" | "http_body" | "http_body_util" | "prost" | "tonic_prost"
        | "axum" | "futures_util" | "futures_core" | "bytes" | "tracing" | "tracing_core"
        | "tracing_subscriber" => 4,
        "kernel" | "unknown" => 6,
        _ => 5,
    }
}

#[allow(clippy::cast_precision_loss, reason = "numbers of samples")]
fn note(profile: &Profile, rate: u32) -> String {
    let samples = profile.stacks.samples();
    let cut: u64 = profile
        .stacks
        .iter()
        .filter(|(stack, _)| stack.iter().any(|frame| frame == CUT))
        .map(|(_, samples)| samples)
        .sum();
    format!(
        "{}, {}: {samples} samples ({:.1} % of their stacks cut), {} {}, {:.2} ms of processor time each ({:.2} ms by the \
         samples)",
        profile.service.name(),
        profile.load.name(),
        cut as f64 * 100.0 / samples.max(1) as f64,
        profile.units,
        profile.load.units(),
        profile.spent.as_secs_f64() * 1e3 / profile.units.max(1) as f64,
        samples as f64 * 1e3 / f64::from(rate.max(1)) / profile.units.max(1) as f64,
    )
}

/// The crates that had the most of it, and our own functions with what they call.
#[allow(clippy::cast_precision_loss, reason = "numbers of samples")]
fn rows(profile: &Profile, rate: u32) -> Vec<Row> {
    let samples = profile.stacks.samples().max(1) as f64;
    let microseconds = 1e6 / f64::from(rate.max(1)) / profile.units.max(1) as f64;
    let row = |name: &str, share: Share| {
        Row::new(format!("{}, {}: {name}", profile.service.name(), profile.load.name()))
            .with("self %", 1, share.itself as f64 * 100.0 / samples)
            .with("self us", 1, share.itself as f64 * microseconds)
            .with("with callees %", 1, share.with_callees as f64 * 100.0 / samples)
            .with("with callees us", 1, share.with_callees as f64 * microseconds)
    };
    let crates = profile.stacks.shares(|frame| Some(owner(frame)));
    let ours = |frame| owner(frame).starts_with("sallyport_").then_some(frame);
    let mut functions = profile.stacks.shares(ours);
    functions.retain(|(_, share)| share.with_callees as f64 >= LEAST_SHARE * samples);
    functions.sort_by_key(|(_, share)| std::cmp::Reverse(share.with_callees));
    let crates = crates.into_iter().take(SHOWN).filter(|(_, share)| share.itself > 0);
    let functions = functions.into_iter().take(SHOWN);
    crates.chain(functions).map(|(name, share)| row(&first(name, LONGEST_NAME), share)).collect()
}

fn picture(profile: &Profile) -> Picture {
    let title = format!("{} under {}", profile.service.name(), profile.load.name());
    let unit = format!(
        "{} samples over {} {}; a box is as wide as the share of samples that had it on the stack, callers below callees",
        profile.stacks.samples(),
        profile.units,
        profile.load.units()
    );
    let mut flame = Flame::new(title.clone(), unit).legend(LEGEND);
    for (stack, samples) in profile.stacks.iter() {
        flame.add(stack, samples, colour);
    }
    Picture {
        name: format!("flame-{}-{}", profile.service.name(), profile.load.name()),
        title,
        svg: flame.svg(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_table_and_a_picture_say_whose_time_it_was() {
        let mut stacks = Stacks::default();
        let stack = |frames: &[&str]| frames.iter().map(|frame| (*frame).to_owned()).collect::<Vec<_>>();
        stacks.add(stack(&["worker", "sallyport_server::serve", "rustls::read", "aws_lc_0_1_gcm"]), 30);
        stacks.add(stack(&["worker", "sallyport_server::serve", "memcpy"]), 10);
        stacks.add(stack(&["worker", CUT, "do_syscall_64_[k]"]), 60);
        let profile = Profile {
            service: Service::Proxy,
            load: Load::Cold,
            stacks,
            units: 10,
            spent: Duration::from_millis(200),
        };
        let rows = rows(&profile, 500);
        let row = |name: &str| rows.iter().find(|row| row.what == format!("proxy, cold: {name}")).unwrap();
        assert_eq!(row("kernel").figure("self %"), Some(60.0));
        assert_eq!(row("aws-lc").figure("self us"), Some(6000.0));
        assert_eq!(row("sallyport_server::serve").figure("with callees %"), Some(40.0));
        assert!(!rows.iter().any(|row| row.what.ends_with(": rustls")), "it was never running itself");
        assert_eq!(
            note(&profile, 500),
            "proxy, cold: 100 samples (60.0 % of their stacks cut), 10 connections, 20.00 ms of processor time each (20.00 \
             ms by the samples)"
        );
        let picture = picture(&profile);
        assert_eq!(picture.name, "flame-proxy-cold");
        assert!(picture.svg.contains("<title>aws_lc_0_1_gcm: 30.0 %, 30 samples</title>"), "{}", picture.svg);
        assert!(picture.svg.contains(">serve<") || picture.svg.contains(">sallyport_server::serve<"));
    }
}
