//! Texts of clients: how they are compared, how long they are, and how paths and queries write them (RFC 3986 §2.1).

/// A text without its case, for attributes that do not tell case. Full case folding it is not: `ß` and `ss` stay two.
#[must_use]
pub fn fold(text: &str) -> String {
    text.to_lowercase()
}

/// What percent signs and, in queries, plus signs stand for. None where that is not UTF-8, or a sign is not followed by two digits.
pub(crate) fn percent_decoded(text: &str, is_query: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let high = hex(rest.next()?)?;
                let low = hex(rest.next()?)?;
                high << 4 | low
            }
            b'+' if is_query => b' ',
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_signs_are_read_once() {
        assert_eq!(percent_decoded("a%20b+c%2B%c3%a9", true).unwrap(), "a b c+é");
        assert_eq!(percent_decoded("a+b%2525", false).unwrap(), "a+b%25");
        for bad in ["%", "%2", "%zz", "%ff", "%2%30"] {
            assert_eq!(percent_decoded(bad, true), None, "{bad}");
        }
    }
}
