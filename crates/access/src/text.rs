//! Text that people read in a terminal or a log, from a sender that could write something else there.

use std::fmt;

/// Whether a character changes what a person sees of the text around it: a control character, or one of the marks that
/// turn the direction of reading, join or split without being seen.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Whether a terminal, or the eyes of a person, are steered by a character: what [`is_hidden`] finds, and every other format
/// character of Unicode (general category Cf), which also covers tags and the older marks of direction. Documents that are
/// stored may hold the latter, so this is the rule of what is shown and not of what is taken.
#[must_use]
pub fn steers(c: char) -> bool {
    is_hidden(c)
        || matches!(c,
            '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}'
            | '\u{180e}' | '\u{206a}'..='\u{206f}' | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e007f}')
}

/// What stands for such a character: a blank for ends of lines and tabs, which only part words, and a mark for the others.
fn stand_in(c: char) -> char {
    match c {
        c if !steers(c) => c,
        '\t'..='\r' | '\u{85}' | '\u{2028}' | '\u{2029}' => ' ',
        _ => char::REPLACEMENT_CHARACTER,
    }
}

/// Text from a peer, for a person: on one line, and without a character that steers. What was there besides is gone, so that no
/// way of printing it brings it back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Foreign(String);

impl Foreign {
    /// Takes the text as it came.
    #[must_use]
    pub fn new(text: impl AsRef<str>) -> Self {
        Self(text.as_ref().chars().map(stand_in).collect())
    }

    /// The line.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether nothing is left but blanks.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.0.trim().is_empty()
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl From<Foreign> for String {
    fn from(text: Foreign) -> Self {
        text.0
    }
}

/// Lines of a program's own, which may quote others: ends of lines and tabs stay, and nothing else that steers.
#[must_use]
pub fn lines(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        // A terminal in raw mode needs both.
        let ends_line = c == '\r' && characters.peek() == Some(&'\n');
        shown.push(if ends_line || matches!(c, '\n' | '\t') { c } else { stand_in(c) });
    }
    shown
}

/// A text with a character that cannot be seen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} has the character {bad:?}, which is invisible; write it without")]
pub struct HiddenCharacter {
    /// What the text is for.
    pub what: &'static str,
    /// The first such character.
    pub bad: char,
}

/// Checks a text on one line.
///
/// # Errors
/// [`HiddenCharacter`].
pub fn check(what: &'static str, text: &str) -> Result<(), HiddenCharacter> {
    match text.chars().find(|c| is_hidden(*c)) {
        None => Ok(()),
        Some(bad) => Err(HiddenCharacter { what, bad }),
    }
}

/// The text with a space for each such character, and of at most `longest` characters: for what cannot be refused.
#[must_use]
pub fn shown(text: &str, longest: usize) -> String {
    text.chars().take(longest).map(|c| if is_hidden(c) { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_of_others_stays_on_its_line_and_lines_of_ours_stay_lines() {
        let hostile = "no\nerror: \x1b[2Jall is well\u{9b}31m\t\u{202e}txt.exe\u{e0041}";
        let foreign = Foreign::new(hostile);
        assert_eq!(
            foreign.to_string(),
            "no error: \u{fffd}[2Jall is well\u{fffd}31m \u{fffd}txt.exe\u{fffd}"
        );
        assert_eq!(format!("{:>4}", Foreign::new("a\n")), "  a ");
        assert!(Foreign::new("\r\n").is_blank());
        assert_eq!(lines("a\r\n\tb\rc\x07\n"), "a\r\n\tb c\u{fffd}\n");
        assert_eq!(Foreign::new("größe – 1:2 ünïcode 日本").as_str(), "größe – 1:2 ünïcode 日本");
    }

    proptest! {
        #[test]
        fn attacks_nothing_that_steers_passes(text in any::<String>(), at in prop::collection::vec(any::<char>(), 0..20)) {
            let text: String = text.chars().chain(at).collect();
            prop_assert!(!Foreign::new(&text).as_str().chars().any(steers));
            let kept = lines(&text);
            prop_assert!(!kept.replace("\r\n", "\n").chars().any(|c| steers(c) && !matches!(c, '\n' | '\t')));
            prop_assert_eq!(kept.chars().count(), text.chars().count());
        }
    }

    /// Every character there is, since a random one is seldom of those that matter.
    #[test]
    fn no_character_passes_that_is_a_control_or_turns_direction() {
        for c in '\0'..=char::MAX {
            let mut shown = String::new();
            shown.push(c);
            let shown = Foreign::new(&shown);
            let left = shown.as_str().chars().next().unwrap();
            assert!(!left.is_control() && !steers(left), "{c:?}");
        }
    }

    #[test]
    fn what_nobody_sees_is_found() {
        assert_eq!(check("a message", "größe – 1:2 ünïcode"), Ok(()));
        for bad in ['\u{1b}', '\n', '\0', '\u{7f}', '\u{9b}', '\u{202e}', '\u{2066}', '\u{200b}', '\u{feff}']
        {
            assert_eq!(check("x", &format!("a{bad}b")), Err(HiddenCharacter { what: "x", bad }));
            assert_eq!(shown(&format!("a{bad}bcd"), 3), "a b");
        }
    }
}
