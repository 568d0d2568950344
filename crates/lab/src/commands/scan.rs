//! `sallyport lab scan`: what TLS and SSH servers offer, what it costs them, and what to change.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sallyport_bench::Talk;
use sallyport_lab::scan::{self, Order, Scan, Settings, StartTls};
use sallyport_lab::{LabError, offers::Level};

use sallyport_cli::error::{CliError, CliResult, Context};
use sallyport_cli::ui::{self, Format};

#[derive(Debug, clap::Args)]
pub(crate) struct ScanArgs {
    /// Servers to look at.
    #[arg(value_name = "HOST:PORT", required = true)]
    servers: Vec<String>,
    /// How TLS begins, where it does not begin at once.
    #[arg(long, value_enum, value_name = "PROTOCOL")]
    starttls: Option<StartTlsArg>,
    /// The name to ask for and to find in the certificate, when it is not HOST.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// What matters most: fewer connections, and half the time.
    #[arg(long)]
    quick: bool,
    /// Do not measure what keys and groups cost on this machine.
    #[arg(long)]
    no_costs: bool,
    /// For one server in all. Default: 60s, or 30s with --quick.
    #[arg(long, value_name = "DURATION", value_parser = ui::parse_duration)]
    deadline: Option<Duration>,
    /// For one connection.
    #[arg(long, value_name = "DURATION", value_parser = ui::parse_duration, default_value = "5s")]
    patience: Duration,
    /// Between two connections, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 20)]
    pause: u64,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum StartTlsArg {
    /// PostgreSQL's SSLRequest.
    Postgres,
    /// SMTP's STARTTLS.
    Smtp,
    /// IMAP's STARTTLS.
    Imap,
}

impl ScanArgs {
    fn settings(&self) -> Settings {
        let settings = if self.quick { Settings::quick() } else { Settings::full() };
        Settings {
            starttls: match self.starttls {
                None => StartTls::None,
                Some(StartTlsArg::Postgres) => StartTls::Postgres,
                Some(StartTlsArg::Smtp) => StartTls::Smtp,
                Some(StartTlsArg::Imap) => StartTls::Imap,
            },
            name: self.name.clone(),
            deadline: self.deadline.unwrap_or(settings.deadline),
            patience: self.patience,
            pause: Duration::from_millis(self.pause),
            costs: !self.no_costs,
            ..settings
        }
    }
}

/// One server after the other. One that cannot be looked at is said at the end, and makes the exit code 1 too.
pub(crate) async fn run(args: ScanArgs) -> CliResult<ExitCode> {
    let (settings, servers) = (args.settings(), args.servers);
    let stop = Arc::new(AtomicBool::new(false));
    let talk = Talk::new(|line| ui::say(line), Arc::clone(&stop));
    let mut looking = tokio::task::spawn_blocking(move || {
        let look = |server: &String| scan::run(server, &settings, &talk);
        servers.iter().take_while(|_| !talk.stopping()).map(look).collect::<Vec<Result<Scan, LabError>>>()
    });
    let results = loop {
        tokio::select! {
            done = &mut looking => break done.doing("look at the servers")?,
            _ = tokio::signal::ctrl_c() => {
                if stop.swap(true, Ordering::Relaxed) {
                    return Err(CliError::new("interrupted twice"));
                }
                ui::say("stopping after this question; what there is will be shown (once more: at once)");
            }
        }
    };
    let (mut scans, mut errors) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(scan) => scans.push(scan),
            Err(error) => errors.push(error),
        }
    }
    match args.format {
        Format::Json => ui::json(&scans)?,
        Format::Text => {
            for (at, scan) in scans.iter().enumerate() {
                if at > 0 {
                    ui::data("")?;
                }
                show(scan)?;
            }
        }
    }
    if let Some((last, others)) = errors.split_last() {
        others.iter().for_each(|error| ui::say(error.to_string()));
        return Err(CliError::new(last.to_string()));
    }
    let bad: usize = scans.iter().map(Scan::bad).sum();
    Ok(if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show(scan: &Scan) -> CliResult {
    let software = scan.software.as_ref().map(|name| format!(", {name}")).unwrap_or_default();
    ui::data(format!(
        "{}  {}{software}; {} connections in {:.1} s; {} findings above informational",
        scan.address,
        scan.protocol.to_uppercase(),
        scan.connections,
        scan.seconds,
        scan.bad()
    ))?;
    ui::data("")?;
    for finding in scan.findings.iter().filter(|finding| finding.level > Level::Good) {
        ui::data(format!("{:<8} {}: {}", finding.level.name(), finding.what, finding.reason))?;
        if let Some(change) = &finding.change {
            ui::data(format!("         change: {change}"))?;
        }
    }
    for finding in scan.findings.iter().filter(|finding| finding.level == Level::Good) {
        ui::data(format!("{:<8} {}: {}", finding.level.name(), finding.what, finding.reason))?;
    }
    if let Some(tls) = &scan.tls {
        show_tls(tls)?;
    }
    if let Some(ssh) = &scan.ssh {
        show_ssh(ssh)?;
    }
    if !scan.costs.is_empty() {
        show_costs(scan)?;
    }
    for note in &scan.notes {
        ui::data(format!("note     {note}"))?;
    }
    Ok(())
}

fn order(order: Order) -> &'static str {
    match order {
        Order::Server => "the server's order decides",
        Order::Client => "the client's order decides",
        Order::Unknown => "",
    }
}

