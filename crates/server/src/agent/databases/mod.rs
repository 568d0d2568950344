//! Databases that this agent serves.

mod credentials;
mod fresh;
mod passwords;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::tasks::Tasks;
use bytes::Bytes;
use data_encoding::{BASE64, DecodeError, HEXLOWER};
use futures::future::BoxFuture;
use sallyport_access::{
    ClusterName, Database, DatabaseAccount, DatabaseName, DatabasePermit, DatabaseTlsMode, HostId, Identity,
    Kind, NodeName, Refusal, SessionId,
};
use sallyport_audit::recording::Recorders;
use sallyport_audit::{Code, Event, PHASE, Sink};
use sallyport_ca::{CaError, Trust};
use sallyport_databases::postgres::error::{Refusal as Refused, SqlState};
use sallyport_databases::postgres::startup::CancelKey;
use sallyport_databases::service::{Asked, Came, ConnectError, Directory, Service, Settings, probe};
use sallyport_session::LiveSessions;
use sallyport_session::factor::Factors;
use sallyport_wire::stream_header::{CancelTarget, PostgresTarget, UserCertificate};
use sallyport_wire::{alpn, tunnel};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{Span, info_span, warn};

use self::credentials::{AgentCredentials, settings};
use self::passwords::PasswordFile;
use super::end_to_end::{Endpoint, Proven};
use super::health::{self, Name, Unwell};
use crate::ServerError;
use crate::config::NodeSection;
use crate::member::authority_client::AuthorityClient;
use crate::member::cluster_cache::ClusterCache;
use crate::member::host::Credentials;
use crate::member::session_factors::AuthorityFactors;

/// How long a database may take to be reached and to accept a login.
const PATIENCE: Duration = Duration::from_secs(15);

/// What the service of databases starts from.
pub(crate) struct Start<'a> {
    pub(crate) cluster: &'a ClusterName,
    pub(crate) id: HostId,
    pub(crate) name: NodeName,
    pub(crate) section: &'a NodeSection,
    pub(crate) view: Arc<ClusterCache>,
    pub(crate) client: AuthorityClient,
    pub(crate) host: Credentials,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) recorders: Recorders,
    pub(crate) live: LiveSessions,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: Tasks,
}

/// Why a stream of a proxy is no session with a database.
#[derive(Debug, thiserror::Error)]
enum BadStream {
    #[error("the stream's cancel key is malformed")]
    CancelKey,
    #[error("the stream shows no certificate of a user")]
    NoCertificate,
    #[error(transparent)]
    Encoding(#[from] DecodeError),
    #[error("the agent of {agent} does not accept the user's certificate: {reason}")]
    NotProven { agent: NodeName, reason: CaError },
}

/// The databases of this agent.
#[derive(Clone)]
pub(crate) struct AgentDatabases {
    known: Known,
    host: Credentials,
    sink: Arc<dyn Sink>,
    service: Service,
    endpoint: Arc<Endpoint>,
}

impl std::fmt::Debug for AgentDatabases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentDatabases").field("name", &self.known.name).finish_non_exhaustive()
    }
}

impl AgentDatabases {
    pub(crate) fn start(start: Start<'_>) -> Result<Self, ServerError> {
        let Start { cluster, id, name, section, view, client, host, sink, recorders, live, stop, tasks } =
            start;
        let passwords = section.pgpass.as_deref().map(PasswordFile::open).transpose()?;
        let credentials =
            Arc::new(AgentCredentials::new(Arc::clone(&view), client.clone(), passwords, section.danger));
        let factors = AuthorityFactors::new(client, &view);
        let known = Known { view, id, name: name.clone(), factors };
        tasks.spawn(keep_key(Arc::clone(&credentials), known.clone(), stop));
        let service = Service::new(Settings {
            directory: Arc::new(known.clone()),
            credentials,
            sink: Arc::clone(&sink),
            recorders,
            live,
            cluster: cluster.to_string(),
            agent: name,
            agent_id: id.to_string(),
            patience: PATIENCE,
        });
        let endpoint = Arc::new(Endpoint::new(alpn::DATABASE));
        Ok(Self { known, host, sink, service, endpoint })
    }

