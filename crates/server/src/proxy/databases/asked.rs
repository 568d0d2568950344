//! A database that a client asks for: how it is found, decided about and opened.

use std::sync::Arc;

use sallyport_access::{Database, DatabaseAccount, DatabaseName, DatabasePermit, FactorDemand};
use sallyport_audit::{Code, Event};
use sallyport_databases::postgres::error::{Refusal, SqlState};
use sallyport_databases::service::{factor_missing, not_end_to_end};
use sallyport_session::factor::Missing;
use sallyport_wire::stream_header::{Carries, PostgresTarget, StreamHeader};
use time::OffsetDateTime;
use tracing::{Span, info};

use super::crowded::CROWDED_HINT;
use super::greeting::Denied;
use super::said::Said;
use super::ways::{DatabaseStream, Databases, about};
use crate::proxy::open::{Asks, ClientContext, Opener, Refused, in_order};
use crate::sessions::DatabaseGuard;

/// A database that a client asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DatabaseAsked<'a> {
    pub(super) databases: &'a Databases,
    /// Which one of the cluster; none where the client does not say.
    pub(super) name: Option<&'a DatabaseName>,
    /// As whom; none where the client has said nothing yet.
    pub(super) said: Option<Said<'a>>,
}

impl Refused for Denied {
    fn stopping() -> Self {
        let refusal = Refusal::new(SqlState::CannotConnectNow, "this proxy is shutting down");
        Self::new("stopping", refusal.hint("try again in a moment"))
    }

    fn too_many(bound: usize) -> Self {
        let text = format!(
            "you have {bound} ways to nodes and databases through this proxy, as many as one user may have \
             (proxy.limits.sessions_per_user)"
        );
        let refusal = Refusal::new(SqlState::TooManyConnections, text);
        Self::new("too_many_sessions", refusal.hint(CROWDED_HINT))
    }

    fn no_user() -> Self {
        Self::new("not_a_user", Refusal::new(SqlState::InvalidAuthorization, "only users have sessions"))
    }

    fn factor(missing: Missing) -> Self {
        let refusal = factor_missing(&missing);
        Self { factor: missing.demanded(), ..Self::new(missing.reason(), refusal) }
    }

    fn reason(&self) -> &'static str {
        self.reason
    }

    fn detail(&self) -> String {
        self.internal.clone().unwrap_or_else(|| self.refusal.message.clone())
    }
}

