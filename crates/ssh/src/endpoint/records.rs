//! Where TLS records end (RFC 8446 §5.1), in a stream that is read piece by piece.
//!
//! A node that does not take early data throws those records away, up to as many bytes as it would have taken. rustls (0.23)
//! counts those bytes again whenever it is asked to go on and cannot read a record, and would give up too soon
//! where records come in many pieces. So it is asked only where a record ends.

/// Type, version and length.
const HEADER_BYTES: usize = 5;
/// Longest record (RFC 8446 §5.2). A head that says that its record is longer is not waited for.
const MOST_BYTES: usize = (1 << 14) + 256;

/// How far the record has come that is being read.
#[derive(Debug, Default)]
pub(super) struct Records {
    header: [u8; HEADER_BYTES],
    /// How many bytes of it are there.
    known: usize,
    /// What is still to come of the rest.
    left: usize,
}

impl Records {
    /// Most bytes that may be read without going past the end of something.
    pub(super) fn room(&self) -> usize {
        if self.known < HEADER_BYTES { HEADER_BYTES - self.known } else { self.left }
    }

    /// These were read: no more than there was room for.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        if self.known == HEADER_BYTES {
            self.left = self.left.saturating_sub(bytes.len());
        } else if let Some(space) = self.header.get_mut(self.known..self.known + bytes.len()) {
            space.copy_from_slice(bytes);
            self.known += bytes.len();
            let [.., high, low] = self.header;
            self.left = usize::from(u16::from_be_bytes([high, low]));
        }
        if self.known == HEADER_BYTES && (self.left == 0 || self.left > MOST_BYTES) {
            *self = Self::default();
        }
    }

    /// Whether a record has just ended.
    pub(super) fn is_whole(&self) -> bool {
        self.known == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ends_are_found_however_the_bytes_come(lengths in prop::collection::vec(0..=MOST_BYTES, 1..8), pieces in prop::collection::vec(1..5000_usize, 1..50)) {
            let mut stream = Vec::new();
            let mut ends = vec![];
            for length in &lengths {
                stream.extend([23, 3, 3]);
                stream.extend(u16::try_from(*length).unwrap().to_be_bytes());
                stream.resize(stream.len() + length, 0xff);
                ends.push(stream.len());
            }
            let (mut records, mut at, mut found) = (Records::default(), 0, Vec::new());
            for piece in pieces.iter().cycle() {
                if at == stream.len() {
                    break;
                }
                let count = (*piece).min(records.room()).min(stream.len() - at);
                records.read(&stream[at..at + count]);
                at += count;
                if records.is_whole() {
                    found.push(at);
                }
            }
            prop_assert_eq!(found, ends);
        }
    }

    #[test]
    fn a_length_that_cannot_be_is_not_waited_for() {
        let mut records = Records::default();
        records.read(&[22, 3, 1, 0xff]);
        assert!(!records.is_whole());
        records.read(&[0xff]);
        assert!(records.is_whole());
    }
}
