//! Whether a caller may: its certificate, the locks, its roles and its bounds, asked anew for every call.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use sallyport_access::{
    ApiPermit, Decidable, HostId, HostRole, Identity, Permit, Policies, Principal, Refusal, Verb,
};
use sallyport_audit::Code;
use sallyport_wire::acts::{self, Weight};
use sallyport_wire::admin_factor::Wanted;
use sallyport_wire::fips;
use time::OffsetDateTime;
use tonic::{Request, Status};
use tracing::debug;

use crate::authority::audit::journal::Journal;
use crate::authority::caller::{Caller, shown, unauthenticated};
use crate::authority::config::AuthConfig;
use crate::authority::gate::acts::of_document;
use crate::authority::gate::administering::{Act, Administering};
use crate::authority::gate::guesses::Guesses;
use crate::authority::identities::known::Identities;
use crate::authority::policy::Policy;

fn over_bounds() -> Status {
    metrics::counter!("sallyport_auth_calls_over_bounds_total").increment(1);
    Status::resource_exhausted("too many calls from this address, login or proxy; try again in a minute")
}

fn host_id(identity: &Identity) -> Option<HostId> {
    match identity.principal {
        Principal::Host { id, .. } => Some(id),
        Principal::User { .. } => None,
    }
}

/// Decides who may call what. It asks memory only, but to put a refusal on record, and for what is dangerous.
#[derive(Debug)]
pub(crate) struct Gate {
    config: Arc<AuthConfig>,
    journal: Arc<Journal>,
    policy: Arc<Policy>,
    identities: Arc<Identities>,
    guesses: Arc<Guesses>,
    administering: Arc<Administering>,
}

impl Gate {
    pub(crate) fn new(
        config: &Arc<AuthConfig>,
        journal: &Arc<Journal>,
        policy: &Arc<Policy>,
        identities: &Arc<Identities>,
        guesses: &Arc<Guesses>,
        administering: &Arc<Administering>,
    ) -> Arc<Self> {
        Arc::new(Self {
            config: Arc::clone(config),
            journal: Arc::clone(journal),
            policy: Arc::clone(policy),
            identities: Arc::clone(identities),
            guesses: Arc::clone(guesses),
            administering: Arc::clone(administering),
        })
    }

    /// Whether a caller is within the bounds of its address and its login. Every caller has them but the local administrator. Many
    /// hosts may share an address, so that of them each has its own alone.
    pub(crate) fn within_bounds(&self, caller: &Caller) -> Result<(), Status> {
        let now = OffsetDateTime::now_utc();
        let admitted = match caller {
            Caller::Certified { identity, .. } if host_id(identity).is_some() => {
                self.guesses.admits_login(identity.login_id, now)
            }
            _ => {
                let login = caller.identity().map(|identity| identity.login_id);
                caller.seen().is_none_or(|from| self.guesses.admits_call(from, login, now))
            }
        };
        if admitted { Ok(()) } else { Err(over_bounds()) }
    }

    /// Whether a proxy is within its bounds with a call for a browser at its pages.
    pub(crate) fn pages_within_bounds(&self, proxy: &Identity) -> Result<(), Status> {
        let now = OffsetDateTime::now_utc();
        match host_id(proxy) {
            Some(id) if self.guesses.on_behalf.admits_pages(id, now) => Ok(()),
            _ => Err(over_bounds()),
        }
    }

    /// Whether a certificate is verified that a host shows of a user's client: not where the authority has refused too many in this minute that
    /// this host has shown, from there or at all. What other hosts have shown counts for them alone.
    pub(crate) fn verifies(&self, host: &Identity, from: Option<IpAddr>) -> Result<(), Status> {
        let now = OffsetDateTime::now_utc();
        match host_id(host) {
            Some(id) if self.guesses.on_behalf.verifies(id, from, now) => Ok(()),
            _ => Err(over_bounds()),
        }
    }

    /// A certificate that a host has shown was refused.
    pub(crate) fn note_bad(&self, host: &Identity, from: Option<IpAddr>) {
        if let Some(id) = host_id(host) {
            self.guesses.on_behalf.note_bad(id, from, OffsetDateTime::now_utc());
        }
    }

    /// Whether a call that a proxy makes for a client of a user's login is within the bounds of that login, of where the client is, and of the
    /// proxy.
    pub(crate) fn call_for_within_bounds(
        &self,
        proxy: &Identity,
        user: &Identity,
        address: IpAddr,
    ) -> Result<(), Status> {
        let now = OffsetDateTime::now_utc();
        match host_id(proxy) {
            Some(id) if self.guesses.on_behalf.admits_for(id, user.login_id, address, now) => Ok(()),
            _ => Err(over_bounds()),
        }
    }

