//! Floods and lies of clients, before and after they have proven who they are.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::timeout;

use crate::hostile::Alice;
use crate::hostile::face::{Face, Far, LOGIN_TIMEOUT, Target};
use crate::hostile::raw::{Packet, Raw, message, number_at};
use crate::world::{ok, output, until};

/// Each of these on both servers.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod node {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(super::Face::Node).await;
            })*
        }
        mod proxy {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(super::Face::Proxy).await;
            })*
        }
    };
}

on_both! {
    a_client_that_lies_about_its_window_costs_no_memory,
    data_past_the_window_ends_the_connection,
    ten_thousand_channels_are_refused_but_for_a_few,
    giant_strings_are_refused_or_cut,
    a_packet_that_claims_to_be_giant_is_not_waited_for,
    requests_whose_answers_the_client_does_not_read_pile_up_nowhere,
    what_is_to_be_ignored_is_and_costs_nothing,
    keys_may_be_changed_without_end,
    nothing_but_authentication_is_served_before_it,
    a_greeting_without_end_is_not_kept,
    the_silent_are_sent_away,
}

/// One at a time: they watch the memory of this process.
static ALONE: Mutex<()> = Mutex::const_new(());

/// How much more memory an attack may take, with room for what an allocator keeps.
const BOUND: u64 = 48 << 20;

/// How often others log in during an attack, and how often memory is looked at.
const BETWEEN: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(10);

struct Watched {
    target: Target,
    alice: Alice,
    before: u64,
    /// How long a login takes others without an attack.
    usual: Duration,
    _alone: MutexGuard<'static, ()>,
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

impl Watched {
    async fn new(face: Face) -> Self {
        Self::with_login_timeout(face, LOGIN_TIMEOUT).await
    }

    async fn with_login_timeout(face: Face, login_timeout: Duration) -> Self {
        let alone = ALONE.lock().await;
        let target = Target::new(face, login_timeout).await;
        let alice = Alice::new(&target.world);
        // What is made once is made before anything is measured.
        let began = Instant::now();
        ok(&output(target.ssh("true")).await);
        Self { target, alice, before: resident(), usual: began.elapsed(), _alone: alone }
    }

    /// Runs an attack in a thread of its own; another client logs in during it, and memory is watched.
    async fn survives<T: Send + 'static>(
        &self,
        attack: impl FnOnce(SocketAddr, String, Alice) -> T + Send + 'static,
    ) -> T {
        let (address, login) = (self.target.address, self.target.world.own.name.clone());
        let alice = Alice { key: self.alice.key.clone(), certificate: self.alice.certificate.clone() };
        let mut attacking = tokio::task::spawn_blocking(move || attack(address, login, alice));
        let mut most = resident();
        let outcome = 'attack: loop {
            let began = Instant::now();
            ok(&output(self.target.ssh("echo served")).await);
            let most_wait = Duration::from_secs(15) + 10 * self.usual;
            assert!(began.elapsed() < most_wait, "others wait {:?}", began.elapsed());
            let next = Instant::now() + BETWEEN;
            while Instant::now() < next {
                most = most.max(resident());
                if let Ok(outcome) = timeout(LOOK, &mut attacking).await {
                    break 'attack outcome.unwrap();
                }
            }
        };
        let grown = most.max(resident()).saturating_sub(self.before);
        assert!(grown < BOUND, "memory grew by {} MiB", grown >> 20);
        until("the attacker's connection to end", || (self.target.connections() == 0).then_some(())).await;
        outcome
    }
}

fn logged_in(address: SocketAddr, login: &str, alice: &Alice) -> Raw {
    Raw::authenticated(address, login, &alice.key, &alice.certificate).unwrap()
}

