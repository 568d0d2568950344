//! A client that sends what it can before the node has answered: keys, login, channel, environment and command together, and
//! input with them.

use sallyport_ssh::client::{Credentials, Exit, SessionRequest, connect_pipelined};
use tokio::net::TcpStream;

use super::doors::{run, settings};
use crate::world::{World, ok, output_of};

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_at_once_is_served_in_order() {
    let world = World::new().await;
    let read = |name: &str| std::fs::read_to_string(world.path(name)).unwrap();
    let credentials = Credentials::from_openssh(&read("alice"), &read("alice-cert.pub")).unwrap();
    let input: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    for _ in 0..8 {
        let stream = TcpStream::connect(world.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let settings = settings(&world, &world.own.name);
        let connection = connect_pipelined(stream, &credentials, settings).await.unwrap();
        let mut request = SessionRequest::exec("echo $LC_SAID; sha256sum; exit 3");
        request.environment = vec![("LC_SAID".to_owned(), "at once".to_owned())];
        let ran = run(&connection, request, &input).await;
        assert!(ran.stdout.starts_with("at once\nfbbab289f7f94b25736c58be46a994c4"), "{ran:?}");
        assert_eq!(ran.exit, Exit::Status(3), "{ran:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_through_nodes_carries_everything() {
    let (first, second) = (World::new().await, World::new().await);
    let hop = format!("{} -W {} {}", first.remote_shell(), second.address, first.destination());
    let again = format!("-oProxyCommand={hop}");
    let input: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    let said =
        ok(&output_of(second.ssh(&[&again], &["sha256sum; head -c 1000000 /dev/zero | wc -c"]), input).await);
    assert!(said.starts_with("fbbab289f7f94b25736c58be46a994c4") && said.ends_with("1000000\n"), "{said}");
}
