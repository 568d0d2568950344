//! Guessing, and filling the log with refusals.

use std::net::SocketAddr;

use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use sallyport_access::HostRole;
use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_sal::Suite;
use sallyport_server::authority::PeerInfo;
use sallyport_wire::v1::admin_client::AdminClient;
use sallyport_wire::v1::login_client::LoginClient;
use sallyport_wire::{alpn, v1};
use serde_json::Value;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::support::member::Joining;
use crate::support::{self, Cluster, PATIENCE, auth_section, log_in, pin, pinned, proxy_section};

/// The events of a cluster that has ended.
fn written(cluster: &std::path::Path) -> Vec<Value> {
    let file = cluster.join("cluster/auth/audit/events-0000000000000001.log");
    let text = std::fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str(line.splitn(3, ' ').nth(2).unwrap()).unwrap()).collect()
}

/// Ends a cluster; gives its events of a code, and how many calls they stand for.
async fn events_of(cluster: Cluster, code: &str) -> (usize, u64) {
    let Cluster { directory, running } = cluster;
    running.shutdown(true).await;
    let events: Vec<Value> =
        written(directory.path()).into_iter().filter(|event| event["code"] == code).collect();
    let calls = events.iter().map(|event| event["fields"]["count"].as_u64().unwrap_or(1)).sum();
    (events.len(), calls)
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_calls_of_a_user_without_roles_are_a_count_in_the_log() {
    const CALLS: u64 = 1_500;
    let cluster = Cluster::without_node().await;
    let mallory = cluster.user("mallory", &[]).await;
    let mut admin = AdminClient::new(mallory.authority().await);
    let mut over = 0;
    for _ in 0..CALLS {
        let request = v1::GetResourceRequest { kind: "user".to_owned(), name: "alice".to_owned() };
        match admin.get_resource(request).await.unwrap_err().code() {
            Code::PermissionDenied => {}
            Code::ResourceExhausted => over += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(over > 0, "a login's calls have a bound");
    let (events, calls) = events_of(cluster, "SP3001W").await;
    assert!(events < 100, "{events} events");
    assert_eq!(calls, CALLS, "none is missing");
}

/// More calls than a login or a place has in a minute, twice: the minute may be over meanwhile.
const BEYOND: usize = 1_300;

/// Makes calls that a member may not, on a new connection after each `of_address` of them; gives the number of the one that is
/// refused because there were so many.
async fn refused_until_bounded(
    mut channel: impl AsyncFnMut(usize) -> Channel,
    of_address: usize,
) -> Option<usize> {
    let mut admin = AdminClient::new(channel(0).await);
    for call in 0..BEYOND {
        if call > 0 && call % of_address == 0 {
            admin = AdminClient::new(channel(call / of_address).await);
        }
        let request = v1::GetResourceRequest { kind: "user".to_owned(), name: "alice".to_owned() };
        match admin.get_resource(request).await.unwrap_err().code() {
            Code::PermissionDenied => {}
            Code::ResourceExhausted => return Some(call),
            other => panic!("{other:?}"),
        }
    }
    None
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_has_one_bound_from_whatever_addresses_it_calls() {
    // Half of what one place has.
    const OF_ADDRESS: usize = 300;
    let cluster = Cluster::without_node().await;
    let mallory = cluster.user("mallory", &[]).await;
    let from = async |number: usize| {
        channel_from(&cluster, mallory.tls(alpn::AUTH), &format!("192.0.2.{}", number + 1)).await
    };
    let bounded = refused_until_bounded(from, OF_ADDRESS).await;
    let bounded = bounded.expect("a login's calls have no bound where it changes its address");
    assert!(bounded > OF_ADDRESS, "{bounded}: no address had so many");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hosts_calls_have_a_bound_which_is_its_own() {
    let cluster = Cluster::without_node().await;
    let web = Joining::new("node", "web-1").join(&cluster).await.unwrap();
    let bounded = refused_until_bounded(async |_| web.channel.clone(), usize::MAX).await;
    bounded.expect("a host's calls have no bound");
    // Others at its address are heard.
    let other = Joining::new("node", "web-2").join(&cluster).await.unwrap();
    let request = v1::GetResourceRequest { kind: "user".to_owned(), name: "alice".to_owned() };
    let status = AdminClient::new(other.channel.clone()).get_resource(request).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_that_are_repeated_are_a_count_in_the_log() {
    const CALLS: u64 = 1_500;
    let cluster = Cluster::without_node().await;
    let mallory = cluster.user("mallory", &[]).await;
    let mut client = v1::cluster_client::ClusterClient::new(mallory.authority().await);
    for _ in 0..CALLS {
        client.list_nodes(v1::ListNodesRequest::default()).await.unwrap();
    }
    let (events, calls) = events_of(cluster, "SP3000I").await;
    assert!(events < 400, "{events} events");
    assert!(calls >= CALLS, "{calls}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_does_not_escape_the_limits_of_strangers() {
    let cluster = Cluster::without_node().await;
    let mallory = cluster.user("mallory", &[]).await;
    let mut login = LoginClient::new(mallory.authority().await);
    let mut wrong = 0;
    let refused = loop {
        let status = login.begin_invite(v1::BeginInviteRequest { token: format!("guess-{wrong}") }).await;
        let status = status.unwrap_err();
        if status.code() != Code::PermissionDenied {
            break status;
        }
        wrong += 1;
        // As many as a stranger's, which are far fewer than the calls that a login has in a minute.
        assert!(wrong <= 60, "{wrong} wrong links with a certificate");
    };
    let is_barred = |status: &Status| support::is(status, Code::ResourceExhausted, "too many failed");
    assert!(is_barred(&refused), "{refused:?}");
    // Finishing a link, joining and logging in are no other ways.
    let finish = v1::FinishInviteRequest { token: "guess".to_owned(), ..Default::default() };
    let status = login.finish_invite(finish).await.unwrap_err();
    assert!(is_barred(&status), "{status:?}");
    let join = v1::JoinRequest { role: "node".to_owned(), name: "x".to_owned(), ..Default::default() };
    let status = login.join(join).await.unwrap_err();
    assert!(is_barred(&status), "{status:?}");
    let status = login.login_with_password(attempt("nobody")).await.unwrap_err();
    assert!(is_barred(&status), "{status:?}");
    let (events, _) = events_of(cluster, "SP1007W").await;
    assert!(events <= 60, "{events} events");
}

#[tokio::test(flavor = "multi_thread")]
async fn pings_of_a_stranger_are_a_count_in_the_log() {
    let cluster = Cluster::without_node().await;
    let pin = pin(&mut cluster.admin().await).await;
    let mut login = LoginClient::new(pinned(&cluster.proxy(), &pin).await);
    for _ in 0..300 {
        login.ping(v1::PingRequest {}).await.unwrap();
    }
    let (events, calls) = events_of(cluster, "SP1008I").await;
    assert!(events < 60, "{events} events");
    assert!(calls >= 300, "{calls}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pings_have_a_bound_with_a_certificate_and_without() {
    let cluster = Cluster::without_node().await;
    let pin = pin(&mut cluster.admin().await).await;
    let mallory = cluster.user("mallory", &[]).await;
    let member = channel_from(&cluster, mallory.tls(alpn::AUTH), "192.0.2.1").await;
    for mut login in [LoginClient::new(member), from(&cluster, &pin, "192.0.2.2").await] {
        let mut answered = 0;
        let status = loop {
            match login.ping(v1::PingRequest {}).await {
                Ok(_) => answered += 1,
                Err(status) => break status,
            }
            assert!(answered < BEYOND, "{answered} pings were answered");
        };
        assert!(support::is(&status, Code::ResourceExhausted, "too many calls"), "{status:?}");
    }
}

/// A stranger's connection to the authority, from an address of the caller's choice.
async fn from(cluster: &Cluster, pin: &str, address: &str) -> LoginClient<Channel> {
    let config = sallyport_ca::tls::pinned_client_config(pin, &[alpn::AUTH]).unwrap();
    LoginClient::new(channel_from(cluster, config, address).await)
}

/// A connection to the authority as the proxy hands it on, from an address of the caller's choice.
pub(super) async fn channel_from(cluster: &Cluster, config: ClientConfig, address: &str) -> Channel {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let authority = cluster.running.authority().unwrap().clone();
    let address = SocketAddr::new(address.parse().unwrap(), 40_000);
    tokio::spawn(async move { authority.serve(far, PeerInfo::direct(address)).await });
    let server = sallyport_ca::server_name(HostRole::Auth, &support::cluster());
    let server = ServerName::try_from(server).unwrap();
    let stream = TlsConnector::from(std::sync::Arc::new(config)).connect(server, near).await.unwrap();
    let stream = Mutex::new(Some(stream));
    let connect = tower::service_fn(move |_| {
        let taken = stream.lock().take();
        async move { taken.map(TokioIo::new).ok_or_else(|| std::io::Error::other("lost")) }
    });
    let endpoint = Endpoint::from_static("http://cluster.invalid");
    endpoint.connect_with_connector(connect).await.unwrap()
}

async fn guess(cluster: &Cluster, pin: &str, address: &str) -> Status {
    let request = v1::BeginInviteRequest { token: "a guess".to_owned() };
    from(cluster, pin, address).await.begin_invite(request).await.unwrap_err()
}

#[tokio::test(flavor = "multi_thread")]
async fn guesses_from_a_network_of_ipv6_are_guesses_from_one_place() {
    let cluster = Cluster::without_node().await;
    let pin = pin(&mut cluster.admin().await).await;
    let mut admitted = 0;
    while guess(&cluster, &pin, &format!("2001:db8:1:2::{admitted:x}")).await.code() == Code::PermissionDenied
    {
        admitted += 1;
        assert!(admitted <= 60, "an address for each guess");
    }
    assert_eq!(guess(&cluster, &pin, "2001:db8:1:2:ffff::1").await.code(), Code::ResourceExhausted);
    // Joining and logging in are no other ways, and the neighbours are not barred.
    let join = v1::JoinRequest { role: "node".to_owned(), name: "x".to_owned(), ..Default::default() };
    let status = from(&cluster, &pin, "2001:db8:1:2:eeee::1").await.join(join).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    let status = guess(&cluster, &pin, "2001:db8:1:3::1").await;
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
}

pub(super) fn attempt(user: &str) -> v1::LoginRequest {
    v1::LoginRequest {
        user: user.to_owned(),
        password: "a wrong password".to_owned(),
        ssh_public_key: SshKeyPair::generate(Suite::BalancedV1, "x").unwrap().public_line().to_owned(),
        tls_public_key: TlsKey::generate(Suite::BalancedV1).unwrap().spki_der().to_vec().into(),
        ..Default::default()
    }
}

/// What a stranger is answered who guesses the password of a name.
async fn answers(cluster: &Cluster, pin: &str, user: &str, times: usize) -> Vec<(Code, String)> {
    let mut login = LoginClient::new(pinned(&cluster.proxy(), pin).await);
    let mut answers = Vec::new();
    for _ in 0..times {
        let status = login.login_with_password(attempt(user)).await.unwrap_err();
        answers.push((status.code(), status.message().to_owned()));
    }
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lockout_does_not_tell_who_exists_not_even_after_a_restart() {
    let cluster = Cluster::without_node().await;
    let pin = pin(&mut cluster.admin().await).await;
    cluster.user("alice", &["alice"]).await;
    let known = answers(&cluster, &pin, "alice", 7).await;
    let unknown = answers(&cluster, &pin, "mallory", 7).await;
    assert_eq!(known, unknown);
    let closed: Vec<bool> = known.iter().map(|(code, _)| *code == Code::ResourceExhausted).collect();
    assert_eq!(closed, [false, false, false, false, false, true, true]);

    let Cluster { directory, running } = cluster;
    running.shutdown(true).await;
    let mut config = support::config(&directory.path().join("cluster"));
    config.auth = Some(auth_section());
    config.proxy = Some(proxy_section());
    let running = sallyport_server::start(config).await.unwrap();
    running.ready(PATIENCE).await.unwrap();
    let cluster = Cluster { directory, running };
    let known = answers(&cluster, &pin, "alice", 1).await;
    assert_eq!(known, answers(&cluster, &pin, "mallory", 1).await);
    assert_eq!(known[0].0, Code::ResourceExhausted);
    // A user who knows the password is kept out as well, and learns no more.
    let right = log_in(&cluster.proxy(), &pin, "alice", None).await.err().unwrap();
    assert_eq!((right.code(), right.message().to_owned()), known[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_on_what_does_not_exist_is_not_said_to_have_succeeded() {
    let cluster = Cluster::without_node().await;
    cluster.user("alice", &[]).await;
    let mut admin = cluster.admin().await;
    let lock = |what: &str, value: &str| {
        format!(
            "kind: lock\nversion: v1\nmetadata: {{name: {what}}}\nspec: {{target: {{{what}: '{value}'}}}}\n"
        )
    };
    for (what, missing) in
        [("user", "nosuchuser"), ("role", "nosuchrole"), ("node", "nosuchnode"), ("db", "nosuchdb")]
    {
        let yaml = lock(what, missing);
        let create = |replace| v1::CreateResourceRequest { yaml: yaml.clone(), replace };
        let refused = admin.create_resource(create(false)).await.unwrap_err();
        assert!(support::is(&refused, Code::NotFound, "keep no user and no host out"), "{refused:?}");
        assert!(refused.message().contains("--force"), "{refused:?}");
        let made = admin.create_resource(create(true)).await.unwrap().into_inner();
        // Nor by a change of one that is there.
        let update = v1::UpdateResourceRequest { yaml: yaml.clone(), revision: made.revision };
        assert_eq!(admin.update_resource(update).await.unwrap_err().code(), Code::NotFound);
        let gone = v1::DeleteResourceRequest { kind: "lock".to_owned(), name: what.to_owned() };
        admin.delete_resource(gone).await.unwrap();
    }
    for (what, there) in [("user", "alice"), ("role", "alice-role"), ("login", "anybody")] {
        let create = v1::CreateResourceRequest { yaml: lock(what, there), replace: false };
        admin.create_resource(create).await.unwrap();
    }
}
