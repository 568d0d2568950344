//! The measurements that a report can have.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sallyport_bench::Talk;
use sallyport_bench::report::Report;

use crate::{LabError, browser, handshake, keys, load, sessions};

/// One measurement of the set.
#[derive(Clone, Copy)]
pub struct Part {
    /// Its name, which is that of its command.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// Seconds that it takes on a machine of two cores, quick and full: what progress goes by.
    pub(super) seconds: [f64; 2],
    /// What to type for it alone, where it is not its name with `--quick` and `--csv`.
    pub(super) alone: Option<&'static str>,
    /// Whether the quick set has it.
    pub(super) quick: bool,
    pub(super) run: fn(&Run<'_>) -> Result<Report, LabError>,
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// What a measurement gets.
pub(super) struct Run<'a> {
    pub(super) program: &'a Path,
    pub(super) dial: &'a Dialler,
    pub(super) quick: bool,
    pub(super) csv: PathBuf,
    pub(super) talk: Talk,
}

impl Run<'_> {
    fn csv(&self) -> Option<PathBuf> {
        Some(self.csv.clone())
    }
}

/// Gives what makes connections as the user who is logged in ([`crate::sessions::run`]).
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
