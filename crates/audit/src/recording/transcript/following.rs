//! What the server was at while a session was recorded: which statement an answer is about, and what names stood for then.
//!
//! A recording has what the client said and what came of it, each with the number of its message. The server answers one message
//! after the other; after an error in the extended query it passes over everything up to the next `Sync`. That is not in the
//! recording, but it has a number, which is missing in the sequence.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::recording::database::{Parameter, Statement};
use crate::recording::sql::{Answers, Change, changes};

/// Most statements that are remembered by name, and most messages that wait for their answers.
const MOST_REMEMBERED: usize = 10_000;
/// Most bytes of the messages that wait for their answers, and of what is remembered by name.
const MOST_WAITING_BYTES: usize = 16 << 20;
const MOST_NAMED_BYTES: usize = 16 << 20;
/// Most lines below one message, and most bytes of them.
const MOST_BELOW: usize = 10_000;
const MOST_BELOW_BYTES: usize = 4 << 20;
/// What the server tells names apart by (`NAMEDATALEN` less one).
const KEY_BYTES: usize = 63;

/// A message of the client's.
#[derive(Debug)]
pub(super) enum What {
    Query(Arc<Statement>),
    Parse { name: Vec<u8>, statement: Arc<Statement> },
    Bind { portal: Vec<u8>, statement: Vec<u8>, shown: Shown },
    Execute { portal: Vec<u8> },
    Close { portal: bool, name: Vec<u8> },
    Function(Shown),
    Describe,
}

impl What {
    /// After whose error the server passes over what follows.
    fn is_extended(&self) -> bool {
        !matches!(self, Self::Query(_) | Self::Function(_))
    }

    /// Whether there is a statement that it is about.
    pub(super) fn has_statement(&self) -> bool {
        !matches!(self, Self::Close { .. } | Self::Describe)
    }

    /// About how much memory it takes, but for what it says, which [`Shown`] has too.
    fn held_bytes(&self) -> usize {
        match self {
            Self::Parse { name, .. } | Self::Close { name, .. } | Self::Execute { portal: name } => {
                name.len()
            }
            Self::Bind { portal, statement, .. } => portal.len() + statement.len(),
            Self::Query(_) | Self::Function(_) | Self::Describe => 0,
        }
    }

    /// Whether it is shown when it is done.
    pub(super) fn runs(&self) -> bool {
        matches!(self, Self::Query(_) | Self::Execute { .. } | Self::Function(_))
    }
}

/// A statement and what was put in.
#[derive(Debug, Clone, Default)]
pub(super) struct Shown {
    /// None where it is not known here.
    pub(super) statement: Option<Arc<Statement>>,
    /// What it is called, for one that is not known.
    pub(super) name: String,
    /// Parameters.
    pub(super) count: u16,
    pub(super) parameters: Option<Arc<[Parameter]>>,
    /// Why the server may have read it otherwise than it is here.
    pub(super) doubt: Option<&'static str>,
    /// The portal has been run before, in part or to its end.
    pub(super) again: bool,
    /// It is the call of a function, which has no tag.
    pub(super) calls: bool,
}

pub(super) const BEHIND: &str = "it was sent when the encoding that the server reads it in may have changed";

impl Shown {
    /// Whether what the server reads depends on an encoding.
    fn is_foreign(&self) -> bool {
        let text = self.statement.as_ref().is_some_and(|one| !one.text.is_ascii() || !one.base64.is_empty());
        let value = |value: &Parameter| matches!(value, Parameter::Text(text) if !text.is_ascii());
        text || self.parameters.as_ref().is_some_and(|values| values.iter().any(value))
    }

    /// About how much memory it takes, if nothing else has the same.
    fn held_bytes(&self) -> usize {
        let text = self.statement.as_ref().map_or(0, |one| {
            size_of::<Statement>() + one.text.len() + one.base64.iter().map(String::len).sum::<usize>()
        });
        let value = |value: &Parameter| match value {
            Parameter::Text(text) | Parameter::Binary(text) => size_of::<Parameter>() + text.len(),
            Parameter::Null => size_of::<Parameter>(),
        };
        let values = self.parameters.as_ref().map_or(0, |values| values.iter().map(value).sum());
        size_of::<Self>() + text + self.name.len() + values
    }

