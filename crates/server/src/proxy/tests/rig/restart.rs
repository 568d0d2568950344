//! A proxy that goes and comes back at the same address, and the identities of agents that outlive it.

use std::net::UdpSocket;
use std::time::Duration;

use crate::tasks::Tasks;
use sallyport_access::{HostId, HostRole, NodeName};
use sallyport_sal::Suite;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use super::{PATIENCE, Rig, authority};
use crate::config::{HostPort, ProxySection, Secret};
use crate::health::Health;
use crate::member::host::HostIdentity;
use crate::proxy::Start;

impl Rig {
    /// Ends the proxy as a crash does: no peer is told.
    pub(in crate::proxy::tests) async fn crash(&mut self) {
        self.stop.cancel();
        // The accept loop ends by this one, and with it the listening socket.
        self.drain.cancel();
        self.tasks.close();
        tokio::time::timeout(PATIENCE, self.tasks.wait()).await.expect("the proxy's tasks end");
    }

    /// Another proxy at the same address, after [`Rig::crash`].
    pub(in crate::proxy::tests) async fn start_again(&mut self) {
        let listener = crate::listener::bind("the proxy", self.address).unwrap();
        self.drain = CancellationToken::new();
        self.stop = CancellationToken::new();
        self.tasks = Tasks::new();
        self.service = crate::proxy::start(Start {
            cluster: self.cluster.clone(),
            section: ProxySection { limits: self.limits.clone(), ..ProxySection::default() },
            directory: self.directory.path().join("proxy-again"),
            listener,
            udp: self.udp_again().await,
            public_addr: vec![HostPort::from(self.address)],
            authority: Some(authority(&self.cas, &self.asked)),
            require_fips: false,
            health: Health::new(),
            drain: self.drain.clone(),
            stop: self.stop.clone(),
            tasks: self.tasks.clone(),
        })
        .await
        .unwrap();
    }

    /// The UDP port, which the former proxy leaves once no client can send it anything any more.
    async fn udp_again(&self) -> Option<UdpSocket> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            match crate::listener::bind_udp(self.address) {
                Ok(socket) => return Some(socket),
                Err(_) if tokio::time::Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Err(_) => return None,
            }
        }
    }

    /// A node's identity as it is on its disk.
    pub(in crate::proxy::tests) fn identity(&self, id: HostId, name: &str) -> HostIdentity {
        let pair = self.host(id, name, HostRole::Node);
        let now = OffsetDateTime::now_utc();
        HostIdentity {
            cluster: self.cluster.clone(),
            id,
            name: NodeName::new(name).unwrap(),
            ssh_key: Secret::new(pair.ssh_key.clone()),
            ssh_certificate: pair.ssh_certificate.clone(),
            tls_key: Secret::new(pair.key.clone()),
            tls_chain: pair.chain,
            trust: self.cas.bundle(),
            suite: Suite::BalancedV1,
            issued: now,
            valid_until: now + time::Duration::hours(1),
        }
    }
}
