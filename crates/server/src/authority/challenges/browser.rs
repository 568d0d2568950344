//! The program's side of a login in a browser: begun with keys and the hash of a verifier, finished with the verifier.

use std::time::Duration;

use data_encoding::{BASE64, HEXLOWER};
use sallyport_audit::Code;
use sallyport_sal::{constant_time_eq, hash};
use sallyport_store::Stored;
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::accounts::login::LoginRefusal;
use crate::authority::accounts::opening::{LoginKeys, Proven, Spends};
use crate::authority::caller::{Caller, NOWHERE, host_name};
use crate::authority::challenges::kept::{Asking, Challenges};
use crate::authority::challenges::opening::Opened;
use crate::authority::challenges::records::{
    ChallengeRecord, LoginAsked, ProvenBy, Purpose, Redirect, State,
};
use crate::authority::challenges::terminal;
use crate::authority::devices::challenges::Good;
use crate::authority::devices::kept::Word;
use crate::authority::gate::acts::administers;
use crate::authority::records::UserRecord;
use crate::authority::storage::storage;
use crate::config::HeadlessLogins;

/// SHA-256.
const CODE_CHALLENGE_BYTES: usize = 32;
/// RFC 7636 §4.1.
const VERIFIER: std::ops::RangeInclusive<usize> = 43..=128;

fn same(left: &str, right: &str) -> bool {
    constant_time_eq(left.as_bytes(), right.as_bytes())
}

impl Challenges {
    /// Begins a login for two public keys, to be proven in a browser.
    pub(crate) async fn begin_browser_login(
        &self,
        caller: &Caller,
        request: v1::BeginBrowserLoginRequest,
    ) -> Result<v1::BeginBrowserLoginResponse, Status> {
        let redirect = match u16::try_from(request.redirect_port) {
            Ok(0) => {
                if self.config.authentication.headless == HeadlessLogins::Off {
                    return Err(Status::failed_precondition(
                        "headless logins are off in this cluster (auth.authentication.headless); log in where there is a browser: \
                         sallyport login --browser",
                    ));
                }
                Redirect::Headless
            }
            Ok(port) if port >= 1024 => Redirect::Loopback { port },
            _ => {
                return Err(Status::invalid_argument(format!(
                    "{} is no port of a user's program: from 1024 to 65535, or 0 for a headless login",
                    request.redirect_port
                )));
            }
        };
        let (opened, code) = self.begin_login(caller, request, redirect, OffsetDateTime::now_utc()).await?;
        Ok(v1::BeginBrowserLoginResponse { page: Some(self.page(&opened, "/login")), headless_code: code })
    }

    /// Opens a login for two public keys; with the code that its terminal shows, where that is typed at a page.
    pub(super) async fn begin_login(
        &self,
        caller: &Caller,
        request: v1::BeginBrowserLoginRequest,
        redirect: Redirect,
        now: OffsetDateTime,
    ) -> Result<(Opened, String), Status> {
        self.guesses.not_barred(caller, now)?;
        let host_name = host_name(&request.host_name);
        let keys = LoginKeys {
            ssh: request.ssh_public_key,
            tls: request.tls_public_key,
            device: None,
            ttl: None,
            host_name,
            asked_from: None,
        };
        self.accounts.check_keys(&keys)?;
        let word = self.accounts.login_from(request.device.as_ref(), &keys.ssh, &keys.tls, now).await;
        let word = match word {
            Ok(word) => word,
            Err(LoginRefusal { status, reason, .. }) => {
                let event = caller.event(Code::ChallengeRefused).message(reason);
                self.journal.note_caused(caller, event, reason).await?;
                return Err(status);
            }
        };
        if request.code_challenge.len() != CODE_CHALLENGE_BYTES {
            return Err(Status::invalid_argument(format!(
                "the code challenge has {} bytes; it is a SHA-256, of {CODE_CHALLENGE_BYTES}",
                request.code_challenge.len()
            )));
        }
        if redirect == Redirect::SecurityKey {
            self.factors.party()?;
        }
        let asked = LoginAsked {
            // Without its comment, which no certificate has: what strangers begin is in memory.
            ssh_public_key: keys.ssh.split_whitespace().take(2).collect::<Vec<_>>().join(" "),
            tls_public_key: BASE64.encode(&keys.tls),
            ttl_seconds: request.ttl_seconds,
            code_challenge: HEXLOWER.encode(&request.code_challenge),
            redirect,
            device: word.as_ref().map(|word| word.device),
            relayed_by: caller.seen().and_then(|seen| seen.told_by),
        };
        let address = caller.address().unwrap_or(NOWHERE.ip());
        let headless = asked.redirect == Redirect::Headless;
        let host_name = keys.host_name;
        let code = terminal::fresh()?;
        let terminal_code = Some(terminal::hashed(&code));
        let asking = Asking { user: None, login: None, host_name, address, terminal_code };
        let event = caller
            .event(Code::ChallengeBegun)
            .field("purpose", "login")
            .field("host_name", asking.host_name.clone())
            .field("headless", headless);
        let opening = self.opening(Purpose::Login(asked), asking, now)?;
        let mut steps = vec![opening.step()];
        steps.extend(word.and_then(|word| word.spent));
        let written = self.store.backend().transact(steps, now).await;
        let opened = opening.once(written).map_err(|error| match error {
            error if Good::was_used(&error) => {
                Status::permission_denied("what the device has signed was used already; log in again")
            }
            error => storage(&error),
        })?;
        self.journal.note_caused(caller, event, "").await?;
        Ok((opened, code))
    }

