use sallyport_scim::MemoryDirectory;
use serde_json::{Value, json};

use crate::client::*;

const NAMES: [&str; 7] = ["delta", "Alpha", "golf", "bravo", "Echo", "charlie", "foxtrot"];

fn seven(directory: &MemoryDirectory) -> Client<'_> {
    let mut client = Client::new(directory, "okta");
    for (at, name) in NAMES.iter().enumerate() {
        client.now += time::Duration::milliseconds(500);
        let title = if at % 3 == 0 { json!(null) } else { json!(format!("t{}", at % 3)) };
        client.user(json!({
            "userName": name, "title": title, "active": at % 2 == 0,
            "emails": [{ "value": format!("z@{name}") }, { "value": format!("{at}@x"), "primary": at != 5 }],
        }));
    }
    client
}

#[test]
fn pages_are_counted_from_one_and_stay_in_order() {
    let directory = MemoryDirectory::new();
    let client = seven(&directory);
    let page = |query: &str| {
        let answer = client.get(&format!("/Users?{query}"));
        assert_eq!(answer.status, 200, "{query}: {answer:?}");
        assert_eq!(answer.json["totalResults"], json!(7), "{query}");
        assert_eq!(answer.json["itemsPerPage"], json!(answer.each("userName").len()), "{query}");
        (answer.json["startIndex"].as_u64().unwrap(), answer.each("userName").join(" "))
    };
    let all = NAMES.join(" ");
    assert_eq!(page(""), (1, all.clone()));
    assert_eq!(page("startIndex=1&count=3"), (1, "delta Alpha golf".to_owned()));
    assert_eq!(page("startIndex=4&count=3"), (4, "bravo Echo charlie".to_owned()));
    assert_eq!(page("startIndex=7&count=3"), (7, "foxtrot".to_owned()));
    assert_eq!(page("startIndex=8&count=3"), (8, String::new()));
    assert_eq!(page("startIndex=0"), (1, all.clone()));
    assert_eq!(page("startIndex=-5&count=1"), (1, "delta".to_owned()));
    assert_eq!(page("count=0"), (1, String::new()));
    assert_eq!(page("count=-1"), (1, String::new()));
    assert_eq!(page("count=9223372036854775807&startIndex=1"), (1, all.clone()));
    assert_eq!(page("STARTINDEX=7"), (7, "foxtrot".to_owned()));
    assert_eq!(page("unknown=1&count=1"), (1, "delta".to_owned()));
    for bad in ["count=x", "startIndex=1.5", "count=1&count=2", "count=1&COUNT=2", "count=%", "sortOrder=up"]
    {
        client.get(&format!("/Users?{bad}")).refused(400, "invalidValue");
    }
    client.get(&format!("/Users?attributes={}", "x".repeat(17_000))).refused(413, "");
}

#[test]
fn a_page_has_no_more_than_it_may() {
    let directory = MemoryDirectory::new();
    let client = Client::new(&directory, "okta");
    for at in 0..205 {
        client.user(json!({ "userName": format!("u{at}") }));
    }
    assert_eq!(client.get("/Users").each("id").len(), 100);
    assert_eq!(client.get("/Users?count=1000").each("id").len(), 200);
    assert_eq!(client.get("/Users?count=1000&startIndex=201").each("id").len(), 5);
    let members: Vec<String> = client.get("/Users?count=200").each("id");
    let members: Vec<&str> = members.iter().map(String::as_str).collect();
    for at in 0..60 {
        client.group(&format!("g{at}"), &members);
    }
    // Long resources make short pages, after which the client goes on.
    let mut seen = Vec::new();
    let mut pages = 0;
    while seen.len() < 60 {
        let answer = client.get(&format!("/Groups?count=200&startIndex={}", seen.len() + 1));
        assert_eq!(answer.json["totalResults"], json!(60));
        assert!(!answer.each("id").is_empty() && answer.json.to_string().len() < 4 * 1024 * 1024);
        seen.extend(answer.each("displayName"));
        pages += 1;
    }
    assert_eq!(seen, (0..60).map(|at| format!("g{at}")).collect::<Vec<_>>());
    assert!(pages > 1);
    assert_eq!(client.get("/Groups?count=200&excludedAttributes=members").each("id").len(), 60);
}

#[test]
fn what_is_sorted_is_in_order_of_the_attribute() {
    let directory = MemoryDirectory::new();
    let client = seven(&directory);
    let sorted = |query: &str| client.get(&format!("/Users?{query}")).each("userName").join(" ");
    let by_name = "Alpha bravo charlie delta Echo foxtrot golf";
    assert_eq!(sorted("sortBy=userName"), by_name);
    assert_eq!(sorted("sortBy=USERNAME&sortOrder=Ascending"), by_name);
    assert_eq!(sorted("sortBy=userName&sortOrder=descending&count=3&startIndex=2"), "foxtrot Echo delta");
    assert_eq!(sorted("sortBy=meta.created"), NAMES.join(" "));
    assert_eq!(sorted("sortBy=meta.lastModified&sortOrder=descending&count=2"), "foxtrot charlie");
    // Without a value last, and first when turned round; the same stay in order of their identifiers.
    assert_eq!(sorted("sortBy=title"), "Alpha Echo golf charlie delta bravo foxtrot");
    assert_eq!(sorted("sortBy=title&sortOrder=descending"), "delta bravo foxtrot golf charlie Alpha Echo");
    assert_eq!(sorted("sortBy=active&count=3"), "Alpha bravo charlie");
    // Of several values the primary one, or the first.
    assert_eq!(sorted("sortBy=emails"), "delta Alpha golf bravo Echo foxtrot charlie");
    assert_eq!(sorted("sortBy=emails.value"), sorted("sortBy=emails"));
    assert_eq!(
        sorted("sortBy=userName&filter=active%20eq%20true&sortOrder=descending"),
        "golf foxtrot Echo delta"
    );
    for bad in ["name", "addresses", "wrong", "a%20b", USER] {
        client.get(&format!("/Users?sortBy={bad}")).refused(400, "invalidValue");
    }
}

