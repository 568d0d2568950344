//! The page's side of a login in a browser: proven by a passkey, or by a password with a code.

use data_encoding::BASE64URL_NOPAD;
use sallyport_audit::Code;
use sallyport_sal::hash;
use sallyport_store::Stored;
use sallyport_webauthn::{Purpose as Ceremony, WebAuthnError, Who};
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;
use zeroize::Zeroizing;

use crate::authority::accounts::login::LoginRefusal;
use crate::authority::accounts::means::{Means, UsedFactor, Way};
use crate::authority::accounts::opening::{Proven, Spends};
use crate::authority::caller::shown;
use crate::authority::challenges::kept::{Challenges, random_text};
use crate::authority::challenges::pages::{Browser, client};
use crate::authority::challenges::passkeys::{Checked, verifies_its_user};
use crate::authority::challenges::records::{
    CODE_LIFETIME, ChallengeRecord, LoginAsked, OneTimeCode, ProvenBy, Purpose, Redirect, State,
};
use crate::authority::factors::kept::Factors;
use crate::authority::factors::passkeys::refusal;
use crate::authority::records::UserRecord;
use crate::authority::secrets::hash_of;
use crate::authority::storage::storage;
use crate::places::Place;

/// What is read of a challenge that is for something else.
fn no_login() -> Status {
    Status::invalid_argument("this is not for a login; open the address that the program shows")
}

/// The login that a challenge is for.
fn asked(stored: &Stored<ChallengeRecord>) -> Result<&LoginAsked, Status> {
    match &stored.value.purpose {
        Purpose::Login(asked) => Ok(asked),
        _ => Err(no_login()),
    }
}

/// The login that a challenge is for, where a page may prove it.
fn asked_at_page(stored: &Stored<ChallengeRecord>) -> Result<&LoginAsked, Status> {
    match asked(stored)? {
        LoginAsked { redirect: Redirect::SecurityKey, .. } => Err(no_login()),
        asked => Ok(asked),
    }
}

/// Whether the page has to ask for the code that the terminal shows: always of a headless login, and of another where the browser is in
/// another network than the program. On one machine, both reach the cluster from the same one.
fn wants_code(record: &ChallengeRecord, asked: &LoginAsked, browser: &Browser) -> bool {
    match asked.redirect {
        Redirect::Headless | Redirect::SecurityKey => true,
        Redirect::Loopback { .. } => {
            browser.caller.address().map(Place::of) != Some(Place::of(record.address))
        }
    }
}

/// What the browser brings to the program along with the code: the program makes it of the challenge's id, which no other page knows, and
/// takes no code without it (`client::loopback`).
fn callback_state(stored: &Stored<ChallengeRecord>) -> String {
    BASE64URL_NOPAD.encode(&hash::sha256(format!("callback{}", stored.name).as_bytes()))
}

impl Challenges {
    /// What a page shows of a login.
    pub(crate) fn describe_login(
        &self,
        browser: &Browser,
        stored: &Stored<ChallengeRecord>,
    ) -> Result<v1::WebLogin, Status> {
        let asked = asked_at_page(stored)?;
        let record = &stored.value;
        Ok(v1::WebLogin {
            cluster: self.config.cluster.to_string(),
            state: record.state.word().to_owned(),
            client: Some(client(record)),
            redirect: match asked.redirect {
                Redirect::Loopback { .. } => "loopback",
                Redirect::Headless | Redirect::SecurityKey => "headless",
            }
            .to_owned(),
            methods: Some(v1::WebMethods {
                passkey: self.factors.passkeys().is_some(),
                password: self.accounts.has_passwords(),
                otp: true,
                sso: Vec::new(),
            }),
            user: record.user.as_ref().map(ToString::to_string).unwrap_or_default(),
            expires: Some(convert::time_to_proto(record.expires)),
            code: wants_code(record, asked, browser),
        })
    }

    /// Lets a login be proven that still can. Of a headless one, and of one whose browser is in another network than the program, the code
    /// that its terminal shows has to be typed first: a person whom a stranger has sent the address does not have it on a screen of their own.
    pub(crate) async fn may_be_proven(
        &self,
        browser: &Browser,
        stored: &Stored<ChallengeRecord>,
        code: &str,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        let asked = asked_at_page(stored)?;
        Self::is_pending(stored)?;
        if wants_code(&stored.value, asked, browser) {
            self.code_is_typed(browser, stored, code, now).await?;
        }
        Ok(())
    }

