//! The way through a provider, and the ways around it.

use sallyport_ca::jwt::{Expectation, KeySet};
use sallyport_oidc::s256;
use serde_json::json;

use super::*;

#[tokio::test]
async fn a_login_goes_through_the_provider_by_code_pkce_and_nonce() {
    let site = Site::with("  max_age: 1h\n  prompt: login\n  scopes: [openid, groups]\n").await;
    site.idp.says(json!({
        "sub": "24400320", "preferred_username": "alice", "groups": ["ops-eu", "odd"], "auth_time": now().unix_timestamp(),
    }));
    let under = site.begin().await;
    let query = &under.query;
    assert!(under.begun.url.starts_with(&format!("{}/authorize?", site.idp.issuer())));
    for (name, value) in [
        ("response_type", "code"),
        ("client_id", "sallyport"),
        ("redirect_uri", "https://proxy.example.com/web/sso/callback/corp"),
        ("scope", "openid groups"),
        ("code_challenge_method", "S256"),
        ("max_age", "3600"),
        ("prompt", "login"),
    ] {
        assert_eq!(query[name], value, "{name}");
    }
    let answer = site.answer(&under);
    let claims = site.claims(&answer).await.map_err(word).unwrap();
    let asked = site.idp.seen("/token")[0].clone();
    // client_secret_basic, with a secret that has to be encoded.
    let basic = data_encoding::BASE64.encode(b"sallyport:s3cr%3At");
    assert_eq!(asked.headers["authorization"], format!("Basic {basic}"));
    let form = asked.form();
    assert_eq!((form["grant_type"].as_str(), form["code"].as_str()), ("authorization_code", "the-code"));
    assert_eq!(form["redirect_uri"], query["redirect_uri"]);
    assert_eq!(s256(&form["code_verifier"]), query["code_challenge"]);
    let (admitted, verdict) = site.admit(&claims, now()).await.unwrap();
    assert_eq!(admitted.user.as_str(), "alice");
    assert_eq!(verdict.unknown_roles, ["nowhere"]);
    assert!(verdict.told().contains("ops-eu gives access"), "{}", verdict.told());
    let user = site.authority.services.identities.user(&admitted.user).unwrap();
    assert_eq!(user.roles.iter().map(ToString::to_string).collect::<Vec<_>>(), ["access"]);
    assert_eq!(user.traits["logins"], ["alice"]);
    assert_eq!(user.origin.as_ref().unwrap().subject, "24400320");
}

#[tokio::test]
async fn an_answer_is_taken_once_and_from_the_browser_that_began() {
    let site = Site::new().await;
    // Replayed.
    let answer = site.answer(&site.begin().await);
    assert!(site.claims(&answer).await.is_ok());
    assert_eq!(site.claims(&answer).await.map(drop).map_err(word).unwrap_err(), "not_awaited");
    // Of a login that was never begun.
    let forged = Answer { state: "x".repeat(43), ..answer.clone() };
    assert_eq!(site.claims(&forged).await.map(drop).map_err(word).unwrap_err(), "not_awaited");
    // A link with an attacker's code, opened in another's browser; and by it the state is spent.
    for binding in ["", "another"] {
        let answer = site.answer(&site.begin().await);
        let elsewhere = Answer { binding: binding.to_owned(), ..answer.clone() };
        assert_eq!(site.claims(&elsewhere).await.map(drop).map_err(word).unwrap_err(), "other_browser");
        assert_eq!(site.claims(&answer).await.map(drop).map_err(word).unwrap_err(), "not_awaited");
    }
    let asked = site.idp.seen("/token").len();
    // At once.
    let answer = site.answer(&site.begin().await);
    let both = tokio::join!(site.connectors().take(&answer, now()), site.connectors().take(&answer, now()));
    assert!(both.0.is_ok() != both.1.is_ok());
    assert_eq!(site.idp.seen("/token").len(), asked, "no code was shown to the provider for these");
    // Too late.
    let answer = site.answer(&site.begin().await);
    let late = now() + time::Duration::minutes(16);
    let taken = site.connectors().take(&answer, late).await;
    assert_eq!(taken.map(drop).map_err(word).unwrap_err(), "not_awaited");
}

