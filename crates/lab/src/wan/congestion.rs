//! `lab wan congestion`: how much QUIC carries by each congestion controller, alone on a line and beside a transfer by TCP.
//!
//! Two hosts, one connection of the carrier from one to the other, and bytes that come back. There is no cluster: what is
//! compared is the carrier alone, with the settings that proxies and clients have.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use sallyport_bench::Talk;
use sallyport_bench::machine::Watch;
use sallyport_bench::report::{Aim, Csv, Report, Row};
use sallyport_bench::statistics::Samples;
use sallyport_sal::algorithm::KexGroup;
use sallyport_sal::measure::certificate::{self, Role};
use sallyport_sal::tls::{self, rustls};
use sallyport_sal::{KeyAlgorithm, MemoryKey, Signer, selection};
use sallyport_wire::carrier::{self, Congestion};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use rustls::pki_types::CertificateDer;
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use super::plan::{Plan, Settings as Figures};
use super::{Host, Wan};
use crate::LabError;

/// The name in the server's certificate.
const NAME: &str = "localhost";
/// How long one transfer may take; what is done by then counts.
const PATIENCE: Duration = Duration::from_secs(60);
/// What is written at a time.
const CHUNK: usize = 64 * 1024;
/// Bytes/s of a trickle, and the part of it that goes at a time.
const TRICKLE_RATE: u64 = 512 * 1024;
const TRICKLE_PART: usize = 8 * 1024;
const TRICKLE_EVERY: Duration = Duration::from_micros(15_625);
/// How often a small packet is sent beside a transfer, to see how long the queue is.
const PROBE_EVERY: Duration = Duration::from_millis(20);

/// What to measure.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Bytes of one transfer.
    pub size: u64,
    /// Rounds; each transfers once by every controller on every line, alone and beside TCP.
    pub rounds: usize,
    /// One line in place of the usual ones.
    pub figures: Option<Figures>,
    /// What losses and jitter are drawn from; each round has the next one.
    pub seed: u64,
    /// How long a transfer by TCP has the line to itself before the connection comes.
    pub head_start: Duration,
    /// How long a connection carries less than the line does before it carries more.
    pub trickle: Duration,
    /// Where every sample goes.
    pub csv: Option<PathBuf>,
}

impl Settings {
    /// A glance, or enough to rely on.
    #[must_use]
    pub fn of(quick: bool) -> Self {
        let (mebibytes, rounds, before) = if quick { (4, 1, 500) } else { (32, 5, 2_000) };
        let (head_start, trickle) = (Duration::from_millis(before), Duration::from_millis(3 * before));
        Self { size: mebibytes << 20, rounds, figures: None, seed: 1, head_start, trickle, csv: None }
    }
}

/// Lines: a name, milliseconds there and back, percent lost, Mbit/s.
const LINES: [(&str, f64, f64, f64); 5] = [
    ("near, clean", 20.0, 0.0, 100.0),
    ("far, clean", 100.0, 0.0, 100.0),
    ("far, 0.1 % lost", 100.0, 0.1, 100.0),
    ("far, 1 % lost", 100.0, 1.0, 100.0),
    ("slow, 0.5 % lost", 60.0, 0.5, 20.0),
];

struct Line {
    name: String,
    figures: Figures,
}

fn lines(settings: &Settings) -> Result<Vec<Line>, LabError> {
    if let Some(figures) = &settings.figures {
        return Ok(vec![Line { name: "as given".to_owned(), figures: figures.clone() }]);
    }
    let line = |(name, milliseconds, percent, megabits): &(&str, f64, f64, f64)| {
        let setting = |value: &f64| format!("a-b={value}").parse();
        let figures = Figures {
            round_trips: vec![setting(milliseconds)?],
            jitter: Vec::new(),
            loss: vec![setting(percent)?],
            rates: vec![setting(megabits)?],
        };
        let name = format!("{name} ({milliseconds} ms, {megabits} Mbit/s)");
        Ok::<_, LabError>(Line { name, figures })
    };
    LINES.iter().map(line).collect()
}

