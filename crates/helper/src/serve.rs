//! The helper itself: takes requests until no program has needed it for a while, or it is told to stop.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags};
use rustix::process::{Resource, Rlimit};
use sallyport_access::Kind;
use serde_json::json;
use time::OffsetDateTime;
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use super::database_session::DatabaseSession;
use super::end_to_end::Own;
use super::ends::Ends;
use super::forwarder::{Forwarder, Target};
use super::native::{Native, Nodes};
use super::program::Program;
use super::relay::{self, Relays};
use super::request::{HEAD_BYTES, LONGEST_BODY, Request, answer, encode_error};
use super::resource_session::{ResourceSession, Wanted};
use super::socket::{self, Place};
use super::transports::{Login, Transports};
use crate::error::Result;
use sallyport_client::error::Doing;
use sallyport_client::profile::{Profiles, Stored};
use sallyport_client::session_factor::Asker;
use sallyport_client::times;

/// How often it looks whether it is still wanted.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// A program sends its request as soon as it is connected.
const REQUEST_PATIENCE: Duration = Duration::from_secs(3);
/// After an accept that failed: descriptors come back when streams end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Descriptors of a hundred streams: of each the socket, the input and the output, and a connection to the proxy, which
/// is five times what they need while nothing is replaced.
const DESCRIPTORS_PER_HUNDRED: u64 = 301;
/// For everything else: what the process itself needs, and programs that are told to go alone.
const DESCRIPTORS_ASIDE: u64 = 64;
/// So many beyond the most are still heard, to be told to go alone or how it stands. More are closed unheard, which says
/// the same.
const HEARD_BESIDE: usize = 8;
/// What a native stream, and one to a database or a resource of the catalogue, takes of the capacity for streams.
const NATIVE_COST: usize = 2;
/// However many descriptors there may be.
const MOST_STREAMS: u64 = 20_000;

/// What the tasks of a helper share.
struct Helper {
    transports: Transports,
    proxy: String,
    idle: Duration,
    started: OffsetDateTime,
    most: usize,
    open: Cell<usize>,
    /// What is open, a native stream and one to a database counted twice: each has two descriptors more, between TLS and the forwarder.
    load: Cell<usize>,
    nodes: Nodes,
    relays: Relays,
    /// For databases.
    own: Own,
    served: Cell<u64>,
    /// Since when nothing is open.
    quiet: Cell<Instant>,
    stop: Notify,
}

/// Serves one profile. `ready` is called once requests are taken.
pub fn run(
    profiles: &Profiles,
    directory: PathBuf,
    proxy: String,
    idle: Duration,
    ready: Box<dyn FnOnce()>,
) -> LocalBoxFuture<'_, Result> {
    Box::pin(async move {
        let place = Place::of(&directory);
        place.create().doing("make the helper's directory")?;
        let lock = place.lock_file("running").doing("open the helper's lock")?;
        if lock.try_lock().is_err() {
            // The other one answers the program that waits for this one.
            ready();
            return Ok(());
        }
        let listener = place.listen().doing(format!("listen on {}", place.socket().display()))?;
        listener.set_nonblocking(true).doing("set up the socket")?;
        let listener = UnixListener::from_std(listener).doing("set up the socket")?;
        let inode = inode(&place);
        let helper = Helper {
            transports: Transports::new(profiles.clone(), directory),
            proxy,
            idle,
            started: OffsetDateTime::now_utc(),
            most: most_streams(),
            open: Cell::new(0),
            load: Cell::new(0),
            nodes: Nodes::default(),
            relays: Relays::default(),
            own: Own::default(),
            served: Cell::new(0),
            quiet: Cell::new(Instant::now()),
            stop: Notify::new(),
        };
        if let Login::Valid(stored) = helper.transports.login()
            && let Err(error) = helper.relays.of(&stored)
        {
            warn!(error = error.told(), "ssh goes end to end");
        }
        info!(pid = std::process::id(), ?idle, streams = helper.most, "the helper daemon takes requests");
        ready();
        let tasks = tokio::task::LocalSet::new();
        let helper = std::rc::Rc::new(helper);
        tasks.run_until(listen(helper, listener, &place, inode, lock)).await;
        Ok(())
    })
}

