//! The client's side of SCRAM-SHA-256 (RFC 5802, RFC 7677; §53.3): a login that shows the server no password, and finds out
//! whether the server knows it.
//!
//! Over TLS it is bound to the server's certificate where the server offers that (SCRAM-SHA-256-PLUS), as libpq does with
//! `channel_binding=prefer`. A machine in between chooses the certificate, and by it whether there is a binding: without one
//! the login goes on only where TLS has verified the server's name. The user's name is left empty, as PostgreSQL has it from the startup message. Passwords are taken as
//! they are; those that SASLprep would change have to be kept in its form.

use data_encoding::BASE64;
use sallyport_sal::algorithm::HashAlgorithm;
use sallyport_sal::hash::{Hmac, sha256};
use zeroize::Zeroizing;

/// The mechanism's name.
pub const MECHANISM: &str = "SCRAM-SHA-256";
/// The name of the mechanism that binds the login to its TLS connection.
pub const MECHANISM_PLUS: &str = "SCRAM-SHA-256-PLUS";
/// Fewest rounds that a server may ask for (RFC 7677 §4). The proof goes to a server that has not proven itself yet: with fewer
/// rounds an impostor tries passwords against it so much faster.
const FEWEST_ROUNDS: u32 = 4096;
/// Most rounds that a server may ask for: about a second of work.
const MOST_ROUNDS: u32 = 1_000_000;
/// Longest message of a server; libpq takes no longer ones either.
const LONGEST: usize = 2000;

/// Why the login cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScramError {
    /// The server does not keep to the exchange.
    #[error("the server's SCRAM message is malformed: {0}")]
    Malformed(&'static str),
    /// It offers a mechanism that it cannot mean.
    #[error("the server offers {MECHANISM_PLUS}, which is bound to TLS, on a connection without TLS")]
    BoundToNothing,
    /// It offers a mechanism that is bound to TLS, its certificate has nothing to bind to, and its name was not verified.
    #[error(
        "the server offers {MECHANISM_PLUS}, and the login cannot be bound to its certificate, which is not signed with ECDSA or \
         RSA and a common hash: as tls.mode is not verify-full, a machine in between could pass the login on to the right \
         server"
    )]
    Unbindable,
    /// It offers no mechanism that is used.
    #[error(
        "the server offers no SASL mechanism that is used here, which are {MECHANISM} and, over TLS, {MECHANISM_PLUS}"
    )]
    Mechanism,
    /// What it wants is too little or too much.
    #[error("the server asks for {0} rounds of SCRAM, and {FEWEST_ROUNDS} to {MOST_ROUNDS} are done")]
    Rounds(u32),
    /// The server has refused, in its words.
    #[error("the server refused the SCRAM login: {0}")]
    Refused(String),
    /// The server does not know the password: it is another one.
    #[error(
        "the server has not proven that it knows the password: it may be another server than the one that is meant"
    )]
    NotTheServer,
    /// No HMAC.
    #[error("HMAC-SHA-256 cannot be computed")]
    Unavailable,
}

/// What a login goes over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Channel {
    /// No TLS.
    Plain,
    /// TLS.
    Tls {
        /// The channel binding `tls-server-end-point` (RFC 5929 §4): the hash of the server's certificate; none for a certificate
        /// whose signature has no hash of its own.
        end_point: Option<Vec<u8>>,
        /// The server has proven in TLS that it is the one of the name that was dialled (`verify-full`).
        named: bool,
    },
}

/// How a login is bound to what it goes over (RFC 5802 §6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Binding {
    /// It cannot be.
    Impossible,
    /// The server does not offer it. A server that does finds out that its offer was taken away. This says nothing of the
    /// certificate, which was chosen by the same machine that may have taken the offer away.
    NotOffered,
    /// To the server's certificate.
    EndPoint(Vec<u8>),
}

