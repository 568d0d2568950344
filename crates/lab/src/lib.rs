//! The `sallyport-lab` command: what keys, handshakes, servers and whole clusters cost on this machine. A cluster is measured
//! against a stock OpenSSH server, with the same key exchange, cipher and certificates on both sides, in turns, so that a
//! disturbance hits all of them alike.
//!
//! The lab starts everything it measures itself, on loopback and in a directory of its own: an authority, a proxy and a
//! node, each in its own process, and a stock `sshd`. Nothing of the machine's configuration takes part, and nothing is
//! left behind.

pub mod advise;
pub mod browser;
pub mod bulk;
pub mod connect;
pub mod databases;
mod error;
pub mod flame;
pub mod handshake;
pub mod inspect;
pub mod instructions;
pub mod keys;
pub mod load;
pub mod logins;
pub mod offers;
mod reach;
pub mod scan;
pub mod sessions;
pub mod strength;
pub mod suite;
pub mod wan;

pub use error::LabError;
