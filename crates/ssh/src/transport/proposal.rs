//! Algorithms: what is proposed, and what both sides agree on (RFC 4253 §7.1).

use sallyport_sal::algorithm::{AeadAlgorithm, DhGroup, HashAlgorithm};
use sallyport_sal::selection;
use sallyport_sal::{HybridKeyExchange, SalError, random};

use super::Breach;
use super::message::{Draft, KEXINIT, Lists};

const HYBRID: &str = "mlkem768x25519-sha256";
const CURVE: &str = "curve25519-sha256";
/// The name before RFC 8731.
const CURVE_OF_OLD: &str = "curve25519-sha256@libssh.org";
const P256: &str = "ecdh-sha2-nistp256";
const P384: &str = "ecdh-sha2-nistp384";
const GROUP16: &str = "diffie-hellman-group16-sha512";

/// OpenSSH's answer to CVE-2023-48795: nothing may be slipped into the first exchange.
const STRICT_CLIENT: &str = "kex-strict-c-v00@openssh.com";
const STRICT_SERVER: &str = "kex-strict-s-v00@openssh.com";
/// RFC 8308 §2.1.
const EXTENSIONS: &str = "ext-info-c";

/// Certificates go first. Plain keys stay in the list so that a host without a certificate is refused with words rather than with a
/// failed negotiation. RSA signs by a hash of RFC 8332 §3, never SHA-1.
const HOST_KEYS: &[&str] = &[
    "ssh-ed25519-cert-v01@openssh.com",
    "ecdsa-sha2-nistp256-cert-v01@openssh.com",
    "ecdsa-sha2-nistp384-cert-v01@openssh.com",
    "ecdsa-sha2-nistp521-cert-v01@openssh.com",
    "rsa-sha2-512-cert-v01@openssh.com",
    "rsa-sha2-256-cert-v01@openssh.com",
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
];

/// The first of [`HOST_KEYS`] that are no certificates'.
const PLAIN_FROM: usize = 6;

/// Those of [`HOST_KEYS`] that are taken: no Ed25519 in FIPS mode.
pub(crate) fn host_keys() -> impl Iterator<Item = &'static str> {
    host_keys_in(selection::global().is_fips())
}

pub(crate) fn host_keys_in(fips: bool) -> impl Iterator<Item = &'static str> {
    HOST_KEYS.iter().copied().filter(move |name| !fips || !name.starts_with("ssh-ed25519"))
}

/// What names of algorithms of certificates end with.
pub(crate) const CERTIFICATE: &str = "-cert-v01@openssh.com";
/// Names that are told where nothing is in common.
const MOST_NAMES_TOLD: usize = 64;

/// AES-GCM goes first: on machines with AES instructions it costs half of ChaCha20 a byte. There is no CBC and no plain CTR.
const CIPHERS: &[AeadAlgorithm] =
    &[AeadAlgorithm::Aes128Gcm, AeadAlgorithm::Aes256Gcm, AeadAlgorithm::ChaCha20Poly1305];
/// How many of them are approved, and AES-GCM.
const GCM: usize = 2;
/// Key types of security keys, whose signatures servers of ours take besides.
const SECURITY_KEYS: &[&str] = &["sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com"];
/// Named for peers that look for one in common all the same; the ciphers have their own.
const MACS: &[&str] = &["hmac-sha2-256-etm@openssh.com", "hmac-sha2-512-etm@openssh.com", "hmac-sha2-256"];
const COMPRESSION: &[&str] = &["none"];

/// A method of key exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    /// ML-KEM-768 with X25519 (draft-ietf-sshm-mlkem-hybrid-kex).
    Hybrid,
    /// X25519 (RFC 8731).
    Curve,
    /// P-256 (RFC 5656 §4).
    P256,
    /// P-384.
    P384,
    /// A finite field of 4096 bits (RFC 8268).
    Group16,
}

/// What a method computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// An agreement on a curve.
    Curve(DhGroup),
    /// X25519 and ML-KEM-768.
    Hybrid,
    /// Diffie-Hellman in a finite field.
    Field,
}

impl Method {
    pub(crate) const fn shape(self) -> Shape {
        match self {
            Self::Hybrid => Shape::Hybrid,
            Self::Curve => Shape::Curve(DhGroup::X25519),
            Self::P256 => Shape::Curve(DhGroup::P256),
            Self::P384 => Shape::Curve(DhGroup::P384),
            Self::Group16 => Shape::Field,
        }
    }

