//! What a cluster demands of passkeys: sign counts, copies on other devices, models of authenticators, and the pages at which they work.

use data_encoding::{BASE64, BASE64URL_NOPAD};
use sallyport_sal::{KeyAlgorithm, MemoryKey, Signer};
use sallyport_server::config::Models;
use sallyport_webauthn::{BackupPolicy, CounterPolicy};
use serde_json::json;
use tonic::Code;
use uuid::Uuid;

use super::*;

/// Another address of the cluster's proxies.
const OTHER_ORIGIN: &str = "https://eu.sallyport.example.org:3080";
/// Where the flags stand in authenticator data, and where the model does (WebAuthn L3 §6.1, §6.5.1).
const FLAGS: usize = 32;
const MODEL: std::ops::Range<usize> = 37..53;
const BACKUP_ELIGIBLE: u8 = 0x08;
const BACKED_UP: u8 = 0x10;

fn webauthn(config: &mut Config) -> &mut WebauthnSection {
    config.auth.as_mut().unwrap().authentication.webauthn.as_mut().unwrap()
}

/// Opens the page at which a user without a factor makes a passkey: the page, and what the browser is asked.
async fn asked(bench: &Bench<'_>, user: &User, name: &str) -> (v1::ChallengePage, String) {
    let request = v1::BeginAddFactorRequest {
        factor: Some(to_add("webauthn", name)),
        proof: proof(Proof::Password(PASSWORD.to_owned())),
        host_name: String::new(),
    };
    let begun = factors(user).await.begin_add(request).await.unwrap().into_inner();
    let page = begun.page.unwrap();
    let options = bench.web.clone().begin_enrolment(begin_at(&page.challenge, &begun.code)).await.unwrap();
    (page, options.into_inner().options_json)
}

/// Gives that page what the browser has answered.
async fn answered(bench: &Bench<'_>, page: &v1::ChallengePage, response: String) -> Result<(), Status> {
    let request = v1::WebFinishEnrolmentRequest {
        id: page.challenge.clone(),
        address: BROWSER.to_owned(),
        response_json: response,
    };
    bench.web.clone().finish_enrolment(request).await.map(drop)
}

/// A user's passkeys: their models, and whether they are synced.
async fn passkeys(user: &User) -> Vec<(String, bool)> {
    let list = factors(user).await.list(v1::ListFactorsRequest {}).await.unwrap().into_inner();
    list.factors.into_iter().map(|factor| (factor.model, factor.backed_up)).collect()
}

/// The same proof at the page of a login and at that of an approval.
async fn proves(bench: &Bench<'_>, user: &User, key: &mut Authenticator) -> Result<(), Status> {
    let begun = bench.begin(PORT).await?;
    let proven = bench.prove(&begun, key).await?;
    assert_eq!(bench.finish(&begun, &code_of(&proven)).await?.user, user.name);
    let approval = bench.begin_proof(user, Purpose::RecoveryCodes(true)).await?;
    bench.approve(&approval, key).await.map(drop)
}

