//! What a script has live of a transaction: all that was run in it, once the server has committed it, and nothing before.
//!
//! Statements wait here for the end of their transaction: its `COMMIT`, the end of a query outside of any, or the `Sync` of a
//! pipeline. What was rolled back, or what is not known to have been committed, is given back as that.

use super::following::{Said, Went, What};
use super::live;
use super::words::{ROLLED_BACK, UNDONE};
use crate::recording::database::Transaction;
use crate::recording::sql::Ending;

/// Most statements that wait for the end of their transaction, and most bytes of them with their results and what belongs below them.
const MOST_HELD: usize = 10_000;
const MOST_HELD_BYTES: usize = 32 << 20;

const PREPARED: &str =
    "not run here: its transaction was prepared, and the record does not say what became of it";
const NO_END: &str = "not run here: the record does not say that it was committed";
const LONG: &str = "not run here: its transaction is longer than what is held of one";
const MIXED: &str = "not run here: its transaction ended in the middle of a message that rolled back, too";
const UNCERTAIN: &str = "not run here: what began or ended its transaction is not known exactly";
const IN_PART: &str = "not run here: a message in its transaction was run in part";
pub(super) const GAP: &str = "not run here: the record has a gap in its transaction";
pub(super) const UNHEARD: &str = "not run here: more messages waited for their answers than are followed";

/// A line that has no message to stand below.
#[derive(Debug)]
pub(super) struct NoneWaits(pub(super) String);

/// Whether a transaction block is open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Block {
    #[default]
    None,
    Open,
    Unknown,
}

/// What waits, and what it waits for.
#[derive(Debug, Default)]
pub(super) struct Unit {
    held: Vec<Said>,
    bytes: usize,
    block: Block,
    /// Outside of a block: what an error undoes together.
    group: Option<u64>,
    /// Why nothing of it can be live.
    doubt: Option<&'static str>,
    /// Its block was begun by the `AND CHAIN` of the one before.
    chained: bool,
}

/// What waits no longer.
#[derive(Debug)]
pub(super) struct Released {
    pub(super) said: Vec<Said>,
    /// A transaction has to be begun for it.
    pub(super) begins: bool,
}

impl Unit {
    /// A message was run; `settled` where the server has gone on to the next one, so that no error of its own follows.
    pub(super) fn done(&mut self, said: Said, settled: bool) -> Vec<Released> {
        let is_query = !matches!(said.what, What::Execute { .. });
        let may_end: Vec<Ending> =
            said.answers.remembered().iter().map(|tag| Ending::of(&[], tag)).filter(ends).collect();
        let read = live::endings(&said);
        let whole = read.is_some() && matches!(said.what, What::Query(_));
        // A block or a procedure may roll back what stands before it, and a Sync among the data of a copy ends no pipeline.
        let told = |name: &str| said.answers.remembered().iter().any(|tag| tag.starts_with(name));
        let may_end_it = self.block == Block::None
            && (told("COPY ") && !is_query
                || !self.held.is_empty() && ["DO", "CALL"].iter().any(|name| told(name)));
        if may_end_it {
            self.doubt = self.doubt.or(Some(UNCERTAIN));
        }
        self.hold(said);
        let Some(endings) = read else {
            // Its tags alone say what it did.
            match may_end.last() {
                None => {}
                Some(last) => {
                    self.block = if *last == Ending::Begins { Block::Open } else { Block::Unknown };
                    self.doubt = Some(UNCERTAIN);
                    return self.doubted();
                }
            }
            return self.goes_on(is_query && settled);
        };
        let several = endings.len() > 1;
        let (mut closed, mut undone, mut chained) = (false, None, false);
        for ending in endings {
            match ending {
                Ending::None | Ending::Savepoint | Ending::Prepared => continue,
                Ending::Begins => {
                    self.block = Block::Open;
                    continue;
                }
                Ending::Commits { chain } => chained = chain,
                Ending::RollsBack { chain } => (chained, undone) = (chain, Some(ROLLED_BACK)),
                Ending::Prepares => (chained, undone) = (false, Some(PREPARED)),
            }
            closed = true;
            self.block = if chained { Block::Open } else { Block::None };
            if several && (chained || undone.is_some()) {
                undone = Some(MIXED);
            }
        }
        match (closed, self.block) {
            (true, Block::None) => self.end(undone),
            (true, _) if !several => {
                let released = self.end(undone);
                (self.block, self.chained) = (Block::Open, chained);
                released
            }
            (true, _) => {
                self.doubt = self.doubt.or(undone);
                self.doubted()
            }
            (false, _) => self.goes_on(whole || is_query && settled),
        }
    }

