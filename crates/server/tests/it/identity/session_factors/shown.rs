//! A proof is for what the person who gave it could read, whatever else was asked for by then.

use super::*;

fn read(challenge: &str, otp: &str, shown: Vec<v1::SessionTarget>) -> v1::ProveSessionFactorRequest {
    v1::ProveSessionFactorRequest { challenge: challenge.to_owned(), otp: otp.to_owned(), shown }
}

/// A thief has the login's key, and comes from behind the same address: what they add to a question of the user's is not proven by the
/// code that the user types, in their terminal or at a proxy.
#[tokio::test(flavor = "multi_thread")]
async fn attacks_a_typed_code_is_for_what_stood_where_it_was_typed() {
    let (cluster, alice) = scene("require_session_mfa: yes, session_mfa_ttl: 5m").await;
    let bench = Bench::at(&cluster).await;
    agent_of(&cluster).await;
    let mut key = bench.first_passkey(&alice).await;
    let codes = bench.recovery_codes(&alice, &mut key).await;
    let (here, wiki, shop) = ("127.0.0.1", to("app", "wiki", "", ""), to("db", "shop", "app", "shop"));
    // The thief's comes first, and one more while the user reads.
    let thief = alice.clone();
    let theirs = bench.ask(&thief, wanted(std::slice::from_ref(&shop))).await;
    let own = bench.ask(&alice, wanted(&[web_1()])).await;
    assert!(own.joined, "one question");
    let id = own.page.unwrap().challenge;
    assert_eq!(theirs.page.unwrap().challenge, id);
    bench.ask(&thief, wanted(std::slice::from_ref(&wiki))).await;
    let mut client = sessions(&alice).await;
    let nothing = client.prove(read(&id, &codes[0], Vec::new())).await.unwrap_err();
    assert_eq!(
        nothing.code(),
        Code::PermissionDenied,
        "programs of the release before say nothing: {nothing:?}"
    );
    let another = client.prove(read(&id, &codes[0], vec![to("node", "web-1", "", "")])).await.unwrap_err();
    assert_eq!(another.code(), Code::FailedPrecondition, "any login was not asked for: {another:?}");
    let proven = client.prove(read(&id, &codes[0], vec![web_1(), web_1()])).await.unwrap().into_inner();
    assert_eq!((proven.state.as_str(), proven.partly), ("proven", true));
    assert!(bench.check(&alice, here, web_1()).await.satisfied);
    for target in [&wiki, &shop] {
        assert!(!bench.check(&alice, here, target.clone()).await.satisfied, "{target:?}");
    }
    // Those who wait hear that it was for others, and the record says for which.
    let awaited = v1::AwaitSessionFactorRequest { challenge: id.clone() };
    let heard = sessions(&thief).await.r#await(awaited).await.unwrap().into_inner();
    assert_eq!((heard.state.as_str(), heard.partly), ("proven", true));
    let record = bench.events("SP1015I", "alice").await;
    let fields = &record.last().unwrap()["fields"];
    assert_eq!((fields["sessions"].as_array().unwrap().len(), &fields["session_count"]), (1, &1.into()));
    let node = agent_of(&cluster).await;
    assert_eq!(fields["sessions"][0], format!("node web-1 ({node}) as {}", os_login()), "by name and id");
    assert_eq!(fields["asked_from"], here, "{fields}");
    assert!(fields["login_id"].is_string(), "{fields}");
    // Nor is it certified.
    let certify = v1::CertifySessionRequest {
        challenge: id.clone(),
        ssh_certificate: alice.ssh_certificate.clone(),
        tls_certificate_pem: alice.tls_chain.clone(),
    };
    let certified = sessions(&alice).await.certify(certify).await.unwrap().into_inner();
    let (trust, now) = (cluster.running.authority().unwrap().trust(), OffsetDateTime::now_utc());
    let line = sallyport_ca::keys::certificate(&certified.ssh_certificate).unwrap();
    assert_eq!(trust.session_proof_ssh(&line, now).unwrap().unwrap().targets.len(), 1);
    let anew = bench.ask(&thief, wanted(std::slice::from_ref(&shop))).await;
    assert!(anew.state == "pending" && anew.page.unwrap().challenge != id, "it is asked for anew");

    // The same where a stock client's user has typed it at a proxy.
    let mut proxy = bench.factors_of_sessions();
    let address = "192.0.2.7".to_owned();
    let mut begun = Vec::new();
    for target in [&shop, &wiki] {
        let request = v1::BeginSessionFactorForRequest {
            certificate: shown(&alice),
            address: address.clone(),
            target: Some(target.clone()),
        };
        begun.push(proxy.begin_for(request).await.unwrap().into_inner().page.unwrap().challenge);
    }
    assert_eq!(begun[0], begun[1]);
    let request = v1::ProveSessionFactorForRequest {
        challenge: begun[0].clone(),
        certificate: shown(&alice),
        address: address.clone(),
        otp: codes[1].clone(),
        shown: vec![wiki.clone()],
    };
    assert!(proxy.prove_for(request).await.unwrap().into_inner().partly);
    assert!(bench.check(&alice, &address, wiki).await.satisfied);
    assert!(!bench.check(&alice, &address, shop).await.satisfied);
}

