//! Local users who are linked with a person of the provider.

use sallyport_access::{RoleName, UserName};
use sallyport_store::{Stored, typed};
use sallyport_wire::v1;
use sallyport_wire::v1::admin_server::Admin as _;
use serde_json::json;
use tonic::{Code, Status};
use uuid::Uuid;

use super::super::claims::check_linked;
use super::super::error::{LinkCommand, SsoError};
use super::people::{local, name, said};
use super::*;
use crate::authority::accounts::means::{Means, Way};
use crate::authority::factors::kept::{Factors, codes};
use crate::authority::factors::names::FactorName;
use crate::authority::identities::logins::{Opened, OpenedBy, open_login};
use crate::authority::identities::origins::PersonRecord;
use crate::authority::records::{CredentialRecord, Origin, UserRecord};

/// Subjects of the provider, of which the first ones are linked.
const BOB: &str = "00u1-bob";
const STRANGER: &str = "00u2-stranger";

impl Site {
    async fn local(&self, called: &str, roles: &[&str]) {
        let asked = v1::CreateUserRequest {
            name: called.to_owned(),
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
            ..Default::default()
        };
        self.authority.services.api.admin.clone().create_user(local(asked)).await.unwrap();
    }

    async fn link_as(
        &self,
        called: &str,
        connector: &str,
        subject: &str,
        may_read: bool,
    ) -> Result<v1::LinkUserResponse, Status> {
        let request = v1::LinkUserRequest {
            name: called.to_owned(),
            connector: connector.to_owned(),
            subject: subject.to_owned(),
        };
        self.connectors().link_user(&Caller::LocalAdmin, request, may_read).await
    }

    async fn link(&self, called: &str, subject: &str) -> Result<v1::LinkUserResponse, Status> {
        self.link_as(called, "corp", subject, true).await
    }

    async fn unlink(&self, called: &str) -> Result<v1::UnlinkUserResponse, Status> {
        self.connectors().unlink_user(&Caller::LocalAdmin, called).await
    }

    /// A site where bob is a local user, linked with a person of the provider.
    async fn with_bob(more: &str) -> Self {
        let site = Self::with(more).await;
        site.local("bob", &["auditor"]).await;
        site.link("bob", BOB).await.unwrap();
        site
    }

    async fn record(&self, called: &str) -> Stored<UserRecord> {
        self.user_stored(called).await.expect("no such user")
    }

    async fn write_user(&self, yaml: &str) -> Result<v1::Resource, Status> {
        let request = v1::CreateResourceRequest { yaml: yaml.to_owned(), replace: true };
        let written = self.authority.services.api.admin.clone().create_resource(local(request)).await;
        written.map(tonic::Response::into_inner)
    }

    /// A login that is open, which came so.
    async fn open_by(&self, called: &str, by: OpenedBy) -> Uuid {
        let (id, at) = (Uuid::new_v4(), now());
        let opened = Opened::new(&CALLER, by, "laptop", &[], at);
        let step = open_login(&name(called), id, at + time::Duration::hours(1), Some(opened)).unwrap();
        self.authority.services.store.backend().transact(vec![step], at).await.unwrap();
        id
    }

    async fn open_logins(&self, called: &str) -> Logins {
        let by = |way| OpenedBy::User(Means::by(way, true));
        Logins {
            linked: self.open_by(called, by(Way::SingleSignOn)).await,
            own: self.open_by(called, OpenedBy::Signed(called.to_owned())).await,
            password: self.open_by(called, by(Way::Password)).await,
            passkey: self.open_by(called, by(Way::Passkey)).await,
            signed: self.open_by(called, OpenedBy::Signed("olga".to_owned())).await,
        }
    }

    fn knows(&self, called: &str) -> bool {
        self.authority.services.identities.user(&name(called)).is_some_and(|user| user.link.is_some())
    }
}

