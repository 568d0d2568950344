//! The way to one token: login, sessions, and finding it again.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use cryptoki::context::Pkcs11;
use cryptoki::error::{Error as Pkcs11Error, RvError};
use cryptoki::session::{Session, UserType};
use cryptoki::slot::{Limit, Slot, TokenInfo as Pkcs11TokenInfo};
use cryptoki::types::AuthPin;
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::choice::TokenChoice;
use super::config::{Pin, TokenConfig};
use super::error::{self, PinTries, TokenError};
use super::mechanism::Mechanisms;
use super::module::{Entered, Module, Open};
use crate::SalError;

/// How long a call waits for one of the sessions. A token that takes longer is stuck: callers get an error then, instead
/// of a queue that only grows.
const BUSY_AFTER: Duration = Duration::from_secs(30);
/// How long after a failed attempt to find a lost token the next one is made. Looking for it can mean starting the module
/// anew, which must not happen for each of hundreds of calls.
const SEARCH_PAUSE: Duration = Duration::from_millis(500);

/// Why an operation on a connection did not succeed.
#[derive(Debug)]
pub(super) enum Fault {
    /// The connection is lost, or looks so: a new one may do.
    Lost(String),
    /// The token, or we, refuse; trying again changes nothing.
    Refused(SalError),
}

impl From<SalError> for Fault {
    fn from(error: SalError) -> Self {
        Self::Refused(error)
    }
}

impl From<TokenError> for Fault {
    fn from(error: TokenError) -> Self {
        Self::Refused(error.into())
    }
}

/// The way to one token of one module. All that use the token in this process share it.
pub(super) struct Link {
    module: Arc<Module>,
    config: TokenConfig,
    permits: Permits,
    state: Mutex<State>,
    /// Whether `state` has a connection, for other links of the module.
    connected: AtomicBool,
    /// The name of the token, as found at first.
    name: String,
    serial: String,
}

/// The links among a module's open tokens.
fn links(open: &Open) -> impl Iterator<Item = Arc<Link>> {
    open.iter().filter_map(|link| link.upgrade()?.downcast::<Link>().ok())
}

struct State {
    connection: Option<Arc<Connection>>,
    /// The PIN that the token refused last: it is not tried twice.
    refused: Option<Pin>,
    /// When the token was last looked for in vain, and what came of it.
    searched: Option<(Instant, String)>,
}

impl Link {
    /// Finds the token and logs in, or joins a link to it that is open already.
    pub(super) fn open(config: &TokenConfig) -> Result<Arc<Self>, SalError> {
        let module = Module::open(&config.module)?;
        let mut open = module.open_tokens();
        open.retain(|link| link.strong_count() > 0);
        let live: Vec<Arc<Self>> = links(&open).collect();

        // Joining is decided by the token that is there, not by how it is named in the configuration.
        let found = {
            let entered = module.enter();
            find(entered.context, module.path(), &config.token)
        };
        if let Ok((_, info)) = &found
            && let Some(link) = live.iter().find(|link| link.serial == info.serial_number())
        {
            let pin = config.pin.read()?;
            if !link.config.pin.read()?.matches(&pin) {
                return Err(TokenError::OtherPin {
                    token: link.name.clone(),
                    source_of_pin: config.pin.to_string(),
                }
                .into());
            }
            return Ok(Arc::clone(link));
        }

        let mut refused = None;
        let others = live.iter().any(|link| link.connected.load(Ordering::Acquire));
        let connection = connect(&module, config, others, &mut refused)?;
        let sessions = match connection.max_sessions {
            // One session is kept for the login.
            Limit::Max(max) => {
                config.sessions.get().min(usize::try_from(max).unwrap_or(usize::MAX).saturating_sub(1)).max(1)
            }
            Limit::Unavailable | Limit::Infinite => config.sessions.get(),
        };
        let link = Arc::new(Self {
            config: config.clone(),
            permits: Permits::new(sessions),
            connected: AtomicBool::new(true),
            name: connection.name.clone(),
            serial: connection.serial.clone(),
            state: Mutex::new(State { connection: Some(Arc::new(connection)), refused, searched: None }),
            module: Arc::clone(&module),
        });
        let weak: Weak<Self> = Arc::downgrade(&link);
        open.push(weak);
        Ok(link)
    }

