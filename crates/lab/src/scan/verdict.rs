//! What a TLS server offers, judged.

use sallyport_sal::compatibility::{Ability, Has, Product, Software, Version, known};
use sallyport_wire::tls_probe::{Agreement, Proof, Suite, TLS_1_2, TLS_1_3};

use super::change::Server;
use super::costs::{Prices, time};
use super::finding::Finding;
use super::tls::{Order, Survey};
use crate::offers::Level;

/// X25519MLKEM768.
const HYBRID: u16 = 0x11ec;
/// X25519.
const CLASSICAL: u16 = 0x001d;
/// What a server may send before it must hear from the client: ten segments (RFC 6928 §2), of 1,460 bytes.
const FIRST_WINDOW_BYTES: usize = 14_600;

/// Judges everything but the certificates.
pub(crate) fn judge(survey: &Survey, server: Server, web: bool, prices: &Prices) -> Vec<Finding> {
    let mut findings = Vec::new();
    versions(survey, server, &mut findings);
    suites(survey, server, &mut findings);
    key_exchange(survey, server, prices, &mut findings);
    if survey.sha1_signatures {
        findings.push(
            Finding::new(
                Level::Warning,
                "signatures",
                "TLS 1.2 is signed with SHA-1 for a client that offers nothing better (RFC 9155 forbids it)"
                    .to_owned(),
            )
            .change("update the TLS library, or raise its security level (OpenSSL: @SECLEVEL=2)".to_owned()),
        );
    }
    sessions(survey, server, &mut findings);
    if let Some(why) = &survey.browser_fails {
        let level = if web { Level::Failure } else { Level::Info };
        findings.push(
            Finding::new(level, "browsers", format!("a handshake as browsers make it fails: {why}"))
                .change(server.p256()),
        );
    }
    if let Some(shaken) = &survey.browser
        && !shaken.resumed
        && shaken.bytes.1 > FIRST_WINDOW_BYTES
    {
        findings.push(
            Finding::new(
                Level::Warning,
                "bytes",
                format!(
                    "the server sends {} bytes in its handshake, more than the {FIRST_WINDOW_BYTES} that fit into TCP's first window: a round trip more",
                    shaken.bytes.1
                ),
            )
            .change("a shorter chain, or smaller keys and signatures".to_owned()),
        );
    }
    findings
}

/// Since when browsers have, or no more have, something: `Chrome 84, Firefox 78`.
fn browsers(ability: Ability, has: Has) -> String {
    let since = |product: &Product| {
        let newest = Software { product: *product, version: Some(Version(u32::MAX, 0, 0)) };
        let (now, fact) = known(&newest, ability)?;
        (now == has && fact.from != Version::FIRST).then(|| format!("{} {}", product.name(), fact.from))
    };
    [Product::Chrome, Product::Firefox, Product::Safari]
        .iter()
        .filter_map(since)
        .collect::<Vec<_>>()
        .join("; ")
}

fn versions(survey: &Survey, server: Server, findings: &mut Vec<Finding>) {
    for version in survey.versions.iter().filter(|version| version.code < TLS_1_2) {
        let gone = browsers(Ability::OldTls, Has::No);
        findings.push(
            Finding::new(
                Level::Failure,
                &version.name,
                format!("accepted; it rests on SHA-1 and MD5 (RFC 8996), and no browser speaks it (none from {gone})"),
            )
            .change(server.versions()),
        );
    }
    if !survey.speaks(TLS_1_3) {
        findings.push(
            Finding::new(
                Level::Warning,
                "TLS 1.3",
                "not accepted: each new connection takes a round trip more, certificates go in the clear, and there is no post-quantum key exchange"
                    .to_owned(),
            )
            .change(server.tls13()),
        );
    } else if !survey.speaks(TLS_1_2) {
        findings.push(Finding::new(Level::Good, "TLS 1.3", "the only version".to_owned()));
    }
}

