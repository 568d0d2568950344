//! The devices of each user, by the user's name: what ends a user's logins holds off all others, and reads no other user's devices.

use std::collections::BTreeSet;

use sallyport_access::{DeviceId, UserName};
use sallyport_store::{Kind, Op, Store, StoreError, Stored, typed};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::records::DeviceRecord;
use crate::authority::storage::{PAGE, every, removed};

/// Entries that are written in one transaction when an authority starts.
const WRITTEN_AT_ONCE: usize = 500;

/// That a device is a user's, or waits in the user's name, under `USER/DEVICE`. It is written with the device.
#[derive(Debug, Default, Serialize, Deserialize)]
struct DeviceOfRecord {}

impl Kind for DeviceOfRecord {
    const KIND: &'static str = "device_of";
}

/// In whose name a device is, or waits.
fn names(record: &DeviceRecord) -> BTreeSet<&UserName> {
    record.users.iter().chain([&record.enrolled_by]).collect()
}

fn entry(user: &UserName, id: DeviceId) -> String {
    format!("{user}/{id}")
}

fn put(user: &UserName, id: DeviceId) -> Result<Op, StoreError> {
    typed::put(&entry(user, id), &DeviceOfRecord {}, None)
}

/// Steps that go with those that write a device, which was another before, if it was there.
pub(crate) fn written(before: Option<&DeviceRecord>, record: &DeviceRecord) -> Result<Vec<Op>, StoreError> {
    let after = names(record);
    let mut steps = Vec::new();
    for user in before.map(names).unwrap_or_default().difference(&after) {
        steps.extend(removed(&entry(user, record.id), &DeviceOfRecord {})?);
    }
    for user in after {
        steps.push(put(user, record.id)?);
    }
    Ok(steps)
}

/// Steps that go with the one that removes a device.
pub(crate) fn gone(record: &DeviceRecord) -> Result<Vec<Op>, StoreError> {
    let mut steps = Vec::new();
    for user in names(record) {
        steps.extend(removed(&entry(user, record.id), &DeviceOfRecord {})?);
    }
    Ok(steps)
}

/// The devices that are a user's, or wait in the user's name.
pub(crate) async fn of(
    store: &Store,
    user: &UserName,
    now: OffsetDateTime,
) -> Result<Vec<Stored<DeviceRecord>>, StoreError> {
    let prefix = typed::key::<DeviceOfRecord>(&format!("{user}/"));
    let (mut found, mut after) = (Vec::new(), None::<String>);
    loop {
        let page = store.backend().list(&prefix, after.as_deref(), PAGE, now).await?;
        let Some(last) = page.last() else { return Ok(found) };
        after = Some(last.key.clone());
        for item in page {
            let id = item.key.strip_prefix(&prefix).unwrap_or_default();
            found.extend(store.get::<DeviceRecord>(id, now).await?);
        }
    }
}

/// Writes the entries of devices that an earlier release enrolled, before the authority serves.
pub(crate) async fn learn(store: &Store, now: OffsetDateTime) -> Result<(), StoreError> {
    let known: BTreeSet<String> =
        every::<DeviceOfRecord>(store, now).await?.into_iter().map(|stored| stored.name).collect();
    let mut steps = Vec::new();
    for device in every::<DeviceRecord>(store, now).await? {
        let record = device.value;
        for user in names(&record).into_iter().filter(|user| !known.contains(&entry(user, record.id))) {
            steps.push(put(user, record.id)?);
        }
    }
    let mut steps = steps.into_iter().peekable();
    while steps.peek().is_some() {
        store.backend().transact(steps.by_ref().take(WRITTEN_AT_ONCE).collect(), now).await?;
    }
    Ok(())
}
