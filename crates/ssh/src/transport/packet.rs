//! Packets (RFC 4253 §6): plain before the first keys, AES-GCM (RFC 5647) after.

use bytes::{Buf, Bytes, BytesMut};
use sallyport_sal::algorithm::AeadAlgorithm;
use sallyport_sal::provider::AeadKey;
use sallyport_sal::{Primitive, selection};

use super::Breach;

/// Longest packet taken, in bytes, as OpenSSH has it; RFC 4253 §6.1 asks for 35000.
const MOST_BYTES: u32 = 256 * 1024;
/// Shortest packet without its length (RFC 4253 §6: 16 bytes with it).
const LEAST_BYTES: u32 = 12;
const LENGTH_BYTES: usize = 4;
const TAG_BYTES: usize = 16;
const PLAIN_BLOCK: usize = 8;
const CIPHER_BLOCK: usize = 16;
/// RFC 4253 §6.
const LEAST_PADDING: usize = 4;

/// One direction's key, and the nonce of its next packet.
pub(crate) struct Cipher {
    key: Box<dyn AeadKey>,
    fixed: [u8; 4],
    /// The invocation counter (RFC 5647 §7.1). It would take more packets to come round than a key may have.
    counter: u64,
}

impl Cipher {
    /// From a key of the algorithm's length and the 12 bytes of its first nonce.
    pub(crate) fn new(algorithm: AeadAlgorithm, key: &[u8], nonce: [u8; 12]) -> Result<Self, Breach> {
        let key = selection::global()
            .run(Primitive::Aead(algorithm), |provider| provider.aead(algorithm, key))
            .map_err(|_| Breach::Unavailable(algorithm.to_string()))?;
        let [a, b, c, d, counter @ ..] = nonce;
        Ok(Self { key, fixed: [a, b, c, d], counter: u64::from_be_bytes(counter) })
    }

    fn nonce(&mut self) -> [u8; 12] {
        let [a, b, c, d] = self.fixed;
        let [e, f, g, h, i, j, k, l] = self.counter.to_be_bytes();
        self.counter = self.counter.wrapping_add(1);
        [a, b, c, d, e, f, g, h, i, j, k, l]
    }
}

/// What passed under the current key.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Used {
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
}

impl Used {
    fn add(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        self.packets = self.packets.saturating_add(1);
    }
}

/// What comes.
#[derive(Default)]
pub(crate) struct Incoming {
    pub(crate) bytes: BytesMut,
    cipher: Option<Cipher>,
    /// The number of the next packet.
    pub(crate) sequence: u32,
    pub(crate) used: Used,
}

impl Incoming {
    /// From here on under a new key.
    pub(crate) fn rekey(&mut self, cipher: Cipher, strict: bool) {
        self.cipher = Some(cipher);
        self.used = Used::default();
        if strict {
            self.sequence = 0;
        }
    }

    /// Whether packets are encrypted.
    pub(crate) fn is_sealed(&self) -> bool {
        self.cipher.is_some()
    }

    /// The payload of the next packet, when all of it is there.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, Breach> {
        let Some(head) = self.bytes.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let head = *head;
        let length = u32::from_be_bytes(head);
        let (block, extra, ahead) = match self.cipher {
            Some(_) => (CIPHER_BLOCK, TAG_BYTES, 0),
            None => (PLAIN_BLOCK, 0, LENGTH_BYTES),
        };
        if !(LEAST_BYTES..=MOST_BYTES).contains(&length) {
            return Err(Breach::Length(length));
        }
        let size = length as usize;
        if !(size + ahead).is_multiple_of(block) {
            return Err(Breach::Length(length));
        }
        let whole = LENGTH_BYTES + size + extra;
        if self.bytes.len() < whole {
            self.bytes.reserve(whole - self.bytes.len());
            return Ok(None);
        }
        let mut packet = self.bytes.split_to(whole);
        packet.advance(LENGTH_BYTES);
        if let Some(cipher) = &mut self.cipher {
            let nonce = cipher.nonce();
            let tag = packet.split_off(size);
            let tag: &[u8; TAG_BYTES] = tag.first_chunk().ok_or(Breach::Altered)?;
            cipher.key.open(&nonce, &head, &mut packet, tag).map_err(|_| Breach::Altered)?;
        }
        self.sequence = self.sequence.wrapping_add(1);
        self.used.add(whole);
        let padding = usize::from(packet.first().copied().unwrap_or_default());
        let end = size.checked_sub(padding).filter(|end| *end > 1 && padding >= LEAST_PADDING);
        packet.truncate(end.ok_or(Breach::Padding)?);
        packet.advance(1);
        Ok(Some(packet.freeze()))
    }
}

/// What goes.
#[derive(Default)]
pub(crate) struct Outgoing {
    cipher: Option<Cipher>,
    pub(crate) used: Used,
}

impl Outgoing {
    /// From here on under a new key.
    pub(crate) fn rekey(&mut self, cipher: Cipher) {
        self.cipher = Some(cipher);
        self.used = Used::default();
    }

    /// Appends a packet. The padding is zeros: before the first keys there is nothing to hide, and AES-GCM hides it like
    /// the rest.
    pub(crate) fn put(&mut self, out: &mut BytesMut, payload: &[u8]) -> Result<(), Breach> {
        let (block, ahead) = match self.cipher {
            Some(_) => (CIPHER_BLOCK, 0),
            None => (PLAIN_BLOCK, LENGTH_BYTES),
        };
        let bare = ahead + 1 + payload.len();
        let mut padding = block - bare % block;
        if padding < LEAST_PADDING {
            padding += block;
        }
        let size = 1 + payload.len() + padding;
        let length = u32::try_from(size).ok().filter(|length| *length <= MOST_BYTES);
        let length = length.ok_or(Breach::Order("a message is longer than a packet"))?;
        let head = length.to_be_bytes();
        let from = out.len();
        out.reserve(LENGTH_BYTES + size + TAG_BYTES);
        out.extend_from_slice(&head);
        out.extend_from_slice(&[u8::try_from(padding).unwrap_or(u8::MAX)]);
        out.extend_from_slice(payload);
        out.resize(from + LENGTH_BYTES + size, 0);
        if let Some(cipher) = &mut self.cipher {
            let nonce = cipher.nonce();
            let body = out.get_mut(from + LENGTH_BYTES..).unwrap_or_default();
            let sealed = cipher.key.seal(&nonce, &head, body);
            let tag = sealed.map_err(|_| Breach::Unavailable("AES-GCM failed".to_owned()))?;
            out.extend_from_slice(&tag);
        }
        self.used.add(out.len() - from);
        Ok(())
    }
}
