//! Running a command in a WAN.

use std::ffi::OsString;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sallyport_bench::Talk;
use sallyport_bench::report::Row;
use sallyport_testing::missing;

use super::{Capture, Flow, Host, Wan};
use crate::LabError;

/// How often to look whether a command has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a command has to end by itself: Ctrl-C at a terminal reaches it without us; other signals do not.
const GRACE: Duration = Duration::from_secs(1);
/// How long it has when it is told to.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a command ended, and what was seen of it.
#[derive(Debug)]
pub struct Ended {
    /// Its status.
    pub status: ExitStatus,
    /// From its start to its end.
    pub took: Duration,
    /// Its packets, and those of all other programs in that time.
    pub capture: Capture,
}

/// Runs a command on a host until it ends, or `talk` is told to stop. It has our terminal. In its arguments `{NAME}` stands
/// for the address of the host of that name.
///
/// # Errors
/// When it cannot be started.
pub fn run(wan: &Wan, host: &Host, command: &[OsString], talk: &Talk) -> Result<Ended, LabError> {
    let [program, arguments @ ..] = command else {
        return Err(LabError::Input("no command to run".to_owned()));
    };
    let mut command = host.namespace.command(with_addresses(wan, program));
    command.args(arguments.iter().map(|argument| with_addresses(wan, argument)));
    let began = wan.record();
    let mut child = command.spawn().map_err(|source| missing(&command, source))?;
    let status = wait(&mut child, talk);
    let (took, capture) = (began.elapsed(), wan.recorded());
    let status = status.map_err(|error| LabError::Failed {
        what: "waiting for the command".to_owned(),
        said: error.to_string(),
    })?;
    Ok(Ended { status, took, capture })
}

/// Puts addresses in place of `{NAME}`.
fn with_addresses(wan: &Wan, text: &OsString) -> OsString {
    let Some(text) = text.to_str() else { return text.clone() };
    let filled = wan.hosts().iter().fold(text.to_owned(), |text, host| {
        text.replace(&format!("{{{}}}", host.name), &host.v4.to_string())
    });
    filled.into()
}

fn wait(child: &mut Child, talk: &Talk) -> std::io::Result<ExitStatus> {
    let (mut heard, mut told): (Option<Instant>, bool) = (None, false);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if talk.stopping() {
            let waited = heard.get_or_insert_with(Instant::now).elapsed();
            if waited > GRACE && !told {
                told = true;
                if let Ok(number) = i32::try_from(child.id()) {
                    let _ = kill(Pid::from_raw(number), Signal::SIGTERM);
                }
            }
            if waited > GRACE + PATIENCE {
                child.kill()?;
                return child.wait();
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Every connection of a capture as a row: what went each way, how often one side waited, and how long it took.
#[must_use]
pub fn flows(wan: &Wan, capture: &Capture) -> Vec<Row> {
    capture.flows().iter().map(|flow| row(wan, capture, flow)).collect()
}

#[allow(clippy::cast_precision_loss, reason = "numbers of packets and bytes")]
fn row(wan: &Wan, capture: &Capture, flow: &Flow) -> Row {
    let name = |host: usize| capture.hosts.get(host).map_or("?", String::as_str);
    let (one, other) = flow.hosts;
    let round_trip = wan.between(one, other).round_trip.as_secs_f64();
    let took = flow.took.as_secs_f64();
    let stalls = flow.journey.as_ref().map_or(0, super::Journey::stalls);
    Row::new(format!("{} {} -> {}:{}", flow.protocol, name(one), name(other), flow.server.port()))
        .with("packets up", 0, flow.up.packets as f64)
        .with("with data", 0, flow.up.with_data as f64)
        .with("bytes up", 0, flow.up.bytes as f64)
        .with("packets down", 0, flow.down.packets as f64)
        .with("with data down", 0, flow.down.with_data as f64)
        .with("bytes down", 0, flow.down.bytes as f64)
        .with("lost", 0, (flow.up.lost + flow.down.lost) as f64)
        .with("round trips", 0, flow.round_trips() as f64)
        .with("of them stalls", 0, stalls as f64)
        .with("ms", 1, took * 1e3)
        .with("ms / RTT", 2, (round_trip > 0.0).then(|| took / round_trip))
}
