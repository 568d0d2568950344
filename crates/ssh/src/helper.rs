//! The session process: this program once more, started as `sallyport __session`.
//!
//! Between the fork and the command stands a program of our own instead of code run in a forked copy of a threaded one
//! (which no safe language allows). It makes a session, takes the terminal, becomes the account, sets up what a login
//! finds (groups, umask, home, variables) and then turns into the shell; or it stays and serves files. It never returns
//! to the node: what goes wrong it says on standard error, which the person sees.
//!
//! Neither `~/.ssh/rc` nor `~/.ssh/environment` is read, and PAM is asked about the account at most (`helper::pam`): the authority
//! of a session is its certificate and the cluster's policy. `/etc/nologin` is honoured, and an account whose shell refuses logins is refused by that shell.

pub(crate) mod keeper;
pub(crate) mod pam;
mod surroundings;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use nix::sys::signal::SigSet;
use serde::{Deserialize, Serialize};

use crate::session::{Account, socket};

/// The argument that makes a `sallyport` process a session process.
pub const ARGUMENT: &str = "__session";
/// The variable that says which session.
pub(crate) const SPEC: &str = "SALLYPORT_SESSION_SPEC";
/// Exit status of a session process that could not become what it should; sshd's as well.
const FAILED: u8 = 255;
/// The command search path of root, as Debian's sshd sets it.
const ROOT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The command search path of everybody else.
const USER_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games";

/// What the node tells the session process. The command line, which need not be text, is an argument instead.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) login: String,
    pub(crate) work: Work,
    pub(crate) terminal: bool,
    pub(crate) environment: Vec<(String, String)>,
    #[serde(default)]
    pub(crate) hash_files: bool,
    /// End what the session leaves running: the node's process, for which a keeper does that ([`keeper`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) keeper_for: Option<u32>,
    /// For [`Work::Account`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pam: Option<pam::Question>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Work {
    Shell,
    Exec,
    Sftp,
    /// Ask PAM whether the account may be used, and say why not.
    Account,
    /// Connect to the Unix socket that the argument names, and hand it over; see [`crate::session::socket`].
    Connect,
    /// Listen on a Unix socket there, hand it over, and remove it when the node is done with it.
    Listen,
}

impl Spec {
    pub(crate) fn to_text(&self) -> String {
        // Strings and booleans always become JSON.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Runs the session process. `arguments` are what follows [`ARGUMENT`]: the command line, for a session that has one.
/// Call it first thing in `main`, before any thread is started, and exit with its result.
#[must_use]
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let command = arguments.into_iter().next();
    match become_session(command.as_deref()) {
        Ok(code) => code,
        Err(message) => {
            // In one piece: whoever reads it may take the first for all.
            let _ = io::stderr().write_all(format!("sallyport: {message}\n").as_bytes());
            ExitCode::from(FAILED)
        }
    }
}

fn become_session(command: Option<&OsStr>) -> Result<ExitCode, String> {
    let text = std::env::var(SPEC)
        .map_err(|_| format!("{ARGUMENT} is for the node's own use; to log in, use: sallyport ssh"))?;
    let spec: Spec =
        serde_json::from_str(&text).map_err(|error| format!("the session is not described: {error}"))?;

    if let Some(node) = spec.keeper_for {
        return keeper::keep(command, spec, node);
    }
    // A keeper holds its signals back, and what it starts would inherit that.
    let _ = SigSet::empty().thread_set_mask();
    rustix::process::setsid().map_err(|error| format!("cannot start a session: {error}"))?;
    if spec.terminal {
        rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())
            .map_err(|error| format!("cannot take the terminal: {error}"))?;
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));

    let account = Account::find(&spec.login).map_err(|error| error.to_string())?;
    if let Work::Account = spec.work {
        let question = spec.pam.ok_or("there is no question for PAM")?;
        return pam::ask(&account.name, &question);
    }
    if account.uid != 0 && nologin(Path::new("/etc/nologin")) {
        return Ok(ExitCode::from(FAILED));
    }
    surroundings::give_back();
    account.become_it()?;
    if matches!(spec.work, Work::Shell | Work::Exec | Work::Sftp) {
        enter_home(&account);
    }
    if spec.work == Work::Shell && spec.terminal {
        surroundings::greet(&account.home);
    }
    let environment = environment(&account, &spec);
    match spec.work {
        Work::Sftp => Ok(crate::sftp::serve_stdio(spec.hash_files)),
        Work::Shell => Err(exec(&account, None, &environment)),
        Work::Exec => Err(exec(&account, Some(command.unwrap_or_default()), &environment)),
        Work::Account => Err("PAM was not asked".to_owned()),
        Work::Connect => socket::give_connected(Path::new(command.unwrap_or_default())),
        Work::Listen => socket::give_listening(Path::new(command.unwrap_or_default())),
    }
}