async fn a_client_that_lies_about_its_window_costs_no_memory(face: Face) {
    let watched = Watched::new(face).await;
    let lie = move |address, login: &str, alice: &Alice, most| {
        let mut raw = logged_in(address, login, alice);
        let Some(channel) = face.running(&mut raw, u32::MAX, most, Far::Flood) else {
            assert_eq!(most, 0, "only packets of no length at all are a reason to end the connection");
            return;
        };
        // More than any number can hold, again and again, and not a byte is read.
        for _ in 0..200 {
            let more = Packet::new(message::WINDOW_ADJUST).number(channel).number(u32::MAX);
            if raw.send(&more).is_err() {
                break;
            }
        }
        // The attack is not to read: for as long as a server that keeps what its client does not read takes to keep far
        // too much.
        std::thread::sleep(Duration::from_millis(1500));
    };
    // All at once: what they cost together is less than what one may cost.
    watched
        .survives(move |address, login, alice| {
            std::thread::scope(|scope| {
                for most in [0, 1, 32 * 1024, u32::MAX] {
                    let (login, alice) = (&login, &alice);
                    scope.spawn(move || lie(address, login, alice, most));
                }
            });
        })
        .await;
}

async fn data_past_the_window_ends_the_connection(face: Face) {
    let watched = Watched::new(face).await;
    let sent = watched
        .survives(move |address, login, alice| {
            let mut raw = logged_in(address, &login, &alice);
            let channel = face.running(&mut raw, 1 << 20, 32 * 1024, Far::Deaf).unwrap();
            let data = Packet::new(message::CHANNEL_DATA).number(channel).string([b'x'; 30 * 1024]);
            raw.stream.set_write_timeout(Some(Duration::from_secs(3))).unwrap();
            let mut sent = 0_u64;
            // For as long as the command certainly runs: what comes after its end is dropped, and may come fast.
            let began = std::time::Instant::now();
            while sent < 256 << 20 && began.elapsed() < Duration::from_secs(40) {
                if raw.send(&data).is_err() {
                    break;
                }
                sent += 30 * 1024;
            }
            sent
        })
        .await;
    assert!(sent < 64 << 20, "{} MiB were taken past the window", sent >> 20);
}

async fn ten_thousand_channels_are_refused_but_for_a_few(face: Face) {
    let watched = Watched::new(face).await;
    // Of the kind that the server is for, and of the kind that any server has.
    for own in [true, false] {
        let (opened, refused) = watched
            .survives(move |address, login, alice| {
                let mut raw = logged_in(address, &login, &alice);
                let (mut opened, mut refused) = (0, 0);
                let open = |number| match own {
                    true => face.open(number, 1 << 20, 32 * 1024, Far::Deaf),
                    false => Raw::open(number, 1 << 20, 32 * 1024),
                };
                for round in 0..100 {
                    raw.send_all((0..100).map(|number| open(round * 100 + number))).unwrap();
                    for _ in 0..100 {
                        loop {
                            match raw.receive().unwrap()[0] {
                                message::CHANNEL_CONFIRMATION => opened += 1,
                                message::CHANNEL_FAILURE => refused += 1,
                                _ => continue,
                            }
                            break;
                        }
                    }
                }
                (opened, refused)
            })
            .await;
        assert!(opened <= 1_500, "{opened} channels were opened");
        assert_eq!(opened + refused, 10_000);
    }
}

async fn giant_strings_are_refused_or_cut(face: Face) {
    let watched = Watched::new(face).await;
    watched
        .survives(move |address, login, alice| {
            let giant = vec![b'a'; 200 * 1024];
            // In every place where a string may stand, on one connection each: what follows does not matter.
            let at = |build: &dyn Fn(u32) -> Packet| {
                for _ in 0..20 {
                    let mut raw = logged_in(address, &login, &alice);
                    raw.send(&Raw::open(0, 1 << 20, 32 * 1024)).unwrap();
                    let confirmed = raw.receive_kind(message::CHANNEL_CONFIRMATION).unwrap();
                    let packet = build(number_at(&confirmed, 5));
                    for _ in 0..20 {
                        if raw.send(&packet).is_err() {
                            break;
                        }
                    }
                }
            };
            let request = |channel, kind: &str| {
                Packet::new(message::CHANNEL_REQUEST).number(channel).string(kind).byte(0)
            };
            at(&|channel| request(channel, "env").string(&giant).string(&giant[..1000]));
            at(&|channel| request(channel, "exec").string(&giant));
            at(&|channel| request(channel, "subsystem").string(&giant));
            at(&|channel| {
                request(channel, "pty-req").string(&giant).number(1).number(1).number(0).number(0).string("")
            });
            at(&|_| Packet::new(message::GLOBAL_REQUEST).string(&giant).byte(1));
            at(&|_| Packet::new(message::CHANNEL_OPEN).string(&giant).number(9).number(1).number(1));
            at(&|_| {
                let open =
                    Packet::new(message::CHANNEL_OPEN).string("direct-tcpip").number(9).number(1).number(1);
                open.string(&giant).number(22).string(&giant).number(1)
            });
            at(&|channel| Packet::new(message::CHANNEL_DATA).number(channel).number(u32::MAX).raw(&giant));
        })
        .await;
}

