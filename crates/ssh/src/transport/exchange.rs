//! One key exchange (RFC 5656 §4, RFC 8731, RFC 8268, draft-ietf-sshm-mlkem-hybrid-kex) and the keys that come of it.

use sallyport_ca::keys::{fingerprint, read_certificate, verify_ssh_signature};
use sallyport_sal::algorithm::{AeadAlgorithm, DhGroup, HashAlgorithm};
use sallyport_sal::provider::{Agreement, Decapsulation};
use sallyport_sal::selection::RunError;
use sallyport_sal::ssh::{Group16, SHARE_BYTES};
use sallyport_sal::{Primitive, SalError, hash, selection, strict};
use ssh_key::public::KeyData;
use ssh_key::{Certificate, PublicKey};
use zeroize::Zeroizing;

use super::Breach;
use super::host::Host;
use super::message::put_string;
use super::packet::{Cipher, key_bytes};
use super::proposal::{Agreed, Method, Shape, shape};

/// Length of a ciphertext of ML-KEM-768, in bytes (FIPS 203 table 3).
const CIPHERTEXT_BYTES: usize = 1088;
/// Length of an encapsulation key of ML-KEM-768, in bytes.
const ENCAPSULATION_BYTES: usize = 1184;
/// Length of the first nonce of AES-GCM, in bytes (RFC 5647 §7.1).
const NONCE_BYTES: usize = 12;
/// Room for any secret as it goes into hashes, in bytes: where it moves, it leaves a copy.
const ENCODED_BYTES: usize = 4 + 1 + SHARE_BYTES;

/// The exchange hash. That of a connection's first exchange names the session.
#[derive(Clone, Copy)]
pub(crate) struct Digest {
    bytes: [u8; HashAlgorithm::MAX_BYTES],
    length: usize,
}

