//! Logins as time passes, and many of them.

use std::sync::Arc;

use sallyport_access::{DeviceCustody, DeviceId, Identity, LockTarget, UserName};
use sallyport_store::typed;
use sallyport_wire::v1;
use sallyport_wire::v1::admin_server::Admin as _;
use time::{Duration, OffsetDateTime};
use tonic::Request;
use uuid::Uuid;

use super::logins::{LoginRecord, Opened, OpenedBy, name_of, open_login};
use super::open::Which;
use crate::authority::caller::Caller;
use crate::authority::devices::index;
use crate::authority::devices::records::{DeviceRecord, DeviceState};
use crate::authority::sso::tests::Site;
use crate::authority::streams::Line;
use crate::dialling::PeerInfo;

fn local<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(Caller::LocalAdmin);
    request.extensions_mut().insert(Line::default());
    request
}

impl Site {
    async fn user(&self, name: &str, role: &str) -> UserName {
        let roles = vec![role.to_owned()];
        let asked = v1::CreateUserRequest { name: name.to_owned(), roles, ..Default::default() };
        self.authority.services.api.admin.clone().create_user(local(asked)).await.unwrap();
        UserName::new(name).unwrap()
    }

    async fn logins_of(&self, user: &UserName, count: u32, at: OffsetDateTime) -> Vec<Uuid> {
        let mut ids = Vec::new();
        while ids.len() < count as usize {
            let mut steps = Vec::new();
            while ids.len() < count as usize && steps.len() < 1_000 {
                let id = Uuid::new_v4();
                let by = OpenedBy::Signed("olga".to_owned());
                let opened = Opened::new(&Caller::LocalAdmin, by, "desk", &[], at);
                steps.push(open_login(user, id, at + Duration::hours(12), Some(opened)).unwrap());
                ids.push(id);
            }
            self.authority.services.store.backend().transact(steps, at).await.unwrap();
        }
        ids
    }

    fn ended(&self, id: Uuid) -> bool {
        let locks = &self.authority.services.policy.cache().locks;
        locks.iter().any(|lock| lock.target == LockTarget::LoginId(id))
    }
}

#[tokio::test]
async fn a_login_that_is_not_in_use_ends_and_one_that_is_stays() {
    let site = Site::new().await;
    let services = &site.authority.services;
    let yaml =
        "kind: role\nversion: v1\nmetadata: {name: idle}\nspec: {options: {login_idle_timeout: 30m}}\n";
    let asked = v1::CreateResourceRequest { yaml: yaml.to_owned(), replace: true };
    services.api.admin.clone().create_resource(local(asked)).await.unwrap();
    let (alice, bob) = (site.user("alice", "idle").await, site.user("bob", "access").await);
    let start = OffsetDateTime::now_utc();
    let minutes = |minutes| start + Duration::minutes(minutes);
    let of_alice = site.logins_of(&alice, 2, start).await;
    let (quiet, busy) = (of_alice[0], of_alice[1]);
    let other = site.logins_of(&bob, 1, start).await[0];
    let logins = &services.logins;
    logins.uses.note(busy, &alice, minutes(29));
    logins.end_idle(minutes(34)).await.unwrap();
    assert!(!site.ended(quiet), "it may have been in use until five minutes after what is written");
    logins.end_idle(minutes(35)).await.unwrap();
    assert!(site.ended(quiet) && !site.ended(busy) && !site.ended(other));
    // What is written down of the other keeps it, in an authority that was started anew.
    logins.write_due(minutes(35)).await.unwrap();
    let stored = services.store.get::<LoginRecord>(&name_of(&alice, busy), minutes(35)).await.unwrap();
    assert_eq!(stored.unwrap().value.last_used, Some(minutes(29)));
    logins.uses.forget(busy, &alice);
    logins.end_idle(minutes(63)).await.unwrap();
    assert!(!site.ended(busy));
    logins.end_idle(minutes(64)).await.unwrap();
    assert!(site.ended(busy) && !site.ended(other));
    // Why it ended is on record, and its user reads what to do.
    let asked = v1::SearchEventsRequest { code: "SP1040I".to_owned(), ..Default::default() };
    let mut found = services.api.admin.clone().search_events(local(asked)).await.unwrap().into_inner();
    let mut ended = Vec::new();
    while let Some(record) = tokio_stream::StreamExt::next(&mut found).await {
        ended.push(serde_json::from_str::<serde_json::Value>(&record.unwrap().event_json).unwrap());
    }
    assert_eq!(ended.len(), 2, "{ended:?}");
    for (event, id) in ended.iter().zip([quiet, busy]) {
        let fields = &event["fields"];
        assert_eq!(
            (fields["cause"].as_str(), fields["login_id"].as_str()),
            (Some("idle"), Some(id.to_string().as_str())),
            "{event}"
        );
        let told = event["message"].as_str().unwrap();
        assert!(told.contains("login_idle_timeout") && told.contains("sallyport login"), "{told}");
    }
}

