//! `sallyport status`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use serde_json::json;
use time::OffsetDateTime;

use crate::error::{CliError, CliResult, Exit};
use crate::global::Global;
use crate::login::list;
use crate::ui::{self, Format};
use sallyport_ca::SshPermits;
use sallyport_client::connect::{self, Unanswered};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Do not ask the cluster whether it is there.
    #[arg(long)]
    offline: bool,
}

/// Prints the current login. Exit code 3 when there is none or it has expired, 255 when the proxy does not answer or what does proves
/// no certificate of the cluster.
pub(crate) async fn run(global: &Global, args: Args) -> CliResult<ExitCode> {
    let stored = global.profiles().load()?;
    let profile = &stored.profile;
    let now = OffsetDateTime::now_utc();
    let expired = profile.valid_until <= now;
    let permits = stored.read("ssh_key-cert.pub").ok().and_then(|line| SshPermits::read(&line).ok());
    let answer = if args.offline { None } else { Some(connect::look(&stored).await) };
    if args.format == Format::Json {
        ui::json(&json!({
            "proxy": profile.proxy, "cluster": profile.cluster, "user": profile.user, "roles": profile.roles,
            "logins": profile.logins, "valid_until": ui::timestamp(profile.valid_until), "expired": expired,
            "reachable": answer.as_ref().map(Result::is_ok), "login": profile.login,
            "allows": permits.as_ref().map(|permits| &permits.allows),
            "bound": permits.as_ref().map(|permits| permits.bound.iter().cloned().collect::<BTreeMap<_, _>>()),
        }))?;
    } else {
        ui::data(format!("cluster  {} at {}", profile.cluster, profile.proxy))?;
        ui::data(format!("user     {}", profile.user))?;
        ui::data(format!("roles    {}", list(&profile.roles)))?;
        ui::data(format!("logins   {}", list(&profile.logins)))?;
        let until = ui::timestamp(profile.valid_until);
        if expired {
            ui::data(format!("expired  {until}, {} ago", ui::duration(now - profile.valid_until)))?;
        } else {
            ui::data(format!("valid    until {until}, {} left", ui::duration(profile.valid_until - now)))?;
        }
        if let Some(login) = &profile.login {
            let factor = match login.factor.as_str() {
                "" => String::new(),
                name => format!(", {name} ({})", crate::mfa::kind_word(&login.factor_kind)),
            };
            let second = if login.second_factor { "" } else { ", no second factor" };
            ui::data(format!("proven   by {}{factor}{second}", login.way))?;
            ui::data(format!("login    {}", login.id))?;
        }
        if let Some(permits) = &permits {
            let allows: Vec<&str> = permits.allows.iter().map(|name| words(name)).collect();
            ui::data(format!("allows   {}", list(&allows)))?;
            for (option, value) in &permits.bound {
                ui::data(format!("bound    {} {value}", words(option)))?;
            }
        }
        match &answer {
            Some(Ok(())) => ui::data("proxy    answers")?,
            Some(Err(Unanswered::Nothing)) => ui::data("proxy    does not answer")?,
            Some(Err(Unanswered::Other(_))) => ui::data("proxy    is not the cluster's")?,
            None => {}
        }
        let others: Vec<String> = global
            .profiles()
            .all()?
            .into_iter()
            .filter(|other| other.profile.proxy != profile.proxy)
            .map(|other| format!("{} ({})", other.profile.cluster, other.profile.proxy))
            .collect();
        if !others.is_empty() {
            ui::data(format!("others   {}", others.join(", ")))?;
        }
    }
    if expired {
        return Err(CliError::new("this login has expired")
            .hint(format!("sallyport login --proxy {} --user {}", profile.proxy, profile.user))
            .exit(Exit::NotLoggedIn));
    }
    match answer {
        None | Some(Ok(())) => Ok(ExitCode::SUCCESS),
        Some(Err(Unanswered::Other(error))) => Err(error.into()),
        Some(Err(Unanswered::Nothing)) => Err(CliError::new(format!("{} does not answer", profile.proxy))
            .hint("check that the cluster is up and reachable from here; sallyport status --offline does not ask it")
            .exit(Exit::Connection)),
    }
}

/// What an extension or a critical option of an SSH certificate is for.
fn words(name: &str) -> &str {
    match name {
        "permit-pty" => "terminals",
        "permit-port-forwarding" => "port forwarding",
        "permit-agent-forwarding" => "agent forwarding",
        "permit-X11-forwarding" => "X11 forwarding",
        "permit-user-rc" => "~/.ssh/rc",
        "source-address" => "to",
        other => other,
    }
}