    /// Serves one stream of a client to its end.
    pub(crate) async fn serve(
        self,
        header: PostgresTarget,
        stream: tunnel::Stream,
        client: SocketAddr,
        opening: Span,
    ) {
        if header.end_to_end {
            // Large while it lasts: kept out of the way of the others.
            return Box::pin(self.serve_end_to_end(header, stream, client, opening)).await;
        }
        let proven = header.tls;
        let asked = match self.asked(header, client, &opening) {
            Ok(asked) => asked,
            Err(problem) => {
                let problem = problem.to_string();
                opening.record("error.type", "refused");
                self.refused(client, &problem);
                return refuse(stream, problem).await;
            }
        };
        drop(opening);
        if !proven {
            return self.service.serve(stream, asked).await;
        }
        // Rare, and large: kept out of the way of the others.
        match Box::pin(fresh::accept(&self.host, &self.known.view, stream)).await {
            Ok(stream) => Box::pin(self.service.serve(stream, asked)).await,
            Err(problem) => warn!(%problem, "a database stream whose proxy does not prove itself"),
        }
    }

    /// The same where TLS comes from the user's program: who it is the handshake says, and nothing else.
    async fn serve_end_to_end(
        self,
        header: PostgresTarget,
        stream: tunnel::Stream,
        client: SocketAddr,
        opening: Span,
    ) {
        let shaking = info_span!(target: PHASE, parent: &opening, "database.handshake");
        let accepted = self.endpoint.accept(&self.host, &self.known.view, stream).await;
        drop(shaking);
        let Proven { stream, identity, certificate, said } = match accepted {
            Ok(proven) => proven,
            Err(problem) => {
                opening.record("error.type", "refused");
                let problem = format!("the user's program proved no certificate of this cluster: {problem}");
                return self.refused(client, &problem);
            }
        };
        let Some(cancel) = cancel_key(&header.cancel) else {
            return self.refused(client, "the stream's header is malformed");
        };
        let asked = Asked {
            database: header.database,
            identity,
            proof: certificate,
            opened: said,
            came: Came::EndToEnd,
            client: client.to_string(),
            cancel,
            session: SessionId::on(&self.known.id),
            opening,
        };
        self.service.serve(stream, asked).await;
    }

    fn refused(&self, client: SocketAddr, problem: &str) {
        warn!(problem, "a database stream that is refused");
        let event = Event::new(Code::DatabaseSessionRefused, OffsetDateTime::now_utc())
            .source(client.to_string())
            .source_by_proxy()
            .message(problem)
            .field("at", "agent");
        self.sink.emit(event);
    }

    fn asked(&self, header: PostgresTarget, client: SocketAddr, opening: &Span) -> Result<Asked, BadStream> {
        let cancel = cancel_key(&header.cancel).ok_or(BadStream::CancelKey)?;
        let Some(UserCertificate::Tls(text)) = header.proof else {
            return Err(BadStream::NoCertificate);
        };
        let proof = BASE64.decode(text.as_bytes())?;
        let opened = header.opened.as_deref().unwrap_or_default();
        let opened = BASE64.decode(opened.as_bytes())?;
        let now = OffsetDateTime::now_utc();
        let identity = self.known.view.trust().identify_tls(&proof, now);
        let identity =
            identity.map_err(|reason| BadStream::NotProven { agent: self.known.name.clone(), reason })?;
        Ok(Asked {
            database: header.database,
            identity,
            proof: Bytes::from(proof),
            opened: Bytes::from(opened),
            came: Came::ByProxy,
            client: client.to_string(),
            cancel,
            session: SessionId::on(&self.known.id),
            opening: opening.clone(),
        })
    }

    /// Cancels what the session with this key does, for a client at this address.
    pub(crate) async fn cancel(self, header: CancelTarget, client: SocketAddr) {
        match cancel_key(&header.cancel) {
            Some(key) => self.service.cancel(&key, &client.to_string()).await,
            None => warn!("a cancel request without a key"),
        }
    }

    /// Sessions that go on.
    pub(crate) fn sessions(&self) -> usize {
        self.service.sessions()
    }

