//! One session, from the client's startup message to its end.

use std::sync::Arc;

use bytes::{Buf, BytesMut};
use sallyport_access::{DatabaseAccount, DatabaseName, DatabasePermit};
use sallyport_audit::recording::database::DatabaseFrame;
use sallyport_audit::recording::{Body, Exit, SessionMetadata};
use sallyport_audit::{Code, Event, PHASE};
use sallyport_session::factor::{Missing, Shown};
use sallyport_session::{About, Activity, Evidence, How, LiveEntry, LiveSession, NotEntered, Record, Stop};
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use tracing::{Span, info_span};

use super::asked::{Asked, Came, Wanted};
use super::connect::{self, ConnectError, Opened};
use super::control::Control;
use super::observer::Observer;
use super::provision::{self, Provisioned};
use super::relay::{self, Carried, End};
use super::running::{self, Listed, Running};
use super::settle::Backend;
use super::shared::{STOPPING, Shared};
use super::{cancel, unseen};
use crate::postgres::encoding::Encoding;
use crate::postgres::error::{Refusal, SqlState};
use crate::postgres::exchange::Exchange;
use crate::postgres::options;
use crate::postgres::startup::{self, First, Lowered, NotFirst, Startup};

/// Most requests for encryption that a client may make before it says who it is.
const MOST_REQUESTS: usize = 4;

/// What the event of a session too many says for a reason.
const TOO_MANY: &str = "too_many_sessions";

/// A session whose database is ready.
struct Ready {
    listed: Listed,
    entered: LiveEntry,
    wanted: Wanted,
    record: Record,
    provisioned: Option<Provisioned>,
    opened: Opened,
    rest: BytesMut,
}

pub(crate) async fn serve<S>(shared: &Arc<Shared>, mut client: S, mut asked: Asked)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let opening = std::mem::replace(&mut asked.opening, Span::none());
    // On the heap for as long as it takes: a session that goes on keeps nothing of it.
    let Some(ready) = Box::pin(begin(shared, &mut client, &asked, &opening)).await else { return };
    let Ready { listed, entered, wanted, record, provisioned, opened, rest } = ready;
    let Opened { stream, rest: server_rest, greeting, .. } = opened;
    let activity = Activity::new();
    let greeted = send(&mut client, &greeting).await;
    drop(opening);
    let (end, carried, stream) = if greeted {
        let encoding = Encoding::greeted(&greeting);
        drop(greeting);
        let options = wanted.permit.options();
        let about = listed.entry().about.clone();
        let event = move |code| about.event(code);
        let recorded = record.is_recorded().then(|| record.elapsed());
        let observer =
            Observer::new(recorded, options.record_parameters, options.statement_bytes, encoding, event);
        let control = Control {
            shared,
            identity: &asked.identity,
            wanted: &wanted,
            record: &record,
            activity: &activity,
            ending: &listed.entry().ending,
        };
        let cancel = async || {
            if let Err(problem) = cancel::forward(shared, listed.entry()).await {
                tracing::debug!(%problem, "a statement could not be cancelled");
            }
        };
        relay::run(client, stream, (rest, server_rest), (Exchange::new(encoding), observer), control, cancel)
            .await
    } else {
        (End::ClientGone, Carried::default(), stream)
    };
    Box::pin(ends(&end, &carried, record, &activity)).await;
    let mut backend = Backend { shared, wanted: &wanted, entry: listed.entry(), stream, failed: false };
    let gone = Box::pin(backend.goes()).await;
    if gone {
        // What is left to do for its user takes nothing of the server's room for sessions.
        listed.entry().free();
    }
    let outlived = match provisioned {
        Some(provisioned) => Box::pin(provisioned.leave(backend.process().filter(|_| !gone))).await,
        None => None,
    };
    if !gone {
        Box::pin(backend.see_off()).await;
    }
    drop(outlived);
    drop(listed);
    drop(entered);
}

