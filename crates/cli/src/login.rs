//! `sallyport login` and `sallyport logout`.

use std::path::PathBuf;
use std::time::Duration;

use sallyport_access::text::Foreign;
use sallyport_access::{LockTarget, UserName};
use serde_json::json;
use time::OffsetDateTime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::browser;
use crate::devices;
use crate::error::{CliError, CliResult, Context, Exit};
use crate::global::Global;
use crate::security_key::{self, Proven};
use crate::ui::{self, Format};
use sallyport_client::authority::{self, FirstTrust};
use sallyport_client::browser_login::{BrowserLogin, Where};
use sallyport_client::connect;
use sallyport_client::device::Devices;
use sallyport_client::key_login::KeyLogin;
use sallyport_client::login::{LoggedIn, Login, Secrets};
use sallyport_client::own_ssh_key::{self, OwnSshKey};
use sallyport_client::profile::{Profiles, Stored};
use sallyport_client::ssh_agent::{self, AgentError};
use sallyport_helper::control;
use sallyport_wire::v1::EndLoginsRequest;
use sallyport_wire::v1::end_logins_request::Which;
use zeroize::Zeroizing;

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
    /// Prove who you are in a browser on this machine, by a passkey or a password there.
    #[arg(long, conflicts_with_all = ["otp", "password_stdin", "headless", "password"])]
    browser: bool,
    /// Prove who you are in a browser on another device: it opens an address, and is given a code that is shown here.
    #[arg(long, conflicts_with_all = ["otp", "password_stdin", "password"])]
    headless: bool,
    /// Prove who you are with a security key (FIDO2) that is plugged into this machine, without a browser: touch it, and type its PIN
    /// where it wants one. Its passkey for the cluster was made at a page. Needs the programs fido2-token and fido2-assert.
    #[arg(long, conflicts_with_all = ["otp", "password_stdin", "browser", "headless", "password"])]
    security_key: bool,
    /// Of several security keys the one at this path, as fido2-token -L shows it.
    #[arg(long, value_name = "PATH", requires = "security_key")]
    security_key_device: Option<String>,
    /// Log in as from no trusted device, where this machine is one.
    #[arg(long)]
    no_device: bool,
    /// Be asked for the password here, where the cluster prefers passkeys.
    #[arg(long)]
    password: bool,
    /// Have the cluster certify this SSH key of yours, in place of one that the login makes: the file of a public key, or of a private key beside
    /// which it is. Keys in security keys (ssh-keygen -t ed25519-sk) are taken, too. The private key is not read: it signs for stock ssh with
    /// what sallyport config writes, and for sallyport ssh by SSH from your ssh-agent.
    #[arg(long, value_name = "FILE")]
    ssh_key: Option<PathBuf>,
    /// Offer the key and certificate to the running ssh-agent. A key of your own (--ssh-key) is not offered: ssh-add does that.
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

/// The key that `--ssh-key` names. It is read before anything is sent.
fn own_key(args: &Args) -> CliResult<Option<OwnSshKey>> {
    let Some(named) = &args.ssh_key else { return Ok(None) };
    let own = OwnSshKey::read(named)?;
    if args.add_keys_to_agent == AddKeys::Yes {
        return Err(CliError::new(format!(
            "--add-keys-to-agent adds the key that a login makes, and {} is yours",
            own.file().display()
        ))
        .hint(format!("leave it away; ssh-add {}", own_ssh_key::for_ssh(own.file()).display()))
        .exit(Exit::Usage));
    }
    Ok(Some(own))
}

