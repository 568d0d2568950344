//! Hosts of every role, by what an administrator can find, lock and remove them.

use sallyport_wire::v1;
use sallyport_wire::v1::cluster_client::ClusterClient;
use tonic::Code;

use super::people::{role, write};
use super::taken_proxies::lock;
use crate::support::member::Joining;
use crate::support::{self, Cluster};

#[tokio::test(flavor = "multi_thread")]
async fn hosts_of_every_role_are_listed_locked_and_removed() {
    let cluster = Cluster::without_node().await;
    let one = Joining::new("proxy", "edge.example.net").join(&cluster).await.unwrap();
    let two = Joining::new("proxy", "edge.example.net").join(&cluster).await.unwrap();
    let node = Joining::new("node", "web-1").join(&cluster).await.unwrap();
    one.renew(&[]).await.unwrap();
    let channel = support::admin_channel(&cluster.data_dir()).await;
    let hosts = async || {
        let asked = v1::ListNodesRequest { hosts: true, ..Default::default() };
        ClusterClient::new(channel.clone()).list_nodes(asked).await.unwrap().into_inner().nodes
    };
    let listed = hosts().await;
    let of =
        |id: &str| listed.iter().find(|host| host.id == id).unwrap_or_else(|| panic!("{id}: {listed:?}"));
    for proxy in [&one, &two] {
        assert_eq!((of(&proxy.id).kind.as_str(), of(&proxy.id).name.as_str()), ("proxy", "edge.example.net"));
    }
    assert!(of(&one.id).last_seen.is_some() && of(&one.id).address == "127.0.0.1", "{:?}", of(&one.id));
    assert_eq!((of(&node.id).kind.as_str(), of(&node.id).name.as_str()), ("sallyport", "web-1"));

    // It is no list for people who see their own nodes alone.
    let alice = cluster.user("alice", &[&support::os_login()]).await;
    let sees_own = "{allow: {logins: [root], node_labels: {'*': '*'}}}";
    write(&cluster, role("alice-role", sees_own)).await;
    let asked = v1::ListNodesRequest { hosts: true, ..Default::default() };
    let refused = ClusterClient::new(alice.authority().await).list_nodes(asked).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let own = ClusterClient::new(alice.authority().await).list_nodes(v1::ListNodesRequest::default()).await;
    assert!(own.unwrap().into_inner().nodes.iter().all(|node| node.kind != "proxy"));

    // A name that both have is none.
    let mut admin = cluster.admin().await;
    let refused = admin.create_resource(lock("both", "edge.example.net")).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    assert!(refused.message().contains(&one.id) && refused.message().contains(&two.id), "{refused:?}");
    let refused = admin.create_resource(lock("none", "edge2.example.net")).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound, "{refused:?}");
    admin.create_resource(lock("one", &one.id)).await.unwrap();
    assert_eq!(one.renew(&[]).await.unwrap_err().code(), Code::PermissionDenied);
    two.renew(&[]).await.unwrap();

    let remove = |id: &str| v1::DeleteResourceRequest { kind: "node".to_owned(), name: id.to_owned() };
    admin.delete_resource(remove("edge.example.net")).await.unwrap_err();
    admin.delete_resource(remove(&two.id)).await.unwrap();
    assert!(hosts().await.iter().all(|host| host.id != two.id));
    assert!(two.renew(&[]).await.is_err());
    cluster.running.shutdown(false).await;
}
