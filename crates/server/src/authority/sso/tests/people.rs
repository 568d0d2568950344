//! Whose a user is, and how long.

use sallyport_access::{DeviceCustody, DeviceId, UserName};
use sallyport_store::typed;
use sallyport_wire::v1;
use sallyport_wire::v1::admin_server::Admin as _;
use serde_json::json;
use tonic::Request;

use super::super::error::SsoError;
use super::*;
use crate::authority::devices::index;
use crate::authority::devices::records::{DeviceRecord, DeviceState};
use crate::authority::records::UserRecord;
use crate::authority::scim::admission::Unprovisioned;
use crate::authority::streams::Line;

pub(in crate::authority) fn local<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(Caller::LocalAdmin);
    request.extensions_mut().insert(Line::default());
    request
}

pub(super) fn name(text: &str) -> UserName {
    UserName::new(text).unwrap()
}

impl Site {
    pub(super) async fn user_stored(&self, called: &str) -> Option<sallyport_store::Stored<UserRecord>> {
        self.authority.services.store.get::<UserRecord>(called, now()).await.unwrap()
    }

    /// A login of a user that is open.
    pub(super) async fn opened_login(&self, called: &str) -> uuid::Uuid {
        let id = uuid::Uuid::new_v4();
        let until = now() + time::Duration::hours(1);
        let step = crate::authority::identities::logins::open_login(&name(called), id, until, None).unwrap();
        self.authority.services.store.backend().transact(vec![step], now()).await.unwrap();
        id
    }

    /// A device that waits to be admitted, as a login of a user has asked for it.
    async fn device_of(&self, called: &str, login: uuid::Uuid) -> String {
        let record = DeviceRecord {
            id: DeviceId::new(),
            public_key: String::new(),
            custody: DeviceCustody::File,
            users: vec![name(called)],
            state: DeviceState::Pending,
            name: "laptop".to_owned(),
            os: String::new(),
            serial: String::new(),
            enrolled: now(),
            enrolled_by: name(called),
            login: Some(login),
            last: None,
        };
        let id = record.id.to_string();
        let mut steps = vec![typed::create(&id, &record, None).unwrap()];
        steps.extend(index::written(None, &record).unwrap());
        self.authority.services.store.backend().transact(steps, now()).await.unwrap();
        id
    }

    async fn has_device(&self, id: &str) -> bool {
        self.authority.services.store.get::<DeviceRecord>(id, now()).await.unwrap().is_some()
    }

    pub(in crate::authority) fn login_ended(&self, id: uuid::Uuid) -> bool {
        let target = sallyport_access::LockTarget::LoginId(id);
        self.authority.services.policy.cache().locks.iter().any(|lock| lock.target == target)
    }

    pub(super) async fn person(
        &self,
        subject: &str,
        called: &str,
        groups: &[&str],
    ) -> Result<String, &'static str> {
        self.idp.says(super::person(subject, called, groups));
        self.log_in().await.map(|(admitted, _)| admitted.user.to_string())
    }

    pub(in crate::authority) async fn local_user(&self, name: &str) -> Result<(), tonic::Status> {
        let asked = v1::CreateUserRequest { name: name.to_owned(), ..Default::default() };
        self.authority.services.api.admin.clone().create_user(local(asked)).await.map(drop)
    }

    pub(super) async fn remove(&self, name: &str) -> Result<(), tonic::Status> {
        let asked = v1::DeleteResourceRequest { kind: "user".to_owned(), name: name.to_owned() };
        self.authority.services.api.admin.clone().delete_resource(local(asked)).await.map(drop)
    }
}

