//! Databases at the authority: documents, what agents report, lists, and certificates for agents.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use crate::support;
use crate::support::member::{Joining, Member, opened};
use crate::support::{Cluster, User};
use sallyport_ca::keys::TlsKey;
use sallyport_sal::Suite;
use sallyport_wire::v1;
use sallyport_wire::v1::databases_client::DatabasesClient;
use sallyport_wire::v1::fleet_client::FleetClient;
use sallyport_wire::v1::watch_event::Event as Change;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tonic::Code;
use tonic::transport::Channel;

/// A node that joined by the API alone, as an agent that may serve any database does.
async fn agent(cluster: &Cluster, name: &str) -> Channel {
    Joining::new("node", name).for_databases().join(cluster).await.unwrap().channel
}

fn yaml(name: &str, metadata: &str, spec: &str) -> String {
    format!(
        "kind: db\nversion: v1\nmetadata: {{name: {name}{metadata}}}\nspec: {{address: 'db.internal:5432'{spec}}}\n"
    )
}

async fn beat(agent: &Channel, databases: &[String], health: &[(&str, &str)]) -> Vec<String> {
    let request = v1::HeartbeatRequest {
        databases: databases.iter().map(|yaml| v1::DatabaseReport { yaml: yaml.clone() }).collect(),
        database_health: health
            .iter()
            .map(|(name, problem)| v1::DatabaseHealth {
                name: (*name).to_owned(),
                healthy: problem.is_empty(),
                problem: (*problem).to_owned(),
            })
            .collect(),
        ..Default::default()
    };
    FleetClient::new(agent.clone()).heartbeat(request).await.unwrap().into_inner().problems
}

async fn create(cluster: &Cluster, yaml: String) -> Result<v1::Resource, tonic::Status> {
    let request = v1::CreateResourceRequest { yaml, replace: true };
    cluster.admin().await.create_resource(request).await.map(tonic::Response::into_inner)
}

async fn remove(cluster: &Cluster, kind: &str, name: &str) -> Result<(), tonic::Status> {
    let request = v1::DeleteResourceRequest { kind: kind.to_owned(), name: name.to_owned() };
    cluster.admin().await.delete_resource(request).await.map(drop)
}

/// A user with one role of these rules.
async fn user(cluster: &Cluster, name: &str, spec: &str) -> User {
    let user = cluster.user(name, &[]).await;
    let role = format!("kind: role\nversion: v1\nmetadata: {{name: {name}-role}}\nspec: {spec}\n");
    create(cluster, role).await.unwrap();
    user
}

async fn list(channel: Channel, request: v1::ListDatabasesRequest) -> Vec<v1::DatabaseInfo> {
    DatabasesClient::new(channel).list_databases(request).await.unwrap().into_inner().databases
}

fn names(list: &[v1::DatabaseInfo]) -> Vec<&str> {
    list.iter().map(|database| database.name.as_str()).collect()
}

async fn codes(cluster: &Cluster, code: &str) -> Vec<serde_json::Value> {
    support::events(&mut cluster.admin().await, code).await
}

const APP: &str = "{allow: {db_labels: {env: dev}, db_names: [app], db_users: [reader]}}";

