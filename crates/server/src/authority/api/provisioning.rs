//! The API of provisioning by SCIM.

use std::sync::Arc;

use sallyport_access::{HostRole, Verb};
use sallyport_wire::v1;
use sallyport_wire::v1::provisioning_server::Provisioning;
use tonic::{Request, Response, Status};

use crate::authority::audit::journal::Journal;
use crate::authority::caller::{TellingHost, caller};
use crate::authority::gate::calls::Gate;
use crate::authority::scim::provisioning;

/// Who an identity provider says there is.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) gate: Arc<Gate>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) provisioning: Arc<provisioning::Provisioning>,
}

#[tonic::async_trait]
impl Provisioning for Service {
    async fn add_scim_token(
        &self,
        request: Request<v1::AddScimTokenRequest>,
    ) -> Result<Response<v1::AddScimTokenResponse>, Status> {
        const METHOD: &str = "Provisioning.AddScimToken";
        let caller = caller(&request);
        self.gate.allow(&caller, METHOD, "token", Verb::Create).await?;
        self.provisioning.add_token(&caller, request.into_inner()).await.map(Response::new)
    }

    async fn list_scim_tokens(
        &self,
        request: Request<v1::ListScimTokensRequest>,
    ) -> Result<Response<v1::ListScimTokensResponse>, Status> {
        const METHOD: &str = "Provisioning.ListScimTokens";
        let caller = caller(&request);
        self.gate.allow(&caller, METHOD, "token", Verb::List).await?;
        self.journal.called(&caller, METHOD, "").await?;
        self.provisioning.list_tokens().await.map(Response::new)
    }

    async fn remove_scim_token(
        &self,
        request: Request<v1::RemoveScimTokenRequest>,
    ) -> Result<Response<v1::RemoveScimTokenResponse>, Status> {
        const METHOD: &str = "Provisioning.RemoveScimToken";
        let caller = caller(&request);
        self.gate.allow(&caller, METHOD, "token", Verb::Delete).await?;
        self.provisioning.remove_token(&caller, request.into_inner()).await?;
        Ok(Response::new(v1::RemoveScimTokenResponse {}))
    }

    async fn answer_scim(
        &self,
        request: Request<v1::ScimRequest>,
    ) -> Result<Response<v1::ScimAnswer>, Status> {
        let caller = caller(&request);
        let proxy = self.gate.host(&caller, "Provisioning.AnswerScim", &[HostRole::Proxy]).await?;
        self.provisioning.answer(TellingHost::of(proxy)?, request.into_inner()).await.map(Response::new)
    }
}
