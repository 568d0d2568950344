//! Resources as Rust values.

use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use time::OffsetDateTime;

use crate::{Backend, Item, Op, StoreError};

/// A kind of resource, stored as JSON under `KIND/name`.
pub trait Kind: Serialize + DeserializeOwned + Send + Sync {
    /// The kind's name: lower-case letters and `_`.
    const KIND: &'static str;
}

/// A resource with what the store knows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored<T> {
    /// Its name among its kind.
    pub name: String,
    /// The resource.
    pub value: T,
    /// For compare-and-swap.
    pub revision: u64,
    /// When it ceases to exist.
    pub expires: Option<OffsetDateTime>,
}

/// Typed access to a backend. Clones share it.
#[derive(Debug, Clone)]
pub struct Store {
    backend: Arc<dyn Backend>,
}

/// The key of a resource.
#[must_use]
pub fn key<T: Kind>(name: &str) -> String {
    format!("{}/{name}", T::KIND)
}

/// The resource of an item.
///
/// # Errors
/// [`StoreError::Value`] when the item is not of this kind.
pub fn decode<T: Kind>(item: Item) -> Result<Stored<T>, StoreError> {
    let bad = |detail: String| StoreError::Value { key: item.key.clone(), detail };
    let name = item.key.strip_prefix(T::KIND).and_then(|rest| rest.strip_prefix('/'));
    let name = name.ok_or_else(|| bad(format!("it is not a {}", T::KIND)))?.to_owned();
    let value = serde_json::from_slice(&item.value).map_err(|error| bad(error.to_string()))?;
    Ok(Stored { name, value, revision: item.revision, expires: item.expires })
}

fn encode<T: Kind>(name: &str, value: &T) -> Result<Bytes, StoreError> {
    // Of what is kept in memory, no room is kept that the encoder took beforehand and did not need.
    serde_json::to_vec(value)
        .map(|encoded| Bytes::from(encoded.into_boxed_slice()))
        .map_err(|error| StoreError::Value { key: key::<T>(name), detail: error.to_string() })
}

/// A step that creates a resource.
///
/// # Errors
/// [`StoreError::Value`] when it cannot be encoded.
pub fn create<T: Kind>(name: &str, value: &T, expires: Option<OffsetDateTime>) -> Result<Op, StoreError> {
    Ok(Op::Create { key: key::<T>(name), value: encode(name, value)?, expires })
}

/// A step that creates or replaces a resource.
///
/// # Errors
/// [`StoreError::Value`] when it cannot be encoded.
pub fn put<T: Kind>(name: &str, value: &T, expires: Option<OffsetDateTime>) -> Result<Op, StoreError> {
    Ok(Op::Put { key: key::<T>(name), value: encode(name, value)?, expires })
}

/// A step that replaces a resource which still has a revision.
///
/// # Errors
/// [`StoreError::Value`] when it cannot be encoded.
pub fn update<T: Kind>(
    name: &str,
    revision: u64,
    value: &T,
    expires: Option<OffsetDateTime>,
) -> Result<Op, StoreError> {
    Ok(Op::CompareAndSwap { key: key::<T>(name), revision, value: encode(name, value)?, expires })
}

/// A step that deletes a resource.
#[must_use]
pub fn delete<T: Kind>(name: &str, revision: Option<u64>) -> Op {
    Op::Delete { key: key::<T>(name), revision }
}

