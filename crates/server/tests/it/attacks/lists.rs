//! Lists that cost the authority more than their caller.

use sallyport_access::SessionId;
use sallyport_wire::v1;
use sallyport_wire::v1::cluster_client::ClusterClient;

use crate::support::{Cluster, admin_channel};

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_recordings_opens_a_bounded_number_of_files_and_goes_on_by_key() {
    let cluster = Cluster::without_node().await;
    let directory = cluster.data_dir().join("auth").join("recordings");
    let mut all: Vec<String> = (0..1_200).map(|_| SessionId::new().to_string()).collect();
    for session in &all {
        std::fs::write(directory.join(format!("{session}.rec")), b"nothing that can be read").unwrap();
    }
    // A user who may see none of them has them opened, a part at a time.
    let mallory = cluster.user("mallory", &[]).await;
    let mut recordings = ClusterClient::new(mallory.authority().await);
    let first = recordings.list_recordings(v1::ListRecordingsRequest::default()).await.unwrap().into_inner();
    assert!(first.recordings.is_empty() && !first.next.is_empty(), "{first:?}");

    // Those who may see all of them get all, page by page, the newest first.
    let mut recordings = ClusterClient::new(admin_channel(&cluster.data_dir()).await);
    let (mut found, mut after, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let asked = v1::ListRecordingsRequest { limit: 300, after, ..v1::ListRecordingsRequest::default() };
        let page = recordings.list_recordings(asked).await.unwrap().into_inner();
        assert!(page.recordings.len() <= 300);
        found.extend(page.recordings.into_iter().map(|recording| recording.session_id));
        (after, pages) = (page.next, pages + 1);
        if after.is_empty() {
            break;
        }
    }
    all.sort_by(|one, other| other.cmp(one));
    assert_eq!(found, all, "in {pages} pages");
}
