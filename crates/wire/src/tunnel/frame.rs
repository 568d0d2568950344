//! The bytes of a tunnel.
//!
//! Every frame has a head of nine bytes: type (1), stream (4, big endian), number (4, big endian). For the frames that
//! carry a payload the number is its length.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::TunnelError;

/// Bytes of a frame's head.
pub const HEAD: usize = 9;
/// Longest payload of a data frame: a packet of SSH with 32 KiB of data, and small enough that no stream holds the line
/// for long.
pub const MAX_DATA: usize = 33 * 1024;
/// Longest header of a new stream.
pub const MAX_OPEN: usize = 4 * 1024;
/// Longest text that says why something ends.
pub const MAX_REASON: usize = 1024;

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// Bytes of a stream.
    Data(u32, Bytes),
    /// A new stream, with a header for the task that takes it.
    Open(u32, Bytes),
    /// So many more bytes may be sent on a stream.
    Window(u32, u32),
    /// No more bytes will come on a stream.
    Fin(u32),
    /// A stream has ended, both ways, for this reason.
    Reset(u32, String),
    /// To be answered with the same number.
    Ping(u32),
    /// The answer.
    Pong(u32),
    /// The sender takes no new streams.
    GoAway(String),
}

impl Frame {
    /// Appends the frame to a buffer. Payloads are within their bounds by construction in `state`.
    pub fn encode(&self, out: &mut BytesMut) {
        let mut head = |kind: u8, stream: u32, number: u32| {
            out.put_u8(kind);
            out.put_u32(stream);
            out.put_u32(number);
        };
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        match self {
            Self::Data(stream, payload) => {
                head(0, *stream, length(payload));
                out.extend_from_slice(payload);
            }
            Self::Open(stream, header) => {
                head(1, *stream, length(header));
                out.extend_from_slice(header);
            }
            Self::Window(stream, credit) => head(2, *stream, *credit),
            Self::Fin(stream) => head(3, *stream, 0),
            Self::Reset(stream, reason) => {
                let reason = shorten(reason);
                head(4, *stream, length(reason.as_bytes()));
                out.extend_from_slice(reason.as_bytes());
            }
            Self::Ping(number) => head(5, 0, *number),
            Self::Pong(number) => head(6, 0, *number),
            Self::GoAway(reason) => {
                let reason = shorten(reason);
                head(7, 0, length(reason.as_bytes()));
                out.extend_from_slice(reason.as_bytes());
            }
        }
    }

    /// Takes the next whole frame out of a buffer; `None` when more bytes are needed. The payload of a data frame is not
    /// copied, and keeps all of the buffer until it is gone.
    ///
    /// # Errors
    /// [`TunnelError::Protocol`] for an unknown type or a payload past its bound, before the payload has arrived.
    pub fn decode(buffer: &mut BytesMut) -> Result<Option<Self>, TunnelError> {
        let mut head = match buffer.get(..HEAD) {
            Some(head) => head,
            None => return Ok(None),
        };
        let (kind, stream, number) = (head.get_u8(), head.get_u32(), head.get_u32());
        let bound = match kind {
            0 => MAX_DATA,
            1 => MAX_OPEN,
            4 | 7 => MAX_REASON,
            2 | 3 | 5 | 6 => 0,
            _ => return Err(TunnelError::Protocol(format!("unknown frame type {kind}"))),
        };
        let length = if bound > 0 { number as usize } else { 0 };
        if length > bound {
            return Err(TunnelError::Protocol(format!(
                "a payload of {length} bytes, at most {bound} are allowed"
            )));
        }
        if buffer.len() < HEAD + length {
            return Ok(None);
        }
        buffer.advance(HEAD);
        let payload = buffer.split_to(length);
        // What is not UTF-8 becomes longer by being made so.
        let text = |payload: &[u8]| shorten(&String::from_utf8_lossy(payload)).to_owned();
        Ok(Some(match kind {
            0 => Self::Data(stream, payload.freeze()),
            1 => Self::Open(stream, Bytes::copy_from_slice(&payload)),
            2 => Self::Window(stream, number),
            3 => Self::Fin(stream),
            4 => Self::Reset(stream, text(&payload)),
            5 => Self::Ping(number),
            6 => Self::Pong(number),
            _ => Self::GoAway(text(&payload)),
        }))
    }
}

/// At most [`MAX_REASON`] bytes, cut between characters.
fn shorten(text: &str) -> &str {
    let mut end = text.len().min(MAX_REASON);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames() -> impl Strategy<Value = Frame> {
        let bytes = |max| prop::collection::vec(any::<u8>(), 0..max).prop_map(Bytes::from);
        prop_oneof![
            (any::<u32>(), bytes(6000)).prop_map(|(stream, payload)| Frame::Data(stream, payload)),
            (any::<u32>(), bytes(MAX_OPEN)).prop_map(|(stream, header)| Frame::Open(stream, header)),
            (any::<u32>(), any::<u32>()).prop_map(|(stream, credit)| Frame::Window(stream, credit)),
            any::<u32>().prop_map(Frame::Fin),
            (any::<u32>(), "\\PC{0,100}").prop_map(|(stream, reason)| Frame::Reset(stream, reason)),
            any::<u32>().prop_map(Frame::Ping),
            any::<u32>().prop_map(Frame::Pong),
            "\\PC{0,100}".prop_map(Frame::GoAway),
        ]
    }

    proptest! {
        #[test]
        fn frames_survive_any_splitting(frames in prop::collection::vec(frames(), 1..8), step in 1_usize..5000) {
            let mut wire = BytesMut::new();
            for frame in &frames {
                frame.encode(&mut wire);
            }
            let mut buffer = BytesMut::new();
            let mut seen = Vec::new();
            for piece in wire.chunks(step) {
                buffer.extend_from_slice(piece);
                while let Some(frame) = Frame::decode(&mut buffer).unwrap() {
                    seen.push(frame);
                }
            }
            prop_assert_eq!(seen, frames);
            prop_assert!(buffer.is_empty());
        }

        #[test]
        fn arbitrary_bytes_end_in_an_error_or_in_waiting(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            let mut buffer = BytesMut::from(bytes.as_slice());
            while let Ok(Some(_)) = Frame::decode(&mut buffer) {}
        }
    }

    #[test]
    fn an_oversize_payload_is_refused_by_its_head() {
        let mut buffer = BytesMut::new();
        buffer.put_u8(0);
        buffer.put_u32(1);
        buffer.put_u32(u32::try_from(MAX_DATA).unwrap() + 1);
        assert!(matches!(Frame::decode(&mut buffer), Err(TunnelError::Protocol(_))));
        let long = "é".repeat(MAX_REASON);
        let mut wire = BytesMut::new();
        Frame::Reset(1, long).encode(&mut wire);
        assert!(
            matches!(Frame::decode(&mut wire), Ok(Some(Frame::Reset(1, text))) if text.len() == MAX_REASON)
        );
    }

    #[test]
    fn a_reason_that_is_no_text_is_no_longer_than_others() {
        let mut wire = BytesMut::from(&[4, 0, 0, 0, 1, 0, 0, 4, 0][..]);
        wire.extend_from_slice(&[0xff; MAX_REASON]);
        let frame = Frame::decode(&mut wire).unwrap().unwrap();
        assert!(matches!(&frame, Frame::Reset(1, reason) if reason.len() <= MAX_REASON), "{frame:?}");
        frame.encode(&mut wire);
        assert_eq!(Frame::decode(&mut wire), Ok(Some(frame)));
    }
}
