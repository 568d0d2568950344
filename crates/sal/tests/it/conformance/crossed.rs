//! What one provider makes, given to every other.

use std::collections::BTreeMap;

use sallyport_sal::algorithm::{
    AeadAlgorithm, DhGroup, HashAlgorithm, KeyAlgorithm, KeyKind, SignatureScheme, Standing,
};
use sallyport_sal::provider::{Offer, PrivateKey, Provider};
use sallyport_sal::{Primitive, PrivateKeyMaterial};

use crate::conformance::digests::{digest, tag};
use crate::conformance::private_keys::rsa_key;
use crate::conformance::report::{Origin, Report};

/// Those who take part.
pub(crate) type Providers = [&'static dyn Provider];

/// Lengths of messages: every short one, those around blocks and records, and a large one.
fn lengths() -> impl Iterator<Item = usize> {
    (0..=300).chain([511, 512, 513, 1023, 1024, 1025, 4095, 16_384, 16_385, 65_537, 1 << 20])
}

/// Bytes that tell at which place they stand.
fn message(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 251).to_le_bytes()[0]).collect()
}

/// A report for each provider, by name.
struct Reports(BTreeMap<&'static str, Report>);

impl Reports {
    fn new(providers: &Providers) -> Self {
        Self(providers.iter().map(|provider| (provider.name(), Report::new(provider.name()))).collect())
    }

    fn check(
        &mut self,
        who: &dyn Provider,
        primitive: Primitive,
        right: bool,
        what: impl FnOnce() -> String,
    ) {
        self.0.get_mut(who.name()).expect("who takes part has a report").check(
            primitive,
            Origin::Crossed,
            right,
            what,
        );
    }

    /// For both who took part, once when they are the same and do the same.
    fn check_both(
        &mut self,
        (one, by): (&dyn Provider, Primitive),
        (other, to): (&dyn Provider, Primitive),
        right: bool,
        what: impl Fn() -> String,
    ) {
        self.check(one, by, right, &what);
        if (one.name(), by) != (other.name(), to) {
            self.check(other, to, right, what);
        }
    }

    fn done(self) -> Vec<Report> {
        self.0.into_values().collect()
    }
}

fn offering(providers: &Providers, primitive: Primitive) -> Vec<&'static dyn Provider> {
    providers.iter().copied().filter(|provider| provider.offer(primitive) != Offer::No).collect()
}

/// Keys made by each, loaded by each; each signs by each scheme, and each verifies.
pub(crate) fn signatures(algorithm: KeyAlgorithm, providers: &Providers) -> Vec<Report> {
    let mut reports = Reports::new(providers);
    let signers = offering(providers, Primitive::Sign(algorithm));
    for (maker, pair) in keys(algorithm, providers, &mut reports) {
        public_halves(algorithm, &pair, providers, &mut reports);
        for signer in &signers {
            let loaded = signer.load_key(&pair);
            let what = || {
                format!(
                    "a key made by {} loads in {}",
                    maker.map_or("openssl", Provider::name),
                    signer.name()
                )
            };
            match maker {
                Some(maker) => reports.check_both(
                    (maker, Primitive::GenerateKey(algorithm)),
                    (*signer, Primitive::Sign(algorithm)),
                    loaded.is_ok(),
                    what,
                ),
                None => reports.check(*signer, Primitive::Sign(algorithm), loaded.is_ok(), what),
            }
            let Ok(key) = loaded else { continue };
            for scheme in algorithm.schemes().iter().copied() {
                sign_and_verify(*signer, key.as_ref(), &pair, scheme, providers, &mut reports);
            }
        }
    }
    reports.done()
}

