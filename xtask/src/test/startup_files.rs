//! The start-up files of the account's shells, kept out of the tests.
//!
//! Sessions of the tests run as the account that runs the tests. What its files print, how long they take and which
//! locks they wait for is not what is tested, and a shell that a test kills must not leave such a lock behind.

use std::ffi::OsString;
use std::process::{Command, Stdio};

/// Mounts nothing over each of the account's start-up files that is there, then runs its arguments.
const HIDE: &str = r#"
for name in .bashrc .profile .bash_profile .bash_login .zshenv .zprofile .zshrc .ssh/rc .ssh/environment; do
    if [ -f "$HOME/$name" ]; then mount --bind /dev/null "$HOME/$name" || exit 1; fi
done
exec "$@"
"#;

/// Set where the files are hidden already.
const HIDDEN: &str = "SALLYPORT_TEST_STARTUP_FILES_HIDDEN";

/// Runs this program again where the files are hidden, once, and gives its outcome; nothing where that may not be.
pub(crate) fn run_without_them(arguments: &[String]) -> Result<Option<Result<(), String>>, String> {
    if std::env::var_os(HIDDEN).is_some() {
        return Ok(None);
    }
    if !may_hide() {
        println!("sessions of these tests run your shell's start-up files: slow or talking ones fail tests");
        return Ok(None);
    }
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let status = hiding(program)
        .arg("test")
        .args(arguments)
        .env(HIDDEN, "1")
        .status()
        .map_err(|error| format!("cannot run unshare: {error}"))?;
    Ok(Some(if status.success() { Ok(()) } else { Err("see above".to_owned()) }))
}

/// The program, in a mount namespace of its own where the account's shells have no start-up files.
fn hiding(program: impl Into<OsString>) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", HIDE, "sh"]).arg(program.into());
    command
}

/// Whether this account may make mount namespaces: root may, outside of most containers.
fn may_hide() -> bool {
    hiding("true")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn startup_files_are_hidden_or_nothing_is_run() {
        let shown = hiding("sh").args(["-c", "cat \"$HOME/.bashrc\"; true"]).output().unwrap();
        assert_eq!(shown.stdout, b"");
        assert_eq!(shown.status.success(), may_hide());
    }
}
