//! Trusted devices: enrolled, proven at logins, demanded by roles, and taken away. The test is the program on the device.

mod admitted;
mod ruled;
mod voided;

use sallyport_access::{Device, DeviceCustody, DeviceId, UserName};
use sallyport_ca::{DEVICE_KEY, DeviceAct};
use sallyport_sal::MemoryKey;
use sallyport_server::config::DevicesSection;
use sallyport_ssh::client::{Exit, Output, SessionRequest};
use sallyport_wire::v1::devices_client::DevicesClient;
use sallyport_wire::v1::logins_client::LoginsClient;
use sallyport_wire::v1::remove_device_request::What;
use tonic::Code;

use super::*;
use crate::support::{CLUSTER, admin_channel, is, node_section, os_login};

pub(super) fn file_keys(config: &mut Config) {
    config.auth.as_mut().unwrap().authentication.devices = DevicesSection { allow_file_keys: true };
}

/// A machine with a key of its own.
pub(crate) struct Machine {
    key: MemoryKey,
    pub(crate) id: String,
}

/// What a program is about to send for a login.
struct Asked {
    ssh: SshKeyPair,
    tls: TlsKey,
}

impl Asked {
    fn new() -> Self {
        let ssh = SshKeyPair::generate(Suite::BalancedV1, "x").unwrap();
        Self { ssh, tls: TlsKey::generate(Suite::BalancedV1).unwrap() }
    }

    fn request(&self, user: &str, device: Option<v1::DeviceProof>) -> v1::LoginRequest {
        v1::LoginRequest {
            user: user.to_owned(),
            password: PASSWORD.to_owned(),
            ssh_public_key: self.ssh.public_line().to_owned(),
            tls_public_key: self.tls.spki_der().to_vec().into(),
            device,
            ..Default::default()
        }
    }

    fn user(&self, of: &User, answer: v1::LoginResponse) -> User {
        let (ssh, tls) = (self.ssh.private_openssh(), self.tls.pkcs8_pem());
        of.with_keys(&of.name, &ssh, &answer.ssh_certificate, &tls, &answer.tls_certificate_pem)
    }
}

pub(crate) async fn challenge(login: &mut LoginClient<Channel>) -> Vec<u8> {
    let asked = login.device_challenge(v1::DeviceChallengeRequest {}).await;
    asked.unwrap().into_inner().challenge.to_vec()
}

impl Machine {
    pub(super) fn new() -> Self {
        Self { key: MemoryKey::generate(DEVICE_KEY).unwrap(), id: String::new() }
    }

    fn enrolment(
        &self,
        user: &str,
        custody: DeviceCustody,
        token: &str,
        challenge: &[u8],
    ) -> v1::EnrollDeviceRequest {
        let user = UserName::new(user).unwrap();
        let act = DeviceAct::Enroll { user: &user, custody, token };
        v1::EnrollDeviceRequest {
            challenge: challenge.to_vec().into(),
            public_key: sallyport_sal::Signer::public_key(&self.key).spki_der().into(),
            signature: act.sign(&self.key, CLUSTER, challenge).unwrap().into(),
            custody: custody.as_str().to_owned(),
            token: token.to_owned(),
            name: "laptop\u{1b}[31m".to_owned(),
            os: "Debian".to_owned(),
            serial: "0815".to_owned(),
        }
    }

    pub(crate) async fn enroll(
        &mut self,
        user: &User,
        custody: DeviceCustody,
        token: &str,
    ) -> Result<v1::Device, Status> {
        let channel = user.authority().await;
        let challenge = challenge(&mut LoginClient::new(channel.clone())).await;
        let request = self.enrolment(&user.name, custody, token, &challenge);
        let device = DevicesClient::new(channel).enroll(request).await?.into_inner().device.unwrap();
        self.id = device.id.clone();
        Ok(device)
    }

    fn word(&self, asked: &Asked, challenge: &[u8]) -> v1::DeviceProof {
        let device: DeviceId = self.id.parse().unwrap();
        let (ssh_public_key, tls_public_key) = (asked.ssh.public_line(), asked.tls.spki_der());
        let act = DeviceAct::LogIn { device, ssh_public_key, tls_public_key };
        let signature = act.sign(&self.key, CLUSTER, challenge).unwrap();
        v1::DeviceProof {
            device: self.id.clone(),
            challenge: challenge.to_vec().into(),
            signature: signature.into(),
        }
    }

