//! The ways to databases: which agents serve one, what proves a session to them, and which session a cancel request is for.

use std::net::SocketAddr;
use std::sync::Arc;

use metrics::counter;
use sallyport_access::{Database, DatabaseName, DatabasePermit, HostId, NodeName};
use sallyport_audit::Event;
use sallyport_ca::Opening;
use sallyport_databases::postgres::startup::CancelKey;
use sallyport_wire::stream_header::{CancelTarget, Carries, StreamHeader, UserCertificate};
use sallyport_wire::tunnel;
use time::OffsetDateTime;
use tracing::{info, warn};

use super::cancels::{Cancels, Registered};
use super::fresh::FreshKeys;
use super::word::Words;
use crate::ServerError;
use crate::member::cluster_cache::{ClusterCache, Resolved};
use crate::member::host::Credentials;
use crate::proxy::open::Opener;

/// The ways to databases.
#[derive(Debug, Clone)]
pub(crate) struct Databases {
    pub(super) opener: Opener,
    pub(super) cancels: Cancels,
    pub(super) words: Words,
    /// For measuring the other architecture.
    pub(super) fresh: Option<Arc<FreshKeys>>,
    /// What this proxy is called in public: `NAME.` and one of them is the name of a database.
    pub(super) public_names: Arc<[String]>,
}

/// Why no agent can serve a database.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoAgent {
    #[error("several nodes are called {0}; one of them has to go (sallyport admin rm node/ID)")]
    Several(NodeName),
    #[error("it has no agent")]
    Unserved,
}

/// An open stream to an agent, and the key by which its client may cancel what it does.
pub(crate) struct DatabaseStream {
    pub(super) stream: tunnel::Stream,
    pub(super) agent: HostId,
    pub(super) cancel: Registered,
}

impl Databases {
    pub(crate) fn new(
        opener: Opener,
        credentials: Credentials,
        public_names: impl IntoIterator<Item = String>,
    ) -> Self {
        Self {
            opener,
            cancels: Cancels::default(),
            words: Words::new(credentials),
            fresh: None,
            public_names: public_names.into_iter().collect(),
        }
    }

    /// Proves itself to agents with a key of its own for each connection.
    pub(crate) fn with_fresh_keys(self, fresh: FreshKeys) -> Self {
        Self { fresh: Some(Arc::new(fresh)), ..self }
    }

    pub(super) fn view(&self) -> &Arc<ClusterCache> {
        &self.opener.view
    }

    /// The database that a TLS client has asked for by the name that it connects to.
    pub(crate) fn named(&self, server_name: &str) -> Option<DatabaseName> {
        let suffix = self.public_names.iter().find_map(|public| {
            let (label, rest) = server_name.split_once('.')?;
            rest.eq_ignore_ascii_case(public).then_some(label)
        })?;
        DatabaseName::new(suffix.to_ascii_lowercase()).ok()
    }

    /// This proxy's word for a session whose client's TLS ends here: the authority permits the agent to begin it, once.
    pub(super) fn word(
        &self,
        agent: HostId,
        database: &Database,
        permit: &DatabasePermit,
        certificate: &UserCertificate,
        now: OffsetDateTime,
    ) -> Option<String> {
        let UserCertificate::Tls(certificate) = certificate else { return None };
        let certificate = data_encoding::BASE64.decode(certificate.as_bytes()).ok()?;
        let opening = Opening {
            agent,
            database: database.name.as_str(),
            db_user: permit.db_user(),
            db_name: permit.db_name(),
            user_certificate: &certificate,
        };
        match self.words.give(&opening, now) {
            Ok(word) => Some(word),
            Err(error) => {
                warn!(error = %ServerError::chain(&error), "a database session goes without this proxy's word");
                None
            }
        }
    }

    /// The hosts that serve a database, by their ids. A name that several have means none of them: the second may have
    /// taken it to get what is meant for the first.
    pub(super) fn agents(&self, database: &Database) -> Result<Vec<HostId>, NoAgent> {
        let (mut found, mut shared) = (Vec::new(), None);
        for name in &database.agents {
            match self.view().resolve(name.as_str()) {
                Resolved::One(node) => found.push(node.id),
                Resolved::Several(_) => shared = Some(name),
                Resolved::Unknown => {}
            }
        }
        match (found.is_empty(), shared) {
            (true, Some(name)) => Err(NoAgent::Several(name.clone())),
            (true, None) => Err(NoAgent::Unserved),
            (false, _) => Ok(found),
        }
    }

    /// Passes a cancel request on to the agent of the session that has the key. As at a database, the client does
    /// not learn whether there is one.
    pub(crate) fn cancel(&self, key: &CancelKey, client: SocketAddr) {
        let Some(found) = self.cancels.find(key) else {
            counter!("sallyport_database_cancels_total", "result" => "unknown").increment(1);
            return info!(%client, "a cancel request for no session of this proxy");
        };
        let carries = Carries::PostgresCancel { postgres: CancelTarget { cancel: found.hexadecimal() } };
        let header = StreamHeader::new(client, found.permit.user().as_str(), None, carries).encode();
        let result = match self.opener.hub.open_database(found.agent, &found.permit, header) {
            // The header says it all; the stream ends when this is dropped.
            Ok(stream) => {
                stream.finish();
                "passed_on"
            }
            Err(_) => "offline",
        };
        counter!("sallyport_database_cancels_total", "result" => result).increment(1);
    }

    /// Whether the cluster has the database, for those who say its name before all else.
    pub(crate) fn knows(&self, name: &DatabaseName) -> bool {
        self.view().database(name).is_some()
    }
}

/// What an event says of a session's account.
pub(super) fn about(event: Event, permit: &DatabasePermit) -> Event {
    event
        .node(permit.database().as_str())
        .field("db_user", permit.db_user())
        .field("db_name", permit.db_name())
}
