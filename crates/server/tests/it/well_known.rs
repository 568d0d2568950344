//! The cluster's keys as relying parties find them: with curl, and a verifier that shares no code with us.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "tests"
)]

use std::fs;
use std::path::Path;

use crate::programs::{go, run};
use crate::support;
use crate::support::{Cluster, admin_channel, proxy_section, until};
use sallyport_sal::Suite;
use sallyport_wire::v1;
use sallyport_wire::v1::certificates_client::CertificatesClient;
use sallyport_wire::v1::rotation_client::RotationClient;
use serde_json::Value;

const HOST: &str = "proxy.example.net";

struct Web {
    cluster: Cluster,
    dir: tempfile::TempDir,
}

impl Web {
    async fn start(suite: Suite) -> Self {
        let cluster = Cluster::start(|config| {
            let public = format!("{HOST}:443").parse().unwrap();
            config.proxy =
                Some(sallyport_server::config::ProxySection { public_addr: vec![public], ..proxy_section() });
            config.auth.as_mut().unwrap().suite = Some(suite);
        })
        .await;
        cluster.running.ready(support::PATIENCE).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let trust = cluster.running.authority().unwrap().trust();
        let ca = trust.tls_certificates_pem(sallyport_ca::CaKind::Host);
        fs::write(dir.path().join("ca.pem"), ca).unwrap();
        Self { cluster, dir }
    }

    /// Status, headers and body, with the certificate of the proxy verified for its public name.
    fn get(&self, path: &str, headers: &[&str]) -> Option<(u16, String, String)> {
        let to = format!("{HOST}:443:127.0.0.1:{}", self.cluster.proxy().port);
        let url = format!("https://{HOST}{path}");
        let mut arguments =
            vec!["-sS", "--max-time", "20", "--cacert", "ca.pem", "--connect-to", &to, "-D", "headers", &url];
        arguments.extend(headers.iter().flat_map(|header| ["-H", *header]));
        let (ok, body) = run("curl", &arguments, self.dir.path())?;
        assert!(ok, "{body}");
        let headers = fs::read_to_string(self.dir.path().join("headers")).unwrap().to_lowercase();
        let status = headers.split(' ').nth(1).unwrap().parse().unwrap();
        Some((status, headers, body))
    }

