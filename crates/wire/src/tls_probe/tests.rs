#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "tests")]

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn prefixed(bytes: usize, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32).to_be_bytes();
    [&length[4 - bytes..], content].concat()
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &prefixed(2, content)].concat()
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &prefixed(3, body)].concat()
}

/// Handshake messages in records of at most `step` bytes.
fn records(messages: &[u8], step: usize) -> Vec<u8> {
    messages.chunks(step).flat_map(|part| [&[22, 3, 3][..], &prefixed(2, part)].concat()).collect()
}

fn server_hello(random: [u8; 32], suite: u16, extensions: &[Vec<u8>]) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend_from_slice(&random);
    body.extend(prefixed(1, &[7; 32]));
    body.extend_from_slice(&suite.to_be_bytes());
    body.push(0);
    body.extend(prefixed(2, &extensions.concat()));
    message(2, &body)
}

const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// As of TLS 1.2 with an RSA key, a stapled answer and a wish for a client certificate.
fn flight() -> Vec<u8> {
    let curve = [&[3, 0, 0x1d][..], &prefixed(1, &[9; 32]), &[8, 4], &prefixed(2, &[1; 256])].concat();
    let extensions = [
        extension(0xff01, &[0]),
        extension(23, &[]),
        extension(35, &[]),
        extension(16, &prefixed(2, &prefixed(1, b"h2"))),
    ];
    [
        server_hello([9; 32], 0xc02f, &extensions),
        message(11, &prefixed(3, &[prefixed(3, &[0x30; 900]), prefixed(3, &[0x31; 1200])].concat())),
        message(22, &[1, 0, 0, 1, 5]),
        message(12, &curve),
        message(13, &[1, 1, 0, 2, 4, 1, 0, 0]),
        message(14, &[]),
    ]
    .concat()
}

fn read(bytes: &[u8], step: usize) -> (Result<(), Unreadable>, Answer, bool) {
    let mut reader = Reader::default();
    let outcome = bytes.chunks(step.max(1)).try_for_each(|part| reader.read(part));
    let over = reader.is_over();
    (outcome, reader.into_answer(), over)
}

#[test]
fn a_flight_of_tls_1_2_is_read_in_whatever_pieces_it_comes() {
    for (fragment, step) in [(1 << 14, 1 << 14), (1 << 14, 1), (1, 1000), (3, 7), (700, 699)] {
        let bytes = records(&flight(), fragment);
        let (outcome, answer, over) = read(&bytes, step);
        assert_eq!((outcome, over), (Ok(()), true), "in records of {fragment}, {step} at a time");
        let hello = answer.hello.unwrap();
        assert_eq!((hello.version, hello.suite, hello.retry, hello.group), (TLS_1_2, 0xc02f, false, None));
        assert!(hello.ticket && hello.extended_master_secret && hello.secure_renegotiation);
        assert_eq!(hello.alpn.as_deref(), Some(&b"h2"[..]));
        assert_eq!(answer.certificates.iter().map(Vec::len).collect::<Vec<_>>(), [900, 1200]);
        let exchange = answer.key_exchange.unwrap();
        assert_eq!(
            (exchange.group, exchange.modulus_bits, exchange.scheme),
            (Some(0x1d), None, Some(0x0804))
        );
        assert!(answer.stapled && answer.asks_for_certificate && answer.alert.is_none());
        assert_eq!(answer.bytes, bytes.len());
        // What follows the flight is not read here.
        assert_eq!(read(&[&bytes[..], b"GARBAGE"].concat(), step).1.bytes, bytes.len());
    }
}

#[test]
fn a_retry_and_a_hello_of_tls_1_3_are_told_apart() {
    let extensions = |share: &[u8]| [extension(43, &[3, 4]), extension(51, share)];
    let (_, answer, over) = read(&records(&server_hello(RETRY, 0x1301, &extensions(&[0x11, 0xec])), 50), 9);
    let hello = answer.hello.unwrap();
    assert_eq!((hello.version, hello.retry, hello.group, over), (TLS_1_3, true, Some(0x11ec), true));
    let share = [&[0, 0x17][..], &prefixed(2, &[4; 65])].concat();
    let bytes =
        [&records(&server_hello([1; 32], 0x1302, &extensions(&share)), 999)[..], &[20, 3, 3, 0, 1, 1]]
            .concat();
    let (outcome, answer, _) = read(&bytes, 999);
    let hello = answer.hello.unwrap();
    assert_eq!((outcome, hello.retry, hello.group, hello.suite), (Ok(()), false, Some(0x17), 0x1302));
}

#[test]
fn primes_are_measured_without_their_leading_zeros() {
    for (prime, bits) in [(vec![0xff; 128], 1024), ([&[0][..], &[0x80; 256]].concat(), 2048), (vec![0, 1], 1)]
    {
        let exchange = [
            prefixed(2, &prime),
            prefixed(2, &[2]),
            prefixed(2, &[5; 128]),
            vec![2, 1],
            prefixed(2, &[1; 128]),
        ];
        let flight = [server_hello([9; 32], 0x0033, &[]), message(12, &exchange.concat())].concat();
        let exchange = read(&records(&flight, 4000), 4000).1.key_exchange.unwrap();
        assert_eq!((exchange.modulus_bits, exchange.scheme), (Some(bits), Some(0x0201)));
    }
}

#[test]
fn alerts_end_it_and_warnings_do_not() {
    let (outcome, answer, over) = read(&[21, 3, 1, 0, 2, 2, 70], 3);
    assert_eq!((outcome, answer.alert, over), (Ok(()), Some(Alert(70)), true));
    assert_eq!(answer.alert.unwrap().name(), "protocol_version");
    let warned = [&[21, 3, 3, 0, 2, 1, 112][..], &records(&flight(), 5000)].concat();
    let (outcome, answer, over) = read(&warned, 5000);
    assert!(outcome.is_ok() && over && answer.alert.is_none() && answer.hello.is_some());
}

