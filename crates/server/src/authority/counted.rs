//! Records of which there may be so many: counted in the transaction that makes one more.

use sallyport_store::{Kind, Op, Store, StoreError, typed};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::storage::storage;

/// How often the records are counted anew, where others come in between.
const TRIES: usize = 64;

/// Changes with each record that is made of a kind which is counted, under the kind's name: of two at once, one counts the other.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct CountRecord {
    made: u64,
}

impl Kind for CountRecord {
    const KIND: &'static str = "count";
}

/// Why no record was made.
#[derive(Debug)]
pub(crate) enum NotMade {
    /// There are as many as there may be.
    Full,
    State(StoreError),
}

impl NotMade {
    /// What the caller reads; of as many as there may be, this.
    pub(crate) fn told(self, full: impl FnOnce() -> Status) -> Status {
        match self {
            Self::Full => full(),
            Self::State(error) => storage(&error),
        }
    }
}

/// Takes the step that makes a record of a kind of which there are at most so many; gives its revision.
///
/// # Errors
/// There are as many, or the state fails.
pub(crate) async fn make<T: Kind>(
    store: &Store,
    most: usize,
    step: Op,
    now: OffsetDateTime,
) -> Result<u64, NotMade> {
    let mut overtaken = None;
    for _ in 0..TRIES {
        // Read before the records are: one that is made after this was read is found in the transaction.
        let known = store.get::<CountRecord>(T::KIND, now).await.map_err(NotMade::State)?;
        if store.list::<T>(None, most, now).await.map_err(NotMade::State)?.len() >= most {
            return Err(NotMade::Full);
        }
        let counted = match known {
            None => typed::create(T::KIND, &CountRecord::default(), None),
            Some(known) => {
                let next = CountRecord { made: known.value.made.wrapping_add(1) };
                typed::update(T::KIND, known.revision, &next, None)
            }
        };
        let steps = vec![step.clone(), counted.map_err(NotMade::State)?];
        match store.backend().transact(steps, now).await {
            Ok(revisions) => return Ok(revisions.first().copied().unwrap_or_default()),
            Err(error @ (StoreError::Conflict { .. } | StoreError::Exists { .. }))
                if is_count::<T>(&error) =>
            {
                overtaken = Some(error);
            }
            Err(error) => return Err(NotMade::State(error)),
        }
    }
    Err(overtaken.map_or(NotMade::Full, NotMade::State))
}

/// Whether a step failed since another record of the kind was made at the same moment.
fn is_count<T: Kind>(error: &StoreError) -> bool {
    let own = typed::key::<CountRecord>(T::KIND);
    matches!(error, StoreError::Conflict { key, .. } | StoreError::Exists { key } if *key == own)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use sallyport_store::MemoryBackend;

    use super::*;

    #[derive(Debug, Serialize, Deserialize)]
    struct Thing;

    impl Kind for Thing {
        const KIND: &'static str = "thing";
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn of_many_at_once_as_many_are_made_as_there_may_be() {
        let store = Store::new(Arc::new(MemoryBackend::new()));
        let now = OffsetDateTime::now_utc();
        let making = (0..24).map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                let step = typed::create(&number.to_string(), &Thing, None).unwrap();
                make::<Thing>(&store, 5, step, now).await
            })
        });
        let made = futures::future::join_all(making.collect::<Vec<_>>()).await;
        let made: Vec<_> = made.into_iter().map(Result::unwrap).collect();
        assert_eq!(made.iter().filter(|one| one.is_ok()).count(), 5, "{made:?}");
        assert!(made.iter().all(|one| matches!(one, Ok(_) | Err(NotMade::Full))), "{made:?}");
        assert_eq!(store.list::<Thing>(None, 100, now).await.unwrap().len(), 5);
        // What is there already is not made again, and does not count twice; and what is removed makes room.
        let again = typed::create("0", &Thing, None).unwrap();
        assert!(matches!(make::<Thing>(&store, 6, again, now).await, Err(NotMade::State(_)) | Ok(_)));
        let first = store.list::<Thing>(None, 1, now).await.unwrap().remove(0);
        let gone = typed::delete::<Thing>(&first.name, None);
        store.backend().transact(vec![gone], now).await.unwrap();
        let step = typed::create("next", &Thing, None).unwrap();
        make::<Thing>(&store, 6, step, now).await.unwrap();
    }
}
