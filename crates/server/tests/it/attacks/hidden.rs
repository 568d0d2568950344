//! Text that shows something else, in what hosts and administrators say.

use sallyport_access::text::Foreign;
use sallyport_wire::v1;
use sallyport_wire::v1::catalogue_client::CatalogueClient;
use tonic::Code;

use crate::support::member::Joining;
use crate::support::{Cluster, admin_channel};

/// Turns a terminal's text red, writes over what stands before it, and turns the direction of reading.
const HIDDEN: [&str; 4] = ["a\u{1b}[31mb", "a\rb", "a\nb", "a\u{202e}b"];

#[tokio::test(flavor = "multi_thread")]
async fn nothing_hidden_is_taken() {
    let cluster = Cluster::without_node().await;
    let web = Joining::new("node", "web-1").join(&cluster).await.unwrap();
    let mut admin = cluster.admin().await;
    for hidden in HIDDEN {
        let quoted = serde_json::to_string(hidden).unwrap();
        let text = || hidden.to_owned();
        let said = [
            v1::HeartbeatRequest { version: text(), ..Default::default() },
            v1::HeartbeatRequest { os_user: text(), ..Default::default() },
            v1::HeartbeatRequest { labels: [("env".to_owned(), text())].into(), ..Default::default() },
            v1::HeartbeatRequest { labels: [(text(), "prod".to_owned())].into(), ..Default::default() },
        ];
        for beat in said {
            let refused = web.beat(beat.clone()).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{beat:?}: {refused:?}");
        }
        let written = [
            format!(
                "kind: lock\nversion: v1\nmetadata: {{name: x}}\nspec: {{target: {{user: bob}}, message: {quoted}}}\n"
            ),
            format!("kind: lock\nversion: v1\nmetadata: {{name: x}}\nspec: {{target: {{node: {quoted}}}}}\n"),
            format!(
                "kind: lock\nversion: v1\nmetadata: {{name: {quoted}}}\nspec: {{target: {{user: bob}}}}\n"
            ),
            format!(
                "kind: user\nversion: v1\nmetadata: {{name: bob}}\nspec: {{roles: [access], traits: {{{quoted}: [x]}}}}\n"
            ),
        ];
        for yaml in written {
            let request = v1::CreateResourceRequest { yaml: yaml.clone(), replace: true };
            let refused = admin.create_resource(request).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{yaml}: {refused:?}");
        }
        let user = v1::CreateUserRequest {
            name: "bob".to_owned(),
            roles: vec!["access".to_owned()],
            traits: [(text(), v1::TraitValues { values: Vec::new() })].into(),
        };
        assert_eq!(admin.create_user(user).await.unwrap_err().code(), Code::InvalidArgument, "{hidden:?}");
        let mut token = Joining::new("node", "x");
        token.token.names = vec![text()];
        assert_eq!(token.token(&cluster).await.unwrap_err().code(), Code::InvalidArgument, "{hidden:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_hidden_is_told_of_what_an_agent_finds() {
    let cluster = Cluster::without_node().await;
    let web = Joining::new("node", "web-1").join(&cluster).await.unwrap();
    let yaml =
        "kind: app\nversion: v1\nmetadata: {name: wiki}\nspec: {uri: 'tcp://10.0.0.7:80', via: web-1}\n";
    let request = v1::CreateResourceRequest { yaml: yaml.to_owned(), replace: false };
    cluster.admin().await.create_resource(request).await.unwrap();
    let mut catalogue = CatalogueClient::new(admin_channel(&cluster.data_dir()).await);
    let long = "\u{202e}x".repeat(300);
    // A soft hyphen may stand in documents, and in nothing that is shown.
    for hidden in HIDDEN.into_iter().chain(["a\u{ad}b", "a\u{61c}b", &long]) {
        let health = v1::ResourceHealth {
            kind: "app".to_owned(),
            name: "wiki".to_owned(),
            healthy: false,
            problem: hidden.to_owned(),
        };
        web.beat(v1::HeartbeatRequest { resource_health: vec![health], ..Default::default() }).await.unwrap();
        let apps = v1::ListCatalogueRequest { kind: "app".to_owned(), ..Default::default() };
        let told = catalogue.list(apps).await.unwrap().into_inner().items.remove(0).problem;
        let shown: String = Foreign::new(hidden).as_str().chars().take(256).collect();
        assert_eq!(told, shown);
        assert_ne!(told, hidden);
    }
}
