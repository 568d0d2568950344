//! The machine against a server of a few lines, without a network.

mod server;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use sallyport_ca::keys::{ssh_public_key, ssh_signature};
use sallyport_sal::algorithm::{AeadAlgorithm, DhGroup, HashAlgorithm};
use sallyport_sal::{HybridKeyExchange, KeyAlgorithm, MemoryKey, Primitive, Signer, hash, selection, strict};

use super::message::*;
use super::*;
use crate::client::SessionRequest;
use crate::session::Terminal;
use crate::transport::packet::{Cipher, Incoming, Outgoing};

pub(crate) use server::Server;
use server::{Quirks, noise};

const OURS: &str = "SSH-2.0-Sallyport_test";
const OPENSSH: &str = "SSH-2.0-OpenSSH_9.2p1";
const STRICT: &str = "kex-strict-s-v00@openssh.com";

pub(crate) fn machine(limits: Limits) -> Machine {
    Machine::new(Opening { identification: OURS, demand: HybridKeyExchange::Preferred, limits }).unwrap()
}

fn login() -> Login<'static> {
    Login { name: "root", algorithm: "ssh-ed25519-cert-v01@openssh.com", key: b"a certificate" }
}

/// A client and a server, and what has happened.
struct Both {
    client: Machine,
    server: Server,
    happened: Vec<String>,
    output: Vec<u8>,
    request: SessionRequest,
    /// The sizes of the pieces that the client hears.
    pieces: Vec<usize>,
}

impl Both {
    fn new(quirks: Quirks, limits: Limits) -> Self {
        Self {
            client: machine(limits),
            server: Server::new(quirks),
            happened: Vec::new(),
            output: Vec::new(),
            request: SessionRequest::exec("true"),
            pieces: vec![usize::MAX],
        }
    }

    fn usual() -> Self {
        Self::new(Quirks::default(), Limits::default())
    }

    fn events(&mut self) -> Result<(), Breach> {
        while let Some(event) = self.client.event() {
            match event {
                Event::Host(shown) => {
                    assert!(shown.certificate.is_none());
                    assert!(
                        self.client.output().is_empty(),
                        "nothing goes to a host that the client has not judged"
                    );
                    self.happened.push("host".to_owned());
                    self.client.accept_host()?;
                    assert!(self.client.output().is_empty(), "nothing goes before the login");
                    let signed = self.client.to_sign(&login()).unwrap();
                    let session = self.server.session.as_ref().unwrap();
                    assert_eq!(signed[4..4 + session.len()], session[..]);
                    self.client.log_in(&login(), b"a signature", &self.request)?;
                }
                Event::Data { bytes, .. } => {
                    self.output.extend_from_slice(&bytes);
                    self.client.took(bytes.len())?;
                }
                other => self.happened.push(format!("{other:?}")),
            }
        }
        Ok(())
    }

    /// Until neither has anything to say.
    fn talk(&mut self) -> Result<(), Breach> {
        let mut turn = 0;
        loop {
            let said = self.client.output().split();
            self.server.hear(&said);
            let answer = self.server.out.split();
            if said.is_empty() && answer.is_empty() {
                return Ok(());
            }
            let mut rest = &answer[..];
            while !rest.is_empty() {
                let piece = self.pieces[turn % self.pieces.len()].clamp(1, rest.len());
                turn += 1;
                self.client.receive(&rest[..piece])?;
                rest = &rest[piece..];
                self.events()?;
            }
        }
    }

    fn breaks(&mut self) -> Breach {
        let breach = self.talk().unwrap_err();
        assert_eq!(self.client.receive(b"").unwrap_err(), breach, "the first error is the last");
        assert!(self.client.is_over());
        breach
    }
}

const BEGUN: [&str; 5] = ["host", "Banner(\"hello[2J\\n\")", "LoggedIn", "Opened", "Answered(Program, true)"];

#[test]
fn everything_after_the_host_s_proof_goes_in_one_flight() {
    let mut both = Both::usual();
    both.request.environment = vec![("A".to_owned(), "b".to_owned())];
    // Version and proposal, before anything has come.
    let first = both.client.output().clone();
    assert!(first.starts_with(OURS.as_bytes()) && first.len() > 200);
    both.talk().unwrap();
    assert_eq!(both.happened, BEGUN);
    assert_eq!(both.server.numbers(), [5, 50, 90, 98, 98]);
    both.server.shows(b"text");
    both.server.ends(3);
    both.talk().unwrap();
    assert_eq!(both.output, b"text");
    assert_eq!(both.happened[5..], ["Eof", "Told(Status(3))", "Closed"]);
    assert_eq!(both.server.numbers()[5..], [97]);
    assert!(both.client.is_closing() && !both.client.takes_input());
}