async fn a_packet_that_claims_to_be_giant_is_not_waited_for(face: Face) {
    let watched = Watched::new(face).await;
    watched
        .survives(move |address, _, _| {
            for length in [u32::MAX, 1 << 30, 1 << 20, 0, 1] {
                let mut raw = Raw::greet(address).unwrap();
                let _ = raw.stream.write_all(&length.to_be_bytes());
                let _ = raw.stream.write_all(&[0; 64]);
                let mut rest = Vec::new();
                // Cut: read to the end, or reset. Not a wait for the login's time to be over.
                let began = Instant::now();
                let _ = raw.stream.read_to_end(&mut rest);
                assert!(began.elapsed() < Duration::from_secs(15), "length {length}: {:?}", began.elapsed());
            }
        })
        .await;
}

/// Sends without reading until the server has had enough or everything is sent; gives how many packets went.
fn flood(raw: &mut Raw, packet: &Packet, count: usize) -> usize {
    raw.stream.set_write_timeout(Some(Duration::from_secs(3))).unwrap();
    let mut sent = 0;
    while sent < count {
        if raw.send_all(std::iter::repeat_n(packet.clone(), 100)).is_err() {
            break;
        }
        sent += 100;
    }
    sent
}

async fn requests_whose_answers_the_client_does_not_read_pile_up_nowhere(face: Face) {
    let watched = Watched::new(face).await;
    let request = Packet::new(message::GLOBAL_REQUEST).string("keepalive@openssh.com").byte(1);
    let channel_request = Packet::new(message::CHANNEL_REQUEST).number(0).string("nothing").byte(1);
    let opening = Raw::open(7, 1, 1);
    let own = face.open(7, 1, 1, Far::Deaf);
    // All at once: what they cost together is less than what one may cost.
    watched
        .survives(move |address, login, alice| {
            let attack = |packet: &Packet| {
                let mut raw = logged_in(address, &login, &alice);
                raw.send(&Raw::open(0, 1 << 20, 32 * 1024)).unwrap();
                raw.receive_kind(message::CHANNEL_CONFIRMATION).unwrap();
                flood(&mut raw, packet, 1_000_000)
            };
            std::thread::scope(|scope| {
                for packet in [&request, &channel_request, &opening, &own] {
                    scope.spawn(move || attack(packet));
                }
            });
        })
        .await;
}

async fn what_is_to_be_ignored_is_and_costs_nothing(face: Face) {
    let watched = Watched::new(face).await;
    let sent = watched
        .survives(move |address, login, alice| {
            let mut raw = logged_in(address, &login, &alice);
            let sent = flood(&mut raw, &Packet::new(message::IGNORE).string([0; 1000]), 50_000);
            let channel = face.running(&mut raw, 1 << 20, 32 * 1024, Far::Short);
            assert!(channel.is_some());
            sent
        })
        .await;
    assert_eq!(sent, 50_000);
}

