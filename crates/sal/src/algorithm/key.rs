//! Types of keys that sign.

use super::named;

/// A type of key that signs, with its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum KeyAlgorithm {
    /// EdDSA over edwards25519 (RFC 8032).
    Ed25519,
    /// ECDSA over P-256 with SHA-256 (FIPS 186-5).
    EcdsaP256,
    /// ECDSA over P-384 with SHA-384 (FIPS 186-5).
    EcdsaP384,
    /// ECDSA over P-521 with SHA-512 (FIPS 186-5).
    EcdsaP521,
    /// RSA with a modulus of 1024 bits: broken by anyone with enough machines. For measurements only.
    Rsa1024,
    /// RSA with a modulus of 2048 bits (RFC 8017).
    Rsa2048,
    /// RSA with a modulus of 3072 bits.
    Rsa3072,
    /// RSA with a modulus of 4096 bits.
    Rsa4096,
    /// RSA with a modulus of 8192 bits: verified when a peer has one, never made.
    Rsa8192,
    /// ML-DSA-44 (FIPS 204), category 2.
    MlDsa44,
    /// ML-DSA-65 (FIPS 204), category 3.
    MlDsa65,
    /// ML-DSA-87 (FIPS 204), category 5.
    MlDsa87,
}

/// The family of a key: what its bytes mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// edwards25519.
    Ed25519,
    /// A NIST curve.
    Ecdsa,
    /// RSA.
    Rsa,
    /// ML-DSA.
    MlDsa,
}

/// What a key of some type may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Generated, signed with, verified.
    Full,
    /// Verified for a peer that has one; never generated for production and never chosen by a suite.
    VerifyOnly,
    /// Measured only: neither accepted from a peer nor used to sign anything that matters.
    LabOnly,
}

impl KeyAlgorithm {
    /// Every type of key that this build knows.
    pub const ALL: &[Self] = &[
        Self::Ed25519,
        Self::EcdsaP256,
        Self::EcdsaP384,
        Self::EcdsaP521,
        Self::Rsa1024,
        Self::Rsa2048,
        Self::Rsa3072,
        Self::Rsa4096,
        Self::Rsa8192,
        Self::MlDsa44,
        Self::MlDsa65,
        Self::MlDsa87,
    ];

