//! Resources as they are written.

use std::sync::Arc;

use sallyport_access::{Lock, LockTarget, Role, Verb};
use sallyport_audit::Code;
use sallyport_store::{Store, StoreError};
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::accounts::login::Accounts;
use crate::authority::audit::journal::Journal;
use crate::authority::caller::{Caller, shown};
use crate::authority::catalogue::register::{Catalogue, DatabaseRegister};
use crate::authority::counted::{self, NotMade};
use crate::authority::devices::voiding::Waiting;
use crate::authority::gate::calls::Gate;
use crate::authority::gate::delegation::Delegation;
use crate::authority::hosts::membership::Membership;
use crate::authority::hosts::registry::HostRegistry;
use crate::authority::hosts::servers::Servers;
use crate::authority::identities::known::Identities;
use crate::authority::policy::{Policy, not_compiled};
use crate::authority::records::{LockRecord, LoginRuleRecord, RoleRecord, SessionPolicyRecord};
use crate::authority::resources::documents::{Document, KINDS, Text, claimed_kind, kind_of, read, resource};
use crate::authority::resources::entered::check_document;
use crate::authority::sso::connectors::Connectors;
use crate::authority::storage::{Write, op, storage};
use crate::authority::workers::Workers;

/// The resources of the API: read, written and removed.
#[derive(Debug)]
pub(crate) struct Resources {
    pub(super) store: Store,
    pub(super) journal: Arc<Journal>,
    pub(super) gate: Arc<Gate>,
    pub(super) delegation: Arc<Delegation>,
    pub(super) policy: Arc<Policy>,
    pub(super) identities: Arc<Identities>,
    pub(super) registry: Arc<HostRegistry>,
    pub(super) databases: Arc<DatabaseRegister>,
    pub(super) catalogue: Arc<Catalogue>,
    pub(super) servers: Arc<Servers>,
    pub(super) membership: Arc<Membership>,
    pub(super) accounts: Arc<Accounts>,
    pub(super) connectors: Arc<Connectors>,
    pub(super) reading: Arc<Workers>,
}

/// Login rules of a cluster.
const MOST_LOGIN_RULES: usize = if cfg!(test) { 5 } else { 100 };

fn too_many_rules() -> Status {
    Status::failed_precondition(format!(
        "there are {MOST_LOGIN_RULES} login rules, of which each login meets every one; remove one, or put two together"
    ))
}

impl Resources {
    #[allow(clippy::too_many_arguments, reason = "each is one that it takes")]
    pub(crate) fn new(
        store: &Store,
        journal: &Arc<Journal>,
        gate: &Arc<Gate>,
        delegation: &Arc<Delegation>,
        policy: &Arc<Policy>,
        identities: &Arc<Identities>,
        registry: &Arc<HostRegistry>,
        databases: &Arc<DatabaseRegister>,
        catalogue: &Arc<Catalogue>,
        servers: &Arc<Servers>,
        membership: &Arc<Membership>,
        accounts: &Arc<Accounts>,
        connectors: &Arc<Connectors>,
        reading: &Arc<Workers>,
    ) -> Arc<Self> {
        Arc::new(Self {
            store: store.clone(),
            journal: Arc::clone(journal),
            gate: Arc::clone(gate),
            delegation: Arc::clone(delegation),
            policy: Arc::clone(policy),
            identities: Arc::clone(identities),
            registry: Arc::clone(registry),
            databases: Arc::clone(databases),
            catalogue: Arc::clone(catalogue),
            servers: Arc::clone(servers),
            membership: Arc::clone(membership),
            accounts: Arc::clone(accounts),
            connectors: Arc::clone(connectors),
            reading: Arc::clone(reading),
        })
    }

