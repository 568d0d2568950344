//! What the authority presents on its own connections.

use sallyport_access::{HostId, HostRole, NodeName};
use sallyport_audit::{Code, Event};
use sallyport_ca::keys::TlsKey;
use sallyport_ca::{CaKind, CertificateKind, HostRequest, Issued, issue_host_tls, tls};
use sallyport_sal::KeyPurpose;
use sallyport_wire::alpn;
use time::OffsetDateTime;
use tokio_rustls::rustls::ServerConfig;
use uuid::Uuid;

use crate::ServerError;
use crate::authority::config::AuthConfig;
use crate::authority::errors::doing;
use crate::authority::issuance::authorities::Authorities;
use crate::authority::issuance::issued::with_certificates;

/// Lifetime of the authority's own certificate, within the bounds of every host's; renewed at every start and every day.
const OWN_TTL: time::Duration = time::Duration::days(30);

/// The authority's own TLS: a fresh key and a certificate from its host CA.
pub(crate) fn server_config(
    authorities: &Authorities,
    id: HostId,
    ttl: time::Duration,
    now: OffsetDateTime,
) -> Result<(ServerConfig, Vec<Issued>), ServerError> {
    let (suite, trust) = (authorities.suite(), authorities.trust());
    let host_ca = authorities.signer(CaKind::Host).map_err(doing("certify itself"))?;
    let key = TlsKey::generate_for(suite, KeyPurpose::HostTls).map_err(doing("make its key"))?;
    let name = NodeName::new("auth").map_err(doing("name itself"))?;
    let request = HostRequest {
        id,
        name: &name,
        role: HostRole::Auth,
        join_id: Uuid::nil(),
        public_names: &[],
        ssh_public_key: "",
        tls_spki: key.spki_der(),
    };
    let issued = issue_host_tls(host_ca, &request, now, ttl).map_err(doing("certify itself"))?;
    let chain = issued.pem + &issued.ca_pem;
    let auth = tls::ClientAuth::Optional;
    let config = tls::server_config(trust, &chain, &key.pkcs8_pem(), &[alpn::AUTH], auth);
    Ok((config.map_err(doing("set up TLS"))?, vec![issued.issued]))
}

/// How long the authority's own certificate lives.
pub(crate) fn own_ttl(config: &AuthConfig) -> time::Duration {
    config.lifetimes.bounded(CertificateKind::Host, OWN_TTL)
}

/// The event of the authority's own certificate.
pub(crate) fn own_certificate(issued: &[Issued], now: OffsetDateTime) -> Event {
    let event = Event::new(Code::HostCertIssued, now).user("auth:auth").node("auth").origin("auth");
    with_certificates(event, issued)
}
