use sallyport_scim::{Done, Kind, MAX_BODY_BYTES, MemoryDirectory, Provider, What, contract};
use serde_json::{Value, json};

use crate::client::*;

#[test]
fn the_directory_in_memory_keeps_the_contract() {
    let directory = MemoryDirectory::new();
    directory.add_local("local");
    ready(contract::suite(&directory.connector("mine"), &directory.connector("other")));
}

#[test]
fn a_user_is_made_read_replaced_and_removed() {
    let directory = MemoryDirectory::new();
    let mut client = Client::new(&directory, "okta");
    let made = client.user(json!({
        "userName": "alice",
        "externalId": "00u1",
        "id": "mine",
        "password": "secret",
        "x509Certificates": [{ "value": "MII" }],
        "unknown": { "a": 1 },
        "groups": [{ "value": "admins" }],
        "meta": { "created": "1999-01-01T00:00:00Z" },
        "NAME": { "GivenName": "Alice", "unknown": 1 },
        "emails": [{ "value": "a@example.com", "type": "work", "primary": "True" }, { "value": "a@example.com", "type": "work", "primary": true }],
        "nickName": null,
        "phoneNumbers": [],
        ENTERPRISE: { "department": "R", "unknown": 1, "manager": { "value": "7", "displayName": "no" } },
    }));
    let id = made.id();
    let location = format!("{BASE}/Users/{id}");
    assert_ne!(id, "mine");
    assert_eq!(made.header("Location"), location);
    assert_eq!(made.header("ETag"), "W/\"1\"");
    assert_eq!(made.header("Content-Type"), "application/scim+json");
    assert_eq!(made.done, Some(Done { kind: Kind::User, id: id.clone(), what: What::Created }));
    let expected = json!({
        "schemas": [USER, ENTERPRISE],
        "id": id,
        "externalId": "00u1",
        "meta": {
            "resourceType": "User",
            "created": "2026-01-01T12:00:00Z",
            "lastModified": "2026-01-01T12:00:00Z",
            "location": location,
            "version": "W/\"1\"",
        },
        "userName": "alice",
        "active": true,
        "name": { "givenName": "Alice" },
        "emails": [{ "value": "a@example.com", "type": "work", "primary": true }],
        ENTERPRISE: { "department": "R", "manager": { "value": "7" } },
    });
    assert_eq!(made.json, expected);
    let path = format!("/Users/{id}");
    assert_eq!(client.get(&path).json, expected);
    assert_eq!(client.get(&format!("{path}/")).json, expected);

    client.now += time::Duration::hours(1);
    let put = client.put(&path, &said(USER, json!({ "userName": "Alice", "displayName": "A" })));
    assert_eq!(put.status, 200, "{put:?}");
    assert_eq!(put.done.map(|done| done.what), Some(What::Changed));
    let mut after = put.json.clone();
    assert_eq!(after["meta"]["lastModified"], "2026-01-01T13:00:00Z");
    assert_eq!(after["meta"]["version"], "W/\"2\"");
    after.as_object_mut().unwrap().remove("meta");
    // What a PUT leaves out is gone, but for whether the user may log in.
    let kept =
        json!({ "schemas": [USER], "id": id, "userName": "Alice", "active": true, "displayName": "A" });
    assert_eq!(after, kept);

    // The same again is no change.
    client.now += time::Duration::hours(1);
    let again = client.put(&path, &said(USER, json!({ "userName": "Alice", "displayName": "A" })));
    assert_eq!((again.status, again.done, &again.json), (200, None, &put.json));

    let gone = client.delete(&path);
    assert_eq!((gone.status, &gone.json), (204, &Value::Null));
    assert_eq!(gone.done.map(|done| done.what), Some(What::Deleted));
    client.get(&path).refused(404, "");
    client.delete(&path).refused(404, "");
    client.put(&path, &said(USER, json!({ "userName": "alice" }))).refused(404, "");
    client.patch(&path, &json!([{ "op": "add", "path": "title", "value": "x" }])).refused(404, "");
}

