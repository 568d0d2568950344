//! What other processes of the same account may see of this one, which may hold keys: nothing.

use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};

/// Set, it leaves this process open to debuggers and perf of its account.
const VARIABLE: &str = "SALLYPORT_TRACEABLE";

/// Writes no core dump, and has the kernel refuse processes of the same account without root's rights to trace this one, or to read
/// its memory, environment and open files (ptrace(2), `PR_SET_DUMPABLE` in prctl(2)). It ends with execve(2): programs that this
/// one starts are as ever, but for their core dumps, which a limit turns off until they ask for some (`ulimit -c`).
pub(crate) fn to_others() {
    if std::env::var_os(VARIABLE).is_some_and(|value| !value.is_empty()) {
        return;
    }
    let most = getrlimit(Resource::Core).maximum;
    // Either alone keeps keys from the disk, and neither fails for a process's own sake.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: most });
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}
