//! Small rights that would be an editor's: each is tried by an account that may administer users, roles, tokens and
//! certificates, and nothing else.

use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_sal::Suite;
use sallyport_wire::v1;
use sallyport_wire::v1::admin_client::AdminClient;
use sallyport_wire::v1::certificates_client::CertificatesClient;
use tonic::{Code, Status};

use super::people::{account, invited, person, role, write};
use crate::support::{Cluster, User, events};

const DESK: &str = "{allow: {rules: [{resources: [user, role, token, certificate], verbs: ['*']}]}}";

async fn desk() -> (Cluster, User) {
    let cluster = Cluster::without_node().await;
    write(&cluster, role("desk", DESK)).await;
    write(&cluster, role("reader", "{allow: {rules: [{resources: [user], verbs: [read]}]}}")).await;
    invited(&cluster, "eve", &["editor"], &[]).await;
    invited(&cluster, "anna", &["access"], &[("internal.logins", &["root"])]).await;
    let dora = person(&cluster, "dora", &["desk"], &[]).await;
    (cluster, dora)
}

/// A person of the administrator's choice, by whom they would come in as another user.
fn link(name: &str) -> v1::LinkUserRequest {
    v1::LinkUserRequest { name: name.to_owned(), connector: "corp".to_owned(), subject: "dora".to_owned() }
}

