//! Administration: resources, users, tokens, the CAs' public halves, and the audit log.

use std::sync::Arc;

use sallyport_access::Verb;
use sallyport_audit::Code;
use sallyport_wire::v1;
use sallyport_wire::v1::admin_server::Admin;
use tonic::{Request, Response, Status};

use crate::authority::accounts::login::Accounts;
use crate::authority::audit::journal::Journal;
use crate::authority::audit::search::{AuditReader, Events};
use crate::authority::caller::{Caller, caller, shown};
use crate::authority::certificates::register::CertificateRegister;
use crate::authority::gate::calls::Gate;
use crate::authority::hosts::tokens::Tokens;
use crate::authority::resources::documents::Document;
use crate::authority::resources::writing::Resources;
use crate::authority::sso::connectors::Connectors;
use crate::authority::storage::Write;
use crate::authority::streams::{Line, StreamKind, Streams};

/// Administration.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) journal: Arc<Journal>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) streams: Arc<Streams>,
    pub(crate) resources: Arc<Resources>,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) connectors: Arc<Connectors>,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) certificates: Arc<CertificateRegister>,
    pub(crate) reader: Arc<AuditReader>,
}

#[tonic::async_trait]
impl Admin for Service {
    async fn get_resource(
        &self,
        request: Request<v1::GetResourceRequest>,
    ) -> Result<Response<v1::Resource>, Status> {
        let caller = caller(&request);
        let asked = request.into_inner();
        let kind = self.resources.known_kind(&caller, "Admin.GetResource", &asked.kind).await?;
        self.gate.allow(&caller, "Admin.GetResource", kind, Verb::Read).await?;
        self.journal.called(&caller, "Admin.GetResource", &format!("{kind}/{}", shown(&asked.name))).await?;
        self.resources.get(kind, &asked.name).await.map(Response::new)
    }

    async fn list_resources(
        &self,
        request: Request<v1::ListResourcesRequest>,
    ) -> Result<Response<v1::ListResourcesResponse>, Status> {
        let caller = caller(&request);
        let asked = request.into_inner();
        let kind = self.resources.known_kind(&caller, "Admin.ListResources", &asked.kind).await?;
        self.gate.allow(&caller, "Admin.ListResources", kind, Verb::List).await?;
        self.journal.called(&caller, "Admin.ListResources", kind).await?;
        let mut listed = self.resources.list(kind, &asked).await?;
        // To list is to learn what there is. Its text is for callers who may read it.
        if self.gate.check(&caller, kind, Verb::Read).is_err() {
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
            self.gate.certified(&caller, METHOD).await?;
        }
        let verbs: &[Verb] = if asked.replace { &[Verb::Create, Verb::Update] } else { &[Verb::Create] };
        let (document, verb) = self.resources.document(&caller, METHOD, verbs, asked.yaml).await?;
        let write = match (&document, asked.replace, verb) {
            (_, false, _) => Write::Create,
            // A new lock is an ordinary act, and to change one is dangerous.
            (Document::Lock(_), true, Verb::Create) => Write::Anew,
            (_, true, _) => Write::Replace,
        };
        self.resources.write(&caller, document, write).await.map(Response::new)
    }

    async fn update_resource(
        &self,
        request: Request<v1::UpdateResourceRequest>,
    ) -> Result<Response<v1::Resource>, Status> {
        const METHOD: &str = "Admin.UpdateResource";
        let caller = caller(&request);
        let asked = request.into_inner();
        if !matches!(caller, Caller::LocalAdmin) {
            self.gate.certified(&caller, METHOD).await?;
        }
        let (document, _) = self.resources.document(&caller, METHOD, &[Verb::Update], asked.yaml).await?;
        self.resources.write(&caller, document, Write::Update(asked.revision)).await.map(Response::new)
    }

