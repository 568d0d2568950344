//! A certified provider that is asked again, with a session that runs meanwhile.

use sallyport_ssh::client::{Output, SessionRequest};
use sallyport_wire::v1::cluster_client::ClusterClient;

use super::provider::{Browser, Provider};
use super::*;
use crate::support::{PATIENCE, events, os_login, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_the_provider_ends_ends_the_sessions_here_and_a_group_that_it_adds_does_not() {
    let login = os_login();
    let cluster = Cluster::all_in_one().await;
    connect(&cluster, support::role("ops", &[&login])).await;
    let mut provider = Provider::start(|settings| settings["refresh"] = true.into()).await;
    provider.moves("1", &["ops-eu"]);
    let yaml =
        document("corp", &provider, "  refresh: {interval: 1s, grace: 1h}\n").replace("[access]", "[ops]");
    let everyone = "      - {claim: groups, value: everyone";
    let yaml =
        yaml.replace(everyone, &format!("      - {{claim: groups, value: us, roles: [editor]}}\n{everyone}"));
    connect(&cluster, yaml).await;
    let pages = Pages::of(&cluster).await;
    let (mut browser, mut other) = (Browser::default(), Browser::default());
    let (alice, _) = pages.log_in(&mut browser, "1").await.unwrap();
    let (bob, _) = pages.log_in(&mut other, "2").await.unwrap();
    let connection = alice.ssh("web-1", &login).await;
    let mut session = connection.start(SessionRequest::exec("echo ready; sleep 600")).await.unwrap();
    while session.next().await != Some(Output::Stdout("ready\n".into())) {}
    let list = async |user: &User| {
        let mut mine = ClusterClient::new(user.authority().await);
        mine.list_nodes(v1::ListNodesRequest::default()).await.map(drop)
    };
    // Twice: the second time by the token that the provider gave in place of the first.
    for (groups, role) in
        [(&["ops-eu", "everyone"][..], "auditor"), (&["ops-eu", "everyone", "us"], "editor")]
    {
        provider.moves("1", groups);
        until("the roles are as the provider says", async || {
            let get = v1::GetResourceRequest { kind: "user".to_owned(), name: "alice".to_owned() };
            let user = cluster.admin().await.get_resource(get).await.unwrap().into_inner();
            user.yaml.contains(role).then_some(())
        })
        .await;
    }
    list(&alice).await.unwrap();
    // The person logs out at the provider, which tells no one here.
    browser.log_out(&provider.issuer).await;
    let ended = async { while session.next().await.is_some() {} };
    tokio::time::timeout(PATIENCE, ended).await.expect("the session runs on");
    until("the login has ended", async || list(&alice).await.err().map(drop)).await;
    list(&bob).await.unwrap();
    let told = events(&mut cluster.admin().await, "SP1054W").await;
    assert_eq!((told.len(), told[0]["user"].as_str()), (1, Some("alice")));
    assert!(told[0]["message"].as_str().unwrap().contains("invalid_grant"), "{told:?}");
}
