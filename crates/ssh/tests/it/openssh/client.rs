use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sallyport_access::HostRole;
use sallyport_ssh::client::{
    ClientError, Endpoint, Exit, Listener, Output, Report, SessionRequest, Terminal, WindowSize, connect,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::openssh::rig::{
    Cluster, NODE, Sshd, SshdOptions, account, connected, noise, now, openssh_config, ready, run, settings,
    ssh_program, talk_to_a_shell, there_and_back, written_to_nobody,
};
use crate::world::{listens, until};

fn silent() -> Report {
    Arc::new(|_| {})
}

#[tokio::test]
async fn commands_give_output_and_exit_codes() {
    let (_cluster, _sshd, connection) = ready().await;
    let ran = run(&connection, SessionRequest::exec("echo out; echo err >&2; exit 7")).await;
    assert_eq!((ran.stdout.as_slice(), ran.stderr.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
    assert_eq!(ran.exit, Exit::Status(7));
    let ran = run(&connection, SessionRequest::exec("true")).await;
    assert_eq!(ran.exit, Exit::Status(0));
    let ran = run(&connection, SessionRequest::exec("kill -TERM $$")).await;
    let Exit::Signal { name, .. } = ran.exit else { panic!("{:?}", ran.exit) };
    assert_eq!(name, "TERM");
    talk_to_a_shell(&connection).await;
}

#[tokio::test]
async fn environment_goes_where_the_host_allows_it() {
    let (_cluster, _sshd, connection) = ready().await;
    let mut request = SessionRequest::exec("echo \"[$GREETING][$OTHER]\"");
    request.environment =
        vec![("GREETING".to_owned(), "good day".to_owned()), ("OTHER".to_owned(), "no".to_owned())];
    assert_eq!(run(&connection, request).await.stdout, b"[good day][]\n");
}

#[tokio::test]
async fn terminals_have_a_size_that_changes() {
    let (_cluster, _sshd, connection) = ready().await;
    let mut request = SessionRequest::exec("stty size; read line; stty size; echo \"$TERM\"; tty");
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
    let exit = loop {
        match session.next().await.unwrap() {
            Output::Stdout(data) => text.push_str(&String::from_utf8_lossy(&data)),
            Output::Exit(exit) => break exit,
            _ => {}
        }
    };
    assert!(text.contains("22 55") && text.contains("vt220") && text.contains("/dev/pts/"), "{text}");
    assert_eq!(exit, Exit::Status(0));
}

#[tokio::test]
async fn big_data_goes_both_ways_unchanged() {
    let (_cluster, _sshd, connection) = ready().await;
    there_and_back(&connection, noise(24 << 20)).await;
}

#[tokio::test]
async fn a_reader_that_stops_stops_the_host() {
    let (_cluster, _sshd, connection) = ready().await;
    let (session, last, _counting) = written_to_nobody(&connection).await;
    assert!(last < 64 << 20, "the host wrote {last} bytes to a client that reads none");
    drop(session);
}

async fn echo_server() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                // Answers only after the client has said that it is done: half-close must travel.
                let mut all = Vec::new();
                stream.read_to_end(&mut all).await.unwrap();
                stream.write_all(&all).await.unwrap();
                stream.shutdown().await.unwrap();
            });
        }
    });
    address
}

