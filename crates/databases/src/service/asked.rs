//! What a session is asked for, and what a connection to a database is wanted for.

use std::sync::Arc;

use bytes::Bytes;
use sallyport_access::{Database, DatabaseName, DatabasePermit, Identity, SessionId};
use tracing::Span;
use uuid::Uuid;

use crate::postgres::startup::CancelKey;

/// Roles belong to the whole server, and advisory locks to one of its databases: all who make users meet in this one.
pub(super) const MEETING: &str = "postgres";

/// How a client has come to the agent, which is who has proven what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    /// Inside TLS from the user's own program to the agent: the user has proven the certificate here.
    EndToEnd,
    /// By a proxy, at which the client's TLS ends: that the user is there the agent has by the proxy's word alone.
    ByProxy,
}

impl Came {
    /// The word for events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::EndToEnd => "end_to_end",
            Self::ByProxy => "by_proxy",
        }
    }
}

/// What a connection to a database is wanted for.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The database.
    pub database: Arc<Database>,
    /// Who may use it how.
    pub permit: Arc<DatabasePermit>,
    /// The login that the user's certificate is of: credentials are kept for each of it, the database and the user.
    pub login_id: Uuid,
    /// The user's certificate, DER.
    pub proof: Bytes,
    /// The word that this session was opened, for what gives out permits and credentials; not looked at here.
    pub opened: Bytes,
    /// How the client has come.
    pub came: Came,
    /// As the account that makes users ([`Database::admin_user`]) instead of the permit's user.
    pub provisioning: bool,
}

impl Wanted {
    /// The database user that is logged in as.
    #[must_use]
    pub fn user(&self) -> &str {
        let admin = self.database.admin_user.as_deref().filter(|_| self.provisioning);
        admin.unwrap_or_else(|| self.permit.db_user())
    }

    /// The database of the server that is connected to.
    #[must_use]
    pub fn db_name(&self) -> &str {
        if self.provisioning { MEETING } else { self.permit.db_name() }
    }
}

/// What a session is asked for by what accepted the client's connection.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Which database.
    pub database: DatabaseName,
    /// Who, proven.
    pub identity: Identity,
    /// The certificate that proves it, DER.
    pub proof: Bytes,
    /// See [`Wanted::opened`].
    pub opened: Bytes,
    /// How the client has come.
    pub came: Came,
    /// Where the client is.
    pub client: String,
    /// What the client is told to cancel its queries with; [`Service::cancel`](super::Service::cancel) takes it.
    pub cancel: CancelKey,
    /// The session.
    pub session: SessionId,
    /// What its beginning is a part of, for traces: it ends when the client hears that its session is ready.
    /// [`Span::none`] where the caller asks for none.
    pub opening: Span,
}
