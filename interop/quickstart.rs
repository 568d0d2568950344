//! The first thing that a stranger runs.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::{PROGRAM, at_another_time, free_port, ok, refused, stdout};

fn quickstart(directory: &Path, arguments: &[&str]) -> Output {
    command(directory, arguments).output().expect("run quickstart")
}

fn command(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["quickstart", "--once", "--dir"]).arg(directory).args(arguments);
    command
}

/// The same a minute later, so that the next one-time code need not be waited for.
fn later(directory: &Path, arguments: &[&str]) -> Output {
    at_another_time(&mut command(directory, arguments), "+60").output().expect("run quickstart")
}

#[test]
fn it_shows_the_whole_job_and_runs_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("qs");
    let listen = format!("127.0.0.1:{}", free_port());
    let first = stdout(&ok(quickstart(&path, &["--listen", &listen])));
    for step in ["cluster", "user", "node", "login", "session", "playback", "audit"] {
        assert!(first.lines().any(|line| line.trim_start().starts_with(step)), "{step}: {first}");
    }
    assert!(first.contains("hello from") && first.contains("intact"), "{first}");
    // It waits until there is another one-time code.
    let again = stdout(&ok(quickstart(&path, &[])));
    assert!(again.contains("is back with its certificate"), "{again}");

    // Half-made, by a run that did not get to its end in a way that leaves nothing to go by.
    let state = path.join("quickstart.json");
    fs::write(&state, "{").unwrap();
    let said = refused(&quickstart(&path, &[]), 1);
    assert!(said.contains("half-made") && said.contains("rm -r"), "{said}");
}

#[test]
fn it_shows_a_database_where_postgresql_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("qs");
    let listen = format!("127.0.0.1:{}", free_port());
    let first = stdout(&ok(quickstart(&path, &["--listen", &listen, "--with-postgres"])));
    assert!(first.contains("rope|4.50") && first.contains("has the statement"), "{first}");
    // Another server by now, on another port, with another CA: the node tells the cluster.
    let again = stdout(&ok(later(&path, &["--with-postgres"])));
    assert!(again.contains("rope|4.50"), "{again}");
}

#[test]
fn it_shows_single_sign_on_with_a_provider_that_ends_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("qs");
    let listen = format!("127.0.0.1:{}", free_port());
    let output = quickstart(&path, &["--listen", &listen, "--with-sso"]);
    let loud = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(loud.contains("for this demonstration and for nothing else"), "{loud}");
    let first = stdout(&ok(output));
    for part in [
        "\"preferred_username\": \"sam\"",
        "rule 1 (groups): engineering gives quickstart",
        "rule 2 (groups): none of 2 values is as it wants",
        "Roles:    quickstart",
        "This login would be sam's.",
        "headless, and holds the roles quickstart",
    ] {
        assert!(first.contains(part), "{part}: {first}");
    }
    let kept = path.join("quickstart.json");
    let state: serde_json::Value = serde_json::from_str(&fs::read_to_string(kept).unwrap()).unwrap();
    let port = u16::try_from(state["provider_port"].as_u64().unwrap()).unwrap();
    std::net::TcpStream::connect(("127.0.0.1", port)).unwrap_err();
    // Without the flag there is neither the provider nor a way in by it.
    let without = stdout(&ok(later(&path, &[])));
    assert!(without.contains("its connector is removed") && !without.contains("headless"), "{without}");
    // Once more the person is the same one.
    let mut again = command(&path, &["--with-sso"]);
    let again = at_another_time(&mut again, "+120").output().expect("run quickstart");
    let again = stdout(&ok(again));
    assert!(again.contains("headless, and holds the roles quickstart"), "{again}");
}

#[test]
fn it_says_what_is_in_the_way() {
    let directory = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let said = refused(&quickstart(&directory.path().join("a"), &["--listen", &listen]), 1);
    assert!(said.contains("another process uses port") && said.contains("--listen"), "{said}");
    // So what the message advises works there.
    assert!(!directory.path().join("a").exists());

    let other = directory.path().join("b");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("mine"), "x").unwrap();
    let said = refused(&quickstart(&other, &[]), 1);
    assert!(said.contains("not empty") && said.contains("left alone"), "{said}");
    assert_eq!(fs::read_to_string(other.join("mine")).unwrap(), "x");

    // No account, not even root, writes below a file or into /proc.
    for bad in [other.join("mine").join("c").as_path(), Path::new("/proc/sallyport")] {
        let said = refused(&quickstart(bad, &[]), 1);
        assert!(said.contains("cannot") && said.contains("--dir"), "{said}");
    }
}
