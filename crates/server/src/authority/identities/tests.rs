//! Logins as time passes, and many of them.

use sallyport_access::{LockTarget, UserName};
use sallyport_wire::v1;
use sallyport_wire::v1::admin_server::Admin as _;
use time::{Duration, OffsetDateTime};
use tonic::Request;
use uuid::Uuid;

use super::logins::{LoginRecord, Opened, OpenedBy, name_of, open_login};
use super::open::Which;
use crate::authority::caller::Caller;
use crate::authority::sso::tests::Site;
use crate::authority::streams::Line;

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
    assert_eq!(logins.end_now(&Caller::LocalAdmin, &some, kept, "", now).await.unwrap(), 1_199);
    assert!(!site.ended(ids[7]) && site.ended(ids[0]) && site.ended(ids[1_199]) && !site.ended(other));
}
