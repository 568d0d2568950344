//! A login that the person proves in a browser: the keys and the hash of a verifier go ahead, the verifier comes last, and certificates
//! are given for nothing but the three together.

use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use futures::future::BoxFuture;
use sallyport_access::UserName;
use sallyport_sal::{hash, random, selection};
use sallyport_wire::fips;
use sallyport_wire::v1::{
    BeginBrowserLoginRequest, ChallengePage, FinishBrowserLoginRequest, FinishBrowserLoginResponse,
    LoginResponse, PingRequest,
};
use tokio::time::Instant;
use tonic::{Code, Status};
use tracing::debug;

use super::authority::{self, FirstTrust};
use super::device::Devices;
use super::login::{LoggedIn, save, word};
use super::login_keys::LoginKeys;
use super::loopback::{Loopback, state_of};
use super::own_ssh_key::OwnSshKey;
use super::profile::Profiles;
use crate::error::{Doing, Error, Result, was_reached};

/// Random bytes of a verifier: 43 characters of base64url (RFC 7636 §4.1).
const VERIFIER_BYTES: usize = 32;
/// How long the authority lets a login be proven.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long to wait before the authority is asked again that could not be reached.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a program that is interrupted tries to say so.
const LAST_WORD: Duration = Duration::from_secs(2);

/// Where the browser is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// On this machine.
    Here,
    /// On another: the person types a code there that this program shows.
    Elsewhere,
}

/// A login that waits to be proven.
#[derive(Debug)]
pub struct BrowserLogin {
    proxy: String,
    first: FirstTrust,
    keys: LoginKeys,
    page: ChallengePage,
    verifier: String,
    loopback: Option<Loopback>,
    headless_code: String,
}

/// What a program says that gives a login up before it is proven, such as when it is interrupted: it ends at once then, and not ten
/// minutes later.
#[derive(Clone)]
pub struct GiveUp {
    proxy: String,
    first: FirstTrust,
    request: FinishBrowserLoginRequest,
}

impl std::fmt::Debug for GiveUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The request has the verifier.
        f.debug_struct("GiveUp").field("proxy", &self.proxy).finish_non_exhaustive()
    }
}

impl GiveUp {
    /// Of a login that was begun at a proxy, by the verifier whose hash went ahead.
    pub(crate) fn of(proxy: &str, first: &FirstTrust, challenge: &str, verifier: &str) -> Self {
        let request = FinishBrowserLoginRequest {
            challenge: challenge.to_owned(),
            code: String::new(),
            code_verifier: verifier.to_owned(),
            cancel: true,
        };
        Self { proxy: proxy.to_owned(), first: first.clone(), request }
    }

    /// Says it, for two seconds at most. Where that does not arrive, the login ends by itself.
    pub fn tell(self) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let telling = async {
                let mut client = authority::login(&self.proxy, &self.first).await?;
                let request = fips::saying(self.request, selection::global().is_fips());
                let told = client.finish_browser_login(request).await;
                told.map(drop).map_err(|status| Error::answered("give the login up", status))
            };
            match tokio::time::timeout(LAST_WORD, telling).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => debug!(error = error.told(), "the login ends by itself"),
                Err(_) => debug!("the authority took too long; the login ends by itself"),
            }
        })
    }
}

/// A login that a person has proven at its page, and that is not stored yet.
#[derive(Debug)]
pub struct ProvenLogin {
    proxy: String,
    user: UserName,
    keys: LoginKeys,
    response: LoginResponse,
}

impl ProvenLogin {
    /// Whose it is: of the person who proved it, which may be another than the one at this program.
    #[must_use]
    pub fn user(&self) -> &UserName {
        &self.user
    }

    /// Stores it.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn store(self, profiles: &Profiles) -> Result<LoggedIn> {
        save(profiles, &self.proxy, &self.user, &self.keys, self.response)
    }
}

/// The address of a page: at the proxy's own where passkeys work there, else at the first where they do.
#[must_use]
pub fn address_of(page: &ChallengePage, proxy: &str) -> String {
    let own = format!("https://{}", proxy.strip_suffix(":443").unwrap_or(proxy));
    let origin = match page.origins.first() {
        Some(first) if !page.origins.contains(&own) => first,
        _ => &own,
    };
    format!("{origin}{}", page.path)
}

