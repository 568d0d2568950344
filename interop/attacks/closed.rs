//! A process of the same account, without root's rights, that looks for keys in the memory of ours.

use std::fs;
use std::process::{Child, Command, Stdio};

use crate::PROGRAM;
use crate::support::{Cluster, Process, is_root, me, wait_for};

/// What runs a program with the rights of its account and no more: root's reach into every process, without this.
const CONFINED: [&str; 3] = [
    "setpriv",
    "--bounding-set=-sys_ptrace,-sys_admin,-perfmon",
    "--inh-caps=-sys_ptrace,-sys_admin,-perfmon",
];

fn confined(program: &str) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new(CONFINED[0]);
    command.args(&CONFINED[1..]).arg(program);
    command
}

/// Whether the account may read the process's memory; what is asked for is the environment, by the same rule (proc(5)).
fn is_open(pid: u32) -> bool {
    let read = confined("cat").arg(format!("/proc/{pid}/environ")).output().unwrap();
    let said = String::from_utf8_lossy(&read.stderr).into_owned();
    assert!(read.status.success() || said.contains("ermission denied"), "{said}");
    read.status.success()
}

fn core_limit(pid: u32) -> Option<String> {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max core file size"))?.to_owned();
    line.split_whitespace().next().map(str::to_owned)
}

fn name(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

/// Waits until a process is ours, and then until it is closed, which it is from its first moment on.
fn is_closed(what: &str, child: &Child) {
    let pid = child.id();
    wait_for(&format!("{what} to begin"), || (name(pid) == "sallyport").then_some(()));
    wait_for(&format!("{what} to close itself"), || {
        (core_limit(pid).as_deref() == Some("0") && !is_open(pid)).then_some(())
    });
}

/// Lets core dumps be as large as they like, as far as this process may.
fn with_cores(command: &Command) -> Command {
    let mut cores = Command::new("sh");
    cores.args(["-c", "ulimit -c unlimited 2>/dev/null; exec \"$@\"", "sh"]);
    cores.arg(command.get_program()).args(command.get_args());
    cores
}

#[test]
fn no_process_that_holds_keys_is_read_by_its_account_or_dumps_its_memory() {
    let mut other = with_cores(confined("sleep").arg("60")).spawn().unwrap();
    wait_for("another program to be there", || (name(other.id()) == "sleep").then_some(()));
    assert!(is_open(other.id()), "a program that does not close itself is read");
    other.kill().unwrap();
    other.wait().unwrap();

    let mut cluster = Cluster::apart();
    cluster.add_node("web-1", "env: prod");
    let alice = cluster.add_user("alice", "access", &me());
    let start = |config: &str| with_cores(confined(PROGRAM).args(["start", "-c"]).arg(cluster.path(config)));
    let (mut authority, mut proxy, mut node) =
        (start("cluster.yaml"), start("proxy.yaml"), start("node-web-1.yaml"));
    cluster.services.take().unwrap().kill_9();
    cluster.nodes.clear();
    for (what, command) in [("authority", &mut authority), ("proxy", &mut proxy), ("node", &mut node)] {
        let process = Process::spawn(command, cluster.path(&format!("closed-{what}.log")));
        is_closed(what, &process.child);
        cluster.nodes.push((what.to_owned(), process));
    }
    cluster.wait_online("web-1");
    for (what, process) in &cluster.nodes {
        is_closed(what, &process.child);
    }
    // A proxy that never answers keeps a command waiting.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nowhere = silent.local_addr().unwrap().to_string();
    let helper: Vec<_> =
        alice.command(&["connect", "--foreground"]).get_args().map(ToOwned::to_owned).collect();
    let login =
        ["login", "--proxy", &nowhere, "--user", "alice", "--ca-pin", &cluster.pin, "--password-stdin"];
    let login: Vec<_> = login.map(std::ffi::OsString::from).into();
    for (what, words) in [("the helper daemon", helper), ("a command", login)] {
        let mut command = with_cores(confined(PROGRAM).args(words));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        is_closed(what, &child);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
