//! What SQL does to the names of prepared statements and portals, which messages of the protocol use, too.

use super::{Answers, Kind, Token, statements};

/// What a statement has changed about the statements and portals that messages of the protocol name, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// `PREPARE`: this name has this statement.
    Prepared {
        /// Without quotes, as the server has it.
        name: Vec<u8>,
        /// From behind `AS`.
        text: String,
    },
    /// `DEALLOCATE` of one.
    Deallocated(Vec<u8>),
    /// `DEALLOCATE ALL`.
    DeallocatedAll,
    /// `DISCARD ALL`: portals, too.
    Discarded,
    /// `DECLARE` or `CLOSE` of a cursor: a portal of this name is another one now, or gone.
    Portal(Vec<u8>),
    /// `CLOSE ALL`.
    PortalsAll,
    /// One of these, of which the text that says what it was about is not known.
    Unknown,
}

/// Longest name of a statement or portal that the server tells apart (`NAMEDATALEN` less one).
const NAME_BYTES: usize = 63;

impl Change {
    /// Whether the server's tag of a result is that of such a statement.
    #[must_use]
    pub fn is_told_by(tag: &str) -> bool {
        matches!(
            tag,
            "PREPARE"
                | "DEALLOCATE"
                | "DEALLOCATE ALL"
                | "DISCARD ALL"
                | "DECLARE CURSOR"
                | "CLOSE CURSOR"
                | "CLOSE CURSOR ALL"
        )
    }

    /// What the tag alone says.
    fn alone(tag: &str) -> Self {
        match tag {
            "DEALLOCATE ALL" => Self::DeallocatedAll,
            "DISCARD ALL" => Self::Discarded,
            "CLOSE CURSOR ALL" => Self::PortalsAll,
            _ => Self::Unknown,
        }
    }