    /// Waits for open sessions to end; gives how many are left.
    pub(crate) async fn drained(&self, patience: Duration) -> usize {
        self.service.emptied(patience).await
    }

    /// Cuts what is left, and waits for its records and until the database has ended it.
    pub(crate) async fn end_all(&self) {
        self.service.drain(Duration::ZERO).await;
    }

    /// The databases that this agent serves, to be asked whether they answer.
    pub(crate) fn checks(&self) -> Vec<ServedDatabase> {
        let check = |database| ServedDatabase { database, view: Arc::clone(&self.known.view) };
        self.known.served().into_iter().map(check).collect()
    }
}

/// A database that this agent serves.
#[derive(Clone)]
pub(crate) struct ServedDatabase {
    database: Arc<Database>,
    view: Arc<ClusterCache>,
}

impl health::Served for ServedDatabase {
    fn name(&self) -> Name {
        (Kind::Database, self.database.name.to_string())
    }

    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.database, &other.database)
    }

    fn ask(&self) -> BoxFuture<'static, Result<(), Unwell>> {
        let Self { database, view } = self.clone();
        Box::pin(async move { answers(&database, &view.trust()).await.map_err(Unwell::from) })
    }
}

/// Makes a connection as every session does, and ends it in order before it says who it is: the agent has credentials for
/// sessions of users alone.
async fn answers(database: &Database, trust: &Trust) -> Result<(), ConnectError> {
    let tls = match database.tls.mode {
        DatabaseTlsMode::Disabled => None,
        _ => Some(settings(database, trust, None)?),
    };
    probe(database, tls, health::PATIENCE).await
}

/// Says no in the client's own protocol.
async fn refuse(mut stream: tunnel::Stream, problem: String) {
    let refusal = Refused::new(SqlState::InvalidAuthorization, problem)
        .hint("sallyport login, and try again; what the agent says of it is in its log");
    if stream.send(Bytes::from(refusal.to_bytes())).await.is_ok() {
        stream.finish();
    }
}

fn cancel_key(text: &str) -> Option<CancelKey> {
    let bytes = HEXLOWER.decode(text.as_bytes()).ok()?;
    let (process, secret) = bytes.split_first_chunk()?;
    (secret.len() == 4).then(|| CancelKey { process: u32::from_be_bytes(*process), secret: secret.to_vec() })
}

/// Has the key ready before the first client comes, and again when the suite changes; an agent without databases has none.
async fn keep_key(credentials: Arc<AgentCredentials>, known: Known, stop: CancellationToken) {
    let mut changes = known.view.changes();
    loop {
        if !known.served().is_empty() {
            let credentials = Arc::clone(&credentials);
            // With RSA it takes a while.
            let _ = tokio::task::spawn_blocking(move || credentials.prepare()).await;
        }
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = stop.cancelled() => return,
        }
    }
}

/// The cluster as this agent knows it.
#[derive(Clone)]
struct Known {
    view: Arc<ClusterCache>,
    id: HostId,
    /// By its configuration.
    name: NodeName,
    factors: AuthorityFactors,
}

impl Known {
    /// What this agent is called now: nodes may be renamed.
    fn own_name(&self) -> NodeName {
        self.view.node(&self.id).map_or_else(|| self.name.clone(), |node| node.name.clone())
    }

    fn served(&self) -> Vec<Arc<Database>> {
        let own = self.own_name();
        let mut databases = self.view.databases();
        databases.retain(|database| database.agents.contains(&own));
        databases
    }
}

impl Directory for Known {
    fn database(&self, name: &DatabaseName) -> Option<Arc<Database>> {
        let own = self.own_name();
        // What another agent serves, or none any more, is not dialled from here.
        self.view.database(name).filter(|database| database.agents.contains(&own))
    }

    fn decide(
        &self,
        identity: &Identity,
        database: &Database,
        account: &DatabaseAccount,
        now: OffsetDateTime,
    ) -> Result<DatabasePermit, Refusal> {
        let (policies, locks) = (self.view.policies(), self.view.locks());
        policies.decide(identity, database, account, &locks, now)
    }

    fn factors(&self) -> &dyn Factors {
        &self.factors
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.view.changes()
    }
}
