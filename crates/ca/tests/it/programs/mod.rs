//! Other people's programs. One that is not installed skips its test, with a word and a count.
#![allow(dead_code, clippy::unwrap_used, clippy::panic, clippy::print_stdout, unreachable_pub)]

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
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
    let go = ["go", "/usr/local/go/bin/go"].into_iter().find_map(|go| {
        let version = Command::new(go).arg("version").output().ok().filter(|output| output.status.success());
        version.map(|version| (go, version.stdout))
    });
    let Some((go, version)) = go else {
        println!("skipped: 1 (go is not installed)");
        return None;
    };
    let program = built(go, &version, source);
    run(program.to_str().unwrap(), arguments, directory)
}

/// The program of this source by this version of Go, which is kept for the next test.
fn built(go: &str, version: &[u8], source: &str) -> PathBuf {
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut hasher = DefaultHasher::new();
    (version, source).hash(&mut hasher);
    let program = kept.join(format!("go-program-{:016x}", hasher.finish()));
    if program.exists() {
        return program;
    }
    let directory = tempfile::tempdir_in(kept).unwrap();
    fs::write(directory.path().join("main.go"), source).unwrap();
    let output = Command::new(go)
        .args(["build", "-o", "program", "main.go"])
        .current_dir(directory.path())
        // No module, no download: the standard library is all there is.
        .envs([("GO111MODULE", "off"), ("GOFLAGS", ""), ("GOPROXY", "off"), ("CGO_ENABLED", "0")])
        .env("GOCACHE", kept.join("go"))
        .env("HOME", directory.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "go build: {}", String::from_utf8_lossy(&output.stderr));
    // It gets its name when it is whole.
    fs::rename(directory.path().join("program"), &program).unwrap();
    program
}
