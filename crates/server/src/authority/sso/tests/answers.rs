//! What a provider may answer, and what is made of it.

use std::process::Command;
use std::sync::Arc;

use sallyport_sal::tls::provider;
use serde_json::json;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::idp::{Idp, Reply};
use super::*;

fn raw(text: &str) -> Reply {
    Reply::Raw(text.as_bytes().to_vec())
}

fn long(status: &str, bytes: usize) -> Reply {
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\n\r\n");
    Reply::Raw([head.as_bytes(), &vec![b' '; bytes]].concat())
}

#[tokio::test]
async fn of_a_hostile_provider_comes_no_login_and_no_wait() {
    let site = Site::new().await;
    let redirect = || raw("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n");
    let other = json!({ "sub": "another", "groups": ["ops-eu"] });
    site.idp.userinfo(other);
    site.idp.says(json!({ "sub": "24400320", "preferred_username": "alice" }));
    let cases: Vec<(&str, Reply, &str)> = vec![
        ("/token", redirect(), "bad_answer"),
        ("/token", Reply::Json(500, json!({})), "bad_answer"),
        ("/token", Reply::Json(503, json!({ "error": "temporarily_unavailable" })), "refused_by_provider"),
        ("/token", Reply::Json(400, json!({ "error": "invalid_grant" })), "refused_by_provider"),
        (
            "/token",
            Reply::Json(401, json!({ "error": "invalid_client", "error_description": "no\u{7}" })),
            "refused_by_provider",
        ),
        ("/token", raw("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{"), "bad_answer"),
        ("/token", Reply::Json(200, json!([])), "bad_answer"),
        ("/token", Reply::Json(200, json!({ "access_token": "a", "token_type": "Bearer" })), "bad_answer"),
        ("/token", Reply::Json(200, json!({ "id_token": "a.b.c" })), "malformed"),
        ("/token", Reply::Json(200, json!({ "error": "e", "id_token": "a.b.c" })), "refused_by_provider"),
        ("/token", long("200 OK", 300 * 1024), "not_reached"),
        ("/token", long("400 Bad Request", 300 * 1024), "bad_answer"),
        ("/token", raw("not HTTP at all\r\n\r\n"), "not_reached"),
        ("/token", raw(""), "not_reached"),
        ("/token", raw("HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n{"), "not_reached"),
        ("/token", Reply::Silence, "not_reached"),
        ("/userinfo", redirect(), "bad_answer"),
        ("/userinfo", Reply::Json(500, json!({})), "bad_answer"),
        (
            "/userinfo",
            raw("HTTP/1.1 200 OK\r\ncontent-type: application/jwt\r\ncontent-length: 5\r\n\r\na.b.c"),
            "bad_answer",
        ),
        // It is about another person, whatever else it says.
        ("/nothing", Reply::Silence, "other_subject"),
    ];
    for (path, reply, expected) in cases {
        let told = format!("{path} {reply:?}");
        site.idp.is_itself();
        site.idp.replies(path, reply);
        let answer = site.answer(&site.begin().await);
        let got = site.claims(&answer).await.map_err(word).unwrap_err();
        assert_eq!(got, expected, "{}", told.chars().take(120).collect::<String>());
    }
}

#[tokio::test]
async fn a_providers_documents_lead_nowhere_else() {
    for (name, value, expected) in [
        ("issuer", json!("https://another.example"), "issuer_mismatch"),
        ("token_endpoint", json!("http://203.0.113.1/token"), "bad_discovery"),
        ("jwks_uri", json!("ftp://127.0.0.1/keys"), "bad_discovery"),
        ("response_types_supported", json!(["id_token"]), "bad_discovery"),
        ("id_token_signing_alg_values_supported", json!(["none", "HS256"]), "bad_discovery"),
    ] {
        let site = Site::new().await;
        site.idp.announces(name, value);
        let remote = site.remote().await;
        let got = site.connectors().begin(&remote, login("c"), "", now()).await.map(drop).map_err(word);
        assert_eq!(got.unwrap_err(), expected, "{name}");
        // It is not asked again for each login that is begun now.
        let again = site.connectors().begin(&remote, login("c"), "", now()).await.map(drop).map_err(word);
        assert_eq!(again.unwrap_err(), "not_reached", "{name}");
        assert_eq!(site.idp.seen("/.well-known/openid-configuration").len(), 1);
    }
    // Without TLS only where the connector says so, also of what the documents name.
    let site = Site::new().await;
    let document = site.document("corp", "");
    let strict = document.replace("insecure_loopback: true", "insecure_loopback: false");
    assert!(Connector::parse(&strict).unwrap_err().to_string().contains("no TLS"));
}

