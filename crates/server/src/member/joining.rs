//! Becoming a member of the cluster, and staying one.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metrics::counter;
use sallyport_access::{ClusterName, HostRole, NodeName};
use sallyport_ca::{Trust, rotation};
use sallyport_sal::{Suite, selection};
use sallyport_wire::v1;
use sallyport_wire::v1::login_client::LoginClient;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tracing::{info, instrument, warn};

use crate::ServerError;
use crate::backoff::{Backoff, chance};
use crate::config::{HostPort, JoinConfig};
use crate::local_authority::{Issue, LocalAuthority};
use crate::member::authority_client::{AuthorityClient, first_contact};
use crate::member::cluster_cache::ClusterCache;
use crate::member::host::{Credentials, FreshKeys, HostIdentity, certificates};
use crate::member::host_keys;

/// An answer to a join or renewal takes two signatures.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// Timers of the runtime do not count suspended time; looking at the clock now and then does.
const LONGEST_SLEEP: Duration = Duration::from_secs(600);
/// How long the news of a CA may be behind a certificate of it.
const NEWS_PATIENCE: Duration = Duration::from_secs(10);
/// Whatever the authority says: a rotation waits for the last host.
const LONGEST_SPREAD: Duration = Duration::from_secs(900);

/// Which member this host becomes.
#[derive(Debug, Clone)]
pub(crate) struct Membership {
    pub(crate) cluster: ClusterName,
    pub(crate) role: HostRole,
    pub(crate) name: NodeName,
    /// Names and addresses that users reach a proxy by.
    pub(crate) public_names: Vec<String>,
    /// Whether the authority must say that it takes all cryptography from a FIPS module.
    pub(crate) require_fips: bool,
}

const NOT_FIPS: &str = "crypto.require_fips is set, and the cluster's authority does not run in FIPS mode";
const FIPS_FIX: &str = "set crypto.selection: fips where the authority runs, or take require_fips out here";
/// A host in FIPS mode follows its authority into it.
const NOT_FIPS_FIRST: &str = "crypto.selection is fips here, and the cluster's authority does not run in FIPS mode: its recordings are \
                              sealed to a key of X25519, which FIPS mode does not have, so that no session could be recorded here";
const FIPS_FIRST_FIX: &str = "set crypto.selection: fips where the authority runs and restart it, then start this host again; or take \
                              selection: fips out here until then";

/// A call of a host that is no member yet, which says whether this process takes all cryptography from a FIPS module. Those of
/// members say it by their channel.
pub(crate) fn saying<T>(message: T) -> tonic::Request<T> {
    sallyport_wire::fips::saying(message, selection::global().is_fips())
}

/// Whether a host that may require FIPS mode takes certificates from an authority that says this of itself with them.
fn takes(issued: &v1::HostCertificates, require_fips: bool) -> bool {
    !require_fips || issued.trust.as_ref().is_some_and(|trust| trust.fips)
}

impl Membership {
    fn what(&self) -> &'static str {
        role_name(self.role)
    }

    /// Whether this host may be a member where the authority says this of itself; `own` is whether this process is in FIPS mode.
    fn follows(&self, authority: bool, own: bool) -> Result<(), ServerError> {
        let (problem, fix) = match (authority, self.require_fips, own) {
            (true, ..) | (false, false, false) => return Ok(()),
            (false, true, _) => (NOT_FIPS, FIPS_FIX),
            (false, false, true) => (NOT_FIPS_FIRST, FIPS_FIRST_FIX),
        };
        Err(ServerError::Join { what: self.what(), problem: problem.to_owned(), fix: fix.to_owned() })
    }

    /// [`Membership::follows`] of a member that starts. An authority that does not answer is no reason not to start: the host
    /// serves without it, and is told when it renews.
    async fn still_follows(&self, address: &HostPort, identity: &HostIdentity) -> Result<(), ServerError> {
        let own = selection::global().is_fips();
        if !own && !self.require_fips {
            return Ok(());
        }
        let asked = async {
            let trust = Trust::from_bundle(&identity.trust)
                .map_err(|error| certificates("the stored trust of this host cannot be used", error))?;
            let mut login =
                LoginClient::<Channel>::new(first_contact(address, &trust.pin(), &self.cluster).await?);
            ping(&mut login, self.what(), address).await
        };
        match asked.await {
            Ok(answer) => self.follows(answer.fips, own),
            Err(error) => {
                warn!(error = %ServerError::chain(&error), "the authority cannot be asked whether it runs in FIPS mode");
                Ok(())
            }
        }
    }

    fn request(&self, token: String, keys: &FreshKeys) -> v1::JoinRequest {
        v1::JoinRequest {
            token,
            name: self.name.to_string(),
            role: self.what().to_owned(),
            ssh_public_key: keys.ssh_public(),
            tls_public_key: keys.tls_public().into(),
            public_names: self.public_names.clone(),
            cluster: self.cluster.to_string(),
            ..v1::JoinRequest::default()
        }
    }
}

