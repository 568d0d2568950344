//! TLS from the best pieces.
//!
//! [`provider`] is a rustls `CryptoProvider` whose key exchange, signatures, verification, ciphers, hashes, key
//! derivation and random bytes each come from the source that the [selection] gives. Key exchange,
//! signing and verification ask the selection at every call, so a quarantine takes effect at once; ciphers, hashes and
//! key derivation are bound when the provider is composed. It speaks TLS 1.3 alone, with AES-128-GCM first (about 5 %
//! more handshakes than AES-256-GCM with SHA-384).
//!
//! Configurations for the cluster's own connections are made by `sallyport-ca`, which knows whom to trust.

mod adapters;
mod counted;
mod exchange;
mod signing;
mod verification;

use std::sync::{Arc, OnceLock};

pub use rustls;
use rustls::crypto::{CryptoProvider, GetRandomFailed, SecureRandom};
use rustls::{CipherSuiteCommon, SupportedCipherSuite, Tls13CipherSuite, quic};
pub use signing::signing_key;

use crate::algorithm::{AeadAlgorithm, KexGroup};
use crate::selection::{self, Mode, Selection};
use crate::{HybridKeyExchange, Primitive, SalError};

/// The cipher suites, in the order of preference.
pub const SUITES: &[AeadAlgorithm] =
    &[AeadAlgorithm::Aes128Gcm, AeadAlgorithm::Aes256Gcm, AeadAlgorithm::ChaCha20Poly1305];

static GROUPS: OnceLock<Vec<KexGroup>> = OnceLock::new();

/// The provider, shared by every configuration of this process.
///
/// # Panics
/// Never in practice: it would take that every source of AES-GCM or SHA-2 failed its self-test.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| {
        compose(selection::global(), groups())
            .expect("some source of AES-GCM and SHA-2 gives the answers of the standards")
    }))
}

/// The provider for a cluster that demands this of key exchange: [`provider`], or the same with hybrid groups alone. What
/// a machine prefers gives way to what its cluster requires.
#[must_use]
pub fn provider_for(demand: HybridKeyExchange) -> Arc<CryptoProvider> {
    static HYBRID: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    match demand {
        HybridKeyExchange::Preferred => provider(),
        HybridKeyExchange::Required => Arc::clone(HYBRID.get_or_init(|| {
            let selection = selection::global();
            let wanted: Vec<KexGroup> = groups().iter().copied().filter(|group| group.is_hybrid()).collect();
            let groups = match (wanted.is_empty(), &selection.policy().mode) {
                (false, _) => wanted,
                (true, Mode::Fips) => vec![KexGroup::P256MlKem768],
                (true, _) => vec![KexGroup::X25519MlKem768],
            };
            let kx_groups = groups
                .into_iter()
                .filter(|group| exchange::is_served(selection, *group))
                .map(|group| exchange::group(selection, group))
                .collect();
            Arc::new(CryptoProvider { kx_groups, ..provider().as_ref().clone() })
        })),
    }
}

/// Whether a TLS connection's keys were agreed on with a hybrid group.
#[must_use]
pub fn is_hybrid(connection: &rustls::CommonState) -> bool {
    connection
        .negotiated_key_exchange_group()
        .and_then(|group| KexGroup::from_iana(u16::from(group.name())))
        .is_some_and(KexGroup::is_hybrid)
}

/// The key exchange groups that [`provider`] offers; the first one with a key share.
#[must_use]
pub fn groups() -> &'static [KexGroup] {
    match (GROUPS.get(), &selection::global().policy().mode) {
        (Some(groups), _) => groups,
        (None, Mode::Fips) => KexGroup::DEFAULT_FIPS,
        (None, _) => KexGroup::DEFAULT,
    }
}

/// Sets the groups of [`provider`], in the order of preference. It must come before anything used TLS.
///
/// # Errors
/// [`SalError::AlreadyInUse`] when they stand already.
pub fn configure_groups(groups: Vec<KexGroup>) -> Result<(), SalError> {
    GROUPS.set(groups).map_err(|_| SalError::AlreadyInUse)
}

