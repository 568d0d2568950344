//! The authority of this process, as the other services of the process use it.

use std::sync::Arc;

use futures::future::BoxFuture;
use sallyport_ca::TrustBundle;
use sallyport_wire::v1;

use crate::ServerError;
use crate::dialling::ServeAuthority;
use crate::member::client_sightings::Sightings;

/// Makes certificates for a member of the authority's own process.
pub(crate) type Issue = Arc<
    dyn Fn(v1::JoinRequest) -> BoxFuture<'static, Result<v1::HostCertificates, ServerError>> + Send + Sync,
>;

/// The authority of this process, as the other services of the process use it.
#[derive(Clone)]
pub(crate) struct LocalAuthority {
    /// Serves a connection.
    pub(crate) serve: ServeAuthority,
    /// Issues host certificates to the services of this process.
    pub(crate) issue: Issue,
    /// Where it remembers clients.
    pub(crate) sightings: Sightings,
    /// The trust in force.
    pub(crate) trust: Arc<dyn Fn() -> TrustBundle + Send + Sync>,
}
