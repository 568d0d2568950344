//! `lab advise`: which key and which key exchange, for whom, at what cost.
//!
//! The question is what a server is for, who comes, and how often. The answer weighs three things: whether every client can
//! follow (`sallyport_sal::compatibility`), how strong a key is ([`sallyport_sal::strength`]), and what a handshake costs
//! on this machine, which is measured.

mod clients;
mod purpose;
mod run;

pub use clients::{Follows, client};
pub use purpose::Use;
pub use run::run;
use sallyport_sal::KeyAlgorithm;
use sallyport_sal::algorithm::KexGroup;
use sallyport_sal::compatibility::{Ability, Has, Software, Version, known};
use sallyport_sal::strength::Problem;
use serde::Serialize;

use crate::LabError;

/// What is asked.
#[derive(Debug, Clone)]
pub struct Question {
    /// What the server is for.
    pub what: Use,
    /// Who has to be able to connect; empty for who usually comes.
    pub clients: Vec<Software>,
    /// Handshakes a second, at the peak.
    pub rate: f64,
    /// Share of them that resume an earlier session, 0 to 1.
    pub resumed: f64,
    /// The least strength, in bits as NIST counts them.
    pub least_bits: u32,
}

impl Question {
    /// Whether there can be an answer, before anything is measured.
    ///
    /// # Errors
    /// [`LabError::Input`] for a rate, a share or a strength that cannot be had.
    pub fn check(&self) -> Result<(), LabError> {
        let wrong = |what: String| Err(LabError::Input(what));
        if !self.rate.is_finite() || self.rate <= 0.0 || self.rate > MOST_RATE {
            return wrong(format!(
                "a rate of {} is no number of handshakes a second; it lies above 0 and up to {MOST_RATE}",
                self.rate
            ));
        }
        if !(0.0..=1.0).contains(&self.resumed) {
            return wrong(format!("a share of {} that resumes does not lie from 0 to 1", self.resumed));
        }
        let strongest = self.what.keys().iter().max_by_key(|key| bits(**key));
        let most = strongest.map(|key| bits(*key)).unwrap_or_default();
        if self.least_bits < LEAST_BITS || self.least_bits > most {
            let named = strongest.map(ToString::to_string).unwrap_or_default();
            return wrong(format!(
                "{} bits of strength: as NIST counts, {LEAST_BITS} is the least that is in use, and the strongest key \
                 that is weighed here ({named}) has {most}",
                self.least_bits
            ));
        }
        Ok(())
    }

    /// Who comes, said or usual.
    #[must_use]
    pub fn who(&self) -> Vec<Software> {
        if !self.clients.is_empty() {
            return self.clients.clone();
        }
        let of = |(product, version): &(_, Version)| Software { product: *product, version: Some(*version) };
        clients::usual(self.what).iter().map(of).collect()
    }
}

/// A figure with the interval in which it lies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Measured {
    /// The median.
    pub value: f64,
    /// The lower end of its interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Measured {
    fn mixed(self, other: Self, share: f64, factor: f64) -> Self {
        let mix = |one: f64, other: f64| (one * (1.0 - share) + other * share) * factor;
        Self {
            value: mix(self.value, other.value),
            low: mix(self.low, other.low),
            high: mix(self.high, other.high),
        }
    }
}

/// What a handshake costs on this machine, in microseconds of processor time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// The server's key.
    pub key: KeyAlgorithm,
    /// The key exchange.
    pub group: KexGroup,
    /// The server's, of a full handshake.
    pub server: Measured,
    /// The client's, of a full handshake.
    pub client: Measured,
    /// The server's, of a resumed one; the full one's where there is no resumption (SSH).
    pub resumed: Measured,
}

/// One key with one key exchange, weighed.
#[derive(Debug, Clone, Serialize)]
pub struct Choice {
    /// The key.
    pub key: KeyAlgorithm,
    /// The key exchange.
    pub group: KexGroup,
    /// Bits of strength as NIST counts them.
    pub bits: u32,
    /// Cores that the server needs for its handshakes.
    pub cores: Measured,
    /// Microseconds of the server for one full handshake.
    pub server: Measured,
    /// Microseconds of a client.
    pub client: Measured,
    /// Why it is not to be chosen; empty when nothing speaks against it.
    pub against: Vec<String>,
}

