//! What a node of a cluster test starts for each session, in place of the `sallyport` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == sallyport_ssh::helper::ARGUMENT => sallyport_ssh::helper::main(arguments),
        // `cargo test` runs it as a test.
        _ => ExitCode::SUCCESS,
    }
}
