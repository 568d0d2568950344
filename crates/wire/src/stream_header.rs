//! What a proxy says at the head of each stream that it opens in an agent's tunnel: for whom the stream is, and what it carries.
//!
//! The header is JSON. An agent believes none of it without looking itself: the certificate is verified by the cluster's trust, and
//! the decision is made again from the agent's own copy of the policy. What a header of one release says, agents of the releases
//! before and after read: fields that are new have a default and are left out where they say nothing, and fields that an agent does
//! not know it passes over. A header that must not be read so has a higher [`VERSION`].

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use sallyport_access::{DatabaseName, HostId, Login};
use serde::{Deserialize, Serialize};

/// The version of the headers that this release writes, and the newest that it reads.
pub const VERSION: u32 = 1;

/// What a proxy tells an agent at the head of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamHeader {
    /// [`VERSION`]; headers of releases that did not say it are of the first.
    #[serde(default = "first", skip_serializing_if = "is_first")]
    pub version: u32,
    /// Where the user's connection came from. An agent cannot see whose it is: it stands in events as the proxy's word, and
    /// decides nothing.
    pub client_addr: SocketAddr,
    /// The user that the proxy has proven; the agent proves it again for itself.
    pub user: String,
    /// The trace that the stream is part of, as the HTTP header of the same name has it (W3C Trace Context).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// What the stream carries.
    #[serde(flatten)]
    pub carries: Carries,
}

/// What a stream carries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind")]
pub enum Carries {
    /// A connection to the agent's own node.
    #[serde(rename = "ssh")]
    Ssh {
        /// The client speaks SSH and nothing else: the node need not wait for its first byte to know, and greets at once.
        #[serde(default, skip_serializing_if = "is_off")]
        ssh_alone: bool,
    },
    /// A connection to a registered OpenSSH server behind the agent.
    #[serde(rename = "openssh")]
    OpenSsh {
        /// Which one, and for whom.
        server: ServerTarget,
    },
    /// A PostgreSQL client, from its startup message on, or TLS from the user's program.
    #[serde(rename = "postgres")]
    Postgres {
        /// Which database, and for whom.
        postgres: PostgresTarget,
    },
    /// No bytes: a client asks to cancel what a session does.
    #[serde(rename = "postgres-cancel")]
    PostgresCancel {
        /// Which session.
        postgres: CancelTarget,
    },
    /// TLS from the user's program, for a resource of the catalogue.
    #[serde(rename = "resource")]
    Resource {
        /// Which one.
        resource: ResourceTarget,
    },
}

impl Carries {
    /// The kind, as it is written.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Ssh { .. } => "ssh",
            Self::OpenSsh { .. } => "openssh",
            Self::Postgres { .. } => "postgres",
            Self::PostgresCancel { .. } => "postgres-cancel",
            Self::Resource { .. } => "resource",
        }
    }
}

/// A registered OpenSSH server that an agent is the gateway to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerTarget {
    /// The server.
    pub node: HostId,
    /// The login, where the proxy knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<Login>,
    /// The user's certificate.
    pub proof: UserCertificate,
}

/// A database that an agent serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostgresTarget {
    /// Which one.
    pub database: DatabaseName,
    /// The user's certificate, where the user does not prove it inside the stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<UserCertificate>,
    /// The proxy's word that it has opened this session to this agent, as a `DatabaseOpening` in base64; the authority asks
    /// the agent for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened: Option<String>,
    /// The key that the client gets for cancelling its queries: eight bytes in hexadecimal, process and secret.
    pub cancel: String,
    /// Whether the proxy proves itself inside the stream, with a key of its own.
    #[serde(default, skip_serializing_if = "is_off")]
    pub tls: bool,
    /// Whether the stream is TLS from the user's program. An agent of an earlier release finds no proof and refuses.
    #[serde(default, skip_serializing_if = "is_off")]
    pub end_to_end: bool,
}

/// A session whose query a client asks to cancel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelTarget {
    /// The key that the session's client got: eight bytes in hexadecimal, process and secret.
    pub cancel: String,
}

/// A resource of the catalogue that an agent serves. The user's program says inside its TLS what it wants, and the agent serves
/// nothing on which the two do not agree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceTarget {
    /// Its kind, as documents have it. An agent that does not know the kind refuses, by [`HeaderError::Resource`].
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// A certificate that a user has shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UserCertificate {
    /// Of SSH, in OpenSSH's format, one line.
    Ssh(Arc<str>),
    /// X.509, DER in base64.
    Tls(Arc<str>),
}

