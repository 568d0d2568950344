//! The API of suites.

use std::sync::Arc;

use sallyport_access::Verb;
use sallyport_sal::Suite;
use sallyport_sal::compatibility::Kind;
use sallyport_wire::v1;
use sallyport_wire::v1::suites_server::Suites;
use time::OffsetDateTime;
use tonic::{Request, Response, Status};

use crate::authority::audit::journal::Journal;
use crate::authority::caller::{caller, shown};
use crate::authority::gate::calls::Gate;
use crate::authority::inventory::reports::ClientInventory;
use crate::authority::issuance::in_force::Issuance;
use crate::authority::suites::SuiteChanges;
use crate::authority::suites::{client_to_proto, suite};

/// The kind of resource that roles allow these methods by.
const RESOURCE: &str = "cluster";

/// Suites.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) gate: Arc<Gate>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) issuance: Arc<Issuance>,
    pub(crate) inventory: Arc<ClientInventory>,
    pub(crate) suites: Arc<SuiteChanges>,
}

#[tonic::async_trait]
impl Suites for Service {
    async fn list_suites(
        &self,
        request: Request<v1::ListSuitesRequest>,
    ) -> Result<Response<v1::ListSuitesResponse>, Status> {
        const METHOD: &str = "Suites.ListSuites";
        let caller = caller(&request);
        self.gate.allow(&caller, METHOD, RESOURCE, Verb::Read).await?;
        self.journal.called(&caller, METHOD, "").await?;
        let suites = Suite::ALL.iter().map(|suite| self.suites.suite_info(*suite)).collect();
        let current = self.issuance.authorities().suite().name().to_owned();
        Ok(Response::new(v1::ListSuitesResponse { suites, current }))
    }

    async fn preflight_suite(
        &self,
        request: Request<v1::PreflightSuiteRequest>,
    ) -> Result<Response<v1::PreflightSuiteResponse>, Status> {
        const METHOD: &str = "Suites.PreflightSuite";
        let caller = caller(&request);
        self.gate.allow(&caller, METHOD, RESOURCE, Verb::Read).await?;
        let asked = request.into_inner();
        self.journal.called(&caller, METHOD, &shown(&asked.to)).await?;
        let to = suite(&asked.to)?;
        Ok(Response::new(self.suites.preflight(self.issuance.authorities().suite(), to)))
    }

    async fn set_suite(
        &self,
        request: Request<v1::SetSuiteRequest>,
    ) -> Result<Response<v1::SetSuiteResponse>, Status> {
        const METHOD: &str = "Suites.SetSuite";
        let caller = caller(&request);
        self.gate.allow(&caller, METHOD, RESOURCE, Verb::Update).await?;
        match self.suites.set_suite(&caller, &request.into_inner()).await {
            Ok(answer) => Ok(Response::new(answer)),
            Err(status) => Err(self.gate.refuse(&caller, METHOD, status).await),
        }
    }

    async fn list_clients(
        &self,
        request: Request<v1::ListClientsRequest>,
    ) -> Result<Response<v1::ListClientsResponse>, Status> {
        const METHOD: &str = "Suites.ListClients";
        let caller = caller(&request);
        self.gate.allow(&caller, METHOD, RESOURCE, Verb::Read).await?;
        self.journal.called(&caller, METHOD, "").await?;
        let mut kinds = Vec::new();
        for name in request.into_inner().kinds {
            let kind = Kind::named(&name).ok_or_else(|| {
                let known: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
                Status::invalid_argument(format!(
                    "{:?} is no kind of client; known are {}",
                    shown(&name),
                    known.join(", ")
                ))
            })?;
            kinds.push(kind);
        }
        let (clients, forgotten) = self.inventory.list(OffsetDateTime::now_utc());
        let wanted = clients.iter().filter(|client| kinds.is_empty() || kinds.contains(&client.offer.kind));
        let clients = wanted.map(client_to_proto).collect();
        Ok(Response::new(v1::ListClientsResponse { clients, forgotten }))
    }
}
