//! Why something of a client's did not work: what happened, of which kind it is, and what to try next.

mod tls_failure;

use std::error::Error as StdError;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use sallyport_access::text::Foreign;
use sallyport_ssh::agent::NotSigned;
use tonic::{Code, Status};

use crate::demanded::{Demanded, shown};
use crate::no_public_key::NoPublicKey;
pub use tls_failure::TlsFailure;

/// What something comes to.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// The error behind an error.
pub type Source = Arc<dyn StdError + Send + Sync>;

/// Of which kind an error is; programs end by it with one of the documented exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// None of the others.
    Failed,
    /// What was asked for cannot be.
    Usage,
    /// There is no valid login: none, or it has expired.
    NotLoggedIn,
    /// The cluster refuses.
    Refused,
    /// There is no connection.
    Connection,
}

/// Why something did not work. Its own text is short; [`Error::told`] has the causes behind it as well.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// Something failed on this machine, or in what came from the cluster.
    #[error("cannot {doing}")]
    Failed {
        /// What was done; completes "cannot …".
        doing: String,
        /// Why.
        source: Source,
    },
    /// A variable of the environment has a value that it cannot have.
    #[error("{variable} is {value:?}")]
    Setting {
        /// Which.
        variable: &'static str,
        /// What it is.
        value: String,
        /// What it can be.
        allowed: &'static str,
    },
    /// There is nowhere to look for logins.
    #[error("there is no home directory")]
    NoHome,
    /// Not the address of a cluster.
    #[error("{0:?} is not an address")]
    Address(String),
    /// There is no login at all.
    #[error("you are not logged in")]
    NoLogin,
    /// There is no login at this address.
    #[error("you are not logged in to {proxy}")]
    NoLoginAt {
        /// The address.
        proxy: String,
    },
    /// There is no login to the cluster of this name.
    #[error("you are not logged in to cluster {0}")]
    NoLoginTo(String),
    /// The name of a cluster does not say which login.
    #[error("you are logged in to cluster {0} at several addresses")]
    SeveralLogins(String),
    /// The login has expired.
    #[error("your login as {user} on {cluster} expired {since} ago")]
    Expired {
        /// Whose.
        user: String,
        /// To which cluster.
        cluster: String,
        /// At which address.
        proxy: String,
        /// How long ago.
        since: String,
    },
    /// A file of a login is not what it was written as.
    #[error("{} is damaged", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// The address of the login.
        proxy: String,
        /// What is wrong with it.
        source: Source,
    },
    /// A file of a login cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// The address of the login.
        proxy: String,
        /// Why.
        source: Source,
    },
    /// A file of a login is another user's.
    #[error(
        "{} belongs to user {owner}, who could have written into it who you are and whom you trust",
        path.display()
    )]
    ForeignFile {
        /// Which file.
        path: PathBuf,
        /// The other user's number.
        owner: u32,
        /// The login's directory.
        directory: PathBuf,
    },
    /// A file of a login is open to other users.
    #[error(
        "{} can be {} by other users of this machine (mode {mode:04o}), so this login is not used",
        path.display(),
        if *secret { "read or written" } else { "written" }
    )]
    OpenFile {
        /// Which file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
        /// Others must not even read it.
        secret: bool,
    },

    /// There is no connection to an address.
    #[error("cannot connect to {proxy}: {why}")]
    Unreached {
        /// The address.
        proxy: String,
        /// Why not.
        why: String,
    },
    /// There is none by QUIC, where nothing else was to be tried.
    #[error("cannot connect to {proxy} by QUIC: {why}")]
    UnreachedByQuic {
        /// The address.
        proxy: String,
        /// Why not.
        why: String,
    },
    /// There is no connection to the authority's socket on this machine.
    #[error("cannot connect to {}: {why}", path.display())]
    NoSocket {
        /// The socket.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// A connection that was there cannot be used.
    #[error("cannot {doing}")]
    Unusable {
        /// What was done; completes "cannot …".
        doing: String,
        /// Why.
        source: Source,
    },
    /// The handshake of TLS did not end.
    #[error("{proxy} accepted the connection but did not finish the TLS handshake")]
    Unshaken {
        /// The address.
        proxy: String,
    },
    /// The handshake of TLS failed.
    #[error("{why}")]
    Tls {
        /// The address.
        proxy: String,
        /// How.
        why: TlsFailure,
    },
    /// What answers at an address has no certificate authority to compare.
    #[error("{proxy} sent no certificate authority")]
    NoPin {
        /// The address.
        proxy: String,
    },
    /// A pin that cannot be one.
    #[error("the pin is not usable")]
    Pin(#[source] Source),

    /// The authority or the proxy refuses a request.
    #[error("{}", answered(doing, status))]
    Answered {
        /// What was asked for; completes "cannot …".
        doing: String,
        /// The answer.
        status: Status,
    },
    /// The authority does not let a login last as long as was asked for.
    #[error("{}", answered("log in", status))]
    Lifetime {
        /// The answer.
        status: Status,
    },
    /// The proxy does not open a stream to a node, or has ended it.
    #[error("{}", answered(&format!("connect to {node}"), status))]
    Node {
        /// The node, as it was asked for.
        node: String,
        /// The account there; empty where none was asked for.
        login: String,
        /// The proxy's answer.
        status: Status,
    },
    /// The same of a database.
    #[error("{}", answered(&format!("connect to database {database}"), status))]
    Database {
        /// The database.
        database: String,
        /// The proxy's answer.
        status: Status,
    },
    /// The same of a resource of the catalogue.
    #[error("{}", answered(&format!("connect to {kind} {name}"), status))]
    Resource {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// The proxy's answer.
        status: Status,
    },
    /// The connection to the proxy has ended below a stream.
    #[error("the connection to {to} was lost: the proxy, or the way to it, went away")]
    StreamLost {
        /// Where the stream went.
        to: String,
    },
    /// An answer of the authority lacks something.
    #[error("the authority's answer names no {0}")]
    Lacking(&'static str),
    /// The authority cannot be asked for the agents of a resource.
    #[error("the authority cannot be asked which agents serve {about}: {why}")]
    Unasked {
        /// The resource.
        about: String,
        /// Why.
        why: String,
    },
    /// The cluster has no such database for this user.
    #[error("there is no database {0:?} that you may use")]
    NoDatabase(String),
    /// The cluster has no such resource for this user.
    #[error("there is no {kind} {name:?} that you may use")]
    NoResource {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// A node does not prove who it is.
    #[error("{node} is not who it should be: {why}")]
    OtherNode {
        /// The node.
        node: String,
        /// What is wrong with its certificate.
        why: String,
    },
    /// A node has not proven what became of something that was sent early.
    #[error("{node}: {why}")]
    Unproven {
        /// The node.
        node: String,
        /// In the words of the protocol.
        why: String,
    },
    /// The native connection to a node failed.
    #[error("the connection to {node} failed: {why}")]
    NodeFailed {
        /// The node.
        node: String,
        /// Why.
        why: String,
    },
    /// A node speaks SSH alone, which was ruled out.
    #[error("{node} speaks SSH alone, and {variable} asks for the native protocol")]
    OnlySsh {
        /// The node.
        node: String,
        /// The variable that rules SSH out.
        variable: &'static str,
    },
    /// A node that was reached natively is said to know SSH alone.
    #[error(
        "{node} does not speak the native protocol any more, so the proxy says: its agent was replaced by an older one, an \
         administrator has turned it off, or the proxy does not tell the truth"
    )]
    NoLongerNative {
        /// The node.
        node: String,
    },
    /// A login in a browser was not proven in time.
    #[error("the login was not proven at its page within {} s", after.as_secs())]
    LoginNotProven {
        /// How long it could be.
        after: std::time::Duration,
    },
    /// Another user has proven a login in a browser than the one it was meant for.
    #[error("{user} has logged in at the page, and not {wanted}; nothing was stored")]
    OtherUser {
        /// Who has.
        user: sallyport_access::UserName,
        /// Who was to.
        wanted: sallyport_access::UserName,
    },
    /// The passkeys of a cluster are of other addresses than the one that it was reached by, so that no security key signs for it there.
    #[error(
        "passkeys of {} are for {}, and you log in at {proxy}: a security key signs for the address that you name, and no other",
        Foreign::new(cluster),
        addresses(origins)
    )]
    PasskeysElsewhere {
        /// The cluster, as it calls itself.
        cluster: String,
        /// The address that it was reached by.
        proxy: String,
        /// Where its passkeys work, as it says.
        origins: Vec<String>,
    },
    /// A second factor has to be proven for a session, and there is no person here who could be asked.
    #[error("{} demands a second factor for each session, and there is no terminal or desktop to ask you at", shown(&demanded.target))]
    FactorWanted {
        /// What demands it.
        demanded: Box<Demanded>,
    },
    /// The person has refused to prove a second factor, or has not proven it in time.
    #[error("the second factor for {what} was refused, or was not proven in time")]
    FactorRefused {
        /// What demands it.
        what: String,
    },
    /// A second factor is to be proven beforehand where no person can be asked.
    #[error("you have to prove a second factor, and there is no terminal or desktop to ask you at")]
    NoOneToAsk,
    /// A file has no SSH key that a login can have certified.
    #[error("cannot have {} certified: {why}", file.display())]
    NoPublicKey {
        /// The file, as it was named.
        file: PathBuf,
        /// Why.
        why: NoPublicKey,
    },
    /// The SSH key of the stored login is the user's own, and no agent signs with it.
    #[error("your own SSH key {} has to be in an SSH agent for this: {why}", file.display())]
    KeyNotInAgent {
        /// The key's file, as ssh takes it.
        file: PathBuf,
        /// Why no agent signs.
        why: String,
    },
    /// The proxy asks for a signature that the user's key does not give.
    #[error(transparent)]
    NotSigned(Arc<NotSigned>),
    /// Another process of this user has failed for this program, and has said how.
    #[error("{what}")]
    Relayed {
        /// What happened.
        what: String,
        /// What to try.
        advice: Option<String>,
        /// Of which kind it is.
        kind: Kind,
        /// A second factor has to be proven first.
        demanded: Option<Box<Demanded>>,
    },
}

