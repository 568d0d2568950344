//! Statements by makers of authenticators, and the list of models that are allowed.

use std::collections::BTreeSet;

use data_encoding::BASE64;
use sallyport_sal::KeyAlgorithm;
use serde_json::json;
use uuid::Uuid;

use crate::authenticator::*;
use crate::certificates::{Issued, Template, issue, root};
use sallyport_webauthn::*;

const P256: KeyAlgorithm = KeyAlgorithm::EcdsaP256;

fn metadata(model: Uuid, roots: &[&Issued], status: &str) -> Metadata {
    let roots: Vec<_> = roots.iter().map(|root| BASE64.encode(&root.der)).collect();
    let json = json!({
        "no": 1,
        "entries": [
            {
                "aaguid": model,
                "metadataStatement": { "description": "A key", "attestationRootCertificates": roots },
                "statusReports": [{ "status": "FIDO_CERTIFIED" }, { "status": status }],
            },
            { "attestationCertificateKeyIdentifiers": ["00"] },
        ],
    });
    Metadata::parse(&serde_json::to_vec(&json).unwrap()).unwrap()
}

fn allowing(models: &[Uuid], metadata: Metadata) -> RelyingParty {
    let models: BTreeSet<Uuid> = models.iter().copied().collect();
    relying_party().with_attestation(AttestationPolicy::AllowList { models, metadata })
}

/// The word of the refusal, or what is proven.
fn outcome(party: &RelyingParty, authenticator: &Authenticator, statement: Statement<'_>) -> String {
    // A response borrows its statement; what is made of it does not.
    let account = authenticator.account();
    let (options, pending) =
        party.begin_registration(&account, &[], &RegistrationChoice::default(), NOW).unwrap();
    let mut making = authenticator.create(&options);
    making.statement = statement;
    let response = making.response();
    match party.finish_registration(pending, &account.handle, &response, None, "key", NOW) {
        Ok(done) => {
            serde_json::to_value(done.credential.attestation.proof).unwrap().as_str().unwrap().to_owned()
        }
        Err(error) => error.word().to_owned(),
    }
}

#[test]
fn only_listed_models_are_allowed_and_they_prove_it() {
    let authenticator = Authenticator::new(Algorithm::EdDsa);
    let model = authenticator.aaguid;
    let top = root("Root", P256);
    let named = || Template { model: Some(*model.as_bytes()), ..Template::default() };
    let own = issue("Key", P256, named(), Some(&top));
    let party = allowing(&[model], metadata(model, &[&top], "UPDATE_AVAILABLE"));
    let packed = |issued: &'_ Issued| vec![issued.der.clone()];

    assert_eq!(outcome(&party, &authenticator, Statement::Packed(&own.key, packed(&own))), "trusted");
    // What names no model.
    assert_eq!(outcome(&party, &authenticator, Statement::None), "no_attestation");
    assert_eq!(outcome(&party, &authenticator, Statement::PackedSelf(Algorithm::EdDsa)), "no_attestation");
    // What names one that is not on the list, or has no roots.
    let other = allowing(&[Uuid::from_u128(1)], metadata(model, &[&top], "UPDATE_AVAILABLE"));
    assert_eq!(
        outcome(&other, &authenticator, Statement::Packed(&own.key, packed(&own))),
        "model_not_allowed"
    );
    let rootless = allowing(&[model], Metadata::default());
    assert_eq!(
        outcome(&rootless, &authenticator, Statement::Packed(&own.key, packed(&own))),
        "untrusted_attestation"
    );
    // What another maker of that name signed.
    let fake = root("Root", P256);
    let theirs = issue("Key", P256, named(), Some(&fake));
    assert_eq!(
        outcome(&party, &authenticator, Statement::Packed(&theirs.key, packed(&theirs))),
        "untrusted_attestation"
    );
    // The same is good where nothing is asked, and proves nothing.
    assert_eq!(
        outcome(&relying_party(), &authenticator, Statement::Packed(&theirs.key, packed(&theirs))),
        "unanchored"
    );
    assert_eq!(party.name(), "Example");
}