    /// These parameters in this statement.
    fn of(&self, statement: Self) -> Self {
        Self { statement: statement.statement, doubt: self.doubt.or(statement.doubt), ..self.clone() }
    }
}

/// How a message went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Went {
    /// It has no answer yet.
    Open,
    /// A portal was run in part.
    Suspended,
    Well,
    Badly,
    /// The server did not look at it, because of an error before.
    PassedOver,
    /// It was run, and is undone, or not known to be there to stay: why.
    Undone(&'static str),
}

/// A message, and what came of it so far.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) number: u64,
    pub(super) at: Duration,
    pub(super) what: What,
    pub(super) shown: Shown,
    pub(super) went: Went,
    /// Its results so far: a query may have several statements.
    pub(super) answers: Answers,
    pub(super) written: bool,
    /// Lines that belong below it.
    pub(super) below: Below,
    /// What an error undoes together: a pipeline, up to a `Sync` or the end of a query.
    pub(super) group: u64,
    /// What an error has the server pass over: up to a `Sync`.
    flight: u64,
    /// About how much memory it takes, as the client has said it.
    bytes: usize,
    /// What the server reads of it depends on an encoding.
    is_foreign: bool,
}

impl Said {
    /// About how much memory it takes, with what has come of it.
    pub(super) fn held_bytes(&self) -> usize {
        // What an Execute runs is known when it is answered.
        let shown = if self.went == Went::Open { 0 } else { self.shown.held_bytes() };
        self.bytes.max(shown) + self.answers.held_bytes() + self.below.bytes
    }
}

/// Lines that belong below a message, with their colours.
#[derive(Debug, Default)]
pub(super) struct Below {
    lines: Vec<(&'static str, String)>,
    bytes: usize,
}

impl Below {
    /// One more. How much memory it takes.
    pub(super) fn push(&mut self, colour: &'static str, line: String) -> usize {
        let bytes = size_of::<(&str, String)>() + line.len().max(32);
        self.bytes += bytes;
        self.lines.push((colour, line));
        bytes
    }

    /// Whether there are more than are held below one message.
    pub(super) fn is_full(&self) -> bool {
        self.lines.len() > MOST_BELOW || self.bytes > MOST_BELOW_BYTES
    }

    pub(super) fn into_lines(self) -> Vec<(&'static str, String)> {
        self.lines
    }
}

/// What is remembered by name.
#[derive(Debug, Default)]
struct Named {
    named: HashMap<Vec<u8>, Shown>,
    bytes: usize,
}

impl Named {
    /// Where there is too much, all of it is forgotten.
    fn insert(&mut self, name: Vec<u8>, shown: Shown) {
        self.remove(&name);
        let bytes = name.len() + shown.held_bytes();
        if self.named.len() >= MOST_REMEMBERED || self.bytes + bytes > MOST_NAMED_BYTES {
            self.clear();
        }
        self.bytes += bytes;
        self.named.insert(name, shown);
    }

    fn remove(&mut self, name: &[u8]) {
        if let Some(shown) = self.named.remove(name) {
            self.bytes = self.bytes.saturating_sub(name.len() + shown.held_bytes());
        }
    }

    fn get(&self, name: &[u8]) -> Option<&Shown> {
        self.named.get(name)
    }

    /// All but the one without a name.
    fn forget_named(&mut self) {
        self.named.retain(|name, _| name.is_empty());
        self.bytes = self.named.values().map(Shown::held_bytes).sum();
    }

