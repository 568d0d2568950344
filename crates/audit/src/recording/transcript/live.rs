//! What of a message can be part of a script, by what the server has answered.

use super::following::{Said, Shown, Went};
use super::words::{PASSED_OVER, ROLLED_BACK, UNDONE};
use crate::recording::script::{self, Script};
use crate::recording::sql::{Answers, Ending, Kind, Token, statements};

/// Why a message is no part of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotLive {
    /// The record does not tell enough of it.
    #[error("not run here: {0}")]
    NotHere(&'static str),
    /// The server has completed fewer of its statements than it holds, or more.
    #[error("not run here: the server completed {completed} of its {statements} statements")]
    InPart { completed: usize, statements: usize },
    /// It left nothing behind.
    #[error("{0}")]
    NothingLeft(&'static str),
}

/// A statement as part of a script; or why it is none.
pub(super) fn script(shown: &Shown, went: Went, answers: &Answers) -> Result<Script, NotLive> {
    let not = |why| Err(NotLive::NotHere(why));
    match went {
        Went::Well => {}
        Went::Open => return not("the record has no end of it"),
        Went::Suspended => return not("it was run in part"),
        Went::Badly => return not("the server did not complete it"),
        Went::PassedOver => return Err(NotLive::NothingLeft(PASSED_OVER)),
        Went::Undone(why) => return Err(NotLive::NothingLeft(why)),
    }
    let Some(statement) = shown.statement.as_deref() else { return not("its text is not known") };
    if statement.bytes.is_some() {
        return not("the record does not have all of it");
    }
    if !statement.is_exact() {
        return not("its text is not known exactly");
    }
    if let Some(why) = shown.doubt {
        return not(why);
    }
    if shown.again {
        return not("its portal had been run before");
    }
    let script = match script::live(&statement.text, shown.count, shown.parameters.as_deref()) {
        Err(why) => return not(why),
        Ok(script) => script,
    };
    let read = statements(&statement.text).unwrap_or_default();
    match answers.count() {
        _ if script.statements == 0 => return not("it holds no statement"),
        completed if completed != read.len() => {
            return Err(NotLive::InPart { completed, statements: read.len() });
        }
        _ if read.len() != script.statements || !answers.fit(&read, true) => {
            return not("what the server has completed are other statements");
        }
        _ => {}
    }
    if read.iter().any(|one| runs_what_has_a_name(one)) {
        return not("what it runs has a name, by which a script may have something else");
    }
    let mut endings = read.iter().zip(answers.remembered()).map(|(one, tag)| Ending::of(one, tag));
    match (endings.next(), endings.next()) {
        (Some(Ending::Commits { chain: true }), None) => {
            Ok(Script { sql: "commit;\n".to_owned(), statements: 1, anew: true })
        }
        (Some(first), second) if first == Ending::Prepared || second == Some(Ending::Prepared) => {
            not("the transaction that it ends was prepared elsewhere")
        }
        _ if endings.any(|ending| ending == Ending::Prepared) => {
            not("the transaction that it ends was prepared elsewhere")
        }
        _ => Ok(script),
    }
}

/// Whether the server has run something of a message that is no part of the script, and that may be there to stay.
pub(super) fn may_have_run(shown: &Shown, went: Went, answers: &Answers) -> bool {
    match went {
        // An empty query has an empty tag.
        Went::Well => shown.calls || answers.remembered().iter().any(|tag| !tag.is_empty()),
        Went::Open | Went::Suspended => true,
        Went::PassedOver => false,
        Went::Undone(why) => why != UNDONE && why != ROLLED_BACK,
        // What the message did is undone, but for what it committed itself.
        Went::Badly => {
            let commits = ["commit", "end", "prepare", "call", "do"];
            answers.remembered().iter().any(|tag| Ending::is_told_by(tag)) || begins_with(shown, &commits)
        }
    }
}

/// Whether one of the statements begins with one of these words, or it is not known how they begin.
fn begins_with(shown: &Shown, words: &[&str]) -> bool {
    let Some(statement) = shown.statement.as_deref() else { return true };
    if statement.bytes.is_some() || !statement.is_exact() || shown.doubt.is_some() {
        return true;
    }
    let Ok(read) = statements(&statement.text) else { return true };
    read.iter().any(|one| {
        one.first().is_some_and(|first| words.iter().any(|word| first.raw.eq_ignore_ascii_case(word)))
    })
}

/// `EXECUTE`, also behind `EXPLAIN` and `CREATE TABLE ... AS`, and `WHERE CURRENT OF`: what is prepared outlives a rollback, and the
/// protocol's names are not in a script.
fn runs_what_has_a_name(statement: &[Token<'_>]) -> bool {
    let is = |token: &Token<'_>, word: &str| token.kind == Kind::Word && token.raw.eq_ignore_ascii_case(word);
    let first = |word: &str| statement.first().is_some_and(|token| is(token, word));
    // A trigger executes a function.
    let trigger = first("create") && statement.iter().take(6).any(|token| is(token, "trigger"));
    let executes = (first("execute") || first("explain") || first("create"))
        && !trigger
        && statement.iter().any(|token| is(token, "execute"));
    let mut pairs = statement.iter().zip(statement.iter().skip(1));
    executes || pairs.any(|(one, next)| is(one, "current") && is(next, "of"))
}

/// What the statements of a message do to the transaction; none where they are not known exactly.
pub(super) fn endings(said: &Said) -> Option<Vec<Ending>> {
    let statement = said.shown.statement.as_deref()?;
    if said.went != Went::Well
        || statement.bytes.is_some()
        || !statement.is_exact()
        || said.shown.doubt.is_some()
    {
        return None;
    }
    let read = statements(&statement.text).ok().filter(|read| said.answers.fit(read, true))?;
    Some(read.iter().zip(said.answers.remembered()).map(|(one, tag)| Ending::of(one, tag)).collect())
}

/// Whether a message that failed may have ended its transaction with that.
pub(super) fn may_commit(failed: &Said) -> bool {
    begins_with(&failed.shown, &["commit", "end", "prepare"])
}
