//! Keycloak and panva's oidc-provider as two connectors of one authority: what one of them says, or loses, is nothing to the other's people.

use std::cell::Cell;
use std::collections::BTreeSet;

use data_encoding::{BASE64, BASE64URL_NOPAD};

use super::poser::{Poser, discovered};
use super::server::ask;
use super::*;
use crate::sso::provider::{Provider, REDIRECT, SECRET};

/// The connector to the oidc-provider; Keycloak's is `corp`.
const OTHER: &str = "idp";
const REDIRECT_OF_OTHER: &str = "https://proxy.example.com/web/sso/callback/idp";
/// Names of the oidc-provider's people here, where both are to have an alice.
const PREFIXED: &str = "  username: 'other-{{claims.preferred_username}}'\n";
const BY_ADDRESS: &str = "  username: '{{claims.email}}'\n";
/// Of a login at a provider that the thief makes without us.
const THIEFS_VERIFIER: &str = "the-verifier-of-a-thief-of-forty-three-characters";

struct Both<'c> {
    cluster: &'c Cluster,
    pages: Pages<'c>,
    keycloak: Keycloak,
    /// The oidc-provider. One of its people has the subject, the name and the address of Keycloak's alice.
    provider: Provider,
    /// That subject.
    subject: String,
    /// What each tells of logouts.
    told: (Told, Told),
    directory: tempfile::TempDir,
    /// How many refused logins are on record.
    refusals: Cell<usize>,
}

impl<'c> Both<'c> {
    async fn of(cluster: &'c Cluster) -> Self {
        let told = (Told::new().await, Told::new().await);
        let mut keycloak = Keycloak::start("", &told.0.url).await;
        let subject = keycloak.person("alice").await;
        let provider = Provider::start(|settings| {
            settings["redirect_uri"] = REDIRECT_OF_OTHER.into();
            settings["logout_uri"] = told.1.url.as_str().into();
            let person = |name: &str| json!({ "name": name, "groups": ["everyone"], "email": format!("{name}@example.com") });
            settings["people"] = json!({ "2": person("bob"), "5": person("carol") });
            settings["people"][&subject] = person("alice");
        })
        .await;
        let (pages, directory) = (Pages::of(cluster).await, tempfile::tempdir().unwrap());
        Self { cluster, pages, keycloak, provider, subject, told, directory, refusals: Cell::new(0) }
    }

    async fn connect_keycloak(&self, more: &str) {
        self.connect_client("sallyport", &format!("  logout: back-channel\n{more}")).await;
    }

    async fn connect_client(&self, client: &str, more: &str) {
        connect(self.cluster, connector(&self.keycloak, self.directory.path(), client, more)).await;
    }

    async fn connect_other(&self, more: &str) {
        let yaml = document(OTHER, &self.provider, &format!("  logout: back-channel\n{more}"));
        connect(self.cluster, yaml.replace("profile, groups", "profile, email, groups")).await;
    }

    /// A whole login at a connector.
    async fn log_in(&self, connector: &str, person: &str) -> Result<(User, v1::LoginResponse), Status> {
        let pages = &self.pages;
        let begun = pages.begin().await;
        let away = pages.send(&begun.id, connector).await?;
        let answer = Browser::default().through(&away.url, person).await;
        let proven = pages.answer(&answer, &away.binding).await?;
        pages.finish(&begun, &proven.redirect).await
    }

    /// That both let in who is theirs.
    async fn each_lets_in(&self) {
        assert_eq!(self.log_in("corp", "alice").await.unwrap().0.name, "alice");
        assert_eq!(self.log_in(OTHER, &self.subject).await.unwrap().0.name, "other-alice");
    }

