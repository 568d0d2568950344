//! `cargo xtask web`: the web front end's own checks, and that what is built in comes from its sources.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const WEB: &str = "web";
/// What the proxy has built in.
const BUILT: &str = "web/dist";
/// Programs that this needs, and the Debian packages that bring them.
const NEEDED: &[(&str, &str)] = &[("node", "nodejs"), ("npm", "npm"), ("chromium", "chromium")];
/// The oldest that the front end's tools run on.
const OLDEST_NODE: u32 = 18;

pub(crate) fn run() -> Result<(), String> {
    crate::setup::install("the web front end", NEEDED)?;
    node_is_new_enough()?;
    // Nothing that a package would like to run when it is installed is run.
    npm(&["ci", "--ignore-scripts", "--no-audit", "--no-fund"])?;
    let fresh = tempfile::tempdir().map_err(|error| format!("cannot make a directory: {error}"))?;
    npm(&[
        "run",
        "--silent",
        "build",
        "--",
        "--logLevel",
        "warn",
        "--emptyOutDir",
        "--outDir",
        &fresh.path().to_string_lossy(),
    ])?;
    same(fresh.path(), Path::new(BUILT))?;
    npm(&["run", "--silent", "check"])?;
    npm(&["test", "--silent"])
}

/// Fails unless both directories have the same files.
fn same(fresh: &Path, built: &Path) -> Result<(), String> {
    let (fresh, built) = (files(fresh)?, files(built)?);
    let names = fresh.keys().chain(built.keys());
    let mut other: Vec<&String> = names.filter(|name| fresh.get(*name) != built.get(*name)).collect();
    other.sort();
    other.dedup();
    if other.is_empty() {
        return Ok(());
    }
    let list = other.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    Err(format!(
        "{BUILT} is not what its sources make; these differ: {list}\n  try: cd {WEB} && npm ci && npm run build, and commit {BUILT}"
    ))
}

/// The files of a directory, which has no other below it.
fn files(directory: &Path) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let said = |error: std::io::Error| format!("cannot read {}: {error}", directory.display());
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).map_err(said)? {
        let entry = entry.map_err(said)?;
        let content = fs::read(entry.path()).map_err(said)?;
        found.insert(entry.file_name().to_string_lossy().into_owned(), content);
    }
    Ok(found)
}

fn node_is_new_enough() -> Result<(), String> {
    let output = Command::new("node")
        .arg("--version")
        .output()
        .map_err(|error| format!("cannot run node: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match major(&said) {
        Some(major) if major >= OLDEST_NODE => Ok(()),
        _ => Err(format!("the web front end needs Node {OLDEST_NODE} or newer, and node says {said:?}")),
    }
}

/// The first number of `v20.1.2`.
fn major(version: &str) -> Option<u32> {
    version.strip_prefix('v')?.split('.').next()?.parse().ok()
}

fn npm(arguments: &[&str]) -> Result<(), String> {
    let words = || arguments.join(" ");
    let status = Command::new("npm")
        .args(arguments)
        .current_dir(WEB)
        .stdin(Stdio::null())
        .status()
        .map_err(|error| format!("cannot run npm: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("npm {} failed in {WEB}", words())) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_named() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(one.path().join("app.js"), "1").unwrap();
        fs::write(other.path().join("app.js"), "1").unwrap();
        same(one.path(), other.path()).unwrap();
        fs::write(other.path().join("app.js"), "2").unwrap();
        fs::write(other.path().join("old.js"), "1").unwrap();
        let said = same(one.path(), other.path()).unwrap_err();
        assert!(said.contains("differ: app.js, old.js") && said.contains("npm run build"), "{said}");
    }

    #[test]
    fn node_says_its_version() {
        assert_eq!((major("v18.20.4"), major("v20.1.0-nightly"), major("20.1")), (Some(18), Some(20), None));
    }
}