#[tokio::test]
async fn a_person_is_a_subject_and_no_name_makes_another_of_them() {
    let site = Site::new().await;
    assert_eq!(site.person("1", "alice", &["ops-eu"]).await.unwrap(), "alice");
    // Another person with the name, such as the next owner of a handle.
    assert_eq!(site.person("2", "alice", &["ops-eu"]).await.unwrap_err(), "name_taken");
    // The same person with another name keeps theirs.
    assert_eq!(site.person("1", "alice.married", &["ops-eu"]).await.unwrap(), "alice");
    assert_eq!(site.person("2", "alice.married", &["ops-eu"]).await.unwrap(), "alice.married");
    // No person comes by a local name, and no local user is made with a person's.
    site.local_user("bob").await.unwrap();
    assert_eq!(site.person("3", "bob", &["ops-eu"]).await.unwrap_err(), "name_taken");
    assert_eq!(site.local_user("alice").await.unwrap_err().code(), tonic::Code::AlreadyExists);
    // Another provider's subject "1" is another person.
    let other = Site::new().await;
    other.idp.says(super::person("1", "alice", &["ops-eu"]));
    let answer = other.answer(&other.begin().await);
    let claims = other.claims(&answer).await.map_err(word).unwrap();
    assert_eq!(site.admit(&claims, now()).await.map(drop).unwrap_err(), "name_taken");
    // Names that are read as another's.
    assert_eq!(site.person("5", "Carol", &["ops-eu"]).await.unwrap(), "carol");
    site.local_user("Dave").await.unwrap();
    for alike in ["dave", "DAVE", "root", "Auth"] {
        assert_eq!(site.person("6", alike, &["ops-eu"]).await.unwrap_err(), "name_taken", "{alike}");
    }
    // A name that is none.
    assert_eq!(site.person("4", "no name", &["ops-eu"]).await.unwrap_err(), "no_name");
    site.idp.says(json!({ "sub": "4", "groups": ["ops-eu"] }));
    assert_eq!(site.log_in().await.map(drop).unwrap_err(), "no_name");
}

#[tokio::test]
async fn a_user_is_one_for_a_time_and_their_name_is_theirs_for_good() {
    let site = Site::with("  user_lifetime: 1h\n").await;
    let says = |subject: &str| super::person(subject, "alice", &["ops-eu"]);
    site.idp.says(says("1"));
    let answer = site.answer(&site.begin().await);
    let first = site.claims(&answer).await.map_err(word).unwrap();
    // So long ago that it is over.
    site.admit(&first, now() - time::Duration::hours(2)).await.unwrap();
    let store = &site.authority.services.store;
    let stored = store.get::<crate::authority::records::UserRecord>("alice", now()).await.unwrap();
    assert!(stored.is_none(), "{stored:?}");
    site.idp.says(says("2"));
    assert_eq!(site.log_in().await.map(drop).unwrap_err(), "name_taken", "it waits for its person");
    site.admit(&first, now()).await.unwrap();
    let stored = store.get::<crate::authority::records::UserRecord>("alice", now()).await.unwrap().unwrap();
    let left = stored.expires.unwrap() - now();
    assert!(left <= time::Duration::hours(1) && left > time::Duration::minutes(55), "{left}");
    // An administrator frees it, of a person who is a user and of one whose time is over.
    site.remove("alice").await.unwrap();
    site.log_in().await.unwrap();
    site.remove("alice").await.unwrap();
    site.admit(&first, now() - time::Duration::hours(2)).await.unwrap();
    site.remove("alice").await.unwrap();
    assert_eq!(site.remove("alice").await.unwrap_err().code(), tonic::Code::NotFound);
    site.local_user("alice").await.unwrap();
    assert_eq!(site.log_in().await.map(drop).unwrap_err(), "name_taken");
}

