//! Connections of local database clients that are TLS from here to an agent: the proxy carries ciphertext, and the agent has
//! the user's own word for the session.
//!
//! As with nodes' native listeners, a pair of sockets is between TLS and the forwarder, which is that of all other streams. A
//! client's request to cancel goes by the proxy, which made its key.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sallyport_access::{HostId, Principal};
use sallyport_ca::tls::node::NodeClient;
use sallyport_ca::tls::refusal as refused_host;
use sallyport_ca::{Opening, Trust};
use sallyport_client::error::{Doing, Error as ClientError};
use sallyport_databases::postgres::boundary::Boundary;
use sallyport_databases::postgres::error::{LOST, LOST_HINT, Refusal, SqlState};
use sallyport_databases::postgres::options;
use sallyport_databases::postgres::startup::{self, First};
use sallyport_sal::MemoryKey;
use sallyport_sal::tls::rustls::pki_types::CertificateDer;
use sallyport_sal::tls::rustls::pki_types::pem::PemObject;
use sallyport_ssh::door::DoorStream;
use sallyport_wire::v1::DatabaseOpening;
use sallyport_wire::{alpn, database};
use time::OffsetDateTime;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tracing::{debug, warn};

use super::ends::{Input, Output, gone};
use super::forwarder::{Forwarder, Target, refusal};
use super::native::{CAUSE_PATIENCE, connect, next};
use super::stream_state::StreamState;
use super::transports::Transports;
use crate::error::{Error, Result};
use sallyport_client::database_agents;
use sallyport_client::error::chain;
use sallyport_client::native as protocol;
use sallyport_client::profile::Stored;

/// From the first byte to a proven agent.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(30);
/// When the program has gone, what it wrote last still goes out for so long.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What the user proves with, for as long as the login is the same.
#[derive(Default)]
pub(super) struct Own(RefCell<Option<Rc<Login>>>);

struct Login {
    of: Arc<Stored>,
    trust: Trust,
    key: MemoryKey,
    certificate: Vec<u8>,
    clients: RefCell<HashMap<String, (Vec<HostId>, NodeClient)>>,
}

impl Own {
    fn login(&self, stored: &Arc<Stored>) -> Result<Rc<Login>> {
        let mut held = self.0.borrow_mut();
        if let Some(login) = held.as_ref()
            && Arc::ptr_eq(&login.of, stored)
        {
            return Ok(Rc::clone(login));
        }
        let (chain, key) = stored.tls_identity()?;
        let doing = "use the stored certificates";
        let login = Rc::new(Login {
            of: Arc::clone(stored),
            trust: stored.trust()?,
            key: MemoryKey::from_pkcs8_pem(&key).doing(doing)?,
            certificate: CertificateDer::from_pem_slice(chain.as_bytes()).doing(doing)?.to_vec(),
            clients: RefCell::default(),
        });
        *held = Some(Rc::clone(&login));
        Ok(login)
    }

    /// Forgets the login.
    pub(super) fn forget(&self) {
        *self.0.borrow_mut() = None;
    }
}

impl Login {
    fn client(&self, database: &str, agents: &[HostId]) -> Result<NodeClient> {
        let mut clients = self.clients.borrow_mut();
        if let Some((of, client)) = clients.get(database)
            && of == agents
        {
            return Ok(client.clone());
        }
        let (chain, key) = self.of.tls_identity()?;
        let client = NodeClient::one_of(&self.trust, (&chain, &key), alpn::DATABASE, database, agents)
            .doing("use the stored certificates")?;
        clients.insert(database.to_owned(), (agents.to_vec(), client.clone()));
        Ok(client)
    }

    /// The user's word that a session is opened to the agent at the other end.
    fn word(&self, tls: &DoorStream<UnixStream>, asked: &Asked) -> Result<DatabaseOpening> {
        let now = OffsetDateTime::now_utc();
        let doing = "sign for the session";
        let agent = self.trust.identify_peer(tls.peer_certificates(), now).doing(doing)?;
        let Principal::Host { id: agent, .. } = agent.principal else {
            return Err(Error::NoAgent(agent.display_name().to_string()));
        };
        let opening = Opening {
            agent,
            database: &asked.database,
            db_user: &asked.user,
            db_name: &asked.name,
            user_certificate: &self.certificate,
        };
        let word = opening.sign_as_user(&self.key, now).doing(doing)?;
        Ok(DatabaseOpening {
            certificate: word.certificate,
            at: word.at,
            nonce: word.nonce.into(),
            signature: word.signature.into(),
        })
    }
}

