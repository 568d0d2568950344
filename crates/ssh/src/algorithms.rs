//! The algorithms that clients of ours speak by the library, best first, and what servers of ours take. What servers speak is
//! [`crate::transport`]'s.

use std::borrow::Cow;
use std::time::Duration;

use russh::keys::{Algorithm, EcdsaCurve, HashAlg};
use russh::{Limits, Preferred, cipher, kex, mac};
use sallyport_sal::HybridKeyExchange;
use sallyport_sal::selection;
use ssh_key::public::KeyData;

use crate::transport::proposal::Spoken;
use crate::{rsa_keys, transport};

/// AES-GCM goes first: on machines with AES instructions it costs half of ChaCha20 a byte. There is no CBC, no
/// plain CTR and no MAC that needs choosing, because every cipher here authenticates by itself.
const CIPHERS: &[cipher::Name] = &[cipher::AES_128_GCM, cipher::AES_256_GCM, cipher::CHACHA20_POLY1305];

/// None is used, since every cipher here authenticates by itself; but the list must not be empty for clients that look for a
/// match all the same. They are those that authenticate what is encrypted (encrypt-then-MAC).
const MACS: &[mac::Name] = &[mac::HMAC_SHA512_ETM, mac::HMAC_SHA256_ETM];

/// Key types of hosts, as the authorities certify them, with the hash that RSA signs by (RFC 8332 §3): never SHA-1.
const KEYS: &[Algorithm] = &[
    Algorithm::Ed25519,
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP384 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP521 },
    Algorithm::Rsa { hash: Some(HashAlg::Sha512) },
    Algorithm::Rsa { hash: Some(HashAlg::Sha256) },
];

/// Key exchange, best first, and the flags that share its list. Of the groups of old only the one of 4096 bits, for
/// servers without elliptic curves.
const KEX: &[kex::Name] = &[
    kex::MLKEM768X25519_SHA256,
    kex::CURVE25519,
    kex::CURVE25519_PRE_RFC_8731,
    // For peers in FIPS mode, which have nothing above.
    kex::ECDH_SHA2_NISTP256,
    kex::ECDH_SHA2_NISTP384,
    kex::DH_G16_SHA512,
    kex::EXTENSION_SUPPORT_AS_CLIENT,
    kex::EXTENSION_SUPPORT_AS_SERVER,
    kex::EXTENSION_OPENSSH_STRICT_KEX_AS_CLIENT,
    kex::EXTENSION_OPENSSH_STRICT_KEX_AS_SERVER,
];

/// Key exchange where a cluster requires a hybrid one: the method that the library has, and the flags that share its
/// list.
const HYBRID_KEX: &[kex::Name] = &[
    kex::MLKEM768X25519_SHA256,
    kex::EXTENSION_SUPPORT_AS_CLIENT,
    kex::EXTENSION_SUPPORT_AS_SERVER,
    kex::EXTENSION_OPENSSH_STRICT_KEX_AS_CLIENT,
    kex::EXTENSION_OPENSSH_STRICT_KEX_AS_SERVER,
];

/// In FIPS mode: what is approved. The library is not asked for any of it there: clients are by [`crate::transport`], too.
const FIPS_KEX: &[kex::Name] = &[
    kex::ECDH_SHA2_NISTP256,
    kex::ECDH_SHA2_NISTP384,
    kex::EXTENSION_SUPPORT_AS_CLIENT,
    kex::EXTENSION_SUPPORT_AS_SERVER,
    kex::EXTENSION_OPENSSH_STRICT_KEX_AS_CLIENT,
    kex::EXTENSION_OPENSSH_STRICT_KEX_AS_SERVER,
];
const FIPS_CIPHERS: &[cipher::Name] = &[cipher::AES_128_GCM, cipher::AES_256_GCM];
/// No Ed25519: no suite of that mode has it.
const FIPS_KEYS: &[Algorithm] = match KEYS {
    [_, rest @ ..] => rest,
    [] => &[],
};
const LEAST_RSA_BITS: u32 = 2048;

/// Why a server of ours does not take a key that a user offers, by itself or in a certificate; `None` where it takes it.
pub(crate) fn refusal(key: &KeyData, algorithm: &Algorithm) -> Option<String> {
    refused(key, algorithm, selection::global().is_fips())
}

fn refused(key: &KeyData, algorithm: &Algorithm, fips: bool) -> Option<String> {
    if !fips {
        return None;
    }
    // A security key signs on the curve of others.
    let is_approved = FIPS_KEYS.contains(algorithm) || *algorithm == Algorithm::SkEcdsaSha2NistP256;
    let bits = key.rsa().map(|key| key.key_size());
    if is_approved && bits.is_none_or(|bits| bits >= LEAST_RSA_BITS) {
        return None;
    }
    let what = bits.map(|bits| format!(" of {bits} bits")).unwrap_or_default();
    Some(format!(
        "this server runs in FIPS mode, which takes no {}{what}; log in with a key on P-256 or P-384, or of RSA with {LEAST_RSA_BITS} \
         bits or more",
        algorithm.as_str()
    ))
}

