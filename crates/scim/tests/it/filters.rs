use sallyport_scim::{Filter, MAX_FILTER_BYTES, MAX_FILTER_DEPTH, MemoryDirectory};
use serde_json::json;

use crate::client::*;

fn people(directory: &MemoryDirectory) -> Client<'_> {
    let client = Client::new(directory, "okta");
    client.user(json!({
        "userName": "Alice", "externalId": "A-1", "title": "Engineer", "active": true,
        "name": { "familyName": "Smith", "givenName": "Alice" },
        "emails": [
            { "value": "alice@work.example", "type": "work", "primary": true },
            { "value": "alice@home.example", "type": "home" },
        ],
        ENTERPRISE: { "department": "Research", "manager": { "value": "m-1" } },
    }));
    client.user(json!({
        "userName": "bob", "externalId": "a-1", "active": false, "displayName": "Bob \"B\" Smith",
        "emails": [{ "value": "bob@home.example", "type": "work" }, { "value": "b@work.example", "type": "home" }],
    }));
    client.user(json!({ "userName": "carol", "name": { "familyName": "Ångström" }, "title": "" }));
    client
}

#[test]
fn each_operator_compares_as_the_attribute_does() {
    let directory = MemoryDirectory::new();
    let client = people(&directory);
    for (filter, found) in [
        (r#"userName eq "alice""#, "Alice"),
        (r#"USERNAME EQ "ALICE""#, "Alice"),
        (r#"userName ne "alice""#, "bob carol"),
        (r#"userName co "L""#, "Alice carol"),
        (r#"userName sw "a""#, "Alice"),
        (r#"userName ew "B""#, "bob"),
        (r#"userName gt "bob""#, "carol"),
        (r#"userName ge "bob""#, "bob carol"),
        (r#"userName lt "bob""#, "Alice"),
        (r#"userName le "bob""#, "Alice bob"),
        // Identifiers of clients are opaque: case tells them apart.
        (r#"externalId eq "A-1""#, "Alice"),
        (r#"externalId eq "a-1""#, "bob"),
        (r#"externalId eq "A-2""#, ""),
        (r#"displayName eq "bob \"b\" smith""#, "bob"),
        (r#"displayName co "\u0022b\u0022""#, "bob"),
        (r#"name.familyName eq "smith""#, "Alice"),
        (r#"name.familyName eq "ångström""#, "carol"),
        ("name pr", "Alice carol"),
        ("title pr", "Alice"),
        ("nickName pr", ""),
        ("emails pr", "Alice bob"),
        ("emails.type pr", "Alice bob"),
        ("externalId eq null", "carol"),
        ("externalId ne null", "Alice bob"),
        // Who is made without a word about it may log in.
        ("active eq true", "Alice carol"),
        ("active ne true", "bob"),
        (r#"active eq "False""#, "bob"),
        (r#"emails co "WORK.example""#, "Alice bob"),
        (r#"emails.value eq "bob@home.example""#, "bob"),
        (r#"emails.type eq "home" and emails.value sw "alice@work""#, "Alice"),
        (r#"emails[type eq "home" and value sw "alice@work"]"#, ""),
        (r#"emails[type eq "work" and value ew "work.example"]"#, "Alice"),
        (r#"emails[not (type eq "work") and value co "work"]"#, "bob"),
        (r#"emails[primary eq true]"#, "Alice"),
        (r#"emails[primary eq "True"].value pr"#, "!"),
        (r#"name[familyName eq "Smith" and givenName pr]"#, "Alice"),
        (r#"meta.resourceType eq "User""#, "Alice bob carol"),
        (r#"meta.created ge "2026-01-01T13:00:00+01:00""#, "Alice bob carol"),
        (r#"meta.lastModified gt "2026-01-01T12:00:00Z""#, ""),
        ("meta.version pr", "Alice bob carol"),
        (r#"schemas eq "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User""#, "Alice"),
        (r#"urn:ietf:params:scim:schemas:core:2.0:User:userName eq "bob""#, "bob"),
        (r#"urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:department eq "research""#, "Alice"),
        (r#"urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:manager eq "m-1""#, "Alice"),
        (r#"urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:manager.value eq "M-1""#, ""),
        // An attribute of groups is none of a user's.
        (r#"members eq "x""#, ""),
    ] {
        if found == "!" {
            client.get(&format!("/Users?filter={}", encoded(filter))).refused(400, "invalidFilter");
        } else {
            assert_eq!(client.found(filter).join(" "), found, "{filter}");
        }
    }
    assert_eq!(client.found(&format!("id eq \"{:08}\"", 2)), ["bob"]);
}

#[test]
fn and_binds_before_or_and_not_before_both() {
    let directory = MemoryDirectory::new();
    let client = people(&directory);
    let (alice, bob, never) = (r#"userName eq "alice""#, r#"userName eq "bob""#, r#"userName eq "x""#);
    for (filter, found) in [
        (format!("{alice} or {bob} and {never}"), "Alice"),
        (format!("({alice} or {bob}) and {never}"), ""),
        (format!("{never} and {bob} or {alice}"), "Alice"),
        (format!("not ({alice}) and not ({bob})"), "carol"),
        (format!("not ({alice} or {bob})"), "carol"),
        (format!("NOT({alice})AND NOT  ( {bob} )"), "carol"),
        (format!("not (not (not ({alice})))"), "bob carol"),
        (format!(" ({alice})or({bob}) "), "Alice bob"),
        (format!("{alice} OR {bob} Or {never}"), "Alice bob"),
    ] {
        assert_eq!(client.found(&filter).join(" "), found, "{filter}");
    }
}

#[test]
fn what_is_no_filter_is_refused() {
    let directory = MemoryDirectory::new();
    let client = people(&directory);
    for filter in [
        "userName",
        "userName eq",
        "userName eq ",
        "userName eq alice",
        "userName eq 'alice'",
        r#"userName eq "alice"#,
        r#"userName eq "a\x""#,
        r#"userName is "alice""#,
        r#"userName eq "a" and"#,
        r#"and userName eq "a""#,
        r#"userName eq "a" userName eq "b""#,
        r#"userName eq "a"and userName eq "b""#,
        r#"(userName eq "a""#,
        r#"userName eq "a")"#,
        r#"not userName eq "a""#,
        "()",
        "emails[]",
        r#"emails[type eq "work""#,
        r#"emails[emails[type eq "work"]]"#,
        r#"emails[type eq "work"]]"#,
        r#"emails[name pr]"#,
        r#"emails[emails.type eq "work"]"#,
        r#"userName[value eq "a"]"#,
        r#"name.familyName[value eq "a"]"#,
        // Nothing of this name, and nothing that compares so.
        r#"password eq "x""#,
        "wrong pr",
        r#"name.wrong eq "x""#,
        r#"userName.value eq "x""#,
        "urn:ietf:params:scim:schemas:core:2.0:User pr",
        r#"urn:wrong:userName eq "x""#,
        "userName eq 5",
        "userName eq true",
        r#"active eq "yes""#,
        "active gt true",
        r#"active co "true""#,
        r#"name eq "x""#,
        r#"addresses eq "x""#,
        "userName gt null",
        r#"meta.created gt "yesterday""#,
        r#"meta.created sw "2026""#,
        r#"meta.location eq "x""#,
        r#"groups.$ref eq "x""#,
    ] {
        let answer = client.get(&format!("/Users?filter={}", encoded(filter)));
        assert_eq!(answer.status, 400, "{filter}: {answer:?}");
        answer.refused(400, "invalidFilter");
    }
}

#[test]
fn a_number_is_written_as_it_was_read() {
    // Read as one of the machine's numbers and written again, this is another one: what the fuzzer found.
    for number in ["6666666666600000000000000000000000000000000000000", "-0", "1E5", "1.50", "1e-400"] {
        let text = format!("userName eq {number}");
        assert_eq!(Filter::parse(&text).unwrap().to_string(), text);
    }
    for wrong in ["01", "1.", "+1", "NaN", "0x1", "1e999999"] {
        assert!(Filter::parse(&format!("userName eq {wrong}")).is_err(), "{wrong}");
    }
}

#[test]
fn filters_have_bounds() {
    let nested = |depth: usize| format!("{}userName pr{}", "(".repeat(depth), ")".repeat(depth));
    assert!(Filter::parse(&nested(MAX_FILTER_DEPTH)).is_ok());
    assert_eq!(Filter::parse(&nested(MAX_FILTER_DEPTH + 1)).unwrap_err().word(), "invalid_filter");
    let negated = format!("{}userName pr{}", "not (".repeat(400), ")".repeat(400));
    assert_eq!(Filter::parse(&negated).unwrap_err().word(), "invalid_filter");
    // Brackets count, too.
    let bracketed =
        format!("{}emails[type pr]{}", "(".repeat(MAX_FILTER_DEPTH), ")".repeat(MAX_FILTER_DEPTH));
    assert!(Filter::parse(&bracketed).is_err());
    let long = format!("userName eq \"{}\"", "a".repeat(MAX_FILTER_BYTES - "userName eq \"\"".len()));
    assert_eq!(long.len(), MAX_FILTER_BYTES);
    assert!(Filter::parse(&long).is_ok());
    assert!(Filter::parse(&format!("{long} ")).is_err());
    // As many as fit, side by side.
    assert!(Filter::parse(&vec!["active pr"; 150].join(" or ")).is_ok());
}

#[test]
fn members_and_groups_are_looked_for() {
    let directory = MemoryDirectory::new();
    let client = people(&directory);
    let alice = client.get("/Users").json["Resources"][0]["id"].as_str().unwrap().to_owned();
    let inner = client.group("inner", &[&alice]).id();
    let outer = client.group("outer", &[&inner]).id();
    for filter in [
        format!("members eq \"{alice}\""),
        format!("members.value eq \"{alice}\""),
        format!("members[value eq \"{alice}\"]"),
        r#"members[type eq "User"]"#.to_owned(),
        // Microsoft Entra asks so whether a user is in a group.
        format!("id eq \"{inner}\" and members eq \"{alice}\""),
    ] {
        let answer = client.get(&format!("/Groups?filter={}", encoded(&filter)));
        assert_eq!(answer.each("displayName"), ["inner"], "{filter}");
    }
    for (filter, found) in [
        (format!("groups eq \"{inner}\""), "Alice"),
        (format!("groups.value eq \"{outer}\""), "Alice"),
        (format!("groups[value eq \"{outer}\" and type eq \"direct\"]"), ""),
        (r#"groups.display eq "OUTER""#.to_owned(), "Alice"),
        ("not (groups pr)".to_owned(), "bob carol"),
    ] {
        assert_eq!(client.found(&filter).join(" "), found, "{filter}");
    }
}
