//! `sallyport lab`: hands over to `sallyport-lab`, a program of its own, which people who only connect need not have.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::error::{CliError, CliResult};
use crate::global::Global;

/// The program.
const LAB: &str = "sallyport-lab";
/// Another place of it.
const LAB_VARIABLE: &str = "SALLYPORT_LAB";
/// Tells the lab which `sallyport` started it: that is what it measures, where it is neither beside the lab nor on `PATH`, too.
pub const PROGRAM_VARIABLE: &str = "SALLYPORT_PROGRAM";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What the lab is to do; `sallyport lab --help` lists it.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

/// Becomes the lab, and returns only when that cannot be.
pub(crate) fn run(global: &Global, args: &Args) -> CliResult {
    let Some(lab) = program(LAB_VARIABLE, LAB) else {
        return Err(CliError::new(format!("{LAB} is neither beside this program nor on PATH"))
            .hint("cargo build --release --package sallyport-lab  (then put it beside sallyport)"));
    };
    let mut command = Command::new(&lab);
    command.args(&args.arguments);
    for (variable, value) in [
        ("SALLYPORT_HOME", global.home.as_ref().map(|home| home.as_os_str().to_owned())),
        ("SALLYPORT_PROXY", global.proxy.as_ref().map(OsString::from)),
        ("SALLYPORT_LOG", global.log.as_ref().map(OsString::from)),
    ] {
        if let Some(value) = value {
            command.env(variable, value);
        }
    }
    if let Ok(here) = std::env::current_exe() {
        command.env(PROGRAM_VARIABLE, here);
    }
    let error = command.exec();
    Err(CliError::new(format!("cannot run {}: {error}", lab.display())))
}

/// Where one of the project's programs is: where a variable says, beside this program, or on `PATH`.
#[must_use]
pub fn program(variable: &str, name: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
    let beside = || std::env::current_exe().ok()?.parent().map(|directory| directory.join(name));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|directory| directory.join(name));
    named.or_else(|| beside().into_iter().chain(on_path).find(|place| place.is_file()))
}
