//! Clients that come back to one server with the tickets that it has given, and say something before it has answered.
//!
//! Resumption does not verify the server's certificate again, so tickets are kept for as long as that is good. Another
//! login, or another trust, is another client with other tickets.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use sallyport_sal::tls::provider_for;
use sallyport_sal::tls::rustls::client::Resumption;
use sallyport_sal::tls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use sallyport_sal::tls::rustls::{self, ClientConfig, version};
use time::OffsetDateTime;

use super::{Judge, Judged, ServerVerifier, from_unix, identity, protocols, server_refused, unusable};
use crate::{CaError, Trust};

/// Servers that one client's store is for.
const ONE_SERVER: usize = 1;

/// A configuration for one server, with its tickets. Clones share them.
#[derive(Clone)]
pub(super) struct Returning {
    current: Arc<Mutex<Arc<ClientConfig>>>,
    /// Until when the certificates are good that the tickets stand for.
    until: Proven,
}

/// The end of whichever certificate ends first of those that were verified.
type Proven = Arc<Mutex<Option<OffsetDateTime>>>;

impl Returning {
    pub(super) fn new(
        trust: &Trust,
        (chain_pem, key_pem): (&str, &str),
        alpn: &[u8],
        judge: impl Dated + 'static,
    ) -> Result<Self, CaError> {
        let until = Proven::default();
        let verifier = Judged(Noted { judge, until: Arc::clone(&until) });
        let (chain, key) = identity(chain_pem, key_pem)?;
        let mut config = ClientConfig::builder_with_provider(provider_for(trust.suite().key_exchange()))
            .with_protocol_versions(&[&version::TLS13])
            .map_err(unusable)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_auth_cert(chain, key)
            .map_err(unusable)?;
        config.alpn_protocols = protocols(&[alpn]);
        config.enable_early_data = true;
        config.resumption = Resumption::in_memory_sessions(ONE_SERVER);
        Ok(Self { current: Arc::new(Mutex::new(Arc::new(config))), until })
    }

    /// The configuration for a connection now. Tickets of a server whose certificate has ended since are forgotten.
    pub(super) fn config(&self, now: OffsetDateTime) -> Arc<ClientConfig> {
        let mut current = self.current.lock();
        let mut until = self.until.lock();
        if until.is_some_and(|until| now >= until) {
            *until = None;
            let mut fresh = ClientConfig::clone(&current);
            fresh.resumption = Resumption::in_memory_sessions(ONE_SERVER);
            *current = Arc::new(fresh);
        }
        Arc::clone(&current)
    }
}

/// How one member of the cluster comes back to its proxy. Clones share the tickets.
#[derive(Clone)]
pub struct ProxyClient(Returning);

impl ProxyClient {
    /// For the holder of this certificate (chain and key in PEM) and believes this trust.
    ///
    /// # Errors
    /// [`CaError::BadTlsIdentity`] when chain and key cannot be read or do not belong together.
    pub fn new(trust: &Trust, identity_pem: (&str, &str), alpn: &[u8]) -> Result<Self, CaError> {
        Returning::new(trust, identity_pem, alpn, ServerVerifier { trust: trust.clone() }).map(Self)
    }

    /// The configuration for a connection now, to be used with [`crate::server_name`]'s name of proxies. Tickets of a proxy
    /// whose certificate has ended since are forgotten.
    #[must_use]
    pub fn config(&self, now: OffsetDateTime) -> Arc<ClientConfig> {
        self.0.config(now)
    }
}

impl fmt::Debug for ProxyClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyClient").finish_non_exhaustive()
    }
}

/// Who a server is, and until when it is.
pub(super) trait Dated: fmt::Debug + Send + Sync {
    fn until(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        now: OffsetDateTime,
    ) -> Result<OffsetDateTime, CaError>;
}

impl Dated for ServerVerifier {
    fn until(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        now: OffsetDateTime,
    ) -> Result<OffsetDateTime, CaError> {
        let verified = self.trust.identify_server(end_entity, intermediates, server_name, now)?;
        Ok(verified.identity.valid_before)
    }
}

/// Notes how long the servers that were verified are who they are.
#[derive(Debug)]
struct Noted<D> {
    judge: D,
    until: Proven,
}

impl<D: Dated> Judge for Noted<D> {
    fn judge(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        let until = self.judge.until(end_entity, intermediates, server_name, from_unix(now)?);
        let until = until.map_err(server_refused)?;
        // Several servers may have the name: the tickets that are there may be another's.
        let mut known = self.until.lock();
        *known = Some(known.map_or(until, |known| known.min(until)));
        Ok(())
    }
}
