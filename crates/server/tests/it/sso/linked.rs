//! A local user who is linked with a person of a certified provider, and logs in by both.

use sallyport_ssh::client::{Output, Session, SessionRequest};
use sallyport_wire::v1::cluster_client::ClusterClient;
use sallyport_wire::v1::logins_client::LoginsClient;
use tonic::Code;

use super::provider::{Browser, Provider};
use super::*;
use crate::support::{PATIENCE, events, is, os_login, until};

/// The subject of bob at the provider.
const BOB: &str = "2";

pub(super) fn link(name: &str, connector: &str, subject: &str) -> v1::LinkUserRequest {
    v1::LinkUserRequest {
        name: name.to_owned(),
        connector: connector.to_owned(),
        subject: subject.to_owned(),
    }
}

fn unlink(name: &str) -> v1::UnlinkUserRequest {
    v1::UnlinkUserRequest { name: name.to_owned() }
}

async fn lists(user: &User) -> Result<(), Status> {
    let mut mine = ClusterClient::new(user.authority().await);
    mine.list_nodes(v1::ListNodesRequest::default()).await.map(drop)
}

async fn runs(connection: &sallyport_ssh::client::Connection) -> Session {
    let mut session = connection.start(SessionRequest::exec("echo ready; cat")).await.unwrap();
    while session.next().await != Some(Output::Stdout("ready\n".into())) {}
    session
}

#[tokio::test(flavor = "multi_thread")]
async fn a_linked_user_logs_in_by_both_ways_with_their_own_roles_and_unlinking_ends_the_one() {
    let os_login = os_login();
    let cluster = Cluster::all_in_one().await;
    let provider = Provider::start(|_| ()).await;
    connect(&cluster, document("corp", &provider, "  user_lifetime: 30m\n")).await;
    let pages = Pages::of(&cluster).await;
    let first = cluster.user("bob", &[&os_login]).await;
    // The name is taken, and the page says what an administrator runs.
    let status = pages.log_in(&mut Browser::default(), BOB).await.map(drop).unwrap_err();
    let command = format!("sallyport admin users link 'bob' --connector corp --subject '{BOB}'");
    assert!(is(&status, Code::PermissionDenied, &command), "{status:?}");
    cluster.admin().await.link_user(link("bob", "corp", BOB)).await.unwrap();

    let mut browser = Browser::default();
    let (by_link, login) = pages.log_in(&mut browser, BOB).await.unwrap();
    assert_eq!((by_link.name.as_str(), login.roles.as_slice()), ("bob", &["bob-role".to_owned()][..]));
    let ends = sallyport_wire::convert::time_from_proto(login.valid_until.as_ref().unwrap()).unwrap();
    assert!(ends <= time::OffsetDateTime::now_utc() + time::Duration::minutes(32), "{ends}");
    let by_password = support::log_in(&cluster.proxy(), &pages.pin, "bob", None).await.unwrap();
    let connections = (by_link.ssh("web-1", &os_login).await, by_password.ssh("web-1", &os_login).await);
    let (mut ends, mut stays) = (runs(&connections.0).await, runs(&connections.1).await);
    // Both are the user's, each with how it came.
    let mut mine = LoginsClient::new(by_password.authority().await);
    let logins = mine.list(v1::ListLoginsRequest::default()).await.unwrap().into_inner().logins;
    let mut ways: Vec<_> = logins.iter().map(|login| login.way.as_str()).collect();
    ways.sort_unstable();
    assert_eq!(ways, ["password", "password", "single sign-on"], "{logins:?}");
    // Others do not come by it: another person, and one who has no user here.
    let (alice, _) = pages.log_in(&mut Browser::default(), "1").await.unwrap();
    assert_eq!(alice.name, "alice");
    // A login that is proven, and not opened yet.
    let proven = pages.begin().await;
    let away = pages.send(&proven.id, "corp").await.unwrap();
    let answer = browser.through(&away.url, BOB).await;
    let answered = pages.answer(&answer, &away.binding).await.unwrap();

    let unlinked = cluster.admin().await.unlink_user(unlink("bob")).await.unwrap().into_inner();
    assert_eq!((unlinked.subject.as_str(), unlinked.ended_logins), (BOB, 1));
    let ended = async { while ends.next().await.is_some() {} };
    tokio::time::timeout(PATIENCE, ended).await.expect("the session by the link runs on");
    until("the login by the link has ended", async || lists(&by_link).await.err().map(drop)).await;
    lists(&by_password).await.unwrap();
    lists(&first).await.unwrap();
    lists(&alice).await.unwrap();
    stays.input().data("still\n").await.unwrap();
    while stays.next().await.expect("the session by the password has ended")
        != Output::Stdout("still\n".into())
    {}
    let status = pages.finish(&proven, &answered.redirect).await.map(drop).unwrap_err();
    assert!(is(&status, Code::Aborted, "log in again"), "{status:?}");
    let status = pages.log_in(&mut browser, BOB).await.map(drop).unwrap_err();
    assert!(is(&status, Code::PermissionDenied, "belongs to another user"), "{status:?}");
    support::log_in(&cluster.proxy(), &pages.pin, "bob", None).await.unwrap();

    let mut admin = cluster.admin().await;
    for (code, reason) in [("SP1016I", None), ("SP1017I", Some("the user was unlinked"))] {
        let told = events(&mut admin, code).await;
        assert_eq!(told.len(), 1, "{told:?}");
        let fields = &told[0]["fields"];
        assert_eq!((fields["name"].as_str(), fields["subject"].as_str()), (Some("bob"), Some(BOB)));
        assert_eq!((fields["connector"].as_str(), fields["reason"].as_str()), (Some("corp"), reason));
    }
    let came = events(&mut admin, "SP1050I").await;
    assert!(came.iter().any(|event| event["user"] == "bob" && event["fields"]["linked"] == true), "{came:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_ends_a_session_ends_the_login_by_link_and_not_that_by_password() {
    let cluster = Cluster::without_node().await;
    let mut provider = Provider::start(|settings| settings["refresh"] = true.into()).await;
    connect(&cluster, document("corp", &provider, "  refresh: {interval: 1s, grace: 1h}\n")).await;
    let pages = Pages::of(&cluster).await;
    let by_password = cluster.user("bob", &["bob"]).await;
    cluster.admin().await.link_user(link("bob", "corp", BOB)).await.unwrap();
    let mut browser = Browser::default();
    let (by_link, login) = pages.log_in(&mut browser, BOB).await.unwrap();
    assert_eq!(login.roles, ["bob-role"]);
    // It says another thing of the person at each answer, and that counts for nothing here.
    provider.moves(BOB, &[]);
    browser.log_out(&provider.issuer).await;
    until("the login by the link has ended", async || lists(&by_link).await.err().map(drop)).await;
    lists(&by_password).await.unwrap();
    let told = events(&mut cluster.admin().await, "SP1054W").await;
    assert_eq!((told.len(), told[0]["user"].as_str()), (1, Some("bob")));
    let get = v1::GetResourceRequest { kind: "user".to_owned(), name: "bob".to_owned() };
    let user = cluster.admin().await.get_resource(get).await.unwrap().into_inner();
    assert!(user.yaml.contains("bob-role") && user.yaml.contains("link"), "{}", user.yaml);
    pages.log_in(&mut Browser::default(), BOB).await.unwrap();
}
