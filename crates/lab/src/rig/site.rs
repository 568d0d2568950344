//! Where the parts of a cluster stand: on loopback, or on hosts of a WAN.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use crate::LabError;
use crate::wan::{Host, Namespace};

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

impl From<&Host> for Site {
    fn from(host: &Host) -> Self {
        Self { address: IpAddr::V4(host.v4), namespace: Some(host.namespace.clone()) }
    }
}

impl Site {
    /// Its address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Does something there: programs that it starts and sockets that it makes are there.
    ///
    /// # Errors
    /// When it is not there any more.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        match &self.namespace {
            Some(namespace) => namespace.inside(work),
            None => Ok(work()),
        }
    }

    /// A port of TCP that nobody has.
    pub(super) fn free_port(&self) -> Result<u16, LabError> {
        let port = self.inside(|| TcpListener::bind((self.address, 0))?.local_addr())?;
        port.map(|address| address.port()).map_err(|error| LabError::Failed {
            what: "finding a free port".to_owned(),
            said: error.to_string(),
        })
    }

    /// Whether somebody listens there by now.
    pub(super) fn answers(&self, port: u16) -> bool {
        let address = SocketAddr::new(self.address, port);
        self.inside(|| TcpStream::connect(address).is_ok()).unwrap_or_default()
    }
}

/// Where everything stands.
#[derive(Debug, Clone, Default)]
pub struct Sites {
    /// Whoever connects.
    pub client: Site,
    /// The proxy, and the authority beside it.
    pub proxy: Site,
    /// The node, and the stock server beside it.
    pub host: Site,
}
