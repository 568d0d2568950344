//! What an SSH server offers, and its host keys.

use std::io::Read as _;

use sallyport_ca::SubjectKey;
use sallyport_sal::KeyAlgorithm;
use sallyport_sal::compatibility::{Ability, FACTS, Has, Product, Software, known};
use sallyport_sal::tls::rustls::crypto::{SupportedKxGroup, aws_lc_rs::kx_group};
use sallyport_ssh::capabilities::SshOffer;
use serde::Serialize;

use super::change::Server;
use super::costs::{Prices, time};
use super::finding::{Finding, short_rsa};
use super::host_key::{self, HostKey, Reader, Reply};
use super::line::{Caller, Line, Trouble, is_late};
use crate::offers::{self, Level};

/// Types of host keys that are asked for. OpenSSH holds connections that end before a login against their address
/// (`PerSourcePenalties`, a second each, felt from fifteen on); this stays far below.
const MOST_KEYS: usize = 6;

/// What an SSH server offers. In SSH the client's order decides (RFC 4253 §7.1): of each list, the first of the client's
/// that the server has too.
#[derive(Debug, Clone, Serialize)]
pub struct Ssh {
    /// Key exchange methods.
    pub kex: Vec<String>,
    /// Types of host keys and signatures.
    pub host_key_algorithms: Vec<String>,
    /// Ciphers.
    pub ciphers: Vec<String>,
    /// MACs.
    pub macs: Vec<String>,
    /// Compressions.
    pub compression: Vec<String>,
    /// The host keys themselves.
    pub host_keys: Vec<Key>,
    /// The shortest prime that it gives to those who leave the choice to it, in bits.
    pub prime_bits: Option<usize>,
    /// Ways to log in, when they were asked for.
    pub login_methods: Option<Vec<String>>,
}

/// A host key.
#[derive(Debug, Clone, Serialize)]
pub struct Key {
    /// Its type and size: `rsa-3072`, `ed25519`.
    pub key: String,
    /// How it signs.
    pub signed_with: String,
    /// Length of the key as it is sent, in bytes.
    pub bytes: usize,
    /// Length of the signature, in bytes.
    pub signature_bytes: usize,
    #[serde(skip)]
    pub(crate) subject: SubjectKey,
}

/// All that was found out.
#[derive(Debug)]
pub(crate) struct Survey {
    pub(crate) offer: SshOffer,
    pub(crate) keys: Vec<Key>,
    pub(crate) prime_bits: Option<usize>,
    pub(crate) notes: Vec<String>,
}

/// Asks a server that has said `first` already, on the same connection and then on a few others.
pub(crate) fn survey(caller: &mut Caller, mut line: Line, first: &[u8]) -> Result<Survey, crate::LabError> {
    let address = caller.address.clone();
    offers::greet(&address, &mut line)?;
    let offer = offers::read_offer(&address, &mut first.chain(&mut line))?;
    drop(line);
    let mut survey = Survey { offer, keys: Vec::new(), prime_bits: None, notes: Vec::new() };
    if let Err(trouble) = keys(caller, &mut survey) {
        survey.notes.push(format!("stopped early: {trouble}"));
    }
    Ok(survey)
}

fn keys(caller: &mut Caller, survey: &mut Survey) -> Result<(), Trouble> {
    let offer = survey.offer.clone();
    let Some((method, value)) = offer.kex.iter().find_map(|method| Some((method, value(method)?))) else {
        survey
            .notes
            .push("host keys were not looked at: none of its key exchanges is spoken here".to_owned());
        return Ok(());
    };
    for algorithm in one_of_each(&offer.host_key_algorithms) {
        match exchange(caller, &offer, method, algorithm, &host_key::public_value(&value)) {
            Ok(Reply::Key(key)) => survey.keys.push(Key::of(&key)),
            Ok(Reply::Gone(words)) => survey.notes.push(format!("{algorithm}: it went away: {words}")),
            Ok(Reply::Prime(_)) => {}
            Err(trouble) if trouble.is_final() => return Err(trouble),
            Err(trouble) => survey.notes.push(format!("{algorithm}: {trouble}")),
        }
    }
    let choice = offer.kex.iter().find(|method| method.starts_with("diffie-hellman-group-exchange-"));
    if let (Some(method), Some(algorithm)) = (choice, offer.host_key_algorithms.first()) {
        let request = host_key::group_request([1024, 1024, 8192]);
        if let Ok(Reply::Prime(bits)) = exchange(caller, &offer, method, algorithm, &request) {
            survey.prime_bits = Some(bits);
        }
    }
    Ok(())
}

