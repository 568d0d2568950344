//! The pipelined client against a real sshd.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sallyport_access::HostRole;
use sallyport_sal::Suite;
use sallyport_ssh::client::{
    ClientError, Connection, Exit, Limits, Output, Program, SessionRequest, Settings, Terminal, WindowSize,
    connect_pipelined, connect_pipelined_with,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::openssh::rig::{
    Cluster, NODE, Pair, Ran, Sshd, SshdOptions, account, connected, noise, now, run, settings,
    talk_to_a_shell, there_and_back, written_to_nobody,
};

pub(crate) async fn reach(sshd: &Sshd, user: &Pair, settings: Settings) -> Result<Connection, ClientError> {
    let stream = TcpStream::connect(sshd.address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    connect_pipelined(stream, &user.credentials(), settings).await
}

fn server(extra: &'static str) -> (Cluster, Sshd) {
    let cluster = Cluster::new();
    let options = SshdOptions { extra, ..SshdOptions::default() };
    let sshd = Sshd::start(&cluster, &cluster.host(NODE, HostRole::Node), &options);
    (cluster, sshd)
}

async fn once(cluster: &Cluster, sshd: &Sshd, request: SessionRequest) -> Ran {
    let connection = reach(sshd, &cluster.user(), settings(cluster)).await.unwrap();
    let ran = run(&connection, request).await;
    connection.disconnect().await;
    ran
}

#[tokio::test]
async fn commands_give_output_and_exit_codes() {
    let (cluster, sshd) = server("");
    let ran = once(&cluster, &sshd, SessionRequest::exec("echo out; echo err >&2; exit 7")).await;
    assert_eq!((ran.stdout.as_slice(), ran.stderr.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
    assert_eq!(ran.exit, Exit::Status(7));
    assert_eq!(once(&cluster, &sshd, SessionRequest::exec("true")).await.exit, Exit::Status(0));
    let ran = once(&cluster, &sshd, SessionRequest::exec("kill -TERM $$")).await;
    let Exit::Signal { name, .. } = ran.exit else { panic!("{:?}", ran.exit) };
    assert_eq!(name, "TERM");
    let mut request = SessionRequest::exec("echo \"[$GREETING][$OTHER]\"");
    request.environment =
        vec![("GREETING".to_owned(), "good day".to_owned()), ("OTHER".to_owned(), "no".to_owned())];
    assert_eq!(once(&cluster, &sshd, request).await.stdout, b"[good day][]\n");
    let refused = once(&cluster, &sshd, SessionRequest::new(Program::Subsystem("none".to_owned()))).await;
    assert_eq!(refused.exit, Exit::Refused { explained: false });
}

#[tokio::test]
async fn a_shell_reads_its_input() {
    let (cluster, sshd) = server("");
    let connection = reach(&sshd, &cluster.user(), settings(&cluster)).await.unwrap();
    talk_to_a_shell(&connection).await;
    let second = connection.start(SessionRequest::exec("true")).await.unwrap_err();
    assert!(second.to_string().contains("for one session"), "{second}");
    connection.disconnect().await;
    assert!(connection.is_closed());
}

#[tokio::test]
async fn terminals_have_a_size_that_changes_and_signals_arrive() {
    let (cluster, sshd) = server("");
    let connection = reach(&sshd, &cluster.user(), settings(&cluster)).await.unwrap();
    let command = "stty size; read line; stty size; echo \"$TERM\"; tty; trap 'exit 9' USR1; echo ready; \
                   read line; exit 9";
    let mut request = SessionRequest::exec(command);
    request.terminal = Some(Terminal {
        term: "vt220".to_owned(),
        size: WindowSize { columns: 101, rows: 33, width: 0, height: 0 },
        modes: Vec::new(),
    });
    let mut session = connection.start(request).await.unwrap();
    let mut text = String::new();
    while !text.contains("33 101") {
        if let Output::Stdout(data) = session.next().await.unwrap() {
            text.push_str(&String::from_utf8_lossy(&data));
        }
    }
    session.input().resize(WindowSize { columns: 55, rows: 22, width: 0, height: 0 }).await.unwrap();
    session.input().data(&b"\n"[..]).await.unwrap();
    let mut signalled = false;
    let exit = loop {
        match session.next().await.unwrap() {
            Output::Stdout(data) => text.push_str(&String::from_utf8_lossy(&data)),
            Output::Exit(exit) => break exit,
            _ => {}
        }
        if text.contains("ready") && !signalled {
            session.input().signal("USR1").await.unwrap();
            // sshd gives no signals to root's programs, and takes the request all the same.
            session.input().data(&b"\n"[..]).await.unwrap();
            signalled = true;
        }
    };
    assert!(text.contains("22 55") && text.contains("vt220") && text.contains("/dev/pts/"), "{text}");
    assert_eq!(exit, Exit::Status(9));
}

#[tokio::test]
async fn big_data_goes_both_ways_unchanged() {
    let (cluster, sshd) = server("");
    let connection = reach(&sshd, &cluster.user(), settings(&cluster)).await.unwrap();
    there_and_back(&connection, noise(48 << 20)).await;
}

#[tokio::test]
async fn keys_are_renewed_under_load_from_either_side() {
    let (cluster, sshd) = server("RekeyLimit 1M\nLogLevel DEBUG1");
    let connection = reach(&sshd, &cluster.user(), settings(&cluster)).await.unwrap();
    there_and_back(&connection, noise(24 << 20)).await;
    assert!(sshd.log().matches("rekey").count() > 10, "{}", sshd.log());

    let (cluster, sshd) = server("LogLevel DEBUG1");
    let stream = TcpStream::connect(sshd.address).await.unwrap();
    let limits = Limits { bytes: 1 << 20, ..Limits::default() };
    let user = cluster.user().credentials();
    let connection = connect_pipelined_with(stream, &user, settings(&cluster), limits).await.unwrap();
    there_and_back(&connection, noise(24 << 20)).await;
    assert!(sshd.log().matches("SSH2_MSG_KEXINIT received").count() > 10, "{}", sshd.log());
}

#[tokio::test]
async fn a_reader_that_stops_stops_the_host() {
    let (cluster, sshd) = server("");
    let connection = reach(&sshd, &cluster.user(), settings(&cluster)).await.unwrap();
    let (session, last, _counting) = written_to_nobody(&connection).await;
    assert!(last < 8 << 20, "{last} bytes were written to a reader that stopped");
    session.input().close().await.unwrap();
}

#[tokio::test]
async fn signs_of_life_are_given_and_asked_for() {
    // Who answers none of two questions, a second apart, is sent away after three.
    let (cluster, sshd) = server("ClientAliveInterval 1\nClientAliveCountMax 2");
    let settings = Settings { keepalive: Some(Duration::from_millis(300)), ..settings(&cluster) };
    let connection = reach(&sshd, &cluster.user(), settings).await.unwrap();
    let ran = run(&connection, SessionRequest::exec("sleep 3.5; echo alive")).await;
    assert_eq!((ran.stdout.as_slice(), ran.exit), (&b"alive\n"[..], Exit::Status(0)));
}

#[tokio::test]
async fn a_connection_that_is_cut_is_told_with_the_session() {
    let (cluster, sshd) = server("");
    let connection = reach(&sshd, &cluster.user(), settings(&cluster)).await.unwrap();
    let mut session = connection.start(SessionRequest::exec("echo there; sleep 60")).await.unwrap();
    while !matches!(session.next().await.unwrap(), Output::Stdout(_)) {}
    sshd.kill_connections();
    let exit = loop {
        if let Output::Exit(exit) = session.next().await.unwrap() {
            break exit;
        }
    };
    assert!(matches!(exit, Exit::Lost { .. }), "{exit:?}");
    assert!(session.next().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_suite_s_hosts_and_users_are_believed() {
    let mut suites = tokio::task::JoinSet::new();
    for suite in [Suite::BalancedV1, Suite::Legacy, Suite::FipsV1] {
        suites.spawn(async move {
            let cluster = Cluster::with_suite(suite);
            let host = cluster.host(NODE, HostRole::Node);
            let sshd = Sshd::start(&cluster, &host, &SshdOptions::default());
            let ran = once(&cluster, &sshd, SessionRequest::exec("echo there")).await;
            assert_eq!(ran.stdout, b"there\n", "{suite:?}");
        });
    }
    suites.join_all().await;
}

/// A relay that keeps what the client says.
fn listened(sshd: &Sshd) -> (DuplexStream, tokio::task::JoinHandle<Vec<u8>>) {
    let (client, relay) = duplex(1 << 20);
    let address = sshd.address;
    let heard = tokio::spawn(async move {
        let server = TcpStream::connect(address).await.unwrap();
        let (mut from, mut to) = server.into_split();
        let (mut reader, mut writer) = tokio::io::split(relay);
        let back = tokio::spawn(async move {
            let _ = tokio::io::copy(&mut from, &mut writer).await;
        });
        let (mut heard, mut buffer) = (Vec::new(), vec![0; 65536]);
        while let Ok(count @ 1..) = reader.read(&mut buffer).await {
            heard.extend_from_slice(&buffer[..count]);
            if to.write_all(&buffer[..count]).await.is_err() {
                break;
            }
        }
        back.abort();
        heard
    });
    (client, heard)
}

/// The numbers of the messages in plain packets behind a greeting.
fn plain_messages(bytes: &[u8]) -> Vec<u8> {
    let mut rest = &bytes[bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1..];
    let mut numbers = Vec::new();
    while rest.len() > 5 {
        let length = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
        numbers.push(rest[5]);
        rest = &rest[4 + length..];
    }
    numbers
}

#[tokio::test]
async fn nothing_of_the_user_s_goes_to_a_host_that_is_not_who_it_should_be() {
    let cluster = Cluster::new();
    let other = Cluster::new();
    let hour = time::Duration::hours(1);
    let plain = SshdOptions { plain: true, ..SshdOptions::default() };
    let usual = SshdOptions::default;
    for (host, options, said) in [
        (cluster.host("web-2", HostRole::Node), usual(), "did not prove its identity"),
        (other.host(NODE, HostRole::Node), usual(), "did not prove its identity"),
        (cluster.host_from(NODE, HostRole::Node, now() - 3 * hour), usual(), "did not prove its identity"),
        (cluster.host(NODE, HostRole::Node), plain, "plain host key"),
    ] {
        let sshd = Sshd::start(&cluster, &host, &options);
        let (stream, heard) = listened(&sshd);
        let error =
            connect_pipelined(stream, &cluster.user().credentials(), settings(&cluster)).await.unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
        let expected = if said.starts_with("plain") { "PlainHostKey" } else { "HostCertificate" };
        assert!(format!("{error:?}").starts_with(expected), "{error:?}");
        let heard = timeout(Duration::from_secs(60), heard).await.unwrap().unwrap();
        // KEXINIT and the share; no NEWKEYS, and so nothing under keys.
        assert_eq!(plain_messages(&heard), [20, 30]);
    }
}

#[tokio::test]
async fn refused_logins_say_why() {
    let (cluster, sshd) = server("");
    let refusal = async |user: Pair, settings: Settings| {
        let connection = reach(&sshd, &user, settings).await.unwrap();
        let error = connection.start(SessionRequest::exec("touch /nowhere")).await.unwrap_err();
        assert!(matches!(error, ClientError::Authentication { .. }), "{error:?}");
        error.to_string()
    };
    let expired = cluster.user_from("alice", &[&account()], now() - time::Duration::hours(3));
    let said = refusal(expired, settings(&cluster)).await;
    assert!(said.contains("refused to log in") && said.contains("your certificate has expired"), "{said}");
    let elsewhere = cluster.user_from("alice", &["somebody"], now());
    let said = refusal(elsewhere, settings(&cluster)).await;
    assert!(
        said.contains(&format!("refused to log in {}", account())) && !said.contains("expired"),
        "{said}"
    );
    let stranger = Cluster::new().user();
    refusal(stranger, settings(&cluster)).await;
    let nobody = Settings { login: "nobody-of-that-name".to_owned(), ..settings(&cluster) };
    refusal(cluster.user_from("alice", &["nobody-of-that-name"], now()), nobody).await;
}

#[tokio::test]
async fn a_second_factor_of_the_server_s_is_named() {
    let (cluster, sshd) = server("AuthenticationMethods publickey,publickey");
    let connection = reach(&sshd, &cluster.user(), settings(&cluster)).await;
    let error = connection.unwrap().start(SessionRequest::exec("true")).await.unwrap_err();
    assert!(error.to_string().contains("asks for publickey as well"), "{error}");
}

#[tokio::test]
async fn a_server_without_sessions_says_so() {
    let (cluster, sshd) = server("MaxSessions 0");
    let connection = reach(&sshd, &cluster.user(), settings(&cluster)).await.unwrap();
    let error = connection.start(SessionRequest::exec("true")).await.unwrap_err();
    assert!(matches!(error, ClientError::Refused { .. }), "{error:?}");
}

#[tokio::test]
async fn a_server_without_aes_gcm_is_for_the_other_client() {
    let (cluster, sshd) = server("Ciphers chacha20-poly1305@openssh.com");
    let (stream, heard) = listened(&sshd);
    let user = cluster.user().credentials();
    let error = connect_pipelined(stream, &user, settings(&cluster)).await.unwrap_err();
    assert!(matches!(error, ClientError::NotPipelined { .. }), "{error:?}");
    assert!(error.to_string().contains("no cipher in common"), "{error}");
    let heard = timeout(Duration::from_secs(60), heard).await.unwrap().unwrap();
    assert_eq!(plain_messages(&heard), [20, 1]);
}

/// A relay that lets one side speak until it has nothing more to say, then the other, and counts how often the client had
/// something to say.
fn in_turns(sshd: &Sshd, flights: Arc<AtomicUsize>) -> DuplexStream {
    let (client, mut relay) = duplex(1 << 20);
    let address = sshd.address;
    tokio::spawn(async move {
        let mut server = TcpStream::connect(address).await.unwrap();
        loop {
            let (said, more) = all(&mut relay).await;
            flights.fetch_add(usize::from(!said.is_empty()), Ordering::SeqCst);
            if !more || server.write_all(&said).await.is_err() {
                return;
            }
            let (said, more) = all(&mut server).await;
            if relay.write_all(&said).await.is_err() || !more {
                return;
            }
        }
    });
    client
}

/// What a side says until it pauses; false when it has hung up.
async fn all(side: &mut (impl AsyncReadExt + Unpin)) -> (Vec<u8>, bool) {
    let (mut said, mut buffer) = (Vec::new(), vec![0; 65536]);
    loop {
        match timeout(Duration::from_millis(150), side.read(&mut buffer)).await {
            Ok(Ok(count @ 1..)) => said.extend_from_slice(&buffer[..count]),
            Ok(_) => return (said, false),
            Err(_) => return (said, true),
        }
    }
}

#[tokio::test]
async fn a_command_takes_three_flights() {
    let (cluster, sshd) = server("");
    let flights = Arc::new(AtomicUsize::new(0));
    let stream = in_turns(&sshd, Arc::clone(&flights));
    let user = cluster.user().credentials();
    let connection = connect_pipelined(stream, &user, settings(&cluster)).await.unwrap();
    let mut session = connection.start(SessionRequest::exec("echo done")).await.unwrap();
    let mut text = Vec::new();
    while let Some(output) = session.next().await {
        match output {
            Output::Stdout(data) => text.extend_from_slice(&data),
            Output::Exit(exit) => assert_eq!(exit, Exit::Status(0)),
            _ => {}
        }
    }
    assert_eq!(text, b"done\n");
    // Version and proposal; the share; everything else. The end of the channel may be the fourth.
    let flights = flights.load(Ordering::SeqCst);
    assert!(flights <= 4, "{flights} flights");
    assert!(flights >= 3, "{flights} flights");
}

#[tokio::test]
async fn files_are_asked_for_in_three_flights_too() {
    let (cluster, sshd) = server("");
    let flights = Arc::new(AtomicUsize::new(0));
    let stream = in_turns(&sshd, Arc::clone(&flights));
    let user = cluster.user().credentials();
    let connection = connect_pipelined(stream, &user, settings(&cluster)).await.unwrap();
    let mut stream = connection.sftp().await.unwrap();
    let begun = flights.load(Ordering::SeqCst);
    assert!((3..=4).contains(&begun), "{begun} flights");
    // SSH_FXP_INIT, version 3, and its answer (draft-ietf-secsh-filexfer-02 §4).
    stream.write_all(b"\0\0\0\x05\x01\0\0\0\x03").await.unwrap();
    let mut answer = [0; 9];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer[4..], [2, 0, 0, 0, 3]);
    let asked = flights.load(Ordering::SeqCst);
    assert!(asked <= begun + 1, "{asked} flights after {begun}");
    stream.shutdown().await.unwrap();
    let (mut rest, second) = (Vec::new(), connection.sftp().await.unwrap_err());
    stream.read_to_end(&mut rest).await.unwrap();
    assert!(stream.write_all(b"more").await.is_err());
    assert!(second.to_string().contains("for one session"), "{second}");
}

#[tokio::test]
async fn a_refused_program_is_the_end_though_its_input_is_open() {
    let (cluster, sshd) = server("");
    let (user, settings) = (cluster.user(), settings(&cluster));
    let few = reach(&sshd, &user, settings.clone()).await.unwrap();
    let steps = connected(&sshd, &user, settings).await.unwrap();
    for connection in [few, steps] {
        let request = SessionRequest::new(Program::Subsystem("none".to_owned()));
        let mut session = connection.start(request).await.unwrap();
        let exit = async {
            loop {
                if let Output::Exit(exit) = session.next().await.unwrap() {
                    break exit;
                }
            }
        };
        assert_eq!(timeout(Duration::from_secs(10), exit).await.unwrap(), Exit::Refused { explained: false });
        connection.disconnect().await;
    }
}
