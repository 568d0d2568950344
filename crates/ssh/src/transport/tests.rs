//! Both sides of the transport against each other, without a network; and clients that mean ill.

mod interactive;
mod sealed;
mod security_keys;
mod wide;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use sallyport_ca::keys::{ssh_public_key, ssh_signature};
use sallyport_sal::{HybridKeyExchange, KeyAlgorithm, MemoryKey, Signer};

use super::message::*;
use super::server::{Question, Server};
use super::*;

const CLIENT: &str = "SSH-2.0-client_1";
const SERVER: &str = "SSH-2.0-Sallyport_test";
const MOST: usize = 4;

fn opening(identification: &'static str, limits: Limits) -> Opening {
    Opening { identification, demand: HybridKeyExchange::Preferred, limits }
}

fn key(algorithm: KeyAlgorithm) -> Arc<MemoryKey> {
    Arc::new(MemoryKey::generate(algorithm).unwrap())
}

fn host(algorithm: KeyAlgorithm) -> Arc<Host> {
    Arc::new(Host::new(key(algorithm), None).unwrap())
}

fn blob(signer: &dyn Signer) -> Vec<u8> {
    ssh_key::PublicKey::from(ssh_public_key(&signer.public_key()).unwrap()).to_bytes().unwrap()
}

/// A client and a server up to the login, and what the client hears.
struct Both {
    client: Transport,
    server: Server,
    heard: Vec<Bytes>,
    asked: Vec<String>,
    /// Whether a key may be tried, and its holder is let in.
    tries: bool,
    lets_in: bool,
    /// The sizes of the pieces that either side hears.
    pieces: Vec<usize>,
}

impl Both {
    fn new(host: Arc<Host>) -> Self {
        let limits = Limits::default();
        Self {
            client: Transport::client(opening(CLIENT, limits)).unwrap(),
            server: Server::new(opening(SERVER, limits), host, MOST).unwrap(),
            heard: Vec::new(),
            asked: Vec::new(),
            tries: true,
            lets_in: true,
            pieces: vec![usize::MAX],
        }
    }

    fn usual() -> Self {
        Self::new(host(KeyAlgorithm::Ed25519))
    }

    fn client_hears(&mut self) -> Result<(), Breach> {
        while let Some(step) = self.client.next()? {
            match step {
                Step::Host(_) => {
                    assert!(self.client.output().is_empty(), "nothing goes to a host that is not judged");
                    self.client.accept_host()?;
                    self.client.new_keys()?;
                }
                Step::Message(payload) | Step::Farewell(payload) => self.heard.push(payload),
            }
        }
        Ok(())
    }

    fn server_hears(&mut self) -> Result<(), Breach> {
        while let Some(question) = self.server.question()? {
            let yes = match question {
                Question::Begins => {
                    self.asked.push("begins".to_owned());
                    self.server.begin(Some("hello"))?;
                    continue;
                }
                Question::Unproven { user } => {
                    self.asked.push(format!("unproven {user}"));
                    false
                }
                Question::Offered(offer) => {
                    self.asked.push(format!("offered {} {}", offer.user, offer.algorithm.as_str()));
                    self.tries
                }
                Question::Proven(offer) => {
                    self.asked.push(format!("proven {}", offer.user));
                    self.lets_in
                }
                Question::Interactive | Question::Typed(_) => false,
            };
            self.server.answer(yes)?;
        }
        Ok(())
    }

    /// Until neither has anything to say.
    fn talk(&mut self) -> Result<(), Breach> {
        let (mut turn, pieces) = (0, self.pieces.clone());
        let mut cut = |said: &[u8]| -> Vec<Vec<u8>> {
            let (mut rest, mut parts) = (said, Vec::new());
            while !rest.is_empty() {
                let length = pieces[turn % pieces.len()].clamp(1, rest.len());
                turn += 1;
                parts.push(rest[..length].to_vec());
                rest = &rest[length..];
            }
            parts
        };
        loop {
            let (said, answered) = (self.client.output().split(), self.server.output().split());
            if said.is_empty() && answered.is_empty() {
                return Ok(());
            }
            let (said, answered) = (cut(&said), cut(&answered));
            for part in said {
                self.server.input().extend_from_slice(&part);
                self.server_hears()?;
            }
            for part in answered {
                self.client.input().extend_from_slice(&part);
                self.client_hears()?;
            }
        }
    }

