//! A running session and the terminal or the pipes it is connected to.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sallyport_ssh::client::{Exit as Ended, Output, Session, SessionInput, SessionOutput};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use super::escape::{Command, Escapes, Piece};
use super::link::Link;
use super::options::Options;
use super::terminal::{self, Raw};
use crate::error::{CliError, CliResult, Context};
use crate::ui;

/// Bytes read from standard input at once.
const CHUNK_BYTES: usize = 32 * 1024;

/// As ssh: what kept the command from running or from telling how it ended.
const FAILED: u8 = 255;

/// How long a node that takes nothing may keep the session from being closed.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

const HELP: &str = "Supported escape sequences:\r\n \
     ~.   - end the connection\r\n \
     ~^Z  - suspend\r\n \
     ~?   - this message\r\n \
     ~~   - send the escape character by typing it twice\r\n\
    (Escapes are only recognised immediately after newline.)\r\n";

/// What the local end asks for, in the order it was typed.
enum Typed {
    Data(Bytes),
    Eof,
    Command(Command),
}

/// Signals that end the program, caught so that the terminal can be put right first.
struct Deaths {
    term: Signal,
    hup: Signal,
    int: Signal,
    quit: Signal,
}

impl Deaths {
    fn watch() -> CliResult<Self> {
        let watch = |kind| signal(kind).doing("watch for signals");
        Ok(Self {
            term: watch(SignalKind::terminate())?,
            hup: watch(SignalKind::hangup())?,
            int: watch(SignalKind::interrupt())?,
            quit: watch(SignalKind::quit())?,
        })
    }

    /// The number of the next one.
    async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.term.recv() => SignalKind::terminate().as_raw_value(),
            _ = self.hup.recv() => SignalKind::hangup().as_raw_value(),
            _ = self.int.recv() => SignalKind::interrupt().as_raw_value(),
            _ = self.quit.recv() => SignalKind::quit().as_raw_value(),
        }
    }
}

/// Runs a session to its end, connected to standard input, output and error.
pub(super) async fn run(
    link: &Link,
    session: Session,
    with_terminal: bool,
    options: &Options,
) -> CliResult<ExitCode> {
    let raw = if with_terminal && terminal::is_terminal() { Some(Raw::enter()?) } else { None };
    let (input, mut output) = session.split();
    let escapes = Escapes::new(if raw.is_some() { options.escape.unwrap_or(Some(b'~')) } else { None });
    let (typed_in, typed) = mpsc::channel(4);
    if options.no_input {
        let _ = typed_in.try_send(Typed::Eof);
    } else {
        tokio::spawn(read_input(escapes, typed_in));
    }
    let (commands_in, mut commands) = mpsc::channel(4);
    let mut sending = tokio::spawn(send_input(input.clone(), typed, commands_in));
    let mut resized = signal(SignalKind::window_change()).doing("watch the window's size")?;
    let mut deaths = Deaths::watch()?;
    let (sized, changed) = (Arc::new(Notify::new()), input.clone());
    let sizing = tokio::spawn(send_sizes(changed, sized.clone()));
    let mut stderr = tokio::io::stderr();
    let mut delivered = Box::pin(deliver(&input, &mut output, &raw));

    // The program that reads the output may stop: the person's keys and the system's signals are heard all the same.
    let ended = loop {
        tokio::select! {
            ended = &mut delivered => break ended,
            _ = resized.recv(), if with_terminal => sized.notify_one(),
            Some(command) = commands.recv() => match command {
                Command::Disconnect => {
                    terminal::restore();
                    ui::say(format!("\nConnection to {} closed.", link.node));
                    return Ok(ExitCode::from(FAILED));
                }
                Command::Help => {
                    let _ = stderr.write_all(b"~?\r\n").await;
                    let _ = stderr.write_all(HELP.as_bytes()).await;
                    let _ = stderr.flush().await;
                }
                Command::Suspend => if let Some(raw) = &raw {
                    raw.suspend()?;
                    sized.notify_one();
                }
            },
            number = deaths.next() => {
                terminal::restore();
                ui::say(format!("Killed by signal {number}."));
                return Ok(ExitCode::from(FAILED));
            }
        }
    };
    drop(delivered);
    sizing.abort();
    let _ = sizing.await;
    sending.abort();
    let _ = (&mut sending).await;
    let was_raw = raw.is_some();
    drop(raw);
    conclude(link, ended, was_raw && !options.quiet, options.quiet)
}