#[tokio::test]
async fn while_a_provider_is_away_what_was_known_of_it_is_good() {
    let site = Site::new().await;
    site.log_in().await.unwrap();
    let later = now() + time::Duration::hours(2);
    site.idp.replies("/.well-known/openid-configuration", Reply::Json(503, json!({})));
    site.idp.replies("/keys", Reply::Json(503, json!({})));
    let remote = site.remote().await;
    assert!(remote.discovery(later).await.is_ok());
    let before = site.idp.seen("/.well-known/openid-configuration").len();
    assert!(remote.discovery(later).await.is_ok());
    assert_eq!(
        site.idp.seen("/.well-known/openid-configuration").len(),
        before,
        "it is left alone for a while"
    );
    let later = later + time::Duration::minutes(1);
    site.idp.is_itself();
    assert!(remote.discovery(later).await.is_ok());
    assert_eq!(site.idp.seen("/.well-known/openid-configuration").len(), before + 1);
}

/// A thief of a key that the provider has withdrawn keeps the authority from its key set, and signs for as long as the old one is believed.
#[tokio::test]
async fn keys_that_a_provider_has_withdrawn_end_within_a_day_also_while_its_key_set_is_out_of_reach() {
    let site = Site::new().await;
    site.log_in().await.unwrap();
    let (remote, start) = (site.remote().await, now());
    let claims = json!({ "sub": "1", "jti": "j1", "events": { "http://schemas.openid.net/event/backchannel-logout": {} } });
    let signed_after = |hours: i64| {
        let at = start + time::Duration::hours(hours);
        (site.idp.token_at(at, claims.as_object().unwrap().clone()), at)
    };
    let [soon, late, stale] = [2, 23, 25].map(signed_after);
    site.idp.rotates();
    site.idp.replies("/keys", Reply::Json(503, json!({})));
    for (token, at) in [soon, late] {
        remote.logout(&token, at).await.unwrap();
    }
    let (token, at) = stale;
    let refused = remote.logout(&token, at).await.unwrap_err();
    assert_eq!(refused.word(), "stale_keys", "{refused}");
    let told = crate::ServerError::chain(&refused);
    assert!(told.contains("cannot be fetched now") && told.contains("have this authority reach"), "{told}");
    assert!(told.contains("503"), "why it cannot: {told}");
    // Strangers who send tokens have the provider asked no more often than that.
    let asked = site.idp.seen("/keys").len();
    let again = remote.logout(&token, at + time::Duration::seconds(1)).await.unwrap_err();
    assert_eq!((again.word(), site.idp.seen("/keys").len()), ("stale_keys", asked), "{again}");
    // Once the authority reaches the set again, it believes the keys in it, and no others.
    site.idp.is_itself();
    let at = at + sallyport_oidc::FETCH_PAUSE;
    assert_eq!(remote.logout(&token, at).await.unwrap_err().word(), "unknown_key");
    let (token, at) = signed_after(25);
    remote.logout(&token, at).await.unwrap();
}

fn openssl(at: &Path, arguments: &str) {
    let done = Command::new("openssl").current_dir(at).args(arguments.split(' ')).output();
    let done = done.expect("openssl has to be installed (package openssl)");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// A certificate for a name, of a CA in `ca.pem`.
fn acceptor(at: &Path, name: &str) -> TlsAcceptor {
    std::fs::write(at.join("name"), format!("subjectAltName=DNS:{name}")).unwrap();
    openssl(
        at,
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=ca -days 2 -keyout ca.key -out ca.pem",
    );
    openssl(
        at,
        "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=idp -keyout idp.key -out idp.csr",
    );
    openssl(
        at,
        "x509 -req -in idp.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile name -out idp.pem",
    );
    let chain: Vec<_> =
        CertificateDer::pem_file_iter(at.join("idp.pem")).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(at.join("idp.key")).unwrap();
    let config =
        ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    TlsAcceptor::from(Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap()))
}

