//! Whatever is sent, there is a verdict; and whatever is changed in a good response, it is bad.

use proptest::prelude::*;
use sallyport_sal::hash;
use sallyport_webauthn::*;
use serde_json::{Value, json};

use crate::authenticator::*;

#[test]
fn what_is_no_response_is_refused() {
    let authenticator = Authenticator::new(Algorithm::Es256);
    let choice = RegistrationChoice::default();
    let (options, _) =
        relying_party().begin_registration(&authenticator.account(), &[], &choice, NOW).unwrap();
    let good: Value = serde_json::from_slice(&authenticator.create(&options).json()).unwrap();
    let word = |change: &dyn Fn(&mut Value)| {
        let mut json = good.clone();
        change(&mut json);
        RegistrationResponse::parse(&serde_json::to_vec(&json).unwrap()).unwrap_err().word()
    };
    assert_eq!(word(&|json| json["type"] = json!("password")), "bad_response");
    assert_eq!(word(&|json| json["rawId"] = json!("AAAA")), "id_mismatch");
    assert_eq!(word(&|json| json["id"] = json!("A")), "bad_response");
    assert_eq!(word(&|json| json["response"]["attestationObject"] = json!("AA==")), "bad_response");
    assert_eq!(word(&|json| json["response"]["attestationObject"] = json!("+/8")), "bad_response");
    assert_eq!(word(&|json| json["response"]["attestationObject"] = json!([1, 2])), "bad_response");
    assert_eq!(word(&|json| json["response"]["clientDataJSON"] = json!(null)), "bad_response");
    assert_eq!(word(&|json| json["response"] = json!({})), "bad_response");
    assert_eq!(word(&|json| *json = json!([])), "bad_response");
    assert_eq!(word(&|json| json["id"] = json!("A".repeat(MAX_RESPONSE_BYTES))), "too_large");
    assert_eq!(RegistrationResponse::parse(b"").unwrap_err().word(), "bad_response");
    // A member twice could be read in two ways.
    let text = serde_json::to_string(&good).unwrap();
    let twice = text.replacen('{', "{\"type\":\"public-key\",", 1);
    assert_eq!(RegistrationResponse::parse(twice.as_bytes()).unwrap_err().word(), "bad_response");
    // Handles of more than 64 bytes belong to no user.
    let mut authenticator = authenticator;
    let choice = AuthenticationChoice::default();
    let (options, _) =
        relying_party().begin_authentication(Purpose::Login, Who::Anyone, &choice, NOW).unwrap();
    let mut using = authenticator.get(&options);
    using.user = Some(vec![0; 65]);
    assert_eq!(AuthenticationResponse::parse(&using.json()).unwrap_err().word(), "bad_response");
}

#[test]
fn attestation_objects_are_whole_and_nothing_more() {
    let party = relying_party();
    let authenticator = Authenticator::new(Algorithm::Es256);
    let account = authenticator.account();
    let try_with = |change: &dyn Fn(Vec<u8>) -> Vec<u8>| {
        let (options, pending) =
            party.begin_registration(&account, &[], &RegistrationChoice::default(), NOW).unwrap();
        let making = authenticator.create(&options);
        let response = RegistrationResponse::parse(&making.json_with(&change(making.object()))).unwrap();
        party.finish_registration(pending, &account.handle, &response, None, "key", NOW)
    };
    let refused = |what: &str, change: &dyn Fn(Vec<u8>) -> Vec<u8>| {
        let error = try_with(change).expect_err(what);
        assert_eq!(error.word(), "bad_attestation_object", "{what}: {error}");
        assert_eq!(error.steps().registration, Some(13));
    };
    try_with(&|object| object).unwrap();
    refused("trailing bytes", &|object| [object, vec![0]].concat());
    refused("cut short", &|object| object[..object.len() - 1].to_vec());
    refused("nothing", &|_| Vec::new());
    refused("no map", &|_| cbor::array(&[]));
    refused("a key twice", &|object| {
        [&[0xa4][..], &cbor::text("fmt"), &cbor::text("none"), &object[1..]].concat()
    });
    refused("an indefinite length", &|object| [&[0xbf][..], &object[1..], &[0xff]].concat());
    refused("a long form", &|object| [&[0xb8, 3][..], &object[1..]].concat());
    refused("too long", &|object| {
        [&[0xa4][..], &object[1..], &cbor::text("zzzzzzzzz"), &cbor::bytes(&[0; MAX_CBOR_BYTES])].concat()
    });
    refused("a statement that is no map", &|_| {
        cbor::map(&[
            (cbor::text("fmt"), cbor::text("none")),
            (cbor::text("attStmt"), cbor::array(&[])),
            (cbor::text("authData"), cbor::bytes(&[0; 37])),
        ])
    });
    refused("no data", &|_| {
        cbor::map(&[(cbor::text("fmt"), cbor::text("none")), (cbor::text("attStmt"), cbor::map(&[]))])
    });
    // Another order of the three, and a key beside them, are the client's business.
    try_with(&|object| {
        let end = 1 + cbor::text("fmt").len() + cbor::text("none").len();
        [&[0xa3][..], &object[end..], &object[1..end]].concat()
    })
    .unwrap();
}

