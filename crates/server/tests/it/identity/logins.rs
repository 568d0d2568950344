//! Logins in a browser.

use sallyport_server::config::{HeadlessLogins, PreferredLogin};
use tonic::Code;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_passkey_logs_in_and_what_it_was_is_on_record() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let mut key = bench.first_passkey(&alice).await;
    let begun = bench.begin(PORT).await.unwrap();
    let shown = bench.web.clone().describe_login(at(&begun.id)).await.unwrap().into_inner();
    let client = shown.client.unwrap();
    assert_eq!((client.host_name.as_str(), client.address.as_str()), ("laptopofalice", "127.0.0.1"));
    assert_eq!(
        (shown.state.as_str(), shown.redirect.as_str(), shown.user.as_str()),
        ("pending", "loopback", "")
    );
    assert!(shown.methods.unwrap().passkey);
    let unproven = bench.finish(&begun, "guessed").await.unwrap_err();
    assert_eq!(unproven.code(), Code::PermissionDenied, "{unproven:?}");

    let begun = bench.begin(PORT).await.unwrap();
    let proven = bench.prove(&begun, &mut key).await.unwrap();
    let shown = bench.web.clone().describe_login(at(&begun.id)).await.unwrap().into_inner();
    assert_eq!((shown.state.as_str(), shown.user.as_str()), ("proven", "alice"));
    let (code, state) = answer_of(&proven);
    // The program takes no code that comes without what it knows by the id alone.
    let kept = data_encoding::HEXLOWER.encode(&hash::sha256(begun.id.as_bytes()));
    let made = hash::sha256(format!("callback{kept}").as_bytes());
    assert_eq!(state, data_encoding::BASE64URL_NOPAD.encode(&made));
    let answer = bench.finish(&begun, &code).await.unwrap();
    assert_eq!(answer.user, "alice");
    assert!(answer.login.unwrap().ssh_certificate.starts_with("ssh-"));
    let events = bench.events("SP1000I", "alice").await;
    let fields = &events.last().unwrap()["fields"];
    assert_eq!(fields["way"], "passkey", "{fields}");
    assert_eq!(fields["factor"], "laptop");
    assert_eq!((&fields["user_verified"], &fields["second_factor"]), (&true.into(), &true.into()));
}

