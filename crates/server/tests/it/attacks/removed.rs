//! What was removed or taken away, and what would go on with it: certificates of users and hosts, roles of before, and
//! passwords that another user of the same name would find.

use std::time::Instant;

use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_sal::Suite;
use sallyport_ssh::client::{Connection, Exit, Output, Session, SessionRequest};
use sallyport_wire::v1;
use sallyport_wire::v1::admin_client::AdminClient;
use sallyport_wire::v1::cluster_client::ClusterClient;
use sallyport_wire::v1::fleet_client::FleetClient;
use sallyport_wire::v1::login_client::LoginClient;
use sallyport_wire::v1::rotation_client::RotationClient;
use tonic::Code;

use super::people::{
    account, finish, invited, join_request, joined, joined_as, logged_in, person, remove, role, stranger,
    write,
};
use crate::support::{self, Cluster, PASSWORD, PATIENCE, User, events, os_login, pinned, until};

/// A session that runs until something ends it.
async fn running(user: &User, login: &str) -> (Connection, Session) {
    let connection = user.ssh("web-1", login).await;
    let mut session = connection.start(SessionRequest::exec("echo ready; sleep 120")).await.unwrap();
    while session.next().await != Some(Output::Stdout("ready\n".into())) {}
    (connection, session)
}

async fn cut(mut session: Session) {
    let ended = tokio::time::timeout(PATIENCE, async {
        while let Some(output) = session.next().await {
            if let Output::Exit(exit) = output {
                return Some(exit);
            }
        }
        None
    });
    assert!(!matches!(ended.await.expect("the session is cut"), Some(Exit::Status(0))));
}

