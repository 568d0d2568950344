//! Streams to nodes' native listeners, with TLS in the helper: it keeps the nodes' tickets, so that what a program says first
//! goes to the node as early data, on a connection to the proxy that is there already.
//!
//! Between TLS and the forwarder is a pair of sockets, so that the forwarder is that of all other streams: what went out
//! before the proxy has answered goes out again when a connection turns out to be lost. It is the same flight with the
//! same ticket then, which a node takes once.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::poll_fn;
use sallyport_ca::tls::node::NodeClient;
use sallyport_client::error::{Doing, Error as ClientError};
use sallyport_ssh::endpoint::EndpointStream;
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::net::UnixStream;
use tracing::debug;

use super::ends::{Ends, Input, Output, SCRATCH, gone};
use super::forwarder::{Forwarder, Target};
use super::program::Program;
use super::request::answer;
use super::stream_state::StreamState;
use super::transports::{Login, Transports};
use crate::error::{Error, Result};
use sallyport_client::native as protocol;
use sallyport_client::native_history;
use sallyport_client::profile::Stored;
use sallyport_client::session_factor::Asker;

/// From the first byte to a proven node.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(30);
/// When a program has gone, its node has so long to say what is left, which is where new tickets are.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(2);
/// When one side of a stream has ended, the other has so long to say what it knows of the cause.
pub(super) const CAUSE_PATIENCE: Duration = Duration::from_millis(50);
/// Nodes that are remembered.
const MOST_NODES: usize = 1024;

/// What the helper knows of nodes.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    known: RefCell<HashMap<String, Known>>,
    /// Those that demanded a second factor, and may again.
    demanding: RefCell<HashSet<String>>,
    /// Streams that were begun, and those of them that had a ticket.
    begun: Cell<(u64, u64)>,
}

#[derive(Debug)]
enum Known {
    /// How to connect, and the tickets that came of it, with the login that they are for; and whether it was connected to.
    Native(Arc<Stored>, NodeClient, bool),
    /// It knew SSH alone at this moment.
    SshAlone(Instant),
}

impl Nodes {
    /// `None`: the node knows SSH alone.
    pub(super) fn client(&self, stored: &Arc<Stored>, node: &str) -> Result<Option<NodeClient>> {
        let mut nodes = self.known.borrow_mut();
        match nodes.get(node) {
            Some(Known::SshAlone(since)) if since.elapsed() < protocol::SSH_ALONE => return Ok(None),
            // Another login is another certificate, and may be another trust.
            Some(Known::Native(of, client, _)) if Arc::ptr_eq(of, stored) => return Ok(Some(client.clone())),
            _ => {}
        }
        let client = protocol::client(stored, node)?;
        if nodes.len() >= MOST_NODES {
            nodes.clear();
        }
        nodes.insert(node.to_owned(), Known::Native(Arc::clone(stored), client.clone(), false));
        Ok(Some(client))
    }

    pub(super) fn is_ssh_alone(&self, node: &str) {
        self.known.borrow_mut().insert(node.to_owned(), Known::SshAlone(Instant::now()));
    }

    /// Whether this helper was connected to the node natively, with the login that is in force.
    pub(super) fn have_met(&self, node: &str) -> bool {
        matches!(self.known.borrow().get(node), Some(Known::Native(_, _, true)))
    }

    /// Whether the person may have to be asked before the node answers, so that nothing is begun meanwhile that has no such patience.
    pub(super) fn may_demand(&self, node: &str) -> bool {
        self.demanding.borrow().contains(node)
    }

    /// The node demanded a second factor.
    pub(super) fn demands(&self, node: &str) {
        let mut demanding = self.demanding.borrow_mut();
        if demanding.len() >= MOST_NODES {
            demanding.clear();
        }
        demanding.insert(node.to_owned());
    }

    fn meet(&self, node: &str) {
        if let Some(Known::Native(stored, _, met)) = self.known.borrow_mut().get_mut(node)
            && !std::mem::replace(met, true)
        {
            native_history::natively(stored, node);
        }
    }

    /// Forgets what is known of a node, which does not do by that what it did.
    pub(super) fn part(&self, node: &str) {
        self.known.borrow_mut().remove(node);
    }

