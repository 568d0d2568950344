//! JSON Web Tokens: what is signed verifies, what was changed does not, and others agree.

use std::fs;
use std::sync::OnceLock;

use crate::kept;
use crate::programs::{go, run};
use data_encoding::BASE64URL_NOPAD;
use proptest::prelude::*;
use sallyport_ca::jwt::{self, Claims, Expectation, KeySet, Refusal};
use sallyport_ca::{CaError, SKEW_ALLOWANCE};
use sallyport_sal::formats::jwk;
use sallyport_sal::{KeyAlgorithm, MemoryKey, PublicKey, Signer};
use serde_json::{Map, Value, json};
use time::{Duration, OffsetDateTime};

const ALGORITHMS: [KeyAlgorithm; 6] = [
    KeyAlgorithm::EcdsaP256,
    KeyAlgorithm::Rsa2048,
    KeyAlgorithm::EcdsaP384,
    KeyAlgorithm::EcdsaP521,
    KeyAlgorithm::Ed25519,
    KeyAlgorithm::MlDsa44,
];

fn keys() -> &'static [MemoryKey] {
    static KEYS: OnceLock<Vec<MemoryKey>> = OnceLock::new();
    KEYS.get_or_init(|| ALGORITHMS.map(kept::key).into())
}

fn set() -> KeySet {
    let keys: Vec<PublicKey> = keys().iter().map(Signer::public_key).collect();
    KeySet::new(&keys).unwrap()
}

fn now() -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap()
}

fn claims() -> Claims {
    Claims {
        issuer: Some("https://proxy.example.com".to_owned()),
        subject: "alice".to_owned(),
        audience: vec!["vault".to_owned()],
        expires: now() + Duration::minutes(5),
        not_before: Some(now()),
        issued: Some(now()),
        id: Some("7".to_owned()),
        custom: Map::new(),
    }
}

const VAULT: Expectation<'_> = Expectation { issuer: Some("https://proxy.example.com"), audience: "vault" };

/// A token with another header, signed as its real key would.
fn with_header(key: &MemoryKey, header: &Value) -> String {
    let token = jwt::sign(key, &claims()).unwrap();
    let payload = token.split('.').nth(1).unwrap();
    let signed = format!("{}.{payload}", BASE64URL_NOPAD.encode(header.to_string().as_bytes()));
    let signature = key.sign(signed.as_bytes()).unwrap();
    format!("{signed}.{}", BASE64URL_NOPAD.encode(&signature))
}

#[test]
fn every_algorithm_signs_and_verifies() {
    let (names, set) = (["ES256", "RS256", "ES384", "ES512", "EdDSA", "ML-DSA-44"], set());
    for (key, name) in keys().iter().zip(names) {
        // A signature of ECDSA has a shorter number now and then.
        for _ in 0..if key.algorithm() == KeyAlgorithm::EcdsaP521 { 300 } else { 5 } {
            let token = jwt::sign(key, &claims()).unwrap();
            let header = BASE64URL_NOPAD.decode(token.split('.').next().unwrap().as_bytes()).unwrap();
            let header: Value = serde_json::from_slice(&header).unwrap();
            let kid = jwk::thumbprint(&key.public_key()).unwrap();
            assert_eq!(header, json!({"alg": name, "kid": kid, "typ": "JWT"}));
            assert_eq!(set.verify(&token, VAULT, now()).unwrap(), claims());
        }
    }
}