    /// Certificates for a login that was proven, for the program that began it. It waits until then, or until the login ends; where the
    /// browser brings it a code, the certificates take that.
    pub(crate) async fn finish_browser_login(
        &self,
        caller: &Caller,
        request: v1::FinishBrowserLoginRequest,
    ) -> Result<v1::FinishBrowserLoginResponse, Status> {
        let mut wait = Challenges::wait();
        loop {
            let now = OffsetDateTime::now_utc();
            let stored = self.at(caller, &request.challenge, now).await?;
            let Purpose::Login(asked) = &stored.value.purpose else {
                return Err(Status::invalid_argument("this challenge is not for a login"));
            };
            if let Some(refused) = self.not_the_program(caller, &stored, asked, &request, now).await? {
                return Err(refused);
            }
            if request.cancel {
                return self.give_up(caller, &stored, now).await;
            }
            match (&stored.value.state, &asked.redirect) {
                (State::Pending, _) => {}
                (State::Proven(_), Redirect::Loopback { .. }) if request.code.is_empty() => {}
                (State::Proven(by), _) => return self.finish(caller, &stored, asked, by, now).await,
                (State::Refused, _) => {
                    return Err(Status::permission_denied(
                        "the login was refused at the page, or ended after wrong answers; begin again: sallyport login",
                    ));
                }
                (State::Used, _) => {
                    return Err(Status::failed_precondition(
                        "this login was used already; begin again: sallyport login",
                    ));
                }
            }
            // Only the program that began it waits.
            if !self.reads_again(&mut wait, &stored.name).await? {
                return Ok(v1::FinishBrowserLoginResponse::default());
            }
        }
    }

    /// Ends a login to which a program comes with the wrong verifier or code: it is not the one that began it, or the browser's answer
    /// is not from here.
    pub(super) async fn not_the_program(
        &self,
        caller: &Caller,
        stored: &Stored<ChallengeRecord>,
        asked: &LoginAsked,
        request: &v1::FinishBrowserLoginRequest,
        now: OffsetDateTime,
    ) -> Result<Option<Status>, Status> {
        let verifier = &request.code_verifier;
        let hashed = HEXLOWER.encode(&hash::sha256(verifier.as_bytes()));
        let right = VERIFIER.contains(&verifier.len()) && same(&hashed, &asked.code_challenge);
        let reason = match (&asked.redirect, &stored.value.state) {
            _ if !right => Some("wrong verifier"),
            (Redirect::Headless | Redirect::SecurityKey, _) => None,
            // It waits, or gives the login up.
            (Redirect::Loopback { .. }, _) if request.code.is_empty() => None,
            (Redirect::Loopback { .. }, State::Proven(by)) => {
                match by.code.as_ref().map(|code| code.opens(&request.code, now)) {
                    Some((true, true)) => None,
                    Some((true, false)) => Some("the code is over"),
                    Some((false, _)) | None => Some("wrong code"),
                }
            }
            (Redirect::Loopback { .. }, State::Pending) => Some("a code before the login is proven"),
            (Redirect::Loopback { .. }, State::Refused | State::Used) => None,
        };
        let Some(reason) = reason else { return Ok(None) };
        if matches!(stored.value.state, State::Pending | State::Proven(_)) {
            let event = caller.event(Code::ChallengeRefused).message(reason);
            self.end(caller, stored, event, now).await?;
        }
        Ok(Some(Status::permission_denied(format!(
            "{reason}: this login has ended, since another program may be after it; begin again: sallyport login"
        ))))
    }

