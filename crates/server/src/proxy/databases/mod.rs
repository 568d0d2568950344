//! Database clients on their way to an agent: the startup message is read and decided about here, and from then on bytes
//! are carried.

mod cancels;
mod client;
mod crowded;
mod fresh;
mod greeting;
mod relay;
mod said;
mod word;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use metrics::{counter, histogram};
use sallyport_access::{Database, DatabaseAccount, DatabaseName, DatabasePermit, HostId, Identity};
use sallyport_audit::{Code, Event, PHASE};
use sallyport_ca::Opening;
use sallyport_databases::postgres::error::{Refusal, SqlState};
use sallyport_databases::postgres::options;
use sallyport_databases::postgres::startup::{CancelKey, First};
use sallyport_databases::service::not_end_to_end;
use sallyport_wire::stream_header::{CancelTarget, Carries, PostgresTarget, StreamHeader, UserCertificate};
use sallyport_wire::trace_context::TraceContext;
use sallyport_wire::tunnel;
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::Status;
use tracing::field::Empty;
use tracing::{Instrument, Span, info, info_span, warn};

use self::cancels::{Cancels, Registered};
pub(crate) use self::client::{Answer, Grpc, connected};
use self::client::{Client, Native};
use self::crowded::CROWDED_HINT;
pub(crate) use self::fresh::FreshKeys;
use self::greeting::{Denied, first_packet, say};
pub(crate) use self::greeting::{no_database_client, refuse_plain, refuse_stranger, refuse_unfit};
use self::said::Said;
use self::word::Words;
use super::dial::Dialler;
use crate::ServerError;
use crate::host::Credentials;
use crate::sessions::{DatabaseGuard, SessionGuard};
use crate::view::{ClusterView, Resolved};

/// How long a client may take for its first packet, as PostgreSQL's `authentication_timeout`.
const STARTUP_PATIENCE: Duration = Duration::from_secs(60);
/// How long the agent has to end a session that is no longer allowed in the database's own words, before the way is closed.
const CUT_GRACE: Duration = Duration::from_millis(500);
/// Agents that a client may name, as many as a database has.
const MOST_AGENTS: usize = 64;

/// Somebody whose certificate is proven, in front of the databases.
#[derive(Debug, Clone)]
pub(crate) struct Guest {
    pub(crate) identity: Arc<Identity>,
    pub(crate) proof: UserCertificate,
    pub(crate) client: SocketAddr,
    /// The trace that they say this is part of, as far as that counts.
    pub(crate) said: Option<TraceContext>,
}

/// The ways to databases.
#[derive(Debug, Clone)]
pub(crate) struct Databases {
    dialler: Dialler,
    cancels: Cancels,
    words: Words,
    /// For measuring the other architecture.
    fresh: Option<Arc<FreshKeys>>,
    /// What this proxy is called in public: `NAME.` and one of them is the name of a database.
    public_names: Arc<[String]>,
}

/// A way that is open.
pub(crate) struct Opened {
    stream: tunnel::Stream,
    database: Arc<Database>,
    permit: DatabasePermit,
    _cancel: Registered,
    _counted: (SessionGuard, DatabaseGuard),
}

impl Databases {
    pub(crate) fn new(
        dialler: Dialler,
        credentials: Credentials,
        public_names: impl IntoIterator<Item = String>,
    ) -> Self {
        Self {
            dialler,
            cancels: Cancels::default(),
            words: Words::new(credentials),
            fresh: None,
            public_names: public_names.into_iter().collect(),
        }
    }

    /// Proves itself to agents with a key of its own for each connection.
    pub(crate) fn with_fresh_keys(self, fresh: FreshKeys) -> Self {
        Self { fresh: Some(Arc::new(fresh)), ..self }
    }

    fn view(&self) -> &Arc<ClusterView> {
        &self.dialler.view
    }

    /// The database that a TLS client has asked for by the name that it connects to.
    pub(crate) fn named(&self, server_name: &str) -> Option<DatabaseName> {
        let suffix = self.public_names.iter().find_map(|public| {
            let (label, rest) = server_name.split_once('.')?;
            rest.eq_ignore_ascii_case(public).then_some(label)
        })?;
        DatabaseName::new(suffix.to_ascii_lowercase()).ok()
    }

