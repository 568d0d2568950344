//! What is known in general and concerns a change of suite.

use super::{Ability, FACTS, Fact, Has, Product, Version};
use crate::algorithm::KeyKind;
use crate::suite::{HybridKeyExchange, KeyPurpose, Suite};

/// Sentences for the person who decides: who is known to be concerned by a change, whether or not they were seen.
#[must_use]
pub fn notes(from: Suite, to: Suite) -> Vec<String> {
    let mut notes = Vec::new();
    let becomes = |purpose: KeyPurpose, kind: KeyKind| {
        from.algorithm(purpose) != to.algorithm(purpose) && to.algorithm(purpose).kind() == kind
    };
    if to.key_exchange() == HybridKeyExchange::Required && from.key_exchange() != to.key_exchange() {
        notes.push(format!("SSH clients with mlkem768x25519-sha256: {}", from_version(Ability::HybridSsh)));
        notes.push(
            "the public pages go on accepting classical key exchange; users and hosts of the cluster do not"
                .to_owned(),
        );
    }
    if becomes(KeyPurpose::UserSsh, KeyKind::Ed25519) || becomes(KeyPurpose::HostSsh, KeyKind::Ed25519) {
        notes.push(format!("SSH clients with Ed25519: {}", from_version(Ability::Ed25519Ssh)));
    }
    if becomes(KeyPurpose::UserSsh, KeyKind::Rsa) || becomes(KeyPurpose::HostSsh, KeyKind::Rsa) {
        notes.push(format!("SSH clients with RSA and SHA-2: {}", from_version(Ability::RsaSha2Ssh)));
        for fact in facts(Ability::Rsa2048Ssh).filter(|fact| !fact.note.is_empty()) {
            notes.push(format!("{} from {}: {}", fact.product.name(), fact.from, fact.note));
        }
    }
    if becomes(KeyPurpose::HostTls, KeyKind::MlDsa) {
        notes.push(
            "ML-DSA certificates are shown to this project's own programs only; browsers and others get the page's certificate"
                .to_owned(),
        );
    }
    if becomes(KeyPurpose::JwtCa, KeyKind::Ecdsa) {
        notes
            .push("applications that verify the cluster's tokens must know ES256 (RFC 7518 §3.4)".to_owned());
    }
    if from.algorithm(KeyPurpose::UserTls) != to.algorithm(KeyPurpose::UserTls) {
        for fact in FACTS.iter().filter(|fact| fact.product == Product::CloudFront && fact.has == Has::No) {
            notes.push(format!("{}: no {} ({})", fact.product.name(), fact.ability.name(), fact.note));
        }
    }
    notes
}

fn facts(ability: Ability) -> impl Iterator<Item = &'static Fact> {
    FACTS.iter().filter(move |fact| fact.ability == ability)
}

/// Every product's first version that has it: `OpenSSH 9.9, PuTTY 0.83, ...`.
fn from_version(ability: Ability) -> String {
    let first = Product::ALL.iter().filter(|product| **product != Product::Sallyport).filter_map(|product| {
        let have = facts(ability).filter(|fact| fact.product == *product && fact.has != Has::No);
        have.min_by_key(|fact| fact.from)
    });
    let told: Vec<String> = first
        .map(|fact| {
            let version = if fact.from == Version::FIRST { String::new() } else { format!(" {}", fact.from) };
            let note = if fact.has == Has::Depends { format!(" ({})", fact.note) } else { String::new() };
            format!("{}{version}{note}", fact.product.name())
        })
        .collect();
    told.join(", ")
}