#[test]
fn only_a_word_of_the_client_lets_a_user_back_in() {
    let directory = MemoryDirectory::new();
    let client = Client::new(&directory, "okta");
    let path = format!("/Users/{}", client.user(json!({ "userName": "alice" })).id());
    let what = |answer: Answer| answer.done.map(|done| done.what);
    let put = |attributes: Value| client.put(&path, &said(USER, attributes));
    let off = client.patch(&path, &json!([{ "op": "replace", "value": { "active": false } }]));
    assert_eq!(off.json["active"], json!(false));
    assert_eq!(what(off), Some(What::Deactivated));
    // A PUT that does not say, a rename, a null.
    assert_eq!(put(json!({ "userName": "alice", "title": "x" })).json["active"], json!(false));
    assert_eq!(put(json!({ "userName": "alice2", "active": null })).json["active"], json!(false));
    assert_eq!(what(put(json!({ "userName": "alice", "active": true }))), Some(What::Activated));
    // Without the attribute, a user is not active.
    let removed = client.patch(&path, &json!([{ "op": "remove", "path": "active" }]));
    assert_eq!(removed.json.get("active"), None);
    assert_eq!(what(removed), Some(What::Deactivated));
    assert_eq!(what(put(json!({ "userName": "alice", "title": "y" }))), Some(What::Changed));
    assert_eq!(put(json!({ "userName": "alice" })).json.get("active"), None);
}

#[test]
fn a_connector_reaches_what_it_made_alone() {
    let directory = MemoryDirectory::new();
    directory.add_local("root");
    let (okta, entra) = (Client::new(&directory, "okta"), Client::new(&directory, "entra"));
    let user = okta.user(json!({ "userName": "alice" })).id();
    let group = okta.group("ops", &[&user]).id();
    for path in [format!("/Users/{user}"), format!("/Groups/{group}")] {
        let (kind, schema) = if path.contains("Users") { ("userName", USER) } else { ("displayName", GROUP) };
        entra.get(&path).refused(404, "");
        entra.put(&path, &said(schema, json!({ kind: "stolen" }))).refused(404, "");
        entra.patch(&path, &json!([{ "op": "replace", "path": kind, "value": "stolen" }])).refused(404, "");
        entra.delete(&path).refused(404, "");
        assert_eq!(okta.get(&path).status, 200);
    }
    // An identifier of one kind is none of the other.
    okta.get(&format!("/Groups/{user}")).refused(404, "");
    okta.delete(&format!("/Users/{group}")).refused(404, "");
    for path in ["/Users", "/Groups", "/", "/Users?filter=userName%20eq%20%22alice%22"] {
        assert_eq!(entra.get(path).json["totalResults"], json!(0), "{path}");
    }
    assert_eq!(entra.get(&format!("/Users?filter=id%20eq%20%22{user}%22")).json["totalResults"], json!(0));
    // Nor do names of users that no connector made lead anywhere, whose they are stays unsaid.
    for name in ["ALICE", "root", "Root"] {
        entra.post("/Users", &said(USER, json!({ "userName": name }))).refused(409, "uniqueness");
    }
    assert!(okta.get("/Users").each("userName") == ["alice"]);
    // A group of one connector takes no users of another.
    let members = json!({ "displayName": "mine", "members": [{ "value": user }] });
    entra.post("/Groups", &said(GROUP, members)).refused(400, "invalidValue");
    let mine = entra.group("mine", &[]).id();
    let add = json!([{ "op": "add", "path": "members", "value": [{ "value": user }] }]);
    entra.patch(&format!("/Groups/{mine}"), &add).refused(400, "invalidValue");
}

