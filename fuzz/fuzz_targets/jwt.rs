//! A token that a client shows: nothing but what a key of ours signed is ever good.

use std::sync::OnceLock;

use data_encoding::BASE64URL_NOPAD;
use sallyport_ca::jwt::{Expectation, KeySet};
use sallyport_sal::{KeyAlgorithm, MemoryKey, PublicKey, Signer};
use time::OffsetDateTime;

fn keys() -> &'static KeySet {
    static KEYS: OnceLock<KeySet> = OnceLock::new();
    KEYS.get_or_init(|| {
        let made = [KeyAlgorithm::EcdsaP256, KeyAlgorithm::Rsa2048, KeyAlgorithm::Ed25519]
            .map(|algorithm| MemoryKey::generate(algorithm).expect("a key").public_key());
        KeySet::new(&Vec::<PublicKey>::from(made)).expect("a set")
    })
}

fuzz_target!(|data: &[u8]| {
    let expected = Expectation { issuer: None, audience: "fuzz" };
    let refused = |token: &str| {
        assert!(keys().verify(token, expected, OffsetDateTime::UNIX_EPOCH).is_err());
    };
    if let Ok(token) = std::str::from_utf8(data) {
        refused(token);
    }
    // The same as the decoded parts of one, with the name of a real key, to get past the first questions.
    let mut parts = data.splitn(3, |byte| *byte == b'\n');
    let [header, payload, signature] = [(); 3].map(|()| parts.next().unwrap_or_default());
    let Ok(header) = std::str::from_utf8(header) else { return };
    for kid in keys().key_ids() {
        let parts = [header.replace("KID", kid).as_bytes(), payload, signature]
            .map(|part| BASE64URL_NOPAD.encode(part));
        refused(&parts.join("."));
    }
});
