//! Certificates of a minute that say what was proven: the node lets their session in while the authority is away, and no other.
//!
//! A program that speaks the API asks for them, as this test does; from there on the programs are ours and OpenSSH's.

use std::fs;
use std::process::{Command, Output};

use sallyport_client::connect;
use sallyport_client::profile::Profiles;
use sallyport_wire::v1::{
    BeginSessionFactorRequest, CertifySessionRequest, ProveSessionFactorRequest, SessionTarget,
};

use crate::support::{
    Cluster, PROGRAM, Process, User, at_another_time, me, ok, recovery_codes, ssh_command, stderr, stdout,
    target, wait_for,
};

/// Another directory with all that a login left in one.
fn copied(cluster: &Cluster, user: &User, name: &str) -> User {
    let home = cluster.path(&format!("home-{name}"));
    ok(Command::new("cp").arg("-a").args([&user.home, &home]).output().unwrap());
    User { name: user.name.clone(), home, proxy: user.proxy.clone(), otp_uri: None }
}

/// Puts certificates in the place of those of a login: SSH and TLS.
fn hold(user: &User, [ssh, tls]: [&str; 2]) {
    let (certificate, _) = user.tls_files();
    fs::write(certificate.with_file_name("ssh_key-cert.pub"), ssh).unwrap();
    fs::write(certificate, tls).unwrap();
}

/// Proves a factor for one session, and has that certified for the login's keys.
fn certify(user: &User, code: &str, target: &SessionTarget) -> [String; 2] {
    let profiles = Profiles { home: Some(user.home.clone()), proxy: Some(user.proxy.clone()) };
    let stored = profiles.load_valid().unwrap();
    let asking = async {
        let mut factors = connect::services(&stored).await.unwrap().session_factors();
        let targets = vec![target.clone()];
        let begin = BeginSessionFactorRequest { targets: targets.clone(), ..Default::default() };
        let challenge = factors.begin(begin).await.unwrap().into_inner().page.unwrap().challenge;
        let (otp, shown) = (code.to_owned(), targets);
        let proven = factors
            .prove(ProveSessionFactorRequest { challenge: challenge.clone(), otp, shown })
            .await
            .unwrap();
        assert_eq!(proven.into_inner().state, "proven");
        let request = CertifySessionRequest {
            challenge,
            ssh_certificate: stored.read("ssh_key-cert.pub").unwrap().to_string(),
            tls_certificate_pem: stored.read("tls_cert.pem").unwrap().to_string(),
        };
        let certified = factors.certify(request).await.unwrap().into_inner();
        [certified.ssh_certificate, certified.tls_certificate_pem]
    };
    tokio::runtime::Runtime::new().unwrap().block_on(asking)
}

/// By our own client, and by stock ssh.
fn enters(user: &User, node: &str) -> [Output; 2] {
    let (at, config) = (target(node), user.ssh_config(&[]));
    let mut own = user.command(&["ssh", &at, "echo in"]);
    let mut stock = ssh_command(&config);
    stock.args([&at, "echo in"]);
    [&mut own, &mut stock].map(|command| {
        command.env("SALLYPORT_CONNECT", "off").env("SALLYPORT_MFA_PROMPT", "never").output().unwrap()
    })
}

fn is_in(user: &User, node: &str) {
    for output in enters(user, node) {
        assert_eq!(stdout(&ok(output)), "in\n");
    }
}

fn is_refused(user: &User, node: &str, why: &str) {
    for output in enters(user, node) {
        let said = stderr(&output);
        assert!(!output.status.success() && said.contains(why), "{} at {node}: {said}", user.name);
    }
}

#[test]
fn a_session_with_a_certificate_of_a_minute_begins_while_the_authority_is_away() {
    let mut cluster = Cluster::apart();
    for name in ["web-1", "web-2"] {
        cluster.add_node(name, "env: prod");
    }
    let alice = cluster.add_user_with("alice", "{require_session_mfa: yes}");
    let mallory = cluster.add_user("mallory", "alice-role", &me());
    // One of whom no factor is demanded: what stands in the way of the others is no fault of the cluster's.
    let carol = cluster.add_user("carol", "access", &me());
    let codes = recovery_codes(|arguments| alice.command(arguments));
    let web = SessionTarget {
        kind: "node".to_owned(),
        resource: "web-1".to_owned(),
        account: me(),
        db_name: String::new(),
    };
    let holder = copied(&cluster, &alice, "holder");
    for place in ["node-web-1/node/policy.json", "node-web-2/node/policy.json", "proxy/proxy/policy.json"] {
        wait_for(place, || {
            fs::read_to_string(cluster.path(place)).ok()?.contains("alice-role").then_some(())
        });
    }
    is_in(&carol, "web-1");
    let certificates = certify(&alice, &codes[0], &web);
    hold(&holder, certificates.each_ref().map(String::as_str));
    cluster.services.take().unwrap().kill_9();

    is_in(&holder, "web-1");
    let away = "whether one is cannot be asked";
    is_refused(&holder, "web-2", away);
    // What alice has proven is in that certificate alone, and that is worth nothing without her keys.
    is_refused(&alice, "web-1", away);
    is_refused(&mallory, "web-1", away);
    let thief = copied(&cluster, &mallory, "thief");
    hold(&thief, certificates.each_ref().map(String::as_str));
    is_refused(&thief, "web-1", "");
    is_in(&carol, "web-1");

    // Where it is later: past the minute, and past the other by which clocks may differ.
    cluster.node("web-1").kill_9();
    let mut later = Command::new(PROGRAM);
    at_another_time(&mut later, "+150").args(["start", "-c"]).arg(cluster.path("node-web-1.yaml"));
    let later = Process::spawn(&mut later, cluster.path("node-web-1.log"));
    cluster.nodes.push(("later".to_owned(), later));
    wait_for("the node to be back", || {
        enters(&carol, "web-1").iter().all(|output| output.status.success()).then_some(())
    });
    is_refused(&holder, "web-1", "");
    is_in(&carol, "web-1");
}