    /// The token in words, for errors.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Does something with the token: once, and once more on a new connection when the first one turns out to be lost.
    /// Blocks while all sessions are busy.
    pub(super) fn run<T>(
        &self,
        operation: &'static str,
        act: impl Fn(&Connection, &Entered<'_>) -> Result<T, Fault>,
    ) -> Result<T, SalError> {
        let _permit = self.permits.take()?;
        let mut lost = String::new();
        for _ in 0..2 {
            let connection = self.connection(&lost)?;
            let outcome = {
                let entered = self.module.enter();
                if entered.epoch() == connection.epoch {
                    act(&connection, &entered)
                } else {
                    Err(Fault::Lost("its module was restarted".to_owned()))
                }
            };
            match outcome {
                Ok(value) => return Ok(value),
                Err(Fault::Refused(error)) => return Err(error),
                Err(Fault::Lost(reason)) => {
                    self.lose(&connection);
                    lost = reason;
                }
            }
        }
        // A new connection was made and it failed again: the token is there, and does not do it.
        Err(TokenError::Failed { token: self.name.clone(), operation, reason: lost }.into())
    }

    /// The connection, or a new one. `lost` is why the one before was given up, if it was.
    fn connection(&self, lost: &str) -> Result<Arc<Connection>, SalError> {
        let mut state = self.state();
        if let Some(connection) = &state.connection {
            return Ok(Arc::clone(connection));
        }
        if let Some((when, reason)) = &state.searched
            && when.elapsed() < SEARCH_PAUSE
        {
            return Err(self.gone(reason.clone()));
        }
        // This one is not connected, or it would not be here.
        let others = links(&self.module.open_tokens()).any(|link| link.connected.load(Ordering::Acquire));
        match connect(&self.module, &self.config, others, &mut state.refused) {
            Ok(connection) => {
                let connection = Arc::new(connection);
                state.connection = Some(Arc::clone(&connection));
                state.searched = None;
                self.connected.store(true, Ordering::Release);
                Ok(connection)
            }
            // These say what to do better than "gone" does.
            Err(
                error @ SalError::Token(
                    TokenError::WrongPin { .. }
                    | TokenError::PinStillWrong { .. }
                    | TokenError::LastPinTry { .. }
                    | TokenError::PinLocked { .. }
                    | TokenError::PinExpired { .. }
                    | TokenError::NoPin { .. },
                ),
            ) => Err(error),
            Err(error) => {
                let reason =
                    if lost.is_empty() { error.to_string() } else { format!("{lost}; then: {error}") };
                state.searched = Some((Instant::now(), reason.clone()));
                Err(self.gone(reason))
            }
        }
    }

    fn gone(&self, reason: String) -> SalError {
        TokenError::Gone { token: self.name.clone(), reason }.into()
    }

    /// Gives a connection up, unless it was given up before.
    fn lose(&self, connection: &Arc<Connection>) {
        let given_up = {
            let mut state = self.state();
            match &state.connection {
                Some(current) if Arc::ptr_eq(current, connection) => {
                    self.connected.store(false, Ordering::Release);
                    state.connection.take()
                }
                _ => None,
            }
        };
        if let Some(connection) = given_up {
            connection.abandon();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("token", &self.name).finish_non_exhaustive()
    }
}

/// A login to a token, and the sessions under it.
pub(super) struct Connection {
    module: Arc<Module>,
    /// Tells connections apart, so that object handles of one are not used on another.
    pub(super) number: u64,
    epoch: u64,
    pub(super) slot: Slot,
    pub(super) name: String,
    pub(super) serial: String,
    pub(super) mechanisms: Mechanisms,
    max_sessions: Limit,
    /// Kept open as long as the connection: the token logs out when the last session closes.
    anchor: Mutex<Option<Session>>,
    idle: Mutex<Vec<Session>>,
    lost: AtomicBool,
}

impl Connection {
    /// A session for one operation: an idle one, or a new one. The caller holds a permit, so that there are never more
    /// than permits.
    pub(super) fn lease<'a>(&'a self, entered: &'a Entered<'_>) -> Result<Lease<'a>, Fault> {
        let idle = self.idle.lock().pop();
        let session = match idle {
            Some(session) => session,
            None => entered
                .context
                .open_ro_session_no_drop(self.slot)
                .map_err(|error| self.fault("open a session", &error))?,
        };
        Ok(Lease { session: Some(session), connection: self, _entered: entered })
    }

