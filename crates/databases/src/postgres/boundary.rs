//! Where the server's messages end: only there may another one be put (§53.7).

/// The kind of a message and its length.
const HEAD_BYTES: usize = 5;

/// Follows what a server says, however it is split.
#[derive(Debug, Default)]
pub struct Boundary {
    /// Of a header of five bytes, what has come.
    head: [u8; HEAD_BYTES],
    have: usize,
    /// Bytes of the message that are still to come.
    left: u64,
}

impl Boundary {
    /// These bytes have come.
    pub fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.left > 0 {
                let taken = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
                self.left -= taken as u64;
                bytes = bytes.get(taken..).unwrap_or_default();
                continue;
            }
            let taken = (HEAD_BYTES - self.have).min(bytes.len());
            let (now, rest) = bytes.split_at(taken);
            if let Some(room) = self.head.get_mut(self.have..self.have + taken) {
                room.copy_from_slice(now);
            }
            (self.have, bytes) = (self.have + taken, rest);
            if self.have == HEAD_BYTES {
                let [_, a, b, c, d] = self.head;
                // The length counts itself.
                self.left = u64::from(u32::from_be_bytes([a, b, c, d])).saturating_sub(4);
                self.have = 0;
            }
        }
    }

    /// Whether a message has just ended.
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.left == 0 && self.have == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_messages_are_found_however_they_are_split() {
        let messages = b"Z\0\0\0\x05IC\0\0\0\x0bSELECT\0n\0\0\0\x04".to_vec();
        for step in 1..=messages.len() {
            let mut boundary = Boundary::default();
            let mut passed = 0;
            for part in messages.chunks(step) {
                boundary.pass(part);
                passed += part.len();
                assert_eq!(boundary.is_here(), [6, 18, 23].contains(&passed), "{passed} in steps of {step}");
            }
        }
    }
}
