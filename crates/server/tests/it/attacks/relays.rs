//! What a proxy relays to the authority: by its word for where clients are, and once it is locked.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use sallyport_access::HostRole;
use sallyport_sal::tls::rustls::pki_types::ServerName;
use sallyport_server::config::HostPort;
use sallyport_wire::alpn;
use sallyport_wire::relay::RelayHeader;
use sallyport_wire::v1;
use sallyport_wire::v1::login_client::LoginClient;
use sallyport_wire::v1::web_client::WebClient;
use tokio::io::AsyncWriteExt;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::limits::{attempt, channel_from};
use super::people::remove;
use super::taken_proxies::lock;
use crate::support::member::{Joining, Member};
use crate::support::{self, Cluster, PATIENCE, until};

/// What the answer must be there within; it is there in half a second, and a machine under load takes its time.
const SECONDS: Duration = Duration::from_secs(5);

/// A client's way to the authority through a proxy whose certificate and key these are.
async fn relayed(cluster: &Cluster, proxy: &Member, pin: &str, client: &str) -> std::io::Result<Channel> {
    let trust = cluster.running.authority().unwrap().trust();
    let own = Some((proxy.issued.tls_certificate_pem.as_str(), proxy.key.as_str()));
    let config = sallyport_ca::tls::client_config(&trust, own, &[alpn::RELAY]).unwrap();
    let authority = HostPort::from(cluster.running.addresses().auth.unwrap());
    let server = sallyport_ca::server_name(HostRole::Auth, &support::cluster());
    let mut outer = support::tls(&authority, config, &server).await?;
    let header = RelayHeader { client_addr: SocketAddr::new(client.parse().unwrap(), 4711) };
    outer.write_all(&header.encode().unwrap()).await?;
    let clients = sallyport_ca::tls::pinned_client_config(pin, &[alpn::AUTH]).unwrap();
    let name = ServerName::try_from("auth.sallyport.internal").unwrap();
    let inner = TlsConnector::from(Arc::new(clients)).connect(name, outer).await?;
    let inner = Mutex::new(Some(inner));
    let connect = tower::service_fn(move |_| {
        let taken = inner.lock().take();
        async move { taken.map(TokioIo::new).ok_or_else(|| std::io::Error::other("lost")) }
    });
    let endpoint = Endpoint::from_static("http://cluster.invalid");
    endpoint.connect_with_connector(connect).await.map_err(std::io::Error::other)
}

/// Where proxies say that their clients are.
const CLIENT: &str = "198.51.100.7";