/// Those that would end the list (RFC 4254 §8) do not go.
#[test]
fn modes_of_a_terminal_go_up_to_the_one_that_ends_them() {
    let mut both = Both::usual();
    let modes = vec![(0, 1), (3, 127), (160, 9)];
    both.request.terminal = Some(Terminal { term: "vt100".to_owned(), modes, ..Terminal::default() });
    both.talk().unwrap();
    assert_eq!(both.server.numbers(), [5, 50, 90, 98, 98]);
    assert!(both.server.heard[3].ends_with(&[0, 0, 0, 6, 3, 0, 0, 0, 127, 0]), "{:?}", both.server.heard[3]);
}

#[test]
fn the_curves_of_a_server_in_fips_mode_are_spoken() {
    for method in ["ecdh-sha2-nistp256", "ecdh-sha2-nistp384"] {
        let quirks = Quirks { kex: vec![method, STRICT], ..Quirks::default() };
        let mut both = Both::new(quirks.clone(), Limits::default());
        both.talk().unwrap();
        assert_eq!(both.happened, BEGUN, "{method}");
        both.server.propose();
        both.talk().unwrap();
        assert_eq!(both.server.exchanges, 2, "{method}");
        let mut forged = Both::new(Quirks { forges: true, ..quirks }, Limits::default());
        assert_eq!(forged.breaks(), Breach::Signature, "{method}");
    }
}

#[test]
fn requests_are_not_sent_on_a_guess_to_strangers_nor_twice() {
    // Not OpenSSH: they follow the answer, to its number.
    let mut both =
        Both::new(Quirks { greeting: "SSH-2.0-other", number: 9, ..Quirks::default() }, Limits::default());
    both.talk().unwrap();
    assert_eq!(both.happened, BEGUN);
    assert_eq!(both.server.numbers(), [5, 50, 90, 98]);
    // OpenSSH that counts otherwise: what went to no channel goes again, and is answered once.
    let mut both = Both::new(Quirks { number: 4, ..Quirks::default() }, Limits::default());
    both.talk().unwrap();
    assert_eq!(both.happened, BEGUN);
    assert_eq!(both.server.numbers(), [5, 50, 90, 98, 98]);
    assert_eq!(both.server.heard[3][1..5], [0, 0, 0, 0]);
    assert_eq!(both.server.heard[4][1..5], [0, 0, 0, 4]);
}

#[test]
fn input_waits_for_the_answer_and_for_the_window() {
    let mut both = Both::new(Quirks { window: 1000, ..Quirks::default() }, Limits::default());
    assert!(!both.client.takes_input());
    both.talk().unwrap();
    assert!(both.client.takes_input());
    let input: Vec<u8> = noise(100_000);
    both.client.input(Bytes::from(input.clone())).unwrap();
    assert!(!both.client.takes_input());
    both.client.end_input().unwrap();
    both.talk().unwrap();
    assert!(both.server.input == input);
    assert_eq!(both.server.numbers().last(), Some(&CHANNEL_EOF));
}

#[test]
fn a_wrong_guess_of_the_server_is_passed_over() {
    let mut both = Both::new(Quirks { guesses: true, ..Quirks::default() }, Limits::default());
    both.talk().unwrap();
    assert_eq!(both.happened, BEGUN);
}

#[test]
fn keys_are_renewed_from_either_side() {
    let limits = Limits { bytes: 100_000, ..Limits::default() };
    let mut both = Both::new(Quirks::default(), limits);
    both.talk().unwrap();
    let text: Vec<u8> = noise(400_000);
    for part in text.chunks(50_000) {
        both.server.shows(part);
        both.client.input(Bytes::copy_from_slice(part)).unwrap();
        both.talk().unwrap();
    }
    assert!(both.output == text && both.server.input == text);
    let asked_by_client = both.server.exchanges;
    assert!(asked_by_client >= 4, "{asked_by_client}");

    let mut both = Both::usual();
    both.talk().unwrap();
    for part in text.chunks(50_000) {
        both.server.propose();
        // What the client says before it has heard of it crosses.
        both.client.input(Bytes::copy_from_slice(part)).unwrap();
        both.talk().unwrap();
    }
    assert!(both.server.input == text);
    assert_eq!(both.server.exchanges, 9);
    // Both at once.
    both.server.propose();
    both.client.renew_keys().unwrap();
    both.client.resize(crate::session::Size::default()).unwrap();
    both.talk().unwrap();
    assert_eq!((both.server.exchanges, both.server.numbers().last()), (10, Some(&CHANNEL_REQUEST)));
}