    /// Begins to prove a passkey: any that is registered here says by itself whose it is. Its user has to be verified, since nothing else
    /// is asked for.
    pub(crate) async fn begin_login_passkey(
        &self,
        browser: &Browser,
        id: &str,
        code: &str,
    ) -> Result<v1::WebPublicKey, Status> {
        let now = OffsetDateTime::now_utc();
        let party = self.factors.party()?;
        let stored = self.at(&browser.caller, id, now).await?;
        self.may_be_proven(browser, &stored, code, now).await?;
        let begun = party.begin_authentication(Ceremony::Login, Who::Anyone, &verifies_its_user(), now);
        let (options, pending) = begun.map_err(|error| refusal(&error))?;
        self.asks(&stored, &options, &pending, now).await
    }

    /// Proves a passkey.
    pub(crate) async fn finish_login_passkey(
        &self,
        browser: &Browser,
        id: &str,
        response: &str,
    ) -> Result<v1::WebProven, Status> {
        let now = OffsetDateTime::now_utc();
        let mut stored = self.at(&browser.caller, id, now).await?;
        asked_at_page(&stored)?;
        Self::is_pending(&stored)?;
        let pending = Self::take_ceremony(&mut stored)?;
        let checked = self.check_passkey(pending, Ceremony::Login, None, response, now).await?;
        self.passkey_checked(browser, &stored, checked, None, now).await
    }

    /// A login was to be proven by a passkey, whose answer was looked at. `named` is whose a program says that it is; pages name no user.
    pub(super) async fn passkey_checked(
        &self,
        browser: &Browser,
        stored: &Stored<ChallengeRecord>,
        checked: Checked,
        named: Option<&str>,
        now: OffsetDateTime,
    ) -> Result<v1::WebProven, Status> {
        let (authentication, name, factor) = match checked {
            Checked { whose: Some((name, factor)), outcome: Ok(authentication) } => {
                (authentication, name, factor)
            }
            Checked { whose, outcome } => {
                let error = outcome.err().unwrap_or(WebAuthnError::UnknownCredential);
                self.counter_on_record(whose.as_ref(), &error, now).await;
                let whose = whose.map(|(user, _)| user.to_string()).unwrap_or_default();
                let event = browser.event(Code::UserLoginFailed).user(whose).message(error.word());
                let event = event.field("way", "passkey");
                // Nothing has proven that the program's person is the one whom it names.
                let event = match named {
                    Some(named) => event.field("named_user", shown(named)),
                    None => event,
                };
                match asked(stored)?.redirect {
                    // The program has one answer of the security key, and no page that asks for another.
                    Redirect::SecurityKey => self.end(&browser.caller, stored, event, now).await?,
                    _ => self.wrong_proof(&browser.caller, stored, event, now).await?,
                }
                return Err(refusal(&error));
            }
        };
        let user = self.store.get::<UserRecord>(name.as_str(), now).await.map_err(|error| storage(&error))?;
        let user = user.ok_or_else(|| refusal(&WebAuthnError::UnknownCredential))?;
        let after = factor.value.after_use(authentication.credential, now);
        let by = Means {
            factor: Some(UsedFactor::used(&factor.value, &after)),
            user_verified: authentication.user_verified,
            ..Means::by(Way::Passkey, authentication.user_verified)
        };
        let _changing = self.identities.steady().await;
        let spends = vec![Factors::used(&name, &factor, &after)?];
        self.login_proven(browser, stored, (&user.value, user.revision), by, spends, now).await
    }

