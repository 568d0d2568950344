//! Factors: added, used, removed.

use sallyport_server::config::SecondFactor;
use tonic::Code;

use super::*;

/// Logs in with a password and a code, as a program does.
async fn by_password(bench: &Bench<'_>, user: &str, otp: &str) -> Result<v1::LoginResponse, Status> {
    let ssh = SshKeyPair::generate(Suite::BalancedV1, "x").unwrap();
    let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
    let request = v1::LoginRequest {
        user: user.to_owned(),
        password: PASSWORD.to_owned(),
        otp: otp.to_owned(),
        ssh_public_key: ssh.public_line().to_owned(),
        tls_public_key: tls.spki_der().to_vec().into(),
        ..Default::default()
    };
    Ok(bench.login().await.login_with_password(request).await?.into_inner())
}

async fn listed(user: &User) -> v1::ListFactorsResponse {
    factors(user).await.list(v1::ListFactorsRequest {}).await.unwrap().into_inner()
}

async fn remove(user: &User, id: &str, by: Proof) -> Result<(), Status> {
    let request = v1::RemoveFactorRequest { id: id.to_owned(), proof: proof(by) };
    factors(user).await.remove(request).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn recovery_codes_stand_in_for_a_factor_once_each() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let none = factors(&alice).await.make_recovery_codes(v1::MakeRecoveryCodesRequest::default()).await;
    assert_eq!(none.unwrap_err().code(), Code::FailedPrecondition, "they stand in for nothing yet");
    let mut key = bench.first_passkey(&alice).await;

    // A password alone is not enough any more, and says what is.
    let alone = by_password(&bench, "alice", "").await.unwrap_err();
    assert_eq!(alone.code(), Code::Unauthenticated, "{alone:?}");
    assert!(alone.message().contains("sallyport login --browser"), "{alone:?}");

    let id = bench.begin_proof(&alice, Purpose::RecoveryCodes(true)).await.unwrap();
    bench.approve(&id, &mut key).await.unwrap();
    let request = v1::MakeRecoveryCodesRequest { proof: proof(Proof::Challenge(id.clone())) };
    let codes = factors(&alice).await.make_recovery_codes(request.clone()).await.unwrap().into_inner().codes;
    assert_eq!(codes.len(), 10);
    let again = factors(&alice).await.make_recovery_codes(request).await.unwrap_err();
    assert_eq!(again.code(), Code::FailedPrecondition, "a proof serves once: {again:?}");

    by_password(&bench, "alice", &codes[3].to_uppercase().replace('-', "")).await.unwrap();
    let used = by_password(&bench, "alice", &codes[3]).await.unwrap_err();
    assert_eq!(used.code(), Code::Unauthenticated, "{used:?}");
    assert_eq!(listed(&alice).await.recovery_codes, 9);
    let events = bench.events("SP1013W", "alice").await;
    assert_eq!((events.len(), &events[0]["fields"]["left"]), (1, &9.into()), "{events:?}");

    // New ones void the old ones.
    let request = v1::MakeRecoveryCodesRequest { proof: proof(Proof::RecoveryCode(codes[0].clone())) };
    let fresh = factors(&alice).await.make_recovery_codes(request).await.unwrap().into_inner().codes;
    by_password(&bench, "alice", &codes[5]).await.unwrap_err();
    by_password(&bench, "alice", &fresh[5]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn factors_are_listed_named_once_and_removed() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let secret = bench.add_codes(&alice, "phone", Proof::Password(PASSWORD.to_owned())).await.unwrap();
    let twice = bench.add_codes(&alice, "phone", Proof::Otp(next_code(&secret))).await.unwrap_err();
    assert_eq!(twice.code(), Code::AlreadyExists, "{twice:?}");
    let mut key = bench.enrol(&alice, "laptop", Proof::Otp(next_code(&secret))).await.unwrap();
    let list = listed(&alice).await;
    let names: Vec<(&str, &str)> =
        list.factors.iter().map(|factor| (factor.name.as_str(), factor.kind.as_str())).collect();
    assert_eq!(names, [("laptop", "webauthn"), ("phone", "totp")]);
    assert_eq!((list.kinds, list.password), (vec!["webauthn".to_owned(), "totp".to_owned()], true));

    let phone = list.factors[1].id.clone();
    let id = bench.begin_proof(&alice, Purpose::RemoveFactor(phone.clone())).await.unwrap();
    bench.approve(&id, &mut key).await.unwrap();
    remove(&alice, &phone, Proof::Challenge(id)).await.unwrap();
    assert_eq!(listed(&alice).await.factors.len(), 1);
    assert_eq!(bench.events("SP1011I", "alice").await[0]["fields"]["factor"], "phone");
    // Its codes are good for nothing any more.
    let otp = next_code(&secret);
    assert_eq!(by_password(&bench, "alice", &otp).await.unwrap_err().code(), Code::Unauthenticated);
    // A removed passkey opens no login.
    let laptop = listed(&alice).await.factors[0].id.clone();
    let id = bench.begin_proof(&alice, Purpose::RemoveFactor(laptop.clone())).await.unwrap();
    bench.approve(&id, &mut key).await.unwrap();
    remove(&alice, &laptop, Proof::Challenge(id)).await.unwrap();
    let begun = bench.begin(PORT).await.unwrap();
    assert_eq!(bench.prove(&begun, &mut key).await.unwrap_err().code(), Code::Unauthenticated);
    by_password(&bench, "alice", "").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_factor_stays_where_one_is_required() {
    the_last_factor_stays(SecondFactor::Required, "this cluster requires one").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_factor_stays_of_a_user_without_a_password() {
    the_last_factor_stays(SecondFactor::Optional, "you have no password").await;
}

async fn the_last_factor_stays(second_factor: SecondFactor, why: &str) {
    let cluster = cluster_with(|config| {
        config.auth.as_mut().unwrap().second_factor = second_factor;
    })
    .await;
    let bench = Bench::at(&cluster).await;
    // A passkey by an invite is a factor, and all that its user has.
    let yaml = support::role("dev", &["root"]);
    let mut admin = cluster.admin().await;
    admin.create_resource(v1::CreateResourceRequest { yaml, replace: false }).await.unwrap();
    let request = v1::CreateUserRequest {
        name: "carol".to_owned(),
        roles: vec!["dev".to_owned()],
        ..Default::default()
    };
    let token = admin.create_user(request).await.unwrap().into_inner().token;
    let link = v1::WebInviteRequest { token: token.clone(), address: BROWSER.to_owned() };
    let mut web = bench.web.clone();
    let options = web.begin_invite_passkey(link).await.unwrap().into_inner().options_json;
    let mut key = Authenticator::at(ORIGIN);
    let request = v1::WebFinishInviteRequest {
        token: token.clone(),
        address: BROWSER.to_owned(),
        name: "phone".to_owned(),
        response_json: key.create(&options),
    };
    web.finish_invite_passkey(request.clone()).await.unwrap();
    let again = web.finish_invite_passkey(request).await.unwrap_err();
    assert_eq!(again.code(), Code::PermissionDenied, "a link serves once: {again:?}");

    let carol = bench.logged_in(&mut key).await;
    let last = listed(&carol).await.factors[0].id.clone();
    let id = bench.begin_proof(&carol, Purpose::RemoveFactor(last.clone())).await.unwrap();
    bench.approve(&id, &mut key).await.unwrap();
    let refused = remove(&carol, &last, Proof::Challenge(id)).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    assert!(refused.message().contains("your last factor"), "{refused:?}");
    assert!(refused.message().contains(why), "{refused:?}");
    // Nor at the page, which asks for no proof in vain.
    let asked = v1::BeginProofRequest { purpose: Some(Purpose::ShowFactors(true)), host_name: String::new() };
    let page = factors(&carol).await.begin_proof(asked).await.unwrap().into_inner();
    let removal = v1::WebFactorRemovalRequest {
        id: page.page.unwrap().challenge,
        address: BROWSER.to_owned(),
        code: page.code,
        factor: last.clone(),
    };
    let refused = web.begin_factor_removal(removal).await.unwrap_err();
    assert!(support::is(&refused, Code::FailedPrecondition, why), "{refused:?}");
    assert_eq!(listed(&carol).await.factors.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_removes_every_factor_and_voids_what_was_proven() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let mut key = bench.first_passkey(&alice).await;
    let begun = bench.begin(PORT).await.unwrap();
    let code = code_of(&bench.prove(&begun, &mut key).await.unwrap());
    let id = bench.begin_proof(&alice, Purpose::RecoveryCodes(true)).await.unwrap();

    let reset = v1::ResetUserRequest { name: "alice".to_owned() };
    cluster.admin().await.reset_user(reset).await.unwrap();
    let events = bench.events("SP1005I", "@local").await;
    let fields = &events.last().unwrap()["fields"];
    assert_eq!((&fields["removed_factors"], &fields["ended_logins"]), (&1.into(), &1.into()), "{fields}");
    let late = bench.finish(&begun, &code).await.unwrap_err();
    assert!(support::is(&late, Code::PermissionDenied, "your credentials were reset since"), "{late:?}");
    let late = bench.approve(&id, &mut key).await.unwrap_err();
    assert!(support::is(&late, Code::PermissionDenied, "the login that asked for this is over"), "{late:?}");
    let again = bench.begin(PORT).await.unwrap();
    assert_eq!(bench.prove(&again, &mut key).await.unwrap_err().code(), Code::Unauthenticated);
    let listing = factors(&alice).await.list(v1::ListFactorsRequest {}).await.unwrap_err();
    assert_eq!(listing.code(), Code::PermissionDenied, "the login has ended: {listing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_allowed_a_factor_still_stands_when_it_is_added() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let mut client = factors(&alice).await;
    let begin = |kind, name, by| v1::BeginAddFactorRequest {
        factor: Some(to_add(kind, name)),
        proof: proof(by),
        host_name: String::new(),
    };

    // A password serves as long as there is no factor.
    let second = begin("totp", "second", Proof::Password(PASSWORD.to_owned()));
    let second = client.begin_add(second).await.unwrap().into_inner();
    let mut key = bench.first_passkey(&alice).await;
    let finish = |begun: v1::BeginAddFactorResponse| v1::FinishAddFactorRequest {
        otp: secret_of(&begun.otp_uri).code(OffsetDateTime::now_utc()),
        challenge: begun.page.unwrap().challenge,
    };
    let late = client.finish_add(finish(second)).await.unwrap_err();
    assert!(support::is(&late, Code::PermissionDenied, "your factors were changed since"), "{late:?}");

    // A passkey serves as long as it is there.
    let mut proofs = Vec::new();
    for (kind, name) in [("totp", "phone"), ("totp", "thief"), ("webauthn", "thief")] {
        let id = bench.begin_proof(&alice, Purpose::AddFactor(to_add(kind, name))).await.unwrap();
        bench.approve(&id, &mut key).await.unwrap();
        proofs.push(Proof::Challenge(id));
    }
    let passkey = client.begin_add(begin("webauthn", "thief", proofs.pop().unwrap())).await.unwrap();
    let (passkey, code) = {
        let begun = passkey.into_inner();
        (begun.page.unwrap().challenge, begun.code)
    };
    let options = bench.web.clone().begin_enrolment(begin_at(&passkey, &code)).await.unwrap().into_inner();
    let options = options.options_json;
    let codes = client.begin_add(begin("totp", "thief", proofs.pop().unwrap())).await.unwrap().into_inner();
    let secret = bench.add_codes(&alice, "phone", proofs.pop().unwrap()).await.unwrap();
    let list = listed(&alice).await;
    let laptop = list.factors.iter().find(|factor| factor.name == "laptop").unwrap();
    remove(&alice, &laptop.id, Proof::Otp(next_code(&secret))).await.unwrap();

    let late = client.finish_add(finish(codes)).await.unwrap_err();
    assert!(support::is(&late, Code::PermissionDenied, "was removed since"), "{late:?}");
    let request = v1::WebFinishEnrolmentRequest {
        id: passkey,
        address: BROWSER.to_owned(),
        response_json: Authenticator::at(ORIGIN).create(&options),
    };
    let late = bench.web.clone().finish_enrolment(request).await.unwrap_err();
    assert!(support::is(&late, Code::PermissionDenied, "was removed since"), "{late:?}");
    assert_eq!(listed(&alice).await.factors.len(), 1);
}