/// What a client's first packet asks for.
struct Asked {
    database: String,
    user: String,
    name: String,
}

impl Asked {
    /// None where it is not the beginning of a session.
    fn of(database: &str, early: &[u8]) -> Option<Self> {
        let Ok(Some((First::Startup(startup), _))) = startup::read(early) else { return None };
        Some(Self {
            database: options::database(&startup).unwrap_or_else(|| database.to_owned()),
            user: startup.user().unwrap_or_default().to_owned(),
            name: startup.database().unwrap_or_default().to_owned(),
        })
    }
}

/// One client's connection.
pub(super) struct EndToEnd<'a> {
    pub(super) own: &'a Own,
    pub(super) transports: &'a Transports,
    /// The database that the client came for.
    pub(super) database: String,
    /// What the client has said already, its first packet at least.
    pub(super) early: Vec<u8>,
    pub(super) input: Input,
    pub(super) output: Output,
    /// Ends when the program does; none where the program is this one.
    pub(super) program: Option<&'a UnixStream>,
}

/// What has come of a session.
#[derive(Default)]
struct Come {
    /// The client has heard something.
    heard: Cell<bool>,
    /// Where what it has heard ends.
    boundary: RefCell<Boundary>,
}

/// Why a session has ended before its time.
enum Ended {
    /// What answered is none of the agents that may.
    Stranger(Error),
    Failed(Error),
}

