//! The decision about databases through its public surface.

use std::time::Duration;

use sallyport_access::{
    Database, DatabaseAccount, DatabaseLogin, DatabaseName, DatabaseProtocol, DatabaseTls, DatabaseUserMode,
    HostId, HostRole, Identity, Lock, NodeName, Policies, Principal, RecordAt, RecordPolicy, Role,
    SessionPolicy,
};

use crate::people::{now, policies, role, user};

fn database(name: &str, labels: &[(&str, &str)]) -> Database {
    Database {
        name: DatabaseName::new(name).unwrap(),
        labels: labels.iter().copied().collect(),
        protocol: DatabaseProtocol::Postgres,
        address: "127.0.0.1:5432".to_owned(),
        agents: vec![NodeName::new("agent-1").unwrap()],
        tls: DatabaseTls::default(),
        login: DatabaseLogin::Certificate,
        admin_user: None,
    }
}

const DEV: &str = "{allow: {db_labels: {env: [staging, 'dev-*', '^qa[0-9]+$'], team: '{{external.team}}'}, \
                   db_names: [app, '{{internal.db_names}}'], db_users: ['{{internal.db_users}}', reader]}}";

#[test]
fn a_database_needs_labels_a_user_and_a_name() {
    let policies = policies(&[role("dev", DEV)]);
    let alice = user(
        "alice",
        &["dev"],
        &[("internal.db_users", &["alice"]), ("team", &["web"]), ("internal.db_names", &["x"])],
    );
    let may = |labels: &[(&str, &str)], db_user: &str, db_name: &str| {
        policies.decide(
            &alice,
            &database("prod", labels),
            &DatabaseAccount::new(db_user, db_name),
            &[],
            now(),
        )
    };
    let staging = [("env", "staging"), ("team", "web")];
    let permit = may(&staging, "alice", "app").unwrap();
    assert_eq!((permit.db_user(), permit.db_name(), permit.database().as_str()), ("alice", "app", "prod"));
    assert_eq!(permit.user().as_str(), "alice");
    assert_eq!(permit.rule(), "role \"dev\" allow.db");
    assert_eq!(permit.valid_until(), alice.valid_before);
    assert_eq!(permit.options().user_mode, DatabaseUserMode::Off);
    assert_eq!(permit.options().statement_bytes, 4096);
    assert!(permit.limits().recording.at != RecordAt::Off && !permit.options().record_parameters);
    assert!(may(&[("env", "qa12"), ("team", "web")], "reader", "x").is_ok());
    assert!(may(&[("env", "dev-1"), ("team", "web")], "reader", "x").is_ok());
    assert!(may(&[("env", "staging")], "alice", "app").is_err(), "every label of the rule must match");
    assert!(may(&[("env", "qa12x"), ("team", "web")], "alice", "app").is_err());
    assert!(may(&staging, "postgres", "app").is_err());
    assert_eq!(
        may(&staging, "alice", "postgres").unwrap_err().public_message(),
        "alice may not use the database prod as \"alice\" with \"postgres\": no role allows it (of \"dev\"); users you \
         may use there: alice, reader; names: app, x"
    );
}

#[test]
fn nothing_is_allowed_by_default_and_two_of_three_are_nothing() {
    let alice = user("alice", &["half"], &[]);
    for spec in [
        "{}",
        "{allow: {db_labels: {'*': '*'}, db_users: ['*']}}",
        "{allow: {db_labels: {'*': '*'}, db_names: ['*']}}",
        "{allow: {db_names: ['*'], db_users: ['*']}}",
        "{allow: {node_labels: {'*': '*'}, logins: ['*']}}",
    ] {
        let policies = policies(&[role("half", spec)]);
        let prod = database("prod", &[]);
        assert!(
            policies.decide(&alice, &prod, &DatabaseAccount::new("alice", "app"), &[], now()).is_err(),
            "{spec}"
        );
        assert!(policies.database_choices(&alice, &prod).is_empty(), "{spec}");
        assert!(policies.visible_databases(&alice, [&prod]).is_empty(), "{spec}");
    }
}

