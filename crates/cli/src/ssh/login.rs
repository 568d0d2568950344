//! Which OS login is meant.

use super::options::Options;
use super::plan::Plan;
use super::target::Target;
use crate::error::{CliError, CliResult};
use sallyport_client::profile::Stored;

/// The OS login to ask for.
pub(super) fn login(stored: &Stored, plan: &Plan, target: &Target) -> CliResult<String> {
    if let Some(login) = plan.options.user.as_ref().or(target.login.as_ref()) {
        return Ok(login.clone());
    }
    let logins = &stored.profile.logins;
    let here = nix::unistd::User::from_uid(nix::unistd::getuid()).ok().flatten().map(|user| user.name);
    let known = |name: &str| logins.iter().any(|login| login.as_str() == name);
    match (here, logins.as_slice()) {
        (Some(here), _) if known(&here) => Ok(here),
        (_, [only]) => Ok(only.to_string()),
        (_, []) => Err(CliError::new("your roles give you no login on any node")
            .hint("ask an administrator for a role with logins; sallyport status shows what you have")),
        (_, several) => {
            let several: Vec<String> = several.iter().map(ToString::to_string).collect();
            Err(CliError::new(format!("which login? You may use {}", several.join(", "))).hint(format!(
                "sallyport ssh {}@{}",
                several.first().map_or("LOGIN", String::as_str),
                target.host
            )))
        }
    }
}

/// For commands other than ssh: who goes where, by the same rules.
pub(crate) fn default_login(stored: &Stored, target: &Target) -> CliResult<String> {
    login(stored, &Plan { options: Options::default(), program: None, stdio: None, trace: None }, target)
}
