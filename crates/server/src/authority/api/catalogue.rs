//! What users and their tools ask of the catalogue.

use std::collections::HashMap;
use std::sync::Arc;

use sallyport_access::{Kind, ListedId, Resource as _, ResourceName, UserName, Verb};
use sallyport_wire::v1;
use sallyport_wire::v1::catalogue_server::Catalogue;
use time::OffsetDateTime;
use tonic::{Request, Response, Status};

use crate::authority::audit::journal::Journal;
use crate::authority::caller::{Caller, caller, shown};
use crate::authority::catalogue::register;
use crate::authority::catalogue::table::Known;
use crate::authority::gate::calls::Gate;
use crate::authority::hosts::registry::HostRegistry;
use crate::authority::hosts::selection::Selection;
use crate::authority::identities::known::{DECIDED_BY_STATE, Identities};
use crate::authority::policy::Policy;
use sallyport_protocols::spec;

/// Resources in one answer.
const ITEMS: usize = 20_000;

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
    /// Those that the caller may use; all of them for a caller who may list the kind.
    fn items_for(
        &self,
        caller: &Caller,
        kind: Kind,
        asked: v1::ListCatalogueRequest,
    ) -> Result<v1::ListCatalogueResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let all = self.gate.check(caller, kind.row().document, Verb::List).is_ok();
        let after = match asked.after.as_str() {
            "" => None,
            text => {
                let name = ResourceName::new(text);
                let name = name.map_err(|error| Status::invalid_argument(error.to_string()))?;
                Some(ListedId { kind, name })
            }
        };
        let limit = match asked.limit {
            0 => ITEMS,
            limit => (limit as usize).min(ITEMS),
        };
        let v1::ListCatalogueRequest { labels, search, query, .. } = asked;
        let nodes = v1::ListNodesRequest { labels, search, query, ..v1::ListNodesRequest::default() };
        let selection = Selection::new(&nodes)?;
        let mut known = self.catalogue.of_kind(kind, after.as_ref());
        known.retain(|known| selection.may_fit_resource(known.resource.as_ref()));
        if !all {
            let cache = self.policy.cache();
            let usable = match caller.identity() {
                Some(identity) => cache
                    .policies
                    .visible_listed(identity, known.iter().map(|known| known.resource.as_ref()))
                    .into_iter()
                    .map(|listed| listed.id())
                    .collect(),
                None => Vec::new(),
            };
            // Both are in the order of names.
            let mut usable = usable.into_iter().peekable();
            known.retain(|known| usable.next_if(|id| *id == known.resource.id()).is_some());
        }
        let mut items: Vec<v1::CatalogueItem> = Vec::new();
        let mut next = String::new();
        for known in &known {
            let (health, problem) = known.health(&self.registry.presence, now);
            if !selection.fits_listed(&known.resource, health != "offline") {
                continue;
            }
            if items.len() == limit {
                next = items.last().map(|last| last.name.clone()).unwrap_or_default();
                break;
            }
            items.push(self.item(known, (health, problem), now));
        }
        Ok(v1::ListCatalogueResponse { items, next })
    }

    fn item(
        &self,
        known: &Known<sallyport_access::Listed>,
        (health, problem): (&str, String),
        now: OffsetDateTime,
    ) -> v1::CatalogueItem {
        let listed = known.resource.as_ref();
        let labels = listed.labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
        let keys = spec(listed.kind).map(|spec| spec.shown).unwrap_or_default();
        let shown: HashMap<String, String> =
            keys.iter().filter_map(|key| Some(((*key).to_owned(), listed.text(key)?.to_owned()))).collect();
        let agents = known.end_to_end_agents(&self.registry.presence, now);
        v1::CatalogueItem {
            kind: listed.kind.row().document.to_owned(),
            name: listed.name.to_string(),
            description: listed.description.clone(),
            labels: labels.collect(),
            agents: listed.agents.iter().map(ToString::to_string).collect(),
            health: health.to_owned(),
            problem,
            origin: if known.is_static() { "static" } else { "dynamic" }.to_owned(),
            end_to_end_agents: agents.iter().map(ToString::to_string).collect(),
            shown,
        }
    }

    /// As about nodes and databases: what the caller cannot see is answered like what is not there.
    fn explain(
        &self,
        caller: &Caller,
        kind: Kind,
        asked: &v1::ExplainCatalogueAccessRequest,
    ) -> Result<v1::ExplainCatalogueAccessResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let user =
            UserName::new(asked.user.clone()).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let stored = self.identities.user(&user);
        let stored = stored.ok_or_else(|| Status::not_found(format!("there is no user {user}")))?;
        let identity = self.identities.identity_of(&stored, now);
        let cache = self.policy.cache();
        let (document, word) = (kind.row().document, kind.row().word);
        let sees_all = self.gate.check(caller, "access", Verb::Read).is_ok()
            || self.gate.check(caller, document, Verb::List).is_ok();
        let known = self.catalogue.one(kind, &asked.name).filter(|known| {
            sees_all || !cache.policies.visible_listed(&identity, [known.resource.as_ref()]).is_empty()
        });
        let known = match known {
            Some(known) => known,
            None if !sees_all => {
                let name = shown(&asked.name);
                let summary = format!(
                    "{user} may not use the {word} {name}: no {word} of this name is among those of {user}"
                );
                let details = Vec::new();
                return Ok(v1::ExplainCatalogueAccessResponse { allowed: false, summary, details });
            }
            None => {
                return Err(Status::not_found(format!(
                    "there is no {word} {}; see: sallyport {document} ls",
                    shown(&asked.name)
                )));
            }
        };
        let why = cache.policies.explain(&identity, known.resource.as_ref(), &(), &cache.locks, now);
        let (health, problem) = known.health(&self.registry.presence, now);
        let mut details = why.details;
        let problem = if problem.is_empty() { problem } else { format!(": {problem}") };
        details.push(format!("the {word} is {health}{problem}"));
        details.push(DECIDED_BY_STATE.to_owned());
        Ok(v1::ExplainCatalogueAccessResponse { allowed: why.allowed, summary: why.summary, details })
    }
}
