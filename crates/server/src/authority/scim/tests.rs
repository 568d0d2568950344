//! A SCIM client and a person who logs in by the connector that it provisions.

mod connectors;
mod external_ids;
mod groups;
mod names;

use std::time::{Duration, Instant};

use sallyport_access::{ResourceName, UserName};
use sallyport_scim::contract;
use sallyport_wire::convert::duration_to_proto;
use sallyport_wire::v1;
use sallyport_wire::v1::admin_server::Admin as _;
use serde_json::{Value, json};
use time::OffsetDateTime;
use tonic::Code;
use uuid::Uuid;

use super::directory::Directory;
use super::provisioning::Provisioning;
use crate::authority::caller::{Caller, NOWHERE, TellingHost};
use crate::authority::identities::logins::open_login;
use crate::authority::sso::connector::Connector;
use crate::authority::sso::tests::Site;
use crate::authority::sso::tests::people::local;
use crate::authority::storage::Write;
use crate::dialling::PeerInfo;
use crate::places::Seen;

/// The proxy that hands requests on.
fn told_by() -> TellingHost {
    TellingHost { id: "00000000-0000-0000-0000-000000000007".parse().unwrap(), name: "proxy-1".into() }
}

const CLIENT: Caller = Caller::Anonymous { from: PeerInfo::direct(NOWHERE) };
const GROUP: &str = "urn:ietf:params:scim:schemas:core:2.0:Group";
const USER: &str = "urn:ietf:params:scim:schemas:core:2.0:User";

fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

impl Site {
    fn provisioning(&self) -> &Provisioning {
        &self.authority.services.api.provisioning.provisioning
    }

    async fn token(&self, connector: &str) -> v1::AddScimTokenResponse {
        let request = v1::AddScimTokenRequest { connector: connector.to_owned(), ttl: None };
        self.provisioning().add_token(&Caller::LocalAdmin, request).await.unwrap()
    }

    async fn scim(&self, token: &str, method: &str, path: &str, body: &Value) -> (u32, Value) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let json = ("Content-Type".to_owned(), "application/scim+json".to_owned());
        let request = v1::ScimRequest {
            token: token.to_owned(),
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            headers: vec![v1::ScimHeader { name: json.0, value: json.1 }],
            body: body.to_string().into_bytes().into(),
            client_addr: "192.0.2.7:4711".to_owned(),
        };
        let answer = self.provisioning().answer(told_by(), request).await.unwrap();
        (answer.status, serde_json::from_slice(&answer.body).unwrap_or_default())
    }

    async fn made(&self, token: &str, name: &str) -> String {
        let body = json!({ "schemas": [USER], "userName": name });
        let (status, made) = self.scim(token, "POST", "/Users", &body).await;
        assert_eq!(status, 201, "{made}");
        made["id"].as_str().unwrap().to_owned()
    }

    async fn activate(&self, token: &str, id: &str, active: bool) {
        let operations = json!([{ "op": "Replace", "path": "active", "value": active.to_string() }]);
        let body =
            json!({ "schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"], "Operations": operations });
        assert_eq!(self.scim(token, "PATCH", &format!("/Users/{id}"), &body).await.0, 200);
    }

    /// A person logs in at the provider, and opens a login here: the user's name and the login.
    async fn enters(&self, subject: &str, called: &str) -> Result<(UserName, Uuid), &'static str> {
        self.at_the_provider(subject, called, &["ops-eu"]);
        let user = self.log_in().await?.0.user;
        let id = self.opened(&user).await;
        Ok((user, id))
    }

    async fn opened(&self, user: &UserName) -> Uuid {
        let id = Uuid::now_v7();
        let step = open_login(user, id, now() + Duration::from_secs(3600), None).unwrap();
        self.authority.services.store.backend().transact(vec![step], now()).await.unwrap();
        id
    }

    fn is_locked(&self, login: Uuid) -> bool {
        self.login_ended(login)
    }

    fn has(&self, name: &UserName) -> bool {
        self.authority.services.identities.user(name).is_some()
    }

    async fn events(&self, code: &str) -> Vec<Value> {
        let mut found = Vec::new();
        let asked = v1::SearchEventsRequest::default();
        let mut answers =
            self.authority.services.api.admin.clone().search_events(local(asked)).await.unwrap().into_inner();
        while let Some(record) = tokio_stream::StreamExt::next(&mut answers).await {
            let event: Value = serde_json::from_str(&record.unwrap().event_json).unwrap();
            if event["code"] == code {
                found.push(event);
            }
        }
        found
    }
}

