//! What a person reads when a role is wrong.

use sallyport_access::{Lock, Role};

fn errors(yaml: &str) -> String {
    Role::parse(yaml).unwrap_err().to_string()
}

#[test]
fn every_mistake_is_told_at_once_with_its_place_and_its_fix() {
    let text = errors(
        "\
kind: role
version: v1
metadata:
  name: dev
spec:
  alow:
    logins: [root]
  allow:
    logins: ['{{internal}}', 'bad;name', ok]
    node_labels:
      env: ['^web-[0-9+$', 'web$']
      '*': prod
    rules:
      - resources: [rle]
        verbs: [lst]
      - verbs: [read]
  options:
    max_login_ttl: 30s
    forward_agent: 'maybe'
    record_session: always
    record_input: all
    max_sessions: 0
",
    );
    let expected = [
        "role:6:3: spec.alow: no such key; did you mean allow?",
        "role:9:14: spec.allow.logins: \"{{internal}}\": is not a trait that a template can name; write an account name",
        "role:9:30: spec.allow.logins: \"bad;name\": login \"bad;name\" contains ';'",
        "role:11:13: spec.allow.node_labels.env: \"^web-[0-9+$\": is not a regular expression: unclosed character class",
        "spec.allow.node_labels.env: \"web$\": looks like half a regular expression; begin it with ^ and end it with $",
        "role:12:7: spec.allow.node_labels.*: the label '*' goes with the value '*' only",
        "role:14:21: spec.allow.rules[0].resources: \"rle\": no such kind of resource, did you mean role",
        "role:15:17: spec.allow.rules[0].verbs: \"lst\": no such verb; write some of list, read, create, update, delete",
        "spec.allow.rules[1].resources: is missing; write resources: [...]",
        "role:18:20: spec.options.max_login_ttl: \"30s\": is out of range; write a time from 1m to 7d",
        "role:19:20: spec.options.forward_agent: expected true or false, got text; write true or false, without quotes",
        "role:20:21: spec.options.record_session: \"always\": is not one of the choices; write one of strict, best_effort",
        "role:21:19: spec.options.record_input: \"all\": is not one of the choices; write one of hash, full",
        "role:22:19: spec.options.max_sessions: \"0\": is out of range; write a whole number from 1 to 10000",
    ];
    for line in expected {
        assert!(text.contains(line), "missing: {line}\nin:\n{text}");
    }
    assert_eq!(text.lines().count(), expected.len(), "{text}");
}

#[test]
fn what_is_missing_is_named() {
    assert_eq!(
        errors("kind: role\n"),
        "role:1:1: version: is missing; write version: v1\n\
         role:1:1: metadata: is missing; write metadata: with a name below it\n\
         role:1:1: spec: is missing; write spec: with allow, deny or options below it"
    );
    assert!(
        errors("kind: lock\nversion: v2\nmetadata: {name: x}\nspec: {}\n")
            .contains("\"lock\" is not \"role\"; write kind: role")
    );
    assert!(errors("kind: [role\n").contains("this is not valid YAML"));
    assert!(errors("").contains("is missing") || errors("").contains("not valid YAML"));
}

#[test]
fn a_lock_has_one_target() {
    let lock = |target: &str| {
        Lock::parse(&format!("kind: lock\nversion: v1\nmetadata: {{name: l}}\nspec: {{target: {target}}}\n"))
    };
    assert!(lock("{user: alice}").is_ok());
    assert!(
        lock("{user: alice, node: web-1}").unwrap_err().to_string().contains("make one lock for each target")
    );
    assert!(lock("{usr: alice}").unwrap_err().to_string().contains("did you mean user?"));
    assert!(lock("{}").is_err());
}
