//! Local listeners whose connections come out on the host's side: `-L` and `-D`.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tracing::debug;

use super::{ClientError, Connection, socks};
use crate::pump::pump;

/// Connections of one listener at a time. More wait in the listener's queue.
const CONNECTIONS: usize = 256;

/// How long a SOCKS client may take to say where it wants to go.
const SOCKS_TIMEOUT: Duration = Duration::from_secs(10);

/// Told, in words, about each connection that could not be forwarded.
pub type Report = Arc<dyn Fn(&str) + Send + Sync>;

/// A listener that forwards. Dropping it closes the listener and its connections.
#[derive(Debug)]
pub struct Forward {
    task: JoinHandle<()>,
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Connection {
    /// Forwards every connection of `listener` to one address as the host sees it.
    #[must_use]
    pub fn forward(&self, listener: TcpListener, address: String, port: u16, report: Report) -> Forward {
        let connection = self.clone();
        let task = tokio::spawn(accept(listener, move |stream, peer| {
            let (connection, address, report) = (connection.clone(), address.clone(), Arc::clone(&report));
            async move {
                match connection.direct_channel(&address, port, peer).await {
                    Ok(channel) => {
                        pump(channel, stream, connection.inner.slack.clone()).await;
                    }
                    Err(error) => report(&in_words(&error)),
                }
            }
        }));
        Forward { task }
    }

    /// Forwards every connection of `listener` to where its SOCKS request says.
    #[must_use]
    pub fn forward_dynamic(&self, listener: TcpListener, report: Report) -> Forward {
        let connection = self.clone();
        let task = tokio::spawn(accept(listener, move |mut stream, peer| {
            let (connection, report) = (connection.clone(), Arc::clone(&report));
            async move {
                let wanted = match tokio::time::timeout(SOCKS_TIMEOUT, socks::read(&mut stream)).await {
                    Ok(Ok(wanted)) => wanted,
                    Ok(Err(reason)) => return report(&reason),
                    Err(_) => return report("a SOCKS client did not say where it wants to go"),
                };
                match connection.direct_channel(&wanted.address, wanted.port, peer).await {
                    Ok(channel) => {
                        if stream.write_all(&wanted.answer(true)).await.is_ok() {
                            pump(channel, stream, connection.inner.slack.clone()).await;
                        } else {
                            let _ = channel.close().await;
                        }
                    }
                    Err(error) => {
                        let _ = stream.write_all(&wanted.answer(false)).await;
                        report(&in_words(&error));
                    }
                }
            }
        }));
        Forward { task }
    }
}

async fn accept<F, W>(listener: TcpListener, serve: F)
where
    F: Fn(TcpStream, std::net::SocketAddr) -> W,
    W: Future<Output = ()> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut tasks = JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, peer)) => {
                let _ = stream.set_nodelay(true);
                let served = serve(stream, peer);
                tasks.spawn(async move {
                    served.await;
                    drop(place);
                });
            }
            Err(error) => {
                // Out of descriptors, most likely: others must close first.
                debug!(%error, "cannot accept a connection to forward");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        while tasks.try_join_next().is_some() {}
    }
}

fn in_words(error: &ClientError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