#[test]
fn deny_wins_and_is_named() {
    let policies = policies(&[
        role("all", "{allow: {db_labels: {'*': '*'}, db_names: ['*'], db_users: ['*']}}"),
        role("no-root", "{deny: {db_users: [postgres], db_names: [template1]}}"),
        role("no-prod", "{deny: {db_labels: {env: prod}}}"),
    ]);
    let alice = user("alice", &["all", "no-root", "no-prod"], &[]);
    let staging = database("staging", &[("env", "staging")]);
    let prod = database("prod", &[("env", "prod")]);
    let rule = |database: &Database, db_user: &str, db_name: &str| {
        let refusal =
            policies.decide(&alice, database, &DatabaseAccount::new(db_user, db_name), &[], now()).err();
        refusal.map(|refusal| refusal.rule().unwrap_or_default().to_owned())
    };
    assert_eq!(rule(&staging, "x", "y"), None);
    assert_eq!(rule(&staging, "postgres", "y").unwrap(), "role \"no-root\" deny.db_users[0]");
    assert_eq!(rule(&staging, "x", "template1").unwrap(), "role \"no-root\" deny.db_names[0]");
    assert_eq!(rule(&prod, "x", "y").unwrap(), "role \"no-prod\" deny.db_labels");
    let choices = policies.database_choices(&alice, &staging);
    assert_eq!(
        (choices.users, choices.names),
        (vec!["*".to_owned(), "alice".to_owned()], vec!["*".to_owned()])
    );
    assert_eq!(policies.visible_databases(&alice, [&staging, &prod]).len(), 1);
}

#[test]
fn names_that_a_server_would_cut_are_refused() {
    let policies =
        policies(&[role("all", "{allow: {db_labels: {'*': '*'}, db_names: ['*'], db_users: ['*']}}")]);
    let alice = user("alice", &["all"], &[]);
    let prod = database("prod", &[]);
    let may = |db_user: &str, db_name: &str| {
        policies.decide(&alice, &prod, &DatabaseAccount::new(db_user, db_name), &[], now()).map(drop)
    };
    assert!(may(&"u".repeat(63), &"n".repeat(63)).is_ok());
    for (db_user, db_name) in [
        ("u".repeat(64), "n".to_owned()),
        (String::new(), "n".to_owned()),
        ("u".to_owned(), "a\0b".to_owned()),
    ] {
        assert!(may(&db_user, &db_name).is_err(), "{db_user:?} {db_name:?}");
    }
    assert!(may(&"é".repeat(32), "n").unwrap_err().to_string().contains("longer than 63 bytes"));
}

#[test]
fn locks_and_certificates_that_have_ended_keep_out() {
    let policies =
        policies(&[role("all", "{allow: {db_labels: {'*': '*'}, db_names: ['*'], db_users: ['*']}}")]);
    let alice = user("alice", &["all"], &[]);
    let prod = database("prod", &[]);
    let lock = |target: &str| {
        Lock::parse(&format!(
            "kind: lock\nversion: v1\nmetadata: {{name: l}}\nspec:\n  target: {{{target}}}\n  message: closed\n"
        ))
        .unwrap()
    };
    let may =
        |locks: &[Lock], now| policies.decide(&alice, &prod, &DatabaseAccount::new("u", "n"), locks, now);
    for target in ["db: prod", "user: alice", "role: all"] {
        let lock = lock(target);
        assert_eq!(Lock::parse(&lock.to_yaml()).unwrap(), lock);
        let refusal = may(std::slice::from_ref(&lock), now()).unwrap_err();
        assert_eq!(refusal.rule(), Some("lock \"l\""), "{target}");
        assert!(refusal.public_message().contains("closed"));
        let explained = policies.explain(
            &alice,
            &prod,
            &DatabaseAccount::new("u", "n"),
            std::slice::from_ref(&lock),
            now(),
        );
        assert!(!explained.allowed && explained.details.join("\n").contains("lock \"l\" covers"));
    }
    assert!(may(&[lock("db: other"), lock("login: u")], now()).is_ok());
    assert!(may(&[], now() + Duration::from_secs(3600)).is_err());
    assert!(may(&[], now() - Duration::from_secs(61)).is_err());
    let host = Identity {
        principal: Principal::Host {
            id: HostId::new(),
            name: NodeName::new("agent-1").unwrap(),
            role: HostRole::Node,
        },
        ..alice.clone()
    };
    assert!(policies.decide(&host, &prod, &DatabaseAccount::new("u", "n"), &[], now()).is_err());
}

