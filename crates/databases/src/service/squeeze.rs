//! Statements without their comments, as they come: what is on record of a long one is to be what it does, not what stands
//! around it.
//!
//! It follows PostgreSQL's scanner byte by byte, in any of its encodings. Where settings that are not known here decide what a
//! comment is (`standard_conforming_strings`, or an encoding whose characters hold a backslash), nothing is dropped from there on.

/// Follows a statement.
#[derive(Debug, Default)]
pub(super) struct Squeeze {
    at: At,
    /// The word that was read, as far as a prefix of a text matters; other words are longer.
    word: Word,
    /// The last text was `E'...'`, and nothing but blanks and comments has followed; and there was an end of a line among them.
    escaped: (bool, bool),
    /// The last byte that was given on, where it was a blank or an end of a line.
    blank: Option<u8>,
    before: u8,
    unclear: bool,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
enum At {
    #[default]
    Code,
    Dash,
    Slash,
    Line,
    /// Inside so many comments, behind the first byte of an opening or a closing.
    Block(u32, u8),
    /// In a text; its backslashes escape, or would under another setting; the last byte was one.
    Text {
        escapes: bool,
        backslash: bool,
    },
    Name,
    /// Between the dollar signs that open a text.
    Tag(Vec<u8>),
    /// In such a text; so many bytes of its end have come.
    Dollar(Vec<u8>, usize),
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Word {
    #[default]
    None,
    /// The letter `e`, alone.
    Escape,
    Other,
}

/// Longest tag of a text between dollar signs that is followed.
const MOST_TAG_BYTES: usize = 64;

impl Squeeze {
    /// Takes more of a statement, and gives on what is not a comment.
    pub(super) fn take(&mut self, bytes: &[u8], mut give: impl FnMut(u8)) {
        for byte in bytes {
            if self.unclear {
                give(*byte);
            } else {
                self.byte(*byte, &mut give);
            }
            self.before = *byte;
        }
    }

    /// Ends it: what was held back is given on.
    pub(super) fn end(&mut self, mut give: impl FnMut(u8)) {
        match self.at {
            At::Dash => give(b'-'),
            At::Slash => give(b'/'),
            _ => {}
        }
        self.at = At::Code;
    }

    fn byte(&mut self, byte: u8, give: &mut impl FnMut(u8)) {
        match &mut self.at {
            At::Dash | At::Slash => {
                let dash = self.at == At::Dash;
                match (dash, byte) {
                    (true, b'-') => self.at = At::Line,
                    (false, b'*') => {
                        self.at = At::Block(1, 0);
                        // Unlike one of a line, it stands between two texts, and not within one.
                        self.escaped = (false, false);
                    }
                    _ => {
                        self.at = At::Code;
                        self.code(if dash { b'-' } else { b'/' }, give);
                        self.byte(byte, give);
                        return;
                    }
                }
                // It parts words, as a blank does.
                self.word = Word::None;
                self.space(b' ', give);
            }
            At::Line if matches!(byte, b'\n' | b'\r') => {
                self.at = At::Code;
                self.byte(byte, give);
            }
            At::Line => {}
            At::Block(depth, before) => match (*before, byte) {
                (b'/', b'*') => (*depth, *before) = (*depth + 1, 0),
                (b'*', b'/') => {
                    (*depth, *before) = (*depth - 1, 0);
                    if *depth == 0 {
                        self.at = At::Code;
                    }
                }
                (_, byte) => *before = byte,
            },
            At::Text { escapes, backslash } => {
                give(byte);
                let escaped = std::mem::take(backslash);
                match byte {
                    b'\'' if escaped && *escapes => {}
                    // Where backslashes escape by a setting, the text goes on; else it ends.
                    b'\'' if escaped => self.unclear = true,
                    b'\'' => {
                        self.escaped = (*escapes, false);
                        (self.at, self.word, self.blank) = (At::Code, Word::None, None);
                    }
                    b'\\' if !escaped => {
                        *backslash = true;
                        // It may be the second half of a character.
                        self.unclear = self.before >= 0x80;
                    }
                    _ => {}
                }
            }
            At::Name => {
                give(byte);
                if byte == b'"' {
                    (self.at, self.blank) = (At::Code, None);
                }
            }
            At::Tag(tag) => match byte {
                b'$' => {
                    let mut end = std::mem::take(tag);
                    end.push(b'$');
                    give(byte);
                    self.at = At::Dollar(end, 0);
                }
                b'0'..=b'9' if tag.len() == 1 => self.not_a_tag(byte, give),
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | 0x80.. if tag.len() < MOST_TAG_BYTES => {
                    tag.push(byte);
                    give(byte);
                }
                _ => self.not_a_tag(byte, give),
            },
            At::Dollar(end, have) => {
                give(byte);
                // The delimiter has a dollar sign at its ends alone.
                *have = match end.get(*have) {
                    Some(next) if *next == byte => *have + 1,
                    _ => usize::from(byte == b'$'),
                };
                if *have == end.len() {
                    (self.at, self.word, self.blank) = (At::Code, Word::None, None);
                }
            }
            At::Code => self.code_or_comment(byte, give),
        }
    }

