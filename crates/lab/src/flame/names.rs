//! Whether a program has the names of its functions, without which all samples are of unknown ones.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use sallyport_bench::AtFile;

use crate::LabError;

/// `SHT_SYMTAB`: the section with the names, which `strip` removes. Those for dynamic linking are another one.
const SYMBOLS: u32 = 2;

/// Fails for a program without names.
///
/// # Errors
/// When there are none, with the build that has them, or when the program cannot be read.
pub(super) fn required(program: &Path) -> Result<(), LabError> {
    if found(&File::open(program).at("open", program)?).at("read", program)? {
        return Ok(());
    }
    Err(LabError::Failed {
        what: format!("looking at the functions of {}", program.display()),
        said: "this build has no names of functions, as a release; build one that has them with \
               `cargo build --profile profiling --package sallyport-cli --package sallyport-lab`, and run \
               target/profiling/sallyport lab flame"
            .to_owned(),
    })
}

/// Looks for the section in the table of a 64-bit ELF file of this machine's byte order. Any other file may have names, for all
/// that can be said of it.
fn found(file: &File) -> io::Result<bool> {
    let mut header = [0; 64];
    if let Err(error) = file.read_exact_at(&mut header, 0) {
        return if error.kind() == io::ErrorKind::UnexpectedEof { Ok(true) } else { Err(error) };
    }
    let [0x7f, b'E', b'L', b'F', 2, ..] = header else { return Ok(true) };
    let [.., o0, o1, o2, o3, o4, o5, o6, o7, _, _, _, _, _, _, _, _, _, _, s0, s1, n0, n1, _, _] = header;
    let table = u64::from_ne_bytes([o0, o1, o2, o3, o4, o5, o6, o7]);
    let size = u64::from(u16::from_ne_bytes([s0, s1]));
    for at in 0..u64::from(u16::from_ne_bytes([n0, n1])) {
        let mut kind = [0; 4];
        // The type is the second word of an entry.
        match file.read_exact_at(&mut kind, table.saturating_add(at * size).saturating_add(4)) {
            Ok(()) if u32::from_ne_bytes(kind) == SYMBOLS => return Ok(true),
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(true),
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_program_that_was_stripped_has_no_names() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        required(&program).unwrap();
        assert!(Command::new("strip").arg(&program).status().unwrap().success());
        let said = required(&program).unwrap_err().to_string();
        assert!(said.contains("--profile profiling"), "{said}");
    }

    #[test]
    fn of_other_files_nothing_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        for text in [&b""[..], b"#!/bin/sh\n", &[0x7f; 100], b"\x7fELF\x02"] {
            std::fs::write(&file, text).unwrap();
            required(&file).unwrap();
        }
        required(&directory.path().join("none")).unwrap_err();
    }
}
