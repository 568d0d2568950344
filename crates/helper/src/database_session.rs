//! A database client's session, as it goes end to end: the user's own word for it comes first, and what is wrong the client reads in
//! PostgreSQL's protocol. A request to cancel goes by the proxy, which made its key.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use sallyport_access::HostId;
use sallyport_ca::Opening;
use sallyport_client::agents;
use sallyport_client::error::Doing;
use sallyport_client::profile::Stored;
use sallyport_client::session_factor::Asker;
use sallyport_databases::postgres::boundary::Boundary;
use sallyport_databases::postgres::error::{LOST, LOST_HINT, Refusal, SqlState};
use sallyport_databases::postgres::options;
use sallyport_databases::postgres::startup::{self, First};
use sallyport_wire::v1::DatabaseOpening;
use sallyport_wire::{alpn, preamble};
use time::OffsetDateTime;
use tracing::warn;

use super::end_to_end::{EndToEnd, FromAgent, Login, Own, Speaks};
use super::ends::{Input, Output, gone};
use super::forwarder::{Forwarder, Target, refusal};
use super::program::Program;
use super::stream_state::StreamState;
use super::transports::Transports;
use crate::error::{Error, Result};

/// What a client's first packet asks for.
struct Asked {
    database: String,
    user: String,
    name: String,
    /// The client has heard something.
    heard: Cell<bool>,
    /// Where the bytes that it was sent end.
    boundary: RefCell<Boundary>,
}

impl Asked {
    /// None where it is not the beginning of a session.
    fn of(database: &str, early: &[u8]) -> Option<Self> {
        let Ok(Some((First::Startup(startup), _))) = startup::read(early) else { return None };
        Some(Self {
            database: options::database(&startup).unwrap_or_else(|| database.to_owned()),
            user: startup.user().unwrap_or_default().to_owned(),
            name: startup.database().unwrap_or_default().to_owned(),
            heard: Cell::default(),
            boundary: RefCell::default(),
        })
    }
}

impl Speaks for Asked {
    // When the server has ended a session, nothing that its client says is of use.
    const HALF_CLOSE: bool = false;

    fn shown(&self) -> String {
        self.database.clone()
    }

    fn alpn(&self) -> &'static [u8] {
        alpn::DATABASE
    }

    fn asked(&self) -> agents::Asked<'_> {
        agents::Asked::Database(&self.database)
    }

    fn target(&self, agents: Vec<HostId>) -> Target {
        let (database, user, name) = (self.database.clone(), self.user.clone(), self.name.clone());
        Target::Agent { database, user, name, agents }
    }

    fn first(&self, login: &Login, agent: HostId) -> Result<Vec<u8>> {
        let opening = Opening {
            agent,
            database: &self.database,
            db_user: &self.user,
            db_name: &self.name,
            user_certificate: &login.certificate,
        };
        let word =
            opening.sign_as_user(&login.key, OffsetDateTime::now_utc()).doing("sign for the session")?;
        Ok(preamble::encode(&DatabaseOpening {
            certificate: word.certificate,
            at: word.at,
            nonce: word.nonce.into(),
            signature: word.signature.into(),
        }))
    }

    fn answer<'a>(&'a self, _: &'a mut FromAgent) -> LocalBoxFuture<'a, Result> {
        std::future::ready(Ok(())).boxed_local()
    }

    fn passes(&self, bytes: &[u8]) {
        self.heard.set(true);
        self.boundary.borrow_mut().pass(bytes);
    }
}

/// One client's connection.
pub(super) struct DatabaseSession<'a> {
    pub(super) own: &'a Own,
    pub(super) transports: &'a Transports,
    /// The database that the client came for.
    pub(super) database: String,
    /// What the client has said already, its first packet at least.
    pub(super) early: Vec<u8>,
    pub(super) input: Input,
    pub(super) output: Output,
    /// Ends when the program does; none where the program is this one.
    pub(super) program: Option<&'a Program>,
    /// Reaches the person, where a second factor has to be proven first.
    pub(super) asker: Option<&'a dyn Asker>,
}

impl DatabaseSession<'_> {
    /// Carries bytes until one side has ended. What goes wrong the client is told in the database's own protocol, where there
    /// is room for it.
    pub(super) async fn run(self, stored: Arc<Stored>) -> Result {
        let Some(asked) = Asked::of(&self.database, &self.early) else {
            return self.by_the_proxy(stored).await;
        };
        let known = tokio::select! {
            known = agents::agents(&stored, asked.asked()) => known,
            () = gone(self.program) => return Ok(()),
        };
        let agents = match known {
            Ok(agents) => agents,
            Err(error) => return self.refuse(&asked, None, error.into()).await,
        };
        if agents.is_empty() {
            warn!(database = asked.database, "the agents are of an earlier release: TLS ends at the proxy");
            return self.by_the_proxy(stored).await;
        }
        let state = StreamState::late();
        let (own, transports, program, asker) = (self.own, self.transports, self.program, self.asker);
        let (early, input, output) = (self.early.as_slice(), &self.input, &self.output);
        let end_to_end = EndToEnd { own, transports, speaks: &asked, early, input, output, program, asker };
        match end_to_end.carry(&stored, &agents, &state).await {
            Ok(()) => Ok(()),
            Err(error) => self.refuse(&asked, state.refusal.take(), error).await,
        }
    }

    /// Tells the client, where a message of the server's may stand.
    async fn refuse(&self, asked: &Asked, said: Option<Bytes>, error: Error) -> Result {
        let bytes = match (asked.heard.get(), said) {
            (false, Some(said)) => said,
            (false, None) => refusal(&error).into(),
            (true, _) if asked.boundary.borrow().is_here() => {
                Refusal::new(SqlState::ConnectionFailure, LOST).hint(LOST_HINT).to_bytes().into()
            }
            (true, _) => return Err(error),
        };
        let _ = self.output.write_all(bytes).await;
        Err(error)
    }

    /// Carries bytes as they are, which the proxy sees.
    async fn by_the_proxy(self, stored: Arc<Stored>) -> Result {
        let Self { transports, database, early, input, output, program, asker, .. } = self;
        let target = Target::Database { name: database };
        Forwarder { transports, target, early, input, output, program, asker, state: None }.run(stored).await
    }
}
