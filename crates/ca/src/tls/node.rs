//! TLS from a user's program to a node, end to end inside whatever carries it.
//!
//! The user proves the certificate that the proxy knows too; the node proves its host certificate, as *this* node: the
//! name that was asked for is one of those that its SSH certificate has.
//!
//! # Resumption and early data
//! A node keeps its tickets itself and gives each out once ([`node_server_config`] has no store; the code that accepts gives
//! one for each connection). So early data that comes a second time is never read: the ticket is gone (RFC 8446 §8.1). A
//! client keeps the tickets of one node in its [`NodeClient`], for as long as the node's certificate is good. What
//! resumption does not check, the server checks at every accept.

use std::fmt;
use std::sync::Arc;

use sallyport_access::{HostId, HostRole, Principal};
use sallyport_sal::tls::rustls::pki_types::{CertificateDer, ServerName};
use sallyport_sal::tls::rustls::server::NoServerSessionStorage;
use sallyport_sal::tls::rustls::{ClientConfig, ServerConfig};
use time::OffsetDateTime;

use super::returning::{Dated, Returning};
use super::{ClientAuth, server_config};
use crate::{CaError, Trust, server_name, trust};

/// What a client may say before the handshake is over, in bytes: the beginning of a session and what follows at once,
/// and no more than a node can keep for each of many who have not finished theirs.
pub const EARLY_DATA_BYTES: u32 = 32 * 1024;
/// Tickets that a node gives with each handshake. One is used up by the next connection, and connections that are over
/// before their client has heard of new ones bring none.
const TICKETS: usize = 4;

/// A node's configuration for its users, who must show a certificate. Chain and key in PEM. It remembers nothing until
/// it is given a store of tickets, and answers a resumed handshake with data at once.
///
/// # Errors
/// [`CaError::BadTlsIdentity`] when chain and key cannot be read or do not belong together.
pub fn node_server_config(
    trust: &Trust,
    chain_pem: &str,
    key_pem: &str,
    alpn: &[u8],
) -> Result<ServerConfig, CaError> {
    let mut config = server_config(trust, chain_pem, key_pem, &[alpn], ClientAuth::Required)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = TICKETS;
    config.max_early_data_size = EARLY_DATA_BYTES;
    // A resumed handshake asks for no certificate, so that nothing more is to be learned by waiting.
    config.send_half_rtt_data = true;
    Ok(config)
}

/// How one user reaches one node, with the tickets that the node has given. Clones share them.
#[derive(Clone)]
pub struct NodeClient {
    node: Arc<str>,
    name: ServerName<'static>,
    returning: Returning,
}

impl NodeClient {
    /// For the node that is asked for by its name, its id, or one of them with `.CLUSTER` behind it. Shows a user's
    /// certificate (chain and key in PEM).
    ///
    /// # Errors
    /// [`CaError::BadTlsIdentity`] when chain and key cannot be read or do not belong together.
    pub fn new(trust: &Trust, identity_pem: (&str, &str), alpn: &[u8], node: &str) -> Result<Self, CaError> {
        let whom = Whom::Named(node.to_owned());
        Self::to(trust, identity_pem, alpn, NodeVerifier { trust: trust.clone(), whom }, node)
    }

    /// For whichever of these nodes answers, all of which serve the same `what`.
    ///
    /// # Errors
    /// As [`NodeClient::new`].
    pub fn one_of(
        trust: &Trust,
        identity_pem: (&str, &str),
        alpn: &[u8],
        what: &str,
        nodes: &[HostId],
    ) -> Result<Self, CaError> {
        let whom = Whom::OneOf { what: what.to_owned(), nodes: nodes.to_vec() };
        Self::to(trust, identity_pem, alpn, NodeVerifier { trust: trust.clone(), whom }, what)
    }

    fn to(
        trust: &Trust,
        identity_pem: (&str, &str),
        alpn: &[u8],
        verifier: NodeVerifier,
        node: &str,
    ) -> Result<Self, CaError> {
        let returning = Returning::new(trust, identity_pem, alpn, verifier)?;
        let name = ServerName::try_from(server_name(HostRole::Node, trust.cluster()))
            .map_err(|error| CaError::BadTlsIdentity { reason: error.to_string() })?;
        Ok(Self { node: Arc::from(node), name, returning })
    }

    /// The configuration for a connection now. Tickets of a node whose certificate has ended since are forgotten.
    #[must_use]
    pub fn config(&self, now: OffsetDateTime) -> Arc<ClientConfig> {
        self.returning.config(now)
    }

    /// The name to connect with.
    #[must_use]
    pub fn server_name(&self) -> ServerName<'static> {
        self.name.clone()
    }

    /// The node as it was asked for; what several serve.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.node
    }
}

impl fmt::Debug for NodeClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeClient").field("node", &self.node).finish_non_exhaustive()
    }
}

/// Which nodes will do.
#[derive(Debug)]
enum Whom {
    /// One of its names.
    Named(String),
    OneOf {
        what: String,
        nodes: Vec<HostId>,
    },
}

#[derive(Debug)]
struct NodeVerifier {
    trust: Trust,
    whom: Whom,
}

impl Dated for NodeVerifier {
    fn until(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        now: OffsetDateTime,
    ) -> Result<OffsetDateTime, CaError> {
        let verified = self.trust.identify_server(end_entity, intermediates, server_name, now)?;
        trust::require_role(&verified.identity, HostRole::Node)?;
        let Principal::Host { id, name, .. } = &verified.identity.principal else {
            return Err(CaError::Refused { reason: "it is not a host's certificate".to_owned() });
        };
        let names = self.trust.own_names(*id, name.as_str());
        let (will_do, asked) = match &self.whom {
            Whom::Named(node) => (names.iter().any(|name| trust::same_name(name, node)), node),
            Whom::OneOf { what, nodes } => (nodes.contains(id), what),
        };
        if will_do {
            Ok(verified.identity.valid_before)
        } else {
            Err(CaError::WrongHost { asked: asked.clone(), names: names.to_vec() })
        }
    }
}
