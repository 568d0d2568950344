//! Each step of WebAuthn Level 3 §7.1 and §7.2 with what breaks it.

use serde_json::{Value, json};
use time::Duration;

use crate::authenticator::*;
use sallyport_webauthn::*;

/// Step, what is wrong, the word of the error, and what is done to the response.
type Cases<C> = &'static [(u8, &'static str, &'static str, C)];

/// Cases that take another relying party than that of the tables, or no response at all: step, and what is wrong.
const REGISTRATION_BESIDE: &[(u8, &str)] = &[
    (11, "in a page of another origin than those that are allowed"),
    (20, "an algorithm that was not offered"),
];
const AUTHENTICATION_BESIDE: &[(u8, &str)] =
    &[(3, "the answer to a registration"), (14, "in a page of another origin than those that are allowed")];

const REGISTRATION: Cases<fn(&mut Making<'_>)> = &[
    (6, "client data is not JSON", "bad_client_data", |making| making.client.raw = Some(b"{".to_vec())),
    (6, "client data is not UTF-8", "bad_client_data", |making| making.client.raw = Some(b"\xff{}".to_vec())),
    (6, "client data says a thing twice", "bad_client_data", |making| {
        let json = serde_json::to_string(&making.client.json).unwrap();
        making.client.raw = Some(json.replacen('{', "{\"origin\":\"https://example.org\",", 1).into_bytes());
    }),
    (6, "client data is huge", "bad_client_data", |making| {
        making.client.json["more"] = Value::from("x".repeat(MAX_CLIENT_DATA_BYTES));
    }),
    (7, "an assertion's type", "wrong_type", |making| making.client.json["type"] = json!("webauthn.get")),
    (7, "a payment's type", "wrong_type", |making| making.client.json["type"] = json!("payment.get")),
    (8, "another challenge", "challenge_mismatch", |making| {
        making.client.json["challenge"] = json!(Binary(vec![7; 32]).to_text());
    }),
    (8, "a padded challenge", "challenge_mismatch", |making| {
        let challenge = format!("{}=", making.client.json["challenge"].as_str().unwrap());
        making.client.json["challenge"] = json!(challenge);
    }),
    (9, "another origin", "wrong_origin", |making| {
        making.client.json["origin"] = json!("https://evil.example")
    }),
    (9, "a subdomain that is not configured", "wrong_origin", |making| {
        making.client.json["origin"] = json!("https://shop.example.org");
    }),
    (9, "another port", "wrong_origin", |making| {
        making.client.json["origin"] = json!("https://login.example.org:8443");
    }),
    (9, "another scheme", "wrong_origin", |making| {
        making.client.json["origin"] = json!("http://login.example.org");
    }),
    (10, "in a frame", "cross_origin", |making| making.client.json["crossOrigin"] = json!(true)),
    (10, "in a page of another origin", "cross_origin", |making| {
        making.client.json["topOrigin"] = json!("https://evil.example");
    }),
    (13, "data ends early", "bad_authenticator_data", |making| {
        making.data.attested = false;
        making.data.flags |= 0x40;
    }),
    (13, "bytes follow the data", "bad_authenticator_data", |making| making.data.trailing = vec![0]),
    (13, "the extensions are no map", "bad_authenticator_data", |making| {
        making.data.extensions = Some(vec![0])
    }),
    (13, "no credential", "no_credential", |making| making.data.attested = false),
    (13, "a key with a parameter more", "bad_authenticator_data", |making| {
        let point = making.data.cose.clone();
        making.data.cose = [&[0xa6], &point[1..], &cbor::int(-4), &cbor::int(0)].concat();
    }),
    (13, "a key with a parameter twice", "bad_authenticator_data", |making| {
        let point = making.data.cose.clone();
        making.data.cose = [&[0xa6][..], &cbor::int(1), &cbor::int(2), &point[1..]].concat();
    }),
    (13, "a key off its curve", "bad_authenticator_data", |making| {
        *making.data.cose.last_mut().unwrap() ^= 1;
    }),
    (13, "a key of another curve than its alg's", "bad_authenticator_data", |making| {
        making.data.cose[6] = 2;
    }),
    (13, "an algorithm that is not known", "bad_authenticator_data", |making| {
        making.data.cose[4] = 0x27 + 0x05;
    }),
    (14, "another RP ID", "rp_id_mismatch", |making| making.data.rp_id = "evil.example".to_owned()),
    (15, "no user touched it", "user_not_present", |making| making.data.flags = UV),
    (16, "no user was verified", "user_not_verified", |making| making.data.flags = UP),
    (17, "backed up, and never eligible", "backup_contradiction", |making| making.data.flags = UP | UV | BS),
    (21, "an unknown format", "unknown_format", |making| {
        making.statement = Statement::Raw("Packed", cbor::map(&[]));
    }),
    (22, "a statement in none", "bad_attestation", |making| {
        making.statement = Statement::Raw("none", cbor::map(&[(cbor::text("sig"), cbor::bytes(b"x"))]));
    }),
    (22, "self attestation naming another algorithm", "bad_attestation", |making| {
        making.statement = Statement::PackedSelf(Algorithm::EdDsa);
    }),
    (22, "a wrong signature", "bad_attestation", |making| {
        let fields = [
            (cbor::text("alg"), cbor::int(-7)),
            (cbor::text("sig"), cbor::bytes(&[0x30, 6, 2, 1, 1, 2, 1, 1])),
        ];
        making.statement = Statement::Raw("packed", cbor::map(&fields));
    }),
    (22, "no signature", "bad_attestation", |making| {
        making.statement = Statement::Raw("packed", cbor::map(&[(cbor::text("alg"), cbor::int(-7))]));
    }),
    (22, "a field that packed has not", "bad_attestation", |making| {
        let fields = [(cbor::text("alg"), cbor::int(-7)), (cbor::text("ver"), cbor::text("2.0"))];
        making.statement = Statement::Raw("packed", cbor::map(&fields));
    }),
    (22, "an empty chain", "bad_attestation", |making| {
        let fields = [
            (cbor::text("alg"), cbor::int(-7)),
            (cbor::text("sig"), cbor::bytes(b"x")),
            (cbor::text("x5c"), cbor::array(&[])),
        ];
        making.statement = Statement::Raw("packed", cbor::map(&fields));
    }),
    (25, "a credential ID of 1024 bytes", "bad_credential_id", |making| {
        making.data.id = vec![7; 1024];
        making.response_id = making.data.id.clone();
    }),
    (25, "an empty credential ID", "bad_credential_id", |making| {
        making.data.id.clear();
        making.response_id.clear();
    }),
    (3, "another credential ID than was made", "id_mismatch", |making| making.response_id = vec![1; 32]),
    (28, "credProps is no object", "bad_extension", |making| {
        making.extension_results = json!({ "credProps": 1 })
    }),
    (28, "rk is no boolean", "bad_extension", |making| {
        making.extension_results = json!({ "credProps": { "rk": "yes" } });
    }),
];

