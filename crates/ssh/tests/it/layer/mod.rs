//! The transport of our own: stock clients towards a node with all that it speaks, clients of ours towards a stock sshd as they are in
//! FIPS mode, and clients that mean ill. Every client that is tested here runs by it with `TRANSPORT=layer`; every server does.

use std::time::Duration;

use sallyport_access::HostRole;
use sallyport_audit::Code;
use sallyport_sal::Suite;
use sallyport_ssh::client::{Limits, SessionRequest, connect, connect_by_layer};
use tokio::net::TcpStream;

use crate::hostile::Alice;
use crate::hostile::raw::{Packet, Raw, message, number_at};
use crate::openssh::rig::{Cluster, NODE, Sshd, SshdOptions, noise, run, settings, there_and_back};
use crate::world::{World, ok, output, output_of, text};

async fn world(suite: Suite) -> World {
    World::by(suite, |_| {}).await
}

#[tokio::test(flavor = "multi_thread")]
async fn stock_clients_run_commands_and_copy_files() {
    for (suite, options) in [
        (Suite::BalancedV1, &["-oCiphers=aes128-gcm@openssh.com"][..]),
        (Suite::BalancedV1, &["-oCiphers=chacha20-poly1305@openssh.com"]),
        (
            Suite::BalancedV1,
            &["-oKexAlgorithms=diffie-hellman-group16-sha512", "-oCiphers=chacha20-poly1305@openssh.com"],
        ),
        (Suite::BalancedV1, &["-oKexAlgorithms=diffie-hellman-group16-sha512"]),
        (Suite::BalancedV1, &["-oKexAlgorithms=curve25519-sha256@libssh.org"]),
        (Suite::FipsV1, &["-oKexAlgorithms=ecdh-sha2-nistp256", "-oCiphers=aes256-gcm@openssh.com"]),
        (Suite::FipsV1, &["-oKexAlgorithms=ecdh-sha2-nistp384"]),
        (Suite::Legacy, &["-oHostKeyAlgorithms=rsa-sha2-256-cert-v01@openssh.com"]),
    ] {
        let world = world(suite).await;
        let big = noise(8 << 20);
        let through = output_of(world.ssh(options, &["cat; exit 3"]), big.clone()).await;
        assert_eq!(through.status.code(), Some(3), "{suite}: {}", text(&through.stderr));
        assert!(through.stdout == big, "{suite}");
        let mut terminal = options.to_vec();
        terminal.push("-tt");
        let shown = ok(&output(world.ssh(&terminal, &["stty size; tty"])).await);
        assert!(shown.contains("/dev/pts/"), "{shown}");
        let (from, to) = (world.path("from"), world.path("to"));
        std::fs::write(&from, &big).unwrap();
        for program in [&["scp"][..], &["scp", "-O"]] {
            let mut copy = world.client(program[0], "alice");
            copy.args(&program[1..]).args(options).arg(&from);
            copy.arg(format!("{}:{}", world.destination(), to.display()));
            ok(&output(copy).await);
            assert!(std::fs::read(&to).unwrap() == big, "{program:?}");
            std::fs::remove_file(&to).unwrap();
        }
        let mut sftp = world.client("sftp", "alice");
        sftp.args(options).arg("-b-").arg(world.destination());
        let lines = format!("put {} {}\nls -l {}\n", from.display(), to.display(), to.display());
        let listed = output_of(sftp, lines.into_bytes()).await;
        assert!(ok(&listed).contains("8388608") && std::fs::read(&to).unwrap() == big);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_renewed_while_both_directions_are_full() {
    for (suite, options) in [
        (Suite::FipsV1, &[][..]),
        (Suite::BalancedV1, &["-oCiphers=chacha20-poly1305@openssh.com"]),
        (Suite::BalancedV1, &["-oKexAlgorithms=diffie-hellman-group16-sha512"]),
    ] {
        let world = world(suite).await;
        let big = noise(24 << 20);
        let options = [&["-v", "-oRekeyLimit=1M"], options].concat();
        let through = output_of(world.ssh(&options, &["cat"]), big.clone()).await;
        assert!(through.status.success() && through.stdout == big, "{suite}: {}", text(&through.stderr));
        let renewed = text(&through.stderr).matches("SSH2_MSG_NEWKEYS received").count();
        assert!(renewed > 10, "{suite}: {renewed}");
    }
}

/// Ciphers, MACs and groups of before.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_weak_is_not_spoken() {
    let world = world(Suite::BalancedV1).await;
    for option in [
        "-oCiphers=aes128-ctr",
        "-oCiphers=aes256-cbc",
        "-oKexAlgorithms=diffie-hellman-group14-sha256",
        "-oKexAlgorithms=diffie-hellman-group-exchange-sha256",
        "-oKexAlgorithms=diffie-hellman-group18-sha512",
    ] {
        let refused = output(world.ssh(&["-v", option], &["true"])).await;
        assert_eq!(refused.status.code(), Some(255), "{option}");
        assert!(text(&refused.stderr).contains("Unable to negotiate"), "{option}: {}", text(&refused.stderr));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stock_sshd_is_reached_and_keys_are_renewed_from_this_side_and_that() {
    for (extra, limits) in [
        ("", Limits { bytes: 1 << 20, ..Limits::default() }),
        ("RekeyLimit 1M\n", Limits::default()),
        ("RekeyLimit 700K\n", Limits { bytes: 900 << 10, ..Limits::default() }),
    ] {
        let cluster = Cluster::with_suite(Suite::FipsV1);
        let options = SshdOptions { extra, ..SshdOptions::default() };
        let sshd = Sshd::start(&cluster, &cluster.host(NODE, HostRole::Node), &options);
        let stream = TcpStream::connect(sshd.address).await.unwrap();
        let credentials = cluster.user().credentials();
        let connecting = connect_by_layer(stream, &credentials, settings(&cluster), limits);
        let connection = connecting.await.unwrap();
        let ran = run(&connection, SessionRequest::exec("echo out; echo err >&2; exit 7")).await;
        assert_eq!((text(&ran.stdout), text(&ran.stderr)), ("out\n".to_owned(), "err\n".to_owned()));
        there_and_back(&connection, noise(16 << 20)).await;
    }
}

/// Counts are of a whole process: this test is one of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_computed_by_the_layer_and_counted_as_none_of_the_library() {
    const NAME: &str = "layer::a_connection_is_computed_by_the_layer_and_counted_as_none_of_the_library";
    if std::env::var_os("COUNTED").is_none() {
        let mut alone = tokio::process::Command::new(std::env::current_exe().unwrap());
        alone.args(["--exact", NAME, "--nocapture"]).env("COUNTED", "1").kill_on_drop(true);
        ok(&output(alone).await);
        return;
    }
    let times = |primitive: &str| -> u64 {
        let uses = sallyport_sal::uses::all();
        uses.iter().filter(|one| one.primitive == primitive).map(|one| one.times).sum()
    };
    let world = world(Suite::FipsV1).await;
    let counted = ["agree/p256", "sign/ecdsa-p256", "verify/ecdsa-p256", "hash/sha-256", "aead/aes-128-gcm"];
    let before = counted.map(times);
    ok(&output(
        world.ssh(&["-oKexAlgorithms=ecdh-sha2-nistp256", "-oCiphers=aes128-gcm@openssh.com"], &["true"]),
    )
    .await);
    let cluster = Cluster::with_suite(Suite::FipsV1);
    let sshd = Sshd::start(&cluster, &cluster.host(NODE, HostRole::Node), &SshdOptions::default());
    let stream = TcpStream::connect(sshd.address).await.unwrap();
    let credentials = cluster.user().credentials();
    let connecting = connect_by_layer(stream, &credentials, settings(&cluster), Limits::default());
    let connection = connecting.await.unwrap();
    assert_eq!(text(&run(&connection, SessionRequest::exec("echo out")).await.stdout), "out\n");
    for (primitive, before) in counted.iter().zip(before) {
        assert!(times(primitive) > before, "{primitive}");
    }
    assert_eq!(times("ssh/connection"), 0);
    // What is counted there, is.
    let stream = TcpStream::connect(sshd.address).await.unwrap();
    connect(stream, &credentials, settings(&cluster)).await.unwrap();
    assert_eq!(times("ssh/connection"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sshd_that_is_another_or_that_refuses_is_told_apart() {
    let cluster = Cluster::new();
    let sshd = Sshd::start(&cluster, &cluster.host("web-2", HostRole::Node), &SshdOptions::default());
    let enter = async |user: &crate::openssh::rig::Pair, host: &str| {
        let stream = TcpStream::connect(sshd.address).await.unwrap();
        let mut settings = settings(&cluster);
        host.clone_into(&mut settings.host);
        connect_by_layer(stream, &user.credentials(), settings, Limits::default()).await
    };
    let other = enter(&cluster.user(), NODE).await.unwrap_err();
    assert_eq!(other.to_string(), format!("{NODE} did not prove its identity"));
    let stranger = Cluster::new();
    let refused = enter(&stranger.user(), "web-2").await.unwrap_err();
    assert!(refused.to_string().starts_with("web-2 refused to log in"), "{refused}");
    enter(&cluster.user(), "web-2").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_decided_as_ever_and_more_is_said_of_it() {
    let world = world(Suite::BalancedV1).await;
    // Expired: the SSH library refuses those before the node is asked.
    let mut card = world.card("alice");
    card.issued -= time::Duration::hours(2);
    world.issue("late", &card);
    let mut late = world.client("ssh", "late");
    late.args([&world.destination(), "true"]);
    let refused = output(late).await;
    assert!(text(&refused.stderr).contains("Permission denied (publickey)"), "{}", text(&refused.stderr));
    let event = world.event(&Code::SessionRefused).await;
    assert!(event.message.contains("expired"), "{}", event.message);
    // Of another cluster.
    world.issue_by(&world.stranger(), "stranger", &world.card("alice"));
    let mut stranger = world.client("ssh", "stranger");
    stranger.args([&world.destination(), "true"]);
    assert!(!output(stranger).await.status.success());
    // For an account that the role does not have: in, and told why.
    let mut root = world.client("ssh", "alice");
    root.args(["nobody@127.0.0.1", "true"]);
    let told = output(root).await;
    assert_eq!(told.status.code(), Some(255), "{}", text(&told.stderr));
    assert!(text(&told.stderr).contains("sallyport: "), "{}", text(&told.stderr));
    // A lock ends the connection that stands, in words.
    let running = tokio::spawn(output(world.ssh(&[], &["echo up; sleep 100"])));
    world.event(&Code::SessionStart).await;
    world.set_locks(&["kind: lock\nversion: v1\nmetadata:\n  name: one\nspec:\n  target:\n    user: alice\n  message: out\n"]);
    let cut = running.await.unwrap();
    assert!(!cut.status.success() && text(&cut.stderr).contains("out"), "{}", text(&cut.stderr));
}

/// A client that means ill, as far as it may get; `None` where it is to stop before the login.
fn attacker(world: &World, is_in: bool) -> Raw {
    let alice = Alice::new(world);
    match is_in {
        true => Raw::authenticated(world.address, &world.own.name, &alice.key, &alice.certificate).unwrap(),
        false => Raw::keyed(world.address).unwrap(),
    }
}

/// The server's last words, if it has any.
fn last_words(raw: &mut Raw) -> String {
    loop {
        match raw.receive() {
            Ok(packet) if packet[0] == message::DISCONNECT => {
                return String::from_utf8_lossy(&packet[9..]).trim_end_matches('\0').to_owned();
            }
            Ok(_) => {}
            Err(_) => return String::new(),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_reaches_channels_without_a_login() {
    let world = world(Suite::BalancedV1).await;
    let attack = |first: Vec<Packet>| {
        let mut raw = attacker(&world, false);
        for packet in &first {
            raw.send(packet).unwrap();
        }
        last_words(&mut raw)
    };
    let service = || Packet::new(message::SERVICE_REQUEST).string("ssh-userauth");
    let none = || {
        Packet::new(message::USERAUTH_REQUEST).string(&world.own.name).string("ssh-connection").string("none")
    };
    assert!(attack(vec![Raw::open(0, 1 << 20, 1 << 15)]).contains("where a login was expected"));
    assert!(attack(vec![service(), Raw::open(0, 1 << 20, 1 << 15)]).contains("where a login was expected"));
    let forced =
        vec![service(), none(), Packet::new(message::USERAUTH_SUCCESS), Raw::open(0, 1 << 20, 1 << 15)];
    assert!(attack(forced).contains("where a login was expected"));
    // What the library says inside, and what it is told there, by a client that is not let in.
    let inside = vec![service(), none(), none(), Packet::new(message::GLOBAL_REQUEST).string("x").byte(1)];
    assert!(attack(inside).contains("where a login was expected"));
    assert!(world.events(&Code::SessionStart).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_in_is_not_let_in_again_and_keeps_to_the_order() {
    let world = world(Suite::BalancedV1).await;
    let mut raw = attacker(&world, true);
    // Another login is passed over (RFC 4252 §5.1), as are messages that are the transport's or unknown.
    let none = Packet::new(message::USERAUTH_REQUEST).string("root").string("ssh-connection").string("none");
    raw.send(&none).unwrap();
    raw.send(&Packet::new(message::SERVICE_REQUEST).string("ssh-userauth")).unwrap();
    raw.send(&Packet::new(message::USERAUTH_SUCCESS)).unwrap();
    raw.send(&Packet::new(message::IGNORE).string("x")).unwrap();
    // New keys, and a session under them.
    raw.exchange().unwrap();
    raw.send(&Raw::open(0, 1 << 20, 1 << 15)).unwrap();
    let channel = number_at(&raw.receive_kind(message::CHANNEL_CONFIRMATION).unwrap(), 5);
    raw.send(&Raw::exec(channel, "id -un")).unwrap();
    let data = raw.receive_kind(message::CHANNEL_DATA).unwrap();
    assert_eq!(String::from_utf8_lossy(&data[9..]).trim(), world.own.name);
    // A second proposal in the middle of one.
    raw.send(&Raw::kexinit()).unwrap();
    raw.send(&Raw::kexinit()).unwrap();
    assert!(last_words(&mut raw).contains("the end of the key exchange"));
    // Only the library itself may exchange nothing.
    let mut raw = attacker(&world, true);
    raw.send(&Packet::new(message::NEWKEYS)).unwrap();
    assert!(last_words(&mut raw).contains("where KEXINIT was expected"));
    let mut nothing = Packet::new(message::KEXINIT).raw(&[0; 16]).string("none").string("ssh-ed25519");
    for _ in 0..2 {
        nothing = nothing.string("clear");
    }
    let nothing = nothing.string("none").string("none").string("none").string("none").string("").string("");
    let mut raw = attacker(&world, true);
    raw.send(&nothing.byte(0).number(0)).unwrap();
    assert!(last_words(&mut raw).contains("that is spoken here"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_says_nothing_or_tries_for_ever_is_sent_away() {
    let world = World::by(Suite::BalancedV1, |config| {
        config.login_timeout = Duration::from_secs(1);
        config.max_auth_attempts = 3;
    })
    .await;
    let mut silent = Raw::keyed(world.address).unwrap();
    let words = last_words(&mut silent);
    assert!(words.contains("no login within 1 s"), "{words}");
    let mut raw = Raw::keyed(world.address).unwrap();
    raw.service().unwrap();
    let none = Packet::new(message::USERAUTH_REQUEST).string("root").string("ssh-connection").string("none");
    for _ in 0..3 {
        raw.send(&none).unwrap();
        assert_eq!(raw.receive_kind(message::USERAUTH_FAILURE).unwrap()[0], message::USERAUTH_FAILURE);
    }
    raw.send(&none).unwrap();
    assert_eq!(last_words(&mut raw), "Too many authentication attempts");
}
