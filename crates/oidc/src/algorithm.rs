//! Ways in which tokens may be signed.

use std::fmt;

use sallyport_sal::algorithm::KeyKind;
use sallyport_sal::{PublicKey, SignatureScheme};
use serde::{Deserialize, Serialize};

/// A signature algorithm of JOSE (RFC 7518 §3.1, RFC 8037 §3.1) that ID tokens are taken with. `none` and those with a shared
/// secret (`HS256` and its like) are not among them and cannot be configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Algorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256: what every issuer has to have (OpenID Connect Core §15.1).
    #[serde(rename = "RS256")]
    Rs256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    #[serde(rename = "RS384")]
    Rs384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    #[serde(rename = "RS512")]
    Rs512,
    /// RSASSA-PSS with SHA-256.
    #[serde(rename = "PS256")]
    Ps256,
    /// ECDSA on P-256 with SHA-256.
    #[serde(rename = "ES256")]
    Es256,
    /// ECDSA on P-384 with SHA-384.
    #[serde(rename = "ES384")]
    Es384,
    /// EdDSA over edwards25519.
    #[serde(rename = "EdDSA")]
    EdDsa,
}

impl Algorithm {
    /// All of them.
    pub const ALL: &[Self] =
        &[Self::Rs256, Self::Rs384, Self::Rs512, Self::Ps256, Self::Es256, Self::Es384, Self::EdDsa];

    /// Its name in headers, key sets and documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::EdDsa => "EdDSA",
        }
    }

    /// By name. Names are compared byte by byte (RFC 7515 §4.1.1).
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|algorithm| algorithm.name() == name)
    }

    const fn scheme(self) -> SignatureScheme {
        match self {
            Self::Rs256 => SignatureScheme::RsaPkcs1Sha256,
            Self::Rs384 => SignatureScheme::RsaPkcs1Sha384,
            Self::Rs512 => SignatureScheme::RsaPkcs1Sha512,
            Self::Ps256 => SignatureScheme::RsaPssSha256,
            Self::Es256 => SignatureScheme::EcdsaP256Sha256,
            Self::Es384 => SignatureScheme::EcdsaP384Sha384,
            Self::EdDsa => SignatureScheme::Ed25519,
        }
    }

    /// Whether a key of this type signs so.
    pub(crate) fn fits(self, key: &PublicKey) -> bool {
        self.scheme().fits(key.algorithm())
    }

    /// Whether the signature, in the form of JOSE, is by this key.
    pub(crate) fn verifies(self, key: &PublicKey, message: &[u8], signature: &[u8]) -> bool {
        let scheme = self.scheme();
        match (scheme.kind(), key.algorithm().secret_bytes()) {
            (KeyKind::Ecdsa, Some(bytes)) => ecdsa_der(signature, bytes)
                .is_some_and(|signature| key.verify_with(scheme, message, &signature).is_ok()),
            _ => key.verify_with(scheme, message, signature).is_ok(),
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The DER (RFC 3279 §2.2.3) of an ECDSA signature that is two numbers of `bytes` bytes each (RFC 7518 §3.4). None where it has
/// another length, or a number is zero.
fn ecdsa_der(signature: &[u8], bytes: usize) -> Option<Vec<u8>> {
    if signature.len() != 2 * bytes {
        return None;
    }
    let mut body = Vec::with_capacity(2 * bytes + 6);
    for number in signature.chunks(bytes) {
        let zeros = number.iter().take_while(|byte| **byte == 0).count();
        let digits = number.get(zeros..)?;
        let sign = usize::from(*digits.first()? >= 0x80);
        body.extend([0x02, u8::try_from(digits.len() + sign).ok()?]);
        body.extend(std::iter::repeat_n(0, sign));
        body.extend_from_slice(digits);
    }
    // Two numbers of at most 49 bytes: a length of one byte always suffices.
    Some([&[0x30, u8::try_from(body.len()).ok().filter(|length| *length < 0x80)?], body.as_slice()].concat())
}
