//! What people, their tools and agents ask of databases.

use std::sync::Arc;

use sallyport_access::policy::DB_CLIENT;
use sallyport_access::{DatabaseAccount, DatabaseName, HostRole, UserName, Verb};
use sallyport_wire::v1;
use sallyport_wire::v1::databases_server::Databases;
use time::OffsetDateTime;
use tonic::{Request, Response, Status};

use crate::authority::audit::journal::Journal;
use crate::authority::caller::{Caller, caller, shown};
use crate::authority::catalogue::register::DatabaseRegister;
use crate::authority::databases::opened::DatabaseSessions;
use crate::authority::gate::calls::Gate;
use crate::authority::hosts::registry::HostRegistry;
use crate::authority::hosts::selection::Selection;
use crate::authority::identities::known::{DECIDED_BY_STATE, Identities};
use crate::authority::policy::Policy;

/// Databases in one answer.
const DATABASES: usize = 20_000;

/// Databases.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) journal: Arc<Journal>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) identities: Arc<Identities>,
    pub(crate) registry: Arc<HostRegistry>,
    pub(crate) databases: Arc<DatabaseRegister>,
    pub(crate) database_sessions: Arc<DatabaseSessions>,
}

#[tonic::async_trait]
impl Databases for Service {
    async fn list_databases(
        &self,
        request: Request<v1::ListDatabasesRequest>,
    ) -> Result<Response<v1::ListDatabasesResponse>, Status> {
        const METHOD: &str = "Databases.ListDatabases";
        let caller = caller(&request);
        if !matches!(caller, Caller::LocalAdmin) {
            let identity = self.gate.certified(&caller, METHOD).await?;
            if identity.user().is_none() {
                let status = Status::permission_denied("hosts do not list databases");
                return Err(self.gate.refuse(&caller, METHOD, status).await);
            }
        }
        let all = self.gate.check(&caller, "db", Verb::List).is_ok();
        self.journal.called(&caller, METHOD, "").await?;
        self.databases_for(&caller, all, request.into_inner()).map(Response::new)
    }

    async fn explain_database_access(
        &self,
        request: Request<v1::ExplainDatabaseAccessRequest>,
    ) -> Result<Response<v1::ExplainDatabaseAccessResponse>, Status> {
        const METHOD: &str = "Databases.ExplainDatabaseAccess";
        let caller = caller(&request);
        let asked = request.into_inner();
        let own = caller
            .identity()
            .and_then(|identity| identity.user())
            .is_some_and(|user| user.as_str() == asked.user);
        if own {
            self.gate.certified(&caller, METHOD).await?;
        } else {
            self.gate.allow(&caller, METHOD, "access", Verb::Read).await?;
        }
        let what = format!(
            "{} as {} with {} of {}",
            shown(&asked.user),
            shown(&asked.db_user),
            shown(&asked.db_name),
            shown(&asked.database)
        );
        self.journal.called(&caller, METHOD, &what).await?;
        self.explain_database(&caller, &asked).map(Response::new)
    }

    async fn certify_database_user(
        &self,
        request: Request<v1::CertifyDatabaseUserRequest>,
    ) -> Result<Response<v1::CertifyDatabaseUserResponse>, Status> {
        const METHOD: &str = "Databases.CertifyDatabaseUser";
        let caller = caller(&request);
        let agent = self.gate.host(&caller, METHOD, &[HostRole::Node]).await?;
        self.gate.demand_fips(&caller, METHOD, &request).await?;
        self.gate.allow(&caller, METHOD, DB_CLIENT, Verb::Create).await?;
        match self.database_sessions.certify_database_user(&caller, agent, request.get_ref()).await {
            Ok(answer) => Ok(Response::new(answer)),
            Err(status) => Err(self.gate.refuse(&caller, METHOD, status).await),
        }
    }

    async fn permit_database_session(
        &self,
        request: Request<v1::PermitDatabaseSessionRequest>,
    ) -> Result<Response<v1::PermitDatabaseSessionResponse>, Status> {
        const METHOD: &str = "Databases.PermitDatabaseSession";
        let caller = caller(&request);
        let agent = self.gate.host(&caller, METHOD, &[HostRole::Node]).await?;
        self.gate.demand_fips(&caller, METHOD, &request).await?;
        match self.database_sessions.permit_database_session(&caller, agent, request.get_ref()).await {
            Ok(answer) => Ok(Response::new(answer)),
            Err(status) => Err(self.gate.refuse(&caller, METHOD, status).await),
        }
    }
}

