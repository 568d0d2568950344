//! The session process: this program once more, started as `sallyport __session`.
//!
//! Between the fork and the command stands a program of our own instead of code run in a forked copy of a threaded one
//! (which no safe language allows). It makes a session, takes the terminal, becomes the account, sets up what a login
//! finds (groups, umask, home, variables) and then turns into the shell; or it stays and serves files. It never returns
//! to the node: what goes wrong it says on standard error, which the person sees.
//!
//! Neither `~/.ssh/rc` nor `~/.ssh/environment` is read, and PAM is asked about the account (`helper::pam`) and for a session
//! (`helper::pam_session`) at most: the authority of a session is its certificate and the cluster's policy. `/etc/nologin` is honoured, and an account whose shell refuses logins is refused by that shell.

pub(crate) mod ends;
mod error;
pub(crate) mod keeper;
pub(crate) mod pam;
pub mod pam_session;
mod spec;
mod surroundings;
mod tree;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use nix::sys::signal::SigSet;

pub use spec::ARGUMENT;
pub(crate) use spec::{KILL, OVER, SPEC, Spec, WAIT, Work};

use self::ends::Ends;
use self::error::HelperError;
use self::pam_session::Part;
use self::spec::{FAILED, NOLOGIN, closed_to_logins};
use crate::session::{Account, socket};

/// The command search path of root, as Debian's sshd sets it.
const ROOT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The command search path of other accounts.
const USER_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games";

/// Runs the session process. `arguments` are what follows [`ARGUMENT`]: the command line, for a session that has one.
/// Call it first thing in `main`, before any thread is started, and exit with its result.
#[must_use]
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    match become_session(&arguments) {
        Ok(code) => code,
        Err(error) => {
            // In one piece: its reader may take the first for all.
            let _ = io::stderr().write_all(format!("sallyport: {error}\n").as_bytes());
            ExitCode::from(FAILED)
        }
    }
}

fn become_session(arguments: &[OsString]) -> Result<ExitCode, HelperError> {
    match Part::of(arguments) {
        Some(Part::Anchor) => {
            // Before it becomes root's: what it starts inherits this.
            surroundings::let_go();
            surroundings::refuse_tracing()?;
            return pam_session::anchor();
        }
        Some(Part::Session) => {
            surroundings::refuse_tracing()?;
            let (spec, command) = pam_session::join()?;
            take_terminal(&spec)?;
            let account = Account::find(&spec.login)?;
            account.check_it()?;
            return serve(&account, &spec, OsStr::from_bytes(&command), std::env::vars_os().collect());
        }
        None => {}
    }
    let command = arguments.first().map(OsString::as_os_str);
    let text = std::env::var(SPEC).map_err(|_| HelperError::NotForPeople { argument: ARGUMENT })?;
    if text == WAIT {
        start_session()?;
        // A node that ends, or needs it no more, says nothing.
        let Some((spec, command)) = wait()? else { return Ok(ExitCode::SUCCESS) };
        return go_on(spec, OsStr::from_bytes(&command));
    }
    let spec = described(text.as_bytes())?;
    if let Some(node) = spec.keeper_for {
        return keeper::keep(command, spec, node);
    }
    start_session()?;
    go_on(spec, command.unwrap_or_default())
}

fn described(text: &[u8]) -> Result<Spec, HelperError> {
    serde_json::from_slice(text).map_err(HelperError::NotDescribed)
}

fn start_session() -> Result<(), HelperError> {
    // A keeper holds its signals back, and what it starts would inherit that.
    let _ = SigSet::empty().thread_set_mask();
    rustix::process::setsid().map_err(HelperError::system("start a session"))?;
    Ok(())
}

/// Waits for a session: its ends, which become this process's, its description and its command.
fn wait() -> Result<Option<(Spec, Vec<u8>)>, HelperError> {
    let line = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)
        .map_err(HelperError::system("keep the line to the node"))?;
    let line = UnixStream::from(line);
    if (&line).write_all(b"+").is_err() {
        return Ok(None);
    }
    // Without all of it, no node is there to be told.
    let Ok(ends) = Ends::receive(&line) else { return Ok(None) };
    let (Ok(text), Ok(command)) = (ends::receive_text(&line), ends::receive_text(&line)) else {
        return Ok(None);
    };
    ends.take().map_err(HelperError::system("take the session's ends"))?;
    Ok(Some((described(&text)?, command)))
}

/// In a session of its own: becomes the account, and does what the session is for.
fn go_on(spec: Spec, command: &OsStr) -> Result<ExitCode, HelperError> {
    take_terminal(&spec)?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));

    let account = Account::find(&spec.login)?;
    if let Work::Account = spec.work {
        let question = spec.pam.ok_or(HelperError::NoQuestion)?;
        return pam::ask(&account.name, &question);
    }
    if account.uid != 0 && nologin(Path::new(NOLOGIN)) {
        return Ok(ExitCode::from(FAILED));
    }
    surroundings::limit_files();
    surroundings::let_go();
    account.become_it()?;
    serve(&account, &spec, command, Vec::new())
}

fn take_terminal(spec: &Spec) -> Result<(), HelperError> {
    if !spec.terminal {
        return Ok(());
    }
    rustix::process::ioctl_tiocsctty(rustix::stdio::stdin()).map_err(HelperError::system("take the terminal"))
}

