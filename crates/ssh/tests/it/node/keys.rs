//! Keys of every type that suites have, of users, hosts and authorities.

use std::sync::Arc;

use sallyport_ca::keys::SshKeyPair;
use sallyport_sal::{KeyAlgorithm, MemoryKey, Suite};
use sallyport_ssh::client::{
    Connection, Credentials, Exit, Output, SessionRequest, Settings, connect, connect_pipelined,
};
use sallyport_ssh::node::Directory;
use tokio::net::TcpStream;

use crate::world::{World, ok, output, text};

const USERS: [KeyAlgorithm; 6] = [
    KeyAlgorithm::Ed25519,
    KeyAlgorithm::EcdsaP256,
    KeyAlgorithm::EcdsaP384,
    KeyAlgorithm::EcdsaP521,
    KeyAlgorithm::Rsa2048,
    KeyAlgorithm::Rsa3072,
];

/// The suites whose SSH keys differ, and the host key algorithm that follows.
const SUITES: [(Suite, &str); 3] = [
    (Suite::Legacy, "rsa-sha2-512-cert-v01@openssh.com"),
    (Suite::BalancedV1, "ssh-ed25519-cert-v01@openssh.com"),
    (Suite::FipsV1, "ecdsa-sha2-nistp256-cert-v01@openssh.com"),
];

fn user_key(algorithm: KeyAlgorithm) -> SshKeyPair {
    SshKeyPair::from_key(MemoryKey::generate(algorithm).unwrap(), "alice").unwrap()
}

/// By the client that takes one step after the other, and by the pipelined one.
pub(crate) async fn own_client_says_hello(world: &World, with: &Credentials) {
    let settings = Settings {
        login: world.own.name.clone(),
        host: "web-1".to_owned(),
        trust: world.cluster.trust(),
        keepalive: None,
        agent: None,
    };
    let stream = async || TcpStream::connect(world.address).await.unwrap();
    says_hello(connect(stream().await, with, settings.clone()).await.unwrap()).await;
    says_hello(connect_pipelined(stream().await, with, settings).await.unwrap()).await;
}

