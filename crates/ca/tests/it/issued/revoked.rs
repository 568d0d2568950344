//! Lists of what was denied, as OpenSSL, Go and OpenSSH read them.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration as StdDuration, Instant};

use sallyport_ca::keys::SshKeyPair;
use sallyport_ca::revocation::{DeniedSerials, crl, crl_pem, has_crl, has_krl, krl};
use sallyport_ca::{CaKind, SshCertificate, SshOptions, issue_database_client, issue_openssh_user};
use sallyport_sal::{KeyAlgorithm, MemoryKey, Signer, Suite};
use time::Duration;

use crate::cluster::user;
use crate::issued::world::World;
use crate::programs::{go, run};

#[test]
fn a_crl_names_what_was_denied() {
    for suite in [Suite::Legacy, Suite::BalancedV1, Suite::FipsV1] {
        let world = World::new(suite);
        let authority = world.authority(CaKind::DbClient);
        let spki = MemoryKey::generate(KeyAlgorithm::EcdsaP256).unwrap().public_key().spki_der();
        let make =
            |user| issue_database_client(authority, user, &spki, world.now, Duration::minutes(30)).unwrap();
        let (good, stolen) = (make("alice"), make("bob"));
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("ca.pem"), &good.ca_pem).unwrap();
        fs::write(dir.path().join("good.pem"), &good.pem).unwrap();
        fs::write(dir.path().join("stolen.pem"), &stolen.pem).unwrap();
        let list = |number, denied: &[_]| {
            let der = crl(authority, number, world.now, world.now + Duration::days(1), denied).unwrap();
            fs::write(dir.path().join("list.pem"), crl_pem(&der)).unwrap();
        };
        let verify = |leaf| {
            let arguments =
                ["verify", "-x509_strict", "-crl_check", "-CAfile", "ca.pem", "-CRLfile", "list.pem", leaf];
            run("openssl", &arguments, dir.path())
        };
        list(7, &[]);
        let Some((ok, text)) = verify("stolen.pem") else { return };
        assert!(ok, "the list is empty: {text}");
        list(8, &[(stolen.issued.serial.clone(), world.now)]);
        let (ok, text) = verify("good.pem").unwrap();
        assert!(ok, "{text}");
        let (ok, text) = verify("stolen.pem").unwrap();
        assert!(!ok && text.contains("certificate revoked"), "{text}");
        let arguments = ["crl", "-in", "list.pem", "-noout", "-text", "-CAfile", "ca.pem", "-verify"];
        let (ok, text) = run("openssl", &arguments, dir.path()).unwrap();
        assert!(
            ok && text.contains("verify OK") && text.contains("X509v3 CRL Number: \n                8"),
            "{text}"
        );
        if let Some((ok, text)) = go(include_str!("../go/crl.go"), &["ca.pem", "list.pem"], dir.path()) {
            assert!(ok, "{text}");
            assert_eq!(text, format!("number 8\n{}\n", stolen.issued.serial));
        }
    }
}

#[test]
fn a_krl_names_what_was_denied() {
    let world = World::new(Suite::BalancedV1);
    let dir = tempfile::tempdir().unwrap();
    let (good, stolen, other) =
        (world.openssh_user(), world.openssh_user(), world.openssh_host(&["git.example.com"]));
    for (name, certificate) in [("good", &good), ("stolen", &stolen), ("other", &other)] {
        fs::write(dir.path().join(format!("{name}-cert.pub")), &certificate.line).unwrap();
    }
    let list = |certificates: &[&SshCertificate]| {
        let serials = |kind| {
            let of = certificates.iter().filter(|made| made.issued.signed_by == kind);
            of.map(|made| made.issued.serial.parse().unwrap()).collect()
        };
        let denied = [CaKind::Openssh, CaKind::Host].map(|kind| DeniedSerials {
            ca_line: world.authority(kind).ssh().unwrap().public_line(),
            serials: serials(kind),
        });
        fs::write(dir.path().join("krl"), krl(3, world.now, "prod", &denied).unwrap()).unwrap();
    };
    let revoked = |name: &str| {
        let file = format!("{name}-cert.pub");
        run("ssh-keygen", &["-Q", "-f", "krl", &file], dir.path()).map(|(ok, text)| {
            assert!(text.contains("REVOKED") || text.contains("ok"), "{text}");
            !ok
        })
    };
    list(&[]);
    let Some(found) = revoked("stolen") else { return };
    assert!(!found, "the list is empty");
    list(&[&stolen, &stolen, &other]);
    assert_eq!(["good", "stolen", "other"].map(|name| revoked(name).unwrap()), [false, true, true]);
    let (ok, text) = run("ssh-keygen", &["-Q", "-l", "-f", "krl"], dir.path()).unwrap();
    assert!(ok && text.contains("KRL version 3") && text.contains(&stolen.issued.serial), "{text}");
    assert!(krl(1, world.now, "", &[DeniedSerials { ca_line: "nonsense", serials: vec![1] }]).is_err());
}