/// Does what the session is for, as the account.
fn serve(
    account: &Account,
    spec: &Spec,
    command: &OsStr,
    by_pam: Variables,
) -> Result<ExitCode, HelperError> {
    // What stays this program tells the node what it does. A program that it turns into is the account's own.
    if matches!(spec.work, Work::Sftp | Work::Connect | Work::Listen) {
        surroundings::refuse_tracing()?;
    }
    if matches!(spec.work, Work::Shell | Work::Exec | Work::Sftp) {
        enter_home(account);
    }
    if spec.work == Work::Shell && spec.terminal {
        surroundings::greet(&account.home);
    }
    let environment = environment(account, spec, by_pam);
    match spec.work {
        Work::Sftp => Ok(crate::sftp::serve_stdio(spec.hash_files)),
        Work::Shell => Err(exec(account, None, environment)),
        Work::Exec => Err(exec(account, Some(command), environment)),
        Work::Account => Err(HelperError::NotAsked),
        Work::Connect => Ok(socket::give_connected(Path::new(command))?),
        Work::Listen => Ok(socket::give_listening(Path::new(command))?),
    }
}

/// Turns into the account's shell; comes back only to say why not.
fn exec(account: &Account, command: Option<&OsStr>, environment: Variables) -> HelperError {
    let mut shell = Command::new(&account.shell);
    shell.env_clear().envs(environment);
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
    HelperError::Shell { account: account.name.clone(), shell: account.shell.clone(), error }
}

/// As sshd: complains, and goes on in `/`.
fn enter_home(account: &Account) {
    if let Err(error) = std::env::set_current_dir(&account.home) {
        let _ =
            writeln!(io::stderr(), "Could not chdir to home directory {}: {error}", account.home.display());
        let _ = std::env::set_current_dir("/");
    }
}

type Variables = Vec<(OsString, OsString)>;

/// The account's own, which PAM does not set: runuser has set them, for programs that it runs.
const ACCOUNTS: [&str; 4] = ["USER", "LOGNAME", "HOME", "SHELL"];

/// The variables of a login; later ones count. What the client sent comes first, so that it cannot replace what the account has;
/// then what PAM's modules have set, except where it would hide the account or the connection.
fn environment(account: &Account, spec: &Spec, by_pam: Variables) -> Variables {
    let path = if account.uid == 0 { ROOT_PATH } else { USER_PATH };
    let mut variables: Variables =
        spec.environment.iter().map(|(name, value)| (name.into(), value.into())).collect();
    let of_session: Vec<OsString> =
        variables.iter().map(|(name, _)| name.clone()).filter(|name| is_sessions(name)).collect();
    variables.extend(
        [
            ("USER", OsString::from(&account.name)),
            ("LOGNAME", OsString::from(&account.name)),
            ("HOME", account.home.clone().into_os_string()),
            ("PATH", path.into()),
            ("SHELL", account.shell.clone().into_os_string()),
            ("MAIL", format!("/var/mail/{}", account.name).into()),
        ]
        .map(|(name, value)| (name.into(), value)),
    );
    let fixed =
        |name: &OsString| ACCOUNTS.iter().any(|own| name == own) || name == SPEC || of_session.contains(name);
    variables.extend(by_pam.into_iter().filter(|(name, _)| !fixed(name)));
    variables
}

/// Whether a variable is about the connection, and not a wish of the client's.
fn is_sessions(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.starts_with(b"SSH_")
        || name.starts_with(b"SALLYPORT_")
        || [&b"TERM"[..], b"DISPLAY", b"XAUTHORITY"].contains(&name)
}

/// Whether the machine takes no logins at the moment; says why, as the file does.
fn nologin(file: &Path) -> bool {
    let reason = closed_to_logins(file);
    if let Some(reason) = &reason {
        let _ = io::stderr().write_all(reason.as_bytes());
    }
    reason.is_some()
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
                ("SSH_TTY".to_owned(), "/dev/pts/7".to_owned()),
            ],
            hash_files: false,
            keeper_for: None,
            pam_session: false,
            spares_orphans: false,
            pam: None,
        };
        let read_back: Spec = serde_json::from_str(&spec.to_text()).unwrap();
        let last = |by_pam: &[(&str, &str)]| -> std::collections::BTreeMap<String, OsString> {
            let by_pam = by_pam.iter().map(|(name, value)| (name.into(), value.into())).collect();
            let variables = environment(&account, &read_back, by_pam).into_iter();
            variables.map(|(name, value)| (name.into_string().unwrap(), value)).collect()
        };
        let variables = last(&[]);
        assert_eq!(variables["PATH"], if account.uid == 0 { ROOT_PATH } else { USER_PATH });
        assert_eq!(variables["LANG"], "C.UTF-8");
        assert_eq!(variables["HOME"], account.home);
        // PAM may say more than the client, and less than the account and the connection.
        let by_pam = [("PATH", "/opt/bin"), ("LANG", "de"), ("HOME", "/"), ("SSH_TTY", "x"), ("EXTRA", "1")];
        let variables = last(&by_pam);
        assert_eq!(variables["PATH"], "/opt/bin");
        assert_eq!(variables["LANG"], "de");
        assert_eq!(variables["EXTRA"], "1");
        assert_eq!(variables["HOME"], account.home);
        assert_eq!(variables["SSH_TTY"], "/dev/pts/7");
    }

    #[test]
    fn nologin_is_told_by_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("nologin");
        assert!(!nologin(&file));
        std::fs::write(&file, "down for repairs\n").unwrap();
        assert!(nologin(&file));
        assert_eq!(closed_to_logins(&file).unwrap(), "down for repairs\n");
        std::fs::write(&file, "").unwrap();
        assert!(closed_to_logins(&file).unwrap().contains("/etc/nologin"));
    }

    #[test]
    fn a_process_that_is_told_nothing_explains_itself() {
        let error = become_session(&[]).unwrap_err().to_string();
        assert!(error.contains("sallyport ssh"), "{error}");
    }
}
