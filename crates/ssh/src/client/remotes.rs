//! The connections that this side has asked the host for, and where they go.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use russh::client::{ChannelOpenHandle, Msg};
use russh::{Channel, ChannelOpenFailure};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tracing::debug;

use super::endpoint::Endpoint;
use crate::BoxedStream;
use crate::pump::{Slack, pump};

/// Bytes on the way of a connection that is handed over.
const HANDED_BYTES: usize = 64 * 1024;

/// How long something that the host connects to here may take to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Told, in words, about each connection that could not be forwarded.
pub type Report = Arc<dyn Fn(&str) + Send + Sync>;

/// Which connections this side has asked the host for.
#[derive(Default)]
pub(super) struct Remotes(Mutex<HashMap<Endpoint, Wanted>>);

#[derive(Clone)]
pub(super) enum Wanted {
    /// They go somewhere here.
    Forwarded { to: Endpoint, report: Report },
    /// A listener of this side takes them.
    Handed(mpsc::Sender<BoxedStream>),
}

impl Remotes {
    pub(super) fn wanted(&self) -> MutexGuard<'_, HashMap<Endpoint, Wanted>> {
        self.0.lock()
    }

    /// What was asked for there.
    pub(super) fn find(&self, from: &Endpoint) -> Option<Wanted> {
        let wanted = self.wanted();
        let any = match from {
            // The answer with the port may still be on its way.
            Endpoint::Port { host, .. } => Some(Endpoint::Port { host: host.clone(), port: 0 }),
            Endpoint::Socket { .. } => None,
        };
        wanted.get(from).or_else(|| any.and_then(|any| wanted.get(&any))).cloned()
    }

    /// Lets a connection from the host in, if it was asked for.
    pub(super) async fn take(
        &self,
        from: Endpoint,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        slack: Slack,
    ) {
        let (to, report) = match self.find(&from) {
            Some(Wanted::Forwarded { to, report }) => (to, report),
            Some(Wanted::Handed(taker)) => {
                let Some(far) = handed(&taker) else {
                    return reply.reject(ChannelOpenFailure::ResourceShortage).await;
                };
                reply.accept().await;
                tokio::spawn(pump(channel, far, slack));
                return;
            }
            None => {
                debug!(%from, "the host opened a connection that this client has not asked for");
                return reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await;
            }
        };
        // Apart from the connection's own loop: who does not answer must not stop it.
        tokio::spawn(async move {
            match tokio::time::timeout(CONNECT_TIMEOUT, to.connect()).await {
                Ok(Ok(stream)) => {
                    reply.accept().await;
                    pump(channel, stream, slack).await;
                }
                Ok(Err(error)) => {
                    report(&format!("cannot connect to {to}: {error}"));
                    reply.reject(ChannelOpenFailure::ConnectFailed).await;
                }
                Err(_) => {
                    report(&format!("{to} does not answer"));
                    reply.reject(ChannelOpenFailure::ConnectFailed).await;
                }
            }
        });
    }
}

/// Hands a connection to its listener, and gives its other end; none when too many wait.
pub(super) fn handed(taker: &mpsc::Sender<BoxedStream>) -> Option<DuplexStream> {
    let (near, far) = tokio::io::duplex(HANDED_BYTES);
    taker.try_send(Box::new(near)).is_ok().then_some(far)
}
