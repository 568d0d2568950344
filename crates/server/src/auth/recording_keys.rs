//! The keys that recordings are sealed to, one for each KEM: which of them is used follows the suite and the selection, so that
//! what was recorded under one suite opens under every other.

use std::path::Path;
use std::sync::Arc;

use data_encoding::BASE64;
use sallyport_sal::custody::SealingKey;
use sallyport_sal::hpke::{Kem, RecipientKey, RecipientKeys};
use sallyport_store::{Op, Store, StoreError, typed};
use time::OffsetDateTime;

use super::open::{authority, in_fips_mode};
use super::state::SecretRecord;
use crate::error::ServerError;

/// What a key is called in the state, and what it is sealed for.
const fn name(kem: Kem) -> &'static str {
    match kem {
        // It was the only one once.
        Kem::X25519 => "recording-key",
        Kem::P256 => "recording-key-p256",
    }
}

/// Those that a cluster has: in FIPS mode nothing makes a key that is not approved.
fn wanted() -> impl Iterator<Item = Kem> {
    let fips = in_fips_mode();
    Kem::ALL.iter().copied().filter(move |kem| !fips || *kem == Kem::P256)
}

/// The keys of a new cluster: the steps that store them.
pub(super) fn create(seal: &SealingKey) -> Result<Vec<Op>, ServerError> {
    wanted()
        .map(|kem| {
            let (_, record) = make(kem, seal)?;
            typed::create(name(kem), &record, None).map_err(authority("store a recording key"))
        })
        .collect()
}

fn make(kem: Kem, seal: &SealingKey) -> Result<(RecipientKey, SecretRecord), ServerError> {
    let key = RecipientKey::generate(kem).map_err(authority("make a recording key"))?;
    let sealed = seal.seal(name(kem), &key.to_bytes()).map_err(authority("seal a recording key"))?;
    Ok((key, SecretRecord { sealed: BASE64.encode(&sealed) }))
}

/// Reads the keys. The one that a cluster lacks, which was made by an older release or in another mode, is made now.
pub(super) async fn load(
    store: &Store,
    seal: &Arc<SealingKey>,
    directory: &Path,
    now: OffsetDateTime,
) -> Result<RecipientKeys, ServerError> {
    let wrong_seal = |source: &dyn std::error::Error| ServerError::BadState {
        path: directory.join("seal.key"),
        problem: format!("does not open what is sealed in state.db ({source})"),
        fix: "restore the seal key that belongs to this state".to_owned(),
    };
    let mut keys = Vec::new();
    let mut missing = Vec::new();
    for kem in Kem::ALL.iter().copied() {
        let stored = store.get::<SecretRecord>(name(kem), now).await.map_err(authority("read its state"))?;
        let Some(stored) = stored else {
            missing.push(kem);
            continue;
        };
        let sealed = BASE64.decode(stored.value.sealed.as_bytes()).map_err(|error| wrong_seal(&error))?;
        let plain = seal.unseal(name(kem), &sealed).map_err(|error| wrong_seal(&error))?;
        keys.push(RecipientKey::from_bytes(&plain).map_err(|error| wrong_seal(&error))?);
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
    let mut others: Vec<RecipientKey> = keys.collect();
    for kem in wanted().filter(|kem| missing.contains(kem)) {
        let (key, record) = make(kem, seal)?;
        match store.create(name(kem), &record, None, now).await {
            Ok(_) => others.push(key),
            Err(error @ StoreError::Exists { .. }) => {
                return Err(authority("make a recording key, which another process has made")(error));
            }
            Err(error) => return Err(authority("store a recording key")(error)),
        }
        tracing::info!(kem = kem.name(), "a key for recordings was made");
    }
    Ok(RecipientKeys::new(first, others))
}
