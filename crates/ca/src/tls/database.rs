//! What an agent connects to a database server with.
//!
//! Database servers are others' programs: their certificates are judged as those of any server are, by a list of CAs and
//! by the name that was dialled, and no identity of the cluster is expected in them.

use std::sync::Arc;

use sallyport_sal::algorithm::HashAlgorithm;
use sallyport_sal::hash;
use sallyport_sal::tls::provider;
use sallyport_sal::tls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use sallyport_sal::tls::rustls::client::{Resumption, WebPkiServerVerifier};
use sallyport_sal::tls::rustls::pki_types::pem::{self, PemObject};
use sallyport_sal::tls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use sallyport_sal::tls::rustls::{
    self, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme, version,
};

use super::{identity, unusable};
use crate::{CaError, x509};

/// Object identifiers of signature algorithms (RFC 3279, RFC 4055, RFC 5758), with the hash that the channel binding takes for
/// them: their own, or SHA-256 in the place of MD5 and SHA-1 (RFC 5929 §4.1). Those that have none, such as Ed25519, and RSA-PSS, which has it in
/// its parameters, are not here.
const END_POINT_HASHES: &[(&str, HashAlgorithm)] = &[
    ("1.2.840.113549.1.1.4", HashAlgorithm::Sha256),
    ("1.2.840.113549.1.1.5", HashAlgorithm::Sha256),
    ("1.2.840.113549.1.1.11", HashAlgorithm::Sha256),
    ("1.2.840.113549.1.1.12", HashAlgorithm::Sha384),
    ("1.2.840.113549.1.1.13", HashAlgorithm::Sha512),
    ("1.2.840.10045.4.1", HashAlgorithm::Sha256),
    ("1.2.840.10045.4.3.2", HashAlgorithm::Sha256),
    ("1.2.840.10045.4.3.3", HashAlgorithm::Sha384),
    ("1.2.840.10045.4.3.4", HashAlgorithm::Sha512),
];

/// The channel binding `tls-server-end-point` of a connection to the server with this certificate (DER; RFC 5929 §4): its hash. None
/// where the binding is not defined for it, which is so for signatures without a hash of their own.
#[must_use]
pub fn server_end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let oid = x509::parse(certificate).ok()?.signature_algorithm.algorithm.to_id_string();
    let (_, algorithm) = END_POINT_HASHES.iter().find(|(known, _)| *known == oid)?;
    let mut digest = vec![0; algorithm.bytes()];
    hash::digest(*algorithm, &[certificate], &mut digest);
    Some(digest)
}

/// What of a database server's certificate must be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerCheck {
    /// Who signed it, and the name that is dialled (`verify-full` of libpq).
    Full,
    /// Who signed it (`verify-ca` of libpq).
    SignedBy,
}

/// The configuration towards one database server: trusts the CAs in `roots_pem`, and shows a certificate when it has one
/// (chain and key in PEM).
///
/// # Errors
/// [`CaError::BadTlsIdentity`] when `roots_pem` has no certificate that can be a CA, or chain and key cannot be read or do
/// not belong together.
pub fn database_client_config(
    check: ServerCheck,
    roots_pem: &str,
    identity_pem: Option<(&str, &str)>,
) -> Result<ClientConfig, CaError> {
    let wrong = |reason: pem::Error| CaError::BadTlsIdentity { reason: reason.to_string() };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(roots_pem.as_bytes()) {
        roots.add(certificate.map_err(wrong)?).map_err(unusable)?;
    }
    if roots.is_empty() {
        let reason = "there is no certificate of a CA by which the database's is verified".to_owned();
        return Err(CaError::BadTlsIdentity { reason });
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build();
    let verifier = verifier.map_err(|error| CaError::BadTlsIdentity { reason: error.to_string() })?;
    match check {
        ServerCheck::Full => with_verifier(verifier, identity_pem),
        ServerCheck::SignedBy => with_verifier(Arc::new(AnyName(verifier)), identity_pem),
    }
}

pub(super) fn with_verifier(
    verifier: Arc<dyn ServerCertVerifier>,
    identity_pem: Option<(&str, &str)>,
) -> Result<ClientConfig, CaError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])
        .map_err(unusable)?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match identity_pem {
        Some((chain_pem, key_pem)) => {
            let (chain, key) = identity(chain_pem, key_pem)?;
            builder.with_client_auth_cert(chain, key).map_err(unusable)?
        }
        None => builder.with_no_client_auth(),
    };
    // PostgreSQL gives no tickets.
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Takes every name of a server that a trusted CA has certified.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use rustls::Error::InvalidCertificate;
        // The name is looked at after everything else.
        match self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
