//! `sallyport admin login-rule`: what the login rules would come to.

use std::net::IpAddr;
use std::process::ExitCode;

use sallyport_wire::convert;
use sallyport_wire::v1::{LoginRuleOutcome, TestLoginRulesRequest};
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::authority::Authority;
use crate::error::{CliError, CliResult, Exit};
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
    /// How the user proves who they are: password, passkey or "single sign-on".
    #[arg(long, default_value = "password")]
    way: String,
    /// The kind of the factor.
    #[arg(long, value_parser = ["webauthn", "totp"])]
    factor: Option<String>,
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

fn time(text: &str) -> Result<OffsetDateTime, String> {
    OffsetDateTime::parse(text, &Rfc3339).map_err(|_| "write a time such as 2030-01-31T12:00:00Z".to_owned())
}

pub(crate) async fn run(authority: &Authority, command: LoginRule) -> CliResult<ExitCode> {
    let LoginRule::Test(args) = command;
    let passkey = args.way == "passkey";
    let request = TestLoginRulesRequest {
        user: args.user.clone(),
        address: args.from.map(|address| address.to_string()).unwrap_or_default(),
        second_factor: passkey || args.factor.is_some(),
        factor_kind: args
            .factor
            .unwrap_or_else(|| if passkey { "webauthn".to_owned() } else { String::new() }),
        user_verified: passkey || args.user_verified,
        way: args.way,
        renewal: args.renewal,
        time: args.at.map(convert::time_to_proto),
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

fn as_json(one: &LoginRuleOutcome) -> serde_json::Value {
    json!({ "rule": one.rule, "then": one.then, "meets": one.meets, "problem": one.problem })
}
