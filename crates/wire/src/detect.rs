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
    if more { Verdict::NeedMore } else { Verdict::Unknown }
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
        let cases: [(&[u8], Verdict); 6] = [
            (b"SSH-2.0-OpenSSH_9.2\r\n", Verdict::Ssh),
            (&[22, 3, 1, 0, 200, 1, 0, 0], Verdict::Tls),
            (b"GET / HTTP/1.1\r\n", Verdict::Http),
            (b"OPTIONS * HTTP/1.1\r\n", Verdict::Http),
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
