//! Handshakes of SSH, in turns: each side in a thread and a runtime of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sallyport_bench::Talk;
use sallyport_bench::statistics::Samples;
use sallyport_sal::algorithm::{KeyAlgorithm, Standing};
use sallyport_sal::economy::thread_cpu;
use sallyport_ssh::measure::{KeyExchange, MeasureError, Pair, Shape};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use super::pipe::{Pipe, pipe};
use super::settings::{Effort, Settings, Transport};
use super::tls::repetitions;
use crate::LabError;

/// How long the client waits for the server's figures.
const PATIENCE: Duration = Duration::from_secs(20);

/// Handshakes before the first that is measured. In some, one side happens to read what it need not wait for before it
/// sends its own next message: the least of their round trips counts.
const WARM: u32 = 10;

/// One kind of handshake, and how its bytes travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) shape: Shape,
    pub(super) transport: Transport,
}

/// What was measured of a cell; times in microseconds for one handshake.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) cell: Cell,
    pub(super) client: Samples,
    pub(super) server: Samples,
    /// From the client's connect to the end of its login; over loopback alone.
    pub(super) wall: Samples,
    pub(super) client_bytes: usize,
    pub(super) server_bytes: usize,
    pub(super) round_trips: usize,
}

/// The cells that settings ask for; the first is what others are compared with.
pub(super) fn cells(settings: &Settings) -> Vec<Cell> {
    let hosts: Vec<KeyAlgorithm> = settings
        .keys
        .iter()
        .copied()
        .filter(|key| key.ssh_key_type().is_some() && key.standing() == Standing::Full)
        .collect();
    let preferred = KeyAlgorithm::Ed25519;
    let first = if hosts.contains(&preferred) { Some(preferred) } else { hosts.first().copied() };
    let (Some(host), Some(exchange)) = (first, settings.exchanges.first().copied()) else {
        return Vec::new();
    };
    let base =
        Shape { host, host_certificate: true, exchange, user: KeyAlgorithm::Ed25519, user_certificate: true };
    let mut shapes = vec![base];
    for host in &hosts {
        let exchanges = if settings.cross { settings.exchanges.as_slice() } else { &[exchange] };
        for exchange in exchanges {
            let certified = Shape { host: *host, exchange: *exchange, ..base };
            shapes.extend([certified, Shape { host_certificate: false, ..certified }]);
        }
    }
    shapes.extend(settings.exchanges.iter().map(|exchange| Shape { exchange: *exchange, ..base }));
    for user in hosts.iter().filter(|_| settings.client_certificate) {
        shapes.push(Shape { user: *user, ..base });
    }
    shapes.push(Shape { user_certificate: false, ..base });
    let mut cells: Vec<Cell> = Vec::new();
    for transport in &settings.transports {
        for shape in &shapes {
            let web = [KeyAlgorithm::Ed25519, KeyAlgorithm::Rsa2048, KeyAlgorithm::Rsa4096];
            let plain = *shape == Shape { host: shape.host, ..base } && web.contains(&shape.host);
            let cell = Cell { shape: *shape, transport: *transport };
            if !cells.contains(&cell) && (*transport == Transport::Memory || settings.cross || plain) {
                cells.push(cell);
            }
        }
    }
    cells
}

/// A handshake in words.
pub(super) fn describe(cell: Cell) -> String {
    let Shape { host, host_certificate, exchange, user, user_certificate } = cell.shape;
    let kind = |certificate| if certificate { "certificate" } else { "key" };
    let over = if cell.transport == Transport::Loopback { ", loopback" } else { "" };
    format!("SSH {host} {}, {exchange}, user {user} {}{over}", kind(host_certificate), kind(user_certificate))
}

/// Cells that are ready, with what was measured of them.
pub(super) struct Bench {
    pub(super) cells: Vec<Measured>,
    /// Why some cells are not there.
    pub(super) missing: Vec<(Cell, String)>,
    runners: Vec<(Pair, u32)>,
    sides: Option<Sides>,
}

