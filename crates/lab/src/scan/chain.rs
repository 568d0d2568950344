//! Certificates, judged.

use sallyport_ca::Described;
use sallyport_sal::algorithm::KeyKind;
use sallyport_sal::compatibility::{Ability, Has, LIFETIMES, Product, Software, Version, known};
use serde::Serialize;
use time::{Duration, OffsetDateTime};

use super::change::Server;
use super::costs::{Prices, time};
use super::finding::{Finding, short_rsa};
use super::tls::Chain;
use crate::inspect::own_signature;
use crate::offers::Level;

/// Programs that read the certificates of web servers.
const BROWSERS: &[Product] = &[Product::Chrome, Product::Firefox, Product::Safari];
/// Days before the end of a long-lived certificate at which an administrator should look.
const SOON_DAYS: i64 = 14;

/// One certificate of a chain.
#[derive(Debug, Clone, Serialize)]
pub struct Certificate {
    /// The subject.
    pub subject: String,
    /// The issuer.
    pub issuer: String,
    /// The type and size of the key.
    pub key: String,
    /// How it is signed.
    pub signature: String,
    /// From when.
    #[serde(with = "time::serde::rfc3339")]
    pub not_before: OffsetDateTime,
    /// Until when.
    #[serde(with = "time::serde::rfc3339")]
    pub not_after: OffsetDateTime,
    /// DNS names and IP addresses.
    pub names: Vec<String>,
    /// Its length.
    pub bytes: usize,
}

impl Certificate {
    pub(crate) fn of(described: &Described) -> Self {
        Self {
            subject: described.subject.clone(),
            issuer: described.issuer.clone(),
            key: described.key.to_string(),
            signature: described.signature.name.clone(),
            not_before: described.not_before,
            not_after: described.not_after,
            names: described.names.clone(),
            bytes: described.bytes,
        }
    }
}

/// What a chain is judged by.
pub(crate) struct Circumstances<'a> {
    pub(crate) server: Server,
    pub(crate) prices: &'a Prices,
    /// The name that clients use.
    pub(crate) name: &'a str,
    /// Whether browsers are among its clients.
    pub(crate) web: bool,
    /// Whether there is another chain that every browser reads.
    pub(crate) has_classical: bool,
    /// Whether there is one with a P-256 key.
    pub(crate) has_p256: bool,
    pub(crate) now: OffsetDateTime,
}

/// Browsers whose newest known version does not have something.
fn without(ability: Ability) -> Vec<&'static str> {
    let newest = Version(u32::MAX, 0, 0);
    let lacks = |product: &&Product| {
        let software = Software { product: **product, version: Some(newest) };
        matches!(known(&software, ability), Some((Has::No | Has::Depends, _)))
    };
    BROWSERS.iter().filter(lacks).map(|product| product.name()).collect()
}

/// Whether a certificate's key is one that every browser takes.
pub(crate) fn is_classical(described: &Described) -> bool {
    match &described.key {
        sallyport_ca::SubjectKey::Known(key) => {
            matches!(key.kind(), KeyKind::Rsa | KeyKind::Ecdsa)
                && *key != sallyport_sal::KeyAlgorithm::EcdsaP521
        }
        other => other.rsa_bits().is_some(),
    }
}

/// Judges one chain.
pub(crate) fn judge(chain: &Chain, about: &Circumstances<'_>) -> Vec<Finding> {
    let Some(leaf) = chain.certificates.first() else {
        return vec![Finding::new(Level::Failure, "certificate", "it cannot be read".to_owned())];
    };
    let what = format!("certificate, {}", leaf.key);
    let mut findings = Vec::new();
    key(leaf, about, &what, &mut findings);
    signatures(chain, &what, &mut findings);
    validity(leaf, about, &what, &mut findings);
    names(leaf, about, &what, &mut findings);
    order(chain, leaf, about, &what, &mut findings);
    findings
}