#[tokio::test]
async fn a_provider_has_a_certificate_for_its_name_of_the_cas_that_the_connector_names() {
    let (ours, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let good = Idp::start(Some(acceptor(ours.path(), "localhost"))).await;
    let elsewhere = Idp::start(Some(acceptor(others.path(), "elsewhere.example"))).await;
    let site = Site::empty().await;
    let remote = |idp: &Idp, at: &Path| {
        let document = site.document("corp", &format!("  ca_file: {}\n", at.join("ca.pem").display()));
        let document = document.replace(site.idp.issuer(), idp.issuer());
        Remote::new(Connector::parse(&document.replace("  insecure_loopback: true\n", "")).unwrap())
    };
    let asked = async |remote: Remote| remote.discovery(now()).await.map_err(|error| error.word());
    assert!(asked(remote(&good, ours.path())).await.is_ok());
    assert_eq!(asked(remote(&good, others.path())).await.unwrap_err(), "not_reached", "another CA's");
    assert_eq!(asked(remote(&elsewhere, others.path())).await.unwrap_err(), "not_reached", "another name");
}

#[tokio::test]
async fn groups_that_are_elsewhere_are_fetched_from_allowed_hosts_and_are_never_no_groups() {
    let site = Site::new().await;
    let groups = format!("{}/groups", site.idp.issuer());
    let says = |endpoint: &str| {
        json!({
            "sub": "24400320",
            "preferred_username": "alice",
            "_claim_names": { "groups": "src1" },
            "_claim_sources": { "src1": { "endpoint": endpoint } },
        })
    };
    site.idp.says(says(&groups));
    site.idp.replies("/groups", Reply::Json(200, json!({ "groups": ["ops-eu"] })));
    assert_eq!(site.log_in().await.map(drop).unwrap_err(), "claim_elsewhere");
    assert!(site.idp.seen("/groups").is_empty(), "nothing is sent to a server that is not allowed");
    // The user information may have them.
    site.idp.userinfo(json!({ "sub": "24400320", "groups": ["auditors"] }));
    site.connect("corp", "  title: anew\n").await;
    let (_, verdict) = site.log_in().await.unwrap();
    assert_eq!(verdict.roles.iter().map(ToString::to_string).collect::<Vec<_>>(), ["auditor"]);
    // It may as well say that it has too many itself.
    let mut userinfo = says(&groups);
    userinfo["_claim_names"] = json!({ "groups": "src1" });
    site.idp.userinfo(userinfo);
    site.idp.says(json!({ "sub": "24400320", "preferred_username": "alice", "_claim_names": { "x": "src1" }, "_claim_sources": { "src1": {} } }));
    assert_eq!(site.log_in().await.map(drop).unwrap_err(), "claim_elsewhere");

    let host = site.idp.issuer().strip_prefix("http://").unwrap().to_owned();
    site.connect("corp", &format!("  allowed_hosts: ['{host}']\n")).await;
    site.idp.userinfo(json!({ "sub": "24400320" }));
    site.idp.says(says(&groups));
    let (_, verdict) = site.log_in().await.unwrap();
    assert_eq!(verdict.roles.iter().map(ToString::to_string).collect::<Vec<_>>(), ["access"]);
    assert_eq!(site.idp.seen("/groups")[0].headers["authorization"], "Bearer access");
    // As Microsoft's Graph answers.
    site.idp.says(says(&format!("{}/getMemberObjects", site.idp.issuer())));
    site.idp.replies("/getMemberObjects", Reply::Json(200, json!({ "value": ["ops-us", "x"] })));
    site.log_in().await.unwrap();
    assert_eq!(site.idp.seen("/getMemberObjects")[0].body, r#"{"securityEnabledOnly":false}"#);
    for hostile in [
        json!({ "value": ["ops-us"], "@odata.nextLink": "https://x" }),
        json!({ "value": vec!["x"; 3000] }),
        json!({ "groups": ["ops-us"] }),
    ] {
        site.idp.replies("/getMemberObjects", Reply::Json(200, hostile));
        assert_eq!(site.log_in().await.map(drop).unwrap_err(), "claim_elsewhere");
    }
    site.idp.replies("/getMemberObjects", Reply::Json(403, json!({})));
    assert_eq!(site.log_in().await.map(drop).unwrap_err(), "claim_elsewhere");
}

#[tokio::test]
async fn what_a_providers_documents_name_is_asked_inside_only_where_the_provider_is_or_the_administrator_says()
 {
    use crate::authority::sso::asking::Asker;
    use crate::outgoing::Reach;
    let site = Site::empty().await;
    let away = site
        .document("corp", "  allowed_hosts: ['10.0.0.9:80']\n")
        .replace("  insecure_loopback: true\n", "")
        .replace(site.idp.issuer(), "https://192.0.2.1");
    let (away, here) = (remote_of(&away), remote_of(&site.document("corp", "")));
    for (address, from_away) in [
        ("192.0.2.1:8443", Reach::Named),
        ("10.0.0.9:80", Reach::Named),
        ("10.0.0.9:81", Reach::Public),
        ("169.254.169.254:80", Reach::Public),
        ("localhost:80", Reach::Public),
        ("198.51.100.1:443", Reach::Public),
    ] {
        let address = address.parse().unwrap();
        assert_eq!(Asker::new(away.connector()).reach(&address).await, from_away, "{address}");
        assert_eq!(Asker::new(here.connector()).reach(&address).await, Reach::Named, "{address}");
    }
}

fn remote_of(document: &str) -> Remote {
    Remote::new(Connector::parse(document).unwrap())
}
