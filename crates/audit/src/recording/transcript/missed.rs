//! What was run at the server and is a comment in a script: what follows it there may be about a table that a script does not make.

use std::time::Duration;

use super::words::seconds;

/// What has been left out since the script said so.
#[derive(Debug, Default)]
pub(super) struct Missed {
    statements: u64,
    first: Duration,
    last: Duration,
    /// Part of the record is missing.
    gap: bool,
}

impl Missed {
    /// A message of this time is a comment, and was run, or may have been.
    pub(super) fn add(&mut self, at: Duration) {
        if self.statements == 0 {
            self.first = at;
        }
        (self.statements, self.last) = (self.statements + 1, at);
    }

    /// What was run then is not known.
    pub(super) fn gap(&mut self) {
        self.gap = true;
    }

    /// What to say above the next statement that is live; nothing where the one before it was live, too.
    pub(super) fn take(&mut self) -> Option<String> {
        let Self { statements, first, last, gap } = std::mem::take(self);
        let (first, last) = (seconds(first), seconds(last));
        let statements = match statements {
            0 => None,
            1 => Some(format!("the statement at {first}")),
            more => Some(format!("{more} statements, from the one at {first} to the one at {last}")),
        };
        let gap = gap.then(|| "what is missing in the record".to_owned());
        let missed = statements.into_iter().chain(gap).collect::<Vec<_>>();
        (!missed.is_empty())
            .then(|| format!("what follows may depend on what is not run here: {}", missed.join(", and ")))
    }
}
