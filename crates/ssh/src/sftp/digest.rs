//! The SHA-256 of a file that passes by: taken from the bytes themselves while they come in order, which is what clients
//! do; else the file is read once more at its end, if it is not too large.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use sallyport_sal::hash::Sha256;

/// Largest file that is read once more: the client waits for it.
pub(crate) const MAX_REREAD_BYTES: u64 = 64 << 20;
const BLOCK_BYTES: usize = 256 * 1024;

/// The hash of a file so far.
pub(super) struct Digest {
    /// None when bytes came out of order.
    state: Option<Sha256>,
    next: u64,
}

/// What is known of a file's content when it is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    /// The SHA-256 of all of it, in hexadecimal.
    Known(String),
    /// Why not.
    Unknown(&'static str),
}

impl Digest {
    pub(super) fn new() -> Self {
        Self { state: Some(Sha256::new()), next: 0 }
    }

    /// These bytes passed, at this place of the file.
    pub(super) fn passed(&mut self, offset: u64, bytes: &[u8]) {
        match &mut self.state {
            Some(state) if offset == self.next => {
                state.update(bytes);
                self.next += bytes.len() as u64;
            }
            _ => self.state = None,
        }
    }

    /// The file is closed: `read` and `written` bytes have passed, and it has `size` now.
    pub(super) fn finish(self, file: &File, read: u64, written: u64, size: u64) -> Content {
        if written == 0 && read < size {
            return Content::Unknown("only a part was read");
        }
        match self.state {
            // Either all was read or all was written; both of one file can mean anything.
            Some(state) if self.next == size && (read == 0 || written == 0) => {
                Content::Known(hexadecimal(&state.finish()))
            }
            _ if size > MAX_REREAD_BYTES => Content::Unknown("too large to be read once more"),
            _ => match again(file, size) {
                Ok(hash) => Content::Known(hash),
                Err(_) => Content::Unknown("it cannot be read once more"),
            },
        }
    }
}

/// Reads the file from its beginning.
fn again(file: &File, size: u64) -> io::Result<String> {
    // It may have been opened to write only. By its descriptor: its name may be another file's by now.
    let file = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let mut hash = Sha256::new();
    let mut block = vec![0; BLOCK_BYTES];
    let mut offset = 0;
    while offset < size {
        let count = file.read_at(&mut block, offset)?;
        if count == 0 {
            break;
        }
        hash.update(block.get(..count).unwrap_or_default());
        offset += count as u64;
    }
    Ok(hexadecimal(&hash.finish()))
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
