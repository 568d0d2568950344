use std::collections::BTreeSet;

use proptest::prelude::*;
use sallyport_oidc::*;
use serde_json::{Map, Value, json};

fn apply(mapping: Value, claims: &Value) -> Mapped {
    let mapping = Mapping::parse(&serde_json::to_vec(&mapping).unwrap()).unwrap();
    mapping.apply(claims.as_object().unwrap())
}

fn set(values: &[&str]) -> BTreeSet<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

#[test]
fn roles_and_traits_come_from_claims_of_every_shape() {
    let claims = json!({
        "email": "alice@example.com",
        "email_verified": true,
        "level": 3,
        "groups": ["ops-eu", "dev", "dev"],
        "realm_access": { "roles": ["auditor"] },
        "https://example.com/claims": { "teams": [{ "name": "red" }, { "name": "blue" }, { "id": 7 }] },
    });
    let mapped = apply(
        json!({
            "roles": [
                { "claim": "groups", "value": "ops-*", "roles": ["admin", "on-call"] },
                { "claim": "realm_access.roles", "value": "auditor", "roles": ["auditor"] },
                { "claim": "[\"https://example.com/claims\"].teams.name", "roles": ["team-{{claims[\"https://example.com/claims\"].teams.name}}"] },
                { "claim": "email_verified", "value": "true", "roles": ["verified"] },
                { "claim": "level", "value": "3", "roles": ["level-3"] },
                { "claim": "groups", "value": "OPS-*", "roles": ["never"] },
                { "claim": "department", "roles": ["never"] },
                { "claim": "realm_access", "roles": ["never"] },
            ],
            "traits": {
                "logins": ["{{claims.email}}", "{{ claims.nickname }}"],
                "groups": ["{{claims.groups}}"],
                "pairs": ["{{claims.level}}:{{claims.groups}}"],
                "none": ["{{claims.nickname}}"],
            },
        }),
        &claims,
    );
    assert_eq!(
        mapped.roles,
        set(&["admin", "on-call", "auditor", "team-red", "team-blue", "verified", "level-3"])
    );
    assert_eq!(mapped.traits["groups"], set(&["ops-eu", "dev"]));
    assert_eq!(mapped.traits["pairs"], set(&["3:ops-eu", "3:dev"]));
    assert_eq!(mapped.traits["logins"], set(&["alice@example.com"]));
    assert!(!mapped.traits.contains_key("none") && !mapped.is_incomplete());
    // Each rule and each template says what it came to.
    assert_eq!(
        serde_json::to_value(&mapped.trace).unwrap(),
        json!([
            { "rule": 1, "from": "groups", "outcome": "hit", "matched": ["ops-eu"], "gave": ["admin", "on-call"] },
            { "rule": 2, "from": "realm_access.roles", "outcome": "hit", "matched": ["auditor"], "gave": ["auditor"] },
            { "rule": 3, "from": "[\"https://example.com/claims\"].teams.name", "outcome": "hit",
              "matched": ["red", "blue"], "gave": ["team-red", "team-blue"] },
            { "rule": 4, "from": "email_verified", "outcome": "hit", "matched": ["true"], "gave": ["verified"] },
            { "rule": 5, "from": "level", "outcome": "hit", "matched": ["3"], "gave": ["level-3"] },
            { "rule": 6, "from": "groups", "outcome": "no-match", "values": 2 },
            { "rule": 7, "from": "department", "outcome": "missing", "claim": "department" },
            { "rule": 8, "from": "realm_access", "outcome": "not-values", "claim": "realm_access", "found": "an object" },
            { "trait": "groups", "from": "{{claims.groups}}", "outcome": "hit", "matched": [], "gave": ["ops-eu", "dev"] },
            { "trait": "logins", "from": "{{claims.email}}", "outcome": "hit", "matched": [], "gave": ["alice@example.com"] },
            { "trait": "logins", "from": "{{ claims.nickname }}", "outcome": "missing", "claim": "nickname" },
            { "trait": "none", "from": "{{claims.nickname}}", "outcome": "missing", "claim": "nickname" },
            { "trait": "pairs", "from": "{{claims.level}}:{{claims.groups}}", "outcome": "hit", "matched": [],
              "gave": ["3:ops-eu", "3:dev"] },
        ])
    );
}