    /// Nothing was said of the transaction; outside of a block it ends with a query.
    fn goes_on(&mut self, ended: bool) -> Vec<Released> {
        if ended && self.block == Block::None { self.end(None) } else { self.doubted() }
    }

    /// The server refused a message, and passes over others.
    pub(super) fn fails(&mut self, failed: Said, over: Vec<Said>) -> Vec<Released> {
        let tags = failed.answers.remembered().iter().map(|tag| Ending::of(&[], tag));
        let (mut part, mut ends_some) = (false, false);
        for ending in tags {
            part |= ending != Ending::None;
            ends_some |= ends(&ending);
        }
        let is_commit = self.block != Block::None && live::may_commit(&failed);
        self.hold(failed);
        over.into_iter().for_each(|said| self.hold(said));
        if ends_some || is_commit {
            (self.block, self.doubt) = (Block::Unknown, Some(UNCERTAIN));
        } else if self.block == Block::None {
            return self.end(Some(UNDONE));
        } else if part {
            self.doubt = self.doubt.or(Some(IN_PART));
        }
        self.doubted()
    }

    /// The `Sync` behind these has failed.
    pub(super) fn sync_fails(&mut self) -> Vec<Released> {
        if self.block == Block::None { self.end(Some(UNDONE)) } else { Vec::new() }
    }

    /// The server is at a message of this group: outside of a block, what came before the group is there to stay.
    pub(super) fn reaches(&mut self, group: u64) -> Vec<Released> {
        let is_over = self.block == Block::None && self.group.is_some_and(|held| held != group);
        if is_over { self.end(None) } else { Vec::new() }
    }

    /// The server has said what it is in.
    pub(super) fn ready(&mut self, transaction: Transaction) -> Vec<Released> {
        match (transaction, self.block) {
            (Transaction::None, Block::None) => self.end(None),
            (Transaction::None, _) => self.end(Some(UNCERTAIN)),
            (_, Block::Open) => Vec::new(),
            (_, _) => {
                (self.block, self.doubt) = (Block::Open, self.doubt.or(Some(UNCERTAIN)));
                self.doubted()
            }
        }
    }

    /// Something was run that is not known: whatever it may have begun or ended, until the server says what it is in.
    pub(super) fn loses(&mut self, why: &'static str) -> Vec<Released> {
        (self.block, self.doubt) = (Block::Unknown, self.doubt.or(Some(why)));
        self.doubted()
    }

    /// The record ends here.
    pub(super) fn rest(&mut self) -> Vec<Released> {
        self.end(Some(NO_END))
    }

    /// Adds a line below the last message; gives it back where none waits.
    pub(super) fn below(&mut self, colour: &'static str, line: String) -> Result<Vec<Released>, NoneWaits> {
        let Some(said) = self.held.last_mut() else { return Err(NoneWaits(line)) };
        self.bytes += said.below.push(colour, line);
        if self.bytes > MOST_HELD_BYTES || said.below.is_full() {
            self.doubt = self.doubt.or(Some(LONG));
        }
        Ok(self.doubted())
    }

    fn hold(&mut self, said: Said) {
        self.bytes += said.held_bytes();
        self.group.get_or_insert(said.group);
        self.held.push(said);
        if self.held.len() > MOST_HELD || self.bytes > MOST_HELD_BYTES {
            self.doubt = self.doubt.or(Some(LONG));
        }
    }

    /// Of what is not live there is nothing to wait for.
    fn doubted(&mut self) -> Vec<Released> {
        match self.doubt {
            Some(why) => self.release(Some(why)),
            None => Vec::new(),
        }
    }

    /// The transaction has ended.
    fn end(&mut self, undone: Option<&'static str>) -> Vec<Released> {
        let released = self.release(self.doubt.or(undone));
        *self = Self::default();
        released
    }

    fn release(&mut self, undone: Option<&'static str>) -> Vec<Released> {
        let mut said = std::mem::take(&mut self.held);
        self.bytes = 0;
        let is_certain = |said: &Said| {
            let told = said.answers.remembered().iter().any(|tag| Ending::is_told_by(tag));
            // What is written already is a comment.
            let is_live = || !said.written && live::script(&said.shown, said.went, &said.answers).is_ok();
            said.went != Went::Well || !told || is_live()
        };
        let undone = undone.or_else(|| (!said.iter().all(is_certain)).then_some(UNCERTAIN));
        if let Some(why) = undone {
            said.iter_mut()
                .filter(|said| said.went == Went::Well)
                .for_each(|said| said.went = Went::Undone(why));
        }
        let begins = self.chained && undone.is_none() && !said.is_empty();
        if said.is_empty() { Vec::new() } else { vec![Released { said, begins }] }
    }
}

fn ends(ending: &Ending) -> bool {
    !matches!(ending, Ending::None | Ending::Savepoint | Ending::Prepared)
}
