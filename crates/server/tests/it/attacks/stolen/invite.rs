//! An invite link that has not been used.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn it_gives_the_account_that_it_was_made_for_until_a_reset_voids_it() {
    let cluster = Cluster::without_node().await;
    let mut admin = cluster.admin().await;
    let yaml = support::role("dev", &["root"]);
    admin.create_resource(v1::CreateResourceRequest { yaml, replace: false }).await.unwrap();
    let request = v1::CreateUserRequest {
        name: "carol".to_owned(),
        roles: vec!["dev".to_owned()],
        ..Default::default()
    };
    let stolen = admin.create_user(request).await.unwrap().into_inner().token;
    let pin = support::pin(&mut admin).await;
    let mut login = LoginClient::new(pinned(&cluster.proxy(), &pin).await);
    let begun = login.begin_invite(v1::BeginInviteRequest { token: stolen.clone() }).await.unwrap();
    assert_eq!(begun.into_inner().user, "carol");

    let fresh =
        admin.reset_user(v1::ResetUserRequest { name: "carol".to_owned() }).await.unwrap().into_inner();
    let since = Stopwatch::start();
    let finish = |token: &str| v1::FinishInviteRequest {
        token: token.to_owned(),
        password: support::PASSWORD.to_owned(),
        otp: String::new(),
    };
    assert!(login.finish_invite(finish(&stolen)).await.is_err(), "the stolen link is void");
    assert!(login.begin_invite(v1::BeginInviteRequest { token: stolen }).await.is_err());
    since.done("a stolen link was refused");
    login.begin_invite(v1::BeginInviteRequest { token: fresh.token.clone() }).await.unwrap();
    login.finish_invite(finish(&fresh.token)).await.unwrap();
    assert!(login.finish_invite(finish(&fresh.token)).await.is_err(), "a link is spent with its first use");
    cluster.running.shutdown(false).await;
}
