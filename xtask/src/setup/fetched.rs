//! The programs of the whole measurements that no Debian package brings: fetched once by the clients of their registries, and kept.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the clients and the programs need, with the Debian packages that bring it.
pub(super) const NEEDED: &[(&str, &str)] = &[
    ("mvn", "maven"),
    ("sha256sum", "coreutils"),
    ("unzip", "unzip"),
    ("python3", "python3"),
    ("/usr/share/doc/python3-venv", "python3-venv"),
];

const KEYCLOAK_VERSION: &str = "26.7.3";
/// Of the distribution, as Maven Central has it.
const KEYCLOAK_SHA256: &str = "27a6535553c3cdcd083872ba40629efafb3475e3b758e0c6f691395561dd0f1f";
/// Copies an artifact out of the repository that `mvn` is configured with.
const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy";
/// What Keycloak is built with once, so that a start builds nothing: the tests start it with the same.
const BUILT_WITH: &[&str] = &["--db=dev-file", "--cache=local", "--health-enabled=false"];
/// Who administers it, as the tests do.
const ADMINISTRATOR: (&str, &str) = ("administrator", "correct horse battery staple");

/// The packages of `scim2-tester` and `scim2-cli`, each at its version.
const SCIM_PACKAGES: &str = include_str!("../../../interop/providers/scim2.txt");

/// Says in a directory that all of it is there, and what it was made from.
const READY: &str = "sallyport-ready";

/// A program that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    Keycloak,
    ScimTester,
}

const ALL: [Kept; 2] = [Kept::Keycloak, Kept::ScimTester];

impl Kept {
    fn title(self) -> &'static str {
        match self {
            Self::Keycloak => "Keycloak",
            Self::ScimTester => "scim2-tester",
        }
    }

    /// Names its directory to the tests. A caller who has it set has another one, which is left alone.
    fn variable(self) -> &'static str {
        match self {
            Self::Keycloak => "SALLYPORT_KEYCLOAK",
            Self::ScimTester => "SALLYPORT_SCIM_TESTER",
        }
    }

    fn directory(self) -> Option<PathBuf> {
        let name = match self {
            Self::Keycloak => format!("keycloak-{KEYCLOAK_VERSION}"),
            Self::ScimTester => "scim2-tester".to_owned(),
        };
        kept(&|name| std::env::var_os(name).map(PathBuf::from)).map(|kept| kept.join(name))
    }

    fn made_from(self) -> String {
        match self {
            Self::Keycloak => format!("{KEYCLOAK_SHA256} {}\n", BUILT_WITH.join(" ")),
            Self::ScimTester => SCIM_PACKAGES.to_owned(),
        }
    }

    fn is_ready(self, directory: &Path) -> bool {
        std::fs::read_to_string(directory.join(READY)).is_ok_and(|found| found == self.made_from())
    }

    fn fetch(self) -> Result<(), String> {
        if std::env::var_os(self.variable()).is_some() {
            return Ok(());
        }
        let said = || format!("there is no place to keep {}: set HOME, or {}", self.title(), self.variable());
        let directory = self.directory().ok_or_else(said)?;
        if self.is_ready(&directory) {
            return Ok(());
        }
        println!("fetching {} into {}", self.title(), directory.display());
        let failed = |error| format!("cannot make {}: {error}", directory.display());
        // What was left half done, or is of another version.
        if directory.exists() {
            std::fs::remove_dir_all(&directory).map_err(failed)?;
        }
        let parent = directory.parent().unwrap_or(&directory);
        std::fs::create_dir_all(parent).map_err(failed)?;
        let made = match self {
            Self::Keycloak => keycloak(parent, &directory),
            Self::ScimTester => scim_tester(parent, &directory),
        };
        made.map_err(|problem| {
            format!(
                "setup cannot install {}: {problem}\n  the tests that need it fail without it; {} names another installation of it",
                self.title(),
                self.variable()
            )
        })?;
        std::fs::write(directory.join(READY), self.made_from()).map_err(failed)
    }
}

