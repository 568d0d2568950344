//! Plays on a terminal: with the timing of the session, and keys to pause, seek and change the speed.

use std::io::{Read, Write};
use std::time::Duration;

use rustix::termios::{self, OptionalActions, Termios};
use sallyport_access::text::Foreign;
use sallyport_audit::recording::transcript::{Look, Transcript};
use sallyport_audit::recording::{Body, Frame, Screen};
use sallyport_wire::v1::cluster_client::ClusterClient;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::frames::Frames;
use crate::error::{CliResult, Context};
use crate::ui;
use sallyport_client::channel::Channel;

pub(super) struct Settings {
    pub(super) speed: f64,
    /// Longest silence; zero for all of them.
    pub(super) skip_idle: Duration,
    pub(super) from: Duration,
}

/// Largest size that a terminal is asked to have, each way.
const MOST_CELLS: u32 = 1000;
const SEEK: Duration = Duration::from_secs(10);
const SPEEDS: std::ops::RangeInclusive<f64> = 0.1..=100.0;
/// Everything off, cursor home, screen and colours as at the beginning.
const CLEAR: &[u8] = b"\x1b[0m\x1b[?1049l\x1b[H\x1b[2J";
const RESET: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l\x1b[?1000l\x1b[?2004l";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Pause,
    Back,
    Forward,
    Faster,
    Slower,
    Quit,
}

/// What comes after a stretch of playing.
enum Next {
    End,
    Quit,
    /// Play again from the beginning, without pauses until this moment.
    From(Duration),
}

pub(super) async fn play(
    client: &mut ClusterClient<Channel>,
    session: &str,
    settings: Settings,
) -> CliResult {
    let _raw = Raw::enter()?;
    let mut keys = read_keys();
    let mut player =
        Player { speed: settings.speed, skip_idle: settings.skip_idle, paused: false, at: Duration::ZERO };
    let mut from = settings.from;
    loop {
        let mut frames = Frames::open(client, session).await?;
        if !from.is_zero() {
            ui::raw(CLEAR)?;
        }
        match player.stretch(&mut frames, &mut keys, from).await? {
            Next::End | Next::Quit => break,
            Next::From(at) => from = at,
        }
    }
    ui::raw(RESET)?;
    ui::raw(b"\r\n")
}

struct Player {
    speed: f64,
    skip_idle: Duration,
    paused: bool,
    at: Duration,
}

impl Player {
    async fn stretch(
        &mut self,
        frames: &mut Frames,
        keys: &mut mpsc::Receiver<Key>,
        from: Duration,
    ) -> CliResult<Next> {
        let mut previous = from;
        let (mut transcript, mut screen) = (None, Screen::new());
        while let Some(frame) = frames.next().await? {
            if frame.at > from {
                let mut gap = frame.at.saturating_sub(previous);
                if !self.skip_idle.is_zero() {
                    gap = gap.min(self.skip_idle);
                }
                previous = frame.at;
                if let Some(next) = self.wait(gap, keys).await {
                    return Ok(next);
                }
            }
            self.at = frame.at;
            if Transcript::is_for(&frame) {
                transcript = Some(Transcript::new(Look::Terminal));
            }
            match transcript.as_mut() {
                Some(transcript) => ui::raw(&screen.output(transcript.frame(&frame).as_bytes()))?,
                None => show(&mut screen, &frame)?,
            }
        }
        let rest = transcript.map(|mut transcript| transcript.finish()).unwrap_or_default();
        ui::raw(&screen.output(rest.as_bytes()))?;
        Ok(Next::End)
    }

    /// Waits as long as the session was silent, unless a key says otherwise.
    async fn wait(&mut self, gap: Duration, keys: &mut mpsc::Receiver<Key>) -> Option<Next> {
        let mut left = gap;
        loop {
            let begin = Instant::now();
            let key = if self.paused {
                keys.recv().await
            } else {
                tokio::select! {
                    () = tokio::time::sleep(left.div_f64(self.speed)) => return None,
                    key = keys.recv() => key,
                }
            };
            if !self.paused {
                left = left.saturating_sub(begin.elapsed().mul_f64(self.speed));
            }
            match key {
                // Standard input has ended: play on.
                None if self.paused => return Some(Next::Quit),
                None => {
                    tokio::time::sleep(left.div_f64(self.speed)).await;
                    return None;
                }
                Some(Key::Pause) => self.paused = !self.paused,
                Some(Key::Faster) => self.speed = (self.speed * 1.5).min(*SPEEDS.end()),
                Some(Key::Slower) => self.speed = (self.speed / 1.5).max(*SPEEDS.start()),
                Some(Key::Back) => return Some(Next::From(self.at.saturating_sub(SEEK))),
                Some(Key::Forward) => return Some(Next::From(self.at.saturating_add(SEEK))),
                Some(Key::Quit) => return Some(Next::Quit),
            }
        }
    }
}

/// A recording is what a session and its node said, and either may be an attacker that the viewer looks for: of the output only
/// what draws reaches this terminal.
fn show(screen: &mut Screen, frame: &Frame) -> CliResult {
    match &frame.body {
        Body::Output(bytes) => ui::raw(&screen.output(bytes)),
        Body::Note { text } => ui::raw(format!("\r\n\x1b[7m {} \x1b[0m\r\n", Foreign::new(text)).as_bytes()),
        // xterm's request for a size; terminals that do not take it ignore it.
        Body::Resize { cols, rows } => {
            let (rows, cols) = ((*rows).min(MOST_CELLS), (*cols).min(MOST_CELLS));
            ui::raw(format!("\x1b[8;{rows};{cols}t").as_bytes())
        }
        Body::Start(_)
        | Body::Input(_)
        | Body::Exec { .. }
        | Body::Sftp { .. }
        | Body::PortForward { .. }
        | Body::Database(_)
        | Body::Exit(_) => Ok(()),
    }
}

/// Keys come from a thread of their own, since a terminal cannot be read without blocking.
fn read_keys() -> mpsc::Receiver<Key> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        let mut buffer = [0; 16];
        while let Ok(read) = input.read(&mut buffer) {
            if read == 0 {
                return;
            }
            let key = match buffer.get(..read).unwrap_or_default() {
                b" " | b"p" => Key::Pause,
                b"\x1b[D" | b"h" => Key::Back,
                b"\x1b[C" | b"l" => Key::Forward,
                b"\x1b[A" | b"+" | b"k" => Key::Faster,
                b"\x1b[B" | b"-" | b"j" => Key::Slower,
                b"q" | b"\x03" | b"\x04" => Key::Quit,
                _ => continue,
            };
            if sender.blocking_send(key).is_err() {
                return;
            }
        }
    });
    receiver
}

/// The terminal without echo and line editing, put back however playing ends.
struct Raw {
    before: Termios,
}

impl Raw {
    fn enter() -> CliResult<Self> {
        let stdin = std::io::stdin();
        let before = termios::tcgetattr(&stdin).doing("read the terminal's settings")?;
        let mut raw = before.clone();
        raw.make_raw();
        termios::tcsetattr(&stdin, OptionalActions::Now, &raw).doing("set up the terminal")?;
        Ok(Self { before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = termios::tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before);
        let _ = std::io::stdout().flush();
    }
}