    /// Serves a client that speaks TLS with this proxy, to its end.
    pub(crate) async fn serve_native<T>(&self, guest: Guest, named: Option<DatabaseName>, stream: T)
    where
        T: AsyncRead + AsyncWrite + Send,
    {
        self.serve(guest, named, Native::new(stream)).await;
    }

    /// Serves a client that comes inside a gRPC stream, to its end.
    pub(crate) async fn serve_grpc(&self, guest: Guest, named: DatabaseName, client: Grpc) {
        self.serve(guest, Some(named), client).await;
    }

    async fn serve(&self, guest: Guest, named: Option<DatabaseName>, mut client: impl Client) {
        let span = info_span!(
            "proxy.database",
            user = %guest.identity.display_name(),
            database = Empty
        );
        let opening = opening(&guest);
        let mut ahead = BytesMut::new();
        let waiting = info_span!(target: PHASE, parent: &opening, "database.startup");
        let reading = first_packet(&mut client, &mut ahead);
        let said = tokio::time::timeout(STARTUP_PATIENCE, reading).await;
        drop(waiting);
        let first = match said {
            Ok(Ok(Some(first))) => first,
            Ok(Ok(None)) => return,
            Ok(Err(denied)) => {
                opening.record("error.type", denied.reason);
                drop(opening);
                return self.refuse(&guest, named.as_ref(), None, denied, client).await;
            }
            Err(_) => {
                counter!("sallyport_first_bytes_dropped_total", "reason" => "postgres_timeout").increment(1);
                return;
            }
        };
        let startup = match first {
            First::Cancel(key) => {
                self.cancel(&key, guest.client);
                // A client that asks inside TLS takes an end without close_notify for a request that was not heard.
                let _ = tokio::time::timeout(CUT_GRACE, client.finish()).await;
                return;
            }
            First::Startup(startup) => startup,
            // Answered on the way.
            First::Tls | First::Gssapi => return,
        };
        let asked = match options::database(&startup) {
            Some(asked) => DatabaseName::new(asked).ok(),
            None => named.clone(),
        };
        if let Some(asked) = &asked {
            span.record("database", asked.as_str());
        }
        async {
            let said = Said::by(&startup);
            match self.open_timed(&guest, asked.as_ref(), said, &opening) {
                Ok((opened, first_byte)) => {
                    drop(opening);
                    let mut first = BytesMut::from(startup.to_bytes().as_slice());
                    first.extend_from_slice(&ahead);
                    self.carry(&guest, opened, Some(first.freeze()), client, first_byte).await;
                }
                Err(denied) => {
                    drop(opening);
                    self.refuse(&guest, asked.as_ref(), Some(said), denied, client).await;
                }
            }
        }
        .instrument(span)
        .await;
    }

    /// Opens the way for a client whose TLS goes on to an agent, which is one of `agents`, by what it says outside of that.
    pub(crate) fn open_end_to_end(
        &self,
        guest: &Guest,
        asked: &DatabaseName,
        user: &str,
        name: &str,
        agents: &[String],
    ) -> Result<(Opened, Span), Status> {
        if agents.len() > MOST_AGENTS {
            let problem = format!("{} agents are named, at most {MOST_AGENTS} are allowed", agents.len());
            return Err(Status::invalid_argument(problem));
        }
        let agents: Result<Vec<HostId>, _> = agents.iter().map(|agent| agent.parse()).collect();
        let agents = agents.map_err(|error| Status::invalid_argument(format!("an agent's id: {error}")))?;
        let opening = opening(guest);
        let said = |text: &'_ str| (!text.is_empty()).then(|| text.to_owned());
        let (user, name) = (said(user), said(name));
        let (user, name, agents) = (user.as_deref(), name.as_deref(), Some(agents.as_slice()));
        let said = Said { user, name, replicates: false, end_to_end: agents };
        self.open_timed(guest, Some(asked), said, &opening).map_err(|denied| {
            let status = denied.status();
            self.put_on_record(guest, Some(asked), Some(said), denied);
            status
        })
    }

    /// Carries what a client and an agent say to each other in TLS of their own.
    pub(crate) async fn carry_end_to_end(
        &self,
        guest: Guest,
        (opened, first_byte): (Opened, Span),
        client: Grpc,
    ) {
        let span = info_span!(
            "proxy.database",
            user = %guest.identity.display_name(),
            database = %opened.permit.database()
        );
        self.carry(&guest, opened, None, client, first_byte).instrument(span).await;
    }

