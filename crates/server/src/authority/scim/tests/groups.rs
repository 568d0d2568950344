//! Groups of a SCIM client that give roles, and take them.

use std::collections::BTreeSet;

use sallyport_store::{Op, typed};

use super::super::records::{ScimNameRecord, ScimRecord, name_key, resource_key};
use super::*;
use crate::authority::records::UserRecord;

const PATCH: &str = "urn:ietf:params:scim:api:messages:2.0:PatchOp";

impl Site {
    /// With a connector whose mapping reads the groups of its SCIM client, and a token of that: provisioned groups give `access`, the
    /// provider's claim gives `auditor`.
    async fn with_groups(more: &str) -> (Self, String) {
        let site = Self::new().await;
        let document = site.document("corp", more);
        let document = document
            .replace("claim: groups, value: 'ops-*'", "claim: scim.groups, value: 'Ops*'")
            .replace("traits: {", "traits: {teams: ['{{claims.scim.groups}}'], ");
        let connector = Connector::parse(&document).unwrap();
        site.authority
            .services
            .connectors
            .write(&Caller::LocalAdmin, connector, Write::Replace)
            .await
            .unwrap();
        let token = site.token("corp").await.token;
        (site, token)
    }

    async fn group(&self, token: &str, name: &str, members: &[&str]) -> String {
        let members: Vec<Value> = members.iter().map(|member| json!({ "value": member })).collect();
        let body = json!({ "schemas": [GROUP], "displayName": name, "members": members });
        let (status, made) = self.scim(token, "POST", "/Groups", &body).await;
        assert_eq!(status, 201, "{made}");
        made["id"].as_str().unwrap().to_owned()
    }

    async fn patch(&self, token: &str, group: &str, operation: Value) {
        let body = json!({ "schemas": [PATCH], "Operations": [operation] });
        let (status, said) = self.scim(token, "PATCH", &format!("/Groups/{group}"), &body).await;
        assert_eq!(status, 204, "{said}");
    }

    async fn takes_out(&self, token: &str, group: &str, member: &str) {
        let path = format!("members[value eq \"{member}\"]");
        self.patch(token, group, json!({ "op": "remove", "path": path })).await;
    }

    fn roles(&self, user: &UserName) -> Vec<String> {
        let user = self.authority.services.identities.user(user);
        user.map(|user| user.roles.iter().map(ToString::to_string).collect()).unwrap_or_default()
    }

    /// A login by a person of whom the provider says these groups.
    async fn comes(&self, subject: &str, groups: &[&str]) -> Result<(UserName, Uuid), &'static str> {
        self.at_the_provider(subject, &format!("user{subject}"), groups);
        let user = self.log_in().await?.0.user;
        let id = Uuid::now_v7();
        let step = open_login(&user, id, now() + Duration::from_secs(3600), None).unwrap();
        self.authority.services.store.backend().transact(vec![step], now()).await.unwrap();
        Ok((user, id))
    }

    /// What is known of the connector is what is stored.
    async fn knows_what_is_stored(&self) {
        let corp = ResourceName::new("corp").unwrap();
        let provisioning = self.provisioning();
        let kept = provisioning.known(&corp).await.unwrap();
        provisioning.known.lock().clear();
        let read = provisioning.known(&corp).await.unwrap();
        assert_eq!(kept.held, read.held);
        // The order in which a member's groups were made is not kept.
        let sorted = |known: &super::super::known::Known| known.members.clone().sorted();
        assert_eq!(sorted(&kept), sorted(&read));
    }
}

