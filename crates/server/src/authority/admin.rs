//! Administration: resources, users, tokens, the CAs' public halves, and the audit log.

mod reading;
mod removing;
mod search;
mod targets;
mod users;
mod verify;

use std::sync::Arc;

use sallyport_access::{Role, RoleName, Verb};
use sallyport_audit::Code;
use sallyport_store::{StoreError, typed};
use sallyport_wire::v1;
use sallyport_wire::v1::admin_server::Admin;
use time::OffsetDateTime;
use tonic::{Request, Response, Status};

use super::Inner;
use super::caller::{Caller, caller};
use super::entered;
use super::hosts::{shown, storage};
use super::resources::{self, Document, KINDS, Text};
use super::state::{LockRecord, RoleRecord, SessionPolicyRecord};
use super::streams::{Kind as StreamKind, Line};
use search::{Events, search};

pub(super) struct Service(pub(super) Arc<Inner>);

#[tonic::async_trait]
impl Admin for Service {
    async fn get_resource(
        &self,
        request: Request<v1::GetResourceRequest>,
    ) -> Result<Response<v1::Resource>, Status> {
        let caller = caller(&request);
        let asked = request.into_inner();
        let kind = self.0.known_kind(&caller, "Admin.GetResource", &asked.kind).await?;
        self.0.allow(&caller, "Admin.GetResource", kind, Verb::Read).await?;
        self.0.called(&caller, "Admin.GetResource", &format!("{kind}/{}", shown(&asked.name))).await?;
        self.0.resource(kind, &asked.name).await.map(Response::new)
    }

    async fn list_resources(
        &self,
        request: Request<v1::ListResourcesRequest>,
    ) -> Result<Response<v1::ListResourcesResponse>, Status> {
        let caller = caller(&request);
        let asked = request.into_inner();
        let kind = self.0.known_kind(&caller, "Admin.ListResources", &asked.kind).await?;
        self.0.allow(&caller, "Admin.ListResources", kind, Verb::List).await?;
        self.0.called(&caller, "Admin.ListResources", kind).await?;
        let mut listed = self.0.resources(kind, &asked).await?;
        // To list is to learn what there is. What stands in it is for those who may read it.
        if self.0.check(&caller, kind, Verb::Read).is_err() {
            listed.resources.iter_mut().for_each(|resource| resource.yaml.clear());
        }
        Ok(Response::new(listed))
    }

    async fn create_resource(
        &self,
        request: Request<v1::CreateResourceRequest>,
    ) -> Result<Response<v1::Resource>, Status> {
        const METHOD: &str = "Admin.CreateResource";
        let caller = caller(&request);
        let asked = request.into_inner();
        if !matches!(caller, Caller::LocalAdmin) {
            self.0.certified(&caller, METHOD).await?;
        }
        let verbs: &[Verb] = if asked.replace { &[Verb::Create, Verb::Update] } else { &[Verb::Create] };
        let document = self.0.document(&caller, METHOD, verbs, asked.yaml).await?;
        let write = if asked.replace { Write::Replace } else { Write::Create };
        self.0.write(&caller, document, write).await.map(Response::new)
    }

    async fn update_resource(
        &self,
        request: Request<v1::UpdateResourceRequest>,
    ) -> Result<Response<v1::Resource>, Status> {
        const METHOD: &str = "Admin.UpdateResource";
        let caller = caller(&request);
        let asked = request.into_inner();
        if !matches!(caller, Caller::LocalAdmin) {
            self.0.certified(&caller, METHOD).await?;
        }
        let document = self.0.document(&caller, METHOD, &[Verb::Update], asked.yaml).await?;
        self.0.write(&caller, document, Write::Update(asked.revision)).await.map(Response::new)
    }

    async fn delete_resource(
        &self,
        request: Request<v1::DeleteResourceRequest>,
    ) -> Result<Response<v1::DeleteResourceResponse>, Status> {
        let caller = caller(&request);
        let asked = request.into_inner();
        let kind = self.0.known_kind(&caller, "Admin.DeleteResource", &asked.kind).await?;
        self.0.allow(&caller, "Admin.DeleteResource", kind, Verb::Delete).await?;
        self.0.delete(&caller, kind, &asked.name).await?;
        Ok(Response::new(v1::DeleteResourceResponse {}))
    }

    async fn create_user(
        &self,
        request: Request<v1::CreateUserRequest>,
    ) -> Result<Response<v1::InviteResponse>, Status> {
        let caller = caller(&request);
        self.0.allow(&caller, "Admin.CreateUser", "user", Verb::Create).await?;
        self.0.create_user(&caller, request.into_inner()).await.map(Response::new)
    }

