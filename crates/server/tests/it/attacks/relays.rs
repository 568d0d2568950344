//! What a proxy relays to the authority, once it is locked.

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
use tokio::io::AsyncWriteExt;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};

use super::people::remove;
use super::taken_proxies::lock;
use crate::support::member::{Joining, Member};
use crate::support::{self, Cluster, PATIENCE, until};

/// What the answer must be there within; it is there in half a second, and a machine under load takes its time.
const SECONDS: Duration = Duration::from_secs(5);

/// A client's way to the authority through a proxy whose certificate and key these are.
async fn relayed(cluster: &Cluster, proxy: &Member, pin: &str) -> std::io::Result<Channel> {
    let trust = cluster.running.authority().unwrap().trust();
    let own = Some((proxy.issued.tls_certificate_pem.as_str(), proxy.key.as_str()));
    let config = sallyport_ca::tls::client_config(&trust, own, &[alpn::RELAY]).unwrap();
    let authority = HostPort::from(cluster.running.addresses().auth.unwrap());
    let server = sallyport_ca::server_name(HostRole::Auth, &support::cluster());
    let mut outer = support::tls(&authority, config, &server).await?;
    let header = RelayHeader { client_addr: "198.51.100.7:4711".parse().unwrap() };
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

async fn answers(channel: &Channel) -> bool {
    LoginClient::new(channel.clone()).ping(v1::PingRequest {}).await.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_locked_or_removed_proxy_relays_is_cut_and_it_relays_no_more() {
    let cluster = Cluster::start(|config| {
        let auth = config.auth.as_mut().unwrap();
        auth.listen = Some(support::loopback());
    })
    .await;
    cluster.running.ready(PATIENCE).await.unwrap();
    let pin = support::pin(&mut cluster.admin().await).await;
    let proxy = Joining::new("proxy", "edge.example.net").join(&cluster).await.unwrap();
    let other = Joining::new("proxy", "other.example.net").join(&cluster).await.unwrap();
    let relays = async |member: &Member| match relayed(&cluster, member, &pin).await {
        Ok(channel) => answers(&channel).await,
        Err(_) => false,
    };

    // Hosts that are no proxies relay nothing.
    let node = Joining::new("node", "web-1").join(&cluster).await.unwrap();
    assert!(!relays(&node).await);

    for how in ["locked", "removed"] {
        let (held, untouched) =
            (relayed(&cluster, &proxy, &pin).await.unwrap(), relayed(&cluster, &other, &pin).await.unwrap());
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
