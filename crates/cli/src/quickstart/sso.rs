//! Single sign-on in the tour: an identity provider of its own, claims that become roles, and a headless login.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

use sallyport_access::{ClusterName, UserName};
use sallyport_client::browser_login::{BrowserLogin, Where};
use sallyport_client::connect;
use sallyport_client::device::Devices;
use sallyport_client::profile::Profiles;
use sallyport_server::Running;
use sallyport_wire::v1::{
    AwaitSsoTestRequest, BeginSsoTestRequest, CreateResourceRequest, DeleteResourceRequest,
};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tonic::Code;

use super::http::{self, Message, encoded, members};
use super::provider::{CLIENT, GROUPS, PERSON, Provider};
use super::state::State;
use super::tour::{Done, Tour, done, yaml_string};
use crate::admin::told_of_sso;
use crate::error::{CliError, CliResult, Context};
use crate::ui;

/// What the connector is called here.
const CONNECTOR: &str = "tour";
/// How long one step of the browser's may take.
const PATIENCE: Duration = Duration::from_secs(20);

fn failed(what: &'static str) -> impl Fn(tonic::Status) -> CliError {
    move |status| CliError::from_status(what, &status)
}

impl Tour {
    /// Starts the provider, and says what it is.
    pub(super) async fn start_provider(&self, state: &mut State) -> CliResult<Done<Provider>> {
        let provider = Provider::start(state.provider_port, &self.os_login).await?;
        state.provider_port = Some(provider.port());
        state.provider_forgotten = false;
        ui::say(format!(
            "  NOTE: {} is an identity provider for this demonstration and for nothing else. It knows one person, asks for a password alone, \
             and speaks without TLS on this machine. No other command starts it.",
            provider.issuer()
        ));
        let said = format!("{} of the tour's own, with the person {PERSON}", provider.issuer());
        done(provider, said)
    }

