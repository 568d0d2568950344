//! The keys that recordings are sealed to: one of the KEM that this process prefers, and those of before, so that what was recorded
//! in one mode opens in the other.

use std::path::Path;
use std::sync::Arc;

use data_encoding::BASE64;
use sallyport_sal::custody::SealingKey;
use sallyport_sal::hpke::{Kem, RecipientKey, RecipientKeys};
use sallyport_store::{Op, Store, typed};
use time::OffsetDateTime;

use crate::authority::errors::{doing, wrong_seal};
use crate::authority::records::SecretRecord;
use crate::error::ServerError;

/// What a key is called in the state, and what it is sealed for.
const fn name(kem: Kem) -> &'static str {
    match kem {
        // It was the only one once.
        Kem::X25519 => "recording-key",
        Kem::P256 => "recording-key-p256",
    }
}

/// The key of a new cluster: the step that stores it.
pub(crate) fn create(seal: &SealingKey) -> Result<Op, ServerError> {
    let kem = Kem::preferred();
    let (_, record) = make(kem, seal)?;
    typed::create(name(kem), &record, None).map_err(doing("store a recording key"))
}

fn make(kem: Kem, seal: &SealingKey) -> Result<(RecipientKey, SecretRecord), ServerError> {
    let key = RecipientKey::generate(kem).map_err(doing("make a recording key"))?;
    let sealed = seal.seal(name(kem), &key.to_bytes()).map_err(doing("seal a recording key"))?;
    Ok((key, SecretRecord { sealed: BASE64.encode(&sealed) }))
}

/// Reads the keys. The preferred one is made now in a cluster that was in the other mode before.
pub(crate) async fn load(
    store: &Store,
    seal: &Arc<SealingKey>,
    directory: &Path,
    now: OffsetDateTime,
) -> Result<RecipientKeys, ServerError> {
    let mut keys = Vec::new();
    for kem in Kem::ALL.iter().copied() {
        let stored = store.get::<SecretRecord>(name(kem), now).await.map_err(doing("read its state"))?;
        let Some(stored) = stored else { continue };
        let sealed =
            BASE64.decode(stored.value.sealed.as_bytes()).map_err(|error| wrong_seal(directory, &error))?;
        let plain = seal.unseal(name(kem), &sealed).map_err(|error| wrong_seal(directory, &error))?;
        keys.push(RecipientKey::from_bytes(&plain).map_err(|error| wrong_seal(directory, &error))?);
    }
    // Every cluster is born with one: without any, the state is not whole, and recordings from before are lost.
    let mut keys = keys.into_iter();
    let Some(first) = keys.next() else {
        return Err(ServerError::BadState {
            path: directory.join("state.db"),
            problem: format!("lacks the key {}", name(Kem::X25519)),
            fix: "restore it from a backup".to_owned(),
        });
    };
    let mut keys = RecipientKeys::new(first, keys.collect());
    let preferred = Kem::preferred();
    if keys.public().kem() != preferred {
        let (key, record) = make(preferred, seal)?;
        let made = store.create(name(preferred), &record, None, now).await;
        made.map_err(doing("store a recording key"))?;
        tracing::info!(kem = preferred.name(), "a key for recordings was made");
        keys.add(key);
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use sallyport_sal::hpke;
    use sallyport_store::MemoryBackend;

    use super::*;

    /// As a cluster that was made in FIPS mode, started without.
    #[tokio::test]
    async fn a_cluster_that_leaves_fips_mode_gets_another_key_and_keeps_the_first() {
        let directory = tempfile::tempdir().unwrap();
        let seal = Arc::new(SealingKey::open_or_create(&directory.path().join("seal.key")).unwrap());
        let store = Store::new(Arc::new(MemoryBackend::new()));
        let now = OffsetDateTime::now_utc();
        let missing = load(&store, &seal, directory.path(), now).await.unwrap_err();
        assert!(missing.to_string().contains("lacks the key"), "{missing}");

        let (first, record) = make(Kem::P256, &seal).unwrap();
        store.create(name(Kem::P256), &record, None, now).await.unwrap();
        let sealed = hpke::seal(&first.public(), b"", b"", b"before").unwrap();
        let keys = load(&store, &seal, directory.path(), now).await.unwrap();
        assert_eq!(keys.public().kem(), Kem::X25519);
        assert_eq!(keys.open(b"", b"", &sealed).unwrap().as_slice(), b"before");

        // What was made is kept.
        let sealed = hpke::seal(&keys.public(), b"", b"", b"after").unwrap();
        let again = load(&store, &seal, directory.path(), now).await.unwrap();
        assert_eq!(again.public(), keys.public());
        assert_eq!(again.open(b"", b"", &sealed).unwrap().as_slice(), b"after");
    }
}
