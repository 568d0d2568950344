//! The access decision through its public surface.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use sallyport_access::{
    Forwarding, HostId, HostRole, JoinMode, JoinTarget, Labels, Lock, Login, Node, NodeKind, NodeName,
    Policies, Principal, RecordInput, RecordPolicy, Role, RoleName, SessionPolicy, Verb, role,
};
use uuid::Uuid;

use crate::people::{now, policies, role, user};

pub fn node(name: &str, labels: &[(&str, &str)]) -> Node {
    Node {
        id: HostId::new(),
        name: NodeName::new(name).unwrap(),
        labels: labels.iter().copied().collect(),
        kind: NodeKind::Sallyport,
    }
}

pub fn login(name: &str) -> Login {
    Login::new(name).unwrap()
}

#[test]
fn nothing_is_allowed_by_default() {
    let policies = policies(&[role("empty", "{}"), role("half", "{allow: {logins: [root]}}")]);
    let refusal = policies
        .decide(
            &user("alice", &["empty", "half", "gone"], &[]),
            &node("web-1", &[]),
            &login("root"),
            &[],
            now(),
        )
        .unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "alice may not log in as root on web-1: no role allows it (of \"empty\", \"half\")"
    );
    assert_eq!(refusal.rule(), None);
}

#[test]
fn a_certificate_holds_from_its_first_second_and_not_in_its_last() {
    let policies = policies(&[role("dev", "{allow: {logins: [root], node_labels: {'*': '*'}}}")]);
    let alice = user("alice", &["dev"], &[]);
    let why = |at| {
        let decided = policies.decide(&alice, &node("web-1", &[]), &login("root"), &[], at);
        decided.err().map(|refusal| refusal.to_string()).unwrap_or_default()
    };
    let moment = Duration::from_nanos(1);
    assert!(why(alice.valid_after - moment).contains("the certificate is not valid yet"));
    assert_eq!(why(alice.valid_after), "");
    assert_eq!(why(alice.valid_before - moment), "");
    assert!(why(alice.valid_before).contains("the certificate has expired"));
}

#[test]
fn labels_match_by_value_glob_regex_and_trait() {
    let policies = policies(&[role(
        "dev",
        "{allow: {logins: ['{{internal.logins}}', deploy], node_labels: {env: [staging, 'dev-*', '^qa[0-9]+$'], \
         team: '{{external.team}}'}}}",
    )]);
    let alice = user("alice", &["dev"], &[("internal.logins", &["alice"]), ("team", &["web", "db"])]);
    let may = |labels: &[(&str, &str)], name: &str| {
        policies.decide(&alice, &node("n", labels), &login(name), &[], now()).is_ok()
    };
    assert!(may(&[("env", "staging"), ("team", "web")], "alice"));
    assert!(may(&[("env", "dev-7"), ("team", "db")], "deploy"));
    assert!(may(&[("env", "qa12"), ("team", "db")], "alice"));
    assert!(!may(&[("env", "qa12x"), ("team", "db")], "alice"));
    assert!(!may(&[("env", "prod"), ("team", "db")], "alice"));
    assert!(!may(&[("env", "staging"), ("team", "infra")], "alice"));
    assert!(!may(&[("env", "staging")], "alice"), "every label of the rule must match");
    assert!(!may(&[("env", "staging"), ("team", "web")], "root"));
}

#[test]
fn deny_wins_and_is_named() {
    let policies = policies(&[
        role("all", "{allow: {logins: [root, ubuntu], node_labels: {'*': '*'}}}"),
        role("no-root", "{deny: {logins: [root]}}"),
        role("no-prod", "{deny: {node_labels: {env: prod}}}"),
    ]);
    let alice = user("alice", &["all", "no-root", "no-prod"], &[]);
    let staging = node("web-1", &[("env", "staging")]);
    let refusal = policies.decide(&alice, &staging, &login("root"), &[], now()).unwrap_err();
    assert_eq!(refusal.rule(), Some("role \"no-root\" deny.logins[0]"));
    assert_eq!(
        refusal.public_message(),
        "alice may not log in as root on web-1: a role denies it (role \"no-root\" deny.logins[0]); logins you may use \
         there: ubuntu"
    );
    let refusal = policies
        .decide(&alice, &node("web-2", &[("env", "prod")]), &login("ubuntu"), &[], now())
        .unwrap_err();
    assert_eq!(refusal.rule(), Some("role \"no-prod\" deny.node_labels"));
    assert!(policies.decide(&alice, &staging, &login("ubuntu"), &[], now()).is_ok());
}