    /// [`Databases::open`], with its time and its outcome noted; and what lasts until the first byte comes back.
    fn open_timed(
        &self,
        guest: &Guest,
        asked: Option<&DatabaseName>,
        said: Said<'_>,
        opening: &Span,
    ) -> Result<(Opened, Span), Denied> {
        let began = Instant::now();
        let opened = self.open(guest, asked, said, OffsetDateTime::now_utc(), opening);
        histogram!("sallyport_session_open_seconds").record(began.elapsed());
        match opened {
            Ok(opened) => Ok((opened, info_span!(target: PHASE, parent: opening, "database.first_byte"))),
            Err(denied) => {
                opening.record("error.type", denied.reason);
                Err(denied)
            }
        }
    }

    /// Finds, decides and opens.
    fn open(
        &self,
        guest: &Guest,
        asked: Option<&DatabaseName>,
        said: Said<'_>,
        now: OffsetDateTime,
        opening: &Span,
    ) -> Result<Opened, Denied> {
        let deciding = info_span!(target: PHASE, parent: opening, "decision");
        if self.dialler.stopping.is_cancelled() {
            let refusal = Refusal::new(SqlState::CannotConnectNow, "this proxy is shutting down");
            return Err(Denied::new("stopping", refusal.hint("try again in a moment")));
        }
        let Some(asked) = asked else {
            return Err(Denied::new(
                "no_database",
                Refusal::new(SqlState::InvalidCatalogName, "the connection does not say which database of the cluster it is for")
                    .hint("sallyport db login NAME writes a service for psql; by hand: options='-c sallyport.database=NAME'"),
            ));
        };
        let Some(user) = said.user else {
            let refusal = Refusal::new(SqlState::InvalidAuthorization, "no database user was named");
            return Err(Denied::new("no_user", refusal.hint("name one: psql \"service=NAME user=USER\"")));
        };
        if said.replicates {
            // Before the roles are asked: pg_basebackup says a name of its own, which none of them has.
            return Err(Denied::new("replication", Refusal::replication()));
        }
        let name = said.name.unwrap_or(user);
        let database = self.view().database(asked).ok_or_else(|| {
            let text = format!("no database of the cluster is called \"{asked}\"");
            Denied::new(
                "unknown_database",
                Refusal::new(SqlState::InvalidCatalogName, text).hint("sallyport db ls"),
            )
        })?;
        let permit = self.decide(guest, &database, user, name, now).map_err(|refused| {
            let refusal = Refusal::new(SqlState::InvalidAuthorization, refused.public_message());
            // Locks and what has expired say themselves what to do.
            let refusal = match refused.reason().contains("no role allows it") {
                true => refusal.hint(
                    "sallyport db ls shows the users and names that you may use; roles that you were given since count \
                     after sallyport login",
                ),
                false => refusal,
            };
            Denied { refusal, reason: "refused", internal: Some(refused.to_string()) }
        })?;
        if permit.options().end_to_end && said.end_to_end.is_none() {
            return Err(Denied::new("not_end_to_end", not_end_to_end(asked)));
        }
        let among = self.among(&permit)?;
        let counted = self.dialler.sessions.begin(permit.user()).map_err(|too_many| {
            let text = format!(
                "you have {} ways to nodes and databases through this proxy, as many as one user may have \
                 (proxy.limits.sessions_per_user)",
                too_many.bound
            );
            Denied::new(
                "too_many_sessions",
                Refusal::new(SqlState::TooManyConnections, text).hint(CROWDED_HINT),
            )
        })?;
        drop(deciding);
        let _opening = info_span!(target: PHASE, parent: opening, "tunnel");
        let unreachable = |problem: &str| {
            let text = format!("database \"{asked}\" cannot be reached: {problem}");
            Denied::new(
                "offline",
                Refusal::new(SqlState::CannotConnectNow, text)
                    .hint("sallyport db ls --format json shows its agents; check that one runs and can reach the proxy"),
            )
        };
        let mut agents = self.agents(&database).map_err(|problem| unreachable(&problem))?;
        if let Some(will_do) = said.end_to_end {
            agents.retain(|agent| will_do.contains(agent));
        }
        let cancel = self.cancels.register(&permit).map_err(|error| unreachable(&error.to_string()))?;
        let traceparent = sallyport_telemetry::context(opening).map(|context| context.to_string());
        let header = |agent| {
            let postgres = PostgresTarget {
                database: asked.clone(),
                // Who comes end to end proves it to the agent, which takes nobody else's word for it.
                proof: said.end_to_end.is_none().then(|| guest.proof.clone()),
                opened: match said.end_to_end {
                    Some(_) => None,
                    None => self.word(agent, &database, &permit, &guest.proof, now),
                },
                cancel: cancel.hexadecimal(),
                tls: self.fresh.is_some() && said.end_to_end.is_none(),
                end_to_end: said.end_to_end.is_some(),
            };
            let carries = Carries::Postgres { postgres };
            StreamHeader::new(guest.client, permit.user().as_str(), traceparent.clone(), carries).encode()
        };
        let (agent, stream) = agents
            .into_iter()
            .find_map(|agent| {
                let stream = self.dialler.hub.open_database(agent, &permit, header(agent)).ok()?;
                Some((agent, stream))
            })
            .ok_or_else(|| unreachable("no agent of it is connected to this proxy"))?;
        let event = self.event(Code::StreamOpened, guest, &permit);
        self.dialler.sink.emit(event.field("agent", agent.to_string()).field("at", "proxy"));
        cancel.served_by(agent);
        counter!("sallyport_sessions_total", "result" => "opened").increment(1);
        info!(db_user = user, db_name = name, "database session opened");
        Ok(Opened { stream, database, permit, _cancel: cancel, _counted: (counted, among) })
    }

