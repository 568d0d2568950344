//! A first check of a provider: what it makes, AWS-LC takes, and the other way round. The conformance suite goes
//! deeper; this one runs in moments and tells apart "written wrong" from "behaves differently".
#![allow(clippy::unwrap_used)]

use super::aws_lc::AwsLc;
use super::contract::{Fault, Offer, Provider};
use crate::algorithm::{AeadAlgorithm, DhGroup, HashAlgorithm, KeyAlgorithm, KeyKind, SignatureScheme};
use crate::{Primitive, PrivateKeyMaterial};

const MESSAGE: &[u8] = b"the quick brown fox jumps over the lazy dog";

/// Checks every primitive that the provider offers, and that it refuses the others.
pub(super) fn check(provider: &dyn Provider) {
    for primitive in Primitive::all() {
        if provider.offer(primitive) == Offer::No {
            refuses(provider, primitive);
            continue;
        }
        crate::selftest::check(provider, primitive, &[&AwsLc]).unwrap();
        match primitive {
            Primitive::GenerateKey(algorithm) => generates(provider, algorithm),
            Primitive::Sign(algorithm) => signs(provider, algorithm),
            Primitive::Verify(algorithm) => verifies(provider, algorithm),
            Primitive::Agree(group) => agrees(provider, group),
            Primitive::Decapsulate => decapsulates(provider),
            Primitive::Encapsulate => encapsulates(provider),
            Primitive::Aead(algorithm) => encrypts(provider, algorithm),
            Primitive::Hash(algorithm) => hashes(provider, algorithm),
            Primitive::Hmac(algorithm) => authenticates(provider, algorithm),
            Primitive::Random => {
                let (mut first, mut second) = ([0; 32], [0; 32]);
                provider.random(&mut first).unwrap();
                provider.random(&mut second).unwrap();
                assert_ne!(first, second);
            }
        }
    }
}

fn refuses(provider: &dyn Provider, primitive: Primitive) {
    let unsupported = match primitive {
        Primitive::GenerateKey(algorithm) => provider.generate_key(algorithm).err(),
        Primitive::Agree(group) => provider.start_agreement(group).err(),
        Primitive::Decapsulate => provider.start_decapsulation().err(),
        Primitive::Encapsulate => provider.encapsulate(&[0; 1184]).err(),
        Primitive::Aead(algorithm) => provider.aead(algorithm, &[0; 32][..algorithm.key_bytes()]).err(),
        Primitive::Hash(algorithm) => provider.start_hash(algorithm).err(),
        Primitive::Hmac(algorithm) => provider.hmac(algorithm, &[]).err(),
        Primitive::Random => provider.random(&mut [0; 1]).err(),
        // A key is needed to ask.
        Primitive::Sign(_) | Primitive::Verify(_) => return,
    };
    assert_eq!(unsupported, Some(Fault::Unsupported), "{} {primitive}", provider.name());
}

/// Sizes whose key generation would take the test many seconds.
fn is_slow(algorithm: KeyAlgorithm) -> bool {
    matches!(algorithm, KeyAlgorithm::Rsa3072 | KeyAlgorithm::Rsa4096 | KeyAlgorithm::Rsa8192)
}

fn key(provider: &dyn Provider, algorithm: KeyAlgorithm) -> PrivateKeyMaterial {
    if AwsLc.offer(Primitive::GenerateKey(algorithm)) == Offer::Yes {
        AwsLc.generate_key(algorithm).unwrap()
    } else {
        provider.generate_key(algorithm).unwrap()
    }
}

