//! Answers that a client does not read, so that they hold what others need.

use std::time::Duration;

use sallyport_wire::v1;
use sallyport_wire::v1::admin_client::AdminClient;
use sallyport_wire::v1::cluster_client::ClusterClient;
use sallyport_wire::v1::login_client::LoginClient;
use tokio::task::JoinSet;
use tonic::{Code, Status};

use crate::support::{Cluster, admin_channel, is, os_login, pin, pinned, until};

/// Calls of each kind: more than there are threads for what blocks.
const CALLS: usize = 600;
/// Streams of one caller that are let in, of all that it asks for.
const MOST_OPEN: usize = 64;
/// Fewer than a connection may have open.
const ON_ONE_CONNECTION: usize = 200;
/// Wrong logins at the same time.
const GUESSES: usize = 1_000;
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
    let mut guessing = Vec::new();
    for _ in 0..GUESSES.div_ceil(ON_ONE_CONNECTION) {
        guessing.push(LoginClient::new(pinned(&cluster.proxy(), &pin).await));
    }
    let mut guesses = JoinSet::new();
    for number in 0..GUESSES {
        let mut guessing = guessing[number / ON_ONE_CONNECTION].clone();
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
    // Eight at a time: on a busy machine some are ended, since the client does not take them, before the last is asked
    // for.
    assert!(open.len() <= MOST_OPEN, "{} unread answers of one caller", open.len());
    assert!(refused >= 2 * CALLS - MOST_OPEN, "{refused}");
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
    // Each guess is answered, and none with a success.
    let answered = async {
        let mut wrong = 0;
        while let Some(guess) = guesses.join_next().await {
            let status = guess.unwrap().unwrap_err();
            let expected = [Code::Unauthenticated, Code::ResourceExhausted];
            assert!(expected.contains(&status.code()), "{status:?}");
            wrong += 1;
        }
        wrong
    };
    let wrong = tokio::time::timeout(Duration::from_secs(60), answered).await.expect("answers to guesses");
    assert_eq!(wrong, GUESSES);
}

/// Calls whose answers are one message, and connections that they come by.
const UNARY: usize = 600;
/// The bound of answers that wait for one caller.
const MOST_WAITING: usize = 128;

/// Memory of this process that is in use, in kibibytes.
pub(super) fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Bytes of answers that wait for one caller.
const MOST_WAITING_BYTES: usize = 16 << 20;

/// Users of some 20 KiB each, so that a list of them is long.
async fn long_list(cluster: &Cluster) {
    let mut admin = cluster.admin().await;
    let values: Vec<String> = (0..300).map(|number| format!("{number:060}")).collect();
    for number in 0..10 {
        let traits = [("number".to_owned(), v1::TraitValues { values: values.clone() })].into();
        let name = format!("user-{number}");
        admin.create_user(v1::CreateUserRequest { name, traits, ..Default::default() }).await.unwrap();
    }
}

