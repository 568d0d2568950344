//! What is known of a connection that carries gRPC, and whether it may carry anything.

use std::net::SocketAddr;
use std::sync::Arc;

use sallyport_access::Identity;
use sallyport_wire::stream_header::UserCertificate;
use time::OffsetDateTime;
use tonic::Status;

use super::open::ClientContext;
use crate::listener::Crowded;

/// What is known of a gRPC connection.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    /// Where it comes from.
    pub(crate) address: SocketAddr,
    /// Whom its certificate proves; `None` without one.
    pub(crate) identity: Option<Arc<Identity>>,
    /// The certificate.
    pub(crate) certificate: Option<UserCertificate>,
    /// Why this connection may carry nothing of the cluster's, whatever its client may do otherwise.
    pub(crate) unfit: Option<Unfit>,
}

/// Why a connection may carry nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Unfit {
    /// Its key exchange is not what the suite requires.
    KeyExchange,
    /// Its user has as many as one may have.
    Crowded(Crowded),
}

impl Unfit {
    fn status(self) -> Status {
        match self {
            Self::KeyExchange => Status::failed_precondition(
                "this cluster requires post-quantum key exchange (X25519MLKEM768), which your program did not offer; \
                 update it: sallyport --version",
            ),
            Self::Crowded(crowded) => Status::resource_exhausted(format!(
                "{}; end some of your programs, or ask an administrator to raise the limit",
                crowded.message()
            )),
        }
    }
}

/// The client, if it may open sessions: a user whose certificate is still valid. TLS checked it at the handshake; a connection
/// may outlive it.
pub(super) fn caller(peer: Option<&Peer>, now: OffsetDateTime) -> Result<ClientContext, Status> {
    let Some(Peer { address, identity: Some(identity), certificate: Some(certificate), unfit }) = peer else {
        return Err(Status::unauthenticated("this needs a user certificate; run `sallyport login`"));
    };
    if let Some(unfit) = unfit {
        return Err(unfit.status());
    }
    if identity.user().is_none() {
        return Err(Status::permission_denied("hosts do not open sessions; log in as a user"));
    }
    if now >= identity.valid_before + sallyport_ca::SKEW_ALLOWANCE {
        return Err(Status::unauthenticated("your certificate has expired; run `sallyport login`"));
    }
    Ok(ClientContext { identity: Arc::clone(identity), certificate: certificate.clone(), address: *address })
}
