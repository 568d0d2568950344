//! Whole ceremonies that succeed, and what is stored between their halves.

use serde_json::json;
use time::Duration;

use crate::authenticator::*;
use sallyport_webauthn::*;

const ALGORITHMS: [Algorithm; 4] = [Algorithm::Es256, Algorithm::EdDsa, Algorithm::Es384, Algorithm::Rs256];

#[test]
fn every_algorithm_registers_and_logs_in() {
    for algorithm in ALGORITHMS {
        let mut authenticator = Authenticator::new(algorithm);
        let party = relying_party();
        for statement in [Statement::None, Statement::PackedSelf(algorithm)] {
            let proof = if matches!(statement, Statement::None) { Proof::Absent } else { Proof::SelfSigned };
            let registration =
                register(&party, &authenticator, |making| making.statement = statement).unwrap();
            assert_eq!(registration.credential.attestation.proof, proof, "{algorithm}");
            assert_eq!(registration.attachment, Some(Attachment::CrossPlatform));
        }
        let record = registered(&authenticator);
        assert_eq!(record.algorithm().unwrap(), algorithm);
        assert_eq!(record.id.as_slice(), authenticator.id);
        assert_eq!(record.transports, ["usb", "nfc"]);
        assert_eq!((record.sign_count, record.discoverable, record.user_verified), (0, Some(true), true));
        assert_eq!((record.created, record.last_used, record.aaguid), (NOW, None, authenticator.aaguid));

        let known = login(&party, &mut authenticator, &record, |_| ()).unwrap();
        assert!(known.user_verified && !known.clone_suspected && known.backup_changed.is_none());
        assert_eq!((known.credential.sign_count, known.credential.last_used), (1, Some(NOW)));
        // A user name is not needed, and a handle is not where there was one.
        let by_passkey =
            login_by_passkey(&party, &mut authenticator, Some(&known.credential), |_| ()).unwrap();
        assert_eq!(by_passkey.credential.sign_count, 2);
        login(&party, &mut authenticator, &by_passkey.credential, |using| using.user = None).unwrap();
    }
}

#[test]
fn a_step_up_is_the_users_own() {
    let party = relying_party();
    let mut authenticator = Authenticator::new(Algorithm::EdDsa);
    let record = registered(&authenticator);
    for purpose in [Purpose::StepUp, Purpose::AddFactor] {
        let who = Who::User { handle: &record.user, credentials: std::slice::from_ref(&record) };
        let (options, pending) =
            party.begin_authentication(purpose, who, &AuthenticationChoice::default(), NOW).unwrap();
        assert_eq!((pending.purpose(), pending.user()), (purpose, Some(&record.user)));
        let response = authenticator.get(&options).response();
        assert_eq!(response.credential_id(), &record.id);
        assert_eq!(response.user(), Some(&record.user));
        let user = Some(&record.user);
        assert!(party.finish_authentication(pending, purpose, user, &response, Some(&record), NOW).is_ok());
        let anyone = party.begin_authentication(purpose, Who::Anyone, &AuthenticationChoice::default(), NOW);
        assert_eq!(anyone.unwrap_err().word(), "user_needed");
    }
    let nothing = Who::User { handle: &record.user, credentials: &[] };
    let asked = party.begin_authentication(Purpose::Login, nothing, &AuthenticationChoice::default(), NOW);
    assert_eq!(asked.unwrap_err().word(), "no_credentials");
}