/// Why an agent cannot serve a stream with this header. `Display` is for the proxy's log, and ends the stream.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The proxy is of a later release, and says what must not be passed over.
    #[error(
        "this agent reads headers of streams up to version {VERSION}, and got version {0}; update the agent"
    )]
    Version(u32),
    /// The proxy is of a later release, and carries what this agent does not.
    #[error("this agent does not carry streams of the kind {0:?}; update the agent")]
    Kind(String),
    /// The proxy is of a later release, and the resource of a kind that this agent does not know.
    #[error("this agent does not serve resources of the kind {0:?}; update the agent")]
    Resource(String),
    /// It is no client's address: unspecified, multicast or broadcast.
    #[error("the header names no address that a client can have, but {0}")]
    Address(IpAddr),
    /// It is not what a header is.
    #[error("this agent does not understand the stream's header")]
    Malformed(#[from] serde_json::Error),
}

/// As much of a header as every release writes.
#[derive(Deserialize)]
struct Outline {
    #[serde(default = "first")]
    version: u32,
    kind: String,
}

impl StreamHeader {
    /// A header of this release.
    #[must_use]
    pub fn new(client_addr: SocketAddr, user: &str, traceparent: Option<String>, carries: Carries) -> Self {
        Self { version: VERSION, client_addr, user: user.to_owned(), traceparent, carries }
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        // Strings, numbers and addresses can always be written; an agent refuses an empty header.
        serde_json::to_vec(self).map(Bytes::from).unwrap_or_default()
    }

    /// Reads a header. The client's address has its one form: an IPv4 address that is mapped into IPv6 is one of IPv4, and a scope
    /// means nothing here.
    ///
    /// # Errors
    /// [`HeaderError`] for one that this release does not serve.
    pub fn parse(bytes: &[u8]) -> Result<Self, HeaderError> {
        let mut header: Self = serde_json::from_slice(bytes).map_err(|error| why(bytes, error))?;
        if header.version > VERSION {
            return Err(HeaderError::Version(header.version));
        }
        let ip = header.client_addr.ip().to_canonical();
        if ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST) {
            return Err(HeaderError::Address(ip));
        }
        header.client_addr = SocketAddr::new(ip, header.client_addr.port());
        Ok(header)
    }
}

/// Every kind that [`Carries::kind`] gives.
const KINDS: [&str; 5] = ["ssh", "openssh", "postgres", "postgres-cancel", "resource"];

/// Why bytes are no header: that of a later release is told from nonsense.
fn why(bytes: &[u8], error: serde_json::Error) -> HeaderError {
    match serde_json::from_slice::<Outline>(bytes) {
        Ok(outline) if outline.version > VERSION => HeaderError::Version(outline.version),
        Ok(outline) if !KINDS.contains(&outline.kind.as_str()) => {
            HeaderError::Kind(outline.kind.chars().take(32).collect())
        }
        _ => error.into(),
    }
}

