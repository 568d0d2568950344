//! The API of certificates.

use std::sync::Arc;

use sallyport_access::Verb;
use sallyport_wire::v1;
use sallyport_wire::v1::certificates_server::Certificates;
use tonic::{Request, Response, Status};

use crate::authority::audit::journal::Journal;
use crate::authority::caller::{caller, shown};
use crate::authority::certificates::register::{CertificateRegister, info};
use crate::authority::gate::calls::Gate;
use crate::authority::issuance::list::IssuedList;

/// What was issued.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) gate: Arc<Gate>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) issued: Arc<IssuedList>,
    pub(crate) certificates: Arc<CertificateRegister>,
}

#[tonic::async_trait]
impl Certificates for Service {
    async fn list_certificates(
        &self,
        request: Request<v1::ListCertificatesRequest>,
    ) -> Result<Response<v1::ListCertificatesResponse>, Status> {
        const METHOD: &str = "Certificates.ListCertificates";
        let caller = caller(&request);
        self.gate.allow(&caller, METHOD, "certificate", Verb::List).await?;
        self.journal.called(&caller, METHOD, "").await?;
        self.certificates.list_certificates(&request.into_inner()).await.map(Response::new)
    }

    async fn get_certificate(
        &self,
        request: Request<v1::GetCertificateRequest>,
    ) -> Result<Response<v1::CertificateInfo>, Status> {
        const METHOD: &str = "Certificates.GetCertificate";
        let caller = caller(&request);
        self.gate.allow(&caller, METHOD, "certificate", Verb::Read).await?;
        let id = request.into_inner().id;
        self.journal.called(&caller, METHOD, &shown(&id)).await?;
        let record = self.certificates.one_certificate(&id).await?;
        let denials = self.issued.denials().await?;
        let denial = denials.get(&record.issued.fingerprint);
        Ok(Response::new(info(&record, denial)))
    }

    async fn deny_certificate(
        &self,
        request: Request<v1::DenyCertificateRequest>,
    ) -> Result<Response<v1::DenyCertificateResponse>, Status> {
        const METHOD: &str = "Certificates.DenyCertificate";
        let caller = caller(&request);
        self.gate.allow(&caller, METHOD, "certificate", Verb::Update).await?;
        self.gate.allow(&caller, METHOD, "lock", Verb::Create).await?;
        self.certificates.deny_certificate(&caller, request.into_inner()).await.map(Response::new)
    }

    async fn get_issuance(
        &self,
        request: Request<v1::GetIssuanceRequest>,
    ) -> Result<Response<v1::GetIssuanceResponse>, Status> {
        const METHOD: &str = "Certificates.GetIssuance";
        let caller = caller(&request);
        self.gate.allow(&caller, METHOD, "certificate", Verb::Read).await?;
        self.journal.called(&caller, METHOD, "").await?;
        Ok(Response::new(self.certificates.bounds()))
    }

    async fn sign_certificate(
        &self,
        request: Request<v1::SignCertificateRequest>,
    ) -> Result<Response<v1::SignCertificateResponse>, Status> {
        const METHOD: &str = "Certificates.SignCertificate";
        let caller = caller(&request);
        self.gate.allow(&caller, METHOD, "certificate", Verb::Create).await?;
        self.certificates.sign_certificate(&caller, request.into_inner()).await.map(Response::new)
    }
}
