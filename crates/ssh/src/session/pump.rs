//! Moving a session's bytes until it ends.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::timeout;

use super::end::End;
use super::group::Group;
use super::process::Running;
use super::{
    Channel, Ends, Exit, FileOperation, Gone, HANDED_PIECES, Happening, Incoming, Input, Observer, Output,
    Stop, left,
};

/// How long the end of a process waits for its last output to be delivered before the client is told.
const LAST_OUTPUT: Duration = Duration::from_millis(250);
/// How long a terminal may go on after its shell has ended: others that held it have been hung up.
const TERMINAL_LINGER: Duration = Duration::from_secs(2);
/// How long processes have between the hang-up and the kill when a session was cut.
pub(crate) const CUT_GRACE: Duration = Duration::from_secs(3);
/// Longest line of a report of the file service: two paths of 4096 bytes, escaped, and the rest.
const MAX_REPORT_BYTES: usize = 64 * 1024;

/// Pieces of input that wait for a process.
pub(crate) const QUEUED_PIECES: usize = 2 * HANDED_PIECES;

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// How its process ended; none when it was still there when the client went or the session was cut.
    pub exit: Option<Exit>,
    /// Bytes of input that the process read.
    pub bytes_in: u64,
    /// Bytes of output that the client took.
    pub bytes_out: u64,
    /// Why the session was cut, when it was.
    pub cut: Option<String>,
}

/// Why a session's bytes stopped early.
pub(crate) enum Early {
    Gone,
    Cut(String),
}

impl From<Gone> for Early {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

impl From<Stop> for Early {
    fn from(stop: Stop) -> Self {
        Self::Cut(stop.to_string())
    }
}

#[derive(Default)]
struct Counts {
    input: AtomicU64,
    output: AtomicU64,
}

/// Runs a session to its end: until the process has ended and its output is delivered, the client goes, or the observer
/// stops it. Dropping the future hangs the session up. What is left to do when a session was cut is a task among `ends`.
pub async fn run<I: Input>(
    running: Running,
    input: I,
    output: Arc<dyn Output>,
    observer: Arc<dyn Observer>,
    ends: &Ends,
) -> Ended {
    let Running { mut child, mut group, stdin, stdout, stderr, reports, .. } = running;
    let counts = Counts::default();
    let terminal = stdout.terminal;
    let resizable = terminal.then(|| stdout.clone());

    let early = {
        let (queue, queued) = mpsc::channel(QUEUED_PIECES);
        let inbound = read_input(input, queue, resizable, &group, observer.as_ref());
        let feed = feed_process(stdin, queued, output.as_ref(), &counts);
        let text =
            pump_output(&stdout, Channel::Stdout, output.as_ref(), observer.as_ref(), &counts, reports);
        let errors = async {
            match &stderr {
                None => Ok(()),
                Some(end) if reports => pump_reports(end, observer.as_ref()).await,
                Some(end) => {
                    pump_output(end, Channel::Stderr, output.as_ref(), observer.as_ref(), &counts, false)
                        .await
                }
            }
        };
        let life = async {
            let drained = async { tokio::try_join!(text, errors).map(|_| ()) };
            tokio::pin!(drained);
            let mut empty = false;
            let status = tokio::select! {
                result = &mut drained => { result?; empty = true; child.wait().await }
                status = child.wait() => status,
            };
            group.reaped();
            let exit = exit_of(status);
            if !empty {
                // The common case: what it wrote last is on its way.
                if let Ok(result) = timeout(LAST_OUTPUT, &mut drained).await {
                    result?;
                    empty = true;
                }
            }
            observer.happened(Happening::Exit(exit.clone())).await?;
            output.exited(&exit).await?;
            if !empty && terminal {
                if let Ok(result) = timeout(TERMINAL_LINGER, &mut drained).await {
                    result?;
                }
            } else if !empty {
                // As sshd does: who still holds the pipes still has the client's attention.
                drained.await?;
            }
            output.finished().await?;
            Ok::<Exit, Early>(exit)
        };
        tokio::pin!(life, inbound, feed);
        let mut fed = false;
        loop {
            tokio::select! {
                biased;
                ended = &mut life => break ended,
                early = &mut inbound => break Err(early),
                () = &mut feed, if !fed => fed = true,
            }
        }
    };

    let mut ended = Ended {
        exit: None,
        bytes_in: counts.input.load(Ordering::Relaxed),
        bytes_out: counts.output.load(Ordering::Relaxed),
        cut: None,
    };
    match early {
        Ok(exit) => {
            ended.exit = Some(exit);
            group.forget();
        }
        Err(early) => {
            group.hang_up();
            // A program that writes on finds its output closed, while the node asks why the client has gone.
            drop((stdout, stderr));
            ended.cut = match early {
                Early::Cut(reason) => Some(reason),
                Early::Gone => output.cut_off().await,
            };
            // What ignores the hang-up may not outlive a cut, and what does all the same is told of.
            let sweeper = ends.sweeper.clone();
            ends.tasks.spawn(left::see_out(child, group, ended.cut.is_some(), CUT_GRACE, observer, sweeper));
        }
    }
    ended
}

fn exit_of(status: std::io::Result<ExitStatus>) -> Exit {
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Status(u32::try_from(code).unwrap_or(255)),
            (None, Some(signal)) => Exit::Signal { name: signal_name(signal), core: status.core_dumped() },
            (None, None) => Exit::Status(255),
        },
        Err(error) => {
            tracing::error!(%error, "cannot learn how a session process ended");
            Exit::Status(255)
        }
    }
}

