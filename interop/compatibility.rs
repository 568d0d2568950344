//! This release beside the one before it: agents, proxies and clients are not updated at one moment.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sallyport_testing::postgres::Postgres;
use sallyport_testing::{Extras, Programs, REGISTERED, Sites, SshRoute, Testbed};

use crate::PROGRAM;
use crate::support::wait_for;

/// Names the program of the release before.
const PREVIOUS: &str = "SALLYPORT_PREVIOUS";

fn previous() -> PathBuf {
    let named = std::env::var_os(PREVIOUS).map(PathBuf::from);
    named.filter(|path| path.is_file()).unwrap_or_else(|| {
        panic!("{PREVIOUS} names no program: build the release before (git worktree add), and set it to its sallyport")
    })
}

fn run(what: &str, mut command: Command) -> Output {
    let ended = command.output().unwrap_or_else(|error| panic!("{what}: {error}"));
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{what}: {}\n{said}", ended.status);
    ended
}

/// Every way there is from a client to a node, a registered server and a database.
fn everything_works(programs: &Programs) {
    let postgres = Postgres::start().unwrap();
    let extras = Extras { registered: true, postgres: Some(&postgres), ..Extras::default() };
    let bed = Testbed::start_of(programs, &Sites::default(), extras, &|_| {}).unwrap();
    let said = |what: &str, mut command: Command, arguments: &[&str]| {
        command.args(arguments);
        String::from_utf8(run(what, command).stdout).unwrap()
    };
    for route in [SshRoute::Helper, SshRoute::ProxyCommand, SshRoute::Jump] {
        assert_eq!(said(&format!("ssh, {route:?}"), bed.ssh(route), &["echo", "there"]), "there\n");
    }
    for by_helper in [true, false] {
        let what =
            |way: &str| format!("{way}, {}", if by_helper { "by the helper daemon" } else { "without" });
        assert_eq!(said(&what("sallyport ssh"), bed.own_ssh(by_helper), &["echo", "there"]), "there\n");
        let registered = bed.own_ssh_to(REGISTERED, by_helper);
        assert_eq!(said(&what("a registered server"), registered, &["echo", "there"]), "there\n");
        let psql = bed.psql(&postgres, by_helper, &["-XAtc", "select 6 * 7"]);
        assert_eq!(said(&what("psql"), psql, &[]), "42\n");
    }
    // What came of it at the authority.
    let at_authority = |arguments: &[&str]| {
        let mut command = Command::new(&programs.authority);
        command.args(arguments).arg("--data-dir").arg(bed.directory().join("authority"));
        String::from_utf8(run(&arguments.join(" "), command).stdout).unwrap()
    };
    // Five sessions of the node and two with the database; what runs at the registered server is not recorded. The last are on
    // their way still.
    wait_for("the recordings of all sessions", || {
        let recordings = at_authority(&["recordings", "ls", "--format", "json"]);
        let recordings: serde_json::Value = serde_json::from_str(&recordings).unwrap();
        let complete = |one: &&serde_json::Value| one["state"] == "complete";
        (recordings.as_array().unwrap().iter().filter(complete).count() == 7).then_some(())
    });
    run("the audit log", bed.cluster.admin(&["audit", "verify"]));
}

#[test]
fn the_release_before_works_with_this_one() {
    let (new, old) = (Path::new(PROGRAM), previous());
    let new = || Programs::all(new);
    let old = || Programs::all(&old);
    // A cluster is updated from the authority outwards; each of its parts may be the last that is not.
    everything_works(&Programs { node: old().node, client: old().client, ..new() });
    everything_works(&Programs { node: old().node, ..new() });
    everything_works(&Programs { client: old().client, ..new() });
    everything_works(&Programs { proxy: old().proxy, node: old().node, client: old().client, ..new() });
    // The other way round.
    everything_works(&Programs { node: new().node, client: new().client, ..old() });
    everything_works(&Programs { client: new().client, ..old() });
}
