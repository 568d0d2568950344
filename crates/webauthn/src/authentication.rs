//! Verifying an authentication assertion (WebAuthn L3 §7.2).

use time::OffsetDateTime;

use crate::authenticator_data::AuthenticatorData;
use crate::client_data;
use crate::credential::{Credential, UserHandle};
use crate::error::WebAuthnError;
use crate::options::{Hint, RequestOptions};
use crate::pending::Pending;
use crate::purpose::{Ceremony, Purpose};
use crate::relying_party::{BackupPolicy, CounterPolicy, RelyingParty, UserVerification};
use crate::response::AuthenticationResponse;

/// Whose passkey is asked for.
#[derive(Debug, Clone, Copy)]
pub enum Who<'a> {
    /// Any user's: the passkey says whose it is, so it has to be one that is stored on its device. Also the answer to a user
    /// name that does not exist, which looks the same from outside (§14.6.2).
    Anyone,
    /// One of this user's.
    User {
        /// The user.
        handle: &'a UserHandle,
        /// The passkeys that will do, at least one.
        credentials: &'a [Credential],
    },
}

/// What of the options is chosen for one authentication.
#[derive(Debug, Clone, Default)]
pub struct AuthenticationChoice {
    /// What the user is likely to use.
    pub hints: Vec<Hint>,
    /// Another rule about the user's verification than the relying party's.
    pub user_verification: Option<UserVerification>,
}

/// An authentication that was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authentication {
    /// The record with its new state, to be stored in place of the old one.
    pub credential: Credential,
    /// Whether the authenticator verified the user.
    pub user_verified: bool,
    /// The counter did not grow, and the policy is to go on: a copy of the passkey may be in use.
    pub clone_suspected: bool,
    /// Whether there is a copy of the passkey now, where that changed since the last use.
    pub backup_changed: Option<bool>,
}

impl RelyingParty {
    /// Begins an authentication: step 1 of §7.2.
    ///
    /// # Errors
    /// [`WebAuthnError::UserNeeded`] when it is for something that only a known user can do,
    /// [`WebAuthnError::NoCredentials`] when the user has none, and [`WebAuthnError::Challenge`] when there is no randomness.
    pub fn begin_authentication(
        &self,
        purpose: Purpose,
        who: Who<'_>,
        choice: &AuthenticationChoice,
        now: OffsetDateTime,
    ) -> Result<(RequestOptions, Pending), WebAuthnError> {
        let mut pending =
            Pending::begin(self, Ceremony::Authentication, purpose, choice.user_verification, now)?;
        let allowed = match who {
            Who::Anyone if purpose != Purpose::Login => return Err(WebAuthnError::UserNeeded { purpose }),
            Who::Anyone => &[],
            // To browsers, an empty list means every passkey.
            Who::User { credentials: [], .. } => return Err(WebAuthnError::NoCredentials),
            Who::User { handle, credentials } => {
                pending.user = Some(handle.clone());
                credentials
            }
        };
        pending.allowed = allowed.iter().map(|credential| credential.id.clone()).collect();
        let options = RequestOptions::of(
            self.rp_id(),
            &pending.challenge,
            allowed,
            pending.user_verification,
            &choice.hints,
        );
        Ok((options, pending))
    }

    /// Finishes it.
    ///
    /// `purpose` is what the caller would do on success, and `user` who is logged in, if that is known already; `record` is what
    /// is stored under the response's credential ID, of any user.
    ///
    /// On success the holder of the private key signed this challenge at one of the origins, with the user present, and the
    /// returned record's user is who it was.
    ///
    /// # Errors
    /// [`WebAuthnError`] says which step failed. To the person at the browser, a credential that is not registered and a wrong
    /// signature should look the same (§14.6.2).
    pub fn finish_authentication(
        &self,
        pending: Pending,
        purpose: Purpose,
        user: Option<&UserHandle>,
        response: &AuthenticationResponse,
        record: Option<&Credential>,
        now: OffsetDateTime,
    ) -> Result<Authentication, WebAuthnError> {
        // Steps 1 and 2 were the browser's, with our options; 3, 4 and 7 are `AuthenticationResponse::parse`.
        pending.check(self, Ceremony::Authentication, purpose, now)?;
        if user.is_some() && pending.user.as_ref() != user {
            return Err(WebAuthnError::WrongUser);
        }
        // Step 5.
        if !pending.allowed.is_empty() && !pending.allowed.contains(&response.id) {
            return Err(WebAuthnError::NotAllowed);
        }
        // Step 6.
        let record = record.ok_or(WebAuthnError::UnknownCredential)?;
        if record.id != response.id {
            return Err(WebAuthnError::UnknownCredential);
        }
        match (&pending.user, &response.user) {
            (Some(known), _) if *known != record.user => return Err(WebAuthnError::OtherUsersCredential),
            (None, None) => return Err(WebAuthnError::NoUserHandle),
            (_, Some(named)) if *named != record.user => return Err(WebAuthnError::UserHandleMismatch),
            _ => {}
        }
        // Step 7.
        let auth_data = response.authenticator_data.as_slice();
        let data = AuthenticatorData::parse(auth_data).map_err(WebAuthnError::BadAuthenticatorData)?;
        // Steps 8 to 14, and 20.
        let hash = client_data::check(
            response.client_data.as_slice(),
            client_data::GET,
            pending.challenge.as_slice(),
            self,
            &response.asked_by,
        )?;
        // Step 15.
        self.check_rp_id_hash(data.rp_id_hash)?;
        // Step 16.
        if !data.flags.user_present() {
            return Err(WebAuthnError::UserNotPresent);
        }
        // Step 17.
        if pending.user_verification == UserVerification::Required && !data.flags.user_verified() {
            return Err(WebAuthnError::UserNotVerified);
        }
        // Step 18.
        if data.flags.backed_up() && !data.flags.backup_eligible() {
            return Err(WebAuthnError::BackupContradiction);
        }
        // Step 19.
        if data.flags.backup_eligible() != record.backup_eligible {
            return Err(WebAuthnError::BackupEligibilityChanged { registered: record.backup_eligible });
        }
        if self.backup() == BackupPolicy::DeviceBound && record.backup_eligible {
            return Err(WebAuthnError::BackupRefused);
        }
        // Step 21.
        if !record.key()?.verifies(&[auth_data, &hash], response.signature.as_slice()) {
            return Err(WebAuthnError::BadSignature);
        }
        // Step 22.
        let counts = data.sign_count != 0 || record.sign_count != 0;
        let clone_suspected = counts && data.sign_count <= record.sign_count;
        if clone_suspected && self.counter() == CounterPolicy::Refuse {
            return Err(WebAuthnError::CounterBackwards { got: data.sign_count, stored: record.sign_count });
        }
        // Step 23: no extension was asked for, and those that were not asked for are ignored.
        // Step 24. The higher counter is kept, so that a copy is found by every use of the lower one.
        let mut credential = record.clone();
        credential.sign_count = record.sign_count.max(data.sign_count);
        credential.backed_up = data.flags.backed_up();
        credential.last_used = Some(now);
        // Step 25.
        Ok(Authentication {
            user_verified: data.flags.user_verified(),
            clone_suspected,
            backup_changed: (credential.backed_up != record.backed_up).then_some(credential.backed_up),
            credential,
        })
    }
}
