//! The session process by itself, for this crate's tests. The real one is the `sallyport` binary, which starts itself
//! again; a test runner cannot.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|first| first != sallyport_ssh::helper::ARGUMENT) {
        return ExitCode::from(2);
    }
    sallyport_ssh::helper::main(arguments)
}
