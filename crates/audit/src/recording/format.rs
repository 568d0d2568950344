//! The bytes of a recording, without I/O.
//!
//! ```text
//! file   = magic version:u8 id:16 key_length:u16 sealed_key chunk*
//! chunk  = marker kind:u8 sequence:u64 first_us:u64 last_us:u64 length:u32 check:u32 sealed
//! ```
//!
//! Numbers are big endian. `check` is over the head before it, so that a damaged length is found before it is believed;
//! `sealed` is AES-256-GCM over zstd, numbered by `sequence`, with the head and the session's id as associated data.

use std::cell::RefCell;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use sallyport_access::SessionId;
use sallyport_sal::aead::{Aes256GcmKey, TAG_BYTES};
use sallyport_sal::{hash, hpke};
use zstd::bulk::Compressor;

use super::frame::{Body, Frame};

pub(super) const MAGIC: &[u8; 8] = b"SALLYREC";
pub(super) const VERSION: u8 = 1;
pub(super) const MARKER: &[u8; 4] = b"\xf5CHK";
/// Bytes of a chunk's head, marker and check included.
pub(super) const CHUNK_HEAD: usize = 4 + 1 + 8 + 8 + 8 + 4 + 4;
/// Longest sealed chunk: frames are flushed long before.
pub(super) const MAX_CHUNK: usize = 4 << 20;
/// Longest plain chunk that is decompressed.
const MAX_PLAIN: usize = 16 << 20;
/// zstd level of what people and most programs write: it shrinks well at any level.
const COMPRESSION: i32 = 1;
/// zstd level of a fast stream, such as a file that is copied: half as much time for a byte, and still half of the bytes
/// of a text.
const FAST_COMPRESSION: i32 = -3;
/// A chunk is of a fast stream when it has at least so many bytes, all from less time than this.
const FAST_BYTES: usize = 128 * 1024;
const FAST_TIME: Duration = Duration::from_millis(100);
const KEY_INFO: &[u8] = b"sallyport recording key v1";

/// What a chunk holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Frames,
    Index,
    End,
}

impl Kind {
    fn byte(self) -> u8 {
        match self {
            Self::Frames => 1,
            Self::Index => 2,
            Self::End => 3,
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Frames, Self::Index, Self::End].into_iter().find(|kind| kind.byte() == byte)
    }
}

/// Why bytes are not a recording, or not one that this key opens.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The beginning is not that of a recording.
    #[error("this is not a recording")]
    NotARecording,
    /// A later version.
    #[error("the recording has format {0}, this program knows {VERSION}")]
    Version(u8),
    /// The head ends too soon.
    #[error("the recording ends within its head")]
    Truncated,
    /// The key does not open it.
    #[error("the recording was sealed for another key")]
    WrongKey,
    /// The bytes of a chunk are not what was written.
    #[error("the chunk at byte {offset} is damaged: {what}")]
    Damaged {
        /// Where it begins.
        offset: u64,
        /// In which way.
        what: &'static str,
    },
    /// Sealing failed: a fault of this process, not of the data.
    #[error("a chunk could not be sealed: {0}")]
    Seal(String),
}

/// Writes a recording: frames in, bytes out.
#[derive(Debug)]
pub struct Encoder {
    session: SessionId,
    key: Aes256GcmKey,
    sequence: u64,
    plain: BytesMut,
    first: Duration,
    last: Duration,
    offset: u64,
    index: Vec<(Duration, u64)>,
}

impl Encoder {
    /// Begins a recording for the holder of `recipient`; appends the head to `out`.
    ///
    /// # Errors
    /// [`FormatError::Seal`] when the key cannot be sealed to the recipient.
    pub fn new(
        session: SessionId,
        recipient: &hpke::RecipientPublic,
        out: &mut BytesMut,
    ) -> Result<Self, FormatError> {
        let seal = |error: sallyport_sal::SalError| FormatError::Seal(error.to_string());
        let (key, secret) = Aes256GcmKey::generate().map_err(seal)?;
        let sealed =
            hpke::seal(recipient, KEY_INFO, session.to_string().as_bytes(), secret.as_ref()).map_err(seal)?;
        let before = out.len();
        out.extend_from_slice(MAGIC);
        out.put_u8(VERSION);
        out.extend_from_slice(&id_bytes(session));
        out.put_u16(
            u16::try_from(sealed.len())
                .map_err(|_| FormatError::Seal("the sealed key is too long".to_owned()))?,
        );
        out.extend_from_slice(&sealed);
        let offset = (out.len() - before) as u64;
        Ok(Self {
            session,
            key,
            sequence: 0,
            plain: BytesMut::new(),
            first: Duration::ZERO,
            last: Duration::ZERO,
            offset,
            index: Vec::new(),
        })
    }

    /// Takes in one frame; it is written with the next [`Encoder::flush`].
    pub fn push(&mut self, frame: &Frame) {
        if self.plain.is_empty() {
            self.first = frame.at;
        }
        self.last = frame.at;
        write_frame(frame, &mut self.plain);
    }

