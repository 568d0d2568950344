use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use sallyport_access::{HostRole, Identity};
use sallyport_ca::Trust;
use sallyport_sal::Suite;
use sallyport_ssh::BoxedStream;
use sallyport_ssh::capabilities::{Sighting, Whose};
use sallyport_ssh::client::{ClientError, Connection, Settings, connect_to_proxy};
use sallyport_ssh::jump::{Answered, Dial, Jump, JumpConfig, JumpError, Question, Refusal};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use crate::hostile::raw::{Packet, Raw, message};
use crate::openssh::rig::{
    Cluster, NODE, Pair, Sshd, SshdOptions, account, noise, now, openssh_config, ssh_program,
};
use crate::world::until;

mod factor;
mod suites;

/// What the proxy would do: one node by name, refusals in words.
struct Nodes {
    trust: Arc<Trust>,
    node: SocketAddr,
    asked: Mutex<Vec<(String, String)>>,
    seen: Mutex<Vec<Sighting>>,
    /// The node that reads nothing.
    stuck: Mutex<Option<DuplexStream>>,
    /// What users have typed who were asked for a second factor.
    typed: Mutex<Vec<String>>,
}

#[async_trait]
impl Dial for Nodes {
    fn trust(&self) -> Arc<Trust> {
        Arc::clone(&self.trust)
    }

    async fn dial(
        &self,
        identity: &Identity,
        certificate: &str,
        host: &str,
        _: SocketAddr,
        _: CancellationToken,
    ) -> Result<BoxedStream, Refusal> {
        assert!(certificate.contains("-cert-v01@openssh.com "), "{certificate}");
        self.asked.lock().push((identity.display_name(), host.to_owned()));
        match host {
            NODE | "web-1.example.com" => Ok(Box::new(TcpStream::connect(self.node).await.unwrap())),
            "asleep" => std::future::pending().await,
            "stuck" => {
                let (ours, theirs) = tokio::io::duplex(8 * 1024);
                *self.stuck.lock() = Some(theirs);
                Ok(Box::new(ours))
            }
            "deaf" => {
                // Sends much and reads nothing until it is done: a careless forwarder would lock up.
                let (ours, mut theirs) = tokio::io::duplex(8 * 1024);
                tokio::spawn(async move {
                    theirs.write_all(&noise(LOCK_BYTES)).await.unwrap();
                    let mut all = Vec::new();
                    theirs.read_to_end(&mut all).await.unwrap();
                    theirs.write_all(&(all.len() as u64).to_be_bytes()).await.unwrap();
                });
                Ok(Box::new(ours))
            }
            other => Err(Refusal::new(format!("alice may not reach {other}: no role allows it"))),
        }
    }

    async fn question(&self, identity: &Identity, certificate: &str, _: SocketAddr) -> Option<Question> {
        assert!(certificate.contains("-cert-v01@openssh.com "), "{certificate}");
        let words = format!("{}, open https://a.example/approve#x", identity.display_name());
        Some(Question { words, challenge: "x".to_owned(), sessions: Vec::new() })
    }

    async fn answer(&self, question: &Question, typed: &str, certificate: &str, _: SocketAddr) -> Answered {
        assert!(certificate.contains("-cert-v01@openssh.com "), "{certificate}");
        assert_eq!(question.challenge, "x");
        let mut all = self.typed.lock();
        all.push(typed.to_owned());
        let wrong = all.len() < 2 || typed == "wrong";
        if wrong { Answered::Again("the code is wrong".to_owned()) } else { Answered::Done }
    }

    fn saw(&self, sighting: Sighting) {
        self.seen.lock().push(sighting);
    }
}

const LOCK_BYTES: usize = 12 << 20;

struct Stand {
    cluster: Cluster,
    _sshd: Sshd,
    jump: Arc<Jump>,
    address: SocketAddr,
    nodes: Arc<Nodes>,
    ended: Arc<Mutex<Vec<String>>>,
}

impl Stand {
    async fn new(config: JumpConfig) -> Self {
        Self::of(Cluster::new(), config).await
    }

