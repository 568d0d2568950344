//! Logins that a program proves itself, by a security key at its machine.

use data_encoding::BASE64URL_NOPAD;
use sallyport_server::config::HeadlessLogins;
use sallyport_wire::v1::rotation_client::RotationClient;
use serde_json::json;
use tonic::Code;

use super::*;
use crate::support::{admin_channel, events, is};

/// A login that a program has begun, and what the key is to sign.
struct KeyLogin {
    id: String,
    verifier: String,
    options: String,
    /// Of the certificate authority that the program has reached.
    pin: String,
}

/// What a program has a key sign that has reached the authority of this pin.
fn asked_by_program(key: &mut Authenticator, options: &str, pin: &str) -> v1::KeyAssertion {
    let options: Value = serde_json::from_str(options).unwrap();
    let client_data = json!({
        "type": "webauthn.get", "challenge": options["challenge"], "origin": key.origin, "crossOrigin": false,
        "sallyportAuthority": pin,
    });
    let client_data = client_data.to_string().into_bytes();
    let rp_id = options["rpId"].as_str().unwrap();
    let (authenticator_data, signature) = key.assertion(rp_id, &hash::sha256(&client_data));
    v1::KeyAssertion {
        client_data_json: client_data.into(),
        authenticator_data: authenticator_data.into(),
        signature: signature.into(),
        user_handle: key.user().to_vec().into(),
    }
}

/// What a browser has had a key sign for a page, in the place of what a program has.
fn asked_by_browser(response: &str) -> v1::KeyAssertion {
    let response: Value = serde_json::from_str(response).unwrap();
    let part = |name: &str| {
        let text = response["response"][name].as_str().unwrap_or_default();
        BASE64URL_NOPAD.decode(text.as_bytes()).unwrap().into()
    };
    v1::KeyAssertion {
        client_data_json: part("clientDataJSON"),
        authenticator_data: part("authenticatorData"),
        signature: part("signature"),
        user_handle: part("userHandle"),
    }
}

impl KeyLogin {
    /// Begins over fresh keys.
    async fn begin(bench: &Bench<'_>, verifier: &str) -> Result<Self, Status> {
        let ssh = SshKeyPair::generate(Suite::BalancedV1, "x").unwrap();
        let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
        let request = v1::BeginKeyLoginRequest {
            ssh_public_key: ssh.public_line().to_owned(),
            tls_public_key: tls.spki_der().to_vec().into(),
            code_challenge: hash::sha256(verifier.as_bytes()).to_vec().into(),
            host_name: "laptop".to_owned(),
            ..Default::default()
        };
        let begun = bench.login().await.begin_key_login(request).await?.into_inner();
        assert_eq!(begun.origins, [ORIGIN]);
        let options: Value = serde_json::from_str(&begun.options_json).unwrap();
        assert_eq!(options["userVerification"], "required", "{options}");
        assert_eq!(options["rpId"], "sallyport.example.org", "{options}");
        assert_eq!(
            options["allowCredentials"].as_array().map_or(0, Vec::len),
            0,
            "who has a key is not told"
        );
        let (verifier, pin) = (verifier.to_owned(), bench.pin.clone());
        Ok(Self { id: begun.challenge, verifier, options: begun.options_json, pin })
    }

    async fn finish(
        &self,
        bench: &Bench<'_>,
        user: &str,
        assertions: Vec<v1::KeyAssertion>,
    ) -> Result<v1::LoginResponse, Status> {
        let request = v1::FinishKeyLoginRequest {
            challenge: self.id.clone(),
            code_verifier: self.verifier.clone(),
            user: user.to_owned(),
            assertions,
        };
        Ok(bench.login().await.finish_key_login(request).await?.into_inner())
    }

    fn signed_by(&self, key: &mut Authenticator) -> Vec<v1::KeyAssertion> {
        vec![asked_by_program(key, &self.options, &self.pin)]
    }
}

fn verifier() -> String {
    "v".repeat(43)
}

