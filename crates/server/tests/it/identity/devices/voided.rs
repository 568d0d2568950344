//! What a thief of a login asks for is void with it.

use super::*;

/// Asks for a device with a login that was stolen, and gives what an administrator may be asked to admit.
async fn stolen(cluster: &Cluster, bench: &Bench<'_>, user: &str) -> (User, String) {
    let thief = support::log_in(&cluster.proxy(), &bench.pin, user, None).await.unwrap();
    let mut theirs = Machine::new();
    theirs.enroll(&thief, DeviceCustody::File, "").await.unwrap();
    (thief, theirs.id)
}

/// Whether an administrator can admit a device that waits.
async fn waits(cluster: &Cluster, id: &str) -> bool {
    let mut admin = admin_devices(cluster).await;
    let listed = admin.list(v1::ListDevicesRequest {}).await.unwrap().into_inner().devices;
    let is_listed = listed.iter().any(|device| device.id == id);
    let assign = v1::AssignDeviceRequest { id: id.to_owned(), ..Default::default() };
    match is_listed {
        true => true,
        false => {
            let missing = admin.assign(assign).await.unwrap_err();
            assert_eq!(missing.code(), Code::NotFound, "{missing:?}");
            false
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn attacks_what_a_thief_asked_for_is_void_with_the_login_that_asked() {
    let cluster = cluster_with(file_keys).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let (_, own) = stolen(&cluster, &bench, "alice").await;
    let alices = LoginsClient::new(alice.authority().await);
    let login_of = async |except: &[String]| {
        let listed = alices.clone().list(v1::ListLoginsRequest::default()).await.unwrap().into_inner();
        let mut ids = listed.logins.into_iter().filter(|login| !login.current).map(|login| login.id);
        ids.find(|id| !except.contains(id)).unwrap()
    };
    let first = login_of(&[]).await;

    let (_, theirs) = stolen(&cluster, &bench, "alice").await;
    let which = Some(v1::end_logins_request::Which::Id(login_of(std::slice::from_ref(&first)).await));
    alices.clone().end(v1::EndLoginsRequest { which }).await.unwrap();
    assert!(!waits(&cluster, &theirs).await, "its user ended the login");
    assert!(waits(&cluster, &own).await, "of another login");
    let event = bench.events("SP1073I", "alice").await;
    assert!(event[0]["fields"]["why"].as_str().unwrap().contains("from another login"), "{event:?}");
    // A person who logs out still waits for the administrator.
    let (gone, still) = stolen(&cluster, &bench, "alice").await;
    let which = Some(v1::end_logins_request::Which::Own(true));
    LoginsClient::new(gone.authority().await).end(v1::EndLoginsRequest { which }).await.unwrap();
    assert!(waits(&cluster, &still).await, "its user logged out");

    // The password is changed: what this login asked for stays.
    let mut desk = Machine::new();
    let remove = v1::RemoveDeviceRequest { what: Some(What::Device(still)) };
    admin_devices(&cluster).await.remove(remove).await.unwrap();
    desk.enroll(&alice, DeviceCustody::File, "").await.unwrap();
    let change = v1::ChangePasswordRequest {
        old_password: PASSWORD.to_owned(),
        new_password: CHANGED.to_owned(),
        proof: None,
    };
    factors(&alice).await.change_password(change).await.unwrap();
    assert!(!waits(&cluster, &own).await, "the password was changed");
    assert!(waits(&cluster, &desk.id).await, "the login that changed it had asked");

    // A lock, and one that is lifted again.
    let yaml = "kind: lock\nversion: v1\nmetadata: {name: out}\nspec: {target: {user: alice}}\n".to_owned();
    let mut admin = cluster.admin().await;
    admin.create_resource(v1::CreateResourceRequest { yaml, replace: false }).await.unwrap();
    let delete = v1::DeleteResourceRequest { kind: "lock".to_owned(), name: "out".to_owned() };
    admin.delete_resource(delete).await.unwrap();
    assert!(!waits(&cluster, &desk.id).await, "a lock");

    // An administrator's reset, with the tokens that were made for her.
    let bob = cluster.user("bob", &["root"]).await;
    let (_, theirs) = stolen(&cluster, &bench, "bob").await;
    let (for_bob, for_both) =
        (token(&cluster, &["bob"], false).await, token(&cluster, &["alice", "bob"], false).await);
    let for_all = token(&cluster, &[], false).await;
    admin.reset_user(v1::ResetUserRequest { name: "bob".to_owned() }).await.unwrap();
    assert!(!waits(&cluster, &theirs).await, "a reset");
    let tokens =
        admin_devices(&cluster).await.list(v1::ListDevicesRequest {}).await.unwrap().into_inner().tokens;
    let left = |token: &str| {
        tokens.iter().find(|known| token.starts_with(&known.name)).map(|known| known.users.clone())
    };
    assert_eq!(left(&for_bob), None);
    assert_eq!(left(&for_both), Some(vec!["alice".to_owned()]));
    assert_eq!(left(&for_all), Some(Vec::new()));
    drop(bob);

    // Another of the name has none of the tokens of the one who was removed.
    let for_alice = token(&cluster, &["alice"], false).await;
    let delete = v1::DeleteResourceRequest { kind: "user".to_owned(), name: "alice".to_owned() };
    admin.delete_resource(delete).await.unwrap();
    let again = cluster.user("alice", &["root"]).await;
    for token in [for_alice, for_both] {
        let refused = Machine::new().enroll(&again, DeviceCustody::File, &token).await.unwrap_err();
        assert!(is(&refused, Code::PermissionDenied, "not good"), "{refused:?}");
    }
}

/// As many as may wait, also where all of them ask at the same moment.
#[tokio::test(flavor = "multi_thread")]
async fn attacks_many_devices_at_once_are_no_more_than_may_wait() {
    let cluster = cluster_with(file_keys).await;
    let alice = cluster.user("alice", &["root"]).await;
    let mut machines: Vec<Machine> = (0..12).map(|_| Machine::new()).collect();
    let each = machines.iter_mut().map(|machine| machine.enroll(&alice, DeviceCustody::File, ""));
    let outcomes = futures::future::join_all(each).await;
    let (asked, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert_eq!((asked.len(), refused.len()), (3, 9));
    for refused in refused {
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    }
    let listed = admin_devices(&cluster).await.list(v1::ListDevicesRequest {}).await.unwrap().into_inner();
    assert_eq!(listed.devices.len(), 3);
}
