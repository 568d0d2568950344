//! Where users are logged in, and how that ends.

use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_sal::Suite;
use sallyport_wire::v1;
use sallyport_wire::v1::cluster_client::ClusterClient;
use sallyport_wire::v1::end_logins_of_request::Which as WhichOf;
use sallyport_wire::v1::end_logins_request::Which;
use sallyport_wire::v1::login_client::LoginClient;
use sallyport_wire::v1::logins_client::LoginsClient;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::support::{self, Cluster, PASSWORD, User, admin_channel, pin, pinned};

/// Calls each method once, for the table of what methods leave.
pub(crate) async fn as_people(cluster: &Cluster) {
    let carol = cluster.user("carol", &["carol"]).await;
    let again = again(cluster, &carol, "desk").await;
    let mut logins = own(&carol).await;
    let listed = logins.list(v1::ListLoginsRequest::default()).await.unwrap().into_inner().logins;
    let other = listed.iter().find(|login| !login.current).unwrap().id.clone();
    end(&carol, Which::Id(other)).await.unwrap();
    refused(&again).await;
    let mut admin = LoginsClient::new(admin_channel(&cluster.data_dir()).await);
    admin.list_of(of("carol")).await.unwrap();
    let rules = v1::TestLoginRulesRequest { user: "carol".to_owned(), ..Default::default() };
    assert!(admin.test_rules(rules).await.unwrap().into_inner().allowed);
    let which = Some(WhichOf::All(true));
    let request = v1::EndLoginsOfRequest { user: "carol".to_owned(), which, reason: String::new() };
    assert_eq!(admin.end_of(request).await.unwrap().into_inner().ended, 1);
    refused(&carol).await;
}

fn of(user: &str) -> v1::ListLoginsOfRequest {
    v1::ListLoginsOfRequest { user: user.to_owned(), ..Default::default() }
}

async fn own(user: &User) -> LoginsClient<Channel> {
    LoginsClient::new(user.authority().await)
}

async fn list(user: &User) -> Vec<v1::LoginInfo> {
    own(user).await.list(v1::ListLoginsRequest::default()).await.unwrap().into_inner().logins
}

async fn end(user: &User, which: Which) -> Result<u32, Status> {
    let request = v1::EndLoginsRequest { which: Some(which) };
    own(user).await.end(request).await.map(|answer| answer.into_inner().ended)
}

/// Another login of the user, from a machine that calls itself so.
async fn again(cluster: &Cluster, user: &User, host_name: &str) -> User {
    let pin = pin(&mut cluster.admin().await).await;
    let ssh = SshKeyPair::generate(Suite::BalancedV1, &user.name).unwrap();
    let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
    let request = v1::LoginRequest {
        user: user.name.clone(),
        password: PASSWORD.to_owned(),
        ssh_public_key: ssh.public_line().to_owned(),
        tls_public_key: tls.spki_der().to_vec().into(),
        host_name: host_name.to_owned(),
        ..Default::default()
    };
    let mut login = LoginClient::new(pinned(&cluster.proxy(), &pin).await);
    let issued = login.login_with_password(request).await.unwrap().into_inner();
    let told = issued.login.unwrap();
    assert!(told.current && told.user == user.name && told.way == "password", "{told:?}");
    user.with_keys(
        &user.name,
        &ssh.private_openssh(),
        &issued.ssh_certificate,
        &tls.pkcs8_pem(),
        &issued.tls_certificate_pem,
    )
}

