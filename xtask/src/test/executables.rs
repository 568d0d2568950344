//! What cargo builds of the tests, and what is in it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::table::Rule;
use crate::metadata::cargo;

/// What the tests are built with beside the default features: PAM, so that its tests need no second build of all.
const FEATURES: &str = "sallyport-ssh/pam";

/// The package of `sallyport`.
const COMMAND: &str = "sallyport-cli";

/// The test executables of one build.
#[derive(Debug)]
pub(crate) struct Executables {
    list: Vec<Executable>,
    directory: PathBuf,
    built: Built,
}

/// How much of a build was there before it.
#[derive(Debug, Default, Clone, Copy)]
struct Built {
    /// Crates, build scripts and executables that were compiled.
    compiled: usize,
    fresh: usize,
}

impl Built {
    /// Counts one of cargo's messages.
    fn count(&mut self, message: &Value) {
        if message.get("reason").is_some_and(|reason| reason == "compiler-artifact") {
            let fresh = message.get("fresh").is_some_and(|fresh| fresh == true);
            self.fresh += usize::from(fresh);
            self.compiled += usize::from(!fresh);
        }
    }
}

/// One test executable.
#[derive(Debug, Clone)]
pub(crate) struct Executable {
    pub(crate) package: String,
    /// The target: `lib`, the name of a binary, or the name of an integration test.
    pub(crate) target: String,
    pub(crate) path: PathBuf,
    /// The directory of the package, where its tests run.
    pub(crate) home: PathBuf,
    /// Whether it holds the tests inside of a crate, rather than those of its public surface.
    pub(crate) unit: bool,
}

/// One test.
#[derive(Debug, Clone)]
pub(crate) struct Test {
    pub(crate) executable: Executable,
    pub(crate) name: String,
    /// Left out unless it is asked for (`#[ignore]`).
    pub(crate) ignored: bool,
    pub(crate) rule: Rule,
}

impl Test {
    /// `PACKAGE::TARGET::NAME`, without the prefix that all packages share.
    pub(crate) fn id(&self) -> String {
        let package = self.executable.package.trim_start_matches("sallyport-");
        format!("{package}::{}::{}", self.executable.target, self.name)
    }
}

impl Executables {
    /// Builds those of the whole workspace.
    pub(crate) fn build_all(locked: bool) -> Result<Self, String> {
        Self::cargo(&["--workspace".to_owned(), "--features".to_owned(), FEATURES.to_owned()], locked, &[])
    }

    /// Builds those of certain packages, and what they start. What these use may be built with fewer features than in the
    /// whole workspace: then the first time takes longer, and both stay in the target directory.
    pub(crate) fn build(packages: &[String], locked: bool) -> Result<Self, String> {
        let has = |name: &str| packages.iter().any(|package| package == name);
        let mut arguments = Vec::new();
        for package in packages {
            arguments.extend(["-p".to_owned(), package.clone()]);
        }
        // The lab measures `sallyport`, which cargo builds with the tests of its own package only.
        if has("sallyport-lab") && !has(COMMAND) {
            arguments.extend(["-p".to_owned(), COMMAND.to_owned()]);
        }
        if ["sallyport-ssh", "sallyport-server", COMMAND, "sallyport-lab"].into_iter().any(has) {
            arguments.extend(["--features".to_owned(), FEATURES.to_owned()]);
        }
        Self::cargo(&arguments, locked, packages)
    }

