//! Database users that are made as people come, and closed or dropped when their last session has ended.
//!
//! Only users that were made here are ever touched: they are members of the role [`MARK`]. Sessions of one user take turns
//! within the agent, and agents take turns by an advisory lock; a user with a session anywhere is not closed.

use std::sync::Arc;

use sallyport_access::DatabaseUserMode;
use sallyport_audit::Code;
use sallyport_session::About;
use tokio::time::{Instant, sleep, timeout};

use super::admin::{Admin, identifier, literal};
use super::asked::Wanted;
use super::connect::ConnectError;

use super::shared::Shared;
use super::users::{Joined, User, are_same};

/// Whose members are users that were made here.
const MARK: &str = "sallyport_auto_user";
/// What agents lock while they change users: any number, the same for all.
const LOCK: &str = "select pg_advisory_xact_lock(7237125411902861)";

/// A user that is open for one session.
pub(crate) struct Provisioned {
    whom: Whom,
    /// It counts as a session.
    counted: bool,
    /// It may have been opened: the database did not answer.
    unsure: bool,
}

/// A user of a session.
#[derive(Clone)]
struct Whom {
    shared: Arc<Shared>,
    user: Arc<User>,
    about: About,
    /// As the account that makes users.
    wanted: Wanted,
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
    about: &About,
) -> Result<Option<Provisioned>, ConnectError> {
    if wanted.permit.options().user_mode == DatabaseUserMode::Off {
        return Ok(None);
    }
    let name = wanted.permit.db_user();
    if wanted.database.admin_user.as_deref() == Some(name) {
        // It could be given the roles of others, and be closed with its last session.
        let message = format!("the database user {name} makes users (admin_user), and is not made itself");
        return Err(ConnectError::Denied { message, hint: "log in as another database user (-U)" });
    }
    let whom = Whom {
        shared: Arc::clone(shared),
        user: shared.users.of(wanted),
        about: about.clone(),
        wanted: Wanted { provisioning: true, ..wanted.clone() },
    };
    let mut provisioned = Provisioned { whom, counted: false, unsure: false };
    within(shared, provisioned.enter()).await?;
    Ok(Some(provisioned))
}

async fn within<T>(
    shared: &Shared,
    work: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    let longest = shared.pace.user;
    timeout(longest, work).await.unwrap_or_else(|_| {
        let what = format!("the database user was not ready within {} s", longest.as_secs());
        Err(ConnectError::Late(what))
    })
}

fn other_roles(user: &str) -> ConnectError {
    ConnectError::Denied {
        message: format!(
            "the database user {user} has sessions with other roles, and roles are of the whole server"
        ),
        hint: "end your other sessions there first; then this one gets its roles",
    }
}

impl Provisioned {
    async fn enter(&mut self) -> Result<(), ConnectError> {
        let user = Arc::clone(&self.whom.user);
        let permit = Arc::clone(&self.whom.wanted.permit);
        let pace = self.whom.shared.pace;
        for look in 0..pace.other_looks {
            if look > 0 {
                sleep(pace.look).await;
            }
            let _turn = user.turn.lock().await;
            match user.join(permit.roles()) {
                Joined::In => self.counted = true,
                Joined::Opens => {
                    if !self.open().await? {
                        continue;
                    }
                    let mut state = user.state();
                    state.sessions += 1;
                    state.roles = permit.roles().to_vec();
                    self.counted = true;
                    self.unsure = false;
                }
                Joined::OtherRoles => continue,
            }
            return Ok(());
        }
        Err(other_roles(permit.db_user()))
    }

    /// Opens the user once more, which was closed at the database before the session had begun.
    pub(crate) async fn reopen(&mut self) -> Result<(), ConnectError> {
        let shared = Arc::clone(&self.whom.shared);
        match within(&shared, self.open()).await? {
            true => Ok(()),
            false => Err(other_roles(self.whom.wanted.permit.db_user())),
        }
    }

    /// Makes the user, or opens it, with the permit's roles. Not when it has sessions with others.
    async fn open(&mut self) -> Result<bool, ConnectError> {
        let Whom { shared, user, about, wanted } = &self.whom;
        let permit = &wanted.permit;
        let mut admin = Admin::connect(shared, wanted).await.map_err(of_admin)?;
        {
            let mut state = user.state();
            // What it is given now it has to lose again.
            (state.open, state.shut) = (true, false);
        }
        self.unsure = true;
        let outlived = user.state().outlived.clone();
        let done = open(&mut admin, permit.db_user(), permit.roles(), &outlived).await;
        // What a server has refused it has undone.
        self.unsure = !matches!(done, Ok(None) | Err(ConnectError::Provision(_) | ConnectError::Late(_)));
        admin.close().await;
        let message = match done? {
            None => return Ok(false),
            Some(Done::Nothing) => return Ok(true),
            Some(Done::Created) => format!("the database user {} was made", permit.db_user()),
            Some(Done::Changed) => format!("the database user {} was opened", permit.db_user()),
        };
        let event = about.event(Code::DatabaseUserProvisioned).message(message);
        shared.settings.sink.emit(event.field("roles", permit.roles().to_vec()));
        Ok(true)
    }

