//! What messages of TLS are made of: numbers and vectors with their length before them (RFC 8446 §3).

/// So many bytes, which are gone from the rest then; none where it is shorter.
pub(crate) fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}

/// A number of two bytes.
pub(crate) fn number(rest: &mut &[u8]) -> Option<u16> {
    take(rest, 2)?.try_into().ok().map(u16::from_be_bytes)
}

/// What one length byte stands before.
pub(crate) fn short<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let [length] = *take(rest, 1)? else { return None };
    take(rest, usize::from(length))
}

/// What two length bytes stand before.
pub(crate) fn long<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = number(rest)?;
    take(rest, usize::from(length))
}

/// What three length bytes stand before.
pub(crate) fn three<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let [a, b, c] = *take(rest, 3)? else { return None };
    take(rest, usize::try_from(u32::from_be_bytes([0, a, b, c])).ok()?)
}
