//! Verification of certificate chains and handshake signatures.

use std::fmt;

use rustls::SignatureScheme as TlsScheme;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm, alg_id};

use crate::algorithm::{KeyAlgorithm, SignatureScheme, Standing};
use crate::formats::spki::modulus_bits;
use crate::selection::{Mode, Selection};
use crate::{Primitive, strict};

/// The schemes in the order in which they are offered.
const ORDER: &[SignatureScheme] = &[
    SignatureScheme::Ed25519,
    SignatureScheme::EcdsaP256Sha256,
    SignatureScheme::EcdsaP384Sha384,
    SignatureScheme::EcdsaP521Sha512,
    SignatureScheme::RsaPssSha256,
    SignatureScheme::RsaPssSha384,
    SignatureScheme::RsaPssSha512,
    SignatureScheme::RsaPkcs1Sha256,
    SignatureScheme::RsaPkcs1Sha384,
    SignatureScheme::RsaPkcs1Sha512,
    SignatureScheme::MlDsa65,
    SignatureScheme::MlDsa44,
    SignatureScheme::MlDsa87,
];

/// Everything that the selection has a source for.
pub(super) fn algorithms(selection: &'static Selection) -> WebPkiSupportedAlgorithms {
    let served = |scheme: &SignatureScheme| {
        KeyAlgorithm::ALL.iter().any(|algorithm| {
            scheme.fits(*algorithm)
                && algorithm.standing() != Standing::LabOnly
                && selection
                    .ranking(Primitive::Verify(*algorithm))
                    .iter()
                    .any(|place| place.obstacle.is_none())
        })
    };
    let mut all: Vec<&'static dyn SignatureVerificationAlgorithm> = Vec::new();
    let mut mapping: Vec<(TlsScheme, &'static [&'static dyn SignatureVerificationAlgorithm])> = Vec::new();
    for scheme in ORDER.iter().copied().filter(served) {
        let verifier: &'static dyn SignatureVerificationAlgorithm =
            Box::leak(Box::new(Verifier { selection, scheme }));
        all.push(verifier);
        mapping.push((TlsScheme::from(scheme.iana_code()), Box::leak(Box::new([verifier]))));
    }
    WebPkiSupportedAlgorithms {
        all: Box::leak(all.into_boxed_slice()),
        mapping: Box::leak(mapping.into_boxed_slice()),
    }
}

struct Verifier {
    selection: &'static Selection,
    scheme: SignatureScheme,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Verifier").field(&self.scheme).finish()
    }
}

impl SignatureVerificationAlgorithm for Verifier {
    fn verify_signature(
        &self,
        public: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let algorithm = match self.scheme {
            SignatureScheme::Ed25519 => KeyAlgorithm::Ed25519,
            SignatureScheme::EcdsaP256Sha256 => KeyAlgorithm::EcdsaP256,
            SignatureScheme::EcdsaP384Sha384 => KeyAlgorithm::EcdsaP384,
            SignatureScheme::EcdsaP521Sha512 => KeyAlgorithm::EcdsaP521,
            SignatureScheme::MlDsa44 => KeyAlgorithm::MlDsa44,
            SignatureScheme::MlDsa65 => KeyAlgorithm::MlDsa65,
            SignatureScheme::MlDsa87 => KeyAlgorithm::MlDsa87,
            _ => modulus_bits(public).and_then(KeyAlgorithm::rsa).ok_or(InvalidSignature)?,
        };
        if algorithm.standing() == Standing::LabOnly {
            return Err(InvalidSignature);
        }
        strict::check_public(algorithm, public).map_err(|_| InvalidSignature)?;
        strict::check_signature(algorithm, self.scheme, signature).map_err(|_| InvalidSignature)?;
        self.selection
            .run(Primitive::Verify(algorithm), |provider| {
                provider.verify(algorithm, self.scheme, public, message, signature)
            })
            .map_err(|_| InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        match self.scheme {
            SignatureScheme::Ed25519 => alg_id::ED25519,
            SignatureScheme::EcdsaP256Sha256 => alg_id::ECDSA_P256,
            SignatureScheme::EcdsaP384Sha384 => alg_id::ECDSA_P384,
            SignatureScheme::EcdsaP521Sha512 => alg_id::ECDSA_P521,
            SignatureScheme::MlDsa44 => alg_id::ML_DSA_44,
            SignatureScheme::MlDsa65 => alg_id::ML_DSA_65,
            SignatureScheme::MlDsa87 => alg_id::ML_DSA_87,
            _ => alg_id::RSA_ENCRYPTION,
        }
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        match self.scheme {
            SignatureScheme::Ed25519 => alg_id::ED25519,
            SignatureScheme::EcdsaP256Sha256 => alg_id::ECDSA_SHA256,
            SignatureScheme::EcdsaP384Sha384 => alg_id::ECDSA_SHA384,
            SignatureScheme::EcdsaP521Sha512 => alg_id::ECDSA_SHA512,
            SignatureScheme::RsaPkcs1Sha256 => alg_id::RSA_PKCS1_SHA256,
            SignatureScheme::RsaPkcs1Sha384 => alg_id::RSA_PKCS1_SHA384,
            SignatureScheme::RsaPkcs1Sha512 => alg_id::RSA_PKCS1_SHA512,
            SignatureScheme::RsaPssSha256 => alg_id::RSA_PSS_SHA256,
            SignatureScheme::RsaPssSha384 => alg_id::RSA_PSS_SHA384,
            SignatureScheme::RsaPssSha512 => alg_id::RSA_PSS_SHA512,
            SignatureScheme::MlDsa44 => alg_id::ML_DSA_44,
            SignatureScheme::MlDsa65 => alg_id::ML_DSA_65,
            SignatureScheme::MlDsa87 => alg_id::ML_DSA_87,
        }
    }

    fn fips(&self) -> bool {
        // Whatever the module does not approve, its provider does not offer.
        matches!(self.selection.policy().mode, Mode::Fips)
    }
}