    /// A session that may make and delete keys. It is closed afterwards.
    pub(super) fn writing_lease<'a>(&'a self, entered: &'a Entered<'_>) -> Result<Lease<'a>, Fault> {
        let session = entered
            .context
            .open_rw_session_no_drop(self.slot)
            .map_err(|error| self.fault("open a session for writing", &error))?;
        Ok(Lease { session: Some(session), connection: self, _entered: entered })
    }

    /// Sorts what the module said.
    pub(super) fn fault(&self, operation: &'static str, error: &Pkcs11Error) -> Fault {
        if error::is_loss(error) {
            return Fault::Lost(error::words(error));
        }
        if error::code(error) == Some(RvError::PinExpired) {
            return TokenError::PinExpired { token: self.name.clone() }.into();
        }
        TokenError::Failed { token: self.name.clone(), operation, reason: error::words(error) }.into()
    }

    /// Whether the token of this connection still answers. A key that is not found means nothing where it does not.
    pub(super) fn is_present(&self, entered: &Entered<'_>) -> Result<(), Fault> {
        match entered.context.get_token_info(self.slot) {
            Ok(info) if info.serial_number() == self.serial => Ok(()),
            Ok(info) => Err(Fault::Lost(format!("its slot now holds another token, {:?}", info.label()))),
            Err(error) => Err(Fault::Lost(error::words(&error))),
        }
    }

    /// Closes what is not in use, and keeps what is from being used or closed: the module may give the same numbers to
    /// the sessions of the next connection.
    fn abandon(&self) {
        self.lost.store(true, Ordering::Release);
        self.close();
    }

    fn close(&self) {
        let anchor = self.anchor.lock().take();
        let idle = std::mem::take(&mut *self.idle.lock());
        let entered = self.module.enter();
        if entered.epoch() != self.epoch {
            return;
        }
        for session in idle.into_iter().chain(anchor) {
            // There is nothing to be done about a session that does not close.
            let _ = session.close();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}

/// A session in use. It is closed when it goes, unless it was given back: after an error its state is not known.
pub(super) struct Lease<'a> {
    session: Option<Session>,
    connection: &'a Connection,
    _entered: &'a Entered<'a>,
}

impl Lease<'_> {
    /// The session.
    pub(super) fn session(&self) -> Result<&Session, Fault> {
        self.session.as_ref().ok_or_else(|| Fault::Lost("its session was given back".to_owned()))
    }

    /// Keeps it for the next operation.
    pub(super) fn give_back(mut self) {
        if let Some(session) = self.session.take()
            && !self.connection.lost.load(Ordering::Acquire)
        {
            self.connection.idle.lock().push(session);
        }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.session.take()
            && !self.connection.lost.load(Ordering::Acquire)
        {
            let _ = session.close();
        }
    }
}

/// Finds the token and logs in; restarts the module and tries again where that may help.
fn connect(
    module: &Arc<Module>,
    config: &TokenConfig,
    others: bool,
    refused: &mut Option<Pin>,
) -> Result<Connection, SalError> {
    let (error, epoch) = {
        let entered = module.enter();
        match log_in(module, &entered, config, refused) {
            Ok(connection) => return Ok(connection),
            Err(error) => (error, entered.epoch()),
        }
    };
    let may_help = matches!(
        error,
        SalError::Token(
            TokenError::NoToken { .. } | TokenError::Failed { .. } | TokenError::ModuleFailed { .. }
        )
    );
    if !may_help || !module.restart(epoch, others) {
        return Err(error);
    }
    log_in(module, &module.enter(), config, refused)
}

fn log_in(
    module: &Arc<Module>,
    entered: &Entered<'_>,
    config: &TokenConfig,
    refused: &mut Option<Pin>,
) -> Result<Connection, SalError> {
    static NUMBERS: AtomicU64 = AtomicU64::new(0);

    let (slot, info) = find(entered.context, module.path(), &config.token)?;
    let name = name(&info);
    let failed = |operation: &'static str| {
        let token = name.clone();
        move |error: Pkcs11Error| TokenError::Failed { token, operation, reason: error::words(&error) }
    };
    if !info.token_initialized() {
        return Err(TokenError::Uninitialised { slot: slot.id(), module: module.path().to_owned() }.into());
    }
    if !info.user_pin_initialized() {
        return Err(TokenError::NoUserPin { token: name }.into());
    }
    let pin = config.pin.read()?;
    match tries(&info) {
        PinTries::Locked => return Err(TokenError::PinLocked { token: name }.into()),
        PinTries::Last => return Err(TokenError::LastPinTry { token: name }.into()),
        PinTries::Low | PinTries::Unknown => {}
    }
    if refused.as_ref().is_some_and(|refused| refused.matches(&pin)) {
        return Err(TokenError::PinStillWrong { token: name, source_of_pin: config.pin.to_string() }.into());
    }
    let mechanisms = Mechanisms::read(entered.context, slot).map_err(failed("say what it can do"))?;
    let session = entered.context.open_ro_session_no_drop(slot).map_err(failed("open a session"))?;
    if let Err(error) = session.login(UserType::User, Some(&AuthPin::new(pin.as_str().into()))) {
        let code = error::code(&error);
        // Another link of this process is logged in already, and a login holds for all of it.
        if code != Some(RvError::UserAlreadyLoggedIn) {
            let _ = session.close();
            return Err(match code {
                Some(RvError::PinIncorrect | RvError::PinInvalid | RvError::PinLenRange) => {
                    *refused = Some(pin);
                    let tries =
                        entered.context.get_token_info(slot).map_or(PinTries::Unknown, |info| tries(&info));
                    TokenError::WrongPin { token: name, source_of_pin: config.pin.to_string(), tries }
                }
                Some(RvError::PinLocked) => TokenError::PinLocked { token: name },
                Some(RvError::PinExpired) => TokenError::PinExpired { token: name },
                Some(RvError::UserPinNotInitialized) => TokenError::NoUserPin { token: name },
                _ => failed("log in")(error),
            }
            .into());
        }
    }
    *refused = None;
    Ok(Connection {
        module: Arc::clone(module),
        number: NUMBERS.fetch_add(1, Ordering::Relaxed),
        epoch: entered.epoch(),
        slot,
        serial: info.serial_number().to_owned(),
        name,
        mechanisms,
        max_sessions: info.max_session_count(),
        anchor: Mutex::new(Some(session)),
        idle: Mutex::new(Vec::new()),
        lost: AtomicBool::new(false),
    })
}