async fn through(mut stream: TcpStream) {
    let sent = noise(3 << 20);
    let (mut reader, mut writer) = stream.split();
    let write = async {
        writer.write_all(&sent).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let mut received = Vec::new();
    let (_, read) = tokio::join!(write, reader.read_to_end(&mut received));
    read.unwrap();
    assert!(received == sent);
}

#[tokio::test]
async fn local_and_dynamic_forwards_carry_bytes_and_half_close() {
    let (_cluster, _sshd, connection) = ready().await;
    let target = echo_server().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let forward = connection.forward(listener, port("localhost", target.port()), silent());
    tokio::join!(async { through(TcpStream::connect(address).await.unwrap()).await }, async {
        through(TcpStream::connect(address).await.unwrap()).await
    },);
    drop(forward);
    until("the end of the listener", || std::net::TcpStream::connect(address).err()).await;

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let _forward = connection.forward_dynamic(listener, silent());
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"\x05\x01\0").await.unwrap();
    let mut answer = [0; 2];
    stream.read_exact(&mut answer).await.unwrap();
    let mut request = b"\x05\x01\0\x01\x7f\0\0\x01".to_vec();
    request.extend_from_slice(&target.port().to_be_bytes());
    stream.write_all(&request).await.unwrap();
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer[1], 0);
    through(stream).await;
}

fn port(host: &str, port: u16) -> Endpoint {
    Endpoint::Port { host: host.to_owned(), port }
}

#[tokio::test]
async fn remote_ports_and_sockets_are_forwarded() {
    let (cluster, _sshd, connection) = ready().await;
    let target = echo_server().await;
    let to = port("127.0.0.1", target.port());
    let forward = connection.forward_remote(port("localhost", 0), to.clone(), silent()).await.unwrap();
    let Endpoint::Port { port: allocated @ 1.., .. } = forward.at else { panic!("{forward:?}") };
    through(TcpStream::connect(("127.0.0.1", allocated)).await.unwrap()).await;
    // A socket on the host leads here; a socket here leads to it.
    let there = Endpoint::Socket { path: cluster.directory.path().join("there").display().to_string() };
    let here = Endpoint::Socket { path: cluster.directory.path().join("here").display().to_string() };
    let _remote = connection.forward_remote(there.clone(), to.clone(), silent()).await.unwrap();
    let listener = Listener::bind(&here, false).await.unwrap();
    assert!(Listener::bind(&here, false).await.is_err());
    let local = connection.forward(listener, there.clone(), silent());
    let Endpoint::Socket { path } = &here else { unreachable!() };
    let mut stream = tokio::net::UnixStream::connect(path).await.unwrap();
    stream.write_all(b"both ways").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut back = String::new();
    stream.read_to_string(&mut back).await.unwrap();
    assert_eq!(back, "both ways");
    drop(local);
    until("the end of the socket", || (!std::path::Path::new(path).exists()).then_some(())).await;
    // What is no longer wanted is not let in.
    drop(forward);
    let mut late = TcpStream::connect(("127.0.0.1", allocated)).await.unwrap();
    assert_eq!(late.read(&mut [0; 1]).await.unwrap_or(0), 0);
    let taken = connection.forward_remote(there, to, silent()).await;
    assert!(matches!(taken, Err(ClientError::Refused { .. })), "{taken:?}");
}

#[tokio::test]
async fn refused_forwards_say_why() {
    let cluster = Cluster::new();
    let options = SshdOptions { extra: "AllowTcpForwarding no", ..SshdOptions::default() };
    let sshd = Sshd::start(&cluster, &cluster.host(NODE, HostRole::Node), &options);
    let connection = connected(&sshd, &cluster.user(), settings(&cluster)).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let said = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&said);
    let report: Report = Arc::new(move |text: &str| heard.lock().push(text.to_owned()));
    let _forward = connection.forward(listener, port("localhost", 1), report);
    let mut stream = TcpStream::connect(address).await.unwrap();
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
    let said = said.lock().join("\n");
    assert!(said.contains("localhost:1") && said.contains("open failed"), "{said}");
    // The connection still works.
    assert_eq!(run(&connection, SessionRequest::exec("exit 3")).await.exit, Exit::Status(3));
}

