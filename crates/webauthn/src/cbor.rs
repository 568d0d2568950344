//! CBOR in the CTAP2 canonical form, which is all that authenticators may write (CTAP 2.1 §8, WebAuthn L3 §6.1).
//!
//! Definite lengths in their shortest form, no tags, no floating point, at most [`MAX_DEPTH`] levels, and no key twice.
//! Anything else is refused: what has one encoding cannot be read in two ways. Values borrow from the input, and there
//! are never more of them than bytes.

use ciborium_ll::{Decoder, Header, simple};

/// Deepest nesting of maps and arrays (CTAP 2.1 §8).
pub(crate) const MAX_DEPTH: usize = 4;

/// Largest input, in bytes. An attestation object with a chain of certificates has fewer than 8 KiB.
pub const MAX_CBOR_BYTES: usize = 64 * 1024;

/// Whether the keys of the outermost map have to be in canonical order. Keys further inside always have to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// As CTAP2 wants of what an authenticator writes.
    Canonical,
    /// An attestation object is put together by the client, and WebAuthn L3 §6.5.4 fixes no order of its three keys.
    Any,
}

/// One item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Integer(i64),
    Bytes(&'a [u8]),
    Text(&'a str),
    Array(Vec<Value<'a>>),
    Map(Vec<(Value<'a>, Value<'a>)>),
    Bool(bool),
    Null,
}

/// Why bytes are no CBOR of this form, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason} at byte {at}")]
pub struct CborError {
    /// What is wrong.
    pub reason: &'static str,
    /// Where, in bytes from the start.
    pub at: usize,
}

impl<'a> Value<'a> {
    pub(crate) fn bytes(&self) -> Option<&'a [u8]> {
        if let Value::Bytes(bytes) = self { Some(bytes) } else { None }
    }

    pub(crate) fn text(&self) -> Option<&'a str> {
        if let Value::Text(text) = self { Some(text) } else { None }
    }

    pub(crate) fn integer(&self) -> Option<i64> {
        if let Value::Integer(number) = self { Some(*number) } else { None }
    }

    pub(crate) fn array(&self) -> Option<&[Value<'a>]> {
        if let Value::Array(items) = self { Some(items) } else { None }
    }

    pub(crate) fn map(&self) -> Option<&[(Value<'a>, Value<'a>)]> {
        if let Value::Map(entries) = self { Some(entries) } else { None }
    }

    /// What a map has under a text key.
    pub(crate) fn member(&self, name: &str) -> Option<&Value<'a>> {
        self.map()?.iter().find(|(key, _)| key.text() == Some(name)).map(|(_, value)| value)
    }

    /// What a map has under an integer key.
    pub(crate) fn at(&self, label: i64) -> Option<&Value<'a>> {
        self.map()?.iter().find(|(key, _)| key.integer() == Some(label)).map(|(_, value)| value)
    }
}

/// Reads one item and nothing after it.
pub(crate) fn whole(input: &[u8], order: Order) -> Result<Value<'_>, CborError> {
    let (value, used) = first(input, order)?;
    if used == input.len() { Ok(value) } else { Err(CborError { reason: "bytes follow the item", at: used }) }
}

/// Reads the item that the input begins with, and says how long it is.
pub(crate) fn first(input: &[u8], order: Order) -> Result<(Value<'_>, usize), CborError> {
    if input.len() > MAX_CBOR_BYTES {
        return Err(CborError { reason: "it is longer than 64 KiB", at: MAX_CBOR_BYTES });
    }
    let mut reader = Reader { input, at: 0 };
    let value = reader.item(0, order)?;
    Ok((value, reader.at))
}