/// Why a suite is bad, and how much so.
fn weakness(suite: Suite) -> Option<(Level, &'static str)> {
    let has = |mark: &str| suite.name.contains(mark);
    let known = [
        (has("_NULL_"), Level::Failure, "no encryption"),
        (
            suite.proof() == Proof::None,
            Level::Failure,
            "the server does not prove who it is: an attacker in between can pass for it",
        ),
        (has("EXPORT"), Level::Failure, "export ciphers: broken in hours (FREAK, Logjam)"),
        (has("_RC4_"), Level::Failure, "RC4 is broken (RFC 7465)"),
        (has("_3DES_"), Level::Failure, "3DES: blocks of 64 bits (CVE-2016-2183)"),
        (has("_DES_") || has("_RC2_") || has("_DES40_"), Level::Failure, "a cipher with 56 bits or less"),
        (has("_IDEA_"), Level::Failure, "IDEA: blocks of 64 bits (CVE-2016-2183)"),
        (suite.proof() == Proof::Dsa, Level::Failure, "DSA keys: 1024 bits and SHA-1"),
        (
            suite.agreement() == Agreement::Encrypted,
            Level::Warning,
            "no forward secrecy: an attacker who gets the server's key later reads what was recorded; open to Bleichenbacher's attacks",
        ),
        (
            !suite.is_aead(),
            Level::Warning,
            "CBC with a MAC over the plaintext: padding attacks such as Lucky 13",
        ),
        (has("_CCM_8"), Level::Info, "CCM with a tag of 64 bits"),
    ];
    known.into_iter().find(|(found, ..)| *found).map(|(_, level, reason)| (level, reason))
}

fn suites(survey: &Survey, server: Server, findings: &mut Vec<Finding>) {
    for version in &survey.versions {
        let mut groups: Vec<(Level, &'static str, Vec<&'static str>)> = Vec::new();
        for suite in &version.known {
            let Some((level, reason)) = weakness(*suite) else { continue };
            match groups.iter_mut().find(|(_, known, _)| *known == reason) {
                Some((.., names)) => names.push(suite.name),
                None => groups.push((level, reason, vec![suite.name])),
            }
        }
        for (level, reason, names) in groups {
            // TLS 1.0 and 1.1 have nothing but CBC; that they are accepted is a finding by itself.
            if version.code < TLS_1_2 && level < Level::Failure {
                continue;
            }
            let shown = match names.as_slice() {
                [one] => (*one).to_owned(),
                [first, rest @ ..] => format!("{first} and {} more", rest.len()),
                [] => continue,
            };
            findings.push(
                Finding::new(level, &format!("{} suites", version.name), format!("{shown}: {reason}"))
                    .change(server.suites()),
            );
        }
        let has_aead = version.known.iter().any(|suite| suite.is_aead());
        let first_is_aead = version.known.first().is_none_or(|suite| suite.is_aead());
        if version.code == TLS_1_2 && has_aead && !first_is_aead && version.order == Order::Server {
            findings.push(
                Finding::new(
                    Level::Warning,
                    "TLS 1.2 suites",
                    "the server prefers CBC to authenticated encryption, which is safer and faster"
                        .to_owned(),
                )
                .change(server.suites()),
            );
        }
        let all_good = version.known.iter().all(|suite| weakness(*suite).is_none());
        if version.order == Order::Client && !all_good {
            findings.push(Finding::new(
                Level::Info,
                &format!("{} suites", version.name),
                "the client's order decides, so an old client gets the worst that both have".to_owned(),
            ));
        }
    }
    if survey.compression {
        findings.push(
            Finding::new(
                Level::Failure,
                "compression",
                "the length of what is encrypted tells secrets (CVE-2012-4929)".to_owned(),
            )
            .change("turn compression off; TLS libraries since 2012 have it off".to_owned()),
        );
    }
}

