//! What a TLS client offers, from the first message that it sends.
//!
//! A proxy passes some connections on without ending TLS, and would still know what the client at the far end can do.
//! This reads a ClientHello (RFC 8446 §4.1.2) out of its records and takes what is of interest; it decides nothing.
//! Numbers are kept as they are, known or not.

use crate::tls_bytes::{long, number, short, take};

/// Longest ClientHello that is read, in bytes: several times what browsers send with two post-quantum key shares.
const LONGEST_BYTES: usize = 16 * 1024;
/// Entries of one list that are kept.
const MOST: usize = 64;
/// Longest name that is kept: a DNS name (RFC 1035 §2.3.4), or a protocol (RFC 7301 §3.1).
const LONGEST_NAME: usize = 255;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const EXTENSION_SERVER_NAME: u16 = 0;
const EXTENSION_GROUPS: u16 = 10;
const EXTENSION_SIGNATURES: u16 = 13;
const EXTENSION_ALPN: u16 = 16;
const EXTENSION_VERSIONS: u16 = 43;

/// What a TLS client offers. Values of RFC 8701, which mean nothing, are among them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsOffer {
    /// Versions of TLS; before 1.3 the one highest (RFC 8446 §4.2.1).
    pub versions: Vec<u16>,
    /// Named groups (§4.2.7).
    pub groups: Vec<u16>,
    /// Signature schemes (§4.2.3).
    pub signature_schemes: Vec<u16>,
    /// Protocols above TLS (RFC 7301).
    pub alpn: Vec<Vec<u8>>,
    /// The name asked for (RFC 6066 §3), when it is one.
    pub server_name: Option<String>,
}

/// Reads the ClientHello at the beginning of a connection. `None` while it is not complete, and when it is no
/// ClientHello: the listener that ends TLS tells those apart.
#[must_use]
pub fn read(first: &[u8]) -> Option<TlsOffer> {
    parse(&message(first)?)
}

/// Puts together what the records carry, up to the end of the first handshake message (RFC 8446 §5.1).
fn message(mut records: &[u8]) -> Option<Vec<u8>> {
    let mut message = Vec::new();
    loop {
        let [kind, major, _, high, low] = *records.first_chunk()?;
        if kind != HANDSHAKE || major != 3 {
            return None;
        }
        let length = usize::from(u16::from_be_bytes([high, low]));
        let (fragment, rest) = records.get(5..)?.split_at_checked(length)?;
        message.extend_from_slice(fragment);
        records = rest;
        if let Some([kind, a, b, c]) = message.first_chunk() {
            let length = usize::try_from(u32::from_be_bytes([0, *a, *b, *c])).ok()?;
            if *kind != CLIENT_HELLO || length > LONGEST_BYTES {
                return None;
            }
            if message.len() >= 4 + length {
                return message.get(4..4 + length).map(<[u8]>::to_vec);
            }
        }
    }
}

fn parse(hello: &[u8]) -> Option<TlsOffer> {
    let mut rest = hello;
    let legacy_version = number(&mut rest)?;
    let _random = take(&mut rest, 32)?;
    let _session = short(&mut rest)?;
    let _cipher_suites = long(&mut rest)?;
    let _compression = short(&mut rest)?;
    let mut offer = TlsOffer::default();
    // RFC 5246 §7.4.1.2: there may be no extensions at all.
    let mut extensions = if rest.is_empty() { rest } else { long(&mut rest)? };
    while !extensions.is_empty() {
        let kind = number(&mut extensions)?;
        let mut content = long(&mut extensions)?;
        match kind {
            EXTENSION_SERVER_NAME => offer.server_name = server_name(content),
            EXTENSION_GROUPS => offer.groups = numbers(long(&mut content)?),
            EXTENSION_SIGNATURES => offer.signature_schemes = numbers(long(&mut content)?),
            EXTENSION_VERSIONS => offer.versions = numbers(short(&mut content)?),
            EXTENSION_ALPN => {
                let mut list = long(&mut content)?;
                while !list.is_empty() && offer.alpn.len() < MOST {
                    offer.alpn.push(short(&mut list)?.to_vec());
                }
            }
            _ => {}
        }
    }
    if offer.versions.is_empty() {
        offer.versions.push(legacy_version);
    }
    Some(offer)
}

