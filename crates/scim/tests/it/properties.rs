use proptest::prelude::*;
use sallyport_scim::{Filter, Kind, MAX_FILTER_BYTES, MemoryDirectory, Patch};
use serde_json::{Value, json};

use crate::client::*;

/// Filters that are some, about users.
fn filters() -> impl Strategy<Value = String> {
    let attribute =
        prop::sample::select(vec!["userName", "title", "name.givenName", "emails.value", "externalId"]);
    let operator = prop::sample::select(vec!["eq", "ne", "co", "sw", "ew", "gt", "ge", "lt", "le"]);
    let leaf = prop_oneof![
        (attribute.clone(), operator, "[a-c \"\\\\é]{0,3}")
            .prop_map(|(path, operator, text)| { format!("{path} {operator} {}", Value::String(text)) }),
        attribute.prop_map(|path| format!("{path} pr")),
        any::<bool>().prop_map(|value| format!("active eq {value}")),
        "[a-c]{0,2}".prop_map(|text| format!("emails[type eq \"work\" and not (value co \"{text}\")]")),
    ];
    leaf.prop_recursive(4, 16, 3, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(one, other)| format!("{one} and {other}")),
            (inner.clone(), inner.clone()).prop_map(|(one, other)| format!("{one} or {other}")),
            inner.clone().prop_map(|one| format!("not ({one})")),
            inner.prop_map(|one| format!("({one})")),
        ]
    })
}

fn operations() -> impl Strategy<Value = Value> {
    let path = prop::sample::select(vec![
        "title",
        "userName",
        "active",
        "name",
        "name.givenName",
        "emails",
        "emails.value",
        "emails[type eq \"work\"]",
        "emails[type eq \"work\"].value",
        "emails[not (primary eq true)].primary",
        "externalId",
        "id",
        "wrong",
        ENTERPRISE,
        "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:manager",
    ]);
    let email = json!({ "value": "n@x", "type": "work", "primary": true });
    let value = prop::sample::select(vec![
        json!("text"),
        json!(""),
        json!(true),
        json!("False"),
        json!(5),
        json!([]),
        json!({}),
        json!([email.clone(), { "value": "m@x" }]),
        email,
        json!({ "givenName": "G", "familyName": null }),
        json!({ "department": "D", "manager": "m" }),
        json!([[]]),
        Value::Null,
    ]);
    let op = prop::sample::select(vec!["add", "replace", "remove", "Add", "wrong"]);
    let one = (op, prop::option::of(path), value).prop_map(|(op, path, value)| {
        let mut operation = json!({ "op": op, "value": value });
        if let Some(path) = path {
            operation["path"] = json!(path);
        }
        operation
    });
    prop::collection::vec(one, 1..5).prop_map(Value::from)
}

proptest! {
    /// What is written again means the same.
    #[test]
    fn a_filter_is_written_as_it_was_read(text in filters()) {
        let filter = Filter::parse(&text).unwrap();
        let written = filter.to_string();
        prop_assert_eq!(Filter::parse(&written).unwrap(), filter, "{}", written);
    }

    /// Each user meets a filter or its opposite, and not both.
    #[test]
    fn a_filter_and_its_opposite_part_all(text in filters()) {
        let directory = MemoryDirectory::new();
        let client = Client::new(&directory, "okta");
        client.user(json!({ "userName": "ab", "title": "c", "emails": [{ "value": "a", "type": "work" }, { "value": "b" }] }));
        client.user(json!({ "userName": "c", "active": false, "name": { "givenName": "B\"" }, "externalId": "A" }));
        client.user(json!({ "userName": "é", "emails": [{ "value": "C", "type": "WORK", "primary": true }] }));
        let mut both = client.found(&text);
        both.extend(client.found(&format!("not ({text})")));
        both.sort();
        prop_assert_eq!(both, ["ab", "c", "é"]);
    }

    /// Whatever is read as a filter, there is an end to it.
    #[test]
    fn anything_is_a_filter_or_none(text in "[ ()\\[\\]\"a-z.:$\\\\]{0,60}", long in "\\PC{0,200}") {
        for text in [text, long] {
            if let Ok(filter) = Filter::parse(&text) {
                let written = filter.to_string();
                if written.len() <= MAX_FILTER_BYTES {
                    prop_assert_eq!(Filter::parse(&written).unwrap(), filter);
                }
            }
        }
    }

    /// A PATCH is done whole or not at all, and what it leaves is a resource that a PUT would take as it is.
    #[test]
    fn a_patch_leaves_a_resource(operations in operations()) {
        let directory = MemoryDirectory::new();
        let client = Client::new(&directory, "okta");
        let before = client.user(json!({
            "userName": "alice", "name": { "givenName": "A", "familyName": "S" },
            "emails": [{ "value": "w@x", "type": "work", "primary": true }, { "value": "h@x", "type": "home" }],
        }));
        let path = format!("/Users/{}", before.id());
        let answer = client.patch(&path, &operations);
        let after = client.get(&path).json;
        if answer.status == 200 {
            prop_assert_eq!(&after, &answer.json);
            prop_assert_eq!(&after["id"], &before.json["id"]);
            let put = client.put(&path, &after);
            prop_assert_eq!((put.status, put.done), (200, None), "{}", after);
        } else {
            prop_assert!(matches!(answer.status, 400 | 413), "{:?}", answer);
            prop_assert_eq!(after, before.json);
        }
    }

    /// Whatever is sent, there is an answer, and none of it blames the server.
    #[test]
    fn anything_is_answered(
        method in "GET|POST|PUT|PATCH|DELETE|\\PC{0,5}",
        path in "(/(Users|Groups|Schemas|\\.search|%2[0-9a-f]|\\PC{0,3})){0,3}",
        query in "((filter|count|attributes|sortBy)=\\PC{0,10}&?){0,3}",
        body in "\\PC{0,60}",
    ) {
        let directory = MemoryDirectory::new();
        let client = Client::new(&directory, "okta");
        let path = format!("{}?{query}", path.replace('?', ""));
        let answer = client.send(&method, &path, &[("Content-Type", "application/json")], body.as_bytes());
        prop_assert!(answer.status != 500 && answer.status >= 200, "{:?}", answer);
    }

    /// The same for what a PATCH says.
    #[test]
    fn anything_is_a_patch_or_none(path in "\\PC{0,40}", value in "\\PC{0,20}") {
        for kind in Kind::ALL {
            let body = patch(&json!([{ "op": "add", "path": path, "value": value }]));
            let _ = Patch::parse(*kind, body.to_string().as_bytes());
        }
    }
}