#[tokio::test]
async fn the_directory_in_the_state_keeps_the_contract() {
    let site = Site::new().await;
    let local_user = v1::CreateUserRequest { name: "local".to_owned(), ..Default::default() };
    site.authority.services.api.admin.clone().create_user(local(local_user)).await.unwrap();
    let (mine, other) = (ResourceName::new("mine").unwrap(), ResourceName::new("other").unwrap());
    for name in ["mine", "other"] {
        site.connect(name, "").await;
    }
    let of = |connector| Directory::new(site.provisioning(), connector, &CLIENT);
    contract::suite(&of(&mine), &of(&other)).await;
}

#[tokio::test]
async fn who_leaves_is_cut_at_once_and_comes_back_only_when_the_client_says_so() {
    let site = Site::new().await;
    // Without a SCIM client, the mapping alone decides.
    let (early, _) = site.enters("0", "early").await.unwrap();
    let token = site.token("corp").await.token;
    let alice = site.made(&token, "Alice").await;
    // From now on only who is provisioned logs in.
    assert_eq!(site.enters("2", "mallory").await.unwrap_err(), "not_provisioned");
    assert_eq!(site.enters("0", "early").await.unwrap_err(), "not_provisioned");
    let (user, login) = site.enters("1", "alice").await.unwrap();
    assert!(site.has(&user) && !site.is_locked(login));
    let began = Instant::now();
    site.activate(&token, &alice, false).await;
    // The lock is in force when the client has its answer: proxies and nodes hear of it as of every other.
    assert!(site.is_locked(login) && !site.has(&user));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(site.enters("1", "alice").await.unwrap_err(), "not_provisioned");
    site.activate(&token, &alice, true).await;
    let (again, second) = site.enters("1", "alice").await.unwrap();
    assert_eq!(again, user);
    // The client renames its user, who is the same person; and then removes it.
    let body = json!({ "schemas": [USER], "userName": "alice.married", "active": true });
    assert_eq!(site.scim(&token, "PUT", &format!("/Users/{alice}"), &body).await.0, 200);
    assert!(site.has(&user));
    // Also to a provider whose tokens still have the former name.
    assert_eq!(site.enters("1", "alice").await.unwrap().0, user);
    let (same, third) = site.enters("1", "alice.married").await.unwrap();
    assert_eq!(same, user);
    assert_eq!(site.scim(&token, "DELETE", &format!("/Users/{alice}"), &Value::Null).await.0, 204);
    assert!(site.is_locked(second) && site.is_locked(third) && !site.has(&user));
    assert_eq!(site.enters("1", "alice.married").await.unwrap_err(), "not_provisioned");
    // Others stay as they were.
    assert!(site.has(&early));
    let ended = site.events("SP1063I").await;
    assert_eq!(ended.len(), 2, "{ended:?}");
    assert_eq!(
        (&ended[0]["fields"]["name"], &ended[0]["fields"]["connector"]),
        (&json!("alice"), &json!("corp"))
    );
    assert_eq!(ended[0]["source"], "192.0.2.7:4711");
    let changed = site.events("SP1062I").await;
    let what: Vec<&str> = changed.iter().map(|event| event["fields"]["what"].as_str().unwrap()).collect();
    assert_eq!(what, ["created", "deactivated", "activated", "changed", "deleted"]);
}

