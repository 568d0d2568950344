//! The SSH node, its session core, the jump host and the SSH client.
//!
//! `session` runs commands, shells and file transfers and knows nothing of SSH; `helper` is the process that becomes
//! the account they run as; `sftp` serves files inside it; `node` is the SSH server in front. `client`, `jump` and
//! `copy` are the other side: reaching a node, the proxy's plain SSH face, and copying files. `agent` lets a proxy log in
//! with the user's key, which stays with the user. `request` is what a session is asked for by, in every protocol. `endpoint` is the TLS stream between a user's program and a node or an agent. `measure` makes
//! handshakes to be measured.

use tokio::io::{AsyncRead, AsyncWrite};

pub mod agent;
mod algorithms;
pub mod capabilities;
pub mod client;
pub mod copy;
pub mod endpoint;
pub mod helper;
mod inbound;
pub mod jump;
pub mod measure;
pub mod native;
pub mod node;
pub mod pipelined;
mod printable;
mod processes;
mod pump;
pub mod request;
mod rsa_keys;
pub mod session;
pub mod sftp;
mod signal_names;
pub mod transport;

/// Whether this build can ask PAM (the feature `pam`).
pub const HAS_PAM: bool = cfg!(feature = "pam");

pub use algorithms::{Transport, transport_algorithms};

/// What every byte stream here can do.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A byte stream whose kind does not matter.
pub type BoxedStream = Box<dyn Stream>;
