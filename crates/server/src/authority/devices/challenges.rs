//! What devices sign. A challenge is in no state until it is used: it carries its time, and a tag that this process alone can make, so
//! that strangers who ask for many cost nothing. The state has those that were used, until they are over.

use sallyport_sal::algorithm::HashAlgorithm;
use sallyport_sal::hash::{self, Hmac, SHA256_BYTES};
use sallyport_sal::random;
use sallyport_store::{Op, StoreError, typed};
use time::{Duration, OffsetDateTime};

use super::records::SpentChallengeRecord;
use crate::ServerError;
use crate::authority::errors::doing;

/// How long a device may take to sign: a person may have to type a PIN.
pub(crate) const LIFETIME: Duration = Duration::minutes(2);
const RANDOM_BYTES: usize = 16;
const TIME_BYTES: usize = 8;

/// Makes challenges, and knows its own.
#[derive(Debug)]
pub(crate) struct Challenger {
    key: Hmac,
}

/// A challenge of this process that is not over.
#[derive(Debug)]
pub(crate) struct Good {
    name: String,
    ends: OffsetDateTime,
}

impl Good {
    /// The step that uses it. It fails where the challenge was used.
    pub(crate) fn spent(&self) -> Result<Op, StoreError> {
        typed::create(&self.name, &SpentChallengeRecord {}, Some(self.ends))
    }

    /// Whether a failure is that of [`Self::spent`].
    pub(crate) fn was_used(error: &StoreError) -> bool {
        matches!(error, StoreError::Exists { key } if key.starts_with(&typed::key::<SpentChallengeRecord>("")))
    }
}

impl Challenger {
    pub(crate) fn new() -> Result<Self, ServerError> {
        let key = random::bytes::<SHA256_BYTES>().map_err(doing("make a key for challenges"))?;
        let key = Hmac::new(HashAlgorithm::Sha256, &key).map_err(doing("make a key for challenges"))?;
        Ok(Self { key })
    }

    pub(crate) fn make(&self, now: OffsetDateTime) -> Result<Vec<u8>, sallyport_sal::SalError> {
        let mut challenge = now.unix_timestamp().to_be_bytes().to_vec();
        challenge.extend_from_slice(&random::bytes::<RANDOM_BYTES>()?);
        let mut tag = [0; SHA256_BYTES];
        self.key.sign(&[&challenge], &mut tag);
        challenge.extend_from_slice(&tag);
        Ok(challenge)
    }

    /// A challenge that this process has made, a short while ago.
    pub(crate) fn check(&self, challenge: &[u8], now: OffsetDateTime) -> Option<Good> {
        let (said, tag) = challenge.split_at_checked(TIME_BYTES + RANDOM_BYTES)?;
        if !self.key.verify(&[said], tag) {
            return None;
        }
        let time = said.first_chunk::<TIME_BYTES>()?;
        let made = OffsetDateTime::from_unix_timestamp(i64::from_be_bytes(*time)).ok()?;
        let name = data_encoding::HEXLOWER.encode(&hash::sha256(challenge));
        // The clock may have been put back.
        let is_of_now = made - LIFETIME <= now && now < made + LIFETIME;
        is_of_now.then_some(Good { name, ends: made + 2 * LIFETIME })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_good_at_its_own_authority_for_two_minutes_and_as_it_was_made() {
        let (own, other) = (Challenger::new().unwrap(), Challenger::new().unwrap());
        let now = OffsetDateTime::now_utc();
        let challenge = own.make(now).unwrap();
        assert!(own.check(&challenge, now).is_some());
        assert!(own.check(&challenge, now + LIFETIME - Duration::seconds(1)).is_some());
        assert!(own.check(&challenge, now + LIFETIME + Duration::seconds(1)).is_none());
        assert!(other.check(&challenge, now).is_none());
        assert_ne!(challenge, own.make(now).unwrap());
        for at in 0..challenge.len() {
            let mut altered = challenge.clone();
            altered[at] ^= 1;
            assert!(own.check(&altered, now).is_none(), "byte {at}");
            assert!(own.check(&challenge[..at], now).is_none(), "{at} bytes");
        }
        let longer = [&challenge[..], &[0]].concat();
        assert!(own.check(&longer, now).is_none());
    }
}
