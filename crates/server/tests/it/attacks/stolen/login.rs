//! A copy of a login's keys and certificates, when its user logs out, or ends it from elsewhere.

use sallyport_wire::v1::end_logins_request::Which;

use super::*;

async fn end(user: &User, which: Which) -> Stopwatch {
    let request = v1::EndLoginsRequest { which: Some(which) };
    LoginsClient::new(user.authority().await).end(request).await.unwrap();
    Stopwatch::start()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_login_is_worth_nothing_once_its_user_has_logged_out() {
    let scene = Scene::new().await;
    let thief = scene.alice.clone();
    let live = scene.session().await;
    let pin = support::pin(&mut scene.cluster.admin().await).await;
    let at_home = support::log_in(&scene.cluster.proxy(), &pin, "alice", None).await.unwrap();
    let since = end(&scene.alice, Which::Own(true)).await;
    is_cut(live, &since).await;
    assert_eq!(thief.open("web-1", &scene.login).await.err().unwrap().code(), Code::PermissionDenied);
    let channel = thief.authority().await;
    denied("a call", ClusterClient::new(channel.clone()).list_nodes(v1::ListNodesRequest::default()).await);
    denied("its certificates anew", RotationClient::new(channel.clone()).follow(thief.certificates()).await);
    let others = v1::EndLoginsRequest { which: Some(Which::Others(true)) };
    denied("the end of the user's logins", LoginsClient::new(channel).end(others).await);
    // The user's other login goes on.
    assert_eq!(at_home.run("web-1", &scene.login, "echo in").await.0, "in\n");
    scene.end().await;
}
