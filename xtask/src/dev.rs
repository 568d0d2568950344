//! `cargo xtask dev`: a cluster to try things on by hand, built from what is checked out.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::metadata::cargo;

/// What the services log, unless the caller says otherwise.
const LOG: &str = "info";

/// Builds `sallyport` and runs its tour's cluster, with a user, a node and, where PostgreSQL is there, a database, until
/// Ctrl-C.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let status = cargo()
        .args(["build", "--quiet", "--package", "sallyport-cli", "--bin", "sallyport"])
        .status()
        .map_err(|error| format!("cannot run cargo build: {error}"))?;
    if !status.success() {
        return Err("sallyport does not build".to_owned());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let target = std::path::absolute(&target).map_err(|error| format!("{}: {error}", target.display()))?;
    let place = target.join("dev");
    fs::create_dir_all(&place).map_err(|error| format!("cannot make {}: {error}", place.display()))?;
    let path = place.join("log");
    let log = File::create(&path).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    println!("what the services log is in {}", path.display());
    let mut command = Command::new(target.join("debug/sallyport"));
    command.args(["--log", &std::env::var("SALLYPORT_LOG").unwrap_or_else(|_| LOG.to_owned())]);
    command.args(["quickstart", "--dir"]).arg(place.join("cluster"));
    if has_postgres() {
        command.arg("--with-postgres");
    } else {
        println!("there is no database, since PostgreSQL is not installed");
    }
    // Ctrl-C goes to the whole group of the terminal: the cluster drains, and this waits for it.
    let status = command.args(arguments).stdin(Stdio::null()).stderr(log).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("the cluster ended: {status}; see {}", path.display())),
        Err(error) => Err(format!("cannot run sallyport: {error}")),
    }
}

/// Where Debian keeps PostgreSQL's programs.
fn has_postgres() -> bool {
    fs::read_dir("/usr/lib/postgresql").is_ok_and(|mut versions| versions.next().is_some())
}
