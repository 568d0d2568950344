//! A login: keys, which the authority certifies for a password and a one-time code, and which are then stored.

use std::time::Duration;

use futures::future::BoxFuture;
use sallyport_access::{Login as OsLogin, RoleName, UserName};
use sallyport_ca::TrustBundle;
use sallyport_sal::selection;
use sallyport_wire::v1::login_client::LoginClient;
use sallyport_wire::v1::{DeviceProof, LoginRequest, LoginResponse, PingRequest};
use sallyport_wire::{convert, fips};
use time::OffsetDateTime;
use tokio::task::JoinHandle;
use zeroize::Zeroizing;

use super::authority::{self, FirstTrust};
use super::channel::Channel;
use super::device::{About, OwnDevice};
use super::login_keys::{LoginKeys, SshIdentity};
use super::own_ssh_key::OwnSshKey;
use super::profile::{LoginFacts, Material, Profile, Profiles, Stored};
use super::trust;
use crate::error::{Doing, Error, Result};

/// A login that has begun: the authority was reached, and the keys are being made while the user types.
#[derive(Debug)]
pub struct Login {
    /// The cluster's name, as the authority gives it.
    pub cluster: String,
    /// The cluster's clock, where the authority tells it.
    pub time: Option<OffsetDateTime>,
    /// Whether the cluster requires a one-time code of every user.
    pub requires_code: bool,
    /// Whether the cluster prefers logins in a browser, by a passkey or single sign-on.
    pub prefers_browser: bool,
    /// Whether some users come by a connector, who have no password here.
    pub offers_single_sign_on: bool,
    /// Whether the cluster has passwords.
    pub takes_passwords: bool,
    client: LoginClient<Channel>,
    proxy: String,
    user: UserName,
    keys: JoinHandle<Result<LoginKeys>>,
}

/// What the user proves who they are with. It is wiped.
pub struct Secrets {
    /// The password.
    pub password: Zeroizing<String>,
    /// The one-time code; empty where the user has no second factor.
    pub otp: Zeroizing<String>,
}

/// A login that has succeeded.
#[derive(Debug)]
pub struct LoggedIn {
    /// What is stored of it.
    pub stored: Stored,
    /// What the cluster has its users read; may be empty.
    pub message_of_the_day: String,
}

impl Login {
    /// Reaches the authority of the cluster at an address, and begins to make keys. With `own`, the authority certifies that SSH key.
    ///
    /// # Errors
    /// The authority cannot be reached, or is not the one that `first` says.
    pub fn begin<'a>(
        proxy: &'a str,
        first: &'a FirstTrust,
        user: &'a UserName,
        own: Option<OwnSshKey>,
    ) -> BoxFuture<'a, Result<Self>> {
        Box::pin(async move {
            let mut client = authority::login(proxy, first).await?;
            let ping = client
                .ping(PingRequest {})
                .await
                .map_err(|status| Error::answered("reach the authority", status))?
                .into_inner();
            Ok(Self {
                time: ping.time.as_ref().and_then(convert::time_from_proto),
                requires_code: ping.second_factor == "required",
                prefers_browser: ping
                    .login_methods
                    .first()
                    .is_some_and(|method| method == "passkey" || method == "sso"),
                offers_single_sign_on: ping.login_methods.iter().any(|method| method == "sso"),
                // One of an earlier release names no methods, and has passwords.
                takes_passwords: ping.login_methods.is_empty()
                    || ping.login_methods.iter().any(|method| method == "password"),
                // An authority that does not say, or that says a suite of a newer release, gets keys that every release reads.
                keys: LoginKeys::making(user.as_str(), ping.suite.parse().unwrap_or_default(), own),
                cluster: ping.cluster,
                client,
                proxy: proxy.to_owned(),
                user: user.clone(),
            })
        })
    }

    /// Has the keys certified for at most `ttl`, by default for as long as the user's roles allow, and stores them. Where this machine is
    /// a trusted device, it gives its word; the list of logins calls the machine by the name.
    ///
    /// # Errors
    /// The authority refuses, or the files cannot be written.
    pub fn finish(
        mut self,
        profiles: &Profiles,
        mut secrets: Secrets,
        ttl: Option<Duration>,
        (device, host_name): (Option<OwnDevice>, String),
    ) -> BoxFuture<'_, Result<LoggedIn>> {
        Box::pin(async move {
            let keys = self.keys.await.doing("make keys")??;
            let device = word(device.as_ref(), &mut self.client, &self.cluster, &keys).await?;
            let request = LoginRequest {
                user: self.user.to_string(),
                password: std::mem::take(&mut *secrets.password),
                otp: std::mem::take(&mut *secrets.otp),
                ssh_public_key: keys.ssh.public_line().to_owned(),
                tls_public_key: keys.tls.spki_der().to_vec().into(),
                ttl: ttl.map(convert::duration_to_proto),
                device,
                host_name,
            };
            let response = self
                .client
                .login_with_password(fips::saying(request, selection::global().is_fips()))
                .await
                .map_err(|status| match ttl.is_some() && status.message().contains("lifetime") {
                    true => Error::Lifetime { status },
                    false => Error::answered("log in", status),
                })?
                .into_inner();
            save(profiles, &self.proxy, &self.user, &keys, response)
        })
    }
}

