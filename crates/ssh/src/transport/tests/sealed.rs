//! Guesses, what a client is told of a breach, and what it says under its keys before the login.

use super::*;
use crate::transport::exchange::Side;
use crate::transport::proposal::Method;

/// A server that has heard these in the clear, and whether it has answered a client's share.
fn answers(drafts: &[Draft]) -> Result<bool, Breach> {
    let mut server = Transport::server(opening(SERVER, Limits::default()), host(KeyAlgorithm::Ed25519))?;
    let mut out = BytesMut::from(format!("{CLIENT}\r\n").as_bytes());
    let mut outgoing = packet::Outgoing::default();
    for draft in drafts {
        outgoing.put(&mut out, &draft.0)?;
    }
    server.input().extend_from_slice(&out);
    while server.next()?.is_some() {}
    Ok(server.session().is_some())
}

#[test]
fn a_wrong_guess_is_passed_over_and_a_right_one_counts() {
    // The flag is the last byte but four.
    let guessing = |kex: &[&str]| {
        let mut draft = proposal(kex);
        let at = draft.0.len() - 5;
        draft.0[at] = 1;
        draft
    };
    let share = |method| Draft::new(ECDH_INIT).string(&Side::start(method).unwrap().share());
    let nothing = Draft::new(ECDH_INIT).string(b"a share of another method");
    // What the server likes best.
    let best = "mlkem768x25519-sha256";
    assert!(answers(&[guessing(&[best]), share(Method::Hybrid)]).unwrap());
    assert_eq!(answers(&[guessing(&[best]), nothing.clone()]).unwrap_err(), Breach::Share);
    let other = "curve25519-sha256";
    assert!(!answers(&[guessing(&[other]), nothing.clone()]).unwrap());
    assert!(answers(&[guessing(&[other]), nothing.clone(), share(Method::Curve)]).unwrap());
    // One packet is passed over, and none where no guess was announced.
    let twice = answers(&[guessing(&[other]), nothing.clone(), nothing.clone()]);
    assert_eq!(twice.unwrap_err(), Breach::Share);
    assert_eq!(answers(&[proposal(&[other]), nothing]).unwrap_err(), Breach::Share);
}

/// A client and a server that have exchanged keys.
fn keyed() -> (Transport, Transport) {
    let mut client = Transport::client(opening(CLIENT, Limits::default())).unwrap();
    let mut server =
        Transport::server(opening(SERVER, Limits::default()), host(KeyAlgorithm::Ed25519)).unwrap();
    while server.session().is_none() || client.session().is_none() {
        server.input().extend_from_slice(&client.output().split());
        while server.next().unwrap().is_some() {}
        client.input().extend_from_slice(&server.output().split());
        while let Some(step) = client.next().unwrap() {
            assert!(matches!(step, Step::Host(_)), "{step:?}");
            client.accept_host().unwrap();
            client.new_keys().unwrap();
        }
    }
    server.input().extend_from_slice(&client.output().split());
    assert!(server.next().unwrap().is_none());
    (client, server)
}

#[test]
fn a_client_before_its_login_is_told_of_its_own_mistakes_alone() {
    for (breach, is_told) in [
        (Breach::Unexpected { message: 90, expected: "a login" }, true),
        (Breach::Malformed("USERAUTH_REQUEST"), true),
        (Breach::Attempts, true),
        (Breach::Unavailable("slot 3 of the token in /dev/one".to_owned()), false),
        (Breach::Order("there is no session"), false),
        (Breach::Keys("does nothing but renew keys"), false),
    ] {
        for is_in in [false, true] {
            let (mut client, mut server) = keyed();
            if is_in {
                server.let_in();
            }
            server.break_off(&breach);
            client.input().extend_from_slice(&server.output().split());
            let Some(Step::Farewell(said)) = client.next().unwrap() else { panic!("no farewell") };
            let words = breach.to_string();
            let has = said.windows(words.len()).any(|part| part == words.as_bytes());
            assert_eq!(has, is_told || is_in, "{breach}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_sealed_payload_lets_a_client_in_without_a_proof(
        payloads in proptest::collection::vec(
            (prop_oneof![any::<u8>(), Just(USERAUTH_REQUEST), Just(KEXINIT), Just(SERVICE_REQUEST)],
             proptest::collection::vec(any::<u8>(), 0..300)),
            1..12,
        ),
        methods in proptest::collection::vec((any::<bool>(), 0_usize..200), 12),
    ) {
        let mut both = Both::keyed();
        for ((number, rest), (is_login, cut)) in payloads.into_iter().zip(methods) {
            // Half of them begin as a login does, and end anywhere.
            let draft = if is_login {
                let mut draft = query("ssh-ed25519", &rest);
                draft.0.truncate(cut.max(1));
                draft
            } else {
                Draft::new(number).raw(&rest)
            };
            both.client.say_out_of_turn(&draft.0);
        }
        let _ = both.talk();
        prop_assert!(both.server.user().is_none());
    }
}
