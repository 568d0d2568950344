//! What a session can reach of the files that the starter of the services had open.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::PROGRAM;
use crate::support::{free_port, wait_for};

#[test]
fn a_quickstart_keeps_no_file_open_that_its_starter_had() {
    let directory = tempfile::tempdir().unwrap();
    let secret = directory.path().join("secret");
    fs::write(&secret, "the starter's own").unwrap();
    let listen = format!("127.0.0.1:{}", free_port());
    let mut running = Command::new("sh")
        .args(["-c", "exec 9<\"$1\"; shift; exec \"$@\"", "sh"])
        .arg(&secret)
        .args([PROGRAM, "quickstart", "--listen", &listen, "--dir"])
        .arg(directory.path().join("qs"))
        // An account other than root sees its descriptors only like that.
        .env("SALLYPORT_TRACEABLE", "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
    // The cluster is there, and so is all that sessions inherit from.
    while !lines.next().expect("the cluster's line").unwrap().trim_start().starts_with("cluster") {}
    let open = |pid: u32| -> Vec<std::path::PathBuf> {
        let listed = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        listed.flatten().filter_map(|entry| fs::read_link(entry.path()).ok()).collect()
    };
    let held = open(running.id());
    let ended = Command::new("kill").arg(running.id().to_string()).status().unwrap();
    wait_for("the end", || running.try_wait().unwrap());
    assert!(ended.success() && !held.is_empty());
    assert!(!held.contains(&secret), "sessions inherit {held:?}");
}
