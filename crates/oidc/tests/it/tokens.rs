use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use proptest::prelude::*;
use sallyport_oidc::*;
use sallyport_sal::Signer;
use serde_json::{Value, json};

use crate::issuer::*;

/// One key by ES256, named "k1".
struct Signing {
    key: sallyport_sal::MemoryKey,
    keys: KeySet,
}

impl Signing {
    fn new() -> Self {
        let key = key(Algorithm::Es256);
        let keys = set(&[published(&key, &json!({ "kid": "k1", "use": "sig", "alg": "ES256" }))]);
        Self { key, keys }
    }

    fn token(&self, header: &Value, claims: &Value) -> String {
        sign(&self.key, Algorithm::Es256, &part(header), &part(claims))
    }

    fn verify(&self, token: &str) -> Result<IdToken, OidcError> {
        provider(&[Algorithm::Es256, Algorithm::Rs256]).verify(token, &self.keys, expected(), NOW)
    }

    /// The word of the refusal of a token with these claims changed.
    fn claims(&self, change: impl FnOnce(&mut Value)) -> Result<IdToken, &'static str> {
        let mut claims = claims();
        change(&mut claims);
        self.verify(&self.token(&header(), &claims)).map_err(|error| error.word())
    }

    fn header(&self, change: impl FnOnce(&mut Value)) -> Result<IdToken, &'static str> {
        let mut header = header();
        change(&mut header);
        self.verify(&self.token(&header, &claims())).map_err(|error| error.word())
    }
}

fn header() -> Value {
    json!({ "alg": "ES256", "kid": "k1", "typ": "JWT" })
}

#[test]
fn every_algorithm_is_verified() {
    for algorithm in Algorithm::ALL.iter().copied() {
        let key = key(algorithm);
        let keys = set(&[published(&key, &json!({ "kid": "a" }))]);
        let header = part(&json!({ "alg": algorithm.name(), "kid": "a" }));
        let token = sign(&key, algorithm, &header, &part(&claims()));
        let verified = provider(&[algorithm]).verify(&token, &keys, expected(), NOW).unwrap();
        assert_eq!(verified.identity, Identity { issuer: ISSUER.to_owned(), subject: "24400320".to_owned() });
        assert_eq!(verified.claims["groups"], json!(["ops", "dev"]));
        // Another algorithm that is allowed, but not what signed.
        let other = if algorithm == Algorithm::Es256 { Algorithm::Rs256 } else { Algorithm::Es256 };
        let error = provider(&[other]).verify(&token, &keys, expected(), NOW).unwrap_err();
        assert_eq!(error.word(), "algorithm_not_allowed");
        // Each byte of it counts.
        for at in (0..token.len()).step_by(7) {
            let mut changed = token.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            if changed != token {
                assert!(provider(&[algorithm]).verify(&changed, &keys, expected(), NOW).is_err(), "{at}");
            }
        }
    }
}

/// RSA keys sign by several algorithms; the header chooses among those that are allowed, and the signature is by that one.
#[test]
fn an_algorithm_is_not_swapped() {
    let key = key(Algorithm::Rs256);
    let keys = set(&[published(&key, &json!({ "kid": "a" }))]);
    let header = part(&json!({ "alg": "PS256", "kid": "a" }));
    let token = sign(&key, Algorithm::Rs256, &header, &part(&claims()));
    let both = provider(&[Algorithm::Rs256, Algorithm::Ps256]);
    assert_eq!(both.verify(&token, &keys, expected(), NOW).unwrap_err().word(), "bad_signature");
    // A key that is published for one is not used for another.
    let keys = set(&[published(&key, &json!({ "kid": "a", "alg": "RS256" }))]);
    assert_eq!(both.verify(&token, &keys, expected(), NOW).unwrap_err().word(), "unknown_key");
}

#[test]
fn headers_choose_no_key_and_no_way_out() {
    let signing = Signing::new();
    assert!(signing.header(|_| ()).is_ok());
    assert!(signing.header(|header| header["typ"] = json!("jwt")).is_ok());
    // What Entra ID writes.
    assert!(signing.header(|header| header["x5t"] = json!("abc")).is_ok());
    for name in ["none", "None", "NONE", "nOnE", "HS256", "hs512"] {
        assert_eq!(signing.header(|header| header["alg"] = json!(name)).unwrap_err(), "unsigned", "{name}");
    }
    for name in ["ES384", "es256", "RS1", "", "ES256K"] {
        assert_eq!(
            signing.header(|header| header["alg"] = json!(name)).unwrap_err(),
            "algorithm_not_allowed"
        );
    }
    // Both allowed, but the key is of another type.
    assert_eq!(signing.header(|header| header["alg"] = json!("RS256")).unwrap_err(), "unknown_key");
    let own = published(&key(Algorithm::Es256), &json!({}));
    for (parameter, value) in [
        ("jwk", own),
        ("jku", json!("https://evil.example/keys")),
        ("x5u", json!("https://evil.example/chain")),
        ("x5c", json!(["AAAA"])),
    ] {
        assert_eq!(signing.header(|header| header[parameter] = value).unwrap_err(), "embedded_key");
    }
    assert_eq!(signing.header(|header| header["crit"] = json!(["exp"])).unwrap_err(), "critical");
    assert_eq!(signing.header(|header| header["crit"] = json!([])).unwrap_err(), "critical");
    for (parameter, value) in [
        ("typ", json!("at+jwt")),
        ("typ", json!("logout+jwt")),
        ("typ", json!(7)),
        ("cty", json!("JWT")),
        ("enc", json!("A256GCM")),
        ("zip", json!("DEF")),
        ("b64", json!(false)),
        ("kid", json!(1)),
        ("alg", json!(null)),
        ("alg", json!(["ES256"])),
    ] {
        assert_eq!(
            signing.header(|header| header[parameter] = value).unwrap_err(),
            "malformed",
            "{parameter}"
        );
    }
    assert_eq!(signing.header(|header| header["kid"] = json!("k2")).unwrap_err(), "unknown_key");
}