/// The first host name of the list, if it is text.
fn server_name(mut content: &[u8]) -> Option<String> {
    let mut list = long(&mut content)?;
    let kind = take(&mut list, 1)?;
    let name = long(&mut list)?;
    let fits = kind == [0] && name.len() <= LONGEST_NAME && name.iter().all(u8::is_ascii_graphic);
    fits.then(|| String::from_utf8_lossy(name).into_owned())
}

fn numbers(list: &[u8]) -> Vec<u16> {
    let (pairs, _) = list.as_chunks::<2>();
    pairs.iter().take(MOST).map(|pair| u16::from_be_bytes(*pair)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn prefixed(bytes: usize, content: &[u8]) -> Vec<u8> {
        let length = (content.len() as u32).to_be_bytes();
        [&length[4 - bytes..], content].concat()
    }

    fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &prefixed(2, content)].concat()
    }

    fn list(values: &[u16]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_be_bytes()).collect()
    }

    /// A handshake message, in records of at most `step` bytes.
    fn records(message: &[u8], step: usize) -> Vec<u8> {
        message.chunks(step).flat_map(|part| [&[22, 3, 1][..], &prefixed(2, part)].concat()).collect()
    }

    fn hello(extensions: Option<&[Vec<u8>]>) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend_from_slice(&[9; 32]);
        body.extend(prefixed(1, &[1; 32]));
        body.extend(prefixed(2, &list(&[0x1301, 0x1302])));
        body.extend(prefixed(1, &[0]));
        if let Some(extensions) = extensions {
            body.extend(prefixed(2, &extensions.concat()));
        }
        [&[1][..], &prefixed(3, &body)].concat()
    }

    fn modern() -> Vec<u8> {
        hello(Some(&[
            extension(0, &prefixed(2, &[&[0][..], &prefixed(2, b"proxy.example.com")].concat())),
            extension(10, &prefixed(2, &list(&[0x3a3a, 0x11ec, 0x001d, 0xfe00]))),
            extension(13, &prefixed(2, &list(&[0x0403, 0x0905]))),
            extension(16, &prefixed(2, &[prefixed(1, b"h2"), prefixed(1, b"http/1.1")].concat())),
            extension(43, &prefixed(1, &list(&[0x0304, 0x0303]))),
            extension(51, &[7; 1300]),
        ]))
    }

    #[test]
    fn lists_are_read_in_whatever_records_they_come() {
        let wanted = TlsOffer {
            versions: vec![0x0304, 0x0303],
            groups: vec![0x3a3a, 0x11ec, 0x001d, 0xfe00],
            signature_schemes: vec![0x0403, 0x0905],
            alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            server_name: Some("proxy.example.com".to_owned()),
        };
        for step in [1, 3, 500, 16_000] {
            let bytes = records(&modern(), step);
            assert_eq!(read(&bytes), Some(wanted.clone()), "in records of {step}");
            assert_eq!(read(&[&bytes[..], b"what follows"].concat()), Some(wanted.clone()));
            for length in [0, 4, 5, 9, 100, bytes.len() - 1] {
                assert_eq!(read(&bytes[..length]), None, "{length} bytes");
            }
        }
    }

    #[test]
    fn an_old_client_has_its_version_and_no_lists() {
        let offer = read(&records(&hello(None), 1000)).unwrap();
        assert_eq!(offer, TlsOffer { versions: vec![0x0303], ..TlsOffer::default() });
    }

    #[test]
    fn what_is_no_client_hello_says_nothing() {
        for bytes in [
            &b"SSH-2.0-x\r\n"[..],
            &[22, 3, 1, 0, 4, 2, 0, 0, 0],
            &[23, 3, 3, 0, 4, 1, 0, 0, 0],
            &[22, 3, 1, 0, 4, 1, 0xff, 0xff, 0xff],
            &records(&hello(Some(&[extension(10, &[0, 9, 0])])), 1000),
        ] {
            assert_eq!(read(bytes), None, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), at in 0usize..2000, step in 1usize..600) {
            let _ = read(&bytes);
            let mut changed = modern();
            let at = at.min(changed.len());
            changed.splice(at..(at + bytes.len()).min(modern().len()).max(at), bytes);
            if let Some(offer) = read(&records(&changed, step)) {
                prop_assert!(offer.groups.len() <= MOST && offer.alpn.len() <= MOST);
            }
        }
    }
}
