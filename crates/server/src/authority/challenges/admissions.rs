//! A trusted device that waits, admitted by an administrator who has looked at it: what the page shows, and what its proof is good for.

use sallyport_access::text::Foreign;
use sallyport_access::{DeviceCustody, DeviceId};
use sallyport_wire::v1;
use sallyport_wire::v1::factor_proof::Proof;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tonic::Status;

use crate::authority::caller::{Caller, shown};
use crate::authority::challenges::changes::Own;
use crate::authority::challenges::kept::Challenges;
use crate::authority::challenges::pages::detail;
use crate::authority::challenges::records::Purpose;
use crate::authority::devices::records::{DeviceRecord, DeviceState};
use crate::authority::storage::storage;

/// The method that the proof is for.
const METHOD: &str = "Devices.Assign";

fn no_such(id: &str) -> Status {
    Status::not_found(format!(
        "there is no device {} that waits for an administrator; devices are: sallyport admin devices ls",
        shown(id)
    ))
}

/// What the machine says of itself; it may have said nothing.
fn said(label: &str, value: &str) -> Option<v1::WebDetail> {
    (!value.is_empty()).then(|| v1::WebDetail { said: true, ..detail(label, Foreign::new(value)) })
}

impl Challenges {
    pub(super) async fn device(
        &self,
        id: DeviceId,
        now: OffsetDateTime,
    ) -> Result<Option<DeviceRecord>, Status> {
        let stored = self.store.get::<DeviceRecord>(&id.to_string(), now).await;
        Ok(stored.map_err(|error| storage(&error))?.map(|stored| stored.value))
    }

    /// A device that waits to be admitted, by the id that an administrator gives.
    pub(super) async fn that_waits(&self, id: &str, now: OffsetDateTime) -> Result<DeviceId, Status> {
        let device: DeviceId = id.parse().map_err(|_| no_such(id))?;
        let record = self.device(device, now).await?;
        let waits = record.is_some_and(|record| record.state == DeviceState::Pending);
        if waits { Ok(device) } else { Err(no_such(id)) }
    }

    /// What the page shows of it: as the record is now, and what its machine says marked as that.
    pub(super) async fn device_details(
        &self,
        id: DeviceId,
        now: OffsetDateTime,
    ) -> Result<Vec<v1::WebDetail>, Status> {
        let mut details = vec![detail("Device", id.to_string())];
        let record = self.device(id, now).await?.filter(|record| record.state == DeviceState::Pending);
        let Some(record) = record else {
            details.push(detail("State", "it does not wait for an administrator any more"));
            return Ok(details);
        };
        let at = record.enrolled.format(&Rfc3339).unwrap_or_default();
        let users: Vec<&str> = record.users.iter().map(|user| user.as_str()).collect();
        let place = match record.custody {
            DeviceCustody::Hardware => "hardware",
            DeviceCustody::File => "a file, which can be copied",
        };
        details.push(detail("Its users", users.join(", ")));
        details.push(detail("Asked for by", format!("{}, {at}", record.enrolled_by)));
        details.push(detail("Key (SHA-256)", record.key_sha256()));
        details.extend(said("Its key is in", place));
        details.extend(said("Its name", &record.name));
        details.extend(said("Its system", &record.os));
        details.extend(said("Its serial number", &record.serial));
        Ok(details)
    }

    /// Takes the proof that the caller's page has given for admitting this device. It serves once, for this device alone, and from where it was
    /// asked for. The caller's right to admit devices was seen before.
    pub(crate) async fn spend_admission(
        &self,
        caller: &Caller,
        own: &Own,
        challenge: &str,
        device: &str,
    ) -> Result<(), Status> {
        let now = OffsetDateTime::now_utc();
        let wanted = Purpose::AdmitDevice { device: device.parse().map_err(|_| no_such(device))? };
        let proof = v1::FactorProof { proof: Some(Proof::Challenge(challenge.to_owned())) };
        let spent = self.prove(caller, own, Some(proof), &wanted, now).await?;
        let _changing = self.identities.steady().await;
        let proven = self.spend_here(caller, own, spent, &wanted, now).await?;
        self.journal.record(vec![proven.field("method", METHOD).field("device", shown(device))]).await
    }
}
