//! Which clients have to be able to connect, and whether they are.

use sallyport_sal::KeyAlgorithm;
use sallyport_sal::algorithm::KeyKind;
use sallyport_sal::compatibility::{Ability, FACTS, Has, Product, Software, Version, known};

use super::purpose::Use;
use crate::LabError;

/// The clients of a use where none are named: what is widely in use today.
pub(super) const fn usual(what: Use) -> &'static [(Product, Version)] {
    match what {
        Use::Web => &[
            (Product::Chrome, Version(131, 0, 0)),
            (Product::Firefox, Version(132, 0, 0)),
            (Product::Safari, Version(17, 0, 0)),
        ],
        Use::Ssh => &[
            (Product::OpenSsh, Version(8, 9, 0)),
            (Product::OpenSsh, Version(9, 2, 0)),
            (Product::OpenSsh, Version(10, 0, 0)),
        ],
        Use::Database => &[(Product::OpenSsl, Version(3, 0, 0)), (Product::Java, Version(17, 0, 0))],
        Use::Mtls => &[
            (Product::OpenSsl, Version(3, 0, 0)),
            (Product::GoTls, Version(1, 24, 0)),
            (Product::Java, Version(17, 0, 0)),
        ],
    }
}

/// What matters in SSH; the rest does in TLS.
const SSH: &[Ability] = &[
    Ability::HybridSsh,
    Ability::SntrupSsh,
    Ability::Ed25519Ssh,
    Ability::EcdsaSsh,
    Ability::RsaSha2Ssh,
    Ability::RsaSha1Ssh,
    Ability::Rsa2048Ssh,
    Ability::CertificatesSsh,
    Ability::RsaSha2Certificates,
];

/// Whether anything is known of a product that matters to a use.
fn matters(product: Product, what: Use) -> bool {
    FACTS.iter().any(|fact| fact.product == product && SSH.contains(&fact.ability) == (what == Use::Ssh))
}

/// A name as it is typed: `Go crypto/tls` is `go-crypto-tls`, `Chrome, Edge` is `chrome`.
fn typed(product: Product) -> String {
    let name = product.name().to_ascii_lowercase();
    let first = name.split(',').next().unwrap_or_default().trim();
    first.replace([' ', '/'], "-")
}

/// Reads `chrome-131`, `openssl 1.1.1`, `openssh`: the name or its beginning, or one word of it, and the version.
///
/// # Errors
/// [`LabError::Input`] with the names that there are, and for a browser of before TLS 1.3.
pub fn client(text: &str, what: Use) -> Result<Software, LabError> {
    let plain = text.trim().to_ascii_lowercase().replace([' ', '@', '_'], "-");
    let (name, version) = match plain.rsplit_once('-') {
        Some((name, version)) if version.starts_with(|first: char| first.is_ascii_digit()) => {
            let version = Version::read(version)
                .ok_or_else(|| LabError::Input(format!("{text:?} ends in no version")))?;
            (name.to_owned(), Some(version))
        }
        _ => (plain, None),
    };
    let candidates: Vec<Product> =
        Product::ALL.iter().copied().filter(|product| matters(*product, what)).collect();
    let exact = candidates.iter().find(|product| typed(**product) == name);
    let only = |fits: &dyn Fn(&str) -> bool| {
        let mut fitting = candidates.iter().filter(|product| fits(&typed(**product)));
        fitting.next().filter(|_| fitting.next().is_none())
    };
    let word = || only(&|typed| typed.split('-').any(|word| word == name));
    let beginning = || only(&|typed| !name.is_empty() && typed.starts_with(&name));
    let product = exact.or_else(word).or_else(beginning).ok_or_else(|| {
        let names: Vec<String> = candidates.iter().map(|product| typed(*product)).collect();
        LabError::Input(format!(
            "{text:?} is no client that the lab knows; there are {}, with -VERSION behind the name",
            names.join(", ")
        ))
    })?;
    let software = Software { product: *product, version };
    // Other clients stay in use for longer than browsers, which update themselves.
    if matches!(product, Product::Chrome | Product::Firefox | Product::Safari)
        && let Some((Has::No, first)) = known(&software, Ability::Tls13)
    {
        return Err(LabError::Input(format!(
            "{text:?} has no TLS 1.3, which came with {} {}: name a version that people still use",
            product.name(),
            first.from
        )));
    }
    Ok(software)
}

/// Whether a client can follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Follows {
    /// It cannot.
    No,
    /// Nothing is known of it.
    Unknown,
    /// It depends on how it was built or configured.
    Depends,
    /// It can.
    Yes,
}

