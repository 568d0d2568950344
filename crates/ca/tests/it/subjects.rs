//! Keys of every type that suites have: as files, as subjects of certificates, and as keys of authorities. A tool that
//! is not installed skips its part with a word.

use std::fs;

use crate::cluster::{Cluster, alice, leaf};
use crate::kept;
use crate::tool::{run, write_secret};
use sallyport_access::HostRole;
use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_ca::{CaError, CaKind, SshOptions, issue_user, trusted_user_ca_lines};
use sallyport_sal::algorithm::KeyKind;
use sallyport_sal::{KeyAlgorithm, MemoryKey, PrivateKeyMaterial, Suite, selection};
use ssh_key::Certificate;
use time::Duration;
use zeroize::Zeroizing;

const SSH: [KeyAlgorithm; 7] = [
    KeyAlgorithm::Ed25519,
    KeyAlgorithm::EcdsaP256,
    KeyAlgorithm::EcdsaP384,
    KeyAlgorithm::EcdsaP521,
    KeyAlgorithm::Rsa2048,
    KeyAlgorithm::Rsa3072,
    KeyAlgorithm::Rsa4096,
];
const TLS: [KeyAlgorithm; 7] = [
    KeyAlgorithm::Ed25519,
    KeyAlgorithm::EcdsaP256,
    KeyAlgorithm::EcdsaP384,
    KeyAlgorithm::Rsa2048,
    KeyAlgorithm::Rsa3072,
    KeyAlgorithm::MlDsa44,
    KeyAlgorithm::MlDsa65,
];

fn made(algorithm: KeyAlgorithm) -> MemoryKey {
    kept::key(algorithm)
}

fn ssh_key(algorithm: KeyAlgorithm) -> SshKeyPair {
    SshKeyPair::from_key(made(algorithm), "alice").unwrap()
}

fn tls_key(algorithm: KeyAlgorithm) -> TlsKey {
    TlsKey::from_key(&made(algorithm)).unwrap()
}

/// A key whose scalar is a byte shorter than the curve's order, as one in 256 is.
fn short_scalar(algorithm: KeyAlgorithm, first: u8) -> MemoryKey {
    let mut secret = Zeroizing::new(vec![0x5a; algorithm.secret_bytes().unwrap()]);
    (secret[0], secret[1]) = (0, first);
    let public = selection::global().derive_public(algorithm, &secret).unwrap();
    MemoryKey::from_material(PrivateKeyMaterial::new(algorithm, secret, public)).unwrap()
}

#[test]
fn ssh_keys_of_every_type_are_read_by_openssh_and_by_us() {
    let dir = tempfile::tempdir().unwrap();
    let mut keys: Vec<SshKeyPair> = SSH.map(ssh_key).into();
    for algorithm in [KeyAlgorithm::EcdsaP256, KeyAlgorithm::EcdsaP384] {
        // With and without the bit that takes a zero byte in front of it.
        for first in [0x7f, 0x80] {
            keys.push(SshKeyPair::from_key(short_scalar(algorithm, first), "alice").unwrap());
        }
    }
    for (at, key) in keys.iter().enumerate() {
        let again = SshKeyPair::from_openssh(&key.private_openssh()).unwrap();
        assert_eq!(again.public_line(), key.public_line());
        assert_eq!(again.fingerprint(), key.fingerprint());
        assert_eq!(again.private_key().public_key(), key.private_key().public_key());
        assert!(key.public_line().ends_with(" alice"), "{}", key.public_line());
        assert!(!format!("{key:?}").contains("PRIVATE"));

        let name = format!("id-{at}");
        write_secret(&dir.path().join(&name), &key.private_openssh());
        let Some((ok, text)) = run("ssh-keygen", &["-y", "-f", &name], dir.path()) else { continue };
        assert!(ok, "{text}");
        assert_eq!(text.trim(), key.public_line());
        let (ok, text) = run("ssh-keygen", &["-l", "-f", &name], dir.path()).unwrap();
        assert!(ok && text.contains(&key.fingerprint()), "{text}");
    }
    let pq = SshKeyPair::from_key(made(KeyAlgorithm::MlDsa65), "alice").unwrap_err();
    assert!(matches!(pq, CaError::Encode { .. }), "{pq}");
}