/// The socket's number in its file system: another one there means that this helper was replaced.
fn inode(place: &Place) -> Option<u64> {
    std::fs::symlink_metadata(place.socket()).ok().map(|metadata| metadata.ino())
}

fn most_streams() -> usize {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let current = match rustix::process::setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    let descriptors = current.unwrap_or(u64::MAX).saturating_sub(DESCRIPTORS_ASIDE);
    let streams = descriptors.saturating_mul(100) / DESCRIPTORS_PER_HUNDRED;
    usize::try_from(streams.min(MOST_STREAMS)).unwrap_or(0)
}

async fn listen(
    helper: std::rc::Rc<Helper>,
    listener: UnixListener,
    place: &Place,
    inode: Option<u64>,
    lock: File,
) {
    let tasks = TaskTracker::new();
    let serve = |stream: UnixStream| {
        if tasks.len() >= helper.most.saturating_add(HEARD_BESIDE) {
            // One more would take the descriptors that streams already taken need. A program whose socket is closed unheard goes alone.
            let _ = rustix::net::send(&stream, &[answer::DIRECT], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
            return;
        }
        let helper = std::rc::Rc::clone(&helper);
        tasks.spawn_local(async move { helper.serve(stream).await });
    };
    let mut failing = false;
    let mut look = tokio::time::interval(LOOK_INTERVAL.min(helper.idle.max(Duration::from_millis(100))));
    let why = loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    failing = false;
                    serve(stream);
                }
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        warn!(%error, "cannot take requests");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            _ = look.tick() => {
                if self::inode(place) != inode {
                    break "its socket is gone: the login was forgotten";
                }
                if tasks.is_empty() && helper.quiet.get().elapsed() >= helper.idle {
                    break "no program has needed it for a while";
                }
            }
            () = helper.stop.notified() => break "it was told to",
        }
    };
    // From here on another helper may take over. A program that came to this one in time is still served.
    if self::inode(place) == inode {
        let _ = std::fs::remove_file(place.socket());
    }
    drop(lock);
    while let Ok(Ok((stream, _))) = tokio::time::timeout(Duration::ZERO, listener.accept()).await {
        serve(stream);
    }
    drop(listener);
    info!(reason = why, open = tasks.len(), "the helper daemon takes no more requests");
    helper.transports.forget();
    helper.nodes.forget();
    helper.relays.forget();
    helper.own.forget();
    tasks.close();
    tasks.wait().await;
    info!(served = helper.served.get(), "the helper daemon has ended");
}

impl Helper {
    async fn serve(&self, stream: UnixStream) {
        match socket::is_me(&stream) {
            Ok(true) => {}
            Ok(false) => return warn!("a request of another user was refused"),
            Err(error) => return warn!(%error, "a request was refused: the system does not say whose it is"),
        }
        let received = tokio::time::timeout(REQUEST_PATIENCE, receive(&stream)).await;
        let (request, asks, descriptors) = match received {
            Ok(Ok(received)) => received,
            Ok(Err(error)) => return debug!(%error, "a request was not understood"),
            Err(_) => return debug!("a request did not come"),
        };
        let program = Program::new(stream, asks);
        match request {
            Request::Ssh { node, login } => {
                self.carry(&program, Target::Ssh { node, login }, descriptors).await;
            }
            Request::Native { node, login } => self.native(&program, node, login, descriptors).await,
            Request::Relay { node, login } => self.relay(&program, node, login, descriptors).await,
            Request::Database { name, early } => self.database(&program, name, early, descriptors).await,
            Request::Resource { kind, name } => self.resource(&program, &kind, name, descriptors).await,
            Request::Status => {
                program.tell(&self.status()).await;
            }
            Request::Stop => {
                self.stop.notify_one();
                program.tell(&self.status()).await;
            }
        }
    }

