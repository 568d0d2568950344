//! What carries packets from host to host, each when its time has come: one thread takes them, and one delivers them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio_tun::Tun;

use super::capture::{Capture, PACKETS_MOST};
use super::captured::CapturedPacket;
use super::host::Host;
use super::line::{Fate, Line, Numbers};
use super::packet::Packet;
use super::plan::Conditions;
use crate::LabError;
use sallyport_testing::Namespace;

/// What each host's device is called.
pub(super) const DEVICE: &str = "wan0";
/// Bytes of a packet, at most.
pub(super) const MTU: u16 = 1500;
/// Packets that are taken from one device before it is another one's turn.
const TURN: usize = 64;
/// Its threads go before everything else on the machine: a packet that is late is a wrong figure. They sleep most of the
/// time, and the kernel bounds what real time takes.
const REAL_TIME_PRIORITY: &str = "10";
/// How long a thread may take to wake up: a virtual machine that sleeps needs most of it. The timer goes off so much
/// earlier, and the rest is waited for awake.
const WAKING_NANOSECONDS: u64 = 150_000;
/// An address of the network that no host has, for packets that are sent to see how soon they are taken.
const UNASSIGNED: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 254);
/// How many such packets, and how long the thread that takes them may fall asleep between two.
const PROBES: usize = 15;
const PROBE_EVERY: Duration = Duration::from_millis(3);
/// What is taken off at most: more is a machine that was busy just then.
const TAKING_MOST: u64 = 200_000;
/// Where real time is not to be had.
const PRIORITY: i32 = -15;

/// What became of packets, all together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Arrived.
    pub arrived: u64,
    /// Lost on the way, as the conditions have it.
    pub lost: u64,
    /// Dropped because a queue was full.
    pub full: u64,
    /// For no host of the WAN: a kernel asking for routers, most likely.
    pub astray: u64,
}

/// A packet under way.
struct UnderWay {
    at: u64,
    /// Of two at the same time, who was sent first arrives first.
    order: u64,
    line: usize,
    to: usize,
    /// Its place in the capture, and in which one.
    captured: Option<(u64, usize)>,
    bytes: Box<[u8]>,
}

