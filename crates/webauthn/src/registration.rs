//! Registering a new credential (WebAuthn L3 §7.1).

use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::attestation::{self, Attestation, Format, Proof};
use crate::authenticator_data::{AuthenticatorData, MAX_CREDENTIAL_ID_BYTES};
use crate::binary::Binary;
use crate::cbor::{self, Order};
use crate::client_data::{self, AskedBy, shortened};
use crate::credential::{Credential, UserHandle};
use crate::error::WebAuthnError;
use crate::options::{Account, Attachment, Creation, CreationOptions, RegistrationChoice};
use crate::pending::Pending;
use crate::purpose::{Ceremony, Purpose};
use crate::relying_party::{AttestationPolicy, BackupPolicy, RelyingParty, UserVerification};
use crate::response::RegistrationResponse;

/// A registration that was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// The record to store.
    pub credential: Credential,
    /// Where the authenticator is, as the browser says.
    pub attachment: Option<Attachment>,
}

impl RelyingParty {
    /// Begins the registration of a passkey for a user who is logged in: step 1 of §7.1.
    ///
    /// `existing` are the passkeys that the user has. Their authenticators are asked not to make another one.
    ///
    /// # Errors
    /// [`WebAuthnError::Challenge`] when there is no randomness.
    pub fn begin_registration(
        &self,
        account: &Account,
        existing: &[Credential],
        choice: &RegistrationChoice,
        now: OffsetDateTime,
    ) -> Result<(CreationOptions, Pending), WebAuthnError> {
        let mut pending =
            Pending::begin(self, Ceremony::Registration, Purpose::AddFactor, choice.user_verification, now)?;
        pending.user = Some(account.handle.clone());
        pending.algorithms = self.algorithms().to_vec();
        let options = CreationOptions::of(&Creation {
            rp_id: self.rp_id(),
            rp_name: self.name(),
            account,
            challenge: &pending.challenge,
            algorithms: &pending.algorithms,
            existing,
            choice,
            user_verification: pending.user_verification,
            direct_attestation: matches!(self.attestation(), AttestationPolicy::AllowList { .. }),
        });
        Ok((options, pending))
    }

    /// Finishes it.
    ///
    /// `user` is who is logged in now; `known` is the record that is stored under the response's credential ID, of any user.
    /// The `nickname` is how the user will know the passkey.
    ///
    /// On success the browser was at one of the origins, the user was present, the authenticator holds the private half of the
    /// key where the statement proves it, and the record may be stored, if there is still none with its ID.
    ///
    /// # Errors
    /// [`WebAuthnError`] says which step failed.
    pub fn finish_registration(
        &self,
        pending: Pending,
        user: &UserHandle,
        response: &RegistrationResponse,
        known: Option<&Credential>,
        nickname: &str,
        now: OffsetDateTime,
    ) -> Result<Registration, WebAuthnError> {
        // Steps 1 and 2 were the browser's, with our options; 3 and 4 are `RegistrationResponse::parse`.
        pending.check(self, Ceremony::Registration, Purpose::AddFactor, now)?;
        if pending.user.as_ref() != Some(user) {
            return Err(WebAuthnError::WrongUser);
        }
        // Steps 5 to 12.
        let hash = client_data::check(
            response.client_data.as_slice(),
            client_data::CREATE,
            pending.challenge.as_slice(),
            self,
            &AskedBy::Browser,
        )?;
        // Step 13.
        let object = AttestationObject::parse(response.attestation_object.as_slice())?;
        let data = AuthenticatorData::parse(object.auth_data).map_err(WebAuthnError::BadAuthenticatorData)?;
        let made = data.credential.as_ref().ok_or(WebAuthnError::NoCredential)?;
        // Step 14.
        self.check_rp_id_hash(data.rp_id_hash)?;
        // Step 15: no registration of ours is conditional.
        if !data.flags.user_present() {
            return Err(WebAuthnError::UserNotPresent);
        }
        // Step 16.
        if pending.user_verification == UserVerification::Required && !data.flags.user_verified() {
            return Err(WebAuthnError::UserNotVerified);
        }
        // Step 17.
        if data.flags.backed_up() && !data.flags.backup_eligible() {
            return Err(WebAuthnError::BackupContradiction);
        }
        // Step 18. Step 19 has no rule here: whether there is a copy now is kept in the record.
        if self.backup() == BackupPolicy::DeviceBound && data.flags.backup_eligible() {
            return Err(WebAuthnError::BackupRefused);
        }
        // Step 20.
        if !pending.algorithms.contains(&made.key.algorithm) {
            return Err(WebAuthnError::AlgorithmNotOffered { got: made.key.algorithm });
        }
        // Step 21.
        let format = Format::of(object.format)
            .ok_or_else(|| WebAuthnError::UnknownFormat { got: shortened(object.format) })?;
        // Step 22.
        let statement = attestation::Statement {
            format,
            fields: &object.statement,
            auth_data: object.auth_data,
            client_data_hash: &hash,
            rp_id_hash: data.rp_id_hash,
            credential: made,
        };
        let verified = attestation::verify(&statement).map_err(WebAuthnError::BadAttestation)?;
        // A U2F key signs no AAGUID, so what stands there is vouched for by no key.
        let aaguid = if format == Format::FidoU2f { Uuid::nil() } else { made.aaguid };
        // Steps 23 and 24; what step 29 leaves to policy is refused here too.
        let proof = self.assess(format, aaguid, &verified, now)?;
        // Step 25.
        if !(1..=MAX_CREDENTIAL_ID_BYTES).contains(&made.id.len()) {
            return Err(WebAuthnError::BadCredentialId { got: made.id.len() });
        }
        // What was looked up is what was made.
        if made.id != response.id.as_slice() {
            return Err(WebAuthnError::IdMismatch);
        }
        // Step 26.
        if known.is_some() {
            return Err(WebAuthnError::AlreadyRegistered);
        }
        // Step 28 ahead of 27, since the record has its outcome.
        let discoverable = discoverable(response.extensions.get("credProps"))?;
        // Step 27. Step 29, storing it, is the caller's.
        let credential = Credential {
            id: response.id.clone(),
            user: user.clone(),
            public_key: Binary(made.cose.to_vec()),
            sign_count: data.sign_count,
            backup_eligible: data.flags.backup_eligible(),
            backed_up: data.flags.backed_up(),
            user_verified: data.flags.user_verified(),
            transports: response.transports.clone(),
            aaguid,
            attestation: Attestation { format, proof },
            discoverable,
            created: now,
            last_used: None,
            nickname: nickname.to_owned(),
        };
        Ok(Registration { credential, attachment: response.attachment })
    }

