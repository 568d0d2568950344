//! What the relying party's rules change.

use serde_json::json;

use crate::authenticator::*;
use sallyport_webauthn::*;

#[test]
fn verification_is_as_the_policy_says() {
    let mut authenticator = Authenticator::new(Algorithm::Es256);
    for rule in [UserVerification::Preferred, UserVerification::Discouraged] {
        let party = relying_party().with_user_verification(rule);
        let record = register(&party, &authenticator, |making| making.data.flags = UP).unwrap().credential;
        assert!(!record.user_verified);
        let done = login(&party, &mut authenticator, &record, |using| using.data.flags = UP).unwrap();
        assert!(!done.user_verified);
    }
    // One ceremony may ask for more than the relying party does; what was asked for is what counts.
    let party = relying_party().with_user_verification(UserVerification::Discouraged);
    let record = registered(&authenticator);
    let who = Who::User { handle: &record.user, credentials: std::slice::from_ref(&record) };
    let choice =
        AuthenticationChoice { user_verification: Some(UserVerification::Required), ..Default::default() };
    let (options, pending) = party.begin_authentication(Purpose::StepUp, who, &choice, NOW).unwrap();
    let mut using = authenticator.get(&options);
    using.data.flags = UP;
    let response = using.response();
    let error = party.finish_authentication(pending, Purpose::StepUp, None, &response, Some(&record), NOW);
    assert_eq!(error.unwrap_err().word(), "user_not_verified");
}

#[test]
fn a_copy_is_refused_or_told_of() {
    let flagging = relying_party().with_counter(CounterPolicy::Flag);
    let mut authenticator = Authenticator::new(Algorithm::EdDsa);
    let mut record = registered(&authenticator);
    record.sign_count = 41;
    authenticator.counter = 4;
    let done = login(&flagging, &mut authenticator, &record, |_| ()).unwrap();
    assert!(done.clone_suspected);
    // The higher one stays, so the copy is found by each of its uses.
    assert_eq!(done.credential.sign_count, 41);
    assert!(login(&relying_party(), &mut authenticator, &done.credential, |_| ()).is_err());
    // A synchronised passkey has no counter, and is no copy for that.
    let mut record = registered(&authenticator);
    record.sign_count = 0;
    let done = login(&relying_party(), &mut authenticator, &record, |using| using.data.counter = 0).unwrap();
    assert!(!done.clone_suspected);
}

#[test]
fn backup_flags_are_kept_and_compared() {
    let party = relying_party();
    let mut authenticator = Authenticator::new(Algorithm::Es256);
    let record =
        register(&party, &authenticator, |making| making.data.flags = UP | UV | BE).unwrap().credential;
    assert!(record.backup_eligible && !record.backed_up);
    let done =
        login(&party, &mut authenticator, &record, |using| using.data.flags = UP | UV | BE | BS).unwrap();
    assert_eq!((done.backup_changed, done.credential.backed_up), (Some(true), true));
    let record = done.credential;
    let done =
        login(&party, &mut authenticator, &record, |using| using.data.flags = UP | UV | BE | BS).unwrap();
    assert_eq!(done.backup_changed, None);
    let error = login(&party, &mut authenticator, &record, |_| ()).unwrap_err();
    assert_eq!(error.word(), "backup_eligibility_changed");
    assert!(error.to_string().contains("eligible for backup"), "{error}");
}

#[test]
fn passkeys_that_can_be_copied_can_be_refused() {
    let party = relying_party().with_backup(BackupPolicy::DeviceBound);
    let mut authenticator = Authenticator::new(Algorithm::Es256);
    let error = register(&party, &authenticator, |making| making.data.flags = UP | UV | BE).unwrap_err();
    assert_eq!((error.word(), error.steps().registration), ("backup_refused", Some(18)));
    register(&party, &authenticator, |_| ()).unwrap();
    // One that was registered before the rule came.
    let mut record = registered(&authenticator);
    record.backup_eligible = true;
    let error =
        login(&party, &mut authenticator, &record, |using| using.data.flags = UP | UV | BE).unwrap_err();
    assert_eq!((error.word(), error.steps().authentication), ("backup_refused", Some(19)));
}

#[test]
fn frames_are_those_that_are_configured() {
    let top = "https://intranet.example.com";
    let party = relying_party().with_cross_origin(CrossOrigin::Within(vec![Origin::parse(top).unwrap()]));
    let mut authenticator = Authenticator::new(Algorithm::Es256);
    let record = registered(&authenticator);
    for allowed in [top, "https://example.org"] {
        login(&party, &mut authenticator, &record, |using| {
            using.client.json["crossOrigin"] = json!(true);
            using.client.json["topOrigin"] = json!(allowed);
        })
        .unwrap();
    }
    login(&party, &mut authenticator, &record, |using| using.client.json["crossOrigin"] = json!(true))
        .unwrap();
    let error = login(&party, &mut authenticator, &record, |using| {
        using.client.json["topOrigin"] = json!("https://intranet.example.com.evil.example");
    });
    assert_eq!(error.unwrap_err().word(), "wrong_top_origin");
}