/// The names are those of `PublicKeyCredentialCreationOptionsJSON` and `PublicKeyCredentialRequestOptionsJSON`.
#[test]
fn options_are_what_browsers_parse() {
    let authenticator = Authenticator::new(Algorithm::Es256);
    let record = registered(&authenticator);
    let choice = RegistrationChoice {
        resident_key: ResidentKey::Required,
        attachment: Some(Attachment::CrossPlatform),
        hints: vec![Hint::SecurityKey, Hint::Hybrid],
        user_verification: Some(UserVerification::Preferred),
    };
    let existing = std::slice::from_ref(&record);
    let (options, pending) =
        relying_party().begin_registration(&authenticator.account(), existing, &choice, NOW).unwrap();
    assert_eq!(pending.challenge().len(), CHALLENGE_BYTES);
    assert_eq!(pending.expires(), NOW + TIMEOUT);
    let challenge = Binary(pending.challenge().to_vec()).to_text();
    assert_eq!(
        serde_json::to_value(&options).unwrap(),
        json!({
            "rp": { "id": "example.org", "name": "Example" },
            "user": { "id": record.user, "name": "alice", "displayName": "Alice" },
            "challenge": challenge,
            "pubKeyCredParams": [
                { "type": "public-key", "alg": -8 },
                { "type": "public-key", "alg": -7 },
                { "type": "public-key", "alg": -35 },
                { "type": "public-key", "alg": -257 },
            ],
            "timeout": 300_000,
            "excludeCredentials": [{ "type": "public-key", "id": record.id, "transports": ["usb", "nfc"] }],
            "authenticatorSelection": {
                "authenticatorAttachment": "cross-platform",
                "residentKey": "required",
                "requireResidentKey": true,
                "userVerification": "preferred",
            },
            "hints": ["security-key", "hybrid"],
            "attestation": "none",
            "extensions": { "credProps": true },
        })
    );
    let who = Who::User { handle: &record.user, credentials: existing };
    let choice = AuthenticationChoice { hints: vec![Hint::ClientDevice], user_verification: None };
    let (options, pending) = relying_party().begin_authentication(Purpose::Login, who, &choice, NOW).unwrap();
    assert_eq!(
        serde_json::to_value(&options).unwrap(),
        json!({
            "challenge": Binary(pending.challenge().to_vec()).to_text(),
            "timeout": 300_000,
            "rpId": "example.org",
            "allowCredentials": [{ "type": "public-key", "id": record.id, "transports": ["usb", "nfc"] }],
            "userVerification": "required",
            "hints": ["client-device"],
        })
    );
}

#[test]
fn challenges_differ() {
    let party = relying_party();
    let begin = || {
        let choice = AuthenticationChoice::default();
        party.begin_authentication(Purpose::Login, Who::Anyone, &choice, NOW).unwrap().1
    };
    assert_ne!(begin().challenge(), begin().challenge());
}

#[test]
fn what_is_stored_reads_back() {
    let party = relying_party();
    let mut authenticator = Authenticator::new(Algorithm::Es256);
    let record = registered(&authenticator);
    let text = serde_json::to_string(&record).unwrap();
    let stored: Credential = serde_json::from_str(&text).unwrap();
    assert_eq!(stored, record);

    let (options, pending) = party
        .begin_authentication(Purpose::Login, Who::Anyone, &AuthenticationChoice::default(), NOW)
        .unwrap();
    let kept = serde_json::to_string(&pending).unwrap();
    let taken: Pending = serde_json::from_str(&kept).unwrap();
    assert_eq!(taken, pending);
    let response = authenticator.get(&options).response();
    let later = NOW + TIMEOUT - Duration::NANOSECOND;
    assert!(
        party.finish_authentication(taken, Purpose::Login, None, &response, Some(&stored), later).is_ok()
    );
}

/// §5.8.1: members that are not known are ignored, `tokenBinding` of Level 2 among them, and so is a byte order mark.
#[test]
fn client_data_may_say_more() {
    let mut authenticator = Authenticator::new(Algorithm::Es256);
    let party = relying_party();
    let record = registered(&authenticator);
    login(&party, &mut authenticator, &record, |using| {
        using.client.json["tokenBinding"] = json!({ "status": "present", "id": "x" });
        using.client.json["other_keys_can_be_added_here"] = json!([1, { "deep": null }]);
        let json = serde_json::to_vec(&using.client.json).unwrap();
        using.client.raw = Some([b"\xef\xbb\xbf", json.as_slice()].concat());
    })
    .unwrap();
}

/// What a program has had signed, as `fido2-assert` gives it.
fn assertion(response: &[u8]) -> Assertion {
    let response: serde_json::Value = serde_json::from_slice(response).unwrap();
    let part = |name: &str| {
        let text = response["response"][name].as_str().unwrap();
        data_encoding::BASE64URL_NOPAD.decode(text.as_bytes()).unwrap()
    };
    let (client_data, data) = (part("clientDataJSON"), part("authenticatorData"));
    Assertion::new(&client_data, &data, &part("signature"), &part("userHandle")).unwrap()
}

