//! The short way of `sallyport proxy ssh`: hand standard input and output to the helper daemon and wait for the end.
//!
//! Every `ssh` waits for this. So it comes before the command line is understood as a whole, before cryptography is
//! chosen and before there is a runtime; it reads no profile, and whatever is out of the ordinary is left to the long
//! way, which says the same in the same words.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::fs::FileType;

use crate::error::{CliError, CliResult, Context, Exit};
use crate::factor::Here;
use crate::ssh::target::{self, Target};
use crate::ui;
use sallyport_client::native::Protocol;
use sallyport_client::profile::{Profiles, has_ssh_key};
use sallyport_client::session_factor::Asker;
use sallyport_helper::endpoint::{self, Endpoint, Heard, Waiting};
use sallyport_helper::request::Request;
use sallyport_helper::setting::Setting;

/// Does what the command line asks, if it is a plain `proxy ssh` and a helper can take it. `None`: go the long way.
pub(crate) fn take(arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let Asked { profiles, target, native } = understand(arguments, |name| std::env::var_os(name))?;
    let Setting::On { idle } = Setting::here() else { return None };
    if !can_be_handed_over(std::io::stdin()) || !can_be_handed_over(std::io::stdout()) {
        return None;
    }
    let proxy = profiles.current_proxy().ok()?;
    let directory = profiles.directory_of(&proxy).ok()?;
    let endpoint = Endpoint { directory: &directory, proxy: &proxy, idle };
    let Target { login, host: node, .. } = target;
    let login = login.unwrap_or_default();
    // The account's name is what the node is told; where none is known yet, SSH itself says it.
    let relay = native && !login.is_empty() && Protocol::wanted().ok()?.may_be_native(&login);
    // The proxy may ask for a signature of the user's own key, which the agent of this program gives and not that of the helper.
    if !relay && !has_ssh_key(&directory) {
        return None;
    }
    run(&endpoint, &if relay { Request::Relay { node, login } } else { Request::Ssh { node, login } })
}

fn run(endpoint: &Endpoint<'_>, request: &Request) -> Option<ExitCode> {
    let (input, output) = (std::io::stdin(), std::io::stdout());
    let taken = endpoint.ask(request, Here.can_ask(), [input.as_fd(), output.as_fd()])?;
    let ended = match endpoint::wait(taken) {
        Heard::Ended(ended) => ended.map_err(CliError::from),
        Heard::Asked(waiting) => ask(waiting),
    };
    Some(match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            ui::say(error.to_string());
            error.exit(Exit::Connection).exit_code()
        }
    })
}

/// Asks the person what the helper wants to know. From here on there is time for a runtime.
fn ask(waiting: Waiting) -> CliResult {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.doing("start the asynchronous runtime")?;
    let ended = runtime.block_on(waiting.to_the_end(Some(&Here)));
    runtime.shutdown_background();
    Ok(ended?)
}

/// Pipes and sockets only: a terminal or a file is shared with others, who would notice that it does not block.
fn can_be_handed_over(descriptor: impl AsFd) -> bool {
    rustix::fs::fstat(descriptor)
        .is_ok_and(|stat| matches!(FileType::from_raw_mode(stat.st_mode), FileType::Fifo | FileType::Socket))
}

/// What a command line asks for.
struct Asked {
    profiles: Profiles,
    target: Target,
    native: bool,
}