    /// The hash of the exchange, of which keys are derived as well (RFC 5656 §6.2.1, RFC 8731 §3, RFC 8268 §3).
    pub(crate) const fn hash(self) -> HashAlgorithm {
        match self {
            Self::Hybrid | Self::Curve | Self::P256 => HashAlgorithm::Sha256,
            Self::P384 => HashAlgorithm::Sha384,
            Self::Group16 => HashAlgorithm::Sha512,
        }
    }
}

/// What both sides use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub(crate) method: Method,
    /// The name of the host key algorithm.
    pub(crate) host_key: &'static str,
    pub(crate) to_server: AeadAlgorithm,
    pub(crate) to_client: AeadAlgorithm,
    /// The other side knows strict key exchange.
    pub(crate) strict: bool,
    /// A packet follows that the other side has guessed wrong.
    pub(crate) passes_over: bool,
}

/// What a side speaks, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spoken {
    pub(crate) methods: &'static [(&'static str, Method)],
    pub(crate) ciphers: &'static [AeadAlgorithm],
}

impl Spoken {
    /// What clients of ours propose: to servers that have none of it, another client goes.
    pub(crate) fn client(demand: HybridKeyExchange) -> Self {
        Self::client_in(demand, selection::global().is_fips())
    }

    /// What servers of ours offer to clients of any kind.
    pub(crate) fn server(demand: HybridKeyExchange) -> Self {
        Self::server_in(demand, selection::global().is_fips())
    }

    fn client_in(demand: HybridKeyExchange, fips: bool) -> Self {
        let Self { methods, ciphers } = Self::server_in(demand, fips);
        let own = methods.iter().take_while(|(_, method)| *method != Method::Group16).count();
        let (methods, ciphers) = (methods.get(..own), ciphers.get(..GCM));
        Self { methods: methods.unwrap_or_default(), ciphers: ciphers.unwrap_or_default() }
    }

    /// In FIPS mode what is approved, of which no method is a hybrid.
    pub(crate) fn server_in(demand: HybridKeyExchange, fips: bool) -> Self {
        const APPROVED: &[(&str, Method)] = &[(P256, Method::P256), (P384, Method::P384)];
        const ALL: &[(&str, Method)] = &[
            (HYBRID, Method::Hybrid),
            (CURVE, Method::Curve),
            (CURVE_OF_OLD, Method::Curve),
            // For peers that have nothing else: those in FIPS mode.
            (P256, Method::P256),
            (P384, Method::P384),
            // For clients without elliptic curves. Smaller groups are weak, in larger ones a stranger costs us too much, and none is
            // chosen by the client.
            (GROUP16, Method::Group16),
        ];
        let methods = match (demand, fips) {
            (HybridKeyExchange::Preferred, true) => APPROVED,
            (HybridKeyExchange::Required, true) => &[],
            (HybridKeyExchange::Preferred, false) => ALL,
            (HybridKeyExchange::Required, false) => ALL.get(..1).unwrap_or_default(),
        };
        let ciphers = if fips { CIPHERS.get(..GCM).unwrap_or_default() } else { CIPHERS };
        Self { methods, ciphers }
    }

    /// Whether a peer's first method is this side's.
    fn begins_like(&self, kex: &[String]) -> bool {
        is_first(kex, self.methods.first().map_or("", |(name, _)| name))
    }
}

/// A client's KEXINIT.
pub(crate) fn propose(spoken: Spoken) -> Result<Vec<u8>, Breach> {
    let keys: Vec<&str> = host_keys().collect();
    put_together(spoken, &keys, &[EXTENSIONS, STRICT_CLIENT])
}

/// A server's KEXINIT, with what its host key can be shown by.
pub(crate) fn propose_as_server(spoken: Spoken, keys: &[&str]) -> Result<Vec<u8>, Breach> {
    put_together(spoken, keys, &[STRICT_SERVER])
}

fn put_together(spoken: Spoken, keys: &[&str], flags: &[&str]) -> Result<Vec<u8>, Breach> {
    let cookie = random::bytes::<16>().map_err(|error: SalError| Breach::Unavailable(error.to_string()))?;
    let mut kex: Vec<&str> = spoken.methods.iter().map(|(name, _)| *name).collect();
    kex.extend(flags);
    let ciphers: Vec<&str> = spoken.ciphers.iter().map(|cipher| cipher.ssh_name()).collect();
    let draft = Draft::new(KEXINIT).raw(&cookie).names(&kex).names(keys).names(&ciphers).names(&ciphers);
    let draft = draft.names(MACS).names(MACS).names(COMPRESSION).names(COMPRESSION).names(&[]).names(&[]);
    Ok(draft.flag(false).u32(0).0)
}

