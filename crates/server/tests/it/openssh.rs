//! What the authority gives, and refuses, for stock OpenSSH servers: to those that join, and to proxies before them.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use crate::support;
use crate::support::{Cluster, authority_as, events, pinned};
use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_sal::Suite;
use sallyport_wire::v1;
use sallyport_wire::v1::fleet_client::FleetClient;
use sallyport_wire::v1::login_client::LoginClient;
use tonic::transport::Channel;
use tonic::{Code, Status};

/// What a member joins with.
struct Joining {
    role: &'static str,
    name: &'static str,
    address: &'static str,
    names: Vec<String>,
    key: String,
    trust: &'static str,
}

impl Joining {
    fn new(role: &'static str, name: &'static str, address: &'static str) -> Self {
        let key = SshKeyPair::generate(Suite::BalancedV1, name).unwrap().public_line().to_owned();
        Self { role, name, address, names: Vec::new(), key, trust: "" }
    }

    async fn join(self, cluster: &Cluster) -> Result<Member, Status> {
        let mut admin = cluster.admin().await;
        let token = support::token(&mut admin, self.role).await;
        self.join_with(cluster, token).await
    }

    async fn join_with(self, cluster: &Cluster, (token, pin): (String, String)) -> Result<Member, Status> {
        let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
        let request = v1::JoinRequest {
            token,
            name: self.name.to_owned(),
            role: self.role.to_owned(),
            ssh_public_key: self.key,
            tls_public_key: tls.spki_der().to_vec().into(),
            public_names: self.names,
            address: self.address.to_owned(),
            via: String::new(),
            trust: self.trust.to_owned(),
            cluster: String::new(),
        };
        let mut login = LoginClient::new(pinned(&cluster.proxy(), &pin).await);
        let issued = login.join(request).await?.into_inner();
        let trust = cluster.running.authority().unwrap().trust();
        let chain = issued.tls_certificate_pem;
        let channel = authority_as(&cluster.proxy(), &trust, &chain, &tls.pkcs8_pem()).await;
        Ok(Member { id: issued.host_id, fleet: FleetClient::new(channel) })
    }
}

struct Member {
    id: String,
    fleet: FleetClient<Channel>,
}

async fn register(cluster: &Cluster, name: &str, more: &str) {
    let yaml = format!(
        "kind: node\nsub_kind: openssh\nversion: v1\nmetadata: {{name: {name}}}\nspec:\n  address: 10.0.0.5\n{more}"
    );
    let mut admin = cluster.admin().await;
    admin.create_resource(v1::CreateResourceRequest { yaml, replace: false }).await.unwrap();
}

