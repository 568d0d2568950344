//! Database users that are made as people come, and closed or dropped when their last session has ended.
//!
//! Only users that were made here are ever touched: they are members of the role [`MARK`]. Sessions of one user take turns
//! within the agent, and agents take turns by an advisory lock; a user with a session anywhere is not closed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sallyport_access::{DatabaseName, DatabaseUserMode};
use sallyport_audit::recording::SessionMetadata;
use sallyport_audit::{Code, Event};
use tokio::sync::Mutex as Turn;

use super::admin::{Admin, identifier, literal};
use super::connect::ConnectError;
use super::{Shared, Wanted, record};

/// Whose members are users that were made here.
const MARK: &str = "sallyport_auto_user";
/// What agents lock while they change users: any number, the same for all.
const LOCK: &str = "select pg_advisory_xact_lock(7237125411902861)";
/// How often, and how long apart, the server is asked whether the last session is gone: it ends after its connection.
const LOOKS: u32 = 15;
const PAUSE: Duration = Duration::from_millis(200);

/// The users that have sessions here.
#[derive(Default)]
pub(crate) struct Users(Mutex<HashMap<Whose, Arc<Turn<User>>>>);

/// A database user, of a database.
type Whose = (DatabaseName, String);

#[derive(Debug, Default)]
struct User {
    sessions: usize,
    /// The roles that it was given last.
    roles: Vec<String>,
}

impl Users {
    fn of(&self, wanted: &Wanted) -> Arc<Turn<User>> {
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Those without sessions are of no use any more, unless somebody waits for one.
        users.retain(|_, user| {
            Arc::strong_count(user) > 1 || user.try_lock().is_ok_and(|user| user.sessions > 0)
        });
        let key = (wanted.database.name.clone(), wanted.permit.db_user().to_owned());
        Arc::clone(users.entry(key).or_default())
    }
}

/// A user that is open for one session.
pub(crate) struct Provisioned {
    shared: Arc<Shared>,
    user: Arc<Turn<User>>,
    about: SessionMetadata,
    /// As the account that makes users.
    wanted: Wanted,
    /// It counts as a session.
    entered: bool,
}

/// What had to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Done {
    Nothing,
    Created,
    Changed,
}

/// Makes the user of a session, where its permit says so.
pub(crate) async fn enter(
    shared: &Arc<Shared>,
    wanted: &Wanted,
    about: &SessionMetadata,
) -> Result<Option<Provisioned>, ConnectError> {
    if wanted.permit.options().user_mode == DatabaseUserMode::Off {
        return Ok(None);
    }
    let mut provisioned = Provisioned {
        shared: Arc::clone(shared),
        user: shared.users.of(wanted),
        about: about.clone(),
        wanted: Wanted { provisioning: true, ..wanted.clone() },
        entered: false,
    };
    let user = Arc::clone(&provisioned.user);
    let mut user = user.lock().await;
    if user.sessions == 0 || user.roles != wanted.permit.roles() {
        provisioned.open().await?;
        user.roles = wanted.permit.roles().to_vec();
    }
    user.sessions += 1;
    provisioned.entered = true;
    Ok(Some(provisioned))
}

impl Provisioned {
    /// Makes the user, or opens it, with the permit's roles.
    pub(crate) async fn open(&self) -> Result<(), ConnectError> {
        let permit = &self.wanted.permit;
        let mut admin = Admin::connect(&self.shared, &self.wanted).await.map_err(of_admin)?;
        let done = open(&mut admin, permit.db_user(), permit.roles()).await;
        admin.close().await;
        let message = match done? {
            Done::Nothing => return Ok(()),
            Done::Created => format!("the database user {} was made", permit.db_user()),
            Done::Changed => format!("the database user {} was opened", permit.db_user()),
        };
        let event = self.event(Code::DatabaseUserProvisioned).message(message);
        self.shared.settings.sink.emit(event.field("roles", permit.roles().to_vec()));
        Ok(())
    }

    /// The session has ended: closes the user when it was the last.
    pub(crate) async fn leave(mut self) {
        self.entered = false;
        leave(&self.shared, &self.user, &self.wanted, &self.about).await;
    }

    fn event(&self, code: Code) -> Event {
        record::event(&self.about, code)
    }
}

impl Drop for Provisioned {
    fn drop(&mut self) {
        if !self.entered {
            return;
        }
        let (shared, user) = (Arc::clone(&self.shared), Arc::clone(&self.user));
        let (wanted, about) = (self.wanted.clone(), self.about.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { leave(&shared, &user, &wanted, &about).await });
        }
    }
}

