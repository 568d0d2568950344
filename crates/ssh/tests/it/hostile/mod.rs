//! Clients that mean harm: floods, lies and malformed certificates, by a client written for it. The server refuses or
//! cuts them, its memory stays bounded, and others are served meanwhile.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod certificates;
mod face;
pub(crate) mod files;
mod floods;
mod interactive;
pub(crate) mod raw;
mod security_keys;

use sallyport_ca::keys::SshKeyPair;
use sallyport_sal::{KeyAlgorithm, MemoryKey};

use crate::world::World;

/// Alice's key and her certificate as it goes over the wire.
pub(crate) struct Alice {
    pub(crate) key: SshKeyPair,
    pub(crate) certificate: Vec<u8>,
}

impl Alice {
    pub(crate) fn new(world: &World) -> Self {
        let key = SshKeyPair::from_key(MemoryKey::generate(KeyAlgorithm::Ed25519).unwrap(), "alice").unwrap();
        let line = world.certify(&world.card("alice"), key.public_line());
        Self { key, certificate: blob(&line) }
    }
}

/// The bytes of a line of OpenSSH's.
pub(crate) fn blob(line: &str) -> Vec<u8> {
    data_encoding::BASE64.decode(line.split(' ').nth(1).unwrap().as_bytes()).unwrap()
}
