//! Connections of local programs that are TLS from here to an agent: the proxy carries ciphertext, and the agent knows the user
//! by the handshake. What is said first, and how a program is told what went wrong, each kind of session answers for itself
//! ([`Speaks`]).
//!
//! As with nodes' native listeners, a pair of sockets is between TLS and the forwarder, which is that of all other streams.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use sallyport_access::{HostId, Principal};
use sallyport_ca::Trust;
use sallyport_ca::tls::node::NodeClient;
use sallyport_ca::tls::refusal as refused_host;
use sallyport_client::agents::{self, Asked};
use sallyport_client::error::{Doing, Error as ClientError};
use sallyport_sal::MemoryKey;
use sallyport_sal::tls::rustls::pki_types::CertificateDer;
use sallyport_sal::tls::rustls::pki_types::pem::PemObject;
use sallyport_ssh::endpoint::EndpointStream;
use time::OffsetDateTime;
use tokio::io::{AsyncWriteExt, ReadHalf};
use tokio::net::UnixStream;
use tracing::debug;

use super::ends::{Input, Output, gone};
use super::forwarder::{Forwarder, Target};
use super::native::{CAUSE_PATIENCE, connect, next};
use super::program::Program;
use super::stream_state::StreamState;
use super::transports::Transports;
use crate::error::{Error, Result};
use sallyport_client::error::chain;
use sallyport_client::native as protocol;
use sallyport_client::profile::Stored;
use sallyport_client::session_factor::Asker;

/// From the first byte to a proven agent.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(30);
/// When the program has gone, what it wrote last still goes out for so long.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// TLS to an agent, as it is read.
pub(super) type FromAgent = ReadHalf<EndpointStream<UnixStream>>;

/// What one kind of session says and hears besides the bytes of the program.
pub(super) trait Speaks {
    /// Whether one direction goes on when the other has ended. Where not, the session ends with what comes from the agent.
    const HALF_CLOSE: bool;

    /// What errors call it.
    fn shown(&self) -> String;

    /// The protocol that is asked for in TLS.
    fn alpn(&self) -> &'static [u8];

    /// What the authority is asked about.
    fn asked(&self) -> Asked<'_>;

    /// What the proxy is asked for.
    fn target(&self, agents: Vec<HostId>) -> Target;

    /// What goes to this agent before the bytes of the program.
    fn first(&self, login: &Login, agent: HostId) -> Result<Vec<u8>>;

    /// Reads what the agent says before the bytes for the program.
    fn answer<'a>(&'a self, from_agent: &'a mut FromAgent) -> LocalBoxFuture<'a, Result>;

    /// These bytes go to the program.
    fn passes(&self, bytes: &[u8]);
}

/// What the user proves with, for as long as the login is the same.
#[derive(Default)]
pub(super) struct Own(RefCell<Option<Rc<Login>>>);

pub(super) struct Login {
    of: Arc<Stored>,
    trust: Trust,
    pub(super) key: MemoryKey,
    pub(super) certificate: Vec<u8>,
    clients: RefCell<HashMap<String, (BTreeSet<HostId>, NodeClient)>>,
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
    fn client(&self, speaks: &impl Speaks, agents: &[HostId]) -> Result<NodeClient> {
        let name = speaks.shown();
        let mut clients = self.clients.borrow_mut();
        let among = set(agents);
        if let Some((of, client)) = clients.get(&name)
            && *of == among
        {
            return Ok(client.clone());
        }
        let (chain, key) = self.of.tls_identity()?;
        let client = NodeClient::one_of(&self.trust, (&chain, &key), speaks.alpn(), &name, agents)
            .doing("use the stored certificates")?;
        clients.insert(name, (among, client.clone()));
        Ok(client)
    }

    /// Which agent is at the other end.
    fn agent(&self, tls: &EndpointStream<UnixStream>) -> Result<HostId> {
        let identified = self.trust.identify_peer(tls.peer_certificates(), OffsetDateTime::now_utc());
        let agent = identified.doing("know the agent")?;
        match agent.principal {
            Principal::Host { id, .. } => Ok(id),
            Principal::User { .. } => Err(Error::NoAgent(agent.display_name().to_string())),
        }
    }
}