    /// Forgets the login and the tickets.
    pub(super) fn forget(&self) {
        self.known.borrow_mut().clear();
    }

    /// Streams so far, and how many of them began with early data.
    pub(super) fn counts(&self) -> (u64, u64) {
        self.begun.get()
    }

    pub(super) fn begins(&self, early: bool) {
        let (all, with_ticket) = self.begun.get();
        self.begun.set((all + 1, with_ticket + u64::from(early)));
    }
}

/// One program's stream to a node's native listener.
pub(super) struct Native<'a> {
    pub(super) nodes: &'a Nodes,
    pub(super) transports: &'a Transports,
    pub(super) node: String,
    pub(super) login: String,
    /// Where the program is told how it went; it ends when the program does.
    pub(super) words: &'a Program,
}

/// Why a stream has ended before its time.
pub(super) enum Ended {
    SshAlone,
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

impl Native<'_> {
    /// Carries a program's bytes to the node and back. `false`: the node knows SSH alone, and nothing was carried.
    pub(super) async fn run(&self, stored: Arc<Stored>, ends: Ends) -> Result<bool> {
        let Some(client) = self.nodes.client(&stored, &self.node)? else { return Ok(false) };
        let of = Arc::clone(&stored);
        match self.carry(stored, client, ends).await {
            Ok(()) => Ok(true),
            Err(Ended::Failed(error)) => Err(error),
            Err(Ended::SshAlone) => {
                debug!(node = self.node, "the node knows SSH alone");
                self.nodes.is_ssh_alone(&self.node);
                native_history::by_ssh(&of, &self.node)?;
                Ok(false)
            }
        }
    }

