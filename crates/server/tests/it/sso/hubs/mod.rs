//! Single sign-on by GitHub, whose API a strict server on loopback speaks, and by GitLab.

mod fake;
mod mixed;

use std::path::PathBuf;

use sallyport_wire::v1::admin_client::AdminClient;
use serde_json::{Value, json};
use tonic::Code;

use self::fake::{Account, GitHub};
use super::provider::SECRET;
use super::*;
use crate::support::{events, is};

/// A cluster with a GitHub beside it.
struct Site {
    cluster: Cluster,
    hub: GitHub,
    directory: tempfile::TempDir,
}

fn account(id: u64, login: &str, teams: &[(&str, u64)]) -> Account {
    Account {
        id: json!(id),
        login: login.to_owned(),
        organizations: vec![("Acme", 5, "active")],
        teams: teams.iter().map(|(slug, id)| (5, "Acme", (*slug).to_owned(), *id)).collect(),
        emails: json!([
            { "email": "unproven@example.com", "primary": false, "verified": false, "visibility": null },
            { "email": "octo@example.com", "primary": true, "verified": true, "visibility": "private" },
        ]),
    }
}

impl Site {
    async fn new() -> Self {
        let site = Self {
            cluster: Cluster::without_node().await,
            hub: GitHub::start().await,
            directory: tempfile::tempdir().unwrap(),
        };
        connect(&site.cluster, site.document("")).await;
        site
    }