#[test]
fn a_permit_has_the_strictest_options_of_the_roles_that_grant_it() {
    let policies = policies(&[
        role(
            "a",
            "{allow: {logins: [x], node_labels: {'*': '*'}}, options: {forward_agent: true, max_sessions: 5, \
             client_idle_timeout: 10m}}",
        ),
        role(
            "b",
            "{allow: {logins: [x], node_labels: {'*': '*'}}, options: {record_session: strict, max_sessions: 3, \
             port_forwarding: false}}",
        ),
        role("elsewhere", "{allow: {logins: [y], node_labels: {'*': '*'}}, options: {ssh_file_copy: false}}"),
    ]);
    let alice = user("alice", &["a", "b", "elsewhere"], &[]);
    let permit = policies.decide(&alice, &node("n", &[]), &login("x"), &[], now()).unwrap();
    let options = permit.options();
    assert!(options.forward_agent);
    assert_eq!(options.port_forwarding, Forwarding::NONE);
    assert!(options.ssh_file_copy, "a role that does not grant this login does not limit it");
    assert_eq!(permit.limits().record_session, RecordPolicy::Strict);
    assert_eq!(options.max_sessions, 3);
    assert_eq!(permit.limits().client_idle_timeout, Some(Duration::from_secs(600)));
    let permit = policies.decide(&alice, &node("n", &[]), &login("y"), &[], now()).unwrap();
    assert!(!permit.options().forward_agent && permit.options().port_forwarding == Forwarding::BOTH);
    assert_eq!(permit.options().max_sessions, 10);
}

#[test]
fn locks_and_time_come_first() {
    let policies = policies(&[role("all", "{allow: {logins: [root], node_labels: {'*': '*'}}}")]);
    let alice = user("alice", &["all"], &[]);
    let web = node("web-1", &[]);
    let lock = |target: &str| {
        Lock::parse(&format!(
            "kind: lock\nversion: v1\nmetadata: {{name: l}}\nspec: {{target: {target}, message: on leave}}\n"
        ))
        .unwrap()
    };
    for target in [
        "{user: alice}",
        "{role: all}",
        "{login: root}",
        "{node: web-1}",
        &format!("{{login_id: {}}}", Uuid::nil()),
    ] {
        let locks = [lock(target)];
        let refusal = policies.decide(&alice, &web, &login("root"), &locks, now()).unwrap_err();
        assert!(refusal.to_string().contains("on leave"), "{target}: {refusal}");
        assert_eq!(Lock::parse(&locks[0].to_yaml()).unwrap(), locks[0]);
    }
    for target in ["{user: bob}", "{role: other}", "{login: alice}", "{node: web-2}"] {
        assert!(policies.decide(&alice, &web, &login("root"), &[lock(target)], now()).is_ok(), "{target}");
    }
    let mut over = lock("{user: alice}");
    over.expires = Some(now());
    assert!(policies.decide(&alice, &web, &login("root"), &[over], now()).is_ok());
    let late = now() + Duration::from_secs(3600);
    let refusal = policies.decide(&alice, &web, &login("root"), &[], late).unwrap_err();
    assert!(
        refusal.public_message().contains("expired") && refusal.public_message().contains("sallyport login")
    );
    assert!(policies.decide(&alice, &web, &login("root"), &[], now() - Duration::from_secs(120)).is_err());
}