    /// The kind, when the API has it. Only a caller with a certificate learns which there are.
    pub(crate) async fn known_kind(
        &self,
        caller: &Caller,
        method: &'static str,
        kind: &str,
    ) -> Result<&'static str, Status> {
        if !matches!(caller, Caller::LocalAdmin) {
            self.gate.certified(caller, method).await?;
        }
        KINDS.iter().copied().find(|known| *known == kind).ok_or_else(|| {
            Status::invalid_argument(format!(
                "there is no kind {:?}; kinds are {}",
                shown(kind),
                KINDS.join(", ")
            ))
        })
    }

    /// Reads a document for a caller who may do all of this with its kind, and gives what it was judged as. No other is taken apart.
    pub(crate) async fn document(
        &self,
        caller: &Caller,
        method: &'static str,
        verbs: &[Verb],
        text: String,
    ) -> Result<(Document, Verb), Status> {
        let claimed = claimed_kind(&text);
        // Without a kind that can be told at a glance, only a caller who may write every kind may write it.
        let kinds = claimed.as_ref().map_or(KINDS.as_slice(), std::slice::from_ref);
        for kind in kinds {
            for verb in verbs {
                self.gate.allow(caller, method, kind, *verb).await?;
            }
        }
        let text = Text::new(text).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let read = self.reading.run(move || read(&kind_of(text.as_str())?, &text)).await;
        let document = read.map_err(|_| Status::internal("the document could not be read"))??;
        if claimed.is_none_or(|claimed| claimed == document.kind()) {
            let (kind, name) = (document.kind(), document.name());
            let verb = self.verb_of(verbs, kind, &name).await?;
            self.gate.allow_document(caller, method, verb, (kind, &name)).await?;
            return Ok((document, verb));
        }
        let status = Status::invalid_argument(
            "the document is of another kind than its line \"kind:\" says; write that line once, at the beginning",
        );
        Err(self.gate.refuse(caller, method, status).await)
    }

    /// What is done with a document that may be written with all of these verbs: what is there is changed by it.
    async fn verb_of(&self, verbs: &[Verb], kind: &str, name: &str) -> Result<Verb, Status> {
        let replaces = verbs.contains(&Verb::Update);
        let creates = verbs.contains(&Verb::Create);
        let is_new = creates && (!replaces || !self.exists(kind, name, OffsetDateTime::now_utc()).await?);
        Ok(if is_new { Verb::Create } else { Verb::Update })
    }

    pub(crate) async fn write(
        &self,
        caller: &Caller,
        document: Document,
        write: Write,
    ) -> Result<v1::Resource, Status> {
        check_document(&document)?;
        let document = match document {
            Document::Node(node) => return self.servers.write_node(caller, *node, write).await,
            Document::Database(database) => {
                return self.databases.write(caller, *database, write).await;
            }
            Document::Listed(listed) => return self.catalogue.write(caller, *listed, write).await,
            Document::Connector(connector) => return self.connectors.write(caller, *connector, write).await,
            Document::User(user) => return self.accounts.write_user(caller, user, write).await,
            other => other,
        };
        // Who has a role does not change while it is decided whether it may be written.
        let _changing = match &document {
            Document::Role(role) => {
                let changing = self.identities.change().await;
                self.delegation.must_hold_role(caller, write.method(), &role.name, Some(role)).await?;
                Some(changing)
            }
            _ => None,
        };
        let now = OffsetDateTime::now_utc();
        let (kind, name) = (document.kind(), document.name());
        let exists = self.exists(kind, &name, now).await?;
        let failed = |error: StoreError| storage(&error);
        let (code, op, yaml) = match &document {
            Document::Role(role) => {
                let code = if exists { Code::RoleUpdated } else { Code::RoleCreated };
                let record = RoleRecord { yaml: role.to_yaml() };
                (code, op(&name, &record, role.expires, write).map_err(failed)?, record.yaml)
            }
            Document::Lock(lock) => {
                if !matches!(write, Write::Replace | Write::Anew) {
                    self.check_target(&lock.target, now).await?;
                }
                let code = if exists { Code::LockUpdated } else { Code::LockCreated };
                let record = LockRecord { yaml: lock.to_yaml() };
                (code, op(&name, &record, lock.expires, write).map_err(failed)?, record.yaml)
            }
            Document::LoginRule(rule) => {
                let record = LoginRuleRecord { yaml: rule.to_yaml() };
                (Code::LoginRuleSet, op(&name, &record, None, write).map_err(failed)?, record.yaml)
            }
            Document::SessionPolicy(policy) => {
                let record = SessionPolicyRecord { yaml: policy.to_yaml() };
                (Code::SessionPolicySet, op(&name, &record, None, write).map_err(failed)?, record.yaml)
            }
            Document::Node(_)
            | Document::Database(_)
            | Document::Listed(_)
            | Document::Connector(_)
            | Document::User(_) => {
                return Err(Status::internal("users, nodes and other resources are written elsewhere"));
            }
        };
        if let Document::Role(role) = &document {
            self.check_compiles(role)?;
        }
        let urgent = matches!(document, Document::Lock(_));
        let backend = self.store.backend();
        let revision = match &document {
            Document::LoginRule(_) if !exists => {
                counted::make::<LoginRuleRecord>(&self.store, MOST_LOGIN_RULES, op, now).await
            }
            _ => match urgent {
                true => backend.transact_urgent(vec![op], now).await,
                false => backend.transact(vec![op], now).await,
            }
            .map(|revisions| revisions.first().copied().unwrap_or_default())
            .map_err(NotMade::State),
        };
        let revision = revision.map_err(|not_made| match (write, not_made) {
            (Write::Anew, NotMade::State(StoreError::Exists { key })) => Status::aborted(format!(
                "{key} was made at the same moment by another call; look at it, and try again"
            )),
            (_, not_made) => not_made.told(too_many_rules),
        })?;
        self.policy.refresh_after(kind).await?;
        let event = caller
            .event(code)
            .message(format!("{kind}/{name}"))
            .field("name", name.clone())
            .field("yaml", yaml.clone());
        match urgent {
            true => self.journal.record_urgent(vec![event]).await?,
            false => self.journal.record(vec![event]).await?,
        }
        if let Document::Lock(lock) = &document {
            self.void_locked(caller, lock, now).await?;
        }
        Ok(resource(kind, &name, revision, None, yaml))
    }

    /// What a user or a login who is locked has asked for is void for good: a lock that is lifted admits no device.
    async fn void_locked(&self, caller: &Caller, lock: &Lock, now: OffsetDateTime) -> Result<(), Status> {
        let why = format!("lock/{} was made", lock.name);
        let logins = self.accounts.logins();
        let voided = match &lock.target {
            LockTarget::User(user) => logins.void_waiting(caller, (user, Waiting::All), &why, now).await,
            LockTarget::LoginId(login) => logins.void_asked_by(caller, *login, &why, now).await,
            LockTarget::Role(_) | LockTarget::Login(_) | LockTarget::Resource(..) | LockTarget::Device(_) => {
                Ok(())
            }
        };
        voided.map_err(|problem| {
            Status::new(
                problem.code(),
                format!(
                    "lock/{} is in force; devices that it makes void may still wait (sallyport admin devices ls), since that failed: {}; \
                     write the lock again, in its own place",
                    lock.name,
                    problem.message()
                ),
            )
        })
    }

    pub(crate) async fn exists(&self, kind: &str, name: &str, now: OffsetDateTime) -> Result<bool, Status> {
        let key = format!("{kind}/{name}");
        Ok(self.store.backend().get(&key, now).await.map_err(|error| storage(&error))?.is_some())
    }

    /// A role that parses also compiles; were that ever wrong, the cluster must not be left without a policy.
    fn check_compiles(&self, role: &Role) -> Result<(), Status> {
        sallyport_access::Policies::compile(std::slice::from_ref(role))
            .map(|_| ())
            .map_err(|error| not_compiled(&error))
    }
}