/// Calls both methods with success.
pub(super) async fn as_a_person(bench: &Bench<'_>, name: &str, key: &mut Authenticator) {
    let login = KeyLogin::begin(bench, &verifier()).await.unwrap();
    let signed = login.signed_by(key);
    login.finish(bench, name, signed).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_security_key_logs_in_without_a_page_and_what_it_was_is_on_record() {
    let cluster = cluster_with(|config| {
        // No way in by a browser is meant.
        config.auth.as_mut().unwrap().authentication.headless = HeadlessLogins::Off;
    })
    .await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let mut laptop = bench.first_passkey(&alice).await;
    let by = bench.begin_proof(&alice, Purpose::AddFactor(to_add("webauthn", "key"))).await.unwrap();
    bench.approve(&by, &mut laptop).await.unwrap();
    let mut key = bench.enrol(&alice, "key", Proof::Challenge(by)).await.unwrap();

    let login = KeyLogin::begin(&bench, &verifier()).await.unwrap();
    let signed = login.signed_by(&mut key);
    let issued = login.finish(&bench, "alice", signed.clone()).await.unwrap();
    assert!(issued.ssh_certificate.starts_with("ssh-"));
    let events = bench.events("SP1000I", "alice").await;
    let fields = &events.last().unwrap()["fields"];
    assert_eq!((&fields["way"], &fields["factor"]), (&"passkey".into(), &"key".into()), "{fields}");
    assert_eq!((&fields["user_verified"], &fields["second_factor"]), (&true.into(), &true.into()));
    let proven = bench.events("SP1015I", "alice").await;
    assert!(proven.last().unwrap()["fields"]["proxy"].is_null(), "{proven:?}");

    // It opens one login, once.
    let again = login.finish(&bench, "alice", signed).await.unwrap_err();
    assert_eq!(again.code(), Code::FailedPrecondition, "{again:?}");

    // A key with several accounts gives an answer of each.
    let bob = cluster.user("bob", &["root"]).await;
    let mut bobs = bench.first_passkey(&bob).await;
    let login = KeyLogin::begin(&bench, &verifier()).await.unwrap();
    let both = [login.signed_by(&mut bobs), login.signed_by(&mut key)].concat();
    assert_eq!(login.finish(&bench, "alice", both).await.unwrap().login.unwrap().factor, "key");
}

/// What a thief has of an answer that was heard, or signed for a false site, is of one login's challenge, relying party and page.
#[tokio::test(flavor = "multi_thread")]
async fn attacks_what_a_security_key_has_signed_opens_no_other_login() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let mut key = bench.first_passkey(&alice).await;
    let bob = cluster.user("bob", &["root"]).await;
    let mut bobs = bench.first_passkey(&bob).await;
    let refused = |came: Result<v1::LoginResponse, Status>, word: &str| {
        let status = came.expect_err(word);
        assert!(
            matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied)
                && status.message().contains(word),
            "{status:?}"
        );
    };
    let unknown = "not one that is registered here";

    // The victim's answer, in a login over the thief's own keys.
    let victims = KeyLogin::begin(&bench, &verifier()).await.unwrap();
    let thiefs = KeyLogin::begin(&bench, &"t".repeat(43)).await.unwrap();
    let stolen = victims.signed_by(&mut key);
    refused(thiefs.finish(&bench, "alice", stolen.clone()).await, "challenge");
    // In the victim's login without the verifier: it ends, and gives certificates for its own keys alone.
    let other = KeyLogin {
        id: victims.id.clone(),
        verifier: "t".repeat(43),
        options: victims.options.clone(),
        pin: victims.pin.clone(),
    };
    refused(other.finish(&bench, "alice", stolen.clone()).await, "wrong verifier");
    refused(victims.finish(&bench, "alice", stolen).await, "refused");

    // Signed at another page, for another relying party, or without the person's PIN or finger.
    let begin = async || KeyLogin::begin(&bench, &verifier()).await.unwrap();
    let login = begin().await;
    key.origin = "https://phisher.example".to_owned();
    refused(login.finish(&bench, "alice", login.signed_by(&mut key)).await, "phisher.example");
    key.origin = ORIGIN.to_owned();
    let login = begin().await;
    let elsewhere = login.options.replace("\"sallyport.example.org\"", "\"phisher.example\"");
    assert_ne!(elsewhere, login.options);
    let signed = vec![asked_by_program(&mut key, &elsewhere, &login.pin)];
    refused(login.finish(&bench, "alice", signed).await, "");
    let login = begin().await;
    key.verifies = false;
    refused(login.finish(&bench, "alice", login.signed_by(&mut key)).await, "");
    key.verifies = true;

    // Another user's key, a handle that is not the user's, no user, nothing.
    let login = begin().await;
    refused(login.finish(&bench, "alice", login.signed_by(&mut bobs)).await, unknown);
    let login = begin().await;
    let mut as_alice = login.signed_by(&mut bobs);
    as_alice[0].user_handle = login.signed_by(&mut key)[0].user_handle.clone();
    refused(login.finish(&bench, "alice", as_alice).await, unknown);
    let (login, unnamed) = (begin().await, begin().await);
    refused(login.finish(&bench, "mallory", login.signed_by(&mut key)).await, unknown);
    refused(unnamed.finish(&bench, "alice", Vec::new()).await, unknown);
    // A wrong answer ends the login, and a right one behind it is good for nothing: the program begins again.
    let again = unnamed.finish(&bench, "alice", unnamed.signed_by(&mut key)).await.unwrap_err();
    assert!(is(&again, Code::PermissionDenied, "this was refused; begin again"), "{again:?}");
    let login = begin().await;
    let many = vec![v1::KeyAssertion::default(); 17];
    assert_eq!(login.finish(&bench, "alice", many).await.unwrap_err().code(), Code::InvalidArgument);
    assert!(bench.events("SP1000I", "alice").await.iter().all(|event| event["fields"]["way"] != "passkey"));
    let failed = bench.events("SP1000W", "alice").await;
    assert!(failed.iter().any(|event| event["fields"]["way"] == "passkey"), "{failed:?}");
    // Whose login it was to be stands in the record, also where nothing has proven it: then no event is the user's.
    let failed = events(&mut cluster.admin().await, "SP1000W").await;
    for (named, counted) in [("alice", 3), ("mallory", 1)] {
        let unproven = failed.iter().filter(|event| {
            event["fields"]["named_user"] == named && event["message"] == "unknown_credential"
        });
        let unproven: Vec<_> = unproven.collect();
        assert_eq!(unproven.len(), counted, "{named}: {failed:?}");
        assert!(unproven.iter().all(|event| event["user"] != named), "{named}: {unproven:?}");
    }
}

