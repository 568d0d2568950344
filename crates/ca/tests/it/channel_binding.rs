//! The channel binding to a database server's certificate (RFC 5929 §4), held against certificates and hashes of OpenSSL.

use std::fs;
use std::path::Path;
use std::process::Command;

use sallyport_ca::tls::database::server_end_point;

fn openssl(directory: &Path, arguments: &[&str]) -> Vec<u8> {
    let out = Command::new("openssl").args(arguments).current_dir(directory).output();
    let out = out.unwrap_or_else(|error| panic!("openssl: {error}; install the package openssl"));
    assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    out.stdout
}

#[test]
fn a_certificate_is_bound_to_by_the_hash_of_its_signature_where_that_has_one() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    fs::write(directory.join("config"), "[req]\ndistinguished_name = name\n[name]\n").unwrap();
    openssl(directory, &["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", "rsa"]);
    openssl(directory, &["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", "ec"]);
    openssl(directory, &["genpkey", "-algorithm", "ED25519", "-out", "ed25519"]);
    for (key, signed, hash) in [
        ("rsa", &["-md5"][..], Some("-sha256")),
        ("rsa", &["-sha1"], Some("-sha256")),
        ("rsa", &["-sha256"], Some("-sha256")),
        ("rsa", &["-sha384"], Some("-sha384")),
        ("rsa", &["-sha512"], Some("-sha512")),
        ("rsa", &["-sha1", "-sigopt", "rsa_padding_mode:pss"], Some("-sha256")),
        ("rsa", &["-sha256", "-sigopt", "rsa_padding_mode:pss"], Some("-sha256")),
        ("rsa", &["-sha384", "-sigopt", "rsa_padding_mode:pss"], Some("-sha384")),
        ("rsa", &["-sha512", "-sigopt", "rsa_padding_mode:pss"], Some("-sha512")),
        ("ec", &["-sha1"], Some("-sha256")),
        ("ec", &["-sha256"], Some("-sha256")),
        ("ec", &["-sha384"], Some("-sha384")),
        ("ec", &["-sha512"], Some("-sha512")),
        ("rsa", &["-sha224"], None),
        ("ed25519", &[], None),
    ] {
        let make = ["req", "-x509", "-config", "config", "-subj", "/CN=db", "-key", key];
        openssl(directory, &[&make[..], &["-outform", "DER", "-out", "certificate"], signed].concat());
        let certificate = fs::read(directory.join("certificate")).unwrap();
        let expected = hash.map(|hash| openssl(directory, &["dgst", hash, "-binary", "certificate"]));
        assert_eq!(server_end_point(&certificate), expected, "{key} {signed:?}");
        // Bytes that follow, or are missing, make it no certificate.
        assert_eq!(server_end_point(&[&certificate[..], &[0]].concat()), None);
        assert_eq!(server_end_point(&certificate[..certificate.len() - 1]), None);
    }
}