/// The algorithms by which servers of ours let users sign (RFC 8308 §3.1), best first.
pub(crate) fn user_signatures() -> impl Iterator<Item = &'static str> {
    user_signatures_in(selection::global().is_fips())
}

pub(crate) fn user_signatures_in(fips: bool) -> impl Iterator<Item = &'static str> {
    // A security key signs on a curve that is approved, or on Ed25519, which is not.
    let unapproved = if fips { 1 } else { 0 };
    let security_keys = SECURITY_KEYS.iter().copied().skip(unapproved);
    host_keys_in(fips).filter(|name| !name.ends_with(CERTIFICATE)).chain(security_keys)
}

/// Names for a line of text; a peer may have thousands of them.
fn told<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.take(MOST_NAMES_TOLD).collect();
    names.join(",").chars().filter(char::is_ascii_graphic).take(400).collect()
}

/// The first of ours that the server has, too.
fn first<'a, T>(
    what: &'static str,
    ours: impl Iterator<Item = (&'a str, T)>,
    theirs: &[String],
) -> Result<(&'a str, T), Breach> {
    let mut ours = ours;
    ours.find(|(name, _)| theirs.iter().any(|other| other == name))
        .ok_or_else(|| Breach::NothingCommon { what, theirs: told(theirs.iter().map(String::as_str)) })
}

