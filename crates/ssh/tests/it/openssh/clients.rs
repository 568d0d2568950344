//! The two SSH clients of this crate side by side, against a stock sshd: how often each waits for it, and what each costs.
//! ARCHITECTURE.md ("Two SSH clients") says what follows from the figures.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use sallyport_access::HostRole;
use sallyport_ssh::client::{Connection, Exit, SessionRequest, connect, connect_pipelined};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::openssh::rig::{Cluster, NODE, Pair, Sshd, SshdOptions, run, settings};

/// How many connections are made of each kind, and how many MiB each fetches once.
const ROUNDS: &str = "SALLYPORT_CLIENT_ROUNDS";

#[derive(Debug, Clone, Copy)]
enum By {
    Library,
    Pipelined,
}

/// Counts how often something is heard after something was said: what each costs on a long way.
struct Turns {
    stream: TcpStream,
    said: bool,
    count: Arc<AtomicUsize>,
}

impl AsyncRead for Turns {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        if std::mem::take(&mut self.said) {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for Turns {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.said = true;
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A cluster, its user and a server.
struct Stage {
    cluster: Cluster,
    user: Pair,
    sshd: Sshd,
}

impl Stage {
    fn new() -> Self {
        let cluster = Cluster::new();
        let user = cluster.user();
        let sshd = Sshd::start(&cluster, &cluster.host(NODE, HostRole::Node), &SshdOptions::default());
        Self { cluster, user, sshd }
    }

    async fn reach(&self, by: By, count: &Arc<AtomicUsize>) -> Connection {
        let stream = TcpStream::connect(self.sshd.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let stream = Turns { stream, said: false, count: Arc::clone(count) };
        let (credentials, settings) = (self.user.credentials(), settings(&self.cluster));
        match by {
            By::Library => connect(stream, &credentials, settings).await.unwrap(),
            By::Pipelined => connect_pipelined(stream, &credentials, settings).await.unwrap(),
        }
    }

    /// Runs a command on a connection of its own; gives how often its client has waited, and how much came.
    async fn command(&self, by: By, command: &str) -> (usize, usize) {
        let count = Arc::default();
        let connection = self.reach(by, &count).await;
        let ran = run(&connection, SessionRequest::exec(command)).await;
        assert_eq!(ran.exit, Exit::Status(0));
        let turns = count.load(Ordering::Relaxed);
        connection.disconnect().await;
        (turns, ran.stdout.len())
    }
}

/// What this process has computed so far. sshd is another one.
fn computed() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}

#[tokio::test]
async fn the_pipelined_client_waits_less_often() {
    let stage = Stage::new();
    let (library, _) = stage.command(By::Library, "true").await;
    let (pipelined, _) = stage.command(By::Pipelined, "true").await;
    println!(
        "the client has waited, up to the exit of `true`: russh's {library}, the pipelined {pipelined} times"
    );
    // How sshd's answers come in pieces is its own affair.
    assert!(pipelined < library, "{pipelined} and {library}");
}

#[tokio::test]
async fn both_clients_fetch_all_at_what_it_costs() {
    let rounds = std::env::var(ROUNDS).ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
    let stage = Stage::new();
    for by in [By::Library, By::Pipelined] {
        let (began, before) = (Instant::now(), computed());
        for _ in 0..rounds {
            stage.command(by, "true").await;
        }
        let connecting = (began.elapsed() / rounds, (computed() - before) / rounds);
        let (began, before) = (Instant::now(), computed());
        let (_, came) = stage.command(by, &format!("head -c {}M /dev/zero", rounds)).await;
        let fetching = (began.elapsed(), computed() - before);
        assert_eq!(came, rounds as usize * (1 << 20));
        println!(
            "{by:?}: a connection to the exit of `true` took {:?}, of which it computed {:?}; {rounds} MiB took {:?}, {:?}",
            connecting.0, connecting.1, fetching.0, fetching.1
        );
    }
}
