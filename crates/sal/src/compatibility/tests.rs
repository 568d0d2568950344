#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeSet;

use super::*;
use crate::suite::{KeyPurpose, Suite};

fn ssh(software: &str, kex: &[&str], keys: &[&str]) -> Offer {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Offer { key_exchange: owned(kex), signatures: owned(keys), ..Offer::of(Kind::Ssh, software) }
}

fn tls(kind: Kind, software: &str, groups: &[&str], schemes: &[&str]) -> Offer {
    Offer { kind, ..ssh(software, groups, schemes) }
}

/// What OpenSSH 9.2 offers.
fn openssh_9_2() -> Offer {
    ssh(
        "OpenSSH_9.2p1 Debian-2+deb12u3",
        &["sntrup761x25519-sha512@openssh.com", "curve25519-sha256", "ecdh-sha2-nistp256"],
        &[
            "ssh-ed25519-cert-v01@openssh.com",
            "ecdsa-sha2-nistp256-cert-v01@openssh.com",
            "rsa-sha2-512-cert-v01@openssh.com",
            "rsa-sha2-256-cert-v01@openssh.com",
            "ssh-ed25519",
            "ecdsa-sha2-nistp256",
            "rsa-sha2-512",
            "rsa-sha2-256",
        ],
    )
}

#[test]
fn products_and_versions_are_read_from_what_clients_call_themselves() {
    let cases = [
        ("OpenSSH_9.2p1 Debian-2+deb12u3", "OpenSSH 9.2"),
        ("OpenSSH_10.0", "OpenSSH 10.0"),
        ("OpenSSH_for_Windows_9.5", "OpenSSH 9.5"),
        ("PuTTY_Release_0.83", "PuTTY 0.83"),
        ("libssh_0.10.6", "libssh 0.10.6"),
        ("libssh2_1.11.1", "libssh2 1.11.1"),
        ("JSCH-0.1.54", "JSch 0.1.54"),
        ("JSCH_0.2.17", "JSch 0.2.17"),
        ("APACHE-SSHD-2.12.0", "Apache MINA SSHD 2.12"),
        ("paramiko_3.4.0", "Paramiko 3.4"),
        ("AsyncSSH_2.14.2", "AsyncSSH 2.14.2"),
        ("Go", "Go x/crypto/ssh"),
        ("dropbear_2022.83", "Dropbear 2022.83"),
        ("Sallyport_0.1.0", "Sallyport 0.1"),
    ];
    for (text, wanted) in cases {
        assert_eq!(Software::of_ssh(text).unwrap().to_string(), wanted, "{text}");
    }
    for text in ["", "Goofy_1.0", "mod_sftp", "OpenBSD"] {
        assert_eq!(Software::of_ssh(text), None, "{text}");
    }
    let agents = [
        (
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36",
            "Chrome, Edge 131.0",
        ),
        ("Mozilla/5.0 (X11; Linux x86_64; rv:132.0) Gecko/20100101 Firefox/132.0", "Firefox 132.0"),
        (
            "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.0 Safari/605.1.15",
            "Safari 26.0",
        ),
        ("Go-http-client/2.0", "Go crypto/tls"),
        ("Java/1.8.0_392", "Java JSSE 8.0"),
        ("Java-http-client/17.0.9", "Java JSSE 17.0.9"),
        ("Amazon CloudFront", "CloudFront"),
        ("sallyport/0.1.0 tonic/0.14", "Sallyport 0.1"),
    ];
    for (text, wanted) in agents {
        assert_eq!(Software::of_user_agent(text).unwrap().to_string(), wanted, "{text}");
    }
    assert_eq!(Software::of_user_agent("curl/8.5.0"), None);
    assert_eq!(Version::read("99999999999.1"), None);
}