impl From<ClientError> for Ended {
    fn from(error: ClientError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl EndToEnd<'_> {
    /// Carries bytes until one side has ended. What goes wrong the client is told in the database's own protocol, where there
    /// is room for it.
    pub(super) async fn run(self, stored: Arc<Stored>) -> Result {
        let Some(asked) = Asked::of(&self.database, &self.early) else {
            return self.by_the_proxy(stored).await;
        };
        let known = tokio::select! {
            known = database_agents::agents(&stored, &asked.database) => known,
            () = gone(self.program) => return Ok(()),
        };
        let agents = match known {
            Ok(agents) => agents,
            Err(error) => return self.refuse(&Come::default(), None, error.into()).await,
        };
        if agents.is_empty() {
            warn!(database = asked.database, "the agents are of an earlier release: TLS ends at the proxy");
            return self.by_the_proxy(stored).await;
        }
        let (come, state) = (Come::default(), StreamState::late());
        let error = match self.session(&stored, &asked, &agents, (&come, &state)).await {
            Ok(()) => return Ok(()),
            Err(Ended::Failed(error)) => error,
            Err(Ended::Stranger(error)) => match database_agents::ask(&stored, &asked.database).await {
                // Another agent serves it since; or the proxy leads astray.
                Ok(now) if !now.is_empty() && now != agents => {
                    match self.session(&stored, &asked, &now, (&come, &state)).await {
                        Ok(()) => return Ok(()),
                        Err(Ended::Failed(error) | Ended::Stranger(error)) => error,
                    }
                }
                _ => error,
            },
        };
        let said = state.refusal.take();
        self.refuse(&come, said, error).await
    }

    /// Tells the client, where a message of the server's may stand.
    async fn refuse(&self, come: &Come, said: Option<Bytes>, error: Error) -> Result {
        let bytes = match (come.heard.get(), said) {
            (false, Some(said)) => said,
            (false, None) => refusal(&error).into(),
            (true, _) if come.boundary.borrow().is_here() => {
                Refusal::new(SqlState::ConnectionFailure, LOST).hint(LOST_HINT).to_bytes().into()
            }
            (true, _) => return Err(error),
        };
        let _ = self.output.write_all(bytes).await;
        Err(error)
    }

    /// Carries bytes as they are, which the proxy sees.
    async fn by_the_proxy(self, stored: Arc<Stored>) -> Result {
        let Self { transports, database, early, input, output, program, .. } = self;
        let target = Target::Database { name: database };
        Forwarder { transports, target, early, input, output, program, state: None }.run(stored).await
    }

    async fn session(
        &self,
        stored: &Arc<Stored>,
        asked: &Asked,
        agents: &[HostId],
        (come, state): (&Come, &StreamState),
    ) -> Result<(), Ended> {
        let login = self.own.login(stored)?;
        let (tls, far) = connect(&login.client(&asked.database, agents)?)?;
        let upstream = self.upstream(Arc::clone(stored), far, asked, agents.to_vec(), state);
        let (mut upstream, mut talk): (Pin<&mut _>, Pin<&mut _>) =
            (pin!(upstream), pin!(self.talk(tls, &login, asked, come)));
        tokio::select! {
            biased;
            // What came before the end is still the agent's.
            error = upstream.as_mut() => match tokio::time::timeout(CAUSE_PATIENCE, talk).await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(Ended::Stranger(stranger))) => Err(Ended::Stranger(stranger)),
                _ => Err(Ended::Failed(error)),
            },
            ended = talk.as_mut() => match ended {
                // Why the stream upstream has ended is the cause, and known in a moment if it has.
                Err(Ended::Failed(error)) => {
                    let cause = tokio::time::timeout(CAUSE_PATIENCE, upstream).await;
                    Err(Ended::Failed(cause.unwrap_or(error)))
                }
                other => other,
            },
        }
    }

    /// The stream to the agent, up to what is wrong with it. One that has ended well has said everything; TLS sees the end by
    /// itself.
    async fn upstream(
        &self,
        stored: Arc<Stored>,
        (input, output): (Input, Output),
        asked: &Asked,
        agents: Vec<HostId>,
        state: &StreamState,
    ) -> Error {
        let (database, user, name) = (asked.database.clone(), asked.user.clone(), asked.name.clone());
        let target = Target::Agent { database, user, name, agents };
        let (transports, early) = (self.transports, Vec::new());
        let forwarder =
            Forwarder { transports, target, early, input, output, program: None, state: Some(state) };
        match forwarder.run(stored).await {
            Ok(()) => std::future::pending().await,
            Err(error) => error,
        }
    }

    /// The client's bytes inside TLS, until either has ended.
    async fn talk(
        &self,
        mut tls: DoorStream<UnixStream>,
        login: &Login,
        asked: &Asked,
        come: &Come,
    ) -> Result<(), Ended> {
        let shaken = tokio::select! {
            shaken = tokio::time::timeout(HANDSHAKE_PATIENCE, tls.handshake()) => shaken,
            () = gone(self.program) => return Ok(()),
        };
        match shaken {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(explain(&asked.database, &error)),
            Err(_) => {
                let (database, seconds) = (asked.database.clone(), HANDSHAKE_PATIENCE.as_secs());
                return Err(Error::AgentSilent { database, seconds }.into());
            }
        }
        debug!(database = asked.database, "a session end to end begins");
        let lost = |error: std::io::Error| -> Ended {
            Error::AgentLost { database: asked.database.clone(), why: error.to_string() }.into()
        };
        let first = [database::preamble(&login.word(&tls, asked)?).as_slice(), &self.early].concat();
        tls.write_all(&first).await.map_err(lost)?;
        tls.flush().await.map_err(lost)?;
        let (mut from_agent, mut to_agent) = tokio::io::split(tls);
        let upstream = async {
            loop {
                let bytes = self.input.read().await;
                if bytes.is_empty()
                    || to_agent.write_all(&bytes).await.is_err()
                    || to_agent.flush().await.is_err()
                {
                    break;
                }
            }
            let _ = to_agent.shutdown().await;
            // Whatever becomes of the input, the other end has the last word.
            std::future::pending::<()>().await;
        };
        let downstream = async {
            loop {
                let bytes = next(&mut from_agent).await.map_err(lost)?;
                if bytes.is_empty() {
                    return Ok(());
                }
                come.heard.set(true);
                come.boundary.borrow_mut().pass(&bytes);
                // The client does not listen any more.
                if self.output.write_all(bytes).await.is_err() {
                    return Ok(());
                }
            }
        };
        let (mut upstream, mut downstream) = (pin!(upstream), pin!(downstream));
        tokio::select! {
            ended = downstream.as_mut() => ended,
            () = upstream.as_mut() => Ok(()),
            () = gone(self.program) => {
                let last = async {
                    tokio::select! {
                        _ = downstream => {}
                        () = upstream => {}
                    }
                };
                let _ = tokio::time::timeout(LAST_WORDS, last).await;
                Ok(())
            }
        }
    }
}

/// A failed handshake in words, with what to try.
fn explain(database: &str, error: &std::io::Error) -> Ended {
    let database = database.to_owned();
    if let Some(refused) = refused_host(error) {
        return Ended::Stranger(Error::OtherAgent { database, why: refused.to_string() });
    }
    if protocol::is_ssh_alone(error) {
        return Error::NotEndToEnd { database }.into();
    }
    Error::AgentFailed { database, why: chain(error, &error.to_string()) }.into()
}