impl Error {
    /// An answer of the authority or the proxy. `doing` completes "cannot …".
    pub fn answered(doing: impl fmt::Display, status: Status) -> Self {
        Self::Answered { doing: doing.to_string(), status }
    }

    /// What happened, with the causes behind it, on one line and without what acts on a terminal: peers have a word in most of it.
    #[must_use]
    pub fn told(&self) -> String {
        Foreign::new(chain(self, &self.to_string())).into()
    }

    /// A peer's word on several lines, such as of a document, where that is what happened.
    #[must_use]
    pub fn document(&self) -> Option<&str> {
        match self {
            Self::Answered { status, .. }
            | Self::Node { status, .. }
            | Self::Database { status, .. }
            | Self::Resource { status, .. }
                if status.code() == Code::InvalidArgument =>
            {
                Some(status.message())
            }
            _ => None,
        }
    }

    /// What has to be proven, where a second factor would do.
    #[must_use]
    pub fn demanded(&self) -> Option<Demanded> {
        match self {
            Self::Node { node, login, status } => Demanded::of(status, "node", node, login),
            Self::Database { database, status } => Demanded::of(status, "db", database, ""),
            Self::Resource { kind, name, status } => Demanded::of(status, kind, name, ""),
            Self::FactorWanted { demanded } => Some((**demanded).clone()),
            Self::Relayed { demanded, .. } => demanded.as_deref().cloned(),
            _ => None,
        }
    }