/// Reads who wants what, decides, records and connects. What goes wrong is told to the client.
async fn begin<S>(shared: &Arc<Shared>, client: &mut S, asked: &Asked, opening: &Span) -> Option<Ready>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let patience = shared.settings.patience;
    let reading = info_span!(target: PHASE, parent: opening, "database.startup");
    let said = timeout(patience, startup(client)).await;
    drop(reading);
    let (startup, rest) = match said {
        Err(_) | Ok(Ok(None)) => return None,
        Ok(Ok(Some((First::Startup(startup), rest)))) => (startup, rest),
        Ok(Ok(Some((First::Cancel(key), _)))) => {
            cancel::cancel(shared, &key, &asked.client).await;
            // A client that asks inside TLS takes an end without close_notify for a request that was not heard.
            let _ = timeout(patience, client.shutdown()).await;
            return None;
        }
        Ok(Ok(Some(_))) => return None,
        Ok(Err(error)) => {
            opening.record("error.type", "malformed");
            let event = unserved(Code::DatabaseMalformed, shared, asked, "", "");
            shared.settings.sink.emit(event.message(error.to_string()));
            let refusal = Refusal::new(SqlState::ProtocolViolation, error.to_string());
            part(client, &refusal.to_bytes()).await;
            return None;
        }
    };
    let user = startup.user().unwrap_or_default().to_owned();
    let name = startup.database().unwrap_or_default().to_owned();
    let (wanted, startup, lowered) = match decide(shared, asked, startup, &user, &name) {
        Ok(decided) => decided,
        Err(refusal) => {
            opening.record("error.type", "refused");
            let event = refused(shared, asked, &user, &name).message(refusal.message.as_str());
            shared.settings.sink.emit(event);
            part(client, &refusal.to_bytes()).await;
            return None;
        }
    };
    let shown = || Ok(Shown::Tls(asked.proof.clone()));
    let factors = shared.settings.directory.factors();
    let from = asked.client.parse().ok();
    let gathered = Evidence::gather(&asked.identity, wanted.permit.factor(), factors, shown, from).await;
    let evidence = match gathered {
        Ok(evidence) => evidence,
        Err(missing) => {
            opening.record("error.type", missing.reason());
            let refusal = factor_missing(&missing);
            let event = refused(shared, asked, &user, &name).message(refusal.message.as_str());
            shared.settings.sink.emit(event.field("reason", missing.reason()));
            part(client, &refusal.to_bytes()).await;
            return None;
        }
    };
    let about = about(shared, asked, &wanted.permit, &startup, &evidence);
    let sink = Arc::clone(&shared.settings.sink);
    let options = wanted.permit.options();
    // Before anything is asked of the server, and held until its process is gone.
    let most = options.max_sessions;
    let listed = match running::enter(&shared.sessions, about.clone(), asked.cancel.clone(), most) {
        Ok(listed) => listed,
        Err(not) => {
            let (refusal, reason) = match not {
                NotEntered::Full => (too_many(&wanted), TOO_MANY),
                NotEntered::Draining => (stopping(), "refused"),
            };
            opening.record("error.type", reason);
            let mut event = refused(shared, asked, &user, &name).message(refusal.message.as_str());
            if not == NotEntered::Full {
                event = event.field("reason", TOO_MANY).field("limit", most);
            }
            shared.settings.sink.emit(event);
            part(client, &refusal.to_bytes()).await;
            return None;
        }
    };
    let preparing = info_span!(target: PHASE, parent: opening, "recording");
    let how = How::of(wanted.permit.limits(), "bytes");
    let record = match Record::begin(about, &shared.settings.recorders, how, sink).await {
        Ok(record) => record,
        Err(unrecordable) => {
            opening.record("error.type", "not_recordable");
            let why = unrecordable.to_string();
            let event = refused(shared, asked, &user, &name).message(why.as_str());
            shared.settings.sink.emit(event);
            part(client, &Refusal::new(SqlState::SystemError, why).to_bytes()).await;
            return None;
        }
    };
    drop(preparing);
    // It is the agent that records, whichever host the roles say.
    let place = if record.is_recorded() { "node" } else { "off" };
    let (ending, about) = (listed.entry().ending.clone(), record.about());
    tracing::info!(session = %about.session_id, user = about.user, database = about.node, "database session");
    let entered = shared.settings.live.enter_to_end(
        LiveSession::new(about.clone(), &asked.identity, place),
        Arc::new(move |reason: &str| {
            ending.end(Stop::Ended(reason.to_owned()));
        }),
    );
    match open(shared, asked, &wanted, &startup, &listed, opening).await {
        Ok((mut opened, provisioned)) => {
            if let Some(lowered) = lowered {
                opened.greeting = lowered.told(opened.greeting);
            }
            let event = record.event(Code::DatabaseSessionStart);
            record.emit(described(event, shared, &wanted, &startup, place));
            Some(Ready { listed, entered, wanted, record, provisioned, opened, rest })
        }
        Err(error) => {
            opening.record("error.type", error.name());
            fails(&error, client, &wanted, record).await;
            None
        }
    }
}

