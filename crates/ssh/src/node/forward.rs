//! Forwarded connections: what is allowed, how many, and what is told of them.
//!
//! [`outward`] are those that a client asks the node to make (`ssh -L`, `-D`, `-W`), [`inward`] those that the node
//! opens towards the client (`ssh -R`, the agent, X11).

mod error;
pub(super) mod inward;
pub(super) mod outward;

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sallyport_access::{Forwarding, SshOptions};
use sallyport_audit::recording::{Body, Direction, ForwardEnd};
use sallyport_audit::{Code, Event};
use uuid::Uuid;

use super::backend::{Place, Target};
use super::connection::{Shared, Word};
use super::endpoint::ChannelEndpoint;
use crate::BoxedStream;
use crate::inbound::{Counts, carry};
pub(super) use error::ForwardRefused;

/// How long the other side may take to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The right to one thing, and where to have it done.
pub(super) struct Granted {
    pub(super) target: Target,
    place: Arc<dyn Place>,
    /// Otherwise the node behind the place says in its own words what is wrong.
    decided_here: bool,
}

/// Whether the roles allow it now.
///
/// # Errors
/// Why not; the audit log has it by then.
pub(super) fn check(
    shared: &Shared,
    target: Target,
    direction: Direction,
) -> Result<Granted, ForwardRefused> {
    let (place, word) = shared.decide()?;
    target.check().map_err(|error| refuse(shared, &target.to_string(), error))?;
    let permit = match word {
        Word::Ours(permit) => *permit,
        Word::Theirs => return Ok(Granted { target, place, decided_here: false }),
    };
    let options: &SshOptions = permit.options();
    let (what, option, allowed) = match target {
        Target::Port { .. } => ("port forwarding", "options.port_forwarding", options.port_forwarding),
        Target::Socket { .. } => {
            ("forwarding of Unix sockets", "options.stream_local_forwarding", options.stream_local_forwarding)
        }
    };
    let Forwarding { local, remote } = allowed;
    if match direction {
        Direction::Local => local,
        Direction::Remote => remote,
        Direction::X11 => options.x11_forwarding,
    } {
        return Ok(Granted { target, place, decided_here: true });
    }
    let way = match (direction, local || remote) {
        (Direction::Remote, true) => " from the node to you (-R)",
        (_, true) => " from you through the node (-L)",
        (_, false) => "",
    };
    Err(refuse(shared, &target.to_string(), ForwardRefused::NotAllowed { what, way, option }))
}

/// Tells the audit log; gives the refusal back.
fn refuse<E: fmt::Display>(shared: &Shared, target: &str, refused: E) -> E {
    let event = shared.event(Code::SessionRefused).message(refused.to_string());
    shared.refused(event.field("target", target));
    refused
}

/// One of the connections that may be forwarded on an SSH connection at once.
pub(super) struct Room(Arc<Shared>);

impl Room {
    /// # Errors
    /// [`ForwardRefused::TooMany`]; the audit log has it by then.
    pub(super) fn take(shared: &Arc<Shared>, what: &str) -> Result<Self, ForwardRefused> {
        let most = shared.server.config.max_forwards;
        let room = Self(shared.clone());
        if shared.forwards.fetch_add(1, Ordering::AcqRel) >= most {
            drop(room);
            return Err(refuse(shared, what, ForwardRefused::TooMany { most }));
        }
        Ok(room)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.0.forwards.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What is known of a forwarded connection when it opens.
pub(super) struct About {
    pub(super) direction: Direction,
    /// Where it goes, or where the node listens.
    pub(super) target: String,
    /// The address that it comes from, where the client or the system says it.
    pub(super) from: Option<String>,
    /// The address that `target` turned out to be.
    pub(super) peer: Option<String>,
}

impl About {
    fn event(&self, shared: &Shared, code: Code) -> Event {
        let mut event = shared
            .event(code)
            .field("target", self.target.as_str())
            .field("direction", self.direction.as_str());
        if let Some(from) = &self.from {
            event = event.field("from", from.as_str());
        }
        if let Some(peer) = &self.peer {
            event = event.field("peer", peer.as_str());
        }
        event
    }
}

/// A forwarded connection, from the event of its beginning to that of its end, which comes however it ends.
pub(super) struct Passage {
    shared: Arc<Shared>,
    about: About,
    id: String,
    began: Instant,
    counts: Counts,
    _room: Room,
}

impl Passage {
    /// Tells that a connection was opened.
    pub(super) async fn open(shared: Arc<Shared>, room: Room, about: About) -> Self {
        let id = Uuid::new_v4().simple().to_string();
        let event = about
            .event(&shared, Code::SessionPortForward)
            .message(match about.direction {
                Direction::Local => format!("connected to {}", about.target),
                Direction::Remote | Direction::X11 => format!("connected from {}", about.target),
            })
            .field("forward", id.as_str())
            .field("success", true);
        shared.server.sink.emit(event);
        let passage =
            Self { shared, about, id, began: Instant::now(), counts: Counts::default(), _room: room };
        passage.note(None).await;
        passage
    }

    fn end(&self) -> ForwardEnd {
        ForwardEnd {
            bytes_in: self.counts.from_client.load(Ordering::Relaxed),
            bytes_out: self.counts.to_client.load(Ordering::Relaxed),
        }
    }

    /// Into the recordings of the sessions beside it.
    async fn note(&self, end: Option<ForwardEnd>) {
        for record in self.shared.records() {
            let (target, direction) = (self.about.target.clone(), self.about.direction);
            // A recording that fails ends its own session.
            let _ = record.note(Body::PortForward { target, direction, end }).await;
        }
    }

    /// Carries bytes both ways until both are done, or the client or the other side is gone.
    pub(super) async fn carry(self, endpoint: &ChannelEndpoint, stream: BoxedStream) {
        self.carry_until(endpoint, stream, pending()).await;
    }

    /// The same, until it is cut.
    async fn carry_until(
        self,
        endpoint: &ChannelEndpoint,
        stream: BoxedStream,
        cut: impl Future<Output = ()>,
    ) {
        tokio::select! {
            () = carry(endpoint, stream, &self.counts) => {}
            () = cut => {}
        }
        endpoint.inbox.leave();
        endpoint.close().await;
        self.note(Some(self.end())).await;
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        let ForwardEnd { bytes_in, bytes_out } = self.end();
        let lasted = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let event = self.about.event(&self.shared, Code::SessionPortForwardEnd);
        self.shared.server.sink.emit(
            event
                .message(format!("{bytes_in} bytes from the client, {bytes_out} to it"))
                .field("forward", self.id.as_str())
                .field("bytes_in", bytes_in)
                .field("bytes_out", bytes_out)
                .field("duration_ms", lasted),
        );
    }
}