impl Bench {
    /// Makes keys and certificates ready, and runs each some times, which is not counted.
    ///
    /// # Errors
    /// When there is no port on loopback, or a handshake fails.
    pub(super) fn prepare(cells: &[Cell], effort: Effort, talk: &Talk) -> Result<Self, LabError> {
        let mut bench = Self { cells: Vec::new(), missing: Vec::new(), runners: Vec::new(), sides: None };
        if cells.is_empty() {
            return Ok(bench);
        }
        let sides = Sides::start()?;
        for (at, cell) in cells.iter().enumerate() {
            if talk.stopping() {
                break;
            }
            talk.progress(at, cells.len(), "host keys and certificates");
            let pair = match Pair::of(cell.shape) {
                Ok(pair) => pair,
                Err(error) => {
                    bench.missing.push((*cell, error.to_string()));
                    continue;
                }
            };
            sides.in_memory(&pair, 1)?;
            let (run, on_the_wire) = sides.in_memory(&pair, WARM)?;
            bench.runners.push((pair, repetitions(effort.batch, (run.client + run.server) / WARM)));
            bench.cells.push(Measured {
                cell: *cell,
                client: Samples::default(),
                server: Samples::default(),
                wall: Samples::default(),
                client_bytes: on_the_wire.client_bytes,
                server_bytes: on_the_wire.server_bytes,
                round_trips: on_the_wire.round_trips,
            });
        }
        bench.sides = Some(sides);
        Ok(bench)
    }

    /// Takes one sample of everything, and hands each to `heard`: cell, handshakes, client, server and wall time in
    /// microseconds. False when it was told to stop in the middle.
    ///
    /// # Errors
    /// When a handshake fails that went well before.
    pub(super) fn round(
        &mut self,
        talk: &Talk,
        mut heard: impl FnMut(Cell, u32, [f64; 2], Option<f64>) -> Result<(), LabError>,
    ) -> Result<bool, LabError> {
        let Some(sides) = &self.sides else { return Ok(true) };
        for (measured, (pair, count)) in self.cells.iter_mut().zip(&self.runners) {
            if talk.stopping() {
                return Ok(false);
            }
            let (run, wall) = match measured.cell.transport {
                Transport::Memory => (sides.in_memory(pair, *count)?.0, None),
                Transport::Loopback => {
                    let run = sides.over_loopback(pair, *count)?;
                    (run, Some(run.wall))
                }
            };
            let per = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(*count);
            let (client, server) = (per(run.client), per(run.server));
            measured.client.push(client);
            measured.server.push(server);
            if let Some(wall) = wall {
                measured.wall.push(wall);
            }
            heard(measured.cell, *count, [client, server], wall)?;
        }
        Ok(true)
    }
}

/// Handshakes one after the other: processor time of all together.
#[derive(Debug, Clone, Copy)]
struct Run {
    client: Duration,
    server: Duration,
    /// The median time from connect to the end of the login, in microseconds.
    wall: f64,
}

/// What one handshake put on the wire.
#[derive(Debug, Clone, Copy, Default)]
struct OnTheWire {
    client_bytes: usize,
    server_bytes: usize,
    round_trips: usize,
}

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// The protocol, in either side's words.
    #[error("{0}")]
    Protocol(MeasureError),
    /// The connection under it.
    #[error(transparent)]
    Connection(#[from] std::io::Error),
}

/// What the server's thread shall accept.
enum Job {
    Memory(Pair, Vec<Pipe>),
    Loopback(Pair, u32),
}

/// The server's thread, and what the client needs.
struct Sides {
    runtime: Runtime,
    address: SocketAddr,
    jobs: Option<SyncSender<Job>>,
    answers: Receiver<Result<Duration, Failure>>,
    serving: Option<JoinHandle<()>>,
}

impl Sides {
    fn start() -> Result<Self, LabError> {
        let failed = |error: std::io::Error| LabError::Connection(format!("no port on loopback: {error}"));
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (runtime, theirs) = (single().map_err(failed)?, single().map_err(failed)?);
        let listener = {
            let _inside = theirs.enter();
            TcpListener::from_std(listener).map_err(failed)?
        };
        // One job at a time, and an answer to each.
        let (jobs, waiting) = sync_channel(1);
        let (answer, answers) = sync_channel(1);
        let serving = std::thread::spawn(move || {
            while let Ok(job) = waiting.recv() {
                let began = thread_cpu();
                let served = theirs.block_on(serve(&listener, job));
                // A client that has failed does not fetch its answer, and asks for nothing more.
                if answer.try_send(served.map(|()| thread_cpu().saturating_sub(began))).is_err() {
                    break;
                }
            }
        });
        Ok(Self { runtime, address, jobs: Some(jobs), answers, serving: Some(serving) })
    }