#[test]
fn what_a_version_can_do_is_looked_up() {
    let of = |text: &str, ability| known(&Software::of_ssh(text).unwrap(), ability).map(|(has, _)| has);
    let cases = [
        ("OpenSSH_6.4", Ability::Ed25519Ssh, Some(Has::No)),
        ("OpenSSH_6.5", Ability::Ed25519Ssh, Some(Has::Yes)),
        ("OpenSSH_7.1", Ability::RsaSha2Ssh, Some(Has::No)),
        ("OpenSSH_8.7", Ability::RsaSha1Ssh, Some(Has::Yes)),
        ("OpenSSH_8.8p1", Ability::RsaSha1Ssh, Some(Has::Depends)),
        ("OpenSSH_8.4", Ability::SntrupSsh, Some(Has::No)),
        ("OpenSSH_9.2p1", Ability::HybridSsh, Some(Has::No)),
        ("OpenSSH_9.9p1", Ability::HybridSsh, Some(Has::Yes)),
        ("OpenSSH_10.0p2", Ability::HybridSsh, Some(Has::Yes)),
        ("PuTTY_Release_0.82", Ability::HybridSsh, Some(Has::No)),
        ("libssh_0.12.0", Ability::HybridSsh, Some(Has::Yes)),
        ("dropbear_2022.83", Ability::CertificatesSsh, Some(Has::No)),
        ("Go", Ability::HybridSsh, Some(Has::Depends)),
        ("PuTTY", Ability::HybridSsh, None),
        ("paramiko_3.4.0", Ability::Rsa2048Ssh, None),
    ];
    for (text, ability, wanted) in cases {
        assert_eq!(of(text, ability), wanted, "{text}: {ability:?}");
    }
    assert!(known_hybrid_ssh("OpenSSH_10.0") && known_hybrid_ssh("Sallyport_0.1.0"));
    assert!(!known_hybrid_ssh("OpenSSH_9.2p1") && !known_hybrid_ssh("Go") && !known_hybrid_ssh("who knows"));
}

#[test]
fn an_old_openssh_cannot_follow_to_pq_and_that_is_all() {
    let findings = judge(&openssh_9_2(), Suite::BalancedV1, Suite::PqV1);
    assert_eq!(
        findings,
        [Finding {
            verdict: Verdict::Breaks,
            effect: Effect::AtOnce,
            reason: "offers no mlkem768x25519-sha256 (OpenSSH has it from 9.9)".to_owned(),
        }]
    );
    for (from, to) in [
        (Suite::Legacy, Suite::BalancedV1),
        (Suite::BalancedV1, Suite::Legacy),
        (Suite::BalancedV1, Suite::FipsV1),
        (Suite::PqV1, Suite::BalancedV1),
        (Suite::PqV1, Suite::PqV1),
    ] {
        assert_eq!(judge(&openssh_9_2(), from, to), [], "{from} to {to}");
    }
    let mut new = openssh_9_2();
    new.key_exchange.push("mlkem768x25519-sha256".to_owned());
    assert_eq!(judge(&new, Suite::BalancedV1, Suite::PqV1), []);
}

#[test]
fn a_client_without_ed25519_cannot_leave_legacy() {
    let old = ssh(
        "OpenSSH_6.4",
        &["ecdh-sha2-nistp256"],
        &["rsa-sha2-256-cert-v01@openssh.com", "ecdsa-sha2-nistp256", "rsa-sha2-256"],
    );
    let found = judge(&old, Suite::Legacy, Suite::BalancedV1);
    let told: Vec<_> =
        found.iter().map(|finding| (finding.verdict, finding.effect, finding.reason.as_str())).collect();
    assert_eq!(
        told,
        [
            (Verdict::Breaks, Effect::AtOnce, "takes no ssh-ed25519 host keys (OpenSSH has it from 6.5)"),
            (
                Verdict::Breaks,
                Effect::Rotation(KeyPurpose::HostCaSsh),
                "verifies no signatures of an ed25519 host CA"
            ),
            (Verdict::Breaks, Effect::NextLogin, "knows no Ed25519 keys of users (OpenSSH has it from 6.5)"),
        ]
    );
    let unknown = ssh("homemade_1", &["ecdh-sha2-nistp256"], &["rsa-sha2-256"]);
    let verdicts: Vec<_> =
        judge(&unknown, Suite::Legacy, Suite::BalancedV1).iter().map(|finding| finding.verdict).collect();
    assert_eq!(verdicts, [Verdict::Breaks, Verdict::Unsure]);
    // One that fails today is not lost by the change.
    let ancient = ssh("OpenSSH_5.0", &["diffie-hellman-group1-sha1"], &["ssh-rsa"]);
    assert!(
        judge(&ancient, Suite::Legacy, Suite::BalancedV1)
            .iter()
            .all(|finding| finding.effect == Effect::NextLogin)
    );
}

#[test]
fn a_client_that_takes_plain_keys_only_will_ask() {
    let mut offer = openssh_9_2();
    offer.signatures.retain(|name| !name.starts_with("rsa-sha2-") || !name.contains("cert"));
    let found = judge(&offer, Suite::BalancedV1, Suite::Legacy);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].verdict, Verdict::Unsure);
    assert!(found[0].reason.contains("will ask"), "{found:?}");
}

