//! The content of a file that passes by, for its SHA-256: read along with by a proxy that has no file, only what the
//! client and the server say of it.

use sallyport_sal::hash::Sha256;

use super::digest::hexadecimal;

/// What has passed of one open file.
pub(super) struct Passing {
    /// None when bytes came out of order, or something else than reading and writing has changed the file.
    state: Option<Sha256>,
    next: u64,
    /// It was empty when it was opened.
    fresh: bool,
    /// The server has said that it ends where the bytes did.
    ended: bool,
}

/// What is known of a file's content when it is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Passed {
    /// All of it.
    Whole {
        /// Its SHA-256 in hexadecimal.
        sha256: String,
        /// Its bytes.
        size: u64,
    },
    /// Not known to be all: the recorder has to look how long the file is, and perhaps to read it.
    Look {
        /// The file.
        path: Vec<u8>,
        /// The SHA-256 of what has passed in order, from the beginning, and how much that is.
        beginning: Option<(String, u64)>,
    },
}

impl Passing {
    pub(super) fn new(fresh: bool) -> Self {
        Self { state: Some(Sha256::new()), next: 0, fresh, ended: false }
    }

    /// These bytes passed, at this place of the file.
    pub(super) fn passed(&mut self, offset: u64, bytes: &[u8]) {
        match &mut self.state {
            Some(state) if offset == self.next => {
                state.update(bytes);
                self.next += bytes.len() as u64;
                self.ended = false;
            }
            _ => self.state = None,
        }
    }

    /// Nothing is at this place of the file.
    pub(super) fn ends(&mut self, offset: u64) {
        self.ended |= offset == self.next;
    }

    /// What the file contains has changed in another way.
    pub(super) fn lost(&mut self) {
        self.state = None;
    }

    /// The file is closed; none when nothing was read or written.
    pub(super) fn finish(self, path: &[u8], read: u64, written: u64) -> Option<Passed> {
        if read + written == 0 {
            return None;
        }
        // Either all was read or all was written; both of one file can mean anything.
        let one_way = read == 0 || written == 0;
        let state = self.state.filter(|_| one_way).map(|state| hexadecimal(&state.finish()));
        let whole = if written == 0 { self.ended } else { self.fresh };
        Some(match state {
            Some(sha256) if whole => Passed::Whole { sha256, size: self.next },
            state => {
                let beginning = state.map(|sha256| (sha256, self.next));
                Passed::Look { path: path.to_owned(), beginning }
            }
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn look(beginning: Option<(String, u64)>) -> Option<Passed> {
        Some(Passed::Look { path: b"p".to_vec(), beginning })
    }

    #[test]
    fn a_file_is_known_when_all_of_it_has_passed_in_order() {
        let sum = hexadecimal(&{
            let mut state = Sha256::new();
            state.update(b"abcd");
            state.finish()
        });
        let passing = |fresh: bool| {
            let mut passing = Passing::new(fresh);
            passing.passed(0, b"ab");
            passing.passed(2, b"cd");
            passing
        };
        let whole = Some(Passed::Whole { sha256: sum.clone(), size: 4 });
        assert_eq!(passing(true).finish(b"p", 0, 4), whole);
        assert_eq!(passing(false).finish(b"p", 0, 4), look(Some((sum.clone(), 4))));
        let mut read = passing(false);
        assert_eq!(passing(false).finish(b"p", 4, 0), look(Some((sum.clone(), 4))));
        read.ends(100);
        assert!(!read.ended);
        read.ends(4);
        assert_eq!(read.finish(b"p", 4, 0), whole);
        assert_eq!(passing(true).finish(b"p", 2, 2), look(None));
        assert_eq!(Passing::new(true).finish(b"p", 0, 0), None);
        let mut odd = passing(true);
        odd.passed(9, b"x");
        assert_eq!(odd.finish(b"p", 0, 5), look(None));
        let mut cut = passing(true);
        cut.lost();
        assert_eq!(cut.finish(b"p", 0, 4), look(None));
    }
}
