//! What was issued is found, denied and cut off; what is made by hand is what it should be.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::support;
use crate::support::{
    Cluster, PATIENCE, User, admin_channel, log_in, node_section, os_login, pin, proxy_section,
};
use data_encoding::BASE64URL_NOPAD;
use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_ca::lifetimes::Change;
use sallyport_ca::{CaKind, CertificateKind};
use sallyport_sal::Suite;
use sallyport_ssh::client::{Exit, Output, SessionRequest};
use sallyport_wire::v1;
use sallyport_wire::v1::certificates_client::CertificatesClient;
use tonic::Code;
use tonic::transport::Channel;

type Client = CertificatesClient<Channel>;

async fn client(cluster: &Cluster) -> Client {
    CertificatesClient::new(admin_channel(&cluster.data_dir()).await)
}

async fn list(client: &mut Client, asked: v1::ListCertificatesRequest) -> Vec<v1::CertificateInfo> {
    client.list_certificates(asked).await.unwrap().into_inner().certificates
}

fn about(subject: &str) -> v1::ListCertificatesRequest {
    v1::ListCertificatesRequest { subject: subject.to_owned(), ..Default::default() }
}

async fn get(client: &mut Client, id: &str) -> v1::CertificateInfo {
    client.get_certificate(v1::GetCertificateRequest { id: id.to_owned() }).await.unwrap().into_inner()
}

async fn deny(client: &mut Client, id: &str) -> v1::DenyCertificateResponse {
    let asked = v1::DenyCertificateRequest { id: id.to_owned(), reason: "the laptop was stolen".to_owned() };
    client.deny_certificate(asked).await.unwrap().into_inner()
}

/// The claims of a token, read without verifying it.
fn claims(token: &str) -> serde_json::Value {
    serde_json::from_slice(&BASE64URL_NOPAD.decode(token.split('.').nth(1).unwrap().as_bytes()).unwrap())
        .unwrap()
}

/// Serial number and key of a user's SSH certificate, as `ssh-keygen -L` prints them.
fn as_printed(user: &User) -> (String, String) {
    let dir = tempfile::tempdir().unwrap();
    user.write_keys(dir.path());
    let certificate = dir.path().join("id-cert.pub");
    let output = std::process::Command::new("ssh-keygen").arg("-Lf").arg(certificate).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let after = |label: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(label)).unwrap();
        line.rsplit(' ').next().unwrap().to_owned()
    };
    (after("Serial: "), after("Public key: "))
}

fn spki() -> bytes::Bytes {
    TlsKey::generate(Suite::BalancedV1).unwrap().spki_der().to_vec().into()
}

