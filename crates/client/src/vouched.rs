//! Servers of which the authority has said, a short while ago, that the user's own key logs in there: so that the resident
//! helper does not ask for every one of many connections.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use sallyport_access::HostId;

/// How long an answer counts. A server that an administrator takes from `trust: user` is signed for so much longer.
const FRESH: Duration = Duration::from_secs(60);
/// Answers that are kept.
const MOST: usize = 256;

type Said = HashMap<(PathBuf, HostId), Instant>;

static SAID: LazyLock<Mutex<Said>> = LazyLock::new(Mutex::default);

fn said() -> MutexGuard<'static, Said> {
    SAID.lock()
}

/// Whether the authority of a stored login has said it lately.
pub(crate) fn lately(login: &Path, server: HostId) -> bool {
    said().get(&(login.to_owned(), server)).is_some_and(|at| at.elapsed() < FRESH)
}

/// It has said so. An answer is no fresher for being used.
pub(crate) fn remember(login: &Path, server: HostId) {
    let mut said = said();
    said.retain(|_, at| at.elapsed() < FRESH);
    if said.len() < MOST {
        said.entry((login.to_owned(), server)).or_insert_with(Instant::now);
    }
}
