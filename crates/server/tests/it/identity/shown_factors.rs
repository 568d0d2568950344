//! A user's own factors at a page: shown, and removed one by one.

use tonic::Code;

use super::*;

/// The page of factors of a user: its id, and the code that the terminal shows.
async fn open(user: &User) -> (String, String) {
    let request = v1::BeginProofRequest {
        purpose: Some(Purpose::ShowFactors(true)),
        host_name: "laptop\u{7} of alice".to_owned(),
    };
    let begun = factors(user).await.begin_proof(request).await.unwrap().into_inner();
    let page = begun.page.unwrap();
    assert_eq!(page.path, format!("/factors#{}", page.challenge));
    (page.challenge, begun.code)
}

pub(super) fn listed_at(id: &str, code: &str) -> v1::WebFactorsRequest {
    v1::WebFactorsRequest { id: id.to_owned(), address: BROWSER.to_owned(), code: code.to_owned() }
}

fn removal(id: &str, code: &str, factor: &str) -> v1::WebFactorRemovalRequest {
    let (address, factor) = (BROWSER.to_owned(), factor.to_owned());
    v1::WebFactorRemovalRequest { id: id.to_owned(), address, code: code.to_owned(), factor }
}

fn finished(id: &str, code: &str, factor: &str, approval: &str) -> v1::WebFinishFactorRemovalRequest {
    v1::WebFinishFactorRemovalRequest {
        id: id.to_owned(),
        address: BROWSER.to_owned(),
        code: code.to_owned(),
        factor: factor.to_owned(),
        approval: approval.to_owned(),
    }
}

fn id_of(factors: &[v1::Factor], name: &str) -> String {
    factors.iter().find(|factor| factor.name == name).unwrap().id.clone()
}

/// Each method once with success.
pub(super) async fn as_a_person(bench: &Bench<'_>, user: &User, key: &mut Authenticator, by: Proof) {
    bench.add_codes(user, "tablet", by).await.unwrap();
    let (id, code) = open(user).await;
    let mut web = bench.web.clone();
    web.describe_factors(at(&id)).await.unwrap();
    let factors = web.list_factors(listed_at(&id, &code)).await.unwrap().into_inner().factors;
    let tablet = id_of(&factors, "tablet");
    let begun = web.begin_factor_removal(removal(&id, &code, &tablet)).await.unwrap().into_inner();
    bench.codes.lock().insert(begun.approval.clone(), code.clone());
    bench.approve(&begun.approval, key).await.unwrap();
    let left = web.finish_factor_removal(finished(&id, &code, &tablet, &begun.approval)).await.unwrap();
    assert!(left.into_inner().factors.iter().all(|factor| factor.name != "tablet"));
}

