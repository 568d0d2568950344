//! SCIM clients at the public address: curl, and the tester of the protocol.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod tester;

use std::fs;

use sallyport_server::config::ProxySection;
use sallyport_wire::v1;
use sallyport_wire::v1::provisioning_client::ProvisioningClient;
use serde_json::{Value, json};

use crate::programs::run;
use crate::support::{self, Cluster, admin_channel, proxy_section};

const HOST: &str = "proxy.example.net";
const CONNECTOR: &str = "kind: oidc\nversion: v1\nmetadata: {name: corp}\nspec:\n  issuer: https://idp.example\n  client_id: sallyport\n  \
                         private_key_jwt: {algorithm: ES256}\n  mapping: {roles: [{claim: sub, roles: [access]}]}\n";

/// Authority and proxy, and a directory with the certificates that its clients trust.
async fn cluster() -> (Cluster, tempfile::TempDir) {
    let cluster = Cluster::start(|config| {
        let public = format!("{HOST}:443").parse().unwrap();
        config.proxy = Some(ProxySection { public_addr: vec![public], ..proxy_section() });
    })
    .await;
    cluster.running.ready(support::PATIENCE).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let trust = cluster.running.authority().unwrap().trust();
    let certificates = trust.tls_certificates_pem(sallyport_ca::CaKind::Host);
    fs::write(directory.path().join("ca.pem"), certificates).unwrap();
    (cluster, directory)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_a_token_provisions_through_the_proxy() {
    let (cluster, directory) = cluster().await;
    let create = v1::CreateResourceRequest { yaml: CONNECTOR.to_owned(), replace: false };
    cluster.admin().await.create_resource(create).await.unwrap();
    let add = v1::AddScimTokenRequest { connector: "corp".to_owned(), ttl: None };
    let mut provisioning = ProvisioningClient::new(admin_channel(&cluster.data_dir()).await);
    let made = provisioning.add_scim_token(add).await.unwrap().into_inner();
    assert_eq!(made.url, format!("https://{HOST}/scim/v2"));

    let to = format!("{HOST}:443:127.0.0.1:{}", cluster.proxy().port);
    let curl = |token: &str, method: &str, path: &str, body: &Value| -> (u16, Value) {
        let (url, token, body) = (
            format!("https://{HOST}/scim/v2{path}"),
            format!("Authorization: Bearer {token}"),
            body.to_string(),
        );
        let mut arguments = vec![
            "-sS",
            "--max-time",
            "20",
            "--cacert",
            "ca.pem",
            "--connect-to",
            &to,
            "-w",
            "\n%{http_code}",
        ];
        arguments.extend(["-X", method, "-H", &token, "-H", "Content-Type: application/scim+json", &url]);
        if method != "GET" {
            arguments.extend(["--data-binary", &body]);
        }
        let (ok, text) = run("curl", &arguments, directory.path()).unwrap();
        assert!(ok, "{text}");
        let (body, status) = text.trim_end().rsplit_once('\n').unwrap_or(("", text.trim_end()));
        (status.parse().unwrap(), serde_json::from_str(body).unwrap_or_default())
    };
    let user = json!({ "schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"], "userName": "alice" });
    let (status, alice) = curl(&made.token, "POST", "/Users", &user);
    assert_eq!((status, &alice["active"]), (201, &json!(true)), "{alice}");
    let location = alice["meta"]["location"].as_str().unwrap();
    assert_eq!(location, format!("https://{HOST}/scim/v2/Users/{}", alice["id"].as_str().unwrap()));
    let (status, found) = curl(&made.token, "GET", "/Users?filter=userName%20eq%20%22ALICE%22", &Value::Null);
    assert_eq!((status, &found["totalResults"]), (200, &json!(1)), "{found}");
    assert_eq!(curl(&made.token, "POST", "/Users", &user).0, 409);
    assert_eq!(curl(&made.token, "GET", "/ServiceProviderConfig", &Value::Null).0, 200);
    assert_eq!(curl(&made.token, "GET", "/Nowhere", &Value::Null).0, 404);
    let (status, refused) = curl("corp:guessed-it", "GET", "/Users", &Value::Null);
    assert_eq!((status, refused["status"].as_str()), (401, Some("401")), "{refused}");
    assert_eq!(curl("", "GET", "/Users", &Value::Null).0, 401);
    let path = format!("/Users/{}", alice["id"].as_str().unwrap());
    assert_eq!(curl(&made.token, "DELETE", &path, &Value::Null).0, 204);
    let remove = v1::RemoveScimTokenRequest { connector: "corp".to_owned(), name: made.name };
    provisioning.remove_scim_token(remove).await.unwrap();
    assert_eq!(curl(&made.token, "GET", "/Users", &Value::Null).0, 401);
}
