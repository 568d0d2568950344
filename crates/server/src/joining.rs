//! Becoming a member of the cluster, and staying one.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use metrics::counter;
use sallyport_access::{ClusterName, HostRole, NodeName};
use sallyport_wire::v1;
use sallyport_wire::v1::login_client::LoginClient;
use time::OffsetDateTime;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tracing::{info, instrument, warn};

use crate::ServerError;
use crate::authority_client::{AuthorityClient, first_contact};
use crate::backoff::{Backoff, chance};
use crate::config::{HostPort, JoinConfig};
use crate::host::{Credentials, FreshKeys, HostIdentity, certificates};

/// An answer to a join or renewal takes two signatures.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// Timers of the runtime do not count suspended time; looking at the clock now and then does.
const LONGEST_SLEEP: Duration = Duration::from_secs(600);

/// Which member this host becomes.
#[derive(Debug, Clone)]
pub(crate) struct Membership {
    pub(crate) cluster: ClusterName,
    pub(crate) role: HostRole,
    pub(crate) name: NodeName,
    /// Names and addresses that users reach a proxy by.
    pub(crate) public_names: Vec<String>,
}

impl Membership {
    fn what(&self) -> &'static str {
        role_name(self.role)
    }

    fn request(&self, token: String, keys: &FreshKeys) -> v1::JoinRequest {
        v1::JoinRequest {
            token,
            name: self.name.to_string(),
            role: self.what().to_owned(),
            ssh_public_key: keys.ssh_public(),
            tls_public_key: keys.tls_public().into(),
            public_names: self.public_names.clone(),
        }
    }
}

/// The role's name on the wire.
pub(crate) fn role_name(role: HostRole) -> &'static str {
    match role {
        HostRole::Node => "node",
        HostRole::Proxy => "proxy",
        HostRole::Auth => "auth",
    }
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

/// Makes certificates for a member of the authority's own process.
pub(crate) type Issue = Arc<
    dyn Fn(v1::JoinRequest) -> BoxFuture<'static, Result<v1::HostCertificates, ServerError>> + Send + Sync,
>;

/// Loads the identity of an earlier start, or has the authority in this process issue one.
#[instrument(name = "issue", skip_all, fields(role = role_name(membership.role)))]
pub(crate) async fn load_or_issue(
    path: &Path,
    membership: &Membership,
    issue: &Issue,
) -> Result<Credentials, ServerError> {
    let now = OffsetDateTime::now_utc();
    if let Some(identity) = HostIdentity::load(path, &membership.cluster)?
        && now < identity.renew_at()
        && identity.name == membership.name
    {
        return Ok(Credentials::new(path.to_owned(), identity));
    }
    let identity = issue_afresh(membership, issue).await?;
    identity.store(path)?;
    Ok(Credentials::new(path.to_owned(), identity))
}

async fn issue_afresh(membership: &Membership, issue: &Issue) -> Result<HostIdentity, ServerError> {
    let keys = FreshKeys::generate(membership.name.as_str())?;
    let issued = issue(membership.request(String::new(), &keys)).await?;
    keys.certified(issued, &membership.cluster, OffsetDateTime::now_utc())
}

/// Has the authority in this process issue new certificates whenever they are due, until `stop`.
pub(crate) async fn keep_issued(
    credentials: Credentials,
    membership: Membership,
    issue: Issue,
    stop: CancellationToken,
) {
    let forever = async {
        loop {
            wait_until_due(&credentials).await;
            let renewed = issue_afresh(&membership, &issue).await;
            if let Err(error) = renewed.and_then(|identity| credentials.replace(identity)) {
                warn!(error = %ServerError::chain(&error), "host certificates not renewed; trying again");
                tokio::time::sleep(LONGEST_PAUSE).await;
            }
        }
    };
    tokio::select! {
        () = forever => {}
        () = stop.cancelled() => {}
    }
}

async fn wait_until_due(credentials: &Credentials) {
    loop {
        let left = credentials.identity().renew_at() - OffsetDateTime::now_utc();
        if left <= time::Duration::ZERO {
            return;
        }
        let left = left.unsigned_abs().min(LONGEST_SLEEP);
        // A thousand agents that joined together need not renew together.
        tokio::time::sleep(left.mul_f64(1.0 - 0.05 * chance())).await;
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
    let keys = FreshKeys::generate(membership.name.as_str())?;
    let request = membership.request(token.expose().to_owned(), &keys);
    let mut login = LoginClient::<Channel>::new(channel);
    let answer = tokio::time::timeout(CALL_TIMEOUT, login.join(request)).await;
    let issued = match answer {
        Ok(Ok(issued)) => issued.into_inner(),
        Ok(Err(status)) => {
            return Err(ServerError::Join {
                what,
                problem: format!("the authority refused: {}", status.message()),
                fix: again(what),
            });
        }
        Err(_) => {
            return Err(ServerError::Join {
                what,
                problem: format!("no answer within {} s", CALL_TIMEOUT.as_secs()),
                fix: format!(
                    "check that {address} is reachable and that the authority runs, then start again"
                ),
            });
        }
    };
    keys.certified(issued, &membership.cluster, OffsetDateTime::now_utc())
}

/// Renews certificates for as long as the process runs.
pub(crate) struct Renewal {
    pub(crate) credentials: Credentials,
    pub(crate) client: AuthorityClient,
    pub(crate) public_names: Vec<String>,
    /// Told after each renewal.
    pub(crate) renewed: Arc<Notify>,
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
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            wait_until_due(&self.credentials).await;
            match self.renew().await {
                Ok(valid_until) => {
                    info!(%valid_until, "host certificates renewed");
                    backoff.reset();
                    self.renewed.notify_waiters();
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
        let keys = FreshKeys::generate(old.name.as_str())?;
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
        let identity = keys.certified(issued, &old.cluster, OffsetDateTime::now_utc())?;
        let valid_until = identity.valid_until;
        self.credentials.replace(identity)?;
        Ok(valid_until)
    }
}
