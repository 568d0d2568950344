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
        ttl: None,
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
    let cluster = cluster_with(|config| {
        config.auth.as_mut().unwrap().second_factor = SecondFactor::Required;
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
    assert_eq!(late.code(), Code::PermissionDenied, "{late:?}");
    let late = bench.approve(&id, &mut key).await.unwrap_err();
    assert_eq!(late.code(), Code::PermissionDenied, "{late:?}");
    let again = bench.begin(PORT).await.unwrap();
    assert_eq!(bench.prove(&again, &mut key).await.unwrap_err().code(), Code::Unauthenticated);
    let listing = factors(&alice).await.list(v1::ListFactorsRequest {}).await.unwrap_err();
    assert_eq!(listing.code(), Code::PermissionDenied, "the login has ended: {listing:?}");
}
