use sallyport_scim::{MAX_MEMBERS, MAX_PATCH_VALUES, MemoryDirectory, What};
use serde_json::{Value, json};

use crate::client::*;

fn members(client: &Client<'_>, group: &str) -> Vec<String> {
    let json = client.get(&format!("/Groups/{group}")).json;
    let members = json["members"].as_array().cloned().unwrap_or_default();
    members.iter().map(|member| member["value"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn members_are_added_and_removed_one_by_one() {
    let directory = MemoryDirectory::new();
    let client = Client::new(&directory, "okta");
    let ids: Vec<String> =
        (0..4).map(|at| client.user(json!({ "userName": format!("u{at}") })).id()).collect();
    let [a, b, c, d] = [&ids[0], &ids[1], &ids[2], &ids[3]];
    let group = client.group("ops", &[a, b, a]).id();
    let path = format!("/Groups/{group}");
    assert_eq!(members(&client, &group), [a.clone(), b.clone()]);
    // Where they are and what they are the server says, whatever a client does.
    let said_otherwise = json!([{ "op": "add", "path": "members", "value": [
        { "value": c, "type": "Group", "$ref": "https://evil.example", "display": "C" }, { "value": a },
    ] }]);
    let answer = client.patch(&path, &said_otherwise);
    assert_eq!((answer.status, &answer.json), (204, &Value::Null));
    assert_eq!(answer.header("ETag"), "W/\"2\"");
    assert_eq!(answer.done.map(|done| done.what), Some(What::Changed));
    let shown = client.get(&path).json["members"][2].clone();
    assert_eq!(shown, json!({ "value": c, "type": "User", "$ref": format!("{BASE}/Users/{c}") }));
    let again = client.patch(&path, &json!([{ "op": "add", "path": "members", "value": [{ "value": a }] }]));
    assert_eq!((again.header("ETag"), &again.done), ("W/\"2\"", &None));
    let asked = client.patch(
        &format!("{path}?attributes=displayName"),
        &json!([{ "op": "add", "path": "members", "value": [{ "value": d }] }]),
    );
    assert_eq!(
        (asked.status, &asked.json["displayName"], &asked.json["members"]),
        (200, &json!("ops"), &Value::Null)
    );
    client.patch(&path, &json!([{ "op": "remove", "path": format!("members[value eq \"{b}\"]") }]));
    assert_eq!(members(&client, &group), [a.clone(), c.clone(), d.clone()]);
    client.patch(&path, &json!([{ "op": "replace", "path": "members", "value": [{ "value": b }] }]));
    assert_eq!(members(&client, &group), std::slice::from_ref(b));
    // A member is not changed.
    for operation in [
        json!({ "op": "replace", "path": format!("members[value eq \"{b}\"].value"), "value": a }),
        json!({ "op": "replace", "path": format!("members[value eq \"{b}\"]"), "value": { "value": a } }),
        json!({ "op": "add", "path": format!("members[value eq \"{b}\"]"), "value": { "value": a } }),
        json!({ "op": "replace", "path": "members.type", "value": "Group" }),
        json!({ "op": "remove", "path": "members.value" }),
        json!({ "op": "remove", "path": "displayName" }),
    ] {
        client.patch(&path, &json!([operation])).refused(400, "mutability");
    }
    client
        .patch(&path, &json!([{ "op": "add", "path": "members", "value": [{ "value": "nobody" }] }]))
        .refused(400, "invalidValue");
    client
        .patch(&path, &json!([{ "op": "add", "path": "members", "value": [{ "type": "User" }] }]))
        .refused(400, "invalidValue");
    assert_eq!(members(&client, &group), std::slice::from_ref(b));
    client.patch(&path, &json!([{ "op": "remove", "path": "members" }]));
    assert_eq!(client.get(&path).json["members"], Value::Null);
}

#[test]
fn a_user_shows_the_groups_and_leaves_them_when_removed() {
    let directory = MemoryDirectory::new();
    let client = Client::new(&directory, "okta");
    let alice = client.user(json!({ "userName": "alice" })).id();
    let inner = client.group("inner", &[&alice]).id();
    let outer = client.group("outer", &[&inner]).id();
    let top = client.group("top", &[&outer, &alice]).id();
    // Groups that contain each other end nowhere, and are each shown once.
    let add = json!([{ "op": "add", "path": "members", "value": [{ "value": top }] }]);
    assert_eq!(client.patch(&format!("/Groups/{inner}"), &add).status, 204);
    let shown = |group: &str, name: &str, how: &str| json!({ "value": group, "$ref": format!("{BASE}/Groups/{group}"), "display": name, "type": how });
    let expected = json!([
        shown(&inner, "inner", "direct"),
        shown(&outer, "outer", "indirect"),
        shown(&top, "top", "direct")
    ]);
    assert_eq!(client.get(&format!("/Users/{alice}")).json["groups"], expected);
    assert_eq!(client.get("/Users").json["Resources"][0]["groups"], expected);
    let before = client.get(&format!("/Groups/{top}")).header("ETag").to_owned();
    assert_eq!(client.delete(&format!("/Users/{alice}")).status, 204);
    assert_eq!(members(&client, &top), std::slice::from_ref(&outer));
    assert_ne!(client.get(&format!("/Groups/{top}")).header("ETag"), before);
    assert_eq!(client.delete(&format!("/Groups/{outer}")).status, 204);
    assert!(members(&client, &top).is_empty());
}

#[test]
fn a_group_takes_ten_thousand_members_and_no_more() {
    let directory = MemoryDirectory::new();
    let client = Client::new(&directory, "okta");
    let mut all = Vec::new();
    for at in 0..=MAX_MEMBERS {
        all.push(client.group(&format!("m{at}"), &[]).id());
    }
    let group = client.group("everybody", &[]).id();
    let path = format!("/Groups/{group}");
    let add = |ids: &[String]| {
        let members: Vec<Value> = ids.iter().map(|id| json!({ "value": id })).collect();
        client.patch(&path, &json!([{ "op": "add", "path": "members", "value": members }]))
    };
    add(&all[..MAX_PATCH_VALUES + 1]).refused(413, "");
    for chunk in all[..MAX_MEMBERS].chunks(MAX_PATCH_VALUES) {
        assert_eq!(add(chunk).status, 204);
    }
    assert_eq!(members(&client, &group).len(), MAX_MEMBERS);
    add(&all[MAX_MEMBERS..]).refused(413, "");
    // As many single removals as a PATCH may have.
    let removals: Vec<Value> = all[..MAX_PATCH_VALUES]
        .iter()
        .map(|id| json!({ "op": "remove", "path": format!("members[value eq \"{id}\"]") }))
        .collect();
    assert_eq!(client.patch(&path, &json!(removals)).status, 204);
    assert_eq!(members(&client, &group), all[MAX_PATCH_VALUES..MAX_MEMBERS]);
}
