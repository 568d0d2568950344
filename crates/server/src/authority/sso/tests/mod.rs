//! Logins by a provider of the test's own, which answers as it is told: well, or as a hostile one.

mod answers;
mod hubs;
mod idp;
mod linked;
mod logins;
pub(in crate::authority) mod people;
mod refreshing;

use std::collections::BTreeMap;
use std::path::Path;

use sallyport_access::UserName;
use serde_json::json;
use time::OffsetDateTime;

use self::idp::Idp;
use super::claims::{Claims, Verdict, judge};
use super::connector::Connector;
use super::failure::Failure;
use super::flow::{Answer, Begun, ToProve};
use super::people::Admitted;
use super::provider::Remote;
use crate::authority::caller::{Caller, NOWHERE};
use crate::authority::storage::Write;
use crate::authority::{AuthConfig, Authority};
use crate::dialling::PeerInfo;

const CALLER: Caller = Caller::Anonymous { from: PeerInfo::direct(NOWHERE) };

fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

/// An authority with one connector to a provider.
pub(in crate::authority) struct Site {
    directory: tempfile::TempDir,
    pub(in crate::authority) authority: Authority,
    idp: Idp,
}

/// A login that the browser has gone away with.
struct Under {
    begun: Begun,
    query: BTreeMap<String, String>,
}

/// A login at the page.
fn login(challenge: &str) -> ToProve<'_> {
    ToProve { challenge, until: now() + time::Duration::minutes(10), tested: None, anew: false }
}

impl Site {
    pub(in crate::authority) async fn new() -> Self {
        Self::with("").await
    }

    /// With these lines more in the connector's document.
    async fn with(more: &str) -> Self {
        let site = Self::empty().await;
        site.connect("corp", more).await;
        site
    }

    async fn empty() -> Self {
        Self::with_secrets(&[]).await
    }

    /// Of an authority whose configuration names these files of secrets.
    async fn with_secrets(names: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data_dir = directory.path().join("data");
        let secrets = names.iter().map(|name| directory.path().join(name)).collect();
        let config = AuthConfig {
            public_addr: "proxy.example.com:443".to_owned(),
            apart: AuthConfig::apart(&data_dir, secrets),
            ..AuthConfig::of_tests(data_dir)
        };
        let authority = Authority::open(config, now()).await.unwrap();
        Self { directory, authority, idp: Idp::plain().await }
    }

    /// The document of a connector to the provider.
    pub(in crate::authority) fn document(&self, name: &str, more: &str) -> String {
        let secret = self.directory.path().join("secret");
        private(&secret, "s3cr:t\n");
        let proof = match more.contains("private_key_jwt") {
            true => String::new(),
            false => format!("  client_secret_file: {}\n", secret.display()),
        };
        format!(
            "kind: oidc\nversion: v1\nmetadata: {{name: {name}}}\nspec:\n  issuer: {}\n  client_id: sallyport\n  \
             insecure_loopback: true\n  algorithms: [ES256]\n{proof}  mapping:\n    roles:\n      - {{claim: groups, value: 'ops-*', \
             roles: [access]}}\n      - {{claim: groups, value: auditors, roles: [auditor]}}\n      - {{claim: groups, value: odd, \
             roles: [nowhere]}}\n    traits: {{logins: ['{{{{claims.preferred_username}}}}']}}\n{more}",
            self.idp.issuer()
        )
    }

    pub(in crate::authority) async fn connect(&self, name: &str, more: &str) {
        let connector = Connector::parse(&self.document(name, more)).unwrap();
        self.connectors().write(&Caller::LocalAdmin, connector, Write::Replace).await.unwrap();
    }

    fn connectors(&self) -> &super::connectors::Connectors {
        &self.authority.services.connectors
    }

    async fn remote(&self) -> std::sync::Arc<Remote> {
        self.connectors().remote("corp", now()).await.unwrap()
    }

