//! The pages of the public address, for programs that are not of the cluster.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use crate::support::{Cluster, me, ok, stdout, wait_for};

fn curl(cluster: &Cluster, more: &[&str], path: &str) -> Output {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--max-time", "20"]).args(more);
    curl.arg(format!("https://{}{path}", cluster.proxy())).output().expect("install curl")
}

/// The certificate that a stranger is shown, PEM.
fn shown(cluster: &Cluster) -> String {
    let mut client = Command::new("openssl");
    client.args(["s_client", "-connect", &cluster.proxy(), "-showcerts"]).stdin(std::process::Stdio::null());
    let said = stdout(&client.output().unwrap());
    let begin = said.find("-----BEGIN CERTIFICATE-----").unwrap_or_else(|| panic!("{said}"));
    let end = said[begin..].find("-----END CERTIFICATE-----").unwrap() + begin;
    format!("{}-----END CERTIFICATE-----\n", &said[begin..end])
}

#[test]
fn others_read_the_pages_of_a_post_quantum_cluster() {
    let cluster = Cluster::with_auth_settings("  suite: pq-v1\n");
    let answer = ok(curl(&cluster, &["--insecure"], "/healthz"));
    assert_eq!(stdout(&answer).trim(), "ok");
    // It signs itself, and is good for the address that people type.
    let page = cluster.path("page.pem");
    fs::write(&page, shown(&cluster)).unwrap();
    ok(curl(&cluster, &["--cacert", page.to_str().unwrap()], "/healthz"));

    // A member is held to what the suite requires, whatever the page accepts.
    let alice = cluster.add_user("alice", "access", &me());
    let (certificate, key) = alice.tls_files();
    let member = [
        "--insecure",
        "--http2-prior-knowledge",
        "--include",
        "--header",
        "content-type: application/grpc",
        "--data-binary",
        "",
        "--cert",
        certificate.to_str().unwrap(),
        "--key",
        key.to_str().unwrap(),
    ];
    let said = stdout(&curl(&cluster, &member, "/sallyport.v1.Transport/ProxySsh"));
    assert!(said.contains("grpc-message") && said.contains("quantum"), "{said}");
    ok(alice.run(&["ls"]));
}

#[test]
fn the_operators_certificate_is_shown_to_others_and_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = (directory.path().join("chain.pem"), directory.path().join("key.pem"));
    let make = |name: &str| {
        let mut openssl = Command::new("openssl");
        openssl.args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ]);
        openssl.args(["-subj", &format!("/CN={name}"), "-addext", "subjectAltName=IP:127.0.0.1"]);
        openssl.arg("-keyout").arg(&key).arg("-out").arg(&certificate);
        ok(openssl.output().unwrap());
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    };
    make("first");
    let https = format!("  https:\n    certificate: {}\n    key: {}\n", certificate.display(), key.display());
    let cluster = Cluster::with_proxy_settings(&https);
    let trusted = directory.path().join("trusted.pem");
    fs::copy(&certificate, &trusted).unwrap();
    ok(curl(&cluster, &["--cacert", trusted.to_str().unwrap()], "/healthz"));
    let alice = cluster.add_user("alice", "access", &me());
    ok(alice.run(&["ls"]));

    make("second");
    fs::copy(&certificate, &trusted).unwrap();
    wait_for("the new certificate", || {
        curl(&cluster, &["--cacert", trusted.to_str().unwrap()], "/healthz").status.success().then_some(())
    });
}
