//! What Okta and Microsoft Entra send, where that is not what the specification has.

use sallyport_scim::{MemoryDirectory, What};
use serde_json::{Value, json};

use crate::client::*;

#[test]
fn entra_provisions_a_user() {
    let directory = MemoryDirectory::new();
    let client = Client::new(&directory, "entra");
    // It looks first, with a name that may not be there.
    let looked = client.get("/Users?filter=userName%20eq%20%22alice%40example.com%22");
    assert_eq!(
        (looked.status, &looked.json["totalResults"], &looked.json["Resources"]),
        (200, &json!(0), &json!([]))
    );
    let made = client.user(json!({
        "externalId": "0a21f0f2-8d2a-4f8e-bf98-7363c4aed4ef",
        "userName": "alice@example.com",
        "active": "True",
        "displayName": "Alice",
        "emails": [{ "primary": "True", "type": "work", "value": "alice@example.com" }],
        "meta": { "resourceType": "User" },
        "roles": [],
    }));
    assert_eq!(made.json["active"], json!(true));
    let path = format!("/Users/{}", made.id());
    let patch = |operations: Value| {
        let answer = client.patch(&path, &operations);
        assert_eq!(answer.status, 200, "{operations}: {answer:?}");
        answer
    };
    // Capitals, booleans as texts, paths of values that are not there yet.
    let after = patch(json!([
        { "op": "Replace", "path": "displayName", "value": "Alice S" },
        { "op": "Add", "path": "phoneNumbers[type eq \"mobile\"].value", "value": "+1" },
        { "op": "Replace", "path": "addresses[type eq \"work\"].country", "value": "DE" },
        { "op": "Add", "path": format!("{ENTERPRISE}:department"), "value": "R" },
        { "op": "Add", "path": format!("{ENTERPRISE}:manager"), "value": "26118915-6090-4610-87e4-49d8ca9f808d" },
        { "op": "Add", "path": "roles[primary eq \"True\"].value", "value": "reader" },
        { "op": "Replace", "path": "emails[type eq \"work\"].value", "value": "a@example.com" },
    ]));
    assert_eq!(after.json["phoneNumbers"], json!([{ "type": "mobile", "value": "+1" }]));
    assert_eq!(after.json["addresses"], json!([{ "type": "work", "country": "DE" }]));
    assert_eq!(after.json["roles"], json!([{ "primary": true, "value": "reader" }]));
    assert_eq!(after.json["emails"], json!([{ "primary": true, "type": "work", "value": "a@example.com" }]));
    let manager = json!({ "value": "26118915-6090-4610-87e4-49d8ca9f808d" });
    assert_eq!(after.json[ENTERPRISE], json!({ "department": "R", "manager": manager }));
    // Names that are paths, in an operation without one.
    let after = patch(json!([{ "op": "replace", "value": {
        "displayName": "Bjfe",
        "name.givenName": "Kkom",
        "emails[type eq \"work\"].value": "b@example.com",
        "emails[type eq \"work\"].primary": "true",
        format!("{ENTERPRISE}:employeeNumber"): "7",
        "urn:ietf:params:scim:schemas:extension:custom:2.0:User:tag": "unknown",
    } }]));
    assert_eq!(
        (&after.json["displayName"], &after.json["name"]),
        (&json!("Bjfe"), &json!({ "givenName": "Kkom" }))
    );
    assert_eq!(after.json["emails"], json!([{ "primary": true, "type": "work", "value": "b@example.com" }]));
    assert_eq!(after.json[ENTERPRISE]["employeeNumber"], "7");
    // It says which value it removes: one that has become another stays.
    let after = patch(
        json!([{ "op": "Remove", "path": "emails[type eq \"work\"].value", "value": "other@example.com" }]),
    );
    assert_eq!(after.json["emails"][0]["value"], "b@example.com");
    let after = patch(
        json!([{ "op": "Remove", "path": "emails[type eq \"work\"].value", "value": "b@example.com" }]),
    );
    assert_eq!(after.json["emails"], Value::Null);
    // Older ones write a single value as a list of one.
    let after = patch(
        json!([{ "op": "Add", "path": "displayName", "value": [{ "$ref": null, "value": "Listed" }] }]),
    );
    assert_eq!(after.json["displayName"], "Listed");
    // Who leaves.
    let off = patch(json!([{ "op": "Replace", "path": "active", "value": "False" }]));
    assert_eq!(
        (&off.json["active"], off.done.map(|done| done.what)),
        (&json!(false), Some(What::Deactivated))
    );
    let back = patch(json!([{ "op": "Add", "path": "active", "value": "True" }]));
    assert_eq!(
        (&back.json["active"], back.done.map(|done| done.what)),
        (&json!(true), Some(What::Activated))
    );
}