/// One algorithm for each key: an RSA key signs in three ways, and a key may have a certificate besides.
fn one_of_each(offered: &[String]) -> Vec<&str> {
    let family = |name: &str| -> String {
        let plain = name.strip_suffix("-cert-v01@openssh.com").unwrap_or(name);
        if plain.starts_with("rsa-sha2-") { "ssh-rsa".to_owned() } else { plain.to_owned() }
    };
    let (certified, plain): (Vec<&str>, Vec<&str>) =
        offered.iter().map(String::as_str).partition(|name| name.contains("-cert-"));
    let mut families = std::collections::BTreeSet::new();
    let mut ones: Vec<&str> =
        plain.into_iter().chain(certified).filter(|name| families.insert(family(name))).collect();
    ones.truncate(MOST_KEYS);
    ones
}

/// A public value that a server takes, for the methods that are known here.
fn value(method: &str) -> Option<Vec<u8>> {
    let share = |group: &dyn SupportedKxGroup| Some(group.start().ok()?.pub_key().to_vec());
    match method {
        "curve25519-sha256" | "curve25519-sha256@libssh.org" => share(kx_group::X25519),
        "ecdh-sha2-nistp256" => share(kx_group::SECP256R1),
        "ecdh-sha2-nistp384" => share(kx_group::SECP384R1),
        "mlkem768x25519-sha256" => share(kx_group::X25519MLKEM768),
        // Any number between 1 and the prime, of which the shortest has 1024 bits.
        "diffie-hellman-group1-sha1"
        | "diffie-hellman-group14-sha1"
        | "diffie-hellman-group14-sha256"
        | "diffie-hellman-group15-sha512"
        | "diffie-hellman-group16-sha512"
        | "diffie-hellman-group17-sha512"
        | "diffie-hellman-group18-sha512" => {
            let mut number = sallyport_sal::random::bytes::<127>().ok()?;
            if let Some(first) = number.first_mut() {
                *first = *first & 0x3f | 0x40;
            }
            Some(number.to_vec())
        }
        _ => None,
    }
}

fn exchange(
    caller: &mut Caller,
    offer: &SshOffer,
    method: &str,
    algorithm: &str,
    then: &[u8],
) -> Result<Reply, Trouble> {
    let first = |list: &[String], other: &str| list.first().map_or(other, String::as_str).to_owned();
    let cookie = sallyport_sal::random::bytes::<16>()
        .map_err(|error| Trouble::StartTls(format!("no random bytes: {error}")))?;
    let hello = host_key::offer(
        cookie,
        method,
        algorithm,
        &first(&offer.ciphers, "aes128-ctr"),
        &first(&offer.macs, "hmac-sha2-256"),
        &first(&offer.compression, "none"),
    );
    let mut line = caller.dial()?;
    line.send(&[offers::GREETING, &hello, then].concat())?;
    let mut reader = Reader::default();
    let mut buffer = [0; 8192];
    loop {
        let read = match line.read(&mut buffer) {
            Ok(0) => return Err(Trouble::Ended),
            Ok(read) => read,
            Err(error) if is_late(&error) => return Err(line.silent()),
            Err(_) => return Err(Trouble::Ended),
        };
        let answer = reader.read(buffer.get(..read).unwrap_or_default());
        if let Some(reply) = answer.map_err(|error| Trouble::StartTls(error.to_string()))? {
            return Ok(reply);
        }
    }
}