/// Turns into the account's shell; comes back only to say why not.
fn exec(account: &Account, command: Option<&OsStr>, environment: &[(String, String)]) -> String {
    let mut shell = Command::new(&account.shell);
    shell.env_clear().envs(environment.iter().map(|(name, value)| (name, value)));
    match command {
        Some(line) => {
            let name = account.shell.file_name().unwrap_or(OsStr::new("sh"));
            shell.arg0(name).arg("-c").arg(line);
        }
        None => {
            shell.arg0(account.login_name_of_shell());
        }
    }
    let error = shell.exec();
    format!("cannot run {}'s shell {}: {error}", account.name, account.shell.display())
}

/// As sshd: complains, and goes on in `/`.
fn enter_home(account: &Account) {
    if let Err(error) = std::env::set_current_dir(&account.home) {
        let _ =
            writeln!(io::stderr(), "Could not chdir to home directory {}: {error}", account.home.display());
        let _ = std::env::set_current_dir("/");
    }
}

/// The variables of a login. What the client sent comes first, so that it cannot replace what the account has.
fn environment(account: &Account, spec: &Spec) -> Vec<(String, String)> {
    let home = account.home.to_string_lossy().into_owned();
    let path = if account.uid == 0 { ROOT_PATH } else { USER_PATH };
    let mut variables = spec.environment.clone();
    variables.extend(
        [
            ("USER", account.name.clone()),
            ("LOGNAME", account.name.clone()),
            ("HOME", home),
            ("PATH", path.to_owned()),
            ("SHELL", account.shell.to_string_lossy().into_owned()),
            ("MAIL", format!("/var/mail/{}", account.name)),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    variables
}

/// Whether the machine takes no logins at the moment; says why, as the file does.
fn nologin(file: &Path) -> bool {
    match std::fs::read(file) {
        Ok(text) => {
            let _ = io::stderr().write_all(&text);
            if text.is_empty() {
                let _ = writeln!(io::stderr(), "this machine takes no logins at the moment (/etc/nologin)");
            }
            true
        }
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Bytes of a path as JSON can carry them.
pub(crate) fn printable(path: &[u8]) -> String {
    OsStr::from_bytes(path).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_cannot_replace_the_accounts_variables() {
        let account = Account::own().unwrap();
        let spec = Spec {
            login: account.name.clone(),
            work: Work::Shell,
            terminal: false,
            environment: vec![
                ("PATH".to_owned(), "/evil".to_owned()),
                ("LANG".to_owned(), "C.UTF-8".to_owned()),
            ],
            hash_files: false,
            keeper_for: None,
            pam: None,
        };
        let read_back: Spec = serde_json::from_str(&spec.to_text()).unwrap();
        let variables: std::collections::BTreeMap<_, _> =
            environment(&account, &read_back).into_iter().collect();
        assert!(variables["PATH"].contains("/usr/bin"));
        assert_eq!(variables["LANG"], "C.UTF-8");
        assert_eq!(variables["HOME"], account.home.to_string_lossy());
    }

    #[test]
    fn nologin_is_told_by_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("nologin");
        assert!(!nologin(&file));
        std::fs::write(&file, "down for repairs\n").unwrap();
        assert!(nologin(&file));
    }

    #[test]
    fn a_process_that_is_told_nothing_explains_itself() {
        let error = become_session(None).unwrap_err();
        assert!(error.contains("sallyport ssh"), "{error}");
    }
}
