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

use x509_parser::signature_algorithm::RsaSsaPssParams;
use x509_parser::x509::AlgorithmIdentifier;

use super::{identity, unusable};
use crate::{CaError, x509};

/// The hash that the channel binding takes for a certificate, by the object identifier of the algorithm that it is signed with
/// (RFC 3279, RFC 4055, RFC 5758), or of the hash in the parameters of RSA-PSS (RFC 4055 §2.1): the algorithm's own, or SHA-256 in
/// the place of MD5 and SHA-1 (RFC 5929 §4.1). What has no single hash of its own, such as Ed25519 and ML-DSA, is not here.
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
    ("1.3.14.3.2.26", HashAlgorithm::Sha256),
    ("2.16.840.1.101.3.4.2.1", HashAlgorithm::Sha256),
    ("2.16.840.1.101.3.4.2.2", HashAlgorithm::Sha384),
    ("2.16.840.1.101.3.4.2.3", HashAlgorithm::Sha512),
];

/// `id-RSASSA-PSS` (RFC 4055 §3.1).
const RSA_PSS: &str = "1.2.840.113549.1.1.10";

/// The channel binding `tls-server-end-point` of a connection to the server with this certificate (DER; RFC 5929 §4): its hash. None
/// where the binding is not defined for it, which is so for signatures without a hash of their own.
#[must_use]
pub fn server_end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let parsed = x509::parse(certificate).ok()?;
    let algorithm = end_point_hash(&parsed.signature_algorithm)?;
    let mut digest = vec![0; algorithm.bytes()];
    hash::digest(algorithm, &[certificate], &mut digest);
    Some(digest)
}

fn end_point_hash(signed_with: &AlgorithmIdentifier<'_>) -> Option<HashAlgorithm> {
    let mut oid = signed_with.algorithm.to_id_string();
    if oid == RSA_PSS {
        let parameters = RsaSsaPssParams::try_from(signed_with.parameters.as_ref()?).ok()?;
        oid = parameters.hash_algorithm_oid().to_id_string();
    }
    END_POINT_HASHES.iter().find(|(known, _)| *known == oid).map(|(_, algorithm)| *algorithm)
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

#[cfg(test)]
mod tests {
    use x509_parser::der_parser::Oid;

    use super::*;

    /// RFC 5929 §4.1, by the algorithms' numbers in RFC 3279 §2.2, RFC 4055 §5, RFC 5758 §3 and RFC 8410 §3.
    #[test]
    fn each_algorithm_of_signatures_has_the_hash_of_its_own_and_no_weak_one() {
        for (arcs, name, expected) in [
            (&[1, 2, 840, 113_549, 1, 1, 4][..], "md5WithRSAEncryption", Some(HashAlgorithm::Sha256)),
            (&[1, 2, 840, 113_549, 1, 1, 5], "sha1WithRSAEncryption", Some(HashAlgorithm::Sha256)),
            (&[1, 2, 840, 113_549, 1, 1, 11], "sha256WithRSAEncryption", Some(HashAlgorithm::Sha256)),
            (&[1, 2, 840, 113_549, 1, 1, 12], "sha384WithRSAEncryption", Some(HashAlgorithm::Sha384)),
            (&[1, 2, 840, 113_549, 1, 1, 13], "sha512WithRSAEncryption", Some(HashAlgorithm::Sha512)),
            (&[1, 2, 840, 10045, 4, 1], "ecdsa-with-SHA1", Some(HashAlgorithm::Sha256)),
            (&[1, 2, 840, 10045, 4, 3, 2], "ecdsa-with-SHA256", Some(HashAlgorithm::Sha256)),
            (&[1, 2, 840, 10045, 4, 3, 3], "ecdsa-with-SHA384", Some(HashAlgorithm::Sha384)),
            (&[1, 2, 840, 10045, 4, 3, 4], "ecdsa-with-SHA512", Some(HashAlgorithm::Sha512)),
            (&[1, 2, 840, 113_549, 1, 1, 2], "md2WithRSAEncryption", None),
            (&[1, 2, 840, 113_549, 1, 1, 14], "sha224WithRSAEncryption", None),
            (&[1, 2, 840, 10045, 4, 3, 1], "ecdsa-with-SHA224", None),
            // With parameters that are not there.
            (&[1, 2, 840, 113_549, 1, 1, 10], "RSASSA-PSS", None),
            (&[1, 3, 101, 112], "Ed25519", None),
            (&[1, 3, 101, 113], "Ed448", None),
            (&[2, 16, 840, 1, 101, 3, 4, 3, 18], "ML-DSA-65", None),
        ] {
            let algorithm = AlgorithmIdentifier::new(Oid::from(arcs).unwrap(), None);
            assert_eq!(end_point_hash(&algorithm), expected, "{name}");
        }
    }
}