impl PartialEq for UnderWay {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for UnderWay {}

impl PartialOrd for UnderWay {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for UnderWay {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

struct State {
    began: Instant,
    devices: Vec<Arc<Tun>>,
    addresses: HashMap<IpAddr, usize>,
    /// From host to host: the number of the one times how many there are, and the number of the other.
    lines: Vec<Line>,
    /// What the lines are to be later, and when: since the plan began.
    changes: VecDeque<(Duration, Vec<Conditions>)>,
    /// When the plan began; none while everything is being set up.
    plan_began: Option<u64>,
    queue: BinaryHeap<Reverse<UnderWay>>,
    order: u64,
    /// When the timer goes off; none while it is off.
    armed: Option<u64>,
    timer: Arc<OwnedFd>,
    stopping: bool,
    /// When a probe was sent that has not been taken.
    probe: Option<u64>,
    /// How long probes took.
    probes: Vec<u64>,
    /// How long a packet has waited when it is taken, at least: it was sent that much earlier.
    taking: u64,
    capture: Option<Recorder>,
    captures: u64,
    counts: Counts,
}

struct Recorder {
    number: u64,
    began: u64,
    capture: Capture,
}

/// Carries packets until it is dropped.
pub(super) struct Emulator {
    state: Arc<Mutex<State>>,
    hosts: Vec<String>,
    stop: Option<oneshot::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Emulator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Emulator").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl Emulator {
    /// Makes a device in each host's namespace, and carries packets between them. Conditions are those of all lines: from
    /// the first host to the first, the second and so on, then from the second.
    pub(super) fn start(
        hosts: &[Host],
        conditions: &[Conditions],
        changes: VecDeque<(Duration, Vec<Conditions>)>,
        seed: u64,
    ) -> Result<Self, LabError> {
        let failed = |what: &str, error: &dyn std::fmt::Display| LabError::Failed {
            what: what.to_owned(),
            said: error.to_string(),
        };
        let runtime = Builder::new_current_thread()
            .enable_io()
            .build()
            .map_err(|error| failed("starting the emulator", &error))?;
        let mut devices = Vec::new();
        for host in hosts {
            let tun = device(&runtime, &host.namespace)?;
            devices.push(Arc::new(tun.map_err(|error| failed("making a TUN device", &error))?));
        }
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)
            .map_err(|error| failed("making a timer", &error))?;
        let mut seeds = Numbers::new(seed);
        let lines = conditions.iter().map(|one| Line::new(*one, seeds.next())).collect();
        let addresses = hosts.iter().enumerate();
        let addresses = addresses
            .flat_map(|(index, host)| [(IpAddr::V4(host.v4), index), (IpAddr::V6(host.v6), index)])
            .collect();
        let state = Arc::new(Mutex::new(State {
            began: Instant::now(),
            devices,
            addresses,
            lines,
            changes,
            plan_began: None,
            queue: BinaryHeap::new(),
            order: 0,
            armed: None,
            timer: Arc::new(timer),
            stopping: false,
            probe: None,
            probes: Vec::new(),
            taking: 0,
            capture: None,
            captures: 0,
            counts: Counts::default(),
        }));
        let (stop, stopped) = oneshot::channel();
        let hosts = hosts.iter().map(|host| host.name.to_string()).collect();
        let mut emulator = Self { state, hosts, stop: Some(stop), threads: Vec::new() };
        let (taken, delivered) = (Arc::clone(&emulator.state), Arc::clone(&emulator.state));
        for (name, work) in [
            ("wan-take", Box::new(move || take_all(&runtime, &taken, stopped)) as Box<dyn FnOnce() + Send>),
            ("wan-deliver", Box::new(move || deliver_all(&delivered))),
        ] {
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
                go_first();
                work();
            });
            emulator.threads.push(thread.map_err(|error| failed("starting the emulator", &error))?);
        }
        Ok(emulator)
    }

    /// Finds out how long packets wait until they are taken, so that they arrive so much earlier. The host must have its
    /// address by now.
    pub(super) fn calibrate(&self, host: &Host) -> Result<(), LabError> {
        let socket = host.namespace.inside(|| UdpSocket::bind((host.v4, 0)))?;
        // Without it packets arrive a little later, and nothing else is wrong.
        let Ok(socket) = socket else { return Ok(()) };
        for _ in 0..PROBES {
            std::thread::sleep(PROBE_EVERY);
            let mut state = self.state.lock();
            state.probe = Some(state.now());
            drop(state);
            let _ = socket.send_to(&[0], (UNASSIGNED, 9));
        }
        std::thread::sleep(PROBE_EVERY);
        let mut state = self.state.lock();
        // The quickest one: what is taken off has always passed.
        state.taking = state.probes.iter().copied().min().unwrap_or_default().min(TAKING_MOST);
        Ok(())
    }

    /// From now on, for all lines, in the order of [`Self::start`].
    pub(super) fn change(&self, conditions: &[Conditions]) {
        let mut state = self.state.lock();
        state.changes.clear();
        state.change(conditions);
    }

    /// A host has another address in place of this one, from now on.
    pub(super) fn readdress(&self, old: IpAddr, new: IpAddr) {
        let mut state = self.state.lock();
        if let Some(host) = state.addresses.remove(&old) {
            state.addresses.insert(new, host);
        }
    }

    /// From now on the time runs to what the plan changes later.
    pub(super) fn begin(&self) {
        let mut state = self.state.lock();
        state.plan_began = Some(state.now());
    }

    pub(super) fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    /// Begins a capture, in place of one that was under way, and says when.
    pub(super) fn record(&self) -> Instant {
        let mut state = self.state.lock();
        let now = state.now();
        state.captures += 1;
        let capture = Capture { hosts: self.hosts.clone(), ..Capture::default() };
        state.capture = Some(Recorder { number: state.captures, began: now, capture });
        state.began + Duration::from_nanos(now)
    }

