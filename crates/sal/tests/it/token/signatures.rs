//! Signatures of a token are verified by others.

use super::*;

/// The options of `openssl pkeyutl` for a scheme.
pub(super) fn openssl_options(scheme: SignatureScheme) -> Vec<String> {
    let Some(hash) = scheme.hash() else { return Vec::new() };
    let digest = match hash {
        HashAlgorithm::Sha256 => "sha256",
        HashAlgorithm::Sha384 => "sha384",
        HashAlgorithm::Sha512 => "sha512",
        other => panic!("{other}"),
    };
    let mut options = vec!["-digest".to_owned(), digest.to_owned()];
    if scheme.is_pss() {
        for option in [
            "rsa_padding_mode:pss".to_owned(),
            format!("rsa_pss_saltlen:{}", hash.bytes()),
            format!("rsa_mgf1_md:{digest}"),
        ] {
            options.extend(["-pkeyopt".to_owned(), option]);
        }
    }
    options
}

/// Every scheme of every algorithm, by the layer and by openssl.
pub(super) fn all_signatures_verify(hsm: &SoftHsm) {
    let custody = hsm.custody();
    let message =
        b"what an authority says, longer than any digest of it that there is in the whole family of hashes";
    for algorithm in ALGORITHMS {
        let signer = custody.load(&custody.generate("ca", algorithm).unwrap()).unwrap();
        let public = signer.public_key();
        for scheme in algorithm.schemes() {
            let signature = signer.sign_with(*scheme, message).unwrap();
            public.verify_with(*scheme, message, &signature).unwrap();
            let options = openssl_options(*scheme);
            let options: Vec<&str> = options.iter().map(String::as_str).collect();
            let directory = hsm.path("");
            let spki = public.spki_der();
            assert!(openssl_agrees(&directory, &spki, message, &signature, &options), "{algorithm} {scheme}");
            assert!(
                !openssl_agrees(&directory, &spki, b"another", &signature, &options),
                "{algorithm} {scheme}"
            );
        }
    }
}

#[test]
fn signatures_verify_here_and_with_openssl() {
    alone("token::signatures::signatures_verify_here_and_with_openssl", "", all_signatures_verify);
}

/// Tokens that have no mechanisms that hash are given digests.
#[test]
fn signatures_verify_from_a_token_that_does_not_hash() {
    alone(
        "token::signatures::signatures_verify_from_a_token_that_does_not_hash",
        "slots.mechanisms = -CKM_SHA256_RSA_PKCS,CKM_SHA384_RSA_PKCS,CKM_SHA512_RSA_PKCS,CKM_SHA256_RSA_PKCS_PSS,CKM_SHA384_RSA_PKCS_PSS,CKM_SHA512_RSA_PKCS_PSS",
        all_signatures_verify,
    );
}

#[test]
fn a_token_without_the_mechanism_says_which_it_has() {
    alone(
        "token::signatures::a_token_without_the_mechanism_says_which_it_has",
        "slots.mechanisms = CKM_RSA_PKCS_KEY_PAIR_GEN,CKM_RSA_PKCS,CKM_SHA256_RSA_PKCS,CKM_EDDSA,CKM_ECDSA,CKM_EC_KEY_PAIR_GEN",
        |hsm| {
            let custody = hsm.custody();
            let error = words(custody.generate("a key", KeyAlgorithm::Ed25519));
            assert!(
                error.contains("cannot make keys with ed25519: it lacks CKM_EC_EDWARDS_KEY_PAIR_GEN"),
                "{error}"
            );
            assert!(
                error.contains("it has CKM_ECDSA, CKM_EC_KEY_PAIR_GEN, CKM_EDDSA, CKM_RSA_PKCS, "),
                "{error}"
            );
            let error = words(custody.generate("a key", KeyAlgorithm::MlDsa65));
            assert_eq!(error, "keys of type ml-dsa-65 are not made in tokens here");

            let rsa = custody.load(&custody.generate("a key", KeyAlgorithm::Rsa2048).unwrap()).unwrap();
            rsa.sign_with(SignatureScheme::RsaPkcs1Sha512, b"m").unwrap();
            let error = rsa.sign_with(SignatureScheme::RsaPssSha256, b"m").unwrap_err().to_string();
            assert!(error.contains("it lacks CKM_SHA256_RSA_PKCS_PSS or CKM_RSA_PKCS_PSS"), "{error}");

            let tokens = discover(&module()).unwrap();
            let ability = |algorithm| {
                tokens[0]
                    .abilities
                    .iter()
                    .find(|one| one.algorithm == algorithm)
                    .map(|one| (one.generates, one.signs))
            };
            assert_eq!(ability(KeyAlgorithm::EcdsaP384), Some((true, true)));
            assert_eq!(ability(KeyAlgorithm::Ed25519), Some((false, true)));
            assert_eq!(ability(KeyAlgorithm::Rsa4096), Some((true, false)));
            assert_eq!(ability(KeyAlgorithm::MlDsa65), None);
        },
    );
}
