//! The fields of frames: numbers in big-endian order, bytes and text with a length of four bytes before them.

use bytes::{Buf, BufMut, BytesMut};

/// What is read is no such field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unreadable;

/// Reads fields off the front of a payload.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn u8(&mut self) -> Result<u8, Unreadable> {
        self.0.try_get_u8().map_err(|_| Unreadable)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Unreadable> {
        self.0.try_get_u16().map_err(|_| Unreadable)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Unreadable> {
        self.0.try_get_u32().map_err(|_| Unreadable)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Unreadable> {
        self.0.try_get_u64().map_err(|_| Unreadable)
    }

    /// 0 or 1.
    pub(super) fn flag(&mut self) -> Result<bool, Unreadable> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Unreadable),
        }
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Unreadable> {
        let length = self.u32()? as usize;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Unreadable)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(super) fn text(&mut self) -> Result<String, Unreadable> {
        std::str::from_utf8(self.bytes()?).map(str::to_owned).map_err(|_| Unreadable)
    }

    /// A number, and as many items. `most` of them, and no room is made before they are there.
    pub(super) fn list<T>(
        &mut self,
        most: usize,
        mut item: impl FnMut(&mut Self) -> Result<T, Unreadable>,
    ) -> Result<Vec<T>, Unreadable> {
        let count = usize::from(self.u16()?);
        if count > most {
            return Err(Unreadable);
        }
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }
}

/// Appends fields. Lengths past four bytes do not fit into a frame, which its length finds out.
pub(super) trait Write {
    fn bytes(&mut self, bytes: &[u8]);
    fn text(&mut self, text: &str);
    fn flag(&mut self, flag: bool);
    /// The number of items of a list; past what two bytes say, the frame is too long.
    fn count(&mut self, items: usize);
}

impl Write for BytesMut {
    fn bytes(&mut self, bytes: &[u8]) {
        self.put_u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.extend_from_slice(bytes);
    }

    fn text(&mut self, text: &str) {
        Write::bytes(self, text.as_bytes());
    }

    fn flag(&mut self, flag: bool) {
        self.put_u8(u8::from(flag));
    }

    fn count(&mut self, items: usize) {
        self.put_u16(u16::try_from(items).unwrap_or(u16::MAX));
    }
}

/// At most `most` bytes, cut between characters.
pub(super) fn shorten(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or_default()
}