#[tokio::test]
async fn ten_thousand_logins_of_a_user_are_listed_in_pages_and_end_together() {
    let site = Site::new().await;
    let logins = &site.authority.services.logins;
    let (alice, bob) = (site.user("alice", "access").await, site.user("bob", "access").await);
    let now = OffsetDateTime::now_utc();
    let other = site.logins_of(&alice, 1, now).await[0];
    let ids = site.logins_of(&bob, 10_000, now).await;
    let (mut found, mut pages, mut after) = (Vec::new(), 0, String::new());
    loop {
        let page = logins.list(Some(&bob), &after, 0, None, now).await.unwrap();
        assert!(page.logins.len() <= 1_000);
        found.extend(page.logins.into_iter().map(|login| login.id.parse::<Uuid>().unwrap()));
        pages += 1;
        if page.next.is_empty() {
            break;
        }
        after = page.next;
    }
    let mut ids = ids;
    ids.sort();
    assert!(found == ids && pages <= 11, "{} in {pages} pages", found.len());
    // Few enough for a test: each is a lock, which is read once.
    let some = site.user("carol", "access").await;
    let ids = site.logins_of(&some, 1_200, now).await;
    let kept = Which::AllBut(Some(ids[7]));
    assert_eq!(logins.end_now(&Caller::LocalAdmin, &some, kept, "", now).await.unwrap().logins, 1_199);
    assert!(!site.ended(ids[7]) && site.ended(ids[0]) && site.ended(ids[1_199]) && !site.ended(other));
}

impl Site {
    /// A device that waits to be admitted, as a login has asked for it.
    async fn device_waits(&self, user: &UserName, login: Uuid, now: OffsetDateTime) -> DeviceRecord {
        let record = DeviceRecord {
            id: DeviceId::new(),
            public_key: String::new(),
            custody: DeviceCustody::File,
            users: vec![user.clone()],
            state: DeviceState::Pending,
            name: "laptop".to_owned(),
            os: String::new(),
            serial: String::new(),
            enrolled: now,
            enrolled_by: user.clone(),
            login: Some(login),
            last: None,
        };
        let mut steps = vec![typed::create(&record.id.to_string(), &record, None).unwrap()];
        steps.extend(index::written(None, &record).unwrap());
        self.authority.services.store.backend().transact(steps, now).await.unwrap();
        record
    }

    async fn still_waits(&self, device: &DeviceRecord, now: OffsetDateTime) -> bool {
        let name = device.id.to_string();
        self.authority.services.store.get::<DeviceRecord>(&name, now).await.unwrap().is_some()
    }

    async fn on_record(&self, code: &str) -> Vec<serde_json::Value> {
        let asked = v1::SearchEventsRequest { code: code.to_owned(), ..Default::default() };
        let admin = self.authority.services.api.admin.clone();
        let mut found = admin.search_events(local(asked)).await.unwrap().into_inner();
        let mut events = Vec::new();
        while let Some(record) = tokio_stream::StreamExt::next(&mut found).await {
            events.push(serde_json::from_str(&record.unwrap().event_json).unwrap());
        }
        events
    }
}

