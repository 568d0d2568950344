//! How a challenge comes to be: counted, stored, and only then one that there is.

use sallyport_store::{Op, typed};
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::challenges::bounds::Held;
use crate::authority::challenges::kept::{Asking, Challenges, asked_by, random_text};
use crate::authority::challenges::records::{ChallengeRecord, LIFETIME, Purpose, State};
use crate::authority::secrets::hash_of;
use crate::authority::storage::storage;

/// A challenge that is to be stored, and has its place among the open ones meanwhile.
pub(super) struct Opening {
    step: Op,
    place: Held,
    opened: Opened,
}

/// A challenge that is stored.
pub(crate) struct Opened {
    pub(crate) id: String,
    pub(crate) expires: OffsetDateTime,
}

impl Opening {
    /// What stores it, for a transaction.
    pub(super) fn step(&self) -> Op {
        self.step.clone()
    }

    /// The transaction with its step came to this: the challenge has its place until it is over, or has it no more.
    pub(super) fn once<T, E>(mut self, written: Result<T, E>) -> Result<Opened, E> {
        written?;
        self.place.stands();
        Ok(self.opened)
    }
}

impl Challenges {
    /// A fresh challenge, counted.
    pub(super) fn opening(
        &self,
        purpose: Purpose,
        asking: Asking<'_>,
        now: OffsetDateTime,
    ) -> Result<Opening, Status> {
        let id = random_text()?;
        let (key, expires) = (hash_of(&id), now + LIFETIME);
        let Asking { user, login, host_name, address, terminal_code } = asking;
        let place = self.openings.holds(asked_by(&purpose, user, address), &key, expires, now)?;
        let record = ChallengeRecord {
            purpose,
            user: user.cloned(),
            login,
            host_name,
            address,
            created: now,
            expires,
            state: State::Pending,
            ceremony: None,
            failures: 0,
            terminal_code,
            sso: None,
        };
        let step = typed::create(&key, &record, Some(expires)).map_err(|error| storage(&error))?;
        Ok(Opening { step, place, opened: Opened { id, expires } })
    }

    /// Opens a challenge that needs nothing else to be written.
    pub(crate) async fn open(
        &self,
        purpose: Purpose,
        asking: Asking<'_>,
        now: OffsetDateTime,
    ) -> Result<Opened, Status> {
        let opening = self.opening(purpose, asking, now)?;
        let written = self.store.backend().transact(vec![opening.step()], now).await;
        opening.once(written).map_err(|error| storage(&error))
    }

    /// What a program is told of a challenge that was opened.
    pub(crate) fn page(&self, opened: &Opened, path: &str) -> v1::ChallengePage {
        v1::ChallengePage {
            challenge: opened.id.clone(),
            path: format!("{path}#{}", opened.id),
            origins: self.factors.origins(),
            expires: Some(convert::time_to_proto(opened.expires)),
        }
    }
}