/// What a client of ours offers. Certificates go first; plain keys stay in the list so that a host without a
/// certificate is refused with words rather than with a failed negotiation.
pub(crate) fn client(demand: HybridKeyExchange) -> Preferred {
    rsa_keys::register();
    offered(demand, selection::global().is_fips())
}

fn offered(demand: HybridKeyExchange, fips: bool) -> Preferred {
    // Suites that demand a hybrid are refused in FIPS mode; where one comes all the same, there is nothing to agree on.
    let kex = match (demand, fips) {
        (HybridKeyExchange::Preferred, false) => KEX,
        (HybridKeyExchange::Preferred, true) => FIPS_KEX,
        (HybridKeyExchange::Required, false) => HYBRID_KEX,
        (HybridKeyExchange::Required, true) => FIPS_KEX.get(2..).unwrap_or_default(),
    };
    let (cipher, key) = if fips { (FIPS_CIPHERS, FIPS_KEYS) } else { (CIPHERS, KEYS) };
    Preferred {
        kex: Cow::Borrowed(kex),
        cipher: Cow::Borrowed(cipher),
        mac: Cow::Borrowed(MACS),
        key: Cow::Borrowed(key),
        host_key_certificates: Cow::Borrowed(key),
        ..Preferred::DEFAULT
    }
}

/// What the library speaks inside [`crate::transport`]: nothing of cryptography.
pub(crate) fn inside() -> Preferred {
    Preferred {
        kex: Cow::Borrowed(&[kex::NONE]),
        key: Cow::Borrowed(KEYS),
        host_key_certificates: Cow::Borrowed(&[]),
        cipher: Cow::Borrowed(&[cipher::CLEAR]),
        mac: Cow::Borrowed(&[mac::NONE]),
        ..Preferred::DEFAULT
    }
}

/// There, nothing is renewed.
pub(crate) fn inside_limits() -> Limits {
    Limits {
        rekey_write_limit: usize::MAX,
        rekey_read_limit: usize::MAX,
        rekey_time_limit: Duration::from_secs(100 * 365 * 86_400),
    }
}

/// When a server asks for new keys: within the 64 GiB and 2^31 packets of RFC 4344 §3. An OpenSSH client asks after 64 GiB (1 GiB under
/// ChaCha20).
pub(crate) const SERVER_LIMITS: transport::Limits = transport::Limits { bytes: 60 << 30, packets: 1 << 31 };

/// What SSH's transport has, as servers of ours offer it.
#[derive(Debug, Clone)]
pub struct Transport {
    /// Names of key exchange methods, best first.
    pub key_exchange: Vec<String>,
    /// Names of ciphers, best first.
    pub ciphers: Vec<String>,
}

/// The algorithms of the SSH transport, as a server of ours offers them.
#[must_use]
pub fn transport_algorithms() -> Transport {
    let Spoken { methods, ciphers } = Spoken::server(HybridKeyExchange::Preferred);
    Transport {
        key_exchange: methods.iter().map(|(name, _)| (*name).to_owned()).collect(),
        ciphers: ciphers.iter().map(|cipher| cipher.ssh_name().to_owned()).collect(),
    }
}

/// When this side, as a client, asks for new keys (RFC 4253 §9, RFC 4344 §3.2): before 2^32 blocks or packets under one
/// key, as OpenSSH does, and not by the clock.
///
/// It is late on purpose, and later for what comes than for what goes: until the far end has seen the question, russh
/// takes no more from it than two first windows, and a peer that is sending would lose its connection. A peer that sends
/// most asks first.
pub(crate) fn client_limits() -> Limits {
    Limits {
        rekey_write_limit: 32 << 30,
        rekey_read_limit: 96 << 30,
        rekey_time_limit: Duration::from_secs(365 * 86_400),
    }
}

/// Bytes that the far end may send on a new channel before it hears back: what OpenSSH gives.
pub(crate) const FIRST_WINDOW_BYTES: u32 = 2 << 20;

/// What that may grow to: 100 ms at 1 Gbit/s.
const WINDOW_BYTES: u32 = 16 << 20;

/// How far the windows grow that a peer is given which names itself like this.
///
/// OpenSSH keeps at hand as much as the window lets it send, in a buffer which up to some releases (9.2 is one) is
/// copied as a whole for every 32 KiB that it grows by: uploads into 16 MiB windows are a fifth as fast as into 2 MiB.
pub(crate) fn widest_window(identification: &[u8]) -> u32 {
    let is_openssh = identification.windows(7).any(|name| name == b"OpenSSH");
    if is_openssh { FIRST_WINDOW_BYTES } else { WINDOW_BYTES }
}

/// The next window of a channel whose reader keeps up.
pub(crate) fn wider_window(current: u32, widest: u32) -> u32 {
    current.saturating_mul(2).clamp(FIRST_WINDOW_BYTES, widest)
}