/// One program's connection.
pub(super) struct EndToEnd<'a, S> {
    pub(super) own: &'a Own,
    pub(super) transports: &'a Transports,
    pub(super) speaks: &'a S,
    /// What the program has said already.
    pub(super) early: &'a [u8],
    pub(super) input: &'a Input,
    pub(super) output: &'a Output,
    /// Ends when the program does; none where the program is this one.
    pub(super) program: Option<&'a Program>,
    /// Reaches the person, where a second factor has to be proven first.
    pub(super) asker: Option<&'a dyn Asker>,
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

impl<S: Speaks> EndToEnd<'_, S> {
    /// Carries bytes by one of these agents until one side has ended, or both where directions end each for itself. Where
    /// another answers, or the proxy says that others serve it now, the authority is asked once more.
    pub(super) async fn carry(&self, stored: &Arc<Stored>, agents: &[HostId], state: &StreamState) -> Result {
        match self.session(stored, agents, state).await {
            Ok(()) => Ok(()),
            Err(Ended::Failed(error)) if !error.is_of_other_agents() => Err(error),
            Err(Ended::Failed(error) | Ended::Stranger(error)) => {
                match agents::ask(stored, self.speaks.asked()).await {
                    // Another agent serves it since; or the proxy leads astray.
                    Ok(now) if serves_otherwise(agents, &now) => {
                        match self.session(stored, &now, state).await {
                            Ok(()) => Ok(()),
                            Err(Ended::Failed(error) | Ended::Stranger(error)) => Err(error),
                        }
                    }
                    _ => Err(error),
                }
            }
        }
    }

    async fn session(
        &self,
        stored: &Arc<Stored>,
        agents: &[HostId],
        state: &StreamState,
    ) -> Result<(), Ended> {
        let login = self.own.login(stored)?;
        let (tls, far) = connect(&login.client(self.speaks, agents)?)?;
        let upstream = self.upstream(Arc::clone(stored), far, agents.to_vec(), state);
        let (mut upstream, mut talk): (Pin<&mut _>, Pin<&mut _>) =
            (pin!(upstream), pin!(self.talk(tls, &login, state)));
        tokio::select! {
            biased;
            ended = upstream.as_mut() => match ended {
                // It has said everything; TLS sees the end by itself.
                Ok(()) => talk.await.map(drop),
                // What came before the end is still the agent's.
                Err(error) => match tokio::time::timeout(CAUSE_PATIENCE, talk).await {
                    Ok(Ok(_)) => Ok(()),
                    Ok(Err(Ended::Stranger(stranger))) => Err(Ended::Stranger(stranger)),
                    _ => Err(Ended::Failed(error)),
                },
            },
            ended = talk.as_mut() => match ended {
                // Why the stream upstream has ended is the cause, and known in a moment if it has.
                Err(Ended::Failed(error)) if !error.is_answer() => {
                    match tokio::time::timeout(CAUSE_PATIENCE, upstream).await {
                        Ok(Err(cause)) => Err(Ended::Failed(cause)),
                        _ => Err(Ended::Failed(error)),
                    }
                }
                // What the program said last is still on its way; the agent ends the stream when it has it all.
                Ok(Talked::Finished) if S::HALF_CLOSE => tokio::select! {
                    ended = upstream.as_mut() => ended.map_err(Ended::Failed),
                    () = gone(self.program) => {
                        let _ = tokio::time::timeout(LAST_WORDS, upstream).await;
                        Ok(())
                    }
                },
                // Its input may be open as long as it likes: nothing waits for that.
                Ok(Talked::Unheard) if S::HALF_CLOSE => {
                    let _ = tokio::time::timeout(LAST_WORDS, upstream).await;
                    Ok(())
                }
                other => other.map(drop),
            },
        }
    }

    /// The stream to the agent, to its end.
    async fn upstream(
        &self,
        stored: Arc<Stored>,
        (input, output): (Input, Output),
        agents: Vec<HostId>,
        state: &StreamState,
    ) -> Result {
        let (transports, target, early) = (self.transports, self.speaks.target(agents), Vec::new());
        let (asker, state) = (self.asker, Some(state));
        let forwarder = Forwarder { transports, target, early, input, output, program: None, asker, state };
        forwarder.run(stored).await
    }

    /// The program's bytes inside TLS, until either has ended.
    async fn talk(
        &self,
        mut tls: EndpointStream<UnixStream>,
        login: &Login,
        state: &StreamState,
    ) -> Result<Talked, Ended> {
        let shaken = tokio::select! {
            shaken = state.within(HANDSHAKE_PATIENCE, tls.handshake()) => shaken,
            () = gone(self.program) => return Ok(Talked::Finished),
        };
        match shaken {
            Some(Ok(())) => {}
            Some(Err(error)) => return Err(explain(self.speaks.shown(), &error)),
            None => {
                let (to, seconds) = (self.speaks.shown(), HANDSHAKE_PATIENCE.as_secs());
                return Err(Error::AgentSilent { to, seconds }.into());
            }
        }
        debug!(to = self.speaks.shown(), "a session end to end begins");
        let lost = |error: std::io::Error| -> Ended {
            Error::AgentLost { to: self.speaks.shown(), why: error.to_string() }.into()
        };
        let first = self.speaks.first(login, login.agent(&tls)?)?;
        let first = [first.as_slice(), self.early].concat();
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
        };
        let downstream = async {
            self.speaks.answer(&mut from_agent).await?;
            loop {
                let bytes = next(&mut from_agent).await.map_err(lost)?;
                if bytes.is_empty() {
                    self.output.finish();
                    return Ok(Talked::Finished);
                }
                self.speaks.passes(&bytes);
                if self.output.write_all(bytes).await.is_err() {
                    return Ok(Talked::Unheard);
                }
            }
        };
        let (mut upstream, mut downstream) = (pin!(upstream), pin!(downstream));
        let both = async {
            tokio::select! {
                ended = downstream.as_mut() => match ended {
                    // The agent has said everything, and the program may not have.
                    Ok(Talked::Finished) if S::HALF_CLOSE => {
                        upstream.await;
                        Ok(Talked::Finished)
                    }
                    ended => ended,
                },
                // Whatever becomes of the input, the agent has the last word.
                () = upstream.as_mut() => downstream.await,
            }
        };
        let mut both = pin!(both);
        tokio::select! {
            ended = both.as_mut() => ended,
            () = gone(self.program) => {
                let _ = tokio::time::timeout(LAST_WORDS, both).await;
                Ok(Talked::Finished)
            }
        }
    }
}

