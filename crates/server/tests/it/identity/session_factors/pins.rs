//! Logins that are pinned to the address that they come from. Programs of these tests are at 127.0.0.1, and a thief at 127.0.0.9.

use std::net::{IpAddr, Ipv4Addr};

use sallyport_ca::SshPermits;
use sallyport_wire::v1::cluster_client::ClusterClient;
use sallyport_wire::v1::end_logins_request::Which;
use sallyport_wire::v1::logins_client::LoginsClient;
use sallyport_wire::v1::proxy_database_request::Frame as DatabaseFrame;
use sallyport_wire::v1::proxy_resource_request::Frame as ResourceFrame;
use sallyport_wire::v1::proxy_ssh_request::Frame as SshFrame;
use sallyport_wire::v1::transport_client::TransportClient;

use super::ways::first;
use super::*;
use crate::support::{is, pinned_from};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);
const TOLD: &str = "this login is pinned to 127.0.0.1 (pin_source_ip), and you come from 127.0.0.9: log in again: sallyport login";

/// What both certificates of a login say.
fn pinned_to(user: &User) -> Option<IpAddr> {
    let now = OffsetDateTime::now_utc();
    let leaf = CertificateDer::from_pem_slice(user.tls_chain.as_bytes()).unwrap();
    let by_tls = user.trust.identify_tls(&leaf, now).unwrap().pinned_to;
    let ssh = sallyport_ca::keys::certificate(&user.ssh_certificate).unwrap();
    assert_eq!(user.trust.verify_user_ssh(&ssh, now).unwrap().pinned_to, by_tls);
    let bound = SshPermits::read(&user.ssh_certificate).unwrap().bound;
    let networks = by_tls.map(|address| ("source-address".to_owned(), format!("{address}/32")));
    assert_eq!(bound, Vec::from_iter(networks), "what stock servers go by");
    by_tls
}

/// A way in.
#[derive(Debug, Clone, Copy)]
enum Way {
    Ssh,
    Native,
    /// Stock `ssh -J`.
    Jump,
    Database,
    App,
}

impl Way {
    const ALL: [Self; 5] = [Self::Ssh, Self::Native, Self::Jump, Self::Database, Self::App];

    /// Opens a session this way, or as much of it as the proxy decides about; else what the user is told.
    async fn open(self, user: &User, agent: &str) -> Result<(), String> {
        let told = |status: Status| status.message().to_owned();
        let mut proxy = TransportClient::new(user.connect().await.unwrap());
        let agents = vec![agent.to_owned()];
        match self {
            Self::Ssh => {
                user.open("web-1", &os_login()).await.map_err(told)?;
                let (out, err, _) = user.run("web-1", &os_login(), "echo in").await;
                if out == "in\n" { Ok(()) } else { Err(err) }
            }
            Self::Native => {
                let (node, login) = ("web-1".to_owned(), os_login());
                let target = v1::SshTarget { node, login, native: true, ..Default::default() };
                let frame = v1::ProxySshRequest { frame: Some(SshFrame::Target(target)) };
                first(frame, async |asked| proxy.proxy_ssh(asked).await).await.map_err(told)
            }
            Self::Jump => by_jump(user).await,
            Self::Database => {
                let target = v1::DatabaseTarget {
                    database: "shop".to_owned(),
                    end_to_end: true,
                    db_user: "app".to_owned(),
                    db_name: "shop".to_owned(),
                    agents,
                };
                let frame = v1::ProxyDatabaseRequest { frame: Some(DatabaseFrame::Target(target)) };
                first(frame, async |asked| proxy.proxy_database(asked).await).await.map_err(told)
            }
            Self::App => {
                let (kind, name) = ("app".to_owned(), "wiki".to_owned());
                let frame = ResourceFrame::Target(v1::ResourceTarget { kind, name, agents });
                let frame = v1::ProxyResourceRequest { frame: Some(frame) };
                first(frame, async |asked| proxy.proxy_resource(asked).await).await.map_err(told)
            }
        }
    }
}

async fn by_jump(user: &User) -> Result<(), String> {
    let (directory, login) = (tempfile::tempdir().unwrap(), os_login());
    let key = user.write_keys(directory.path());
    let (key, proxy) = (key.display(), &user.proxy);
    let from = user.from.map(|from| format!("-b {from} ")).unwrap_or_default();
    let known = "-o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null";
    let jump = format!("ssh -F none {from}-i {key} {known} -W %h:%p -p {} alice@{}", proxy.port, proxy.host);
    let ran = tokio::process::Command::new("sh")
        .arg("-c")
        .arg(format!("ssh -F none -i {key} {known} -o 'ProxyCommand={jump}' {login}@web-1 echo in"))
        .stdin(std::process::Stdio::null())
        .output()
        .await
        .unwrap();
    if ran.stdout == b"in\n" { Ok(()) } else { Err(String::from_utf8_lossy(&ran.stderr).into_owned()) }
}