impl Service {
    fn databases_for(
        &self,
        caller: &Caller,
        all: bool,
        request: v1::ListDatabasesRequest,
    ) -> Result<v1::ListDatabasesResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let after = match request.after.as_str() {
            "" => None,
            text => {
                Some(DatabaseName::new(text).map_err(|error| Status::invalid_argument(error.to_string()))?)
            }
        };
        let limit = match request.limit {
            0 => DATABASES,
            limit => (limit as usize).min(DATABASES),
        };
        let v1::ListDatabasesRequest { labels, search, query, .. } = request;
        let selection = Selection::new(&v1::ListNodesRequest {
            labels,
            search,
            query,
            ..v1::ListNodesRequest::default()
        })?;
        let mut known = self.databases.after(after.as_ref());
        known.retain(|known| selection.may_fit_resource(known.resource.as_ref()));
        let cache = self.policy.cache();
        let visible = match caller.identity() {
            Some(identity) => {
                cache.policies.visible_databases(identity, known.iter().map(|known| known.resource.as_ref()))
            }
            None => Vec::new(),
        };
        let mut visible = visible.into_iter().peekable();
        let mut databases: Vec<v1::DatabaseInfo> = Vec::new();
        let mut next = String::new();
        for known in &known {
            let database = &known.resource;
            let choices = visible.next_if(|(of, _)| of.name == database.name).map(|(_, choices)| choices);
            if choices.is_none() && !all {
                continue;
            }
            let choices = choices.unwrap_or_default();
            let (health, problem) = known.health(&self.registry.presence, now);
            if !selection.fits_database(database, &choices.users, health != "offline") {
                continue;
            }
            if databases.len() == limit {
                next = databases.last().map(|last| last.name.clone()).unwrap_or_default();
                break;
            }
            databases.push(v1::DatabaseInfo {
                name: database.name.to_string(),
                labels: database
                    .labels
                    .iter()
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .collect(),
                protocol: "postgres".to_owned(),
                address: database.address.clone(),
                agents: database.agents.iter().map(ToString::to_string).collect(),
                health: health.to_owned(),
                problem,
                users: choices.users,
                names: choices.names,
                roles: choices.roles,
                user_mode: choices.user_mode.as_str().to_owned(),
                end_to_end_agents: known
                    .end_to_end_agents(&self.registry.presence, now)
                    .iter()
                    .map(ToString::to_string)
                    .collect(),
                origin: if known.is_static() { "static" } else { "dynamic" }.to_owned(),
            });
        }
        Ok(v1::ListDatabasesResponse { databases, next })
    }

    /// As about nodes: what the caller cannot see is answered like what is not there.
    fn explain_database(
        &self,
        caller: &Caller,
        asked: &v1::ExplainDatabaseAccessRequest,
    ) -> Result<v1::ExplainDatabaseAccessResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let user =
            UserName::new(asked.user.clone()).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let stored = self.identities.user(&user);
        let stored = stored.ok_or_else(|| Status::not_found(format!("there is no user {user}")))?;
        let identity = self.identities.identity_of(&stored, now);
        let cache = self.policy.cache();
        let sees_all = self.gate.check(caller, "access", Verb::Read).is_ok()
            || self.gate.check(caller, "db", Verb::List).is_ok();
        let known = self.databases.find(&asked.database).filter(|known| {
            sees_all || !cache.policies.database_choices(&identity, &known.resource).is_empty()
        });
        let known = match known {
            Some(known) => known,
            None if !sees_all => {
                let summary = format!(
                    "{user} may not use the database {} as {} with {}: no database of this name is among those of {user}",
                    shown(&asked.database),
                    shown(&asked.db_user),
                    shown(&asked.db_name)
                );
                let details = Vec::new();
                return Ok(v1::ExplainDatabaseAccessResponse { allowed: false, summary, details });
            }
            None => {
                return Err(Status::not_found(format!(
                    "there is no database {}; see: sallyport db ls",
                    shown(&asked.database)
                )));
            }
        };
        let why = cache.policies.explain(
            &identity,
            &*known.resource,
            &DatabaseAccount::new(&asked.db_user, &asked.db_name),
            &cache.locks,
            now,
        );
        let (health, problem) = known.health(&self.registry.presence, now);
        let mut details = why.details;
        let problem = if problem.is_empty() { problem } else { format!(": {problem}") };
        details.push(format!("the database is {health}{problem}"));
        details.push(DECIDED_BY_STATE.to_owned());
        Ok(v1::ExplainDatabaseAccessResponse { allowed: why.allowed, summary: why.summary, details })
    }
}