    fn status(&self) -> Vec<u8> {
        let (transports, made, with_ticket) = self.transports.counts();
        let (native, early) = self.nodes.counts();
        let status = json!({
            "pid": std::process::id(),
            "version": env!("CARGO_PKG_VERSION"),
            "proxy": self.proxy,
            "since": times::timestamp(self.started),
            "idle_seconds": self.idle.as_secs(),
            "streams": self.open.get(),
            "served": self.served.get(),
            "native": native,
            "early": early,
            "transports": transports,
            "transports_made": made,
            "transports_early": with_ticket,
        });
        let mut said = vec![answer::SAID];
        said.extend(status.to_string().into_bytes());
        said
    }

    async fn native(&self, program: &Program, node: String, login: String, descriptors: Vec<OwnedFd>) {
        let Some((ends, stored, _guard)) = self.accept(descriptors, NATIVE_COST) else {
            program.tell(&[answer::DIRECT]).await;
            return;
        };
        if !program.tell(&[answer::TAKEN]).await {
            return;
        }
        let native = Native { nodes: &self.nodes, transports: &self.transports, node, login, words: program };
        let said = match native.run(stored, ends).await {
            Ok(true) => vec![answer::ENDED],
            Ok(false) => vec![answer::SSH_ALONE],
            Err(error) => encode_error(&error),
        };
        program.tell(&said).await;
    }

    async fn database(&self, program: &Program, database: String, early: Vec<u8>, descriptors: Vec<OwnedFd>) {
        let Some((ends, stored, _guard)) = self.accept(descriptors, NATIVE_COST) else {
            program.tell(&[answer::DIRECT]).await;
            return;
        };
        if !program.tell(&[answer::TAKEN]).await {
            return;
        }
        debug!(database, "a connection to a database begins");
        let said = match ends.open().map_err(|error| relay::cannot_wait(&error)) {
            Ok((input, output)) => {
                let (transports, own) = (&self.transports, &self.own);
                let (program, asker) = (Some(program), Some(program as &dyn Asker));
                let session =
                    DatabaseSession { own, transports, database, early, input, output, program, asker };
                session.run(stored).await
            }
            Err(error) => Err(error),
        };
        let said = said.map_or_else(|error| encode_error(&error), |()| vec![answer::ENDED]);
        program.tell(&said).await;
    }

    async fn resource(&self, program: &Program, kind: &str, name: String, descriptors: Vec<OwnedFd>) {
        let accepted =
            Kind::of_document(kind).and_then(|kind| Some((kind, self.accept(descriptors, NATIVE_COST)?)));
        let Some((kind, (ends, stored, _guard))) = accepted else {
            program.tell(&[answer::DIRECT]).await;
            return;
        };
        if !program.tell(&[answer::TAKEN]).await {
            return;
        }
        debug!(?kind, name, "a connection to a resource begins");
        let said = match ends.open().map_err(|error| relay::cannot_wait(&error)) {
            Ok((input, output)) => {
                let (transports, own) = (&self.transports, &self.own);
                let (program, asker) = (Some(program), Some(program as &dyn Asker));
                let wanted = Wanted { kind, name };
                ResourceSession { own, transports, wanted, input, output, program, asker }.run(stored).await
            }
            Err(error) => Err(error),
        };
        let said = said.map_or_else(|error| encode_error(&error), |()| vec![answer::ENDED]);
        program.tell(&said).await;
    }

    async fn carry(&self, program: &Program, target: Target, descriptors: Vec<OwnedFd>) {
        let Some((ends, stored, _guard)) = self.accept(descriptors, 1) else {
            program.tell(&[answer::DIRECT]).await;
            return;
        };
        // Said before anything is read or set on what came: a program that does not hear it goes on with both as they were.
        if !program.tell(&[answer::TAKEN]).await {
            return;
        }
        let said = self.forward(program, target, ends, stored).await;
        let said = said.map_or_else(|error| encode_error(&error), |()| vec![answer::ENDED]);
        program.tell(&said).await;
    }