#[test]
fn whoever_renews_must_be_who_was_believed() {
    let mut both = Both::usual();
    both.talk().unwrap();
    both.server.key = MemoryKey::generate(KeyAlgorithm::Ed25519).unwrap();
    both.server.propose();
    assert_eq!(both.breaks(), Breach::OtherHostKey);
}

#[test]
fn a_host_that_does_not_sign_the_exchange_is_not_even_shown() {
    let mut both = Both::new(Quirks { forges: true, ..Quirks::default() }, Limits::default());
    assert_eq!(both.breaks(), Breach::Signature);
    assert!(both.happened.is_empty());
}

#[test]
fn strict_key_exchange_lets_nothing_in() {
    let mut both = Both::new(Quirks { chatters: true, ..Quirks::default() }, Limits::default());
    assert!(matches!(both.breaks(), Breach::Unexpected { message: IGNORE, .. }));
    // Without it, what may be ignored is.
    let lax = Quirks { chatters: true, kex: vec!["curve25519-sha256"], ..Quirks::default() };
    let mut both = Both::new(lax, Limits::default());
    both.talk().unwrap();
    assert_eq!(both.happened, BEGUN);
    // Before the proposal, it is found out with the proposal.
    let mut client = machine(Limits::default());
    let mut out = BytesMut::from(&b"SSH-2.0-x\r\n"[..]);
    let mut outgoing = Outgoing::default();
    outgoing.put(&mut out, &Draft::new(IGNORE).string(b"").0).unwrap();
    client.receive(&out).unwrap();
    let mut server = Server::new(Quirks::default());
    let all = server.out.split();
    let from = all.windows(2).rposition(|pair| pair == b"\r\n").unwrap();
    let packet =
        all.iter().enumerate().position(|(at, _)| all[at..].starts_with(OPENSSH.as_bytes())).unwrap();
    assert!(from >= packet);
    let breach = client.receive(&all[packet + OPENSSH.len() + 2..]).unwrap_err();
    assert!(matches!(breach, Breach::Unexpected { message: KEXINIT, .. }), "{breach}");
}

#[test]
fn the_login_has_its_place() {
    let mut client = machine(Limits::default());
    assert!(client.to_sign(&login()).is_err());
    let early = client.log_in(&login(), b"", &SessionRequest::exec("true")).unwrap_err();
    assert!(matches!(early, Breach::Order(_)));
    assert!(matches!(machine(Limits::default()).accept_host().unwrap_err(), Breach::Order(_)));
}

#[test]
fn a_server_that_sends_too_much_is_cut_off() {
    let mut both = Both::usual();
    both.talk().unwrap();
    // Nothing is read: the window is what was granted.
    let window = crate::algorithms::FIRST_WINDOW_BYTES as usize;
    both.server.shows(&vec![0; window + 1]);
    let mut breach = None;
    let bytes = both.server.out.split();
    for piece in bytes.chunks(5000) {
        breach = both.client.receive(piece).err();
    }
    assert_eq!(breach, Some(Breach::Window));

    let mut both = Both::usual();
    both.talk().unwrap();
    both.server.say(&Draft::new(CHANNEL_WINDOW_ADJUST).u32(0).u32(u32::MAX));
    assert_eq!(both.breaks(), Breach::Window);
}

/// What a server may send more, in KiB, as it hears while 5888 KiB come and are taken.
fn granted(greeting: &'static str) -> Vec<u32> {
    let mut both = Both::new(Quirks { greeting, ..Quirks::default() }, Limits::default());
    both.talk().unwrap();
    for _ in 0..23 {
        both.server.shows(&vec![0; 256 << 10]);
        both.talk().unwrap();
    }
    let heard = both.server.heard.iter().filter(|payload| payload[0] == CHANNEL_WINDOW_ADJUST);
    heard.map(|payload| u32::from_be_bytes(payload[5..9].try_into().unwrap()) >> 10).collect()
}

