//! What an identity provider sends, or an attacker in its place: no token is good that no key of the provider signed, and whatever it is,
//! there is a verdict.
//!
//! The first byte says what the rest is.

use std::sync::OnceLock;

use data_encoding::BASE64URL_NOPAD;
use sallyport_oidc::{Algorithm, Discovery, Expected, KeySet, Mapping, Path, Provider, Template, overages};
use sallyport_sal::formats::jwk;
use sallyport_sal::{KeyAlgorithm, MemoryKey, Signer};
use time::OffsetDateTime;

const ISSUER: &str = "https://example.org";

fn fixture() -> &'static (Provider, KeySet) {
    static FIXTURE: OnceLock<(Provider, KeySet)> = OnceLock::new();
    FIXTURE.get_or_init(|| {
        let keys = [KeyAlgorithm::EcdsaP256, KeyAlgorithm::Rsa2048, KeyAlgorithm::Ed25519].map(|algorithm| {
            let key = MemoryKey::generate(algorithm).expect("a key").public_key();
            let json = jwk::encode_public(&key).expect("a JSON Web Key");
            json.replacen('{', "{\"kid\":\"KID\",", 1)
        });
        let set = format!("{{\"keys\":[{}]}}", keys.join(","));
        let provider = Provider::new(ISSUER, "fuzz", Algorithm::ALL).expect("a provider");
        (provider, KeySet::parse(set.as_bytes()).expect("a key set"))
    })
}

fn refused(token: &str) {
    let (provider, keys) = fixture();
    let expected = Expected { nonce: "nonce", max_age: None };
    assert!(provider.verify(token, keys, expected, OffsetDateTime::UNIX_EPOCH).is_err());
}

fuzz_target!(|data: (u8, &[u8])| {
    let (part, bytes) = data;
    let text = String::from_utf8_lossy(bytes);
    match part % 6 {
        0 => refused(&text),
        1 => {
            // The decoded parts of a token.
            let parts: Vec<String> =
                bytes.splitn(3, |byte| *byte == b'\n').map(|part| BASE64URL_NOPAD.encode(part)).collect();
            refused(&parts.join("."));
        }
        2 => {
            if let Ok(keys) = KeySet::parse(bytes) {
                assert!(keys.len() + keys.ignored().count() <= 100);
            }
        }
        3 => {
            if let Ok(discovery) = Discovery::parse(ISSUER, bytes) {
                assert!(discovery.issuer == ISSUER && discovery.token_endpoint.starts_with("http"));
            }
        }
        4 => {
            // A mapping, a line, and the claims that it is put to.
            let mut parts = bytes.splitn(2, |byte| *byte == b'\n');
            let (mapping, claims) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            if let (Ok(mapping), Ok(claims)) = (Mapping::parse(mapping), serde_json::from_slice(claims)) {
                let mapped = mapping.apply(&claims);
                let templates = mapping.traits.values().map(Vec::len).sum::<usize>();
                assert_eq!(mapped.trace.len(), mapping.roles.len() + templates);
                assert!(!mapped.is_incomplete() || !overages(&claims).is_empty());
            }
        }
        _ => {
            if let Ok(path) = Path::parse(&text) {
                assert_eq!(path.to_string(), text);
            }
            if let Ok(template) = Template::parse(&text) {
                assert_eq!(template.to_string(), text);
            }
        }
    }
});
