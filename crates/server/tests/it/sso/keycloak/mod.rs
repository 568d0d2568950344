//! Single sign-on by Keycloak, alone and beside another provider. Its starts take most of the time, so that these are among the whole
//! measurements.

mod beside;
mod poser;
mod server;

use std::path::Path;

use sallyport_wire::v1::begin_proof_request::Purpose;
use sallyport_wire::v1::cluster_client::ClusterClient;
use sallyport_wire::v1::factor_proof::Proof;
use serde_json::{Value, json};
use tonic::Code;

use self::server::Keycloak;
use super::provider::{Browser, Told};
use super::*;
use crate::support::{events, is, until};

struct Site {
    cluster: Cluster,
    keycloak: Keycloak,
    directory: tempfile::TempDir,
}

impl Site {
    async fn new(skew: &str, logout_url: &str) -> Self {
        Self {
            cluster: Cluster::without_node().await,
            keycloak: Keycloak::start(skew, logout_url).await,
            directory: tempfile::tempdir().unwrap(),
        }
    }

    async fn connect(&self, client: &str, more: &str) {
        let yaml = connector(&self.keycloak, self.directory.path(), client, more);
        connect(&self.cluster, yaml).await;
    }

    async fn reasons(&self) -> Vec<String> {
        let refused = events(&mut self.cluster.admin().await, "SP1050W").await;
        refused.iter().map(|event| event["fields"]["reason"].as_str().unwrap().to_owned()).collect()
    }
}

/// The document of the connector `corp` to a Keycloak, by the guide's steps, with Keycloak's scopes as they are.
fn connector(keycloak: &Keycloak, directory: &Path, client: &str, more: &str) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let secret = directory.join("secret");
    std::fs::write(&secret, format!("{}\n", super::provider::SECRET)).unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let more = format!("  client_secret_file: {}\n{more}", secret.display());
    let yaml = document_at("corp", &keycloak.issuer, &more);
    let yaml = yaml.replace("  scopes: [openid, profile, groups]\n", "");
    yaml.replace("client_id: sallyport", &format!("client_id: {client}"))
}

async fn list(user: &User) -> Result<(), Status> {
    let mut mine = ClusterClient::new(user.authority().await);
    mine.list_nodes(v1::ListNodesRequest::default()).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_keys_codes_audiences_refreshes_and_logouts_of_a_keycloak_are_as_the_guide_says() {
    let told = Told::new().await;
    let mut site = Site::new("", &told.url).await;
    let refreshing = "  refresh: {interval: 5s, grace: 1h}\n  logout: back-channel\n";
    site.connect("sallyport", refreshing).await;
    let pages = Pages::of(&site.cluster).await;

    // Login and groups.
    let mut browser = Browser::default();
    let (alice, login) = pages.log_in(&mut browser, "alice").await.unwrap();
    assert_eq!(
        (alice.name.as_str(), login.roles.as_slice()),
        ("alice", &["access".to_owned(), "auditor".to_owned()][..])
    );
    let (bob, login) = pages.log_in(&mut Browser::default(), "bob").await.unwrap();
    assert_eq!(login.roles, ["auditor"]);

    // A code that was used, in another login of the same browser.
    let away = pages.send(&pages.begin().await.id, "corp").await.unwrap();
    let used = browser.through(&away.url, "alice").await;
    pages.answer(&used, &away.binding).await.unwrap();
    let away = pages.send(&pages.begin().await.id, "corp").await.unwrap();
    let mut again = browser.through(&away.url, "alice").await;
    again.insert("code".to_owned(), used["code"].clone());
    let status = pages.answer(&again, &away.binding).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    assert_eq!(site.reasons().await, ["refused_by_provider"]);
    // Keycloak ends the session of a code that is shown twice, and so the logins by it end here.
    until("the login has ended", async || list(&alice).await.err().map(drop)).await;
    list(&bob).await.unwrap();

    // A group that is taken away.
    let (alice, _) = pages.log_in(&mut Browser::default(), "alice").await.unwrap();
    let (id, groups) =
        (site.keycloak.person("alice").await, site.keycloak.admin("GET", "/groups", &Value::Null).await);
    let group =
        groups.as_array().unwrap().iter().find(|group| group["name"] == "ops-eu").unwrap()["id"].clone();
    let membership = format!("/users/{id}/groups/{}", group.as_str().unwrap());
    site.keycloak.admin("DELETE", &membership, &Value::Null).await;
    until("the role is gone", async || list(&alice).await.err().map(drop)).await;
    let (alice, login) = pages.log_in(&mut Browser::default(), "alice").await.unwrap();
    assert_eq!(login.roles, ["auditor"]);

    // Another key; the connector, written anew, has not fetched the former ones a moment ago.
    site.keycloak.rotate().await;
    site.connect("sallyport", &format!("{refreshing}  user_lifetime: 11h\n")).await;
    let (carol, _) = pages.log_in(&mut Browser::default(), "alice").await.unwrap();
    list(&carol).await.unwrap();

    // An administrator of Keycloak ends the sessions: it tells so, and its tokens are worth nothing.
    let (token, _) = tokio::join!(told.token(), async {
        site.keycloak.admin("POST", &format!("/users/{id}/logout"), &json!({})).await;
    });
    until("the logins have ended", async || list(&alice).await.err().map(drop)).await;
    let request = v1::WebSsoLogoutRequest {
        address: ADDRESS.to_owned(),
        connector: "corp".to_owned(),
        logout_token: token,
    };
    pages.web.clone().sso_logout(request.clone()).await.unwrap();
    let status = pages.web.clone().sso_logout(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "a token is taken once");
    list(&bob).await.unwrap();

    // A client whose tokens are for others, too.
    site.connect("wide", "").await;
    let status = pages.log_in(&mut Browser::default(), "alice").await.map(drop).unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    assert_eq!(site.reasons().await.last().map(String::as_str), Some("wrong_audience"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_of_a_keycloak_adds_a_first_factor_by_signing_in_again() {
    let site = Site::new("", "").await;
    site.connect("sallyport", "").await;
    let pages = Pages::of(&site.cluster).await;
    let mut browser = Browser::default();
    let (alice, _) = pages.log_in(&mut browser, "alice").await.unwrap();
    // Keycloak knows its session with the browser, and its tokens say when the person has signed in (auth_time).
    let id = pages.asks(&alice, Purpose::AddFactor(super::factors::codes("phone"))).await.unwrap();
    pages.again(&mut browser, &id, "alice").await.unwrap();
    pages.adds(&alice, "phone", Some(Proof::Challenge(id))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keycloak_whose_clock_is_a_minute_off_is_believed_and_one_further_off_is_not() {
    for (skew, believed) in [("+50s", true), ("+3m", false), ("-12m", false)] {
        let site = Site::new(skew, "").await;
        site.connect("sallyport", "").await;
        let pages = Pages::of(&site.cluster).await;
        let came = pages.log_in(&mut Browser::default(), "alice").await.map(drop);
        match believed {
            true => came.unwrap(),
            false => assert!(is(&came.unwrap_err(), Code::PermissionDenied, "cannot be used"), "{skew}"),
        }
        let expected = match skew {
            "+3m" => "not_yet_valid",
            "-12m" => "expired",
            _ => continue,
        };
        assert_eq!(site.reasons().await, [expected], "{skew}");
    }
}