impl Digest {
    fn of(algorithm: HashAlgorithm, parts: &[&[u8]]) -> Self {
        let mut bytes = [0; HashAlgorithm::MAX_BYTES];
        hash::digest(algorithm, parts, &mut bytes);
        Self { bytes, length: algorithm.bytes() }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// A client's fresh keys.
pub(crate) enum Side {
    /// On a curve.
    Curve {
        /// P-256, say.
        group: DhGroup,
        /// The fresh key.
        dh: Box<dyn Agreement>,
    },
    /// On a curve, and ML-KEM.
    Hybrid {
        /// The fresh key on the curve.
        dh: Box<dyn Agreement>,
        /// That of ML-KEM.
        kem: Box<dyn Decapsulation>,
    },
    /// In a finite field.
    Field(Box<Group16>),
}

fn unavailable(error: RunError) -> Breach {
    Breach::Unavailable(format!("{error:?}"))
}

fn fresh(group: DhGroup) -> Result<Box<dyn Agreement>, Breach> {
    selection::global()
        .run(Primitive::Agree(group), |provider| provider.start_agreement(group))
        .map_err(unavailable)
}

fn fresh_in_field() -> Result<Box<Group16>, Breach> {
    Group16::start().map(Box::new).map_err(|error: SalError| Breach::Unavailable(error.to_string()))
}

impl Side {
    pub(crate) fn start(method: Method) -> Result<Self, Breach> {
        Ok(match method.shape() {
            Shape::Curve(group) => Self::Curve { group, dh: fresh(group)? },
            Shape::Hybrid => Self::Hybrid {
                dh: fresh(DhGroup::X25519)?,
                kem: selection::global()
                    .run(Primitive::Decapsulate, |provider| provider.start_decapsulation())
                    .map_err(unavailable)?,
            },
            Shape::Field => Self::Field(fresh_in_field()?),
        })
    }

    /// What the server is sent: the key of ML-KEM, where there is one, and the share of the group.
    pub(crate) fn share(&self) -> Vec<u8> {
        match self {
            Self::Curve { dh, .. } => dh.share().to_vec(),
            Self::Hybrid { dh, kem } => [kem.public(), dh.share()].concat(),
            Self::Field(dh) => number(dh.share()),
        }
    }

    /// The secret, as it goes into hashes: a `mpint` of the group's, or a `string` of the hash over both.
    fn finish(self, theirs: &[u8]) -> Result<Zeroizing<Vec<u8>>, Breach> {
        let refused = |_| Breach::Share;
        let mut encoded = Zeroizing::new(Vec::with_capacity(ENCODED_BYTES));
        match self {
            Self::Curve { group, dh } => {
                strict::check_share(group, theirs).map_err(refused)?;
                let secret = dh.finish(theirs).map_err(|_| Breach::Share)?;
                put_mpint(&mut encoded, secret.as_bytes());
            }
            Self::Hybrid { dh, kem } => {
                let (ciphertext, share) = theirs.split_at_checked(CIPHERTEXT_BYTES).ok_or(Breach::Share)?;
                strict::check_share(DhGroup::X25519, share).map_err(refused)?;
                let secret = dh.finish(share).map_err(|_| Breach::Share)?;
                let quantum_safe = kem.finish(ciphertext).map_err(|_| Breach::Share)?;
                put_both(&mut encoded, quantum_safe.as_bytes(), secret.as_bytes());
            }
            Self::Field(dh) => {
                let secret = dh.finish(magnitude(theirs)?).map_err(|_| Breach::Share)?;
                put_mpint(&mut encoded, secret.as_slice());
            }
        }
        Ok(encoded)
    }
}

/// The content of a positive `mpint`: what stands in place of a share on a curve (RFC 4253 §8).
fn number(magnitude: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(magnitude.len() + 5);
    put_mpint(&mut out, magnitude);
    out.split_off(4)
}

/// The number that the content of a `mpint` is.
///
/// # Errors
/// [`Breach::Share`] where the number is negative, written in more bytes than it needs, or longer than a share.
fn magnitude(content: &[u8]) -> Result<&[u8], Breach> {
    let magnitude = match content {
        [0, rest @ ..] if rest.first().is_some_and(|byte| byte & 0x80 != 0) => rest,
        [first, ..] if *first != 0 && first & 0x80 == 0 => content,
        _ => return Err(Breach::Share),
    };
    Some(magnitude).filter(|magnitude| magnitude.len() <= SHARE_BYTES).ok_or(Breach::Share)
}

/// A positive `mpint` (RFC 4251 §5).
fn put_mpint(out: &mut Vec<u8>, number: &[u8]) {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    let number = number.get(zeros..).unwrap_or_default();
    let sign: &[u8] = if number.first().is_some_and(|byte| byte & 0x80 != 0) { &[0] } else { &[] };
    out.extend_from_slice(&u32::try_from(sign.len() + number.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(sign);
    out.extend_from_slice(number);
}

/// What a host has shown, and has signed the exchange with.
#[derive(Debug, Clone)]
pub struct HostKey {
    /// Its certificate. Who signed it, for whom and for how long is not looked at yet.
    pub certificate: Option<Certificate>,
    /// The key alone.
    pub key: KeyData,
}

impl HostKey {
    /// `SHA256:…` of the key.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        fingerprint(&self.key)
    }

    fn read(blob: &[u8], agreed: &Agreed) -> Result<Self, Breach> {
        let bad = |reason: String| Breach::HostKey(reason);
        let (kind, _, certified) = shape(agreed.host_key);
        // The blob names its type first; it must be the one that was agreed on.
        let mut named = Vec::with_capacity(kind.len() + 4);
        put_string(&mut named, kind.as_bytes());
        if !blob.starts_with(&named) {
            return Err(bad(format!("it is of another type than {}", agreed.host_key)));
        }
        if certified {
            let certificate = read_certificate(blob).map_err(|error| bad(error.to_string()))?;
            let key = certificate.public_key().clone();
            return Ok(Self { certificate: Some(certificate), key });
        }
        let key = PublicKey::from_bytes(blob).map_err(|error| bad(error.to_string()))?;
        Ok(Self { certificate: None, key: key.key_data().clone() })
    }
}

/// What both sides have said before their shares.
pub(crate) struct Said<'a> {
    pub(crate) client_identification: &'a [u8],
    pub(crate) server_identification: &'a [u8],
    pub(crate) client_proposal: &'a [u8],
    pub(crate) server_proposal: &'a [u8],
}

impl Said<'_> {
    /// The exchange hash (RFC 4253 §8, RFC 5656 §4).
    fn digest(
        &self,
        algorithm: HashAlgorithm,
        host_key: &[u8],
        (client_share, server_share): (&[u8], &[u8]),
        secret: &[u8],
    ) -> Digest {
        let mut hashed = Vec::new();
        for part in [
            self.client_identification,
            self.server_identification,
            self.client_proposal,
            self.server_proposal,
            host_key,
            client_share,
            server_share,
        ] {
            put_string(&mut hashed, part);
        }
        Digest::of(algorithm, &[&hashed, secret])
    }
}

/// What comes of an exchange: the hash that is signed, and the secret that keys are derived from.
pub(crate) struct Exchanged {
    pub(crate) digest: Digest,
    algorithm: HashAlgorithm,
    secret: Zeroizing<Vec<u8>>,
}

/// Takes the server's answer. On success, the holder of the private key of the [`HostKey`] has signed this very exchange; whose
/// key that is is not looked at.
pub(crate) fn conclude(
    side: Side,
    agreed: &Agreed,
    said: &Said<'_>,
    (host_key, theirs, signature): (&[u8], &[u8], &[u8]),
) -> Result<(HostKey, Exchanged), Breach> {
    let host = HostKey::read(host_key, agreed)?;
    let (share, algorithm) = (side.share(), agreed.method.hash());
    let secret = side.finish(theirs)?;
    let digest = said.digest(algorithm, host_key, (&share, theirs), &secret);
    // A key of RSA could sign by another hash than was agreed on.
    if !is_signed_by(signature, shape(agreed.host_key).1) {
        return Err(Breach::Signature);
    }
    verify_ssh_signature(&host.key, digest.as_bytes(), signature).map_err(|_| Breach::Signature)?;
    Ok((host, Exchanged { algorithm, digest, secret }))
}

/// Whether a signature names this scheme (RFC 4253 §6.6).
pub(crate) fn is_signed_by(signature: &[u8], scheme: &str) -> bool {
    let mut named = Vec::with_capacity(scheme.len() + 4);
    put_string(&mut named, scheme.as_bytes());
    signature.starts_with(&named)
}

/// A server's answer to a client's share.
pub(crate) struct Answer {
    pub(crate) share: Vec<u8>,
    pub(crate) signature: Vec<u8>,
    pub(crate) exchanged: Exchanged,
}

/// Answers a client's share, and signs the exchange by the host's key.
pub(crate) fn answer(host: &Host, agreed: &Agreed, said: &Said<'_>, theirs: &[u8]) -> Result<Answer, Breach> {
    let (share, secret) = agree(agreed.method, theirs)?;
    let algorithm = agreed.method.hash();
    let digest = said.digest(algorithm, host.shown(agreed.host_key), (theirs, &share), &secret);
    let signature = host.sign(agreed.host_key, digest.as_bytes())?;
    Ok(Answer { share, signature, exchanged: Exchanged { algorithm, digest, secret } })
}

/// The server's half of a method: its share, and the secret as it goes into hashes.
fn agree(method: Method, theirs: &[u8]) -> Result<(Vec<u8>, Zeroizing<Vec<u8>>), Breach> {
    let refused = |_| Breach::Share;
    let mut encoded = Zeroizing::new(Vec::with_capacity(ENCODED_BYTES));
    let ours = match method.shape() {
        Shape::Curve(group) => {
            strict::check_share(group, theirs).map_err(refused)?;
            let dh = fresh(group)?;
            let ours = dh.share().to_vec();
            put_mpint(&mut encoded, dh.finish(theirs).map_err(|_| Breach::Share)?.as_bytes());
            ours
        }
        Shape::Hybrid => {
            let (kem, share) = theirs.split_at_checked(ENCAPSULATION_BYTES).ok_or(Breach::Share)?;
            strict::check_share(DhGroup::X25519, share).map_err(refused)?;
            let dh = fresh(DhGroup::X25519)?;
            let ours = dh.share().to_vec();
            let secret = dh.finish(share).map_err(|_| Breach::Share)?;
            let (ciphertext, quantum_safe) = selection::global()
                .run(Primitive::Encapsulate, |provider| provider.encapsulate(kem))
                .map_err(|_| Breach::Share)?;
            put_both(&mut encoded, quantum_safe.as_bytes(), secret.as_bytes());
            [ciphertext, ours].concat()
        }
        Shape::Field => {
            // Before anything is computed.
            let theirs = magnitude(theirs)?;
            let dh = fresh_in_field()?;
            let ours = number(dh.share());
            put_mpint(&mut encoded, dh.finish(theirs).map_err(|_| Breach::Share)?.as_slice());
            ours
        }
    };
    Ok((ours, encoded))
}

/// The secret of a hybrid: a `string` of the hash over both.
fn put_both(out: &mut Vec<u8>, quantum_safe: &[u8], secret: &[u8]) {
    let mut both = Zeroizing::new([0; hash::SHA256_BYTES]);
    hash::digest(HashAlgorithm::Sha256, &[quantum_safe, secret], both.as_mut_slice());
    put_string(out, both.as_slice());
}

impl Exchanged {
    /// The ciphers to the server and to the client (RFC 4253 §7.2).
    pub(crate) fn ciphers(&self, agreed: &Agreed, session: &Digest) -> Result<(Cipher, Cipher), Breach> {
        let derived = |letter: u8, length: usize| {
            let mut block = Zeroizing::new([0; HashAlgorithm::MAX_BYTES]);
            let digest = |parts: &[&[u8]], block: &mut [u8; HashAlgorithm::MAX_BYTES]| {
                hash::digest(self.algorithm, parts, block);
            };
            let parts: [&[u8]; 4] = [&self.secret, self.digest.as_bytes(), &[letter], session.as_bytes()];
            digest(&parts, &mut block);
            // Room for all of it: where it moves, it leaves a copy.
            let mut key = Zeroizing::new(Vec::with_capacity(length + HashAlgorithm::MAX_BYTES));
            key.extend_from_slice(block.get(..self.algorithm.bytes()).unwrap_or_default());
            while key.len() < length {
                digest(&[&self.secret, self.digest.as_bytes(), &key], &mut block);
                key.extend_from_slice(block.get(..self.algorithm.bytes()).unwrap_or_default());
            }
            key.truncate(length);
            key
        };
        let cipher = |algorithm: AeadAlgorithm, nonce: u8, key: u8| {
            let nonce = derived(nonce, NONCE_BYTES);
            let unfit = || Breach::Unavailable(algorithm.ssh_name().to_owned());
            let nonce = nonce.first_chunk().ok_or_else(unfit)?;
            Cipher::new(algorithm, &derived(key, key_bytes(algorithm)), *nonce)
        };
        Ok((cipher(agreed.to_server, b'A', b'C')?, cipher(agreed.to_client, b'B', b'D')?))
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn numbers_are_written_as_the_rfc_has_them() {
        let of = |number: &[u8]| {
            let mut out = Vec::new();
            put_mpint(&mut out, number);
            out
        };
        // RFC 4251 §5.
        assert_eq!(of(&[]), [0, 0, 0, 0]);
        assert_eq!(of(&[0, 0x80]), [0, 0, 0, 2, 0, 0x80]);
        assert_eq!(of(&[0, 0, 0x7f, 1]), [0, 0, 0, 2, 0x7f, 1]);
    }

    #[test]
    fn numbers_are_read_as_the_rfc_has_them_and_as_nothing_else() {
        for (content, read) in [(&[0, 0x80][..], &[0x80][..]), (&[0x7f, 1], &[0x7f, 1]), (&[1], &[1])] {
            assert_eq!(magnitude(content), Ok(read));
            assert_eq!(number(read), content);
        }
        let most = [&[0][..], &[0xff; SHARE_BYTES]].concat();
        assert_eq!(magnitude(&most), Ok(&most[1..]));
        // Zero, negative, longer than need be, and longer than any share.
        let long = [&[0x7f][..], &[0xff; SHARE_BYTES]].concat();
        for refused in [&[][..], &[0], &[0, 0], &[0, 0x7f], &[0, 0, 0x80], &[0x80], &[0xff, 1], &long] {
            assert_eq!(magnitude(refused), Err(Breach::Share), "{refused:?}");
        }
    }

    /// A share of the group is answered only where it is one.
    #[test]
    fn a_finite_field_has_no_place_for_other_numbers() {
        let least = number(&[2]);
        let (ours, secret) = agree(Method::Group16, &least).unwrap();
        // The secret of a client whose exponent is 1 is the server's share.
        let mut expected = Vec::new();
        put_string(&mut expected, &ours);
        assert_eq!(*secret, expected);
        let mut prime = vec![0xff; SHARE_BYTES];
        for refused in [&[][..], &[0], &[1], &number(&prime)] {
            assert_eq!(agree(Method::Group16, refused).unwrap_err(), Breach::Share);
        }
        prime.push(0xff);
        assert_eq!(agree(Method::Group16, &number(&prime)).unwrap_err(), Breach::Share);
        let side = Side::start(Method::Group16).unwrap();
        assert_eq!(side.finish(&[1]).unwrap_err(), Breach::Share);
    }
}