    /// Proves a password, with a one-time or recovery code.
    pub(crate) async fn prove_login_password(
        &self,
        browser: &Browser,
        request: v1::WebPasswordRequest,
    ) -> Result<v1::WebProven, Status> {
        let now = OffsetDateTime::now_utc();
        let (password, otp) = (Zeroizing::new(request.password), Zeroizing::new(request.otp));
        let caller = &browser.caller;
        let stored = self.at(caller, &request.id, now).await?;
        self.may_be_proven(browser, &stored, &request.code, now).await?;
        let proven = match self.accounts.prove_password(caller, &request.user, password, &otp, now).await {
            Ok(proven) => proven,
            Err(refusal) => {
                return Err(self.accounts.login_failed(caller, &shown(&request.user), refusal).await?);
            }
        };
        let Proven { user, user_revision, by, spends, .. } = proven;
        let Spends::Password { credential, code, password } = spends else {
            return Err(Status::internal("a password was proven by something else"));
        };
        let _changing = self.identities.steady().await;
        let given = (&password, code.as_ref());
        let spent = self.accounts.spend_password(&user.name, &credential, given, now).await;
        let spent = match spent {
            Ok(steps) => steps,
            Err(refusal) => {
                return Err(self.accounts.login_failed(caller, user.name.as_str(), refusal).await?);
            }
        };
        let answer = self.login_proven(browser, &stored, (&user, user_revision), by, spent, now).await?;
        if let Some(used) = code.and_then(|code| code.recovery_used(caller, &user.name)) {
            self.journal.record(vec![used]).await?;
        }
        Ok(answer)
    }

    /// A login is proven: from now on it is this user's, and the browser gets what the program awaits. The caller holds what
    /// `Identities::steady` gives.
    pub(crate) async fn login_proven(
        &self,
        browser: &Browser,
        stored: &Stored<ChallengeRecord>,
        (user, user_revision): (&UserRecord, u64),
        means: Means,
        mut steps: Vec<sallyport_store::Op>,
        now: OffsetDateTime,
    ) -> Result<v1::WebProven, Status> {
        let asked = asked(stored)?;
        if user.origin.is_some() && means.way != Way::SingleSignOn {
            let event = browser.event(Code::ChallengeRefused).user(user.name.as_str());
            let event = event.message("not by single sign-on");
            if asked.redirect == Redirect::SecurityKey {
                self.end(&browser.caller, stored, event, now).await?;
                return Err(Status::permission_denied(
                    "you come by single sign-on, and log in by that alone: sallyport login --browser, or --headless on a machine without a \
                     browser",
                ));
            }
            // Their passkey proves what comes after a login, and browsers offer it here: the person goes on with the right button.
            self.wrong_proof(&browser.caller, stored, event, now).await?;
            return Err(Status::permission_denied(
                "you come by single sign-on, and log in by that alone: choose it on the page",
            ));
        }
        if user.comes_as().is_none() && means.way == Way::SingleSignOn {
            let event = browser.event(Code::ChallengeRefused).user(user.name.as_str());
            self.end(&browser.caller, stored, event.message("a user of this cluster's own"), now).await?;
            return Err(Status::permission_denied(
                "this user does not come by single sign-on: begin again, and choose another way on the page",
            ));
        }
        if let Err(refusal) = self.may_log_in_so(user, &asked.redirect, now) {
            let LoginRefusal { reason, .. } = refusal;
            let event = browser.event(Code::ChallengeRefused).user(user.name.as_str()).message(reason);
            self.end(&browser.caller, stored, event, now).await?;
            return Err(refusal.status);
        }
        let (redirect, code) = match asked.redirect {
            Redirect::Loopback { port } => {
                let code = random_text()?;
                let kept = OneTimeCode { hash: hash_of(&code), expires: now + CODE_LIFETIME };
                let state = callback_state(stored);
                (format!("http://127.0.0.1:{port}/callback?code={code}&state={state}"), Some(kept))
            }
            Redirect::Headless | Redirect::SecurityKey => (String::new(), None),
        };
        let event = means.on(browser.event(Code::ChallengeProven).user(user.name.as_str()));
        let used = means.factor.clone();
        let next = Self::proven(&stored.value, &user.name, ProvenBy { means, user_revision, at: now, code });
        steps.push(Self::user_as_read(&user.name, user_revision));
        self.write(stored, &next, steps, now).await?;
        if let Some(used) = used {
            used.warn(&user.name);
        }
        self.journal.record(vec![Self::named(event, stored)]).await?;
        Ok(v1::WebProven { redirect })
    }