/// Whatever the cluster asks of new passkeys.
#[tokio::test(flavor = "multi_thread")]
async fn attacks_a_stolen_key_without_its_pin_logs_no_user_in_at_a_terminal() {
    let cluster = cluster_with(user_verification::discouraged).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let mut key = bench.first_passkey(&alice).await;
    let login = KeyLogin::begin(&bench, &verifier()).await.unwrap();
    key.verifies = false;
    user_verification::is_refused(login.finish(&bench, "alice", login.signed_by(&mut key)).await);
    let failed = bench.events("SP1000W", "alice").await;
    assert_eq!(failed.last().unwrap()["message"], "user_not_verified", "{failed:?}");
    key.verifies = true;
    as_a_person(&bench, "alice", &mut key).await;
}

/// A proxy that was taken over begins a login over keys of its own, and has a person's browser sign at its page what the authority has asked.
#[tokio::test(flavor = "multi_thread")]
async fn attacks_a_page_steals_no_login_that_a_program_proves() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let mut key = bench.first_passkey(&alice).await;
    let thiefs = KeyLogin::begin(&bench, &"t".repeat(43)).await.unwrap();
    assert_eq!(key.origin, ORIGIN);
    let at_its_page = vec![asked_by_browser(&key.get(&thiefs.options))];
    let refused = thiefs.finish(&bench, "alice", at_its_page.clone()).await.unwrap_err();
    assert!(is(&refused, Code::PermissionDenied, "a browser has asked for it"), "{refused:?}");
    // The login is over, also for what the person's own program would have signed.
    for signed in [at_its_page, thiefs.signed_by(&mut key)] {
        let over = thiefs.finish(&bench, "alice", signed).await.unwrap_err();
        assert!(is(&over, Code::PermissionDenied, "this was refused; begin again"), "{over:?}");
    }
    assert!(bench.events("SP1000I", "alice").await.iter().all(|event| event["fields"]["way"] != "passkey"));
    let failed = bench.events("SP1000W", "alice").await;
    let failed = failed.last().unwrap();
    assert_eq!(failed["message"], "asked_by_browser", "{failed}");
    assert_eq!(failed["fields"]["named_user"], "alice", "{failed}");
}

