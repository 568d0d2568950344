//! Authenticator data: what the authenticator signs about itself and the credential (WebAuthn L3 §6.1).

use uuid::Uuid;

use crate::cbor::{self, CborError, Order};
use crate::cose::{CoseError, CredentialKey};

/// Longest credential ID, in bytes (WebAuthn L3 §6.5.1).
pub const MAX_CREDENTIAL_ID_BYTES: usize = 1023;

/// Bytes ahead of what is optional: the hash of the RP ID, the flags and the counter.
const FIXED_BYTES: usize = 37;

/// Why authenticator data cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthenticatorDataError {
    /// It ends before all that its flags promise.
    #[error("it ends before {0}")]
    Short(&'static str),
    /// Bytes follow what its flags promise.
    #[error("{0} bytes follow its end")]
    Trailing(usize),
    /// The credential's public key cannot be read.
    #[error("the credential's public key")]
    Key(#[from] CoseError),
    /// The extension outputs are not a canonical map.
    #[error("the extension outputs")]
    Extensions(#[from] CborError),
    /// The extension outputs are something else than a map.
    #[error("the extension outputs are not a map")]
    ExtensionsNotMap,
}

/// The flags (§6.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flags(u8);

impl Flags {
    /// UP, bit 0.
    pub(crate) fn user_present(self) -> bool {
        self.0 & 0x01 != 0
    }

    /// UV, bit 2.
    pub(crate) fn user_verified(self) -> bool {
        self.0 & 0x04 != 0
    }

    /// BE, bit 3.
    pub(crate) fn backup_eligible(self) -> bool {
        self.0 & 0x08 != 0
    }

    /// BS, bit 4.
    pub(crate) fn backed_up(self) -> bool {
        self.0 & 0x10 != 0
    }

    /// AT, bit 6.
    fn attested_credential(self) -> bool {
        self.0 & 0x40 != 0
    }

    /// ED, bit 7.
    fn extensions(self) -> bool {
        self.0 & 0x80 != 0
    }
}

/// Attested credential data (§6.5.1).
#[derive(Debug, Clone)]
pub(crate) struct AttestedCredential<'a> {
    pub(crate) aaguid: Uuid,
    pub(crate) id: &'a [u8],
    pub(crate) key: CredentialKey,
    /// The key as it stands there.
    pub(crate) cose: &'a [u8],
}

/// All of it.
#[derive(Debug, Clone)]
pub(crate) struct AuthenticatorData<'a> {
    pub(crate) rp_id_hash: &'a [u8],
    pub(crate) flags: Flags,
    pub(crate) sign_count: u32,
    pub(crate) credential: Option<AttestedCredential<'a>>,
}

impl<'a> AuthenticatorData<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, AuthenticatorDataError> {
        let short = AuthenticatorDataError::Short;
        let (fixed, mut rest) = bytes.split_at_checked(FIXED_BYTES).ok_or(short("its counter"))?;
        let (rp_id_hash, fixed) = fixed.split_at_checked(32).ok_or(short("its flags"))?;
        let (flags, counter) = fixed.split_first().ok_or(short("its flags"))?;
        let flags = Flags(*flags);
        let sign_count = u32::from_be_bytes(counter.try_into().map_err(|_| short("its counter"))?);
        let mut credential = None;
        if flags.attested_credential() {
            let (attested, after) = attested(rest)?;
            credential = Some(attested);
            rest = after;
        }
        if flags.extensions() {
            let (value, used) = cbor::first(rest, Order::Canonical)?;
            if value.map().is_none() {
                return Err(AuthenticatorDataError::ExtensionsNotMap);
            }
            rest = rest.get(used..).unwrap_or_default();
        }
        if !rest.is_empty() {
            return Err(AuthenticatorDataError::Trailing(rest.len()));
        }
        Ok(Self { rp_id_hash, flags, sign_count, credential })
    }
}

fn attested(bytes: &[u8]) -> Result<(AttestedCredential<'_>, &[u8]), AuthenticatorDataError> {
    let short = AuthenticatorDataError::Short;
    let (aaguid, rest) = bytes.split_first_chunk::<16>().ok_or(short("the AAGUID"))?;
    let (length, rest) = rest.split_first_chunk::<2>().ok_or(short("the credential ID"))?;
    let length = usize::from(u16::from_be_bytes(*length));
    let (id, rest) = rest.split_at_checked(length).ok_or(short("the end of the credential ID"))?;
    let (key, used) = CredentialKey::first(rest)?;
    let (cose, rest) = rest.split_at_checked(used).ok_or(short("the end of the public key"))?;
    Ok((AttestedCredential { aaguid: Uuid::from_bytes(*aaguid), id, key, cose }, rest))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn flags_promise_and_bytes_keep() {
        let mut bytes = vec![0; 37];
        let data = AuthenticatorData::parse(&bytes).unwrap();
        assert!(!data.flags.user_present() && data.credential.is_none() && data.sign_count == 0);
        bytes[32] = 0x80;
        assert!(matches!(AuthenticatorData::parse(&bytes), Err(AuthenticatorDataError::Extensions(_))));
        bytes.push(0xa0);
        assert!(AuthenticatorData::parse(&bytes).is_ok());
        bytes[37] = 0x00;
        assert_eq!(AuthenticatorData::parse(&bytes).unwrap_err(), AuthenticatorDataError::ExtensionsNotMap);
        bytes[32] = 0;
        assert_eq!(AuthenticatorData::parse(&bytes).unwrap_err(), AuthenticatorDataError::Trailing(1));
        bytes[32] = 0x40;
        assert_eq!(
            AuthenticatorData::parse(&bytes).unwrap_err(),
            AuthenticatorDataError::Short("the AAGUID")
        );
        assert_eq!(
            AuthenticatorData::parse(&[0; 36]).unwrap_err(),
            AuthenticatorDataError::Short("its counter")
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_within_bounds(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            if let Ok(data) = AuthenticatorData::parse(&bytes) {
                prop_assert_eq!(data.rp_id_hash, &bytes[..32]);
            }
        }
    }
}
