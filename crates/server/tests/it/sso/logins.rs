use sallyport_wire::v1;
use sallyport_wire::v1::cluster_client::ClusterClient;
use sallyport_wire::v1::factors_client::FactorsClient;
use sallyport_wire::v1::sso_client::SsoClient;
use tonic::Code;

use super::provider::{Browser, Provider, Told};
use super::*;
use crate::support::{events, is, until};

async fn cluster() -> Cluster {
    Cluster::without_node().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_logs_in_at_the_provider_and_their_program_has_certificates() {
    let (cluster, provider) = (cluster().await, Provider::start(|_| ()).await);
    connect(&cluster, document("corp", &provider, "  user_lifetime: 30m\n")).await;
    let pages = Pages::of(&cluster).await;
    let ping = pages.program().await.ping(v1::PingRequest::default()).await.unwrap().into_inner();
    assert!(ping.login_methods.contains(&"sso".to_owned()), "{ping:?}");
    let begun = pages.begin().await;
    let asked = v1::WebRequest { id: begun.id.clone(), address: ADDRESS.to_owned() };
    let page = pages.web.clone().describe_login(asked).await.unwrap().into_inner();
    assert_eq!(page.methods.unwrap().sso[0].title, "The corp");

    let mut browser = Browser::default();
    let (user, login) = pages.log_in(&mut browser, "1").await.unwrap();
    assert_eq!(login.roles, ["access", "auditor"]);
    assert_eq!(user.name, "alice");
    let until = sallyport_wire::convert::time_from_proto(login.valid_until.as_ref().unwrap()).unwrap();
    assert!(until <= time::OffsetDateTime::now_utc() + time::Duration::minutes(32), "{until}");
    let mine = ClusterClient::new(user.authority().await);
    mine.clone().list_nodes(v1::ListNodesRequest::default()).await.unwrap();
    // Certificates alone prove nothing, and there is nothing here that could.
    let add = v1::BeginAddFactorRequest {
        factor: Some(v1::FactorToAdd { kind: "totp".to_owned(), name: "phone".to_owned() }),
        ..Default::default()
    };
    let refused = FactorsClient::new(user.authority().await).begin_add(add).await.unwrap_err();
    assert!(is(&refused, Code::FailedPrecondition, "sign in at your provider again"), "{refused:?}");
    // Another time there is no form: the provider knows its session.
    pages.log_in(&mut browser, "nobody").await.unwrap();
    let (_, login) = pages.log_in(&mut Browser::default(), "2").await.unwrap();
    assert_eq!(login.roles, ["auditor"]);
    let logged = events(&mut cluster.admin().await, "SP1050I").await;
    assert_eq!(logged.len(), 3);
    assert_eq!(
        (logged[0]["user"].as_str(), logged[0]["fields"]["subject"].as_str()),
        (Some("alice"), Some("1"))
    );
    let ways = events(&mut cluster.admin().await, "SP1000I").await;
    assert!(ways.iter().any(|event| event["fields"]["way"] == "single sign-on"), "{ways:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_prove_no_person_and_people_without_a_role_read_why() {
    let (cluster, provider) = (cluster().await, Provider::start(|_| ()).await);
    connect(&cluster, document("corp", &provider, "")).await;
    let pages = Pages::of(&cluster).await;
    pages.log_in(&mut Browser::default(), "1").await.unwrap();
    let status = pages.log_in(&mut Browser::default(), "3").await.map(drop).unwrap_err();
    assert!(is(&status, Code::PermissionDenied, "the name alice belongs to another user"), "{status:?}");
    cluster.user("bob", &[]).await;
    let status = pages.log_in(&mut Browser::default(), "2").await.map(drop).unwrap_err();
    assert!(is(&status, Code::PermissionDenied, "the name bob belongs to another user"), "{status:?}");
    let status = pages.log_in(&mut Browser::default(), "4").await.map(drop).unwrap_err();
    assert!(is(&status, Code::PermissionDenied, "gives you no role here"), "{status:?}");
    let refused = events(&mut cluster.admin().await, "SP1050W").await;
    let reasons: Vec<_> = refused.iter().map(|event| event["fields"]["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["name_taken", "name_taken", "no_roles"]);
    assert!(refused[2]["message"].as_str().unwrap().contains("rule 1 (groups)"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_thief_takes_of_the_way_through_the_provider_is_worth_nothing() {
    let (cluster, provider) = (cluster().await, Provider::start(|_| ()).await);
    connect(&cluster, document("corp", &provider, "")).await;
    let pages = Pages::of(&cluster).await;
    // The answer, in another browser, and once more in its own.
    let (mine, mut browser) = (pages.begin().await, Browser::default());
    let sent = pages.send(&mine.id, "corp").await.unwrap();
    let answer = browser.through(&sent.url, "1").await;
    let status = pages.answer(&answer, "").await.unwrap_err();
    assert!(is(&status, Code::PermissionDenied, "another browser"), "{status:?}");
    let status = pages.answer(&answer, &sent.binding).await.unwrap_err();
    assert!(is(&status, Code::PermissionDenied, "no login that waits"), "{status:?}");

    // The code alone, for a login of the thief's own: the provider compares the verifier, and the nonce is another's.
    let victim = pages.send(&pages.begin().await.id, "corp").await.unwrap();
    let stolen = browser.through(&victim.url, "1").await;
    let thief = pages.send(&pages.begin().await.id, "corp").await.unwrap();
    let mut own = browser.through(&thief.url, "1").await;
    own.insert("code".to_owned(), stolen["code"].clone());
    let status = pages.answer(&own, &thief.binding).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    // A way that was left for another one.
    let begun = pages.begin().await;
    let left = pages.send(&begun.id, "corp").await.unwrap();
    let first = browser.through(&left.url, "1").await;
    let taken = pages.send(&begun.id, "corp").await.unwrap();
    let status = pages.answer(&first, &left.binding).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    let second = browser.through(&taken.url, "1").await;
    let proven = pages.answer(&second, &taken.binding).await.unwrap();
    // The redirect without the program's verifier.
    let code = proven.redirect.split_once("code=").unwrap().1.to_owned();
    let request = v1::FinishBrowserLoginRequest {
        challenge: begun.id.clone(),
        code,
        code_verifier: "x".repeat(43),
        cancel: false,
    };
    let status = pages.program().await.finish_browser_login(request).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    // No answer of another issuer's page.
    let begun = pages.begin().await;
    for change in [Some("https://another.example"), None] {
        let sent = pages.send(&begun.id, "corp").await.unwrap();
        let mut answer = browser.through(&sent.url, "1").await;
        match change {
            Some(issuer) => answer.insert("iss".to_owned(), issuer.to_owned()),
            None => answer.remove("iss"),
        };
        let status = pages.answer(&answer, &sent.binding).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    }
    let refused = events(&mut cluster.admin().await, "SP1050W").await;
    let reasons: Vec<_> = refused.iter().map(|event| event["fields"]["reason"].as_str().unwrap()).collect();
    let expected = [
        "other_browser",
        "not_awaited",
        "refused_by_provider",
        "not_awaited",
        "wrong_issuer",
        "unnamed_answer",
    ];
    assert_eq!(reasons, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_changes_its_key_and_says_claims_where_it_likes() {
    let mut provider = Provider::start(|settings| settings["in_userinfo"] = true.into()).await;
    let cluster = cluster().await;
    connect(&cluster, document("corp", &provider, "  private_key_jwt: {algorithm: ES256}\n")).await;
    let pages = Pages::of(&cluster).await;
    // The client at the provider has no key yet.
    let status = pages.log_in(&mut Browser::default(), "1").await.map(drop).unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    let asked = v1::GetConnectorKeysRequest { name: "corp".to_owned() };
    let keys = pages.administrator().await.get_connector_keys(asked).await.unwrap().into_inner().key_set_json;
    drop(provider);
    provider = Provider::start(|settings| {
        settings["in_userinfo"] = true.into();
        settings["client_keys"] = serde_json::from_str(&keys).unwrap();
    })
    .await;
    connect(&cluster, document("corp", &provider, "  private_key_jwt: {algorithm: ES256}\n")).await;
    let (_, login) = pages.log_in(&mut Browser::default(), "1").await.unwrap();
    assert_eq!(login.roles, ["access", "auditor"], "from the user information");
    provider.rotate().await;
    // Written anew, the connector forgets the keys; within half a minute it would not ask for others.
    connect(
        &cluster,
        document("corp", &provider, "  private_key_jwt: {algorithm: ES256}\n  user_lifetime: 11h\n"),
    )
    .await;
    pages.log_in(&mut Browser::default(), "1").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_logout_at_the_provider_ends_the_logins_here() {
    let told = Told::new().await;
    let url = told.url.clone();
    let provider = Provider::start(|settings| settings["logout_uri"] = url.into()).await;
    let cluster = cluster().await;
    connect(&cluster, document("corp", &provider, "  logout: back-channel\n")).await;
    let pages = Pages::of(&cluster).await;
    let mut browser = Browser::default();
    let (alice, _) = pages.log_in(&mut browser, "1").await.unwrap();
    let (bob, _) = pages.log_in(&mut Browser::default(), "2").await.unwrap();
    let list = async |user: &User| {
        let mut mine = ClusterClient::new(user.authority().await);
        mine.list_nodes(v1::ListNodesRequest::default()).await.map(drop)
    };
    list(&alice).await.unwrap();
    let begun = pages.begin().await;
    let away = pages.send(&begun.id, "corp").await.unwrap();
    let answer = Browser::default().through(&away.url, "1").await;
    let proven = pages.answer(&answer, &away.binding).await.unwrap();
    let issuer = provider.issuer.clone();
    let (token, ()) = tokio::join!(told.token(), browser.log_out(&issuer));
    let request = |token: &str| v1::WebSsoLogoutRequest {
        address: ADDRESS.to_owned(),
        connector: "corp".to_owned(),
        logout_token: token.to_owned(),
    };
    // One character of the signature, and one of what is signed.
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let payload = signed.len() - signed.rsplit_once('.').unwrap().1.len();
    for at in [token.len() - signature.len() / 2, (payload + signed.len()) / 2] {
        let mut forged = token.clone().into_bytes();
        forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
        let forged = String::from_utf8(forged).unwrap();
        let status = pages.web.clone().sso_logout(request(&forged)).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{at}");
    }
    list(&alice).await.unwrap();
    pages.web.clone().sso_logout(request(&token)).await.unwrap();
    until("the login has ended", async || list(&alice).await.err().map(drop)).await;
    list(&bob).await.unwrap();
    let status = pages.web.clone().sso_logout(request(&token)).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "a token is taken once");
    assert_eq!(events(&mut cluster.admin().await, "SP1052I").await.len(), 1);
    assert_eq!(events(&mut cluster.admin().await, "SP1052W").await.len(), 3);
    // What was proven before the logout opens no login after it.
    let status = pages.finish(&begun, &proven.redirect).await.map(drop).unwrap_err();
    assert_eq!(status.code(), Code::Aborted, "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connector_is_tried_without_being_stored() {
    let (cluster, provider) = (cluster().await, Provider::start(|_| ()).await);
    let pages = Pages::of(&cluster).await;
    let mut admin = pages.administrator().await;
    let yaml = document("corp", &provider, "");
    let begin = |yaml: &str| v1::BeginSsoTestRequest { yaml: yaml.to_owned(), host_name: "here".to_owned() };
    let wrong = admin.begin_test(begin(&yaml.replace("client_id", "client"))).await.unwrap_err();
    assert!(wrong.message().contains("spec.client_id"), "{wrong:?}");
    let begun = admin.begin_test(begin(&yaml)).await.unwrap().into_inner();
    let id = begun.page.unwrap().challenge;
    let asked = v1::WebRequest { id: id.clone(), address: ADDRESS.to_owned() };
    let page = pages.web.clone().describe_login(asked).await.unwrap().into_inner();
    assert_eq!((page.redirect.as_str(), page.methods.unwrap().password), ("test", false));
    let away = pages.send(&id, "corp").await.unwrap();
    let answer = Browser::default().through(&away.url, "1").await;
    assert_eq!(pages.answer(&answer, &away.binding).await.unwrap().redirect, "");
    let asked = v1::AwaitSsoTestRequest { challenge: id.clone() };
    let result = admin.await_test(asked).await.unwrap().into_inner().result_json;
    let result: serde_json::Value = serde_json::from_str(&result).unwrap();
    assert_eq!(result["id_token"]["groups"][0], "ops-eu", "{result}");
    assert_eq!(result["userinfo"]["sub"], "1");
    assert_eq!(result["roles"], serde_json::json!(["access", "auditor"]));
    assert_eq!((result["user"].as_str(), result["refused"].is_null()), (Some("alice"), true));
    // Nothing of it stays: no connector, and no user.
    let list = admin.list_connectors(v1::ListConnectorsRequest {}).await.unwrap().into_inner();
    assert!(list.connectors.is_empty());
    let get = v1::GetResourceRequest { kind: "user".to_owned(), name: "alice".to_owned() };
    assert_eq!(cluster.admin().await.get_resource(get).await.unwrap_err().code(), Code::NotFound);
    // A challenge of a test opens no login.
    let request = v1::FinishBrowserLoginRequest {
        challenge: id,
        code: String::new(),
        code_verifier: VERIFIER.to_owned(),
        cancel: false,
    };
    let status = pages.program().await.finish_browser_login(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    // What the provider would refuse is told with what to set.
    let begun =
        admin.begin_test(begin(&yaml.replace("client_id: sallyport", "client_id: nobody"))).await.unwrap();
    let id = begun.into_inner().page.unwrap().challenge;
    let away = pages.send(&id, "corp").await.unwrap();
    let query = members(away.url.split_once('?').unwrap().1);
    let answer = BTreeMap::from([
        ("connector".to_owned(), "corp".to_owned()),
        ("state".to_owned(), query["state"].clone()),
        ("code".to_owned(), "any".to_owned()),
        ("iss".to_owned(), provider.issuer.clone()),
    ]);
    pages.answer(&answer, &away.binding).await.unwrap();
    let result = admin.await_test(v1::AwaitSsoTestRequest { challenge: id }).await.unwrap().into_inner();
    assert!(result.result_json.contains("invalid_client"), "{}", result.result_json);
    assert_eq!(events(&mut cluster.admin().await, "SP1053I").await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn single_sign_on_is_for_proxies_and_administrators_alone() {
    let (cluster, provider) = (cluster().await, Provider::start(|_| ()).await);
    let yaml = document("corp", &provider, "");
    connect(&cluster, yaml.clone()).await;
    // One with a right to the kind, and not with every right: a connector gives every role.
    let role = "kind: role\nversion: v1\nmetadata: {name: mallory-role}\nspec: {allow: {rules: [{resources: [oidc, github, gitlab], verbs: ['*']}]}}\n";
    let mallory = cluster.user("mallory", &[]).await;
    connect(&cluster, role.to_owned()).await;
    let channel = mallory.authority().await;
    let mut admin = sallyport_wire::v1::admin_client::AdminClient::new(channel.clone());
    let hub = |kind: &str| {
        let more = if kind == "github" { "organizations: [acme], " } else { "" };
        format!(
            "kind: {kind}\nversion: v1\nmetadata: {{name: hub}}\nspec: {{client_id: a, client_secret_file: /etc/s, {more}mapping: {{roles: \
             [{{claim: teams, roles: [editor]}}]}}}}\n"
        )
    };
    for (yaml, replace) in
        [(yaml.clone(), false), (yaml.clone(), true), (hub("github"), true), (hub("gitlab"), true)]
    {
        let create = v1::CreateResourceRequest { yaml, replace };
        let status = admin.create_resource(create).await.unwrap_err();
        assert!(is(&status, Code::PermissionDenied, "every right"), "{status:?}");
    }
    let delete = v1::DeleteResourceRequest { kind: "oidc".to_owned(), name: "corp".to_owned() };
    assert_eq!(admin.delete_resource(delete).await.unwrap_err().code(), Code::PermissionDenied);
    let mut sso = SsoClient::new(channel.clone());
    for yaml in [yaml, hub("github"), hub("gitlab")] {
        let begin = v1::BeginSsoTestRequest { yaml, host_name: String::new() };
        assert_eq!(sso.begin_test(begin).await.unwrap_err().code(), Code::PermissionDenied);
    }
    let asked = v1::AwaitSsoTestRequest { challenge: "x".to_owned() };
    assert_eq!(sso.await_test(asked).await.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(
        sso.list_connectors(v1::ListConnectorsRequest {}).await.unwrap().into_inner().connectors.len(),
        1
    );
    let eve = cluster.user("eve", &[]).await;
    let mut sso = SsoClient::new(eve.authority().await);
    let denied = sso.list_connectors(v1::ListConnectorsRequest {}).await.unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
    let asked = v1::GetConnectorKeysRequest { name: "corp".to_owned() };
    assert_eq!(sso.get_connector_keys(asked).await.unwrap_err().code(), Code::PermissionDenied);
    let mut web = WebClient::new(channel);
    let begin = v1::WebBeginSsoRequest { address: ADDRESS.to_owned(), ..Default::default() };
    assert_eq!(web.begin_login_sso(begin).await.unwrap_err().code(), Code::PermissionDenied);
    let finish = v1::WebFinishSsoRequest { address: ADDRESS.to_owned(), ..Default::default() };
    assert_eq!(web.finish_login_sso(finish).await.unwrap_err().code(), Code::PermissionDenied);
    let logout = v1::WebSsoLogoutRequest { address: ADDRESS.to_owned(), ..Default::default() };
    assert_eq!(web.sso_logout(logout).await.unwrap_err().code(), Code::PermissionDenied);
}
