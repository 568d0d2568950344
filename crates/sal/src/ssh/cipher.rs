//! chacha20-poly1305@openssh.com (OpenSSH's PROTOCOL.chacha20poly1305).

use std::fmt;

use aws_lc_rs::aead::chacha20_poly1305_openssh::{
    KEY_LEN, OpeningKey, PACKET_LENGTH_LEN, SealingKey, TAG_LEN,
};

use super::outside_fips;
use crate::SalError;
use crate::uses::{self, Aside};

/// One direction's key. The nonce is the number of the packet: no number may come again under one key.
pub struct PacketKey {
    seals: SealingKey,
    opens: OpeningKey,
}

impl PacketKey {
    /// Length of a key, in bytes: one for the packet, and one for its length.
    pub const KEY_BYTES: usize = KEY_LEN;
    /// Length of a tag, in bytes.
    pub const TAG_BYTES: usize = TAG_LEN;
    /// Length of a packet's length, in bytes.
    pub const LENGTH_BYTES: usize = PACKET_LENGTH_LEN;

    /// From the bytes that a key exchange gives.
    ///
    /// # Errors
    /// [`SalError::Provider`] in FIPS mode.
    pub fn new(key: &[u8; Self::KEY_BYTES]) -> Result<Self, SalError> {
        outside_fips("use ChaCha20-Poly1305 in SSH: FIPS mode has none")?;
        uses::count(Aside::SshCipher);
        Ok(Self { seals: SealingKey::new(key), opens: OpeningKey::new(key) })
    }

    /// The length of packet `number`, which is not authenticated before [`PacketKey::open`].
    #[must_use]
    pub fn length(&self, number: u32, sealed: [u8; Self::LENGTH_BYTES]) -> [u8; Self::LENGTH_BYTES] {
        self.opens.decrypt_packet_length(number, sealed)
    }

    /// Encrypts packet `number`, its length included, and gives the tag.
    ///
    /// # Errors
    /// [`SalError::Provider`] for a packet that is shorter than a length.
    pub fn seal(&self, number: u32, packet: &mut [u8]) -> Result<[u8; Self::TAG_BYTES], SalError> {
        if packet.len() < Self::LENGTH_BYTES {
            return Err(SalError::Provider { operation: "encrypt a packet without a length" });
        }
        let mut tag = [0; Self::TAG_BYTES];
        self.seals.seal_in_place(number, packet, &mut tag);
        Ok(tag)
    }

    /// Decrypts packet `number` behind its length, once the tag over both is good. The length stays encrypted.
    ///
    /// # Errors
    /// [`SalError::Undecryptable`]; the packet must not be used then.
    pub fn open(&self, number: u32, packet: &mut [u8], tag: &[u8; Self::TAG_BYTES]) -> Result<(), SalError> {
        let altered = || SalError::Undecryptable { what: "a packet of SSH".to_owned() };
        if packet.len() < Self::LENGTH_BYTES {
            return Err(altered());
        }
        self.opens.open_in_place(number, packet, tag).map(|_| ()).map_err(|_| altered())
    }
}

impl fmt::Debug for PacketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PacketKey(..)")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    fn key() -> PacketKey {
        let mut bytes = [0; PacketKey::KEY_BYTES];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::try_from(at).unwrap();
        }
        PacketKey::new(&bytes).unwrap()
    }

    #[test]
    fn a_packet_opens_as_it_was_and_hides_its_length() {
        let packet = [&[0, 0, 0, 16][..], &[7; 16]].concat();
        let mut sealed = packet.clone();
        let tag = key().seal(5, &mut sealed).unwrap();
        let head: [u8; 4] = sealed[..4].try_into().unwrap();
        assert_ne!(head, packet[..4], "the length is hidden");
        assert_eq!(key().length(5, head), packet[..4]);
        assert_ne!(key().length(6, head), packet[..4]);
        key().open(5, &mut sealed, &tag).unwrap();
        assert_eq!(sealed[4..], packet[4..]);
    }

    /// Another library makes the same of it.
    #[cfg(not(feature = "fips"))]
    #[test]
    fn ring_agrees() {
        use ring::aead::chacha20_poly1305_openssh as ring;
        let mut bytes = [0; PacketKey::KEY_BYTES];
        crate::random::fill(&mut bytes).unwrap();
        let (ours, theirs) = (PacketKey::new(&bytes).unwrap(), ring::SealingKey::new(&bytes));
        for (number, length) in [(0, 0), (1, 8), (u32::MAX, 63), (7, 64), (1 << 20, 35_000)] {
            let packet = [&u32::try_from(length).unwrap().to_be_bytes()[..], &vec![7; length]].concat();
            let (mut one, mut other) = (packet.clone(), packet.clone());
            let tag = ours.seal(number, &mut one).unwrap();
            let mut expected = [0; ring::TAG_LEN];
            theirs.seal_in_place(number, &mut other, &mut expected);
            assert_eq!((one, tag), (other, expected), "{number} {length}");
        }
    }

    #[test]
    fn what_was_altered_cut_or_moved_is_refused() {
        let packet = [&[0, 0, 0, 16][..], &[7; 16]].concat();
        let mut sealed = packet;
        let tag = key().seal(5, &mut sealed).unwrap();
        for at in 0..sealed.len() {
            let mut altered = sealed.clone();
            altered[at] ^= 1;
            assert!(key().open(5, &mut altered, &tag).is_err(), "{at}");
        }
        for at in 0..tag.len() {
            let mut forged = tag;
            forged[at] ^= 1;
            assert!(key().open(5, &mut sealed.clone(), &forged).is_err(), "{at}");
        }
        assert!(key().open(4, &mut sealed.clone(), &tag).is_err(), "another number");
        for length in 0..sealed.len() {
            assert!(key().open(5, &mut sealed.clone()[..length], &tag).is_err(), "{length}");
        }
        assert!(key().seal(5, &mut [0; 3]).is_err());
        key().open(5, &mut sealed, &tag).unwrap();
    }
}
