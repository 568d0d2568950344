//! Who calls, and whether they may.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use sallyport_access::{ApiPermit, HostRole, Identity, Principal, Verb};
use sallyport_audit::log::LogError;
use sallyport_audit::{Code, Event};
use time::OffsetDateTime;
use tonic::{Request, Status};
use tracing::debug;

use super::Inner;

/// Where a connection comes from.
#[derive(Debug, Clone, Copy)]
pub struct PeerInfo {
    /// The client's address, as the proxy saw it.
    pub address: SocketAddr,
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone)]
pub(super) enum Caller {
    /// Nobody known yet.
    Anonymous { address: SocketAddr },
    /// The holder of a certificate.
    Certified { identity: Arc<Identity>, address: SocketAddr },
    /// The operator, through the socket that only they can open.
    LocalAdmin,
}

impl Caller {
    pub(super) fn name(&self) -> String {
        match self {
            Self::Anonymous { .. } => String::new(),
            Self::Certified { identity, .. } => identity.display_name(),
            Self::LocalAdmin => "@local".to_owned(),
        }
    }

    pub(super) fn source(&self) -> String {
        match self {
            Self::Anonymous { address } | Self::Certified { address, .. } => address.to_string(),
            Self::LocalAdmin => "local socket".to_owned(),
        }
    }

    pub(super) fn identity(&self) -> Option<&Identity> {
        match self {
            Self::Certified { identity, .. } => Some(identity),
            Self::Anonymous { .. } | Self::LocalAdmin => None,
        }
    }
}

/// The caller of a request; anonymous from nowhere when the connection did not say, which no listener does.
pub(super) fn caller<T>(request: &Request<T>) -> Caller {
    request
        .extensions()
        .get::<Caller>()
        .cloned()
        .unwrap_or(Caller::Anonymous { address: SocketAddr::from(([0, 0, 0, 0], 0)) })
}

impl Inner {
    /// An event about a call.
    pub(super) fn event(&self, code: Code, caller: &Caller) -> Event {
        Event::new(code, OffsetDateTime::now_utc()).user(caller.name()).source(caller.source()).origin("auth")
    }

    /// Writes events; the caller learns of a success only when they are on disk.
    pub(super) async fn record(&self, events: Vec<Event>) -> Result<(), Status> {
        self.log.append(events).await.map_err(|error| {
            self.room.unwritten(&error);
            Status::unavailable(match error {
                LogError::Full { .. } => {
                    "the authority's disk is full, and it does nothing that is not on record; whoever runs it has to make room"
                }
                LogError::Io { .. } | LogError::Broken(_) | LogError::Closed => {
                    "the authority cannot write its audit log and does nothing that is not on record"
                }
            })
        })
    }

    /// Whether a caller without a certificate is within the bound of its address. Everybody else is.
    pub(super) fn within_bounds(&self, caller: &Caller) -> Result<(), Status> {
        let Caller::Anonymous { address } = caller else { return Ok(()) };
        if self.guesses.admits_stranger(address.ip(), OffsetDateTime::now_utc()) {
            return Ok(());
        }
        metrics::counter!("sallyport_auth_strangers_refused_total").increment(1);
        Err(Status::resource_exhausted("too many calls from this address; try again in a minute"))
    }

    /// Notes a refused call and gives the answer for it.
    pub(super) async fn refuse(&self, caller: &Caller, method: &'static str, status: Status) -> Status {
        debug!(method, caller = caller.name(), message = status.message(), "refused");
        if let Err(too_many) = self.within_bounds(caller) {
            return too_many;
        }
        let event = self.event(Code::ApiRefused, caller).field("method", method).message(status.message());
        if let Err(unwritten) = self.record(vec![event]).await {
            return unwritten;
        }
        status
    }

    /// Notes a call that only reads.
    pub(super) async fn called(
        &self,
        caller: &Caller,
        method: &'static str,
        what: &str,
    ) -> Result<(), Status> {
        let event = self.event(Code::ApiCalled, caller).field("method", method).message(what);
        self.record(vec![event]).await
    }

    /// The caller's right to do something with a kind of resource, checked anew for every call: since the connection was
    /// made, a certificate may have expired, a lock may have come, and a role may have been taken away.
    pub(super) async fn allow(
        &self,
        caller: &Caller,
        method: &'static str,
        resource: &str,
        verb: Verb,
    ) -> Result<ApiPermit, Status> {
        match self.check(caller, resource, verb) {
            Ok(permit) => Ok(permit),
            Err(status) => Err(self.refuse(caller, method, status).await),
        }
    }

    pub(super) fn check(&self, caller: &Caller, resource: &str, verb: Verb) -> Result<ApiPermit, Status> {
        let identity = match caller {
            Caller::LocalAdmin => return Ok(ApiPermit::local_admin()),
            Caller::Anonymous { .. } => return Err(unauthenticated()),
            Caller::Certified { identity, .. } => identity,
        };
        let identity = self.valid(identity)?;
        let view = self.view();
        view.policies
            .may(&identity, resource, verb)
            .map_err(|refusal| Status::permission_denied(refusal.public_message()))
    }

    /// A certified caller whose certificate is still good.
    pub(super) async fn certified<'c>(
        &self,
        caller: &'c Caller,
        method: &'static str,
    ) -> Result<&'c Identity, Status> {
        let checked = match caller {
            Caller::Certified { identity, .. } => self.check_valid(identity).map(|()| identity.as_ref()),
            Caller::Anonymous { .. } => Err(unauthenticated()),
            Caller::LocalAdmin => {
                Err(Status::permission_denied("this is for hosts and users with a certificate"))
            }
        };
        match checked {
            Ok(identity) => Ok(identity),
            Err(status) => Err(self.refuse(caller, method, status).await),
        }
    }

    /// A host of one of these roles.
    pub(super) async fn host<'c>(
        &self,
        caller: &'c Caller,
        method: &'static str,
        roles: &[HostRole],
    ) -> Result<&'c Identity, Status> {
        let identity = self.certified(caller, method).await?;
        let is_host = matches!(&identity.principal, Principal::Host { role, .. } if roles.contains(role));
        if is_host {
            return Ok(identity);
        }
        let status =
            Status::permission_denied(format!("{} may not: this is for hosts", identity.display_name()));
        Err(self.refuse(caller, method, status).await)
    }

    /// Whether a certificate is still good, and its holder still there.
    pub(super) fn check_valid(&self, identity: &Identity) -> Result<(), Status> {
        self.valid(identity).map(drop)
    }

    /// An identity as it is now, where its certificate is still good. It asks memory only, and may be asked often.
    pub(super) fn valid<'i>(&self, identity: &'i Identity) -> Result<Cow<'i, Identity>, Status> {
        let now = OffsetDateTime::now_utc();
        if identity.valid_before + sallyport_ca::SKEW_ALLOWANCE <= now {
            return Err(Status::unauthenticated(
                "your certificate has expired; log in again: sallyport login",
            ));
        }
        let current = self.current(identity)?;
        let view = self.view();
        // A lock covers what the certificate says: a role that was taken away since counts as well.
        match view.policies.locked(identity, None, None, &view.locks, now) {
            Some(refusal) => Err(Status::permission_denied(refusal.public_message())),
            None => Ok(current),
        }
    }
}

pub(super) fn unauthenticated() -> Status {
    Status::unauthenticated("a certificate is needed; log in: sallyport login")
}
