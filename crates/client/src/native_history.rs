//! Nodes that were reached natively, on disk: one that is said to know SSH alone from one day to the next is told to the
//! person, because a proxy says it, and the proxy may have been taken over.

use std::fs;

use super::profile::{Stored, write_private};
use crate::error::{Error, Result};

/// A line for each node, as it was named; the one that was met last is last.
const FILE: &str = "met_natively";
/// Nodes that are remembered; the oldest go first.
const MOST: usize = 1024;
/// Of a name; longer ones are not remembered.
const LONGEST_BYTES: usize = 256;

fn read(stored: &Stored) -> Vec<String> {
    let text = fs::read_to_string(stored.directory.join(FILE)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// A memory that cannot be written costs the warning, and not the connection.
fn write(stored: &Stored, names: &[String]) {
    let mut text = names.join("\n");
    text.push('\n');
    if let Err(error) = write_private(&stored.directory.join(FILE), &text) {
        tracing::debug!(error = error.told(), "nodes that were met are not remembered");
    }
}

/// The node has proven itself natively.
pub fn natively(stored: &Stored, node: &str) {
    let mut names = read(stored);
    if names.iter().any(|name| name == node) || node.len() > LONGEST_BYTES || node.contains('\n') {
        return;
    }
    names.push(node.to_owned());
    let surplus = names.len().saturating_sub(MOST);
    names.drain(..surplus);
    write(stored, &names);
}

/// The node is said to know SSH alone, before anything of the person's went there.
///
/// # Errors
/// When it was reached natively before. It is forgotten with that, so that a person who knows why goes on by SSH.
pub fn by_ssh(stored: &Stored, node: &str) -> Result {
    if forget(stored, node) { Err(changed(node)) } else { Ok(()) }
}

/// What there is to say of a node that was reached natively and is said to know SSH alone now.
pub fn changed(node: &str) -> Error {
    Error::NoLongerNative { node: node.to_owned() }
}

/// The person is told that the node has changed. Says whether it was remembered.
pub fn forget(stored: &Stored, node: &str) -> bool {
    let mut names = read(stored);
    let before = names.len();
    names.retain(|name| name != node);
    let was_met = names.len() < before;
    if was_met {
        write(stored, &names);
    }
    was_met
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn a_node_that_was_met_natively_is_not_reached_otherwise_without_a_word() {
        let directory = tempfile::tempdir().unwrap();
        let stored = Stored::of_test(directory.path());
        by_ssh(&stored, "web-1").unwrap();
        natively(&stored, "web-1");
        natively(&stored, "web-2");
        let error = by_ssh(&stored, "web-1").unwrap_err().to_string();
        assert!(
            error.contains("web-1 does not speak the native protocol any more, so the proxy says"),
            "{error}"
        );
        // It was said.
        by_ssh(&stored, "web-1").unwrap();
        by_ssh(&stored, "web-2").unwrap_err();
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let stored = Stored::of_test(directory.path());
        write(&stored, &(0..MOST).map(|number| format!("node-{number}")).collect::<Vec<_>>());
        natively(&stored, "one-more");
        natively(&stored, &"x".repeat(LONGEST_BYTES + 1));
        natively(&stored, "two\nlines");
        let names = read(&stored);
        assert_eq!((names.len(), names[0].as_str()), (MOST, "node-1"));
    }
}