    /// Carries bytes as they are.
    async fn forward(&self, program: &Program, target: Target, ends: Ends, stored: Arc<Stored>) -> Result {
        debug!(?target, "a stream begins");
        let (input, output) = ends.open().map_err(|error| relay::cannot_wait(&error))?;
        let (transports, early) = (&self.transports, Vec::new());
        let (program, asker) = (Some(program), Some(program as &dyn Asker));
        Forwarder { transports, target, early, input, output, program, asker, state: None }.run(stored).await
    }

    /// Ends SSH here where the node has a native listener, else carries it.
    async fn relay(&self, program: &Program, node: String, login: String, descriptors: Vec<OwnedFd>) {
        let Some((ends, stored, _guard)) = self.accept(descriptors, NATIVE_COST) else {
            program.tell(&[answer::DIRECT]).await;
            return;
        };
        if !program.tell(&[answer::TAKEN]).await {
            return;
        }
        let (nodes, transports) = (&self.nodes, &self.transports);
        let native = Native { nodes, transports, node: node.clone(), login: login.clone(), words: program };
        let carried = match self.relays.of(&stored) {
            Ok(relay) => native.relay(stored.clone(), &relay, ends).await,
            Err(error) => {
                warn!(error = error.told(), "ssh goes end to end");
                Ok(Some(ends))
            }
        };
        let said = match carried {
            Ok(None) => Ok(()),
            Ok(Some(ends)) => self.forward(program, Target::Ssh { node, login }, ends, stored).await,
            Err(error) => Err(error),
        };
        let said = said.map_or_else(|error| encode_error(&error), |()| vec![answer::ENDED]);
        program.tell(&said).await;
    }

    /// Whether a stream can be taken; it counts from here on. What came with it was only looked at.
    fn accept(&self, descriptors: Vec<OwnedFd>, cost: usize) -> Option<(Ends, Arc<Stored>, Begun<'_>)> {
        if self.load.get() + cost > self.most {
            debug!(open = self.open.get(), "as many streams as there can be");
            return None;
        }
        let ends = match Ends::new(descriptors) {
            Ok(ends) => ends,
            Err(error) => {
                debug!(%error, "descriptors that cannot be waited for");
                return None;
            }
        };
        match self.transports.login() {
            Login::Valid(stored) => Some((ends, stored, self.begin(cost))),
            Login::Unusable => None,
        }
    }

    fn begin(&self, cost: usize) -> Begun<'_> {
        self.open.set(self.open.get() + 1);
        self.load.set(self.load.get() + cost);
        self.served.set(self.served.get() + 1);
        Begun { helper: self, cost }
    }
}

/// Counts a stream while it lasts.
struct Begun<'a> {
    helper: &'a Helper,
    cost: usize,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let helper = self.helper;
        helper.open.set(helper.open.get().saturating_sub(1));
        helper.load.set(helper.load.get().saturating_sub(self.cost));
        helper.quiet.set(Instant::now());
    }
}

/// Reads a request and what comes with it.
async fn receive(stream: &UnixStream) -> io::Result<(Request, bool, Vec<OwnedFd>)> {
    let mut bytes = Vec::new();
    let mut descriptors = Vec::new();
    loop {
        let count = stream
            .async_io(Interest::READABLE, || {
                let mut buffer = [0; HEAD_BYTES + LONGEST_BODY];
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
                let mut control = RecvAncillaryBuffer::new(&mut space);
                let received = rustix::net::recvmsg(
                    stream,
                    &mut [IoSliceMut::new(&mut buffer)],
                    &mut control,
                    RecvFlags::CMSG_CLOEXEC,
                )?;
                for message in control.drain() {
                    if let RecvAncillaryMessage::ScmRights(came) = message {
                        descriptors.extend(came);
                    }
                }
                bytes.extend_from_slice(buffer.get(..received.bytes).unwrap_or_default());
                Ok(received.bytes)
            })
            .await?;
        match Request::decode(&bytes).map_err(io::Error::other)? {
            Some((request, asks)) => return Ok((request, asks, descriptors)),
            None if count == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            None => {}
        }
    }
}