const AUTHENTICATION: Cases<fn(&mut Using<'_>)> = &[
    (5, "a credential that was not asked for", "not_allowed", |using| using.response_id = vec![9; 32]),
    (6, "the handle of another user", "user_handle_mismatch", |using| using.user = Some(vec![1; 32])),
    (7, "bytes follow the data", "bad_authenticator_data", |using| using.data.trailing = vec![0]),
    (7, "the extensions are not canonical", "bad_authenticator_data", |using| {
        using.data.extensions = Some(vec![0xa1, 0x18, 0x01, 0x00]);
    }),
    (9, "client data is not JSON", "bad_client_data", |using| using.client.raw = Some(b"null".to_vec())),
    (9, "client data has no challenge", "bad_client_data", |using| {
        using.client.json.as_object_mut().unwrap().remove("challenge");
    }),
    (10, "a registration's type", "wrong_type", |using| using.client.json["type"] = json!("webauthn.create")),
    (11, "another challenge", "challenge_mismatch", |using| using.client.json["challenge"] = json!("")),
    (12, "another origin", "wrong_origin", |using| {
        using.client.json["origin"] = json!("https://login.example.org.evil.example");
    }),
    (13, "in a frame", "cross_origin", |using| using.client.json["crossOrigin"] = json!(true)),
    (15, "another RP ID", "rp_id_mismatch", |using| using.data.rp_id = "login.example.org".to_owned()),
    (16, "no user touched it", "user_not_present", |using| using.data.flags = UV),
    (17, "no user was verified", "user_not_verified", |using| using.data.flags = UP),
    (18, "backed up, and never eligible", "backup_contradiction", |using| using.data.flags = UP | UV | BS),
    (19, "eligible for backup all at once", "backup_eligibility_changed", |using| {
        using.data.flags = UP | UV | BE
    }),
    (21, "a wrong signature", "bad_signature", |using| using.damage = 1),
    (22, "a counter that went back", "counter_backwards", |using| using.data.counter = 3),
    (22, "a counter that stood still", "counter_backwards", |using| using.data.counter = 7),
    (22, "a counter that is gone", "counter_backwards", |using| using.data.counter = 0),
];

