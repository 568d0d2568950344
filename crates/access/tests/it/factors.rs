//! The second factor before each session, as roles and the cluster's policy demand it.

use std::time::Duration;

use sallyport_access::ids::DeviceId;
use sallyport_access::{
    Database, DatabaseAccount, Device, DeviceCustody, FactorDemand, HostId, Kind, Login, Node, NodeKind,
    NodeName, OpenSshServer, Permit, Policies, ServerTrust, SessionFactor, SessionPolicy, SessionTarget,
};

use crate::people::{now, role, user};

const EVERYWHERE: &str =
    "allow: {logins: [x], node_labels: {'*': '*'}, db_labels: {'*': '*'}, db_users: [app], db_names: [shop]}";

fn node() -> Node {
    Node {
        id: HostId::new(),
        name: NodeName::new("web-1").unwrap(),
        labels: [("env", "test")].into_iter().collect(),
        kind: NodeKind::Sallyport,
    }
}

fn compiled(cluster: &str) -> Policies {
    let with = |name: &str, options: &str| role(name, &format!("{{{EVERYWHERE}, options: {{{options}}}}}"));
    let roles = [
        with("silent", ""),
        with("no", "require_session_mfa: no, session_mfa_ttl: 1m"),
        with("yes", "require_session_mfa: yes"),
        with("yes-5m", "require_session_mfa: yes, session_mfa_ttl: 5m"),
        with("hardware-10m", "require_session_mfa: hardware, session_mfa_ttl: 10m"),
        role(
            "elsewhere",
            "{allow: {logins: [y], node_labels: {env: prod}}, options: {require_session_mfa: hardware}}",
        ),
    ];
    let text =
        format!("kind: session_policy\nversion: v1\nmetadata: {{name: default}}\nspec: {{{cluster}}}\n");
    Policies::compile_with(&roles, SessionPolicy::parse(&text).unwrap()).unwrap()
}

fn demanded(policies: &Policies, held: &[&str]) -> (SessionFactor, u64) {
    let login = Login::new("x").unwrap();
    let permit: Permit = policies.decide(&user("u", held, &[]), &node(), &login, &[], now()).unwrap();
    let rule = permit.limits().factor;
    assert_eq!(permit.factor().map(|demand| demand.rule), (rule.factor != SessionFactor::No).then_some(rule));
    (rule.factor, rule.grace.as_secs())
}

#[test]
fn the_strictest_of_roles_and_cluster_counts_and_the_shortest_time_of_those_that_demand() {
    use SessionFactor::{Hardware, No, Yes};
    let quiet = compiled("max_sessions: 5");
    for (held, expected) in [
        (&["silent"][..], (No, 0)),
        (&["no"], (No, 0)),
        (&["no", "yes-5m"], (Yes, 300)),
        (&["silent", "yes-5m", "elsewhere"], (Yes, 300)),
        (&["yes", "yes-5m"], (Yes, 0)),
        (&["yes-5m", "hardware-10m"], (Hardware, 300)),
    ] {
        assert_eq!(demanded(&quiet, held), expected, "{held:?}");
    }
    // A role does not lift what the cluster demands, and what a role leaves open of the time the cluster says.
    let strict = compiled("require_session_mfa: yes, session_mfa_ttl: 2m");
    for (held, expected) in [
        (&["silent"][..], (Yes, 120)),
        (&["no"], (Yes, 120)),
        (&["yes"], (Yes, 120)),
        (&["hardware-10m"], (Hardware, 120)),
    ] {
        assert_eq!(demanded(&strict, held), expected, "{held:?}");
    }
    assert_eq!(demanded(&compiled("session_mfa_ttl: 3m"), &["yes"]), (Yes, 180));
}

#[test]
fn a_demand_names_its_session() {
    let policies = compiled("max_sessions: 5");
    let (alice, login, node) = (user("u", &["yes-5m"], &[]), Login::new("x").unwrap(), node());
    let permit = policies.decide(&alice, &node, &login, &[], now()).unwrap();
    let target = |demand: Option<&FactorDemand>| demand.map(|demand| demand.target.clone());
    assert_eq!(target(permit.factor()), Some(SessionTarget::node(node.id, &login)));
    let text = "kind: db\nversion: v1\nmetadata: {name: prod}\nspec: {address: 'db:5432'}\n";
    let database = Database::parse(text).unwrap();
    let permit =
        policies.decide(&alice, &database, &DatabaseAccount::new("app", "shop"), &[], now()).unwrap();
    assert_eq!(target(permit.factor()).unwrap().to_string(), "database prod as app in shop");
    // Taking part in a session of one's own is no way round.
    let join = policies.may_reach_to_join(&alice, &node, &[], now()).unwrap();
    assert_eq!(target(join.factor()), Some(SessionTarget::join(node.id)));
    assert!(
        policies
            .may_reach_to_join(&user("u", &["silent"], &[]), &node, &[], now())
            .unwrap()
            .factor()
            .is_none()
    );
}

