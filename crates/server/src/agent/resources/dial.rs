//! Reaching a resource at the address of its document, and at no other: a name is asked for once, and is not followed to this
//! machine or to a cloud's metadata.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use sallyport_access::{Listed, Permit};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use crate::agent::health;
use crate::config::HostPort;
use crate::reach::{Failed, first_of, places};

/// An application that vanished without a word is noticed by the kernel once the connection was silent for so long, and some probes.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// Longest wait for a connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a resource is not reached.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotReached {
    #[error("{address:?} is no address: it {problem}")]
    Address { address: String, problem: &'static str },
    #[error("{address} refused the connection")]
    Refused { address: String },
    #[error("{address} did not answer within {} s", within.as_secs())]
    Silent { address: String, within: Duration },
    #[error("the name in {address} is not known there")]
    Unknown { address: String },
    #[error("there is no route to {address}")]
    NoRoute { address: String },
    #[error("{address}: {source}")]
    Other { address: String, source: io::Error },
    #[error(
        "the name in {address} resolves to {ip}, {what}, where names are not followed; write the address itself if it is meant"
    )]
    Apart { address: String, ip: IpAddr, what: &'static str },
}

/// Connects to the address of what the permit names.
pub(super) async fn dial(_permit: &Permit<Listed>, address: &str) -> Result<TcpStream, NotReached> {
    let stream = connect(address, PATIENCE).await?;
    let _ = stream.set_nodelay(true);
    let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE);
    let _ = socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive);
    Ok(stream)
}

/// Whether something takes connections there. Nothing is said to it.
pub(super) async fn answers(address: &str) -> Result<(), NotReached> {
    connect(address, health::PATIENCE).await.map(drop)
}

async fn connect(address: &str, within: Duration) -> Result<TcpStream, NotReached> {
    let owned = || address.to_owned();
    let parsed: HostPort =
        address.parse().map_err(|problem| NotReached::Address { address: owned(), problem })?;
    let connecting = async {
        let resolve = async |host: &str, port: u16| {
            let found = lookup_host((host, port)).await;
            // The system's resolver says it in many ways.
            Ok(found.map_err(|error| io::Error::new(io::ErrorKind::NotFound, error))?.collect())
        };
        first_of(&places(&parsed, resolve).await?).await.map_err(Failed::Io)
    };
    let connected = timeout(within, connecting).await;
    let connected = connected.map_err(|_| NotReached::Silent { address: owned(), within })?;
    connected.map_err(|failed| match failed {
        Failed::Apart(ip, what) => NotReached::Apart { address: owned(), ip, what },
        Failed::Io(source) => match source.kind() {
            io::ErrorKind::ConnectionRefused => NotReached::Refused { address: owned() },
            io::ErrorKind::TimedOut => NotReached::Silent { address: owned(), within },
            io::ErrorKind::NotFound => NotReached::Unknown { address: owned() },
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                NotReached::NoRoute { address: owned() }
            }
            _ => NotReached::Other { address: owned(), source },
        },
    })
}
