//! The connectors of the cluster: written, removed, and as they are now.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use sallyport_access::ResourceName;
use sallyport_audit::Code;
use sallyport_ca::jwt::KeySet;
use sallyport_sal::KeyAlgorithm;
use sallyport_sal::custody::{Custody as _, SealedCustody, SealingKey};
use sallyport_store::{Kind as _, Op, Store, Stored, typed};
use sallyport_wire::v1;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::claims::{Claims, Verdict, judge};
use super::connector::{ClientProof, Connector, KIND, Protocol, addressee};
use super::error::SsoError;
use super::failure::Failure;
use super::provider::Remote;
use super::records::ConnectorRecord;
use crate::ServerError;
use crate::authority::accounts::login::Accounts;
use crate::authority::audit::journal::Journal;
use crate::authority::caller::{Caller, shown};
use crate::authority::config::AuthConfig;
use crate::authority::gate::delegation::Delegation;
use crate::authority::identities::known::Identities;
use crate::authority::identities::logins::Logins;
use crate::authority::policy::Policy;
use crate::authority::records::KeyRecord;
use crate::authority::resources::documents::resource;
use crate::authority::scim::provisioning::Provisioning;
use crate::authority::storage::{Write, every, op, removed, storage};

/// What it takes to write a connector, in the refusal.
const WRITE: &str = "write or remove connectors of single sign-on";

/// The connectors, and who came by them.
#[derive(Debug)]
pub(crate) struct Connectors {
    pub(super) config: Arc<AuthConfig>,
    pub(super) store: Store,
    pub(super) seal: Arc<SealingKey>,
    pub(super) journal: Arc<Journal>,
    pub(super) delegation: Arc<Delegation>,
    pub(super) policy: Arc<Policy>,
    pub(super) identities: Arc<Identities>,
    pub(super) logins: Arc<Logins>,
    pub(super) accounts: Arc<Accounts>,
    pub(super) provisioning: Arc<Provisioning>,
    pub(super) stop: CancellationToken,
    /// Those that were used, with the revision of their documents: what is known of their providers is kept here.
    remotes: Mutex<BTreeMap<ResourceName, (u64, Arc<Remote>)>>,
}

/// The name of the key by which a connector proves this cluster.
pub(super) fn key_name(connector: &ResourceName) -> String {
    format!("sso-{connector}")
}

/// Whether a document is about other people than the one before, or gives them something else.
fn gives_otherwise(before: &ConnectorRecord, connector: &Connector) -> bool {
    let Ok(before) = Connector::parse(&before.yaml) else { return true };
    before.issuer != connector.issuer
        || before.protocol != connector.protocol
        || before.client_id != connector.client_id
        || before.mapping != connector.mapping
        || before.email_without_verification != connector.email_without_verification
}

