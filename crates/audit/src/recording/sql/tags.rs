//! What the server calls the results of statements (its command tags, `cmdtaglist.h`), held against the statements themselves: where
//! the server has read a text otherwise than it is read here, they do not fit.

use super::{Kind, Token};

/// Most results of one message that are remembered.
const MOST_RESULTS: usize = 10_000;
/// The longest tag of PostgreSQL's own is shorter.
const MOST_TAG_BYTES: usize = 64;
/// What the smallest piece of memory takes.
const LEAST_PIECE_BYTES: usize = 32;

/// The tags of one message's results, in their order.
#[derive(Debug, Clone, Default)]
pub struct Answers {
    tags: Vec<Box<str>>,
    count: usize,
    bytes: usize,
}

impl Answers {
    /// One more.
    pub fn push(&mut self, tag: &str) {
        self.count = self.count.saturating_add(1);
        if self.tags.len() < MOST_RESULTS {
            let end = (0..=MOST_TAG_BYTES.min(tag.len())).rev().find(|end| tag.is_char_boundary(*end));
            let tag = tag.get(..end.unwrap_or_default()).unwrap_or_default();
            self.bytes += size_of::<Box<str>>() + tag.len().max(LEAST_PIECE_BYTES);
            self.tags.push(tag.into());
        }
    }

    /// About how much memory they take.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.bytes
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// All of them; none where there were more than are remembered.
    #[must_use]
    pub fn all(&self) -> Option<&[Box<str>]> {
        (self.tags.len() == self.count).then_some(self.tags.as_slice())
    }

    /// Those that are remembered.
    #[must_use]
    pub fn remembered(&self) -> &[Box<str>] {
        &self.tags
    }

    /// Whether they are those of these statements, one by one: of all of them, or, where an error has followed (not `whole`), of the
    /// first ones.
    #[must_use]
    pub fn fit(&self, statements: &[Vec<Token<'_>>], whole: bool) -> bool {
        let Some(tags) = self.all() else { return false };
        let count = if whole { tags.len() == statements.len() } else { tags.len() < statements.len() };
        count && tags.iter().zip(statements).all(|(tag, statement)| fits(statement, tag))
    }
}

/// What a statement does to the transaction that it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Nothing.
    None,
    /// A savepoint is set, given up or gone back to.
    Savepoint,
    /// It is begun.
    Begins,
    /// It is committed; with `AND CHAIN` another one begins.
    Commits {
        /// Another one begins.
        chain: bool,
    },
    /// It is rolled back.
    RollsBack {
        /// Another one begins.
        chain: bool,
    },
    /// It is left to `COMMIT PREPARED` or `ROLLBACK PREPARED`, of any session.
    Prepares,
    /// One that was left so is ended.
    Prepared,
}

