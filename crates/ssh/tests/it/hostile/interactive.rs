//! Clients of the proxy that are asked for a second factor and mean ill, or say nothing.

use std::time::Duration;

use sallyport_ssh::jump::JumpConfig;

use crate::hostile::Alice;
use crate::hostile::face::Target;
use crate::hostile::raw::{Packet, Raw, message};

/// Words before the login, for clients that do not say that they know certificates.
const BANNER: u8 = 53;
/// RFC 4256 §5.
const INFO_REQUEST: u8 = 60;
const INFO_RESPONSE: u8 = 61;

fn asks(user: &str) -> Packet {
    let request = Packet::new(message::USERAUTH_REQUEST).string(user).string("ssh-connection");
    request.string("keyboard-interactive").string("").string("")
}

fn types(answer: &str) -> Packet {
    Packet::new(INFO_RESPONSE).number(1).string(answer)
}

fn greeted(target: &Target) -> Raw {
    let mut raw = Raw::keyed(target.address).unwrap();
    raw.service().unwrap();
    raw
}

/// A client that has proven alice's key, and has to prove more.
fn proven(target: &Target) -> Raw {
    let mut raw = greeted(target);
    let alice = Alice::new(&target.world);
    let answer = raw.authenticate("mfa", &alice.key, &alice.certificate).unwrap();
    assert_eq!(answer, message::USERAUTH_FAILURE);
    raw
}

fn answer(raw: &mut Raw, packet: &Packet) -> Vec<u8> {
    raw.send(packet).unwrap();
    loop {
        let heard = raw.receive().unwrap();
        if heard[0] != BANNER {
            return heard;
        }
    }
}

fn words(packet: &[u8]) -> String {
    String::from_utf8_lossy(packet).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_factor_is_asked_for_after_the_key_and_of_the_same_user() {
    let target = Target::proxy(JumpConfig::default()).await;
    let mut raw = greeted(&target);
    assert_eq!(answer(&mut raw, &asks("mfa"))[0], message::USERAUTH_FAILURE);
    let mut raw = proven(&target);
    let asked = answer(&mut raw, &asks("mfa"));
    assert!(asked[0] == INFO_REQUEST && words(&asked).contains("prove it"), "{asked:?}");
    assert_eq!(answer(&mut raw, &types("right"))[0], message::USERAUTH_SUCCESS);
    // Another user in the middle of it.
    let mut raw = proven(&target);
    let told = answer(&mut raw, &asks("alice"));
    assert!(told[0] == message::DISCONNECT && words(&told).contains("another account"), "{told:?}");
    // A channel before the answer.
    let mut raw = proven(&target);
    assert_eq!(answer(&mut raw, &asks("mfa"))[0], INFO_REQUEST);
    let told = answer(&mut raw, &Raw::open(0, 1 << 20, 1 << 15));
    assert!(told[0] == message::DISCONNECT && words(&told).contains("a login was expected"), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn five_answers_are_wrong_and_the_client_has_to_connect_anew() {
    let target = Target::proxy(JumpConfig::default()).await;
    let mut raw = proven(&target);
    assert_eq!(answer(&mut raw, &asks("mfa"))[0], INFO_REQUEST);
    for _ in 0..4 {
        let asked = answer(&mut raw, &types("1234"));
        assert!(asked[0] == INFO_REQUEST && words(&asked).contains("1234 is wrong"), "{asked:?}");
    }
    assert_eq!(answer(&mut raw, &types("1234"))[0], message::USERAUTH_FAILURE);
    // Not even the right one, nor by asking anew.
    assert_eq!(answer(&mut raw, &asks("mfa"))[0], message::USERAUTH_FAILURE);
    let mut raw = proven(&target);
    assert_eq!(answer(&mut raw, &asks("mfa"))[0], INFO_REQUEST);
    assert_eq!(
        answer(&mut raw, &types(&"1".repeat(300)))[0],
        message::USERAUTH_FAILURE,
        "an overlong answer"
    );
    let mut raw = proven(&target);
    assert_eq!(answer(&mut raw, &asks("mfa"))[0], INFO_REQUEST);
    let none = Packet::new(INFO_RESPONSE).number(0);
    assert_eq!(answer(&mut raw, &none)[0], message::USERAUTH_FAILURE, "no answer to the prompt");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_answer_is_sent_away() {
    let config = JumpConfig { idle_timeout: Duration::from_secs(1), ..JumpConfig::default() };
    let target = Target::proxy(config).await;
    let mut raw = proven(&target);
    assert_eq!(answer(&mut raw, &asks("mfa"))[0], INFO_REQUEST);
    let told = raw.receive().unwrap();
    assert!(told[0] == message::DISCONNECT && words(&told).contains("no second factor"), "{told:?}");
}
