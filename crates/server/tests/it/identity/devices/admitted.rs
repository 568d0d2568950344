//! An administrator admits a device that waits, at a page that shows it.

use sallyport_wire::admin_factor::Wanted;

use super::super::administrators::administrator;
use super::*;

fn assign(id: &str, challenge: &str) -> v1::AssignDeviceRequest {
    v1::AssignDeviceRequest { id: id.to_owned(), users: Vec::new(), challenge: challenge.to_owned() }
}

async fn devices(user: &User) -> DevicesClient<Channel> {
    DevicesClient::new(user.authority().await)
}

async fn state_of(cluster: &Cluster, id: &str) -> String {
    let mut admin = admin_devices(cluster).await;
    let listed = admin.list(v1::ListDevicesRequest {}).await.unwrap().into_inner().devices;
    listed.into_iter().find(|device| device.id == id).unwrap().state
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_admits_the_device_that_the_page_shows_and_proves_nothing_else() {
    let cluster = cluster_with(file_keys).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let root = administrator(&bench, "root").await;
    let mut key = bench.first_passkey(&root).await;
    let mut desk = Machine::new();
    let device = desk.enroll(&alice, DeviceCustody::File, "").await.unwrap();
    assert_eq!(device.state, "pending");

    let id = bench.begin_proof(&root, Purpose::AdmitDevice(desk.id.clone())).await.unwrap();
    let page = bench.web.clone().describe_approval(at(&id)).await.unwrap().into_inner();
    assert_eq!((page.user.as_str(), page.purpose.as_str()), ("root", "admit-device"));
    let shown = |said: bool| -> Vec<(&str, &str)> {
        let details = page.details.iter().filter(|detail| detail.said == said);
        details.map(|detail| (detail.label.as_str(), detail.value.as_str())).collect()
    };
    let known = shown(false);
    assert!(known.contains(&("Device", desk.id.as_str())), "{known:?}");
    assert!(known.contains(&("Its users", "alice")), "{known:?}");
    assert!(known.contains(&("Key (SHA-256)", device.key.as_str())), "{known:?}");
    assert!(known.iter().any(|(label, value)| *label == "Asked for by" && value.starts_with("alice, 20")));
    let said = shown(true);
    let place = ("Its key is in", "a file, which can be copied");
    let expected =
        [place, ("Its name", "laptop[31m"), ("Its system", "Debian"), ("Its serial number", "0815")];
    assert_eq!(said, expected, "what the machine says of itself is marked as that");

    let early = devices(&root).await.assign(assign(&desk.id, &id)).await.unwrap_err();
    assert_eq!(early.code(), Code::FailedPrecondition, "it is not proven yet: {early:?}");
    bench.approve(&id, &mut key).await.unwrap();
    let admitted = devices(&root).await.assign(assign(&desk.id, &id)).await.unwrap().into_inner();
    assert_eq!(admitted.device.unwrap().state, "enrolled");
    desk.log_in(&bench, &alice).await.unwrap();
    let twice = devices(&root).await.assign(assign(&desk.id, &id)).await.unwrap_err();
    assert_eq!(twice.code(), Code::FailedPrecondition, "it serves once: {twice:?}");
    // It was no proof for anything else.
    let other = devices(&root).await.assign(assign(&desk.id, "")).await.unwrap_err();
    assert_eq!(Wanted::of(&other), Some(Wanted::Prove), "{other:?}");
    let gone = bench.begin_proof(&root, Purpose::AdmitDevice(desk.id.clone())).await.unwrap_err();
    assert_eq!(gone.code(), Code::NotFound, "it does not wait any more: {gone:?}");

    let event = &bench.events("SP1090I", "root").await[0];
    assert_eq!(event["fields"]["device"], desk.id.as_str(), "{event:?}");
    assert_eq!(event["fields"]["method"], "Devices.Assign", "{event:?}");
    assert_eq!(event["fields"]["factor"], "laptop", "{event:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn attacks_the_approval_of_one_device_admits_no_other_and_serves_its_own_administrator() {
    let cluster = cluster_with(file_keys).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let root = administrator(&bench, "root").await;
    let other = administrator(&bench, "other").await;
    let mut key = bench.first_passkey(&root).await;
    bench.first_passkey(&other).await;
    let (mut desk, mut thiefs) = (Machine::new(), Machine::new());
    desk.enroll(&alice, DeviceCustody::File, "").await.unwrap();
    thiefs.enroll(&alice, DeviceCustody::File, "").await.unwrap();

    // A page shows a device to those who may admit it alone.
    let mut alices = bench.first_passkey(&alice).await;
    let refused = bench.begin_proof(&alice, Purpose::AdmitDevice(desk.id.clone())).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    for none in ["", "x", "00000000-0000-0000-0000-000000000000"] {
        let refused = bench.begin_proof(&root, Purpose::AdmitDevice(none.to_owned())).await.unwrap_err();
        assert_eq!(refused.code(), Code::NotFound, "{refused:?}");
    }

    let id = bench.begin_proof(&root, Purpose::AdmitDevice(desk.id.clone())).await.unwrap();
    bench.approve(&id, &mut key).await.unwrap();
    let mut client = devices(&root).await;
    let refused = client.assign(assign(&thiefs.id, &id)).await.unwrap_err();
    assert!(is(&refused, Code::FailedPrecondition, "for something else"), "{refused:?}");
    let named = v1::AssignDeviceRequest { users: vec!["root".to_owned()], ..assign(&desk.id, &id) };
    let refused = client.assign(named).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
    let refused = devices(&other).await.assign(assign(&desk.id, &id)).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound, "it is another administrator's: {refused:?}");
    let refused = devices(&alice).await.assign(assign(&desk.id, &id)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "she may not: {refused:?}");
    let local = admin_devices(&cluster).await.assign(assign(&desk.id, &id)).await.unwrap_err();
    assert_eq!(local.code(), Code::PermissionDenied, "the socket asks for no factor: {local:?}");

    // What was proven for another purpose admits nothing.
    let recovery = bench.begin_proof(&root, Purpose::RecoveryCodes(true)).await.unwrap();
    bench.approve(&recovery, &mut key).await.unwrap();
    let refused = client.assign(assign(&desk.id, &recovery)).await.unwrap_err();
    assert!(is(&refused, Code::FailedPrecondition, "for something else"), "{refused:?}");
    let administers = bench.begin_proof(&root, Purpose::Administer(true)).await.unwrap();
    bench.approve(&administers, &mut key).await.unwrap();
    let refused = client.assign(assign(&desk.id, &administers)).await.unwrap_err();
    assert!(is(&refused, Code::FailedPrecondition, "for something else"), "{refused:?}");
    let proves = v1::ProveAdministratorRequest { proof: proof(Proof::Challenge(id.clone())) };
    let refused = factors(&root).await.prove_administrator(proves).await.unwrap_err();
    assert!(
        is(&refused, Code::FailedPrecondition, "for something else"),
        "nor is it one for all: {refused:?}"
    );
    // Another person's passkey at the page ends it.
    let page = bench.begin_proof(&root, Purpose::AdmitDevice(thiefs.id.clone())).await.unwrap();
    let refused = bench.approve(&page, &mut alices).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    assert_eq!(state_of(&cluster, &desk.id).await, "pending");
    assert_eq!(state_of(&cluster, &thiefs.id).await, "pending");
    client.assign(assign(&desk.id, &id)).await.unwrap();
}