    async fn reset_user(
        &self,
        request: Request<v1::ResetUserRequest>,
    ) -> Result<Response<v1::InviteResponse>, Status> {
        let caller = caller(&request);
        self.0.allow(&caller, "Admin.ResetUser", "user", Verb::Update).await?;
        self.0.reset_user(&caller, &request.into_inner().name).await.map(Response::new)
    }

    async fn create_token(
        &self,
        request: Request<v1::CreateTokenRequest>,
    ) -> Result<Response<v1::CreateTokenResponse>, Status> {
        let caller = caller(&request);
        self.0.allow(&caller, "Admin.CreateToken", "token", Verb::Create).await?;
        self.0.create_token(&caller, request.into_inner()).await.map(Response::new)
    }

    async fn export_ca(
        &self,
        request: Request<v1::ExportCaRequest>,
    ) -> Result<Response<v1::ExportCaResponse>, Status> {
        let caller = caller(&request);
        self.0.allow(&caller, "Admin.ExportCa", "ca", Verb::Read).await?;
        let asked = request.into_inner();
        let answer = self.0.export_ca(&asked).await?;
        let event =
            self.0.event(Code::CaExported, &caller).field("ca", asked.kind).field("format", asked.format);
        self.0.record(vec![event]).await?;
        Ok(Response::new(answer))
    }

    type SearchEventsStream = Events;

    async fn search_events(
        &self,
        request: Request<v1::SearchEventsRequest>,
    ) -> Result<Response<Events>, Status> {
        const METHOD: &str = "Admin.SearchEvents";
        let (caller, line) = (caller(&request), Line::of(&request));
        self.0.allow(&caller, METHOD, "event", Verb::List).await?;
        let place = match self.0.place(StreamKind::Reading, &caller) {
            Ok(place) => place,
            Err(status) => return Err(self.0.refuse(&caller, METHOD, status).await),
        };
        self.0.called(&caller, METHOD, "").await?;
        Ok(search(&self.0, &caller, (place, line), request.into_inner()).answer())
    }

    async fn verify_audit(
        &self,
        request: Request<v1::VerifyAuditRequest>,
    ) -> Result<Response<v1::VerifyAuditResponse>, Status> {
        let caller = caller(&request);
        self.0.allow(&caller, "Admin.VerifyAudit", "event", Verb::Read).await?;
        self.0.verify(&caller, &request.into_inner().against).await.map(Response::new)
    }
}

/// How a document is to be written.
#[derive(Debug, Clone, Copy)]
pub(super) enum Write {
    Create,
    Replace,
    Update(u64),
}

impl Write {
    /// The method that writes so.
    pub(super) fn method(self) -> &'static str {
        match self {
            Self::Create | Self::Replace => "Admin.CreateResource",
            Self::Update(_) => "Admin.UpdateResource",
        }
    }
}