#[test]
fn tls_keys_of_every_type_are_read_by_openssl_and_by_us() {
    let dir = tempfile::tempdir().unwrap();
    for algorithm in TLS {
        let key = tls_key(algorithm);
        let again = TlsKey::from_pkcs8_pem(&key.pkcs8_pem()).unwrap();
        assert_eq!(again.spki_der(), key.spki_der());
        if algorithm.kind() == KeyKind::MlDsa {
            println!("skipped: openssl 3.0 has no {algorithm}");
            continue;
        }
        write_secret(&dir.path().join("key.pem"), &key.pkcs8_pem());
        fs::write(dir.path().join("wanted.der"), key.spki_der()).unwrap();
        let arguments = ["pkey", "-in", "key.pem", "-pubout", "-outform", "DER", "-out", "got.der"];
        let Some((ok, text)) = run("openssl", &arguments, dir.path()) else { continue };
        assert!(ok, "{algorithm}: {text}");
        assert_eq!(fs::read(dir.path().join("got.der")).unwrap(), key.spki_der(), "{algorithm}");
    }
}

#[test]
fn every_suite_certifies_ssh_keys_of_every_type() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("message"), "hello").unwrap();
    let keys = SSH.map(|algorithm| (algorithm, ssh_key(algorithm)));
    let tls = tls_key(KeyAlgorithm::EcdsaP256);
    for suite in Suite::ALL {
        let cluster = Cluster::with_suite("prod", *suite);
        let key = trusted_user_ca_lines(&cluster.trust);
        fs::write(dir.path().join("allowed"), format!("root cert-authority {key}")).unwrap();
        for (algorithm, ssh) in &keys {
            let (ssh, tls) = (ssh.clone(), tls.clone());
            let user = cluster.certify_user(&alice(), ssh, tls, cluster.now, Duration::hours(1));
            let certificate = Certificate::from_openssh(&user.certificates.ssh).unwrap();
            let identity = cluster.trust.verify_user_ssh(&certificate, cluster.now).unwrap();
            assert_eq!(identity.display_name(), "alice", "{suite} {algorithm}");

            let host = cluster.certify_host("web-1", HostRole::Node, &[], user.ssh, user.tls);
            let certificate = Certificate::from_openssh(&host.certificates.ssh).unwrap();
            cluster.trust.verify_host_ssh(&certificate, "web-1", cluster.now).unwrap();

            // ssh-keygen checks the signature of the CA, the time and the principal.
            write_secret(&dir.path().join("id"), &host.ssh.private_openssh());
            fs::write(dir.path().join("id-cert.pub"), &user.certificates.ssh).unwrap();
            fs::write(dir.path().join("id.pub"), host.ssh.public_line()).unwrap();
            let _ = fs::remove_file(dir.path().join("message.sig"));
            let sign = ["-Y", "sign", "-f", "id-cert.pub", "-n", "test", "message"];
            let Some((ok, text)) = run("ssh-keygen", &sign, dir.path()) else { continue };
            assert!(ok, "{suite} {algorithm}: {text}");
            let verify = "ssh-keygen -Y verify -f allowed -I root -n test -s message.sig < message";
            let (ok, text) = run("sh", &["-c", verify], dir.path()).unwrap();
            assert!(ok, "{suite} {algorithm}: {text}");
        }
    }
}

#[test]
fn every_suite_certifies_tls_keys_of_every_type() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    let keys = TLS.map(|algorithm| (algorithm, tls_key(algorithm)));
    let ssh = ssh_key(KeyAlgorithm::Ed25519);
    for suite in Suite::ALL {
        let cluster = Cluster::with_suite("prod", *suite);
        write("users.pem", &cluster.trust.tls_certificates_pem(CaKind::User));
        for (algorithm, tls) in &keys {
            let (ssh, tls) = (ssh.clone(), tls.clone());
            let user = cluster.certify_user(&alice(), ssh, tls, cluster.now, Duration::hours(1));
            let der = leaf(&user.certificates.tls_pem);
            let identity = cluster.trust.identify_tls(&der, cluster.now).unwrap();
            assert_eq!(identity.display_name(), "alice", "{suite} {algorithm}");

            write("alice.pem", &user.certificates.tls_pem);
            let verify =
                ["verify", "-x509_strict", "-CAfile", "users.pem", "-purpose", "sslclient", "alice.pem"];
            let Some((ok, text)) = run("openssl", &verify, dir.path()) else { continue };
            if algorithm.kind() == KeyKind::MlDsa {
                println!("skipped: openssl 3.0 has no {algorithm}");
                assert!(!ok, "{text}");
            } else {
                assert!(ok, "{suite} {algorithm}: {text}");
            }
        }
    }
}

