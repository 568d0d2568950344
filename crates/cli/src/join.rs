//! `sallyport join`: servers without an agent.

use std::path::PathBuf;
use std::time::Duration;

use sallyport_access::NodeName;
use sallyport_sal::selection;
use sallyport_server::config::{HostPort, Secret};
use sallyport_server::openssh::{self, Applied, Given, Layout, Member, SshdError};
use serde_json::json;

use crate::crypto;
use crate::error::{CliError, CliResult, Exit, chain};
use crate::global::Global;
use crate::ui::{self, Format};

/// How far a renewal with --watch may be off its time, as a part of it.
const SPREAD: f64 = 0.1;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Join {
    /// Make this machine's sshd a server of the cluster: certify its host key, and let it trust the cluster's users.
    ///
    /// Prints what sshd needs; --apply writes it, has sshd check it, and tells sshd. No private key leaves the machine.
    Openssh(Box<Openssh>),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Openssh {
    /// A token: sallyport admin tokens add --role openssh.
    #[arg(long, required_unless_present_any = ["renew", "watch", "print_timer"])]
    token: Option<String>,
    /// The pin that came with the token.
    #[arg(long, required_unless_present_any = ["renew", "watch", "print_timer"])]
    ca_pin: Option<String>,
    /// What people call the server. Default: this machine's name.
    #[arg(long)]
    name: Option<String>,
    /// Where it listens, host:port, as the proxy or the gateway reaches it. Not needed when it is registered already.
    #[arg(long, value_name = "HOST:PORT")]
    address: Option<String>,
    /// The node whose agent reaches it. Default: proxies connect to it themselves.
    #[arg(long, value_name = "NODE")]
    via: Option<String>,
    /// One more name or address that people reach it by without the cluster.
    #[arg(long = "also", value_name = "NAME")]
    names: Vec<String>,
    /// Write sshd's files and reload it, now and with every renewal.
    #[arg(long)]
    apply: bool,
    /// Renew what an earlier join got, if that is due; for a timer.
    #[arg(long, conflicts_with = "token")]
    renew: bool,
    /// Renew even if it is not due.
    #[arg(long, requires = "renew")]
    force: bool,
    /// Stay, and renew whenever it is due.
    #[arg(long, conflicts_with_all = ["token", "renew"])]
    watch: bool,
    /// With --watch, how often it looks whether a renewal is due.
    #[arg(long, value_parser = ui::parse_duration, default_value = "10m", requires = "watch")]
    every: Duration,
    /// Print a systemd service and timer that renew.
    #[arg(long, conflicts_with_all = ["token", "renew", "watch"])]
    print_timer: bool,
    /// Trust only what proxies bring: no user comes in past them, and every session is recorded there.
    #[arg(long)]
    proxy_only: bool,
    /// Trust the users' own certificates alone: a proxy that records there has the user's agent sign.
    #[arg(long, conflicts_with = "proxy_only")]
    user_only: bool,
    /// Where the membership is kept.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/sallyport/openssh")]
    state: PathBuf,
    /// The private host key; only the .pub beside it is read. Default: /etc/ssh/ssh_host_ed25519_key, in FIPS mode
    /// /etc/ssh/ssh_host_ecdsa_key.
    #[arg(long, value_name = "FILE")]
    host_key: Option<PathBuf>,
    /// sshd's main configuration.
    #[arg(long, value_name = "FILE", default_value = "/etc/ssh/sshd_config")]
    sshd_config: PathBuf,
    /// The file for our settings, which the main configuration must include.
    #[arg(long, value_name = "FILE", default_value = "/etc/ssh/sshd_config.d/20-sallyport.conf")]
    drop_in: PathBuf,
    /// Where the keys of the authorities are put.
    #[arg(long, value_name = "DIR", default_value = "/etc/ssh")]
    directory: PathBuf,
    /// sshd's program.
    #[arg(long, value_name = "FILE", default_value = "/usr/sbin/sshd")]
    sshd: PathBuf,
    /// The command that makes sshd read its configuration again.
    #[arg(
        long,
        value_name = "COMMAND",
        default_value = "systemctl reload ssh.service 2>/dev/null || systemctl reload sshd.service"
    )]
    reload: String,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(crate) async fn run(global: &Global, command: Join) -> CliResult {
    let Join::Openssh(args) = command;
    if args.print_timer {
        return ui::data(timer(&args, selection::global().is_fips()));
    }
    if args.watch {
        return watch(&args).await;
    }
    if args.renew {
        let mut member = Member::open(&args.state).map_err(|error| server(&error))?;
        return renew(&mut member, &args, args.force).await;
    }
    join(global, &args).await
}

