//! `~.` and its kind: what a person types to talk to the client instead of the node.

/// What the client is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    /// `~.`: end the connection.
    Disconnect,
    /// `~?`: say which there are.
    Help,
    /// `~^Z`: back to the local shell, with the session waiting.
    Suspend,
}

/// A piece of input, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// For the node.
    Data(Vec<u8>),
    /// For the client.
    Command(Command),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    LineStart,
    Escaped,
    InLine,
}

/// Finds escapes in typed input. They count only at the start of a line.
#[derive(Debug)]
pub(super) struct Escapes {
    character: Option<u8>,
    state: State,
}

const CONTROL_Z: u8 = 0x1a;

impl Escapes {
    /// With an escape character, or with none.
    pub(super) fn new(character: Option<u8>) -> Self {
        Self { character, state: State::LineStart }
    }

    /// Splits what was typed.
    pub(super) fn feed(&mut self, typed: &[u8]) -> Vec<Piece> {
        let Some(escape) = self.character else { return vec![Piece::Data(typed.to_vec())] };
        let mut pieces = Vec::new();
        let mut data = Vec::with_capacity(typed.len() + 1);
        for &byte in typed {
            match self.state {
                State::LineStart if byte == escape => self.state = State::Escaped,
                State::Escaped => {
                    let command = match byte {
                        b'.' => Some(Command::Disconnect),
                        b'?' => Some(Command::Help),
                        CONTROL_Z => Some(Command::Suspend),
                        _ => None,
                    };
                    if let Some(command) = command {
                        if !data.is_empty() {
                            pieces.push(Piece::Data(std::mem::take(&mut data)));
                        }
                        pieces.push(Piece::Command(command));
                        self.state = State::LineStart;
                        continue;
                    }
                    // Typed twice it means itself; before anything else it was no escape at all.
                    data.push(escape);
                    if byte != escape {
                        data.push(byte);
                    }
                    self.state = after(byte);
                }
                _ => {
                    data.push(byte);
                    self.state = after(byte);
                }
            }
        }
        if !data.is_empty() {
            pieces.push(Piece::Data(data));
        }
        pieces
    }
}

fn after(byte: u8) -> State {
    if matches!(byte, b'\r' | b'\n') { State::LineStart } else { State::InLine }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(chunks: &[&[u8]]) -> (Vec<u8>, Vec<Command>) {
        let mut escapes = Escapes::new(Some(b'~'));
        let (mut data, mut commands) = (Vec::new(), Vec::new());
        for piece in chunks.iter().flat_map(|chunk| escapes.feed(chunk)) {
            match piece {
                Piece::Data(bytes) => data.extend_from_slice(&bytes),
                Piece::Command(command) => commands.push(command),
            }
        }
        (data, commands)
    }

    #[test]
    fn escapes_count_only_after_a_newline() {
        assert_eq!(feed(&[b"ls ~.\r"]), (b"ls ~.\r".to_vec(), vec![]));
        assert_eq!(feed(&[b"~."]), (vec![], vec![Command::Disconnect]));
        assert_eq!(feed(&[b"ls\r~."]), (b"ls\r".to_vec(), vec![Command::Disconnect]));
        assert_eq!(feed(&[b"ls\n~?x"]), (b"ls\nx".to_vec(), vec![Command::Help]));
        assert_eq!(feed(&[b"~~."]), (b"~.".to_vec(), vec![]));
        assert_eq!(feed(&[b"~a"]), (b"~a".to_vec(), vec![]));
        assert_eq!(feed(&[b"~\x1a~."]), (vec![], vec![Command::Suspend, Command::Disconnect]));
        assert_eq!(feed(&[b"~\r~."]), (b"~\r".to_vec(), vec![Command::Disconnect]));
    }

    #[test]
    fn where_the_input_is_split_makes_no_difference() {
        let typed = b"a~.b\r~~c\r\n~?d~\r~.";
        let whole = feed(&[typed]);
        for at in 0..typed.len() {
            let (first, second) = typed.split_at(at);
            assert_eq!(feed(&[first, second]), whole, "split at {at}");
        }
        let single: Vec<&[u8]> = typed.chunks(1).collect();
        assert_eq!(feed(&single), whole);
    }

    #[test]
    fn none_means_none() {
        let mut escapes = Escapes::new(None);
        assert_eq!(escapes.feed(b"~."), vec![Piece::Data(b"~.".to_vec())]);
    }
}
