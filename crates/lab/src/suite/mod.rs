//! `lab report`: several measurements in one directory, with a page, pictures, raw data, and what the machine was.
//!
//! After every measurement the page is written anew: who breaks it off keeps what there is.

mod directory;
pub mod published;
mod versions;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use directory::Directory;
use sallyport_bench::Talk;
use sallyport_bench::machine::Sampler;
use sallyport_bench::report::Report;

use crate::{LabError, browser, handshake, keys, load, sessions};

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// A glance: under two minutes with the default choice.
    Quick,
    /// As much as it takes for figures to rely on.
    Full,
}

/// One measurement of the set.
#[derive(Clone, Copy)]
pub struct Part {
    /// Its name, which is that of its command.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// Seconds that it takes on a machine of two cores, quick and full: what progress goes by.
    seconds: [f64; 2],
    /// What to type for it alone, where it is not its name with `--quick` and `--csv`.
    alone: Option<&'static str>,
    /// Whether the quick set has it.
    quick: bool,
    run: fn(&Run<'_>) -> Result<Report, LabError>,
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// What a measurement gets.
struct Run<'a> {
    program: &'a Path,
    dial: &'a Dialler,
    quick: bool,
    csv: PathBuf,
    talk: Talk,
}

impl Run<'_> {
    fn csv(&self) -> Option<PathBuf> {
        Some(self.csv.clone())
    }
}

/// Gives what makes connections for whoever is logged in ([`crate::sessions::run`]).
pub type Dialler = dyn Fn(sessions::Login) -> Result<Arc<dyn sessions::Dial>, LabError>;

/// Every measurement, in the order in which they are made.
pub const PARTS: &[Part] = &[
    Part {
        name: "strength",
        title: "Strength",
        seconds: [0.1, 0.1],
        alone: Some("1024 2048 3072 4096"),
        quick: true,
        run: |run| crate::strength::run(&run.talk),
    },
    Part {
        name: "keys",
        title: "Signing and verifying",
        seconds: [7.0, 60.0],
        alone: None,
        quick: true,
        run: |run| {
            let usual = if run.quick { keys::Settings::quick() } else { keys::Settings::full() };
            keys::run(&keys::Settings { csv: run.csv(), ..usual }, &run.talk)
        },
    },
    Part {
        name: "handshake",
        title: "Handshakes",
        seconds: [16.0, 300.0],
        alone: None,
        quick: true,
        run: |run| {
            let usual = if run.quick { handshake::Settings::quick() } else { handshake::Settings::full() };
            handshake::run(&handshake::Settings { csv: run.csv(), ..usual }, &run.talk)
        },
    },
    Part {
        name: "load",
        title: "Requests by certificate",
        seconds: [43.0, 400.0],
        alone: None,
        quick: true,
        run: |run| {
            let usual = if run.quick { load::Settings::quick() } else { load::Settings::full() };
            load::run(run.program, &load::Settings { csv: run.csv(), ..usual }, &run.talk)
        },
    },
    Part {
        name: "browser",
        title: "What a browser sees",
        seconds: [34.0, 160.0],
        alone: None,
        quick: true,
        run: |run| {
            let usual = if run.quick { browser::Settings::quick() } else { browser::Settings::full() };
            browser::run(&browser::Settings { csv: run.csv(), ..usual }, &run.talk)
        },
    },
    Part {
        name: "connect",
        title: "SSH connections through a cluster",
        seconds: [45.0, 300.0],
        alone: None,
        quick: false,
        run: |run| {
            let settings =
                crate::connect::Settings { csv: run.csv(), ..crate::connect::Settings::of(run.quick) };
            crate::connect::run(run.program, &settings, &run.talk)
        },
    },
    Part {
        name: "bulk",
        title: "Bulk data through a cluster",
        seconds: [60.0, 600.0],
        alone: None,
        quick: false,
        run: |run| {
            let settings = crate::bulk::Settings { csv: run.csv(), ..crate::bulk::Settings::of(run.quick) };
            crate::bulk::run(run.program, &settings, &run.talk)
        },
    },
    Part {
        name: "sessions",
        title: "Memory of sessions, and keystrokes",
        seconds: [60.0, 400.0],
        alone: None,
        quick: false,
        run: |run| {
            let settings =
                crate::sessions::Settings { csv: run.csv(), ..crate::sessions::Settings::of(run.quick) };
            crate::sessions::run(run.program, &settings, &run.talk, run.dial)
        },
    },
    Part {
        name: "db-suite",
        title: "Connections to PostgreSQL",
        seconds: [60.0, 900.0],
        alone: None,
        quick: false,
        run: |run| {
            let settings =
                crate::databases::Settings { csv: run.csv(), ..crate::databases::Settings::of(run.quick) };
            crate::databases::run(run.program, &settings, &run.talk)
        },
    },
];