fn generates(provider: &dyn Provider, algorithm: KeyAlgorithm) {
    if is_slow(algorithm) {
        return;
    }
    let key = provider.generate_key(algorithm).unwrap();
    assert_eq!(key.algorithm(), algorithm);
    assert_ne!(key.secret(), provider.generate_key(algorithm).unwrap().secret());
    if AwsLc.offer(Primitive::Sign(algorithm)) == Offer::Yes {
        assert_eq!(AwsLc.derive_public(algorithm, key.secret()).as_deref(), Ok(key.public()), "{algorithm}");
    }
    if provider.derive_public(algorithm, key.secret()) != Err(Fault::Unsupported) {
        assert_eq!(
            provider.derive_public(algorithm, key.secret()).as_deref(),
            Ok(key.public()),
            "{algorithm}"
        );
        for malformed in [&[][..], &key.secret()[1..], &[key.secret(), &[0]].concat()] {
            let answer = provider.derive_public(algorithm, malformed);
            assert!(matches!(answer, Err(Fault::Refused(_))), "{algorithm} {answer:?}");
        }
        if algorithm.kind() == KeyKind::Ecdsa {
            for out_of_range in [0, 0xff] {
                let answer = provider.derive_public(algorithm, &vec![out_of_range; key.secret().len()]);
                assert!(matches!(answer, Err(Fault::Refused(_))), "{algorithm} {answer:?}");
            }
        }
    }
}

fn signs(provider: &dyn Provider, algorithm: KeyAlgorithm) {
    if is_slow(algorithm) {
        return;
    }
    let key = key(provider, algorithm);
    let ready = provider.load_key(&key).unwrap();
    for scheme in algorithm.schemes() {
        let signature = ready.sign(*scheme, MESSAGE).unwrap();
        match AwsLc.verify(algorithm, *scheme, key.public(), MESSAGE, &signature) {
            Err(Fault::Unsupported) => {
                provider.verify(algorithm, *scheme, key.public(), MESSAGE, &signature).unwrap();
            }
            answer => assert_eq!(answer, Ok(()), "{} {scheme}", provider.name()),
        }
    }
    for scheme in SignatureScheme::ALL.iter().filter(|scheme| !scheme.fits(algorithm)) {
        if scheme.kind() != KeyKind::Rsa {
            assert_eq!(ready.sign(*scheme, MESSAGE), Err(Fault::Unsupported), "{} {scheme}", provider.name());
        }
    }
    let mut wrong = key.public().to_vec();
    *wrong.last_mut().unwrap() ^= 1;
    let mismatched = PrivateKeyMaterial::new(algorithm, key.secret().to_vec().into(), wrong);
    let answer = provider.load_key(&mismatched).err();
    assert!(matches!(answer, Some(Fault::Refused(_))), "{algorithm} {answer:?}");
}

fn verifies(provider: &dyn Provider, algorithm: KeyAlgorithm) {
    if is_slow(algorithm) {
        return;
    }
    let key = key(provider, algorithm);
    let ready = if AwsLc.offer(Primitive::Sign(algorithm)) == Offer::Yes { &AwsLc } else { provider };
    let ready = ready.load_key(&key).unwrap();
    for scheme in algorithm.schemes() {
        let signature = ready.sign(*scheme, MESSAGE).unwrap();
        let check = |public: &[u8], message: &[u8], signature: &[u8]| {
            provider.verify(algorithm, *scheme, public, message, signature)
        };
        check(key.public(), MESSAGE, &signature).unwrap();
        let kind = provider.check_public(algorithm, key.public());
        assert!(matches!(kind, Ok(()) | Err(Fault::Unsupported)), "{} {algorithm}", provider.name());

        let refused = |answer: Result<(), Fault>, what: &str| {
            assert!(
                matches!(answer, Err(Fault::Refused(_))),
                "{} {scheme} {what}: {answer:?}",
                provider.name()
            );
        };
        refused(check(key.public(), &MESSAGE[1..], &signature), "another message");
        for at in [0, 1, signature.len() / 2, signature.len() - 1] {
            let mut altered = signature.clone();
            altered[at] ^= 1;
            refused(check(key.public(), MESSAGE, &altered), "an altered signature");
        }
        refused(check(key.public(), MESSAGE, &[]), "no signature");
        refused(check(key.public(), MESSAGE, &signature[1..]), "a cut signature");
        refused(check(key.public(), MESSAGE, &[&signature[..], &[0]].concat()), "a long signature");
        refused(check(&[], MESSAGE, &signature), "no key");
        refused(check(&key.public()[1..], MESSAGE, &signature), "a cut key");
        refused(check(&[key.public(), &[0]].concat(), MESSAGE, &signature), "a long key");
        if algorithm.kind() == KeyKind::Ecdsa {
            for point in malformed_points(key.public()) {
                assert!(provider.check_public(algorithm, &point).is_err());
                refused(
                    check(&point, MESSAGE, &signature),
                    "a point that is compressed, hybrid or off the curve",
                );
            }
        }
    }
}