    /// Ends the capture, and gives what was seen.
    pub(super) fn recorded(&self) -> Capture {
        self.state.lock().capture.take().map(|recorder| recorder.capture).unwrap_or_default()
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        drop(self.stop.take());
        {
            let mut state = self.state.lock();
            state.stopping = true;
            state.arm(1);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        // The devices go with the last who has them.
        self.state.lock().devices.clear();
    }
}

/// A device inside a namespace, which is up.
fn device(runtime: &Runtime, namespace: &Namespace) -> Result<Result<Tun, tokio_tun::Error>, LabError> {
    let handle = runtime.handle();
    Ok(namespace.inside(|| {
        let _context = handle.enter();
        let made = Tun::builder().name(DEVICE).mtu(i32::from(MTU)).up().build()?;
        made.into_iter().next().ok_or_else(|| std::io::Error::from(std::io::ErrorKind::NotFound).into())
    })?)
}

/// Has this thread run as soon as it can. Where that is not to be had, packets are less punctual on a busy machine.
fn go_first() {
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    // The system call is not to be had without unsafe code; the program is on every system with ip(8).
    let given = Command::new("chrt")
        .args(["--fifo", "--pid", REAL_TIME_PRIORITY, &thread])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !given.is_ok_and(|status| status.success()) {
        let _ = rustix::process::setpriority_process(None, PRIORITY);
    }
}

/// Takes what all hosts send, until it is told to stop.
fn take_all(runtime: &Runtime, state: &Arc<Mutex<State>>, stopped: oneshot::Receiver<()>) {
    let devices = state.lock().devices.clone();
    runtime.block_on(async {
        for (from, device) in devices.into_iter().enumerate() {
            tokio::spawn(take(from, device, Arc::clone(state)));
        }
        let _ = stopped.await;
    });
}

/// Delivers when the timer says so.
fn deliver_all(the_state: &Arc<Mutex<State>>) {
    let (timer, began) = {
        let state = the_state.lock();
        (Arc::clone(&state.timer), state.began)
    };
    loop {
        let mut times = [0; 8];
        let rung = rustix::io::read(timer.as_ref(), &mut times);
        let mut state = the_state.lock();
        if state.stopping || rung.is_err_and(|error| error != rustix::io::Errno::INTR) {
            return;
        }
        state.armed = None;
        while let Some(due) = state.deliver() {
            drop(state);
            while began.elapsed() < Duration::from_nanos(due) {
                std::hint::spin_loop();
            }
            state = the_state.lock();
        }
    }
}

/// Takes what a host sends.
async fn take(from: usize, device: Arc<Tun>, state: Arc<Mutex<State>>) {
    // More than a packet has.
    let mut buffer = vec![0; 1 << 16];
    loop {
        let mut next = device.recv(&mut buffer).await;
        {
            let mut state = state.lock();
            for _ in 0..TURN {
                let Ok(packet) = next.as_ref().map(|length| buffer.get(..*length).unwrap_or_default()) else {
                    break;
                };
                state.take(from, packet);
                next = device.try_recv(&mut buffer);
            }
            if state.deliver().is_some() {
                // The thread that delivers waits for it.
                state.arm(0);
            }
        }
        match next {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            // The device is gone, and its namespace with it.
            Err(_) => return,
        }
        tokio::task::yield_now().await;
    }
}

impl State {
    /// Nanoseconds since it began.
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn change(&mut self, conditions: &[Conditions]) {
        for (line, conditions) in self.lines.iter_mut().zip(conditions) {
            line.change(*conditions);
        }
    }

    /// Changes what is due. It does not wait for a packet to be sent.
    fn keep_to_plan(&mut self, now: u64) {
        let Some(began) = self.plan_began else { return };
        let passed = Duration::from_nanos(now.saturating_sub(began));
        while self.changes.front().is_some_and(|(after, _)| *after <= passed) {
            if let Some((_, conditions)) = self.changes.pop_front() {
                self.change(&conditions);
            }
        }
    }

