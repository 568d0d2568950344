//! What a browser sends for a passkey: nothing that an authenticator of ours did not sign is ever good, and whatever it is,
//! there is a verdict.
//!
//! The first byte says what the rest is put into: a whole response, or one part of it with the others right.

use std::sync::OnceLock;

use data_encoding::BASE64URL_NOPAD;
use sallyport_sal::{KeyAlgorithm, MemoryKey, Signer, hash};
use sallyport_webauthn::{
    Account, AuthenticationChoice, AuthenticationResponse, Credential, Metadata, Origin, Purpose,
    RegistrationChoice, RegistrationResponse, RelyingParty, UserHandle, Who,
};
use time::OffsetDateTime;

struct Fixture {
    party: RelyingParty,
    user: UserHandle,
    record: Credential,
}

const ORIGIN: &str = "https://example.org";
const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

fn fixture() -> &'static Fixture {
    static FIXTURE: OnceLock<Fixture> = OnceLock::new();
    FIXTURE.get_or_init(|| {
        let party = RelyingParty::new("Fuzz", "example.org", [ORIGIN]).expect("a relying party");
        let user = UserHandle::new(vec![7; 32]).expect("a handle");
        let key = MemoryKey::generate(KeyAlgorithm::Ed25519).expect("a key").public_key();
        let cose = [&[0xa4, 0x01, 0x01, 0x03, 0x27, 0x20, 0x06, 0x21, 0x58, 0x20][..], key.raw()].concat();
        let record = serde_json::json!({
            "id": "AQ", "user": user, "public_key": BASE64URL_NOPAD.encode(&cose), "sign_count": 0,
            "backup_eligible": false, "backed_up": false, "user_verified": true, "transports": [],
            "aaguid": "00000000-0000-0000-0000-000000000000", "attestation": { "format": "none", "proof": "absent" },
            "discoverable": null, "created": "2026-01-01T00:00:00Z", "last_used": null, "nickname": "",
        });
        Fixture { party, user, record: serde_json::from_value(record).expect("a record") }
    })
}

fn client(kind: &str, challenge: &[u8]) -> Vec<u8> {
    format!(r#"{{"type":"{kind}","challenge":"{}","origin":"{ORIGIN}"}}"#, BASE64URL_NOPAD.encode(challenge))
        .into_bytes()
}

/// Finishes a registration with whatever parts. One may succeed: any client can make a passkey.
fn register(parts: impl FnOnce(&[u8]) -> Vec<u8>) {
    let Fixture { party, user, .. } = fixture();
    let account = Account { handle: user.clone(), name: "f".to_owned(), display_name: String::new() };
    let begun = party.begin_registration(&account, &[], &RegistrationChoice::default(), NOW);
    let (_, pending) = begun.expect("randomness");
    let json = parts(pending.challenge());
    let Ok(response) = RegistrationResponse::parse(&json) else { return };
    if let Ok(done) = party.finish_registration(pending, user, &response, None, "", NOW) {
        // What is stored can be used.
        assert!(done.credential.algorithm().is_ok());
        let json = serde_json::to_vec(&done.credential).expect("JSON");
        assert_eq!(serde_json::from_slice::<Credential>(&json).expect("a record"), done.credential);
    }
}

/// Finishes a login with whatever parts. None may succeed, since the key is gone.
fn login(parts: impl FnOnce(&[u8]) -> Vec<u8>) {
    let Fixture { party, record, .. } = fixture();
    let choice = AuthenticationChoice::default();
    let begun = party.begin_authentication(Purpose::Login, Who::Anyone, &choice, NOW);
    let (_, pending) = begun.expect("randomness");
    let json = parts(pending.challenge());
    let Ok(response) = AuthenticationResponse::parse(&json) else { return };
    assert!(
        party.finish_authentication(pending, Purpose::Login, None, &response, Some(record), NOW).is_err()
    );
}

fn created(client: &[u8], object: &[u8]) -> Vec<u8> {
    let (client, object) = (BASE64URL_NOPAD.encode(client), BASE64URL_NOPAD.encode(object));
    format!(
        r#"{{"id":"AQ","rawId":"AQ","type":"public-key","response":{{"clientDataJSON":"{client}","attestationObject":"{object}"}}}}"#
    )
    .into_bytes()
}

fn used(client: &[u8], data: &[u8], signature: &[u8]) -> Vec<u8> {
    let [client, data, signature] = [client, data, signature].map(|part| BASE64URL_NOPAD.encode(part));
    let user = BASE64URL_NOPAD.encode(fixture().user.as_bytes());
    format!(
        r#"{{"id":"AQ","rawId":"AQ","type":"public-key","response":{{"clientDataJSON":"{client}","authenticatorData":"{data}","signature":"{signature}","userHandle":"{user}"}}}}"#
    )
    .into_bytes()
}

/// The start of authenticator data that is right: RP ID, UP and UV, and more flags.
fn right(flags: u8) -> Vec<u8> {
    let mut data = hash::sha256(b"example.org").to_vec();
    data.extend([0x05 | flags, 0, 0, 0, 1]);
    data
}

fuzz_target!(|data: (u8, &[u8])| {
    let (part, bytes) = data;
    match part % 8 {
        0 => {
            register(|_| bytes.to_vec());
            login(|_| bytes.to_vec());
        }
        1 => register(|_| created(bytes, &[0xa0])),
        2 => register(|challenge| created(&client("webauthn.create", challenge), bytes)),
        3 => {
            // An attestation object with any statement, over authenticator data that is right up to its AAGUID.
            let (statement, rest) = bytes.split_at(bytes.len() / 2);
            let data = [&right(0x40)[..], rest].concat();
            let length = u16::try_from(data.len()).unwrap_or(u16::MAX).to_be_bytes();
            let object = [
                &[0xa3, 0x63][..],
                b"fmt",
                &[0x66],
                b"packed",
                &[0x67],
                b"attStmt",
                statement,
                &[0x68],
                b"authData",
                &[0x59],
                &length,
                &data,
            ]
            .concat();
            register(|challenge| created(&client("webauthn.create", challenge), &object));
        }
        4 => login(|_| used(bytes, &right(0), &[0; 64])),
        5 => login(|challenge| {
            used(&client("webauthn.get", challenge), &[&right(0x80)[..], bytes].concat(), &[0; 64])
        }),
        6 => login(|challenge| used(&client("webauthn.get", challenge), &right(0), bytes)),
        _ => {
            let _ = Metadata::parse(bytes);
            let text = String::from_utf8_lossy(bytes);
            if let Ok(origin) = Origin::parse(&text) {
                assert_eq!(origin.as_str(), text);
            }
        }
    }
});