fn key_exchange(survey: &Survey, server: Server, prices: &Prices, findings: &mut Vec<Finding>) {
    if let Some(bits) = survey.prime_bits {
        let (level, reason) = match bits {
            ..1280 => (
                Level::Failure,
                format!(
                    "Diffie and Hellman's exchange with {bits} bits: broken by those who can pay (Logjam)"
                ),
            ),
            1280..2048 => (
                Level::Failure,
                format!(
                    "Diffie and Hellman's exchange with {bits} bits: weak, less than the 112 bits of strength that NIST asks for"
                ),
            ),
            2048..3072 => (
                Level::Info,
                format!(
                    "Diffie and Hellman's exchange with {bits} bits: less than 128 bits of strength, and slower than any curve"
                ),
            ),
            _ => (
                Level::Info,
                format!("Diffie and Hellman's exchange with {bits} bits: sound, and slower than any curve"),
            ),
        };
        findings.push(Finding::new(level, "key exchange", reason).change(server.primes()));
    }
    if !survey.speaks(TLS_1_3) {
        return;
    }
    let hybrid = survey.groups.contains(&HYBRID);
    if !survey.groups.is_empty() && !survey.groups.iter().any(|group| matches!(group, 0x11eb..=0x11ed)) {
        let price = match (prices.group(HYBRID, ""), prices.group(CLASSICAL, "")) {
            (Some(with), Some(without)) => format!(
                "; X25519MLKEM768 instead of X25519 would cost the server {} more and 1,088 bytes, the client {} more and 1,184 bytes",
                time(with.server_us - without.server_us),
                time(with.client_us - without.client_us)
            ),
            _ => String::new(),
        };
        findings.push(
            Finding::new(
                Level::Warning,
                "key exchange",
                format!(
                    "not post-quantum: what is recorded today can be read by a quantum computer later{price}"
                ),
            )
            .change(server.groups()),
        );
    }
    for first in &survey.first_hellos {
        match &first.group {
            None => findings.push(
                Finding::new(Level::Warning, "key exchange", format!("{} find no group in common", first.client))
                    .change(server.groups()),
            ),
            Some(group) if first.retry => findings.push(
                Finding::new(
                    Level::Warning,
                    "key exchange",
                    format!("{} are asked for another hello with {group} (HelloRetryRequest): a round trip more for each new connection", first.client),
                )
                .change(server.groups()),
            ),
            Some(group) if hybrid && first.shares.len() > 1 && !group.contains("MLKEM") => findings.push(
                Finding::new(
                    Level::Warning,
                    "key exchange",
                    format!("{} get {group}, though X25519MLKEM768 is there and they prefer it", first.client),
                )
                .change(server.groups()),
            ),
            Some(_) => {}
        }
    }
    if hybrid && survey.first_hellos.iter().any(|first| first.group.as_deref() == Some("X25519MLKEM768")) {
        findings.push(Finding::new(
            Level::Good,
            "key exchange",
            "post-quantum with those who can: sessions that are recorded today stay secret".to_owned(),
        ));
    }
}

fn sessions(survey: &Survey, server: Server, findings: &mut Vec<Finding>) {
    if survey.secure_renegotiation == Some(false) {
        findings.push(
            Finding::new(
                Level::Failure,
                "renegotiation",
                "not bound to the connection (RFC 5746): others can put data before yours (CVE-2009-3555)"
                    .to_owned(),
            )
            .change("update the TLS library".to_owned()),
        );
    }
    if survey.extended_master_secret == Some(false) {
        findings.push(
            Finding::new(Level::Warning, "master secret", "does not cover the handshake in TLS 1.2 (RFC 7627): the triple handshake attack on resumed sessions".to_owned())
                .change("update the TLS library, or accept TLS 1.3 alone".to_owned()),
        );
    }
    if survey.resumed == Some(false) {
        findings.push(
            Finding::new(
                Level::Info,
                "sessions",
                "not resumed: a client that comes back costs a signature each time".to_owned(),
            )
            .change(server.sessions()),
        );
    }
    if survey.requires_certificate {
        findings.push(Finding::new(
            Level::Info,
            "client certificate",
            "required: no client gets in without one".to_owned(),
        ));
    } else if survey.asks_for_certificate {
        findings.push(Finding::new(
            Level::Info,
            "client certificate",
            "asked for; TLS itself goes on without one".to_owned(),
        ));
    }
}