fn key(leaf: &Described, about: &Circumstances<'_>, what: &str, findings: &mut Vec<Finding>) {
    let mut add = |level, reason: String, change: Option<String>| {
        findings.push(Finding { level, what: what.to_owned(), reason, change });
    };
    let p256 = sallyport_ca::SubjectKey::Known(sallyport_sal::KeyAlgorithm::EcdsaP256);
    if let Some(bits) = leaf.key.rsa_bits() {
        let gain = match (about.prices.key(&leaf.key, ""), about.prices.key(&p256, "")) {
            (Some(now), Some(then)) => format!(
                "; signing takes {}{} here, P-256 {} ({:.0} times less), verifying {} and {}",
                if now.estimated { "about " } else { "" },
                time(now.server_us),
                time(then.server_us),
                now.server_us / then.server_us,
                time(now.client_us),
                time(then.client_us)
            ),
            _ => String::new(),
        };
        let change = (!about.has_p256).then(|| about.server.p256());
        match bits {
            ..2048 => {
                add(Level::Failure, short_rsa(bits), Some(about.server.p256()));
            }
            2048..4096 => add(Level::Info, format!("sound, and slow{gain}"), change),
            _ => add(
                Level::Info,
                format!(
                    "for no gain: the rest of a handshake has 128 bits of strength, and so has RSA from 3072 bits on; slow{gain}"
                ),
                change,
            ),
        }
        return;
    }
    let ability = match &leaf.key {
        sallyport_ca::SubjectKey::Known(sallyport_sal::KeyAlgorithm::EcdsaP521) => Ability::EcdsaP521Tls,
        sallyport_ca::SubjectKey::Known(key) => match key.kind() {
            KeyKind::Ed25519 => Ability::Ed25519Tls,
            KeyKind::MlDsa => Ability::MlDsaTls,
            _ => return,
        },
        sallyport_ca::SubjectKey::Rsa(_) => return,
        sallyport_ca::SubjectKey::Other(_) => {
            add(Level::Warning, "a type of key that few clients know".to_owned(), Some(about.server.p256()));
            return;
        }
    };
    let lost = without(ability);
    if lost.is_empty() {
        return;
    }
    let reason =
        format!("not every browser takes {}: {} do not, or not surely", ability.name(), lost.join("; "));
    match (about.web, about.has_classical) {
        (_, true) => add(Level::Info, format!("{reason}; those get the other certificate"), None),
        (true, false) => add(Level::Warning, reason, Some(about.server.p256())),
        (false, false) => add(Level::Info, format!("{reason}, should any come here"), None),
    }
}

fn signatures(chain: &Chain, what: &str, findings: &mut Vec<Finding>) {
    for (at, one) in chain.certificates.iter().enumerate() {
        if one.signature.is_broken && one.is_self_issued {
            // What a certificate says of itself is not what makes it believed; of a root that need not even be said.
            if at == 0 {
                findings.push(Finding::new(Level::Info, what, own_signature(&one.signature.name)));
            }
        } else if one.signature.is_broken {
            findings.push(
                Finding::new(
                    Level::Failure,
                    what,
                    format!("{} is signed with {}, whose hash is broken", one.subject, one.signature.name),
                )
                .change("have it issued anew with SHA-256".to_owned()),
            );
        }
        if at > 0 && one.key.rsa_bits().is_some_and(|bits| bits < 2048) {
            let bits = one.key.rsa_bits().unwrap_or_default();
            findings.push(Finding::new(
                Level::Failure,
                what,
                format!("its issuer {} has RSA with {bits} bits", one.subject),
            ));
        }
    }
}

