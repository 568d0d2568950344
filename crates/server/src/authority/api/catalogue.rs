//! What users and their tools ask of the catalogue.

use std::sync::Arc;

use sallyport_access::{Kind, Listed, Verb};
use sallyport_protocols::spec;
use sallyport_wire::v1;
use sallyport_wire::v1::catalogue_server::Catalogue;
use tonic::{Request, Response, Status};

use super::visible::{Answers, Item, Page, Why, labels, served};
use crate::authority::audit::journal::Journal;
use crate::authority::caller::{Caller, caller, shown};
use crate::authority::catalogue::register;
use crate::authority::gate::calls::Gate;
use crate::authority::hosts::registry::HostRegistry;
use crate::authority::identities::known::Identities;
use crate::authority::policy::Policy;

/// The catalogue.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) journal: Arc<Journal>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) identities: Arc<Identities>,
    pub(crate) registry: Arc<HostRegistry>,
    pub(crate) catalogue: Arc<register::Catalogue>,
}

#[tonic::async_trait]
impl Catalogue for Service {
    async fn list(
        &self,
        request: Request<v1::ListCatalogueRequest>,
    ) -> Result<Response<v1::ListCatalogueResponse>, Status> {
        const METHOD: &str = "Catalogue.List";
        let caller = caller(&request);
        if !matches!(caller, Caller::LocalAdmin) {
            let identity = self.gate.certified(&caller, METHOD).await?;
            if identity.user().is_none() {
                let status = Status::permission_denied("hosts do not list what users may use");
                return Err(self.gate.refuse(&caller, METHOD, status).await);
            }
        }
        let asked = request.into_inner();
        self.journal.called(&caller, METHOD, &shown(&asked.kind)).await?;
        let kind = kind_of(&asked.kind)?;
        self.items_for(&caller, kind, asked).map(Response::new)
    }

    async fn explain_access(
        &self,
        request: Request<v1::ExplainCatalogueAccessRequest>,
    ) -> Result<Response<v1::ExplainCatalogueAccessResponse>, Status> {
        const METHOD: &str = "Catalogue.ExplainAccess";
        let caller = caller(&request);
        let asked = request.into_inner();
        let user = caller.identity().and_then(|identity| identity.user());
        if user.is_some_and(|user| user.as_str() == asked.user) {
            self.gate.certified(&caller, METHOD).await?;
        } else {
            self.gate.allow(&caller, METHOD, "access", Verb::Read).await?;
        }
        let what = format!("{} of {}/{}", shown(&asked.user), shown(&asked.kind), shown(&asked.name));
        self.journal.called(&caller, METHOD, &what).await?;
        let kind = kind_of(&asked.kind)?;
        self.explain(&caller, kind, &asked).map(Response::new)
    }
}

fn kind_of(document: &str) -> Result<Kind, Status> {
    Kind::of_document(document).filter(|kind| kind.is_listed()).ok_or_else(|| {
        let kinds: Vec<&str> = Kind::listed().map(|kind| kind.row().document).collect();
        Status::invalid_argument(format!(
            "the catalogue has no kind {:?}; its kinds are: {}",
            shown(document),
            kinds.join(", ")
        ))
    })
}

impl Service {
    fn answers(&self) -> Answers<'_, Listed> {
        let Self { gate, policy, identities, registry, catalogue: register, .. } = self;
        Answers { gate, policy, identities, registry, register }
    }

    fn items_for(
        &self,
        caller: &Caller,
        kind: Kind,
        asked: v1::ListCatalogueRequest,
    ) -> Result<v1::ListCatalogueResponse, Status> {
        let v1::ListCatalogueRequest { after, limit, labels, search, query, .. } = asked;
        let page = Page { kind, after, limit, labels, search, query };
        let (items, next) = self.answers().list(caller, page)?;
        Ok(v1::ListCatalogueResponse { items: items.into_iter().map(item).collect(), next })
    }

    fn explain(
        &self,
        caller: &Caller,
        kind: Kind,
        asked: &v1::ExplainCatalogueAccessRequest,
    ) -> Result<v1::ExplainCatalogueAccessResponse, Status> {
        let act = format!("use the {} {}", kind.row().word, shown(&asked.name));
        let why = self.answers().explain(caller, (kind, &asked.name), &asked.user, (&(), &act))?;
        let Why { allowed, summary, details } = why;
        Ok(v1::ExplainCatalogueAccessResponse { allowed, summary, details })
    }
}

fn item(item: Item<Listed>) -> v1::CatalogueItem {
    let Item { known, usable: (), health, problem, agents: end_to_end_agents } = item;
    let listed = known.resource.as_ref();
    let keys = spec(listed.kind).map(|spec| spec.shown).unwrap_or_default();
    let shown = keys.iter().filter_map(|key| Some(((*key).to_owned(), listed.text(key)?.to_owned())));
    let (agents, origin) = served(&known);
    v1::CatalogueItem {
        kind: listed.kind.row().document.to_owned(),
        name: listed.name.to_string(),
        description: listed.description.clone(),
        labels: labels(listed),
        agents,
        health: health.to_owned(),
        problem,
        origin,
        end_to_end_agents,
        shown: shown.collect(),
    }
}