#[test]
fn tls_clients_are_judged_by_groups_and_schemes() {
    let schemes = ["ecdsa_secp256r1_sha256", "rsa_pss_rsae_sha256", "ed25519"];
    let own = tls(
        Kind::Sallyport,
        "sallyport/0.1.0",
        &["X25519MLKEM768", "x25519"],
        &["mldsa65", "ecdsa_secp256r1_sha256"],
    );
    assert_eq!(judge(&own, Suite::BalancedV1, Suite::PqV1), []);
    let old = tls(Kind::Sallyport, "sallyport/0.0.9", &["x25519"], &schemes);
    let found = judge(&old, Suite::BalancedV1, Suite::PqV1);
    let reasons: Vec<_> = found.iter().map(|finding| finding.reason.as_str()).collect();
    assert_eq!(
        reasons,
        [
            "offers no X25519MLKEM768",
            "verifies no ML-DSA certificates (Sallyport has it from 0.1)",
            "verifies no ML-DSA certificates (Sallyport has it from 0.1)"
        ]
    );
    // By its version alone, and by nothing.
    let heard = Offer::of(Kind::Sallyport, "sallyport/0.1.0");
    assert_eq!(judge(&heard, Suite::BalancedV1, Suite::PqV1), []);
    let silent = judge(&Offer::of(Kind::Sallyport, ""), Suite::BalancedV1, Suite::PqV1);
    assert!(
        !silent.is_empty() && silent.iter().all(|finding| finding.verdict == Verdict::Unsure),
        "{silent:?}"
    );
    // A reader of the public pages is not within the cluster: its key exchange is its own affair, and the pages have
    // a certificate that it can read.
    let browser = tls(Kind::Http, "Firefox/120.0", &["x25519"], &schemes);
    assert_eq!(judge(&browser, Suite::BalancedV1, Suite::PqV1), []);
    let rsa_only = tls(Kind::Http, "", &["secp256r1"], &["rsa_pss_rsae_sha256"]);
    assert_eq!(
        judge(&rsa_only, Suite::Legacy, Suite::BalancedV1)[0].reason,
        "verifies no P-256 certificates"
    );
    let mut agent = tls(Kind::Tls, "", &["x25519"], &["mldsa65", "ecdsa_secp256r1_sha256"]);
    assert_eq!(judge(&agent, Suite::BalancedV1, Suite::PqV1), []);
    agent.protocols.push("sallyport-tunnel/1".to_owned());
    assert_eq!(judge(&agent, Suite::BalancedV1, Suite::PqV1).len(), 1);
}

#[test]
fn offers_are_kept_within_bounds_and_told_apart() {
    let hostile = ssh(&"\u{1b}[2J".repeat(1000), &["x"; 1000], &["\n", &"y".repeat(65), ""]).bounded();
    assert_eq!((hostile.software.len(), hostile.key_exchange.len()), (200, 64));
    assert_eq!(hostile.signatures, ["?"]);
    assert!(!hostile.software.contains('\u{1b}'));
    let one = openssh_9_2();
    let mut other = one.clone();
    other.signatures.reverse();
    assert_eq!(one.fingerprint(), other.fingerprint());
    other.key_exchange.pop();
    assert_ne!(one.fingerprint(), other.fingerprint());
    let text = serde_json::to_string(&one).unwrap();
    assert_eq!(serde_json::from_str::<Offer>(&text).unwrap(), one);
}

#[test]
fn numbers_have_names_and_unknown_ones_stay_numbers() {
    let groups = [0x11ec, 0x001d, 0x0017, 0x0019, 0x6399, 0x1234].map(group_name);
    assert_eq!(
        groups,
        ["X25519MLKEM768", "x25519", "secp256r1", "secp521r1", "X25519Kyber768Draft00", "0x1234"]
    );
    let schemes = [0x0403, 0x0804, 0x0807, 0x0905, 0x0201, 0xfe01].map(scheme_name);
    assert_eq!(
        schemes,
        ["ecdsa_secp256r1_sha256", "rsa_pss_rsae_sha256", "ed25519", "mldsa65", "rsa_pkcs1_sha1", "0xfe01"]
    );
    assert_eq!([0x0303, 0x0304, 0x0305].map(version_name), ["TLS 1.2", "TLS 1.3", "0x0305"]);
    assert!(
        [0x0a0a, 0x1a1a, 0xfafa].into_iter().all(is_grease)
            && ![0x0a1a, 0x11ec, 0x0303].into_iter().any(is_grease)
    );
}

