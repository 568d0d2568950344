//! What takes the certificates of every server, to look at them. No handshake goes on after that.

use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use sallyport_sal::tls::rustls;

/// Certificates in DER, the server's own first.
pub(super) type Chain = Vec<Vec<u8>>;

/// Takes whatever chain is shown, looks at none of it, and ends the handshake there.
#[derive(Debug)]
pub(super) struct Capture {
    schemes: Vec<SignatureScheme>,
    chain: Mutex<Option<Chain>>,
}

impl Capture {
    /// One that offers these signature schemes.
    pub(super) const fn new(schemes: Vec<SignatureScheme>) -> Self {
        Self { schemes, chain: Mutex::new(None) }
    }

    /// What was shown, once.
    pub(super) fn chain(&self) -> Option<Chain> {
        self.chain.lock().take()
    }
}

impl ServerCertVerifier for Capture {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.chain.lock() = Some(std::iter::once(leaf).chain(rest).map(|der| der.to_vec()).collect());
        // No server is trusted: no byte goes to this server in a handshake that would be done.
        Err(rustls::Error::General("seen".to_owned()))
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("never asked".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("never asked".to_owned()))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}
