//! One key exchange (RFC 5656 §4, RFC 8731, draft-ietf-sshm-mlkem-hybrid-kex) and the keys that come of it.

use sallyport_ca::keys::{fingerprint, read_certificate, verify_ssh_signature};
use sallyport_sal::algorithm::{AeadAlgorithm, HashAlgorithm};
use sallyport_sal::provider::{Agreement, Decapsulation};
use sallyport_sal::selection::RunError;
use sallyport_sal::{Primitive, hash, selection, strict};
use ssh_key::public::KeyData;
use ssh_key::{Certificate, PublicKey};
use zeroize::Zeroizing;

use super::Breach;
use super::host::Host;
use super::message::put_string;
use super::packet::Cipher;
use super::proposal::{Agreed, Method, shape};

/// Length of a ciphertext of ML-KEM-768, in bytes (FIPS 203 table 3).
const CIPHERTEXT_BYTES: usize = 1088;
/// Length of an encapsulation key of ML-KEM-768, in bytes.
const ENCAPSULATION_BYTES: usize = 1184;

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
pub(crate) struct Side {
    method: Method,
    dh: Box<dyn Agreement>,
    kem: Option<Box<dyn Decapsulation>>,
}

impl Side {
    pub(crate) fn start(method: Method) -> Result<Self, Breach> {
        let unavailable = |error: RunError| Breach::Unavailable(format!("{error:?}"));
        let group = method.group();
        let dh = selection::global()
            .run(Primitive::Agree(group), |provider| provider.start_agreement(group))
            .map_err(unavailable)?;
        let kem = match method {
            Method::Curve | Method::P256 | Method::P384 => None,
            Method::Hybrid => Some(
                selection::global()
                    .run(Primitive::Decapsulate, |provider| provider.start_decapsulation())
                    .map_err(unavailable)?,
            ),
        };
        Ok(Self { method, dh, kem })
    }

    /// What the server is sent: the key of ML-KEM, where there is one, and the share of the group.
    pub(crate) fn share(&self) -> Vec<u8> {
        let kem = self.kem.as_ref().map(|kem| kem.public()).unwrap_or_default();
        [kem, self.dh.share()].concat()
    }

    /// The secret, as it goes into hashes: a `mpint` of the group's, or a `string` of the hash over both.
    fn finish(self, theirs: &[u8]) -> Result<Zeroizing<Vec<u8>>, Breach> {
        let refused = |_| Breach::Share;
        let ciphertext = if self.kem.is_some() { CIPHERTEXT_BYTES } else { 0 };
        let (ciphertext, share) = theirs.split_at_checked(ciphertext).ok_or(Breach::Share)?;
        strict::check_share(self.method.group(), share).map_err(refused)?;
        let secret = self.dh.finish(share).map_err(|_| Breach::Share)?;
        let mut encoded = Zeroizing::new(Vec::with_capacity(64));
        match self.kem {
            None => put_mpint(&mut encoded, secret.as_bytes()),
            Some(kem) => {
                let quantum_safe = kem.finish(ciphertext).map_err(|_| Breach::Share)?;
                put_both(&mut encoded, quantum_safe.as_bytes(), secret.as_bytes());
            }
        }
        Ok(encoded)
    }
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
    let (share, algorithm) = (side.share(), side.method.hash());
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
    let group = method.group();
    let length = if method == Method::Hybrid { ENCAPSULATION_BYTES } else { 0 };
    let (kem, share) = theirs.split_at_checked(length).ok_or(Breach::Share)?;
    strict::check_share(group, share).map_err(|_| Breach::Share)?;
    let unavailable = |error: RunError| Breach::Unavailable(format!("{error:?}"));
    let dh = selection::global()
        .run(Primitive::Agree(group), |provider| provider.start_agreement(group))
        .map_err(unavailable)?;
    let ours = dh.share().to_vec();
    let secret = dh.finish(share).map_err(|_| Breach::Share)?;
    let mut encoded = Zeroizing::new(Vec::with_capacity(64));
    if method != Method::Hybrid {
        put_mpint(&mut encoded, secret.as_bytes());
        return Ok((ours, encoded));
    }
    let (ciphertext, quantum_safe) = selection::global()
        .run(Primitive::Encapsulate, |provider| provider.encapsulate(kem))
        .map_err(|_| Breach::Share)?;
    put_both(&mut encoded, quantum_safe.as_bytes(), secret.as_bytes());
    Ok(([ciphertext, ours].concat(), encoded))
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
        let derived = |letter: u8| {
            let mut key = Zeroizing::new([0; HashAlgorithm::MAX_BYTES]);
            let parts: [&[u8]; 4] = [&self.secret, self.digest.as_bytes(), &[letter], session.as_bytes()];
            hash::digest(self.algorithm, &parts, key.as_mut_slice());
            key
        };
        let cipher = |algorithm: AeadAlgorithm, nonce: u8, key: u8| {
            let (nonce, key) = (derived(nonce), derived(key));
            let unfit = || Breach::Unavailable(algorithm.ssh_name().to_owned());
            let nonce = nonce.first_chunk().ok_or_else(unfit)?;
            // No key here is longer than one digest.
            let key = key.get(..algorithm.key_bytes()).ok_or_else(unfit)?;
            Cipher::new(algorithm, key, *nonce)
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
}
