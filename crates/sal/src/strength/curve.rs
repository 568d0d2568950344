//! Elliptic curves that keys are on.

use super::nist::Nist;

/// A curve. Each stands here with the name that its key or key exchange is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Curve {
    /// NIST P-192, secp192r1.
    P192,
    /// NIST P-224, secp224r1.
    P224,
    /// NIST P-256, secp256r1, prime256v1.
    P256,
    /// NIST P-384, secp384r1.
    P384,
    /// NIST P-521, secp521r1.
    P521,
    /// The curve of Bitcoin.
    Secp256k1,
    /// brainpoolP256r1 (RFC 5639).
    Brainpool256,
    /// brainpoolP384r1.
    Brainpool384,
    /// brainpoolP512r1.
    Brainpool512,
    /// Signatures on edwards25519 (RFC 8032).
    Ed25519,
    /// Signatures on edwards448.
    Ed448,
    /// Key exchange on curve25519 (RFC 7748).
    X25519,
    /// Key exchange on curve448.
    X448,
}

/// Name, other names without dashes, bits of the order of the group (its base-2 logarithm, whole), and what NIST counts
/// it as (SP 800-186 table 1 and SP 800-57 Part 1 Rev. 5 table 2).
type Facts = (&'static str, &'static [&'static str], u32, u32);

impl Curve {
    /// Every curve.
    pub const ALL: &[Self] = &[
        Self::P192,
        Self::P224,
        Self::P256,
        Self::P384,
        Self::P521,
        Self::Secp256k1,
        Self::Brainpool256,
        Self::Brainpool384,
        Self::Brainpool512,
        Self::Ed25519,
        Self::Ed448,
        Self::X25519,
        Self::X448,
    ];

    const fn facts(self) -> Facts {
        match self {
            Self::P192 => ("P-192", &["secp192r1", "prime192v1", "nistp192"], 192, 80),
            Self::P224 => ("P-224", &["secp224r1", "nistp224"], 224, 112),
            Self::P256 => (
                "P-256",
                &["secp256r1", "prime256v1", "nistp256", "ecdsap256", "ecdsasha2nistp256"],
                256,
                128,
            ),
            Self::P384 => ("P-384", &["secp384r1", "nistp384", "ecdsap384", "ecdsasha2nistp384"], 384, 192),
            Self::P521 => ("P-521", &["secp521r1", "nistp521", "ecdsap521", "ecdsasha2nistp521"], 521, 256),
            Self::Secp256k1 => ("secp256k1", &["k256", "p256k"], 256, 128),
            Self::Brainpool256 => ("brainpoolP256r1", &[], 256, 128),
            Self::Brainpool384 => ("brainpoolP384r1", &[], 384, 192),
            Self::Brainpool512 => ("brainpoolP512r1", &[], 512, 256),
            // The order of the prime subgroup is 2^252 and a little.
            Self::Ed25519 => ("Ed25519", &["sshed25519", "eddsa"], 252, 128),
            // 2^446 less a little.
            Self::Ed448 => ("Ed448", &["sshed448"], 446, 224),
            Self::X25519 => ("X25519", &["curve25519", "curve25519sha256"], 252, 128),
            Self::X448 => ("X448", &["curve448"], 446, 224),
        }
    }

    /// The name of a key on it, or of the key exchange.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.facts().0
    }

    /// Whether it is called so, in small letters without dashes.
    pub(super) fn is_called(self, plain: &str) -> bool {
        let (name, others, ..) = self.facts();
        others.contains(&plain) || name.replace('-', "").eq_ignore_ascii_case(plain)
    }

    /// Half the bits of the group's order, which is what Pollard's rho needs: an estimate.
    #[must_use]
    pub fn bits(self) -> f64 {
        f64::from(self.facts().2) / 2.0
    }

    /// What NIST counts it as.
    #[must_use]
    pub const fn nist(self) -> Nist {
        Nist::Equal(self.facts().3)
    }

    /// The curve with these content octets of an OID.
    #[must_use]
    pub fn of_oid(oid: &[u8]) -> Option<Self> {
        Some(match oid {
            [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x01] => Self::P192,
            [0x2b, 0x81, 0x04, 0x00, 0x21] => Self::P224,
            [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07] => Self::P256,
            [0x2b, 0x81, 0x04, 0x00, 0x22] => Self::P384,
            [0x2b, 0x81, 0x04, 0x00, 0x23] => Self::P521,
            [0x2b, 0x81, 0x04, 0x00, 0x0a] => Self::Secp256k1,
            [0x2b, 0x24, 0x03, 0x03, 0x02, 0x08, 0x01, 0x01, 0x07] => Self::Brainpool256,
            [0x2b, 0x24, 0x03, 0x03, 0x02, 0x08, 0x01, 0x01, 0x0b] => Self::Brainpool384,
            [0x2b, 0x24, 0x03, 0x03, 0x02, 0x08, 0x01, 0x01, 0x0d] => Self::Brainpool512,
            [0x2b, 0x65, 0x6e] => Self::X25519,
            [0x2b, 0x65, 0x6f] => Self::X448,
            [0x2b, 0x65, 0x70] => Self::Ed25519,
            [0x2b, 0x65, 0x71] => Self::Ed448,
            _ => return None,
        })
    }
}
