//! One test, in a process of its own.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use super::executables::Test;

/// Names the test in the environment of its process and of all that it starts.
const MARK: &str = "SALLYPORT_TEST_PROCESS";

/// Ticks of `/proc/PID/stat` in a second: Linux tells programs of 100, whatever the kernel's own are.
const TICKS_A_SECOND: f64 = 100.0;

/// How a test ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed(String),
}

/// A process that ended, with what it took.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Of each test, in their order.
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) took: Duration,
    /// Processor time of the process and of those of its children that it waited for, in seconds.
    pub(crate) processor_seconds: f64,
    /// Standard output and error, as they came.
    pub(crate) output: String,
}

/// Runs tests of one executable in one process to their end, or to their limit.
pub(crate) fn run(tests: &[Test], number: usize, room: &Path) -> Ended {
    let begin = Instant::now();
    let output = room.join(format!("output-{number}"));
    let limit = tests.iter().map(|test| test.rule.limit).max().unwrap_or_default();
    let (end, processor_seconds) = match start(tests, &output, number, room) {
        Ok(child) => wait(child, limit),
        Err(error) => (Err(format!("cannot be started: {error}")), 0.0),
    };
    let took = begin.elapsed();
    end_leftovers(&mark(number));
    let said = fs::read(&output).unwrap_or_default();
    let _ = fs::remove_file(&output);
    let said = String::from_utf8_lossy(&said).into_owned();
    Ended { outcomes: outcomes(tests, &end, &said), took, processor_seconds, output: said }
}

/// What became of each test, by the end of their process and by what the harness said.
fn outcomes(tests: &[Test], end: &Result<(), String>, said: &str) -> Vec<Outcome> {
    let summary = said.lines().rev().find(|line| line.starts_with("test result: "));
    let failed = failures(said);
    let of = |test: &Test| match (end, summary) {
        // An executable that knows no such test passes, with none run.
        (Ok(()), Some(line)) if line.contains(&format!(" {} passed", tests.len())) => Outcome::Passed,
        (Ok(()), _) => Outcome::Failed("it did not run".to_owned()),
        (Err(_), Some(_)) if !failed.is_empty() && !failed.contains(&test.name.as_str()) => Outcome::Passed,
        (Err(why), _) => Outcome::Failed(why.clone()),
    };
    tests.iter().map(of).collect()
}

/// The names under the last `failures:`.
fn failures(said: &str) -> Vec<&str> {
    let Some((_, list)) = said.rsplit_once("\nfailures:\n") else { return Vec::new() };
    list.lines().map_while(|line| line.strip_prefix("    ")).collect()
}

fn start(tests: &[Test], output: &Path, number: usize, room: &Path) -> io::Result<Child> {
    let first = tests.first().ok_or_else(|| io::Error::other("there is no test to run"))?;
    let file = File::create(output)?;
    let mut command = Command::new(&first.executable.path);
    command.arg("--exact").args(tests.iter().map(|test| &test.name));
    if tests.len() == 1 {
        command.arg("--nocapture");
    }
    if first.ignored {
        command.arg("--ignored");
    }
    command
        .current_dir(&first.executable.home)
        // As cargo gives them.
        .env("CARGO_MANIFEST_DIR", &first.executable.home)
        .env("CARGO_PKG_NAME", &first.executable.package)
        .envs(crate::setup::environment())
        .env("TMPDIR", room)
        .env(MARK, mark(number))
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()
}

/// Names one test of one run.
fn mark(number: usize) -> String {
    format!("{}-{number}", std::process::id())
}

fn wait(mut child: Child, limit: Duration) -> (Result<(), String>, f64) {
    let deadline = Instant::now() + limit;
    let pid = Pid::from_child(&child);
    let mut pause = Duration::from_millis(1);
    // The process stays a zombie until what it used has been read.
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    while matches!(rustix::process::waitid(WaitId::Pid(pid), options), Ok(None)) {
        if Instant::now() >= deadline {
            let _ = child.kill();
            let _ = child.wait();
            return (Err(format!("took longer than {} s", limit.as_secs())), 0.0);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    let used = processor_seconds(pid).unwrap_or_default();
    let end = match child.wait() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(status.to_string()),
        Err(error) => Err(format!("cannot be waited for: {error}")),
    };
    (end, used)
}

/// `utime`, `stime`, `cutime` and `cstime` of `/proc/PID/stat`, which is there until the process is waited for.
fn processor_seconds(pid: Pid) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name in parentheses may have spaces.
    let (_, rest) = stat.rsplit_once(')')?;
    let ticks = rest.split_whitespace().skip(11).take(4).filter_map(|word| word.parse::<f64>().ok());
    Some(ticks.sum::<f64>() / TICKS_A_SECOND)
}

/// Ends what a test has left running: it is known by the mark in its environment.
fn end_leftovers(mark: &str) {
    let wanted = format!("{MARK}={mark}");
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else {
            continue;
        };
        let Ok(environment) = fs::read(entry.path().join("environ")) else { continue };
        if environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes()) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::test::executables::Executable;
    use crate::test::table::Rule;

    fn test(name: &str) -> Test {
        let executable = Executable {
            package: "sallyport-x".to_owned(),
            target: "lib".to_owned(),
            path: PathBuf::from("/bin/sh"),
            home: Path::new("/").to_owned(),
            unit: true,
        };
        Test { executable, name: name.to_owned(), ignored: false, rule: Rule::default() }
    }

    #[test]
    fn each_test_of_a_process_has_its_own_outcome() {
        let tests = [test("a"), test("b")];
        let of = |end: Result<(), &str>, said: &str| outcomes(&tests, &end.map_err(str::to_owned), said);
        let good = "test a ... ok\ntest b ... ok\n\ntest result: ok. 2 passed; 0 failed; 0 ignored\n";
        assert_eq!(of(Ok(()), good), [Outcome::Passed, Outcome::Passed]);
        let bad = "failures:\n\n---- b stdout ----\nfailures:\n\n\nfailures:\n    b\n\ntest result: FAILED. 1 passed; 1 failed\n";
        let why = Outcome::Failed("exit status: 101".to_owned());
        assert_eq!(of(Err("exit status: 101"), &format!("\n{bad}")), [Outcome::Passed, why.clone()]);
        // One that aborts takes all with it, and one that ran nothing has not passed.
        assert_eq!(of(Err("exit status: 101"), "test a ... ok\n"), [why.clone(), why]);
        assert!(matches!(of(Ok(()), "test result: ok. 0 passed")[0], Outcome::Failed(_)));
    }
}
