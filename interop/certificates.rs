//! Certificates by hand, found again and taken back: with the real OpenSSH and OpenSSL at the other end.

use crate::support;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Cluster, Process, me, ok, refused, stderr, stdout, target};
use serde_json::Value;

fn json(output: Output) -> Value {
    serde_json::from_slice(&ok(output).stdout).expect("JSON")
}

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("-V").stdin(Stdio::null()).output().is_ok();
    if !found {
        println!("skipped: 1 ({program} is not installed)");
    }
    found
}

fn run(program: &str, arguments: &[&str], directory: &Path) -> Output {
    Command::new(program).args(arguments).current_dir(directory).stdin(Stdio::null()).output().expect(program)
}

#[test]
fn a_stolen_certificate_is_found_denied_and_cut_off() {
    let (cluster, alice) = Cluster::with_node();
    let mut ssh = support::ssh_command(&alice.ssh_config(&[]));
    let (mut live, mut lines) = support::under_way(ssh.args([&target("web-1"), "echo began; sleep 600"]));
    support::read_until(&mut lines, "began");

    // What a finder of the files has: the fingerprint that ssh-keygen prints.
    let own = json(cluster.admin(&["certs", "ls", "--user", "alice", "--format", "json"]));
    let ssh = own.as_array().unwrap().iter().find(|one| one["form"] == "ssh").unwrap();
    let (key, serial) = (ssh["key"].as_str().unwrap(), ssh["serial"].as_str().unwrap());
    let text = stdout(&ok(cluster.admin(&["certs", "show", key])));
    for line in
        [format!("serial      {serial}"), "subject     alice".to_owned(), "state       good for".to_owned()]
    {
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
    let said = refused(&cluster.admin(&["certs", "show", "12345678901234567890"]), 1);
    assert!(said.contains("sallyport admin certs ls"), "{said}");
    let output = cluster.admin(&["certs", "deny", serial, "--reason", "stolen on a train"]);
    let begin = Instant::now();
    let said = stderr(&output);
    assert_eq!(stdout(&ok(output)).lines().count(), 2, "the SSH certificate and the other");
    assert!(said.contains("sallyport admin rm lock/login-"), "{said}");
    assert!(!live.wait().unwrap().success());
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    let said = stderr(&alice.ssh(&[&target("web-1"), "true"]));
    assert!(said.contains("stolen on a train"), "{said}");
    refused(&alice.run(&["ls"]), 4);
    cluster.wait_event("cert.denied", |event| event["fields"]["serial"] == serial);
    let text = stdout(&ok(cluster.admin(&["certs", "ls", "--denied"])));
    assert_eq!(
        text.lines().filter(|line| line.contains("alice") && line.ends_with("denied")).count(),
        2,
        "{text}"
    );

    // alice logs in again, and the denial concerns her no more.
    ok(alice.login(&[]));
    support::wait_for("alice to be let in", || {
        alice.ssh(&[&target("web-1"), "true"]).status.success().then_some(())
    });
    let valid = json(cluster.admin(&["certs", "ls", "--user", "alice", "--valid", "--format", "json"]));
    assert_eq!(valid.as_array().unwrap().len(), 2);
}

#[test]
fn databases_get_what_openssl_takes() {
    let cluster = Cluster::bare();
    let dir = cluster.path("made");
    fs::create_dir(&dir).unwrap();
    let at = |name: &str| dir.join(name).display().to_string();
    let text = stdout(&ok(cluster.admin(&["certs", "policy"])));
    assert!(
        text.lines().any(|line| line.starts_with("database_server") && line.ends_with("rsa-2048")),
        "{text}"
    );
    let sign = |arguments: &[&str]| {
        let all = [&["auth", "sign"], arguments].concat();
        cluster.admin(&all)
    };
    let server = at("server");
    let output = sign(&[
        "--format",
        "db",
        "--host",
        "localhost,db.example.net",
        "--host",
        "127.0.0.1",
        "--out",
        &server,
    ]);
    let said = stderr(&output);
    assert_eq!(
        stdout(&ok(output)).lines().collect::<Vec<_>>(),
        [".key", ".crt", ".cas"].map(|end| format!("{server}{end}"))
    );
    assert!(said.contains(&format!("ssl_cert_file = '{server}.crt'")), "{said}");
    ok(sign(&["--format", "db-client", "--user", "app", "--out", &at("app"), "--algorithm", "ecdsa-p256"]));
    // Not the ten minutes of one that an agent has made for a session.
    let lasts =
        Command::new("openssl").args(["x509", "-noout", "-checkend", "3000", "-in", &at("app.crt")]).output();
    ok(lasts.unwrap());
    for name in ["server.key", "server.crt", "server.cas", "app.key"] {
        assert_eq!(fs::metadata(dir.join(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
    let again = ["--format", "db", "--host", "db.example.net", "--out", &server];
    let said = refused(&sign(&again), 1);
    assert!(said.contains("server.key") && said.contains("--overwrite"), "{said}");
    let before = fs::read(dir.join("server.crt")).unwrap();
    ok(sign(&[&again[..], &["--overwrite"]].concat()));
    assert_ne!(fs::read(dir.join("server.crt")).unwrap(), before);
    ok(sign(&["--format", "db", "--host", "localhost", "--out", &server, "--overwrite", "--ttl", "24h"]));

    for (arguments, says) in [
        (&["--format", "db", "--out", "x"][..], "--host is missing"),
        (&["--format", "db", "--host", "db"], "--out is missing"),
        (
            &["--format", "jwt", "--user", "alice", "--audience", "a", "--algorithm", "ed25519"],
            "certifies no key",
        ),
        (&["--format", "db-client", "--user", "app", "--host", "db", "--out", "x"], "--host says nothing"),
    ] {
        let said = refused(&sign(arguments), 2);
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
    let said = refused(&sign(&["--format", "db", "--host", "db", "--out", &at("long"), "--ttl", "400d"]), 1);
    assert!(said.contains("are possible"), "{said}");
    assert!(!dir.join("long.key").exists(), "nothing is written when nothing was issued");

    if !has("openssl") {
        return;
    }
    // A server that demands a client's certificate, as a database does, and the agent's side of it.
    let port = support::free_port().to_string();
    let mut listening = Command::new("openssl");
    listening.args(["s_server", "-accept", &port, "-Verify", "1", "-verify_return_error", "-www"]);
    listening.args(["-cert", "server.crt", "-key", "server.key", "-CAfile", "server.cas"]).current_dir(&dir);
    let _server = Process::spawn(&mut listening, cluster.path("s_server.log"));
    let connect = |more: &[&str]| {
        let to = format!("127.0.0.1:{port}");
        let mut arguments =
            vec!["s_client", "-connect", &to, "-ign_eof", "-verify_return_error", "-CAfile", "app.cas"];
        arguments.extend(["-verify_hostname", "localhost"]);
        arguments.extend(more);
        let mut child = Command::new("openssl")
            .args(arguments)
            .current_dir(&dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        use std::io::Write;
        let _ = child.stdin.take().unwrap().write_all(b"GET / HTTP/1.0\r\n\r\n");
        child.wait_with_output().unwrap()
    };
    support::wait_for("s_server", || {
        let said = stdout(&connect(&["-cert", "app.crt", "-key", "app.key"]));
        (said.contains("Verify return code: 0 (ok)") && said.contains("200 ok")).then_some(())
    });
    let without = connect(&[]);
    assert!(!stdout(&without).contains("200 ok"), "a client without a certificate is not served");

    let serial = ok(run("openssl", &["x509", "-in", "app.crt", "-noout", "-serial"], &dir));
    let serial = stdout(&serial).trim().trim_start_matches("serial=").to_owned();
    let said = stderr(&ok(cluster.admin(&["certs", "deny", &serial, "--reason", "left in a backup"])));
    assert!(said.contains("admin ca export --kind db_client --format crl"), "{said}");
    let list = at("list.pem");
    ok(cluster.admin(&["ca", "export", "--kind", "db-client", "--format", "crl", "--out", &list]));
    let verify = ["verify", "-crl_check", "-CAfile", "server.cas", "-CRLfile", "list.pem", "app.crt"];
    let output = run("openssl", &verify, &dir);
    assert!(
        !output.status.success() && stderr(&output).contains("certificate revoked"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn workloads_users_and_tokens_are_made_by_hand() {
    let cluster = Cluster::bare();
    cluster.add_user_without_login("alice", "access", &me());
    let dir = cluster.path("made");
    fs::create_dir(&dir).unwrap();
    let at = |name: &str| dir.join(name).display().to_string();
    let sign = |arguments: &[&str]| cluster.admin(&[&["auth", "sign"], arguments].concat());

    let made = json(sign(&["--format", "svid", "--id", "/ns/prod/web", "--out", &at("web"), "--json"]));
    assert_eq!(made["issued"][0]["subject"], format!("spiffe://{}/ns/prod/web", support::CLUSTER));
    assert_eq!(made["files"].as_array().unwrap().len(), 3);
    if has("openssl") {
        let verify = ["verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", "web.cas", "web.crt"];
        ok(run("openssl", &verify, &dir));
        let text = stdout(&ok(run(
            "openssl",
            &["x509", "-in", "web.crt", "-noout", "-ext", "subjectAltName"],
            &dir,
        )));
        assert!(text.contains(&format!("URI:spiffe://{}/ns/prod/web", support::CLUSTER)), "{text}");
    }

    let output = sign(&["--format", "jwt", "--user", "alice", "--audience", "grafana"]);
    let said = stderr(&output);
    let token = stdout(&ok(output));
    assert_eq!(token.trim().split('.').count(), 3);
    assert!(said.contains("Every holder can use it"), "{said}");
    ok(sign(&["--format", "jwt-svid", "--id", "/web", "--audience", "db", "--out", &at("token")]));
    assert_eq!(fs::metadata(dir.join("token")).unwrap().permissions().mode() & 0o777, 0o600);
    let jwks = json(cluster.admin(&["ca", "export", "--kind", "jwt"]));
    assert_eq!(jwks["keys"][0]["use"], "sig");
    let tokens = json(cluster.admin(&["certs", "ls", "--kind", "jwt", "--format", "json"]));
    let serial = tokens[0]["serial"].as_str().unwrap();
    let said = stderr(&ok(cluster.admin(&["certs", "deny", serial, "--reason", "pasted into a chat"])));
    assert!(said.contains("good until its end"), "{said}");

    // A user's files are good for the API, like those of a login.
    ok(sign(&["--format", "user", "--user", "alice", "--out", &at("alice"), "--ttl", "1h"]));
    for name in ["alice", "alice.pub", "alice-cert.pub", "alice.key", "alice.crt", "alice.cas"] {
        assert!(dir.join(name).is_file(), "{name}");
    }
    let said = refused(&sign(&["--format", "user", "--user", "bob", "--out", &at("bob")]), 1);
    assert!(said.contains("there is no user bob"), "{said}");
    // The right to it is one of its own.
    let carol = cluster.add_user("carol", "auditor", &me());
    let admin = ["admin", "auth", "sign", "--format", "jwt", "--user", "carol", "--audience", "x"];
    refused(&carol.run(&admin), 4);
    refused(&carol.run(&["admin", "certs", "ls"]), 4);
}

/// A stock sshd with everything from the command line: host certificate, user CA, list of revoked keys.
#[test]
fn a_stock_sshd_lives_on_what_is_exported() {
    if !Path::new("/usr/sbin/sshd").exists() {
        println!("skipped: 1 (sshd is not installed)");
        return;
    }
    let cluster = Cluster::bare();
    cluster.add_user_without_login("alice", "access", &me());
    let dir = cluster.path("stock");
    fs::create_dir(&dir).unwrap();
    // sshd makes its own host key; only the public half leaves it.
    ok(run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", "host"], &dir));
    let at = |name: &str| dir.join(name).display().to_string();
    let sign = |arguments: &[&str]| ok(cluster.admin(&[&["auth", "sign"], arguments].concat()));
    let host = at("host");
    sign(&[
        "--format",
        "openssh-host",
        "--host",
        "git.example.net",
        "--out",
        &host,
        "--public-key",
        &at("host.pub"),
    ]);
    sign(&["--format", "openssh-user", "--user", "alice", "--out", &at("alice")]);
    let krl = at("revoked");
    let export =
        || ok(cluster.admin(&["ca", "export", "--kind", "openssh", "--format", "krl", "--out", &krl]));
    export();
    let ca = stdout(&ok(cluster.admin(&["ca", "export", "--kind", "host"])));
    fs::write(dir.join("known_hosts"), format!("@cert-authority *.example.net {ca}")).unwrap();
    let port = support::free_port().to_string();
    fs::write(
        dir.join("config"),
        format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {host}\nHostCertificate {host}-cert.pub\nTrustedUserCAKeys \
             {host}.cas\nRevokedKeys {krl}\nAuthorizedKeysFile none\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\nPermitRootLogin yes\nStrictModes no\nUsePAM no\nPidFile none\n"
        ),
    )
    .unwrap();
    if support::is_root() {
        let _ = fs::create_dir_all("/run/sshd");
    }
    let mut sshd = Command::new("/usr/sbin/sshd");
    let _sshd = Process::spawn(sshd.args(["-D", "-e", "-f", &at("config")]), cluster.path("sshd.log"));
    let log_in = || {
        let known = format!("UserKnownHostsFile={}", at("known_hosts"));
        let options = [
            "-F",
            "none",
            "-p",
            &port,
            "-i",
            &at("alice"),
            "-o",
            &known,
            "-o",
            "HostKeyAlias=git.example.net",
            "-o",
            "StrictHostKeyChecking=yes",
            "-o",
            "IdentitiesOnly=yes",
            "-o",
            "IdentityAgent=none",
            "-o",
            "BatchMode=yes",
            "-l",
            &me(),
            "127.0.0.1",
            "echo in",
        ];
        run("ssh", &options, &dir)
    };
    support::wait_for("a login at the stock server", || (stdout(&log_in()) == "in\n").then_some(()));
    let printed = stdout(&ok(run("ssh-keygen", &["-lf", "alice-cert.pub"], &dir)));
    let fingerprint = printed.split(' ').nth(1).unwrap().to_owned();
    ok(cluster.admin(&["certs", "deny", &fingerprint, "--reason", "lost"]));
    assert_eq!(stdout(&log_in()), "in\n", "a stock server does not ask the authority: it goes by its list");
    export();
    let said = stderr(&log_in());
    assert!(said.contains("Permission denied"), "{said}");
    let queried = run("ssh-keygen", &["-Q", "-f", "revoked", "alice-cert.pub"], &dir);
    assert!(stdout(&queried).contains("REVOKED"), "{}", stdout(&queried));
}
