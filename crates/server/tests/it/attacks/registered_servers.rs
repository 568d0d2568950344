//! What a taken-over proxy gets of registered OpenSSH servers, and where a server's own word may send who dials it.

use std::time::{Duration, Instant};

use sallyport_ca::WantedLogin;
use sallyport_ca::keys::SshKeyPair;
use sallyport_wire::v1;
use sallyport_wire::v1::cluster_client::ClusterClient;
use sallyport_wire::v1::rotation_client::RotationClient;
use time::OffsetDateTime;
use tonic::{Code, Status};

use super::people::{person, remove, role, write};
use crate::support::member::{Joining, Member};
use crate::support::{self, Cluster, User, events};

/// What the answer must be there within; it is there at once, and a machine under load takes its time.
const SECONDS: Duration = Duration::from_secs(5);

/// A proxy's files in the wrong hands, a server that trusts the openssh CA, and a user who may log in there.
struct Scene {
    cluster: Cluster,
    proxy: Member,
    server: String,
    alice: User,
}

impl Scene {
    async fn new() -> Self {
        let cluster = Cluster::without_node().await;
        let proxy = Joining::new("proxy", "edge.example.net").join(&cluster).await.unwrap();
        let server = "kind: node\nsub_kind: openssh\nversion: v1\nmetadata: {name: db-1}\nspec: {address: '192.0.2.1:22'}\n";
        write(&cluster, server.to_owned()).await;
        write(&cluster, role("dev", "{allow: {logins: [deploy], node_labels: {'*': '*'}}}")).await;
        let alice = person(&cluster, "alice", &["dev"], &[]).await;
        let mut admin = ClusterClient::new(support::admin_channel(&cluster.data_dir()).await);
        let nodes = admin.list_nodes(v1::ListNodesRequest::default()).await.unwrap().into_inner().nodes;
        let server = nodes.iter().find(|node| node.name == "db-1").unwrap().id.clone();
        Self { cluster, proxy, server, alice }
    }

    async fn certify(&self) -> Result<v1::CertifyForTargetResponse, Status> {
        self.certify_by(None).await
    }

    async fn certify_by(&self, word: Option<v1::LoginWord>) -> Result<v1::CertifyForTargetResponse, Status> {
        let request = v1::CertifyForTargetRequest {
            node_id: self.server.clone(),
            login: "deploy".to_owned(),
            user_certificate: self.alice.ssh_certificate.clone(),
            ssh_public_key: self.proxy.ssh.public_line().to_owned(),
            word,
        };
        Ok(self.proxy.fleet().certify_for_target(request).await?.into_inner())
    }

    /// The word of a user's program, for a login.
    fn word(user: &User, server: &str, login: &str) -> v1::LoginWord {
        let key = SshKeyPair::from_openssh(&user.ssh_key).unwrap();
        let wanted = WantedLogin { server, login };
        let word = wanted.sign(&*key.signer(), OffsetDateTime::now_utc()).unwrap();
        v1::LoginWord {
            server: server.to_owned(),
            at: word.at,
            nonce: word.nonce.into(),
            signature: word.signature.into(),
        }
    }

    async fn lock(&self, name: &str, target: &str) {
        let yaml =
            format!("kind: lock\nversion: v1\nmetadata: {{name: {name}}}\nspec: {{target: {target}}}\n");
        write(&self.cluster, yaml).await;
    }
}

