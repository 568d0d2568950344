//! The API of those without a certificate: logging in, links, and joining.

use std::sync::Arc;

use sallyport_audit::Code;
use sallyport_wire::v1::login_server::Login;
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::{Request, Response, Status};

use crate::authority::accounts::login::Accounts;
use crate::authority::audit::journal::Journal;
use crate::authority::caller::caller;
use crate::authority::challenges::kept::Challenges;
use crate::authority::config::AuthConfig;
use crate::authority::fips::in_fips_mode;
use crate::authority::gate::calls::Gate;
use crate::authority::hosts::membership::Membership;
use crate::authority::issuance::in_force::Issuance;
use crate::authority::sso::pages::SsoPages;
use crate::config::PreferredLogin;

/// Who has no certificate yet.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) config: Arc<AuthConfig>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) issuance: Arc<Issuance>,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) membership: Arc<Membership>,
    pub(crate) challenges: Arc<Challenges>,
    pub(crate) sso: Arc<SsoPages>,
}

impl Service {
    /// How people log in here, the preferred way first.
    fn login_methods(&self) -> Vec<String> {
        let mut methods = self.challenges.login_methods();
        if self.sso.is_offered() {
            let prefers_password = self.config.authentication.prefer == PreferredLogin::Password;
            let place = match methods.first().map(String::as_str) {
                Some("passkey") => 1,
                _ if prefers_password => methods.len(),
                _ => 0,
            };
            methods.insert(place, "sso".to_owned());
        }
        methods
    }
}

#[tonic::async_trait]
impl Login for Service {
    async fn ping(&self, request: Request<v1::PingRequest>) -> Result<Response<v1::PingResponse>, Status> {
        let caller = caller(&request);
        self.gate.within_bounds(&caller)?;
        let event = caller.event(Code::Pinged);
        self.journal.note_caused(&caller, event, "").await?;
        Ok(Response::new(v1::PingResponse {
            cluster: self.config.cluster.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            second_factor: self.accounts.second_factor_word().to_owned(),
            time: Some(convert::time_to_proto(OffsetDateTime::now_utc())),
            suite: self.issuance.authorities().suite().name().to_owned(),
            fips: in_fips_mode(),
            login_methods: self.login_methods(),
        }))
    }

    async fn login_with_password(
        &self,
        request: Request<v1::LoginRequest>,
    ) -> Result<Response<v1::LoginResponse>, Status> {
        let caller = caller(&request);
        self.gate.within_bounds(&caller)?;
        self.gate.demand_fips(&caller, "Login.LoginWithPassword", &request).await?;
        self.accounts.log_in(&caller, request.into_inner()).await.map(Response::new)
    }

    async fn begin_browser_login(
        &self,
        request: Request<v1::BeginBrowserLoginRequest>,
    ) -> Result<Response<v1::BeginBrowserLoginResponse>, Status> {
        let caller = caller(&request);
        self.gate.within_bounds(&caller)?;
        self.gate.demand_fips(&caller, "Login.BeginBrowserLogin", &request).await?;
        self.challenges.begin_browser_login(&caller, request.into_inner()).await.map(Response::new)
    }

    async fn finish_browser_login(
        &self,
        request: Request<v1::FinishBrowserLoginRequest>,
    ) -> Result<Response<v1::FinishBrowserLoginResponse>, Status> {
        let caller = caller(&request);
        self.gate.within_bounds(&caller)?;
        self.gate.demand_fips(&caller, "Login.FinishBrowserLogin", &request).await?;
        self.challenges.finish_browser_login(&caller, request.into_inner()).await.map(Response::new)
    }

    async fn begin_key_login(
        &self,
        request: Request<v1::BeginKeyLoginRequest>,
    ) -> Result<Response<v1::BeginKeyLoginResponse>, Status> {
        let caller = caller(&request);
        self.gate.within_bounds(&caller)?;
        self.gate.demand_fips(&caller, "Login.BeginKeyLogin", &request).await?;
        self.challenges.begin_key_login(&caller, request.into_inner()).await.map(Response::new)
    }

    async fn finish_key_login(
        &self,
        request: Request<v1::FinishKeyLoginRequest>,
    ) -> Result<Response<v1::LoginResponse>, Status> {
        let caller = caller(&request);
        self.gate.within_bounds(&caller)?;
        self.gate.demand_fips(&caller, "Login.FinishKeyLogin", &request).await?;
        self.challenges.finish_key_login(&caller, request.into_inner()).await.map(Response::new)
    }

    async fn device_challenge(
        &self,
        request: Request<v1::DeviceChallengeRequest>,
    ) -> Result<Response<v1::DeviceChallengeResponse>, Status> {
        let caller = caller(&request);
        self.gate.within_bounds(&caller)?;
        self.journal.called(&caller, "Login.DeviceChallenge", "").await?;
        self.accounts.devices().challenge(OffsetDateTime::now_utc()).map(Response::new)
    }

    async fn begin_invite(
        &self,
        request: Request<v1::BeginInviteRequest>,
    ) -> Result<Response<v1::BeginInviteResponse>, Status> {
        let caller = caller(&request);
        self.gate.within_bounds(&caller)?;
        self.accounts.begin_invite(&caller, &request.into_inner().token).await.map(Response::new)
    }

    async fn finish_invite(
        &self,
        request: Request<v1::FinishInviteRequest>,
    ) -> Result<Response<v1::FinishInviteResponse>, Status> {
        let caller = caller(&request);
        self.gate.within_bounds(&caller)?;
        self.accounts.finish_invite(&caller, request.into_inner()).await.map(Response::new)
    }

    async fn join(
        &self,
        request: Request<v1::JoinRequest>,
    ) -> Result<Response<v1::HostCertificates>, Status> {
        let caller = caller(&request);
        self.gate.within_bounds(&caller)?;
        self.gate.demand_fips(&caller, "Login.Join", &request).await?;
        self.membership.join(&caller, request.into_inner()).await.map(Response::new)
    }
}