#[tokio::test]
async fn tokens_of_other_logins_and_clients_and_issuers_are_refused() {
    let site = Site::new().await;
    for (claim, value, expected) in [
        ("nonce", json!("another"), "nonce_mismatch"),
        ("aud", json!("another-client"), "wrong_audience"),
        ("iss", json!("https://another.example"), "wrong_issuer"),
    ] {
        let mut claims = person("24400320", "alice", &["ops-eu"]);
        claims[claim] = value;
        site.idp.says(claims);
        assert_eq!(site.log_in().await.map(drop).unwrap_err(), expected, "{claim}");
    }
    site.idp.says(person("24400320", "alice", &["ops-eu"]));
    // RFC 9207: an answer that another provider's page has sent on.
    let answer = site.answer(&site.begin().await);
    let mixed = Answer { iss: "https://another.example".to_owned(), ..answer };
    assert_eq!(site.claims(&mixed).await.map(drop).map_err(word).unwrap_err(), "wrong_issuer");
    let site = Site::new().await;
    site.idp.announces("authorization_response_iss_parameter_supported", json!(true));
    let answer = site.answer(&site.begin().await);
    assert_eq!(site.claims(&answer).await.map(drop).map_err(word).unwrap_err(), "unnamed_answer");
    let answer = site.answer(&site.begin().await);
    let named = Answer { iss: site.idp.issuer().to_owned(), ..answer };
    assert!(site.claims(&named).await.is_ok());
    // The provider says no.
    let answer = site.answer(&site.begin().await);
    let denied = Answer {
        iss: site.idp.issuer().to_owned(),
        code: String::new(),
        error: "access_denied".to_owned(),
        ..answer
    };
    assert_eq!(site.claims(&denied).await.map(drop).map_err(word).unwrap_err(), "refused_by_provider");
}

#[tokio::test]
async fn an_answer_at_the_address_of_another_connector_is_refused_before_its_code_is_shown() {
    let site = Site::new().await;
    for elsewhere in ["hub", "", "corp/", "Corp", "corp\0"] {
        let answer = site.answer(&site.begin().await);
        let mixed = Answer { connector: elsewhere.to_owned(), ..answer.clone() };
        let refused = site.claims(&mixed).await.map(drop).map_err(word).unwrap_err();
        assert_eq!(refused, "other_address", "{elsewhere:?}");
        // It was the attempt's one answer.
        assert_eq!(site.claims(&answer).await.map(drop).map_err(word).unwrap_err(), "not_awaited");
    }
    assert!(site.idp.seen("/token").is_empty(), "no code was shown to the provider");
    // An answer of theirs to the address of every connector, of a login that was sent for its own, is none.
    let redirect = "  redirect_urls: ['https://proxy.example.com/web/sso/callback']\n";
    site.connect("corp", redirect).await;
    let remote = site.remote().await;
    let begun = site.connectors().begin(&remote, login("challenge"), "", now()).await;
    assert_eq!(begun.map(drop).map_err(word).unwrap_err(), "shared_address");
    // One that names itself may have it, and its answer is awaited there alone.
    site.idp.announces("authorization_response_iss_parameter_supported", json!(true));
    site.connect("corp", &format!("{redirect}  user_lifetime: 11h\n")).await;
    let iss = site.idp.issuer().to_owned();
    for (connector, expected) in [("corp", Some("other_address")), ("", None)] {
        let answer = site.answer(&site.begin().await);
        let answer = Answer { connector: connector.to_owned(), iss: iss.clone(), ..answer };
        assert_eq!(site.claims(&answer).await.map(drop).map_err(word).err(), expected, "{connector:?}");
    }
    // GitHub never does.
    let hub = format!(
        "kind: github\nversion: v1\nmetadata: {{name: hub}}\nspec:\n  client_id: a\n  client_secret_file: /etc/s\n  organizations: \
         [acme]\n  mapping: {{roles: [{{claim: teams, roles: [access]}}]}}\n{redirect}"
    );
    let hub = Connector::parse(&hub).unwrap();
    let refused = site.connectors().write(&Caller::LocalAdmin, hub, Write::Create).await.unwrap_err();
    assert!(refused.message().contains("https://PROXY/web/sso/callback/hub"), "{refused:?}");
}

#[tokio::test]
async fn a_connector_that_becomes_another_providers_gets_no_code_of_the_first() {
    let site = Site::new().await;
    let other = Idp::plain().await;
    let answer = site.answer(&site.begin().await);
    let document = site.document("corp", "").replace(site.idp.issuer(), other.issuer());
    let connector = Connector::parse(&document).unwrap();
    site.connectors().write(&Caller::LocalAdmin, connector, Write::Replace).await.unwrap();
    assert_eq!(site.claims(&answer).await.map(drop).map_err(word).unwrap_err(), "connector_changed");
    assert!(other.seen("/token").is_empty());
}