#[tokio::test]
async fn attacks_whatever_ends_logins_voids_what_they_have_asked_for_and_counts_logins_alone() {
    let site = Site::new().await;
    let admin = site.authority.services.api.admin.clone();
    let now = OffsetDateTime::now_utc();
    let (alice, bob) = (site.user("alice", "access").await, site.user("bob", "access").await);
    let own = site.logins_of(&alice, 2, now).await;
    let other = site.logins_of(&bob, 1, now).await;
    let (asked, bobs) =
        (site.device_waits(&alice, own[0], now).await, site.device_waits(&bob, other[0], now).await);
    // Another role: no administrator has thought of the devices.
    let yaml = "kind: user\nversion: v1\nmetadata: {name: alice}\nspec: {roles: [auditor]}\n".to_owned();
    let write = v1::CreateResourceRequest { yaml, replace: true };
    admin.create_resource(local(write)).await.unwrap();
    assert!(!site.still_waits(&asked, now).await && site.still_waits(&bobs, now).await);
    let updated = site.on_record("SP1003I").await;
    assert_eq!(updated.last().unwrap()["fields"]["ended_logins"], 2, "{updated:?}");
    // A user who is removed: what is theirs is removed once, however many steps say so.
    let delete = v1::DeleteResourceRequest { kind: "user".to_owned(), name: "bob".to_owned() };
    admin.delete_resource(local(delete)).await.unwrap();
    assert!(!site.still_waits(&bobs, now).await);
}

#[tokio::test]
async fn a_logout_keeps_what_it_asked_for_and_the_end_of_another_login_does_not() {
    let site = Site::new().await;
    let logins = &site.authority.services.logins;
    let now = OffsetDateTime::now_utc();
    let alice = site.user("alice", "access").await;
    let ids = site.logins_of(&alice, 3, now).await;
    let mut asked = Vec::new();
    for id in &ids {
        asked.push(site.device_waits(&alice, *id, now).await);
    }
    let identity = Identity {
        login_id: ids[0],
        ..site
            .authority
            .services
            .identities
            .identity_of(&site.authority.services.identities.user(&alice).unwrap(), now)
    };
    let own = Caller::Certified {
        identity: Arc::new(identity),
        from: PeerInfo::direct(([192, 0, 2, 1], 7).into()),
    };
    assert_eq!(logins.end_now(&own, &alice, Which::One(ids[0]), "", now).await.unwrap().logins, 1);
    assert!(site.still_waits(&asked[0], now).await, "its user logged out");
    assert_eq!(logins.end_now(&own, &alice, Which::One(ids[1]), "", now).await.unwrap().logins, 1);
    assert!(!site.still_waits(&asked[1], now).await && site.still_waits(&asked[2], now).await);
    // One that is not there any more ends nothing, and says so.
    let gone = logins.end_now(&own, &alice, Which::One(ids[1]), "", now).await.unwrap_err();
    assert_eq!(gone.code(), tonic::Code::NotFound);
    assert_eq!(logins.end_now(&own, &alice, Which::AllBut(Some(ids[2])), "", now).await.unwrap().logins, 0);
    assert!(!site.still_waits(&asked[0], now).await && site.still_waits(&asked[2], now).await);
}

#[tokio::test]
async fn devices_of_an_earlier_release_are_found_by_their_users() {
    let site = Site::new().await;
    let store = &site.authority.services.store;
    let now = OffsetDateTime::now_utc();
    let (alice, bob) = (site.user("alice", "access").await, site.user("bob", "access").await);
    let (mut hers, mut his) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        hers.push(site.device_waits(&alice, Uuid::new_v4(), now).await.id);
        his.push(site.device_waits(&bob, Uuid::new_v4(), now).await);
    }
    for record in &his {
        store.backend().transact(index::gone(record).unwrap(), now).await.unwrap();
    }
    let of = async |user: &UserName| {
        let found = index::of(store, user, now).await.unwrap();
        found.into_iter().map(|device| device.value.id).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!((of(&alice).await, of(&bob).await.len()), (hers.iter().copied().collect(), 0));
    index::learn(store, now).await.unwrap();
    assert_eq!(of(&alice).await, hers.into_iter().collect());
    assert_eq!(of(&bob).await, his.into_iter().map(|record| record.id).collect());
}