/// The one token that the operator means.
fn find(context: &Pkcs11, module: &Path, wanted: &TokenChoice) -> Result<(Slot, Pkcs11TokenInfo), SalError> {
    let slots = context.get_slots_with_token().map_err(|error| TokenError::ModuleFailed {
        path: module.to_owned(),
        reason: error::words(&error),
    })?;
    // A slot that does not answer, such as that of a token just pulled out, has no token for us.
    let mut tokens: Vec<(Slot, Pkcs11TokenInfo)> =
        slots.into_iter().filter_map(|slot| Some((slot, context.get_token_info(slot).ok()?))).collect();
    let present = describe(&tokens);
    tokens.retain(|(slot, info)| match wanted {
        TokenChoice::Label(label) => info.token_initialized() && info.label() == label,
        TokenChoice::Serial(serial) => info.token_initialized() && info.serial_number() == serial,
        TokenChoice::Slot(number) => slot.id() == *number,
    });
    if tokens.len() > 1 {
        let serials: Vec<&str> = tokens.iter().map(|(_, info)| info.serial_number()).collect();
        return Err(TokenError::Ambiguous { wanted: wanted.clone(), serials: serials.join(", ") }.into());
    }
    tokens.pop().ok_or_else(|| {
        TokenError::NoToken { wanted: wanted.clone(), module: module.to_owned(), present }.into()
    })
}

fn describe(tokens: &[(Slot, Pkcs11TokenInfo)]) -> String {
    if tokens.is_empty() {
        return "no token is in any of its slots".to_owned();
    }
    let tokens: Vec<String> = tokens
        .iter()
        .map(|(slot, info)| match info.token_initialized() {
            true => format!("{:?} (serial {}, slot {})", info.label(), info.serial_number(), slot.id()),
            false => format!("one that is not initialised (slot {})", slot.id()),
        })
        .collect();
    format!("it has {}", tokens.join(", "))
}

fn name(info: &Pkcs11TokenInfo) -> String {
    format!("the token {:?} (serial {})", info.label(), info.serial_number())
}

pub(super) fn tries(info: &Pkcs11TokenInfo) -> PinTries {
    PinTries::from_flags(info.user_pin_count_low(), info.user_pin_final_try(), info.user_pin_locked())
}

/// A bounded number of leaves to use a session.
struct Permits {
    free: Mutex<usize>,
    freed: Condvar,
    all: usize,
}

struct Permit<'a>(&'a Permits);

impl Permits {
    fn new(all: usize) -> Self {
        Self { free: Mutex::new(all), freed: Condvar::new(), all }
    }

    fn take(&self) -> Result<Permit<'_>, SalError> {
        let mut free = self.free.lock();
        let _ = self.freed.wait_while_for(&mut free, |free| *free == 0, BUSY_AFTER);
        match free.checked_sub(1) {
            Some(left) => {
                *free = left;
                Ok(Permit(self))
            }
            None => Err(TokenError::Busy { sessions: self.all, waited: BUSY_AFTER }.into()),
        }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.0.free.lock() += 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn no_more_than_the_permitted_number_go_in_at_once() {
        let permits = Permits::new(2);
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let _permit = permits.take().unwrap();
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(most.into_inner(), 2);
        assert_eq!(*permits.free.lock(), 2);
    }
}