fn first() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde asks")]
fn is_first(version: &u32) -> bool {
    *version == first()
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde asks")]
fn is_off(flag: &bool) -> bool {
    !*flag
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn header(carries: Carries) -> StreamHeader {
        StreamHeader::new("192.0.2.1:7".parse().unwrap(), "alice", None, carries)
    }

    fn postgres() -> PostgresTarget {
        PostgresTarget {
            database: DatabaseName::new("orders").unwrap(),
            proof: Some(UserCertificate::Tls("MIIB".into())),
            opened: Some("AAEC".to_owned()),
            cancel: "0000000711223344".to_owned(),
            tls: false,
            end_to_end: false,
        }
    }

    /// As agents and proxies before the version was written have it, byte for byte but for the order of fields.
    #[test]
    fn what_earlier_releases_write_is_read_and_written_the_same() {
        let node: HostId = "01a1fcd0-285f-75c5-bfa8-264bbd1d2bdd".parse().unwrap();
        let server = ServerTarget {
            node,
            login: Some(Login::new("deploy").unwrap()),
            proof: UserCertificate::Ssh("ssh-ed25519-cert-v01@openssh.com AAAA".into()),
        };
        let end_to_end = PostgresTarget { proof: None, opened: None, end_to_end: true, ..postgres() };
        let cases = [
            (
                Carries::Ssh { ssh_alone: false },
                r#"{"kind":"ssh","client_addr":"192.0.2.1:7","user":"alice"}"#,
            ),
            (
                Carries::Ssh { ssh_alone: true },
                r#"{"kind":"ssh","client_addr":"192.0.2.1:7","user":"alice","ssh_alone":true}"#,
            ),
            (
                Carries::OpenSsh { server },
                r#"{"kind":"openssh","client_addr":"192.0.2.1:7","user":"alice","server":{"node":"01a1fcd0-285f-75c5-bfa8-264bbd1d2bdd",
                   "login":"deploy","proof":{"ssh":"ssh-ed25519-cert-v01@openssh.com AAAA"}}}"#,
            ),
            (
                Carries::Postgres { postgres: postgres() },
                r#"{"kind":"postgres","client_addr":"192.0.2.1:7","user":"alice","postgres":{"database":"orders",
                   "proof":{"tls":"MIIB"},"opened":"AAEC","cancel":"0000000711223344"}}"#,
            ),
            (
                Carries::Postgres { postgres: end_to_end },
                r#"{"kind":"postgres","client_addr":"192.0.2.1:7","user":"alice","postgres":{"database":"orders",
                   "cancel":"0000000711223344","end_to_end":true}}"#,
            ),
            (
                Carries::PostgresCancel { postgres: CancelTarget { cancel: "0000000711223344".to_owned() } },
                r#"{"kind":"postgres-cancel","client_addr":"192.0.2.1:7","user":"alice","postgres":{"cancel":"0000000711223344"}}"#,
            ),
            (
                Carries::Resource {
                    resource: ResourceTarget { kind: "thing".to_owned(), name: "one".to_owned() },
                },
                r#"{"kind":"resource","client_addr":"192.0.2.1:7","user":"alice","resource":{"kind":"thing","name":"one"}}"#,
            ),
        ];
        for (carries, written) in cases {
            let header = header(carries);
            assert_eq!(StreamHeader::parse(written.as_bytes()).unwrap(), header, "{written}");
            let ours: serde_json::Value = serde_json::from_slice(&header.encode()).unwrap();
            let theirs: serde_json::Value = serde_json::from_str(written).unwrap();
            assert_eq!(ours, theirs);
            assert_eq!(theirs["kind"], header.carries.kind());
            assert!(KINDS.contains(&header.carries.kind()), "a kind that is read is not called unknown");
        }
    }

    #[test]
    fn fields_that_are_new_are_passed_over_and_kinds_and_versions_are_not() {
        let says = |text: &str| StreamHeader::parse(text.as_bytes()).map_err(|error| error.to_string());
        let new = r#"{"kind":"ssh","client_addr":"192.0.2.1:7","user":"alice","colour":"blue"}"#;
        assert_eq!(says(new).unwrap(), header(Carries::Ssh { ssh_alone: false }));
        for (odd, problem) in [
            (
                r#"{"kind":"telnet","client_addr":"192.0.2.1:7","user":"alice"}"#,
                "kind \"telnet\"; update the agent",
            ),
            (
                r#"{"version":2,"kind":"ssh","client_addr":"192.0.2.1:7","user":"alice"}"#,
                "version 2; update the agent",
            ),
            (r#"{"version":2,"kind":"telnet","to":"x"}"#, "version 2; update the agent"),
            (r#"{"kind":"ssh","user":"alice"}"#, "does not understand"),
            (r#"{"kind":"postgres","client_addr":"192.0.2.1:7","user":"alice"}"#, "does not understand"),
            (r#"{"client_addr":"192.0.2.1:7","user":"alice"}"#, "does not understand"),
            ("", "does not understand"),
            ("\u{0}", "does not understand"),
        ] {
            let said = says(odd).unwrap_err();
            assert!(said.contains(problem), "{odd}: {said}");
        }
        let long = format!(r#"{{"kind":"{}"}}"#, "k".repeat(5000));
        assert!(says(&long).unwrap_err().len() < 200);
    }

    #[test]
    fn addresses_that_no_client_has_are_refused_and_others_have_one_form() {
        let from = |address: &str| {
            let header = format!(r#"{{"kind":"ssh","client_addr":"{address}","user":"alice"}}"#);
            StreamHeader::parse(header.as_bytes()).ok().map(|header| header.client_addr.to_string())
        };
        for address in [
            "0.0.0.0:1",
            "[::]:1",
            "224.0.0.1:1",
            "[ff02::1]:1",
            "255.255.255.255:1",
            "[::ffff:0.0.0.0]:1",
            "x",
        ] {
            assert_eq!(from(address), None, "{address}");
        }
        for (address, form) in [
            ("192.0.2.1:7", "192.0.2.1:7"),
            ("[::ffff:192.0.2.1]:7", "192.0.2.1:7"),
            ("[fe80::1%5]:7", "[fe80::1]:7"),
        ] {
            assert_eq!(from(address).as_deref(), Some(form), "{address}");
        }
    }
}
