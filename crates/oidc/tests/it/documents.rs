use proptest::prelude::*;
use sallyport_oidc::*;
use serde_json::{Value, json};

use crate::issuer::*;

fn document() -> Value {
    json!({
        "issuer": ISSUER,
        "authorization_endpoint": "https://login.example.com/tenant/authorize",
        "token_endpoint": "https://login.example.com/tenant/token",
        "jwks_uri": "https://keys.example.net/tenant",
        "userinfo_endpoint": "https://login.example.com/tenant/me",
        "end_session_endpoint": null,
        "response_types_supported": ["code", "id_token"],
        "subject_types_supported": ["pairwise"],
        "id_token_signing_alg_values_supported": ["HS256", "none", "RS256", "ES512", "EdDSA"],
        "code_challenge_methods_supported": ["plain", "S256"],
        "authorization_response_iss_parameter_supported": true,
    })
}

fn read(change: impl FnOnce(&mut Value)) -> Result<Discovery, OidcError> {
    let mut document = document();
    change(&mut document);
    Discovery::parse(ISSUER, &serde_json::to_vec(&document).unwrap())
}

#[test]
fn a_document_is_its_issuers() {
    let found = read(|_| ()).unwrap();
    assert_eq!(found.jwks_uri, "https://keys.example.net/tenant");
    assert_eq!(found.algorithms, [Algorithm::Rs256, Algorithm::EdDsa]);
    assert!(found.names_itself && found.end_session_endpoint.is_none());
    for other in ["https://login.example.com/tenant/", "https://evil.example", "https://login.example.com"] {
        let error = read(|document| document["issuer"] = json!(other)).unwrap_err();
        assert_eq!(error.word(), "issuer_mismatch");
        assert!(error.to_string().contains(ISSUER), "{error}");
    }
}

#[test]
fn a_document_has_what_logins_need() {
    let without = |name: &'static str| {
        read(|document| {
            document.as_object_mut().unwrap().remove(name);
        })
    };
    for name in [
        "issuer",
        "authorization_endpoint",
        "token_endpoint",
        "jwks_uri",
        "response_types_supported",
        "id_token_signing_alg_values_supported",
    ] {
        assert_eq!(without(name).unwrap_err().word(), "bad_discovery", "{name}");
    }
    assert!(without("code_challenge_methods_supported").is_ok());
    let refused: [(&str, Value); 7] = [
        ("token_endpoint", json!("http://login.example.com/token")),
        ("token_endpoint", json!(7)),
        ("jwks_uri", json!("https://keys.example.net@evil.example/")),
        ("authorization_endpoint", json!("javascript:alert(1)")),
        ("code_challenge_methods_supported", json!(["plain"])),
        ("response_types_supported", json!(["id_token"])),
        ("id_token_signing_alg_values_supported", json!(["none", "HS256"])),
    ];
    for (name, value) in refused {
        assert_eq!(read(|document| document[name] = value).unwrap_err().word(), "bad_discovery", "{name}");
    }
    assert!(Discovery::parse(ISSUER, &vec![b' '; MAX_DISCOVERY_BYTES + 1]).is_err());
    assert!(Discovery::parse(ISSUER, b"[]").is_err());
}

#[test]
fn a_document_is_at_its_place() {
    for (issuer, place) in [
        ("https://example.com", "https://example.com/.well-known/openid-configuration"),
        ("https://example.com/", "https://example.com/.well-known/openid-configuration"),
        (ISSUER, "https://login.example.com/tenant/.well-known/openid-configuration"),
    ] {
        assert_eq!(discovery_url(issuer).unwrap(), place);
    }
    assert_eq!(discovery_url("http://example.com").unwrap_err().word(), "bad_issuer");
}

/// RFC 7636 appendix B.
#[test]
fn the_challenge_is_that_of_the_rfc() {
    assert_eq!(
        s256("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"),
        "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
    );
}

#[test]
fn an_answer_belongs_to_the_attempt_that_it_is_for() {
    let begin = || Attempt::begin(ISSUER, NOW).unwrap();
    let attempt = begin();
    let (state, nonce, challenge) =
        (attempt.state().to_owned(), attempt.nonce().to_owned(), attempt.challenge());
    assert!(state.len() == 43 && state != nonce);
    // It is kept elsewhere meanwhile.
    let kept = serde_json::to_string(&attempt).unwrap();
    let attempt: Attempt = serde_json::from_str(&kept).unwrap();
    let answered = attempt.answer(&state, Some(ISSUER), NOW).unwrap();
    assert_eq!((answered.nonce, s256(&answered.verifier)), (nonce, challenge));
    assert_eq!(begin().answer(&state, None, NOW).unwrap_err().word(), "state_mismatch");
    let attempt = begin();
    let state = attempt.state().to_owned();
    let error = attempt.answer(&state, Some("https://evil.example"), NOW).unwrap_err();
    assert_eq!(error.word(), "wrong_issuer");
    let attempt = begin();
    let state = attempt.state().to_owned();
    let late = attempt.expires();
    assert_eq!(attempt.answer(&state, None, late).unwrap_err().word(), "attempt_expired");
    // RFC 9207 §2.4: of a provider that names itself, an answer without a name is another's.
    let attempt = begin().named(true);
    let state = attempt.state().to_owned();
    let kept: Attempt = serde_json::from_str(&serde_json::to_string(&attempt).unwrap()).unwrap();
    assert_eq!(kept.answer(&state, None, NOW).unwrap_err().word(), "unnamed_answer");
    assert!(attempt.answer(&state, Some(ISSUER), NOW).is_ok());
    // Its secrets are not printed.
    let attempt = begin();
    assert!(!format!("{attempt:?}").contains(attempt.state()));
}

proptest! {
    #[test]
    fn any_bytes_are_no_document(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(Discovery::parse(ISSUER, &bytes).is_err());
        prop_assert!(KeySet::parse(&bytes).is_err());
    }
}