impl Key {
    fn of(key: &HostKey) -> Self {
        let plain = key.kind.strip_suffix("-cert-v01@openssh.com").unwrap_or(&key.kind);
        let subject = match (plain, key.bits) {
            ("ssh-rsa", Some(bits)) => {
                KeyAlgorithm::rsa(bits).map_or(SubjectKey::Rsa(bits), SubjectKey::Known)
            }
            ("ssh-dss", Some(bits)) => SubjectKey::Other(format!("dsa-{bits}")),
            (name, _) => {
                KeyAlgorithm::ALL.iter().find(|algorithm| algorithm.ssh_key_type() == Some(name)).map_or_else(
                    || SubjectKey::Other(name.to_owned()),
                    |algorithm| SubjectKey::Known(*algorithm),
                )
            }
        };
        Self {
            key: subject.to_string(),
            signed_with: key.signed_with.clone(),
            bytes: key.bytes,
            signature_bytes: key.signature_bytes,
            subject,
        }
    }
}

/// The group of TLS that an SSH key exchange uses, by which its price is known.
pub(crate) fn group_of(method: &str) -> Option<u16> {
    match method {
        "mlkem768x25519-sha256" => Some(0x11ec),
        "mlkem768nistp256-sha256" => Some(0x11eb),
        "curve25519-sha256" | "curve25519-sha256@libssh.org" => Some(0x001d),
        "ecdh-sha2-nistp256" => Some(0x0017),
        "ecdh-sha2-nistp384" => Some(0x0018),
        _ => None,
    }
}

/// Judges all of it.
pub(crate) fn judge(survey: &Survey, server: Server, prices: &Prices) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    let mut groups: Vec<(&'static str, Level, &'static str, Vec<String>)> = Vec::new();
    for found in offers::judge("", &survey.offer) {
        if found.level == Level::Good && found.list != "protocol" {
            continue;
        }
        match groups.iter_mut().find(|(list, level, reason, _)| {
            (*list, *level, *reason) == (found.list, found.level, found.reason)
        }) {
            Some((.., items)) => items.push(found.item),
            None => groups.push((found.list, found.level, found.reason, vec![found.item])),
        }
    }
    // sshd takes the first line of a keyword alone: one line takes away everything that a list should not have.
    let unwanted = |list: &str| -> Vec<String> {
        let bad = groups.iter().filter(|(other, level, ..)| *other == list && *level > Level::Info);
        bad.flat_map(|(.., items)| items.clone()).collect()
    };
    let exchanges = exchanges(&survey.offer, server, &unwanted("kex"));
    for (list, level, reason, items) in &groups {
        let (list, level, reason) = (*list, *level, *reason);
        let change = match (level, items.first().map(String::as_str)) {
            (Level::Good | Level::Info, _) => None,
            (_, Some("post-quantum key exchange")) => {
                Some(exchanges.clone().unwrap_or_else(|| hybrid(&survey.offer.software, server)))
            }
            _ if list == "kex" && exchanges.is_some() => exchanges.clone(),
            (_, Some("strict key exchange")) => Some("update the server: OpenSSH has it from 9.6".to_owned()),
            _ => Some(server.without(list, &unwanted(list))),
        };
        let what = if list == "protocol" { items.join(", ") } else { list.to_owned() };
        let reason =
            if list == "protocol" { reason.to_owned() } else { format!("{}: {reason}", items.join(", ")) };
        findings.push(Finding { level, what, reason, change });
    }
    for key in &survey.keys {
        findings.extend(judge_key(key, server, prices));
    }
    if let Some(bits) = survey.prime_bits {
        let (level, words) = match bits {
            ..1280 => (Level::Failure, "broken by those who can pay"),
            1280..2048 => (Level::Failure, "weak: less than the 112 bits of strength that NIST asks for"),
            2048..3072 => (Level::Info, "less than 128 bits of strength, to a client that asks for no more"),
            _ => (Level::Good, "sound"),
        };
        let reason = format!("diffie-hellman-group-exchange gives a prime of {bits} bits: {words}");
        let change = (level > Level::Info).then(|| server.primes());
        findings.push(Finding { level, what: "kex".to_owned(), reason, change });
    }
    findings
}