    /// Bytes taken in since the last flush.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.plain.len()
    }

    /// Appends what was taken in as one chunk.
    ///
    /// # Errors
    /// [`FormatError::Seal`].
    pub fn flush(&mut self, out: &mut BytesMut) -> Result<(), FormatError> {
        if self.plain.is_empty() {
            return Ok(());
        }
        self.index.push((self.first, self.offset));
        let plain = self.plain.split();
        self.chunk(Kind::Frames, &plain, out)
    }

    /// The last flush did not reach the file: so many bytes of it.
    pub(super) fn taken_back(&mut self, bytes: usize) {
        self.offset = self.offset.saturating_sub(bytes as u64);
        self.index.pop();
    }

    /// Forgets what was taken in since the last flush.
    pub fn discard(&mut self) {
        self.plain.clear();
    }

    /// Appends what is left, the index and the end.
    ///
    /// # Errors
    /// [`FormatError::Seal`].
    pub fn finish(mut self, out: &mut BytesMut) -> Result<(), FormatError> {
        self.flush(out)?;
        let mut index = BytesMut::new();
        for (at, offset) in &self.index {
            index.put_u64(micros(*at));
            index.put_u64(*offset);
        }
        let position = self.offset;
        self.chunk(Kind::Index, &index, out)?;
        self.chunk(Kind::End, &position.to_be_bytes(), out)
    }

    fn chunk(&mut self, kind: Kind, plain: &[u8], out: &mut BytesMut) -> Result<(), FormatError> {
        let fast = plain.len() >= FAST_BYTES && self.last.saturating_sub(self.first) < FAST_TIME;
        let packed = pack(plain, if fast { FAST_COMPRESSION } else { COMPRESSION })
            .map_err(|error| FormatError::Seal(error.to_string()))?;
        // Twelve bytes of nonce and sixteen of tag at the most.
        let mut head = BytesMut::with_capacity(CHUNK_HEAD);
        head.extend_from_slice(MARKER);
        head.put_u8(kind.byte());
        head.put_u64(self.sequence);
        head.put_u64(micros(self.first));
        head.put_u64(micros(self.last));
        let aad = associated(self.session, &head);
        let length = packed.len() + TAG_BYTES;
        head.put_u32(
            u32::try_from(length).map_err(|_| FormatError::Seal("the chunk is too long".to_owned()))?,
        );
        let check = check(&head);
        head.put_u32(check);
        // Sealed where it stands, so that it is moved once.
        let before = out.len();
        out.reserve(head.len() + length);
        out.extend_from_slice(&head);
        out.extend_from_slice(&packed);
        let body = out.get_mut(before + head.len()..).unwrap_or_default();
        match self.key.seal_numbered_in_place(self.sequence, &aad, body) {
            Ok(tag) => out.extend_from_slice(&tag),
            Err(error) => {
                out.truncate(before);
                return Err(FormatError::Seal(error.to_string()));
            }
        }
        self.offset += (head.len() + length) as u64;
        self.sequence += 1;
        Ok(())
    }
}

thread_local! {
    /// One for all recordings that a thread writes: its tables are larger than what a quiet session ever records.
    static PACKER: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
}

fn pack(plain: &[u8], level: i32) -> std::io::Result<Vec<u8>> {
    PACKER.with_borrow_mut(|packer| {
        let packer = match packer {
            Some(packer) => packer,
            None => packer.insert(Compressor::new(level)?),
        };
        packer.set_compression_level(level)?;
        packer.compress(plain)
    })
}

/// The head of a chunk, believed.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChunkHead {
    pub(super) kind: Kind,
    pub(super) sequence: u64,
    pub(super) first: Duration,
    pub(super) last: Duration,
    pub(super) length: usize,
}

/// Opens what an [`Encoder`] wrote.
#[derive(Debug)]
pub struct Decoder {
    session: SessionId,
    key: Aes256GcmKey,
    head_length: usize,
}

impl Decoder {
    /// Reads the head of a recording, of which `bytes` must hold all.
    ///
    /// # Errors
    /// [`FormatError`]: not a recording, cut off, or for another key.
    pub fn new(bytes: &[u8], recipient: &hpke::RecipientKeys) -> Result<Self, FormatError> {
        let (session, sealed, head_length) = read_head(bytes)?;
        let secret = recipient
            .open(KEY_INFO, session.to_string().as_bytes(), sealed)
            .map_err(|_| FormatError::WrongKey)?;
        let secret: &[u8; 32] = secret.as_slice().try_into().map_err(|_| FormatError::WrongKey)?;
        let key = Aes256GcmKey::new(secret).map_err(|_| FormatError::WrongKey)?;
        Ok(Self { session, key, head_length })
    }

    /// Whose recording it is.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Where the first chunk begins.
    #[must_use]
    pub fn head_length(&self) -> usize {
        self.head_length
    }

