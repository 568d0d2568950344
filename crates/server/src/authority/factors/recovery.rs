//! Recovery codes: ten, each of them good once. A code begins with its index, so that one slow hash checks it.

use data_encoding::BASE32_NOPAD;
use sallyport_sal::{SalError, random};
use zeroize::Zeroizing;

/// How many codes a user has.
pub(crate) const CODES: usize = 10;
/// Secret bytes of a code: 80 bits, behind argon2id and the account's lockout.
const SECRET_BYTES: usize = 10;
/// Letters of the secret.
const LETTERS: usize = 16;

/// A recovery code, as a person typed it: upper or lower case, with or without dashes and spaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecoveryCode {
    pub(crate) index: usize,
    /// In the one spelling that is hashed.
    pub(crate) secret: Zeroizing<String>,
}

impl RecoveryCode {
    /// A fresh code, and how it is shown.
    pub(crate) fn fresh(index: usize) -> Result<(Self, String), SalError> {
        let bytes = Zeroizing::new(random::bytes::<SECRET_BYTES>()?);
        let secret = Zeroizing::new(BASE32_NOPAD.encode(&*bytes).to_ascii_lowercase());
        let mut text = index.to_string();
        for (at, letter) in secret.chars().enumerate() {
            if at % 4 == 0 {
                text.push('-');
            }
            text.push(letter);
        }
        Ok((Self { index, secret }, text))
    }

    /// Reads a code; none where the text has not the form of one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let plain: Zeroizing<String> = Zeroizing::new(
            text.chars()
                .filter(|letter| !letter.is_whitespace() && *letter != '-')
                .map(|letter| letter.to_ascii_lowercase())
                .collect(),
        );
        let mut letters = plain.chars();
        let index = usize::try_from(letters.next()?.to_digit(10)?).ok()?;
        let secret = Zeroizing::new(letters.as_str().to_owned());
        let fits = secret.len() == LETTERS
            && secret.bytes().all(|byte| byte.is_ascii_lowercase() || (b'2'..=b'7').contains(&byte));
        fits.then_some(Self { index, secret })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_read_however_it_is_spelled() {
        let (code, text) = RecoveryCode::fresh(7).unwrap();
        assert!(text.starts_with("7-") && text.len() == 21, "{text}");
        for spelled in [text.clone(), text.to_uppercase(), text.replace('-', " "), text.replace('-', "")] {
            assert_eq!(RecoveryCode::parse(&spelled).unwrap(), code, "{spelled}");
        }
    }

    #[test]
    fn nothing_else_is_a_code() {
        for text in
            ["", "123456", "7", "x-abcd-efgh-ijkl-mnop", "7-abcd-efgh-ijkl-mno", "7-abcd-efgh-ijkl-mno1"]
        {
            assert_eq!(RecoveryCode::parse(text), None, "{text}");
        }
        assert_ne!(RecoveryCode::fresh(1).unwrap().1, RecoveryCode::fresh(1).unwrap().1);
    }
}