/// A stock server has the login from inside the SSH that passes through: whichever the client tells beforehand, the strictest of those that
/// it has there counts, and a proof is for all of them.
#[test]
fn a_way_to_a_registered_server_is_for_any_login_there() {
    let on = |name: &str, login: &str, label: &str, options: &str| {
        role(
            name,
            &format!(
                "{{allow: {{logins: [{login}], node_labels: {{env: {label}}}}}, options: {{{options}}}}}"
            ),
        )
    };
    let roles = [
        on("web", "web", "test", ""),
        on(
            "root",
            "root",
            "test",
            "require_session_mfa: hardware, session_mfa_ttl: 5m, device_trust: required",
        ),
        on("prod", "admin", "prod", "require_session_mfa: hardware"),
        on("recorded", "log", "test", "session_recording: proxy"),
        on("kept", "kept", "test", "session_recording: proxy, device_trust: required"),
    ];
    let policies = Policies::compile_with(&roles, SessionPolicy::default()).unwrap();
    let server = Node {
        kind: NodeKind::OpenSsh(OpenSshServer {
            address: "db:22".to_owned(),
            via: None,
            host_key: None,
            names: Vec::new(),
            trust: ServerTrust::default(),
        }),
        ..node()
    };
    let own = node();
    let (login, other) = (Login::new("web").unwrap(), Login::new("root").unwrap());
    let decide = |held: &[&str], node: &Node, login: &Login, trusted: bool| {
        let mut alice = user("u", held, &[]);
        alice.device = trusted.then(|| Device { id: DeviceId::new(), custody: DeviceCustody::File });
        policies.decide(&alice, node, login, &[], now())
    };
    // A login that is recorded at the proxy and wants a device: who asks for another is recorded as well, with the device or without.
    for trusted in [true, false] {
        let mut alice = user("u", &["web", "kept"], &[]);
        alice.device = trusted.then(|| Device { id: DeviceId::new(), custody: DeviceCustody::File });
        let permit = policies.decide(&alice, &server, &login, &[], now()).unwrap();
        assert!(policies.records_at_proxy(&alice, &server, &permit, &[], now()), "trusted: {trusted}");
        assert!(!policies.records_at_proxy(&alice, &own, &permit, &[], now()), "a node records by itself");
    }
    let both = &["web", "root", "prod"][..];
    for login in [&login, &other] {
        let permit = decide(both, &server, login, true).unwrap();
        let demand = permit.factor().unwrap();
        assert_eq!(
            (demand.rule.factor, demand.rule.grace.as_secs()),
            (SessionFactor::Hardware, 300),
            "{login}"
        );
        assert_eq!(demand.target, SessionTarget::any(Kind::Node, server.id.to_string()));
    }
    assert!(
        decide(&["web", "prod"], &server, &login, false).unwrap().factor().is_none(),
        "no login of hers there"
    );
    let refused = decide(both, &server, &login, false).unwrap_err();
    assert!(refused.to_string().contains("role \"root\" options.device_trust"), "{refused}");
    // A node decides about the login itself, and hears it from the client who proves it.
    let permit = decide(both, &own, &login, false).unwrap();
    assert!(permit.factor().is_none());
    // So does a proxy that records about the device, but the way behind it is the same.
    let permit = decide(&["web", "root", "recorded"], &server, &login, false).unwrap();
    assert_eq!(permit.factor().unwrap().rule.factor, SessionFactor::Hardware);
}

#[test]
fn what_is_written_is_read_and_bounded() {
    let bad = |options: &str| {
        let text = format!(
            "kind: role\nversion: v1\nmetadata: {{name: r}}\nspec: {{allow: {{logins: [x], node_labels: {{a: b}}}}, options: {{{options}}}}}\n"
        );
        sallyport_access::Role::parse(&text).unwrap_err().to_string()
    };
    assert!(bad("require_session_mfa: sometimes").contains("no, yes, hardware"));
    assert!(bad("session_mfa_ttl: 31m").contains("out of range"));
    let kept = role(
        "r",
        &format!("{{{EVERYWHERE}, options: {{require_session_mfa: hardware, session_mfa_ttl: 30m}}}}"),
    );
    let again = sallyport_access::Role::parse(&kept.to_yaml()).unwrap();
    assert_eq!(again.options.require_session_mfa, Some(SessionFactor::Hardware));
    assert_eq!(again.options.session_mfa_ttl, Some(Duration::from_secs(1800)));
}