#[tokio::test]
async fn a_group_gives_a_role_from_the_next_login_on_and_takes_it_at_once() {
    let (site, token) = Site::with_groups("").await;
    let user1 = site.made(&token, "user1").await;
    // What the provider says of its groups is no word of the client's, whatever it calls them.
    assert_eq!(site.comes("1", &["Ops"]).await.unwrap_err(), "no_roles");
    let mut said = site.said().await;
    said.token.insert("scim".to_owned(), json!({ "groups": ["Ops"] }));
    assert_eq!(site.admit(&said, now()).await.map(drop).unwrap_err(), "no_roles");

    let group = site.group(&token, "Ops EU", &[&user1]).await;
    let (user, login) = site.comes("1", &["auditors"]).await.unwrap();
    assert_eq!(site.roles(&user), ["access", "auditor"]);
    let expires = async || {
        let stored = site.authority.services.store.get::<UserRecord>(user.as_str(), now()).await.unwrap();
        stored.unwrap().expires
    };
    let before = expires().await;
    // What gives more, and what changes nothing for the person, ends no login.
    let user2 = site.made(&token, "user2").await;
    site.patch(&token, &group, json!({ "op": "add", "path": "members", "value": [{ "value": user2 }] }))
        .await;
    site.group(&token, "Ops US", &[&user1]).await;
    site.takes_out(&token, &group, &user2).await;
    assert!(!site.is_locked(login));
    site.takes_out(&token, &group, &user1).await;
    // Another group gives the role still, and a trait was given by the one that is gone.
    assert!(site.is_locked(login));
    assert_eq!(site.roles(&user), ["access", "auditor"]);
    assert_eq!(expires().await, before, "the login's time is what it was");
    let events = site.events("SP1065I").await;
    assert_eq!(
        (&events[0]["fields"]["lost"], &events[0]["fields"]["roles"]),
        (&json!(""), &json!("access, auditor"))
    );

    let (_, login) = site.comes("1", &["auditors"]).await.unwrap();
    let (_, groups) = site.scim(&token, "GET", &format!("/Users/{user1}"), &Value::Null).await;
    let last = groups["groups"][0]["value"].as_str().unwrap().to_owned();
    assert_eq!(site.scim(&token, "DELETE", &format!("/Groups/{last}"), &Value::Null).await.0, 204);
    assert!(site.is_locked(login));
    assert_eq!(site.roles(&user), ["auditor"], "what the login gave stays");
    let events = site.events("SP1065I").await;
    let fields = &events[1]["fields"];
    assert_eq!(
        (&fields["name"], &fields["lost"], &fields["ended_logins"]),
        (&json!("user1"), &json!("access"), &json!(1))
    );
    assert!(
        fields["trace"].as_str().unwrap().contains("rule 1 (scim.groups): there is no claim"),
        "{fields}"
    );
    // Without any role there is no user.
    let last = site.group(&token, "Ops", &[&user1]).await;
    let (user, login) = site.comes("1", &[]).await.unwrap();
    site.patch(&token, &last, json!({ "op": "replace", "path": "displayName", "value": "Gardeners" })).await;
    assert!(site.is_locked(login) && !site.has(&user));
    assert_eq!(site.comes("1", &[]).await.unwrap_err(), "no_roles");
    site.knows_what_is_stored().await;
}

#[tokio::test]
async fn a_removal_while_a_person_logs_in_never_yields_the_role() {
    let (site, token) = Site::with_groups("").await;
    let user1 = site.made(&token, "user1").await;
    let group = site.group(&token, "Ops", &[&user1]).await;
    // The provider has answered, and the client's word comes before the authority uses that.
    site.at_the_provider("1", "user1", &["auditors"]);
    let said = site.said().await;
    site.takes_out(&token, &group, &user1).await;
    let (admitted, verdict) = site.admit(&said, now()).await.unwrap();
    assert_eq!(site.roles(&admitted.user), ["auditor"]);
    assert!(verdict.told().contains("there is no claim scim.groups"), "{}", verdict.told());
    // The authority has made the person a user, and the client's word comes before the login is opened: what the login was proven
    // with is not what the user is by then.
    site.patch(&token, &group, json!({ "op": "add", "path": "members", "value": [{ "value": user1 }] }))
        .await;
    let (admitted, _) = site.admit(&said, now()).await.unwrap();
    let store = &site.authority.services.store;
    let read = store.get::<UserRecord>(admitted.user.as_str(), now()).await.unwrap().unwrap();
    assert_eq!(site.roles(&admitted.user), ["access", "auditor"]);
    site.takes_out(&token, &group, &user1).await;
    let proven = crate::authority::challenges::kept::Challenges::user_as_read(&admitted.user, read.revision);
    assert!(store.backend().transact(vec![proven], now()).await.is_err());
    assert_eq!(site.roles(&admitted.user), ["auditor"]);
    // While a client's word is being taken, no login is admitted by what it was before.
    site.patch(&token, &group, json!({ "op": "add", "path": "members", "value": [{ "value": user1 }] }))
        .await;
    let taking = site.provisioning().changing.write().await;
    let late = site.admit(&said, now());
    tokio::pin!(late);
    assert!(futures::poll!(&mut late).is_pending());
    drop(taking);
    late.await.unwrap();
    assert_eq!(site.roles(&admitted.user), ["access", "auditor"]);
}