#[test]
fn every_step_of_a_registration_is_checked() {
    let party = relying_party();
    let authenticator = Authenticator::new(Algorithm::Es256);
    for (step, what, word, change) in REGISTRATION {
        let error = register(&party, &authenticator, change).expect_err(what);
        assert_eq!((error.word(), error.steps().registration), (*word, Some(*step)), "{what}: {error}");
    }
    // Step 20: the same passkey is good where its algorithm is offered.
    let only = relying_party().with_algorithms(&[Algorithm::EdDsa, Algorithm::Rs256]);
    let error = register(&only, &authenticator, |_| ()).unwrap_err();
    assert_eq!((error.word(), error.steps().registration), ("algorithm_not_offered", Some(20)));
    let party = relying_party().with_cross_origin(CrossOrigin::Within(Vec::new()));
    let framed = |making: &mut Making<'_>| making.client.json["topOrigin"] = json!("https://evil.example");
    let error = register(&party, &authenticator, framed).unwrap_err();
    assert_eq!((error.word(), error.steps().registration), ("wrong_top_origin", Some(11)));
}

#[test]
fn every_step_of_an_authentication_is_checked() {
    let party = relying_party();
    let mut authenticator = Authenticator::new(Algorithm::Es256);
    let mut record = registered(&authenticator);
    record.sign_count = 7;
    for (step, what, word, change) in AUTHENTICATION {
        authenticator.counter = 7;
        let error = login(&party, &mut authenticator, &record, change).expect_err(what);
        assert_eq!((error.word(), error.steps().authentication), (*word, Some(*step)), "{what}: {error}");
    }
    let within = relying_party().with_cross_origin(CrossOrigin::Within(Vec::new()));
    let framed = |using: &mut Using<'_>| using.client.json["topOrigin"] = json!("https://evil.example");
    let error = login(&within, &mut authenticator, &record, framed).unwrap_err();
    assert_eq!((error.word(), error.steps().authentication), ("wrong_top_origin", Some(14)));
    // Step 3: the answer to the other ceremony has another form.
    let (options, _) =
        party.begin_registration(&authenticator.account(), &[], &RegistrationChoice::default(), NOW).unwrap();
    let error = AuthenticationResponse::parse(&authenticator.create(&options).json()).unwrap_err();
    assert_eq!((error.word(), error.steps().authentication), ("bad_response", Some(3)));
    // And without a change it is good.
    authenticator.counter = 7;
    login(&party, &mut authenticator, &record, |_| ()).unwrap();
}