/// A key by everyone who makes such keys, and the kept one for RSA.
fn keys(
    algorithm: KeyAlgorithm,
    providers: &Providers,
    reports: &mut Reports,
) -> Vec<(Option<&'static dyn Provider>, PrivateKeyMaterial)> {
    let primitive = Primitive::GenerateKey(algorithm);
    let mut keys = Vec::new();
    if algorithm.kind() == KeyKind::Rsa {
        keys.push((None, rsa_key(algorithm)));
    }
    for maker in offering(providers, primitive) {
        if algorithm.standing() == Standing::VerifyOnly {
            let report = reports.0.get_mut(maker.name()).expect("who takes part has a report");
            report.skip(primitive, Origin::Crossed, "takes half a minute, and the layer makes no such key");
            continue;
        }
        let made = maker.generate_key(algorithm);
        let whole = made.as_ref().is_ok_and(|pair| {
            algorithm.secret_bytes().is_none_or(|length| pair.secret().len() == length)
                && algorithm.public_bytes().is_none_or(|length| pair.public().len() == length)
                && pair.algorithm() == algorithm
        });
        reports.check(maker, primitive, whole, || format!("make a key: {made:?}"));
        keys.extend(made.ok().map(|pair| (Some(maker), pair)));
    }
    keys
}

/// Everyone who derives public halves derives this one.
fn public_halves(
    algorithm: KeyAlgorithm,
    pair: &PrivateKeyMaterial,
    providers: &Providers,
    reports: &mut Reports,
) {
    for provider in offering(providers, Primitive::Sign(algorithm)) {
        if let Ok(public) = provider.derive_public(algorithm, pair.secret()) {
            reports.check(provider, Primitive::Sign(algorithm), public == pair.public(), || {
                "the public half of a key".to_owned()
            });
        }
    }
}

fn sign_and_verify(
    signer: &dyn Provider,
    key: &dyn PrivateKey,
    pair: &PrivateKeyMaterial,
    scheme: SignatureScheme,
    providers: &Providers,
    reports: &mut Reports,
) {
    let algorithm = pair.algorithm();
    let by = Primitive::Sign(algorithm);
    let to = Primitive::Verify(algorithm);
    // Long ones for all but RSA, where only the digest reaches the key.
    let lengths: &[usize] = if algorithm.kind() == KeyKind::Rsa { &[100] } else { &[0, 1, 100, 10_000] };
    for length in lengths {
        let message = message(*length);
        let signed = key.sign(scheme, &message);
        if signed == Err(sallyport_sal::provider::Fault::Unsupported)
            && algorithm.standing() == Standing::LabOnly
        {
            continue;
        }
        let Ok(signature) = signed else {
            reports.check(signer, by, false, || format!("sign by {scheme}: {signed:?}"));
            continue;
        };
        for verifier in offering(providers, to) {
            let verified = verifier.verify(algorithm, scheme, pair.public(), &message, &signature);
            if verified == Err(sallyport_sal::provider::Fault::Unsupported)
                && algorithm.standing() == Standing::LabOnly
            {
                continue;
            }
            reports.check_both((signer, by), (verifier, to), verified.is_ok(), || {
                format!("{scheme} by {} verified by {}: {verified:?}", signer.name(), verifier.name())
            });
        }
    }
}

/// Each agrees with each.
pub(crate) fn agreements(group: DhGroup, providers: &Providers) -> Vec<Report> {
    let mut reports = Reports::new(providers);
    let primitive = Primitive::Agree(group);
    let those = offering(providers, primitive);
    for (at, one) in those.iter().enumerate() {
        for other in &those[at..] {
            for _ in 0..8 {
                let same = (|| {
                    let (left, right) =
                        (one.start_agreement(group).ok()?, other.start_agreement(group).ok()?);
                    let (to_right, to_left) = (left.share().to_vec(), right.share().to_vec());
                    let (left, right) = (left.finish(&to_left).ok()?, right.finish(&to_right).ok()?);
                    Some(left.as_bytes() == right.as_bytes() && left.as_bytes().len() == group.secret_bytes())
                })();
                reports.check_both((*one, primitive), (*other, primitive), same == Some(true), || {
                    format!("{} with {}", one.name(), other.name())
                });
            }
        }
    }
    reports.done()
}