#[test]
fn the_api_is_denied_by_default_and_hosts_have_a_fixed_list() {
    let presets: Vec<Role> = [role::PRESET_ACCESS, role::PRESET_AUDITOR, role::PRESET_EDITOR]
        .iter()
        .map(|preset| Role::parse(preset).unwrap())
        .collect();
    let policies = policies(
        &[presets.clone(), vec![role("no-ca", "{deny: {rules: [{resources: [ca], verbs: ['*']}]}}")]]
            .concat(),
    );
    let may = |roles: &[&str], resource: &str, verb| policies.may(&user("u", roles, &[]), resource, verb);
    assert!(may(&["access"], "user", Verb::List).is_err());
    assert!(may(&["auditor"], "event", Verb::List).is_ok());
    assert!(may(&["auditor"], "user", Verb::Create).is_err());
    assert!(may(&["editor"], "user", Verb::Create).is_ok());
    let refusal = may(&["editor", "no-ca"], "ca", Verb::Read).unwrap_err();
    assert_eq!(refusal.rule(), Some("role \"no-ca\" deny.rules[0].resources[0]"));
    let mut host = user("x", &[], &[]);
    host.principal =
        Principal::Host { id: HostId::new(), name: NodeName::new("n").unwrap(), role: HostRole::Node };
    assert!(policies.may(&host, "event", Verb::Create).is_ok());
    for (resource, verb) in
        [("user", Verb::List), ("role", Verb::Update), ("token", Verb::Create), ("event", Verb::List)]
    {
        assert!(policies.may(&host, resource, verb).is_err(), "{resource}");
    }
    // What a host is told it does not read, and what it is told of in part it does not list.
    let mut openssh = host.clone();
    let id = HostId::new();
    openssh.principal = Principal::Host { id, name: NodeName::new("n").unwrap(), role: HostRole::OpenSsh };
    for resource in ["role", "lock", "session_policy", "db", "app"] {
        assert!(policies.may_follow(&host, resource).is_ok(), "{resource}");
        assert!(policies.may_follow(&openssh, resource).is_err(), "{resource}");
        for verb in [Verb::List, Verb::Read] {
            assert!(policies.may(&host, resource, verb).is_err(), "{resource}");
        }
    }
    assert!(policies.may_follow(&host, "node").is_err() && policies.may_follow(&host, "ca").is_ok());
    assert!(policies.decide(&host, &node("n", &[]), &login("root"), &[], now()).is_err());
}

#[test]
fn lifetimes_are_bounded_by_the_roles() {
    let policies = policies(&[
        role("day", "{options: {max_login_ttl: 24h}}"),
        role("hour", "{options: {max_session_ttl: 1h}}"),
        role("none", "{}"),
    ]);
    let ttl = |roles: &[&str], asked: Option<u64>| {
        let roles: Vec<RoleName> = roles.iter().map(|role| RoleName::new(*role).unwrap()).collect();
        policies.login_ttl(&roles, asked.map(Duration::from_secs))
    };
    assert_eq!(ttl(&["none"], None).unwrap(), Duration::from_secs(12 * 3600));
    assert_eq!(ttl(&["day"], None).unwrap(), Duration::from_secs(24 * 3600));
    assert_eq!(ttl(&["day", "hour"], None).unwrap(), Duration::from_secs(3600));
    assert_eq!(ttl(&["day"], Some(60)).unwrap(), Duration::from_secs(60));
    assert!(ttl(&["day"], Some(59)).is_err());
    assert_eq!(ttl(&["hour"], Some(7200)).unwrap_err().rule(), Some("role \"hour\" options.max_login_ttl"));
    // What no role says the cluster says.
    let cluster = SessionPolicy::parse(
        "kind: session_policy\nversion: v1\nmetadata: {name: default}\nspec: {max_login_ttl: 2h}\n",
    )
    .unwrap();
    assert_eq!(SessionPolicy::parse(&cluster.to_yaml()).unwrap(), cluster);
    let roles = [role("day", "{options: {max_login_ttl: 24h}}"), role("none", "{}")];
    let policies = Policies::compile_with(&roles, cluster).unwrap();
    let ttl = |roles: &[&str], asked: Option<u64>| {
        let roles: Vec<RoleName> = roles.iter().map(|role| RoleName::new(*role).unwrap()).collect();
        policies.login_ttl(&roles, asked.map(Duration::from_secs))
    };
    assert_eq!(ttl(&["none"], None).unwrap(), Duration::from_secs(2 * 3600));
    assert_eq!(ttl(&["none", "day"], None).unwrap(), Duration::from_secs(24 * 3600));
    assert_eq!(ttl(&["none"], Some(7201)).unwrap_err().rule(), Some("session_policy max_login_ttl"));
}