#[test]
fn chains_are_held_against_their_rules() {
    let authenticator = Authenticator::new(Algorithm::Es256);
    let model = authenticator.aaguid;
    let top = root("Root", KeyAlgorithm::EcdsaP384);
    let party = allowing(&[model], metadata(model, &[&top], "UPDATE_AVAILABLE"));
    let try_with = |between: Template, own: Template| {
        let between = issue("Between", P256, between, Some(&top));
        let own = issue("Key", P256, own, Some(&between));
        let chain = vec![own.der.clone(), between.der.clone()];
        outcome(&party, &authenticator, Statement::Packed(&own.key, chain))
    };
    assert_eq!(try_with(Template::ca(), Template::default()), "trusted");
    assert_eq!(try_with(Template { path_length: Some(0), ..Template::ca() }, Template::default()), "trusted");
    let untrusted = [
        ("no CA", Template::default(), Template::default()),
        ("no basic constraints", Template { ca: None, ..Template::ca() }, Template::default()),
        ("no key for certificates", Template { cert_sign: false, ..Template::ca() }, Template::default()),
        ("expired", Template { not_after: "20260101000000Z", ..Template::ca() }, Template::default()),
        ("a critical unknown", Template { unknown_critical: true, ..Template::ca() }, Template::default()),
        ("its own expired", Template::ca(), Template { not_after: "20260101000000Z", ..Template::default() }),
        (
            "its own with a critical unknown",
            Template::ca(),
            Template { unknown_critical: true, ..Template::default() },
        ),
    ];
    for (what, between, own) in untrusted {
        assert_eq!(try_with(between, own), "untrusted_attestation", "{what}");
    }
    let wrong = [
        ("another unit", Template { unit: "Something", ..Template::default() }),
        ("no country", Template { country: "Sweden", ..Template::default() }),
        ("a CA", Template { ca: Some(true), ..Template::default() }),
        ("no basic constraints", Template { ca: None, ..Template::default() }),
        ("version 1", Template { version: 0, ..Template::default() }),
        ("another model", Template { model: Some([9; 16]), ..Template::default() }),
        (
            "a critical model",
            Template { model: Some(*model.as_bytes()), model_critical: true, ..Template::default() },
        ),
    ];
    for (what, own) in wrong {
        assert_eq!(try_with(Template::ca(), own), "bad_attestation", "{what}");
    }

    // A path that is longer than a CA in it allows.
    let short = issue("Short", P256, Template { path_length: Some(0), ..Template::ca() }, Some(&top));
    let below = issue("Below", P256, Template::ca(), Some(&short));
    let own = issue("Key", P256, Template::default(), Some(&below));
    let chain = vec![own.der.clone(), below.der.clone(), short.der.clone()];
    assert_eq!(outcome(&party, &authenticator, Statement::Packed(&own.key, chain)), "untrusted_attestation");
    // In another order, with a part left out, with rubbish, too many.
    let between = issue("Between", P256, Template::ca(), Some(&top));
    let own = issue("Key", P256, Template::default(), Some(&between));
    let packed = |chain: Vec<Vec<u8>>| outcome(&party, &authenticator, Statement::Packed(&own.key, chain));
    assert_eq!(packed(vec![own.der.clone()]), "untrusted_attestation");
    assert_eq!(packed(vec![own.der.clone(), top.der.clone()]), "untrusted_attestation");
    assert_eq!(packed(vec![own.der.clone(), between.der.clone(), top.der.clone()]), "trusted");
    assert_eq!(packed(vec![between.der.clone(), own.der.clone()]), "bad_attestation");
    assert_eq!(packed(vec![own.der.clone(), b"rubbish".to_vec()]), "bad_attestation");
    assert_eq!(packed(vec![own.der.clone(); 7]), "bad_attestation");
    // The signature is another key's.
    let stranger = issue("Key", P256, Template::default(), Some(&between));
    let chain = vec![own.der.clone(), between.der.clone()];
    assert_eq!(outcome(&party, &authenticator, Statement::Packed(&stranger.key, chain)), "bad_attestation");
    // The metadata names the attestation's own certificate.
    let pinned = allowing(&[model], metadata(model, &[&own], "UPDATE_AVAILABLE"));
    assert_eq!(
        outcome(&pinned, &authenticator, Statement::Packed(&own.key, vec![own.der.clone()])),
        "trusted"
    );
}