/// Each opens what each encapsulated.
pub(crate) fn encapsulations(providers: &Providers) -> Vec<Report> {
    let mut reports = Reports::new(providers);
    for opener in offering(providers, Primitive::Decapsulate) {
        for sender in offering(providers, Primitive::Encapsulate) {
            for _ in 0..8 {
                let same = (|| {
                    let key = opener.start_decapsulation().ok()?;
                    let (ciphertext, sent) = sender.encapsulate(key.public()).ok()?;
                    let opened = key.finish(&ciphertext).ok()?;
                    Some(
                        ciphertext.len() == 1088
                            && sent.as_bytes().len() == 32
                            && opened.as_bytes() == sent.as_bytes(),
                    )
                })();
                reports.check_both(
                    (opener, Primitive::Decapsulate),
                    (sender, Primitive::Encapsulate),
                    same == Some(true),
                    || format!("encapsulated by {}, opened by {}", sender.name(), opener.name()),
                );
            }
        }
    }
    reports.done()
}

/// Each seals, and each opens.
pub(crate) fn ciphers(algorithm: AeadAlgorithm, providers: &Providers) -> Vec<Report> {
    let mut reports = Reports::new(providers);
    let primitive = Primitive::Aead(algorithm);
    let key = message(algorithm.key_bytes());
    let mut those = Vec::new();
    for provider in offering(providers, primitive) {
        let made = provider.aead(algorithm, &key);
        reports.check(provider, primitive, made.is_ok(), || "set up a key".to_owned());
        those.extend(made.ok().map(|key| (provider, key)));
    }
    for length in lengths() {
        let plain = message(length);
        let aad = message(length % 41);
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&length.to_be_bytes());
        // What is sealed has no randomness: all should seal alike, and the same bytes are opened once by each.
        let mut opened_before = BTreeMap::new();
        for (sealer, key) in &those {
            let mut sealed = plain.clone();
            let Ok(tag) = key.seal(&nonce, &aad, &mut sealed) else {
                reports.check(*sealer, primitive, false, || format!("seal {length} bytes"));
                continue;
            };
            for (opener, key) in &those {
                let of = (opener.name(), sealed.clone(), tag);
                let right = *opened_before.entry(of).or_insert_with(|| {
                    let mut opened = sealed.clone();
                    key.open(&nonce, &aad, &mut opened, &tag).is_ok() && opened == plain
                });
                reports.check_both((*sealer, primitive), (*opener, primitive), right, || {
                    format!("{length} bytes sealed by {}, opened by {}", sealer.name(), opener.name())
                });
            }
        }
    }
    reports.done()
}

/// All have the same digests and tags.
pub(crate) fn digests(algorithm: HashAlgorithm, providers: &Providers) -> Vec<Report> {
    let mut reports = Reports::new(providers);
    for length in lengths() {
        let data = message(length);
        let key = message(length % 300);
        let split = data.split_at(length / 3);
        let hashing = offering(providers, Primitive::Hash(algorithm));
        let first = hashing.first().and_then(|provider| digest(*provider, algorithm, &[&data]));
        for provider in hashing {
            let right = first.is_some() && digest(provider, algorithm, &[split.0, split.1]) == first;
            reports.check(provider, Primitive::Hash(algorithm), right, || format!("{length} bytes"));
        }
        let tagging = offering(providers, Primitive::Hmac(algorithm));
        let first = tagging.first().and_then(|provider| tag(*provider, algorithm, &key, &[&data]));
        for provider in tagging {
            let right = first.is_some() && tag(provider, algorithm, &key, &[split.0, split.1]) == first;
            reports.check(provider, Primitive::Hmac(algorithm), right, || format!("{length} bytes"));
        }
    }
    reports.done()
}
