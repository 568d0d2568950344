//! Messages after the startup: where each begins and ends (§53.2.1: a byte for the kind, and four for the length, which
//! counts itself but not the kind).
//!
//! A direction of a connection is walked over in pieces of any size, as they come from the network. What a piece may bring is
//! bounded before any of it is kept: kinds and lengths are checked when a header is there, and a message that its reader
//! wants is held back until it is whole and found well formed, so that nothing malformed goes on. Messages that no reader
//! wants (rows, copied data) and those longer than [`Limits::held_bytes`] go on as they come.

/// Bytes of a header: the kind and the length.
pub const HEADER_BYTES: usize = 5;
/// What the length counts besides the content.
const LENGTH_BYTES: u32 = 4;
/// Longest message of PostgreSQL: it takes no more than 1 GiB less one for a value, and keeps the length in 31 bits.
pub const MOST_BYTES: u32 = 0x7fff_ffff;

/// Bounds of what is kept.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Longest message that is held back until it is whole. Longer ones are read in parts. Default 64 KiB.
    pub held_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { held_bytes: 64 * 1024 }
    }
}

/// What is done with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// It goes on unread.
    None,
    /// Its content is read.
    Content,
}

/// Why a direction cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// The length in a header is less than that of itself, or more than the protocol has.
    #[error("a message of kind {} says that it has {length} bytes; 4 to {MOST_BYTES} are possible", printable(*kind))]
    Length {
        /// The kind of the message.
        kind: u8,
        /// As it stood there.
        length: u32,
    },
    /// No message of this direction has that kind.
    #[error("there is no message of kind {}", printable(*.0))]
    Kind(u8),
    /// The message may not come now.
    #[error("a message of kind {} is out of place {place}", printable(*kind))]
    Place {
        /// The kind of the message.
        kind: u8,
        /// Where that was.
        place: &'static str,
    },
    /// The content is not what the kind says.
    #[error("a message of kind {} is malformed: {what}", printable(*kind))]
    Content {
        /// The kind of the message.
        kind: u8,
        /// What is wrong with it.
        what: &'static str,
    },
}

fn printable(kind: u8) -> String {
    if kind.is_ascii_graphic() { format!("'{}'", char::from(kind)) } else { format!("0x{kind:02x}") }
}

/// What reads the messages of one direction.
pub trait Reader {
    /// Whether a message with content of this length is read. Asked again while a message comes, so it changes nothing.
    ///
    /// # Errors
    /// When the message may not be there. Nothing of it goes on.
    fn interest(&self, kind: u8, length: u32) -> Result<Interest, Malformed>;

    /// A message that is not read goes on.
    fn passes(&mut self, kind: u8, length: u32);

    /// The whole content of a message that is read.
    ///
    /// # Errors
    /// When it is malformed. Nothing of it goes on.
    fn whole(&mut self, kind: u8, content: &[u8]) -> Result<(), Malformed>;

    /// Part of the content of a message that is read and too long to be held: `at` is where in the content of `length` it
    /// stands. The parts before have gone on, and this one will.
    ///
    /// # Errors
    /// When it is malformed. Neither this part nor anything after it goes on, so the message never becomes whole.
    fn part(&mut self, kind: u8, length: u32, at: u32, content: &[u8]) -> Result<(), Malformed>;
}

/// How far a direction has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walked {
    /// Bytes that may go on.
    pub may_go: usize,
    /// Why nothing more will, after those.
    pub failed: Option<Malformed>,
}

/// Where in a message the walk is.
#[derive(Debug, Clone, Copy)]
enum State {
    /// Before a header.
    Between,
    /// In the content of a message that no reader wants; so much is missing.
    Passing { left: u32 },
    /// In the content of a long message that the reader wants.
    Parts { kind: u8, length: u32, at: u32 },
}

/// One direction of a connection.
#[derive(Debug)]
pub struct Flow {
    limits: Limits,
    state: State,
    /// The first error, which is final.
    failed: Option<Malformed>,
}