/// What roles of earlier releases say counts as ever.
#[test]
fn the_earlier_name_of_a_logins_longest_life_is_read_and_not_written() {
    let earlier = role("dev", "{options: {max_session_ttl: 1h}}");
    assert_eq!(earlier, role("dev", "{options: {max_login_ttl: 1h}}"));
    assert!(earlier.to_yaml().contains("max_login_ttl") && !earlier.to_yaml().contains("max_session_ttl"));
    let both = "kind: role\nversion: v1\nmetadata: {name: dev}\nspec: {options: {max_login_ttl: 1h, max_session_ttl: 2h}}\n";
    let told = Role::parse(both).unwrap_err().to_string();
    assert!(told.contains("spec.options.max_session_ttl: is what max_login_ttl was called once"), "{told}");
}

#[test]
fn the_strictest_of_the_roles_bounds_logins() {
    let policies = policies(&[
        role("two", "{options: {max_logins: 2}}"),
        role("five", "{options: {max_logins: 5, login_idle_timeout: 30m}}"),
        role("day", "{options: {login_idle_timeout: 24h}}"),
        role("none", "{}"),
    ]);
    let limits = |roles: &[&str]| {
        let roles: Vec<RoleName> = roles.iter().map(|role| RoleName::new(*role).unwrap()).collect();
        let limits = policies.login_limits(&roles);
        (
            limits.most.map(|(most, role)| (most, role.to_string())),
            limits.idle.map(|(idle, role)| (idle.as_secs(), role.to_string())),
        )
    };
    assert_eq!(limits(&["none"]), (None, None));
    assert_eq!(limits(&["five", "two", "none"]), (Some((2, "two".into())), Some((1800, "five".into()))));
    assert_eq!(limits(&["day"]), (None, Some((86_400, "day".into()))));
    assert_eq!(limits(&["day", "five"]), (Some((5, "five".into())), Some((1800, "five".into()))));
    for odd in ["{options: {max_logins: 0}}", "{options: {login_idle_timeout: 14m}}"] {
        let text = format!("kind: role\nversion: v1\nmetadata: {{name: odd}}\nspec: {odd}\n");
        assert!(sallyport_access::Role::parse(&text).is_err(), "{odd}");
    }
}

#[test]
fn why_names_what_was_weighed() {
    let policies = policies(&[
        role("dev", "{allow: {logins: ['{{internal.logins}}'], node_labels: {env: dev}}}"),
        role("ops", "{allow: {logins: [root], node_labels: {'*': '*'}}}"),
    ]);
    let alice = user("alice", &["dev", "ops"], &[("internal.logins", &["alice"])]);
    let web = node("web-1", &[("env", "prod")]);
    let why = policies.explain(&alice, &web, &login("root"), &[], now());
    assert!(why.allowed);
    assert_eq!(why.summary, "alice may log in as root on web-1: role \"ops\" allow allows it");
    assert!(
        why.details.iter().any(|line| line == "role \"dev\" does not allow it: its logins are alice"),
        "{why:?}"
    );
    let why = policies.explain(&alice, &web, &login("alice"), &[], now());
    assert!(!why.allowed);
    assert!(why.details.iter().any(|line| line.contains("its node_labels (env) do not match")), "{why:?}");
}