/// Each byte of the data, of the client data and of the signature is covered by the signature, or by a check.
#[test]
fn no_byte_of_a_login_can_be_changed() {
    let party = relying_party();
    let mut authenticator = Authenticator::new(Algorithm::EdDsa);
    let record = registered(&authenticator);
    let choice = AuthenticationChoice::default();
    let mut attempt = |at: usize, bit: u8| {
        let (options, pending) =
            party.begin_authentication(Purpose::Login, Who::Anyone, &choice, NOW).unwrap();
        let mut using = authenticator.get(&options);
        let mut data = using.data.bytes();
        let mut client = using.client.bytes();
        let parts = [&data[..], &hash::sha256(&client)].concat();
        let json: Value = serde_json::from_slice(&using.json()).unwrap();
        let mut signature = data_encoding::BASE64URL_NOPAD
            .decode(json["response"]["signature"].as_str().unwrap().as_bytes())
            .unwrap();
        let whole = parts.len() - 32 + client.len() + signature.len();
        let all = [&mut data, &mut client, &mut signature];
        let mut left = at;
        for part in all {
            if left < part.len() {
                part[left] ^= bit;
                break;
            }
            left -= part.len();
        }
        using.client.raw = Some(client);
        let response = AuthenticationResponse::parse(&using.json_of(&data, &signature)).unwrap();
        let done = party.finish_authentication(pending, Purpose::Login, None, &response, Some(&record), NOW);
        (whole, done.is_ok())
    };
    let (length, good) = attempt(usize::MAX, 0);
    assert!(good);
    for at in 0..length {
        for bit in [0x01, 0x20, 0x80] {
            assert!(!attempt(at, bit).1, "byte {at}, bit {bit:02x}");
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_response_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(RegistrationResponse::parse(&bytes).is_err());
        prop_assert!(AuthenticationResponse::parse(&bytes).is_err());
        prop_assert!(Metadata::parse(&bytes).is_err());
    }

    #[test]
    fn any_text_is_an_origin_that_reads_back_or_none(text in "(https?://)?[a-z0-9.:-]{0,20}") {
        if let Ok(origin) = Origin::parse(&text) {
            prop_assert_eq!(origin.as_str(), &text);
            prop_assert!(text.contains(origin.host()));
        }
    }

    /// Whatever the attestation object and the client data are, there is a verdict, and it is no.
    #[test]
    fn any_bytes_register_nothing(
        object in proptest::collection::vec(any::<u8>(), 0..300),
        data in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let party = relying_party();
        let authenticator = Authenticator::new(Algorithm::EdDsa);
        let account = authenticator.account();
        let wrapped = cbor::map(&[
            (cbor::text("fmt"), cbor::text("packed")),
            (cbor::text("attStmt"), cbor::map(&[(cbor::text("alg"), cbor::bytes(&object))])),
            (cbor::text("authData"), cbor::bytes(&data)),
        ]);
        for object in [&object, &wrapped] {
            let choice = RegistrationChoice::default();
            let (options, pending) = party.begin_registration(&account, &[], &choice, NOW).unwrap();
            let response = RegistrationResponse::parse(&authenticator.create(&options).json_with(object)).unwrap();
            prop_assert!(party.finish_registration(pending, &account.handle, &response, None, "", NOW).is_err());
        }
    }
}