#[test]
fn keys_that_no_holder_should_have_are_not_certified() {
    let cluster = Cluster::new("prod");
    let tls = tls_key(KeyAlgorithm::EcdsaP256);
    let refused = |line: &str| {
        let issued = issue_user(
            &cluster.users,
            &alice(),
            line,
            tls.spki_der(),
            cluster.now,
            Duration::hours(1),
            &SshOptions::default(),
        );
        let error = issued.unwrap_err();
        assert!(matches!(error, CaError::BadPublicKey { which: "SSH", .. }), "{line}: {error}");
        error.to_string()
    };
    for bits in [512, 1024, 2047, 2049, 8193, 16384] {
        let error = refused(&rsa_line(bits, &[1, 0, 1]));
        assert!(error.contains("RSA with 2048, 3072, 4096 or 8192 bits"), "{error}");
    }
    for exponent in [&[1_u8][..], &[2], &[1, 0, 0], &[1, 0, 0, 0, 1]] {
        refused(&rsa_line(2048, exponent));
    }
    let mut dsa = Vec::new();
    put(&mut dsa, b"ssh-dss");
    for (length, top) in [(129, 0), (21, 0), (128, 0x7f), (128, 0x7f)] {
        let mut number = vec![0x55; length];
        (number[0], number[1]) = (top, 0x80);
        put(&mut dsa, &number);
    }
    let error = refused(&format!("ssh-dss {}", data_encoding::BASE64.encode(&dsa)));
    assert!(error.contains("ssh-dss keys are not certified"), "{error}");
    refused("ssh-unknown AAAAC3NzaC11bmtub3du");
    refused("");

    let ssh = ssh_key(KeyAlgorithm::Ed25519);
    for bits in [1024, 2047, 8193] {
        let (ttl, options) = (Duration::hours(1), SshOptions::default());
        let spki = rsa_spki(bits);
        let issued =
            issue_user(&cluster.users, &alice(), ssh.public_line(), &spki, cluster.now, ttl, &options);
        let error = issued.unwrap_err();
        assert!(matches!(error, CaError::BadPublicKey { which: "TLS", .. }), "{bits}: {error}");
    }
}

/// The line of an RSA key without a private half.
fn rsa_line(bits: usize, exponent: &[u8]) -> String {
    let modulus = modulus(bits);
    let mut blob = Vec::new();
    put(&mut blob, b"ssh-rsa");
    put(&mut blob, exponent);
    put(&mut blob, &modulus);
    format!("ssh-rsa {} alice", data_encoding::BASE64.encode(&blob))
}

/// The SubjectPublicKeyInfo of such a key.
fn rsa_spki(bits: usize) -> Vec<u8> {
    let der = |tag: u8, content: &[u8]| {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        match content.len() {
            short @ 0..=0x7f => [&[tag, u8::try_from(short).unwrap()], content].concat(),
            0x80..=0xff => [&[tag, 0x81, length[1]], content].concat(),
            _ => [&[tag, 0x82, length[0], length[1]], content].concat(),
        }
    };
    let key = der(0x30, &[der(0x02, &modulus(bits)), der(0x02, &[1, 0, 1])].concat());
    let algorithm = KeyAlgorithm::Rsa2048.spki_algorithm_der();
    der(0x30, &[algorithm, &der(0x03, &[&[0], key.as_slice()].concat())].concat())
}

fn modulus(bits: usize) -> Vec<u8> {
    let mut modulus = vec![0x55; bits.div_ceil(8)];
    modulus[0] = 1 << ((bits - 1) % 8);
    if modulus[0] & 0x80 != 0 {
        modulus.insert(0, 0);
    }
    modulus
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&u32::try_from(bytes.len()).unwrap().to_be_bytes());
    out.extend_from_slice(bytes);
}
