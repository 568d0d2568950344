//! Whether a client can follow a cluster from one suite to another.

use super::{Ability, Has, Kind, Offer, Software, known};
use crate::algorithm::{KexGroup, KeyAlgorithm, KeyKind};
use crate::suite::{HybridKeyExchange, KeyPurpose, Suite};

/// How sure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It may work or not.
    Unsure,
    /// It will not work.
    Breaks,
}

/// When a change is felt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// With the suite itself: key exchange, and the hosts' new keys.
    AtOnce,
    /// With a user's next login.
    NextLogin,
    /// With the rotation of the CA that has this key.
    Rotation(KeyPurpose),
}

/// Why a client cannot follow, or may not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How sure it is.
    pub verdict: Verdict,
    /// When it is felt.
    pub effect: Effect,
    /// What it lacks, a clause behind the client's name: `offers no mlkem768x25519-sha256`.
    pub reason: String,
}

impl Finding {
    fn new(verdict: Verdict, effect: Effect, reason: String) -> Self {
        Self { verdict, effect, reason }
    }
}

/// The protocols that only this project speaks begin so (`wire::alpn`).
const OWN_PROTOCOLS: &str = "sallyport-";

/// Why this client would not, or might not, work any more when a cluster goes from one suite to another. Nothing is
/// found in a client that fails already.
#[must_use]
pub fn judge(offer: &Offer, from: Suite, to: Suite) -> Vec<Finding> {
    let is_own = offer.kind == Kind::Sallyport
        || offer.protocols.iter().any(|protocol| protocol.starts_with(OWN_PROTOCOLS));
    match offer.kind {
        Kind::Ssh => ssh(offer, from, to),
        Kind::Sallyport | Kind::Tls | Kind::Http => tls(offer, is_own, from, to),
    }
}

/// Whether a client is known to offer hybrid key exchange, by its identification alone.
#[must_use]
pub fn known_hybrid_ssh(identification: &str) -> bool {
    let known = Software::of_ssh(identification).and_then(|software| known(&software, Ability::HybridSsh));
    matches!(known, Some((Has::Yes, _)))
}

fn required(from: Suite, to: Suite) -> bool {
    to.key_exchange() == HybridKeyExchange::Required && from.key_exchange() != HybridKeyExchange::Required
}

/// The algorithms of a purpose before and after, when they differ.
fn change(purpose: KeyPurpose, from: Suite, to: Suite) -> Option<(KeyAlgorithm, KeyAlgorithm)> {
    let (before, after) = (from.algorithm(purpose), to.algorithm(purpose));
    (before != after).then_some((before, after))
}

/// What a product is known to have from some version on, in words; empty when nothing is known.
fn since(software: Option<Software>, ability: Ability) -> String {
    let Some(product) = software.map(|software| software.product) else { return String::new() };
    let first = super::FACTS
        .iter()
        .filter(|fact| fact.product == product && fact.ability == ability && fact.has != Has::No)
        .min_by_key(|fact| fact.from);
    match first {
        Some(fact) if fact.from > super::Version::FIRST => {
            let note = if fact.has == Has::Depends { format!(", {}", fact.note) } else { String::new() };
            format!(" ({} has it from {}{note})", product.name(), fact.from)
        }
        _ => String::new(),
    }
}

const HYBRID_SSH: &str = "mlkem768x25519-sha256";

fn ssh(offer: &Offer, from: Suite, to: Suite) -> Vec<Finding> {
    let mut findings = Vec::new();
    let software = Software::of_ssh(&offer.software);
    if required(from, to) && !offers(&offer.key_exchange, &[HYBRID_SSH]) {
        let hint = since(software, Ability::HybridSsh);
        findings.push(Finding::new(Verdict::Breaks, Effect::AtOnce, format!("offers no {HYBRID_SSH}{hint}")));
    }
    let certificates = offer.signatures.iter().any(|name| name.contains("-cert-v0"));
    if let Some((before, after)) = change(KeyPurpose::HostSsh, from, to) {
        let follows = |algorithm| offers(&offer.signatures, ssh_names(algorithm));
        let certified = |algorithm| offers(&offer.signatures, ssh_certificate_names(algorithm));
        if !follows(after) && !certified(after) {
            if follows(before) || certified(before) {
                let name = ssh_names(after).first().copied().unwrap_or("such");
                findings.push(Finding::new(
                    Verdict::Breaks,
                    Effect::AtOnce,
                    format!("takes no {name} host keys{}", since(software, ssh_ability(after))),
                ));
            }
        } else if certified(before) && !certified(after) {
            findings.push(Finding::new(
                Verdict::Unsure,
                Effect::AtOnce,
                format!("takes {} host keys but no certificates for them, and will ask", after.name()),
            ));
        }
    }
    if certificates && let Some((before, after)) = change(KeyPurpose::HostCaSsh, from, to) {
        // What it verifies of hosts it verifies of CAs: OpenSSH's CASignatureAlgorithms are the same unless configured.
        if offers(&offer.signatures, ssh_names(before)) && !offers(&offer.signatures, ssh_names(after)) {
            findings.push(Finding::new(
                Verdict::Breaks,
                Effect::Rotation(KeyPurpose::HostCaSsh),
                format!("verifies no signatures of an {} host CA", after.name()),
            ));
        }
    }
    if let Some((_, after)) = change(KeyPurpose::UserSsh, from, to)
        && !offers(&offer.signatures, ssh_names(after))
    {
        let ability = ssh_ability(after);
        let known = software.and_then(|software| known(&software, ability));
        let (verdict, reason) = match known {
            Some((Has::Yes, _)) => return findings,
            Some((Has::No, _)) => {
                (Verdict::Breaks, format!("knows no {} of users{}", ability.name(), since(software, ability)))
            }
            Some((Has::Depends, fact)) => {
                (Verdict::Unsure, format!("may know no {} of users: {}", ability.name(), fact.note))
            }
            None => (Verdict::Unsure, format!("does not say whether it can use {} of users", ability.name())),
        };
        findings.push(Finding::new(verdict, Effect::NextLogin, reason));
    }
    findings
}

