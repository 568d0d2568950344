//! An administrator gives no more than the administrator holds.

use sallyport_access::{HostRole, Identity, Policies, Role};

use crate::people::{policies, role, user};

fn presets() -> Vec<Role> {
    use sallyport_access::role::{PRESET_ACCESS, PRESET_AUDITOR, PRESET_EDITOR};
    [PRESET_ACCESS, PRESET_AUDITOR, PRESET_EDITOR].map(|text| Role::parse(text).unwrap()).into()
}

fn all(more: &[Role]) -> Policies {
    policies(&[presets(), more.to_vec()].concat())
}

fn holds(policies: &Policies, holder: &Identity, other: &Identity) -> bool {
    policies.holds(holder, policies, other, "the other").is_ok()
}

#[test]
fn rights_to_the_api_are_held_or_not() {
    let desk = role("desk", "{allow: {rules: [{resources: [user], verbs: ['*']}]}}");
    let reader = role("reader", "{allow: {rules: [{resources: [user], verbs: [read]}]}}");
    let but = role("but", "{deny: {rules: [{resources: [ca], verbs: [update]}]}}");
    let all = all(&[desk, reader, but]);
    let dora = user("dora", &["desk"], &[]);
    assert!(holds(&all, &dora, &user("rita", &["reader"], &[])));
    assert!(holds(&all, &dora, &user("none", &[], &[])));
    assert!(holds(&all, &dora, &dora));
    let refused = all.holds(&dora, &all, &user("eve", &["editor"], &[]), "eve").unwrap_err();
    assert!(
        refused.public_message().contains("dora does not hold all that eve holds: dora may not"),
        "{refused}"
    );
    for roles in [&["editor"][..], &["auditor"], &["reader", "editor"]] {
        assert!(!holds(&all, &dora, &user("x", roles, &[])), "{roles:?}");
    }
    let eve = user("eve", &["editor"], &[]);
    assert!(all.administers(&eve));
    assert!(holds(
        &all,
        &eve,
        &user("x", &["editor", "access", "auditor"], &[("internal.logins", &["root"])])
    ));
    // An editor with one right taken away is no administrator of everything any more, and gives no whole editor.
    let less = user("less", &["editor", "but"], &[]);
    assert!(!all.administers(&less));
    assert!(!holds(&all, &less, &eve));
    assert!(holds(&all, &less, &user("y", &["editor", "but"], &[])));
}

