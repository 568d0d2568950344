//! The API of the pages that people prove who they are at: for proxies, which speak with their browsers.

use std::sync::Arc;

use sallyport_access::HostRole;
use sallyport_wire::v1;
use sallyport_wire::v1::web_server::Web;
use tonic::{Request, Response, Status};
use zeroize::Zeroizing;

use crate::authority::audit::journal::Journal;
use crate::authority::caller::{TellingHost, caller};
use crate::authority::challenges::kept::Challenges;
use crate::authority::challenges::pages::Browser;
use crate::authority::gate::calls::Gate;
use crate::authority::sso::connectors::Connectors;
use crate::authority::sso::pages::SsoPages;

/// What browsers do, as proxies tell of it.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) gate: Arc<Gate>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) challenges: Arc<Challenges>,
    pub(crate) sso: Arc<SsoPages>,
    pub(crate) connectors: Arc<Connectors>,
}

impl Service {
    /// The browser that a proxy speaks for, within the bounds of where it is, and of the proxy.
    async fn browser<T>(
        &self,
        request: Request<T>,
        method: &'static str,
        address: impl FnOnce(&T) -> &str,
    ) -> Result<(Browser, T), Status> {
        let caller = caller(&request);
        let proxy = self.gate.host(&caller, method, &[HostRole::Proxy]).await?;
        let asked = request.into_inner();
        let browser = Browser::at(address(&asked), TellingHost::of(proxy)?)?;
        self.gate.within_bounds(&browser.caller)?;
        self.gate.pages_within_bounds(proxy)?;
        self.journal.called(&caller, method, "").await?;
        Ok((browser, asked))
    }
}

#[tonic::async_trait]
impl Web for Service {
    async fn describe_login(
        &self,
        request: Request<v1::WebRequest>,
    ) -> Result<Response<v1::WebLogin>, Status> {
        let (browser, asked) = self.browser(request, "Web.DescribeLogin", |asked| &asked.address).await?;
        self.sso.describe(&browser, &asked.id).await.map(Response::new)
    }

    async fn begin_login_passkey(
        &self,
        request: Request<v1::WebBeginPasskeyRequest>,
    ) -> Result<Response<v1::WebPublicKey>, Status> {
        let (browser, asked) = self.browser(request, "Web.BeginLoginPasskey", |asked| &asked.address).await?;
        self.challenges.begin_login_passkey(&browser, &asked.id, &asked.code).await.map(Response::new)
    }

    async fn finish_login_passkey(
        &self,
        request: Request<v1::WebFinishPasskeyRequest>,
    ) -> Result<Response<v1::WebProven>, Status> {
        let (browser, asked) =
            self.browser(request, "Web.FinishLoginPasskey", |asked| &asked.address).await?;
        self.challenges
            .finish_login_passkey(&browser, &asked.id, &asked.response_json)
            .await
            .map(Response::new)
    }

    async fn prove_login_password(
        &self,
        request: Request<v1::WebPasswordRequest>,
    ) -> Result<Response<v1::WebProven>, Status> {
        let (browser, asked) =
            self.browser(request, "Web.ProveLoginPassword", |asked| &asked.address).await?;
        self.challenges.prove_login_password(&browser, asked).await.map(Response::new)
    }

    async fn begin_login_sso(
        &self,
        request: Request<v1::WebBeginSsoRequest>,
    ) -> Result<Response<v1::WebSsoBegun>, Status> {
        let (browser, asked) = self.browser(request, "Web.BeginLoginSso", |asked| &asked.address).await?;
        self.sso.begin(&browser, asked).await.map(Response::new)
    }

    async fn finish_login_sso(
        &self,
        request: Request<v1::WebFinishSsoRequest>,
    ) -> Result<Response<v1::WebProven>, Status> {
        let (browser, asked) = self.browser(request, "Web.FinishLoginSso", |asked| &asked.address).await?;
        self.sso.finish(&browser, asked).await.map(Response::new)
    }

    async fn sso_logout(
        &self,
        request: Request<v1::WebSsoLogoutRequest>,
    ) -> Result<Response<v1::WebSsoLoggedOut>, Status> {
        let (browser, asked) = self.browser(request, "Web.SsoLogout", |asked| &asked.address).await?;
        self.connectors.log_out(&browser.caller, &asked.connector, &asked.logout_token).await?;
        Ok(Response::new(v1::WebSsoLoggedOut {}))
    }

    async fn refuse_login(
        &self,
        request: Request<v1::WebRequest>,
    ) -> Result<Response<v1::WebRefused>, Status> {
        let (browser, asked) = self.browser(request, "Web.RefuseLogin", |asked| &asked.address).await?;
        self.challenges.refuse(&browser, &asked.id, true).await.map(Response::new)
    }

    async fn describe_approval(
        &self,
        request: Request<v1::WebRequest>,
    ) -> Result<Response<v1::WebApproval>, Status> {
        let (browser, asked) = self.browser(request, "Web.DescribeApproval", |asked| &asked.address).await?;
        self.sso.describe_approval(&browser, &asked.id).await.map(Response::new)
    }

    async fn begin_approval_passkey(
        &self,
        request: Request<v1::WebBeginPasskeyRequest>,
    ) -> Result<Response<v1::WebPublicKey>, Status> {
        let (browser, asked) =
            self.browser(request, "Web.BeginApprovalPasskey", |asked| &asked.address).await?;
        self.challenges.begin_approval_passkey(&browser, &asked.id, &asked.code).await.map(Response::new)
    }

