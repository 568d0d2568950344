//! What cargo says about the workspace and its dependencies.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// One package of the resolved graph.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) in_workspace: bool,
    /// Its directory, from that of the workspace.
    pub(crate) home: PathBuf,
    /// Names of the packages it links against in a normal build (not for tests or build scripts).
    pub(crate) normal: BTreeSet<String>,
    /// Names of all packages it needs, for tests and build scripts, too.
    pub(crate) uses: BTreeSet<String>,
}

/// A crate from outside that the default build really contains.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Outside {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) licence: String,
}

/// Every crate from outside that is compiled for the default build, build scripts included. `cargo metadata` also
/// lists optional crates that nothing switches on; `cargo tree` does not.
pub(crate) fn built() -> Result<Vec<Outside>, String> {
    let output = cargo()
        .args(["tree", "--workspace", "--locked", "-e", "normal,build", "--prefix", "none", "-f", "{p}|{l}"])
        .output()
        .map_err(|error| format!("cannot run cargo tree: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo tree failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let mut found: Vec<Outside> =
        String::from_utf8_lossy(&output.stdout).lines().filter_map(outside).collect();
    found.sort();
    found.dedup();
    Ok(found)
}

/// `name v1.2.3 (proc-macro)|MIT (*)`; a path in the parentheses means one of ours.
fn outside(line: &str) -> Option<Outside> {
    let (package, licence) = line.trim_end_matches(" (*)").split_once('|')?;
    let mut words = package.split_whitespace();
    let (name, version) = (words.next()?, words.next()?);
    if words.next().is_some_and(|word| word.starts_with("(/")) {
        return None;
    }
    Some(Outside {
        name: name.to_owned(),
        version: version.trim_start_matches('v').to_owned(),
        licence: licence.trim().to_owned(),
    })
}

/// Reads the graph for the machine's own target, default features.
pub(crate) fn packages() -> Result<Vec<Package>, String> {
    let host = host_target()?;
    let output = cargo()
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", &host])
        .output()
        .map_err(|error| format!("cannot run cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let value: Value =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    read(&value).ok_or_else(|| "cargo metadata has an unexpected shape".to_owned())
}

fn read(value: &Value) -> Option<Vec<Package>> {
    let members: BTreeSet<&str> =
        value.get("workspace_members")?.as_array()?.iter().filter_map(Value::as_str).collect();
    let mut names = BTreeMap::new();
    for package in value.get("packages")?.as_array()? {
        names.insert(package.get("id")?.as_str()?, package);
    }
    let root = PathBuf::from(value.get("workspace_root")?.as_str()?);
    let mut packages = Vec::new();
    for node in value.get("resolve")?.get("nodes")?.as_array()? {
        let id = node.get("id")?.as_str()?;
        let package = names.get(id)?;
        let manifest = Path::new(package.get("manifest_path")?.as_str()?).parent()?;
        let (mut normal, mut uses) = (BTreeSet::new(), BTreeSet::new());
        for dependency in node.get("deps")?.as_array()? {
            let target = names.get(dependency.get("pkg")?.as_str()?)?;
            let name = target.get("name")?.as_str()?.to_owned();
            let kinds = dependency.get("dep_kinds")?.as_array()?;
            if kinds.iter().any(|kind| kind.get("kind").is_some_and(Value::is_null)) {
                normal.insert(name.clone());
            }
            uses.insert(name);
        }
        packages.push(Package {
            name: package.get("name")?.as_str()?.to_owned(),
            in_workspace: members.contains(id),
            home: manifest.strip_prefix(&root).unwrap_or(manifest).to_owned(),
            normal,
            uses,
        });
    }
    Some(packages)
}

pub(crate) fn host_target() -> Result<String, String> {
    let output =
        Command::new("rustc").args(["-vV"]).output().map_err(|error| format!("cannot run rustc: {error}"))?;
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .find_map(|line| line.strip_prefix("host: ").map(str::to_owned))
        .ok_or_else(|| "rustc does not say for which host it builds".to_owned())
}

/// The cargo that runs this chore, in the environment that the chore was started in.
///
/// Cargo tells the programs that it runs which package they are of. Build scripts of the same names ask for that (ring's
/// does), so that all that uses them would be built again whenever cargo is called from here and from a shell in turns.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_of_a_package)) {
        command.env_remove(name);
    }
    command
}

/// Whether a variable says something of the package whose program is run.
fn is_of_a_package(variable: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"]
        .iter()
        .any(|prefix| variable.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_of_the_chores_is_no_concern_of_what_they_build() {
        for (variable, expected) in [
            ("CARGO_PKG_NAME", true),
            ("CARGO_MANIFEST_DIR", true),
            ("CARGO_TARGET_DIR", false),
            ("CARGO", false),
        ] {
            assert_eq!(is_of_a_package(variable), expected, "{variable}");
        }
        assert!(cargo().get_envs().any(|(name, value)| name == "CARGO_MANIFEST_DIR" && value.is_none()));
    }
}
