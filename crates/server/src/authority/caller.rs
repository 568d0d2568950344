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
use super::refusals::{EACH, Who};

/// Calls of a method that only reads, by one login, that are on record one by one in a minute.
const READS: u64 = 120;

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

    /// Where the call comes from, unless it is from this machine.
    pub(super) fn address(&self) -> Option<std::net::IpAddr> {
        match self {
            Self::Anonymous { address } | Self::Certified { address, .. } => Some(address.ip()),
            Self::LocalAdmin => None,
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
        self.log.append(events).await.map_err(|error| self.unwritten(&error))
    }

    /// [`Inner::record`] of what keeps somebody or something out, which must be possible also when the disk is full.
    pub(super) async fn record_urgent(&self, events: Vec<Event>) -> Result<(), Status> {
        self.log.append_urgent(events).await.map_err(|error| self.unwritten(&error))
    }

    fn unwritten(&self, error: &LogError) -> Status {
        self.room.unwritten(error);
        match error {
            LogError::Full { .. } => Status::resource_exhausted(
                "the authority's disk is full, and it does nothing that is not on record: make room on it. Locks, ends of sessions and deletions still work",
            ),
            LogError::Io { .. } | LogError::Broken(_) | LogError::Closed => Status::unavailable(
                "the authority cannot write its audit log and does nothing that is not on record; its log says why",
            ),
        }
    }

    /// Whether a caller is within the bounds of its address and its login. Everybody has them but the local administrator. Many
    /// hosts may share an address, so that of them each has its own alone.
    pub(super) fn within_bounds(&self, caller: &Caller) -> Result<(), Status> {
        let now = OffsetDateTime::now_utc();
        let admitted = match caller {
            Caller::LocalAdmin => true,
            Caller::Anonymous { address } => self.guesses.admits_call(address.ip(), None, now),
            Caller::Certified { identity, address } => match identity.principal {
                Principal::User { .. } => {
                    self.guesses.admits_call(address.ip(), Some(identity.login_id), now)
                }
                Principal::Host { .. } => self.guesses.admits_login(identity.login_id, now),
            },
        };
        if admitted {
            return Ok(());
        }
        metrics::counter!("sallyport_auth_calls_over_bounds_total").increment(1);
        Err(Status::resource_exhausted("too many calls from this address or login; try again in a minute"))
    }

    /// Notes a refused call and gives the answer for it.
    pub(super) async fn refuse(&self, caller: &Caller, method: &str, status: Status) -> Status {
        debug!(method, caller = caller.name(), message = status.message(), "refused");
        let event = self.event(Code::ApiRefused, caller).field("method", method).message(status.message());
        if let Err(unwritten) = self.note_caused(caller, event, method).await {
            return unwritten;
        }
        match self.within_bounds(caller) {
            Ok(()) => status,
            Err(too_many) => too_many,
        }
    }

    /// Puts on record what anybody can cause as often as they like: the first of a kind as they are, the rest of the minute as a
    /// count. `what` tells kinds of one code apart.
    pub(super) async fn note_caused(&self, caller: &Caller, event: Event, what: &str) -> Result<(), Status> {
        self.note_caused_times(event, Who::of(caller), what, EACH, 1).await
    }

    /// [`Inner::note_caused`] of something that `who` did so many `times`, of which `each` a minute are written as they are.
    pub(super) async fn note_caused_times(
        &self,
        event: Event,
        who: Who,
        what: &str,
        each: u64,
        times: u64,
    ) -> Result<(), Status> {
        let events = self.refusals.take(event, who, what, each, times);
        if events.is_empty() {
            return Ok(());
        }
        let written = self.record(events.clone()).await;
        if written.is_err() {
            self.refusals.give_back(events);
        }
        written
    }

    /// Writes what was only counted, once its minute is over.
    pub(super) async fn say_counted(&self) {
        let events = self.refusals.due(OffsetDateTime::now_utc(), false);
        if !events.is_empty() && self.log.append(events.clone()).await.is_err() {
            self.refusals.give_back(events);
        }
    }

    /// Notes a call that only reads.
    pub(super) async fn called(
        &self,
        caller: &Caller,
        method: &'static str,
        what: &str,
    ) -> Result<(), Status> {
        let event = self.event(Code::ApiCalled, caller).field("method", method).message(what);
        match caller {
            // The operator's scripts are on record one by one.
            Caller::LocalAdmin => self.record(vec![event]).await,
            _ => self.note_caused_times(event, Who::of(caller), method, READS, 1).await,
        }
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
        match self.check_certified(caller) {
            Ok(identity) => Ok(identity),
            Err(status) => Err(self.refuse(caller, method, status).await),
        }
    }

    pub(super) fn check_certified<'c>(&self, caller: &'c Caller) -> Result<&'c Identity, Status> {
        match caller {
            Caller::Certified { identity, .. } => self.check_valid(identity).map(|()| identity.as_ref()),
            Caller::Anonymous { .. } => Err(unauthenticated()),
            Caller::LocalAdmin => {
                Err(Status::permission_denied("this is for hosts and users with a certificate"))
            }
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
        match view.policies.locked_out(identity, &view.locks, now) {
            Some(refusal) => Err(Status::permission_denied(refusal.public_message())),
            None => Ok(current),
        }
    }
}

pub(super) fn unauthenticated() -> Status {
    Status::unauthenticated("a certificate is needed; log in: sallyport login")
}