    /// Ends a login that the program which began it gives up, such as when it is interrupted: nothing that is proven after that opens
    /// anything.
    async fn give_up(
        &self,
        caller: &Caller,
        stored: &Stored<ChallengeRecord>,
        now: OffsetDateTime,
    ) -> Result<v1::FinishBrowserLoginResponse, Status> {
        if matches!(stored.value.state, State::Pending | State::Proven(_)) {
            let mut next = stored.value.clone();
            next.state = State::Refused;
            next.ceremony = None;
            self.write(stored, &next, Vec::new(), now).await?;
            let event = caller.event(Code::ChallengeRefused).message("given up by the program that began it");
            self.journal.note_caused(caller, Self::named(event, stored), "given up").await?;
        }
        Ok(v1::FinishBrowserLoginResponse::default())
    }

    async fn finish(
        &self,
        caller: &Caller,
        stored: &Stored<ChallengeRecord>,
        asked: &LoginAsked,
        by: &ProvenBy,
        now: OffsetDateTime,
    ) -> Result<v1::FinishBrowserLoginResponse, Status> {
        let gone = || Status::permission_denied("the account is not there any more");
        let name = stored.value.user.clone().ok_or_else(gone)?;
        let user = self.store.get::<UserRecord>(name.as_str(), now).await.map_err(|error| storage(&error))?;
        let sallyport_store::Stored { value: user, expires: until, .. } = user.ok_or_else(gone)?;
        let mut next = stored.value.clone();
        next.state = State::Used;
        let tls = BASE64.decode(asked.tls_public_key.as_bytes());
        let ttl = Duration::from_secs(u64::from(asked.ttl_seconds));
        let keys = LoginKeys {
            ssh: asked.ssh_public_key.clone(),
            tls: tls.map_err(|error| Status::internal(error.to_string()))?.into(),
            ttl: (!ttl.is_zero()).then_some(ttl),
            // Its word was spent when the login was begun, over these very keys.
            device: asked.device.map(|device| Word { device, spent: None }),
            host_name: stored.value.host_name.clone(),
            asked_from: Some(stored.value.address).filter(|address| *address != NOWHERE.ip()),
        };
        let proven = Proven {
            user,
            user_revision: by.user_revision,
            by: by.means.clone(),
            spends: Spends::Challenge {
                used: self.changed(stored, &next, now)?,
                challenge: stored.name.clone(),
                proven_at: by.at,
            },
            // A local user who is linked does not end, and what the provider has vouched for does.
            until: until.or(by.means.until),
        };
        let allowed = self.may_log_in_so(&proven.user, &asked.redirect, now).map(drop);
        let opened = match allowed {
            Ok(()) => self.accounts.open(caller, proven, &keys, now).await,
            Err(refusal) => Err(refusal),
        };
        match opened {
            Ok(login) => {
                self.is_changed(stored, &next);
                Ok(v1::FinishBrowserLoginResponse { login: Some(login), user: name.to_string() })
            }
            Err(refusal) => Err(self.accounts.login_failed(caller, name.as_str(), refusal).await?),
        }
    }

    /// Whether a user may log in, and in this way: a headless login can be asked for by a stranger on the phone, so that by default
    /// those who administer the cluster have none.
    pub(super) fn may_log_in_so(
        &self,
        user: &UserRecord,
        redirect: &Redirect,
        now: OffsetDateTime,
    ) -> Result<(), LoginRefusal> {
        let identity = self.accounts.may_log_in(user, now)?;
        if *redirect != Redirect::Headless || self.config.authentication.headless == HeadlessLogins::Everyone
        {
            return Ok(());
        }
        let cache = self.policy.cache();
        if !administers(&cache.policies, &identity) {
            return Ok(());
        }
        Err(LoginRefusal {
            status: Status::permission_denied(
                "headless logins are off for those who administer the cluster (auth.authentication.headless); log in where there is a \
                 browser: sallyport login --browser",
            ),
            reason: "a headless login of an administrator",
            locked_out: false,
        })
    }
}
