//! One login, by each way.

use std::time::Duration;

use sallyport_sal::hash;
use sallyport_wire::v1;
use sallyport_wire::v1::fleet_client::FleetClient;
use tokio::time::Instant;
use tonic::{Code, Status};

use super::stage::{CONNECTOR, ORIGIN, PASSWORD, Program, Stage};
use crate::LabError;

/// What a program keeps to itself until its login is proven (RFC 7636 §4.1).
const VERIFIER: &str = "a-verifier-of-forty-three-characters-or-more";
/// Where a program awaits its browser. Nothing listens there: the lab reads the address itself.
const PORT: u32 = 45_678;

/// How a login is proven, and what else makes certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// A password, in the terminal.
    Password,
    /// A wrong one.
    WrongPassword,
    /// A passkey at the page: four calls.
    Passkey,
    /// An identity provider's answer: four calls, and one of the authority's to the provider.
    SingleSignOn,
    /// New certificates for a host.
    Renewal,
}

impl Way {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Password => "password",
            Self::WrongPassword => "wrong password",
            Self::Passkey => "passkey",
            Self::SingleSignOn => "single sign-on",
            Self::Renewal => "host's renewal",
        }
    }
}

/// One login, and how long it took; none where the authority says that it is busy.
pub(super) async fn once(stage: &Stage, way: Way) -> Result<Option<Duration>, LabError> {
    let began = Instant::now();
    let done = match way {
        Way::Password => password(stage).await,
        Way::WrongPassword => wrong_password(stage).await,
        Way::Passkey => passkey(stage).await,
        Way::SingleSignOn => single_sign_on(stage).await,
        Way::Renewal => renewal(stage).await,
    };
    match done {
        Ok(()) => Ok(Some(began.elapsed())),
        Err(status) if status.code() == Code::ResourceExhausted => Ok(None),
        Err(status) => Err(LabError::Failed {
            what: format!("a login by {}", way.name()),
            said: status.message().to_owned(),
        }),
    }
}

fn by_password(stage: &Stage, user: String, password: &str) -> v1::LoginRequest {
    v1::LoginRequest {
        user,
        password: password.to_owned(),
        otp: String::new(),
        ssh_public_key: stage.keys.ssh.clone(),
        tls_public_key: stage.keys.tls.clone().into(),
        ttl: None,
        device: None,
        host_name: "lab".to_owned(),
    }
}

async fn password(stage: &Stage) -> Result<(), Status> {
    let request = by_password(stage, stage.passwords.next().clone(), PASSWORD);
    stage.programs.next().login().login_with_password(request).await.map(drop)
}

async fn wrong_password(stage: &Stage) -> Result<(), Status> {
    // Of many names, since each is closed after five, and from addresses of their own, since each is barred after sixty.
    let request = by_password(stage, stage.nobody(), "a wrong password");
    match stage.attackers.next().login().login_with_password(request).await {
        Err(status) if status.code() == Code::Unauthenticated => Ok(()),
        Err(status) => Err(status),
        Ok(_) => Err(Status::internal("a wrong password was let in")),
    }
}

async fn begin(stage: &Stage, program: &Program) -> Result<String, Status> {
    let request = v1::BeginBrowserLoginRequest {
        ssh_public_key: stage.keys.ssh.clone(),
        tls_public_key: stage.keys.tls.clone().into(),
        ttl_seconds: 0,
        code_challenge: hash::sha256(VERIFIER.as_bytes()).to_vec().into(),
        redirect_port: PORT,
        host_name: "lab".to_owned(),
        device: None,
    };
    let begun = program.login().begin_browser_login(request).await?;
    Ok(begun.into_inner().page.unwrap_or_default().challenge)
}

async fn finish(program: &Program, challenge: String, redirect: &str) -> Result<(), Status> {
    let request = v1::FinishBrowserLoginRequest {
        challenge,
        code: member(redirect, "code"),
        code_verifier: VERIFIER.to_owned(),
        cancel: false,
    };
    program.login().finish_browser_login(request).await.map(drop)
}

async fn passkey(stage: &Stage) -> Result<(), Status> {
    let program = stage.programs.next();
    let (id, address) = (begin(stage, program).await?, program.address.clone());
    let mut web = stage.proxies.next().pages();
    let request =
        v1::WebBeginPasskeyRequest { id: id.clone(), address: address.clone(), code: String::new() };
    let asked = web.begin_login_passkey(request).await?.into_inner();
    // A passkey counts its uses, so that its answers have to arrive in their order.
    let mut authenticator = stage.passkeys.next().lock().await;
    let response_json = authenticator.get(&asked.options_json);
    let request = v1::WebFinishPasskeyRequest { id: id.clone(), address, response_json };
    let proven = web.finish_login_passkey(request).await?.into_inner();
    drop(authenticator);
    finish(program, id, &proven.redirect).await
}

async fn single_sign_on(stage: &Stage) -> Result<(), Status> {
    let program = stage.programs.next();
    let (id, address) = (begin(stage, program).await?, program.address.clone());
    let mut web = stage.proxies.next().pages();
    let request = v1::WebBeginSsoRequest {
        id: id.clone(),
        address: address.clone(),
        code: String::new(),
        connector: CONNECTOR.to_owned(),
        origin: ORIGIN.to_owned(),
    };
    let away = web.begin_login_sso(request).await?.into_inner();
    let request = v1::WebFinishSsoRequest {
        address,
        state: member(&away.redirect, "state"),
        code: stage.provider.code(stage.persons.next(), &member(&away.redirect, "nonce")),
        iss: String::new(),
        error: String::new(),
        error_description: String::new(),
        binding: away.binding,
        connector: CONNECTOR.to_owned(),
    };
    let proven = web.finish_login_sso(request).await?.into_inner();
    finish(program, id, &proven.redirect).await
}

async fn renewal(stage: &Stage) -> Result<(), Status> {
    let proxy = stage.proxies.next();
    let request = v1::RenewHostRequest {
        ssh_public_key: proxy.ssh_public.clone(),
        tls_public_key: proxy.tls_public.clone().into(),
        public_names: Vec::new(),
    };
    FleetClient::new(proxy.channel.clone()).renew_host(request).await.map(drop)
}

/// A member of an address's query, whose values here have nothing to decode.
fn member(address: &str, name: &str) -> String {
    let query = address.split_once('?').map_or("", |(_, query)| query);
    let found = query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name);
    found.map(|(_, value)| value.to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_addresses_are_found() {
        assert_eq!(member("http://127.0.0.1:1/callback?code=a-b_c&state=d", "code"), "a-b_c");
        assert_eq!(member("http://127.0.0.1:1/callback?code=a&state=d", "state"), "d");
        assert_eq!(member("http://127.0.0.1:1/callback", "code"), "");
    }
}