pub(crate) async fn run(global: &Global, args: Args) -> CliResult {
    let own = own_key(&args)?;
    let profiles = global.profiles();
    let proxy = match (&global.proxy, profiles.current_proxy()) {
        (Some(_), proxy) | (None, proxy @ Ok(_)) => proxy?,
        (None, Err(_)) => {
            return Err(CliError::new("which cluster?")
                .hint("sallyport login --proxy HOST:PORT --user NAME")
                .exit(Exit::Usage));
        }
    };
    let earlier = profiles.at(&proxy).load().ok();
    if let Some(pin) = &args.ca_pin {
        check_pin(&proxy, pin, args.replace_trust, earlier.as_ref())?;
    }
    let first = first_trust(&proxy, args.ca_pin.as_deref(), earlier.as_ref()).await?;
    let devices = if args.no_device { Devices::none() } else { devices::own(global)? };
    let former = earlier.as_ref().map(ssh_agent::Former::of);
    let logged_in = if args.security_key {
        let user = user_name(args.user.as_deref(), earlier.as_ref())?;
        by_security_key(&proxy, &first, &user, &args, (&profiles, &devices, own)).await?
    } else if args.browser || args.headless {
        in_browser(&proxy, &first, &args, earlier.as_ref(), (&profiles, &devices, own)).await?
    } else {
        let user = user_name(args.user.as_deref(), earlier.as_ref())?;
        let login = begin(&proxy, &first, &user, own.clone()).await?;
        let here = args.password || args.password_stdin || args.otp.is_some();
        if !login.takes_passwords && (here || !ui::can_ask()) {
            return Err(CliError::new(format!(
                "{} has no passwords: it is logged in to with a passkey or by single sign-on",
                Foreign::new(&login.cluster)
            ))
            .hint("sallyport login --browser, or --headless on a machine without a browser")
            .exit(Exit::Refused));
        }
        if login.prefers_browser && !here && ui::can_ask() {
            in_browser(&proxy, &first, &args, earlier.as_ref(), (&profiles, &devices, own)).await?
        } else {
            let secrets = secrets(&user, &login, args.otp, args.password_stdin)?;
            let device = devices.open(&login.cluster).await.map_err(unusable)?;
            login.finish(&profiles, secrets, args.ttl, (device, browser::host_name())).await?
        }
    };
    if !logged_in.message_of_the_day.is_empty() {
        ui::say(logged_in.message_of_the_day.trim_end());
    }
    let stored = logged_in.stored;
    if let Some(former) = former {
        former.remove();
    }
    add_to_agent(&stored, args.add_keys_to_agent).await?;
    report(&stored, args.format)?;
    if earlier.is_some_and(|earlier| earlier.profile.ssh_key != stored.profile.ssh_key) {
        ui::say("note: what sallyport config has written before is for another SSH key: write it anew");
    }
    Ok(())
}

/// Has the person prove who they are in a browser, here or elsewhere. Another person than the one at this terminal may prove the page, so
/// that whose login it becomes is said before: by `--user`, by the last login, or by the person who is asked.
async fn in_browser(
    proxy: &str,
    first: &FirstTrust,
    args: &Args,
    earlier: Option<&Stored>,
    (profiles, devices, own): (&Profiles, &Devices, Option<OwnSshKey>),
) -> CliResult<LoggedIn> {
    let wanted = wanted(args.user.as_deref(), earlier)?;
    if wanted.is_none() && !ui::can_ask() {
        return Err(CliError::new(
            "there is no terminal to ask whether the user who is proven at the page is you",
        )
        .hint("say who you are: --user NAME")
        .exit(Exit::Usage));
    }
    let place = if args.headless { Where::Elsewhere } else { Where::Here };
    let name = browser::host_name();
    let login = BrowserLogin::begin(proxy, first, place, args.ttl, &name, devices, own).await?;
    if args.headless {
        ui::say(format!(
            "Open this address on a device with a browser:\n  {}",
            Foreign::new(login.address())
        ));
        browser::code("and", login.headless_code());
    } else {
        browser::open(&login.address(), "log in");
        browser::code("If the page asks for a code,", login.headless_code());
    }
    give_up_at_a_signal(&login)?;
    let proven = login.finish(wanted.as_ref()).await?;
    if wanted.is_none() {
        let user = proven.user();
        let answer = ui::ask(&format!("You proved {user} at the page. Go on as {user}? [yes/no] "))?;
        if !answer.trim().eq_ignore_ascii_case("yes") {
            return Err(CliError::new(format!("you did not confirm {user}; nothing was stored"))
                .hint("log in again, and prove at the page who you are; --user NAME takes no other user")
                .exit(Exit::Refused));
        }
    }
    Ok(proven.store(profiles)?)
}

/// Has the person prove who they are with a security key at this machine.
async fn by_security_key(
    proxy: &str,
    first: &FirstTrust,
    user: &UserName,
    args: &Args,
    (profiles, devices, own): (&Profiles, &Devices, Option<OwnSshKey>),
) -> CliResult<LoggedIn> {
    let key = security_key::find(args.security_key_device.as_deref()).await?;
    let name = browser::host_name();
    let login = KeyLogin::begin(proxy, first, user, args.ttl, &name, devices, own).await?;
    let give_up = login.give_up();
    let mut signals = Signals::watch()?;
    let proving = async {
        Ok::<_, CliError>(match key.sign(login.asked()).await? {
            Proven::Signed(signed) => Ok(login.finish(profiles, signed).await?),
            Proven::Interrupted(signal) => Err(signal),
        })
    };
    // Ended by a signal, it ends the program that asks the person, and leaves the terminal as it was.
    let came_to = tokio::select! {
        came_to = proving => came_to,
        signal = signals.next() => Ok(Err(signal)),
    };
    match came_to {
        Ok(Ok(logged_in)) => Ok(logged_in),
        Ok(Err(signal)) => {
            give_up.tell().await;
            // As shells have it.
            std::process::exit(128 + signal)
        }
        Err(error) => {
            give_up.tell().await;
            Err(error)
        }
    }
}