/// Another machine with the files of a login.
fn thief(of: &User) -> User {
    User { from: Some(ELSEWHERE), ..of.clone() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pinned_login_opens_nothing_from_elsewhere_and_calls_nothing() {
    let (cluster, before) = scene("").await;
    let bench = Bench::at(&cluster).await;
    let agent = agent_of(&cluster).await;
    let pin = support::pin(&mut cluster.admin().await).await;
    let log_in = || support::log_in(&before.proxy, &pin, "alice", None);
    assert_eq!((pinned_to(&before), pinned_to(&log_in().await.unwrap())), (None, None));

    put(&cluster, role("alice-role", "pin_source_ip: true")).await;
    let alice = log_in().await.unwrap();
    assert_eq!(pinned_to(&alice), Some(HERE));
    let events = bench.events("SP1000I", "alice").await;
    assert_eq!(events.last().unwrap()["fields"]["pinned_to"], "127.0.0.1", "{events:?}");

    for way in Way::ALL {
        until(&format!("{way:?} from its own address"), async || way.open(&alice, &agent).await.ok()).await;
        let refused = way.open(&thief(&alice), &agent).await.unwrap_err();
        assert!(refused.contains(TOLD), "{way:?}: {refused}");
    }
    for code in ["SP2006W", "SP2202W", "SP2302W"] {
        // The proxy's comes by its spool, and an agent may have one of this code besides.
        until(&format!("the proxy's {code}"), async || {
            let refused = support::events(&mut cluster.admin().await, code).await;
            let ours = |event: &serde_json::Value| {
                event["fields"]["reason"] == "pinned_elsewhere"
                    && event["user"] == "alice"
                    && event["fields"]["at"] == "proxy"
            };
            refused.iter().any(ours).then_some(())
        })
        .await;
    }
    // A login from before says no address, and is not enough where a role pins.
    until("the role to be known", async || {
        let refused = before.open("web-1", &os_login()).await.err();
        refused.filter(|status| is(status, Code::PermissionDenied, "is from before that was asked for"))
    })
    .await;

    let (here, stolen) = (alice.authority().await, thief(&alice).authority().await);
    ClusterClient::new(here.clone()).list_nodes(v1::ListNodesRequest::default()).await.unwrap();
    let listing = ClusterClient::new(stolen.clone()).list_nodes(v1::ListNodesRequest::default()).await;
    let logins = LoginsClient::new(stolen.clone()).list(v1::ListLoginsRequest::default()).await;
    let factors = FactorsClient::new(stolen.clone()).list(v1::ListFactorsRequest {}).await;
    let follow = sallyport_wire::v1::rotation_client::RotationClient::new(stolen.clone());
    let follow = follow.clone().follow(alice.certificates()).await;
    let refused =
        [listing.map(drop), logins.map(drop), factors.map(drop), follow.map(drop)].map(Result::unwrap_err);
    assert!(refused.iter().all(|status| is(status, Code::PermissionDenied, TOLD)), "{refused:?}");
    let events = bench.events("SP3001W", "alice").await;
    for method in ["Cluster.ListNodes", "Logins.List", "Factors.List", "Rotation.Follow"] {
        let written = |event: &Value| event["fields"]["method"] == method && event["message"] == TOLD;
        assert!(events.iter().any(written), "{method}: {events:?}");
    }
    // What strangers may do, they may: another login, from where they are.
    let mut login = LoginClient::new(stolen);
    login.ping(v1::PingRequest {}).await.unwrap();
    // By a proxy that asks for a client, nothing is asked of alice for another's sessions, and nothing said.
    let request = v1::BeginSessionFactorForRequest {
        certificate: shown(&alice),
        address: ELSEWHERE.to_string(),
        target: Some(web_1()),
    };
    let asked = bench.factors_of_sessions().begin_for(request).await.unwrap_err();
    assert!(is(&asked, Code::PermissionDenied, TOLD), "{asked:?}");
}

/// A login from before its role pinned ends itself and shows what is open; whatever else it calls says to log in again.
#[tokio::test(flavor = "multi_thread")]
async fn a_login_from_before_its_role_pinned_ends_itself_and_calls_nothing_else() {
    const BEFORE: &str = "pinned to its address (pin_source_ip), and this one is not";
    let (cluster, before) = scene("").await;
    let bench = Bench::at(&cluster).await;
    let pin = support::pin(&mut cluster.admin().await).await;
    let channel = before.authority().await;
    let mut nodes = ClusterClient::new(channel.clone());
    nodes.list_nodes(v1::ListNodesRequest::default()).await.unwrap();

    put(&cluster, role("alice-role", "pin_source_ip: true")).await;
    let alice = support::log_in(&before.proxy, &pin, "alice", None).await.unwrap();
    // On the connection that it had, too.
    let listing = nodes.list_nodes(v1::ListNodesRequest::default()).await.map(drop);
    let factors = FactorsClient::new(channel.clone()).list(v1::ListFactorsRequest {}).await.map(drop);
    let follow = sallyport_wire::v1::rotation_client::RotationClient::new(channel.clone());
    let follow = follow.clone().follow(before.certificates()).await.map(drop);
    let mut logins = LoginsClient::new(channel.clone());
    let open = logins.list(v1::ListLoginsRequest::default()).await.unwrap().into_inner().logins;
    assert_eq!(open.len(), 2, "{open:?}");
    let other = open.iter().find(|login| !login.current).unwrap().id.clone();
    let mut end = async |which| logins.end(v1::EndLoginsRequest { which: Some(which) }).await.map(drop);
    let one = end(Which::Id(other)).await;
    let others = end(Which::Others(true)).await;
    let refused = [listing, factors, follow, one, others].map(Result::unwrap_err);
    assert!(refused.iter().all(|status| is(status, Code::PermissionDenied, BEFORE)), "{refused:?}");
    assert!(refused.iter().all(|status| status.message().ends_with("log in again: sallyport login")));
    let events = bench.events("SP3001W", "alice").await;
    for method in ["Cluster.ListNodes", "Factors.List", "Rotation.Follow", "Logins.End"] {
        let written = |event: &Value| {
            event["fields"]["method"] == method
                && event["message"].as_str().is_some_and(|told| told.contains(BEFORE))
        };
        assert!(events.iter().any(written), "{method}: {events:?}");
    }
    let mut pinned = ClusterClient::new(alice.authority().await);
    pinned.list_nodes(v1::ListNodesRequest::default()).await.unwrap();
    end(Which::Own(true)).await.unwrap();
    let over = ClusterClient::new(channel).list_nodes(v1::ListNodesRequest::default()).await.unwrap_err();
    assert!(is(&over, Code::PermissionDenied, "its user logged out"), "{over:?}");
    pinned.list_nodes(v1::ListNodesRequest::default()).await.unwrap();
}

/// A login that is proven in a browser is pinned to the address that its person was shown, and its certificates go nowhere else.
#[tokio::test(flavor = "multi_thread")]
async fn a_login_in_a_browser_is_pinned_to_where_it_was_asked_for() {
    let (cluster, before) = scene("pin_source_ip: true").await;
    let bench = Bench::at(&cluster).await;
    let alice = support::log_in(&before.proxy, &bench.pin, "alice", None).await.unwrap();
    let mut key = bench.first_passkey(&alice).await;
    assert_eq!(pinned_to(&bench.logged_in(&mut key).await), Some(HERE));

    let begun = bench.begin(PORT).await.unwrap();
    let code = code_of(&bench.prove(&begun, &mut key).await.unwrap());
    let request = || v1::FinishBrowserLoginRequest {
        challenge: begun.id.clone(),
        code: code.clone(),
        code_verifier: begun.verifier.clone(),
        cancel: false,
    };
    let mut elsewhere = LoginClient::new(pinned_from(&cluster.proxy(), &bench.pin, ELSEWHERE).await);
    let refused = elsewhere.finish_browser_login(request()).await.unwrap_err();
    assert!(is(&refused, Code::PermissionDenied, TOLD), "{refused:?}");
    let failed = bench.events("SP1000W", "alice").await;
    assert_eq!(failed.last().unwrap()["message"], "pinned_elsewhere", "{failed:?}");
    bench.login().await.finish_browser_login(request()).await.unwrap();
}

/// Where the whole cluster pins, a role may do without; and no server of others is shown a certificate that it has to refuse.
#[tokio::test(flavor = "multi_thread")]
async fn the_cluster_pins_where_roles_are_silent_and_stock_servers_are_not_gone_to_past_the_proxy() {
    let (cluster, before) = scene("").await;
    let pin = support::pin(&mut cluster.admin().await).await;
    let log_in = || support::log_in(&before.proxy, &pin, "alice", None);
    let policy = |spec: &str| {
        format!("kind: session_policy\nversion: v1\nmetadata: {{name: default}}\nspec: {{{spec}}}\n")
    };
    put(&cluster, policy("pin_source_ip: true")).await;
    let alice = log_in().await.unwrap();
    assert_eq!(pinned_to(&alice), Some(HERE));
    put(&cluster, role("alice-role", "pin_source_ip: false")).await;
    assert_eq!(pinned_to(&log_in().await.unwrap()), None);

    let listener = TcpListener::bind(support::loopback()).await.unwrap();
    let address = listener.local_addr().unwrap();
    put(
        &cluster,
        format!(
            "kind: node\nsub_kind: openssh\nversion: v1\nmetadata: {{name: stock}}\nspec: {{address: '{address}', trust: user}}\n"
        ),
    )
    .await;
    until("the server to be known", async || {
        let refused = alice.open("stock", &os_login()).await.err();
        let told = "server stock takes a login that is pinned (pin_source_ip) from 127.0.0.1 alone";
        refused.filter(|status| is(status, Code::FailedPrecondition, told))
    })
    .await;
}