/// Reads `[--home DIR] [--proxy HOST:PORT] proxy ssh [--native] [--] TARGET`, as `sallyport config` writes it. `None` for
/// anything more.
fn understand(
    arguments: impl Iterator<Item = OsString>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Option<Asked> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    // A log is written where the work is done, and the helper has chosen its cryptography already.
    if set("SALLYPORT_LOG").is_some() || set("SALLYPORT_CRYPTO").is_some() {
        return None;
    }
    let mut home = set("SALLYPORT_HOME").map(PathBuf::from);
    let mut proxy = set("SALLYPORT_PROXY").map(OsString::into_string).transpose().ok()?;
    let (mut words, mut native) = (Vec::new(), false);
    let mut arguments = arguments.skip(1);
    while let Some(argument) = arguments.next() {
        match argument.to_str()? {
            "--home" => home = Some(PathBuf::from(arguments.next()?)),
            "--proxy" => proxy = Some(arguments.next()?.into_string().ok()?),
            "--native" if words.len() == 2 => native = true,
            // Behind the end of options is the target, whatever it looks like.
            "--" if words.len() == 2 => words.push(arguments.next()?.into_string().ok()?),
            option if option.starts_with('-') => return None,
            _ => words.push(argument.into_string().ok()?),
        }
        if words.len() > 3 {
            return None;
        }
    }
    let [first, second, target] = words.as_slice() else { return None };
    if first != "proxy" || second != "ssh" {
        return None;
    }
    let target = target::parse(target).ok()?;
    if home.as_deref().is_some_and(|home| home == Path::new("")) {
        return None;
    }
    Some(Asked { profiles: Profiles { home, proxy }, target, native })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn understood(line: &[&str], variables: &[(&str, &str)]) -> Option<Asked> {
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        };
        understand(line.iter().map(OsString::from), variable)
    }

    fn read(line: &[&str], variables: &[(&str, &str)]) -> Option<(Option<PathBuf>, Option<String>, String)> {
        let Asked { profiles, target, .. } = understood(line, variables)?;
        Some((profiles.home, profiles.proxy, format!("{}@{}", target.login.unwrap_or_default(), target.host)))
    }

    #[test]
    fn what_config_writes_is_understood_and_nothing_else() {
        let some = |home: Option<&str>, proxy: Option<&str>| {
            Some((home.map(PathBuf::from), proxy.map(str::to_owned), "root@web-1.c".to_owned()))
        };
        let full = ["sallyport", "--home", "/a b", "--proxy", "h:1", "proxy", "ssh", "root@web-1.c:22"];
        assert_eq!(read(&full, &[]), some(Some("/a b"), Some("h:1")));
        let short = ["sallyport", "proxy", "ssh", "root@web-1.c:22"];
        assert_eq!(read(&short, &[]), some(None, None));
        let variables = [("SALLYPORT_HOME", "/e"), ("SALLYPORT_PROXY", "e:1")];
        assert_eq!(read(&short, &variables), some(Some("/e"), Some("e:1")));
        let native = ["sallyport", "--proxy", "h:1", "proxy", "ssh", "--native", "root@web-1.c:22"];
        assert_eq!(read(&native, &[]), some(None, Some("h:1")));
        let written = ["sallyport", "--proxy", "h:1", "proxy", "ssh", "--native", "--", "root@web-1.c:22"];
        assert_eq!(read(&written, &[]), some(None, Some("h:1")));
        assert!(understood(&written, &[]).unwrap().native);
        assert!(understood(&native, &[]).unwrap().native && !understood(&full, &[]).unwrap().native);
        assert_eq!(read(&full, &variables), some(Some("/a b"), Some("h:1")));
        assert_eq!(read(&short, &[("SALLYPORT_LOG", "")]), some(None, None));
        for variables in [("SALLYPORT_LOG", "debug"), ("SALLYPORT_CRYPTO", "preset")] {
            assert_eq!(read(&short, &[variables]), None);
        }
        for line in [
            &["sallyport", "proxy", "ssh"][..],
            &["sallyport", "proxy", "ssh", "--help"],
            &["sallyport", "proxy", "ssh", "--cluster", "c", "root@web-1"],
            &["sallyport", "proxy", "--native", "ssh", "root@web-1"],
            &["sallyport", "--log", "debug", "proxy", "ssh", "root@web-1"],
            &["sallyport", "proxy", "ssh", "root@web-1", "more"],
            &["sallyport", "proxy", "ssh", "--", "root@web-1", "more"],
            &["sallyport", "proxy", "ssh", "--"],
            &["sallyport", "--", "proxy", "ssh", "root@web-1"],
            &["sallyport", "proxy", "ssh", "--", "--home=/x"],
            &["sallyport", "proxy", "ssh", "root@"],
            &["sallyport", "ssh", "root@web-1"],
            &["sallyport", "--home"],
            &["sallyport", "--home", "", "proxy", "ssh", "root@web-1"],
        ] {
            assert_eq!(read(line, &[]), None, "{line:?}");
        }
    }
}