/// §7.1 steps 23, 24 and 29.
#[test]
fn a_compromised_model_is_refused() {
    let authenticator = Authenticator::new(Algorithm::Es256);
    let top = root("Root", P256);
    let own = issue("Key", P256, Template::default(), Some(&top));
    for status in ["REVOKED", "ATTESTATION_KEY_COMPROMISE", "USER_VERIFICATION_BYPASS"] {
        let party = allowing(&[authenticator.aaguid], metadata(authenticator.aaguid, &[&top], status));
        let statement = Statement::Packed(&own.key, vec![own.der.clone()]);
        assert_eq!(outcome(&party, &authenticator, statement), "model_compromised");
    }
}

#[test]
fn u2f_keys_are_known_by_their_root_alone() {
    let authenticator = Authenticator::new(Algorithm::Es256);
    let top = root("Root", P256);
    let own = issue("U2F", P256, Template { unit: "U2F", ..Template::default() }, Some(&top));
    let statement = || Statement::U2f(&own.key, vec![own.der.clone()]);
    assert_eq!(outcome(&relying_party(), &authenticator, statement()), "unanchored");
    // Nothing signs its AAGUID, so the key cannot pass for a listed model by that.
    let listed = allowing(&[authenticator.aaguid], metadata(authenticator.aaguid, &[&top], "REPORT"));
    assert_eq!(outcome(&listed, &authenticator, statement()), "model_not_allowed");
    let party = allowing(&[Uuid::nil()], metadata(Uuid::nil(), &[&top], "REPORT"));
    assert_eq!(outcome(&party, &authenticator, statement()), "trusted");

    let two = Statement::U2f(&own.key, vec![own.der.clone(), top.der.clone()]);
    assert_eq!(outcome(&party, &authenticator, two), "bad_attestation");
    let other = issue("U2F", P256, Template::default(), Some(&top));
    let wrong = Statement::U2f(&other.key, vec![own.der.clone()]);
    assert_eq!(outcome(&party, &authenticator, wrong), "bad_attestation");
    let curve = issue("U2F", KeyAlgorithm::EcdsaP384, Template::default(), Some(&top));
    let wrong = Statement::U2f(&curve.key, vec![curve.der.clone()]);
    assert_eq!(outcome(&party, &authenticator, wrong), "bad_attestation");
    let ed = Authenticator::new(Algorithm::EdDsa);
    assert_eq!(outcome(&relying_party(), &ed, statement()), "bad_attestation");
}

#[test]
fn formats_that_are_not_checked_prove_nothing() {
    let authenticator = Authenticator::new(Algorithm::Es256);
    let top = root("Root", P256);
    let party = allowing(&[authenticator.aaguid], metadata(authenticator.aaguid, &[&top], "REPORT"));
    for format in ["tpm", "android-key", "android-safetynet", "apple"] {
        let statement = || Statement::Raw(format, cbor::map(&[(cbor::text("ver"), cbor::text("2.0"))]));
        assert_eq!(outcome(&relying_party(), &authenticator, statement()), "unchecked");
        assert_eq!(outcome(&party, &authenticator, statement()), "no_attestation");
    }
}

#[test]
fn direct_attestation_is_asked_for_where_it_is_needed() {
    let authenticator = Authenticator::new(Algorithm::Es256);
    let party = allowing(&[authenticator.aaguid], Metadata::default());
    let choice = RegistrationChoice::default();
    let (options, _) = party.begin_registration(&authenticator.account(), &[], &choice, NOW).unwrap();
    let json = serde_json::to_value(&options).unwrap();
    assert_eq!(json["attestation"], "direct");
    assert_eq!(json["attestationFormats"], json!(["packed", "fido-u2f"]));
}

#[test]
fn a_metadata_file_says_what_is_wrong_with_it() {
    let model = Uuid::from_u128(7);
    let reason = |json: serde_json::Value| {
        Metadata::parse(&serde_json::to_vec(&json).unwrap()).unwrap_err().to_string()
    };
    assert!(reason(json!({})).contains("entries"));
    let entry = json!({ "aaguid": model, "metadataStatement": { "attestationRootCertificates": ["?"] } });
    assert!(reason(json!({ "entries": [entry] })).contains(&model.to_string()));
    let entry = json!({ "aaguid": model, "metadataStatement": {} });
    assert!(reason(json!({ "entries": [entry, entry] })).contains("twice"));
    let top = root("Root", P256);
    let good = metadata(model, &[&top], "REPORT");
    assert_eq!((good.name(model), good.models().count()), (Some("A key"), 1));
}