/// RFC 4254 §6.10's name, or the system's.
fn signal_name(signal: i32) -> String {
    nix::sys::signal::Signal::try_from(signal).map_or_else(
        |_| format!("{signal}@sallyport"),
        |signal| signal.as_str().trim_start_matches("SIG").to_owned(),
    )
}

/// Takes what comes from the client as it comes; returns when the client has gone or the observer stops the session.
async fn read_input<I: Input>(
    mut input: I,
    queue: mpsc::Sender<Bytes>,
    terminal: Option<End>,
    group: &Group,
    observer: &dyn Observer,
) -> Early {
    let mut queue = Some(queue);
    loop {
        match input.next().await {
            None => return Early::Gone,
            Some(Incoming::Data(bytes)) => {
                if let Err(stop) = observer.happened(Happening::Input(bytes.clone())).await {
                    return stop.into();
                }
                if let Some(queue) = &queue
                    && let Err(early) = hand_on(queue, bytes)
                {
                    return early;
                }
            }
            Some(Incoming::Eof) => queue = None,
            Some(Incoming::Resize(size)) => {
                if let Some(terminal) = &terminal {
                    if let Err(error) = terminal.resize(size) {
                        tracing::debug!(%error, "cannot resize a terminal");
                    }
                    if let Err(stop) = observer.happened(Happening::Resize(size)).await {
                        return stop.into();
                    }
                }
            }
            Some(Incoming::Signal(signal)) => group.signal(signal),
            Some(Incoming::Cut(reason)) => return Early::Cut(reason),
        }
    }
}

/// Puts input into the queue of what takes it. It never waits, or what passes the input by would.
///
/// # Errors
/// [`Early::Cut`] when the queue is full, which is for the endpoint to see to ([`Input::next`]).
pub(crate) fn hand_on(queue: &mpsc::Sender<Bytes>, bytes: Bytes) -> Result<(), Early> {
    match queue.try_send(bytes) {
        // A process that has closed its input is no reason to end: its output still counts.
        Ok(()) | Err(TrySendError::Closed(_)) => Ok(()),
        Err(TrySendError::Full(_)) => {
            let reason = "more input was handed to the session than it has room for, a fault of this node; please report it";
            Err(Early::Cut(reason.to_owned()))
        }
    }
}

/// Feeds the process. A process that no longer reads gets no more, and what the client still sends is let go.
async fn feed_process(
    stdin: Option<End>,
    mut queued: mpsc::Receiver<Bytes>,
    output: &dyn Output,
    counts: &Counts,
) {
    let mut stdin = stdin;
    while let Some(mut bytes) = queued.recv().await {
        let length = bytes.len();
        while let (Some(end), true) = (&stdin, bytes.has_remaining()) {
            match end.write(&bytes).await {
                Ok(written) => {
                    bytes.advance(written);
                    counts.input.fetch_add(written as u64, Ordering::Relaxed);
                }
                Err(error) => {
                    tracing::debug!(%error, "a session process reads no more input");
                    stdin = None;
                }
            }
        }
        output.consumed(length);
    }
    // The queue has ended: no more input. A pipe says so by closing; a terminal has no such thing.
    drop(stdin);
}

async fn pump_output(
    end: &End,
    channel: Channel,
    output: &dyn Output,
    observer: &dyn Observer,
    counts: &Counts,
    private: bool,
) -> Result<(), Early> {
    loop {
        match end.read().await {
            Ok(Some(bytes)) => {
                let length = bytes.len() as u64;
                // The content of files is not part of a recording: the operations are.
                if !private {
                    observer.happened(Happening::Output(bytes.clone())).await?;
                }
                output.data(channel, bytes).await?;
                counts.output.fetch_add(length, Ordering::Relaxed);
            }
            Ok(None) => return Ok(()),
            Err(error) => {
                tracing::warn!(%error, "cannot read the output of a session process");
                return Ok(());
            }
        }
    }
}

/// The file service's reports: one JSON object a line. Anything else is its own trouble, for the log.
async fn pump_reports(end: &End, observer: &dyn Observer) -> Result<(), Early> {
    let mut pending: Vec<u8> = Vec::new();
    while let Ok(Some(bytes)) = end.read().await {
        pending.extend_from_slice(&bytes);
        while let Some(at) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=at).collect();
            match serde_json::from_slice::<FileOperation>(&line) {
                Ok(operation) => observer.happened(Happening::File(operation)).await?,
                Err(_) => {
                    tracing::warn!(line = %String::from_utf8_lossy(&line).trim_end(), "the file service says");
                }
            }
        }
        if pending.len() > MAX_REPORT_BYTES {
            return Err(Early::Cut("the file service's report is too long".to_owned()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_ends_the_session_and_a_closed_one_does_not() {
        let (queue, mut queued) = mpsc::channel(QUEUED_PIECES);
        for _ in 0..QUEUED_PIECES {
            assert!(hand_on(&queue, Bytes::from_static(b"x")).is_ok());
        }
        let Err(Early::Cut(reason)) = hand_on(&queue, Bytes::from_static(b"x")) else { unreachable!() };
        assert!(reason.contains("a fault of this node"), "{reason}");
        queued.close();
        assert!(hand_on(&queue, Bytes::from_static(b"x")).is_ok());
    }
}