    fn keyed() -> Self {
        let mut both = Self::usual();
        both.talk().unwrap();
        both.say(&Draft::new(SERVICE_REQUEST).string(USERAUTH));
        both.talk().unwrap();
        assert_eq!(both.numbers(), [SERVICE_ACCEPT, USERAUTH_BANNER]);
        both
    }

    fn say(&mut self, draft: &Draft) {
        self.client.send(&draft.0).unwrap();
    }

    fn numbers(&self) -> Vec<u8> {
        self.heard.iter().map(|payload| payload[0]).collect()
    }

    /// What the server ends with, when it hears this.
    fn breaks(&mut self, draft: &Draft) -> Breach {
        self.say(draft);
        let breach = self.talk().unwrap_err();
        assert_eq!(self.server.question().unwrap_err(), breach, "the first error is the last");
        assert!(self.server.is_over() && self.server.user().is_none());
        breach
    }

    fn log_in(&mut self, signer: &dyn Signer) -> Draft {
        let key = blob(signer);
        let login = Login { name: "root", algorithm: signer.algorithm().ssh_name().unwrap(), key: &key };
        let signature = ssh_signature(signer, &login.to_sign(self.client.session()).unwrap()).unwrap();
        login.draft().string(&signature)
    }
}

fn query(algorithm: &str, key: &[u8]) -> Draft {
    let draft = Draft::new(USERAUTH_REQUEST).string(b"root").string(b"ssh-connection").string(b"publickey");
    draft.flag(false).string(algorithm.as_bytes()).string(key)
}

#[test]
fn every_type_of_host_key_and_of_user_key_logs_in() {
    for algorithm in
        [KeyAlgorithm::Ed25519, KeyAlgorithm::EcdsaP256, KeyAlgorithm::EcdsaP384, KeyAlgorithm::Rsa2048]
    {
        let mut both = Both::new(host(algorithm));
        both.talk().unwrap();
        both.say(&Draft::new(SERVICE_REQUEST).string(USERAUTH));
        let user = key(algorithm);
        both.talk().unwrap();
        let login = both.log_in(&*user);
        both.say(&login);
        both.talk().unwrap();
        assert_eq!(both.numbers(), [SERVICE_ACCEPT, USERAUTH_BANNER, USERAUTH_SUCCESS], "{algorithm}");
        assert_eq!(both.server.user(), Some("root"));
        assert_eq!(both.asked.len(), 3, "{:?}", both.asked);
    }
}

#[test]
fn the_key_is_asked_about_before_its_signature_is_looked_at() {
    let mut both = Both::keyed();
    let user = key(KeyAlgorithm::EcdsaP256);
    both.say(&query("ecdsa-sha2-nistp256", &blob(&*user)));
    both.talk().unwrap();
    assert_eq!(both.numbers().last(), Some(&USERAUTH_PK_OK));
    both.tries = false;
    let login = both.log_in(&*user);
    both.say(&login);
    both.talk().unwrap();
    assert_eq!(both.asked[1..], ["offered root ecdsa-sha2-nistp256", "offered root ecdsa-sha2-nistp256"]);
    assert_eq!(both.numbers().last(), Some(&USERAUTH_FAILURE));
    both.tries = true;
    both.lets_in = false;
    both.say(&login);
    both.talk().unwrap();
    assert_eq!(both.asked.last().map(String::as_str), Some("proven root"));
    assert_eq!(both.numbers().last(), Some(&USERAUTH_FAILURE));
    assert_eq!(both.server.user(), None);
}

