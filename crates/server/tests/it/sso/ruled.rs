//! What a provider says, beyond roles: traits by rules of the mapping, and login rules about claims and connectors.

use sallyport_wire::v1::begin_proof_request::Purpose;
use sallyport_wire::v1::factor_proof::Proof;
use sallyport_wire::v1::logins_client::LoginsClient;
use tonic::Code;

use super::factors::codes;
use super::provider::{Browser, Provider};
use super::*;
use crate::support::{events, is};

async fn rule(cluster: &Cluster, when: &str) {
    let yaml = format!(
        "kind: login_rule\nversion: v1\nmetadata: {{name: corp}}\nspec:\n  then: deny\n  when: |\n    {when}\n  message: call the desk\n"
    );
    connect(cluster, yaml).await;
}

const OPS: &str = r#"context has claims && context.claims.hasTag("groups") && context.claims.getTag("groups").contains("ops-eu")"#;
const REFUSED: &str = r#"the login rule "corp" refuses it: call the desk"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_trait_by_a_rule_of_the_mapping_arrives_in_the_login() {
    let (cluster, provider) = (Cluster::without_node().await, Provider::start(|_| ()).await);
    // What the trait gives: an OS login by a role's template, and what a login rule's condition reads.
    let role = "kind: role\nversion: v1\nmetadata: {name: access}\nspec: {allow: {node_labels: {'*': '*'}, logins: ['{{internal.logins}}', '{{external.unix}}']}}\n";
    connect(&cluster, role.to_owned()).await;
    let rules = "traits:\n      unix:\n        - {claim: groups, value: 'ops-*', values: [deploy, 'of-{{claims.preferred_username}}']}\n        \
                 - {claim: groups, matches: 'every.*'}\n        - {claim: groups, value: qa, values: [never]}\n      #";
    let yaml = document("corp", &provider, "").replace("traits: ", rules);
    connect(&cluster, yaml.clone()).await;
    let pages = Pages::of(&cluster).await;
    let (_, login) = pages.log_in(&mut Browser::default(), "1").await.unwrap();
    for name in ["deploy", "of-alice", "everyone"] {
        assert!(login.logins.contains(&name.to_owned()), "{name}: {:?}", login.logins);
    }
    assert!(!login.logins.contains(&"never".to_owned()), "{:?}", login.logins);
    let (_, login) = pages.log_in(&mut Browser::default(), "2").await.unwrap();
    assert!(!login.logins.contains(&"deploy".to_owned()), "{:?}", login.logins);
    rule(&cluster, r#"principal.hasTag("unix") && principal.getTag("unix").contains("deploy")"#).await;
    let refused = pages.log_in(&mut Browser::default(), "1").await.map(drop).unwrap_err();
    assert_eq!(refused.message(), REFUSED);
    pages.log_in(&mut Browser::default(), "2").await.unwrap();

    // The trace of a test has each rule.
    let mut admin = pages.administrator().await;
    let begin = v1::BeginSsoTestRequest { yaml, host_name: "here".to_owned() };
    let id = admin.begin_test(begin).await.unwrap().into_inner().page.unwrap().challenge;
    let away = pages.send(&id, "corp").await.unwrap();
    let answer = Browser::default().through(&away.url, "1").await;
    pages.answer(&answer, &away.binding).await.unwrap();
    let result = admin.await_test(v1::AwaitSsoTestRequest { challenge: id }).await.unwrap().into_inner();
    let result: serde_json::Value = serde_json::from_str(&result.result_json).unwrap();
    let told: Vec<&str> =
        result["told"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    assert!(told.contains(&"trait unix rule 1 (groups): ops-eu gives deploy, of-alice"), "{told:?}");
    assert!(told.contains(&"trait unix rule 2 (groups): everyone gives everyone"), "{told:?}");
    assert!(told.contains(&"trait unix rule 3 (groups): none of 2 values is as it wants"), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_rule_looks_at_claims_and_the_connector_and_is_tried_with_both() {
    let (cluster, provider) = (Cluster::without_node().await, Provider::start(|_| ()).await);
    connect(&cluster, document("corp", &provider, "")).await;
    let pages = Pages::of(&cluster).await;
    pages.log_in(&mut Browser::default(), "1").await.unwrap();
    rule(&cluster, OPS).await;
    let refused = pages.log_in(&mut Browser::default(), "1").await.map(drop).unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::PermissionDenied, REFUSED));
    pages.log_in(&mut Browser::default(), "2").await.unwrap();
    let local = cluster.user("local", &[]).await;
    let denied = events(&mut cluster.admin().await, "SP1041W").await;
    assert_eq!(
        (denied[0]["user"].as_str(), denied[0]["fields"]["connector"].as_str()),
        (Some("alice"), Some("corp"))
    );

    let mut logins = LoginsClient::new(admin_channel(&cluster.data_dir()).await);
    let mut tried = async |way: &str, connector: &str, claims_json: &str| {
        let request = v1::TestLoginRulesRequest {
            user: "alice".to_owned(),
            way: way.to_owned(),
            connector: connector.to_owned(),
            claims_json: claims_json.to_owned(),
            ..Default::default()
        };
        logins.test_rules(request).await.map(tonic::Response::into_inner)
    };
    let sso = "single sign-on";
    for (claims, allowed) in
        [(r#"{"groups": ["ops-eu"]}"#, false), (r#"{"groups": ["staff"]}"#, true), ("{}", true)]
    {
        assert_eq!(tried(sso, "corp", claims).await.unwrap().allowed, allowed, "{claims}");
    }
    let unknown = tried(sso, "corp", "").await.unwrap();
    assert!(!unknown.allowed && unknown.outcomes[0].problem.contains("not known in full"), "{unknown:?}");
    assert!(tried("password", "", "").await.unwrap().allowed);
    let large = format!("{{\"groups\": \"{}\"}}", "x".repeat(40_000));
    for (way, connector, claims, code, text) in [
        (sso, "corp", "[]", Code::InvalidArgument, "not an object"),
        (sso, "corp", "{", Code::InvalidArgument, "not JSON"),
        (sso, "corp", large.as_str(), Code::InvalidArgument, "at most 32768"),
        (sso, "", "{}", Code::InvalidArgument, "--connector"),
        (sso, "nowhere", "{}", Code::NotFound, "sallyport admin sso ls"),
        ("password", "corp", "{}", Code::InvalidArgument, "goes by no connector"),
    ] {
        let status = tried(way, connector, claims).await.unwrap_err();
        assert!(is(&status, code, text), "{status:?}");
    }

    rule(&cluster, r#"context.connector == "corp""#).await;
    let refused = pages.log_in(&mut Browser::default(), "2").await.map(drop).unwrap_err();
    assert_eq!(refused.message(), REFUSED);
    assert!(!tried(sso, "corp", "").await.unwrap().allowed);
    // Those who come in another way go on.
    support::log_in(&local.proxy, &pages.pin, "local", None).await.unwrap();
}

/// A login rule that looks at a claim is not passed by since the ID token does not have it.
#[tokio::test(flavor = "multi_thread")]
async fn attacks_a_claim_that_only_the_user_information_has_is_asked_for() {
    let provider = Provider::start(|settings| settings["in_userinfo"] = true.into()).await;
    let cluster = Cluster::without_node().await;
    // The mapping and the name look at what every token has.
    let yaml = document("corp", &provider, "  username: 'p-{{claims.sub}}'\n")
        .replace("claim: groups", "claim: sub")
        .replace("value: 'ops-*', ", "")
        .replace("{{claims.preferred_username}}", "u{{claims.sub}}");
    connect(&cluster, yaml).await;
    let pages = Pages::of(&cluster).await;
    pages.log_in(&mut Browser::default(), "1").await.unwrap();
    rule(&cluster, OPS).await;
    let refused = pages.log_in(&mut Browser::default(), "1").await.map(drop).unwrap_err();
    assert_eq!(refused.message(), REFUSED);
}

#[tokio::test(flavor = "multi_thread")]
async fn attacks_a_person_whom_the_login_rules_refuse_gets_no_first_factor() {
    let (cluster, provider) = (Cluster::without_node().await, Provider::start(|_| ()).await);
    connect(&cluster, document("corp", &provider, "")).await;
    let pages = Pages::of(&cluster).await;
    let (alice, _) = pages.log_in(&mut Browser::default(), "1").await.unwrap();
    let id = pages.asks(&alice, Purpose::AddFactor(codes("phone"))).await.unwrap();
    let networks = "  networks: {office: [192.0.2.0/24], here: [127.0.0.0/8]}\n";
    for (when, more) in [
        (OPS, ""),
        (r#"context.connector == "corp" && context.second_factor"#, ""),
        // Where the program asks from counts, as at a login, and not where the browser is.
        (r#"!context.networks.contains("office")"#, networks),
        (r#"context.networks.contains("here") && context.hour < 24"#, networks),
        ("!context.device.trusted", ""),
    ] {
        let yaml = format!(
            "kind: login_rule\nversion: v1\nmetadata: {{name: corp}}\nspec:\n  then: deny\n  when: |\n    {when}\n  message: call the desk\n{more}"
        );
        connect(&cluster, yaml).await;
        let refused = pages.again(&mut Browser::default(), &id, "1").await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (Code::PermissionDenied, REFUSED), "{when}");
        let none =
            pages.adds(&alice, "phone", Some(Proof::Challenge(id.clone()))).await.map(drop).unwrap_err();
        assert!(is(&none, Code::FailedPrecondition, "not proven yet"), "{none:?}");
    }
    let denied = events(&mut cluster.admin().await, "SP1041W").await;
    assert!(!denied.is_empty(), "a refusal is on record");
    for event in &denied {
        let fields = &event["fields"];
        assert_eq!(
            (event["user"].as_str(), fields["rule"].as_str()),
            (Some("alice"), Some("corp")),
            "{event}"
        );
        assert_eq!(
            (fields["purpose"].as_str(), fields["connector"].as_str()),
            (Some("add-factor"), Some("corp"))
        );
    }
    // Another person destroys the approval, whatever the rules say of them; the same challenge serves once the rule lets in.
    rule(&cluster, r#"context.hour > 24"#).await;
    pages.again(&mut Browser::default(), &id, "1").await.unwrap();
    pages.adds(&alice, "phone", Some(Proof::Challenge(id))).await.unwrap();
}
