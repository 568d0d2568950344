//! The browser of the person at the terminal.

use std::process::{Command, Stdio};

use sallyport_access::text::Foreign;

use crate::ui;

/// What this machine calls itself, for the page to show.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Shows an address, and opens it where there is a browser here that can be asked.
pub(crate) fn open(address: &str, what: &str) {
    let opened = show(address);
    let how = if opened { "If your browser does not show it, open" } else { "Open in a browser" };
    ui::say(format!("{how} this address to {what}:\n  {}", Foreign::new(address)));
}

/// Opens an address where there is a browser here that can be asked; whether there is one.
pub(crate) fn show(address: &str) -> bool {
    commands(address).into_iter().any(|command| start(&command))
}

/// Whether there is a desktop here, so that a browser can be expected.
pub(crate) fn is_here() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    cfg!(target_os = "macos") || ["BROWSER", "DISPLAY", "WAYLAND_DISPLAY"].into_iter().any(set)
}

/// Shows the code that the page asks for.
pub(crate) fn code(when: &str, code: &str) {
    ui::say(format!("{when} type this code there: {}", Foreign::new(code)));
}

/// The commands that may open an address: those of BROWSER, else the system's. No shell has a part in it.
fn commands(address: &str) -> Vec<Vec<String>> {
    commands_of(std::env::var("BROWSER").ok().as_deref(), address)
}

fn commands_of(browser: Option<&str>, address: &str) -> Vec<Vec<String>> {
    let Some(browsers) = browser.filter(|browsers| !browsers.trim().is_empty()) else {
        let system = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
        return vec![vec![system.to_owned(), address.to_owned()]];
    };
    let command = |browser: &str| {
        let mut words: Vec<String> =
            browser.split_whitespace().map(|word| word.replace("%s", address)).collect();
        if !browser.contains("%s") && !words.is_empty() {
            words.push(address.to_owned());
        }
        words
    };
    browsers.split(':').map(command).filter(|words| !words.is_empty()).collect()
}

/// Starts a command that is not waited for; whether there is one.
fn start(words: &[String]) -> bool {
    let Some((program, arguments)) = words.split_first() else { return false };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_one_argument_of_the_persons_browser() {
        let address = "https://a.example/login#x;y";
        assert_eq!(commands_of(Some("firefox --new-tab %s"), address), [["firefox", "--new-tab", address]]);
        assert_eq!(commands_of(Some("w3m:lynx"), address), [["w3m", address], ["lynx", address]]);
        for none in [None, Some("  ")] {
            assert_eq!(commands_of(none, address)[0][1], address);
        }
    }
}