#[test]
fn users_are_made_under_their_own_name_alone() {
    let policies = policies(&[
        role(
            "made",
            "{allow: {db_labels: {'*': '*'}, db_names: [app], db_roles: [reader, writer, '{{external.team}}']}, \
             options: {create_db_user_mode: keep}}",
        ),
        role("fixed", "{allow: {db_labels: {'*': '*'}, db_names: [app], db_users: [shared]}}"),
        role("less", "{deny: {db_roles: [writer]}}"),
        role("none", "{deny: {db_roles: ['*']}}"),
        role(
            "strict",
            "{allow: {db_labels: {'*': '*'}, db_names: [app], db_users: ['*']}, options: {create_db_user_mode: off}}",
        ),
    ]);
    let mut prod = database("prod", &[]);
    let decide = |roles: &[&str], prod: &Database, db_user: &str| {
        let bob = user("bob", roles, &[("team", &["blue"])]);
        policies.decide(&bob, prod, &DatabaseAccount::new(db_user, "app"), &[], now())
    };
    assert!(decide(&["made"], &prod, "bob").is_err(), "no user is made there");
    prod.admin_user = Some("admin".to_owned());
    let permit = decide(&["made", "fixed"], &prod, "bob").unwrap();
    assert_eq!(permit.options().user_mode, DatabaseUserMode::Keep);
    assert_eq!(permit.roles(), ["blue", "reader", "writer"]);
    assert_eq!(decide(&["made", "less"], &prod, "bob").unwrap().roles(), ["blue", "reader"]);
    assert!(decide(&["made", "none"], &prod, "bob").unwrap().roles().is_empty());
    assert!(decide(&["made"], &prod, "admin").is_err());
    assert_eq!(
        decide(&["made", "fixed"], &prod, "shared").unwrap().options().user_mode,
        DatabaseUserMode::Off
    );
    assert_eq!(decide(&["made", "strict"], &prod, "bob").unwrap().options().user_mode, DatabaseUserMode::Off);
    let bob = user("bob", &["made", "fixed"], &[]);
    let choices = policies.database_choices(&bob, &prod);
    assert_eq!(choices.users, ["bob", "shared"]);
    assert_eq!(choices.roles, ["reader", "writer"]);
    assert_eq!(choices.user_mode, DatabaseUserMode::Keep);
}

#[test]
fn the_strictest_option_counts_and_the_cluster_fills_in() {
    let grant = "allow: {db_labels: {'*': '*'}, db_names: ['*'], db_users: ['*']}";
    let roles = [
        role("a", &format!("{{{grant}, options: {{client_idle_timeout: 1h, record_session: best_effort}}}}")),
        role(
            "b",
            &format!(
                "{{{grant}, options: {{client_idle_timeout: 5m, record_session: strict, record_db_parameters: true, \
                 db_statement_bytes: 65536, session_recording: node-sync}}}}"
            ),
        ),
        role("c", "{options: {client_idle_timeout: 1s}}"),
    ];
    let cluster = SessionPolicy::parse(
        "kind: session_policy\nversion: v1\nmetadata: {name: default}\nspec: {max_session_duration: 8h, \
         db_statement_bytes: 100}\n",
    )
    .unwrap();
    let policies = Policies::compile_with(&roles, cluster).unwrap();
    let options = |roles: &[&str]| {
        let alice = user("alice", roles, &[]);
        let permit = policies
            .decide(&alice, &database("p", &[]), &DatabaseAccount::new("u", "n"), &[], now())
            .unwrap();
        (permit.limits().clone(), permit.options().clone())
    };
    let (limits, both) = options(&["a", "b", "c"]);
    assert_eq!(limits.client_idle_timeout, Some(Duration::from_secs(300)));
    assert_eq!(limits.max_session_duration, Some(Duration::from_secs(8 * 3600)));
    assert_eq!(limits.record_session, RecordPolicy::Strict);
    assert!(limits.recording.at != RecordAt::Off && limits.recording.sync && both.record_parameters);
    assert_eq!(both.statement_bytes, 65_536);
    assert_eq!(options(&["a"]).1.statement_bytes, 100);
}

#[test]
fn one_role_that_wants_sessions_end_to_end_is_enough() {
    let grant = "allow: {db_labels: {'*': '*'}, db_names: ['*'], db_users: ['*']}";
    let says =
        |name: &str, value: &str| role(name, &format!("{{{grant}, options: {{db_end_to_end: {value}}}}}"));
    let roles = [
        role("silent", &format!("{{{grant}}}")),
        says("lax", "optional"),
        says("strict", "required"),
        role("elsewhere", "{allow: {logins: [root]}, options: {db_end_to_end: required}}"),
    ];
    let decide = |policies: &Policies, held: &[&str]| {
        let alice = user("alice", held, &[]);
        let permit = policies
            .decide(&alice, &database("p", &[]), &DatabaseAccount::new("u", "n"), &[], now())
            .unwrap();
        permit.options().end_to_end
    };
    let open = policies(&roles);
    for (held, expected) in
        [(&["silent"][..], false), (&["lax", "elsewhere"], false), (&["silent", "lax", "strict"], true)]
    {
        assert_eq!(decide(&open, held), expected, "{held:?}");
    }
    let cluster = SessionPolicy::parse(
        "kind: session_policy\nversion: v1\nmetadata: {name: default}\nspec: {db_end_to_end: required}\n",
    );
    let strict = Policies::compile_with(&roles, cluster.unwrap()).unwrap();
    assert!(decide(&strict, &["silent"]) && !decide(&strict, &["lax"]));
    assert!(roles.iter().all(|role| Role::parse(&role.to_yaml()).unwrap() == *role));
}