impl Flow {
    /// From the first message after the startup.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, state: State::Between, failed: None }
    }

    /// Walks over what has come and not gone on yet. Gives how many bytes of it may go on; the rest has to be there again,
    /// with more behind it, the next time. With [`Limits::held_bytes`] and a header there is always progress, or an end.
    pub fn walk(&mut self, bytes: &[u8], reader: &mut impl Reader) -> Walked {
        let mut at = 0;
        while self.failed.is_none() {
            match self.step(bytes.get(at..).unwrap_or_default(), reader) {
                Ok(0) => break,
                Ok(step) => at += step,
                Err(error) => self.failed = Some(error),
            }
        }
        Walked { may_go: at, failed: self.failed.clone() }
    }

    /// Goes on to the end of the message that the walk is in, and no further: none of the bytes when it is in none.
    pub fn walk_to_end(&mut self, bytes: &[u8], reader: &mut impl Reader) -> Walked {
        let mut at = 0;
        while self.failed.is_none() && !self.is_between() {
            match self.step(bytes.get(at..).unwrap_or_default(), reader) {
                Ok(0) => break,
                Ok(step) => at += step,
                Err(error) => self.failed = Some(error),
            }
        }
        Walked { may_go: at, failed: self.failed.clone() }
    }

    /// Whether the direction stands between two messages.
    #[must_use]
    pub fn is_between(&self) -> bool {
        matches!(self.state, State::Between)
    }

    /// A header, a message or a part of one; 0 when more has to come first.
    fn step(&mut self, bytes: &[u8], reader: &mut impl Reader) -> Result<usize, Malformed> {
        match self.state {
            State::Between => self.begin(bytes, reader),
            State::Passing { left } => {
                let (part, step) = first(bytes, left);
                self.state = if step == left { State::Between } else { State::Passing { left: left - step } };
                Ok(part.len())
            }
            State::Parts { kind, length, at } => {
                let (part, step) = first(bytes, length - at);
                if !part.is_empty() {
                    reader.part(kind, length, at, part)?;
                }
                let at = at + step;
                self.state = if at == length { State::Between } else { State::Parts { kind, length, at } };
                Ok(part.len())
            }
        }
    }

    fn begin(&mut self, bytes: &[u8], reader: &mut impl Reader) -> Result<usize, Malformed> {
        let Some(([kind, length @ ..], content)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(0);
        };
        let (kind, said) = (*kind, u32::from_be_bytes(*length));
        let length = said.checked_sub(LENGTH_BYTES).filter(|_| said <= MOST_BYTES);
        let length = length.ok_or(Malformed::Length { kind, length: said })?;
        if reader.interest(kind, length)? == Interest::None {
            reader.passes(kind, length);
            if length > 0 {
                self.state = State::Passing { left: length };
            }
            return Ok(HEADER_BYTES);
        }
        let (whole, step) = first(content, length);
        if usize::try_from(length).is_ok_and(|length| length > self.limits.held_bytes) {
            self.state = State::Parts { kind, length, at: 0 };
            return Ok(HEADER_BYTES);
        }
        if step < length {
            return Ok(0);
        }
        reader.whole(kind, whole)?;
        Ok(HEADER_BYTES + whole.len())
    }
}