    /// That a login is refused, with one event that says why and of which connector.
    async fn refused<T>(&self, outcome: Result<T, Status>, connector: &str, reason: &str) -> String {
        let status = outcome.map(drop).expect_err(reason);
        assert_eq!(status.code(), Code::PermissionDenied, "{reason}: {status:?}");
        let before = self.refusals.get();
        let last = until("the refusal is on record", async || {
            let found = events(&mut self.cluster.admin().await, "SP1050W").await;
            self.refusals.set(found.len());
            (found.len() > before).then(|| found.last().unwrap()["fields"].clone())
        })
        .await;
        let of = |name: &str| last[name].as_str().unwrap_or_default();
        assert_eq!((of("connector"), of("reason")), (connector, reason), "{status:?}");
        status.message().to_owned()
    }

    /// The issuers and subjects by which a user has come.
    async fn identities(&self, user: &str) -> BTreeSet<(String, String)> {
        let came = events(&mut self.cluster.admin().await, "SP1050I").await;
        let of = |event: &Value, name: &str| event["fields"][name].as_str().unwrap().to_owned();
        let theirs = came.iter().filter(|event| event["user"] == user);
        theirs.map(|event| (of(event, "issuer"), of(event, "subject"))).collect()
    }
}

/// Two people who have every claim alike, the subject too, are two users, or the second is none.
async fn nothing_that_two_people_have_alike_makes_them_one(both: &Both<'_>) {
    both.connect_keycloak("").await;
    both.connect_other("").await;
    let (alice, login) = both.log_in("corp", "alice").await.unwrap();
    assert_eq!((alice.name.as_str(), login.roles.len()), ("alice", 2));
    let told = both.refused(both.log_in(OTHER, &both.subject).await, OTHER, "name_taken").await;
    assert!(told.contains("the name alice belongs to another user"), "{told}");
    // By their addresses.
    both.connect_keycloak(BY_ADDRESS).await;
    both.connect_other(BY_ADDRESS).await;
    let (bob, _) = both.log_in("corp", "bob").await.unwrap();
    assert_eq!(bob.name, "bob@example.com");
    let told = both.refused(both.log_in(OTHER, "2").await, OTHER, "name_taken").await;
    assert!(told.contains("belongs to another user"), "{told}");
    // With a name of its own, the second is a user of its own, without what the first has.
    both.connect_keycloak("").await;
    both.connect_other(PREFIXED).await;
    let (other, login) = both.log_in(OTHER, &both.subject).await.unwrap();
    assert_eq!((other.name.as_str(), login.roles.as_slice()), ("other-alice", &["auditor".to_owned()][..]));
    let (_, login) = both.log_in("corp", "alice").await.unwrap();
    assert_eq!(login.roles, ["access", "auditor"], "the other login has changed nothing");
    for (user, issuer) in [("alice", &both.keycloak.issuer), ("other-alice", &both.provider.issuer)] {
        let expected = BTreeSet::from([(issuer.clone(), both.subject.clone())]);
        assert_eq!(both.identities(user).await, expected, "{user}");
    }
    list(&alice).await.unwrap();
    list(&other).await.unwrap();
}

/// The address of a login, with another value in place of its own.
fn with(url: &str, name: &str, value: &str) -> String {
    let own = members(url.split_once('?').unwrap().1)[name].clone();
    assert!(url.contains(&format!("{name}={own}")), "{url}");
    url.replace(&format!("{name}={own}"), &format!("{name}={value}"))
}

