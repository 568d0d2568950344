//! TLS settings of a listener, made again only when the certificate or the trust behind them changed.

use std::sync::Arc;

use parking_lot::Mutex;
use sallyport_access::{Identity, Lock};
use sallyport_ca::Trust;
use sallyport_ca::tls::page::show_to_others;
use sallyport_ca::tls::{ClientAuth, Tickets, with_early_data};
use sallyport_wire::alpn;
use sallyport_wire::carrier::ServerSettings;
use time::OffsetDateTime;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

use crate::ServerError;
use crate::member::host::{Credentials, HostIdentity, certificates};
use crate::proxy::PublicPage;

/// What a TLS connection is accepted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// gRPC and HTTPS; a certificate is welcome.
    Http,
    /// An agent's tunnel.
    Tunnel,
    /// A proxy's relay.
    Relay,
    /// A database client; one without a certificate is told what it lacks in its own protocol.
    Postgres,
}

#[derive(Debug)]
struct Built {
    identity: Arc<HostIdentity>,
    trust: Arc<Trust>,
    page_version: u64,
    http: Arc<ServerConfig>,
    tunnel: Arc<ServerConfig>,
    relay: Arc<ServerConfig>,
    postgres: Arc<ServerConfig>,
    /// Made when the first client connects by QUIC.
    quic: Option<Quic>,
}

/// What a QUIC connection is accepted with.
#[derive(Debug, Clone)]
pub(crate) struct Quic {
    pub(crate) settings: ServerSettings,
    /// Worth nothing after another certificate, trust, suite or lock: then each client proves everything again.
    pub(crate) tickets: Arc<Tickets>,
    locks: Arc<[Lock]>,
}

/// The settings in force.
#[derive(Debug)]
pub(crate) struct TlsSettings {
    credentials: Credentials,
    /// What others than the cluster's own programs are shown.
    page: Option<Arc<PublicPage>>,
    built: Mutex<Option<Built>>,
}

impl TlsSettings {
    pub(crate) fn new(credentials: Credentials) -> Self {
        Self { credentials, page: None, built: Mutex::new(None) }
    }

    /// The settings of a listener that others come to as well.
    pub(crate) fn with_page(credentials: Credentials, page: Arc<PublicPage>) -> Self {
        Self { page: Some(page), ..Self::new(credentials) }
    }

    /// The settings for one connection.
    pub(crate) fn current(
        &self,
        trust: &Arc<Trust>,
        purpose: Purpose,
    ) -> Result<Arc<ServerConfig>, ServerError> {
        let mut built = self.built.lock();
        let built = self.up_to_date(&mut built, trust)?;
        Ok(Arc::clone(match purpose {
            Purpose::Http => &built.http,
            Purpose::Tunnel => &built.tunnel,
            Purpose::Relay => &built.relay,
            Purpose::Postgres => &built.postgres,
        }))
    }

    /// The settings for one QUIC connection, of a member of the cluster: the suite says how keys are agreed on, and a
    /// certificate is required. Who was here before may come with a ticket in place of a proof, as long as trust and locks are
    /// what they were then.
    pub(crate) fn quic(&self, trust: &Arc<Trust>, locks: &Arc<[Lock]>) -> Result<Quic, ServerError> {
        let mut built = self.built.lock();
        let built = self.up_to_date(&mut built, trust)?;
        if let Some(quic) = &built.quic {
            if Arc::ptr_eq(&quic.locks, locks) {
                return Ok(quic.clone());
            }
            let (settings, locks) = (quic.settings.clone(), Arc::clone(locks));
            return Ok(built.quic.insert(Quic { settings, tickets: Arc::default(), locks }).clone());
        }
        let protocols = [alpn::H2_BY_QUIC, alpn::TUNNEL];
        let mut config =
            Arc::unwrap_or_clone(self.credentials.server(trust, &protocols, ClientAuth::Required)?);
        with_early_data(&mut config);
        let settings = ServerSettings::new(Arc::new(config))
            .map_err(|error| certificates("cannot serve QUIC", error))?;
        let quic = Quic { settings, tickets: Arc::default(), locks: Arc::clone(locks) };
        Ok(built.quic.insert(quic).clone())
    }

    fn up_to_date<'a>(
        &self,
        built: &'a mut Option<Built>,
        trust: &Arc<Trust>,
    ) -> Result<&'a mut Built, ServerError> {
        let identity = self.credentials.identity();
        let page_version = self.page.as_ref().map_or(0, |page| page.version());
        let fresh = match built.as_ref() {
            Some(old) => {
                !old.identity.is_alike(&identity)
                    || !Arc::ptr_eq(&old.trust, trust)
                    || old.page_version != page_version
            }
            None => true,
        };
        if fresh {
            let make = |alpn: &[&[u8]], clients| self.credentials.server(trust, alpn, clients);
            // Browsers read pages here; a member of the cluster is held to its suite after the handshake.
            let http = self.credentials.public_server(trust, &[alpn::H2, alpn::HTTP11], ClientAuth::Optional);
            let mut http = http?;
            if let Some(page) = &self.page
                && let Some(page) = page.certificate(&identity.tls_chain, OffsetDateTime::now_utc())?
            {
                // Just made: no other owner yet.
                if let Some(http) = Arc::get_mut(&mut http) {
                    show_to_others(http, &identity.cluster, &page);
                }
            }
            let postgres = self.credentials.public_server(trust, &[alpn::POSTGRESQL], ClientAuth::Optional);
            let mut postgres = postgres?;
            if let Some(page) = &self.page
                && let Some(page) = page.stand_in(&identity.tls_chain, OffsetDateTime::now_utc())?
                && let Some(postgres) = Arc::get_mut(&mut postgres)
            {
                show_to_others(postgres, &identity.cluster, &page);
            }
            *built = Some(Built {
                identity,
                trust: Arc::clone(trust),
                page_version,
                http,
                tunnel: make(&[alpn::TUNNEL], ClientAuth::Required)?,
                relay: make(&[alpn::RELAY], ClientAuth::Required)?,
                postgres,
                quic: None,
            });
        }
        built.as_mut().ok_or(ServerError::Stopped("the TLS settings"))
    }
}

/// Whom the far end's certificate proves; `None` when it showed none.
pub(crate) fn proven<T>(
    stream: &TlsStream<T>,
    trust: &Trust,
    now: OffsetDateTime,
) -> Result<Option<Identity>, sallyport_ca::CaError> {
    let (_, connection) = stream.get_ref();
    match connection.peer_certificates() {
        Some(chain) => trust.identify_peer(chain, now).map(Some),
        None => Ok(None),
    }
}