    async fn finish_approval_passkey(
        &self,
        request: Request<v1::WebFinishPasskeyRequest>,
    ) -> Result<Response<v1::WebProven>, Status> {
        let (browser, asked) =
            self.browser(request, "Web.FinishApprovalPasskey", |asked| &asked.address).await?;
        self.challenges
            .finish_approval_passkey(&browser, &asked.id, &asked.response_json)
            .await
            .map(Response::new)
    }

    async fn prove_approval_otp(
        &self,
        request: Request<v1::WebOtpRequest>,
    ) -> Result<Response<v1::WebProven>, Status> {
        let (browser, asked) = self.browser(request, "Web.ProveApprovalOtp", |asked| &asked.address).await?;
        let otp = Zeroizing::new(asked.otp);
        self.challenges.prove_approval_code(&browser, &asked.id, &asked.code, &otp).await.map(Response::new)
    }

    async fn refuse_approval(
        &self,
        request: Request<v1::WebRequest>,
    ) -> Result<Response<v1::WebRefused>, Status> {
        let (browser, asked) = self.browser(request, "Web.RefuseApproval", |asked| &asked.address).await?;
        self.challenges.refuse(&browser, &asked.id, false).await.map(Response::new)
    }

    async fn describe_factors(
        &self,
        request: Request<v1::WebRequest>,
    ) -> Result<Response<v1::WebFactorsPage>, Status> {
        let (browser, asked) = self.browser(request, "Web.DescribeFactors", |asked| &asked.address).await?;
        self.challenges.describe_factors(&browser, &asked.id).await.map(Response::new)
    }

    async fn list_factors(
        &self,
        request: Request<v1::WebFactorsRequest>,
    ) -> Result<Response<v1::WebFactors>, Status> {
        let (browser, asked) = self.browser(request, "Web.ListFactors", |asked| &asked.address).await?;
        self.challenges.factors_at_page(&browser, &asked.id, &asked.code).await.map(Response::new)
    }

    async fn begin_factor_removal(
        &self,
        request: Request<v1::WebFactorRemovalRequest>,
    ) -> Result<Response<v1::WebFactorRemoval>, Status> {
        let (browser, asked) =
            self.browser(request, "Web.BeginFactorRemoval", |asked| &asked.address).await?;
        self.challenges.begin_factor_removal(&browser, asked).await.map(Response::new)
    }

    async fn finish_factor_removal(
        &self,
        request: Request<v1::WebFinishFactorRemovalRequest>,
    ) -> Result<Response<v1::WebFactors>, Status> {
        let (browser, asked) =
            self.browser(request, "Web.FinishFactorRemoval", |asked| &asked.address).await?;
        self.challenges.finish_factor_removal(&browser, asked).await.map(Response::new)
    }

    async fn describe_enrolment(
        &self,
        request: Request<v1::WebRequest>,
    ) -> Result<Response<v1::WebEnrolment>, Status> {
        let (browser, asked) = self.browser(request, "Web.DescribeEnrolment", |asked| &asked.address).await?;
        self.challenges.describe_enrolment(&browser, &asked.id).await.map(Response::new)
    }

    async fn begin_enrolment(
        &self,
        request: Request<v1::WebBeginPasskeyRequest>,
    ) -> Result<Response<v1::WebPublicKey>, Status> {
        let (browser, asked) = self.browser(request, "Web.BeginEnrolment", |asked| &asked.address).await?;
        self.challenges.begin_enrolment(&browser, &asked.id, &asked.code).await.map(Response::new)
    }

    async fn finish_enrolment(
        &self,
        request: Request<v1::WebFinishEnrolmentRequest>,
    ) -> Result<Response<v1::WebEnrolled>, Status> {
        let (browser, asked) = self.browser(request, "Web.FinishEnrolment", |asked| &asked.address).await?;
        self.challenges.finish_enrolment(&browser, &asked.id, &asked.response_json).await.map(Response::new)
    }

    async fn refuse_enrolment(
        &self,
        request: Request<v1::WebRequest>,
    ) -> Result<Response<v1::WebRefused>, Status> {
        let (browser, asked) = self.browser(request, "Web.RefuseEnrolment", |asked| &asked.address).await?;
        self.challenges.refuse(&browser, &asked.id, false).await.map(Response::new)
    }

    async fn describe_invite(
        &self,
        request: Request<v1::WebInviteRequest>,
    ) -> Result<Response<v1::WebInvite>, Status> {
        let (browser, asked) = self.browser(request, "Web.DescribeInvite", |asked| &asked.address).await?;
        self.challenges.describe_invite(&browser, &asked.token).await.map(Response::new)
    }

    async fn begin_invite_passkey(
        &self,
        request: Request<v1::WebInviteRequest>,
    ) -> Result<Response<v1::WebPublicKey>, Status> {
        let (browser, asked) =
            self.browser(request, "Web.BeginInvitePasskey", |asked| &asked.address).await?;
        self.challenges.begin_invite_passkey(&browser, &asked.token).await.map(Response::new)
    }

    async fn finish_invite_passkey(
        &self,
        request: Request<v1::WebFinishInviteRequest>,
    ) -> Result<Response<v1::WebInvited>, Status> {
        let (browser, asked) =
            self.browser(request, "Web.FinishInvitePasskey", |asked| &asked.address).await?;
        self.challenges.finish_invite_passkey(&browser, asked).await.map(Response::new)
    }
}