#[test]
fn ten_thousand_nodes_are_quick() {
    let policies = policies(&[
        role(
            "dev",
            "{allow: {logins: ['{{internal.logins}}', root], node_labels: {env: [dev, '^st.*$'], team: '*'}}}",
        ),
        role("no", "{deny: {node_labels: {frozen: 'yes'}}}"),
    ]);
    let alice = user("alice", &["dev", "no"], &[("internal.logins", &["alice"])]);
    let nodes: Vec<Node> = (0..10_000)
        .map(|number| {
            let env = ["dev", "staging", "prod"][number % 3];
            let (name, team) = (format!("node-{number}"), format!("team-{}", number % 50));
            node(&name, &[("env", env), ("team", &team), ("hostname", &name)])
        })
        .collect();
    // A node by itself is evaluated.
    let begin = Instant::now();
    for node in &nodes[..100] {
        policies.visible(&alice, std::slice::from_ref(node));
    }
    let evaluations = begin.elapsed();
    let begin = Instant::now();
    let visible = policies.visible(&alice, &nodes);
    assert_eq!(visible.len(), 6667);
    // What matters is that it is not 10,000 evaluations, however busy the machine is.
    assert!(begin.elapsed() < evaluations * 30, "{:?}, and {evaluations:?} for 100", begin.elapsed());
}

fn names() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["root", "alice", "deploy", "db"]).prop_map(str::to_owned)
}

fn sides() -> impl Strategy<Value = String> {
    let labels = prop::sample::select(vec![
        "{'*': '*'}",
        "{env: prod}",
        "{env: [dev, 'st*']}",
        "{team: '^d.*$'}",
        "{}",
    ]);
    (prop::collection::vec(names(), 0..3), labels)
        .prop_map(|(logins, labels)| format!("{{logins: [{}], node_labels: {labels}}}", logins.join(", ")))
}

fn some_roles() -> impl Strategy<Value = Vec<(String, String)>> {
    prop::collection::vec((sides(), prop_oneof![3 => Just("{}".to_owned()), 1 => sides()]), 1..4)
}

fn build(sides: &[(String, String)]) -> Vec<Role> {
    sides
        .iter()
        .enumerate()
        .map(|(index, (allow, deny))| {
            role(&format!("r{index}"), &format!("{{allow: {allow}, deny: {deny}}}"))
        })
        .collect()
}

