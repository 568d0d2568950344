//! Other people's programs. One that is not installed skips its test, with a word and a count.
#![allow(dead_code, clippy::unwrap_used, clippy::panic, clippy::print_stdout, unreachable_pub)]

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};

/// Output of a command, or nothing when it is not installed.
pub fn run(program: &str, arguments: &[&str], directory: &Path) -> Option<(bool, String)> {
    let output =
        match Command::new(program).args(arguments).current_dir(directory).stdin(Stdio::null()).output() {
            Ok(output) => output,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                println!("skipped: 1 ({program} is not installed)");
                return None;
            }
            Err(error) => panic!("{program}: {error}"),
        };
    let text = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
}

/// Runs a Go program of one file, made from the standard library alone; nothing when there is no Go.
pub fn go(source: &str, arguments: &[&str], directory: &Path) -> Option<(bool, String)> {
    let go = ["go", "/usr/local/go/bin/go"]
        .into_iter()
        .find(|go| Command::new(go).arg("version").output().is_ok_and(|output| output.status.success()));
    let Some(go) = go else {
        println!("skipped: 1 (go is not installed)");
        return None;
    };
    fs::write(directory.join("main.go"), source).unwrap();
    let output = Command::new(go)
        .args(["run", "main.go"])
        .args(arguments)
        .current_dir(directory)
        // No module, no download: the standard library is all there is.
        .envs([("GO111MODULE", "off"), ("GOFLAGS", ""), ("GOPROXY", "off"), ("CGO_ENABLED", "0")])
        .env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go"))
        .env("HOME", directory)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
}
