#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use proptest::prelude::*;
use sallyport_sal::formats::{Format, PublicFormat, write_private, write_public};
use sallyport_sal::measure::certificate::{Role, issue};
use sallyport_sal::strength::{Curve, Problem};
use sallyport_sal::{KeyAlgorithm, MemoryKey, Signer as _};

use super::*;

fn only(bytes: &[u8]) -> Found {
    let contents =
        read(bytes).unwrap_or_else(|error| panic!("{error}: {:?}", String::from_utf8_lossy(bytes)));
    assert_eq!(contents.found.len(), 1, "{contents:?}");
    contents.found.into_iter().next().unwrap()
}

fn problem(algorithm: KeyAlgorithm) -> Problem {
    algorithm.name().parse().unwrap()
}

#[test]
fn every_form_that_we_write_is_read() {
    for algorithm in [
        KeyAlgorithm::Ed25519,
        KeyAlgorithm::EcdsaP256,
        KeyAlgorithm::EcdsaP384,
        KeyAlgorithm::Rsa2048,
        KeyAlgorithm::MlDsa65,
    ] {
        let key = MemoryKey::generate(algorithm).unwrap();
        for format in Format::ALL.iter().filter(|format| format.holds(algorithm)) {
            let written = write_private(key.material(), *format, None).unwrap();
            assert_eq!(only(&written).key, Key::Known(problem(algorithm)), "{algorithm} {format}");
        }
        for format in PublicFormat::ALL {
            let Ok(written) = write_public(&key.public_key(), *format) else { continue };
            assert_eq!(only(&written).key, Key::Known(problem(algorithm)), "{algorithm} {format}");
        }
        let der = issue(&key.public_key(), 7, Role::Leaf, &key, 1).unwrap();
        let found = only(&der);
        assert_eq!(found.key, Key::Known(problem(algorithm)));
        assert_eq!(found.what, "certificate of measurement 7, issued by measurement 1");
        assert!(found.signature.unwrap().matters);
        let der = issue(&key.public_key(), 1, Role::Authority, &key, 1).unwrap();
        assert!(!only(&der).signature.unwrap().matters, "a root's own signature");
    }
}

#[test]
fn an_encrypted_key_is_read_where_its_public_half_is_in_the_clear() {
    let key = MemoryKey::generate(KeyAlgorithm::Ed25519).unwrap();
    let written = write_private(key.material(), Format::OpenSsh, Some(b"secret")).unwrap();
    let found = only(&written);
    assert_eq!(found.key, Key::Known(Problem::Curve(Curve::Ed25519)));
    assert!(found.what.starts_with("encrypted private key"), "{found:?}");
    for format in [Format::Pkcs8Pem, Format::Pkcs8Der] {
        let written = write_private(key.material(), format, Some(b"secret")).unwrap();
        assert!(read(&written).unwrap_err().to_string().contains("encrypted private key"), "{format}");
    }
}

#[test]
fn what_is_no_key_is_named() {
    for (bytes, said) in [
        (&b""[..], "empty"),
        (b" \n", "empty"),
        (b"hello", "not a key"),
        (b"\x00\x01\x02\x03\xff", "binary"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA", "cut short"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "does not go on"),
        (b"-----BEGIN PGP MESSAGE-----\nAAAA\n-----END PGP MESSAGE-----\n", "nothing that holds a key"),
        (b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END RSA PRIVATE KEY-----\n", "encrypted"),
        (b"{}", "JSON Web Key"),
        (b"{\"kty\":", "JSON"),
        (b"\x30\x82\xff\xff\x02\x01", "cut short"),
        (b"PuTTY-User-Key-File-3: ssh-rsa\r\nPublic-Lines: 99999999\r\n", "PuTTY"),
    ] {
        let error = read(bytes).unwrap_err().to_string();
        assert!(error.contains(said), "{bytes:?}: {error}");
    }
}

#[test]
fn lines_have_their_numbers_also_behind_blank_ones() {
    let key = MemoryKey::generate(KeyAlgorithm::Ed25519).unwrap();
    let line = write_public(&key.public_key(), PublicFormat::OpenSsh).unwrap();
    let contents = read(&[b"\n\n", line.as_slice(), b"\nnonsense\n"].concat()).unwrap();
    assert_eq!(contents.found[0].place, "line 3");
    assert!(
        contents.notes[0].contains("holds no key") && contents.notes[0].starts_with("line "),
        "{contents:?}"
    );
}

#[test]
fn what_is_no_file_is_refused_and_no_reader_waits_for_ever() {
    let said = |path: &str| file(Path::new(path)).unwrap_err().to_string();
    assert!(said("/dev/zero").contains("is a device"), "{}", said("/dev/zero"));
    assert!(said("/").contains("is a directory"), "{}", said("/"));
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let began = std::time::Instant::now();
    let error = pipe(&fifo, Duration::from_millis(300)).unwrap_err().to_string();
    assert!(error.contains("no program wrote a whole file into it within 0.3 s"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(10));
    let fifo = directory.path().join("another");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let key = MemoryKey::generate(KeyAlgorithm::Ed25519).unwrap();
    let line = write_public(&key.public_key(), PublicFormat::OpenSsh).unwrap();
    let to = fifo.clone();
    let writing = std::thread::spawn(move || std::fs::write(to, line).unwrap());
    assert_eq!(pipe(&fifo, Duration::from_secs(20)).unwrap().found.len(), 1);
    writing.join().unwrap();
}

#[test]
fn names_of_others_do_not_write_on_the_terminal() {
    assert_eq!(printable(b"a\x1b[2Jb\r\n\xe2\x80\xaec"), "a[2Jbc");
    assert_eq!(printable(&[b'x'; 100]).chars().count(), 65);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn noise_is_refused_or_read_and_never_worse(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = read(&bytes);
        let _ = blob(&bytes);
        let _ = certificate(&bytes);
        let _ = asn1::whole(&bytes);
    }

    #[test]
    fn changed_files_are_refused_or_read(at in 0_usize..4000, byte in any::<u8>(), cut in 0_usize..4000) {
        static FILES: std::sync::OnceLock<Vec<Vec<u8>>> = std::sync::OnceLock::new();
        let files = FILES.get_or_init(|| {
            let key = MemoryKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
            let mut files: Vec<Vec<u8>> =
                Format::ALL.iter().filter(|format| format.holds(key.algorithm()))
                    .map(|format| write_private(key.material(), *format, None).unwrap().to_vec()).collect();
            files.push(issue(&key.public_key(), 7, Role::Leaf, &key, 1).unwrap());
            files.push(write_public(&key.public_key(), PublicFormat::OpenSsh).unwrap());
            files
        });
        for file in files {
            let mut file = file.clone();
            let length = file.len();
            file[at % length] = byte;
            let _ = read(&file);
            file.truncate(cut % length);
            let _ = read(&file);
        }
    }
}
