//! Where the parts of a cluster stand: on loopback, or on hosts of a WAN.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use crate::Namespace;
use crate::TestbedError;

/// Ports that are looked at, and how many.
const FIRST_PORT: u16 = 10_000;
const PORTS: u64 = 22_000;
const TRIES: u64 = 1000;

/// Where programs run, and the address at which others find what they serve.
#[derive(Debug, Clone)]
pub struct Site {
    address: IpAddr,
    namespace: Option<Namespace>,
}

impl Default for Site {
    fn default() -> Self {
        Self { address: IpAddr::V4(Ipv4Addr::LOCALHOST), namespace: None }
    }
}

impl Site {
    /// A host of its own: its address, and the namespace that it is in.
    #[must_use]
    pub fn of(address: IpAddr, namespace: Namespace) -> Self {
        Self { address, namespace: Some(namespace) }
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Does something there: programs that it starts and sockets that it makes are there.
    ///
    /// # Errors
    /// When it is not there any more.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, TestbedError> {
        match &self.namespace {
            Some(namespace) => namespace.inside(work),
            None => Ok(work()),
        }
    }

    /// A free port of TCP there, below those that the kernel gives to connections by itself (`ip_local_port_range`): one of
    /// those is some connection's by the time that a service listens.
    ///
    /// # Errors
    /// When there is none.
    pub fn free_port(&self) -> Result<u16, TestbedError> {
        let random = RandomState::new();
        let free = |port: &u16| TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok();
        let found = self.inside(|| {
            (0..TRIES)
                .filter_map(|number| {
                    u16::try_from(random.hash_one(number) % PORTS).ok()?.checked_add(FIRST_PORT)
                })
                .find(free)
        })?;
        found.ok_or_else(|| TestbedError::Failed {
            what: "finding a free port".to_owned(),
            said: format!("{TRIES} from {FIRST_PORT} on are all taken"),
        })
    }

    /// Whether a program listens there by now.
    pub fn answers(&self, port: u16) -> bool {
        let address = SocketAddr::new(self.address, port);
        self.inside(|| TcpStream::connect(address).is_ok()).unwrap_or_default()
    }
}

/// Where everything stands.
#[derive(Debug, Clone, Default)]
pub struct Sites {
    /// The client.
    pub client: Site,
    /// The proxy, and the authority beside it.
    pub proxy: Site,
    /// The node, and the stock server beside it.
    pub host: Site,
}

/// A free port of this machine.
///
/// # Errors
/// As [`Site::free_port`].
pub fn free_port() -> Result<u16, TestbedError> {
    Site::default().free_port()
}
