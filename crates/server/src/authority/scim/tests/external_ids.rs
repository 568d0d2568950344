//! A connector that knows a client's user by its `externalId`.

use super::*;
use crate::authority::sso::claims::Claims;

impl Site {
    async fn with_external_ids() -> (Self, String) {
        let site = Self::new().await;
        site.connect("corp", "  scim: {external_id: '{{claims.oid}}'}\n").await;
        let token = site.token("corp").await.token;
        (site, token)
    }

    async fn known_as(&self, token: &str, name: &str, external_id: &str) -> String {
        let body = json!({ "schemas": [USER], "userName": name, "externalId": external_id });
        let (status, made) = self.scim(token, "POST", "/Users", &body).await;
        assert_eq!(status, 201, "{made}");
        made["id"].as_str().unwrap().to_owned()
    }

    /// What the provider says of a person.
    async fn says(&self, subject: &str, called: &str, oid: Value) -> Claims {
        self.at_the_provider(subject, called, &["ops-eu"]);
        let mut said = self.said().await;
        said.token.insert("oid".to_owned(), oid);
        said
    }
}

#[tokio::test]
async fn where_the_connector_looks_at_it_the_external_id_finds_the_clients_user_and_no_name_does() {
    let (site, token) = Site::with_external_ids().await;
    let alice = site.known_as(&token, "alice", "a-1").await;
    site.made(&token, "carol").await;
    // Who writes another's name, and not their identifier, is not that one.
    for (called, oid, why) in [
        ("alice", json!("m-1"), "has not the externalId \"m-1\""),
        ("alice", json!("A-1"), "has not the externalId"),
        ("alice", json!(""), "gives no one text"),
        ("alice", json!([]), "gives no one text"),
        ("alice", json!(["a-1", "m-1"]), "gives no one text"),
        ("alice", json!({ "oid": "a-1" }), "gives no one text"),
        ("alice", Value::Null, "gives no one text"),
        ("carol", json!("m-1"), "has not the externalId"),
        ("carol", json!(""), "gives no one text"),
        // The name has to be what the client calls the user, too.
        ("alice.married", json!("a-1"), "no active user"),
        ("carol", json!("a-1"), "has not the externalId"),
    ] {
        let said = site.says("9", called, oid.clone()).await;
        let told = site.would_be_refused("corp", &said).await;
        assert!(told.contains(why), "{called} {oid}: {told}");
        assert_eq!(site.comes_by("corp", &said).await.unwrap_err(), "not_provisioned", "{called} {oid}");
    }
    let said = site.says("1", "alice", json!("a-1")).await;
    let user = site.comes_by("corp", &said).await.unwrap();
    // From then on the two are one, whatever identifier the client gives the user, and no other person is.
    let body = json!({ "schemas": [USER], "userName": "alice", "externalId": "a-2" });
    assert_eq!(site.scim(&token, "PUT", &format!("/Users/{alice}"), &body).await.0, 200);
    assert_eq!(site.comes_by("corp", &said).await.unwrap(), user);
    // The identifier finds the user that the client makes anew under another name.
    assert_eq!(site.scim(&token, "DELETE", &format!("/Users/{alice}"), &Value::Null).await.0, 204);
    assert_eq!(site.comes_by("corp", &said).await.unwrap_err(), "not_provisioned");
    site.known_as(&token, "alice.married", "a-1").await;
    let said = site.says("1", "alice.married", json!("a-1")).await;
    assert_eq!(site.comes_by("corp", &said).await.unwrap(), user);
}

#[tokio::test]
async fn of_several_users_with_one_external_id_none_is_chosen() {
    let (site, token) = Site::with_external_ids().await;
    let first = site.known_as(&token, "bob", "b-1").await;
    let second = site.known_as(&token, "bob2", "b-1").await;
    let said = site.says("2", "bob", json!("b-1")).await;
    let told = site.would_be_refused("corp", &said).await;
    assert!(told.contains("2 active users of its client have the externalId \"b-1\""), "{told}");
    // So it is also once what the client has made is read anew.
    site.provisioning().known.lock().clear();
    assert_eq!(site.comes_by("corp", &said).await.unwrap_err(), "not_provisioned");
    let body = json!({ "schemas": [USER], "userName": "bob2", "externalId": "b-2" });
    assert_eq!(site.scim(&token, "PUT", &format!("/Users/{second}"), &body).await.0, 200);
    site.comes_by("corp", &said).await.unwrap();
    // A user whom the client has deactivated is no second person: the one that it makes anew is the same person.
    site.activate(&token, &second, false).await;
    let again = site.known_as(&token, "bob.married", "b-1").await;
    let said = site.says("2", "bob.married", json!("b-1")).await;
    let user = site.comes_by("corp", &said).await.unwrap();
    assert_eq!(user.as_str(), "bob");
    site.activate(&token, &first, false).await;
    assert_eq!(site.comes_by("corp", &said).await.unwrap(), user);
    let login = site.opened(&user).await;
    site.activate(&token, &again, false).await;
    assert!(site.is_locked(login) && !site.has(&user));
    assert_eq!(site.comes_by("corp", &said).await.unwrap_err(), "not_provisioned");
    // Of another connector, the identifiers are another client's.
    site.connect("other", "").await;
    let other = site.token("other").await.token;
    site.known_as(&other, "dave", "c-1").await;
    site.known_as(&token, "carol", "c-1").await;
    let said = site.says("3", "carol", json!("c-1")).await;
    site.comes_by("corp", &said).await.unwrap();
}
