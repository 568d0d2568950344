//! Text that shows something else, in what hosts and administrators say.

use sallyport_wire::v1;
use tonic::Code;

use crate::support::Cluster;
use crate::support::member::Joining;

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