#[test]
fn versions_guard_against_lost_changes() {
    let directory = MemoryDirectory::new();
    let client = Client::new(&directory, "okta");
    let made = client.user(json!({ "userName": "alice" }));
    let path = format!("/Users/{}", made.id());
    let rename = |to: &str| json!([{ "op": "replace", "path": "displayName", "value": to }]);
    let first = made.header("ETag").to_owned();
    let cached = client.send("GET", &path, &[("If-None-Match", &first)], b"");
    assert_eq!((cached.status, cached.header("ETag"), &cached.json), (304, &*first, &Value::Null));
    let second = client.patch_if(&path, &first, &rename("A"));
    assert_eq!(second.status, 200);
    let second = second.header("ETag").to_owned();
    assert_ne!(first, second);
    assert_eq!(client.send("GET", &path, &[("If-None-Match", &first)], b"").status, 200);
    client.patch_if(&path, &first, &rename("B")).refused(412, "");
    client.send("DELETE", &path, &[("If-Match", &first)], b"").refused(412, "");
    let headers = [("content-type", "application/json"), ("IF-MATCH", first.as_str())];
    let body = said(USER, json!({ "userName": "alice" })).to_string();
    client.send("PUT", &path, &headers, body.as_bytes()).refused(412, "");
    assert_eq!(client.get(&path).json["displayName"], "A");
    assert_eq!(client.patch_if(&path, "*", &rename("C")).status, 200);
    // The groups of a user are part of what is seen, and not of what is guarded.
    let seen = client.get(&path).header("ETag").to_owned();
    client.group("ops", &[&made.id()]);
    let headers = [("If-None-Match", seen.as_str())];
    let after = client.send("GET", &path, &headers, b"");
    assert_eq!((after.status, &after.json["groups"][0]["display"]), (200, &json!("ops")));
    assert_eq!(after.json["meta"]["version"], after.header("ETag"));
    assert_eq!(client.send("GET", &format!("{path}?excludedAttributes=groups"), &headers, b"").status, 304);
    assert_eq!(client.patch_if(&path, &seen, &rename("D")).status, 200);
    let now = client.get(&path).header("ETag").to_owned();
    assert_eq!(client.send("DELETE", &path, &[("If-Match", &now)], b"").status, 204);
}

#[test]
fn bodies_that_are_no_resource_are_refused() {
    let directory = MemoryDirectory::new();
    let client = Client::new(&directory, "okta");
    let json_type = ("Content-Type", "application/scim+json; charset=utf-8");
    let send = |body: &[u8]| client.send("POST", "/Users", &[json_type], body);
    for body in ["", "[]", "null", "{", "{}", "{\"schemas\":[]}", "{\"schemas\":\"x\",\"userName\":\"a\"}"] {
        send(body.as_bytes()).refused(400, "invalidSyntax");
    }
    let twice = format!("{{\"schemas\":[\"{USER}\"],\"userName\":\"a\",\"username\":\"b\"}}");
    send(twice.as_bytes()).refused(400, "invalidSyntax");
    let other = said(GROUP, json!({ "userName": "a" })).to_string();
    send(other.as_bytes()).refused(400, "invalidSyntax");
    send(&vec![b' '; MAX_BODY_BYTES + 1]).refused(413, "");
    for headers in [&[][..], &[("Content-Type", "text/plain")], &[("Content-Type", "application/jsonp")]] {
        client.send("POST", "/Users", headers, other.as_bytes()).refused(415, "");
    }
    for attributes in [
        json!({}),
        json!({ "userName": null }),
        json!({ "userName": "" }),
        json!({ "userName": " a" }),
        json!({ "userName": "a\u{1b}[2J" }),
        json!({ "userName": "a".repeat(257) }),
        json!({ "userName": 5 }),
        json!({ "userName": ["a", "b"] }),
        json!({ "userName": "a", "active": "yes" }),
        json!({ "userName": "a", "active": 1 }),
        json!({ "userName": "a", "externalId": 5 }),
        json!({ "userName": "a", "externalId": "x".repeat(257) }),
        json!({ "userName": "a", "name": [] }),
        json!({ "userName": "a", "name": { "givenName": {} } }),
        json!({ "userName": "a", "title": "x".repeat(2_049) }),
        json!({ "userName": "a", "emails": [5] }),
        json!({ "userName": "a", "emails": [{ "value": "a", "primary": true }, { "value": "b", "primary": true }] }),
        json!({ "userName": "a", ENTERPRISE: "x" }),
        json!({ "userName": "a", ENTERPRISE: { "department": 5 } }),
    ] {
        let answer = client.post("/Users", &said(USER, attributes.clone()));
        assert_eq!(answer.status, 400, "{attributes}");
        answer.refused(400, "invalidValue");
    }
    let many: Vec<Value> = (0..101).map(|at| json!({ "value": at.to_string() })).collect();
    client.post("/Users", &said(USER, json!({ "userName": "a", "emails": many }))).refused(413, "");
    let wide: Vec<Value> =
        (0..40).map(|at| json!({ "value": format!("{at}{}", "x".repeat(1_900)) })).collect();
    client.post("/Users", &said(USER, json!({ "userName": "a", "roles": wide }))).refused(413, "");
    client.post("/Groups", &said(GROUP, json!({ "displayName": " " }))).refused(400, "invalidValue");
    client
        .post("/Groups", &said(GROUP, json!({ "displayName": "g", "members": [{ "display": "x" }] })))
        .refused(400, "invalidValue");
    assert_eq!(client.get("/").json["totalResults"], json!(0));
}

