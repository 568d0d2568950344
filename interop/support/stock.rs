//! Stock programs, and what they write.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use super::{CLUSTER, me};

/// Stock `ssh`; nothing of the machine's own configuration takes part.
pub fn ssh(config: &Path, arguments: &[&str]) -> Output {
    ssh_command(config).args(arguments).output().expect("run ssh")
}

pub fn ssh_command(config: &Path) -> Command {
    let mut command = Command::new("ssh");
    command
        .arg("-F")
        .arg(config)
        .args(["-o", "BatchMode=yes"])
        .env_remove("SSH_AUTH_SOCK")
        .stdin(Stdio::null());
    command
}

/// `LOGIN@web-1.CLUSTER`.
pub fn target(node: &str) -> String {
    format!("{}@{node}.{CLUSTER}", me())
}

/// Reads lines of a child's output until one contains `text`.
pub fn read_until(reader: &mut impl BufRead, text: &str) {
    let mut line = String::new();
    loop {
        line.clear();
        let read = reader.read_line(&mut line).expect("read the child's output");
        assert!(read > 0, "the output ended before {text:?}");
        if line.contains(text) {
            return;
        }
    }
}

/// Reads on, so that a session never waits for its reader.
pub fn drain(mut lines: BufReader<std::process::ChildStdout>) {
    std::thread::spawn(move || while lines.read_line(&mut String::new()).is_ok_and(|read| read > 0) {});
}

/// A command under way, with its output line by line.
pub fn under_way(command: &mut Command) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a command starts");
    let lines = lines_of(&mut child);
    (child, lines)
}

/// The output of a child, line by line.
pub fn lines_of(child: &mut Child) -> BufReader<std::process::ChildStdout> {
    BufReader::new(child.stdout.take().expect("a piped stdout"))
}