#[test]
fn entra_keeps_groups() {
    let directory = MemoryDirectory::new();
    let client = Client::new(&directory, "entra");
    let ids: Vec<String> =
        (0..3).map(|at| client.user(json!({ "userName": format!("u{at}") })).id()).collect();
    let body = json!({
        "schemas": [GROUP, "http://schemas.microsoft.com/2006/11/ResourceManagement/ADSCIM/2.0/Group"],
        "externalId": "8aa1a0c0", "displayName": "ops", "meta": { "resourceType": "Group" },
    });
    let path = format!("/Groups/{}", client.post("/Groups", &body).id());
    let patch = |operations: Value| assert_eq!(client.patch(&path, &operations).status, 204, "{operations}");
    patch(
        json!([{ "op": "Add", "path": "members", "value": [{ "$ref": null, "value": ids[0] }, { "value": ids[1] }, { "value": ids[2] }] }]),
    );
    // One who leaves does not take the others along.
    patch(json!([{ "op": "Remove", "path": "members", "value": [{ "value": ids[1] }] }]));
    let left = client.get(&path).json["members"]
        .as_array()
        .unwrap()
        .iter()
        .map(|member| member["value"].clone())
        .collect::<Vec<_>>();
    assert_eq!(left, [json!(ids[0]), json!(ids[2])]);
    // Once more, and one that was deleted meanwhile.
    patch(json!([{ "op": "Remove", "path": "members", "value": [{ "value": ids[1] }] }]));
    client.delete(&format!("/Users/{}", ids[2]));
    patch(json!([{ "op": "Remove", "path": format!("members[value eq \"{}\"]", ids[2]) }]));
    assert_eq!(client.get(&path).json["members"].as_array().unwrap().len(), 1);
    let found = client.get("/Groups?excludedAttributes=members&filter=displayName%20eq%20%22OPS%22");
    assert_eq!(
        (found.each("displayName"), &found.json["Resources"][0]["members"]),
        (vec!["ops".to_owned()], &Value::Null)
    );
}

#[test]
fn okta_provisions_users_and_groups() {
    let directory = MemoryDirectory::new();
    let client = Client::new(&directory, "okta");
    assert_eq!(
        client.get("/Users?filter=userName%20eq%20%22a%40x%22&startIndex=1&count=100").json["totalResults"],
        json!(0)
    );
    let made = client.user(json!({
        "userName": "a@x", "name": { "givenName": "A", "familyName": "S" }, "password": "1mz050nq", "locale": "en-US",
        "emails": [{ "primary": true, "value": "a@x", "type": "work" }], "displayName": "A S", "externalId": "00ujl29u0le5T6Aj10h7",
        "groups": [], "active": true,
    }));
    let id = made.id();
    let path = format!("/Users/{id}");
    // It sends back what it read, changed, with what the server alone may say.
    let mut whole = client.get(&path).json;
    whole["groups"] = json!([{ "value": "admins" }]);
    whole["meta"]["version"] = json!("W/\"99\"");
    whole["nickName"] = json!("al");
    let put = client.put(&path, &whole);
    assert_eq!((put.status, &put.json["nickName"], &put.json["groups"]), (200, &json!("al"), &Value::Null));
    let off = client.patch(&path, &json!([{ "op": "replace", "value": { "active": false } }]));
    assert_eq!(off.done.map(|done| done.what), Some(What::Deactivated));
    let group = client.group("Ops", &[&id]).id();
    let path = format!("/Groups/{group}");
    // It names the group in the value.
    let rename = json!([{ "op": "replace", "value": { "id": group, "displayName": "Operations" } }]);
    assert_eq!(client.patch(&path, &rename).status, 204);
    let swap = json!([
        { "op": "remove", "path": format!("members[value eq \"{id}\"]") },
        { "op": "add", "path": "members", "value": [{ "value": id, "display": "a@x" }] },
    ]);
    assert_eq!(client.patch(&path, &swap).status, 204);
    let shown = client.get(&path).json;
    assert_eq!(
        (&shown["displayName"], shown["members"].as_array().unwrap().len()),
        (&json!("Operations"), 1)
    );
}