/// Writes what the session says, and gives how it ended.
async fn deliver(input: &SessionInput, output: &mut SessionOutput, raw: &Option<Raw>) -> Ended {
    let (mut stdout, mut stderr) = (tokio::io::stdout(), tokio::io::stderr());
    while let Some(out) = output.next().await {
        match out {
            Output::Stdout(data) => {
                if stdout.write_all(&data).await.is_err() || stdout.flush().await.is_err() {
                    // The reader has gone away, as in `… | head`: so does the session.
                    let _ = timeout(CLOSE_WAIT, input.close()).await;
                    break;
                }
            }
            Output::Stderr(data) => {
                let _ = stderr.write_all(&data).await;
                let _ = stderr.flush().await;
            }
            Output::Started => {}
            Output::TerminalRefused => say_raw(raw, "the node gives no terminal"),
            Output::AgentRefused => {
                say_raw(raw, "the node takes no forwarded agent: your role does not allow it");
            }
            Output::DisplayRefused => {
                say_raw(
                    raw,
                    "the node takes no display: your role does not allow it (permit_x11_forwarding)",
                );
            }
            Output::Exit(ended) => return ended,
        }
    }
    Ended::Unknown
}

/// Tells the node the terminal's size each time it has changed: the latest, where the node takes nothing for a while.
async fn send_sizes(input: SessionInput, changed: Arc<Notify>) {
    loop {
        changed.notified().await;
        // A lost connection is told by the output.
        let _ = input.resize(terminal::window_size()).await;
    }
}

/// A line on stderr while the terminal may be raw.
fn say_raw(raw: &Option<Raw>, text: &str) {
    ui::say(if raw.is_some() { format!("{text}\r") } else { text.to_owned() });
}

/// Reads standard input and finds the escapes in it.
async fn read_input(mut escapes: Escapes, typed: mpsc::Sender<Typed>) {
    let mut stdin = tokio::io::stdin();
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let read = stdin.read(&mut buffer).await.unwrap_or(0);
        if read == 0 {
            let _ = typed.send(Typed::Eof).await;
            return;
        }
        for piece in escapes.feed(buffer.get(..read).unwrap_or_default()) {
            let next = match piece {
                Piece::Data(data) => Typed::Data(data.into()),
                Piece::Command(command) => Typed::Command(command),
            };
            if typed.send(next).await.is_err() {
                return;
            }
        }
    }
}

/// Sends input at the pace the node takes it. Escapes overtake it: `~.` must work when the node takes nothing.
async fn send_input(input: SessionInput, mut typed: mpsc::Receiver<Typed>, commands: mpsc::Sender<Command>) {
    let (data_in, mut data) = mpsc::channel::<Option<Bytes>>(4);
    let forward = async {
        while let Some(next) = typed.recv().await {
            let sent = match next {
                Typed::Command(command) => commands.send(command).await.is_ok(),
                Typed::Data(bytes) => data_in.send(Some(bytes)).await.is_ok(),
                Typed::Eof => data_in.send(None).await.is_ok(),
            };
            if !sent {
                return;
            }
        }
        drop(data_in);
    };
    let send = async {
        while let Some(next) = data.recv().await {
            let sent = match next {
                Some(bytes) => input.data(bytes).await,
                None => input.eof().await,
            };
            // A lost connection is told by the output.
            if sent.is_err() {
                return;
            }
        }
    };
    tokio::join!(forward, send);
}

/// What the end of a session means for the exit code, and for the person.
fn conclude(link: &Link, ended: Ended, farewell: bool, quiet: bool) -> CliResult<ExitCode> {
    let code = match ended {
        Ended::Status(status) => u8::try_from(status & 0xff).unwrap_or(FAILED),
        Ended::Signal { name, core_dumped, .. } => {
            if !quiet {
                let core = if core_dumped { " (core dumped)" } else { "" };
                ui::say(format!("killed by signal {name}{core}"));
            }
            FAILED
        }
        Ended::Refused { explained } => return Err(refused(&link.node, explained)),
        Ended::Unknown => FAILED,
        Ended::Lost { reason } => {
            let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
            return Err(link.said().unwrap_or_else(|| lost(&link.node, &reason)));
        }
    };
    if farewell {
        ui::say(format!("Connection to {} closed.", link.node));
    }
    Ok(ExitCode::from(code))
}

/// Of a node that starts no session. Where it has given a reason, that is on stderr already.
fn refused(node: &str, explained: bool) -> CliError {
    let refused = format!("{node} refused to start the session");
    if explained {
        return CliError::new(refused).hint("read its reason above");
    }
    CliError::new(format!("{refused} and gave no reason"))
        .hint("an administrator finds it with: sallyport admin audit ls")
}