    fn clear(&mut self) {
        (self.named, self.bytes) = (HashMap::new(), 0);
    }
}

/// Follows one session.
#[derive(Debug, Default)]
pub(super) struct Following {
    pub(super) said: VecDeque<Said>,
    /// About how much memory those take.
    bytes: usize,
    prepared: Named,
    bound: Named,
    last: u64,
    group: u64,
    flight: u64,
    /// An error was answered, and no `Sync` has come since.
    passing: bool,
}

impl Following {
    /// The client has said something. Gives back what the server passes over, and what there is no room for.
    pub(super) fn says(&mut self, number: u64, at: Duration, what: What) -> Vec<Said> {
        if number != self.last + 1 {
            self.group += 1;
            self.flight += 1;
            self.passing = false;
        }
        self.last = number;
        let shown = match &what {
            What::Query(statement) | What::Parse { statement, .. } => Shown {
                doubt: statement.doubtful.then_some(BEHIND),
                statement: Some(Arc::clone(statement)),
                ..Shown::default()
            },
            What::Bind { shown, .. } | What::Function(shown) => shown.clone(),
            _ => Shown::default(),
        };
        let bytes = size_of::<Said>() + what.held_bytes() + shown.held_bytes();
        let mut said = Said {
            number,
            at,
            what,
            shown,
            went: Went::Open,
            answers: Answers::default(),
            written: false,
            below: Below::default(),
            group: self.group,
            flight: self.flight,
            bytes,
            is_foreign: false,
        };
        said.is_foreign = said.shown.is_foreign();
        if self.passing {
            (said.shown, said.went) = (self.expected(&said), Went::PassedOver);
            return vec![said];
        }
        if !said.what.is_extended() {
            // At its end what was done is there to stay.
            self.group += 1;
        }
        self.bytes += said.bytes;
        self.said.push_back(said);
        let mut unheard = Vec::new();
        while self.said.len() > MOST_REMEMBERED || self.bytes > MOST_WAITING_BYTES && self.said.len() > 1 {
            unheard.extend(self.pop());
        }
        unheard
    }

    /// What was said with a message that waits for its answer.
    pub(super) fn waiting(&self, number: u64) -> Option<&What> {
        let place = self.said.binary_search_by_key(&number, |said| said.number).ok()?;
        self.said.get(place).map(|said| &said.what)
    }

    /// The message that the server is at waits no longer.
    fn pop(&mut self) -> Option<Said> {
        let said = self.said.pop_front()?;
        self.bytes = self.bytes.saturating_sub(said.bytes);
        Some(said)
    }

    /// Whether the last message can be shown before it is answered: what it runs is certain, if it runs at all.
    pub(super) fn is_certain(&self) -> bool {
        let Some(last) = self.said.back() else { return false };
        match last.what {
            What::Query(_) | What::Function(_) => true,
            What::Execute { .. } => {
                let alone = |said: &Said| {
                    said.flight == last.flight && (said.number == last.number || !said.what.runs())
                };
                self.said.iter().all(alone)
            }
            _ => false,
        }
    }

    /// What the last message will run, if it is run.
    pub(super) fn last_expected(&self) -> Shown {
        self.said.back().map(|last| self.expected(last)).unwrap_or_default()
    }

    /// What a message that waits will be about, if all before it goes well.
    pub(super) fn expected(&self, said: &Said) -> Shown {
        // Numbers rise. Of the message that the server is at nothing is looked through.
        let before = |number: u64| {
            let end = self.said.partition_point(|other| other.number < number);
            self.said.range(..end).rev()
        };
        let statement = |name: &[u8], number: u64| {
            let parsed = before(number).find_map(|other| match &other.what {
                What::Parse { name: parsed, .. } if parsed == name => Some(other.shown.clone()),
                _ => None,
            });
            parsed.or_else(|| self.prepared.get(name).cloned()).unwrap_or_default()
        };
        match &said.what {
            What::Bind { statement: name, .. } => said.shown.of(statement(name, said.number)),
            What::Execute { portal } => {
                let bind = before(said.number).find_map(|other| match &other.what {
                    What::Bind { portal: bound, statement: name, .. } if bound == portal => {
                        Some(other.shown.of(statement(name, other.number)))
                    }
                    _ => None,
                });
                bind.or_else(|| self.bound.get(portal).cloned())
                    .unwrap_or_else(|| Shown { name: text(portal), ..Shown::default() })
            }
            _ => said.shown.clone(),
        }
    }

    /// Takes what was answered in silence before this message: it went well. Gives what is to be shown.
    pub(super) fn before(&mut self, number: u64) -> Vec<Said> {
        let mut shown = Vec::new();
        while self.said.front().is_some_and(|said| said.number < number) {
            let Some(mut said) = self.pop() else { break };
            if !said.written && said.what.runs() {
                said.shown = self.expected(&said);
            }
            match &said.what {
                What::Parse { name, .. } => self.prepared.insert(name.clone(), said.shown),
                What::Bind { portal, statement, .. } => {
                    let statement = self.prepared.get(statement).cloned().unwrap_or_default();
                    self.bound.insert(portal.clone(), said.shown.of(statement));
                }
                What::Close { portal: true, name } => self.bound.remove(name),
                What::Close { portal: false, name } => self.prepared.remove(name),
                What::Query(_) | What::Execute { .. } | What::Function(_) => {
                    self.follows(&said, true);
                    shown.push(said);
                }
                What::Describe => {}
            }
        }
        shown
    }