fn server(error: &sallyport_server::ServerError) -> CliError {
    CliError::new(chain(error, &error.to_string()))
}

fn sshd(error: &SshdError) -> CliError {
    CliError::new(chain(error, &error.to_string()))
}

async fn join(global: &Global, args: &Openssh) -> CliResult {
    let usage = |what: String| CliError::new(what).exit(Exit::Usage);
    let proxy = global.proxy.as_deref().ok_or_else(|| {
        usage("which cluster?".to_owned()).hint("sallyport join openssh --proxy HOST:PORT --token TOKEN ...")
    })?;
    let proxy: HostPort =
        proxy.parse().map_err(|problem| usage(format!("the proxy's address {proxy:?} {problem}")))?;
    let name = match &args.name {
        Some(name) => NodeName::new(name.clone()).map_err(|error| usage(error.to_string()))?,
        None => sallyport_server::config::host_name().map_err(|error| {
            usage(format!("this machine's name cannot be the server's: {error}")).hint("give one with --name")
        })?,
    };
    let join = openssh::Join {
        proxy,
        token: Secret::new(args.token.clone().unwrap_or_default()),
        ca_pin: args.ca_pin.clone().unwrap_or_default(),
        name,
        names: args.names.clone(),
        address: args.address.clone(),
        via: args.via.clone(),
        directory: args.state.clone(),
        layout: Layout {
            sshd: args.sshd.clone(),
            config: args.sshd_config.clone(),
            drop_in: args.drop_in.clone(),
            directory: args.directory.clone(),
            host_key: args.host_key.clone().unwrap_or_else(|| openssh::default_host_key().into()),
            reload: args.reload.clone(),
            proxy_only: args.proxy_only,
            user_only: args.user_only,
        },
    };
    let given = openssh::join(join).await.map_err(|error| server(&error))?;
    ui::say(format!("Joined {} as {} ({}).", given.cluster, given.name, given.id));
    let mut member = Member::open(&args.state).map_err(|error| server(&error))?;
    finish(&mut member, args, &given).await
}

async fn renew(member: &mut Member, args: &Openssh, force: bool) -> CliResult {
    let given = member.renew(force).await.map_err(|error| server(&error))?;
    finish(member, args, &given).await
}

/// Applies or prints what the cluster gave, and tells the cluster.
async fn finish(member: &mut Member, args: &Openssh, given: &Given) -> CliResult {
    let plan = openssh::plan(given).map_err(|error| sshd(&error))?;
    let until = ui::timestamp(given.valid_until);
    if !(args.apply || given.applied) {
        print(&plan, given, args.format)?;
        ui::say(format!("The host certificate is good until {until}."));
        ui::say("Next: run it again with --renew --apply to write these files, or put them there yourself.");
        return Ok(());
    }
    let applied = openssh::apply(&given.layout, &plan).map_err(|error| sshd(&error))?;
    member.now_applied().map_err(|error| server(&error))?;
    report(&applied, given, args.format)?;
    // A rotation waits until this server trusts the new authorities, too.
    member.confirm(&plan).await.map_err(|error| server(&error))?;
    ui::say(format!("The host certificate is good until {until}."));
    if !args.renew && !args.watch {
        ui::say("Next: keep it fresh with a timer: sallyport join openssh --print-timer");
    }
    Ok(())
}

