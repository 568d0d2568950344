//! A proxy whose certificate has ended, at a node that has not heard anything else of it.

use std::process::Command;

use crate::PROGRAM;
use crate::support::{Clock, Cluster, Process, me, ok, target, wait_for};

#[test]
fn a_proxy_whose_certificate_has_ended_reaches_no_node_by_a_tunnel_that_is_open() {
    let mut cluster = Cluster::bare();
    let token = cluster.token(&[]);
    let config = cluster.node_config("web-1", "env: prod", Some(&token));
    // The node's clock alone goes on: all else, the proxy's own clock too, stays as it is.
    let clock = Clock::new(cluster.path("clock"));
    let mut command = Command::new(PROGRAM);
    command.args(["start", "-c"]).arg(&config).envs(clock.variables());
    let log = cluster.path("node-web-1.log");
    let process = Process::spawn(&mut command, log.clone());
    cluster.nodes.push(("web-1".to_owned(), process));
    cluster.wait_online("web-1");
    let alice = cluster.add_user("alice", "access", &me());
    let ssh = || {
        let mut command = alice.command(&["ssh", &target("web-1"), "echo entered"]);
        command.env("SALLYPORT_CONNECT", "off").output().unwrap()
    };
    ok(ssh());
    clock.set("+864000");
    let output = ssh();
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    wait_for("the node's word for it", || {
        let said = std::fs::read_to_string(&log).ok()?;
        said.contains("a proxy whose certificate has ended opened a stream").then_some(())
    });
}