/// The proxy refuses a login's certificates, once it has heard.
async fn refused_by_the_proxy(user: &User, login: &str) {
    until("the proxy's refusal", async || {
        user.open("web-1", login).await.err().filter(|status| status.code() == Code::PermissionDenied)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_user_has_nothing_any_more() {
    let cluster = Cluster::all_in_one().await;
    let login = os_login();
    write(&cluster, role("dev", &format!("{{allow: {{logins: [{login}], node_labels: {{'*': '*'}}}}}}")))
        .await;
    let alice = person(&cluster, "alice", &["dev", "editor"], &[]).await;
    let (_connection, session) = running(&alice, &login).await;
    let channel = alice.authority().await;
    remove(&cluster, "user", "alice").await.unwrap();

    // The API at once, on connections of before and new ones; sessions as soon as it is heard.
    for channel in [channel, alice.authority().await] {
        let mut admin = AdminClient::new(channel.clone());
        let request = v1::CreateUserRequest {
            name: "mallory".to_owned(),
            roles: vec!["editor".to_owned()],
            ..Default::default()
        };
        assert_eq!(admin.create_user(request).await.unwrap_err().code(), Code::PermissionDenied);
        let nodes = ClusterClient::new(channel.clone()).list_nodes(v1::ListNodesRequest::default()).await;
        assert_eq!(nodes.unwrap_err().code(), Code::PermissionDenied);
        let follow = RotationClient::new(channel).follow(alice.certificates()).await;
        assert_eq!(follow.unwrap_err().code(), Code::PermissionDenied);
    }
    cut(session).await;
    refused_by_the_proxy(&alice, &login).await;

    // Another user of the name is another user.
    let other = person(&cluster, "alice", &["dev"], &[]).await;
    assert_eq!(other.run("web-1", &login, "exit 3").await.2, Exit::Status(3));
    refused_by_the_proxy(&alice, &login).await;
    let nodes = ClusterClient::new(alice.authority().await).list_nodes(v1::ListNodesRequest::default()).await;
    assert_eq!(nodes.unwrap_err().code(), Code::PermissionDenied);
    let removed = events(&mut cluster.admin().await, "SP1004I").await;
    assert!(removed.iter().any(|event| event["fields"]["ended_logins"] == 1), "{removed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_traits_and_a_password_that_change_end_open_logins() {
    let cluster = Cluster::all_in_one().await;
    let login = os_login();
    let spec = "{allow: {logins: ['{{internal.logins}}'], node_labels: {'*': '*'}}}";
    write(&cluster, role("dev", spec)).await;
    let logins: [(&str, &[&str]); 1] = [("internal.logins", &[&login, "web"])];
    let mut alice = person(&cluster, "alice", &["dev", "editor"], &logins).await;
    let fewer: [(&str, &[&str]); 1] = [("internal.logins", &[&login])];
    for change in ["a role", "a trait", "the password"] {
        let (_connection, session) = running(&alice, &login).await;
        match change {
            "a role" => write(&cluster, account("alice", &["dev"], &logins)).await,
            "a trait" => write(&cluster, account("alice", &["dev"], &fewer)).await,
            _ => {
                let reset = v1::ResetUserRequest { name: "alice".to_owned() };
                let invite = cluster.admin().await.reset_user(reset).await.unwrap().into_inner();
                stranger(&cluster).await.finish_invite(finish(&invite.token, PASSWORD)).await.unwrap();
            }
        }
        cut(session).await;
        refused_by_the_proxy(&alice, &login).await;
        let follow = RotationClient::new(alice.authority().await).follow(alice.certificates()).await;
        let status = follow.unwrap_err();
        assert!(status.message().contains("log in again"), "{change}: {status:?}");
        alice = logged_in(&cluster, "alice").await.unwrap();
        assert_eq!(alice.run("web-1", &login, "exit 3").await.2, Exit::Status(3), "{change}");
    }
    // What changes nothing ends nothing.
    let (connection, _session) = running(&alice, &login).await;
    write(&cluster, account("alice", &["dev"], &fewer)).await;
    assert_eq!(support::exec(&connection, "exit 4").await.2, Exit::Status(4));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demoted_editor_does_not_take_the_role_back() {
    let cluster = Cluster::without_node().await;
    let eve = person(&cluster, "eve", &["editor", "auditor"], &[]).await;
    let mut admin = AdminClient::new(eve.authority().await);
    write(&cluster, account("eve", &["auditor"], &[])).await;
    let back = v1::CreateResourceRequest { yaml: account("eve", &["editor"], &[]), replace: true };
    let status = admin.create_resource(back.clone()).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    assert!(status.message().contains("log in again"), "{status:?}");

    // Nor without the lock: a role counts where the certificate and the state both have it.
    unlock(&cluster).await;
    let status = admin.create_resource(back).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    assert!(status.message().contains("eve may not create user"), "{status:?}");
    // What is left of both still serves.
    admin.search_events(v1::SearchEventsRequest::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_host_is_heard_no_more() {
    let cluster = Cluster::without_node().await;
    let host = joined(&cluster, "web-1").await;
    let mut fleet = FleetClient::new(host.channel.clone());
    let mut watch =
        fleet.watch(v1::WatchRequest { kinds: vec!["role".to_owned()] }).await.unwrap().into_inner();
    while !matches!(
        watch.message().await.unwrap().unwrap().event,
        Some(v1::watch_event::Event::SnapshotDone(_))
    ) {}
    remove(&cluster, "node", "web-1").await.unwrap();

    let renew = v1::RenewHostRequest {
        ssh_public_key: host.ssh.public_line().to_owned(),
        tls_public_key: TlsKey::generate(Suite::BalancedV1).unwrap().spki_der().to_vec().into(),
        ..Default::default()
    };
    let event = serde_json::json!({"code": "SP2004I"}).to_string();
    let again = authority(&cluster, &host).await;
    for channel in [host.channel.clone(), again] {
        let mut fleet = FleetClient::new(channel.clone());
        let refusals = [
            fleet.heartbeat(v1::HeartbeatRequest::default()).await.map(drop),
            fleet.emit_events(v1::EmitEventsRequest { events_json: vec![event.clone()] }).await.map(drop),
            fleet.watch(v1::WatchRequest { kinds: vec!["role".to_owned()] }).await.map(drop),
            fleet.renew_host(renew.clone()).await.map(drop),
            fleet.report_clients(v1::ReportClientsRequest::default()).await.map(drop),
            RotationClient::new(channel).confirm(v1::ConfirmRequest::default()).await.map(drop),
        ];
        for refusal in refusals {
            assert_eq!(refusal.unwrap_err().code(), Code::PermissionDenied);
        }
    }
    let ended = tokio::time::timeout(PATIENCE, async {
        loop {
            match watch.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(status) => return Some(status.code()),
            }
        }
    });
    assert_eq!(ended.await.expect("the watch ends"), Some(Code::PermissionDenied));

    // The machine may come again, as another host.
    let anew = joined(&cluster, "web-1").await;
    assert_ne!(anew.id, host.id);
    FleetClient::new(anew.channel).heartbeat(v1::HeartbeatRequest::default()).await.unwrap();
    let old =
        FleetClient::new(authority(&cluster, &host).await).heartbeat(v1::HeartbeatRequest::default()).await;
    assert_eq!(old.unwrap_err().code(), Code::PermissionDenied);
}

async fn authority(cluster: &Cluster, host: &super::people::Host) -> tonic::transport::Channel {
    support::authority_as(&cluster.proxy(), &host.trust, &host.chain, &host.tls_key).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_token_lets_no_host_join() {
    let cluster = Cluster::without_node().await;
    let mut admin = cluster.admin().await;
    let request = v1::CreateTokenRequest { role: "node".to_owned(), uses: 5, ..Default::default() };
    let made = admin.create_token(request).await.unwrap().into_inner();
    let mut login = LoginClient::new(pinned(&cluster.proxy(), &made.ca_pin).await);
    let mut join = async |name: &str| {
        let ssh = SshKeyPair::generate(Suite::BalancedV1, name).unwrap();
        let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
        login.join(join_request(&made.token, "node", name, &ssh, &tls)).await.map(drop)
    };
    join("web-1").await.unwrap();
    let public = made.token.get(..8).unwrap();
    remove(&cluster, "token", public).await.unwrap();
    assert_eq!(join("web-2").await.unwrap_err().code(), Code::PermissionDenied);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_users_password_does_not_open_another_of_the_name() {
    const ROUNDS: u32 = 14;
    let cluster = Cluster::without_node().await;
    // The removal has to meet the moment in which the password is hashed.
    sallyport_sal::password::danger::hash_cheaply(false);
    let old = "the password of before";
    let mut login = stranger(&cluster).await;
    // To remove a user, all links are looked through: the more there are, the longer the moment in between.
    let admin = cluster.admin().await;
    let made = (0..400).map(|number| {
        let mut admin = admin.clone();
        let request = v1::CreateUserRequest { name: format!("user-{number}"), ..Default::default() };
        async move { admin.create_user(request).await.unwrap().into_inner().token }
    });
    let tokens = futures::future::join_all(made).await;
    let started = Instant::now();
    login.finish_invite(finish(&tokens[0], old)).await.unwrap();
    let takes = started.elapsed();
    for round in 0..ROUNDS {
        let name = format!("bob-{round}");
        let invite = invited(&cluster, &name, &[], &[]).await;
        let finishing = login.finish_invite(finish(&invite.token, old));
        // The removal comes while the password is stored, sometimes a little earlier and sometimes later.
        let removing = async {
            tokio::time::sleep(takes * (ROUNDS + round) / (2 * ROUNDS)).await;
            remove(&cluster, "user", &name).await.unwrap();
            invited(&cluster, &name, &["editor"], &[]).await
        };
        let (_, fresh) = tokio::join!(finishing, removing);
        let refused = login_with(&cluster, &name, old).await.unwrap_err();
        assert!(
            matches!(refused, Code::Unauthenticated | Code::ResourceExhausted),
            "round {round}: {refused:?}"
        );
        // Nor does a link of before, even where it was not used.
        assert!(login.finish_invite(finish(&invite.token, old)).await.is_err(), "round {round}");
        login.begin_invite(v1::BeginInviteRequest { token: fresh.token }).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_gets_no_certificate_for_a_user_who_is_not_there_any_more() {
    let cluster = Cluster::without_node().await;
    let proxy = joined_as(&cluster, "proxy", "proxy-2").await;
    let server = "kind: node\nsub_kind: openssh\nversion: v1\nmetadata: {name: db-1}\nspec: {address: '192.0.2.1:22'}\n";
    write(&cluster, server.to_owned()).await;
    write(&cluster, role("dev", "{allow: {logins: [deploy], node_labels: {'*': '*'}}}")).await;
    write(&cluster, role("other", "{allow: {logins: [web], node_labels: {'*': '*'}}}")).await;
    let mut admin = ClusterClient::new(support::admin_channel(&cluster.data_dir()).await);
    let nodes = admin.list_nodes(v1::ListNodesRequest::default()).await.unwrap().into_inner().nodes;
    let alice = person(&cluster, "alice", &["dev", "other"], &[]).await;
    let mut fleet = FleetClient::new(proxy.channel.clone());
    let mut certify = async |login: &str| {
        let request = v1::CertifyForTargetRequest {
            node_id: nodes[0].id.clone(),
            login: login.to_owned(),
            user_certificate: alice.ssh_certificate.clone(),
            ssh_public_key: proxy.ssh.public_line().to_owned(),
            word: None,
        };
        fleet.certify_for_target(request).await.map(drop).map_err(|status| status.code())
    };
    certify("deploy").await.unwrap();
    // A role that was taken away does not count, whatever the certificate says and even without the lock.
    write(&cluster, account("alice", &["other"], &[])).await;
    assert_eq!(certify("deploy").await, Err(Code::PermissionDenied));
    unlock(&cluster).await;
    assert_eq!(certify("deploy").await, Err(Code::PermissionDenied));
    certify("web").await.unwrap();
    remove(&cluster, "user", "alice").await.unwrap();
    unlock(&cluster).await;
    assert_eq!(certify("web").await, Err(Code::PermissionDenied));
}

/// Lifts every lock.
async fn unlock(cluster: &Cluster) {
    let locks = v1::ListResourcesRequest { kind: "lock".to_owned(), ..Default::default() };
    for lock in cluster.admin().await.list_resources(locks).await.unwrap().into_inner().resources {
        remove(cluster, "lock", &lock.name).await.unwrap();
    }
}

async fn login_with(cluster: &Cluster, name: &str, password: &str) -> Result<(), Code> {
    let request = v1::LoginRequest {
        user: name.to_owned(),
        password: password.to_owned(),
        ssh_public_key: SshKeyPair::generate(Suite::BalancedV1, "x").unwrap().public_line().to_owned(),
        tls_public_key: TlsKey::generate(Suite::BalancedV1).unwrap().spki_der().to_vec().into(),
        ..Default::default()
    };
    stranger(cluster).await.login_with_password(request).await.map(drop).map_err(|status| status.code())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_does_not_open_an_account_that_has_become_more() {
    let cluster = Cluster::without_node().await;
    let invite = invited(&cluster, "bob", &[], &[]).await;
    write(&cluster, account("bob", &["editor"], &[])).await;
    let status = stranger(&cluster).await.finish_invite(finish(&invite.token, PASSWORD)).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    assert!(status.message().contains("changed or removed since this link was made"), "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn resets_at_once_tell_no_keys_of_the_state() {
    let cluster = Cluster::without_node().await;
    invited(&cluster, "bob", &[], &[]).await;
    let resets = (0..40).map(|_| {
        let admin = cluster.admin();
        async move { admin.await.reset_user(v1::ResetUserRequest { name: "bob".to_owned() }).await }
    });
    let outcomes = futures::future::join_all(resets).await;
    let mut tokens = Vec::new();
    for outcome in outcomes {
        tokens.push(outcome.unwrap().into_inner().token);
    }
    let mut login = stranger(&cluster).await;
    let mut good = 0;
    for token in tokens {
        match login.begin_invite(v1::BeginInviteRequest { token }).await {
            Ok(_) => good += 1,
            Err(status) => assert!(!status.message().contains("invite/"), "{status:?}"),
        }
    }
    assert_eq!(good, 1, "the last one counts");
}