/// The first of the client's that is ours, too.
fn first_of_client<'a, T: Copy>(
    what: &'static str,
    ours: &[(&'a str, T)],
    theirs: &[String],
) -> Result<(&'a str, T), Breach> {
    let found = theirs.iter().find_map(|name| ours.iter().find(|(own, _)| own == name));
    let names = || ours.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    found.copied().ok_or_else(|| Breach::NotSpoken { what, ours: names() })
}

const NONE: [(&str, ()); 1] = [("none", ())];

/// What both sides agree on, as the client finds.
pub(crate) fn agree(spoken: Spoken, theirs: &Lists) -> Result<Agreed, Breach> {
    let ciphers = || spoken.ciphers.iter().map(|cipher| (cipher.ssh_name(), *cipher));
    let (kex, method) = first("key exchange", spoken.methods.iter().copied(), &theirs.kex)?;
    let (host_key, ()) = first("host key algorithm", host_keys().map(|name| (name, ())), &theirs.host_keys)?;
    let (_, to_server) = first("cipher", ciphers(), &theirs.ciphers_to_server)?;
    let (_, to_client) = first("cipher", ciphers(), &theirs.ciphers_to_client)?;
    first("compression", NONE.into_iter(), &theirs.compression_to_server)?;
    first("compression", NONE.into_iter(), &theirs.compression_to_client)?;
    // A guess is right where both sides put the same first; ours is what the lists begin with.
    let right = spoken.begins_like(&theirs.kex)
        && is_first(&theirs.host_keys, host_keys().next().unwrap_or_default());
    debug_assert!(!right || is_first(&theirs.kex, kex));
    Ok(Agreed {
        method,
        host_key,
        to_server,
        to_client,
        strict: theirs.kex.iter().any(|name| name == STRICT_SERVER),
        passes_over: theirs.guesses && !right,
    })
}

/// What both sides agree on, as a server that has these host key algorithms finds: the client's order decides.
pub(crate) fn agree_as_server(
    spoken: Spoken,
    keys: &[&'static str],
    theirs: &Lists,
) -> Result<Agreed, Breach> {
    let ciphers: Vec<_> = spoken.ciphers.iter().map(|cipher| (cipher.ssh_name(), *cipher)).collect();
    let named: Vec<_> = keys.iter().map(|name| (*name, ())).collect();
    let (_, method) = first_of_client("key exchange method", spoken.methods, &theirs.kex)?;
    let (host_key, ()) = first_of_client("type of host key", &named, &theirs.host_keys)?;
    let (_, to_server) = first_of_client("cipher", &ciphers, &theirs.ciphers_to_server)?;
    let (_, to_client) = first_of_client("cipher", &ciphers, &theirs.ciphers_to_client)?;
    first_of_client("compression", &NONE, &theirs.compression_to_server)?;
    first_of_client("compression", &NONE, &theirs.compression_to_client)?;
    let right = spoken.begins_like(&theirs.kex)
        && is_first(&theirs.host_keys, keys.first().copied().unwrap_or_default());
    Ok(Agreed {
        method,
        host_key,
        to_server,
        to_client,
        strict: theirs.kex.iter().any(|name| name == STRICT_CLIENT),
        passes_over: theirs.guesses && !right,
    })
}

fn is_first(names: &[String], ours: &str) -> bool {
    names.first().is_some_and(|name| name == ours)
}

/// Whether a client hears of extensions (RFC 8308 §2.1).
pub(crate) fn hears_extensions(theirs: &Lists) -> bool {
    theirs.kex.iter().any(|name| name == EXTENSIONS)
}

/// The type of key, and the scheme of signatures, that a host key algorithm stands for (RFC 8332 §3).
pub(crate) fn shape(host_key: &str) -> (String, &str, bool) {
    let scheme = host_key.strip_suffix(CERTIFICATE).unwrap_or(host_key);
    let certified = HOST_KEYS.iter().take(PLAIN_FROM).any(|name| *name == host_key);
    let bare = if scheme.starts_with("rsa-sha2-") { "ssh-rsa" } else { scheme };
    let kind = if certified { format!("{bare}{CERTIFICATE}") } else { bare.to_owned() };
    (kind, scheme, certified)
}

#[cfg(test)]
mod unit {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    /// What OpenSSH 9.2 says.
    fn sshd() -> Lists {
        Lists {
            kex: names(&["sntrup761x25519-sha512@openssh.com", CURVE, STRICT_SERVER]),
            host_keys: names(&["ssh-ed25519", "ssh-ed25519-cert-v01@openssh.com"]),
            ciphers_to_server: names(&["chacha20-poly1305@openssh.com", "aes256-gcm@openssh.com"]),
            ciphers_to_client: names(&["aes128-gcm@openssh.com"]),
            compression_to_server: names(&["none"]),
            compression_to_client: names(&["zlib@openssh.com", "none"]),
            guesses: false,
        }
    }

    #[test]
    fn the_client_s_order_decides() {
        let agreed = agree(client(), &sshd()).unwrap();
        assert_eq!(agreed.method, Method::Curve);
        assert_eq!(agreed.host_key, "ssh-ed25519-cert-v01@openssh.com");
        assert_eq!(
            (agreed.to_server, agreed.to_client),
            (AeadAlgorithm::Aes256Gcm, AeadAlgorithm::Aes128Gcm)
        );
        assert!(agreed.strict && !agreed.passes_over);
        let modern = Lists { kex: names(&[HYBRID, CURVE]), ..sshd() };
        let agreed = agree(client(), &modern).unwrap();
        assert_eq!((agreed.method, agreed.strict), (Method::Hybrid, false));
    }

    fn client() -> Spoken {
        Spoken::client(HybridKeyExchange::Preferred)
    }

    #[test]
    fn fips_mode_speaks_what_is_approved() {
        let expected: [(&str, Shape, HashAlgorithm); 2] = [
            (P256, Shape::Curve(DhGroup::P256), HashAlgorithm::Sha256),
            (P384, Shape::Curve(DhGroup::P384), HashAlgorithm::Sha384),
        ];
        for spoken in [Spoken::client_in, Spoken::server_in] {
            let both = spoken(HybridKeyExchange::Preferred, true);
            let methods: Vec<_> =
                both.methods.iter().map(|(name, method)| (*name, method.shape(), method.hash())).collect();
            assert_eq!(methods, expected);
            assert_eq!(both.ciphers, [AeadAlgorithm::Aes128Gcm, AeadAlgorithm::Aes256Gcm]);
            assert!(spoken(HybridKeyExchange::Required, true).methods.is_empty());
        }
    }

    #[test]
    fn servers_speak_with_more_clients_than_clients_with_servers() {
        let names = |spoken: Spoken| -> (Vec<&str>, Vec<&str>) {
            let methods = spoken.methods.iter().map(|(name, _)| *name).collect();
            (methods, spoken.ciphers.iter().map(|cipher| cipher.ssh_name()).collect())
        };
        let (methods, ciphers) = names(Spoken::server_in(HybridKeyExchange::Preferred, false));
        assert_eq!(methods, [HYBRID, CURVE, CURVE_OF_OLD, P256, P384, GROUP16]);
        assert_eq!(
            ciphers,
            ["aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "chacha20-poly1305@openssh.com"]
        );
        let (own, gcm) = names(Spoken::client_in(HybridKeyExchange::Preferred, false));
        assert_eq!((&own[..], &gcm[..]), (&methods[..5], &ciphers[..2]));
        for spoken in [Spoken::client_in, Spoken::server_in] {
            assert_eq!(names(spoken(HybridKeyExchange::Required, false)).0, [HYBRID]);
        }
    }

    #[test]
    fn a_server_takes_what_the_client_likes_best_and_nothing_that_it_does_not_have() {
        let server = Spoken::server(HybridKeyExchange::Preferred);
        let of_client = Lists {
            kex: names(&["diffie-hellman-group14-sha256", GROUP16, CURVE, STRICT_CLIENT]),
            compression_to_client: names(&["none"]),
            compression_to_server: names(&["none"]),
            ..sshd()
        };
        let agreed = agree_as_server(server, &["ssh-ed25519"], &of_client).unwrap();
        assert_eq!((agreed.method, agreed.strict), (Method::Group16, true));
        assert_eq!(
            (agreed.to_server, agreed.to_client),
            (AeadAlgorithm::ChaCha20Poly1305, AeadAlgorithm::Aes128Gcm)
        );
        // Ciphers of before are nothing to fall back to, and the hybrid is not either where it is demanded.
        let cbc = Lists { ciphers_to_server: names(&["aes128-ctr", "aes256-cbc"]), ..of_client.clone() };
        let refused = agree_as_server(server, &["ssh-ed25519"], &cbc).unwrap_err();
        assert!(matches!(refused, Breach::NotSpoken { what: "cipher", .. }), "{refused}");
        let hybrid = Spoken::server(HybridKeyExchange::Required);
        let refused = agree_as_server(hybrid, &["ssh-ed25519"], &of_client).unwrap_err();
        assert!(matches!(refused, Breach::NotSpoken { what: "key exchange method", .. }), "{refused}");
        // In FIPS mode neither the field nor ChaCha20 is there to be agreed on.
        let fips = Spoken::server_in(HybridKeyExchange::Preferred, true);
        let refused = agree_as_server(fips, &["ssh-ed25519"], &of_client).unwrap_err();
        assert!(matches!(refused, Breach::NotSpoken { what: "key exchange method", .. }), "{refused}");
    }

    #[test]
    fn users_may_sign_by_security_keys() {
        let names: Vec<_> = user_signatures().collect();
        for name in SECURITY_KEYS {
            assert!(names.contains(name), "{names:?}");
        }
        assert!(names.contains(&"ssh-ed25519") && !names.iter().any(|name| name.ends_with(CERTIFICATE)));
    }

    #[test]
    fn nothing_in_common_is_for_another_client() {
        let refused = agree(Spoken::client(HybridKeyExchange::Required), &sshd()).unwrap_err();
        assert!(refused.is_for_another_client());
        assert!(refused.to_string().contains("no key exchange in common"), "{refused}");
        let old = Lists { ciphers_to_client: names(&["chacha20-poly1305@openssh.com"]), ..sshd() };
        assert!(agree(client(), &old).unwrap_err().is_for_another_client());
    }

    #[test]
    fn a_guess_is_right_only_where_both_lists_begin_alike() {
        let guessing = Lists { guesses: true, ..sshd() };
        assert!(agree(client(), &guessing).unwrap().passes_over);
        let right = Lists {
            kex: names(&[HYBRID]),
            host_keys: names(&["ssh-ed25519-cert-v01@openssh.com"]),
            ..guessing
        };
        assert!(!agree(client(), &right).unwrap().passes_over);
    }

    #[test]
    fn the_key_and_the_signature_follow_from_the_algorithm() {
        let of = |name| {
            let (kind, scheme, certified) = shape(name);
            format!("{kind} {scheme} {certified}")
        };
        assert_eq!(of("rsa-sha2-512-cert-v01@openssh.com"), "ssh-rsa-cert-v01@openssh.com rsa-sha2-512 true");
        assert_eq!(of("rsa-sha2-256"), "ssh-rsa rsa-sha2-256 false");
        assert_eq!(of("ssh-ed25519"), "ssh-ed25519 ssh-ed25519 false");
    }
}
