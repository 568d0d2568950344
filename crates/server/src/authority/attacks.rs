//! Attacks that need what no client can choose: the end of a certificate, the time between a decision and the write that
//! follows from it, the state of an earlier release, or threads that are busy.

mod hashes;
mod rules;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use sallyport_access::{
    Bounds, HostId, HostRole, Identity, Labels, NodeName, Principal, RecordPolicy, RoleName, SessionId,
    UserName,
};
use sallyport_audit::recording::{Exit, Recorders, SessionMetadata};
use sallyport_ca::SKEW_ALLOWANCE;
use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_sal::{Suite, totp};
use sallyport_wire::v1;
use sallyport_wire::v1::admin_server::Admin as _;
use sallyport_wire::v1::cluster_server::Cluster as _;
use sallyport_wire::v1::fleet_server::Fleet as _;
use sallyport_wire::v1::login_server::Login as _;
use time::OffsetDateTime;
use tonic::{Code, Request, Status};
use uuid::Uuid;

use super::api::login;
use super::caller::{Caller, NOWHERE};
use super::challenges::changes::Own;
use super::records::{CaAttemptRecord, CredentialRecord, HostRecord, InviteRecord, NodeRecord};
use super::secrets::hash_of;
use super::services::Services;
use super::storage::PAGE;
use super::streams::Line;
use super::{AuthConfig, Authority};
use crate::dialling::PeerInfo;

const PASSWORD: &str = "correct horse battery staple";
/// Generous: the machine that runs the tests may have other things to do.
const PATIENCE: Duration = Duration::from_secs(20);

async fn open(directory: &Path) -> Authority {
    let config = AuthConfig::of_tests(directory.to_owned());
    Authority::open(config, OffsetDateTime::now_utc()).await.unwrap()
}

/// A request of the operator's.
fn local<T>(message: T) -> Request<T> {
    by(message, &Caller::LocalAdmin, &Line::default())
}

fn by<T>(message: T, caller: &Caller, line: &Line) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(caller.clone());
    request.extensions_mut().insert(line.clone());
    request
}

/// A user with these roles; gives the link's token.
async fn create(services: &Arc<Services>, name: &str, roles: &[&str]) -> String {
    let asked = v1::CreateUserRequest {
        name: name.to_owned(),
        roles: roles.iter().map(ToString::to_string).collect(),
        ..Default::default()
    };
    let made = services.api.admin.clone().create_user(local(asked)).await.unwrap();
    made.into_inner().token
}

async fn remove(services: &Arc<Services>, name: &str) {
    let asked = v1::DeleteResourceRequest { kind: "user".to_owned(), name: name.to_owned() };
    services.api.admin.clone().delete_resource(local(asked)).await.unwrap();
}

fn finish(token: &str) -> v1::FinishInviteRequest {
    v1::FinishInviteRequest { token: token.to_owned(), password: PASSWORD.to_owned(), otp: String::new() }
}

fn attempt(name: &str, password: &str) -> v1::LoginRequest {
    v1::LoginRequest {
        user: name.to_owned(),
        password: password.to_owned(),
        ssh_public_key: SshKeyPair::generate(Suite::BalancedV1, "x").unwrap().public_line().to_owned(),
        tls_public_key: TlsKey::generate(Suite::BalancedV1).unwrap().spki_der().to_vec().into(),
        ..Default::default()
    }
}

