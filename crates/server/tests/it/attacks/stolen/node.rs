//! A node, with everything on it.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn it_gives_what_runs_there_and_a_lock_ends_that() {
    let scene = Scene::new().await;
    let of_bob = recording_of_another(&scene).await;
    let stolen = scene.node_identity();
    let channel = stolen.authority(&scene.cluster).await;
    no_administration(&channel).await;
    nothing_of_others(&channel, &of_bob).await;
    no_other_host(&channel).await;

    // Neither the list of hosts, nor a way to them.
    let watch = v1::WatchRequest { kinds: vec!["node".to_owned()] };
    let mut watched = FleetClient::new(channel.clone()).watch(watch).await.unwrap().into_inner();
    while let Some(change) = watched.message().await.unwrap() {
        match change.event.unwrap() {
            v1::watch_event::Event::Put(resource) => assert_eq!(resource.name, stolen.id, "itself alone"),
            v1::watch_event::Event::SnapshotDone(_) => break,
            other => panic!("{other:?}"),
        }
    }
    let as_user = scene.alice.with_keys("alice", "", "", &stolen.key, &stolen.chain);
    let refused = match as_user.connect().await {
        Ok(channel) => support::open(channel, "web-1", &scene.login).await.is_err(),
        Err(_) => true,
    };
    assert!(refused, "a node's certificate is no user's");
    // Certificates for databases and servers are made for those who serve them.
    let mut fleet = FleetClient::new(channel.clone());
    let target = v1::CertifyTargetRequest { node_id: stolen.id.clone(), ssh_public_key: ssh_line() };
    denied("a server's certificate", fleet.certify_target(target).await);
    let database = v1::CertifyDatabaseUserRequest {
        database: "prod".to_owned(),
        db_user: "postgres".to_owned(),
        db_name: "postgres".to_owned(),
        tls_public_key: spki(),
        ..Default::default()
    };
    let mut databases = v1::databases_client::DatabasesClient::new(channel.clone());
    denied("a database user's certificate", databases.certify_database_user(database).await);
    // What is left of earlier recordings there is sealed to the authority's key.
    for entry in std::fs::read_dir(scene.cluster.directory.path().join("node/node/recordings")).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(6).any(|part| part == b"of-bob"));
    }

    let live = scene.session().await;
    let since = lock(&scene.cluster, "node: web-1").await;
    is_cut(live, &since).await;
    denied("the policy", fleet.watch(v1::WatchRequest { kinds: vec!["role".to_owned()] }).await);
    let renew =
        v1::RenewHostRequest { ssh_public_key: ssh_line(), tls_public_key: spki(), public_names: Vec::new() };
    denied("a renewal", fleet.renew_host(renew).await);
    since.done("a stolen node was refused");
    scene.end().await;
}
