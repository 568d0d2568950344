//! One login, by each way.

use std::time::Duration;

use sallyport_wire::v1;
use sallyport_wire::v1::fleet_client::FleetClient;
use sallyport_wire::v1::session_factors_client::SessionFactorsClient;
use tokio::time::Instant;
use tonic::{Code, Status};

use super::calls::{begin, by_passkey, finish, member};
use super::stage::{CONNECTOR, ORIGIN, PASSWORD, Stage};
use crate::LabError;

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
    /// Certificates of a minute that say what was proven for a session.
    SessionCertificate,
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
            Self::SessionCertificate => "session's certificate",
            Self::Renewal => "host's renewal",
        }
    }
}

/// One login, and how long it took; none where the authority says that it is busy.
pub(super) async fn once(stage: &Stage, way: Way) -> Result<Option<Duration>, LabError> {
    let began = Instant::now();
    match by(stage, way).await {
        Ok(()) => Ok(Some(began.elapsed())),
        Err(status) if status.code() == Code::ResourceExhausted => Ok(None),
        Err(status) => Err(LabError::Failed {
            what: format!("a login by {}", way.name()),
            said: status.message().to_owned(),
        }),
    }
}

async fn by(stage: &Stage, way: Way) -> Result<(), Status> {
    match way {
        Way::Password => password(stage).await,
        Way::WrongPassword => wrong_password(stage).await,
        Way::Passkey => passkey(stage).await,
        Way::SingleSignOn => single_sign_on(stage).await,
        Way::SessionCertificate => session_certificate(stage).await,
        Way::Renewal => renewal(stage).await,
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

async fn passkey(stage: &Stage) -> Result<(), Status> {
    // A passkey counts its uses, so that its answers have to arrive in their order.
    let mut authenticator = stage.passkeys.next().lock().await;
    let (program, pages) = (stage.programs.next(), stage.proxies.next().pages());
    by_passkey(program, pages, &mut authenticator, &stage.keys).await.map(drop)
}

async fn single_sign_on(stage: &Stage) -> Result<(), Status> {
    let program = stage.programs.next();
    let (id, address) = (begin(program, &stage.keys).await?, program.address.clone());
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
    finish(program, id, &proven.redirect).await.map(drop)
}

async fn session_certificate(stage: &Stage) -> Result<(), Status> {
    let person = stage.proven.next();
    SessionFactorsClient::new(person.line.channel()).certify(person.request.clone()).await.map(drop)
}

async fn renewal(stage: &Stage) -> Result<(), Status> {
    let proxy = stage.proxies.next();
    let request = v1::RenewHostRequest {
        ssh_public_key: proxy.ssh_public.clone(),
        tls_public_key: proxy.tls_public.clone().into(),
        public_names: Vec::new(),
    };
    FleetClient::new(proxy.line.channel()).renew_host(request).await.map(drop)
}
