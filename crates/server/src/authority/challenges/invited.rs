//! Invite and reset links that are used to register a passkey in place of a password.

use sallyport_audit::Code;
use sallyport_store::{Op, StoreError, typed};
use sallyport_webauthn::{RegistrationChoice, ResidentKey, UserVerification};
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::accounts::invites::USED;
use crate::authority::challenges::ceremony::{KeptCeremony, options_json};
use crate::authority::challenges::kept::Challenges;
use crate::authority::challenges::pages::Browser;
use crate::authority::factors::kept::{Factors, passkey};
use crate::authority::factors::names::FactorName;
use crate::authority::factors::passkeys::refusal;
use crate::authority::records::{CredentialRecord, UserRecord};
use crate::authority::storage::storage;

impl Challenges {
    /// What a link is for.
    pub(crate) async fn describe_invite(
        &self,
        browser: &Browser,
        token: &str,
    ) -> Result<v1::WebInvite, Status> {
        let (_, stored) = self.accounts.invite(&browser.caller, token, OffsetDateTime::now_utc()).await?;
        Ok(v1::WebInvite {
            cluster: self.config.cluster.to_string(),
            user: stored.value.user.to_string(),
            methods: Some(v1::WebMethods {
                passkey: self.factors.passkeys().is_some(),
                password: self.accounts.has_passwords(),
                otp: true,
                sso: Vec::new(),
            }),
            expires: Some(convert::time_to_proto(stored.value.expires)),
        })
    }

    /// Begins to register a passkey. It is all that the user will have, so that it has to verify them, and to work without a user name.
    pub(crate) async fn begin_invite_passkey(
        &self,
        browser: &Browser,
        token: &str,
    ) -> Result<v1::WebPublicKey, Status> {
        let now = OffsetDateTime::now_utc();
        let party = self.factors.party()?;
        let (key, stored) = self.accounts.invite(&browser.caller, token, now).await?;
        let mut invite = stored.value;
        let account = self.account(&invite.user, now).await?;
        let choice = RegistrationChoice {
            resident_key: ResidentKey::Required,
            user_verification: Some(UserVerification::Required),
            ..RegistrationChoice::default()
        };
        let begun = party.begin_registration(&account, &[], &choice, now);
        let (options, pending) = begun.map_err(|error| refusal(&error))?;
        invite.passkey = Some(KeptCeremony::of(&pending)?);
        let kept = self.store.update(&key, stored.revision, &invite, stored.expires, now).await;
        kept.map_err(|error| storage(&error))?;
        let event = browser.event(Code::InviteOpened).user(invite.user.as_str());
        self.journal.record(vec![event]).await?;
        Ok(v1::WebPublicKey { options_json: options_json(&options)? })
    }

    /// Registers it; the link is spent afterwards.
    pub(crate) async fn finish_invite_passkey(
        &self,
        browser: &Browser,
        request: v1::WebFinishInviteRequest,
    ) -> Result<v1::WebInvited, Status> {
        let now = OffsetDateTime::now_utc();
        self.factors.party()?;
        let name = FactorName::new(&request.name)?;
        let (key, stored) = self.accounts.invite(&browser.caller, &request.token, now).await?;
        let mut invite = stored.value;
        let Some(ceremony) = invite.passkey.take() else {
            return Err(Status::failed_precondition("no passkey is asked for at this moment; try again"));
        };
        let taken = self.store.update(&key, stored.revision, &invite, stored.expires, now).await;
        let revision = taken.map_err(|error| storage(&error))?;
        let user = invite.user.clone();
        let credential =
            match self.check_new_passkey(ceremony.begun()?, &user, &name, &request.response_json, now).await?
            {
                Ok(credential) => credential,
                Err(error) => {
                    self.guesses.note(&browser.caller, now);
                    let event = browser.event(Code::InviteRefused).user(user.as_str()).message(error.word());
                    self.journal.note_caused(&browser.caller, event, user.as_str()).await?;
                    return Err(refusal(&error));
                }
            };
        let factor = passkey(name, credential, now);
        invite.used = true;
        invite.totp_sealed = None;
        let _changing = self.identities.steady().await;
        let nothing = CredentialRecord { reset_at: Some(now), ..CredentialRecord::default() };
        let mut steps = vec![
            Op::Check {
                key: typed::key::<UserRecord>(user.as_str()),
                revision: invite.user_revision.unwrap_or_default(),
            },
            typed::update(&key, revision, &invite, stored.expires).map_err(|error| storage(&error))?,
            typed::put(user.as_str(), &nothing, None).map_err(|error| storage(&error))?,
        ];
        steps.extend(Factors::added(&user, &self.factors.held(&user, now).await?, &factor)?);
        steps.extend(Factors::no_recovery(&user, now)?);
        match self.store.backend().transact(steps, now).await {
            Ok(_) => {}
            Err(StoreError::Conflict { .. } | StoreError::NotFound { .. } | StoreError::Exists { .. }) => {
                return Err(self.accounts.refuse_invite(&browser.caller, USED, now).await?);
            }
            Err(error) => return Err(storage(&error)),
        }
        let accepted = browser.event(Code::InviteAccepted).user(user.as_str()).field("second_factor", true);
        self.journal.record(vec![factor.on(accepted)]).await?;
        Ok(v1::WebInvited { user: user.to_string() })
    }
}