#[test]
fn a_signature_counts_for_this_session_this_user_this_key_and_this_algorithm_alone() {
    let mut both = Both::keyed();
    let (user, other) = (key(KeyAlgorithm::Rsa2048), key(KeyAlgorithm::Rsa2048));
    let good = both.log_in(&*user);
    // Of another session.
    let mut elsewhere = Both::keyed();
    let theirs = elsewhere.log_in(&*user);
    // For another account, or by another key.
    let mut renamed = good.clone();
    let at = renamed.0.windows(4).position(|part| part == b"root").unwrap();
    renamed.0[at..at + 4].copy_from_slice(b"boot");
    let shown = blob(&*other);
    let login = Login { name: "root", algorithm: "rsa-sha2-512", key: &shown };
    let message = login.to_sign(both.client.session()).unwrap();
    let stolen = login.draft().string(&ssh_signature(&*user, &message).unwrap());
    for (what, draft) in [("session", theirs), ("account", renamed), ("key", stolen)] {
        both.say(&draft);
        both.talk().unwrap();
        assert_eq!(both.numbers().last(), Some(&USERAUTH_FAILURE), "{what}");
        assert!(!both.asked.iter().any(|asked| asked.starts_with("proven")), "{what}");
    }
    // By another hash than was named.
    let mut both = Both::keyed();
    let shown = blob(&*user);
    for named in ["rsa-sha2-256", "ssh-rsa"] {
        let login = Login { name: "root", algorithm: named, key: &shown };
        let message = login.to_sign(both.client.session()).unwrap();
        both.say(&login.draft().string(&ssh_signature(&*user, &message).unwrap()));
        both.talk().unwrap();
        assert_eq!(both.numbers().last(), Some(&USERAUTH_FAILURE), "{named}");
    }
    let login = both.log_in(&*user);
    both.say(&login);
    both.talk().unwrap();
    assert_eq!(both.server.user(), Some("root"));
}

#[test]
fn a_client_may_bind_its_login_to_the_host() {
    let own = key(KeyAlgorithm::EcdsaP256);
    let user = key(KeyAlgorithm::EcdsaP256);
    for (meant, is_in) in [(blob(&*own), true), (blob(&*user), false)] {
        let mut both = Both::new(Arc::new(Host::new(own.clone(), None).unwrap()));
        both.talk().unwrap();
        both.say(&Draft::new(SERVICE_REQUEST).string(USERAUTH));
        let draft = Draft::new(USERAUTH_REQUEST).string(b"root").string(b"ssh-connection");
        let draft = draft.string(b"publickey-hostbound-v00@openssh.com").flag(true);
        let draft = draft.string(b"ecdsa-sha2-nistp256").string(&blob(&*user)).string(&meant);
        let mut message = Vec::new();
        put_string(&mut message, both.client.session().unwrap());
        message.extend_from_slice(&draft.0);
        let signed = draft.string(&ssh_signature(&*user, &message).unwrap());
        both.say(&signed);
        both.talk().unwrap();
        assert_eq!(both.server.user().is_some(), is_in);
    }
}

#[test]
fn attempts_and_questions_are_counted() {
    let mut both = Both::keyed();
    let none = Draft::new(USERAUTH_REQUEST).string(b"root").string(b"ssh-connection").string(b"none");
    for _ in 0..MOST {
        both.say(&none);
        both.talk().unwrap();
        assert_eq!(both.numbers().last(), Some(&USERAUTH_FAILURE));
    }
    assert_eq!(both.breaks(&none), Breach::Attempts);
    let last = both.server.output().split();
    both.client.input().extend_from_slice(&last);
    both.client_hears().unwrap();
    let farewell = both.heard.last().unwrap();
    assert_eq!((farewell[0], farewell[4]), (DISCONNECT, 14));
    // Questions about keys that would do are not for ever either.
    let mut both = Both::keyed();
    let user = key(KeyAlgorithm::Ed25519);
    for _ in 0..MOST * 8 {
        both.say(&query("ssh-ed25519", &blob(&*user)));
        both.talk().unwrap();
        assert_eq!(both.numbers().last(), Some(&USERAUTH_PK_OK));
    }
    assert_eq!(both.breaks(&query("ssh-ed25519", &blob(&*user))), Breach::Attempts);
}

#[test]
fn messages_have_their_order() {
    let unexpected = |message| Breach::Unexpected { message, expected: "a login" };
    // Channels before the login, or in place of the service.
    let open = Draft::new(CHANNEL_OPEN).string(b"session").u32(0).u32(1).u32(1);
    assert_eq!(Both::keyed().breaks(&open), unexpected(CHANNEL_OPEN));
    let mut both = Both::usual();
    both.talk().unwrap();
    assert_eq!(both.breaks(&open), unexpected(CHANNEL_OPEN));
    // A login before its service, and the service of channels before the login.
    let none = Draft::new(USERAUTH_REQUEST).string(b"root").string(b"ssh-connection").string(b"none");
    let mut both = Both::usual();
    both.talk().unwrap();
    assert_eq!(both.breaks(&none), unexpected(USERAUTH_REQUEST));
    let mut both = Both::usual();
    both.talk().unwrap();
    let service = Draft::new(SERVICE_REQUEST).string(b"ssh-connection");
    assert_eq!(both.breaks(&service), unexpected(SERVICE_REQUEST));
    // What a server says is nothing that a client may.
    for number in [USERAUTH_SUCCESS, USERAUTH_PK_OK] {
        let mut both = Both::keyed();
        both.say(&Draft::new(number));
        both.talk().unwrap();
        assert_eq!(both.server.user(), None);
        assert_eq!(both.numbers().len(), 2, "the transport's answer is no message");
    }
}