async fn open(
    shared: &Arc<Shared>,
    asked: &Asked,
    wanted: &Wanted,
    startup: &Startup,
    listed: &Listed,
    opening: &Span,
) -> Result<(Opened, Option<Provisioned>), ConnectError> {
    let asking = info_span!(target: PHASE, parent: opening, "database.credentials");
    let permit = async {
        match wanted.came {
            Came::ByProxy => Ok(shared.settings.credentials.permit(wanted).await?),
            Came::EndToEnd => Ok(()),
        }
    };
    // One round trip for both, where both ask. Nothing is done at the database before both have said yes.
    let ((), tls) = tokio::try_join!(permit, connect::tls_for(shared, wanted))?;
    drop(asking);
    let provisioning = info_span!(target: PHASE, parent: opening, "database.user");
    let mut provisioned = provision::enter(shared, wanted, &listed.entry().about).await?;
    drop(provisioning);
    let opened = async {
        let begin = async || {
            if wanted.permit.options().refuse_unseen {
                unseen::check(shared, wanted, tls.clone()).await?;
            }
            connect::open(shared, wanted, tls.clone(), startup, &asked.cancel, opening).await
        };
        let mut opened = Box::pin(begin()).await;
        if let (Err(ConnectError::Server { code, .. }), Some(provisioned)) = (&opened, &mut provisioned)
            && code == SqlState::InvalidAuthorization.code()
        {
            // Another agent has closed the user between its being opened and this login.
            provisioned.reopen().await?;
            opened = Box::pin(begin()).await;
        }
        opened.map(|opened| (opened, tls))
    };
    match opened.await {
        Ok((opened, tls)) => {
            let running = Running { database: Arc::clone(&wanted.database), tls, key: opened.key.clone() };
            // It is set here alone, once.
            let _ = listed.entry().upstream.set(running);
            Ok((opened, provisioned))
        }
        Err(error) => {
            if let Some(provisioned) = provisioned {
                let _ = provisioned.leave(None).await;
            }
            Err(error)
        }
    }
}

/// The client's first packet that says what it wants, and what came after it.
async fn startup<S>(client: &mut S) -> Result<Option<(First, BytesMut)>, NotFirst>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut bytes = BytesMut::with_capacity(1024);
    let mut requests = 0;
    loop {
        if let Some((first, length)) = startup::read(&bytes)? {
            bytes.advance(length);
            if !matches!(first, First::Tls | First::Gssapi) {
                return Ok(Some((first, bytes)));
            }
            // A relay before this has ended the client's encryption.
            requests += 1;
            if requests > MOST_REQUESTS || !send(client, &[startup::DECLINED]).await {
                return Ok(None);
            }
            continue;
        }
        if client.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return Ok(None);
        }
    }
}

