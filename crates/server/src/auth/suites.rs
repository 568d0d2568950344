//! Suites, and the clients that a change of suite would concern.

use std::sync::Arc;

use sallyport_access::Verb;
use sallyport_sal::compatibility::Kind;
use sallyport_sal::selection::{self, Mode};
use sallyport_sal::suite::TABLE;
use sallyport_sal::{HybridKeyExchange, Suite};
use sallyport_wire::convert::time_to_proto;
use sallyport_wire::v1;
use sallyport_wire::v1::suites_server::Suites;
use time::OffsetDateTime;
use tonic::{Request, Response, Status};

use super::Inner;
use super::caller::caller;
use super::seen::SeenRecord;

pub(super) struct Service(pub(super) Arc<Inner>);

/// The kind of resource that roles allow these methods by.
const RESOURCE: &str = "cluster";

#[tonic::async_trait]
impl Suites for Service {
    async fn list_suites(
        &self,
        request: Request<v1::ListSuitesRequest>,
    ) -> Result<Response<v1::ListSuitesResponse>, Status> {
        const METHOD: &str = "Suites.ListSuites";
        let caller = caller(&request);
        self.0.allow(&caller, METHOD, RESOURCE, Verb::Read).await?;
        self.0.called(&caller, METHOD, "").await?;
        let suites = Suite::ALL.iter().map(|suite| self.0.suite_info(*suite)).collect();
        let current = self.0.authorities().suite().name().to_owned();
        Ok(Response::new(v1::ListSuitesResponse { suites, current }))
    }

    async fn list_clients(
        &self,
        request: Request<v1::ListClientsRequest>,
    ) -> Result<Response<v1::ListClientsResponse>, Status> {
        const METHOD: &str = "Suites.ListClients";
        let caller = caller(&request);
        self.0.allow(&caller, METHOD, RESOURCE, Verb::Read).await?;
        self.0.called(&caller, METHOD, "").await?;
        let mut kinds = Vec::new();
        for name in request.into_inner().kinds {
            let kind = Kind::named(&name).ok_or_else(|| {
                let known: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
                Status::invalid_argument(format!(
                    "{:?} is no kind of client; known are {}",
                    super::hosts::shown(&name),
                    known.join(", ")
                ))
            })?;
            kinds.push(kind);
        }
        let (clients, forgotten) = self.0.clients.list(OffsetDateTime::now_utc());
        let wanted = clients.iter().filter(|client| kinds.is_empty() || kinds.contains(&client.offer.kind));
        let clients = wanted.map(client_to_proto).collect();
        Ok(Response::new(v1::ListClientsResponse { clients, forgotten }))
    }
}

pub(super) fn client_to_proto(record: &SeenRecord) -> v1::SeenClient {
    let offer = record.offer.clone();
    v1::SeenClient {
        kind: offer.kind.name().to_owned(),
        software: offer.software,
        key_exchange: offer.key_exchange,
        signatures: offer.signatures,
        ciphers: offer.ciphers,
        macs: offer.macs,
        protocols: offer.protocols,
        versions: offer.versions,
        first_seen: Some(time_to_proto(record.first)),
        last_seen: Some(time_to_proto(record.last)),
        count: record.count,
        users: record.users.clone(),
        addresses: record.addresses.iter().map(ToString::to_string).collect(),
        seen_by: record.seen_by.clone(),
        refused: record.refused.clone().unwrap_or_default(),
    }
}

/// The word for what a suite demands of key exchange.
pub(super) fn hybrid(suite: Suite) -> &'static str {
    match suite.key_exchange() {
        HybridKeyExchange::Preferred => "preferred",
        HybridKeyExchange::Required => "required",
    }
}

impl Inner {
    fn suite_info(&self, suite: Suite) -> v1::SuiteInfo {
        let keys = TABLE.iter().map(|row| {
            let cell = row.cell(suite);
            v1::SuiteKey {
                purpose: row.purpose.name().to_owned(),
                what: row.what.to_owned(),
                algorithm: cell.algorithm.name().to_owned(),
                why: cell.reason.why.to_owned(),
                dictated_by: cell.reason.dictated_by.to_owned(),
            }
        });
        v1::SuiteInfo {
            name: suite.name().to_owned(),
            summary: suite.summary().to_owned(),
            hybrid_key_exchange: hybrid(suite).to_owned(),
            keys: keys.collect(),
            unavailable: self.unavailable(suite).unwrap_or_default(),
        }
    }

    /// Why a suite cannot be in force on this cluster.
    pub(super) fn unavailable(&self, suite: Suite) -> Option<String> {
        let fips = matches!(selection::global().policy().mode, Mode::Fips);
        if fips && !suite.is_for_fips() {
            return Some("in FIPS mode only fips-v1 and legacy are allowed".to_owned());
        }
        if self.custodies.uses_tokens() && !suite.is_for_tokens() {
            return Some(
                "auth.ca_keys puts CA keys into a token, and tokens make ECDSA and RSA keys only".to_owned(),
            );
        }
        None
    }
}
