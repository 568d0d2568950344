//! The service provider: a request in, an answer out (RFC 7644 §3).

use serde_json::{Map, Value};
use time::OffsetDateTime;

use crate::backend::{Backend, BackendError};
use crate::discovery;
use crate::error::{ScimError, shortened};
use crate::exchange::{Request, Response, What};
use crate::json;
use crate::kind::Kind;
use crate::listing::{Search, list};
use crate::memberships::Memberships;
use crate::parameters::{from_body, from_query};
use crate::patch::Patch;
use crate::refused::refused;
use crate::resource::{Draft, Resource};
use crate::route::{Asking, Route};
use crate::shown::{Asked, Projection, Shown, location};
use crate::values::{self, MAX_NAME_BYTES};
use crate::version;

/// How often a change is made anew that others came before.
const ATTEMPTS: usize = 8;

/// A SCIM service at one address.
///
/// ```
/// use sallyport_scim::{MemoryDirectory, Provider, Request};
/// use time::OffsetDateTime;
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let provider = Provider::new("https://proxy.example/scim/v2")?;
/// let directory = MemoryDirectory::new();
/// let body = br#"{"schemas":["urn:ietf:params:scim:schemas:core:2.0:User"],"userName":"alice"}"#;
/// let request = Request { method: "POST", path: "/Users", query: "", headers: &[], body };
/// let request = Request { headers: &[("Content-Type", "application/scim+json")], ..request };
/// let response = provider.handle(&request, &directory.connector("okta"), OffsetDateTime::UNIX_EPOCH).await;
/// assert_eq!(response.status, 201);
/// # Ok::<(), sallyport_scim::ScimError>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Provider {
    base: String,
}

