//! What is not a trusted device yet, and what is to become one, void with what it was asked for by: a thief who asked for a device with a
//! stolen login has none admitted once that login is over. `Logins` has it done with every end of logins.

use sallyport_access::UserName;
use sallyport_audit::{Code, Event};
use sallyport_store::{Op, Store, StoreError, Stored, typed};
use time::OffsetDateTime;
use uuid::Uuid;

use super::index;
use super::records::{DeviceRecord, DeviceState, DeviceTokenRecord, told};
use crate::authority::caller::Caller;
use crate::authority::storage::every;

/// Which devices that wait to be admitted in a user's name.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Waiting<'a> {
    /// All of them,
    All,
    /// those that every login but this one has asked for,
    AllBut(Uuid),
    /// or those that these logins have asked for.
    From(&'a [Uuid]),
}

impl Waiting<'_> {
    fn is(&self, record: &DeviceRecord) -> bool {
        record.state == DeviceState::Pending
            && match self {
                Self::All => true,
                Self::AllBut(login) => record.login != Some(*login),
                Self::From(logins) => record.login.is_some_and(|login| logins.contains(&login)),
            }
    }
}

/// Steps that remove devices that wait to be admitted in a user's name, and what is on record of it. The caller holds what
/// `Identities::change` gives, so that none is asked for meanwhile.
pub(crate) async fn waiting(
    store: &Store,
    caller: &Caller,
    (user, which): (&UserName, Waiting<'_>),
    why: &str,
    now: OffsetDateTime,
) -> Result<(Vec<Op>, Vec<Event>), StoreError> {
    let (mut steps, mut events) = (Vec::new(), Vec::new());
    for device in index::of(store, user, now).await? {
        if which.is(&device.value) {
            steps.extend(removal(&device)?);
            events.push(told(caller.event(Code::DeviceRemoved), &device.value).field("why", why.to_owned()));
        }
    }
    Ok((steps, events))
}

/// Steps that remove a device, as it was read.
pub(super) fn removal(device: &Stored<DeviceRecord>) -> Result<Vec<Op>, StoreError> {
    let mut steps = vec![typed::delete::<DeviceRecord>(&device.name, Some(device.revision))];
    steps.extend(index::gone(&device.value)?);
    Ok(steps)
}

/// In whose name devices wait that a login has asked for. It reads every device, and is asked where the login's user is not known.
pub(crate) async fn asked_by(
    store: &Store,
    login: Uuid,
    now: OffsetDateTime,
) -> Result<Vec<UserName>, StoreError> {
    let devices = every::<DeviceRecord>(store, now).await?;
    let asked = devices.into_iter().filter(|device| Waiting::From(&[login]).is(&device.value));
    let mut users: Vec<UserName> = asked.map(|device| device.value.enrolled_by).collect();
    users.dedup();
    Ok(users)
}

/// Steps that take a user off the tokens for devices, and the names of those that are good no more: one for every user is no user's own.
pub(crate) async fn tokens_of(
    store: &Store,
    user: &UserName,
    now: OffsetDateTime,
) -> Result<(Vec<Op>, Vec<String>), StoreError> {
    let (mut steps, mut ended) = (Vec::new(), Vec::new());
    for mut token in every::<DeviceTokenRecord>(store, now).await? {
        if !token.value.users.contains(user) {
            continue;
        }
        token.value.users.retain(|other| other != user);
        // Without a user it would be for all of them.
        if token.value.users.is_empty() {
            steps.push(typed::delete::<DeviceTokenRecord>(&token.name, Some(token.revision)));
            ended.push(token.name);
        } else {
            steps.push(typed::update(&token.name, token.revision, &token.value, token.expires)?);
        }
    }
    Ok((steps, ended))
}

/// [`tokens_of`] of a user, with what is on record of it.
pub(crate) async fn tokens(
    store: &Store,
    caller: &Caller,
    user: &UserName,
    why: &str,
    now: OffsetDateTime,
) -> Result<(Vec<Op>, Vec<Event>), StoreError> {
    let (steps, ended) = tokens_of(store, user, now).await?;
    let events = ended.into_iter().map(|name| {
        let event = caller.event(Code::DeviceTokenDeleted).message(format!("device_token/{name}"));
        event.field("name", name).field("why", why.to_owned())
    });
    Ok((steps, events.collect()))
}