/// When the sign count of a user's passkey last did not grow, as the user reads it.
async fn went_back(user: &User) -> Option<OffsetDateTime> {
    let listed = factors(user).await.list(v1::ListFactorsRequest {}).await.unwrap().into_inner();
    let at = listed.factors[0].counter_went_back.as_ref();
    at.and_then(sallyport_wire::convert::time_from_proto)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_passkey_whose_count_goes_back_is_refused() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let mut key = bench.first_passkey(&alice).await;
    proves(&bench, &alice, &mut key).await.unwrap();
    assert_eq!(went_back(&alice).await, None);
    // The copy was made before the passkey was used.
    key.counter = 0;
    let begun = bench.begin(PORT).await.unwrap();
    let refused = bench.prove(&begun, &mut key).await.unwrap_err();
    assert!(support::is(&refused, Code::PermissionDenied, "a copy of it may be in use"), "{refused:?}");
    let at_login = went_back(&alice).await;
    assert!(at_login.is_some(), "its user reads of it where the factors are listed");
    assert_eq!(bench.events("SP1000W", "alice").await[0]["message"], "counter_backwards");
    key.counter = 0;
    let approval = bench.begin_proof(&alice, Purpose::RecoveryCodes(true)).await.unwrap();
    let refused = bench.approve(&approval, &mut key).await.unwrap_err();
    assert!(support::is(&refused, Code::PermissionDenied, "a copy of it may be in use"), "{refused:?}");
    assert_eq!(bench.events("SP1015W", "alice").await[0]["message"], "counter_backwards");
    assert!(went_back(&alice).await > at_login, "of the last time");
    // The passkey itself, whose count goes on, is good.
    key.counter = 40;
    proves(&bench, &alice, &mut key).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_passkey_whose_count_goes_back_is_let_in_where_the_cluster_flags_it() {
    let cluster = cluster_with(|config| webauthn(config).counter = CounterPolicy::Flag).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let mut key = bench.first_passkey(&alice).await;
    key.counter = 40;
    proves(&bench, &alice, &mut key).await.unwrap();
    // The higher count stays on record, so each use of the copy is one that did not grow.
    for _ in 0..2 {
        key.counter = 0;
        proves(&bench, &alice, &mut key).await.unwrap();
    }
    key.counter = 50;
    proves(&bench, &alice, &mut key).await.unwrap();
    assert!(went_back(&alice).await.is_some(), "it stays with the passkey");
    // Each proof by the copy is on record as one, and so is the login that comes of it; no other is.
    for (code, flagged) in [("SP1015I", 4), ("SP1000I", 2)] {
        let mut events = bench.events(code, "alice").await;
        events.retain(|event| event["fields"]["counter"] == "went_back");
        assert_eq!(events.len(), flagged, "{code}: {events:?}");
    }
    assert_eq!(bench.events("SP1000W", "alice").await.len(), 0);
    assert_eq!(bench.events("SP1015W", "alice").await.len(), 0);
}

/// Takes the answer to a registration apart, has what the authenticator says changed, and puts it together again: as it was, without a
/// statement, or with one that a maker signs (WebAuthn L3 §6.5.4, §8.2).
fn remade(response: &str, change: impl FnOnce(&mut [u8]), maker: Option<&Maker>) -> String {
    let mut response: Value = serde_json::from_str(response).unwrap();
    let part = |name: &str| {
        let text = response["response"][name].as_str().unwrap();
        BASE64URL_NOPAD.decode(text.as_bytes()).unwrap()
    };
    let (client, object) = (part("clientDataJSON"), part("attestationObject"));
    let name = cbor_text("authData");
    let at = object.windows(name.len()).position(|window| window == name).unwrap() + name.len();
    // It stands last, as a byte string of fewer than 256 bytes.
    assert_eq!(object[at], 0x58);
    let mut data = object[at + 2..].to_vec();
    change(&mut data);
    let (format, statement) = match maker {
        None => ("none", vec![0xa0]),
        Some(maker) => {
            let signature = maker.key.sign(&[&data[..], &hash::sha256(&client)].concat()).unwrap();
            let members = [
                vec![0xa3],
                cbor_text("alg"),
                vec![0x26],
                cbor_text("sig"),
                cbor_bytes(&signature),
                cbor_text("x5c"),
                vec![0x81],
                cbor_bytes(&maker.der),
            ];
            ("packed", members.concat())
        }
    };
    let members = [
        vec![0xa3],
        cbor_text("fmt"),
        cbor_text(format),
        cbor_text("attStmt"),
        statement,
        name,
        cbor_bytes(&data),
    ];
    response["response"]["attestationObject"] = json!(BASE64URL_NOPAD.encode(&members.concat()));
    response.to_string()
}

fn cbor_head(major: u8, length: usize) -> Vec<u8> {
    let [high, low] = u16::try_from(length).unwrap().to_be_bytes();
    match length {
        0..=23 => vec![major | low],
        24..=255 => vec![major | 24, low],
        _ => vec![major | 25, high, low],
    }
}

fn cbor_text(text: &str) -> Vec<u8> {
    [cbor_head(0x60, text.len()), text.as_bytes().to_vec()].concat()
}

fn cbor_bytes(bytes: &[u8]) -> Vec<u8> {
    [cbor_head(0x40, bytes.len()), bytes.to_vec()].concat()
}

/// A key with its certificate: a maker's root, or an attestation key that the root's signed.
struct Maker {
    key: MemoryKey,
    der: Vec<u8>,
}

fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
    let head = match content.len() {
        0..=127 => vec![tag, low],
        128..=255 => vec![tag, 0x81, low],
        _ => vec![tag, 0x82, high, low],
    };
    [head, content.to_vec()].concat()
}