fn judge_key(key: &Key, server: Server, prices: &Prices) -> Option<Finding> {
    let bits = key.subject.rsa_bits()?;
    let what = format!("host key, {}", key.key);
    let ed25519 = SubjectKey::Known(KeyAlgorithm::Ed25519);
    let cost = match (prices.key(&key.subject, ""), prices.key(&ed25519, "")) {
        (Some(now), Some(then)) => {
            format!("; signing takes {} here, ed25519 {}", time(now.server_us), time(then.server_us))
        }
        _ => String::new(),
    };
    Some(match bits {
        ..2048 => Finding::new(
            Level::Failure,
            &what,
            format!(
                "{}; OpenSSH from 9.1 refuses less than 1024, hardened clients less than 3072",
                short_rsa(bits)
            ),
        )
        .change("ssh-keygen -t rsa -b 3072, or ed25519 alone".to_owned()),
        2048..3072 => Finding::new(
            Level::Info,
            &what,
            format!("112 bits of strength; hardened clients (RequiredRSASize) ask for 3072{cost}"),
        ),
        3072..4096 => Finding::new(Level::Good, &what, format!("sound{cost}")),
        _ => Finding::new(Level::Info, &what, format!("for no gain over 3072 bits or ed25519{cost}"))
            .change(server.p256()),
    })
}

/// The one line of `sshd_config` that both adds hybrid key exchange and takes away what is unwanted, where both are to be
/// done and the server can do the first: `^` and `-` cannot stand in the same line, so the whole list does.
fn exchanges(offer: &SshOffer, server: Server, unwanted: &[String]) -> Option<String> {
    let software = Software::of_ssh(&offer.software)?;
    let has_hybrid = matches!(known(&software, Ability::HybridSsh), Some((Has::Yes, _)));
    let offered = offer.kex.iter().any(|name| name.starts_with("mlkem768") || name.starts_with("sntrup761"));
    if server != Server::OpenSsh || !has_hybrid || offered || unwanted.is_empty() {
        return None;
    }
    let kept = offer.kex.iter().filter(|name| !unwanted.contains(name)).map(String::as_str);
    let names: Vec<&str> = std::iter::once("mlkem768x25519-sha256").chain(kept).collect();
    Some(format!("KexAlgorithms {}", names.join(",")))
}

/// What gives a server hybrid key exchange.
fn hybrid(software: &str, server: Server) -> String {
    let general = "accept mlkem768x25519-sha256, or sntrup761x25519-sha512@openssh.com";
    let Some(software) = Software::of_ssh(software) else { return general.to_owned() };
    match known(&software, Ability::HybridSsh) {
        Some((Has::No, _)) => {
            let first = FACTS.iter().find(|fact| {
                fact.product == software.product && fact.ability == Ability::HybridSsh && fact.has != Has::No
            });
            first.map_or_else(
                || general.to_owned(),
                |fact| {
                    format!(
                        "{software} has no mlkem768x25519-sha256: update to {} {}",
                        software.product.name(),
                        fact.from
                    )
                },
            )
        }
        Some((Has::Yes, _)) if server == Server::OpenSsh && software.product == Product::OpenSsh => {
            "KexAlgorithms ^mlkem768x25519-sha256".to_owned()
        }
        _ => general.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_added_and_taken_away_is_one_line() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let offer = |software: &str| SshOffer {
            software: software.to_owned(),
            kex: names(&["curve25519-sha256", "diffie-hellman-group14-sha1"]),
            ciphers: names(&["aes128-gcm@openssh.com"]),
            flags: names(&["kex-strict-s-v00@openssh.com"]),
            ..SshOffer::default()
        };
        let changes = |software: &str| -> Vec<String> {
            let offer = offer(software);
            let survey = Survey { offer, keys: Vec::new(), prime_bits: None, notes: Vec::new() };
            let findings = judge(&survey, Server::OpenSsh, &Prices::default());
            findings.into_iter().filter_map(|finding| finding.change).collect()
        };
        let new = changes("OpenSSH_10.0p2");
        assert_eq!(new, ["KexAlgorithms mlkem768x25519-sha256,curve25519-sha256"; 2]);
        let old = changes("OpenSSH_9.2p1");
        assert!(old.iter().any(|line| line == "KexAlgorithms -diffie-hellman-group14-sha1"), "{old:?}");
        assert!(old.iter().any(|line| line.contains("update to OpenSSH")), "{old:?}");
    }
}