/// What is recommended, and what else there is.
#[derive(Debug, Clone, Serialize)]
pub struct Advice {
    /// The key; none when none serves every client and no second one helps.
    pub key: Option<KeyAlgorithm>,
    /// A second certificate or host key for those who cannot follow the first.
    pub beside: Option<KeyAlgorithm>,
    /// The key exchange that costs are those of: the best that some client is known to have.
    pub group: KexGroup,
    /// What the server should offer, the preferred one first, as the protocol calls it.
    pub key_exchange: Vec<&'static str>,
    /// Everything that was weighed: what is recommended first, then by cost.
    pub choices: Vec<Choice>,
    /// Why, in sentences.
    pub reasons: Vec<String>,
}

/// Handshakes a second at most: a thousand machines do not have so many.
const MOST_RATE: f64 = 10_000_000.0;
/// What NIST has disallowed below since 2014 (SP 800-131A).
const LEAST_BITS: u32 = 112;

/// Costs that are this near each other are the same: the stronger key wins then.
const AS_CHEAP: f64 = 1.1;

/// Weighs what was measured against what is asked.
#[must_use]
pub fn advise(question: &Question, costs: &[Cost]) -> Advice {
    let who = question.who();
    let (first, key_exchange, mut reasons) = groups(question, &who);
    let mut choices: Vec<Choice> = costs.iter().map(|cost| weigh(question, &who, cost)).collect();
    choices.sort_by(|one, other| one.cores.value.total_cmp(&other.cores.value));

    let fitting = |choice: &&Choice| choice.group == first && choice.bits >= question.least_bits;
    let key = best(choices.iter().filter(fitting).filter(|choice| choice.against.is_empty()));
    // No key serves every client: the best one for most, and another beside it for the others.
    let lacking = |key: KeyAlgorithm| who.iter().filter(|one| missing(one, key, question.what)).count();
    let (key, beside) = match key {
        Some(key) => (Some(key), None),
        None => pair(&choices, &fitting, &lacking, &who, question.what),
    };
    explain(&mut reasons, question, (key, beside), first, &choices, &who);
    choices.sort_by_key(|choice| (Some(choice.key) != key) || choice.group != first);
    Advice { key, beside, group: first, key_exchange, choices, reasons }
}

fn missing(software: &Software, key: KeyAlgorithm, what: Use) -> bool {
    clients::takes(software, key, what) < Follows::Depends
}

/// The cheapest of them, or a stronger one that costs about the same.
fn best<'a>(choices: impl Iterator<Item = &'a Choice>) -> Option<KeyAlgorithm> {
    let choices: Vec<&Choice> = choices.collect();
    let least = choices.iter().map(|choice| choice.cores.value).fold(f64::INFINITY, f64::min);
    let cheap = choices.iter().filter(|choice| choice.cores.value <= least * AS_CHEAP);
    cheap
        .min_by(|one, other| other.bits.cmp(&one.bits).then(one.cores.value.total_cmp(&other.cores.value)))
        .map(|choice| choice.key)
}

/// Two keys that together serve every client: the one that serves most (of those, the cheapest), and the cheapest for the rest.
fn pair(
    choices: &[Choice],
    fitting: &dyn Fn(&&Choice) -> bool,
    lacking: &dyn Fn(KeyAlgorithm) -> usize,
    who: &[Software],
    what: Use,
) -> (Option<KeyAlgorithm>, Option<KeyAlgorithm>) {
    let strong: Vec<&Choice> = choices.iter().filter(|choice| fitting(choice)).collect();
    let fewest = strong.iter().map(|choice| lacking(choice.key)).min();
    let Some(fewest) = fewest.filter(|fewest| *fewest < who.len()) else { return (None, None) };
    let main = best(strong.iter().copied().filter(|choice| lacking(choice.key) == fewest));
    let rest = || who.iter().filter(|one| main.is_some_and(|main| missing(one, main, what)));
    let serves = |choice: &&&Choice| rest().all(|one| !missing(one, choice.key, what));
    let second = best(strong.iter().filter(serves).copied());
    (main, second.filter(|second| Some(*second) != main))
}

