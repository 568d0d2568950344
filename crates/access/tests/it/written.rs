//! Roles as they are written out, byte for byte: documents in stores and in people's repositories do not change by themselves.

use sallyport_access::Role;

#[test]
fn a_role_is_written_as_ever() {
    let text = "kind: role\nversion: v1\nmetadata: {name: all, description: of everything, expires: 2030-01-31T12:00:00Z}\nspec:\n  allow:\n    rules: [{resources: [db, role], verbs: [read, list]}]\n    \
                db_users: ['{{external.u}}']\n    db_labels: {env: [prod, 'x-*'], '*': '*'}\n    db_names: ['*']\n    \
                node_labels: {team: '^a|b$', env: yes}\n    logins: [root, '{{internal.logins}}']\n    db_roles: [reader]\n    \
                join_sessions: [{roles: ['*'], modes: [observer]}]\n  deny:\n    db_labels: {env: secret}\n  options: \
                {max_sessions: 3, forward_agent: true}\n";
    assert_eq!(Role::parse(text).unwrap().to_yaml(), GOLDEN);
}

const GOLDEN: &str = r#"kind: role
version: v1
metadata:
  description: of everything
  expires: "2030-01-31T12:00:00Z"
  name: all
spec:
  allow:
    logins:
    - root
    - "{{internal.logins}}"
    node_labels:
      env:
      - "yes"
      team:
      - ^a|b$
    db_labels:
      "*":
      - "*"
      env:
      - prod
      - x-*
    db_names:
    - "*"
    db_users:
    - "{{external.u}}"
    db_roles:
    - reader
    join_sessions:
    - modes:
      - observer
      roles:
      - "*"
    rules:
    - resources:
      - db
      - role
      verbs:
      - list
      - read
  deny:
    db_labels:
      env:
      - secret
  options:
    forward_agent: true
    max_sessions: 3
"#;
