//! What believes every server. A scan looks at servers that no client would trust, and sends them nothing that matters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustls::client::ResolvesClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use sallyport_sal::tls::rustls;

use super::shaken::Shaken;

/// Remembers what a server shows, and finds nothing wrong with it: takes every chain and every signature, and has no
/// certificate of its own.
#[derive(Debug, Default)]
pub(super) struct Witness {
    schemes: Vec<SignatureScheme>,
    shown: Mutex<Shaken>,
    asked: AtomicBool,
}

impl Witness {
    /// One that offers these signature schemes.
    pub(super) fn new(schemes: &[u16]) -> Self {
        Self {
            schemes: schemes.iter().map(|scheme| SignatureScheme::from(*scheme)).collect(),
            ..Self::default()
        }
    }

    /// Before the next handshake.
    pub(super) fn forget(&self) {
        *self.shown.lock() = Shaken::default();
        self.asked.store(false, Ordering::Relaxed);
    }

    /// What there was to see of the last one.
    pub(super) fn shown(&self) -> Shaken {
        let shown = self.shown.lock().clone();
        Shaken { asked: self.asked.load(Ordering::Relaxed), ..shown }
    }

    fn signed(&self, signed: &DigitallySignedStruct) -> HandshakeSignatureValid {
        self.shown.lock().scheme = Some(u16::from(signed.scheme));
        HandshakeSignatureValid::assertion()
    }
}

impl ServerCertVerifier for Witness {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        stapled: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let mut shown = self.shown.lock();
        shown.chain = std::iter::once(leaf).chain(others).map(|one| one.to_vec()).collect();
        shown.stapled = !stapled.is_empty();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(self.signed(signed))
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(self.signed(signed))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

impl ResolvesClientCert for Witness {
    fn resolve(
        &self,
        _hints: &[&[u8]],
        _schemes: &[SignatureScheme],
    ) -> Option<Arc<rustls::sign::CertifiedKey>> {
        self.asked.store(true, Ordering::Relaxed);
        None
    }

    fn has_certs(&self) -> bool {
        // Without any, rustls does not ask.
        true
    }
}