/// Mix-up (RFC 9700 §4.4), each way.
async fn an_answer_of_one_is_no_answer_of_the_other(both: &Both<'_>) {
    let ways = [
        ("corp", "alice", OTHER, both.subject.as_str(), &both.provider.issuer),
        (OTHER, both.subject.as_str(), "corp", "alice", &both.keycloak.issuer),
    ];
    for (one, person, another, theirs, anothers_issuer) in ways {
        // At the other's address, and then, with nothing left of the login, at its own.
        let away = both.pages.send(&both.pages.begin().await.id, one).await.unwrap();
        let mut answer = Browser::default().through(&away.url, person).await;
        assert_eq!(answer["connector"], one);
        answer.insert("connector".to_owned(), another.to_owned());
        both.refused(both.pages.answer(&answer, &away.binding).await, one, "other_address").await;
        answer.insert("connector".to_owned(), one.to_owned());
        both.refused(both.pages.answer(&answer, &away.binding).await, "", "not_awaited").await;
        // In the other's name, and in none though both name themselves.
        for (issuer, reason) in [(Some(anothers_issuer), "wrong_issuer"), (None, "unnamed_answer")] {
            let away = both.pages.send(&both.pages.begin().await.id, one).await.unwrap();
            let mut answer = Browser::default().through(&away.url, person).await;
            match issuer {
                Some(issuer) => answer.insert("iss".to_owned(), issuer.clone()),
                None => answer.remove("iss"),
            };
            both.refused(both.pages.answer(&answer, &away.binding).await, one, reason).await;
        }
        // A hostile provider that sends the person on to the other one, with the state of its own login.
        let away = both.pages.send(&both.pages.begin().await.id, one).await.unwrap();
        let model = both.pages.send(&both.pages.begin().await.id, another).await.unwrap();
        let state = members(away.url.split_once('?').unwrap().1)["state"].clone();
        let answer = Browser::default().through(&with(&model.url, "state", &state), theirs).await;
        assert_eq!(answer["connector"], another);
        both.refused(both.pages.answer(&answer, &away.binding).await, one, "other_address").await;
        // The code of one provider, shown to the other in a login of the thief's there.
        let away = both.pages.send(&both.pages.begin().await.id, one).await.unwrap();
        let mut own = Browser::default().through(&away.url, person).await;
        let victim = both.pages.send(&both.pages.begin().await.id, another).await.unwrap();
        own.insert("code".to_owned(), Browser::default().through(&victim.url, theirs).await["code"].clone());
        both.refused(both.pages.answer(&own, &away.binding).await, one, "refused_by_provider").await;
    }
}

/// Codes, `state`, `nonce` and audiences, at each of them.
async fn what_is_no_answer_of_this_login_opens_none(both: &Both<'_>) {
    for (connector, person) in [("corp", "bob"), (OTHER, "2")] {
        // A code that was used.
        let mut browser = Browser::default();
        let away = both.pages.send(&both.pages.begin().await.id, connector).await.unwrap();
        let used = browser.through(&away.url, person).await;
        both.pages.answer(&used, &away.binding).await.unwrap();
        both.refused(both.pages.answer(&used, &away.binding).await, "", "not_awaited").await;
        let away = both.pages.send(&both.pages.begin().await.id, connector).await.unwrap();
        let mut again = browser.through(&away.url, person).await;
        again.insert("code".to_owned(), used["code"].clone());
        both.refused(both.pages.answer(&again, &away.binding).await, connector, "refused_by_provider").await;
        // A state of no login.
        let away = both.pages.send(&both.pages.begin().await.id, connector).await.unwrap();
        let guessed = with(&away.url, "state", &"A".repeat(43));
        let answer = Browser::default().through(&guessed, person).await;
        both.refused(both.pages.answer(&answer, &away.binding).await, "", "not_awaited").await;
        // A token that was made for another login, as its nonce says.
        let away = both.pages.send(&both.pages.begin().await.id, connector).await.unwrap();
        let another = with(&away.url, "nonce", &"A".repeat(43));
        let answer = Browser::default().through(&another, person).await;
        both.refused(both.pages.answer(&answer, &away.binding).await, connector, "nonce_mismatch").await;
    }
    // Tokens of Keycloak's that are for others, too.
    both.connect_client("wide", "").await;
    both.refused(both.log_in("corp", "alice").await, "corp", "wrong_audience").await;
    both.log_in(OTHER, &both.subject).await.unwrap();
    both.connect_keycloak("").await;
    both.each_lets_in().await;
}

