//! Known answers: what a provider must get right before it is used.
//!
//! Each check runs once, before a provider's first use for a primitive, and takes well below a millisecond for all but
//! RSA private keys. The conformance suite asks far more; this is to catch a library that was miscompiled, meets a CPU
//! it does not understand, or was changed under us.

use crate::algorithm::{AeadAlgorithm, DhGroup, HashAlgorithm, KeyAlgorithm, KeyKind, SignatureScheme};
use crate::provider::{Fault, Offer, Provider};
use crate::{Primitive, PrivateKeyMaterial, formats};

/// What a provider got wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// It gave no answer.
    #[error("it failed on a known answer: {0}")]
    Broken(Fault),
    /// It did not take what it must take.
    #[error("{what}: {fault}")]
    Refused {
        /// What it refused.
        what: &'static str,
        /// What it said.
        fault: Fault,
    },
    /// Its answer is not the right one.
    #[error("{0}")]
    Wrong(&'static str),
    /// It and another provider have different secrets.
    #[error("it does not agree with {0}")]
    Disagrees(&'static str),
    /// The two sides of an encapsulation have different secrets.
    #[error("{0} and {1} do not agree on a secret")]
    Apart(&'static str, &'static str),
    /// This build's own known answer cannot be read.
    #[error("the known answer is damaged")]
    Damaged,
}

const MESSAGE: &[u8] = b"Sallyport self-test";

/// A key with what it signed.
struct Known {
    pkcs8: &'static [u8],
    spki: &'static [u8],
    signature: &'static [u8],
    pss: Option<&'static [u8]>,
}

macro_rules! known {
    ($name:literal) => {
        Known {
            pkcs8: include_bytes!(concat!("kat/", $name, ".pkcs8")),
            spki: include_bytes!(concat!("kat/", $name, ".spki")),
            signature: include_bytes!(concat!("kat/", $name, ".sig")),
            pss: None,
        }
    };
    ($name:literal, pss) => {
        Known { pss: Some(include_bytes!(concat!("kat/", $name, ".pss"))), ..known!($name) }
    };
}

fn known(algorithm: KeyAlgorithm) -> Option<Known> {
    Some(match algorithm {
        KeyAlgorithm::Ed25519 => known!("ed25519"),
        KeyAlgorithm::EcdsaP256 => known!("ecdsa-p256"),
        KeyAlgorithm::EcdsaP384 => known!("ecdsa-p384"),
        KeyAlgorithm::EcdsaP521 => known!("ecdsa-p521"),
        // Broken by its size: there is nothing for a known answer to protect.
        KeyAlgorithm::Rsa1024 => return None,
        KeyAlgorithm::Rsa2048 => known!("rsa-2048", pss),
        KeyAlgorithm::Rsa3072 => known!("rsa-3072", pss),
        KeyAlgorithm::Rsa4096 => known!("rsa-4096", pss),
        KeyAlgorithm::Rsa8192 => known!("rsa-8192", pss),
        KeyAlgorithm::MlDsa44 => known!("ml-dsa-44"),
        KeyAlgorithm::MlDsa65 => known!("ml-dsa-65"),
        KeyAlgorithm::MlDsa87 => known!("ml-dsa-87"),
    })
}

/// The key of a known answer, for measurements.
pub(crate) fn known_key(algorithm: KeyAlgorithm) -> Option<PrivateKeyMaterial> {
    material(algorithm, &known(algorithm)?)
}

/// Asks a provider for known answers. `others` are asked where it takes two to tell.
///
/// # Errors
/// What it got wrong.
pub(crate) fn check(
    provider: &dyn Provider,
    primitive: Primitive,
    others: &[&'static dyn Provider],
) -> Result<(), Failure> {
    match primitive {
        Primitive::GenerateKey(algorithm) => generation(provider, algorithm),
        Primitive::Sign(algorithm) => signing(provider, algorithm, others),
        Primitive::Verify(algorithm) => verification(provider, algorithm),
        Primitive::Agree(group) => agreement(provider, group, others),
        Primitive::Decapsulate => decapsulation(provider, others),
        Primitive::Encapsulate => encapsulation(provider, others),
        Primitive::Aead(algorithm) => aead(provider, algorithm),
        Primitive::Hash(algorithm) => hash(provider, algorithm),
        Primitive::Hmac(algorithm) => hmac(provider, algorithm),
        Primitive::Random => random(provider),
    }
}

/// Signs with a key and verifies what came of it.
///
/// # Errors
/// What went wrong.
pub(crate) fn pairwise(provider: &dyn Provider, key: &PrivateKeyMaterial) -> Result<(), Failure> {
    let algorithm = key.algorithm();
    let scheme = algorithm.default_scheme();
    let signature = provider
        .load_key(key)
        .and_then(|loaded| loaded.sign(scheme, MESSAGE))
        .map_err(|fault| Failure::Refused { what: "it does not sign with a key it made", fault })?;
    provider
        .verify(algorithm, scheme, key.public(), MESSAGE, &signature)
        .map_err(|_| Failure::Wrong("it does not verify what it signed"))
}

fn generation(provider: &dyn Provider, algorithm: KeyAlgorithm) -> Result<(), Failure> {
    if algorithm.kind() == KeyKind::Rsa {
        // Too slow to try; every key is proven when it is made.
        return Ok(());
    }
    let one = provider.generate_key(algorithm).map_err(Failure::Broken)?;
    let two = provider.generate_key(algorithm).map_err(Failure::Broken)?;
    if one.secret() == two.secret() || one.public() == two.public() {
        return Err(Failure::Wrong("it made the same key twice"));
    }
    pairwise(provider, &one)
}

fn signing(
    provider: &dyn Provider,
    algorithm: KeyAlgorithm,
    others: &[&'static dyn Provider],
) -> Result<(), Failure> {
    let Some(known) = known(algorithm) else { return Ok(()) };
    let key = material(algorithm, &known).ok_or(Failure::Damaged)?;
    let loaded =
        provider.load_key(&key).map_err(|fault| Failure::Refused { what: "it refuses a good key", fault })?;
    let scheme = algorithm.default_scheme();
    let signature = loaded.sign(scheme, MESSAGE).map_err(Failure::Broken)?;
    // Ed25519 and PKCS#1 v1.5 have one right answer.
    if matches!(algorithm.kind(), KeyKind::Ed25519 | KeyKind::Rsa) && signature != known.signature {
        return Err(Failure::Wrong("it signed a known message wrongly"));
    }
    // A source that signs wrongly may well verify wrongly: another one is asked where there is one.
    let verifies = Primitive::Verify(algorithm);
    let other = others.iter().copied().find(|other| usable(*other) && other.offer(verifies) == Offer::Yes);
    let judge = match (other, provider.offer(verifies)) {
        (Some(other), _) => Some(other),
        (None, Offer::No) => None,
        (None, _) => Some(provider),
    };
    let again = |scheme, signature: &[u8]| match judge {
        None => Ok(()),
        Some(judge) => judge
            .verify(algorithm, scheme, key.public(), MESSAGE, signature)
            .map_err(|_| Failure::Wrong("it made a signature that does not verify")),
    };
    again(scheme, &signature)?;
    if known.pss.is_some() {
        let signature = loaded.sign(SignatureScheme::RsaPssSha256, MESSAGE).map_err(Failure::Broken)?;
        again(SignatureScheme::RsaPssSha256, &signature)?;
    }
    Ok(())
}

fn verification(provider: &dyn Provider, algorithm: KeyAlgorithm) -> Result<(), Failure> {
    let Some(known) = known(algorithm) else { return Ok(()) };
    let (_, public) = formats::spki::decode(known.spki).map_err(|_| Failure::Damaged)?;
    let mut cases = vec![(algorithm.default_scheme(), known.signature)];
    cases.extend(known.pss.map(|pss| (SignatureScheme::RsaPssSha256, pss)));
    for (scheme, signature) in cases {
        let verify =
            |message: &[u8], signature: &[u8]| provider.verify(algorithm, scheme, public, message, signature);
        verify(MESSAGE, signature)
            .map_err(|fault| Failure::Refused { what: "it refused a good signature", fault })?;
        if verify(b"Sallyport self-tesT", signature).is_ok() {
            return Err(Failure::Wrong("it accepted a signature over another message"));
        }
        let mut wrong = signature.to_vec();
        if let Some(last) = wrong.last_mut() {
            *last ^= 1;
        }
        if verify(MESSAGE, &wrong).is_ok() {
            return Err(Failure::Wrong("it accepted a wrong signature"));
        }
    }
    Ok(())
}

/// Private scalar, the other side's share and the secret, made with OpenSSL 3.0 (`pkeyutl -derive`).
fn agreement_answer(group: DhGroup) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let hex = |text: &str| data_encoding::HEXLOWER.decode(text.as_bytes()).unwrap_or_default();
    let (private, peer, secret) = match group {
        DhGroup::X25519 => (
            "2093b7b8fe1475d2f6130685d60b3aa7b01749d6eb2837f5e84b89afca9b1e48",
            "6d7b3a08310a69d14fae92b958d56354db398cf2f07c5ed22bf9620191606479",
            "47efef0d70550e1186f48f92fdb7c41941079c9b9a15f35d2a83e10162939a2e",
        ),
        DhGroup::P256 => (
            "a9046c18ecb34a0be7f431c7f3c1ed0d5af0857b2eb9fb80ef21bda890073907",
            concat!(
                "04ccdd603b26203307c93d8f9603605c8db1b62635c1cd7df4a03dc73899a77a6",
                "c1ee45c7b449333bd18d0ce435ba248eeb0bded307b3aca689483808d69679508"
            ),
            "1c3272c89c0a4f227818834d256541327bb73a3e34315b46fdf2860cbf0bb9c0",
        ),
        DhGroup::P384 => (
            "4f725a04ba655741a1cf22097b84b09a8a1db4b44901089572144ac2c1aa08dad903e3f18e6e84ce4c1f579b2cbf6f8b",
            concat!(
                "04e8c7c344ec4659ec85714fbbd757e21932344044868320e8c1c8bac89b66f65af9b8e1dd95b5ec0a8815ce1e6ca6672",
                "5f24d9ae0a6c4940e9c9826e14fee46844454fe28f1335a47ff14b9da2ff8d2a0129ea8c5299f4791ab00550406acd673"
            ),
            "f2e02b29a842d30678cfbf173ac9ad1f3e245c01881232ff2c13a83747a7adcfb4a1ca26fd92589a04f5d6a696f609a3",
        ),
    };
    (hex(private), hex(peer), hex(secret))
}

fn agreement(
    provider: &dyn Provider,
    group: DhGroup,
    others: &[&'static dyn Provider],
) -> Result<(), Failure> {
    let (private, peer, secret) = agreement_answer(group);
    match provider.load_agreement(group, &private) {
        Ok(side) => {
            if side.finish(&peer).map_err(Failure::Broken)?.as_bytes() != secret {
                return Err(Failure::Wrong("it agreed on another secret than the known one"));
            }
        }
        Err(Fault::Unsupported) => {}
        Err(fault) => return Err(Failure::Refused { what: "it refuses a good scalar", fault }),
    }
    // A second source tells more than the same one twice; without one, it must at least agree with itself.
    let partner = others
        .iter()
        .copied()
        .find(|other| usable(*other) && other.offer(Primitive::Agree(group)) == Offer::Yes);
    let partner = partner.map_or(provider, |other| other);
    let ours = provider.start_agreement(group).map_err(Failure::Broken)?;
    let theirs = partner.start_agreement(group).map_err(Failure::Broken)?;
    let (our_share, their_share) = (ours.share().to_vec(), theirs.share().to_vec());
    let ours = ours.finish(&their_share).map_err(Failure::Broken)?;
    let theirs = theirs.finish(&our_share).map_err(Failure::Broken)?;
    if ours.as_bytes() != theirs.as_bytes() || ours.as_bytes().len() != group.secret_bytes() {
        return Err(Failure::Disagrees(partner.name()));
    }
    Ok(())
}

fn decapsulation(provider: &dyn Provider, others: &[&'static dyn Provider]) -> Result<(), Failure> {
    let seed: &[u8; 64] = include_bytes!("kat/ml-kem-768.seed");
    let key = provider
        .load_decapsulation(Some(seed), Some(include_bytes!("kat/ml-kem-768.dk")))
        .map_err(|fault| Failure::Refused { what: "it refuses a good key", fault })?;
    let secret = key.finish(include_bytes!("kat/ml-kem-768.ct")).map_err(Failure::Broken)?;
    if secret.as_bytes() != include_bytes!("kat/ml-kem-768.ss") {
        return Err(Failure::Wrong("it decapsulated another secret than the known one"));
    }
    let partner = others
        .iter()
        .copied()
        .find(|other| usable(*other) && other.offer(Primitive::Encapsulate) == Offer::Yes);
    exchange(provider, partner.map_or(provider, |other| other))
}

fn encapsulation(provider: &dyn Provider, others: &[&'static dyn Provider]) -> Result<(), Failure> {
    let partner = others
        .iter()
        .copied()
        .find(|other| usable(*other) && other.offer(Primitive::Decapsulate) == Offer::Yes);
    exchange(partner.map_or(provider, |other| other), provider)
}

fn exchange(decapsulates: &dyn Provider, encapsulates: &dyn Provider) -> Result<(), Failure> {
    let key = decapsulates.start_decapsulation().map_err(Failure::Broken)?;
    let (ciphertext, ours) = encapsulates.encapsulate(key.public()).map_err(Failure::Broken)?;
    let theirs = key.finish(&ciphertext).map_err(Failure::Broken)?;
    if ours.as_bytes() != theirs.as_bytes() || ours.as_bytes().len() != 32 {
        return Err(Failure::Apart(decapsulates.name(), encapsulates.name()));
    }
    Ok(())
}

/// McGrew and Viega's test cases 4 and 16 for AES, RFC 8439 §2.8.2 for ChaCha20.
fn aead(provider: &dyn Provider, algorithm: AeadAlgorithm) -> Result<(), Failure> {
    let hex = |text: &str| data_encoding::HEXLOWER.decode(text.as_bytes()).unwrap_or_default();
    let gcm_key = "feffe9928665731c6d6a8f9467308308";
    let gcm_plain = concat!(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72",
        "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"
    );
    let (key, nonce, aad, plain, sealed, tag) = match algorithm {
        AeadAlgorithm::Aes128Gcm => (
            hex(gcm_key),
            hex("cafebabefacedbaddecaf888"),
            hex("feedfacedeadbeeffeedfacedeadbeefabaddad2"),
            hex(gcm_plain),
            hex(concat!(
                "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e",
                "21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091"
            )),
            hex("5bc94fbc3221a5db94fae95ae7121a47"),
        ),
        AeadAlgorithm::Aes256Gcm => (
            hex(&gcm_key.repeat(2)),
            hex("cafebabefacedbaddecaf888"),
            hex("feedfacedeadbeeffeedfacedeadbeefabaddad2"),
            hex(gcm_plain),
            hex(concat!(
                "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa",
                "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662"
            )),
            hex("76fc6ece0f4e1768cddf8853bb2d551b"),
        ),
        AeadAlgorithm::ChaCha20Poly1305 => (
            hex("808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f"),
            hex("070000004041424344454647"),
            hex("50515253c0c1c2c3c4c5c6c7"),
            b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen would be it.".to_vec(),
            hex(concat!(
                "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d6",
                "3dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b36",
                "92ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc",
                "3ff4def08e4b7a9de576d26586cec64b6116"
            )),
            hex("1ae10b594f09e26a7e902ecbd0600691"),
        ),
    };
    let nonce: [u8; 12] = nonce.try_into().map_err(|_| Failure::Damaged)?;
    let key = provider.aead(algorithm, &key).map_err(Failure::Broken)?;
    let mut buffer = plain.clone();
    let made = key.seal(&nonce, &aad, &mut buffer).map_err(Failure::Broken)?;
    if buffer != sealed || made.as_slice() != tag {
        return Err(Failure::Wrong("it encrypted a known message wrongly"));
    }
    let mut opened = buffer.clone();
    key.open(&nonce, &aad, &mut opened, &made).map_err(Failure::Broken)?;
    if opened != plain {
        return Err(Failure::Wrong("it decrypted a known message wrongly"));
    }
    let mut wrong = made;
    wrong[0] ^= 1;
    if key.open(&nonce, &aad, &mut buffer, &wrong).is_ok() {
        return Err(Failure::Wrong("it accepted a wrong tag"));
    }
    Ok(())
}

/// FIPS 180-4's example "abc".
fn hash(provider: &dyn Provider, algorithm: HashAlgorithm) -> Result<(), Failure> {
    let expected = match algorithm {
        HashAlgorithm::Sha256 => "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        HashAlgorithm::Sha384 => {
            "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7"
        }
        HashAlgorithm::Sha512 => {
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f"
        }
    };
    let mut out = vec![0; algorithm.bytes()];
    provider.hash(algorithm, &[b"a", b"", b"bc"], &mut out).map_err(Failure::Broken)?;
    let mut context = provider.start_hash(algorithm).map_err(Failure::Broken)?;
    context.update(b"ab");
    let mut fork = context.fork();
    fork.update(b"c");
    let mut forked = vec![0; algorithm.bytes()];
    fork.finish(&mut forked);
    if data_encoding::HEXLOWER.encode(&out) != expected || out != forked {
        return Err(Failure::Wrong("it hashed a known message wrongly"));
    }
    Ok(())
}

/// RFC 4231 §4.3 (test case 2).
fn hmac(provider: &dyn Provider, algorithm: HashAlgorithm) -> Result<(), Failure> {
    let expected = match algorithm {
        HashAlgorithm::Sha256 => "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        HashAlgorithm::Sha384 => {
            "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e8e2240ca5e69e2c78b3239ecfab21649"
        }
        HashAlgorithm::Sha512 => {
            "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737"
        }
    };
    let mut out = vec![0; algorithm.bytes()];
    provider
        .hmac(algorithm, b"Jefe")
        .map_err(Failure::Broken)?
        .sign(&[b"what do ya want ", b"for nothing?"], &mut out);
    if data_encoding::HEXLOWER.encode(&out) != expected {
        return Err(Failure::Wrong("it authenticated a known message wrongly"));
    }
    Ok(())
}

fn random(provider: &dyn Provider) -> Result<(), Failure> {
    let (mut one, mut two) = ([0; 32], [0; 32]);
    provider.random(&mut one).map_err(Failure::Broken)?;
    provider.random(&mut two).map_err(Failure::Broken)?;
    if one == two || one == [0; 32] || two == [0; 32] {
        return Err(Failure::Wrong("its random bytes repeat"));
    }
    Ok(())
}

fn material(algorithm: KeyAlgorithm, known: &Known) -> Option<PrivateKeyMaterial> {
    let (_, public) = formats::spki::decode(known.spki).ok()?;
    let key = formats::pkcs8::decode_trusted(known.pkcs8, public)?;
    (key.algorithm() == algorithm).then_some(key)
}

fn usable(provider: &dyn Provider) -> bool {
    provider.needs().iter().all(|feature| feature.is_present())
}
