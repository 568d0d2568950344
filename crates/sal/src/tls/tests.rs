#![allow(clippy::unwrap_used, clippy::panic)]
//! Handshakes of every shape, with every source, against rustls' own providers.

use rustls::crypto::{aws_lc_rs, ring};

use super::*;
use crate::KeyAlgorithm;
use crate::measure::handshake::{Credentials, Pair, Shape};
use crate::provider::ALL;
use crate::selection::Policy;

fn leaked(policy: Policy) -> &'static Selection {
    Box::leak(Box::new(Selection::new(ALL, policy)))
}

const KEYS: &[KeyAlgorithm] = &[
    KeyAlgorithm::Ed25519,
    KeyAlgorithm::EcdsaP256,
    KeyAlgorithm::EcdsaP384,
    KeyAlgorithm::EcdsaP521,
    KeyAlgorithm::Rsa2048,
    KeyAlgorithm::MlDsa44,
    KeyAlgorithm::MlDsa65,
    KeyAlgorithm::MlDsa87,
];

#[test]
fn every_type_of_key_serves_both_sides_and_resumes() {
    let selection = leaked(Policy::default());
    for key in KEYS {
        for client_certificate in [false, true] {
            for resumed in [false, true] {
                let shape = Shape { client_certificate, resumed, ..Shape::new(*key, KexGroup::X25519) };
                Pair::of(selection, shape)
                    .unwrap()
                    .warm_up()
                    .unwrap_or_else(|error| panic!("{shape:?}: {error}"));
            }
        }
    }
}

#[test]
fn every_group_and_cipher_agrees_with_the_providers_of_rustls() {
    let selection = leaked(Policy::default());
    let credentials = Credentials::new(selection, KeyAlgorithm::EcdsaP256).unwrap();
    // In a FIPS build, its default leaves ChaCha20-Poly1305 out.
    let cipher_suites = aws_lc_rs::ALL_CIPHER_SUITES.to_vec();
    let aws_lc = CryptoProvider { cipher_suites, ..aws_lc_rs::default_provider() };
    for peer in [aws_lc, ring::default_provider()] {
        for group in KexGroup::ALL {
            let ours = compose(selection, &[*group]).unwrap();
            let mut peer = peer.clone();
            peer.kx_groups = [aws_lc_rs::ALL_KX_GROUPS, ring::ALL_KX_GROUPS]
                .concat()
                .into_iter()
                .filter(|theirs| u16::from(theirs.name()) == group.iana_code())
                .collect();
            // ring has no ML-KEM; aws-lc's stands in, which is as foreign to ours.
            if peer.kx_groups.is_empty() {
                panic!("rustls has no {group}");
            }
            for suite in &ours.cipher_suites {
                let mut ours = (*ours).clone();
                ours.cipher_suites = vec![*suite];
                let (ours, peer) = (Arc::new(ours), Arc::new(peer.clone()));
                let key = KeyAlgorithm::EcdsaP256;
                let shape = Shape { client_certificate: true, resumed: true, ..Shape::new(key, *group) };
                for (client, server) in [(&ours, &peer), (&peer, &ours)] {
                    let pair = credentials.pair(client, server, shape).unwrap();
                    pair.warm_up().unwrap_or_else(|error| panic!("{group} {suite:?}: {error}"));
                }
            }
        }
    }
}

#[test]
fn each_source_alone_makes_a_whole_provider_where_it_has_the_pieces() {
    for provider in ALL {
        let policy = Policy { mode: Mode::Only(provider.name().to_owned()), ..Policy::default() };
        let selection = leaked(policy);
        let Ok(composed) = compose(selection, KexGroup::ALL) else {
            // libcrux has no ciphers.
            assert!(
                selection.source(Primitive::Aead(AeadAlgorithm::Aes128Gcm)).is_err(),
                "{}",
                provider.name()
            );
            continue;
        };
        // In a FIPS build, its default leaves ChaCha20-Poly1305 out.
        let cipher_suites = aws_lc_rs::ALL_CIPHER_SUITES.to_vec();
        let common = Arc::new(CryptoProvider { cipher_suites, ..aws_lc_rs::default_provider() });
        for group in KexGroup::ALL.iter().filter(|group| exchange::is_served(selection, **group)) {
            for suite in &composed.cipher_suites {
                let mut ours = (*composed).clone();
                ours.cipher_suites = vec![*suite];
                ours.kx_groups = vec![exchange::group(selection, *group)];
                let (ours, key) = (Arc::new(ours), KeyAlgorithm::EcdsaP256);
                let credentials = Credentials::new(leaked(Policy::default()), key).unwrap();
                let mut peer = (*common).clone();
                peer.kx_groups = aws_lc_rs::ALL_KX_GROUPS.to_vec();
                let shape = Shape { client_certificate: true, resumed: true, ..Shape::new(key, *group) };
                let pair = credentials.pair(&ours, &Arc::new(peer), shape).unwrap();
                pair.warm_up()
                    .unwrap_or_else(|error| panic!("{} {group} {suite:?}: {error}", provider.name()));
            }
        }
    }
}