/// A token that a provider signs for our client, with this nonce: by a login whose verifier the thief has.
async fn token_of(both: &Both<'_>, issuer: &str, connector: &str, person: &str, nonce: &str) -> String {
    let challenge = BASE64URL_NOPAD.encode(&hash::sha256(THIEFS_VERIFIER.as_bytes()));
    let away = both.pages.send(&both.pages.begin().await.id, connector).await.unwrap();
    let url = with(&with(&away.url, "nonce", nonce), "code_challenge", &challenge);
    let answer = Browser::default().through(&url, person).await;
    let redirect = REDIRECT.replace("/corp", &format!("/{connector}"));
    let form = format!(
        "grant_type=authorization_code&code={}&redirect_uri={redirect}&code_verifier={THIEFS_VERIFIER}",
        answer["code"]
    );
    let secret = SECRET.replace('%', "%25").replace(':', "%3A");
    let proof = format!("Basic {}", BASE64.encode(format!("sallyport:{secret}").as_bytes()));
    let headers = [("authorization", proof.as_str()), ("content-type", "application/x-www-form-urlencoded")];
    let endpoint = discovered(issuer).await["token_endpoint"].as_str().unwrap().to_owned();
    let (status, body) = ask("POST", &endpoint, &headers, &form).await.unwrap();
    assert_eq!(status, 200, "{body}");
    let body: Value = serde_json::from_str(&body).unwrap();
    body["id_token"].as_str().unwrap().to_owned()
}

/// A third provider hands out tokens of each, which are for this client and this login; it says that its keys are those of either.
async fn a_token_of_one_is_worth_nothing_from_another(both: &Both<'_>) {
    let (keycloak, provider) = (both.keycloak.issuer.as_str(), both.provider.issuer.as_str());
    let ways = [
        ("corp", "alice", keycloak, provider, "unknown_key"),
        ("corp", "alice", keycloak, keycloak, "wrong_issuer"),
        (OTHER, both.subject.as_str(), provider, keycloak, "unknown_key"),
        (OTHER, both.subject.as_str(), provider, provider, "wrong_issuer"),
    ];
    for (connector, person, signer, keys, reason) in ways {
        let poser = Poser::with_keys_of(keys).await;
        let secret = format!("  client_secret_file: {}\n", both.provider.secret().display());
        connect(both.cluster, document_at("posing", &poser.issuer, &secret)).await;
        let away = both.pages.send(&both.pages.begin().await.id, "posing").await.unwrap();
        let asked = members(away.url.split_once('?').unwrap().1);
        poser.gives(&token_of(both, signer, connector, person, &asked["nonce"]).await);
        let answer = BTreeMap::from([
            ("connector".to_owned(), "posing".to_owned()),
            ("state".to_owned(), asked["state"].clone()),
            ("code".to_owned(), "any".to_owned()),
            ("iss".to_owned(), poser.issuer.clone()),
        ]);
        both.refused(both.pages.answer(&answer, &away.binding).await, "posing", reason).await;
        assert_eq!(poser.asked_for_tokens(), 1, "{reason}");
    }
    both.each_lets_in().await;
}

/// What one provider's clock says is nothing to the other's people.
async fn a_clock_that_is_off_is_off_for_its_own_people(both: &mut Both<'_>) {
    for (skew, refused) in [("+50s", None), ("+3m", Some("not_yet_valid")), ("-12m", Some("expired"))] {
        both.provider.skew(skew).await;
        let came = both.log_in(OTHER, &both.subject).await;
        match refused {
            None => assert_eq!(came.unwrap().0.name, "other-alice"),
            Some(reason) => drop(both.refused(came, OTHER, reason).await),
        }
        assert_eq!(both.log_in("corp", "alice").await.unwrap().0.name, "alice", "{skew}");
    }
    both.provider.skew("+0").await;
    both.each_lets_in().await;
}