fn print(plan: &openssh::Plan, given: &Given, format: Format) -> CliResult {
    if format == Format::Json {
        let files: Vec<_> = plan
            .files()
            .map(|(path, text)| {
                let shown = std::str::from_utf8(text).ok();
                json!({ "path": path, "text": shown, "bytes": text.len() })
            })
            .collect();
        let until = ui::timestamp(given.valid_until);
        return ui::json(&json!({
            "cluster": given.cluster, "id": given.id, "name": given.name, "renewed": given.renewed,
            "valid_until": until, "files": files,
        }));
    }
    for (path, text) in plan.files() {
        match std::str::from_utf8(text) {
            Ok(text) => ui::document(format!("# {}\n{}", path.display(), text.trim_end()))?,
            Err(_) => ui::data(format!("# {} ({} bytes, binary)", path.display(), text.len()))?,
        }
        ui::data("")?;
    }
    Ok(())
}

fn report(applied: &Applied, given: &Given, format: Format) -> CliResult {
    if format == Format::Json {
        let changes: Vec<_> = applied
            .changes
            .iter()
            .map(|change| json!({ "path": change.path, "backup": change.backup }))
            .collect();
        let until = ui::timestamp(given.valid_until);
        return ui::json(&json!({
            "cluster": given.cluster, "id": given.id, "name": given.name, "renewed": given.renewed,
            "valid_until": until, "changed": changes, "reloaded": applied.reloaded,
        }));
    }
    if applied.changes.is_empty() {
        return ui::data("Everything is in place.");
    }
    for change in &applied.changes {
        match &change.backup {
            Some(backup) => {
                ui::data(format!("changed {} (before: {})", change.path.display(), backup.display()))?
            }
            None => ui::data(format!("wrote   {}", change.path.display()))?,
        }
    }
    if applied.reloaded { ui::data("sshd accepts it and was told to read it.") } else { Ok(()) }
}

async fn watch(args: &Openssh) -> CliResult {
    // Whether there is a membership at all is said at once; what goes wrong later may go right again.
    let mut member = Member::open(&args.state).map_err(|error| server(&error))?;
    let mut stop = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        .map_err(|error| CliError::new(format!("cannot wait for signals: {error}")))?;
    loop {
        if let Err(error) = renew(&mut member, args, false).await {
            ui::say(error.to_string());
        }
        let share: f64 = sallyport_sal::random::bytes::<1>().map_or(0.0, |[byte]| f64::from(byte) / 255.0);
        tokio::select! {
            () = tokio::time::sleep(args.every.mul_f64(1.0 - SPREAD * share)) => {}
            _ = tokio::signal::ctrl_c() => return Ok(()),
            _ = stop.recv() => return Ok(()),
        }
    }
}

/// Units that renew once an hour; what is not due costs one call. In FIPS mode the service is in it, too: a cluster that requires it
/// renews nothing else.
fn timer(args: &Openssh, fips: bool) -> String {
    let program = std::env::current_exe()
        .map_or_else(|_| "/usr/bin/sallyport".to_owned(), |path| path.display().to_string());
    let environment = if fips { format!("Environment={}=fips\n", crypto::VARIABLE) } else { String::new() };
    format!(
        "# /etc/systemd/system/sallyport-openssh.service\n\
         [Unit]\n\
         Description=Keep sshd a member of its Sallyport cluster\n\
         After=network-online.target\n\
         Wants=network-online.target\n\n\
         [Service]\n\
         Type=oneshot\n\
         {environment}\
         ExecStart={program} join openssh --renew --state {}\n\n\
         # /etc/systemd/system/sallyport-openssh.timer\n\
         [Unit]\n\
         Description=Keep sshd a member of its Sallyport cluster\n\n\
         [Timer]\n\
         OnBootSec=1min\n\
         OnUnitActiveSec=1h\n\
         RandomizedDelaySec=5min\n\
         Persistent=true\n\n\
         [Install]\n\
         WantedBy=timers.target\n\n\
         # Then: systemctl enable --now sallyport-openssh.timer",
        args.state.display()
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: Openssh,
    }

    #[test]
    fn the_timer_keeps_to_the_mode() {
        let args = Command::parse_from(["openssh", "--print-timer"]).args;
        let line = "[Service]\nType=oneshot\nEnvironment=SALLYPORT_CRYPTO=fips\nExecStart=";
        assert!(timer(&args, true).contains(line), "{}", timer(&args, true));
        let text = timer(&args, false);
        assert!(
            text.contains("[Service]\nType=oneshot\nExecStart=") && !text.contains("SALLYPORT_CRYPTO"),
            "{text}"
        );
    }
}
