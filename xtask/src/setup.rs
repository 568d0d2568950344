//! Installs the programs that the tests run against.

mod fetched;

use std::path::Path;
use std::process::{Command, Stdio};

pub(crate) use fetched::environment;

/// A program (or file) that tests use, and the Debian package that brings it.
const NEEDED: &[(&str, &str)] = &[
    ("ssh", "openssh-client"),
    ("/usr/sbin/sshd", "openssh-server"),
    ("/sbin/ip", "iproute2"),
    ("ping", "iputils-ping"),
    ("rsync", "rsync"),
    ("plink", "putty-tools"),
    ("/usr/lib/python3/dist-packages/asyncssh", "python3-asyncssh"),
    ("tmux", "tmux"),
    ("git", "git"),
    ("faketime", "faketime"),
    ("python3", "python3"),
    ("ansible-playbook", "ansible-core"),
    ("openssl", "openssl"),
    ("/usr/sbin/nginx", "nginx-light"),
    ("chromium", "chromium"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("certutil", "libnss3-tools"),
    ("softhsm2-util", "softhsm2"),
    ("fido2-assert", "fido2-tools"),
    ("swtpm", "swtpm"),
    ("tpm2_getrandom", "tpm2-tools"),
    ("tpm2_ptool", "libtpm2-pkcs11-tools"),
    ("/usr/share/doc/libtpm2-pkcs11-1", "libtpm2-pkcs11-1"),
    ("/usr/include/security/pam_appl.h", "libpam0g-dev"),
    ("perf", "linux-perf"),
    ("valgrind", "valgrind"),
    ("pg_ctlcluster", "postgresql"),
    ("psql", "postgresql-client"),
    ("/usr/lib/python3/dist-packages/psycopg", "python3-psycopg"),
    ("/usr/lib/python3/dist-packages/psycopg2", "python3-psycopg2"),
    ("/usr/lib/python3/dist-packages/sqlalchemy", "python3-sqlalchemy"),
    ("javac", "default-jdk-headless"),
    ("/usr/share/java/postgresql.jar", "libpostgresql-jdbc-java"),
];

/// Says that the package of PostgreSQL makes no database of its own, and so has none to start.
const NO_CLUSTER: (&str, &str) =
    ("/etc/postgresql-common/createcluster.conf", "create_main_cluster = false\nstart_conf = 'manual'\n");

/// What the command line asks for.
pub(crate) fn chore(arguments: &[String]) -> Result<(), String> {
    match arguments {
        [] => run(),
        [measure] if measure == "--measure" => run_whole(),
        _ => Err("say it as: cargo xtask setup [--measure]".to_owned()),
    }
}

/// What the tests of behaviour need.
pub(crate) fn run() -> Result<(), String> {
    install("the tests", NEEDED)?;
    provider()
}

/// What the whole measurements need as well.
pub(crate) fn run_whole() -> Result<(), String> {
    run()?;
    install("the whole measurements", fetched::NEEDED)?;
    fetched::run()
}

/// Installs the identity provider of the tests of single sign-on: packages whose hashes are in the lockfile.
fn provider() -> Result<(), String> {
    let at = Path::new("interop/providers");
    if at.join("node_modules/oidc-provider").exists() {
        return Ok(());
    }
    println!("installing the identity provider of the tests: npm ci in {}", at.display());
    let status = Command::new("npm")
        .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
        .current_dir(at)
        .status()
        .map_err(|error| format!("cannot run npm: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("npm ci failed in {}", at.display())) }
}

/// Installs what is missing of programs and files, each with the Debian package that brings it; where that may not be, says
/// which are missing.
pub(crate) fn install(what: &str, needed: &[(&str, &'static str)]) -> Result<(), String> {
    let missing = missing(needed);
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if !is_root() {
        let need = if what.ends_with('s') { "need" } else { "needs" };
        return Err(format!(
            "{what} {need} these Debian packages: {list}\n  try: sudo apt-get install {list}"
        ));
    }
    println!("installing for {what}: {list}");
    apt(&["update", "-qq"])?;
    if missing.contains(&"postgresql") {
        no_cluster().map_err(|error| format!("cannot write {}: {error}", NO_CLUSTER.0))?;
    }
    // What was written above stays, without a question.
    let keep = "Dpkg::Options::=--force-confold";
    let mut install = vec!["install", "-y", "-qq", "--no-install-recommends", "-o", keep];
    install.extend(&missing);
    apt(&install)?;
    let still = self::missing(needed);
    if still.is_empty() {
        Ok(())
    } else {
        Err(format!("apt-get ran, but these are still missing: {}", still.join(" ")))
    }
}

fn missing(needed: &[(&str, &'static str)]) -> Vec<&'static str> {
    needed.iter().filter(|(program, _)| !present(program)).map(|(_, package)| *package).collect()
}

fn present(program: &str) -> bool {
    if program.starts_with('/') {
        return Path::new(program).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Before the package is there; what an operator has written is left alone.
fn no_cluster() -> std::io::Result<()> {
    let (path, text) = (Path::new(NO_CLUSTER.0), NO_CLUSTER.1);
    if path.exists() {
        return Ok(());
    }
    path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    std::fs::write(path, text)
}

/// Without a dependency for one number: the owner of our own process directory.
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

fn apt(arguments: &[&str]) -> Result<(), String> {
    let status = Command::new("apt-get")
        // A browser is a large download: one that breaks off is begun again where it broke.
        .args(["-o", "Acquire::Retries=3"])
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        // A server package must not start its server here.
        .env("RUNLEVEL", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .map_err(|error| format!("cannot run apt-get: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("apt-get {} failed", arguments.join(" "))) }
}
