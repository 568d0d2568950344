//! Who is on a connection, and whether they may enter.

use std::sync::Arc;
use std::time::Instant;

use sallyport_access::{FactorDemand, Identity, Login, Principal};
use sallyport_audit::{Code, Event};
use sallyport_ca::CaError;
use sallyport_ca::keys::fingerprint;
use sallyport_session::Evidence;
use sallyport_session::factor::{Missing, Shown};
use ssh_key::public::KeyData;
use ssh_key::{Algorithm, Certificate};
use time::OffsetDateTime;

use super::shared::{Access, Granted, Shared};
use crate::algorithms::refusal;
use crate::capabilities;
use crate::node::backend::Proof;
use crate::node::error::EntryRefused;
use crate::node::opening::Phase;
use crate::node::reserved::JOIN_LOGIN;

/// What a client reads before it logs in, where it does not say that it knows certificates.
pub(super) fn banner(shared: &Shared) -> Option<String> {
    // A relay goes by other proofs.
    shared.offered.offer().filter(|_| shared.back_end.is_decided_here()).and_then(capabilities::banner)
}

/// Whether a key that a client offers is tried at all. Why not is on record where no other key lets the client in: agents hold keys for
/// other servers, too.
pub(super) fn may_try(shared: &Shared, user: &str, (key, algorithm): (&KeyData, &Algorithm)) -> bool {
    let Some(reason) = refusal(key, algorithm) else { return true };
    tracing::debug!(%reason, login = user, "refused a key");
    let _ = shared.not_tried.set((user.to_owned(), reason));
    false
}

/// A client has signed by a security key that did not do what is demanded of it. Who signed the certificate was not looked at.
pub(super) fn unfit(shared: &Shared, user: &str, certificate: Option<&Certificate>, reason: &str) {
    tracing::info!(%reason, login = user, "refused a security key's signature");
    if !shared.back_end.is_decided_here() {
        return;
    }
    let event = shared.event(Code::SessionRefused).login(user).message(reason);
    shared.refused(match certificate {
        Some(certificate) => named(event, certificate),
        None => event,
    });
}

/// What an event says of a certificate that is not believed.
fn named(event: Event, certificate: &Certificate) -> Event {
    event.field("key_id", certificate.key_id()).field("ca", fingerprint(certificate.signature_key()))
}

/// Whether a client is let in that holds the key of `certificate`.
pub(super) async fn certified(shared: &Shared, user: &str, certificate: &Certificate) -> bool {
    shared.opening.reached(Phase::Authentication);
    if !shared.back_end.is_decided_here() {
        return shared.let_in_undecided(user);
    }
    match authorise(shared, user, certificate).await {
        Ok(access) => {
            // Once authenticated, a client cannot come back here (RFC 4252 §5.1).
            let _ = shared.access.set(access);
            true
        }
        Err(reason) => {
            tracing::info!(%reason, login = user, "refused a certificate");
            false
        }
    }
}

/// What the login `user` may do with `certificate`.
///
/// # Errors
/// What is wrong with a certificate that is not authentic.
async fn authorise(shared: &Shared, user: &str, certificate: &Certificate) -> Result<Access, CaError> {
    let directory = &shared.server.directory;
    let now = OffsetDateTime::now_utc();
    let identity = match directory.trust().verify_user_ssh(certificate, now) {
        Ok(identity) => identity,
        Err(error) => {
            let event = shared.event(Code::SessionRefused).message(error.to_string()).login(user);
            shared.refused(named(event, certificate));
            return Err(error);
        }
    };
    shared.saw(Some(&identity));
    Ok(enter(shared, user, identity, Proof::Ssh(certificate)).await)
}

/// What the login `user` may do for an identity that is proven.
pub(super) async fn enter(shared: &Shared, user: &str, identity: Identity, proof: Proof<'_>) -> Access {
    let directory = &shared.server.directory;
    let now = OffsetDateTime::now_utc();
    let span = tracing::Span::current();
    span.record("user", identity.display_name());
    span.record("login", user);
    let refuse = |refused: EntryRefused| {
        let (internal, rule) = refused.internal();
        let mut event =
            shared.event(Code::SessionRefused).user(identity.display_name()).login(user).message(internal);
        if let Some(rule) = rule {
            event = event.field("rule", rule);
        }
        shared.refused(event);
        Access::Refused(Arc::new(refused))
    };
    let login = match Login::new(user) {
        Ok(login) => login,
        Err(error) => return refuse(error.into()),
    };
    let node = directory.node();
    if user == JOIN_LOGIN {
        return match directory.policies().may_reach_to_join(&identity, &node, &directory.locks(), now) {
            Ok(permit) => match evidence(shared, &identity, permit.factor(), proof).await {
                Ok(_) => Access::Joining(Box::new(identity)),
                Err(missing) => refuse(missing.into()),
            },
            Err(refusal) => refuse(refusal.into()),
        };
    }
    let permit = match directory.policies().decide(&identity, &*node, &login, &directory.locks(), now) {
        Ok(permit) => permit,
        Err(refusal) => return refuse(refusal.into()),
    };
    let covered = match (proof, &identity.principal) {
        (Proof::Ssh(certificate), _) => certificate.valid_principals().iter().any(|name| name == user),
        (Proof::Native(_), Principal::User { logins, .. }) => logins.contains(&login),
        (Proof::Native(_), Principal::Host { .. }) => false,
    };
    if !covered {
        return refuse(EntryRefused::NotCertified { login });
    }
    let evidence = match evidence(shared, &identity, permit.factor(), proof).await {
        Ok(evidence) => evidence,
        Err(missing) => return refuse(missing.into()),
    };
    match shared.back_end.enter(&identity, proof, &permit).await {
        Ok(place) => {
            let since = Instant::now();
            Access::Granted(Box::new(Granted { identity, login, place, permit, evidence, since }))
        }
        Err(error) => refuse(error.into()),
    }
}

/// What has to hold before anything is done on this connection, whichever protocol it has: where the login counts, and the second factor.
async fn evidence(
    shared: &Shared,
    identity: &Identity,
    demand: Option<&FactorDemand>,
    proof: Proof<'_>,
) -> Result<Evidence, Missing> {
    let shown = || match proof {
        Proof::Ssh(certificate) => {
            certificate.to_openssh().map(Shown::Ssh).map_err(|error| error.to_string())
        }
        Proof::Native(certificate) => Ok(Shown::Tls(certificate.clone())),
    };
    let from = shared.info.client_addr;
    Evidence::gather(identity, demand, shared.server.directory.factors(), shown, from).await
}
