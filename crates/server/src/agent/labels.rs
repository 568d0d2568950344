//! The labels of this machine: written in the configuration, printed by commands, and seen of the host.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::tasks::Tasks;
use sallyport_access::Labels;
use sallyport_access::labels::{HOST_PREFIX, check};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::backoff::chance;
use crate::config::LabelCommand;
use crate::files;

/// Read of a command's output, and of its complaints.
const MOST_OUTPUT_BYTES: usize = 64 * 1024;
/// Of that, a label gets so much.
const LONGEST_VALUE_CHARACTERS: usize = 256;
/// Runs of one command are apart by its period, give or take this share, so that a fleet does not run them at once.
const JITTER: f64 = 0.1;

/// The labels as they are now.
#[derive(Debug)]
pub(crate) struct OwnLabels {
    fixed: Labels,
    /// By name, the last value of each command.
    values: watch::Sender<BTreeMap<String, String>>,
    /// Keeps the values over a restart.
    path: PathBuf,
}

/// Labels of the host itself.
fn host() -> impl Iterator<Item = (String, String)> {
    let system = rustix::system::uname();
    let facts = [
        ("os", std::env::consts::OS.to_owned()),
        ("arch", system.machine().to_string_lossy().into_owned()),
        ("kernel", system.release().to_string_lossy().into_owned()),
        ("hostname", system.nodename().to_string_lossy().into_owned()),
    ];
    facts.into_iter().map(|(key, value)| (format!("{HOST_PREFIX}{key}"), tidy(&value)))
}

/// One line that can be shown: runs of white space and of what cannot be shown become one space.
fn tidy(text: &str) -> String {
    let mut line = String::new();
    for c in text.chars() {
        let shown = !c.is_whitespace() && check("-", c.encode_utf8(&mut [0; 4])).is_ok();
        if shown {
            line.push(c);
        } else if !line.ends_with(' ') {
            line.push(' ');
        }
    }
    let line = line.trim();
    let end = line.char_indices().nth(LONGEST_VALUE_CHARACTERS).map_or(line.len(), |(end, _)| end);
    line.get(..end).unwrap_or_default().trim_end().to_owned()
}

impl OwnLabels {
    /// Begins to run the commands. Values of earlier runs count until newer ones are there.
    pub(crate) fn start(
        fixed: Labels,
        commands: Vec<LabelCommand>,
        directory: &Path,
        tasks: &Tasks,
        stop: &CancellationToken,
    ) -> Arc<Self> {
        let path = directory.join("labels.json");
        let mut values: BTreeMap<String, String> = match files::read_private(&path) {
            Ok(Some(bytes)) => serde_json::from_slice(&bytes).unwrap_or_default(),
            _ => BTreeMap::new(),
        };
        values.retain(|name, value| {
            commands.iter().any(|command| command.name == *name) && check(name, value).is_ok()
        });
        let labels = Arc::new(Self { fixed, values: watch::channel(values).0, path });
        for command in commands {
            let (labels, stop) = (Arc::clone(&labels), stop.clone());
            tasks.spawn(async move {
                tokio::select! {
                    () = labels.repeat(&command) => {}
                    () = stop.cancelled() => {}
                }
            });
        }
        labels
    }

    /// Everything, as it is now.
    pub(crate) fn now(&self) -> BTreeMap<String, String> {
        let mut labels = self.values.borrow().clone();
        labels.extend(BTreeMap::from(self.fixed.clone()));
        labels.extend(host());
        labels
    }

    /// Wakes when a command gave another value.
    pub(crate) fn changes(&self) -> watch::Receiver<BTreeMap<String, String>> {
        self.values.subscribe()
    }

    async fn repeat(&self, command: &LabelCommand) {
        let mut told = String::new();
        loop {
            match output(command).await {
                Ok(value) => {
                    if !told.is_empty() {
                        info!(label = command.name, "the label's command works again");
                        told.clear();
                    }
                    self.set(&command.name, value);
                }
                Err(problem) => {
                    let problem = problem.to_string();
                    // The same trouble every minute is told once.
                    if problem != told {
                        warn!(
                            label = command.name,
                            problem, "the label's command failed; its last value stays"
                        );
                        told = problem;
                    }
                }
            }
            let spread = 1.0 - JITTER + 2.0 * JITTER * chance();
            tokio::time::sleep(command.period.mul_f64(spread)).await;
        }
    }

    fn set(&self, name: &str, value: String) {
        let changed = self.values.send_if_modified(|values| {
            values.insert(name.to_owned(), value.clone()).is_none_or(|before| before != value)
        });
        if changed {
            let json = serde_json::to_vec(&*self.values.borrow()).unwrap_or_default();
            if let Err(error) = files::write_private(&self.path, &json) {
                warn!(%error, "the labels of commands are not kept over a restart");
            }
        }
    }
}

