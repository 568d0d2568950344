//! Whatever a file holds, reading it ends: with a key that has been proven or with an error, in bounded time and memory.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use der::Encode as _;
use pkcs5::EncryptionScheme;
use pkcs5::pbes2::{EncryptionScheme as Cipher, Parameters, Pbkdf2Params, Pbkdf2Prf, Salt, ScryptParams};
use proptest::collection::vec;
use proptest::prelude::*;
use sallyport_sal::algorithm::Standing;
use sallyport_sal::formats::danger::{self, Cost};
use sallyport_sal::formats::{
    self, Format, FormatError, PublicFormat, jwk, openssh, pkcs1, pkcs8, sec1, spki,
};
use sallyport_sal::{KeyAlgorithm, PrivateKeyMaterial, PublicKey};

use crate::kept;

/// Nothing here depends on how slow a key is derived.
const QUICK: Cost = Cost { pbkdf2_iterations: 10, bcrypt_rounds: 1 };

/// What a key looks like on its way through each parser: the function, and bytes that it takes.
struct Sample {
    read: fn(&[u8]) -> Result<PrivateKeyMaterial, FormatError>,
    bytes: Vec<u8>,
}

fn samples() -> &'static [Sample] {
    static SAMPLES: OnceLock<Vec<Sample>> = OnceLock::new();
    SAMPLES.get_or_init(|| {
        let mut samples = Vec::new();
        for algorithm in [
            KeyAlgorithm::Ed25519,
            KeyAlgorithm::EcdsaP256,
            KeyAlgorithm::EcdsaP521,
            KeyAlgorithm::Rsa2048,
            KeyAlgorithm::MlDsa44,
        ] {
            let key = kept::key(algorithm).material().clone();
            for format in Format::ALL.iter().filter(|format| format.holds(algorithm)) {
                let bytes = formats::write_private(&key, *format, None).unwrap().to_vec();
                // Below the base64, where a change is not caught by the first check.
                let inner = |bytes: &[u8]| {
                    let text = String::from_utf8(bytes.to_vec()).unwrap();
                    let text: String = text.lines().filter(|line| !line.starts_with('-')).collect();
                    data_encoding::BASE64.decode(text.as_bytes()).unwrap()
                };
                samples.push(match format {
                    Format::Sec1Pem => Sample { read: sec1::decode, bytes: inner(&bytes) },
                    Format::Pkcs1Pem => Sample { read: pkcs1::decode, bytes: inner(&bytes) },
                    Format::OpenSsh => Sample {
                        read: |bytes| openssh::decode(bytes, None).map(|(key, _)| key),
                        bytes: inner(&bytes),
                    },
                    Format::Jwk => Sample { read: jwk::decode_private, bytes },
                    Format::Pkcs8Der => Sample { read: pkcs8::decode, bytes },
                    _ => Sample { read: |bytes| formats::read_private(bytes, None), bytes },
                });
            }
            for format in [Format::Pkcs8Pem, Format::Pkcs8Der, Format::OpenSsh] {
                if let Ok(bytes) = danger::write_private_at_cost(&key, format, Some(b"passphrase"), QUICK) {
                    // Without a passphrase, so that no mutation can make the test slow.
                    samples.push(Sample {
                        read: |bytes| formats::read_private(bytes, None),
                        bytes: bytes.to_vec(),
                    });
                }
            }
            let public = PublicKey::from_raw(algorithm, key.public()).unwrap();
            for format in PublicFormat::ALL {
                if let Ok(bytes) = formats::write_public(&public, *format) {
                    samples.push(Sample { read: |bytes| formats::read_private(bytes, None), bytes });
                }
            }
        }
        samples
    })
}