#[tokio::test]
async fn keys_that_the_provider_changes_are_fetched_and_keys_that_it_took_out_are_worth_nothing() {
    let site = Site::new().await;
    site.log_in().await.unwrap();
    site.log_in().await.unwrap();
    assert_eq!(site.idp.seen("/keys").len(), 1, "kept");
    let old = site.idp.clone();
    let stolen = old
        .token(json!({ "sub": "24400320", "nonce": "n", "groups": ["ops-eu"] }).as_object().unwrap().clone());
    site.idp.rotates();
    // Within the pause a token by an unknown key has nothing fetched: strangers may send such.
    assert_eq!(site.log_in().await.map(drop).unwrap_err(), "unknown_key");
    assert_eq!(site.idp.seen("/keys").len(), 1);
    let answer = site.answer(&site.begin().await);
    let taken = site.connectors().take(&answer, now()).await.map_err(word).unwrap();
    let later = now() + time::Duration::seconds(31);
    let remote = site.remote().await;
    let claims = site.connectors().claims(&remote, taken, &answer, false, later).await;
    assert!(claims.is_ok(), "the new key is fetched");
    assert_eq!(site.idp.seen("/keys").len(), 2);
    let error = remote.logout(&stolen, later).await.unwrap_err();
    assert_eq!(error.word(), "unknown_key", "by the old key");
}

#[tokio::test]
async fn a_client_with_a_key_proves_itself_by_it() {
    let site = Site::with("  private_key_jwt: {algorithm: ES256}\n").await;
    site.log_in().await.unwrap();
    let form = site.idp.seen("/token")[0].form();
    assert_eq!(form["client_assertion_type"], "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
    let set: serde_json::Value =
        serde_json::from_str(&site.connectors().jwks("corp").await.unwrap()).unwrap();
    let key = serde_json::to_vec(&set["keys"][0]).unwrap();
    let (algorithm, raw) = sallyport_sal::formats::jwk::decode_public(&key).unwrap();
    let key = sallyport_sal::PublicKey::from_raw(algorithm, &raw).unwrap();
    let audience = format!("{}/token", site.idp.issuer());
    let expected = Expectation { issuer: Some("sallyport"), audience: &audience };
    let claims = KeySet::new([&key]).unwrap().verify(&form["client_assertion"], expected, now()).unwrap();
    assert_eq!((claims.subject.as_str(), claims.id.is_some()), ("sallyport", true));
    // The key stays when the document is written again, and is another when its algorithm is.
    site.connect("corp", "  private_key_jwt: {algorithm: ES256}\n  title: Again\n").await;
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&site.connectors().jwks("corp").await.unwrap()).unwrap(),
        set
    );
    site.connect("corp", "  private_key_jwt: {algorithm: EdDSA}\n").await;
    assert!(site.connectors().jwks("corp").await.unwrap().contains("EdDSA"));
    site.connectors().delete(&Caller::LocalAdmin, "oidc", "corp").await.unwrap();
    assert_eq!(site.connectors().jwks("corp").await.unwrap_err().code(), tonic::Code::NotFound);
}

#[tokio::test]
async fn secrets_of_the_machine_are_sent_to_no_provider() {
    let site = Site::new().await;
    let at = |text: &str| {
        let document = site.document("corp", "");
        let secret = site.directory.path().join("secret");
        private(&secret, text);
        Connector::parse(&document).unwrap()
    };
    // A file with lines, or with anything that is no secret of OAuth.
    for text in [
        "-----BEGIN PRIVATE KEY-----\nMIG\n-----END PRIVATE KEY-----\n",
        "",
        "two words",
        "\u{7}",
        &"x".repeat(2000),
    ] {
        let connector = at(text);
        site.connectors().write(&Caller::LocalAdmin, connector, Write::Replace).await.unwrap();
        let answer = {
            let under = site.begin().await;
            private(&site.directory.path().join("secret"), text);
            site.answer(&under)
        };
        assert_eq!(site.claims(&answer).await.map(drop).map_err(word).unwrap_err(), "no_secret", "{text:?}");
    }
    assert!(site.idp.seen("/token").is_empty());
    // The authority's own.
    let own = site.directory.path().join("data/auth/seal.key");
    let document = site.document("corp", "").replace(
        &format!("client_secret_file: {}", site.directory.path().join("secret").display()),
        &format!("client_secret_file: {}", own.display()),
    );
    let connector = Connector::parse(&document).unwrap();
    let status = site.connectors().write(&Caller::LocalAdmin, connector, Write::Replace).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::InvalidArgument, "{status:?}");
}