/// The role's name on the wire.
pub(crate) fn role_name(role: HostRole) -> &'static str {
    role.name()
}

/// Loads the identity of an earlier join, or joins with the token.
#[instrument(name = "join", skip_all, fields(role = role_name(membership.role), address = %address))]
pub(crate) async fn load_or_join(
    path: &Path,
    membership: &Membership,
    address: &HostPort,
    join: &JoinConfig,
) -> Result<Credentials, ServerError> {
    if let Some(identity) = HostIdentity::load(path, &membership.cluster)? {
        if OffsetDateTime::now_utc() < identity.valid_until {
            membership.still_follows(address, &identity).await?;
            return Ok(Credentials::new(path.to_owned(), identity));
        }
        if !join.has_token() {
            return Err(ServerError::Join {
                what: membership.what(),
                problem: format!("its certificates expired at {}", identity.valid_until),
                fix: again(membership.what()),
            });
        }
        warn!(expired = %identity.valid_until, "the host certificates have expired; joining again");
    }
    let identity = with_token(membership, address, join).await?;
    identity.store(path)?;
    info!(id = %identity.id, name = %identity.name, "joined the cluster");
    Ok(Credentials::new(path.to_owned(), identity))
}

/// In FIPS mode a host makes no keys of a suite that is not for it.
fn may_follow(suite: Suite, fips: bool) -> Result<(), ServerError> {
    if !fips || suite.is_for_fips() {
        return Ok(());
    }
    Err(certificates(
        "cannot make host keys",
        format!(
            "crypto.selection is fips here, and the cluster's suite is {suite}, which is not for FIPS mode: change it (sallyport \
             admin suite set {}), or take selection: fips out here",
            Suite::FipsV1
        ),
    ))
}

/// The suite to make keys for where the authority says this. One that does not say, or that says a suite of a newer release, gets
/// keys that every release reads.
pub(crate) fn announced(suite: &str, fips: bool) -> Suite {
    suite.parse().unwrap_or(if fips { Suite::FipsV1 } else { Suite::default() })
}

async fn ping(
    login: &mut LoginClient<Channel>,
    what: &'static str,
    address: &HostPort,
) -> Result<v1::PingResponse, ServerError> {
    match tokio::time::timeout(CALL_TIMEOUT, login.ping(v1::PingRequest {})).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(ServerError::of_join(what, address, &status)),
        Err(_) => Err(ServerError::unanswered_join(what, address, CALL_TIMEOUT)),
    }
}

/// Keys may be slow to make: no thread that serves connections waits for them.
async fn fresh_keys(name: &str, suite: Suite) -> Result<FreshKeys, ServerError> {
    may_follow(suite, selection::global().is_fips())?;
    let name = name.to_owned();
    let made = tokio::task::spawn_blocking(move || FreshKeys::generate(&name, suite)).await;
    made.map_err(|error| certificates("cannot make host keys", error))?
}