async fn says_hello(connection: Connection) {
    let mut session = connection.start(SessionRequest::exec("echo hello")).await.unwrap();
    let (mut said, mut ended) = (Vec::new(), Exit::Unknown);
    while let Some(output) = session.next().await {
        match output {
            Output::Stdout(data) => said.extend_from_slice(&data),
            Output::Exit(exit) => ended = exit,
            _ => {}
        }
    }
    assert_eq!((said.as_slice(), ended), (&b"hello\n"[..], Exit::Status(0)));
    connection.disconnect().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn users_of_every_type_log_in_to_hosts_of_every_suite() {
    let keys = Arc::new(USERS.map(|algorithm| (algorithm, user_key(algorithm))));
    let mut suites = tokio::task::JoinSet::new();
    for (suite, host_algorithm) in SUITES {
        suites.spawn(users_log_in(suite, host_algorithm, keys.clone()));
    }
    suites.join_all().await;
}

async fn users_log_in(suite: Suite, host_algorithm: &str, keys: Arc<[(KeyAlgorithm, SshKeyPair); 6]>) {
    let world = World::with_suite(suite).await;
    for (algorithm, key) in keys.iter() {
        let name = format!("id-{algorithm}");
        world.issue_key(&name, &world.card("alice"), key);
        let mut ssh = world.client("ssh", &name);
        ssh.args(["-v", "-oLogLevel=DEBUG"]).arg(world.destination()).arg("echo hello");
        let ran = output(ssh).await;
        assert_eq!(ok(&ran), "hello\n", "{suite} {algorithm}");
        let said = text(&ran.stderr);
        let wanted = format!("kex: host key algorithm: {host_algorithm}");
        assert!(said.contains(&wanted), "{suite} {algorithm}: no {wanted} in\n{said}");

        let certificate = world.certify(&world.card("alice"), key.public_line());
        own_client_says_hello(&world, &Credentials::new(key.signer(), &certificate).unwrap()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sha1_is_spoken_in_no_direction() {
    let world = World::with_suite(Suite::Legacy).await;
    for (option, wanted) in [
        ("-oHostKeyAlgorithms=ssh-rsa-cert-v01@openssh.com", "no matching host key type found"),
        ("-oHostKeyAlgorithms=ssh-rsa", "no matching host key type found"),
        ("-oPubkeyAcceptedAlgorithms=ssh-rsa-cert-v01@openssh.com,ssh-rsa", "Permission denied"),
    ] {
        let refused = output(world.ssh(&["-v", option], &["echo hello"])).await;
        assert_eq!(refused.status.code(), Some(255), "{option}: {}", text(&refused.stdout));
        assert!(text(&refused.stderr).contains(wanted), "{option}: {}", text(&refused.stderr));
    }
    for hash in ["rsa-sha2-256", "rsa-sha2-512"] {
        let accepted = format!("-oPubkeyAcceptedAlgorithms={hash}-cert-v01@openssh.com");
        let host = format!("-oHostKeyAlgorithms={hash}-cert-v01@openssh.com");
        assert_eq!(ok(&output(world.ssh(&[&accepted, &host], &["echo hello"])).await), "hello\n", "{hash}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn short_rsa_keys_do_not_log_in() {
    let world = World::with_suite(Suite::Legacy).await;
    let path = world.path("short");
    let mut keygen = tokio::process::Command::new("ssh-keygen");
    keygen.args(["-q", "-t", "rsa", "-b", "1024", "-N", "", "-f"]).arg(&path);
    ok(&output(keygen).await);
    // No authority of ours certifies it, so the certificate is by its own key: no certificate of the cluster.
    let mut keygen = tokio::process::Command::new("ssh-keygen");
    keygen.args(["-q", "-I", "alice", "-n", &world.own.name, "-t", "rsa-sha2-512", "-s"]).arg(&path);
    ok(&output({
        keygen.arg(world.path("short.pub"));
        keygen
    })
    .await);
    let mut ssh = world.client("ssh", "short");
    ssh.arg("-oRequiredRSASize=1024").arg(world.destination()).arg("echo hello");
    let refused = output(ssh).await;
    assert_eq!(refused.status.code(), Some(255));
    assert!(text(&refused.stderr).contains("Permission denied"), "{}", text(&refused.stderr));
}

/// Keys are exchanged again in the middle of a connection, with the host key that it began with.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_outlives_its_rsa_host_key() {
    let world = Arc::new(World::with_suite(Suite::Legacy).await);
    let script =
        "echo ready; read line; head -c 1000000 /dev/zero | wc -c; head -c 1000000 /dev/zero; echo over";
    let mut ssh = world.ssh(&["-v", "-oLogLevel=DEBUG", "-oRekeyLimit=64K"], &[script]);
    ssh.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    ssh.stderr(std::process::Stdio::piped());
    let mut running = ssh.spawn().unwrap();
    let (mut stdin, stdout) = (running.stdin.take().unwrap(), running.stdout.take().unwrap());
    let mut stdout = tokio::io::BufReader::new(stdout);
    let mut line = String::new();
    tokio::io::AsyncBufReadExt::read_line(&mut stdout, &mut line).await.unwrap();
    assert_eq!(line, "ready\n");
    world.renew_host();
    tokio::io::AsyncWriteExt::write_all(&mut stdin, b"go\n").await.unwrap();
    let mut rest = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut stdout, &mut rest).await.unwrap();
    let ended = running.wait_with_output().await.unwrap();
    let said = text(&ended.stderr);
    assert!(ended.status.success() && rest.ends_with(b"over\n"), "{said}");
    assert!(
        said.matches("rekey").count() > 1 || said.matches("SSH2_MSG_NEWKEYS received").count() > 1,
        "{said}"
    );
    // And the next one begins with the new key.
    assert_eq!(ok(&output(world.ssh(&[], &["echo hello"])).await), "hello\n");
}
