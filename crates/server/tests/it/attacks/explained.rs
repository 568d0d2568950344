//! The answer to "why": it agrees with what is enforced, and tells nothing of what the asking user cannot see.

use sallyport_wire::v1;
use sallyport_wire::v1::cluster_client::ClusterClient;
use sallyport_wire::v1::databases_client::DatabasesClient;
use tonic::transport::Channel;

use super::people::{account, joined, logged_in, person, role, write};
use crate::support::{Cluster, User, admin_channel, until};

fn ask(user: &str, login: &str, node: &str) -> v1::ExplainAccessRequest {
    v1::ExplainAccessRequest { user: user.to_owned(), login: login.to_owned(), node: node.to_owned() }
}

async fn why(channel: Channel, user: &str, login: &str, node: &str) -> v1::ExplainAccessResponse {
    ClusterClient::new(channel).explain_access(ask(user, login, node)).await.unwrap().into_inner()
}

const LOGINS: [&str; 4] = ["root", "deploy", "web", "alice"];

/// Roles and traits that alice has one after the other, each after a login with those before.
const STATES: [(&str, &[&str], &[&str]); 10] = [
    ("several roles", &["ops", "own"], &["web", "alice"]),
    ("a role taken away", &["own"], &["web", "alice"]),
    ("a trait changed", &["own"], &["alice"]),
    ("a trait added", &["own"], &["alice", "deploy"]),
    ("a role that denies added", &["own", "no-deploy"], &["alice", "deploy"]),
    ("that role taken away", &["own"], &["alice", "deploy"]),
    ("all traits taken away", &["own"], &[]),
    ("all roles taken away", &[], &["web"]),
    ("roles in another order", &["no-deploy", "ops"], &[]),
    ("a role of other nodes", &["elsewhere"], &["web"]),
];

#[tokio::test(flavor = "multi_thread")]
async fn why_and_enforcement_agree_in_forty_cases() {
    let cluster = Cluster::all_in_one().await;
    for (name, spec) in [
        ("ops", "{allow: {logins: [root, deploy], node_labels: {env: test}}}"),
        ("own", "{allow: {logins: ['{{internal.logins}}'], node_labels: {'*': '*'}}}"),
        ("no-deploy", "{deny: {logins: [deploy]}}"),
        ("elsewhere", "{allow: {logins: ['*'], node_labels: {env: '^prod|dev$'}}}"),
    ] {
        write(&cluster, role(name, spec)).await;
    }
    let admin = admin_channel(&cluster.data_dir()).await;
    let mut before: Option<User> = None;
    let mut cases = 0;
    for (what, roles, logins) in STATES {
        let traits: [(&str, &[&str]); 1] = [("internal.logins", logins)];
        if before.is_none() {
            before = Some(person(&cluster, "alice", roles, &traits).await);
        } else {
            write(&cluster, account("alice", roles, &traits)).await;
        }
        let now = logged_in(&cluster, "alice").await.unwrap();
        let (old, fresh) = (before.take().unwrap(), now.connect().await.unwrap());
        for login in LOGINS {
            let why = why(admin.clone(), "alice", login, "web-1").await;
            let enforced = crate::support::open(fresh.clone(), "web-1", login).await;
            assert_eq!(enforced.is_ok(), why.allowed, "{what}, as {login}: {why:?} {:?}", enforced.err());
            assert!(why.details.iter().any(|line| line.contains("in the state")), "it says by what: {why:?}");
            cases += 1;
        }
        if what != STATES[0].0 {
            // A login of before has nothing any more, so that it cannot disagree.
            for login in LOGINS {
                until("the proxy's refusal of the earlier login", async || {
                    old.open("web-1", login).await.err()
                })
                .await;
            }
        }
        before = Some(now);
    }
    assert!(cases >= 40, "{cases}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_cannot_see_is_answered_like_what_is_not_there() {
    let cluster = Cluster::without_node().await;
    for name in ["secret-1", "open-1"] {
        let host = joined(&cluster, name).await;
        let mut fleet = sallyport_wire::v1::fleet_client::FleetClient::new(host.channel);
        let labels = [("env".to_owned(), name.to_owned())].into();
        fleet.heartbeat(v1::HeartbeatRequest { labels, ..Default::default() }).await.unwrap();
    }
    let database = "kind: db\nversion: v1\nmetadata: {name: NAME, labels: {env: NAME}}\nspec: {address: 'db.example:5432', via: [open-1]}\n";
    for name in ["secret-db", "open-db"] {
        write(&cluster, database.replace("NAME", name)).await;
    }
    let spec = "{allow: {logins: [deploy], node_labels: {env: open-1}, db_labels: {env: open-db}, db_users: [app], db_names: [app]}}";
    write(&cluster, role("dev", spec)).await;
    let alice = person(&cluster, "alice", &["dev"], &[]).await;
    let channel = alice.authority().await;
    let (hidden, absent) = (
        why(channel.clone(), "alice", "root", "secret-1").await,
        why(channel.clone(), "alice", "root", "absent-1").await,
    );
    assert_eq!(hidden.summary.replace("secret-1", "absent-1"), absent.summary);
    assert_eq!((hidden.allowed, &hidden.details), (absent.allowed, &absent.details));
    assert_eq!((hidden.allowed, hidden.details.len()), (false, 0));
    let seen = why(channel.clone(), "alice", "root", "open-1").await;
    assert!(!seen.allowed && seen.details.iter().any(|line| line.contains("env=open-1")), "{seen:?}");
    // A user who may ask about all users is told everything.
    let all = why(admin_channel(&cluster.data_dir()).await, "alice", "root", "secret-1").await;
    assert!(all.details.iter().any(|line| line.contains("env=secret-1")), "{all:?}");

    let mut databases = DatabasesClient::new(channel);
    let mut of = async |name: &str| {
        let request = v1::ExplainDatabaseAccessRequest {
            user: "alice".to_owned(),
            database: name.to_owned(),
            db_user: "app".to_owned(),
            db_name: "app".to_owned(),
        };
        databases.explain_database_access(request).await.unwrap().into_inner()
    };
    let (hidden, absent) = (of("secret-db").await, of("absent-db").await);
    assert_eq!(hidden.summary.replace("secret-db", "absent-db"), absent.summary);
    assert_eq!((hidden.allowed, hidden.details.len(), absent.details.len()), (false, 0, 0));
    assert!(of("open-db").await.allowed);
}