#[tokio::test]
async fn roles_are_what_the_provider_says_at_each_login_and_nothing_else_makes_them() {
    let site = Site::new().await;
    site.person("1", "alice", &["ops-eu", "auditors"]).await.unwrap();
    let roles = || {
        let user = site.authority.services.identities.user(&name("alice")).unwrap();
        user.roles.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(roles(), ["access", "auditor"]);
    site.person("1", "alice", &["auditors"]).await.unwrap();
    assert_eq!(roles(), ["auditor"]);
    for groups in [&["nothing"][..], &[], &["odd"]] {
        assert_eq!(site.person("1", "alice", groups).await.unwrap_err(), "no_roles");
    }
    // Not by hand, and with no password beside the provider.
    let get = v1::GetResourceRequest { kind: "user".to_owned(), name: "alice".to_owned() };
    let admin = || site.authority.services.api.admin.clone();
    let shown = admin().get_resource(local(get)).await.unwrap().into_inner();
    assert!(shown.yaml.contains("origin") && shown.expires.is_some(), "{shown:?}");
    let write = v1::CreateResourceRequest { yaml: shown.yaml.clone(), replace: true };
    let status = admin().create_resource(local(write)).await.unwrap_err();
    assert!(status.message().contains("spec.origin"), "{status:?}");
    let yaml = "kind: user\nversion: v1\nmetadata: {name: alice}\nspec: {roles: [editor]}\n".to_owned();
    let write = v1::CreateResourceRequest { yaml, replace: true };
    let status = admin().create_resource(local(write)).await.unwrap_err();
    assert!(status.message().contains("its connector, corp"), "{status:?}");
    let reset = v1::ResetUserRequest { name: "alice".to_owned() };
    let reset = admin().reset_user(local(reset)).await.unwrap().into_inner();
    assert!(
        reset.token.is_empty() && reset.link.is_empty(),
        "no password: with one they would be two people"
    );
}

#[tokio::test]
async fn what_an_earlier_user_of_the_name_left_opens_nothing_of_a_person() {
    let site = Site::new().await;
    site.local_user("alice").await.unwrap();
    site.remove("alice").await.unwrap();
    site.person("1", "alice", &["ops-eu"]).await.unwrap();
    let credential =
        site.authority.services.store.get::<crate::authority::records::CredentialRecord>("alice", now());
    assert!(credential.await.unwrap().is_none());
}

pub(super) fn said(site: &Site, change: impl FnOnce(&mut serde_json::Value)) -> String {
    let mut claims = json!({
        "sub": "1",
        "jti": "j1",
        "events": { "http://schemas.openid.net/event/backchannel-logout": {} },
    });
    change(&mut claims);
    site.idp.token(claims.as_object().unwrap().clone())
}

#[tokio::test]
async fn a_logout_at_the_provider_ends_the_logins_here_once_and_of_its_person_alone() {
    let site = Site::with("  logout: back-channel\n").await;
    for (subject, called, session) in [("1", "alice", "s1"), ("2", "bob", "s2")] {
        let mut claims = super::person(subject, called, &["ops-eu"]);
        claims["sid"] = json!(session);
        site.idp.says(claims);
        site.log_in().await.unwrap();
    }
    let open = async |called: &str| site.opened_login(called).await;
    let locked = |id: uuid::Uuid| site.login_ended(id);
    let (alice, bob) = (open("alice").await, open("bob").await);
    let told = async |token: &str| site.connectors().log_out(&CALLER, "corp", token).await;
    // Forged, or for another purpose.
    let other = Idp::plain().await;
    for bad in [
        said(&site, |claims| claims["events"] = json!({})),
        said(&site, |claims| claims["nonce"] = json!("n")),
        said(&site, |claims| claims["aud"] = json!("another")),
        said(&site, |claims| claims["iss"] = json!(other.issuer())),
        other.token(json!({ "sub": "1", "iss": site.idp.issuer() }).as_object().unwrap().clone()),
        "x".repeat(20_000),
        String::new(),
    ] {
        assert_eq!(told(&bad).await.unwrap_err().code(), tonic::Code::InvalidArgument);
    }
    assert!(!locked(alice) && !locked(bob));
    let token = said(&site, |_| ());
    told(&token).await.unwrap();
    assert!(locked(alice) && !locked(bob));
    // Taken once: a later login of the person does not end by it.
    let alice = open("alice").await;
    assert_eq!(told(&token).await.unwrap_err().code(), tonic::Code::InvalidArgument);
    assert!(!locked(alice));
    // By its session alone; and of a person that is not known here nothing shows.
    let by_session = site.idp.unnamed(said(&site, |claims| {
        claims["sid"] = json!("s2");
        claims["jti"] = json!("j2");
    }));
    told(&by_session).await.unwrap();
    assert!(locked(bob) && !locked(alice));
    told(&said(&site, |claims| {
        claims["sub"] = json!("unknown");
        claims["jti"] = json!("j3");
    }))
    .await
    .unwrap();
    // A connector that takes none.
    site.connect("corp", "").await;
    let status = told(&said(&site, |claims| claims["jti"] = json!("j4"))).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::FailedPrecondition, "{status:?}");
}

#[tokio::test]
async fn what_was_proven_before_a_logout_does_not_fit_the_user_after_it() {
    let site = Site::with("  logout: back-channel\n").await;
    site.person("1", "alice", &["ops-eu"]).await.unwrap();
    let before = site.user_stored("alice").await.unwrap();
    site.connectors().log_out(&CALLER, "corp", &said(&site, |_| ())).await.unwrap();
    let after = site.user_stored("alice").await.unwrap();
    assert!(after.revision > before.revision, "a login checks the revision that it was proven at");
    assert_eq!((after.value, after.expires), (before.value, before.expires));
    assert!(site.authority.services.identities.user(&name("alice")).is_some());
}