#[tokio::test]
async fn a_person_stays_the_clients_user_that_they_first_were() {
    let site = Site::new().await;
    let token = site.token("corp").await.token;
    let alice = site.made(&token, "alice").await;
    site.made(&token, "bob").await;
    site.made(&token, "carol").await;
    let (user, login) = site.enters("1", "alice").await.unwrap();
    site.enters("2", "bob").await.unwrap();
    // Whatever the provider calls them by now, and before the client does: no one is two of the client's users, and each is one person.
    for called in ["bob", "carol", "alice.married"] {
        assert_eq!(site.enters("1", called).await.unwrap().0, user, "{called}");
    }
    assert!(!site.has(&UserName::new("carol").unwrap()));
    site.activate(&token, &alice, false).await;
    assert!(site.is_locked(login) && !site.has(&user));
    for called in ["alice", "bob", "carol"] {
        assert_eq!(site.enters("1", called).await.unwrap_err(), "not_provisioned", "{called}");
        assert!(!site.has(&user));
    }
    site.activate(&token, &alice, true).await;
    assert_eq!(site.enters("1", "alice").await.unwrap().0, user);
    // A person who calls themselves like a colleague does not take the colleague's place before the colleague is gone.
    assert_eq!(site.enters("4", "alice").await.unwrap_err(), "name_taken");
    // A person whom the client has removed does not come back by calling themselves like a colleague who has not come yet.
    assert_eq!(site.scim(&token, "DELETE", &format!("/Users/{alice}"), &Value::Null).await.0, 204);
    for called in ["alice", "bob", "carol"] {
        assert_eq!(site.enters("1", called).await.unwrap_err(), "not_provisioned", "{called}");
        assert!(!site.has(&user));
    }
    let said = site.said().await;
    let refused = site.would_be_refused("corp", &said).await;
    assert!(refused.contains("whom it has removed") && refused.contains("scim.external_id"), "{refused}");
    let (carols, _) = site.enters("3", "carol").await.unwrap();
    // What the client makes anew under the name that it had is theirs again, whatever it is called after that.
    let anew = site.made(&token, "ALICE").await;
    let (same, _) = site.enters("1", "alice").await.unwrap();
    assert_eq!(same, user);
    let body = json!({ "schemas": [USER], "userName": "alice.married", "active": true });
    assert_eq!(site.scim(&token, "PUT", &format!("/Users/{anew}"), &body).await.0, 200);
    let (same, login) = site.enters("1", "alice.married").await.unwrap();
    assert_eq!(same, user);
    site.activate(&token, &anew, false).await;
    assert!(site.is_locked(login) && !site.has(&user) && site.has(&carols));
}

#[tokio::test]
async fn who_was_removed_and_came_without_a_client_leaves_with_the_user_of_their_name() {
    let site = Site::new().await;
    let first = site.token("corp").await;
    let alice = site.made(&first.token, "alice").await;
    site.enters("1", "alice").await.unwrap();
    assert_eq!(site.scim(&first.token, "DELETE", &format!("/Users/{alice}"), &Value::Null).await.0, 204);
    let request = v1::RemoveScimTokenRequest { connector: "corp".to_owned(), name: first.name };
    site.provisioning().remove_token(&Caller::LocalAdmin, request).await.unwrap();
    let (user, login) = site.enters("1", "alice").await.unwrap();
    let token = site.token("corp").await.token;
    let alice = site.made(&token, "alice").await;
    site.activate(&token, &alice, false).await;
    assert!(site.is_locked(login) && !site.has(&user));
}

#[tokio::test]
async fn who_came_before_the_client_leaves_with_the_user_of_their_name() {
    let site = Site::new().await;
    let (early, login) = site.enters("1", "early").await.unwrap();
    let (late, other) = site.enters("2", "late").await.unwrap();
    let token = site.token("corp").await.token;
    let id = site.made(&token, "EARLY").await;
    site.activate(&token, &id, false).await;
    assert!(site.is_locked(login) && !site.has(&early));
    assert!(!site.is_locked(other) && site.has(&late));
    // One of the name is left alone who is another of the client's users.
    let renamed = site.made(&token, "late").await;
    site.enters("2", "late").await.unwrap();
    let body = json!({ "schemas": [USER], "userName": "late.married", "active": true });
    assert_eq!(site.scim(&token, "PUT", &format!("/Users/{renamed}"), &body).await.0, 200);
    let namesake = site.made(&token, "late").await;
    site.activate(&token, &namesake, false).await;
    assert!(!site.is_locked(other) && site.has(&late));
    site.activate(&token, &renamed, false).await;
    assert!(site.is_locked(other) && !site.has(&late));
}

