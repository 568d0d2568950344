//! Whether a passkey has verified its user: what proves something always wants it, and what a cluster chooses is about new passkeys alone. A
//! thief has a security key here, and not its PIN.

use sallyport_webauthn::UserVerification;
use sallyport_wire::v1::admin_client::AdminClient;
use tonic::Code;

use super::administrators::administrator;
use super::*;

/// The choice that asks for the least.
pub(super) fn discouraged(config: &mut Config) {
    let webauthn = config.auth.as_mut().unwrap().authentication.webauthn.as_mut().unwrap();
    webauthn.user_verification = UserVerification::Discouraged;
}

/// What a person reads whose key was touched and did not verify them.
pub(super) fn is_refused<T: std::fmt::Debug>(came: Result<T, Status>) {
    let refused = came.expect_err("a key that was touched without its PIN");
    assert!(support::is(&refused, Code::PermissionDenied, "did not verify"), "{refused:?}");
    assert!(refused.message().contains("PIN"), "{refused:?}");
}

fn authenticator(verifies: bool) -> Authenticator {
    let mut key = Authenticator::at(ORIGIN);
    key.verifies = verifies;
    key
}

fn asks_for(options: &str) -> String {
    let options: Value = serde_json::from_str(options).unwrap();
    let at =
        options.pointer("/userVerification").or(options.pointer("/authenticatorSelection/userVerification"));
    at.unwrap().as_str().unwrap().to_owned()
}

/// The page of an approval, at which a key is touched without its PIN and then used with it.
pub(super) async fn only_with_its_pin(bench: &Bench<'_>, id: &str, key: &mut Authenticator) {
    let mut web = bench.web.clone();
    let asked = web.begin_approval_passkey(begin_at(id, &bench.shown(id))).await.unwrap().into_inner();
    assert_eq!(asks_for(&asked.options_json), "required");
    key.verifies = false;
    is_refused(web.finish_approval_passkey(response_at(id, key.get(&asked.options_json))).await);
    is_refused(bench.approve(id, key).await);
    key.verifies = true;
    bench.approve(id, key).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn attacks_a_stolen_key_without_its_pin_logs_no_user_in_and_makes_no_passkey_of_an_invite() {
    let cluster = cluster_with(discouraged).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let mut key = bench.first_passkey(&alice).await;
    let begun = bench.begin(PORT).await.unwrap();
    key.verifies = false;
    is_refused(bench.prove(&begun, &mut key).await);
    assert_eq!(bench.events("SP1000W", "alice").await.last().unwrap()["message"], "user_not_verified");
    key.verifies = true;
    let proven = bench.prove(&begun, &mut key).await.unwrap();
    assert_eq!(bench.finish(&begun, &code_of(&proven)).await.unwrap().user, "alice");

    let request = v1::CreateUserRequest { name: "ivan".to_owned(), ..Default::default() };
    let token = cluster.admin().await.create_user(request).await.unwrap().into_inner().token;
    let mut web = bench.web.clone();
    let mut registers = async |verifies| {
        let link = v1::WebInviteRequest { token: token.clone(), address: BROWSER.to_owned() };
        let options = web.begin_invite_passkey(link).await.unwrap().into_inner().options_json;
        assert_eq!(asks_for(&options), "required");
        let request = v1::WebFinishInviteRequest {
            token: token.clone(),
            address: BROWSER.to_owned(),
            name: "key".to_owned(),
            response_json: authenticator(verifies).create(&options),
        };
        web.finish_invite_passkey(request).await
    };
    is_refused(registers(false).await);
    registers(true).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn attacks_a_stolen_login_and_a_stolen_key_without_its_pin_change_and_administer_nothing() {
    let cluster = cluster_with(discouraged).await;
    let bench = Bench::at(&cluster).await;
    let root = administrator(&bench, "root").await;
    let mut key = bench.first_passkey(&root).await;
    let mut client = factors(&root).await;
    let own = client.list(v1::ListFactorsRequest {}).await.unwrap().into_inner().factors[0].id.clone();

    // What administration wants is proven by no answer that is refused.
    let id = bench.begin_proof(&root, Purpose::Administer(true)).await.unwrap();
    key.verifies = false;
    is_refused(bench.approve(&id, &mut key).await);
    let refused = bench.events("SP1015W", "root").await;
    assert_eq!(refused.last().unwrap()["message"], "user_not_verified", "{refused:?}");
    let thief = v1::ProveAdministratorRequest { proof: proof(Proof::Challenge(id.clone())) };
    let unproven = client.prove_administrator(thief).await.unwrap_err();
    assert_eq!(unproven.code(), Code::FailedPrecondition, "{unproven:?}");
    let mut admin = AdminClient::new(root.authority().await);
    let bob = || v1::CreateUserRequest { name: "bob".to_owned(), ..Default::default() };
    assert_eq!(admin.create_user(bob()).await.unwrap_err().code(), Code::PermissionDenied);
    only_with_its_pin(&bench, &id, &mut key).await;
    let request = v1::ProveAdministratorRequest { proof: proof(Proof::Challenge(id)) };
    client.prove_administrator(request).await.unwrap();
    admin.create_user(bob()).await.unwrap();

    for purpose in [
        Purpose::AddFactor(to_add("webauthn", "thief")),
        Purpose::RemoveFactor(own),
        Purpose::RecoveryCodes(true),
        Purpose::ChangePassword(true),
    ] {
        let id = bench.begin_proof(&root, purpose).await.unwrap();
        only_with_its_pin(&bench, &id, &mut key).await;
    }
}

/// What is left for a cluster to choose.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_chooses_whether_a_new_passkey_has_to_verify_its_user_and_what_it_proves_wants_that_all_the_same()
 {
    for (rule, word, is_taken) in [
        (UserVerification::Required, "required", false),
        (UserVerification::Preferred, "preferred", true),
        (UserVerification::Discouraged, "discouraged", true),
    ] {
        let cluster = cluster_with(|config| {
            let webauthn = config.auth.as_mut().unwrap().authentication.webauthn.as_mut().unwrap();
            webauthn.user_verification = rule;
        })
        .await;
        let bench = Bench::at(&cluster).await;
        let alice = cluster.user("alice", &["root"]).await;
        let request = v1::BeginAddFactorRequest {
            factor: Some(to_add("webauthn", "key")),
            proof: proof(Proof::Password(PASSWORD.to_owned())),
            host_name: String::new(),
        };
        let begun = factors(&alice).await.begin_add(request).await.unwrap().into_inner();
        let id = begun.page.unwrap().challenge;
        let mut web = bench.web.clone();
        let options =
            web.begin_enrolment(begin_at(&id, &begun.code)).await.unwrap().into_inner().options_json;
        assert_eq!(asks_for(&options), word);
        let mut key = authenticator(false);
        let (response_json, address) = (key.create(&options), BROWSER.to_owned());
        let made = web.finish_enrolment(v1::WebFinishEnrolmentRequest { id, address, response_json }).await;
        if !is_taken {
            is_refused(made);
            continue;
        }
        made.unwrap();
        let id = bench.begin_proof(&alice, Purpose::RecoveryCodes(true)).await.unwrap();
        only_with_its_pin(&bench, &id, &mut key).await;
    }
}
