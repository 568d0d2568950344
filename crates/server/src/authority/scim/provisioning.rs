//! The service of provisioning, and what its parts share.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sallyport_access::ResourceName;
use sallyport_store::Store;

use super::known::Known;
use crate::authority::audit::journal::Journal;
use crate::authority::config::AuthConfig;
use crate::authority::gate::calls::Gate;
use crate::authority::gate::delegation::Delegation;
use crate::authority::gate::guesses::Guesses;
use crate::authority::identities::known::Identities;
use crate::authority::identities::logins::Logins;
use crate::authority::policy::Policy;

/// What SCIM clients have said, and their tokens.
#[derive(Debug)]
pub(crate) struct Provisioning {
    pub(super) config: Arc<AuthConfig>,
    pub(super) store: Store,
    pub(super) journal: Arc<Journal>,
    pub(super) gate: Arc<Gate>,
    pub(super) guesses: Arc<Guesses>,
    pub(super) delegation: Arc<Delegation>,
    pub(super) policy: Arc<Policy>,
    pub(super) identities: Arc<Identities>,
    pub(super) logins: Arc<Logins>,
    /// Written while something that clients have said changes; taken before `Identities::change`.
    pub(super) changing: tokio::sync::RwLock<()>,
    /// What each connector's client has here, once it was read.
    pub(super) known: Mutex<BTreeMap<ResourceName, Arc<Known>>>,
}

impl Provisioning {
    /// Keeps what clients have said as it is. Taken before `Identities::change`.
    pub(crate) async fn steady(&self) -> tokio::sync::RwLockReadGuard<'_, ()> {
        self.changing.read().await
    }

    #[allow(clippy::too_many_arguments, reason = "each is one that it takes")]
    pub(crate) fn new(
        config: &Arc<AuthConfig>,
        store: &Store,
        journal: &Arc<Journal>,
        gate: &Arc<Gate>,
        guesses: &Arc<Guesses>,
        delegation: &Arc<Delegation>,
        policy: &Arc<Policy>,
        identities: &Arc<Identities>,
        logins: &Arc<Logins>,
    ) -> Arc<Self> {
        Arc::new(Self {
            config: Arc::clone(config),
            store: store.clone(),
            journal: Arc::clone(journal),
            gate: Arc::clone(gate),
            guesses: Arc::clone(guesses),
            delegation: Arc::clone(delegation),
            policy: Arc::clone(policy),
            identities: Arc::clone(identities),
            logins: Arc::clone(logins),
            changing: tokio::sync::RwLock::new(()),
            known: Mutex::default(),
        })
    }
}
