//! What keeps the cluster busy while it is looked at.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sallyport_bench::Talk;
use sallyport_testing::postgres::Postgres;
use sallyport_testing::{SshRoute, Testbed};

use crate::LabError;
use crate::bulk::{self, Data};

/// A kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// New connections of the cluster's own client, each from nothing: `sallyport ssh HOST true` without a helper.
    Cold,
    /// The same by the helper daemon, which holds a connection to the proxy and tickets of the node.
    Warm,
    /// New connections of stock `ssh -J` through the proxy's SSH face.
    Legacy,
    /// Downloads by the cluster's own client, `cat FILE`.
    Download,
    /// Uploads by the cluster's own client, into `cat > /dev/null`.
    Upload,
    /// New connections to PostgreSQL by `sallyport db connect`, with the helper daemon.
    Database,
    /// `COPY` out of PostgreSQL on one connection after the other.
    Copy,
}

/// All of them.
pub const LOADS: [Load; 7] =
    [Load::Cold, Load::Warm, Load::Legacy, Load::Download, Load::Upload, Load::Database, Load::Copy];

impl Load {
    /// Its name, on the command line and in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Warm => "warm",
            Self::Legacy => "legacy",
            Self::Download => "download",
            Self::Upload => "upload",
            Self::Database => "database",
            Self::Copy => "copy",
        }
    }

    /// What its work is counted in.
    pub(super) fn units(self) -> &'static str {
        if self.moves_bytes() { "MiB" } else { "connections" }
    }

    pub(super) fn needs_database(self) -> bool {
        matches!(self, Self::Database | Self::Copy)
    }

    fn moves_bytes(self) -> bool {
        matches!(self, Self::Download | Self::Upload | Self::Copy)
    }
}

/// What the work is done with.
#[derive(Debug)]
pub(super) struct Bench<'a> {
    pub(super) testbed: &'a Testbed,
    pub(super) postgres: Option<&'a Postgres>,
    /// MiB of one transfer.
    pub(super) size: u64,
    /// At a time.
    pub(super) workers: usize,
    file: PathBuf,
}

impl<'a> Bench<'a> {
    pub(super) fn prepare(
        testbed: &'a Testbed,
        postgres: Option<&'a Postgres>,
        size: u64,
        workers: usize,
    ) -> Result<Self, LabError> {
        let file = testbed.directory().join("data");
        bulk::fill(&file, size << 20, Data::Mixed)?;
        Ok(Self { testbed, postgres, size, workers, file })
    }

    /// Does so for this long, or until it is told to stop. Gives how many units were done.
    ///
    /// # Errors
    /// The first that fails ends all.
    pub(super) fn press(&self, load: Load, time: Duration, talk: &Talk) -> Result<u64, LabError> {
        let until = Instant::now() + time;
        let (done, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let failure: Mutex<Option<LabError>> = Mutex::new(None);
        std::thread::scope(|scope| {
            for _ in 0..self.workers.max(1) {
                scope.spawn(|| {
                    while Instant::now() < until && !talk.stopping() && !over.load(Ordering::Relaxed) {
                        match self.once(load) {
                            Ok(()) => {
                                done.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(error) => {
                                over.store(true, Ordering::Relaxed);
                                let mut failure = failure.lock();
                                failure.get_or_insert(error);
                            }
                        }
                    }
                });
            }
        });
        if let Some(error) = failure.into_inner() {
            return Err(error);
        }
        let done = done.into_inner();
        Ok(if load.moves_bytes() { done * self.size } else { done })
    }

    /// One connection, or one transfer.
    pub(super) fn once(&self, load: Load) -> Result<(), LabError> {
        let failed = |said: String| LabError::Failed { what: format!("the load {}", load.name()), said };
        let mut command = self.command(load)?;
        let input = match load {
            Load::Upload => Stdio::from(File::open(&self.file).map_err(|error| failed(error.to_string()))?),
            _ => Stdio::null(),
        };
        command.stdin(input).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|source| sallyport_testing::missing(&command, source))?;
        let output = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        Err(failed(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())))
    }

    fn command(&self, load: Load) -> Result<Command, LabError> {
        let with = |mut command: Command, remote: &str| {
            command.arg(remote);
            command
        };
        let cat = |file: &Path| format!("cat {}", file.display());
        Ok(match load {
            Load::Cold => with(self.testbed.own_ssh(false), "true"),
            Load::Warm => with(self.testbed.own_ssh(true), "true"),
            Load::Legacy => with(self.testbed.ssh(SshRoute::Jump), "true"),
            Load::Download => with(self.testbed.own_ssh(true), &cat(&self.file)),
            Load::Upload => with(self.testbed.own_ssh(true), "cat > /dev/null"),
            Load::Database | Load::Copy => {
                let postgres = self.postgres.ok_or_else(|| LabError::Failed {
                    what: "connecting to a database".to_owned(),
                    said: "none was started".to_owned(),
                })?;
                let rows = self.size << 10;
                let copy = format!(
                    "copy (select repeat('0123456789abcdef', 64) from generate_series(1, {rows})) to stdout"
                );
                let statement = if load == Load::Copy { copy.as_str() } else { "select 1" };
                self.testbed.psql(postgres, true, &["-XAtqc", statement])
            }
        })
    }
}