#[test]
fn traits_come_from_paths_templates_and_rules_and_each_says_whether_it_hit() {
    let claims = json!({
        "groups": ["ops-eu", "ops-us", "staff"], "unix_name": "alice", "realm_access": { "roles": ["auditor"] }, "level": 3,
    });
    let mapping = json!({
        "roles": [{ "claim": "groups", "matches": "ops-(eu|us)", "roles": ["ops"] }],
        "traits": {
            "env": [
                { "claim": "groups", "value": "ops-*", "values": ["prod", "of-{{claims.unix_name}}", "{{claims.nickname}}"] },
                { "claim": "groups", "matches": "o.s", "values": ["never"] },
                { "claim": "groups", "value": "ops-*", "matches": ".*-eu", "values": ["eu"] },
                "plain",
                { "claim": "department", "values": ["never"] },
                { "claim": "realm_access", "values": ["never"] },
            ],
            "none": [{ "claim": "groups", "values": ["{{claims.nickname}}"] }],
            "teams": [{ "claim": "groups", "matches": "ops-.*" }],
            "all": [{ "claim": "realm_access.roles" }],
        },
    });
    let read = Mapping::parse(&serde_json::to_vec(&mapping).unwrap()).unwrap();
    let written = serde_json::to_vec(&read).unwrap();
    assert_eq!(Mapping::parse(&written).unwrap(), read);
    let looked_at: Vec<&str> = read.claims().into_iter().collect();
    assert_eq!(looked_at, ["department", "groups", "nickname", "realm_access", "unix_name"]);
    let mapped = apply(mapping, &claims);
    assert_eq!(mapped.roles, set(&["ops"]));
    assert_eq!(mapped.traits["env"], set(&["prod", "of-alice", "eu", "plain"]));
    assert_eq!(mapped.traits["teams"], set(&["ops-eu", "ops-us"]));
    assert_eq!(mapped.traits["all"], set(&["auditor"]));
    assert!(!mapped.traits.contains_key("none") && !mapped.is_incomplete());
    assert_eq!(
        serde_json::to_value(&mapped.trace[1..]).unwrap(),
        json!([
            { "trait": "all", "rule": 1, "from": "realm_access.roles", "outcome": "hit", "matched": ["auditor"], "gave": ["auditor"] },
            { "trait": "env", "rule": 1, "from": "groups", "outcome": "hit", "matched": ["ops-eu", "ops-us"],
              "gave": ["prod", "of-alice"] },
            { "trait": "env", "rule": 2, "from": "groups", "outcome": "no-match", "values": 3 },
            { "trait": "env", "rule": 3, "from": "groups", "outcome": "hit", "matched": ["ops-eu"], "gave": ["eu"] },
            { "trait": "env", "from": "plain", "outcome": "hit", "matched": [], "gave": ["plain"] },
            { "trait": "env", "rule": 5, "from": "department", "outcome": "missing", "claim": "department" },
            { "trait": "env", "rule": 6, "from": "realm_access", "outcome": "not-values", "claim": "realm_access", "found": "an object" },
            { "trait": "none", "rule": 1, "from": "groups", "outcome": "hit", "matched": ["ops-eu", "ops-us", "staff"], "gave": [] },
            { "trait": "teams", "rule": 1, "from": "groups", "outcome": "hit", "matched": ["ops-eu", "ops-us"],
              "gave": ["ops-eu", "ops-us"] },
        ])
    );
    // What a rule looks at, or gives, and is elsewhere is not known, and no person is taken for one without it.
    for rule in [
        json!({ "claim": "groups", "values": ["x"] }),
        json!({ "claim": "sub", "values": ["{{claims.groups}}"] }),
    ] {
        let claims = json!({ "sub": "1", "hasgroups": true });
        let mapped = apply(json!({ "traits": { "env": [rule] } }), &claims);
        assert!(mapped.is_incomplete() && mapped.traits.is_empty(), "{mapped:?}");
    }
    for (rule, problem) in [
        (json!({ "claim": "groups", "value": "x", "roles": [] }), "roles"),
        (json!({ "values": ["x"] }), "claim"),
        (json!({ "claim": "groups", "matches": "(" }), "no regular expression"),
        (json!({ "claim": "groups", "matches": "(\\w{100}){200}" }), "too much memory"),
        (json!(7), "a template, or a rule"),
    ] {
        let json = json!({ "traits": { "env": [rule] } });
        let told = Mapping::parse(&serde_json::to_vec(&json).unwrap()).unwrap_err().to_string();
        assert!(told.contains(problem), "{problem}: {told}");
    }
}

