//! Documents that cost more than they say.

use sallyport_wire::v1;
use sallyport_wire::v1::admin_client::AdminClient;
use sallyport_wire::v1::databases_client::DatabasesClient;
use tonic::Code;

use crate::support::member::Joining;
use crate::support::{Cluster, admin_channel, is, role};

/// Nine lines of nine aliases each: 391 bytes for hundreds of thousands of values.
fn bomb(kind: &str) -> String {
    let mut text = format!("kind: {kind}\na0: &a0 [x,x,x,x,x,x,x,x,x]\n");
    for level in 1..6 {
        let below = format!("*a{},", level - 1).repeat(9);
        text.push_str(&format!("a{level}: &a{level} [{}]\n", below.trim_end_matches(',')));
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_is_taken_apart_only_for_a_caller_who_may_write_it_and_has_no_aliases() {
    let cluster = Cluster::without_node().await;
    let mut admin = cluster.admin().await;
    let create = |yaml: String| v1::CreateResourceRequest { yaml, replace: false };
    let mallory = cluster.user("mallory", &[]).await;
    let mut denied = AdminClient::new(mallory.authority().await);
    // The authority refuses before it reads the document, so the user learns nothing of what is wrong with it.
    for yaml in
        [bomb("role"), bomb("lock"), bomb("nothing"), "x".repeat(1 << 20), ": [".to_owned(), String::new()]
    {
        let status = denied.create_resource(create(yaml.clone())).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
        let update = v1::UpdateResourceRequest { yaml, revision: 1 };
        let status = denied.update_resource(update).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    }

    // For those who may, as well: text stands for itself.
    let aliased = "kind: role\nversion: v1\nmetadata: {name: a}\nspec: {allow: {logins: &l [root]}, deny: {logins: *l}}\n";
    let long = role("long", &[]) + &"#".repeat(64 * 1024);
    for yaml in [bomb("role"), aliased.to_owned(), long] {
        let status = admin.create_resource(create(yaml)).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    }
    admin.create_resource(create(role("short", &["root"]))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_is_of_the_kind_that_was_asked_about() {
    let cluster = Cluster::without_node().await;
    let mut admin = cluster.admin().await;
    let mallory = cluster.user("mallory", &[]).await;
    let yaml = "kind: role\nversion: v1\nmetadata: {name: mallory-role}\nspec: {allow: {rules: [{resources: [lock], \
                verbs: [create, update]}]}}\n";
    admin.create_resource(v1::CreateResourceRequest { yaml: yaml.to_owned(), replace: true }).await.unwrap();
    let mut mallory = AdminClient::new(mallory.authority().await);
    // A line that says it is a lock, inside a text; and a role around it.
    let yaml = "version: v1\n\"kind\": role\nmetadata: {name: mine}\nspec: {allow: {logins: [root, \"\nkind: lock\n\"]}}\n";
    for yaml in [yaml.to_owned(), yaml.replace("\"kind\"", "kind"), "{kind: role, version: v1}".to_owned()] {
        let status =
            mallory.create_resource(v1::CreateResourceRequest { yaml, replace: true }).await.unwrap_err();
        assert!(matches!(status.code(), Code::PermissionDenied | Code::InvalidArgument), "{status:?}");
    }
    let gone =
        admin.get_resource(v1::GetResourceRequest { kind: "role".to_owned(), name: "mine".to_owned() });
    assert_eq!(gone.await.unwrap_err().code(), Code::NotFound);
    let yaml = "kind: lock\nversion: v1\nmetadata: {name: own}\nspec: {target: {login: nobody}}\n".to_owned();
    mallory.create_resource(v1::CreateResourceRequest { yaml, replace: true }).await.unwrap();
}

/// Documents that have a line of another kind than their own: in a text, as a label, and where the line with their own is one for
/// YAML alone, which breaks lines at a carriage return.
const BETWEEN_KINDS: [(&str, &str, &str); 3] = [
    (
        "session_policy",
        "default",
        "{version: v1, \"kind\": session_policy, metadata: {name: default}, spec: {message_of_the_day: \"all is well\nkind: lock\n\"}}",
    ),
    (
        "role",
        "mine",
        "{version: v1, \"kind\": role, metadata: {name: mine}, spec: {allow: {node_labels: {\nkind: lock\n}}}}",
    ),
    (
        "role",
        "mine",
        "#\r{kind: role, version: v1, metadata: {name: mine}, spec: {allow: {node_labels: {\nkind: lock\n}}}}",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_claims_a_kind_lets_no_document_of_another_through() {
    let cluster = Cluster::without_node().await;
    let mut admin = cluster.admin().await;
    let mallory = cluster.user("mallory", &[]).await;
    let yaml = "kind: role\nversion: v1\nmetadata: {name: mallory-role}\nspec: {allow: {rules: [{resources: [lock], \
                verbs: [create, update]}]}}\n";
    admin.create_resource(v1::CreateResourceRequest { yaml: yaml.to_owned(), replace: true }).await.unwrap();
    let mut mallory = AdminClient::new(mallory.authority().await);
    for (kind, name, yaml) in BETWEEN_KINDS {
        let get = || v1::GetResourceRequest { kind: kind.to_owned(), name: name.to_owned() };
        let before = admin.get_resource(get()).await.map(|found| found.into_inner().yaml);
        for replace in [false, true] {
            let create = v1::CreateResourceRequest { yaml: yaml.to_owned(), replace };
            let status = mallory.create_resource(create).await.unwrap_err();
            assert!(
                is(&status, Code::InvalidArgument, "of another kind than its line"),
                "{yaml}: {status:?}"
            );
        }
        let update = v1::UpdateResourceRequest { yaml: yaml.to_owned(), revision: 1 };
        let status = mallory.update_resource(update).await.unwrap_err();
        assert!(is(&status, Code::InvalidArgument, "of another kind than its line"), "{yaml}: {status:?}");
        let after = admin.get_resource(get()).await.map(|found| found.into_inner().yaml);
        assert_eq!(after.map_err(|status| status.code()), before.map_err(|status| status.code()), "{yaml}");
        // There is nothing else wrong with it: without the line it is for those who may write its kind.
        let plain = yaml.replace("kind: lock", "what: lock");
        admin.create_resource(v1::CreateResourceRequest { yaml: plain, replace: true }).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hosts_documents_are_no_longer_than_an_administrators_and_have_no_aliases() {
    let cluster = Cluster::without_node().await;
    let agent = Joining::new("node", "db-1").for_databases().join(&cluster).await.unwrap();
    let database = |name: &str, rest: &str| v1::DatabaseReport {
        yaml: format!(
            "kind: db\nversion: v1\nmetadata: {{name: {name}}}\nspec: {{address: '127.0.0.1:5432'}}\n{rest}"
        ),
    };
    // A document that is too long, a bomb, a document with a single alias, and the longest that is taken.
    let long = database("long", &format!("# {}\n", "x".repeat(64 * 1024)));
    let aliased = v1::DatabaseReport {
        yaml: "kind: db\nversion: v1\nmetadata: {name: &n aliased}\nspec: {address: '127.0.0.1:5432', admin_user: *n}\n".to_owned(),
    };
    let mut fits = database("fits", "# ");
    fits.yaml.push_str(&"x".repeat(64 * 1024 - fits.yaml.len()));
    let databases = vec![long, v1::DatabaseReport { yaml: bomb("db") }, aliased, fits];
    let told = agent.beat(v1::HeartbeatRequest { databases, ..Default::default() }).await.unwrap();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told[0].contains("at most 65536 are allowed"), "{told:?}");
    let mut client = DatabasesClient::new(admin_channel(&cluster.data_dir()).await);
    let listed = client.list_databases(v1::ListDatabasesRequest::default()).await.unwrap().into_inner();
    let names: Vec<&str> = listed.databases.iter().map(|database| database.name.as_str()).collect();
    assert_eq!(names, ["fits"]);
}