/// The same point compressed and hybrid, the point at infinity, and points that are not on the curve.
fn malformed_points(point: &[u8]) -> Vec<Vec<u8>> {
    let half = point.len() / 2;
    let odd = point[point.len() - 1] & 1;
    let mut compressed = point[..=half].to_vec();
    compressed[0] = 0x02 | odd;
    let mut hybrid = point.to_vec();
    hybrid[0] = 0x06 | odd;
    let mut off_curve = point.to_vec();
    off_curve[half] ^= 1;
    let mut out_of_range = vec![0xff; point.len()];
    out_of_range[0] = 0x04;
    let mut zero = vec![0; point.len()];
    zero[0] = 0x04;
    vec![compressed, hybrid, vec![0], off_curve, out_of_range, zero]
}

fn agrees(provider: &dyn Provider, group: DhGroup) {
    let ours = provider.start_agreement(group).unwrap();
    let theirs = AwsLc.start_agreement(group).unwrap();
    assert_eq!(ours.share().len(), group.share_bytes());
    let (our_share, their_share) = (ours.share().to_vec(), theirs.share().to_vec());
    let secret = ours.finish(&their_share).unwrap();
    assert_eq!(
        secret.as_bytes(),
        theirs.finish(&our_share).unwrap().as_bytes(),
        "{} {group}",
        provider.name()
    );
    assert_eq!(secret.as_bytes().len(), group.secret_bytes());

    let mut malformed = vec![vec![], their_share[1..].to_vec(), [&their_share[..], &[0]].concat()];
    match group {
        // Zero and one are of low order (RFC 7748 §6.1), and so they are with the ignored bit set.
        DhGroup::X25519 => malformed.extend([0, 1].into_iter().flat_map(|lowest| {
            [0, 0x80].map(|highest| {
                let mut point = vec![0; 32];
                (point[0], point[31]) = (lowest, highest);
                point
            })
        })),
        DhGroup::P256 | DhGroup::P384 => malformed.extend(malformed_points(&their_share)),
    }
    for share in malformed {
        let answer = provider.start_agreement(group).unwrap().finish(&share).err();
        assert!(
            matches!(answer, Some(Fault::Refused(_))),
            "{} {group} {share:02x?}: {answer:?}",
            provider.name()
        );
    }

    // A fixed private half gives the same share everywhere.
    let private = vec![0x42; group.secret_bytes()];
    match provider.load_agreement(group, &private) {
        Err(fault) => assert_eq!(fault, Fault::Unsupported),
        Ok(loaded) => {
            let same = AwsLc.load_agreement(group, &private).unwrap();
            assert_eq!(loaded.share(), same.share(), "{} {group}", provider.name());
            let refused = |private: &[u8]| {
                let answer = provider.load_agreement(group, private).err();
                assert!(matches!(answer, Some(Fault::Refused(_))), "{} {group} {answer:?}", provider.name());
            };
            refused(&private[1..]);
            if group != DhGroup::X25519 {
                refused(&vec![0; private.len()]);
                refused(&vec![0xff; private.len()]);
            }
        }
    }
}

fn decapsulates(provider: &dyn Provider) {
    let start = || provider.start_decapsulation().unwrap();
    let ours = start();
    let (ciphertext, secret) = AwsLc.encapsulate(ours.public()).unwrap();
    assert_eq!(ours.finish(&ciphertext).unwrap().as_bytes(), secret.as_bytes(), "{}", provider.name());

    let ours = start();
    let (mut ciphertext, secret) = AwsLc.encapsulate(ours.public()).unwrap();
    ciphertext[0] ^= 1;
    assert_ne!(ours.finish(&ciphertext).unwrap().as_bytes(), secret.as_bytes());
    for wrong in [&[][..], &ciphertext[1..], &[&ciphertext[..], &[0]].concat()] {
        assert!(matches!(start().finish(wrong), Err(Fault::Refused(_))));
    }
}