fn refused(what: &str, outcome: Result<(), Status>) {
    let status = outcome.expect_err(what);
    assert_eq!(status.code(), Code::PermissionDenied, "{what}: {status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_administrator_gives_signs_resets_or_edits_more_than_they_hold() {
    let (cluster, dora) = desk().await;
    let channel = dora.authority().await;
    let mut admin = AdminClient::new(channel.clone());
    let mut certificates = CertificatesClient::new(channel);
    let everything = "{allow: {rules: [{resources: ['*'], verbs: ['*']}]}}";

    for (kind, subject) in [
        ("user", "eve"),
        ("user", "anna"),
        ("openssh_user", "eve"),
        ("openssh_user", "anna"),
        ("jwt", "eve"),
        ("agent_to_database", "postgres"),
        ("oidc", "eve"),
    ] {
        let request = v1::SignCertificateRequest {
            kind: kind.to_owned(),
            subject: subject.to_owned(),
            names: vec!["audience".to_owned()],
            ssh_public_key: SshKeyPair::generate(Suite::BalancedV1, "x").unwrap().public_line().to_owned(),
            tls_public_key: TlsKey::generate(Suite::BalancedV1).unwrap().spki_der().to_vec().into(),
            ..Default::default()
        };
        refused(&format!("sign {kind} {subject}"), certificates.sign_certificate(request).await.map(drop));
    }

    for yaml in [
        account("dora", &["desk", "editor"], &[]),
        account("dora", &["access"], &[("internal.logins", &["root"])]),
        account("mallory", &["editor"], &[]),
        account("mallory", &["access"], &[("internal.logins", &["root"])]),
        // Not even less of what is more.
        account("eve", &[], &[]),
        role("desk", everything),
        role("mine", everything),
        role("mine", "{allow: {logins: ['*'], node_labels: {'*': '*'}}}"),
        role("mine", "{allow: {db_labels: {'*': '*'}, db_users: ['*'], db_names: ['*']}}"),
        role("mine", "{allow: {join_sessions: [{roles: ['*'], modes: [peer]}]}}"),
        role("editor", "{}"),
        role("access", "{allow: {logins: ['*'], node_labels: {'*': '*'}}}"),
    ] {
        for replace in [false, true] {
            let request = v1::CreateResourceRequest { yaml: yaml.clone(), replace };
            refused(&yaml, admin.create_resource(request).await.map(drop));
        }
        let request = v1::UpdateResourceRequest { yaml: yaml.clone(), revision: 1 };
        refused(&yaml, admin.update_resource(request).await.map(drop));
    }
    let mallory = |roles: &[&str]| v1::CreateUserRequest {
        name: "mallory".to_owned(),
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        ..Default::default()
    };
    refused("create an editor", admin.create_user(mallory(&["editor"])).await.map(drop));
    for name in ["eve", "anna"] {
        let reset = v1::ResetUserRequest { name: name.to_owned() };
        refused("reset", admin.reset_user(reset).await.map(drop));
        refused("link", admin.link_user(link(name)).await.map(drop));
        let unlink = v1::UnlinkUserRequest { name: name.to_owned() };
        refused("unlink", admin.unlink_user(unlink).await.map(drop));
        let delete = v1::DeleteResourceRequest { kind: "user".to_owned(), name: name.to_owned() };
        refused("delete", admin.delete_resource(delete).await.map(drop));
    }
    let delete = v1::DeleteResourceRequest { kind: "role".to_owned(), name: "auditor".to_owned() };
    refused("delete a role", admin.delete_resource(delete).await.map(drop));
    for role in ["proxy", "node", "openssh"] {
        let token = v1::CreateTokenRequest { role: role.to_owned(), ..Default::default() };
        refused(&format!("a token for a {role}"), admin.create_token(token).await.map(drop));
    }

    // What they hold themselves they may give.
    admin.create_user(mallory(&["reader"])).await.unwrap();
    admin.reset_user(v1::ResetUserRequest { name: "mallory".to_owned() }).await.unwrap();
    let status = admin.link_user(link("mallory")).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound, "there is no connector: {status:?}");
    let yaml = role("reader", "{allow: {rules: [{resources: [user], verbs: [read, list]}]}}");
    admin.create_resource(v1::CreateResourceRequest { yaml, replace: true }).await.unwrap();
    let delete = v1::DeleteResourceRequest { kind: "user".to_owned(), name: "mallory".to_owned() };
    admin.delete_resource(delete).await.unwrap();

    let refusals = events(&mut cluster.admin().await, "SP3001W").await;
    let told = |method: &str, text: &str| {
        refusals.iter().any(|event| {
            event["user"] == "dora"
                && event["fields"]["method"] == method
                && event["message"].as_str().is_some_and(|message| message.contains(text))
        })
    };
    assert!(told("Admin.ResetUser", "does not hold all that eve holds"), "{refusals:?}");
    assert!(told("Admin.LinkUser", "does not hold all that eve holds"), "{refusals:?}");
    assert!(told("Admin.UnlinkUser", "does not hold all that eve holds"), "{refusals:?}");
    assert!(told("Certificates.SignCertificate", "does not hold all that eve holds"), "{refusals:?}");
    assert!(told("Admin.CreateToken", "does not hold all that a proxy holds"), "{refusals:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_is_not_taken_from_a_role_by_those_whom_it_holds_back() {
    let cluster = Cluster::without_node().await;
    write(&cluster, role("less", "{deny: {rules: [{resources: [ca], verbs: [update]}]}}")).await;
    let less = person(&cluster, "less", &["editor", "less"], &[]).await;
    let mut admin = AdminClient::new(less.authority().await);
    for yaml in [role("less", "{}"), account("less", &["editor"], &[]), account("other", &["editor"], &[])] {
        let request = v1::CreateResourceRequest { yaml: yaml.clone(), replace: true };
        refused(&yaml, admin.create_resource(request).await.map(drop));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_without_the_right_to_read_is_names_alone() {
    let cluster = Cluster::without_node().await;
    write(&cluster, role("lister", "{allow: {rules: [{resources: ['*'], verbs: [list]}]}}")).await;
    invited(&cluster, "anna", &["access"], &[("team", &["the-secret-one"])]).await;
    let lister = person(&cluster, "lister", &["lister"], &[]).await;
    let mut admin = AdminClient::new(lister.authority().await);
    for kind in ["user", "role", "token"] {
        let list = v1::ListResourcesRequest { kind: kind.to_owned(), ..Default::default() };
        let listed = admin.list_resources(list).await.unwrap().into_inner().resources;
        assert!(
            !listed.is_empty() && listed.iter().all(|one| one.yaml.is_empty() && !one.name.is_empty()),
            "{listed:?}"
        );
    }
}
