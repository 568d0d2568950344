//! `sallyport admin sso`: the connectors of single sign-on, and trying one before it is stored.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use sallyport_wire::v1::{
    AwaitSsoTestRequest, BeginSsoTestRequest, Connector, GetConnectorKeysRequest, ListConnectorsRequest,
};
use serde_json::{Value, json};

use crate::authority::Authority;
use crate::error::{CliError, CliResult, Context, Exit};
use crate::ui::{self, Format};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Sso {
    /// List the connectors.
    Ls {
        #[arg(long, value_enum, default_value = "text")]
        format: Format,
    },
    /// Log in by a connector that is not stored: prints what the provider says, each rule, and the roles that would result.
    Test {
        /// The connector's document; "-" is standard input.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[arg(long, value_enum, default_value = "text")]
        format: Format,
    },
    /// Print the public key of a connector that proves itself by private_key_jwt, as a key set for its provider.
    Jwks {
        /// The connector.
        name: String,
    },
}

pub(super) async fn run(authority: &Authority, command: Sso) -> CliResult<ExitCode> {
    let done = |()| ExitCode::SUCCESS;
    match command {
        Sso::Ls { format } => ls(authority, format).await.map(done),
        Sso::Test { file, format } => test(authority, &file, format).await,
        Sso::Jwks { name } => jwks(authority, name).await.map(done),
    }
}

async fn ls(authority: &Authority, format: Format) -> CliResult {
    let listed = authority.sso().list_connectors(ListConnectorsRequest {}).await;
    let listed = listed.map_err(|status| CliError::from_status("list the connectors", &status))?;
    let connectors = listed.into_inner().connectors;
    if format == Format::Json {
        let connectors: Vec<Value> = connectors.iter().map(in_json).collect();
        return ui::json(&connectors);
    }
    let rows = connectors
        .iter()
        .map(|connector| {
            vec![
                connector.name.clone(),
                connector.title.clone(),
                connector.issuer.clone(),
                connector.redirect_urls.join(" "),
                if connector.logout_path.is_empty() {
                    "no".to_owned()
                } else {
                    connector.logout_path.clone()
                },
            ]
        })
        .collect();
    ui::table(
        &["name", "title", "issuer", "redirect address", "tells of logouts"],
        rows,
        "There is no single sign-on yet: sallyport admin create -f FILE, with kind: oidc, github or gitlab",
    )
}

fn in_json(connector: &Connector) -> Value {
    json!({
        "name": connector.name,
        "title": connector.title,
        "issuer": connector.issuer,
        "client_id": connector.client_id,
        "proof": connector.proof,
        "redirect_urls": connector.redirect_urls,
        "logout_path": connector.logout_path,
        "user_lifetime_seconds": connector.user_lifetime_seconds,
    })
}

async fn jwks(authority: &Authority, name: String) -> CliResult {
    let keys = authority.sso().get_connector_keys(GetConnectorKeysRequest { name }).await;
    let keys = keys.map_err(|status| CliError::from_status("read the connector's key", &status))?;
    ui::data(keys.into_inner().key_set_json)
}

fn read(file: &Path) -> CliResult<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).doing("read standard input")?;
        return Ok(text);
    }
    fs::read_to_string(file).doing(format!("read {}", file.display()))
}

async fn test(authority: &Authority, file: &Path, format: Format) -> CliResult<ExitCode> {
    let yaml = read(file)?;
    let request = BeginSsoTestRequest { yaml, host_name: "sallyport admin sso test".to_owned() };
    let begun = authority.sso().begin_test(request).await;
    let begun = begun.map_err(|status| CliError::from_status("begin the test", &status))?.into_inner();
    let page = begun.page.unwrap_or_default();
    let proxy = begun.proxy.strip_suffix(":443").unwrap_or(&begun.proxy);
    ui::say(format!("Open https://{proxy}{} in a browser, and log in at the provider.", page.path));
    ui::say(format!(
        "The provider has to send it back to {}, registered there to the letter.",
        begun.redirect_url
    ));
    let result = loop {
        let request = AwaitSsoTestRequest { challenge: page.challenge.clone() };
        let waiting =
            tokio::time::timeout(Duration::from_secs(60), authority.sso().await_test(request)).await;
        let answer = waiting.map_err(|_| {
            CliError::new("the authority does not answer")
                .hint("sallyport admin status")
                .exit(Exit::Connection)
        })?;
        let answer =
            answer.map_err(|status| CliError::from_status("hear of the test", &status))?.into_inner();
        if !answer.result_json.is_empty() {
            break answer.result_json;
        }
    };
    let result: Value = serde_json::from_str(&result).doing("read the result")?;
    let refused = result.get("refused").is_some_and(|refused| !refused.is_null());
    match format {
        Format::Json => ui::json(&result)?,
        Format::Text => ui::document(told(&result))?,
    }
    Ok(if refused { ExitCode::from(Exit::Failed as u8) } else { ExitCode::SUCCESS })
}