#[test]
fn fields_that_are_none_are_refused() {
    let user = key(KeyAlgorithm::Ed25519);
    let malformed = Breach::Malformed("USERAUTH_REQUEST");
    let mut trailing = query("ssh-ed25519", &blob(&*user));
    trailing.0.push(0);
    assert_eq!(Both::keyed().breaks(&trailing), malformed);
    let cut = Draft(query("ssh-ed25519", &blob(&*user)).0[..30].to_vec());
    assert_eq!(Both::keyed().breaks(&cut), malformed);
    // Keys of another type than they are offered as, of no type, and certificates within certificates.
    let mut both = Both::keyed();
    let nested = b"\0\0\0\x20ssh-ed25519-cert-v01@openssh.com".repeat(6000);
    for (name, blob) in [
        ("ecdsa-sha2-nistp256", blob(&*user)),
        ("ssh-dss", blob(&*user)),
        ("ssh-ed25519-cert-v01@openssh.com", nested),
    ] {
        let before = both.asked.len();
        both.say(&query(name, &blob));
        both.talk().unwrap();
        assert_eq!(both.numbers().last(), Some(&USERAUTH_FAILURE), "{name}");
        assert_eq!(both.asked.len(), before, "{name}");
    }
}

/// A client's first packets in the clear, after its line.
fn in_the_clear(drafts: &[Draft]) -> Result<Option<Question>, Breach> {
    let mut server =
        Server::new(opening(SERVER, Limits::default()), host(KeyAlgorithm::Ed25519), MOST).unwrap();
    let mut out = BytesMut::from(format!("{CLIENT}\r\n").as_bytes());
    let mut outgoing = packet::Outgoing::default();
    for draft in drafts {
        outgoing.put(&mut out, &draft.0).unwrap();
    }
    server.input().extend_from_slice(&out);
    server.question()
}

fn proposal(kex: &[&str]) -> Draft {
    let gcm = ["aes128-gcm@openssh.com"];
    let draft = Draft::new(KEXINIT).raw(&[7; 16]).names(kex).names(&["ssh-ed25519"]).names(&gcm).names(&gcm);
    let draft = draft.names(&[]).names(&[]).names(&["none"]).names(&["none"]).names(&[]).names(&[]);
    draft.flag(false).u32(0)
}

#[test]
fn nothing_is_slipped_into_the_first_exchange() {
    let strict = proposal(&["curve25519-sha256", "kex-strict-c-v00@openssh.com"]);
    let ignore = Draft::new(IGNORE).string(b"");
    // Before and after the proposal (CVE-2023-48795).
    let first = in_the_clear(&[ignore.clone(), strict.clone()]).unwrap_err();
    assert!(matches!(first, Breach::Unexpected { message: KEXINIT, .. }), "{first}");
    let second = in_the_clear(&[strict.clone(), ignore.clone()]).unwrap_err();
    assert!(matches!(second, Breach::Unexpected { message: IGNORE, .. }), "{second}");
    // Without it, what may be ignored is.
    assert!(in_the_clear(&[ignore, proposal(&["curve25519-sha256"])]).unwrap().is_none());
    // No login, no service and no channel in the clear, and no second proposal.
    for draft in [
        Draft::new(SERVICE_REQUEST).string(USERAUTH),
        Draft::new(USERAUTH_REQUEST).string(b"root").string(b"ssh-connection").string(b"none"),
        Draft::new(CHANNEL_OPEN).string(b"session").u32(0).u32(1).u32(1),
        Draft::new(NEWKEYS),
        Draft::new(ECDH_REPLY).string(b"").string(b"").string(b""),
        proposal(&["curve25519-sha256"]),
    ] {
        let breach = in_the_clear(&[proposal(&["curve25519-sha256"]), draft.clone()]).unwrap_err();
        assert!(matches!(breach, Breach::Unexpected { .. }), "{}: {breach}", draft.0[0]);
    }
    // Shares that give no secret.
    for share in [&[0; 32][..], &[], &[1; 33]] {
        let draft = Draft::new(ECDH_INIT).string(share);
        let breach = in_the_clear(&[proposal(&["curve25519-sha256"]), draft]).unwrap_err();
        assert_eq!(breach, Breach::Share);
    }
}