    /// A login from this machine.
    pub(super) async fn log_in(&self, bench: &Bench<'_>, user: &User) -> Result<User, Status> {
        let (mut login, asked) = (bench.login().await, Asked::new());
        let word = self.word(&asked, &challenge(&mut login).await);
        let answer = login.login_with_password(asked.request(&user.name, Some(word))).await?.into_inner();
        Ok(asked.user(user, answer))
    }
}

pub(crate) async fn admin_devices(cluster: &Cluster) -> DevicesClient<Channel> {
    DevicesClient::new(admin_channel(&cluster.data_dir()).await)
}

pub(super) async fn token(cluster: &Cluster, users: &[&str], hardware: bool) -> String {
    let users = users.iter().map(|user| (*user).to_owned()).collect();
    let request = v1::AddDeviceTokenRequest { users, hardware, ttl: None };
    admin_devices(cluster).await.add_token(request).await.unwrap().into_inner().token
}

/// Has a user's role demand this of devices.
async fn demand(cluster: &Cluster, user: &User, device_trust: &str) {
    let yaml = support::role(&format!("{}-role", user.name), &[&os_login()])
        .replace("spec:\n", &format!("spec:\n  options:\n    device_trust: {device_trust}\n"));
    let request = v1::CreateResourceRequest { yaml, replace: true };
    cluster.admin().await.create_resource(request).await.unwrap();
}

/// A cluster with a node, and devices with keys in files.
async fn with_a_node() -> Cluster {
    let cluster = Cluster::start(|config| {
        config.node = Some(node_section("web-1"));
        with_passkeys(config);
        file_keys(config);
    })
    .await;
    cluster.running.ready(PATIENCE).await.unwrap();
    cluster
}

/// Each method once, as those who may.
pub(crate) async fn as_people(cluster: &Cluster) {
    let zoe = cluster.user("zoe", &["root"]).await;
    let mut desk = Machine::new();
    desk.enroll(&zoe, DeviceCustody::Hardware, "").await.unwrap();
    let own = DevicesClient::new(zoe.authority().await).list_own(v1::ListOwnDevicesRequest {}).await;
    let own = own.unwrap().into_inner();
    assert_eq!((own.devices.len(), own.current.as_str()), (1, ""));
    let mut admin = admin_devices(cluster).await;
    token(cluster, &["zoe"], true).await;
    let listed = admin.list(v1::ListDevicesRequest {}).await.unwrap().into_inner();
    assert_eq!((listed.devices.len(), listed.tokens.len()), (1, 1));
    let assign = v1::AssignDeviceRequest { id: desk.id.clone(), ..Default::default() };
    admin.assign(assign).await.unwrap();
    let removed = admin.remove(v1::RemoveDeviceRequest { what: Some(What::Device(desk.id)) }).await;
    assert!(removed.unwrap().into_inner().lock.starts_with("removed-device-"));
}