#[tokio::test]
async fn nothing_of_a_client_outlives_its_connector() {
    let site = Site::new().await;
    let connectors = &site.authority.services.connectors;
    let token = site.token("corp").await.token;
    let alice = site.made(&token, "alice").await;
    for name in ["bob", "carol", "dave"] {
        site.made(&token, name).await;
    }
    let group = json!({ "schemas": [GROUP], "displayName": "all", "members": [{ "value": alice }] });
    assert_eq!(site.scim(&token, "POST", "/Groups", &group).await.0, 201);
    site.enters("1", "alice").await.unwrap();
    // The people of another issuer are not those whom the client speaks of.
    let elsewhere = "kind: oidc\nversion: v1\nmetadata: {name: corp}\nspec:\n  issuer: https://idp.example\n  client_id: sallyport\n  \
                     private_key_jwt: {algorithm: ES256}\n  mapping: {roles: [{claim: sub, roles: [access]}]}\n";
    let elsewhere = Connector::parse(elsewhere).unwrap();
    let refused = connectors.write(&Caller::LocalAdmin, elsewhere, Write::Replace).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    site.connect("corp", "").await;

    connectors.delete(&Caller::LocalAdmin, "oidc", "corp").await.unwrap();
    assert_eq!(site.scim(&token, "GET", "/Users", &Value::Null).await.0, 401);
    assert_eq!(site.provisioning().list_tokens().await.unwrap().tokens.len(), 0);
    for kind in ["scim_token/", "scim_resource/", "scim_name/", "scim_link/", "scim_person/", "scim_binding/"]
    {
        let left = site.authority.services.store.backend().list(kind, None, 10, now()).await.unwrap();
        assert!(left.is_empty(), "{kind}: {left:?}");
    }
    // One of the name begins with nothing.
    site.connect("corp", "").await;
    let next = site.token("corp").await.token;
    assert_eq!(site.scim(&token, "GET", "/Users", &Value::Null).await.0, 401);
    let (_, users) = site.scim(&next, "GET", "/Users", &Value::Null).await;
    assert_eq!(users["totalResults"], 0);
    assert_eq!(site.enters("1", "alice").await.unwrap_err(), "not_provisioned");
    site.made(&next, "alice").await;
    site.enters("1", "alice").await.unwrap();
}

#[tokio::test]
async fn a_stranger_is_bounded_and_a_good_token_is_not_kept_out_by_one() {
    let site = Site::new().await;
    let token = site.token("corp").await.token;
    let strangers = Seen { address: "192.0.2.7".parse().unwrap(), told_by: Some(told_by().id) };
    let mut last = 0;
    // Twice, since a minute may end meanwhile.
    for _ in 0..2 {
        for _ in 0..600 {
            site.provisioning().guesses.admits_call(strangers, None, now());
        }
        last = site.scim("corp:guessed-it", "GET", "/Users", &Value::Null).await.0;
        if last == 503 {
            break;
        }
    }
    // Past a minute's calls the address is answered without a word on record.
    assert_eq!(last, 503);
    assert_eq!(site.scim(&token, "GET", "/Users", &Value::Null).await.0, 200);
}

