//! `sallyport login` and `sallyport logout`.

use std::time::Duration;

use sallyport_access::{Login, RoleName, UserName};
use sallyport_ca::{TrustBundle, keys};
use sallyport_sal::{Suite, selection};
use sallyport_wire::v1::{LoginRequest, LoginResponse, PingRequest};
use sallyport_wire::{convert, fips};
use serde_json::json;
use time::OffsetDateTime;
use tokio::task::JoinHandle;

use crate::connect::{self, FirstTrust};
use crate::error::{CliError, CliResult, Context, Exit};
use crate::follow;
use crate::global::Global;
use crate::profile::{self, Material, Profile, Stored};
use crate::resident;
use crate::ui::{self, Format};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Your user name. Default: that of the last login there, else your name on this machine.
    #[arg(long, short)]
    user: Option<String>,
    /// How long the certificates shall be valid, such as 8h. Default and limit: what your roles allow.
    #[arg(long, value_parser = ui::parse_duration)]
    ttl: Option<Duration>,
    /// The one-time code, instead of being asked.
    #[arg(long, value_name = "CODE")]
    otp: Option<String>,
    /// Read the password from the first line of standard input.
    #[arg(long)]
    password_stdin: bool,
    /// The pin of the cluster's certificate authority, for a first login.
    #[arg(long, value_name = "sha256:HEX")]
    ca_pin: Option<String>,
    /// With --ca-pin, where this machine trusts another certificate authority at the address: trust the new one in its place.
    #[arg(long, requires = "ca_pin")]
    replace_trust: bool,
    /// Offer the key and certificate to the running ssh-agent.
    #[arg(long, value_enum, default_value = "auto")]
    add_keys_to_agent: AddKeys,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum AddKeys {
    /// If there is an agent.
    Auto,
    /// Fail when there is none.
    Yes,
    No,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LogoutArgs {
    /// Every cluster, not only the current one.
    #[arg(long)]
    all: bool,
}

pub(crate) async fn run(global: &Global, args: Args) -> CliResult {
    let proxy = match (&global.proxy, profile::current_proxy(global)) {
        (Some(_), proxy) | (None, proxy @ Ok(_)) => proxy?,
        (None, Err(_)) => {
            return Err(CliError::new("which cluster?")
                .hint("sallyport login --proxy HOST:PORT --user NAME")
                .exit(Exit::Usage));
        }
    };
    let earlier = profile::load(&Global { proxy: Some(proxy.clone()), ..global.clone() }).ok();
    if let Some(pin) = &args.ca_pin {
        check_pin(&proxy, pin, args.replace_trust, earlier.as_ref())?;
    }
    let first = first_trust(&proxy, args.ca_pin.as_deref(), earlier.as_ref()).await?;
    let user = user_name(args.user.as_deref(), earlier.as_ref())?;
    let credentials = Credentials::Ask { otp: args.otp.clone(), password_stdin: args.password_stdin };
    let stored = log_in(global, &proxy, &first, &user, credentials, args.ttl).await?;
    if args.add_keys_to_agent != AddKeys::No {
        offer_to_agent(&stored, args.add_keys_to_agent).await?;
    }
    report(&stored, args.format)
}

/// Where the password and code come from.
pub(crate) enum Credentials {
    Ask { otp: Option<String>, password_stdin: bool },
    Given { password: String, otp: String },
}

/// Makes fresh keys, has them certified, and stores the result.
pub(crate) async fn log_in(
    global: &Global,
    proxy: &str,
    first: &FirstTrust,
    user: &UserName,
    credentials: Credentials,
    ttl: Option<Duration>,
) -> CliResult<Stored> {
    let mut client = connect::login(proxy, first).await?;
    let ping = client
        .ping(PingRequest {})
        .await
        .map_err(|status| CliError::from_status("reach the authority", &status))?
        .into_inner();
    let cluster = ping.time.as_ref().and_then(convert::time_from_proto);
    if let Some(warning) = cluster.and_then(|cluster| clock_warning(OffsetDateTime::now_utc(), cluster)) {
        ui::say(warning);
    }
    // An authority that does not say, or that says a suite of a newer release, gets keys that every release reads.
    let keys = fresh_keys(user, ping.suite.parse().unwrap_or_default());
    let (password, otp) = match credentials {
        Credentials::Given { password, otp } => (password, otp),
        Credentials::Ask { otp, password_stdin } => {
            let password = ui::password(&format!("Password for {user} on {}", ping.cluster), password_stdin)?;
            let otp = match otp {
                Some(otp) => otp,
                None if ui::can_ask() && !password_stdin => {
                    let optional =
                        if ping.second_factor == "required" { "" } else { " (empty if you have none)" };
                    ui::ask(&format!("One-time code{optional}: "))?
                }
                None => String::new(),
            };
            (password, otp)
        }
    };
    let (ssh, tls) = keys.await.doing("make keys")??;
    let request = LoginRequest {
        user: user.to_string(),
        password,
        otp,
        ssh_public_key: ssh.public_line().to_owned(),
        tls_public_key: tls.spki_der().to_vec().into(),
        ttl: ttl.map(convert::duration_to_proto),
    };
    let response = client
        .login_with_password(fips::saying(request, selection::global().is_fips()))
        .await
        .map_err(|status| {
            let error = CliError::from_status("log in", &status);
            match ttl.is_some() && status.message().contains("lifetime") {
                true => error.hint("leave --ttl out: the login then is as long as your roles allow"),
                false => error,
            }
        })?
        .into_inner();
    if !response.message_of_the_day.is_empty() {
        ui::say(response.message_of_the_day.trim_end());
    }
    let profile = profile_of(proxy, user, &response)?;
    let trust = trust_of(&response)?;
    profile::save(
        global,
        &profile,
        &Material {
            ssh_private_openssh: &ssh.private_openssh(),
            ssh_public_line: ssh.public_line(),
            ssh_certificate_line: &response.ssh_certificate,
            tls_key_pem: &tls.pkcs8_pem(),
            tls_certificate_pem: &response.tls_certificate_pem,
            trust: &trust,
        },
    )
}

/// Two fresh keys for each login: a certificate never outlives the one login that it came from. They are made while the
/// person types, because RSA takes a moment that nobody should wait for.
fn fresh_keys(user: &UserName, suite: Suite) -> JoinHandle<CliResult<(keys::SshKeyPair, keys::TlsKey)>> {
    let comment = user.to_string();
    tokio::task::spawn_blocking(move || {
        let ssh = keys::SshKeyPair::generate(suite, &comment).doing("make an SSH key")?;
        Ok((ssh, keys::TlsKey::generate(suite).doing("make a TLS key")?))
    })
}

fn profile_of(proxy: &str, user: &UserName, response: &LoginResponse) -> CliResult<Profile> {
    let odd = "understand the authority's answer";
    Ok(Profile {
        proxy: proxy.to_owned(),
        cluster: response.cluster.parse().doing(odd)?,
        user: user.clone(),
        roles: response.roles.iter().map(RoleName::new).collect::<Result<_, _>>().doing(odd)?,
        logins: response.logins.iter().map(Login::new).collect::<Result<_, _>>().doing(odd)?,
        valid_until: response
            .valid_until
            .as_ref()
            .and_then(convert::time_from_proto)
            .ok_or_else(|| CliError::new("the authority's answer names no end of validity"))?,
    })
}

fn trust_of(response: &LoginResponse) -> CliResult<TrustBundle> {
    let trust =
        response.trust.clone().ok_or_else(|| CliError::new("the authority's answer names no trust"))?;
    Ok(follow::bundle(trust, &response.cluster.parse().doing("understand the authority's answer")?))
}

/// A pin that is not of the cluster that this machine knows at the address takes a word: it may have come from who wants to stand
/// in the cluster's place.
fn check_pin(proxy: &str, pin: &str, replace: bool, earlier: Option<&Stored>) -> CliResult {
    let Some((stored, trust)) = earlier.and_then(|stored| Some((stored, stored.trust().ok()?))) else {
        return Ok(());
    };
    if trust.pins().iter().any(|known| known.eq_ignore_ascii_case(pin.trim())) {
        return Ok(());
    }
    let problem = format!(
        "the pin is of another certificate authority than that of {}, which this machine trusts at {proxy}",
        stored.profile.cluster
    );
    if replace {
        ui::say(format!("warning: {problem}; it is replaced once you are logged in"));
        return Ok(());
    }
    Err(CliError::new(problem)
        .hint("ask an administrator why; where the cluster was made anew, add --replace-trust")
        .exit(Exit::Connection))
}

/// How to know the cluster: by pin, by an earlier login, or by asking the person.
async fn first_trust(proxy: &str, pin: Option<&str>, earlier: Option<&Stored>) -> CliResult<FirstTrust> {
    if let Some(pin) = pin {
        return Ok(FirstTrust::Pin(pin.to_owned()));
    }
    if let Some(stored) = earlier
        && let Ok(trust) = stored.trust()
    {
        return Ok(FirstTrust::Known { trust: Box::new(trust), cluster: stored.profile.cluster.clone() });
    }
    let pin = connect::unverified_pin(proxy).await?;
    if !ui::can_ask() {
        // The pin that the address itself shows is no way to know it: who stands in between shows their own.
        return Err(CliError::new(format!(
            "this machine has never seen {proxy}, and there is no terminal to ask whether it is the right one"
        ))
        .hint(format!(
            "sallyport login --proxy {proxy} --ca-pin PIN  (the pin is from an administrator, who sees it with sallyport admin \
             status, or what follows # in your invite link)"
        ))
        .exit(Exit::Connection));
    }
    ui::say(format!("This machine has never seen the cluster at {proxy}."));
    ui::say(format!("Its certificate authority has the pin\n  {pin}"));
    ui::say("An administrator sees the right one with: sallyport admin status");
    let answer = ui::ask("Is it the same? [yes/no] ")?;
    if answer.trim().eq_ignore_ascii_case("yes") {
        Ok(FirstTrust::Pin(pin))
    } else {
        Err(CliError::new("not trusted; nothing was sent").exit(Exit::Connection))
    }
}

fn user_name(given: Option<&str>, earlier: Option<&Stored>) -> CliResult<UserName> {
    if let Some(name) = given {
        return UserName::new(name).map_err(|error| CliError::new(error.to_string()).exit(Exit::Usage));
    }
    if let Some(stored) = earlier {
        return Ok(stored.profile.user.clone());
    }
    let name = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_default();
    UserName::new(name)
        .map_err(|_| CliError::new("which user?").hint("sallyport login --user NAME").exit(Exit::Usage))
}

/// Certificates allow a minute; past that, a person should know before things fail.
fn clock_warning(here: OffsetDateTime, cluster: OffsetDateTime) -> Option<String> {
    let off = here - cluster;
    let direction = if off.is_positive() { "ahead of" } else { "behind" };
    (off.abs() > time::Duration::seconds(50)).then(|| {
        format!(
            "warning: this machine's clock is {} {direction} the cluster's: it says {} here and {} there. Certificates may be refused; \
             set the clock (timedatectl set-ntp true)",
            ui::duration(off.abs()),
            ui::timestamp(here),
            ui::timestamp(cluster),
        )
    })
}

/// Hands the key to ssh-agent for as long as the certificate lives.
async fn offer_to_agent(stored: &Stored, how: AddKeys) -> CliResult {
    let required = how == AddKeys::Yes;
    if std::env::var_os("SSH_AUTH_SOCK").is_none() {
        return if required {
            Err(CliError::new("there is no ssh-agent to add the key to").hint("eval $(ssh-agent)"))
        } else {
            Ok(())
        };
    }
    let left = (stored.profile.valid_until - OffsetDateTime::now_utc()).whole_seconds().max(1);
    let added = tokio::process::Command::new("ssh-add")
        .arg("-q")
        .arg("-t")
        .arg(left.to_string())
        .arg(stored.ssh_key_path())
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .output()
        .await;
    let problem = match added {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    if required {
        return Err(CliError::new(format!("ssh-agent did not take the key: {problem}")));
    }
    ui::say(format!("note: ssh-agent did not take the key: {problem}"));
    Ok(())
}

/// Whether the running ssh-agent holds the certificate of this login.
pub(crate) fn is_in_agent(stored: &Stored) -> bool {
    if std::env::var_os("SSH_AUTH_SOCK").is_none() {
        return false;
    }
    let Ok(certificate) = stored.read("ssh_key-cert.pub") else { return false };
    let Some(blob) = certificate.split_whitespace().nth(1) else { return false };
    let listed = std::process::Command::new("ssh-add")
        .arg("-L")
        .stdin(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .output();
    listed.is_ok_and(|listed| String::from_utf8_lossy(&listed.stdout).contains(blob))
}

/// Puts the certificate that was signed anew into the agent. The old one ends there by itself.
pub(crate) async fn replace_in_agent(stored: &Stored) {
    let _ = offer_to_agent(stored, AddKeys::Auto).await;
}

fn report(stored: &Stored, format: Format) -> CliResult {
    let profile = &stored.profile;
    if format == Format::Json {
        return ui::json(&json!({
            "proxy": profile.proxy, "cluster": profile.cluster, "user": profile.user, "roles": profile.roles,
            "logins": profile.logins, "valid_until": ui::timestamp(profile.valid_until),
        }));
    }
    // The moment since the certificate was made shall not turn 12h into 11h 59m.
    let left = ui::duration(profile.valid_until - OffsetDateTime::now_utc() + time::Duration::seconds(1));
    ui::data(format!("Logged in to {} as {} for {left}.", profile.cluster, profile.user))?;
    ui::data(format!("  roles   {}", list(&profile.roles)))?;
    ui::data(format!("  logins  {}", list(&profile.logins)))?;
    ui::say("Next: sallyport ls");
    Ok(())
}

pub(crate) fn list<T: std::fmt::Display>(items: &[T]) -> String {
    if items.is_empty() {
        return "none".to_owned();
    }
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

pub(crate) fn logout(global: &Global, args: &LogoutArgs) -> CliResult {
    let logins = if args.all { profile::all(global)? } else { vec![profile::load(global)?] };
    if logins.is_empty() {
        ui::say("There was no login to forget.");
    }
    for stored in logins {
        forget_in_agent(&stored);
        resident::forget(&stored.directory);
        if let Err(error) = crate::db::forget_all(&stored) {
            ui::say(format!("note: services of databases stay where psql looks for them: {}", error.what()));
        }
        profile::remove(global, &stored)?;
        ui::data(format!("Logged out of {} ({}).", stored.profile.cluster, stored.profile.proxy))?;
    }
    Ok(())
}

fn forget_in_agent(stored: &Stored) {
    if std::env::var_os("SSH_AUTH_SOCK").is_none() {
        return;
    }
    for file in [stored.ssh_certificate_path(), stored.ssh_key_path()] {
        // The agent may never have had it; either way it is gone afterwards.
        let _ = std::process::Command::new("ssh-add")
            .args(["-q", "-d"])
            .arg(file)
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status();
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn a_clock_that_is_off_is_told_with_both_times() {
        let cluster = datetime!(2026-03-01 12:00:00 UTC);
        assert_eq!(clock_warning(cluster + time::Duration::seconds(50), cluster), None);
        assert_eq!(clock_warning(cluster - time::Duration::seconds(50), cluster), None);
        let behind = clock_warning(cluster - time::Duration::minutes(5), cluster).unwrap();
        assert_eq!(
            behind,
            "warning: this machine's clock is 5m behind the cluster's: it says 2026-03-01T11:55:00Z here and 2026-03-01T12:00:00Z \
             there. Certificates may be refused; set the clock (timedatectl set-ntp true)"
        );
        let ahead = clock_warning(cluster + time::Duration::seconds(3700), cluster).unwrap();
        assert!(ahead.contains("1h 1m ahead of the cluster's: it says 2026-03-01T13:01:40Z here"), "{ahead}");
    }
}
