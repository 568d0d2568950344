//! `sallyport status`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use sallyport_access::Device;
use sallyport_access::text::Foreign;
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::devices;
use crate::error::{CliError, CliResult, Exit};
use crate::global::Global;
use crate::login::list;
use crate::ui::{self, Format};
use sallyport_ca::SshPermits;
use sallyport_client::connect::{self, Unanswered};
use sallyport_client::own_ssh_key::CertifiedKey;
use sallyport_client::profile::{Profile, Stored};

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
    let held = Held::read(&stored, OffsetDateTime::now_utc());
    let answer = if args.offline { None } else { Some(connect::look(&stored).await) };
    let profile = &stored.profile;
    if args.format == Format::Json {
        ui::json(&held.json(answer.as_ref().map(Result::is_ok)))?;
    } else {
        for line in held.lines() {
            ui::data(line)?;
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
    if held.has_expired() {
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

/// All that the files of a login say of it.
struct Held<'a> {
    profile: &'a Profile,
    /// None where the SSH certificate cannot be read.
    permits: Option<SshPermits>,
    /// The trusted device that it came from.
    device: Option<Device>,
    /// The SSH key where it is the user's own.
    ssh_key: Option<CertifiedKey>,
    now: OffsetDateTime,
}

impl<'a> Held<'a> {
    fn read(stored: &'a Stored, now: OffsetDateTime) -> Self {
        let permits = stored.read("ssh_key-cert.pub").ok().and_then(|line| SshPermits::read(&line).ok());
        let ssh_key = stored.own_ssh_key();
        Self { profile: &stored.profile, permits, device: stored.device(), ssh_key, now }
    }

    fn has_expired(&self) -> bool {
        self.profile.valid_until <= self.now
    }

    /// For programs. `reachable` is whether the proxy answers; none where it was not asked.
    fn json(&self, reachable: Option<bool>) -> Value {
        let Self { profile, permits, device, ssh_key, .. } = self;
        let bound = permits.as_ref().map(|permits| permits.bound.iter().cloned().collect::<BTreeMap<_, _>>());
        json!({
            "proxy": profile.proxy, "cluster": profile.cluster, "user": profile.user, "roles": profile.roles,
            "logins": profile.logins, "valid_until": ui::timestamp(profile.valid_until),
            "expired": self.has_expired(), "reachable": reachable, "login": profile.login, "device": device,
            "ssh_key": ssh_key,
            "traits": permits.as_ref().map(|permits| &permits.traits),
            "allows": permits.as_ref().map(|permits| &permits.allows), "bound": bound,
        })
    }

    /// For people.
    fn lines(&self) -> Vec<String> {
        let profile = self.profile;
        let mut lines = vec![
            format!("cluster  {} at {}", profile.cluster, profile.proxy),
            format!("user     {}", profile.user),
            format!("roles    {}", list(&profile.roles)),
            format!("logins   {}", list(&profile.logins)),
        ];
        let until = ui::timestamp(profile.valid_until);
        lines.push(if self.has_expired() {
            format!("expired  {until}, {} ago", ui::duration(self.now - profile.valid_until))
        } else {
            format!("valid    until {until}, {} left", ui::duration(profile.valid_until - self.now))
        });
        if let Some(login) = &profile.login {
            let factor = match login.factor.as_str() {
                "" => String::new(),
                name => format!(", {name} ({})", crate::mfa::kind_word(&login.factor_kind)),
            };
            let second = if login.second_factor { "" } else { ", no second factor" };
            lines.push(format!("proven   by {}{factor}{second}", login.way));
            lines.push(format!("login    {}", login.id));
        }
        if let Some(device) = &self.device {
            let place = devices::place(device.custody.as_str());
            lines.push(format!("device   {} (its key is in {place})", device.id));
        }
        if let Some(key) = &self.ssh_key {
            lines.push(format!("key      {key}"));
        }
        if let Some(permits) = &self.permits {
            // An identity provider may have written them: each stays on its line.
            let shown = |(name, values): (&String, &Vec<String>)| {
                format!("trait    {}", Foreign::new(format!("{name}: {}", list(values))))
            };
            lines.extend(permits.traits.iter().map(shown));
            let allows: Vec<&str> = permits.allows.iter().map(|name| words(name)).collect();
            lines.push(format!("allows   {}", list(&allows)));
            let bound = permits.bound.iter();
            lines.extend(bound.map(|(option, value)| format!("bound    {} {value}", words(option))));
        }
        lines
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

#[cfg(test)]
mod tests {
    use sallyport_access::{DeviceCustody, Traits};
    use sallyport_client::profile::LoginFacts;

    use super::*;

    /// 2026-03-01T12:00:00Z.
    const NOON: i64 = 1_772_366_400;
    const DEVICE: &str = "0190c7e2-0000-7000-8000-000000000001";

    fn profile() -> Profile {
        let login = LoginFacts {
            id: "0190c7e2-0000-7000-8000-000000000002".to_owned(),
            way: "password".to_owned(),
            factor: "desk".to_owned(),
            factor_kind: "webauthn".to_owned(),
            second_factor: true,
        };
        Profile {
            proxy: "sp.example.com:3080".to_owned(),
            cluster: "example.com".parse().unwrap(),
            user: "alice".parse().unwrap(),
            roles: vec!["dev".parse().unwrap()],
            logins: vec!["root".parse().unwrap(), "deploy".parse().unwrap()],
            valid_until: OffsetDateTime::from_unix_timestamp(NOON).unwrap(),
            login: Some(login),
            ssh_key: None,
        }
    }

    fn held(profile: &Profile, device: Option<DeviceCustody>) -> Held<'_> {
        let traits = Traits::from([
            ("internal.logins".to_owned(), vec!["root".to_owned()]),
            ("team".to_owned(), vec!["db".to_owned(), "web\nproxy    answers".to_owned()]),
        ]);
        let permits = SshPermits {
            allows: vec!["permit-pty".to_owned(), "permit-port-forwarding".to_owned()],
            bound: vec![("source-address".to_owned(), "192.0.2.7/32".to_owned())],
            traits,
        };
        let device = device.map(|custody| Device { id: DEVICE.parse().unwrap(), custody });
        let now = OffsetDateTime::from_unix_timestamp(NOON - 3600).unwrap();
        let own = CertifiedKey {
            file: "/home/alice/.ssh/id_sk".into(),
            kind: "sk-ssh-ed25519@openssh.com".to_owned(),
            fingerprint: "SHA256:abc".to_owned(),
        };
        Held { profile, permits: Some(permits), device, ssh_key: Some(own), now }
    }

    #[test]
    fn all_that_a_login_holds_is_shown() {
        let profile = profile();
        let lines = held(&profile, Some(DeviceCustody::Hardware)).lines();
        let expected = [
            "cluster  example.com at sp.example.com:3080",
            "user     alice",
            "roles    dev",
            "logins   root, deploy",
            "valid    until 2026-03-01T12:00:00Z, 1h left",
            "proven   by password, desk (passkey)",
            "login    0190c7e2-0000-7000-8000-000000000002",
            "device   0190c7e2-0000-7000-8000-000000000001 (its key is in hardware)",
            "key      /home/alice/.ssh/id_sk (sk-ssh-ed25519@openssh.com SHA256:abc), which is yours",
            "trait    internal.logins: root",
            "trait    team: db, web proxy    answers",
            "allows   terminals, port forwarding",
            "bound    to 192.0.2.7/32",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn programs_are_told_the_same() {
        let profile = profile();
        let expected = json!({
            "proxy": "sp.example.com:3080", "cluster": "example.com", "user": "alice", "roles": ["dev"],
            "logins": ["root", "deploy"], "valid_until": "2026-03-01T12:00:00Z", "expired": false, "reachable": true,
            "login": {
                "id": "0190c7e2-0000-7000-8000-000000000002", "way": "password", "factor": "desk",
                "factor_kind": "webauthn", "second_factor": true,
            },
            "device": { "id": DEVICE, "custody": "file" },
            "ssh_key": { "file": "/home/alice/.ssh/id_sk", "type": "sk-ssh-ed25519@openssh.com", "fingerprint": "SHA256:abc" },
            "traits": { "internal.logins": ["root"], "team": ["db", "web\nproxy    answers"] },
            "allows": ["permit-pty", "permit-port-forwarding"], "bound": { "source-address": "192.0.2.7/32" },
        });
        assert_eq!(held(&profile, Some(DeviceCustody::File)).json(Some(true)), expected);
    }

    #[test]
    fn what_a_login_does_not_hold_is_left_out() {
        let profile = Profile { login: None, ..profile() };
        let no_device = held(&profile, None);
        assert!(!no_device.lines().iter().any(|line| line.starts_with("device")), "{:?}", no_device.lines());
        assert_eq!(no_device.json(None)["device"], Value::Null);
        // Without a certificate that can be read, and after its end.
        let now = OffsetDateTime::from_unix_timestamp(NOON).unwrap();
        let bare = Held { profile: &profile, permits: None, device: None, ssh_key: None, now };
        let expected = [
            "cluster  example.com at sp.example.com:3080",
            "user     alice",
            "roles    dev",
            "logins   root, deploy",
            "expired  2026-03-01T12:00:00Z, 0s ago",
        ];
        assert_eq!(bare.lines(), expected);
        let json = bare.json(None);
        for name in ["device", "ssh_key", "traits", "allows", "bound", "login", "reachable"] {
            assert_eq!(json[name], Value::Null, "{name}");
        }
    }
}