    /// Refuses a login, or an approval or enrolment.
    pub(crate) async fn refuse(
        &self,
        browser: &Browser,
        id: &str,
        is_login: bool,
    ) -> Result<v1::WebRefused, Status> {
        let now = OffsetDateTime::now_utc();
        let stored = self.at(&browser.caller, id, now).await?;
        // A connector is tried at the page of logins.
        let at_login = matches!(stored.value.purpose, Purpose::Login(_) | Purpose::SsoTest { .. });
        if at_login != is_login {
            return Err(Status::invalid_argument(
                "this is for another page; open the address that the program shows",
            ));
        }
        Self::is_pending(&stored)?;
        let mut next = stored.value.clone();
        next.state = State::Refused;
        next.ceremony = None;
        self.write(&stored, &next, Vec::new(), now).await?;
        let whose = stored.value.user.as_ref().map(ToString::to_string).unwrap_or_default();
        let event = browser.event(Code::ChallengeRefused).user(whose).message("refused at the page");
        self.journal.note_caused(&browser.caller, Self::named(event, &stored), "refused").await?;
        Ok(v1::WebRefused {})
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use sallyport_ca::keys::{SshKeyPair, TlsKey};
    use sallyport_sal::Suite;

    use super::super::administrators::tests;
    use super::*;
    use crate::authority::caller::Caller;
    use crate::config::{AuthenticationSection, WebauthnSection};
    use crate::dialling::PeerInfo;

    #[tokio::test]
    async fn a_user_of_single_sign_on_is_told_the_way_where_the_passkey_was_used() {
        let directory = tempfile::tempdir().unwrap();
        let webauthn = WebauthnSection {
            rp_id: "sallyport.example.org".to_owned(),
            origins: vec!["https://sallyport.example.org".to_owned()],
            user_verification: Default::default(),
            attestation: None,
            counter: Default::default(),
            backup: Default::default(),
        };
        let rules = AuthenticationSection { webauthn: Some(webauthn), ..AuthenticationSection::default() };
        let authority = tests::authority(directory.path(), rules).await;
        let now = OffsetDateTime::now_utc();
        let challenges = &authority.services.api.factors.challenges;
        let caller = Caller::Anonymous { from: PeerInfo::direct(([192, 0, 2, 1], 7).into()) };
        let ssh = SshKeyPair::generate(Suite::BalancedV1, "x").unwrap();
        let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
        let (ssh_public_key, tls_public_key) = (ssh.public_line().to_owned(), tls.spki_der().to_vec());
        let code_challenge = hash::sha256(b"verifier").to_vec();
        let by_key = v1::BeginKeyLoginRequest {
            ssh_public_key: ssh_public_key.clone(),
            tls_public_key: tls_public_key.clone().into(),
            code_challenge: code_challenge.clone().into(),
            ..v1::BeginKeyLoginRequest::default()
        };
        let at_page = v1::BeginBrowserLoginRequest {
            ssh_public_key,
            tls_public_key: tls_public_key.into(),
            code_challenge: code_challenge.into(),
            ..v1::BeginBrowserLoginRequest::default()
        };
        let by_key = challenges.begin_key_login(&caller, by_key).await.unwrap().challenge;
        let at_page = challenges.begin_browser_login(&caller, at_page).await.unwrap().page.unwrap().challenge;
        let user = tests::user("alice", true);
        for (id, way, not) in
            [(by_key, "sallyport login --browser", "page"), (at_page, "on the page", "--browser")]
        {
            let stored = challenges.at(&caller, &id, now).await.unwrap();
            let is_key = asked(&stored).unwrap().redirect == Redirect::SecurityKey;
            let means = Means { user_verified: true, ..Means::by(Way::Passkey, true) };
            let browser = Browser::none(&caller);
            let told = challenges.login_proven(&browser, &stored, (&user, 1), means, Vec::new(), now).await;
            let told = told.unwrap_err();
            let told = told.message();
            assert!(told.contains(way) && !told.contains(not), "{told}");
            // At the page the person goes on by another button; the program has nothing else to prove.
            let left = challenges.at(&caller, &id, now).await.unwrap().value;
            match is_key {
                true => assert_eq!(left.state, State::Refused),
                false => assert_eq!((left.state, left.failures), (State::Pending, 1)),
            }
        }
    }
}
