//! The protobuf API, first-bytes detection, tunnel framing and QUIC as a carrier.

pub mod acts;
pub mod admin_factor;
pub mod alpn;
pub mod carrier;
pub mod client_hello;
pub mod codec;
pub mod convert;
pub mod detect;
pub mod fips;
mod invite_link;
pub mod preamble;
pub mod relay;
pub mod stream_header;
mod tls_bytes;
pub mod tls_probe;
pub mod trace_context;
pub mod tunnel;

pub use invite_link::{InviteLink, NoInviteLink, UNKNOWN_PROXY};

/// The header of answers from proxies and the authority that tells a user's program which trust is in force: when it is
/// not the one that the program holds, `Rotation.Follow` gives the new one.
pub const TRUST_HEADER: &str = "sallyport-trust";

/// The header of a proxy's refusal that tells a user's program which second factor the session wants, `yes` or `hardware`: once one is
/// proven (`SessionFactors`), the same call succeeds.
pub const SESSION_FACTOR_HEADER: &str = "sallyport-session-factor";

/// What is worth reading ahead of TLS, which asks the system for a few KiB at a time.
pub const READ_AHEAD_BYTES: usize = 64 * 1024;

/// Longest frame of HTTP/2 that a proxy and its clients take from each other: a message with 64 KiB of SSH, in one.
pub const FRAME_BYTES: u32 = 66 * 1024;

/// Most bytes of claims by which an administrator describes a login to the authority (`Logins.TestRules`): half of what a request may have.
pub const CLAIMS_BYTES: usize = 32 * 1024;

/// Messages, clients and servers generated from `proto/sallyport/v1`.
#[allow(
    missing_docs,
    clippy::all,
    clippy::pedantic,
    reason = "generated code; the comments are in the .proto files"
)]
pub mod v1 {
    tonic::include_proto!("sallyport.v1");
}