/// One login of each kind.
struct Logins {
    linked: Uuid,
    /// Certificates that the user has signed for themselves.
    own: Uuid,
    password: Uuid,
    passkey: Uuid,
    signed: Uuid,
}

impl Logins {
    /// Whether those have ended that stand by the link, and no others.
    fn ended(&self, site: &Site) -> bool {
        let stay = [self.password, self.passkey, self.signed];
        assert!(stay.iter().all(|id| !site.login_ended(*id)), "a login that the link has not opened");
        let ended = [self.linked, self.own].map(|id| site.login_ended(id));
        assert_eq!(ended[0], ended[1], "what a login by link has signed goes with it");
        ended[0]
    }
}

#[tokio::test]
async fn a_linked_user_comes_as_that_person_alone_and_stays_what_they_are_here() {
    let site = Site::new().await;
    site.local("bob", &["auditor"]).await;
    assert_eq!(site.person(BOB, "bob", &["ops-eu"]).await.unwrap_err(), "name_taken");
    let linked = site.link("bob", BOB).await.unwrap();
    assert_eq!((linked.issuer.as_str(), linked.subject.as_str()), (site.idp.issuer(), BOB));
    let before = site.record("bob").await;
    assert_eq!(before.value.link.as_ref().map(|link| link.connector.as_str()), Some("corp"));
    // Whatever the provider calls them and says of them: a role is neither given nor taken, and no trait.
    for (called, groups) in [("bob", &["ops-eu", "auditors"][..]), ("root", &[]), ("no name", &["odd"])] {
        site.idp.says(super::person(BOB, called, groups));
        let (admitted, _) = site.log_in().await.unwrap();
        assert_eq!((admitted.user.as_str(), admitted.linked), ("bob", true), "{called}");
        assert!(!admitted.second_factor);
        let left = admitted.until.expect("certificates by it live for ever") - now();
        assert!(left <= time::Duration::hours(12), "{left}");
    }
    let after = site.record("bob").await;
    assert_eq!((&after.value, after.revision, after.expires), (&before.value, before.revision, None));
    assert_eq!(after.value.roles, [RoleName::new("auditor").unwrap()]);
    // Others at the same provider, by whatever name.
    assert_eq!(site.person(STRANGER, "bob", &["ops-eu"]).await.unwrap_err(), "name_taken");
    assert_eq!(site.person(STRANGER, "stranger", &["ops-eu"]).await.unwrap(), "stranger");
    // The same person by another connector of the provider.
    site.connect("other", "").await;
    site.idp.says(super::person(BOB, "bob", &["ops-eu"]));
    let claims = site.said().await;
    let other = site.connectors().remote("other", now()).await.unwrap();
    let by_other = site.connectors().admit(&CALLER, other.connector(), &claims, now()).await;
    assert_eq!(by_other.map_err(word).map(drop).unwrap_err(), "linked_elsewhere");
    // The same subject of another provider.
    let elsewhere = Site::new().await;
    elsewhere.idp.says(super::person(BOB, "bob", &["ops-eu"]));
    let claims = elsewhere.said().await;
    assert_eq!(site.admit(&claims, now()).await.map(drop).unwrap_err(), "name_taken");
}

