//! Where databases, decisions and credentials come from.

use std::sync::Arc;

use async_trait::async_trait;
use sallyport_access::{Database, DatabaseAccount, DatabaseName, DatabasePermit, Identity, Refusal};
use sallyport_session::factor::{Factors, NoFactors};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio_rustls::rustls::ClientConfig;
use zeroize::Zeroizing;

use super::asked::Wanted;

/// What an agent knows of its cluster. It answers from memory: sessions wait for it.
pub trait Directory: Send + Sync {
    /// A database that this agent serves.
    fn database(&self, name: &DatabaseName) -> Option<Arc<Database>>;

    /// The decision of the policy, with the locks.
    ///
    /// # Errors
    /// The refusal.
    fn decide(
        &self,
        identity: &Identity,
        database: &Database,
        account: &DatabaseAccount,
        now: OffsetDateTime,
    ) -> Result<DatabasePermit, Refusal>;

    /// What knows which second factors are proven. Default: none ever is, and no session begins whose permit demands one.
    fn factors(&self) -> &dyn Factors {
        &NoFactors
    }

    /// A counter that changes whenever a decision may have. Live sessions are decided upon anew then.
    fn changes(&self) -> watch::Receiver<u64>;
}

/// Why there are no credentials for a database.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// They are denied.
    #[error("{0}")]
    Refused(String),
    /// They cannot be had now, or what is configured is no good.
    #[error("{0}")]
    Unavailable(String),
}

/// What an agent logs in to databases with.
#[async_trait]
pub trait Credentials: Send + Sync {
    /// Asks for the authority's permit of one session that a proxy has opened ([`Came::ByProxy`](super::Came::ByProxy)). Each is for that session
    /// alone, and none begins without; beside this [`Credentials::tls`] may be asked already.
    async fn permit(&self, wanted: &Wanted) -> Result<(), CredentialsError>;

    /// The TLS configuration: whom to trust, and for a login by certificate the certificate of [`Wanted::user`]. An
    /// implementation keeps it for as long as the certificate is good; then TLS sessions are resumed, too. Not asked
    /// for a database without TLS.
    async fn tls(&self, wanted: &Wanted) -> Result<Arc<ClientConfig>, CredentialsError>;

    /// The TLS configuration that is held for this already, where the server takes it still; the authority is not asked. It is
    /// for ending what a session has left there, also where its user is given nothing any more: no session begins by it.
    fn held(&self, wanted: &Wanted) -> Option<Arc<ClientConfig>>;

    /// Makes sure that a session which goes on can be logged in for once more, for as long as its user may: a certificate that
    /// ends soon is renewed. What fails is tried again by the next time.
    async fn renew(&self, wanted: &Wanted) -> Result<(), CredentialsError>;

    /// The password of [`Wanted::user`] at the database, for a login by password.
    fn password(&self, wanted: &Wanted) -> Option<Zeroizing<String>>;
}
