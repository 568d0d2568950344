//! A join token that has not been used.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn it_gives_one_host_of_its_role_which_a_lock_ends() {
    let cluster = Cluster::without_node().await;
    let mut admin = cluster.admin().await;
    let (token, pin) = support::token(&mut admin, "node").await;
    denied("another role", join(&cluster, &token, &pin, "proxy", "edge.example.net").await);
    denied("a role that is none", join(&cluster, &token[..8], &pin, "node", "web-9").await);
    let (issued, key) = join(&cluster, &token, &pin, "node", "web-9").await.unwrap();
    denied("a second host", join(&cluster, &token, &pin, "node", "web-10").await);

    let trust = cluster.running.authority().unwrap().trust();
    assert!(is_role(&trust, &issued.tls_certificate_pem, HostRole::Node));
    let channel = authority_as(&cluster.proxy(), &trust, &issued.tls_certificate_pem, &key.pkcs8_pem()).await;
    no_administration(&channel).await;
    no_other_host(&channel).await;
    // Visible: in the list of nodes, and on record.
    let joined = support::events(&mut admin, "SP1300I").await;
    assert!(joined.iter().any(|event| event["fields"]["host_id"] == issued.host_id), "{joined:?}");

    let since = lock(&cluster, &format!("node: {}", issued.host_id)).await;
    let watch = v1::WatchRequest { kinds: vec!["role".to_owned()] };
    denied("the policy", FleetClient::new(channel).watch(watch).await);
    since.done("a host that joined with a stolen token was refused");
    cluster.running.shutdown(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_removed_gives_nothing() {
    let cluster = Cluster::without_node().await;
    let mut admin = cluster.admin().await;
    let (token, pin) = support::token(&mut admin, "node").await;
    let delete = v1::DeleteResourceRequest { kind: "token".to_owned(), name: token[..8].to_owned() };
    admin.delete_resource(delete).await.unwrap();
    let since = Stopwatch::start();
    denied("a removed token", join(&cluster, &token, &pin, "node", "web-9").await);
    since.done("a removed token was refused");
    cluster.running.shutdown(false).await;
}
