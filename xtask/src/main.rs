//! The project's own chores (`cargo xtask`): the whole test run, what the tests need, checks of layers, API and features, fuzzing.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a chore talks to the person who runs it")]

mod deny;
mod dev;
mod features;
mod fuzz;
mod glossary;
mod keys;
mod layers;
mod loop_times;
mod map;
mod metadata;
mod setup;
mod structure;
mod surface;
mod test;
mod web;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask dev [OPTIONS]   build, and run a cluster with a user, a node and a database until Ctrl-C, to try things on
cargo xtask features [NAME] check that every feature builds
cargo xtask setup [--measure]
                            only install what the tests need; with --measure, what the whole measurements need as well
cargo xtask keys [SUITES]   run the end-to-end tests under each suite and count the keys they make
cargo xtask check-layers    fail on a dependency that the architecture forbids, on circles, long files, an old map and a long glossary
cargo xtask map             write the map of crates and modules in ARCHITECTURE.md, which check-layers compares
cargo xtask circles         show the files that take from each other in circles, and what
cargo xtask check-surface   fail on a method of the API whose fields, bounds and tests docs/surface.md does not name
cargo xtask took STEP SECONDS [--record]
                            say what a step took beside what xtask/loop.txt has of it
cargo xtask web             check and test the web front end, and that web/dist comes from its sources
cargo xtask deny            fail on a banned crate or licence (the rules of deny.toml)
";

fn main() -> ExitCode {
    // The chores' paths are from the checkout's top, wherever they are called from. Cargo names the checkout when it runs them:
    // the one they were built in may be another, where checkouts share a target directory.
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let top = std::path::Path::new(&here).join("..");
    if let Err(error) = std::env::set_current_dir(&top) {
        eprintln!("xtask: cannot go to the project's directory {}: {error}", top.display());
        return ExitCode::FAILURE;
    }
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    let outcome = match command.as_str() {
        "test" => test::run(&rest),
        "dev" => dev::run(&rest),
        "features" => features::run(&rest),
        "fuzz" => fuzz::run(&rest),
        "setup" => setup::chore(&rest),
        "keys" => keys::run(&rest),
        "check-layers" => layers::run(),
        "took" => loop_times::run(&rest),
        "map" => layers::map(),
        "circles" => structure::show(),
        "check-surface" => surface::run(),
        "deny" => deny::run(),
        "web" => web::run(),
        _ => {
            eprint!("{}{}{USAGE}", test::USAGE, fuzz::USAGE);
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("xtask {command}: {problem}");
            ExitCode::FAILURE
        }
    }
}
