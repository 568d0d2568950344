//! The keys with which clients cancel their queries, and where each leads.
//!
//! The keys of the databases stay with the agents: a client that has one of ours can cancel its own query and nothing
//! else, from wherever it reaches this proxy.

use std::collections::HashMap;
use std::sync::Arc;

use data_encoding::HEXLOWER;
use parking_lot::Mutex;
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
        let mut entries = self.entries.lock();
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
        Err(SalError::Provider { operation: "finding a number for a session" })
    }

    /// The session that has the key, once it is known who serves it.
    pub(super) fn find(&self, key: &CancelKey) -> Option<Found> {
        let entries = self.entries.lock();
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
        let mut entries = self.cancels.entries.lock();
        if let Some(entry) = entries.get_mut(&self.process) {
            entry.agent = Some(agent);
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.cancels.entries.lock().remove(&self.process);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use sallyport_access::{
        Database, DatabaseAccount, Identity, Policies, Principal, Role, Traits, UserName,
    };
    use time::OffsetDateTime;
    use uuid::Uuid;

    use super::*;

    fn permit() -> DatabasePermit {
        let role = "kind: role\nversion: v1\nmetadata: {name: dba}\nspec:\n  allow: {db_labels: {'*': '*'}, db_users: ['*'], \
                    db_names: ['*']}\n";
        let policies = Policies::compile(&[Role::parse(role).unwrap()]).unwrap();
        let database = "kind: db\nversion: v1\nmetadata: {name: prod}\nspec: {address: 'db:5432'}\n";
        let now = OffsetDateTime::UNIX_EPOCH + time::Duration::days(20_000);
        let identity = Identity {
            principal: Principal::User {
                name: UserName::new("alice").unwrap(),
                roles: vec!["dba".parse().unwrap()],
                logins: Vec::new(),
                traits: Traits::new(),
            },
            login_id: Uuid::nil(),
            device: None,
            pinned_to: None,
            valid_after: now,
            valid_before: now + time::Duration::hours(1),
        };
        let database = Database::parse(database).unwrap();
        policies.decide(&identity, &database, &DatabaseAccount::new("app", "shop"), &[], now).unwrap()
    }

    #[test]
    fn a_key_leads_to_its_session_alone_and_only_while_it_lasts() {
        let cancels = Cancels::default();
        let agent = HostId::new();
        let (one, other) = (cancels.register(&permit()).unwrap(), cancels.register(&permit()).unwrap());
        assert_ne!((one.process, one.secret), (other.process, other.secret));
        let key = CancelKey { process: one.process, secret: one.secret.to_vec() };
        assert!(cancels.find(&key).is_none(), "no agent serves it yet");
        one.served_by(agent);
        other.served_by(HostId::new());
        let found = cancels.find(&key).unwrap();
        assert_eq!((found.agent, found.hexadecimal()), (agent, one.hexadecimal()));
        let wrong = |secret: Vec<u8>| cancels.find(&CancelKey { process: one.process, secret }).is_none();
        assert!(wrong(other.secret.to_vec()) && wrong(one.secret[..3].to_vec()) && wrong(Vec::new()));
        drop(one);
        assert!(cancels.find(&key).is_none());
    }
}