/// What a change is made of.
enum Change<'a> {
    Put(&'a Map<String, Value>),
    Patch(&'a Patch),
}

impl Provider {
    /// The service at an address, such as `https://proxy.example.com/scim/v2`, with which the addresses of resources begin.
    ///
    /// # Errors
    /// [`ScimError::BadBase`].
    pub fn new(base: &str) -> Result<Self, ScimError> {
        let bad = |reason| ScimError::BadBase { base: base.to_owned(), reason };
        let rest = base.strip_prefix("https://").or_else(|| base.strip_prefix("http://"));
        let rest = rest.ok_or_else(|| bad("it begins with neither https:// nor http://"))?;
        if rest.is_empty() || rest.starts_with('/') {
            return Err(bad("it names no host"));
        }
        if !rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~:/[]%@".contains(&byte)) {
            return Err(bad("it has a query, a fragment or a space"));
        }
        Ok(Self { base: base.trim_end_matches('/').to_owned() })
    }

    /// Answers a request of a client that may use this backend.
    pub async fn handle(
        &self,
        request: &Request<'_>,
        backend: &dyn Backend,
        now: OffsetDateTime,
    ) -> Response {
        let answer = self.answer(request, backend, now).await;
        let mut answer = answer.unwrap_or_else(Response::refused);
        if request.method == "HEAD" {
            answer.body.clear();
        }
        answer
    }

    async fn answer(
        &self,
        request: &Request<'_>,
        backend: &dyn Backend,
        now: OffsetDateTime,
    ) -> Result<Response, ScimError> {
        let route = Route::find(request.method, request.path)?;
        if route.has_body() {
            is_json(request)?;
        }
        let base = self.base.as_str();
        match route {
            Route::Config => {
                unfiltered(request)?;
                Ok(Response::json(200, discovery::config(base)))
            }
            Route::ResourceTypes => {
                unfiltered(request)?;
                Ok(Response::json(200, discovery::resource_types(base)))
            }
            Route::ResourceType(name) => {
                let kind = Kind::ALL.iter().find(|kind| kind.name() == name);
                let kind = kind.ok_or_else(|| ScimError::NoEndpoint { path: shortened(request.path) })?;
                Ok(Response::json(200, discovery::resource_type(*kind, base)))
            }
            Route::Schemas => {
                unfiltered(request)?;
                Ok(Response::json(200, discovery::schemas(base)))
            }
            Route::Schema(urn) => {
                let schema = discovery::schema(&urn, base);
                let schema = schema.ok_or_else(|| ScimError::NoEndpoint { path: shortened(request.path) })?;
                Ok(Response::json(200, schema))
            }
            Route::List(kinds, asking) => {
                let written = match asking {
                    Asking::Query => from_query(request.query)?,
                    Asking::Body => from_body(request.body)?,
                };
                let search = Search::read(written)?;
                Ok(Response::json(200, list(kinds, &search, backend, base).await?))
            }
            Route::Create(kind) => self.create(kind, request, backend, now).await,
            Route::Read(kind, id) => self.read(kind, &id, request, backend).await,
            Route::Replace(kind, id) => {
                let body = json::object(request.body)?;
                self.change(kind, &id, Change::Put(&body), request, backend, now).await
            }
            Route::Patch(kind, id) => {
                let patch = Patch::parse(kind, request.body)?;
                self.change(kind, &id, Change::Patch(&patch), request, backend, now).await
            }
            Route::Delete(kind, id) => delete(kind, &id, request, backend, now).await,
        }
    }

    async fn create(
        &self,
        kind: Kind,
        request: &Request<'_>,
        backend: &dyn Backend,
        now: OffsetDateTime,
    ) -> Result<Response, ScimError> {
        let asked = from_query(request.query)?.asked;
        let projection = asked.of(kind)?;
        let mut whole = values::resource(kind, &json::object(request.body)?)?;
        if kind == Kind::User {
            whole.entry(ACTIVE).or_insert(Value::Bool(true));
        }
        let draft = values::finished(kind, whole)?;
        let made = backend.create(draft, now).await.map_err(refused)?;
        let answer = self.shown(201, &made, &projection, backend).await?;
        let location = location(&self.base, kind, &made.id);
        Ok(answer.with("Location", location).done(kind, &made.id, What::Created))
    }

    async fn read(
        &self,
        kind: Kind,
        id: &str,
        request: &Request<'_>,
        backend: &dyn Backend,
    ) -> Result<Response, ScimError> {
        let projection = from_query(request.query)?.asked.of(kind)?;
        let resource = find(kind, id, backend).await?;
        let memberships = self.memberships(&resource, &projection, backend).await?;
        let shown = Shown { resource: &resource, groups: memberships.of(&resource.id) };
        let version = shown.version();
        if request.header("If-None-Match").is_some_and(|named| version.is_named_by(&named)) {
            return Ok(Response::empty(304).with("ETag", version.to_string()));
        }
        Ok(Response::json(200, shown.json(&self.base, &projection)).with("ETag", version.to_string()))
    }

    /// Replaces or patches a resource. Where others change it meanwhile, what they made is taken as the beginning, unless the
    /// client said which version it means.
    async fn change(
        &self,
        kind: Kind,
        id: &str,
        change: Change<'_>,
        request: &Request<'_>,
        backend: &dyn Backend,
        now: OffsetDateTime,
    ) -> Result<Response, ScimError> {
        let asked = from_query(request.query)?.asked;
        let projection = asked.of(kind)?;
        for _ in 0..ATTEMPTS {
            let before = find(kind, id, backend).await?;
            precondition(request, &before)?;
            let draft = match &change {
                Change::Put(body) => put(kind, body, &before.draft)?,
                Change::Patch(patch) => patch.apply(&before.draft)?,
            };
            // What changes nothing is no change (RFC 7644 §3.5.2.1): neither the version nor the record has it.
            if draft.says_the_same_as(&before.draft) {
                return self.changed(&before, &change, &asked, &projection, backend).await;
            }
            let was_active = before.draft.is_active();
            match backend.replace(id, before.revision, draft, now).await {
                Ok(after) => {
                    let what = match (was_active, after.draft.is_active()) {
                        (true, false) => What::Deactivated,
                        (false, true) => What::Activated,
                        _ => What::Changed,
                    };
                    let answer = self.changed(&after, &change, &asked, &projection, backend).await?;
                    return Ok(answer.done(kind, id, what));
                }
                Err(BackendError::Changed) => {}
                Err(error) => return Err(refused(error)),
            }
        }
        Err(ScimError::Busy)
    }

    /// The answer to a change. A group that was patched is not sent back with thousands of members, unless the client says what
    /// it wants to see (RFC 7644 §3.5.2).
    async fn changed(
        &self,
        after: &Resource,
        change: &Change<'_>,
        asked: &Asked,
        projection: &Projection,
        backend: &dyn Backend,
    ) -> Result<Response, ScimError> {
        let kind = after.draft.kind();
        if kind == Kind::Group && matches!(change, Change::Patch(_)) && !asked.is_said() {
            let shown = Shown { resource: after, groups: Vec::new() };
            return Ok(Response::empty(204).with("ETag", shown.version().to_string()));
        }
        self.shown(200, after, projection, backend).await
    }

    async fn shown(
        &self,
        status: u16,
        resource: &Resource,
        projection: &Projection,
        backend: &dyn Backend,
    ) -> Result<Response, ScimError> {
        let memberships = self.memberships(resource, projection, backend).await?;
        let shown = Shown { resource, groups: memberships.of(&resource.id) };
        let version = shown.version().to_string();
        Ok(Response::json(status, shown.json(&self.base, projection)).with("ETag", version))
    }

    async fn memberships(
        &self,
        resource: &Resource,
        projection: &Projection,
        backend: &dyn Backend,
    ) -> Result<Memberships, ScimError> {
        if resource.draft.kind() == Kind::User && projection.shows_groups(Kind::User) {
            return Memberships::above(backend, [resource.id.clone()].into()).await.map_err(refused);
        }
        Ok(Memberships::default())
    }
}