    /// Whether the proxy says that other agents than those that were asked for serve a resource now.
    #[must_use]
    pub fn is_of_other_agents(&self) -> bool {
        matches!(self, Self::Resource { status, .. } if status.code() == Code::FailedPrecondition)
    }

    /// Of which kind it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Failed { .. }
            | Self::NoHome
            | Self::SeveralLogins(_)
            | Self::NoLoginTo(_)
            | Self::Damaged { .. }
            | Self::Unreadable { .. }
            | Self::ForeignFile { .. }
            | Self::OpenFile { .. }
            | Self::Lacking(_)
            | Self::KeyNotInAgent { .. } => Kind::Failed,
            Self::Setting { .. } | Self::Address(_) | Self::Pin(_) | Self::NoPublicKey { .. } => Kind::Usage,
            Self::NoLogin | Self::NoLoginAt { .. } | Self::Expired { .. } | Self::LoginNotProven { .. } => {
                Kind::NotLoggedIn
            }
            Self::NoDatabase(_)
            | Self::NoResource { .. }
            | Self::NotSigned(_)
            | Self::OtherUser { .. }
            | Self::PasskeysElsewhere { .. }
            | Self::FactorWanted { .. }
            | Self::FactorRefused { .. }
            | Self::NoOneToAsk => Kind::Refused,
            Self::Tls { why: TlsFailure::Expired { .. }, .. } => Kind::NotLoggedIn,
            Self::Unreached { .. }
            | Self::UnreachedByQuic { .. }
            | Self::NoSocket { .. }
            | Self::Unusable { .. }
            | Self::Unshaken { .. }
            | Self::Tls { .. }
            | Self::NoPin { .. }
            | Self::Node { .. }
            | Self::StreamLost { .. }
            | Self::Unasked { .. }
            | Self::OtherNode { .. }
            | Self::Unproven { .. }
            | Self::NodeFailed { .. }
            | Self::OnlySsh { .. }
            | Self::NoLongerNative { .. } => Kind::Connection,
            Self::Answered { status, .. } | Self::Lifetime { status } => of_status(status),
            Self::Database { status, .. } | Self::Resource { status, .. } => match of_status(status) {
                kind @ (Kind::NotLoggedIn | Kind::Refused) => kind,
                _ => Kind::Connection,
            },
            Self::Relayed { kind, .. } => *kind,
        }
    }
}

