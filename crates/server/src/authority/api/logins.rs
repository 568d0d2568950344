//! The API of logins that are open.

use std::sync::Arc;

use sallyport_access::{Device, DeviceCustody, DeviceId, Principal, UserName, Verb};
use sallyport_wire::v1;
use sallyport_wire::v1::logins_server::Logins;
use time::OffsetDateTime;
use tonic::{Request, Response, Status};
use uuid::Uuid;

use crate::authority::audit::journal::Journal;
use crate::authority::caller::{Caller, caller, shown};
use crate::authority::devices::kept::Devices;
use crate::authority::gate::calls::Gate;
use crate::authority::identities::logins;
use crate::authority::identities::open::Which;
use crate::authority::sso::connectors::Connectors;

/// Longest reason that a user reads.
const LONGEST_REASON: usize = 256;

/// Where users are logged in.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) gate: Arc<Gate>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) logins: Arc<logins::Logins>,
    pub(crate) devices: Arc<Devices>,
    pub(crate) connectors: Arc<Connectors>,
}

impl Service {
    /// The user who calls, and the login that the call comes with.
    async fn own(&self, caller: &Caller, method: &'static str) -> Result<(UserName, Uuid), Status> {
        let identity = self.gate.certified_to_leave(caller, method).await?;
        let Principal::User { name, .. } = &identity.principal else {
            let status = Status::permission_denied("hosts have no logins: this is for users");
            return Err(self.gate.refuse(caller, method, status).await);
        };
        self.gate.within_bounds(caller)?;
        Ok((name.clone(), identity.login_id))
    }

    /// The device that a login is said to come from: one that its user could log in from, or any with its key there.
    async fn described_device(
        &self,
        user: &str,
        device: &str,
        now: OffsetDateTime,
    ) -> Result<Option<Device>, Status> {
        if device.is_empty() {
            return Ok(None);
        }
        if let Some(custody) = DeviceCustody::ALL.into_iter().find(|custody| custody.as_str() == device) {
            return Ok(Some(Device { id: DeviceId::new(), custody }));
        }
        let id: DeviceId = device.parse().map_err(|_| {
            Status::invalid_argument(format!(
                "{:?} is no id of a device, and neither file nor hardware; see: sallyport admin devices ls",
                shown(device)
            ))
        })?;
        self.devices.would_be(id, &named(user)?, now).await.map(Some)
    }
}

fn parsed(id: &str) -> Result<Uuid, Status> {
    id.parse().map_err(|_| {
        Status::invalid_argument(format!(
            "{:?} is no id of a login; see: sallyport sessions logins",
            shown(id)
        ))
    })
}

fn named(user: &str) -> Result<UserName, Status> {
    UserName::new(user).map_err(|error| Status::invalid_argument(error.to_string()))
}

#[tonic::async_trait]
impl Logins for Service {
    async fn list(
        &self,
        request: Request<v1::ListLoginsRequest>,
    ) -> Result<Response<v1::ListLoginsResponse>, Status> {
        const METHOD: &str = "Logins.List";
        let caller = caller(&request);
        let (user, login) = self.own(&caller, METHOD).await?;
        self.journal.called(&caller, METHOD, "").await?;
        let v1::ListLoginsRequest { after, limit } = request.into_inner();
        let now = OffsetDateTime::now_utc();
        self.logins.list(Some(&user), &after, limit, Some(login), now).await.map(Response::new)
    }

    async fn end(
        &self,
        request: Request<v1::EndLoginsRequest>,
    ) -> Result<Response<v1::EndLoginsResponse>, Status> {
        use v1::end_logins_request::Which::{Id, Others, Own};
        let caller = caller(&request);
        let (user, login) = self.own(&caller, "Logins.End").await?;
        let (which, message) = match request.into_inner().which {
            Some(Id(id)) => match parsed(&id)? {
                id if id == login => (Which::One(id), "its user logged out"),
                id => (Which::One(id), "its user ended it from another login"),
            },
            Some(Own(true)) => (Which::One(login), "its user logged out"),
            Some(Others(true)) => (Which::AllBut(Some(login)), "its user ended it from another login"),
            _ => {
                return Err(Status::invalid_argument(
                    "which login is to end is not said: one, or all others",
                ));
            }
        };
        if !matches!(which, Which::One(id) if id == login) {
            // What serves its user no more ends itself alone.
            self.gate.certified(&caller, "Logins.End").await?;
        }
        let now = OffsetDateTime::now_utc();
        let done = self.logins.end_now(&caller, &user, which, message, now).await?;
        Ok(Response::new(done.into()))
    }

    async fn list_of(
        &self,
        request: Request<v1::ListLoginsOfRequest>,
    ) -> Result<Response<v1::ListLoginsResponse>, Status> {
        const METHOD: &str = "Logins.ListOf";
        let caller = caller(&request);
        self.gate.allow(&caller, METHOD, "user", Verb::List).await?;
        let v1::ListLoginsOfRequest { user, after, limit } = request.into_inner();
        self.journal.called(&caller, METHOD, &shown(&user)).await?;
        let user = (!user.is_empty()).then(|| named(&user)).transpose()?;
        let now = OffsetDateTime::now_utc();
        let current = caller.identity().map(|identity| identity.login_id);
        self.logins.list(user.as_ref(), &after, limit, current, now).await.map(Response::new)
    }

    async fn end_of(
        &self,
        request: Request<v1::EndLoginsOfRequest>,
    ) -> Result<Response<v1::EndLoginsResponse>, Status> {
        use v1::end_logins_of_request::Which::{All, Id};
        let caller = caller(&request);
        // What ends a login is a lock on it.
        self.gate.allow(&caller, "Logins.EndOf", "lock", Verb::Create).await?;
        let v1::EndLoginsOfRequest { user, which, reason } = request.into_inner();
        let user = named(&user)?;
        let which = match which {
            Some(Id(id)) => Which::One(parsed(&id)?),
            Some(All(true)) => Which::AllBut(None),
            _ => return Err(Status::invalid_argument("which login is to end is not said: one, or all")),
        };
        let reason: String =
            reason.chars().filter(|letter| !letter.is_control()).take(LONGEST_REASON).collect();
        let message = match reason.trim() {
            "" => "an administrator ended this login".to_owned(),
            reason => format!("an administrator ended this login: {reason}"),
        };
        let now = OffsetDateTime::now_utc();
        let done = self.logins.end_now(&caller, &user, which, &message, now).await?;
        Ok(Response::new(done.into()))
    }

    async fn test_rules(
        &self,
        request: Request<v1::TestLoginRulesRequest>,
    ) -> Result<Response<v1::TestLoginRulesResponse>, Status> {
        const METHOD: &str = "Logins.TestRules";
        let caller = caller(&request);
        self.gate.allow(&caller, METHOD, "login_rule", Verb::Read).await?;
        let request = request.into_inner();
        self.journal.called(&caller, METHOD, &shown(&request.user)).await?;
        let now = OffsetDateTime::now_utc();
        let device = self.described_device(&request.user, &request.device, now).await?;
        let said = self.connectors.described(&request.connector, &request.claims_json, now).await?;
        self.logins.test_rules(&request, device, said.as_ref()).map(Response::new)
    }
}