#[test]
fn an_explanation_says_what_every_role_said() {
    let policies = policies(&[role("dev", DEV), role("web", "{allow: {logins: [root]}}")]);
    let alice = user("alice", &["dev", "web", "gone"], &[("team", &["web"])]);
    let staging = database("prod", &[("env", "staging"), ("team", "web")]);
    let explain = |db_user: &str, db_name: &str| {
        policies.explain(&alice, &staging, &DatabaseAccount::new(db_user, db_name), &[], now())
    };
    let allowed = explain("reader", "app");
    assert!(allowed.allowed);
    assert_eq!(
        allowed.summary,
        "alice may use the database prod as \"reader\" with \"app\": role \"dev\" allow.db allows it"
    );
    let told = allowed.details.join("\n");
    for part in [
        "database prod has the labels env=staging, team=web",
        "role \"dev\" allows it",
        "role \"web\" does not allow it: it grants no database",
        "role \"gone\" does not exist",
        "db_statement_bytes 4096",
        "max_db_sessions 80",
        "db_unseen_sql allowed",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(explain("root", "app").details.join("\n").contains("its db_users are reader"));
    assert!(explain("reader", "no").details.join("\n").contains("its db_names are app"));
}

#[test]
fn a_role_with_databases_survives_being_written() {
    let text = "kind: role\nversion: v1\nmetadata: {name: dba}\nspec:\n  allow:\n    db_labels: {env: [prod, 'x-*']}\n    \
                db_names: ['*']\n    db_users: [postgres, '{{external.u}}']\n    db_roles: [reader]\n  deny:\n    \
                db_roles: ['*']\n    db_users: ['*']\n  options:\n    create_db_user_mode: best_effort_drop\n    \
                record_db_parameters: true\n    db_statement_bytes: 1024\n    max_db_sessions: 7\n    \
                db_unseen_sql: refused\n";
    let role = Role::parse(text).unwrap();
    assert_eq!(Role::parse(&role.to_yaml()).unwrap(), role);
    let wrong = "kind: role\nversion: v1\nmetadata: {name: dba}\nspec:\n  allow:\n    db_roles: ['*']\n    db_users: \
                 ['a{{external.x}}']\n  options:\n    create_db_user_mode: sometimes\n    db_statement_bytes: 1\n    max_db_sessions: 0\n";
    let told = Role::parse(wrong).unwrap_err().to_string();
    for part in [
        "no user can be given every role",
        "is not a whole template",
        "best_effort_drop",
        "from 64 to 65536",
        "from 1 to 10000",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn what_a_trait_holds_stays_a_value() {
    let policies = policies(&[role(
        "own",
        "{allow: {db_labels: {'*': '*'}, db_names: ['{{internal.db_names}}'], db_users: ['{{internal.db_users}}']}}",
    )]);
    let alice = user(
        "alice",
        &["own"],
        &[("internal.db_users", &["*", "a\" || true || \"", &"u".repeat(64)]), ("internal.db_names", &["*"])],
    );
    let prod = database("prod", &[]);
    assert!(policies.decide(&alice, &prod, &DatabaseAccount::new("postgres", "x"), &[], now()).is_err());
    assert!(policies.decide(&alice, &prod, &DatabaseAccount::new(&"u".repeat(64), "*"), &[], now()).is_err());
    assert!(
        policies.decide(&alice, &prod, &DatabaseAccount::new("*", "*"), &[], now()).is_ok(),
        "a user of that very name"
    );
}

#[test]
fn a_bundle_in_a_file_that_is_not_taken_is_told_with_the_cause() {
    use sallyport_access::yaml::{self, Problems, Section};
    let told = |content: fn() -> std::io::Result<String>| {
        let item = yaml::parse("x", "{address: 'db:5432', via: a, tls: {ca_file: /etc/ca.pem}}").unwrap();
        let mut problems = Problems::new();
        let section = Section::read(&item, "db", &["address", "via", "tls"], &mut problems).unwrap();
        let name = Some(sallyport_access::DatabaseName::new("prod").unwrap());
        let read = move |_: &str| content();
        sallyport_access::Database::read_settings(
            name,
            Default::default(),
            &section,
            Some(&read),
            &mut problems,
        );
        problems.finish("x").unwrap_err().to_string()
    };
    let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
    let unread = told(|| Err(std::io::ErrorKind::NotFound.into()));
    assert!(unread.contains(&format!("/etc/ca.pem: {missing}")), "{unread}");
    let unfit = told(|| Ok("no".to_owned()));
    assert!(unfit.contains("/etc/ca.pem has no certificate in PEM"), "{unfit}");
}
