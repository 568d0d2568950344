use sallyport_oidc::*;
use serde_json::{Value, json};

use crate::issuer::*;

fn verify(keys: &KeySet, signer: &sallyport_sal::MemoryKey, kid: Option<&str>) -> Result<(), OidcError> {
    let mut header = json!({ "alg": "EdDSA" });
    if let Some(kid) = kid {
        header["kid"] = json!(kid);
    }
    let token = sign(signer, Algorithm::EdDsa, &part(&header), &part(&claims()));
    provider(&[Algorithm::EdDsa]).verify(&token, keys, expected(), NOW).map(|_| ())
}

#[test]
fn the_key_is_the_one_that_is_named() {
    let (old, new) = (key(Algorithm::EdDsa), key(Algorithm::EdDsa));
    let keys = set(&[
        published(&key(Algorithm::Es256), &json!({ "kid": "old" })),
        published(&old, &json!({ "kid": "old", "use": "sig", "alg": "EdDSA" })),
        published(&new, &json!({ "kid": "new", "alg": "Ed25519" })),
    ]);
    assert_eq!(keys.len(), 3);
    // Of two keys with one name, the one of the algorithm's type.
    verify(&keys, &old, Some("old")).unwrap();
    verify(&keys, &new, Some("new")).unwrap();
    assert_eq!(verify(&keys, &old, Some("new")).unwrap_err().word(), "bad_signature");
    assert_eq!(verify(&keys, &old, Some("Old")).unwrap_err().word(), "unknown_key");
    // Without a name there has to be one alone.
    assert_eq!(verify(&keys, &old, None).unwrap_err(), OidcError::AmbiguousKey { count: 2 });
    let one = set(&[published(&old, &json!({})), published(&key(Algorithm::Es256), &json!({}))]);
    verify(&one, &old, None).unwrap();
    let twins = set(&[published(&old, &json!({ "kid": "a" })), published(&new, &json!({ "kid": "a" }))]);
    assert_eq!(verify(&twins, &old, Some("a")).unwrap_err().word(), "ambiguous_key");
    assert!(set(&[]).is_empty());
}

#[test]
fn keys_for_other_things_are_left_out_and_said_so() {
    let signing = key(Algorithm::EdDsa);
    let keys = set(&[
        published(&signing, &json!({ "kid": "enc", "use": "enc" })),
        published(&signing, &json!({ "kid": "sign", "key_ops": ["sign"] })),
        json!({ "kty": "EC", "crv": "secp256k1", "kid": "curve", "x": "AA", "y": "AA" }),
        json!({ "kty": "new", "kid": "kind" }),
        json!({ "kid": "nothing" }),
        published(&signing, &json!({ "kid": "good", "x5c": ["AA"], "n-of-theirs": 7 })),
    ]);
    let ignored: Vec<&str> = keys.ignored().map(|(kid, _)| kid).collect();
    assert_eq!(ignored, ["enc", "sign", "curve", "kind", "nothing"]);
    verify(&keys, &signing, Some("good")).unwrap();
    // Where a token names one of those, the reason is in the refusal.
    let error = verify(&keys, &signing, Some("enc")).unwrap_err();
    assert!(error.to_string().contains("\"use\""), "{error}");
}

#[test]
fn a_set_that_is_none_is_refused() {
    let reason = |document: &[u8]| KeySet::parse(document).unwrap_err().to_string();
    assert!(reason(b"{}").contains("keys"));
    assert!(reason(b"{\"keys\":{}}").contains("keys"));
    assert!(reason(b"{\"keys\":[7]}").contains("not an object"));
    assert!(reason(b"{\"keys\":[],\"keys\":[]}").contains("twice"));
    assert!(reason(&vec![b' '; MAX_KEY_SET_BYTES + 1]).contains("256 KiB"));
    let many: Vec<Value> = (0..101).map(|_| json!({})).collect();
    assert!(reason(&serde_json::to_vec(&json!({ "keys": many })).unwrap()).contains("101"));
    for secret in [
        json!({ "kty": "oct", "kid": "shared", "k": "AAAA" }),
        published(&key(Algorithm::EdDsa), &json!({ "kid": "shared", "d": "AA" })),
    ] {
        let text = reason(&serde_json::to_vec(&json!({ "keys": [secret] })).unwrap());
        assert!(text.contains("shared") && text.contains("replace"), "{text}");
    }
}

/// A key that the issuer begins to use is fetched once a token names it, and not more often for tokens that name others.
#[test]
fn keys_change_and_strangers_do_not_have_them_fetched() {
    let (old, new) = (key(Algorithm::EdDsa), key(Algorithm::EdDsa));
    let before = set(&[published(&old, &json!({ "kid": "old" }))]);
    let after = set(&[published(&new, &json!({ "kid": "new" }))]);
    let mut cache = KeyCache::default();
    assert!(cache.keys(NOW).is_none() && cache.is_due(NOW));
    cache.begin(NOW);
    // The issuer is away: not asked again at once.
    assert!(!cache.is_due(NOW + FETCH_PAUSE / 2) && cache.is_due(NOW + FETCH_PAUSE));
    cache.keep(before, NOW);
    assert!(!cache.is_due(NOW + REFRESH / 2) && cache.is_due(NOW + REFRESH));

    let refusal = verify(cache.keys(NOW).unwrap(), &new, Some("new")).unwrap_err();
    assert!(!cache.is_due_after(&refusal, NOW + FETCH_PAUSE / 2));
    let later = NOW + FETCH_PAUSE;
    assert!(cache.is_due_after(&refusal, later));
    assert!(!cache.is_due_after(&OidcError::BadSignature, later));
    cache.begin(later);
    cache.keep(after, later);
    verify(cache.keys(later).unwrap(), &new, Some("new")).unwrap();
    let gone = verify(cache.keys(later).unwrap(), &old, Some("old")).unwrap_err();
    assert_eq!(gone.word(), "unknown_key");
    assert!(!cache.is_due_after(&gone, later + FETCH_PAUSE / 2));
    // A clock that went back does not stop it for good.
    assert!(cache.is_due(NOW - REFRESH));
}

/// Who keeps the set from being fetched does not keep a key good that the issuer has taken out of it.
#[test]
fn keys_that_cannot_be_fetched_again_are_good_for_a_day() {
    let mut cache = KeyCache::default();
    assert_eq!(cache.fetched(), None);
    cache.begin(NOW);
    cache.keep(set(&[published(&key(Algorithm::EdDsa), &json!({ "kid": "old" }))]), NOW);
    let second = std::time::Duration::from_secs(1);
    for away in [REFRESH, REFRESH * 12, LONGEST_KEPT - second] {
        let now = NOW + away;
        // Each try fails: the set is due again after the pause, and good meanwhile.
        assert!(cache.is_due(now) && cache.keys(now).is_some(), "{away:?}");
        cache.begin(now);
    }
    for away in [LONGEST_KEPT, LONGEST_KEPT * 30] {
        assert!(cache.keys(NOW + away).is_none(), "{away:?}");
    }
    assert_eq!(cache.fetched(), Some(NOW));
    // A clock that was set back makes them good for no longer than that, either.
    assert!(cache.keys(NOW - second).is_some() && cache.keys(NOW - LONGEST_KEPT).is_none());
    let later = NOW + LONGEST_KEPT * 2;
    cache.keep(set(&[published(&key(Algorithm::EdDsa), &json!({ "kid": "new" }))]), later);
    assert!(cache.keys(later).is_some());
}
