//! The file service: SFTP version 3 (draft-ietf-secsh-filexfer-02) with OpenSSH's common extensions.
//!
//! It runs inside the session process, as the account, in plain blocking code on standard input and output: one process
//! a session, no runtime, no threads, and the kernel checks every access. Names are bytes, as Unix has them, never
//! forced into text. What it does to files it reports on standard error, one JSON object a line, for the recording and
//! the audit log: opening, closing (with the bytes moved), listing, and everything that changes a name or an attribute.
//! Looking at attributes is not reported.

mod attributes;
pub(crate) mod digest;
mod files;
pub mod observe;
mod packet;
pub(crate) mod passing;
mod system;

use std::io::{self, BufReader, Read, Write};
use std::process::ExitCode;

use crate::session::FileOperation;
use files::Files;
use packet::{Fields, Reply};

/// Serves the client on standard input and output until it closes; with `hash`, says what the files contain.
pub(crate) fn serve_stdio(hash: bool) -> ExitCode {
    let mut errors = io::stderr().lock();
    let report = |operation: FileOperation| {
        if let Ok(mut line) = serde_json::to_vec(&operation) {
            line.push(b'\n');
            // The reader of the reports has gone; then the client has as well.
            let _ = errors.write_all(&line);
        }
    };
    match serve(io::stdin().lock(), io::stdout().lock(), report, hash) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "file service: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Serves one client until it closes its side; with `hash`, reports what the files contain.
///
/// # Errors
/// The connection's, and [`io::ErrorKind::InvalidData`] for a client that does not keep to the protocol. Files left
/// open are closed and reported either way.
pub(crate) fn serve(
    input: impl Read,
    mut output: impl Write,
    report: impl FnMut(FileOperation),
    hash: bool,
) -> io::Result<()> {
    let mut input = BufReader::with_capacity(64 * 1024, input);
    let mut files = Files::new(report, hash);
    let result = serve_packets(&mut input, &mut output, &mut files);
    files.close_all();
    match result {
        // A client that goes is the ordinary end.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

fn serve_packets<F: FnMut(FileOperation)>(
    input: &mut impl Read,
    output: &mut impl Write,
    files: &mut Files<F>,
) -> io::Result<()> {
    let mut packet = Vec::new();
    let mut reply = Reply::new();
    while packet::read(input, &mut packet)? {
        let (kind, body) = packet.split_first().ok_or_else(|| packet::malformed("an empty packet"))?;
        files.answer(*kind, Fields::new(body), &mut reply)?;
        output.write_all(reply.bytes())?;
        output.flush()?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
mod tests;
