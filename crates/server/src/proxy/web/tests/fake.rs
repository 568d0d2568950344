//! An authority that answers as `web/src/api/contract.json` has it, or as it is told.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sallyport_wire::convert::time_to_proto;
use sallyport_wire::v1;
use sallyport_wire::v1::web_server::Web;
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tonic::{Request, Response, Status};

/// What the proxy has asked: the method, the id or token, the address, and what else it has said.
pub(super) type Asked = (&'static str, String, String, Vec<String>);

#[derive(Clone, Default)]
pub(super) struct Fake {
    pub(super) asked: Arc<Mutex<Vec<Asked>>>,
    /// What every call is answered in place of success.
    pub(super) refusal: Arc<Mutex<Option<Status>>>,
    /// Calls are not answered.
    pub(super) silent: Arc<Mutex<bool>>,
}

pub(super) fn contract() -> Value {
    serde_json::from_str(include_str!("../../../../../../web/src/api/contract.json")).unwrap()
}

impl Fake {
    async fn hear(&self, method: &'static str, id: &str, address: &str, more: &[&str]) -> Result<(), Status> {
        let more = more.iter().map(|text| (*text).to_owned()).collect();
        self.asked.lock().push((method, id.to_owned(), address.to_owned(), more));
        if *self.silent.lock() {
            tokio::time::sleep(Duration::from_secs(3600)).await;
        }
        let refusal = self.refusal.lock().clone();
        refusal.map_or(Ok(()), Err)
    }
}

fn example(call: &str) -> Value {
    contract()[call]["answer"].clone()
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

fn in_seconds(value: &Value) -> Option<prost_types::Timestamp> {
    // Half a second for the way here.
    let left =
        time::Duration::seconds(value["expires_in"].as_i64().unwrap()) + time::Duration::milliseconds(900);
    Some(time_to_proto(OffsetDateTime::now_utc() + left))
}

fn client(value: &Value) -> Option<v1::WebClient> {
    let client = &value["client"];
    Some(v1::WebClient {
        host_name: text(client, "host_name"),
        address: text(client, "address"),
        time: Some(time_to_proto(OffsetDateTime::parse(&text(client, "time"), &Rfc3339).unwrap())),
    })
}

fn methods(value: &Value) -> Option<v1::WebMethods> {
    let has = |name: &str| value["methods"][name].as_bool().unwrap_or_default();
    Some(v1::WebMethods {
        passkey: has("passkey"),
        password: has("password"),
        otp: has("otp"),
        sso: value["methods"]["sso"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|one| v1::WebConnector { name: text(one, "name"), title: text(one, "title") })
            .collect(),
    })
}

fn factors(call: &str) -> v1::WebFactors {
    let said = example(call);
    let when = |factor: &Value, key: &str| {
        let text = factor[key].as_str()?;
        Some(time_to_proto(OffsetDateTime::parse(text, &Rfc3339).unwrap()))
    };
    let factor = |factor: &Value| v1::Factor {
        id: text(factor, "id"),
        name: text(factor, "name"),
        kind: text(factor, "kind"),
        created: when(factor, "created"),
        last_used: when(factor, "last_used"),
        model: "a model".to_owned(),
        backed_up: factor["backed_up"].as_bool().unwrap(),
        counter_went_back: when(factor, "counter_went_back"),
    };
    v1::WebFactors {
        factors: said["factors"].as_array().unwrap().iter().map(factor).collect(),
        recovery_codes: said["recovery_codes"].as_u64().unwrap().try_into().unwrap(),
    }
}

fn key(call: &str) -> Result<Response<v1::WebPublicKey>, Status> {
    Ok(Response::new(v1::WebPublicKey { options_json: example(call)["public_key"].to_string() }))
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Web for Fake {
    async fn describe_login(&self, request: Request<v1::WebRequest>) -> Answer<v1::WebLogin> {
        let v1::WebRequest { id, address } = request.into_inner();
        self.hear("DescribeLogin", &id, &address, &[]).await?;
        let said = example("login/describe");
        Ok(Response::new(v1::WebLogin {
            cluster: text(&said, "cluster"),
            state: text(&said, "state"),
            client: client(&said),
            redirect: text(&said, "redirect"),
            methods: methods(&said),
            user: text(&said, "user"),
            expires: in_seconds(&said),
            code: said["code"].as_bool().unwrap(),
        }))
    }

    async fn begin_login_passkey(
        &self,
        request: Request<v1::WebBeginPasskeyRequest>,
    ) -> Answer<v1::WebPublicKey> {
        let v1::WebBeginPasskeyRequest { id, address, code } = request.into_inner();
        self.hear("BeginLoginPasskey", &id, &address, &[&code]).await?;
        key("login/passkey/begin")
    }

    async fn finish_login_passkey(
        &self,
        request: Request<v1::WebFinishPasskeyRequest>,
    ) -> Answer<v1::WebProven> {
        let v1::WebFinishPasskeyRequest { id, address, response_json } = request.into_inner();
        self.hear("FinishLoginPasskey", &id, &address, &[&response_json]).await?;
        Ok(Response::new(v1::WebProven { redirect: text(&example("login/passkey/finish"), "redirect") }))
    }

    async fn prove_login_password(&self, request: Request<v1::WebPasswordRequest>) -> Answer<v1::WebProven> {
        let v1::WebPasswordRequest { id, address, code, user, password, otp } = request.into_inner();
        self.hear("ProveLoginPassword", &id, &address, &[&code, &user, &password, &otp]).await?;
        Ok(Response::new(v1::WebProven { redirect: text(&example("login/password"), "redirect") }))
    }

    async fn begin_login_sso(&self, request: Request<v1::WebBeginSsoRequest>) -> Answer<v1::WebSsoBegun> {
        let v1::WebBeginSsoRequest { id, address, code, connector, origin } = request.into_inner();
        self.hear("BeginLoginSso", &id, &address, &[&code, &connector, &origin]).await?;
        let said = example("login/sso/begin");
        Ok(Response::new(v1::WebSsoBegun {
            redirect: text(&said, "redirect"),
            binding: text(&said, "binding"),
        }))
    }

    async fn finish_login_sso(&self, request: Request<v1::WebFinishSsoRequest>) -> Answer<v1::WebProven> {
        let said = request.into_inner();
        let more =
            [&said.connector, &said.code, &said.iss, &said.error, &said.error_description, &said.binding];
        let more = more.map(String::as_str);
        self.hear("FinishLoginSso", &said.state, &said.address, &more).await?;
        Ok(Response::new(v1::WebProven { redirect: text(&example("login/sso/finish"), "redirect") }))
    }

    async fn sso_logout(&self, request: Request<v1::WebSsoLogoutRequest>) -> Answer<v1::WebSsoLoggedOut> {
        let v1::WebSsoLogoutRequest { address, connector, logout_token } = request.into_inner();
        self.hear("SsoLogout", &connector, &address, &[&logout_token]).await?;
        Ok(Response::new(v1::WebSsoLoggedOut {}))
    }

    async fn refuse_login(&self, request: Request<v1::WebRequest>) -> Answer<v1::WebRefused> {
        let v1::WebRequest { id, address } = request.into_inner();
        self.hear("RefuseLogin", &id, &address, &[]).await?;
        Ok(Response::new(v1::WebRefused {}))
    }

    async fn describe_approval(&self, request: Request<v1::WebRequest>) -> Answer<v1::WebApproval> {
        let v1::WebRequest { id, address } = request.into_inner();
        self.hear("DescribeApproval", &id, &address, &[]).await?;
        let said = example("approve/describe");
        let detail = |detail: &Value| v1::WebDetail {
            label: text(detail, "label"),
            value: text(detail, "value"),
            said: detail["said"].as_bool().unwrap(),
        };
        Ok(Response::new(v1::WebApproval {
            cluster: text(&said, "cluster"),
            user: text(&said, "user"),
            purpose: text(&said, "purpose"),
            details: said["details"].as_array().unwrap().iter().map(detail).collect(),
            client: client(&said),
            state: text(&said, "state"),
            methods: methods(&said),
            expires: in_seconds(&said),
        }))
    }

    async fn begin_approval_passkey(
        &self,
        request: Request<v1::WebBeginPasskeyRequest>,
    ) -> Answer<v1::WebPublicKey> {
        let v1::WebBeginPasskeyRequest { id, address, code } = request.into_inner();
        self.hear("BeginApprovalPasskey", &id, &address, &[&code]).await?;
        key("approve/passkey/begin")
    }

    async fn finish_approval_passkey(
        &self,
        request: Request<v1::WebFinishPasskeyRequest>,
    ) -> Answer<v1::WebProven> {
        let v1::WebFinishPasskeyRequest { id, address, response_json } = request.into_inner();
        self.hear("FinishApprovalPasskey", &id, &address, &[&response_json]).await?;
        Ok(Response::new(v1::WebProven::default()))
    }

    async fn prove_approval_otp(&self, request: Request<v1::WebOtpRequest>) -> Answer<v1::WebProven> {
        let v1::WebOtpRequest { id, address, otp, code } = request.into_inner();
        self.hear("ProveApprovalOtp", &id, &address, &[&otp, &code]).await?;
        Ok(Response::new(v1::WebProven::default()))
    }

    async fn refuse_approval(&self, request: Request<v1::WebRequest>) -> Answer<v1::WebRefused> {
        let v1::WebRequest { id, address } = request.into_inner();
        self.hear("RefuseApproval", &id, &address, &[]).await?;
        Ok(Response::new(v1::WebRefused {}))
    }

    async fn describe_factors(&self, request: Request<v1::WebRequest>) -> Answer<v1::WebFactorsPage> {
        let v1::WebRequest { id, address } = request.into_inner();
        self.hear("DescribeFactors", &id, &address, &[]).await?;
        let said = example("factors/describe");
        Ok(Response::new(v1::WebFactorsPage {
            cluster: text(&said, "cluster"),
            user: text(&said, "user"),
            client: client(&said),
            state: text(&said, "state"),
            expires: in_seconds(&said),
        }))
    }

    async fn list_factors(&self, request: Request<v1::WebFactorsRequest>) -> Answer<v1::WebFactors> {
        let v1::WebFactorsRequest { id, address, code } = request.into_inner();
        self.hear("ListFactors", &id, &address, &[&code]).await?;
        Ok(Response::new(factors("factors/list")))
    }

    async fn begin_factor_removal(
        &self,
        request: Request<v1::WebFactorRemovalRequest>,
    ) -> Answer<v1::WebFactorRemoval> {
        let v1::WebFactorRemovalRequest { id, address, code, factor } = request.into_inner();
        self.hear("BeginFactorRemoval", &id, &address, &[&code, &factor]).await?;
        Ok(Response::new(v1::WebFactorRemoval {
            approval: text(&example("factors/remove/begin"), "approval"),
        }))
    }

    async fn finish_factor_removal(
        &self,
        request: Request<v1::WebFinishFactorRemovalRequest>,
    ) -> Answer<v1::WebFactors> {
        let v1::WebFinishFactorRemovalRequest { id, address, code, factor, approval } = request.into_inner();
        self.hear("FinishFactorRemoval", &id, &address, &[&code, &factor, &approval]).await?;
        Ok(Response::new(factors("factors/remove/finish")))
    }

    async fn describe_enrolment(&self, request: Request<v1::WebRequest>) -> Answer<v1::WebEnrolment> {
        let v1::WebRequest { id, address } = request.into_inner();
        self.hear("DescribeEnrolment", &id, &address, &[]).await?;
        let said = example("enrol/describe");
        Ok(Response::new(v1::WebEnrolment {
            cluster: text(&said, "cluster"),
            user: text(&said, "user"),
            name: text(&said, "name"),
            state: text(&said, "state"),
            expires: in_seconds(&said),
        }))
    }

    async fn begin_enrolment(
        &self,
        request: Request<v1::WebBeginPasskeyRequest>,
    ) -> Answer<v1::WebPublicKey> {
        let v1::WebBeginPasskeyRequest { id, address, code } = request.into_inner();
        self.hear("BeginEnrolment", &id, &address, &[&code]).await?;
        key("enrol/begin")
    }

    async fn finish_enrolment(
        &self,
        request: Request<v1::WebFinishEnrolmentRequest>,
    ) -> Answer<v1::WebEnrolled> {
        let v1::WebFinishEnrolmentRequest { id, address, response_json } = request.into_inner();
        self.hear("FinishEnrolment", &id, &address, &[&response_json]).await?;
        Ok(Response::new(v1::WebEnrolled { name: text(&example("enrol/finish"), "name") }))
    }

    async fn refuse_enrolment(&self, request: Request<v1::WebRequest>) -> Answer<v1::WebRefused> {
        let v1::WebRequest { id, address } = request.into_inner();
        self.hear("RefuseEnrolment", &id, &address, &[]).await?;
        Ok(Response::new(v1::WebRefused {}))
    }

    async fn describe_invite(&self, request: Request<v1::WebInviteRequest>) -> Answer<v1::WebInvite> {
        let v1::WebInviteRequest { token, address } = request.into_inner();
        self.hear("DescribeInvite", &token, &address, &[]).await?;
        let said = example("invite/describe");
        Ok(Response::new(v1::WebInvite {
            cluster: text(&said, "cluster"),
            user: text(&said, "user"),
            methods: methods(&said),
            expires: in_seconds(&said),
        }))
    }

    async fn begin_invite_passkey(&self, request: Request<v1::WebInviteRequest>) -> Answer<v1::WebPublicKey> {
        let v1::WebInviteRequest { token, address } = request.into_inner();
        self.hear("BeginInvitePasskey", &token, &address, &[]).await?;
        key("invite/begin")
    }

    async fn finish_invite_passkey(
        &self,
        request: Request<v1::WebFinishInviteRequest>,
    ) -> Answer<v1::WebInvited> {
        let v1::WebFinishInviteRequest { token, address, name, response_json } = request.into_inner();
        self.hear("FinishInvitePasskey", &token, &address, &[&name, &response_json]).await?;
        Ok(Response::new(v1::WebInvited { user: text(&example("invite/finish"), "user") }))
    }
}