impl Store {
    /// Typed access to `backend`.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend }
    }

    /// The backend.
    #[must_use]
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// One resource.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub async fn get<T: Kind>(
        &self,
        name: &str,
        now: OffsetDateTime,
    ) -> Result<Option<Stored<T>>, StoreError> {
        self.backend.get(&key::<T>(name), now).await?.map(decode).transpose()
    }

    /// Resources in name order, after the name `after`, at most `limit`.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub async fn list<T: Kind>(
        &self,
        after: Option<&str>,
        limit: usize,
        now: OffsetDateTime,
    ) -> Result<Vec<Stored<T>>, StoreError> {
        let after = after.map(key::<T>);
        let items = self.backend.list(&key::<T>(""), after.as_deref(), limit, now).await?;
        items.into_iter().map(decode).collect()
    }

    /// As [`Store::list`], of those whose names begin with `below` and a slash; names are what is behind it.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub async fn list_below<T: Kind>(
        &self,
        below: &str,
        after: Option<&str>,
        limit: usize,
        now: OffsetDateTime,
    ) -> Result<Vec<Stored<T>>, StoreError> {
        let prefix = format!("{}/", key::<T>(below));
        let after = after.map(|after| format!("{prefix}{after}"));
        let items = self.backend.list(&prefix, after.as_deref(), limit, now).await?;
        let behind = |stored: Stored<T>| {
            let name = stored.name.get(below.len() + 1..).unwrap_or_default().to_owned();
            Stored { name, ..stored }
        };
        items.into_iter().map(|item| decode(item).map(behind)).collect()
    }

    /// Creates a resource; gives its revision.
    ///
    /// # Errors
    /// [`StoreError::Exists`] when the name is taken.
    pub async fn create<T: Kind>(
        &self,
        name: &str,
        value: &T,
        expires: Option<OffsetDateTime>,
        now: OffsetDateTime,
    ) -> Result<u64, StoreError> {
        self.one(create(name, value, expires)?, now).await
    }

    /// Creates or replaces a resource; gives its revision.
    ///
    /// # Errors
    /// When the state cannot be written.
    pub async fn put<T: Kind>(
        &self,
        name: &str,
        value: &T,
        expires: Option<OffsetDateTime>,
        now: OffsetDateTime,
    ) -> Result<u64, StoreError> {
        self.one(put(name, value, expires)?, now).await
    }

    /// Replaces a resource that still has this revision; gives the new one.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when it has another.
    pub async fn update<T: Kind>(
        &self,
        name: &str,
        revision: u64,
        value: &T,
        expires: Option<OffsetDateTime>,
        now: OffsetDateTime,
    ) -> Result<u64, StoreError> {
        self.one(update(name, revision, value, expires)?, now).await
    }

    /// Deletes a resource.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is none.
    pub async fn delete<T: Kind>(
        &self,
        name: &str,
        revision: Option<u64>,
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        self.one(delete::<T>(name, revision), now).await.map(|_| ())
    }

    async fn one(&self, op: Op, now: OffsetDateTime) -> Result<u64, StoreError> {
        Ok(self.backend.transact(vec![op], now).await?.first().copied().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::MemoryBackend;

    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    struct Colour {
        red: u8,
    }

    impl Kind for Colour {
        const KIND: &'static str = "colour";
    }

    const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    #[tokio::test]
    async fn resources_round_trip_and_conflicts_are_told() {
        let store = Store::new(Arc::new(MemoryBackend::new()));
        let revision = store.create("sky", &Colour { red: 1 }, None, NOW).await.unwrap();
        assert!(matches!(
            store.create("sky", &Colour { red: 2 }, None, NOW).await,
            Err(StoreError::Exists { key }) if key == "colour/sky"
        ));
        let stored = store.get::<Colour>("sky", NOW).await.unwrap().unwrap();
        assert_eq!(
            (stored.value, stored.revision, stored.name.as_str()),
            (Colour { red: 1 }, revision, "sky")
        );
        let newer = store.update("sky", revision, &Colour { red: 3 }, None, NOW).await.unwrap();
        assert!(matches!(
            store.update("sky", revision, &Colour { red: 4 }, None, NOW).await,
            Err(StoreError::Conflict { found, .. }) if found == newer
        ));
        assert_eq!(store.list::<Colour>(None, 10, NOW).await.unwrap().len(), 1);
        assert!(store.list::<Colour>(Some("sky"), 10, NOW).await.unwrap().is_empty());
        store.delete::<Colour>("sky", Some(newer), NOW).await.unwrap();
        assert!(store.get::<Colour>("sky", NOW).await.unwrap().is_none());
    }

    #[test]
    fn an_encoded_value_has_no_room_behind_it() {
        let Ok(Op::Put { value, .. }) = put("sky", &Colour { red: 1 }, None) else { panic!("a put") };
        let length = value.len();
        assert_eq!(value.try_into_mut().unwrap().capacity(), length);
    }

    #[tokio::test]
    async fn a_value_of_another_shape_is_an_error_and_not_a_default() {
        let store = Store::new(Arc::new(MemoryBackend::new()));
        let op = Op::Put { key: "colour/x".to_owned(), value: Bytes::from_static(b"{}"), expires: None };
        store.backend().transact(vec![op], NOW).await.unwrap();
        assert!(matches!(store.get::<Colour>("x", NOW).await, Err(StoreError::Value { .. })));
    }
}
