//! What docs/operations.md promises "under faults": full disks, cut wires, clocks that jump, and processes that are killed. No session
//! is wrongly let in, no event is lost without a word about it, and all goes on by itself.

use std::io::{BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::support::{Cluster, User, lines_of, me, read_until};

mod clocks;
mod disks;
mod kills;
mod partitions;

/// A session that echoes what is typed, by our own client.
struct Typist {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Typist {
    /// `prefix` is what the client's command begins with.
    fn of(user: &User, prefix: &[String]) -> Self {
        let own = user.command(&["ssh", "-T", &format!("{}@web-1", me()), "cat"]);
        let mut command = match prefix.split_first() {
            Some((program, rest)) => {
                let mut command = Command::new(program);
                command.args(rest).arg(own.get_program()).args(own.get_args());
                command
            }
            None => own,
        };
        let mut child = command
            .env("SALLYPORT_CONNECT", "off")
            .env_remove("SSH_AUTH_SOCK")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), lines_of(&mut child));
        let mut typist = Self { child, input, output };
        typist.types("here");
        typist
    }

    fn types(&mut self, word: &str) {
        self.sends(word);
        read_until(&mut self.output, word);
    }

    /// Types without waiting for the echo.
    fn sends(&mut self, word: &str) {
        self.input.write_all(format!("{word}\n").as_bytes()).unwrap();
    }

    fn is_over(&mut self) -> Option<std::process::ExitStatus> {
        self.child.try_wait().unwrap()
    }
}

impl Drop for Typist {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command on `web-1` with our own client.
fn runs(user: &User, command: &str) -> std::process::Output {
    let mut own = user.command(&["ssh", "-n", &format!("{}@web-1", me()), command]);
    own.env("SALLYPORT_CONNECT", "off").output().unwrap()
}

/// The events of one kind.
fn count(events: &[serde_json::Value], kind: &str) -> usize {
    events.iter().filter(|event| event["kind"] == kind).count()
}

/// A node whose sessions are recorded, and these users.
fn with_users<const N: usize>(cluster: &Cluster, names: [&str; N]) -> [User; N] {
    names.map(|name| cluster.add_user(name, "access", &me()))
}
