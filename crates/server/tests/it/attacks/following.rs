//! Streams that outlive the right to them.

use std::time::Duration;

use sallyport_wire::v1;
use sallyport_wire::v1::admin_client::AdminClient;
use sallyport_wire::v1::cluster_client::ClusterClient;
use sallyport_wire::v1::fleet_client::FleetClient;
use tonic::{Code, Status, Streaming};

use super::unread::{lock, role_with};
use crate::support::{Cluster, User, joined_node, os_login, role};

const SOON: Duration = Duration::from_secs(5);

/// How a stream ends, which has to be soon.
async fn ended<T>(stream: &mut Streaming<T>) -> Status {
    let end = async {
        loop {
            match stream.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it ended as if there were nothing more"),
                Err(status) => return status,
            }
        }
    };
    tokio::time::timeout(SOON, end).await.expect("the stream goes on")
}

async fn following(user: &User) -> Streaming<v1::AuditRecord> {
    let asked = v1::SearchEventsRequest { follow: true, ..v1::SearchEventsRequest::default() };
    let mut records =
        AdminClient::new(user.authority().await).search_events(asked).await.unwrap().into_inner();
    assert!(records.message().await.unwrap().is_some());
    records
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_end_with_the_right_to_them() {
    let cluster = Cluster::without_node().await;
    let (mut admin, login) = (cluster.admin().await, os_login());
    let (locked, demoted) = (cluster.user("locked", &[]).await, cluster.user("demoted", &[]).await);
    for name in ["locked", "demoted"] {
        admin.create_resource(role_with(name, &login, "event")).await.unwrap();
    }
    // A lock ends the log that is followed.
    let mut records = following(&locked).await;
    admin.create_resource(lock("away", "locked")).await.unwrap();
    let status = ended(&mut records).await;
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");

    // And so does the loss of the permission, with no lock at all.
    let mut records = following(&demoted).await;
    let yaml = role("demoted-role", &[&login]);
    admin.create_resource(v1::CreateResourceRequest { yaml, replace: true }).await.unwrap();
    let status = ended(&mut records).await;
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");

    // A locked node follows the policy no more.
    let web = joined_node(&cluster, "web-1").await;
    let asked = v1::WatchRequest { kinds: vec!["role".to_owned()] };
    let mut changes = FleetClient::new(web.clone()).watch(asked).await.unwrap().into_inner();
    assert!(changes.message().await.unwrap().is_some());
    let (_reports, said) = tokio::sync::mpsc::channel(1);
    let said = tokio_stream::wrappers::ReceiverStream::new(said);
    let mut orders = FleetClient::new(web).report_sessions(said).await.unwrap().into_inner();
    assert!(orders.message().await.unwrap().is_some());
    let yaml = "kind: lock\nversion: v1\nmetadata: {name: taken}\nspec: {target: {node: web-1}}\n".to_owned();
    admin.create_resource(v1::CreateResourceRequest { yaml, replace: false }).await.unwrap();
    for status in [ended(&mut changes).await, ended(&mut orders).await] {
        assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_auditor_who_reads_nothing_is_cut_off() {
    let cluster = Cluster::without_node().await;
    let mut admin = cluster.admin().await;
    let mallory = cluster.user("mallory", &[]).await;
    admin.create_resource(role_with("mallory", "root", "event")).await.unwrap();
    let channel = mallory.authority_unread().await;
    let asked = v1::SearchEventsRequest { follow: true, ..v1::SearchEventsRequest::default() };
    let mut records = AdminClient::new(channel.clone()).search_events(asked).await.unwrap().into_inner();
    admin.create_resource(lock("away", "mallory")).await.unwrap();
    let status = ended(&mut records).await;
    assert_ne!(status.code(), Code::Ok, "{status:?}");
    // The connection with it.
    let asked = ClusterClient::new(channel).get_status(v1::GetStatusRequest::default()).await.unwrap_err();
    assert_ne!(asked.code(), Code::PermissionDenied, "{asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_host_opens_watches_without_end() {
    let cluster = Cluster::without_node().await;
    let mallory = cluster.user("mallory", &[]).await;
    let mut fleet = FleetClient::new(mallory.authority().await);
    let empty = fleet.watch(v1::WatchRequest::default()).await.unwrap_err();
    assert_eq!(empty.code(), Code::InvalidArgument, "{empty:?}");

    let mut fleet = FleetClient::new(joined_node(&cluster, "web-1").await);
    let mut open = Vec::new();
    let refused = loop {
        assert!(open.len() < 200, "as many watches as it likes");
        match fleet.watch(v1::WatchRequest { kinds: vec!["lock".to_owned()] }).await {
            Ok(watch) => open.push(watch.into_inner()),
            Err(status) => break status,
        }
    };
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    // Those that are closed make room.
    open.truncate(1);
    crate::support::until("room for another", || {
        let mut fleet = fleet.clone();
        async move {
            let asked = v1::WatchRequest { kinds: vec!["lock".to_owned()] };
            fleet.watch(asked).await.ok()
        }
    })
    .await;
}
