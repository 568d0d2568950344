use sallyport_oidc::*;
use serde_json::{Value, json};

use crate::issuer::*;

fn said() -> Value {
    json!({
        "iss": ISSUER,
        "aud": CLIENT,
        "iat": NOW.unix_timestamp(),
        "exp": NOW.unix_timestamp() + 120,
        "jti": "once",
        "sub": "24400320",
        "sid": "s1",
        "events": { "http://schemas.openid.net/event/backchannel-logout": {} },
    })
}

#[test]
fn a_logout_token_is_no_id_token_and_the_other_way_round() {
    let key = key(Algorithm::Es256);
    let keys = set(&[published(&key, &json!({ "kid": "k1" }))]);
    let provider = provider(&[Algorithm::Es256]);
    let token = |typ: &str, claims: &Value| {
        sign(
            &key,
            Algorithm::Es256,
            &part(&json!({ "alg": "ES256", "kid": "k1", "typ": typ })),
            &part(claims),
        )
    };
    let verify = |change: &dyn Fn(&mut Value)| {
        let mut claims = said();
        change(&mut claims);
        provider.verify_logout(&token("logout+jwt", &claims), &keys, NOW).map_err(|error| error.word())
    };
    let good = verify(&|_| ()).unwrap();
    assert_eq!((good.subject.as_deref(), good.session.as_deref()), (Some("24400320"), Some("s1")));
    assert_eq!(good.id, "once");
    assert!(verify(&|claims| drop(claims.as_object_mut().unwrap().remove("sub"))).unwrap().subject.is_none());
    let endless = verify(&|claims| drop(claims.as_object_mut().unwrap().remove("exp")));
    assert_eq!(endless.unwrap_err(), "missing_claim");
    type Change = fn(&mut Value);
    let changes: [(Change, &str); 12] = [
        (|claims| claims["nonce"] = json!(NONCE), "not_logout"),
        (|claims| claims["events"] = json!({}), "not_logout"),
        (
            |claims| claims["events"] = json!("http://schemas.openid.net/event/backchannel-logout"),
            "not_logout",
        ),
        (
            |claims| claims["events"] = json!({ "http://schemas.openid.net/event/backchannel-logout": true }),
            "not_logout",
        ),
        (|claims| claims["iss"] = json!("https://evil.example"), "wrong_issuer"),
        (|claims| claims["aud"] = json!("another"), "wrong_audience"),
        (|claims| claims["iat"] = json!("now"), "wrong_claim"),
        (|claims| claims["iat"] = json!(NOW.unix_timestamp() - 3600), "too_old"),
        (|claims| claims["iat"] = json!(NOW.unix_timestamp() + 3600), "not_yet_valid"),
        (|claims| claims["exp"] = json!(NOW.unix_timestamp() - 3600), "expired"),
        (|claims| drop(claims.as_object_mut().unwrap().remove("jti")), "missing_claim"),
        (
            |claims| {
                let claims = claims.as_object_mut().unwrap();
                claims.remove("sub");
                claims.remove("sid");
            },
            "not_logout",
        ),
    ];
    for (at, (change, word)) in changes.into_iter().enumerate() {
        assert_eq!(verify(&change).unwrap_err(), word, "{at}");
    }
    // One for the other.
    let id_token = token("JWT", &claims());
    assert_eq!(provider.verify_logout(&id_token, &keys, NOW).unwrap_err().word(), "not_logout");
    let mut both = said();
    both["nonce"] = json!(NONCE);
    let error = provider.verify(&token("logout+jwt", &both), &keys, expected(), NOW).unwrap_err();
    assert_eq!(error.word(), "malformed", "by its type");
    let error = provider.verify(&token("JWT", &said()), &keys, expected(), NOW).unwrap_err();
    assert_eq!(error.word(), "missing_claim", "it has no nonce");
}