#[tokio::test]
async fn the_agent_goes_along_only_when_asked() {
    let (cluster, sshd, _) = ready().await;
    let socket = cluster.directory.path().join("agent");
    let mut agent = std::process::Command::new(ssh_program("ssh-agent"))
        .arg("-D")
        .arg("-a")
        .arg(&socket)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    listens(&socket).await;
    let mut with_agent = settings(&cluster);
    with_agent.agent = Some(socket);
    let connection = connected(&sshd, &cluster.user(), with_agent).await.unwrap();
    // Exit codes of ssh-add -l: 1 for an agent without keys, 2 for no agent.
    assert_eq!(run(&connection, SessionRequest::exec("ssh-add -l")).await.exit, Exit::Status(2));
    let mut request = SessionRequest::exec("ssh-add -l");
    request.forward_agent = true;
    let ran = run(&connection, request).await;
    agent.kill().unwrap();
    agent.wait().unwrap();
    assert_eq!(ran.exit, Exit::Status(1), "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(String::from_utf8_lossy(&ran.stdout).contains("no identities"));
}

#[tokio::test]
async fn users_are_refused_with_the_hosts_words() {
    let (cluster, sshd, _) = ready().await;
    let other_login = cluster.user_from("alice", &["nobody-else"], now());
    let expired = cluster.user_from("alice", &[&account()], now() - time::Duration::days(2));
    let stranger = Cluster::new().user();
    for user in [other_login, expired, stranger] {
        let error = connected(&sshd, &user, settings(&cluster)).await.unwrap_err();
        let ClientError::Authentication { host, login, .. } = &error else { panic!("{error:?}") };
        assert_eq!((host.as_str(), login), (NODE, &account()));
        assert!(error.to_string().starts_with("web-1 refused to log in"), "{error}");
    }
}

/// What a stock sshd makes of a pinned login, with a stock ssh at its other end.
#[tokio::test]
async fn a_stock_sshd_lets_a_pinned_login_in_from_its_address_alone() {
    let cluster = Cluster::new();
    let sshd = Sshd::start(&cluster, &cluster.host(NODE, HostRole::Node), &SshdOptions::default());
    let host = format!(
        "Host {NODE}\n HostName {}\n Port {}\n HostKeyAlias {NODE}\n",
        sshd.address.ip(),
        sshd.address.port()
    );
    for (pinned_to, from, is_let_in) in [
        ("127.0.0.1", "127.0.0.1", true),
        ("127.0.0.9", "127.0.0.9", true),
        ("127.0.0.1", "127.0.0.9", false),
    ] {
        let config = openssh_config(&cluster, &cluster.pinned(pinned_to.parse().unwrap()), &host);
        let ssh = Command::new(ssh_program("ssh"))
            .args([
                "-F".as_ref(),
                config.as_os_str(),
                "-b".as_ref(),
                from.as_ref(),
                NODE.as_ref(),
                "echo in".as_ref(),
            ])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ssh.stderr);
        assert_eq!(ssh.status.success(), is_let_in, "{pinned_to} {from}: {said}");
        assert_eq!(ssh.stdout == b"in\n", is_let_in, "{pinned_to} {from}: {said}");
    }
    let log = sshd.log();
    assert!(log.contains("not from a permitted source address (127.0.0.9)"), "{log}");
}

