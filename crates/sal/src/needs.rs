//! What the processes of Sallyport ask of a selection.
//!
//! A policy that cannot serve them is refused when it is configured, with names, and not when the first connection
//! comes. The same list says which self-tests services run before they listen.

use crate::algorithm::{AeadAlgorithm, HashAlgorithm, KexGroup};
use crate::selection::{Mode, Obstacle, Selection};
use crate::{KeyPurpose, Primitive, SalError, Suite};

/// Primitives without which nothing works: the cipher suites of TLS that every policy offers, sealing, random bytes,
/// and the keys that a login, a host and their CAs have in a new cluster. What a cluster's own suite needs besides is
/// in [`of_suite`].
#[must_use]
pub fn indispensable() -> Vec<Primitive> {
    let ciphers = [AeadAlgorithm::Aes128Gcm, AeadAlgorithm::Aes256Gcm].map(Primitive::Aead);
    let hashes = [HashAlgorithm::Sha256, HashAlgorithm::Sha384];
    let mut all = vec![Primitive::Random];
    all.extend(ciphers);
    all.extend(hashes.map(Primitive::Hash));
    all.extend(hashes.map(Primitive::Hmac));
    all.extend(of_keys(Suite::default(), MAIN_PURPOSES));
    all.sort_unstable();
    all.dedup();
    all
}

/// The purposes of the keys without which no user reaches a server.
const MAIN_PURPOSES: &[KeyPurpose] = &[
    KeyPurpose::UserCaSsh,
    KeyPurpose::UserCaTls,
    KeyPurpose::HostCaSsh,
    KeyPurpose::HostCaTls,
    KeyPurpose::UserSsh,
    KeyPurpose::UserTls,
    KeyPurpose::HostSsh,
    KeyPurpose::HostTls,
    KeyPurpose::AuditCheckpoint,
];

/// Primitives that a cluster with this suite needs before a user reaches a server.
#[must_use]
pub fn of_suite(suite: Suite) -> Vec<Primitive> {
    let mut all: Vec<Primitive> = of_keys(suite, MAIN_PURPOSES).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn of_keys(suite: Suite, purposes: &[KeyPurpose]) -> impl Iterator<Item = Primitive> {
    purposes.iter().flat_map(move |purpose| {
        let key = suite.algorithm(*purpose);
        [Primitive::GenerateKey(key), Primitive::Sign(key), Primitive::Verify(key)]
    })
}

/// Primitives that a key exchange group is made of, for both sides.
#[must_use]
pub fn of_group(group: KexGroup) -> Vec<Primitive> {
    let kem = [Primitive::Decapsulate, Primitive::Encapsulate];
    let kem = kem.into_iter().filter(|_| group.has_ml_kem());
    group.dh().map(Primitive::Agree).into_iter().chain(kem).collect()
}

/// The groups that TLS offers by a rule unless the configuration names others.
#[must_use]
pub fn default_groups(mode: &Mode) -> &'static [KexGroup] {
    match mode {
        Mode::Fips => KexGroup::DEFAULT_FIPS,
        Mode::Measured(_) | Mode::Preset | Mode::Only(_) => KexGroup::DEFAULT,
    }
}

/// A primitive for which a selection has no source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lack {
    /// The primitive.
    pub primitive: Primitive,
    /// What stands against each provider that the policy admits; nothing where it admits none that has it.
    pub obstacles: Vec<(&'static str, Obstacle)>,
}

/// Which of these primitives a selection has no source for, without running a self-test.
#[must_use]
pub fn lacking(selection: &Selection, primitives: impl IntoIterator<Item = Primitive>) -> Vec<Lack> {
    let lack = |primitive| {
        let ranking = selection.ranking(primitive);
        if ranking.iter().any(|place| place.obstacle.is_none()) {
            return None;
        }
        let obstacles =
            ranking.into_iter().filter_map(|place| Some((place.provider.name(), place.obstacle?)));
        let admitted = obstacles.filter(|(_, obstacle)| *obstacle != Obstacle::Policy);
        Some(Lack { primitive, obstacles: admitted.collect() })
    };
    primitives.into_iter().filter_map(lack).collect()
}

