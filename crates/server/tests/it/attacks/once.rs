//! What may be used once, asked for two hundred times at the same moment; and one-time codes in other spellings.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_sal::{Suite, totp};
use sallyport_wire::v1;
use sallyport_wire::v1::login_client::LoginClient;
use time::OffsetDateTime;
use tonic::Code;
use tonic::transport::Channel;

use super::people::{finish, invited, join_request, stranger};
use crate::support::{Cluster, PASSWORD, pinned};

const TIMES: usize = 200;

/// One request in as many calls at once; how many of them were answered.
async fn at_once<T, F: Future<Output = Result<T, tonic::Status>>>(
    login: &LoginClient<Channel>,
    call: impl Fn(LoginClient<Channel>) -> F,
) -> Vec<T> {
    let outcomes = join_all((0..TIMES).map(|_| call(login.clone()))).await;
    let mut good = Vec::new();
    for outcome in outcomes {
        match outcome {
            Ok(answer) => good.push(answer),
            Err(status) => assert!(!status.message().contains("invite/"), "{status:?}"),
        }
    }
    good
}

/// How many hosts join that come at once with a token for `uses` of them. They have names of their own, so that no host is in
/// the way of another but by the token.
async fn joining_at_once(uses: u32) -> usize {
    let cluster = Cluster::without_node().await;
    let asked = v1::CreateTokenRequest { role: "node".to_owned(), uses, ..Default::default() };
    let made = cluster.admin().await.create_token(asked).await.unwrap().into_inner();
    let login = LoginClient::new(pinned(&cluster.proxy(), &made.ca_pin).await);
    let ssh = SshKeyPair::generate(Suite::BalancedV1, "x").unwrap();
    let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
    let named = AtomicUsize::new(0);
    let joined = at_once(&login, |mut login| {
        let name = format!("web-{}", named.fetch_add(1, Ordering::Relaxed));
        let request = join_request(&made.token, "node", &name, &ssh, &tls);
        async move { login.join(request).await }
    });
    joined.await.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_hundred_joins_with_one_token_one_wins() {
    assert_eq!(joining_at_once(1).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_for_three_hosts_lets_three_of_two_hundred_join() {
    assert_eq!(joining_at_once(3).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_hundred_uses_of_one_link_one_wins() {
    let cluster = Cluster::without_node().await;
    let token = invited(&cluster, "alice", &[], &[]).await.token;
    let login = stranger(&cluster).await;
    let opened = at_once(&login, |mut login| {
        let token = token.clone();
        async move { login.begin_invite(v1::BeginInviteRequest { token }).await }
    });
    let opened: Vec<String> = opened.await.into_iter().map(|answer| answer.into_inner().otp_uri).collect();
    assert!(!opened.is_empty() && opened.iter().all(|uri| *uri == opened[0]), "one secret for all");
    let finished = at_once(&login, |mut login| {
        let finish = finish(&token, PASSWORD);
        async move { login.finish_invite(finish).await }
    });
    assert_eq!(finished.await.len(), 1);
}

/// A user with a second factor, and its secret.
async fn enrolled(cluster: &Cluster, name: &str) -> totp::Secret {
    let token = invited(cluster, name, &[], &[]).await.token;
    let mut login = stranger(cluster).await;
    let secret = opened(&mut login, &token).await;
    // The code of the step before, so that later ones are left.
    let otp = secret.code(OffsetDateTime::now_utc() - Duration::from_secs(totp::STEP_SECONDS));
    login.finish_invite(v1::FinishInviteRequest { otp, ..finish(&token, PASSWORD) }).await.unwrap();
    secret
}

async fn opened(login: &mut LoginClient<Channel>, token: &str) -> totp::Secret {
    let begun = login.begin_invite(v1::BeginInviteRequest { token: token.to_owned() }).await.unwrap();
    let uri = begun.into_inner().otp_uri;
    let secret = uri.split("secret=").nth(1).unwrap().split('&').next().unwrap();
    totp::Secret::from_base32(secret).unwrap()
}

fn attempt(name: &str, otp: &str) -> v1::LoginRequest {
    v1::LoginRequest {
        user: name.to_owned(),
        password: PASSWORD.to_owned(),
        otp: otp.to_owned(),
        ssh_public_key: SshKeyPair::generate(Suite::BalancedV1, "x").unwrap().public_line().to_owned(),
        tls_public_key: TlsKey::generate(Suite::BalancedV1).unwrap().spki_der().to_vec().into(),
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_hundred_logins_with_one_code_one_wins() {
    let cluster = Cluster::without_node().await;
    let secret = enrolled(&cluster, "alice").await;
    // The last step that is accepted now, so that none of the refusals comes from its end.
    let code = secret.code(OffsetDateTime::now_utc() + Duration::from_secs(totp::STEP_SECONDS));
    let login = stranger(&cluster).await;
    let request = attempt("alice", &code);
    let answered = at_once(&login, |mut login| {
        let request = request.clone();
        async move { login.login_with_password(request).await }
    });
    assert_eq!(answered.await.len(), 1);

    // The same code is the same in every spelling.
    let mut login = login;
    for other in spellings(&code) {
        let status = login.login_with_password(attempt("alice", &other)).await.unwrap_err();
        assert!(
            matches!(status.code(), Code::Unauthenticated | Code::ResourceExhausted),
            "{other:?}: {status:?}"
        );
    }
}

/// One code, as it is, and as people and their keyboards write it.
fn spellings(code: &str) -> Vec<String> {
    let wide: String = code.chars().map(|c| char::from_u32(u32::from(c) + 0xfee0).unwrap()).collect();
    let spaced: String = code.chars().flat_map(|c| [c, ' ']).collect();
    let mixed = format!("{}{}", &code[..3], wide.chars().skip(3).collect::<String>());
    vec![
        code.to_owned(),
        format!(" {code}\n"),
        spaced,
        wide.clone(),
        format!("{code}\u{3000}"),
        wide.chars().flat_map(|c| [c, '\u{3000}']).collect(),
        mixed,
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_is_one_code_however_it_is_spelled() {
    let cluster = Cluster::without_node().await;
    let mut login = stranger(&cluster).await;
    for (number, spelling) in spellings("000000").iter().enumerate().skip(2) {
        assert_ne!(spelling, "000000");
        let name = format!("user-{number}");
        let secret = enrolled(&cluster, &name).await;
        let code = secret.code(OffsetDateTime::now_utc() + Duration::from_secs(totp::STEP_SECONDS));
        // It is read as the code that it is, and has then been used.
        let spelled = spellings(&code)[number].clone();
        login
            .login_with_password(attempt(&name, &spelled))
            .await
            .unwrap_or_else(|status| panic!("{spelled:?}: {status:?}"));
        for again in [code, spelled] {
            let status = login.login_with_password(attempt(&name, &again)).await.unwrap_err();
            assert_eq!(status.code(), Code::Unauthenticated, "{again:?}: {status:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_codes_count_for_the_account_wherever_they_are_tried() {
    let cluster = Cluster::without_node().await;
    enrolled(&cluster, "alice").await;
    let reset = v1::ResetUserRequest { name: "alice".to_owned() };
    let token = cluster.admin().await.reset_user(reset).await.unwrap().into_inner().token;
    let mut login = stranger(&cluster).await;
    let secret = opened(&mut login, &token).await;
    let wrong = |otp: &str| v1::FinishInviteRequest { otp: otp.to_owned(), ..finish(&token, PASSWORD) };
    let now = OffsetDateTime::now_utc();
    let right = |at: i64| secret.code(now + time::Duration::seconds(at));
    let not =
        (0..).map(|n| format!("{n:06}")).find(|code| (-3..=3).all(|step| right(step * 30) != *code)).unwrap();
    for _ in 0..3 {
        assert_eq!(login.finish_invite(wrong(&not)).await.unwrap_err().code(), Code::InvalidArgument);
    }
    for _ in 0..2 {
        assert_eq!(
            login.login_with_password(attempt("alice", "")).await.unwrap_err().code(),
            Code::Unauthenticated
        );
    }
    let otp = secret.code(OffsetDateTime::now_utc());
    let status =
        login.finish_invite(v1::FinishInviteRequest { otp, ..finish(&token, PASSWORD) }).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
}