async fn until(what: &str, mut ask: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !ask() {
        assert!(tokio::time::Instant::now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What `call` is answered when the user is removed, and another of the name is made, while its password is being hashed:
/// after everything was decided, and before anything is written.
async fn overtaken<T, F>(
    services: &Arc<Services>,
    call: impl FnOnce(login::Service) -> F,
) -> Result<T, Status>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Status>> + Send + 'static,
{
    let held = services.accounts.passwords().hold().await.unwrap();
    let calling = tokio::spawn(call(services.api.login.clone()));
    until("the call to come to the password", || services.accounts.passwords().inside() == 1).await;
    remove(services, "alice").await;
    create(services, "alice", &["editor"]).await;
    drop(held);
    calling.await.unwrap()
}

/// Recovery codes are ten slow hashes, and nothing is held meanwhile: a reset that comes while they are made voids them.
#[tokio::test(flavor = "multi_thread")]
async fn a_reset_voids_recovery_codes_that_are_being_made() {
    use v1::factor_proof::Proof;
    let directory = tempfile::tempdir().unwrap();
    let authority = open(directory.path()).await;
    let services = &authority.services;
    let token = create(services, "alice", &["access"]).await;
    services.api.login.clone().finish_invite(Request::new(finish(&token))).await.unwrap();
    let challenges = Arc::clone(&services.api.factors.challenges);
    let own = Own { user: UserName::new("alice").unwrap(), login: Uuid::new_v4() };
    let proven = |proof| Some(v1::FactorProof { proof: Some(proof) });
    let phone = v1::FactorToAdd { kind: "totp".to_owned(), name: "phone".to_owned() };
    let request = v1::BeginAddFactorRequest {
        factor: Some(phone),
        proof: proven(Proof::Password(PASSWORD.to_owned())),
        host_name: String::new(),
    };
    let begun = challenges.begin_add(&Caller::LocalAdmin, &own, request).await.unwrap();
    let secret = begun.otp_uri.split_once("secret=").unwrap().1.split('&').next().unwrap();
    let secret = totp::Secret::from_base32(secret).unwrap();
    let now = OffsetDateTime::now_utc();
    let challenge = begun.page.unwrap().challenge;
    let request = v1::FinishAddFactorRequest { challenge, otp: secret.code(now) };
    challenges.finish_add(&Caller::LocalAdmin, &own, request).await.unwrap();

    let held = services.accounts.passwords().hold().await.unwrap();
    let next = secret.code(now + Duration::from_secs(totp::STEP_SECONDS));
    let (making, by) = (Arc::clone(&challenges), own.clone());
    let making = tokio::spawn(async move {
        making.make_recovery_codes(&Caller::LocalAdmin, &by, proven(Proof::Otp(next))).await
    });
    until("the first code to be hashed", || services.accounts.passwords().inside() == 1).await;
    let reset = v1::ResetUserRequest { name: "alice".to_owned() };
    services.api.admin.clone().reset_user(local(reset)).await.unwrap();
    drop(held);
    let voided = making.await.unwrap().unwrap_err();
    assert_eq!(voided.code(), Code::PermissionDenied, "{voided:?}");
    assert!(voided.message().contains("credentials were reset"), "{voided:?}");
    let asked = v1::SearchEventsRequest { code: "SP1012I".to_owned(), ..Default::default() };
    let mut made = services.api.admin.clone().search_events(local(asked)).await.unwrap().into_inner();
    assert!(made.next().await.is_none(), "no codes are on record");
}

async fn credential(services: &Services) -> Option<CredentialRecord> {
    let found = services.store.get::<CredentialRecord>("alice", OffsetDateTime::now_utc()).await.unwrap();
    found.map(|found| found.value)
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_removed_user_is_written_for_another_of_the_name() {
    let directory = tempfile::tempdir().unwrap();
    let authority = open(directory.path()).await;
    let services = &authority.services;
    // A link that is being finished.
    let token = create(services, "alice", &["access"]).await;
    let finished =
        overtaken(services, |login| async move { login.finish_invite(Request::new(finish(&token))).await })
            .await;
    let status = finished.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    assert!(
        credential(services).await.is_none_or(|it| it.password.is_none()),
        "the old password opens the new account"
    );

    // A right login, which would be the new user's.
    remove(services, "alice").await;
    let token = create(services, "alice", &["access"]).await;
    services.api.login.clone().finish_invite(Request::new(finish(&token))).await.unwrap();
    let right = attempt("alice", PASSWORD);
    let logged_in =
        overtaken(services, |login| async move { login.login_with_password(Request::new(right)).await })
            .await;
    let status = logged_in.unwrap_err();
    assert!(matches!(status.code(), Code::Aborted | Code::Unauthenticated), "{status:?}");
    authority.shutdown().await;
}

/// Makes a user of a document.
async fn write(services: &Arc<Services>, name: &str, role: &str) {
    let yaml = format!(
        "kind: user\nversion: v1\nmetadata: {{name: {name}}}\nspec: {{roles: [{role}], traits: {{}}}}\n"
    );
    let asked = v1::CreateResourceRequest { yaml, replace: false };
    services.api.admin.clone().create_resource(local(asked)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_time_codes_of_an_earlier_release_become_a_factor_and_stay_used() {
    let directory = tempfile::tempdir().unwrap();
    let authority = open(directory.path()).await;
    let (services, login) = (&authority.services, authority.services.api.login.clone());
    let token = create(services, "alice", &["access"]).await;
    login.finish_invite(Request::new(finish(&token))).await.unwrap();
    // As an earlier release kept them: with the password, a code of this moment used.
    let (alice, now) = (UserName::new("alice").unwrap(), OffsetDateTime::now_utc());
    let secret = sallyport_sal::totp::Secret::generate().unwrap();
    let step = secret.verify(&secret.code(now), now, None).unwrap();
    let former = CredentialRecord {
        totp_sealed: Some(services.accounts.factors().seal_totp(&alice, &secret).unwrap()),
        last_step: Some(step),
        ..credential(services).await.unwrap()
    };
    services.store.put("alice", &former, None, now).await.unwrap();
    let coded = |code: String| {
        let asked = v1::LoginRequest { otp: code, ..attempt("alice", PASSWORD) };
        let login = login.clone();
        async move { login.login_with_password(Request::new(asked)).await }
    };
    for wrong in [String::new(), secret.code(now)] {
        let status = coded(wrong).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{status:?}");
    }
    coded(secret.code(now + time::Duration::seconds(30))).await.unwrap();
    let held = services.accounts.factors().held(&alice, now).await.unwrap();
    assert_eq!(held.factors.len(), 1);
    assert_eq!(credential(services).await.unwrap().totp_sealed, None);
    authority.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_user_has_nothing_that_one_of_the_name_has_left() {
    const LEFT: &str = "a link of before";
    let directory = tempfile::tempdir().unwrap();
    let authority = open(directory.path()).await;
    let (services, login) = (&authority.services, authority.services.api.login.clone());
    let token = create(services, "alice", &["access"]).await;
    login.finish_invite(Request::new(finish(&token))).await.unwrap();
    login.login_with_password(Request::new(attempt("alice", PASSWORD))).await.unwrap();
    let password = credential(services).await.unwrap();
    for by_document in [false, true] {
        remove(services, "alice").await;
        // As an earlier release left them: a password, and a link that does not say for which user of the name it was made.
        let now = OffsetDateTime::now_utc();
        services.store.put("alice", &password, None, now).await.unwrap();
        let link = InviteRecord {
            user: UserName::new("alice").unwrap(),
            totp_sealed: None,
            expires: now + time::Duration::HOUR,
            used: false,
            user_revision: None,
            passkey: None,
        };
        services.store.put(&hash_of(LEFT), &link, None, now).await.unwrap();
        if by_document {
            write(services, "alice", "editor").await;
        } else {
            create(services, "alice", &["editor"]).await;
        }
        let entered = login.login_with_password(Request::new(attempt("alice", PASSWORD))).await.map(drop);
        let status = entered.expect_err("the old password opens the new account");
        assert_eq!(status.code(), Code::Unauthenticated, "{status:?}");
        let finished = login.finish_invite(Request::new(finish(LEFT))).await;
        let status = finished.expect_err("the old link opens the new account");
        assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    }
    authority.shutdown().await;
}

/// A user with a certificate that is accepted until then.
fn until_then(name: &str, roles: &[&str], then: OffsetDateTime) -> Caller {
    let identity = Identity {
        principal: Principal::User {
            name: UserName::new(name).unwrap(),
            roles: roles.iter().map(|role| RoleName::new(*role).unwrap()).collect(),
            logins: Vec::new(),
            traits: BTreeMap::new(),
        },
        login_id: Uuid::new_v4(),
        device: None,
        pinned_to: None,
        valid_after: then - time::Duration::hours(1),
        valid_before: then - SKEW_ALLOWANCE,
    };
    Caller::Certified { identity: Arc::new(identity), from: PeerInfo::direct(NOWHERE) }
}

/// A whole recording of alice's, by its id.
async fn recorded(services: &Services, directory: &Path) -> SessionId {
    let key = services.issuance.authorities().trust().recording_key().unwrap();
    let recorders = Recorders::open(directory, key).unwrap();
    let session = SessionId::new();
    let metadata = SessionMetadata {
        session_id: session,
        cluster: "test.example".to_owned(),
        user: "alice".to_owned(),
        login: "alice".to_owned(),
        node: "web-1".to_owned(),
        node_id: String::new(),
        source: String::new(),
        started: OffsetDateTime::now_utc(),
        kind: "exec".to_owned(),
        command: None,
        term: None,
        size: None,
        application: None,
    };
    let recorder = recorders.start(&metadata, RecordPolicy::Strict).unwrap();
    recorder.output("hello\n".into()).await.unwrap();
    recorder.finish(Exit::Status(0)).await.unwrap();
    until("the recording", || !recorders.is_live(&session)).await;
    let bytes = std::fs::read(directory.join(format!("{session}.rec"))).unwrap();
    services.recordings.store().append(session, "web-1", 0, &bytes).unwrap();
    session
}

/// How a stream ends; it must not be before the certificate does, and at once when it does.
async fn ends_at<S, T>(what: &str, mut stream: S, then: OffsetDateTime)
where
    S: futures::Stream<Item = Result<T, Status>> + Unpin,
{
    let reading = async {
        loop {
            match stream.next().await {
                Some(Ok(_)) => {}
                Some(Err(status)) => return status,
                None => panic!("{what} ended as if there were nothing more"),
            }
        }
    };
    let status = tokio::time::timeout(PATIENCE, reading).await.unwrap_or_else(|_| panic!("{what} goes on"));
    let late = OffsetDateTime::now_utc() - then;
    assert_eq!(status.code(), Code::Unauthenticated, "{what}: {status:?}");
    println!("{what} ended {} ms after the certificate", late.whole_milliseconds());
    assert!(!late.is_negative() && late < time::Duration::seconds(5), "{what}: {late}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_with_the_certificate_that_it_was_asked_for_with() {
    const ROLES: [&str; 2] = ["auditor", "editor"];
    let directory = tempfile::tempdir().unwrap();
    let authority = open(&directory.path().join("cluster")).await;
    let services = &authority.services;
    create(services, "alice", &ROLES).await;
    let session = recorded(services, &directory.path().join("spool")).await.to_string();
    let (admin, cluster, hosts_api) =
        (services.api.admin.clone(), services.api.cluster.clone(), services.api.hosts.clone());
    let then = OffsetDateTime::now_utc() + Duration::from_secs(2);
    let alice = until_then("alice", &ROLES, then);
    let follow = || v1::SearchEventsRequest { follow: true, ..Default::default() };
    let play = || v1::PlayRecordingRequest { session_id: session.clone(), from: None };
    let watch = || v1::WatchRequest { kinds: vec!["role".to_owned()] };
    let line = Line::default();
    let following = admin.search_events(by(follow(), &alice, &line)).await.unwrap().into_inner();
    let watching = hosts_api.watch(by(watch(), &alice, &line)).await.unwrap().into_inner();
    // Two streams that the client does not read: the authority closes their connections.
    let unread = (Line::default(), Line::default());
    let mut playing = cluster.play_recording(by(play(), &alice, &unread.0)).await.unwrap().into_inner();
    let stalled = admin.search_events(by(follow(), &alice, &unread.1)).await.unwrap().into_inner();
    assert!(OffsetDateTime::now_utc() < then, "else this shows nothing");
    let (cut_play, cut_follow) = (unread.0.cut(), unread.1.cut());
    let cut = async { tokio::join!(cut_play, cut_follow) };
    let (cut, ..) = tokio::join!(
        tokio::time::timeout(PATIENCE, cut),
        ends_at("a log that is followed", following, then),
        ends_at("a watch", watching, then)
    );
    cut.expect("connections whose peer reads nothing are closed");
    assert!(OffsetDateTime::now_utc() - then < time::Duration::seconds(5));
    // Nothing of the recording is left for who comes back to read.
    let told = playing.next().await.unwrap().unwrap_err();
    assert_eq!(told.code(), Code::Unauthenticated, "{told:?}");
    drop(stalled);
    // And none begins.
    for status in [
        admin.search_events(by(follow(), &alice, &line)).await.err(),
        cluster.play_recording(by(play(), &alice, &line)).await.err(),
        hosts_api.watch(by(watch(), &alice, &line)).await.err(),
    ] {
        assert_eq!(status.unwrap().code(), Code::Unauthenticated);
    }
    authority.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_beyond_the_first_page_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let authority = open(directory.path()).await;
    let (services, now) = (&authority.services, OffsetDateTime::now_utc());
    let many = 3 * PAGE + 1;
    // Keys of rotations that did not happen.
    for number in 0..many {
        let note = CaAttemptRecord { labels: vec![format!("no such key {number}")] };
        services.store.create(&format!("attempt-{number}"), &note, None, now).await.unwrap();
    }
    services.rotations.clear_attempts(&services.issuance.authorities()).await;
    assert!(services.store.list::<CaAttemptRecord>(None, many, now).await.unwrap().is_empty());
    // Links of a user among those of others, and users of a role.
    for number in 0..many {
        create(services, &format!("user-{number}"), &["access"]).await;
    }
    let token = create(services, "zoe", &["access"]).await;
    let asked = v1::ResetUserRequest { name: "zoe".to_owned() };
    services.api.admin.clone().reset_user(local(asked)).await.unwrap();
    let status = services.api.login.clone().finish_invite(Request::new(finish(&token))).await;
    assert_eq!(
        status.unwrap_err().code(),
        Code::PermissionDenied,
        "the earlier link still opens the account"
    );
    let links = services.store.list::<InviteRecord>(None, 2 * many, now).await.unwrap();
    assert_eq!(links.len(), many + 1, "one link for each");
    let listed = v1::ListResourcesRequest { kind: "user".to_owned(), ..Default::default() };
    let listed = services.api.admin.clone().list_resources(local(listed)).await.unwrap();
    assert_eq!(listed.into_inner().resources.len(), many + 1);
    authority.shutdown().await;
}

/// A node as an earlier release stored it.
fn node_of_before(id: HostId, name: &str) -> (HostRecord, NodeRecord) {
    let host = HostRecord {
        id,
        name: NodeName::new(name).unwrap(),
        role: HostRole::Node,
        join_id: Uuid::new_v4(),
        in_process: false,
        labels: BTreeMap::new(),
        public_names: Vec::new(),
        bounds: Bounds::default(),
    };
    let node = NodeRecord {
        id,
        name: host.name.clone(),
        labels: Labels::default(),
        version: String::new(),
        os_user: String::new(),
        fixed: BTreeMap::new(),
        openssh: None,
        databases_end_to_end: false,
        kinds: Vec::new(),
    };
    (host, node)
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_that_share_a_name_from_before_are_told_of_until_one_has_it_alone() {
    let directory = tempfile::tempdir().unwrap();
    let authority = open(directory.path()).await;
    let now = OffsetDateTime::now_utc();
    let hosts = [HostId::new(), HostId::new()];
    for id in hosts {
        let (host, node) = node_of_before(id, "web-1");
        authority.services.store.create(&id.to_string(), &host, None, now).await.unwrap();
        authority.services.store.create(&id.to_string(), &node, None, now).await.unwrap();
    }
    authority.shutdown().await;

    let authority = open(directory.path()).await;
    let told = told_of_shared_names(&authority.services).await;
    let [told] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(told.node, "web-1");
    for id in hosts {
        assert!(
            told.message.contains(&id.to_string()) && told.message.contains("admin hosts rm"),
            "{told:?}"
        );
    }
    // Neither is meant by the name, and a lock by it is refused with both ids.
    let asked = v1::GetResourceRequest { kind: "node".to_owned(), name: "web-1".to_owned() };
    let admin = authority.services.api.admin.clone();
    let status = admin.get_resource(local(asked)).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
    let yaml = "kind: lock\nversion: v1\nmetadata: {name: away}\nspec: {target: {node: web-1}}\n".to_owned();
    let status =
        admin.create_resource(local(v1::CreateResourceRequest { yaml, replace: false })).await.unwrap_err();
    assert!(hosts.iter().all(|id| status.message().contains(&id.to_string())), "{status:?}");
    let [first, _] = hosts;
    let asked = v1::DeleteResourceRequest { kind: "node".to_owned(), name: first.to_string() };
    admin.delete_resource(local(asked)).await.unwrap();
    authority.shutdown().await;

    let authority = open(directory.path()).await;
    assert_eq!(told_of_shared_names(&authority.services).await.len(), 1, "it was told again");
    authority.shutdown().await;
}

/// What the log has of names that several hosts have.
async fn told_of_shared_names(services: &Arc<Services>) -> Vec<sallyport_audit::Event> {
    let asked = v1::SearchEventsRequest::default();
    let mut found = services.api.admin.clone().search_events(local(asked)).await.unwrap().into_inner();
    let mut told = Vec::new();
    while let Some(record) = found.next().await {
        let event = sallyport_audit::Event::from_json(&record.unwrap().event_json).unwrap();
        told.extend((event.code == sallyport_audit::Code::NameShared).then_some(event));
    }
    told
}

#[tokio::test]
async fn events_are_taken_apart_on_no_thread_that_serves_connections() {
    let directory = tempfile::tempdir().unwrap();
    let authority = open(directory.path()).await;
    let services = &authority.services;
    let now = OffsetDateTime::now_utc();
    let id = HostId::new();
    let (host, _) = node_of_before(id, "web-1");
    let revision = services.store.create(&id.to_string(), &host, None, now).await.unwrap();
    services.identities.put_host(&host, revision);
    let identity = Identity {
        principal: Principal::Host { id, name: host.name.clone(), role: HostRole::Node },
        login_id: host.join_id,
        device: None,
        pinned_to: None,
        valid_after: now,
        valid_before: now + Duration::from_secs(3600),
    };
    let web = Caller::Certified { identity: Arc::new(identity), from: PeerInfo::direct(NOWHERE) };
    // Every thread that reads has something to do, and this one, which serves all connections of the test, has not.
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = Arc::new(parking_lot::Mutex::new(held));
    let busy = Arc::new(AtomicUsize::new(0));
    let readers: Vec<_> = (0..super::open::READERS)
        .map(|_| {
            let (services, held, busy) = (Arc::clone(services), Arc::clone(&held), Arc::clone(&busy));
            let wait = move || {
                busy.fetch_add(1, Ordering::SeqCst);
                held.lock().recv().is_ok()
            };
            tokio::spawn(async move { services.api.hosts.reading.run(wait).await })
        })
        .collect();
    until("the readers", || busy.load(Ordering::SeqCst) == super::open::READERS).await;
    let event = sallyport_audit::Event::new(sallyport_audit::Code::SessionPortForward, now).to_json();
    let asked = v1::EmitEventsRequest { events_json: vec![event] };
    let hosts_api = services.api.hosts.clone();
    let emitting = hosts_api.emit_events(by(asked, &web, &Line::default()));
    tokio::pin!(emitting);
    let waits = tokio::time::timeout(Duration::from_millis(300), emitting.as_mut()).await;
    assert!(waits.is_err(), "the events were taken apart here: {waits:?}");
    drop(release);
    tokio::time::timeout(PATIENCE, emitting).await.unwrap().unwrap();
    for reader in readers {
        reader.await.unwrap().unwrap();
    }
    authority.shutdown().await;
}