/// The word of this machine for a login over these keys, where it is a trusted device.
pub(crate) async fn word(
    device: Option<&OwnDevice>,
    client: &mut LoginClient<Channel>,
    cluster: &str,
    keys: &LoginKeys,
) -> Result<Option<DeviceProof>> {
    let Some(device) = device else { return Ok(None) };
    let about = About::Login {
        ssh_public_key: keys.ssh.public_line().to_owned(),
        tls_public_key: keys.tls.spki_der().to_vec(),
    };
    device.word(client, cluster, about).await.map(Some)
}

/// Stores what a login has given.
pub(crate) fn save(
    profiles: &Profiles,
    proxy: &str,
    user: &UserName,
    LoginKeys { ssh, tls }: &LoginKeys,
    response: LoginResponse,
) -> Result<LoggedIn> {
    let (private, own) = match ssh {
        SshIdentity::Fresh(pair) => (Some(pair.private_openssh()), None),
        SshIdentity::Own(own) => (None, Some(own.file().to_owned())),
    };
    let stored = profiles.save(
        &Profile { ssh_key: own, ..profile_of(proxy, user, &response)? },
        &Material {
            ssh_private_openssh: private.as_deref().map(String::as_str),
            ssh_public_line: ssh.public_line(),
            ssh_certificate_line: &response.ssh_certificate,
            tls_key_pem: &tls.pkcs8_pem(),
            tls_certificate_pem: &response.tls_certificate_pem,
            trust: &trust_of(&response)?,
        },
    )?;
    Ok(LoggedIn { stored, message_of_the_day: response.message_of_the_day })
}

fn profile_of(proxy: &str, user: &UserName, response: &LoginResponse) -> Result<Profile> {
    let odd = "understand the authority's answer";
    let login = response.login.as_ref().map(|login| LoginFacts {
        id: login.id.clone(),
        way: login.way.clone(),
        factor: login.factor.clone(),
        factor_kind: login.factor_kind.clone(),
        second_factor: login.second_factor,
    });
    Ok(Profile {
        login,
        ssh_key: None,
        proxy: proxy.to_owned(),
        cluster: response.cluster.parse().doing(odd)?,
        user: user.clone(),
        roles: response.roles.iter().map(RoleName::new).collect::<Result<_, _>>().doing(odd)?,
        logins: response.logins.iter().map(OsLogin::new).collect::<Result<_, _>>().doing(odd)?,
        valid_until: response
            .valid_until
            .as_ref()
            .and_then(convert::time_from_proto)
            .ok_or_else(|| Error::Lacking("end of validity"))?,
    })
}

fn trust_of(response: &LoginResponse) -> Result<TrustBundle> {
    let sent = response.trust.clone().ok_or_else(|| Error::Lacking("trust"))?;
    Ok(trust::bundle(sent, &response.cluster.parse().doing("understand the authority's answer")?))
}