/// What is on the line, and was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Nothing else.
    Alone,
    /// The connection has carried less than the line does for a while, as a session in which a user types and reads.
    AfterTrickle,
    /// A transfer by TCP.
    BesideTcp,
}

impl Mode {
    const ALL: [Self; 3] = [Self::Alone, Self::AfterTrickle, Self::BesideTcp];

    fn as_str(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::AfterTrickle => "after-trickle",
            Self::BesideTcp => "beside-tcp",
        }
    }
}

/// What a controller did on a line, for each of [`Mode::ALL`].
#[derive(Default)]
struct Measured {
    rates: [Samples; Mode::ALL.len()],
    /// Of each transfer, what 19 of 20 small packets took there and back meanwhile, at most.
    delays: [Samples; Mode::ALL.len()],
    tcp: Samples,
}

/// Measures.
///
/// # Errors
/// As [`Wan::up`], and when no connection comes about.
pub fn run(settings: &Settings, talk: &Talk) -> Result<Report, LabError> {
    let lines = lines(settings)?;
    let ends = Ends::new()?;
    let columns = "line,controller,round,mode,mib_per_s,p95_ms,tcp_mib_per_s";
    let mut csv = Csv::create(settings.csv.as_deref(), columns)?;
    let watch = Watch::begin();
    let mut measured: Vec<[Measured; Congestion::ALL.len()]> =
        lines.iter().map(|_| Default::default()).collect();
    let (mut step, steps) = (0, lines.len() * settings.rounds * Congestion::ALL.len() * Mode::ALL.len());
    for round in 0..settings.rounds {
        for (line, of_line) in lines.iter().zip(&mut measured) {
            // Each controller meets the same losses: those that the seed of the round gives.
            let plan = Plan::of(Vec::new(), &line.figures, settings.seed + round as u64)?;
            for (controller, of_controller) in Congestion::ALL.into_iter().zip(of_line) {
                let places = of_controller.rates.iter_mut().zip(&mut of_controller.delays);
                for (mode, (rates, delays)) in Mode::ALL.into_iter().zip(places) {
                    if talk.stopping() {
                        break;
                    }
                    talk.progress(step, steps, format!("{}: {}", line.name, controller.as_str()));
                    step += 1;
                    let wan = Wan::up(&plan)?;
                    let got = transfer(&wan, &ends, controller, settings, mode)?;
                    let tcp = got.tcp.map_or(String::new(), |tcp| format!("{tcp:.3}"));
                    let delay = got.delay.as_secs_f64() * 1e3;
                    csv.line(&format!(
                        "{},{},{round},{},{:.3},{delay:.1},{tcp}",
                        line.name.replace(',', ";"),
                        controller.as_str(),
                        mode.as_str(),
                        got.quic
                    ))?;
                    rates.push(got.quic);
                    delays.push(delay);
                    if let Some(tcp) = got.tcp {
                        of_controller.tcp.push(tcp);
                    }
                }
            }
        }
    }
    Ok(report(settings, &lines, &measured, Report::of("wan congestion", &watch, talk)))
}

fn report(
    settings: &Settings,
    lines: &[Line],
    measured: &[[Measured; Congestion::ALL.len()]],
    mut report: Report,
) -> Report {
    let kernel = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap_or_default();
    report.conditions.push(format!(
        "{} MiB from one host to another by one QUIC connection: alone; after {} s at {} KiB/s; and beside a transfer by TCP ({}) \
         that began {} s before; queues of 100 ms; seed {}",
        settings.size >> 20,
        settings.trickle.as_secs_f64(),
        TRICKLE_RATE >> 10,
        kernel.trim(),
        settings.head_start.as_secs_f64(),
        settings.seed
    ));
    for (line, of_line) in lines.iter().zip(measured) {
        for (controller, of) in Congestion::ALL.into_iter().zip(of_line) {
            let ([alone, trickle, beside], [alone_ms, trickle_ms, _]) = (&of.rates, &of.delays);
            report.rows.push(
                Row::new(format!("{}: {}", line.name, controller.as_str()))
                    .measured("alone MiB/s", 2, alone)
                    .measured("p95 ms", 0, alone_ms)
                    .measured("after a trickle MiB/s", 2, trickle)
                    .measured("its p95 ms", 0, trickle_ms)
                    .measured("beside TCP MiB/s", 2, beside)
                    .measured("that TCP MiB/s", 2, &of.tcp),
            );
        }
        let [ours, others @ ..] = of_line;
        let alone = |of: &Measured| {
            let [alone, ..] = &of.rates;
            (!alone.is_empty()).then(|| alone.median())
        };
        let best = others.iter().filter_map(alone).reduce(f64::max);
        if let (Some(ours), Some(best)) = (alone(ours), best) {
            let what = format!("{}: rate-based, times the best of the others", line.name);
            report.aims.push(Aim::at_least(&what, ours / best, 0.95, "times"));
        }
    }
    report
}

