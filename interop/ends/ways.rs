//! The ways by which a session ends before its program does.

use std::fmt;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::kinds::{Begun, Kind};
use super::world::{DRAIN, Owner, Target, World};
use super::{LONGEST, Place};
use crate::support::{ok, stdout};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    UserLocked,
    RoleLocked,
    AccountLocked,
    LoginLocked,
    HostLocked,
    DatabaseLocked,
    UserRemoved,
    RoleTaken,
    Ended,
    Lasted,
    Expired,
    ClientKilled,
    ClientAsked,
    NodeStopped,
    NodeKilled,
    ProxyStopped,
    ProxyKilled,
}

pub(super) const WAYS: [Way; 17] = [
    Way::UserLocked,
    Way::RoleLocked,
    Way::AccountLocked,
    Way::LoginLocked,
    Way::HostLocked,
    Way::DatabaseLocked,
    Way::UserRemoved,
    Way::RoleTaken,
    Way::Ended,
    Way::Lasted,
    Way::Expired,
    Way::ClientKilled,
    Way::ClientAsked,
    Way::NodeStopped,
    Way::NodeKilled,
    Way::ProxyStopped,
    Way::ProxyKilled,
];

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UserLocked => "lock on the user",
            Self::RoleLocked => "lock on a role",
            Self::AccountLocked => "lock on the account",
            Self::LoginLocked => "lock on the login's certificates",
            Self::HostLocked => "lock on the host",
            Self::DatabaseLocked => "lock on the database",
            Self::UserRemoved => "the user is removed",
            Self::RoleTaken => "a role is taken from the user",
            Self::Ended => "sessions end",
            Self::Lasted => "max_session_duration",
            Self::Expired => "disconnect_expired_cert",
            Self::ClientKilled => "the client is killed",
            Self::ClientAsked => "the client is asked to end",
            Self::NodeStopped => "the node stops",
            Self::NodeKilled => "the node is killed",
            Self::ProxyStopped => "the proxy stops",
            Self::ProxyKilled => "the proxy is killed",
        })
    }
}

/// How long the certificate of [`Way::Expired`] lives, the shortest that there is.
const CERTIFICATE: Duration = Duration::from_secs(60);

impl Way {
    /// Whether it ends sessions of a kind.
    pub(super) fn ends(self, kind: Kind) -> bool {
        match self {
            Self::AccountLocked => kind.place() != Place::Database,
            Self::DatabaseLocked => kind.place() == Place::Database,
            // Forwards without a session are not in the list.
            Self::Ended => !kind.is_forward(),
            Self::NodeStopped | Self::NodeKilled => kind.place() != Place::Registered,
            _ => true,
        }
    }

    /// The name of an owner who meets it.
    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    fn target(self) -> Target {
        let (node, server, database, proxy) = match self {
            Self::HostLocked => ("locked", "srv-locked", "db-locked", "proxy"),
            Self::DatabaseLocked => ("shared", "srv-shared", "db-closed", "proxy"),
            Self::NodeStopped => ("stopped", "srv-shared", "db-stopped", "proxy"),
            Self::NodeKilled => ("killed", "srv-shared", "db-killed", "proxy"),
            Self::ProxyStopped => ("behind-stopped", "srv-shared", "db-behind-stopped", "proxy-stopped"),
            Self::ProxyKilled => ("behind-killed", "srv-shared", "db-behind-killed", "proxy-killed"),
            _ => ("shared", "srv-shared", "db-shared", "proxy"),
        };
        Target { node: node.to_owned(), server: server.to_owned(), database: database.to_owned(), proxy }
    }

    pub(super) fn owner(self, world: &World) -> Owner {
        let options = match self {
            Self::Lasted => format!(", max_session_duration: {}s", LONGEST.as_secs()),
            Self::Expired => ", disconnect_expired_cert: true".to_owned(),
            _ => String::new(),
        };
        let account = if self == Self::AccountLocked { &world.other } else { &world.account };
        let ttl: &[&str] = if self == Self::Expired { &["--ttl", "1m"] } else { &[] };
        world.owner(&self.name(), &options, &account.name, self.target(), ttl)
    }

    /// Does it; from when on what runs has to end. `begun` is when the owner logged in, and each session was asked for.
    pub(super) fn act(self, world: &World, owner: &Owner, cells: &[&Begun], begun: Instant) -> Instant {
        let admin = |words: &[&str]| ok(world.cluster.admin(words));
        let user = owner.user.name.as_str();
        let mut since = Instant::now();
        match self {
            Self::UserLocked => drop(admin(&["lock", "--user", user])),
            Self::RoleLocked => drop(admin(&["lock", "--role", &owner.role])),
            Self::AccountLocked => drop(admin(&["lock", "--login", &owner.login])),
            Self::LoginLocked => {
                let issued = world.cluster.wait_event("cert.issued", |event| {
                    event["user"] == user && event["fields"]["login_id"].is_string()
                });
                drop(admin(&["lock", "--login-id", issued["fields"]["login_id"].as_str().unwrap()]));
            }
            Self::HostLocked => {
                drop(admin(&["lock", "--node", &owner.target.node]));
                drop(admin(&["lock", "--node", &owner.target.server]));
            }
            Self::DatabaseLocked => drop(admin(&["lock", "--db", &owner.target.database])),
            Self::UserRemoved => drop(admin(&["users", "rm", user])),
            Self::RoleTaken => {
                let document = stdout(&admin(&["get", &format!("user/{user}")]));
                world.create(user, &document.replace(&owner.role, "none"));
            }
            Self::Ended => {
                let listed = ok(owner.user.run(&["sessions", "ls", "--format", "json"]));
                let listed: Vec<Value> = serde_json::from_slice(&listed.stdout).unwrap();
                assert!(
                    listed.len() >= cells.len(),
                    "{} of {} sessions are listed",
                    listed.len(),
                    cells.len()
                );
                for session in listed {
                    ok(owner.user.run(&["sessions", "end", session["session_id"].as_str().unwrap()]));
                }
                since = Instant::now();
            }
            Self::Lasted => return begun + LONGEST,
            Self::Expired => return begun + CERTIFICATE,
            Self::ClientKilled => cells.iter().for_each(|cell| cell.signal("KILL")),
            Self::ClientAsked => cells.iter().for_each(|cell| cell.signal("TERM")),
            Self::NodeStopped | Self::ProxyStopped => {
                world.signal(self.service().unwrap_or_default(), "TERM");
                return since + DRAIN;
            }
            Self::NodeKilled | Self::ProxyKilled => {
                world.signal(self.service().unwrap_or_default(), "KILL");
            }
        }
        since
    }

    /// Lifts what keeps hosts from reporting ends of sessions.
    pub(super) fn undo(self, world: &World, owner: &Owner) {
        if self == Self::HostLocked {
            for host in [&owner.target.node, &owner.target.server] {
                ok(world.cluster.admin(&["rm", &format!("lock/node-{host}")]));
            }
        }
    }

    /// Whether what runs is hung up, and not killed: no setting has forbidden it.
    pub(super) fn hangs_up_alone(self) -> bool {
        matches!(self, Self::ClientKilled | Self::ClientAsked | Self::ProxyStopped | Self::ProxyKilled)
    }

    /// The service that it ends.
    pub(super) fn service(self) -> Option<&'static str> {
        match self {
            Self::NodeStopped => Some("stopped"),
            Self::NodeKilled => Some("killed"),
            Self::ProxyStopped => Some("proxy-stopped"),
            Self::ProxyKilled => Some("proxy-killed"),
            _ => None,
        }
    }
}