/// Whether a client takes a server's key of this type.
pub(super) fn takes(software: &Software, key: KeyAlgorithm, what: Use) -> Follows {
    let ability = match (what, key.kind()) {
        (Use::Ssh, KeyKind::Ed25519) => Ability::Ed25519Ssh,
        (Use::Ssh, KeyKind::Ecdsa) => Ability::EcdsaSsh,
        (Use::Ssh, KeyKind::Rsa) => Ability::RsaSha2Ssh,
        (Use::Ssh, KeyKind::MlDsa) => return Follows::No,
        (_, KeyKind::Ed25519) => Ability::Ed25519Tls,
        (_, KeyKind::Ecdsa) => Ability::EcdsaTls,
        (_, KeyKind::MlDsa) => Ability::MlDsaTls,
        (_, KeyKind::Rsa) => {
            // Every client takes RSA; where a product has a limit, it is known.
            let large = key.modulus_bits().is_some_and(|bits| bits > 2048);
            let limit = known(software, Ability::LargeRsaTls).filter(|_| large);
            return limit.map_or(Follows::Yes, |(has, _)| follows(Some(has)));
        }
    };
    match (known(software, ability), ability) {
        // Older than the facts are: P-256 in TLS is RFC 4492 of 2006, and what has no row there has always had it.
        (None, Ability::EcdsaTls | Ability::EcdsaSsh) => Follows::Yes,
        (found, _) => follows(found.map(|(has, _)| has)),
    }
}

/// Whether a client agrees on keys by a hybrid of classical and post-quantum key exchange.
pub(super) fn hybrid(software: &Software, what: Use) -> Follows {
    let of = |ability| follows(known(software, ability).map(|(has, _)| has));
    if what == Use::Ssh { of(Ability::HybridSsh).max(of(Ability::SntrupSsh)) } else { of(Ability::HybridTls) }
}

/// Whether the only hybrid key exchange that a client is known to have in SSH is sntrup761x25519-sha512.
pub(super) fn sntrup_alone(software: &Software) -> bool {
    let of = |ability| follows(known(software, ability).map(|(has, _)| has));
    of(Ability::HybridSsh) < Follows::Depends && of(Ability::SntrupSsh) >= Follows::Depends
}

const fn follows(has: Option<Has>) -> Follows {
    match has {
        Some(Has::Yes) => Follows::Yes,
        Some(Has::Depends) => Follows::Depends,
        Some(Has::No) => Follows::No,
        None => Follows::Unknown,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn clients_are_read_as_people_write_them() {
        for (text, what, product, version) in [
            ("chrome-131", Use::Web, Product::Chrome, Some(Version(131, 0, 0))),
            ("OpenSSL 1.1.1", Use::Mtls, Product::OpenSsl, Some(Version(1, 1, 1))),
            ("openssh_9.2p1", Use::Ssh, Product::OpenSsh, Some(Version(9, 2, 0))),
            ("go-1.24", Use::Mtls, Product::GoTls, Some(Version(1, 24, 0))),
            ("go", Use::Ssh, Product::GoSsh, None),
            ("fire-132", Use::Web, Product::Firefox, Some(Version(132, 0, 0))),
            ("java-8", Use::Database, Product::Java, Some(Version(8, 0, 0))),
        ] {
            let read = client(text, what).unwrap();
            assert_eq!((read.product, read.version), (product, version), "{text}");
        }
        for wrong in ["netscape-4", "", "-", "openssh-9.2"] {
            let error = client(wrong, Use::Web).unwrap_err().to_string();
            assert!(error.contains("chrome"), "{error}");
        }
    }

    #[test]
    fn what_is_known_decides_who_follows() {
        let is = |text: &str, key, what| takes(&client(text, what).unwrap(), key, what);
        assert_eq!(is("chrome-131", KeyAlgorithm::Ed25519, Use::Web), Follows::No);
        assert_eq!(is("chrome-131", KeyAlgorithm::EcdsaP256, Use::Web), Follows::Yes);
        assert_eq!(is("openssl-3.0", KeyAlgorithm::Ed25519, Use::Mtls), Follows::Yes);
        assert_eq!(is("openssl-3.0", KeyAlgorithm::MlDsa65, Use::Mtls), Follows::No);
        assert_eq!(is("java-8", KeyAlgorithm::Rsa4096, Use::Database), Follows::Yes);
        assert_eq!(is("openssh-7.0", KeyAlgorithm::Rsa3072, Use::Ssh), Follows::No);
        assert_eq!(hybrid(&client("openssh-10.0", Use::Ssh).unwrap(), Use::Ssh), Follows::Yes);
        assert_eq!(hybrid(&client("openssh-9.2", Use::Ssh).unwrap(), Use::Ssh), Follows::Yes);
        assert!(sntrup_alone(&client("openssh-9.2", Use::Ssh).unwrap()));
        assert_eq!(hybrid(&client("openssh-8.4", Use::Ssh).unwrap(), Use::Ssh), Follows::No);
    }
}
