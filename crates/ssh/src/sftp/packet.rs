//! Packets: fields in, fields out.

use std::io::{self, Read};

/// Longest packet taken from a client, and longest that is sent, in bytes; OpenSSH's own bound.
pub(super) const MAX_PACKET_BYTES: usize = 256 * 1024;
/// Most bytes one read or write moves: the packet less its header.
pub(super) const MAX_DATA_BYTES: usize = MAX_PACKET_BYTES - 1024;
/// Most files and directories one client may hold open.
pub(super) const MAX_HANDLES: usize = 1024;

/// The client does not keep to the protocol.
pub(super) fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the SFTP client sent {what}"))
}

/// Reads one packet into `packet`; false when the client has closed between packets.
pub(super) fn read(input: &mut impl Read, packet: &mut Vec<u8>) -> io::Result<bool> {
    let mut length = [0u8; 4];
    let mut have = 0;
    while have < length.len() {
        match input.read(length.get_mut(have..).unwrap_or_default()) {
            Ok(0) if have == 0 => return Ok(false),
            Ok(0) => return Err(malformed("half a length")),
            Ok(count) => have += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length == 0 || length > MAX_PACKET_BYTES {
        return Err(malformed(&format!(
            "a packet of {length} bytes, at most {MAX_PACKET_BYTES} are allowed"
        )));
    }
    packet.resize(length, 0);
    input.read_exact(packet)?;
    Ok(true)
}

/// The fields of a packet, read in order.
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn take(&mut self, count: usize) -> io::Result<&'a [u8]> {
        let (head, tail) =
            self.0.split_at_checked(count).ok_or_else(|| malformed("a packet that ends early"))?;
        self.0 = tail;
        Ok(head)
    }

    pub(super) fn u32(&mut self) -> io::Result<u32> {
        let bytes = self.take(4)?;
        Ok(u32::from_be_bytes(bytes.try_into().map_err(|_| malformed("a packet that ends early"))?))
    }

    pub(super) fn u64(&mut self) -> io::Result<u64> {
        let bytes = self.take(8)?;
        Ok(u64::from_be_bytes(bytes.try_into().map_err(|_| malformed("a packet that ends early"))?))
    }

    /// So many bytes, when they are all here.
    pub(super) fn bytes(&mut self, count: u32) -> Option<&'a [u8]> {
        self.take(usize::try_from(count).ok()?).ok()
    }

    pub(super) fn string(&mut self) -> io::Result<&'a [u8]> {
        let length = usize::try_from(self.u32()?).unwrap_or(usize::MAX);
        self.take(length)
    }
}

/// A packet being built, its length in front.
pub(super) struct Reply(Vec<u8>);

impl Reply {
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    /// Begins a packet, forgetting the one before.
    pub(super) fn begin(&mut self, kind: u8) -> &mut Self {
        self.0.clear();
        self.0.extend_from_slice(&[0, 0, 0, 0, kind]);
        self
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn string(&mut self, bytes: &[u8]) -> &mut Self {
        // Nothing sent is near 4 GiB: paths are bounded by the packet they came in, data by MAX_DATA_BYTES.
        self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(bytes);
        self
    }

    /// A string of up to `most` bytes that `fill` puts in place; it says how many there are.
    pub(super) fn string_with<E>(
        &mut self,
        most: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let at = self.0.len();
        self.0.resize(at + 4 + most, 0);
        let count = fill(self.0.get_mut(at + 4..).unwrap_or_default())?.min(most);
        self.0.truncate(at + 4 + count);
        self.put_u32(at, u32::try_from(count).unwrap_or(u32::MAX));
        Ok(count)
    }

    /// Where the next field goes, for [`Reply::put_u32`].
    pub(super) fn put_u32(&mut self, at: usize, value: u32) {
        if let Some(place) = self.0.get_mut(at..at + 4) {
            place.copy_from_slice(&value.to_be_bytes());
        }
    }

    /// The finished packet.
    pub(super) fn bytes(&mut self) -> &[u8] {
        let length = u32::try_from(self.0.len().saturating_sub(4)).unwrap_or(u32::MAX);
        self.put_u32(0, length);
        &self.0
    }
}
