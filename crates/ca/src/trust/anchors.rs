//! Public keys of authorities as they are read, and what verifies by them.

use std::collections::BTreeMap;
use std::sync::Arc;

use sallyport_sal::formats::jwk;
use sallyport_sal::tls::rustls::RootCertStore;
use sallyport_sal::tls::rustls::client::WebPkiServerVerifier;
use sallyport_sal::tls::rustls::pki_types::CertificateDer;
use sallyport_sal::tls::rustls::pki_types::pem::PemObject;
use sallyport_sal::tls::rustls::server::WebPkiClientVerifier;
use sallyport_sal::tls::rustls::server::danger::ClientCertVerifier;
use sallyport_sal::{PublicKey, tls};
use ssh_key::public::KeyData;

use super::PublicKeys;
use crate::x509::CaCertificate;
use crate::{CaError, CaKind, ssh};

/// The key of an SSH certificate authority.
pub(super) struct SshCa {
    pub(super) line: String,
    pub(super) data: KeyData,
    pub(super) key: PublicKey,
}

pub(super) fn parse_ssh(field: &'static str, lines: &[String]) -> Result<Vec<SshCa>, CaError> {
    let bad = |reason: String| CaError::BadTrust { field, reason };
    if lines.is_empty() {
        return Err(bad("it is empty".to_owned()));
    }
    lines
        .iter()
        .map(|line| {
            let parsed =
                ssh_key::PublicKey::from_openssh(line.trim()).map_err(|error| bad(error.to_string()))?;
            let key = ssh::public_key(parsed.key_data()).map_err(|error| bad(error.to_string()))?;
            Ok(SshCa { line: line.trim().to_owned(), data: parsed.key_data().clone(), key })
        })
        .collect()
}

pub(super) fn parse_certificates(
    field: &'static str,
    pems: &[String],
) -> Result<Vec<CaCertificate>, CaError> {
    let bad = |reason: String| CaError::BadTrust { field, reason };
    if pems.is_empty() {
        return Err(bad("it is empty".to_owned()));
    }
    pems.iter()
        .map(|pem| {
            let der =
                CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| bad(error.to_string()))?;
            CaCertificate::parse(&der).map_err(|error| bad(error.to_string()))
        })
        .collect()
}

/// The keys of the other CAs: read, so that a damaged one is found here and not by the caller that needs it.
pub(super) fn check_others(
    others: &BTreeMap<CaKind, PublicKeys>,
) -> Result<BTreeMap<CaKind, PublicKeys>, CaError> {
    for keys in others.values() {
        if !keys.ssh.is_empty() {
            parse_ssh("others", &keys.ssh)?;
        }
        if !keys.tls.is_empty() {
            parse_certificates("others", &keys.tls)?;
        }
        for key in &keys.jwt {
            jwk::decode_public(key.as_bytes())
                .map_err(|error| CaError::BadTrust { field: "others", reason: error.to_string() })?;
        }
    }
    Ok(others.clone())
}

pub(super) fn roots(field: &'static str, cas: &[CaCertificate]) -> Result<Arc<RootCertStore>, CaError> {
    let mut store = RootCertStore::empty();
    for ca in cas {
        store
            .add(CertificateDer::from(ca.der.as_slice()))
            .map_err(|error| CaError::BadTrust { field, reason: error.to_string() })?;
    }
    Ok(Arc::new(store))
}

pub(super) fn client_verifier(
    field: &'static str,
    roots: Arc<RootCertStore>,
) -> Result<Arc<dyn ClientCertVerifier>, CaError> {
    WebPkiClientVerifier::builder_with_provider(roots, tls::provider())
        .build()
        .map_err(|error| CaError::BadTrust { field, reason: error.to_string() })
}

pub(super) fn server_verifier(roots: Arc<RootCertStore>) -> Result<Arc<WebPkiServerVerifier>, CaError> {
    WebPkiServerVerifier::builder_with_provider(roots, tls::provider())
        .build()
        .map_err(|error| CaError::BadTrust { field: "host_tls_certificates", reason: error.to_string() })
}
