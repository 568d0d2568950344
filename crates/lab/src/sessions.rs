//! Memory for idle sessions, many at a time, and how soon a keystroke comes back when hundreds of others type.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::stream::{FuturesUnordered, StreamExt};
use sallyport_bench::Talk;
use sallyport_bench::cost::memory;
use sallyport_bench::machine::Watch;
use sallyport_bench::report::{Aim, Csv, Report, Row};
use sallyport_bench::statistics::Samples;
use sallyport_ssh::client::{Connection, Output, Program, Session, SessionRequest, Terminal, WindowSize};
use sallyport_testing::{SshRoute, Testbed};

use crate::LabError;

/// Connections that are being made at a time.
const AT_ONCE: usize = 32;
/// After the last connection was made: allocators and kernels come to rest.
const SETTLE: Duration = Duration::from_secs(3);
/// Descriptors that a session takes in the process that has most of them, with some to spare.
const DESCRIPTORS_EACH: u64 = 6;
/// The same for one without a program.
const DESCRIPTORS_BARE: u64 = 1;
/// Descriptors of everything else.
const DESCRIPTORS_ELSE: u64 = 1024;
/// Pause between two keys of one who types.
const KEY_EVERY: Duration = Duration::from_millis(500);
/// How long one key may take to come back.
const ECHO_PATIENCE: Duration = Duration::from_secs(10);

/// A connection that is being made.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = Result<Connection, LabError>> + Send + 'a>>;

/// Makes SSH connections through the cluster, each on a connection to the proxy of its own, as every `ssh` has one.
pub trait Dial: Send + Sync {
    /// Makes one, and proves who it is.
    fn connect(&self) -> Connecting<'_>;
}

/// Where the user of the lab is logged in.
#[derive(Debug, Clone)]
pub struct Login {
    /// The directory with the profile.
    pub home: PathBuf,
    /// The proxy's address.
    pub proxy: String,
    /// The node.
    pub node: &'static str,
    /// The OS login there.
    pub login: String,
}

/// What to measure.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Numbers of idle sessions, each begun from none.
    pub counts: Vec<usize>,
    /// Past so many, a session has no program: it is a connection that is logged in and has a channel open.
    pub programs_up_to: usize,
    /// Sessions in which a user types while echoes are measured; 0 leaves that out.
    pub active: usize,
    /// Keys to measure, each way.
    pub keys: usize,
    /// Where every sample goes.
    pub csv: Option<PathBuf>,
}

impl Settings {
    /// A glance, or enough to rely on.
    #[must_use]
    pub fn of(quick: bool) -> Self {
        let (counts, active, keys) =
            if quick { (vec![50, 200], 50, 200) } else { (vec![100, 1000, 10_000], 500, 1000) };
        Self { counts, programs_up_to: 1000, active, keys, csv: None }
    }
}

