//! DER, as far as finding a key in it needs: one element after the other, bounded by what there is. It takes more
//! encodings than `sal::formats` does, since what is only looked at need not be in order.

/// Elements in a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Der<'a>(&'a [u8]);

pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OID: u8 = 0x06;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;

impl<'a> Der<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next element's tag and content.
    pub(super) fn any(&mut self) -> Option<(u8, &'a [u8])> {
        let (tag, rest) = self.0.split_first()?;
        let (first, rest) = rest.split_first()?;
        // X.690 §8.1.3; no length of more than four bytes, none that is open.
        let (length, rest) = match first {
            0..=0x7f => (usize::from(*first), rest),
            0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(usize::from(*first & 0x7f))?;
                (digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*tag, content))
    }

    /// The next element, if it has this tag; otherwise it stays.
    pub(super) fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        let mut ahead = *self;
        let (found, content) = ahead.any()?;
        if found != tag {
            return None;
        }
        *self = ahead;
        Some(content)
    }

    /// The elements in the next one, if that has this tag.
    pub(super) fn inside(&mut self, tag: u8) -> Option<Self> {
        self.take(tag).map(Self)
    }

    /// The tags of all elements that follow, eight at most.
    pub(super) fn tags(mut self) -> Vec<u8> {
        std::iter::from_fn(|| self.any()).map(|(tag, _)| tag).take(8).collect()
    }
}

/// Length of a number, in bits.
pub(super) fn bits(number: &[u8]) -> u32 {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    let digits = number.get(zeros..).unwrap_or_default();
    let leading = digits.first().map_or(0, |first| first.leading_zeros());
    u32::try_from(digits.len()).unwrap_or(u32::MAX).saturating_mul(8).saturating_sub(leading)
}

/// An OID as people write it. One that is too long to be real is cut short.
pub(super) fn dotted(oid: &[u8]) -> String {
    let mut text = String::new();
    let mut arc: u64 = 0;
    for byte in oid.iter().take(32) {
        arc = arc << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            continue;
        }
        if text.is_empty() {
            let first = (arc / 40).min(2);
            text = format!("{first}.{}", arc - first * 40);
        } else {
            text.push_str(&format!(".{arc}"));
        }
        arc = 0;
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lengths_are_bounded_by_what_there_is() {
        assert_eq!(Der::new(&[2, 1, 5]).any(), Some((2, &[5][..])));
        assert_eq!(Der::new(&[4, 0x81, 1, 9, 7]).any(), Some((4, &[9][..])));
        for bytes in [
            &[2][..],
            &[2, 2, 0],
            &[2, 0x80, 0, 0],
            &[2, 0x85, 0, 0, 0, 0, 1, 1],
            &[2, 0x84, 0xff, 0xff, 0xff, 0xff],
        ] {
            assert_eq!(Der::new(bytes).any(), None, "{bytes:?}");
        }
    }

    #[test]
    fn numbers_and_oids_read_as_they_are() {
        assert_eq!((bits(&[0, 0x80, 0]), bits(&[1]), bits(&[]), bits(&[0, 0])), (16, 1, 0, 0));
        assert_eq!(dotted(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01]), "1.2.840.113549.1.1.1");
        assert_eq!(dotted(&[0xff; 40]), "");
    }
}
