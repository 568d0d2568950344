//! Passwords and codes for certificates.

use sallyport_access::UserName;
use sallyport_store::Stored;
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;
use zeroize::Zeroizing;

use crate::authority::accounts::login::{Account, Accounts, BARRED, LoginRefusal, locked_out, refusal};
use crate::authority::accounts::means::{Means, Way};
use crate::authority::accounts::opening::{LoginKeys, Proven, Spends};
use crate::authority::accounts::passwords::LENGTHS;
use crate::authority::accounts::second::WrongCode;
use crate::authority::caller::{Caller, host_name, shown};
use crate::authority::factors::recovery::RecoveryCode;
use crate::authority::records::UserRecord;
use crate::authority::secrets::hash_of;
use crate::authority::storage::storage;
use crate::config::SecondFactor;

impl Accounts {
    /// Certificates for a password and a code.
    pub(crate) async fn log_in(
        &self,
        caller: &Caller,
        request: v1::LoginRequest,
    ) -> Result<v1::LoginResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let asked = shown(&request.user);
        match self.try_log_in(caller, request, now).await {
            Ok(answer) => Ok(answer),
            Err(refusal) => Err(self.login_failed(caller, &asked, refusal).await?),
        }
    }

    async fn try_log_in(
        &self,
        caller: &Caller,
        request: v1::LoginRequest,
        now: OffsetDateTime,
    ) -> Result<v1::LoginResponse, LoginRefusal> {
        let password = Zeroizing::new(request.password);
        let otp = Zeroizing::new(request.otp);
        let proven = self.prove_password(caller, &request.user, password, &otp, now).await?;
        let from = request.device.as_ref();
        let device = self.login_from(from, &request.ssh_public_key, &request.tls_public_key, now).await?;
        let keys = LoginKeys {
            ssh: request.ssh_public_key,
            tls: request.tls_public_key,
            device,
            ttl: request.ttl.as_ref().and_then(convert::duration_from_proto),
            host_name: host_name(&request.host_name),
            asked_from: None,
        };
        self.open(caller, proven, &keys, now).await
    }

    /// Checks a password and its code. Nothing is spent yet: [`Accounts::open`] does, or what else the proof serves for.
    pub(crate) async fn prove_password(
        &self,
        caller: &Caller,
        asked: &str,
        password: Zeroizing<String>,
        otp: &str,
        now: OffsetDateTime,
    ) -> Result<Proven, LoginRefusal> {
        self.guesses.not_barred(caller, now).map_err(|status| refusal(status, BARRED))?;
        self.demand_passwords().map_err(|status| refusal(status, "passwords are off"))?;
        if password.len() > *LENGTHS.end() {
            return Err(refusal(Status::invalid_argument("the password is too long"), "password too long"));
        }
        let _turn = self.turns.take(&hash_of(asked)).await?;
        let name = UserName::new(asked.to_owned()).ok();
        let user = match &name {
            Some(name) => {
                self.store.get::<UserRecord>(name.as_str(), now).await.map_err(|error| storage(&error))?
            }
            None => None,
        };
        let Some(Stored { value: user, revision: user_revision, .. }) = user else {
            return Err(self.unknown_user(caller, asked, password, otp, now).await);
        };
        let account = Account::Known(&user.name);
        self.take_over_codes(&user.name, now).await?;
        let (credential, revision) = self.credential(&account, now).await.map_err(|error| storage(&error))?;
        if let Some(until) = credential.locked_until.filter(|until| *until > now.unix_timestamp()) {
            return Err(refusal(locked_out(until, now), "locked out"));
        }
        let held = self.factors.held(&user.name, now).await?;
        let right = self.passwords.verify(password.clone(), credential.password.clone()).await?;
        let code = match (right, self.check_code(&user.name, &held, otp, now).await) {
            (true, Ok(code)) => code,
            (_, Err(WrongCode::Busy(status))) => return Err(status.into()),
            (_, outcome) => {
                let (reason, told) = match outcome {
                    Err(wrong) if right => (wrong.reason(), wrong.told()),
                    _ if credential.password.is_none() => ("no password set", None),
                    _ => ("wrong password", None),
                };
                self.guesses.note(caller, now);
                let mut refusal = self.failed_login(&account, credential, revision, reason, now).await;
                // The password is right: it is the person, or a thief of it, who learns no more than a right code would have shown.
                // Of every other mistake the answer stays the same.
                if let Some(told) = told.filter(|_| refusal.status.code() == tonic::Code::Unauthenticated) {
                    refusal.status = told;
                }
                return Err(refusal);
            }
        };
        // From here the person has proven who they are and may read why not.
        if code.is_none() && self.config.second_factor == SecondFactor::Required {
            let text = "this cluster requires a second factor and you have none; ask an administrator for a reset link";
            return Err(refusal(Status::failed_precondition(text), "no second factor"));
        }
        let factor = code.as_ref().and_then(|code| code.means().factor);
        let by = Means { factor, ..Means::by(Way::Password, code.is_some()) };
        let spends = Spends::Password { credential, code, password };
        Ok(Proven { user, user_revision, by, spends, until: None })
    }

    /// As slow as a real user, closed as one is, and written down as one is: neither an answer nor the time that it takes tells
    /// whether there is such a user.
    async fn unknown_user(
        &self,
        caller: &Caller,
        asked: &str,
        password: Zeroizing<String>,
        otp: &str,
        now: OffsetDateTime,
    ) -> LoginRefusal {
        let account = Account::Unknown(hash_of(asked));
        let (credential, revision) = match self.credential(&account, now).await {
            Ok(found) => found,
            Err(error) => return storage(&error).into(),
        };
        if let Some(until) = credential.locked_until.filter(|until| *until > now.unix_timestamp()) {
            return refusal(locked_out(until, now), "unknown user, closed");
        }
        if let Err(status) = self.passwords.verify(password, None).await {
            return status.into();
        }
        if let Some(code) = RecoveryCode::parse(otp)
            && let Err(status) = self.passwords.verify(code.secret, None).await
        {
            return status.into();
        }
        self.guesses.note(caller, now);
        self.failed_login(&account, credential, revision, "unknown user", now).await
    }
}