    /// Notes a refused call and gives the answer for it.
    pub(crate) async fn refuse(&self, caller: &Caller, method: &str, status: Status) -> Status {
        debug!(method, caller = caller.name(), message = status.message(), "refused");
        let event = caller.event(Code::ApiRefused).field("method", method).message(status.message());
        if let Err(unwritten) = self.journal.note_caused(caller, event, method).await {
            return unwritten;
        }
        match self.within_bounds(caller) {
            Ok(()) => status,
            Err(too_many) => too_many,
        }
    }

    /// The caller's right to do something with a kind of resource, checked anew for every call: since the connection was
    /// made, a certificate may have expired, a lock may have come, and a role may have been taken away.
    pub(crate) async fn allow(
        &self,
        caller: &Caller,
        method: &'static str,
        resource: &str,
        verb: Verb,
    ) -> Result<ApiPermit, Status> {
        let permit = match self.check(caller, resource, verb) {
            Ok(permit) => permit,
            Err(status) => return Err(self.refuse(caller, method, status).await),
        };
        if acts::of_method(method) == Weight::Dangerous {
            self.demand_factor(caller, Act { method, verb, what: resource }).await?;
        }
        Ok(permit)
    }

    /// Asks a caller for a factor who changes a document, where that is dangerous. Their right to it was seen before.
    pub(crate) async fn allow_document(
        &self,
        caller: &Caller,
        method: &'static str,
        verb: Verb,
        (kind, name): (&str, &str),
    ) -> Result<(), Status> {
        if of_document(kind, verb) != Weight::Dangerous {
            return Ok(());
        }
        let what = format!("{kind}/{}", shown(name));
        self.demand_factor(caller, Act { method, verb, what: &what }).await
    }

    async fn demand_factor(&self, caller: &Caller, act: Act<'_>) -> Result<(), Status> {
        match self.administering.demand(caller, act).await {
            Err(status) if Wanted::of(&status).is_some() => {
                // A program that asks again and again counts as any that is refused.
                self.within_bounds(caller)?;
                Err(status)
            }
            other => other,
        }
    }

    pub(crate) fn check(&self, caller: &Caller, resource: &str, verb: Verb) -> Result<ApiPermit, Status> {
        self.decide(caller, |policies, identity| policies.may(identity, resource, verb))
    }

    /// The caller's right to follow what changes of a kind of resource.
    pub(crate) fn check_follow(&self, caller: &Caller, resource: &str) -> Result<ApiPermit, Status> {
        self.decide(caller, |policies, identity| policies.may_follow(identity, resource))
    }

    fn decide(
        &self,
        caller: &Caller,
        by: impl FnOnce(&Policies, &Identity) -> Result<ApiPermit, Refusal>,
    ) -> Result<ApiPermit, Status> {
        let identity = match caller {
            Caller::LocalAdmin => return Ok(ApiPermit::local_admin()),
            Caller::Anonymous { .. } | Caller::Behind { .. } => return Err(unauthenticated()),
            Caller::Certified { identity, .. } => identity,
        };
        let identity = self.valid(identity)?;
        by(&self.policy.cache().policies, &identity)
            .map_err(|refusal| Status::permission_denied(refusal.public_message()))
    }

