//! One-time codes (RFC 6238): HMAC-SHA-1, 6 digits, 30 seconds, one step of tolerance either way, as every
//! authenticator application understands them. HMAC-SHA-1 is AWS-LC's in every build: approved in the FIPS module. The only
//! other use of SHA-1 is to look up passwords in lists that are kept by it ([`breached`](crate::breached)).

use std::fmt;
use std::time::Duration;

use aws_lc_rs::hmac;
use data_encoding::BASE32_NOPAD;
use time::OffsetDateTime;
use zeroize::Zeroizing;

use crate::uses::{self, Aside};
use crate::{SalError, constant_time_eq, random};

/// Digits of a code.
pub const DIGITS: u8 = 6;
/// Length of a time step, in seconds.
pub const STEP_SECONDS: u64 = 30;
/// Steps accepted before and after the present one (RFC 6238 §5.2).
pub const TOLERANCE_STEPS: u16 = 1;
/// Length of a fresh secret, in bytes (RFC 4226 §4 R6 recommends 160 bits).
pub const SECRET_BYTES: usize = 20;
/// Shortest secret accepted, in bytes (RFC 4226 §4 R6).
pub const MIN_SECRET_BYTES: usize = 16;

/// The secret shared with a person's authenticator.
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Makes a fresh secret.
    ///
    /// # Errors
    /// [`SalError::Provider`] when there is no randomness.
    pub fn generate() -> Result<Self, SalError> {
        let mut bytes = Zeroizing::new(vec![0; SECRET_BYTES]);
        random::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// Takes the bytes of a secret.
    ///
    /// # Errors
    /// [`SalError::BadTotpSecret`] when there are fewer than 16.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SalError> {
        if bytes.len() < MIN_SECRET_BYTES {
            return Err(SalError::BadTotpSecret {
                reason: format!("it has {} bytes, at least {MIN_SECRET_BYTES} are needed", bytes.len()),
            });
        }
        Ok(Self(Zeroizing::new(bytes.to_vec())))
    }

    /// Reads base32 (RFC 4648 §6) without padding, as it stands in an `otpauth:` URI; case does not matter.
    ///
    /// # Errors
    /// [`SalError::BadTotpSecret`] when it is not base32 or too short.
    pub fn from_base32(text: &str) -> Result<Self, SalError> {
        let upper = Zeroizing::new(text.trim().trim_end_matches('=').to_ascii_uppercase());
        let bytes = BASE32_NOPAD
            .decode(upper.as_bytes())
            .map(Zeroizing::new)
            .map_err(|error| SalError::BadTotpSecret { reason: error.to_string() })?;
        Self::from_bytes(&bytes)
    }

    /// The bytes, for storing them sealed.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Base32 without padding, for typing it into an authenticator.
    #[must_use]
    pub fn to_base32(&self) -> Zeroizing<String> {
        Zeroizing::new(BASE32_NOPAD.encode(&self.0))
    }

    /// The `otpauth:` URI that authenticators scan as a QR code.
    #[must_use]
    pub fn uri(&self, issuer: &str, account: &str) -> Zeroizing<String> {
        let (issuer, account, secret) = (percent(issuer), percent(account), self.to_base32());
        Zeroizing::new(format!(
            "otpauth://totp/{issuer}:{account}?secret={}&issuer={issuer}&algorithm=SHA1&digits={DIGITS}&period={STEP_SECONDS}",
            secret.as_str()
        ))
    }

    /// The code of the present step: for tests, tools and the first enrolment of the quickstart.
    #[must_use]
    pub fn code(&self, now: OffsetDateTime) -> String {
        self.at_step(seconds(now) / STEP_SECONDS, DIGITS)
    }

    /// Checks a code. The result is the step it belongs to, which the caller must keep: pass it as `last_step` from
    /// then on, so that no code is accepted twice, nor an older one after a newer (RFC 6238 §5.2). However a code is
    /// spelled, it is the same code: spaces are ignored, as authenticators show them, and full-width digits are read as
    /// digits, as keyboards for Chinese, Japanese and Korean write them.
    #[must_use]
    pub fn verify(&self, code: &str, now: OffsetDateTime, last_step: Option<u64>) -> Option<u64> {
        self.step(code, now).filter(|step| last_step.is_none_or(|last| *step > last))
    }

    /// How long it takes, once `last_step` is used, until an authenticator shows a code that is not: where `code` is right
    /// for its time, and of a step that is used. None for every other code. Only who has proven the password may be told.
    #[must_use]
    pub fn until_unused(&self, code: &str, now: OffsetDateTime, last_step: Option<u64>) -> Option<Duration> {
        let last = last_step?;
        self.step(code, now).filter(|step| *step <= last)?;
        let next = last.saturating_add(1).saturating_mul(STEP_SECONDS);
        Some(Duration::from_secs(next.saturating_sub(seconds(now)).max(1)))
    }

    /// The step that a code belongs to, of those that are accepted at a time.
    fn step(&self, code: &str, now: OffsetDateTime) -> Option<u64> {
        let code: Zeroizing<String> =
            Zeroizing::new(code.chars().filter(|c| !c.is_whitespace()).map(narrow).collect());
        if code.len() != usize::from(DIGITS) || !code.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let (present, tolerance) = (seconds(now) / STEP_SECONDS, u64::from(TOLERANCE_STEPS));
        let mut found = None;
        // All of them, whichever it is: how long it takes tells nothing.
        for step in present.saturating_sub(tolerance)..=present.saturating_add(tolerance) {
            let expected = Zeroizing::new(self.at_step(step, DIGITS));
            if constant_time_eq(expected.as_bytes(), code.as_bytes()) {
                found = found.or(Some(step));
            }
        }
        found
    }

    /// The code of a time step (RFC 4226 §5.3, RFC 6238 §4.2).
    fn at_step(&self, step: u64, digits: u8) -> String {
        uses::count(Aside::OneTimeCode);
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &self.0);
        let tag = hmac::sign(&key, &step.to_be_bytes());
        let offset = usize::from(tag.as_ref().last().copied().unwrap_or_default() & 0x0f);
        let chosen = tag.as_ref().get(offset..).and_then(|rest| rest.first_chunk()).copied();
        let number = u32::from_be_bytes(chosen.unwrap_or_default()) & 0x7fff_ffff;
        format!("{:0width$}", number % 10u32.pow(u32::from(digits)), width = usize::from(digits))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// [`Secret::uri`] as a function.