#[test]
fn the_key_decides_the_algorithm() {
    let (p256, rsa) = (&keys()[0], &keys()[1]);
    let set = set();
    let kid = |key: &MemoryKey| jwt::key_id(&key.public_key()).unwrap();
    for alg in ["none", "None", "HS256", "RS256", "es256", "", "EdDSA"] {
        let token = with_header(p256, &json!({"alg": alg, "kid": kid(p256), "typ": "JWT"}));
        let error = set.verify(&token, VAULT, now()).unwrap_err();
        assert!(
            matches!(&error, Refusal::WrongAlgorithm { got, expected: "ES256" } if got == alg),
            "{error}"
        );
    }
    // The key of one in the name of the other.
    let token = with_header(rsa, &json!({"alg": "ES256", "kid": kid(p256)}));
    assert_eq!(set.verify(&token, VAULT, now()), Err(Refusal::BadSignature));
    // A key that comes with the token is no key.
    let own = MemoryKey::generate(KeyAlgorithm::Ed25519).unwrap();
    let public: Value = serde_json::from_str(&jwk::encode_public(&own.public_key()).unwrap()).unwrap();
    for kid in [kid(&own), kid(p256)] {
        let token = with_header(&own, &json!({"alg": "EdDSA", "kid": kid, "jwk": public}));
        assert!(set.verify(&token, VAULT, now()).is_err());
    }
    let signed = with_header(&keys()[4], &json!({"alg": "EdDSA"}));
    assert!(matches!(set.verify(&signed, VAULT, now()), Err(Refusal::Malformed { .. })), "no kid");
    let id = kid(&keys()[4]);
    let critical =
        with_header(&keys()[4], &json!({"alg": "EdDSA", "kid": id, "crit": ["b64"], "b64": false}));
    let error = set.verify(&critical, VAULT, now()).unwrap_err();
    assert!(matches!(&error, Refusal::Critical { name } if name == "b64"), "{error}");
    let other = with_header(&keys()[4], &json!({"alg": "EdDSA", "kid": id, "typ": "dpop+jwt"}));
    assert!(matches!(set.verify(&other, VAULT, now()), Err(Refusal::Malformed { .. })));
    // Without a signature, the header says what it wants.
    let stripped = format!("{}.", signed.rsplit_once('.').unwrap().0);
    assert!(set.verify(&stripped, VAULT, now()).is_err());
    let none = KeySet::new([]).unwrap().verify(&signed, VAULT, now());
    assert!(none.is_err(), "an empty key set verifies nothing");
}

#[test]
fn time_issuer_and_audience_are_checked() {
    let set = set();
    let token = jwt::sign(&keys()[0], &claims()).unwrap();
    let second = Duration::seconds(1);
    let end = now() + Duration::minutes(5);
    for good in [now() - SKEW_ALLOWANCE, now(), end + SKEW_ALLOWANCE - second] {
        set.verify(&token, VAULT, good).unwrap();
    }
    let early = set.verify(&token, VAULT, now() - SKEW_ALLOWANCE - second);
    assert!(matches!(early, Err(Refusal::NotYetValid { .. })), "{early:?}");
    let late = set.verify(&token, VAULT, end + SKEW_ALLOWANCE);
    assert!(matches!(late, Err(Refusal::Expired { .. })), "{late:?}");
    let other = set.verify(&token, Expectation { audience: "grafana", ..VAULT }, now());
    assert!(matches!(other, Err(Refusal::WrongAudience { .. })), "{other:?}");
    let other = set.verify(&token, Expectation { issuer: Some("https://evil"), ..VAULT }, now());
    assert!(matches!(other, Err(Refusal::WrongIssuer { .. })), "{other:?}");
    set.verify(&token, Expectation { issuer: None, ..VAULT }, now()).unwrap();
}

#[test]
fn impossible_claims_are_not_signed() {
    let key = &keys()[4];
    let custom = |name: &str, value: Value| Map::from_iter([(name.to_owned(), value)]);
    for claims in [
        Claims { custom: custom("sub", json!("root")), ..claims() },
        Claims { custom: custom("exp", json!(0)), ..claims() },
        Claims { subject: String::new(), ..claims() },
        Claims { audience: Vec::new(), ..claims() },
        Claims { audience: vec![String::new()], ..claims() },
        Claims { custom: custom("big", json!("x".repeat(jwt::MAX_BYTES))), ..claims() },
    ] {
        let error = jwt::sign(key, &claims).unwrap_err();
        assert!(matches!(error, CaError::BadClaim { .. }), "{error}");
    }
}

