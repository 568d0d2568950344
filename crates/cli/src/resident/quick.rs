//! The short way of `sallyport proxy ssh`: hand standard input and output to the resident helper and wait for the end.
//!
//! Every `ssh` waits for this. So it comes before the command line is understood as a whole, before cryptography is
//! chosen and before there is a runtime; it reads no profile, and whatever is out of the ordinary is left to the long
//! way, which says the same in the same words.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::fs::FileType;

use super::door::{self, Door};
use super::{Setting, VARIABLE};
use crate::error::Exit;
use crate::ssh::target::{self, Target};
use crate::{Global, profile, ui};

/// Does what the command line asks, if it is a plain `proxy ssh` and a helper can take it. `None`: go the long way.
pub(crate) fn proxy_ssh(arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let (global, target) = understand(arguments, |name| std::env::var_os(name))?;
    let Setting::On { idle } = Setting::of(std::env::var_os(VARIABLE).as_deref()) else { return None };
    if !can_be_handed_over(std::io::stdin()) || !can_be_handed_over(std::io::stdout()) {
        return None;
    }
    let proxy = profile::current_proxy(&global).ok()?;
    let directory = profile::directory_of(&global, &proxy).ok()?;
    let door = Door { directory: &directory, proxy: &proxy, idle };
    run(&door, &target)
}

fn run(door: &Door<'_>, target: &Target) -> Option<ExitCode> {
    let login = target.login.as_deref().unwrap_or_default();
    let (input, output) = (std::io::stdin(), std::io::stdout());
    let taken = door.open(&target.host, login, [input.as_fd(), output.as_fd()])?;
    Some(match door::wait(taken) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            ui::say(error.to_string());
            error.exit(Exit::Connection).exit_code()
        }
    })
}

/// Pipes and sockets only: a terminal or a file is shared with others, who would notice that it does not block.
fn can_be_handed_over(descriptor: impl AsFd) -> bool {
    rustix::fs::fstat(descriptor)
        .is_ok_and(|stat| matches!(FileType::from_raw_mode(stat.st_mode), FileType::Fifo | FileType::Socket))
}

/// Reads `[--home DIR] [--proxy HOST:PORT] proxy ssh TARGET`, as `sallyport config` writes it. `None` for anything
/// more.
fn understand(
    arguments: impl Iterator<Item = OsString>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Option<(Global, Target)> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    // A log is written where the work is done, and the helper has chosen its cryptography already.
    if set("SALLYPORT_LOG").is_some() || set("SALLYPORT_CRYPTO").is_some() {
        return None;
    }
    let mut home = set("SALLYPORT_HOME").map(PathBuf::from);
    let mut proxy = set("SALLYPORT_PROXY").map(OsString::into_string).transpose().ok()?;
    let mut words = Vec::new();
    let mut arguments = arguments.skip(1);
    while let Some(argument) = arguments.next() {
        match argument.to_str()? {
            "--home" => home = Some(PathBuf::from(arguments.next()?)),
            "--proxy" => proxy = Some(arguments.next()?.into_string().ok()?),
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
    Some((Global { home, proxy, log: None }, target))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &[&str], variables: &[(&str, &str)]) -> Option<(Option<PathBuf>, Option<String>, String)> {
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        };
        let (global, target) = understand(line.iter().map(OsString::from), variable)?;
        Some((global.home, global.proxy, format!("{}@{}", target.login.unwrap_or_default(), target.host)))
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
        assert_eq!(read(&full, &variables), some(Some("/a b"), Some("h:1")));
        assert_eq!(read(&short, &[("SALLYPORT_LOG", "")]), some(None, None));
        for variables in [("SALLYPORT_LOG", "debug"), ("SALLYPORT_CRYPTO", "preset")] {
            assert_eq!(read(&short, &[variables]), None);
        }
        for line in [
            &["sallyport", "proxy", "ssh"][..],
            &["sallyport", "proxy", "ssh", "--help"],
            &["sallyport", "proxy", "ssh", "--cluster", "c", "root@web-1"],
            &["sallyport", "--log", "debug", "proxy", "ssh", "root@web-1"],
            &["sallyport", "proxy", "ssh", "root@web-1", "more"],
            &["sallyport", "proxy", "ssh", "root@"],
            &["sallyport", "ssh", "root@web-1"],
            &["sallyport", "--home"],
            &["sallyport", "--home", "", "proxy", "ssh", "root@web-1"],
        ] {
            assert_eq!(read(line, &[]), None, "{line:?}");
        }
    }
}
