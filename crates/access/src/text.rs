//! Text that people read in a terminal or a log, from whoever could write something else there.

/// Whether a character changes what a person sees of the text around it: a control character, or one of the marks that
/// turn the direction of reading, join or split without being seen.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// A text with a character that cannot be seen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} has the character {bad:?}, which nobody sees; write it without")]
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
    use super::*;

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