    /// The name in configuration files, reports and stored keys.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ed25519 => "ed25519",
            Self::EcdsaP256 => "ecdsa-p256",
            Self::EcdsaP384 => "ecdsa-p384",
            Self::EcdsaP521 => "ecdsa-p521",
            Self::Rsa1024 => "rsa-1024",
            Self::Rsa2048 => "rsa-2048",
            Self::Rsa3072 => "rsa-3072",
            Self::Rsa4096 => "rsa-4096",
            Self::Rsa8192 => "rsa-8192",
            Self::MlDsa44 => "ml-dsa-44",
            Self::MlDsa65 => "ml-dsa-65",
            Self::MlDsa87 => "ml-dsa-87",
        }
    }

    /// The family of the key.
    #[must_use]
    pub const fn kind(self) -> KeyKind {
        match self {
            Self::Ed25519 => KeyKind::Ed25519,
            Self::EcdsaP256 | Self::EcdsaP384 | Self::EcdsaP521 => KeyKind::Ecdsa,
            Self::Rsa1024 | Self::Rsa2048 | Self::Rsa3072 | Self::Rsa4096 | Self::Rsa8192 => KeyKind::Rsa,
            Self::MlDsa44 | Self::MlDsa65 | Self::MlDsa87 => KeyKind::MlDsa,
        }
    }

    /// What keys of this type may be used for.
    #[must_use]
    pub const fn standing(self) -> Standing {
        match self {
            Self::Rsa1024 => Standing::LabOnly,
            Self::Rsa8192 => Standing::VerifyOnly,
            _ => Standing::Full,
        }
    }

    /// Length of an RSA modulus, in bits; none for other keys.
    #[must_use]
    pub const fn modulus_bits(self) -> Option<usize> {
        match self {
            Self::Rsa1024 => Some(1024),
            Self::Rsa2048 => Some(2048),
            Self::Rsa3072 => Some(3072),
            Self::Rsa4096 => Some(4096),
            Self::Rsa8192 => Some(8192),
            _ => None,
        }
    }

    /// The RSA key type with a modulus of exactly so many bits.
    #[must_use]
    pub fn rsa(bits: usize) -> Option<Self> {
        Self::ALL.iter().copied().find(|algorithm| algorithm.modulus_bits() == Some(bits))
    }

    /// Length of a private scalar or seed, in bytes; none for RSA, whose private key is a structure.
    #[must_use]
    pub const fn secret_bytes(self) -> Option<usize> {
        match self {
            Self::EcdsaP384 => Some(48),
            Self::EcdsaP521 => Some(66),
            Self::Ed25519 | Self::EcdsaP256 | Self::MlDsa44 | Self::MlDsa65 | Self::MlDsa87 => Some(32),
            _ => None,
        }
    }

    /// Length of a public key as it stands in a SubjectPublicKeyInfo, in bytes; none for RSA, where it varies.
    #[must_use]
    pub const fn public_bytes(self) -> Option<usize> {
        match self {
            Self::Ed25519 => Some(32),
            Self::EcdsaP256 => Some(65),
            Self::EcdsaP384 => Some(97),
            Self::EcdsaP521 => Some(133),
            Self::MlDsa44 => Some(1312),
            Self::MlDsa65 => Some(1952),
            Self::MlDsa87 => Some(2592),
            _ => None,
        }
    }

    /// The name of the key's type in SSH (RFC 8709 §4, RFC 5656 §3.1, RFC 4253 §6.6). ML-DSA has none that OpenSSH
    /// knows.
    #[must_use]
    pub const fn ssh_key_type(self) -> Option<&'static str> {
        match self.kind() {
            KeyKind::Ed25519 => Some("ssh-ed25519"),
            KeyKind::Rsa => Some("ssh-rsa"),
            KeyKind::MlDsa => None,
            KeyKind::Ecdsa => match self {
                Self::EcdsaP384 => Some("ecdsa-sha2-nistp384"),
                Self::EcdsaP521 => Some("ecdsa-sha2-nistp521"),
                _ => Some("ecdsa-sha2-nistp256"),
            },
        }
    }

    /// `kty` and, where it has one, `crv` of a JSON Web Key (RFC 7518 §6, RFC 8037 §2). ML-DSA keys are of type `AKP`.
    #[must_use]
    pub const fn jwk_type(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Ed25519 => ("OKP", Some("Ed25519")),
            Self::EcdsaP256 => ("EC", Some("P-256")),
            Self::EcdsaP384 => ("EC", Some("P-384")),
            Self::EcdsaP521 => ("EC", Some("P-521")),
            Self::MlDsa44 | Self::MlDsa65 | Self::MlDsa87 => ("AKP", None),
            _ => ("RSA", None),
        }
    }

    /// The `CKK_` and `CKM_…_KEY_PAIR_GEN` names of PKCS#11.
    #[must_use]
    pub const fn pkcs11_names(self) -> (&'static str, &'static str) {
        match self.kind() {
            KeyKind::Ed25519 => ("CKK_EC_EDWARDS", "CKM_EC_EDWARDS_KEY_PAIR_GEN"),
            KeyKind::Ecdsa => ("CKK_EC", "CKM_EC_KEY_PAIR_GEN"),
            KeyKind::Rsa => ("CKK_RSA", "CKM_RSA_PKCS_KEY_PAIR_GEN"),
            KeyKind::MlDsa => ("CKK_ML_DSA", "CKM_ML_DSA_KEY_PAIR_GEN"),
        }
    }

    /// DER of the AlgorithmIdentifier of the public key in a SubjectPublicKeyInfo (RFC 8410 §3, RFC 5480 §2.1, RFC
    /// 8017 appendix A, RFC 9881 §2).
    #[must_use]
    pub const fn spki_algorithm_der(self) -> &'static [u8] {
        match self {
            Self::Ed25519 => &[0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70],
            Self::EcdsaP256 => &[
                0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
                0x48, 0xce, 0x3d, 0x03, 0x01, 0x07,
            ],
            Self::EcdsaP384 => &[
                0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81,
                0x04, 0x00, 0x22,
            ],
            Self::EcdsaP521 => &[
                0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81,
                0x04, 0x00, 0x23,
            ],
            Self::Rsa1024 | Self::Rsa2048 | Self::Rsa3072 | Self::Rsa4096 | Self::Rsa8192 => {
                &[0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00]
            }
            Self::MlDsa44 => &[0x30, 0x0b, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x03, 0x11],
            Self::MlDsa65 => &[0x30, 0x0b, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x03, 0x12],
            Self::MlDsa87 => &[0x30, 0x0b, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x03, 0x13],
        }
    }

    /// The name in SSH of its signatures by [`KeyAlgorithm::ssh_scheme`].
    #[must_use]
    pub const fn ssh_name(self) -> Option<&'static str> {
        match self.ssh_scheme() {
            Some(scheme) => scheme.ssh_name(),
            None => None,
        }
    }

    /// The TLS name of [`KeyAlgorithm::default_scheme`].
    #[must_use]
    pub const fn iana_name(self) -> &'static str {
        self.default_scheme().iana_name()
    }

    /// The JOSE name of [`KeyAlgorithm::default_scheme`].
    #[must_use]
    pub const fn jose_name(self) -> &'static str {
        self.default_scheme().jose_name()
    }
}

named!(KeyAlgorithm, "key algorithm");