/// Loads the identity of an earlier start, or has the authority in this process issue one.
#[instrument(name = "issue", skip_all, fields(role = role_name(membership.role)))]
pub(crate) async fn load_or_issue(
    path: &Path,
    membership: &Membership,
    authority: &LocalAuthority,
) -> Result<Credentials, ServerError> {
    let now = OffsetDateTime::now_utc();
    let trust = (authority.trust)();
    // A rotation may have ended while this service was not part of the process.
    let pins = Trust::from_bundle(&trust).map(|trust| trust.pins()).unwrap_or_default();
    let kept = HostIdentity::load(path, &membership.cluster)?.filter(|kept| {
        let trusted = rotation::signed_by(&kept.tls_chain).is_some_and(|pin| pins.contains(&pin));
        trusted && now < kept.valid_until && kept.name == membership.name
    });
    let with_kept = |kept: HostIdentity| {
        let stale = kept.trust != trust;
        let identity = HostIdentity { trust: trust.clone(), ..kept };
        // The authority of this process is asked for it anew at each start.
        if stale && let Err(error) = identity.store(path) {
            warn!(error = %ServerError::chain(&error), "a changed trust cannot be stored");
        }
        Credentials::new(path.to_owned(), identity)
    };
    let kept = match kept {
        Some(kept) if now < kept.renew_at() => return Ok(with_kept(kept)),
        kept => kept,
    };
    let suite = announced(&trust.suite, selection::global().is_fips());
    let issued = issue_afresh(membership, &authority.issue, suite).await;
    match (issued.and_then(|identity| identity.store(path).map(|()| identity)), kept) {
        (Ok(identity), _) => Ok(Credentials::new(path.to_owned(), identity)),
        // As on a full disk: they are renewed as soon as that works.
        (Err(error), Some(kept)) => {
            warn!(error = %ServerError::chain(&error), valid_until = %kept.valid_until, "host certificates not renewed yet");
            Ok(with_kept(kept))
        }
        (Err(error), None) => Err(error),
    }
}

async fn issue_afresh(
    membership: &Membership,
    issue: &Issue,
    suite: Suite,
) -> Result<HostIdentity, ServerError> {
    let keys = fresh_keys(membership.name.as_str(), suite).await?;
    let issued = issue(membership.request(String::new(), &keys)).await?;
    keys.certified(issued, &membership.cluster, OffsetDateTime::now_utc())
}

/// Has the authority in this process issue new certificates whenever they are due, until `stop`.
pub(crate) async fn keep_issued(
    credentials: Credentials,
    view: Arc<ClusterCache>,
    membership: Membership,
    issue: Issue,
    stop: CancellationToken,
) {
    let due = Due { credentials: credentials.clone(), view, spread: Spread::default() };
    let forever = async {
        loop {
            due.wait().await;
            let suite = due.view.trust().suite();
            let renewed = issue_afresh(&membership, &issue, suite).await;
            if let Err(error) = renewed.and_then(|identity| credentials.replace(identity)) {
                warn!(error = %ServerError::chain(&error), "host certificates not renewed; trying again");
                tokio::time::sleep(FIRST_PAUSE).await;
            }
        }
    };
    tokio::select! {
        () = forever => {}
        () = stop.cancelled() => {}
    }
}

/// Over which time the hosts of a cluster spread renewals that a rotation asks of all of them at once; the authority
/// says, because it knows how many they are. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spread(Arc<AtomicU64>);

impl Spread {
    pub(crate) fn set(&self, spread: Duration) {
        let milliseconds = u64::try_from(spread.as_millis()).unwrap_or(u64::MAX);
        self.0.store(milliseconds, Ordering::Relaxed);
    }

    fn pause(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed)).min(LONGEST_SPREAD).mul_f64(chance())
    }
}

/// What the trust in force says of the CA that signed this host's certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It is the one that signs.
    Good,
    /// Another one signs, or the suite wants other keys.
    Left,
    /// It is not trusted: forgotten before this host knew, or so new that the news are still on their way.
    Unknown,
}

/// When new certificates are due.
struct Due {
    credentials: Credentials,
    view: Arc<ClusterCache>,
    spread: Spread,
}