    fn connector(&self, provider: &Provider) -> CliResult<String> {
        let secret = self.path.join("provider.secret");
        let _ = fs::remove_file(&secret);
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&secret);
        file.and_then(|mut file| writeln!(file, "{}", provider.secret()))
            .doing(format!("write {}", secret.display()))?;
        let [group, _] = GROUPS;
        Ok(format!(
            "kind: oidc\nversion: v1\nmetadata: {{name: {CONNECTOR}, description: The tour's own provider}}\nspec:\n  title: The tour\n  \
             issuer: {}\n  insecure_loopback: true\n  client_id: {CLIENT}\n  client_secret_file: {}\n  algorithms: [ES256]\n  \
             provider_checks_second_factor: true\n  mapping:\n    roles:\n      - {{claim: groups, value: {group}, roles: [quickstart]}}\n      \
             - {{claim: groups, value: auditors, roles: [auditor]}}\n    traits: {{internal.logins: ['{{{{claims.unix_name}}}}']}}\n",
            provider.issuer(),
            yaml_string(&secret),
        ))
    }

    /// Tries the connector before it is stored, as an administrator does, and shows how claims become roles.
    pub(super) async fn try_connector(&self, provider: &Provider) -> CliResult<Done<()>> {
        let authority = self.authority().await?;
        let yaml = self.connector(provider)?;
        let request =
            BeginSsoTestRequest { yaml: yaml.clone(), host_name: "sallyport quickstart".to_owned() };
        let begun = authority.sso().begin_test(request).await.map_err(failed("begin the test"))?.into_inner();
        let id = begun.page.unwrap_or_default().challenge;
        self.through_the_pages(&id, "", provider.password()).await?;
        let asked = AwaitSsoTestRequest { challenge: id };
        let result =
            authority.sso().await_test(asked).await.map_err(failed("hear of the test"))?.into_inner();
        let result: Value = serde_json::from_str(&result.result_json).doing("read the result of the test")?;
        if result.get("refused").is_some_and(|refused| !refused.is_null()) {
            return Err(CliError::new(format!(
                "the provider's login gives nothing: {}",
                told_of_sso(&result)
            )));
        }
        for line in told_of_sso(&result).lines() {
            ui::data(format!("            {line}"))?;
        }
        let create = CreateResourceRequest { yaml, replace: true };
        authority.admin().create_resource(create).await.map_err(failed("write the connector"))?;
        done((), format!("oidc/{CONNECTOR}: claims, rules and roles as above; then stored"))
    }

    /// Logs the person in as a program on a machine without a browser does. The tour is the browser on the other device.
    pub(super) async fn log_in_by_provider(&self, provider: &Provider) -> CliResult<Done<()>> {
        let (proxy, first) = (self.listen.to_string(), self.pin().await?);
        let person = UserName::new(PERSON).doing("name the person")?;
        let (place, device) = (Where::Elsewhere, Devices::none());
        let login = BrowserLogin::begin(&proxy, &first, place, None, "quickstart", &device, None).await?;
        let address = login.address();
        let id = address.split_once('#').map(|(_, id)| id.to_owned()).unwrap_or_default();
        let code = login.headless_code().to_owned();
        let finishing = async { login.finish(Some(&person)).await.map_err(CliError::from) };
        let at_the_pages = self.through_the_pages(&id, &code, provider.password());
        let (proven, ()) = tokio::try_join!(finishing, at_the_pages)?;
        let profiles = Profiles { home: Some(self.path.join("client-sso")), proxy: Some(proxy.clone()) };
        let stored = proven.store(&profiles)?.stored;
        let roles = crate::login::list(&stored.profile.roles);
        done((), format!("{PERSON} came by the provider, headless, and holds the roles {roles}"))
    }

    /// What a browser does at the proxy's page and at the provider.
    async fn through_the_pages(&self, id: &str, code: &str, password: &str) -> CliResult {
        let origin = format!("https://{}", self.listen);
        let begin = json!({ "id": id, "code": code, "connector": CONNECTOR, "origin": origin });
        let sent = self.page("/web/login/sso/begin", &begin).await?;
        let text =
            |said: &Value, name: &str| said.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let answer = at_the_provider(&text(&sent, "redirect"), password).await?;
        let of = |name: &str| answer.get(name).cloned().unwrap_or_default();
        let finish = json!({
            "connector": CONNECTOR, "state": of("state"), "code": of("code"), "iss": of("iss"), "error": of("error"),
            "error_description": of("error_description"), "binding": text(&sent, "binding"),
        });
        self.page("/web/login/sso/finish", &finish).await.map(drop)
    }

    /// One call of the proxy's page.
    async fn page(&self, path: &str, said: &Value) -> CliResult<Value> {
        let trust = self.trust.lock().clone().ok_or_else(|| CliError::new("the cluster is not up yet"))?;
        let (proxy, cluster) = (self.listen.to_string(), ClusterName::new(super::steps::CLUSTER));
        let cluster = cluster.doing("name the cluster")?;
        let asking = async {
            let mut stream = connect::pages(&proxy, &trust, &cluster).await?;
            let origin = format!("https://{proxy}");
            let headers =
                [("Host", proxy.as_str()), ("Origin", &origin), ("Content-Type", "application/json")];
            let body = said.to_string();
            http::send(&mut stream, &format!("POST {path} HTTP/1.1"), &headers, body.as_bytes())
                .await
                .doing("call the proxy's page")?;
            Message::read(&mut stream).await.doing("read the answer of the proxy's page")
        };
        let answer = tokio::time::timeout(PATIENCE, asking).await;
        let answer = answer.map_err(|_| CliError::new(format!("{path} does not answer")))??;
        let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        if answer.status() != 200 {
            let why = said.pointer("/error/message").and_then(Value::as_str).unwrap_or("it does not say why");
            return Err(CliError::new(format!("{path} answers {}: {why}", answer.status())));
        }
        Ok(said)
    }

    /// Takes away what a tour before has left of the provider, which is not there without `--with-sso`.
    pub(super) async fn forget_provider(&self) -> CliResult {
        let authority = self.authority().await?;
        let delete = DeleteResourceRequest { kind: "oidc".to_owned(), name: CONNECTOR.to_owned() };
        match authority.admin().delete_resource(delete).await {
            Ok(_) => ui::data("  (the provider of an earlier tour is gone: its connector is removed)"),
            Err(status) if status.code() == Code::NotFound => Ok(()),
            Err(status) => Err(CliError::from_status("remove the tour's connector", &status)),
        }
    }

    pub(super) fn hear_of_trust(&self, cluster: &Running) {
        *self.trust.lock() = cluster.authority().map(|authority| authority.trust());
    }

    pub(super) fn say_what_is_next_for_sso(&self, provider: &Provider) -> CliResult {
        let home = self.path.join("client-sso");
        ui::data(format!(
            "By single sign-on, as {PERSON} with the password {:?} at the provider:",
            provider.password()
        ))?;
        ui::data(format!(
            "  sallyport --home {} --proxy {} login --headless --user {PERSON}",
            home.display(),
            self.listen
        ))?;
        ui::data("  Your own provider: docs/sso.md has Keycloak, Google, Entra ID and Okta.")
    }
}

/// What a person does at the provider's page; the members of the address that it sends the browser to then.
async fn at_the_provider(url: &str, password: &str) -> CliResult<std::collections::BTreeMap<String, String>> {
    let bad = || CliError::new("the page leads to no provider of the tour's");
    let (host, path) = url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).ok_or_else(bad)?;
    let asking = async {
        let mut stream = TcpStream::connect(host).await?;
        let form = format!("password={}", encoded(password));
        let headers = [("Host", host), ("Content-Type", "application/x-www-form-urlencoded")];
        http::send(&mut stream, &format!("POST /{path} HTTP/1.1"), &headers, form.as_bytes()).await?;
        Message::read(&mut stream).await
    };
    let answer = tokio::time::timeout(PATIENCE, asking).await;
    let answer = answer.map_err(|_| CliError::new("the provider does not answer"))?;
    let answer = answer.doing("log in at the provider")?;
    let location = answer.headers.get("location").ok_or_else(|| {
        CliError::new(format!("the provider answers {} and sends the browser nowhere", answer.status()))
    })?;
    location.split_once('?').map(|(_, query)| members(query)).ok_or_else(bad)
}