/// The signals by which a person ends a command.
struct Signals([(SignalKind, Signal); 3]);

impl Signals {
    fn watch() -> CliResult<Self> {
        let watch = |kind: SignalKind| -> CliResult<(SignalKind, Signal)> {
            Ok((kind, signal(kind).doing("watch for signals")?))
        };
        let kinds = [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt()];
        let [terminate, hang_up, interrupt] = kinds.map(watch);
        Ok(Self([terminate?, hang_up?, interrupt?]))
    }

    /// The number of the next one.
    async fn next(&mut self) -> i32 {
        let [(terminate, first), (hang_up, second), (interrupt, third)] = &mut self.0;
        let kind = tokio::select! {
            _ = first.recv() => terminate,
            _ = second.recv() => hang_up,
            _ = third.recv() => interrupt,
        };
        kind.as_raw_value()
    }
}

/// Has the authority told that the login is given up, where a signal ends this program from now on. By a thread of its own: this one
/// may be waiting for what the person types. A login that is finished by then is not undone.
fn give_up_at_a_signal(login: &BrowserLogin) -> CliResult {
    let give_up = login.give_up();
    let (watches, watched) = std::sync::mpsc::channel();
    let watching = move || -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut signals = Signals::watch().map_err(|error| std::io::Error::other(error.to_string()))?;
            let _ = watches.send(());
            let signal = signals.next().await;
            give_up.tell().await;
            // As shells have it.
            std::process::exit(128 + signal)
        })
    };
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(watching).doing("watch for signals")?;
    // Where the system gives no watch, signals do what they always do.
    let _ = watched.recv();
    Ok(())
}

/// Of a machine that is a trusted device, and cannot show it.
fn unusable(error: sallyport_client::error::Error) -> CliError {
    CliError::from(error).hint("to log in as from no trusted device: sallyport login --no-device")
}

/// Whose login is taken of a browser, where that is known before.
fn wanted(given: Option<&str>, earlier: Option<&Stored>) -> CliResult<Option<UserName>> {
    match given {
        Some(name) => user_name(Some(name), None).map(Some),
        None => Ok(earlier.map(|stored| stored.profile.user.clone())),
    }
}

/// Reaches the authority of a cluster, and warns of a clock that is off.
pub(crate) async fn begin(
    proxy: &str,
    first: &FirstTrust,
    user: &UserName,
    own: Option<OwnSshKey>,
) -> CliResult<Login> {
    let login = Login::begin(proxy, first, user, own).await?;
    if let Some(warning) = login.time.and_then(|cluster| clock_warning(OffsetDateTime::now_utc(), cluster)) {
        ui::say(warning);
    }
    Ok(login)
}

/// Asks for what was not given.
fn secrets(user: &UserName, login: &Login, otp: Option<String>, password_stdin: bool) -> CliResult<Secrets> {
    if login.offers_single_sign_on && !password_stdin && ui::can_ask() {
        ui::say("note: with single sign-on there is no password: Ctrl-C, and sallyport login --browser");
    }
    let password = ui::password(&format!("Password for {user} on {}", login.cluster), password_stdin)?;
    let otp = match otp {
        Some(otp) => otp,
        None if ui::can_ask() && !password_stdin => {
            let optional = if login.requires_code { "" } else { " (empty if you have none)" };
            ui::ask(&format!("One-time code{optional}: "))?
        }
        None => String::new(),
    };
    Ok(Secrets { password: Zeroizing::new(password), otp: Zeroizing::new(otp) })
}