/// Returns when the connection has ended, or a signal asks for it.
pub(super) async fn wait(link: &Link) {
    while !link.connection.is_closed() {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Connects standard input and output to an address that the node sees.
pub(super) async fn stdio(link: &Link, host: &str, port: u16) -> CliResult<ExitCode> {
    let origin = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let stream =
        link.connection.open_direct(host, port, origin).await.map_err(|error| link.explain(&error))?;
    let (mut reader, mut writer) = tokio::io::split(stream);
    let upstream = async {
        let _ = tokio::io::copy(&mut tokio::io::stdin(), &mut writer).await;
        let _ = writer.shutdown().await;
        std::future::pending::<()>().await;
    };
    let downstream = async {
        let mut stdout = tokio::io::stdout();
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let read = reader.read(&mut buffer).await.unwrap_or(0);
            if read == 0 {
                return;
            }
            let Some(data) = buffer.get(..read) else { return };
            if stdout.write_all(data).await.is_err() || stdout.flush().await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = upstream => {}
        () = downstream => {}
    }
    match link.said() {
        Some(error) => Err(error),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Runs a session without input, and puts a prefix before every line of its output. Gives the exit code.
pub(super) async fn collect(link: &Link, session: Session, prefix: &str) -> CliResult<u8> {
    let (input, mut output) = session.split();
    input.eof().await.map_err(|error| link.explain(&error))?;
    let (mut out, mut err) = (Lines::new(prefix), Lines::new(prefix));
    let ended = loop {
        match output.next().await {
            Some(Output::Stdout(data)) => ui::raw(&out.feed(&data))?,
            Some(Output::Stderr(data)) => err.say(&data),
            Some(Output::Exit(ended)) => break ended,
            Some(_) => {}
            None => break Ended::Unknown,
        }
    };
    ui::raw(&out.rest())?;
    let rest = err.rest();
    err.write(&rest);
    match ended {
        Ended::Status(status) => {
            let code = u8::try_from(status & 0xff).unwrap_or(FAILED);
            if code != 0 {
                ui::say(format!("{prefix}exit code {code}"));
            }
            Ok(code)
        }
        Ended::Signal { name, .. } => {
            ui::say(format!("{prefix}killed by signal {name}"));
            Ok(FAILED)
        }
        _ => Err(link.said().unwrap_or_else(|| {
            CliError::new(format!("the session on {} ended without an exit code", link.node))
                .hint("see on the node whether the command has run before you run it again")
        })),
    }
}

/// Of a connection that ended by itself; `reason` is empty, or begins with a colon.
pub(super) fn lost(node: &str, reason: &str) -> CliError {
    CliError::new(format!("the connection to {node} was lost{reason}")).hint("sallyport ls  (is it online?)")
}

/// Longest piece of a line that waits for its end, in bytes.
const LINE_BYTES: usize = 64 * 1024;

/// Whole lines with a prefix.
struct Lines<'a> {
    prefix: &'a str,
    partial: Vec<u8>,
}

impl<'a> Lines<'a> {
    fn new(prefix: &'a str) -> Self {
        Self { prefix, partial: Vec::new() }
    }

    /// The lines that are complete now.
    fn feed(&mut self, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            self.partial.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.partial.len() >= LINE_BYTES {
                out.extend(self.rest());
            }
        }
        out
    }

    /// What there is, as a line.
    fn rest(&mut self) -> Vec<u8> {
        if self.partial.is_empty() {
            return Vec::new();
        }
        let mut line = self.prefix.as_bytes().to_vec();
        line.append(&mut self.partial);
        if !line.ends_with(b"\n") {
            line.push(b'\n');
        }
        line
    }

    fn say(&mut self, data: &[u8]) {
        let lines = self.feed(data);
        self.write(&lines);
    }

    fn write(&self, lines: &[u8]) {
        use std::io::Write;
        let _ = std::io::stderr().lock().write_all(lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_points_at_its_reason_only_where_there_is_one() {
        let hint = |explained| refused("web-1", explained).to_string();
        assert!(hint(true).contains("above") && !hint(true).contains("audit"), "{}", hint(true));
        assert!(hint(false).contains("sallyport admin audit ls") && !hint(false).contains("above"));
    }

    #[test]
    fn lines_get_a_prefix_however_they_arrive() {
        let mut lines = Lines::new("web | ");
        assert_eq!(lines.feed(b"a\nb"), b"web | a\n");
        assert_eq!(lines.feed(b"c\n\nd"), b"web | bc\nweb | \n");
        assert_eq!(lines.rest(), b"web | d\n");
        assert_eq!(lines.rest(), b"");
        let long = vec![b'x'; LINE_BYTES + 1];
        assert_eq!(lines.feed(&long).len(), "web | ".len() + LINE_BYTES + 2);
    }
}