/// A page has the victim's browser sign what a program is to prove, or a false authority has the victim's program sign what the true one
/// has asked at a page or in a login of the thief's: who asked, and which authority was reached, is in what is signed.
#[test]
fn attacks_what_a_browser_has_had_signed_is_no_programs_and_the_other_way_round() {
    let mut authenticator = Authenticator::new(Algorithm::Es256);
    let party = relying_party();
    let record = registered(&authenticator);
    let ours = ["sha256:0a".to_owned(), "sha256:0b".to_owned()];
    let mut finish = |said: serde_json::Value, at_page: bool| {
        let choice = AuthenticationChoice::default();
        let (options, pending) =
            party.begin_authentication(Purpose::Login, Who::Anyone, &choice, NOW).unwrap();
        let mut using = authenticator.get(&options);
        if !said.is_null() {
            using.client.json["sallyportAuthority"] = said;
        }
        let response = match at_page {
            true => using.response(),
            false => {
                let known = std::slice::from_ref(&record);
                assertion(&using.json()).by_one_of(known, ours.to_vec()).unwrap()
            }
        };
        let done = party.finish_authentication(pending, Purpose::Login, None, &response, Some(&record), NOW);
        done.map(drop).map_err(|error| error.word())
    };
    let nothing = serde_json::Value::Null;
    assert_eq!(finish(nothing.clone(), true), Ok(()));
    assert_eq!(finish(json!(ours[0]), true), Err("asked_by_program"));
    assert_eq!(finish(json!("sha256:0c"), true), Err("asked_by_program"));
    assert_eq!(finish(nothing, false), Err("asked_by_browser"));
    for pin in &ours {
        assert_eq!(finish(json!(pin), false), Ok(()), "both of a rotation");
    }
    for other in ["sha256:0c", "", "sha256:0a,sha256:0b", "SHA256:0A"] {
        assert_eq!(finish(json!(other), false), Err("other_authority"), "{other}");
    }
    for odd in [json!([ours[0]]), json!({ "pin": ours[0] }), json!(7)] {
        assert_eq!(finish(odd.clone(), true), Err("bad_client_data"), "{odd}");
        assert_eq!(finish(odd.clone(), false), Err("bad_client_data"), "{odd}");
    }
}

/// §7.1 step 28 and §7.2 step 23: outputs that were not asked for are ignored.
#[test]
fn unsolicited_extensions_are_ignored() {
    let mut authenticator = Authenticator::new(Algorithm::Es256);
    let party = relying_party();
    let extension = cbor::map(&[(cbor::text("credProtect"), cbor::int(2))]);
    let registration = register(&party, &authenticator, |making| {
        making.data.extensions = Some(extension.clone());
        making.extension_results = json!({ "prf": { "enabled": true }, "appid": 7 });
    })
    .unwrap();
    assert_eq!(registration.credential.discoverable, None);
    let record = registration.credential;
    login(&party, &mut authenticator, &record, |using| using.data.extensions = Some(extension)).unwrap();
}

/// Secure Contexts §3.1: browsers take localhost as secure, so a cluster can be tried out there.
#[test]
fn localhost_needs_no_tls() {
    let party = RelyingParty::new("Tour", "localhost", ["http://localhost:3080"]).unwrap();
    let authenticator = Authenticator::new(Algorithm::Es256);
    register(&party, &authenticator, |making| making.client.json["origin"] = json!("http://localhost:3080"))
        .unwrap();
}

#[test]
fn a_relying_party_is_told_what_is_wrong_with_it() {
    let word = |rp_id: &str, origins: &[&str]| {
        RelyingParty::new("x", rp_id, origins.iter().copied()).unwrap_err().word()
    };
    assert_eq!(word("192.0.2.1", &["https://192.0.2.1"]), "bad_rp_id");
    assert_eq!(word("Example.org", &["https://example.org"]), "bad_rp_id");
    assert_eq!(word("https://example.org", &["https://example.org"]), "bad_rp_id");
    assert_eq!(word("example.org", &[]), "no_origin");
    assert_eq!(word("example.org", &["https://example.com"]), "bad_origin");
    assert_eq!(word("example.org", &["http://example.org"]), "bad_origin");
    assert_eq!(word("login.example.org", &["https://example.org"]), "bad_origin");
    let error = RelyingParty::new("x", "example.org", ["https://example.org:443"]).unwrap_err();
    assert!(error.to_string().contains("https://example.org"), "{error}");
}

#[test]
fn user_handles_have_64_bytes_at_most_and_no_name_in_them() {
    assert_eq!(UserHandle::new(Vec::new()).unwrap_err().word(), "bad_user_handle");
    assert_eq!(UserHandle::new(vec![0; 65]).unwrap_err().word(), "bad_user_handle");
    assert!(UserHandle::new(vec![0; 64]).is_ok());
    assert_ne!(UserHandle::random().unwrap(), UserHandle::random().unwrap());
    assert!(serde_json::from_str::<UserHandle>("\"\"").is_err());
    assert!(serde_json::from_str::<UserHandle>("\"YQ\"").is_ok());
    // Not canonical: the last character has bits that say nothing.
    assert!(serde_json::from_str::<UserHandle>("\"YR\"").is_err());
}