/// An administrator by the API, or a thief of their login and proof, names files of the machine, and gets what an issuer of their own is sent.
#[tokio::test]
async fn attacks_secrets_that_the_configuration_names_are_sent_to_no_provider_by_whatever_link() {
    let site = Site::with_secrets(&["token.pin", "gone.token"]).await;
    let at = |name: &str| site.directory.path().join(name);
    site.connect("corp", "").await;
    site.log_in().await.unwrap();
    private(&at("token.pin"), "1370\n");
    std::fs::remove_file(at("secret")).unwrap();
    let naming = |key: &str, path: &Path| {
        let document = site.document("corp", "");
        std::fs::remove_file(at("secret")).unwrap();
        let own = format!("client_secret_file: {}", at("secret").display());
        let document = match key {
            "ca_file" => format!("{document}  ca_file: {}\n", path.display()),
            _ => document.replace(&own, &format!("client_secret_file: {}", path.display())),
        };
        Connector::parse(&document).unwrap()
    };
    // As it is written, it is refused at once; also what is not there yet.
    for (key, name) in [
        ("client_secret_file", "token.pin"),
        ("client_secret_file", "gone.token"),
        ("ca_file", "token.pin"),
        ("ca_file", "data/auth/seal.key"),
    ] {
        let connector = naming(key, &at(name));
        let refused = site.connectors().write(&Caller::LocalAdmin, connector, Write::Replace).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{key} {name}: {refused:?}");
        assert!(refused.message().contains("sent to"), "{key} {name}: {refused:?}");
    }
    // By a link it is when it is read, in each login.
    let before = site.idp.seen("/token").len();
    for own in ["token.pin", "data/auth/seal.key"] {
        std::os::unix::fs::symlink(at(own), at("secret")).unwrap();
        assert_eq!(refused_secret(&site).await, "no_secret", "{own} by a symbolic link");
        std::fs::remove_file(at("secret")).unwrap();
        std::fs::hard_link(at(own), at("secret")).unwrap();
        assert_eq!(refused_secret(&site).await, "no_secret", "{own} by a hard link");
        std::fs::remove_file(at("secret")).unwrap();
    }
    assert_eq!(site.idp.seen("/token").len(), before, "nothing was sent");
    private(&at("secret"), "s3cr:t\n");
    site.log_in().await.unwrap();
}

/// What a login comes to whose connector's secret is not sent.
async fn refused_secret(site: &Site) -> &'static str {
    let answer = site.answer(&site.begin().await);
    let failure = site.claims(&answer).await.map(drop).unwrap_err();
    if let Failure::Sso(error) = &failure {
        let told = crate::ServerError::chain(error.as_ref());
        assert!(told.contains("sent to"), "{told}");
    }
    word(failure)
}

#[tokio::test]
async fn classes_and_factors_that_are_asked_for_have_to_be_said() {
    let site = Site::with("  acr_values: [silver]\n  amr_is_second_factor: [mfa, hwk]\n").await;
    let mut claims = person("24400320", "alice", &["ops-eu"]);
    site.idp.says(claims.clone());
    assert_eq!(site.log_in().await.map(drop).unwrap_err(), "wrong_class");
    claims["acr"] = json!("bronze");
    site.idp.says(claims.clone());
    assert_eq!(site.log_in().await.map(drop).unwrap_err(), "wrong_class");
    claims["acr"] = json!("silver");
    for (amr, second_factor) in
        [(json!(null), false), (json!(["pwd"]), false), (json!("hwk"), true), (json!(["pwd", "mfa"]), true)]
    {
        claims["amr"] = amr.clone();
        site.idp.says(claims.clone());
        let answer = site.answer(&site.begin().await);
        let said = site.claims(&answer).await.map_err(word).unwrap();
        let verdict = judge(site.remote().await.connector(), &said, |_| true);
        assert_eq!(verdict.second_factor, second_factor, "{amr}");
        let admitted = verdict.admit(&said, true).map_err(|error| error.word());
        assert_eq!(admitted.is_ok(), second_factor, "{admitted:?}");
        assert!(verdict.admit(&said, false).is_ok());
    }
    // What the user information says of it is not signed.
    site.idp.userinfo(
        json!({ "sub": "24400320", "amr": ["mfa"], "email": "a@example.com", "email_verified": true }),
    );
    claims["amr"] = json!(["pwd"]);
    site.idp.says(claims);
    site.connect(
        "corp",
        "  acr_values: [silver]\n  amr_is_second_factor: [mfa]\n  username: '{{claims.email}}'\n",
    )
    .await;
    let (admitted, verdict) = site.log_in().await.unwrap();
    assert_eq!((admitted.user.as_str(), verdict.second_factor), ("a@example.com", false));
    site.connect("corp", "  provider_checks_second_factor: true\n").await;
    assert!(site.log_in().await.unwrap().1.second_factor);
}

