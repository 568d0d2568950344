//! The database users that have sessions of this agent, and in which turn they are opened and closed.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use sallyport_access::DatabaseName;
use tokio::sync::Mutex as Turn;

use super::asked::Wanted;

/// The users that have sessions here.
#[derive(Default)]
pub(crate) struct Users(Mutex<HashMap<Whose, Arc<User>>>);

/// A database user, of a database.
type Whose = (DatabaseName, String);

#[derive(Default)]
pub(super) struct User {
    /// Of what opens or closes it.
    pub(super) turn: Turn<()>,
    pub(super) state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) sessions: usize,
    /// The roles of these sessions.
    pub(super) roles: Vec<String>,
    /// It may be open at the server.
    pub(super) open: bool,
    /// Processes of sessions that are over and go on at the server: the user loses its logins and roles before these end.
    pub(super) outlived: Vec<u32>,
    /// It has lost them.
    pub(super) shut: bool,
    /// Which of those that try again later is the newest; the others give up.
    pub(super) retry: u64,
}

pub(super) enum Joined {
    In,
    Opens,
    OtherRoles,
}

impl Users {
    pub(super) fn of(&self, wanted: &Wanted) -> Arc<User> {
        let mut users = self.0.lock();
        // Those without sessions are of no use any more, unless a task waits for one.
        users.retain(|_, user| Arc::strong_count(user) > 1 || user.state().sessions > 0);
        let key = (wanted.database.name.clone(), wanted.permit.db_user().to_owned());
        Arc::clone(users.entry(key).or_default())
    }
}

impl User {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Counts one session more, if there are some with the same roles.
    pub(super) fn join(&self, roles: &[String]) -> Joined {
        let mut state = self.state();
        if state.sessions == 0 {
            return Joined::Opens;
        }
        if !are_same(&state.roles, roles) {
            return Joined::OtherRoles;
        }
        state.sessions += 1;
        Joined::In
    }

    /// Whether there is nothing to close: a session has begun, or the user is closed already.
    pub(super) fn is_settled(&self) -> bool {
        let state = self.state();
        state.sessions > 0 || !state.open
    }
}

pub(super) fn are_same(some: &[String], others: &[String]) -> bool {
    some.len() == others.len() && some.iter().all(|role| others.contains(role))
}