/// What both ends prove themselves with.
struct Ends {
    server: Arc<rustls::ServerConfig>,
    client: Arc<rustls::ClientConfig>,
}

fn broken(error: impl std::fmt::Display) -> LabError {
    LabError::Failed { what: "a transfer by QUIC".to_owned(), said: error.to_string() }
}

impl Ends {
    fn new() -> Result<Self, LabError> {
        let authority = MemoryKey::generate(KeyAlgorithm::EcdsaP256).map_err(broken)?;
        let root =
            certificate::issue(&authority.public_key(), 1, Role::Authority, &authority, 1).map_err(broken)?;
        let leaf = Arc::new(MemoryKey::generate(KeyAlgorithm::EcdsaP256).map_err(broken)?);
        let der = certificate::issue(&leaf.public_key(), 2, Role::Leaf, &authority, 1).map_err(broken)?;
        let provider = tls::compose(selection::global(), &[KexGroup::X25519]).map_err(broken)?;
        let certified =
            CertifiedKey::new(vec![CertificateDer::from(der)], tls::signing_key(leaf as Arc<dyn Signer>));
        let mut server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(broken)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        server.send_tls13_tickets = 0;
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from(root)).map_err(broken)?;
        let client = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(broken)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { server: Arc::new(server), client: Arc::new(client) })
    }
}

/// Rates in MiB/s.
struct Got {
    quic: f64,
    delay: Duration,
    tcp: Option<f64>,
}

fn transfer(
    wan: &Wan,
    ends: &Ends,
    controller: Congestion,
    settings: &Settings,
    mode: Mode,
) -> Result<Got, LabError> {
    let missing = || LabError::Input("a WAN of two regions, a and b, is needed".to_owned());
    let (from, to) = (wan.host("b").ok_or_else(missing)?, wan.host("a").ok_or_else(missing)?);
    let send = Sends {
        at: IpAddr::V4(from.v4),
        controller,
        size: settings.size,
        trickle: (mode == Mode::AfterTrickle).then_some(settings.trickle),
    };
    std::thread::scope(|scope| {
        let beside = (mode == Mode::BesideTcp)
            .then(|| Beside::start(scope, from, to, settings.head_start))
            .transpose()?;
        let (ready, address) = mpsc::channel();
        let serving = scope.spawn(move || from.namespace.inside(|| serve(&send, ends, &ready)));
        let fetched = match address.recv_timeout(PATIENCE) {
            Ok(server) => {
                let before = beside.as_ref().map(Beside::bytes);
                let fetched = to.namespace.inside(|| fetch(&server, ends, controller, settings.size));
                fetched.map_err(LabError::from).and_then(|fetched| fetched).map(|fetched| {
                    let tcp = beside
                        .as_ref()
                        .zip(before)
                        .map(|(beside, before)| rate(beside.bytes() - before, fetched.whole));
                    Got { quic: rate(fetched.bytes, fetched.took), delay: fetched.delay, tcp }
                })
            }
            Err(_) => Err(broken("the server did not start")),
        };
        drop(beside);
        let served = serving.join().map_err(|_| broken("the server's thread ended"));
        let got = fetched?;
        served??.and(Ok(got))
    })
}

