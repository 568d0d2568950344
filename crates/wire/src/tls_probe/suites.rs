//! Cipher suites: names and what they are made of.

/// A cipher suite of the IANA registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Suite {
    /// Its number.
    pub code: u16,
    /// Its name in the registry.
    pub name: &'static str,
}

/// How a suite's secret is agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Agreement {
    /// By Diffie and Hellman's exchange on a curve, a fresh one for each connection.
    Curve,
    /// By the same modulo a prime.
    Prime,
    /// The client encrypts it to the server's RSA key: an attacker who gets that key later reads everything.
    Encrypted,
    /// By the groups of TLS 1.3, apart from the suite.
    Later,
}

/// How a suite's server proves who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Proof {
    /// By an RSA key.
    Rsa,
    /// By a key on a curve, Ed25519 too (RFC 8422 §5.10).
    Ecdsa,
    /// By a DSA key.
    Dsa,
    /// Not at all.
    None,
    /// By the signature schemes of TLS 1.3, apart from the suite.
    Later,
}

impl Suite {
    /// How the secret is agreed on.
    #[must_use]
    pub fn agreement(self) -> Agreement {
        match self.name.strip_prefix("TLS_").unwrap_or(self.name) {
            name if name.starts_with("ECDH") => Agreement::Curve,
            name if name.starts_with("DH") => Agreement::Prime,
            name if name.starts_with("RSA_") => Agreement::Encrypted,
            _ => Agreement::Later,
        }
    }

    /// How the server proves who it is.
    #[must_use]
    pub fn proof(self) -> Proof {
        match self.name.split_once("_WITH_").map(|(before, _)| before) {
            None => Proof::Later,
            Some(before) if before.contains("_anon") => Proof::None,
            Some(before) if before.contains("_ECDSA") => Proof::Ecdsa,
            Some(before) if before.contains("_DSS") => Proof::Dsa,
            Some(_) => Proof::Rsa,
        }
    }

    /// Whether encryption and authentication are one.
    #[must_use]
    pub fn is_aead(self) -> bool {
        ["_GCM_", "_CCM", "CHACHA20"].iter().any(|mark| self.name.contains(mark))
    }
}

/// The suite of a number, when this build knows it.
#[must_use]
pub fn suite(code: u16) -> Option<Suite> {
    SUITES.iter().copied().find(|suite| suite.code == code)
}

