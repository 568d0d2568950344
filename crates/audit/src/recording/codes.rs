//! What a session wrote, taken apart into characters and the codes between them (ECMA-48, xterm's), so that who reads about a
//! session or plays it decides which of them act on a terminal.
//!
//! A session's output is the word of its user, and of its node: a terminal that is shown all of it writes to the
//! clipboard, reports a title of the session's choosing as if it had been typed, or tells every movement of the mouse.

/// Longest code that is kept whole, in bytes; terminals know none that are longer but strings, which are never kept.
const LONGEST_CODE_BYTES: usize = 64;
/// Largest number in a code: repeated so often a character fills a screen, and a larger one only keeps the terminal busy.
const LARGEST_NUMBER: u32 = 9999;

/// A piece of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// A character, which may be a control character that is no code's beginning.
    Char(char),
    /// A whole code, beginning with ESC: an escape or a control sequence. Strings (titles, clipboards, device control) are
    /// none.
    Code(&'a [u8]),
}

/// Takes output apart; it may come in any pieces.
#[derive(Debug, Default)]
pub(super) struct Codes {
    at: At,
    /// The code or the character so far.
    held: Vec<u8>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum At {
    #[default]
    Ground,
    /// Inside a character, of which so many bytes are to come.
    Char(u8),
    /// Behind ESC.
    Begun,
    /// Behind ESC and an intermediate byte, such as the choice of a character set.
    OneMore,
    /// Control sequence: until a byte from `@` to `~` (ECMA-48 §5.4).
    Sequence,
    /// Operating system command and the like: until BEL, ST, CAN or SUB.
    String,
    /// Behind the first byte of an ST there.
    Ending(u8),
}

impl Codes {
    /// Takes more output, and gives each piece as soon as it is whole.
    pub(super) fn take(&mut self, bytes: &[u8], mut each: impl FnMut(Piece<'_>)) {
        for &byte in bytes {
            self.byte(byte, &mut each);
        }
    }

    fn byte(&mut self, byte: u8, each: &mut impl FnMut(Piece<'_>)) {
        match (self.at, byte) {
            (At::Char(more), 0x80..=0xbf) => {
                self.held.push(byte);
                if more > 1 {
                    self.at = At::Char(more - 1);
                } else {
                    self.at = At::Ground;
                    self.character(each);
                }
            }
            (At::Char(_), _) => {
                self.at = At::Ground;
                each(Piece::Char(char::REPLACEMENT_CHARACTER));
                self.byte(byte, each);
            }
            (At::String, 0x1b | 0xc2) => self.at = At::Ending(byte),
            (At::String, 0x07 | 0x18 | 0x1a) | (At::Ending(0x1b), b'\\') | (At::Ending(0xc2), 0x9c) => {
                self.at = At::Ground;
            }
            (At::String, _) => {}
            (At::Ending(_), _) => {
                self.at = At::String;
                self.byte(byte, each);
            }
            (_, 0x1b) => self.begin(&[0x1b], At::Begun),
            (At::Begun | At::OneMore | At::Sequence, 0x18 | 0x1a) => self.at = At::Ground,
            (At::Begun, b'[') => self.begin(b"\x1b[", At::Sequence),
            (At::Begun, b']' | b'P' | b'^' | b'_' | b'X') => self.at = At::String,
            (At::Begun | At::OneMore, 0x20..=0x2f) => {
                self.hold(byte);
                self.at = At::OneMore;
            }
            (At::Sequence, 0x20..=0x3f) => self.hold(byte),
            (At::Begun | At::OneMore, 0x30..=0x7e) | (At::Sequence, 0x40..=0x7e) => {
                self.hold(byte);
                self.at = At::Ground;
                if self.held.len() <= LONGEST_CODE_BYTES {
                    each(Piece::Code(&self.held));
                }
            }
            // Terminals do these in the middle of a code; a code that has one is none of a program's that means well.
            (At::Begun | At::OneMore | At::Sequence, 0x00..=0x1f | 0x7f) => {}
            (At::Begun | At::OneMore | At::Sequence, _) => {
                self.at = At::Ground;
                self.byte(byte, each);
            }
            (At::Ground, 0x00..=0x7f) => each(Piece::Char(char::from(byte))),
            (At::Ground, 0xc2..=0xdf) => self.begin(&[byte], At::Char(1)),
            (At::Ground, 0xe0..=0xef) => self.begin(&[byte], At::Char(2)),
            (At::Ground, 0xf0..=0xf4) => self.begin(&[byte], At::Char(3)),
            (At::Ground, _) => each(Piece::Char(char::REPLACEMENT_CHARACTER)),
        }
    }

    /// A whole character: those of C1 (ECMA-48 §5.3) are codes in one.
    fn character(&mut self, each: &mut impl FnMut(Piece<'_>)) {
        let c = std::str::from_utf8(&self.held).ok().and_then(|text| text.chars().next());
        match c {
            Some('\u{9b}') => self.begin(b"\x1b[", At::Sequence),
            Some('\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}') => self.at = At::String,
            Some('\u{80}'..='\u{9f}') => {
                // In UTF-8 the second byte is the character's number.
                let number = self.held.last().copied().unwrap_or_default();
                each(Piece::Code(&[0x1b, number.wrapping_sub(0x40)]));
            }
            c => each(Piece::Char(c.unwrap_or(char::REPLACEMENT_CHARACTER))),
        }
    }

    fn begin(&mut self, bytes: &[u8], at: At) {
        self.held.clear();
        self.held.extend_from_slice(bytes);
        self.at = at;
    }

    /// One byte past the longest is kept, by which it is known to be too long.
    fn hold(&mut self, byte: u8) {
        if self.held.len() <= LONGEST_CODE_BYTES {
            self.held.push(byte);
        }
    }
}

/// Output for the terminal of a person who watches: what draws stays as it was, and whatever makes the terminal answer,
/// report, print, or change anything but its screen is left out.
#[derive(Debug, Default)]
pub struct Screen {
    codes: Codes,
}

impl Screen {
    /// For a recording, from its beginning.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The bytes to write for a piece of output.
    pub fn output(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        self.codes.take(bytes, |piece| match piece {
            Piece::Char(c) if draws(c) => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            Piece::Code(code) if is_drawing(code) => out.extend_from_slice(code),
            Piece::Char(_) | Piece::Code(_) => {}
        });
        out
    }
}

/// Bell, the movements of the cursor, the choice of a character set, and whatever is no control character. A terminal answers
/// ENQ.
fn draws(c: char) -> bool {
    matches!(c, '\u{7}'..='\u{f}') || !c.is_control()
}

fn is_drawing(code: &[u8]) -> bool {
    match code {
        [0x1b, b'[', rest @ .., last] => is_drawing_sequence(rest, *last),
        // Cursor saved and put back, index, next line, tab, reverse index, keypad modes, single shifts, reset.
        [0x1b, b'7' | b'8' | b'D' | b'E' | b'H' | b'M' | b'N' | b'O' | b'=' | b'>' | b'c'] => true,
        // Character sets, and the screen's alignment pattern.
        [0x1b, b'(' | b')' | b'*' | b'+' | b'#', _] => true,
        _ => false,
    }
}

fn is_drawing_sequence(inner: &[u8], last: u8) -> bool {
    let (private, inner) = match inner {
        [b'?', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let intermediate = inner.iter().position(|byte| (0x20..=0x2f).contains(byte)).unwrap_or(inner.len());
    let (numbers, intermediate) = inner.split_at(intermediate);
    let Some(numbers) = read_numbers(numbers) else { return false };
    match (private, intermediate, last) {
        // Modes of the screen: never of the mouse, the keyboard, or what is pasted.
        (true, b"", b'h' | b'l') => {
            numbers.iter().all(|mode| matches!(mode, 5 | 6 | 7 | 12 | 25 | 45 | 47 | 69 | 1047..=1049 | 2026))
        }
        (true, b"", b'J' | b'K') => true,
        (false, b"", b'h' | b'l') => numbers.iter().all(|mode| matches!(mode, 4 | 20)),
        (
            false,
            b"",
            b'@'
            | b'A'..=b'M'
            | b'P'
            | b'S'
            | b'T'
            | b'X'
            | b'Z'
            | b'`'
            | b'a'
            | b'b'
            | b'd'..=b'g'
            | b'm'
            | b'r'
            | b's'
            | b'u',
        ) => true,
        // The cursor's shape, and a soft reset.
        (false, b" ", b'q') | (false, b"!", b'p') => true,
        _ => false,
    }
}

/// The numbers of a control sequence; none where one is out of bounds, or something else is among them.
fn read_numbers(bytes: &[u8]) -> Option<Vec<u32>> {
    let text = std::str::from_utf8(bytes).ok()?;
    text.split([';', ':'])
        .map(|number| if number.is_empty() { Some(0) } else { number.parse().ok() })
        .map(|number| number.filter(|number| *number <= LARGEST_NUMBER))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pieces: &[&str]) -> String {
        let mut screen = Screen::new();
        pieces.iter().map(|piece| String::from_utf8(screen.output(piece.as_bytes())).unwrap()).collect()
    }

    #[test]
    fn what_draws_is_played_as_it_was() {
        for drawn in [
            "plain\r\n\ttext\u{8}\u{7}",
            "\x1b[1;38;5;196mred\x1b[0m \x1b[38:2::1:2:3mtrue\x1b[m",
            "\x1b[?1049h\x1b[H\x1b[2J\x1b[3;7r\x1b[?25l\x1b[10;20Hx\x1b[K\x1b[?1049l",
            "\x1b(0lqk\x1b(B\x1b7\x1b8\x1bM\x1b=\x1b>\x1b[!p\x1b[4 q\x1b[4h",
            "caf\u{e9} \u{1f600} \u{4e2d}",
        ] {
            assert_eq!(shown(&[drawn]), drawn, "{drawn:?}");
            // In pieces of a byte it is the same.
            let mut screen = Screen::new();
            let all: Vec<u8> = drawn.bytes().flat_map(|byte| screen.output(&[byte])).collect();
            assert_eq!(String::from_utf8(all).unwrap(), drawn);
        }
    }

    #[test]
    fn what_makes_a_terminal_answer_or_act_is_left_out() {
        for acting in [
            // Questions: status, attributes, modes, settings, sizes and titles, colours, the answerback.
            "\x1b[5n",
            "\x1b[6n",
            "\x1b[?6n",
            "\x1b[c",
            "\x1b[>c",
            "\x1b[=c",
            "\x1b[>0q",
            "\x1bZ",
            "\u{5}",
            "\x1b[x",
            "\x1b[?1$p",
            "\x1bP$qm\x1b\\",
            "\x1bP+q544e\x1b\\",
            "\x1b[14t",
            "\x1b[21t",
            "\x1b]10;?\x07",
            "\x1b]4;1;?\x1b\\",
            // The clipboard, titles, notifications, links, files.
            "\x1b]52;c;cm0gLXJmIH4=\x07",
            "\x1b]0;owned\x07",
            "\x1b]9;note\x07",
            "\x1b]8;;http://x\x1b\\\x1b]8;;\x1b\\",
            "\x1b]1337;File=name=eA==:eA==\x07",
            "\x1b_Gi=1;AAAA\x1b\\",
            "\x1b^private\x1b\\",
            "\x1bXtext\x1b\\",
            // The mouse, the keyboard, what is pasted, the printer, the window.
            "\x1b[?1000h",
            "\x1b[?1003;1006h",
            "\x1b[?2004h",
            "\x1b[?1004h",
            "\x1b[>4;2m",
            "\x1b[>1u",
            "\x1b[?25;1000h",
            "\x1b[5i",
            "\x1b[?5i",
            "\x1b[2t",
            "\x1b[8;1;1t",
            "\x1b[\"p",
            "\x1b[1;2'z",
            // The same by one character of C1, in UTF-8 and alone.
            "\u{9b}5n",
            "\u{9d}52;c;eA==\u{9c}",
            "\u{90}$qm\u{9c}",
            "\u{9a}",
            // Without end, and too much.
            "\x1b[99999999b",
            "\x1b[0000000000000000000000000000000000000000000000000000000000000000000000001A",
        ] {
            assert_eq!(shown(&["<", acting, ">"]), "<>", "{acting:?}");
            let (first, second) = acting.split_at(acting.char_indices().nth(1).map_or(0, |(index, _)| index));
            assert_eq!(shown(&["<", first, second, ">"]), "<>", "{acting:?} in two");
        }
        // A string that never ends takes what follows with it; one that is broken off does not.
        assert_eq!(shown(&["a\x1b]52;c;", "rest"]), "a");
        assert_eq!(shown(&["a\x1b]52;c;\x18rest"]), "arest");
        // One code inside another.
        assert_eq!(shown(&["\x1b[\x1b[5nx"]), "x");
        assert_eq!(shown(&["\x1b[5\u{7}nx"]), "x");
    }

    #[test]
    fn bytes_that_are_no_text_do_not_act() {
        let mut screen = Screen::new();
        let out = screen.output(b"\x9b5n \xc3( \xff \xe2\x80\x1b[5nx \xed\xa0\x80");
        let out = String::from_utf8(out).expect("it is text");
        assert!(!out.contains('\u{1b}') && !out.chars().any(|c| c.is_control()), "{out:?}");
    }

    proptest::proptest! {
        #[test]
        fn nothing_that_comes_out_acts(bytes in proptest::collection::vec(0_u8.., 0..400)) {
            let mut screen = Screen::new();
            let out = screen.output(&bytes);
            let mut codes = Codes::default();
            codes.take(&out, |piece| match piece {
                Piece::Char(c) => assert!(draws(c), "{c:?}"),
                Piece::Code(code) => assert!(is_drawing(code), "{code:?}"),
            });
            assert_eq!(codes.at, At::Ground);
        }
    }
}