fn validity(leaf: &Described, about: &Circumstances<'_>, what: &str, findings: &mut Vec<Finding>) {
    let mut add = |level, reason: String, change: Option<&str>| {
        findings.push(Finding { level, what: what.to_owned(), reason, change: change.map(str::to_owned) });
    };
    let left = leaf.not_after - about.now;
    let whole = leaf.not_after - leaf.not_before;
    let soon = Duration::days(SOON_DAYS).min(whole / 3);
    if about.now < leaf.not_before {
        add(
            Level::Failure,
            format!("not valid before {}", leaf.not_before.date()),
            Some("look at the clocks of server and CA"),
        );
    } else if left.is_negative() {
        add(
            Level::Failure,
            format!("expired on {}", leaf.not_after.date()),
            Some("renew it, and let a program do so from now on"),
        );
    } else if left < soon {
        let when = if left.whole_days() >= 1 {
            format!("{} days", left.whole_days())
        } else {
            format!("{} hours", left.whole_hours())
        };
        add(
            Level::Warning,
            format!("expires in {when}, on {}", leaf.not_after.date()),
            Some("renew it, and let a program do so from now on"),
        );
    }
    // The rule of the day on which it was issued.
    let rule = LIFETIMES.iter().rfind(|rule| rule.from_day <= leaf.not_before.date().to_string().as_str());
    if let Some(rule) = rule
        && leaf.days() > i64::from(rule.days)
        && about.web
    {
        let level = if leaf.names_its_issuer { Level::Warning } else { Level::Info };
        add(
            level,
            format!(
                "valid for {} days; public CAs may issue for {} since {} ({}), and browsers hold them to it; a CA of your own is free",
                leaf.days(),
                rule.days,
                rule.from_day,
                rule.source.title
            ),
            Some("have it renewed by a program, and more often"),
        );
    }
}

fn names(leaf: &Described, about: &Circumstances<'_>, what: &str, findings: &mut Vec<Finding>) {
    if leaf.covers(about.name) {
        return;
    }
    let is_address = about.name.parse::<std::net::IpAddr>().is_ok();
    let held = match leaf.names.as_slice() {
        [] => "no name at all".to_owned(),
        names => names.iter().take(3).cloned().collect::<Vec<_>>().join(", "),
    };
    let finding = if is_address {
        // Few servers are meant to be known by address.
        Finding::new(Level::Info, what, format!("it is not for {} but for {held}", about.name))
            .change("ask by the name that clients use: --name".to_owned())
    } else {
        Finding::new(
            Level::Failure,
            what,
            format!("it is not for {} but for {held}: clients refuse it", about.name),
        )
        .change("have it issued with the names that clients use".to_owned())
    };
    findings.push(finding);
}

fn order(
    chain: &Chain,
    leaf: &Described,
    about: &Circumstances<'_>,
    what: &str,
    findings: &mut Vec<Finding>,
) {
    let sent = |level, reason: String| Finding::new(level, what, reason).change(about.server.chain());
    let all = &chain.certificates;
    if leaf.is_self_issued {
        findings.push(
            Finding::new(
                Level::Warning,
                what,
                "self-signed: only clients that were told to believe it do".to_owned(),
            )
            .change("have it issued by a CA that the clients know".to_owned()),
        );
    } else if all.len() == 1 {
        if leaf.names_its_issuer {
            findings.push(sent(
                Level::Warning,
                format!(
                    "the intermediate is missing: {} was not sent, and not every client looks for it",
                    leaf.issuer
                ),
            ));
        } else {
            findings.push(Finding::new(
                Level::Info,
                what,
                format!("sent alone: clients must have {} already", leaf.issuer),
            ));
        }
    }
    if all.len() > 1
        && let Some(last) = all.last().filter(|last| last.is_self_issued)
    {
        findings.push(sent(
            Level::Info,
            format!("the root {} is sent too: {} bytes that no client uses", last.subject, last.bytes),
        ));
    }
    let broken = all.windows(2).find(|pair| matches!(pair, [one, next] if !one.is_issued_by(next)));
    if let Some([one, next]) = broken {
        findings.push(sent(
            Level::Warning,
            format!(
                "{} does not belong behind {}: {} bytes that help no client",
                next.subject, one.subject, next.bytes
            ),
        ));
    }
    if leaf.is_ca && !leaf.is_self_issued {
        findings.push(Finding::new(
            Level::Warning,
            what,
            "a CA's certificate serves as the server's".to_owned(),
        ));
    }
}