/// Whether the session may be, and what goes to the server.
fn decide(
    shared: &Shared,
    asked: &Asked,
    mut startup: Startup,
    user: &str,
    name: &str,
) -> Result<(Wanted, Startup, Option<Lowered>), Refusal> {
    let settings = &shared.settings;
    if shared.sessions.is_draining() {
        return Err(stopping());
    }
    let Some(database) = settings.directory.database(&asked.database) else {
        let message = format!("the agent {} does not serve {}", settings.agent, asked.database);
        return Err(
            Refusal::new(SqlState::InvalidCatalogName, message).hint("see what there is: sallyport db ls")
        );
    };
    if user.is_empty() {
        let message = "no database user was given";
        return Err(Refusal::new(SqlState::InvalidAuthorization, message).hint("psql ... -U USER"));
    }
    if startup.wants_replication() {
        return Err(Refusal::replication());
    }
    let (now, account) = (OffsetDateTime::now_utc(), DatabaseAccount::new(user, name));
    let permit = settings.directory.decide(&asked.identity, &database, &account, now).map_err(|refusal| {
        Refusal::new(SqlState::InvalidAuthorization, refusal.public_message())
            .hint(format!("see what you may use: sallyport db ls --search {}", asked.database))
    })?;
    if asked.came == Came::ByProxy && permit.options().end_to_end {
        return Err(not_end_to_end(&asked.database));
    }
    options::take_out(&mut startup);
    // What the server does not know of the rest it negotiates with the agent.
    let lowered = startup.lower();
    // Said for the server what it would have taken to be meant.
    startup.parameters.retain(|(parameter, _)| parameter != "database");
    startup.parameters.push(("database".to_owned(), name.to_owned()));
    let wanted = Wanted {
        database,
        permit: Arc::new(permit),
        login_id: asked.identity.login_id,
        proof: asked.proof.clone(),
        opened: asked.opened.clone(),
        came: asked.came,
        provisioning: false,
    };
    Ok((wanted, startup, lowered))
}

/// What a user reads whose agent is being stopped.
fn stopping() -> Refusal {
    Refusal::new(SqlState::CannotConnectNow, STOPPING)
}

/// What a user reads who has as many sessions with a database as the roles let one have.
fn too_many(wanted: &Wanted) -> Refusal {
    let (permit, database) = (&wanted.permit, &wanted.database.name);
    let message = format!(
        "{} has {} sessions with {database} through this agent, as many as one user may have (max_db_sessions)",
        permit.user(),
        permit.options().max_sessions
    );
    Refusal::new(SqlState::TooManyConnections, message).hint(
        "close some, or use fewer in your program's pool; each counts until its process at the server has ended \
         (sallyport sessions ls). An administrator may raise max_db_sessions in a role",
    )
}

/// What a client reads that has to prove a second factor first.
#[must_use]
pub fn factor_missing(missing: &Missing) -> Refusal {
    Refusal::new(SqlState::InvalidAuthorization, missing.to_string())
}

/// What a client reads whose TLS ends at a proxy where a role demands that it ends at the agent.
#[must_use]
pub fn not_end_to_end(database: &DatabaseName) -> Refusal {
    let message = format!(
        "your roles want sessions with {database} end to end (db_end_to_end: required), and this one's TLS ends at a proxy"
    );
    let hint = format!(
        "sallyport db connect {database}; for other programs: sallyport proxy db {database} --tunnel"
    );
    Refusal::new(SqlState::InvalidAuthorization, message).hint(hint)
}

fn about(
    shared: &Shared,
    asked: &Asked,
    permit: &DatabasePermit,
    startup: &Startup,
    evidence: &Evidence,
) -> About {
    let metadata = SessionMetadata {
        session_id: asked.session,
        cluster: shared.settings.cluster.clone(),
        user: permit.user().to_string(),
        login: permit.db_user().to_owned(),
        node: permit.database().to_string(),
        node_id: shared.settings.agent_id.clone(),
        source: asked.client.clone(),
        started: OffsetDateTime::now_utc(),
        kind: "db".to_owned(),
        command: Some(permit.db_name().to_owned()),
        term: None,
        size: None,
        application: startup.parameter("application_name").map(str::to_owned),
    };
    // The agent sees the proxy's tunnel, and no client.
    About::new(metadata, evidence).told_by_proxy(true).with("db_name", permit.db_name())
}

fn refused(shared: &Shared, asked: &Asked, user: &str, name: &str) -> Event {
    unserved(Code::DatabaseSessionRefused, shared, asked, user, name)
}

/// An event of a session that has not begun.
fn unserved(code: Code, shared: &Shared, asked: &Asked, user: &str, name: &str) -> Event {
    let event = Event::new(code, OffsetDateTime::now_utc())
        .user(asked.identity.display_name())
        .login(user)
        .node(asked.database.to_string())
        .session(asked.session)
        .source(asked.client.as_str())
        .source_by_proxy()
        .field("agent", shared.settings.agent.to_string());
    if name.is_empty() { event } else { event.field("db_name", name) }
}