impl Binding {
    /// Chooses of the mechanisms that a server offers.
    ///
    /// # Errors
    /// [`ScramError::BoundToNothing`], [`ScramError::Unbindable`], [`ScramError::Mechanism`].
    pub fn choose<'a>(
        offers: impl IntoIterator<Item = &'a [u8]>,
        channel: Channel,
    ) -> Result<Self, ScramError> {
        let (mut simple, mut plus) = (false, false);
        for offer in offers {
            simple |= offer == MECHANISM.as_bytes();
            plus |= offer == MECHANISM_PLUS.as_bytes();
        }
        match channel {
            Channel::Plain if plus => Err(ScramError::BoundToNothing),
            Channel::Tls { end_point: Some(end_point), .. } if plus => Ok(Self::EndPoint(end_point)),
            Channel::Tls { named: false, .. } if plus => Err(ScramError::Unbindable),
            Channel::Tls { .. } if simple && !plus => Ok(Self::NotOffered),
            _ if simple => Ok(Self::Impossible),
            _ => Err(ScramError::Mechanism),
        }
    }

    /// The mechanism's name.
    #[must_use]
    pub fn mechanism(&self) -> &'static str {
        if matches!(self, Self::EndPoint(_)) { MECHANISM_PLUS } else { MECHANISM }
    }

    /// `gs2-header` (RFC 5802 §7).
    fn header(&self) -> &'static str {
        match self {
            Self::Impossible => "n,,",
            Self::NotOffered => "y,,",
            Self::EndPoint(_) => "p=tls-server-end-point,,",
        }
    }

    /// `cbind-input` (RFC 5802 §7).
    fn input(&self) -> Vec<u8> {
        let data = if let Self::EndPoint(data) = self { data.as_slice() } else { &[] };
        [self.header().as_bytes(), data].concat()
    }
}

/// Before the server's first message.
#[derive(Debug)]
pub struct First {
    nonce: String,
    binding: Binding,
}

/// Before the server's last message.
#[derive(Debug, Clone)]
pub struct Last {
    signature: [u8; 32],
}

impl First {
    /// With a nonce of printable characters, no comma: fresh for each login, from at least 18 random bytes.
    #[must_use]
    pub fn new(nonce: impl Into<String>, binding: Binding) -> Self {
        Self { nonce: nonce.into(), binding }
    }

    /// What the client says first.
    #[must_use]
    pub fn message(&self) -> String {
        format!("{}{}", self.binding.header(), self.bare())
    }

    fn bare(&self) -> String {
        format!("n=,r={}", self.nonce)
    }

    /// Answers the server's first message: the proof that the client knows the password. It takes as long as the server
    /// wants, so run it on a thread that may block.
    ///
    /// # Errors
    /// [`ScramError`].
    pub fn answer(self, server: &[u8], password: &[u8]) -> Result<(String, Last), ScramError> {
        let bare = self.bare();
        self.proof(&bare, server, password)
    }

    fn proof(&self, bare: &str, server: &[u8], password: &[u8]) -> Result<(String, Last), ScramError> {
        let text = readable(server)?;
        let mut parts = text.split(',');
        let mut part = |name: &str, missing| {
            parts.next().and_then(|part| part.strip_prefix(name)).ok_or(ScramError::Malformed(missing))
        };
        let nonce = part("r=", "it has no nonce")?;
        let salt = part("s=", "it has no salt")?;
        let rounds = part("i=", "it has no count of rounds")?;
        if parts.next().is_some() {
            return Err(ScramError::Malformed("something follows its last field"));
        }
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err(ScramError::Malformed("its nonce does not go on from ours"));
        }
        let salt =
            BASE64.decode(salt.as_bytes()).map_err(|_| ScramError::Malformed("its salt is not base64"))?;
        if salt.is_empty() {
            return Err(ScramError::Malformed("its salt is empty"));
        }
        let digits = Some(rounds).filter(|rounds| rounds.bytes().all(|digit| digit.is_ascii_digit()));
        let rounds: u32 = digits
            .and_then(|digits| digits.parse().ok())
            .ok_or(ScramError::Malformed("its count of rounds is none"))?;
        if !(FEWEST_ROUNDS..=MOST_ROUNDS).contains(&rounds) {
            return Err(ScramError::Rounds(rounds));
        }
        let without_proof = format!("c={},r={nonce}", BASE64.encode(&self.binding.input()));
        let signed = format!("{bare},{text},{without_proof}");
        let salted = salted(password, &salt, rounds)?;
        let client_key = tag(&salted[..], &[b"Client Key"])?;
        let signature = tag(&sha256(&client_key[..]), &[signed.as_bytes()])?;
        let mut proof = Zeroizing::new([0; 32]);
        for ((to, key), sign) in proof.iter_mut().zip(client_key.iter()).zip(signature.iter()) {
            *to = key ^ sign;
        }
        let server_key = tag(&salted[..], &[b"Server Key"])?;
        let expected = tag(&server_key[..], &[signed.as_bytes()])?;
        Ok((format!("{without_proof},p={}", BASE64.encode(&proof[..])), Last { signature: *expected }))
    }
}