/// What is to be proven is in memory: a restart opens nothing that was proven before, and the person begins again.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_authority_ends_what_was_proven_and_not_used() {
    let cluster = cluster_with(|_| {}).await;
    let alice = cluster.user("alice", &["root"]).await;
    let bench = Bench::at(&cluster).await;
    let mut key = bench.first_passkey(&alice).await;
    let begun = bench.begin(PORT).await.unwrap();
    let code = code_of(&bench.prove(&begun, &mut key).await.unwrap());
    let Bench { codes, .. } = bench;
    let Cluster { directory, running } = cluster;
    running.shutdown(true).await;
    let mut config = support::config(&directory.path().join("cluster"));
    (config.auth, config.proxy) = (Some(support::auth_section()), Some(support::proxy_section()));
    with_passkeys(&mut config);
    let running = sallyport_server::start(config).await.unwrap();
    running.ready(PATIENCE).await.unwrap();
    let cluster = Cluster { directory, running };
    let bench = Bench { codes, ..Bench::at(&cluster).await };
    let over = bench.finish(&begun, &code).await.unwrap_err();
    assert_eq!(over.code(), Code::NotFound, "{over:?}");
    assert!(over.message().contains("begin again"), "{over:?}");
    bench.begin(PORT).await.unwrap();
    // The programs of an office behind one address ask for what they had begun: none of them guesses, and all log in again.
    for _ in 0..70 {
        assert_eq!(bench.finish(&begun, "").await.unwrap_err().code(), Code::NotFound);
    }
    bench.logged_in(&mut key).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_opens_one_login_once() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let mut key = bench.first_passkey(&alice).await;
    let begun = bench.begin(PORT).await.unwrap();
    let code = code_of(&bench.prove(&begun, &mut key).await.unwrap());
    // The program's own call, many times at the same moment.
    let finish = |_| bench.finish(&begun, &code);
    let outcomes = futures::future::join_all((0..20).map(finish)).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    let again = bench.finish(&begun, &code).await.unwrap_err();
    assert_eq!(again.code(), Code::FailedPrecondition, "{again:?}");
    assert!(again.message().contains("used already"), "{again:?}");
    let proven = bench.prove(&begun, &mut key).await.unwrap_err();
    assert_eq!(proven.code(), Code::FailedPrecondition, "a login that is used is not proven again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_at_the_page_wants_the_second_factor() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let secret = bench.add_codes(&alice, "phone", Proof::Password(PASSWORD.to_owned())).await.unwrap();
    let begun = bench.begin(PORT).await.unwrap();
    let otp = next_code(&secret);
    let asked = |otp: &str| v1::WebPasswordRequest {
        id: begun.id.clone(),
        address: BROWSER.to_owned(),
        code: begun.headless_code.clone(),
        user: "alice".to_owned(),
        password: PASSWORD.to_owned(),
        otp: otp.to_owned(),
    };
    let mut web = bench.web.clone();
    let without = web.prove_login_password(asked("")).await.unwrap_err();
    assert_eq!(without.code(), Code::Unauthenticated, "{without:?}");
    let proven = web.prove_login_password(asked(&otp)).await.unwrap().into_inner();
    bench.finish(&begun, &code_of(&proven)).await.unwrap();
    let failed = bench.events("SP1000W", "alice").await;
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(failed[0]["source"].as_str().unwrap().starts_with(BROWSER), "{failed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_headless_login_is_waited_for_and_wants_the_code_of_its_terminal() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let mut key = bench.first_passkey(&alice).await;
    let begun = bench.begin(0).await.unwrap();
    let mut web = bench.web.clone();
    let wrong = web.begin_login_passkey(begin_at(&begun.id, "BBBB-BBBB")).await.unwrap_err();
    assert_eq!(wrong.code(), Code::PermissionDenied, "{wrong:?}");
    assert!(wrong.message().contains("the terminal shows"), "{wrong:?}");
    let typed = begun.headless_code.to_lowercase().replace('-', " ");
    let proving = async {
        let asked = web.clone().begin_login_passkey(begin_at(&begun.id, &typed)).await.unwrap().into_inner();
        let response = key.get(&asked.options_json);
        web.clone().finish_login_passkey(response_at(&begun.id, response)).await.unwrap().into_inner()
    };
    let (finished, proven) = tokio::join!(bench.finish(&begun, ""), proving);
    assert_eq!(proven.redirect, "");
    assert_eq!(finished.unwrap().user, "alice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_hears_at_once_of_a_refusal_and_ends_what_it_gives_up() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let mut key = bench.first_passkey(&alice).await;
    // The program waits for a browser on its machine, which never comes.
    for port in [PORT, 0] {
        let begun = bench.begin(port).await.unwrap();
        let began = std::time::Instant::now();
        let refusing = async { bench.web.clone().refuse_login(at(&begun.id)).await.unwrap() };
        let (heard, _) = tokio::join!(bench.finish(&begun, ""), refusing);
        let heard = heard.unwrap_err();
        assert!(support::is(&heard, Code::PermissionDenied, "refused at the page"), "{heard:?}");
        assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
    }
    // One that is proven is not given out without its code, and waits for it.
    let begun = bench.begin(PORT).await.unwrap();
    let code = code_of(&bench.prove(&begun, &mut key).await.unwrap());
    let waiting = bench.finish(&begun, "");
    tokio::pin!(waiting);
    assert!(futures::poll!(&mut waiting).is_pending());
    assert_eq!(bench.finish(&begun, &code).await.unwrap().user, "alice");
    let over = waiting.await.unwrap_err();
    assert_eq!(over.code(), Code::FailedPrecondition, "{over:?}");

    // The program is interrupted.
    for port in [PORT, 0] {
        let begun = bench.begin(port).await.unwrap();
        assert_eq!(bench.tell(&begun, "", true).await.unwrap(), v1::FinishBrowserLoginResponse::default());
        let late = bench.prove(&begun, &mut key).await.unwrap_err();
        assert_eq!(late.code(), Code::PermissionDenied, "{late:?}");
        let begun = bench.begin(port).await.unwrap();
        let proven = bench.prove(&begun, &mut key).await.unwrap();
        bench.tell(&begun, "", true).await.unwrap();
        let code = if port == 0 { String::new() } else { code_of(&proven) };
        let late = bench.finish(&begun, &code).await.unwrap_err();
        assert_eq!(late.code(), Code::PermissionDenied, "{late:?}");
    }
    // A login that was finished stays.
    let begun = bench.begin(PORT).await.unwrap();
    let code = code_of(&bench.prove(&begun, &mut key).await.unwrap());
    bench.finish(&begun, &code).await.unwrap();
    bench.tell(&begun, "", true).await.unwrap();
    assert!(bench.events("SP1033W", "alice").await.iter().all(|event| event["message"] != "wrong verifier"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_a_lock_or_another_role_after_the_proof_leaves_nothing_of_it() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let lock = |name: &str| {
        format!(
            "kind: lock\nversion: v1\nmetadata: {{name: {name}}}\nspec: {{target: {{user: {name}}}, message: away}}\n"
        )
    };
    for (name, what) in [("alice", "reset"), ("bob", "lock"), ("carol", "roles"), ("dave", "removed")] {
        let user = cluster.user(name, &["root"]).await;
        let mut key = bench.first_passkey(&user).await;
        // Between the page's two calls of a passkey, and between its proof and the program's word.
        let late = bench.begin(PORT).await.unwrap();
        let code = code_of(&bench.prove(&late, &mut key).await.unwrap());
        let early = bench.begin(PORT).await.unwrap();
        let begin = begin_at(&early.id, &early.headless_code);
        let asked = bench.web.clone().begin_login_passkey(begin).await.unwrap().into_inner();
        let response = key.get(&asked.options_json);
        let mut admin = cluster.admin().await;
        match what {
            "reset" => {
                admin.reset_user(v1::ResetUserRequest { name: name.to_owned() }).await.unwrap();
            }
            "lock" => {
                let request = v1::CreateResourceRequest { yaml: lock(name), replace: false };
                admin.create_resource(request).await.unwrap();
            }
            "roles" => {
                let yaml = format!(
                    "kind: user\nversion: v1\nmetadata: {{name: {name}}}\nspec: {{roles: [access]}}\n"
                );
                admin.create_resource(v1::CreateResourceRequest { yaml, replace: true }).await.unwrap();
            }
            _ => {
                let request = v1::DeleteResourceRequest { kind: "user".to_owned(), name: name.to_owned() };
                admin.delete_resource(request).await.unwrap();
            }
        }
        let finished = bench.finish(&late, &code).await;
        let proven = bench.web.clone().finish_login_passkey(response_at(&early.id, response)).await;
        match what {
            // What they are now is what they log in as.
            "roles" => {
                finished.unwrap_err();
                let proven = proven.unwrap().into_inner();
                let login = bench.finish(&early, &code_of(&proven)).await.unwrap().login.unwrap();
                assert_eq!(login.roles, ["access"]);
            }
            _ => {
                let (finished, proven) = (finished.unwrap_err(), proven.unwrap_err());
                let refused = [Code::PermissionDenied, Code::Unauthenticated, Code::FailedPrecondition];
                assert!(refused.contains(&finished.code()), "{what}: {finished:?}");
                assert!(refused.contains(&proven.code()), "{what}: {proven:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn guesses_at_a_terminals_code_end_the_login() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let begun = bench.begin(0).await.unwrap();
    let mut web = bench.web.clone();
    for _ in 0..5 {
        web.begin_login_passkey(begin_at(&begun.id, "CCCC-CCCC")).await.unwrap_err();
    }
    let right = web.begin_login_passkey(begin_at(&begun.id, &begun.headless_code)).await.unwrap_err();
    assert!(right.message().contains("refused"), "{right:?}");
    let finished = bench.finish(&begun, "").await.unwrap_err();
    assert_eq!(finished.code(), Code::PermissionDenied, "{finished:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_administer_have_no_headless_logins_by_default() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let yaml = "kind: role\nversion: v1\nmetadata:\n  name: boss-role\nspec:\n  allow:\n    logins: [root]\n    node_labels:\n      \
                '*': '*'\n    rules:\n      - resources: [user]\n        verbs: [list, update]\n";
    let boss = cluster.user("boss", &["root"]).await;
    let mut key = bench.first_passkey(&boss).await;
    let request = v1::CreateResourceRequest { yaml: yaml.to_owned(), replace: true };
    cluster.admin().await.create_resource(request).await.unwrap();
    let begun = bench.begin(0).await.unwrap();
    let refused = bench.prove(&begun, &mut key).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    assert!(refused.message().contains("auth.authentication.headless"), "{refused:?}");
    let begun = bench.begin(PORT).await.unwrap();
    bench.prove(&begun, &mut key).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn headless_logins_can_be_off_and_a_cluster_says_what_it_prefers() {
    let cluster = cluster_with(|config| {
        let authentication = &mut config.auth.as_mut().unwrap().authentication;
        authentication.headless = HeadlessLogins::Off;
        authentication.prefer = PreferredLogin::Passkey;
    })
    .await;
    let bench = Bench::at(&cluster).await;
    let refused = bench.begin(0).await.err().unwrap();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    let ping = bench.login().await.ping(v1::PingRequest {}).await.unwrap().into_inner();
    assert_eq!(ping.login_methods, ["passkey", "password"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_prefers_the_browser_names_passkeys_and_single_sign_on_before_passwords() {
    let connector = "kind: github\nversion: v1\nmetadata: {name: hub}\nspec:\n  client_id: a\n  client_secret_file: /etc/s\n  \
                     organizations: [acme]\n  mapping: {roles: [{claim: teams, value: acme/ops, roles: [access]}]}\n";
    let preferring = async |prefer: PreferredLogin, passkeys: bool| {
        let cluster = cluster_with(|config| {
            let authentication = &mut config.auth.as_mut().unwrap().authentication;
            authentication.prefer = prefer;
            authentication.webauthn = authentication.webauthn.take().filter(|_| passkeys);
        })
        .await;
        let mut login = Bench::at(&cluster).await.login().await;
        let alone = login.ping(v1::PingRequest {}).await.unwrap().into_inner().login_methods;
        let request = v1::CreateResourceRequest { yaml: connector.to_owned(), replace: true };
        cluster.admin().await.create_resource(request).await.unwrap();
        let with = login.ping(v1::PingRequest {}).await.unwrap().into_inner().login_methods;
        cluster.running.shutdown(false).await;
        (alone.join(" "), with.join(" "))
    };
    for (prefer, passkeys, alone, with) in [
        (PreferredLogin::Password, false, "password", "password sso"),
        (PreferredLogin::Password, true, "password passkey", "password passkey sso"),
        (PreferredLogin::Passkey, true, "passkey password", "passkey sso password"),
        (PreferredLogin::Browser, true, "passkey password", "passkey sso password"),
        (PreferredLogin::Browser, false, "password", "sso password"),
    ] {
        let named = preferring(prefer, passkeys).await;
        assert_eq!(named, (alone.to_owned(), with.to_owned()), "{prefer:?} {passkeys}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_rp_id_passkeys_are_off_and_each_message_names_the_setting() {
    let cluster = Cluster::without_node().await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let begun = bench.begin(PORT).await.unwrap();
    let off =
        bench.web.clone().begin_login_passkey(begin_at(&begun.id, &begun.headless_code)).await.unwrap_err();
    let add = v1::BeginAddFactorRequest {
        factor: Some(to_add("webauthn", "key")),
        proof: proof(Proof::Password(PASSWORD.to_owned())),
        host_name: String::new(),
    };
    let added = factors(&alice).await.begin_add(add).await.unwrap_err();
    for status in [off, added] {
        assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
        assert!(status.message().contains("auth.authentication.webauthn.rp_id"), "{status:?}");
    }
    let ping = bench.login().await.ping(v1::PingRequest {}).await.unwrap().into_inner();
    assert_eq!(ping.login_methods, ["password"]);
}