/// A pin that is not of the cluster that this machine knows at the address takes a word: it may have come from an attacker who wants to stand
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
    let pin = authority::unverified_pin(proxy).await?;
    if !ui::can_ask() {
        // The pin that the address itself shows is no way to know it: an attacker in between shows their own.
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
        Err(CliError::new(format!("you did not confirm the pin of {proxy}; nothing was sent to it"))
            .hint(format!(
                "ask an administrator for the pin, then: sallyport login --proxy {proxy} --ca-pin PIN"
            ))
            .exit(Exit::Connection))
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

/// Hands the key to ssh-agent, as far as that is wanted.
async fn add_to_agent(stored: &Stored, how: AddKeys) -> CliResult {
    if how == AddKeys::No || stored.profile.ssh_key.is_some() {
        return Ok(());
    }
    match ssh_agent::add(stored).await {
        Ok(()) => Ok(()),
        Err(error) if how == AddKeys::Yes => {
            let told = CliError::new(error.to_string());
            Err(if matches!(error, AgentError::None) { told.hint("eval $(ssh-agent)") } else { told })
        }
        Err(AgentError::None) => Ok(()),
        Err(error) => {
            ui::say(format!("note: {error}"));
            Ok(())
        }
    }
}

fn report(stored: &Stored, format: Format) -> CliResult {
    let profile = &stored.profile;
    if format == Format::Json {
        return ui::json(&json!({
            "proxy": profile.proxy, "cluster": profile.cluster, "user": profile.user, "roles": profile.roles,
            "logins": profile.logins, "device": stored.device().map(|device| device.id),
            "ssh_key": stored.own_ssh_key(),
            "valid_until": ui::timestamp(profile.valid_until),
        }));
    }
    // The moment since the certificate was made shall not turn 12h into 11h 59m.
    let left = ui::duration(profile.valid_until - OffsetDateTime::now_utc() + time::Duration::seconds(1));
    ui::data(format!("Logged in to {} as {} for {left}.", profile.cluster, profile.user))?;
    ui::data(format!("  roles   {}", list(&profile.roles)))?;
    ui::data(format!("  logins  {}", list(&profile.logins)))?;
    if let Some(key) = stored.own_ssh_key() {
        ui::data(format!("  key     {key}"))?;
    }
    if let Some(device) = stored.device() {
        ui::data(format!(
            "  device  {} (its key is in {})",
            device.id,
            devices::place(device.custody.as_str())
        ))?;
    }
    ui::say("Next: sallyport ls");
    Ok(())
}

pub(crate) fn list<T: std::fmt::Display>(items: &[T]) -> String {
    if items.is_empty() {
        return "none".to_owned();
    }
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Ends logins at their clusters, and removes what is stored of them here. What is here is removed in any case.
pub(crate) async fn logout(global: &Global, args: &LogoutArgs) -> CliResult {
    let profiles = global.profiles();
    let logins = if args.all { profiles.all()? } else { vec![profiles.load()?] };
    if logins.is_empty() {
        ui::say("There was no login to forget.");
    }
    for stored in logins {
        let not_ended = end(&stored).await.err();
        ssh_agent::remove(&stored);
        control::forget(&stored.directory);
        if let Err(error) = crate::db::forget_all(&stored) {
            ui::say(format!("note: services of databases stay where psql looks for them: {}", error.what()));
        }
        profiles.remove(&stored)?;
        let profile = &stored.profile;
        ui::data(format!("Logged out of {} ({}).", profile.cluster, profile.proxy))?;
        if let Some(why) = not_ended {
            let why = why.what();
            let id = profile.login.as_ref().map_or("ID", |login| login.id.as_str());
            ui::say(format!(
                "warning: the cluster was not told, since {why}. A copy of these certificates goes on to count until {}. To end that, \
                 from another login of yours: sallyport sessions logins end {id}",
                ui::timestamp(profile.valid_until)
            ));
        }
    }
    Ok(())
}

/// How long a cluster has to end a login.
const ENDING: Duration = Duration::from_secs(10);

/// Ends a login at its cluster, so that a copy of its keys is worth nothing; or says why the cluster was not told.
async fn end(stored: &Stored) -> CliResult {
    if stored.profile.valid_until <= OffsetDateTime::now_utc() {
        return Ok(());
    }
    let ending = async {
        let authority = connect::services(stored).await.map_err(CliError::from)?;
        let request = EndLoginsRequest { which: Some(Which::Own(true)) };
        match authority.logins().end(request).await {
            Ok(_) => Ok(()),
            // It has ended before: another login or an administrator did it.
            Err(status) if status.code() == tonic::Code::NotFound || has_ended(stored, &status) => Ok(()),
            Err(status) => Err(CliError::from_status("end the login", &status)),
        }
    };
    let late =
        || CliError::new(format!("{} did not answer within {} s", stored.profile.proxy, ENDING.as_secs()));
    tokio::time::timeout(ENDING, ending).await.map_err(|_| late())?
}

/// Whether the cluster keeps the login out because it has ended.
fn has_ended(stored: &Stored, status: &tonic::Status) -> bool {
    let id = stored.profile.login.as_ref().and_then(|login| login.id.parse().ok());
    id.is_some_and(|id| status.message().contains(&format!("{} is locked", LockTarget::LoginId(id))))
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