#[test]
fn early_data_waits_where_any_role_or_the_cluster_for_a_silent_one_says_so() {
    let says = |name: &str, said: &str| role(name, &format!("{{options: {{{said}}}}}"));
    let roles = [says("silent", ""), says("yes", "early_data: true"), says("no", "early_data: false")];
    let asked = |policies: &Policies, held: &[&str]| {
        let held: Vec<RoleName> = held.iter().map(|role| RoleName::new(*role).unwrap()).collect();
        policies.early_data_for(&held)
    };
    let usual = policies(&roles);
    assert!(asked(&usual, &["silent"]) && asked(&usual, &["silent", "yes"]));
    assert!(!asked(&usual, &["no"]) && !asked(&usual, &["silent", "yes", "no"]));
    let policy = SessionPolicy::parse(
        "kind: session_policy\nversion: v1\nmetadata: {name: default}\nspec: {early_data: false}\n",
    )
    .unwrap();
    assert_eq!(SessionPolicy::parse(&policy.to_yaml()).unwrap(), policy);
    let strict = Policies::compile_with(&roles, policy).unwrap();
    assert!(!asked(&strict, &["silent"]) && !asked(&strict, &["silent", "yes"]) && asked(&strict, &["yes"]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn order_does_not_matter_and_deny_never_widens(sides in some_roles(), name in names(), extra in sides(), env in prop::sample::select(vec!["prod", "dev", "stage"])) {
        let roles = build(&sides);
        let held: Vec<String> = (0..roles.len()).map(|index| format!("r{index}")).collect();
        let held: Vec<&str> = held.iter().map(String::as_str).collect();
        let reversed: Vec<&str> = held.iter().rev().copied().collect();
        let target = node("n", &[("env", env), ("team", "db")]);
        let compiled = policies(&roles);
        let asked = login(&name);
        let forward = compiled.decide(&user("u", &held, &[]), &target, &asked, &[], now()).is_ok();
        let backward = compiled.decide(&user("u", &reversed, &[]), &target, &asked, &[], now()).is_ok();
        prop_assert_eq!(forward, backward);

        let mut more = roles.clone();
        more.push(role("denier", &format!("{{deny: {extra}}}")));
        let mut held_more = held.clone();
        held_more.push("denier");
        let narrowed = policies(&more).decide(&user("u", &held_more, &[]), &target, &asked, &[], now()).is_ok();
        prop_assert!(forward || !narrowed, "a deny rule granted something");
        prop_assert_eq!(compiled.logins_on(&user("u", &held, &[]), &target).contains(&asked), forward);
    }

    #[test]
    fn what_a_role_holds_stays_a_value(text in "[ -~]{1,40}", key in "[ -~]{1,20}") {
        // Whatever the text, it must match exactly itself and never act as policy.
        let quoted = serde_json::to_string(&text).unwrap();
        let key_quoted = serde_json::to_string(&key).unwrap();
        let yaml = format!("kind: role\nversion: v1\nmetadata: {{name: r}}\nspec: {{allow: {{logins: [root], node_labels: {{{key_quoted}: {quoted}}}}}}}\n");
        if let Ok(parsed) = Role::parse(&yaml) {
            let compiled = policies(std::slice::from_ref(&parsed));
            let other = node("n", &[("unrelated", "value")]);
            if key != "*" && key != "unrelated" {
                prop_assert!(compiled.decide(&user("u", &["r"], &[]), &other, &login("root"), &[], now()).is_err());
            }
            prop_assert_eq!(Role::parse(&parsed.to_yaml()).unwrap(), parsed);
        }
    }

    #[test]
    fn arbitrary_text_is_never_a_panic(text in "\\PC{0,200}") {
        let _ = Role::parse(&text);
        let _ = Lock::parse(&text);
    }
}

#[test]
fn the_strictest_of_the_new_options_counts_and_the_cluster_fills_in() {
    let everywhere = "allow: {logins: [x], node_labels: {'*': '*'}}";
    let roles = [
        role(
            "a",
            &format!("{{{everywhere}, options: {{port_forwarding: local, session_recording: node-sync}}}}"),
        ),
        role("c", &format!("{{{everywhere}, options: {{record_input: hash}}}}")),
        role(
            "b",
            &format!(
                "{{{everywhere}, options: {{port_forwarding: remote, session_recording: proxy, hash_files: true, \
                 record_input: full, require_login_word: true}}}}"
            ),
        ),
    ];
    let cluster = SessionPolicy::parse(
        "kind: session_policy\nversion: v1\nmetadata: {name: default}\nspec: {stream_local_forwarding: local, \
         session_recording: off, max_session_duration: 8h}\n",
    )
    .unwrap();
    let policies = Policies::compile_with(&roles, cluster).unwrap();
    let decide = |held: &[&str]| {
        let permit = policies.decide(&user("u", held, &[]), &node("n", &[]), &login("x"), &[], now());
        let permit = permit.unwrap();
        (permit.limits().clone(), permit.options().clone())
    };
    let (limits, both) = decide(&["a", "b"]);
    assert_eq!(both.port_forwarding, Forwarding::NONE, "each allows one direction: together neither");
    assert_eq!(both.stream_local_forwarding, Forwarding { local: true, remote: false });
    assert_eq!(limits.recording.as_str(), "proxy-sync");
    assert!(both.hash_files && both.require_login_word && !decide(&["a"]).1.require_login_word);
    assert_eq!(limits.max_session_duration, Some(Duration::from_secs(8 * 3600)));
    assert_eq!(
        decide(&["a", "b", "c"]).1.record_input,
        RecordInput::Full,
        "of several, the one that records more"
    );
    assert_eq!(
        (decide(&["a"]).1.record_input, decide(&["c"]).1.record_input),
        (RecordInput::Hash, RecordInput::Hash)
    );
    assert_eq!(
        decide(&["a"]).0.recording.as_str(),
        "node-sync",
        "what a role says beats the cluster's policy"
    );
}

#[test]
fn joining_goes_by_the_owners_roles_the_mode_and_the_node() {
    let policies = policies(&[
        role("support", "{allow: {join_sessions: [{roles: [dev], modes: [observer, peer]}]}}"),
        role("guard", "{allow: {join_sessions: [{roles: ['*'], modes: [moderator]}]}}"),
        role("outsider", "{deny: {node_labels: {env: prod}}}"),
        role("dev", "{allow: {logins: [x], node_labels: {env: [dev]}}}"),
    ]);
    let (dev, prod) = (node("d", &[("env", "dev")]), node("p", &[("env", "prod")]));
    let owned = [RoleName::new("dev").unwrap()];
    let join = |held: &[&str], node: &Node, owner_roles: &[RoleName], mode| {
        let session = JoinTarget { node, owner: "alice", owner_roles };
        policies.may_join(&user("bob", held, &[]), session, mode, &[], now())
    };
    assert!(join(&["support"], &dev, &owned, JoinMode::Peer).unwrap().rule().contains("join_sessions[0]"));
    assert!(join(&["support"], &dev, &owned, JoinMode::Moderator).is_err());
    assert!(join(&["support"], &dev, &[], JoinMode::Peer).is_err());
    assert!(join(&["guard"], &prod, &[], JoinMode::Moderator).is_ok());
    assert!(
        join(&["guard", "outsider"], &prod, &[], JoinMode::Moderator).is_err(),
        "denied nodes stay denied"
    );
    assert!(
        join(&["dev"], &dev, &owned, JoinMode::Observer).is_err(),
        "logging in there is not watching others"
    );

    let alice = user("alice", &["dev"], &[]);
    let own = JoinTarget { node: &dev, owner: "alice", owner_roles: &owned };
    assert!(policies.may_join(&alice, own, JoinMode::Peer, &[], now()).is_ok(), "one's own session");
    let lock = Lock::parse(
        "kind: lock\nversion: v1\nmetadata: {name: l}\nspec: {target: {user: alice}, message: away}\n",
    )
    .unwrap();
    assert!(policies.may_join(&alice, own, JoinMode::Peer, &[lock], now()).is_err());

    let reach = |held: &[&str], node: &Node| {
        policies.may_reach_to_join(&user("bob", held, &[]), node, &[], now()).is_ok()
    };
    assert!(reach(&["support"], &prod) && reach(&["guard"], &prod) && reach(&["dev"], &dev));
    assert!(!reach(&["dev"], &prod) && !reach(&["guard", "outsider"], &prod) && !reach(&[], &dev));
}

#[test]
fn what_a_role_is_for_survives_being_written() {
    for metadata in ["{name: dev, description: for people}", "{name: dev}"] {
        let one =
            Role::parse(&format!("kind: role\nversion: v1\nmetadata: {metadata}\nspec: {{}}\n")).unwrap();
        assert_eq!(one.to_yaml().contains("description: for people"), metadata.contains("for people"));
        assert!(!one.to_yaml().contains("description: ''"));
        assert_eq!(Role::parse(&one.to_yaml()).unwrap(), one);
    }
}

#[test]
fn join_rules_survive_being_written() {
    let one = role("r", "{allow: {join_sessions: [{roles: ['*', dev], modes: [observer, moderator]}]}}");
    assert_eq!(Role::parse(&one.to_yaml()).unwrap(), one);
    let wrong = Role::parse(
        "kind: role\nversion: v1\nmetadata: {name: r}\nspec: {allow: {join_sessions: [{roles: [dev], modes: [spy]}, {}]}}\n",
    );
    let told = wrong.unwrap_err().to_string();
    for part in ["no such mode", "join_sessions[1].roles: is missing", "join_sessions[1].modes: is missing"] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn labels_iterate_in_order() {
    let labels: Labels = [("b", "2"), ("a", "1")].into_iter().collect();
    assert_eq!(labels.iter().collect::<Vec<_>>(), [("a", "1"), ("b", "2")]);
}
