//! The catalogue at the authority: documents, what agents report, what users may use, and what hosts are told.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use crate::support;
use crate::support::member::Joining;
use crate::support::{Cluster, User};
use sallyport_wire::v1;
use sallyport_wire::v1::admin_client::AdminClient;
use sallyport_wire::v1::catalogue_client::CatalogueClient;
use sallyport_wire::v1::cluster_client::ClusterClient;
use sallyport_wire::v1::fleet_client::FleetClient;
use sallyport_wire::v1::watch_event::Event as Change;
use tonic::Code;
use tonic::transport::Channel;

/// A node that joined by the API alone, whose token lets it serve these.
async fn agent(cluster: &Cluster, name: &str, resources: &[&str]) -> Channel {
    let mut joining = Joining::new("node", name);
    joining.token.resources = resources.iter().map(|pattern| (*pattern).to_owned()).collect();
    joining.token.own_labels = [("*".to_owned(), "*".to_owned())].into();
    joining.join(cluster).await.unwrap().channel
}

fn yaml(name: &str, metadata: &str, spec: &str) -> String {
    format!(
        "kind: app\nversion: v1\nmetadata: {{name: {name}{metadata}}}\nspec: {{uri: 'tcp://10.0.0.7:80'{spec}}}\n"
    )
}

fn report(kind: &str, yaml: &str) -> v1::ResourceReport {
    v1::ResourceReport { kind: kind.to_owned(), yaml: yaml.to_owned() }
}

