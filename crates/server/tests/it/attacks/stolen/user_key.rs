//! A user's certificates and their keys.

use sallyport_access::SessionId;
use sallyport_wire::v1;
use sallyport_wire::v1::certificates_client::CertificatesClient;
use tonic::Code;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn they_give_that_users_access_and_nothing_else_until_they_are_denied() {
    let scene = Scene::new().await;
    let of_bob = recording_of_another(&scene).await;
    let thief = scene.alice.clone();
    assert_eq!(thief.run("web-1", &scene.login, "echo in").await.0, "in\n", "what they give");

    let channel = thief.authority().await;
    no_administration(&channel).await;
    nothing_of_others(&channel, &of_bob).await;
    nothing_of_others(&channel, &SessionId::new().to_string()).await;
    assert_eq!(thief.open("web-1", "daemon").await.err().unwrap().code(), Code::PermissionDenied);
    // Not another key, nor a longer life: only the same certificates are signed anew.
    let bob = log_in_again(&scene, "bob").await;
    denied(
        "another user's certificates",
        RotationClient::new(channel.clone()).follow(bob.certificates()).await,
    );

    let live = scene.session().await;
    let mut certificates = CertificatesClient::new(support::admin_channel(&scene.cluster.data_dir()).await);
    let asked = v1::ListCertificatesRequest { subject: "alice".to_owned(), ..Default::default() };
    let serial =
        certificates.list_certificates(asked).await.unwrap().into_inner().certificates[0].serial.clone();
    let deny = v1::DenyCertificateRequest { id: serial, reason: "stolen".to_owned() };
    certificates.deny_certificate(deny).await.unwrap();
    let since = Stopwatch::start();
    is_cut(live, &since).await;
    assert_eq!(thief.open("web-1", &scene.login).await.err().unwrap().code(), Code::PermissionDenied);
    denied("a call", ClusterClient::new(channel).list_nodes(v1::ListNodesRequest::default()).await);
    since.done("a denied certificate was refused");
    // The user, who logs in again, goes on.
    let alice = log_in_again(&scene, "alice").await;
    assert_eq!(alice.run("web-1", &scene.login, "echo in").await.0, "in\n");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_the_user_ends_every_login() {
    let scene = Scene::new().await;
    let (live, other) = (scene.session().await, log_in_again(&scene, "alice").await);
    let since = lock(&scene.cluster, "user: alice").await;
    is_cut(live, &since).await;
    for thief in [&scene.alice, &other] {
        assert_eq!(thief.open("web-1", &scene.login).await.err().unwrap().code(), Code::PermissionDenied);
    }
    scene.end().await;
}

async fn log_in_again(scene: &Scene, name: &str) -> User {
    let pin = support::pin(&mut scene.cluster.admin().await).await;
    support::log_in(&scene.cluster.proxy(), &pin, name, None).await.unwrap()
}