impl Due {
    /// Waits until they are: because of their age, because the host CA that signed them is being left, or because the
    /// cluster's suite has changed.
    async fn wait(&self) {
        let mut trusted = self.view.changes();
        loop {
            trusted.mark_unchanged();
            match self.standing() {
                Standing::Good => {}
                Standing::Left => {
                    host_keys::prepare(self.view.trust().suite());
                    tokio::time::sleep(self.spread.pause()).await;
                    // The rotation may have been rolled back meanwhile.
                    if self.standing() != Standing::Good {
                        return;
                    }
                    continue;
                }
                Standing::Unknown => {
                    tokio::time::sleep(NEWS_PATIENCE).await;
                    if self.standing() == Standing::Unknown {
                        return;
                    }
                    continue;
                }
            }
            tokio::select! {
                () = self.of_age() => return,
                changed = trusted.changed() => if changed.is_err() {
                    return self.of_age().await;
                },
            }
        }
    }

    fn standing(&self) -> Standing {
        let (trust, identity) = (self.view.trust(), self.credentials.identity());
        if identity.suite != trust.suite() {
            return Standing::Left;
        }
        let pins = trust.pins();
        let Some(signed_by) = rotation::signed_by(&identity.tls_chain) else { return Standing::Good };
        match pins.iter().position(|trusted| *trusted == signed_by) {
            Some(0) => Standing::Good,
            Some(_) => Standing::Left,
            None => Standing::Unknown,
        }
    }

    async fn of_age(&self) {
        loop {
            let left = self.credentials.identity().renew_at() - OffsetDateTime::now_utc();
            if left <= time::Duration::ZERO {
                return;
            }
            let left = left.unsigned_abs();
            if left <= LONGEST_SLEEP {
                host_keys::prepare(self.view.trust().suite());
            }
            let left = left.min(LONGEST_SLEEP);
            // A thousand agents that joined together need not renew together.
            tokio::time::sleep(left.mul_f64(1.0 - 0.05 * chance())).await;
        }
    }
}

fn again(what: &str) -> String {
    format!(
        "run `sallyport admin tokens add --role {what}` on the authority and put the token and the pin under {what}.join"
    )
}

async fn with_token(
    membership: &Membership,
    address: &HostPort,
    join: &JoinConfig,
) -> Result<HostIdentity, ServerError> {
    let what = membership.what();
    let missing = |problem: &str| ServerError::Join { what, problem: problem.to_owned(), fix: again(what) };
    let token = match (&join.token, &join.token_file) {
        (Some(token), _) => token.clone(),
        (None, Some(path)) => {
            let text = std::fs::read_to_string(path).map_err(|source| ServerError::File {
                action: "read the join token in",
                path: path.clone(),
                source,
            })?;
            crate::config::Secret::new(text.trim())
        }
        (None, None) => return Err(missing("no join token is configured")),
    };
    let pin = join.ca_pin.as_deref().ok_or_else(|| missing("no CA pin is configured"))?;
    let channel = first_contact(address, pin, &membership.cluster).await?;
    let mut login = LoginClient::<Channel>::new(channel);
    let own = selection::global().is_fips();
    // Asked before the token is spent: a host that demands FIPS mode refuses the certificates of an authority that is not in it.
    let suite = match ping(&mut login, what, address).await {
        Ok(answer) => {
            membership.follows(answer.fips, own)?;
            announced(&answer.suite, own)
        }
        Err(error) if own || membership.require_fips => return Err(error),
        Err(_) => Suite::default(),
    };
    let keys = fresh_keys(membership.name.as_str(), suite).await?;
    let request = membership.request(token.expose().to_owned(), &keys);
    let answer = tokio::time::timeout(CALL_TIMEOUT, login.join(saying(request))).await;
    let issued = match answer {
        Ok(Ok(issued)) => issued.into_inner(),
        Ok(Err(status)) => return Err(ServerError::of_join(what, address, &status)),
        Err(_) => return Err(ServerError::unanswered_join(what, address, CALL_TIMEOUT)),
    };
    if !takes(&issued, membership.require_fips) {
        return Err(ServerError::Join { what, problem: NOT_FIPS.to_owned(), fix: FIPS_FIX.to_owned() });
    }
    keys.certified(issued, &membership.cluster, OffsetDateTime::now_utc())
}

/// Renews certificates for as long as the process runs.
pub(crate) struct Renewal {
    pub(crate) credentials: Credentials,
    pub(crate) view: Arc<ClusterCache>,
    pub(crate) client: AuthorityClient,
    pub(crate) public_names: Vec<String>,
    pub(crate) spread: Spread,
    /// As in [`Membership`].
    pub(crate) require_fips: bool,
}

