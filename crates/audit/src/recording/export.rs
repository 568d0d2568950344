//! Recordings for other tools and for people.

use sallyport_access::text;
use serde_json::json;

use super::codes::{Codes, Piece, Screen};
use super::frame::{Body, Direction, Exit, ForwardEnd, Frame};

/// Largest size of a terminal, each way, that a player is asked for.
const MOST_CELLS: u32 = 1000;

/// asciicast version 2: one JSON line for the head, one for each event. Of the output it has what draws, as on the terminal of a
/// person who plays it with us: players write it to theirs as it is.
#[derive(Debug, Default)]
pub struct Asciicast {
    screen: Screen,
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
        let cells = |count: u32| count.min(MOST_CELLS);
        match &frame.body {
            Body::Start(metadata) => {
                let (width, height) = metadata.size.unwrap_or((80, 24));
                let title = format!("{} as {} on {}", metadata.user, metadata.login, metadata.node);
                let term = metadata.term.as_deref().unwrap_or("xterm");
                let mut head = json!({
                    "version": 2, "width": cells(width), "height": cells(height),
                    "timestamp": metadata.started.unix_timestamp(), "title": printable(&title),
                    "env": { "TERM": printable(term) },
                });
                if let (Some(command), Some(head)) = (&metadata.command, head.as_object_mut()) {
                    head.insert("command".to_owned(), json!(printable(command)));
                }
                Some(head.to_string())
            }
            Body::Output(bytes) => {
                let drawn = self.screen.output(bytes);
                let text = String::from_utf8_lossy(&drawn);
                if text.is_empty() { None } else { line("o", &text) }
            }
            // Players do not show it; it is the person's text, and no less strange than output.
            Body::Input(bytes) => line("i", &printable(&String::from_utf8_lossy(bytes))),
            Body::Resize { cols, rows } => line("r", &format!("{}x{}", cells(*cols), cells(*rows))),
            Body::Note { text } => line("m", &printable(text)),
            Body::Exec { .. }
            | Body::Sftp { .. }
            | Body::PortForward { .. }
            | Body::Database(_)
            | Body::Exit(_) => None,
        }
    }
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
                note(format!("sftp {} {}{detail}{outcome}", printable(operation), printable(path)))
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
    fn an_asciicast_has_what_draws_and_nothing_that_acts() {
        let mut cast = Asciicast::new();
        let mut all = String::new();
        for piece in [
            &b"\x1b[31mred\x1b[0m\x1b]52;c;cm0g"[..],
            b"LXJmIH4=\x07\x1b]0;title\x07\x1bP$qm\x1b\\\x1b[6n",
            b"\x1b[?1000h\xc2\x9d52;c;eA==\x07end",
        ] {
            all.extend(cast.frame(&output(piece)));
        }
        assert_eq!(all, r#"[1.5,"o","\u001b[31mred\u001b[0m"][1.5,"o","end"]"#);
        let at = Duration::ZERO;
        let resize = cast.frame(&Frame { at, body: Body::Resize { cols: u32::MAX, rows: 2 } });
        assert_eq!(resize.unwrap(), r#"[0.0,"r","1000x2"]"#);
        let note = cast.frame(&Frame { at, body: Body::Note { text: "a\u{202e}b\u{1b}".to_owned() } });
        assert_eq!(note.unwrap(), "[0.0,\"m\",\"a\u{fffd}b\u{fffd}\"]");
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