#[test]
fn logins_databases_and_sessions_are_held_or_not() {
    let roles = [
        role(
            "ops",
            "{allow: {logins: ['*'], node_labels: {env: [prod, dev]}, db_labels: {'*': '*'}, db_users: ['*'], db_names: [app]}}",
        ),
        role("dev", "{allow: {logins: ['{{internal.logins}}', deploy], node_labels: {env: dev}}}"),
        role("dev-team", "{allow: {logins: [deploy], node_labels: {env: dev, team: x}}}"),
        role("glob", "{allow: {logins: [deploy], node_labels: {env: 'd*'}}}"),
        role("everywhere", "{allow: {logins: [deploy], node_labels: {'*': '*'}}}"),
        role("loose", "{allow: {logins: [deploy], node_labels: {env: dev}}, options: {forward_agent: true}}"),
        role("long", "{allow: {logins: [deploy], node_labels: {env: dev}}, options: {max_login_ttl: 20h}}"),
        role(
            "few",
            "{allow: {logins: [deploy], node_labels: {env: dev}}, options: {max_logins: 2, login_idle_timeout: 1h}}",
        ),
        role(
            "many",
            "{allow: {logins: [deploy], node_labels: {env: dev}}, options: {max_logins: 3, login_idle_timeout: 1h}}",
        ),
        role(
            "idle",
            "{allow: {logins: [deploy], node_labels: {env: dev}}, options: {max_logins: 2, login_idle_timeout: 2h}}",
        ),
        role(
            "strict",
            "{allow: {logins: [deploy], node_labels: {env: dev}}, options: {record_session: strict, max_login_ttl: 1h}}",
        ),
        role("db", "{allow: {db_labels: {env: prod}, db_users: ['{{internal.db_users}}'], db_names: [app]}}"),
        role("db-all", "{allow: {db_labels: {env: prod}, db_users: [app], db_names: ['*']}}"),
        role("join", "{allow: {join_sessions: [{roles: [dev], modes: [observer]}]}}"),
        role("join-all", "{allow: {join_sessions: [{roles: ['*'], modes: [observer, peer]}]}}"),
        role("plain", "{allow: {logins: [deploy], node_labels: {env: dev}}}"),
        role("no-root", "{deny: {logins: [root]}}"),
        role(
            "proven",
            "{allow: {logins: [deploy], node_labels: {env: dev}}, options: {require_session_mfa: yes, session_mfa_ttl: 5m}}",
        ),
        role(
            "proven-longer",
            "{allow: {logins: [deploy], node_labels: {env: dev}}, options: {require_session_mfa: yes, session_mfa_ttl: 10m}}",
        ),
        role(
            "by-hardware",
            "{allow: {logins: [deploy], node_labels: {env: dev}}, options: {require_session_mfa: hardware}}",
        ),
        role(
            "from-a-device",
            "{allow: {logins: [deploy], node_labels: {env: dev}}, options: {device_trust: required}}",
        ),
        role(
            "from-one-place",
            "{allow: {logins: [deploy], node_labels: {env: dev}}, options: {pin_source_ip: true}}",
        ),
        role("typed", "{allow: {logins: [deploy], node_labels: {env: dev}}, options: {record_input: full}}"),
    ];
    let all = all(&roles);
    let (ops, logins) = (user("olga", &["ops"], &[]), [("internal.logins", &["root"][..])]);
    for (theirs, expected) in [
        (&["dev"][..], true),
        (&["dev-team"], true),
        (&["strict"], true),
        (&["typed"], true),
        (&["glob"], false),
        (&["everywhere"], false),
        (&["loose"], false),
        (&["long"], false),
        (&["db"], true),
        (&["db-all"], false),
        (&["join"], false),
        (&["dev", "everywhere"], false),
    ] {
        assert_eq!(holds(&all, &ops, &user("x", theirs, &logins)), expected, "{theirs:?}");
    }
    // The same role is one's own, with no more of the traits.
    let dave = user("dave", &["dev"], &[("internal.logins", &["dave", "web"])]);
    assert!(holds(&all, &dave, &user("x", &["dev"], &[("internal.logins", &["web"])])));
    assert!(!holds(&all, &dave, &user("x", &["dev"], &[("internal.logins", &["root"])])));
    assert!(!holds(&all, &dave, &user("x", &["dev"], &[("internal.logins", &["web", "root"])])));
    assert!(!holds(&all, &user("joe", &["join"], &[]), &user("x", &["join-all"], &[])));
    assert!(holds(&all, &user("joe", &["join-all"], &[]), &user("x", &["join"], &[])));
    // Who has what they type recorded gives no role in which it is not.
    let tina = user("tina", &["typed"], &[]);
    assert!(holds(&all, &tina, &user("x", &["typed"], &[])));
    assert!(!holds(&all, &tina, &user("x", &["dev-team"], &[])));
    // Who proves a factor before each session gives no role without, or in which a proof serves longer.
    let petra = user("petra", &["proven"], &[]);
    for (theirs, expected) in
        [("proven", true), ("by-hardware", true), ("proven-longer", false), ("plain", false)]
    {
        assert_eq!(holds(&all, &petra, &user("x", &[theirs], &[])), expected, "{theirs}");
    }
    // Nor does one whose own sessions need a trusted device give a role whose sessions need none.
    let dana = user("dana", &["from-a-device"], &[]);
    assert!(holds(&all, &dana, &user("x", &["from-a-device"], &[])));
    assert!(!holds(&all, &dana, &user("x", &["dev-team"], &[])));
    // Nor one who is held to an address a role whose holders are not.
    let paul = user("paul", &["from-one-place"], &[]);
    assert!(holds(&all, &paul, &user("x", &["from-one-place"], &[])));
    assert!(!holds(&all, &paul, &user("x", &["dev-team"], &[])));
    // Who may have few logins gives no role with more of them, or for longer.
    let fay = user("fay", &["few"], &[]);
    assert!(holds(&all, &fay, &user("x", &["few"], &[])));
    for more in ["many", "idle", "dev-team"] {
        assert!(!holds(&all, &fay, &user("x", &[more], &[])), "{more}");
    }
    // What is denied to the one has to be denied to the other.
    let nora = user("nora", &["ops", "no-root"], &[]);
    assert!(!holds(&all, &nora, &user("x", &["dev"], &logins)));
    assert!(holds(&all, &nora, &user("x", &["dev", "no-root"], &logins)));
}

