#![allow(clippy::unwrap_used)]
//! The choice of sources, with providers that lie, break and lack things.

use std::sync::atomic::AtomicBool;

use super::*;
use crate::algorithm::{HashAlgorithm, SignatureScheme};
use crate::cpu::CpuFeature;
use crate::provider::aws_lc::AwsLc;
use crate::provider::{ALL, PrivateKey};
use crate::{MemoryKey, PrivateKeyMaterial, PublicKey, Signer};

#[test]
fn every_primitive_of_the_default_build_has_a_source_that_passes_its_self_test() {
    let selection = Selection::new(ALL, Policy::default());
    for primitive in Primitive::all() {
        match selection.source(primitive) {
            Ok(_) => {}
            Err(error) if primitive.parameters() == "rsa-1024" => {
                assert!(error.to_string().contains("not offered"))
            }
            Err(error) => panic!("{primitive}: {error}"),
        }
    }
    assert_eq!(selection.incidents(), []);
}

#[test]
fn every_provider_passes_every_self_test_of_what_it_offers() {
    for provider in ALL {
        for primitive in Primitive::all().filter(|primitive| provider.offer(*primitive) != Offer::No) {
            let others: Vec<_> =
                ALL.iter().copied().filter(|other| other.name() != provider.name()).collect();
            assert_eq!(
                selftest::check(*provider, primitive, &others),
                Ok(()),
                "{} {primitive}",
                provider.name()
            );
            assert_eq!(
                selftest::check(*provider, primitive, &[]),
                Ok(()),
                "{} alone {primitive}",
                provider.name()
            );
        }
    }
}

/// Does as AWS-LC does, but for a signature that is wrong in one bit and a hash that is wrong when told to be.
#[derive(Debug)]
struct Liar;

static BREAKS: AtomicBool = AtomicBool::new(false);

struct Crooked(Box<dyn PrivateKey>);

impl PrivateKey for Crooked {
    fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, Fault> {
        let mut signature = self.0.sign(scheme, message)?;
        if let Some(last) = signature.last_mut() {
            *last ^= 1;
        }
        Ok(signature)
    }
}

impl Provider for Liar {
    fn name(&self) -> &'static str {
        "liar"
    }
    fn credit(&self) -> &'static str {
        "a liar"
    }
    fn offer(&self, primitive: Primitive) -> Offer {
        match primitive {
            Primitive::Sign(KeyAlgorithm::EcdsaP256)
            | Primitive::Verify(KeyAlgorithm::EcdsaP256)
            | Primitive::Hash(HashAlgorithm::Sha256) => Offer::Yes,
            Primitive::Random => Offer::Unsafe("it is a liar"),
            _ => Offer::No,
        }
    }
    fn load_key(&self, key: &PrivateKeyMaterial) -> Result<Box<dyn PrivateKey>, Fault> {
        Ok(Box::new(Crooked(AwsLc.load_key(key)?)))
    }
    fn verify(&self, _: KeyAlgorithm, _: SignatureScheme, _: &[u8], _: &[u8], _: &[u8]) -> Result<(), Fault> {
        Ok(())
    }
    fn hash(&self, algorithm: HashAlgorithm, parts: &[&[u8]], out: &mut [u8]) -> Result<(), Fault> {
        if BREAKS.load(Ordering::Relaxed) {
            return Err(Fault::Broken("hash"));
        }
        AwsLc.hash(algorithm, parts, out)
    }
    fn start_hash(&self, algorithm: HashAlgorithm) -> Result<Box<dyn provider::HashContext>, Fault> {
        AwsLc.start_hash(algorithm)
    }
}

fn with_liar_first() -> Policy {
    let overrides = [
        Primitive::Sign(KeyAlgorithm::EcdsaP256),
        Primitive::Verify(KeyAlgorithm::EcdsaP256),
        Primitive::Hash(HashAlgorithm::Sha256),
        Primitive::Random,
    ];
    Policy {
        mode: Mode::Preset,
        overrides: overrides.into_iter().map(|primitive| (primitive, "liar".to_owned())).collect(),
        ..Policy::default()
    }
}

