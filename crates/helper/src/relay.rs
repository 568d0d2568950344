//! Stock `ssh` to nodes' native listeners: SSH ends in the helper, which goes on to the node natively with the tickets that it
//! keeps, so that a command of `ssh` takes the round trips of one of `sallyport ssh`.
//!
//! Whether that is so is known before a word of SSH is said: for a node that was connected to natively at once, for any
//! other when it has proven itself. Until then nothing was read from `ssh`, so that its bytes can go to a node that knows
//! SSH alone as they are.
//!
//! The node decides, records and limits, as it does for every client; what is here ([`Relay`]) hands on. The helper has seen
//! by the socket that the program that brought the two ends is this user's, so `ssh` proves nothing to it.

use std::cell::RefCell;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as Polling, Poll};
use std::time::Duration;

use sallyport_ca::tls::refusal;
use sallyport_client::error::Doing;
use sallyport_ssh::client::Settings;
use sallyport_ssh::endpoint::{EndpointError, EndpointStream, reason};
use sallyport_ssh::node::{HostIdentity, Relay};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tracing::debug;

use super::ends::{Ends, gone};
use super::native::{self, CAUSE_PATIENCE, Ended, LAST_WORDS, Native};
use super::stream_state::StreamState;
use crate::error::{Error, Result};
use sallyport_client::native as protocol;
use sallyport_client::native_history;
use sallyport_client::profile::Stored;

/// Silence after which a node is asked for a sign of life.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// The SSH server in front of nodes, of the login in force.
#[derive(Debug, Default)]
pub(super) struct Relays(RefCell<Option<(Arc<Stored>, Relay)>>);

impl Relays {
    /// That of a login. `known_hosts` knows it by then.
    pub(super) fn of(&self, stored: &Arc<Stored>) -> Result<Relay> {
        let mut current = self.0.borrow_mut();
        if let Some((of, relay)) = current.as_ref()
            && Arc::ptr_eq(of, stored)
        {
            return Ok(relay.clone());
        }
        let host = HostIdentity::plain(&stored.local_host_key()?).doing("use the local host key")?;
        let relay = Relay::new(&host, Arc::new(stored.trust()?)).doing("set up SSH")?;
        *current = Some((Arc::clone(stored), relay.clone()));
        Ok(relay)
    }

    /// Forgets the login and its key.
    pub(super) fn forget(&self) {
        self.0.borrow_mut().take();
    }
}