    fn secret(&self) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.directory.path().join("secret");
        std::fs::write(&path, format!("{SECRET}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    fn document(&self, more: &str) -> String {
        fake::document("corp", &self.hub.url, &self.secret(), more)
    }

    async fn log_in(&self, pages: &Pages<'_>, person: &str) -> Result<(User, v1::LoginResponse), Status> {
        let begun = pages.begin().await;
        let away = pages.send(&begun.id, "corp").await?;
        let answer = self.hub.authorize(&away.url, person);
        let proven = pages.answer(&answer, &away.binding).await?;
        pages.finish(&begun, &proven.redirect).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_persons_teams_at_github_are_roles_here_on_whichever_page_they_are() {
    let site = Site::new().await;
    let mut octo = account(583_231, "Octo-Cat", &[]);
    octo.teams = (0..230).map(|number| (5, "Acme", format!("team-{number}"), 1000 + number)).collect();
    octo.teams.push((5, "Acme", "Ops-EU".to_owned(), 77));
    // An organisation that the person made, with a team of the same name.
    octo.organizations.push(("mine", 6, "active"));
    site.hub.has("octo", octo.clone());
    octo.teams = vec![(6, "Acme", "ops".to_owned(), 78), (6, "mine", "ops".to_owned(), 77)];
    octo.id = json!(1);
    octo.login = "mallory".to_owned();
    site.hub.has("mallory", octo.clone());
    // Invited, and not there yet.
    octo.organizations = vec![("Acme", 5, "pending")];
    octo.teams = vec![(5, "Acme", "ops".to_owned(), 77)];
    site.hub.has("invited", octo.clone());
    // Pays the bills, and is no member.
    octo.organizations = vec![("Acme", 5, "billing_manager")];
    site.hub.has("payer", octo.clone());
    octo.organizations.clear();
    site.hub.has("stranger", octo);
    let pages = Pages::of(&site.cluster).await;
    let (user, login) = site.log_in(&pages, "octo").await.unwrap();
    assert_eq!(login.roles, ["access", "auditor"]);
    assert_eq!(user.name, "octo-cat");
    let team_pages = site.hub.asked().iter().filter(|asked| asked.ends_with("/user/teams")).count();
    assert_eq!(team_pages, 3);
    for person in ["mallory", "invited", "payer", "stranger"] {
        let status = site.log_in(&pages, person).await.map(drop).unwrap_err();
        assert!(is(&status, Code::PermissionDenied, "gives you no role here"), "{person}: {status:?}");
    }
    let logged = events(&mut site.cluster.admin().await, "SP1050I").await;
    assert_eq!(
        (logged[0]["fields"]["issuer"].as_str(), logged[0]["fields"]["subject"].as_str()),
        (Some(site.hub.url.as_str()), Some("583231"))
    );
    let trace = logged[0]["fields"]["trace"].as_str().unwrap();
    assert!(trace.contains("rule 1 (teams): acme/ops-eu gives access"), "{trace}");
    assert!(!site.hub.asked().iter().any(|asked| asked.ends_with("/user/emails")), "no rule looks at them");
    site.hub.is_content();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renamed_account_keeps_its_access_and_the_next_owner_of_its_handle_has_none() {
    let site = Site::new().await;
    let pages = Pages::of(&site.cluster).await;
    site.hub.has("octo", account(583_231, "octocat", &[("ops", 1)]));
    site.log_in(&pages, "octo").await.unwrap();
    site.hub.has("octo", account(583_231, "octodog", &[("ops", 1)]));
    site.hub.has("thief", account(999, "octocat", &[("ops", 1)]));
    let status = site.log_in(&pages, "thief").await.map(drop).unwrap_err();
    assert!(is(&status, Code::PermissionDenied, "the name octocat belongs to another user"), "{status:?}");
    let (user, _) = site.log_in(&pages, "octo").await.unwrap();
    assert_eq!(user.name, "octocat");
    // Nor has an account whose id only looks like theirs.
    for id in [json!("583231"), json!(0), json!(-1), json!(583_231.0), json!(null)] {
        let mut odd = account(1, "octocat", &[("ops", 1)]);
        odd.id = id.clone();
        site.hub.has("odd", odd);
        let status = site.log_in(&pages, "odd").await.map(drop).unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{id}: {status:?}");
    }
    site.hub.is_content();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_github_does_not_say_is_told_plainly_and_taken_for_no_absence() {
    let site = Site::new().await;
    let pages = Pages::of(&site.cluster).await;
    site.hub.has("octo", account(583_231, "octocat", &[("ops", 1)]));
    site.log_in(&pages, "octo").await.unwrap();
    let membership = "/api/v3/user/memberships/orgs/acme";
    let message =
        |text: &str| json!({ "message": text, "documentation_url": "https://docs.github.com/rest" });
    let required =
        "x-github-sso: required; url=https://github.com/orgs/acme/sso?authorization_request=AZSCK\r\n";
    let cases: [(&str, u16, &str, Value, &str); 13] = [
        (
            membership,
            403,
            required,
            message("Resource protected by organization SAML enforcement."),
            "organization_sso",
        ),
        (
            membership,
            403,
            "",
            message("the `acme` organization has enabled OAuth App access restrictions"),
            "organization_hidden",
        ),
        (membership, 403, "x-ratelimit-remaining: 0\r\n", message("API rate limit exceeded"), "bad_answer"),
        (
            membership,
            200,
            "",
            json!({ "state": "active", "organization": { "login": "other", "id": 5 } }),
            "bad_answer",
        ),
        (membership, 302, "location: http://127.0.0.1:1/\r\n", json!({}), "bad_answer"),
        ("/api/v3/user/teams", 500, "", json!({}), "bad_answer"),
        ("/api/v3/user/teams", 200, "", json!({ "teams": [] }), "bad_answer"),
        ("/api/v3/user/teams", 200, "", json!(vec![json!({}); 101]), "bad_answer"),
        (
            "/api/v3/user/teams",
            200,
            "",
            json!([{ "slug": "ops", "organization": { "id": 5 } }]),
            "bad_answer",
        ),
        ("/api/v3/user/teams", 200, "link: <x>; rel=\"next\"\r\n", json!([]), "claim_elsewhere"),
        ("/api/v3/user", 401, "", message("Bad credentials"), "bad_answer"),
        (
            "/login/oauth/access_token",
            200,
            "",
            json!({ "access_token": "x", "token_type": "mac" }),
            "bad_answer",
        ),
        (
            "/login/oauth/access_token",
            200,
            "",
            json!({ "error": "incorrect_client_credentials" }),
            "refused_by_provider",
        ),
    ];
    for (path, status, headers, body, reason) in cases {
        site.hub.is_itself();
        site.hub.answers(path, status, headers, &body);
        let refused = site.log_in(&pages, "octo").await.map(drop).unwrap_err();
        assert!(!refused.message().contains('/'), "{refused:?}");
        let told = events(&mut site.cluster.admin().await, "SP1050W").await;
        assert_eq!(told.last().unwrap()["fields"]["reason"], reason, "{path} {status} {body}");
    }
    site.hub.is_itself();
    site.hub.hides(5);
    let refused = site.log_in(&pages, "octo").await.map(drop).unwrap_err();
    assert!(
        is(&refused, Code::PermissionDenied, "acme at GitHub asks for its own single sign-on"),
        "{refused:?}"
    );
    // One that does not count here may hide what it likes; and the person is a user still.
    site.hub.is_itself();
    site.hub.hides(6);
    site.log_in(&pages, "octo").await.unwrap();
    let told = events(&mut site.cluster.admin().await, "SP1050W").await;
    let message = |word: &str| {
        let event = told.iter().find(|event| event["fields"]["reason"] == word).unwrap();
        event["message"].as_str().unwrap().to_owned()
    };
    assert!(message("organization_sso").contains("authorization_request=AZSCK"));
    assert!(message("organization_hidden").contains("OAuth App access restrictions"));
    assert!(message("refused_by_provider").contains("check client_id"));
    let made = events(&mut site.cluster.admin().await, "SP1002I").await;
    let of = made.iter().filter(|event| event["fields"]["name"] == "octocat").count();
    assert_eq!(of, 1, "the user has never ended");
    site.hub.is_content();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_of_github_is_good_once_and_in_the_browser_that_began() {
    let site = Site::new().await;
    let pages = Pages::of(&site.cluster).await;
    site.hub.has("octo", account(583_231, "octocat", &[("ops", 1)]));
    site.hub.has("thief", account(999, "thief", &[("ops", 1)]));
    // In another browser: and by that it is spent.
    let away = pages.send(&pages.begin().await.id, "corp").await.unwrap();
    let answer = site.hub.authorize(&away.url, "octo");
    let status = pages.answer(&answer, "").await.unwrap_err();
    assert!(is(&status, Code::PermissionDenied, "another browser"), "{status:?}");
    let status = pages.answer(&answer, &away.binding).await.unwrap_err();
    assert!(is(&status, Code::PermissionDenied, "no login that waits"), "{status:?}");
    assert!(site.hub.asked().is_empty(), "no code was shown");
    // A stolen code in a login of the thief's own lacks the verifier.
    let victim = pages.send(&pages.begin().await.id, "corp").await.unwrap();
    let stolen = site.hub.authorize(&victim.url, "octo");
    let thief = pages.send(&pages.begin().await.id, "corp").await.unwrap();
    let mut own = site.hub.authorize(&thief.url, "thief");
    own.insert("code".to_owned(), stolen["code"].clone());
    let status = pages.answer(&own, &thief.binding).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    // The person says no.
    let away = pages.send(&pages.begin().await.id, "corp").await.unwrap();
    let state = members(away.url.split_once('?').unwrap().1)["state"].clone();
    let denied = BTreeMap::from([
        ("connector".to_owned(), "corp".to_owned()),
        ("state".to_owned(), state),
        ("error".to_owned(), "access_denied".to_owned()),
        ("error_description".to_owned(), "The user has denied your application access.".to_owned()),
    ]);
    let status = pages.answer(&denied, &away.binding).await.unwrap_err();
    assert!(is(&status, Code::PermissionDenied, "refused at the provider"), "{status:?}");
    site.hub.is_content();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connector_to_github_is_tried_written_listed_and_removed_under_its_kind() {
    let site = Site::new().await;
    let pages = Pages::of(&site.cluster).await;
    site.hub.has("octo", account(583_231, "octocat", &[("ops", 1)]));
    let mut sso = pages.administrator().await;
    let yaml = site.document("  username: '{{claims.email}}'\n").replace("corp", "other");
    let begin = v1::BeginSsoTestRequest { yaml, host_name: "here".to_owned() };
    let id = sso.begin_test(begin).await.unwrap().into_inner().page.unwrap().challenge;
    let away = pages.send(&id, "other").await.unwrap();
    assert!(members(&away.url)["scope"].contains("user:email"));
    pages.answer(&site.hub.authorize(&away.url, "octo"), &away.binding).await.unwrap();
    let asked = v1::AwaitSsoTestRequest { challenge: id };
    let result: Value =
        serde_json::from_str(&sso.await_test(asked).await.unwrap().into_inner().result_json).unwrap();
    assert_eq!(result["userinfo"]["teams"], json!(["acme/ops"]), "{result}");
    assert_eq!(result["userinfo"]["organization_ids"], json!([5]));
    assert_eq!(result["roles"], json!(["access"]));
    assert_eq!(
        (result["user"].as_str(), result["subject"].as_str()),
        (Some("octo@example.com"), Some("583231"))
    );
    site.hub.is_content();

    let channel = admin_channel(&site.cluster.data_dir()).await;
    let mut admin = AdminClient::new(channel);
    let get = |kind: &str| v1::GetResourceRequest { kind: kind.to_owned(), name: "corp".to_owned() };
    let list = |kind: &str| v1::ListResourcesRequest { kind: kind.to_owned(), ..Default::default() };
    let delete = |kind: &str| v1::DeleteResourceRequest { kind: kind.to_owned(), name: "corp".to_owned() };
    assert_eq!(admin.list_resources(list("github")).await.unwrap().into_inner().resources.len(), 1);
    let found = admin.get_resource(get("github")).await.unwrap().into_inner();
    assert!(found.yaml.starts_with("kind: github\n"), "{}", found.yaml);
    for other in ["oidc", "gitlab"] {
        assert!(
            admin.list_resources(list(other)).await.unwrap().into_inner().resources.is_empty(),
            "{other}"
        );
        assert_eq!(admin.get_resource(get(other)).await.unwrap_err().code(), Code::NotFound, "{other}");
        assert_eq!(admin.delete_resource(delete(other)).await.unwrap_err().code(), Code::NotFound, "{other}");
    }
    // No two connectors have one name: users and SCIM clients are of a connector by its name.
    let taken = "kind: gitlab\nversion: v1\nmetadata: {name: corp}\nspec: {client_id: a, client_secret_file: /etc/s, mapping: {roles: \
                 [{claim: groups, roles: [access]}]}}\n";
    for replace in [false, true] {
        let create = v1::CreateResourceRequest { yaml: taken.to_owned(), replace };
        let status = admin.create_resource(create).await.unwrap_err();
        assert!(is(&status, Code::AlreadyExists, "github/corp is there"), "{status:?}");
    }
    admin.delete_resource(delete("github")).await.unwrap();
    let removed = events(&mut site.cluster.admin().await, "SP1219I").await;
    assert_eq!(removed[0]["message"], "github/corp");
}
