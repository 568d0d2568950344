//! What sessions would be with, and what is demanded of them.

use std::sync::Arc;

use sallyport_access::factor::JOIN_ACCOUNT;
use sallyport_access::{
    Database, DatabaseAccount, FactorDemand, FactorRule, HostId, HostRole, Identity, Kind, Listed, Login,
    Nature, NodeKind, NodeName, Principal, SessionFactor, SessionTarget,
};
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::caller::shown;
use crate::authority::catalogue::register::{Catalogue, DatabaseRegister};
use crate::authority::gate::calls::Gate;
use crate::authority::hosts::presence::KnownNode;
use crate::authority::hosts::registry::HostRegistry;
use crate::authority::policy::Policy;

/// Longest name of an account, or of a database in its server, that a factor is asked for with.
const NAME_BYTES: usize = 256;

/// What a session would be with.
#[derive(Debug)]
pub(super) enum With {
    Node(Box<KnownNode>),
    Database(Arc<Database>),
    Listed(Arc<Listed>),
}

impl With {
    /// What people call it.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Node(known) => known.node.name.to_string(),
            Self::Database(database) => database.name.to_string(),
            Self::Listed(listed) => listed.name.to_string(),
        }
    }
}

/// Finds what callers name, and what is demanded of sessions with it.
#[derive(Debug)]
pub(crate) struct Targets {
    gate: Arc<Gate>,
    policy: Arc<Policy>,
    registry: Arc<HostRegistry>,
    databases: Arc<DatabaseRegister>,
    catalogue: Arc<Catalogue>,
}

impl Targets {
    pub(crate) fn new(
        gate: &Arc<Gate>,
        policy: &Arc<Policy>,
        registry: &Arc<HostRegistry>,
        databases: &Arc<DatabaseRegister>,
        catalogue: &Arc<Catalogue>,
    ) -> Self {
        Self {
            gate: Arc::clone(gate),
            policy: Arc::clone(policy),
            registry: Arc::clone(registry),
            databases: Arc::clone(databases),
            catalogue: Arc::clone(catalogue),
        }
    }

    /// What a caller names.
    pub(super) fn find(&self, asked: &v1::SessionTarget) -> Result<With, Status> {
        let kind = Kind::of_document(&asked.kind).ok_or_else(|| {
            Status::invalid_argument("a session is with a node, a db or a kind of the catalogue, such as app")
        })?;
        let unknown =
            || Status::not_found(format!("there is no {} {}", kind.row().word, shown(&asked.resource)));
        match kind.row().nature {
            Nature::Node => match <[KnownNode; 1]>::try_from(self.registry.presence.find(&asked.resource)) {
                Ok([known]) => Ok(With::Node(Box::new(known))),
                Err(_) => Err(unknown()),
            },
            Nature::Database => self
                .databases
                .find(&asked.resource)
                .map(|known| With::Database(known.resource))
                .ok_or_else(unknown),
            Nature::Listed => self
                .catalogue
                .one(kind, &asked.resource)
                .map(|known| With::Listed(known.resource))
                .ok_or_else(unknown),
        }
    }

    /// Whether a host decides about sessions with it: a node about those on itself and with servers to which it is the gateway, an agent about
    /// those with what it serves, a proxy about all.
    pub(super) fn is_decided_by(&self, host: &Identity, with: &With) -> bool {
        let Principal::Host { id, role, .. } = &host.principal else { return false };
        match (role, with) {
            (HostRole::Proxy, _) => true,
            (HostRole::Node, With::Node(known)) => match &known.node.kind {
                NodeKind::Sallyport => known.node.id == *id,
                NodeKind::OpenSsh(server) => server.via.as_ref().is_some_and(|via| self.is_named(id, via)),
            },
            (HostRole::Node, With::Database(database)) => {
                self.databases.is_served_by(host, Kind::Database, database.name.as_str())
            }
            (HostRole::Node, With::Listed(listed)) => {
                self.catalogue.is_served_by(host, listed.kind, listed.name.as_str())
            }
            (HostRole::Auth | HostRole::OpenSsh, _) => false,
        }
    }