#[test]
fn a_server_without_the_first_group_costs_no_second_flight_when_it_has_the_other_half() {
    let selection = leaked(Policy::default());
    let ours = compose(selection, &[KexGroup::X25519MlKem768, KexGroup::X25519]).unwrap();
    let mut old = ring::default_provider();
    old.kx_groups = vec![ring::kx_group::X25519];
    let key = KeyAlgorithm::Ed25519;
    let credentials = Credentials::new(selection, key).unwrap();
    let shape = Shape::new(key, KexGroup::X25519);
    let pair = credentials.pair(&ours, &Arc::new(old), shape).unwrap();
    assert_eq!(pair.run().unwrap().flights, 3, "a HelloRetryRequest would make it 5");

    let ours = compose(selection, &[KexGroup::X25519MlKem768, KexGroup::P256]).unwrap();
    let mut old = ring::default_provider();
    old.kx_groups = vec![ring::kx_group::SECP256R1];
    let pair = credentials.pair(&ours, &Arc::new(old), shape).unwrap();
    assert_eq!(pair.run().unwrap().flights, 5, "another group altogether takes a second ClientHello");
}

#[test]
fn a_key_in_other_custody_signs_handshakes() {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use crate::{MemoryKey, PublicKey, SignError, SignatureScheme, Signer};

    #[derive(Debug)]
    struct Counting(MemoryKey, AtomicUsize);
    impl Signer for Counting {
        fn algorithm(&self) -> KeyAlgorithm {
            self.0.algorithm()
        }
        fn public_key(&self) -> PublicKey {
            self.0.public_key()
        }
        fn sign_with(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, SignError> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.sign_with(scheme, message)
        }
    }
    let signer = Arc::new(Counting(MemoryKey::generate(KeyAlgorithm::Rsa2048).unwrap(), AtomicUsize::new(0)));
    let key = signing_key(Arc::clone(&signer) as Arc<dyn Signer>);
    let offered = [rustls::SignatureScheme::RSA_PKCS1_SHA256, rustls::SignatureScheme::RSA_PSS_SHA384];
    let chosen = key.choose_scheme(&offered).unwrap();
    assert_eq!(chosen.scheme(), rustls::SignatureScheme::RSA_PSS_SHA384);
    let signature = chosen.sign(b"transcript").unwrap();
    signer.public_key().verify_with(SignatureScheme::RsaPssSha384, b"transcript", &signature).unwrap();
    assert_eq!(signer.1.load(Ordering::Relaxed), 1);
    assert!(key.choose_scheme(&[rustls::SignatureScheme::ED25519]).is_none());
}

#[test]
fn a_handshake_counts_every_primitive_for_its_source() {
    let selection = leaked(Policy { mode: Mode::Only("aws-lc".to_owned()), ..Policy::default() });
    let composed = compose(selection, &[KexGroup::P256MlKem768]).unwrap();
    let key = KeyAlgorithm::EcdsaP256;
    let credentials = Credentials::new(selection, key).unwrap();
    let before = selection.uses();
    let shape = Shape { client_certificate: true, ..Shape::new(key, KexGroup::P256MlKem768) };
    credentials.pair(&composed, &composed, shape).unwrap().run().unwrap();
    let times = |uses: &[crate::uses::Use], primitive: &str| {
        uses.iter().filter(|one| one.primitive == primitive).map(|one| one.times).sum::<u64>()
    };
    let after = selection.uses();
    for primitive in [
        "agree/p256",
        "decapsulate/ml-kem-768",
        "encapsulate/ml-kem-768",
        "sign/ecdsa-p256",
        "verify/ecdsa-p256",
        "aead/aes-128-gcm",
        "hash/sha-256",
        "hmac/sha-256",
        "random",
    ] {
        assert!(times(&after, primitive) > times(&before, primitive), "{primitive}: {after:?}");
    }
    assert!(after.iter().all(|one| one.provider == "aws-lc"), "{after:?}");
}

/// `is_fips` of the whole is the conjunction of that of every part, so nothing else may have slipped in.
#[cfg(feature = "fips")]
#[test]
fn the_fips_policy_composes_a_whole_that_says_so() {
    let selection = leaked(Policy { mode: Mode::Fips, ..Policy::default() });
    let composed = compose(selection, KexGroup::ALL).unwrap();
    assert!(composed.fips());
    let groups: Vec<_> = composed.kx_groups.iter().map(|group| u16::from(group.name())).collect();
    let approved = [KexGroup::P256MlKem768, KexGroup::P256, KexGroup::P384, KexGroup::MlKem768];
    assert_eq!(groups, approved.map(KexGroup::iana_code));
    assert_eq!(composed.cipher_suites.len(), 2, "AES-GCM with either key");
    for key in KEYS {
        for group in approved {
            let shape = Shape { client_certificate: true, resumed: true, ..Shape::new(*key, group) };
            let credentials = Credentials::new(selection, *key).unwrap();
            let pair = credentials.pair(&composed, &composed, shape).unwrap();
            pair.warm_up().unwrap_or_else(|error| panic!("{shape:?}: {error}"));
        }
    }
}