impl Connectors {
    #[allow(clippy::too_many_arguments, reason = "each is one that it takes")]
    pub(crate) fn new(
        config: &Arc<AuthConfig>,
        store: &Store,
        seal: &Arc<SealingKey>,
        journal: &Arc<Journal>,
        delegation: &Arc<Delegation>,
        policy: &Arc<Policy>,
        identities: &Arc<Identities>,
        logins: &Arc<Logins>,
        accounts: &Arc<Accounts>,
        provisioning: &Arc<Provisioning>,
        stop: &CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            config: Arc::clone(config),
            store: store.clone(),
            seal: Arc::clone(seal),
            journal: Arc::clone(journal),
            delegation: Arc::clone(delegation),
            policy: Arc::clone(policy),
            identities: Arc::clone(identities),
            logins: Arc::clone(logins),
            accounts: Arc::clone(accounts),
            provisioning: Arc::clone(provisioning),
            stop: stop.clone(),
            remotes: Mutex::default(),
        })
    }

    /// Writes a connector. It is as good as every role that its provider can have it give, and as every name: it takes every right.
    pub(crate) async fn write(
        &self,
        caller: &Caller,
        connector: Connector,
        write: Write,
    ) -> Result<v1::Resource, Status> {
        self.delegation.must_administer(caller, write.method(), WRITE).await?;
        self.check(&connector).map_err(|error| Status::invalid_argument(ServerError::chain(&error)))?;
        let now = OffsetDateTime::now_utc();
        let (kind, name) = (connector.protocol.kind(), connector.name.to_string());
        let keys = self.key_steps(&connector, now).await?;
        // Before what `Identities::change` gives, as everywhere.
        let _provisioning = self.provisioning.change().await;
        let before = self.stored(&name, now).await?;
        if let Some(other) = before.as_ref().map(|before| before.value.kind())
            && (other != kind || matches!(write, Write::Create))
        {
            return Err(Status::already_exists(format!(
                "{other}/{name} is there: choose another name, or change or remove it (sallyport admin rm {other}/{name})"
            )));
        }
        self.check_people(&connector, before.as_ref(), now).await?;
        let record = ConnectorRecord { yaml: connector.to_yaml() };
        let mut steps = vec![op(&name, &record, None, write).map_err(|error| storage(&error))?];
        steps.extend(keys);
        // None is admitted by what the document said before.
        let _changing = self.identities.change().await;
        let is_meant = match write {
            Write::Create | Write::Anew => false,
            Write::Replace => true,
            Write::Update(revision) => before.as_ref().is_some_and(|before| before.revision == revision),
        };
        if let Some(before) = &before
            && is_meant
            && gives_otherwise(&before.value, &connector)
        {
            let why = "the connector of single sign-on was changed";
            // Another issuer's people are others, whatever their subjects are.
            let same =
                Connector::parse(&before.value.yaml).is_ok_and(|before| before.issuer == connector.issuer);
            self.end_people_of(caller, &name, !same, why, now).await?;
        }
        let revisions = self.store.backend().transact(steps, now).await.map_err(|error| storage(&error))?;
        self.policy.refresh_after(KIND).await?;
        let code = if before.is_some() { Code::ConnectorUpdated } else { Code::ConnectorCreated };
        let event = caller
            .event(code)
            .message(format!("{kind}/{name}"))
            .field("name", name.clone())
            .field("yaml", record.yaml.clone());
        self.journal.record(vec![event]).await?;
        Ok(resource(kind, &name, revisions.first().copied().unwrap_or_default(), None, record.yaml))
    }

    /// That a connector has the same people as before, or that nothing is left of what was said of others.
    async fn check_people(
        &self,
        connector: &Connector,
        before: Option<&Stored<ConnectorRecord>>,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        let Some(before) = before else {
            // What an interrupted removal of one of the name has left.
            return self.provisioning.forget(&connector.name, now).await;
        };
        if Connector::parse(&before.value.yaml).is_ok_and(|before| before.issuer == connector.issuer) {
            return Ok(());
        }
        if self.provisioning.has_tokens(&connector.name, now).await? {
            return Err(Status::failed_precondition(format!(
                "spec.issuer: what the SCIM client of the connector {name} says is about the people of the issuer before; remove its tokens \
                 first (sallyport admin scim token rm), or write a connector of another name",
                name = connector.name
            )));
        }
        self.provisioning.forget_people(&connector.name, now).await
    }

    /// Removes a connector, with its SCIM client's tokens and all that the client has made, and with the users who came by it and their
    /// logins, and with the links of local users.
    pub(crate) async fn delete(&self, caller: &Caller, kind: &str, name: &str) -> Result<(), Status> {
        self.delegation.must_administer(caller, "Admin.DeleteResource", WRITE).await?;
        let now = OffsetDateTime::now_utc();
        let missing = || Status::not_found(format!("there is no {kind} {}", shown(name)));
        // Before what `Identities::change` gives, as everywhere.
        let _provisioning = self.provisioning.change().await;
        let _changing = self.identities.change().await;
        let before = self.stored(name, now).await?;
        let before = before.filter(|before| before.value.kind() == kind).ok_or_else(missing)?;
        let why = "the connector of single sign-on was removed";
        self.end_people_of(caller, name, true, why, now).await?;
        let mut steps = vec![typed::delete::<ConnectorRecord>(name, Some(before.revision))];
        if let Ok(name) = ResourceName::new(name) {
            let key =
                self.store.get::<KeyRecord>(&key_name(&name), now).await.map_err(|error| storage(&error))?;
            if let Some(key) = key {
                steps.extend(removed(&key.name, &key.value).map_err(|error| storage(&error))?);
            }
            steps.extend(self.provisioning.without_tokens(&name, now).await?);
            self.remotes.lock().remove(&name);
        }
        self.store.backend().transact_urgent(steps, now).await.map_err(|error| storage(&error))?;
        self.policy.refresh_after(KIND).await?;
        let event = caller
            .event(Code::ConnectorDeleted)
            .message(format!("{kind}/{name}"))
            .field("name", name.to_owned());
        self.journal.record_urgent(vec![event]).await?;
        match ResourceName::new(name) {
            Ok(name) => self.provisioning.forget(&name, now).await,
            Err(_) => Ok(()),
        }
    }

    async fn stored(
        &self,
        name: &str,
        now: OffsetDateTime,
    ) -> Result<Option<Stored<ConnectorRecord>>, Status> {
        self.store.get::<ConnectorRecord>(name, now).await.map_err(|error| storage(&error))
    }

    /// Whether a connector is stored under the name of this one, with the same issuer: what its SCIM client says is about the same
    /// people.
    pub(super) async fn is_of_the_same_people(
        &self,
        connector: &Connector,
        now: OffsetDateTime,
    ) -> Result<bool, Failure> {
        let stored = self.stored(connector.name.as_str(), now).await.map_err(Failure::State)?;
        let same = |stored: &Stored<ConnectorRecord>| {
            Connector::parse(&stored.value.yaml).is_ok_and(|stored| stored.issuer == connector.issuer)
        };
        Ok(stored.is_some_and(|stored| same(&stored)))
    }

    /// The step that fails unless a connector is as it is here when the transaction is made: what it gives is decided by what the
    /// provider said some time after the document was read.
    ///
    /// # Errors
    /// [`SsoError::Changed`]: it is not so now.
    pub(super) async fn connector_stands(
        &self,
        connector: &Connector,
        now: OffsetDateTime,
    ) -> Result<Op, Failure> {
        let stored = self.stored(connector.name.as_str(), now).await.map_err(Failure::State)?;
        let stored = stored.ok_or(SsoError::Changed)?;
        if !Connector::parse(&stored.value.yaml).is_ok_and(|stands| stands == *connector) {
            return Err(SsoError::Changed.into());
        }
        let key = format!("{}/{}", ConnectorRecord::KIND, connector.name);
        Ok(Op::Check { key, revision: stored.revision })
    }

    /// What a connector's mapping makes of what is said of a person, with the roles that there are.
    pub(super) fn judge(&self, connector: &Connector, said: &Claims) -> Verdict {
        let cache = self.policy.cache();
        judge(connector, said, |role| cache.roles.contains_key(role))
    }

    /// What a document alone cannot say of itself.
    pub(super) fn check(&self, connector: &Connector) -> Result<(), SsoError> {
        if let ClientProof::SecretFile(path) = &connector.proof {
            self.check_file("client_secret_file", path)?;
        }
        // Nothing of it is sent, and what is in it is not for the document's author to learn.
        if let Some(path) = &connector.ca_file {
            self.check_file("ca_file", path)?;
        }
        // Of other providers their documents say whether they name themselves.
        let is_shared = connector.redirect_urls.iter().any(|url| addressee(url).is_empty());
        if is_shared && matches!(connector.protocol, Protocol::GitHub(_)) {
            return Err(SsoError::SharedAddress { connector: connector.name.clone() });
        }
        Ok(())
    }

    /// The authority's own secrets are sent to no provider. Which file a link leads to is looked at when it is read.
    pub(super) fn check_file(&self, key: &'static str, path: &Path) -> Result<(), SsoError> {
        match self.config.apart.refuses_path(path) {
            None => Ok(()),
            Some(problem) => Err(SsoError::OwnFile { key, path: path.display().to_string(), problem }),
        }
    }

    /// The steps that make the key of a connector that proves itself by one and has none of that algorithm.
    async fn key_steps(&self, connector: &Connector, now: OffsetDateTime) -> Result<Vec<Op>, Status> {
        let ClientProof::Key(algorithm) = &connector.proof else { return Ok(Vec::new()) };
        let (algorithm, name) = (*algorithm, key_name(&connector.name));
        let stored = self.store.get::<KeyRecord>(&name, now).await.map_err(|error| storage(&error))?;
        if stored.is_some_and(|stored| stored.value.0.algorithm == algorithm) {
            return Ok(Vec::new());
        }
        let key = self.make_key(&name, algorithm).await?;
        Ok(vec![typed::put(&name, &KeyRecord(key), None).map_err(|error| storage(&error))?])
    }

    /// Makes a key on no thread that serves connections: one of RSA takes long.
    async fn make_key(
        &self,
        name: &str,
        algorithm: KeyAlgorithm,
    ) -> Result<sallyport_sal::custody::StoredKey, Status> {
        let (custody, label) = (SealedCustody::new(Arc::clone(&self.seal)), name.to_owned());
        let made = tokio::task::spawn_blocking(move || custody.generate(&label, algorithm)).await;
        let made = made.map_err(|error| error.to_string());
        made.and_then(|made| made.map_err(|error| error.to_string())).map_err(|problem| {
            tracing::error!(problem, "the key of a connector could not be made");
            Status::internal("the connector's key could not be made; the authority's log says why")
        })
    }

    /// The public key of a connector as a key set (RFC 7517 §5), for its provider.
    ///
    /// # Errors
    /// There is no such connector, or it proves itself by a secret.
    pub(crate) async fn jwks(&self, name: &str) -> Result<String, Status> {
        let now = OffsetDateTime::now_utc();
        let missing = || Status::not_found(format!("there is no {KIND} {}", shown(name)));
        let connector = ResourceName::new(name).map_err(|_| missing())?;
        self.stored(name, now).await?.ok_or_else(missing)?;
        let key =
            self.store.get::<KeyRecord>(&key_name(&connector), now).await.map_err(|error| storage(&error))?;
        let key = key.ok_or_else(|| {
            Status::failed_precondition(format!(
                "the connector {name} has no key: it proves itself by client_secret_file; write private_key_jwt for a key"
            ))
        })?;
        let broken = |problem: String| {
            tracing::error!(problem, "the key of a connector cannot be read");
            Status::internal("the connector's key cannot be read; the authority's log says why")
        };
        let key = key.value.0.public_key().map_err(|error| broken(error.to_string()))?;
        let set = KeySet::new([&key]).and_then(|set| set.jwks());
        set.map_err(|error| broken(error.to_string()))
    }

    /// Every connector, in the order of their names. One that this release cannot read is left out, and said so.
    pub(crate) async fn all(&self, now: OffsetDateTime) -> Result<Vec<Arc<Remote>>, Status> {
        let stored = every::<ConnectorRecord>(&self.store, now).await.map_err(|error| storage(&error))?;
        Ok(stored.into_iter().filter_map(|stored| self.remote_of(stored).ok()).collect())
    }

    /// A connector by its name.
    ///
    /// # Errors
    /// There is none, or this release cannot read it.
    pub(crate) async fn remote(&self, name: &str, now: OffsetDateTime) -> Result<Arc<Remote>, Status> {
        let stored = self.stored(name, now).await?;
        let missing = || {
            Status::not_found(format!(
                "there is no single sign-on called {}; choose another way to log in",
                shown(name)
            ))
        };
        self.remote_of(stored.ok_or_else(missing)?)
    }

    fn remote_of(&self, stored: Stored<ConnectorRecord>) -> Result<Arc<Remote>, Status> {
        let mut remotes = self.remotes.lock();
        if let Ok(name) = ResourceName::new(stored.name.clone())
            && let Some((revision, remote)) = remotes.get(&name)
            && *revision == stored.revision
        {
            return Ok(Arc::clone(remote));
        }
        let connector = Connector::parse(&stored.value.yaml).map_err(|error| {
            tracing::error!(connector = stored.name, %error, "a connector of single sign-on cannot be read");
            Status::internal("this single sign-on cannot be used; the authority's log says why")
        })?;
        let name = connector.name.clone();
        let remote = Arc::new(Remote::new(connector));
        remotes.insert(name, (stored.revision, Arc::clone(&remote)));
        Ok(remote)
    }
}