    fn cargo(what: &[String], locked: bool, packages: &[String]) -> Result<Self, String> {
        let mut command = cargo();
        command.args(["test", "--no-run", "--message-format", "json-render-diagnostics"]).args(what);
        if locked {
            command.arg("--locked");
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot run cargo test: {error}"))?;
        let output = child.stdout.take().ok_or("cargo test has no output")?;
        let mut list = Vec::new();
        let mut built = Built::default();
        for line in BufReader::new(output).lines() {
            let line = line.map_err(|error| format!("reading what cargo builds: {error}"))?;
            let Ok(value) = serde_json::from_str::<Value>(&line) else { continue };
            built.count(&value);
            list.extend(executable(&value));
        }
        let status = child.wait().map_err(|error| format!("waiting for cargo test: {error}"))?;
        if !status.success() {
            return Err("the tests do not build".to_owned());
        }
        list.retain(|one: &Executable| packages.is_empty() || packages.contains(&one.package));
        list.sort_by_key(|one| (one.package.clone(), one.target.clone()));
        let directory =
            list.first().and_then(|one| target_directory(&one.path)).ok_or("cargo built no test")?;
        Ok(Self { list, directory, built })
    }

    /// Whether three quarters and more were compiled: a check before it leaves build scripts and macros.
    pub(crate) fn were_built(&self) -> bool {
        self.built.fresh * 3 <= self.built.compiled
    }

    /// Cargo's target directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// All tests, as the executables themselves list them.
    pub(crate) fn tests(&self) -> Result<Vec<Test>, String> {
        let mut tests = Vec::new();
        for executable in &self.list {
            let ignored = list(executable, &["--ignored"])?;
            for name in list(executable, &[])? {
                tests.push(Test {
                    executable: executable.clone(),
                    ignored: ignored.contains(&name),
                    name,
                    rule: Rule::default(),
                });
            }
        }
        Ok(tests)
    }
}

/// `TARGET/debug/deps/NAME-HASH` is in `TARGET`.
fn target_directory(executable: &Path) -> Option<PathBuf> {
    executable.ancestors().nth(3).map(Path::to_owned)
}

/// The executable of one of cargo's messages, if it tells of one with tests.
fn executable(message: &Value) -> Option<Executable> {
    if message.get("reason")? != "compiler-artifact" || message.get("profile")?.get("test")? != true {
        return None;
    }
    let manifest = Path::new(message.get("manifest_path")?.as_str()?);
    let target = message.get("target")?;
    let kind = target.get("kind")?.as_array()?.first()?.as_str()?;
    let name = target.get("name")?.as_str()?;
    Some(Executable {
        package: package(message.get("package_id")?.as_str()?, manifest)?,
        target: if kind == "lib" { "lib" } else { name }.to_owned(),
        path: PathBuf::from(message.get("executable")?.as_str()?),
        home: manifest.parent()?.to_owned(),
        unit: kind != "test",
    })
}

/// The package's name of `path+file:///DIRECTORY#NAME@VERSION`, or `…/NAME#VERSION` where the directory has its name.
fn package(id: &str, manifest: &Path) -> Option<String> {
    let (_, fragment) = id.rsplit_once('#')?;
    match fragment.split_once('@') {
        Some((name, _)) => Some(name.to_owned()),
        None => Some(manifest.parent()?.file_name()?.to_str()?.to_owned()),
    }
}

fn list(executable: &Executable, more: &[&str]) -> Result<Vec<String>, String> {
    let output = Command::new(&executable.path)
        .args(["--list", "--format", "terse"])
        .args(more)
        .current_dir(&executable.home)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run {}: {error}", executable.path.display()))?;
    // A program without the harness (a helper of other tests) lists nothing, and may refuse.
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_compiled_is_told_from_what_was_there() {
        let mut built = Built::default();
        for message in [
            serde_json::json!({"reason": "compiler-artifact", "fresh": false}),
            serde_json::json!({"reason": "compiler-artifact", "fresh": true}),
            serde_json::json!({"reason": "build-finished"}),
        ] {
            built.count(&message);
        }
        assert_eq!((built.compiled, built.fresh), (1, 1));
        let directory = PathBuf::new();
        assert!(!Executables { list: Vec::new(), directory: directory.clone(), built }.were_built());
        let built = Built { compiled: 90, fresh: 30 };
        assert!(Executables { list: Vec::new(), directory, built }.were_built());
    }

    #[test]
    fn an_executable_is_read_from_cargos_message() {
        let message = serde_json::json!({
            "reason": "compiler-artifact",
            "package_id": "path+file:///w/crates/ssh#sallyport-ssh@0.1.0",
            "manifest_path": "/w/crates/ssh/Cargo.toml",
            "target": {"kind": ["lib"], "name": "sallyport_ssh"},
            "profile": {"test": true},
            "executable": "/t/debug/deps/sallyport_ssh-12"
        });
        let found = executable(&message).unwrap();
        assert_eq!((found.package.as_str(), found.target.as_str()), ("sallyport-ssh", "lib"));
        assert_eq!(found.home, Path::new("/w/crates/ssh"));
        assert_eq!(target_directory(&found.path).unwrap(), Path::new("/t"));
        let mut library = message.clone();
        library["profile"]["test"] = false.into();
        assert!(executable(&library).is_none());
        assert_eq!(package("path+file:///w/xtask#0.1.0", Path::new("/w/xtask/Cargo.toml")).unwrap(), "xtask");
    }
}