    /// A certified caller whose certificate is still good.
    pub(crate) async fn certified<'c>(
        &self,
        caller: &'c Caller,
        method: &'static str,
    ) -> Result<&'c Identity, Status> {
        match self.check_certified(caller) {
            Ok(identity) => Ok(identity),
            Err(status) => Err(self.refuse(caller, method, status).await),
        }
    }

    /// [`Self::certified`] of a caller who looks at their own login or ends it: that takes nothing that a thief could use, and a person whose
    /// roles came to pin logins may leave the one that they have.
    pub(crate) async fn certified_to_leave<'c>(
        &self,
        caller: &'c Caller,
        method: &'static str,
    ) -> Result<&'c Identity, Status> {
        let unpinned = match caller {
            Caller::Certified { identity, .. } => self.still_good(identity).map(|_| identity.as_ref()),
            Caller::Anonymous { .. } | Caller::Behind { .. } | Caller::LocalAdmin => {
                self.check_certified(caller)
            }
        };
        match unpinned {
            Ok(identity) => Ok(identity),
            Err(status) => Err(self.refuse(caller, method, status).await),
        }
    }

    pub(crate) fn check_certified<'c>(&self, caller: &'c Caller) -> Result<&'c Identity, Status> {
        match caller {
            Caller::Certified { identity, .. } => self.check_valid(identity).map(|()| identity.as_ref()),
            Caller::Anonymous { .. } | Caller::Behind { .. } => Err(unauthenticated()),
            Caller::LocalAdmin => {
                Err(Status::permission_denied("this is for hosts and users with a certificate"))
            }
        }
    }

    /// A host of one of these roles.
    pub(crate) async fn host<'c>(
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
    pub(crate) fn check_valid(&self, identity: &Identity) -> Result<(), Status> {
        self.valid(identity).map(drop)
    }

    /// An identity as it is now, where its certificate is still good, and pinned where its roles pin logins by now. It asks memory only, and
    /// may be asked often.
    pub(crate) fn valid<'i>(&self, identity: &'i Identity) -> Result<Cow<'i, Identity>, Status> {
        let current = self.still_good(identity)?;
        let pinned = self.policy.cache().policies.pinned_enough(&current);
        pinned.map_err(|unpinned| Status::permission_denied(unpinned.to_string()))?;
        Ok(current)
    }

    /// [`Self::valid`] of a login, whether or not it is pinned.
    fn still_good<'i>(&self, identity: &'i Identity) -> Result<Cow<'i, Identity>, Status> {
        let now = OffsetDateTime::now_utc();
        if identity.valid_before + sallyport_ca::SKEW_ALLOWANCE <= now {
            return Err(Status::unauthenticated(
                "your certificate has expired; log in again: sallyport login",
            ));
        }
        let current = self.identities.current(identity)?;
        // A lock covers what the certificate says: a role that was taken away since counts as well.
        self.check_locks(identity, now)?;
        Ok(current)
    }

    /// Whether no lock keeps an identity out.
    pub(crate) fn check_locks(&self, identity: &Identity, now: OffsetDateTime) -> Result<(), Status> {
        let cache = self.policy.cache();
        match cache.policies.locked_out(identity, &cache.locks, now) {
            Some(refusal) => Err(Status::permission_denied(refusal.public_message())),
            None => Ok(()),
        }
    }

    /// Whether a user whose certificate a host shows may have a session with a resource: the user as the authority
    /// knows them now, by the roles and the locks in force. What the host says of it is not enough.
    pub(crate) fn permit_shown<R: Decidable>(
        &self,
        shown: &Identity,
        resource: &R,
        account: &R::Account,
        now: OffsetDateTime,
    ) -> Result<(Identity, Permit<R>), Status> {
        let (cache, user) = (self.policy.cache(), self.identities.current(shown)?.into_owned());
        let permit = cache
            .policies
            .decide(&user, resource, account, &cache.locks, now)
            .map_err(|refusal| Status::permission_denied(refusal.public_message()))?;
        Ok((user, permit))
    }

    /// Whether a call comes from where a cluster that requires FIPS takes it from. It is the program's own word: this keeps out
    /// programs that are set up otherwise, and none that lies.
    ///
    /// # Errors
    /// The refusal, which says what to do.
    pub(crate) fn demands_fips<T>(&self, request: &Request<T>) -> Result<(), Status> {
        if !self.config.require_fips || fips::says(request) {
            return Ok(());
        }
        Err(fips::refusal(
            "this cluster requires FIPS mode (crypto.require_fips), and this program has not said that it runs in it: use a build \
             with the FIPS module, with crypto.selection: fips for a service and SALLYPORT_CRYPTO=fips for a command",
        ))
    }

    /// [`Self::demands_fips`] of a host. Users were asked when they logged in, and an administrator on the machine is not.
    pub(crate) fn demands_fips_of_host<T>(
        &self,
        caller: &Caller,
        request: &Request<T>,
    ) -> Result<(), Status> {
        match caller {
            Caller::Certified { identity, .. } if matches!(identity.principal, Principal::Host { .. }) => {
                self.demands_fips(request)
            }
            _ => Ok(()),
        }
    }

    /// [`Self::demands_fips`], with the refusal on record.
    pub(crate) async fn demand_fips<T>(
        &self,
        caller: &Caller,
        method: &str,
        request: &Request<T>,
    ) -> Result<(), Status> {
        match self.demands_fips(request) {
            Ok(()) => Ok(()),
            Err(status) => Err(self.refuse(caller, method, status).await),
        }
    }
}
