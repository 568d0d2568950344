//! Certificates as ssh-keygen and openssl see them. A tool that is not installed skips its test with a word.

use std::fs;

use crate::cluster::{Cluster, alice, leaf, pem};
use crate::tool::{run, write_secret};
use sallyport_access::HostRole;
use sallyport_ca::{CaKind, IDENTITY_OID_TEXT, known_hosts_lines, trusted_user_ca_lines};

#[test]
fn ssh_keygen_reads_user_and_host_certificates() {
    let cluster = Cluster::new("prod");
    let dir = tempfile::tempdir().unwrap();
    let user = cluster.user(&alice());
    fs::write(dir.path().join("alice-cert.pub"), &user.certificates.ssh).unwrap();
    let Some((ok, text)) = run("ssh-keygen", &["-L", "-f", "alice-cert.pub"], dir.path()) else { return };
    assert!(ok, "{text}");
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    for wanted in [
        "Type: ssh-ed25519-cert-v01@openssh.com user certificate".to_owned(),
        format!("Public key: ED25519-CERT {}", user.certificates.ssh_fingerprint),
        format!("Signing CA: ED25519 {} (using ssh-ed25519)", cluster.users.ssh().unwrap().fingerprint()),
        "Key ID: \"alice\"".to_owned(),
        format!("Serial: {}", user.certificates.serials.ssh),
        "root".to_owned(),
        "deploy".to_owned(),
        "Critical Options: (none)".to_owned(),
        "permit-pty".to_owned(),
    ] {
        assert!(lines.contains(&wanted.as_str()), "{wanted} not in\n{text}");
    }
    assert!(text.contains("roles@sallyport UNKNOWN OPTION") && !text.contains("permit-agent"), "{text}");

    let node = cluster.host("web-1", HostRole::Node, &[]);
    fs::write(dir.path().join("web-cert.pub"), &node.certificates.ssh).unwrap();
    let (ok, text) = run("ssh-keygen", &["-L", "-f", "web-cert.pub"], dir.path()).unwrap();
    assert!(ok && text.contains("host certificate") && text.contains("web-1.prod"), "{text}");
}

/// ssh-keygen -L prints without checking: -Y verify checks the signature of the CA, the time and the principal.
#[test]
fn openssh_verifies_the_signature_of_the_user_ca() {
    let cluster = Cluster::new("prod");
    let dir = tempfile::tempdir().unwrap();
    let user = cluster.user(&alice());
    write_secret(&dir.path().join("id"), &user.ssh.private_openssh());
    fs::write(dir.path().join("id-cert.pub"), &user.certificates.ssh).unwrap();
    fs::write(dir.path().join("id.pub"), user.ssh.public_line()).unwrap();
    fs::write(dir.path().join("message"), "hello").unwrap();
    let Some((ok, text)) =
        run("ssh-keygen", &["-Y", "sign", "-f", "id-cert.pub", "-n", "test", "message"], dir.path())
    else {
        return;
    };
    assert!(ok, "{text}");
    let key = trusted_user_ca_lines(&cluster.trust);
    fs::write(dir.path().join("ours"), format!("root cert-authority {key}")).unwrap();
    let other = trusted_user_ca_lines(&Cluster::new("prod").trust);
    fs::write(dir.path().join("theirs"), format!("root cert-authority {other}")).unwrap();
    for (allowed, login, good) in [("ours", "root", true), ("ours", "bob", false), ("theirs", "root", false)]
    {
        let command =
            format!("ssh-keygen -Y verify -f {allowed} -I {login} -n test -s message.sig < message");
        let (ok, text) = run("sh", &["-c", &command], dir.path()).unwrap();
        assert_eq!(ok, good, "{allowed} {login}: {text}");
    }
}

#[test]
fn ssh_keygen_finds_hosts_by_our_known_hosts_lines() {
    let cluster = Cluster::new("prod");
    let dir = tempfile::tempdir().unwrap();
    let lines = known_hosts_lines(&cluster.trust, &["*.prod".to_owned()]);
    fs::write(dir.path().join("known_hosts"), lines).unwrap();
    let Some((ok, text)) = run("ssh-keygen", &["-F", "web-1.prod", "-f", "known_hosts"], dir.path()) else {
        return;
    };
    assert!(ok && text.contains("@cert-authority"), "{text}");
    let (ok, _) = run("ssh-keygen", &["-F", "web-1.test", "-f", "known_hosts"], dir.path()).unwrap();
    assert!(!ok);
}

#[test]
fn openssl_verifies_x509_certificates() {
    let cluster = Cluster::new("prod");
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    write("users.pem", &cluster.trust.tls_certificates_pem(CaKind::User));
    write("hosts.pem", &cluster.trust.tls_certificates_pem(CaKind::Host));
    write("alice.pem", &cluster.user(&alice()).certificates.tls_pem);
    let proxy = cluster.host("edge", HostRole::Proxy, &["ssh.example.com", "192.0.2.7"]);
    write("edge.pem", &pem(&leaf(&proxy.certificates.tls_pem)));

    let cases: [(&[&str], bool); 8] = [
        (&["-CAfile", "users.pem", "-purpose", "sslclient", "alice.pem"], true),
        (&["-CAfile", "users.pem", "-purpose", "sslserver", "alice.pem"], false),
        (&["-CAfile", "hosts.pem", "-purpose", "sslclient", "alice.pem"], false),
        (&["-CAfile", "hosts.pem", "-purpose", "sslserver", "edge.pem"], true),
        (&["-CAfile", "hosts.pem", "-purpose", "sslclient", "edge.pem"], true),
        (&["-CAfile", "hosts.pem", "-verify_hostname", "proxy.prod.sallyport.internal", "edge.pem"], true),
        (&["-CAfile", "hosts.pem", "-verify_hostname", "auth.prod.sallyport.internal", "edge.pem"], false),
        (&["-CAfile", "hosts.pem", "-verify_ip", "192.0.2.7", "edge.pem"], true),
    ];
    for (arguments, good) in cases {
        let all = [&["verify", "-x509_strict"], arguments].concat();
        let Some((ok, text)) = run("openssl", &all, dir.path()) else { return };
        assert_eq!(ok, good, "{arguments:?}: {text}");
    }

    let (ok, text) = run("openssl", &["x509", "-in", "alice.pem", "-noout", "-text"], dir.path()).unwrap();
    assert!(ok, "{text}");
    assert!(text.contains("CN = alice") || text.contains("CN=alice"), "{text}");
    assert!(text.contains(IDENTITY_OID_TEXT), "{text}");
    assert!(text.contains("\"name\":\"alice\"") && text.contains("\"roles\":[\"dev\",\"audit\"]"), "{text}");
}