/// What an ended login reads, at whichever call.
async fn refused(user: &User) {
    let mut cluster = ClusterClient::new(user.authority().await);
    let status = cluster.list_nodes(v1::ListNodesRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    assert!(status.message().contains("login"), "{status:?}");
    assert_eq!(end(user, Which::Others(true)).await.unwrap_err().code(), Code::PermissionDenied);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_sees_where_they_are_logged_in_and_ends_the_others() {
    let cluster = Cluster::without_node().await;
    let alice = cluster.user("alice", &["alice"]).await;
    let desk = again(&cluster, &alice, "desk\u{1b}[31m \u{202e}kspil").await;
    let lost = again(&cluster, &alice, &"x".repeat(5_000)).await;
    let listed = list(&alice).await;
    assert_eq!(listed.len(), 3, "{listed:?}");
    let mine = listed.iter().find(|login| login.current).unwrap();
    assert!(mine.address == "127.0.0.1" && mine.way == "password" && !mine.second_factor, "{mine:?}");
    assert!(mine.ssh_key.starts_with("SHA256:") && mine.tls_key.len() == 64, "{mine:?}");
    assert!(mine.valid_until.is_some() && mine.last_used.is_some(), "{mine:?}");
    assert!(mine.valid_until.as_ref().unwrap().seconds > mine.at.as_ref().unwrap().seconds, "{mine:?}");
    let names: Vec<&str> = listed.iter().map(|login| login.host_name.as_str()).collect();
    assert!(names.contains(&"desk[31mkspil"), "what a machine calls itself is bounded: {names:?}");
    assert!(names.iter().all(|name| name.len() <= 64), "{names:?}");

    // One, from another: its copy is worth nothing at once, and cannot end those that are left.
    let current = list(&lost).await.into_iter().find(|login| login.current).unwrap();
    assert_eq!(end(&desk, Which::Id(current.id.clone())).await.unwrap(), 1);
    refused(&lost).await;
    let gone = end(&desk, Which::Id(current.id.clone())).await.unwrap_err();
    assert_eq!(gone.code(), Code::NotFound, "{gone:?}");
    // The others; this one stays.
    assert_eq!(end(&desk, Which::Others(true)).await.unwrap(), 1);
    refused(&alice).await;
    let left = list(&desk).await;
    assert!(left.len() == 1 && left[0].current, "{left:?}");
    assert_eq!(end(&desk, Which::Others(true)).await.unwrap(), 0);
    // This one.
    assert_eq!(end(&desk, Which::Own(true)).await.unwrap(), 1);
    refused(&desk).await;
    let ended = support::events(&mut cluster.admin().await, "SP1040I").await;
    assert_eq!(ended.len(), 3, "{ended:?}");
    assert_eq!(ended[0]["fields"]["login_id"], current.id, "{ended:?}");
    assert_eq!(ended[2]["message"], "its user logged out", "{ended:?}");
    // The user logs in again as ever.
    assert_eq!(list(&again(&cluster, &alice, "new").await).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_logins_of_another_are_neither_listed_nor_ended() {
    let cluster = Cluster::without_node().await;
    let (alice, bob) = (cluster.user("alice", &["alice"]).await, cluster.user("bob", &["bob"]).await);
    let of_alice = list(&alice).await[0].id.clone();
    let status = end(&bob, Which::Id(of_alice.clone())).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound, "{status:?}");
    for odd in ["", "../alice/x", "alice/00000000-0000-0000-0000-000000000000", "%"] {
        assert_eq!(end(&bob, Which::Id(odd.to_owned())).await.unwrap_err().code(), Code::InvalidArgument);
    }
    assert_eq!(end(&bob, Which::Others(true)).await.unwrap(), 0);
    // A place to go on that is behind every login of theirs shows no login of another user.
    for after in ["", "~", "zzz", "\u{10ffff}", "../../user/alice"] {
        let page = v1::ListLoginsRequest { after: after.to_owned(), limit: u32::MAX };
        let listed = own(&bob).await.list(page).await.unwrap().into_inner().logins;
        assert!(listed.iter().all(|login| login.user == "bob"), "{after}: {listed:?}");
    }
    let mut denied = own(&bob).await;
    assert_eq!(denied.list_of(of("alice")).await.unwrap_err().code(), Code::PermissionDenied);
    let which = Some(WhichOf::Id(of_alice));
    let request = v1::EndLoginsOfRequest { user: "alice".to_owned(), which, reason: String::new() };
    assert_eq!(denied.end_of(request.clone()).await.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(list(&alice).await.len(), 1, "it is open still");

    // An administrator may, of the user that is named alone.
    let mut admin = LoginsClient::new(admin_channel(&cluster.data_dir()).await);
    let wrong = v1::EndLoginsOfRequest { user: "bob".to_owned(), ..request.clone() };
    assert_eq!(admin.end_of(wrong).await.unwrap_err().code(), Code::NotFound);
    let why = v1::EndLoginsOfRequest { reason: "lost\u{7} laptop".to_owned(), ..request };
    assert_eq!(admin.end_of(why).await.unwrap().into_inner().ended, 1);
    let mut nodes = ClusterClient::new(alice.authority().await);
    let status = nodes.list_nodes(v1::ListNodesRequest::default()).await.unwrap_err();
    assert!(status.message().contains("lost laptop"), "the user reads why: {status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_login_is_found_page_by_page() {
    let cluster = Cluster::without_node().await;
    let alice = cluster.user("alice", &["alice"]).await;
    for name in ["a", "b", "c"] {
        again(&cluster, &alice, name).await;
    }
    cluster.user("alicea", &["alice"]).await;
    let mut admin = LoginsClient::new(admin_channel(&cluster.data_dir()).await);
    for (user, count) in [("alice", 4), ("", 5), ("alic", 0)] {
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let request = v1::ListLoginsOfRequest { user: user.to_owned(), after, limit: 2 };
            let page = admin.list_of(request).await.unwrap().into_inner();
            assert!(page.logins.len() <= 2, "{page:?}");
            found.extend(page.logins.into_iter().map(|login| login.id));
            if page.next.is_empty() {
                break;
            }
            after = page.next;
        }
        found.sort();
        found.dedup();
        assert_eq!(found.len(), count, "{user}: {found:?}");
    }
    assert!(admin.list_of(of("a/b")).await.unwrap_err().code() == Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_logins_at_once_only_so_many_open_and_the_refusal_says_what_to_end() {
    let cluster = Cluster::without_node().await;
    let mut admin = cluster.admin().await;
    let yaml =
        "kind: role\nversion: v1\nmetadata: {name: few}\nspec: {options: {max_logins: 3}}\n".to_owned();
    admin.create_resource(v1::CreateResourceRequest { yaml, replace: true }).await.unwrap();
    let alice = cluster.user("alice", &["alice"]).await;
    let user = "kind: user\nversion: v1\nmetadata: {name: alice}\nspec: {roles: [access, few], traits: {}}\n";
    let change = v1::CreateResourceRequest { yaml: user.to_owned(), replace: true };
    admin.create_resource(change).await.unwrap();
    let pin = pin(&mut admin).await;
    let mut tries = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (proxy, pin) = (alice.proxy.clone(), pin.clone());
        tries.spawn(async move { support::log_in(&proxy, &pin, "alice", None).await });
    }
    let (mut open, mut refused) = (Vec::new(), Vec::new());
    while let Some(tried) = tries.join_next().await {
        match tried.unwrap() {
            Ok(user) => open.push(user),
            Err(status) => refused.push(status),
        }
    }
    assert_eq!(open.len(), 3, "{refused:?}");
    let listed = list(&open[0]).await;
    assert_eq!(listed.len(), 3, "{listed:?}");
    for status in refused {
        assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
        let says = [r#"role "few" options.max_logins"#, "sallyport sessions logins end", "127.0.0.1"];
        assert!(says.iter().all(|part| status.message().contains(part)), "{status:?}");
        assert!(listed.iter().all(|login| status.message().contains(&login.id)), "{status:?}");
    }
    // A place is free once one has ended.
    assert_eq!(end(&open[0], Which::Own(true)).await.unwrap(), 1);
    support::log_in(&alice.proxy, &pin, "alice", None).await.unwrap();
    let full = support::log_in(&alice.proxy, &pin, "alice", None).await.err().unwrap();
    assert_eq!(full.code(), Code::FailedPrecondition, "{full:?}");
}

fn rule(name: &str, then: &str, when: &str, more: &str) -> v1::CreateResourceRequest {
    let yaml = format!(
        "kind: login_rule\nversion: v1\nmetadata: {{name: {name}}}\nspec:\n  then: {then}\n  when: '{when}'\n{more}"
    );
    v1::CreateResourceRequest { yaml, replace: true }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_rule_refuses_by_name_and_is_tried_before() {
    let cluster = Cluster::without_node().await;
    let mut admin = cluster.admin().await;
    let alice = cluster.user("alice", &["alice"]).await;
    let pin = pin(&mut admin).await;
    let log_in = || support::log_in(&alice.proxy, &pin, "alice", None);

    let refused = admin.create_resource(rule("odd", "deny", "context.nowhere == 1", "")).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
    assert!(refused.message().contains("odd"), "{refused:?}");
    log_in().await.unwrap();

    let office = "  message: come to the office\n  networks: {office: [192.0.2.0/24, 127.0.0.9]}\n";
    let when = r#"!context.networks.contains("office") && context.user == "alice""#;
    admin.create_resource(rule("office", "deny", when, office)).await.unwrap();
    let get = v1::GetResourceRequest { kind: "login_rule".to_owned(), name: "office".to_owned() };
    assert!(admin.get_resource(get).await.unwrap().into_inner().yaml.contains("192.0.2.0/24"));
    let all = v1::ListResourcesRequest { kind: "login_rule".to_owned(), ..Default::default() };
    assert_eq!(admin.list_resources(all).await.unwrap().into_inner().resources.len(), 1);
    let refused = log_in().await.err().unwrap();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    assert_eq!(refused.message(), r#"the login rule "office" refuses it: come to the office"#);
    let events = support::events(&mut admin, "SP1041W").await;
    assert_eq!(events[0]["fields"]["rule"], "office", "{events:?}");
    // The login that is open goes on; another user is not concerned.
    assert_eq!(list(&alice).await.len(), 2);
    cluster.user("bob", &["bob"]).await;

    let mut logins = LoginsClient::new(admin_channel(&cluster.data_dir()).await);
    for (address, allowed) in
        [("192.0.2.200", true), ("::ffff:192.0.2.1", true), ("127.0.0.1", false), ("", false)]
    {
        let tried = v1::TestLoginRulesRequest {
            user: "alice".to_owned(),
            address: address.to_owned(),
            way: "password".to_owned(),
            ..Default::default()
        };
        let answer = logins.test_rules(tried).await.unwrap().into_inner();
        assert_eq!((answer.allowed, answer.outcomes.len()), (allowed, 1), "{address}: {answer:?}");
        assert_eq!(answer.outcomes[0].meets, !allowed, "{address}: {answer:?}");
    }
    // Those who may not read the rules learn nothing of them.
    let tried = v1::TestLoginRulesRequest { user: "alice".to_owned(), ..Default::default() };
    let status = own(&alice).await.test_rules(tried).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");

    let remove = v1::DeleteResourceRequest { kind: "login_rule".to_owned(), name: "office".to_owned() };
    admin.delete_resource(remove).await.unwrap();
    log_in().await.unwrap();
    admin.create_resource(rule("strong", "allow", "context.second_factor", "")).await.unwrap();
    let refused = log_in().await.err().unwrap();
    assert!(refused.message().contains(r#""strong""#), "{refused:?}");
    for code in ["SP1042I", "SP1043I"] {
        assert!(!support::events(&mut admin, code).await.is_empty());
    }
}

/// As long as roles let it, else as the cluster does; whatever is asked for.
#[tokio::test(flavor = "multi_thread")]
async fn a_login_lives_as_long_as_roles_and_the_cluster_let_it() {
    let cluster = Cluster::without_node().await;
    let mut admin = cluster.admin().await;
    let before = cluster.user("alice", &["alice"]).await;
    let pin = pin(&mut admin).await;
    let log_in = |hours: Option<u64>| {
        let ttl = hours.map(|hours| std::time::Duration::from_secs(hours * 3600));
        support::log_in(&before.proxy, &pin, "alice", ttl)
    };
    let life = |user: &User| {
        let ssh = sallyport_ca::keys::certificate(&user.ssh_certificate).unwrap();
        let now = time::OffsetDateTime::now_utc();
        (user.trust.verify_user_ssh(&ssh, now).unwrap().valid_before - now).whole_minutes()
    };
    assert!((11 * 60..=12 * 60).contains(&life(&before)));
    let put = async |yaml: String| {
        let request = v1::CreateResourceRequest { yaml, replace: true };
        cluster.admin().await.create_resource(request).await.unwrap();
    };
    put("kind: session_policy\nversion: v1\nmetadata: {name: default}\nspec: {max_login_ttl: 2h}\n"
        .to_owned())
    .await;
    assert!((119..=120).contains(&life(&log_in(None).await.unwrap())));
    let refused = log_in(Some(3)).await.err().unwrap();
    assert!(support::is(&refused, Code::InvalidArgument, "the longest lifetime is 2h"), "{refused:?}");
    for (option, minutes) in [("max_login_ttl: 4h", 240), ("max_session_ttl: 1h", 60)] {
        put(support::role("alice-role", &["alice"])
            .replace("spec:\n", &format!("spec:\n  options: {{{option}}}\n")))
        .await;
        assert!((minutes - 1..=minutes).contains(&life(&log_in(None).await.unwrap())), "{option}");
        let refused = log_in(Some(5)).await.err().unwrap();
        assert!(support::is(&refused, Code::InvalidArgument, "the longest lifetime is"), "{refused:?}");
    }
}