/// A change to a file. Places are fractions of its length.
#[derive(Debug, Clone)]
enum Edit {
    Set(usize, u8),
    Flip(usize, u8),
    Insert(usize, u8),
    Remove(usize),
    Cut(usize),
    Repeat(usize, usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let place = any::<usize>();
    prop_oneof![
        1 => (place, any::<u8>()).prop_map(|(at, byte)| Edit::Set(at, byte)),
        4 => (place, 0..8u8).prop_map(|(at, bit)| Edit::Flip(at, bit)),
        1 => (place, any::<u8>()).prop_map(|(at, byte)| Edit::Insert(at, byte)),
        1 => place.prop_map(Edit::Remove),
        1 => place.prop_map(Edit::Cut),
        1 => (place, 1..40usize).prop_map(|(at, length)| Edit::Repeat(at, length)),
    ]
}

fn apply(bytes: &mut Vec<u8>, edit: &Edit) {
    if bytes.is_empty() {
        return;
    }
    let length = bytes.len();
    match *edit {
        Edit::Set(at, byte) => bytes[at % length] = byte,
        Edit::Flip(at, bit) => bytes[at % length] ^= 1 << bit,
        Edit::Insert(at, byte) => bytes.insert(at % length, byte),
        Edit::Remove(at) => drop(bytes.remove(at % length)),
        Edit::Cut(at) => bytes.truncate(at % length),
        Edit::Repeat(at, many) => {
            let at = at % length;
            let part = bytes[at..(at + many).min(length)].to_vec();
            bytes.splice(at..at, part);
        }
    }
}

/// Reads by every door. What is read has been proven, whatever the bytes were.
fn read_all(bytes: &[u8]) {
    for read in
        [formats::read_private(bytes, None), pkcs8::decode(bytes), sec1::decode(bytes), pkcs1::decode(bytes)]
    {
        check(read);
    }
    check(openssh::decode(bytes, None).map(|(key, _)| key));
    let _ = formats::read_public(bytes);
    let _ = spki::decode(bytes);
    let _ = pkcs1::decode_public(bytes);
    let _ = jwk::decode_public(bytes);
    let _ = openssh::decode_line(&String::from_utf8_lossy(bytes));
}

fn check(read: Result<PrivateKeyMaterial, FormatError>) {
    match read {
        Ok(key) => {
            assert_eq!(key.algorithm().standing(), Standing::Full);
            formats::prove(&key).unwrap();
        }
        Err(error) => assert!(error.to_string().len() < 400, "{error}"),
    }
}

/// Below the base64, in the structures themselves.
#[test]
fn every_structure_that_is_cut_short_is_refused() {
    for sample in samples() {
        for cut in 0..sample.bytes.trim_ascii_end().len() {
            assert!((sample.read)(&sample.bytes[..cut]).is_err(), "cut at {cut}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_or_refused(
        head in prop::sample::select(vec![
            &b""[..], b"0", b"\x30\x80", b"\x30\x82\x01", b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22",
            b"{\"kty\":\"", b"-----BEGIN PRIVATE KEY-----\n", b"openssh-key-v1\0", b"ssh-ed25519 AAAA",
        ]),
        tail in vec(any::<u8>(), 0..200),
    ) {
        read_all(&[head, &tail].concat());
    }

    #[test]
    fn any_change_leaves_a_key_or_an_error(
        sample in 0..1000usize,
        edits in vec(edit(), 1..6),
    ) {
        let samples = samples();
        let sample = &samples[sample % samples.len()];
        let mut bytes = sample.bytes.clone();
        for edit in &edits {
            apply(&mut bytes, edit);
        }
        check((sample.read)(&bytes));
        read_all(&bytes);
    }

    /// One bit, which is the change that the fewest checks see.
    #[test]
    fn a_flipped_bit_never_gives_another_rsa_key(at in any::<usize>(), bit in 0..8u8) {
        static KEY: OnceLock<PrivateKeyMaterial> = OnceLock::new();
        let key = KEY.get_or_init(|| kept::key(KeyAlgorithm::Rsa2048).material().clone());
        let mut bytes = key.secret().to_vec();
        apply(&mut bytes, &Edit::Flip(at, bit));
        prop_assert!(pkcs1::decode(&bytes).is_err());
    }
}

/// An encrypted PKCS#8 file with nothing in it but the wish for work.
fn encrypted(kdf: pkcs5::pbes2::Kdf) -> Vec<u8> {
    let parameters = Parameters { kdf, encryption: Cipher::Aes256Cbc { iv: [0; 16] } };
    let scheme = EncryptionScheme::from(parameters).to_der().unwrap();
    let mut file = match u8::try_from(scheme.len() + 34).unwrap() {
        length @ ..0x80 => vec![0x30, length],
        length => vec![0x30, 0x81, length],
    };
    file.extend_from_slice(&scheme);
    file.extend_from_slice(&[0x04, 32]);
    file.extend_from_slice(&[7; 32]);
    file
}

fn quickly<T>(work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let done = work();
    // Generous, as it takes milliseconds: a busy machine is slow, and what was asked for takes minutes.
    assert!(start.elapsed() < Duration::from_secs(10), "took {:?}", start.elapsed());
    done
}

#[test]
fn a_file_cannot_ask_for_endless_work() {
    let salt = Salt::new([1; 16]).unwrap();
    let scrypt = |cost_parameter, block_size, parallelization| {
        encrypted(ScryptParams { salt, cost_parameter, block_size, parallelization, key_length: None }.into())
    };
    for (n, r, p) in [
        (1 << 19, 8, 1),
        (1 << 20, 8, 1),
        (u64::MAX / 2 + 1, u16::MAX, u16::MAX),
        (1 << 18, 8, 3),
        (2, u16::MAX, u16::MAX),
        (1 << 14, 8, 300),
    ] {
        let refused = quickly(|| formats::read_private(&scrypt(n, r, p), Some(b"x")).unwrap_err());
        assert!(matches!(refused, FormatError::TooCostly { .. }), "N={n} r={r} p={p}: {refused}");
    }
    assert_eq!(
        formats::read_private(&scrypt(1 << 20, 8, 1), None).unwrap_err().to_string(),
        "the encrypted PKCS#8 private key asks for scrypt with N=1048576, r=8, p=1, the most that is spent on a file \
         is 256 MiB of memory (128*N*r), filled 2 times"
    );
    // What scrypt itself does not have.
    for (n, r, p) in [(0, 8, 1), (1, 8, 1), (3, 8, 1), (1 << 14, 0, 1), (1 << 14, 8, 0)] {
        let refused = quickly(|| formats::read_private(&scrypt(n, r, p), Some(b"x")).unwrap_err());
        assert!(matches!(refused, FormatError::Malformed { .. }), "N={n} r={r} p={p}: {refused}");
    }
    let pbkdf2 = |iteration_count| {
        let prf = Pbkdf2Prf::HmacWithSha256;
        encrypted(Pbkdf2Params { salt, iteration_count, key_length: None, prf }.into())
    };
    for iterations in [pkcs8::MAX_PBKDF2_ITERATIONS + 1, u32::MAX] {
        let refused = quickly(|| formats::read_private(&pbkdf2(iterations), Some(b"x")).unwrap_err());
        assert!(matches!(refused, FormatError::TooCostly { .. }), "{refused}");
    }
    let refused = quickly(|| formats::read_private(&pbkdf2(0), Some(b"x")).unwrap_err());
    assert!(matches!(refused, FormatError::Malformed { .. }), "{refused}");
    // Within bounds, with a passphrase that does not open it.
    for file in [scrypt(1 << 10, 8, 1), pbkdf2(1000)] {
        let refused = quickly(|| formats::read_private(&file, Some(b"x")).unwrap_err());
        assert!(matches!(refused, FormatError::WrongPassphrase { .. }), "{refused}");
    }
}

#[test]
fn an_openssh_file_cannot_ask_for_endless_work() {
    let string = |bytes: &[u8]| {
        let mut string = u32::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
        string.extend_from_slice(bytes);
        string
    };
    let file = |cipher: &str, kdf: &str, salt: &[u8], rounds: u32, keys: u32| {
        let mut options = string(salt);
        options.extend_from_slice(&rounds.to_be_bytes());
        [
            b"openssh-key-v1\0".to_vec(),
            string(cipher.as_bytes()),
            string(kdf.as_bytes()),
            string(&options),
            keys.to_be_bytes().to_vec(),
            string(b"public"),
            string(&[7; 64]),
        ]
        .concat()
    };
    let refusal = |file: Vec<u8>| quickly(|| openssh::decode(&file, Some(b"x")).unwrap_err().to_string());
    assert_eq!(
        refusal(file("aes256-ctr", "bcrypt", &[1; 16], u32::MAX, 1)),
        "the OpenSSH private key asks for 4294967295 rounds of bcrypt, the most that is spent on a file is 512"
    );
    assert!(refusal(file("aes256-ctr", "bcrypt", &[1; 16], 0, 1)).contains("without rounds or salt"));
    assert!(refusal(file("aes256-ctr", "bcrypt", &[], 1, 1)).contains("without rounds or salt"));
    assert!(
        refusal(file("aes256-ctr", "bcrypt", &[1; 16], 1, 1)).contains("does not open with this passphrase")
    );
    assert!(refusal(file("aes256-ctr", "bcrypt", &[1; 16], 1, 2)).contains("2 keys"));
    assert!(
        refusal(file("aes256-ctr", "scrypt", &[1; 16], 1, 1))
            .contains("encrypted with \"scrypt\" and \"aes256-ctr\"")
    );
    assert!(refusal(file("none", "bcrypt", &[1; 16], 1, 1)).contains("encrypted with"));
    assert!(refusal(file("none", "none", &[1; 16], 1, 1)).contains("there is none"));
    assert!(
        refusal(file("aes256-gcm@openssh.com", "bcrypt", &[1; 16], 1, 1)).contains("not the cipher's tag")
    );
}
