//! Patterns in remote names: `*`, `?`, `[a-z]`, and `\` before any of them for itself.

/// Whether a name has to be looked for rather than taken as it is.
pub(super) fn is_pattern(text: &str) -> bool {
    let mut escaped = false;
    for c in text.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '*' | '?' | '[' => return true,
            _ => {}
        }
    }
    false
}

/// The name without its escapes.
pub(super) fn literal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut escaped = false;
    for c in text.chars() {
        if c == '\\' && !escaped {
            escaped = true;
        } else {
            out.push(c);
            escaped = false;
        }
    }
    if escaped {
        out.push('\\');
    }
    out
}

/// Whether one component of a path fits. A leading dot must be written out, as in a shell.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !pattern.starts_with('.') && !pattern.starts_with("\\.") {
        return false;
    }
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    fits(&pattern, &name)
}

fn fits(mut pattern: &[char], mut name: &[char]) -> bool {
    // Where to take up again when a star has to swallow one more character.
    let mut star: Option<(&[char], &[char])> = None;
    loop {
        let step = match (pattern, name) {
            (['*', rest @ ..], _) => {
                star = Some((rest, name));
                pattern = rest;
                continue;
            }
            ([], []) => return true,
            (['?', rest @ ..], [_, tail @ ..]) => Some((rest, tail)),
            (['[', rest @ ..], [c, tail @ ..]) => match class(rest, *c) {
                Some((true, rest)) => Some((rest, tail)),
                Some((false, _)) => None,
                // No closing bracket: the bracket means itself.
                None if *c == '[' => Some((rest, tail)),
                None => None,
            },
            (['\\', escaped, rest @ ..], [c, tail @ ..]) if escaped == c => Some((rest, tail)),
            ([p, rest @ ..], [c, tail @ ..]) if p == c && *p != '\\' => Some((rest, tail)),
            _ => None,
        };
        match (step, star) {
            (Some((rest, tail)), _) => (pattern, name) = (rest, tail),
            (None, Some((after, [_, tail @ ..]))) => {
                star = Some((after, tail));
                (pattern, name) = (after, tail);
            }
            _ => return false,
        }
    }
}

/// Whether a character is in the class, and what follows the class. `None` when it does not end.
fn class(pattern: &[char], c: char) -> Option<(bool, &[char])> {
    let (negated, mut rest) = match pattern {
        ['!' | '^', rest @ ..] => (true, rest),
        _ => (false, pattern),
    };
    let mut found = false;
    let mut first = true;
    loop {
        match rest {
            [']', tail @ ..] if !first => return Some((found != negated, tail)),
            [low, '-', high, tail @ ..] if *high != ']' => {
                found |= (*low..=*high).contains(&c);
                rest = tail;
            }
            [one, tail @ ..] => {
                found |= *one == c;
                rest = tail;
            }
            [] => return None,
        }
        first = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_as_in_a_shell() {
        for (pattern, fitting, not) in [
            ("*.log", &["a.log", "x.y.log"][..], &["a.txt", ".log", "log"][..]),
            ("a?c", &["abc", "a.c"], &["ac", "abbc"]),
            ("[a-c]x", &["ax", "cx"], &["dx", "x"]),
            ("[!a]x", &["bx"], &["ax"]),
            ("[]]x", &["]x"], &["x"]),
            ("a*b*c", &["abc", "aXbYc", "abbc"], &["ab", "acb"]),
            (r"\*", &["*"], &["a", "**"]),
            (".*", &[".a"], &["a"]),
            ("*", &["a", "日本"], &[".a"]),
            ("a[b", &["a[b"], &["ab"]),
        ] {
            for name in fitting {
                assert!(matches(pattern, name), "{pattern} {name}");
            }
            for name in not {
                assert!(!matches(pattern, name), "{pattern} {name}");
            }
        }
        // Many stars must not take for ever.
        assert!(!matches("*a*a*a*a*a*a*a*a*a*a*a*a*b", &"a".repeat(2000)));
    }

    #[test]
    fn escapes_make_a_pattern_a_name() {
        assert!(is_pattern("a*") && !is_pattern(r"a\*") && !is_pattern("a"));
        assert_eq!(literal(r"a\*b\\c"), r"a*b\c");
    }
}
