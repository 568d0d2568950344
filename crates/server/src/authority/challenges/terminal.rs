//! The code that a terminal shows, and that the person types at the page: who has the address alone does not have it.

use sallyport_audit::Code;
use sallyport_sal::{constant_time_eq, random};
use sallyport_store::Stored;
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::challenges::kept::Challenges;
use crate::authority::challenges::pages::Browser;
use crate::authority::challenges::records::ChallengeRecord;
use crate::authority::secrets::hash_of;

/// Letters of a code: no vowels, which make words, and none that look alike.
const ALPHABET: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";
/// How many it has: 34 bits, for a challenge that ends with the fifth wrong one.
const LETTERS: usize = 8;

/// A fresh code, as the terminal shows it.
pub(crate) fn fresh() -> Result<String, Status> {
    let mut code = String::new();
    while code.len() < LETTERS {
        let bytes = random::bytes::<32>().map_err(|error| Status::internal(error.to_string()))?;
        // Of 256 values the first 240 are 12 times the alphabet.
        let fair = bytes.iter().filter(|byte| **byte < 240);
        let letters = fair.filter_map(|byte| ALPHABET.get(usize::from(*byte) % ALPHABET.len()));
        code.extend(letters.take(LETTERS - code.len()).map(|letter| char::from(*letter)));
    }
    let (left, right) = code.split_at(LETTERS / 2);
    Ok(format!("{left}-{right}"))
}

/// A code as it is kept, however it is typed: hashed without dashes and in capitals.
pub(crate) fn hashed(code: &str) -> String {
    let plain: String =
        code.chars().filter(char::is_ascii_alphabetic).map(|letter| letter.to_ascii_uppercase()).collect();
    hash_of(&plain)
}

impl Challenges {
    /// The code that the terminal shows was typed at the page; a wrong one counts, and the fifth ends the challenge.
    pub(super) async fn code_is_typed(
        &self,
        browser: &Browser,
        stored: &Stored<ChallengeRecord>,
        code: &str,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        let Some(expected) = &stored.value.terminal_code else {
            return Err(Status::failed_precondition(
                "this was begun without a code for its terminal to show; begin again with the command that opened it",
            ));
        };
        if constant_time_eq(hashed(code).as_bytes(), expected.as_bytes()) {
            return Ok(());
        }
        let whose = stored.value.user.as_ref().map(ToString::to_string).unwrap_or_default();
        let event = browser.event(Code::ChallengeRefused).user(whose).message("wrong code of the terminal");
        self.wrong_proof(&browser.caller, stored, event, now).await?;
        Err(Status::permission_denied(
            "the code is not the one that the terminal shows; type it as it stands there. If no terminal of yours shows one, refuse this request",
        ))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_read_however_it_is_typed() {
        let code = fresh().unwrap();
        assert_eq!((code.len(), code.chars().nth(4)), (9, Some('-')), "{code}");
        assert_eq!(hashed(&code), hashed(&format!(" {} ", code.to_lowercase().replace('-', " "))));
        assert_ne!(hashed(&code), hashed(&fresh().unwrap()));
    }
}