impl Native<'_> {
    /// Serves `ssh`, and goes on to the node. The two ends come back when the node knows SSH alone: then nothing was read
    /// from them and nothing said.
    pub(super) async fn relay(&self, stored: Arc<Stored>, relay: &Relay, ends: Ends) -> Result<Option<Ends>> {
        let Some(client) = self.nodes.client(&stored, &self.node)? else { return Ok(Some(ends)) };
        let (trust, of) = (Arc::new(stored.trust()?), Arc::clone(&stored));
        let (mut tls, far) = native::connect(&client)?;
        let state = StreamState::of(&tls);
        let early = tls.is_early();
        let mut upstream = pin!(self.upstream(stored, far, &state, Some(self.words)));
        if self.nodes.may_demand(&self.node) || (!early && !self.nodes.have_met(&self.node)) {
            let mut shaking = Box::pin(self.handshake(&mut tls, &state));
            let met = tokio::select! {
                biased;
                // What came before the end is the node's greeting, if it knows SSH alone and has not understood us.
                error = upstream.as_mut() => match tokio::time::timeout(CAUSE_PATIENCE, shaking.as_mut()).await {
                    Ok(Some(Err(Ended::SshAlone))) => Err(Ended::SshAlone),
                    _ => Err(Ended::Failed(error)),
                },
                shaken = shaking.as_mut() => match shaken {
                    None => return Ok(None),
                    // Why the stream upstream has ended is the cause, and known in a moment if it has.
                    Some(Err(Ended::Failed(error))) => {
                        let cause = tokio::time::timeout(CAUSE_PATIENCE, upstream.as_mut()).await;
                        Err(Ended::Failed(cause.unwrap_or(error)))
                    }
                    Some(other) => other,
                },
            };
            drop(shaking);
            if state.questions.get() > 0 {
                self.nodes.demands(&self.node);
            }
            match met {
                Ok(()) => {}
                Err(Ended::Failed(error)) if !state.ssh_alone.get() && !state.was_left_silently() => {
                    return Err(error);
                }
                Err(_) => {
                    debug!(node = self.node, "the node knows SSH alone");
                    self.nodes.is_ssh_alone(&self.node);
                    native_history::by_ssh(&of, &self.node)?;
                    return Ok(Some(ends));
                }
            }
        }
        // What is wrong with the connection to the proxy is said before SSH begins, as it is without a helper.
        tokio::select! {
            biased;
            error = upstream.as_mut() => return Err(state.judged(error)),
            () = state.seated.notified() => {}
            () = gone(Some(self.words)) => return Ok(None),
        }
        self.nodes.begins(early);
        debug!(node = self.node, early, "SSH ends here, and a native stream begins");
        let (dropped, all_said) = oneshot::channel();
        let proof = Arc::<Proof>::default();
        let stream = Onward { tls, node: self.node.clone(), proof: Arc::clone(&proof), _dropped: dropped };
        let settings = Settings {
            login: self.login.clone(),
            host: self.node.clone(),
            trust,
            keepalive: Some(KEEPALIVE),
            agent: None,
        };
        let ssh = ends.stream().map_err(|error| cannot_wait(&error))?;
        // Boxed, to be dropped before what is said last: that ends the client's connection, if it has not ended.
        let mut serve = Box::pin(relay.serve(ssh, stream, settings));
        let served = tokio::select! {
            biased;
            error = upstream.as_mut() => {
                if state.heard.get() && !proof.proven.load(Ordering::Acquire) {
                    // What came before the end may be the greeting of a node that knows SSH alone by now. What reads it is
                    // another task; this one says nothing of the end meanwhile.
                    tokio::time::sleep(CAUSE_PATIENCE).await;
                }
                Some(Err(error))
            }
            () = serve.as_mut() => None,
            () = gone(Some(self.words)) => {
                // What ssh wrote last still goes out.
                tokio::select! {
                    _ = upstream.as_mut() => Some(Ok(())),
                    () = serve.as_mut() => None,
                    () = tokio::time::sleep(LAST_WORDS) => None,
                }
            }
        };
        drop(serve);
        if state.questions.get() > 0 {
            self.nodes.demands(&self.node);
        }
        if state.ssh_alone.get() || proof.changed.load(Ordering::Acquire) {
            // Said too late for this ssh, which was greeted already.
            self.nodes.is_ssh_alone(&self.node);
            native_history::forget(&of, &self.node);
            return Err(state.judged(native_history::changed(&self.node).into()));
        }
        if !proof.proven.load(Ordering::Acquire) {
            // What the node is now the next one finds out, before SSH begins.
            self.nodes.part(&self.node);
        }
        match served {
            Some(ended) => ended.map_err(|error| state.judged(error))?,
            // Behind the node's last words come new tickets.
            None => tokio::select! {
                _ = upstream.as_mut() => {}
                _ = tokio::time::timeout(2 * LAST_WORDS, all_said) => {}
            },
        }
        Ok(None)
    }
}

/// What there is to say of ends that cannot be waited for.
pub(super) fn cannot_wait(error: &io::Error) -> Error {
    Error::CannotWait(error.to_string())
}

/// What a node has proven.
#[derive(Debug, Default)]
struct Proof {
    /// It has said something natively.
    proven: AtomicBool,
    /// It spoke the native protocol, and does not any more.
    changed: AtomicBool,
}

/// The stream to a node. What is wrong with the node is said as a person reads it.
struct Onward {
    tls: EndpointStream<UnixStream>,
    node: String,
    proof: Arc<Proof>,
    _dropped: oneshot::Sender<()>,
}

impl Onward {
    fn explain(&self, error: io::Error) -> io::Error {
        let said = if protocol::is_ssh_alone(&error) {
            self.proof.changed.store(true, Ordering::Release);
            native_history::changed(&self.node)
        } else if refusal(&error).is_some() || reason(&error) == Some(EndpointError::Unknown) {
            protocol::explain(&self.node, &error)
        } else {
            return error;
        };
        io::Error::new(error.kind(), said.told())
    }
}

impl AsyncRead for Onward {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Polling<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.tls).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.proof.proven.store(true, Ordering::Release);
        }
        read.map_err(|error| self.explain(error))
    }
}

impl AsyncWrite for Onward {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Polling<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.tls).poll_write(context, data);
        written.map_err(|error| self.explain(error))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Polling<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Polling<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_shutdown(context)
    }
}
