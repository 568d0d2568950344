//! A login that a program proves itself, by a security key at its machine: no page and no proxy has a part in it. The program has the key
//! sign which certificate authority it has reached. So nothing that a browser has had signed finishes such a login, and nothing that a
//! program has had signed for a false authority, which may have passed on what this one has asked.

use sallyport_access::UserName;
use sallyport_webauthn::{Assertion, Pending, Purpose as Ceremony, WebAuthnError, Who};
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::caller::Caller;
use crate::authority::challenges::kept::Challenges;
use crate::authority::challenges::pages::Browser;
use crate::authority::challenges::passkeys::{Checked, verifies_its_user};
use crate::authority::challenges::records::{LoginAsked, Purpose, Redirect};
use crate::authority::factors::passkeys::refusal;

/// Most accounts of this cluster on one key of which it gives the answers.
const MOST_ASSERTIONS: usize = 16;

impl Challenges {
    /// Begins a login for two public keys, and says what the security key is to sign. Its user has to be verified, since nothing else is
    /// asked for.
    pub(crate) async fn begin_key_login(
        &self,
        caller: &Caller,
        request: v1::BeginKeyLoginRequest,
    ) -> Result<v1::BeginKeyLoginResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let asked = v1::BeginBrowserLoginRequest {
            ssh_public_key: request.ssh_public_key,
            tls_public_key: request.tls_public_key,
            ttl_seconds: request.ttl_seconds,
            code_challenge: request.code_challenge,
            redirect_port: 0,
            host_name: request.host_name,
            device: request.device,
        };
        let (opened, _) = self.begin_login(caller, asked, Redirect::SecurityKey, now).await?;
        let party = self.factors.party()?;
        let stored = self.at(caller, &opened.id, now).await?;
        let begun = party.begin_authentication(Ceremony::Login, Who::Anyone, &verifies_its_user(), now);
        let (options, pending) = begun.map_err(|error| refusal(&error))?;
        let asks = self.asks(&stored, &options, &pending, now).await?;
        Ok(v1::BeginKeyLoginResponse {
            challenge: opened.id,
            options_json: asks.options_json,
            origins: self.factors.origins(),
            expires: Some(convert::time_to_proto(pending.expires())),
        })
    }

    /// Certificates for the two public keys, where the user's security key has signed what was asked.
    pub(crate) async fn finish_key_login(
        &self,
        caller: &Caller,
        request: v1::FinishKeyLoginRequest,
    ) -> Result<v1::LoginResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let v1::FinishKeyLoginRequest { challenge, code_verifier, user, assertions } = request;
        if assertions.len() > MOST_ASSERTIONS {
            return Err(Status::invalid_argument(format!(
                "{} answers of a security key came, and {MOST_ASSERTIONS} at most are read",
                assertions.len()
            )));
        }
        let mut stored = self.at(caller, &challenge, now).await?;
        let Purpose::Login(asked @ LoginAsked { redirect: Redirect::SecurityKey, .. }) =
            &stored.value.purpose
        else {
            return Err(Status::invalid_argument("this challenge is not for a login with a security key"));
        };
        let program = v1::FinishBrowserLoginRequest {
            challenge,
            code_verifier,
            ..v1::FinishBrowserLoginRequest::default()
        };
        if let Some(refused) = self.not_the_program(caller, &stored, asked, &program, now).await? {
            return Err(refused);
        }
        Self::is_pending(&stored)?;
        let pending = Self::take_ceremony(&mut stored)?;
        let checked = self.check_assertions(pending, &user, assertions, now).await?;
        self.passkey_checked(&Browser::none(caller), &stored, checked, Some(&user), now).await?;
        let finished = self.finish_browser_login(caller, program).await?;
        finished.login.ok_or_else(|| Status::internal("a login that was proven has no certificates"))
    }

    /// Holds what a security key has signed against what was begun. The key says by a handle whose the passkey is, and not which: it is
    /// found among those of the user who is named, by their public keys. A name or a handle of no user is answered as a key that
    /// is not registered.
    async fn check_assertions(
        &self,
        pending: Pending,
        user: &str,
        assertions: Vec<v1::KeyAssertion>,
        now: OffsetDateTime,
    ) -> Result<Checked, Status> {
        let party = self.factors.party()?;
        let refused = |error| Checked { whose: None, outcome: Err(error) };
        let Ok(user) = UserName::new(user) else { return Ok(refused(WebAuthnError::UnknownCredential)) };
        let held = self.factors.held(&user, now).await?;
        let pins = self.accounts.pins();
        let read = |said: v1::KeyAssertion| {
            let v1::KeyAssertion { client_data_json, authenticator_data, signature, user_handle } = said;
            Assertion::new(&client_data_json, &authenticator_data, &signature, &user_handle)
        };
        let read: Result<Vec<Assertion>, WebAuthnError> = assertions.into_iter().map(read).collect();
        let handle = held.set.as_ref().map(|set| &set.value.handle);
        let own = read.map(|read| read.into_iter().find(|one| Some(one.user()) == handle));
        let own = own.and_then(|own| own.ok_or(WebAuthnError::UnknownCredential));
        let response = match own.and_then(|own| own.by_one_of(&held.credentials(), pins)) {
            Ok(response) => response,
            Err(error) => return Ok(refused(error)),
        };
        let is_it = |credential: &sallyport_webauthn::Credential| credential.id == *response.credential_id();
        let factor = held.factors.into_iter().find(|factor| factor.value.credential().is_some_and(is_it));
        let Some((factor, record)) = factor.and_then(|factor| {
            let record = factor.value.credential().cloned()?;
            Some((factor, record))
        }) else {
            return Ok(refused(WebAuthnError::UnknownCredential));
        };
        let outcome =
            party.finish_authentication(pending, Ceremony::Login, None, &response, Some(&record), now);
        Ok(Checked { whose: Some((user, factor)), outcome })
    }
}