#[test]
fn attributes_are_shown_as_they_are_asked_for() {
    let directory = MemoryDirectory::new();
    let client = Client::new(&directory, "okta");
    let id = client
        .user(json!({
            "userName": "alice", "externalId": "x", "title": "T",
            "name": { "givenName": "A", "familyName": "S" },
            "emails": [{ "value": "a@x", "type": "work" }, { "value": "b@x" }],
            ENTERPRISE: { "department": "R", "division": "D" },
        }))
        .id();
    let shown = |query: &str| {
        let mut json = client.get(&format!("/Users/{id}?{query}")).json;
        let object = json.as_object_mut().unwrap();
        assert_eq!(object.remove("id"), Some(json!(id)), "{query}");
        assert_eq!(object.remove("schemas"), Some(json!([USER, ENTERPRISE])), "{query}");
        json
    };
    assert_eq!(shown("attributes=userName"), json!({ "userName": "alice" }));
    assert_eq!(shown("attributes=USERNAME,%20externalid"), json!({ "userName": "alice", "externalId": "x" }));
    assert_eq!(
        shown("attributes=name.givenName,emails.type"),
        json!({ "name": { "givenName": "A" }, "emails": [{ "type": "work" }] })
    );
    assert_eq!(shown("attributes=id"), json!({}));
    assert_eq!(shown("attributes=unknown"), json!({}));
    assert_eq!(
        shown(&format!("attributes={ENTERPRISE}:department")),
        json!({ ENTERPRISE: { "department": "R" } })
    );
    assert_eq!(
        shown(&format!("attributes={ENTERPRISE}")),
        json!({ ENTERPRISE: { "department": "R", "division": "D" } })
    );
    assert_eq!(shown(&format!("attributes={USER}:title")), json!({ "title": "T" }));
    assert_eq!(shown("attributes=meta.version")["meta"], json!({ "version": "W/\"1\"" }));
    let without =
        shown(&format!("excludedAttributes=meta,emails.value,name,id,schemas,{ENTERPRISE}:division"));
    assert_eq!(
        without,
        json!({ "userName": "alice", "externalId": "x", "title": "T", "active": true, "emails": [{ "type": "work" }], ENTERPRISE: { "department": "R" } })
    );
    client.get(&format!("/Users/{id}?attributes=title&excludedAttributes=name")).refused(400, "invalidValue");
    let many = vec!["a"; 101].join(",");
    client.get(&format!("/Users/{id}?attributes={many}")).refused(400, "invalidValue");
    // The same for what is made and changed.
    let made =
        client.post("/Users?attributes=title", &said(USER, json!({ "userName": "bob", "title": "B" })));
    assert_eq!(made.json["userName"], Value::Null);
    let path = format!("/Users/{id}?attributes=title");
    let patched = client.patch(&path, &json!([{ "op": "replace", "path": "title", "value": "U" }]));
    assert_eq!((&patched.json["title"], &patched.json["userName"]), (&json!("U"), &Value::Null));
}

#[test]
fn a_search_says_the_same_in_a_body() {
    let directory = MemoryDirectory::new();
    let client = seven(&directory);
    client.group("Delta group", &[]);
    let search = |path: &str, mut body: Value| {
        body["schemas"] = json!(["urn:ietf:params:scim:api:messages:2.0:SearchRequest"]);
        client.post(path, &body)
    };
    let found = search(
        "/Users/.search",
        json!({ "filter": "active eq true", "sortBy": "userName", "count": 2, "startIndex": 2, "attributes": ["userName"] }),
    );
    assert_eq!(found.status, 200, "{found:?}");
    assert_eq!(
        (found.each("userName"), found.each("title")),
        (vec!["Echo".to_owned(), "foxtrot".to_owned()], vec![String::new(); 2])
    );
    assert_eq!(found.json["totalResults"], json!(4));
    // Users and groups at once: an attribute that one of them has not is one without a value (RFC 7644 §3.4.2.1).
    let both = r#"userName eq "delta" or displayName sw "delta""#;
    let found = search("/.search", json!({ "filter": both }));
    assert_eq!(
        (found.each("userName"), found.each("displayName")),
        (vec!["delta".to_owned(), String::new()], vec![String::new(), "Delta group".to_owned()])
    );
    let found = client.get(&format!("/?filter={}&sortBy=displayName&sortOrder=descending", encoded(both)));
    assert_eq!(found.each("userName"), ["delta", ""]);
    assert_eq!(
        search("/.search", json!({ "sortBy": "displayName", "count": 1 })).each("displayName"),
        ["Delta group"]
    );
    assert_eq!(search("/Groups/.search", json!({})).json["totalResults"], json!(1));
    for bad in [
        json!({ "count": "1" }),
        json!({ "filter": 5 }),
        json!({ "attributes": "userName" }),
        json!({ "attributes": [5] }),
        json!({ "startIndex": 1.5 }),
    ] {
        search("/Users/.search", bad).refused(400, "invalidValue");
    }
    client.post("/.search", &json!({ "filter": "userName pr" })).refused(400, "invalidSyntax");
    search("/.search", json!({ "filter": "wrong pr" })).refused(400, "invalidFilter");
}