    /// The session has ended: closes the user when it was the last. `process` is its own at the server, where that goes on, which
    /// it is known to do for as long as what this gives is kept.
    pub(crate) async fn leave(mut self, process: Option<u32>) -> Option<Outlived> {
        let counted = std::mem::take(&mut self.counted);
        let outlived = process.map(|process| Outlived::new(&self.whom.user, process));
        self.unsure = false;
        self.whom.clone().leave(counted).await;
        outlived
    }
}

/// A process that goes on although its session is over. Another of the same number is not that one: servers use them again.
pub(crate) struct Outlived {
    user: Arc<User>,
    process: u32,
}

impl Outlived {
    fn new(user: &Arc<User>, process: u32) -> Self {
        user.state().outlived.push(process);
        Self { user: Arc::clone(user), process }
    }
}

impl Drop for Outlived {
    fn drop(&mut self) {
        let mut state = self.user.state();
        if let Some(place) = state.outlived.iter().position(|process| *process == self.process) {
            state.outlived.swap_remove(place);
        }
    }
}

impl Drop for Provisioned {
    fn drop(&mut self) {
        if !self.counted && !self.unsure {
            return;
        }
        let (whom, counted) = (self.whom.clone(), self.counted);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(whom.leave(counted));
        }
    }
}

impl Whom {
    async fn leave(self, counted: bool) {
        {
            let mut state = self.user.state();
            state.sessions = state.sessions.saturating_sub(usize::from(counted));
            if state.sessions > 0 {
                return;
            }
        }
        let closed = self.close(self.shared.pace.looks).await;
        let tells = match &closed {
            Ok(Closed::InUse | Closed::Shut) => true,
            Ok(_) => false,
            Err(error) => {
                self.left(&error.to_string());
                false
            }
        };
        if matches!(closed, Ok(Closed::InUse | Closed::Shut) | Err(_)) {
            tokio::spawn(self.later(tells));
        }
    }

    /// Tries again from time to time: a session that lasts longer than its connection has to be closed by this agent.
    async fn later(self, tells: bool) {
        let number = {
            let mut state = self.user.state();
            state.retry += 1;
            state.retry
        };
        let end = Instant::now() + self.shared.pace.gives_up;
        while Instant::now() < end {
            sleep(self.shared.pace.again).await;
            if self.user.state().retry != number {
                return;
            }
            if !matches!(self.close(1).await, Ok(Closed::InUse | Closed::Shut) | Err(_)) {
                return;
            }
        }
        if tells {
            self.left("it still has sessions; an agent that they go through closes it when they end");
        }
    }

    fn left(&self, why: &str) {
        let message =
            format!("the database user {} could not be closed: {why}", self.wanted.permit.db_user());
        self.shared.settings.sink.emit(self.about.event(Code::DatabaseUserLeft).message(message));
    }

    /// Closes the user, if it has no session within so many looks.
    async fn close(&self, looks: u32) -> Result<Closed, ConnectError> {
        let work = async {
            let mut admin = Admin::connect(&self.shared, &self.wanted).await?;
            let closed = self.close_by(&mut admin, looks).await;
            admin.close().await;
            closed
        };
        let pace = self.shared.pace;
        let longest = pace.user + pace.look * looks;
        let late = |_| {
            Err(ConnectError::Late(format!("the database has not answered within {} s", longest.as_secs())))
        };
        let closed = timeout(longest, work).await.unwrap_or_else(late)?;
        let name = self.wanted.permit.db_user();
        let event = match &closed {
            Closed::InUse | Closed::Settled => return Ok(closed),
            Closed::Shut if std::mem::replace(&mut self.user.state().shut, true) => return Ok(closed),
            Closed::Shut => self
                .about
                .event(Code::DatabaseUserDeactivated)
                .message(format!(
                    "the database user {name} was closed to logins, and a process of it goes on"
                ))
                .field("not_dropped", "a process of a session that is over has not ended"),
            Closed::Dropped => self
                .about
                .event(Code::DatabaseUserDropped)
                .message(format!("the database user {name} was dropped")),
            Closed::Deactivated { why } => {
                let message = format!("the database user {name} was closed to logins");
                let event = self.about.event(Code::DatabaseUserDeactivated).message(message);
                match why {
                    Some(why) => event.field("not_dropped", why.as_str()),
                    None => event,
                }
            }
        };
        self.shared.settings.sink.emit(event);
        Ok(closed)
    }

