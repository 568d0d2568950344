//! Authenticated encryption and hashes.

use super::named;

/// Authenticated encryption with associated data, with nonces of 12 and tags of 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum AeadAlgorithm {
    /// AES-128-GCM (NIST SP 800-38D).
    Aes128Gcm,
    /// AES-256-GCM.
    Aes256Gcm,
    /// ChaCha20-Poly1305 (RFC 8439).
    ChaCha20Poly1305,
}

impl AeadAlgorithm {
    /// Every algorithm.
    pub const ALL: &[Self] = &[Self::Aes128Gcm, Self::Aes256Gcm, Self::ChaCha20Poly1305];

    /// The name in configuration files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "aes-128-gcm",
            Self::Aes256Gcm => "aes-256-gcm",
            Self::ChaCha20Poly1305 => "chacha20-poly1305",
        }
    }

    /// Length of a key, in bytes.
    #[must_use]
    pub const fn key_bytes(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes256Gcm | Self::ChaCha20Poly1305 => 32,
        }
    }

    /// The name of the TLS 1.3 cipher suite, with the hash that belongs to it (RFC 8446 appendix B.4).
    #[must_use]
    pub const fn tls13_suite(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "TLS_AES_128_GCM_SHA256",
            Self::Aes256Gcm => "TLS_AES_256_GCM_SHA384",
            Self::ChaCha20Poly1305 => "TLS_CHACHA20_POLY1305_SHA256",
        }
    }

    /// The hash of that cipher suite.
    #[must_use]
    pub const fn tls13_hash(self) -> HashAlgorithm {
        match self {
            Self::Aes256Gcm => HashAlgorithm::Sha384,
            Self::Aes128Gcm | Self::ChaCha20Poly1305 => HashAlgorithm::Sha256,
        }
    }

    /// The name of the cipher in SSH.
    #[must_use]
    pub const fn ssh_name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "aes128-gcm@openssh.com",
            Self::Aes256Gcm => "aes256-gcm@openssh.com",
            Self::ChaCha20Poly1305 => "chacha20-poly1305@openssh.com",
        }
    }

    /// The `enc` value of JOSE (RFC 7518 §5.1), where it has one.
    #[must_use]
    pub const fn jose_name(self) -> Option<&'static str> {
        match self {
            Self::Aes128Gcm => Some("A128GCM"),
            Self::Aes256Gcm => Some("A256GCM"),
            Self::ChaCha20Poly1305 => None,
        }
    }

    /// The mechanism of PKCS#11.
    #[must_use]
    pub const fn pkcs11_mechanism(self) -> &'static str {
        match self {
            Self::Aes128Gcm | Self::Aes256Gcm => "CKM_AES_GCM",
            Self::ChaCha20Poly1305 => "CKM_CHACHA20_POLY1305",
        }
    }
}

named!(AeadAlgorithm, "cipher");

/// A hash of the SHA-2 family (FIPS 180-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum HashAlgorithm {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl HashAlgorithm {
    /// Every hash.
    pub const ALL: &[Self] = &[Self::Sha256, Self::Sha384, Self::Sha512];
    /// Length of the longest digest, in bytes.
    pub const MAX_BYTES: usize = 64;

    /// The name in configuration files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha-256",
            Self::Sha384 => "sha-384",
            Self::Sha512 => "sha-512",
        }
    }

    /// Length of a digest, in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// Content octets of its OID (RFC 5754 §2).
    #[must_use]
    pub const fn oid(self) -> &'static [u8] {
        match self {
            Self::Sha256 => &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01],
            Self::Sha384 => &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02],
            Self::Sha512 => &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x03],
        }
    }

    /// The mechanism of PKCS#11.
    #[must_use]
    pub const fn pkcs11_mechanism(self) -> &'static str {
        match self {
            Self::Sha256 => "CKM_SHA256",
            Self::Sha384 => "CKM_SHA384",
            Self::Sha512 => "CKM_SHA512",
        }
    }
}

named!(HashAlgorithm, "hash");