#[tokio::test]
async fn a_mail_address_counts_where_the_provider_has_verified_it_and_nowhere_else() {
    let site = Site::new().await;
    let answer = site.answer(&site.begin().await);
    let said = site.claims(&answer).await.map_err(word).unwrap();
    let more = "  username: '{{claims.email}}'\n";
    let document = site
        .document("corp", more)
        .replace("claim: groups, value: auditors", "claim: email, value: '*@example.com'");
    let connector = Connector::parse(&document).unwrap();
    let any = Connector::parse(&format!("{document}  email_without_verification: true\n")).unwrap();
    let address =
        |verified: serde_json::Value| json!({ "email": "a@example.com", "email_verified": verified });
    let bare = json!({ "email": "a@example.com" });
    for (token, userinfo, counts) in [
        (address(json!(true)), None, true),
        (bare.clone(), None, false),
        (address(json!(false)), None, false),
        (address(json!("true")), None, false),
        (address(json!(null)), None, false),
        (json!({}), Some(address(json!(true))), true),
        (json!({ "email": null }), Some(address(json!(true))), true),
        (json!({}), Some(bare.clone()), false),
        (bare.clone(), Some(address(json!(true))), true),
        // Of another address than the one that is verified.
        (bare.clone(), Some(json!({ "email_verified": true })), false),
        (json!({ "email_verified": true }), Some(bare.clone()), false),
    ] {
        let object = |value: serde_json::Value| value.as_object().unwrap().clone();
        let told = format!("{token} {userinfo:?}");
        let said = Claims { token: object(token), userinfo: userinfo.map(object), ..said.clone() };
        let verdict = judge(&connector, &said, |_| true);
        assert_eq!(verdict.name.is_ok(), counts, "{told}: {:?}", verdict.name);
        assert_eq!(verdict.roles.len(), usize::from(counts), "{told}");
        assert_eq!(verdict.told().contains("the claim email does not count"), !counts, "{told}");
        assert!(judge(&any, &said, |_| true).name.is_ok(), "{told}");
    }
    // Fetched from elsewhere it is no word of the provider's.
    let mut said = said;
    said.fetched = address(json!(true)).as_object().unwrap().clone();
    assert!(judge(&connector, &said, |_| true).name.is_err());
}

#[tokio::test]
async fn gitlab_says_groups_in_its_user_information_and_a_person_is_its_number() {
    let site = Site::empty().await;
    let secret = site.directory.path().join("secret");
    private(&secret, "s3cr:t\n");
    let document = format!(
        "kind: gitlab\nversion: v1\nmetadata: {{name: corp}}\nspec:\n  url: {}\n  client_id: sallyport\n  client_secret_file: {}\n  \
         insecure_loopback: true\n  mapping:\n    roles:\n      - {{claim: groups, value: 'acme/ops', roles: [access]}}\n      - {{claim: \
         '[\"https://gitlab.org/claims/groups/maintainer\"]', value: 'acme/*', roles: [auditor]}}\n",
        site.idp.issuer(),
        secret.display()
    );
    let connector = Connector::parse(&document).unwrap();
    site.connectors().write(&Caller::LocalAdmin, connector, Write::Create).await.unwrap();
    let says = |number: &str, name: &str, groups: &[&str]| {
        site.idp.says(
            json!({ "sub": number, "sub_legacy": "x", "preferred_username": name, "groups_direct": groups }),
        );
        site.idp.userinfo(json!({
            "sub": number, "preferred_username": name, "nickname": name, "groups": groups,
            "https://gitlab.org/claims/groups/maintainer": ["acme/tools"],
        }));
    };
    says("42", "alice", &["acme", "acme/ops"]);
    let under = site.begin().await;
    assert_eq!(under.query["scope"], "openid profile email");
    assert_eq!(under.query["code_challenge_method"], "S256");
    let claims = site.claims(&site.answer(&under)).await.map_err(word).unwrap();
    let (admitted, verdict) = site.admit(&claims, now()).await.unwrap();
    assert_eq!(admitted.user.as_str(), "alice");
    assert_eq!(verdict.roles.iter().map(ToString::to_string).collect::<Vec<_>>(), ["access", "auditor"]);
    assert_eq!(site.idp.seen("/userinfo")[0].headers["authorization"], "Bearer access");
    // Renamed, they are who they were, and the next alice is another person.
    says("42", "alicia", &["acme/ops"]);
    assert_eq!(site.log_in().await.unwrap().0.user.as_str(), "alice");
    says("43", "alice", &["acme/ops"]);
    assert_eq!(site.log_in().await.map(drop).unwrap_err(), "name_taken");
}