#[test]
fn a_provider_that_gives_a_wrong_answer_is_quarantined_and_the_next_takes_over() {
    let selection: &'static Selection =
        Box::leak(Box::new(Selection::new(&[&Liar, &AwsLc], with_liar_first())));
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&heard);
    selection.on_incident(move |incident| hears.lock().push(incident.to_string()));

    let sign = Primitive::Sign(KeyAlgorithm::EcdsaP256);
    let key = MemoryKey::generate_in(selection, KeyAlgorithm::EcdsaP256).unwrap();
    let signature = key.sign(b"message").unwrap();
    let public: PublicKey = key.public_key();
    public.verify(b"message", &signature).unwrap();
    assert_eq!(selection.source(sign).unwrap().name(), "aws-lc");

    // It accepts every signature: the other lie.
    let scheme = SignatureScheme::EcdsaP256Sha256;
    assert!(public.verify_in(selection, scheme, b"another message", &signature).is_err());
    public.verify_in(selection, scheme, b"message", &signature).unwrap();

    let heard = heard.lock();
    assert_eq!(heard.len(), 2, "{heard:?}");
    assert!(heard.iter().any(|line| line
        == "liar is out of service for verify/ecdsa-p256: it accepted a signature over another message; aws-lc takes over"));
    let ranking = selection.ranking(sign);
    assert!(matches!(ranking.last().unwrap().obstacle, Some(Obstacle::Quarantined(_))));

    // What it offers with a warning was never a candidate, though the policy names it.
    assert_eq!(selection.source(Primitive::Random).unwrap().name(), "aws-lc");
}

#[test]
fn a_provider_that_breaks_later_is_replaced_in_the_same_call() {
    let selection = Selection::new(&[&Liar, &AwsLc], with_liar_first());
    let hash = Primitive::Hash(HashAlgorithm::Sha256);
    assert_eq!(selection.source(hash).unwrap().name(), "liar");
    BREAKS.store(true, Ordering::Relaxed);
    let mut out = [0; 32];
    selection.run(hash, |provider| provider.hash(HashAlgorithm::Sha256, &[b"abc"], &mut out)).unwrap();
    assert_eq!(out, crate::hash::sha256(b"abc"));
    assert_eq!(selection.source(hash).unwrap().name(), "aws-lc");
    assert_eq!(selection.incidents().len(), 1);
}

#[test]
fn only_one_provider_means_no_other() {
    // A build with the FIPS module has no ring.
    let (alone, lacks) = match cfg!(feature = "fips") {
        true => ("rustcrypto", Primitive::Sign(KeyAlgorithm::Rsa3072)),
        false => ("ring", Primitive::Decapsulate),
    };
    let only = Policy { mode: Mode::Only(alone.to_owned()), ..Policy::default() };
    only.check().unwrap();
    let selection = Selection::new(ALL, only);
    assert_eq!(selection.source(Primitive::Random).unwrap().name(), alone);
    let error = selection.source(lacks).unwrap_err().to_string();
    assert!(error.contains(&format!("no source of cryptography for {lacks}")), "{error}");
    assert!(error.contains(&format!("{alone}: not offered")), "{error}");
    assert!(error.contains("aws-lc: not admitted by the policy"), "{error}");
}

/// A source of random numbers alone, so that what is chosen does not depend on the providers of the build. The preset knows it by
/// the name of one of those.
#[derive(Debug)]
struct Dice {
    name: &'static str,
    needs: &'static [CpuFeature],
}

impl Provider for Dice {
    fn name(&self) -> &'static str {
        self.name
    }
    fn credit(&self) -> &'static str {
        "dice"
    }
    fn offer(&self, primitive: Primitive) -> Offer {
        if primitive == Primitive::Random { Offer::Yes } else { Offer::No }
    }
    fn needs(&self) -> &'static [CpuFeature] {
        self.needs
    }
    fn random(&self, out: &mut [u8]) -> Result<(), Fault> {
        AwsLc.random(out)
    }
}