/// A false authority, whose pin the victim has confirmed, passes on what the true one has asked the thief, and the victim's key signs it for
/// the true one's address: in a login of the thief's by a security key, or at the page of one in a browser.
#[tokio::test(flavor = "multi_thread")]
async fn attacks_what_a_program_has_signed_for_a_false_authority_is_worth_nothing_to_the_true_one() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let mut key = bench.first_passkey(&alice).await;
    let false_pin = format!("sha256:{}", "0a".repeat(32));
    for pin in
        [false_pin.clone(), format!("{},{false_pin}", bench.pin), bench.pin.to_uppercase(), String::new()]
    {
        let thiefs = KeyLogin::begin(&bench, &"t".repeat(43)).await.unwrap();
        let relayed = vec![asked_by_program(&mut key, &thiefs.options, &pin)];
        let refused = thiefs.finish(&bench, "alice", relayed).await.unwrap_err();
        assert!(is(&refused, Code::PermissionDenied, "none of this cluster's"), "{pin}: {refused:?}");
        let over = thiefs.finish(&bench, "alice", thiefs.signed_by(&mut key)).await.unwrap_err();
        assert!(is(&over, Code::PermissionDenied, "this was refused"), "{pin}: {over:?}");
    }
    let failed = bench.events("SP1000W", "alice").await;
    assert_eq!(failed.last().unwrap()["message"], "other_authority", "{failed:?}");

    let mut web = bench.web.clone();
    for pin in [&false_pin, &bench.pin] {
        let begun = bench.begin(PORT).await.unwrap();
        let asked =
            web.begin_login_passkey(begin_at(&begun.id, &begun.headless_code)).await.unwrap().into_inner();
        let signed = asked_by_program(&mut key, &asked.options_json, pin);
        let mut response: Value = serde_json::from_str(&key.get(&asked.options_json)).unwrap();
        for (name, part) in [
            ("clientDataJSON", &signed.client_data_json),
            ("authenticatorData", &signed.authenticator_data),
            ("signature", &signed.signature),
        ] {
            response["response"][name] = BASE64URL_NOPAD.encode(part).into();
        }
        let refused = web.finish_login_passkey(response_at(&begun.id, response.to_string())).await;
        let refused = refused.unwrap_err();
        assert!(is(&refused, Code::PermissionDenied, "proves nothing at a page"), "{refused:?}");
    }
    assert!(bench.events("SP1000I", "alice").await.iter().all(|event| event["fields"]["way"] != "passkey"));
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_rotation_a_program_may_have_reached_either_certificate_authority() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let mut key = bench.first_passkey(&alice).await;
    // Begun before the rotation, and finished in it.
    let login = KeyLogin::begin(&bench, &verifier()).await.unwrap();
    let step = Some(v1::rotate_ca_request::Step::Phase("init".to_owned()));
    let rotate = v1::RotateCaRequest { kind: "host".to_owned(), step, force: true };
    RotationClient::new(admin_channel(&cluster.data_dir()).await).rotate_ca(rotate).await.unwrap();
    login.finish(&bench, "alice", login.signed_by(&mut key)).await.unwrap();
    let pins = cluster.running.authority().unwrap().trust().pins();
    assert!(pins.len() == 2 && pins[0] == bench.pin && pins[1] != bench.pin, "{pins:?}");
    for pin in pins {
        let login = KeyLogin { pin, ..KeyLogin::begin(&bench, &verifier()).await.unwrap() };
        login.finish(&bench, "alice", login.signed_by(&mut key)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_proves_no_login_that_is_a_security_keys_and_the_other_way_round() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let mut key = bench.first_passkey(&alice).await;
    let login = KeyLogin::begin(&bench, &verifier()).await.unwrap();
    let mut web = bench.web.clone();
    let signed = response_at(&login.id, key.get(&login.options));
    for refused in [
        web.describe_login(at(&login.id)).await.map(drop),
        web.begin_login_passkey(begin_at(&login.id, "")).await.map(drop),
        web.finish_login_passkey(signed).await.map(drop),
    ] {
        assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
    }
    let begun = bench.begin(PORT).await.unwrap();
    let asked =
        web.begin_login_passkey(begin_at(&begun.id, &begun.headless_code)).await.unwrap().into_inner();
    let pin = bench.pin.clone();
    let pages = KeyLogin { id: begun.id, verifier: begun.verifier, options: asked.options_json, pin };
    let refused = pages.finish(&bench, "alice", pages.signed_by(&mut key)).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
    // One that is given up is over.
    let given_up = Begun { id: login.id.clone(), verifier: verifier(), headless_code: String::new() };
    bench.tell(&given_up, "", true).await.unwrap();
    let late = login.finish(&bench, "alice", login.signed_by(&mut key)).await.unwrap_err();
    assert_eq!(late.code(), Code::PermissionDenied, "{late:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_passkeys_no_login_with_a_security_key_begins() {
    let cluster = Cluster::without_node().await;
    let bench = Bench::at(&cluster).await;
    let off = KeyLogin::begin(&bench, &verifier()).await.err().expect("passkeys are off");
    assert_eq!(off.code(), Code::FailedPrecondition, "{off:?}");
}
