//! Approvals: whose they are, and what they serve for.

use tonic::Code;

use super::*;

fn recovery_codes(by: Proof) -> v1::MakeRecoveryCodesRequest {
    v1::MakeRecoveryCodesRequest { proof: proof(by) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_passkey_of_another_user_destroys_an_approval() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let (alice, mallory) = (cluster.user("alice", &["root"]).await, cluster.user("mallory", &["root"]).await);
    let mut hers = bench.first_passkey(&alice).await;
    let mut rival = bench.first_passkey(&mallory).await;
    let id = bench.begin_proof(&alice, Purpose::RecoveryCodes(true)).await.unwrap();
    let refused = bench.approve(&id, &mut rival).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    let late = bench.approve(&id, &mut hers).await.unwrap_err();
    assert!(late.message().contains("refused"), "{late:?}");
    let events = bench.events("SP1015W", "alice").await;
    assert_eq!(events[0]["fields"]["factor_of"], "mallory", "{events:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_proven_serves_for_what_it_was_asked_for_and_its_own_login() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let mallory = cluster.user("mallory", &["root"]).await;
    let mut key = bench.first_passkey(&alice).await;
    let id = bench.begin_proof(&alice, Purpose::AddFactor(to_add("totp", "phone"))).await.unwrap();
    let shown = bench.web.clone().describe_approval(at(&id)).await.unwrap().into_inner();
    assert_eq!((shown.user.as_str(), shown.purpose.as_str()), ("alice", "add-factor"));
    let details: Vec<&str> = shown.details.iter().map(|detail| detail.value.as_str()).collect();
    assert_eq!(details, ["one-time codes", "phone"]);
    let early = bench.add_codes(&alice, "phone", Proof::Challenge(id.clone())).await.unwrap_err();
    assert_eq!(early.code(), Code::FailedPrecondition, "it is not proven yet: {early:?}");

    let awaited = v1::AwaitChallengeRequest { challenge: id.clone() };
    let mut client = factors(&alice).await;
    let (state, proven) = tokio::join!(client.await_challenge(awaited.clone()), bench.approve(&id, &mut key));
    proven.unwrap();
    assert_eq!(state.unwrap().into_inner().state, "proven");

    let other = factors(&alice).await.make_recovery_codes(recovery_codes(Proof::Challenge(id.clone()))).await;
    assert_eq!(other.unwrap_err().code(), Code::FailedPrecondition, "it is for something else");
    let other = bench.add_codes(&alice, "tablet", Proof::Challenge(id.clone())).await;
    assert_eq!(other.unwrap_err().code(), Code::FailedPrecondition, "it is for another name");
    let anothers = bench.add_codes(&mallory, "phone", Proof::Challenge(id.clone())).await;
    assert_eq!(anothers.unwrap_err().code(), Code::NotFound, "it is alice's");
    let anothers = factors(&mallory).await.await_challenge(awaited).await;
    assert_eq!(anothers.unwrap_err().code(), Code::NotFound, "it is alice's");
    // Another login of hers has to ask for itself.
    let again = bench.logged_in(&mut key).await;
    let anothers = bench.add_codes(&again, "phone", Proof::Challenge(id.clone())).await;
    assert_eq!(anothers.unwrap_err().code(), Code::NotFound, "it is her other login's");
    bench.add_codes(&alice, "phone", Proof::Challenge(id.clone())).await.unwrap();
    let twice = bench.add_codes(&alice, "phone", Proof::Challenge(id)).await;
    assert!(twice.is_err(), "it serves once");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_codes_at_a_page_close_the_account_as_wrong_passwords_do() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    bench.add_codes(&alice, "phone", Proof::Password(PASSWORD.to_owned())).await.unwrap();
    let id = bench.begin_proof(&alice, Purpose::RecoveryCodes(true)).await.unwrap();
    let mut web = bench.web.clone();
    for _ in 0..5 {
        let otp = "000000".to_owned();
        let request =
            v1::WebOtpRequest { id: id.clone(), address: BROWSER.to_owned(), otp, code: bench.shown(&id) };
        web.prove_approval_otp(request).await.unwrap_err();
    }
    assert_eq!(bench.events("SP1001W", "alice").await.len(), 1);
    let closed = support::log_in(&cluster.proxy(), &bench.pin, "alice", None).await.err().unwrap();
    assert_eq!(closed.code(), Code::ResourceExhausted, "{closed:?}");
}
