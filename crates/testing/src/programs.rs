//! How other programs are run, and what they are given.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::error::{AtFile, TestbedError};

/// Runs something to its end and gives what it wrote.
pub fn output(what: &str, command: &mut Command) -> Result<String, TestbedError> {
    with_input(what, command, None)
}

/// The same, with something on its standard input.
pub fn with_input(what: &str, command: &mut Command, input: Option<&str>) -> Result<String, TestbedError> {
    let failed = |said: String| TestbedError::Failed { what: what.to_owned(), said };
    command
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|source| missing(command, source))?;
    if let (Some(input), Some(mut stdin)) = (input, child.stdin.take()) {
        // Who fails early does not read its input; the status tells.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The error of a program that cannot be run.
#[must_use]
pub fn missing(command: &Command, source: std::io::Error) -> TestbedError {
    TestbedError::Missing {
        program: command.get_program().to_string_lossy().into_owned(),
        source,
        hint: match command.get_program().to_str() {
            Some("ssh" | "scp") => {
                "the lab measures against OpenSSH: install openssh-client and openssh-server"
            }
            _ => "the lab starts it",
        },
    }
}

/// Writes a file that only its owner reads.
///
/// # Errors
/// When it cannot be written.
pub fn write_private(path: &Path, text: &str) -> Result<(), TestbedError> {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .at("write", path)?;
    file.write_all(text.as_bytes()).at("write", path)
}