    /// Whether a host is the one node of that name.
    fn is_named(&self, id: &HostId, name: &NodeName) -> bool {
        matches!(self.registry.presence.find(name.as_str()).as_slice(), [one] if one.node.id == *id)
    }

    /// What is demanded of a session, by the user as they are now; none where nothing is.
    ///
    /// # Errors
    /// The user may not have it.
    pub(super) fn demand(
        &self,
        user: &Identity,
        with: &With,
        asked: &v1::SessionTarget,
        now: OffsetDateTime,
    ) -> Result<Option<FactorDemand>, Status> {
        let refused =
            |refusal: sallyport_access::Refusal| Status::permission_denied(refusal.public_message());
        // People read them in questions, and they are kept with what is asked for.
        if let Some(long) = [&asked.account, &asked.db_name].into_iter().find(|name| name.len() > NAME_BYTES)
        {
            return Err(Status::invalid_argument(format!(
                "the name of an account or a database has {} bytes, and {NAME_BYTES} at most are taken where a factor is asked for",
                long.len()
            )));
        }
        match with {
            With::Node(known) if asked.account == JOIN_ACCOUNT => {
                let cache = self.policy.cache();
                let permit = cache.policies.may_reach_to_join(user, &known.node, &cache.locks, now);
                permit.map(|permit| permit.factor().cloned()).map_err(refused)
            }
            With::Node(known) if asked.account.is_empty() => self.any_login(user, known, now),
            With::Node(known) => {
                let login = Login::new(&asked.account)
                    .map_err(|error| Status::invalid_argument(error.to_string()))?;
                let (_, permit) = self.gate.permit_shown(user, &known.node, &login, now)?;
                Ok(permit.factor().cloned())
            }
            With::Database(database) if asked.account.is_empty() || asked.db_name.is_empty() => {
                let said = |text: &str| (!text.is_empty()).then(|| text.to_owned());
                let (account, db_name) = (said(&asked.account), said(&asked.db_name));
                let any = SessionTarget::any(Kind::Database, database.name.as_str());
                Ok(demanded(self.strictest(user), SessionTarget { account, db_name, ..any }))
            }
            With::Database(database) => {
                let account = DatabaseAccount::new(&asked.account, &asked.db_name);
                let (_, permit) = self.gate.permit_shown(user, &**database, &account, now)?;
                Ok(permit.factor().cloned())
            }
            With::Listed(listed) => {
                let (_, permit) = self.gate.permit_shown(user, &**listed, &(), now)?;
                Ok(permit.factor().cloned())
            }
        }
    }

    /// The strictest that the user's roles demand of sessions.
    pub(super) fn strictest(&self, user: &Identity) -> FactorRule {
        let Principal::User { roles, .. } = &user.principal else { return FactorRule::default() };
        self.policy.cache().policies.strictest_factor(roles)
    }

    /// What is demanded where a protocol does not tell the login beforehand: the strictest of all that the user has there.
    fn any_login(
        &self,
        user: &Identity,
        known: &KnownNode,
        now: OffsetDateTime,
    ) -> Result<Option<FactorDemand>, Status> {
        let logins = self.policy.cache().policies.logins_on(user, &known.node);
        let (mut rule, mut refusal, mut permitted) = (FactorRule::default(), None, false);
        for login in logins {
            match self.gate.permit_shown(user, &known.node, &login, now) {
                Ok((_, permit)) => {
                    permitted = true;
                    rule = rule.and(permit.limits().factor);
                }
                Err(status) => refusal = Some(status),
            }
        }
        if !permitted {
            return Err(refusal.unwrap_or_else(|| {
                Status::permission_denied(format!("no role lets you log in on {}", known.node.name))
            }));
        }
        Ok(demanded(rule, SessionTarget::any(Kind::Node, known.node.id.to_string())))
    }
}

fn demanded(rule: FactorRule, target: SessionTarget) -> Option<FactorDemand> {
    (rule.factor != SessionFactor::No).then_some(FactorDemand { rule, target })
}