/// Measures. `dial` makes connections as the user who is logged in.
///
/// # Errors
/// When something cannot be started, or a connection fails.
pub fn run(
    program: &Path,
    settings: &Settings,
    talk: &Talk,
    dial: &dyn Fn(Login) -> Result<Arc<dyn Dial>, LabError>,
) -> Result<Report, LabError> {
    let descriptors = |count: usize| {
        let each = if count <= settings.programs_up_to { DESCRIPTORS_EACH } else { DESCRIPTORS_BARE };
        count as u64 * each + DESCRIPTORS_ELSE
    };
    let needed = settings.counts.iter().map(|count| descriptors(*count)).max().unwrap_or_default();
    let possible =
        raise_descriptors(needed.max(settings.active as u64 * DESCRIPTORS_EACH + DESCRIPTORS_ELSE));
    let testbed = Testbed::start(program, &|line| talk.say(line))?;
    let mut csv = Csv::create(settings.csv.as_deref(), "kind,what,number,value")?;
    let dial = dial(Login {
        home: testbed.cluster.home(),
        proxy: format!("127.0.0.1:{}", testbed.cluster.port),
        node: sallyport_testing::NODE,
        login: testbed.login.clone(),
    })?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| {
        LabError::Failed { what: "starting the asynchronous runtime".to_owned(), said: error.to_string() }
    })?;
    let watch = Watch::begin();
    let mut rows = Vec::new();
    let mut aims = Vec::new();
    for count in &settings.counts {
        if talk.stopping() {
            break;
        }
        if descriptors(*count) > possible {
            talk.say(format!(
                "{count} sessions are left out: they need about {} open files and the limit is {possible}; raise it with \
                 ulimit -n, or LimitNOFILE=",
                descriptors(*count)
            ));
            continue;
        }
        let with_program = *count <= settings.programs_up_to;
        let row = runtime.block_on(idle(&testbed, &dial, *count, with_program, &mut csv, talk))?;
        if let Some(both) = row.figure("both KiB") {
            aims.push(Aim::at_most(
                &format!("memory of proxy and node together, {}", row.what),
                both,
                100.0,
                "KiB",
            ));
        }
        rows.push(row);
    }
    if settings.active > 0 && !talk.stopping() {
        let echoes = runtime.block_on(echo(&testbed, &dial, settings, &mut csv, talk))?;
        let over = echoes.ours.quantile(0.99) - echoes.direct.quantile(0.99);
        aims.push(Aim::at_most("keystroke echo, p99 over direct", over, 5.0, "ms"));
        for (name, samples) in [("echo, direct", &echoes.direct), ("echo, ssh, ProxyCommand", &echoes.ours)] {
            rows.push(
                Row::new(name)
                    .with("p50 ms", 2, samples.median())
                    .with("p99 ms", 2, samples.quantile(0.99))
                    .with("keys", 0, f64::from(u32::try_from(samples.len()).unwrap_or(u32::MAX))),
            );
        }
    }
    let mut conditions = testbed.conditions();
    conditions.push(format!(
        "a session is an SSH connection on a connection to the proxy of its own, with a recorded program (sleep) that \
         the node runs; past {} it has an open channel and no program. Memory is the processes' own share (PSS), \
         without the programs",
        settings.programs_up_to
    ));
    conditions.push(format!(
        "echoes: stock ssh -tt, direct and through the cluster in turns, while {} others type a key every {} ms through \
         the cluster",
        settings.active,
        KEY_EVERY.as_millis()
    ));
    // Before the cluster ends: what is still open ends with it.
    runtime.shutdown_background();
    Ok(Report { conditions, rows, aims, ..Report::of("sessions", &watch, talk) })
}

/// Raises the limit of open files as far as it may be raised; children inherit it. Gives the limit.
pub(crate) fn raise_descriptors(wanted: u64) -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let soft = now.current.unwrap_or(u64::MAX);
    if soft >= wanted {
        return soft;
    }
    let target = now.maximum.map_or(wanted, |hard| hard.min(wanted));
    match setrlimit(Resource::Nofile, Rlimit { current: Some(target), maximum: now.maximum }) {
        Ok(()) => target,
        Err(_) => soft,
    }
}

/// What is held open of one session.
struct Held {
    connection: Connection,
    session: Option<Session>,
}

async fn open(dial: &dyn Dial, request: Option<SessionRequest>) -> Result<Held, LabError> {
    let connection = dial.connect().await?;
    let session = match request {
        Some(request) => {
            let mut session = connection.start(request).await.map_err(said)?;
            loop {
                match session.next().await {
                    Some(Output::Started) => break,
                    Some(Output::Exit(exit)) => {
                        return Err(LabError::Connection(format!("a session ended at once: {exit:?}")));
                    }
                    Some(_) => {}
                    None => return Err(LabError::Connection("a session ended at once".to_owned())),
                }
            }
            Some(session)
        }
        None => None,
    };
    Ok(Held { connection, session })
}

fn said(error: impl std::fmt::Display) -> LabError {
    LabError::Connection(error.to_string())
}

