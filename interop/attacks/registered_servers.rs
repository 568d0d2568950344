//! Names of registered servers that lead to the machine that dials them.

use std::net::TcpListener;

use crate::support::{Cluster, me, ok, refused};

#[test]
fn a_name_that_resolves_to_the_dialling_machine_is_not_dialled() {
    let cluster = Cluster::bare();
    let alice = cluster.add_user("alice", "access", &me());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    // What the system's resolver takes for 127.0.0.1, and what no rule about addresses takes for one.
    ok(cluster.admin(&["nodes", "add", "inside", "--address", &format!("2130706433:{port}")]));
    let said = refused(&alice.run(&["ssh", &format!("{}@inside", me()), "true"]), 255);
    assert!(said.contains("names are not followed there"), "{said}");
    assert!(listener.accept().is_err(), "nobody has connected");
}