#[tokio::test(flavor = "multi_thread")]
async fn factors_are_shown_at_a_page_to_the_terminals_code_and_removed_by_an_approval() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let secret = bench.add_codes(&alice, "phone", Proof::Password(PASSWORD.to_owned())).await.unwrap();
    let mut key = bench.enrol(&alice, "blue key", Proof::Otp(next_code(&secret))).await.unwrap();
    let (id, code) = open(&alice).await;
    let mut web = bench.web.clone();

    let page = web.describe_factors(at(&id)).await.unwrap().into_inner();
    assert_eq!((page.user.as_str(), page.state.as_str()), ("alice", "pending"));
    assert_eq!(page.client.unwrap().host_name, "laptopofalice", "as the machine says, and nothing hidden");
    let shown = web.list_factors(listed_at(&id, &code.to_lowercase())).await.unwrap().into_inner();
    let names: Vec<&str> = shown.factors.iter().map(|factor| factor.name.as_str()).collect();
    assert_eq!(names, ["blue key", "phone"]);
    let phone = id_of(&shown.factors, "phone");
    assert!(shown.factors.iter().all(|factor| factor.created.is_some()));

    // One that was begun and refused removes nothing, and the page stays.
    let begun = web.begin_factor_removal(removal(&id, &code, &phone)).await.unwrap().into_inner().approval;
    web.refuse_approval(at(&begun)).await.unwrap();
    let refused = web.finish_factor_removal(finished(&id, &code, &phone, &begun)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");

    let begun = web.begin_factor_removal(removal(&id, &code, &phone)).await.unwrap().into_inner().approval;
    let asked = web.describe_approval(at(&begun)).await.unwrap().into_inner();
    assert_eq!((asked.user.as_str(), asked.purpose.as_str()), ("alice", "remove-factor"));
    assert!(asked.details.iter().any(|detail| detail.value == "phone" && !detail.said), "{asked:?}");
    let early = web.finish_factor_removal(finished(&id, &code, &phone, &begun)).await.unwrap_err();
    assert_eq!(early.code(), Code::FailedPrecondition, "it is not proven yet: {early:?}");
    bench.codes.lock().insert(begun.clone(), code.clone());
    bench.approve(&begun, &mut key).await.unwrap();
    let left = web.finish_factor_removal(finished(&id, &code, &phone, &begun)).await.unwrap().into_inner();
    let names: Vec<&str> = left.factors.iter().map(|factor| factor.name.as_str()).collect();
    assert_eq!(names, ["blue key"]);
    let again = web.finish_factor_removal(finished(&id, &code, &phone, &begun)).await.unwrap_err();
    assert_eq!(again.code(), Code::NotFound, "{again:?}");

    let event = &bench.events("SP1011I", "alice").await[0];
    assert_eq!(event["fields"]["factor"], "phone");
    assert!(event["fields"]["proxy"].as_str().unwrap().contains("pages"), "{event:?}");
    assert!(event["fields"]["login_id"].is_string(), "{event:?}");
    assert!(event["source"].as_str().unwrap().starts_with(BROWSER), "{event:?}");

    // The page is refused for good.
    web.refuse_approval(at(&id)).await.unwrap();
    let over = web.list_factors(listed_at(&id, &code)).await.unwrap_err();
    assert!(support::is(&over, Code::PermissionDenied, "this was refused"), "{over:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn attacks_the_address_of_a_page_of_factors_shows_none_and_ends_with_wrong_codes() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    bench.first_passkey(&alice).await;
    let (id, code) = open(&alice).await;
    let mut web = bench.web.clone();
    // The page is no approval, no enrolment and no login, and none of these is it.
    for refused in [
        web.describe_approval(at(&id)).await.map(drop),
        web.begin_approval_passkey(begin_at(&id, &code)).await.map(drop),
        web.describe_enrolment(at(&id)).await.map(drop),
        web.refuse_login(at(&id)).await.map(drop),
    ] {
        assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
    }
    let approval = bench.begin_proof(&alice, Purpose::RecoveryCodes(true)).await.unwrap();
    let code_of_it = bench.shown(&approval);
    for refused in [
        web.describe_factors(at(&approval)).await.map(drop),
        web.list_factors(listed_at(&approval, &code_of_it)).await.map(drop),
        web.begin_factor_removal(removal(&approval, &code_of_it, "x")).await.map(drop),
    ] {
        assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
    }
    let proof = factors(&alice).await.make_recovery_codes(recovery_codes(Proof::Challenge(id.clone()))).await;
    assert_eq!(proof.unwrap_err().code(), Code::FailedPrecondition, "it proves nothing");

    for wrong in ["", "BCDF-GHJK", "BCDF-GHJK", "BCDF-GHJK", "BCDF-GHJK"] {
        let refused = web.list_factors(listed_at(&id, wrong)).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    }
    let over = web.list_factors(listed_at(&id, &code)).await.unwrap_err();
    assert_eq!(over.code(), Code::PermissionDenied, "the fifth has ended it: {over:?}");
}

fn recovery_codes(by: Proof) -> v1::MakeRecoveryCodesRequest {
    v1::MakeRecoveryCodesRequest { proof: proof(by) }
}

#[tokio::test(flavor = "multi_thread")]
async fn attacks_a_page_of_factors_removes_what_its_own_user_has_approved_and_ends_with_the_login() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let mallory = cluster.user("mallory", &["root"]).await;
    let secret = bench.add_codes(&alice, "phone", Proof::Password(PASSWORD.to_owned())).await.unwrap();
    let mut key = bench.enrol(&alice, "blue key", Proof::Otp(next_code(&secret))).await.unwrap();
    let theirs = bench.add_codes(&mallory, "theirs", Proof::Password(PASSWORD.to_owned())).await.unwrap();
    let mut web = bench.web.clone();
    let (id, code) = open(&alice).await;
    let shown = web.list_factors(listed_at(&id, &code)).await.unwrap().into_inner().factors;
    let (phone, blue) = (id_of(&shown, "phone"), id_of(&shown, "blue key"));
    let (their_page, their_code) = open(&mallory).await;
    let shown = web.list_factors(listed_at(&their_page, &their_code)).await.unwrap().into_inner().factors;
    assert_eq!(shown.len(), 1, "each page shows its own user's");

    // Another's factor is none here, and an approval of another's is unknown.
    let other = web.begin_factor_removal(removal(&their_page, &their_code, &phone)).await.unwrap_err();
    assert_eq!(other.code(), Code::NotFound, "{other:?}");
    let of_theirs = shown[0].id.clone();
    let begun = web.begin_factor_removal(removal(&their_page, &their_code, &of_theirs)).await.unwrap();
    let approval = begun.into_inner().approval;
    let request = v1::WebOtpRequest {
        id: approval.clone(),
        address: BROWSER.to_owned(),
        otp: next_code(&theirs),
        code: their_code.clone(),
    };
    web.prove_approval_otp(request).await.unwrap();
    let other = web.finish_factor_removal(finished(&id, &code, &phone, &approval)).await.unwrap_err();
    assert_eq!(other.code(), Code::NotFound, "{other:?}");

    // What was approved for one factor removes no other, and another person's passkey ends the approval.
    let begun = web.begin_factor_removal(removal(&id, &code, &phone)).await.unwrap().into_inner().approval;
    bench.codes.lock().insert(begun.clone(), code.clone());
    bench.approve(&begun, &mut key).await.unwrap();
    let other = web.finish_factor_removal(finished(&id, &code, &blue, &begun)).await.unwrap_err();
    assert!(support::is(&other, Code::FailedPrecondition, "for something else"), "{other:?}");

    // The page ends with the login that asked for it.
    let lock = v1::ResetUserRequest { name: "alice".to_owned() };
    cluster.admin().await.reset_user(lock).await.unwrap();
    for refused in [
        web.describe_factors(at(&id)).await.map(drop),
        web.list_factors(listed_at(&id, &code)).await.map(drop),
        web.finish_factor_removal(finished(&id, &code, &phone, &begun)).await.map(drop),
    ] {
        let refused = refused.unwrap_err();
        assert!(support::is(&refused, Code::PermissionDenied, "the login that asked"), "{refused:?}");
    }
}
