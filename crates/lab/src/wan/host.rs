//! A host of a WAN.

use std::net::{Ipv4Addr, Ipv6Addr};

use sallyport_testing::{Name, Namespace};

/// A host of a WAN that is up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its name, by which the others know it.
    pub name: Name,
    /// Where it stands.
    pub region: Name,
    /// Its namespace.
    pub namespace: Namespace,
    /// Its address.
    pub v4: Ipv4Addr,
    /// Its address of the newer kind.
    pub v6: Ipv6Addr,
}
