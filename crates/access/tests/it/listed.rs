//! What the catalogue keeps, and who may use it.

use sallyport_access::listed::Spec;
use sallyport_access::yaml::{Problems, Section};
use sallyport_access::{
    Bounds, HostRole, Identity, Kind, Listed, Lock, Policies, Principal, Resource, Role, Verb,
};

use crate::people::{now, policies, role, user};

const SPEC: Spec = Spec { keys: &["uri", "more"], shown: &["uri"], check };

fn check(spec: &Section<'_>, problems: &mut Problems) {
    spec.parsed("uri", "write a URI", problems, |text| match text.contains("://") {
        true => Ok(()),
        false => Err("is not a URI"),
    });
}

fn parse(text: &str) -> Result<Listed, String> {
    Listed::parse(Kind::App, text, &SPEC).map_err(|errors| errors.to_string())
}

fn app(name: &str, labels: &str) -> Listed {
    parse(&format!(
        "kind: app\nversion: v1\nmetadata: {{name: {name}, labels: {labels}}}\nspec: {{uri: 'tcp://x:1', via: [a]}}\n"
    ))
    .unwrap()
}

#[test]
fn a_resource_survives_being_written() {
    let text = "kind: app\nversion: v1\nmetadata: {name: wiki, description: 'Notes: of all', labels: {env: prod}}\nspec:\n  \
                uri: tcp://10.0.0.7:80\n  via: [one, two]\n  more: {a: [1, 2.5, 'no', yes, true, ~], b: {c: x}}\n";
    let listed = parse(text).unwrap();
    assert_eq!((listed.id().to_string().as_str(), listed.agents.len()), ("app/wiki", 2));
    assert_eq!((listed.text("uri"), listed.text("more")), (Some("tcp://10.0.0.7:80"), None));
    assert_eq!(parse(&listed.to_yaml()).unwrap(), listed);
    let least = parse("kind: app\nversion: v1\nmetadata: {name: x}\nspec: {}\n").unwrap();
    assert_eq!(parse(&least.to_yaml()).unwrap(), least);
}