async fn keys_may_be_changed_without_end(face: Face) {
    let watched = Watched::new(face).await;
    watched
        .survives(move |address, login, alice| {
            let mut raw = logged_in(address, &login, &alice);
            for _ in 0..200 {
                // A server may also have enough of it.
                if raw.exchange().is_err() {
                    return;
                }
            }
            face.running(&mut raw, 1 << 20, 32 * 1024, Far::Short);
        })
        .await;
}

async fn nothing_but_authentication_is_served_before_it(face: Face) {
    let watched = Watched::new(face).await;
    watched
        .survives(move |address, login, alice| {
            let attempts = [
                Raw::open(0, 1 << 20, 32 * 1024),
                Packet::new(message::GLOBAL_REQUEST).string("tcpip-forward").byte(1).string("").number(0),
                Packet::new(message::CHANNEL_REQUEST).number(0).string("exec").byte(1).string("id"),
                Packet::new(message::USERAUTH_SUCCESS),
                Packet::new(200),
            ];
            let attempt = |index, packet: &Packet, with_service| {
                let mut raw = Raw::keyed(address).unwrap();
                if with_service {
                    raw.service().unwrap();
                }
                // A server that answers does so at once.
                raw.stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
                let _ = raw.send(packet);
                while let Ok(answer) = raw.receive() {
                    assert!(
                        !matches!(
                            answer[0],
                            message::CHANNEL_CONFIRMATION | message::REQUEST_SUCCESS | message::CHANNEL_DATA
                        ),
                        "attempt {index}: {answer:?}"
                    );
                }
            };
            std::thread::scope(|scope| {
                for (index, packet) in attempts.iter().enumerate() {
                    for with_service in [false, true] {
                        scope.spawn(move || attempt(index, packet, with_service));
                    }
                }
            });
            // Guessing ends after a few attempts.
            let mut raw = Raw::keyed(address).unwrap();
            raw.service().unwrap();
            let mut bad = alice.certificate.clone();
            let last = bad.len() - 1;
            bad[last] ^= 1;
            let mut attempts = 0;
            while raw.authenticate(&login, &alice.key, &bad).is_ok() {
                attempts += 1;
                assert!(attempts < 50, "the server does not count attempts");
            }
        })
        .await;
}

async fn a_greeting_without_end_is_not_kept(face: Face) {
    let watched = Watched::new(face).await;
    watched
        .survives(move |address, _, _| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_write_timeout(Some(Duration::from_secs(3))).unwrap();
            let mut sent = 0_u64;
            while sent < 64 << 20 {
                match stream.write(&[b'a'; 16 * 1024]) {
                    Ok(written) => sent += written as u64,
                    Err(error) => {
                        assert_ne!(error.kind(), io::ErrorKind::WouldBlock, "it stands still and is held");
                        break;
                    }
                }
            }
            assert!(sent < 32 << 20, "{sent}");
        })
        .await;
}

async fn the_silent_are_sent_away(face: Face) {
    const LOGIN_TIMEOUT: Duration = Duration::from_secs(3);
    let watched = Watched::with_login_timeout(face, LOGIN_TIMEOUT).await;
    watched
        .survives(|address, _, _| {
            // Some say nothing, some greet, some begin a packet and never end it.
            let began = Instant::now();
            let mut all: Vec<TcpStream> = Vec::new();
            for number in 0..600 {
                let mut stream = TcpStream::connect(address).unwrap();
                if number % 3 > 0 {
                    stream.write_all(b"SSH-2.0-silent\r\n").unwrap();
                }
                if number % 3 > 1 {
                    stream.write_all(&[0, 0, 1, 0, 7]).unwrap();
                }
                all.push(stream);
            }
            for stream in &mut all {
                let patience = (LOGIN_TIMEOUT * 6).saturating_sub(began.elapsed());
                stream.set_read_timeout(Some(patience.max(Duration::from_millis(1)))).unwrap();
                let mut said = Vec::new();
                if let Err(error) = stream.read_to_end(&mut said) {
                    assert_ne!(
                        error.kind(),
                        io::ErrorKind::WouldBlock,
                        "still there after {:?}",
                        began.elapsed()
                    );
                }
            }
        })
        .await;
}
