//! Ways to sign.

use super::{HashAlgorithm, KeyAlgorithm, KeyKind, named};

/// A signature algorithm: a kind of key, a hash and, for RSA, a padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SignatureScheme {
    /// EdDSA over edwards25519, 64 bytes (RFC 8032).
    Ed25519,
    /// ECDSA on P-256 with SHA-256, as DER (RFC 3279 §2.2.3).
    EcdsaP256Sha256,
    /// ECDSA on P-384 with SHA-384, as DER.
    EcdsaP384Sha384,
    /// ECDSA on P-521 with SHA-512, as DER.
    EcdsaP521Sha512,
    /// RSASSA-PKCS1-v1_5 with SHA-256 (RFC 8017 §8.2).
    RsaPkcs1Sha256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    RsaPkcs1Sha384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    RsaPkcs1Sha512,
    /// RSASSA-PSS with SHA-256, MGF1 with the same hash, and a salt as long as the hash (RFC 8446 §4.2.3).
    RsaPssSha256,
    /// RSASSA-PSS with SHA-384, in the same way.
    RsaPssSha384,
    /// RSASSA-PSS with SHA-512, in the same way.
    RsaPssSha512,
    /// ML-DSA-44, pure, with an empty context (FIPS 204 §5.2).
    MlDsa44,
    /// ML-DSA-65, pure, with an empty context.
    MlDsa65,
    /// ML-DSA-87, pure, with an empty context.
    MlDsa87,
}

impl SignatureScheme {
    /// Every scheme that this build knows.
    pub const ALL: &[Self] = &[
        Self::Ed25519,
        Self::EcdsaP256Sha256,
        Self::EcdsaP384Sha384,
        Self::EcdsaP521Sha512,
        Self::RsaPkcs1Sha256,
        Self::RsaPkcs1Sha384,
        Self::RsaPkcs1Sha512,
        Self::RsaPssSha256,
        Self::RsaPssSha384,
        Self::RsaPssSha512,
        Self::MlDsa44,
        Self::MlDsa65,
        Self::MlDsa87,
    ];