/// Which group costs are those of, and what to offer: hybrid first, whichever clients come today, because those who have none fall
/// back without a round trip when the server takes the group that they send a share for.
fn groups(question: &Question, who: &[Software]) -> (KexGroup, Vec<&'static str>, Vec<String>) {
    let names = |wanted: Follows| -> Vec<String> {
        let having = who.iter().filter(|one| clients::hybrid(one, question.what) == wanted);
        having.map(ToString::to_string).collect()
    };
    let (yes, depends, no) = (names(Follows::Yes), names(Follows::Depends), names(Follows::No));
    let mut reasons = Vec::new();
    let verb =
        |names: &[String], one: &'static str, more: &'static str| if names.len() == 1 { one } else { more };
    if !yes.is_empty() {
        let agree = verb(&yes, "agrees", "agree");
        reasons.push(format!("{} {agree} on keys that a quantum computer cannot find later", yes.join(", ")));
    }
    if !depends.is_empty() {
        let built = verb(&depends, "it was", "they were");
        reasons.push(format!("{} may do so, as {built} built", depends.join(", ")));
    }
    if !no.is_empty() {
        reasons.push(format!(
            "{} {} no post-quantum key exchange and {} the next one, which costs nothing more: what is sent can be \
             recorded today and read later",
            no.join(", "),
            verb(&no, "has", "have"),
            verb(&no, "takes", "take")
        ));
    }
    let ssh = question.what == Use::Ssh;
    if !ssh {
        let old = |one: &&Software| matches!(known(one, Ability::Tls13), Some((Has::No, _)));
        let old: Vec<String> = who.iter().filter(old).map(ToString::to_string).collect();
        if !old.is_empty() {
            reasons.push(format!(
                "{} {} no TLS 1.3: the server must keep TLS 1.2, and the costs here are those of TLS 1.3",
                old.join(", "),
                verb(&old, "has", "have")
            ));
        }
    }
    let mut names: Vec<&'static str> =
        question.what.groups().iter().map(|group| question.what.exchange(*group)).collect();
    if ssh && who.iter().any(clients::sntrup_alone) {
        // What OpenSSH had before ML-KEM; it is second where the server has it.
        names.insert(1.min(names.len()), "sntrup761x25519-sha512@openssh.com");
    }
    let hybrid = !yes.is_empty() || !depends.is_empty();
    let group = question.what.groups().iter().copied().find(|group| hybrid || !group.is_hybrid());
    (group.unwrap_or(KexGroup::X25519), names, reasons)
}

fn weigh(question: &Question, who: &[Software], cost: &Cost) -> Choice {
    let bits = bits(cost.key);
    let mut against = Vec::new();
    if bits < question.least_bits {
        against.push(format!("{bits} bits, {} are asked for", question.least_bits));
    }
    for software in who {
        match clients::takes(software, cost.key, question.what) {
            Follows::No => against.push(format!("{software} cannot")),
            Follows::Unknown => against.push(format!("{software}: not known")),
            Follows::Depends | Follows::Yes => {}
        }
    }
    let resumed = question.resumed.clamp(0.0, 1.0);
    Choice {
        key: cost.key,
        group: cost.group,
        bits,
        cores: cost.server.mixed(cost.resumed, resumed, question.rate.max(0.0) / 1e6),
        server: cost.server,
        client: cost.client,
        against,
    }
}

/// What NIST counts a key as; zero below its table.
fn bits(key: KeyAlgorithm) -> u32 {
    let problem = key.name().trim_start_matches("ecdsa-").parse::<Problem>();
    problem.ok().and_then(|problem| problem.nist().floor()).unwrap_or_default()
}

