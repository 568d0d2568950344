//! An SSH client for one session that does not wait where it need not, as bytes in and bytes out.
//!
//! A client that asks one thing at a time pays a round trip for each of version, proposal, keys, service, key probe,
//! signature, channel and program. Here they go in three flights:
//!
//! 1. version and KEXINIT, before the server has greeted;
//! 2. the share of the key exchange, as soon as the server's KEXINIT is there;
//! 3. once the server has proven who it is: NEWKEYS, the service, the signed login, the channel, the terminal, the
//!    environment and the program.
//!
//! No key exchange packet is guessed with the first flight (RFC 4253 §7): a guess is right only where both sides put
//! the same host key algorithm first, and sshd puts a plain one before its certificate's, so that against it no client
//! that wants the certificate can be right. A server's own guess is understood.
//!
//! The number that sshd gives a channel is not known before its answer. sshd numbers them from 0, so that requests to a
//! server that names itself OpenSSH go to number 0; to any other they follow its answer. Standard input never goes before
//! the answer, which says how much the server takes.
//!
//! [`Machine`] has no clock, no socket and no opinion about whom to trust: its driver checks the host's key
//! ([`Event::Host`]), and nothing of the user's is sent before [`Machine::accept_host`]. Keys and packets are
//! [`crate::transport`]'s. What it does not have (forwards, the agent, X11, a second channel, other ciphers than AES-GCM) is
//! russh's to do.

mod channel;
mod machine;
pub mod message;

pub use channel::Asked;
pub use machine::{Event, Machine};

pub use crate::transport::{Breach, HostKey, Limits, Login, Opening};

#[cfg(test)]
pub(crate) mod tests;