static DICE: &[&dyn Provider] = &[
    &Dice { name: "aws-lc", needs: &[] },
    &Dice { name: "ring", needs: &[] },
    &Dice { name: "graviola", needs: &[CpuFeature::Aes] },
];

#[test]
fn a_cpu_without_its_features_drops_a_provider() {
    let bare = Cpu { model: String::new(), features: vec![] };
    let first = Policy {
        overrides: [(Primitive::Random, "graviola".to_owned())].into_iter().collect(),
        ..Policy::default()
    };
    let able = Selection::on(DICE, first.clone(), Cpu { features: vec![CpuFeature::Aes], ..bare.clone() });
    assert_eq!(able.source(Primitive::Random).unwrap().name(), "graviola");
    let selection = Selection::on(DICE, first, bare);
    assert_ne!(selection.source(Primitive::Random).unwrap().name(), "graviola");
    let ranking = selection.ranking(Primitive::Random);
    let place = ranking.into_iter().find(|place| place.provider.name() == "graviola").unwrap();
    assert!(matches!(place.obstacle, Some(Obstacle::MissingCpuFeature(_))));
}

#[test]
fn policies_name_what_exists() {
    let policy = Policy {
        mode: Mode::Only("missing".to_owned()),
        overrides: [
            (Primitive::GenerateKey(KeyAlgorithm::Rsa1024), "aws-lc".to_owned()),
            (Primitive::Random, "aws-lc".to_owned()),
        ]
        .into_iter()
        .collect(),
        ..Policy::default()
    };
    let errors: Vec<_> = policy.check().unwrap_err().iter().map(ToString::to_string).collect();
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors[0].starts_with("unknown provider \"missing\"; this build has aws-lc, r"), "{errors:?}");
    assert_eq!(errors[1], "aws-lc cannot serve generate/rsa-1024: it does not offer it");
}

#[cfg(not(feature = "fips"))]
#[test]
fn policies_name_no_source_that_its_authors_warn_of() {
    let overrides = [(Primitive::GenerateKey(KeyAlgorithm::Rsa2048), "graviola".to_owned())];
    let policy = Policy { overrides: overrides.into_iter().collect(), ..Policy::default() };
    let errors: Vec<_> = policy.check().unwrap_err().iter().map(ToString::to_string).collect();
    assert!(errors.len() == 1 && errors[0].contains("side channels"), "{errors:?}");
}

/// This machine, with what [`DICE`] need.
fn able() -> Cpu {
    Cpu { features: vec![CpuFeature::Aes], ..Cpu::detect() }
}

fn profile(costs: &[(&str, f64)]) -> Profile {
    let mut profile = Profile::new(&able(), time::OffsetDateTime::UNIX_EPOCH);
    let row = profile.costs.entry(Primitive::Random).or_default();
    for (name, cost) in costs {
        row.insert((*name).to_owned(), Cost { nanoseconds: *cost, median: *cost });
    }
    profile
}

#[test]
fn the_fastest_is_chosen_but_noise_displaces_nobody() {
    let chosen = |costs: &[(&str, f64)]| {
        let policy = Policy { mode: Mode::Measured(profile(costs)), ..Policy::default() };
        let selection = Selection::on(DICE, policy, able());
        assert_eq!(selection.reason(Primitive::Random), Reason::Measured);
        selection.source(Primitive::Random).unwrap().name()
    };
    assert_eq!(chosen(&[("ring", 100.0), ("graviola", 50.0), ("aws-lc", 80.0)]), "graviola");
    assert_eq!(chosen(&[("ring", 100.0), ("graviola", 98.0), ("aws-lc", 200.0)]), "ring", "2 % are noise");
    assert_eq!(chosen(&[("ring", 100.0), ("graviola", 96.0)]), "graviola");
}

