use std::path::Path;
use std::sync::Arc;

use sallyport_access::{HostId, Kind, SessionFactor, SessionTarget};
use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_sal::{Suite, hash};
use sallyport_wire::v1;
use tonic::Code as Answered;

use super::*;
use crate::authority::Authority;
use crate::authority::caller::TellingHost;
use crate::authority::challenges::bounds::MOST_OF_PLACE;
use crate::authority::challenges::pages::Browser;
use crate::authority::challenges::records::{AllowedBy, LIFETIME, NamedTarget, Redirect};
use crate::authority::factors::names::FactorName;
use crate::dialling::PeerInfo;

async fn open(directory: &Path) -> Authority {
    let config = AuthConfig::of_tests(directory.to_owned());
    Authority::open(config, OffsetDateTime::now_utc()).await.unwrap()
}

fn stranger(address: &str) -> Caller {
    Caller::Anonymous { from: PeerInfo::direct(format!("{address}:4711").parse().unwrap()) }
}

fn record(purpose: Purpose) -> ChallengeRecord {
    let now = OffsetDateTime::UNIX_EPOCH;
    ChallengeRecord {
        purpose,
        user: Some("alice".parse().unwrap()),
        login: Some(Uuid::from_u128(1)),
        host_name: "h".repeat(64),
        address: "2001:db8:1111:2222:3333:4444:5555:6666".parse().unwrap(),
        created: now,
        expires: now + LIFETIME,
        state: State::Refused,
        ceremony: None,
        failures: MOST_FAILURES,
        terminal_code: Some(hash_of("code")),
        sso: Some(hash_of("state")),
    }
}

/// What strangers and users can make as long as a call may be is not kept once the challenge is over.
#[test]
fn of_a_challenge_that_is_over_no_key_and_no_session_is_kept() {
    const SAID: &str = "said by a client";
    let long = || SAID.repeat(4_096);
    let now = OffsetDateTime::UNIX_EPOCH;
    let name = || FactorName::new("phone").unwrap();
    let login = LoginAsked {
        ssh_public_key: long(),
        tls_public_key: long(),
        ttl_seconds: 3_600,
        code_challenge: hash_of("verifier"),
        redirect: Redirect::Loopback { port: 45_678 },
        device: None,
        relayed_by: None,
    };
    let target = NamedTarget { target: SessionTarget::any(Kind::App, SAID), name: SAID.to_owned() };
    let sessions = SessionsAsked {
        factor: SessionFactor::Yes,
        targets: vec![target; 2_000],
        all: false,
        seconds: 60,
        proxy: Some("proxy:edge.example.net".to_owned()),
        shown: true,
        partly: false,
    };
    let allowed = AllowedBy { factor: None, first: true, at: now };
    for purpose in [
        Purpose::Login(login.clone()),
        Purpose::Session(sessions),
        Purpose::EnrolCodes { name: name(), sealed: long(), allowed },
        Purpose::Administer { asked: Some(long()) },
        Purpose::EnrolPasskey { name: name(), allowed },
    ] {
        let left = left_of(&record(purpose.clone()));
        let written = serde_json::to_string(&left).unwrap();
        assert!(written.len() < 1_024 && !written.contains(SAID), "{written}");
        // Its page and its program are told what became of it still, and others are not.
        assert_eq!((left.purpose.word(), left.state.word()), (purpose.word(), "refused"));
        assert_eq!((left.user.is_some(), left.login), (true, Some(Uuid::from_u128(1))));
        if let Purpose::Login(left) = &left.purpose {
            assert_eq!((&left.code_challenge, &left.redirect), (&login.code_challenge, &login.redirect));
        }
        assert_eq!(by(&left).proxy.is_some(), purpose.sessions().is_some());
    }
}