impl BrowserLogin {
    /// Reaches the authority of the cluster at an address, and tells it what is to be proven. `host_name` is what the page shows of
    /// this machine. Where this machine is a trusted device, it gives its word. With `own`,
    /// the authority certifies that SSH key.
    ///
    /// # Errors
    /// The authority cannot be reached, is not the one that `first` says, or knows no logins in a browser.
    pub fn begin<'a>(
        proxy: &'a str,
        first: &'a FirstTrust,
        place: Where,
        ttl: Option<Duration>,
        host_name: &'a str,
        devices: &'a Devices,
        own: Option<OwnSshKey>,
    ) -> BoxFuture<'a, Result<Self>> {
        Box::pin(async move {
            let mut client = authority::login(proxy, first).await?;
            let ping = client.ping(PingRequest {}).await;
            let ping = ping.map_err(|status| Error::answered("reach the authority", status))?.into_inner();
            let making = LoginKeys::making(host_name, ping.suite.parse().unwrap_or_default(), own);
            let loopback = match place {
                Where::Here => Some(Loopback::bind().await?),
                Where::Elsewhere => None,
            };
            let keys = making.await.doing("make keys")??;
            let device = devices.open(&ping.cluster).await?;
            let device = word(device.as_ref(), &mut client, &ping.cluster, &keys).await?;
            let verifier = fresh_verifier()?;
            let request = BeginBrowserLoginRequest {
                ssh_public_key: keys.ssh.public_line().to_owned(),
                tls_public_key: keys.tls.spki_der().to_vec().into(),
                ttl_seconds: ttl.map_or(0, |ttl| u32::try_from(ttl.as_secs()).unwrap_or(u32::MAX)),
                code_challenge: hash::sha256(verifier.as_bytes()).to_vec().into(),
                redirect_port: loopback.as_ref().map_or(0, |loopback| u32::from(loopback.port())),
                host_name: host_name.to_owned(),
                device,
            };
            let begun = client
                .begin_browser_login(fips::saying(request, selection::global().is_fips()))
                .await
                .map_err(|status| Error::answered("begin a login in a browser", status))?
                .into_inner();
            Ok(Self {
                proxy: proxy.to_owned(),
                first: first.clone(),
                keys,
                page: begun.page.ok_or(Error::Lacking("page"))?,
                verifier,
                loopback,
                headless_code: begun.headless_code,
            })
        })
    }

    /// What is to be opened in a browser.
    #[must_use]
    pub fn address(&self) -> String {
        address_of(&self.page, &self.proxy)
    }

    /// What the person types at the page: always where the browser is elsewhere, else where the page asks for it.
    #[must_use]
    pub fn headless_code(&self) -> &str {
        &self.headless_code
    }

    /// What to say where the login is given up before it is finished.
    #[must_use]
    pub fn give_up(&self) -> GiveUp {
        GiveUp::of(&self.proxy, &self.first, &self.page.challenge, &self.verifier)
    }

    /// Waits until the login is proven; where a user is `wanted`, by them. The authority may be away meanwhile. Nothing is stored.
    ///
    /// # Errors
    /// It was refused at the page, was not proven in time, or the authority does not certify it.
    pub fn finish(mut self, wanted: Option<&UserName>) -> BoxFuture<'_, Result<ProvenLogin>> {
        Box::pin(async move {
            let deadline = Instant::now() + PATIENCE;
            let code = match self.loopback.take() {
                Some(loopback) => {
                    let code = loopback.code(state_of(&self.page.challenge));
                    tokio::select! {
                        code = tokio::time::timeout_at(deadline, code) => {
                            code.map_err(|_| Error::LoginNotProven { after: PATIENCE })?
                        }
                        // No browser comes with that.
                        ended = self.ended() => return Err(ended),
                    }
                }
                None => String::new(),
            };
            loop {
                let answer = match self.ask(&code).await {
                    Err(error) if is_passing(&error) && Instant::now() + PAUSE < deadline => {
                        debug!(error = error.told(), "the authority is asked again");
                        tokio::time::sleep(PAUSE).await;
                        continue;
                    }
                    answered => answered?,
                };
                if let Some(response) = answer.login {
                    let user = UserName::new(answer.user).doing("understand the authority's answer")?;
                    if let Some(wanted) = wanted.filter(|wanted| **wanted != user) {
                        return Err(Error::OtherUser { user, wanted: wanted.clone() });
                    }
                    let Self { proxy, keys, .. } = self;
                    return Ok(ProvenLogin { proxy, user, keys, response });
                }
                if Instant::now() >= deadline {
                    return Err(Error::LoginNotProven { after: PATIENCE });
                }
            }
        })
    }

    /// Waits until the login has ended without a code for this program, such as by a refusal at the page; what keeps the program from
    /// hearing of that is no end.
    async fn ended(&self) -> Error {
        loop {
            let asked = Instant::now();
            match self.ask("").await {
                Ok(_) => {}
                Err(error) if is_final(&error) => return error,
                Err(error) => debug!(error = error.told(), "whether the login was refused is not heard"),
            }
            // No authority is asked without end that does not wait.
            tokio::time::sleep_until(asked + PAUSE).await;
        }
    }

    /// Asks once. The authority keeps no connection of a program without a certificate for long, so that each has its own.
    async fn ask(&self, code: &str) -> Result<FinishBrowserLoginResponse> {
        let mut client = authority::login(&self.proxy, &self.first).await?;
        let request = FinishBrowserLoginRequest {
            challenge: self.page.challenge.clone(),
            code: code.to_owned(),
            code_verifier: self.verifier.clone(),
            cancel: false,
        };
        let answer = client.finish_browser_login(fips::saying(request, selection::global().is_fips())).await;
        Ok(answer.map_err(not_certified)?.into_inner())
    }
}

