//! Trying a connector that is not stored: one login by it, and what it would come to.

use sallyport_audit::Code;
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::Status;

use super::pages::SsoPages;
use crate::ServerError;
use crate::authority::caller::{Caller, NOWHERE, host_name};
use crate::authority::challenges::kept::{Asking, Challenges};
use crate::authority::challenges::records::{Purpose, State};
use crate::authority::secrets::hash_of;

impl SsoPages {
    /// Opens a challenge in which a connector is tried. It takes every right, as writing it does.
    pub(crate) async fn begin_test(
        &self,
        caller: &Caller,
        request: v1::BeginSsoTestRequest,
    ) -> Result<v1::BeginSsoTestResponse, Status> {
        let connector = super::pages::tested(&request.yaml)?;
        self.connectors
            .check(&connector)
            .map_err(|error| Status::invalid_argument(ServerError::chain(&error)))?;
        let now = OffsetDateTime::now_utc();
        let asking = Asking {
            user: None,
            login: None,
            host_name: host_name(&request.host_name),
            address: caller.address().unwrap_or(NOWHERE.ip()),
            terminal_code: None,
        };
        let event = caller
            .event(Code::ChallengeBegun)
            .field("purpose", "sso-test")
            .field("connector", connector.name.to_string());
        let purpose = Purpose::SsoTest { yaml: connector.to_yaml(), result: None };
        let opened = self.challenges.open(purpose, asking, now).await?;
        self.connectors.journal.record(vec![event]).await?;
        let redirect_url = connector.redirect_url("", &self.connectors.config.public_addr);
        Ok(v1::BeginSsoTestResponse {
            page: Some(self.challenges.page(&opened, "/login")),
            proxy: self.connectors.config.public_addr.clone(),
            redirect_url: redirect_url.unwrap_or_default(),
        })
    }

    /// What came of it, once it is there.
    pub(crate) async fn await_test(
        &self,
        caller: &Caller,
        id: &str,
    ) -> Result<v1::AwaitSsoTestResponse, Status> {
        let (mut wait, key) = (Challenges::wait(), hash_of(id));
        loop {
            let stored = self.challenges.at(caller, id, OffsetDateTime::now_utc()).await?;
            let Purpose::SsoTest { result, .. } = &stored.value.purpose else {
                return Err(Status::invalid_argument("this challenge is for no test of single sign-on"));
            };
            if let Some(sealed) = result {
                return Ok(v1::AwaitSsoTestResponse { result_json: self.connectors.unsealed(&key, sealed)? });
            }
            if matches!(stored.value.state, State::Refused | State::Used) {
                return Err(Status::permission_denied(
                    "the test was refused at the page, or ended after wrong answers; test again",
                ));
            }
            if !self.challenges.reads_again(&mut wait, &key).await? {
                return Ok(v1::AwaitSsoTestResponse::default());
            }
        }
    }
}
