//! What is not a trusted device yet, and what is to become one, void with what it was asked for by: a thief who asked for a device with a
//! stolen login has none admitted once that login is over.

use sallyport_access::UserName;
use sallyport_audit::{Code, Event};
use sallyport_store::{Op, Store, StoreError, typed};
use time::OffsetDateTime;
use uuid::Uuid;

use super::records::{DeviceRecord, DeviceState, DeviceTokenRecord, told};
use crate::authority::caller::Caller;
use crate::authority::storage::every;

/// Which devices that wait to be admitted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Waiting<'a> {
    /// Those that were asked for in a user's name,
    Of(&'a UserName),
    /// by every login of theirs but this one,
    OfOthers(&'a UserName, Uuid),
    /// or by this login.
    From(Uuid),
}

impl Waiting<'_> {
    fn is(&self, record: &DeviceRecord) -> bool {
        let of = |user: &UserName| record.enrolled_by == *user || record.belongs_to(user);
        record.state == DeviceState::Pending
            && match self {
                Self::Of(user) => of(user),
                Self::OfOthers(user, login) => of(user) && record.login != Some(*login),
                Self::From(login) => record.login == Some(*login),
            }
    }
}

/// Steps that remove devices that wait to be admitted, and what is on record of it. The caller holds what `Identities::change` gives, so
/// that none is asked for meanwhile.
pub(crate) async fn waiting(
    store: &Store,
    caller: &Caller,
    which: Waiting<'_>,
    why: &str,
    now: OffsetDateTime,
) -> Result<(Vec<Op>, Vec<Event>), StoreError> {
    let (mut steps, mut events) = (Vec::new(), Vec::new());
    for device in every::<DeviceRecord>(store, now).await? {
        if which.is(&device.value) {
            steps.push(typed::delete::<DeviceRecord>(&device.name, Some(device.revision)));
            events.push(told(caller.event(Code::DeviceRemoved), &device.value).field("why", why.to_owned()));
        }
    }
    Ok((steps, events))
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

/// [`waiting`] and [`tokens_of`] of a user, with what is on record of both.
pub(crate) async fn all_of(
    store: &Store,
    caller: &Caller,
    user: &UserName,
    why: &str,
    now: OffsetDateTime,
) -> Result<(Vec<Op>, Vec<Event>), StoreError> {
    let (mut steps, mut events) = waiting(store, caller, Waiting::Of(user), why, now).await?;
    let (tokens, ended) = tokens_of(store, user, now).await?;
    steps.extend(tokens);
    events.extend(ended.into_iter().map(|name| {
        let event = caller.event(Code::DeviceTokenDeleted).message(format!("device_token/{name}"));
        event.field("name", name).field("why", why.to_owned())
    }));
    Ok((steps, events))
}