#[tokio::test]
async fn hosts_must_prove_their_name() {
    let cluster = Cluster::new();
    let user = cluster.user();
    let refused = async |host, options: SshdOptions| {
        let sshd = Sshd::start(&cluster, &host, &options);
        connected(&sshd, &user, settings(&cluster)).await.unwrap_err()
    };
    let words = |error: &ClientError| match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    let other = refused(cluster.host("web-2", HostRole::Node), SshdOptions::default()).await;
    assert!(matches!(other, ClientError::HostCertificate { .. }), "{other:?}");
    assert!(
        words(&other).contains("web-2") && words(&other).contains("not for \"web-1\""),
        "{}",
        words(&other)
    );
    let stranger = refused(Cluster::new().host(NODE, HostRole::Node), SshdOptions::default()).await;
    assert!(matches!(stranger, ClientError::HostCertificate { .. }), "{stranger:?}");
    assert!(words(&stranger).contains("not issued by the"), "{}", words(&stranger));
    let past = now() - time::Duration::days(2);
    let expired = refused(cluster.host_from(NODE, HostRole::Node, past), SshdOptions::default()).await;
    assert!(words(&expired).contains("expired"), "{}", words(&expired));
    let plain = SshdOptions { plain: true, ..SshdOptions::default() };
    let plain = refused(cluster.host(NODE, HostRole::Node), plain).await;
    assert!(
        matches!(&plain, ClientError::PlainHostKey { fingerprint, .. } if fingerprint.starts_with("SHA256:"))
    );
    // A user's certificate is no host's, even when it is signed by the same cluster.
    let user_as_host = refused(cluster.user_from("web-1", &["web-1"], now()), SshdOptions::default()).await;
    assert!(!matches!(user_as_host, ClientError::Authentication { .. }), "{user_as_host:?}");
}

#[tokio::test]
async fn a_lost_connection_is_told_apart_from_an_end() {
    let (_cluster, sshd, connection) = ready().await;
    let mut session = connection.start(SessionRequest::exec("echo up; sleep 600")).await.unwrap();
    while !matches!(session.next().await.unwrap(), Output::Stdout(_)) {}
    sshd.kill_connections();
    let exit = loop {
        if let Output::Exit(exit) = session.next().await.unwrap() {
            break exit;
        }
    };
    assert!(matches!(exit, Exit::Lost { .. }), "{exit:?}");
    assert!(session.next().await.is_none());
    assert!(matches!(connection.start(SessionRequest::exec("true")).await, Err(ClientError::Lost { .. })));
    assert!(connection.is_closed());
}

#[tokio::test]
async fn a_silent_network_is_noticed() {
    let cluster = Cluster::new();
    let sshd = Sshd::start(&cluster, &cluster.host(NODE, HostRole::Node), &SshdOptions::default());
    // A relay that can stop relaying without closing anything: nothing but silence tells.
    let (near, far) = tokio::io::duplex(64 * 1024);
    let upstream = TcpStream::connect(sshd.address).await.unwrap();
    let stalled = Arc::new(AtomicBool::new(false));
    let ((far_read, far_write), (up_read, up_write)) = (tokio::io::split(far), upstream.into_split());
    let answers = Arc::new(AtomicUsize::new(0));
    tokio::spawn(relay(far_read, up_write, Arc::clone(&stalled), Arc::default()));
    tokio::spawn(relay(up_read, far_write, Arc::clone(&stalled), Arc::clone(&answers)));
    let mut quick = settings(&cluster);
    quick.keepalive = Some(Duration::from_millis(200));
    let connection = connect(near, &cluster.user().credentials(), quick).await.unwrap();
    let mut session = connection.start(SessionRequest::exec("echo up; sleep 600")).await.unwrap();
    while !matches!(session.next().await.unwrap(), Output::Stdout(_)) {}
    // While the relay runs, keepalives are answered and the session stands.
    let before = answers.load(Ordering::Acquire);
    until("answers", || (answers.load(Ordering::Acquire) > before + 5).then_some(())).await;
    assert!(!connection.is_closed(), "an answered keepalive ended the connection");
    stalled.store(true, Ordering::Release);
    let exit = tokio::time::timeout(Duration::from_secs(60), session.next()).await.unwrap().unwrap();
    let Output::Exit(Exit::Lost { reason }) = exit else { panic!("{exit:?}") };
    assert!(reason.contains("stopped answering"), "{reason}");
}

async fn relay(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    stalled: Arc<AtomicBool>,
    passed: Arc<AtomicUsize>,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if stalled.load(Ordering::Acquire) {
            std::future::pending::<()>().await;
        }
        to.write_all(&buffer[..read]).await.unwrap();
        passed.fetch_add(1, Ordering::AcqRel);
    }
}