    /// The frames of one chunk, given as its head and its sealed bytes.
    pub(super) fn open(&self, head: &[u8], sealed: &[u8], sequence: u64) -> Result<Vec<u8>, &'static str> {
        let bound = head.get(..CHUNK_HEAD - 8).ok_or("its head is cut off")?;
        let aad = associated(self.session, bound);
        let packed = self
            .key
            .open_numbered(sequence, &aad, sealed)
            .map_err(|_| "its contents are not what was written")?;
        zstd::bulk::decompress(&packed, MAX_PLAIN).map_err(|_| "its contents do not decompress")
    }
}

/// Bytes that a head may need: more than any real one has.
pub(super) const LONGEST_HEAD: usize = 1024;

fn read_head(bytes: &[u8]) -> Result<(SessionId, &[u8], usize), FormatError> {
    let fixed = MAGIC.len() + 1 + 16 + 2;
    let mut head = bytes;
    if !bytes.starts_with(MAGIC) {
        return Err(if MAGIC.starts_with(bytes) {
            FormatError::Truncated
        } else {
            FormatError::NotARecording
        });
    }
    if bytes.len() < fixed {
        return Err(FormatError::Truncated);
    }
    head.advance(MAGIC.len());
    let version = head.get_u8();
    if version != VERSION {
        return Err(FormatError::Version(version));
    }
    let id = head.get_u128();
    let session = uuid::Uuid::from_u128(id).to_string().parse().map_err(|_| FormatError::NotARecording)?;
    let length = usize::from(head.get_u16());
    let sealed = head.get(..length).ok_or(FormatError::Truncated)?;
    Ok((session, sealed, fixed + length))
}

/// Reads the head of a chunk; `None` when it is not one.
pub(super) fn read_chunk_head(bytes: &[u8]) -> Option<ChunkHead> {
    let bytes = bytes.get(..CHUNK_HEAD)?;
    let mut head = bytes;
    if !head.starts_with(MARKER) {
        return None;
    }
    head.advance(MARKER.len());
    let kind = head.get_u8();
    let sequence = head.get_u64();
    let (first, last) = (head.get_u64(), head.get_u64());
    let length = head.get_u32() as usize;
    if head.get_u32() != check(bytes.get(..CHUNK_HEAD - 4)?) || length > MAX_CHUNK {
        return None;
    }
    Some(ChunkHead {
        kind: Kind::from_byte(kind)?,
        sequence,
        first: Duration::from_micros(first),
        last: Duration::from_micros(last),
        length,
    })
}

/// Offsets by time, from an index chunk.
pub(super) fn read_index(mut plain: &[u8]) -> Vec<(Duration, u64)> {
    let mut index = Vec::with_capacity(plain.len() / 16);
    while plain.len() >= 16 {
        index.push((Duration::from_micros(plain.get_u64()), plain.get_u64()));
    }
    index
}

fn id_bytes(session: SessionId) -> [u8; 16] {
    uuid::Uuid::try_parse(&session.to_string()).map(uuid::Uuid::into_bytes).unwrap_or_default()
}

fn associated(session: SessionId, head: &[u8]) -> Vec<u8> {
    [&id_bytes(session), head].concat()
}

/// Not against an adversary, who has the seal to fear: against a length that a bad sector made up.
fn check(head: &[u8]) -> u32 {
    let [a, b, c, d, ..] = hash::sha256(head);
    u32::from_be_bytes([a, b, c, d])
}

fn micros(at: Duration) -> u64 {
    u64::try_from(at.as_micros()).unwrap_or(u64::MAX)
}

const OUTPUT: u8 = 1;
const INPUT: u8 = 2;
const OTHER: u8 = 3;

/// frame = kind:u8 at_us:u64 length:u32 payload; output and input are bytes, everything else is JSON.
fn write_frame(frame: &Frame, out: &mut BytesMut) {
    let json;
    let (kind, payload): (u8, &[u8]) = match &frame.body {
        Body::Output(bytes) => (OUTPUT, bytes),
        Body::Input(bytes) => (INPUT, bytes),
        other => {
            json = serde_json::to_vec(other).unwrap_or_default();
            (OTHER, &json)
        }
    };
    out.put_u8(kind);
    out.put_u64(micros(frame.at));
    out.put_u32(u32::try_from(payload.len()).unwrap_or(u32::MAX));
    out.extend_from_slice(payload);
}

/// Every frame of an opened chunk; stops at the first that makes no sense.
pub(super) fn read_frames(plain: Vec<u8>) -> Vec<Frame> {
    let mut plain = Bytes::from(plain);
    let mut frames = Vec::new();
    while plain.remaining() >= 13 {
        let kind = plain.get_u8();
        let at = Duration::from_micros(plain.get_u64());
        let length = plain.get_u32() as usize;
        if plain.remaining() < length {
            break;
        }
        let payload = plain.split_to(length);
        let body = match kind {
            OUTPUT => Body::Output(payload),
            INPUT => Body::Input(payload),
            OTHER => match serde_json::from_slice(&payload) {
                Ok(body) => body,
                // A frame of a later version.
                Err(_) => continue,
            },
            _ => continue,
        };
        frames.push(Frame { at, body });
    }
    frames
}