impl Ending {
    /// By the words of a statement and the tag that fits it.
    #[must_use]
    pub fn of(statement: &[Token<'_>], tag: &str) -> Self {
        let first = word(statement, 0);
        let place = if matches!(word(statement, 1).as_str(), "work" | "transaction") { 2 } else { 1 };
        let chain = word(statement, place) == "and" && word(statement, place + 1) == "chain";
        match tag {
            "BEGIN" | "START TRANSACTION" => Self::Begins,
            "SAVEPOINT" | "RELEASE" => Self::Savepoint,
            "COMMIT" => Self::Commits { chain },
            "ROLLBACK"
                if matches!(first.as_str(), "rollback" | "abort") && word(statement, place) == "to" =>
            {
                Self::Savepoint
            }
            "ROLLBACK" => Self::RollsBack { chain },
            "PREPARE TRANSACTION" => Self::Prepares,
            "COMMIT PREPARED" | "ROLLBACK PREPARED" => Self::Prepared,
            _ => Self::None,
        }
    }

    /// Whether a statement with this tag may do something to its transaction.
    #[must_use]
    pub fn is_told_by(tag: &str) -> bool {
        Self::of(&[], tag) != Self::None
    }
}

/// A word without quotes in lower case; empty for anything else.
fn word(statement: &[Token<'_>], index: usize) -> String {
    match statement.get(index) {
        Some(token) if token.kind == Kind::Word => token.raw.to_ascii_lowercase(),
        _ => String::new(),
    }
}

/// What a `WITH`, and an `EXECUTE`, may come to.
const QUERIES: [&str; 5] = ["SELECT", "INSERT", "UPDATE", "DELETE", "MERGE"];

/// Whether the server's tag can be the one of this statement, by the words that it begins with. A statement that is not known here
/// has none that fits.
#[must_use]
pub fn fits(statement: &[Token<'_>], tag: &str) -> bool {
    let (name, counts) = split(tag);
    let is = |wanted: &str| counts == 0 && name == wanted;
    let is_query = |wanted: &str| name == wanted && counts == if wanted == "INSERT" { 2 } else { 1 };
    if statement.first().is_some_and(|token| token.kind == Kind::Open) {
        return is_query("SELECT");
    }
    let (first, second) = (word(statement, 0), word(statement, 1));
    match first.as_str() {
        "select" | "values" | "table" => is_query("SELECT"),
        "insert" | "update" | "delete" | "merge" => is_query(&first.to_ascii_uppercase()),
        "with" => QUERIES.iter().any(|query| is_query(query) && has_verb(statement, query)),
        "execute" => QUERIES.iter().any(|query| is_query(query)),
        "fetch" | "move" | "copy" => name.eq_ignore_ascii_case(&first) && counts == 1,
        "start" => is("START TRANSACTION"),
        "commit" | "rollback" if second == "prepared" => {
            is(&format!("{first} PREPARED").to_ascii_uppercase())
        }
        "commit" | "end" => is("COMMIT") || is("ROLLBACK"),
        "rollback" | "abort" => is("ROLLBACK"),
        "prepare" if second == "transaction" && !names_statement(statement) => {
            is("PREPARE TRANSACTION") || is("ROLLBACK")
        }
        "set" if second == "constraints" => is("SET CONSTRAINTS"),
        "begin" | "savepoint" | "release" | "prepare" | "set" | "reset" | "show" | "explain" | "listen"
        | "notify" | "unlisten" | "checkpoint" | "load" | "do" | "call" | "vacuum" | "analyze"
        | "cluster" | "reindex" | "comment" => is(&first.to_ascii_uppercase()),
        "analyse" => is("ANALYZE"),
        "grant" | "revoke" => {
            let name = first.to_ascii_uppercase();
            is(&name) || is(&format!("{name} ROLE"))
        }
        "discard" if second == "temporary" => is("DISCARD TEMP"),
        "discard" => is(&format!("DISCARD {}", second.to_ascii_uppercase())),
        "deallocate" => {
            let named = if second == "prepare" && statement.len() > 2 { word(statement, 2) } else { second };
            is(if named == "all" { "DEALLOCATE ALL" } else { "DEALLOCATE" })
        }
        "declare" => is("DECLARE CURSOR"),
        "close" => is(if second == "all" { "CLOSE CURSOR ALL" } else { "CLOSE CURSOR" }),
        "lock" => is("LOCK TABLE"),
        "truncate" => is("TRUNCATE TABLE"),
        "refresh" => is("REFRESH MATERIALIZED VIEW"),
        "import" => is("IMPORT FOREIGN SCHEMA"),
        "security" => is("SECURITY LABEL"),
        "reassign" => is("REASSIGN OWNED"),
        "create" if is_query("SELECT") || is("CREATE TABLE AS") => {
            matches!(object(statement).first().map(String::as_str), Some("table" | "materialized"))
        }
        "create" | "alter" | "drop" => counts == 0 && is_object(statement, &first, name),
        _ => false,
    }
}

/// A tag without the numbers at its end, and how many those are.
fn split(tag: &str) -> (&str, usize) {
    let (mut name, mut counts) = (tag, 0);
    while let Some((before, last)) = name.rsplit_once(' ')
        && !last.is_empty()
        && last.bytes().all(|byte| byte.is_ascii_digit())
    {
        (name, counts) = (before, counts + 1);
    }
    (name, counts)
}

/// Whether a `WITH` has this verb outside of parentheses.
fn has_verb(statement: &[Token<'_>], query: &str) -> bool {
    let mut depth = 0_usize;
    statement.iter().skip(1).any(|token| {
        match token.kind {
            Kind::Open => depth += 1,
            Kind::Close => depth = depth.saturating_sub(1),
            _ => {}
        }
        let is = |verb: &str| token.raw.eq_ignore_ascii_case(verb);
        let fits = is(query) || query == "SELECT" && (is("values") || is("table"));
        depth == 0 && token.kind == Kind::Word && fits
    })
}

/// `PREPARE transaction AS ...`, or with types: a statement of that name.
fn names_statement(statement: &[Token<'_>]) -> bool {
    statement.get(2).is_some_and(|token| matches!(token.kind, Kind::Word | Kind::Open))
}

/// The words behind a `CREATE`, without those that say how.
fn object(statement: &[Token<'_>]) -> Vec<String> {
    const HOW: [&str; 12] = [
        "or",
        "replace",
        "temp",
        "temporary",
        "local",
        "global",
        "unlogged",
        "unique",
        "recursive",
        "trusted",
        "procedural",
        "default",
    ];
    let words = (1..statement.len()).map(|index| word(statement, index));
    let mut words =
        words.take_while(|word| !word.is_empty()).skip_while(|word| HOW.contains(&word.as_str())).peekable();
    if words.peek().is_some_and(|word| word == "constraint") {
        words.next();
    }
    words.take(4).collect()
}

/// Whether a tag such as `CREATE TEXT SEARCH PARSER` names what the statement is about.
fn is_object(statement: &[Token<'_>], verb: &str, tag: &str) -> bool {
    let mut named = tag.split(' ');
    if !named.next().is_some_and(|word| word.eq_ignore_ascii_case(verb)) {
        return false;
    }
    let mut words = if verb == "create" {
        object(statement)
    } else {
        let words = (1..statement.len()).map(|index| word(statement, index));
        words.take_while(|word| !word.is_empty()).skip_while(|word| word == "procedural").take(4).collect()
    };
    let is_role = words.first().is_some_and(|word| word == "user" || word == "group");
    if is_role
        && words.get(1).is_none_or(|word| word != "mapping")
        && let Some(word) = words.first_mut()
    {
        "role".clone_into(word);
    }
    let named: Vec<&str> = named.collect();
    !named.is_empty()
        && named.len() <= words.len()
        && named.iter().zip(&words).all(|(name, word)| name.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::super::statements;
    use super::*;

    fn only(text: &str) -> Vec<Token<'_>> {
        let mut all = statements(text).unwrap_or_else(|why| panic!("{text}: {why}"));
        assert_eq!(all.len(), 1, "{text}");
        all.remove(0)
    }

    #[test]
    fn a_tag_fits_its_statement_and_no_other() {
        for (text, tag) in [
            ("select 1", "SELECT 1"),
            ("(select 1) union select 2", "SELECT 2"),
            ("values (1)", "SELECT 1"),
            ("with a as (select 1) insert into t select 1", "INSERT 0 1"),
            ("with a as (insert into t values (1) returning 1) table a", "SELECT 1"),
            ("insert into t values (1)", "INSERT 0 1"),
            ("merge into t using s on true when matched then do nothing", "MERGE 0"),
            ("create temp table t (a int)", "CREATE TABLE"),
            ("create table t as select 1", "SELECT 1"),
            ("create table t as select 1 with no data", "CREATE TABLE AS"),
            ("create materialized view v as select 1", "SELECT 1"),
            ("create or replace function f() returns int language sql as 'select 1'", "CREATE FUNCTION"),
            ("create unique index on t (a)", "CREATE INDEX"),
            ("create constraint trigger c after insert on t execute function f()", "CREATE TRIGGER"),
            ("create user app", "CREATE ROLE"),
            ("create user mapping for app server s", "CREATE USER MAPPING"),
            ("drop group app", "DROP ROLE"),
            ("alter text search configuration c rename to d", "ALTER TEXT SEARCH CONFIGURATION"),
            ("drop operator class c using btree", "DROP OPERATOR CLASS"),
            ("alter default privileges grant select on tables to app", "ALTER DEFAULT PRIVILEGES"),
            ("begin", "BEGIN"),
            ("commit", "ROLLBACK"),
            ("end", "COMMIT"),
            ("rollback prepared 'x'", "ROLLBACK PREPARED"),
            ("prepare transaction 'x'", "PREPARE TRANSACTION"),
            ("prepare transaction as select 1", "PREPARE"),
            ("execute p", "DELETE 3"),
            ("set constraints all deferred", "SET CONSTRAINTS"),
            ("set x = 1", "SET"),
            ("discard temporary", "DISCARD TEMP"),
            ("deallocate prepare all", "DEALLOCATE ALL"),
            ("deallocate prepare", "DEALLOCATE"),
            ("grant a to b", "GRANT ROLE"),
            ("copy t to stdout", "COPY 7"),
            ("fetch 1 from c", "FETCH 1"),
            ("truncate t", "TRUNCATE TABLE"),
        ] {
            assert!(fits(&only(text), tag), "{text}: {tag}");
            for other in ["", "X", "SELECT", "SELECT 1 1", "INSERT 1", "DROP TABLE", "NOTIFY", "CREATE CAST"]
            {
                assert!(!fits(&only(text), other), "{text}: {other}");
            }
        }
        assert!(!fits(&only("drop tablespace t"), "DROP TABLE"));
        assert!(!fits(&only("with a as (insert into t values (1) returning 1) table a"), "INSERT 0 1"));
        assert!(!fits(&only("frobnicate"), "FROBNICATE"));
    }

    #[test]
    fn what_ends_a_transaction_is_read() {
        for (text, tag, ending) in [
            ("begin", "BEGIN", Ending::Begins),
            ("commit", "COMMIT", Ending::Commits { chain: false }),
            ("commit and no chain", "COMMIT", Ending::Commits { chain: false }),
            ("end work and chain", "COMMIT", Ending::Commits { chain: true }),
            ("commit and chain", "ROLLBACK", Ending::RollsBack { chain: true }),
            ("rollback to a", "ROLLBACK", Ending::Savepoint),
            ("abort transaction to savepoint a", "ROLLBACK", Ending::Savepoint),
            ("rollback transaction and chain", "ROLLBACK", Ending::RollsBack { chain: true }),
            ("prepare transaction 'to'", "ROLLBACK", Ending::RollsBack { chain: false }),
            ("prepare transaction 'x'", "PREPARE TRANSACTION", Ending::Prepares),
            ("release a", "RELEASE", Ending::Savepoint),
            ("select 1", "SELECT 1", Ending::None),
        ] {
            assert_eq!(Ending::of(&only(text), tag), ending, "{text}");
            assert_eq!(Ending::is_told_by(tag), ending != Ending::None, "{text}");
        }
    }

    #[test]
    fn results_beyond_those_that_are_remembered_fit_nothing() {
        let (mut answers, all) = (Answers::default(), statements("select 1; select 2").unwrap());
        answers.push("SELECT 1");
        assert!(!answers.fit(&all, true) && answers.fit(&all, false));
        answers.push("SELECT 1");
        assert!(answers.fit(&all, true) && !answers.fit(&all, false));
        (0..MOST_RESULTS).for_each(|_| answers.push(&"é".repeat(100)));
        assert!(answers.all().is_none() && answers.count() == MOST_RESULTS + 2);
    }
}
