//! A proxy, with everything on it.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn it_gives_no_certificates_of_others_no_policy_and_no_recordings_and_a_lock_ends_it() {
    let scene = Scene::new().await;
    let of_bob = recording_of_another(&scene).await;
    // A proxy of its own: the one beside the authority shares its files with it.
    let (token, pin) = support::token(&mut scene.cluster.admin().await, "proxy").await;
    let (issued, key) = join(&scene.cluster, &token, &pin, "proxy", "edge.example.net").await.unwrap();
    let trust = scene.cluster.running.authority().unwrap().trust();
    assert!(is_role(&trust, &issued.tls_certificate_pem, HostRole::Proxy));
    let stolen =
        Identity { key: key.pkcs8_pem().to_string(), chain: issued.tls_certificate_pem, id: issued.host_id };
    let channel = stolen.authority(&scene.cluster).await;
    no_administration(&channel).await;
    nothing_of_others(&channel, &of_bob).await;
    no_other_host(&channel).await;

    // It hands on what SCIM clients ask, and has no token of its own to ask with.
    let request =
        v1::ScimRequest { method: "GET".to_owned(), path: "/Users".to_owned(), ..Default::default() };
    let answer = ProvisioningClient::new(channel.clone()).answer_scim(request).await.unwrap().into_inner();
    assert_eq!(answer.status, 401, "{answer:?}");

    let mut fleet = FleetClient::new(channel.clone());
    // Only registered servers are passed for, and only with a certificate that a user has shown.
    let node = scene.node_identity();
    let target = v1::CertifyTargetRequest { node_id: node.id.clone(), ssh_public_key: ssh_line() };
    denied("a node's certificate", fleet.certify_target(target).await);
    let login = v1::CertifyForTargetRequest {
        node_id: node.id,
        login: "root".to_owned(),
        user_certificate: scene.alice.ssh_certificate.clone(),
        ssh_public_key: ssh_line(),
        word: None,
    };
    denied("a login on a node", fleet.certify_for_target(login).await);
    denied("a heartbeat as a node", fleet.heartbeat(v1::HeartbeatRequest::default()).await);

    let since = lock(&scene.cluster, &format!("node: {}", stolen.id)).await;
    denied("the policy", fleet.watch(v1::WatchRequest { kinds: vec!["role".to_owned()] }).await);
    let renew =
        v1::RenewHostRequest { ssh_public_key: ssh_line(), tls_public_key: spki(), public_names: Vec::new() };
    denied("a renewal", fleet.renew_host(renew).await);
    since.done("a stolen proxy was refused");
    scene.end().await;
}
