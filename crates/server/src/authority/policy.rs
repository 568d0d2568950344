//! The policy in memory, so that no call has to ask the database for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt as _;
use parking_lot::RwLock;
use sallyport_access::{
    Identity, Lock, LoginRuleError, LoginRules, Policies, PolicyError, Principal, Role, SESSION_POLICY_NAME,
    SessionPolicy,
};
use sallyport_ca::SshOptions;
use sallyport_store::{Store, StoreError};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tracing::error;

use crate::ServerError;
use crate::authority::gate::proofs::ProofTable;
use crate::authority::records::{LockRecord, LoginRuleRecord, RoleRecord, SessionPolicyRecord};
use crate::authority::sso::document;
use crate::authority::sso::records::ConnectorRecord;
use crate::authority::storage::every;

/// Changes after which the policy is read anew at the latest, where more and more come.
const AT_ONCE: usize = 10_000;

/// Roles, locks and nodes as they are now. Replaced as a whole with every change.
#[derive(Debug)]
pub(crate) struct ClusterCache {
    pub(crate) policies: Arc<Policies>,
    pub(crate) roles: BTreeMap<String, Role>,
    pub(crate) locks: Arc<[Lock]>,
    /// There is a connector of single sign-on.
    pub(crate) single_sign_on: bool,
    pub(crate) login_rules: Arc<LoginRules>,
}

/// Reads and compiles what there is.
async fn load(store: &Store) -> Result<ClusterCache, ServerError> {
    let now = OffsetDateTime::now_utc();
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| ServerError::Authority {
        action: "read its policy".to_owned(),
        source,
    };
    let mut parsed = BTreeMap::new();
    for stored in every::<RoleRecord>(store, now).await.map_err(|error| failed(error.into()))? {
        let role = Role::parse(&stored.value.yaml).map_err(|error| failed(error.into()))?;
        parsed.insert(stored.name, role);
    }
    let roles: Vec<Role> = parsed.values().cloned().collect();
    let sessions = store
        .get::<SessionPolicyRecord>(SESSION_POLICY_NAME, now)
        .await
        .map_err(|error| failed(error.into()))?
        .map(|stored| SessionPolicy::parse(&stored.value.yaml))
        .transpose()
        .map_err(|error| failed(error.into()))?;
    let policies =
        Policies::compile_with(&roles, sessions.unwrap_or_default()).map_err(|error| failed(error.into()))?;
    let mut locks = Vec::new();
    for stored in every::<LockRecord>(store, now).await.map_err(|error| failed(error.into()))? {
        locks.push(Lock::parse(&stored.value.yaml).map_err(|error| failed(error.into()))?);
    }
    let connectors =
        store.list::<ConnectorRecord>(None, 1, now).await.map_err(|error| failed(error.into()))?;
    // Logins that are open go on under a rule that is none any more, and locks and roles count: it stands in the way of new logins alone.
    let kept = every::<LoginRuleRecord>(store, now).await.map_err(|error| failed(error.into()))?;
    let login_rules = LoginRules::kept(kept.into_iter().map(|stored| (stored.name, stored.value.yaml)));
    Ok(ClusterCache {
        policies: Arc::new(policies),
        roles: parsed,
        locks: locks.into(),
        single_sign_on: !connectors.is_empty(),
        login_rules: Arc::new(login_rules),
    })
}

/// The login rules that are none of this release, and that an operator was not told of when the policy was read before.
fn newly_broken<'a>(before: Option<&LoginRules>, now: &'a LoginRules) -> Vec<&'a LoginRuleError> {
    let told: Vec<&LoginRuleError> = before.into_iter().flat_map(LoginRules::broken).collect();
    now.broken().filter(|broken| !told.contains(broken)).collect()
}

fn tell_broken(before: Option<&LoginRules>, now: &LoginRules) {
    for broken in newly_broken(before, now) {
        error!(
            rule = broken.rule,
            problem = broken.problem,
            "a login rule is none of this release: logins are refused by it"
        );
    }
}

/// A role that parses and does not compile.
pub(crate) fn not_compiled(error: &PolicyError) -> Status {
    Status::invalid_argument(ServerError::chain(error))
}

/// Roles, locks and the session policy as they are now.
#[derive(Debug)]
pub(crate) struct Policy {
    store: Store,
    cache: RwLock<Arc<ClusterCache>>,
    /// Held while the cache is read anew.
    refreshing: tokio::sync::Mutex<()>,
    /// Counts changes of what callers may do.
    changes: watch::Sender<u64>,
    /// What administrators have proven; a lock voids it.
    proofs: ProofTable,
    stop: CancellationToken,
}

impl Policy {
    /// Reads the policy.
    ///
    /// # Errors
    /// [`ServerError`] when it cannot be read.
    pub(crate) async fn load(store: &Store, stop: &CancellationToken) -> Result<Arc<Self>, ServerError> {
        let cache = load(store).await?;
        tell_broken(None, &cache.login_rules);
        Ok(Arc::new(Self {
            store: store.clone(),
            cache: RwLock::new(Arc::new(cache)),
            refreshing: tokio::sync::Mutex::new(()),
            changes: watch::Sender::new(0),
            proofs: ProofTable::default(),
            stop: stop.clone(),
        }))
    }