#[allow(clippy::cast_precision_loss, reason = "sizes of transfers")]
fn rate(bytes: u64, took: Duration) -> f64 {
    bytes as f64 / f64::from(1 << 20) / took.as_secs_f64()
}

fn runtime() -> Result<tokio::runtime::Runtime, LabError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(broken)
}

/// What one client gets.
struct Sends {
    at: IpAddr,
    controller: Congestion,
    size: u64,
    trickle: Option<Duration>,
}

/// Sends what one client asks for, and says small packets back meanwhile.
fn serve(send: &Sends, ends: &Ends, ready: &mpsc::Sender<Addresses>) -> Result<(), LabError> {
    runtime()?.block_on(async {
        let settings = carrier::ServerSettings::new(Arc::clone(&ends.server))
            .map_err(broken)?
            .with_congestion(send.controller);
        let socket = UdpSocket::bind((send.at, 0)).map_err(broken)?;
        let echo = tokio::net::UdpSocket::bind((send.at, 0)).await.map_err(broken)?;
        let addresses = Addresses {
            carrier: socket.local_addr().map_err(broken)?,
            echo: echo.local_addr().map_err(broken)?,
        };
        let listener = carrier::bind(socket, &settings, None).map_err(broken)?;
        ready.send(addresses).map_err(broken)?;
        let sending = async {
            let arriving = listener.next().await.ok_or_else(|| broken("no client came"))?;
            let tickets = Arc::new(NoServerSessionStorage {});
            let (mut stream, _) = arriving.accept(&settings, tickets).await.map_err(broken)?;
            stream.read_u8().await.map_err(broken)?;
            // A client whose time is up has gone.
            let _ = send.all(&mut stream).await;
            // Else it says when it has it all.
            let _ = stream.read_u8().await;
            Ok(())
        };
        let echoing = async {
            let mut probe = [0; 64];
            while let Ok((length, peer)) = echo.recv_from(&mut probe).await {
                let _ = echo.send_to(probe.get(..length).unwrap_or_default(), peer).await;
            }
        };
        let sent = tokio::select! {
            sent = tokio::time::timeout(PATIENCE * 3, sending) => sent.map_err(broken)?,
            () = echoing => Err(broken("the socket for small packets ended")),
        };
        listener.close().await;
        sent
    })
}

impl Sends {
    /// The trickle, a byte that ends it, and the rest.
    async fn all(&self, stream: &mut carrier::Stream) -> std::io::Result<()> {
        let chunk = vec![0; CHUNK];
        if let Some(trickle) = self.trickle {
            let (ends, mut beat) = (Instant::now() + trickle, tokio::time::interval(TRICKLE_EVERY));
            while Instant::now() < ends {
                beat.tick().await;
                stream.write_all(chunk.get(..TRICKLE_PART).unwrap_or(&chunk)).await?;
                stream.flush().await?;
            }
        }
        stream.write_u8(1).await?;
        let mut left = self.size;
        while left > 0 {
            let next = usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK));
            stream.write_all(chunk.get(..next).unwrap_or(&chunk)).await?;
            left -= next as u64;
        }
        stream.flush().await
    }
}

/// Where a server is.
struct Addresses {
    carrier: SocketAddr,
    echo: SocketAddr,
}

struct Fetched {
    bytes: u64,
    /// From the request, or from the end of the trickle, on.
    took: Duration,
    /// From the request on.
    whole: Duration,
    delay: Duration,
}

