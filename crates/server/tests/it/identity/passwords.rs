//! Passwords: whether there are any, which ones are taken, and how they are changed.

use sallyport_sal::breached;
use sallyport_server::config::PasswordsSection;
use tonic::Code;

use super::*;

async fn by_password(bench: &Bench<'_>, user: &str, password: &str) -> Result<v1::LoginResponse, Status> {
    let ssh = SshKeyPair::generate(Suite::BalancedV1, "x").unwrap();
    let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
    let request = v1::LoginRequest {
        user: user.to_owned(),
        password: password.to_owned(),
        otp: String::new(),
        ssh_public_key: ssh.public_line().to_owned(),
        tls_public_key: tls.spki_der().to_vec().into(),
        ..Default::default()
    };
    Ok(bench.login().await.login_with_password(request).await?.into_inner())
}

async fn change(user: &User, old: &str, new: &str, by: Option<Proof>) -> Result<u32, Status> {
    let request = v1::ChangePasswordRequest {
        old_password: old.to_owned(),
        new_password: new.to_owned(),
        proof: by.and_then(proof),
    };
    Ok(factors(user).await.change_password(request).await?.into_inner().ended_logins)
}

async fn invited(cluster: &Cluster, name: &str) -> String {
    let request = v1::CreateUserRequest { name: name.to_owned(), ..Default::default() };
    cluster.admin().await.create_user(request).await.unwrap().into_inner().token
}