/// The suites that servers are asked for, in the order of a careful client. Those with keys shared beforehand, with
/// Kerberos and of other nations' standards are not among them.
#[rustfmt::skip]
pub const SUITES: &[Suite] = &[
    Suite { code: 0x1301, name: "TLS_AES_128_GCM_SHA256" },
    Suite { code: 0x1302, name: "TLS_AES_256_GCM_SHA384" },
    Suite { code: 0x1303, name: "TLS_CHACHA20_POLY1305_SHA256" },
    Suite { code: 0x1304, name: "TLS_AES_128_CCM_SHA256" },
    Suite { code: 0x1305, name: "TLS_AES_128_CCM_8_SHA256" },
    Suite { code: 0xc02b, name: "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256" },
    Suite { code: 0xc02c, name: "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384" },
    Suite { code: 0xcca9, name: "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256" },
    Suite { code: 0xc05c, name: "TLS_ECDHE_ECDSA_WITH_ARIA_128_GCM_SHA256" },
    Suite { code: 0xc05d, name: "TLS_ECDHE_ECDSA_WITH_ARIA_256_GCM_SHA384" },
    Suite { code: 0xc0ac, name: "TLS_ECDHE_ECDSA_WITH_AES_128_CCM" },
    Suite { code: 0xc0ad, name: "TLS_ECDHE_ECDSA_WITH_AES_256_CCM" },
    Suite { code: 0xc0ae, name: "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8" },
    Suite { code: 0xc0af, name: "TLS_ECDHE_ECDSA_WITH_AES_256_CCM_8" },
    Suite { code: 0xc02f, name: "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256" },
    Suite { code: 0xc030, name: "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384" },
    Suite { code: 0xcca8, name: "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256" },
    Suite { code: 0xc060, name: "TLS_ECDHE_RSA_WITH_ARIA_128_GCM_SHA256" },
    Suite { code: 0xc061, name: "TLS_ECDHE_RSA_WITH_ARIA_256_GCM_SHA384" },
    Suite { code: 0x009e, name: "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256" },
    Suite { code: 0x00a2, name: "TLS_DHE_DSS_WITH_AES_128_GCM_SHA256" },
    Suite { code: 0x009f, name: "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384" },
    Suite { code: 0x00a3, name: "TLS_DHE_DSS_WITH_AES_256_GCM_SHA384" },
    Suite { code: 0xccaa, name: "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256" },
    Suite { code: 0xc052, name: "TLS_DHE_RSA_WITH_ARIA_128_GCM_SHA256" },
    Suite { code: 0xc053, name: "TLS_DHE_RSA_WITH_ARIA_256_GCM_SHA384" },
    Suite { code: 0xc09e, name: "TLS_DHE_RSA_WITH_AES_128_CCM" },
    Suite { code: 0xc09f, name: "TLS_DHE_RSA_WITH_AES_256_CCM" },
    Suite { code: 0xc0a2, name: "TLS_DHE_RSA_WITH_AES_128_CCM_8" },
    Suite { code: 0xc0a3, name: "TLS_DHE_RSA_WITH_AES_256_CCM_8" },
    Suite { code: 0x009c, name: "TLS_RSA_WITH_AES_128_GCM_SHA256" },
    Suite { code: 0x009d, name: "TLS_RSA_WITH_AES_256_GCM_SHA384" },
    Suite { code: 0xc050, name: "TLS_RSA_WITH_ARIA_128_GCM_SHA256" },
    Suite { code: 0xc051, name: "TLS_RSA_WITH_ARIA_256_GCM_SHA384" },
    Suite { code: 0xc09c, name: "TLS_RSA_WITH_AES_128_CCM" },
    Suite { code: 0xc09d, name: "TLS_RSA_WITH_AES_256_CCM" },
    Suite { code: 0xc0a0, name: "TLS_RSA_WITH_AES_128_CCM_8" },
    Suite { code: 0xc0a1, name: "TLS_RSA_WITH_AES_256_CCM_8" },
    Suite { code: 0xc00a, name: "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA" },
    Suite { code: 0xc024, name: "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384" },
    Suite { code: 0xc009, name: "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA" },
    Suite { code: 0xc023, name: "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256" },
    Suite { code: 0xc072, name: "TLS_ECDHE_ECDSA_WITH_CAMELLIA_128_CBC_SHA256" },
    Suite { code: 0xc073, name: "TLS_ECDHE_ECDSA_WITH_CAMELLIA_256_CBC_SHA384" },
    Suite { code: 0xc014, name: "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA" },
    Suite { code: 0xc028, name: "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384" },
    Suite { code: 0xc013, name: "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA" },
    Suite { code: 0xc027, name: "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256" },
    Suite { code: 0xc076, name: "TLS_ECDHE_RSA_WITH_CAMELLIA_128_CBC_SHA256" },
    Suite { code: 0xc077, name: "TLS_ECDHE_RSA_WITH_CAMELLIA_256_CBC_SHA384" },
    Suite { code: 0x0038, name: "TLS_DHE_DSS_WITH_AES_256_CBC_SHA" },
    Suite { code: 0x0039, name: "TLS_DHE_RSA_WITH_AES_256_CBC_SHA" },
    Suite { code: 0x006b, name: "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256" },
    Suite { code: 0x0032, name: "TLS_DHE_DSS_WITH_AES_128_CBC_SHA" },
    Suite { code: 0x0033, name: "TLS_DHE_RSA_WITH_AES_128_CBC_SHA" },
    Suite { code: 0x0067, name: "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256" },
    Suite { code: 0x0045, name: "TLS_DHE_RSA_WITH_CAMELLIA_128_CBC_SHA" },
    Suite { code: 0x0088, name: "TLS_DHE_RSA_WITH_CAMELLIA_256_CBC_SHA" },
    Suite { code: 0x00be, name: "TLS_DHE_RSA_WITH_CAMELLIA_128_CBC_SHA256" },
    Suite { code: 0x00c4, name: "TLS_DHE_RSA_WITH_CAMELLIA_256_CBC_SHA256" },
    Suite { code: 0x0035, name: "TLS_RSA_WITH_AES_256_CBC_SHA" },
    Suite { code: 0x003d, name: "TLS_RSA_WITH_AES_256_CBC_SHA256" },
    Suite { code: 0x002f, name: "TLS_RSA_WITH_AES_128_CBC_SHA" },
    Suite { code: 0x003c, name: "TLS_RSA_WITH_AES_128_CBC_SHA256" },
    Suite { code: 0x0041, name: "TLS_RSA_WITH_CAMELLIA_128_CBC_SHA" },
    Suite { code: 0x0084, name: "TLS_RSA_WITH_CAMELLIA_256_CBC_SHA" },
    Suite { code: 0x00ba, name: "TLS_RSA_WITH_CAMELLIA_128_CBC_SHA256" },
    Suite { code: 0x00c0, name: "TLS_RSA_WITH_CAMELLIA_256_CBC_SHA256" },
    Suite { code: 0x00a6, name: "TLS_DH_anon_WITH_AES_128_GCM_SHA256" },
    Suite { code: 0x00a7, name: "TLS_DH_anon_WITH_AES_256_GCM_SHA384" },
    Suite { code: 0xc006, name: "TLS_ECDHE_ECDSA_WITH_NULL_SHA" },
    Suite { code: 0xc007, name: "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA" },
    Suite { code: 0xc008, name: "TLS_ECDHE_ECDSA_WITH_3DES_EDE_CBC_SHA" },
    Suite { code: 0xc010, name: "TLS_ECDHE_RSA_WITH_NULL_SHA" },
    Suite { code: 0xc011, name: "TLS_ECDHE_RSA_WITH_RC4_128_SHA" },
    Suite { code: 0xc012, name: "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA" },
    Suite { code: 0x0012, name: "TLS_DHE_DSS_WITH_DES_CBC_SHA" },
    Suite { code: 0x0013, name: "TLS_DHE_DSS_WITH_3DES_EDE_CBC_SHA" },
    Suite { code: 0x0014, name: "TLS_DHE_RSA_EXPORT_WITH_DES40_CBC_SHA" },
    Suite { code: 0x0015, name: "TLS_DHE_RSA_WITH_DES_CBC_SHA" },
    Suite { code: 0x0016, name: "TLS_DHE_RSA_WITH_3DES_EDE_CBC_SHA" },
    Suite { code: 0x009a, name: "TLS_DHE_RSA_WITH_SEED_CBC_SHA" },
    Suite { code: 0x003a, name: "TLS_DH_anon_WITH_AES_256_CBC_SHA" },
    Suite { code: 0x006d, name: "TLS_DH_anon_WITH_AES_256_CBC_SHA256" },
    Suite { code: 0xc019, name: "TLS_ECDH_anon_WITH_AES_256_CBC_SHA" },
    Suite { code: 0x0034, name: "TLS_DH_anon_WITH_AES_128_CBC_SHA" },
    Suite { code: 0x006c, name: "TLS_DH_anon_WITH_AES_128_CBC_SHA256" },
    Suite { code: 0xc018, name: "TLS_ECDH_anon_WITH_AES_128_CBC_SHA" },
    Suite { code: 0x0001, name: "TLS_RSA_WITH_NULL_MD5" },
    Suite { code: 0x0002, name: "TLS_RSA_WITH_NULL_SHA" },
    Suite { code: 0x0003, name: "TLS_RSA_EXPORT_WITH_RC4_40_MD5" },
    Suite { code: 0x0004, name: "TLS_RSA_WITH_RC4_128_MD5" },
    Suite { code: 0x0005, name: "TLS_RSA_WITH_RC4_128_SHA" },
    Suite { code: 0x0006, name: "TLS_RSA_EXPORT_WITH_RC2_CBC_40_MD5" },
    Suite { code: 0x0007, name: "TLS_RSA_WITH_IDEA_CBC_SHA" },
    Suite { code: 0x0008, name: "TLS_RSA_EXPORT_WITH_DES40_CBC_SHA" },
    Suite { code: 0x0009, name: "TLS_RSA_WITH_DES_CBC_SHA" },
    Suite { code: 0x000a, name: "TLS_RSA_WITH_3DES_EDE_CBC_SHA" },
    Suite { code: 0x0017, name: "TLS_DH_anon_EXPORT_WITH_RC4_40_MD5" },
    Suite { code: 0x0018, name: "TLS_DH_anon_WITH_RC4_128_MD5" },
    Suite { code: 0x001a, name: "TLS_DH_anon_WITH_DES_CBC_SHA" },
    Suite { code: 0x001b, name: "TLS_DH_anon_WITH_3DES_EDE_CBC_SHA" },
    Suite { code: 0x003b, name: "TLS_RSA_WITH_NULL_SHA256" },
    Suite { code: 0x0096, name: "TLS_RSA_WITH_SEED_CBC_SHA" },
    Suite { code: 0xc015, name: "TLS_ECDH_anon_WITH_NULL_SHA" },
    Suite { code: 0xc016, name: "TLS_ECDH_anon_WITH_RC4_128_SHA" },
    Suite { code: 0xc017, name: "TLS_ECDH_anon_WITH_3DES_EDE_CBC_SHA" },
];
