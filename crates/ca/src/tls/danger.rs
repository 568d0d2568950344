//! First contact without a pin. Nothing here protects against an attacker in between.

use std::fmt;
use std::sync::{Arc, OnceLock};

use sallyport_sal::tls::provider;
use sallyport_sal::tls::rustls::client::Resumption;
use sallyport_sal::tls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use sallyport_sal::tls::rustls::{self, ClientConfig, version};

use super::{Judge, Judged, protocols, unusable};
use crate::CaError;
use crate::x509::CaCertificate;

/// What an unverified server showed.
#[derive(Clone, Default)]
pub struct Seen(Arc<OnceLock<Vec<CertificateDer<'static>>>>);

impl Seen {
    /// The pin of the CA in the chain, once a handshake has happened. None when there was none, or when the chain has
    /// no CA certificate, as with any server that is not a Sallyport cluster.
    ///
    /// Show it to a person, or compare it with what another channel says; then connect again with
    /// [`pinned_client_config`](super::pinned_client_config), which verifies. Never send a secret over the unverified
    /// connection.
    #[must_use]
    pub fn pin(&self) -> Option<String> {
        let chain = self.0.get()?;
        chain.iter().skip(1).find_map(|der| CaCertificate::parse(der).ok()).map(|ca| ca.pin())
    }
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seen").field("pin", &self.pin()).finish()
    }
}

/// A configuration that believes any server, and remembers the chain of the first.
///
/// # Errors
/// [`CaError::BadTlsIdentity`] when the provider has no TLS 1.3, which ours has.
pub fn unverified_client_config(alpn: &[&[u8]]) -> Result<(ClientConfig, Seen), CaError> {
    let seen = Seen::default();
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])
        .map_err(unusable)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Judged(AnyServer { seen: seen.clone() })))
        .with_no_client_auth();
    config.alpn_protocols = protocols(alpn);
    config.resumption = Resumption::disabled();
    Ok((config, seen))
}

/// A configuration towards a database server that believes whatever answers. A machine in between reads and changes
/// everything; the certificate that is shown (chain and key in PEM) proves the agent to them, not to the database.
///
/// # Errors
/// [`CaError::BadTlsIdentity`] when chain and key cannot be read or do not belong together.
pub fn unverified_database_config(identity_pem: Option<(&str, &str)>) -> Result<ClientConfig, CaError> {
    super::database::with_verifier(Arc::new(Judged(AnyServer { seen: Seen::default() })), identity_pem)
}

#[derive(Debug)]
struct AnyServer {
    seen: Seen,
}

impl Judge for AnyServer {
    fn judge(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _now: UnixTime,
    ) -> Result<(), rustls::Error> {
        let chain =
            std::iter::once(end_entity).chain(intermediates).map(|der| der.clone().into_owned()).collect();
        // Only the first chain counts; a second connection over this configuration changes nothing.
        let _ = self.seen.0.set(chain);
        Ok(())
    }
}
