//! A node that wants databases which are not its own, and certificates as their users.

use std::collections::HashMap;

use sallyport_ca::Opening;
use sallyport_ca::keys::TlsKey;
use sallyport_sal::{MemoryKey, Suite};
use sallyport_wire::v1;
use sallyport_wire::v1::databases_client::DatabasesClient;
use time::OffsetDateTime;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tonic::Code;

use crate::support::member::{Joining, Member, opened};
use crate::support::{Cluster, admin_channel, events};

fn report(name: &str, labels: &str) -> v1::DatabaseReport {
    let yaml = format!(
        "kind: db\nversion: v1\nmetadata: {{name: {name}, labels: {labels}}}\nspec: {{address: '127.0.0.1:5432'}}\n"
    );
    v1::DatabaseReport { yaml }
}

async fn tell(agent: &Member, databases: Vec<v1::DatabaseReport>) -> Vec<String> {
    agent.beat(v1::HeartbeatRequest { databases, ..Default::default() }).await.unwrap()
}

async fn listed(cluster: &Cluster) -> Vec<(String, HashMap<String, String>)> {
    let mut client = DatabasesClient::new(admin_channel(&cluster.data_dir()).await);
    let answer = client.list_databases(v1::ListDatabasesRequest::default()).await.unwrap().into_inner();
    answer.databases.into_iter().map(|database| (database.name, database.labels)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_serves_no_database_that_its_token_does_not_name() {
    let cluster = Cluster::without_node().await;
    let thief = Joining::new("node", "thief").join(&cluster).await.unwrap();
    let told = tell(&thief, vec![report("payroll", "{env: prod}")]).await;
    assert!(told.len() == 1 && told[0].contains("does not let it serve"), "{told:?}");
    assert!(listed(&cluster).await.is_empty());

    let mut bounded = Joining::new("node", "db-1");
    bounded.token.databases = vec!["dev-*".to_owned()];
    bounded.token.labels = [("env".to_owned(), "dev".to_owned())].into();
    let bounded = bounded.join(&cluster).await.unwrap();
    let told =
        tell(&bounded, vec![report("dev-1", "{env: prod, team: payroll}"), report("payroll", "{}")]).await;
    assert_eq!(told.len(), 2, "{told:?}");
    let of_token = HashMap::from([("env".to_owned(), "dev".to_owned())]);
    assert_eq!(listed(&cluster).await, [("dev-1".to_owned(), of_token)]);
    assert!(events(&mut cluster.admin().await, "SP1283W").await.len() >= 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_as_a_database_user_is_for_one_session_that_a_proxy_opened() {
    let cluster = Cluster::without_node().await;
    let agent = Joining::new("node", "db-1").join(&cluster).await.unwrap();
    let other = Joining::new("node", "db-2").join(&cluster).await.unwrap();
    let gate = Joining::new("proxy", "gate").join(&cluster).await.unwrap();
    tell(&agent, Vec::new()).await;
    let mut admin = cluster.admin().await;
    for yaml in [
        "kind: db\nversion: v1\nmetadata: {name: dev, labels: {env: dev}}\nspec: {address: 'db:5432', via: [db-1, db-2]}\n",
        "kind: role\nversion: v1\nmetadata: {name: victim-role}\nspec: {allow: {db_labels: {env: dev}, db_names: [app, \
         other], db_users: [reader, writer]}}\n",
    ] {
        if yaml.contains("role") {
            cluster.user("victim", &[]).await;
        }
        let request = v1::CreateResourceRequest { yaml: yaml.to_owned(), replace: true };
        admin.create_resource(request).await.unwrap();
    }
    // Every node that a user comes to sees the user's certificate.
    let victim =
        crate::support::log_in(&cluster.proxy(), &crate::support::pin(&mut admin).await, "victim", None)
            .await
            .unwrap();
    let certificate = CertificateDer::from_pem_slice(victim.tls_chain.as_bytes()).unwrap().to_vec();
    let key = TlsKey::generate(Suite::BalancedV1).unwrap();
    let request = v1::CertifyDatabaseUserRequest {
        database: "dev".to_owned(),
        db_user: "reader".to_owned(),
        db_name: "app".to_owned(),
        user_certificate: certificate.into(),
        tls_public_key: key.spki_der().to_vec().into(),
        ..Default::default()
    };
    let certify = async |agent: &Member, request: v1::CertifyDatabaseUserRequest| {
        DatabasesClient::new(agent.channel.clone()).certify_database_user(request).await
    };
    let denied = async |request: v1::CertifyDatabaseUserRequest, part: &str| {
        let refused = certify(&agent, request).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
        assert!(refused.message().contains(part), "{part}: {refused:?}");
    };
    denied(request.clone(), "neither the user nor a proxy says").await;
    // A node's own word, and one that a proxy gave for something else.
    denied(opened(&agent, &agent.id, request.clone()), "only a proxy").await;
    denied(opened(&gate, &other.id, request.clone()), "signature").await;
    let given = opened(&gate, &agent.id, request.clone());
    denied(v1::CertifyDatabaseUserRequest { db_user: "writer".to_owned(), ..given.clone() }, "signature")
        .await;
    denied(v1::CertifyDatabaseUserRequest { db_name: "other".to_owned(), ..given.clone() }, "signature")
        .await;
    let mut old = given.clone();
    if let Some(word) = &mut old.opened {
        word.at -= 3600;
    }
    denied(old, "not opened just now").await;
    let mut nameless = given.clone();
    if let Some(word) = &mut nameless.opened {
        word.nonce = Vec::new().into();
    }
    denied(nameless, "nonce").await;
    // The roles are the authority's to ask, whatever a proxy has opened.
    let other_user = v1::CertifyDatabaseUserRequest { db_user: "postgres".to_owned(), ..request.clone() };
    denied(opened(&gate, &agent.id, other_user), "no role allows it").await;

    // The user's own word takes the user's key.
    let opening = Opening {
        agent: agent.id.parse().unwrap(),
        database: "dev",
        db_user: "reader",
        db_name: "app",
        user_certificate: &request.user_certificate,
    };
    let signed = |key: &str| {
        let key = MemoryKey::from_pkcs8_pem(key).unwrap();
        let word = opening.sign_as_user(&key, OffsetDateTime::now_utc()).unwrap();
        let (nonce, signature) = (word.nonce.into(), word.signature.into());
        let word = v1::DatabaseOpening { certificate: word.certificate, at: word.at, nonce, signature };
        v1::CertifyDatabaseUserRequest { opened: Some(word), ..request.clone() }
    };
    denied(signed(&agent.key), "signature").await;
    denied(signed(&gate.key), "signature").await;
    let own = signed(&victim.tls_key);
    let elsewhere = certify(&other, own.clone()).await.unwrap_err();
    assert!(elsewhere.message().contains("signature"), "{elsewhere:?}");
    certify(&agent, own.clone()).await.unwrap();
    denied(own, "has its certificate already").await;

    // What the proxy opened gives one certificate, and not another.
    certify(&agent, given.clone()).await.unwrap();
    denied(given, "has its certificate already").await;
    let issued = events(&mut admin, "SP1100I").await;
    assert!(issued.iter().any(|event| event["fields"]["opened_by"] == "proxy:gate"), "{issued:?}");

    // A proxy that is locked or removed opens nothing.
    let lock = format!(
        "kind: lock\nversion: v1\nmetadata: {{name: gate}}\nspec: {{target: {{node: {}}}, message: stolen}}\n",
        gate.id
    );
    admin.create_resource(v1::CreateResourceRequest { yaml: lock, replace: false }).await.unwrap();
    denied(opened(&gate, &agent.id, request.clone()), "stolen").await;
    for (kind, name) in [("lock", "gate"), ("node", gate.id.as_str())] {
        let remove = v1::DeleteResourceRequest { kind: kind.to_owned(), name: name.to_owned() };
        admin.delete_resource(remove).await.unwrap();
    }
    let refused = certify(&agent, opened(&gate, &agent.id, request)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_says_nothing_of_the_health_of_anothers_database() {
    let cluster = Cluster::without_node().await;
    let agent = Joining::new("node", "db-1").for_databases().join(&cluster).await.unwrap();
    let thief = Joining::new("node", "db-2").join(&cluster).await.unwrap();
    let health = |name: &str, healthy: bool| v1::DatabaseHealth {
        name: name.to_owned(),
        healthy,
        problem: if healthy { String::new() } else { "gone, come to db-2".to_owned() },
    };
    let shown = async || {
        let mut client = DatabasesClient::new(admin_channel(&cluster.data_dir()).await);
        let answer = client.list_databases(v1::ListDatabasesRequest::default()).await.unwrap().into_inner();
        let found = answer.databases.into_iter().find(|database| database.name == "payroll").unwrap();
        (found.health, found.problem, found.agents)
    };
    let own = v1::HeartbeatRequest {
        databases: vec![report("payroll", "{}")],
        database_health: vec![health("payroll", true)],
        ..Default::default()
    };
    agent.beat(own.clone()).await.unwrap();
    let before = shown().await;
    assert_eq!(before, ("healthy".to_owned(), String::new(), vec!["db-1".to_owned()]));
    // Of another's, of one that it says to serve under the same name, and of one that there is not.
    let lies = vec![health("payroll", false), health("nothing", true)];
    for databases in [Vec::new(), vec![report("payroll", "{}")], vec![report("other", "{}")]] {
        let said = v1::HeartbeatRequest { databases, database_health: lies.clone(), ..Default::default() };
        thief.beat(said).await.unwrap();
        assert_eq!(shown().await, before);
    }
    // The agent's own word counts.
    let ill = v1::HeartbeatRequest { database_health: vec![health("payroll", false)], ..own };
    agent.beat(ill).await.unwrap();
    assert_eq!(shown().await.0, "unhealthy");
}