fn finish(token: &str, password: &str) -> v1::FinishInviteRequest {
    v1::FinishInviteRequest { token: token.to_owned(), password: password.to_owned(), otp: String::new() }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_passwords_are_off_nothing_takes_one() {
    let cluster = cluster_with(|config| {
        let passwords = PasswordsSection { enabled: false, ..PasswordsSection::default() };
        config.auth.as_mut().unwrap().authentication.passwords = passwords;
    })
    .await;
    let bench = Bench::at(&cluster).await;
    let mut web = bench.web.clone();
    let ping = bench.login().await.ping(v1::PingRequest {}).await.unwrap().into_inner();
    assert_eq!(ping.login_methods, ["passkey"]);

    let token = invited(&cluster, "ivan").await;
    let link = v1::WebInviteRequest { token: token.clone(), address: BROWSER.to_owned() };
    let methods = web.describe_invite(link.clone()).await.unwrap().into_inner().methods.unwrap();
    assert!(methods.passkey && !methods.password, "{methods:?}");
    let begin = v1::BeginInviteRequest { token: token.clone() };
    let mut refused = vec![
        bench.login().await.begin_invite(begin).await.unwrap_err(),
        bench.login().await.finish_invite(finish(&token, PASSWORD)).await.unwrap_err(),
        // One answer, whoever is asked for.
        by_password(&bench, "ivan", PASSWORD).await.unwrap_err(),
        by_password(&bench, "mallory", PASSWORD).await.unwrap_err(),
    ];

    // The link is good still, for a passkey.
    let options = web.begin_invite_passkey(link).await.unwrap().into_inner().options_json;
    let mut key = Authenticator::at(ORIGIN);
    let request = v1::WebFinishInviteRequest {
        token,
        address: BROWSER.to_owned(),
        name: "phone".to_owned(),
        response_json: key.create(&options),
    };
    web.finish_invite_passkey(request).await.unwrap();
    let ivan = bench.logged_in(&mut key).await;
    let begun = bench.begin(PORT).await.unwrap();
    let methods = web.describe_login(at(&begun.id)).await.unwrap().into_inner().methods.unwrap();
    assert!(methods.passkey && !methods.password, "{methods:?}");
    let request = v1::WebPasswordRequest {
        id: begun.id,
        address: BROWSER.to_owned(),
        code: begun.headless_code,
        user: "ivan".to_owned(),
        password: PASSWORD.to_owned(),
        otp: String::new(),
    };
    refused.push(web.prove_login_password(request).await.unwrap_err());
    refused.push(change(&ivan, PASSWORD, CHANGED, None).await.unwrap_err());
    for status in refused {
        assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
        assert!(status.message().contains("this cluster has no passwords"), "{status:?}");
    }
    let list = factors(&ivan).await.list(v1::ListFactorsRequest {}).await.unwrap().into_inner();
    assert!(!list.password);
    let added = bench.add_codes(&ivan, "codes", Proof::Password(PASSWORD.to_owned())).await.unwrap_err();
    assert_eq!(added.code(), Code::FailedPrecondition, "{added:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn weak_and_stolen_passwords_are_refused_where_they_are_set_and_no_login_asks() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pwned.txt");
    let listed = |password: &str| {
        let digest = breached::digest(password.as_bytes()).unwrap();
        std::fs::write(&path, format!("{}:77\n", data_encoding::HEXUPPER.encode(digest.as_slice()))).unwrap();
    };
    listed(CHANGED);
    let cluster = cluster_with(|config| {
        let passwords = PasswordsSection { breached_list: Some(path.clone()), ..PasswordsSection::default() };
        config.auth.as_mut().unwrap().authentication.passwords = passwords;
    })
    .await;
    let bench = Bench::at(&cluster).await;
    let token = invited(&cluster, "ivan").await;
    for (password, says) in [
        (
            "password123",
            "too easy to guess: its strength is 0 of 4, and this cluster wants 3 or more. This is a",
        ),
        (CHANGED, "known to attackers (77 times"),
    ] {
        let status = bench.login().await.finish_invite(finish(&token, password)).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        assert!(status.message().contains(says), "{status:?}");
    }
    // The link is as good as before.
    bench.login().await.finish_invite(finish(&token, PASSWORD)).await.unwrap();

    let alice = cluster.user("alice", &["root"]).await;
    for (password, says) in [("password123", "too easy to guess"), (CHANGED, "known to attackers")] {
        let status = change(&alice, PASSWORD, password, None).await.unwrap_err();
        assert!(status.message().contains(says), "{status:?}");
    }
    listed(PASSWORD);
    by_password(&bench, "alice", PASSWORD).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_changed_by_the_former_one_and_a_factor() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let thief = support::log_in(&cluster.proxy(), &bench.pin, "alice", None).await.unwrap();
    let wrong = change(&alice, "not the password", CHANGED, None).await.unwrap_err();
    assert_eq!(wrong.code(), Code::Unauthenticated, "{wrong:?}");
    let same = change(&alice, PASSWORD, PASSWORD, None).await.unwrap_err();
    assert_eq!(same.code(), Code::InvalidArgument, "{same:?}");
    assert_eq!(change(&alice, PASSWORD, CHANGED, None).await.unwrap(), 1);
    assert_eq!(by_password(&bench, "alice", PASSWORD).await.unwrap_err().code(), Code::Unauthenticated);
    by_password(&bench, "alice", CHANGED).await.unwrap();
    let theirs = factors(&thief).await.list(v1::ListFactorsRequest {}).await.unwrap_err();
    assert_eq!(theirs.code(), Code::PermissionDenied, "{theirs:?}");

    // With a factor, the password is not enough; and a proof serves for this alone.
    let secret = bench.add_codes(&alice, "phone", Proof::Password(CHANGED.to_owned())).await.unwrap();
    let mut key = bench.enrol(&alice, "laptop", Proof::Otp(next_code(&secret))).await.unwrap();
    let alone = change(&alice, CHANGED, PASSWORD, None).await.unwrap_err();
    assert_eq!(alone.code(), Code::FailedPrecondition, "{alone:?}");
    let other = bench.begin_proof(&alice, Purpose::RecoveryCodes(true)).await.unwrap();
    bench.approve(&other, &mut key).await.unwrap();
    let other = change(&alice, CHANGED, PASSWORD, Some(Proof::Challenge(other))).await.unwrap_err();
    assert!(other.message().contains("something else"), "{other:?}");
    let begun = bench.begin_proof(&alice, Purpose::ChangePassword(true)).await.unwrap();
    let shown = bench.web.clone().describe_approval(at(&begun)).await.unwrap().into_inner();
    assert_eq!(
        (shown.purpose.as_str(), shown.details[0].value.as_str()),
        ("change-password", "your password")
    );
    bench.approve(&begun, &mut key).await.unwrap();
    // A wrong password before it counts, and is forgiven by the change.
    change(&alice, "not the password", PASSWORD, Some(Proof::Challenge(begun.clone()))).await.unwrap_err();
    change(&alice, CHANGED, PASSWORD, Some(Proof::Challenge(begun.clone()))).await.unwrap();
    let again = change(&alice, PASSWORD, CHANGED, Some(Proof::Challenge(begun))).await.unwrap_err();
    assert_eq!(again.code(), Code::FailedPrecondition, "a proof serves once: {again:?}");
    let events = bench.events("SP1009I", "alice").await;
    assert_eq!(events.len(), 2, "{events:?}");
    assert_eq!(events[0]["fields"]["ended_logins"], 1, "{events:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn guesses_at_the_former_password_count_as_those_at_a_login() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    for _ in 0..5 {
        let wrong = change(&alice, "not the password", CHANGED, None).await.unwrap_err();
        assert_eq!(wrong.code(), Code::Unauthenticated, "{wrong:?}");
    }
    let closed = change(&alice, PASSWORD, CHANGED, None).await.unwrap_err();
    assert_eq!(closed.code(), Code::ResourceExhausted, "{closed:?}");
    assert_eq!(by_password(&bench, "alice", PASSWORD).await.unwrap_err().code(), Code::ResourceExhausted);
    assert_eq!(bench.events("SP1001W", "alice").await.len(), 1, "the lockout is on record");
}

/// A thief of certificates learns nothing of the password of a user who has a factor: what is missing or wrong is the factor, whatever
/// the password.
#[tokio::test(flavor = "multi_thread")]
async fn attacks_without_the_factor_no_answer_tells_whether_the_password_is_right() {
    let cluster = cluster_with(|_| {}).await;
    let bench = Bench::at(&cluster).await;
    let alice = cluster.user("alice", &["root"]).await;
    let secret = bench.add_codes(&alice, "phone", Proof::Password(PASSWORD.to_owned())).await.unwrap();
    let begun = bench.begin_proof(&alice, Purpose::ChangePassword(true)).await.unwrap();
    for by in [None, Some("000000"), Some("challenge"), Some("password")] {
        let mut answers = Vec::new();
        for (old, new) in [(PASSWORD, CHANGED), ("not the password", CHANGED), (PASSWORD, "password123")] {
            let by = by.map(|by| match by {
                "challenge" => Proof::Challenge(begun.clone()),
                "password" => Proof::Password(PASSWORD.to_owned()),
                otp => Proof::Otp(otp.to_owned()),
            });
            let refused = change(&alice, old, new, by).await.unwrap_err();
            answers.push((refused.code(), refused.message().to_owned()));
        }
        answers.dedup();
        assert_eq!(answers.len(), 1, "{by:?}: {answers:?}");
    }
    // The password was not even looked at: three wrong codes closed nothing, and the person goes on.
    let failures = bench.events("SP1015W", "alice").await;
    assert!(failures.iter().all(|event| event["message"] != "wrong password"), "{failures:?}");
    let wrong = change(&alice, "not the password", CHANGED, Some(Proof::Otp(next_code(&secret)))).await;
    assert_eq!(
        wrong.unwrap_err().message(),
        "the password is wrong",
        "the person is told, who has the factor"
    );
    change(&alice, PASSWORD, CHANGED, Some(Proof::Otp(next_code(&secret)))).await.unwrap();
}