/// The part of a name.
///
/// # Errors
/// [`LabError::Input`] with the names that there are.
pub fn part(name: &str) -> Result<&'static Part, LabError> {
    PARTS.iter().find(|part| part.name == name).ok_or_else(|| {
        let names: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
        LabError::Input(format!("there is no measurement {name:?}; a report can have {}", names.join(", ")))
    })
}

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where everything goes. It is made; when it is there, it must be empty or hold an earlier report.
    pub directory: PathBuf,
    /// How much.
    pub effort: Effort,
    /// Which measurements; empty for the set of the effort.
    pub only: Vec<&'static Part>,
    /// The command line, for the report.
    pub command: String,
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Summary {
    /// The page.
    pub page: PathBuf,
    /// The measurements that were made.
    pub reports: Vec<Report>,
    /// Those that could not be made, and why.
    pub failed: Vec<(&'static str, String)>,
    /// How long everything took, in seconds.
    pub seconds: f64,
    /// Whether somebody broke it off.
    pub interrupted: bool,
}

/// Makes the measurements, one after the other. One that cannot be made (a program is missing, say) leaves a sentence in
/// the report, and the others go on.
///
/// # Errors
/// When the directory cannot be used or written.
pub fn run(program: &Path, settings: &Settings, talk: &Talk, dial: &Dialler) -> Result<Summary, LabError> {
    let began = Instant::now();
    let directory = Directory::prepare(&settings.directory)?;
    let parts: Vec<&Part> = if settings.only.is_empty() {
        PARTS.iter().filter(|part| part.quick || settings.effort == Effort::Full).collect()
    } else {
        PARTS.iter().filter(|part| settings.only.iter().any(|only| only.name == part.name)).collect()
    };
    let weight = |part: &Part| part.seconds.get(usize::from(settings.effort == Effort::Full)).copied();
    let all: f64 = parts.iter().filter_map(|part| weight(part)).sum();
    let sampler = Sampler::begin();
    let mut summary = Summary {
        page: directory.file("report.html"),
        reports: Vec::new(),
        failed: Vec::new(),
        seconds: 0.0,
        interrupted: false,
    };
    let mut done = 0.0;
    for part in &parts {
        if talk.stopping() {
            break;
        }
        let share = weight(part).unwrap_or_default();
        let its_talk = talk.part(done / all, (done + share) / all);
        done += share;
        its_talk.progress(0, 1, part.title);
        let csv = directory.file(&format!("{}.csv", part.name));
        let quick = settings.effort == Effort::Quick;
        match (part.run)(&Run { program, dial, quick, csv, talk: its_talk }) {
            Ok(report) => summary.reports.push(report),
            Err(error) => {
                talk.say(format!("{} is left out: {error}", part.name));
                summary.failed.push((part.name, error.to_string()));
            }
        }
        summary.seconds = began.elapsed().as_secs_f64();
        summary.interrupted = talk.stopping();
        directory.write(settings, &parts, &summary, &[])?;
    }
    summary.seconds = began.elapsed().as_secs_f64();
    summary.interrupted = talk.stopping();
    directory.write(settings, &parts, &summary, &sampler.finish())?;
    Ok(summary)
}
