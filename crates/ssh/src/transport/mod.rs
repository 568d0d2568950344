//! SSH from the first byte to the login, by the abstraction layer: the transport (RFC 4253) and the authentication of users
//! (RFC 4252) of either side, as bytes in and bytes out.
//!
//! The SSH library computes key exchanges, their hashes and signatures, and checks those of users, by itself; it has no hook for
//! another source. Here all of that comes from [`sallyport_sal`]. What the library is needed for is the protocol above, channels
//! (RFC 4254): it speaks that over `clear::ClearStream`, which encrypts what the library writes and decrypts what it reads, and
//! in which nothing is left to exchange or to prove.
//!
//! - `machine` is one side's transport: identification, key exchange and renewal, packets. Host keys are judged by the
//!   caller.
//! - `server` is a server up to the login; `accept` drives it over a stream. Whom to let in is the caller's decision
//!   (`accept::Authenticator`), and what it decides is a value that nothing else makes (`accept::Proven`).
//! - `login` is what a client says and signs; `crate::client` drives it.
//!
//! What servers speak: ML-KEM-768 with X25519, X25519, P-256, P-384 and the finite field of 4096 bits, AES-GCM and
//! ChaCha20-Poly1305, strict key exchange (Terrapin), RFC 8308; in FIPS mode P-256, P-384 and AES-GCM alone. Clients of ours speak the
//! same without the field and ChaCha20. What neither speaks: compression, passwords.

pub(crate) mod accept;
mod breach;
pub(crate) mod clear;
mod exchange;
mod host;
mod login;
mod machine;
pub(crate) mod message;
pub(crate) mod packet;
mod prompt;
pub(crate) mod proposal;
pub mod server;

pub use breach::Breach;
pub use exchange::HostKey;
pub use host::Host;
pub use login::Login;
pub(crate) use login::USERAUTH;
pub(crate) use machine::{BY_APPLICATION, Step, Transport};
pub use machine::{Limits, Opening};

#[cfg(test)]
mod tests;
