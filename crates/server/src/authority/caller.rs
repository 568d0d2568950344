//! Who calls.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use sallyport_access::{HostId, Identity, Principal};
use sallyport_audit::{Code, Event};
use time::OffsetDateTime;
use tonic::{Request, Status};

use crate::dialling::PeerInfo;
use crate::places::{Place as Subscriber, Seen};

/// A host that calls for clients and says where each of them is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TellingHost {
    pub(crate) id: HostId,
    /// As events name it.
    pub(crate) name: Arc<str>,
}

impl TellingHost {
    /// # Errors
    /// It is no host.
    pub(crate) fn of(identity: &Identity) -> Result<Self, Status> {
        match identity.principal {
            Principal::Host { id, .. } => Ok(Self { id, name: identity.display_name().into() }),
            Principal::User { .. } => {
                Err(Status::permission_denied("this is for hosts, which call for clients"))
            }
        }
    }
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone)]
pub(crate) enum Caller {
    /// A caller without a certificate.
    Anonymous { from: PeerInfo },
    /// The holder of a certificate.
    Certified { identity: Arc<Identity>, from: PeerInfo },
    /// A person, or a program, that shows no certificate of its own here, and for which a proxy calls: where it is, is the proxy's word.
    Behind { proxy: TellingHost, address: SocketAddr },
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
            Self::Anonymous { from } | Self::Certified { from, .. } => from.address.to_string(),
            Self::Behind { address, .. } => address.to_string(),
            Self::LocalAdmin => "local socket".to_owned(),
        }
    }

    /// Where the call comes from, unless it is from this machine.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.seen().map(|seen| seen.address)
    }

    /// The same, and by which host's word: bounds go by both.
    pub(crate) fn seen(&self) -> Option<Seen> {
        match self {
            Self::Anonymous { from } | Self::Certified { from, .. } => {
                Some(Seen { address: from.address.ip(), told_by: from.relayed_by })
            }
            Self::Behind { proxy, address } => Some(Seen { address: address.ip(), told_by: Some(proxy.id) }),
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
            Self::Behind { proxy, .. } => event.field("proxy", proxy.name.as_ref()),
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
        .unwrap_or(Caller::Anonymous { from: PeerInfo::direct(NOWHERE) })
}

pub(crate) fn unauthenticated() -> Status {
    Status::unauthenticated("a certificate is needed; log in: sallyport login")
}

/// By whom streams and answers are counted: by who it is and not by certificate, so that logging in again opens no more; a
/// stranger by where it is.
pub(crate) fn name_of(caller: &Caller) -> String {
    match caller {
        Caller::LocalAdmin => "@local".to_owned(),
        Caller::Anonymous { from } => stranger(from.relayed_by, from.address),
        Caller::Behind { proxy, address } => stranger(Some(proxy.id), *address),
        Caller::Certified { identity, .. } => match &identity.principal {
            Principal::Host { id, .. } => format!("host {id}"),
            Principal::User { name, .. } => format!("user {name}"),
        },
    }
}

/// A stranger that a host tells of takes nothing of what strangers at the same address have elsewhere.
fn stranger(told_by: Option<HostId>, address: SocketAddr) -> String {
    let place = Subscriber::of(address.ip());
    match told_by {
        Some(host) => format!("{place:?} by {host}"),
        None => format!("{place:?}"),
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
pub(crate) const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);
