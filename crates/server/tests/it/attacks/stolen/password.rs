//! A user's password.

use sallyport_sal::totp;
use sallyport_server::config::SecondFactor;
use time::OffsetDateTime;

use super::*;

/// Logs in with a password and a code.
async fn log_in(cluster: &Cluster, pin: &str, otp: &str) -> Result<v1::LoginResponse, Status> {
    guess(cluster, pin, "carol", support::PASSWORD, otp).await
}

async fn guess(
    cluster: &Cluster,
    pin: &str,
    user: &str,
    password: &str,
    otp: &str,
) -> Result<v1::LoginResponse, Status> {
    let mut login = LoginClient::new(pinned(&cluster.proxy(), pin).await);
    let request = v1::LoginRequest {
        user: user.to_owned(),
        password: password.to_owned(),
        otp: otp.to_owned(),
        ssh_public_key: ssh_line(),
        tls_public_key: spki(),
        ..Default::default()
    };
    login.login_with_password(request).await.map(tonic::Response::into_inner)
}

#[tokio::test(flavor = "multi_thread")]
async fn it_gives_nothing_without_the_second_factor_and_a_reset_voids_it() {
    let cluster =
        Cluster::start(|config| config.auth.as_mut().unwrap().second_factor = SecondFactor::Required).await;
    cluster.running.ready(PATIENCE).await.unwrap();
    let mut admin = cluster.admin().await;
    let yaml = support::role("dev", &["root"]);
    admin.create_resource(v1::CreateResourceRequest { yaml, replace: false }).await.unwrap();
    let request = v1::CreateUserRequest {
        name: "carol".to_owned(),
        roles: vec!["dev".to_owned()],
        ..Default::default()
    };
    let invite = admin.create_user(request).await.unwrap().into_inner();
    let pin = support::pin(&mut admin).await;
    let mut login = LoginClient::new(pinned(&cluster.proxy(), &pin).await);
    let begun = login.begin_invite(v1::BeginInviteRequest { token: invite.token.clone() }).await.unwrap();
    let uri = begun.into_inner().otp_uri;
    let secret = uri.split_once("secret=").unwrap().1.split('&').next().unwrap();
    let secret = totp::Secret::from_base32(secret).unwrap();
    let now = OffsetDateTime::now_utc();
    let code = secret.code(now);
    let finish = v1::FinishInviteRequest {
        token: invite.token,
        password: support::PASSWORD.to_owned(),
        otp: code.clone(),
    };
    login.finish_invite(finish).await.unwrap();

    // The code that the invite was finished with has been used, and a code of yesterday's is none.
    let yesterday = secret.code(now - time::Duration::DAY);
    for wrong in ["", &code, &yesterday] {
        let status = log_in(&cluster, &pin, wrong).await.expect_err(wrong);
        assert_eq!(status.code(), Code::Unauthenticated, "the code {wrong:?}: {status:?}");
        let told = status.message();
        assert_eq!(
            told.contains("was used already") && told.contains(" s"),
            wrong == code,
            "{wrong:?}: {told}"
        );
        assert_eq!(told.contains("wrong user name, password or one-time code"), wrong != code, "{told}");
    }
    // Without the password, neither a used code nor a user's name is told from one that never was.
    let mut told = std::collections::BTreeSet::new();
    for user in ["carol", "mallory"] {
        let status = guess(&cluster, &pin, user, "a wrong password", &code).await.expect_err(user);
        told.insert((status.code() as i32, status.message().to_owned()));
    }
    assert_eq!(told.len(), 1, "{told:?}");
    // What it gives with the second factor; the next step's code is accepted already.
    let next = secret.code(now + time::Duration::seconds(30));
    log_in(&cluster, &pin, &next).await.unwrap();

    admin.reset_user(v1::ResetUserRequest { name: "carol".to_owned() }).await.unwrap();
    let since = Stopwatch::start();
    let after = secret.code(now + time::Duration::seconds(60));
    denied("the old password", log_in(&cluster, &pin, &after).await);
    since.done("a stolen password was refused");
    cluster.running.shutdown(false).await;
}
