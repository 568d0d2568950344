//! Database clients on their way to an agent: the startup message is read and decided about here, and from then on bytes
//! are carried.

mod asked;
mod cancels;
mod crowded;
mod frames;
mod fresh;
mod greeting;
mod relay;
mod said;
mod ways;
mod word;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use futures::future::BoxFuture;
use metrics::counter;
use sallyport_access::{DatabaseName, DatabasePermit, HostId, Kind, SessionTarget};
use sallyport_audit::{Code, Event, PHASE};
use sallyport_databases::postgres::error::Refusal;
use sallyport_databases::postgres::options;
use sallyport_databases::postgres::startup::First;
use sallyport_wire::trace_context::TraceContext;
use sallyport_wire::v1;
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::Status;
use tracing::field::Empty;
use tracing::{Instrument, Span, info, info_span};

use self::asked::DatabaseAsked;
pub(crate) use self::frames::{DatabaseFrames, connected};
pub(crate) use self::fresh::FreshKeys;
use self::greeting::{Denied, first_packet, say};
pub(crate) use self::greeting::{no_database_client, refuse_plain, refuse_stranger, refuse_unfit};
use self::said::Said;
pub(crate) use self::ways::Databases;
use self::ways::{DatabaseStream, about};
use super::client::{Client, Grpc, Native};
use super::open::{ClientContext, Opened, OpenedFor};
use super::watcher::{Session, Watcher};

/// How long a client may take for its first packet, as PostgreSQL's `authentication_timeout`.
const STARTUP_PATIENCE: Duration = Duration::from_secs(60);
/// How long a client that has cancelled has to take the end of its connection.
const CANCEL_GRACE: Duration = Duration::from_millis(500);
/// Agents that a client may name, as many as a database has.
const MOST_AGENTS: usize = 64;

impl Databases {
    /// Serves a client that speaks TLS with this proxy, to its end.
    pub(crate) async fn serve_native<T>(&self, client: ClientContext, named: Option<DatabaseName>, stream: T)
    where
        T: AsyncRead + AsyncWrite + Send,
    {
        self.serve(client, None, named, Native::new(stream)).await;
    }

    /// Serves a client that comes inside a gRPC stream, to its end. `said` is the trace that it says this is part of, as far as
    /// that counts.
    pub(crate) async fn serve_grpc(
        &self,
        client: ClientContext,
        said: Option<TraceContext>,
        named: DatabaseName,
        stream: Grpc<DatabaseFrames>,
    ) {
        self.serve(client, said, Some(named), stream).await;
    }

    async fn serve(
        &self,
        client: ClientContext,
        said: Option<TraceContext>,
        named: Option<DatabaseName>,
        mut stream: impl Client,
    ) {
        let span = info_span!(
            "proxy.database",
            user = %client.identity.display_name(),
            database = Empty
        );
        let opening = opening(&client, said);
        let mut ahead = BytesMut::new();
        let waiting = info_span!(target: PHASE, parent: &opening, "database.startup");
        let reading = first_packet(&mut stream, &mut ahead);
        let said = tokio::time::timeout(STARTUP_PATIENCE, reading).await;
        drop(waiting);
        let first = match said {
            Ok(Ok(Some(first))) => first,
            Ok(Ok(None)) => return,
            Ok(Err(denied)) => {
                opening.record("error.type", denied.reason);
                drop(opening);
                let asked = DatabaseAsked { databases: self, name: named.as_ref(), said: None };
                self.opener.refused(&client, &asked, &denied, OffsetDateTime::now_utc());
                return say(stream, &denied.refusal).await;
            }
            Err(_) => {
                counter!("sallyport_first_bytes_dropped_total", "reason" => "postgres_timeout").increment(1);
                return;
            }
        };
        let startup = match first {
            First::Cancel(key) => {
                self.cancel(&key, client.address);
                // A client that asks inside TLS takes an end without close_notify for a request that was not heard.
                let _ = tokio::time::timeout(CANCEL_GRACE, stream.finish()).await;
                return;
            }
            First::Startup(startup) => startup,
            // Answered on the way.
            First::Tls | First::Gssapi => return,
        };
        let name = match options::database(&startup) {
            Some(asked) => DatabaseName::new(asked).ok(),
            None => named,
        };
        if let Some(name) = &name {
            span.record("database", name.as_str());
        }
        async {
            let asked =
                DatabaseAsked { databases: self, name: name.as_ref(), said: Some(Said::by(&startup)) };
            let opened = self.opener.open(&client, &asked, &opening, OffsetDateTime::now_utc()).await;
            match opened {
                Ok(opened) => {
                    let first_byte = first_byte(&opening);
                    drop(opening);
                    let mut first = BytesMut::from(startup.to_bytes().as_slice());
                    first.extend_from_slice(&ahead);
                    self.carry(&client, opened, Some(first.freeze()), stream, first_byte).await;
                }
                Err(denied) => {
                    drop(opening);
                    let refusal = self.told(&client, &asked, denied).await;
                    say(stream, &refusal).await;
                }
            }
        }
        .instrument(span)
        .await;
    }

