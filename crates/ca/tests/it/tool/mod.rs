//! Other people's tools.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Output of a command, or nothing when it is not installed.
pub fn run(program: &str, arguments: &[&str], directory: &Path) -> Option<(bool, String)> {
    let output =
        match Command::new(program).args(arguments).current_dir(directory).stdin(Stdio::null()).output() {
            Ok(output) => output,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                println!("skipped: {program} is not installed");
                return None;
            }
            Err(error) => panic!("{program}: {error}"),
        };
    let text = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8(text).unwrap()))
}

pub fn write_secret(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}
