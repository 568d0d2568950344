//! Answers that nobody reads, so that they hold what others need.

use std::time::Duration;

use sallyport_wire::v1;
use sallyport_wire::v1::admin_client::AdminClient;
use sallyport_wire::v1::cluster_client::ClusterClient;
use sallyport_wire::v1::login_client::LoginClient;
use tokio::task::JoinSet;
use tonic::{Code, Status};

use crate::support::{Cluster, admin_channel, os_login, pin, pinned, until};

/// Calls of each kind: more than there are threads for what blocks.
const CALLS: usize = 600;
/// Fewer than a connection may have open.
const ON_ONE_CONNECTION: usize = 200;
/// Far more than it takes, and far less than an attack lasts.
const SOON: Duration = Duration::from_secs(10);

pub(super) fn lock(name: &str, user: &str) -> v1::CreateResourceRequest {
    let yaml =
        format!("kind: lock\nversion: v1\nmetadata:\n  name: {name}\nspec:\n  target:\n    user: {user}\n");
    v1::CreateResourceRequest { yaml, replace: true }
}

/// The role of a user, with a right of the API beside its logins.
pub(super) fn role_with(user: &str, login: &str, resource: &str) -> v1::CreateResourceRequest {
    let yaml = format!(
        "kind: role\nversion: v1\nmetadata: {{name: {user}-role}}\nspec: {{allow: {{logins: [{login}], node_labels: \
         {{'*': '*'}}, rules: [{{resources: [{resource}], verbs: [list, read]}}]}}}}\n"
    );
    v1::CreateResourceRequest { yaml, replace: true }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn unread_playbacks_searches_and_wrong_logins_do_not_keep_a_lock_out() {
    let cluster = Cluster::all_in_one().await;
    let (mut admin, login) = (cluster.admin().await, os_login());
    let mallory = cluster.user("mallory", &[&login]).await;
    admin.create_resource(role_with("mallory", &login, "event")).await.unwrap();
    mallory.run("web-1", &login, "yes 0123456789 | head -c 4000000").await;
    let recordings = ClusterClient::new(admin_channel(&cluster.data_dir()).await);
    let session = until("the recording", || {
        let mut recordings = recordings.clone();
        async move {
            let asked = v1::ListRecordingsRequest::default();
            let listed = recordings.list_recordings(asked).await.unwrap().into_inner().recordings;
            listed.into_iter().find(|recording| recording.state == "complete")
        }
    })
    .await
    .session_id;

    let mut calls: JoinSet<Result<Box<dyn std::any::Any + Send>, Status>> = JoinSet::new();
    let mut connections = Vec::new();
    for number in 0..2 * CALLS {
        if number % ON_ONE_CONNECTION == 0 {
            connections.push(mallory.authority_unread().await);
        }
        let channel = connections.last().unwrap().clone();
        let session_id = session.clone();
        calls.spawn(async move {
            if number % 2 == 0 {
                let asked = v1::PlayRecordingRequest { session_id, from: None };
                let played = ClusterClient::new(channel).play_recording(asked).await?;
                return Ok(Box::new(played.into_inner()) as _);
            }
            let searched =
                AdminClient::new(channel).search_events(v1::SearchEventsRequest::default()).await?;
            Ok(Box::new(searched.into_inner()) as _)
        });
    }
    let (mut open, mut refused) = (Vec::new(), 0);
    let all = async {
        while let Some(answered) = calls.join_next().await {
            match answered.unwrap() {
                Ok(stream) => open.push(stream),
                Err(status) => {
                    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
                    refused += 1;
                }
            }
        }
    };
    let all_answered = tokio::time::timeout(Duration::from_secs(60), all).await.is_ok();

    // Passwords are slow on purpose.
    let pin = pin(&mut admin).await;
    let guessing = LoginClient::new(pinned(&cluster.proxy(), &pin).await);
    let mut guesses = JoinSet::new();
    for number in 0..100 {
        let mut guessing = guessing.clone();
        guesses.spawn(async move {
            let asked = v1::LoginRequest {
                user: format!("nobody-{number}"),
                password: "wrong password".to_owned(),
                ..v1::LoginRequest::default()
            };
            guessing.login_with_password(asked).await
        });
    }
    let locked = tokio::time::timeout(SOON, admin.create_resource(lock("away", "mallory"))).await;
    locked.expect("the lock gets through").unwrap();
    assert!(all_answered, "calls are neither served nor refused");
    assert!(open.len() <= 8, "{} unread answers of one caller", open.len());
    assert!(refused >= 2 * CALLS - 8, "{refused}");
    // Who reads nothing does not hear of it: the connections that had something open are closed.
    until("the end of what was open", || {
        let connections = connections.clone();
        async move {
            for channel in connections {
                let mut asking = ClusterClient::new(channel);
                let asked = asking.get_status(v1::GetStatusRequest::default());
                let Ok(Err(status)) = tokio::time::timeout(Duration::from_secs(1), asked).await else {
                    continue;
                };
                if status.code() != Code::PermissionDenied {
                    return Some(());
                }
            }
            None
        }
    })
    .await;
    guesses.shutdown().await;
}
