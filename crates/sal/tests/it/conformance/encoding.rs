//! Hexadecimal, the files of vectors, and just enough DER and arithmetic to damage keys and signatures.

use std::sync::LazyLock;

use serde_json::Value;

/// Bytes from hexadecimal in lower case.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    data_encoding::HEXLOWER.decode(text.as_bytes()).expect("vectors are in lower-case hexadecimal")
}

/// NIST's vectors for ML-KEM and ML-DSA.
pub(crate) static ACVP: LazyLock<Value> = LazyLock::new(|| parse(include_str!("../vectors/acvp.json")));
/// Examples from RFCs and FIPS.
pub(crate) static PUBLISHED: LazyLock<Value> =
    LazyLock::new(|| parse(include_str!("../vectors/published.json")));
/// Our own, at the edge.
pub(crate) static EDGE: LazyLock<Value> = LazyLock::new(|| parse(include_str!("../vectors/edge.json")));
/// RSA keys, which take too long to make.
pub(crate) static KEYS: LazyLock<Value> = LazyLock::new(|| parse(include_str!("../vectors/keys.json")));

fn parse(text: &str) -> Value {
    serde_json::from_str(text).expect("the file of vectors is JSON")
}

/// The entries of a list in a file of vectors.
pub(crate) fn list<'a>(file: &'a Value, name: &str) -> &'a [Value] {
    file[name].as_array().expect("the file has the list")
}

/// A text member.
pub(crate) fn text<'a>(entry: &'a Value, name: &str) -> &'a str {
    entry[name].as_str().unwrap_or_else(|| panic!("{name} is a text"))
}

/// A member in hexadecimal.
pub(crate) fn bytes(entry: &Value, name: &str) -> Vec<u8> {
    hex(text(entry, name))
}

/// A DER element.
pub(crate) fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match content.len() {
        short @ 0..128 => out.push(u8::try_from(short).unwrap()),
        middle @ 128..256 => out.extend([0x81, u8::try_from(middle).unwrap()]),
        long => {
            out.push(0x82);
            out.extend(u16::try_from(long).unwrap().to_be_bytes());
        }
    }
    out.extend_from_slice(content);
    out
}

/// A non-negative INTEGER, in the shortest form.
pub(crate) fn der_integer(value: &[u8]) -> Vec<u8> {
    let start = value.iter().position(|byte| *byte != 0).unwrap_or(value.len());
    let mut content = value[start..].to_vec();
    if content.first().is_none_or(|byte| byte & 0x80 != 0) {
        content.insert(0, 0);
    }
    der(0x02, &content)
}

/// A SEQUENCE of parts that are DER already.
pub(crate) fn der_sequence(parts: &[&[u8]]) -> Vec<u8> {
    der(0x30, &parts.concat())
}

/// The INTEGERs of a SEQUENCE that is known to be well formed and shorter than 256 bytes, without leading zeros.
pub(crate) fn der_integers(sequence: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = if sequence[1] & 0x80 == 0 { &sequence[2..] } else { &sequence[3..] };
    let mut out = Vec::new();
    while let [0x02, length, tail @ ..] = rest {
        let (content, after) = tail.split_at(usize::from(*length));
        out.push(content.iter().copied().skip_while(|byte| *byte == 0).collect());
        rest = after;
    }
    out
}

/// The sum of two big-endian numbers.
pub(crate) fn add(left: &[u8], right: &[u8]) -> Vec<u8> {
    let length = left.len().max(right.len()) + 1;
    let mut out = padded(left, length);
    let mut carry = 0_u16;
    for (to, with) in out.iter_mut().zip(padded(right, length)).rev() {
        carry += u16::from(*to) + u16::from(with);
        *to = carry.to_le_bytes()[0];
        carry >>= 8;
    }
    out
}

/// The difference of two big-endian numbers, of which the first is not the smaller.
pub(crate) fn subtract(left: &[u8], right: &[u8]) -> Vec<u8> {
    let mut out = padded(left, left.len().max(right.len()));
    let mut borrow = 0_i16;
    let length = out.len();
    for (to, with) in out.iter_mut().zip(padded(right, length)).rev() {
        borrow += i16::from(*to) - i16::from(with);
        *to = borrow.to_le_bytes()[0];
        borrow >>= 8;
    }
    out
}

/// A big-endian number at a length, if it fits.
pub(crate) fn fitted(value: &[u8], length: usize) -> Option<Vec<u8>> {
    let start = value.iter().position(|byte| *byte != 0).unwrap_or(value.len());
    let mut out = vec![0; length.checked_sub(value.len() - start)?];
    out.extend_from_slice(&value[start..]);
    Some(out)
}

/// A big-endian number at a length that it is known to fit.
pub(crate) fn padded(value: &[u8], length: usize) -> Vec<u8> {
    fitted(value, length).expect("the number fits")
}

#[test]
fn the_arithmetic_is_right() {
    assert_eq!(add(&[0xff, 0xff], &[1]), [1, 0, 0]);
    assert_eq!(subtract(&[1, 0, 0], &[1]), [0, 0xff, 0xff]);
    assert_eq!(
        der_integers(&der_sequence(&[&der_integer(&[0x80, 1]), &der_integer(&[0, 7])])),
        [vec![0x80, 1], vec![7]]
    );
    assert_eq!(der_integer(&[]), [2, 1, 0]);
}