#[test]
fn mistakes_are_told_together() {
    let told = parse(
        "kind: app\nversion: v1\nmetadata: {name: Not.Fine, expires: 2030-01-01T00:00:00Z, labels: {host/x: y}}\nspec:\n  \
         uri: nothing\n  more: x\n  vla: a\n",
    )
    .unwrap_err();
    for part in ["metadata.name", "has no end", "host/", "is not a URI", "did you mean via?"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(
        parse("kind: db\nversion: v1\nmetadata: {name: x}\nspec: {}\n")
            .unwrap_err()
            .contains("is not \"app\"")
    );
    assert!(parse("kind: app\nversion: v1\nmetadata: {name: x}\n").unwrap_err().contains("spec: is missing"));
}

#[test]
fn labels_alone_grant_and_deny() {
    let policies = policies(&[
        role("dev", "{allow: {app_labels: {env: [dev, 'x-*'], team: '{{external.team}}'}}}"),
        role("quiet", "{deny: {app_labels: {secret: yes}}}"),
        role("others", "{allow: {node_labels: {'*': '*'}, logins: [root], db_labels: {'*': '*'}}}"),
    ]);
    let alice = user("alice", &["dev", "quiet", "others"], &[("team", &["web"])]);
    let (mine, theirs) = (app("wiki", "{env: dev, team: web}"), app("pay", "{env: prod, team: web}"));
    let secret = app("vault", "{env: x-1, team: web, secret: yes}");
    let decide = |app: &Listed| policies.decide(&alice, app, &(), &[], now());
    let permit = decide(&mine).unwrap();
    assert_eq!((permit.rule(), permit.resource()), ("role \"dev\" allow.app_labels", &mine.id()));
    let refused = decide(&theirs).unwrap_err();
    assert!(
        refused.to_string().starts_with("alice may not use the application pay: no role allows it"),
        "{refused}"
    );
    assert_eq!(decide(&secret).unwrap_err().rule(), Some("role \"quiet\" deny.app_labels"));
    assert_eq!(policies.visible_listed(&alice, [&mine, &theirs, &secret]), [&mine]);
    let why = policies.explain(&alice, &theirs, &(), &[], now()).details.join("\n");
    for part in [
        "application pay has the labels env=prod",
        "its app_labels (env, team) do not match",
        "it grants no application",
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
    let host = Identity {
        principal: Principal::Host {
            id: sallyport_access::HostId::new(),
            name: sallyport_access::NodeName::new("a").unwrap(),
            role: HostRole::Node,
        },
        ..alice.clone()
    };
    assert!(policies.decide(&host, &mine, &(), &[], now()).is_err());
    for verb in Verb::ALL {
        assert!(policies.may(&host, "app", verb).is_err(), "{verb:?}");
    }
    assert!(policies.may_follow(&host, "app").is_ok() && policies.may_follow(&alice, "app").is_err());
    assert!(policies.may_follow(&host, "role").is_ok() && policies.may_follow(&host, "user").is_err());
}

#[test]
fn a_lock_on_one_keeps_out_of_that_one() {
    let policies = policies(&[role("all", "{allow: {app_labels: {'*': '*'}}}")]);
    let alice = user("alice", &["all"], &[]);
    let lock = |target: &str| {
        let text = format!(
            "kind: lock\nversion: v1\nmetadata: {{name: l}}\nspec: {{target: {{{target}}}, message: no}}\n"
        );
        Lock::parse(&text).map_err(|errors| errors.to_string())
    };
    let may = |lock: &Lock, name: &str| {
        policies.decide(&alice, &app(name, "{}"), &(), std::slice::from_ref(lock), now()).is_ok()
    };
    let one = lock("app: wiki").unwrap();
    assert_eq!(Lock::parse(&one.to_yaml()).unwrap(), one);
    assert_eq!(one.target.to_string(), "application wiki");
    assert!(!may(&one, "wiki") && may(&one, "other"));
    // What is of that name and another kind is not meant.
    for other in ["db: wiki", "node: wiki"] {
        assert!(may(&lock(other).unwrap(), "wiki"), "{other}");
    }
    for target in ["user: alice", "role: all"] {
        assert!(!may(&lock(target).unwrap(), "wiki"), "{target}");
    }
    assert!(lock("app: Not.Fine").unwrap_err().contains("spec.target.app"));
    assert!(lock("app: a, db: b").unwrap_err().contains("expected one target"));
}

#[test]
fn a_role_of_every_kind_survives_being_written_and_can_do_without_some() {
    let text = "kind: role\nversion: v1\nmetadata: {name: r}\nspec:\n  allow:\n    node_labels: {env: a}\n    app_labels: {env: b}\n    \
                logins: [root]\n    rules: [{resources: [app], verbs: [list]}, {resources: [app, db], verbs: [read]}]\n  deny:\n    \
                app_labels: {env: '^c$'}\n";
    let whole = Role::parse(text).unwrap();
    assert_eq!(Role::parse(&whole.to_yaml()).unwrap(), whole);
    let less = whole.without(&[Kind::App]).unwrap();
    let yaml = less.to_yaml();
    assert!(!yaml.contains("app") && yaml.contains("node_labels") && yaml.contains("- db"), "{yaml}");
    assert_eq!(Role::parse(&yaml).unwrap(), less);
    assert_eq!(less.without(&[Kind::App]), None);
}

#[test]
fn attacks_no_user_hands_out_applications_that_they_do_not_hold() {
    let roles = [
        role("dev", "{allow: {app_labels: {env: dev}, rules: [{resources: [role, user], verbs: ['*']}]}}"),
        role("same", "{allow: {app_labels: {env: dev, team: x}}}"),
        role("more", "{allow: {app_labels: {env: [dev, prod]}}}"),
        role("any", "{allow: {app_labels: {'*': '*'}}}"),
        role("team", "{allow: {app_labels: {env: '{{external.env}}'}}}"),
    ];
    let policies = policies(&roles);
    let holder = user("helpdesk", &["dev"], &[]);
    let holds = |role: &str, env: &[&str]| {
        let other = user("other", &[role], &[("env", env)]);
        policies.holds(&holder, &policies, &other, "other").is_ok()
    };
    assert!(holds("dev", &[]));
    assert!(holds("same", &[]) && holds("team", &["dev"]));
    assert!(!holds("more", &[]) && !holds("any", &[]) && !holds("team", &["dev", "prod"]));
    let denied =
        Policies::compile(&[roles[0].clone(), role("no", "{deny: {app_labels: {env: dev}}}")]).unwrap();
    let holder = user("helpdesk", &["dev", "no"], &[]);
    assert!(
        denied.holds(&holder, &denied, &user("other", &["dev"], &[]), "other").is_err(),
        "a denial would be lost"
    );
}

#[test]
fn new_clusters_let_who_may_log_in_use_what_labels_grant_and_tokens_name_what_agents_serve() {
    let presets = Role::presets().unwrap();
    let access = presets.iter().find(|role| role.name.as_str() == "access").unwrap();
    assert!(access.to_yaml().contains("app_labels:\n      \"*\":\n      - \"*\""), "{}", access.to_yaml());
    assert!(
        presets
            .iter()
            .filter(|role| role.name.as_str() != "access")
            .all(|role| !role.to_yaml().contains("app_"))
    );
    let bounds = Bounds { resources: vec!["app/dev-*".to_owned()], ..Bounds::default() };
    assert!(bounds.allow_resource(Kind::App, "dev-1") && !bounds.allow_resource(Kind::App, "prod"));
    assert!(!bounds.allow_resource(Kind::Database, "dev-1") && !bounds.allow_resource(Kind::Node, "dev-1"));
    assert!(
        !Bounds::default().allow_resource(Kind::App, "x") && Bounds::none().allow_resource(Kind::App, "x")
    );
}