#[tokio::test]
async fn local_users_and_those_of_other_connectors_are_out_of_reach() {
    let site = Site::new().await;
    site.connect("other", "").await;
    let request = v1::CreateUserRequest { name: "root".to_owned(), ..Default::default() };
    site.authority.services.api.admin.clone().create_user(local(request)).await.unwrap();
    let (corp, other) = (site.token("corp").await.token, site.token("other").await.token);
    let alice = site.made(&corp, "alice").await;
    let (user, login) = site.enters("1", "alice").await.unwrap();
    for name in ["root", "ROOT", "alice"] {
        let body = json!({ "schemas": [USER], "userName": name, "active": false });
        assert_eq!(site.scim(&other, "POST", "/Users", &body).await.0, 409, "{name}");
    }
    let path = format!("/Users/{alice}");
    let body = json!({ "schemas": [USER], "userName": "alice", "active": false });
    for (method, body) in [("GET", &Value::Null), ("PUT", &body), ("DELETE", &Value::Null)] {
        assert_eq!(site.scim(&other, method, &path, body).await.0, 404, "{method}");
    }
    assert!(site.has(&user) && !site.is_locked(login) && site.has(&UserName::new("root").unwrap()));
    // An administrator removes the user, and makes one of the name once the client calls its own otherwise: that one is the cluster's own.
    let admin = site.authority.services.api.admin.clone();
    let gone = v1::DeleteResourceRequest { kind: "user".to_owned(), name: "alice".to_owned() };
    admin.delete_resource(local(gone)).await.unwrap();
    let body = json!({ "schemas": [USER], "userName": "alice.married", "active": true });
    assert_eq!(site.scim(&corp, "PUT", &path, &body).await.0, 200);
    let request = v1::CreateUserRequest { name: "alice".to_owned(), ..Default::default() };
    admin.create_user(local(request)).await.unwrap();
    assert_eq!(site.scim(&corp, "DELETE", &path, &Value::Null).await.0, 204);
    assert!(site.has(&user), "a user of the cluster's own is not removed by SCIM");
    assert!(site.events("SP1063I").await.is_empty());
}

#[tokio::test]
async fn tokens_overlap_end_and_open_their_own_connector_alone() {
    let site = Site::new().await;
    site.connect("other", "").await;
    let provisioning = site.provisioning();
    let add = |connector: &str, ttl: Option<Duration>| {
        let request =
            v1::AddScimTokenRequest { connector: connector.to_owned(), ttl: ttl.map(duration_to_proto) };
        provisioning.add_token(&Caller::LocalAdmin, request)
    };
    assert_eq!(add("nowhere", None).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(add("no/name", None).await.unwrap_err().code(), Code::InvalidArgument);
    for ttl in [59, 367 * 86_400] {
        assert_eq!(
            add("corp", Some(Duration::from_secs(ttl))).await.unwrap_err().code(),
            Code::InvalidArgument
        );
    }
    assert_eq!(add("corp", None).await.unwrap().url, "https://proxy.example.com/scim/v2");
    let (first, second) = (site.token("corp").await, site.token("corp").await);
    let status = async |token: &str| site.scim(token, "GET", "/Users", &Value::Null).await.0;
    // Both are good until one is removed.
    assert_eq!((status(&first.token).await, status(&second.token).await), (200, 200));
    let remove = |name: &str| {
        let request = v1::RemoveScimTokenRequest { connector: "corp".to_owned(), name: name.to_owned() };
        provisioning.remove_token(&Caller::LocalAdmin, request)
    };
    remove(&first.name).await.unwrap();
    assert_eq!(remove(&first.name).await.unwrap_err().code(), Code::NotFound);
    assert_eq!((status(&first.token).await, status(&second.token).await), (401, 200));
    // One that is over, and what is none.
    let later = now() + Duration::from_secs(181 * 86_400);
    assert_eq!(provisioning.connector_of(&second.token, later).await.unwrap(), None);
    let secret = second.token.split_once(':').unwrap().1;
    for guessed in [
        "",
        ":",
        "corp",
        "corp:",
        &format!("other:{secret}"),
        &format!("corp:{}", &secret[..8]),
        &format!("{}x", second.token),
        "corp:../../../",
        secret,
        &format!("{secret}:"),
    ] {
        assert_eq!(status(guessed).await, 401, "{guessed}");
    }
    let refused = site.events("SP1064W").await;
    assert!(
        !refused.is_empty() && refused.iter().all(|event| !event.to_string().contains(secret)),
        "{refused:?}"
    );
    // The list says no secrets, and there is a bound.
    let listed = provisioning.list_tokens().await.unwrap().tokens;
    assert_eq!(listed.len(), 2);
    for _ in 0..6 {
        add("corp", None).await.unwrap();
    }
    assert_eq!(add("corp", None).await.unwrap_err().code(), Code::FailedPrecondition);
    add("other", None).await.unwrap();
}