fn sequence(parts: &[Vec<u8>]) -> Vec<u8> {
    der(0x30, &parts.concat())
}

/// A name with what WebAuthn L3 §8.2.1 demands of one.
fn name(unit: &str, common: &str) -> Vec<u8> {
    let attributes = [(6, "SE"), (10, "Maker"), (11, unit), (3, common)];
    let attribute = |(kind, text): (u8, &str)| {
        der(0x31, &sequence(&[der(0x06, &[0x55, 0x04, kind]), der(0x0c, text.as_bytes())]))
    };
    sequence(&attributes.map(attribute))
}

impl Maker {
    fn root() -> Self {
        Self::certified(("CA", "Root"), None)
    }

    fn attests(root: &Self) -> Self {
        Self::certified(("Authenticator Attestation", "Key"), Some(root))
    }

    fn certified((unit, common): (&str, &str), root: Option<&Self>) -> Self {
        let key = MemoryKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
        let signer = root.map_or(&key, |root| &root.key);
        let algorithm = KeyAlgorithm::EcdsaP256.default_scheme().x509_algorithm_der().unwrap();
        let is_ca = if root.is_none() { der(0x01, &[0xff]) } else { Vec::new() };
        let constraints =
            sequence(&[der(0x06, &[0x55, 0x1d, 0x13]), der(0x01, &[0xff]), der(0x04, &sequence(&[is_ca]))]);
        let tbs = sequence(&[
            der(0xa0, &der(0x02, &[2])),
            der(0x02, &[7]),
            algorithm.clone(),
            name("CA", "Root"),
            sequence(&[der(0x18, b"20200101000000Z"), der(0x18, b"20991231235959Z")]),
            name(unit, common),
            key.public_key().spki_der(),
            der(0xa3, &sequence(&[constraints])),
        ]);
        let signature = signer.sign(&tbs).unwrap();
        let der = sequence(&[tbs, algorithm, der(0x03, &[&[0][..], &signature].concat())]);
        Self { key, der }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn device_bound_clusters_take_no_passkey_that_can_be_copied() {
    let cluster = cluster_with(|config| webauthn(config).backup = BackupPolicy::DeviceBound).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let (page, options) = asked(&bench, &alice, "phone").await;
    let mut phone = Authenticator::at(ORIGIN);
    phone.copies = true;
    let refused = answered(&bench, &page, phone.create(&options)).await.unwrap_err();
    assert!(support::is(&refused, Code::PermissionDenied, "use a security key"), "{refused:?}");
    assert_eq!(bench.events("SP1015W", "alice").await[0]["message"], "backup_refused");

    // Nor by an invite.
    let request = v1::CreateUserRequest { name: "ivan".to_owned(), ..Default::default() };
    let token = cluster.admin().await.create_user(request).await.unwrap().into_inner().token;
    let link = v1::WebInviteRequest { token: token.clone(), address: BROWSER.to_owned() };
    let options = bench.web.clone().begin_invite_passkey(link).await.unwrap().into_inner().options_json;
    let request = v1::WebFinishInviteRequest {
        token,
        address: BROWSER.to_owned(),
        name: "phone".to_owned(),
        response_json: phone.create(&options),
    };
    let refused = bench.web.clone().finish_invite_passkey(request).await.unwrap_err();
    assert!(support::is(&refused, Code::PermissionDenied, "use a security key"), "{refused:?}");

    // A security key is taken. One that says afterwards that it can be copied was never bound to its device.
    let mut key = bench.first_passkey(&alice).await;
    proves(&bench, &alice, &mut key).await.unwrap();
    key.copies = true;
    let begun = bench.begin(PORT).await.unwrap();
    let refused = bench.prove(&begun, &mut key).await.unwrap_err();
    assert!(support::is(&refused, Code::PermissionDenied, "bound to its device"), "{refused:?}");
    assert_eq!(bench.events("SP1000W", "alice").await[0]["message"], "backup_eligibility_changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn whether_a_passkey_is_synced_is_listed_as_it_was_at_its_last_use() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let (page, options) = asked(&bench, &alice, "phone").await;
    let mut phone = Authenticator::at(ORIGIN);
    phone.copies = true;
    // It can be copied, and is not yet.
    let not_yet = |data: &mut [u8]| {
        data[FLAGS] &= !BACKED_UP;
        assert_ne!(data[FLAGS] & BACKUP_ELIGIBLE, 0);
    };
    let response = remade(&phone.create(&options), not_yet, None);
    answered(&bench, &page, response).await.unwrap();
    assert_eq!(passkeys(&alice).await, [(Uuid::nil().to_string(), false)]);
    for _ in 0..2 {
        proves(&bench, &alice, &mut phone).await.unwrap();
        assert_eq!(passkeys(&alice).await, [(Uuid::nil().to_string(), true)]);
    }
    // The first use that found it so is on record, and no other.
    for code in ["SP1015I", "SP1000I"] {
        let mut events = bench.events(code, "alice").await;
        events.retain(|event| event["fields"]["backup"] == "now_synced");
        assert_eq!(events.len(), 1, "{code}: {events:?}");
    }
}

/// The file of a model's root, as FIDO's metadata service has it.
fn metadata(model: Uuid, root: &Maker) -> String {
    let entry = json!({
        "aaguid": model,
        "metadataStatement": { "description": "A key", "attestationRootCertificates": [BASE64.encode(&root.der)] },
        "statusReports": [{ "status": "FIDO_CERTIFIED" }],
    });
    json!({ "no": 1, "entries": [entry] }).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn listed_models_alone_are_registered_and_their_makers_vouch_for_them() {
    let (listed, unlisted) = (Uuid::from_u128(0xfeed), Uuid::from_u128(0xbeef));
    let root = Maker::root();
    let directory = support::place();
    let path = directory.path().join("metadata.json");
    std::fs::write(&path, metadata(listed, &root)).unwrap();
    let models = Models { models: [listed].into(), metadata: path };
    let cluster = cluster_with(|config| webauthn(config).attestation = Some(models)).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let (genuine, false_root) = (Maker::attests(&root), Maker::root());
    let forged = Maker::attests(&false_root);
    let is = |model: Uuid| move |data: &mut [u8]| data[MODEL].copy_from_slice(model.as_bytes());

    for (model, maker, message, word) in [
        (unlisted, Some(&genuine), "use one of the listed models", "model_not_allowed"),
        (listed, Some(&forged), "does not lead to a root in the metadata", "untrusted_attestation"),
        (listed, None, "no attestation that names its model", "no_attestation"),
    ] {
        let (page, options) = asked(&bench, &alice, "key").await;
        let read: Value = serde_json::from_str(&options).unwrap();
        assert_eq!(read["attestation"], "direct", "{read}");
        let response = remade(&Authenticator::at(ORIGIN).create(&options), is(model), maker);
        let refused = answered(&bench, &page, response).await.unwrap_err();
        assert!(support::is(&refused, Code::PermissionDenied, message), "{refused:?}");
        let events = bench.events("SP1015W", "alice").await;
        assert!(events.iter().any(|event| event["message"] == word), "{word}: {events:?}");
    }
    assert!(passkeys(&alice).await.is_empty());

    let (page, options) = asked(&bench, &alice, "key").await;
    let mut key = Authenticator::at(ORIGIN);
    answered(&bench, &page, remade(&key.create(&options), is(listed), Some(&genuine))).await.unwrap();
    assert_eq!(passkeys(&alice).await, [(listed.to_string(), false)]);
    proves(&bench, &alice, &mut key).await.unwrap();
}

/// An authority that was told to take listed models alone does not start without knowing them.
#[tokio::test(flavor = "multi_thread")]
async fn a_metadata_file_that_is_missing_or_broken_stops_the_start_and_says_which_setting_it_is() {
    let model = Uuid::from_u128(0xfeed);
    let entry = json!({ "aaguid": model, "metadataStatement": { "attestationRootCertificates": ["?"] } });
    for (content, says) in [
        (None, "No such file"),
        (Some("{".to_owned()), "EOF"),
        (Some("{}".to_owned()), "entries"),
        (Some(json!({ "entries": [entry] }).to_string()), "not base64"),
    ] {
        let directory = support::place();
        let path = directory.path().join("metadata.json");
        if let Some(content) = &content {
            std::fs::write(&path, content).unwrap();
        }
        let data_dir = directory.path().join("cluster");
        let mut config = support::config(&data_dir);
        (config.auth, config.proxy) = (Some(support::auth_section()), Some(support::proxy_section()));
        with_passkeys(&mut config);
        webauthn(&mut config).attestation = Some(Models { models: [model].into(), metadata: path });
        let error = sallyport_server::start(config).await.unwrap_err();
        let mut chain = error.to_string();
        let mut next = std::error::Error::source(&error);
        while let Some(source) = next {
            chain = format!("{chain}: {source}");
            next = source.source();
        }
        assert!(chain.contains("auth.authentication.webauthn.attestation.metadata"), "{chain}");
        assert!(chain.contains(says), "{chain}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_passkey_of_one_origin_serves_at_the_others_of_the_cluster_and_nowhere_else() {
    let cluster = cluster_with(|config| webauthn(config).origins.push(OTHER_ORIGIN.to_owned())).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let (page, options) = asked(&bench, &alice, "laptop").await;
    assert_eq!(page.origins, [ORIGIN, OTHER_ORIGIN]);
    let mut key = Authenticator::at(ORIGIN);
    answered(&bench, &page, key.create(&options)).await.unwrap();
    for origin in [OTHER_ORIGIN, ORIGIN] {
        origin.clone_into(&mut key.origin);
        proves(&bench, &alice, &mut key).await.unwrap();
    }

    // Another subdomain, another port, another scheme, and a page of the attacker's own.
    for elsewhere in [
        "https://us.sallyport.example.org",
        "https://eu.sallyport.example.org",
        "http://sallyport.example.org",
        "https://sallyport.example.org.attacker.example",
    ] {
        elsewhere.clone_into(&mut key.origin);
        let begun = bench.begin(PORT).await.unwrap();
        let refused = bench.prove(&begun, &mut key).await.unwrap_err();
        assert!(support::is(&refused, Code::PermissionDenied, elsewhere), "{elsewhere}: {refused:?}");
    }
    let failed = bench.events("SP1000W", "alice").await;
    assert_eq!(failed.len(), 4, "{failed:?}");
    assert!(failed.iter().all(|event| event["message"] == "wrong_origin"), "{failed:?}");

    // And none is made at such a page.
    let bob = cluster.user("bob", &["root"]).await;
    let (page, options) = asked(&bench, &bob, "laptop").await;
    let response = Authenticator::at("https://us.sallyport.example.org").create(&options);
    let refused = answered(&bench, &page, response).await.unwrap_err();
    assert!(support::is(&refused, Code::PermissionDenied, "https://us."), "{refused:?}");
    let (page, options) = asked(&bench, &bob, "laptop").await;
    let mut key = Authenticator::at(OTHER_ORIGIN);
    answered(&bench, &page, key.create(&options)).await.unwrap();
    ORIGIN.clone_into(&mut key.origin);
    proves(&bench, &bob, &mut key).await.unwrap();
}