#[tokio::test(flavor = "multi_thread")]
async fn what_agents_report_is_served_listed_and_goes_with_them() {
    let cluster = Cluster::without_node().await;
    let local = async || support::admin_channel(&cluster.data_dir()).await;
    let (one, two) = (agent(&cluster, "db-1").await, agent(&cluster, "db-2").await);
    let dev = yaml("dev", ", labels: {env: dev}", "");
    let prod = yaml("prod", ", labels: {env: prod}", "");
    assert!(beat(&one, &[dev.clone(), prod.clone()], &[("dev", ""), ("prod", "refused\n")]).await.is_empty());
    let told = beat(&two, std::slice::from_ref(&dev), &[("dev", "away"), ("prod", "")]).await;
    assert!(told.len() == 1 && told[0].contains("db-1 has one of this name"), "{told:?}");
    let all = list(local().await, v1::ListDatabasesRequest::default()).await;
    assert_eq!(names(&all), ["dev", "prod"]);
    assert_eq!((all[0].agents.as_slice(), all[0].health.as_str()), (&["db-1".to_owned()][..], "healthy"));
    assert_eq!(
        (all[1].health.as_str(), all[1].problem.as_str()),
        ("unhealthy", "refused "),
        "db-2 does not serve it"
    );
    assert_eq!((all[0].origin.as_str(), all[0].address.as_str()), ("static", "db.internal:5432"));

    let alice = user(&cluster, "alice", APP).await;
    let hers = list(alice.authority().await, v1::ListDatabasesRequest::default()).await;
    assert_eq!(names(&hers), ["dev"], "only what a role allows");
    assert_eq!(
        (hers[0].users.as_slice(), hers[0].names.as_slice()),
        (&["reader".to_owned()][..], &["app".to_owned()][..])
    );
    let pick = |search: &str, query: &str| v1::ListDatabasesRequest {
        search: search.to_owned(),
        query: query.to_owned(),
        ..Default::default()
    };
    assert_eq!(names(&list(local().await, pick("PROD", "")).await), ["prod"]);
    assert_eq!(names(&list(local().await, pick("", "labels[\"env\"] == \"dev\" && online")).await), ["dev"]);
    let page = v1::ListDatabasesRequest { limit: 1, ..Default::default() };
    let page = DatabasesClient::new(local().await).list_databases(page).await.unwrap().into_inner();
    assert_eq!((names(&page.databases).as_slice(), page.next.as_str()), (&["dev"][..], "dev"));
    let rest = v1::ListDatabasesRequest { after: page.next, ..Default::default() };
    assert_eq!(names(&list(local().await, rest).await), ["prod"]);

    // Two say different things of one name: the first stands, and the answer says so each time.
    let other = yaml("dev", ", labels: {env: prod}", "");
    for _ in 0..2 {
        let told = beat(&two, std::slice::from_ref(&other), &[]).await;
        assert!(told.len() == 1 && told[0].contains("db-1 has one of this name"), "{told:?}");
    }
    assert_eq!(codes(&cluster, "SP1283W").await.len(), 1, "on record once");
    let refused = create(&cluster, yaml("dev", "", ", via: db-2")).await.unwrap_err();
    assert!(refused.message().contains("stands in the configuration of db-1"), "{refused:?}");
    let refused = remove(&cluster, "db", "dev").await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");

    assert!(beat(&one, &[prod], &[]).await.is_empty());
    assert_eq!(names(&list(local().await, v1::ListDatabasesRequest::default()).await), ["prod"]);
    assert!(beat(&two, &[other], &[]).await.is_empty(), "the name is free now");
    remove(&cluster, "node", "db-2").await.unwrap();
    assert_eq!(names(&list(local().await, v1::ListDatabasesRequest::default()).await), ["prod"]);
    assert!(codes(&cluster, "SP1280I").await.iter().any(|event| event["user"] == "node:db-1"));
    assert!(codes(&cluster, "SP1282I").await.len() >= 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn administrators_write_databases_and_agents_hear_of_their_own() {
    let cluster = Cluster::without_node().await;
    let (one, two) = (agent(&cluster, "db-1").await, agent(&cluster, "db-2").await);
    let watch = async |channel: &Channel| {
        let request = v1::WatchRequest { kinds: vec!["db".to_owned()] };
        FleetClient::new(channel.clone()).watch(request).await.unwrap().into_inner()
    };
    let (mut first, mut second) = (watch(&one).await, watch(&two).await);
    for watch in [&mut first, &mut second] {
        let done = watch.message().await.unwrap().unwrap().event.unwrap();
        assert!(matches!(done, Change::SnapshotDone(_)), "{done:?}");
    }
    let refused = create(&cluster, yaml("prod", "", "")).await.unwrap_err();
    assert!(refused.message().contains("spec.via"), "{refused:?}");
    let refused = create(&cluster, yaml("prod", "", ", via: db-1, adress: x")).await.unwrap_err();
    assert!(refused.message().contains("did you mean address?"), "{refused:?}");
    let made = create(&cluster, yaml("prod", ", labels: {env: dev}", ", via: db-1")).await.unwrap();
    assert!(made.yaml.contains("db-1") && made.kind == "db", "{made:?}");
    let put = first.message().await.unwrap().unwrap().event.unwrap();
    assert!(matches!(&put, Change::Put(one) if one.kind == "db" && one.name == "prod"), "{put:?}");

    let update = v1::UpdateResourceRequest {
        yaml: yaml("prod", ", labels: {env: dev}", ", via: [db-2]"),
        revision: made.revision,
    };
    let mut admin = cluster.admin().await;
    admin.update_resource(update.clone()).await.unwrap();
    assert_eq!(admin.update_resource(update).await.unwrap_err().code(), Code::Aborted);
    let gone = first.message().await.unwrap().unwrap().event.unwrap();
    assert!(matches!(&gone, Change::Delete(one) if one.name == "prod"), "it serves it no longer: {gone:?}");
    let put = second.message().await.unwrap().unwrap().event.unwrap();
    assert!(matches!(&put, Change::Put(one) if one.name == "prod"), "{put:?}");

    let told = beat(&one, &[yaml("prod", "", "")], &[]).await;
    assert!(told[0].contains("an administrator has made one of this name"), "{told:?}");
    let get = v1::GetResourceRequest { kind: "db".to_owned(), name: "prod".to_owned() };
    assert!(admin.get_resource(get.clone()).await.unwrap().into_inner().yaml.contains("db-2"));
    let all = v1::ListResourcesRequest { kind: "db".to_owned(), ..Default::default() };
    assert_eq!(admin.list_resources(all).await.unwrap().into_inner().resources.len(), 1);
    remove(&cluster, "db", "prod").await.unwrap();
    assert_eq!(admin.get_resource(get).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(remove(&cluster, "db", "prod").await.unwrap_err().code(), Code::NotFound);
    for code in ["SP1280I", "SP1281I", "SP1282I"] {
        assert_eq!(codes(&cluster, code).await[0]["fields"]["name"], "prod", "{code}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn access_is_explained() {
    let cluster = Cluster::without_node().await;
    let agent = agent(&cluster, "db-1").await;
    beat(&agent, &[yaml("dev", ", labels: {env: dev}", "")], &[("dev", "")]).await;
    let alice = user(&cluster, "alice", APP).await;
    let ask = |user: &str, db_user: &str| v1::ExplainDatabaseAccessRequest {
        user: user.to_owned(),
        database: "dev".to_owned(),
        db_user: db_user.to_owned(),
        db_name: "app".to_owned(),
    };
    let mut own = DatabasesClient::new(alice.authority().await);
    let why = own.explain_database_access(ask("alice", "reader")).await.unwrap().into_inner();
    assert!(why.allowed && why.details.iter().any(|line| line == "the database is healthy"), "{why:?}");
    let why = own.explain_database_access(ask("alice", "root")).await.unwrap().into_inner();
    assert!(!why.allowed && why.summary.contains("users you may use there: reader"), "{why:?}");
    let refused = own.explain_database_access(ask("bob", "reader")).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
}

/// A cluster with the database `dev`, two agents, and a proxy that opens sessions to the first.
struct Agents {
    cluster: Cluster,
    gate: Member,
    agent: Member,
    one: Channel,
    two: Channel,
    key: TlsKey,
}

impl Agents {
    /// `via` names the agents that serve the database.
    async fn new(via: &str) -> Self {
        let cluster = Cluster::without_node().await;
        let gate = Joining::new("proxy", "gate").join(&cluster).await.unwrap();
        let agent = Joining::new("node", "db-1").join(&cluster).await.unwrap();
        let (one, two) = (agent.channel.clone(), self::agent(&cluster, "db-2").await);
        for agent in [&one, &two] {
            beat(agent, &[], &[]).await;
        }
        let spec = format!(", via: {via}, admin_user: maker");
        create(&cluster, yaml("dev", ", labels: {env: dev}", &spec)).await.unwrap();
        Self { cluster, gate, agent, one, two, key: TlsKey::generate(Suite::BalancedV1).unwrap() }
    }

    /// What an agent asks for the session of a user, which nothing says was opened.
    fn ask(&self, of: &User, db_user: &str) -> v1::CertifyDatabaseUserRequest {
        let leaf = CertificateDer::from_pem_slice(of.tls_chain.as_bytes()).unwrap().to_vec();
        v1::CertifyDatabaseUserRequest {
            database: "dev".to_owned(),
            db_user: db_user.to_owned(),
            db_name: "app".to_owned(),
            user_certificate: leaf.into(),
            tls_public_key: self.key.spki_der().to_vec().into(),
            ..Default::default()
        }
    }

    /// The same, opened to the first agent.
    fn opened(&self, request: v1::CertifyDatabaseUserRequest) -> v1::CertifyDatabaseUserRequest {
        opened(&self.gate, &self.agent.id, request)
    }
}

async fn certify(
    agent: &Channel,
    request: v1::CertifyDatabaseUserRequest,
) -> Result<v1::CertifyDatabaseUserResponse, tonic::Status> {
    let answer = DatabasesClient::new(agent.clone()).certify_database_user(request).await;
    answer.map(tonic::Response::into_inner)
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_are_certified_for_what_they_serve_and_roles_allow() {
    let agents = Agents::new("db-1").await;
    let Agents { cluster, one, two, .. } = &agents;
    let alice = user(
        cluster,
        "alice",
        "{allow: {db_labels: {env: dev}, db_names: [app], db_users: [reader]}, options: {create_db_user_mode: keep}}",
    )
    .await;
    let ask = |db_user: &str, provisioning: bool| {
        agents.opened(v1::CertifyDatabaseUserRequest { provisioning, ..agents.ask(&alice, db_user) })
    };
    let made = certify(one, ask("reader", false)).await.unwrap();
    assert!(made.tls_certificate_pem.starts_with("-----BEGIN CERTIFICATE-----"));
    let until = sallyport_wire::convert::time_from_proto(made.valid_until.as_ref().unwrap()).unwrap();
    let left = until - time::OffsetDateTime::now_utc();
    assert!(left <= time::Duration::hours(1) && left > time::Duration::minutes(50), "{left}");
    certify(one, ask("alice", true)).await.unwrap();
    let issued: Vec<_> = codes(cluster, "SP1100I").await;
    let on_record = |login: &str| {
        issued.iter().any(|event| {
            event["user"] == "alice"
                && event["login"] == login
                && event["node"] == "dev"
                && event["fields"]["certificates"][0]["signed_by"] == "db_client"
        })
    };
    assert!(on_record("reader") && on_record("maker"), "{issued:?}");

    let denied = async |channel: &Channel, request, part: &str| {
        let refused = certify(channel, request).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
        assert!(refused.message().contains(part), "{part}: {refused:?}");
    };
    denied(two, ask("reader", false), "db-2 does not serve the database dev").await;
    denied(one, ask("postgres", false), "no role allows it").await;
    denied(one, ask("maker", false), "no role allows it").await;
    denied(one, ask("reader", true), "no user is made").await;
    let unknown = v1::CertifyDatabaseUserRequest { database: "other".to_owned(), ..ask("reader", false) };
    denied(one, unknown, "does not serve").await;
    let unread =
        v1::CertifyDatabaseUserRequest { user_certificate: vec![1, 2, 3].into(), ..ask("reader", false) };
    denied(one, unread, "the user's certificate").await;
    let wrong = v1::CertifyDatabaseUserRequest { tls_public_key: vec![1].into(), ..ask("reader", false) };
    assert_eq!(certify(one, wrong).await.unwrap_err().code(), Code::InvalidArgument);
    denied(&alice.authority().await, ask("reader", false), "this is for hosts").await;

    let lock =
        "kind: lock\nversion: v1\nmetadata: {name: closed}\nspec: {target: {db: dev}, message: moving}\n";
    create(cluster, lock.to_owned()).await.unwrap();
    denied(one, ask("reader", false), "moving").await;
    // What an agent was let make it may close: the database user of a locked user stays open otherwise.
    let closing = certify(one, ask("alice", true)).await.unwrap();
    let until = sallyport_wire::convert::time_from_proto(closing.valid_until.as_ref().unwrap()).unwrap();
    assert!(until - time::OffsetDateTime::now_utc() <= time::Duration::minutes(5));
    denied(one, ask("alice", false), "moving").await;
    denied(one, ask("reader", true), "moving").await;
    denied(two, ask("alice", true), "does not serve").await;
    remove(cluster, "lock", "closed").await.unwrap();
    certify(one, ask("reader", false)).await.unwrap();

    // No second node has the name that the document means.
    let twin = Joining::new("node", "db-1").join(cluster).await.err().unwrap();
    assert_eq!(twin.code(), Code::AlreadyExists, "{twin:?}");
    let refused = codes(cluster, "SP3001W").await;
    let told = refused.iter().filter(|e| e["fields"]["method"] == "Databases.CertifyDatabaseUser").count();
    assert!(told >= 9, "{told}");
}

/// What an agent was given it may renew, for as long as the user may come and it was opened by whom it may be, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_renews_what_it_holds_and_nothing_else() {
    let agents = Agents::new("[db-1, db-2]").await;
    let Agents { cluster, gate, one, two, .. } = &agents;
    let rules = "{allow: {db_labels: {env: dev}, db_names: [app], db_users: [reader, writer]}";
    let (alice, bob) = (
        user(cluster, "alice", &format!("{rules}}}")).await,
        user(cluster, "bob", &format!("{rules}}}")).await,
    );
    let renewal =
        |of: &User, db_user: &str| v1::CertifyDatabaseUserRequest { renews: true, ..agents.ask(of, db_user) };
    let denied = async |channel: &Channel, request, code: Code, part: &str| {
        let refused = certify(channel, request).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused:?}");
        assert!(refused.message().contains(part), "{part}: {refused:?}");
    };
    let nothing = async |channel: &Channel, request| {
        denied(channel, request, Code::PermissionDenied, "that it could renew").await;
    };
    nothing(one, renewal(&alice, "reader")).await;
    certify(one, agents.opened(agents.ask(&alice, "reader"))).await.unwrap();
    certify(one, renewal(&alice, "reader")).await.unwrap();
    assert!(codes(cluster, "SP1100I").await.iter().any(|event| event["fields"]["renews"] == true));
    // Neither another agent that serves the database, nor for another login, nor as another user there, nor as who makes users.
    nothing(two, renewal(&alice, "reader")).await;
    nothing(one, renewal(&bob, "reader")).await;
    nothing(one, renewal(&alice, "writer")).await;
    let maker = v1::CertifyDatabaseUserRequest { provisioning: true, ..renewal(&alice, "reader") };
    denied(one, maker, Code::InvalidArgument, "is not renewed").await;
    // A lock on the user, on the database, and on the proxy that opened the session; roles that want it end to end since.
    for target in ["{user: alice}", "{db: dev}", &format!("{{node: {}}}", gate.id)] {
        let lock = format!(
            "kind: lock\nversion: v1\nmetadata: {{name: closed}}\nspec: {{target: {target}, message: moving}}\n"
        );
        create(cluster, lock).await.unwrap();
        denied(one, renewal(&alice, "reader"), Code::PermissionDenied, "moving").await;
        remove(cluster, "lock", "closed").await.unwrap();
    }
    certify(one, renewal(&alice, "reader")).await.unwrap();
    certify(one, renewal(&alice, "reader")).await.unwrap();
    denied(one, renewal(&alice, "reader"), Code::ResourceExhausted, "often enough").await;
}
