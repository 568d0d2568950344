//! The algorithms that clients of ours speak by the library, best first, and what servers of ours take. Names are those of
//! [`crate::transport`].

use std::borrow::Cow;
use std::time::Duration;

use russh::keys::Algorithm;
use russh::{Limits, Preferred, cipher, kex, mac};
use sallyport_sal::HybridKeyExchange;
use sallyport_sal::selection;
use ssh_key::public::KeyData;

use crate::transport::proposal::{CERTIFICATE, Spoken, host_keys_in, user_signatures_in};
use crate::{rsa_keys, transport};

/// None is used, since every cipher here authenticates by itself; but the list must not be empty for clients that look for a
/// match all the same. They are those that authenticate what is encrypted (encrypt-then-MAC).
const MACS: &[mac::Name] = &[mac::HMAC_SHA512_ETM, mac::HMAC_SHA256_ETM];

/// The flags that share the list of key exchange methods.
const FLAGS: &[kex::Name] = &[
    kex::EXTENSION_SUPPORT_AS_CLIENT,
    kex::EXTENSION_SUPPORT_AS_SERVER,
    kex::EXTENSION_OPENSSH_STRICT_KEX_AS_CLIENT,
    kex::EXTENSION_OPENSSH_STRICT_KEX_AS_SERVER,
];
const LEAST_RSA_BITS: u32 = 2048;

/// Why a server of ours does not take a key that a user offers, by itself or in a certificate; `None` where it takes it.
pub(crate) fn refusal(key: &KeyData, algorithm: &Algorithm) -> Option<String> {
    refused(key, algorithm, selection::global().is_fips())
}

fn refused(key: &KeyData, algorithm: &Algorithm, fips: bool) -> Option<String> {
    if !fips {
        return None;
    }
    let is_approved = user_signatures_in(fips).any(|name| name == algorithm.as_str());
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

/// What a client of ours offers by the library: all that servers of ours speak. In FIPS mode no client asks the library for any of it.
pub(crate) fn client(demand: HybridKeyExchange) -> Preferred {
    rsa_keys::register();
    offered(demand, selection::global().is_fips())
}

fn offered(demand: HybridKeyExchange, fips: bool) -> Preferred {
    let Spoken { methods, ciphers } = Spoken::server_in(demand, fips);
    let kex = methods.iter().filter_map(|(name, _)| kex::Name::try_from(*name).ok());
    let ciphers = ciphers.iter().filter_map(|cipher| cipher::Name::try_from(cipher.ssh_name()).ok());
    let keys = host_key_types(fips);
    Preferred {
        kex: kex.chain(FLAGS.iter().copied()).collect(),
        cipher: ciphers.collect(),
        mac: Cow::Borrowed(MACS),
        key: Cow::Owned(keys.clone()),
        host_key_certificates: Cow::Owned(keys),
        ..Preferred::DEFAULT
    }
}

/// Key types of hosts, as the authorities certify them, with the hash that RSA signs by (RFC 8332 §3): never SHA-1.
fn host_key_types(fips: bool) -> Vec<Algorithm> {
    let plain = host_keys_in(fips).filter(|name| !name.ends_with(CERTIFICATE));
    plain.filter_map(|name| Algorithm::new(name).ok()).collect()
}

/// What the library speaks inside [`crate::transport`]: nothing of cryptography.
pub(crate) fn inside() -> Preferred {
    Preferred {
        kex: Cow::Borrowed(&[kex::NONE]),
        key: Cow::Owned(host_key_types(false)),
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
    use russh::keys::{EcdsaCurve, HashAlg};
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
    fn the_library_knows_every_name_that_clients_offer_by_it() {
        for (demand, fips) in [
            (HybridKeyExchange::Preferred, false),
            (HybridKeyExchange::Required, false),
            (HybridKeyExchange::Preferred, true),
            (HybridKeyExchange::Required, true),
        ] {
            let (offered, spoken) = (offered(demand, fips), Spoken::server_in(demand, fips));
            let methods: Vec<&str> = names(&offered.kex).into_iter().filter(|name| !is_flag(name)).collect();
            assert_eq!(methods, spoken.methods.iter().map(|(name, _)| *name).collect::<Vec<_>>());
            assert_eq!(offered.kex.len(), methods.len() + FLAGS.len());
            let ciphers: Vec<&str> = spoken.ciphers.iter().map(|cipher| cipher.ssh_name()).collect();
            assert_eq!(names(&offered.cipher), ciphers);
            // Ed25519 is not approved.
            let keys: Vec<&str> = offered.key.iter().map(Algorithm::as_str).collect();
            assert_eq!(
                (keys.len(), keys.contains(&"ssh-ed25519")),
                if fips { (5, false) } else { (6, true) }
            );
            assert_eq!(offered.host_key_certificates, offered.key);
        }
    }
}