fn code(result: Result<Member, Status>) -> (Code, String) {
    let status = result.err().expect("a refusal");
    (status.code(), status.message().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_not_the_right_to_another_servers_place() {
    let cluster = Cluster::without_node().await;
    let pinned = SshKeyPair::generate(Suite::BalancedV1, "x").unwrap();
    register(&cluster, "db-1", &format!("  host_key: {}\n", pinned.public_line())).await;
    register(&cluster, "db-2", "").await;

    let (refused, text) = code(Joining::new("openssh", "db-1", "").join(&cluster).await);
    assert_eq!(refused, Code::PermissionDenied, "{text}");
    assert!(text.contains("another host key"), "{text}");
    let (refused, text) = code(Joining::new("openssh", "db-2", "10.9.9.9:22").join(&cluster).await);
    assert_eq!(refused, Code::PermissionDenied, "{text}");
    assert!(text.contains("registered at 10.0.0.5:22"), "{text}");
    Joining::new("openssh", "db-2", "10.0.0.5").join(&cluster).await.unwrap();
    let (refused, text) = code(Joining::new("openssh", "db-2", "10.0.0.5:22").join(&cluster).await);
    assert_eq!(refused, Code::AlreadyExists, "{text}");
    let other = Joining { trust: "user", ..Joining::new("openssh", "db-4", "") };
    register(&cluster, "db-4", "").await;
    let (refused, text) = code(other.join(&cluster).await);
    assert_eq!(refused, Code::PermissionDenied, "{text}");
    assert!(text.contains("registered with trust: openssh"), "{text}");
    let (refused, text) = code(Joining::new("openssh", "db-3", "").join(&cluster).await);
    assert_eq!(refused, Code::InvalidArgument, "{text}");
    assert!(text.contains("--address"), "{text}");
    // No name of another host, neither as its own nor besides.
    let proxy = Joining { names: vec!["gate.example.com".to_owned()], ..Joining::new("proxy", "gate", "") };
    proxy.join(&cluster).await.unwrap();
    for names in [vec!["gate.example.com".to_owned()], vec!["db-2".to_owned()]] {
        let taking = Joining { names, ..Joining::new("openssh", "db-3", "10.0.0.6:22") };
        let (refused, text) = code(taking.join(&cluster).await);
        assert_eq!(refused, Code::AlreadyExists, "{text}");
    }
    // A token for a node is none for a server.
    let mut admin = cluster.admin().await;
    assert_eq!(events(&mut admin, "SP1300I").await.iter().filter(|e| e["node"] == "db-2").count(), 1);
    assert!(events(&mut admin, "SP1300W").await.len() >= 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_join_does_not_spend_its_token() {
    let cluster = Cluster::without_node().await;
    let pinned = SshKeyPair::generate(Suite::BalancedV1, "x").unwrap().public_line().to_owned();
    register(&cluster, "db-1", &format!("  host_key: {pinned}\n")).await;
    let token = support::token(&mut cluster.admin().await, "openssh").await;

    let weak = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQC7".to_owned();
    let of = |name, address| Joining::new("openssh", name, address);
    let mistakes = [
        (of("db-1", ""), "another host key"),
        (Joining { key: pinned.clone(), ..of("db-1", "10.9.9.9:22") }, "registered at"),
        (Joining { key: pinned.clone(), trust: "user", ..of("db-1", "") }, "registered with trust"),
        (of("db-2", ""), "--address"),
        (of("db-2", "127.0.0.1:22"), "only an administrator"),
        (Joining { key: weak, ..of("db-2", "10.0.0.6:22") }, "key"),
    ];
    for (mistake, said) in mistakes {
        let (_, text) = code(mistake.join_with(&cluster, token.clone()).await);
        assert!(text.contains(said), "{said}: {text}");
    }
    // Without a token that is known, nothing is told of what is registered.
    let stranger = of("db-1", "").join_with(&cluster, ("no-token".to_owned(), token.1.clone())).await;
    assert!(code(stranger).1.contains("this token is not known"));
    let right = Joining { key: pinned, ..of("db-1", "") };
    right.join_with(&cluster, token).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_may_renew_and_little_else() {
    let cluster = Cluster::without_node().await;
    let mut server = Joining::new("openssh", "db-1", "10.0.0.5:22").join(&cluster).await.unwrap();
    let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
    let ssh = SshKeyPair::generate(Suite::BalancedV1, "db-1").unwrap();
    let renew = v1::RenewHostRequest {
        ssh_public_key: ssh.public_line().to_owned(),
        tls_public_key: tls.spki_der().to_vec().into(),
        public_names: Vec::new(),
    };
    let issued = server.fleet.renew_host(renew).await.unwrap().into_inner();
    assert!(issued.trust.unwrap().others.contains_key("openssh"), "it learns the openssh CA");
    let trust = v1::WatchRequest { kinds: vec!["trust".to_owned()] };
    server.fleet.watch(trust).await.unwrap();
    for kind in ["role", "lock", "node"] {
        let status = server.fleet.watch(v1::WatchRequest { kinds: vec![kind.to_owned()] }).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{kind}: {status:?}");
    }
    let status = server.fleet.heartbeat(v1::HeartbeatRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    let status = server.fleet.emit_events(v1::EmitEventsRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    let ask =
        v1::CertifyTargetRequest { node_id: server.id.clone(), ssh_public_key: ssh.public_line().to_owned() };
    let status = server.fleet.certify_target(ask).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn proxies_get_certificates_for_users_who_are_let_in_and_no_others() {
    let cluster = Cluster::without_node().await;
    let server = Joining::new("openssh", "db-1", "10.0.0.5:22").join(&cluster).await.unwrap();
    let node = Joining::new("node", "web-1", "").join(&cluster).await.unwrap();
    let mut proxy = Joining::new("proxy", "gate", "").join(&cluster).await.unwrap();
    let alice = cluster.user("alice", &["deploy"]).await;
    let key = SshKeyPair::generate(Suite::BalancedV1, "proxy").unwrap().public_line().to_owned();

    let target = |id: &str| v1::CertifyTargetRequest { node_id: id.to_owned(), ssh_public_key: key.clone() };
    let issued = proxy.fleet.certify_target(target(&server.id)).await.unwrap().into_inner();
    let certificate = sallyport_ca::keys::certificate(&issued.ssh_certificate).unwrap();
    assert!(certificate.valid_principals().contains(&"db-1".to_owned()));
    // A proxy stands before no node that has an agent.
    for id in [node.id.as_str(), proxy.id.clone().as_str(), "nonsense"] {
        assert!(proxy.fleet.certify_target(target(id)).await.is_err(), "{id}");
    }

    let ask = |login: &str, certificate: &str| v1::CertifyForTargetRequest {
        node_id: server.id.clone(),
        login: login.to_owned(),
        user_certificate: certificate.to_owned(),
        ssh_public_key: key.clone(),
        word: None,
    };
    let own = alice.ssh_certificate.as_str();
    let issued = proxy.fleet.certify_for_target(ask("deploy", own)).await.unwrap().into_inner();
    let certificate = sallyport_ca::keys::certificate(&issued.ssh_certificate).unwrap();
    assert_eq!(certificate.valid_principals(), ["deploy".to_owned()]);
    assert!(certificate.valid_before() - certificate.valid_after() <= 7 * 60, "it is short-lived");
    let status = proxy.fleet.certify_for_target(ask("root", own)).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    // What is no certificate of a user of this cluster.
    for shown in [certificate.to_openssh().unwrap().as_str(), "nonsense", key.as_str()] {
        assert!(proxy.fleet.certify_for_target(ask("deploy", shown)).await.is_err(), "{shown}");
    }
    let mut node = node;
    let status = node.fleet.certify_for_target(ask("deploy", own)).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    // A lock takes it away at once.
    let mut admin = cluster.admin().await;
    let yaml = "kind: lock\nversion: v1\nmetadata: {name: a}\nspec: {target: {user: alice}, message: away}\n"
        .to_owned();
    admin.create_resource(v1::CreateResourceRequest { yaml, replace: false }).await.unwrap();
    let status = proxy.fleet.certify_for_target(ask("deploy", own)).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    assert!(status.message().contains("away"), "{status:?}");
    let issued = events(&mut admin, "SP1100I").await;
    assert!(issued.iter().any(|event| event["node"] == "db-1" && event["login"] == "deploy"), "{issued:?}");
    assert!(!events(&mut admin, "SP3001W").await.is_empty());
}