#[test]
fn each_list_has_its_readers() {
    let crls: Vec<_> = CaKind::ALL.iter().filter(|kind| has_crl(**kind)).map(|kind| kind.name()).collect();
    let krls: Vec<_> = CaKind::ALL.iter().filter(|kind| has_krl(**kind)).map(|kind| kind.name()).collect();
    assert_eq!((crls, krls), (vec!["db", "db_client", "spiffe"], vec!["user", "host", "openssh"]));
    assert!(CaKind::ALL.iter().all(|kind| !has_krl(*kind) || kind.ssh_purpose().is_some()));
    assert!(CaKind::ALL.iter().all(|kind| !has_crl(*kind) || kind.tls_purpose().is_some()));
}

struct Sshd(Child);

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn secret(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// A stock sshd that trusts the openssh CA, shows a certificate of the host CA and reads our list.
#[test]
fn a_stock_sshd_takes_our_certificates_and_keeps_out_the_denied() {
    if !Path::new("/usr/sbin/sshd").exists() {
        println!("skipped: 1 (sshd is not installed)");
        return;
    }
    let world = World::new(Suite::BalancedV1);
    let dir = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let me = run("id", &["-un"], dir.path()).unwrap().1.trim().to_owned();
    let host = SshKeyPair::generate(Suite::BalancedV1, "git").unwrap();
    secret(&at("host"), &host.private_openssh());
    fs::write(at("host.pub"), host.public_line()).unwrap();
    let made = world.openssh_host_of(host.public_line(), &["git.example.com"]);
    fs::write(at("host-cert.pub"), &made.line).unwrap();
    fs::write(at("users.pub"), world.authority(CaKind::Openssh).ssh().unwrap().public_line()).unwrap();
    let host_ca = world.authority(CaKind::Host).ssh().unwrap().public_line();
    fs::write(at("known_hosts"), format!("@cert-authority *.example.com {host_ca}\n")).unwrap();
    let sign = |name: &str| {
        let key = SshKeyPair::generate(Suite::BalancedV1, name).unwrap();
        secret(&at(name), &key.private_openssh());
        let who = user("alice", &[&me]);
        let (authority, options) = (world.authority(CaKind::Openssh), SshOptions::default());
        let made = issue_openssh_user(
            authority,
            &who,
            key.public_line(),
            world.now,
            Duration::hours(1),
            &options,
            None,
        );
        let made = made.unwrap();
        fs::write(at(&format!("{name}-cert.pub")), &made.line).unwrap();
        made
    };
    let (_good, stolen) = (sign("good"), sign("stolen"));
    let write_list = |serials: Vec<u64>| {
        let ca_line = world.authority(CaKind::Openssh).ssh().unwrap().public_line();
        fs::write(at("krl"), krl(1, world.now, "", &[DeniedSerials { ca_line, serials }]).unwrap()).unwrap();
    };
    write_list(Vec::new());
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let directory = dir.path().display();
    fs::write(
        at("sshd_config"),
        format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {directory}/host\nHostCertificate {directory}/host-cert.pub\n\
             TrustedUserCAKeys {directory}/users.pub\nRevokedKeys {directory}/krl\nAuthorizedKeysFile none\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\nStrictModes no\n\
             UsePAM no\nPidFile none\n"
        ),
    )
    .unwrap();
    if me == "root" {
        // The package's start script makes it.
        let _ = fs::create_dir_all("/run/sshd");
    }
    let sshd = Command::new("/usr/sbin/sshd")
        .args(["-D", "-E"])
        .arg(at("log"))
        .arg("-f")
        .arg(at("sshd_config"))
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let _sshd = Sshd(sshd);
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        let log = || fs::read_to_string(at("log")).unwrap_or_default();
        assert!(began.elapsed() < StdDuration::from_secs(60), "sshd does not listen: {}", log());
        std::thread::sleep(StdDuration::from_millis(10));
    }
    let log_in = |name: &str| {
        let (key, known_hosts) = (at(name).display().to_string(), at("known_hosts").display().to_string());
        let (port, known) = (port.to_string(), format!("UserKnownHostsFile={known_hosts}"));
        let arguments = [
            "-F",
            "none",
            "-p",
            &port,
            "-i",
            &key,
            "-o",
            &known,
            "-o",
            "HostKeyAlias=git.example.com",
            "-o",
            "StrictHostKeyChecking=yes",
            "-o",
            "IdentitiesOnly=yes",
            "-o",
            "IdentityAgent=none",
            "-o",
            "BatchMode=yes",
            "-o",
            "GlobalKnownHostsFile=/dev/null",
            "-l",
            &me,
            "127.0.0.1",
            "echo in",
        ];
        let (ok, text) = run("ssh", &arguments, dir.path()).unwrap();
        assert!(ok || text.contains("Permission denied"), "{text}{}", fs::read_to_string(at("log")).unwrap());
        ok
    };
    assert_eq!(["good", "stolen"].map(log_in), [true, true]);
    write_list(vec![stolen.issued.serial.parse().unwrap()]);
    assert_eq!(["good", "stolen"].map(log_in), [true, false], "sshd reads the list anew for each login");
}
