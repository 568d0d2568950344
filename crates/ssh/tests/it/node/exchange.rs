//! What the cluster's suite demands of key exchange.

use sallyport_audit::Code;
use sallyport_sal::Suite;
use sallyport_ssh::client::Credentials;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::node::keys::own_client_says_hello;
use crate::world::{World, ok, output, started, text, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_suite_is_felt_by_the_next_connection_and_told_in_words() {
    let kex = std::process::Command::new("ssh").args(["-Q", "kex"]).output().unwrap();
    if text(&kex.stdout).contains("mlkem768x25519-sha256") {
        eprintln!("skipped: the ssh of this machine has hybrid key exchange, so it is not sent away");
        return;
    }
    let world = World::new().await;
    assert_eq!(ok(&output(world.ssh(&[], &["echo hello"])).await), "hello\n");
    let mut session = started(world.ssh(&[], &["cat"]));
    let (mut input, mut output_of) = (session.stdin.take().unwrap(), session.stdout.take().unwrap());
    let mut echo = async |word: &[u8; 4]| {
        input.write_all(word).await.unwrap();
        let mut back = [0; 4];
        output_of.read_exact(&mut back).await.unwrap();
        assert_eq!(&back, word);
    };
    echo(b"one\n").await;

    world.set_suite(Suite::PqV1);
    let refused = output(world.ssh(&[], &["echo hello"])).await;
    let said = text(&refused.stderr);
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(255), 0), "{said}");
    assert!(
        said.contains(
            "this cluster requires post-quantum key exchange (mlkem768x25519-sha256), which OpenSSH_"
        ) && said.contains("does not offer; use OpenSSH 9.9 or newer, or: sallyport ssh"),
        "{said}"
    );
    let event = world.event(&Code::SessionRefused).await;
    assert_eq!(
        event.message,
        "the client cannot talk to this node: it offers no mlkem768x25519-sha256, which the cluster's suite requires"
    );
    let seen = until("the sighting", || {
        world.cluster.seen.lock().iter().find(|seen| seen.refused.is_some()).cloned()
    })
    .await;
    assert!(seen.offer.software.starts_with("OpenSSH_"), "{seen:?}");
    let key = sallyport_ca::keys::SshKeyPair::generate(Suite::PqV1, "alice").unwrap();
    let certificate = world.certify(&world.card("alice"), key.public_line());
    own_client_says_hello(&world, &Credentials::new(key.signer(), &certificate).unwrap()).await;
    // A session that was open goes on.
    echo(b"two\n").await;

    world.set_suite(Suite::BalancedV1);
    assert_eq!(ok(&output(world.ssh(&[], &["echo hello"])).await), "hello\n");
    session.kill().await.unwrap();
}