/// A result for people.
pub(crate) fn told(result: &Value) -> String {
    let mut text = String::new();
    let mut line = |part: &str| {
        text.push_str(part);
        text.push('\n');
    };
    let pretty = |value: &Value| serde_json::to_string_pretty(value).unwrap_or_default();
    let list = |value: &Value| {
        let items: Vec<&str> = value
            .as_array()
            .map(|items| items.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        if items.is_empty() { "none".to_owned() } else { items.join(", ") }
    };
    if result["subject"].is_string() {
        line(&format!("Subject:  {}", result["subject"].as_str().unwrap_or_default()));
        line(&format!("ID token: {}", pretty(&result["id_token"])));
        line(&match &result["userinfo"] {
            Value::Null => "User information: the provider has none".to_owned(),
            said => format!("User information: {}", pretty(said)),
        });
        if result["fetched"].as_object().is_some_and(|members| !members.is_empty()) {
            line(&format!("Fetched from elsewhere: {}", pretty(&result["fetched"])));
        }
        if let Some(groups) = result["scim_groups"].as_array() {
            let groups: Vec<&str> = groups.iter().filter_map(Value::as_str).collect();
            line(&format!(
                "Groups by SCIM: {}",
                if groups.is_empty() { "none".to_owned() } else { groups.join(", ") }
            ));
        }
        let external_id = |part: &str| result["scim_external_id"].get(part).and_then(Value::as_str);
        if let Some(template) = external_id("template") {
            let value = external_id("value");
            line(&format!(
                "externalId by SCIM: {}",
                value.map_or_else(|| format!("none: {template} gives no one text"), str::to_owned)
            ));
        }
        line("Rules:");
        for step in result["told"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            line(&format!("  {step}"));
        }
        line(&format!("Roles:    {}", list(&result["roles"])));
        if result["unknown_roles"].as_array().is_some_and(|roles| !roles.is_empty()) {
            line(&format!("Not there: {} (sallyport admin get role)", list(&result["unknown_roles"])));
        }
        line(&format!("Traits:   {}", result["traits"]));
        let second_factor = result["second_factor"].as_bool() == Some(true);
        line(&format!("Second factor: {}", if second_factor { "yes" } else { "not said" }));
    }
    match (&result["refused"], result["user"].as_str()) {
        (Value::Null, Some(user)) if result["linked"].as_bool() == Some(true) => line(&format!(
            "This login would be {user}'s: a local user, who is linked, and whose own roles and traits count."
        )),
        (Value::Null, Some(user)) => line(&format!("This login would be {user}'s.")),
        (Value::Null, None) => {}
        (refused, _) => {
            line(&format!(
                "This login would be refused ({}): {}",
                refused["reason"].as_str().unwrap_or_default(),
                refused["message"].as_str().unwrap_or_default()
            ));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_says_what_the_provider_said_and_what_it_comes_to() {
        let result = json!({
            "subject": "24400320",
            "id_token": { "groups": ["ops-eu"] },
            "userinfo": null,
            "fetched": {},
            "told": ["rule 1 (groups): ops-eu gives access", "rule 2 (hd): there is no claim hd"],
            "roles": ["access"],
            "unknown_roles": ["nowhere"],
            "traits": { "logins": ["alice"] },
            "user": "alice",
            "second_factor": false,
            "refused": null,
        });
        let text = told(&result);
        for part in [
            "Subject:  24400320",
            "\"ops-eu\"",
            "  rule 2 (hd): there is no claim hd",
            "Roles:    access",
            "Not there: nowhere",
            "This login would be alice's.",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let mut linked = result;
        linked["linked"] = json!(true);
        let text = told(&linked);
        assert!(text.contains("This login would be alice's: a local user, who is linked"), "{text}");
        let refused =
            told(&json!({ "refused": { "reason": "refused_by_provider", "message": "invalid_client" } }));
        assert_eq!(refused, "This login would be refused (refused_by_provider): invalid_client\n");
    }
}