#[test]
fn each_endpoint_has_its_methods() {
    let directory = MemoryDirectory::new();
    let client = Client::new(&directory, "okta");
    for (path, allowed) in [
        ("", "GET"),
        ("/.search", "POST"),
        ("/ServiceProviderConfig", "GET"),
        ("/ResourceTypes", "GET"),
        ("/ResourceTypes/User", "GET"),
        ("/Schemas", "GET"),
        ("/Schemas/x", "GET"),
        ("/Users", "GET, POST"),
        ("/Groups", "GET, POST"),
        ("/Users/.search", "POST"),
        ("/Users/7", "GET, PUT, PATCH, DELETE"),
    ] {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "get", ""] {
            let answer = client.send(method, path, &[], b"");
            let is_allowed = allowed.split(", ").any(|known| known == method);
            assert_eq!(answer.status == 405, !is_allowed, "{method} {path}: {answer:?}");
            if !is_allowed {
                answer.refused(405, "");
                assert_eq!(answer.header("Allow"), allowed);
            }
        }
    }
    for path in [
        "/users",
        "/Users/1/2",
        "/Users//",
        "/Wrong",
        "/ResourceTypes/Wrong",
        "/Schemas/urn:x",
        "Users",
        "/Users/%ff",
        "/%2e%2e/Users",
    ] {
        let answer = client.get(path);
        assert_eq!(answer.status, if path == "/Users//" { 200 } else { 404 }, "{path}: {answer:?}");
    }
    for path in ["/Bulk", "/Me"] {
        client.post(path, &json!({})).refused(501, "");
    }
    client.get(&format!("/Users/{}", "x".repeat(300))).refused(404, "");
    client.get("/Users/%0a").refused(404, "");
    let head = client.send("HEAD", "/Users", &[], b"");
    assert_eq!((head.status, &head.json), (200, &Value::Null));
}

#[test]
fn the_service_says_what_it_does() {
    let directory = MemoryDirectory::new();
    let client = Client::new(&directory, "okta");
    let config = client.get("/ServiceProviderConfig").json;
    for (what, supported) in [
        ("patch", true),
        ("bulk", false),
        ("filter", true),
        ("changePassword", false),
        ("sort", true),
        ("etag", true),
    ] {
        assert_eq!(config[what]["supported"], json!(supported), "{what}");
    }
    assert_eq!(config["filter"]["maxResults"], json!(200));
    assert_eq!(client.get("/ResourceTypes").each("name"), ["User", "Group"]);
    let user = client.get("/ResourceTypes/User").json;
    assert_eq!(user["schemaExtensions"], json!([{ "schema": ENTERPRISE, "required": false }]));
    let schemas = client.get("/Schemas");
    assert_eq!(schemas.json["totalResults"], json!(6));
    for schema in schemas.each("id") {
        assert_eq!(client.get(&format!("/Schemas/{schema}")).json["id"], json!(schema));
    }
    let attributes = client.get(&format!("/Schemas/{USER}")).json["attributes"].clone();
    let names: Vec<_> =
        attributes.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"userName") && !names.contains(&"password"));
    assert_eq!(attributes[0]["uniqueness"], "server");
    // There is one document of each, whatever a client looks for (RFC 7644 §4).
    for path in ["/ServiceProviderConfig", "/ResourceTypes", "/Schemas"] {
        client.get(&format!("{path}?filter=id%20pr")).refused(403, "");
    }
}

#[test]
fn an_address_is_one() {
    for base in [
        "proxy.example",
        "ftp://x",
        "https://",
        "https:///scim",
        "https://x/?a",
        "https://x/#a",
        "https://a b",
    ] {
        assert_eq!(Provider::new(base).unwrap_err().word(), "bad_base", "{base}");
    }
    assert!(Provider::new("https://[::1]:8443/scim/v2/").is_ok());
}