/// Fetches it, with a small packet there and back again and again.
fn fetch(server: &Addresses, ends: &Ends, controller: Congestion, size: u64) -> Result<Fetched, LabError> {
    runtime()?.block_on(async {
        let dialling = carrier::connect_with(server.carrier, NAME, Arc::clone(&ends.client), controller);
        let mut stream = tokio::time::timeout(PATIENCE, dialling).await.map_err(broken)?.map_err(broken)?;
        let began = Instant::now();
        stream.write_u8(1).await.map_err(broken)?;
        let (mut chunk, mut bytes, mut since) = (vec![0; CHUNK], 0, None);
        let mut delays = Samples::default();
        let reading = async {
            while bytes < size {
                let read = stream.read(&mut chunk).await.map_err(broken)?;
                let got = chunk.get(..read).unwrap_or_default();
                if got.is_empty() {
                    return Err(broken("the server ended it early"));
                }
                if since.is_some() {
                    bytes += read as u64;
                } else if let Some(at) = got.iter().position(|byte| *byte == 1) {
                    since = Some(Instant::now());
                    bytes += (read - at - 1) as u64;
                }
            }
            Ok(())
        };
        tokio::select! {
            read = tokio::time::timeout(PATIENCE, reading) => if let Ok(read) = read { read? },
            probed = probe(server.echo, &mut delays) => probed?,
        }
        let (whole, took) = (began.elapsed(), since.unwrap_or(began).elapsed());
        // The runtime sends nothing after it has ended: the server says the last word.
        let parting = async {
            let _ = stream.write_u8(2).await;
            while matches!(stream.read(&mut chunk).await, Ok(1..)) {}
        };
        let _ = tokio::time::timeout(PATIENCE, parting).await;
        let delay = if delays.is_empty() { whole } else { Duration::from_secs_f64(delays.quantile(0.95)) };
        Ok(Fetched { bytes, took, whole, delay })
    })
}

/// Sends a small packet every so often, until this is dropped, and takes down how long each took, in seconds. One that is lost
/// counts as nothing.
async fn probe(server: SocketAddr, delays: &mut Samples) -> Result<(), LabError> {
    let socket = tokio::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await.map_err(broken)?;
    socket.connect(server).await.map_err(broken)?;
    let (began, mut beat, mut answer) = (Instant::now(), tokio::time::interval(PROBE_EVERY), [0; 16]);
    loop {
        tokio::select! {
            _ = beat.tick() => {
                let now = began.elapsed().as_nanos().to_be_bytes();
                // A device whose queue is full refuses it, which is what happens to packets there.
                let _ = socket.send(&now).await;
            }
            read = socket.recv(&mut answer) => if matches!(read, Ok(16)) {
                let sent = u64::try_from(u128::from_be_bytes(answer)).unwrap_or_default();
                let took = began.elapsed().saturating_sub(Duration::from_nanos(sent));
                delays.push(took.as_secs_f64());
            }
        }
    }
}

/// A transfer by TCP on the same line, until it is dropped.
struct Beside {
    bytes: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Beside {
    fn start<'scope>(
        scope: &'scope std::thread::Scope<'scope, '_>,
        from: &'scope Host,
        to: &'scope Host,
        head_start: Duration,
    ) -> Result<Self, LabError> {
        let this = Self { bytes: Arc::default(), stop: Arc::default() };
        let listener = from.namespace.inside(|| TcpListener::bind((from.v4, 0)))?.map_err(broken)?;
        let address = listener.local_addr().map_err(broken)?;
        let stop = Arc::clone(&this.stop);
        let dialled =
            to.namespace.inside(|| TcpStream::connect_timeout(&address, PATIENCE))?.map_err(broken)?;
        let (mut sender, _) = listener.accept().map_err(broken)?;
        scope.spawn(move || {
            use std::io::Write as _;
            let chunk = vec![0; CHUNK];
            // Ends when its peer has gone.
            while !stop.load(Ordering::Relaxed) && sender.write_all(&chunk).is_ok() {}
        });
        let (bytes, stop) = (Arc::clone(&this.bytes), Arc::clone(&this.stop));
        scope.spawn(move || {
            use std::io::Read as _;
            let (mut reader, mut chunk) = (dialled, vec![0; CHUNK]);
            while !stop.load(Ordering::Relaxed) {
                match reader.read(&mut chunk) {
                    Ok(0) | Err(_) => return,
                    Ok(read) => bytes.fetch_add(read as u64, Ordering::Relaxed),
                };
            }
        });
        // A line that has something on it, as the measurement says: this is its condition, and no wait for an event.
        std::thread::sleep(head_start);
        Ok(this)
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
