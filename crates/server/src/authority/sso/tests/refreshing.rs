//! Providers that are asked again whether logins stand.

use std::collections::BTreeMap;
use std::sync::Arc;

use sallyport_store::{Op, Stored, typed};
use serde_json::json;
use time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::idp::Reply;
use super::*;
use crate::authority::identities::grants::{GrantRecord, RefreshRecord, ended, goes_with};
use crate::authority::identities::logins::{LoginRecord, open_login};

/// Waits for what another task does.
async fn until(done: impl Fn() -> bool) {
    let waiting = async {
        while !done() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), waiting).await.expect("it does not happen");
}

const EACH: &str = "  refresh: {interval: 10m, grace: 1h}\n";

impl Site {
    pub(super) async fn refreshing() -> Self {
        let site = Self::with(EACH).await;
        site.idp.refreshes(|refreshes| refreshes.gives = true);
        site
    }

    /// A whole login, with what is kept of it, as it is opened for a program.
    pub(super) async fn opens(&self) -> Uuid {
        let answer = self.answer(&self.begin().await);
        let claims = self.claims(&answer).await.map_err(word).unwrap();
        let (admitted, _) = self.admit(&claims, now()).await.unwrap();
        self.opens_for(&claims, &admitted).await
    }

    /// Opens a login of a person who was let in.
    async fn opens_for(&self, claims: &Claims, admitted: &Admitted) -> Uuid {
        let (id, remote) = (Uuid::new_v4(), self.remote().await);
        let until = now() + Duration::hours(8);
        let grant = self.connectors().grant_of(remote.connector(), "proven", claims, until, now()).unwrap();
        let store = &self.authority.services.store;
        store.backend().transact(grant.into_iter().collect(), now()).await.unwrap();
        let mut steps = goes_with(store, "proven", admitted.user.as_str(), id, until, now()).await.unwrap();
        steps.push(open_login(&admitted.user, id, until, None).unwrap());
        store.backend().transact(steps, now()).await.unwrap();
        id
    }

    async fn due(&self, id: Uuid) -> Option<Stored<RefreshRecord>> {
        self.authority.services.store.get::<RefreshRecord>(&id.to_string(), now()).await.unwrap()
    }

    /// Asks about a login as if it were due then.
    pub(super) async fn asks(&self, id: Uuid, at: OffsetDateTime) {
        let due = self.due(id).await.expect("nothing is kept of it");
        self.idp.lives_at(at);
        self.connectors().ask_about(due, at).await.map_err(word).unwrap();
    }

    fn roles_of_alice(&self) -> Vec<String> {
        let name = sallyport_access::UserName::new("alice").unwrap();
        let user = self.authority.services.identities.user(&name);
        user.map(|user| user.roles.iter().map(ToString::to_string).collect()).unwrap_or_default()
    }
}

#[tokio::test]
async fn a_login_is_asked_about_at_the_interval_by_the_newest_token_and_not_between() {
    let site = Site::refreshing().await;
    let id = site.opens().await;
    let connectors = std::sync::Arc::clone(&site.authority.services.connectors);
    let pass = async |at| {
        let (mut asking, mut places) = (JoinSet::new(), BTreeMap::new());
        site.idp.lives_at(at);
        connectors.begin_asking(&mut asking, &mut places, at).await.unwrap();
        asking.join_all().await;
    };
    let first = site.due(id).await.unwrap().value.next - now();
    assert!((Duration::minutes(8)..Duration::minutes(12)).contains(&first), "{first}");
    pass(now() + Duration::minutes(8)).await;
    assert!(site.idp.asked_again().is_empty());
    for minutes in [12, 13, 24, 36] {
        pass(now() + Duration::minutes(minutes)).await;
    }
    let asked = site.idp.asked_again();
    let shown: Vec<String> = (1..=3).map(|number| format!("refresh-{number}-of-the-provider")).collect();
    assert_eq!(asked, shown, "each of them once");
    assert!(!site.login_ended(id));
    // A thief who reads the state reads none of them.
    let stored = site.authority.services.store.get::<GrantRecord>(&id.to_string(), now()).await.unwrap();
    let bytes = data_encoding::BASE64.decode(stored.unwrap().value.sealed.as_bytes()).unwrap();
    assert!(!bytes.windows(8).any(|part| part == b"refresh-"));
}