    /// A host has sent a packet.
    fn take(&mut self, from: usize, bytes: &[u8]) {
        let now = self.now();
        self.keep_to_plan(now);
        let packet = Packet::parse(bytes);
        if packet.is_some_and(|packet| packet.destination == IpAddr::V4(UNASSIGNED)) {
            self.probes.extend(self.probe.take().map(|sent| now.saturating_sub(sent)));
            return;
        }
        let Some((packet, to)) =
            packet.and_then(|packet| Some((packet, *self.addresses.get(&packet.destination)?)))
        else {
            self.counts.astray += 1;
            return;
        };
        let number = from * self.devices.len() + to;
        let Some(line) = self.lines.get_mut(number) else { return };
        let fate = line.admit(now.saturating_sub(self.taking), bytes.len());
        let lost = !matches!(fate, Fate::Arrives(_));
        let captured = self.capture.as_mut().and_then(|recorder| recorder.add((from, to), now, packet, lost));
        match fate {
            Fate::Arrives(at) => {
                self.order += 1;
                let order = self.order;
                self.queue.push(Reverse(UnderWay {
                    at,
                    order,
                    line: number,
                    to,
                    captured,
                    bytes: bytes.into(),
                }));
            }
            Fate::Lost => self.counts.lost += 1,
            Fate::Full => self.counts.full += 1,
        }
    }

    /// Delivers what is due, and sets the timer for what comes next; says when that is, if it is too soon for the timer.
    fn deliver(&mut self) -> Option<u64> {
        loop {
            let now = self.now();
            let due = self.queue.peek().is_some_and(|Reverse(first)| first.at <= now);
            let Some(Reverse(packet)) = due.then(|| self.queue.pop()).flatten() else { break };
            self.arrive(packet, now);
        }
        let next = self.queue.peek().map(|Reverse(first)| first.at)?;
        let left = next.saturating_sub(self.now());
        if left <= WAKING_NANOSECONDS {
            return Some(next);
        }
        if self.armed.is_none_or(|armed| armed > next) && self.arm(left - WAKING_NANOSECONDS) {
            self.armed = Some(next);
        }
        None
    }

    /// Sets the timer to go off in so many nanoseconds.
    fn arm(&self, left: u64) -> bool {
        // Zero would switch it off.
        let left = left.max(1);
        let at = Timespec {
            tv_sec: i64::try_from(left / 1_000_000_000).unwrap_or(i64::MAX),
            #[allow(clippy::cast_possible_wrap, reason = "less than a second")]
            tv_nsec: (left % 1_000_000_000) as i64,
        };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
        timerfd_settime(self.timer.as_ref(), TimerfdTimerFlags::empty(), &once).is_ok()
    }

    fn arrive(&mut self, packet: UnderWay, now: u64) {
        if let Some(line) = self.lines.get_mut(packet.line) {
            line.arrived(packet.bytes.len());
        }
        // Before it is written: what it causes is seen later.
        if let (Some(recorder), Some(captured)) = (&mut self.capture, packet.captured) {
            recorder.arrived(captured, now);
        }
        let written = self.devices.get(packet.to).map(|device| device.try_send(&packet.bytes));
        match written {
            Some(Ok(_)) => self.counts.arrived += 1,
            _ => self.counts.full += 1,
        }
    }
}

impl Recorder {
    fn add(
        &mut self,
        (from, to): (usize, usize),
        now: u64,
        packet: Packet,
        lost: bool,
    ) -> Option<(u64, usize)> {
        let index = self.capture.packets.len();
        if index >= PACKETS_MOST {
            self.capture.missed += 1;
            return None;
        }
        let sent = Duration::from_nanos(now.saturating_sub(self.began));
        self.capture.packets.push(CapturedPacket { from, to, sent, arrived: None, lost, packet });
        Some((self.number, index))
    }

    fn arrived(&mut self, (number, index): (u64, usize), now: u64) {
        // What was sent in an earlier capture is none of this one.
        let captured = (number == self.number).then(|| self.capture.packets.get_mut(index)).flatten();
        if let Some(captured) = captured {
            captured.arrived = Some(Duration::from_nanos(now.saturating_sub(self.began)));
        }
    }
}