#[test]
fn what_is_no_answer_is_refused_with_its_reason() {
    let refused = |bytes: &[u8]| read(bytes, 7).0.unwrap_err().to_string();
    assert_eq!(refused(b"HTTP/1.1 400 Bad Request\r\n"), "it does not answer in TLS but with \"HTTP/\"");
    assert_eq!(refused(&[22, 9, 9]), "it does not answer in TLS but with \"...\"");
    assert_eq!(refused(&[22, 3, 3, 0xff, 0xff]), "its record is longer than 18432 bytes");
    assert_eq!(
        refused(&[22, 3, 3, 0, 4, 2, 0xff, 0xff, 0xff]),
        "its handshake message is longer than 131072 bytes"
    );
    assert_eq!(refused(&[22, 3, 3, 0, 0]), "its record is malformed");
    assert_eq!(refused(&[21, 3, 3, 0, 1, 2]), "its alert is malformed");
    assert_eq!(refused(&records(&message(2, &[3, 3, 1]), 99)), "its ServerHello is malformed");
    assert_eq!(refused(&records(&message(14, &[]), 99)), "it sent handshake message 14 out of turn");
    let twice = [server_hello([9; 32], 0xc02f, &[]), server_hello([9; 32], 0xc02f, &[])].concat();
    assert_eq!(refused(&records(&twice, 999)), "it sent handshake message 2 out of turn");
    let certificates = prefixed(3, &prefixed(3, &[]).repeat(33));
    let many = [server_hello([9; 32], 0xc02f, &[]), message(11, &certificates)].concat();
    assert_eq!(refused(&records(&many, 999)), "its list of certificates is malformed");
    // Records without end, none of them more than a promise.
    let endless = records(&[&[2, 1, 0xff, 0xff][..], &[0; 70_000]].concat(), 1);
    assert_eq!(refused(&endless), "its answer is longer than 262144 bytes");
}

#[test]
fn a_question_is_a_client_hello() {
    let hello = Hello {
        version: TLS_1_3,
        suites: vec![0x1301, 0x1302],
        groups: vec![0x11ec, 0x1d],
        shares: vec![(0x1d, vec![5; 32])],
        schemes: vec![0x0403, 0x0905],
        server_name: Some("www.example.com".to_owned()),
        alpn: vec!["h2".to_owned(), "http/1.1".to_owned()],
        compression: true,
    };
    let offer = crate::client_hello::read(&hello.encode(&[3; 64])).unwrap();
    assert_eq!(offer.versions, [TLS_1_3]);
    assert_eq!((offer.groups, offer.signature_schemes), (hello.groups.clone(), hello.schemes.clone()));
    assert_eq!(offer.alpn, [b"h2".to_vec(), b"http/1.1".to_vec()]);
    assert_eq!(offer.server_name, hello.server_name);
    let old = Hello { version: TLS_1_0, groups: vec![], ..hello.clone() };
    let offer = crate::client_hello::read(&old.encode(&[3; 64])).unwrap();
    assert_eq!(offer.versions, [TLS_1_0]);
    assert!(offer.groups.is_empty() && offer.signature_schemes.is_empty());
    // One longer than a record goes in several.
    let big = Hello { shares: vec![(1, vec![1; 20_000])], ..hello };
    assert!(
        crate::client_hello::read(&big.encode(&[3; 64])).is_none() && big.encode(&[3; 64]).len() > 20_000
    );
}

#[test]
fn suites_are_each_there_once_and_say_what_they_are_made_of() {
    let codes: BTreeSet<u16> = SUITES.iter().map(|suite| suite.code).collect();
    let names: BTreeSet<&str> = SUITES.iter().map(|suite| suite.name).collect();
    assert_eq!((codes.len(), names.len()), (SUITES.len(), SUITES.len()));
    let parts = |code| {
        let suite = suite(code).unwrap();
        (suite.agreement(), suite.proof(), suite.is_aead())
    };
    assert_eq!(parts(0x1301), (Agreement::Later, Proof::Later, true));
    assert_eq!(parts(0xc02b), (Agreement::Curve, Proof::Ecdsa, true));
    assert_eq!(parts(0x0016), (Agreement::Prime, Proof::Rsa, false));
    assert_eq!(parts(0x0032), (Agreement::Prime, Proof::Dsa, false));
    assert_eq!(parts(0x009c), (Agreement::Encrypted, Proof::Rsa, true));
    assert_eq!(parts(0x0018), (Agreement::Prime, Proof::None, false));
    assert_eq!(parts(0x0003), (Agreement::Encrypted, Proof::Rsa, false));
    assert_eq!(suite(0xfefe), None);
}

proptest! {
    #[test]
    fn the_answer_does_not_depend_on_the_pieces(
        noise in prop::collection::vec(any::<u8>(), 0..300),
        at in 0usize..3000,
        fragment in 1usize..5000,
        step in 1usize..700,
    ) {
        let mut changed = flight();
        let at = at.min(changed.len());
        let end = (at + noise.len()).min(changed.len());
        changed.splice(at..end, noise.iter().copied());
        for bytes in [records(&changed, fragment), noise] {
            let (whole, pieces) = (read(&bytes, usize::MAX), read(&bytes, step));
            prop_assert_eq!(&whole.0.is_ok(), &pieces.0.is_ok());
            prop_assert_eq!(whole.1.hello, pieces.1.hello);
            prop_assert_eq!(whole.1.certificates, pieces.1.certificates);
            prop_assert_eq!(whole.2, pieces.2);
        }
    }
}