    fn code_or_comment(&mut self, byte: u8, give: &mut impl FnMut(u8)) {
        match byte {
            b'-' => self.at = At::Dash,
            b'/' => self.at = At::Slash,
            b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => {
                self.word = Word::None;
                self.escaped.1 |= matches!(byte, b'\n' | b'\r');
                self.space(byte, give);
            }
            _ => self.code(byte, give),
        }
    }

    /// A byte that is no comment's beginning and no blank.
    fn code(&mut self, byte: u8, give: &mut impl FnMut(u8)) {
        // Two quotes are one in a text, and behind an end of a line it goes on.
        let goes_on = self.escaped.0 && (self.escaped.1 || self.before == b'\'');
        let word = std::mem::take(&mut self.word);
        self.escaped = (false, false);
        self.blank = None;
        give(byte);
        match byte {
            b'\'' => {
                let escapes = word == Word::Escape || goes_on;
                self.at = At::Text { escapes, backslash: false };
            }
            b'"' => self.at = At::Name,
            b'$' if word == Word::None => self.at = At::Tag(vec![b'$']),
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'$' | 0x80.. => {
                let alone = word == Word::None && matches!(byte, b'e' | b'E');
                self.word = if alone { Word::Escape } else { Word::Other };
            }
            _ => {}
        }
    }

    /// A dollar sign that opens no text.
    fn not_a_tag(&mut self, byte: u8, give: &mut impl FnMut(u8)) {
        (self.at, self.word) = (At::Code, Word::Other);
        self.byte(byte, give);
    }

    /// One of several blanks is enough, and one end of a line, which matters to texts.
    fn space(&mut self, byte: u8, give: &mut impl FnMut(u8)) {
        let ends_line = matches!(byte, b'\n' | b'\r');
        if self.blank.is_none() || ends_line && self.blank == Some(b' ') {
            give(byte);
            self.blank = Some(if ends_line { byte } else { b' ' });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sallyport_audit::recording::sql::{Kind, Tokens};

    use super::*;

    fn squeezed(text: &[u8], step: usize) -> Vec<u8> {
        let (mut squeeze, mut out) = (Squeeze::default(), Vec::new());
        text.chunks(step).for_each(|part| squeeze.take(part, |byte| out.push(byte)));
        squeeze.end(|byte| out.push(byte));
        out
    }

    #[test]
    fn comments_are_dropped_and_nothing_else() {
        for (text, expected) in [
            ("select /* a /* ' */ */ 1 -- it\n\n  from t", "select 1 \nfrom t"),
            (
                "select '-- /*', \"/*\", $$ -- $$, $a$ /* $ $b$ $a$--",
                "select '-- /*', \"/*\", $$ -- $$, $a$ /* $ $b$ $a$ ",
            ),
            ("select E'a\\' -- '--x\n", "select E'a\\' -- ' \n"),
            ("select e'a' -- b\n 'c\\' -- d'", "select e'a' \n'c\\' -- d'"),
            ("select a$$--b\n$$", "select a$$ \n$$"),
            ("select 1 - -1 / 2*3 -", "select 1 - -1 / 2*3 -"),
            ("a/**/b--", "a b "),
            ("select E'a''b\\'--c'--", "select E'a''b\\'--c' "),
            ("do language e'x'\n/**/'a\\' -- b", "do language e'x'\n'a\\' -- b"),
            // A setting of the server decides what this is: all of it stays.
            ("select 'a\\' -- '; drop table t -- '", "select 'a\\' -- '; drop table t -- '"),
            ("select E'\u{3042}\\\\' /* '; drop */", "select E'\u{3042}\\\\' /* '; drop */"),
        ] {
            for step in [1, 2, 7, 1000] {
                assert_eq!(String::from_utf8_lossy(&squeezed(text.as_bytes(), step)), expected, "{step}");
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_left_is_what_the_scanner_finds(text in "[-ae1E$'\"/* \n\r;\\\\]{0,40}") {
            let out = String::from_utf8(squeezed(text.as_bytes(), 3)).unwrap();
            let tokens: Result<Vec<_>, _> = Tokens::new(&text).collect();
            if let Ok(tokens) = tokens
                && !tokens.iter().any(|token| token.kind == Kind::Plain && token.raw.contains('\\'))
            {
                let words = |text: &str| -> Vec<String> {
                    let tokens = Tokens::new(text).map(|token| token.expect("it was clear before"));
                    let code = tokens.filter(|token| !matches!(token.kind, Kind::Space | Kind::Comment));
                    code.map(|token| token.content.into_owned()).collect()
                };
                prop_assert_eq!(words(&text), words(&out));
                prop_assert!(!Tokens::new(&out).any(|token| token.unwrap().kind == Kind::Comment));
            }
        }
    }
}