/// However many sessions: the page names each of them that is granted, those alike together.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_names_every_session_that_it_grants() {
    let (cluster, alice) = scene("require_session_mfa: yes").await;
    let bench = Bench::at(&cluster).await;
    agent_of(&cluster).await;
    bench.first_passkey(&alice).await;
    let mut targets = vec![web_1()];
    for number in 0..30 {
        let name = format!("desk-{number}");
        put(
            &cluster,
            format!("kind: app\nversion: v1\nmetadata: {{name: {name}}}\nspec: {{uri: 'tcp://127.0.0.1:1', via: web-1}}\n"),
        )
        .await;
        targets.push(to("app", &name, "", ""));
    }
    // What any client may write into the name of an account, where the database is not said, steers nothing at the page.
    targets.push(to("db", "shop", "app\u{202e}\u{1b}[2J", ""));
    let asked = bench.ask(&alice, wanted(&targets)).await;
    let id = asked.page.unwrap().challenge;
    let page = bench.web.clone().describe_approval(at(&id)).await.unwrap().into_inner();
    let details: Vec<(String, String)> =
        page.details.into_iter().map(|detail| (detail.label, detail.value)).collect();
    let desks = details.iter().find(|(label, _)| label == "30 sessions").map(|(_, value)| value.as_str());
    let names: Vec<String> = (0..30).map(|number| format!("desk-{number}")).collect();
    assert_eq!(desks, Some(format!("application {}", names.join(", ")).as_str()), "{details:?}");
    assert!(
        details.contains(&("Session".to_owned(), format!("node web-1 as {}", os_login()))),
        "{details:?}"
    );
    assert!(details.iter().all(|(_, value)| !value.contains(['\u{1b}', '\u{202e}'])), "{details:?}");
    assert_eq!(details.len(), 3, "{details:?}");
}

/// One who asks for a minute does not prove what a thief has asked half an hour for.
#[tokio::test(flavor = "multi_thread")]
async fn attacks_a_longer_time_is_another_question() {
    let (cluster, alice) = scene("require_session_mfa: yes, session_mfa_ttl: 30m").await;
    let bench = Bench::at(&cluster).await;
    agent_of(&cluster).await;
    let mut key = bench.first_passkey(&alice).await;
    let all = |pre_auth_seconds| v1::BeginSessionFactorRequest {
        all: true,
        pre_auth_seconds,
        ..Default::default()
    };
    let theirs = bench.ask(&alice, all(1_800)).await.page.unwrap().challenge;
    let own = bench.ask(&alice, all(60)).await;
    let id = own.page.unwrap().challenge;
    assert!(!own.joined && id != theirs);
    bench.approve(&id, &mut key).await.unwrap();
    let until = bench.check(&alice, "127.0.0.1", web_1()).await.until.unwrap().seconds;
    assert!(until - OffsetDateTime::now_utc().unix_timestamp() <= 60);
}