    /// The name in configuration files and reports, which is that of the IANA registry.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.iana_name()
    }

    /// The name of the TLS signature scheme in the IANA registry (RFC 8446 §4.2.3).
    #[must_use]
    pub const fn iana_name(self) -> &'static str {
        match self {
            Self::Ed25519 => "ed25519",
            Self::EcdsaP256Sha256 => "ecdsa_secp256r1_sha256",
            Self::EcdsaP384Sha384 => "ecdsa_secp384r1_sha384",
            Self::EcdsaP521Sha512 => "ecdsa_secp521r1_sha512",
            Self::RsaPkcs1Sha256 => "rsa_pkcs1_sha256",
            Self::RsaPkcs1Sha384 => "rsa_pkcs1_sha384",
            Self::RsaPkcs1Sha512 => "rsa_pkcs1_sha512",
            Self::RsaPssSha256 => "rsa_pss_rsae_sha256",
            Self::RsaPssSha384 => "rsa_pss_rsae_sha384",
            Self::RsaPssSha512 => "rsa_pss_rsae_sha512",
            Self::MlDsa44 => "mldsa44",
            Self::MlDsa65 => "mldsa65",
            Self::MlDsa87 => "mldsa87",
        }
    }

    /// The code point of the TLS signature scheme.
    #[must_use]
    pub const fn iana_code(self) -> u16 {
        match self {
            Self::Ed25519 => 0x0807,
            Self::EcdsaP256Sha256 => 0x0403,
            Self::EcdsaP384Sha384 => 0x0503,
            Self::EcdsaP521Sha512 => 0x0603,
            Self::RsaPkcs1Sha256 => 0x0401,
            Self::RsaPkcs1Sha384 => 0x0501,
            Self::RsaPkcs1Sha512 => 0x0601,
            Self::RsaPssSha256 => 0x0804,
            Self::RsaPssSha384 => 0x0805,
            Self::RsaPssSha512 => 0x0806,
            Self::MlDsa44 => 0x0904,
            Self::MlDsa65 => 0x0905,
            Self::MlDsa87 => 0x0906,
        }
    }

    /// The kind of key it signs with.
    #[must_use]
    pub const fn kind(self) -> KeyKind {
        match self {
            Self::Ed25519 => KeyKind::Ed25519,
            Self::EcdsaP256Sha256 | Self::EcdsaP384Sha384 | Self::EcdsaP521Sha512 => KeyKind::Ecdsa,
            Self::MlDsa44 | Self::MlDsa65 | Self::MlDsa87 => KeyKind::MlDsa,
            _ => KeyKind::Rsa,
        }
    }

    /// Whether a key of this type signs by it.
    #[must_use]
    pub fn fits(self, algorithm: KeyAlgorithm) -> bool {
        algorithm.schemes().contains(&self)
    }

    /// The hash of the message; none where the algorithm takes the message itself.
    #[must_use]
    pub const fn hash(self) -> Option<HashAlgorithm> {
        match self {
            Self::EcdsaP256Sha256 | Self::RsaPkcs1Sha256 | Self::RsaPssSha256 => Some(HashAlgorithm::Sha256),
            Self::EcdsaP384Sha384 | Self::RsaPkcs1Sha384 | Self::RsaPssSha384 => Some(HashAlgorithm::Sha384),
            Self::EcdsaP521Sha512 | Self::RsaPkcs1Sha512 | Self::RsaPssSha512 => Some(HashAlgorithm::Sha512),
            _ => None,
        }
    }

    /// Whether the padding is RSASSA-PSS.
    #[must_use]
    pub const fn is_pss(self) -> bool {
        matches!(self, Self::RsaPssSha256 | Self::RsaPssSha384 | Self::RsaPssSha512)
    }

    /// Content octets of the OID of such signatures in X.509 (RFC 8410 §3, RFC 5758 §3.2, RFC 8017 appendix A.2, RFC
    /// 9881 §2).
    #[must_use]
    pub const fn oid(self) -> &'static [u8] {
        match self {
            Self::Ed25519 => &[0x2b, 0x65, 0x70],
            Self::EcdsaP256Sha256 => &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02],
            Self::EcdsaP384Sha384 => &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03],
            Self::EcdsaP521Sha512 => &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x04],
            Self::RsaPkcs1Sha256 => &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b],
            Self::RsaPkcs1Sha384 => &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0c],
            Self::RsaPkcs1Sha512 => &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0d],
            Self::RsaPssSha256 | Self::RsaPssSha384 | Self::RsaPssSha512 => {
                &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0a]
            }
            Self::MlDsa44 => &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x03, 0x11],
            Self::MlDsa65 => &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x03, 0x12],
            Self::MlDsa87 => &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x03, 0x13],
        }
    }

    /// DER of the AlgorithmIdentifier of such signatures in X.509. PKCS#1 v1.5 has NULL parameters (RFC 4055 §5), the
    /// others have none; PSS, whose parameters are a structure, is not used in certificates here.
    #[must_use]
    pub fn x509_algorithm_der(self) -> Option<Vec<u8>> {
        if self.is_pss() {
            return None;
        }
        let parameters: &[u8] = if matches!(self.kind(), KeyKind::Rsa) { &[0x05, 0x00] } else { &[] };
        let oid = self.oid();
        let length = u8::try_from(oid.len()).ok()?;
        let whole = length.checked_add(2 + u8::try_from(parameters.len()).ok()?)?;
        Some([&[0x30, whole, 0x06, length][..], oid, parameters].concat())
    }

    /// The name in SSH (RFC 8709 §4, RFC 5656 §3.1, RFC 8332 §3); none where SSH has no such signature.
    #[must_use]
    pub const fn ssh_name(self) -> Option<&'static str> {
        match self {
            Self::Ed25519 => Some("ssh-ed25519"),
            Self::EcdsaP256Sha256 => Some("ecdsa-sha2-nistp256"),
            Self::EcdsaP384Sha384 => Some("ecdsa-sha2-nistp384"),
            Self::EcdsaP521Sha512 => Some("ecdsa-sha2-nistp521"),
            Self::RsaPkcs1Sha256 => Some("rsa-sha2-256"),
            Self::RsaPkcs1Sha512 => Some("rsa-sha2-512"),
            _ => None,
        }
    }

    /// The `alg` value of JOSE (RFC 7518 §3.1, RFC 8037 §3.1, RFC 9964 for ML-DSA).
    #[must_use]
    pub const fn jose_name(self) -> &'static str {
        match self {
            Self::Ed25519 => "EdDSA",
            Self::EcdsaP256Sha256 => "ES256",
            Self::EcdsaP384Sha384 => "ES384",
            Self::EcdsaP521Sha512 => "ES512",
            Self::RsaPkcs1Sha256 => "RS256",
            Self::RsaPkcs1Sha384 => "RS384",
            Self::RsaPkcs1Sha512 => "RS512",
            Self::RsaPssSha256 => "PS256",
            Self::RsaPssSha384 => "PS384",
            Self::RsaPssSha512 => "PS512",
            Self::MlDsa44 => "ML-DSA-44",
            Self::MlDsa65 => "ML-DSA-65",
            Self::MlDsa87 => "ML-DSA-87",
        }
    }

    /// The mechanism of PKCS#11 that makes it (PKCS#11 v3.0 §2.1.8, §2.1.10, §2.3; v3.2 for ML-DSA). ECDSA takes the
    /// digest, because few tokens have the mechanisms that hash.
    #[must_use]
    pub const fn pkcs11_mechanism(self) -> &'static str {
        match self {
            Self::Ed25519 => "CKM_EDDSA",
            Self::EcdsaP256Sha256 | Self::EcdsaP384Sha384 | Self::EcdsaP521Sha512 => "CKM_ECDSA",
            Self::RsaPkcs1Sha256 => "CKM_SHA256_RSA_PKCS",
            Self::RsaPkcs1Sha384 => "CKM_SHA384_RSA_PKCS",
            Self::RsaPkcs1Sha512 => "CKM_SHA512_RSA_PKCS",
            Self::RsaPssSha256 => "CKM_SHA256_RSA_PKCS_PSS",
            Self::RsaPssSha384 => "CKM_SHA384_RSA_PKCS_PSS",
            Self::RsaPssSha512 => "CKM_SHA512_RSA_PKCS_PSS",
            Self::MlDsa44 | Self::MlDsa65 | Self::MlDsa87 => "CKM_ML_DSA",
        }
    }
}