fn show_tls(tls: &scan::Tls) -> CliResult {
    ui::data("")?;
    let mut rows = Vec::new();
    for version in &tls.versions {
        for (at, suite) in version.suites.iter().enumerate() {
            let name = if at == 0 { version.name.clone() } else { String::new() };
            let more = version.incomplete && at + 1 == version.suites.len();
            let note = if at == 0 {
                order(version.order)
            } else if more {
                "there may be more"
            } else {
                ""
            };
            rows.push(vec![name, (*suite).to_owned(), note.to_owned()]);
        }
    }
    for (at, group) in tls.groups.iter().enumerate() {
        let name = if at == 0 { "groups" } else { "" };
        let more = tls.groups_incomplete && at + 1 == tls.groups.len();
        let note = if at == 0 {
            order(tls.group_order)
        } else if more {
            "there may be more"
        } else {
            ""
        };
        rows.push(vec![name.to_owned(), group.clone(), note.to_owned()]);
    }
    ui::table(&["", "offers", ""], rows, "nothing is offered")?;
    ui::data("")?;
    let mut rows = Vec::new();
    for chain in &tls.chains {
        for (at, one) in chain.certificates.iter().enumerate() {
            rows.push(vec![
                if at == 0 { chain.by.join(", ") } else { String::new() },
                one.subject.clone(),
                one.key.clone(),
                one.signature.clone(),
                one.not_after.date().to_string(),
                one.bytes.to_string(),
            ]);
        }
    }
    ui::table(
        &["shown for", "certificate", "key", "signed with", "until", "bytes"],
        rows,
        "no certificate is shown",
    )?;
    ui::data("")?;
    for first in &tls.first_hellos {
        let met = match (&first.group, first.retry) {
            (None, _) => "no group in common".to_owned(),
            (Some(group), true) => format!("{group}, after another hello"),
            (Some(group), false) => format!("{group} at once"),
        };
        ui::data(format!("{}: {met}", first.client))?;
    }
    if let (Some((up, down)), Some(made)) = (tls.handshake_bytes, &tls.handshake) {
        ui::data(format!(
            "a whole handshake by the lab's client ({made}): {up} bytes from the client, whose hello is shorter than a browser's, {down} from the server"
        ))?;
    }
    let resumed = match tls.resumed {
        Some(true) => "resumed",
        Some(false) => "not resumed",
        None => "not looked at",
    };
    let alpn = if tls.alpn.is_empty() { "none".to_owned() } else { tls.alpn.join(", ") };
    ui::data(format!(
        "sessions: {resumed}; ALPN: {alpn}; OCSP: {}",
        if tls.stapled { "stapled" } else { "not stapled" }
    ))
}

fn show_ssh(ssh: &scan::Ssh) -> CliResult {
    ui::data("")?;
    let rows = ssh
        .host_keys
        .iter()
        .map(|key| {
            vec![
                key.key.clone(),
                key.signed_with.clone(),
                key.bytes.to_string(),
                key.signature_bytes.to_string(),
            ]
        })
        .collect();
    ui::table(&["host key", "signs with", "bytes", "signature"], rows, "no host key was seen")?;
    ui::data("")?;
    ui::data("in SSH the client's order decides: the first of its list that the server has too")?;
    for (name, list) in
        [("kex", &ssh.kex), ("ciphers", &ssh.ciphers), ("macs", &ssh.macs), ("compression", &ssh.compression)]
    {
        ui::data(format!("{name:<12} {}", list.join(", ")))?;
    }
    Ok(())
}

fn show_costs(scan: &Scan) -> CliResult {
    ui::data("")?;
    let rows = scan
        .costs
        .iter()
        .map(|cost| {
            vec![
                cost.role.to_owned(),
                cost.what.clone(),
                format!("{}{}", if cost.estimated { "~" } else { "" }, scan::time(cost.server_us)),
                scan::time(cost.client_us),
                format!("{:.0}", cost.per_second),
            ]
        })
        .collect();
    ui::table(&["", "what", "server", "client", "a second, a core"], rows, "nothing was measured")?;
    ui::data(format!(
        "on this machine, where the lab runs, and not on the server: {}. The last column is how many handshakes one core could do if that were all.",
        scan.machine.line()
    ))?;
    Ok(())
}
