//! Many agents whose proxy goes and comes back: the agents' own tunnels, over TLS and loopback.
#![allow(clippy::print_stderr, reason = "the figures, for a developer who runs this by hand")]

use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::tasks::Tasks;
use sallyport_access::{HostId, NodeName};
use sallyport_audit::event::MemorySink;
use sallyport_session::factor::NoFactors;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::rig::Rig;
use crate::agent::gateway::Gateway;
use crate::agent::tunnel::Dialling;
use crate::config::{HostPort, Limits, TunnelCarrier};
use crate::health::Health;
use crate::member::host::Credentials;

/// Enough for every second of their return to have its share; how pauses spread a thousand is tested beside the pauses.
const AGENTS: usize = 200;
/// A restart.
const SHORT: Duration = Duration::from_secs(1);
/// Long enough for pauses to have grown.
const LONG: Duration = Duration::from_secs(5);
/// All are back within this: the longest pause that such an outage leads to, and their handshakes on a machine that is busy.
const BACK: Duration = Duration::from_secs(60);
/// Proxy and agents run on threads of this name: other tests have theirs in the same process.
const THREADS: &str = "herd";

/// Processor time of the proxy and the agents together, the kernel's for them included.
fn processor() -> Duration {
    let mut ticks = 0;
    for thread in fs::read_dir("/proc/self/task").unwrap().flatten() {
        // A thread may end meanwhile.
        let Ok(stat) = fs::read_to_string(thread.path().join("stat")) else { continue };
        if let Some((head, rest)) = stat.rsplit_once(')')
            && head.ends_with(&format!("({THREADS}"))
        {
            let fields: Vec<&str> = rest.split_whitespace().collect();
            ticks += fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        }
    }
    Duration::from_millis(ticks * 10)
}

/// Memory of the whole process.
fn mebibytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

fn agent(rig: &Rig, number: usize, stop: &CancellationToken, tasks: &Tasks) -> HostId {
    let (id, name) = (HostId::new(), format!("node-{number}"));
    let identity = rig.identity(id, &name);
    let view = Arc::clone(&rig.service.view);
    let gateway = Gateway {
        id,
        name: NodeName::new(&name).unwrap(),
        view: Arc::clone(&view),
        sink: Arc::new(MemorySink::default()),
        factors: Arc::new(NoFactors),
    };
    let dialling = Dialling {
        databases: None,
        resources: None,
        proxy: HostPort::from(rig.address),
        carrier: TunnelCarrier::Tcp,
        credentials: Credentials::new(format!("/nonexistent/{number}").into(), identity),
        view,
        serve: Arc::new(|_, _| Box::pin(async {})),
        gateway,
        health: Health::new(),
        drain: CancellationToken::new(),
        stop: stop.clone(),
        tasks: tasks.clone(),
    };
    tasks.spawn(dialling.run());
    id
}

/// Waits until all are there; how long after `since` each came, the first one first.
async fn arrivals(rig: &Rig, agents: &[HostId], since: Instant) -> Vec<Duration> {
    let mut missing = agents.to_vec();
    let mut came = Vec::new();
    loop {
        let now = since.elapsed();
        missing.retain(|id| rig.service.hub.tunnels(id) == 0);
        came.resize(agents.len() - missing.len(), now);
        if missing.is_empty() {
            return came;
        }
        assert!(now < BACK, "{} of {} are not there after {now:?}", missing.len(), agents.len());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// So many agents whose proxy goes away for so long; how long after it was back each came. They are new ones: an agent that has
/// lost its proxy shortly before waits longer.
async fn outage(count: usize, length: Duration) -> Vec<Duration> {
    // All come from one address here.
    let limits = Limits { connections_per_address: 10 * count, ..Limits::default() };
    let mut rig = Rig::with(limits).await;
    let (stop, tasks) = (CancellationToken::new(), Tasks::new());
    let agents: Vec<HostId> = (0..count).map(|number| agent(&rig, number, &stop, &tasks)).collect();
    arrivals(&rig, &agents, Instant::now()).await;
    rig.crash().await;
    tokio::time::sleep(length).await;
    let asked = rig.asked.load(Ordering::Relaxed);
    let (since, before) = (Instant::now(), processor());
    rig.start_again().await;
    let came = arrivals(&rig, &agents, since).await;
    let spent = processor().saturating_sub(before);
    let asked = rig.asked.load(Ordering::Relaxed) - asked;
    eprintln!(
        "away for {length:?}: {count} agents were back, by tenths of them, after {:?}, with {spent:?} of processor time \
         on both sides; memory {} MiB",
        (1..=10).map(|tenths| tenth(&came, tenths)).collect::<Vec<_>>(),
        mebibytes()
    );
    // One handshake for each, in a build for tests: nothing is done in vain.
    assert!(spent < Duration::from_millis(20) * u32::try_from(agents.len()).unwrap(), "{spent:?}");
    // The proxy decides by what it holds; its own connection to the authority is all it makes.
    assert!(asked < 20, "{asked}");
    // None is there twice.
    assert!(agents.iter().all(|id| rig.service.hub.tunnels(id) == 1));
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    came
}

/// When so many tenths of them had come.
fn tenth(came: &[Duration], tenths: usize) -> Duration {
    *came.get(came.len() * tenths / 10 - 1).unwrap()
}

#[test]
fn agents_come_back_soon_and_not_at_once() {
    come_back(AGENTS);
}

#[test]
fn a_thousand_agents_come_back_soon_and_not_at_once() {
    come_back(1_000);
}

fn come_back(count: usize) {
    // Two descriptors for each.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).thread_name(THREADS).enable_all().build().unwrap();
    runtime.block_on(async {
        outage(count, SHORT).await;
        let came = outage(count, LONG).await;
        // A second, and their handshakes on a machine that is busy.
        let most = Duration::from_secs(1) + Duration::from_millis(40) * u32::try_from(count).unwrap();
        assert!(tenth(&came, 10) < most, "{:?}", tenth(&came, 10));
        // The middle eight tenths take some six tenths of a second, and longer where agents wait for a processor.
        let spread = tenth(&came, 9) - tenth(&came, 1);
        assert!(spread > Duration::from_millis(300), "{spread:?}");
    });
}