fn described(
    event: Event,
    shared: &Shared,
    wanted: &Wanted,
    startup: &Startup,
    recording: &'static str,
) -> Event {
    let permit = &wanted.permit;
    let mut event = event
        .message(format!("{} as {} in {}", permit.user(), permit.db_user(), permit.db_name()))
        .field("agent", shared.settings.agent.to_string())
        .field("address", wanted.database.address.as_str())
        .field("protocol", "postgres")
        .field("came", wanted.came.as_str())
        .field("rule", permit.rule())
        .field("recording", recording);
    if let Some(application) = startup.parameter("application_name") {
        event = event.field("application", application);
    }
    event
}

/// No session came of it.
async fn fails<S>(error: &ConnectError, client: &mut S, wanted: &Wanted, record: Record)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let code = match error {
        ConnectError::Denied { .. } | ConnectError::Unseen { .. } => Code::DatabaseSessionRefused,
        _ => Code::DatabaseSessionLost,
    };
    let mut event = record.event(code).message(error.to_string()).field("reason", error.name());
    if let ConnectError::Server { code, .. } = error {
        event = event.field("sqlstate", code.as_str());
    }
    record.emit(event);
    part(client, &error.to_bytes(wanted.database.name.as_str())).await;
    let frame = DatabaseFrame::Refused { sqlstate: String::new(), message: error.to_string() };
    let _ = record.note(Body::Database(Box::new(frame))).await;
    record.finish(Exit::Cut(error.to_string())).await;
}

/// Tells of the end.
async fn ends(end: &End, carried: &Carried, record: Record, activity: &Activity) {
    let mut frame = None;
    let (message, exit, event) = match end {
        End::Goodbye => ("the client said goodbye".to_owned(), Exit::Status(0), None),
        End::ClientGone => {
            let message = "the client went away".to_owned();
            (message.clone(), Exit::Cut(message), None)
        }
        End::ServerGone { problem, busy } => {
            let how = problem.as_deref().unwrap_or("the database closed the connection");
            let message = format!("{how}{}", if *busy { " in the middle of a statement" } else { "" });
            let event = record.event(Code::DatabaseSessionLost).message(message.as_str());
            (message.clone(), Exit::Cut(message), Some(event))
        }
        End::Malformed { client, error } => {
            let whose = if *client { "client" } else { "database" };
            let message = format!("from the {whose}: {error}");
            frame = Some(DatabaseFrame::Malformed { client: *client, problem: error.to_string() });
            let event = record.event(Code::DatabaseMalformed).message(message.as_str());
            (message.clone(), Exit::Cut(message), Some(event.field("from", whose)))
        }
        End::Cut(stop) => {
            let why = stop.to_string();
            let sqlstate = SqlState::AdminShutdown.code().to_owned();
            frame = Some(DatabaseFrame::Refused { sqlstate, message: why.clone() });
            let event = record.event(Code::DatabaseSessionCut).message(why.as_str());
            (why.clone(), Exit::Cut(why), Some(event))
        }
    };
    if let Some(event) = event {
        record.emit(event);
    }
    let seconds = activity.elapsed().as_secs_f64();
    let event = record
        .event(Code::DatabaseSessionEnd)
        .message(message)
        .field("duration_ms", (seconds * 1000.0).round())
        .field("bytes_in", carried.from_client)
        .field("bytes_out", carried.to_client)
        .field("statements", carried.totals.statements)
        .field("errors", carried.totals.errors)
        .field("rows", carried.totals.rows);
    record.emit(event);
    if let Some(frame) = frame {
        let _ = record.note(Body::Database(Box::new(frame))).await;
    }
    record.finish(exit).await;
}

/// Says why there is no session, and ends the connection in order.
async fn part<S: AsyncWrite + Unpin>(client: &mut S, bytes: &[u8]) {
    if send(client, bytes).await {
        let _ = timeout(std::time::Duration::from_secs(2), client.shutdown()).await;
    }
}

/// Whether the client took it.
async fn send<S: AsyncWrite + Unpin>(client: &mut S, bytes: &[u8]) -> bool {
    let sent = async {
        client.write_all(bytes).await?;
        client.flush().await
    };
    matches!(timeout(std::time::Duration::from_secs(10), sent).await, Ok(Ok(())))
}
