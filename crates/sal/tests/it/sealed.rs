//! Custody in files, by the contract of all custody.

use crate::contract;
use std::sync::Arc;

use sallyport_sal::KeyAlgorithm;
use sallyport_sal::custody::{SealedCustody, SealingKey};

#[test]
fn sealed_custody_holds_the_contract() {
    let dir = tempfile::tempdir().unwrap();
    let key = SealingKey::create(&dir.path().join("seal.key")).unwrap();
    let algorithms = [
        KeyAlgorithm::Ed25519,
        KeyAlgorithm::EcdsaP256,
        KeyAlgorithm::EcdsaP384,
        KeyAlgorithm::EcdsaP521,
        KeyAlgorithm::Rsa2048,
        KeyAlgorithm::MlDsa65,
    ];
    contract::holds(&SealedCustody::new(Arc::new(key)), &algorithms);
}