    fn assess(
        &self,
        format: Format,
        aaguid: Uuid,
        verified: &attestation::Verified<'_>,
        now: OffsetDateTime,
    ) -> Result<Proof, WebAuthnError> {
        let AttestationPolicy::AllowList { models, metadata } = self.attestation() else {
            return Ok(match verified {
                attestation::Verified::Absent => Proof::Absent,
                attestation::Verified::SelfSigned => Proof::SelfSigned,
                attestation::Verified::Certified { .. } => Proof::Unanchored,
                attestation::Verified::Unchecked => Proof::Unchecked,
            });
        };
        let attestation::Verified::Certified { path } = verified else {
            return Err(WebAuthnError::NoAttestation { got: format });
        };
        if !models.contains(&aaguid) {
            return Err(WebAuthnError::ModelNotAllowed { aaguid });
        }
        if let Some(status) = metadata.compromised(aaguid) {
            return Err(WebAuthnError::ModelCompromised { aaguid, status: status.to_owned() });
        }
        attestation::chains(path, metadata.roots(aaguid), now)
            .map_err(|source| WebAuthnError::Untrusted { aaguid, source })?;
        Ok(Proof::Trusted)
    }

    pub(crate) fn check_rp_id_hash(&self, hash: &[u8]) -> Result<(), WebAuthnError> {
        if hash == sallyport_sal::hash::sha256(self.rp_id().as_bytes()) {
            Ok(())
        } else {
            Err(WebAuthnError::RpIdMismatch { expected: self.rp_id().to_owned() })
        }
    }
}

/// The output of `credProps` (§10.1.3), the one extension that is asked for. Others are ignored, asked for or not.
fn discoverable(output: Option<&Value>) -> Result<Option<bool>, WebAuthnError> {
    let bad = WebAuthnError::BadExtension { extension: "credProps" };
    match output {
        None => Ok(None),
        Some(Value::Object(members)) => match members.get("rk") {
            None => Ok(None),
            Some(Value::Bool(resident)) => Ok(Some(*resident)),
            Some(_) => Err(bad),
        },
        Some(_) => Err(bad),
    }
}

/// An attestation object (§6.5.4).
struct AttestationObject<'a> {
    format: &'a str,
    auth_data: &'a [u8],
    statement: cbor::Value<'a>,
}

impl<'a> AttestationObject<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, WebAuthnError> {
        let bad = |reason| WebAuthnError::BadAttestationObject { reason, source: None };
        let object =
            cbor::whole(bytes, Order::Any).map_err(|source| WebAuthnError::BadAttestationObject {
                reason: "it is not the CBOR of CTAP2",
                source: Some(source),
            })?;
        let format = object.member("fmt").and_then(cbor::Value::text).ok_or(bad("it has no fmt"))?;
        let auth_data =
            object.member("authData").and_then(cbor::Value::bytes).ok_or(bad("it has no authData"))?;
        let statement = object.member("attStmt").ok_or(bad("it has no attStmt"))?.clone();
        if statement.map().is_none() {
            return Err(bad("its attStmt is not a map"));
        }
        Ok(Self { format, auth_data, statement })
    }
}
