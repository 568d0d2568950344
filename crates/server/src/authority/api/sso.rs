//! The API of single sign-on for administrators: which connectors there are, their keys, and trying one.

use std::sync::Arc;

use sallyport_access::Verb;
use sallyport_wire::v1;
use sallyport_wire::v1::sso_server::Sso;
use time::OffsetDateTime;
use tonic::{Request, Response, Status};

use crate::authority::audit::journal::Journal;
use crate::authority::caller::{Caller, caller};
use crate::authority::config::AuthConfig;
use crate::authority::gate::calls::Gate;
use crate::authority::gate::delegation::Delegation;
use crate::authority::sso::connector::{ClientProof, Connector, KIND};
use crate::authority::sso::connectors::Connectors;
use crate::authority::sso::pages::SsoPages;

/// What administrators ask of single sign-on.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) config: Arc<AuthConfig>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) delegation: Arc<Delegation>,
    pub(crate) connectors: Arc<Connectors>,
    pub(crate) pages: Arc<SsoPages>,
}

impl Service {
    fn shown(&self, connector: &Connector) -> v1::Connector {
        let redirect_urls = match connector.redirect_urls.as_slice() {
            [] => connector.redirect_url("", &self.config.public_addr).into_iter().collect(),
            urls => urls.to_vec(),
        };
        let proof = match connector.proof {
            ClientProof::SecretFile(_) => "secret",
            ClientProof::Key(_) => "key",
        };
        v1::Connector {
            name: connector.name.to_string(),
            title: connector.title.clone(),
            issuer: connector.issuer.clone(),
            client_id: connector.client_id.clone(),
            proof: proof.to_owned(),
            redirect_urls,
            logout_path: match connector.back_channel_logout {
                true => format!("/web/sso/logout/{}", connector.name),
                false => String::new(),
            },
            user_lifetime_seconds: connector.user_lifetime.as_secs(),
        }
    }

    /// Who may try a connector: it has the authority send what it names to where it names.
    async fn may_test(&self, caller: &Caller, method: &'static str) -> Result<(), Status> {
        self.gate.allow(caller, method, KIND, Verb::Create).await?;
        self.delegation.must_administer(caller, method, "test connectors of single sign-on").await
    }
}

#[tonic::async_trait]
impl Sso for Service {
    async fn list_connectors(
        &self,
        request: Request<v1::ListConnectorsRequest>,
    ) -> Result<Response<v1::ListConnectorsResponse>, Status> {
        const METHOD: &str = "Sso.ListConnectors";
        let caller = caller(&request);
        self.gate.allow(&caller, METHOD, KIND, Verb::List).await?;
        let all = self.connectors.all(OffsetDateTime::now_utc()).await?;
        self.journal.called(&caller, METHOD, "").await?;
        let connectors = all.iter().map(|remote| self.shown(remote.connector())).collect();
        Ok(Response::new(v1::ListConnectorsResponse { connectors }))
    }

    async fn get_connector_keys(
        &self,
        request: Request<v1::GetConnectorKeysRequest>,
    ) -> Result<Response<v1::GetConnectorKeysResponse>, Status> {
        const METHOD: &str = "Sso.GetConnectorKeys";
        let caller = caller(&request);
        self.gate.allow(&caller, METHOD, KIND, Verb::Read).await?;
        let name = request.into_inner().name;
        let key_set_json = self.connectors.jwks(&name).await?;
        self.journal.called(&caller, METHOD, &name).await?;
        Ok(Response::new(v1::GetConnectorKeysResponse { key_set_json }))
    }

    async fn begin_test(
        &self,
        request: Request<v1::BeginSsoTestRequest>,
    ) -> Result<Response<v1::BeginSsoTestResponse>, Status> {
        let caller = caller(&request);
        self.may_test(&caller, "Sso.BeginTest").await?;
        self.pages.begin_test(&caller, request.into_inner()).await.map(Response::new)
    }

    async fn await_test(
        &self,
        request: Request<v1::AwaitSsoTestRequest>,
    ) -> Result<Response<v1::AwaitSsoTestResponse>, Status> {
        const METHOD: &str = "Sso.AwaitTest";
        let caller = caller(&request);
        self.may_test(&caller, METHOD).await?;
        self.journal.called(&caller, METHOD, "").await?;
        self.pages.await_test(&caller, &request.into_inner().challenge).await.map(Response::new)
    }
}