/// Fetches what is not there; what fails does not keep the rest from being fetched.
pub(super) fn run() -> Result<(), String> {
    let problems: Vec<String> = ALL.iter().filter_map(|one| one.fetch().err()).collect();
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

/// What tells the tests where the programs are, but for what the caller tells them.
pub(crate) fn environment() -> Vec<(&'static str, PathBuf)> {
    let set = |one: &Kept| std::env::var_os(one.variable()).is_some();
    let found = |one: Kept| one.directory().filter(|directory| one.is_ready(directory));
    ALL.into_iter()
        .filter(|one| !set(one))
        .filter_map(|one| found(one).map(|at| (one.variable(), at)))
        .collect()
}

/// Where programs are kept: beyond a checkout and its builds, since they are fetched once for all of them.
fn kept(variable: &dyn Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let cache = variable("XDG_CACHE_HOME").filter(|path| path.is_absolute());
    let cache = cache.or_else(|| variable("HOME").map(|home| home.join(".cache")));
    cache.map(|cache| cache.join("sallyport-tests"))
}

fn keycloak(parent: &Path, directory: &Path) -> Result<(), String> {
    // Beside the place that it goes to, so that it gets there in one step.
    let fresh = tempfile::tempdir_in(parent).map_err(|error| format!("no temporary directory: {error}"))?;
    let artifact = format!("-Dartifact=org.keycloak:keycloak-quarkus-dist:{KEYCLOAK_VERSION}:zip");
    let to = format!("-DoutputDirectory={}", fresh.path().display());
    run_in(fresh.path(), "mvn", &["-q", "-B", COPY, &artifact, &to], &[])?;
    let archive = format!("keycloak-quarkus-dist-{KEYCLOAK_VERSION}.zip");
    let sum = output_in(fresh.path(), "sha256sum", &[&archive])?;
    if !sum.starts_with(KEYCLOAK_SHA256) {
        let sum = sum.split(' ').next().unwrap_or_default();
        return Err(format!("{archive} has the SHA-256 sum {sum}, expected {KEYCLOAK_SHA256}"));
    }
    run_in(fresh.path(), "unzip", &["-q", &archive], &[])?;
    let home = fresh.path().join(format!("keycloak-{KEYCLOAK_VERSION}"));
    run_in(&home, "bin/kc.sh", &[&["build"], BUILT_WITH].concat(), &[])?;
    // Its database is made here, too: that takes as long as the rest of a start.
    let (name, password) = ADMINISTRATOR;
    let administrator = ["--username", name, "--password:env", "PASSWORD"];
    let bootstrap = [&["bootstrap-admin", "user", "--optimized", "--no-prompt"], &administrator[..]].concat();
    run_in(&home, "bin/kc.sh", &bootstrap, &[("PASSWORD", password)])?;
    std::fs::rename(&home, directory).map_err(|error| format!("cannot make {}: {error}", directory.display()))
}

fn scim_tester(parent: &Path, directory: &Path) -> Result<(), String> {
    let at = directory.display().to_string();
    run_in(parent, "python3", &["-m", "venv", &at], &[])?;
    let packages = directory.join("packages.txt");
    std::fs::write(&packages, SCIM_PACKAGES).map_err(|error| format!("cannot write there: {error}"))?;
    let packages = packages.display().to_string();
    let pip = directory.join("bin/pip").display().to_string();
    run_in(parent, &pip, &["install", "-q", "--disable-pip-version-check", "-r", &packages], &[])
}

/// Runs a program to its end; its output is the problem where it fails.
fn run_in(at: &Path, program: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Result<(), String> {
    asked(at, program, arguments, environment).map(drop)
}

fn output_in(at: &Path, program: &str, arguments: &[&str]) -> Result<String, String> {
    asked(at, program, arguments, &[])
}

fn asked(
    at: &Path,
    program: &str,
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> Result<String, String> {
    let path = if program.contains('/') { at.join(program) } else { PathBuf::from(program) };
    let output = Command::new(path)
        .args(arguments)
        .envs(environment.iter().copied())
        .current_dir(at)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run {program}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(said);
    }
    let all = format!("{said}{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = all.lines().collect();
    let last = lines.get(lines.len().saturating_sub(20)..).unwrap_or_default().join("\n    ");
    Err(format!("{program} {} failed ({}):\n    {last}", arguments.join(" "), output.status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_kept_in_the_accounts_cache() {
        let of = |cache: Option<&str>, home: Option<&str>| {
            kept(&|name| if name == "HOME" { home } else { cache }.map(PathBuf::from))
        };
        let expected = |path: &str| Some(PathBuf::from(path));
        assert_eq!(of(None, Some("/home/a")), expected("/home/a/.cache/sallyport-tests"));
        assert_eq!(of(Some("/var/c"), Some("/home/a")), expected("/var/c/sallyport-tests"));
        assert_eq!(of(Some("here"), Some("/home/a")), expected("/home/a/.cache/sallyport-tests"));
        assert_eq!(of(None, None), None);
    }

    #[test]
    fn what_is_half_done_or_of_another_version_is_not_ready() {
        let directory = tempfile::tempdir().unwrap();
        for one in ALL {
            let _ = std::fs::remove_file(directory.path().join(READY));
            assert!(!one.is_ready(directory.path()), "{one:?}");
            std::fs::write(directory.path().join(READY), "another").unwrap();
            assert!(!one.is_ready(directory.path()), "{one:?}");
            std::fs::write(directory.path().join(READY), one.made_from()).unwrap();
            assert!(one.is_ready(directory.path()), "{one:?}");
        }
    }

    #[test]
    fn every_package_of_the_tester_has_its_version() {
        let lines = SCIM_PACKAGES.lines().filter(|line| !line.starts_with('#'));
        assert!(lines.clone().all(|line| line.split_once("==").is_some_and(|(name, _)| !name.is_empty())));
        assert!(lines.clone().any(|line| line.starts_with("scim2-tester==")));
    }

    #[test]
    fn a_program_that_fails_says_what_it_said() {
        let problem =
            asked(Path::new("/"), "sh", &["-c", "echo out; echo why >&2; exit 3"], &[]).unwrap_err();
        assert!(problem.contains("out") && problem.contains("why") && problem.contains('3'), "{problem}");
        let problem = asked(Path::new("/"), "no-such-program", &[], &[]).unwrap_err();
        assert!(problem.contains("no-such-program"), "{problem}");
    }

    #[test]
    #[ignore = "with the whole measurements, which fetch these: a minute or two where they are not there yet"]
    fn what_is_fetched_runs() {
        let begin = std::time::Instant::now();
        run().unwrap();
        println!("there after {:.1} s", begin.elapsed().as_secs_f64());
        let version = |one: Kept, program: &str, arguments: &[&str]| {
            let set = std::env::var_os(one.variable()).map(PathBuf::from);
            output_in(&set.or_else(|| one.directory()).unwrap(), program, arguments).unwrap()
        };
        assert!(version(Kept::Keycloak, "bin/kc.sh", &["--version"]).contains(KEYCLOAK_VERSION));
        let asked =
            "import scim2_cli; from importlib.metadata import version; print(version('scim2-tester'))";
        let tester = version(Kept::ScimTester, "bin/python3", &["-c", asked]);
        assert!(SCIM_PACKAGES.contains(&format!("scim2-tester=={}\n", tester.trim())), "{tester}");
        let begin = std::time::Instant::now();
        run().unwrap();
        println!("there already after {:.1} s", begin.elapsed().as_secs_f64());
    }
}
