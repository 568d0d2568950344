//! Requests of SCIM clients, as proxies hand them on.

use std::net::SocketAddr;

use sallyport_access::ResourceName;
use sallyport_audit::Code;
use sallyport_scim::{Provider, Request, Response, ScimError};
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::Status;
use tracing::{debug, error};

use super::directory::Directory;
use super::provisioning::Provisioning;
use crate::ServerError;
use crate::authority::caller::{Caller, NOWHERE, TellingHost, shown};
use crate::authority::sso::records::ConnectorRecord;
use crate::authority::storage::storage;

/// Headers of a request that are looked at; a request has a few more.
const MOST_HEADERS: usize = 64;

impl Provisioning {
    /// Where SCIM clients find the service; none while the cluster has no public address.
    pub(super) fn base(&self) -> Option<String> {
        let address = self.config.public_addr.as_str();
        let address = address.strip_suffix(":443").unwrap_or(address);
        (!address.is_empty()).then(|| format!("https://{address}/scim/v2"))
    }

    async fn is_connector(&self, name: &ResourceName, now: OffsetDateTime) -> Result<bool, Status> {
        let found = self.store.get::<ConnectorRecord>(name.as_str(), now).await;
        Ok(found.map_err(|error| storage(&error))?.is_some())
    }

    /// Answers a request of a SCIM client. What the client may read is in the answer; a failure of ours is the call's.
    pub(crate) async fn answer(
        &self,
        proxy: TellingHost,
        request: v1::ScimRequest,
    ) -> Result<v1::ScimAnswer, Status> {
        let now = OffsetDateTime::now_utc();
        // The proxy's word for where the client is. What comes with a good token is not held to it: clients of many clusters come
        // from the addresses of one provider, and another's failures do not keep ours from saying who has left.
        let address: SocketAddr = request.client_addr.parse().unwrap_or(NOWHERE);
        let client = Caller::Behind { proxy, address };
        let Some(connector) = self.connector_of(&request.token, now).await? else {
            if self.gate.within_bounds(&client).is_err() {
                return Ok(answered(Response::refused(ScimError::Busy)));
            }
            self.guesses.note(&client, now);
            // A secret where the connector's name belongs is none to put on record: the name of one that there is.
            let said = request.token.split_once(':').and_then(|(said, _)| ResourceName::new(said).ok());
            let said = match said {
                Some(name) if self.is_connector(&name, now).await? => name.to_string(),
                _ => String::new(),
            };
            let event = client
                .event(Code::ScimRefused)
                .message("no valid token of a SCIM client came with the request")
                .field("connector", shown(&said))
                .field("reason", ScimError::Unauthorized.word());
            self.journal.note_caused(&client, event, "scim").await?;
            return Ok(answered(Response::refused(ScimError::Unauthorized)));
        };
        let base = self.base().ok_or_else(|| {
            Status::failed_precondition("the cluster has no public address: set public_addr of the proxy")
        })?;
        let provider =
            Provider::new(&base).map_err(|error| Status::failed_precondition(error.to_string()))?;
        let headers: Vec<(&str, &str)> = request
            .headers
            .iter()
            .take(MOST_HEADERS)
            .map(|header| (header.name.as_str(), header.value.as_str()))
            .collect();
        let asked = Request {
            method: &request.method,
            path: &request.path,
            query: &request.query,
            headers: &headers,
            body: &request.body,
        };
        let directory = Directory::new(self, &connector, &client);
        let response = provider.handle(&asked, &directory, now).await;
        match &response.refused {
            Some(failure @ ScimError::Backend(_)) => {
                error!(error = %ServerError::chain(failure), %connector, "a SCIM request failed");
            }
            Some(refusal) => {
                debug!(%refusal, %connector, method = %shown(&request.method), "a SCIM request is refused");
            }
            None => {}
        }
        // What is changed is on record by itself; what is only read, and what is refused, as the calls of hosts are.
        if response.done.is_none() {
            let outcome = response.refused.as_ref().map_or("", ScimError::word);
            let what = format!("{connector} {} {outcome}", shown(&request.method));
            self.journal.called(&client, "Provisioning.AnswerScim", what.trim_end()).await?;
        }
        Ok(answered(response))
    }
}

fn answered(response: Response) -> v1::ScimAnswer {
    let headers = response.headers.into_iter();
    v1::ScimAnswer {
        status: response.status.into(),
        headers: headers.map(|(name, value)| v1::ScimHeader { name: name.to_owned(), value }).collect(),
        body: response.body.into(),
    }
}