/// Packets waiting for a slow reader of a channel, 32 KiB each at most. When they are that many, the connection is
/// not read from until the reader catches up.
pub(crate) const CHANNEL_PACKETS: usize = 64;

#[cfg(test)]
mod tests {
    use sallyport_sal::Suite;

    use super::*;
    use crate::capabilities::is_flag;
    use crate::transport::message::put_string;

    fn key_of(suite: Suite) -> ssh_key::PublicKey {
        let key = sallyport_ca::keys::SshKeyPair::generate(suite, "x").unwrap();
        ssh_key::PublicKey::from_openssh(key.public_line()).unwrap()
    }

    /// That of a security key, for the application that OpenSSH names.
    fn security_key(algorithm: &Algorithm, fields: &[&[u8]]) -> ssh_key::PublicKey {
        let mut blob = Vec::new();
        put_string(&mut blob, algorithm.as_str().as_bytes());
        for field in fields {
            put_string(&mut blob, field);
        }
        put_string(&mut blob, b"ssh:");
        ssh_key::PublicKey::from_bytes(&blob).unwrap()
    }

    #[test]
    fn security_keys_log_in_and_in_fips_mode_the_approved_one_alone() {
        let (ed25519, p256) = (key_of(Suite::BalancedV1), key_of(Suite::FipsV1));
        let raw = ed25519.key_data().ed25519().unwrap().as_ref().to_vec();
        let point = p256.key_data().ecdsa().unwrap().as_sec1_bytes().to_vec();
        for (algorithm, key, in_fips_mode) in [
            (Algorithm::SkEd25519, security_key(&Algorithm::SkEd25519, &[&raw]), false),
            (
                Algorithm::SkEcdsaSha2NistP256,
                security_key(&Algorithm::SkEcdsaSha2NistP256, &[b"nistp256", &point]),
                true,
            ),
        ] {
            let key = key.key_data();
            assert_eq!(refused(key, &algorithm, false), None, "{algorithm:?}");
            assert_eq!(refused(key, &algorithm, true).is_none(), in_fips_mode, "{algorithm:?}");
        }
    }

    #[test]
    fn in_fips_mode_users_authenticate_by_what_is_approved() {
        let ed25519 = key_of(Suite::BalancedV1);
        let raw = ed25519.key_data().ed25519().unwrap().as_ref().to_vec();
        let security_key = security_key(&Algorithm::SkEd25519, &[&raw]);
        for (key, algorithm) in [
            (&ed25519, Algorithm::Ed25519),
            (&security_key, Algorithm::SkEd25519),
            (&key_of(Suite::Legacy), Algorithm::Rsa { hash: None }),
        ] {
            assert_eq!(refused(key.key_data(), &algorithm, false), None);
            let text = refused(key.key_data(), &algorithm, true).unwrap();
            assert!(text.contains(algorithm.as_str()) && text.contains("P-256"), "{text}");
        }
        let rsa = Algorithm::Rsa { hash: Some(HashAlg::Sha512) };
        for (suite, algorithm) in
            [(Suite::FipsV1, Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 }), (Suite::Legacy, rsa)]
        {
            let key = key_of(suite);
            assert_eq!(refused(key.key_data(), &algorithm, true), None, "{suite}");
        }
    }

    fn names<T: AsRef<str>>(names: &[T]) -> Vec<&str> {
        names.iter().map(AsRef::as_ref).collect()
    }

    #[test]
    fn inside_the_transport_the_library_exchanges_and_encrypts_nothing() {
        let inside = inside();
        assert_eq!(names(&inside.kex), ["none"]);
        assert_eq!(names(&inside.cipher), ["clear"]);
        assert_eq!(names(&inside.mac), ["none"]);
        assert!(inside.host_key_certificates.is_empty());
        let limits = inside_limits();
        assert_eq!((limits.rekey_write_limit, limits.rekey_read_limit), (usize::MAX, usize::MAX));
    }

    #[test]
    fn servers_renew_keys_within_rfc_4344() {
        let transport::Limits { bytes, packets } = SERVER_LIMITS;
        assert!(bytes < 64 << 30 && packets <= 1 << 31);
    }

    #[test]
    fn fips_mode_offers_what_is_approved_and_nothing_else() {
        let offered = |demand| offered(demand, true);
        let preferred = offered(HybridKeyExchange::Preferred);
        let methods: Vec<&str> = names(&preferred.kex).into_iter().filter(|name| !is_flag(name)).collect();
        assert_eq!(methods, ["ecdh-sha2-nistp256", "ecdh-sha2-nistp384"]);
        assert_eq!(names(&preferred.cipher), ["aes128-gcm@openssh.com", "aes256-gcm@openssh.com"]);
        assert!(!preferred.key.contains(&Algorithm::Ed25519) && preferred.key.len() == KEYS.len() - 1);
        let required = offered(HybridKeyExchange::Required);
        assert!(names(&required.kex).into_iter().all(is_flag), "{:?}", names(&required.kex));
    }
}