#[tokio::test]
async fn what_a_provider_says_again_counts_and_what_it_leaves_out_stays() {
    // Where the groups were; which parts come again; and whether that says that they are gone. Without an access token it says nothing.
    let cases = [
        ("token", true, true, true),
        ("token", true, false, false),
        ("token", false, true, false),
        ("token", false, false, false),
        ("userinfo", true, true, true),
        ("userinfo", true, false, false),
        ("userinfo", false, true, true),
        ("userinfo", false, false, false),
        ("both", true, true, true),
        ("both", true, false, false),
        ("both", false, true, true),
        ("both", false, false, false),
    ];
    for (place, id_token, access_token, gone) in cases {
        let told = format!("groups in {place}, id_token {id_token}, access_token {access_token}");
        let site = Site::refreshing().await;
        let says = |groups: &[&str]| {
            let mut token = person("1", "alice", groups);
            let mut userinfo = token.clone();
            let leaves = |part: &mut serde_json::Value| part.as_object_mut().unwrap().remove("groups");
            match place {
                "token" => drop(leaves(&mut userinfo)),
                "userinfo" => drop(leaves(&mut token)),
                _ => {}
            }
            site.idp.says(token);
            site.idp.userinfo(userinfo);
        };
        says(&["ops-eu", "auditors"]);
        site.idp.refreshes(|refreshes| {
            refreshes.id_token = id_token;
            refreshes.access_token = access_token;
        });
        let id = site.opens().await;
        says(&["auditors"]);
        site.asks(id, now()).await;
        let expected = if gone { &["auditor"][..] } else { &["access", "auditor"] };
        assert_eq!(site.roles_of_alice(), expected, "{told}");
        assert_eq!(site.login_ended(id), gone, "{told}");
        if let Some(due) = site.due(id).await {
            assert_eq!(due.value.failing_since.is_none(), access_token, "{told}");
        }
    }
}

#[tokio::test]
async fn a_role_that_is_taken_away_ends_the_logins_and_one_that_is_given_does_not() {
    let site = Site::refreshing().await;
    site.at_the_provider("1", "alice", &["ops-eu"]);
    let (first, second) = (site.opens().await, site.opens().await);
    site.at_the_provider("1", "alice", &["ops-eu", "auditors"]);
    let until = site.user_stored("alice").await.unwrap().expires;
    site.asks(first, now()).await;
    assert_eq!(site.roles_of_alice(), ["access", "auditor"]);
    assert!(!site.login_ended(first) && !site.login_ended(second));
    assert_eq!(site.user_stored("alice").await.unwrap().expires, until, "a refresh is no login");
    site.at_the_provider("1", "alice", &["auditors"]);
    site.asks(second, now()).await;
    assert_eq!(site.roles_of_alice(), ["auditor"]);
    assert!(site.login_ended(first) && site.login_ended(second));
    // And one whom nothing is left.
    let third = site.opens().await;
    site.at_the_provider("1", "alice", &[]);
    site.asks(third, now()).await;
    assert!(site.login_ended(third) && site.user_stored("alice").await.is_none());
    assert!(site.due(third).await.is_none());
}

#[tokio::test]
async fn a_connector_that_gives_nothing_more_ends_its_login_and_nothing_of_another_connector() {
    // Whether the other one asks its provider again, too.
    for more in ["", EACH] {
        let site = Site::refreshing().await;
        site.connect("staff", more).await;
        site.at_the_provider("1", "alice", &["ops-eu"]);
        let answer = site.answer(&site.begin().await);
        let said = site.claims(&answer).await.map_err(word).unwrap();
        let (admitted, _) = site.admit(&said, now()).await.unwrap();
        // The person comes by the other connector before the login of the first one is opened.
        site.comes_by("staff", &said).await.unwrap();
        let old = site.opens_for(&said, &admitted).await;
        let (staff, before) = (site.opened_login("alice").await, site.user_stored("alice").await.unwrap());
        site.asks(old, now()).await;
        assert!(!site.login_ended(old), "the provider stands by it");
        site.at_the_provider("1", "alice", &["gardeners"]);
        site.asks(old, now()).await;
        assert!(site.login_ended(old) && site.due(old).await.is_none());
        assert!(!site.login_ended(staff), "{more}");
        let after = site.user_stored("alice").await.unwrap();
        assert_eq!((after.revision, after.value), (before.revision, before.value));
        assert_eq!(site.roles_of_alice(), ["access"]);
    }
}