/// A verifier, whose hash goes ahead of it (RFC 7636 §4.1).
pub(crate) fn fresh_verifier() -> Result<String> {
    let verifier = random::bytes::<VERIFIER_BYTES>().doing("make a verifier")?;
    Ok(BASE64URL_NOPAD.encode(&verifier))
}

/// Why the authority does not certify a login that was begun with a verifier.
pub(crate) fn not_certified(status: Status) -> Error {
    match status.message().contains("lifetime") {
        true => Error::Lifetime { status },
        false => Error::answered("log in", status),
    }
}

/// Whether the authority says that the login has ended.
fn is_final(error: &Error) -> bool {
    let ends = [Code::PermissionDenied, Code::FailedPrecondition, Code::NotFound];
    matches!(error, Error::Answered { status, .. } if ends.contains(&status.code()))
}

/// Whether the authority was not reached, or goes just now: the login is as it was.
fn is_passing(error: &Error) -> bool {
    match error {
        Error::Unreached { .. } | Error::Unshaken { .. } | Error::Unusable { .. } => true,
        Error::Answered { status, .. } => match status.code() {
            Code::Unavailable => true,
            Code::Unknown | Code::Internal | Code::Cancelled => !was_reached(status),
            _ => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_that_goes_is_asked_again_and_one_that_refuses_is_not() {
        let answered = |status| is_passing(&Error::answered("log in", status));
        assert!(answered(Status::unavailable("the authority is shutting down")));
        assert!(is_passing(&Error::Unreached { proxy: "a:1".to_owned(), why: "refused".to_owned() }));
        for refused in [Status::permission_denied("refused at the page"), Status::failed_precondition("used")]
        {
            assert!(!answered(refused));
        }
        assert!(!is_passing(&Error::Lacking("page")));
    }

    #[test]
    fn a_login_has_ended_where_the_authority_says_so_and_not_where_it_is_busy() {
        let answered = |status| is_final(&Error::answered("log in", status));
        assert!(answered(Status::permission_denied("refused at the page")));
        assert!(answered(Status::not_found("no such login")));
        for status in [Status::resource_exhausted("too many wait"), Status::unavailable("going")] {
            assert!(!answered(status));
        }
        assert!(!is_final(&Error::Unreached { proxy: "a:1".to_owned(), why: "refused".to_owned() }));
    }

    #[test]
    fn a_page_is_opened_where_passkeys_work() {
        let page = |origins: &[&str]| ChallengePage {
            path: "/login#x".to_owned(),
            origins: origins.iter().map(|origin| (*origin).to_owned()).collect(),
            ..ChallengePage::default()
        };
        let other = "https://b.example:8443";
        assert_eq!(address_of(&page(&[]), "a.example:443"), "https://a.example/login#x");
        assert_eq!(
            address_of(&page(&["https://a.example", other]), "b.example:8443"),
            format!("{other}/login#x")
        );
        assert_eq!(
            address_of(&page(&["https://a.example", other]), "10.0.0.1:443"),
            "https://a.example/login#x"
        );
    }
}