    fn json(&self, path: &str) -> Value {
        let (status, _, body) = self.get(path, &[]).unwrap();
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Waits until the proxy has heard of a new key.
    async fn until_shown(&self, path: &str, keys: usize) -> Value {
        until("the keys to be shown", || async {
            let (status, _, body) = self.get(path, &[]).unwrap();
            let document: Value = serde_json::from_str(&body).unwrap_or_default();
            (status == 200 && document["keys"].as_array().is_some_and(|found| found.len() == keys))
                .then_some(document)
        })
        .await
    }

    async fn token(&self, kind: &str, subject: &str) -> String {
        let mut client = CertificatesClient::new(admin_channel(&self.cluster.data_dir()).await);
        let asked = v1::SignCertificateRequest {
            kind: kind.to_owned(),
            subject: subject.to_owned(),
            names: vec!["vault".to_owned()],
            ..Default::default()
        };
        client.sign_certificate(asked).await.unwrap().into_inner().token
    }
}

/// What the verifier says of one token, with a key set as it was downloaded.
fn verify(directory: &Path, keys: &Value, token: &str) -> Option<String> {
    fs::write(directory.join("jwks.json"), keys.to_string()).unwrap();
    fs::write(directory.join("tokens"), format!("{token}\n")).unwrap();
    let source = include_str!("../../../ca/tests/it/go/jwt.go");
    let (ok, text) = go(source, &["jwks.json", "tokens"], directory)?;
    Some(if ok { text.trim().to_owned() } else { "refused".to_owned() })
}

#[tokio::test(flavor = "multi_thread")]
async fn others_verify_tokens_with_what_the_public_address_shows() {
    let web = Web::start(Suite::BalancedV1).await;
    let Some((status, headers, _)) = web.get("/.well-known/jwks.json", &[]) else { return };
    assert_eq!(status, 503, "no certificate has needed the jwt CA yet");
    assert!(headers.contains("retry-after: 30"), "{headers}");
    web.cluster.user("alice", &["root"]).await;
    let user = web.token("jwt", "alice").await;
    let cloud = web.token("oidc", "system:auth").await;
    let workload = web.token("jwt_svid", "/web").await;

    let jwks = web.until_shown("/.well-known/jwks.json", 1).await;
    assert_eq!(
        (jwks["keys"][0]["alg"].as_str(), jwks["keys"][0]["kty"].as_str()),
        (Some("ES256"), Some("EC"))
    );
    let discovery = web.json("/.well-known/openid-configuration");
    assert_eq!(discovery["issuer"], format!("https://{HOST}"));
    assert_eq!(discovery["id_token_signing_alg_values_supported"], serde_json::json!(["RS256"]));
    let uri = discovery["jwks_uri"].as_str().unwrap().strip_prefix(&format!("https://{HOST}")).unwrap();
    let oidc = web.json(uri);
    let bundle = web.json("/spiffe/bundle.json");
    assert!(bundle["spiffe_sequence"].is_u64() && bundle["spiffe_refresh_hint"] == 300, "{bundle}");
    let uses: Vec<&str> =
        bundle["keys"].as_array().unwrap().iter().map(|key| key["use"].as_str().unwrap()).collect();
    assert_eq!(uses, ["x509-svid", "jwt-svid"]);
    assert!(bundle["keys"][0]["x5c"][0].is_string() && bundle["keys"][0].get("kid").is_none(), "{bundle}");
    let svid_keys = web.json("/ca/spiffe/jwks");
    assert_eq!(svid_keys["keys"][0]["kid"], bundle["keys"][1]["kid"]);

    let dir = web.dir.path();
    let Some(said) = verify(dir, &jwks, &user) else { return };
    assert_eq!(said, "ES256 good alice");
    assert_eq!(verify(dir, &oidc, &cloud).unwrap(), "RS256 good system:auth");
    assert_eq!(verify(dir, &svid_keys, &workload).unwrap(), "ES256 good spiffe://test.example/web");
    // The keys of one purpose verify nothing of another.
    for (keys, token) in [(&jwks, &cloud), (&oidc, &user), (&jwks, &workload)] {
        assert_eq!(verify(dir, keys, token).unwrap(), "refused");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_may_be_kept_and_have_both_keys_in_a_rotation() {
    let web = Web::start(Suite::Legacy).await;
    web.cluster.user("alice", &["root"]).await;
    let before = web.token("jwt", "alice").await;
    let Some((_, _, _)) = web.get("/healthz", &[]) else { return };
    let first = web.until_shown("/.well-known/jwks.json", 1).await;
    assert_eq!(first["keys"][0]["alg"], "RS256");
    let (status, headers, _) = web.get("/.well-known/jwks.json", &[]).unwrap();
    assert_eq!(status, 200);
    assert!(headers.contains("cache-control: public, max-age=300"), "{headers}");
    assert!(headers.contains("content-type: application/json"), "{headers}");
    assert!(headers.contains("x-content-type-options: nosniff"), "{headers}");
    let tag = headers.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().trim();
    let (status, _, body) = web.get("/.well-known/jwks.json", &[&format!("If-None-Match: {tag}")]).unwrap();
    assert_eq!((status, body.as_str()), (304, ""));

    let mut rotation = RotationClient::new(admin_channel(&web.cluster.data_dir()).await);
    let mut rotate = async |phase: &str| {
        let step = Some(v1::rotate_ca_request::Step::Phase(phase.to_owned()));
        let asked = v1::RotateCaRequest { kind: "jwt".to_owned(), step, force: true };
        rotation.rotate_ca(asked).await.unwrap();
    };
    rotate("init").await;
    let both = web.until_shown("/.well-known/jwks.json", 2).await;
    assert_eq!(both["keys"][0], first["keys"][0], "the one that signs stands first");
    let (status, _, _) = web.get("/.well-known/jwks.json", &[&format!("If-None-Match: {tag}")]).unwrap();
    assert_eq!(status, 200, "a copy from before is no longer the same");
    rotate("update_clients").await;
    let after = web.token("jwt", "alice").await;
    let turned = until("the new key to stand first", || async {
        let keys = web.json("/.well-known/jwks.json");
        (keys["keys"][0] == both["keys"][1]).then_some(keys)
    })
    .await;
    for token in [&before, &after] {
        let Some(said) = verify(web.dir.path(), &turned, token) else { return };
        assert_eq!(said, "RS256 good alice");
    }
    assert_eq!(verify(web.dir.path(), &first, &after).unwrap(), "refused");
    // Both are in the other formats, too.
    let text = web.get("/ca/jwt/jwks", &[]).unwrap().2;
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["keys"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_ca_has_its_page_and_no_other() {
    let web = Web::start(Suite::BalancedV1).await;
    let mut admin = web.cluster.admin().await;
    if web.get("/healthz", &[]).is_none() {
        return;
    }
    let pages = [
        ("user", &["openssh", "tls"][..]),
        ("host", &["openssh", "tls", "known_hosts"]),
        ("db", &["tls"]),
        ("db_client", &["tls"]),
        ("db-client", &["tls"]),
        ("openssh", &["openssh"]),
        ("jwt", &["jwks"]),
        ("oidc_idp", &["jwks"]),
        ("spiffe", &["tls", "jwks"]),
        ("cat", &[]),
    ];
    for (kind, formats) in pages {
        if kind != "cat" {
            let asked = v1::ExportCaRequest { kind: kind.to_owned(), format: String::new() };
            admin.export_ca(asked).await.unwrap();
        }
        for format in ["openssh", "tls", "jwks", "known_hosts", "krl"] {
            let path = format!("/ca/{kind}/{format}");
            if formats.contains(&format) {
                until("the page", || async { (web.get(&path, &[]).unwrap().0 == 200).then_some(()) }).await;
            } else {
                let (status, _, body) = web.get(&path, &[]).unwrap();
                assert!(
                    status == 404 && body.starts_with("known are /ca/KIND/openssh"),
                    "{path}: {status} {body}"
                );
            }
        }
    }
}
