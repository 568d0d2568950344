//! The second command of the README: everything that the tests need, then all of them.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::metadata::cargo;
use crate::setup;

/// What the test binaries counted, together.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
    ignored: u64,
}

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let begin = Instant::now();
    setup::run()?;
    let plain = may_hide_startup_files();
    if !plain {
        println!("sessions of these tests run your shell's start-up files: slow or talking ones fail tests");
    }
    let mut counts = Counts::default();
    let mut passed = cargo_test(&["--workspace", "--no-fail-fast"], arguments, plain, &mut counts)?;
    // What the default build leaves out, unless somebody wants certain tests only. The whole workspace again, so that
    // everything but one crate is what has just been built.
    if arguments.iter().all(|argument| argument.starts_with("--") && argument != "--") {
        passed &= cargo_test(&WITH_PAM, arguments, plain, &mut counts)?;
    }
    println!("\nall tests took {} s", begin.elapsed().as_secs());
    println!("{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.ignored);
    if !passed {
        return Err("tests failed".to_owned());
    }
    if counts.passed == 0 && arguments.is_empty() {
        return Err("no test was run".to_owned());
    }
    Ok(())
}

/// The tests of the feature `pam`, which links libpam.
const WITH_PAM: [&str; 5] = ["--workspace", "--features", "sallyport-ssh/pam", "--test", "pam"];

/// Runs cargo's tests, counts them, and says whether all is well.
fn cargo_test(what: &[&str], arguments: &[String], plain: bool, counts: &mut Counts) -> Result<bool, String> {
    let mut command = if plain { hiding_startup_files(cargo()) } else { Command::new(cargo()) };
    let mut child = command
        .arg("test")
        .args(what)
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot run cargo test: {error}"))?;
    let output = child.stdout.take().ok_or("cargo test has no output")?;
    for line in BufReader::new(output).lines() {
        let line = line.map_err(|error| format!("reading the tests' output: {error}"))?;
        counts.add(&line);
        println!("{line}");
    }
    let status = child.wait().map_err(|error| format!("waiting for cargo test: {error}"))?;
    Ok(status.success())
}

/// Mounts nothing over each of the account's start-up files that is there, then runs its arguments.
const HIDE: &str = r#"
for name in .bashrc .profile .bash_profile .bash_login .zshenv .zprofile .zshrc .ssh/rc .ssh/environment; do
    if [ -f "$HOME/$name" ]; then mount --bind /dev/null "$HOME/$name" || exit 1; fi
done
exec "$@"
"#;

/// The program, in a mount namespace of its own where the account's shells have no start-up files.
///
/// Sessions of the tests run as the account that runs the tests. What its files print, how long they take and which
/// locks they wait for is not what is tested, and a shell that a test kills must not leave such a lock behind.
fn hiding_startup_files(program: impl Into<OsString>) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", HIDE, "sh"]).arg(program.into());
    command
}

/// Whether this account may make mount namespaces: root may, outside of most containers.
fn may_hide_startup_files() -> bool {
    hiding_startup_files("true")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

impl Counts {
    /// Takes in a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    fn add(&mut self, line: &str) {
        let Some(rest) = line.strip_prefix("test result: ") else { return };
        for part in rest.split([';', '.']) {
            let mut words = part.split_whitespace();
            let (Some(number), Some(what)) = (words.next(), words.next()) else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn startup_files_are_hidden_or_nothing_is_run() {
        let shown = hiding_startup_files("sh").args(["-c", "cat \"$HOME/.bashrc\"; true"]).output().unwrap();
        assert_eq!(shown.stdout, b"");
        assert_eq!(shown.status.success(), may_hide_startup_files());
    }

    #[test]
    fn results_add_up() {
        let mut counts = Counts::default();
        counts.add(
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s",
        );
        counts.add(
            "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 7 filtered out; finished in 1s",
        );
        counts.add("running 3 tests");
        assert_eq!(counts, Counts { passed: 5, failed: 1, ignored: 1 });
    }
}
