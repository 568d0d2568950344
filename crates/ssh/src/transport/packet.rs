//! Packets (RFC 4253 §6): plain before the first keys, AES-GCM (RFC 5647) or ChaCha20-Poly1305 (OpenSSH's PROTOCOL.chacha20poly1305)
//! after.

use bytes::{Buf, Bytes, BytesMut};
use sallyport_sal::algorithm::AeadAlgorithm;
use sallyport_sal::provider::AeadKey;
use sallyport_sal::ssh::PacketKey;
use sallyport_sal::{Primitive, selection};

use super::Breach;

/// Longest packet taken, in bytes, as OpenSSH has it; RFC 4253 §6.1 asks for 35000.
const MOST_BYTES: u32 = 256 * 1024;
/// Shortest packet without its length (RFC 4253 §6: 16 bytes with it).
const LEAST_BYTES: u32 = 12;
/// The same under ChaCha20, where OpenSSH fills up one block and no more.
const LEAST_STREAM_BYTES: u32 = 8;
const LENGTH_BYTES: usize = 4;
const TAG_BYTES: usize = 16;
/// What packets are filled up to where no block of a cipher is longer (RFC 4253 §6).
const PLAIN_BLOCK: usize = 8;
const GCM_BLOCK: usize = 16;
/// RFC 4253 §6.
const LEAST_PADDING: usize = 4;

/// One direction's key.
pub(crate) enum Cipher {
    /// Its next nonce is `fixed`, and the invocation counter (RFC 5647 §7.1), which would take more packets to come round than a key
    /// may have.
    Gcm { key: Box<dyn AeadKey>, fixed: [u8; 4], counter: u64 },
    /// Its nonce is the number of the packet, which comes round no sooner than a key may have packets.
    ChaCha(Box<PacketKey>),
}

/// Length of the bytes that a cipher is keyed with.
pub(crate) const fn key_bytes(algorithm: AeadAlgorithm) -> usize {
    match algorithm {
        AeadAlgorithm::ChaCha20Poly1305 => PacketKey::KEY_BYTES,
        _ => algorithm.key_bytes(),
    }
}

impl Cipher {
    /// From a key of [`key_bytes`], and the 12 bytes of its first nonce, where it has one.
    pub(crate) fn new(algorithm: AeadAlgorithm, key: &[u8], nonce: [u8; 12]) -> Result<Self, Breach> {
        let unavailable = || Breach::Unavailable(algorithm.to_string());
        if algorithm == AeadAlgorithm::ChaCha20Poly1305 {
            let key = key.first_chunk().filter(|whole| whole.len() == key.len()).ok_or_else(unavailable)?;
            return PacketKey::new(key).map(Box::new).map(Self::ChaCha).map_err(|_| unavailable());
        }
        let key = selection::global()
            .run(Primitive::Aead(algorithm), |provider| provider.aead(algorithm, key))
            .map_err(|_| unavailable())?;
        let [a, b, c, d, counter @ ..] = nonce;
        Ok(Self::Gcm { key, fixed: [a, b, c, d], counter: u64::from_be_bytes(counter) })
    }

    const fn block(&self) -> usize {
        match self {
            Self::Gcm { .. } => GCM_BLOCK,
            Self::ChaCha(_) => PLAIN_BLOCK,
        }
    }

    const fn least(&self) -> u32 {
        match self {
            Self::Gcm { .. } => LEAST_BYTES,
            Self::ChaCha(_) => LEAST_STREAM_BYTES,
        }
    }

    /// The length of packet `number`, of which nothing is authenticated yet.
    fn length(&self, number: u32, head: [u8; LENGTH_BYTES]) -> [u8; LENGTH_BYTES] {
        match self {
            Self::Gcm { .. } => head,
            Self::ChaCha(key) => key.length(number, head),
        }
    }

    /// Decrypts a packet where it lies, behind its length.
    fn open(&mut self, number: u32, packet: &mut [u8], tag: &[u8; TAG_BYTES]) -> Result<(), Breach> {
        match self {
            Self::Gcm { key, fixed, counter } => {
                let nonce = next_nonce(*fixed, counter);
                let (head, body) = packet.split_at_mut_checked(LENGTH_BYTES).ok_or(Breach::Altered)?;
                key.open(&nonce, head, body, tag).map_err(|_| Breach::Altered)
            }
            Self::ChaCha(key) => key.open(number, packet, tag).map_err(|_| Breach::Altered),
        }
    }

    /// Encrypts a packet where it lies, and gives its tag.
    fn seal(&mut self, number: u32, packet: &mut [u8]) -> Result<[u8; TAG_BYTES], Breach> {
        let failed = || Breach::Unavailable("the cipher failed".to_owned());
        match self {
            Self::Gcm { key, fixed, counter } => {
                let nonce = next_nonce(*fixed, counter);
                let (head, body) = packet.split_at_mut_checked(LENGTH_BYTES).ok_or_else(failed)?;
                key.seal(&nonce, head, body).map_err(|_| failed())
            }
            Self::ChaCha(key) => key.seal(number, packet).map_err(|_| failed()),
        }
    }
}

fn next_nonce(fixed: [u8; 4], counter: &mut u64) -> [u8; 12] {
    let [a, b, c, d] = fixed;
    let [e, f, g, h, i, j, k, l] = counter.to_be_bytes();
    *counter = counter.wrapping_add(1);
    [a, b, c, d, e, f, g, h, i, j, k, l]
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
        let (head, block, least, extra, ahead) = match &self.cipher {
            Some(cipher) => {
                let head = cipher.length(self.sequence, *head);
                (head, cipher.block(), cipher.least(), TAG_BYTES, 0)
            }
            None => (*head, PLAIN_BLOCK, LEAST_BYTES, 0, LENGTH_BYTES),
        };
        let length = u32::from_be_bytes(head);
        if !(least..=MOST_BYTES).contains(&length) {
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
        if let Some(cipher) = &mut self.cipher {
            let tag = packet.split_off(LENGTH_BYTES + size);
            let tag: &[u8; TAG_BYTES] = tag.first_chunk().ok_or(Breach::Altered)?;
            cipher.open(self.sequence, &mut packet, tag)?;
        }
        packet.advance(LENGTH_BYTES);
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
    /// The number of the next packet.
    sequence: u32,
    pub(crate) used: Used,
}

impl Outgoing {
    /// From here on under a new key.
    pub(crate) fn rekey(&mut self, cipher: Cipher, strict: bool) {
        self.cipher = Some(cipher);
        self.used = Used::default();
        if strict {
            self.sequence = 0;
        }
    }

    /// Appends a packet. The padding is zeros: before the first keys there is nothing to hide, and the ciphers hide it like
    /// the rest.
    pub(crate) fn put(&mut self, out: &mut BytesMut, payload: &[u8]) -> Result<(), Breach> {
        let (block, ahead) = match &self.cipher {
            Some(cipher) => (cipher.block(), 0),
            None => (PLAIN_BLOCK, LENGTH_BYTES),
        };
        let bare = ahead + 1 + payload.len();
        let mut padding = block - bare % block;
        while padding < LEAST_PADDING || 1 + payload.len() + padding < LEAST_BYTES as usize {
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
            let tag = cipher.seal(self.sequence, out.get_mut(from..).unwrap_or_default())?;
            out.extend_from_slice(&tag);
        }
        self.sequence = self.sequence.wrapping_add(1);
        self.used.add(out.len() - from);
        Ok(())
    }
}