fn device_of(user: &User) -> Option<Device> {
    let by_ssh = sallyport_ca::device_in(&user.ssh_certificate);
    let chain = tokio_rustls::rustls::pki_types::pem::PemObject::from_pem_slice(user.tls_chain.as_bytes());
    let leaf: tokio_rustls::rustls::pki_types::CertificateDer<'_> = chain.unwrap();
    let by_tls = user.trust.identify_tls(&leaf, OffsetDateTime::now_utc()).unwrap().device;
    assert_eq!(by_ssh, by_tls);
    by_ssh
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_lets_in_from_an_enrolled_device_alone() {
    let cluster = with_a_node().await;
    let bench = Bench::at(&cluster).await;
    let login = os_login();
    let alice = cluster.user("alice", &[&login]).await;
    let mut laptop = Machine::new();
    let enrolled =
        laptop.enroll(&alice, DeviceCustody::File, &token(&cluster, &["alice"], false).await).await.unwrap();
    assert_eq!((enrolled.state.as_str(), enrolled.custody.as_str()), ("enrolled", "file"));
    assert_eq!(enrolled.name, "laptop[31m", "what would act on a terminal is not kept");

    let from_laptop = laptop.log_in(&bench, &alice).await.unwrap();
    assert_eq!(device_of(&alice), None);
    let id = laptop.id.parse().unwrap();
    assert_eq!(device_of(&from_laptop), Some(Device { id, custody: DeviceCustody::File }));
    let events = bench.events("SP1000I", "alice").await;
    assert_eq!(events.last().unwrap()["fields"]["device"], laptop.id.as_str());
    assert_eq!(events.last().unwrap()["fields"]["device_custody"], "file");

    demand(&cluster, &alice, "required").await;
    support::until("the role to be known", || async {
        alice.open("web-1", &login).await.err().filter(|status| status.message().contains("trusted device"))
    })
    .await;
    let refused = alice.open("web-1", &login).await.err().unwrap();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    assert!(refused.message().contains("sallyport device enroll"), "it says what to do: {refused:?}");
    let (output, _, _) = from_laptop.run("web-1", &login, "echo in").await;
    assert_eq!(output, "in\n");

    demand(&cluster, &alice, "required-hardware").await;
    support::until("the role to be known", || async {
        let refused = from_laptop.open("web-1", &login).await.err();
        refused.filter(|status| status.message().contains("the key of this one is in a file"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_in_a_browser_comes_from_the_device_that_began_it() {
    let cluster = cluster_with(file_keys).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let mut key = bench.first_passkey(&alice).await;
    let mut laptop = Machine::new();
    laptop.enroll(&alice, DeviceCustody::File, &token(&cluster, &[], false).await).await.unwrap();
    let asked = Asked::new();
    let word = laptop.word(&asked, &challenge(&mut bench.login().await).await);
    let begun = bench.begin_from(PORT, &asked.ssh, &asked.tls, Some(word.clone())).await.unwrap();
    let code = code_of(&bench.prove(&begun, &mut key).await.unwrap());
    let answer = bench.finish(&begun, &code).await.unwrap().login.unwrap();
    assert_eq!(device_of(&asked.user(&alice, answer)).unwrap().id.to_string(), laptop.id);

    let again = bench.begin_from(PORT, &asked.ssh, &asked.tls, Some(word)).await.err().unwrap();
    assert!(is(&again, Code::PermissionDenied, "used already"), "{again:?}");
    let others = Asked::new();
    let word = laptop.word(&asked, &challenge(&mut bench.login().await).await);
    let moved = bench.begin_from(PORT, &others.ssh, &others.tls, Some(word)).await.err().unwrap();
    assert!(is(&moved, Code::PermissionDenied, "not enrolled"), "{moved:?}");

    // Removed while the person was at the page.
    let word = laptop.word(&asked, &challenge(&mut bench.login().await).await);
    let begun = bench.begin_from(PORT, &asked.ssh, &asked.tls, Some(word)).await.unwrap();
    let code = code_of(&bench.prove(&begun, &mut key).await.unwrap());
    let remove = v1::RemoveDeviceRequest { what: Some(What::Device(laptop.id.clone())) };
    admin_devices(&cluster).await.remove(remove).await.unwrap();
    let refused = bench.finish(&begun, &code).await.err().unwrap();
    assert!(is(&refused, Code::PermissionDenied, "not enrolled"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_admits_a_device_and_says_whose_it_is() {
    let cluster = cluster_with(file_keys).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let bob = cluster.user("bob", &["root"]).await;
    let mut desk = Machine::new();
    let asked = desk.enroll(&alice, DeviceCustody::File, "").await.unwrap();
    assert_eq!(asked.state, "pending");
    let refused = desk.log_in(&bench, &alice).await.err().unwrap();
    assert!(is(&refused, Code::PermissionDenied, "admin devices assign"), "{refused:?}");
    let mut admin = admin_devices(&cluster).await;
    let assign = |users: &[&str]| v1::AssignDeviceRequest {
        id: desk.id.clone(),
        users: users.iter().map(|user| (*user).to_owned()).collect(),
        ..Default::default()
    };
    admin.assign(assign(&[])).await.unwrap();
    let before = desk.log_in(&bench, &alice).await.unwrap();
    let refused = desk.log_in(&bench, &bob).await.err().unwrap();
    assert!(is(&refused, Code::PermissionDenied, "not one of bob's"), "{refused:?}");
    let failed = bench.events("SP1000W", "bob").await;
    assert_eq!(failed.last().unwrap()["message"], "a device of another user", "{failed:?}");
    let none = admin.assign(assign(&["nobody-there"])).await.unwrap_err();
    assert_eq!(none.code(), Code::NotFound);

    admin.assign(assign(&["alice", "bob"])).await.unwrap();
    desk.log_in(&bench, &bob).await.unwrap();
    DevicesClient::new(before.authority().await).list_own(v1::ListOwnDevicesRequest {}).await.unwrap();
    // Who is taken off it is out, with what came from it; other logins stay.
    admin.assign(assign(&["bob"])).await.unwrap();
    let listing = DevicesClient::new(before.authority().await).list_own(v1::ListOwnDevicesRequest {}).await;
    assert!(is(&listing.unwrap_err(), Code::PermissionDenied, "given to other users"));
    desk.log_in(&bench, &alice).await.err().unwrap();
    DevicesClient::new(alice.authority().await).list_own(v1::ListOwnDevicesRequest {}).await.unwrap();

    // Another of the name has none of it.
    let delete = v1::DeleteResourceRequest { kind: "user".to_owned(), name: "bob".to_owned() };
    cluster.admin().await.delete_resource(delete).await.unwrap();
    let listed = admin.list(v1::ListDevicesRequest {}).await.unwrap().into_inner();
    assert!(listed.devices.is_empty(), "{listed:?}");
}

/// Whose a device is, is a change of that user's: it takes the right to such changes, and no less than the user holds.
#[tokio::test(flavor = "multi_thread")]
async fn a_device_is_given_to_no_user_by_those_who_may_not_change_that_user() {
    let cluster = cluster_with(file_keys).await;
    let desk_role = |rules: &str| {
        format!(
            "kind: role\nversion: v1\nmetadata: {{name: desk-role}}\nspec: {{allow: {{rules: [{rules}], logins: [desk]}}}}\n"
        )
    };
    let put = async |yaml: String| {
        let request = v1::CreateResourceRequest { yaml, replace: true };
        cluster.admin().await.create_resource(request).await.unwrap();
    };
    let desk = cluster.user("desk", &["desk"]).await;
    let (alice, mut laptop) = (cluster.user("alice", &["root"]).await, Machine::new());
    cluster.user("intern", &[]).await;
    put("kind: role\nversion: v1\nmetadata: {name: intern-role}\nspec: {}\n".to_owned()).await;
    laptop.enroll(&alice, DeviceCustody::File, "").await.unwrap();
    let assign = async |users: &[&str]| {
        let users = users.iter().map(|user| (*user).to_owned()).collect();
        let request = v1::AssignDeviceRequest { id: laptop.id.clone(), users, ..Default::default() };
        DevicesClient::new(desk.authority().await).assign(request).await.map(drop)
    };
    let token = async |users: &[&str]| {
        let users = users.iter().map(|user| (*user).to_owned()).collect();
        let request = v1::AddDeviceTokenRequest { users, hardware: false, ttl: None };
        DevicesClient::new(desk.authority().await).add_token(request).await.map(drop)
    };
    let denied = |outcome: Result<(), Status>, part: &str| {
        let status = outcome.unwrap_err();
        assert!(is(&status, Code::PermissionDenied, part), "{part}: {status:?}");
    };
    put(desk_role("{resources: [device], verbs: ['*']}")).await;
    // What waits is admitted, for the user who has shown it, and tokens are made that are one user's.
    assign(&[]).await.unwrap();
    token(&["alice"]).await.unwrap();
    token(&[]).await.unwrap();
    denied(assign(&["alice", "intern"]).await, "update user");
    denied(assign(&["desk"]).await, "update user");
    denied(token(&["desk", "intern"]).await, "update user");
    put(desk_role("{resources: [device], verbs: ['*']}, {resources: [user], verbs: [update]}")).await;
    assign(&["intern"]).await.unwrap();
    token(&["desk", "intern"]).await.unwrap();
    // Alice has more than the desk has.
    denied(assign(&["alice"]).await, "alice");
    denied(token(&["desk", "alice"]).await, "alice");
    let events = support::events(&mut cluster.admin().await, "SP3001W").await;
    for method in ["Devices.Assign", "Devices.AddToken"] {
        let refused =
            events.iter().filter(|event| event["fields"]["method"] == method && event["user"] == "desk");
        assert!(refused.count() >= 2, "{method}: {events:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn attacks_a_token_enrolls_one_device_of_those_it_was_made_for() {
    let cluster = cluster_with(file_keys).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let bob = cluster.user("bob", &["root"]).await;
    let mut machine = Machine::new();
    let for_alice = token(&cluster, &["alice"], false).await;
    let refused = machine.enroll(&bob, DeviceCustody::File, &for_alice).await.unwrap_err();
    assert!(is(&refused, Code::PermissionDenied, "other users than bob"), "{refused:?}");
    // Many at once: one has it.
    let mut machines: Vec<Machine> = (0..8).map(|_| Machine::new()).collect();
    let each = machines.iter_mut().map(|machine| machine.enroll(&alice, DeviceCustody::File, &for_alice));
    let outcomes = futures::future::join_all(each).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    for bad in [for_alice.as_str(), "", "short", "guessedguessedguessedguessedgues", "../../../etc/passwd"] {
        let refused = machine.enroll(&alice, DeviceCustody::File, bad).await;
        match bad {
            "" => assert_eq!(refused.unwrap().state, "pending"),
            _ => assert!(is(&refused.unwrap_err(), Code::PermissionDenied, "not good"), "{bad}"),
        }
    }
    let ended = token(&cluster, &[], false).await;
    let name = ended.get(..8).unwrap().to_owned();
    let end = v1::RemoveDeviceRequest { what: Some(What::Token(name)) };
    admin_devices(&cluster).await.remove(end).await.unwrap();
    machine.enroll(&alice, DeviceCustody::File, &ended).await.unwrap_err();

    // For hardware alone: what the program says is signed, so that nothing on the way says another thing.
    let hardware = token(&cluster, &[], true).await;
    let refused = machine.enroll(&alice, DeviceCustody::File, &hardware).await.unwrap_err();
    assert!(is(&refused, Code::FailedPrecondition, "hardware"), "{refused:?}");
    let channel = alice.authority().await;
    let fresh = challenge(&mut LoginClient::new(channel.clone())).await;
    let said = machine.enrolment("alice", DeviceCustody::File, &hardware, &fresh);
    let altered = v1::EnrollDeviceRequest { custody: "hardware".to_owned(), ..said };
    let refused = DevicesClient::new(channel.clone()).enroll(altered).await.unwrap_err();
    assert!(is(&refused, Code::PermissionDenied, "does not prove its key"), "{refused:?}");
    // A key that its holder does not have, and an enrolment that was heard.
    let (mut thief, fresh) = (Machine::new(), challenge(&mut LoginClient::new(channel.clone())).await);
    let own = thief.enrolment("alice", DeviceCustody::Hardware, &hardware, &fresh);
    let public_key = machine.enrolment("alice", DeviceCustody::File, "", &fresh).public_key;
    let stolen = v1::EnrollDeviceRequest { public_key, ..own.clone() };
    DevicesClient::new(channel.clone()).enroll(stolen).await.unwrap_err();
    DevicesClient::new(channel.clone()).enroll(own.clone()).await.unwrap();
    let again = DevicesClient::new(channel).enroll(own).await.unwrap_err();
    assert_eq!(again.code(), Code::PermissionDenied, "{again:?}");
    assert!(!bench.events("SP1070W", "alice").await.is_empty());

    for _ in 0..2 {
        thief.enroll(&alice, DeviceCustody::File, "").await.unwrap();
    }
    let many = thief.enroll(&alice, DeviceCustody::File, "").await.unwrap_err();
    assert_eq!(many.code(), Code::ResourceExhausted, "{many:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn attacks_a_devices_word_is_good_once_and_for_the_login_that_it_was_given_for() {
    let cluster = cluster_with(file_keys).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let bob = cluster.user("bob", &["root"]).await;
    let mut laptop = Machine::new();
    laptop.enroll(&alice, DeviceCustody::File, &token(&cluster, &["alice"], false).await).await.unwrap();
    let (mut login, asked) = (bench.login().await, Asked::new());
    let fresh = challenge(&mut login).await;
    let word = laptop.word(&asked, &fresh);
    let log_in = async |request: v1::LoginRequest| bench.login().await.login_with_password(request).await;

    // Over other keys, by another key, of another device, with a challenge of the caller's own.
    log_in(Asked::new().request("alice", Some(word.clone()))).await.unwrap_err();
    let copied = Machine { key: MemoryKey::generate(DEVICE_KEY).unwrap(), id: laptop.id.clone() };
    log_in(asked.request("alice", Some(copied.word(&asked, &fresh)))).await.unwrap_err();
    let unknown = Machine { key: MemoryKey::generate(DEVICE_KEY).unwrap(), id: DeviceId::new().to_string() };
    let refused = log_in(asked.request("alice", Some(unknown.word(&asked, &fresh)))).await.unwrap_err();
    assert!(is(&refused, Code::PermissionDenied, "not enrolled"), "{refused:?}");
    for made in [vec![0; fresh.len()], Vec::new(), b"challenge".to_vec()] {
        let refused = log_in(asked.request("alice", Some(laptop.word(&asked, &made)))).await.unwrap_err();
        assert!(is(&refused, Code::FailedPrecondition, "over"), "{refused:?}");
    }
    // By another person: that it is alice's device opens nothing for bob.
    log_in(asked.request(&bob.name, Some(word.clone()))).await.unwrap_err();
    // None of it has used it up: what it was given for, it opens, and once.
    let both =
        futures::future::join_all((0..4).map(|_| log_in(asked.request("alice", Some(word.clone()))))).await;
    assert_eq!(both.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{both:?}");
    let again = log_in(asked.request("alice", Some(word))).await.unwrap_err();
    assert!(is(&again, Code::PermissionDenied, "used already"), "{again:?}");
    // A device that is not shown is none, whatever else is right.
    let without = log_in(asked.request("alice", None)).await.unwrap().into_inner();
    assert_eq!(device_of(&asked.user(&alice, without)), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_in_files_are_refused_by_default_and_when_they_are_not_allowed_any_more() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let mut laptop = Machine::new();
    let asked = token(&cluster, &[], false).await;
    let refused = laptop.enroll(&alice, DeviceCustody::File, &asked).await.unwrap_err();
    assert!(is(&refused, Code::FailedPrecondition, "allow_file_keys"), "{refused:?}");
    // What is said to be in hardware is taken: the token was not spent by what was refused.
    laptop.enroll(&alice, DeviceCustody::Hardware, &asked).await.unwrap();
    let device = device_of(&laptop.log_in(&bench, &alice).await.unwrap()).unwrap();
    assert_eq!(device.custody, DeviceCustody::Hardware);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_is_locked_or_removed_ends_what_it_logged_in_to() {
    let cluster = with_a_node().await;
    let bench = Bench::at(&cluster).await;
    let login = os_login();
    let alice = cluster.user("alice", &[&login]).await;
    for removed in [false, true] {
        let mut laptop = Machine::new();
        laptop.enroll(&alice, DeviceCustody::File, &token(&cluster, &[], false).await).await.unwrap();
        let from_laptop = laptop.log_in(&bench, &alice).await.unwrap();
        let (theirs, other) = (from_laptop.ssh("web-1", &login).await, alice.ssh("web-1", &login).await);
        let mut running = theirs.start(SessionRequest::exec("echo ready; sleep 60")).await.unwrap();
        while running.next().await != Some(Output::Stdout("ready\n".into())) {}
        if removed {
            let remove = v1::RemoveDeviceRequest { what: Some(What::Device(laptop.id.clone())) };
            admin_devices(&cluster).await.remove(remove).await.unwrap();
        } else {
            let yaml = format!(
                "kind: lock\nversion: v1\nmetadata: {{name: lost}}\nspec: {{target: {{device: {}}}, message: it was lost}}\n",
                laptop.id
            );
            let request = v1::CreateResourceRequest { yaml, replace: false };
            cluster.admin().await.create_resource(request).await.unwrap();
        }
        let ended = tokio::time::timeout(PATIENCE, async {
            while let Some(output) = running.next().await {
                if let Output::Exit(exit) = output {
                    return Some(exit);
                }
            }
            None
        });
        assert!(!matches!(ended.await.expect("the session is cut"), Some(Exit::Status(0))));
        assert_eq!(support::exec(&other, "echo still here").await.0, "still here\n");
        let refused = from_laptop.open("web-1", &login).await.err().unwrap();
        assert!(refused.message().contains("device"), "{refused:?}");
        // What is removed has no open login any more; what is locked has, for when it is found again.
        let listed = LoginsClient::new(alice.authority().await).list(v1::ListLoginsRequest::default()).await;
        let open = listed.unwrap().into_inner().logins;
        assert_eq!(open.iter().filter(|login| !login.current).count(), usize::from(!removed), "{open:?}");
        if !removed {
            let which = Some(v1::end_logins_request::Which::Others(true));
            let mut logins = LoginsClient::new(alice.authority().await);
            logins.end(v1::EndLoginsRequest { which }).await.unwrap();
        }
        let refused = laptop.log_in(&bench, &alice).await.err().unwrap();
        let why = if removed { "not enrolled" } else { "it was lost" };
        assert!(is(&refused, Code::PermissionDenied, why), "{refused:?}");
    }
    let missing = v1::RemoveDeviceRequest { what: Some(What::Device(DeviceId::new().to_string())) };
    let missing = admin_devices(&cluster).await.remove(missing).await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_a_device_are_signed_anew_for_that_device_alone() {
    let cluster = cluster_with(file_keys).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let mut laptop = Machine::new();
    laptop.enroll(&alice, DeviceCustody::File, &token(&cluster, &[], false).await).await.unwrap();
    let mut from_laptop = laptop.log_in(&bench, &alice).await.unwrap();
    assert!(!from_laptop.follow().await.unwrap(), "nothing is to be signed anew, and no word is asked for");
    let mut rotation =
        sallyport_wire::v1::rotation_client::RotationClient::new(admin_channel(&cluster.data_dir()).await);
    for phase in ["init", "update_clients"] {
        let step = Some(v1::rotate_ca_request::Step::Phase(phase.to_owned()));
        let rotate = v1::RotateCaRequest { kind: "user".to_owned(), step, force: true };
        rotation.rotate_ca(rotate).await.unwrap();
    }
    let refused = from_laptop.follow().await.unwrap_err();
    assert!(is(&refused, Code::PermissionDenied, "has to sign"), "{refused:?}");
    let channel = from_laptop.authority().await;
    let fresh = challenge(&mut LoginClient::new(channel.clone())).await;
    let asked = from_laptop.certificates();
    let word = |key: &MemoryKey, ssh_certificate: &str| {
        let device = laptop.id.parse().unwrap();
        let tls_certificate_pem = &asked.tls_certificate_pem;
        let act = DeviceAct::Renew { device, ssh_certificate, tls_certificate_pem };
        Some(v1::DeviceProof {
            device: laptop.id.clone(),
            challenge: fresh.clone().into(),
            signature: act.sign(key, CLUSTER, &fresh).unwrap().into(),
        })
    };
    let thief = MemoryKey::generate(DEVICE_KEY).unwrap();
    let mut follower = sallyport_wire::v1::rotation_client::RotationClient::new(channel);
    for bad in [word(&thief, &asked.ssh_certificate), word(&laptop.key, "another")] {
        follower.follow(v1::FollowRequest { device: bad, ..asked.clone() }).await.unwrap_err();
    }
    let device = word(&laptop.key, &asked.ssh_certificate);
    let answer = follower.follow(v1::FollowRequest { device, ..asked.clone() }).await.unwrap().into_inner();
    let id = laptop.id.parse().unwrap();
    let kept = Some(Device { id, custody: DeviceCustody::File });
    assert_eq!(sallyport_ca::device_in(&answer.ssh_certificate), kept);
}
