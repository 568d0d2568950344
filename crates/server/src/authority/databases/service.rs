//! What people, their tools and agents ask of databases.

use std::sync::Arc;

use sallyport_access::policy::DB_CLIENT;
use sallyport_access::{DatabaseAccount, DatabaseName, HostRole, UserName, Verb};
use sallyport_wire::v1;
use sallyport_wire::v1::databases_server::Databases;
use time::OffsetDateTime;
use tonic::{Request, Response, Status};

use crate::authority::Inner;
use crate::authority::caller::{Caller, caller};
use crate::authority::hosts::{shown, storage};
use crate::authority::selection::Selection;
use crate::authority::state::UserRecord;

pub(in crate::authority) struct Service(pub(in crate::authority) Arc<Inner>);

/// Databases in one answer.
const DATABASES: usize = 20_000;

#[tonic::async_trait]
impl Databases for Service {
    async fn list_databases(
        &self,
        request: Request<v1::ListDatabasesRequest>,
    ) -> Result<Response<v1::ListDatabasesResponse>, Status> {
        const METHOD: &str = "Databases.ListDatabases";
        let caller = caller(&request);
        if !matches!(caller, Caller::LocalAdmin) {
            let identity = self.0.certified(&caller, METHOD).await?;
            if identity.user().is_none() {
                let status = Status::permission_denied("hosts do not list databases");
                return Err(self.0.refuse(&caller, METHOD, status).await);
            }
        }
        let all = self.0.check(&caller, "db", Verb::List).is_ok();
        self.0.called(&caller, METHOD, "").await?;
        self.0.list_databases(&caller, all, request.into_inner()).map(Response::new)
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
            self.0.certified(&caller, METHOD).await?;
        } else {
            self.0.allow(&caller, METHOD, "access", Verb::Read).await?;
        }
        let what = format!(
            "{} as {} with {} of {}",
            shown(&asked.user),
            shown(&asked.db_user),
            shown(&asked.db_name),
            shown(&asked.database)
        );
        self.0.called(&caller, METHOD, &what).await?;
        self.0.explain_database(&caller, &asked).await.map(Response::new)
    }

    async fn certify_database_user(
        &self,
        request: Request<v1::CertifyDatabaseUserRequest>,
    ) -> Result<Response<v1::CertifyDatabaseUserResponse>, Status> {
        const METHOD: &str = "Databases.CertifyDatabaseUser";
        let caller = caller(&request);
        let agent = self.0.host(&caller, METHOD, &[HostRole::Node]).await?;
        self.0.allow(&caller, METHOD, DB_CLIENT, Verb::Create).await?;
        match self.0.certify_database_user(&caller, agent, request.get_ref()).await {
            Ok(answer) => Ok(Response::new(answer)),
            Err(status) => Err(self.0.refuse(&caller, METHOD, status).await),
        }
    }

    async fn permit_database_session(
        &self,
        request: Request<v1::PermitDatabaseSessionRequest>,
    ) -> Result<Response<v1::PermitDatabaseSessionResponse>, Status> {
        const METHOD: &str = "Databases.PermitDatabaseSession";
        let caller = caller(&request);
        let agent = self.0.host(&caller, METHOD, &[HostRole::Node]).await?;
        match self.0.permit_database_session(&caller, agent, request.get_ref()).await {
            Ok(answer) => Ok(Response::new(answer)),
            Err(status) => Err(self.0.refuse(&caller, METHOD, status).await),
        }
    }
}

impl Inner {
    fn list_databases(
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
        known.retain(|known| selection.may_fit_database(&known.database));
        let view = self.view();
        let visible = match caller.identity() {
            Some(identity) => {
                view.policies.visible_databases(identity, known.iter().map(|known| known.database.as_ref()))
            }
            None => Vec::new(),
        };
        let mut visible = visible.into_iter().peekable();
        let mut databases: Vec<v1::DatabaseInfo> = Vec::new();
        let mut next = String::new();
        for known in &known {
            let database = &known.database;
            let choices = visible.next_if(|(of, _)| of.name == database.name).map(|(_, choices)| choices);
            if choices.is_none() && !all {
                continue;
            }
            let choices = choices.unwrap_or_default();
            let (health, problem) = known.health(&self.presence, now);
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
                    .end_to_end_agents(&self.presence)
                    .iter()
                    .map(ToString::to_string)
                    .collect(),
                origin: if known.is_static() { "static" } else { "dynamic" }.to_owned(),
            });
        }
        Ok(v1::ListDatabasesResponse { databases, next })
    }

    /// As about nodes: what the caller cannot see is answered like what is not there.
    async fn explain_database(
        &self,
        caller: &Caller,
        asked: &v1::ExplainDatabaseAccessRequest,
    ) -> Result<v1::ExplainDatabaseAccessResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let user =
            UserName::new(asked.user.clone()).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let stored =
            self.store.get::<UserRecord>(user.as_str(), now).await.map_err(|error| storage(&error))?;
        let stored = stored.ok_or_else(|| Status::not_found(format!("there is no user {user}")))?;
        let identity = self.identity_of(&stored.value, now);
        let view = self.view();
        let sees_all =
            self.check(caller, "access", Verb::Read).is_ok() || self.check(caller, "db", Verb::List).is_ok();
        let known = self.databases.find(&asked.database).filter(|known| {
            sees_all || !view.policies.database_choices(&identity, &known.database).is_empty()
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
        let why = view.policies.explain(
            &identity,
            &*known.database,
            &DatabaseAccount::new(&asked.db_user, &asked.db_name),
            &view.locks,
            now,
        );
        let (health, problem) = known.health(&self.presence, now);
        let mut details = why.details;
        let problem = if problem.is_empty() { problem } else { format!(": {problem}") };
        details.push(format!("the database is {health}{problem}"));
        details.push(crate::authority::people::DECIDED_BY_STATE.to_owned());
        Ok(v1::ExplainDatabaseAccessResponse { allowed: why.allowed, summary: why.summary, details })
    }
}