    async fn delete_resource(
        &self,
        request: Request<v1::DeleteResourceRequest>,
    ) -> Result<Response<v1::DeleteResourceResponse>, Status> {
        let caller = caller(&request);
        let asked = request.into_inner();
        let kind = self.resources.known_kind(&caller, "Admin.DeleteResource", &asked.kind).await?;
        self.gate.allow(&caller, "Admin.DeleteResource", kind, Verb::Delete).await?;
        let document = (kind, asked.name.as_str());
        self.gate.allow_document(&caller, "Admin.DeleteResource", Verb::Delete, document).await?;
        self.resources.delete(&caller, kind, &asked.name).await?;
        Ok(Response::new(v1::DeleteResourceResponse {}))
    }

    async fn create_user(
        &self,
        request: Request<v1::CreateUserRequest>,
    ) -> Result<Response<v1::InviteResponse>, Status> {
        let caller = caller(&request);
        self.gate.allow(&caller, "Admin.CreateUser", "user", Verb::Create).await?;
        self.accounts.create_user(&caller, request.into_inner()).await.map(Response::new)
    }

    async fn reset_user(
        &self,
        request: Request<v1::ResetUserRequest>,
    ) -> Result<Response<v1::InviteResponse>, Status> {
        let caller = caller(&request);
        self.gate.allow(&caller, "Admin.ResetUser", "user", Verb::Update).await?;
        self.accounts.reset_user(&caller, &request.into_inner().name).await.map(Response::new)
    }

    async fn link_user(
        &self,
        request: Request<v1::LinkUserRequest>,
    ) -> Result<Response<v1::LinkUserResponse>, Status> {
        let caller = caller(&request);
        self.gate.allow(&caller, "Admin.LinkUser", "user", Verb::Update).await?;
        let may_read = self.gate.check(&caller, "user", Verb::Read).is_ok();
        self.connectors.link_user(&caller, request.into_inner(), may_read).await.map(Response::new)
    }

    async fn unlink_user(
        &self,
        request: Request<v1::UnlinkUserRequest>,
    ) -> Result<Response<v1::UnlinkUserResponse>, Status> {
        let caller = caller(&request);
        self.gate.allow(&caller, "Admin.UnlinkUser", "user", Verb::Update).await?;
        self.connectors.unlink_user(&caller, &request.into_inner().name).await.map(Response::new)
    }

    async fn create_token(
        &self,
        request: Request<v1::CreateTokenRequest>,
    ) -> Result<Response<v1::CreateTokenResponse>, Status> {
        let caller = caller(&request);
        self.gate.allow(&caller, "Admin.CreateToken", "token", Verb::Create).await?;
        self.tokens.create_token(&caller, request.into_inner()).await.map(Response::new)
    }

    async fn export_ca(
        &self,
        request: Request<v1::ExportCaRequest>,
    ) -> Result<Response<v1::ExportCaResponse>, Status> {
        let caller = caller(&request);
        self.gate.allow(&caller, "Admin.ExportCa", "ca", Verb::Read).await?;
        let asked = request.into_inner();
        let answer = self.certificates.export_ca(&asked).await?;
        let event = caller.event(Code::CaExported).field("ca", asked.kind).field("format", asked.format);
        self.journal.record(vec![event]).await?;
        Ok(Response::new(answer))
    }

    type SearchEventsStream = Events;

    async fn search_events(
        &self,
        request: Request<v1::SearchEventsRequest>,
    ) -> Result<Response<Events>, Status> {
        const METHOD: &str = "Admin.SearchEvents";
        let (caller, line) = (caller(&request), Line::of(&request));
        self.gate.allow(&caller, METHOD, "event", Verb::List).await?;
        let place = match self.streams.place(StreamKind::Reading, &caller) {
            Ok(place) => place,
            Err(status) => return Err(self.gate.refuse(&caller, METHOD, status).await),
        };
        self.journal.called(&caller, METHOD, "").await?;
        Ok(self.reader.search(&caller, (place, line), request.into_inner()).answer())
    }

    async fn verify_audit(
        &self,
        request: Request<v1::VerifyAuditRequest>,
    ) -> Result<Response<v1::VerifyAuditResponse>, Status> {
        let caller = caller(&request);
        self.gate.allow(&caller, "Admin.VerifyAudit", "event", Verb::Read).await?;
        self.reader.verify(&caller, &request.into_inner().against).await.map(Response::new)
    }
}