    async fn begin(&self) -> Under {
        let remote = self.remote().await;
        let begun = self.connectors().begin(&remote, login("challenge"), "", now()).await;
        let (begun, step) = begun.map_err(word).unwrap();
        self.authority.services.store.backend().transact(vec![step], now()).await.unwrap();
        let (_, query) = begun.url.split_once('?').unwrap();
        let query: BTreeMap<String, String> = idp::members(query);
        self.idp.expect_nonce(&query["nonce"]);
        Under { begun, query }
    }

    fn answer(&self, under: &Under) -> Answer {
        Answer {
            connector: "corp".to_owned(),
            state: under.query["state"].clone(),
            code: "the-code".to_owned(),
            binding: under.begun.binding.clone(),
            ..Answer::default()
        }
    }

    async fn claims(&self, answer: &Answer) -> Result<Claims, Failure> {
        let taken = self.connectors().take(answer, now()).await?;
        assert_eq!((taken.challenge.as_str(), taken.connector.as_str()), ("challenge", "corp"));
        let remote = self.remote().await;
        self.connectors().claims(&remote, taken, answer, false, now()).await
    }

    /// The person who logs in at the provider from now on.
    pub(in crate::authority) fn at_the_provider(&self, subject: &str, name: &str, groups: &[&str]) {
        self.idp.says(person(subject, name, groups));
    }

    /// What the provider has said of the person who logs in there, with whom nothing is done yet.
    pub(in crate::authority) async fn said(&self) -> Claims {
        let answer = self.answer(&self.begin().await);
        self.claims(&answer).await.map_err(word).unwrap()
    }

    /// One whole way through the provider, with the claims that it has been told.
    pub(in crate::authority) async fn log_in(&self) -> Result<(Admitted, Verdict), &'static str> {
        let answer = self.answer(&self.begin().await);
        let claims = self.claims(&answer).await.map_err(word)?;
        self.admit(&claims, now()).await
    }

    pub(in crate::authority) async fn admit(
        &self,
        claims: &Claims,
        now: OffsetDateTime,
    ) -> Result<(Admitted, Verdict), &'static str> {
        let remote = self.remote().await;
        self.connectors().admit(&CALLER, remote.connector(), claims, now).await.map_err(word)
    }

    /// What comes of a person who is back from the provider by one of its connectors: who is refused keeps nothing of it.
    pub(in crate::authority) async fn comes_by(
        &self,
        connector: &str,
        claims: &Claims,
    ) -> Result<UserName, &'static str> {
        let remote = self.connectors().remote(connector, now()).await.unwrap();
        match self.connectors().admit(&CALLER, remote.connector(), claims, now()).await {
            Ok((admitted, _)) => Ok(admitted.user),
            Err(failure) => {
                let lapsed = self.connectors().lapse(&CALLER, remote.connector(), claims, &failure, now());
                lapsed.await.unwrap();
                Err(word(failure))
            }
        }
    }

    /// What trying a connector as it is stored says of a person: why they would be refused.
    pub(in crate::authority) async fn would_be_refused(&self, connector: &str, claims: &Claims) -> String {
        let remote = self.connectors().remote(connector, now()).await.unwrap();
        let (_, would) = self.connectors().would_be(remote.connector(), &mut claims.clone(), now()).await;
        match would.map(|would| would.name) {
            Err(Failure::Sso(error)) => error.to_string(),
            other => panic!("{other:?}"),
        }
    }
}

fn word(failure: Failure) -> &'static str {
    match failure {
        Failure::Sso(error) => {
            // What the person reads tells nothing of the provider's answers and of the machine.
            let shown = error.shown();
            assert!(!shown.contains("127.0.0.1") && !shown.contains('/'), "{shown}");
            error.word()
        }
        Failure::State(status) => panic!("{status:?}"),
    }
}

fn private(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// A person of the provider, as its tokens have them.
fn person(subject: &str, name: &str, groups: &[&str]) -> serde_json::Value {
    json!({ "sub": subject, "preferred_username": name, "groups": groups })
}
