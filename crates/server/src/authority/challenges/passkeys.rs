//! Ceremonies of WebAuthn at pages: what a browser is asked, kept with the challenge, and what its answer is worth.

use sallyport_access::UserName;
use sallyport_store::{Stored, typed};
use sallyport_webauthn::{
    Account, Authentication, AuthenticationChoice, AuthenticationResponse, Credential, Pending,
    Purpose as Ceremony, RegistrationResponse, UserHandle, UserVerification, WebAuthnError,
};
use sallyport_wire::v1;
use serde::Serialize;
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::challenges::ceremony::{KeptCeremony, options_json};
use crate::authority::challenges::kept::Challenges;
use crate::authority::challenges::records::ChallengeRecord;
use crate::authority::factors::names::FactorName;
use crate::authority::factors::records::FactorRecord;

/// What the answer of a passkey is worth.
pub(super) struct Checked {
    /// Whose passkey it is, registered here; also where the answer does not hold.
    pub(super) whose: Option<(UserName, Stored<FactorRecord>)>,
    pub(super) outcome: Result<Authentication, WebAuthnError>,
}

/// What is asked of every passkey that proves something: that it verifies its user, whatever the cluster's `user_verification` says. It is all
/// that is asked for beside files of a login, or beside nothing, so that a stolen security key that is touched without its PIN proves nothing.
pub(super) fn verifies_its_user() -> AuthenticationChoice {
    AuthenticationChoice {
        user_verification: Some(UserVerification::Required),
        ..AuthenticationChoice::default()
    }
}

impl Challenges {
    /// Keeps a ceremony with its challenge, in the place of one that was begun before; gives what the browser is asked.
    pub(super) async fn asks(
        &self,
        stored: &Stored<ChallengeRecord>,
        options: &impl Serialize,
        pending: &Pending,
        now: OffsetDateTime,
    ) -> Result<v1::WebPublicKey, Status> {
        let mut next = stored.value.clone();
        next.ceremony = Some(KeptCeremony::of(pending)?);
        self.write(stored, &next, Vec::new(), now).await?;
        Ok(v1::WebPublicKey { options_json: options_json(options)? })
    }

    /// Takes the ceremony that was begun out of a challenge that was read. What is written of the response, whether it proves the
    /// challenge or is wrong, is written over that revision and without the ceremony: a response is good once. One that is refused for
    /// another reason than itself, such as an account that is gone, leaves the ceremony as it is.
    pub(super) fn take_ceremony(stored: &mut Stored<ChallengeRecord>) -> Result<Pending, Status> {
        let ceremony = stored.value.ceremony.take().ok_or_else(|| {
            Status::failed_precondition(
                "no passkey is asked for at this moment, or its answer was given already; try again",
            )
        })?;
        ceremony.begun()
    }

    /// Holds the answer of a passkey against what was begun. `handle` is the user's, where it is known already who it is.
    pub(super) async fn check_passkey(
        &self,
        pending: Pending,
        ceremony: Ceremony,
        handle: Option<&UserHandle>,
        response: &str,
        now: OffsetDateTime,
    ) -> Result<Checked, Status> {
        let party = self.factors.party()?;
        let response = match AuthenticationResponse::parse(response.as_bytes()) {
            Ok(response) => response,
            Err(error) => return Ok(Checked { whose: None, outcome: Err(error) }),
        };
        let whose = self.factors.passkey(response.credential_id().as_slice(), now).await?;
        let outcome = match whose.as_ref().and_then(|(_, factor)| factor.value.credential()) {
            Some(record) => {
                party.finish_authentication(pending, ceremony, handle, &response, Some(record), now)
            }
            None => Err(WebAuthnError::UnknownCredential),
        };
        Ok(Checked { whose, outcome })
    }

    /// Keeps with a passkey that it was refused for a sign count that did not grow, so that its user reads of it where the factors are
    /// listed. The refusal itself is on record whether or not this can be written.
    pub(super) async fn counter_on_record(
        &self,
        whose: Option<&(UserName, Stored<FactorRecord>)>,
        error: &WebAuthnError,
        now: OffsetDateTime,
    ) {
        let (Some((user, factor)), WebAuthnError::CounterBackwards { .. }) = (whose, error) else { return };
        let next = FactorRecord { counter_went_back: Some(now), ..factor.value.clone() };
        let key = FactorRecord::key(user, factor.value.id);
        let written = match typed::update(&key, factor.revision, &next, None) {
            Ok(step) => self.store.backend().transact(vec![step], now).await.map(drop),
            Err(error) => Err(error),
        };
        if let Err(problem) = written {
            tracing::warn!(%user, %problem, "that a passkey's sign count did not grow is not kept with the passkey");
        }
    }

    /// Holds the answer of a new passkey against what was begun for a user.
    pub(super) async fn check_new_passkey(
        &self,
        pending: Pending,
        user: &UserName,
        name: &FactorName,
        response: &str,
        now: OffsetDateTime,
    ) -> Result<Result<Credential, WebAuthnError>, Status> {
        let party = self.factors.party()?;
        let handle = self.factors.handle(user, now).await?;
        let response = match RegistrationResponse::parse(response.as_bytes()) {
            Ok(response) => response,
            Err(error) => return Ok(Err(error)),
        };
        let known = self.factors.passkey(response.credential_id().as_slice(), now).await?;
        let known = known.as_ref().and_then(|(_, factor)| factor.value.credential());
        let checked = party.finish_registration(pending, &handle, &response, known, name.as_str(), now);
        Ok(checked.map(|registration| registration.credential))
    }

    /// A user, as authenticators are told.
    pub(super) async fn account(&self, user: &UserName, now: OffsetDateTime) -> Result<Account, Status> {
        Ok(Account {
            handle: self.factors.handle(user, now).await?,
            name: user.to_string(),
            display_name: user.to_string(),
        })
    }
}