#[test]
fn windows_grow_for_whoever_can_use_them() {
    assert_eq!(granted(OPENSSH), [256; 23]);
    // From 2 to 4, 8 and 16 MiB.
    assert_eq!(granted("SSH-2.0-Sallyport_1"), [256 + 2048, 512 + 4096, 1024 + 8192, 2048, 2048]);
}

#[test]
fn what_is_not_asked_for_is_refused() {
    let mut both = Both::usual();
    both.talk().unwrap();
    both.server.say(&Draft::new(GLOBAL_REQUEST).string(b"hostkeys-00@openssh.com").flag(false));
    both.server.say(&Draft::new(GLOBAL_REQUEST).string(b"keepalive@openssh.com").flag(true));
    both.server.say(&Draft::new(CHANNEL_REQUEST).u32(0).string(b"keepalive@openssh.com").flag(true));
    both.server.say(&Draft::new(CHANNEL_OPEN).string(b"auth-agent@openssh.com").u32(5).u32(1).u32(1));
    both.server.say(&Draft::new(200));
    both.talk().unwrap();
    let answers = both.server.numbers()[4..].to_vec();
    assert_eq!(answers, [REQUEST_FAILURE, CHANNEL_FAILURE, CHANNEL_OPEN_FAILURE, UNIMPLEMENTED]);
    both.server.say(&Draft::new(CHANNEL_DATA).u32(1).string(b"to no channel"));
    assert!(matches!(both.breaks(), Breach::Unexpected { message: CHANNEL_DATA, .. }));
}

#[test]
fn altered_and_impossible_packets_end_the_connection() {
    let mut both = Both::usual();
    both.talk().unwrap();
    both.server.shows(b"text");
    let last = both.server.out.len() - 1;
    both.server.out[last] ^= 1;
    assert_eq!(both.breaks(), Breach::Altered);
    assert!(both.output.is_empty());
    for (bytes, expected) in [
        (&b"SSH-1.5-old\r\n"[..], Breach::Greeting),
        (b"SSH-2.0-x\r\n\xff\xff\xff\xff", Breach::Length(u32::MAX)),
        (b"SSH-2.0-x\r\n\0\0\0\x0d0000000000000", Breach::Length(13)),
        (b"SSH-2.0-x\r\n\0\0\0\x0c\x0c00000000000", Breach::Padding),
        (
            b"SSH-2.0-x\r\n\0\0\0\x0c\x0a\x1500000000000",
            Breach::Unexpected { message: 21, expected: "KEXINIT" },
        ),
        (b"SSH-2.0-x\r\n\0\0\0\x0c\x0a\x1400000000000", Breach::Malformed("KEXINIT")),
    ] {
        assert_eq!(machine(Limits::default()).receive(bytes).unwrap_err(), expected);
    }
    assert_eq!(machine(Limits::default()).receive(&[b'x'; 9000]).unwrap_err(), Breach::Greeting);
    let lines = b"word\r\n".repeat(2000);
    assert_eq!(machine(Limits::default()).receive(&lines).unwrap_err(), Breach::Greeting);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_split_of_the_bytes_is_the_same_conversation(
        pieces in proptest::collection::vec(1_usize..700, 1..20),
        text in proptest::collection::vec(any::<u8>(), 0..60_000),
    ) {
        let limits = Limits { bytes: 20_000, ..Limits::default() };
        let mut both = Both::new(Quirks::default(), limits);
        both.pieces = pieces;
        both.talk().unwrap();
        both.server.shows(&text);
        both.client.input(Bytes::copy_from_slice(&text)).unwrap();
        both.talk().unwrap();
        both.server.ends(0);
        both.talk().unwrap();
        prop_assert_eq!(&both.happened[..5], BEGUN);
        prop_assert_eq!(both.happened.last().map(String::as_str), Some("Closed"));
        prop_assert!(both.output == text && both.server.input == text);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000), split in 0_usize..2000) {
        let greeted = [b"SSH-2.0-OpenSSH_x\r\n".to_vec(), bytes.clone()].concat();
        for bytes in [&bytes, &greeted] {
            let mut client = machine(Limits::default());
            let (left, right) = bytes.split_at(split.min(bytes.len()));
            let _ = client.receive(left);
            let _ = client.receive(right);
            let _ = Message::read(&Bytes::copy_from_slice(bytes));
        }
    }
}
