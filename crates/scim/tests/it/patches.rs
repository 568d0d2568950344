use sallyport_scim::{MAX_PATCH_COMPARISONS, MAX_PATCH_VALUES, MemoryDirectory};
use serde_json::{Value, json};

use crate::client::*;

/// A user with some attributes, patched: what the attributes are then, or why not.
fn patched(attributes: Value, operations: Value) -> Result<Value, (u16, String)> {
    let directory = MemoryDirectory::new();
    let client = Client::new(&directory, "okta");
    let mut whole = json!({ "userName": "alice" });
    for (name, value) in attributes.as_object().unwrap() {
        whole[name] = value.clone();
    }
    let before = client.user(whole);
    let path = format!("/Users/{}", before.id());
    let answer = client.patch(&path, &operations);
    let shown = client.get(&path).json;
    if answer.status != 200 {
        // All or nothing.
        assert_eq!(shown, before.json, "{operations}");
        let keyword = answer.json["scimType"].as_str().unwrap_or_default().to_owned();
        answer.refused(answer.status, &keyword);
        return Err((answer.status, keyword));
    }
    assert_eq!(shown, answer.json, "{operations}");
    let mut after = answer.json;
    let object = after.as_object_mut().unwrap();
    for name in ["schemas", "id", "meta", "userName", "active"] {
        if before.json.get(name) == object.get(name) || name == "meta" || name == "schemas" {
            object.remove(name);
        }
    }
    Ok(after)
}

fn one(attributes: Value, op: &str, path: &str, value: Value) -> Result<Value, (u16, String)> {
    let mut operation = json!({ "op": op, "path": path });
    if !value.is_null() {
        operation["value"] = value;
    }
    patched(attributes, json!([operation]))
}

fn work_and_home() -> Value {
    json!({ "emails": [{ "value": "w@x", "type": "work", "primary": true }, { "value": "h@x", "type": "home" }] })
}

#[test]
fn add_sets_what_is_single_and_joins_what_is_many() {
    assert_eq!(one(json!({}), "add", "title", json!("T")), Ok(json!({ "title": "T" })));
    assert_eq!(one(json!({ "title": "S" }), "add", "title", json!("T")), Ok(json!({ "title": "T" })));
    assert_eq!(one(json!({}), "add", "externalId", json!("x")), Ok(json!({ "externalId": "x" })));
    assert_eq!(
        one(json!({}), "add", "name.givenName", json!("A")),
        Ok(json!({ "name": { "givenName": "A" } }))
    );
    let name = json!({ "name": { "givenName": "A", "familyName": "S" } });
    let expected = json!({ "name": { "givenName": "B", "familyName": "S", "middleName": "M" } });
    assert_eq!(one(name, "add", "name", json!({ "givenName": "B", "middleName": "M" })), Ok(expected));
    let more = json!({ "value": "o@x", "type": "other" });
    let three = json!({ "emails": [
        { "value": "w@x", "type": "work", "primary": true }, { "value": "h@x", "type": "home" }, { "value": "o@x", "type": "other" },
    ] });
    assert_eq!(one(work_and_home(), "add", "emails", json!([more.clone()])), Ok(three.clone()));
    assert_eq!(one(work_and_home(), "add", "emails", more), Ok(three));
    // A value that is there already is no second one; what is said of it besides is taken.
    assert_eq!(
        one(work_and_home(), "add", "emails", json!([{ "value": "h@x", "type": "home" }])),
        Ok(work_and_home())
    );
    let displayed =
        one(work_and_home(), "add", "emails", json!([{ "value": "h@x", "type": "home", "display": "H" }]))
            .unwrap();
    assert_eq!(
        (displayed["emails"].as_array().unwrap().len(), &displayed["emails"][1]["display"]),
        (2, &json!("H"))
    );
    // Without a path.
    let all = patched(
        work_and_home(),
        json!([{ "op": "add", "value": {
        "title": "T", "name": { "familyName": "S" }, "emails": [{ "value": "o@x" }], "unknown": 1, "id": "no", "groups": [],
        ENTERPRISE: { "department": "R" },
    } }]),
    );
    let all = all.unwrap();
    assert_eq!(
        (&all["title"], &all["name"], &all[ENTERPRISE]),
        (&json!("T"), &json!({ "familyName": "S" }), &json!({ "department": "R" }))
    );
    assert_eq!(all["emails"].as_array().unwrap().len(), 3);
}

