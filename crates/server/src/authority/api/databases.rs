//! What people, their tools and agents ask of databases.

use std::sync::Arc;

use sallyport_access::policy::DB_CLIENT;
use sallyport_access::{Database, DatabaseAccount, HostRole, Kind, Verb};
use sallyport_wire::v1;
use sallyport_wire::v1::databases_server::Databases;
use tonic::{Request, Response, Status};

use super::visible::{Answers, Item, Page, Why, labels, served};
use crate::authority::audit::journal::Journal;
use crate::authority::caller::{Caller, caller, shown};
use crate::authority::catalogue::register::DatabaseRegister;
use crate::authority::databases::opened::DatabaseSessions;
use crate::authority::gate::calls::Gate;
use crate::authority::hosts::registry::HostRegistry;
use crate::authority::identities::known::Identities;
use crate::authority::policy::Policy;

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
        self.journal.called(&caller, METHOD, "").await?;
        self.databases_for(&caller, request.into_inner()).map(Response::new)
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
    fn answers(&self) -> Answers<'_, Database> {
        let Self { gate, policy, identities, registry, databases: register, .. } = self;
        Answers { gate, policy, identities, registry, register }
    }

    fn databases_for(
        &self,
        caller: &Caller,
        asked: v1::ListDatabasesRequest,
    ) -> Result<v1::ListDatabasesResponse, Status> {
        let v1::ListDatabasesRequest { after, limit, labels, search, query, .. } = asked;
        let page = Page { kind: Kind::Database, after, limit, labels, search, query };
        let (items, next) = self.answers().list(caller, page)?;
        Ok(v1::ListDatabasesResponse { databases: items.into_iter().map(info).collect(), next })
    }

    fn explain_database(
        &self,
        caller: &Caller,
        asked: &v1::ExplainDatabaseAccessRequest,
    ) -> Result<v1::ExplainDatabaseAccessResponse, Status> {
        let act = format!(
            "use the database {} as {} with {}",
            shown(&asked.database),
            shown(&asked.db_user),
            shown(&asked.db_name)
        );
        let account = DatabaseAccount::new(&asked.db_user, &asked.db_name);
        let of = (Kind::Database, asked.database.as_str());
        let why = self.answers().explain(caller, of, &asked.user, (&account, &act))?;
        let Why { allowed, summary, details } = why;
        Ok(v1::ExplainDatabaseAccessResponse { allowed, summary, details })
    }
}

fn info(item: Item<Database>) -> v1::DatabaseInfo {
    let Item { known, usable: choices, health, problem, agents: end_to_end_agents } = item;
    let database = known.resource.as_ref();
    let (agents, origin) = served(&known);
    v1::DatabaseInfo {
        name: database.name.to_string(),
        labels: labels(database),
        protocol: "postgres".to_owned(),
        address: database.address.clone(),
        agents,
        health: health.to_owned(),
        problem,
        users: choices.users,
        names: choices.names,
        roles: choices.roles,
        user_mode: choices.user_mode.as_str().to_owned(),
        end_to_end_agents,
        origin,
    }
}
