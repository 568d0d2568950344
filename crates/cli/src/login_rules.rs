//! `sallyport admin login-rule`: what the login rules would come to.

use std::fs::File;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use sallyport_wire::v1::{LoginRuleOutcome, TestLoginRulesRequest};
use sallyport_wire::{CLAIMS_BYTES, convert};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::authority::Authority;
use crate::error::{CliError, CliResult, Context as _, Exit};
use crate::ui::{self, Format};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum LoginRule {
    /// Say whether a login would be let in, and what each rule comes to. Nothing is logged in. Exit code 4 where it would not.
    Test(Test),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Test {
    /// Who logs in.
    #[arg(long)]
    user: String,
    /// From this address. Default: from no network that a rule names.
    #[arg(long)]
    from: Option<IpAddr>,
    /// How the user proves who they are: password, passkey or "single sign-on". Default: password; with --connector, single sign-on.
    #[arg(long)]
    way: Option<String>,
    /// The connector of single sign-on that the login goes by.
    #[arg(long, value_name = "NAME")]
    connector: Option<String>,
    /// What the connector's provider says: a file with a JSON object of claims, or - for standard input. Default: it is not known, and a
    /// rule that looks at claims cannot be evaluated.
    #[arg(long, value_name = "FILE", requires = "connector")]
    claims: Option<PathBuf>,
    /// The trusted device that it comes from: the id of one of the user's, or file or hardware for any that has its key there. Default: none.
    #[arg(long, value_name = "ID|file|hardware")]
    device: Option<String>,
    /// The kind of the factor.
    #[arg(long, value_parser = ["webauthn", "totp"])]
    factor: Option<String>,
    /// More than a password was proven, here or at the provider. A passkey and a factor say so by themselves.
    #[arg(long)]
    second_factor: bool,
    /// The authenticator has verified its user.
    #[arg(long)]
    user_verified: bool,
    /// Certificates of an open login are signed anew.
    #[arg(long)]
    renewal: bool,
    /// When, such as 2030-01-31T12:00:00Z. Default: now.
    #[arg(long, value_name = "TIME", value_parser = time)]
    at: Option<OffsetDateTime>,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// How logins by a connector are called.
const SINGLE_SIGN_ON: &str = "single sign-on";

/// The claims of a file, as JSON.
fn claims(path: &Path) -> CliResult<String> {
    let shown = path.display();
    let (mut text, is_input) = (String::new(), path == Path::new("-"));
    // One more than is taken, so that what is too long shows.
    let most = CLAIMS_BYTES as u64 + 1;
    let read = match is_input {
        true => std::io::stdin().take(most).read_to_string(&mut text),
        false => File::open(path).and_then(|file| file.take(most).read_to_string(&mut text)),
    };
    read.doing(if is_input { "read standard input".to_owned() } else { format!("read {shown}") })?;
    let example = r#"write a JSON object of claims, such as {"groups": ["ops"]}"#;
    let problem = match serde_json::from_str::<Value>(&text) {
        _ if text.len() > CLAIMS_BYTES => format!("has more than {CLAIMS_BYTES} bytes"),
        Ok(Value::Object(_)) => return Ok(text),
        Ok(_) => "is JSON, and not an object".to_owned(),
        Err(error) => format!("is not JSON: {error}"),
    };
    Err(CliError::new(format!("the file of --claims, {shown}, {problem}")).hint(example).exit(Exit::Usage))
}

fn time(text: &str) -> Result<OffsetDateTime, String> {
    OffsetDateTime::parse(text, &Rfc3339).map_err(|_| "write a time such as 2030-01-31T12:00:00Z".to_owned())
}

pub(crate) async fn run(authority: &Authority, command: LoginRule) -> CliResult<ExitCode> {
    let LoginRule::Test(args) = command;
    let default = if args.connector.is_some() { SINGLE_SIGN_ON } else { "password" };
    let way = args.way.unwrap_or_else(|| default.to_owned());
    let claims_json = args.claims.as_deref().map(claims).transpose()?.unwrap_or_default();
    let passkey = way == "passkey";
    let request = TestLoginRulesRequest {
        user: args.user.clone(),
        address: args.from.map(|address| address.to_string()).unwrap_or_default(),
        second_factor: passkey || args.second_factor || args.factor.is_some(),
        factor_kind: args
            .factor
            .unwrap_or_else(|| if passkey { "webauthn".to_owned() } else { String::new() }),
        user_verified: passkey || args.user_verified,
        way,
        renewal: args.renewal,
        time: args.at.map(convert::time_to_proto),
        connector: args.connector.unwrap_or_default(),
        claims_json,
        device: args.device.unwrap_or_default(),
    };
    let answer = authority.logins().test_rules(request).await;
    let answer = answer.map_err(|status| CliError::from_status("try the login rules", &status))?.into_inner();
    if args.format == Format::Json {
        let outcomes: Vec<_> = answer.outcomes.iter().map(as_json).collect();
        ui::json(&json!({ "allowed": answer.allowed, "message": answer.message, "rules": outcomes }))?;
    } else {
        let rows = answer.outcomes.iter().map(|one| {
            let meets = match (one.problem.as_str(), one.meets) {
                ("", true) => "met".to_owned(),
                ("", false) => "not met".to_owned(),
                (problem, _) => format!("failed: {problem}"),
            };
            vec![one.rule.clone(), one.then.clone(), meets]
        });
        ui::table(&["rule", "then", "condition"], rows.collect(), "There is no login rule.")?;
        ui::data(match answer.allowed {
            true => format!("{} would be let in.", args.user),
            false => format!("{} would be refused: {}", args.user, answer.message),
        })?;
    }
    Ok(if answer.allowed { ExitCode::SUCCESS } else { ExitCode::from(Exit::Refused as u8) })
}

fn as_json(one: &LoginRuleOutcome) -> Value {
    json!({ "rule": one.rule, "then": one.then, "meets": one.meets, "problem": one.problem })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_claims_is_an_object_and_what_else_it_is_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("claims.json");
        for (text, problem) in [
            (r#"{"groups": ["ops"]}"#, None),
            ("[]", Some("is JSON, and not an object")),
            ("{", Some("is not JSON")),
            ("", Some("is not JSON")),
            (&format!("{{\"a\": \"{}\"}}", "x".repeat(70_000)), Some("has more than 32768 bytes")),
        ] {
            std::fs::write(&path, text).unwrap();
            match (claims(&path), problem) {
                (Ok(read), None) => assert_eq!(read, text),
                (Err(error), Some(problem)) => {
                    assert!(error.what().contains(problem), "{error:?}");
                    assert_eq!(error.exit_kind(), Exit::Usage);
                }
                (read, _) => panic!("{text:.40}: {read:?}"),
            }
        }
        let missing = claims(&directory.path().join("nowhere")).unwrap_err();
        assert!(missing.what().contains("nowhere"), "{missing:?}");
    }
}
