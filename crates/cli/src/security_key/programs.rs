//! libfido2's programs, run. One that asks for a PIN does so at the terminal itself: no PIN comes by this process.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use sallyport_access::text::Foreign;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use super::error::{KeyError, failure};
use super::output::{self, ASSERT, About, Device, TOKEN};

/// How long a program may take that waits for no person. Some keys answer within seconds, a hung one never.
const ANSWER: Duration = Duration::from_secs(15);
/// How much of what a program prints is read. Sixteen answers have fewer than 20 KiB.
const MOST_PRINTED_BYTES: u64 = 256 * 1024;
/// How much of a program's complaint is shown.
const MOST_SAID: usize = 300;

/// What a program that asks a person came to.
#[derive(Debug)]
pub(super) enum Asked {
    /// It printed this.
    Answered(String),
    /// It failed, and said why.
    Failed(String),
    /// The person ended it by a signal, such as Ctrl-C.
    Ended(i32),
}

/// The terminal of this session, whose modes are as they were once this is dropped: a program that is ended while it asks for a PIN
/// leaves no terminal that echoes nothing.
#[derive(Debug)]
struct Terminal {
    terminal: File,
    before: Termios,
}

impl Terminal {
    fn open() -> Option<Self> {
        let terminal = File::options().read(true).write(true).open("/dev/tty").ok()?;
        let before = tcgetattr(&terminal).ok()?;
        Some(Self { terminal, before })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = tcsetattr(&self.terminal, OptionalActions::Now, &self.before);
    }
}

/// A program that ends with this, where it has not ended before.
#[derive(Debug)]
struct Running {
    child: Child,
    _terminal: Option<Terminal>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // None once it has ended, so that no other process is meant.
        if let Some(id) = self.child.id().and_then(|id| i32::try_from(id).ok()) {
            let _ = kill(Pid::from_raw(id), Signal::SIGTERM);
        }
    }
}

/// The signals by which a person ends a program. Any other is one that the program has died of, such as by a fault of its own.
fn is_of_person(signal: i32) -> bool {
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].iter().any(|one| *one as i32 == signal)
}

fn killed(program: &'static str, signal: i32) -> KeyError {
    KeyError::NotRun { program, why: format!("killed by signal {signal}") }
}

fn start(program: &'static str, arguments: &[&str]) -> Result<Child, KeyError> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => KeyError::NotInstalled { program },
        _ => KeyError::NotRun { program, why: error.to_string() },
    })
}

/// What a program has complained of, on one line, without its own name.
fn complaint(program: &str, stderr: &[u8]) -> String {
    let said = String::from_utf8_lossy(stderr);
    let said = said.trim();
    let said = said.strip_prefix(program).and_then(|said| said.strip_prefix(": ")).unwrap_or(said);
    Foreign::new(said.chars().take(MOST_SAID).collect::<String>()).into()
}

/// Runs fido2-token, which asks no person anything.
async fn token(arguments: &[&str], device: &str) -> Result<String, KeyError> {
    let asking = tokio::time::timeout(ANSWER, ended(TOKEN, arguments, "", None));
    let late = |_| KeyError::NotRun {
        program: TOKEN,
        why: format!("it does not end within {} s", ANSWER.as_secs()),
    };
    match asking.await.map_err(late)?? {
        Asked::Answered(said) => Ok(said),
        Asked::Failed(said) => Err(KeyError::of(TOKEN, device, "", failure(&said), &said)),
        Asked::Ended(signal) => Err(killed(TOKEN, signal)),
    }
}

/// The security keys that are plugged in, and that this account may use.
pub(super) async fn devices() -> Result<Vec<Device>, KeyError> {
    token(&["-L"], "").await.map(|said| output::devices(&said))
}

/// What a security key says of itself.
pub(super) async fn about(device: &str) -> Result<About, KeyError> {
    token(&["-I", device], device).await.map(|said| output::about(&said))
}

/// Runs fido2-assert, which asks a person: for a PIN at the terminal, for a touch at the key.
pub(super) async fn assert(arguments: &[&str], question: &str) -> Result<Asked, KeyError> {
    ended(ASSERT, arguments, question, Terminal::open()).await
}

/// Whether a program can ask for a PIN here.
pub(super) fn has_terminal() -> bool {
    Terminal::open().is_some()
}

/// Runs a program to its end. When the future is dropped before, the program is ended and the terminal is as it was.
async fn ended(
    program: &'static str,
    arguments: &[&str],
    question: &str,
    terminal: Option<Terminal>,
) -> Result<Asked, KeyError> {
    let mut running = Running { child: start(program, arguments)?, _terminal: terminal };
    let child = &mut running.child;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    if let Some(mut stdin) = stdin {
        // A program that has ended meanwhile says why.
        let _ = stdin.write_all(question.as_bytes()).await;
    }
    let not_run = |error: io::Error| KeyError::NotRun { program, why: error.to_string() };
    let (stdout, stderr, status) = tokio::join!(read(stdout), read(stderr), child.wait());
    let (stdout, stderr, status) =
        (stdout.map_err(not_run)?, stderr.map_err(not_run)?, status.map_err(not_run)?);
    Ok(match (status.success(), status.signal()) {
        (true, _) => Asked::Answered(String::from_utf8_lossy(&stdout).into_owned()),
        (false, Some(signal)) if is_of_person(signal) => Asked::Ended(signal),
        (false, Some(signal)) => return Err(killed(program, signal)),
        (false, None) => Asked::Failed(complaint(program, &stderr)),
    })
}

async fn read(pipe: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(MOST_PRINTED_BYTES).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn shell(script: &str) -> Result<Asked, KeyError> {
        ended("sh", &["-c", script], "", None).await
    }

    #[tokio::test]
    async fn a_program_that_dies_of_itself_is_not_taken_for_one_that_its_person_has_ended() {
        for signal in [1, 2, 15] {
            assert!(is_of_person(signal), "{signal}");
        }
        assert!(matches!(shell("kill -TERM $$").await, Ok(Asked::Ended(15))));
        for (name, signal) in [("ABRT", 6), ("KILL", 9), ("SEGV", 11)] {
            assert!(!is_of_person(signal), "{name}");
            let came_to = shell(&format!("ulimit -c 0; kill -{name} $$")).await;
            let died = KeyError::NotRun { program: "sh", why: format!("killed by signal {signal}") };
            assert_eq!(came_to.unwrap_err(), died);
        }
        assert!(matches!(shell("echo a; exit 0").await, Ok(Asked::Answered(said)) if said == "a\n"));
        assert!(matches!(shell("echo sh: b >&2; exit 134").await, Ok(Asked::Failed(said)) if said == "b"));
    }
}