/// Why the command of a label gave no value.
#[derive(Debug, thiserror::Error)]
enum NoValue {
    #[error("names no program")]
    NoProgram,
    #[error("{program} cannot be run: {source}")]
    NotRun { program: String, source: io::Error },
    #[error("did not end within {0:?}")]
    Late(Duration),
    #[error(transparent)]
    Wait(#[from] io::Error),
    /// With the beginning of what it complained of.
    #[error("{}", tidy(&format!("{status}: {complaint}")))]
    Failed { status: ExitStatus, complaint: String },
    #[error("printed nothing")]
    Empty,
}

/// Runs a command once; gives its output as a label's value.
async fn output(label: &LabelCommand) -> Result<String, NoValue> {
    let Some((program, arguments)) = label.command.split_first() else {
        return Err(NoValue::NoProgram);
    };
    let mut child = Command::new(program)
        .args(arguments)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Processes that the command starts are ended with it.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| NoValue::NotRun { program: program.clone(), source })?;
    let group = child.id();
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let run = async {
        let (out, err) = tokio::join!(bounded(out), bounded(err));
        (child.wait().await, out, err)
    };
    let Ok((status, out, err)) = tokio::time::timeout(label.timeout, run).await else {
        // It was not waited for yet, so the number is still its own.
        let group = group.and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
        if let Some(group) = group {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = tokio::time::timeout(Duration::from_secs(1), child.wait()).await;
        return Err(NoValue::Late(label.timeout));
    };
    let status = status?;
    if !status.success() {
        return Err(NoValue::Failed { status, complaint: String::from_utf8_lossy(&err).into_owned() });
    }
    match tidy(&String::from_utf8_lossy(&out)) {
        value if value.is_empty() => Err(NoValue::Empty),
        value => Ok(value),
    }
}

/// The beginning of what comes; the rest is read, so that the command can end, and forgotten.
async fn bounded(stream: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let Some(mut stream) = stream else { return Vec::new() };
    let mut kept = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut chunk).await {
        let room = MOST_OUTPUT_BYTES.saturating_sub(kept.len()).min(count);
        kept.extend_from_slice(chunk.get(..room).unwrap_or_default());
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(script: &str, timeout: Duration) -> LabelCommand {
        LabelCommand {
            name: "x".to_owned(),
            command: ["sh", "-c", script].map(str::to_owned).to_vec(),
            period: Duration::from_millis(20),
            timeout,
        }
    }

    #[tokio::test]
    async fn output_becomes_one_bounded_line() {
        let run = async |script: &str| output(&command(script, Duration::from_secs(10))).await;
        let problem = async |script: &str| run(script).await.unwrap_err().to_string();
        assert_eq!(run("echo '  a  b'; echo c").await.unwrap(), "a b c");
        assert_eq!(run("printf '\\033[31mred\\377'").await.unwrap(), "[31mred\u{fffd}");
        assert_eq!(run("yes | head -c 1000000").await.unwrap().chars().count(), 255);
        assert_eq!(problem("exit 3").await, "exit status: 3:");
        assert!(problem("echo why >&2; false").await.ends_with("why"));
        assert_eq!(problem("true").await, "printed nothing");
        assert!(run("pwd").await.unwrap() == "/");
        let missing = LabelCommand { command: vec!["/no/such".to_owned()], ..command("", Duration::ZERO) };
        assert!(output(&missing).await.unwrap_err().to_string().contains("/no/such cannot be run"));
    }

    #[tokio::test]
    async fn a_command_that_does_not_end_is_killed_with_what_it_started() {
        let directory = tempfile::tempdir().unwrap();
        let pid = directory.path().join("pid");
        let script = format!("sleep 100 & echo $! > {}; wait", pid.display());
        let problem = output(&command(&script, Duration::from_millis(500))).await.unwrap_err();
        assert_eq!(problem.to_string(), "did not end within 500ms");
        let child = std::fs::read_to_string(pid).unwrap();
        let stat = format!("/proc/{}/stat", child.trim());
        let gone = || std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        while !gone() {
            assert!(tokio::time::Instant::now() < deadline, "the child of the command still runs");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn failures_keep_the_last_value_over_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let value = directory.path().join("value");
        let (tasks, stop) = (Tasks::new(), CancellationToken::new());
        let fixed: Labels = [("env", "prod")].into_iter().collect();
        let runs = directory.path().join("runs");
        let script = format!("echo >> {}; cat {}", runs.display(), value.display());
        let start = |tasks: &Tasks, stop: &CancellationToken| {
            let command = command(&script, Duration::from_secs(10));
            OwnLabels::start(fixed.clone(), vec![command], directory.path(), tasks, stop)
        };
        let labels = start(&tasks, &stop);
        let until = async |wanted: &str| {
            let mut changes = labels.changes();
            let is = |values: &BTreeMap<String, String>| values.get("x").map(String::as_str) == Some(wanted);
            let changed = tokio::time::timeout(Duration::from_secs(20), changes.wait_for(is)).await;
            assert!(changed.is_ok(), "{wanted}");
        };
        std::fs::write(&value, "one").unwrap();
        until("one").await;
        std::fs::write(&value, "two").unwrap();
        until("two").await;
        std::fs::remove_file(&value).unwrap();
        // The next run may have begun before; the one after it begins when its failure is known.
        let count = || std::fs::read(&runs).unwrap_or_default().len();
        let (before, deadline) = (count(), tokio::time::Instant::now() + Duration::from_secs(20));
        while count() < before + 3 {
            assert!(tokio::time::Instant::now() < deadline, "it is not asked any more");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let now = labels.now();
        assert_eq!(
            (now["x"].as_str(), now["env"].as_str(), now["host/os"].as_str()),
            ("two", "prod", "linux")
        );
        assert!(!now["host/kernel"].is_empty() && !now["host/arch"].is_empty());
        stop.cancel();
        let again = start(&Tasks::new(), &CancellationToken::new());
        assert_eq!(again.now()["x"], "two");
    }
}