#[test]
fn replace_takes_the_place_of_what_was() {
    assert_eq!(one(json!({ "title": "S" }), "replace", "title", json!("T")), Ok(json!({ "title": "T" })));
    assert_eq!(one(json!({ "title": "S" }), "replace", "title", json!(null)), Ok(json!({})));
    let name = json!({ "name": { "givenName": "A", "familyName": "S" } });
    // Sub-attributes that are not said stay (RFC 7644 §3.5.2.3); null is said.
    assert_eq!(
        one(name.clone(), "replace", "name", json!({ "givenName": "B" })),
        Ok(json!({ "name": { "givenName": "B", "familyName": "S" } }))
    );
    assert_eq!(
        one(name.clone(), "replace", "name", json!({ "givenName": null })),
        Ok(json!({ "name": { "familyName": "S" } }))
    );
    assert_eq!(
        one(name, "replace", "name.familyName", json!("T")),
        Ok(json!({ "name": { "givenName": "A", "familyName": "T" } }))
    );
    assert_eq!(
        one(work_and_home(), "replace", "emails", json!([{ "value": "n@x" }])),
        Ok(json!({ "emails": [{ "value": "n@x" }] }))
    );
    assert_eq!(one(work_and_home(), "replace", "emails", json!([])), Ok(json!({})));
    let home = one(
        work_and_home(),
        "replace",
        r#"emails[type eq "home"]"#,
        json!({ "value": "n@x", "type": "other" }),
    )
    .unwrap();
    assert_eq!(home["emails"][1], json!({ "value": "n@x", "type": "other" }));
    let home = one(work_and_home(), "replace", r#"emails[type eq "home"].value"#, json!("n@x")).unwrap();
    assert_eq!(home["emails"][1], json!({ "value": "n@x", "type": "home" }));
    assert_eq!(home["emails"][0]["value"], "w@x");
    let every = one(work_and_home(), "replace", "emails.display", json!("E")).unwrap();
    assert_eq!((&every["emails"][0]["display"], &every["emails"][1]["display"]), (&json!("E"), &json!("E")));
    let department = format!("{ENTERPRISE}:department");
    assert_eq!(
        one(json!({}), "replace", &department, json!("R")),
        Ok(json!({ ENTERPRISE: { "department": "R" } }))
    );
    let both = json!({ ENTERPRISE: { "department": "R", "division": "D" } });
    assert_eq!(
        one(both.clone(), "replace", &department, json!(null)),
        Ok(json!({ ENTERPRISE: { "division": "D" } }))
    );
    assert_eq!(
        one(both, "replace", ENTERPRISE, json!({ "department": "S" })),
        Ok(json!({ ENTERPRISE: { "department": "S", "division": "D" } }))
    );
}

#[test]
fn remove_takes_away_and_nothing_else() {
    assert_eq!(one(json!({ "title": "S" }), "remove", "title", json!(null)), Ok(json!({})));
    assert_eq!(one(json!({}), "remove", "title", json!(null)), Ok(json!({})));
    let name = json!({ "name": { "givenName": "A", "familyName": "S" } });
    assert_eq!(
        one(name.clone(), "remove", "name.givenName", json!(null)),
        Ok(json!({ "name": { "familyName": "S" } }))
    );
    assert_eq!(one(name, "remove", "name", json!(null)), Ok(json!({})));
    assert_eq!(one(work_and_home(), "remove", "emails", json!(null)), Ok(json!({})));
    let work = json!({ "emails": [{ "value": "w@x", "type": "work", "primary": true }] });
    assert_eq!(one(work_and_home(), "remove", r#"emails[type eq "home"]"#, json!(null)), Ok(work));
    assert_eq!(
        one(work_and_home(), "remove", r#"emails[type eq "other"]"#, json!(null)),
        Ok(work_and_home())
    );
    let unnamed = one(work_and_home(), "remove", "emails.type", json!(null)).unwrap();
    assert_eq!(unnamed["emails"], json!([{ "value": "w@x", "primary": true }, { "value": "h@x" }]));
    let both = json!({ ENTERPRISE: { "department": "R", "division": "D" } });
    assert_eq!(
        one(both.clone(), "remove", &format!("{ENTERPRISE}:division"), json!(null)),
        Ok(json!({ ENTERPRISE: { "department": "R" } }))
    );
    assert_eq!(one(both, "remove", ENTERPRISE, json!(null)), Ok(json!({})));
}

#[test]
fn one_value_is_the_primary_one() {
    let primaries = |after: Value| -> Vec<Value> {
        after["emails"].as_array().unwrap().iter().map(|value| value["primary"].clone()).collect()
    };
    let home = one(work_and_home(), "replace", r#"emails[type eq "home"].primary"#, json!(true)).unwrap();
    assert_eq!(primaries(home), [json!(false), json!(true)]);
    let added = one(work_and_home(), "add", "emails", json!([{ "value": "n@x", "primary": true }])).unwrap();
    assert_eq!(primaries(added), [json!(false), Value::Null, json!(true)]);
    let two = json!([{ "value": "n@x", "primary": true }, { "value": "m@x", "primary": true }]);
    for op in ["add", "replace"] {
        assert_eq!(
            one(work_and_home(), op, "emails", two.clone()),
            Err((400, "invalidValue".to_owned())),
            "{op}"
        );
    }
    assert_eq!(
        one(work_and_home(), "replace", "emails.primary", json!(true)),
        Ok(json!({ "emails": [
        { "value": "w@x", "type": "work", "primary": false }, { "value": "h@x", "type": "home", "primary": true },
    ] }))
    );
}

#[test]
fn what_cannot_be_done_is_refused_and_leaves_all_as_it_was() {
    let refused = |keyword: &str, op: &str, path: &str, value: Value| {
        let operations = json!([{ "op": "replace", "path": "title", "value": "changed" }, { "op": op, "path": path, "value": value }]);
        let outcome = patched(work_and_home(), operations);
        assert_eq!(outcome, Err((400, keyword.to_owned())), "{op} {path} {value}");
    };
    for path in [
        "wrong",
        "name.wrong",
        "emails[type eq \"work\"].wrong",
        "title.value",
        "members",
        "a b",
        "emails[type eq \"work\"]x",
        "title[value eq \"x\"]",
        "urn:x:y",
        "emails[",
        "emails.type.x",
        "emails[type eq \"work\"].value.x",
        "password",
    ] {
        refused("invalidPath", "add", path, json!("x"));
    }
    refused("invalidFilter", "replace", "emails[wrong eq \"x\"].value", json!("x"));
    refused("invalidFilter", "replace", "emails[primary gt true].value", json!("x"));
    refused("noTarget", "replace", "emails[value eq \"none\"].display", json!("x"));
    refused("noTarget", "replace", "emails[type eq \"other\"]", json!({ "value": "x" }));
    refused("noTarget", "add", "emails[type eq \"other\" or type eq \"home2\"].value", json!("x"));
    refused("noTarget", "remove", "", json!(null));
    for path in [
        "id",
        "meta",
        "meta.created",
        "schemas",
        "groups",
        "groups[value eq \"x\"].display",
        &format!("{ENTERPRISE}:manager.displayName"),
    ] {
        refused("mutability", "replace", path, json!("x"));
        refused("mutability", "remove", path, json!(null));
    }
    refused("mutability", "remove", "userName", json!(null));
    refused("invalidValue", "replace", "userName", json!(" "));
    refused("invalidValue", "replace", "userName", json!(5));
    refused("invalidValue", "add", "active", json!("maybe"));
    refused("invalidValue", "add", "title", json!(null));
    refused("invalidValue", "add", "name", json!([1, 2]));
    refused("invalidValue", "add", "emails", json!(5));
    refused("invalidValue", "add", "", json!("x"));
    refused("invalidValue", "add", ENTERPRISE, json!("x"));
    refused("invalidSyntax", "move", "title", json!("x"));
    refused("invalidSyntax", "", "title", json!("x"));
    let directory = MemoryDirectory::new();
    let client = Client::new(&directory, "okta");
    let path = format!("/Users/{}", client.user(json!({ "userName": "alice" })).id());
    for operations in [
        json!([]),
        json!({}),
        json!(null),
        json!([5]),
        json!([{}]),
        json!([{ "op": 5 }]),
        json!([{ "op": "add", "path": 5, "value": 1 }]),
    ] {
        client.patch(&path, &operations).refused(400, "invalidSyntax");
    }
    let headers = [("Content-Type", "application/json")];
    let plain = json!({ "Operations": [{ "op": "add", "path": "title", "value": "x" }] }).to_string();
    client.send("PATCH", &path, &headers, plain.as_bytes()).refused(400, "invalidSyntax");
}

#[test]
fn operations_see_what_those_before_did() {
    let operations = json!([
        { "op": "remove", "path": "emails" },
        { "op": "add", "path": "emails", "value": [{ "value": "1@x", "type": "work" }] },
        { "op": "replace", "path": "emails[type eq \"work\"].value", "value": "2@x" },
        { "op": "add", "path": "title", "value": "A" },
        { "op": "replace", "path": "title", "value": "B" },
    ]);
    let expected = json!({ "emails": [{ "value": "2@x", "type": "work" }], "title": "B" });
    assert_eq!(patched(work_and_home(), operations), Ok(expected));
    // A name may go and come back in one PATCH that ends well.
    let swapped = json!([{ "op": "replace", "path": "userName", "value": "bob" }, { "op": "replace", "path": "userName", "value": "alice" }]);
    assert_eq!(patched(json!({}), swapped), Ok(json!({})));
}

#[test]
fn a_patch_has_bounds() {
    let directory = MemoryDirectory::new();
    let client = Client::new(&directory, "okta");
    let path = format!("/Users/{}", client.user(json!({ "userName": "alice" })).id());
    let many = |count: usize| vec![json!({ "op": "replace", "path": "title", "value": "x" }); count];
    assert_eq!(client.patch(&path, &json!(many(MAX_PATCH_VALUES))).status, 200);
    client.patch(&path, &json!(many(MAX_PATCH_VALUES + 1))).refused(413, "");
    // However they are spread over operations.
    let compared = |count: usize| {
        let tests = |count: usize| vec!["type co \"a\""; count].join(" or ");
        let removed = |count: usize| json!({ "op": "remove", "path": format!("emails[{}]", tests(count)) });
        json!([removed(count / 2), removed(count - count / 2)])
    };
    assert_eq!(client.patch(&path, &compared(MAX_PATCH_COMPARISONS)).status, 200);
    client.patch(&path, &compared(MAX_PATCH_COMPARISONS + 1)).refused(413, "");
    let values =
        |count: usize| -> Vec<Value> { (0..count).map(|at| json!({ "value": at.to_string() })).collect() };
    let add = |count: usize| json!({ "op": "add", "path": "emails", "value": values(count) });
    assert_eq!(client.patch(&path, &json!([add(100)])).status, 200);
    client.patch(&path, &json!([add(101)])).refused(413, "");
    let more = json!({ "op": "add", "value": { "emails": values(501), "roles": values(500) } });
    client.patch(&path, &json!([more])).refused(413, "");
    // A hundred are as many as there may be, by whatever steps.
    let one = json!({ "op": "add", "path": "emails", "value": { "value": "more" } });
    client.patch(&path, &json!([one])).refused(413, "");
    let long = format!("emails[value eq \"{}\"]", "x".repeat(2_100));
    client.patch(&path, &json!([{ "op": "remove", "path": long }])).refused(400, "invalidPath");
}