/// The calls beyond `most` are refused for the answers that wait, while those are kept: none of them ends.
async fn refused_beyond(most: usize, mut calls: JoinSet<Result<(), Status>>) {
    let beyond = calls.len() - most;
    let refused = async {
        for _ in 0..beyond {
            let status = calls.join_next().await.unwrap().unwrap().unwrap_err();
            assert!(is(&status, Code::ResourceExhausted, "wait for your program to read them"), "{status:?}");
        }
    };
    tokio::time::timeout(crate::support::PATIENCE, refused)
        .await
        .expect("calls beyond the bound are refused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn answers_beyond_those_that_may_wait_are_refused_while_these_wait() {
    let cluster = Cluster::start(|config| {
        // No connection ends for its unread answers here: what is refused is so for their number or their bytes.
        config.auth.as_mut().unwrap().answer_patience = Duration::from_secs(3600);
    })
    .await;
    cluster.running.ready(crate::support::PATIENCE).await.unwrap();
    long_list(&cluster).await;
    let mut admin = cluster.admin().await;
    let length = {
        let asked = v1::ListResourcesRequest { kind: "user".to_owned(), ..Default::default() };
        let listed = admin.list_resources(asked).await.unwrap().into_inner();
        listed.resources.iter().map(|resource| resource.yaml.len()).sum::<usize>()
    };
    // More of the short ones than may wait, and fewer of the long ones, which have too many bytes.
    let long = MOST_WAITING - 8;
    let fit = MOST_WAITING_BYTES.div_ceil(length);
    assert!(fit + 20 < long, "{fit} lists of {length} bytes");
    for (name, calls, most) in [("mallory", 2 * MOST_WAITING, MOST_WAITING), ("mallet", long, fit)] {
        let caller = cluster.user(name, &["root"]).await;
        admin.create_resource(role_with(name, "root", "user")).await.unwrap();
        let mut asked = JoinSet::new();
        let mut connections = Vec::new();
        for number in 0..calls {
            if number % ON_ONE_CONNECTION == 0 {
                connections.push(caller.authority_unread().await);
            }
            let channel = connections.last().unwrap().clone();
            asked.spawn(async move {
                if most == MOST_WAITING {
                    let asked = v1::ListNodesRequest::default();
                    return ClusterClient::new(channel).list_nodes(asked).await.map(drop);
                }
                let asked = v1::ListResourcesRequest { kind: "user".to_owned(), ..Default::default() };
                AdminClient::new(channel).list_resources(asked).await.map(drop)
            });
        }
        refused_beyond(most, asked).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn unread_lists_are_bounded_end_their_connections_and_keep_no_lock_out() {
    // Longer than it takes to ask, and short enough to wait for.
    let patience = Duration::from_secs(5);
    let cluster = Cluster::start(|config| config.auth.as_mut().unwrap().answer_patience = patience).await;
    cluster.running.ready(crate::support::PATIENCE).await.unwrap();
    let mut admin = cluster.admin().await;
    // In all far more than is kept.
    long_list(&cluster).await;
    let mallory = cluster.user("mallory", &["root"]).await;
    admin.create_resource(role_with("mallory", "root", "user")).await.unwrap();
    let before = resident();

    let mut calls = JoinSet::new();
    let mut connections = Vec::new();
    for number in 0..UNARY {
        if number % ON_ONE_CONNECTION == 0 {
            connections.push(mallory.authority_unread().await);
        }
        let channel = connections.last().unwrap().clone();
        calls.spawn(async move {
            if number % 2 == 0 {
                let asked = v1::ListResourcesRequest { kind: "user".to_owned(), ..Default::default() };
                return AdminClient::new(channel).list_resources(asked).await.map(drop);
            }
            ClusterClient::new(channel).list_nodes(v1::ListNodesRequest::default()).await.map(drop)
        });
    }
    // Those that have no room are refused at once, which needs no window. On a machine with other things to do, the first of
    // the connections may have been closed before the last call was made.
    let (mut refused, mut closed) = (0, 0);
    let all_others = async {
        while refused + closed < UNARY - MOST_WAITING {
            let status = calls.join_next().await.unwrap().unwrap().unwrap_err();
            match status.code() {
                Code::ResourceExhausted => refused += 1,
                _ => closed += 1,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all_others)
        .await
        .expect("calls are neither held nor refused");
    let grown = resident().saturating_sub(before);
    println!(
        "{grown} KiB more for {UNARY} unread answers: {refused} were refused, {closed} ended with the connection"
    );

    let locked = tokio::time::timeout(SOON, admin.create_resource(lock("away", "nobody-yet")));
    locked.await.expect("the lock gets through").unwrap();
    // Others of the same kind, who read, are answered.
    let alice = cluster.user("alice", &[]).await;
    let mut reading = ClusterClient::new(alice.authority().await);
    reading.list_nodes(v1::ListNodesRequest::default()).await.unwrap();

    // What waits for a peer that takes nothing ends with its connection.
    let rest = async {
        while let Some(answered) = calls.join_next().await {
            answered.unwrap().expect_err("nothing was read");
        }
    };
    tokio::time::timeout(patience + SOON, rest).await.expect("the connections are closed");
    for channel in connections {
        let mut asking = ClusterClient::new(channel);
        let asked = asking.list_nodes(v1::ListNodesRequest::default());
        let asked = tokio::time::timeout(SOON, asked).await.expect("the connection is closed");
        assert_ne!(asked.unwrap_err().code(), Code::ResourceExhausted);
    }
}