struct Reader<'a> {
    input: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a [u8] {
        self.input.get(self.at..).unwrap_or_default()
    }

    fn error(&self, reason: &'static str) -> CborError {
        CborError { reason, at: self.at }
    }

    fn item(&mut self, depth: usize, order: Order) -> Result<Value<'a>, CborError> {
        let mut decoder = Decoder::from(self.rest());
        let header = decoder.pull().map_err(|_| self.error("the item is cut short or malformed"))?;
        let length = decoder.offset();
        let (shortest, value) = match header {
            Header::Positive(number) => {
                let value =
                    i64::try_from(number).map_err(|_| self.error("an integer has more than 63 bits"))?;
                (shortest_head(number), Value::Integer(value))
            }
            Header::Negative(number) => {
                // The number is -1 - n: for every n that fits, this does not overflow.
                let value =
                    i64::try_from(number).map_err(|_| self.error("an integer has more than 63 bits"))?;
                (shortest_head(number), Value::Integer(-1 - value))
            }
            Header::Bytes(Some(size)) => {
                let body = self.body(length, size)?;
                self.check_head(length, shortest_head(size as u64))?;
                self.at += length + size;
                return Ok(Value::Bytes(body));
            }
            Header::Text(Some(size)) => {
                let body = self.body(length, size)?;
                self.check_head(length, shortest_head(size as u64))?;
                let text = std::str::from_utf8(body).map_err(|_| self.error("a text is not UTF-8"))?;
                self.at += length + size;
                return Ok(Value::Text(text));
            }
            Header::Array(Some(count)) => {
                self.check_head(length, shortest_head(count as u64))?;
                let depth = self.deeper(depth)?;
                self.at += length;
                // An item has a byte at least, so the input bounds what is set aside.
                let mut items = Vec::with_capacity(count.min(self.rest().len()));
                for _ in 0..count {
                    items.push(self.item(depth, Order::Canonical)?);
                }
                return Ok(Value::Array(items));
            }
            Header::Map(Some(count)) => {
                self.check_head(length, shortest_head(count as u64))?;
                let depth = self.deeper(depth)?;
                self.at += length;
                return self.map(count, depth, order);
            }
            Header::Simple(simple::FALSE) => (1, Value::Bool(false)),
            Header::Simple(simple::TRUE) => (1, Value::Bool(true)),
            Header::Simple(simple::NULL) => (1, Value::Null),
            Header::Bytes(None)
            | Header::Text(None)
            | Header::Array(None)
            | Header::Map(None)
            | Header::Break => {
                return Err(self.error("a length is indefinite"));
            }
            Header::Tag(_) => return Err(self.error("there is a tag")),
            Header::Float(_) => return Err(self.error("there is a floating point number")),
            Header::Simple(_) => {
                return Err(self.error("there is a simple value other than true, false and null"));
            }
        };
        self.check_head(length, shortest)?;
        self.at += length;
        Ok(value)
    }

    fn map(&mut self, count: usize, depth: usize, order: Order) -> Result<Value<'a>, CborError> {
        let mut entries = Vec::with_capacity(count.min(self.rest().len() / 2));
        let mut keys: Vec<&'a [u8]> = Vec::new();
        for _ in 0..count {
            let start = self.at;
            let key = self.item(depth, Order::Canonical)?;
            if !matches!(key, Value::Integer(_) | Value::Text(_)) {
                return Err(CborError { reason: "a key is neither an integer nor a text", at: start });
            }
            let encoded = self.input.get(start..self.at).unwrap_or_default();
            if keys.contains(&encoded) {
                return Err(CborError { reason: "a key stands there twice", at: start });
            }
            // CTAP 2.1 §8: by major type, then the shorter first, then byte by byte.
            if order == Order::Canonical && keys.last().is_some_and(|last| rank(last) > rank(encoded)) {
                return Err(CborError { reason: "keys are not in their canonical order", at: start });
            }
            keys.push(encoded);
            // Pairs of one byte each would make this list long; no map of WebAuthn has more than a few keys.
            if keys.len() > MAX_KEYS {
                return Err(CborError { reason: "a map has more than 64 keys", at: start });
            }
            let value = self.item(depth, Order::Canonical)?;
            entries.push((key, value));
        }
        Ok(Value::Map(entries))
    }

    fn deeper(&self, depth: usize) -> Result<usize, CborError> {
        if depth < MAX_DEPTH { Ok(depth + 1) } else { Err(self.error("it is nested deeper than 4 levels")) }
    }

    fn check_head(&self, got: usize, shortest: usize) -> Result<(), CborError> {
        if got == shortest { Ok(()) } else { Err(self.error("a number is not in its shortest form")) }
    }

    fn body(&self, from: usize, size: usize) -> Result<&'a [u8], CborError> {
        let end = from.checked_add(size).ok_or_else(|| self.error("a length is longer than the input"))?;
        self.rest().get(from..end).ok_or_else(|| self.error("a length is longer than the input"))
    }
}

/// Most keys of a map.
const MAX_KEYS: usize = 64;

fn rank(key: &[u8]) -> (u8, usize, &[u8]) {
    (key.first().map_or(0, |first| first >> 5), key.len(), key)
}