/// What breaks a registration, with the step that it breaks.
pub fn broken_registrations() -> Vec<(u8, &'static str)> {
    let tried = REGISTRATION.iter().map(|(step, what, ..)| (*step, *what));
    tried.chain(REGISTRATION_BESIDE.iter().copied()).collect()
}

/// The same for an authentication.
pub fn broken_authentications() -> Vec<(u8, &'static str)> {
    let tried = AUTHENTICATION.iter().map(|(step, what, ..)| (*step, *what));
    tried.chain(AUTHENTICATION_BESIDE.iter().copied()).collect()
}

type Makes = fn(&mut Making<'_>);
type Uses = fn(&mut Using<'_>);

/// What is at the edge of a step, and on its good side.
const REGISTERS: &[(&str, Makes)] = &[
    ("step 5: a byte order mark", |making| {
        let json = serde_json::to_vec(&making.client.json).unwrap();
        making.client.raw = Some([b"\xef\xbb\xbf", json.as_slice()].concat());
    }),
    ("step 6: a member that is not known", |making| {
        making.client.json["tokenBinding"] = json!({ "status": "supported" });
    }),
    ("step 9: the other origin that is configured", |making| {
        making.client.json["origin"] = json!("https://example.org");
    }),
    ("step 10: a browser that says nothing of frames", |making| {
        making.client.json.as_object_mut().unwrap().remove("crossOrigin");
    }),
    ("step 17: eligible, and not backed up", |making| making.data.flags = UP | UV | BE),
    ("step 17: eligible, and backed up", |making| making.data.flags = UP | UV | BE | BS),
    ("step 25: a credential ID of one byte", |making| {
        making.data.id = vec![7];
        making.response_id = vec![7];
    }),
    ("step 25: a credential ID of 1023 bytes", |making| {
        making.data.id = vec![7; MAX_CREDENTIAL_ID_BYTES];
        making.response_id = making.data.id.clone();
    }),
    ("step 28: no output of an extension", |making| making.extension_results = json!({})),
    ("step 28: credProps says nothing", |making| making.extension_results = json!({ "credProps": {} })),
];
const LOGS_IN: &[(&str, Uses)] = &[
    ("step 6: no handle of a user who is known", |using| using.user = None),
    ("step 12: the other origin that is configured", |using| {
        using.client.json["origin"] = json!("https://example.org");
    }),
    ("step 13: a browser that says nothing of frames", |using| {
        using.client.json.as_object_mut().unwrap().remove("crossOrigin");
    }),
    ("step 22: a counter that has grown by one", |using| using.data.counter = 8),
    ("step 22: a counter that is at its end", |using| using.data.counter = u32::MAX),
];

#[test]
fn what_the_steps_allow_is_good() {
    let party = relying_party();
    let mut authenticator = Authenticator::new(Algorithm::Es256);
    for (what, change) in REGISTERS {
        register(&party, &authenticator, change).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    // Steps 10 and 11: in a frame, where the page around it may have one.
    let top = "https://intranet.example.com";
    let within = CrossOrigin::Within(vec![Origin::parse(top).unwrap()]);
    register(&relying_party().with_cross_origin(within), &authenticator, |making| {
        making.client.json["crossOrigin"] = json!(true);
        making.client.json["topOrigin"] = json!(top);
    })
    .unwrap();
    let mut record = registered(&authenticator);
    record.sign_count = 7;
    for (what, change) in LOGS_IN {
        authenticator.counter = 7;
        let done = login(&party, &mut authenticator, &record, change);
        let done = done.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(!done.clone_suspected, "{what}");
    }
}

#[test]
fn ceremonies_are_bound() {
    let party = relying_party();
    let mut authenticator = Authenticator::new(Algorithm::Es256);
    let record = registered(&authenticator);
    let account = authenticator.account();
    let stranger = UserHandle::random().unwrap();
    let who = Who::User { handle: &record.user, credentials: std::slice::from_ref(&record) };
    let begin =
        |purpose| party.begin_authentication(purpose, who, &AuthenticationChoice::default(), NOW).unwrap();

    // To their kind.
    let (creation, registration) =
        party.begin_registration(&account, &[], &RegistrationChoice::default(), NOW).unwrap();
    let made = authenticator.create(&creation).response();
    let (options, authentication) = begin(Purpose::AddFactor);
    let used = authenticator.get(&options).response();
    let error =
        party.finish_authentication(registration, Purpose::AddFactor, None, &used, Some(&record), NOW);
    assert_eq!(error.unwrap_err().word(), "wrong_ceremony");
    let error = party.finish_registration(authentication, &record.user, &made, None, "key", NOW);
    assert_eq!(error.unwrap_err().word(), "wrong_ceremony");

    // To what they are for: a login is no confirmation, and the other way round.
    for (begun, finished) in [
        (Purpose::Login, Purpose::StepUp),
        (Purpose::StepUp, Purpose::Login),
        (Purpose::Login, Purpose::AddFactor),
        (Purpose::StepUp, Purpose::AddFactor),
    ] {
        let (options, pending) = begin(begun);
        let used = authenticator.get(&options).response();
        let error = party.finish_authentication(pending, finished, None, &used, Some(&record), NOW);
        assert_eq!(error.unwrap_err().word(), "wrong_purpose");
    }

    // To their user.
    let (creation, pending) =
        party.begin_registration(&account, &[], &RegistrationChoice::default(), NOW).unwrap();
    let made = authenticator.create(&creation).response();
    let error = party.finish_registration(pending, &stranger, &made, None, "key", NOW);
    assert_eq!(error.unwrap_err().word(), "wrong_user");
    let (options, pending) = begin(Purpose::StepUp);
    let used = authenticator.get(&options).response();
    let user = Some(&stranger);
    let error = party.finish_authentication(pending, Purpose::StepUp, user, &used, Some(&record), NOW);
    assert_eq!(error.unwrap_err().word(), "wrong_user");

    // To their relying party.
    let (options, pending) = begin(Purpose::Login);
    let used = authenticator.get(&options).response();
    let moved = RelyingParty::new("Example", "login.example.org", [ORIGIN]).unwrap();
    let error = moved.finish_authentication(pending, Purpose::Login, None, &used, Some(&record), NOW);
    assert_eq!(error.unwrap_err().word(), "wrong_relying_party");

    // To their time.
    let (options, pending) = begin(Purpose::Login);
    let used = authenticator.get(&options).response();
    let late = NOW + TIMEOUT;
    let error = party.finish_authentication(pending, Purpose::Login, None, &used, Some(&record), late);
    assert_eq!(error.unwrap_err().word(), "expired");
    let (creation, pending) =
        party.begin_registration(&account, &[], &RegistrationChoice::default(), NOW).unwrap();
    let made = authenticator.create(&creation).response();
    let late = late + Duration::days(1);
    let error = party.finish_registration(pending, &account.handle, &made, None, "key", late).unwrap_err();
    assert_eq!((error.word(), error.steps().registration), ("expired", Some(1)));

    // To their challenge: the response to one is none to the next. That a ceremony is finished once the compiler says, since
    // finishing takes it.
    let (options, _) = begin(Purpose::Login);
    let used = authenticator.get(&options).response();
    let (_, next) = begin(Purpose::Login);
    let error = party.finish_authentication(next, Purpose::Login, None, &used, Some(&record), NOW);
    assert_eq!(error.unwrap_err().word(), "challenge_mismatch");
}

/// §7.1 step 26: otherwise a passkey of the victim's could be taken over, or one of the thief's slipped in.
#[test]
fn a_credential_is_registered_once() {
    let party = relying_party();
    let thief = Authenticator::new(Algorithm::Es256);
    let victims = registered(&Authenticator::new(Algorithm::Es256));
    let account = thief.account();
    let (options, pending) =
        party.begin_registration(&account, &[], &RegistrationChoice::default(), NOW).unwrap();
    let mut making = thief.create(&options);
    making.data.id = victims.id.0.clone();
    making.response_id = victims.id.0.clone();
    let response = making.response();
    assert_eq!(response.credential_id(), &victims.id);
    let error = party.finish_registration(pending, &account.handle, &response, Some(&victims), "key", NOW);
    let error = error.unwrap_err();
    assert_eq!((error.word(), error.steps().registration), ("already_registered", Some(26)));
}

/// §7.2 step 6.
#[test]
fn no_user_logs_in_as_another() {
    let party = relying_party();
    let mut thief = Authenticator::new(Algorithm::EdDsa);
    let thiefs = registered(&thief);
    let victims = registered(&Authenticator::new(Algorithm::EdDsa));

    // With a passkey of his own, and the victim's handle.
    let handle = victims.user.as_bytes().to_vec();
    let error = login_by_passkey(&party, &mut thief, Some(&thiefs), |using| using.user = Some(handle));
    assert_eq!(error.unwrap_err().word(), "user_handle_mismatch");
    // With the victim's ID over a signature of his own.
    let error = login_by_passkey(&party, &mut thief, Some(&victims), |using| {
        using.response_id = victims.id.0.clone();
        using.user = Some(victims.user.as_bytes().to_vec());
    });
    assert_eq!(error.unwrap_err().word(), "bad_signature");
    // Where the victim's was asked for, and the store's list of the victim's passkeys has the thief's.
    let who = Who::User { handle: &victims.user, credentials: std::slice::from_ref(&thiefs) };
    let choice = AuthenticationChoice::default();
    let (options, pending) = party.begin_authentication(Purpose::Login, who, &choice, NOW).unwrap();
    let used = thief.get(&options).response();
    let error = party.finish_authentication(pending, Purpose::Login, None, &used, Some(&thiefs), NOW);
    assert_eq!(error.unwrap_err().word(), "other_users_credential");

    // A passkey of no user, and no such user.
    let error = login_by_passkey(&party, &mut thief, None, |_| ()).unwrap_err();
    assert_eq!((error.word(), error.steps().authentication), ("unknown_credential", Some(6)));
    let error = login_by_passkey(&party, &mut thief, Some(&victims), |_| ()).unwrap_err();
    assert_eq!(error.word(), "unknown_credential");
    let error = login_by_passkey(&party, &mut thief, Some(&thiefs), |using| using.user = None).unwrap_err();
    assert_eq!((error.word(), error.steps().authentication), ("no_user_handle", Some(6)));
    let error = login_by_passkey(&party, &mut thief, Some(&thiefs), |using| using.user = Some(Vec::new()));
    assert_eq!(error.unwrap_err().word(), "no_user_handle");
}

/// A signature that a key made in another way than its credential's is none: ES256 keys do not become RS256 ones.
#[test]
fn an_algorithm_is_not_swapped_after_the_registration() {
    let party = relying_party();
    let mut authenticator = Authenticator::new(Algorithm::Es256);
    let mut record = registered(&authenticator);
    record.public_key = registered(&Authenticator::new(Algorithm::EdDsa)).public_key;
    let error = login(&party, &mut authenticator, &record, |_| ()).unwrap_err();
    assert_eq!(error.word(), "bad_signature");
    record.public_key = Binary(vec![0xa0]);
    let error = login(&party, &mut authenticator, &record, |_| ()).unwrap_err();
    assert_eq!(error.word(), "bad_record");
}

/// What a person reads says what to do, and what a stranger sent does not make it long.
#[test]
fn errors_are_for_people() {
    let party = relying_party();
    let authenticator = Authenticator::new(Algorithm::Es256);
    let error = register(&party, &authenticator, |making| {
        making.client.json["origin"] = json!(format!("https://{}.example", "x".repeat(4000)));
    })
    .unwrap_err();
    let text = error.to_string();
    assert!(text.len() < 400, "{text}");
    assert!(text.contains(ORIGIN) && text.contains("check the address"), "{text}");
}