impl Asks for DatabaseAsked<'_> {
    type Found = Arc<Database>;
    type Permit = DatabasePermit;
    type Place = DatabaseGuard;
    type Stream = DatabaseStream;
    type Error = Denied;

    fn refusal(&self) -> Code {
        Code::DatabaseSessionRefused
    }

    fn target(&self) -> &str {
        self.name.map_or("", DatabaseName::as_str)
    }

    fn find(&self, _: &ClientContext, opener: &Opener) -> Result<Arc<Database>, Denied> {
        let Some(asked) = self.name else {
            return Err(Denied::new(
                "no_database",
                Refusal::new(SqlState::InvalidCatalogName, "the connection does not say which database of the cluster it is for")
                    .hint("sallyport db login NAME writes a service for psql; by hand: options='-c sallyport.database=NAME'"),
            ));
        };
        self.user()?;
        if self.said.is_some_and(|said| said.replicates) {
            // Before the roles are asked: pg_basebackup says a name of its own, which none of them has.
            return Err(Denied::new("replication", Refusal::replication()));
        }
        opener.view.database(asked).ok_or_else(|| {
            let text = format!("no database of the cluster is called \"{asked}\"");
            let refusal = Refusal::new(SqlState::InvalidCatalogName, text);
            Denied::new("unknown_database", refusal.hint("sallyport db ls"))
        })
    }

    fn decide(
        &self,
        client: &ClientContext,
        database: &Arc<Database>,
        opener: &Opener,
        now: OffsetDateTime,
    ) -> Result<DatabasePermit, Denied> {
        let user = self.user()?;
        let account = DatabaseAccount::new(user, self.said.and_then(|said| said.name).unwrap_or(user));
        let decided = opener.decide(&client.identity, &**database, &account, now);
        let permit = decided.map_err(|refused| {
            let refusal = Refusal::new(SqlState::InvalidAuthorization, refused.public_message());
            // Locks and what has expired say themselves what to do.
            let refusal = match refused.reason().contains("no role allows it") {
                true => refusal.hint(
                    "sallyport db ls shows the users and names that you may use; roles that you were given since count \
                     after sallyport login",
                ),
                false => refusal,
            };
            Denied { internal: Some(refused.to_string()), ..Denied::new("refused", refusal) }
        })?;
        if permit.options().end_to_end && self.end_to_end().is_none() {
            return Err(Denied::new("not_end_to_end", not_end_to_end(&database.name)));
        }
        Ok(permit)
    }

    fn demand(
        &self,
        _: &ClientContext,
        _: &Arc<Database>,
        permit: &DatabasePermit,
        _: &Opener,
    ) -> Option<FactorDemand> {
        permit.factor().cloned()
    }

    fn place(&self, permit: &DatabasePermit, opener: &Opener) -> Result<DatabaseGuard, Denied> {
        let (user, database, most) = (permit.user(), permit.database(), permit.options().max_sessions);
        opener.sessions.begin_with_database(user, database, most).map_err(|too_many| {
            let text = format!(
                "you have {} sessions with {database} through this proxy, as many as one user may have (max_db_sessions)",
                too_many.bound
            );
            Denied::new("too_many_sessions", Refusal::new(SqlState::TooManyConnections, text).hint(CROWDED_HINT))
        })
    }

    async fn route(
        &self,
        client: &ClientContext,
        database: &Arc<Database>,
        permit: &DatabasePermit,
        (opener, opening): (&Opener, &Span),
        now: OffsetDateTime,
    ) -> Result<DatabaseStream, Denied> {
        let unreachable = |problem: &str| {
            let text = format!("database \"{}\" cannot be reached: {problem}", database.name);
            Denied::new(
                "offline",
                Refusal::new(SqlState::CannotConnectNow, text)
                    .hint("sallyport db ls --format json shows its agents; check that one runs and can reach the proxy"),
            )
        };
        let (databases, end_to_end) = (self.databases, self.end_to_end());
        let mut agents = databases.agents(database).map_err(|problem| unreachable(&problem.to_string()))?;
        if let Some(will_do) = end_to_end {
            agents = in_order(&agents, will_do);
        }
        let cancel = databases.cancels.register(permit).map_err(|error| unreachable(&error.to_string()))?;
        let traceparent = sallyport_telemetry::context(opening).map(|context| context.to_string());
        let header = |agent| {
            // Who comes end to end proves it to the agent, which takes no proxy's word for it.
            let shown = end_to_end.is_none().then_some(&client.certificate);
            let postgres = PostgresTarget {
                database: database.name.clone(),
                proof: shown.cloned(),
                opened: shown.and_then(|shown| databases.word(agent, database, permit, shown, now)),
                cancel: cancel.hexadecimal(),
                tls: databases.fresh.is_some() && end_to_end.is_none(),
                end_to_end: end_to_end.is_some(),
            };
            let carries = Carries::Postgres { postgres };
            StreamHeader::new(client.address, permit.user().as_str(), traceparent.clone(), carries).encode()
        };
        let opened = agents.into_iter().find_map(|agent| {
            let stream = opener.hub.open_database(agent, permit, header(agent)).ok()?;
            Some((agent, stream))
        });
        let (agent, stream) =
            opened.ok_or_else(|| unreachable("no agent of it is connected to this proxy"))?;
        cancel.served_by(agent);
        Ok(DatabaseStream { stream, agent, cancel })
    }

    fn refused(&self, event: Event, denied: &Denied) -> Event {
        let mut event = event.field("sqlstate", denied.refusal.state.code());
        if let Some(asked) = self.name {
            event = event.node(asked.as_str());
        }
        let Some(said) = self.said else { return event };
        let bounded = |text: &str| text.chars().take(128).collect::<String>();
        event
            .field("db_user", said.user.map(bounded).unwrap_or_default())
            .field("db_name", said.name.or(said.user).map(bounded).unwrap_or_default())
    }

    fn opened(
        &self,
        event: Event,
        _: &Arc<Database>,
        permit: &DatabasePermit,
        stream: &DatabaseStream,
    ) -> Event {
        info!(db_user = permit.db_user(), db_name = permit.db_name(), "database session opened");
        about(event, permit).field("agent", stream.agent.to_string())
    }
}

impl<'a> DatabaseAsked<'a> {
    fn user(&self) -> Result<&'a str, Denied> {
        self.said.and_then(|said| said.user).ok_or_else(|| {
            let refusal = Refusal::new(SqlState::InvalidAuthorization, "no database user was named");
            Denied::new("no_user", refusal.hint("name one: psql \"service=NAME user=USER\""))
        })
    }

    fn end_to_end(&self) -> Option<&'a [sallyport_access::HostId]> {
        self.said.and_then(|said| said.end_to_end)
    }
}