/// Runs the self-tests of everything that a service will need, so that no connection waits for one; gives how many
/// primitives are ready. Of the groups, those without a source are left out, as TLS leaves them out.
///
/// # Errors
/// [`SalError::NoSource`] when something indispensable has no source, or none of the groups has.
pub fn prepare_services(selection: &Selection, groups: &[KexGroup]) -> Result<usize, SalError> {
    let indispensable = indispensable();
    selection.prepare(indispensable.iter().copied())?;
    let mut ready = indispensable;
    let mut refused = None;
    for group in groups {
        let parts = of_group(*group);
        match selection.prepare(parts.iter().copied()) {
            Ok(()) => ready.extend(parts),
            Err(error) => refused = Some(error),
        }
    }
    let has_group =
        ready.iter().any(|primitive| matches!(primitive, Primitive::Agree(_) | Primitive::Encapsulate));
    if let (false, Some(error)) = (has_group, refused) {
        return Err(error);
    }
    // Offered where there is a source.
    let chacha = Primitive::Aead(AeadAlgorithm::ChaCha20Poly1305);
    ready.extend(selection.prepare([chacha]).is_ok().then_some(chacha));
    ready.sort_unstable();
    ready.dedup();
    Ok(ready.len())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::{Policy, provider};

    fn selection(mode: Mode) -> Selection {
        Selection::new(provider::ALL, Policy { mode, ..Policy::default() })
    }

    #[test]
    fn the_preset_lacks_nothing() {
        let preset = selection(Mode::Preset);
        assert_eq!(lacking(&preset, indispensable()), []);
        let groups = default_groups(&Mode::Preset);
        assert_eq!(lacking(&preset, groups.iter().flat_map(|group| of_group(*group))), []);
        let ready = prepare_services(&preset, groups).unwrap();
        // With the three agreements, both sides of ML-KEM, and ChaCha20-Poly1305.
        assert_eq!(ready, indispensable().len() + 3 + 2 + 1);
        assert!(preset.incidents().is_empty());
    }

    #[cfg(feature = "fips")]
    #[test]
    fn what_the_module_lacks_is_named_and_it_serves_without_that() {
        let fips = selection(Mode::Fips);
        assert_eq!(lacking(&fips, indispensable()), []);
        let groups = default_groups(&Mode::Fips);
        assert_eq!(lacking(&fips, groups.iter().flat_map(|group| of_group(*group))), []);
        let lacks = lacking(&fips, of_group(KexGroup::X25519MlKem768));
        let names: Vec<_> = lacks.iter().map(|lack| lack.primitive).collect();
        assert_eq!(names, [Primitive::Agree(crate::algorithm::DhGroup::X25519)]);
        assert_eq!(lacks[0].obstacles, [("aws-lc", Obstacle::NotOffered)], "RustCrypto is not admitted");
        // Without ChaCha20-Poly1305: three agreements of P-256 and P-384 at most, and both sides of ML-KEM.
        assert!(prepare_services(&fips, groups).unwrap() > indispensable().len());
        assert!(matches!(prepare_services(&fips, &[KexGroup::X25519]), Err(SalError::NoSource { .. })));
        assert_eq!(fips.incidents(), []);
    }

    #[cfg(not(feature = "fips"))]
    #[test]
    fn what_a_single_source_lacks_is_named_without_the_others() {
        // ring has no ML-KEM.
        let ring = selection(Mode::Only("ring".to_owned()));
        let lacks = lacking(&ring, of_group(KexGroup::X25519MlKem768));
        let names: Vec<_> = lacks.iter().map(|lack| lack.primitive).collect();
        assert_eq!(names, [Primitive::Decapsulate, Primitive::Encapsulate]);
        for lack in lacks {
            let ring = lack.obstacles.iter().find(|(name, _)| *name == "ring");
            assert_eq!(ring.map(|(_, obstacle)| obstacle), Some(&Obstacle::NotOffered));
        }
        assert!(prepare_services(&ring, KexGroup::DEFAULT).is_ok());
        assert!(prepare_services(&ring, &[KexGroup::MlKem768]).is_err());
        // libcrux has post-quantum primitives only.
        let libcrux = selection(Mode::Only("libcrux".to_owned()));
        assert!(lacking(&libcrux, indispensable()).iter().any(|lack| lack.primitive == Primitive::Random));
        assert!(matches!(prepare_services(&libcrux, KexGroup::DEFAULT), Err(SalError::NoSource { .. })));
    }

    #[test]
    fn fips_offers_groups_that_are_approved() {
        for group in default_groups(&Mode::Fips) {
            assert_ne!(group.dh(), Some(crate::algorithm::DhGroup::X25519));
        }
    }
}