/// Calls that a proxy makes for the clients of one login: no more than leave room for those of others, and for its pages.
#[tokio::test(flavor = "multi_thread")]
async fn attacks_one_login_uses_up_no_calls_that_its_proxy_makes_for_others() {
    let (cluster, alice) = scene("require_session_mfa: yes").await;
    let bench = Bench::at(&cluster).await;
    agent_of(&cluster).await;
    bench.first_passkey(&alice).await;
    let mallory = cluster.user("mallory", &[&os_login()]).await;
    put(&cluster, role("mallory-role", "require_session_mfa: yes")).await;
    bench.first_passkey(&mallory).await;
    let proxy = bench.factors_of_sessions();
    let guess = |user: &User, number: usize| {
        let (mut proxy, certificate) = (proxy.clone(), shown(user));
        let request = v1::ProveSessionFactorForRequest {
            challenge: "guessed".to_owned(),
            certificate,
            address: format!("192.0.2.{}", number % 250),
            otp: "123456".to_owned(),
            shown: Vec::new(),
        };
        async move { proxy.prove_for(request).await.unwrap_err().code() }
    };
    let mut calls = 0;
    let admitted = loop {
        let codes = futures::future::join_all((0..50).map(|number| guess(&mallory, calls + number))).await;
        calls += 50;
        assert!(calls <= 1_000, "a login is bounded well below its proxy");
        if codes.contains(&Code::ResourceExhausted) {
            break calls;
        }
    };
    assert!(admitted >= 300, "{admitted}: many connections in a minute are nothing odd");
    assert_eq!(guess(&alice, 1).await, Code::NotFound, "others go on");
    // Nor do wrong guesses of one client bar the proxy that it comes by: they are of where it is.
    let mut wrong = 0;
    while guess(&alice, 7).await == Code::NotFound {
        wrong += 1;
        assert!(wrong <= 60, "an address that guesses is barred");
    }
    assert_eq!(guess(&alice, 8).await, Code::NotFound, "from elsewhere by the same proxy");
    let own = bench.ask(&mallory, wanted(&[web_1()])).await;
    assert_eq!(own.state, "pending", "and so do her own calls");
    let id = own.page.unwrap().challenge;
    bench.web.clone().describe_approval(at(&id)).await.unwrap();
}

/// The page proves it while a code is on its way: the person has what they asked for, and the code for another time.
#[tokio::test(flavor = "multi_thread")]
async fn a_code_that_comes_when_the_page_has_proven_it_is_not_spent_and_no_failure() {
    let (cluster, alice) = scene("require_session_mfa: yes").await;
    let bench = Bench::at(&cluster).await;
    agent_of(&cluster).await;
    let mut key = bench.first_passkey(&alice).await;
    let codes = bench.recovery_codes(&alice, &mut key).await;
    let wiki = to("app", "wiki", "", "");
    let id = bench.proves(&alice, &mut key, wanted(&[web_1()])).await;
    let mut client = sessions(&alice).await;
    let late = client.prove(read(&id, &codes[0], vec![web_1()])).await.unwrap().into_inner();
    assert_eq!((late.state.as_str(), late.partly), ("proven", false));
    let next = bench.ask(&alice, wanted(&[wiki.clone(), to("db", "shop", "app", "shop")])).await;
    let id = next.page.unwrap().challenge;
    let proven = client.prove(read(&id, &codes[0], vec![wiki.clone()])).await.unwrap().into_inner();
    assert_eq!((proven.state.as_str(), proven.partly), ("proven", true), "the code was not spent");
    // What another program's code has proven is not what this person has read.
    let other = client.prove(read(&id, &codes[1], vec![to("db", "shop", "app", "shop")])).await.unwrap_err();
    assert_eq!(other.code(), Code::FailedPrecondition, "{other:?}");
    assert_eq!(client.prove(read(&id, &codes[1], vec![wiki])).await.unwrap().into_inner().state, "proven");
}

/// What a proxy's client guesses is on record with the proxy.
#[tokio::test(flavor = "multi_thread")]
async fn events_of_what_a_proxy_calls_for_a_person_name_the_proxy() {
    let (cluster, alice) = scene("require_session_mfa: yes").await;
    let bench = Bench::at(&cluster).await;
    let address = "192.0.2.7".to_owned();
    let request = v1::ProveSessionFactorForRequest {
        challenge: "guessed".to_owned(),
        certificate: shown(&alice),
        address: address.clone(),
        otp: "123456".to_owned(),
        shown: Vec::new(),
    };
    bench.factors_of_sessions().prove_for(request).await.unwrap_err();
    bench.web.clone().describe_approval(at("guessed")).await.unwrap_err();
    let refused = support::events(&mut cluster.admin().await, "SP1015W").await;
    assert!(refused.len() >= 2, "{refused:?}");
    assert!(refused.iter().all(|event| event["fields"]["proxy"] == "proxy:pages"), "{refused:?}");
    assert!(
        refused.iter().any(|event| event["source"].as_str().unwrap().starts_with(&address)),
        "{refused:?}"
    );
}