impl Last {
    /// Whether the server knows the password, too.
    ///
    /// # Errors
    /// [`ScramError`] when it does not, or says that the login failed.
    pub fn check(self, server: &[u8]) -> Result<(), ScramError> {
        let text = readable(server)?;
        if let Some(error) = text.strip_prefix("e=") {
            return Err(ScramError::Refused(error.to_owned()));
        }
        let signature = text.strip_prefix("v=").ok_or(ScramError::Malformed("it has no signature"))?;
        let signature = BASE64.decode(signature.as_bytes());
        let signature = signature.map_err(|_| ScramError::Malformed("its signature is not base64"))?;
        if sallyport_sal::constant_time_eq(&signature, &self.signature) {
            Ok(())
        } else {
            Err(ScramError::NotTheServer)
        }
    }
}

fn readable(message: &[u8]) -> Result<&str, ScramError> {
    if message.len() > LONGEST {
        return Err(ScramError::Malformed("it is too long"));
    }
    std::str::from_utf8(message).map_err(|_| ScramError::Malformed("it is not UTF-8"))
}

fn tag(key: &[u8], parts: &[&[u8]]) -> Result<Zeroizing<[u8; 32]>, ScramError> {
    let mut out = Zeroizing::new([0; 32]);
    let hmac = Hmac::new(HashAlgorithm::Sha256, key).map_err(|_| ScramError::Unavailable)?;
    hmac.sign(parts, &mut out[..]);
    Ok(out)
}

