//! Mix-up (RFC 9700 §4.4): one of two providers is hostile, and sends a person who chose it on to the other one. What it takes for that it
//! has: the addresses of both, and `state` and challenge of the login that it was sent.

use tonic::Code;

use super::fake::CLIENT;
use super::*;
use crate::sso::provider::{Browser, Provider, REDIRECT};

const OTHER: &str = "https://proxy.example.com/web/sso/callback/idp";

/// The query of a login, with `state` of another one in place of its own.
fn with_state_of(url: &str, other: &str) -> String {
    let state = |url: &str| members(url.split_once('?').unwrap().1)["state"].clone();
    url.replace(&format!("state={}", state(url)), &format!("state={}", state(other)))
}

fn refused(status: Result<v1::WebProven, Status>) {
    let status = status.unwrap_err();
    assert!(is(&status, Code::PermissionDenied, "another identity provider has answered"), "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_code_of_one_provider_is_never_shown_to_another() {
    let site = Site::new().await;
    site.hub.has("alice", account(583_231, "alice", &[("ops", 1)]));
    let provider = Provider::start(|settings| settings["redirect_uri"] = OTHER.into()).await;
    connect(&site.cluster, document("idp", &provider, "")).await;
    let pages = Pages::of(&site.cluster).await;
    let mut browser = Browser::default();

    // A person chooses `idp`, whose page sends them to GitHub, which does not name itself: the code comes to the address of the
    // connector to GitHub, with the state of the other login.
    let away = pages.send(&pages.begin().await.id, "idp").await.unwrap();
    let asked = members(away.url.split_once('?').unwrap().1);
    let query = format!(
        "client_id={CLIENT}&redirect_uri={REDIRECT}&scope=read%3Aorg&state={}&response_type=code&allow_signup=false&code_challenge={}\
         &code_challenge_method=S256",
        asked["state"], asked["code_challenge"]
    );
    let mut answer = site.hub.authorize(&format!("{}/login/oauth/authorize?{query}", site.hub.url), "alice");
    assert_eq!(answer["connector"], "corp");
    refused(pages.answer(&answer, &away.binding).await);
    // Nor is it good once more, at the address of `idp`.
    answer.insert("connector".to_owned(), "idp".to_owned());
    let status = pages.answer(&answer, &away.binding).await.unwrap_err();
    assert!(is(&status, Code::PermissionDenied, "no login that waits"), "{status:?}");

    // A person chooses GitHub, and a hostile one of its name sends them to `idp`.
    let away = pages.send(&pages.begin().await.id, "corp").await.unwrap();
    let model = pages.send(&pages.begin().await.id, "idp").await.unwrap();
    let answer = browser.through(&with_state_of(&model.url, &away.url), "1").await;
    assert_eq!((answer["connector"].as_str(), &answer["iss"]), ("idp", &provider.issuer));
    refused(pages.answer(&answer, &away.binding).await);
    // Where the provider sends to what every connector may have, as well.
    let away = pages.send(&pages.begin().await.id, "idp").await.unwrap();
    let mut answer = browser.through(&away.url, "1").await;
    answer.insert("connector".to_owned(), String::new());
    refused(pages.answer(&answer, &away.binding).await);
    assert_eq!(site.hub.asked(), Vec::<String>::new(), "no code was shown to GitHub");

    let refused = events(&mut site.cluster.admin().await, "SP1050W").await;
    let told = |name: &str| -> Vec<String> {
        refused.iter().map(|event| event["fields"][name].as_str().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(told("reason"), ["other_address", "not_awaited", "other_address", "other_address"]);
    assert_eq!(told("connector"), ["idp", "", "corp", "idp"]);

    // The attacker's own login at GitHub, with the code of a person at `idp`.
    let away = pages.send(&pages.begin().await.id, "corp").await.unwrap();
    let mut own = site.hub.authorize(&away.url, "alice");
    let theirs = pages.send(&pages.begin().await.id, "idp").await.unwrap();
    own.insert("code".to_owned(), browser.through(&theirs.url, "1").await["code"].clone());
    let status = pages.answer(&own, &away.binding).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");

    // Each by its own address lets people in.
    site.log_in(&pages, "alice").await.unwrap();
    let begun = pages.begin().await;
    let away = pages.send(&begun.id, "idp").await.unwrap();
    let answer = Browser::default().through(&away.url, "2").await;
    let proven = pages.answer(&answer, &away.binding).await.unwrap();
    let (user, _) = pages.finish(&begun, &proven.redirect).await.unwrap();
    assert_eq!(user.name, "bob");
}