fn explain(
    reasons: &mut Vec<String>,
    question: &Question,
    (key, beside): (Option<KeyAlgorithm>, Option<KeyAlgorithm>),
    group: KexGroup,
    choices: &[Choice],
    who: &[Software],
) {
    let of = |key: KeyAlgorithm| choices.iter().find(|choice| choice.key == key && choice.group == group);
    let Some(chosen) = key.and_then(of) else {
        reasons.insert(0, format!("no key has {} bits and is taken by any of them", question.least_bits));
        return;
    };
    let mut first = format!(
        "{}: {} bits, {} cores for {} handshakes a second",
        chosen.key,
        chosen.bits,
        sallyport_bench::plot::number(chosen.cores.value),
        sallyport_bench::plot::number(question.rate)
    );
    if let Some(beside) = beside {
        let cannot = who.iter().filter(|one| missing(one, chosen.key, question.what));
        let names: Vec<String> = cannot.map(ToString::to_string).collect();
        first.push_str(&format!("; beside it {beside}, for {}", names.join(", ")));
    }
    reasons.insert(0, first);
    for other in [KeyAlgorithm::Rsa2048, KeyAlgorithm::Rsa4096] {
        if let Some(other) = of(other).filter(|other| other.key != chosen.key && chosen.cores.value > 0.0) {
            reasons.push(format!(
                "{} would cost the server {:.1} times as much, {} cores",
                other.key,
                other.cores.value / chosen.cores.value,
                sallyport_bench::plot::number(other.cores.value)
            ));
        }
    }
    if question.what == Use::Web {
        reasons.push("public authorities certify RSA, P-256 and P-384 alone".to_owned());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Costs in the proportions of a real machine.
    fn costs(what: Use) -> Vec<Cost> {
        let base = |key| match key {
            KeyAlgorithm::Ed25519 => 80.0,
            KeyAlgorithm::EcdsaP256 => 90.0,
            KeyAlgorithm::EcdsaP384 => 180.0,
            KeyAlgorithm::Rsa2048 => 700.0,
            KeyAlgorithm::Rsa3072 => 2000.0,
            KeyAlgorithm::Rsa4096 => 4500.0,
            _ => 250.0,
        };
        let all = |key: &KeyAlgorithm| {
            let key = *key;
            what.groups().iter().map(move |group| {
                let value = base(key) + if group.is_hybrid() { 60.0 } else { 0.0 };
                let server = Measured { value, low: value * 0.9, high: value * 1.1 };
                Cost {
                    key,
                    group: *group,
                    server,
                    client: server,
                    resumed: Measured { value: 50.0, low: 45.0, high: 55.0 },
                }
            })
        };
        what.keys().iter().flat_map(all).collect()
    }

    fn ask(what: Use, clients: &[&str]) -> Question {
        Question {
            what,
            clients: clients.iter().map(|text| client(text, what).unwrap()).collect(),
            rate: 1000.0,
            resumed: 0.0,
            least_bits: 112,
        }
    }

    fn answer(what: Use, clients: &[&str]) -> Advice {
        advise(&ask(what, clients), &costs(what))
    }

    #[test]
    fn browsers_get_p256_and_services_of_ones_own_ed25519() {
        let web = answer(Use::Web, &[]);
        assert_eq!((web.key, web.beside), (Some(KeyAlgorithm::EcdsaP256), None), "{web:?}");
        assert_eq!(
            (web.group, web.key_exchange.first()),
            (KexGroup::X25519MlKem768, Some(&"X25519MLKEM768"))
        );
        let database = answer(Use::Database, &[]);
        assert_eq!(
            (database.group, database.key_exchange.first()),
            (KexGroup::X25519, Some(&"X25519MLKEM768"))
        );
        let ssh = answer(Use::Ssh, &["openssh-9.2"]);
        assert_eq!(
            ssh.key_exchange.get(..2).unwrap(),
            ["mlkem768x25519-sha256", "sntrup761x25519-sha512@openssh.com"]
        );
        assert!(
            web.reasons.iter().any(|reason| reason.contains("rsa-4096") && reason.contains("times as much"))
        );
        let chosen = web.choices.first().unwrap();
        assert_eq!((chosen.key, chosen.group), (KeyAlgorithm::EcdsaP256, KexGroup::X25519MlKem768));
        assert!((chosen.cores.value - 0.15).abs() < 1e-9, "{chosen:?}");
        assert_eq!(answer(Use::Ssh, &[]).key, Some(KeyAlgorithm::Ed25519));
        assert_eq!(answer(Use::Mtls, &["go-1.24", "openssl-3.0"]).key, Some(KeyAlgorithm::Ed25519));
        // Java 8 has no Ed25519 in TLS.
        assert_eq!(answer(Use::Mtls, &["go-1.24", "java-8"]).key, Some(KeyAlgorithm::EcdsaP256));
    }

    #[test]
    fn what_no_machine_can_have_is_refused_before_it_is_measured() {
        let usual = || ask(Use::Web, &[]);
        usual().check().unwrap();
        for (question, said) in [
            (Question { rate: -5.0, ..usual() }, "a rate of -5"),
            (Question { rate: 0.0, ..usual() }, "a rate of 0"),
            (Question { rate: 1e9, ..usual() }, "up to 10000000"),
            (Question { rate: f64::NAN, ..usual() }, "a rate of NaN"),
            (Question { resumed: 2.0, ..usual() }, "from 0 to 1"),
            (Question { least_bits: 0, ..usual() }, "112 is the least"),
            (Question { least_bits: 500, ..usual() }, "(ecdsa-p384) has 192"),
        ] {
            let error = question.check().unwrap_err().to_string();
            assert!(error.contains(said), "{said}: {error}");
        }
        let error = client("chrome-1", Use::Web).unwrap_err().to_string();
        assert!(error.contains("no TLS 1.3") && error.contains("came with Chrome, Edge 70.0"), "{error}");
    }

    #[test]
    fn one_client_has_and_several_have() {
        let said = |clients: &[&str], words: &str| {
            let reasons = answer(Use::Mtls, clients).reasons;
            assert!(reasons.iter().any(|reason| reason.contains(words)), "{words}: {reasons:?}");
        };
        said(&["java-17"], "Java JSSE 17.0 has no post-quantum key exchange and takes the next one");
        said(
            &["java-17", "openssl-3.0"],
            "OpenSSL 3.0 have no post-quantum key exchange and take the next one",
        );
        said(&["go-1.24"], "1.24 agrees on keys");
        let ssh = answer(Use::Ssh, &["openssh-8.9"]).reasons;
        assert!(ssh.iter().any(|reason| reason == "OpenSSH 8.9 may do so, as it was built"), "{ssh:?}");
        said(&["java-8", "go-1.24"], "Java JSSE 8.0 has no TLS 1.3");
    }

    #[test]
    fn ssh_is_answered_in_its_own_names() {
        let names: Vec<&str> = Use::Ssh.groups().iter().map(|group| Use::Ssh.exchange(*group)).collect();
        assert_eq!(names, ["mlkem768x25519-sha256", "curve25519-sha256", "ecdh-sha2-nistp256"]);
    }

    #[test]
    fn who_cannot_follow_gets_a_second_key() {
        // OpenSSH 5.4 has neither Ed25519 nor ECDSA nor SHA-2 with RSA; JSch without more is the same.
        let old = answer(Use::Ssh, &["openssh-9.2", "openssh-6.0"]);
        assert_eq!(old.key, Some(KeyAlgorithm::EcdsaP256), "{:?}", old.reasons);
        let mixed = answer(Use::Ssh, &["openssh-9.2", "libssh2-1.11", "putty-0.70"]);
        assert_eq!((mixed.key, mixed.beside), (Some(KeyAlgorithm::Ed25519), None), "{:?}", mixed.reasons);
        let apart = answer(Use::Web, &["chrome-131", "openssl-1.0.0"]);
        assert_eq!(apart.key, Some(KeyAlgorithm::Rsa2048), "{:?}", apart.reasons);
    }

    #[test]
    fn strength_and_resumption_are_weighed() {
        let strong = advise(&Question { least_bits: 192, ..ask(Use::Web, &[]) }, &costs(Use::Web));
        assert_eq!(strong.key, Some(KeyAlgorithm::EcdsaP384));
        let none = advise(&Question { least_bits: 500, ..ask(Use::Web, &[]) }, &costs(Use::Web));
        assert!(none.key.is_none() && none.reasons.first().unwrap().contains("500 bits"), "{none:?}");
        let resumed = advise(&Question { resumed: 1.0, ..ask(Use::Web, &[]) }, &costs(Use::Web));
        assert!((resumed.choices.first().unwrap().cores.value - 0.05).abs() < 1e-9);
        let none = answer(Use::Ssh, &["openssh-5.0"]);
        assert!(none.key.is_none_or(|key| key == KeyAlgorithm::Rsa2048), "{none:?}");
    }
}