#[tokio::test]
async fn who_is_unlinked_comes_as_a_person_of_the_provider_like_any_other() {
    let site = Site::with_bob("").await;
    let logins = site.open_logins("bob").await;
    let before = site.record("bob").await;
    let unlinked = site.unlink("bob").await.unwrap();
    assert_eq!((unlinked.subject.as_str(), unlinked.ended_logins), (BOB, 2));
    assert!(logins.ended(&site) && !site.knows("bob"));
    let after = site.record("bob").await;
    assert!(after.revision > before.revision, "what was proven before does not fit any more");
    assert_eq!((after.value.link, after.value.roles), (None, before.value.roles));
    assert_eq!(site.person(BOB, "bob", &["ops-eu"]).await.unwrap_err(), "name_taken");
    assert_eq!(site.unlink("bob").await.unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(site.unlink("nobody").await.unwrap_err().code(), Code::NotFound);
    // Nothing of the link is left that would hold either of them back.
    site.link("bob", STRANGER).await.unwrap();
    assert_eq!(site.person(BOB, "robert", &["ops-eu"]).await.unwrap(), "robert");
    assert_eq!(site.person(STRANGER, "x", &[]).await.unwrap(), "bob");
}

#[tokio::test]
async fn a_link_is_refused_where_it_is_not_clear_who_would_come() {
    let site = Site::with_bob("").await;
    site.local("carol", &["auditor"]).await;
    site.person("1", "alice", &["ops-eu"]).await.unwrap();
    let long = "x".repeat(256);
    for (called, connector, subject, code, told) in [
        ("nobody", "corp", "2", Code::NotFound, "no user nobody"),
        ("", "corp", "2", Code::NotFound, "no user"),
        ("carol", "nowhere", "2", Code::NotFound, "no connector nowhere"),
        ("carol", "../corp", "2", Code::NotFound, "no connector"),
        ("carol", "corp", "", Code::InvalidArgument, "1 to 255 bytes"),
        ("carol", "corp", long.as_str(), Code::InvalidArgument, "1 to 255 bytes"),
        ("carol", "corp", "2\n3", Code::InvalidArgument, "1 to 255 bytes"),
        // They come by single sign-on themselves.
        ("alice", "corp", "2", Code::FailedPrecondition, "comes by single sign-on"),
        ("bob", "corp", "2", Code::FailedPrecondition, BOB),
        // They are another user.
        ("carol", "corp", "1", Code::AlreadyExists, "the user alice"),
        ("carol", "corp", BOB, Code::AlreadyExists, "the user bob"),
    ] {
        let status = site.link_as(called, connector, subject, true).await.unwrap_err();
        assert_eq!(status.code(), code, "{called} {connector} {subject}: {status:?}");
        assert!(status.message().contains(told), "{called} {connector} {subject}: {status:?}");
        // Who may not read users learns of no other one.
        let hidden = site.link_as(called, connector, subject, false).await.unwrap_err();
        assert_eq!(hidden.code(), code, "{hidden:?}");
        let text = hidden.message();
        assert!(!text.contains("user alice") && !text.contains("user bob") && !text.contains(BOB), "{text}");
    }
    assert!(!site.knows("carol"));
    // Once the person is forgotten, they may be linked.
    site.remove("alice").await.unwrap();
    site.link("carol", "1").await.unwrap();
}

#[tokio::test]
async fn a_person_who_had_the_name_before_it_was_local_may_be_linked_with_it_and_so_may_another() {
    for (subject, other) in [("1", "2"), ("2", "1")] {
        let site = Site::with("  user_lifetime: 1h\n").await;
        site.idp.says(super::person("1", "alice", &["ops-eu"]));
        let claims = site.said().await;
        site.admit(&claims, now() - time::Duration::hours(2)).await.unwrap();
        site.local("alice", &["auditor"]).await;
        site.link("alice", subject).await.unwrap();
        assert_eq!(site.person(subject, "alice", &[]).await.unwrap(), "alice");
        assert_eq!(site.person(other, "alice", &["ops-eu"]).await.unwrap_err(), "name_taken");
        assert_eq!(site.record("alice").await.value.roles, [RoleName::new("auditor").unwrap()]);
    }
}

#[tokio::test]
async fn no_document_makes_or_ends_a_link() {
    let site = Site::with_bob("").await;
    site.local("carol", &["auditor"]).await;
    let link = site.record("bob").await.value.link;
    let document = |called: &str, more: &str| {
        format!("kind: user\nversion: v1\nmetadata: {{name: {called}}}\nspec: {{roles: [access]{more}}}\n")
    };
    // Without a word of it, and as it is read.
    site.write_user(&document("bob", "")).await.unwrap();
    assert_eq!(site.record("bob").await.value.link, link);
    let get = v1::GetResourceRequest { kind: "user".to_owned(), name: "bob".to_owned() };
    let read = site.authority.services.api.admin.clone().get_resource(local(get)).await.unwrap().into_inner();
    assert!(read.yaml.contains("link") && read.yaml.contains(BOB), "{}", read.yaml);
    let update =
        v1::UpdateResourceRequest { yaml: read.yaml.replace("access", "auditor"), revision: read.revision };
    site.authority.services.api.admin.clone().update_resource(local(update)).await.unwrap();
    let after = site.record("bob").await.value;
    assert_eq!((after.link, after.roles), (link, vec![RoleName::new("auditor").unwrap()]));
    assert_eq!(site.person(BOB, "bob", &[]).await.unwrap(), "bob");
    // Any other.
    let forged = |subject: &str| {
        format!(", link: {{connector: corp, issuer: '{}', subject: {subject}}}", site.idp.issuer())
    };
    for (called, more) in [
        ("bob", forged(STRANGER)),
        ("carol", forged(STRANGER)),
        ("carol", forged(BOB)),
        ("dora", forged(STRANGER)),
        ("carol", ", link: {connector: corp}".to_owned()),
        ("carol", ", link: corp".to_owned()),
    ] {
        let status = site.write_user(&document(called, &more)).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{called}{more}: {status:?}");
        assert!(status.message().contains("spec.link"), "{called}{more}: {status:?}");
    }
    assert!(!site.knows("carol") && site.user_stored("dora").await.is_none());
    assert_eq!(site.person(STRANGER, "bob", &["ops-eu"]).await.unwrap_err(), "name_taken");
}

#[tokio::test]
async fn a_user_who_is_removed_or_reset_is_linked_no_more() {
    let site = Site::with_bob("").await;
    site.remove("bob").await.unwrap();
    assert_eq!(site.person(BOB, "bob", &["ops-eu"]).await.unwrap(), "bob", "the person is free");
    assert!(site.record("bob").await.value.origin.is_some());
    site.remove("bob").await.unwrap();
    // Another of the name has none of it.
    site.local("bob", &["auditor"]).await;
    assert_eq!(site.person(BOB, "bob", &["ops-eu"]).await.unwrap_err(), "name_taken");
    site.link("bob", BOB).await.unwrap();
    let login = site.open_by("bob", OpenedBy::User(Means::by(Way::Password, false))).await;
    let reset = v1::ResetUserRequest { name: "bob".to_owned() };
    let reset =
        site.authority.services.api.admin.clone().reset_user(local(reset)).await.unwrap().into_inner();
    assert!(site.login_ended(login) && !site.knows("bob"));
    assert_eq!(site.person(BOB, "bob", &["ops-eu"]).await.unwrap_err(), "name_taken");
    // The link to set a password by is one for the user as they are now.
    let accounts = &site.authority.services.api.admin.accounts;
    accounts.invite(&CALLER, &reset.token, now()).await.unwrap();
}

#[tokio::test]
async fn a_logout_at_the_provider_ends_what_came_by_the_link_alone() {
    let site = Site::with_bob("  logout: back-channel\n").await;
    let told = async |token: &str| site.connectors().log_out(&CALLER, "corp", token).await;
    let logins = site.open_logins("bob").await;
    let before = site.record("bob").await;
    let of = |subject: &'static str, id: &'static str| {
        said(&site, move |claims| {
            claims["sub"] = json!(subject);
            claims["jti"] = json!(id);
        })
    };
    told(&of(STRANGER, "j1")).await.unwrap();
    assert!(!logins.ended(&site));
    told(&of(BOB, "j2")).await.unwrap();
    assert!(logins.ended(&site));
    let after = site.record("bob").await;
    assert!(after.revision > before.revision, "what was proven before does not fit any more");
    assert_eq!(after.value, before.value, "the link stays");
    // By the provider's session alone.
    let mut claims = super::person(BOB, "bob", &[]);
    claims["sid"] = json!("s1");
    site.idp.says(claims);
    site.log_in().await.unwrap();
    let logins = site.open_logins("bob").await;
    let by_session = site.idp.unnamed(said(&site, |claims| {
        claims["sid"] = json!("s1");
        claims["jti"] = json!("j3");
    }));
    told(&by_session).await.unwrap();
    assert!(logins.ended(&site));
}

#[tokio::test]
async fn no_provider_logs_out_a_local_user_whose_name_was_once_a_persons() {
    let site = Site::with("  logout: back-channel\n  user_lifetime: 1h\n").await;
    site.idp.says(super::person("1", "alice", &["ops-eu"]));
    let claims = site.said().await;
    site.admit(&claims, now() - time::Duration::hours(2)).await.unwrap();
    site.local("alice", &["auditor"]).await;
    let login = site.open_by("alice", OpenedBy::User(Means::by(Way::Password, false))).await;
    let before = site.record("alice").await.revision;
    site.connectors().log_out(&CALLER, "corp", &said(&site, |_| ())).await.unwrap();
    assert!(!site.login_ended(login));
    assert_eq!(site.record("alice").await.revision, before);
}

#[tokio::test]
async fn a_login_that_the_provider_stands_by_no_more_ends_and_the_users_others_do_not() {
    let site = Site::refreshing().await;
    site.local("bob", &["auditor"]).await;
    site.link("bob", BOB).await.unwrap();
    site.idp.says(super::person(BOB, "bob", &["ops-eu"]));
    let (first, second) = (site.opens().await, site.opens().await);
    let before = site.record("bob").await;
    // It says that they are in other groups, and in none: that is nothing to a local user.
    for groups in [&["auditors"][..], &[]] {
        site.idp.says(super::person(BOB, "robert", groups));
        site.asks(first, now()).await;
    }
    let after = site.record("bob").await;
    assert_eq!((&after.value, after.revision), (&before.value, before.revision));
    assert!(!site.login_ended(first) && !site.login_ended(second));
    let logins = site.open_logins("bob").await;
    site.idp.refreshes(|refreshes| refreshes.rotates = false);
    site.idp.revokes(2);
    site.asks(second, now()).await;
    assert!(site.login_ended(second) && !site.login_ended(first));
    assert!(logins.ended(&site), "those about which no provider is asked");
    assert_eq!(site.record("bob").await.value.link, before.value.link);
}

#[tokio::test]
async fn a_link_ends_with_its_connector_and_with_the_issuer_of_it() {
    let mut site = Site::with_bob("").await;
    // The same people, to whom the provider gives something else.
    let logins = site.open_logins("bob").await;
    site.connect("corp", "  title: Another\n").await;
    assert!(!logins.ended(&site));
    let narrower = Connector::parse(&site.document("corp", "").replace("'ops-*'", "none")).unwrap();
    site.connectors().write(&Caller::LocalAdmin, narrower, Write::Replace).await.unwrap();
    assert!(logins.ended(&site) && site.knows("bob"));
    assert_eq!(site.person(BOB, "bob", &[]).await.unwrap(), "bob");
    // Another provider under the name of the connector, where a stranger is called as bob is called here, and has that subject.
    let before = site.said().await;
    let logins = site.open_logins("bob").await;
    site.idp = Idp::plain().await;
    site.connect("corp", "").await;
    assert!(logins.ended(&site) && !site.knows("bob"));
    assert_eq!(site.person(BOB, "bob", &["ops-eu"]).await.unwrap_err(), "name_taken");
    assert_eq!(site.person(BOB, "mallory", &["ops-eu"]).await.unwrap(), "mallory");
    // What the former provider said of bob.
    assert_eq!(site.admit(&before, now()).await.map(drop).unwrap_err(), "name_taken");
    // The connector goes, and one of the same name and provider comes.
    site.link("bob", "3").await.unwrap();
    let logins = site.open_logins("bob").await;
    site.connectors().delete(&Caller::LocalAdmin, "oidc", "corp").await.unwrap();
    assert!(logins.ended(&site) && !site.knows("bob"));
    site.connect("corp", "").await;
    assert_eq!(site.person("3", "bob", &["ops-eu"]).await.unwrap_err(), "name_taken");
}

#[tokio::test]
async fn a_connector_has_a_scim_client_or_links_and_never_both() {
    let site = Site::with_bob("").await;
    let provisioning = &site.authority.services.api.provisioning.provisioning;
    let token = || v1::AddScimTokenRequest { connector: "corp".to_owned(), ttl: None };
    let status = provisioning.add_token(&Caller::LocalAdmin, token()).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
    assert!(status.message().contains("users unlink bob"), "{status:?}");
    site.unlink("bob").await.unwrap();
    provisioning.add_token(&Caller::LocalAdmin, token()).await.unwrap();
    let status = site.link("bob", BOB).await.unwrap_err();
    assert!(status.code() == Code::FailedPrecondition && status.message().contains("SCIM"), "{status:?}");
    // Both, as a restored state could have it: the client has not said that they may come.
    let origin = Origin {
        connector: "corp".to_owned(),
        issuer: site.idp.issuer().to_owned(),
        subject: BOB.to_owned(),
    };
    let (key, stored) = (origin.person_key(), site.record("bob").await);
    let record = PersonRecord::of(&origin, &name("bob"), now());
    let linked = UserRecord { link: Some(origin), ..stored.value };
    let steps = vec![
        typed::create(&key, &record, None).unwrap(),
        typed::update("bob", stored.revision, &linked, None).unwrap(),
    ];
    site.authority.services.store.backend().transact(steps, now()).await.unwrap();
    assert_eq!(site.person(BOB, "bob", &["ops-eu"]).await.unwrap_err(), "link_provisioned");
}

#[tokio::test]
async fn a_second_factor_is_wanted_wherever_a_password_alone_would_not_do() {
    let site = Site::with_bob("  amr_is_second_factor: [mfa]\n").await;
    let log_in = async |amr: &[&str]| {
        let mut claims = super::person(BOB, "bob", &[]);
        claims["amr"] = json!(amr);
        site.idp.says(claims);
        site.log_in().await.map(|(admitted, _)| admitted.second_factor)
    };
    assert!(!log_in(&["pwd"]).await.unwrap());
    assert!(log_in(&["pwd", "mfa"]).await.unwrap());
    // Codes of an earlier release, then a factor.
    let store = &site.authority.services.store;
    let earlier = CredentialRecord { totp_sealed: Some("x".to_owned()), ..CredentialRecord::default() };
    store.put("bob", &earlier, None, now()).await.unwrap();
    assert_eq!(log_in(&["pwd"]).await.unwrap_err(), "no_second_factor");
    store.put("bob", &CredentialRecord::default(), None, now()).await.unwrap();
    assert!(!log_in(&["pwd"]).await.unwrap());
    let factors = site.authority.services.api.admin.accounts.factors();
    let held = factors.held(&name("bob"), now()).await.unwrap();
    let phone = codes(FactorName::new("phone").unwrap(), String::new(), None, None, now());
    let steps = Factors::added(&name("bob"), &held, &phone).unwrap();
    store.backend().transact(steps, now()).await.unwrap();
    for amr in [&["pwd"][..], &[], &["otp"]] {
        assert_eq!(log_in(amr).await.unwrap_err(), "no_second_factor", "{amr:?}");
    }
    assert!(log_in(&["mfa"]).await.unwrap());
    // Where the cluster requires one, of every user.
    let claims = site.said().await;
    let remote = site.remote().await;
    check_linked(remote.connector(), &claims, true, false).unwrap();
    site.connect("corp", "").await;
    let remote = site.remote().await;
    let refused = check_linked(remote.connector(), &claims, true, false).unwrap_err();
    assert!(matches!(refused, SsoError::NoSecondFactor { .. }), "{refused:?}");
    check_linked(remote.connector(), &claims, false, false).unwrap();
}

#[tokio::test]
async fn a_person_is_one_user_however_many_ask_at_once() {
    let site = Site::new().await;
    site.local("bob", &["auditor"]).await;
    site.local("carol", &["auditor"]).await;
    let (bob, carol) = tokio::join!(site.link("bob", BOB), site.link("carol", BOB));
    assert!(bob.is_ok() != carol.is_ok(), "{bob:?} {carol:?}");
    assert!(site.knows("bob") != site.knows("carol"));
    // A first login, and a link.
    for subject in ["1", "2", "3", "4"] {
        let called = format!("dora{subject}");
        let own = format!("own{subject}");
        site.local(&own, &["auditor"]).await;
        site.idp.says(super::person(subject, &called, &["ops-eu"]));
        let claims = site.said().await;
        let (linked, came) = match subject {
            "1" | "2" => tokio::join!(site.link(&own, subject), site.admit(&claims, now())),
            _ => {
                let (came, linked) = tokio::join!(site.admit(&claims, now()), site.link(&own, subject));
                (linked, came)
            }
        };
        let (admitted, _) = came.unwrap();
        assert_eq!(admitted.linked, linked.is_ok(), "{linked:?}");
        assert_eq!(site.user_stored(&called).await.is_some(), linked.is_err());
        assert_eq!(site.knows(&own), linked.is_ok());
    }
}

#[tokio::test]
async fn a_person_on_record_as_a_user_who_is_not_linked_comes_as_neither() {
    let site = Site::new().await;
    site.local("bob", &["auditor"]).await;
    let origin = Origin {
        connector: "corp".to_owned(),
        issuer: site.idp.issuer().to_owned(),
        subject: BOB.to_owned(),
    };
    // What another authority over the same state has done when this one looks: the person's record is there, and no link yet.
    let record = PersonRecord::of(&origin, &name("bob"), now());
    let step = typed::create(&origin.person_key(), &record, None).unwrap();
    site.authority.services.store.backend().transact(vec![step], now()).await.unwrap();
    assert_eq!(site.person(BOB, "robert", &["ops-eu"]).await.unwrap_err(), "name_taken");
    assert!(site.user_stored("robert").await.is_none());
}

#[test]
fn a_person_whose_name_is_taken_reads_what_an_administrator_runs() {
    let taken = |subject: &str| SsoError::NameTaken {
        name: "bob".to_owned(),
        owner: "a user of this cluster's own".to_owned(),
        link: Some(LinkCommand {
            user: "Bob".to_owned(),
            connector: "corp".to_owned(),
            subject: subject.to_owned(),
        }),
    };
    let line = "sallyport admin users link 'Bob' --connector corp --subject 'auth0|7'";
    let error = taken("auth0|7");
    assert!(error.shown().ends_with(line) && error.to_string().ends_with(line), "{error}");
    // What is more than one word to a shell, or shows as something else, is copied by no one.
    for odd in ["a'; rm -rf /; '", "a b", "a\u{202e}b", "\u{e4}"] {
        let error = taken(odd);
        assert!(
            !error.shown().contains("users link") && !error.to_string().contains("users link"),
            "{error}"
        );
    }
}

#[test]
fn an_earlier_releases_user_has_no_link_and_reads_as_before() {
    let user: UserRecord =
        serde_json::from_value(json!({ "name": "bob", "roles": [], "traits": {} })).unwrap();
    assert!(user.link.is_none() && user.comes_as().is_none());
    assert!(!serde_json::to_string(&user).unwrap().contains("link"));
    assert_eq!(user.name, UserName::new("bob").unwrap());
}
