//! Client and server on two threads, with a TCP connection on loopback for each handshake.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sallyport_bench::statistics::Samples;
use sallyport_sal::economy::thread_cpu;
use sallyport_sal::measure::handshake::Pair;

use crate::LabError;

/// How long a side waits for the other.
const PATIENCE: Duration = Duration::from_secs(20);

/// A thread that plays the server.
pub(super) struct Loopback {
    address: SocketAddr,
    jobs: Option<SyncSender<(Pair, u32)>>,
    answers: Receiver<io::Result<Duration>>,
    serving: Option<JoinHandle<()>>,
}

/// Handshakes one after the other: processor time of all together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    /// Of the client's thread, with the system calls that it made.
    pub(super) client: Duration,
    /// Of the server's.
    pub(super) server: Duration,
    /// The median time from connect to the end of the client's handshake, in microseconds.
    pub(super) wall: f64,
}

impl Loopback {
    /// Listens on a free port.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn start() -> Result<Self, LabError> {
        let failed = |error: io::Error| LabError::Connection(format!("no port on loopback: {error}"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        // One job at a time, and an answer to each.
        let (jobs, waiting) = sync_channel::<(Pair, u32)>(1);
        let (answer, answers) = sync_channel(1);
        let serving = std::thread::spawn(move || {
            while let Ok((pair, count)) = waiting.recv() {
                // A client that has failed does not fetch its answer, and asks for nothing more.
                if answer.try_send(serve(&listener, &pair, count)).is_err() {
                    break;
                }
            }
        });
        Ok(Self { address, jobs: Some(jobs), answers, serving: Some(serving) })
    }

    /// Shakes hands so many times, on a connection of its own each.
    ///
    /// # Errors
    /// When a connection or a handshake fails.
    pub(super) fn run(&self, pair: &Pair, count: u32) -> Result<Run, LabError> {
        let failed = |error: io::Error| LabError::Connection(format!("a handshake over loopback: {error}"));
        let gone = || LabError::Connection("the server of the handshakes is gone".to_owned());
        let jobs = self.jobs.as_ref().ok_or_else(gone)?;
        jobs.send((pair.clone(), count)).map_err(|_| gone())?;
        let mut walls = Samples::default();
        let began = thread_cpu();
        for _ in 0..count {
            let started = Instant::now();
            let mut stream = TcpStream::connect(self.address).map_err(failed)?;
            prepare(&stream).map_err(failed)?;
            pair.connect(&mut stream, || walls.push(started.elapsed().as_secs_f64() * 1e6))
                .map_err(failed)?;
        }
        let client = thread_cpu().saturating_sub(began);
        let server = self.answers.recv_timeout(PATIENCE).map_err(|_| gone())?.map_err(failed)?;
        Ok(Run { client, server, wall: walls.median() })
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))
}

fn serve(listener: &TcpListener, pair: &Pair, count: u32) -> io::Result<Duration> {
    let began = thread_cpu();
    for _ in 0..count {
        let (mut stream, _) = listener.accept()?;
        prepare(&stream)?;
        pair.accept(&mut stream)?;
    }
    Ok(thread_cpu().saturating_sub(began))
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.jobs = None;
        // It may wait for a client that does not come, in a measurement that failed.
        drop(TcpStream::connect(self.address));
        if let Some(serving) = self.serving.take() {
            let _ = serving.join();
        }
    }
}