    /// This proxy's word for a session whose client's TLS ends here: the authority permits the agent to begin it, once.
    fn word(
        &self,
        agent: HostId,
        database: &Database,
        permit: &DatabasePermit,
        proof: &UserCertificate,
        now: OffsetDateTime,
    ) -> Option<String> {
        let UserCertificate::Tls(certificate) = proof else { return None };
        let certificate = data_encoding::BASE64.decode(certificate.as_bytes()).ok()?;
        let opening = Opening {
            agent,
            database: database.name.as_str(),
            db_user: permit.db_user(),
            db_name: permit.db_name(),
            user_certificate: &certificate,
        };
        match self.words.give(&opening, now) {
            Ok(word) => Some(word),
            Err(error) => {
                warn!(error = %ServerError::chain(&error), "a database session goes without this proxy's word");
                None
            }
        }
    }

    fn decide(
        &self,
        guest: &Guest,
        database: &Database,
        user: &str,
        name: &str,
        now: OffsetDateTime,
    ) -> Result<DatabasePermit, sallyport_access::Refusal> {
        let (policies, locks) = (self.view().policies(), self.view().locks());
        policies.decide(&guest.identity, database, &DatabaseAccount::new(user, name), &locks, now)
    }

    /// The hosts that serve a database, by their ids. A name that several have means none of them: the second may have
    /// taken it to get what is meant for the first.
    fn agents(&self, database: &Database) -> Result<Vec<HostId>, String> {
        let (mut found, mut shared) = (Vec::new(), None);
        for name in &database.agents {
            match self.view().resolve(name.as_str()) {
                Resolved::One(node) => found.push(node.id),
                Resolved::Several(_) => shared = Some(name),
                Resolved::Unknown => {}
            }
        }
        match (found.is_empty(), shared) {
            (true, Some(name)) => Err(format!(
                "several nodes are called {name}; one of them has to go (sallyport admin rm node/ID)"
            )),
            (true, None) => Err("it has no agent".to_owned()),
            (false, _) => Ok(found),
        }
    }

    async fn refuse(
        &self,
        guest: &Guest,
        asked: Option<&DatabaseName>,
        said: Option<Said<'_>>,
        denied: Denied,
        client: impl Client,
    ) {
        let refusal = denied.refusal.clone();
        self.put_on_record(guest, asked, said, denied);
        say(client, &refusal).await;
    }

    fn put_on_record(
        &self,
        guest: &Guest,
        asked: Option<&DatabaseName>,
        said: Option<Said<'_>>,
        denied: Denied,
    ) {
        counter!("sallyport_sessions_total", "result" => denied.reason).increment(1);
        info!(reason = denied.reason, message = denied.refusal.message, "database session refused");
        let mut event = Event::new(Code::DatabaseSessionRefused, OffsetDateTime::now_utc())
            .user(guest.identity.display_name())
            .source(guest.client.to_string())
            .message(denied.internal.unwrap_or_else(|| denied.refusal.message.clone()))
            .field("reason", denied.reason)
            .field("sqlstate", denied.refusal.state.code())
            .field("at", "proxy");
        if let Some(asked) = asked {
            event = event.node(asked.as_str());
        }
        if let Some(said) = said {
            let bounded = |text: &str| text.chars().take(128).collect::<String>();
            event = event
                .field("db_user", said.user.map(bounded).unwrap_or_default())
                .field("db_name", said.name.or(said.user).map(bounded).unwrap_or_default());
        }
        self.dialler.sink.emit(event);
    }