    async fn close_by(&self, admin: &mut Admin, looks: u32) -> Result<Closed, ConnectError> {
        let permit = &self.wanted.permit;
        let drops = permit.options().user_mode == DatabaseUserMode::BestEffortDrop;
        for look in 0..looks {
            if look > 0 {
                sleep(self.shared.pace.look).await;
            }
            if self.user.is_settled() {
                return Ok(Closed::Settled);
            }
            // Without the turn, so that a session that begins does not wait for it.
            let outlived = self.user.state().outlived.clone();
            if !only(&outlived, &processes(admin, permit.db_user()).await?) {
                continue;
            }
            let _turn = self.user.turn.lock().await;
            if self.user.is_settled() {
                return Ok(Closed::Settled);
            }
            match close(admin, permit.db_user(), drops, &outlived).await? {
                Closed::InUse => {}
                Closed::Shut => return Ok(Closed::Shut),
                closed => {
                    let mut state = self.user.state();
                    (state.open, state.shut) = (false, false);
                    drop(state);
                    return Ok(closed);
                }
            }
        }
        Ok(Closed::InUse)
    }
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
        // A lock, or a statement, that took too long.
        ConnectError::Server { message, code, .. } if matches!(code.as_str(), "55P03" | "57014") => {
            ConnectError::Late(format!("{message} ({code})"))
        }
        ConnectError::Server { message, code, .. } => ConnectError::Provision(format!("{message} ({code})")),
        other => other,
    }
}

/// None where the user has sessions with other roles, which would lose theirs.
async fn open(
    admin: &mut Admin,
    user: &str,
    roles: &[String],
    outlived: &[u32],
) -> Result<Option<Done>, ConnectError> {
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
        let others: Vec<String> = has.iter().filter(|role| *role != MARK).cloned().collect();
        let is_ours = others.len() < has.len();
        if is_ours && !are_same(&others, roles) && !only(outlived, &processes(admin, user).await?) {
            admin.run("rollback").await?;
            return Ok(None);
        }
        let mut done = Done::Nothing;
        match logs_in {
            None => {
                admin.run(&format!("create role {who} login in role {}", identifier(MARK))).await?;
                done = Done::Created;
            }
            Some(_) if !is_ours => {
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
        for role in others.iter().filter(|role| !roles.contains(role)) {
            admin.run(&format!("revoke {} from {who}", identifier(role))).await?;
            done = if done == Done::Created { done } else { Done::Changed };
        }
        for role in roles.iter().filter(|role| !has.contains(role)) {
            admin.run(&format!("grant {} to {who}", identifier(role))).await?;
            done = if done == Done::Created { done } else { Done::Changed };
        }
        admin.run("commit").await?;
        Ok(Some(done))
    };
    done.await.map_err(of_statement)
}

/// How a user was closed.
enum Closed {
    /// It has sessions, of other agents perhaps: the last one to end closes it.
    InUse,
    /// It has lost its logins and roles. What goes on of it is processes of sessions that are over.
    Shut,
    /// Nothing had to be done: a session began, another agent closed it, or it is not ours any more.
    Settled,
    Dropped,
    Deactivated {
        /// Why it was not dropped, where it should have been.
        why: Option<String>,
    },
}

/// The processes of its sessions, through any agent or past them.
async fn processes(admin: &mut Admin, user: &str) -> Result<Vec<String>, ConnectError> {
    let active = format!("select pid from pg_stat_activity where usename = {} limit 1000", literal(user));
    Ok(admin.run(&active).await?.into_iter().filter_map(|row| row.into_iter().next().flatten()).collect())
}

/// Whether none of them is of a session that goes on.
fn only(outlived: &[u32], processes: &[String]) -> bool {
    processes.iter().all(|process| process.parse().is_ok_and(|process| outlived.contains(&process)))
}

async fn close(admin: &mut Admin, user: &str, drops: bool, outlived: &[u32]) -> Result<Closed, ConnectError> {
    admin.run("begin").await?;
    admin.run(LOCK).await?;
    let has = memberships(admin, user).await?;
    if !has.iter().any(|role| role == MARK) {
        admin.run("rollback").await?;
        return Ok(Closed::Settled);
    }
    // A session may have begun in between.
    let left = processes(admin, user).await?;
    if !only(outlived, &left) {
        admin.run("rollback").await?;
        return Ok(Closed::InUse);
    }
    let who = identifier(user);
    let mut why = None;
    if drops && left.is_empty() {
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
    Ok(if left.is_empty() { Closed::Deactivated { why } } else { Closed::Shut })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_forgotten_with_what_knows_that_it_goes_on() {
        let user = Arc::new(User::default());
        let (one, other) = (Outlived::new(&user, 7), Outlived::new(&user, 8));
        assert!(only(&user.state().outlived, &["7".to_owned(), "8".to_owned()]));
        drop(one);
        // A session that begins now may have that number.
        assert!(!only(&user.state().outlived, &["7".to_owned()]));
        drop(other);
        assert!(user.state().outlived.is_empty());
    }
}
