//! Our own client with a user key behind a [`Signer`], against our own server.

use std::sync::Arc;

use sallyport_audit::Code;
use sallyport_sal::formats::{self, PublicFormat};
use sallyport_sal::{KeyAlgorithm, MemoryKey, Signer};
use sallyport_ssh::client::{Credentials, Exit, Output, SessionRequest, Settings, connect};
use sallyport_ssh::node::Directory;
use tokio::net::TcpStream;

use crate::world::World;

#[tokio::test]
async fn user_keys_of_any_custody_log_in() {
    let world = World::new().await;
    let algorithms = [KeyAlgorithm::Ed25519, KeyAlgorithm::EcdsaP256, KeyAlgorithm::EcdsaP384];
    for algorithm in algorithms {
        let key: Arc<dyn Signer> = Arc::new(MemoryKey::generate(algorithm).unwrap());
        let line = formats::write_public(&key.public_key(), PublicFormat::OpenSsh).unwrap();
        let certificate = world.certify(&world.card("alice"), String::from_utf8(line).unwrap().trim());
        let credentials = Credentials::new(key, &certificate).unwrap();
        let settings = Settings {
            login: world.own.name.clone(),
            host: "web-1".to_owned(),
            trust: world.cluster.trust(),
            keepalive: None,
            agent: None,
        };
        let stream = TcpStream::connect(world.address).await.unwrap();
        let connection = connect(stream, &credentials, settings).await.unwrap();
        let mut session = connection.start(SessionRequest::exec("echo hello")).await.unwrap();
        let (mut said, mut ended) = (Vec::new(), Exit::Unknown);
        while let Some(output) = session.next().await {
            match output {
                Output::Stdout(data) => said.extend_from_slice(&data),
                Output::Exit(exit) => ended = exit,
                _ => {}
            }
        }
        assert_eq!((said.as_slice(), ended), (&b"hello\n"[..], Exit::Status(0)), "{algorithm}");
        connection.disconnect().await;
    }
    assert_eq!(world.events(&Code::SessionStart).len(), algorithms.len());
}