/// A provider from the sources of a selection, offering these groups in this order. What it is made of is never freed:
/// compose one for a process, or one for each measurement.
///
/// # Errors
/// [`SalError::NoSource`] when no source has a cipher or a hash. Key exchange groups without a source are left out.
pub fn compose(selection: &'static Selection, groups: &[KexGroup]) -> Result<Arc<CryptoProvider>, SalError> {
    let fips = matches!(selection.policy().mode, Mode::Fips);
    let mut cipher_suites = Vec::new();
    for algorithm in SUITES {
        // Not approved: what cannot be had there is not offered (RFC 8446 §9.1 makes AES-128-GCM mandatory).
        if *algorithm == AeadAlgorithm::ChaCha20Poly1305
            && (fips || selection.source(Primitive::Aead(*algorithm)).is_err())
        {
            continue;
        }
        cipher_suites.push(suite(selection, *algorithm)?);
    }
    Ok(Arc::new(CryptoProvider {
        cipher_suites,
        kx_groups: groups
            .iter()
            .filter(|group| exchange::is_served(selection, **group))
            .map(|group| exchange::group(selection, *group))
            .collect(),
        signature_verification_algorithms: verification::algorithms(selection),
        secure_random: Box::leak(Box::new(Random { selection, fips })),
        key_provider: Box::leak(Box::new(signing::Keys { selection, fips })),
    }))
}

/// A cipher suite of the selected parts. Where rustls has the library's own, that is taken; adapters serve the others.
fn suite(selection: &'static Selection, algorithm: AeadAlgorithm) -> Result<SupportedCipherSuite, SalError> {
    let hash = algorithm.tls13_hash();
    let own = |primitive| -> Result<_, SalError> {
        let (at, source) = selection.placed(primitive)?;
        Ok((counted::Place { selection, primitive, at }, source, source.tls13_suite(algorithm)))
    };
    let (cipher_place, ciphers, cipher_suite) = own(Primitive::Aead(algorithm))?;
    let (hash_place, hashes, hash_suite) = own(Primitive::Hash(hash))?;
    let (mac_place, macs, mac_suite) = own(Primitive::Hmac(hash))?;
    let hash_provider = match hash_suite {
        Some(suite) => suite.common.hash_provider,
        None => adapters::hash(hashes, hash),
    };
    let hkdf_provider = match mac_suite {
        Some(suite) => suite.hkdf_provider,
        None => adapters::hkdf(macs, hash),
    };
    let aead_alg = match cipher_suite {
        Some(suite) => suite.aead_alg,
        None => adapters::aead(ciphers, algorithm),
    };
    Ok(SupportedCipherSuite::Tls13(Box::leak(Box::new(Tls13CipherSuite {
        common: CipherSuiteCommon {
            suite: adapters::suite_name(algorithm),
            hash_provider: counted::hash(hash_place, hash_provider),
            confidentiality_limit: adapters::confidentiality_limit(algorithm),
        },
        hkdf_provider: counted::hkdf(mac_place, hkdf_provider),
        aead_alg: counted::aead(cipher_place, aead_alg),
        quic: packet_protection(selection, algorithm),
    }))))
}

/// Protection of QUIC's packets (RFC 9001 §5). Only rustls' own suites have that of headers, so it is the first source's
/// with one; without any, the suite serves TCP alone.
fn packet_protection(
    selection: &'static Selection,
    algorithm: AeadAlgorithm,
) -> Option<&'static dyn quic::Algorithm> {
    let primitive = Primitive::Aead(algorithm);
    let ranking = selection.ranking(primitive);
    // The first is the source of the cipher, which was sought before.
    let usable = ranking.iter().filter(|place| place.obstacle.is_none());
    usable.map(|place| place.provider).find_map(|provider| {
        let suite = provider.tls13_suite(algorithm)?.quic?;
        let at = selection.place_of(provider)?;
        Some(counted::packets(counted::Place { selection, primitive, at }, suite))
    })
}

#[derive(Debug)]
struct Random {
    selection: &'static Selection,
    fips: bool,
}

impl SecureRandom for Random {
    fn fill(&self, buffer: &mut [u8]) -> Result<(), GetRandomFailed> {
        self.selection.random(buffer).map_err(|_| GetRandomFailed)
    }

    fn fips(&self) -> bool {
        self.fips
    }
}

#[cfg(test)]
mod tests;
