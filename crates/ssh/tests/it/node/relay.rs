//! SSH in front of a native connection, where it is not like the node's own; what is the same is in `doors`.

use std::time::Duration;

use sallyport_ssh::client::{ClientError, Exit, SessionRequest};
use tokio::time::timeout;

use crate::node::doors::{exec, relayed, run, settings};
use crate::world::{World, until};

#[tokio::test(flavor = "multi_thread")]
async fn it_is_for_one_login() {
    let world = World::new().await;
    let onward = settings(&world, &world.own.name);
    let refused = relayed(&world, "alice", onward.clone(), settings(&world, "somebody-else")).await;
    assert!(matches!(refused, Err(ClientError::Authentication { .. })), "{refused:?}");
    // A client that proves nothing of this cluster comes in all the same: the caller that brought the connection knows
    // whose it is.
    let stranger = world.stranger();
    world.issue_by(&stranger, "mallory", &world.card("alice"));
    let connection = relayed(&world, "mallory", onward.clone(), onward).await;
    assert!(connection.is_ok(), "{connection:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_node_reaches_clients_without_a_session() {
    let world = World::new().await;
    let own = settings(&world, &world.own.name);
    let connection = relayed(&world, "alice", own.clone(), own).await.unwrap();
    assert_eq!(exec(&connection, "echo in").await.stdout, "in\n");
    let lock = "kind: lock\nversion: v1\nmetadata:\n  name: l\nspec:\n  target:\n    user: alice\n  message: ask carol\n";
    world.set_locks(&[lock]);
    until("the end", || connection.is_closed().then_some(())).await;
    let lost = connection.start(SessionRequest::exec("true")).await.unwrap_err();
    assert!(matches!(&lost, ClientError::Lost { reason, .. } if reason.contains("ask carol")), "{lost:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_asked_for_by_nothing_but_the_request() {
    let world = World::with("forward_agent: true", |_| {}).await;
    let own = settings(&world, &world.own.name);
    let connection = relayed(&world, "alice", own.clone(), own).await.unwrap();
    let mut request = SessionRequest::exec("echo [$SSH_AUTH_SOCK]");
    request.environment = vec![("SSH_AUTH_SOCK".to_owned(), "/somewhere".to_owned())];
    let ran = timeout(Duration::from_secs(60), run(&connection, request, b"")).await.unwrap();
    assert_eq!((ran.stdout.as_str(), ran.exit), ("[]\n", Exit::Status(0)));
}