fn denied(outcome: Result<v1::CertifyForTargetResponse, Status>, what: &str) {
    let code = outcome.err().map(|status| status.code());
    assert!(matches!(code, Some(Code::PermissionDenied | Code::Unauthenticated)), "{what}: {code:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxys_certificate_for_a_login_lasts_for_minutes() {
    let scene = Scene::new().await;
    let issued = scene.certify().await.unwrap();
    let left = issued.valid_until.unwrap().seconds - OffsetDateTime::now_utc().unix_timestamp();
    assert!(left <= 5 * 60, "{left} s");
    let certificate = sallyport_ca::keys::certificate(&issued.ssh_certificate).unwrap();
    assert!(certificate.valid_before() <= u64::try_from(issued.valid_until.unwrap().seconds).unwrap());
    scene.cluster.running.shutdown(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxys_certificate_is_for_one_server_where_sshd_can_tell() {
    let mut scene = Scene::new().await;
    let principals = |issued: &v1::CertifyForTargetResponse| {
        sallyport_ca::keys::certificate(&issued.ssh_certificate).unwrap().valid_principals().to_vec()
    };
    // Until the server has said that its sshd knows it by its id.
    assert_eq!(principals(&scene.certify().await.unwrap()), ["deploy"]);
    let member = Joining::new("openssh", "db-9").at("10.0.0.9:22").join(&scene.cluster).await.unwrap();
    scene.server = member.id.clone();
    assert_eq!(principals(&scene.certify().await.unwrap()), ["deploy"]);
    let said = v1::ConfirmRequest { takes_own_logins: true, ..Default::default() };
    RotationClient::new(member.channel.clone()).confirm(said).await.unwrap();
    assert_eq!(principals(&scene.certify().await.unwrap()), [format!("deploy:{}", member.id)]);
    scene.cluster.running.shutdown(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_or_removal_of_user_server_or_proxy_ends_a_proxys_logins() {
    let scene = Scene::new().await;
    for (name, target) in [
        ("user", "{user: alice}".to_owned()),
        ("server", format!("{{node: '{}'}}", scene.server)),
        ("proxy", format!("{{node: '{}'}}", scene.proxy.id)),
    ] {
        scene.certify().await.unwrap();
        let began = Instant::now();
        scene.lock(name, &target).await;
        denied(scene.certify().await, name);
        assert!(began.elapsed() < SECONDS, "{name}: {:?}", began.elapsed());
        remove(&scene.cluster, "lock", name).await.unwrap();
    }
    scene.certify().await.unwrap();
    remove(&scene.cluster, "user", "alice").await.unwrap();
    denied(scene.certify().await, "a removed user");
    let again = Scene::new().await;
    remove(&again.cluster, "node", "db-1").await.unwrap();
    denied(again.certify().await, "a removed server");
    let last = Scene::new().await;
    remove(&last.cluster, "node", &last.proxy.id).await.unwrap();
    denied(last.certify().await, "a removed proxy");
    for scene in [scene, again, last] {
        scene.cluster.running.shutdown(false).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_sends_no_user_to_its_own_machine_or_its_clouds_metadata() {
    let cluster = Cluster::without_node().await;
    let inwards = [
        "127.0.0.1:22",
        "localhost:22",
        "db.localhost:22",
        "[::1]:22",
        "[::ffff:127.0.0.1]:22",
        "0.0.0.0:22",
        "169.254.169.254:80",
        "[fe80::1]:22",
        "[fd00:ec2::254]:80",
        "100.100.100.200:80",
    ];
    for address in inwards {
        let status = Joining::new("openssh", "db-1").at(address).join(&cluster).await.err().unwrap();
        assert_eq!(status.code(), Code::PermissionDenied, "{address}: {status:?}");
        assert!(status.message().contains("only an administrator registers"), "{status:?}");
    }
    // What an administrator has written stands.
    let server = "kind: node\nsub_kind: openssh\nversion: v1\nmetadata: {name: db-1}\nspec: {address: '127.0.0.1:22'}\n";
    write(&cluster, server.to_owned()).await;
    Joining::new("openssh", "db-1").at("127.0.0.1:22").join(&cluster).await.map(drop).unwrap();
    Joining::new("openssh", "db-2").at("10.0.0.5:22").join(&cluster).await.map(drop).unwrap();
    cluster.running.shutdown(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_gets_no_login_of_a_user_who_has_not_asked_for_it() {
    let scene = Scene::new().await;
    let strict =
        "{options: {require_login_word: true}, allow: {logins: [deploy, web], node_labels: {'*': '*'}}}";
    write(&scene.cluster, role("dev", strict)).await;
    let mallory = person(&scene.cluster, "mallory", &["dev"], &[]).await;
    // The user's certificate alone, which every proxy sees, does not do, nor does anything else that a proxy can have.
    let word = |server: &str, login: &str| Some(Scene::word(&scene.alice, server, login));
    let moved =
        |made: Option<v1::LoginWord>| made.map(|word| v1::LoginWord { server: "db-1".to_owned(), ..word });
    let mut late = Scene::word(&scene.alice, "db-1", "deploy");
    late.at -= 600;
    for (asked, what) in [
        (None, "no word"),
        (Some(v1::LoginWord::default()), "an empty word"),
        (word("db-1", "web"), "for another login"),
        (word("db-2", "deploy"), "for another server"),
        (moved(word("db-2", "deploy")), "for another server, renamed"),
        (Some(Scene::word(&mallory, "db-1", "deploy")), "of another user"),
        (Some(late), "of before"),
    ] {
        let status = scene.certify_by(asked).await.err().unwrap();
        assert_eq!(status.code(), Code::PermissionDenied, "{what}: {status:?}");
        assert!(status.message().contains("require_login_word"), "{what}: {status:?}");
    }
    // The user's word is for one certificate.
    let used = word("db-1", "deploy");
    scene.certify_by(used.clone()).await.unwrap();
    let status = scene.certify_by(used).await.err().unwrap();
    assert!(status.message().contains("used before"), "{status:?}");
    for named in [format!("DB-1.{}", support::CLUSTER), scene.server.clone()] {
        scene.certify_by(word(&named, "deploy")).await.unwrap();
    }
    // On record is whose word it was.
    let mut admin = scene.cluster.admin().await;
    let issued = events(&mut admin, "SP1100I").await;
    assert!(issued.iter().any(|event| event["fields"]["word_of"] == "alice"), "{issued:?}");
    scene.cluster.running.shutdown(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_proxy_gets_by_its_own_word_is_on_record_as_its_own() {
    let scene = Scene::new().await;
    scene.certify().await.unwrap();
    let issued = events(&mut scene.cluster.admin().await, "SP1100I").await;
    let by = issued.iter().filter_map(|event| event["fields"]["word_of"].as_str()).next_back();
    assert_eq!(by, Some("proxy:edge.example.net"), "{issued:?}");
    scene.cluster.running.shutdown(false).await;
}
