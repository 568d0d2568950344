//! What a service of the cluster calls others' HTTPS servers with: judged by a list of CAs and the name that was dialled.

use std::sync::Arc;

use sallyport_sal::tls::provider;
use sallyport_sal::tls::rustls::client::WebPkiServerVerifier;
use sallyport_sal::tls::rustls::pki_types::CertificateDer;
use sallyport_sal::tls::rustls::pki_types::pem::{self, PemObject};
use sallyport_sal::tls::rustls::{ClientConfig, RootCertStore};

use super::database::with_verifier;
use crate::CaError;

/// The configuration towards a server of others that speaks HTTP/1.1: it must have a certificate for the name that is dialled, of a CA
/// in `roots_pem`. CAs of a kind that is not known here, as a system's list may have some, are passed over.
///
/// # Errors
/// [`CaError::BadTlsIdentity`] when `roots_pem` is no PEM or has no certificate that can be a CA.
pub fn outside_client_config(roots_pem: &[u8]) -> Result<ClientConfig, CaError> {
    let wrong = |reason: String| CaError::BadTlsIdentity { reason };
    let roots: Result<Vec<CertificateDer<'static>>, pem::Error> =
        CertificateDer::pem_slice_iter(roots_pem).collect();
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(roots.map_err(|error| wrong(error.to_string()))?);
    if store.is_empty() {
        return Err(wrong("there is no certificate of a CA in it".to_owned()));
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider()).build();
    let mut config = with_verifier(verifier.map_err(|error| wrong(error.to_string()))?, None)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