/// The authority starts anew, and an office's programs ask for the logins that they had begun: none of them guesses.
#[tokio::test(flavor = "multi_thread")]
async fn ids_that_are_known_no_more_count_as_no_guesses_and_what_is_no_id_does() {
    let directory = tempfile::tempdir().unwrap();
    let authority = open(directory.path()).await;
    let challenges = Arc::clone(&authority.services.api.factors.challenges);
    let (office, now) = (stranger("192.0.2.1"), OffsetDateTime::now_utc());
    for _ in 0..200 {
        let unknown = challenges.at(&office, &random_text().unwrap(), now).await.unwrap_err();
        assert_eq!(unknown.code(), Answered::NotFound, "{unknown:?}");
    }
    challenges.guesses.not_barred(&office, now).unwrap();
    // No challenge has these; a person who reads an address off a screen may miss some letters of it, a few times.
    let guesser = stranger("192.0.2.2");
    let id = random_text().unwrap();
    let forms = [String::new(), id[1..].to_owned(), format!("{id}A"), format!("{}!", &id[1..])];
    let mut guesses = 0;
    while challenges.guesses.not_barred(&guesser, now).is_ok() {
        let unknown = challenges.at(&guesser, &forms[guesses % forms.len()], now).await.unwrap_err();
        assert_eq!(unknown.code(), Answered::NotFound, "{unknown:?}");
        guesses += 1;
        assert!(guesses <= 60, "guesses from one place have a bound");
    }
    let barred = challenges.at(&guesser, &id, now).await.unwrap_err();
    assert_eq!(barred.code(), Answered::ResourceExhausted, "{barred:?}");
    challenges.guesses.not_barred(&office, now).unwrap();
    authority.shutdown().await;
}

/// Finishes fail again and again, as of a user whose account is gone: nothing is written, and the refusal of another login from there is kept.
#[tokio::test(flavor = "multi_thread")]
async fn attacks_finishes_that_fail_take_nothing_of_what_is_kept_that_is_over() {
    let directory = tempfile::tempdir().unwrap();
    let authority = open(directory.path()).await;
    let challenges = Arc::clone(&authority.services.api.factors.challenges);
    let (office, verifier) = (stranger("192.0.2.1"), "v".repeat(43));
    let ssh = SshKeyPair::generate(Suite::BalancedV1, "x").unwrap();
    let request = v1::BeginBrowserLoginRequest {
        ssh_public_key: ssh.public_line().to_owned(),
        tls_public_key: TlsKey::generate(Suite::BalancedV1).unwrap().spki_der().to_vec().into(),
        code_challenge: hash::sha256(verifier.as_bytes()).to_vec().into(),
        redirect_port: 45_678,
        ..v1::BeginBrowserLoginRequest::default()
    };
    let begun = challenges.begin_browser_login(&office, request).await.unwrap();
    let id = begun.page.unwrap().challenge;
    let key = hash_of(&id);
    let stored = challenges.open_by(&key, OffsetDateTime::now_utc()).await.unwrap().unwrap();
    for state in [State::Used, State::Refused] {
        let next = ChallengeRecord { state, ..stored.value.clone() };
        for _ in 0..MOST_OF_PLACE * 2 {
            challenges.changed(&stored, &next, OffsetDateTime::now_utc()).unwrap();
        }
    }
    let browser =
        Browser::at("198.51.100.7", TellingHost { id: HostId::new(), name: "proxy:pages".into() }).unwrap();
    challenges.refuse(&browser, &id, true).await.unwrap();
    let kept = challenges.open_by(&key, OffsetDateTime::now_utc()).await.unwrap().unwrap();
    let Purpose::Login(asked) = &kept.value.purpose else { panic!("{kept:?}") };
    assert_eq!((asked.ssh_public_key.as_str(), asked.tls_public_key.as_str()), ("", ""));
    let finish = |code_verifier: String| {
        let request = v1::FinishBrowserLoginRequest {
            challenge: id.clone(),
            code_verifier,
            ..v1::FinishBrowserLoginRequest::default()
        };
        challenges.finish_browser_login(&office, request)
    };
    let told = finish(verifier).await.unwrap_err();
    assert_eq!(told.code(), Answered::PermissionDenied, "{told:?}");
    assert!(told.message().contains("refused at the page"), "{told:?}");
    let other = finish("w".repeat(43)).await.unwrap_err();
    assert!(other.message().contains("wrong verifier"), "{other:?}");
    authority.shutdown().await;
}