const ACTIVE: &str = "active";

/// What a PUT makes of a resource (RFC 7644 §3.5.1). What it leaves out is gone; but whether a user may log in stays as it is,
/// where the client does not say: no user comes back because of a field that is missing.
fn put(kind: Kind, body: &Map<String, Value>, before: &Draft) -> Result<Draft, ScimError> {
    let mut whole = values::resource(kind, body)?;
    if let Some(active) = before.attributes().get(ACTIVE) {
        whole.entry(ACTIVE).or_insert_with(|| active.clone());
    }
    values::finished(kind, whole)
}

async fn delete(
    kind: Kind,
    id: &str,
    request: &Request<'_>,
    backend: &dyn Backend,
    now: OffsetDateTime,
) -> Result<Response, ScimError> {
    for _ in 0..ATTEMPTS {
        let before = find(kind, id, backend).await?;
        precondition(request, &before)?;
        let revision = request.header(IF_MATCH).map(|_| before.revision);
        match backend.delete(kind, id, revision, now).await {
            Ok(()) => return Ok(Response::empty(204).done(kind, id, What::Deleted)),
            Err(BackendError::Changed) => {}
            Err(error) => return Err(refused(error)),
        }
    }
    Err(ScimError::Busy)
}

async fn find(kind: Kind, id: &str, backend: &dyn Backend) -> Result<Resource, ScimError> {
    let nothing = || ScimError::NotFound { kind, id: shortened(id) };
    if id.is_empty() || id.len() > MAX_NAME_BYTES || id.contains(char::is_control) {
        return Err(nothing());
    }
    backend.get(kind, id).await.map_err(refused)?.ok_or_else(nothing)
}

const IF_MATCH: &str = "If-Match";

/// That the resource is at the version that the client means (RFC 7644 §3.14).
fn precondition(request: &Request<'_>, now: &Resource) -> Result<(), ScimError> {
    match request.header(IF_MATCH) {
        Some(named) if !version::allows(&named, now.revision) => {
            let shown = Shown { resource: now, groups: Vec::new() };
            Err(ScimError::PreconditionFailed { now: shown.version().to_string() })
        }
        _ => Ok(()),
    }
}

/// That the body is JSON by its type (RFC 7644 §3.1).
fn is_json(request: &Request<'_>) -> Result<(), ScimError> {
    let said = request.header("Content-Type").unwrap_or_default();
    let media = said.split(';').next().unwrap_or_default().trim();
    if ["application/scim+json", "application/json"].iter().any(|known| media.eq_ignore_ascii_case(known)) {
        return Ok(());
    }
    Err(ScimError::UnsupportedMediaType { got: shortened(media) })
}

/// That nothing is filtered where nothing may be (RFC 7644 §4).
fn unfiltered(request: &Request<'_>) -> Result<(), ScimError> {
    if from_query(request.query)?.filter.is_some() { Err(ScimError::FilterForbidden) } else { Ok(()) }
}