/// Opens many, so many at a time. Stops early when told to.
async fn open_many(
    dial: &Arc<dyn Dial>,
    count: usize,
    request: impl Fn() -> Option<SessionRequest>,
    talk: &Talk,
) -> Result<Vec<Held>, LabError> {
    let mut all = Vec::with_capacity(count);
    let mut opening = FuturesUnordered::new();
    let mut begun = 0;
    loop {
        while begun < count && opening.len() < AT_ONCE && !talk.stopping() {
            opening.push(open(dial.as_ref(), request()));
            begun += 1;
        }
        let Some(opened) = opening.next().await else { break };
        all.push(opened?);
        if all.len() % 500 == 0 {
            talk.say(format!("{} of {count} sessions are open", all.len()));
        }
    }
    Ok(all)
}

async fn idle(
    testbed: &Testbed,
    dial: &Arc<dyn Dial>,
    count: usize,
    with_program: bool,
    csv: &mut Csv,
    talk: &Talk,
) -> Result<Row, LabError> {
    let shared = |pid| memory(pid).proportional;
    let (proxy, node) = (testbed.cluster.proxy.id(), testbed.cluster.node.id());
    // One before anything is measured: what is made once is made.
    close(open_many(dial, 4, || Some(SessionRequest::exec("true")), talk).await?).await;
    tokio::time::sleep(SETTLE).await;
    let before = [shared(proxy), shared(node)];
    talk.say(format!("opening {count} sessions"));
    let request = || with_program.then(|| SessionRequest::exec("exec sleep 100000"));
    let held = open_many(dial, count, request, talk).await?;
    tokio::time::sleep(SETTLE).await;
    let after = [shared(proxy), shared(node)];
    #[allow(clippy::cast_precision_loss)]
    let each = |index: usize| {
        let (after, before) =
            (after.get(index).copied().unwrap_or_default(), before.get(index).copied().unwrap_or_default());
        after.saturating_sub(before) as f64 / 1024.0 / held.len().max(1) as f64
    };
    let row =
        Row::new(format!("{} idle sessions{}", held.len(), if with_program { "" } else { ", no program" }))
            .with("proxy KiB", 1, each(0))
            .with("node KiB", 1, each(1))
            .with("both KiB", 1, each(0) + each(1));
    for figure in &row.figures {
        csv.line(&format!("memory,{},{count},{:.2}", figure.name, figure.value.unwrap_or_default()))?;
    }
    close(held).await;
    tokio::time::sleep(SETTLE).await;
    Ok(row)
}

async fn close(held: Vec<Held>) {
    let mut closing: FuturesUnordered<_> = held
        .iter()
        .map(|held| async {
            if let Some(session) = &held.session {
                let _ = session.input().close().await;
            }
            held.connection.disconnect().await;
        })
        .collect();
    while closing.next().await.is_some() {}
}

struct Echoes {
    direct: Samples,
    ours: Samples,
}

fn terminal() -> SessionRequest {
    let terminal = Terminal { term: "xterm".to_owned(), size: WindowSize::default(), modes: Vec::new() };
    SessionRequest { terminal: Some(terminal), ..SessionRequest::new(Program::Exec(b"exec cat".to_vec())) }
}

/// A user who types for as long as the session lives; counts what comes back.
async fn typing(session: Session, at: Duration, echoed: Arc<AtomicUsize>) {
    let (input, mut output) = session.split();
    tokio::time::sleep(at).await;
    let mut keys = tokio::time::interval(KEY_EVERY);
    loop {
        tokio::select! {
            _ = keys.tick() => {
                if input.data(&b"k"[..]).await.is_err() {
                    return;
                }
            }
            out = output.next() => match out {
                Some(Output::Stdout(_)) => { echoed.fetch_add(1, Ordering::Relaxed); }
                Some(Output::Exit(_)) | None => return,
                Some(_) => {}
            }
        }
    }
}