#[test]
fn notes_say_who_is_concerned_whether_seen_or_not() {
    let pq = notes(Suite::BalancedV1, Suite::PqV1).join("\n");
    assert!(pq.contains("OpenSSH 9.9, PuTTY 0.83, libssh 0.12"), "{pq}");
    assert!(pq.contains("Go x/crypto/ssh (first choice when built with Go 1.24"), "{pq}");
    let legacy = notes(Suite::BalancedV1, Suite::Legacy).join("\n");
    assert!(legacy.contains("RequiredRSASize") && !legacy.contains("mlkem"), "{legacy}");
    assert!(notes(Suite::Legacy, Suite::BalancedV1).join("\n").contains("ES256"));
    assert_eq!(notes(Suite::PqV1, Suite::PqV1), Vec::<String>::new());
}

#[test]
fn the_facts_are_in_order_each_once_and_sourced() {
    let rank = |product| Product::ALL.iter().position(|known| *known == product).unwrap();
    let place = |ability| Ability::ALL.iter().position(|known| *known == ability).unwrap();
    let keys: Vec<_> =
        FACTS.iter().map(|fact| (rank(fact.product), place(fact.ability), fact.from)).collect();
    assert!(keys.is_sorted(), "by product, ability and version");
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len(), "a fact is there twice");
    for product in Product::ALL {
        assert!(FACTS.iter().any(|fact| fact.product == *product), "{product:?} is not known at all");
    }
    for fact in FACTS {
        let source = fact.source;
        assert!(source.url.starts_with("https://") && !source.title.is_empty(), "{fact:?}");
        assert!(source.date.starts_with("20") && source.date.len() >= 4, "{fact:?}");
        assert!(fact.has != Has::Depends || !fact.note.is_empty(), "on what does it depend? {fact:?}");
    }
}

/// `docs/compatibility.md` has the facts. To write it anew: `COMPATIBILITY_REFRESH=1 cargo test -p sallyport-sal
/// compatibility`.
#[test]
fn the_guide_shows_the_facts() {
    const BEGIN: &str = "<!-- what is known -->\n";
    const END: &str = "<!-- end of what is known -->\n";
    let mut sources: Vec<&Source> = Vec::new();
    let mut table = String::new();
    for product in Product::ALL {
        table += &format!("\n### {}\n\n| what | from | | source |\n|---|---|---|---|\n", product.name());
        for fact in FACTS.iter().filter(|fact| fact.product == *product) {
            let at = sources.iter().position(|source| *source == fact.source).unwrap_or_else(|| {
                sources.push(fact.source);
                sources.len() - 1
            });
            let from = if fact.from == Version::FIRST { "always".to_owned() } else { fact.from.to_string() };
            let note = if fact.note.is_empty() { String::new() } else { format!("; {}", fact.note) };
            table +=
                &format!("| {} | {from} | {}{note} | {} |\n", fact.ability.name(), fact.has.word(), at + 1);
        }
    }
    table += "\n### Lifetimes of certificates\n\nPublic CAs may issue certificates of TLS servers for so long, and browsers hold them to it.\n\n| issued from | days | source |\n|---|---|---|\n";
    for lifetime in LIFETIMES {
        let at = sources.iter().position(|source| *source == lifetime.source).unwrap_or_else(|| {
            sources.push(lifetime.source);
            sources.len() - 1
        });
        table += &format!("| {} | {} | {} |\n", lifetime.from_day, lifetime.days, at + 1);
    }
    table += "\n## Sources\n\n";
    for (at, source) in sources.iter().enumerate() {
        let reading = match source.reading {
            Reading::Read(day) => format!("read on {day}"),
            Reading::Quoted(day, page) => format!("as quoted by <{page}>, read on {day}"),
            Reading::Known => "not read again".to_owned(),
        };
        table += &format!("{}. [{}]({}), {}; {reading}.\n", at + 1, source.title, source.url, source.date);
    }
    let path = std::path::Path::new("../../docs/compatibility.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (shown, after) = rest.split_once(END).unwrap();
    if std::env::var_os("COMPATIBILITY_REFRESH").is_some() {
        std::fs::write(path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
    } else {
        assert_eq!(shown, table, "docs/compatibility.md is out of date: run with COMPATIBILITY_REFRESH=1");
    }
}
