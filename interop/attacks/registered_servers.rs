//! Names of registered servers that lead to the machine that dials them, and what a taken-over proxy can do with a certificate for
//! a login.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use sallyport_access::HostRole;
use sallyport_ca::keys::SshKeyPair;
use sallyport_ca::{Trust, TrustBundle};
use sallyport_sal::Suite;
use sallyport_wire::alpn;
use sallyport_wire::v1::CertifyForTargetRequest;
use sallyport_wire::v1::fleet_client::FleetClient;

use super::floods::{channel, tls};
use crate::openssh_servers::{Sshd, recorded_at_the_proxy};
use crate::support::{Cluster, SshAgent, me, ok, refused, ssh, ssh_command, stderr, stdout, target};

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
    assert!(listener.accept().is_err(), "no client has connected");
}

#[test]
fn a_certificate_for_a_login_at_one_server_opens_no_other() {
    let cluster = Cluster::apart();
    let alice = cluster.add_user("alice", "access", &me());
    let servers = ["db-1", "db-2"].map(|name| (name, Sshd::start(&cluster, name)));
    for (name, sshd) in &servers {
        ok(sshd.join_with_token(&cluster, name, &["--address", &sshd.address(), "--apply"]));
    }
    // What is root on the proxy has its certificate and key, and the certificates of users who came.
    let identity = fs::read(cluster.path("proxy/proxy/identity.json")).unwrap();
    let identity: serde_json::Value = serde_json::from_slice(&identity).unwrap();
    let bundle: TrustBundle = serde_json::from_value(identity["trust"].clone()).unwrap();
    let trust = Trust::from_bundle(&bundle).unwrap();
    let text = |name: &str| identity[name].as_str().unwrap().to_owned();
    let pair = (text("tls_chain"), text("tls_key"));
    let listed = ok(alice.run(&["ls", "--format", "json"]));
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let found = listed.as_array().unwrap().iter().find(|node| node["name"] == "db-1").unwrap();
    let key = SshKeyPair::generate(Suite::BalancedV1, "proxy").unwrap();
    let user_certificate = alice.tls_files().0.with_file_name("ssh_key-cert.pub");
    let request = CertifyForTargetRequest {
        node_id: found["id"].as_str().unwrap().to_owned(),
        login: me(),
        user_certificate: fs::read_to_string(user_certificate).unwrap(),
        ssh_public_key: key.public_line().to_owned(),
        word: None,
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let issued = runtime.block_on(async {
        let line = tls(&cluster, &trust, (&pair.0, &pair.1), (alpn::AUTH, HostRole::Auth)).await;
        let mut fleet = FleetClient::new(channel(line, 1 << 20).await);
        fleet.certify_for_target(request).await.unwrap().into_inner()
    });
    let file = cluster.path("stolen");
    fs::write(&file, key.private_openssh().as_bytes()).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(cluster.path("stolen-cert.pub"), issued.ssh_certificate).unwrap();
    let enters = |sshd: &Sshd| {
        let mut command = Command::new("ssh");
        command.args(["-F", "none", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]);
        command.args(["-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-p", &sshd.port.to_string(), "-i"]);
        let output = command.arg(&file).arg(format!("{}@127.0.0.1", me())).arg("true").output().unwrap();
        (output.status.success(), stderr(&output))
    };
    let [(_, one), (_, other)] = &servers;
    let (entered, said) = enters(one);
    assert!(entered, "{said}");
    let (entered, said) = enters(other);
    assert!(!entered && said.contains("Permission denied"), "{said}");
}

#[test]
fn where_a_role_wants_the_users_word_only_their_own_programs_lead_to_a_recorded_server() {
    let cluster = Cluster::bare();
    recorded_at_the_proxy(&cluster, ", require_login_word: true");
    let bob = cluster.add_user("bob", "watched", &me());
    let sshd = Sshd::start(&cluster, "db-1");
    ok(sshd.join_with_token(&cluster, "db-1", &["--address", &sshd.address(), "--apply", "--proxy-only"]));
    let jumps = || ssh(&bob.ssh_config(&["--jump"]), &[&target("db-1"), "echo jumped"]);
    // No program says for the user that they are there, before and after they were.
    let said = refused(&jumps(), 255);
    assert!(!said.contains("jumped"), "{said}");
    for helper in ["on", "off"] {
        let login = format!("{}@db-1", me());
        let own = bob.command(&["ssh", &login, "echo own"]).env("SALLYPORT_CONNECT", helper).output();
        assert_eq!(stdout(&ok(own.unwrap())), "own\n");
        let mut stock = ssh_command(&bob.ssh_config(&[]));
        let stock = stock.args([&target("db-1"), "echo stock"]).env("SALLYPORT_CONNECT", helper).output();
        assert_eq!(stdout(&ok(stock.unwrap())), "stock\n");
    }
    refused(&jumps(), 255);

    // A key of the user's own gives the word by the agent that holds it. Without one, stock ssh signs and nothing gives the word.
    let own = cluster.path("id");
    ok(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&own).output().unwrap());
    ok(bob.login(&["--ssh-key", own.to_str().unwrap()]));
    let agent = SshAgent::start(cluster.path("agent"));
    agent.add(&own);
    let config = bob.ssh_config(&[]);
    let mut stock = ssh_command(&config);
    stock.args([&target("db-1"), "echo signed"]).env("SALLYPORT_CONNECT", "off");
    let said = refused(&stock.output().unwrap(), 255);
    assert!(!said.contains("signed"), "{said}");
    let mut ours = bob.command(&["ssh", &format!("{}@db-1", me()), "echo signed"]);
    ours.env("SALLYPORT_CONNECT", "off");
    for command in [&mut stock, &mut ours] {
        let output = command.env("SSH_AUTH_SOCK", &agent.socket).output();
        assert_eq!(stdout(&ok(output.unwrap())), "signed\n");
    }
    let whose = |event: &serde_json::Value| event["node"] == "db-1" && event["fields"]["word_of"] == "bob";
    cluster.wait_event("cert.issued", whose);
    let _ = bob.run(&["connect", "--stop"]);
}
