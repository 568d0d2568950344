//! The beginning of SSH, as far as the list of what a server offers.

use std::io::{ErrorKind, Read, Write};
use std::time::Instant;

use sallyport_ssh::capabilities::{Reader, SshOffer};

use crate::LabError;

/// Who we say we are.
pub(crate) const GREETING: &[u8] = b"SSH-2.0-SallyportLab\r\n";

/// Says who we are.
pub(crate) fn greet(face: &str, stream: &mut impl Write) -> Result<(), LabError> {
    stream
        .write_all(GREETING)
        .map_err(|error| LabError::Connection(format!("{face}: it does not take our greeting: {error}")))
}

pub(crate) fn read_offer(face: &str, stream: &mut impl Read) -> Result<SshOffer, LabError> {
    let mut reader = Reader::default();
    let mut buffer = [0; 4096];
    let (began, mut bytes) = (Instant::now(), 0);
    loop {
        // What a socket calls WouldBlock or TimedOut is nothing to tell a person.
        let lost = |error: std::io::Error| {
            let late = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
            LabError::Connection(if late {
                let seconds = began.elapsed().as_secs_f64();
                format!(
                    "{face} speaks SSH and did not say what it offers within {seconds:.1} s ({bytes} bytes)"
                )
            } else {
                format!("{face}: the connection was lost before its algorithms: {error}")
            })
        };
        let read = stream.read(&mut buffer).map_err(lost)?;
        bytes += read;
        if read == 0 {
            return Err(LabError::Connection(format!(
                "{face} ended the connection before it offered anything"
            )));
        }
        if let Some(offer) = reader.read(buffer.get(..read).unwrap_or_default()) {
            return offer.map_err(|error| LabError::Connection(format!("{face}: {error}")));
        }
    }
}
