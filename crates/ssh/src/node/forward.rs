//! Connections that a client asks the node to make (`ssh -L`, RFC 4254 §7.2).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use russh::ChannelOpenFailure;
use russh::server::ChannelOpenHandle;
use sallyport_audit::Code;
use sallyport_audit::recording::Body;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::backend::{Place, Target};
use super::channel::Door;
use super::connection::Shared;
use crate::BoxedStream;
use crate::session::{Channel, Incoming};

/// How long the other side may take to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes carried to the client at once.
const BLOCK_BYTES: usize = 32 * 1024;
/// What waits for the first bytes after a pause: many connections are idle most of the time.
const IDLE_BLOCK_BYTES: usize = 1024;

/// A connection that may be made, and its room among those of the SSH connection.
pub(super) struct Granted {
    target: Target,
    place: Arc<dyn Place>,
    _room: Room,
}

struct Room(Arc<Shared>);

impl Drop for Room {
    fn drop(&mut self) {
        self.0.forwards.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Whether the client may connect there.
///
/// # Errors
/// What the person reads when not.
pub(super) fn check(shared: &Arc<Shared>, host: &str, port: u32) -> Result<Granted, String> {
    let (place, permit) = shared.decide()?;
    let refuse = |message: String| {
        let target = format!("{host}:{port}");
        shared.refused(shared.event(Code::SessionRefused).message(&message).field("target", target));
        Err(message)
    };
    if !permit.options().port_forwarding.local {
        return refuse("your roles do not allow port forwarding (options.port_forwarding)".to_owned());
    }
    let Some(port) = u16::try_from(port).ok().filter(|port| *port > 0) else {
        return refuse(format!("{port} is not a port"));
    };
    let most = shared.server.config.max_forwards;
    let room = Room(shared.clone());
    if shared.forwards.fetch_add(1, Ordering::AcqRel) >= most {
        drop(room);
        return refuse(format!("{most} connections are forwarded already; close some"));
    }
    let target = Target::Port { host: host.to_owned(), port };
    Ok(Granted { target, place, _room: room })
}

/// Makes the connection and carries it to its end.
#[tracing::instrument(name = "forward", skip_all, fields(target = %granted.target))]
pub(super) async fn run(door: Door, reply: ChannelOpenHandle, granted: Granted) {
    let shared = door.shared.clone();
    let name = granted.target.to_string();
    let connected = match timeout(CONNECT_TIMEOUT, granted.place.connect(&granted.target)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", CONNECT_TIMEOUT.as_secs())),
    };
    let event = shared.event(Code::SessionPortForward).field("target", name.as_str());
    let stream = match connected {
        Ok(stream) => stream,
        Err(reason) => {
            shared
                .server
                .sink
                .emit(event.message(format!("cannot connect: {reason}")).field("success", false));
            door.inbox.leave();
            let reason = format!("cannot connect to {name}: {reason}");
            reply
                .reject(ChannelOpenFailure::Other { code: ChannelOpenFailure::ConnectFailed.code(), reason })
                .await;
            return;
        }
    };
    shared.server.sink.emit(event.message(format!("connected to {name}")).field("success", true));
    for record in shared.records() {
        // A recording that fails ends its own session.
        let _ = record.note(Body::PortForward { target: name.clone() }).await;
    }
    reply.accept().await;
    carry(&door, stream).await;
    door.inbox.leave();
    door.close().await;
}

/// Carries bytes both ways until both are done, or the client or the target is gone.
async fn carry(door: &Door, stream: BoxedStream) {
    let (mut read, mut write) = tokio::io::split(stream);
    let outward = async {
        let mut size = IDLE_BLOCK_BYTES;
        loop {
            let mut block = Vec::with_capacity(size);
            match read.read_buf(&mut block).await {
                Ok(0) => return door.eof().await.is_ok(),
                Ok(read) => {
                    size = if read < IDLE_BLOCK_BYTES { IDLE_BLOCK_BYTES } else { BLOCK_BYTES };
                    if door.send(Channel::Stdout, Bytes::from(block)).await.is_err() {
                        return false;
                    }
                }
                Err(_) => return false,
            }
        }
    };
    // True when the client has ended its input properly.
    let inward = async {
        loop {
            match door.inbox.next().await {
                Some(Incoming::Data(bytes)) => {
                    if write.write_all(&bytes).await.is_err() {
                        return false;
                    }
                    door.inbox.consumed(bytes.len());
                }
                Some(Incoming::Eof) => return write.shutdown().await.is_ok(),
                Some(Incoming::Cut(_)) | None => return false,
                Some(Incoming::Resize(_) | Incoming::Signal(_)) => {}
            }
        }
    };
    tokio::pin!(outward, inward);
    let (mut outward_open, mut inward_open) = (true, true);
    while outward_open || inward_open {
        tokio::select! {
            proper = &mut outward, if outward_open => {
                outward_open = false;
                if !proper {
                    return;
                }
            }
            proper = &mut inward, if inward_open => {
                inward_open = false;
                if !proper {
                    return;
                }
            }
            // After its own end the client can still go.
            () = gone(door), if !inward_open => return,
        }
    }
}

/// Waits until the client has gone, after it has ended its input.
async fn gone(door: &Door) {
    loop {
        match door.inbox.next().await {
            None | Some(Incoming::Cut(_)) => return,
            Some(_) => {}
        }
    }
}
