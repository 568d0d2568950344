//! The way into a connection of SSH: keys are exchanged, and the user logs in, by the SSH library; or by [`crate::transport`], and
//! the library speaks inside.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use russh::client::{self, AuthResult, Handle};
use sallyport_sal::uses::{self, Aside};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tracing::{Instrument, debug, info_span};

use super::events::{Events, Said};
use super::pipelined::{BLOCK_BYTES, GOODBYE};
use super::{ClientError, Credentials, PHASE, phases};
use crate::BoxedStream;
use crate::agent::Binding;
use crate::algorithms;
use crate::transport::clear::ClearStream;
use crate::transport::message::{
    Draft, Fields, SERVICE_ACCEPT, SERVICE_REQUEST, USERAUTH_BANNER, USERAUTH_FAILURE, USERAUTH_SUCCESS,
};
use crate::transport::{BY_APPLICATION, Breach, HostKey, Login, Opening, Step, Transport, USERAUTH};

/// Exchanges keys and logs in by the library.
pub(super) async fn by_library(
    stream: BoxedStream,
    config: russh::client::Config,
    events: Events,
    credentials: &Credentials,
    login: &str,
) -> Result<Handle<Events>, ClientError> {
    let (host, said) = (events.host.clone(), Arc::clone(&events.said));
    let exchange = phases::Exchange::begin();
    let stream = exchange.watch(stream);
    uses::count(Aside::SshConnection);
    let connecting = russh::client::connect_stream(Arc::new(config), stream, events);
    let mut handle = connecting.await.map_err(|error| match error {
        ClientError::Ssh(source) => ClientError::Handshake { host: host.clone(), source },
        other => other,
    })?;
    debug!("keys exchanged");
    exchange.end();
    if let Some(binding) = handle.agent_session_binding() {
        let _ = said.binding.set(binding.into());
    }
    let proving = credentials.prove(&mut handle, login);
    let answer = proving.instrument(info_span!(target: PHASE, "ssh.authentication")).await;
    match answer {
        Ok(AuthResult::Success) => Ok(handle),
        Err(error @ (ClientError::Signing(_) | ClientError::Agent { .. })) => Err(error),
        // A connection that ended in the middle of it reports itself as a failure without methods.
        _ => Err(not_in(host, login, &said)),
    }
}

/// The login is refused, or the connection ended in the middle of it.
fn not_in(host: String, login: &str, said: &Said) -> ClientError {
    let reason = [said.end(), said.banner()].into_iter().find(|text| !text.is_empty());
    ClientError::Authentication { host, login: login.to_owned(), reason: reason.unwrap_or_default() }
}

/// Exchanges keys, judges the host and logs in.
pub(super) async fn by_layer(
    stream: BoxedStream,
    opening: Opening,
    config: client::Config,
    events: Events,
    credentials: &Credentials,
    login: &str,
) -> Result<Handle<Events>, ClientError> {
    let (host, said) = (events.host.clone(), Arc::clone(&events.said));
    let exchange = phases::Exchange::begin();
    let transport = Transport::client(opening).map_err(|breach| failed(&host, &breach))?;
    let mut line = Line { stream: Box::new(exchange.watch(stream)), transport, host, said };
    let entering = async {
        let shown = line.host().await?;
        events.judge(&shown.key, shown.certificate.as_ref())?;
        line.accept_host()?;
        debug!("keys exchanged");
        exchange.end();
        let proving = line.log_in(credentials, login);
        proving.instrument(info_span!(target: PHASE, "ssh.authentication")).await
    };
    if let Err(error) = entering.await {
        line.leave().await;
        return Err(error);
    }
    let stream = ClearStream::of_server(line.stream, line.transport);
    let config = client::Config {
        limits: algorithms::inside_limits(),
        preferred: algorithms::inside(),
        // The user is in: what the server says from here on is the connection's.
        anonymous: true,
        ..config
    };
    client::connect_stream(Arc::new(config), stream, events).await
}

fn failed(host: &str, breach: &Breach) -> ClientError {
    ClientError::Protocol { host: host.to_owned(), reason: breach.to_string() }
}

/// A connection up to the login.
struct Line {
    stream: BoxedStream,
    transport: Transport,
    host: String,
    said: Arc<Said>,
}