/// As many of these bytes as are wanted and there.
fn first(bytes: &[u8], wanted: u32) -> (&[u8], u32) {
    let there = u32::try_from(bytes.len()).unwrap_or(u32::MAX).min(wanted);
    let part = usize::try_from(there).ok().and_then(|there| bytes.get(..there));
    part.map_or((&[], 0), |part| (part, there))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone, PartialEq, Eq)]
    enum Seen {
        Passed(u8, u32),
        Whole(u8, Vec<u8>),
        Long(u8, Vec<u8>),
    }

    /// Reads what has a capital letter, and knows letters only.
    #[derive(Default)]
    struct Notes(Vec<Seen>);

    impl Reader for Notes {
        fn interest(&self, kind: u8, _: u32) -> Result<Interest, Malformed> {
            match kind {
                b'A'..=b'Z' => Ok(Interest::Content),
                b'a'..=b'z' => Ok(Interest::None),
                other => Err(Malformed::Kind(other)),
            }
        }

        fn passes(&mut self, kind: u8, length: u32) {
            self.0.push(Seen::Passed(kind, length));
        }

        fn whole(&mut self, kind: u8, content: &[u8]) -> Result<(), Malformed> {
            if content.first() == Some(&0) {
                return Err(Malformed::Content { kind, what: "it begins with zero" });
            }
            self.0.push(Seen::Whole(kind, content.to_vec()));
            Ok(())
        }

        fn part(&mut self, kind: u8, length: u32, at: u32, content: &[u8]) -> Result<(), Malformed> {
            if at == 0 {
                self.0.push(Seen::Long(kind, Vec::new()));
            }
            let Some(Seen::Long(_, all)) = self.0.last_mut() else { panic!("a part of nothing") };
            assert_eq!(all.len(), at as usize);
            all.extend_from_slice(content);
            if all.len() == length as usize && content.last() == Some(&0) {
                return Err(Malformed::Content { kind, what: "it ends with zero" });
            }
            Ok(())
        }
    }

    fn message(kind: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind];
        bytes.extend_from_slice(&u32::try_from(content.len() + 4).unwrap().to_be_bytes());
        bytes.extend_from_slice(content);
        bytes
    }

    const HELD: usize = 100;

    /// Walks over `bytes` as they come in pieces of these sizes; what went on, what was seen, and the error.
    fn walked(bytes: &[u8], sizes: &[usize]) -> (Vec<u8>, Vec<Seen>, Option<Malformed>) {
        let mut flow = Flow::new(Limits { held_bytes: HELD });
        let (mut notes, mut waiting, mut gone) = (Notes::default(), Vec::new(), Vec::new());
        let mut rest = bytes;
        let mut sizes = sizes.iter().copied().cycle();
        loop {
            let size = sizes.next().unwrap_or(1).clamp(1, rest.len().max(1)).min(rest.len());
            let (piece, after) = rest.split_at(size);
            rest = after;
            waiting.extend_from_slice(piece);
            let walk = flow.walk(&waiting, &mut notes);
            gone.extend(waiting.drain(..walk.may_go));
            assert!(waiting.len() < HELD + HEADER_BYTES || walk.failed.is_some());
            if rest.is_empty() || walk.failed.is_some() {
                return (gone, notes.0, walk.failed);
            }
        }
    }

    #[test]
    fn what_is_read_is_held_until_it_is_whole_and_the_rest_is_not() {
        let mut flow = Flow::new(Limits { held_bytes: HELD });
        let mut notes = Notes::default();
        let bytes = [message(b'Q', b"select 1"), message(b'd', b"rows")].concat();
        assert_eq!(flow.walk(&bytes[..12], &mut notes).may_go, 0);
        assert!(notes.0.is_empty());
        assert_eq!(flow.walk(&bytes[..19], &mut notes).may_go, 19);
        assert_eq!(notes.0, [Seen::Whole(b'Q', b"select 1".to_vec()), Seen::Passed(b'd', 4)]);
        assert!(!flow.is_between());
        assert_eq!(flow.walk(&bytes[19..], &mut notes).may_go, 3);
        assert!(flow.is_between());
    }

    #[test]
    fn nothing_of_what_is_malformed_goes_on() {
        let good = message(b'Q', b"fine");
        for (bad, error) in [
            (vec![b'Q', 0, 0, 0, 3], Malformed::Length { kind: b'Q', length: 3 }),
            (vec![b'Q', 0xff, 0, 0, 0], Malformed::Length { kind: b'Q', length: 0xff00_0000 }),
            (vec![7, 0, 0, 0, 4], Malformed::Kind(7)),
            (message(b'Q', b"\0"), Malformed::Content { kind: b'Q', what: "it begins with zero" }),
        ] {
            let (gone, seen, failed) = walked(&[good.clone(), bad, good.clone()].concat(), &[3]);
            assert_eq!((gone, failed), (good.clone(), Some(error)));
            assert_eq!(seen.len(), 1);
        }
        // A long one has gone on in part, and never becomes whole.
        let mut long = vec![b'x'; 300];
        long[299] = 0;
        let (gone, _, failed) = walked(&message(b'Q', &long), &[64]);
        assert!(failed.is_some() && gone.len() < 305, "{}", gone.len());
    }

    #[test]
    fn an_error_is_final() {
        let mut flow = Flow::new(Limits::default());
        let mut notes = Notes::default();
        let first = flow.walk(&[0, 0, 0, 0, 4], &mut notes);
        assert_eq!(first, Walked { may_go: 0, failed: Some(Malformed::Kind(0)) });
        assert_eq!(flow.walk(&message(b'Q', b"fine"), &mut notes), first);
        assert_eq!(Malformed::Kind(0).to_string(), "there is no message of kind 0x00");
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_are_the_same(
            messages in prop::collection::vec((prop::sample::select(b"QPBdcS".to_vec()), prop::collection::vec(1_u8.., 0..250)), 0..20),
            sizes in prop::collection::vec(1_usize..200, 1..20),
        ) {
            let bytes: Vec<u8> = messages.iter().flat_map(|(kind, content)| message(*kind, content)).collect();
            let (gone, seen, failed) = walked(&bytes, &sizes);
            prop_assert_eq!(failed, None);
            prop_assert!(gone == bytes);
            let expected: Vec<Seen> = messages.into_iter().map(|(kind, content)| match kind {
                b'd' | b'c' => Seen::Passed(kind, u32::try_from(content.len()).unwrap()),
                _ if content.len() > HELD => Seen::Long(kind, content),
                _ => Seen::Whole(kind, content),
            }).collect();
            prop_assert_eq!(seen, expected);
        }

        #[test]
        fn no_bytes_make_it_panic_or_hold_more_than_it_may(bytes in prop::collection::vec(any::<u8>(), 0..2000), size in 1_usize..300) {
            let (gone, _, _) = walked(&bytes, &[size]);
            prop_assert!(bytes.starts_with(&gone));
        }
    }
}
