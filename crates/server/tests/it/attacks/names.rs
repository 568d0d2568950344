//! A host that wants to be taken for another: by its names, at the join and at every renewal.

use std::time::Duration;

use sallyport_access::HostId;
use sallyport_wire::v1;
use sallyport_wire::v1::cluster_client::ClusterClient;
use time::OffsetDateTime;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tonic::Code;

use crate::support::member::{Joining, principals};
use crate::support::{Cluster, PATIENCE, admin_channel, events, is, os_login, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_host_renews_for_no_name_but_its_own() {
    let cluster = Cluster::without_node().await;
    let web = Joining::new("node", "web-1").join(&cluster).await.unwrap();
    let gate = Joining::new("proxy", "gate").reached_by(&["gate.example", "192.0.2.7"]);
    let gate = gate.join(&cluster).await.unwrap();
    assert!(principals(&gate.issued).contains(&"gate.example".to_owned()));

    let stolen = ["web-1", web.id.as_str(), "db-1.test.example", "WEB-1.test.example.", "other.example"];
    for (host, own) in [(&gate, true), (&web, false)] {
        let wanted: Vec<&str> = stolen.into_iter().chain(["Gate.Example.", "192.0.2.7"]).collect();
        let issued = host.renew(&wanted).await.unwrap();
        let names = principals(&issued);
        if own {
            assert!(stolen.iter().all(|name| !names.contains(&(*name).to_owned())), "{names:?}");
            assert!(!names.iter().any(|name| name.contains("web-1") || name.contains("db-1")), "{names:?}");
            assert!(names.contains(&"gate.example".to_owned()), "{names:?}");
            assert_eq!(issued.refused_names, stolen);
        } else {
            assert_eq!(names, principals(&web.issued));
        }
        // In TLS, too.
        let trust = cluster.running.authority().unwrap().trust();
        let leaf = CertificateDer::from_pem_slice(issued.tls_certificate_pem.as_bytes()).unwrap();
        assert!(trust.identify_tls(&leaf, OffsetDateTime::now_utc()).is_ok());
        let text = String::from_utf8_lossy(&leaf).into_owned();
        assert!(!text.contains("db-1.test.example") && !text.contains("other.example"));
    }
    // A host may leave names out, and has them again when it wants them.
    let fewer = principals(&gate.renew(&["192.0.2.7"]).await.unwrap());
    assert!(!fewer.contains(&"gate.example".to_owned()) && fewer.contains(&"192.0.2.7".to_owned()));
    assert_eq!(
        principals(&gate.renew(&["gate.example", "192.0.2.7"]).await.unwrap()),
        principals(&gate.issued)
    );
    let told = events(&mut cluster.admin().await, "SP1101I").await;
    assert!(told.iter().any(|event| event["fields"]["names_refused"][0] == "web-1"), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_name_is_a_name_of_another_host() {
    let cluster = Cluster::without_node().await;
    let web = Joining::new("node", "web-1").join(&cluster).await.unwrap();
    let db = Joining::new("openssh", "db-1").at("192.0.2.9:22").reached_by(&["pg.example"]);
    db.join(&cluster).await.unwrap();
    let gate = Joining::new("proxy", "gate").reached_by(&["gate.example", "gate-2.test.example"]);
    gate.join(&cluster).await.unwrap();
    let id = HostId::new().to_string();
    let named = [
        ("node", "web-1", &[][..]),
        ("openssh", "web-1", &[]),
        ("proxy", "web-1", &[]),
        ("node", "web-1.test.example", &[]),
        ("node", "anything.test.example", &[]),
        ("node", "test.example", &[]),
        ("node", "web-1.", &[]),
        ("node", "WEB-1", &[]),
        ("node", "web..1", &[]),
        ("node", "web-1-", &[]),
        ("node", "localhost", &[]),
        ("node", "192.0.2.1", &[]),
        ("node", &web.id, &[]),
        ("node", &id, &[]),
        ("proxy", &id, &[]),
        ("node", "auth.test.example.sallyport.internal", &[]),
        ("proxy", "sallyport.internal", &[]),
        ("node", "pg.example", &[]),
        ("node", "gate.example", &[]),
        ("node", "gate-2", &[]),
        ("node", "gate", &[]),
        ("proxy", "edge", &["web-1"]),
        ("proxy", "edge", &["Web-1.Test.Example."]),
        ("proxy", "edge", &[&web.id]),
        ("proxy", "edge", &["pg.example"]),
        ("proxy", "edge", &["proxy.test.example.sallyport.internal"]),
        ("openssh", "db-2", &["web-1"]),
        ("openssh", "db-2", &["db-1.test.example"]),
        ("openssh", "db-2", &["PG.example."]),
        ("openssh", "db-2", &["gate.example"]),
        ("openssh", "db-2", &["gate.test.example"]),
    ];
    for (role, name, public) in named {
        let joining = Joining::new(role, name).reached_by(public).at("192.0.2.10:22");
        let refused = joining.join(&cluster).await.err();
        let refused = refused.unwrap_or_else(|| panic!("{role} {name} {public:?} has joined"));
        assert!(matches!(refused.code(), Code::AlreadyExists | Code::InvalidArgument), "{name}: {refused:?}");
    }
    let told = events(&mut cluster.admin().await, "SP1300W").await;
    // One by one up to so many in a minute, of one caller; the rest is a count.
    assert!(told.len() >= 20, "{} are on record", told.len());

    // Nor as an administrator writes it.
    let mut admin = cluster.admin().await;
    for (name, names) in [("web-1.test.example", ""), ("db-3", "web-1"), ("db-3", id.as_str()), ("gate", "")]
    {
        let yaml = format!(
            "kind: node\nsub_kind: openssh\nversion: v1\nmetadata: {{name: {name}}}\nspec: {{address: 192.0.2.4, \
             names: ['{names}']}}\n"
        )
        .replace(", names: ['']", "");
        let refused = admin.create_resource(v1::CreateResourceRequest { yaml, replace: true }).await;
        assert!(refused.is_err(), "{name} {names}");
    }
    // Two that come at once under one name: one of them has it.
    let both =
        [Joining::new("node", "late"), Joining::new("node", "late")].map(|joining| joining.join(&cluster));
    let [one, other] = both;
    let (one, other) = tokio::join!(one, other);
    assert_eq!([one.is_ok(), other.is_ok()].into_iter().filter(|joined| *joined).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_bounds_names_and_labels() {
    let cluster = Cluster::without_node().await;
    let bounded = |name: &str| {
        let mut joining = Joining::new("node", name);
        joining.token.names = vec!["web-*".to_owned()];
        joining.token.labels = [("env".to_owned(), "prod".to_owned())].into();
        joining.token.own_labels = [("team".to_owned(), "shop*".to_owned())].into();
        joining
    };
    let token = bounded("db-1").token(&cluster).await.unwrap();
    let refused = bounded("db-1").join_with(&cluster, &token).await.err().unwrap();
    assert!(is(&refused, Code::PermissionDenied, "hosts called web-*, not db-1"), "{refused:?}");
    let web = bounded("web-1").join_with(&cluster, &token).await.unwrap();
    let labels = [("env", "dev"), ("team", "shop-2"), ("tier", "1"), ("host/os", "linux")];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let beat = v1::HeartbeatRequest { labels: labels.into(), ..Default::default() };
    let told = web.beat(beat).await.unwrap();
    assert!(told.len() == 2 && told.iter().any(|problem| problem.contains("tier=1")), "{told:?}");
    let mut client = ClusterClient::new(admin_channel(&cluster.data_dir()).await);
    let nodes = client.list_nodes(v1::ListNodesRequest::default()).await.unwrap().into_inner().nodes;
    let labels: std::collections::BTreeMap<_, _> = nodes[0].labels.clone().into_iter().collect();
    let labels: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(labels, ["env=prod", "host/os=linux", "team=shop-2"]);

    let mut gate = Joining::new("proxy", "web-gate").reached_by(&["ssh.example"]);
    gate.token.names = vec!["web-*".to_owned()];
    let refused = gate.join(&cluster).await.err().unwrap();
    assert!(is(&refused, Code::PermissionDenied, "not ssh.example"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_comes_back_only_by_a_token_that_replaces() {
    let cluster = Cluster::without_node().await;
    let old = Joining::new("node", "web-1").join(&cluster).await.unwrap();
    let refused = Joining::new("node", "web-1").join(&cluster).await.err().unwrap();
    let advice = format!("--replace {}", old.id);
    assert!(is(&refused, Code::AlreadyExists, &advice), "{refused:?}");
    // The token is for that one name, and for one host.
    let refused = Joining::new("node", "nobody").replacing("nobody").token(&cluster).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound, "{refused:?}");
    let refused = Joining::new("node", "web-2").replacing("web-1").join(&cluster).await.err().unwrap();
    assert!(is(&refused, Code::PermissionDenied, "to replace web-1"), "{refused:?}");
    let new = Joining::new("node", "web-1").replacing("web-1").join(&cluster).await.unwrap();
    assert_ne!(new.id, old.id);
    assert!(principals(&new.issued).contains(&"web-1".to_owned()));

    // The old one is locked from this moment, and is on record.
    let refused = old.renew(&[]).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    let refused = old.beat(v1::HeartbeatRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    new.beat(v1::HeartbeatRequest::default()).await.unwrap();
    let told = events(&mut cluster.admin().await, "SP1303I").await;
    assert_eq!(told[0]["fields"]["replaced_host_id"], old.id.as_str());
    let nodes = ClusterClient::new(admin_channel(&cluster.data_dir()).await)
        .list_nodes(v1::ListNodesRequest::default())
        .await
        .unwrap()
        .into_inner()
        .nodes;
    assert_eq!(nodes.iter().map(|node| node.id.as_str()).collect::<Vec<_>>(), [new.id.as_str()]);

    // What the token of the old one fixed and allowed, the new one has, where its own token says nothing of it.
    let mut bounded = Joining::new("node", "db-1");
    bounded.token.labels = [("zone".to_owned(), "secret".to_owned())].into();
    bounded.token.own_labels_bounded = true;
    bounded.token.databases = vec!["orders".to_owned()];
    bounded.join(&cluster).await.unwrap();
    let token = Joining::new("node", "db-1").replacing("db-1").token(&cluster).await.unwrap();
    let get = v1::GetResourceRequest { kind: "token".to_owned(), name: token[..8].to_owned() };
    let yaml = cluster.admin().await.get_resource(get).await.unwrap().into_inner().yaml;
    for kept in ["zone: secret", "own_labels: {}", "orders"] {
        assert!(yaml.contains(kept), "{kept}: {yaml}");
    }
    // The log says what the new token gives, whether the request or the old one said so.
    let made = events(&mut cluster.admin().await, "SP1220I").await;
    let made = made.iter().find(|event| event["fields"]["name"] == token[..8]).unwrap();
    assert_eq!(made["fields"]["labels"], serde_json::json!(["zone=secret"]), "{made}");
    assert_eq!(made["fields"]["own_labels"], serde_json::json!([]), "{made}");
    assert_eq!(made["fields"]["databases"], serde_json::json!(["orders"]), "{made}");
    let expires = yaml.lines().find(|line| line.contains("expires:")).unwrap();
    assert!(!expires.contains('.'), "a time for people has whole seconds: {expires}");
    let mut other = Joining::new("node", "db-1").replacing("db-1");
    other.token.labels = [("zone".to_owned(), "open".to_owned())].into();
    let token = other.token(&cluster).await.unwrap();
    let get = v1::GetResourceRequest { kind: "token".to_owned(), name: token[..8].to_owned() };
    let yaml = cluster.admin().await.get_resource(get).await.unwrap().into_inner().yaml;
    assert!(yaml.contains("zone: open") && !yaml.contains("secret"), "what the token says counts: {yaml}");

    // An administrator releases a name by removing its host, a proxy's as well.
    let gate = Joining::new("proxy", "gate").reached_by(&["gate.example"]).join(&cluster).await.unwrap();
    assert!(Joining::new("node", "gate").join(&cluster).await.is_err());
    let remove = v1::DeleteResourceRequest { kind: "node".to_owned(), name: gate.id.clone() };
    cluster.admin().await.delete_resource(remove).await.unwrap();
    Joining::new("node", "gate").join(&cluster).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stands_before_the_cluster_is_meant_first() {
    let cluster = Cluster::all_in_one().await;
    let alice = cluster.user("alice", &[&os_login()]).await;
    for target in ["web-1.test.example", "web-1.test.example.", "WEB-1"] {
        let opened = until("the node", || async { alice.open(target, &os_login()).await.ok() });
        let opened = tokio::time::timeout(PATIENCE + Duration::from_secs(5), opened).await.unwrap();
        drop(opened);
    }
    assert!(Joining::new("node", "web-1.test.example").join(&cluster).await.is_err());
}