#[tokio::test]
async fn groups_in_groups_count_and_all_members_of_a_group_lose_with_it() {
    let (site, token) = Site::with_groups("").await;
    let mut members = Vec::new();
    for at in 1..=7 {
        members.push(site.made(&token, &format!("user{at}")).await);
    }
    let ids: Vec<&str> = members.iter().map(String::as_str).collect();
    let inner = site.group(&token, "crew", &ids).await;
    let middle = site.group(&token, "staff", &[&inner]).await;
    let outer = site.group(&token, "Ops", &[&middle]).await;
    // One above another: each is counted once.
    site.patch(&token, &inner, json!({ "op": "add", "path": "members", "value": [{ "value": outer }] }))
        .await;
    let mut logins = Vec::new();
    for at in 1..=7 {
        logins.push(site.comes(&at.to_string(), &["auditors"]).await.unwrap());
    }
    assert!(logins.iter().all(|(user, _)| site.roles(user) == ["access", "auditor"]));
    // More than one transaction takes.
    site.takes_out(&token, &outer, &middle).await;
    for (user, login) in &logins {
        assert!(site.is_locked(*login), "{user}");
        assert_eq!(site.roles(user), ["auditor"], "{user}");
    }
    let taken: BTreeSet<String> = site
        .events("SP1065I")
        .await
        .iter()
        .map(|event| event["fields"]["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(taken.len(), 7);
    site.knows_what_is_stored().await;
    // Who is removed is in no group any more, and the others stay where they are.
    assert_eq!(site.scim(&token, "DELETE", &format!("/Users/{}", ids[0]), &Value::Null).await.0, 204);
    assert_eq!(site.scim(&token, "DELETE", &format!("/Groups/{inner}"), &Value::Null).await.0, 204);
    site.knows_what_is_stored().await;
}

#[tokio::test]
async fn a_connector_has_so_many_people_and_its_client_is_told_which_setting_says_so() {
    let (site, token) = Site::with_groups("  max_people: 2\n").await;
    let first = site.made(&token, "user1").await;
    site.made(&token, "user2").await;
    let body = json!({ "schemas": [USER], "userName": "user3" });
    let (status, said) = site.scim(&token, "POST", "/Users", &body).await;
    let detail = said["detail"].as_str().unwrap();
    assert_eq!(status, 507);
    assert!(detail.contains("no more than 2 of kind User") && detail.contains("max_people"), "{detail}");
    // Groups are no people, and who leaves makes place.
    site.group(&token, "Ops", &[&first]).await;
    site.activate(&token, &first, false).await;
    assert_eq!(site.scim(&token, "DELETE", &format!("/Users/{first}"), &Value::Null).await.0, 204);
    site.made(&token, "user3").await;
    site.knows_what_is_stored().await;
}

#[tokio::test]
async fn trying_a_connector_shows_the_groups_that_its_client_says() {
    let (site, token) = Site::with_groups("").await;
    let user1 = site.made(&token, "user1").await;
    site.group(&token, "Ops", &[&user1]).await;
    site.at_the_provider("1", "user1", &[]);
    let mut said = site.said().await;
    let connectors = &site.authority.services.connectors;
    let remote = connectors.remote("corp", now()).await.unwrap();
    let (verdict, would_be) = connectors.would_be(remote.connector(), &mut said, now()).await;
    assert_eq!(would_be.map_err(|_| ()).unwrap().name.as_str(), "user1");
    assert!(verdict.told().contains("rule 1 (scim.groups): Ops gives access"), "{}", verdict.told());
    assert_eq!(said.groups, Some(BTreeSet::from(["Ops".to_owned()])));
    assert!(
        site.authority.services.identities.user(&UserName::new("user1").unwrap()).is_none(),
        "nothing is stored"
    );
    // One that is not stored has no client, and another provider's people are not those whom one speaks of.
    let fresh = Connector::parse(&site.document("fresh", "")).unwrap();
    let mut said = site.said().await;
    connectors.would_be(&fresh, &mut said, now()).await.1.map(drop).unwrap_err();
    assert_eq!(said.groups, None);
}

/// How long a client waits, and what the index takes. `SALLYPORT_TEST_DIRECTORY=10000,1000` is the size of a large company, in an
/// optimised build.
#[tokio::test]
async fn a_large_directory_answers_quickly() {
    let size = std::env::var("SALLYPORT_TEST_DIRECTORY").unwrap_or_else(|_| "600,60".to_owned());
    let (users, groups) =
        size.split_once(',').map(|(u, g)| (u.parse().unwrap(), g.parse().unwrap())).unwrap();
    let (site, token) = Site::with_groups("").await;
    let (users, groups): (usize, usize) = (users, groups);
    let corp = ResourceName::new("corp").unwrap();
    let store = &site.authority.services.store;
    // The first user and group as a client makes them; the others by these, without a request for each.
    let user1 = site.made(&token, "user1").await;
    let group1 = site.group(&token, "Ops", &[&user1]).await;
    let record = async |kind, id: &str| {
        store.get::<ScimRecord>(&resource_key(&corp, kind, id), now()).await.unwrap().unwrap().value.resource
    };
    let user = record(sallyport_scim::Kind::User, &user1).await;
    let group = serde_json::to_value(record(sallyport_scim::Kind::Group, &group1).await).unwrap();
    let mut ids = vec![user1.clone()];
    let mut steps: Vec<Op> = Vec::new();
    for at in 2..=users {
        let mut other = serde_json::to_value(&user).unwrap();
        let id = Uuid::now_v7().to_string();
        (other["id"], other["attributes"]["userName"]) = (json!(id), json!(format!("user{at}")));
        let owner = ScimNameRecord { connector: corp.clone(), id: id.clone() };
        steps.push(typed::create(&name_key(&format!("user{at}")), &owner, None).unwrap());
        let record = ScimRecord { resource: serde_json::from_value(other).unwrap() };
        steps.push(
            typed::create(&resource_key(&corp, sallyport_scim::Kind::User, &id), &record, None).unwrap(),
        );
        ids.push(id);
    }
    for at in 2..=groups {
        let mut other = group.clone();
        let id = Uuid::now_v7().to_string();
        // Each user is in ten groups or so.
        let members = ids.iter().enumerate().filter(|(user, _)| (user + at) % groups.div_ceil(10) == 0);
        let members: Vec<Value> = members.map(|(_, id)| json!({ "value": id, "type": "User" })).collect();
        (other["id"], other["attributes"]["members"]) = (json!(id), json!(members));
        other["attributes"]["displayName"] = json!(format!("team {at}"));
        let record = ScimRecord { resource: serde_json::from_value(other).unwrap() };
        steps.push(
            typed::create(&resource_key(&corp, sallyport_scim::Kind::Group, &id), &record, None).unwrap(),
        );
    }
    let mut steps = steps.into_iter().peekable();
    while steps.peek().is_some() {
        let some: Vec<Op> = steps.by_ref().take(500).collect();
        store.backend().transact(some, now()).await.unwrap();
    }
    let provisioning = site.provisioning();
    provisioning.known.lock().clear();
    let mut began = Instant::now();
    let mut lap = |what: &str| {
        let took = began.elapsed();
        println!("{users} users in {groups} groups: {what} {took:?}");
        began = Instant::now();
        took
    };
    let known = provisioning.known(&corp).await.unwrap();
    lap("the index is read in");
    assert_eq!((known.held.users, known.held.resources), (users, users + groups));
    drop(known);
    let one = site.scim(&token, "GET", &format!("/Users/{}", ids[users / 2]), &Value::Null).await.1;
    assert!(!one["groups"].as_array().unwrap().is_empty(), "{one}");
    let mut slowest = lap("a user is shown in");
    let page = site.scim(&token, "GET", "/Users?count=200&startIndex=101", &Value::Null).await.1;
    assert_eq!(page["totalResults"], users);
    slowest = slowest.max(lap("a page of 200 is shown in"));
    site.at_the_provider("1", "user1", &[]);
    let said = site.said().await;
    lap("(the provider answers in)");
    site.admit(&said, now()).await.unwrap();
    slowest = slowest.max(lap("a person is admitted in"));
    site.takes_out(&token, &group1, &user1).await;
    slowest = slowest.max(lap("a member is taken out in"));
    assert_eq!(site.scim(&token, "DELETE", &format!("/Users/{}", ids[1]), &Value::Null).await.0, 204);
    slowest = slowest.max(lap("a user is removed in"));
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    site.knows_what_is_stored().await;
}