async fn beat(agent: &Channel, apps: &[String], health: &[(&str, &str)]) -> Vec<String> {
    let health = health.iter().map(|(name, problem)| v1::ResourceHealth {
        kind: "app".to_owned(),
        name: (*name).to_owned(),
        healthy: problem.is_empty(),
        problem: (*problem).to_owned(),
    });
    let request = v1::HeartbeatRequest {
        resources: apps.iter().map(|yaml| report("app", yaml)).collect(),
        resource_health: health.collect(),
        kinds: vec!["app".to_owned(), "node".to_owned(), "mainframe".to_owned()],
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

fn apps() -> v1::ListCatalogueRequest {
    v1::ListCatalogueRequest { kind: "app".to_owned(), ..Default::default() }
}

async fn list(channel: Channel, request: v1::ListCatalogueRequest) -> Vec<v1::CatalogueItem> {
    CatalogueClient::new(channel).list(request).await.unwrap().into_inner().items
}

fn names(list: &[v1::CatalogueItem]) -> Vec<&str> {
    list.iter().map(|item| item.name.as_str()).collect()
}

async fn codes(cluster: &Cluster, code: &str) -> Vec<serde_json::Value> {
    support::events(&mut cluster.admin().await, code).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_agents_report_of_the_catalogue_is_listed_and_goes_with_them() {
    let cluster = Cluster::without_node().await;
    let local = async || support::admin_channel(&cluster.data_dir()).await;
    let (one, two) = (agent(&cluster, "a-1", &["app/*"]).await, agent(&cluster, "a-2", &["app/*"]).await);
    let wiki = yaml("wiki", ", labels: {env: dev}, description: Notes", "");
    let pay = yaml("pay", ", labels: {env: prod}", "");
    assert!(beat(&one, &[wiki.clone(), pay.clone()], &[("wiki", ""), ("pay", "refused\n")]).await.is_empty());
    let told = beat(&two, std::slice::from_ref(&wiki), &[("wiki", "away"), ("pay", "")]).await;
    assert!(
        told.len() == 1 && told[0].contains("the application wiki: a-1 has one of this name"),
        "{told:?}"
    );
    let all = list(local().await, apps()).await;
    assert_eq!(names(&all), ["pay", "wiki"]);
    assert_eq!(
        (all[0].health.as_str(), all[0].problem.as_str()),
        ("unhealthy", "refused "),
        "a-2 serves it not"
    );
    assert_eq!((all[1].health.as_str(), all[1].origin.as_str()), ("healthy", "static"));
    assert_eq!((all[1].agents.as_slice(), all[1].description.as_str()), (&["a-1".to_owned()][..], "Notes"));
    assert_eq!((all[1].end_to_end_agents.len(), all[1].shown["uri"].as_str()), (1, "tcp://10.0.0.7:80"));

    let alice = user(&cluster, "alice", "{allow: {app_labels: {env: dev}}}").await;
    assert_eq!(names(&list(alice.authority().await, apps()).await), ["wiki"], "only what a role allows");
    let without = cluster.user("without-rights", &[]).await;
    assert!(list(without.authority().await, apps()).await.is_empty());
    let pick = |search: &str, query: &str| v1::ListCatalogueRequest {
        search: search.to_owned(),
        query: query.to_owned(),
        ..apps()
    };
    assert_eq!(names(&list(local().await, pick("PROD", "")).await), ["pay"]);
    assert_eq!(names(&list(local().await, pick("", "labels[\"env\"] == \"dev\" && online")).await), ["wiki"]);
    let page = v1::ListCatalogueRequest { limit: 1, ..apps() };
    let page = CatalogueClient::new(local().await).list(page).await.unwrap().into_inner();
    assert_eq!((names(&page.items).as_slice(), page.next.as_str()), (&["pay"][..], "pay"));
    assert_eq!(
        names(&list(local().await, v1::ListCatalogueRequest { after: page.next, ..apps() }).await),
        ["wiki"]
    );

    // Names are their first owner's, and what stands in a configuration is changed there.
    let refused = create(&cluster, yaml("wiki", "", ", via: a-2")).await.unwrap_err();
    assert!(refused.message().contains("stands in the configuration of a-1"), "{refused:?}");
    assert_eq!(remove(&cluster, "app", "wiki").await.unwrap_err().code(), Code::FailedPrecondition);
    assert!(beat(&one, &[pay], &[]).await.is_empty());
    assert_eq!(names(&list(local().await, apps()).await), ["pay"]);
    assert!(beat(&two, &[wiki], &[]).await.is_empty(), "the name is free now");
    remove(&cluster, "node", "a-2").await.unwrap();
    assert_eq!(names(&list(local().await, apps()).await), ["pay"]);
    assert_eq!(codes(&cluster, "SP1293W").await.len(), 1, "on record once");
    let made = codes(&cluster, "SP1290I").await;
    let of_agent = |event: &&serde_json::Value| event["user"] == "node:a-1";
    assert_eq!(made.iter().find(of_agent).unwrap()["fields"]["resource_kind"], "app");
    assert!(codes(&cluster, "SP1292I").await.len() >= 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn attacks_a_node_serves_nothing_that_its_token_does_not_name() {
    let cluster = Cluster::without_node().await;
    let thief = Joining::new("node", "thief").join(&cluster).await.unwrap().channel;
    let told = beat(&thief, &[yaml("pay", ", labels: {env: prod}", "")], &[]).await;
    assert!(told.len() == 1 && told[0].contains("does not let it serve"), "{told:?}");
    assert!(told[0].contains("--resources app/pay"), "{told:?}");
    // A pattern for databases is none for the catalogue, and labels are the token's to give.
    let mut bounded = Joining::new("node", "a-1");
    bounded.token.databases = vec!["*".to_owned()];
    bounded.token.resources = vec!["app/dev-*".to_owned()];
    bounded.token.labels = [("env".to_owned(), "dev".to_owned())].into();
    let bounded = bounded.join(&cluster).await.unwrap().channel;
    let (mine, other) = (yaml("dev-1", ", labels: {env: prod, team: pay}", ""), yaml("pay", "", ""));
    let told = beat(&bounded, &[mine, other], &[]).await;
    assert_eq!(told.len(), 2, "{told:?}");
    let all = list(support::admin_channel(&cluster.data_dir()).await, apps()).await;
    assert_eq!(names(&all), ["dev-1"]);
    assert_eq!(all[0].labels, [("env".to_owned(), "dev".to_owned())].into());
    // Documents of other kinds, and more than a document.
    let mut fleet = FleetClient::new(bounded);
    let resources = vec![
        report("mainframe", "kind: mainframe\n"),
        report("node", "kind: node\n"),
        report("db", "kind: db\nversion: v1\nmetadata: {name: x}\nspec: {address: 'x:1'}\n"),
        report("app", &format!("kind: app\n# {}", "x".repeat(70_000))),
        report("app", "a: &a [x]\nb: *a\n"),
    ];
    let request = v1::HeartbeatRequest { resources, ..Default::default() };
    let told = fleet.heartbeat(request).await.unwrap().into_inner().problems;
    assert_eq!(told.len(), 5, "{told:?}");
    for (line, kind) in told.iter().zip(["mainframe", "node", "db"]) {
        assert!(line.contains(&format!("nothing of the kind \"{kind}\" is reported so")), "{line}");
    }
    for pattern in ["pay", "db/*", "*", "mainframe/x"] {
        let mut wrong = Joining::new("node", "a-2");
        wrong.token.resources = vec![pattern.to_owned()];
        let refused = wrong.join(&cluster).await.err().unwrap();
        assert!(refused.message().contains("does not begin with a kind"), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn attacks_an_agent_says_nothing_of_the_health_of_what_it_does_not_serve() {
    let cluster = Cluster::without_node().await;
    let (one, thief) = (agent(&cluster, "a-1", &[]).await, agent(&cluster, "a-2", &["app/*"]).await);
    let local = async || support::admin_channel(&cluster.data_dir()).await;
    let health =
        async || list(local().await, apps()).await.into_iter().map(|item| (item.health, item.problem));
    create(&cluster, yaml("pay", "", ", via: a-1")).await.unwrap();
    assert!(beat(&one, &[], &[]).await.is_empty());
    // None of its agents has reported: what other agents report, well or not, does not count.
    for problem in ["", "away"] {
        beat(&thief, &[], &[("pay", problem), ("none", problem)]).await;
        let all: Vec<_> = health().await.collect();
        assert_eq!(all, [("unknown".to_owned(), String::new())]);
    }
    beat(&one, &[], &[("pay", "10.0.0.7:80 refused the connection")]).await;
    beat(&thief, &[], &[("pay", "")]).await;
    let all: Vec<_> = health().await.collect();
    assert_eq!(all, [("unhealthy".to_owned(), "10.0.0.7:80 refused the connection".to_owned())]);
    // As long as it serves it, and no longer.
    create(&cluster, yaml("pay", "", ", via: [a-1, a-2]")).await.unwrap();
    beat(&thief, &[], &[("pay", "")]).await;
    assert_eq!(health().await.next().unwrap().0, "healthy");
    create(&cluster, yaml("pay", "", ", via: a-1")).await.unwrap();
    assert_eq!(health().await.next().unwrap().0, "unhealthy");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_does_not_say_that_it_can_serve_a_kind_is_led_to_by_no_program() {
    let cluster = Cluster::without_node().await;
    let old = agent(&cluster, "a-1", &[]).await;
    create(&cluster, yaml("wiki", "", ", via: a-1")).await.unwrap();
    let local = support::admin_channel(&cluster.data_dir()).await;
    // As an agent of an earlier release, which has no word for kinds; and as one of a later, which has others.
    for kinds in [vec![], vec!["mainframe".to_owned()]] {
        let request = v1::HeartbeatRequest { kinds, databases_end_to_end: true, ..Default::default() };
        FleetClient::new(old.clone()).heartbeat(request).await.unwrap();
        let all = list(local.clone(), apps()).await;
        assert_eq!((all[0].end_to_end_agents.len(), all[0].health.as_str()), (0, "unknown"));
        assert_eq!(all[0].agents, ["a-1"], "so that a program can say whose agents those are");
    }
    beat(&old, &[], &[]).await;
    assert_eq!(list(local, apps()).await[0].end_to_end_agents.len(), 1, "it was updated");
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_that_reach_it_are_named_before_those_that_do_not() {
    let cluster = Cluster::without_node().await;
    let mut agents = Vec::new();
    for name in ["a-1", "a-2", "a-3"] {
        let mut joining = Joining::new("node", name);
        joining.token.resources = vec!["app/*".to_owned()];
        let joined = joining.join(&cluster).await.unwrap();
        agents.push((joined.id.to_string(), joined.channel));
    }
    create(&cluster, yaml("wiki", "", ", via: [a-1, a-2, a-3]")).await.unwrap();
    let order = async |health: [Option<&str>; 3]| {
        for ((_, channel), health) in agents.iter().zip(health) {
            let said: Vec<_> = health.into_iter().map(|problem| ("wiki", problem)).collect();
            beat(channel, &[], &said).await;
        }
        let all = list(support::admin_channel(&cluster.data_dir()).await, apps()).await;
        let place = |id: &String| agents.iter().position(|(of, _)| of == id).unwrap();
        all[0].end_to_end_agents.iter().map(place).collect::<Vec<_>>()
    };
    assert_eq!(order([None, None, None]).await, [0, 1, 2], "as the document has them");
    assert_eq!(order([Some("refused"), None, Some("")]).await, [2, 1, 0]);
    assert_eq!(order([Some("refused"), Some(""), Some("refused")]).await, [1, 0, 2]);
    assert_eq!(order([Some(""), Some(""), Some("")]).await, [0, 1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn attacks_a_host_reads_and_lists_nothing_of_the_catalogue() {
    let cluster = Cluster::without_node().await;
    let node = agent(&cluster, "a-1", &["app/*"]).await;
    let proxy = Joining::new("proxy", "edge").join(&cluster).await.unwrap().channel;
    for (name, via) in [("own", "a-1"), ("secret", "a-2")] {
        create(&cluster, yaml(name, "", &format!(", via: {via}"))).await.unwrap();
    }
    for host in [&node, &proxy] {
        let mut admin = AdminClient::new(host.clone());
        for name in ["own", "secret", "none"] {
            let get = v1::GetResourceRequest { kind: "app".to_owned(), name: name.to_owned() };
            let refused = admin.get_resource(get).await.unwrap_err();
            assert_eq!(refused.code(), Code::PermissionDenied, "{name}: {refused:?}");
        }
        let all = v1::ListResourcesRequest { kind: "app".to_owned(), ..Default::default() };
        let refused = admin.list_resources(all).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    }
    // Of databases, nodes and the policy no more: what concerns a host it is told by its watch.
    for host in [&node, &proxy] {
        let mut admin = AdminClient::new(host.clone());
        for kind in ["db", "node", "role", "lock", "session_policy", "user", "token"] {
            let all = v1::ListResourcesRequest { kind: kind.to_owned(), ..Default::default() };
            let refused = admin.list_resources(all).await.unwrap_err();
            assert_eq!(refused.code(), Code::PermissionDenied, "{kind}: {refused:?}");
        }
        let mut cluster = ClusterClient::new(host.clone());
        let refused = cluster.list_nodes(v1::ListNodesRequest::default()).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    }
    let refused = codes(&cluster, "SP3001W").await;
    for user in ["node:a-1", "proxy:edge"] {
        for method in ["Admin.GetResource", "Admin.ListResources"] {
            let told =
                |event: &serde_json::Value| event["user"] == user && event["fields"]["method"] == method;
            assert!(refused.iter().any(told), "{user} {method}: {refused:?}");
        }
    }
}

async fn next(watch: &mut tonic::Streaming<v1::WatchEvent>) -> Change {
    watch.message().await.unwrap().unwrap().event.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn administrators_write_resources_and_agents_hear_of_their_own() {
    let cluster = Cluster::without_node().await;
    let (one, two) = (agent(&cluster, "a-1", &[]).await, agent(&cluster, "a-2", &[]).await);
    let watch = async |channel: &Channel| {
        let request = v1::WatchRequest { kinds: vec!["app".to_owned()] };
        FleetClient::new(channel.clone()).watch(request).await.unwrap().into_inner()
    };
    let (mut first, mut second) = (watch(&one).await, watch(&two).await);
    for watch in [&mut first, &mut second] {
        assert!(matches!(next(watch).await, Change::SnapshotDone(_)));
    }
    let refused = create(&cluster, yaml("wiki", "", "")).await.unwrap_err();
    assert!(refused.message().contains("app: spec.via"), "{refused:?}");
    let refused = create(&cluster, yaml("wiki", "", ", via: a-1, url: x")).await.unwrap_err();
    assert!(refused.message().contains("did you mean uri?"), "{refused:?}");
    let refused =
        create(&cluster, yaml("wiki", ", description: \"a\\e[2J\"", ", via: a-1")).await.unwrap_err();
    assert!(refused.message().contains("has the character"), "{refused:?}");
    let made = create(&cluster, yaml("wiki", ", labels: {env: dev}", ", via: a-1")).await.unwrap();
    assert!(made.yaml.contains("a-1") && made.kind == "app", "{made:?}");
    let put = next(&mut first).await;
    assert!(matches!(&put, Change::Put(one) if one.kind == "app" && one.name == "wiki"), "{put:?}");

    let again = v1::CreateResourceRequest { yaml: yaml("wiki", "", ", via: a-1"), replace: false };
    let there = cluster.admin().await.create_resource(again).await.unwrap_err();
    assert_eq!((there.code(), there.message()), (Code::AlreadyExists, "app/wiki exists already"));

    let moved = yaml("wiki", ", labels: {env: dev}", ", via: [a-2]");
    let update = v1::UpdateResourceRequest { yaml: moved, revision: made.revision };
    let mut admin = cluster.admin().await;
    admin.update_resource(update.clone()).await.unwrap();
    let overtaken = admin.update_resource(update).await.unwrap_err();
    assert_eq!(overtaken.code(), Code::Aborted);
    assert!(overtaken.message().starts_with("app/wiki was changed meanwhile"), "{overtaken:?}");
    let gone = next(&mut first).await;
    assert!(matches!(&gone, Change::Delete(one) if one.kind == "app" && one.name == "wiki"), "{gone:?}");
    let put = next(&mut second).await;
    assert!(matches!(&put, Change::Put(one) if one.name == "wiki"), "{put:?}");

    let get = v1::GetResourceRequest { kind: "app".to_owned(), name: "wiki".to_owned() };
    assert!(admin.get_resource(get.clone()).await.unwrap().into_inner().yaml.contains("a-2"));
    let all = v1::ListResourcesRequest { kind: "app".to_owned(), ..Default::default() };
    let all = admin.list_resources(all).await.unwrap().into_inner().resources;
    assert_eq!((all.len(), all[0].name.as_str()), (1, "wiki"));
    remove(&cluster, "app", "wiki").await.unwrap();
    assert!(matches!(next(&mut second).await, Change::Delete(one) if one.name == "wiki"));
    assert_eq!(admin.get_resource(get).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(remove(&cluster, "app", "wiki").await.unwrap_err().code(), Code::NotFound);
    for code in ["SP1290I", "SP1291I", "SP1292I"] {
        assert_eq!(codes(&cluster, code).await[0]["fields"]["name"], "wiki", "{code}");
    }
}

/// Of every kind that the API names, the record of that kind is read: nothing falls to another's.
#[tokio::test(flavor = "multi_thread")]
async fn every_kind_is_read_and_listed_as_itself() {
    let cluster = Cluster::without_node().await;
    let mut admin = cluster.admin().await;
    let get = |kind: &str| v1::GetResourceRequest { kind: kind.to_owned(), name: "none-such".to_owned() };
    let kinds = admin.get_resource(get("mainframe")).await.unwrap_err();
    let (_, kinds) = kinds.message().split_once("kinds are ").unwrap();
    let kinds: Vec<&str> = kinds.split(", ").collect();
    assert!(kinds.contains(&"app") && kinds.contains(&"node"), "{kinds:?}");
    for kind in kinds {
        let missing = admin.get_resource(get(kind)).await.unwrap_err();
        assert_eq!(missing.code(), Code::NotFound, "{kind}: {missing:?}");
        assert!(missing.message().contains(kind), "{kind}: {missing:?}");
        let all = v1::ListResourcesRequest { kind: kind.to_owned(), ..Default::default() };
        assert!(admin.list_resources(all).await.is_ok(), "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_knows_no_applications_is_told_nothing_of_them() {
    let cluster = Cluster::without_node().await;
    let agent = agent(&cluster, "a-1", &[]).await;
    create(&cluster, yaml("wiki", "", ", via: a-1")).await.unwrap();
    let both = "{allow: {app_labels: {'*': '*'}, db_labels: {env: dev}, rules: [{resources: [app, db], verbs: [list]}, \
                {resources: [app], verbs: [read]}]}, deny: {app_labels: {env: prod}}}";
    user(&cluster, "alice", both).await;
    let lock = |name: &str, target: &str| {
        format!("kind: lock\nversion: v1\nmetadata: {{name: {name}}}\nspec: {{target: {{{target}}}}}\n")
    };
    create(&cluster, lock("one", "app: wiki")).await.unwrap();
    let mut now = Vec::new();
    for kinds in [&["role", "lock", "app"][..], &["role", "lock"]] {
        let kinds = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        let request = v1::WatchRequest { kinds };
        let mut watch = FleetClient::new(agent.clone()).watch(request).await.unwrap().into_inner();
        let mut told = Vec::new();
        while let Change::Put(resource) = next(&mut watch).await {
            told.push(resource);
        }
        now.push((watch, told));
    }
    let said = |told: &[v1::Resource]| {
        let role = told.iter().find(|one| one.name == "alice-role").unwrap();
        let lock = told.iter().any(|one| one.kind == "lock");
        (role.yaml.contains("app"), role.yaml.contains("db_labels"), lock)
    };
    assert_eq!(said(&now[0].1), (true, true, true));
    assert_eq!(said(&now[1].1), (false, true, false), "a host of an earlier release");
    let access = now[1].1.iter().find(|one| one.name == "access").unwrap();
    assert!(!access.yaml.contains("app_labels") && access.yaml.contains("node_labels"), "{access:?}");
    // What comes afterwards reaches it, and a lock that goes to what it does not know is gone for it.
    let (mut old, _) = now.pop().unwrap();
    for target in ["user: alice", "app: wiki", "user: alice"] {
        create(&cluster, lock("one", target)).await.unwrap();
    }
    remove(&cluster, "lock", "one").await.unwrap();
    for put in [true, false, true, false] {
        let change = next(&mut old).await;
        let (kind, was_put) = match &change {
            Change::Put(one) => (one.kind.as_str(), true),
            Change::Delete(one) => (one.kind.as_str(), false),
            Change::SnapshotDone(_) => panic!("a second snapshot"),
        };
        assert_eq!((kind, was_put), ("lock", put), "{change:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn access_to_the_catalogue_is_explained_and_locks_keep_out() {
    let cluster = Cluster::without_node().await;
    let agent = agent(&cluster, "a-1", &["app/*"]).await;
    beat(&agent, &[yaml("wiki", ", labels: {env: dev}", "")], &[("wiki", "")]).await;
    let alice = user(&cluster, "alice", "{allow: {app_labels: {env: dev}}}").await;
    let bob = user(&cluster, "bob", "{allow: {app_labels: {env: prod}}}").await;
    let ask = |user: &str, name: &str| v1::ExplainCatalogueAccessRequest {
        user: user.to_owned(),
        kind: "app".to_owned(),
        name: name.to_owned(),
    };
    let mut own = CatalogueClient::new(alice.authority().await);
    let why = own.explain_access(ask("alice", "wiki")).await.unwrap().into_inner();
    assert!(why.allowed && why.summary.contains("role \"alice-role\" allow.app_labels"), "{why:?}");
    assert!(why.details.iter().any(|line| line == "the application is healthy"), "{why:?}");
    let refused = own.explain_access(ask("bob", "wiki")).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    // What one may not see is as what is not there.
    let mut his = CatalogueClient::new(bob.authority().await);
    let unseen = his.explain_access(ask("bob", "wiki")).await.unwrap().into_inner();
    let absent = his.explain_access(ask("bob", "gone")).await.unwrap().into_inner();
    assert_eq!(unseen.summary.replace("wiki", "gone"), absent.summary);
    assert!(!unseen.allowed && unseen.details.is_empty(), "{unseen:?}");

    let lock = |name: &str| {
        let yaml = format!(
            "kind: lock\nversion: v1\nmetadata: {{name: l}}\nspec: {{target: {{app: {name}}}, message: closed}}\n"
        );
        v1::CreateResourceRequest { yaml, replace: false }
    };
    let mut admin = cluster.admin().await;
    let missing = admin.create_resource(lock("gone")).await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
    assert!(missing.message().contains("there is no application gone"), "{missing:?}");
    admin.create_resource(lock("wiki")).await.unwrap();
    let why = own.explain_access(ask("alice", "wiki")).await.unwrap().into_inner();
    assert!(!why.allowed && why.summary.contains("application wiki is locked: closed"), "{why:?}");
    let refused = CatalogueClient::new(agent).list(apps()).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "hosts do not list");
    let none =
        own.list(v1::ListCatalogueRequest { kind: "db".to_owned(), ..Default::default() }).await.unwrap_err();
    assert_eq!(none.code(), Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_says_of_an_application_that_is_down_why_and_that_it_is_up_again() {
    let second = std::time::Duration::from_secs(1);
    let cluster = Cluster::start(|config| {
        let node = support::node_section("web-1");
        config.node = Some(sallyport_server::config::NodeSection { check_interval: second, ..node });
    });
    let cluster = cluster.await;
    cluster.running.ready(support::PATIENCE).await.unwrap();
    let application = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = application.local_addr().unwrap();
    let document = yaml("wiki", "", ", via: web-1").replace("10.0.0.7:80", &address.to_string());
    let local = support::admin_channel(&cluster.data_dir()).await;
    let until = async |health: &str| {
        let looking = async {
            loop {
                let all = list(local.clone(), apps()).await;
                if let Some(one) = all.into_iter().find(|one| one.health == health) {
                    return one;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(support::PATIENCE, looking).await.unwrap_or_else(|_| panic!("never {health}"))
    };
    create(&cluster, document).await.unwrap();
    assert_eq!(until("healthy").await.problem, "");
    drop(application);
    assert_eq!(until("unhealthy").await.problem, format!("{address} refused the connection"));
    let _application = tokio::net::TcpListener::bind(address).await.unwrap();
    assert_eq!(until("healthy").await.problem, "");
}
