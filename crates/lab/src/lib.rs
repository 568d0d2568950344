//! What a cluster costs, measured on this machine: against a stock OpenSSH server, with the same key exchange, cipher
//! and certificates on both sides, in turns, so that a disturbance hits all of them alike.
//!
//! The lab starts everything it measures itself, on loopback and in a directory of its own: an authority, a proxy and a
//! node, each in its own process, and a stock `sshd`. Nothing of the machine's configuration takes part, and nothing is
//! left behind.

pub mod advise;
pub mod browser;
pub mod bulk;
pub mod compare;
pub mod connect;
pub mod cost;
pub mod databases;
pub mod flame;
pub mod handshake;
pub mod inspect;
pub mod instructions;
pub mod keys;
pub mod load;
pub mod machine;
pub mod offers;
pub mod page;
pub mod plot;
mod reach;
pub mod report;
pub mod scan;
pub mod sessions;
pub mod statistics;
pub mod strength;
pub mod suite;
pub mod wan;

pub use sallyport_rig as rig;
use sallyport_rig::AtFile;
pub use sallyport_rig::{RigError as LabError, Talk};
