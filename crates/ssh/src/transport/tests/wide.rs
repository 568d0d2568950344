//! What servers speak beside what clients of ours do: ChaCha20-Poly1305, and the finite field.

use sallyport_sal::algorithm::AeadAlgorithm;

use super::*;
use crate::transport::proposal::{Method, Spoken};

/// What a client proposes.
const fn spoken(methods: &'static [(&'static str, Method)], ciphers: &'static [AeadAlgorithm]) -> Spoken {
    Spoken { methods, ciphers }
}

const CHACHA: &[AeadAlgorithm] = &[AeadAlgorithm::ChaCha20Poly1305];
const GCM: &[AeadAlgorithm] = &[AeadAlgorithm::Aes256Gcm];
const CURVE: &[(&str, Method)] = &[("curve25519-sha256", Method::Curve)];
const P384: &[(&str, Method)] = &[("ecdh-sha2-nistp384", Method::P384)];
const FIELD: &[(&str, Method)] = &[("diffie-hellman-group16-sha512", Method::Group16)];

fn both(spoken: Spoken, limits: Limits) -> Both {
    let mut both = Both::usual();
    both.client = Transport::wide_client(opening(CLIENT, limits), spoken).unwrap();
    both.server = Server::new(opening(SERVER, limits), host(KeyAlgorithm::Ed25519), MOST).unwrap();
    both
}

fn in_both(spoken: Spoken, limits: Limits) -> (Transport, Transport) {
    let mut both = both(spoken, limits);
    both.talk().unwrap();
    both.say(&Draft::new(SERVICE_REQUEST).string(USERAUTH));
    let login = both.log_in(&*key(KeyAlgorithm::Ed25519));
    both.say(&login);
    both.talk().unwrap();
    assert_eq!(both.numbers(), [SERVICE_ACCEPT, USERAUTH_BANNER, USERAUTH_SUCCESS]);
    both.client.let_in();
    let Both { client, server, .. } = both;
    (client, server.into_transport().unwrap())
}

/// Keys of one digest and of several, messages of every length modulo the block, renewed in between.
#[test]
fn every_method_goes_with_every_cipher() {
    for methods in [CURVE, P384, FIELD] {
        for ciphers in [GCM, CHACHA] {
            let limits = Limits { bytes: 20_000, ..Limits::default() };
            let (mut client, mut server) = in_both(spoken(methods, ciphers), limits);
            for length in (0..40).chain([4000, 32_768, 200_000]) {
                let draft = Draft::new(CHANNEL_DATA).u32(0).string(&vec![7; length]);
                for client_says in [true, false] {
                    let (from, to) =
                        if client_says { (&mut client, &mut server) } else { (&mut server, &mut client) };
                    from.send(&draft.0).unwrap();
                    assert_eq!(pass(from, to).unwrap(), [Bytes::from(draft.0.clone())], "{length}");
                }
            }
        }
    }
}

/// A server under a key of ChaCha20, and the bytes of a client's first packet.
fn sealed() -> (Both, Vec<u8>) {
    let mut both = both(spoken(CURVE, CHACHA), Limits::default());
    both.talk().unwrap();
    both.say(&Draft::new(SERVICE_REQUEST).string(USERAUTH));
    let bytes = both.client.output().split().to_vec();
    (both, bytes)
}

fn hears(mut both: Both, bytes: &[u8]) -> Result<Option<Question>, Breach> {
    both.server.input().extend_from_slice(bytes);
    both.server.question()
}

#[test]
fn under_chacha20_a_packet_is_whole_and_as_it_was_or_ends_the_connection() {
    let (both, bytes) = sealed();
    assert!(matches!(hears(both, &bytes), Ok(Some(Question::Begins))));
    // The server waits for the rest of a packet that is cut short.
    for cut in [1, 3, 4, 5, bytes.len() - 17, bytes.len() - 16, bytes.len() - 1] {
        let (both, bytes) = sealed();
        assert!(matches!(hears(both, &bytes[..cut]), Ok(None)), "{cut}");
    }
    // Its content and its tag.
    for at in [4, 5, bytes.len() - 17, bytes.len() - 16, bytes.len() - 1] {
        let (both, mut bytes) = sealed();
        bytes[at] ^= 1;
        assert_eq!(hears(both, &bytes).unwrap_err(), Breach::Altered, "{at}");
    }
    // Its length is not authenticated when it is read: too long, or no whole blocks.
    for (at, bit) in [(0, 0x80), (1, 0x80), (3, 1)] {
        let (both, mut bytes) = sealed();
        bytes[at] ^= bit;
        assert!(matches!(hears(both, &bytes), Err(Breach::Length(_))), "{at}");
    }
    // A packet that is shorter than its length says: the server looks for the tag where there is none.
    let (both, mut bytes) = sealed();
    bytes[3] ^= 8;
    bytes.extend_from_slice(&[0; 64]);
    assert!(matches!(hears(both, &bytes), Err(Breach::Altered | Breach::Length(_))));
    // Played again, and left out.
    let (mut both, bytes) = sealed();
    both.server.input().extend_from_slice(&[&bytes[..], &bytes].concat());
    assert!(matches!(both.server.question(), Ok(Some(Question::Begins))));
    both.server.begin(None).unwrap();
    assert!(matches!(both.server.question(), Err(Breach::Altered | Breach::Length(_))));
    let (mut both, _lost) = sealed();
    both.say(&Draft::new(SERVICE_REQUEST).string(USERAUTH));
    let bytes = both.client.output().split().to_vec();
    assert!(matches!(hears(both, &bytes), Err(Breach::Altered | Breach::Length(_))));
}

/// The shares of a finite field that are none.
#[test]
fn a_share_outside_of_the_field_ends_the_connection() {
    let kex = ["diffie-hellman-group16-sha512"];
    let mut far = vec![0];
    far.extend_from_slice(&[0xff; 512]);
    for share in [&[][..], &[0], &[1], &[0x80], &[0, 2], &far] {
        let breach = in_the_clear(&[proposal(&kex), Draft::new(ECDH_INIT).string(share)]).unwrap_err();
        assert_eq!(breach, Breach::Share, "{share:?}");
    }
    let taken = in_the_clear(&[proposal(&kex), Draft::new(ECDH_INIT).string(&[2])]);
    assert!(taken.unwrap().is_none());
}
