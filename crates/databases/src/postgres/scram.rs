//! The client's side of SCRAM-SHA-256 (RFC 5802, RFC 7677; §53.3): a login that shows the server no password, and finds out
//! whether the server knows it.
//!
//! Without channel binding: the TLS connection is bound by the verification of the server's certificate. The user's name is
//! left empty, as PostgreSQL has it from the startup message. Passwords are taken as they are; those that SASLprep would
//! change have to be kept in its form.

use data_encoding::BASE64;
use sallyport_sal::algorithm::HashAlgorithm;
use sallyport_sal::hash::{Hmac, sha256};
use zeroize::Zeroizing;

/// The mechanism's name.
pub const MECHANISM: &str = "SCRAM-SHA-256";
/// Most rounds that a server may ask for: about a second of work.
const MOST_ROUNDS: u32 = 1_000_000;
/// Longest message of a server.
const LONGEST: usize = 4096;
const HEADER: &str = "n,,";

/// Why the login cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScramError {
    /// The server does not keep to the exchange.
    #[error("the server's SCRAM message is malformed: {0}")]
    Malformed(&'static str),
    /// What it wants is too much.
    #[error("the server asks for {0} rounds of SCRAM; 1 to {MOST_ROUNDS} are done")]
    Rounds(u32),
    /// The server has refused, in its words.
    #[error("the server refused the SCRAM login: {0}")]
    Refused(String),
    /// The server does not know the password: it is another one.
    #[error("the server has not proven that it knows the password; somebody may be in between")]
    NotTheServer,
    /// No HMAC.
    #[error("HMAC-SHA-256 cannot be computed")]
    Unavailable,
}

/// Before the server's first message.
#[derive(Debug)]
pub struct First {
    nonce: String,
}

/// Before the server's last message.
#[derive(Debug)]
pub struct Last {
    signature: [u8; 32],
}

impl First {
    /// With a nonce of printable characters, no comma: fresh for each login, from at least 18 random bytes.
    #[must_use]
    pub fn new(nonce: impl Into<String>) -> Self {
        Self { nonce: nonce.into() }
    }

    /// What the client says first.
    #[must_use]
    pub fn message(&self) -> String {
        format!("{HEADER}{}", self.bare())
    }

    fn bare(&self) -> String {
        format!("n=,r={}", self.nonce)
    }

    /// Answers the server's first message: the proof that the client knows the password. It takes as long as the server
    /// wants, so run it where that blocks nobody.
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
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err(ScramError::Malformed("its nonce does not go on from ours"));
        }
        let salt =
            BASE64.decode(salt.as_bytes()).map_err(|_| ScramError::Malformed("its salt is not base64"))?;
        let rounds: u32 =
            rounds.parse().map_err(|_| ScramError::Malformed("its count of rounds is no number"))?;
        if !(1..=MOST_ROUNDS).contains(&rounds) {
            return Err(ScramError::Rounds(rounds));
        }
        let without_proof = format!("c={},r={nonce}", BASE64.encode(HEADER.as_bytes()));
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
        let signature = text.strip_prefix("v=").and_then(|rest| rest.split(',').next());
        let signature = signature.ok_or(ScramError::Malformed("it has no signature"))?;
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

    /// RFC 7677 §3. Its client names the user.
    #[test]
    fn the_published_exchange_is_the_same() {
        let first = First::new("rOprNGfwEbeRWgbNEkqO");
        let server =
            b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let (answer, last) = first.proof("n=user,r=rOprNGfwEbeRWgbNEkqO", server, b"pencil").unwrap();
        assert_eq!(
            answer,
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        assert_eq!(last.check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="), Ok(()));
    }

    #[test]
    fn what_is_not_right_ends_it() {
        let answer = |server: &[u8]| First::new("abc").answer(server, b"secret").map(|(answer, _)| answer);
        for server in [
            &b""[..],
            b"r=abcd",
            b"r=abcd,s=AAAA",
            b"r=abc,s=AAAA,i=4096",
            b"r=xyz,s=AAAA,i=4096",
            b"r=abcd,s=*,i=4096",
            b"r=abcd,s=AAAA,i=many",
            b"\xff",
        ] {
            assert!(matches!(answer(server), Err(ScramError::Malformed(_))), "{server:?}");
        }
        assert_eq!(answer(b"r=abcd,s=AAAA,i=0"), Err(ScramError::Rounds(0)));
        assert_eq!(answer(b"r=abcd,s=AAAA,i=4000000000"), Err(ScramError::Rounds(4_000_000_000)));
        let last = || First::new("abc").answer(b"r=abcd,s=AAAA,i=1", b"secret").unwrap().1;
        assert_eq!(last().check(b"v=AAAA"), Err(ScramError::NotTheServer));
        assert_eq!(last().check(b"e=invalid-proof"), Err(ScramError::Refused("invalid-proof".into())));
        assert!(matches!(last().check(b"x"), Err(ScramError::Malformed(_))));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = First::new("abc").answer(&bytes, b"secret");
            let (_, last) = First::new("abc").answer(b"r=abcd,s=AAAA,i=1", b"secret").unwrap();
            let _ = last.check(&bytes);
        }
    }
}