    /// The message that is answered now, when it is this one, with what it runs.
    pub(super) fn answered(&mut self, number: u64) -> Option<&mut Said> {
        let front = self.said.front().filter(|said| said.number == number)?;
        let shown = if front.written { front.shown.clone() } else { self.expected(front) };
        let front = self.said.front_mut()?;
        front.shown = shown;
        Some(front)
    }

    /// The server refuses the message that it was at. Gives that, and what it passes over because of it.
    pub(super) fn fails(&mut self, number: u64) -> Option<(Said, Vec<Said>)> {
        self.answered(number)?.went = Went::Badly;
        let flight = self.said.front()?.flight;
        let expected: Vec<Shown> = self
            .said
            .iter()
            .skip(1)
            .take_while(|said| said.flight == flight)
            .map(|said| self.expected(said))
            .collect();
        let failed = self.pop()?;
        self.follows(&failed, false);
        let mut over = Vec::new();
        if failed.what.is_extended() {
            for shown in expected {
                let Some(mut said) = self.pop() else { break };
                (said.shown, said.went) = (shown, Went::PassedOver);
                over.push(said);
            }
            // Without a message behind it, the Sync may have come or not; a gap in the numbers will say.
            self.passing = self.said.is_empty();
        }
        Some((failed, over))
    }

    /// What has no answer when the session ends.
    pub(super) fn rest(&mut self) -> Vec<Said> {
        let expected: Vec<Shown> = self.said.iter().map(|said| self.expected(said)).collect();
        self.bytes = 0;
        let waiting = std::mem::take(&mut self.said).into_iter().zip(expected);
        waiting
            .map(|(mut said, shown)| {
                said.shown = shown;
                said
            })
            .collect()
    }

    /// What a message that was run has changed about names.
    fn follows(&mut self, said: &Said, whole: bool) {
        if let What::Execute { portal } = &said.what
            && matches!(said.went, Went::Well | Went::Suspended)
            && let Some(bound) = self.bound.named.get_mut(portal)
        {
            bound.again = true;
        }
        let exact = |statement: &&Statement| statement.bytes.is_none() && statement.is_exact();
        let statement = said.shown.statement.as_deref().filter(exact).filter(|_| said.shown.doubt.is_none());
        let text = statement.map(|statement| statement.text.as_str());
        changes(text, &said.answers, whole).into_iter().for_each(|change| self.changes(change));
    }

    /// The server reads the client's text in another encoding: since when is not certain.
    pub(super) fn reads_otherwise(&mut self) {
        if let Some(first) = self.said.front_mut() {
            // What it runs may have become known since it was said.
            first.is_foreign = first.shown.is_foreign();
        }
        let foreign = self.said.iter_mut().filter(|said| said.is_foreign);
        foreign.for_each(|said| said.shown.doubt = Some(BEHIND));
    }

    /// The transaction has ended, and portals with it.
    pub(super) fn ends_portals(&mut self) {
        self.bound.clear();
    }

    /// Part of the record is missing.
    pub(super) fn gap(&mut self) {
        self.prepared.clear();
        self.bound.clear();
    }

    fn changes(&mut self, change: Change) {
        match change {
            Change::Prepared { name, text } => {
                let statement = Some(Arc::new(Statement { text, ..Statement::default() }));
                self.prepared.insert(name, Shown { statement, ..Shown::default() });
            }
            Change::Deallocated(name) => self.prepared.remove(&name),
            // The statement without a name is the protocol's alone.
            Change::DeallocatedAll => self.prepared.forget_named(),
            Change::Portal(name) => self.bound.remove(&name),
            Change::PortalsAll => self.bound.clear(),
            Change::Discarded | Change::Unknown => {
                self.prepared.forget_named();
                self.bound.clear();
            }
        }
    }
}

/// What the server looks a name up by.
pub(super) fn key(name: &str) -> Vec<u8> {
    let name = name.as_bytes();
    name.get(..KEY_BYTES).unwrap_or(name).to_vec()
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}
