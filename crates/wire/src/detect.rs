//! What a connection to the one port speaks, from its first bytes.

/// The answer after some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Too few bytes to tell.
    NeedMore,
    /// SSH (RFC 4253 §4.2: the client may speak first).
    Ssh,
    /// A TLS handshake record (RFC 8446 §5.1).
    Tls,
    /// HTTP without TLS: a person with a browser and the wrong scheme.
    Http,
    /// PostgreSQL's first packet: a request for encryption, a cancel request, or a session without TLS.
    Postgres,
    /// Nothing that is spoken here.
    Unknown,
}

/// As many bytes as any answer needs.
pub const LONGEST: usize = 8;

const METHODS: [&[u8]; 9] =
    [b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"CONNECT ", b"OPTIONS ", b"TRACE ", b"PATCH "];

/// Looks at the first bytes of a connection, as many as have arrived. At most [`LONGEST`] are looked at, and with that
/// many the answer is never [`Verdict::NeedMore`].
#[must_use]
pub fn detect(first: &[u8]) -> Verdict {
    let mut more = first.is_empty();
    // A TLS record: type 22 (handshake), version major 3, and then a ClientHello (type 1) behind two length bytes.
    match first {
        [22, 3, _, _, _, 1, ..] => return Verdict::Tls,
        [22] | [22, 3] | [22, 3, _] | [22, 3, _, _] | [22, 3, _, _, _] => more = true,
        _ => {}
    }
    match prefix(first, b"SSH-") {
        Prefix::Whole => return Verdict::Ssh,
        Prefix::Part => more = true,
        Prefix::No => {}
    }
    for method in METHODS {
        match prefix(first, method) {
            Prefix::Whole => return Verdict::Http,
            Prefix::Part => more = true,
            Prefix::No => {}
        }
    }
    match postgres(first) {
        Prefix::Whole => return Verdict::Postgres,
        Prefix::Part => more = true,
        Prefix::No => {}
    }
    if more { Verdict::NeedMore } else { Verdict::Unknown }
}

/// A length of at most some 10,000 bytes, then one of three numbers that no version has, or a version 3
/// (PostgreSQL 17 documentation, chapter 53.7).
fn postgres(first: &[u8]) -> Prefix {
    let fits = |(index, byte): (usize, &u8)| match index {
        0 | 1 => *byte == 0,
        2 => *byte <= 0x27,
        4 => matches!(byte, 0 | 4),
        _ => true,
    };
    if !first.iter().take(LONGEST).enumerate().all(fits) {
        return Prefix::No;
    }
    match first.get(4..) {
        Some([0, major, ..]) if *major != 3 => Prefix::No,
        Some([4, second, ..]) if *second != 210 => Prefix::No,
        Some([4, 210, third, ..]) if *third != 22 => Prefix::No,
        Some([4, 210, 22, last, ..]) if !(46..=48).contains(last) => Prefix::No,
        Some([_, _, _, _, ..]) => Prefix::Whole,
        _ => Prefix::Part,
    }
}

enum Prefix {
    Whole,
    Part,
    No,
}

fn prefix(text: &[u8], wanted: &[u8]) -> Prefix {
    if text.starts_with(wanted) {
        Prefix::Whole
    } else if wanted.starts_with(text) {
        Prefix::Part
    } else {
        Prefix::No
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_protocol_is_told_however_it_is_split() {
        let cases: [(&[u8], Verdict); 11] = [
            (b"SSH-2.0-OpenSSH_9.2\r\n", Verdict::Ssh),
            (&[22, 3, 1, 0, 200, 1, 0, 0], Verdict::Tls),
            (b"GET / HTTP/1.1\r\n", Verdict::Http),
            (b"OPTIONS * HTTP/1.1\r\n", Verdict::Http),
            (&[0, 0, 0, 8, 4, 210, 22, 47], Verdict::Postgres),
            (&[0, 0, 0, 16, 4, 210, 22, 46, 0, 0], Verdict::Postgres),
            (b"\x00\x00\x00\x54\x00\x03\x00\x00user", Verdict::Postgres),
            (b"\x00\x00\x00\x54\x00\x02\x00\x00user", Verdict::Unknown),
            (&[0, 0, 0, 8, 4, 210, 22, 49], Verdict::Unknown),
            (b"\x00\x01garbage", Verdict::Unknown),
            (&[22, 3, 1, 0, 200, 2], Verdict::Unknown),
        ];
        for (bytes, wanted) in cases {
            let mut seen = Verdict::NeedMore;
            for length in 0..=bytes.len() {
                let verdict = detect(&bytes[..length]);
                if seen != Verdict::NeedMore {
                    assert_eq!(verdict, seen, "an answer changed its mind: {bytes:?} at {length}");
                }
                seen = verdict;
            }
            assert_eq!(seen, wanted, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn eight_bytes_always_suffice(bytes in prop::collection::vec(any::<u8>(), LONGEST..40)) {
            prop_assert_ne!(detect(&bytes), Verdict::NeedMore);
            prop_assert_eq!(detect(&bytes), detect(&bytes[..LONGEST]));
        }
    }
}
