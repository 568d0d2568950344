//! The keys with which clients cancel their queries, and where each leads.
//!
//! The keys of the databases stay with the agents: a client that has one of ours can cancel its own query and nothing
//! else, from wherever it reaches this proxy.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use data_encoding::HEXLOWER;
use sallyport_access::{DatabasePermit, HostId};
use sallyport_databases::postgres::startup::CancelKey;
use sallyport_sal::{SalError, constant_time_eq, random};

/// A client of protocol 3.0 takes four bytes and no other number.
const SECRET_BYTES: usize = 4;
/// Tries for a number that no session has.
const TRIES: usize = 16;

#[derive(Debug)]
struct Entry {
    secret: [u8; SECRET_BYTES],
    agent: Option<HostId>,
    permit: DatabasePermit,
}

/// The keys of the sessions that are open.
#[derive(Debug, Clone, Default)]
pub(super) struct Cancels {
    entries: Arc<Mutex<HashMap<u32, Entry>>>,
}

/// A key's place; dropping it takes it back.
#[derive(Debug)]
pub(super) struct Registered {
    cancels: Cancels,
    process: u32,
    secret: [u8; SECRET_BYTES],
}

/// Where a key leads.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) agent: HostId,
    pub(super) permit: DatabasePermit,
    process: u32,
    secret: [u8; SECRET_BYTES],
}

impl Cancels {
    /// Makes a key for a session that is about to begin.
    pub(super) fn register(&self, permit: &DatabasePermit) -> Result<Registered, SalError> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..TRIES {
            let secret = random::bytes()?;
            // As a process id: drivers show it, and take it for a positive number.
            let process = u32::from_be_bytes(random::bytes()?) & 0x7fff_ffff;
            if process == 0 || entries.contains_key(&process) {
                continue;
            }
            entries.insert(process, Entry { secret, agent: None, permit: permit.clone() });
            return Ok(Registered { cancels: self.clone(), process, secret });
        }
        Err(SalError::Provider("no number for a session is free".to_owned()))
    }

    /// The session that has the key, once it is known who serves it.
    pub(super) fn find(&self, key: &CancelKey) -> Option<Found> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.get(&key.process)?;
        let same = constant_time_eq(&entry.secret, &key.secret);
        (same && entry.agent.is_some()).then_some(())?;
        Some(Found {
            agent: entry.agent?,
            permit: entry.permit.clone(),
            process: key.process,
            secret: entry.secret,
        })
    }
}

fn hexadecimal(process: u32, secret: [u8; SECRET_BYTES]) -> String {
    HEXLOWER.encode(&[process.to_be_bytes(), secret].concat())
}

impl Found {
    /// As the header of a tunnel stream has it.
    pub(super) fn hexadecimal(&self) -> String {
        hexadecimal(self.process, self.secret)
    }
}

impl Registered {
    /// As the header of a tunnel stream has it.
    pub(super) fn hexadecimal(&self) -> String {
        hexadecimal(self.process, self.secret)
    }

    /// Notes who serves the session.
    pub(super) fn served_by(&self, agent: HostId) {
        let mut entries = self.cancels.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get_mut(&self.process) {
            entry.agent = Some(agent);
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.cancels.entries.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.process);
    }
}