    /// The policy now.
    pub(crate) fn cache(&self) -> Arc<ClusterCache> {
        Arc::clone(&self.cache.read())
    }

    /// What administrators have proven for what is dangerous.
    pub(crate) fn proofs(&self) -> &ProofTable {
        &self.proofs
    }

    /// Wakes when callers may do something else than before.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Has streams and hosts of this process ask again what they may.
    pub(crate) fn changed(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    pub(crate) async fn refresh_after(&self, kind: &str) -> Result<(), Status> {
        if matches!(kind, "role" | "lock" | "login_rule" | "session_policy" | document::KIND) {
            self.refresh().await.map_err(|problem| {
                tracing::error!(
                    problem = crate::ServerError::chain(&problem),
                    "the policy could not be read"
                );
                Status::internal(
                    "written, but the policy could not be read again; the authority's log says why",
                )
            })?;
        }
        Ok(())
    }

    /// What the certificate of a user permits: all that one of the roles allows somewhere. What the others forbid is
    /// decided at each session; a certificate that lacks the permission would take it from sessions where a role grants
    /// it.
    pub(crate) fn ssh_options(&self, identity: &Identity) -> SshOptions {
        let Principal::User { roles, .. } = &identity.principal else { return SshOptions::default() };
        let allowed = self.cache().policies.forwarding_for(roles);
        SshOptions {
            permit_pty: true,
            port_forwarding: allowed.ports,
            agent_forwarding: allowed.agent,
            x11_forwarding: allowed.x11,
        }
    }

    /// Reads roles and locks anew; called after every change to them.
    pub(crate) async fn refresh(&self) -> Result<(), ServerError> {
        // One after another: what was read before a lock came must not take the place of what was read after.
        let _alone = self.refreshing.lock().await;
        let cache = load(&self.store).await?;
        tell_broken(Some(&self.cache().login_rules), &cache.login_rules);
        let cache = Arc::new(cache);
        *self.cache.write() = Arc::clone(&cache);
        let now = OffsetDateTime::now_utc();
        self.proofs.void(|identity| cache.policies.locked_out(identity, &cache.locks, now).is_some());
        self.changed();
        Ok(())
    }

    /// Keeps the cache true when resources expire or another authority changes them.
    pub(crate) async fn follow(self: Arc<Self>) {
        loop {
            let now = OffsetDateTime::now_utc();
            let prefixes = ["role/", "lock/", "login_rule/", "session_policy/"].map(str::to_owned).to_vec();
            let mut watch = match self.store.backend().watch(prefixes, now).await {
                Ok(watch) => watch,
                Err(StoreError::Closed) => return,
                Err(problem) => {
                    error!(%problem, "the policy cannot be followed; trying again");
                    tokio::select! {
                        () = tokio::time::sleep(std::time::Duration::from_secs(5)) => continue,
                        () = self.stop.cancelled() => return,
                    }
                }
            };
            if let Err(problem) = self.refresh().await {
                error!(
                    problem = ServerError::chain(&problem),
                    "the policy could not be read; the earlier one stays"
                );
            }
            loop {
                let change = tokio::select! {
                    change = watch.changes.next() => change,
                    () = self.stop.cancelled() => return,
                };
                match change {
                    Ok(_) => {
                        // What has come together is read once: each of a thousand locks does not read the other thousand.
                        let more = std::iter::from_fn(|| watch.changes.next().now_or_never());
                        let ended = more.take(AT_ONCE).find_map(Result::err);
                        if let Err(problem) = self.refresh().await {
                            error!(
                                problem = ServerError::chain(&problem),
                                "the policy could not be read; the earlier one stays"
                            );
                        }
                        match ended {
                            None => {}
                            Some(StoreError::Lagged { .. }) => break,
                            Some(_) => return,
                        }
                    }
                    Err(StoreError::Lagged { .. }) => break,
                    Err(_) => return,
                }
            }
        }
    }

    /// Removes what has expired, so that watchers hear of it.
    pub(crate) async fn sweep(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(std::time::Duration::from_secs(2));
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.stop.cancelled() => return,
            }
            if let Err(problem) = self.store.backend().sweep(OffsetDateTime::now_utc()).await {
                error!(%problem, "expired state could not be removed");
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn rules(each: &[(&str, &str)]) -> LoginRules {
        LoginRules::kept(each.iter().map(|(name, yaml)| ((*name).to_owned(), (*yaml).to_owned())))
    }

    #[test]
    fn a_broken_login_rule_is_told_of_once_until_it_is_written_anew() {
        let told = |before: Option<&LoginRules>, now: &LoginRules| -> Vec<String> {
            newly_broken(before, now).into_iter().map(|broken| broken.rule.clone()).collect()
        };
        let one = rules(&[("office", "kind: login_rule")]);
        assert_eq!(told(None, &one), ["office"]);
        assert!(told(Some(&one), &one).is_empty(), "it was read again");
        let more = rules(&[("night", "kind: login_rule"), ("office", "kind: login_rule")]);
        assert_eq!(told(Some(&one), &more), ["night"]);
        let written = rules(&[("office", "kind: login_rule\nversion: v9")]);
        assert_eq!(told(Some(&one), &written), ["office"]);
        assert_eq!(told(Some(&rules(&[])), &one), ["office"], "it was gone in between");
    }
}
