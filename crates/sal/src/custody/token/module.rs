//! PKCS#11 modules: loaded and started once in a process, shared by all that use them.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error as Pkcs11Error, RvError};
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard};

use super::error::{self, TokenError};
use crate::SalError;

/// How long a restart of a module waits for calls into it to end.
const RESTART_PATIENCE: Duration = Duration::from_secs(2);
/// How often that is looked at.
const RESTART_POLL: Duration = Duration::from_millis(5);
/// The shortest time between two restarts of a module that has other tokens in use: a restart logs them out.
const SHARED_RESTART_PAUSE: Duration = Duration::from_secs(30);

/// `C_Initialize` holds for the process, so that the modules do too. They are never unloaded: many do not survive it.
static MODULES: Mutex<BTreeMap<PathBuf, Arc<Module>>> = Mutex::new(BTreeMap::new());

/// The open tokens of a module, each as whatever opens it keeps it.
pub(super) type Open = Vec<Weak<dyn Any + Send + Sync>>;

/// A module that was loaded and started.
pub(super) struct Module {
    path: PathBuf,
    context: Pkcs11,
    /// Whether we started it, and so may stop it.
    ours: bool,
    /// Read by a thread that calls into the module, written by one that restarts it. The number counts the restarts: sessions
    /// and object handles belong to one number and mean nothing, or something else, under the next.
    gate: RwLock<u64>,
    last_restart: Mutex<Option<Instant>>,
    open: Mutex<Open>,
}

/// Leave to call into a module. No restart happens while one is alive; do not take a second in the same thread.
pub(super) struct Entered<'a> {
    pub(super) context: &'a Pkcs11,
    epoch: RwLockReadGuard<'a, u64>,
}

impl Entered<'_> {
    pub(super) fn epoch(&self) -> u64 {
        *self.epoch
    }
}

impl Module {
    /// The module in a file, loaded and started if this is the first use of it.
    pub(super) fn open(path: &Path) -> Result<Arc<Self>, SalError> {
        let real = path.canonicalize().map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => TokenError::NoModule { path: path.to_owned() }.into(),
            _ => SalError::File { action: "find the PKCS#11 module", path: path.to_owned(), source },
        })?;
        let mut modules = MODULES.lock();
        if let Some(module) = modules.get(&real) {
            return Ok(Arc::clone(module));
        }
        check_file(&real)?;
        let context = Pkcs11::new(&real).map_err(|error| TokenError::NotAModule {
            path: path.to_owned(),
            reason: match error {
                Pkcs11Error::LibraryLoading(reason) => reason.to_string(),
                Pkcs11Error::MissingSymbol(symbol) => format!("it does not have the function {symbol}"),
                other => error::words(&other),
            },
        })?;
        let ours = match start(&context) {
            Ok(()) => true,
            Err(error) if error::code(&error) == Some(RvError::CryptokiAlreadyInitialized) => false,
            Err(error) => {
                return Err(
                    TokenError::ModuleFailed { path: path.to_owned(), reason: error::words(&error) }.into()
                );
            }
        };
        let module = Arc::new(Self {
            path: path.to_owned(),
            context,
            ours,
            gate: RwLock::new(0),
            last_restart: Mutex::new(None),
            open: Mutex::new(Vec::new()),
        });
        modules.insert(real, Arc::clone(&module));
        Ok(module)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn enter(&self) -> Entered<'_> {
        Entered { context: &self.context, epoch: self.gate.read() }
    }

    /// The open tokens of this module. The lock is held while one is added, so that a token is opened once.
    pub(super) fn open_tokens(&self) -> MutexGuard<'_, Open> {
        self.open.lock()
    }

    /// Stops and starts the module, unless it was done since `seen`. Some modules look for tokens only when
    /// they start: without this, a token that was put back would be seen by the next process only. `others` says whether
    /// other tokens of it are in use.
    ///
    /// Gives whether it was restarted.
    pub(super) fn restart(&self, seen: u64, others: bool) -> bool {
        if !self.ours {
            return false;
        }
        // Tried, not waited for: a waiting writer would hold up every call into other tokens.
        let began = Instant::now();
        let mut epoch = loop {
            match self.gate.try_write() {
                Some(guard) => break guard,
                None if began.elapsed() < RESTART_PATIENCE => std::thread::sleep(RESTART_POLL),
                None => return false,
            }
        };
        if *epoch != seen {
            return true;
        }
        let mut last = self.last_restart.lock();
        if others && last.is_some_and(|last| last.elapsed() < SHARED_RESTART_PAUSE) {
            return false;
        }
        *last = Some(Instant::now());
        // Whatever comes of it, the sessions of before are gone.
        *epoch += 1;
        // A module that is broken enough to refuse to stop may still start.
        let _ = self.context.clone().finalize();
        start(&self.context).is_ok()
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Module").field("path", &self.path).finish_non_exhaustive()
    }
}

fn start(context: &Pkcs11) -> Result<(), Pkcs11Error> {
    context.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK))
}

/// The file will run as us: only root and this process's user may be able to change it.
fn check_file(path: &Path) -> Result<(), SalError> {
    let metadata = std::fs::metadata(path).map_err(|source| SalError::File {
        action: "inspect",
        path: path.to_owned(),
        source,
    })?;
    if !metadata.is_file() {
        return Err(SalError::NotAFile { path: path.to_owned(), found: "not a file" });
    }
    let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
    if mode & 0o022 != 0 || (owner != 0 && owner != rustix::process::geteuid().as_raw()) {
        return Err(TokenError::UnsafeModule { path: path.to_owned(), owner, mode }.into());
    }
    Ok(())
}