#[test]
fn lists_are_bounded_and_what_is_not_spoken_is_named() {
    let many: Vec<String> = (0..600).map(|number| format!("x{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(in_the_clear(&[proposal(&many)]).unwrap_err(), Breach::Malformed("KEXINIT"));
    let reason = in_the_clear(&[proposal(&["sntrup761x25519-sha512@openssh.com"])]).unwrap_err();
    let reason = reason.nothing_common().unwrap();
    assert!(
        reason.starts_with("it offers no key exchange method that is spoken here (mlkem768x25519"),
        "{reason}"
    );
    let mut server =
        Server::new(opening(SERVER, Limits::default()), host(KeyAlgorithm::Ed25519), MOST).unwrap();
    server.input().extend_from_slice(b"GET / HTTP/1.1\r\n");
    assert_eq!(server.question().unwrap_err(), Breach::Greeting);
}

#[test]
fn packets_that_were_altered_played_again_or_left_out_end_the_connection() {
    let service = Draft::new(SERVICE_REQUEST).string(USERAUTH);
    let sealed = |both: &mut Both| {
        both.say(&service);
        both.client.output().split().to_vec()
    };
    for at in [0, 5, 20] {
        let mut both = Both::usual();
        both.talk().unwrap();
        let mut bytes = sealed(&mut both);
        bytes[at] ^= 0x10;
        both.server.input().extend_from_slice(&bytes);
        let heard = both.server.question();
        assert!(matches!(heard, Err(Breach::Altered | Breach::Length(_))), "{heard:?}");
    }
    let mut both = Both::usual();
    both.talk().unwrap();
    let bytes = sealed(&mut both);
    both.server.input().extend_from_slice(&[&bytes[..], &bytes].concat());
    assert!(matches!(both.server.question(), Ok(Some(Question::Begins))));
    both.server.begin(None).unwrap();
    assert_eq!(both.server.question().unwrap_err(), Breach::Altered);
    let mut both = Both::usual();
    both.talk().unwrap();
    let _lost = sealed(&mut both);
    let bytes = sealed(&mut both);
    both.server.input().extend_from_slice(&bytes);
    assert_eq!(both.server.question().unwrap_err(), Breach::Altered);
}

/// Both sides of a connection that is in.
pub(super) fn in_both(limits: Limits) -> (Transport, Transport) {
    let mut both = Both::usual();
    both.client = Transport::client(opening(CLIENT, limits)).unwrap();
    both.server = Server::new(opening(SERVER, limits), host(KeyAlgorithm::EcdsaP256), MOST).unwrap();
    both.talk().unwrap();
    both.say(&Draft::new(SERVICE_REQUEST).string(USERAUTH));
    let login = both.log_in(&*key(KeyAlgorithm::EcdsaP256));
    both.say(&login);
    both.talk().unwrap();
    both.client.let_in();
    let Both { client, server, .. } = both;
    (client, server.into_transport().unwrap())
}

/// Hands everything that one says to the other, both ways, and gives the messages that the second hears.
fn pass(one: &mut Transport, other: &mut Transport) -> Result<Vec<Bytes>, Breach> {
    let mut heard = Vec::new();
    loop {
        let (said, answered) = (one.output().split(), other.output().split());
        if said.is_empty() && answered.is_empty() {
            return Ok(heard);
        }
        other.input().extend_from_slice(&said);
        while let Some(step) = other.next()? {
            if let Step::Message(payload) = step {
                heard.push(payload);
            }
        }
        one.input().extend_from_slice(&answered);
        while one.next()?.is_some() {}
    }
}

#[test]
fn keys_are_renewed_by_volume_by_either_side_and_nothing_is_lost() {
    let limits = Limits { bytes: 50_000, ..Limits::default() };
    let (mut client, mut server) = in_both(limits);
    let session = client.session().unwrap().to_vec();
    for number in 0..40_u8 {
        let draft = Draft::new(CHANNEL_DATA).u32(0).string(&vec![number; 9000]);
        let (from, to) =
            if number % 2 == 0 { (&mut client, &mut server) } else { (&mut server, &mut client) };
        from.send(&draft.0).unwrap();
        assert_eq!(pass(from, to).unwrap(), [Bytes::from(draft.0)]);
    }
    assert_eq!(client.session().unwrap(), session, "the first exchange names the session");
    assert_eq!(server.session().unwrap(), session);
    // Both at once, with a message that is held back and one that crosses.
    let crossing = Draft::new(CHANNEL_DATA).u32(0).string(b"crosses");
    server.send(&crossing.0).unwrap();
    client.renew_keys().unwrap();
    server.renew_keys().unwrap();
    let held = Draft::new(CHANNEL_DATA).u32(0).string(b"waits");
    client.send(&held.0).unwrap();
    assert_eq!(pass(&mut client, &mut server).unwrap(), [Bytes::from(held.0)]);
    assert!(!client.is_exchanging() && !server.is_exchanging());
}

#[test]
fn a_client_that_does_nothing_but_renew_keys_is_cut_off() {
    let (mut client, mut server) = in_both(Limits::default());
    let mut times = 0;
    let breach = loop {
        client.renew_keys().unwrap();
        match pass(&mut client, &mut server) {
            Ok(_) => times += 1,
            Err(breach) => break breach,
        }
        assert!(times < 100, "it goes on");
    };
    assert_eq!((times, breach), (16, Breach::Keys("does nothing but renew keys")));
    // One that works as well may, as often as it wants.
    let (mut client, mut server) = in_both(Limits::default());
    for _ in 0..40 {
        client.renew_keys().unwrap();
        client.send(&Draft::new(GLOBAL_REQUEST).string(b"x").flag(false).0).unwrap();
        assert_eq!(pass(&mut client, &mut server).unwrap().len(), 1);
    }
    // Not before the login: each costs the server a signature.
    let mut both = Both::keyed();
    both.client.let_in();
    both.client.renew_keys().unwrap();
    let breach = both.talk().unwrap_err();
    assert_eq!(breach, Breach::Unexpected { message: KEXINIT, expected: "the login" });
}

#[test]
fn a_message_in_the_middle_of_an_exchange_that_the_peer_began_is_refused() {
    let (mut client, mut server) = in_both(Limits::default());
    client.renew_keys().unwrap();
    let proposed = client.output().split();
    server.input().extend_from_slice(&proposed);
    assert!(server.next().unwrap().is_none());
    // The client's share is due.
    client.say_out_of_turn(&Draft::new(CHANNEL_DATA).u32(0).string(b"early").0);
    server.input().extend_from_slice(&client.output().split());
    let breach = server.next().unwrap_err();
    assert_eq!(breach, Breach::Unexpected { message: CHANNEL_DATA, expected: "key exchange" });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_split_of_the_bytes_is_the_same_login(pieces in proptest::collection::vec(1_usize..300, 1..20)) {
        let mut both = Both::usual();
        both.pieces = pieces;
        both.talk().unwrap();
        both.say(&Draft::new(SERVICE_REQUEST).string(USERAUTH));
        both.talk().unwrap();
        let user = key(KeyAlgorithm::Ed25519);
        both.say(&query("ssh-ed25519", &blob(&*user)));
        let login = both.log_in(&*user);
        both.say(&login);
        both.talk().unwrap();
        prop_assert_eq!(
            &both.asked,
            &["begins", "offered root ssh-ed25519", "offered root ssh-ed25519", "proven root"]
        );
        prop_assert_eq!(both.server.user(), Some("root"));
    }

    #[test]
    fn no_bytes_make_a_server_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000), split in 0_usize..2000) {
        let greeted = [b"SSH-2.0-x\r\n".to_vec(), bytes.clone()].concat();
        for bytes in [&bytes, &greeted] {
            let mut server =
                Server::new(opening(SERVER, Limits::default()), host(KeyAlgorithm::Ed25519), MOST).unwrap();
            let (left, right) = bytes.split_at(split.min(bytes.len()));
            for part in [left, right] {
                server.input().extend_from_slice(part);
                let _ = server.question();
            }
            prop_assert!(server.user().is_none());
        }
    }
}
