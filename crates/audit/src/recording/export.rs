//! Recordings for other tools and for people.

use sallyport_access::text;
use serde_json::json;

use super::codes::{Codes, Piece};
use super::frame::{Body, Direction, Exit, ForwardEnd, Frame};

/// asciicast version 2: one JSON line for the head, one for each event.
#[derive(Debug, Default)]
pub struct Asciicast {
    /// The end of the output so far when it is in the middle of a character.
    tail: Vec<u8>,
}

impl Asciicast {
    /// A fresh export.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The lines for one frame; none for frames that the format has no word for.
    pub fn frame(&mut self, frame: &Frame) -> Option<String> {
        let at = frame.at.as_secs_f64();
        let line = |code: &str, text: &str| Some(json!([round(at), code, text]).to_string());
        match &frame.body {
            Body::Start(metadata) => {
                let (width, height) = metadata.size.unwrap_or((80, 24));
                let title = format!("{} as {} on {}", metadata.user, metadata.login, metadata.node);
                let mut head = json!({
                    "version": 2, "width": width, "height": height,
                    "timestamp": metadata.started.unix_timestamp(), "title": title,
                    "env": { "TERM": metadata.term.as_deref().unwrap_or("xterm") },
                });
                if let (Some(command), Some(head)) = (&metadata.command, head.as_object_mut()) {
                    head.insert("command".to_owned(), json!(command));
                }
                Some(head.to_string())
            }
            Body::Output(bytes) => {
                let text = self.text(bytes);
                if text.is_empty() { None } else { line("o", &text) }
            }
            Body::Input(bytes) => line("i", &String::from_utf8_lossy(bytes)),
            Body::Resize { cols, rows } => line("r", &format!("{cols}x{rows}")),
            Body::Note { text } => line("m", text),
            Body::Exec { .. }
            | Body::Sftp { .. }
            | Body::PortForward { .. }
            | Body::Database(_)
            | Body::Exit(_) => None,
        }
    }

    /// Output as text, a character that is split between frames given whole with the later one.
    fn text(&mut self, bytes: &[u8]) -> String {
        self.tail.extend_from_slice(bytes);
        let keep = incomplete_tail(&self.tail);
        let tail = self.tail.split_off(self.tail.len() - keep);
        let text = String::from_utf8_lossy(&self.tail).into_owned();
        self.tail = tail;
        text
    }
}

/// How many bytes at the end begin a character without ending it.
fn incomplete_tail(bytes: &[u8]) -> usize {
    let last: Vec<u8> = bytes.iter().rev().take(3).copied().collect();
    for (index, byte) in last.iter().enumerate() {
        let needs = match byte {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            0x80..=0xbf => continue,
            _ => return 0,
        };
        return if index + 1 < needs { index + 1 } else { 0 };
    }
    0
}

fn round(at: f64) -> f64 {
    (at * 1e6).round() / 1e6
}

/// Plain text: what was written, without the codes that move cursors and choose colours, and a line for what else
/// happened.
#[derive(Debug, Default)]
pub struct Text {
    codes: Codes,
}

impl Text {
    /// A fresh export.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The bytes to print for one frame.
    pub fn frame(&mut self, frame: &Frame) -> Vec<u8> {
        let note = |text: String| format!("[{text}]\n").into_bytes();
        match &frame.body {
            Body::Output(bytes) => {
                let mut out = String::with_capacity(bytes.len());
                self.codes.take(bytes, |piece| match piece {
                    Piece::Char(c @ ('\n' | '\t')) => out.push(c),
                    Piece::Char(c) if c.is_control() => {}
                    Piece::Char(c) if text::steers(c) => out.push(char::REPLACEMENT_CHARACTER),
                    Piece::Char(c) => out.push(c),
                    Piece::Code(_) => {}
                });
                out.into_bytes()
            }
            Body::Exec { command } => note(format!("command: {}", printable(command))),
            Body::Sftp { operation, path, detail, success } => {
                let detail =
                    detail.as_deref().map(|detail| format!(" {}", printable(detail))).unwrap_or_default();
                let outcome = if *success { "" } else { " (failed)" };
                note(format!("sftp {operation} {}{detail}{outcome}", printable(path)))
            }
            Body::PortForward { target, direction, end } => note(forward(target, *direction, end.as_ref())),
            Body::Note { text } => note(printable(text)),
            Body::Exit(Exit::Signal(signal)) => note(format!("ended by signal {}", printable(signal))),
            Body::Exit(Exit::Cut(why)) => note(format!("cut off: {}", printable(why))),
            Body::Start(_)
            | Body::Input(_)
            | Body::Resize { .. }
            | Body::Database(_)
            | Body::Exit(Exit::Status(_)) => Vec::new(),
        }
    }
}

/// What comes from a session does not act on the terminal of a person who reads about it.
fn printable(said: &str) -> String {
    said.chars().map(|c| if text::steers(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// One line of JSON for each frame.
#[must_use]
pub fn json(frame: &Frame) -> String {
    serde_json::to_string(frame).unwrap_or_default()
}

fn forward(target: &str, direction: Direction, end: Option<&ForwardEnd>) -> String {
    let target = printable(target);
    let what = match direction {
        Direction::Local => format!("connection forwarded to {target}"),
        Direction::Remote => format!("connection forwarded from {target} to the client"),
        Direction::X11 => format!("X11 connection forwarded from {target} to the client"),
    };
    match end {
        None => what,
        Some(ForwardEnd { bytes_in, bytes_out }) => {
            format!("{what} ended: {bytes_in} bytes from the client, {bytes_out} to it")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;

    fn output(bytes: &'static [u8]) -> Frame {
        Frame { at: Duration::from_millis(1500), body: Body::Output(Bytes::from_static(bytes)) }
    }

    #[test]
    fn characters_split_between_frames_come_out_whole() {
        let mut cast = Asciicast::new();
        assert_eq!(cast.frame(&output(b"caf\xc3")).unwrap(), r#"[1.5,"o","caf"]"#);
        assert_eq!(cast.frame(&output(b"\xa9!")).unwrap(), r#"[1.5,"o","é!"]"#);
        assert_eq!(cast.frame(&output(b"\xf0\x9f")), None);
        assert_eq!(cast.frame(&output(b"\x98\x80")).unwrap(), "[1.5,\"o\",\"😀\"]");
        assert_eq!(cast.frame(&output(b"\xff")).unwrap(), "[1.5,\"o\",\"\u{fffd}\"]");
    }

    #[test]
    fn text_has_no_codes_even_across_frames() {
        let mut text = Text::new();
        let mut all = Vec::new();
        for piece in
            [&b"\x1b[1;3"[..], b"1mred\x1b[0m\r\n\x1b]0;title", b"\x07ok \x1b(Bx\x1b]8;;u\x1b\\y\x07\n"]
        {
            all.extend(text.frame(&output(piece)));
        }
        assert_eq!(String::from_utf8(all).unwrap(), "red\nok xy\n");
        let frame = Frame { at: Duration::ZERO, body: Body::Exec { command: "ls\x1b[2J".to_owned() } };
        assert_eq!(String::from_utf8(text.frame(&frame)).unwrap(), "[command: ls\u{fffd}[2J]\n");
    }
}
