//! Who calls.

use std::net::SocketAddr;
use std::sync::Arc;

use sallyport_access::{Identity, Principal};
use sallyport_audit::{Code, Event};
use time::OffsetDateTime;
use tonic::{Request, Status};

use crate::places::Place as Subscriber;

/// Where a connection comes from.
#[derive(Debug, Clone, Copy)]
pub struct PeerInfo {
    /// The client's address, as the proxy saw it.
    pub address: SocketAddr,
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone)]
pub(crate) enum Caller {
    /// A caller without a certificate.
    Anonymous { address: SocketAddr },
    /// The holder of a certificate.
    Certified { identity: Arc<Identity>, address: SocketAddr },
    /// A person, or a program, that shows no certificate of its own here, and for which a proxy calls: where it is, is the proxy's word.
    Behind { proxy: Arc<str>, address: SocketAddr },
    /// The operator, through the socket that only they can open.
    LocalAdmin,
}

impl Caller {
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Anonymous { .. } | Self::Behind { .. } => String::new(),
            Self::Certified { identity, .. } => identity.display_name(),
            Self::LocalAdmin => "@local".to_owned(),
        }
    }

    pub(crate) fn source(&self) -> String {
        match self {
            Self::Anonymous { address } | Self::Behind { address, .. } | Self::Certified { address, .. } => {
                address.to_string()
            }
            Self::LocalAdmin => "local socket".to_owned(),
        }
    }

    /// Where the call comes from, unless it is from this machine.
    pub(crate) fn address(&self) -> Option<std::net::IpAddr> {
        match self {
            Self::Anonymous { address } | Self::Behind { address, .. } | Self::Certified { address, .. } => {
                Some(address.ip())
            }
            Self::LocalAdmin => None,
        }
    }

    pub(crate) fn identity(&self) -> Option<&Identity> {
        match self {
            Self::Certified { identity, .. } => Some(identity),
            Self::Anonymous { .. } | Self::Behind { .. } | Self::LocalAdmin => None,
        }
    }

    /// An event about a call. One that a proxy makes for a person names the proxy.
    pub(crate) fn event(&self, code: Code) -> Event {
        let event = Event::new(code, OffsetDateTime::now_utc());
        let event = event.user(self.name()).source(self.source()).origin("auth");
        match self {
            Self::Behind { proxy, .. } => event.field("proxy", proxy.as_ref()),
            Self::Anonymous { .. } | Self::Certified { .. } | Self::LocalAdmin => event,
        }
    }
}

/// The caller of a request; anonymous from nowhere when the connection did not say, which no listener does.
pub(crate) fn caller<T>(request: &Request<T>) -> Caller {
    request
        .extensions()
        .get::<Caller>()
        .cloned()
        .unwrap_or(Caller::Anonymous { address: SocketAddr::from(([0, 0, 0, 0], 0)) })
}

pub(crate) fn unauthenticated() -> Status {
    Status::unauthenticated("a certificate is needed; log in: sallyport login")
}

/// By whom streams and answers are counted: by who it is and not by certificate, so that logging in again opens no more; a
/// stranger by where it is.
pub(crate) fn name_of(caller: &Caller) -> String {
    match caller {
        Caller::LocalAdmin => "@local".to_owned(),
        Caller::Anonymous { address } | Caller::Behind { address, .. } => {
            format!("{:?}", Subscriber::of(address.ip()))
        }
        Caller::Certified { identity, .. } => match &identity.principal {
            Principal::Host { id, .. } => format!("host {id}"),
            Principal::User { name, .. } => format!("user {name}"),
        },
    }
}

/// Text of an unknown caller, short enough for a log.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(128).collect()
}

/// Longest name that a machine calls itself by, as it is shown.
const HOST_NAME: usize = 64;

/// What a machine calls itself, as far as it is shown: nothing hidden, and not much.
pub(crate) fn host_name(text: &str) -> String {
    text.chars().filter(|letter| letter.is_ascii_graphic()).take(HOST_NAME).collect()
}

/// The address of events that no peer has caused.
pub(crate) const NOWHERE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);