/// `Hi` of RFC 5802 §2.2, which is PBKDF2 with one block.
fn salted(password: &[u8], salt: &[u8], rounds: u32) -> Result<Zeroizing<[u8; 32]>, ScramError> {
    let hmac = Hmac::new(HashAlgorithm::Sha256, password).map_err(|_| ScramError::Unavailable)?;
    let mut last = Zeroizing::new([0; 32]);
    hmac.sign(&[salt, &1_u32.to_be_bytes()], &mut last[..]);
    let mut sum = last.clone();
    let mut next = Zeroizing::new([0; 32]);
    for _ in 1..rounds {
        hmac.sign(&[&last[..]], &mut next[..]);
        std::mem::swap(&mut last, &mut next);
        for (to, from) in sum.iter_mut().zip(last.iter()) {
            *to ^= from;
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn first(nonce: &str) -> First {
        First::new(nonce, Binding::Impossible)
    }

    /// RFC 7677 §3. Its client names the user.
    #[test]
    fn the_published_exchange_is_the_same() {
        let first = first("rOprNGfwEbeRWgbNEkqO");
        let server =
            b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let (answer, last) = first.proof("n=user,r=rOprNGfwEbeRWgbNEkqO", server, b"pencil").unwrap();
        assert_eq!(
            answer,
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        // Nothing may follow: a server's extensions are none that a client of PostgreSQL knows.
        let more = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=,x=y";
        assert!(matches!(last.clone().check(more), Err(ScramError::Malformed(_))));
        assert_eq!(last.check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="), Ok(()));
    }

    #[test]
    fn what_is_not_right_ends_it() {
        let answer = |server: &[u8]| first("abc").answer(server, b"secret").map(|(answer, _)| answer);
        for server in [
            &b""[..],
            b"r=abcd",
            b"r=abcd,s=AAAA",
            b"r=abc,s=AAAA,i=4096",
            b"r=xyz,s=AAAA,i=4096",
            b"r=abcd,s=*,i=4096",
            b"r=abcd,s=AAA,i=4096",
            b"r=abcd,s=,i=4096",
            b"r=abcd,s=AAAA,i=many",
            b"r=abcd,s=AAAA,i=",
            b"r=abcd,s=AAAA,i=+4096",
            b"r=abcd,s=AAAA,i=-4096",
            b"r=abcd,s=AAAA,i=4294967296",
            b"r=abcd,s=AAAA,i=4096,x=y",
            b"m=x,r=abcd,s=AAAA,i=4096",
            b"\xff",
            &[b'r'; 2001],
        ] {
            assert!(matches!(answer(server), Err(ScramError::Malformed(_))), "{server:?}");
        }
        for rounds in [0, 1, 4095, 1_000_001, 1 << 31, u32::MAX] {
            let server = format!("r=abcd,s=AAAA,i={rounds}");
            assert_eq!(answer(server.as_bytes()), Err(ScramError::Rounds(rounds)));
        }
        let last = || Last { signature: [7; 32] };
        assert_eq!(last().check(b"v=AAAA"), Err(ScramError::NotTheServer));
        assert_eq!(last().check(b"v="), Err(ScramError::NotTheServer));
        assert_eq!(last().check(b"e=invalid-proof"), Err(ScramError::Refused("invalid-proof".into())));
        for server in [&b"x"[..], b"", b"v=*", b"\xff"] {
            assert!(matches!(last().check(server), Err(ScramError::Malformed(_))), "{server:?}");
        }
        assert_eq!(last().check(format!("v={}", BASE64.encode(&[7; 32])).as_bytes()), Ok(()));
    }

    #[test]
    fn a_login_is_bound_to_its_certificate_where_the_server_offers_it() {
        let bound = || Channel::Tls { end_point: Some(vec![1, 2]), named: false };
        let named = || Channel::Tls { end_point: Some(vec![1, 2]), named: true };
        let unbound = |named| Channel::Tls { end_point: None, named };
        let (simple, plus) = (MECHANISM.as_bytes(), MECHANISM_PLUS.as_bytes());
        for (offers, channel, chosen) in [
            (&[plus, simple][..], bound(), Ok(Binding::EndPoint(vec![1, 2]))),
            (&[simple, plus], bound(), Ok(Binding::EndPoint(vec![1, 2]))),
            (&[plus], bound(), Ok(Binding::EndPoint(vec![1, 2]))),
            // A server that did offer it reads that the client has not seen the offer.
            (&[simple], bound(), Ok(Binding::NotOffered)),
            (&[plus, simple], named(), Ok(Binding::EndPoint(vec![1, 2]))),
            (&[simple], named(), Ok(Binding::NotOffered)),
            // A certificate without a hash is not what decides whether a server finds out.
            (&[plus, simple], unbound(false), Err(ScramError::Unbindable)),
            (&[plus], unbound(false), Err(ScramError::Unbindable)),
            (&[simple], unbound(false), Ok(Binding::NotOffered)),
            (&[plus, simple], unbound(true), Ok(Binding::Impossible)),
            (&[simple], unbound(true), Ok(Binding::NotOffered)),
            (&[simple], Channel::Plain, Ok(Binding::Impossible)),
            (&[plus, simple], Channel::Plain, Err(ScramError::BoundToNothing)),
            (&[plus], unbound(true), Err(ScramError::Mechanism)),
            (&[b"PLAIN", b"SCRAM-SHA-1"], bound(), Err(ScramError::Mechanism)),
            (&[], bound(), Err(ScramError::Mechanism)),
        ] {
            assert_eq!(
                Binding::choose(offers.iter().copied(), channel.clone()),
                chosen,
                "{offers:?} {channel:?}"
            );
        }
        let said = |binding: Binding| {
            let first = First::new("abc", binding);
            let message = first.message();
            let (answer, _) = first.answer(b"r=abcd,s=AAAA,i=4096", b"secret").unwrap();
            (message, answer.split(',').next().unwrap().to_owned())
        };
        let words = |one: &str, other: &str| (one.to_owned(), other.to_owned());
        assert_eq!(said(Binding::Impossible), words("n,,n=,r=abc", "c=biws"));
        assert_eq!(said(Binding::NotOffered), words("y,,n=,r=abc", "c=eSws"));
        let input = BASE64.encode(b"p=tls-server-end-point,,\x01\x02");
        let bound = said(Binding::EndPoint(vec![1, 2]));
        assert_eq!(bound, words("p=tls-server-end-point,,n=,r=abc", &format!("c={input}")));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = first("abc").answer(&bytes, b"secret");
            let _ = Last { signature: [7; 32] }.check(&bytes);
        }
    }
}