#[tokio::test]
async fn a_session_that_the_provider_ended_ends_its_login_and_no_other() {
    let site = Site::refreshing().await;
    site.at_the_provider("1", "alice", &["ops-eu"]);
    let (first, second) = (site.opens().await, site.opens().await);
    let signed = site.opened_login("alice").await;
    site.idp.revokes(1);
    site.asks(first, now()).await;
    site.asks(second, now()).await;
    assert!(site.login_ended(first) && !site.login_ended(second));
    assert!(site.login_ended(signed), "what was signed by a login is no further one at the provider");
    assert!(site.due(first).await.is_none() && site.due(second).await.is_some());
    assert_eq!(site.roles_of_alice(), ["access"], "the user stays");
    // The provider says by other words that the person has to come again.
    for error in ["interaction_required", "login_required", "consent_required", "access_denied"] {
        let id = site.opens().await;
        site.idp.replies("/token", Reply::Json(400, json!({ "error": error })));
        site.asks(id, now()).await;
        assert!(site.login_ended(id), "{error}");
        site.idp.is_itself();
    }
    let id = site.opens().await;
    site.idp.replies("/token", Reply::Json(200, json!({ "error": "invalid_grant" })));
    site.asks(id, now()).await;
    assert!(site.login_ended(id), "a refusal with the status 200");
    site.idp.is_itself();
    // Its token is about another person.
    let id = site.opens().await;
    site.at_the_provider("2", "alice", &["ops-eu"]);
    site.asks(id, now()).await;
    assert!(site.login_ended(id));
}

#[tokio::test]
async fn a_provider_that_gives_no_answer_is_waited_for_as_long_as_the_grace_and_no_longer() {
    let raw = |text: &str| Reply::Raw(text.as_bytes().to_vec());
    for (path, reply) in [
        ("/token", Reply::Json(503, json!({}))),
        ("/token", Reply::Json(500, json!({ "error": "server_error" }))),
        ("/token", Reply::Json(429, json!({}))),
        ("/token", Reply::Json(401, json!({ "error": "invalid_client" }))),
        ("/token", Reply::Json(200, json!({ "error": "server_error", "access_token": "a" }))),
        ("/token", Reply::Json(200, json!({ "token_type": "Bearer" }))),
        ("/token", raw("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n")),
        ("/token", raw("")),
        ("/userinfo", Reply::Json(500, json!({}))),
        ("/userinfo", Reply::Silence),
    ] {
        let told = format!("{path} {reply:?}");
        let site = Site::refreshing().await;
        site.at_the_provider("1", "alice", &["ops-eu"]);
        site.idp.userinfo(json!({ "sub": "1" }));
        let id = site.opens().await;
        let begun = now();
        site.idp.replies(path, reply);
        site.asks(id, begun).await;
        let due = site.due(id).await.unwrap().value;
        assert!(due.next - begun < Duration::minutes(1), "asked again soon: {told}");
        site.asks(id, begun + Duration::minutes(59)).await;
        assert!(!site.login_ended(id), "{told}");
        // It is back: the grace begins anew, and the token that it gave meanwhile is the one that is shown.
        site.idp.is_itself();
        site.asks(id, begun + Duration::minutes(59)).await;
        assert_eq!(site.due(id).await.unwrap().value.failing_since, None, "{told}");
        site.idp.replies("/token", Reply::Json(503, json!({})));
        site.asks(id, begun + Duration::minutes(61)).await;
        assert!(!site.login_ended(id), "{told}");
        site.asks(id, begun + Duration::minutes(122)).await;
        assert!(site.login_ended(id), "{told}");
        assert!(site.due(id).await.is_none(), "{told}");
    }
}

#[tokio::test]
async fn two_authorities_show_one_token_once() {
    let site = Site::refreshing().await;
    let id = site.opens().await;
    let due = site.due(id).await.unwrap();
    let both = tokio::join!(
        site.connectors().ask_about(due.clone(), now()),
        site.connectors().ask_about(due.clone(), now())
    );
    assert!(both.0.is_ok() && both.1.is_ok());
    assert_eq!(site.idp.asked_again().len(), 1);
    assert!(!site.login_ended(id));
    // One that has read it before, and comes late.
    site.connectors().ask_about(due, now()).await.map_err(word).unwrap();
    assert_eq!(site.idp.asked_again().len(), 1);
    // Nor is one asked about again that another authority asks about now.
    let due = site.due(id).await.unwrap();
    let mut held = due.value.clone();
    (held.next, held.asked_until) = (now(), Some(now() + Duration::minutes(1)));
    let step = sallyport_store::typed::update(&due.name, due.revision, &held, due.expires).unwrap();
    site.authority.services.store.backend().transact(vec![step], now()).await.unwrap();
    let (mut asking, mut places) = (JoinSet::new(), BTreeMap::new());
    let connectors = std::sync::Arc::clone(&site.authority.services.connectors);
    connectors.begin_asking(&mut asking, &mut places, now() + Duration::seconds(30)).await.unwrap();
    assert!(asking.is_empty());
    connectors.begin_asking(&mut asking, &mut places, now() + Duration::seconds(90)).await.unwrap();
    assert_eq!(asking.len(), 1, "its authority has gone");
}

