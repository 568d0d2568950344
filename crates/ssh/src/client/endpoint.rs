//! Where to listen or connect.

use std::fmt;
use std::io;

use tokio::net::{TcpStream, UnixStream};

use crate::BoxedStream;

/// Where to listen or connect, here or on the host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// A port of a machine.
    Port {
        /// Its name or address.
        host: String,
        /// 0 to listen on any.
        port: u16,
    },
    /// A Unix socket.
    Socket {
        /// Its path.
        path: String,
    },
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Port { host, port } => write!(f, "{host}:{port}"),
            Self::Socket { path } => f.write_str(path),
        }
    }
}

impl Endpoint {
    pub(super) async fn connect(&self) -> io::Result<BoxedStream> {
        match self {
            Self::Port { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                let _ = stream.set_nodelay(true);
                Ok(Box::new(stream))
            }
            Self::Socket { path } => Ok(Box::new(UnixStream::connect(path).await?)),
        }
    }
}