/// Core §5.6.2: a person in too many groups loses no role in silence.
#[test]
fn groups_that_were_too_many_are_elsewhere_and_not_none() {
    let mapping = json!({
        "roles": [{ "claim": "groups", "value": "ops", "roles": ["admin"] }],
        "traits": { "groups": ["{{claims.groups}}"] },
    });
    let endpoint = "https://graph.example.com/me/getMemberObjects";
    let claims = json!({
        "_claim_names": { "groups": "src1", "other": "src2" },
        "_claim_sources": { "src1": { "endpoint": endpoint } },
    });
    let mapped = apply(mapping.clone(), &claims);
    assert!(mapped.is_incomplete() && mapped.roles.is_empty());
    let elsewhere = Outcome::Elsewhere { claim: "groups".to_owned(), endpoint: Some(endpoint.to_owned()) };
    assert!(mapped.trace.iter().all(|step| step.outcome == elsewhere));
    // No URL is taken that a token of another's would have asked.
    let claims = json!({
        "_claim_names": { "groups": "src1" },
        "_claim_sources": { "src1": { "endpoint": "http://169.254.169.254/latest" } },
    });
    assert_eq!(
        overages(claims.as_object().unwrap()),
        [Overage { claim: "groups".to_owned(), endpoint: None }]
    );
    assert!(apply(mapping.clone(), &json!({ "hasgroups": true })).is_incomplete());
    for none in [
        json!({}),
        json!({ "hasgroups": false }),
        json!({ "_claim_names": [] }),
        json!({ "groups": ["x"], "_claim_names": {} }),
    ] {
        assert!(!apply(mapping.clone(), &none).is_incomplete(), "{none}");
    }
    // A claim that came after all counts.
    let claims = json!({ "groups": ["ops"], "_claim_names": { "groups": "src1" } });
    assert!(!apply(mapping, &claims).is_incomplete());
}

#[test]
fn patterns_are_whole_and_literal() {
    let matches = |pattern: &str, value: &str| Pattern::new(pattern).matches(value);
    for (pattern, value) in [
        ("*", ""),
        ("*", "x"),
        ("a*", "a"),
        ("a*c", "abc"),
        ("*b*", "abc"),
        ("a*b*c", "a-b-b-c"),
        ("a.c", "a.c"),
    ] {
        assert!(matches(pattern, value), "{pattern} {value}");
    }
    for (pattern, value) in [
        ("", "x"),
        ("a", "ab"),
        ("a*a", "a"),
        ("a.c", "abc"),
        ("A", "a"),
        ("*b", "ba"),
        ("ab*ba", "aba"),
        ("a|b", "a"),
    ] {
        assert!(!matches(pattern, value), "{pattern} {value}");
    }
    // Stars do not multiply the time.
    assert!(!matches(&"*a".repeat(200), &"a".repeat(150)));
    assert!(!matches(&format!("{}b", "*a".repeat(200)), &"a".repeat(10_000)));
}

