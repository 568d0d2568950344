//! Login rules that this release does not understand, and as many at once as there may be.

use sallyport_wire::v1::devices_server::Devices as _;

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

/// However many are written at once, there are no more than there may be.
#[tokio::test(flavor = "multi_thread")]
async fn as_many_rules_and_tokens_of_devices_at_once_are_no_more_than_there_may_be() {
    const MOST: usize = 5;
    let directory = tempfile::tempdir().unwrap();
    let authority = open(directory.path()).await;
    let services = &authority.services;
    let each =
        (0..12).map(|number| put(services, rule(&format!("rule-{number}"), "deny", "context.hour > 23")));
    let made = futures::future::join_all(each).await;
    assert_eq!(made.iter().filter(|made| made.is_ok()).count(), MOST, "{made:?}");
    let full = made.iter().filter_map(|made| made.as_ref().err());
    assert!(full.into_iter().all(|status| status.code() == Code::FailedPrecondition), "{made:?}");
    // A rule that is there is changed, and takes no place.
    let there = services.store.list::<LoginRuleRecord>(None, 100, OffsetDateTime::now_utc()).await.unwrap();
    assert_eq!(there.len(), MOST);
    put(services, rule(&there[0].name, "deny", "context.hour > 24")).await.unwrap();

    let devices = || services.api.devices.clone();
    let each = (0..12)
        .map(|_| async move { devices().add_token(local(v1::AddDeviceTokenRequest::default())).await });
    let made = futures::future::join_all(each).await;
    assert_eq!(made.iter().filter(|made| made.is_ok()).count(), MOST, "{made:?}");
    let full = made.iter().filter_map(|made| made.as_ref().err());
    assert!(full.into_iter().all(|status| status.code() == Code::ResourceExhausted), "{made:?}");
    authority.shutdown().await;
}