/// Agents without their order, which says only whom the proxy tries first: the authority changes it with their health.
fn set(agents: &[HostId]) -> BTreeSet<HostId> {
    agents.iter().copied().collect()
}

/// Whether another agent serves it than those that were known.
fn serves_otherwise(known: &[HostId], now: &[HostId]) -> bool {
    !now.is_empty() && set(known) != set(now)
}

/// How the talk between a program and an agent has ended.
enum Talked {
    /// The agent has said everything, or the program is gone.
    Finished,
    /// The program does not listen any more: nothing that it says can be answered, and the session is over.
    Unheard,
}

/// A failed handshake in words, with what to try.
fn explain(to: String, error: &std::io::Error) -> Ended {
    if let Some(refused) = refused_host(error) {
        return Ended::Stranger(Error::OtherAgent { to, why: refused.to_string() });
    }
    if protocol::is_ssh_alone(error) {
        return Error::NotEndToEnd { to }.into();
    }
    Error::AgentFailed { to, why: chain(error, &error.to_string()) }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_in_another_order_are_the_same_agents() {
        let [one, two, three] = [HostId::new(), HostId::new(), HostId::new()];
        assert_eq!(set(&[one, two]), set(&[two, one]));
        assert!(!serves_otherwise(&[one, two], &[two, one]));
        assert!(!serves_otherwise(&[one, two], &[]));
        assert!(serves_otherwise(&[one, two], &[two]));
        assert!(serves_otherwise(&[one, two], &[two, three]));
    }
}