#[tokio::test]
async fn a_person_whom_the_provider_gives_nothing_any_more_is_no_user_and_their_login_ends() {
    let site = Site::new().await;
    site.person("1", "alice", &["ops-eu"]).await.unwrap();
    site.person("2", "bob", &["ops-eu"]).await.unwrap();
    let (alice, bob) = (site.opened_login("alice").await, site.opened_login("bob").await);
    site.idp.says(super::person("1", "alice", &[]));
    let answer = site.answer(&site.begin().await);
    let said = site.claims(&answer).await.map_err(word).unwrap();
    let lapse = async |error: SsoError| {
        let remote = site.remote().await;
        let failure = Failure::from(error);
        site.connectors().lapse(&CALLER, remote.connector(), &said, &failure, now()).await.unwrap();
    };
    // What says nothing of the person's roles.
    lapse(SsoError::NotAwaited).await;
    lapse(SsoError::NoSecondFactor { said: String::new() }).await;
    assert!(!site.login_ended(alice) && site.user_stored("alice").await.is_some());
    lapse(SsoError::NoRoles { trace: String::new() }).await;
    assert!(site.login_ended(alice) && site.user_stored("alice").await.is_none());
    assert!(site.authority.services.identities.user(&name("alice")).is_none());
    assert!(!site.login_ended(bob) && site.user_stored("bob").await.is_some());
    // The name stays the person's.
    assert_eq!(site.person("3", "alice", &["ops-eu"]).await.unwrap_err(), "name_taken");
    assert_eq!(site.person("1", "alice", &["ops-eu"]).await.unwrap(), "alice");
    let reason = Unprovisioned::NoUser { name: "alice".to_owned() };
    lapse(SsoError::NotProvisioned { connector: "corp".to_owned(), reason }).await;
    assert!(site.user_stored("alice").await.is_none());
}

#[tokio::test]
async fn a_refusal_by_one_connector_leaves_the_user_that_another_of_the_provider_has_made() {
    let site = Site::new().await;
    let admins = site.document("admins", "").replace("'ops-*'", "admins");
    let admins = Connector::parse(&admins).unwrap();
    site.connectors().write(&Caller::LocalAdmin, admins, Write::Replace).await.unwrap();
    site.at_the_provider("1", "alice", &["ops-eu"]);
    let said = site.said().await;
    assert_eq!(site.comes_by("corp", &said).await.unwrap(), name("alice"));
    let (login, before) = (site.opened_login("alice").await, site.user_stored("alice").await.unwrap());
    let waits = site.device_of("alice", login).await;
    assert_eq!(site.comes_by("admins", &said).await.unwrap_err(), "no_roles");
    let after = site.user_stored("alice").await.unwrap();
    assert_eq!((after.revision, after.value), (before.revision, before.value));
    assert!(!site.login_ended(login) && site.has_device(&waits).await);
    assert!(site.authority.services.identities.user(&name("alice")).is_some());
    // The connector that has made the user takes all of it.
    site.at_the_provider("1", "alice", &[]);
    let said = site.said().await;
    assert_eq!(site.comes_by("corp", &said).await.unwrap_err(), "no_roles");
    assert!(site.login_ended(login) && !site.has_device(&waits).await);
    assert!(site.user_stored("alice").await.is_none());
}

#[tokio::test]
async fn a_connector_that_changes_or_goes_ends_its_users_and_admits_none_by_what_it_was() {
    let site = Site::new().await;
    site.person("1", "alice", &["ops-eu"]).await.unwrap();
    let login = site.opened_login("alice").await;
    site.connect("corp", "  title: Another\n").await;
    assert!(
        !site.login_ended(login) && site.user_stored("alice").await.is_some(),
        "the same people get the same"
    );
    let answer = site.answer(&site.begin().await);
    let said = site.claims(&answer).await.map_err(word).unwrap();
    let remote = site.remote().await;
    let narrower = Connector::parse(&site.document("corp", "").replace("'ops-*'", "none")).unwrap();
    site.connectors().write(&Caller::LocalAdmin, narrower, Write::Replace).await.unwrap();
    assert!(site.login_ended(login) && site.user_stored("alice").await.is_none());
    // A login that was at the provider meanwhile.
    let late = async || {
        let late = site.connectors().admit(&CALLER, remote.connector(), &said, now()).await;
        late.map(drop).map_err(word)
    };
    assert_eq!(late().await.unwrap_err(), "connector_changed");
    site.connect("corp", "").await;
    site.person("1", "alice", &["ops-eu"]).await.unwrap();
    let login = site.opened_login("alice").await;
    site.connectors().delete(&Caller::LocalAdmin, "oidc", "corp").await.unwrap();
    assert!(site.login_ended(login) && site.user_stored("alice").await.is_none());
    assert_eq!(late().await.unwrap_err(), "connector_changed");
}