    fn of(tag: &str, tokens: &[Token<'_>], text: &str) -> Option<Self> {
        let word = |index: usize, word: &str| {
            tokens
                .get(index)
                .is_some_and(|token| token.kind == Kind::Word && token.raw.eq_ignore_ascii_case(word))
        };
        match tag {
            "DEALLOCATE ALL" | "DISCARD ALL" | "CLOSE CURSOR ALL" => Some(Self::alone(tag)),
            "DECLARE CURSOR" if word(0, "declare") => Some(Self::Portal(named(tokens.get(1)?)?)),
            "CLOSE CURSOR" if word(0, "close") => Some(Self::Portal(named(tokens.get(1)?)?)),
            "DEALLOCATE" if word(0, "deallocate") => {
                // A statement may be called `prepare`.
                let with = word(1, "prepare") && tokens.len() > 2;
                Some(Self::Deallocated(named(tokens.get(if with { 2 } else { 1 })?)?))
            }
            "PREPARE" if word(0, "prepare") => {
                let name = named(tokens.get(1)?)?;
                let mut depth = 0_usize;
                let begin = tokens.iter().skip(2).position(|token| {
                    match token.kind {
                        Kind::Open => depth += 1,
                        Kind::Close => depth = depth.saturating_sub(1),
                        _ => {}
                    }
                    depth == 0 && token.kind == Kind::Word && token.raw.eq_ignore_ascii_case("as")
                })?;
                let first = offset(text, tokens.get(begin + 3)?.raw)?;
                let last = tokens.last()?.raw;
                let end = offset(text, last)? + last.len();
                Some(Self::Prepared { name, text: text.get(first..end)?.to_owned() })
            }
            _ => None,
        }
    }
}

/// What the statements of one message have changed, by its text and the server's tags of their results; `whole` where no error has
/// followed. Where the text is not known exactly, or its statements are not those that the server has answered, only what the tags
/// alone say.
#[must_use]
pub fn changes(text: Option<&str>, answers: &Answers, whole: bool) -> Vec<Change> {
    let tags = answers.remembered();
    if !tags.iter().any(|tag| Change::is_told_by(tag)) {
        return if answers.all().is_some() { Vec::new() } else { vec![Change::Unknown] };
    }
    let text = text.unwrap_or_default();
    let read = statements(text).ok().filter(|statements| answers.fit(statements, whole));
    let told = tags.iter().enumerate().filter(|(_, tag)| Change::is_told_by(tag));
    let mut changes: Vec<Change> = told
        .map(|(index, tag)| {
            let statement = read.as_ref().and_then(|statements| statements.get(index));
            statement.and_then(|tokens| Change::of(tag, tokens, text)).unwrap_or_else(|| Change::alone(tag))
        })
        .collect();
    if answers.all().is_none() {
        changes.push(Change::Unknown);
    }
    changes
}

/// Where a part of a text is in it.
fn offset(text: &str, part: &str) -> Option<usize> {
    (part.as_ptr() as usize).checked_sub(text.as_ptr() as usize)
}

/// What the server calls what is named so.
fn named(token: &Token<'_>) -> Option<Vec<u8>> {
    // The protocol has it in the client's encoding, and what other letters have as their small ones the server's locale decides.
    let mut name = match token.kind {
        _ if !token.raw.is_ascii() => return None,
        Kind::Word => token.raw.to_ascii_lowercase(),
        Kind::Name => token.content.replace("\"\"", "\""),
        _ => return None,
    };
    name.truncate(NAME_BYTES);
    Some(name.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: Option<&str>, tags: &[&str], whole: bool) -> Vec<Change> {
        let mut answers = Answers::default();
        tags.iter().for_each(|tag| answers.push(tag));
        changes(text, &answers, whole)
    }

    #[test]
    fn what_changes_names_is_read() {
        let name = |name: &str| name.as_bytes().to_vec();
        for (tags, text, change) in [
            (&["DEALLOCATE"][..], "deallocate S1", Change::Deallocated(name("s1"))),
            (
                &["SELECT 1", "DEALLOCATE"],
                "select 1; deallocate prepare \"S\"\"1\"",
                Change::Deallocated(name("S\"1")),
            ),
            (&["DEALLOCATE"], "deallocate prepare", Change::Deallocated(name("prepare"))),
            (&["DEALLOCATE ALL"], "whatever", Change::DeallocatedAll),
            (
                &["PREPARE"],
                "prepare p(int, text) as /* x */ select $1, 'as' ; ",
                Change::Prepared { name: name("p"), text: "select $1, 'as'".to_owned() },
            ),
            (&["PREPARE"], "prepare u&\"d\" as select 1", Change::Unknown),
            (&["PREPARE"], "prepare \u{c9} as select 1", Change::Unknown),
            (&["DECLARE CURSOR"], "declare c cursor for select 1", Change::Portal(name("c"))),
            (&["CLOSE CURSOR"], "close c", Change::Portal(name("c"))),
        ] {
            assert!(Change::is_told_by(tags[tags.len() - 1]));
            assert_eq!(read(Some(text), tags, true), [change], "{text}");
        }
        assert_eq!(read(None, &["PREPARE"], true), [Change::Unknown]);
        assert!(!Change::is_told_by("SELECT 1") && read(None, &["SELECT 1"], true).is_empty());
    }

    #[test]
    fn names_are_not_followed_where_the_server_has_read_otherwise() {
        // Another number of results, or others; a text whose end a setting decides.
        for (text, tags, whole) in [
            ("select 1; deallocate x", &["DEALLOCATE"][..], true),
            ("deallocate x; select 1", &["DEALLOCATE"], true),
            ("deallocate x; select 1", &["DEALLOCATE", "SHOW"], true),
            ("deallocate x", &["DEALLOCATE"], false),
            ("prepare p as select 'a\\', $$; --'$$", &["PREPARE"], true),
            (
                "create function f() begin atomic select 1 as end; deallocate x; end",
                &["CREATE FUNCTION", "DEALLOCATE", "COMMIT"],
                true,
            ),
        ] {
            assert_eq!(read(Some(text), tags, whole), [Change::Unknown], "{text}");
        }
        assert_eq!(
            read(Some("deallocate x; selec"), &["DEALLOCATE"], false),
            [Change::Deallocated(b"x".to_vec())]
        );
        let many = vec!["SELECT 1"; 10_001];
        assert_eq!(read(Some("select 1"), &many, true), [Change::Unknown]);
    }
}