async fn leave(shared: &Shared, user: &Turn<User>, wanted: &Wanted, about: &SessionMetadata) {
    let mut user = user.lock().await;
    user.sessions = user.sessions.saturating_sub(1);
    if user.sessions > 0 {
        return;
    }
    let name = wanted.permit.db_user();
    let drops = wanted.permit.options().user_mode == DatabaseUserMode::BestEffortDrop;
    let closed = async {
        let mut admin = Admin::connect(shared, wanted).await?;
        let closed = close(&mut admin, name, drops).await;
        admin.close().await;
        closed
    };
    let event = match closed.await {
        Ok(Closed::InUse) => return,
        Ok(Closed::Dropped) => record::event(about, Code::DatabaseUserDropped)
            .message(format!("the database user {name} was dropped")),
        Ok(Closed::Deactivated { why }) => {
            let message = format!("the database user {name} was closed to logins");
            let event = record::event(about, Code::DatabaseUserDeactivated).message(message);
            why.map_or(event.clone(), |why| event.field("not_dropped", why))
        }
        Err(error) => record::event(about, Code::DatabaseUserLeft)
            .message(format!("the database user {name} could not be closed: {error}")),
    };
    shared.settings.sink.emit(event);
}

fn of_admin(error: ConnectError) -> ConnectError {
    match error {
        ConnectError::Server { message, code, .. } => {
            ConnectError::Provision(format!("the account that makes users cannot log in: {message} ({code})"))
        }
        other => other,
    }
}

fn of_statement(error: ConnectError) -> ConnectError {
    match error {
        ConnectError::Server { message, code, .. } => ConnectError::Provision(format!("{message} ({code})")),
        other => other,
    }
}

async fn open(admin: &mut Admin, user: &str, roles: &[String]) -> Result<Done, ConnectError> {
    let done = async {
        admin.run("begin").await?;
        admin.run(LOCK).await?;
        let mark = format!("select 1 from pg_roles where rolname = {}", literal(MARK));
        if admin.run(&mark).await?.is_empty() {
            admin.run(&format!("create role {} nologin", identifier(MARK))).await?;
        }
        let found = format!("select rolcanlogin from pg_roles where rolname = {}", literal(user));
        let found = admin.run(&found).await?;
        let logs_in = found.first().map(|row| row.first().is_some_and(|value| value.as_deref() == Some("t")));
        let has = memberships(admin, user).await?;
        let who = identifier(user);
        let mut done = Done::Nothing;
        match logs_in {
            None => {
                admin.run(&format!("create role {who} login in role {}", identifier(MARK))).await?;
                done = Done::Created;
            }
            Some(_) if !has.iter().any(|role| role == MARK) => {
                let what = format!(
                    "the database user {user} is there and was not made by Sallyport (it is no member of {MARK})"
                );
                return Err(ConnectError::Provision(what));
            }
            Some(true) => {}
            Some(false) => {
                admin.run(&format!("alter role {who} login")).await?;
                done = Done::Changed;
            }
        }
        for role in has.iter().filter(|role| *role != MARK && !roles.contains(role)) {
            admin.run(&format!("revoke {} from {who}", identifier(role))).await?;
            done = if done == Done::Created { done } else { Done::Changed };
        }
        for role in roles.iter().filter(|role| !has.contains(role)) {
            admin.run(&format!("grant {} to {who}", identifier(role))).await?;
            done = if done == Done::Created { done } else { Done::Changed };
        }
        admin.run("commit").await?;
        Ok(done)
    };
    done.await.map_err(of_statement)
}

/// How a user was closed.
enum Closed {
    /// It has sessions, of other agents perhaps: the last one to end closes it.
    InUse,
    Dropped,
    Deactivated {
        /// Why it was not dropped, where it should have been.
        why: Option<String>,
    },
}

async fn close(admin: &mut Admin, user: &str, drops: bool) -> Result<Closed, ConnectError> {
    let active = format!("select 1 from pg_stat_activity where usename = {} limit 1", literal(user));
    let mut looks = 0;
    while !admin.run(&active).await?.is_empty() {
        looks += 1;
        if looks == LOOKS {
            return Ok(Closed::InUse);
        }
        tokio::time::sleep(PAUSE).await;
    }
    admin.run("begin").await?;
    admin.run(LOCK).await?;
    let has = memberships(admin, user).await?;
    // Somebody has come in between, or it is not ours any more.
    if !has.iter().any(|role| role == MARK) || !admin.run(&active).await?.is_empty() {
        admin.run("rollback").await?;
        return Ok(Closed::InUse);
    }
    let who = identifier(user);
    let mut why = None;
    if drops {
        admin.run("savepoint dropping").await?;
        match admin.run(&format!("drop role {who}")).await {
            Ok(_) => {
                admin.run("commit").await?;
                return Ok(Closed::Dropped);
            }
            Err(ConnectError::Server { message, .. }) => {
                admin.run("rollback to dropping").await?;
                why = Some(message);
            }
            Err(other) => return Err(other),
        }
    }
    admin.run(&format!("alter role {who} nologin")).await?;
    for role in has.iter().filter(|role| *role != MARK) {
        admin.run(&format!("revoke {} from {who}", identifier(role))).await?;
    }
    admin.run("commit").await?;
    Ok(Closed::Deactivated { why })
}

/// The roles that a user is a member of.
async fn memberships(admin: &mut Admin, user: &str) -> Result<Vec<String>, ConnectError> {
    let rows = format!(
        "select r.rolname from pg_auth_members m join pg_roles r on r.oid = m.roleid join pg_roles u on u.oid = \
         m.member where u.rolname = {}",
        literal(user)
    );
    Ok(admin.run(&rows).await?.into_iter().filter_map(|row| row.into_iter().next().flatten()).collect())
}