#[test]
fn a_token_is_three_parts_and_says_each_thing_once() {
    let signing = Signing::new();
    let good = signing.token(&header(), &claims());
    let word = |token: &str| signing.verify(token).unwrap_err().word();
    let [head, payload, signature]: [&str; 3] = good.split('.').collect::<Vec<_>>().try_into().unwrap();
    assert_eq!(word(""), "malformed");
    assert_eq!(word("a.b"), "malformed");
    assert_eq!(word(&format!("{good}.{signature}")), "malformed");
    assert_eq!(word(&format!(" {good}")), "malformed");
    assert_eq!(word(&format!("{head}.{payload}.")), "bad_signature");
    assert_eq!(word(&format!("{head}=.{payload}.{signature}")), "malformed");
    assert_eq!(word(&format!("{head}.{payload}.{signature}=")), "malformed");
    assert_eq!(word(&"x".repeat(MAX_TOKEN_BYTES + 1)), "too_long");
    // The JSON form, with two signatures.
    let general =
        json!({ "payload": payload, "signatures": [{ "protected": head, "signature": signature }] });
    assert_eq!(word(&general.to_string()), "malformed");
    // A claim, or a parameter, that one reader takes the first of and another the last.
    let twice = serde_json::to_string(&claims()).unwrap().replacen('{', "{\"sub\":\"admin\",", 1);
    let twice = BASE64URL_NOPAD.encode(twice.as_bytes());
    assert_eq!(word(&sign(&signing.key, Algorithm::Es256, head, &twice)), "malformed");
    let twice = BASE64URL_NOPAD.encode(br#"{"alg":"none","alg":"ES256","kid":"k1"}"#);
    assert_eq!(word(&sign(&signing.key, Algorithm::Es256, &twice, payload)), "malformed");
    for payload in ["null", "[]", "\"x\"", "{}x", "{\"sub\":\"\u{0}\"}"] {
        let payload = BASE64URL_NOPAD.encode(payload.as_bytes());
        assert_eq!(word(&sign(&signing.key, Algorithm::Es256, head, &payload)), "malformed");
    }
    // The signature as others have it.
    let der = signing.key.sign(format!("{head}.{payload}").as_bytes()).unwrap();
    assert_eq!(word(&format!("{head}.{payload}.{}", BASE64URL_NOPAD.encode(&der))), "bad_signature");
    let zeros = BASE64URL_NOPAD.encode(&[0; 64]);
    assert_eq!(word(&format!("{head}.{payload}.{zeros}")), "bad_signature");
    // Another key of that type.
    let other = key(Algorithm::Es256);
    assert_eq!(word(&sign(&other, Algorithm::Es256, head, payload)), "bad_signature");
}

#[test]
fn what_has_to_be_there_is_and_has_its_type() {
    let signing = Signing::new();
    for claim in ["iss", "sub", "aud", "exp", "iat", "nonce"] {
        let without = signing.claims(|claims| {
            claims.as_object_mut().unwrap().remove(claim);
        });
        assert_eq!(without.unwrap_err(), "missing_claim", "{claim}");
        for wrong in [json!(null), json!({}), json!(true), json!([1])] {
            assert_eq!(signing.claims(|claims| claims[claim] = wrong).unwrap_err(), "wrong_claim", "{claim}");
        }
    }
    let now = NOW.unix_timestamp();
    for date in ["exp", "iat", "nbf", "auth_time"] {
        for wrong in [
            json!(now.to_string()),
            json!(null),
            json!(-1),
            json!(1.5),
            json!(1e300),
            json!(u64::MAX),
            json!(i64::MAX),
            json!(253_402_300_800_u64),
        ] {
            let refused = signing.claims(|claims| claims[date] = wrong.clone());
            assert_eq!(refused.unwrap_err(), "wrong_claim", "{date} {wrong}");
        }
    }
    for wrong in [json!(7), json!(""), json!("x".repeat(256)), json!("a\u{0}b")] {
        assert_eq!(signing.claims(|claims| claims["sub"] = wrong).unwrap_err(), "wrong_claim");
    }
    assert_eq!(signing.claims(|claims| claims["azp"] = json!(7)).unwrap_err(), "wrong_claim");
}

#[test]
fn a_token_is_from_this_issuer_for_this_client_alone() {
    let signing = Signing::new();
    for issuer in
        ["https://login.example.com/tenant/", "https://LOGIN.example.com/tenant", "https://evil.example", ""]
    {
        assert_eq!(signing.claims(|claims| claims["iss"] = json!(issuer)).unwrap_err(), "wrong_issuer");
    }
    assert!(signing.claims(|claims| claims["aud"] = json!([CLIENT])).is_ok());
    for audience in
        [json!("other"), json!([]), json!(["other"]), json!([CLIENT, "other"]), json!("Sallyport")]
    {
        let refused = signing.claims(|claims| claims["aud"] = audience);
        assert_eq!(refused.unwrap_err(), "wrong_audience");
    }
    assert!(signing.claims(|claims| claims["azp"] = json!(CLIENT)).is_ok());
    assert_eq!(signing.claims(|claims| claims["azp"] = json!("other")).unwrap_err(), "wrong_party");
    // With another audience that is trusted, the token says to whom it was given.
    let provider = provider(&[Algorithm::Es256]).with_other_audiences(vec!["api".to_owned()]);
    let mut claims = claims();
    claims["aud"] = json!(["api", CLIENT]);
    let verify = |claims: &Value| {
        let token = signing.token(&header(), claims);
        provider.verify(&token, &signing.keys, expected(), NOW).map_err(|error| error.word())
    };
    assert_eq!(verify(&claims).unwrap_err(), "wrong_party");
    claims["azp"] = json!("api");
    assert_eq!(verify(&claims).unwrap_err(), "wrong_party");
    claims["azp"] = json!(CLIENT);
    assert!(verify(&claims).is_ok());
}

#[test]
fn a_token_is_good_for_its_time_and_its_login() {
    let signing = Signing::new();
    let at = |name: &str, seconds: i64| {
        signing.claims(|claims| claims[name] = json!(NOW.unix_timestamp() + seconds)).map(|_| ())
    };
    assert_eq!(at("exp", -59), Ok(()));
    assert_eq!(at("exp", -60), Err("expired"));
    assert_eq!(at("iat", 60), Ok(()));
    assert_eq!(at("iat", 61), Err("not_yet_valid"));
    assert_eq!(at("nbf", 60), Ok(()));
    assert_eq!(at("nbf", 61), Err("not_yet_valid"));
    assert_eq!(at("iat", -660), Ok(()));
    assert_eq!(at("iat", -661), Err("too_old"));
    assert_eq!(signing.claims(|claims| claims["nonce"] = json!("other")).unwrap_err(), "nonce_mismatch");
    assert_eq!(signing.claims(|claims| claims["nonce"] = json!("")).unwrap_err(), "nonce_mismatch");

    let fresh = |auth_time: Option<i64>| {
        let mut claims = claims();
        if let Some(seconds) = auth_time {
            claims["auth_time"] = json!(NOW.unix_timestamp() + seconds);
        }
        let expected = Expected { nonce: NONCE, max_age: Some(Duration::from_secs(300)) };
        let token = signing.token(&header(), &claims);
        let done = provider(&[Algorithm::Es256]).verify(&token, &signing.keys, expected, NOW);
        done.map(|token| token.authenticated.is_some()).map_err(|error| error.word())
    };
    assert_eq!(fresh(Some(-300)), Ok(true));
    assert_eq!(fresh(Some(-361)), Err("login_too_old"));
    assert_eq!(fresh(None), Err("missing_claim"));
}

#[test]
fn a_provider_is_told_what_is_wrong_with_it() {
    let word = |issuer: &str, client: &str, algorithms: &[Algorithm]| {
        Provider::new(issuer, client, algorithms).unwrap_err().word()
    };
    assert_eq!(word("http://example.com", CLIENT, Algorithm::ALL), "bad_issuer");
    assert_eq!(word("https://example.com?x", CLIENT, Algorithm::ALL), "bad_issuer");
    assert_eq!(word(ISSUER, "", Algorithm::ALL), "bad_settings");
    assert_eq!(word(ISSUER, CLIENT, &[]), "bad_settings");
    let provider = provider(Algorithm::ALL);
    assert_eq!((provider.issuer(), provider.client_id()), (ISSUER, CLIENT));
    // An algorithm that proves nothing cannot be configured.
    for name in ["none", "HS256", "RS1"] {
        assert!(serde_json::from_value::<Algorithm>(json!(name)).is_err());
    }
}

proptest! {
    #[test]
    fn any_text_is_refused(text in "[a-zA-Z0-9._=-]{0,80}") {
        let keys = set(&[]);
        prop_assert!(provider(Algorithm::ALL).verify(&text, &keys, expected(), NOW).is_err());
    }
}