#[test]
fn what_cannot_be_read_says_so() {
    for text in ["", "a..b", ".a", "a.", "a b", "a[\"b\"", "a[b]", "[\"\"]", "a[\"b\"]c", "a{b}"] {
        assert_eq!(Path::parse(text).unwrap_err().word(), "bad_template", "{text}");
    }
    assert!(Path::parse(&vec!["a"; 17].join(".")).is_err());
    for text in [
        "",
        "{{claims.a",
        "{{a}}",
        "{{claims}}",
        "{{claimsa}}",
        "{{claims.}}",
        "a}}",
        "{{claims.a}}}}",
        "{{claims.a}}{{claims.b}}{{claims.c}}{{claims.d}}",
    ] {
        assert_eq!(Template::parse(text).unwrap_err().word(), "bad_template", "{text}");
    }
    let error = Mapping::parse(br#"{"roles":[{"claim":"groups","rolls":[]}]}"#).unwrap_err();
    assert!(error.to_string().contains("rolls"), "{error}");
    let error = Mapping::parse(br#"{"traits":{"a":["{{b}}"]}}"#).unwrap_err();
    assert!(error.to_string().contains("claims."), "{error}");
    let mapping =
        json!({ "roles": [{ "claim": "a.b", "value": "*", "roles": ["x-{{claims.c}}"] }], "traits": {} });
    let read = Mapping::parse(&serde_json::to_vec(&mapping).unwrap()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), mapping);
}

#[test]
fn what_is_too_much_is_cut_and_said_so() {
    let many: Vec<String> = (0..MAX_VALUES + 10).map(|at| at.to_string()).collect();
    let long = "x".repeat(MAX_VALUE_BYTES + 1);
    let claims = json!({ "many": many, "long": long, "mixed": [long, "short", ""], "nested": [["a"]] });
    let found = |path: &str| Path::parse(path).unwrap().find(claims.as_object().unwrap());
    assert!(matches!(found("many"), Found::Values(values) if values.len() == MAX_VALUES));
    assert_eq!(found("long"), Found::Other("a text that is empty or too long"));
    assert_eq!(found("mixed"), Found::Values(vec!["short".to_owned()]));
    assert_eq!(found("nested"), Found::Other("a list in a list"));
    assert_eq!(found("many.name"), Found::Other("a text"));
    let mapping = json!({ "traits": { "pairs": ["{{claims.many}}-{{claims.many}}"] } });
    let mapped = apply(mapping, &claims);
    assert_eq!(mapped.traits["pairs"].len(), MAX_TEXTS);
    assert!(mapped.trace[0].cut && mapped.is_incomplete());
    for (path, cut) in [("many", true), ("mixed", true), ("nested", false)] {
        let mapping = json!({ "roles": [{ "claim": path, "roles": ["r"] }] });
        assert_eq!(apply(mapping, &claims).is_incomplete(), cut, "{path}");
    }
}

#[test]
fn a_role_whose_claim_is_elsewhere_is_not_known_and_one_whose_claim_was_taken_out_is_told() {
    let rule = json!({ "roles": [{ "claim": "sub", "roles": ["dev", "team-{{claims.groups}}"] }] });
    let claims = json!({ "sub": "1", "hasgroups": true });
    let mapped = apply(rule, &claims);
    assert!(mapped.roles.is_empty() && mapped.is_incomplete());
    let rule = json!({ "roles": [{ "claim": "email", "roles": ["dev"] }] });
    let mapping = Mapping::parse(&serde_json::to_vec(&rule).unwrap()).unwrap();
    let claims = json!({ "sub": "1" });
    let mapped = mapping.apply_without(claims.as_object().unwrap(), &BTreeSet::from(["email"]));
    assert_eq!(mapped.trace[0].outcome, Outcome::Unverified { claim: "email".to_owned() });
    assert!(!mapped.is_incomplete());
}

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-c*.{}]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-c]", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    /// Whatever the claims are, there is an answer, a step for each rule, and no role without a hit.
    #[test]
    fn any_claims_are_mapped(
        claims in proptest::collection::btree_map("[a-c]", anything(), 0..4),
        path in "[a-c](\\.[a-c]){0,3}",
        pattern in "[a-c*]{0,4}",
    ) {
        let claims: Map<String, Value> = claims.into_iter().collect();
        let mapping = json!({ "roles": [{ "claim": path, "value": pattern, "roles": ["r", "{{claims.a}}"] }] });
        let mapped = apply(mapping, &Value::Object(claims));
        prop_assert_eq!(mapped.trace.len(), 1);
        let hit = matches!(mapped.trace[0].outcome, Outcome::Hit { .. });
        prop_assert_eq!(hit, mapped.roles.contains("r"));
    }

    #[test]
    fn any_text_is_a_path_or_none(text in "[a-c.\\[\\]\"{} ]{0,20}") {
        if let Ok(path) = Path::parse(&text) {
            prop_assert_eq!(path.to_string(), text.clone());
        }
        if let Ok(template) = Template::parse(&text) {
            prop_assert_eq!(template.to_string(), text);
        }
    }
}

#[test]
fn what_a_mapping_looks_at_can_be_asked_for() {
    let mapping = Mapping::parse(
        br#"{
            "roles": [{ "claim": "realm_access.roles", "value": "ops-*", "roles": ["{{claims.department}}", "dev"] }],
            "traits": { "logins": ["{{claims.preferred_username}}", "fixed"] }
        }"#,
    )
    .unwrap();
    let claims: Vec<&str> = mapping.claims().into_iter().collect();
    assert_eq!(claims, ["department", "preferred_username", "realm_access"]);
    let template = |text| Template::parse(text).unwrap();
    let claims = serde_json::json!({ "name": "alice", "groups": ["a", "b"] });
    let claims = claims.as_object().unwrap();
    assert_eq!(template("{{claims.name}}-sso").single(claims).as_deref(), Some("alice-sso"));
    assert_eq!(template("{{claims.groups}}").single(claims), None, "two texts are no name");
    assert_eq!(template("{{claims.other}}").single(claims), None);
    assert_eq!((template("dev").constant(), template("{{claims.name}}").constant()), (Some("dev"), None));
}
