//! Which packages a change touches, and which use those.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::metadata::{self, Package};

/// Packages by name, in the order of the workspace.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    /// With files of their own that changed.
    pub(crate) touched: Vec<String>,
    /// Those that use one of them, directly or not.
    pub(crate) dependents: Vec<String>,
}

impl Changed {
    pub(crate) fn is_empty(&self) -> bool {
        self.touched.is_empty()
    }
}

/// What has changed since a revision, with what is not committed or not tracked.
pub(crate) fn since(revision: &str) -> Result<Changed, String> {
    let mut files = git(&["diff", "--name-only", "--relative", revision, "--"])?;
    files.extend(git(&["ls-files", "--others", "--exclude-standard"])?);
    let packages = metadata::packages()?;
    let members: Vec<&Package> = packages.iter().filter(|package| package.in_workspace).collect();
    let mut touched = BTreeSet::new();
    for file in &files {
        touched.extend(of_file(file, &members, &mentions(Path::new(file))));
    }
    Ok(with_dependents(&touched, &members))
}

/// The packages that a file belongs to, or whose tests read it.
fn of_file(file: &str, members: &[&Package], mentioned_by: &dyn Fn(&Path) -> bool) -> BTreeSet<String> {
    let path = Path::new(file);
    let all = || members.iter().map(|package| package.name.clone()).collect();
    let home =
        members.iter().filter(|package| path.starts_with(&package.home)).map(|package| package.name.clone());
    let homes: BTreeSet<String> = home.collect();
    if !homes.is_empty() {
        return homes;
    }
    if path.starts_with("interop") {
        return BTreeSet::from(["sallyport-cli".to_owned()]);
    }
    // What the build is made of.
    if ["Cargo.toml", "Cargo.lock", "clippy.toml", "rustfmt.toml"].contains(&file)
        || path.starts_with(".cargo")
    {
        return all();
    }
    // A guide, say, that a test compares with the code.
    let readers = members.iter().filter(|package| mentioned_by(&package.home));
    readers.map(|package| package.name.clone()).collect()
}

/// Whether a source in this directory names a file.
fn mentions(file: &Path) -> impl Fn(&Path) -> bool {
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    move |directory: &Path| {
        let interop = directory.ends_with("cli").then(|| PathBuf::from("interop"));
        [Some(directory.to_owned()), interop].into_iter().flatten().any(|place| {
            sources(&place)
                .iter()
                .any(|source| fs::read_to_string(source).is_ok_and(|text| text.contains(&name)))
        })
    }
}

fn sources(directory: &Path) -> Vec<PathBuf> {
    crate::layers::rust_files(directory).unwrap_or_default()
}

fn with_dependents(touched: &BTreeSet<String>, members: &[&Package]) -> Changed {
    let mut reached = touched.clone();
    loop {
        let more: Vec<String> = members
            .iter()
            .filter(|package| !reached.contains(&package.name))
            .filter(|package| package.uses.iter().any(|used| reached.contains(used)))
            .map(|package| package.name.clone())
            .collect();
        if more.is_empty() {
            break;
        }
        reached.extend(more);
    }
    let names = |wanted: &dyn Fn(&str) -> bool| {
        members.iter().map(|package| package.name.clone()).filter(|name| wanted(name)).collect()
    };
    Changed {
        touched: names(&|name| touched.contains(name)),
        dependents: names(&|name| reached.contains(name) && !touched.contains(name)),
    }
}

fn git(arguments: &[&str]) -> Result<Vec<String>, String> {
    let output =
        Command::new("git").args(arguments).output().map_err(|error| format!("cannot run git: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "git {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, home: &str, uses: &[&str]) -> Package {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        Package {
            name: name.to_owned(),
            in_workspace: true,
            home: PathBuf::from(home),
            normal: names(uses),
            uses: names(uses),
        }
    }

    #[test]
    fn a_change_reaches_what_uses_it() {
        let all = [
            package("sallyport-access", "crates/access", &[]),
            package("sallyport-ssh", "crates/ssh", &["sallyport-access"]),
            package("sallyport-cli", "crates/cli", &["sallyport-ssh"]),
            package("xtask", "xtask", &[]),
        ];
        let members: Vec<&Package> = all.iter().collect();
        let of = |file| of_file(file, &members, &|home: &Path| home.ends_with("ssh"));
        assert_eq!(of("crates/access/src/lib.rs"), BTreeSet::from(["sallyport-access".to_owned()]));
        assert_eq!(of("interop/wan.rs"), BTreeSet::from(["sallyport-cli".to_owned()]));
        assert_eq!(of("docs/roles.md"), BTreeSet::from(["sallyport-ssh".to_owned()]));
        assert_eq!(of("Cargo.lock").len(), 4);
        let changed = with_dependents(&of("crates/ssh/Cargo.toml"), &members);
        assert_eq!(
            (changed.touched, changed.dependents),
            (vec!["sallyport-ssh".to_owned()], vec!["sallyport-cli".to_owned()])
        );
        assert!(with_dependents(&BTreeSet::new(), &members).is_empty());
    }
}