#[test]
fn dates_of_other_issuers_are_read() {
    let (key, set) = (&keys()[4], set());
    let kid = jwt::key_id(&key.public_key()).unwrap();
    let header = BASE64URL_NOPAD.encode(json!({"alg": "EdDSA", "kid": kid}).to_string().as_bytes());
    let verify = |payload: &str| {
        let signed = format!("{header}.{}", BASE64URL_NOPAD.encode(payload.as_bytes()));
        let signature = key.sign(signed.as_bytes()).unwrap();
        let token = format!("{signed}.{}", BASE64URL_NOPAD.encode(&signature));
        set.verify(&token, Expectation { issuer: None, audience: "vault" }, now())
    };
    let read =
        verify(r#"{"sub":"a","aud":["x","vault"],"exp":1800000300.75,"nbf":1.8e9,"x":{"y":[1]}}"#).unwrap();
    assert_eq!(read.expires.unix_timestamp(), 1_800_000_300);
    assert_eq!(read.custom["x"], json!({"y": [1]}));
    for payload in [
        r#"{"sub":"a","aud":"vault"}"#,
        r#"{"aud":"vault","exp":1800000300}"#,
        r#"{"sub":"a","exp":1800000300}"#,
        r#"{"sub":"a","aud":"vault","exp":"1800000300"}"#,
        r#"{"sub":"a","aud":"vault","exp":1e300}"#,
        r#"{"sub":"a","aud":"vault","exp":9223372036854775807}"#,
        r#"{"sub":"a","aud":"vault","exp":253402300799}"#,
        r#"{"sub":"a","aud":"vault","exp":-9e18}"#,
        r#"{"sub":"a","sub":"b","aud":"vault","exp":1800000300}"#,
        r#"{"sub":"a","aud":"vault","exp":1800000300} "#,
        "[]",
        "",
    ] {
        let outcome = verify(payload);
        let fine = payload.ends_with(' ');
        assert_eq!(outcome.is_ok(), fine, "{payload}: {outcome:?}");
    }
}

#[test]
fn a_key_set_has_the_public_halves_and_nothing_else() {
    let set = set();
    let document: Value = serde_json::from_str(&set.jwks().unwrap()).unwrap();
    let listed = document["keys"].as_array().unwrap();
    assert_eq!(listed.len(), ALGORITHMS.len());
    for ((key, member), kid) in keys().iter().zip(listed).zip(set.key_ids()) {
        assert_eq!(member["kid"], kid);
        assert_eq!(member["use"], "sig");
        assert_eq!(member["alg"], key.algorithm().jose_name());
        let (algorithm, raw) = jwk::decode_public(member.to_string().as_bytes()).unwrap();
        assert_eq!(PublicKey::from_raw(algorithm, &raw).unwrap(), key.public_key());
        for private in ["d", "p", "q", "dp", "dq", "qi", "priv"] {
            assert!(member.get(private).is_none(), "{private}");
        }
    }
    assert_eq!(KeySet::new([]).unwrap().jwks().unwrap(), r#"{"keys":[]}"#);
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[ -~]{1,40}", "\\PC{1,20}"]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_signed_is_read_back(
        at in 0..ALGORITHMS.len(),
        issuer in proptest::option::of(text()),
        subject in text(),
        audience in proptest::collection::vec(text(), 1..4),
        id in proptest::option::of(text()),
        name in "x_[a-z]{1,8}",
        value in text(),
    ) {
        let custom = Map::from_iter([(name, json!([value, 1, null, {"deep": true}]))]);
        let claims = Claims { issuer: issuer.clone(), subject, audience: audience.clone(), id, custom, ..claims() };
        let token = jwt::sign(&keys()[at], &claims).unwrap();
        let expected = Expectation { issuer: issuer.as_deref(), audience: &audience[0] };
        prop_assert_eq!(set().verify(&token, expected, now()).unwrap(), claims);
    }

    #[test]
    fn no_altered_character_goes_unnoticed(at in 0..ALGORITHMS.len(), place in any::<prop::sample::Index>(), with in "[-A-Za-z0-9_.=+ ]") {
        let token = jwt::sign(&keys()[at], &claims()).unwrap();
        let place = place.index(token.len());
        let mut altered = token.clone();
        altered.replace_range(place..=place, &with);
        prop_assume!(altered != token);
        prop_assert!(set().verify(&altered, VAULT, now()).is_err());
        prop_assert!(set().verify(&token[..place], VAULT, now()).is_err());
    }

    #[test]
    fn arbitrary_text_is_refused_and_breaks_nothing(token in "\\PC{0,200}", parts in "[-A-Za-z0-9_]{0,60}\\.[-A-Za-z0-9_]{0,60}\\.[-A-Za-z0-9_]{0,90}") {
        for token in [token, parts] {
            prop_assert!(set().verify(&token, VAULT, now()).is_err());
        }
    }
}

/// OpenSSL reads the key from its SubjectPublicKeyInfo and checks the bytes as they stand in the token.
#[test]
fn openssl_verifies_what_the_token_holds() {
    let dir = tempfile::tempdir().unwrap();
    for key in &keys()[..2] {
        let token = jwt::sign(key, &claims()).unwrap();
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let mut signature = BASE64URL_NOPAD.decode(signature.as_bytes()).unwrap();
        if key.algorithm() == KeyAlgorithm::EcdsaP256 {
            let (r, s) = signature.split_at(32);
            signature = yasna::construct_der(|writer| {
                writer.write_sequence(|writer| {
                    writer.next().write_bigint_bytes(r, true);
                    writer.next().write_bigint_bytes(s, true);
                });
            });
        }
        fs::write(dir.path().join("signed"), signed).unwrap();
        fs::write(dir.path().join("signature"), &signature).unwrap();
        fs::write(dir.path().join("key.der"), key.public_key().spki_der()).unwrap();
        let all: Vec<&str> =
            "dgst -sha256 -verify key.der -keyform DER -signature signature signed".split(' ').collect();
        let Some((ok, text)) = run("openssl", &all, dir.path()) else { return };
        assert!(ok && text.contains("Verified OK"), "{text}");
        fs::write(dir.path().join("signed"), signed.replacen('e', "f", 1)).unwrap();
        assert!(!run("openssl", &all, dir.path()).unwrap().0);
    }
}

/// A verifier written from the RFCs with nothing but Go's standard library: it takes the key from the key set.
#[test]
fn go_verifies_with_the_key_set() {
    let dir = tempfile::tempdir().unwrap();
    let classical = &keys()[..5];
    let publics: Vec<PublicKey> = classical.iter().map(Signer::public_key).collect();
    fs::write(dir.path().join("jwks.json"), KeySet::new(&publics).unwrap().jwks().unwrap()).unwrap();
    let mut tokens = String::new();
    for key in classical {
        let token = jwt::sign(key, &claims()).unwrap();
        let (signed, signature) = token.rsplit_once('.').unwrap();
        // Broken in the middle of the signature.
        let broken: String = signature.chars().rev().collect();
        tokens.push_str(&format!("{token}\n{signed}.{broken}\n"));
    }
    fs::write(dir.path().join("tokens"), tokens).unwrap();
    let Some((ok, text)) = go(include_str!("go/jwt.go"), &["jwks.json", "tokens"], dir.path()) else {
        return;
    };
    assert!(ok, "{text}");
    let wanted: Vec<String> = ["ES256", "RS256", "ES384", "ES512", "EdDSA"]
        .iter()
        .flat_map(|name| [format!("{name} good alice"), format!("{name} bad")])
        .collect();
    assert_eq!(text.lines().collect::<Vec<_>>(), wanted);
}
