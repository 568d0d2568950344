//! The conformance suite: every provider of this build runs it for every primitive that it offers.
//!
//! Vectors come from Wycheproof, from RFCs, FIPS and NIST's ACVP, and from our own collection at the edge of what may
//! be accepted; then whatever one provider makes is given to every other. What was run is counted in
//! `docs/conformance.md`, which must say what is true; after a change that moves the counts, refresh it with
//!
//! ```text
//! CONFORMANCE_REFRESH=1 cargo test -p sallyport-sal --test conformance
//! ```
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "tests state what must hold; an unwrap here is an assertion"
)]

mod agreement;
mod ciphers;
mod crossed;
mod derivation;
mod digests;
mod document;
mod encapsulation;
mod encoding;
mod hybrids;
mod known;
mod layered;
mod outcome;
mod private_keys;
mod report;
mod signatures;

use std::sync::LazyLock;

use outcome::OUTCOME;

#[test]
fn every_provider_gives_the_right_answers() {
    let failures: Vec<_> = OUTCOME.reports.values().flat_map(|report| &report.failures).collect();
    for failure in failures.iter().take(200) {
        println!("{failure}");
    }
    assert!(failures.is_empty(), "{} vectors failed", failures.len());
}

#[test]
fn every_exception_is_needed() {
    let used: Vec<_> = OUTCOME.reports.values().flat_map(|report| &report.excuses).collect();
    let idle: Vec<_> = known::DEVIATIONS
        .iter()
        .enumerate()
        // A provider that the CPU or the build leaves out cannot show that it still deviates.
        .filter(|(at, known)| OUTCOME.reports.contains_key(known.provider) && !used.contains(&at))
        .map(|(_, known)| format!("{}: {} {}", known.provider, known.set, known.what))
        .collect();
    assert!(idle.is_empty(), "remove what excuses nothing from known.rs: {idle:#?}");
}

#[test]
fn every_offer_was_put_to_the_proof() {
    for (provider, primitive) in outcome::offers() {
        let run: usize = OUTCOME.reports[provider.name()]
            .tallies
            .iter()
            .filter(|((of, _), _)| *of == primitive)
            .map(|(_, tally)| tally.run())
            .sum();
        let excused = document::NOT_RUN.iter().any(|(of, _)| *of == primitive);
        assert!(run > 0 || excused, "{} offers {primitive}, and nothing was run for it", provider.name());
    }
}

/// What the layer accepts does not depend on its source, and what any provider has a reason to refuse it refuses.
#[test]
fn the_layer_gives_one_answer_and_it_is_the_strictest() {
    let mut wrong = Vec::new();
    for (case, verdicts) in OUTCOME.verdicts() {
        let one = verdicts.layer_accepted.is_empty() || verdicts.layer_refused.is_empty();
        if !one || (!verdicts.refused.is_empty() && !verdicts.layer_accepted.is_empty()) {
            wrong.push(format!("{} {} {} ({}): {verdicts:?}", case.primitive, case.set, case.id, case.note));
        }
    }
    for line in &wrong {
        println!("{line}");
    }
    assert!(wrong.is_empty(), "{} vectors are answered as the source pleases", wrong.len());
}

/// Whatever a peer sends is refused at most; it must not cost a source its service.
#[test]
fn no_vector_took_a_source_out_of_service() {
    LazyLock::force(&OUTCOME);
    let incidents: Vec<_> = outcome::LAYERED.iter().flat_map(|layered| layered.incidents()).collect();
    assert!(incidents.is_empty(), "{incidents:#?}");
}

/// Keys for the lab are measured, and no peer may have one.
#[test]
fn a_key_for_the_lab_is_refused_from_a_peer() {
    use sallyport_sal::PublicKey;
    use sallyport_sal::algorithm::KeyAlgorithm;
    let small = private_keys::rsa_key(KeyAlgorithm::Rsa1024);
    let spki = sallyport_sal::formats::spki::encode(KeyAlgorithm::Rsa1024, small.public());
    assert!(PublicKey::from_spki_der(&spki).is_err());
    let large = private_keys::rsa_key(KeyAlgorithm::Rsa2048);
    let spki = sallyport_sal::formats::spki::encode(KeyAlgorithm::Rsa2048, large.public());
    assert!(PublicKey::from_spki_der(&spki).is_ok());
}

#[test]
fn the_document_says_what_was_run() {
    document::check_or_refresh(&OUTCOME);
}