/// Length of the shortest head for a number (RFC 8949 §4.2.1), in bytes.
fn shortest_head(number: u64) -> usize {
    match number {
        0..=0x17 => 1,
        0x18..=0xff => 2,
        0x100..=0xffff => 3,
        0x1_0000..=0xffff_ffff => 5,
        _ => 9,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_has_a_second_form_is_refused() {
        let reason = |bytes: &[u8]| whole(bytes, Order::Canonical).unwrap_err().reason;
        for (bytes, expected) in [
            (&[0x18, 0x17][..], "a number is not in its shortest form"),
            (&[0x58, 0x01, 0x00], "a number is not in its shortest form"),
            (&[0x98, 0x01, 0x00], "a number is not in its shortest form"),
            (&[0xb8, 0x01, 0x00, 0x00], "a number is not in its shortest form"),
            (&[0x5f, 0x41, 0x00, 0xff], "a length is indefinite"),
            (&[0xbf, 0xff], "a length is indefinite"),
            (&[0xc0, 0x00], "there is a tag"),
            (&[0xf9, 0x3c, 0x00], "there is a floating point number"),
            (&[0xf7], "there is a simple value other than true, false and null"),
            (&[0xa2, 0x01, 0x00, 0x01, 0x00], "a key stands there twice"),
            (&[0xa2, 0x02, 0x00, 0x01, 0x00], "keys are not in their canonical order"),
            (&[0xa2, 0x20, 0x00, 0x01, 0x00], "keys are not in their canonical order"),
            (&[0xa1, 0x41, 0x00, 0x00], "a key is neither an integer nor a text"),
            (&[0x81, 0x81, 0x81, 0x81, 0x81, 0x00], "it is nested deeper than 4 levels"),
            (&[0x61, 0xff], "a text is not UTF-8"),
            (&[0x1b, 0xff, 0, 0, 0, 0, 0, 0, 0], "an integer has more than 63 bits"),
            (&[0x5b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], "a length is longer than the input"),
            (&[0x00, 0x00], "bytes follow the item"),
            (&[0x42, 0x00], "a length is longer than the input"),
            (&[], "the item is cut short or malformed"),
            (&[0x1c], "the item is cut short or malformed"),
        ] {
            assert_eq!(reason(bytes), expected, "{bytes:02x?}");
        }
        let long = vec![0; MAX_CBOR_BYTES + 1];
        assert_eq!(reason(&long), "it is longer than 64 KiB");
        let mut keys = vec![0xb8, 65];
        for key in 0..65_u8 {
            keys.extend(if key < 24 { vec![key, 0] } else { vec![0x18, key, 0] });
        }
        assert_eq!(reason(&keys), "a map has more than 64 keys");
    }

    #[test]
    fn an_attestation_objects_keys_may_come_in_any_order() {
        let swapped = [0xa2, 0x02, 0x00, 0x01, 0x00];
        assert!(whole(&swapped, Order::Any).is_ok());
        // But not inside, and never twice.
        assert!(whole(&[&[0xa1, 0x00][..], &swapped].concat(), Order::Any).is_err());
        assert!(whole(&[0xa2, 0x01, 0x00, 0x01, 0x00], Order::Any).is_err());
    }

    #[test]
    fn the_examples_of_rfc_8949_are_read() {
        let read = |bytes: &'static [u8]| whole(bytes, Order::Canonical).unwrap();
        assert_eq!(read(&[0x3b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), Value::Integer(i64::MIN));
        assert_eq!(read(&[0x39, 0x03, 0xe7]), Value::Integer(-1000));
        assert_eq!(read(&[0xf4]), Value::Bool(false));
        assert_eq!(read(&[0xf6]), Value::Null);
        assert_eq!(read(&[0x62, 0xc3, 0xbc]), Value::Text("ü"));
        let map = read(&[0xa2, 0x61, 0x61, 0x01, 0x61, 0x62, 0x82, 0x02, 0x03]);
        assert_eq!(map.member("a").unwrap().integer(), Some(1));
        assert_eq!(map.member("b").unwrap().array().unwrap().len(), 2);
        assert_eq!(map.member("c"), None);
    }

    proptest! {
        /// Never a panic, and what was read is never longer than what was there.
        #[test]
        fn any_bytes_are_read_within_bounds(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            for order in [Order::Canonical, Order::Any] {
                if let Ok((value, used)) = first(&bytes, order) {
                    prop_assert!(used <= bytes.len());
                    prop_assert_eq!(whole(bytes.get(..used).unwrap(), order), Ok(value));
                }
            }
        }
    }
}