/// Another key at one, and then at the other; a connector that is written anew has not fetched the former ones a moment ago.
async fn keys_of_one_change_without_the_other(both: &mut Both<'_>) {
    let (alice, _) = both.log_in("corp", "alice").await.unwrap();
    let (other, _) = both.log_in(OTHER, &both.subject).await.unwrap();
    both.provider.rotate().await;
    assert_eq!(both.log_in("corp", "alice").await.unwrap().0.name, "alice");
    both.connect_other(&format!("{PREFIXED}  user_lifetime: 11h\n")).await;
    both.each_lets_in().await;
    both.keycloak.rotate().await;
    assert_eq!(both.log_in(OTHER, &both.subject).await.unwrap().0.name, "other-alice");
    both.connect_keycloak("  user_lifetime: 11h\n").await;
    both.each_lets_in().await;
    // Who was in stays in.
    list(&alice).await.unwrap();
    list(&other).await.unwrap();
}

/// The token by which a provider says that a person has logged out. Keycloak says it, too, of a session whose code was shown twice.
async fn logout_of(told: &Told, subject: &str) -> String {
    loop {
        let token = told.token().await;
        let claims = BASE64URL_NOPAD.decode(token.split('.').nth(1).unwrap().as_bytes()).unwrap();
        let claims: Value = serde_json::from_slice(&claims).unwrap();
        if claims["sub"] == subject {
            return token;
        }
    }
}

/// Each has a carol with one session there; what one says of its carol is believed at its own address alone.
async fn a_logout_at_one_cuts_its_own_people(both: &mut Both<'_>) {
    both.keycloak.add("carol", &["everyone"]).await;
    let id = both.keycloak.person("carol").await;
    let (carol, _) = both.log_in("corp", "carol").await.unwrap();
    let (begun, mut browser) = (both.pages.begin().await, Browser::default());
    let away = both.pages.send(&begun.id, OTHER).await.unwrap();
    let answer = browser.through(&away.url, "5").await;
    let proven = both.pages.answer(&answer, &away.binding).await.unwrap();
    let (other, _) = both.pages.finish(&begun, &proven.redirect).await.unwrap();
    let (alice, _) = both.log_in("corp", "alice").await.unwrap();
    assert_eq!((carol.name.as_str(), other.name.as_str()), ("carol", "other-carol"));
    let web = both.pages.web.clone();
    let says = async |connector: &str, token: &str| {
        let request = v1::WebSsoLogoutRequest {
            address: ADDRESS.to_owned(),
            connector: connector.to_owned(),
            logout_token: token.to_owned(),
        };
        web.clone().sso_logout(request).await.map(drop)
    };

    let (keycloak, path) = (&mut both.keycloak, format!("/users/{id}/logout"));
    let ends = async { drop(keycloak.admin("POST", &path, &json!({})).await) };
    let (token, ()) = tokio::join!(logout_of(&both.told.0, &id), ends);
    assert_eq!(says(OTHER, &token).await.unwrap_err().code(), Code::InvalidArgument);
    list(&carol).await.unwrap();
    list(&other).await.unwrap();
    says("corp", &token).await.unwrap();
    until("Keycloak's carol is cut", async || list(&carol).await.err().map(drop)).await;
    list(&other).await.unwrap();

    let issuer = both.provider.issuer.clone();
    let (token, ()) = tokio::join!(logout_of(&both.told.1, "5"), browser.log_out(&issuer));
    assert_eq!(says("corp", &token).await.unwrap_err().code(), Code::InvalidArgument);
    list(&other).await.unwrap();
    says(OTHER, &token).await.unwrap();
    until("the other carol is cut", async || list(&other).await.err().map(drop)).await;
    list(&alice).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_providers_beside_each_other() {
    let cluster = Cluster::without_node().await;
    let mut both = Both::of(&cluster).await;
    nothing_that_two_people_have_alike_makes_them_one(&both).await;
    an_answer_of_one_is_no_answer_of_the_other(&both).await;
    what_is_no_answer_of_this_login_opens_none(&both).await;
    a_token_of_one_is_worth_nothing_from_another(&both).await;
    a_clock_that_is_off_is_off_for_its_own_people(&mut both).await;
    keys_of_one_change_without_the_other(&mut both).await;
    a_logout_at_one_cuts_its_own_people(&mut both).await;
}