fn line() -> String {
    SshKeyPair::generate(Suite::BalancedV1, "x").unwrap().public_line().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_certificate_is_listed_and_found() {
    let cluster = Cluster::all_in_one().await;
    let mut client = client(&cluster).await;
    let alice = cluster.user("alice", &["root", "deploy"]).await;
    let own = list(&mut client, about("alice")).await;
    assert_eq!(own.len(), 2, "at once, and both: {own:?}");
    let forms: BTreeSet<&str> = own.iter().map(|one| one.form.as_str()).collect();
    assert_eq!(forms, BTreeSet::from(["ssh", "x509"]));
    assert!(
        own.iter()
            .all(|one| one.kind == "user" && one.signed_by == "user" && one.names == ["root", "deploy"])
    );
    assert!(
        own.iter().all(|one| one.issued_to == "alice" && one.source.starts_with("127.0.0.1:")),
        "{own:?}"
    );
    assert_eq!(own[0].login_id, own[1].login_id);

    // As ssh-keygen -L, ssh-keygen -l and openssl x509 -fingerprint print them.
    let (serial, key) = as_printed(&alice);
    let found = get(&mut client, &serial).await;
    assert_eq!((found.form.as_str(), found.key.as_str()), ("ssh", key.as_str()));
    assert_eq!(get(&mut client, &key).await, found);
    let tls = own.iter().find(|one| one.form == "x509").unwrap();
    let colons: Vec<&str> = (0..32).map(|at| tls.fingerprint.get(2 * at..2 * at + 2).unwrap()).collect();
    assert_eq!(get(&mut client, &colons.join(":").to_uppercase()).await, *tls);
    let status = client.get_certificate(v1::GetCertificateRequest { id: "17".to_owned() }).await.unwrap_err();
    assert!(status.code() == Code::NotFound && status.message().contains("admin certs ls"), "{status:?}");

    let all = list(&mut client, v1::ListCertificatesRequest::default()).await;
    let hosts: BTreeSet<&str> =
        all.iter().filter(|one| one.kind == "host").map(|one| one.subject.as_str()).collect();
    assert!(hosts.contains("web-1") && hosts.len() >= 2, "{hosts:?}");
    assert!(
        all.windows(2)
            .all(|pair| pair[0].issued.as_ref().unwrap().seconds >= pair[1].issued.as_ref().unwrap().seconds)
    );
    let asked = |change: fn(&mut v1::ListCertificatesRequest)| {
        let mut asked = v1::ListCertificatesRequest::default();
        change(&mut asked);
        asked
    };
    let hosts = list(&mut client, asked(|asked| asked.kind = "host".to_owned())).await;
    assert!(!hosts.is_empty() && hosts.len() + 2 == all.len());
    assert_eq!(list(&mut client, asked(|asked| asked.signed_by = "user".to_owned())).await, own);
    let key =
        v1::ListCertificatesRequest { signed_by: own[0].signing_key[..20].to_owned(), ..Default::default() };
    assert_eq!(list(&mut client, key).await, own[..1]);
    assert_eq!(list(&mut client, asked(|asked| asked.valid = true)).await, all);
    assert!(list(&mut client, asked(|asked| asked.denied = true)).await.is_empty());
    let some = client.list_certificates(asked(|asked| asked.limit = 1)).await.unwrap().into_inner();
    assert!(some.more && some.certificates == all[..1]);
    let status = client.list_certificates(asked(|asked| asked.kind = "cat".to_owned())).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_user_is_cut_off_within_seconds_and_may_log_in_anew() {
    let cluster = Cluster::all_in_one().await;
    let mut client = client(&cluster).await;
    let login = os_login();
    let stolen = cluster.user("alice", &[&login]).await;
    let pin = pin(&mut cluster.admin().await).await;
    let kept = log_in(&cluster.proxy(), &pin, "alice", None).await.unwrap();
    let (stolen_live, kept_live) = (stolen.ssh("web-1", &login).await, kept.ssh("web-1", &login).await);
    let request = || SessionRequest::exec("echo ready; sleep 120");
    let mut cut = stolen_live.start(request()).await.unwrap();
    let mut goes_on = kept_live.start(request()).await.unwrap();
    for session in [&mut cut, &mut goes_on] {
        while session.next().await != Some(Output::Stdout("ready\n".into())) {}
    }
    let authority = stolen.authority().await;

    let (serial, _) = as_printed(&stolen);
    let began = Instant::now();
    let denied = deny(&mut client, &serial).await;
    assert_eq!(denied.certificates.len(), 2, "both of the login: {denied:?}");
    assert!(denied.lock.starts_with("login-"));
    let ended = tokio::time::timeout(PATIENCE, async {
        loop {
            match cut.next().await {
                Some(Output::Exit(exit)) => return Some(exit),
                None => return None,
                _ => {}
            }
        }
    });
    assert!(!matches!(ended.await.expect("the session is cut"), Some(Exit::Status(0))));
    assert!(began.elapsed() < PATIENCE / 2, "within seconds, not {:?}", began.elapsed());

    let status = stolen.open("web-1", &login).await.err().unwrap();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    assert!(status.message().contains("the laptop was stolen"), "{status:?}");
    // A connection from before is no way round, and neither is stock SSH through the jump host.
    let mut old = sallyport_wire::v1::cluster_client::ClusterClient::new(authority);
    let status = old.list_nodes(v1::ListNodesRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");

    // The same person with another login is who they are, and goes on.
    assert_eq!(kept.run("web-1", &login, "echo still in").await.0, "still in\n");
    let again = log_in(&cluster.proxy(), &pin, "alice", None).await.unwrap();
    assert_eq!(again.run("web-1", &login, "echo in").await.0, "in\n");
    drop(goes_on);

    let gone = get(&mut client, &serial).await.denied.unwrap();
    assert_eq!((gone.by.as_str(), gone.reason.as_str()), ("@local", "the laptop was stolen"));
    let listed = list(&mut client, v1::ListCertificatesRequest { valid: true, ..about("alice") }).await;
    assert_eq!(listed.len(), 4, "two logins of three");
    let mut admin = cluster.admin().await;
    let export = v1::ExportCaRequest { kind: "user".to_owned(), format: "krl".to_owned() };
    let krl = admin.export_ca(export).await.unwrap().into_inner().data;
    let number: u64 = serial.parse().unwrap();
    assert!(krl.starts_with(b"SSHKRL\n\0") && krl.windows(8).any(|bytes| bytes == number.to_be_bytes()));
    let again =
        client.deny_certificate(v1::DenyCertificateRequest { id: serial, reason: " ".to_owned() }).await;
    assert_eq!(again.unwrap_err().code(), Code::InvalidArgument, "a reason is needed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_host_is_cut_off_and_stays_out() {
    // The node joins with a token, as others do: the one in the authority's process begins anew by itself.
    let cluster = Cluster::without_node().await;
    let mut client = client(&cluster).await;
    let login = os_login();
    let alice = cluster.user("alice", &[&login]).await;
    let (token, pin) = support::token(&mut cluster.admin().await, "node").await;
    let mut config = support::config(&cluster.directory.path().join("node"));
    config.node = Some(sallyport_server::config::NodeSection {
        proxy_server: Some(cluster.proxy()),
        join: support::join(&token, &pin),
        ..node_section("web-1")
    });
    let node = sallyport_server::start(config).await.unwrap();
    node.ready(PATIENCE).await.unwrap();
    let live = alice.ssh("web-1", &login).await;
    let mut session = live.start(SessionRequest::exec("echo ready; sleep 120")).await.unwrap();
    while session.next().await != Some(Output::Stdout("ready\n".into())) {}

    let certificates = list(&mut client, about("web-1")).await;
    let began = Instant::now();
    let denied = deny(&mut client, &certificates[0].fingerprint).await;
    assert_eq!(denied.certificates.len(), certificates.len());
    let ended = tokio::time::timeout(PATIENCE, async { while session.next().await.is_some() {} }).await;
    ended.expect("the session is cut with the node's tunnel");
    assert!(began.elapsed() < PATIENCE / 2, "within seconds, not {:?}", began.elapsed());
    let status = alice.open("web-1", &login).await.err().unwrap();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    // It dials again and is turned away, and so are its calls.
    let mut admin = cluster.admin().await;
    let refused = v1::SearchEventsRequest { code: "SP3001W".to_owned(), ..Default::default() };
    support::until("a refusal of the node's calls", || {
        let (mut admin, refused) = (admin.clone(), refused.clone());
        async move {
            let mut found = admin.search_events(refused).await.unwrap().into_inner();
            while let Some(record) = found.message().await.unwrap() {
                if record.event_json.contains("node:web-1") {
                    return Some(());
                }
            }
            None
        }
    })
    .await;
    let status = alice.open("web-1", &login).await.err().unwrap();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    // Lifting the lock lets it in again.
    let name = denied.lock;
    admin.delete_resource(v1::DeleteResourceRequest { kind: "lock".to_owned(), name }).await.unwrap();
    support::until("the node to come back", || async { alice.open("web-1", &login).await.ok() }).await;
    node.shutdown(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_made_by_hand_is_what_it_should_be() {
    let cluster = Cluster::start(|config| {
        let public = "proxy.example.net:443".parse().unwrap();
        config.proxy =
            Some(sallyport_server::config::ProxySection { public_addr: vec![public], ..proxy_section() });
        config.node = Some(node_section("web-1"));
        let lifetimes = &mut config.auth.as_mut().unwrap().lifetimes;
        let change = Change { max: Some(time::Duration::days(10)), ..Change::default() };
        lifetimes.change(CertificateKind::DatabaseServer, change).unwrap();
    })
    .await;
    cluster.running.ready(PATIENCE).await.unwrap();
    let mut client = client(&cluster).await;
    let (mut admin, mut signing) = (cluster.admin().await, client.clone());
    let yaml = support::role("dev", &["root"]);
    admin.create_resource(v1::CreateResourceRequest { yaml, replace: false }).await.unwrap();
    let user = v1::CreateUserRequest {
        name: "alice".to_owned(),
        roles: vec!["dev".to_owned()],
        ..Default::default()
    };
    admin.create_user(user).await.unwrap();

    let mut sign = async |kind: &str, subject: &str, names: &[&str]| {
        let asked = v1::SignCertificateRequest {
            kind: kind.to_owned(),
            subject: subject.to_owned(),
            names: names.iter().map(ToString::to_string).collect(),
            ssh_public_key: line(),
            tls_public_key: spki(),
            ttl: None,
        };
        signing.sign_certificate(asked).await.map(tonic::Response::into_inner)
    };
    let db = sign("database_server", "", &["db.example.net", "10.0.0.5"]).await.unwrap();
    assert_eq!(db.issued[0].names, ["db.example.net", "10.0.0.5"]);
    assert!(
        db.tls_certificate_pem.starts_with("-----BEGIN CERTIFICATE-----") && db.ssh_certificate.is_empty()
    );
    let trust = || cluster.running.authority().unwrap().trust();
    assert_eq!(db.ca_certificates_pem, trust().public_keys(CaKind::Db).tls);
    assert_eq!(db.peer_certificates_pem, trust().public_keys(CaKind::DbClient).tls);
    let days = |made: &v1::SignCertificateResponse| {
        (made.valid_until.as_ref().unwrap().seconds - time::OffsetDateTime::now_utc().unix_timestamp()
            + 3_600)
            / 86_400
    };
    assert_eq!(days(&db), 10, "the configuration bounds it");
    let agent = sign("agent-to-database", "app", &[]).await.unwrap();
    assert_eq!(
        (agent.issued[0].kind.as_str(), agent.issued[0].subject.as_str()),
        ("agent_to_database", "app")
    );
    assert_eq!(agent.peer_certificates_pem, db.ca_certificates_pem);
    let host = sign("openssh_host", "", &["git.example.net"]).await.unwrap();
    assert_eq!(host.peer_ssh_keys, trust().public_keys(CaKind::Openssh).ssh);
    assert!(host.ssh_certificate.contains("-cert-v01@openssh.com "));
    let stock = sign("openssh_user", "alice", &[]).await.unwrap();
    assert_eq!(
        (stock.issued[0].signed_by.as_str(), stock.issued[0].names.as_slice()),
        ("openssh", &["root".to_owned()][..])
    );
    let person = sign("user", "alice", &[]).await.unwrap();
    assert_eq!(person.issued.len(), 2);
    let svid = sign("svid", "/ns/prod/web", &[]).await.unwrap();
    assert_eq!(svid.issued[0].subject, format!("spiffe://{}/ns/prod/web", support::CLUSTER));
    let token = sign("jwt", "alice", &["grafana"]).await.unwrap().token;
    let said = claims(&token);
    assert_eq!(
        (said["iss"].as_str(), said["sub"].as_str()),
        (Some("https://proxy.example.net"), Some("alice"))
    );
    assert_eq!((said["aud"].as_str(), said["roles"][0].as_str()), (Some("grafana"), Some("dev")));
    let token = sign("jwt_svid", &svid.issued[0].subject, &["db"]).await.unwrap().token;
    assert_eq!(claims(&token)["sub"].as_str(), Some(svid.issued[0].subject.as_str()));
    let token = sign("oidc", "system:auth", &["sts.amazonaws.com"]).await.unwrap().token;
    assert_eq!(claims(&token)["iss"].as_str(), Some("https://proxy.example.net"));
    // All of it is on the list, under who had it made.
    let made = list(&mut client, v1::ListCertificatesRequest::default()).await;
    let by_hand = made.iter().filter(|one| one.issued_to == "@local" && one.kind != "host").count();
    assert_eq!(by_hand, 10, "{made:?}");

    for (kind, subject, names, says) in [
        ("database_server", "", &["proxy.example.net"][..], "is a name of the proxy"),
        ("database_server", "", &["*.example.net"], "is a name of the proxy"),
        ("database_server", "", &["auth.test.example.sallyport.internal"], "given out by role"),
        ("database_server", "", &[], "at least one name"),
        ("openssh_host", "", &["web-1"], "is a name of the node web-1"),
        ("openssh_host", "", &["web-1.test.example"], "is a name of the node web-1"),
        ("openssh_host", "", &["localhost"], "every machine"),
        ("agent_to_database", "a/CN=b", &[], "could be taken for another name"),
        ("svid", "spiffe://elsewhere/web", &[], "another trust domain"),
        ("jwt", "alice", &[], "names no audience"),
        ("jwt", "bob", &["x"], "there is no user bob"),
        ("user", "", &[], "is empty"),
        ("oidc", "spiffe://test.example/web", &["x"], "spiffe CA alone"),
        ("host", "web-1", &[], "not made by hand"),
        ("cat", "", &[], "there is no kind of certificate \"cat\""),
    ] {
        let status = sign(kind, subject, names).await.unwrap_err();
        assert!(status.message().contains(says), "{kind} {subject} {names:?}: {status:?}");
    }
    let long = v1::SignCertificateRequest {
        kind: "database_server".to_owned(),
        names: vec!["db.example.net".to_owned()],
        tls_public_key: spki(),
        ttl: Some(sallyport_wire::convert::duration_to_proto(Duration::from_secs(11 * 86_400))),
        ..Default::default()
    };
    let status = client.sign_certificate(long).await.unwrap_err();
    assert!(status.message().contains("60 to 864000 s are possible"), "{status:?}");

    // Denying what third parties verify puts it on their list.
    let denied = deny(&mut client, &db.issued[0].serial).await;
    assert_eq!((denied.lock.as_str(), denied.certificates.len()), ("", 1));
    let export = v1::ExportCaRequest { kind: "db".to_owned(), format: "crl".to_owned() };
    let crl = admin.export_ca(export).await.unwrap().into_inner().text;
    let der = data_encoding::BASE64
        .decode(crl.lines().filter(|line| !line.starts_with('-')).collect::<String>().as_bytes())
        .unwrap();
    let serial = data_encoding::HEXLOWER.decode(db.issued[0].serial.as_bytes()).unwrap();
    assert!(der.windows(serial.len()).any(|bytes| bytes == serial), "{crl}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_authority_is_exported_in_its_formats() {
    let cluster = Cluster::without_node().await;
    let mut admin = cluster.admin().await;
    let formats: [(CaKind, &[&str]); 8] = [
        (CaKind::User, &["openssh", "tls", "krl"]),
        (CaKind::Host, &["openssh", "known_hosts", "tls", "krl"]),
        (CaKind::Db, &["tls", "crl"]),
        (CaKind::DbClient, &["tls", "crl"]),
        (CaKind::Openssh, &["openssh", "krl"]),
        (CaKind::Jwt, &["jwks"]),
        (CaKind::OidcIdp, &["jwks"]),
        (CaKind::Spiffe, &["tls", "jwks", "spiffe", "crl"]),
    ];
    for (kind, has) in formats {
        for format in ["openssh", "known_hosts", "tls", "jwks", "spiffe", "crl", "krl"] {
            let asked = v1::ExportCaRequest { kind: kind.name().to_owned(), format: format.to_owned() };
            match admin.export_ca(asked).await {
                Ok(answer) => {
                    let v1::ExportCaResponse { text, data } = answer.into_inner();
                    assert!(has.contains(&format), "{kind} has no {format}");
                    let begins = match format {
                        "openssh" => text.starts_with("ssh-") || text.starts_with("ecdsa-"),
                        "known_hosts" => text.starts_with("@cert-authority *.test.example,test.example "),
                        "tls" => text.starts_with("-----BEGIN CERTIFICATE-----"),
                        "crl" => text.starts_with("-----BEGIN X509 CRL-----"),
                        "jwks" => text.starts_with("{\"keys\":[{"),
                        "spiffe" => {
                            text.contains("\"use\":\"x509-svid\"") && text.contains("\"use\":\"jwt-svid\"")
                        }
                        _ => data.starts_with(b"SSHKRL\n\0"),
                    };
                    assert!(begins, "{kind} {format}: {text}");
                }
                Err(status) => {
                    assert!(!has.contains(&format), "{kind} {format}: {status:?}");
                    assert!(status.message().contains("expected"), "{status:?}");
                }
            }
        }
        let asked = v1::ExportCaRequest { kind: kind.name().to_owned(), format: String::new() };
        let first = admin.export_ca(asked).await.unwrap().into_inner().text;
        assert!(!first.is_empty(), "{kind}");
    }
    let unknown = v1::ExportCaRequest { kind: "cat".to_owned(), format: String::new() };
    assert!(admin.export_ca(unknown).await.unwrap_err().message().contains("oidc_idp"));
}