impl Renewal {
    /// Runs until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        tokio::select! {
            () = self.forever() => {}
            () = stop.cancelled() => {}
        }
    }

    async fn forever(&self) {
        let due = Due {
            credentials: self.credentials.clone(),
            view: Arc::clone(&self.view),
            spread: self.spread.clone(),
        };
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            due.wait().await;
            match self.renew().await {
                Ok(valid_until) => {
                    info!(%valid_until, "host certificates renewed");
                    backoff.reset();
                }
                Err(error) => {
                    let until = self.credentials.identity().valid_until;
                    warn!(error = %ServerError::chain(&error), valid_until = %until, "host certificates not renewed; trying again");
                    backoff.wait().await;
                }
            }
        }
    }

    async fn renew(&self) -> Result<OffsetDateTime, ServerError> {
        let old = self.credentials.identity();
        let keys = fresh_keys(old.name.as_str(), self.view.trust().suite()).await?;
        let request = v1::RenewHostRequest {
            ssh_public_key: keys.ssh_public(),
            tls_public_key: keys.tls_public().into(),
            public_names: self.public_names.clone(),
        };
        let mut fleet = self.client.fleet();
        let answer = tokio::time::timeout(CALL_TIMEOUT, fleet.renew_host(request)).await;
        let outcome = if matches!(answer, Ok(Ok(_))) { "ok" } else { "error" };
        counter!("sallyport_authority_calls_total", "method" => "RenewHost", "result" => outcome)
            .increment(1);
        let issued = answer
            .map_err(|_| certificates("cannot renew the host certificates", "no answer from the authority"))?
            .map_err(|status| {
                certificates("cannot renew the host certificates", status.message().to_owned())
            })?
            .into_inner();
        if !takes(&issued, self.require_fips) {
            return Err(certificates(
                "cannot renew the host certificates",
                format!("{NOT_FIPS}; {FIPS_FIX}"),
            ));
        }
        if !issued.refused_names.is_empty() {
            warn!(
                names = issued.refused_names.join(", "),
                "these names are not in the renewed certificates, because this host did not join with them; for a host of \
                 other names: sallyport admin tokens add --replace {}",
                old.name
            );
        }
        let identity = keys.certified(issued, &old.cluster, OffsetDateTime::now_utc())?;
        let valid_until = identity.valid_until;
        self.credentials.replace(identity)?;
        Ok(valid_until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_in_fips_mode_follows_its_authority_into_it() {
        let host = |require_fips| Membership {
            cluster: ClusterName::new("test.example").unwrap(),
            role: HostRole::Node,
            name: NodeName::new("web-1").unwrap(),
            public_names: Vec::new(),
            require_fips,
        };
        for (require_fips, own) in [(false, false), (false, true), (true, true)] {
            host(require_fips).follows(true, own).unwrap();
        }
        host(false).follows(false, false).unwrap();
        for (require_fips, says) in [(false, "take selection: fips out"), (true, "take require_fips out")] {
            let text = ServerError::chain(&host(require_fips).follows(false, true).unwrap_err());
            assert!(text.contains("authority does not run in FIPS mode") && text.contains(says), "{text}");
        }
    }

    #[test]
    fn an_authority_that_names_no_suite_gets_keys_that_fit_the_mode() {
        for fips in [false, true] {
            assert_eq!(announced("legacy", fips), Suite::Legacy);
            for unknown in ["", "fips-v9"] {
                assert_eq!(announced(unknown, fips).is_for_fips(), fips, "{unknown}");
            }
        }
    }

    #[test]
    fn a_host_in_fips_mode_follows_no_suite_that_is_not_for_it() {
        for suite in Suite::ALL.iter().copied() {
            may_follow(suite, false).unwrap();
            let refused = may_follow(suite, true);
            assert_eq!(refused.is_ok(), suite.is_for_fips(), "{suite}");
            if let Err(error) = refused {
                let text = ServerError::chain(&error);
                assert!(text.contains(suite.name()) && text.contains("admin suite set fips-v1"), "{text}");
            }
        }
    }
}