    /// Passes a cancel request on to the agent of the session that has the key. As at a database, nobody learns whether
    /// there is one.
    pub(crate) fn cancel(&self, key: &CancelKey, client: SocketAddr) {
        let Some(found) = self.cancels.find(key) else {
            counter!("sallyport_database_cancels_total", "result" => "unknown").increment(1);
            return info!(%client, "a cancel request for no session of this proxy");
        };
        let carries = Carries::PostgresCancel { postgres: CancelTarget { cancel: found.hexadecimal() } };
        let header = StreamHeader::new(client, found.permit.user().as_str(), None, carries).encode();
        let result = match self.dialler.hub.open_database(found.agent, &found.permit, header) {
            // The header says it all; the stream ends when this is dropped.
            Ok(stream) => {
                stream.finish();
                "passed_on"
            }
            Err(_) => "offline",
        };
        counter!("sallyport_database_cancels_total", "result" => result).increment(1);
    }

    /// Carries bytes until both have finished, one is gone, or what let the user in is taken away.
    async fn carry(
        &self,
        guest: &Guest,
        opened: Opened,
        first: Option<Bytes>,
        client: impl Client,
        first_byte: Span,
    ) {
        let Opened { stream, database, permit, _cancel, _counted } = opened;
        let (database, permit) = (&database, &permit);
        let cut = async {
            let reason = self.taken_away(guest, database, permit).await;
            // The agent sees it, too, and says it in the database's own protocol.
            tokio::time::sleep(CUT_GRACE).await;
            reason
        };
        let carried = async {
            match (&self.fresh, first) {
                (Some(fresh), Some(first)) => {
                    Box::pin(fresh.carry(client, stream, first, first_byte)).await;
                    Ok(())
                }
                (_, first) => relay::carry(client, &stream, first, first_byte).await,
            }
        };
        let ended = tokio::select! {
            ended = carried => ended,
            reason = cut => {
                info!(%reason, "database session cut");
                let event = self.event(Code::DatabaseSessionCut, guest, permit).message(reason);
                self.dialler.sink.emit(event.field("at", "proxy"));
                Ok(())
            }
        };
        if let Err(error) = ended {
            info!(%error, "the way to a database was lost");
            let event = self.event(Code::DatabaseSessionLost, guest, permit).message(error.to_string());
            self.dialler.sink.emit(event.field("at", "proxy"));
        }
        info!("database session closed at the proxy");
    }

    fn event(&self, code: Code, guest: &Guest, permit: &DatabasePermit) -> Event {
        Event::new(code, OffsetDateTime::now_utc())
            .user(guest.identity.display_name())
            .source(guest.client.to_string())
            .node(permit.database().as_str())
            .field("db_user", permit.db_user())
            .field("db_name", permit.db_name())
    }

    /// Waits until the roles or a lock say no.
    async fn taken_away(&self, guest: &Guest, database: &Database, permit: &DatabasePermit) -> String {
        let refused = || {
            let now = OffsetDateTime::now_utc();
            // A certificate that ends is the agent's to judge, by the policy for it.
            if now >= permit.valid_until() {
                return None;
            }
            let decided = self.decide(guest, database, permit.db_user(), permit.db_name(), now);
            decided.err().map(|refusal| refusal.to_string())
        };
        self.view().when(refused).await
    }

    /// Whether the cluster has the database, for those who say its name before all else.
    pub(crate) fn knows(&self, name: &DatabaseName) -> bool {
        self.view().database(name).is_some()
    }
}

/// Around the beginning of a connection. Never entered: what is spawned meanwhile would keep it.
fn opening(guest: &Guest) -> Span {
    info_span!(
        target: PHASE,
        parent: None,
        "proxy.connect",
        traceparent = guest.said.map(display),
        otel.kind = "server",
        client.address = %guest.client.ip(),
        network.protocol.name = "postgresql",
        "error.type" = Empty
    )
}