    async fn of(cluster: Cluster, config: JumpConfig) -> Self {
        let sshd = Sshd::start(&cluster, &cluster.host(NODE, HostRole::Node), &SshdOptions::default());
        let node = sshd.address;
        let trust = Arc::clone(&cluster.trust);
        let nodes = Arc::new(Nodes {
            trust,
            node,
            asked: Mutex::default(),
            seen: Mutex::default(),
            stuck: Mutex::default(),
            typed: Mutex::default(),
        });
        let host = cluster.host("proxy-1", HostRole::Proxy);
        let dial = Arc::clone(&nodes) as Arc<dyn Dial>;
        let jump = Arc::new(Jump::new(config, &host.private, &host.certificate, dial).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let ended = Arc::new(Mutex::new(Vec::new()));
        let (serving, endings) = (Arc::clone(&jump), Arc::clone(&ended));
        tokio::spawn(async move {
            loop {
                let (stream, peer) = listener.accept().await.unwrap();
                let (jump, endings) = (Arc::clone(&serving), Arc::clone(&endings));
                tokio::spawn(async move {
                    let outcome = jump.serve(stream, peer, Arc::new(|_| Ok(()))).await;
                    endings.lock().push(match outcome {
                        Ok(()) => "done".to_owned(),
                        Err(error) => error.to_string(),
                    });
                });
            }
        });
        Self { cluster, _sshd: sshd, jump, address, nodes, ended }
    }

    fn config(&self, user: &Pair) -> PathBuf {
        let jump = format!(
            "Host jump\n HostName {}\n Port {}\n User whoever\nHost {NODE}\n HostKeyAlias {NODE}\n\
             Host web-1.example.com nowhere asleep\n ProxyJump jump\n",
            self.address.ip(),
            self.address.port(),
        );
        openssh_config(&self.cluster, user, &jump)
    }

    async fn ssh(&self, user: &Pair, words: &[&str], input: &[u8]) -> Output {
        self.run("ssh", user, words, input).await
    }

    async fn run(&self, program: &str, user: &Pair, words: &[&str], input: &[u8]) -> Output {
        let mut child = Command::new(ssh_program(program))
            .arg("-F")
            .arg(self.config(user))
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        tokio::spawn(async move {
            let _ = stdin.write_all(&input).await;
        });
        tokio::time::timeout(Duration::from_secs(60), child.wait_with_output())
            .await
            .expect("ssh hangs")
            .unwrap()
    }

    /// A client of ours, connected to the jump host itself.
    async fn client(&self) -> Connection {
        self.client_of(self.address).await.unwrap()
    }

    async fn client_of(&self, address: SocketAddr) -> Result<Connection, ClientError> {
        let settings = Settings {
            login: "whoever".to_owned(),
            host: "127.0.0.1".to_owned(),
            trust: Arc::clone(&self.cluster.trust),
            keepalive: None,
            agent: None,
        };
        let stream = TcpStream::connect(address).await.unwrap();
        connect_to_proxy(stream, &self.cluster.user().credentials(), settings).await
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn a_client_that_does_not_say_it_knows_certificates_reads_what_to_do() {
    let stand = Stand::new(JumpConfig::default()).await;
    let user = stand.cluster.user();
    let plain = ["-oHostKeyAlgorithms=ssh-ed25519", "-oStrictHostKeyChecking=no", "jump", "true"];
    let told = text(&stand.ssh(&user, &plain, b"").await.stderr);
    assert!(told.contains("by OpenSSH certificates, which OpenSSH_"), "{told}");
    let told = text(&stand.ssh(&user, &["-J", "jump", NODE, "true"], b"").await.stderr);
    assert!(!told.contains("by OpenSSH certificates"), "{told}");
}

#[tokio::test]
async fn stock_ssh_jumps_to_a_node() {
    let stand = Stand::new(JumpConfig::default()).await;
    let user = stand.cluster.user();
    let ran = stand.ssh(&user, &["-J", "jump", NODE, "echo hello; cat; exit 3"], b"input\n").await;
    assert_eq!(
        (ran.status.code(), text(&ran.stdout).as_str()),
        (Some(3), "hello\ninput\n"),
        "{}",
        text(&ran.stderr)
    );
    // By the proxy's own name for the node, through ProxyJump of the configuration.
    let big = noise(16 << 20);
    let login = format!("{}@web-1.example.com", account());
    let ran = stand.ssh(&user, &["-o", "HostKeyAlias=web-1", &login, "cat"], &big).await;
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    assert!(ran.stdout == big);
    let asked = stand.nodes.asked.lock().clone();
    assert_eq!(asked[1], ("alice".to_owned(), "web-1.example.com".to_owned()));
    let ran = stand.ssh(&user, &["-W", "web-1:22", "jump"], b"SSH-2.0-test\r\n").await;
    assert!(text(&ran.stdout).starts_with("SSH-2.0-OpenSSH"), "{}", text(&ran.stderr));
}

/// A suite that requires hybrid key exchange: stock ssh without it reads why, and clients of ours go on.
#[tokio::test]
async fn a_client_without_hybrid_key_exchange_is_sent_away_with_words() {
    let kex = Command::new(ssh_program("ssh")).args(["-Q", "kex"]).output().await.unwrap();
    if text(&kex.stdout).contains("mlkem768x25519-sha256") {
        eprintln!("skipped: the ssh of this machine has hybrid key exchange, so it is not sent away");
        return;
    }
    let stand = Stand::of(Cluster::with_suite(Suite::PqV1), JumpConfig::default()).await;
    let ran = stand.ssh(&stand.cluster.user(), &["jump", "ls"], b"").await;
    let said = text(&ran.stderr);
    assert_eq!(ran.status.code(), Some(255), "{said}");
    assert!(
        said.contains(
            "this cluster requires post-quantum key exchange (mlkem768x25519-sha256), which OpenSSH_"
        ) && said.contains("does not offer; use OpenSSH 9.9 or newer, or: sallyport ssh"),
        "{said}"
    );
    stand.client().await;
    let sighting = stand.nodes.seen.lock()[0].clone();
    assert_eq!(
        sighting.refused.as_deref(),
        Some("it offers no mlkem768x25519-sha256, which the cluster's suite requires")
    );
    let ended = stand.ended.lock()[0].clone();
    assert!(ended.contains("was sent away: it offers no mlkem768x25519-sha256"), "{ended}");
}

#[tokio::test]
async fn what_a_client_can_do_is_seen_and_whose_it_is() {
    let stand = Stand::new(JumpConfig::default()).await;
    let user = stand.cluster.user();
    stand.ssh(&user, &["jump", "ls"], b"").await;
    stand.ssh(&Cluster::new().user(), &["jump", "ls"], b"").await;
    stand.ssh(&user, &["-o", "KexAlgorithms=diffie-hellman-group14-sha1", "jump", "ls"], b"").await;
    until("three sightings", || (stand.nodes.seen.lock().len() >= 3).then_some(())).await;
    let seen = stand.nodes.seen.lock().clone();
    for sighting in &seen {
        let offer = &sighting.offer;
        assert!(offer.software.starts_with("OpenSSH_"), "{offer:?}");
        assert!(offer.host_key_algorithms.iter().any(|name| name == "ssh-ed25519-cert-v01@openssh.com"));
        assert!(!offer.ciphers.is_empty() && !offer.macs.is_empty(), "{offer:?}");
        assert!(!offer.kex.iter().any(|name| name.contains("kex-strict") || name == "ext-info-c"));
    }
    assert!(seen[0].offer.kex.iter().any(|name| name == "curve25519-sha256"), "{seen:?}");
    assert_eq!((&seen[0].whose, &seen[0].refused), (&Some(Whose::User("alice".to_owned())), &None));
    let stranger = Some(Whose::Address("127.0.0.1".parse().unwrap()));
    assert_eq!((&seen[1].whose, &seen[1].refused), (&stranger, &None));
    assert_eq!(
        (&seen[2].whose, seen[2].offer.kex.as_slice()),
        (&stranger, &["diffie-hellman-group14-sha1".to_owned()][..])
    );
    let refused = seen[2].refused.clone().unwrap();
    assert!(
        refused.starts_with("it offers no key exchange method that is spoken here (mlkem768x25519-sha256, "),
        "{refused}"
    );
    assert!(!refused.contains("ext-info"), "{refused}");
}

#[tokio::test]
async fn scp_and_sftp_go_through() {
    let stand = Stand::new(JumpConfig::default()).await;
    let user = stand.cluster.user();
    let work = tempfile::tempdir().unwrap();
    let (here, there) = (work.path().join("here"), work.path().join("there"));
    std::fs::write(&here, noise(5 << 20)).unwrap();
    let target = format!("{NODE}:{}", there.display());
    let ran = stand.run("scp", &user, &["-q", "-J", "jump", here.to_str().unwrap(), &target], b"").await;
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    assert!(std::fs::read(&here).unwrap() == std::fs::read(&there).unwrap());
    let batch = format!("get {} {}\n", there.display(), work.path().join("back").display());
    let ran = stand.run("sftp", &user, &["-q", "-J", "jump", "-b", "-", NODE], batch.as_bytes()).await;
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    assert!(std::fs::read(&here).unwrap() == std::fs::read(work.path().join("back")).unwrap());
}

#[tokio::test]
async fn everything_but_nodes_is_refused_in_words() {
    let config = JumpConfig { dial_timeout: Duration::from_millis(300), ..JumpConfig::default() };
    let stand = Stand::new(config).await;
    let user = stand.cluster.user();
    let ran = stand.ssh(&user, &["nowhere", "true"], b"").await;
    assert_eq!(ran.status.code(), Some(255));
    assert!(
        text(&ran.stderr).contains("alice may not reach nowhere: no role allows it"),
        "{}",
        text(&ran.stderr)
    );
    let ran = stand.ssh(&user, &["asleep", "true"], b"").await;
    assert!(text(&ran.stderr).contains("asleep did not answer"), "{}", text(&ran.stderr));
    for words in [&["jump"][..], &["jump", "ls"], &["-tt", "jump"], &["-s", "jump", "sftp"]] {
        let ran = stand.ssh(&user, words, b"").await;
        assert_eq!(ran.status.code(), Some(1), "{words:?}: {}", text(&ran.stderr));
        let said = text(&ran.stderr) + &text(&ran.stdout);
        assert!(said.contains("This is a Sallyport proxy") && said.contains("ssh -J"), "{words:?}: {said}");
    }
    let ran = stand
        .ssh(&user, &["-o", "ExitOnForwardFailure=yes", "-N", "-R", "0:localhost:22", "jump"], b"")
        .await;
    assert_eq!(ran.status.code(), Some(255));
    assert!(text(&ran.stderr).contains("remote port forwarding failed"), "{}", text(&ran.stderr));
    let error = stand.client().await.open_direct("nowhere", 22, stand.address).await.unwrap_err();
    assert!(error.to_string().contains("no role allows it"), "{error}");
}

#[tokio::test]
async fn only_certificates_of_this_clusters_users_get_in() {
    let stand = Stand::new(JumpConfig::default()).await;
    let past = now() - time::Duration::days(2);
    let refused = [
        Cluster::new().user(),
        stand.cluster.user_from("alice", &[&account()], past),
        stand.cluster.user_from("alice", &[&account()], now() + time::Duration::days(2)),
        stand.cluster.host("web-9", HostRole::Node),
    ];
    for user in refused {
        let ran = stand.ssh(&user, &["-J", "jump", NODE, "true"], b"").await;
        assert_eq!(ran.status.code(), Some(255));
        assert!(text(&ran.stderr).contains("Permission denied"), "{}", text(&ran.stderr));
    }
    // A plain key, without the certificate.
    let user = stand.cluster.user();
    let key = stand.cluster.file("plain", &user.private).display().to_string();
    let config = std::fs::read_to_string(stand.config(&user)).unwrap();
    let config: Vec<&str> = config
        .lines()
        .filter(|line| !line.contains("CertificateFile") && !line.contains("IdentityFile"))
        .collect();
    let config = stand.cluster.file("plain_config", &config.join("\n")).display().to_string();
    let ran = stand.ssh(&user, &["-F", &config, "-i", &key, "jump", "true"], b"").await;
    assert!(text(&ran.stderr).contains("Permission denied"), "{}", text(&ran.stderr));
    assert_eq!(ran.status.code(), Some(255));
    assert!(stand.nodes.asked.lock().is_empty());
    // A user with no login anywhere is still that user here; the node decides about logins.
    let nobody = stand.cluster.user_from("nobody", &[], now());
    let ran = stand.ssh(&nobody, &["-J", "jump", NODE, "true"], b"").await;
    assert!(text(&ran.stderr).contains("Permission denied"), "{}", text(&ran.stderr));
    assert_eq!(stand.nodes.asked.lock()[0].0, "nobody");
}

#[tokio::test]
async fn a_peer_that_waits_for_us_is_not_waited_for() {
    let stand = Stand::new(JumpConfig::default()).await;
    let stream = stand.client().await.open_direct("deaf", 22, stand.address).await.unwrap();
    let (mut reader, mut writer) = tokio::io::split(stream);
    let write = async {
        writer.write_all(&noise(LOCK_BYTES)).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let mut all = Vec::new();
    let both = async { tokio::join!(write, reader.read_to_end(&mut all)).1.unwrap() };
    tokio::time::timeout(Duration::from_secs(60), both).await.expect("locked up");
    assert_eq!(all.len(), LOCK_BYTES + 8);
    assert!(all[..LOCK_BYTES] == noise(LOCK_BYTES));
    assert_eq!(all[LOCK_BYTES..], (LOCK_BYTES as u64).to_be_bytes());
}

#[tokio::test]
async fn a_node_that_reads_nothing_holds_up_no_client_and_keeps_none() {
    let stand = Stand::new(JumpConfig::default()).await;
    let client = stand.client().await;
    let mut stuck = client.open_direct("stuck", 22, stand.address).await.unwrap();
    // As much as goes at once; what follows goes by the byte.
    let block = noise(64 * 1024);
    let mut sent = 0_u64;
    for _ in 0..100 {
        let (before, until) = (sent, tokio::time::Instant::now() + Duration::from_millis(500));
        while let Ok(written) = tokio::time::timeout_at(until, stuck.write(&block)).await {
            sent += written.unwrap() as u64;
        }
        if sent >= 1 << 20 && sent - before < block.len() as u64 {
            break;
        }
    }
    assert!((1 << 20..64 << 20).contains(&sent), "{sent}");
    for _ in 0..3 {
        let others = async {
            let mut node = client.open_direct(NODE, 22, stand.address).await.unwrap();
            node.write_all(b"SSH-2.0-held-up?\r\n").await.unwrap();
            let mut banner = [0; 7];
            node.read_exact(&mut banner).await.unwrap();
            assert_eq!(&banner, b"SSH-2.0");
        };
        tokio::time::timeout(Duration::from_secs(30), others).await.expect("another channel was held up");
    }
    drop((stuck, client));
    eventually(&stand, "").await;
    let mut node = stand.nodes.stuck.lock().take().unwrap();
    let told = tokio::time::timeout(Duration::from_secs(60), async {
        while node.write_all(&block).await.is_ok() {}
    });
    told.await.expect("the connection to the node outlives its client");
}

#[tokio::test]
async fn channels_are_limited_and_given_back() {
    let stand = Stand::new(JumpConfig { max_channels: 2, ..JumpConfig::default() }).await;
    let client = stand.client().await;
    let open = async || client.open_direct(NODE, 22, stand.address).await;
    let (first, _second) = (open().await.unwrap(), open().await.unwrap());
    let error = open().await.unwrap_err();
    assert!(error.to_string().contains("the limit is 2"), "{error}");
    drop(first);
    let began = std::time::Instant::now();
    while open().await.is_err() {
        assert!(began.elapsed() < Duration::from_secs(60), "a closed channel still counts");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn eventually(stand: &Stand, words: &str) {
    until(&format!("the end of a connection with {words:?}"), || {
        stand.ended.lock().iter().any(|ended| ended.contains(words)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_slow_the_silent_and_the_idle_are_sent_away() {
    let config = JumpConfig {
        auth_timeout: Duration::from_millis(1500),
        idle_timeout: Duration::from_millis(400),
        ..JumpConfig::default()
    };
    let stand = Stand::new(config).await;
    // One says nothing at all; one speaks SSH and never authenticates.
    let mut silent = TcpStream::connect(stand.address).await.unwrap();
    let mut halfway = TcpStream::connect(stand.address).await.unwrap();
    halfway.write_all(b"SSH-2.0-halfway\r\n").await.unwrap();
    let mut all = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(60), silent.read_to_end(&mut all)).await;
    assert!(read.is_ok(), "a silent client is kept");
    until("the end of both", || {
        let ended = stand.ended.lock();
        (ended.iter().filter(|ended| ended.contains("no proven identity")).count() == 2).then_some(())
    })
    .await;
    // Garbage ends at once.
    let mut garbage = TcpStream::connect(stand.address).await.unwrap();
    garbage.write_all(&noise(100_000)).await.ok();
    let read = tokio::time::timeout(Duration::from_secs(60), garbage.read_to_end(&mut all)).await;
    assert!(read.is_ok(), "garbage is listened to");
    // Authenticated, but opens nothing.
    let idle = stand.client().await;
    eventually(&stand, "no channel was open").await;
    assert!(
        matches!(idle.open_direct(NODE, 22, stand.address).await, Err(ClientError::Lost { reason, .. }) if reason.contains("not used"))
    );
    // One with an open channel stays.
    let busy = stand.client().await;
    let mut channel = busy.open_direct(NODE, 22, stand.address).await.unwrap();
    // Twice as long as one without may stay.
    tokio::time::sleep(Duration::from_millis(800)).await;
    let mut banner = [0; 7];
    channel.read_exact(&mut banner).await.unwrap();
    assert_eq!(&banner, b"SSH-2.0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_before_it_is_in_is_no_failure() {
    for says_farewell in [false, true] {
        let stand = Stand::new(JumpConfig::default()).await;
        let mut raw = Raw::keyed(stand.address).unwrap();
        raw.service().unwrap();
        if says_farewell {
            raw.send(&Packet::new(message::DISCONNECT).number(11).string("").string("")).unwrap();
        }
        drop(raw);
        let ended = until("the end", || stand.ended.lock().first().cloned()).await;
        assert_eq!(ended, "done");
    }
}

#[tokio::test]
async fn draining_lets_what_runs_run() {
    let stand = Stand::new(JumpConfig::default()).await;
    let (busy, idle) = (stand.client().await, stand.client().await);
    let mut channel = busy.open_direct(NODE, 22, stand.address).await.unwrap();
    let draining = Arc::clone(&stand.jump);
    let drained = tokio::spawn(async move { draining.drain().await });
    eventually(&stand, "shutting down").await;
    assert!(matches!(idle.open_direct(NODE, 22, stand.address).await, Err(ClientError::Lost { .. })));
    let error = busy.open_direct(NODE, 22, stand.address).await.unwrap_err();
    assert!(error.to_string().contains("shutting down"), "{error}");
    let mut banner = [0; 7];
    channel.read_exact(&mut banner).await.unwrap();
    assert!(stand.client_of(stand.address).await.is_err());
    assert!(!drained.is_finished());
    drop(channel);
    tokio::time::timeout(Duration::from_secs(60), drained).await.unwrap().unwrap();
    assert_eq!(stand.jump.connections(), 0);
    drop(busy);
}

#[tokio::test]
async fn cutting_ends_everything() {
    let stand = Stand::new(JumpConfig::default()).await;
    let busy = stand.client().await;
    let mut channel = busy.open_direct(NODE, 22, stand.address).await.unwrap();
    stand.jump.cut();
    let mut all = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(60), channel.read_to_end(&mut all)).await;
    assert!(read.is_ok());
    assert_eq!(stand.jump.connections(), 0);
}

#[tokio::test]
async fn a_new_host_certificate_is_shown_to_the_next_client() {
    let stand = Stand::new(JumpConfig::default()).await;
    let (one, other) = (stand.cluster.host("p", HostRole::Proxy), stand.cluster.host("q", HostRole::Proxy));
    let mixed = stand.jump.replace_host_key(&one.private, &other.certificate);
    assert!(matches!(mixed, Err(JumpError::HostKey { what: "certificate", .. })), "{mixed:?}");
    assert!(stand.client().await.open_direct(NODE, 22, stand.address).await.is_ok());
    let past = stand.cluster.host_from("p", HostRole::Proxy, now() - time::Duration::days(2));
    stand.jump.replace_host_key(&past.private, &past.certificate).unwrap();
    let error = stand.client_of(stand.address).await.unwrap_err();
    assert!(matches!(error, ClientError::HostCertificate { .. }), "{error:?}");
    stand.jump.replace_host_key(&one.private, &one.certificate).unwrap();
    assert!(stand.client_of(stand.address).await.is_ok());
}