    async fn carry(&self, stored: Arc<Stored>, client: NodeClient, ends: Ends) -> Result<(), Ended> {
        let program = ends.socket().doing("wait for the program")?;
        let (mut tls, far) = connect(&client)?;
        let state = StreamState::of(&tls);
        let early = tls.is_early();
        // The program asks for a second factor by itself: it has the demand in the error.
        let (mut upstream, mut talk) =
            (pin!(self.upstream(stored, far, &state, None)), pin!(self.talk(tls, program, &state)));
        let ended = tokio::select! {
            biased;
            // What came before the end is the node's greeting, if it knows SSH alone and has not understood what we said.
            error = upstream.as_mut() => match tokio::time::timeout(CAUSE_PATIENCE, talk).await {
                Ok(Err(Ended::SshAlone)) => Err(Ended::SshAlone),
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
        };
        if let Err(Ended::Failed(error)) = &ended
            && error.demanded().is_some()
        {
            // From now on the program hears of it before it has said anything.
            self.nodes.demands(&self.node);
        }
        let silent = ended.is_err() && state.was_left_silently();
        if silent && early {
            // Something of the program's was said: what the node is now the next one finds out.
            self.nodes.part(&self.node);
        }
        let alone = matches!(ended, Err(Ended::SshAlone)) || state.ssh_alone.get() || (silent && !early);
        match ended {
            // The program was told that this is a native stream; what it said is not said again by SSH.
            _ if alone && early => {
                self.nodes.part(&self.node);
                Err(Ended::Failed(state.judged(native_history::changed(&self.node).into())))
            }
            _ if alone => Err(Ended::SshAlone),
            Err(Ended::Failed(error)) => Err(Ended::Failed(state.judged(error))),
            ended => ended,
        }
    }

    /// The stream to the node, up to what is wrong with it. One that has ended well has said everything; TLS sees the end by
    /// itself.
    pub(super) async fn upstream(
        &self,
        stored: Arc<Stored>,
        (input, output): (Input, Output),
        state: &StreamState,
        asker: Option<&dyn Asker>,
    ) -> Error {
        let target = Target::Native { node: self.node.clone(), login: self.login.clone() };
        let (transports, early) = (self.transports, Vec::new());
        let forwarder =
            Forwarder { transports, target, early, input, output, program: None, asker, state: Some(state) };
        match forwarder.run(stored).await {
            Ok(()) => std::future::pending().await,
            Err(error) => error,
        }
    }

    /// Waits for a proven node. `None`: the program has gone.
    pub(super) async fn handshake(
        &self,
        tls: &mut EndpointStream<UnixStream>,
        state: &StreamState,
    ) -> Option<Result<(), Ended>> {
        let handshake = tokio::select! {
            handshake = state.within(HANDSHAKE_PATIENCE, tls.handshake()) => handshake,
            () = gone(Some(self.words)) => return None,
        };
        Some(match handshake {
            Some(Ok(())) => {
                self.nodes.meet(&self.node);
                Ok(())
            }
            Some(Err(error)) if protocol::is_ssh_alone(&error) => Err(Ended::SshAlone),
            Some(Err(error)) => Err(protocol::explain(&self.node, &error).into()),
            None => {
                Err(Error::NodeSilent { node: self.node.clone(), seconds: HANDSHAKE_PATIENCE.as_secs() }
                    .into())
            }
        })
    }

    /// The program's bytes inside TLS, until either has ended.
    async fn talk(
        &self,
        mut tls: EndpointStream<UnixStream>,
        program: UnixStream,
        state: &StreamState,
    ) -> Result<(), Ended> {
        let early = tls.is_early();
        if !early || self.nodes.may_demand(&self.node) {
            match self.handshake(&mut tls, state).await {
                Some(shaken) => shaken?,
                None => return Ok(()),
            }
        }
        self.nodes.begins(early);
        debug!(node = self.node, early, "a native stream begins");
        if !self.words.tell_now(&[answer::READY]) {
            return Ok(());
        }
        let (mut from_node, mut to_node) = tokio::io::split(tls);
        let (mut from_program, mut to_program) = program.into_split();
        let upstream = async {
            while let Ok(bytes) = next(&mut from_program).await {
                if bytes.is_empty() || to_node.write_all(&bytes).await.is_err() {
                    break;
                }
            }
            // Waits for the end of the handshake, behind which tickets come.
            let _ = to_node.shutdown().await;
            std::future::pending::<()>().await;
        };
        let downstream = async {
            let mut listening = true;
            loop {
                let bytes = next(&mut from_node).await?;
                if bytes.is_empty() {
                    break;
                }
                // A program that has gone hears no more; its node may have more to say to the helper.
                listening = listening && to_program.write_all(&bytes).await.is_ok();
            }
            let _ = to_program.shutdown().await;
            io::Result::Ok(())
        };
        let left = async {
            gone(Some(self.words)).await;
            tokio::time::sleep(LAST_WORDS).await;
        };
        tokio::select! {
            ended = downstream => match ended {
                Ok(()) => Ok(()),
                Err(error) if protocol::is_ssh_alone(&error) => {
                    // Said too late for this program, which has said something already.
                    self.nodes.is_ssh_alone(&self.node);
                    if let Login::Valid(stored) = self.transports.login() {
                        native_history::forget(&stored, &self.node);
                    }
                    Err(native_history::changed(&self.node).into())
                }
                Err(error) => Err(protocol::explain(&self.node, &error).into()),
            },
            () = upstream => Ok(()),
            () = left => Ok(()),
        }
    }
}

/// Begins TLS with a node; and the ends of the stream there.
pub(super) fn connect(client: &NodeClient) -> Result<(EndpointStream<UnixStream>, (Input, Output))> {
    let (near, far) = std::os::unix::net::UnixStream::pair().doing("make a pair of sockets")?;
    near.set_nonblocking(true).doing("set up a socket")?;
    let near = UnixStream::from_std(near).doing("set up a socket")?;
    let far = [far.try_clone().doing("share a socket")?, far].map(OwnedFd::from);
    let far = Ends::new(far.into()).and_then(Ends::open).doing("set up a pair of sockets")?;
    let tls = EndpointStream::connect(near, client, OffsetDateTime::now_utc()).doing("set up TLS")?;
    Ok((tls, far))
}

/// The next bytes; none at the end. A stream that waits holds no buffer.
pub(super) async fn next(reader: &mut (impl AsyncRead + Unpin)) -> io::Result<Bytes> {
    poll_fn(|context| {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            ready!(Pin::new(&mut *reader).poll_read(context, &mut buffer))?;
            Poll::Ready(Ok(Bytes::copy_from_slice(buffer.filled())))
        })
    })
    .await
}