    /// What the client shows. It cannot ask for a second factor, so that the words say where it is proven.
    async fn told(&self, client: &ClientContext, asked: &DatabaseAsked<'_>, denied: Denied) -> Refusal {
        let (Some(_), Some(name)) = (denied.factor, asked.name) else { return denied.refusal };
        let said = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
        let target = SessionTarget {
            account: said(asked.said.and_then(|said| said.user)),
            db_name: said(asked.said.and_then(|said| said.name.or(said.user))),
            ..SessionTarget::any(Kind::Database, name.as_str())
        };
        let whose = (&client.certificate, client.address);
        match self.opener.asking.words(&client.identity, whose, (target, name.as_str())).await {
            Some(words) => denied.refusal.hint(words),
            None => denied.refusal,
        }
    }

    /// Opens the way for a client whose TLS goes on to an agent, by what it says outside of that, and carries what the two say to
    /// each other.
    pub(crate) async fn open_end_to_end(
        &self,
        client: ClientContext,
        said: Option<TraceContext>,
        name: DatabaseName,
        target: &v1::DatabaseTarget,
    ) -> Result<impl FnOnce(Grpc<DatabaseFrames>) -> BoxFuture<'static, ()> + use<>, Status> {
        if target.agents.len() > MOST_AGENTS {
            let problem =
                format!("{} agents are named, at most {MOST_AGENTS} are allowed", target.agents.len());
            return Err(Status::invalid_argument(problem));
        }
        let agents: Result<Vec<HostId>, _> = target.agents.iter().map(|agent| agent.parse()).collect();
        let agents = agents.map_err(|error| Status::invalid_argument(format!("an agent's id: {error}")))?;
        let opening = opening(&client, said);
        let said = Said {
            user: Some(target.db_user.as_str()).filter(|user| !user.is_empty()),
            name: Some(target.db_name.as_str()).filter(|name| !name.is_empty()),
            replicates: false,
            end_to_end: Some(&agents),
        };
        let asked = DatabaseAsked { databases: self, name: Some(&name), said: Some(said) };
        let opened = self.opener.open(&client, &asked, &opening, OffsetDateTime::now_utc()).await;
        let opened = opened.map_err(|denied| denied.status())?;
        let (databases, first_byte) = (self.clone(), first_byte(&opening));
        let span = info_span!(
            "proxy.database",
            user = %client.identity.display_name(),
            database = %opened.permit.database()
        );
        Ok(move |stream| {
            let carried = async move { databases.carry(&client, opened, None, stream, first_byte).await };
            carried.instrument(span).boxed()
        })
    }

    /// Carries bytes until both have finished, one is gone, or what let the user in is taken away.
    async fn carry(
        &self,
        client: &ClientContext,
        opened: OpenedFor<DatabaseAsked<'static>>,
        first: Option<Bytes>,
        to: impl Client,
        first_byte: Span,
    ) {
        // What counts it and what knows its key live as long as it does.
        let Opened { found: database, permit, stream: way, counted, place: _place, .. } = opened;
        let DatabaseStream { stream, cancel: _cancel, .. } = way;
        let (view, sink) = (Arc::clone(self.view()), Arc::clone(&self.opener.sink));
        let (identity, client, by) = (Arc::clone(&client.identity), client.clone(), permit.clone());
        let tells = move |code| event(code, &client, &by);
        let session = Session::with_database(view, &identity, &database, &permit, sink, tells);
        // The agent sees it, too, and says it in the database's own protocol.
        let mut watcher = Watcher::new(session, Some(counted), |_| {});
        let carried = async {
            match (&self.fresh, first) {
                (Some(fresh), Some(first)) => {
                    Box::pin(fresh.carry(to, stream, first, first_byte)).await;
                    Ok(())
                }
                (_, first) => relay::carry(to, &stream, first, first_byte).await,
            }
        };
        let ended = tokio::select! {
            ended = carried => ended,
            _ = watcher.cut() => Ok(()),
        };
        if let Err(error) = ended {
            info!(%error, "the way to a database was lost");
            let event = watcher.event(Code::DatabaseSessionLost).message(error.to_string());
            self.opener.sink.emit(event.field("at", "proxy"));
        }
        info!("database session closed at the proxy");
    }
}

/// An event about a session.
fn event(code: Code, client: &ClientContext, permit: &DatabasePermit) -> Event {
    let event = Event::new(code, OffsetDateTime::now_utc())
        .user(client.identity.display_name())
        .source(client.address.to_string());
    about(event, permit)
}

/// Around the beginning of a connection. Never entered: what is spawned meanwhile would keep it.
fn opening(client: &ClientContext, said: Option<TraceContext>) -> Span {
    info_span!(
        target: PHASE,
        parent: None,
        "proxy.connect",
        traceparent = said.map(display),
        otel.kind = "server",
        client.address = %client.address.ip(),
        network.protocol.name = "postgresql",
        "error.type" = Empty
    )
}

/// Lasts until the first byte comes back.
fn first_byte(opening: &Span) -> Span {
    info_span!(target: PHASE, parent: opening, "database.first_byte")
}
