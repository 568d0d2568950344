//! Factors of users who come by single sign-on: the first is allowed by signing in at the provider again.

use sallyport_sal::totp;
use sallyport_server::config::{Config, SecondFactor};
use sallyport_wire::v1::begin_proof_request::Purpose;
use sallyport_wire::v1::factor_proof::Proof;
use sallyport_wire::v1::factors_client::FactorsClient;
use time::OffsetDateTime;
use tonic::Code;

use super::provider::{Browser, Provider};
use super::*;
use crate::support::{PATIENCE, events, is};

pub(super) fn codes(name: &str) -> v1::FactorToAdd {
    v1::FactorToAdd { kind: "totp".to_owned(), name: name.to_owned() }
}

async fn factors(user: &User) -> FactorsClient<Channel> {
    FactorsClient::new(user.authority().await)
}

impl Pages<'_> {
    /// An approval that a user's program asks for.
    pub(super) async fn asks(&self, user: &User, purpose: Purpose) -> Result<String, Status> {
        let request = v1::BeginProofRequest { purpose: Some(purpose), host_name: "laptop".to_owned() };
        let begun = factors(user).await.begin_proof(request).await?.into_inner();
        let id = begun.page.unwrap().challenge;
        self.codes.lock().insert(id.clone(), begun.code);
        Ok(id)
    }

    /// The connectors that its page shows.
    async fn shown(&self, id: &str) -> Vec<String> {
        let asked = v1::WebRequest { id: id.to_owned(), address: ADDRESS.to_owned() };
        let page = self.web.clone().describe_approval(asked).await.unwrap().into_inner();
        page.methods.unwrap().sso.into_iter().map(|connector| connector.name).collect()
    }

    /// The person signs in again.
    pub(super) async fn again(
        &self,
        browser: &mut Browser,
        id: &str,
        person: &str,
    ) -> Result<v1::WebProven, Status> {
        let away = self.send(id, "corp").await?;
        let answer = browser.through(&away.url, person).await;
        self.answer(&answer, &away.binding).await
    }

    /// Adds one-time codes by a proof.
    pub(super) async fn adds(
        &self,
        user: &User,
        name: &str,
        proof: Option<Proof>,
    ) -> Result<totp::Secret, Status> {
        let mut client = factors(user).await;
        let proof = proof.map(|proof| v1::FactorProof { proof: Some(proof) });
        let add = v1::BeginAddFactorRequest { factor: Some(codes(name)), proof, ..Default::default() };
        let begun = client.begin_add(add).await?.into_inner();
        let secret = begun.otp_uri.split_once("secret=").unwrap().1.split('&').next().unwrap();
        let secret = totp::Secret::from_base32(secret).unwrap();
        let otp = secret.code(OffsetDateTime::now_utc());
        let challenge = begun.page.unwrap().challenge;
        client.finish_add(v1::FinishAddFactorRequest { challenge, otp }).await?;
        Ok(secret)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_factor_is_added_by_signing_in_again_and_the_next_by_the_first() {
    let (cluster, provider) = (Cluster::without_node().await, Provider::start(|_| ()).await);
    connect(&cluster, document("corp", &provider, "")).await;
    let pages = Pages::of(&cluster).await;
    let mut browser = Browser::default();
    let (alice, _) = pages.log_in(&mut browser, "1").await.unwrap();
    assert!(factors(&alice).await.list(v1::ListFactorsRequest {}).await.unwrap().into_inner().single_sign_on);
    // Certificates alone prove nothing.
    let refused = pages.adds(&alice, "phone", None).await.map(drop).unwrap_err();
    assert!(is(&refused, Code::FailedPrecondition, "sign in at your provider again"), "{refused:?}");
    for purpose in [Purpose::RecoveryCodes(true), Purpose::Administer(true), Purpose::ChangePassword(true)] {
        let refused = pages.asks(&alice, purpose).await.unwrap_err();
        assert!(is(&refused, Code::FailedPrecondition, "no factor yet"), "{refused:?}");
    }

    let id = pages.asks(&alice, Purpose::AddFactor(codes("phone"))).await.unwrap();
    assert_eq!(pages.shown(&id).await, ["corp"]);
    let early = pages.adds(&alice, "phone", Some(Proof::Challenge(id.clone()))).await.map(drop).unwrap_err();
    assert!(is(&early, Code::FailedPrecondition, "not proven yet"), "{early:?}");
    // The provider knows its session with this browser, and asks the person all the same.
    let away = pages.send(&id, "corp").await.unwrap();
    let query = members(away.url.split_once('?').unwrap().1);
    assert_eq!((query["prompt"].as_str(), query["max_age"].as_str()), ("login", "0"));
    let answer = browser.through(&away.url, "1").await;
    assert_eq!(pages.answer(&answer, &away.binding).await.unwrap().redirect, "");
    let phone = pages.adds(&alice, "phone", Some(Proof::Challenge(id.clone()))).await.unwrap();
    let twice = pages.adds(&alice, "phone", Some(Proof::Challenge(id))).await;
    assert!(twice.is_err(), "what was proven serves once");
    let proven = events(&mut cluster.admin().await, "SP1015I").await;
    assert!(proven.iter().any(|event| event["fields"]["way"] == "single sign-on"), "{proven:?}");

    // From now on a factor proves each change, and the provider none.
    let id = pages.asks(&alice, Purpose::AddFactor(codes("tablet"))).await.unwrap();
    assert_eq!(pages.shown(&id).await, [""; 0]);
    let refused = pages.send(&id, "corp").await.map(drop).unwrap_err();
    assert!(is(&refused, Code::FailedPrecondition, "prove a factor that you have"), "{refused:?}");
    let wrong = pages.adds(&alice, "tablet", Some(Proof::Otp("000000".to_owned()))).await;
    assert!(wrong.is_err());
    // The next step, since a code is taken once.
    let otp = phone.code(OffsetDateTime::now_utc() + time::Duration::seconds(30));
    pages.adds(&alice, "tablet", Some(Proof::Otp(otp))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn another_person_of_the_provider_destroys_the_approval() {
    let (cluster, provider) = (Cluster::without_node().await, Provider::start(|_| ()).await);
    connect(&cluster, document("corp", &provider, "")).await;
    connect(&cluster, document("other", &provider, "")).await;
    let pages = Pages::of(&cluster).await;
    let (alice, _) = pages.log_in(&mut Browser::default(), "1").await.unwrap();
    let id = pages.asks(&alice, Purpose::AddFactor(codes("phone"))).await.unwrap();
    let elsewhere = pages.send(&id, "other").await.map(drop).unwrap_err();
    assert!(is(&elsewhere, Code::PermissionDenied, "another identity provider"), "{elsewhere:?}");
    let refused = pages.again(&mut Browser::default(), &id, "2").await.unwrap_err();
    assert!(is(&refused, Code::PermissionDenied, "another person than the one who asks"), "{refused:?}");
    let late = pages.again(&mut Browser::default(), &id, "1").await.unwrap_err();
    assert!(is(&late, Code::PermissionDenied, "refused"), "{late:?}");
    let ended = events(&mut cluster.admin().await, "SP1015W").await;
    assert!(ended.iter().any(|event| event["message"] == "another person of the provider"), "{ended:?}");

    // The code of the terminal is asked for before the person is sent away.
    let id = pages.asks(&alice, Purpose::AddFactor(codes("phone"))).await.unwrap();
    let code = pages.codes.lock().insert(id.clone(), "AAAA-AAAA".to_owned()).unwrap();
    pages.send(&id, "corp").await.map(drop).unwrap_err();
    pages.codes.lock().insert(id.clone(), code);
    // What the browser brings back is taken from the one that was sent away, and once.
    let away = pages.send(&id, "corp").await.unwrap();
    let answer = Browser::default().through(&away.url, "1").await;
    let stolen = pages.answer(&answer, "").await.unwrap_err();
    assert!(is(&stolen, Code::PermissionDenied, "another browser"), "{stolen:?}");
    // A login's own way through the provider proves no approval.
    let login = pages.begin().await;
    let away = pages.send(&login.id, "corp").await.unwrap();
    let answer = Browser::default().through(&away.url, "1").await;
    pages.answer(&answer, &away.binding).await.unwrap();
    let early = pages.adds(&alice, "phone", Some(Proof::Challenge(id))).await.map(drop).unwrap_err();
    assert!(is(&early, Code::FailedPrecondition, "not proven yet"), "{early:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_that_does_not_let_the_provider_ask_again_allows_no_factor() {
    let (cluster, provider) = (Cluster::without_node().await, Provider::start(|_| ()).await);
    connect(&cluster, document("corp", &provider, "")).await;
    let pages = Pages::of(&cluster).await;
    let mut browser = Browser::default();
    let (alice, _) = pages.log_in(&mut browser, "1").await.unwrap();
    let id = pages.asks(&alice, Purpose::AddFactor(codes("phone"))).await.unwrap();
    // A thief at the person's browser has no password of theirs, and leaves the questions out.
    let away = pages.send(&id, "corp").await.unwrap();
    let url = away.url.replace("&max_age=0", "").replace("&prompt=login", "");
    let answer = browser.through(&url, "1").await;
    let refused = pages.answer(&answer, &away.binding).await.unwrap_err();
    assert!(is(&refused, Code::PermissionDenied, "did not ask you to sign in again"), "{refused:?}");
    let events = events(&mut cluster.admin().await, "SP1050W").await;
    assert_eq!(events[0]["fields"]["reason"], "not_anew", "{events:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn attacks_a_password_of_the_provider_alone_gives_no_first_factor() {
    let demanded = |config: &mut Config| config.auth.as_mut().unwrap().second_factor = SecondFactor::Required;
    let (cluster, provider) = (Cluster::start(demanded).await, Provider::start(|_| ()).await);
    cluster.running.ready(PATIENCE).await.unwrap();
    let trusting = document("corp", &provider, "");
    connect(&cluster, trusting.clone()).await;
    let pages = Pages::of(&cluster).await;
    let (alice, _) = pages.log_in(&mut Browser::default(), "1").await.unwrap();
    // From now on the provider has to say that there was a second factor, and this one says nothing of how.
    let demanding = trusting.replace("provider_checks_second_factor: true", "amr_is_second_factor: [mfa]");
    connect(&cluster, demanding).await;
    let login = pages.log_in(&mut Browser::default(), "1").await.map(drop).unwrap_err();
    assert!(is(&login, Code::PermissionDenied, "second factor"), "{login:?}");
    let id = pages.asks(&alice, Purpose::AddFactor(codes("phone"))).await.unwrap();
    let refused = pages.again(&mut Browser::default(), &id, "1").await.unwrap_err();
    assert!(is(&refused, Code::PermissionDenied, "second factor"), "{refused:?}");
    let early = pages.adds(&alice, "phone", Some(Proof::Challenge(id.clone()))).await.map(drop).unwrap_err();
    assert!(is(&early, Code::FailedPrecondition, "not proven yet"), "{early:?}");
    let events = events(&mut cluster.admin().await, "SP1050W").await;
    assert!(events.iter().all(|event| event["fields"]["reason"] == "no_second_factor"), "{events:?}");
    assert_eq!(events.len(), 2, "{events:?}");

    connect(&cluster, trusting).await;
    pages.again(&mut Browser::default(), &id, "1").await.unwrap();
    pages.adds(&alice, "phone", Some(Proof::Challenge(id))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_takes_the_factors_and_logins_of_a_person_and_gives_no_password() {
    let (cluster, provider) = (Cluster::without_node().await, Provider::start(|_| ()).await);
    connect(&cluster, document("corp", &provider, "")).await;
    let pages = Pages::of(&cluster).await;
    let (alice, _) = pages.log_in(&mut Browser::default(), "1").await.unwrap();
    let id = pages.asks(&alice, Purpose::AddFactor(codes("phone"))).await.unwrap();
    pages.again(&mut Browser::default(), &id, "1").await.unwrap();
    pages.adds(&alice, "phone", Some(Proof::Challenge(id))).await.unwrap();
    // Proven before the reset, and not used.
    let request = v1::ResetUserRequest { name: "alice".to_owned() };
    let reset = cluster.admin().await.reset_user(request).await.unwrap().into_inner();
    assert_eq!((reset.user.as_str(), reset.link.as_str(), reset.token.as_str()), ("alice", "", ""));
    let done = events(&mut cluster.admin().await, "SP1005I").await;
    let done = done.iter().find(|event| event["fields"]["removed_factors"] == 1);
    assert!(done.is_some());
    let over = factors(&alice).await.list(v1::ListFactorsRequest {}).await.unwrap_err();
    assert_eq!(over.code(), Code::PermissionDenied, "{over:?}");
    let (alice, _) = pages.log_in(&mut Browser::default(), "1").await.unwrap();
    let held = factors(&alice).await.list(v1::ListFactorsRequest {}).await.unwrap().into_inner();
    assert!(held.factors.is_empty() && !held.password, "{held:?}");
    let id = pages.asks(&alice, Purpose::AddFactor(codes("phone"))).await.unwrap();
    pages.again(&mut Browser::default(), &id, "1").await.unwrap();
    pages.adds(&alice, "phone", Some(Proof::Challenge(id))).await.unwrap();
}