async fn echo(
    testbed: &Testbed,
    dial: &Arc<dyn Dial>,
    settings: &Settings,
    csv: &mut Csv,
    talk: &Talk,
) -> Result<Echoes, LabError> {
    talk.say(format!("opening {} sessions in which a user types", settings.active));
    let held = open_many(dial, settings.active, || Some(terminal()), talk).await?;
    let echoed = Arc::new(AtomicUsize::new(0));
    let mut connections = Vec::new();
    for (index, held) in held.into_iter().enumerate() {
        connections.push(held.connection);
        if let Some(session) = held.session {
            // Spread over the pause, so that they do not all type at once.
            let at = KEY_EVERY * u32::try_from(index).unwrap_or_default()
                / u32::try_from(settings.active.max(1)).unwrap_or(1);
            tokio::spawn(typing(session, at, Arc::clone(&echoed)));
        }
    }
    tokio::time::sleep(SETTLE).await;
    talk.say(format!("measuring {} keys each way", settings.keys));
    let before = echoed.load(Ordering::Relaxed);
    let began = Instant::now();
    let echoes = {
        let mut probes =
            [Probe::start(testbed, SshRoute::Direct)?, Probe::start(testbed, SshRoute::ProxyCommand)?];
        let mut echoes = Echoes { direct: Samples::default(), ours: Samples::default() };
        for number in 0..settings.keys {
            if talk.stopping() {
                break;
            }
            for (index, probe) in probes.iter_mut().enumerate() {
                let took = tokio::task::block_in_place(|| probe.key())?.as_secs_f64() * 1e3;
                let (name, samples) =
                    if index == 0 { ("direct", &mut echoes.direct) } else { ("cluster", &mut echoes.ours) };
                samples.push(took);
                csv.line(&format!("echo,{name},{number},{took:.3}"))?;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        echoes
    };
    let typed = echoed.load(Ordering::Relaxed).saturating_sub(before);
    #[allow(clippy::cast_precision_loss)]
    let rate = typed as f64 / began.elapsed().as_secs_f64();
    csv.line(&format!("echo,others a second,0,{rate:.1}"))?;
    talk.say(format!("the others' keys came back {rate:.0} times a second"));
    for connection in connections {
        connection.disconnect().await;
    }
    Ok(echoes)
}

/// Stock `ssh` with a terminal, and `cat` behind it.
struct Probe {
    child: Child,
    input: ChildStdin,
    output: std::sync::mpsc::Receiver<Instant>,
}

impl Probe {
    fn start(testbed: &Testbed, route: SshRoute) -> Result<Self, LabError> {
        let mut command = testbed.openssh("ssh", route);
        command.arg("-tt").arg(testbed.destination(route)).arg("exec cat");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|source| sallyport_testing::missing(&command, source))?;
        let failed = || LabError::Connection("a probe has no pipes".to_owned());
        let (input, output) =
            (child.stdin.take().ok_or_else(failed)?, child.stdout.take().ok_or_else(failed)?);
        let mut probe = Self { child, input, output: arrivals(output) };
        // The first keys wait for the login to be done.
        for _ in 0..3 {
            probe.key()?;
        }
        Ok(probe)
    }

    /// Types a key and waits until the terminal shows it.
    fn key(&mut self) -> Result<Duration, LabError> {
        let lost = |said: String| LabError::Failed { what: "measuring an echo".to_owned(), said };
        let began = Instant::now();
        self.input
            .write_all(b"k")
            .and_then(|()| self.input.flush())
            .map_err(|error| lost(error.to_string()))?;
        let shown = self
            .output
            .recv_timeout(ECHO_PATIENCE)
            .map_err(|_| lost("the key did not come back".to_owned()))?;
        Ok(shown.saturating_duration_since(began))
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Keys that were shown and not asked for yet, at most: each is waited for before the next is pressed.
const ARRIVALS_MOST: usize = 64;

/// When each key was shown.
fn arrivals(mut output: ChildStdout) -> std::sync::mpsc::Receiver<Instant> {
    let (sender, receiver) = std::sync::mpsc::sync_channel(ARRIVALS_MOST);
    std::thread::spawn(move || {
        let mut buffer = [0; 256];
        while let Ok(read) = output.read(&mut buffer) {
            let now = Instant::now();
            let keys = buffer.get(..read).unwrap_or_default().iter().filter(|byte| **byte == b'k').count();
            if read == 0 || (0..keys).any(|_| sender.send(now).is_err()) {
                return;
            }
        }
    });
    receiver
}
