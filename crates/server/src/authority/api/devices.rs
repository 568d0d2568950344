//! The API of trusted devices.

use std::sync::Arc;

use sallyport_access::{Identity, Principal, UserName, Verb};
use sallyport_wire::v1;
use sallyport_wire::v1::devices_server::Devices;
use tonic::{Request, Response, Status};

use crate::authority::audit::journal::Journal;
use crate::authority::caller::{Caller, caller};
use crate::authority::challenges::changes::Own;
use crate::authority::challenges::kept::Challenges;
use crate::authority::devices::kept;
use crate::authority::gate::calls::Gate;
use crate::authority::gate::delegation::Delegation;
use crate::authority::identities::known::Identities;

/// Devices: their users', and administrators'.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) gate: Arc<Gate>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) devices: Arc<kept::Devices>,
    pub(crate) delegation: Arc<Delegation>,
    pub(crate) identities: Arc<Identities>,
    pub(crate) challenges: Arc<Challenges>,
}

impl Service {
    /// The user who calls, within their bounds.
    async fn own<'c>(
        &self,
        caller: &'c Caller,
        method: &'static str,
    ) -> Result<(UserName, &'c Identity), Status> {
        let identity = self.gate.certified(caller, method).await?;
        let Principal::User { name, .. } = &identity.principal else {
            let status = Status::permission_denied("hosts are no trusted devices: this is for users");
            return Err(self.gate.refuse(caller, method, status).await);
        };
        self.gate.within_bounds(caller)?;
        Ok((name.clone(), identity))
    }

    /// The caller's right to give a device to these users: their logins come from it then, which roles may ask for. It is a change of theirs,
    /// and of no user who holds more than the caller.
    async fn gives(&self, caller: &Caller, method: &'static str, users: &[String]) -> Result<(), Status> {
        self.gate.allow(caller, method, "user", Verb::Update).await?;
        for user in self.devices.users_of(users)? {
            if let Some(user) = self.identities.user(&user) {
                self.delegation.must_hold(caller, method, &user).await?;
            }
        }
        Ok(())
    }

    /// The caller's right to admit a device, with the approval of a page for that device in place of a proof for all that is dangerous. The
    /// page shows whose the device is: another user is given by a proof for all.
    async fn approved(
        &self,
        caller: &Caller,
        method: &'static str,
        challenge: &str,
        asked: &v1::AssignDeviceRequest,
    ) -> Result<(), Status> {
        let (user, identity) = self.own(caller, method).await?;
        if let Err(status) = self.gate.check(caller, "device", Verb::Update) {
            return Err(self.gate.refuse(caller, method, status).await);
        }
        if !asked.users.is_empty() {
            return Err(Status::invalid_argument(
                "the approval of a page admits a device for the users that it has: name no others",
            ));
        }
        let own = Own { user, login: identity.login_id };
        self.challenges.spend_admission(caller, &own, challenge, &asked.id).await
    }
}

#[tonic::async_trait]
impl Devices for Service {
    async fn enroll(
        &self,
        request: Request<v1::EnrollDeviceRequest>,
    ) -> Result<Response<v1::EnrollDeviceResponse>, Status> {
        let caller = caller(&request);
        let (user, _) = self.own(&caller, "Devices.Enroll").await?;
        self.devices.enroll(&caller, &user, request.into_inner()).await.map(Response::new)
    }

    async fn list_own(
        &self,
        request: Request<v1::ListOwnDevicesRequest>,
    ) -> Result<Response<v1::ListOwnDevicesResponse>, Status> {
        const METHOD: &str = "Devices.ListOwn";
        let caller = caller(&request);
        let (user, identity) = self.own(&caller, METHOD).await?;
        self.journal.called(&caller, METHOD, "").await?;
        let current = identity.device.map(|device| device.id.to_string()).unwrap_or_default();
        let devices = self.devices.list_own(&user).await?;
        Ok(Response::new(v1::ListOwnDevicesResponse { devices, current }))
    }

    async fn list(
        &self,
        request: Request<v1::ListDevicesRequest>,
    ) -> Result<Response<v1::ListDevicesResponse>, Status> {
        const METHOD: &str = "Devices.List";
        let caller = caller(&request);
        self.gate.allow(&caller, METHOD, "device", Verb::List).await?;
        self.journal.called(&caller, METHOD, "").await?;
        self.devices.list().await.map(Response::new)
    }

    async fn add_token(
        &self,
        request: Request<v1::AddDeviceTokenRequest>,
    ) -> Result<Response<v1::AddDeviceTokenResponse>, Status> {
        let caller = caller(&request);
        self.gate.allow(&caller, "Devices.AddToken", "device", Verb::Create).await?;
        // The one of them who enrolls a device with it gives the device to the others.
        if request.get_ref().users.len() > 1 {
            self.gives(&caller, "Devices.AddToken", &request.get_ref().users).await?;
        }
        self.devices.add_token(&caller, request.into_inner()).await.map(Response::new)
    }

    async fn assign(
        &self,
        request: Request<v1::AssignDeviceRequest>,
    ) -> Result<Response<v1::AssignDeviceResponse>, Status> {
        const METHOD: &str = "Devices.Assign";
        let caller = caller(&request);
        let asked = request.get_ref();
        match asked.challenge.as_str() {
            "" => {
                self.gate.allow(&caller, METHOD, "device", Verb::Update).await?;
                if !asked.users.is_empty() {
                    self.gives(&caller, METHOD, &asked.users).await?;
                }
            }
            challenge => self.approved(&caller, METHOD, challenge, asked).await?,
        }
        self.devices.assign(&caller, request.into_inner()).await.map(Response::new)
    }

    async fn remove(
        &self,
        request: Request<v1::RemoveDeviceRequest>,
    ) -> Result<Response<v1::RemoveDeviceResponse>, Status> {
        let caller = caller(&request);
        self.gate.allow(&caller, "Devices.Remove", "device", Verb::Delete).await?;
        self.devices.remove(&caller, request.into_inner()).await.map(Response::new)
    }
}
