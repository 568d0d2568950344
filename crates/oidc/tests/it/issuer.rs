//! An identity provider in software.

use std::sync::LazyLock;

use data_encoding::BASE64URL_NOPAD;
use sallyport_oidc::*;
use sallyport_sal::algorithm::KeyKind;
use sallyport_sal::formats::jwk;
use sallyport_sal::{KeyAlgorithm, MemoryKey, SignatureScheme, Signer};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::macros::datetime;

pub const NOW: OffsetDateTime = datetime!(2026-11-26 12:00 UTC);
pub const ISSUER: &str = "https://login.example.com/tenant";
pub const CLIENT: &str = "sallyport";
pub const NONCE: &str = "n-0S6_WzA2Mj";

/// Keys of RSA take long to make, so there is one for all tests.
static RSA: LazyLock<Vec<u8>> =
    LazyLock::new(|| MemoryKey::generate(KeyAlgorithm::Rsa2048).unwrap().to_pkcs8().unwrap().to_vec());

pub fn key(algorithm: Algorithm) -> MemoryKey {
    match algorithm {
        Algorithm::Es256 => MemoryKey::generate(KeyAlgorithm::EcdsaP256).unwrap(),
        Algorithm::Es384 => MemoryKey::generate(KeyAlgorithm::EcdsaP384).unwrap(),
        Algorithm::EdDsa => MemoryKey::generate(KeyAlgorithm::Ed25519).unwrap(),
        _ => MemoryKey::from_pkcs8(&RSA).unwrap(),
    }
}

fn scheme(algorithm: Algorithm) -> SignatureScheme {
    match algorithm {
        Algorithm::Rs384 => SignatureScheme::RsaPkcs1Sha384,
        Algorithm::Rs512 => SignatureScheme::RsaPkcs1Sha512,
        Algorithm::Ps256 => SignatureScheme::RsaPssSha256,
        Algorithm::Es256 => SignatureScheme::EcdsaP256Sha256,
        Algorithm::Es384 => SignatureScheme::EcdsaP384Sha384,
        Algorithm::EdDsa => SignatureScheme::Ed25519,
        _ => SignatureScheme::RsaPkcs1Sha256,
    }
}

/// The two numbers of an ECDSA signature in DER, each in so many bytes.
fn jose(der: &[u8], bytes: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = &der[2..];
    for _ in 0..2 {
        let length = usize::from(rest[1]);
        let number = &rest[2..2 + length];
        let digits = &number[number.len().saturating_sub(bytes)..];
        out.extend(std::iter::repeat_n(0, bytes - digits.len()));
        out.extend(digits);
        rest = &rest[2 + length..];
    }
    out
}

pub fn part(json: &Value) -> String {
    BASE64URL_NOPAD.encode(&serde_json::to_vec(json).unwrap())
}

/// A token of these two parts as they are.
pub fn sign(key: &MemoryKey, algorithm: Algorithm, header: &str, payload: &str) -> String {
    let signed = format!("{header}.{payload}");
    let signature = key.sign_with(scheme(algorithm), signed.as_bytes()).unwrap();
    let signature = match (key.algorithm().kind(), key.algorithm().secret_bytes()) {
        (KeyKind::Ecdsa, Some(bytes)) => jose(&signature, bytes),
        _ => signature,
    };
    format!("{signed}.{}", BASE64URL_NOPAD.encode(&signature))
}

/// A key as the issuer publishes it.
pub fn published(key: &MemoryKey, members: &Value) -> Value {
    let mut json: Value = serde_json::from_str(&jwk::encode_public(&key.public_key()).unwrap()).unwrap();
    json.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    json
}

pub fn set(keys: &[Value]) -> KeySet {
    KeySet::parse(&serde_json::to_vec(&json!({ "keys": keys })).unwrap()).unwrap()
}

/// A good token's claims.
pub fn claims() -> Value {
    let now = NOW.unix_timestamp();
    json!({
        "iss": ISSUER,
        "sub": "24400320",
        "aud": CLIENT,
        "exp": now + 3600,
        "iat": now - 5,
        "nonce": NONCE,
        "groups": ["ops", "dev"],
    })
}

pub fn provider(algorithms: &[Algorithm]) -> Provider {
    Provider::new(ISSUER, CLIENT, algorithms).unwrap()
}

pub fn expected() -> Expected<'static> {
    Expected { nonce: NONCE, max_age: None }
}
