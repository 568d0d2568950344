//! GitHub, as far as bounds go.

use serde_json::json;

use super::idp::Reply;
use super::*;
use crate::authority::sso::client::Credential;
use crate::authority::sso::connector::Protocol;
use crate::authority::sso::github::Hub;

#[tokio::test]
async fn a_github_that_takes_too_long_over_one_person_is_left_and_told_to_forget_its_token() {
    let idp = Idp::plain().await;
    let document = format!(
        "kind: github\nversion: v1\nmetadata: {{name: hub}}\nspec:\n  url: {}\n  insecure_loopback: true\n  client_id: app\n  \
         client_secret_file: /etc/s\n  organizations: [acme, other]\n  mapping: {{roles: [{{claim: teams, roles: [access]}}]}}\n",
        idp.issuer()
    );
    let connector = Connector::parse(&document).unwrap();
    let Protocol::GitHub(github) = &connector.protocol else { panic!("{:?}", connector.protocol) };
    let credential = Credential::Secret("s3cr:t".to_owned().into());
    let token = json!({ "access_token": "a-token", "token_type": "bearer" });
    idp.replies("/login/oauth/access_token", Reply::Json(200, token));
    idp.replies("/api/v3/user", Reply::Json(200, json!({ "id": 1, "login": "octo" })));
    let member = json!({ "state": "active", "role": "member", "organization": { "login": "acme", "id": 5 } });
    idp.replies("/api/v3/user/memberships/orgs/acme", Reply::Json(200, member));
    // In the middle of it all. One answer alone may take longer than what is left for everything.
    idp.replies("/api/v3/user/memberships/orgs/other", Reply::Silence);
    let hub = Hub::new(&connector, github, &credential).unwrap();
    let redirect = "https://proxy.example.com/web/sso/callback/hub";
    let error = hub.claims("the-code", "the-verifier", redirect).await.map(drop).unwrap_err();
    assert_eq!(error.word(), "bad_answer", "{error}");
    assert!(error.to_string().contains("not all that was asked came within 1 s"), "{error}");
    assert_eq!(idp.seen("/api/v3/user/memberships/orgs/other").len(), 1);
    assert!(idp.seen("/api/v3/user/teams?per_page=100&page=1").is_empty());
    let forgotten = idp.seen("/api/v3/applications/app/token");
    assert_eq!((forgotten.len(), forgotten[0].body.contains("a-token")), (1, true));
}