#[tokio::test]
async fn a_logout_ends_what_is_kept_and_a_provider_that_hangs_holds_up_its_own_alone() {
    let site = Site::refreshing().await;
    let id = site.opens().await;
    let token = {
        let claims = json!({ "sub": "24400320", "jti": "j", "events": { "http://schemas.openid.net/event/backchannel-logout": {} } });
        site.idp.token(claims.as_object().unwrap().clone())
    };
    site.connect("corp", &format!("{EACH}  logout: back-channel\n")).await;
    site.connectors().log_out(&CALLER, "corp", &token).await.unwrap();
    assert!(site.due(id).await.is_none());
    let kept = site.authority.services.store.get::<GrantRecord>(&id.to_string(), now()).await.unwrap();
    assert!(kept.is_none());

    let mut ids = Vec::new();
    for _ in 0..12 {
        ids.push(site.opens().await);
    }
    let asked = site.idp.asked_again().len();
    site.idp.replies("/token", Reply::Silence);
    let connectors = std::sync::Arc::clone(&site.authority.services.connectors);
    let (mut asking, mut places) = (JoinSet::new(), BTreeMap::new());
    let later = now() + Duration::minutes(20);
    connectors.begin_asking(&mut asking, &mut places, later).await.unwrap();
    connectors.begin_asking(&mut asking, &mut places, later).await.unwrap();
    assert_eq!(asking.len(), 8, "of one connector no more at once");
    asking.join_all().await;
    assert_eq!(site.idp.asked_again().len() - asked, 8);
    assert!(ids.iter().all(|id| !site.login_ended(*id)));
}

#[tokio::test]
async fn an_answer_that_comes_after_the_login_has_ended_brings_nothing_of_it_back() {
    for rotates in [true, false] {
        let site = Site::refreshing().await;
        site.idp.refreshes(|refreshes| refreshes.rotates = rotates);
        site.at_the_provider("1", "alice", &["ops-eu"]);
        let (id, other) = (site.opens().await, site.opens().await);
        let (due, gate) = (site.due(id).await.unwrap(), Arc::new(Semaphore::new(0)));
        site.idp.replies("/token", Reply::Held(Arc::clone(&gate)));
        let logout = async {
            until(|| !site.idp.asked_again().is_empty()).await;
            let store = &site.authority.services.store;
            let login = format!("alice/{id}");
            let mut steps: Vec<Op> = ended(id).unwrap().into();
            steps.push(typed::delete::<LoginRecord>(&login, None));
            store.backend().transact(steps, now()).await.unwrap();
            // What the provider says by now would take a role.
            site.at_the_provider("1", "alice", &["auditors"]);
            gate.add_permits(1);
        };
        let (asked, ()) = tokio::join!(site.connectors().ask_about(due, now()), logout);
        asked.map_err(word).unwrap();
        assert_eq!(site.idp.asked_again().len(), 1);
        let store = &site.authority.services.store;
        assert!(site.due(id).await.is_none(), "{rotates}");
        assert!(store.get::<GrantRecord>(&id.to_string(), now()).await.unwrap().is_none(), "{rotates}");
        assert!(
            store.get::<LoginRecord>(&format!("alice/{id}"), now()).await.unwrap().is_none(),
            "{rotates}"
        );
        assert_eq!(site.roles_of_alice(), ["access"], "an answer about a login that is over decides nothing");
        // The other login of the person is asked about as ever.
        site.asks(other, now()).await;
        assert_eq!(site.roles_of_alice(), ["auditor"]);
        assert!(site.login_ended(other), "it had a role that is gone");
    }
}

#[tokio::test]
async fn without_a_refresh_token_there_is_no_login_where_one_is_wanted() {
    let site = Site::with(EACH).await;
    assert_eq!(site.log_in().await.map(drop).unwrap_err(), "no_refresh_token");
    let site = Site::new().await;
    site.idp.refreshes(|refreshes| refreshes.gives = true);
    let answer = site.answer(&site.begin().await);
    let claims = site.claims(&answer).await.map_err(word).unwrap();
    assert!(claims.renewal.is_none(), "none is kept that is not asked for");
    assert!(!format!("{claims:?}").contains("refresh-1"));
}