#[test]
fn a_profile_survives_its_file_and_is_dropped_when_the_machine_changed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep/profile.json");
    let mut saved = profile(&[("aws-lc", 1.0), ("ring", 90.5)]);
    saved.write(&path).unwrap();
    assert_eq!(Profile::read(&path).unwrap(), saved);
    saved.cpu = "another".to_owned();
    let policy = Policy { mode: Mode::Measured(saved), ..Policy::default() };
    let selection = Selection::on(DICE, policy, able());
    assert_eq!(selection.source(Primitive::Random).unwrap().name(), "ring");
    assert_eq!(selection.reason(Primitive::Random), Reason::Preset);
    assert_eq!(
        selection.incidents()[0].to_string(),
        "the measured profile is not used: it was measured on another CPU; run `sallyport sal tune` again"
    );
    std::fs::write(&path, "{}").unwrap();
    assert!(Profile::read(&path).unwrap_err().to_string().contains("sal tune"));
}

#[test]
fn a_short_command_waits_for_no_entropy() {
    let policy = Policy { quick_start: true, ..Policy::default() };
    let selection = Selection::new(ALL, policy);
    for primitive in Primitive::all().filter(|primitive| primitive.draws_randomness()) {
        let alternatives = ALL.iter().any(|provider| {
            !provider.starts_slowly()
                && provider.offer(primitive) == Offer::Yes
                && provider.needs().iter().all(|feature| feature.is_present())
        });
        if alternatives {
            assert!(!selection.source(primitive).unwrap().starts_slowly(), "{primitive}");
        }
    }
}

#[test]
fn one_provider_alone_makes_loads_and_uses_keys() {
    let names = ["aws-lc", "ring", "graviola", "rustcrypto"];
    let here: Vec<_> = names.into_iter().filter(|name| provider::by_name(name).is_some()).collect();
    assert_eq!(here.len(), if cfg!(feature = "fips") { 2 } else { 4 });
    for name in here {
        let policy = Policy { mode: Mode::Only(name.to_owned()), ..Policy::default() };
        let selection: &'static Selection = Box::leak(Box::new(Selection::new(ALL, policy)));
        for algorithm in [KeyAlgorithm::Ed25519, KeyAlgorithm::EcdsaP256] {
            let key = MemoryKey::generate_in(selection, algorithm).unwrap();
            let secret = key.material().secret();
            assert_eq!(
                selection.derive_public(algorithm, secret).unwrap(),
                key.material().public(),
                "{name} {algorithm}"
            );
            key.public_key().verify(b"m", &key.sign(b"m").unwrap()).unwrap();
        }
    }
}

#[test]
fn every_use_is_counted_for_the_provider_that_was_asked() {
    let selection =
        Selection::new(ALL, Policy { mode: Mode::Only("aws-lc".to_owned()), ..Policy::default() });
    selection.source(Primitive::Random).unwrap();
    assert_eq!(selection.uses(), [], "a self-test is no use");
    for _ in 0..2 {
        selection.random(&mut [0; 8]).unwrap();
    }
    let made = selection.generate_key(KeyAlgorithm::EcdsaP256).unwrap();
    selection.derive_public(KeyAlgorithm::EcdsaP256, made.secret()).unwrap();
    let told: Vec<_> =
        selection.uses().into_iter().map(|one| (one.primitive, one.provider, one.times)).collect();
    let expected = [("generate/ecdsa-p256", 1), ("sign/ecdsa-p256", 1), ("random", 2)];
    assert_eq!(told, expected.map(|(primitive, times)| (primitive.to_owned(), "aws-lc", times)));
}

#[test]
fn a_source_that_breaks_was_asked_as_well() {
    let selection = Selection::new(ALL, Policy::default());
    let first = selection.source(Primitive::Random).unwrap();
    let mut broken = false;
    let by = selection.run(Primitive::Random, |provider| match std::mem::replace(&mut broken, true) {
        false => Err(Fault::Broken("give random bytes")),
        true => Ok(provider.name()),
    });
    let next = by.unwrap();
    let asked: Vec<_> = selection.uses().into_iter().map(|one| (one.provider, one.times)).collect();
    assert!(first.name() != next && asked.len() == 2, "{asked:?}");
    assert!(asked.contains(&(first.name(), 1)) && asked.contains(&(next, 1)), "{asked:?}");
}