#[test]
fn a_role_is_held_as_it_is_to_be() {
    let before = role("desk", "{allow: {rules: [{resources: [role], verbs: [read, update]}]}}");
    let after = role("desk", "{allow: {rules: [{resources: ['*'], verbs: ['*']}]}}");
    let less = role("desk", "{allow: {rules: [{resources: [role], verbs: [read]}]}}");
    let (now, then) = (all(&[before]), all(&[after]));
    let dora = user("dora", &["desk"], &[]);
    assert!(now.holds(&dora, &now, &dora, "role desk").is_ok());
    assert!(now.holds(&dora, &then, &dora, "role desk").is_err());
    assert!(now.holds(&dora, &all(&[less]), &dora, "role desk").is_ok());
}

#[test]
fn a_host_takes_what_it_reads_and_a_proxy_everything() {
    let reads = |name: &str, resources: &[&str]| {
        let rules = format!("{{resources: [{}], verbs: [list, read]}}", resources.join(", "));
        role(name, &format!("{{allow: {{rules: [{{resources: [token], verbs: [create]}}, {rules}]}}}}"))
    };
    // What an agent is told of in part, databases say, takes no right.
    let told = ["ca", "role", "lock", "session_policy"];
    let mut roles = vec![
        role("tokens", "{allow: {rules: [{resources: [token], verbs: ['*']}]}}"),
        reads("joiner", &told),
        reads("ca-alone", &["ca"]),
    ];
    let without = |left_out: &str| format!("no-{}", left_out.replace('_', "-"));
    for left_out in told {
        let rest: Vec<&str> = told.into_iter().filter(|resource| *resource != left_out).collect();
        roles.push(reads(&without(left_out), &rest));
    }
    let all = all(&roles);
    // An agent decides by roles, locks and the session policy; an OpenSSH server learns whom to trust, and no more.
    for left_out in told {
        let most = user("m", &[&without(left_out)], &[]);
        let refused = all.holds_host(&most, HostRole::Node).unwrap_err();
        assert!(refused.public_message().contains(&format!("m may not list {left_out}")), "{refused}");
        assert_eq!(all.holds_host(&most, HostRole::OpenSsh).is_ok(), left_out != "ca", "{left_out}");
    }
    let least = user("l", &["ca-alone"], &[]);
    assert!(all.holds_host(&least, HostRole::Node).is_err());
    assert!(all.holds_host(&least, HostRole::OpenSsh).is_ok());
    let (tokens, joiner, eve) =
        (user("t", &["tokens"], &[]), user("j", &["joiner"], &[]), user("eve", &["editor"], &[]));
    for role in [HostRole::Node, HostRole::OpenSsh] {
        assert!(all.holds_host(&tokens, role).is_err(), "{role:?}");
        assert!(all.holds_host(&joiner, role).is_ok(), "{role:?}");
        assert!(all.holds_host(&eve, role).is_ok(), "{role:?}");
    }
    for role in [HostRole::Proxy, HostRole::Auth] {
        assert!(all.holds_host(&joiner, role).is_err(), "{role:?}");
        assert!(all.holds_host(&eve, role).is_ok(), "{role:?}");
    }
}
