//! Authorities whose keys are there already.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use sallyport_sal::custody::{Custody, StoredKey};
use sallyport_sal::{KeyAlgorithm, KeyPurpose, MemoryKey, SalError, Signer};

use crate::kept;

/// Custody of keys that are kept for tests, for as long as it lives.
#[derive(Debug, Default)]
pub(crate) struct Prepared(Mutex<HashMap<String, Arc<MemoryKey>>>);

impl Custody for Prepared {
    fn generate_for(
        &self,
        _: Option<KeyPurpose>,
        label: &str,
        algorithm: KeyAlgorithm,
    ) -> Result<StoredKey, SalError> {
        let key = kept::key(algorithm);
        let public_key = data_encoding::BASE64.encode(&key.public_key().spki_der());
        self.0.lock().unwrap().insert(public_key.clone(), Arc::new(key));
        Ok(StoredKey {
            custody: "prepared".to_owned(),
            label: label.to_owned(),
            algorithm,
            handle: public_key.clone(),
            public_key,
        })
    }

    fn load(&self, stored: &StoredKey) -> Result<Arc<dyn Signer>, SalError> {
        let what = format!("the private key {:?}", stored.label);
        let key = self.0.lock().unwrap().get(&stored.handle).cloned();
        key.map(|key| key as Arc<dyn Signer>).ok_or(SalError::Undecryptable { what })
    }
}