    fn in_memory(&self, pair: &Pair, count: u32) -> Result<(Run, OnTheWire), LabError> {
        let (near, far): (Vec<Pipe>, Vec<Pipe>) = (0..count).map(|_| pipe()).unzip();
        let counts: Vec<_> = near.iter().map(Pipe::count).zip(far.iter().map(Pipe::count)).collect();
        self.send(Job::Memory(pair.clone(), far))?;
        let mut on_the_wire: Option<OnTheWire> = None;
        let began = thread_cpu();
        let shaken = self.runtime.block_on(async {
            for (stream, (near, far)) in near.into_iter().zip(&counts) {
                let mut look = || {
                    let now = OnTheWire {
                        client_bytes: near.sent(),
                        server_bytes: far.sent(),
                        round_trips: near.round_trips(),
                    };
                    if on_the_wire.is_none_or(|best| now.round_trips < best.round_trips) {
                        on_the_wire = Some(now);
                    }
                };
                pair.connect(stream, &mut look).await.map_err(Failure::Protocol)?;
            }
            Ok(())
        });
        let on_the_wire = on_the_wire.unwrap_or_default();
        Ok((self.finish(shaken, began, 0.0)?, on_the_wire))
    }

    fn over_loopback(&self, pair: &Pair, count: u32) -> Result<Run, LabError> {
        self.send(Job::Loopback(pair.clone(), count))?;
        let mut walls = Samples::default();
        let began = thread_cpu();
        let shaken = self.runtime.block_on(async {
            for _ in 0..count {
                let started = Instant::now();
                let stream = TcpStream::connect(self.address).await?;
                stream.set_nodelay(true)?;
                let done = || walls.push(started.elapsed().as_secs_f64() * 1e6);
                pair.connect(stream, done).await.map_err(Failure::Protocol)?;
            }
            Ok(())
        });
        self.finish(shaken, began, walls.median())
    }

    fn send(&self, job: Job) -> Result<(), LabError> {
        let gone = || LabError::Connection("the server of the handshakes is gone".to_owned());
        self.jobs.as_ref().ok_or_else(gone)?.send(job).map_err(|_| gone())
    }

    fn finish(&self, shaken: Result<(), Failure>, began: Duration, wall: f64) -> Result<Run, LabError> {
        let failed = |failure: Failure| LabError::Failed {
            what: "an SSH handshake".to_owned(),
            said: failure.to_string(),
        };
        let client = thread_cpu().saturating_sub(began);
        shaken.map_err(failed)?;
        let gone = |_| LabError::Connection("the server of the handshakes does not answer".to_owned());
        let server = self.answers.recv_timeout(PATIENCE).map_err(gone)?.map_err(failed)?;
        Ok(Run { client, server, wall })
    }
}

impl Drop for Sides {
    fn drop(&mut self) {
        self.jobs = None;
        // It may wait for a client that does not come, in a measurement that failed.
        drop(std::net::TcpStream::connect(self.address));
        if let Some(serving) = self.serving.take() {
            let _ = serving.join();
        }
    }
}

fn single() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

async fn serve(listener: &TcpListener, job: Job) -> Result<(), Failure> {
    match job {
        Job::Memory(pair, streams) => {
            for stream in streams {
                pair.accept(stream).await.map_err(Failure::Protocol)?;
            }
        }
        Job::Loopback(pair, count) => {
            for _ in 0..count {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                pair.accept(stream).await.map_err(Failure::Protocol)?;
            }
        }
    }
    Ok(())
}

/// What handshakes of SSH cost for each of the host keys with each of the exchanges.
pub(super) fn shapes(hosts: &[KeyAlgorithm], exchanges: &[KeyExchange]) -> Vec<Cell> {
    let user = KeyAlgorithm::Ed25519;
    let of = |host, exchange| Shape { host, host_certificate: true, exchange, user, user_certificate: true };
    hosts
        .iter()
        .flat_map(|host| exchanges.iter().map(move |exchange| of(*host, *exchange)))
        .map(|shape| Cell { shape, transport: Transport::Memory })
        .collect()
}
