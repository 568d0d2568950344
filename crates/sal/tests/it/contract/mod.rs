//! What every kind of custody must hold, hardware included.

use sallyport_sal::KeyAlgorithm;
use sallyport_sal::custody::{Custody, StoredKey};

pub(crate) fn holds(custody: &dyn Custody, algorithms: &[KeyAlgorithm]) {
    for algorithm in algorithms.iter().copied() {
        let stored = custody.generate("a key", algorithm).unwrap();
        assert_eq!((stored.label.as_str(), stored.algorithm), ("a key", algorithm));
        let signer = custody.load(&stored).unwrap();
        assert_eq!(signer.algorithm(), algorithm);
        let public = stored.public_key().unwrap();
        assert_eq!(signer.public_key(), public);
        public.verify(b"m", &signer.sign(b"m").unwrap()).unwrap();
        for scheme in algorithm.schemes() {
            public.verify_with(*scheme, b"m", &signer.sign_with(*scheme, b"m").unwrap()).unwrap();
        }
        let foreign = match algorithm {
            KeyAlgorithm::Ed25519 => KeyAlgorithm::EcdsaP256.default_scheme(),
            _ => KeyAlgorithm::Ed25519.default_scheme(),
        };
        assert!(signer.sign_with(foreign, b"m").is_err(), "{algorithm} {foreign}");

        // The record survives being stored, and names a key, not bytes of one.
        let again: StoredKey = serde_json::from_str(&serde_json::to_string(&stored).unwrap()).unwrap();
        assert_eq!(again, stored);
        public.verify(b"n", &custody.load(&again).unwrap().sign(b"n").unwrap()).unwrap();

        let other = custody.generate("a key", algorithm).unwrap();
        assert_ne!(stored, other);
        let wrong_type = match algorithm {
            KeyAlgorithm::Ed25519 => KeyAlgorithm::EcdsaP256,
            _ => KeyAlgorithm::Ed25519,
        };
        for wrong in [
            StoredKey { custody: "elsewhere".to_owned(), ..stored.clone() },
            StoredKey { label: "another key".to_owned(), ..stored.clone() },
            StoredKey { algorithm: wrong_type, ..stored.clone() },
            StoredKey { public_key: other.public_key.clone(), ..stored.clone() },
            StoredKey { public_key: String::new(), ..stored.clone() },
            StoredKey { handle: other.handle.clone(), ..stored.clone() },
            StoredKey { handle: other.handle[1..].to_owned(), ..stored.clone() },
            StoredKey { handle: String::new(), ..stored.clone() },
        ] {
            assert!(custody.load(&wrong).is_err(), "{wrong:?}");
        }
    }
}
