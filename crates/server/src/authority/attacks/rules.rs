//! Login rules that this release does not understand.

use super::*;
use crate::authority::records::LoginRuleRecord;

fn rule(name: &str, then: &str, when: &str) -> String {
    format!(
        "kind: login_rule\nversion: v1\nmetadata: {{name: {name}}}\nspec:\n  then: {then}\n  when: '{when}'\n"
    )
}

async fn put(services: &Arc<Services>, yaml: String) -> Result<v1::Resource, Status> {
    let asked = v1::CreateResourceRequest { yaml, replace: true };
    services.api.admin.clone().create_resource(local(asked)).await.map(tonic::Response::into_inner)
}

/// An authority with the state of an earlier release, whose rule this one does not take, starts and does all but let in; and the
/// operator mends it.
#[tokio::test(flavor = "multi_thread")]
async fn a_kept_rule_that_is_none_any_more_refuses_logins_and_stops_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let authority = open(directory.path()).await;
    let (services, now) = (&authority.services, OffsetDateTime::now_utc());
    let token = create(services, "alice", &["access"]).await;
    services.api.login.clone().finish_invite(Request::new(finish(&token))).await.unwrap();
    let kept = LoginRuleRecord { yaml: rule("old", "deny", "context.posture == 1") };
    services.store.put("old", &kept, None, now).await.unwrap();
    authority.shutdown().await;

    let authority = open(directory.path()).await;
    let services = &authority.services;
    let log_in = async || {
        let login = services.api.login.clone();
        login.login_with_password(Request::new(attempt("alice", PASSWORD))).await
    };
    let refused = log_in().await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    assert!(refused.message().contains("login rule \"old\" refuses it"), "{refused:?}");
    let admin = services.api.admin.clone();
    let status = services.api.cluster.clone().get_status(local(v1::GetStatusRequest {})).await.unwrap();
    assert_eq!(status.into_inner().broken_login_rules, ["old"]);
    // The policy goes on to change.
    let lock = "kind: lock\nversion: v1\nmetadata: {name: out}\nspec: {target: {user: alice}, message: x}\n";
    put(services, lock.to_owned()).await.unwrap();
    let refused = log_in().await.unwrap_err();
    assert!(refused.message().contains("locked"), "{refused:?}");
    for (kind, name) in [("lock", "out"), ("login_rule", "old")] {
        let get = v1::GetResourceRequest { kind: kind.to_owned(), name: name.to_owned() };
        admin.get_resource(local(get)).await.unwrap();
        let gone = v1::DeleteResourceRequest { kind: kind.to_owned(), name: name.to_owned() };
        admin.delete_resource(local(gone)).await.unwrap();
    }
    log_in().await.unwrap();
    // Written anew in its place, it counts as it says.
    services.store.put("old", &kept, None, now).await.unwrap();
    put(services, rule("old", "deny", "context.hour > 23")).await.unwrap();
    log_in().await.unwrap();
    authority.shutdown().await;
}
