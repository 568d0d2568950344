//! What a thief holds of a login in a browser, and what it is good for.

use tonic::Code;

use super::*;

/// What a thief changes.
type Change = fn(&mut Authenticator);

#[tokio::test(flavor = "multi_thread")]
async fn a_stolen_redirect_is_useless_and_ends_the_login() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let mut key = bench.first_passkey(&alice).await;
    let begun = bench.begin(PORT).await.unwrap();
    let code = code_of(&bench.prove(&begun, &mut key).await.unwrap());
    let thief = Begun { verifier: "t".repeat(43), headless_code: String::new(), id: begun.id.clone() };
    let refused = bench.finish(&thief, &code).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    assert!(refused.message().contains("wrong verifier"), "{refused:?}");
    // The person learns of it: the login that was after is over.
    let late = bench.finish(&begun, &code).await.unwrap_err();
    assert_eq!(late.code(), Code::PermissionDenied, "{late:?}");
    assert!(bench.events("SP1000I", "alice").await.len() < 2, "the one by her password alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_code_and_one_of_another_login_end_it() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let mut key = bench.first_passkey(&alice).await;
    let (mine, other) = (bench.begin(PORT).await.unwrap(), bench.begin(PORT).await.unwrap());
    let of_other = code_of(&bench.prove(&other, &mut key).await.unwrap());
    let code = code_of(&bench.prove(&mine, &mut key).await.unwrap());
    let swapped = bench.finish(&mine, &of_other).await.unwrap_err();
    assert!(swapped.message().contains("wrong code"), "{swapped:?}");
    assert_eq!(bench.finish(&mine, &code).await.unwrap_err().code(), Code::PermissionDenied);
    bench.finish(&other, &of_other).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_passkeys_answer_serves_once_and_where_it_was_asked_for() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let mut key = bench.first_passkey(&alice).await;
    let mut web = bench.web.clone();
    let (one, two) = (bench.begin(PORT).await.unwrap(), bench.begin(PORT).await.unwrap());
    let asked = web.begin_login_passkey(begin_at(&one.id, &one.headless_code)).await.unwrap().into_inner();
    web.begin_login_passkey(begin_at(&two.id, &two.headless_code)).await.unwrap();
    let answer = key.get(&asked.options_json);
    // In another login, which another program has begun.
    let swapped = web.finish_login_passkey(response_at(&two.id, answer.clone())).await.unwrap_err();
    assert_eq!(swapped.code(), Code::PermissionDenied, "{swapped:?}");
    web.finish_login_passkey(response_at(&one.id, answer.clone())).await.unwrap();
    for id in [&one.id, &two.id] {
        let again = web.finish_login_passkey(response_at(id, answer.clone())).await.unwrap_err();
        assert_eq!(again.code(), Code::FailedPrecondition, "{again:?}");
    }
    // What was asked for first does not serve once more is asked for.
    let three = bench.begin(PORT).await.unwrap();
    let first =
        web.begin_login_passkey(begin_at(&three.id, &three.headless_code)).await.unwrap().into_inner();
    web.begin_login_passkey(begin_at(&three.id, &three.headless_code)).await.unwrap();
    let late = web.finish_login_passkey(response_at(&three.id, key.get(&first.options_json))).await;
    assert_eq!(late.unwrap_err().code(), Code::PermissionDenied);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_passkey_that_is_not_as_it_should_be_logs_no_user_in() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let mut key = bench.first_passkey(&alice).await;
    let begun = bench.begin(PORT).await.unwrap();
    bench.prove(&begun, &mut key).await.unwrap();

    let cases: [(&str, Change); 3] = [
        ("wrong_origin", |key| key.origin = "https://sallyport.example.net".to_owned()),
        ("user_not_verified", |key| key.verifies = false),
        ("counter_backwards", |key| key.counter = 0),
    ];
    for (word, change) in cases {
        let begun = bench.begin(PORT).await.unwrap();
        change(&mut key);
        let refused = bench.prove(&begun, &mut key).await.expect_err(word);
        assert_eq!(refused.code(), Code::PermissionDenied, "{word}: {refused:?}");
        key.origin = ORIGIN.to_owned();
        key.verifies = true;
        let events = bench.events("SP1000W", "alice").await;
        assert_eq!(events.last().unwrap()["message"], word, "{events:?}");
    }
    key.counter += 10;
    let begun = bench.begin(PORT).await.unwrap();
    bench.prove(&begun, &mut key).await.unwrap();

    // One that is registered nowhere looks like a wrong answer, and the fifth ends the login.
    let begun = bench.begin(PORT).await.unwrap();
    for _ in 0..5 {
        let status = bench.prove(&begun, &mut Authenticator::at(ORIGIN)).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{status:?}");
    }
    let ended = bench.prove(&begun, &mut key).await.unwrap_err();
    assert!(ended.message().contains("refused"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stolen_certificates_add_and_remove_no_factor() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let add = |by| v1::BeginAddFactorRequest {
        factor: Some(to_add("webauthn", "thief")),
        proof: by,
        host_name: String::new(),
    };
    let mut client = factors(&alice).await;
    let wrong = Proof::Password("not the password".to_owned());
    for (by, code) in [(None, Code::FailedPrecondition), (proof(wrong), Code::Unauthenticated)] {
        let refused = client.begin_add(add(by)).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused:?}");
    }
    bench.first_passkey(&alice).await;
    let id = client.list(v1::ListFactorsRequest {}).await.unwrap().into_inner().factors[0].id.clone();
    // The password is not enough once there is a factor.
    for by in [None, proof(Proof::Password(PASSWORD.to_owned())), proof(Proof::Challenge("x".to_owned()))] {
        assert!(client.begin_add(add(by.clone())).await.is_err(), "{by:?}");
        let request = v1::RemoveFactorRequest { id: id.clone(), proof: by.clone() };
        assert!(client.remove(request).await.is_err(), "{by:?}");
    }
    assert_eq!(client.list(v1::ListFactorsRequest {}).await.unwrap().into_inner().factors.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn guesses_made_at_once_are_refused_as_those_in_a_row_are() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    cluster.user("alice", &["root"]).await;
    // A name that no user has is closed as a user is.
    for user in ["alice", "nobody"] {
        let login = bench.login().await;
        let guesses = (0..12).map(|_| {
            let mut login = login.clone();
            let request = v1::LoginRequest {
                user: user.to_owned(),
                password: "not the password".to_owned(),
                ..Default::default()
            };
            async move { login.login_with_password(request).await.unwrap_err() }
        });
        let answers = futures::future::join_all(guesses).await;
        let checked = answers.iter().filter(|answer| answer.code() == Code::Unauthenticated);
        assert_eq!(checked.count(), 5, "{user}: {answers:?}");
    }
    let closed = support::log_in(&cluster.proxy(), &bench.pin, "alice", None).await.err().unwrap();
    assert_eq!(closed.code(), Code::ResourceExhausted, "{closed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn challenges_that_are_begun_and_not_finished_are_bounded() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    bench.first_passkey(&alice).await;
    let mut opened = Vec::new();
    let refused = loop {
        match bench.begin_proof(&alice, Purpose::RecoveryCodes(true)).await {
            Ok(id) => opened.push(id),
            Err(status) => break status,
        }
        assert!(opened.len() <= 20, "no bound");
    };
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    bench.web.clone().refuse_approval(at(&opened[0])).await.unwrap();
    bench.begin_proof(&alice, Purpose::RecoveryCodes(true)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_address_of_an_enrolment_registers_nothing_without_the_terminals_code() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let request = v1::BeginAddFactorRequest {
        factor: Some(to_add("webauthn", "laptop")),
        proof: proof(Proof::Password(PASSWORD.to_owned())),
        host_name: String::new(),
    };
    let mut client = factors(&alice).await;
    let (begun, code) = {
        let begun = client.begin_add(request.clone()).await.unwrap().into_inner();
        (begun.page.unwrap().challenge, begun.code)
    };
    let mut web = bench.web.clone();
    for wrong in ["", "BBBB-BBBB", "CCCC-CCCC", "", "DDDD-DDDD"] {
        let refused = web.begin_enrolment(begin_at(&begun, wrong)).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{wrong}: {refused:?}");
        assert!(refused.message().contains("the terminal shows"), "{refused:?}");
        let unbegun = v1::WebFinishEnrolmentRequest {
            id: begun.clone(),
            address: BROWSER.to_owned(),
            response_json: "{}".to_owned(),
        };
        web.finish_enrolment(unbegun).await.unwrap_err();
    }
    let late = web.begin_enrolment(begin_at(&begun, &code)).await.unwrap_err();
    assert!(late.message().contains("refused"), "five wrong codes end it: {late:?}");

    // One that its user did not ask for is refused at the page, for good.
    let begun = client.begin_add(request).await.unwrap().into_inner();
    let id = begun.page.unwrap().challenge;
    web.refuse_enrolment(at(&id)).await.unwrap();
    let late = web.begin_enrolment(begin_at(&id, &begun.code)).await.unwrap_err();
    assert!(late.message().contains("refused"), "{late:?}");
    assert!(client.list(v1::ListFactorsRequest {}).await.unwrap().into_inner().factors.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_not_proven_without_the_code_of_its_terminal() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let mut key = bench.first_passkey(&alice).await;
    let id = bench.begin_proof(&alice, Purpose::RecoveryCodes(true)).await.unwrap();
    let mut web = bench.web.clone();
    for wrong in ["", "BBBB-BBBB"] {
        let passkey = web.begin_approval_passkey(begin_at(&id, wrong)).await.unwrap_err();
        let otp = v1::WebOtpRequest {
            id: id.clone(),
            address: BROWSER.to_owned(),
            otp: "000000".to_owned(),
            code: wrong.to_owned(),
        };
        let otp = web.prove_approval_otp(otp).await.unwrap_err();
        for refused in [passkey, otp] {
            assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
            assert!(refused.message().contains("the terminal shows"), "{refused:?}");
        }
    }
    bench.approve(&id, &mut key).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_from_another_network_than_its_browsers_wants_the_terminals_code() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let mut key = bench.first_passkey(&alice).await;
    let begun = bench.begin(PORT).await.unwrap();
    let mut web = bench.web.clone();
    assert!(web.describe_login(at(&begun.id)).await.unwrap().into_inner().code, "the page asks for it");
    for wrong in ["", "BBBB-BBBB"] {
        let refused = web.begin_login_passkey(begin_at(&begun.id, wrong)).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    }
    bench.prove(&begun, &mut key).await.unwrap();

    // On the program's own machine, no code is asked for.
    let begun = bench.begin(PORT).await.unwrap();
    let here = v1::WebRequest { id: begun.id.clone(), address: "127.0.0.1".to_owned() };
    assert!(!web.describe_login(here).await.unwrap().into_inner().code);
    let here = v1::WebBeginPasskeyRequest { address: "127.0.0.1".to_owned(), ..begin_at(&begun.id, "") };
    web.begin_login_passkey(here).await.unwrap();
}
