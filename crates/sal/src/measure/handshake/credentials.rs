//! Keys, certificates and configurations to shake hands with.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::cipher_suite as suites;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

use super::{LONGEST_CHAIN, Version};
use crate::algorithm::{KexGroup, KeyAlgorithm};
use crate::measure::certificate::{self, Role};
use crate::measure::danger::{plain_rsa, published_key};
use crate::{SalError, Selection, Signer, formats, tls};

/// What both sides of a handshake are composed of.
///
/// # Errors
/// As [`tls::compose`].
pub fn provider(
    selection: &'static Selection,
    version: Version,
    key: KeyAlgorithm,
    groups: &[KexGroup],
) -> Result<Arc<CryptoProvider>, SalError> {
    let composed = tls::compose(selection, groups)?;
    if version == Version::Tls13 && key != KeyAlgorithm::Rsa1024 {
        return Ok(composed);
    }
    let mut provider = (*composed).clone();
    if version == Version::Tls12 {
        provider.cipher_suites = vec![
            suites::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            suites::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        ];
    }
    if key == KeyAlgorithm::Rsa1024 {
        provider.signature_verification_algorithms = plain_rsa::verification();
    }
    Ok(Arc::new(provider))
}

/// Keys and certificates of a server, a client and the authorities above them.
#[derive(Debug)]
pub struct Credentials {
    pub(super) roots: Arc<RootCertStore>,
    pub(super) server: Identity,
    pub(super) client: Identity,
}

/// One side's key, and its certificates up to the root.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) key: Arc<dyn Signer>,
    /// For providers that load keys themselves; none for sizes that they would not.
    pkcs8: Option<PrivatePkcs8KeyDer<'static>>,
    pub(super) chain: Vec<CertificateDer<'static>>,
}

impl Credentials {
    /// One authority, the root, and a certificate for each side. RSA keys are published ones, the same for all, because
    /// making one takes longer than the measurement.
    ///
    /// # Errors
    /// [`SalError`] when there is no source for such keys.
    pub fn new(selection: &'static Selection, algorithm: KeyAlgorithm) -> Result<Self, SalError> {
        Self::with_chain(selection, algorithm, 1)
    }

    /// The same with so many certificates to send: authorities between the root and the sides from the second on.
    ///
    /// # Errors
    /// As [`Credentials::new`].
    pub fn with_chain(
        selection: &'static Selection,
        algorithm: KeyAlgorithm,
        length: usize,
    ) -> Result<Self, SalError> {
        let make = || key(selection, algorithm);
        let (root, _) = make()?;
        let der = certificate::issue(&root.public_key(), 1, Role::Authority, &*root, 1)?;
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from(der))
            .map_err(|_| SalError::Provider { operation: "read a certificate" })?;
        let (mut issuer, mut number, mut above) = (root, 1, Vec::new());
        for _ in 1..length.clamp(1, LONGEST_CHAIN) {
            let (next, _) = make()?;
            let der = certificate::issue(&next.public_key(), number + 1, Role::Authority, &*issuer, number)?;
            (issuer, number) = (next, number + 1);
            // The one that issued the next stands before it.
            above.insert(0, CertificateDer::from(der));
        }
        let side = |subject: u8| -> Result<_, SalError> {
            let (key, pkcs8) = make()?;
            let der = certificate::issue(&key.public_key(), subject, Role::Leaf, &*issuer, number)?;
            let chain = std::iter::once(CertificateDer::from(der)).chain(above.iter().cloned()).collect();
            Ok(Identity { key, pkcs8, chain })
        };
        Ok(Self { server: side(101)?, client: side(102)?, roots: Arc::new(roots) })
    }
}

/// A key to measure with, and its PKCS#8 where that can be read again.
fn key(
    selection: &'static Selection,
    algorithm: KeyAlgorithm,
) -> Result<(Arc<dyn Signer>, Option<PrivatePkcs8KeyDer<'static>>), SalError> {
    if algorithm == KeyAlgorithm::Rsa1024 {
        return Ok((plain_rsa::signer()?, None));
    }
    let key = published_key(selection, algorithm)?;
    let pkcs8 = (algorithm != KeyAlgorithm::Rsa8192)
        .then(|| PrivatePkcs8KeyDer::from(formats::pkcs8::encode(key.material()).to_vec()));
    Ok((Arc::new(key), pkcs8))
}

impl Identity {
    pub(super) fn certified(&self, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, rustls::Error> {
        let key = match &self.pkcs8 {
            Some(der) => provider.key_provider.load_private_key(der.clone_key().into())?,
            None => tls::signing_key(Arc::clone(&self.key)),
        };
        Ok(Arc::new(CertifiedKey::new(self.chain.clone(), key)))
    }
}