impl Line {
    fn failed(&self, breach: &Breach) -> ClientError {
        failed(&self.host, breach)
    }

    fn lost(&self, reason: String) -> ClientError {
        ClientError::Lost { host: self.host.clone(), reason }
    }

    async fn send(&mut self) -> io::Result<()> {
        if !self.transport.output().is_empty() {
            self.stream.write_all_buf(self.transport.output()).await?;
            self.stream.flush().await?;
        }
        Ok(())
    }

    /// The next thing that the host says; none when it has left. What it said then is kept.
    async fn step(&mut self) -> Result<Option<Step>, ClientError> {
        loop {
            let step = self.transport.next().map_err(|breach| {
                self.transport.break_off(&breach);
                failed(&self.host, &breach)
            })?;
            match step {
                Some(Step::Farewell(payload)) => {
                    let mut fields = Fields(payload.slice(1..));
                    let words = fields.u32().and_then(|_| fields.words());
                    self.said.set_end(words.unwrap_or_default());
                    return Ok(None);
                }
                Some(step) => return Ok(Some(step)),
                None => {}
            }
            self.send().await.map_err(|error| self.lost(error.to_string()))?;
            self.transport.input().reserve(BLOCK_BYTES);
            let reading = self.stream.read_buf(self.transport.input()).await;
            if reading.map_err(|error| self.lost(error.to_string()))? == 0 {
                return Ok(None);
            }
        }
    }

    /// Goes on until the host has shown a key, and has proven that it holds it.
    async fn host(&mut self) -> Result<Box<HostKey>, ClientError> {
        match self.step().await? {
            Some(Step::Host(shown)) => Ok(shown),
            Some(_) => Err(self.failed(&Breach::Order("a message came before the keys"))),
            None => Err(self.lost(self.said.end())),
        }
    }

    /// The host is who it should be. An agent is told of it.
    fn accept_host(&mut self) -> Result<(), ClientError> {
        let accepted = self.transport.accept_host().and_then(|()| self.transport.new_keys());
        accepted.map_err(|breach| self.failed(&breach))?;
        let proof = self.transport.proof();
        let binding = Binding {
            host_key: proof.host_key.to_vec(),
            session: self.transport.session().unwrap_or_default().to_vec(),
            signature: proof.signature.to_vec(),
        };
        let _ = self.said.binding.set(binding);
        Ok(())
    }

    /// Asks for the login and signs it in one flight with the keys: there is one key to try.
    async fn log_in(&mut self, credentials: &Credentials, login: &str) -> Result<(), ClientError> {
        let (algorithm, key) = (credentials.algorithm(), credentials.certificate().to_bytes());
        let key = key.map_err(|error| ClientError::BadCertificate { reason: error.to_string() })?;
        let wanted = Login { name: login, algorithm: &algorithm, key: &key };
        let message = wanted.to_sign(self.transport.session()).map_err(|breach| self.failed(&breach))?;
        let signature = credentials.sign(&message, self.said.binding.get()).await?;
        let service = Draft::new(SERVICE_REQUEST).string(USERAUTH);
        let signed = wanted.draft().string(&signature);
        for draft in [service, signed] {
            self.transport.send(&draft.0).map_err(|breach| self.failed(&breach))?;
        }
        loop {
            let payload: Bytes = match self.step().await? {
                Some(Step::Message(payload)) => payload,
                _ => return Err(not_in(self.host.clone(), login, &self.said)),
            };
            match payload.first().copied().unwrap_or_default() {
                SERVICE_ACCEPT => {}
                USERAUTH_BANNER => {
                    self.said.add_banner(&Fields(payload.slice(1..)).words().unwrap_or_default());
                }
                USERAUTH_SUCCESS => {
                    self.transport.let_in();
                    return Ok(());
                }
                USERAUTH_FAILURE => return Err(not_in(self.host.clone(), login, &self.said)),
                message => {
                    let expected = "the answer to the login";
                    return Err(self.failed(&Breach::Unexpected { message, expected }));
                }
            }
        }
    }

    /// Says farewell, where the host still listens.
    async fn leave(&mut self) {
        self.transport.farewell(BY_APPLICATION, "");
        let _ = timeout(GOODBYE, self.send()).await;
    }
}
