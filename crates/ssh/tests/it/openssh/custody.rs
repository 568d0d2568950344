//! User keys that are not in a file: any custody signs for a login.

use std::sync::Arc;

use sallyport_access::HostRole;
use sallyport_sal::custody::Custody;
use sallyport_sal::formats::{self, PublicFormat};
use sallyport_sal::{KeyAlgorithm, MemoryKey, PublicKey, SignError, SignatureScheme, Signer};
use sallyport_ssh::client::{ClientError, Connection, Credentials, Exit, Output, SessionRequest, connect};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use crate::openssh::rig::{Cluster, NODE, Sshd, SshdOptions, account, now, settings};
use crate::softhsm::{alone, soon};

fn stand() -> (Cluster, Sshd) {
    let cluster = Cluster::new();
    let sshd = Sshd::start(&cluster, &cluster.host(NODE, HostRole::Node), &SshdOptions::default());
    (cluster, sshd)
}

fn credentials(cluster: &Cluster, key: &Arc<dyn Signer>) -> Credentials {
    let line = formats::write_public(&key.public_key(), PublicFormat::OpenSsh).unwrap();
    let line = String::from_utf8(line).unwrap();
    Credentials::new(Arc::clone(key), &cluster.certify("alice", &[&account()], now(), line.trim())).unwrap()
}

async fn log_in(cluster: &Cluster, sshd: &Sshd, with: &Credentials) -> Result<Connection, ClientError> {
    connect(TcpStream::connect(sshd.address).await.unwrap(), with, settings(cluster)).await
}

async fn says_hello(connection: &Connection) {
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
}

#[tokio::test]
async fn keys_of_every_type_that_is_certified_log_in() {
    let (cluster, sshd) = stand();
    for algorithm in [
        KeyAlgorithm::Ed25519,
        KeyAlgorithm::EcdsaP256,
        KeyAlgorithm::EcdsaP384,
        KeyAlgorithm::EcdsaP521,
        KeyAlgorithm::Rsa2048,
        KeyAlgorithm::Rsa3072,
    ] {
        let key: Arc<dyn Signer> = Arc::new(MemoryKey::generate(algorithm).unwrap());
        let connection = log_in(&cluster, &sshd, &credentials(&cluster, &key)).await.unwrap();
        says_hello(&connection).await;
    }
}

/// A key that shows itself and signs nothing, or not what it was asked to.
#[derive(Debug)]
struct Faulty {
    key: MemoryKey,
    away: bool,
}

impl Signer for Faulty {
    fn algorithm(&self) -> KeyAlgorithm {
        self.key.algorithm()
    }

    fn public_key(&self) -> PublicKey {
        self.key.public_key()
    }

    fn sign_with(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, SignError> {
        if self.away {
            return Err(SignError { algorithm: self.algorithm(), reason: "it was put away".to_owned() });
        }
        self.key.sign_with(scheme, &message[1..])
    }
}

#[tokio::test]
async fn a_key_that_does_not_sign_says_so() {
    let (cluster, sshd) = stand();
    let faulty = |away| -> Arc<dyn Signer> {
        Arc::new(Faulty { key: MemoryKey::generate(KeyAlgorithm::EcdsaP256).unwrap(), away })
    };
    let error = log_in(&cluster, &sshd, &credentials(&cluster, &faulty(true))).await.unwrap_err();
    let ClientError::Signing(source) = &error else { panic!("{error:?}") };
    assert_eq!(source.to_string(), "signing with a key of type ecdsa-p256 failed: it was put away");
    let error = log_in(&cluster, &sshd, &credentials(&cluster, &faulty(false))).await.unwrap_err();
    assert!(matches!(error, ClientError::Authentication { .. }), "{error:?}");

    // A certificate for another key is noticed before the host is asked.
    let user = cluster.user();
    let other = Credentials::new(faulty(false), &user.certificate).unwrap_err();
    assert!(matches!(other, ClientError::BadCertificate { .. }), "{other:?}");
}

#[test]
fn a_user_key_in_a_token_logs_in() {
    alone("openssh::custody::a_user_key_in_a_token_logs_in", "", |hsm| {
        let runtime = Runtime::new().unwrap();
        let (cluster, sshd) = stand();
        let custody = hsm.custody();
        for algorithm in [KeyAlgorithm::Ed25519, KeyAlgorithm::EcdsaP256] {
            let key = custody.load(&custody.generate("alice", algorithm).unwrap()).unwrap();
            let with = credentials(&cluster, &key);
            runtime.block_on(async {
                says_hello(&log_in(&cluster, &sshd, &with).await.unwrap()).await;
            });
            let pulled = hsm.pull_out();
            let error = runtime.block_on(log_in(&cluster, &sshd, &with)).unwrap_err();
            let ClientError::Signing(source) = &error else { panic!("{error:?}") };
            assert!(source.to_string().contains("is gone"), "{source}");
            pulled.put_back();
            let connection = soon(|| runtime.block_on(log_in(&cluster, &sshd, &with)).map_err(Box::new));
            runtime.block_on(says_hello(&connection));
        }
    });
}