async fn answers(channel: &Channel) -> bool {
    LoginClient::new(channel.clone()).ping(v1::PingRequest {}).await.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_locked_or_removed_proxy_relays_is_cut_and_it_relays_no_more() {
    let cluster = relaying().await;
    let pin = support::pin(&mut cluster.admin().await).await;
    let proxy = Joining::new("proxy", "edge.example.net").join(&cluster).await.unwrap();
    let other = Joining::new("proxy", "other.example.net").join(&cluster).await.unwrap();
    let relays = async |member: &Member| match relayed(&cluster, member, &pin, CLIENT).await {
        Ok(channel) => answers(&channel).await,
        Err(_) => false,
    };

    // Hosts that are no proxies relay nothing.
    let node = Joining::new("node", "web-1").join(&cluster).await.unwrap();
    assert!(!relays(&node).await);

    for how in ["locked", "removed"] {
        let held = relayed(&cluster, &proxy, &pin, CLIENT).await.unwrap();
        let untouched = relayed(&cluster, &other, &pin, CLIENT).await.unwrap();
        assert!(answers(&held).await && answers(&untouched).await);
        let began = Instant::now();
        match how {
            "locked" => drop(cluster.admin().await.create_resource(lock("taken", &proxy.id)).await.unwrap()),
            _ => remove(&cluster, "node", &proxy.id).await.unwrap(),
        }
        until("the relay to be cut", async || (!answers(&held).await).then_some(())).await;
        assert!(began.elapsed() < SECONDS, "{how}: after {:?}", began.elapsed());
        assert!(!relays(&proxy).await, "{how}, it relays again");
        assert!(answers(&untouched).await, "another proxy's relay goes on");
        if how == "locked" {
            remove(&cluster, "lock", "taken").await.unwrap();
        }
    }
    cluster.running.shutdown(false).await;
}

fn is_barred(status: &Status) -> bool {
    support::is(status, Code::ResourceExhausted, "too many failed attempts from this address")
}

/// A cluster whose authority proxies relay to.
async fn relaying() -> Cluster {
    let cluster = Cluster::start(|config| {
        let auth = config.auth.as_mut().unwrap();
        auth.listen = Some(support::loopback());
    })
    .await;
    cluster.running.ready(PATIENCE).await.unwrap();
    cluster
}

async fn with_password(channel: Channel, user: &str, password: &str) -> Result<(), Status> {
    let request = v1::LoginRequest { password: password.to_owned(), ..attempt(user) };
    LoginClient::new(channel).login_with_password(request).await.map(drop)
}

/// A proxy in the wrong hands says a thousand times that an office's address has guessed, by the connections that it relays and by its pages.
#[tokio::test(flavor = "multi_thread")]
async fn attacks_what_one_proxy_says_of_an_office_bars_it_at_no_other_proxy_and_not_directly() {
    let cluster = relaying().await;
    let pin = support::pin(&mut cluster.admin().await).await;
    cluster.user("alice", &["alice"]).await;
    let taken = Joining::new("proxy", "edge.example.net").join(&cluster).await.unwrap();
    let honest = Joining::new("proxy", "other.example.net").join(&cluster).await.unwrap();
    let by = async |member: &Member| relayed(&cluster, member, &pin, CLIENT).await.unwrap();

    let mut guessing = LoginClient::new(by(&taken).await);
    let mut refused = Vec::new();
    for number in 0..1_000 {
        let token = format!("guess-{number}");
        refused.push(guessing.begin_invite(v1::BeginInviteRequest { token }).await.unwrap_err());
    }
    let wrong = refused.iter().take_while(|status| status.code() == Code::PermissionDenied).count();
    assert_eq!(wrong, 60, "a guesser is held up at the proxy that it comes by");
    assert!(is_barred(&refused[wrong]), "{:?}", refused[wrong]);
    assert!(refused[wrong..].iter().all(|status| status.code() == Code::ResourceExhausted));
    let shut = with_password(by(&taken).await, "alice", support::PASSWORD).await.unwrap_err();
    assert_eq!(shut.code(), Code::ResourceExhausted, "{shut:?}");
    // What its pages are told is its word as well.
    let page = v1::WebRequest { id: "guessed".to_owned(), address: CLIENT.to_owned() };
    let shut = WebClient::new(taken.channel.clone()).describe_approval(page.clone()).await.unwrap_err();
    assert_eq!(shut.code(), Code::ResourceExhausted, "{shut:?}");

    // The office logs in by another proxy, at its pages, and directly.
    with_password(by(&honest).await, "alice", support::PASSWORD).await.unwrap();
    let unknown = WebClient::new(honest.channel.clone()).describe_approval(page).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound, "{unknown:?}");
    let config = sallyport_ca::tls::pinned_client_config(&pin, &[alpn::AUTH]).unwrap();
    with_password(channel_from(&cluster, config, CLIENT).await, "alice", support::PASSWORD).await.unwrap();
    cluster.running.shutdown(false).await;
}

/// A guesser has one budget for each proxy that it comes by, and an account one for all of them.
#[tokio::test(flavor = "multi_thread")]
async fn attacks_an_account_closes_however_many_proxies_a_guesser_comes_by() {
    let cluster = relaying().await;
    let pin = support::pin(&mut cluster.admin().await).await;
    cluster.user("alice", &["alice"]).await;
    let mut guesses = 0;
    let closed = loop {
        let proxy =
            Joining::new("proxy", &format!("edge-{guesses}.example.net")).join(&cluster).await.unwrap();
        let channel = relayed(&cluster, &proxy, &pin, CLIENT).await.unwrap();
        let status = with_password(channel, "alice", "a wrong password").await.unwrap_err();
        if status.code() != Code::Unauthenticated {
            break status;
        }
        guesses += 1;
        assert!(guesses <= 5, "another try at each proxy");
    };
    assert!(support::is(&closed, Code::ResourceExhausted, "this account is closed"), "{closed:?}");
    cluster.running.shutdown(false).await;
}