/// Origins, as a person reads them.
fn addresses(origins: &[String]) -> String {
    match origins {
        [] => "no address".to_owned(),
        origins => Foreign::new(origins.join(", ")).into(),
    }
}

/// The kind of an answer.
fn of_status(status: &Status) -> Kind {
    match status.code() {
        Code::Unauthenticated => Kind::NotLoggedIn,
        Code::PermissionDenied => Kind::Refused,
        Code::Unavailable => Kind::Connection,
        _ => Kind::Failed,
    }
}

/// What an authority or a proxy answers, in words.
fn answered(doing: &str, status: &Status) -> String {
    let said = status.message();
    match status.code() {
        Code::Unauthenticated
        | Code::PermissionDenied
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::ResourceExhausted => said.to_owned(),
        // The authority was reached, and says itself what is the matter with it.
        Code::Unavailable if was_reached(status) => format!("cannot {doing}: {said}"),
        Code::Unimplemented => format!("cannot {doing}: the cluster does not know this request"),
        _ => format!("cannot {doing}: {}", chain(status, said)),
    }
}

/// Whether an answer is of the other end, and not of the connection.
pub(crate) fn was_reached(status: &Status) -> bool {
    status.source().is_none() && !status.message().is_empty()
}

/// The text of an error and of everything behind it that adds something.
pub fn chain(error: &(dyn StdError + 'static), first: &str) -> String {
    let mut text = first.to_owned();
    let mut source = error.source();
    while let Some(inner) = source {
        let said = inner.to_string();
        if !said.is_empty() && !text.contains(&said) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&said);
        }
        source = inner.source();
    }
    text
}

/// Says what was done when something failed.
pub trait Doing<T> {
    /// `doing` completes "cannot …".
    ///
    /// # Errors
    /// What failed, as [`Error::Failed`].
    fn doing(self, doing: impl fmt::Display) -> Result<T>;
}

impl<T, E: StdError + Send + Sync + 'static> Doing<T> for Result<T, E> {
    fn doing(self, doing: impl fmt::Display) -> Result<T> {
        self.map_err(|error| Error::Failed { doing: doing.to_string(), source: Arc::new(error) })
    }
}

#[cfg(test)]
mod tests;