fn encapsulates(provider: &dyn Provider) {
    let theirs = AwsLc.start_decapsulation().unwrap();
    let (ciphertext, secret) = provider.encapsulate(theirs.public()).unwrap();
    let mut out_of_range = theirs.public().to_vec();
    // The first coefficient becomes 4095, where 3328 is the largest.
    out_of_range[0] = 0xff;
    out_of_range[1] |= 0x0f;
    for malformed in [&[][..], &out_of_range[1..], &out_of_range, &[&out_of_range[..], &[0]].concat()] {
        assert!(matches!(provider.encapsulate(malformed), Err(Fault::Refused(_))), "{}", provider.name());
    }
    assert_eq!(theirs.finish(&ciphertext).unwrap().as_bytes(), secret.as_bytes(), "{}", provider.name());
}

fn encrypts(provider: &dyn Provider, algorithm: AeadAlgorithm) {
    let secret = &[7; 32][..algorithm.key_bytes()];
    let ours = provider.aead(algorithm, secret).unwrap();
    let theirs = AwsLc.aead(algorithm, secret).unwrap();
    let nonce = [9; 12];
    for length in [0, 1, 15, 16, 17, 1000] {
        let plain: Vec<u8> = (0..=255).cycle().take(length).collect();
        for aad in [&b""[..], b"context"] {
            for (from, to) in [(&ours, &theirs), (&theirs, &ours)] {
                let mut text = plain.clone();
                let tag = from.seal(&nonce, aad, &mut text).unwrap();
                to.open(&nonce, aad, &mut text, &tag).unwrap();
                assert_eq!(text, plain, "{} {algorithm}", provider.name());
            }
        }
    }
    let mut text = MESSAGE.to_vec();
    let tag = ours.seal(&nonce, b"", &mut text).unwrap();
    let refused = |nonce: &[u8; 12], aad: &[u8], text: &[u8], tag: &[u8; 16]| {
        assert!(
            matches!(ours.open(nonce, aad, &mut text.to_vec(), tag), Err(Fault::Refused(_))),
            "{algorithm}"
        );
    };
    refused(&[8; 12], b"", &text, &tag);
    refused(&nonce, b"x", &text, &tag);
    refused(&nonce, b"", &text[1..], &tag);
    refused(&nonce, b"", &text, &[0; 16]);
    for length in [0, 15, 24, 31, 33] {
        let answer = provider.aead(algorithm, &[7; 33][..length]).err();
        assert!(matches!(answer, Some(Fault::Refused(_))), "{} {algorithm} {length}", provider.name());
    }
}

fn hashes(provider: &dyn Provider, algorithm: HashAlgorithm) {
    for parts in [&[][..], &[&b""[..]], &[MESSAGE], &[MESSAGE, b"", &[1; 200]]] {
        let (mut ours, mut theirs) = (vec![0; algorithm.bytes()], vec![0; algorithm.bytes()]);
        provider.hash(algorithm, parts, &mut ours).unwrap();
        AwsLc.hash(algorithm, parts, &mut theirs).unwrap();
        assert_eq!(ours, theirs, "{} {algorithm}", provider.name());

        let mut context = provider.start_hash(algorithm).unwrap();
        for part in parts {
            context.update(part);
        }
        let mut fork = context.fork();
        fork.update(b"more");
        context.finish(&mut ours);
        assert_eq!(ours, theirs, "{} {algorithm}", provider.name());
        fork.finish(&mut ours);
        assert_ne!(ours, theirs, "{} {algorithm}", provider.name());
    }
}

fn authenticates(provider: &dyn Provider, algorithm: HashAlgorithm) {
    for length in [0, 20, 64, 65, 128, 129, 300] {
        let secret = vec![3; length];
        let (mut ours, mut theirs) = (vec![0; algorithm.bytes()], vec![0; algorithm.bytes()]);
        let key = provider.hmac(algorithm, &secret).unwrap();
        AwsLc.hmac(algorithm, &secret).unwrap().sign(&[MESSAGE, b"tail"], &mut theirs);
        for _ in 0..2 {
            key.sign(&[MESSAGE, b"tail"], &mut ours);
            assert_eq!(ours, theirs, "{} {algorithm} {length}", provider.name());
        }
    }
}
