//! What is promised of what a session ran, once it has been ended: what docs/sessions.md says in words.

use std::fmt;
use std::time::Duration;

use super::Place;
use super::kinds::{Behaviour, Kind};
use super::ways::Way;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Promise {
    /// Gone within so many seconds.
    Gone(u64),
    /// It may go on, and an event says so.
    Told,
    /// It may go on where no service here sees it: on a server that has said that the session has ended.
    Unseen,
}

impl Promise {
    pub(super) fn time(self) -> Option<Duration> {
        match self {
            Self::Gone(seconds) => Some(Duration::from_secs(seconds)),
            Self::Told | Self::Unseen => None,
        }
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone(seconds) => write!(f, "gone after {seconds} s"),
            Self::Told => f.write_str("may stay, told"),
            Self::Unseen => f.write_str("may stay, unseen"),
        }
    }
}

/// What is promised of a cell. What has left the session is promised apart ([`of_what_left`]).
pub(super) fn of(way: Way, kind: Kind, behaviour: Behaviour) -> Promise {
    if way == Way::Lasted || way == Way::Expired {
        // The time is counted from when a client was started, which comes to the node some time later.
        return match of(Way::UserLocked, kind, behaviour) {
            Promise::Gone(_) => Promise::Gone(10),
            other => other,
        };
    }
    let stubborn = matches!(behaviour, Behaviour::Ignores | Behaviour::Forks);
    match kind.place() {
        // What is carried ends with what carries it.
        _ if kind.is_forward() || kind.is_files() => match way {
            Way::ProxyStopped => Promise::Gone(10),
            _ => Promise::Gone(3),
        },
        Place::Node => match way {
            // No process is left to end it.
            Way::NodeKilled => Promise::Told,
            _ if way.hangs_up_alone() && stubborn => Promise::Told,
            // A proxy waits first for the sessions that it cut at registered servers.
            Way::ProxyStopped => Promise::Gone(10),
            _ if stubborn => Promise::Gone(10),
            _ => Promise::Gone(3),
        },
        // A server does not notice that its client is gone before it writes.
        Place::Database if way == Way::NodeKilled => Promise::Told,
        Place::Database => Promise::Gone(10),
        Place::Registered => {
            // A shell puts its jobs into groups of their own, and signals go to the shell's.
            let reached = behaviour == Behaviour::Ignores && kind == Kind::Recorded;
            match way {
                Way::ProxyKilled => Promise::Told,
                _ if reached && !way.hangs_up_alone() => Promise::Gone(10),
                _ if stubborn => Promise::Unseen,
                _ => Promise::Gone(3),
            }
        }
    }
}

/// What is promised of what has left the session.
pub(super) fn of_what_left(way: Way, kind: Kind) -> Promise {
    match kind.place() {
        Place::Registered if way != Way::ProxyKilled => Promise::Unseen,
        _ => Promise::Told,
    }
}