fn tls(offer: &Offer, is_own: bool, from: Suite, to: Suite) -> Vec<Finding> {
    let mut findings = Vec::new();
    let says_nothing = offer.key_exchange.is_empty() && offer.signatures.is_empty();
    let software = Software::of_user_agent(&offer.software);
    let lacks = |ability: Ability| {
        !matches!(software.and_then(|software| known(&software, ability)), Some((Has::Yes, _)))
    };
    if is_own && required(from, to) {
        let hybrid: Vec<&str> =
            KexGroup::ALL.iter().filter(|group| group.is_hybrid()).map(|group| group.name()).collect();
        let fails =
            if says_nothing { lacks(Ability::HybridTls) } else { !offers(&offer.key_exchange, &hybrid) };
        if fails {
            findings.push(Finding::new(
                if says_nothing { Verdict::Unsure } else { Verdict::Breaks },
                Effect::AtOnce,
                format!("offers no {}", Ability::HybridTls.name()),
            ));
        }
    }
    for (purpose, effect) in [
        (KeyPurpose::HostTls, Effect::AtOnce),
        (KeyPurpose::HostCaTls, Effect::Rotation(KeyPurpose::HostCaTls)),
    ] {
        let Some((before, after)) = change(purpose, from, to) else { continue };
        // The public pages have a classical certificate of their own where the hosts' is not.
        if !is_own && after.kind() == KeyKind::MlDsa {
            continue;
        }
        let ability = tls_ability(after);
        let verifies = |algorithm| offers(&offer.signatures, &tls_names(algorithm));
        let fails = if says_nothing { lacks(ability) } else { verifies(before) && !verifies(after) };
        if fails {
            findings.push(Finding::new(
                if says_nothing { Verdict::Unsure } else { Verdict::Breaks },
                effect,
                format!("verifies no {}{}", ability.name(), since(software, ability)),
            ));
        }
    }
    findings
}

fn offers(list: &[String], wanted: &[&str]) -> bool {
    list.iter().any(|name| wanted.contains(&name.as_str()))
}

/// Names of the signatures of a key in SSH, the newest first.
fn ssh_names(algorithm: KeyAlgorithm) -> &'static [&'static str] {
    match algorithm {
        KeyAlgorithm::Ed25519 => &["ssh-ed25519"],
        KeyAlgorithm::EcdsaP256 => &["ecdsa-sha2-nistp256"],
        KeyAlgorithm::EcdsaP384 => &["ecdsa-sha2-nistp384"],
        KeyAlgorithm::EcdsaP521 => &["ecdsa-sha2-nistp521"],
        // Not ssh-rsa: no server of this project signs with SHA-1.
        _ if algorithm.kind() == KeyKind::Rsa => &["rsa-sha2-512", "rsa-sha2-256"],
        _ => &[],
    }
}

/// Names of the certificates of a key in SSH.
fn ssh_certificate_names(algorithm: KeyAlgorithm) -> &'static [&'static str] {
    match algorithm {
        KeyAlgorithm::Ed25519 => &["ssh-ed25519-cert-v01@openssh.com"],
        KeyAlgorithm::EcdsaP256 => &["ecdsa-sha2-nistp256-cert-v01@openssh.com"],
        KeyAlgorithm::EcdsaP384 => &["ecdsa-sha2-nistp384-cert-v01@openssh.com"],
        KeyAlgorithm::EcdsaP521 => &["ecdsa-sha2-nistp521-cert-v01@openssh.com"],
        _ if algorithm.kind() == KeyKind::Rsa => {
            &["rsa-sha2-512-cert-v01@openssh.com", "rsa-sha2-256-cert-v01@openssh.com"]
        }
        _ => &[],
    }
}

fn ssh_ability(algorithm: KeyAlgorithm) -> Ability {
    match algorithm.kind() {
        KeyKind::Ed25519 => Ability::Ed25519Ssh,
        KeyKind::Rsa => Ability::RsaSha2Ssh,
        _ => Ability::EcdsaSsh,
    }
}

/// TLS signature schemes of a key.
fn tls_names(algorithm: KeyAlgorithm) -> Vec<&'static str> {
    algorithm.schemes().iter().map(|scheme| scheme.iana_name()).collect()
}

fn tls_ability(algorithm: KeyAlgorithm) -> Ability {
    match algorithm.kind() {
        KeyKind::Ed25519 => Ability::Ed25519Tls,
        KeyKind::MlDsa => Ability::MlDsaTls,
        // Every client verifies RSA, and nearly every one P-256.
        _ => Ability::EcdsaTls,
    }
}