impl Inner {
    /// The kind, when the API has it. Only a caller with a certificate learns which there are.
    async fn known_kind(
        &self,
        caller: &Caller,
        method: &'static str,
        kind: &str,
    ) -> Result<&'static str, Status> {
        if !matches!(caller, Caller::LocalAdmin) {
            self.certified(caller, method).await?;
        }
        KINDS.into_iter().find(|known| *known == kind).ok_or_else(|| {
            Status::invalid_argument(format!(
                "there is no kind {:?}; kinds are {}",
                shown(kind),
                KINDS.join(", ")
            ))
        })
    }

    /// Reads a document for a caller who may do all of this with its kind. Nobody else's is taken apart.
    async fn document(
        &self,
        caller: &Caller,
        method: &'static str,
        verbs: &[Verb],
        text: String,
    ) -> Result<Document, Status> {
        let claimed = resources::claimed_kind(&text);
        // Without a kind that can be told at a glance, it is for those alone who may write any.
        let kinds = claimed.as_ref().map_or(KINDS.as_slice(), std::slice::from_ref);
        for kind in kinds {
            for verb in verbs {
                self.allow(caller, method, kind, *verb).await?;
            }
        }
        let text = Text::new(text).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let read =
            self.reading.run(move || resources::read(&resources::kind_of(text.as_str())?, &text)).await;
        let document = read.map_err(|_| Status::internal("the document could not be read"))??;
        if claimed.is_none_or(|claimed| claimed == document.kind()) {
            return Ok(document);
        }
        let status = Status::invalid_argument(
            "the document is of another kind than its line \"kind:\" says; write that line once, at the beginning",
        );
        Err(self.refuse(caller, method, status).await)
    }

    async fn write(&self, caller: &Caller, document: Document, write: Write) -> Result<v1::Resource, Status> {
        entered::check_document(&document)?;
        let document = match document {
            Document::Node(node) => return self.write_node(caller, *node, write).await,
            Document::Database(database) => return self.write_database(caller, *database, write).await,
            Document::User(user) => return self.write_user(caller, user, write).await,
            other => other,
        };
        // Who has a role does not change while it is decided whether it may be written.
        let _changing = match &document {
            Document::Role(role) => {
                let changing = self.people.changing.write().await;
                self.must_hold_role(caller, write.method(), &role.name, Some(role)).await?;
                Some(changing)
            }
            _ => None,
        };
        let now = OffsetDateTime::now_utc();
        let (kind, name) = (document.kind(), document.name());
        let exists = self.exists(kind, &name, now).await?;
        let code = match (kind, exists) {
            ("role", false) => Code::RoleCreated,
            ("role", true) => Code::RoleUpdated,
            ("lock", false) => Code::LockCreated,
            ("lock", true) => Code::LockUpdated,
            _ => Code::SessionPolicySet,
        };
        let failed = |error: StoreError| storage(&error);
        let (op, yaml) = match &document {
            Document::Role(role) => {
                let record = RoleRecord { yaml: role.to_yaml() };
                (op(&name, &record, role.expires, write).map_err(failed)?, record.yaml)
            }
            Document::Lock(lock) => {
                if !matches!(write, Write::Replace) {
                    self.check_target(&lock.target, now).await?;
                }
                let record = LockRecord { yaml: lock.to_yaml() };
                (op(&name, &record, lock.expires, write).map_err(failed)?, record.yaml)
            }
            Document::SessionPolicy(policy) => {
                let record = SessionPolicyRecord { yaml: policy.to_yaml() };
                (op(&name, &record, None, write).map_err(failed)?, record.yaml)
            }
            Document::Node(_) | Document::Database(_) | Document::User(_) => {
                return Err(Status::internal("users, nodes and databases are written elsewhere"));
            }
        };
        if let Document::Role(role) = &document {
            self.check_compiles(role)?;
        }
        let urgent = matches!(document, Document::Lock(_));
        let backend = self.store.backend();
        let revisions = match urgent {
            true => backend.transact_urgent(vec![op], now).await,
            false => backend.transact(vec![op], now).await,
        };
        let revisions = revisions.map_err(failed)?;
        self.refresh_after(kind).await?;
        let event = self
            .event(code, caller)
            .message(format!("{kind}/{name}"))
            .field("name", name.clone())
            .field("yaml", yaml.clone());
        match urgent {
            true => self.record_urgent(vec![event]).await?,
            false => self.record(vec![event]).await?,
        }
        Ok(resources::of(kind, &name, revisions.first().copied().unwrap_or_default(), None, yaml))
    }

    async fn exists(&self, kind: &str, name: &str, now: OffsetDateTime) -> Result<bool, Status> {
        let key = format!("{kind}/{name}");
        Ok(self.store.backend().get(&key, now).await.map_err(|error| storage(&error))?.is_some())
    }

    /// A role that parses also compiles; were that ever wrong, the cluster must not be left without a policy.
    fn check_compiles(&self, role: &Role) -> Result<(), Status> {
        sallyport_access::Policies::compile(std::slice::from_ref(role))
            .map(|_| ())
            .map_err(|error| Status::invalid_argument(error.to_string()))
    }

    fn check_roles(&self, roles: &[RoleName]) -> Result<(), Status> {
        let view = self.view();
        let unknown: Vec<&str> =
            roles.iter().map(RoleName::as_str).filter(|role| !view.roles.contains_key(*role)).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let known: Vec<&str> = view.roles.keys().map(String::as_str).collect();
        Err(Status::invalid_argument(format!(
            "there is no role {}; roles are {}",
            unknown.join(", "),
            known.join(", ")
        )))
    }

    pub(super) async fn refresh_after(&self, kind: &str) -> Result<(), Status> {
        if matches!(kind, "role" | "lock" | "session_policy") {
            self.refresh().await.map_err(|problem| {
                tracing::error!(
                    problem = crate::ServerError::chain(&problem),
                    "the policy could not be read"
                );
                Status::internal(
                    "written, but the policy could not be read again; the authority's log says why",
                )
            })?;
        }
        Ok(())
    }
}

pub(super) fn op<T: sallyport_store::Kind>(
    name: &str,
    value: &T,
    expires: Option<OffsetDateTime>,
    write: Write,
) -> Result<sallyport_store::Op, StoreError> {
    match write {
        Write::Create => typed::create(name, value, expires),
        Write::Replace => typed::put(name, value, expires),
        Write::Update(revision) => typed::update(name, revision, value, expires),
    }
}