impl KeyAlgorithm {
    /// Every scheme that signs with such a key, the preferred first.
    #[must_use]
    pub const fn schemes(self) -> &'static [SignatureScheme] {
        match self {
            Self::Ed25519 => &[SignatureScheme::Ed25519],
            Self::EcdsaP256 => &[SignatureScheme::EcdsaP256Sha256],
            Self::EcdsaP384 => &[SignatureScheme::EcdsaP384Sha384],
            Self::EcdsaP521 => &[SignatureScheme::EcdsaP521Sha512],
            // SHA-512 with PSS needs 130 bytes of encoded message (RFC 8017 §9.1.1), which 1024 bits do not have.
            Self::Rsa1024 => &[
                SignatureScheme::RsaPkcs1Sha256,
                SignatureScheme::RsaPkcs1Sha384,
                SignatureScheme::RsaPkcs1Sha512,
                SignatureScheme::RsaPssSha256,
                SignatureScheme::RsaPssSha384,
            ],
            Self::Rsa2048 | Self::Rsa3072 | Self::Rsa4096 | Self::Rsa8192 => &[
                SignatureScheme::RsaPkcs1Sha256,
                SignatureScheme::RsaPkcs1Sha384,
                SignatureScheme::RsaPkcs1Sha512,
                SignatureScheme::RsaPssSha256,
                SignatureScheme::RsaPssSha384,
                SignatureScheme::RsaPssSha512,
            ],
            Self::MlDsa44 => &[SignatureScheme::MlDsa44],
            Self::MlDsa65 => &[SignatureScheme::MlDsa65],
            Self::MlDsa87 => &[SignatureScheme::MlDsa87],
        }
    }

    /// The scheme used where nothing else is asked for. For RSA it is PKCS#1 v1.5 with SHA-256, which every reader of
    /// X.509 knows.
    #[must_use]
    pub const fn default_scheme(self) -> SignatureScheme {
        match self {
            Self::Ed25519 => SignatureScheme::Ed25519,
            Self::EcdsaP256 => SignatureScheme::EcdsaP256Sha256,
            Self::EcdsaP384 => SignatureScheme::EcdsaP384Sha384,
            Self::EcdsaP521 => SignatureScheme::EcdsaP521Sha512,
            Self::Rsa1024 | Self::Rsa2048 | Self::Rsa3072 | Self::Rsa4096 | Self::Rsa8192 => {
                SignatureScheme::RsaPkcs1Sha256
            }
            Self::MlDsa44 => SignatureScheme::MlDsa44,
            Self::MlDsa65 => SignatureScheme::MlDsa65,
            Self::MlDsa87 => SignatureScheme::MlDsa87,
        }
    }

    /// The scheme that it signs by in SSH; none for ML-DSA. RSA signs with SHA-512, which OpenSSH prefers to SHA-256
    /// (RFC 8332 §3).
    #[must_use]
    pub const fn ssh_scheme(self) -> Option<SignatureScheme> {
        match self.kind() {
            KeyKind::Rsa => Some(SignatureScheme::RsaPkcs1Sha512),
            KeyKind::MlDsa => None,
            _ => Some(self.default_scheme()),
        }
    }
}

named!(SignatureScheme, "signature scheme");