#[must_use]
pub fn uri(secret: &Secret, issuer: &str, account: &str) -> Zeroizing<String> {
    secret.uri(issuer, account)
}

/// A full-width digit (U+FF10 to U+FF19) as the digit that it is compatible with (Unicode NFKC); everything else as it is.
fn narrow(character: char) -> char {
    match character {
        '\u{ff10}'..='\u{ff19}' => {
            char::from_u32(u32::from(character) - 0xff10 + u32::from('0')).unwrap_or(character)
        }
        other => other,
    }
}

fn seconds(now: OffsetDateTime) -> u64 {
    u64::try_from(now.unix_timestamp()).unwrap_or(0)
}

/// Percent-encodes everything outside the unreserved set (RFC 3986 §2.3).
fn percent(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn at(seconds: i64) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(seconds).unwrap()
    }

    /// RFC 6238 appendix B, the rows of SHA-1.
    const VECTORS: [(i64, &str); 6] = [
        (59, "94287082"),
        (1_111_111_109, "07081804"),
        (1_111_111_111, "14050471"),
        (1_234_567_890, "89005924"),
        (2_000_000_000, "69279037"),
        (20_000_000_000, "65353130"),
    ];

    fn rfc_secret() -> Secret {
        Secret::from_bytes(b"12345678901234567890").unwrap()
    }

    #[test]
    fn matches_the_vectors_of_rfc_6238() {
        for (time, code) in VECTORS {
            assert_eq!(rfc_secret().at_step(seconds(at(time)) / STEP_SECONDS, 8), code, "at {time}");
            // Fewer digits are the last ones (RFC 4226 §5.3).
            let six = code.get(2..).unwrap();
            assert_eq!(rfc_secret().code(at(time)), six);
            assert_eq!(rfc_secret().verify(six, at(time), None), Some(seconds(at(time)) / STEP_SECONDS));
        }
    }

    #[test]
    fn a_code_serves_one_step_either_way_and_once() {
        let secret = rfc_secret();
        let code = secret.code(at(1_000_000_000));
        let step = 1_000_000_000 / STEP_SECONDS;
        for offset in [-30, 0, 30] {
            assert_eq!(secret.verify(&code, at(1_000_000_000 + offset), None), Some(step), "{offset}");
        }
        for offset in [-61, 61] {
            assert_eq!(secret.verify(&code, at(1_000_000_000 + offset), None), None, "{offset}");
        }
        assert_eq!(secret.verify(&code, at(1_000_000_000), Some(step - 1)), Some(step));
        assert_eq!(secret.verify(&code, at(1_000_000_000), Some(step)), None);
        assert_eq!(secret.verify(&code, at(1_000_000_000), Some(step + 1)), None);
    }

    #[test]
    fn a_used_code_says_when_the_next_comes_and_a_wrong_one_nothing() {
        let (secret, now) = (rfc_secret(), at(1_000_000_000));
        let step = 1_000_000_000 / STEP_SECONDS;
        let left = Duration::from_secs(STEP_SECONDS - 1_000_000_000 % STEP_SECONDS);
        let code = secret.code(now);
        assert_eq!(secret.until_unused(&code, now, Some(step)), Some(left));
        assert_eq!(secret.until_unused(&code, now, Some(step + 1)), Some(left + Duration::from_secs(30)));
        // One that is a step late: the present one is unused.
        assert_eq!(secret.until_unused(&code, at(1_000_000_030), Some(step)), Some(Duration::from_secs(1)));
        assert_eq!(secret.until_unused(&code, now, None), None, "never used");
        assert_eq!(secret.until_unused(&code, now, Some(step - 1)), None, "not used");
        assert_eq!(secret.until_unused("000000", now, Some(step)), None, "wrong");
        assert_eq!(secret.until_unused(&code, at(1_000_000_061), Some(step)), None, "of a time that is over");
    }

    #[test]
    fn codes_are_six_digits_with_or_without_a_gap() {
        let (secret, now) = (rfc_secret(), at(59));
        let step = Some(59 / STEP_SECONDS);
        for same in ["287 082", " 287082\n", "２８７０８２", "２８7０82", "２８７\u{3000}０８２\u{a0}"]
        {
            assert_eq!(secret.verify(same, now, None), step, "{same}");
            assert_eq!(secret.verify(same, now, step), None, "{same}, used");
        }
        // Digits of other scripts are no spelling of these; a zero-width space is no space.
        for wrong in
            ["", "28708", "2870822", "28708x", "287083", "94287082", "２８７０８", "٢٨٧٠٨٢", "287\u{200b}082"]
        {
            assert_eq!(secret.verify(wrong, now, None), None, "{wrong}");
        }
    }

    #[test]
    fn secrets_travel_as_base32_and_uri() {
        let secret = rfc_secret();
        let text = secret.to_base32();
        assert_eq!(text.as_str(), "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ");
        assert_eq!(Secret::from_base32(&text.to_lowercase()).unwrap().as_bytes(), secret.as_bytes());
        assert_eq!(
            secret.uri("my cluster", "alice@example.com").as_str(),
            "otpauth://totp/my%20cluster:alice%40example.com?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ&issuer=my%20cluster&algorithm=SHA1&digits=6&period=30"
        );
        assert!(Secret::from_base32("short").is_err());
        assert!(Secret::from_base32("not base32!").is_err());
        assert_ne!(Secret::generate().unwrap().as_bytes(), Secret::generate().unwrap().as_bytes());
        assert_eq!(format!("{secret:?}"), "Secret(..)");
    }
}
